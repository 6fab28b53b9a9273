#!/bin/sh
# errors.sh: whatever is wrong with the input, two ranks say it in one line that names file and place,
# end with the documented code and leave nothing. Of each kind one goes through mpirun, the others have threads as
# ranks. Wrong configurations and command lines, one by one, are in t_conf_wrong.c and t_daemon.c.
set -eu
. "$(dirname -- "$0")/mpi_lib.sh"

# refusals CONF: TEXT, RANKS, CODE, PATTERN and OPTIONS a line of the standard input, with | between them
refusals() {
    refusals_conf=$1
    while IFS='|' read -r row_text row_ranks row_code row_pattern row_options; do
        eval "set -- $row_options"
        refused "$row_text" "$row_code" "$row_pattern" "$row_ranks" -c "$refusals_conf" --run-dir new "$@"
    done
}

# ---- configuration ---------------------------------------------------------------------------------------------------
# conf_refused TEXT RANKS PATTERN SED-SCRIPT
conf_refused() {
    write_conf bad.conf "$4"
    refused "$1" 78 "^mpstaged: bad\.conf:$3" "$2" -c bad.conf --run-dir run
}
write_conf good.conf
conf_refused "unclosed section" 2 '[0-9]+: ' '$s/}//'
conf_refused "unknown network" threads '2: .*brain' 's/"toy"  classes/"brain"  classes/'
manual='s/partition = "uniform"  stages = 2/partition = "manual"'
conf_refused "unknown layer" threads '5: .*nowhere' "$manual"' stage { first = "nowhere" last = "fc2" }/'
conf_refused "stages that do not cover the model" threads '5: .*"relu"' \
    "$manual"' stage { first = "net1" last = "net1" }/'
stages='stage { first = "conv1" last = "layer1.0.bn3" } stage { first = "layer1.0.downsample.0" last = "fc" }'
conf_refused "a cut that kernels cannot follow" threads '5: .*"layer1\.0\.downsample\.0".*"layer1\.0\.bn3"' \
    's/network = "toy"  classes = 5  input = {10}/network = "resnet50"  classes = 5  input = {3, 32, 32}/
    s/labels = "onehot"/labels = "class"/; s/loss = "mse"/loss = "cross_entropy"/
    '"$manual  $stages/"
iconv -t UTF-16 good.conf >bad.conf
refused "UTF-16 as configuration" 78 '^mpstaged: bad\.conf: .*UTF-16.*UTF-8' threads -c bad.conf --run-dir run
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

# ---- schedule files, the command line, the run directory -------------------------------------------------------------
printf 'rank 0: 0F0 0F1\n# \000 rank 1: 1F0\n' >nul.rows
printf 'rank 0: 0F0 0F1\nrank 1: 1F0 cheese\n' >word.rows
: >plain
rows='-o pipeline.schedule=rows -o pipeline.rows'
refusals good.conf <<'END'
a NUL byte in a schedule file|threads|65|^mpstaged: nul\.rows:2: .*NUL|$rows=nul.rows
no action in a schedule file|2|65|^mpstaged: word\.rows:2: "cheese"|$rows=word.rows
the same under a cut that is simulated|threads|65|^mpstaged: word\.rows:2: "cheese"|$rows=word.rows --partition auto
more ranks than stages|3|78|3 ranks.*2 stages|
too many stages|threads|78|stages.*100|--stages 100
unknown option|2|64|--colour|--colour
unknown setting|threads|64|train\.colour|-o train.colour=3
evaluate without weights|threads|64|--evaluate.*--init-from|--evaluate
a device that is not there|2|69|run\.device = "cuda": |--device cuda
a precision that the device does not compute in|threads|78|precision: tf32|--device cpu --precision tf32
run directory below a file|2|73|plain|--run-dir plain/run
a file as run directory|threads|73|plain|--run-dir plain
END
trains run 2 -c good.conf
cp -r run kept
mkdir -p fresh/checkpoints/lost+found kept-only/checkpoints/step-00000003
trains fresh 2 -c good.conf
refusals good.conf <<'END'
results of an earlier run|2|73|^mpstaged: run: .*weights\.safetensors.*--overwrite.*--run-dir|--run-dir run
checkpoints of an earlier run|threads|73|^mpstaged: kept-only: .*checkpoints.*--resume|--run-dir kept-only
END
check "results of an earlier run are untouched" diff -r run kept
job 2 -c good.conf --run-dir run --overwrite
check "--overwrite replaces them" [ "$code" -eq 0 ]
over='--run-dir run --overwrite' w=run/weights.safetensors
mkdir foreign && cp run/weights.safetensors foreign
refusals good.conf <<'END'
weights to start from that would be removed|2|73|^mpstaged: run/weights.safetensors: --over|$over --init-from $w
the same, by their run directory|threads|73|^mpstaged: run: --overwrite|$over --init-from run
somebody's weights in the run directory|threads|73|^mpstaged: foreign: .*weights.safetensors|--run-dir foreign
gradients into a folder that is not there|threads|73|^mpstaged: none/g|--dump-gradients none/g
a trace over the weights|threads|73|new/weights.safetensors|--trace new/weights.safetensors
END
check "all weights are still there" cmp foreign/weights.safetensors run/weights.safetensors
rm -r foreign

