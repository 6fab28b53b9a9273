#!/bin/sh
# isa.sh: runs as on lesser processors than this one, by the library's own limit: the demo's network and one for grey
# pictures, without a reference kernel, and with the same bits from any number of stages.
set -eu
here=$(CDPATH='' cd -- "$(dirname -- "$0")" && pwd)
. "$here/tap.sh"
mpstaged=$(CDPATH='' cd -- "${top_builddir:-.}" && pwd)/mpstaged
tmp=$(mktemp -d)
trap 'rm -rf "$tmp"' EXIT
cd "$tmp"

cat >grey.graph <<'EOT'
graph grey
input input 1x20x20
labels labels class
a = conv(input) channels=16 kernel=3 padding=1
b = relu(a)
c = conv(b) channels=16 kernel=3 padding=1 groups=16 bias=no
d = conv(c) channels=24 kernel=1 bias=no
e = batch_norm(d)
f = relu(e)
g = conv(f) channels=24 kernel=5 padding=2 stride=2 groups=24
h = conv(g) channels=20 kernel=3 padding=1
i = conv(h) channels=20 kernel=3 padding=1
j = add(i, h)
k = global_avg_pool(j)
l = flatten(k)
m = linear(l) features=10
loss = softmax_cross_entropy(m, labels)
output m
loss loss
EOT
rest='data { source = "synthetic"  labels = "class"  samples = 64 }
train { batch_size = 14  split_size = 4  steps = 3  loss = "cross_entropy"  learning_rate = 0.05  momentum = 0.9 }
pipeline { partition = "uniform" }'
printf '%s\n' 'run { name = "demo" }' \
    'model { network = "resnet50"  classes = 10  input = {3, 32, 32}  zero_init_residual = yes }' "$rest" >demo.conf
printf '%s\n' 'run { name = "grey" }' 'model { graph = "grey.graph" }' "$rest" >grey.conf

# What the program takes of the processor under the limit that is set.
isa_of() { "$mpstaged" --version | sed -n 's/, bf16 by .*//; s/^backend onednn: .* \(avx512\|avx2\|generic\)$/\1/p'; }

# run NET LIMIT STAGES SCHEDULE: in one process; leaves the weights' hash in $hash, and what the library ran in ./out
run() {
    hash=
    if ONEDNN_MAX_CPU_ISA=$2 DNNL_VERBOSE=1 "$mpstaged" -c "$1.conf" --transport local --stages "$3" --schedule "$4" \
        --run-dir run --overwrite \
        >out 2>err </dev/null; then
            hash=$(sed -n '/"event":"done"/s/.*"weights_hash":"\([0-9a-f]*\)".*/\1/p' run/metrics.jsonl)
    else note <err
    fi
}

whole=$(isa_of)
for limit in AVX2 SSE41; do
    isa=$(ONEDNN_MAX_CPU_ISA=$limit isa_of)
    if [ "$limit" = AVX2 ] && [ "$whole" != avx512 ] || [ "$limit" = SSE41 ] && [ "$whole" = generic ]; then
        skip "$limit" "the processor has no more"; continue
    fi
    case $limit in AVX2) want=avx2 ;; *) want=generic ;; esac
    check "$limit: the program takes $want" test "$isa" = $want
    for net in demo grey; do
        run $net $limit 1 1f1b
        one=$hash
        check "$limit, $net: it runs" test -n "$one"
        check "$limit, $net: the library runs convolutions" grep -q ',exec,cpu,convolution,' out
        check "$limit, $net: none of them is its reference" sh -c '! grep -q ",ref:" out'
        check "$limit, $net: no layer is a plain loop" sh -c '! grep -q "by a plain loop" err'
        for plan in '2 1f1b' '4 gpipe'; do
            run $net $limit $plan
            check "$limit, $net: stages and schedule $plan: the weights of one stage" test "$hash" = "$one"
        done
    done
done
tap_done
