#!/bin/sh
# modes.sh: what mpstaged tells without mpirun: each mode answers on standard output with status 0, creates nothing,
# and what it prints can be read back.
set -eu
. "$(dirname -- "$0")/mpi_lib.sh"
write_conf toy.conf

# says TEXT PATTERN OPTIONS...: status 0, the pattern on stdout,
# nothing on stderr (but for what a slow machine says while it plans)
says() {
    says_text=$1 says_pattern=$2 code=0; shift 2
    "$mpstaged" "$@" >"$aside/out" 2>"$aside/err" || code=$?
    if [ "$code" -eq 0 ] && grep -qE -- "$says_pattern" "$aside/out" &&
        ! grep -qv '^note: still ' "$aside/err"; then ok "$says_text"
    else { echo "code $code"; head -5 "$aside/out"; cat "$aside/err"; } | note; not_ok "$says_text"; fi
}
# Valid JSON by the strictest reader at hand.
is_json() {
    if command -v jq >/dev/null; then jq -e . "$1" >/dev/null
    elif command -v python3 >/dev/null; then python3 -m json.tool "$1" >/dev/null
    else grep -q '^{.*}$' "$1" || tr -d '\n' <"$1" | grep -q '^{.*} *$'
    fi
}

says "--help" '^usage: ' --help
says "--version" '^mpstaged [0-9]' --version
says "--check-config" '^configuration OK$' -c toy.conf --check-config
says "--print-config" 'batch_size' -c toy.conf --print-config --steps 7
cp "$aside/out" printed.conf
says "--print-config reads itself back" 'batch_size' -c printed.conf --print-config
check "--print-config is a fixed point" cmp "$aside/out" printed.conf
check "an override is printed" grep -qE 'steps *= *7' printed.conf
says "--print-config of 600" 'every_seconds = 600$' -c toy.conf --print-config -o checkpoint.every_seconds=600
says "--print-config --json" 'batch_size' -c toy.conf --print-config --json
check "its JSON is valid" is_json "$aside/out"
PLACE='/some where/$5' HOME=/home/me "$mpstaged" -c toy.conf --print-config -o 'run.trace=$PLACE/t' \
    -o 'run.init_from=~/w' >"$aside/named.conf"
check "--print-config prints file names as they come out" grep -q '  trace = "/some where/$$5/t"' "$aside/named.conf"
check "also with ~" grep -q '  init_from = "/home/me/w"' "$aside/named.conf"
says "and reads itself back, whatever the environment" '^}' -c "$aside/named.conf" --print-config
check "to the same" cmp "$aside/out" "$aside/named.conf"
says "--print-graph" 'linear' -c toy.conf --print-graph
cp "$aside/out" graph.txt
write_conf graph.conf 's/network = "toy"  classes = 5  input = {10}/graph = "graph.txt"  input = {10}  classes = 5/'
says "--print-graph reads itself back" 'linear' -c graph.conf --print-graph
check "--print-graph is a fixed point" cmp "$aside/out" graph.txt
printf 'input x 10\nlabels t class\na = linear(x) features=5\nl = softmax_cross_entropy(a, t)\n' >net.txt
write_conf net.conf \
    's/network = "toy"  classes = 5  input = {10}/graph = "net.txt"/; s/labels = "onehot"  //; s/loss = "mse"  //'
says "--print-config leaves the loss to the graph" 'graph = "net.txt"' -c net.conf --print-config
cp "$aside/out" net-printed.conf
check "it does" sh -c '! grep -q "loss =" net-printed.conf'
says "and reads itself back" 'configuration OK' -c net-printed.conf --check-config
sed 's/(a, t)/(s, t)/; s/^l /s = softmax(a)\n&/' net.txt >"$aside/twice.txt"
says "a softmax before a loss that has one" 'ends with "s", a softmax, and the loss .* applies another' \
    -c net.conf --check-config -o "model.graph=$aside/twice.txt"
"$mpstaged" -c net.conf --transport local --run-dir "$aside/net" >"$aside/out" 2>&1 || note <"$aside/out"
check "the start line of a run tells the graph's loss" grep -q '"event":"start".*"loss":"cross_entropy"' \
    "$aside/net/metrics.jsonl"
