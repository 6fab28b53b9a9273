#!/bin/sh
# offload.sh: the optimizer's state lies on disk (pipeline.offload_optimizer). Weights and checkpoints have the bits of
# a run with all state in memory: with each optimizer, on any number of threads and ranks, with averages, steps that are
# skipped or run twice, adapters whose base lies on disk, and resumed either way. auto does it where limits need it, and
# where they still do, trained weights and gradients lie on disk, too. A disk that fails or is full ends the run in a
# line.
set -eu
. "$(dirname -- "$0")/mpi_lib.sh"
. "$here/npy_lib.sh"

mkdir disk
awk 'BEGIN { srand(5); for (i = 0; i < 400; i++) printf "%c", 33 + int(60 * rand()) }' >"$aside/tokens.bin"
cat >lm.conf <<END
run      { name = "lm" }
model    { network = "llama"  hidden_size = 128  intermediate_size = 256  num_hidden_layers = 4
           num_attention_heads = 2  vocab_size = 96  max_position_embeddings = 8
           input = {8} }
data     { source = "tokens"  token_type = "u8"  train_tokens = {"$aside/tokens.bin"}
           test_tokens = {"$aside/tokens.bin"}  shuffle = no }
train    { batch_size = 4  split_size = 1  steps = 6  optimizer = "adamw"  learning_rate = 0.01  evaluate = no }
pipeline { profile_spread = 1e9 }
END
on='-o pipeline.disk=disk -o pipeline.offload_optimizer=yes'
# peak OPTIONS...: bytes of the first rank by plan; on_disk: of optimizer state on disk
peak() { "$mpstaged" -c lm.conf --plan --json "$@" | sed -n 's/.*"peak_bytes": \([0-9]*\).*/\1/p' | head -n 1; }
on_disk() { "$mpstaged" -c lm.conf --plan --json "$@" | sed -n 's/.*"optimizer_outside_bytes": \([0-9]*\).*/\1/p'; }

