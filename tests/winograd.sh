#!/bin/sh
# winograd.sh: train.winograd = yes. The weights have the same bits for any stages and replicas, and after a run was
# stopped and resumed; other bits than without it. The numerics line names it, and bf16 refuses it.
set -eu
. "$(dirname -- "$0")/mpi_lib.sh"
cat >grey.graph <<'GRAPH'
graph grey
input input 1x12x12
labels labels class
a = conv(input) channels=32 kernel=3 padding=1
b = relu(a)
c = conv(b) channels=48 kernel=3 padding=1 bias=no
d = batch_norm(c)
e = relu(d)
f = conv(e) channels=32 kernel=3 padding=1
g = global_avg_pool(f)
h = flatten(g)
k = linear(h) features=10
loss = softmax_cross_entropy(k, labels)
output k
loss loss
GRAPH
cat >grey.conf <<'CONF'
run   { seed = 1 }
model { graph = "grey.graph" }
data  { source = "synthetic"  samples = 64 }
train { batch_size = 8  split_size = 2  steps = 6  optimizer = "sgd"  learning_rate = 0.05  momentum = 0.9
        winograd = yes }
pipeline { stages = 1  partition = "uniform"  profile_spread = 1e9 }
CONF
code=0; "$mpstaged" -c grey.conf --precision bf16 -o run.emulate_bf16=yes --run-dir none 2>"$aside/err" || code=$?
check "bf16 refuses it" sh -c '[ "$0" -eq 78 ] && [ "$(wc -l <"$1")" -eq 1 ] && [ ! -e none ] &&
    grep -q "train.winograd: it is for fp32 on CPUs with AVX2; this is bf16" "$1"' "$code" "$aside/err"
if ! grep -qw avx2 /proc/cpuinfo; then skip "training with it" "needs AVX2"; tap_done; exit; fi
trains one threads -c grey.conf
want=$hash
for way in "--stages 3" "--stages 2 --schedule zb-h1" "--stages 2 -o pipeline.recompute=all"; do
    # shellcheck disable=SC2086
    trains "with $way" threads -c grey.conf $way
    equal "$way: the same weights" "$hash" "$want"
done
trains groups threads -c grey.conf -o train.gradient_groups=2
one=$hash
trains replicas 2 -c grey.conf -o train.gradient_groups=2 -o pipeline.replicas=2
equal "two replicas: the same weights" "$hash" "$one"
trains without threads -c grey.conf -o train.winograd=no
equal "other weights than without it" "$([ "$hash" != "$want" ] && echo yes)" yes
check "the numerics line has it" grep -q '"numerics":"[^"]*precision fp32 with Winograd' one/metrics.jsonl
check "and lacks it by default" grep -q '"numerics":"[^"]*precision fp32,' without/metrics.jsonl
trains part threads -c grey.conf -o checkpoint.every_steps=3 --steps 3
code=0; "$mpstaged" --transport local -c grey.conf -o checkpoint.every_steps=3 -o train.winograd=no --run-dir part \
    --resume >"$aside/out" 2>"$aside/err" || code=$?
check "resumed without it: refused by name" sh -c '[ "$0" -eq 78 ] && grep -q "train.winograd" "$1"' \
    "$code" "$aside/err"
job threads -c grey.conf -o checkpoint.every_steps=3 --run-dir part --resume
equal "resumed after 3 steps: the same weights" "$(hash_of part | tail -n 1)" "$want"
tap_done
