#!/bin/sh
# rollback.sh: train.nonfinite = rollback. A run that meets a batch with a sample that is not a number goes back to its
# newest checkpoint and leaves the batches from there to that one out, with the same bits on any number of ranks, and
# when it was killed meanwhile.
set -eu
. "$(dirname -- "$0")/mpi_lib.sh"
. "$here/npy_lib.sh"

nan='\000\000\300\177'
floats 2000 1 | npy x.npy '200, 10'
floats 1000 7 | npy y.npy '200, 5'
spoiled nan.npy "$nan" 1 85                                # of step 5
spoiled nans.npy "$nan" 60 85                              # of steps 5 to 8
write_conf run.conf 's/source = "synthetic"  labels = "onehot"  samples = 200/source = "npy" labels = "vector" \
    train = "nan.npy" train_labels = "y.npy" test = "x.npy" test_labels = "y.npy"/
    s/steps = 3/steps = 8  evaluate_every = 5/; s/learning_rate = 0.1/learning_rate = 0.1 momentum = 0.9 \
    schedule = "step" milestones = {4, 6} nonfinite = "rollback"/
    $a checkpoint { every_steps = 3  keep = 100 }\nservice { csv = yes  mllog = {"submission_org=a"} }'

# numbers RUN: the losses of steps and evaluations, of those that were done again the last time
numbers() {
    sed -n 's/.*"event":"\(step\|evaluation\)","step":\([0-9]*\),.*"loss_bits":"\([^"]*\)".*/\2 \1 \3/p' \
        "$1/metrics.jsonl" | awk '{ b[$1 " " $2] = $3 } END { for (s in b) print s, b[s] }' | LC_ALL=C sort
}
# as_whole TEXT RUN: has it the numbers and the weights of that one?
as_whole() {
    numbers "$2" >"$aside/numbers"
    if [ -n "$whole" ] && [ "$(hash_of "$2")" = "$whole" ] && cmp -s "$aside/numbers" "$aside/whole"; then ok "$1"
    else diff "$aside/numbers" "$aside/whole" | head -5 | note; not_ok "$1: $(hash_of "$2") and $whole"; fi
}
events() { grep -c "\"event\":\"$1\"" "$2/metrics.jsonl" || true; }
steps_of() { sed -n 's/.*"event":"step","step":\([0-9]*\),.*/\1/p' "$1/metrics.jsonl" | tr '\n' ' '; }

# ---- what it does ----------------------------------------------------------------------------------------------------
trains one 1 -c run.conf --stages 1
whole=$hash
numbers one >"$aside/whole"
check "an event says from where to where" grep -qx \
    '{"event":"rollback","step":5,"nonfinite":"loss","to":3,"position":100,"times":1}' one/metrics.jsonl
check "steps behind the checkpoint are done again" [ "$(steps_of one)" = "1 2 3 4 5 4 5 6 7 8 " ]
check "but have one row of metrics.csv" [ "$(sed 1d one/metrics.csv | cut -d, -f1 | tr '\n' ' ')" = "1 2 3 4 5 6 7 8 " ]
marks='s/.*"key":"\(block_start\|eval_stop\|run_stop\)".*step_num":\([0-9]*\).*/\1 \2/p'
check "and blocks of mllog.txt" [ "$(sed -n "$marks" one/mllog.txt | tr '\n' ' ')" = \
    "block_start 0 eval_stop 5 block_start 5 eval_stop 8 run_stop 8 " ]
check "in which all samples count" grep -q '"run_stop".*"samples_count":200,' one/mllog.txt
check "the others are lost time" sh -c '"$1" report one | grep -q "roll-backs: 1; steps lost: 2,"' sh "$mpstagectl"
check "the one that failed is said to have updated nothing" [ "$(grep -c '"skipped":true' one/metrics.jsonl)" -eq 1 ]
check "nothing else is told of it: no evaluation, no skip" [ "$(events evaluation one) $(events skip one)" = "2 0" ]
check "the log says so" \
    grep -q 'step 5: the loss is not finite; rolling back to the checkpoint of step 3' one/mpstaged.log
check "all samples count as used" grep -q '"event":"done","steps":8,.*"trained_samples":200,' one/metrics.jsonl

# The same without the samples 60 to 99 is a run without a roll-back: they are those of steps 4 and 5.
less() { { head -c 128 "$1" | sed "s/200, /160, /"; tail -c +129 "$1" | head -c $((60 * $2))
    tail -c +$((129 + 100 * $2)) "$1"; } >"$3"; }
