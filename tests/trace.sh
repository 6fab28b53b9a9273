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
