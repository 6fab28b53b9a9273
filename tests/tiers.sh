#!/bin/sh
# tiers.sh: frozen weights beyond memory lie on disk (pipeline.disk). Training of adapters, evaluation, texts and
# predictions give the bits of a run with all weights in memory: from the model's own files, from files of the ranks
# where these have another form, on any number of ranks, and resumed with other limits. Nothing stays in the folder. A
# file that is cut off, changed or unreadable while it is read ends the run in a line; a slow disk is waited for, and
# the account says so.
set -eu
. "$(dirname -- "$0")/mpi_lib.sh"

mkdir disk
awk 'BEGIN { srand(5); for (i = 0; i < 400; i++) printf "%c", 33 + int(60 * rand()) }' >"$aside/tokens.bin"
# config MODEL: the file lm.conf
config() {
    cat >lm.conf <<END
run      { name = "lm" }
model    { folder = "$aside/$1"  input = {8} }
data     { source = "tokens"  token_type = "u8"  train_tokens = {"$aside/tokens.bin"}
           test_tokens = {"$aside/tokens.bin"}  shuffle = no }
train    { batch_size = 4  split_size = 1  steps = 6  optimizer = "adamw"  learning_rate = 0.01  evaluate = no }
lora     { rank = 2 }
pipeline { profile_spread = 1e9 }
generate { prompts = "$aside/prompts.jsonl"  max_tokens = 4 }
END
}
echo '{"input_ids": [34, 45, 56]}' >"$aside/prompts.jsonl"
# Folders: of Llama's form in bf16, and of GPT-2's, whose files have the matrices in the other order.
sizes='hidden_size = 128  intermediate_size = 256  num_hidden_layers = 4  num_attention_heads = 2'
for m in llama gpt2; do
    config none
    sed -i "s|folder = [^ ]*|network = \"$m\"  $sizes  vocab_size = 96  max_position_embeddings = 8|; /^lora/d" lm.conf
    save=bf16
    [ "$m" = llama ] || save=fp32
    trains "made-$m" threads -c lm.conf --steps 1 --learning-rate 0 -o model.save_dtype=$save
    cp -r "made-$m/model" "$aside/$m"
done
# peak_of FILE OPTIONS..., peak OPTIONS...: bytes of the first rank by plan; on_disk: of weights on disk
peak_of() { "$mpstaged" --plan --json -c "$@" | sed -n 's/.*"peak_bytes": \([0-9]*\).*/\1/p' | head -n 1; }
peak() { peak_of lm.conf "$@"; }
on_disk() { "$mpstaged" -c lm.conf --plan --json "$@" | sed -n 's/.*"outside_bytes": \([0-9]*\).*/\1/p' |
    awk '{ n += $1 } END { print n + 0 }'; }
tiers() { echo "-o pipeline.disk=disk -o pipeline.max_memory=$1"; }
losses() { sed -n 's/.*"event":"step".*"loss_bits":"\([^"]*\)".*/\1/p' "$1/metrics.jsonl" | tr '\n' ' '; }
ids() { sed -n 's/.*"ids":\[\([-0-9,]*\)\].*/\1/p' "$aside/out"; }

