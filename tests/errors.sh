#!/bin/sh
# errors.sh: whatever is wrong with the input, two ranks say it in one line that names file and place,
# end with the documented code and leave nothing.
set -eu
. "$(dirname -- "$0")/mpi_lib.sh"

# ---- configuration ---------------------------------------------------------------------------------------------------
# conf_refused TEXT PATTERN SED-SCRIPT
conf_refused() {
    write_conf bad.conf "$3"
    refused "$1" 78 "$2" 2 -c bad.conf --run-dir run
}
conf_refused "unclosed section" '^mpstaged: bad\.conf:[0-9]+: ' '$s/}//'
conf_refused "NaN" '^mpstaged: bad\.conf:4: .*learning_rate' 's/learning_rate = 0.1/learning_rate = nan/'
conf_refused "unknown key" '^mpstaged: bad\.conf:4: .*colour' 's/split_size/colour = 3  split_size/'
conf_refused "unknown section" '^mpstaged: bad\.conf:4: .*cheese' 's/^train /cheese /'
conf_refused "value out of range" '^mpstaged: bad\.conf:4: .*batch_size' 's/batch_size = 20/batch_size = 0/'
conf_refused "integer of 20 digits" '^mpstaged: bad\.conf:4: .*steps' 's/steps = 3/steps = 99999999999999999999/'
conf_refused "unknown schedule" '^mpstaged: bad\.conf:5: .*sometimes' 's/1f1b/sometimes/'
conf_refused "unknown network" '^mpstaged: bad\.conf:2: .*brain' 's/"toy"  classes/"brain"  classes/'
manual='s/partition = "uniform"  stages = 2/partition = "manual"'
conf_refused "unknown layer" '^mpstaged: bad\.conf:5: .*nowhere' "$manual"' stage { first = "nowhere" last = "fc2" }/'
write_conf good.conf
conf_refused "stages that do not cover the model" '^mpstaged: bad\.conf:5: layer "[^"]+" belongs to no stage' \
    "$manual"' stage { first = "net1" last = "net1" }/'
stages='stage { first = "conv1" last = "layer1.0.bn3" } stage { first = "layer1.0.downsample.0" last = "fc" }'
write_conf bad.conf \
    's/network = "toy"  classes = 5  input = {10}/network = "resnet50"  classes = 5  input = {3, 32, 32}/
    s/labels = "onehot"/labels = "class"/; s/loss = "mse"/loss = "cross_entropy"/
    '"$manual  $stages/"
order='its kernel runs in another order with that of "layer1\.0\.bn3"; '
refused "a cut that kernels cannot follow" 78 \
    '^mpstaged: bad\.conf:5: cannot cut before "layer1\.0\.downsample\.0": '"$order" 2 -c bad.conf --run-dir run
conf_refused "wrong model input" '^mpstaged: bad\.conf:2: .*input' 's/input = {10}/input = {0}/'
head -c 4096 "$mpstaged" >bad.conf
refused "binary garbage" 78 '^mpstaged: bad\.conf:[0-9]+: ' 2 -c bad.conf --run-dir run
: >bad.conf
refused "empty configuration" 78 '^mpstaged: bad\.conf(:[0-9]+)?: ' 2 -c bad.conf --run-dir run
refused "missing configuration" 66 '^mpstaged: none\.conf: ' 2 -c none.conf --run-dir run
refused "a directory as configuration" 78 '^mpstaged: \.: ' 2 -c . --run-dir run
iconv -t UTF-16 good.conf >bad.conf
refused "UTF-16 as configuration" \
    78 '^mpstaged: bad\.conf: this is UTF-16 text, .*: save it as UTF-8$' 2 -c bad.conf --run-dir run