says "--summary" '165' -c toy.conf --summary
check "it has the names of stages and those of torchsummary" grep -qE '^net1 +Linear-1 ' "$aside/out"
says "--summary --json" '165' -c toy.conf --summary --json
says "AdamW keeps two buffers for 165 weights" '"optimizer_bytes": 1320' -c toy.conf --summary --json \
    -o train.optimizer=adamw
check "its JSON is valid" is_json "$aside/out"
says "--plan" 'stage|rank' -c toy.conf --plan
says "--plan tells of the copies for checkpoints" 'checkpoints keep a copy .* B a rank' -c toy.conf --plan \
    -o checkpoint.every_steps=1
says "--plan tells what freezing saves" \
    '^[0-9.]+ [KM]?i?B of [0-9.]+ [KM]?i?B on the largest rank, .*s of .*s a step$' \
    -c toy.conf --plan --stages 1 -o pipeline.partition=uniform -o train.batch_size=16 -o 'train.freeze={"net1"}'
check "and how many weights are frozen" grep -q '^frozen: 110 of 165 weights, which saves$' "$aside/out"
says "--plan --json" 'stage' -c toy.conf --plan --json
check "its JSON is valid" is_json "$aside/out"
check "its seconds and bound are there" grep -q '"bound_seconds"' "$aside/out"
check "its stages have times by kind" grep -q '"weight_grad_seconds"' "$aside/out"
says "--plan=search" '1f1b .* ([mµ]s|s) .* [MK]iB$' -c toy.conf --plan=search --write-config found.conf
says "--plan=search tells one device and data parallelism" 'data parallelism on 2 devices' -c toy.conf --plan=search
says "the best is a configuration that reads back" 'simulated' -c found.conf --plan
best=$(sed -n 's/.*search: \(step .*s\) (.*$/\1/p' found.conf)
check "and plans the step time that was found" grep -q "^${best:-none}, " "$aside/out"
command=$(sed -n 's/^# mpirun -np \([0-9]*\) .*mpstaged -c found.conf$/\1/p' found.conf)
mpirun_n "${command:-99}" "$mpstaged" -c found.conf --run-dir "$aside/found" >"$aside/out" 2>"$aside/err" || why
check "and runs by the command that it says" grep -q '"event":"done"' "$aside/found/metrics.jsonl"
says "--plan=search shares out the cores that it is told" '^data parallelism on 4 devices +[0-9]+ ' \
    -c toy.conf --plan=search -o pipeline.cores=4
says "and none beyond them" '^1 core, batch 20, ' -c toy.conf --plan=search --stages 1
says "--plan=search recomputes where memory is short" '^ +[0-9]+ +[a-z0-9-]+ .* (auto|all) ' \
    -c "$here/../conf/resnet50.conf" --device reference -o model.network=resnet18 \
    --batch-size 32 --split-size 8 --stages 2 --plan=search -o pipeline.max_memory=150MiB
says "--plan=search --json" 'one_device' -c toy.conf --plan=search --json
check "its JSON is valid" is_json "$aside/out"
if command -v python3 >/dev/null; then
    check "each of the best has its stages, the largest with its peak" python3 -c '
import json, sys
found = json.load(open(sys.argv[1]))
best = found["best"]
assert found["ranks"] == found["cores"] == 2
layouts = [(x["replicas"], x["ranks"], x["threads"]) for x in found["layouts"]]
assert layouts == [(1, 2, 1), (1, 1, 2), (2, 1, 1), (1, 1, 1)]
assert best[0]["step_seconds"] == min(x["step_seconds"] for x in found["layouts"])
for x in best + found["layouts"]:
    assert [s["stage"] for s in x["stages"]] == list(range(len(x["stages"]))) and len(x["stages"]) % x["ranks"] == 0
    assert max(s["peak_bytes"] for s in x["stages"]) == x["peak_bytes"] > 0
    assert x["stages"][0]["first"] == "net1" and [s["first"] for s in x["stages"][1:]] == x["cut"]
    assert x["step_seconds"] > 0 and x["fits"]