# ---- the same bits ---------------------------------------------------------------------------------------------------
# same TEXT RANKS OPTIONS...: adapters as those of $want
same() {
    same_text=$1 same_ranks=$2; shift 2
    rm -rf same
    job "$same_ranks" -c lm.conf --run-dir same "$@"
    [ "$code" -eq 0 ] || why
    equal "$same_text: the same adapters" "$(hash_of same 2>/dev/null || echo "status $code")" "$want"
}
for m in llama gpt2; do
    config "$m"
    trains "$m" threads -c lm.conf
    want=$hash all=$(peak)
    less=$((all * 3 / 4))
    check "$m: a limit of $less bytes needs files" [ "$(on_disk $(tiers $less))" -gt 0 ]
    check "$m: with them it fits" [ "$(peak $(tiers $less))" -le "$less" ]
    equal "$m: stages have even bytes, unless uniform is asked for" "$(peak $(tiers $less))" \
        "$(peak $(tiers $less) -o pipeline.partition=balanced)"
    equal "$m: within $all bytes nothing is on disk" "$(on_disk $(tiers "$all"))" 0
    same "$m on disk" threads $(tiers $less)
    check "$m: its row gives up slots and fills them again" sh -c '"$@" | grep -q "EW [0-9]*LW"' sh \
        "$mpstaged" -c lm.conf --plan --json $(tiers $less)
    same "$m, an own number of stages" threads $(tiers $less) --stages 5 -o pipeline.ranks=1
    same "$m, recomputed" threads $(tiers $less) -o pipeline.recompute=all
    same "$m, one micro-batch at a time" threads $(tiers $less) -o pipeline.in_flight=1
    same "$m on disk, because of the texts between steps" threads $(tiers $((all * 8 / 5))) -o generate.every_steps=2
    check "$m: and only because of them" [ "$(on_disk $(tiers $((all * 8 / 5))))" -eq 0 ]
    half=$(peak -o pipeline.ranks=2 --stages 2)
    same "$m on two ranks" 2 $(tiers $((half * 7 / 8)))
    same "$m on two ranks, one of little memory" 2 $(tiers "{$((half * 5 / 4)),$((half * 3 / 4))}")
    same "$m on two ranks, the other" 2 $(tiers "{$((half * 3 / 4)),$((half * 5 / 4))}")
    rm -rf part
    job threads -c lm.conf --run-dir part --steps 3 -o checkpoint.every_steps=3 $(tiers $less)
    job threads -c lm.conf --run-dir part --resume -o checkpoint.every_steps=3
    equal "$m: half of it on disk, resumed in memory" "$(hash_of part | tail -n 1)" "$want"
    job threads -c lm.conf --run-dir part-8 --steps 2 -o model.load_in_8bit=yes
    now=$(losses part-8)
    eight=$(peak -o model.load_in_8bit=yes)
    job threads -c lm.conf --run-dir part-9 --steps 2 -o model.load_in_8bit=yes $(tiers $((eight * 9 / 10)))
    equal "$m: codes on disk" "$(losses part-9)" "$now"
done
# Measured with files, and planned with what was measured.
job threads -c lm.conf --run-dir measured --profile $(tiers "$less")
[ "$code" -eq 0 ] || why
check "a profile has the disk's time" grep -q '"disk_ns_per_byte": [0-9.]*[1-9]' measured/profile.json
job 1 -c lm.conf --plan -o pipeline.profile=measured/profile.json $(tiers "$less")
[ "$code" -eq 0 ] || why
check "a plan by it" grep -q "lie on disk" "$aside/out"
# of ARGUMENTS...: what came out, in file $out
of() {
    rm -rf run
    job threads -c plain.conf --run-dir run --init-from "$aside/$m" "$@"
    case $what in
        evaluate) sed -n 's/.*"event":"evaluation".*"loss_bits":"\([^"]*\)".*/\1/p' run/metrics.jsonl >"$out" ;;
        predict) cat "$aside/p.npy" >"$out" 2>/dev/null || true ;;
        texts) ids >"$out" ;;
    esac
}
for m in llama gpt2; do
    config $m
    sed '/^lora/d' lm.conf >plain.conf
    limit=2000000                                          # its weights take 2.7 MB
    [ $m != llama ] || limit=1300000                       # 1.4 MB
    for what in evaluate predict texts; do
        case $what in
            evaluate) set -- --evaluate ;;
            predict) set -- --predict "$aside/p.npy" ;;
            texts) set -- --generate - ;;
        esac
        job threads -c plain.conf --run-dir run --init-from "$aside/$m" "$@" -o pipeline.max_memory=$limit
        equal "$m, $what: without files $limit bytes are too few" "$code" 78
        out=$aside/$m-$what-all
        of "$@"
        out=$aside/$m-$what-disk
        of "$@" $(tiers $limit)
        [ "$code" -eq 0 ] || why
        check "$m, $what: something came out" [ -s "$aside/$m-$what-all" ]
        check "$m, $what: the same bits from disk" cmp -s "$aside/$m-$what-all" "$aside/$m-$what-disk"
    done
