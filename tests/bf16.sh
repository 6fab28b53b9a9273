#!/bin/sh
# bf16.sh: train.precision = "bf16" on CPUs. The weights have the same bits for any stages, schedule, replicas,
# recomputation, and after a run was stopped and resumed; the losses are near those of fp32. A processor without
# instructions for it refuses, unless run.emulate_bf16 asks for it.
set -eu
. "$(dirname -- "$0")/mpi_lib.sh"
yes "a text that repeats itself" | head -n 300 >"$aside/text"
cat >lm.conf <<CONF
run   { seed = 1  emulate_bf16 = yes }
model { network = "llama"  input = {16}  vocab_size = 256  hidden_size = 32  intermediate_size = 48
        num_hidden_layers = 3  num_attention_heads = 4  num_key_value_heads = 2  tie_word_embeddings = yes }
data  { source = "tokens"  token_type = "u8"  train_tokens = {"$aside/text"}  test_tokens = {"$aside/text"} }
train { batch_size = 8  split_size = 2  steps = 30  optimizer = "adamw"  learning_rate = 0.01  precision = "bf16" }
pipeline { stages = 1  partition = "uniform"  profile_spread = 1e9 }
CONF
cat >grey.graph <<'GRAPH'
graph grey
input input 1x12x12
labels labels class
a = conv(input) channels=32 kernel=3 padding=1 bias=no
b = batch_norm(a)
c = relu(b)
d = conv(c) channels=32 kernel=3 padding=1
e = add(d, c)
f = max_pool(e) kernel=2
g = conv(f) channels=24 kernel=1 stride=2 bias=no
m = conv(f) channels=24 kernel=3 stride=2 padding=1 bias=no
n = add(g, m)
h = batch_norm(n)
i = silu(h)
j = global_avg_pool(i)
l = flatten(j)
k = linear(l) features=10
loss = softmax_cross_entropy(k, labels)
output k
loss loss
GRAPH
cat >grey.conf <<'CONF'
run   { seed = 1  emulate_bf16 = yes }
model { graph = "grey.graph" }
data  { source = "synthetic"  samples = 64 }
train { batch_size = 8  split_size = 2  steps = 6  optimizer = "sgd"  learning_rate = 0.05  momentum = 0.9
        precision = "bf16" }
pipeline { stages = 1  partition = "uniform"  profile_spread = 1e9 }
CONF
loss_of() { sed -n '/"event":"step"/s/.*"loss":\([0-9.e-]*\).*/\1/p' "$1/metrics.jsonl" | tail -n 1; }
for net in lm grey; do
    trains $net-1 threads -c $net.conf
    want=$hash
    for way in "--stages 2" "--stages 3 --schedule gpipe" "--stages 3 --schedule zb-h1" \
        "--stages 2 -o pipeline.recompute=all" "--stages 1 --schedule naive"; do
        # shellcheck disable=SC2086
        trains "$net $way" threads -c $net.conf $way
        equal "$net, $way: the same weights" "$hash" "$want"
    done
    trains $net-ranks 2 -c $net.conf --stages 2
    equal "$net, two processes: the same weights" "$hash" "$want"
    trains $net-groups threads -c $net.conf -o train.gradient_groups=2
    one=$hash
    trains $net-replicas 2 -c $net.conf -o train.gradient_groups=2 -o pipeline.replicas=2
    equal "$net, two replicas: the same weights" "$hash" "$one"
    trains $net-wide threads -c $net.conf -o train.precision=fp32
    check "$net: a loss near that of fp32: $(loss_of $net-1) and $(loss_of $net-wide)" \
        awk -v a="$(loss_of $net-1)" -v b="$(loss_of $net-wide)" \
        'BEGIN { d = a - b; if (d < 0) d = -d; exit !(a > 0 && d < 0.05 * b) }'
    equal "$net: other weights than in fp32" "$([ "$hash" != "$want" ] && echo yes)" yes
done
# Several parts of queries, tiles of keys and blocks of the loss; and threads, which round otherwise but agree.
long="-o model.input=300 -o train.batch_size=4 --split-size 2 --steps 4 -o train.evaluate=no"
# shellcheck disable=SC2086
trains long-1 threads -c lm.conf $long
want=$hash
# shellcheck disable=SC2086
trains long-3 threads -c lm.conf $long --stages 3
equal "300 positions, 3 stages: the same weights" "$hash" "$want"
# shellcheck disable=SC2086
trains long-wide threads -c lm.conf $long -o train.precision=fp32
# shellcheck disable=SC2086
trains long-threads threads -c lm.conf $long --threads 3
for run in long-1 long-threads; do
    check "$run: a loss near that of fp32: $(loss_of $run) and $(loss_of long-wide)" \
        awk -v a="$(loss_of $run)" -v b="$(loss_of long-wide)" \
        'BEGIN { d = a - b; if (d < 0) d = -d; exit !(a > 0 && d < 0.002 * b) }'
done
# Where the processor has the instructions, no operator of a decoder takes the way by fp32; with AMX, none of a ResNet
# or a vision transformer either. A plan that fails has no line of its step, and fails the check.
for net in lm resnet50 vit_b_16; do
    [ $net = lm ] || cat >$net.conf <<CONF