# ---- the least limit -------------------------------------------------------------------------------------------------
# How even stages can be depends on their number, so others are tried: what fits a limit fits each larger one.
sed 's/intermediate_size = 256  num_hidden_layers = 4/intermediate_size = 352  num_hidden_layers = 8/
    s/batch_size = 4/batch_size = 8/; s/^pipeline {/pipeline { recompute = "all" /' lm.conf >deep.conf
first='' not=''
for l in $(seq 4000000 100000 7600000); do
    if "$mpstaged" -c deep.conf --plan -o pipeline.disk=disk -o pipeline.max_memory="$l" >"$aside/out" 2>&1
    then first=${first:-$l}
    elif [ -n "$first" ]; then not="$not $l"; fi
done
check "a plan fits some of these limits" [ -n "$first" ]
check "and all that are larger than the first, $first, not:$not" [ -z "$not" ]

# ---- the same bits ---------------------------------------------------------------------------------------------------
# same TEXT RANKS OPTIONS...: weights as those of $want
same() {
    same_text=$1 same_ranks=$2; shift 2
    rm -rf same
    # shellcheck disable=SC2086
    job "$same_ranks" -c lm.conf --run-dir same $on "$@"
    [ "$code" -eq 0 ] || why
    equal "$same_text: the same weights" "$(hash_of same 2>/dev/null || echo "status $code")" "$want"
}
# sums RUN: of the files of all its checkpoints
sums() { (cd "$1/checkpoints" && find . -name '*.safetensors' | sort | xargs cat | cksum); }
# each NAME OPTIONS...: with and without, and resumed from one to the other
each() {
    each_name=$1; shift
    trains "$each_name" threads -c lm.conf "$@" -o checkpoint.every_steps=2
    want=$hash
    same "$each_name" threads "$@" -o checkpoint.every_steps=2
    equal "$each_name: the same checkpoints" "$(sums same)" "$(sums "$each_name")"
    rm -rf to from
    # shellcheck disable=SC2086
    job threads -c lm.conf "$@" --run-dir to --steps 3 -o checkpoint.every_steps=3 $on
    job threads -c lm.conf "$@" --run-dir to --resume -o checkpoint.every_steps=3
    equal "$each_name: resumed in memory" "$(hash_of to | tail -n 1)" "$want"
    job threads -c lm.conf "$@" --run-dir from --steps 3 -o checkpoint.every_steps=3
    # shellcheck disable=SC2086
    job threads -c lm.conf "$@" --run-dir from --resume -o checkpoint.every_steps=3 $on
    equal "$each_name: resumed from disk" "$(hash_of from | tail -n 1)" "$want"
}
each sgd -o train.optimizer=sgd -o train.momentum=0.9
each lamb -o train.optimizer=lamb
each rmsprop -o train.optimizer=rmsprop -o train.momentum=0.5
each averages -o train.ema=0.1
each adamw
check "waiting for the disk is in the account" grep -q '"weights_wait_seconds":[0-9]' same/metrics.jsonl
# Bits of products may depend on the number of threads (AVX2).
one=$want
trains three threads -c lm.conf -o run.threads=3
three=$hash want=$hash
same "three threads" threads -o run.threads=3
want=$one
same "two ranks" 2 --stages 2
same "four stages on two ranks" 2 --stages 4 --schedule interleaved -o pipeline.ranks=2
same "steps that run twice" threads -o run.verify_every=2

floats 2000 1 | npy x.npy '200, 10'
floats 1000 7 | npy y.npy '200, 5'
spoiled nan.npy '\000\000\300\177'
write_conf skip.conf 's/source = "synthetic"  labels = "onehot"  samples = 200/source = "npy" labels = "vector" \
    train = "nan.npy" train_labels = "y.npy"/
    s/steps = 3/steps = 6  nonfinite = "skip"/; s/learning_rate = 0.1/learning_rate = 0.1 momentum = 0.9/'
# skips NAME OPTIONS...
skips() {
    skips_name=$1; shift
    job threads -c skip.conf --run-dir "$skips_name" "$@"
    check "$skips_name: a step is skipped" grep -q '"skipped":true' "$skips_name/metrics.jsonl"
}
skips resident
# shellcheck disable=SC2086
skips offloaded $on
equal "which changes no state" "$(hash_of offloaded)" "$(hash_of resident)"

# ---- limits ----------------------------------------------------------------------------------------------------------
# shellcheck disable=SC2086
all=$(peak) with=$(peak $on) disk='-o pipeline.disk=disk -o pipeline.max_memory'
check "it saves memory: $with bytes, not $all" [ "$with" -lt $((all * 2 / 3)) ]
# shellcheck disable=SC2086
equal "within $all bytes nothing is on disk" "none$(on_disk $disk="$all")" none
less=$(((all + with) / 2))
# shellcheck disable=SC2086
check "within $less the state is" [ "$(on_disk $disk=$less)" -gt 4000000 ]
# shellcheck disable=SC2086
refused "unless that is forbidden" 78 "needs" threads -c lm.conf --run-dir none $disk=$less \
    -o pipeline.offload_optimizer=no
# shellcheck disable=SC2086
trains auto threads -c lm.conf $disk=$less

equal "a run with that limit has the same weights" "$hash" "$want"
check "and the bytes of its plan" grep -q '^memory .*+0.0 %' "$aside/out" "$aside/err"

# ---- trained weights and gradients, too ------------------------------------------------------------------------------
# far RANKS BYTES OPTIONS...: as same, within a limit below what weights and gradients take
far() {
    far_text=$1 far_ranks=$2 far_bytes=$3; shift 3
    rm -rf same
    # shellcheck disable=SC2086
    job "$far_ranks" -c lm.conf --run-dir same $disk="$far_bytes" "$@"
    [ "$code" -eq 0 ] || why
    equal "within $far_bytes bytes, $far_text: the same weights" "$(hash_of same 2>/dev/null || echo "status $code")" \
        "$want"
}
least=3200000 less=5000000
cp -r auto/model "$aside/base"
trains saved threads -c lm.conf -o checkpoint.every_steps=2
for k in sgd lamb rmsprop adamw; do
    set -- -o train.optimizer=$k
    case $k in sgd | rmsprop) set -- "$@" -o train.momentum=0.9 ;; esac
    trains "plain-$k" threads -c lm.conf "$@"
    want=$hash
    far $k threads $least "$@"
    far "$k, fewer visits" threads $less "$@"
done
check "and the bytes of its plan" grep -q '^memory .*+0.0 %' "$aside/out" "$aside/err"
far "checkpoints" threads $least -o checkpoint.every_steps=2
equal "the same checkpoints" "$(sums same)" "$(sums saved)"
one=$want want=$three
far "three threads" threads $less -o run.threads=3
want=$one
far "steps that run twice" threads $less -o run.verify_every=2
far "recomputed" threads $less -o pipeline.recompute=all
far "all micro-batches at a time" threads $less -o pipeline.in_flight=4
far "two at a time" threads $less -o pipeline.in_flight=2
far "two ranks" 2 $least -o pipeline.ranks=2
far "evaluations between steps" threads $less -o train.evaluate=yes -o train.evaluate_every=2 \
    -o checkpoint.every_steps=1
echo '{"input_ids": [34, 45, 56]}' >"$aside/prompts.jsonl"
same "texts between steps" threads -o generate.every_steps=2 -o generate.prompts="$aside/prompts.jsonl" \
    -o generate.max_tokens=4
far "gradients written" threads $less -o run.dump_gradients="$aside/far.safetensors"
job threads -c lm.conf --run-dir near -o run.dump_gradients="$aside/near.safetensors"
check "the same gradients" cmp "$aside/near.safetensors" "$aside/far.safetensors"
rm -rf to from
# shellcheck disable=SC2086
job threads -c lm.conf --run-dir to --steps 3 -o checkpoint.every_steps=3 $disk=$least
job threads -c lm.conf --run-dir to --resume -o checkpoint.every_steps=3
equal "resumed in memory" "$(hash_of to | tail -n 1)" "$want"
job threads -c lm.conf --run-dir from --steps 3 -o checkpoint.every_steps=3
# shellcheck disable=SC2086
job threads -c lm.conf --run-dir from --resume -o checkpoint.every_steps=3 $disk=$least
equal "resumed from disk" "$(hash_of from | tail -n 1)" "$want"
trains from-base threads -c lm.conf --init-from "$aside/base"
want=$hash
far "weights of a folder" threads $less --init-from "$aside/base"
check "whose file is as it was" cmp -s auto/model/model.safetensors "$aside/base/model.safetensors"
trains frozen threads -c lm.conf -o train.freeze='model.layers.0,model.layers.2'
want=$hash
far "some frozen" threads $less -o train.freeze='model.layers.0,model.layers.2'
trains clipped threads -c lm.conf -o train.clip_norm=0.5
want=$hash
far "clipped" threads $less -o train.clip_norm=0.5
sed "s|network = \"llama\".*|folder = \"$aside/base\"|; /num_attention_heads/d
     s|^pipeline |lora { rank = 2 }\npipeline |" lm.conf >lora.conf
cp lm.conf plain.conf
mv lora.conf lm.conf
trains lora threads -c lm.conf
want=$hash
same "adapters, with their base on disk" threads -o pipeline.max_memory=$(($(peak) * 3 / 4))
equal "nothing stays in the folder" "$(find disk -type f | wc -l)" 0

# ---- what ends a run -------------------------------------------------------------------------------------------------
none="threads -c skip.conf --run-dir none"
# shellcheck disable=SC2086
refused "without a folder" 78 "pipeline.offload_optimizer.*pipeline.disk" $none -o pipeline.offload_optimizer=yes
# shellcheck disable=SC2086
refused "two replicas" 78 "pipeline.offload_optimizer.*one replica" $none $on -o pipeline.replicas=2 \
    -o train.gradient_groups=2
# shellcheck disable=SC2086
refused "an optimizer without state" 78 "pipeline.offload_optimizer.*no state" $none $on -o train.momentum=0
# shellcheck disable=SC2086
refused "no such folder" 73 nowhere $none $on -o pipeline.disk=nowhere/at/all

# From the N-th call on (FAULT_AT), reading or writing a file without a name fails.
cat >"$aside/fault.c" <<'END'
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
static int fails(const char *call, int fd)
{
    static atomic_int calls;
    char link[40], path[400] = "";
    const char *fault = getenv("FAULT"), *from = getenv("FAULT_AT");
    snprintf(link, sizeof link, "/proc/self/fd/%d", fd);
    const ssize_t k = readlink(link, path, sizeof path - 1);
    return k > 0 && fault && strstr(path, "/disk/") && !strcmp(fault, call) && ++calls >= atoi(from);
}
ssize_t pread(int fd, void *p, size_t n, off_t at)
{
    ssize_t (*next)(int, void *, size_t, off_t) = dlsym(RTLD_NEXT, "pread");
    if (fails("read", fd)) { errno = EIO; return -1; }
    return next(fd, p, n, at);
}
ssize_t pwrite(int fd, const void *p, size_t n, off_t at)
{
    ssize_t (*next)(int, const void *, size_t, off_t) = dlsym(RTLD_NEXT, "pwrite");
    if (fails("write", fd)) { errno = ENOSPC; return -1; }
    return next(fd, p, n, at);
}
int fallocate(int fd, int mode, off_t at, off_t n)
{
    int (*next)(int, int, off_t, off_t) = dlsym(RTLD_NEXT, "fallocate");
    if (fails("reserve", fd)) { errno = ENOSPC; return -1; }
    return next(fd, mode, at, n);
}
END
if ! cc -shared -fPIC -o "$aside/fault.so" "$aside/fault.c" 2>"$aside/cc" || [ -n "${SANITIZED:-}" ]; then
    skip "a disk with faults" "no compiler, or sanitizers"
else
    for case in "read 5 offset.*cannot read" "write 5 offset.*cannot write: No space" "reserve 1 No space" \
        "read 200 offset.*cannot read" "write 200 offset.*cannot write: No space"; do
        # shellcheck disable=SC2086
        set -- $case
        fault=$1 from=$2; shift 2
        rm -rf bad
        export FAULT="$fault" FAULT_AT="$from"
        # shellcheck disable=SC2086
        case $from in
            200) LD_PRELOAD=$aside/fault.so job 1 -c plain.conf --run-dir bad $disk=$least ;;
            *) LD_PRELOAD=$aside/fault.so job 1 -c lm.conf --run-dir bad $on ;;
        esac
        check "a disk that fails to $fault: 74, in a line" \
            [ "$code/$(our_lines)/$(grep -c "^mpstaged: .*disk/rank-0: .*$*" "$aside/err")" = 74/1/1 ]
        [ "$code" -eq 74 ] || { echo "# exit status $code"; why; }
    done
fi
tap_done
