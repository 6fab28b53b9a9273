#!/bin/sh
# mllog.sh: service.mllog writes what MLPerf's compliance checker accepts, also after a kill, a stop and a roll-back;
# without the checker, the structure of its lines.
set -eu
. "$(dirname -- "$0")/mpi_lib.sh"
python=${MPSTAGED_PYTHON:-$(command -v python3 || true)}
given='"submission_org=Example Lab", "submission_platform=two cores", "submission_division=open"'
cat >run.conf <<END
run      { name = "mllog"  seed = 7 }
model    { network = "mlp"  input = {10}  hidden = {20}  classes = 5 }
data     { source = "synthetic"  labels = "class"  samples = 160  test_samples = 32 }
train    { batch_size = 16  split_size = 4  steps = 12  optimizer = "adamw"  learning_rate = 0.01  evaluate_every = 5 }
pipeline { stages = 2 }
checkpoint { every_steps = 5  keep = 9 }
service  { log_every = 0
           mllog = {$given, "submission_benchmark=llama31_8b"} }
END
# What the lines have without Python: TIME KEY STEP STATUS, and what is no such line.
lines='s/^:::MLLOG {"namespace":"","time_ms":\([0-9]\{13\}\),"event_type":"[A-Z_]*","key":"\([a-z0-9_]*\)",'
lines=$lines'"value":[^{]*,"metadata":{\(.*\)}}$/\1 \2 \3/'
keys() { sed "$lines" "$1/mllog.txt" | awk '{ print $2 }' | tr '\n' ' '; }
value() { sed -n 's/.*"key":"'"$2"'","value":\(.*\),"metadata".*/\1/p' "$1/mllog.txt"; }
# whole RUN: from run_start on, blocks and evaluations alternate, and times do not fall
ending='run_start block_start block_stop eval_start eval_accuracy eval_stop block_start block_stop eval_start'
ending="$ending eval_accuracy eval_stop block_start block_stop eval_start eval_accuracy eval_stop run_stop"
whole() {
    equal "$1: blocks and evaluations" "$(keys "$1" | sed 's/.*\(run_start .*\) /\1/')" "$ending"
    check "$1: all lines are whole, and times do not fall" sh -c 'sed "$1" "$2" | awk "
        !/^[0-9]+ [a-z]/ || \$1 < was { bad = 1 } { was = \$1 } END { exit bad || NR < 40 }"' sh \
        "$lines" "$1/mllog.txt"
    equal "$1: samples at evaluations" "$(grep '"eval_stop"' "$1/mllog.txt" |
        sed 's/.*"samples_count":\([0-9]*\),"step_num":\([0-9]*\).*/\2 \1/' | tr '\n' ' ')" "5 80 10 160 12 192 "
}
# accepts RUN [RULES]: the checker does, without a warning
accepts() {
    accepts_rules=${2:-6.1.0}
    if [ -z "$python" ] || ! python_has mlperf_logging; then
        skip "$1: the checker" "no mlperf_logging: pip install mlperf-logging, and MPSTAGED_PYTHON=PYTHON"
        return
    fi
    code=0
    "$python" -m mlperf_logging.compliance_checker --ruleset "$accepts_rules" --werror \
        --log_output "$aside/checker" "$1/mllog.txt" >"$aside/said" 2>&1 || code=$?
    note <"$aside/said"
    if [ "$code" -eq 0 ] && grep -q SUCCESS "$aside/said"; then ok "$1: the checker of $accepts_rules accepts it"
    else not_ok "$1: the checker of $accepts_rules: $code"; fi
}

# ---- a run -----------------------------------------------------------------------------------------------------------
trains one threads -c run.conf
whole one
equal "what the run is" "$(for k in seed global_batch_size micro_batch_size gradient_accumulation_steps train_samples \
    eval_samples max_steps pipeline_parallelism opt_name opt_base_learning_rate opt_adamw_beta_1 cache_clear; do
    value one $k; done | tr '\n' ' ')" '7 16 4 4 160 32 12 2 "adamw" 0.01 0.9 false '
equal "what the user says" "$(value one submission_org) $(value one submission_benchmark)" '"Example Lab" "llama31_8b"'
equal "accuracies are those of tests" "$(value one eval_accuracy | awk '{ printf "%.9g ", $1 }')" \
    "$(sed -n 's/.*"event":"evaluation".*"accuracy":\([^,]*\),.*/\1/p' one/metrics.jsonl |
        awk '{ printf "%.9g ", $1 }')"
check "it ends well" grep -q '"run_stop".*"status":"success"' one/mllog.txt
accepts one
trains images threads -c run.conf \
    -o "service.mllog={$given, \"submission_benchmark=resnet\", \"submission_status=research\"}"
accepts images 4.0.0

# ---- steps that run again --------------------------------------------------------------------------------------------
# As a kill leaves it: half a line behind step 7 or so, or in the evaluation after step 10.
after_kill() {
    cp -r one "$1"
    rm -rf "$1"/checkpoints/step-0000001* "$1/weights.safetensors"
    sed "$2" one/mllog.txt >"$1/mllog.txt"
    printf ':::MLLOG {"namespace":"","time' >>"$1/mllog.txt"
    job threads -c run.conf --run-dir "$1" --resume
    [ "$code" -eq 0 ] || why
    whole "$1"
    accepts "$1"
    equal "$1: it began when it first did" "$(grep '"run_start"' "$1/mllog.txt")" \
        "$(sed -n "/\"run_start\"/{$2;p}" one/mllog.txt)"
}
after_kill block '/"block_stop".*"step_num":10,\{0,1\}/,$d'
after_kill ahead 's/"time_ms":1/"time_ms":2/'             # of a clock that was ahead by 30 years
after_kill evaluation '/"eval_accuracy".*"step_num":10/,$d'
after_kill finished ''
job threads -c run.conf --run-dir stopped -o train.steps=7 -o train.evaluate_every=5
sed -i 's/"success"/"aborted"/' stopped/mllog.txt
job threads -c run.conf --run-dir stopped --resume
check "an extended run has one end" [ "$code $(grep -c run_stop stopped/mllog.txt)" = "0 1" ]
rm -rf fails; cp run.conf fails.conf; sed -i 's/learning_rate = 0.01/learning_rate = 1e6/; s/"adamw"/"sgd"/' fails.conf
job threads -c fails.conf --run-dir fails
check "a run that fails is aborted: $code" sh -c '[ "$1" -ne 0 ] && tail -n 1 "$2" | grep -q "run_stop.*\"aborted\""' \
    sh "$code" fails/mllog.txt

# ---- without it, and errors ------------------------------------------------------------------------------------------
job threads -c run.conf --run-dir one --evaluate
job threads -c run.conf --run-dir plain -o 'service.mllog={}'
check "without values there is no file" [ "$code" -eq 0 ] && [ ! -e plain/mllog.txt ]
# refuses TEXT PATTERN LIST
refuses() { refused "$1" 78 "$2" threads -c run.conf --run-dir no -o "service.mllog={$3}"; }
for wrong in submission_org '=x' 'Org=x' 'submission_org='; do
    refuses "$wrong" 'service.mllog.* expected KEY=VALUE' "\"$wrong\""
done
refuses "what the run knows" 'the run itself writes seed' '"seed=9"'
refuses "an event" 'itself writes run_stop' '"run_stop=9"'
refused "--check-config sees it, too" 78 'service.mllog.* expected KEY=VALUE' \
    threads -c run.conf --check-config -o 'service.mllog={"x"}'
refuses "twice" 'a_b is given twice' '"a_b=1", "a_b=2"'
tap_done
