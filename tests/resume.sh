#!/bin/sh
# resume.sh: checkpoints and what goes on from them: the bits of a run without a break, on any number of stages, and
# what is refused. Kills at random moments are in kills.sh.
set -eu
. "$(dirname -- "$0")/mpi_lib.sh"

# Dropout, AdamW, a rate that falls, a shuffled order with a short last batch, evaluations; and batch norm with
# momentum.
cat >mlp.conf <<'END'
run      { name = "mlp"  seed = 3 }
model    { network = "mlp"  input = {12}  hidden = {16, 16, 16}  classes = 5  dropout = 0.2 }
data     { source = "synthetic"  labels = "class"  samples = 50  test_samples = 33  shuffle = yes }
train    { batch_size = 16  split_size = 4  steps = 24  optimizer = "adamw"  learning_rate = 0.01
           schedule = "step"  milestones = {2, 4}  weight_decay = 0.01  clip_norm = 1  ema = 0.9  evaluate_every = 6 }
pipeline { stages = 2 }
checkpoint { every_steps = 4 }
END
cat >resnet.conf <<'END'
run      { name = "resnet" }
model    { network = "resnet18"  input = {3, 16, 16}  classes = 10 }
data     { source = "synthetic"  labels = "class"  samples = 32 }
train    { batch_size = 8  split_size = 4  steps = 4  optimizer = "sgd"  learning_rate = 0.01  momentum = 0.9 }
pipeline { stages = 2 }
checkpoint { every_steps = 2 }
END

# again RUN: is all that it gave what the run without a break gave?
again() {
    loss_bits "$1/metrics.jsonl" >"$aside/bits"
    if ! cmp -s "$aside/bits" "$aside/whole"; then diff "$aside/bits" "$aside/whole" | head -5 | note; false; fi
}
# events RUN: their names in order, steps left out
events() { sed -n 's/^{"event":"\([a-z_]*\)".*/\1/p' "$1/metrics.jsonl" | grep -v '^step$' | tr '\n' ' '; }
steps_of() { (cd "$1/checkpoints" && echo step-*); }
# damage FILE OFFSET: another byte there
damage() { printf '\377' | dd of="$1" bs=1 seek="$2" conv=notrunc 2>/dev/null; }
# goes_on TEXT RANKS RUN OPTIONS...: on a copy of $part it ends with the hash and the bits of the run without a break
goes_on() {
    goes_text=$1 goes_ranks=$2 goes_run=$3; shift 3
    rm -rf "$goes_run"; cp -r "$part" "$goes_run"
    if [ "$goes_ranks" = threads ]; then
        code=0; "$mpstaged" -c "$conf" --run-dir "$goes_run" --resume "$@" >"$aside/out" 2>"$aside/err" || code=$?
    else job "$goes_ranks" -c "$conf" --run-dir "$goes_run" --resume "$@"; fi
    if [ "$code" -eq 0 ] && [ "$(hash_of "$goes_run")" = "$whole" ] && again "$goes_run"; then ok "$goes_text"
    else why; not_ok "$goes_text: exit $code, $(hash_of "$goes_run") and $whole"; fi
}

# ---- the run without a break, and a part of it -----------------------------------------------------------------------
conf=mlp.conf part=part
trains without-checkpoints threads -c mlp.conf -o checkpoint.every_steps=0
trains whole 2 -c mlp.conf
equal "checkpoints change no bit" "$hash" "$(hash_of without-checkpoints)"
whole=$hash
loss_bits whole/metrics.jsonl >"$aside/whole"
check "steps and evaluations have bits" [ "$(wc -l <"$aside/whole")" -eq 28 ]
check "the newest three stay" [ "$(steps_of whole)" = "step-00000016 step-00000020 step-00000024" ]
check "metrics tell of each" [ "$(grep -c '"event":"checkpoint","step"' whole/metrics.jsonl)" -eq 6 ]
check "no folder is left half made" [ -z "$(find . -name '*.tmp*')" ]
trains part 2 -c mlp.conf --steps 14 -o train.evaluate=yes
# of a shorter run the last step was evaluated, which the longer one does not do there
grep -v '"event":"evaluation","step":14' part/metrics.jsonl >"$aside/m"; cp "$aside/m" part/metrics.jsonl
check "the last step has one, too" [ "$(steps_of part)" = "step-00000008 step-00000012 step-00000014" ]

# ---- on any number of stages -----------------------------------------------------------------------------------------
goes_on "goes on with two ranks" 2 same
since=$(events same | tr ' ' '\n' | sed -n '/resume/,$p' | LC_ALL=C sort | uniq -c | tr -d ' \n')
check "the file says so" [ "$since" = 1account3checkpoint1done2evaluation1resume ]
check "and last that it is done" [ "$(events same | sed 's/.* \([a-z]\)/\1/')" = "done " ]
check "and from where" grep -q '"event":"resume",.*"step":14[,}]' same/metrics.jsonl
cp -r part bare; rm bare/metrics.jsonl
"$mpstaged" -c mlp.conf --run-dir bare --resume >"$aside/out" 2>"$aside/err" || why
check "also where that part of the file was removed" \
    sh -c 'head -n 1 bare/metrics.jsonl | grep -q "^{\"event\":\"resume\",.*\"step\":14[,}]"'