assert best' "$aside/out"
else skip "each of the best has its stages" "no python3"; fi
says "--plan --stages 1" '.' -c toy.conf --plan --stages 1
for schedule in naive gpipe 1f1b; do
    says "--print-schedule, $schedule" '.' -c toy.conf --print-schedule --schedule $schedule
done


# ---- how many stages -------------------------------------------------------------------------------------------------
set -- -c "$here/../conf/resnet50.conf" --device reference -o model.network=resnet18 \
    -o 'pipeline.speed={1,2}' --batch-size 8 --split-size 4
says "another policy keeps the number of stage sections" ', 2 stages on 2 ranks' "$@" --partition auto --plan
says "and so does the search" '^2 cores, batch 8' "$@" --partition uniform --plan=search
says "its configuration reads back as it is" '^ *stage \{ first = "layer3"' "$@" --partition uniform --print-config
mpirun_n 3 "$mpstaged" -c "$here/../conf/resnet50.conf" --device reference --partition uniform \
    --plan >"$aside/out" 2>"$aside/err" || why
check "under mpirun it plans for the ranks" grep -q ', 3 stages on 3 ranks' "$aside/out"
code=0; mpirun_n 3 "$mpstaged" -c toy.conf --check-config >"$aside/out" 2>"$aside/err" || code=$?
check "and checks for them" \
    sh -c '[ "$0" -eq 78 ] && grep -q "^mpstaged: .*3 ranks for 2 stages" "$1"' "$code" "$aside/err"

# A program with CUDA on a machine without says both.
if grep -q '^#define HAVE_CUDA 1' "$build/config.h"; then
    says "--version names cuda, with or without a GPU" '^backend cuda: ' --version
    says "--plan for GPUs, with or without one" 'stage' -c toy.conf --plan --device cuda --precision bf16
    says "--plan=search, too" '^ +1 +([0-9]+x[0-9]+ +)?[a-z0-9-]+ +[0-9]+ ' -c toy.conf --plan=search --device cuda
else check "--version names no backend that is not built in" \
    sh -c '! "$0" --version | grep -q "^backend cuda"' "$mpstaged"; fi

# fails TEXT CODE PATTERN OPTIONS...
fails() {
    fails_text=$1 fails_code=$2 fails_pattern=$3 code=0; shift 3
    "$mpstaged" "$@" >"$aside/out" 2>"$aside/err" || code=$?
    # a busy machine says after two seconds that it still plans
    if [ "$code" -eq "$fails_code" ] && [ "$(grep -vc '^note: still ' "$aside/err")" -eq 1 ] &&
        grep -qE -- "^mpstaged: .*$fails_pattern" "$aside/err" && [ ! -s "$aside/out" ]; then
        ok "$fails_text"
    else { echo "code $code"; cat "$aside/err"; } | note; not_ok "$fails_text"; fi
}
fails "a variable that is not set" 78 'run.trace=.*: the variable NONE_SUCH is not set' \
    -c toy.conf --print-config -o 'run.trace=${NONE_SUCH}/t'
fails "two modes at once" 64 'another mode' -c toy.conf --plan --summary
# ---- the search, and cuts under a limit ------------------------------------------------------------------------------
resnet="-c $here/../conf/resnet50.conf --device reference -o model.network=resnet18 --batch-size 32 --split-size 8"
for policy in uniform auto; do
    code=0
    mpirun_n 4 "$mpstaged" $resnet --stages 2 -o pipeline.partition=$policy -o pipeline.recompute=auto \
        -o pipeline.max_memory=1GiB --plan \
        >"$aside/out" 2>"$aside/err" || code=$?
    check "more ranks than stages, $policy" sh -c \
        '[ "$0" -eq 78 ] && grep -q "^mpstaged: .*4 ranks for 2 stages; start at most one" "$1"' "$code" "$aside/err"
done
fails "another number of stages than there are sections" 78 'another partition, such as auto' $resnet --stages 3 --plan
says "--plan=search finds a cut for any number" '^ +1 +layer[0-9.]+[a-z0-9]+ layer' \
    $resnet --stages 3 --plan=search --write-config three.conf
check "and writes it as stage sections" [ "$(grep -c '^    stage {' three.conf)" \
    -eq "$(awk '$1 == 1 { print $4; exit }' "$aside/out")" ]
