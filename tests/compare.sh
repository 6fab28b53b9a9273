#!/bin/sh
# compare.sh: mpstaged --compare. Runs with other stages, schedules, ranks, replicas, processes and starts are equal.
# Differences that are planted are named by step, tensor, element and rank: in checkpoints and weights one bit of a
# number; in runs a sample, a rate, a micro-batch that is left out, a setting.
set -eu
. "$(dirname -- "$0")/mpi_lib.sh"
. "$here/npy_lib.sh"
plant=$build/tests/plant planted=0

# compares A B OPTIONS...: sets $code, leaves $aside/said
compares() { code=0; "$mpstaged" --compare "$@" >"$aside/said" 2>"$aside/err" </dev/null || code=$?; }
# alike TEXT A B LINE: one line says so
alike() {
    compares "$2" "$3"
    if [ "$code" -eq 0 ] && [ ! -s "$aside/err" ] && [ "$(wc -l <"$aside/said")" -eq 1 ] &&
        grep -qxE "$4" "$aside/said"; then ok "$1 is equal"
    else { echo "code $code, wanted $4"; cat "$aside/said" "$aside/err"; } | note; not_ok "$1 is equal"; fi
}
# apart TEXT A B PATTERN [PATTERN]: the first difference is a line with the first one; there is one with the second
apart() {
    planted=$((planted + 1))
    compares "$2" "$3"
    if [ "$code" -eq 1 ] && [ ! -s "$aside/err" ] && sed -n '/^step /{p;q}' "$aside/said" | grep -qxE -- "$4" &&
        grep -qxE -- "${5:-$4}" "$aside/said"; then ok "$1"
    else { echo "code $code, wanted $4, ${5:-}"; cat "$aside/said" "$aside/err"; } | note; not_ok "$1"; fi
}

# ---- runs ------------------------------------------------------------------------------------------------------------
floats 480 1 | npy x.npy '48, 10'
floats 240 7 | npy y.npy '48, 5'
cat >mlp.conf <<'END'
run   { name = "mlp"  seed = 3 }
model { network = "mlp"  input = {10}  hidden = {16, 16, 16}  classes = 5 }
data  { source = "npy"  labels = "vector"  train = "x.npy"  train_labels = "y.npy"  shuffle = no }
train { batch_size = 8  split_size = 2  steps = 12  loss = "mse"  optimizer = "adamw"  learning_rate = 0.01
        weight_decay = 0.01  clip_norm = 1  ema = 0.9  gradient_groups = 2 }
pipeline   { partition = "uniform"  stages = 2 }
checkpoint { every_steps = 4  keep = 9 }
END
{
    printf '%s\n' 'graph net' 'input input 3x8x8' 'labels labels class' 'bn0 = batch_norm(input)' 'out0 = relu(bn0)'
    for i in 1 2; do
        echo "conv$i = conv(out$((i - 1))) channels=8 kernel=3 padding=1 bias=no"
        echo "bn$i = batch_norm(conv$i)"
        echo "out$i = relu(bn$i)"
    done
    printf '%s\n' 'pool = global_avg_pool(out2)' 'flat = flatten(pool)' 'fc = linear(flat) features=4' \
        'loss = softmax_cross_entropy(fc, labels)' 'output fc' 'loss loss'
} >net.graph
cat >conv.conf <<'END'
run   { name = "conv" }
model { graph = "net.graph" }
data  { source = "synthetic"  samples = 24  test_samples = 7  labels = "class"  shuffle = yes }
train { batch_size = 8  split_size = 2  steps = 6  loss = "cross_entropy"  momentum = 0.9  clip_norm = 1
        learning_rate = 0.1  gradient_groups = 2  evaluate_every = 2 }
pipeline   { partition = "uniform"  stages = 2 }
checkpoint { every_steps = 2  keep = 9 }
END
yes "some words" | head -n 80 >words.txt
cat >lm.conf <<'END'
run   { name = "lm" }
model { network = "llama"  input = {8}  vocab_size = 256  hidden_size = 8  intermediate_size = 8
        num_hidden_layers = 2  num_attention_heads = 2 }