less x.npy 40 x-less.npy; less y.npy 20 y-less.npy
trains less 1 -c run.conf --stages 1 -o data.train=x-less.npy -o data.train_labels=y-less.npy
check "which goes back nowhere" [ "$(events rollback less)" -eq 0 ]
as_whole "it is the run without the samples that were left out" less

# ---- on any number of ranks ------------------------------------------------------------------------------------------
for k in "two 2" "gpipe 2 --schedule gpipe" "three 3 --stages 3" "four 4 --stages 4"; do
    # shellcheck disable=SC2086
    trains $k -c run.conf
    as_whole "with the same bits" "${k%% *}"
done
code=0
"$mpstaged" -c run.conf --stages 3 --transport local --run-dir threads >"$aside/out" 2>"$aside/err" || code=$?
check "threads do so" [ "$code" -eq 0 ]
as_whole "with the same bits" threads

# What had been ordered behind the bad step is given up: its evaluation, its checkpoint, the end of the run.
trains border 2 -c run.conf --steps 5 -o checkpoint.every_steps=1 -o checkpoint.keep=1
check "at the last step, with a checkpoint and an evaluation due" [ "$(steps_of border)" = "1 2 3 4 5 5 " ]
check "which are those of the step that was done" [ "$(events checkpoint border) $(events evaluation border)" = "5 1" ]
check "no folder is left half made" [ "$(ls border/checkpoints)" = step-00000005 ]

# The end of an epoch comes within fewer steps than planned: 13 batches of 15, one of 5.
trains short 2 -c run.conf --batch-size 15 --split-size 5 --steps 13 -o data.shuffle=yes
check "a short last batch" grep -q '"event":"step",.*"samples":5,' short/metrics.jsonl

# ---- limits ----------------------------------------------------------------------------------------------------------
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
ends "before the first checkpoint the run ends" \
    "step 5: the loss is not finite, and there is no checkpoint to roll back to" -o checkpoint.every_steps=6
ends "four bad batches, with three times to the same checkpoint" \
    "step 4: the loss is not finite after 3 roll-backs to the checkpoint of step 3" -o data.train=nans.npy
check "of which each has an event" [ "$(events rollback ended)" -eq 3 ]
trains limit 2 -c run.conf -o data.train=nans.npy -o train.nonfinite_limit=4
check "with four times it goes on" [ "$(events rollback limit)" -eq 4 ]
refused "without checkpoints" 78 'run.conf:[0-9]*: train.nonfinite: rollback needs checkpoints' \
    2 -c run.conf --run-dir new -o checkpoint.every_steps=0

# ---- runs that break off ---------------------------------------------------------------------------------------------
# One that was killed when these checkpoints were on disk, and no more.
for k in 3 6; do
    rm -rf part; cp -r two part
    for d in part/checkpoints/step-*; do
        [ "$(expr "$d" : '.*step-0*\([0-9]*\)')" -le "$k" ] || rm -r "$d"
    done
    job 4 -c run.conf --stages 4 --run-dir part --resume
    check "it goes on from step $k" [ "$code" -eq 0 ]
    as_whole "with the bits of one that did not break off" part
    check "a bad batch behind it is met again" [ "$(events rollback part)" -eq $((k == 3 ? 2 : 1)) ]
done

# With an average that the checkpoint has not: it begins anew again where the run goes back to that checkpoint.
for k in two less; do
    rm -rf "any-$k"; cp -r "$k" "any-$k"
    rm -r "any-$k"/checkpoints/step-0000000[4-9]
done
job 2 -c run.conf --run-dir any-two --resume=force -o train.ema=0.9
job 1 -c run.conf --stages 1 --run-dir any-less --resume=force -o train.ema=0.9 \
    -o data.train=x-less.npy -o data.train_labels=y-less.npy
equal "new state begins anew there, too" "$(hash_of any-two)" "$(hash_of any-less)"
check "which is other than that of the run before" [ "$(hash_of any-two)" != "$whole" ]

# Nothing is learned, so the fourth evaluation behind the first one is the last: also where a run goes back to a
# checkpoint that an earlier process has written.
still="-c run.conf --steps 12 --learning-rate 0 -o train.evaluate_every=1 -o train.patience=4"
# shellcheck disable=SC2086
trains patient 2 $still
equal "a run without progress ends" "$(done_field patient/metrics.jsonl reason) $(events rollback patient) \
$(steps_of patient)" "patience 1 1 2 3 4 5 4 5 "
rm -rf patient/checkpoints/step-0000000[4-9]
# shellcheck disable=SC2086
job 2 $still --run-dir patient --resume
equal "and at the same step where it goes back behind its beginning" \
    "$code $(done_field patient/metrics.jsonl reason | tail -n 1) $(events rollback patient) $(steps_of patient)" \
    "0 patience 2 1 2 3 4 5 4 5 4 5 4 5 "