check "with what it was found by" grep -q '^# Found by .* (estimated costs)\.$' three.conf
step_of() { "$mpstaged" "$@" --plan --json | sed -n 's/^  "step_seconds": \([0-9.]*\).*/\1/p'; }
said=$(sed -n 's/^# Found by .* step \([0-9.]*\) s .*/\1/p' three.conf) planned=$(step_of -c three.conf)
check "the cut that was found is the one that is planned" \
    awk -v a="$said" -v b="$planned" 'BEGIN { exit !(a > 0 && a / b > 0.999 && a / b < 1.001) }'
for limit in $(cases 115 "110 120"); do
    tight="$resnet -o pipeline.max_memory=${limit}MiB"
    together=$(step_of $tight -o pipeline.partition=auto -o pipeline.recompute=auto)
    for way in "manual auto" "auto all"; do
        set -- $way
        other=$(step_of $tight -o pipeline.partition=$1 -o pipeline.recompute=$2 2>/dev/null)
        apart="partition $1 with recompute $2 ($together s, ${other:-does not fit})"
        check "$limit MiB: cut and recomputation found together are no slower than $apart" \
            awk -v a="$together" -v b="${other:-1e9}" 'BEGIN { exit !(a > 0 && a <= b * 1.000001) }'
    done
done

fails "another word than search" 64 'expected --plan or --plan=search' -c toy.conf --plan=find
fails "--write-config alone" 64 '--write-config.*--plan=search' -c toy.conf --plan --write-config x.conf
fails "--write-config over a file" 73 'found.conf' -c toy.conf --plan=search --write-config found.conf
fails "--plan=search with no memory" 78 'pipeline.max_memory' -c toy.conf --plan=search -o pipeline.max_memory=1KiB
fails "--json alone" 64 '--json.*--print-config' -c toy.conf --json
# with much of the step in it
printf '%s\n' 'model { network = mlp input = {10} classes = 5 hidden = {900, 900} } pipeline { stages = 2 }' \
    'data { source = synthetic } train { batch_size = 2 steps = 1 }' >"$aside/wide.conf"
"$mpstaged" -c "$aside/wide.conf" --draw-schedule - >"$aside/out" 2>"$aside/err" || true
check "--draw-schedule draws the optimizer" \
    [ "$(grep -cE '^rank 0 .*O-' "$aside/out") $(grep -c 'O: optimizer' "$aside/out")" = "1 1" ]
fails "--draw-schedule into a file of no known kind" 64 'x.png' -c toy.conf --draw-schedule x.png
fails "--draw-schedule into a folder that is not there" 73 'none/x.svg' -c toy.conf --draw-schedule none/x.svg
fails "a bad file under --check-config" 66 'none.conf' -c none.conf --check-config
fails "a bad value under --check-config" 78 '--batch-size: 0' -c toy.conf --check-config --batch-size 0
fails "another loss than the graph's" 78 'loss=mse: the graph decides' -c net.conf --check-config -o train.loss=mse
printf 'input x 3x14x14\na = conv(x) channels=10 kernel=3 padding=1\n' >"$aside/spatial.txt"
for loss in mse cross_entropy; do
    fails "$loss of a class and an output of 10x14x14" \
        78 "loss=$loss: .*$loss .*10x14x14" \
        -c net.conf --check-config \
        -o "model.graph=$aside/spatial.txt" -o data.labels=class -o train.loss=$loss
done
fails "one-hot targets of 10x14x14" 78 'data.labels: .*10x14x14' \
    -c net.conf --check-config -o "model.graph=$aside/spatial.txt" -o train.loss=mse
says "targets of 10x14x14" 'configuration OK' -c net.conf --check-config -o "model.graph=$aside/spatial.txt" \
    -o train.loss=mse -o data.labels=vector
fails "a data file that is not there under --check-config" 66 'none\.npy' \
    -c net.conf --check-config -o data.source=npy -o data.samples=0 \
    -o data.train=none.npy -o data.train_labels=none.npy
fails "a data file that is none under --check-config" 65 'net\.txt: this is text, not a NumPy array' \
    -c net.conf --check-config -o data.source=npy -o data.samples=0 \
    -o data.train=net.txt -o data.train_labels=net.txt
