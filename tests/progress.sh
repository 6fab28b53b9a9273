#!/bin/sh
# progress.sh: contrib/kubernetes/progress against an endpoint like Kubeflow Trainer's: what is reported, that it
# changes neither the run nor its status, and that SIGTERM saves a checkpoint through it.
set -eu
. "$(dirname -- "$0")/mpi_lib.sh"
command -v python3 >/dev/null || { echo "1..0 # SKIP no python3"; exit 77; }
sender="python3 ${here%/*}/contrib/kubernetes/progress --every 0.2"
cat >server.py <<'END2'
import http.server, json, sys
class Answer(http.server.BaseHTTPRequestHandler):
    n = 0
    def do_POST(self):
        body = self.rfile.read(int(self.headers["Content-Length"]))
        Answer.n += 1
        with open("posts", "a") as f:
            f.write("%s %s %s\n" % (self.path, self.headers["Authorization"], body.decode()))
        self.send_response(503 if Answer.n == 1 else 200)
        self.end_headers()
s = http.server.HTTPServer(("127.0.0.1", 0), Answer)
print(s.server_address[1], flush=True)
s.serve_forever()
END2
python3 server.py >port 2>/dev/null & server=$!
trap 'kill $server 2>/dev/null || true; for p in $(ranks_alive); do kill -9 "$p" 2>/dev/null || true; done
    rm -rf "$tmp" "$aside"' EXIT
for _ in $(seq 200); do [ ! -s port ] || break; sleep 0.05; done
export KUBEFLOW_TRAINER_SERVER_URL="http://127.0.0.1:$(cat port)/apis/x/status" KUBEFLOW_TRAINER_SERVER_TOKEN=$tmp/token
echo secret >token
write_conf long.conf 's/steps = 3/steps = 100000000/'
write_conf toy.conf 's/steps = 3/steps = 8/'
echo 'checkpoint { every_steps = 4 }' >>toy.conf

# reports: the posts are what Trainer takes: its limits, and the time of each
reports() {
    python3 - "$@" <<'END2'
import json, re, sys
lines = open("posts").read().splitlines()
for l in lines:
    path, kind, token, body = l.split(" ", 3)
    assert (path, kind, token) == ("/apis/x/status", "Bearer", "secret"), l
    body = json.loads(body)
    assert list(body) == ["trainerStatus"]
    s = body["trainerStatus"]
    assert set(s) <= {"progressPercentage", "estimatedRemainingSeconds", "metrics", "lastUpdatedTime"}
    assert re.fullmatch(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\dZ", s["lastUpdatedTime"])
    assert 0 <= s["progressPercentage"] <= 100 and s.get("estimatedRemainingSeconds", 0) >= 0
    assert len(s["metrics"]) <= 256
    for m in s["metrics"]:
        assert set(m) == {"name", "value"} and all(isinstance(v, str) and 1 <= len(v) <= 64 for v in m.values())
exec(sys.argv[1])
END2
}
# ran STATUS COMMAND...
ran() {
    want=$1 code=0; shift; rm -f posts
    timeout -s KILL 120 "$@" >"$aside/out" 2>"$aside/err" </dev/null || code=$?
    if [ "$code" -eq "$want" ]; then ok "$want: $*"; else why; not_ok "$want: $code: $*"; fi
}
ran 0 $sender run "$mpstaged" --transport local -c toy.conf --run-dir run
check "the last report is of a run that is done" reports '
m = {x["name"]: x["value"] for x in s["metrics"]}
assert (s["progressPercentage"], s["estimatedRemainingSeconds"]) == (100, 0), s
assert float(m["loss"]) > 0 and m["epoch"] == "1", m'
check "a report that fails is said once" [ "$(grep -c '^progress: a report failed: .*503' "$aside/err")" -eq 1 ]
ran 78 $sender none "$mpstaged" --transport local -c toy.conf --batch-size 0
check "nothing is reported of a run that is refused" [ ! -e posts ]
ran 137 $sender none sh -c 'kill -9 $$'
ran 127 $sender none ./nothing-here
ran 64 $sender none
KUBEFLOW_TRAINER_SERVER_URL=http://127.0.0.1:1/ ran 0 $sender again "$mpstaged" --transport local -c toy.conf \
    --run-dir again
equal "without its endpoint the run has the same weights" "$(hash_of run)" "$(hash_of again)"

# As a pod ends: SIGTERM to the first process only.
rm -f posts
$sender long "$build/mpstage-run" --stop-timeout 60 -- "$mpstaged" --transport local -c long.conf --run-dir long \
    >"$aside/out" 2>"$aside/err" </dev/null & pid=$!
for _ in $(seq 600); do ! grep -qs '"loss"' posts || break; sleep 0.05; done      # before its first step it has none
kill -TERM $pid
code=0
wait $pid || code=$?
if [ "$code" -eq 75 ] && [ -n "$(find long/checkpoints -name 'step-*[0-9]' 2>/dev/null)" ]; then
    ok "SIGTERM saves a checkpoint and ends with 75"
else why; not_ok "SIGTERM saves a checkpoint and ends with 75: $code"; fi
check "a run that was stopped is not done" reports 'assert s["progressPercentage"] < 100'
check "nobody is left" nobody_left
tap_done