marked() { { printf '\357\273\277'; cat "$1"; } >"marked.$1"; }
marked good.conf
printf 'rank 0: 0F0 0F1 0F2 0B0 0W0 0B1 0W1 0B2 0W2\nrank 1: 1F0 1B0 1W0 1F1 1B1 1W1 1F2 1B2 1W2\n' >good.rows
marked good.rows
"$mpstaged" -c good.conf --print-graph >good.graph
marked good.graph
{ sed /^model/d good.conf; echo 'model { graph = "marked.good.graph" }'; } >graph.conf
marked graph.conf
check "a byte order mark before configuration, graph text and rows passes" \
    "$mpstaged" -c marked.graph.conf --check-config -o pipeline.schedule=rows -o pipeline.rows=marked.good.rows
refused "more ranks than stages" 78 '3 ranks for 2 stages' 3 -c good.conf --run-dir run
refused "too many stages" 78 'stage' 2 -c good.conf --stages 100 --run-dir run

# ---- schedule files --------------------------------------------------------------------------------------------------
printf 'rank 0: 0F0 0F1\n# \000 rank 1: 1F0\n' >nul.rows
refused "a NUL byte in a schedule file" 65 '^mpstaged: nul\.rows:2: .*NUL byte' \
    2 -c good.conf -o pipeline.schedule=rows -o pipeline.rows=nul.rows
printf 'rank 0: 0F0 0F1\nrank 1: 1F0 cheese\n' >word.rows
refused "no action in a schedule file" 65 '^mpstaged: word\.rows:2: "cheese"' 2 -c good.conf -o pipeline.schedule=rows \
    -o pipeline.rows=word.rows
refused "the same under a cut that is simulated" 65 '^mpstaged: word\.rows:2: "cheese"' 2 -c good.conf \
    -o pipeline.schedule=rows -o pipeline.rows=word.rows -o pipeline.partition=auto

# ---- command line ----------------------------------------------------------------------------------------------------
refused "unknown option" 64 'unknown.*--colour' 2 -c good.conf --colour
refused "option without its value" 64 '--steps needs' 2 -c good.conf --steps
refused "no configuration" 64 'stage-config' 2 --steps 3
refused "stray argument" 64 'unexpected argument stray' 2 -c good.conf stray
refused "unknown setting" 64 'train\.colour' 2 -c good.conf -o train.colour=3
refused "bad override" 78 'train\.steps' 2 -c good.conf -o train.steps=three
refused "evaluate without weights" 64 '--evaluate needs --init-from' 2 -c good.conf --evaluate
refused "a device that is not there" 69 'run\.device = "cuda": ' 2 -c good.conf --device cuda
refused "a precision that the device does not compute in" 78 'precision: bf16 is for GPUs' \
    2 -c good.conf --device cpu --precision bf16

# ---- run directory ---------------------------------------------------------------------------------------------------
: >plain
refused "run directory below a file" 73 'plain' 2 -c good.conf --run-dir plain/run
refused "a file as run directory" 73 'plain' 2 -c good.conf --run-dir plain
job 2 -c good.conf --run-dir run
check "toy trains" [ "$code" -eq 0 ]
[ "$code" -eq 0 ] || why
cp -r run kept
refused "results of an earlier run" 73 \
    '^mpstaged: run: .*\(weights.safetensors\); use --overwrite or another --run-dir$' 2 -c good.conf --run-dir run
check "results of an earlier run are untouched" diff -r run kept
mkdir -p fresh/checkpoints/lost+found
trains fresh 2 -c good.conf
mkdir -p kept-only/checkpoints/step-00000003
refused "checkpoints of an earlier run" 73 \
    '^mpstaged: kept-only: holds the results .* run \(checkpoints\); use --resume,' 2 -c good.conf --run-dir kept-only
job 2 -c good.conf --run-dir run --overwrite
check "--overwrite replaces them" [ "$code" -eq 0 ]
refused "weights to start from that would be removed" 73 'run/weights.safetensors: --overwrite' \
    2 -c good.conf --run-dir run --overwrite --init-from run/weights.safetensors
