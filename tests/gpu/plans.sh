#!/bin/sh
# plans.sh: every pass of the example networks' layers, those of volumes among them at the sizes of conf/vnet.conf's
# experiment, has a plan on an H200, by cuDNN itself; no GPU is needed.
# A double of the driver is used where there is no driver: run-time compiled engines
# ask it for nothing but places to load into.
set -eu
: "${srcdir:=.}" "${top_builddir:=.}"
here=$(CDPATH='' cd -- "$(dirname -- "$0")" && pwd)
. "$here/../tap.sh"
plans=$top_builddir/tests/gpu/plans
if [ ! -x "$plans" ]; then
    skip "plans of all kernels on a GPU" "built without CUDA"
    tap_done
fi
if ! ldconfig -p 2>/dev/null | grep -q 'libcuda\.so\.1 '; then
    LD_LIBRARY_PATH=$top_builddir/tests/gpu/double${LD_LIBRARY_PATH:+:$LD_LIBRARY_PATH}
    export LD_LIBRARY_PATH
fi
set -- "$srcdir/conf/resnet50.conf" "$srcdir/conf/resnet50.conf" 'model.input={3,224,224}' "$srcdir/conf/fashion.conf" \
    "$srcdir/conf/mlp.conf" "$srcdir/conf/toy.conf" "$here/volume.conf" "model.graph=$here/volume.graph" \
    --sizes 2,4,20,50 "$srcdir/conf/vnet.conf" "$srcdir/conf/vnet.conf" model.network=vnet model.classes=2 \
    "$srcdir/conf/vnet.conf" model.network=unet3d model.classes=3 \
    --sizes 1,2 "$srcdir/conf/hippocampus.conf" "model.graph=$srcdir/conf/hippocampus.graph" \
    "$srcdir/conf/novels.conf" "$srcdir/conf/novels.conf" 'model.input={1000}' model.hidden_size=512 \
    model.num_attention_heads=8 model.num_key_value_heads=2 "$srcdir/conf/novels.conf" model.network=gpt2 \
    'model.input={1024}' model.hidden_size=768 model.num_attention_heads=6 model.num_hidden_layers=2
exec "$plans" --described "$here/h200.json" "$@"