# ---- weights ---------------------------------------------------------------------------------------------------------
weights=kept/weights.safetensors
size=$(wc -c <"$weights")
head -c $((size - 7)) "$weights" >cut.safetensors
{ printf '\377\377\377\377\377\377\377\177'; tail -c +9 "$weights"; } >lie.safetensors
LC_ALL=C sed '1s/\[10,10\]/[10,90]/' "$weights" >shape.safetensors
LC_ALL=C sed '1s/\.weight"/.veight"/' "$weights" >other.safetensors
head -c 4096 "$mpstaged" >garbage.safetensors
: >empty.safetensors
refusals good.conf <<'END'
missing weights|2|66|none\.safetensors|--init-from none.safetensors
truncated weights|2|65|^mpstaged: cut\.safetensors: |--init-from cut.safetensors
weights with a lying header|threads|65|^mpstaged: lie\.safetensors: |--init-from lie.safetensors
weights with a lying shape|threads|65|^mpstaged: shape\.safetensors: |--init-from shape.safetensors
weights without a tensor|threads|65|^mpstaged: other\.safetensors: .*net1\.weight|--init-from other.safetensors
weights of another width|threads|65|^mpstaged: kept: .*net2\.weight.*5x10|-o model.classes=4 --init-from kept
garbage as weights|threads|65|^mpstaged: garbage\.safetensors: |--init-from garbage.safetensors
empty weights|threads|65|^mpstaged: empty\.safetensors: |--init-from empty.safetensors
END

# ---- data ------------------------------------------------------------------------------------------------------------
# Two IDX files: 30 images of 4 x 4 and their labels.
zeros() { head -c "$1" /dev/zero; }
{ printf '\0\0\010\003\0\0\0\036\0\0\0\004\0\0\0\004'; zeros 480; } >images.idx
{ printf '\0\0\010\001\0\0\0\036'; zeros 30; } >labels.idx
synthetic='source = "synthetic"  labels = "onehot"  samples = 200'
write_conf idx.conf "s/$synthetic"'/source = "idx" train = "images.idx" train_labels = "labels.idx"/
    s/network = "toy"  classes = 5  input = {10}/network = "mlp" hidden = {8} classes = 5 input = {1, 4, 4}/
    s/loss = "mse"/loss = "cross_entropy"/'
