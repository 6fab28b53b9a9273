#!/bin/sh
# skips.sh: a step that is skipped (train.nonfinite = skip) leaves optimizer, averages and rates as if its batch had not
# been there: the bits of a run on the other batches alone. Also when the run is resumed, with several stages, replicas
# and schedules, and with steps that are computed twice. tests/torch/skips has PyTorch's weights.
set -eu
. "$(dirname -- "$0")/mpi_lib.sh"
. "$here/npy_lib.sh"

# Twelve batches of ten, of which the first, the second and the fifth have a sample that is not a number.
floats 1200 1 | npy x.npy '120, 10'
floats 600 7 | npy y.npy '120, 5'
# without BYTES FILE: the numbers of the other batches; a batch has so many bytes
without() { tail -c +$((129 + 2 * $1)) "$2" | head -c $((2 * $1)); tail -c +$((129 + 5 * $1)) "$2"; }
without 400 x.npy | npy x9.npy '90, 10'
without 200 y.npy | npy y9.npy '90, 5'
for first in 3 15 44; do spoiled bad.npy '\000\000\300\177' 1 $first; mv bad.npy x.npy; done
write_conf run.conf 's/source = "synthetic"  labels = "onehot"  samples = 200/source = "npy"  labels = "vector" \
    train = "x.npy"  train_labels = "y.npy"/; s/batch_size = 20/batch_size = 10/
    s/split_size = 8/split_size = 5/
    s/steps = 3/steps = 12  nonfinite = "skip"  ema = 0.9  gradient_groups = 2/; s/optimizer = "sgd"  //
    s/stages = 2/stages = 1/'