done
# Frozen weights of the run's own are in its checkpoints. A thread reads them from disk while steps use the slots, if
# they are more than is copied first (4 MiB).
config none
sed "s|folder = [^ ]*|network = \"llama\"  $sizes  vocab_size = 96  max_position_embeddings = 8|; /^lora/d
    s/hidden_size = 128  intermediate_size = 256/hidden_size = 256  intermediate_size = 512/" lm.conf >own.conf
freezes='train.freeze={"model.layers.0*","model.layers.1*","model.layers.2*"}'
whole() { job threads -c own.conf -o "$freezes" -o checkpoint.every_steps=1 -o checkpoint.keep=6 "$@"; }
files() { (cd "$1/checkpoints" && cat step-*/*.safetensors | cksum); }
whole --run-dir own
want=$(hash_of own) all=$(peak_of own.conf -o "$freezes")
whole --run-dir own-disk $(tiers $((all * 9 / 10)))
[ "$code" -eq 0 ] || why
equal "the weights of a run with frozen ones on disk" "$(hash_of own-disk)" "$want"
check "its checkpoints are the same" [ "$(files own)" = "$(files own-disk 2>/dev/null)" ]
rm -rf own-disk
whole --run-dir own-disk --steps 3 $(tiers $((all * 9 / 10)))
whole --run-dir own-disk --resume $(tiers $((all * 9 / 10)))
equal "resumed from such checkpoints, on disk" "$(hash_of own-disk | tail -n 1)" "$want"
equal "nothing stays in the folder" "$(find disk -type f | wc -l)" 0

# ---- random networks under limits ------------------------------------------------------------------------------------
# Adapters beside decoders of random sizes, with random limits and as little address space: each run fits, or is
# refused before it begins. What a rank holds is what the plan says.
space_of() { (ulimit -v "$1"; "$mpstaged" --transport local -c small.conf --run-dir small --overwrite) >/dev/null 2>&1
}
config llama
cp lm.conf small.conf
least=65536 enough=8388608                                 # KiB of a run that needs nearly nothing
while [ $((enough - least)) -gt 4096 ]; do
    middle=$(((least + enough) / 2))
    if space_of $middle; then enough=$middle; else least=$middle; fi
done
ran=0 refused=0 killed='' wrong='' n=0
awk -v n="$([ -z "${LONG:-}" ] && echo 8 || echo 200)" 'function draw(a, b) { return a + int(rand() * (b - a + 1)) }
    BEGIN { srand(7); while (n--) print draw(1, 6), draw(2, 10), draw(160, 4000), draw(8, 64), draw(1, 6), draw(1, 8),
        draw(0, 1) ? "llama" : "gpt2", draw(0, 2) ? "none" : "all", draw(45, 110) }' >"$aside/networks"
while read -r heads layers vocab points batch rank m recompute percent; do
    n=$((n + 1))
    config none
    cat >random.conf <<END
model    { network = "$m"  hidden_size = $((64 * heads))  intermediate_size = $((128 * heads))
           num_hidden_layers = $layers  num_attention_heads = $heads  vocab_size = $vocab
           max_position_embeddings = 64  input = {$points} }
END
    sed "/^model/d; s/batch_size = 4/batch_size = $batch/; s/rank = 2/rank = $rank/; s/steps = 6/steps = 2/
        s/profile_spread/recompute = \"$recompute\"  profile_spread/" lm.conf >>random.conf
    mv random.conf lm.conf
    all=$(peak)
    limit=$((all / 100 * percent))
    rm -rf random
    code=0
    (ulimit -v $((enough + limit / 1024 + limit / 20480 + 24576))
        exec "$mpstaged" --transport local -c lm.conf --run-dir random $(tiers $limit)) >"$aside/out" 2>"$aside/err" ||
        code=$?
    case $code in
        0) ran=$((ran + 1)) ;;
        78) refused=$((refused + 1)); [ ! -e random ] || wrong="$wrong $n:late"; continue ;;
        *) killed="$killed $n:$code"; cp lm.conf "$aside/killed.conf"; note <"$aside/err"; continue ;;
    esac
    sed -n 's/.*"event":"account".*/&/p' random/metrics.jsonl | grep -o '"bytes":[0-9]*' | cut -d: -f2 | tr '\n' ' ' |
        awk '{ d = $2 - $1; if (d < 0) d = -d; exit !($1 > 0 && (d <= $1 / 20 || d < 4194304)) }' || wrong="$wrong $n"
done <"$aside/networks"
equal "of $n random networks under limits $ran ran and $refused were refused; killed:$killed; wrong bytes:$wrong" \
    "$killed$wrong-" "-"
check "most of them ran" [ "$ran" -gt "$refused" ]

# ---- stages of different sizes ---------------------------------------------------------------------------------------
# Two slots for the largest layer would take more than is saved, so it stays in memory.
cat >uneven.conf <<END
run      { name = "uneven" }
model    { network = "mlp"  classes = 4  input = {64}
           hidden = {512, 512, 64, 512, 64, 512, 64, 512, 64, 512, 64, 512, 64} }
data     { source = "synthetic"  samples = 32 }
train    { batch_size = 4  split_size = 2  steps = 2  learning_rate = 0.01  evaluate = no
           freeze = {"fc2*", "fc3*", "fc4*", "fc5*", "fc6*", "fc7*", "fc8*", "fc9*", "fc10*",
                     "fc11*", "fc12*", "fc13*"} }
pipeline { profile_spread = 1e9 }
END
trains uneven threads -c uneven.conf
all=$(peak_of uneven.conf)
job threads -c uneven.conf --run-dir uneven-disk $(tiers $((all * 8 / 10)))
[ "$code" -eq 0 ] || why
equal "the largest layer in memory, others on disk" "$(hash_of uneven-disk 2>/dev/null || echo "$code")" "$hash"

# ---- a disk with faults ----------------------------------------------------------------------------------------------
# From the readers' N-th read of model.safetensors on (FAULT_AT): it is cut off, gets another byte, fails, or is slow.
cat >"$aside/fault.c" <<'END'
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
int openat(int dir, const char *path, int flags, ...)      // no files without names
{
    va_list more;
    va_start(more, flags);
    const int mode = va_arg(more, int);
    va_end(more);
    int (*next)(int, const char *, int, ...) = dlsym(RTLD_NEXT, "openat");
    if (!getenv("FAULT") || strcmp(getenv("FAULT"), "named") || (flags & O_TMPFILE) != O_TMPFILE)
        return next(dir, path, flags, mode);
    errno = EOPNOTSUPP;
    return -1;
}
ssize_t pread(int fd, void *p, size_t n, off_t at)
{
    static atomic_int reads;
    char link[40], path[400] = "";
    const char *fault = getenv("FAULT"), *from = getenv("FAULT_AT");
    ssize_t (*next)(int, void *, size_t, off_t) = dlsym(RTLD_NEXT, "pread");
    snprintf(link, sizeof link, "/proc/self/fd/%d", fd);
    const ssize_t k = readlink(link, path, sizeof path - 1);
    if (k <= 0 || !fault || !strstr(path, "model.safetensors") || ++reads < atoi(from)) return next(fd, p, n, at);
    if (!strcmp(fault, "slow")) usleep(20000);
    if (!strcmp(fault, "fails")) { errno = EIO; return -1; }
    if (!strcmp(fault, "cut") && truncate(path, 3000)) abort();
    if (!strcmp(fault, "other")) {
        const int own = open(path, O_WRONLY | O_APPEND);
        if (own < 0 || write(own, "x", 1) != 1) abort();
        close(own);
    }
    return next(fd, p, n, at);
}
END
if ! cc -shared -fPIC -o "$aside/fault.so" "$aside/fault.c" 2>"$aside/cc" || [ -n "${SANITIZED:-}" ]; then
    skip "a disk with faults" "no compiler, or sanitizers"
else
    config llama
    limit=$(($(peak) * 3 / 4))
    # Of two readers, one may find the end and the other that the file has changed.
    for case in 'cut 65 \(the file ends here\|it has changed since\)' \
        "other 65 it has changed since" "fails 74 offset.*cannot read"; do
        set -- $case
        fault=$1 status=$2; shift 2
        rm -rf "$aside/bad" bad
        cp -r "$aside/llama" "$aside/bad"
        export FAULT="$fault" FAULT_AT=60
        LD_PRELOAD=$aside/fault.so job 1 -c lm.conf --run-dir bad -o model.folder="$aside/bad" $(tiers "$limit")
        check "a file that is $fault: $status, in a line" \
            [ "$code/$(our_lines)/$(grep -c "^mpstaged: .*$*" "$aside/err")" = "$status/1/1" ]
        [ "$code" -eq "$status" ] || why
    done
    export FAULT=slow FAULT_AT=1
    rm -rf slow
    LD_PRELOAD=$aside/fault.so job 1 -c lm.conf --run-dir slow --steps 3 $(tiers "$limit")
    waits=$(sed -n 's/.*"weights_wait_seconds":\([0-9.]*\).*/\1/p' slow/metrics.jsonl | tail -n 1)
    check "a slow disk is waited for: $waits s of a step" awk -v w="${waits:-0}" 'BEGIN { exit !(w > 0.02) }'
    # Where a file system has no files without names, the ranks' own lose their names at once.
    config gpt2
    trains kept threads -c lm.conf --steps 2
    limit=$(($(peak) * 3 / 4))
    export FAULT=named
    LD_PRELOAD=$aside/fault.so job 1 -c lm.conf --run-dir named --steps 2 $(tiers "$limit")
    [ "$code" -eq 0 ] || why
    equal "a file that has a name at first" "$(hash_of named 2>/dev/null || echo "status $code")" "$hash"
    equal "it leaves nothing" "$(find disk -type f | wc -l)" 0
    unset FAULT FAULT_AT
fi

# ---- what does not fit -----------------------------------------------------------------------------------------------
config llama
refused "a limit below what files can help" 78 "pipeline.max_memory.*needs" threads -c lm.conf --run-dir none \
    $(tiers 1000)
limit=$(($(peak) * 3 / 4))
refused "without a folder: what a folder would do" 78 'it would fit with pipeline.disk = "FOLDER"' threads -c lm.conf \
    --run-dir none -o pipeline.max_memory="$limit"
refused "one stage a rank" 78 'it would fit with pipeline.schedule = "breadth-first"' threads -c lm.conf \
    --run-dir none -o pipeline.schedule=1f1b $(tiers "$limit")
refused "texts between steps" 78 'it would fit with generate.every_steps = 0' threads -c lm.conf \
    --run-dir none -o generate.every_steps=2 $(tiers "$limit")
write_conf packed.conf 's/"toy"  classes = 5  input = {10}/"resnet18"  classes = 5  input = {3, 8, 8}/
    s/labels = "onehot"  //; s/loss = "mse"  /freeze = {"layer*"}  /'
limit=$(peak_of packed.conf)
refused "weights that kernels keep packed copies of" 78 "pipeline.max_memory.*rank 1 needs" threads \
    -c packed.conf --run-dir none $(tiers $((limit * 9 / 10)))
config gpt2
limit=$(($(peak) * 3 / 4))
job 1 -c lm.conf --check-config -o pipeline.disk=nowhere -o pipeline.max_memory="$limit"
check "no such folder, by --check-config" \
    [ "$code/$(grep -c '^mpstaged: pipeline.disk: nowhere/' "$aside/err")" = 73/1 ]
refused "no such folder" 73 "pipeline.disk: nowhere" threads -c lm.conf --run-dir none -o pipeline.disk=nowhere/at/all \
    -o pipeline.max_memory="$limit"
tap_done
