#!/bin/sh
# mlflow.sh: contrib/mlflow-send gives a server each value of metrics.jsonl once: of a finished run, of one that trains,
# and if it is killed between.
set -eu
. "$(dirname -- "$0")/mpi_lib.sh"
python=${MPSTAGED_PYTHON:-$(command -v python3 || true)}
if [ -z "$python" ]; then echo "1..0 # SKIP no python3: apt-get install python3"; exit 77; fi
write_conf short.conf 's/steps = 3/steps = 300/; $a service { log_every = 0 }'
"$python" "$here/fake_mlflow.py" "$aside/port" "$aside/state" 2>"$aside/server" & server=$!
for _ in $(seq 200); do [ ! -e "$aside/port" ] || break; sleep 0.05; done
MLFLOW_TRACKING_URI="http://127.0.0.1:$(cat "$aside/port")"
export MLFLOW_TRACKING_URI MLFLOW_TRACKING_TOKEN=sesame
send() { "$python" "$here/../contrib/mlflow-send" "$@" 2>"$aside/err"; }
# equal_sets RUN STATUS [killed]: the server has the numbers of RUN/metrics.jsonl, each once, and that status. A sender
# that was killed may send a batch again; MLflow keeps one of equal rows.
cat >"$aside/sets.py" <<'END'
import json, sys
state = json.load(open(sys.argv[1]))
(run,) = [r for r in state["runs"].values() if r["tags"]["mpstaged.directory"].endswith("/" + sys.argv[2])]
want, step, config = [], 0, None
for line in open(sys.argv[2] + "/metrics.jsonl"):
    o = json.loads(line)
    config = config or o.get("config")
    step = o["step"] if o["event"] == "step" else step
    prefix = {"step": "train/", "evaluation": "test/", "done": "run/"}.get(o["event"])
    if prefix:
        want += [[prefix + k, step, v] for k, v in o.items() if type(v) in (int, float) and k not in ("step", "steps")]
if len(sys.argv) > 4: run["metrics"] = [list(m) for m in dict.fromkeys(map(tuple, run["metrics"]))]
got = sorted(m[:3] for m in run["metrics"])
assert got == sorted(want), (len(got), len(want), [x for x in got if x not in want][:3])
loss = [m for m in run["metrics"] if m[0] == "train/loss"]
assert len(loss) == 300 and all(a[3] <= b[3] for a, b in zip(loss, loss[1:])), len(loss)
assert run["status"] == sys.argv[3] and run["name"] == "toy", run["status"]
assert run["params"]["train.steps"] == "300" == str(config["train"]["steps"]) and len(run["params"]) > 100
assert 100 < state["most"] < 1000, state["most"]
END
sets() { "$python" "$aside/sets.py" "$aside/state" "$@" >"$aside/said" 2>&1 || { note <"$aside/said"; false; }; }

trains done-run threads -c short.conf
check "a finished run, and a server that is busy at first" send done-run --experiment "o'clock & more"
check "each value is there once, in batches" sets done-run FINISHED
cp "$aside/state" "$aside/before"
check "again" send done-run --follow --experiment "o'clock & more"
check "no value comes twice" sets done-run FINISHED

cp -r done-run live
head -c 60001 done-run/metrics.jsonl >live/metrics.jsonl
"$python" - live/metrics.jsonl <<'END'
import re, sys
text = open(sys.argv[1]).read()
open(sys.argv[1], "w").write(re.sub('"pid":[0-9]+', '"pid":1', text, count=1))
END
cut=$(wc -c <live/metrics.jsonl)
send live --follow & sender=$!
for _ in $(seq 200); do [ "$(grep -o 'mpstaged.sent' "$aside/state" | grep -c .)" -lt 2 ] || break; sleep 0.05; done
kill -KILL "$sender"
wait "$sender" 2>/dev/null || true
check "half of a run, and half of a line: it waits for more" [ "$cut" -gt 50000 ]
send live --follow & sender=$!
tail -c +60002 done-run/metrics.jsonl >>live/metrics.jsonl
code=0; wait "$sender" || code=$?
equal "killed, and called again while the run goes on: it ends with the run" "$code" 0
check "and each value is there once" sets live FINISHED killed

# fails TEXT CODE PATTERN ARGUMENTS...: one line with that pattern
fails() {
    fails_text=$1 fails_code=$2 fails_pattern=$3 code=0; shift 3
    send "$@" || code=$?
    if [ "$code" -eq "$fails_code" ] && [ "$(grep -c . "$aside/err")" -eq 1 ] && grep -q "$fails_pattern" "$aside/err"
    then ok "$fails_text"
    else note <"$aside/err"; not_ok "$fails_text: $code"; fi
}
fails "no run" 66 '^mlflow-send: none/metrics.jsonl: No such file' none
mkdir bad
sed '3s/{/{{/' done-run/metrics.jsonl | sed '1s/"pid":/"pid":9/' >bad/metrics.jsonl
fails "a damaged line" 65 '^mlflow-send: bad/metrics.jsonl:3: ' bad
MLFLOW_TRACKING_TOKEN=other fails "a wrong token" 69 '/experiments/get-by-name?[^ ]*: 401 ' done-run
fails "no server" 69 '/experiments/get-by-name?[^ ]*: .*refused' done-run --url http://127.0.0.1:1
kill "$server"
tap_done