refused "the same, by their run directory" 73 '^mpstaged: run: --overwrite would remove' \
    2 -c good.conf --run-dir run --overwrite --init-from run
check "they are still there" [ -s run/weights.safetensors ]
mkdir foreign && cp run/weights.safetensors foreign
refused "somebody's weights in the run directory" 73 '^mpstaged: foreign: .*weights.safetensors' \
    2 -c good.conf --run-dir foreign
check "they are still there" cmp foreign/weights.safetensors run/weights.safetensors
rm -r foreign
refused "gradients into a folder that is not there" 73 '^mpstaged: none/g' \
    2 -c good.conf --run-dir new --dump-gradients none/g
refused "a trace over the weights" 73 'write over a file of the run' \
    2 -c good.conf --run-dir new --trace new/weights.safetensors

# ---- weights ---------------------------------------------------------------------------------------------------------
weights=kept/weights.safetensors
size=$(wc -c <"$weights")
refused "missing weights" 66 'none\.safetensors' 2 -c good.conf --init-from none.safetensors --run-dir new
head -c $((size - 7)) "$weights" >cut.safetensors
refused "truncated weights" 65 '^mpstaged: cut\.safetensors: ' 2 -c good.conf --init-from cut.safetensors --run-dir new
{ printf '\377\377\377\377\377\377\377\177'; tail -c +9 "$weights"; } >lie.safetensors
refused "weights with a lying header" 65 '^mpstaged: lie\.safetensors: ' \
    2 -c good.conf --init-from lie.safetensors --run-dir new
LC_ALL=C sed '1s/\[10,10\]/[10,90]/' "$weights" >lie.safetensors
refused "weights with a lying shape" 65 '^mpstaged: lie\.safetensors: ' \
    2 -c good.conf --init-from lie.safetensors --run-dir new
LC_ALL=C sed '1s/\.weight"/.veight"/' "$weights" >other.safetensors
refused "weights without a tensor" 65 '^mpstaged: other\.safetensors: .*weight.* missing' \
    2 -c good.conf --init-from other.safetensors --run-dir new
refused "weights of another width" 65 '^mpstaged: kept/weights\.safetensors: .*shape' \
    2 -c good.conf -o model.classes=4 \
    --init-from "$weights" --run-dir new
head -c 4096 "$mpstaged" >garbage.safetensors
refused "garbage as weights" 65 '^mpstaged: garbage\.safetensors: ' \
    2 -c good.conf --init-from garbage.safetensors --run-dir new
: >empty.safetensors
refused "empty weights" 65 '^mpstaged: empty\.safetensors: ' 2 -c good.conf --init-from empty.safetensors --run-dir new

# ---- data ------------------------------------------------------------------------------------------------------------
# Two IDX files: 30 images of 4 x 4 and their labels.
zeros() { head -c "$1" /dev/zero; }
{ printf '\0\0\010\003\0\0\0\036\0\0\0\004\0\0\0\004'; zeros 480; } >images.idx
{ printf '\0\0\010\001\0\0\0\036'; zeros 30; } >labels.idx
synthetic='source = "synthetic"  labels = "onehot"  samples = 200'
write_conf idx.conf "s/$synthetic"'/source = "idx" train = "images.idx" train_labels = "labels.idx"/
    s/network = "toy"  classes = 5  input = {10}/network = "mlp" hidden = {8} classes = 5 input = {1, 4, 4}/
    s/loss = "mse"/loss = "cross_entropy"/'