rates() { sed -n 's/.*"event":"step",.*"lr":\([^,]*\),.*/\1/p' "$1/metrics.jsonl" | tr '\n' ' '; }
# run NAME OPTIONS...: in one process, from the beginning unless told otherwise
run() {
    run_name=$1; shift; code=0
    "$mpstaged" -c run.conf --transport local --run-dir "$run_name" "$@" >"$aside/out" 2>"$aside/err" </dev/null ||
        code=$?
    [ "$code" -eq 0 ] || { why; not_ok "$run_name: exit $code"; }
}
# state RUN STEP: the tensors of that checkpoint, weights, averages and the optimizer's, whoever wrote them
state() { cat "$1/checkpoints/step-$(printf %08d "$2")"/*.safetensors | cksum; }
skipped() { grep -c '"event":"skip"' "$1/metrics.jsonl" || true; }
few='-o data.train=x9.npy -o data.train_labels=y9.npy --steps 9'

# ---- as if the batch had not been there ------------------------------------------------------------------------------
for k in "sgd -o train.momentum=0.9 -o train.nesterov=yes" "adam -o train.weight_decay=0.1" "adamw -o train.beta1=0.8" \
    "lamb -o train.clip_norm=0.5" "rmsprop -o train.momentum=0.5 -o train.beta2=0.9"; do
    for rate in "constant" "step -o train.step_size=2 -o train.warmup_steps=3" "step -o train.milestones={1,4}"; do
        # shellcheck disable=SC2086
        set -- --learning-rate 0.01 -o train.schedule=$rate -o train.optimizer=$k
        run all --overwrite -o checkpoint.every_steps=12 "$@"
        # shellcheck disable=SC2086
        run good --overwrite -o checkpoint.every_steps=9 "$@" $few
        equal "${k%% *}, $rate: three steps are skipped" "$(skipped all)" 3
        equal "with the state of a run on the other nine batches" "$(state all 12)" "$(state good 9)"
    done
done

# ---- rates -----------------------------------------------------------------------------------------------------------
# The rate of a step that is skipped is the next one's, whenever it is known that it is skipped.
run rates --learning-rate 1 -o train.schedule=step -o train.step_size=2 -o train.gamma=0.5 -o train.warmup_steps=2 \
    -o train.warmup_factor=0.5
equal "rates go by updates" "$(rates rates)" "0.5 0.5 0.5 0.75 1 1 1 0.5 0.5 0.25 0.25 0.125 "
run rates --overwrite --learning-rate 1 -o train.schedule=cosine
equal "also those that fall over the run" "$(rates rates | cut -d ' ' -f 1-4)" "1 1 1 0.9829629131445341"
equal "by epoch they go by the data" "$(run rates --overwrite --learning-rate 1 --steps 30 -o train.schedule=step \
    -o train.step_size=1 -o train.gamma=0.5 -o train.schedule_by=epoch; rates rates | tr ' ' '\n' | uniq -c |
    awk '{ printf "%s:%s ", $1, $2 }')" "12:1 12:0.5 6:0.25 "

# ---- resumed, behind each step ---------------------------------------------------------------------------------------
hard="--learning-rate 0.01 -o train.optimizer=adam -o train.schedule=cosine -o train.warmup_steps=2"
# shellcheck disable=SC2086
run whole $hard -o checkpoint.every_steps=12
for at in 1 2 3 5 6 9; do
    # cosine wants all steps to be known, so the run is stopped and not a shorter one
    # shellcheck disable=SC2086
    run part --overwrite $hard -o checkpoint.every_steps=$at -o checkpoint.keep=20
    for s in part/checkpoints/step-*; do [ "${s##*-}" = "$(printf %08d $at)" ] || rm -r "$s"; done
    rm -f part/weights.safetensors
    # shellcheck disable=SC2086
    run part --resume $hard -o checkpoint.every_steps=12
    equal "resumed behind step $at" "$(state part 12)" "$(state whole 12)"
done
check "the number of updates is in the checkpoint" grep -q '"updates": 9,' whole/checkpoints/step-00000012/manifest.json

# ---- another optimizer, whose state begins anew, counts its own updates ----------------------------------------------
# All batches are one, so that a run from the weights alone has the same ones.
tail -c +129 x9.npy | head -c 400 | npy x1.npy '10, 10'
tail -c +129 y9.npy | head -c 200 | npy y1.npy '10, 5'
one='-o data.train=x1.npy -o data.train_labels=y1.npy --learning-rate 0.01 -o train.ema=0'
# shellcheck disable=SC2086
run sgd $one --steps 3 -o checkpoint.every_steps=3
for k in adam lamb; do
    rm -rf changed; cp -r sgd changed
    # shellcheck disable=SC2086
    run changed $one --steps 5 -o train.optimizer=$k -o checkpoint.every_steps=5 --resume=force
    # shellcheck disable=SC2086
    run changed $one --steps 7 -o train.optimizer=$k -o checkpoint.every_steps=5 --resume
    # shellcheck disable=SC2086
    run fresh --overwrite $one --steps 4 -o train.optimizer=$k --init-from sgd/weights.safetensors
    equal "$k in sgd's place: as from its weights" "$(hash_of changed | tail -n 1)" "$(hash_of fresh)"
done
# shellcheck disable=SC2086
run kept $one --steps 3 -o train.optimizer=adam -o checkpoint.every_steps=3
# shellcheck disable=SC2086
run kept $one --steps 6 -o train.optimizer=adamw -o train.weight_decay=0 --resume=force
# shellcheck disable=SC2086
run adamw $one --steps 6 -o train.optimizer=adamw -o train.weight_decay=0
equal "adamw in adam's place goes on with its state" "$(hash_of kept | tail -n 1)" "$(hash_of adamw)"

# ---- on any number of ranks, in any order ----------------------------------------------------------------------------
hash_whole=$(hash_of whole)
ways() {
    ways_text=$1; shift
    # shellcheck disable=SC2086
    run way --overwrite $hard "$@"
    equal "$ways_text: the same bits" "$(hash_of way)" "$hash_whole"
    equal "and rates" "$(rates way)" "$(rates whole)"
}
ways "two stages" --stages 2
ways "two stages, zb-h1" --stages 2 --schedule zb-h1
ways "two replicas" --stages 1 -o pipeline.replicas=2
ways "two replicas that share the optimizer" --stages 1 -o pipeline.replicas=2 -o pipeline.shard_optimizer=yes
ways "steps that are computed twice" -o run.verify_every=2
# shellcheck disable=SC2086
job 2 -c run.conf $hard --stages 2 --run-dir mpi
equal "two processes: the same bits" "$(hash_of mpi)" "$hash_whole"
check "nobody is left" nobody_left
tap_done