goes_on "on one rank" 1 one --stages 1
goes_on "on four ranks" 4 four --stages 4
goes_on "on three ranks, another schedule" 3 three --stages 3 --schedule gpipe
goes_on "as threads of one process" threads threads
conf=resnet.conf
trains resnet-whole threads -c resnet.conf
whole=$hash
loss_bits resnet-whole/metrics.jsonl >"$aside/whole"
trains resnet-part threads -c resnet.conf --steps 2
part=resnet-part
goes_on "statistics and momentum go on, on one rank" 1 resnet-one --stages 1
goes_on "and on four" 4 resnet-four --stages 4

# ---- what is on disk -------------------------------------------------------------------------------------------------
conf=mlp.conf part=part
whole=$(hash_of whole)
loss_bits whole/metrics.jsonl >"$aside/whole"
job threads -c mlp.conf --init-from whole/checkpoints/step-00000024 --evaluate --run-dir evaluated
check "a checkpoint is a folder of weights for --init-from" [ "$code" -eq 0 ]
rm -rf damaged; cp -r part damaged; part=damaged
damage damaged/checkpoints/step-00000014/optimizer-00001-of-00002.safetensors 700
goes_on "a damaged checkpoint is passed over" 2 passed
check "and named" grep -q 'note: skipping a damaged checkpoint: .*step-00000014/optimizer-00001-of-00002.safetensors' \
    passed/mpstaged.log
check "and made anew" [ "$(steps_of passed)" = "step-00000016 step-00000020 step-00000024" ]
part=linked
cp -r part linked
mv linked/checkpoints/step-00000014 linked/moved
ln -s ../moved linked/checkpoints/step-00000014
goes_on "a link in a checkpoint's place is passed over" threads by-link
check "and named" grep -q 'note: skipping .*step-00000014: is a symbolic link' by-link/mpstaged.log
part=damaged
damage damaged/checkpoints/step-00000012/manifest.json 3
rm damaged/checkpoints/step-00000008/model-00002-of-00002.safetensors
refused "with no sound one nothing is begun anew" 65 'none of its checkpoints can be used \(3 checkpoints\)' 2 \
    -c mlp.conf --run-dir damaged --resume
part=part
cp part/metrics.jsonl "$aside/m"
printf '{"event":"step","step":15,"lo' >>part/metrics.jsonl
goes_on "half a line of metrics goes" threads half
cp "$aside/m" part/metrics.jsonl
check "every line is whole" [ "$(grep -vc '^{.*}$' half/metrics.jsonl)" -eq 0 ]
job threads -c mlp.conf --run-dir fresh --resume
check "without a run there is one from the start" [ "$(hash_of fresh)" = "$whole" ]
check "which begins like any other" [ "$(head -c 16 fresh/metrics.jsonl)" = '{"event":"start"' ]
job threads -c mlp.conf --run-dir fresh --resume
check "one that has ended writes its weights again" [ "$code" -eq 0 -a "$(hash_of fresh)" = "$whole" ]
check "and says where it goes on, and that nothing is left to train" \
    grep -q '^resuming from checkpoints/step-[0-9]*: no step is left to train$' "$aside/err"
job threads -c mlp.conf --run-dir fresh --resume --steps 26
check "and goes on when it gets more steps" [ "$code" -eq 0 ]
job threads -c mlp.conf --run-dir fresh --overwrite --steps 2
check "--overwrite removes checkpoints, too" [ "$(steps_of fresh)" = step-00000002 ]

# ---- what is refused -------------------------------------------------------------------------------------------------
for k in "--seed 4:run.seed was 3 and is 4" "--split-size 8:train.split_size was 4 and is 8" \
    "--learning-rate 0.02:train.learning_rate was 0.01 and is 0.02" "--threads 2:run.threads was 1 and is 2" \
    "-o model.dropout=0.1:model.dropout was 0.2 and is 0.1"; do
    refused "another ${k%%:*}" 78 "part/checkpoints/step-00000014: ${k#*:}.*--resume=force" 2 -c mlp.conf \
        --run-dir part --resume ${k%%:*}
done
# Of another network or optimizer not all can be read.
for k in "-o train.optimizer=sgd -o train.clip_norm=0:train.optimizer was" "-o model.hidden={16,16}:model.hidden was" \
    "-o model.hidden={16,16,8}:model.hidden was"; do
    refused "another ${k%%:*}" 78 "part/checkpoints/step-00000014: ${k#*:}.*--resume=force .* with what fits: " 2 \
        -c mlp.conf --run-dir part --resume ${k%%:*}
done
refused "another schedule, named itself and not what comes with it" 78 'train.schedule was "step" and is "cosine"' \
    2 -c mlp.conf --run-dir part --resume -o train.schedule=cosine