trains idx-run 2 -c idx.conf
head -c 100 images.idx >cut.idx
{ printf '\0\0\010\003\377\377\377\177\0\0\0\004\0\0\0\004'; zeros 480; } >lie.idx
head -c 4096 "$mpstaged" >garbage.idx
{ printf '\0\0\010\001\0\0\0\036'; head -c 30 /dev/zero | tr '\0' '\011'; } >nine.idx
{ printf '\0\0\010\001\0\0\0\035'; zeros 29; } >fewer.idx
refusals idx.conf <<'END'
truncated IDX|2|65|^mpstaged: cut\.idx: |-o data.train=cut.idx
lying IDX|threads|65|^mpstaged: lie\.idx: |-o data.train=lie.idx
missing IDX|threads|66|^mpstaged: -o data.train=none\.idx: none\.idx: |-o data.train=none.idx
garbage as IDX|threads|65|^mpstaged: garbage\.idx: |-o data.train=garbage.idx
a label beyond the classes|threads|65|^mpstaged: nine\.idx: |-o data.train_labels=nine.idx
images and labels of different number|threads|65|^mpstaged: fewer\.idx: .*29.*30|-o data.train_labels=fewer.idx
END
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
trains npy-run 2 -c npy.conf
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
nan='evaluation: .* 1 of 2 batches .* batch 2'
job 2 -c test.conf --run-dir tested
# shellcheck disable=SC2016
check "NaN among the test samples: a run trains and says it" \
    sh -c '[ "$0" -eq 0 ] && [ -s tested/weights.safetensors ] && grep -q "note: $1" tested/mpstaged.log &&
        grep -q "\"event\":\"evaluation\".*\"loss\":null" tested/metrics.jsonl' "$code" "$nan"
[ "$code" -eq 0 ] || why
job 2 -c test.conf --run-dir tested-only --evaluate --init-from tested
# shellcheck disable=SC2016
check "one that only evaluates fails: 79" sh -c '[ "$0" -eq 79 ] && [ "$2" -eq 1 ] && grep -q "^mpstaged: $1" "$3" &&
        grep -q "\"event\":\"failed\",\"code\":79" tested-only/metrics.jsonl' "$code" "$nan" "$(our_lines)" "$aside/err"
head -c 300 x.npy >cut.npy
npy lie.npy '<f4' '2000000000, 2000000000' 800
npy wide.npy '<f4' '20, 40' 3200
npy object.npy '|O' '20, 10' 800
refusals npy.conf <<'END'
a batch larger than the data|threads|78|--batch-size: 21 .* 20|--batch-size 21 -o train.last_batch=drop
more samples than the file has|threads|78|data.samples=500: .*x\.npy.* 20$|-o data.samples=500
truncated npy|2|65|^mpstaged: cut\.npy: |-o data.train=cut.npy
lying npy|threads|65|^mpstaged: lie\.npy: |-o data.train=lie.npy
npy of another shape|threads|65|^mpstaged: wide\.npy: |-o data.train=wide.npy
npy of another type|threads|65|^mpstaged: object\.npy: |-o data.train=object.npy
missing npy|threads|66|^mpstaged: -o data.train_labels=none\.npy: none\.npy: |-o data.train_labels=none.npy
END

# ---- limits ----------------------------------------------------------------------------------------------------------
# limited TEXT CODE LIMIT PATTERN OPTIONS...: one process under that limit: one line, nothing created
limited() {
    limited_text=$1 limited_code=$2 limited_limit=$3 limited_pattern=$4 code=0; shift 4
    rm -rf new
    sh -c "ulimit $limited_limit; exec \"\$@\"" sh "$mpstaged" -c good.conf --run-dir new "$@" \
        >"$aside/out" 2>"$aside/err" </dev/null || code=$?
    if [ "$code" -eq "$limited_code" ] && [ "$(said_lines)" -eq 1 ] &&
        grep -qE "^mpstaged: $limited_pattern" "$aside/err" && [ ! -e new ]; then ok "$limited_text: $code"
    else { echo "code $code"; cat "$aside/err"; } | note; not_ok "$limited_text"; fi
}
# From 5 on: below that the program itself does not start.
for n in 5 8 12 16 24 40 60; do
    limited "room for $n files" 71 "-n $n" ".*open files, $n \\(ulimit -n\\)"
