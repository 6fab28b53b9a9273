#!/bin/sh
# nonfinite.sh: a sample that is not a number, or too large for its gradient, ends a run or costs it one step, and that
# is the same on any number of ranks.
set -eu
. "$(dirname -- "$0")/mpi_lib.sh"
. "$here/npy_lib.sh"

floats 2000 1 | npy x.npy '200, 10'
floats 1000 7 | npy y.npy '200, 5'
spoiled nan.npy '\000\000\300\177'                         # of step 3
spoiled nans.npy '\000\000\300\177' 60                     # of steps 3 to 6
spoiled large.npy '\000\000\200\144'                       # 2^74
write_conf run.conf 's/source = "synthetic"  labels = "onehot"  samples = 200/source = "npy" labels = "vector" \
    train = "nan.npy" train_labels = "y.npy"/
    s/steps = 3/steps = 6/; s/learning_rate = 0.1/learning_rate = 0.1 momentum = 0.9/'
hint='try a smaller train.learning_rate, and look for NaN and very large values in the data'

# ends TEXT LINE OPTIONS...: the run of two ranks ends with 79, LINE, no weights
ends() {
    ends_text=$1 line=$2; shift 2
    job 2 -c run.conf "$@" --run-dir ended --overwrite
    wrong=
    [ "$code" -eq 79 ] && [ "$(our_lines)" -eq 1 ] && grep -qxF "mpstaged: $line; $hint" "$aside/err" || wrong=yes
    [ ! -e ended/weights.safetensors ] && grep -q '"event":"failed","code":79' ended/metrics.jsonl || wrong=yes
    if [ -z "$wrong" ]; then ok "$ends_text"; else why; not_ok "$ends_text ($code)"; fi
}
ends "a sample that is not a number ends a run" "step 3: the loss is not finite"
check "whose last step has no loss and updated nothing" \
    grep -q '"step":3,.*"loss":null,.*"skipped":true' ended/metrics.jsonl
check "nor is it called a step that is skipped" [ "$(grep -c '"event":"skip"' ended/metrics.jsonl)" -eq 0 ]
job 2 -c run.conf -o data.train=large.npy --run-dir ended --overwrite
gradient=$(sed -n 's/^mpstaged: step 3: \(the gradient of [a-z0-9.]*\) is not finite; .*/\1/p' "$aside/err")
check "a sample that is too large: its gradient is named" [ "$code" -eq 79 ] && [ -n "$gradient" ]
check "and the loss is shown" grep -q '"step":3,.*"loss":[0-9].*"skipped":true' ended/metrics.jsonl
skip="-o train.nonfinite=skip -o train.nonfinite_limit"
# shellcheck disable=SC2086
ends "four steps in a row, where three may be skipped" "step 6: the loss is not finite in 4 steps in a row" \
    -o data.train=nans.npy $skip=3
check "which has an event for each" [ "$(grep -c '"event":"skip"' ended/metrics.jsonl)" -eq 4 ]

# bits_add RUN: what is to be the same
bits_add() { { hash_of "$1"; grep -o '"loss_bits":"[^"]*"' "$1/metrics.jsonl"; } | cksum >>"$aside/bits"; }
# skips NAME RANKS OPTIONS...: skips step 3 and goes on
skips() {
    name=$1; shift
    job "$@" -c run.conf -o train.nonfinite=skip --run-dir "$name"
    if [ "$code" -eq 0 ] && [ "$(our_lines)" -eq 0 ]; then ok "$name skips it, $took ms"
    else why; not_ok "$name skips it: $code"; fi
    bits_add "$name"
}
skips one 1 --stages 1
check "in one step" [ "$(grep -c '"skipped":true' one/metrics.jsonl)" -eq 1 ]
check "which has an event" \
    grep -qx '{"event":"skip","step":3,"nonfinite":"loss","in_a_row":1}' one/metrics.jsonl
check "and a line" grep -q 'step 3 is skipped: the loss is not finite' one/mpstaged.log
check "and counts" grep -q '"event":"done","steps":6' one/metrics.jsonl
skips two 2
skips two-gpipe 2 --schedule gpipe
skips three 3 --stages 3
code=0
"$mpstaged" -c run.conf -o train.nonfinite=skip --stages 3 --transport local --run-dir threads \
    >"$aside/out" 2>"$aside/err" || code=$?
check "threads skip it" [ "$code" -eq 0 ]
bits_add threads
check "with the same bits everywhere" [ "$(sort -u "$aside/bits" | wc -l)" -eq 1 ]
[ "$(sort -u "$aside/bits" | wc -l)" -eq 1 ] || note <"$aside/bits"
skips large 2 -o data.train=large.npy
check "a gradient that is not finite is skipped by its name" grep -qF "step 3 is skipped: $gradient is not" \
    large/mpstaged.log
# shellcheck disable=SC2086
job 2 -c run.conf -o data.train=nans.npy $skip=4 --run-dir limit
check "four steps in a row, where four may be skipped" [ "$code" -eq 0 ]
# shellcheck disable=SC2086
job 2 -c run.conf -o data.train=nans.npy $skip=3 -o checkpoint.every_steps=4 --steps 4 --run-dir broken
check "a run that breaks off after two of them" [ "$code" -eq 0 ]
# shellcheck disable=SC2086
job 2 -c run.conf -o data.train=nans.npy $skip=3 -o checkpoint.every_steps=4 --run-dir broken --resume
check "and goes on counts them, too" grep -q 'step 6: the loss is not finite in 4 steps in a row' "$aside/err"
[ "$code" -eq 79 ] || { why; not_ok "and ends with 79: $code"; }

# ---- what others see: one step in ten --------------------------------------------------------------------------------
"$mpstaged" -c run.conf -o train.nonfinite=skip --steps 100000000 --transport local --run-dir long \
    >"$aside/out" 2>"$aside/err" </dev/null & pid=$!
for _ in $(seq 400); do ! grep -qs '"event":"skip","step":13,' long/metrics.jsonl || break; sleep 0.05; done
"$mpstagectl" long status --json >"$aside/status" 2>&1 || true
check "status says how many steps were discarded" grep -qE '"nonfinite_steps": ?[1-9]' "$aside/status"
grep -q nonfinite_steps "$aside/status" || note <"$aside/status"
code=0; "$mpstagectl" long stop --wait >"$aside/status" 2>&1 || code=$?
wait "$pid" || code=$?
check "that run can be stopped" [ "$code" -eq 0 ]
check "nobody is left" nobody_left
tap_done
