"""An MLflow server as tests/mlflow.sh needs it: what contrib/mlflow-send calls, with MLflow's limits, in memory.
fake_mlflow.py PORTFILE STATE: writes its port to one file, and after each request what it has to the other. The first
two requests are refused with 503, requests without the token with 401."""
import http.server, json, os, re, signal, sys, urllib.parse

state = {"experiments": {}, "runs": {}, "requests": 0, "most": 0}

class Refused(Exception):
    pass

def of_tags(run):
    return {"info": {"run_id": run["id"]}, "data": {"tags": [{"key": k, "value": v} for k, v in run["tags"].items()]}}

def experiments_get_by_name(q):
    return {"experiment": {"experiment_id": state["experiments"][q["experiment_name"]]}}

def experiments_create(q):
    state["experiments"][q["name"]] = str(len(state["experiments"]) + 1)
    return {"experiment_id": state["experiments"][q["name"]]}

def runs_search(q):
    value = re.fullmatch("tags.`mpstaged.start` = '(.*)'", q["filter"])[1]
    return {"runs": [of_tags(r) for r in state["runs"].values()
                     if r["experiment"] in q["experiment_ids"] and r["tags"]["mpstaged.start"] == value]}

def runs_create(q):
    run = {"id": f"run{len(state['runs'])}", "experiment": q["experiment_id"], "name": q["run_name"], "metrics": [],
           "tags": {t["key"]: t["value"] for t in q["tags"]}, "params": {}, "status": "RUNNING"}
    state["runs"][run["id"]] = run
    return {"run": of_tags(run)}

def runs_log_batch(q):
    run = state["runs"][q["run_id"]]
    metrics, params, tags = q.get("metrics", []), q.get("params", []), q.get("tags", [])
    if len(metrics) + len(params) + len(tags) > 1000 or len(params) > 100:
        raise Refused("too many")
    for p in params:
        if run["params"].setdefault(p["key"], p["value"]) != p["value"] or len(p["value"]) > 500:
            raise Refused("a parameter changes")
    run["metrics"] += [[m["key"], m["step"], m["value"], m["timestamp"]] for m in metrics]
    run["tags"].update({t["key"]: t["value"] for t in tags})
    state["most"] = max(state["most"], len(metrics))
    return {}

def runs_update(q):
    state["runs"][q["run_id"]]["status"] = q["status"]
    return {}

class Handler(http.server.BaseHTTPRequestHandler):
    def do_POST(self):
        self.answer(self.path, json.loads(self.rfile.read(int(self.headers["Content-Length"]))))

    def do_GET(self):
        path, _, query = self.path.partition("?")
        self.answer(path, dict(urllib.parse.parse_qsl(query)))

    def answer(self, path, q):
        state["requests"] += 1
        code, call = 200, path.removeprefix("/api/2.0/mlflow/").replace("/", "_").replace("-", "_")
        try:
            if state["requests"] <= 2:
                code, answer = 503, {"error_code": "TEMPORARILY_UNAVAILABLE"}
            elif self.headers["Authorization"] != "Bearer sesame":
                code, answer = 401, {"error_code": "UNAUTHENTICATED"}
            else:
                answer = globals()[call](q)
        except KeyError as e:
            code, answer = 404, {"error_code": "RESOURCE_DOES_NOT_EXIST", "message": repr(e)}
        except (Refused, TypeError) as e:
            code, answer = 400, {"error_code": "INVALID_PARAMETER_VALUE", "message": repr(e)}
        with open(sys.argv[2] + ".new", "w") as f:
            json.dump(state, f)
        os.rename(sys.argv[2] + ".new", sys.argv[2])
        body = json.dumps(answer).encode()
        self.send_response(code)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_):
        pass

signal.alarm(600)                                         # the script may be killed
server = http.server.HTTPServer(("127.0.0.1", 0), Handler)
with open(sys.argv[1] + ".new", "w") as f:
    print(server.server_port, file=f)
os.rename(sys.argv[1] + ".new", sys.argv[1])
server.serve_forever()
