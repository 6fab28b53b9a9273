#!/bin/sh
# best.sh: which weights of a run --evaluate and --predict take, and that they say so: the best checkpoint where
# checkpoint.best is set, with the averages that its evaluation had; otherwise the final ones; otherwise the newest.
set -eu
. "$(dirname -- "$0")/mpi_lib.sh"
# Few samples of random labels: the test loss rises in the end.
write_conf run.conf 's/samples = 200/samples = 20  test_samples = 40/
    s/steps = 3/steps = 60  evaluate_every = 10  ema = 0.8/; s/learning_rate = 0.1/learning_rate = 0.5/
    $a checkpoint { every_steps = 20  best = "loss"  keep = 2 }\nservice { progress = no  log_every = 0 }'

# run DIR OPTIONS...: on threads; $code
run() {
    run_dir=$1; shift
    code=0; "$mpstaged" -c run.conf --run-dir "$run_dir" "$@" >"$aside/out" 2>"$aside/err" </dev/null || code=$?
    [ "$code" -eq 0 ] || why
}
# bits DIR: "STEP BITS LOSS" of its evaluations
bits() { sed -n 's/.*"event":"evaluation","step":\([0-9]*\),.*"loss":\([^,]*\),"loss_bits":"\([^"]*\)".*/\1 \3 \2/p' \
    "$1/metrics.jsonl"; }
# takes TEXT FOLDER WHICH BITS: an evaluation of run r has that loss and says whose it is, in log and metrics
takes() {
    rm -rf e
    run e --evaluate --init-from r
    equal "$1" "$code $(bits e | cut -d' ' -f2)" "0 $4"
    check "the log says so" grep -qF "weights: $2 ($3" e/mpstaged.log
    check "and metrics.jsonl" grep -qF "{\"event\":\"weights\",\"file\":\"$2\",\"which\":\"$3" e/metrics.jsonl
}

run r
best=$(bits r | sort -g -k3 | head -n 1)
name=r/checkpoints/$(printf step-%08d "${best%% *}")
of_best=$(echo "$best" | cut -d' ' -f2) of_last=$(bits r | tail -n 1 | cut -d' ' -f2)
check "the best evaluation is not the last one" [ "${best%% *}" -lt 60 -a -d "$name" ]
takes "the best checkpoint is evaluated, with its averages" "$name" "the best checkpoint: loss " "$of_best"
run r-any --predict best.csv --init-from r
check "predictions take it, too" grep -qF "weights: $name (the best checkpoint: loss" r-any-predict/mpstaged.log
run r --predict own.csv
check "of the run directory, too" cmp best.csv own.csv
run r-any --predict named.csv --init-from r/weights.safetensors
check "which are others than the final weights" sh -c '! cmp -s named.csv own.csv'
check "a file that is named is taken" grep -q 'weights: r/weights.safetensors' r-any-predict/mpstaged.log

sed -i 's/best = "loss"//' run.conf
takes "without checkpoint.best the final weights" r/weights.safetensors "final weights" "$of_last"
mv r/weights.safetensors kept
takes "without them the newest checkpoint, with its averages" r/checkpoints/step-00000060 "the newest checkpoint" \
    "$of_last"
echo '{' >r/checkpoints/step-00000060/manifest.json
of_older=$(bits r | sed -n 's/^40 \([^ ]*\) .*/\1/p')
takes "one that is sound" r/checkpoints/step-00000040 "the newest checkpoint" "$of_older"
mv kept r/weights.safetensors
sed -i 's/every_steps = 20/& best = "accuracy"/' run.conf
takes "where none has that score the final weights" r/weights.safetensors \
    "final weights, as no checkpoint has a score of accuracy" "$of_last"
tap_done
