#!/bin/sh
# examples.sh: every configuration in conf is one, and can be planned; those for CIFAR and ImageNet train on
# and evaluate a few samples made here, on two ranks as they say.
set -eu
build=$(CDPATH='' cd -- "${1:-${top_builddir:-.}}" && pwd)
here=$(CDPATH='' cd -- "$(dirname -- "$0")" && pwd)
. "$here/tap.sh"
tmp=$(mktemp -d)
trap 'rm -rf "$tmp"' EXIT
cd "$tmp"

# Ten records of CIFAR-10, record k of class k: figures instead of pixels.
records() {
    for k in 0 1 2 3 4 5 6 7 8 9; do
        printf "\\0$((k / 8))$((k % 8))"
        seq $((k * 1000 + 1000)) $((k * 1000 + 1999)) | tr -d '\n' | head -c 3072
    done
}
mkdir cifar-10-batches-bin
for k in 1 2 3 4 5; do records >cifar-10-batches-bin/data_batch_$k.bin; done
records >cifar-10-batches-bin/test_batch.bin
for part in train val; do
    for k in 1 2; do
        mkdir -p $part/class$k
        cp "$here/images/rgb.jpg" $part/class$k/a.jpg
        cp "$here/images/whole.jpg" $part/class$k/b.jpg
    done
done

# for finetune, which is not run: one of the weights
head='{"bn1.bias":{"dtype":"F32","shape":[64],"data_offsets":[0,256]}}'
{ printf "\\$(printf %o ${#head})\\0\\0\\0\\0\\0\\0\\0%s" "$head"; head -c 256 /dev/zero; } >resnet18.safetensors

mkdir conf
cp "$here"/../conf/*.graph conf/

# quietly COMMAND...: its output only where it fails
quietly() { "$@" >out 2>&1 || { note <out; return 1; }; }
for conf in "$here"/../conf/*.conf; do
    name=$(basename "$conf" .conf)
    # what is the same for every source of pictures stays, files are not looked for
    set -- -c "$conf" -o data.source=synthetic -o data.test_samples=1
    [ "$name" != finetune ] || set -- "$@" -o 'run.init_missing={"conv1", "bn1", "layer*", "fc"}'
    check "$name: is a configuration" quietly "$build/mpstaged" "$@" --check-config
    check "$name: has a plan" quietly "$build/mpstaged" "$@" --plan
done

# trains NAME SETTINGS...: two steps, and the accuracy of what they made
trains() {
    name=$1; shift
    for s in "$@"; do set -- "$@" -o "$s"; shift; done
    quietly "$build/mpstaged" --transport local -c "$here/../conf/$name.conf" --run-dir "$name" --steps 2 "$@" &&
        grep -q '"event":"evaluation".*"accuracy":' "$name/metrics.jsonl"
}
check "cifar: trains and evaluates" trains cifar train.batch_size=8 train.split_size=4 train.evaluate_batch_size=10
check "imagenet: trains and evaluates" trains imagenet model.classes=2 train.batch_size=4 train.split_size=2
tap_done
