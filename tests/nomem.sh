#!/bin/sh
# nomem.sh: memory runs out at each allocation in turn of what reads configurations, networks, data, weights and
# checkpoints, and of what writes them: one line and 70, no crash; what goes on frees what it took. LONG=1 also takes
# --plan=search, at one allocation in 97.
set -eu
: "${srcdir:=.}" "${top_builddir:=.}"
here=$(CDPATH='' cd -- "$(dirname -- "$0")" && pwd)
. "$here/tap.sh"
. "$here/faults/lib.sh"
corpus=$here/fuzz/corpus readers=$build/tests/faults/readers

# runs_out TEXT STEP COMMAND...: N is 1, 1 + STEP ...
runs_out() {
    text=$1 step=$2; shift 2
    rm -f report
    MPSTAGED_NOMEM=$step MPSTAGED_NOMEM_REPORT=$PWD/report LD_PRELOAD=$build/tests/faults/nomem.so "$@" || true
    # what is not needed, such as a buffer of standard output, may be missing: then all is as undisturbed
    bad=$(awk '
        $1 == 0 { code = $2; lines = $3; blocks = $4; next }
        $1 == "allocations" { ended = 1; next }
        $2 == 70 && $3 == 1 { right++; next }
        $2 == code && $3 == lines && $4 <= blocks { next }
        $2 >= 64 && $2 <= 79 && $3 == 1 && /Cannot allocate memory$/ && $4 <= blocks { next }
        { print }
        END { if (!ended) print "the program did not end"; else if (!right) print "nothing failed" }' report)
    if [ -z "$bad" ]; then ok "$text: each of $(sed -n 's/^allocations //p' report) allocations"
    else echo "$bad" | head -n 20 | note; not_ok "$text"; fi
}

mkdir run save weights
"$build/tests/faults/commit_rig" save run 3 >/dev/null
cp "$corpus/st/two.safetensors" weights/
echo '{"weight_map": {"a": "two.safetensors", "n": "two.safetensors"}}' >weights/model.safetensors.index.json
runs_out "a configuration" 1 "$readers" conf "$corpus/conf/all.conf"
runs_out "one that is wrong" 1 "$readers" conf "$corpus/conf/unclosed.conf"
runs_out "a network" 1 "$readers" graph "$corpus/graph/all.graph"
runs_out "a profile" 1 "$readers" profile "$corpus/profile/two.json"
runs_out "rows of a schedule" 1 "$readers" rows "$corpus/rows/1f1b.rows"
runs_out "IDX" 1 "$readers" idx "$corpus/idx/images.idx"
runs_out "IDX, packed" 1 "$readers" idx "$corpus/idx/images.idx.gz"
runs_out "NumPy" 1 "$readers" npy "$corpus/npy/i8.npy"
for file in rgb.jpg progressive.jpg turned6.jpg palette.png interlaced.png; do
    runs_out "a picture, $file" 1 "$readers" picture "$here/images/$file"
done
runs_out "a list of pictures" 1 "$readers" list "$corpus/list/names"
mkdir -p classes/a/b classes/c && : >classes/a/b/1.jpg && : >classes/c/2.png
runs_out "a folder of pictures" 1 "$readers" list classes
for file in one two_big one.gz; do
    runs_out "a volume, $file" 1 "$readers" nifti "$corpus/nifti/$file"
done
mkdir task && cp "$corpus/dataset/task" task/dataset.json
runs_out "a folder of volumes" 1 "$readers" dataset task
runs_out "weights" 1 "$readers" weights "$corpus/st/two.safetensors"
runs_out "weights that are wrong" 1 "$readers" weights "$corpus/st/overlap.safetensors"
runs_out "weights by an index" 1 "$readers" weights weights
runs_out "a checkpoint is verified" 1 "$readers" checkpoint run/checkpoints
runs_out "a checkpoint is written" 1 "$readers" save save

cat >toy.conf <<'END_CONF'
run      { name = "toy"  seed = 1 }
model    { network = "toy"  classes = 5  input = {10} }
data     { source = "synthetic"  labels = "onehot"  samples = 200 }
train    { batch_size = 20  split_size = 8  steps = 3  loss = "mse"  optimizer = "sgd"  learning_rate = 0.1 }
pipeline { schedule = "1f1b"  partition = "uniform"  stages = 2 }
END_CONF
for mode in --check-config --summary --print-config --print-graph --plan --print-schedule; do
    runs_out "mpstaged $mode" 1 "$build/mpstaged" $mode -c toy.conf
done
for mode in --summary --print-config --plan; do
    runs_out "mpstaged $mode --json" 1 "$build/mpstaged" $mode --json -c toy.conf
done
[ -z "${LONG:-}" ] || runs_out "mpstaged --plan=search" 97 "$build/mpstaged" --plan=search -c toy.conf
tap_done