job 2 -c idx.conf --run-dir idx-run
check "IDX files train" [ "$code" -eq 0 ]
[ "$code" -eq 0 ] || why
head -c 100 images.idx >cut.idx
refused "truncated IDX" 65 '^mpstaged: cut\.idx: ' 2 -c idx.conf -o data.train=cut.idx --run-dir new
{ printf '\0\0\010\003\377\377\377\177\0\0\0\004\0\0\0\004'; zeros 480; } >lie.idx
refused "lying IDX" 65 '^mpstaged: lie\.idx: ' 2 -c idx.conf -o data.train=lie.idx --run-dir new
refused "missing IDX" 66 '^mpstaged: none\.idx: ' 2 -c idx.conf -o data.train=none.idx --run-dir new
head -c 4096 "$mpstaged" >garbage.idx
refused "garbage as IDX" 65 '^mpstaged: garbage\.idx: ' 2 -c idx.conf -o data.train=garbage.idx --run-dir new
{ printf '\0\0\010\001\0\0\0\036'; head -c 30 /dev/zero | tr '\0' '\011'; } >nine.idx
refused "a label beyond the classes" 65 '^mpstaged: nine\.idx: ' \
    2 -c idx.conf -o data.train_labels=nine.idx --run-dir new
{ printf '\0\0\010\001\0\0\0\035'; zeros 29; } >fewer.idx
refused "images and labels of different number" 65 '^mpstaged: (fewer|images)\.idx: ' \
    2 -c idx.conf -o data.train_labels=fewer.idx --run-dir new