run   { seed = 1 }
model { network = "$net"  classes = 10  input = {3, 64, 64} }
data  { source = "synthetic" }
train { batch_size = 8  split_size = 4  steps = 1  precision = "bf16" }
CONF
    [ $net != vit_b_16 ] || sed -i 's/64, 64/224, 224/' $net.conf
    "$mpstaged" -c $net.conf --plan -o run.emulate_bf16=no >"$aside/plan" 2>&1 || true
    if grep -q 'has no instructions' "$aside/plan"; then skip "$net: kernels in bf16" "this processor has none"
    elif [ $net != lm ] && ! grep -q amx_bf16 /proc/cpuinfo; then skip "$net: kernels in bf16" "needs AMX"
    else check "$net: kernels in bf16" sh -c 'grep -q "^step " "$0" && ! grep -q "copies in" "$0"' "$aside/plan"; fi
done
# By AVX512_BF16 alone: the library lacks kernels, and others take their place.
sed -i 's/run .*/run { seed = 1  emulate_bf16 = no }/' resnet50.conf
if grep -q avx512_bf16 /proc/cpuinfo; then
    code=0; ONEDNN_MAX_CPU_ISA=AVX512_CORE_BF16 "$mpstaged" --transport local -c resnet50.conf --run-dir no-amx \
        -o model.input="{3,224,224}" >"$aside/out" 2>"$aside/err" || code=$?
    equal "resnet50 by AVX512_BF16" "$code" 0
    equal "and the log says so" "$(grep -c 'bf16 by avx512_bf16,' no-amx/mpstaged.log)" 1
    if grep -q GenuineIntel /proc/cpuinfo; then
        ONEDNN_MAX_CPU_ISA=AVX512_CORE_BF16 "$mpstaged" --transport local -c resnet50.conf --run-dir auto \
            -o run.emulate_bf16=auto >"$aside/out" 2>"$aside/err" || why
        equal "Intel without AMX: in fp32" "$(grep -c 'bf16 by fp32,' auto/mpstaged.log)" 1
    fi
else skip "resnet50 by AVX512_BF16" "this processor has none"; fi
trains part threads -c lm.conf -o checkpoint.every_steps=10 --steps 20
job threads -c lm.conf -o checkpoint.every_steps=10 --run-dir part --resume
equal "resumed after 20 steps: the same weights" "$(hash_of part | tail -n 1)" "$(hash_of lm-1)"
trains grey-part threads -c grey.conf -o checkpoint.every_steps=3 --steps 3
job threads -c grey.conf -o checkpoint.every_steps=3 --run-dir grey-part --resume
equal "convolutions, resumed after 3 steps: the same weights" "$(hash_of grey-part | tail -n 1)" "$(hash_of grey-1)"
trains grey-threads threads -c grey.conf --threads 2
check "grey, two threads: a loss near that of one: $(loss_of grey-threads) and $(loss_of grey-1)" \
    awk -v a="$(loss_of grey-threads)" -v b="$(loss_of grey-1)" \
    'BEGIN { d = a - b; if (d < 0) d = -d; exit !(a > 0 && d < 0.01 * b) }'
check "the numerics line has the precision" grep -q '"numerics":"[^"]*precision bf16' lm-1/metrics.jsonl

# ---- processors that lack it -----------------------------------------------------------------------------------------
lacks() {
    ONEDNN_MAX_CPU_ISA=AVX2 "$mpstaged" --transport local -c lm.conf "$@" >"$aside/out" 2>"$aside/err"
}
code=0; lacks --run-dir none -o run.emulate_bf16=no || code=$?
check "a processor without bf16" sh -c '[ "$0" -eq 78 ] && [ "$(wc -l <"$1")" -eq 1 ] && [ ! -e none ] &&
    grep -q "train.precision: bf16: this processor (.*) has no instructions for it.*run.emulate_bf16" "$1"' \
    "$code" "$aside/err"
lacks --run-dir lesser || why
lacks --run-dir lesser-2 --stages 2 || why
equal "emulated on a lesser processor: the same weights from two stages" "$(hash_of lesser-2)" "$(hash_of lesser)"
code=0; "$mpstaged" -c lm.conf --device cpu --precision tf32 --run-dir none 2>"$aside/err" || code=$?
check "tf32 is for GPUs" sh -c '[ "$0" -eq 78 ] &&
    grep -q "tf32 is for GPUs: the onednn backend computes in fp32 and bf16" "$1"' "$code" "$aside/err"
code=0; OMP_THREAD_LIMIT=1 "$mpstaged" -c lm.conf --threads 2 --run-dir none 2>"$aside/err" || code=$?
check "fewer threads than asked for" sh -c '[ "$0" -eq 78 ] && [ ! -e none ] &&
    grep -q "run.threads = 2: the environment.s OMP_THREAD_LIMIT allows 1" "$1"' "$code" "$aside/err"
by=$("$mpstaged" --version | sed -n 's/^backend onednn: .*, bf16 by //p')
if [ "$by" ]; then check "the log names the instructions" grep -q "bf16 by $by," lm-1/mpstaged.log
else skip "the log names the instructions" "this processor has none for bf16"; fi
tap_done
