#!/bin/sh
# networks.sh: a small one of every family of the zoo trains to the same bits on one to four stages, with recomputation,
# and with its first layers frozen. All in one process (transport local). NETWORKS="vgg11" in the environment: others.
# LONG=1: more. A vision transformer of graph text stands for that family, whose smallest has 86 million weights.
set -eu
build=$(CDPATH='' cd -- "${1:-${top_builddir:-.}}" && pwd)
here=$(CDPATH='' cd -- "$(dirname -- "$0")" && pwd)
. "$here/tap.sh"
tmp=$(mktemp -d)
trap 'rm -rf "$tmp"' EXIT
cd "$tmp"
: "${NETWORKS:=$(cases 'resnet18 mobilenet_v3_small vit vnet_eisen' \
    'mobilenet_v2 efficientnet_b0 densenet121 convnext_tiny')}"

cat >vit.graph <<'END'
graph vit
input x 3x48x48
block attend(x) width heads {
    norm = layer_norm(x) eps=1e-6
    in = linear(norm) features={3 * width} points=yes
    core = attention(in) heads={heads}
    out = linear(core) features={width} points=yes
    add = add(x, out)
}
block perceptron(x) width {
    norm = layer_norm(x) eps=1e-6
    up = linear(norm) features={4 * width} points=yes
    act = gelu(up)
    down = linear(act) features={width} points=yes
    add = add(x, down)
}
block layer(x) width heads {
    attend = attend(x) width={width} heads={heads}
    mlp = perceptron(attend) width={width}
}
conv_proj = conv(x) channels=48 kernel=8 stride=8
tokens = flatten(conv_proj) first=1
class = prepend(tokens)
positions = positions(class)
layer.0..3 = layer(positions) width=48 heads=4
norm = layer_norm(layer.3)
out = slice(norm) dim=1 count=1
flat = flatten(out)
head = linear(flat) features=5
output head
END

# run NETWORK NAME OPTIONS...: leaves the hash in $hash, empty if the run failed
run() {
    net=$1 name=$2 hash=; shift 2
    model="network = \"$net\"  classes = 5  input = {3, 48, 48}"
    labels=class loss=cross_entropy
    [ "$net" != vit ] || model='graph = "vit.graph"'
    [ "$net" != vnet_eisen ] || labels=map loss=dice_ce model="network = $net  classes = 3  input = {1, 16, 32, 16}"
    cat >"$net.conf" <<END
run   { name = "$net"  seed = 4 }
model { $model }
data  { source = "synthetic"  samples = 8  labels = "$labels" }
train { steps = 2  batch_size = 6  split_size = 2  loss = "$loss"  learning_rate = 0.001 }
pipeline { partition = "uniform" }
END
    if timeout 300 "$build/mpstaged" --transport local -c "$net.conf" "$@" --run-dir "$net-$name" \
        >"$name.out" 2>&1; then
        hash=$(sed -n '/"event":"done"/s/.*"weights_hash":"\([0-9a-f]*\)".*/\1/p' "$net-$name/metrics.jsonl")
    else note <"$name.out"; fi
}
# equal TEXT A B
equal() { if [ -n "$2" ] && [ "$2" = "$3" ]; then ok "$1"; else not_ok "$1: $2 and $3"; fi; }

for net in $NETWORKS; do
    run "$net" one --stages 1
    one=$hash
    for stages in $(cases 4 2); do
        run "$net" "$stages" --stages "$stages"
        equal "$net: $stages stages have the weights of one" "$one" "$hash"
    done
    run "$net" again --stages 3 -o pipeline.recompute=all
    equal "$net: and three, with all recomputed" "$one" "$hash"
    # the one of volumes also under other schedules
    [ "$net" != vnet_eisen ] || for schedule in gpipe zb-h1; do
        run "$net" "$schedule" --schedule "$schedule" --stages 4 -o pipeline.recompute=all
        equal "$net: and four under $schedule" "$one" "$hash"
    done
    case $net in
        resnet*) frozen='{"conv1", "bn1", "layer1"}' ;;
        densenet*) frozen='{"features.conv0", "features.norm0", "features.denseblock1"}' ;;
        vit_*) frozen='{"conv_proj", "encoder.layers.encoder_layer_0"}' ;;
        vit) frozen='{"conv_proj", "class", "positions", "layer.0"}' ;;
        vnet_eisen) frozen='{"block_one", "block_one_dw"}' ;;
        *) frozen='{"features.0", "features.1"}' ;;
    esac
    run "$net" frozen-one --stages 1 -o "train.freeze=$frozen"
    one=$hash
    run "$net" frozen --stages 3 -o "train.freeze=$frozen"
    equal "$net: so with frozen layers" "$one" "$hash"
done

# ---- micro-batches of other sizes ------------------------------------------------------------------------------------
# Group norm couples no samples, so they change the loss and the gradient by rounding alone. The first and last layers'
# gradients are sums of 8,192 products a sample, of both signs, in float: added up by one kernel or sample by sample,
# they are 2.5e-6 apart, and all gradients together 1.4e-6.
case " $NETWORKS " in *" vnet_eisen "*) ;; *) tap_done; exit 0 ;; esac
for size in 1 2 4; do
    run vnet_eisen "split-$size" --stages 1 --batch-size 4 --split-size "$size" --steps 1 \
        --dump-gradients "gradients-$size"
done
if /usr/bin/python3 -c 'import numpy' 2>/dev/null; then
    cat >apart.py <<'END'
import json, numpy, sys

def of(size):
    with open(f"gradients-{size}", "rb") as f:
        f.read(int.from_bytes(f.read(8), "little"))     # the header
        gradient = numpy.frombuffer(f.read(), "<f4").astype(float)
    steps = [json.loads(line) for line in open(f"vnet_eisen-split-{size}/metrics.jsonl")]
    return gradient, [line["loss"] for line in steps if line["event"] == "step"][0]

whole, loss = of(4)
for size in 1, 2:
    gradient, own = of(size)
    print(size, numpy.linalg.norm(gradient - whole) / numpy.linalg.norm(whole), abs(own - loss) / loss)
END
    /usr/bin/python3 apart.py >apart 2>&1 || note <apart
    for size in 1 2; do
        if awk -v size=$size '$1 == size && $2 < 4e-6 && $3 < 1e-6 && $2 > 0 { good = 1 } END { exit !good }' apart
        then ok "vnet_eisen: micro-batches of $size have the gradient of one of 4"
        else note <apart; not_ok "vnet_eisen: micro-batches of $size have the gradient of one of 4"; fi
    done
else skip "vnet_eisen: micro-batches of other sizes" "apt-get install python3-numpy"; fi
tap_done