done
# Stacks larger than all addresses.
limited "room for no thread" 71 "-s 214748364800" ".*thread"
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
printf '#!/bin/sh\n[ "$%s" != "$1" ] || ulimit -n "$2"; shift 2; exec "$@"\n' "$mpi_rank" >few
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
echo '#include <errno.h>
int epoll_create1(void) { errno = EMFILE; return -1; }' >"$aside/refuse.c"
if ${CC:-cc} -shared -fPIC -o "$aside/refuse.so" "$aside/refuse.c" 2>"$aside/err"; then
    export LD_PRELOAD="$aside/refuse.so"
    rm -rf new
    refused "an event loop refused" 71 '^mpstaged: event loop: ' threads -c good.conf --run-dir new/run \
        -o service.tensorboard=yes
    unset LD_PRELOAD
    job threads -c good.conf --run-dir again
    cp again/weights.safetensors "$aside/kept"
    LD_PRELOAD=$aside/refuse.so job threads -c good.conf --run-dir again --overwrite
    check "weights of an earlier run have their name again" cmp -s again/weights.safetensors "$aside/kept"
    rm -rf again
else skip "an event loop refused" "no C compiler"; fi

# ---- batch norm ------------------------------------------------------------------------------------------------------
printf 'input x 10\nn = batch_norm(x)\ny = linear(n) features=5\n' >norm.graph
write_conf norm.conf 's/network = "toy"  classes = 5  input = {10}/graph = "norm.graph"/; s/samples = 200/samples = 21/;
        s/steps = 3/epochs = 1/'
refusals norm.conf <<'END'
a last batch of one sample|threads|78|^mpstaged: .*batch norm "n" .*train\.last_batch = "drop"|
a rest of one sample|threads|78|^mpstaged: .*batch norm "n" .*train\.split_size|--split-size 19 --steps 1
END

# ---- while running ---------------------------------------------------------------------------------------------------
# A run over an earlier one that fails leaves the earlier weights, under another name;
# those of a run that ends well take their place.
job threads -c good.conf --run-dir again
old=$(cksum <again/weights.safetensors)
for try in first second; do
    job threads -c good.conf --steps 50 -o train.learning_rate=1000000 --run-dir again --overwrite
    check "--overwrite by a run that fails: the $try one leaves the earlier weights aside" \
        [ "$code$(cksum <again/weights.safetensors.old)$(ls again/weights.safetensors 2>&1 | grep -c 'No such')" = \
        "79${old}1" ]
done
check "and says so" grep -q 'note: .*weights\.safetensors\.old' again/mpstaged.log
refused "earlier weights to start from that would be removed" 73 'old: --overwrite' \
    threads -c good.conf --run-dir again --overwrite --init-from again/weights.safetensors.old
job threads -c good.conf --run-dir again --overwrite --evaluate -o data.test_samples=9 --init-from kept
check "an evaluation leaves them alone" [ "$code$(cksum <again/weights.safetensors.old)" = "0$old" ]
job threads -c good.conf --run-dir again --overwrite -o run.seed=2
check "they go when new ones are written" \
    [ "$code$(ls again)" = "0$(printf 'lock\nmetrics.jsonl\nmpstaged.log\nweights.safetensors')" ]
check "which are others" [ "$(cksum <again/weights.safetensors)" != "$old" ]
cp again/weights.safetensors again/weights.safetensors.old; job threads -c good.conf --run-dir again --overwrite
check "nothing of them is left by a run over a run that ended well" [ "$code$(ls again | grep -c old)" = 00 ]

job 2 -c good.conf --steps 50 -o train.learning_rate=1000000 --run-dir wild
wrong=
[ "$code" -eq 79 ] && [ "$(our_lines)" -eq 1 ] && grep -qE '^mpstaged: step [0-9]+: ' "$aside/err" || wrong=yes
[ ! -e wild/weights.safetensors ] && grep -q '"event":"failed","code":79' wild/metrics.jsonl || wrong=yes
grep -q learning_rate "$aside/err" && ! grep -q -e '-nan' wild/mpstaged.log || wrong=yes
if [ -z "$wrong" ]; then ok "a loss that is not finite: 79, $took ms"
else why; not_ok "a loss that is not finite: 79 (was $code)"; fi
check "nobody is left" nobody_left
tap_done