fails "weights that are not there under --check-config" 66 'none\.st' -c toy.conf --check-config --init-from none.st
fails "weights of another network under --check-config" \
    65 "$aside/net/weights.safetensors: tensor net1.weight is missing" -c toy.conf --check-config \
    --init-from "$aside/net/weights.safetensors"
says "--check-config of an evaluation" 'configuration OK' \
    -c net.conf --check-config --evaluate -o data.test_samples=9 --init-from "$aside/net"
fails "an evaluation without test samples" 78 'there are no test samples' \
    -c net.conf --check-config --evaluate --init-from "$aside/net"
fails "an evaluation without weights" 64 'needs --init-from' -c net.conf --check-config --evaluate
memory() {
    max=$1; shift; set -- -c "$here/../conf/resnet50.conf" --plan --device reference -o "pipeline.max_memory=$max" "$@"
    fails "memory limit $max" 78 "$memory_says" "$@"
}
memory_says='rank 0 needs [0-9.]+ [MG]iB, [0-9.]+ [KMG]iB more than its 500.00 MiB; '
memory_says=$memory_says'it would fit with .*train.split_size = '
memory 500MiB
memory_says='nothing that was tried fits'; memory 1MiB
memory_says='3 sizes for 2 ranks'; memory 1GiB,2GiB,3GiB
says "a plan within its limits" 'step' -c "$here/../conf/resnet50.conf" --plan --device reference \
    -o pipeline.max_memory=64GiB -o pipeline.partition=auto --stages 2
fails "a plan that cannot be" 78 '50 stages, but this network can be cut into [0-9]+ at most' \
    -c toy.conf --plan --stages 50
check "standard output that is full is noticed" sh -c '"$0" --help >/dev/full 2>/dev/null; [ $? -eq 74 ]' "$mpstaged"
check "nothing was created" [ "$(ls | tr '\n' ' ')" \
    = "found.conf graph.conf graph.txt net-printed.conf net.conf net.txt printed.conf three.conf toy.conf " ]
# Large networks are planned in seconds of a processor: what grows with the square of the layers takes minutes here.
chain() {
    awk -v n="$1" 'BEGIN { print "graph chain\ninput input 8\nlabels labels class"; x = "input"
        for (i = 0; i < n; i++) { printf "fc%d = linear(%s) features=8\n", i, x; x = "fc" i }
        print "loss = softmax_cross_entropy(" x ", labels)\nloss loss" }'
}
chained() {
    chain "$1" >"$aside/chain.graph"
    printf '%s\n' 'model { graph = "'"$aside"'/chain.graph" }' 'data { source = "synthetic" }' \
        'train { batch_size = 32 split_size = 4 steps = 2 }' 'pipeline { partition = "auto" stages = 4 }' \
        >"$aside/chain.conf"
}
soon() { (ulimit -t 60; exec "$mpstaged" -c "$aside/chain.conf" "$@") >"$aside/out" 2>"$aside/err"; }
chained 8000
check "8,000 layers, partition auto" soon --plan
chained 800
check "800 layers, --plan=search" soon --plan=search

# ---- a reader that leaves --------------------------------------------------------------------------------------------
{ echo "graph chain"; echo "input input 8"; echo "labels labels 8"
  awk 'BEGIN { from = "input"
      for (i = 0; i < 3000; i++) { printf "l%d = relu(%s) layer=ReLU\n", i, from; from = "l" i }
      printf "loss = softmax_cross_entropy(%s, labels)\noutput %s\nloss loss\n", from, from }'; } >chain.graph
sed 's/model .*/model { graph = "chain.graph" }/; s/labels = "onehot"/labels = "class"/; s/loss = "mse" //' toy.conf \
    >chain.conf
"$mpstaged" -c chain.conf --print-graph >"$aside/out" 2>"$aside/err" || true
check "a long graph is printed" [ "$(wc -c <"$aside/out")" -gt 70000 ]
"$mpstaged" -c chain.conf --print-graph 2>"$aside/err" | head -n 1 >"$aside/out"
check "what only prints ends without a word when its reader leaves" [ "$(said_lines)" -eq 0 ]

tap_done