data  { source = "text"  train_text = "words.txt"  shuffle = no }
train { batch_size = 4  split_size = 1  steps = 4  optimizer = "adamw"  learning_rate = 0.01  gradient_groups = 2 }
pipeline   { partition = "uniform"  stages = 2 }
checkpoint { every_steps = 2  keep = 9 }
END
write_conf toy.conf
mlp='equal: 12 steps, 3 checkpoints, weights' conv='equal: 6 steps, 3 evaluations, 3 checkpoints, weights'
lm='equal: 4 steps, 2 checkpoints, weights' toy='equal: 3 steps, weights'

# ---- equal runs ------------------------------------------------------------------------------------------------------
for net in mlp conv lm toy; do trains $net threads -c $net.conf; done
while read -r net name ranks options; do
    # shellcheck disable=SC2086
    trains "$net-$name" "$ranks" -c "$net.conf" $options
    eval "line=\$$net"
    alike "$net: $name" "$net" "$net-$name" "$line"
done <<'END'
mlp 1 threads --stages 1
mlp 4-gpipe threads --stages 4 --schedule gpipe
mlp zb-h1 threads --schedule zb-h1
mlp interleaved threads --stages 4 -o pipeline.ranks=2 --schedule interleaved
mlp replicas threads -o pipeline.replicas=2
mlp processes 2
conv 1 threads --stages 1
conv 4-gpipe threads --stages 4 --schedule gpipe
conv recompute threads --stages 3 -o pipeline.recompute=all
conv interleaved threads --stages 4 -o pipeline.ranks=2 --schedule interleaved
conv zb-v threads --stages 4 -o pipeline.ranks=2 --schedule zb-v
conv replicas threads -o pipeline.replicas=2 -o pipeline.shard_optimizer=no
lm 1 threads --stages 1
lm 3 threads --stages 3
lm gpipe threads --schedule gpipe
lm replicas threads -o pipeline.replicas=2 --stages 1
toy 1 threads --stages 1
toy processes 2
END
# Steps 5 and 6 are done twice; then three stages go on.
trains mlp-resumed threads -c mlp.conf --steps 6
rm -r mlp-resumed/checkpoints/step-00000006
job threads -c mlp.conf --run-dir mlp-resumed --resume --stages 3
alike "mlp: resumed from the step before the last checkpoint" mlp mlp-resumed "$mlp"
check "whose metrics have steps twice" [ "$(grep -c '"step":5,"epoch"' mlp-resumed/metrics.jsonl)" -eq 2 ]
LD_PRELOAD="$build/tests/faults/flip.so" MPSTAGED_FLIP_RANK=0 MPSTAGED_FLIP=2 mpirun_n 2 "$mpstaged" -c toy.conf \
    --run-dir toy-flipped >"$aside/out" 2>"$aside/err" || why
check "a step that was repeated" grep -q '"event":"rerun"' toy-flipped/metrics.jsonl
alike "toy: with a tensor that was corrupted in transfer" toy toy-flipped "$toy"
trains mlp-thin threads -c mlp.conf --stages 3 -o service.metrics_every=5
alike "mlp: with every fifth step" mlp mlp-thin 'equal: [1-9] of 12 steps, 3 checkpoints, weights'
# Of a run that was killed after step 11 the last line may be that of step 10.
rm -rf p; cp -r mlp-thin p; rm -r p/checkpoints/step-00000012 p/weights.safetensors
sed -i '/"event":"\(step\|checkpoint\)","step":1[12],/d; /"event":"\(account\|done\)"/d' p/metrics.jsonl
alike "mlp: with every fifth step, killed" mlp p 'equal: [1-9] of 10 steps, 2 checkpoints'
alike "mlp: the other way round" p mlp 'equal: [1-9] of 10 steps, 2 checkpoints'
echo '{"event":"failed","code":70,"text":"x"}' >>p/metrics.jsonl
apart "mlp: with every fifth step, failed" mlp p 'step 11: only the first run has it'
sed -i '/"event":"\(failed\|step","step":10\)/d' p/metrics.jsonl
apart "mlp: with every fifth step, long killed" mlp p 'step 10: only the first run has it'
# As lines of older versions are: nine digits, no settings.
rm -rf p; cp -r mlp p
python3 - p/metrics.jsonl <<'END' || skip "lines of an older version" "no python3"
import json, sys
lines = [json.loads(l) for l in open(sys.argv[1])]
for l in lines:
    l.pop("settings", None), l.pop("grad_hash", None)
    for k in "lr", "grad_norm":
        if k in l: l[k] = float("%.9g" % l[k])
