#!/bin/sh
# onnx_torch.sh: networks of torchvision and decoders that both exporters of torch.onnx wrote give torch's logits within
# 1e-5, and one step's gradients within 1e-4 (tests/torch/onnx_nets.py, which is run by $MPSTAGED_PYTHON). LONG=1, in
# check-long, adds the larger ones.
set -eu
. "$(dirname -- "$0")/mpi_lib.sh"
python=${MPSTAGED_PYTHON:-/usr/bin/python3}
if [ ! -x "$build/tests/onnx_tool" ]; then
    skip "networks of torch.onnx" "apt-get install protobuf-c-compiler libprotobuf-c-dev"
elif ! python_has torch torchvision onnx onnxscript; then
    skip "networks of torch.onnx" "pip install torch torchvision onnx onnxscript; MPSTAGED_PYTHON names that Python"
else
    nets=$(cases "vit decoder unet digits mobilenet_v3_small" "resnet50 efficientnet_b0 convnext_tiny")
    ! python_has transformers || nets="$nets llama gpt2"
    "$python" "$here/torch/onnx_nets.py" "$mpstaged" $nets >"$aside/said" 2>"$aside/err" || why
    grep "^ok - \|^not ok - " "$aside/said" >"$aside/results"
    results_of "$aside/results"
    check "all were tried" test "$(wc -l <"$aside/results")" -ge "$(echo "$nets" | wc -w)"
fi
tap_done
