#!/bin/sh
# networks.sh: a small one of every family of the zoo trains to the same bits on one to four stages, with recomputation,
# and with its first layers frozen. All in one process (transport local). NETWORKS="vgg11" in the environment: others.
set -eu
build=$(CDPATH='' cd -- "${1:-${top_builddir:-.}}" && pwd)
here=$(CDPATH='' cd -- "$(dirname -- "$0")" && pwd)
. "$here/tap.sh"
tmp=$(mktemp -d)
trap 'rm -rf "$tmp"' EXIT
cd "$tmp"
: "${NETWORKS:=resnet18 mobilenet_v2 mobilenet_v3_small efficientnet_b0 densenet121 convnext_tiny}"

# run NETWORK NAME OPTIONS...: leaves the hash in $hash, empty if the run failed
run() {
    net=$1 name=$2 hash=; shift 2
    cat >"$net.conf" <<END
run   { name = "$net"  seed = 4 }
model { network = "$net"  classes = 5  input = {3, 48, 48} }
data  { source = "synthetic"  samples = 8  labels = "class" }
train { steps = 2  batch_size = 6  split_size = 2  loss = "cross_entropy"  learning_rate = 0.001 }
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
    for stages in 2 4; do
        run "$net" "$stages" --stages "$stages"
        equal "$net: $stages stages have the weights of one" "$one" "$hash"
    done
    run "$net" again --stages 3 -o pipeline.recompute=all
    equal "$net: and three, with all recomputed" "$one" "$hash"
    case $net in
        resnet*) frozen='{"conv1", "bn1", "layer1"}' ;;
        densenet*) frozen='{"features.conv0", "features.norm0", "features.denseblock1"}' ;;
        vit*) frozen='{"conv_proj", "encoder.layers.encoder_layer_0"}' ;;
        *) frozen='{"features.0", "features.1"}' ;;
    esac
    run "$net" frozen-one --stages 1 -o "train.freeze=$frozen"
    one=$hash
    run "$net" frozen --stages 3 -o "train.freeze=$frozen"
    equal "$net: so with frozen layers" "$one" "$hash"
done
tap_done