# NumPy: 20 samples of 10 floats, 20 targets of 5.
npy() { # FILE DTYPE SHAPE BYTES
    header="{'descr': '$2', 'fortran_order': False, 'shape': ($3), }"
    while [ $(((10 + ${#header} + 1) % 64)) -ne 0 ]; do header="$header "; done
    { printf '\223NUMPY\001\000'; printf "\\$(printf %03o $((${#header} + 1)))\\000";
        printf '%s\n' "$header"; zeros "$4"; } >"$1"
}
npy x.npy '<f4' '20, 10' 800
npy y.npy '<f4' '20, 5' 400
files='source = "npy" labels = "vector" train = "x.npy" train_labels = "y.npy"'
write_conf npy.conf "s/$synthetic/$files/"
job 2 -c npy.conf --run-dir npy-run
check "NumPy files train" [ "$code" -eq 0 ]
[ "$code" -eq 0 ] || why
refused "a batch larger than the data" 78 '--batch-size: 21 is larger than the number of training samples, 20, so ' \
    2 -c npy.conf --batch-size 21 -o train.last_batch=drop --run-dir new
refused "more samples than the file has" 78 'data.samples=500: 500 samples, but x.npy has 20$' \
    2 -c npy.conf -o data.samples=500 --run-dir new
npy nan.npy '<f4' '20, 10' 0
head -c 800 /dev/zero | tr '\0' '\377' >>nan.npy              # 0xffffffff is a NaN with a sign
job 2 -c npy.conf -o data.train=nan.npy --run-dir nan
check "NaN among the samples: 79, and its sign is not shown" \
    sh -c '[ "$0" -eq 79 ] && grep -q "step 1/3.*loss nan" nan/mpstaged.log' "$code"
[ "$code" -eq 79 ] || why
# Test samples: 30, the last 10 of them NaN, in batches of 20.
npy test.npy '<f4' '30, 10' 800
head -c 400 /dev/zero | tr '\0' '\377' >>test.npy
npy test-y.npy '<f4' '30, 5' 600
write_conf test.conf "s/$synthetic/$files"' test = "test.npy" test_labels = "test-y.npy"/'
nan='evaluation: the loss of 1 of 2 batches is not finite, first of batch 2; '
nan=$nan'look for NaN and very large values in the test data'
job 2 -c test.conf --run-dir tested
# shellcheck disable=SC2016
check "NaN among the test samples: a run trains and says it" \
    sh -c '[ "$0" -eq 0 ] && [ -s tested/weights.safetensors ] && grep -qF "note: $1" tested/mpstaged.log &&
        grep -q "\"event\":\"evaluation\".*\"loss\":null" tested/metrics.jsonl' "$code" "$nan"
[ "$code" -eq 0 ] || why
job 2 -c test.conf --run-dir tested-only --evaluate --init-from tested
# shellcheck disable=SC2016
check "one that only evaluates fails: 79" sh -c '[ "$0" -eq 79 ] && [ "$2" -eq 1 ] && grep -qxF "mpstaged: $1" "$3" &&
        grep -q "\"event\":\"failed\",\"code\":79" tested-only/metrics.jsonl' "$code" "$nan" "$(our_lines)" "$aside/err"
head -c 300 x.npy >cut.npy
refused "truncated npy" 65 '^mpstaged: cut\.npy: ' 2 -c npy.conf -o data.train=cut.npy --run-dir new
npy lie.npy '<f4' '2000000000, 2000000000' 800
refused "lying npy" 65 '^mpstaged: lie\.npy: ' 2 -c npy.conf -o data.train=lie.npy --run-dir new
npy wide.npy '<f4' '20, 40' 3200
refused "npy of another shape" 65 '^mpstaged: wide\.npy: ' 2 -c npy.conf -o data.train=wide.npy --run-dir new
npy object.npy '|O' '20, 10' 800
refused "npy of another type" 65 '^mpstaged: object\.npy: ' 2 -c npy.conf -o data.train=object.npy --run-dir new
refused "missing npy" 66 '^mpstaged: none\.npy: ' 2 -c npy.conf -o data.train_labels=none.npy --run-dir new

# ---- limits ----------------------------------------------------------------------------------------------------------
# limited TEXT CODE LIMIT PATTERN OPTIONS...: one process under that limit: one line, nothing created
limited() {
    limited_text=$1 limited_code=$2 limited_limit=$3 limited_pattern=$4 code=0; shift 4
    rm -rf new
    sh -c "ulimit $limited_limit; exec \"\$@\"" sh "$mpstaged" -c good.conf --run-dir new "$@" \
        >"$aside/out" 2>"$aside/err" </dev/null || code=$?
    if [ "$code" -eq "$limited_code" ] && [ "$(grep -c . "$aside/err")" -eq 1 ] &&
        grep -qE "^mpstaged: $limited_pattern" "$aside/err" && [ ! -e new ]; then ok "$limited_text: $code"
    else { echo "code $code"; cat "$aside/err"; } | note; not_ok "$limited_text"; fi
}
# From 5 on: below that the program itself does not start.
for n in 5 8 12 16 24 40 60; do
    limited "room for $n files" 71 "-n $n" "the limit of open files, $n \\(ulimit -n\\), is too low: "
done
# Stacks larger than all addresses.
limited "room for no thread" 71 "-s 214748364800" "cannot create a thread"
code=0; sh -c 'ulimit -Sn 16; exec "$@"' sh "$mpstaged" -c good.conf --run-dir new \
    >"$aside/out" 2>"$aside/err" </dev/null || code=$?
check "a soft limit of 16 is raised" [ "$code" -eq 0 -a -s new/weights.safetensors ]
rm -rf new
# As ranks of mpirun: what it opens itself is not limited. Room for what a rank of a run has open, and for 8 more.
mpirun_n 2 "$mpstaged" -c good.conf --steps 100000000 --run-dir new >"$aside/out" 2>"$aside/err" \
    </dev/null & launcher=$!
for _ in $(seq 200); do ! grep -qs '"step":1,' new/metrics.jsonl || break; sleep 0.05; done
pids=$(ranks_alive) room=0
for p in $pids; do n=$(find "/proc/$p/fd" -mindepth 1 | wc -l); [ "$room" -gt 0 -a "$room" -le "$n" ] || room=$n; done
room=$((room + 8))
"$mpstagectl" new stop --wait >"$aside/out"; wait "$launcher" || true
rm -rf new
printf '#!/bin/sh\n[ "${OMPI_COMM_WORLD_RANK:-$PMIX_RANK}" != "$1" ] || ulimit -n "$2"; shift 2; exec "$@"\n' >few
chmod +x few
for rank in 0 1; do
    code=0; mpirun_n 2 ./few $rank "$room" "$mpstaged" -c good.conf --run-dir new \
        >"$aside/out" 2>"$aside/err" </dev/null || code=$?
    check "room for $room files in rank $rank: $code" \
        sh -c '[ "$0" -eq 71 -a "$1" -eq 1 -a ! -e new ] || { cat "$2"; false; }' "$code" "$(our_lines)" "$aside/err"
    rm -rf new
done
code=0; sh -c 'ulimit -f 4; exec "$@"' sh "$mpstaged" -c good.conf --steps 100 --run-dir new \
    >"$aside/out" 2>"$aside/err" </dev/null || code=$?
check "files that may not grow beyond 4 blocks: $code" \
    sh -c '[ "$0" -eq 74 ] && grep -q "^mpstaged: new/metrics.jsonl: File too large" "$1"' "$code" "$aside/err"
rm -rf new
# Ranks that are threads have one limit: what each of them reads must not add up.
# Reading takes so long here that they would all be at it.
cat >"$aside/slow.c" <<'END'
#define _GNU_SOURCE
#include <dlfcn.h>
#include <unistd.h>
ssize_t pread(int fd, void *p, size_t n, off_t at)
{
    ssize_t (*next)(int, void *, size_t, off_t) = dlsym(RTLD_NEXT, "pread");
    usleep(5000);
    return next(fd, p, n, at);
}
END
awk 'BEGIN { print "graph chain\ninput input 8\nlabels labels class"; x = "input"
    for (i = 0; i < 110; i++) { printf "fc%d = linear(%s) features=8\n", i, x; x = "fc" i }
    print "loss = softmax_cross_entropy(" x ", labels)\nloss loss" }' >chain.graph
printf '%s\n' 'model { graph = "chain.graph" }' 'data { source = "synthetic" }' 'train { batch_size = 4 steps = 1 }' \
    'pipeline { partition = "uniform" }' >chain.conf
if ${CC:-cc} -shared -fPIC -o "$aside/slow.so" "$aside/slow.c" -ldl 2>"$aside/err"; then
    "$mpstaged" -c chain.conf --transport local --stages 1 --run-dir one >"$aside/out" 2>"$aside/err" </dev/null || why
    code=0; sh -c 'ulimit -n 80; LD_PRELOAD=$0 exec "$@"' "$aside/slow.so" "$mpstaged" -c chain.conf --transport local \
        --stages 100 --init-from one --run-dir new \
        >"$aside/out" 2>"$aside/err" </dev/null || code=$?
    check "100 ranks as threads read weights in turn: $code" \
        sh -c '[ "$0" -eq 0 ] || { cat "$1"; false; }' "$code" "$aside/err"
    rm -rf new one
else skip "100 ranks as threads read weights in turn" "no C compiler"; fi

# ---- a scheduler that cannot begin -----------------------------------------------------------------------------------
# The system refuses one call; what was made is gone again.
refusing() {
    printf '#include <errno.h>\nint %s(void) { errno = %s; return -1; }\n' "$1" "$2" >"$aside/refuse.c"
    rm -rf new
    ${CC:-cc} -shared -fPIC -o "$aside/refuse.so" "$aside/refuse.c" 2>"$aside/err" ||
        { skip "$1 refused" "no C compiler"; return 0; }
    code=0; LD_PRELOAD=$aside/refuse.so "$mpstaged" -c good.conf --transport local --run-dir new/run \
        -o service.tensorboard=yes >"$aside/out" 2>"$aside/err" </dev/null || code=$?
    check "$1 refused: $code" sh -c '[ "$0" -eq "$1" ] && [ "$(cat "$2")" = "$3" ] && [ ! -e new ] ||
            { cat "$2"; false; }' "$code" "$3" "$aside/err" "$4"
}
refusing epoll_create1 EMFILE 71 "mpstaged: event loop: too many open files"
if [ -e "$aside/refuse.so" ]; then
    "$mpstaged" -c good.conf --transport local --run-dir again >"$aside/out" 2>&1 </dev/null
    cp again/weights.safetensors "$aside/kept"
    LD_PRELOAD=$aside/refuse.so "$mpstaged" -c good.conf --transport local --run-dir again \
        --overwrite >"$aside/out" 2>&1 </dev/null || true
    check "weights of an earlier run have their name again" cmp -s again/weights.safetensors "$aside/kept"
    rm -rf again
fi

# ---- batch norm ------------------------------------------------------------------------------------------------------
printf 'input x 10\nn = batch_norm(x)\ny = linear(n) features=5\n' >norm.graph
write_conf norm.conf 's/network = "toy"  classes = 5  input = {10}/graph = "norm.graph"/; s/samples = 200/samples = 21/;
        s/steps = 3/epochs = 1/'
refused "a last batch of one sample" \
    78 '^mpstaged: the last batch of an epoch has 1 sample: batch norm "n" .*; train\.last_batch = "drop" .*$' \
    2 -c norm.conf --run-dir new
refused "a rest of one sample" 78 '^mpstaged: batch norm "n" .*: choose another train\.split_size$' 2 \
    -c norm.conf --split-size 19 --steps 1 --run-dir new

# ---- while running ---------------------------------------------------------------------------------------------------
# A run over an earlier one that fails leaves the earlier weights, under another name;
# those of a run that ends well take their place.
job 2 -c good.conf --run-dir again
old=$(cksum <again/weights.safetensors)
for try in first second; do
    job 2 -c good.conf --steps 50 -o train.learning_rate=1000000 --run-dir again --overwrite
    check "--overwrite by a run that fails: the $try one leaves the earlier weights aside" \
        [ "$code$(cksum <again/weights.safetensors.old)$(ls again/weights.safetensors 2>&1 | grep -c 'No such')" = \
        "79${old}1" ]
done
check "and says so" grep -q 'note: earlier weights stay as weights.safetensors.old' again/mpstaged.log
refused "earlier weights to start from that would be removed" 73 'old: --overwrite would remove' \
    2 -c good.conf --run-dir again --overwrite --init-from again/weights.safetensors.old
job 2 -c good.conf --run-dir again --overwrite --evaluate -o data.test_samples=9 --init-from kept
check "an evaluation leaves them alone" [ "$code$(cksum <again/weights.safetensors.old)" = "0$old" ]
job 2 -c good.conf --run-dir again --overwrite -o run.seed=2
check "they go when new ones are written" \
    [ "$code$(ls again)" = "0$(printf 'lock\nmetrics.jsonl\nmpstaged.log\nweights.safetensors')" ]
check "which are others" [ "$(cksum <again/weights.safetensors)" != "$old" ]
cp again/weights.safetensors again/weights.safetensors.old; job 2 -c good.conf --run-dir again --overwrite
check "nothing of them is left by a run over a run that ended well" [ "$code$(ls again | grep -c old)" = 00 ]

job 2 -c good.conf --steps 50 -o train.learning_rate=1000000 --run-dir wild
wrong=
[ "$code" -eq 79 ] && [ "$(our_lines)" -eq 1 ] && grep -qE '^mpstaged: step [0-9]+: ' "$aside/err" || wrong=yes
[ ! -e wild/weights.safetensors ] && grep -q '"event":"failed","code":79' wild/metrics.jsonl || wrong=yes
grep -qE 'learning_rate, and look for NaN' "$aside/err" && ! grep -q -e '-nan' wild/mpstaged.log || wrong=yes
if [ -z "$wrong" ]; then ok "a loss that is not finite: 79, $took ms"
else why; not_ok "a loss that is not finite: 79 (was $code)"; fi
check "nobody is left" nobody_left
tap_done