open(sys.argv[1], "w").writelines(json.dumps(l, separators=(",", ":")) + "\n" for l in lines)
END
alike "mlp: lines of an older version" mlp p "$mlp"
sed -i '/"event":"step","step":7,/s/"lr":0.01/"lr":0.0100000001/' p/metrics.jsonl
apart "mlp: and another rate there" mlp p 'step 7: lr 0.01 and 0.0100000001'

spoiled xnan.npy '\000\000\300\177' 1 20
for policy in skip rollback; do
    for stages in 1 4; do
        job threads -c mlp.conf --run-dir $policy-$stages --stages $stages -o data.train=xnan.npy \
            -o train.nonfinite=$policy -o checkpoint.every_steps=2
    done
    alike "mlp: $policy" $policy-1 $policy-4 'equal: 12 steps, 6 checkpoints, weights'
done
check "which goes back to a step before" grep -q '"event":"rollback","step":3,.*"to":2,' rollback-4/metrics.jsonl
for stages in 1 3; do
    job threads -c conv.conf --evaluate --init-from conv --run-dir evaluated-$stages --stages $stages
done
alike "conv: an evaluation" evaluated-1 evaluated-3 'equal: 1 evaluation'

# ---- one bit in a checkpoint or in weights ---------------------------------------------------------------------------
# rank_of RUN STEP TENSOR: the place of its file among those of the ranks, by the index; an optimizer's is its weight's
rank_of() {
    rank_name=$(echo "$3" | sed 's/\.\(exp_avg\|exp_avg_sq\|ema\|momentum_buffer\)$//')
    sed -n "s/.*\"$rank_name\": \"model-0*\([1-9][0-9]*\)-of.*/\1/p" \
        "$1/checkpoints/$(printf step-%08d "$2")/model.safetensors.index.json" | awk '{ print $1 - 1 }'
}
# bit RUN OTHER STEP: one of each tensor of OTHER's checkpoint, in turn
bit() {
    "$plant" "$2/checkpoints" "$3" | LC_ALL=C sort >"$aside/tensors"
    while read -r tensor n; do
        at=$((${#tensor} * 7919 % n))
        rm -rf p; cp -r "$2" p
        "$plant" p/checkpoints "$3" "$tensor" $at
        apart "$1, $2, step $3: $tensor $at" "$1" p "step $3 \\(checkpoint\\): $tensor, element $at: .+ and .+; held \
by rank $(rank_of "$1" "$3" "$tensor") of the first run and rank $(rank_of p "$3" "$tensor") of the second; 1 of $(
            wc -l <"$aside/tensors") tensors differ"
    done <"$aside/tensors"
}
bit mlp mlp-4-gpipe 8
bit conv conv-interleaved 2
bit lm-3 lm 4
# Of four ranks the third has no weights, hence no file.
rm -rf p; cp -r conv-1 p; "$plant" p/checkpoints 6 fc.bias 2
apart "a rank behind one without weights" conv-4-gpipe p \
    'step 6 \(checkpoint\): fc.bias, element 2: .* rank 3 .* rank 0 .*'
# weight RUN OTHER STEP TENSOR RANKS TENSORS: a bit of OTHER's weights; RANKS: of both
weight() {
    rm -rf p; cp -r "$2" p
    "$plant" p/weights.safetensors "$4" 3
    apart "$1 and $2, weights: $4" "$1" p "step $3 \\(weights\\): $4, element 3: .+ and .+; held by rank ${5% *} of \
the first run and rank ${5#* } of the second; 1 of $6 tensors differ"
}
ranks_of() { echo "$(rank_of "$1" "$3" "$4") $(rank_of "$2" "$3" "$4")"; }
weight toy toy-1 3 net1.weight "0 0" 4
weight toy-1 toy 3 net2.bias "0 1" 4
weight mlp-4-gpipe mlp-1 12 fc3.weight "$(ranks_of mlp-4-gpipe mlp-1 12 fc3.weight)" 8
weight mlp-processes mlp-4-gpipe 12 fc4.weight "$(ranks_of mlp-processes mlp-4-gpipe 12 fc4.weight)" 8
weight conv-interleaved conv-1 6 bn2.running_var "$(ranks_of conv-interleaved conv-1 6 bn2.running_var)" 19

# Goes on with the other bit; then without that checkpoint.
rm -rf p; cp -r mlp p; rm -r p/checkpoints/step-00000008 p/checkpoints/step-00000012
"$plant" p/checkpoints 4 fc2.weight 17
job threads -c mlp.conf --run-dir p --resume --stages 3
apart "a run that goes on with another bit" mlp-1 p 'step 4 \(checkpoint\): fc2.weight, element 17: .*' \
    'step [5-7]: [a-z_]+ .* and .*'
check "before which steps are equal" grep -qxE 'equal so far: [4-6] steps' "$aside/said"
rm -r p/checkpoints/step-00000004
apart "and where that checkpoint is gone" mlp-1 p 'step [5-7]: [a-z_]+ .* and .*' \
    'step 8 \(checkpoint\): [a-z0-9.]+, element .*; [0-9]+ of 32 tensors differ'

# ---- another run -----------------------------------------------------------------------------------------------------
# exchanged FILE BYTES I K: samples I and K, of so many bytes, in each other's place
exchanged() {
    part() { tail -c +$((129 + $3 * $2)) "$1" | head -c $((($4 - $3) * $2)); }
    { head -c 128 "$1"; part "$1" "$2" 0 "$3"; part "$1" "$2" "$4" $(($4 + 1)); part "$1" "$2" $(($3 + 1)) "$4"
      part "$1" "$2" "$3" $(($3 + 1)); part "$1" "$2" $(($4 + 1)) 48; }
}
for i in 0 7 8 21 30 47; do spoiled x$i.npy '\000\000\000\100' 1 $i; done
exchanged x.npy 40 3 21 >x3-21.npy
exchanged x.npy 40 25 40 >x25-40.npy
exchanged y.npy 20 12 31 >y12-31.npy
exchanged y.npy 20 33 46 >y33-46.npy
sed '8s/words/wards/' words.txt >words8.txt
sed '4s/some/same/' words.txt >words4.txt
tiny=0.010000000000000002
# NET@PATTERN@PATTERN@OPTIONS: what a run with these options has against NET. Batches of mlp are eight samples in order.
while IFS=@ read -r net first also options; do
    eval "set -- $options"
    job threads -c "$net.conf" --run-dir q --overwrite "$@"
    [ "$code" -eq 0 ] || { why; not_ok "$options: $code"; }
    apart "$net $options" "$net" q "$first" "$also"
done <<'END'
mlp@step 1: loss .* and .*@@-o data.train=x0.npy --stages 4
mlp@step 1: loss .* and .*@@-o data.train=x7.npy --stages 1
mlp@step 2: loss .* and .*@@-o data.train=x8.npy -o pipeline.replicas=2
mlp@step 3: loss .* and .*@@-o data.train=x21.npy --schedule gpipe
mlp@step 4: loss .* and .*@equal so far: 3 steps@-o data.train=x30.npy
mlp@step 6: loss .* and .*@equal so far: 5 steps, 1 checkpoint, the last of step 4@-o data.train=x47.npy --stages 3
mlp@step 1: loss .* and .*@@-o data.train=x3-21.npy
mlp@step 4: loss .* and .*@@-o data.train=x25-40.npy --stages 4
mlp@step 2: loss .* and .*@@-o data.train_labels=y12-31.npy --stages 1
mlp@step 5: loss .* and .*@@-o data.train_labels=y33-46.npy --schedule zb-h1
mlp@step 3: loss [0-9.]+ and nan@@-o data.train=xnan.npy -o train.nonfinite=skip --stages 3
mlp@step 6: samples 8 and 6@set up differently: data.samples: 0 and 46@-o data.samples=46
mlp@step 6: samples 8 and 4@equal so far: 5 steps, 1 checkpoint, the last of step 4@-o data.samples=44 --stages 4
mlp@step 5: samples 8 and 6@@-o data.samples=38 --schedule gpipe
mlp@step 1: lr 0.01 and 0.02@set up differently: train.learning_rate: 0.01 and 0.02@--learning-rate 0.02
mlp@step 1: lr 0.01 and 0.010000000000000002@@--learning-rate $tiny --stages 1
mlp@step 3: lr 0.01 and 0.001@set up differently: train.schedule: .*@-o train.schedule=step -o train.milestones=2
mlp@step 9: lr 0.01 and 0.001@step 12 \(checkpoint\): .*@-o train.schedule=step -o train.milestones=8 --stages 3
mlp@step 12: lr 0.01 and 0.001@@-o train.schedule=step -o train.milestones=11 -o pipeline.replicas=2
mlp@step 1: lr 0.01 and .*@set up differently: train.warmup_steps: 0 and 3@-o train.warmup_steps=3
mlp@step 1: loss .* and .*@set up differently: run.seed: 3 and 4@--seed 4
mlp@step 2: loss .* and .*@set up differently: train.weight_decay: 0.01 and 0.02@-o train.weight_decay=0.02
mlp@step 2: loss .* and .*@@-o train.epsilon=0.0001 --stages 4
mlp@step 2: loss .* and .*@set up differently: train.optimizer: "adamw" and "sgd"@-o train.optimizer=sgd
mlp@step 4 \(checkpoint\): fc1.bias.ema, .*; 8 of 32 .*@equal so far: 12 steps@-o train.ema=0.8
mlp@step 1: (loss|grad_norm|grad_hash) .*@set up differently: .* line: micro-batch 2 and micro-batch 4@--split-size 4
mlp@step 1: (grad_norm|grad_hash) .*@set up differently: .*: gradient groups 2 and replicas 1@-o train.gradient_groups=1
mlp@step 1: grad_norm .* and .*@set up differently: train.freeze: unset and .*@-o 'train.freeze={"fc1"}' --stages 3
mlp@step 1: loss .* and .*@set up differently: the network@-o model.dropout=0.1
mlp@step 1: loss .* and .*@step 4 .*: fc1.weight: F32 \[16, 10\] and F32 \[9, 10\]; .*@-o 'model.hidden={9,16,16}'
mlp@step 1: loss .* and .*@step 4 .*: fc1.weight, element .*; .*@-o 'model.hidden={16,16}'
mlp@step 8: only the first run has it@equal so far: 7 steps, 1 checkpoint, the last of step 4@--steps 7 --stages 3
mlp@step 13: only the second run has it@@--steps 14
conv@step 2 \(evaluation\): loss .* and .*@@-o train.momentum=0.8 --stages 4
conv@step 2: loss .* and .*@@-o train.nesterov=yes -o pipeline.replicas=2
conv@step 2 \(evaluation\): loss .*@step 2 \(checkpoint\): bn0.running_mean, .*@-o train.batch_norm=deferred
conv@step 2: loss .* and .*@set up differently: train.clip_value: 0 and 0.001@-o train.clip_value=0.001 --stages 3
conv@step 1: loss .* and .*@set up differently: data.shuffle: yes and no@-o data.shuffle=no
conv@step 2: loss .* and .*@@-o train.clip_norm=0.01 --stages 1
conv@step 2: loss .* and .*@@-o 'train.learning_rate_factors={"fc=0.5"}' --stages 3
conv@step 2 \(evaluation\): samples 7 and 6@equal so far: 6 steps, 3 checkpoints, .*, weights@-o data.test_samples=6
lm@step 3: loss .* and .*@@-o data.train_text=words8.txt --stages 1
lm@step 2: loss .* and .*@@-o data.train_text=words4.txt --stages 3
lm@step 1: grad_hash [0-9a-f]{16} and [0-9a-f]{16}@@-o train.gradient_groups=1 --stages 1
lm@step 1: loss .* and .*@set up differently: model.rope_theta: .*@-o model.rope_theta=500 --schedule gpipe
toy@step 1: lr 0.1 and 0.2@step 3 \(weights\): net1.bias, .* rank 0 .* rank 0 .*; 4 of 4 .*@--learning-rate 0.2
toy@step 3: loss .* and .*@equal so far: 2 steps@-o train.momentum=0.5 --stages 1
END
rm -rf q; cp -r toy q; sed -i '/"event":"done"/d' q/metrics.jsonl
apart "a run that was killed before it wrote weights" toy-1 q 'step 3 \(weights\): only the first run has it'

# As mpstaged(8) says: copies of both runs go on from their last equal checkpoint with one a step.
job threads -c mlp.conf --run-dir q --overwrite --stages 4 -o train.schedule=step -o train.milestones=8
compares mlp q
check "the last equal checkpoint is told" \
    grep -qx 'equal so far: 8 steps, 2 checkpoints, the last of step 8' "$aside/said"
rm -rf p; cp -r mlp p; rm -r p/checkpoints/step-00000012 q/checkpoints/step-00000012
each='-o checkpoint.every_steps=1 -o checkpoint.keep=100'
# shellcheck disable=SC2086
job threads -c mlp.conf --run-dir p --resume $each
# shellcheck disable=SC2086
job threads -c mlp.conf --run-dir q --resume --stages 4 -o train.schedule=step -o train.milestones=8 $each
apart "and names tensor and rank of that step" p q 'step 9: lr 0.01 and 0.001' \
    'step 9 \(checkpoint\): fc1.weight, .*; held by rank 0 of .* and rank 0 of .*; [0-9]+ of 32 tensors differ'

# ---- a resumption with other settings; JSON --------------------------------------------------------------------------
stamps() { find mlp mlp-4-gpipe -type f -printf '%p %s %T@\n' | LC_ALL=C sort; }
stamps >"$aside/times"
job threads -c mlp.conf --run-dir q --overwrite --steps 6
job threads -c mlp.conf --run-dir q --resume=force -o train.weight_decay=0.02
apart "settings that were changed by a resumption" mlp q 'step 8: loss .*' \
    'set up differently after step 6: train.weight_decay: 0.01 and 0.02'
compares mlp mlp-4-gpipe --json
cp "$aside/said" "$aside/equal.json"
compares mlp q --json
if command -v python3 >/dev/null; then
    check "the same as JSON" python3 -c '
import json, sys
one, two = (json.load(open(f)) for f in sys.argv[1:])
assert one == {"equal": True, "settings": [], "differences": [], "steps": 12, "evaluations": 0, "checkpoints": 3,
               "removed_checkpoints": 0, "weights": True}, one
step, tensor = two["differences"]
assert not two["equal"] and two["steps"] == 7 and two["checkpoints"] == 1 and not two["weights"]
assert two["settings"][-1] == {"key": "train.weight_decay", "after_step": 6, "first": "0.01", "second": "0.02"}
assert (step["step"], step["in"], step["key"]) == (8, "step", "loss") and step["first"] != step["second"], step
assert (tensor["step"], tensor["in"], tensor["tensors"]) == (8, "checkpoint", 32) and tensor["element"] >= 0, tensor
assert tensor["first_rank"] == tensor["second_rank"] == 0 and 0 < tensor["different_tensors"] <= 32, tensor
assert tensor["first"] != tensor["second"] and tensor["tensor"].startswith("fc1."), tensor' "$aside/equal.json" \
        "$aside/said"
else skip "the same as JSON" "no python3"; fi

stamps >"$aside/now"
check "nothing was written" cmp -s "$aside/times" "$aside/now"

# ---- a run that goes on ----------------------------------------------------------------------------------------------
# It removes a checkpoint while that is compared.
cat >"$aside/gone.c" <<'END'
#define _GNU_SOURCE
#include <dlfcn.h>
#include <fcntl.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>
int openat(int dir, const char *name, int flags, ...)
{
    int (*next)(int, const char *, int, ...) = dlsym(RTLD_NEXT, "openat");
    const int fd = next(dir, name, flags);
    if (!strcmp(name, "step-00000008")) rename("p/checkpoints/step-00000008", "p/gone");
    return fd;
}
END
if ${CC:-cc} -shared -fPIC -o "$aside/gone.so" "$aside/gone.c" -ldl 2>"$aside/err"; then
    rm -rf p; cp -r mlp p
    export LD_PRELOAD="$aside/gone.so"
    compares mlp p
    unset LD_PRELOAD
    check "a checkpoint that is removed meanwhile: $code" \
        sh -c '[ "$0" -eq 0 ] && [ "$(cat "$1")" = "equal: 12 steps, 2 checkpoints, weights
removed while they were compared: 1 checkpoint" ]' "$code" "$aside/said"
else skip "a checkpoint that is removed meanwhile" "no C compiler"; fi

# ---- what cannot be compared -----------------------------------------------------------------------------------------
# wrong TEXT CODE PATTERN A B
wrong() {
    compares "$4" "$5"
    if [ "$code" -eq "$2" ] && [ ! -s "$aside/said" ] && [ "$(our_lines)" -eq 1 ] &&
        grep -qE "^mpstaged: $3" "$aside/err"; then ok "$1: $2"
    else { echo "code $code, wanted $2 and $3"; cat "$aside/said" "$aside/err"; } | note; not_ok "$1"; fi
}
wrong "a run that is not there" 66 'none/metrics.jsonl: No such file' toy none
wrong "no run" 66 './metrics.jsonl: No such file' . toy
mkdir -p early odd; head -n 1 toy/metrics.jsonl >early/metrics.jsonl
wrong "a run without a step" 66 'early and early: have no step, evaluation or checkpoint in common' early early
{ cat toy/metrics.jsonl; echo '{"event":'; } >odd/metrics.jsonl
wrong "a line that is none" 65 'odd/metrics.jsonl:[0-9]+: is not a line of metrics' toy odd
rm -rf p; cp -r mlp p
printf '\377' | dd of=p/checkpoints/step-00000008/model-00002-of-00002.safetensors bs=1 seek=900 conv=notrunc \
    2>/dev/null
wrong "a damaged checkpoint" 65 'p/checkpoints/step-00000008/model-00002-of-00002.safetensors: its hash' mlp-1 p
rm p/checkpoints/step-00000008/manifest.json
wrong "one without a manifest" 65 'p/checkpoints/step-00000008/manifest.json: ' p mlp-1
rm -rf p; cp -r toy p; head -c 300 toy/weights.safetensors >p/weights.safetensors
wrong "damaged weights" 65 'p/weights.safetensors: ' toy p
rm p/weights.safetensors
wrong "weights that are gone" 66 'p/weights.safetensors: No such file' toy p
printf '{"event":"step","step":4,"lo' >>toy-1/metrics.jsonl
alike "toy: half a line is no step" toy toy-1 "$toy"
check "$planted differences are planted" [ "$planted" -ge 50 ]
tap_done
