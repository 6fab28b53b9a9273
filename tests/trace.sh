#!/bin/sh
# trace.sh: the trace of a run follows Perfetto's rules and holds every planned action,
# for each schedule and however ranks are connected.
set -eu
. "$(dirname -- "$0")/mpi_lib.sh"
write_conf mlp.conf 's/network = "toy"/network = "mlp"  hidden = {64, 64, 64}/; s/batch_size = 20/batch_size = 32/;
        s/steps = 3/steps = 6/'
command -v python3 >/dev/null || { echo "1..0 # SKIP no python3 (apt-get install python3)"; exit 77; }

# reads TEXT FILE STEPS PLAN-OPTIONS...
reads() {
    reads_text=$1 file=$2 steps=$3; shift 3
    "$mpstaged" -c mlp.conf --plan --json "$@" >"$aside/plan.json"
    python3 "$here/trace.py" "$file" "$aside/plan.json" "$steps" >"$aside/tap" 2>&1 ||
        echo "not ok - trace.py: $(tail -n 1 "$aside/tap")" >>"$aside/tap"
    grep '^#' "$aside/tap" || true
    while IFS= read -r line; do
        case $line in
        "ok - "*) ok "$reads_text: ${line#ok - }" ;;
        "not ok - "*) not_ok "$reads_text: ${line#not ok - }" ;;
        esac
    done <"$aside/tap"
}

for schedule in naive gpipe 1f1b; do
    job 2 -c mlp.conf --schedule $schedule --run-dir $schedule --trace $schedule/trace.json
    if [ "$code" -eq 0 ] && [ -s $schedule/trace.json ]; then
        reads "$schedule" $schedule/trace.json 2,3,4 --schedule $schedule
    else why; not_ok "$schedule: $code"; fi
done
job 4 -c mlp.conf --stages 4 --run-dir four --trace four.json -o run.trace_steps=1 \
    -o pipeline.recompute=all --schedule gpipe
if [ "$code" -eq 0 ]; then
    reads "four ranks, recomputing" four.json 2 --stages 4 --schedule gpipe -o pipeline.recompute=all
else why; not_ok "four ranks: $code"; fi
set -- -o pipeline.replicas=2 -o train.gradient_groups=2 -o train.split_size=4 -o pipeline.bucket_kib=4
job 4 -c mlp.conf --run-dir sides --trace sides.json "$@"
if [ "$code" -eq 0 ]; then reads "two replicas of two stages" sides.json 2,3,4 --stages 2 "$@"
else why; not_ok "two replicas: $code"; fi
"$mpstaged" -c mlp.conf --transport local --run-dir threads --trace threads.json --steps 1 \
    >"$aside/out" 2>"$aside/err" </dev/null && code=0 || code=$?
if [ "$code" -eq 0 ]; then reads "threads of one process, one step" threads.json 1
else why; not_ok "threads: $code"; fi

# ---- spans for OpenTelemetry -----------------------------------------------------------------------------------------
python=${MPSTAGED_PYTHON:-python3} otlp="$here/../contrib/otlp-send"
# spans TEXT TRACE REQUESTS RANKS STEPS
spans() {
    spans_text=$1; shift
    "$python" "$here/otlp.py" "$@" >"$aside/said" 2>&1 || echo failed >>"$aside/said"
    case $(tail -n 1 "$aside/said") in
    well) ok "$spans_text" ;;
    "no opentelemetry-proto")
        ok "$spans_text"
        skip "protobuf reads them, too" "pip install opentelemetry-proto, and set MPSTAGED_PYTHON" ;;
    *) note <"$aside/said"; not_ok "$spans_text" ;;
    esac
}
"$python" "$otlp" four.json >"$aside/four.jsonl"
spans "contrib/otlp-send: spans of four ranks" four.json "$aside/four.jsonl" 4 1
"$python" "$otlp" sides.json >"$aside/sides.jsonl"
spans "of two replicas" sides.json "$aside/sides.jsonl" 4 3
"$python" "$here/otlp.py" serve "$aside/port" "$aside/got.jsonl" & collector=$!
for _ in $(seq 200); do [ ! -e "$aside/port" ] || break; sleep 0.05; done
url=http://127.0.0.1:$(cat "$aside/port")
check "they go to a collector" "$python" "$otlp" 1f1b/trace.json --url "$url/v1/traces"
spans "which has them all" 1f1b/trace.json "$aside/got.jsonl" 2 3
otlp_fails() { code=0; "$python" "$otlp" "$@" >"$aside/out" 2>"$aside/err" || code=$?; }
otlp_fails 1f1b/trace.json --url "$url/other"
check "another path: one line, and 69" [ "$code" -eq 69 -a "$(grep -c '404' "$aside/err")" -eq 1 ]
kill "$collector"
otlp_fails 1f1b/metrics.jsonl
check "no trace: one line, and 65" [ "$code" -eq 65 -a "$(grep -c 'no trace' "$aside/err")" -eq 1 ]

same=$(for r in naive gpipe 1f1b; do done_field $r/metrics.jsonl weights_hash; echo; done | sort -u | grep -c .)
job 2 -c mlp.conf --run-dir plain
check "traced runs have the weights of one that is not" [ "$same" -eq 1 \
    -a "$(done_field plain/metrics.jsonl weights_hash)" = "$(done_field naive/metrics.jsonl weights_hash)" ]
job 2 -c mlp.conf --run-dir bad --trace none/trace.json
check "a folder that is not there: refused before anything is created" \
    [ "$code" -eq 73 -a "$(our_lines)" -eq 1 -a ! -e bad ]
job 2 -c mlp.conf --run-dir bad --trace naive
check "a directory is no file to write" [ "$code" -eq 73 -a "$(our_lines)" -eq 1 -a ! -e bad ]
check "no rank is left" nobody_left
tap_done
