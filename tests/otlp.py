"""What tests/trace.sh asks of contrib/otlp-send: its spans are those of the trace.  otlp.py TRACE REQUESTS RANKS STEPS
otlp.py serve PORTFILE REQUESTS: a collector that writes down what it gets."""
import http.server, json, os, re, signal, sys

class Collector(http.server.BaseHTTPRequestHandler):
    def do_POST(self):
        body = self.rfile.read(int(self.headers["Content-Length"]))
        right = self.path == "/v1/traces" and self.headers["Content-Type"] == "application/json"
        with open(sys.argv[3], "ab") as f:
            f.write(body + b"\n" if right else b"")
        self.send_response(200 if right else 404)
        self.end_headers()

    def log_message(self, *_):
        pass

if sys.argv[1] == "serve":
    signal.alarm(600)                                     # the script may be killed
    server = http.server.HTTPServer(("127.0.0.1", 0), Collector)
    with open(sys.argv[2] + ".new", "w") as f:
        print(server.server_port, file=f)
    os.rename(sys.argv[2] + ".new", sys.argv[2])
    server.serve_forever()

events = json.load(open(sys.argv[1]))["traceEvents"]
requests = [json.loads(line) for line in open(sys.argv[2])]
ranks, steps = int(sys.argv[3]), int(sys.argv[4])
spans = {}
for r in requests:
    for of in r["resourceSpans"]:
        who = {a["key"]: a["value"]["stringValue"] for a in of["resource"]["attributes"]}
        for s in of["scopeSpans"][0]["spans"]:
            assert s["spanId"] not in spans and re.fullmatch("[0-9a-f]{16}", s["spanId"]), s
            assert re.fullmatch("[0-9a-f]{32}", s["traceId"]), s
            spans[s["spanId"]] = dict(s, rank=who["service.instance.id"])
times = lambda s: (int(s["startTimeUnixNano"]), int(s["endTimeUnixNano"]))
whole = [e for e in events if e["ph"] == "X"]
assert sorted(e["name"] for e in whole) == sorted(s["name"] for s in spans.values())
first = min(times(s)[0] for s in spans.values())
assert abs(max(times(s)[1] for s in spans.values()) - first - 1000 * (
    max(e["ts"] + e["dur"] for e in whole) - min(e["ts"] for e in whole))) < 10
roots = [s for s in spans.values() if "parentSpanId" not in s]
assert sorted(s["name"] for s in roots) == [f"step {i}" for i in range(2, 2 + steps)], [s["name"] for s in roots]
assert {s["rank"] for s in roots} == {"rank 0"} and len({s["traceId"] for s in spans.values()}) == steps
kernels = 0
for s in spans.values():
    if "parentSpanId" in s:
        up = spans[s["parentSpanId"]]
        assert up["traceId"] == s["traceId"]
        if not s["name"].startswith("step "):
            assert up["rank"] == s["rank"]
            kernels += not up["name"].startswith("step ")
    for link in s.get("links", []):
        sent = spans[link["spanId"]]
        assert sent["rank"] != s["rank"] and sent["traceId"] == link["traceId"]
        assert len({re.sub("^[0-9]+[SR]", "", x["name"]) for x in (sent, s)}) == 1, (sent, s)
assert kernels and len({s["rank"] for s in spans.values()}) == ranks
assert sum("links" in s for s in spans.values()) == sum(e["ph"] == "f" for e in events) > 0
try:
    from google.protobuf.json_format import Parse
    from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest
except ImportError:
    print("no opentelemetry-proto")
else:
    for r in requests:                                    # protobuf's JSON has bytes in base64; OTLP's has ids in hex
        Parse(re.sub('"(traceId|spanId|parentSpanId)": "[0-9a-f]+"', r'"\1": "AAAA"', json.dumps(r)),
              ExportTraceServiceRequest())
    print("well")
