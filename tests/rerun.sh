#!/bin/sh
# rerun.sh: a bit of what one rank sends to another changes on its way (tests/faults/flip.c). The step runs again, the
# run has the bits of one to which that never happened, and it is told; a second time it ends the run. And steps that
# are computed twice in any case.
set -eu
. "$(dirname -- "$0")/mpi_lib.sh"
if grep -q 'define SANITIZED 1' "$build/config.h"; then
    echo "1..0 # SKIP sanitizers come first in a process"; exit 77
fi

# Dropout, batch norm, clipping and an average: a discarded attempt must leave no trace of any.
cat >net.graph <<'END'
graph net
input input 4x6x6
conv1 = conv(input) channels=8 kernel=3 padding=1 bias=no layer=Conv2d
bn1 = batch_norm(conv1) layer=BatchNorm2d
relu = relu(bn1) layer=ReLU
drop = dropout(relu) p=0.3 layer=Dropout
conv2 = conv(drop) channels=8 kernel=3 padding=1 layer=Conv2d
flat = flatten(conv2) layer=Flatten
fc = linear(flat) features=5 layer=Linear
output fc
END
write_conf run.conf 's/network = "toy"  classes = 5  input = {10}/graph = "net.graph" classes = 5 input = {4, 6, 6}/
    s/labels = "onehot"/labels = "class" test_samples = 30/; s/"mse"/"cross_entropy" clip_norm = 0.5 ema = 0.9/
    s/steps = 3/steps = 12/'
bits() { { hash_of "$1"; grep -o '"loss_bits":"[^"]*"' "$1/metrics.jsonl"; } | cksum; }
# flips RANK PAYLOADS RUN RANKS OPTIONS...: a run in which bits of these payloads of that rank change
flips() {
    export MPSTAGED_FLIP_RANK="$1" MPSTAGED_FLIP="$2" LD_PRELOAD="$build/tests/faults/flip.so"
    flips_run=$3 flips_ranks=$4; shift 4
    job "$flips_ranks" -c run.conf --run-dir "$flips_run" "$@"
    unset MPSTAGED_FLIP_RANK MPSTAGED_FLIP LD_PRELOAD
    [ "$(grep -c '^flip: ' "$aside/err")" -ge 1 ] || not_ok "$flips_run: no bit was changed"
}
# mended RUN STEP FROM TO: it ended well, and says which step ran again
mended() {
    wrong=
    [ "$code" -eq 0 ] && [ "$(our_lines)" -eq 0 ] || wrong="code $code"
    [ "$(bits "$1")" = "$want" ] || wrong="$wrong other bits"
    grep -qx "{\"event\":\"rerun\",\"step\":$2,\"damaged\":1,\"from\":$3,\"to\":$4}" "$1/metrics.jsonl" ||
        wrong="$wrong no event"
    grep -q "warning: step $2 was repeated: 1 tensor corrupted .* from rank $3 to rank $4; suspect" "$1/mpstaged.log" ||
        wrong="$wrong no line"
    [ "$(grep -c '"event":"rerun"' "$1/metrics.jsonl")" -eq 1 ] || wrong="$wrong too many events"
    if [ -z "$wrong" ]; then ok "$1: the step runs again, and the bits are those of a sound run"
    else why; grep rerun "$1/metrics.jsonl" | note; not_ok "$1:$wrong"; fi
}

trains sound 2 -c run.conf
want=$(bits sound)
# Three micro-batches a step: three activations down, three gradients up.
flips 0 1 first-activation 2
mended first-activation 1 0 1
flips 0 8 activation 2
mended activation 3 0 1
flips 1 12 gradient 2
mended gradient 4 1 0
flips 1 2 middle 3 --stages 3
mended middle 1 1 2
flips 0 7 gpipe 2 --schedule gpipe -o run.trace=yes
mended gpipe 3 0 1
flips 0 7-8 two 2
check "two in one step are one step that runs again" [ "$code$(bits two)" = "0$want" ]
check "and told as two" grep -qx '{"event":"rerun","step":3,"damaged":2}' two/metrics.jsonl

# ends TEXT CODE LINE
ends() {
    if [ "$code" -eq "$2" ] && [ "$(our_lines)" -eq 1 ] && grep -q "^mpstaged: $3" "$aside/err"; then ok "$1"
    else why; not_ok "$1: $code"; fi
}
flips 0 10-1000 twice 2
ends "where it happens again the run ends" 80 \
    'step 4: 3 tensors corrupted in transfer, for the second time in this step; suspect the memory or the network'
check "without weights" [ ! -e twice/weights.safetensors ]
# The last step of training sends its last activation as the 36th.
flips 0 37 tested 2 -o train.evaluate_every=12
ends "in an evaluation nothing can run again" 69 \
    'rank 1, step [0-9]*, end: data from rank 0 was corrupted in transfer'

# Orders (tag 5), reports (6), and the numbers of a verdict (7).
for what in "0 5 3" "1 6 3" "1 7 4" "0 7 4"; do
    # shellcheck disable=SC2086
    set -- $what
    export MPSTAGED_FLIP_TAG="$2"
    flips "$1" "$3" "said-$1-$2" 2
    unset MPSTAGED_FLIP_TAG
    ends "a message of rank $1 with tag $2 that comes damaged ends the run" 69 \
        "rank $((1 - $1)).*: a message of rank $1 was corrupted in transfer; suspect"
done

# ---- steps that are computed twice -----------------------------------------------------------------------------------
trains rehearsed 2 -c run.conf -o run.verify_every=3
equal "steps that run twice change no bit" "$(bits rehearsed)" "$want"
sent() { mpirun_n 2 env LD_PRELOAD="$build/tests/faults/flip.so" MPSTAGED_FLIP_RANK=0 MPSTAGED_FLIP="$1" \
    "$mpstaged" -c run.conf --run-dir counted --overwrite -o run.verify_every="$2" \
    -o train.evaluate=no >"$aside/out" 2>"$aside/err" || true
    grep -c '^flip: ' "$aside/err" || true; }
check "without them 36 activations go down" [ "$(sent 36 0)$(sent 37 0)" = 10 ]
check "with every third twice 48" [ "$(sent 48 3)$(sent 49 3)" = 10 ]
tap_done