# Killed after its third roll-back, of one for each time that the samples are gone through.
long="-c run.conf --steps 300 -o train.evaluate_every=0"
# shellcheck disable=SC2086
trains long 2 $long
whole=$hash
numbers long >"$aside/whole"
# shellcheck disable=SC2086
job 2 $long --run-dir killed & pid=$!
for _ in $(seq 600); do [ "$(events rollback killed 2>/dev/null || true)0" -lt 30 ] || break; sleep 0.05; done
for p in $(ranks_alive); do kill -9 "$p" 2>/dev/null || true; done
wait "$pid" || true
# shellcheck disable=SC2086
job 2 $long --run-dir killed --resume
check "a killed one goes on" [ "$code" -eq 0 ]
as_whole "with the same bits" killed

# ---- damaged checkpoints ---------------------------------------------------------------------------------------------
# What is damaged while the run pauses is found when it goes back.
sed 's/every_steps = 3 .*/every_steps = 3  keep = 3 }/
    s/nonfinite = "rollback"/& nonfinite_limit = 1000000/' run.conf >spoilt.conf
"$mpstaged" -c spoilt.conf --steps 100000000 --transport local -o service.log_every=0 -o train.evaluate_every=0 \
    --run-dir spoilt >"$aside/out" 2>"$aside/err" </dev/null & pid=$!
for _ in $(seq 400); do [ "$(events rollback spoilt 2>/dev/null || true)0" -lt 20 ] || break; sleep 0.05; done
ctl() { "$mpstagectl" spoilt "$@" >"$aside/status" 2>&1; }
pauses() {
    ctl pause || note <"$aside/status"
    for _ in $(seq 400); do ! { ctl status && grep -q paused "$aside/status"; } || break; sleep 0.05; done
}
damaged() { printf '\377' | dd of="$1/model-00001-of-00002.safetensors" bs=1 seek=700 conv=notrunc 2>/dev/null; }
pauses
sed -i 's/every_steps = 3/every_steps = 1000000/' spoilt.conf    # these are the last ones
ctl reload || note <"$aside/status"
ctl resume
sleep 0.2
pauses
ctl checkpoint --wait || note <"$aside/status"
newest=$(ls -d spoilt/checkpoints/step-* | tail -n 1)
before=$(ls -d spoilt/checkpoints/step-* | tail -n 2 | head -n 1)
step_of() { expr "$1" : '.*step-0*\([0-9]*\)'; }
to_before() { grep -c "\"event\":\"rollback\",.*\"to\":$(step_of "$before")," spoilt/metrics.jsonl || true; }
had=$(to_before)
damaged "$newest"
ctl resume
for _ in $(seq 400); do [ "$(to_before)" -eq "$had" ] || break; sleep 0.05; done
check "a damaged checkpoint is passed over for the one before" [ "$(to_before)" -gt "$had" ]
check "and named" grep -q "skipping a damaged checkpoint: .*/${newest##*/}/model-00001-of-00002.safetensors: " \
    spoilt/mpstaged.log
pauses
for d in spoilt/checkpoints/step-*; do damaged "$d"; done
ctl resume
code=0; wait "$pid" || code=$?
check "where all are damaged the run ends with 79" [ "$code" -eq 79 ]
check "and says so" grep -q 'is not finite, and there is no valid checkpoint to roll back to; try' "$aside/err"

# ---- told to stop ----------------------------------------------------------------------------------------------------
"$mpstaged" -c run.conf --steps 100000000 --transport local -o service.log_every=0 -o train.evaluate_every=0 \
    -o checkpoint.keep=2 --run-dir asked >"$aside/out" 2>"$aside/err" </dev/null & pid=$!
for _ in $(seq 400); do [ "$(events rollback asked 2>/dev/null || true)0" -lt 20 ] || break; sleep 0.05; done
code=0; "$mpstagectl" asked stop --checkpoint --wait >"$aside/status" 2>&1 || code=$?
wait "$pid" || code=$?
check "a run that goes back now and then can be stopped with a checkpoint" [ "$code" -eq 0 ]
[ "$code" -eq 0 ] || note <"$aside/status"
last=$(done_field asked/metrics.jsonl steps)
check "which is there" [ -d "asked/checkpoints/$(printf step-%08d "${last:-0}")" ]
check "nobody is left" nobody_left
tap_done