rm -rf other; cp -r part other
job threads -c mlp.conf --run-dir other --resume=force --learning-rate 0.02 --seed 4
check "--resume=force goes on" [ "$code" -eq 0 ]
check "and says what differs" grep -q 'note: results differ .*run.seed was 3 and is 4' other/mpstaged.log
check "all of it" grep -q 'note: results differ .*train.learning_rate was 0.01 and is 0.02' other/mpstaged.log
refused "other numerics, both told" 78 'the numerics line was ".*" and is ".*groups 2.*" now' 2 -c mlp.conf \
    --run-dir part --resume -o train.gradient_groups=2
refused "without --resume" 73 'part: holds the results of an earlier run.*--resume' 2 -c mlp.conf --run-dir part
refused "--resume and --overwrite" 78 '--resume: resumes a run' 2 -c mlp.conf --run-dir part --resume --overwrite
refused "another word" 78 '--resume: .*no, yes, force' 2 -c mlp.conf --run-dir part --resume=maybe
refused "an unknown score" 78 'checkpoint.best=beauty: "beauty" .*loss, accuracy, top5' \
    2 -c mlp.conf --run-dir new -o checkpoint.best=beauty
refused "the best without test samples" 78 'checkpoint.best=loss: there are no test samples' \
    2 -c resnet.conf --run-dir new -o checkpoint.best=loss

# ---- what is measured ------------------------------------------------------------------------------------------------
trains cut threads -c mlp.conf --steps 4
job threads -c mlp.conf --run-dir cut --resume --steps 7
check "the account does not go by steps of an earlier process" \
    sh -c '! grep -q "costs measured in steps 2 to 4" cut/mpstaged.log'
job threads -c mlp.conf --run-dir cut --resume --steps 16
check "but by those of this one" grep -qE 'costs measured in steps (9 to 11|12 to 14) of this run' cut/mpstaged.log

# ---- when ------------------------------------------------------------------------------------------------------------
trains best threads -c mlp.conf -o checkpoint.every_steps=0 -o checkpoint.best=loss -o checkpoint.keep=1
best=$(sed -n 's/.*"event":"evaluation","step":\([0-9]*\),.*"loss":\([^,]*\),.*/\2 \1/p' best/metrics.jsonl |
    sort -g | head -1 | cut -d' ' -f2)
check "the best evaluation stays" [ -d "best/checkpoints/$(printf step-%08d "$best")" ]
# Nothing is learned, so all evaluations are equal, and the first one, after step 6, is the best.
trains equal threads -c mlp.conf -o checkpoint.best=loss -o checkpoint.keep=1 --learning-rate 0 -o train.weight_decay=0
equal "the first of equal ones stays" "$(steps_of equal)" "step-00000006 step-00000024"
check "which list says, too" sh -c '"$0" list equal | grep -q "^ *6 .*  best$"' "$mpstagectl"
trains clock threads -c mlp.conf --steps 4000 -o train.evaluate_every=0 -o checkpoint.every_steps=0 \
    -o checkpoint.every_seconds=0.05 -o service.log_every=0
check "by the clock" [ "$(grep -c '"event":"checkpoint","step"' clock/metrics.jsonl)" -ge 2 ]

# ---- signals ---------------------------------------------------------------------------------------------------------
# A run that would take long is asked by SIGUSR2, then by SIGUSR1, in all its processes as mpirun passes them on; $code
signalled() {
    rm -rf long
    job 2 -c mlp.conf --run-dir long --steps 9999999 -o train.evaluate_every=0 -o checkpoint.every_steps=0 \
        -o service.log_every=0 -o service.stages_every=1000 & pid=$!
    until grep -q '"event":"step"' long/metrics.jsonl 2>/dev/null; do sleep 0.05; done
    kill -USR2 $(ranks_alive)
    until [ -n "$(steps_of long 2>/dev/null | sed 's/.*\*//')" ]; do sleep 0.05; done
    first=$(steps_of long)
    kill -USR1 $(ranks_alive)
    wait $pid || true
    code=$(sed -n 's/.*"event":"failed","code":\([0-9]*\),.*/\1/p' long/metrics.jsonl)
}
signalled
check "SIGUSR2 writes one and goes on" [ -n "$first" ]
check "SIGUSR1 ends the run with 75" [ "${code:-0}" -eq 75 ]
check "with one line, which says where it goes on" [ "$(our_lines)" -eq 1 ]
last=$(sed -n 's/^mpstaged: stopped after step \([0-9]*\), which is in checkpoints.*--resume.*/\1/p' "$aside/err")
check "from the last step that was done" [ -d "long/checkpoints/$(printf step-%08d "${last:-0}")" ]
steps=$((${last:-0} + 40))
job 2 -c mlp.conf --run-dir long --resume -o train.evaluate_every=0 -o train.evaluate=no --steps "$steps" \
    -o checkpoint.every_steps=0
long=$(hash_of long)
job 1 -c mlp.conf --stages 1 --run-dir straight -o train.evaluate_every=0 -o train.evaluate=no \
    --steps "$steps" -o checkpoint.every_steps=0 -o service.log_every=0
equal "and has the bits of a run without a break" "$long" "$(hash_of straight)"
tap_done
