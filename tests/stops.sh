#!/bin/sh
# stops.sh: SIGTERM at random moments from start to end: 75 and one line within half a second, by mpirun within 2.2 s,
# and nothing half done. LONG=1 tries 200 moments instead of 12.
set -eu
. "$(dirname -- "$0")/mpi_lib.sh"
moments=2 layers=1000 tenths=20 side=16
[ -z "${LONG:-}" ] || moments=34 layers=5000 tenths=120 side=32
seed=${SEED:-$(date +%s)}
echo "# SEED=$seed gives the same moments again"

# A chain whose planning takes long, and ResNet-18 on small images.
chain() {
    echo "graph chain"; echo "input input 8"; echo "labels labels 5"
    awk -v n="$1" 'BEGIN { from = "input"
        for (i = 0; i < n; i++) { printf "l%d = linear(%s) features=8 layer=Linear\n", i, from; from = "l" i }
        printf "out = linear(%s) features=5 layer=Linear\n", from
        print "loss = softmax_cross_entropy(out, labels)\noutput out\nloss loss" }'
}
chain $layers >chain.graph
cat >chain.conf <<'END'
run      { name = "chain" }
model    { graph = "chain.graph" }
data     { source = "synthetic"  labels = "class"  samples = 64 }
train    { batch_size = 16  split_size = 4  steps = 20  optimizer = "sgd"  learning_rate = 0.001 }
pipeline { stages = 2  partition = "auto" }
END
cat >resnet.conf <<END
run      { name = "resnet" }
model    { network = "resnet18"  input = {3, $side, $side}  classes = 10 }
data     { source = "synthetic"  labels = "class"  samples = 64 }
train    { batch_size = 16  split_size = 4  steps = 3  optimizer = "sgd"  learning_rate = 0.001 }
pipeline { stages = 2 }
END

# Whether a process hears SIGTERM yet: before that it only loads libraries. mpstage-experiment blocks it and takes it.
hears() {
    awk '/^Name:/ { want = $2 ~ /^mpstage-exp/ ? "SigBlk:" : "SigCgt:" }
        $1 == want { exit !(substr($2, length($2) - 3, 1) ~ /[4-7c-f]/) }' "/proc/$1/status" 2>/dev/null
}
now() { echo $(($(date +%s%N) / 1000000)); }
# What starting something that does nothing takes now: on a busy machine everything takes longer.
busy() { b=$(now); "$mpstaged" --help >/dev/null; echo $(($(now) - b)); }

# begin OPTIONS...: $pid, as soon as it hears
begin() {
    rm -rf run e found.conf
    "$@" >"$aside/out" 2>"$aside/err" </dev/null & pid=$!
    while kill -0 $pid 2>/dev/null && ! hears $pid; do sleep 0.01; done
}
# duration OPTIONS...: $whole, ms that it takes if nobody stops it, or as long as is tried
duration() {
    begin "$@"
    from=$(now)
    for _ in $(seq $tenths); do kill -0 $pid 2>/dev/null || break; sleep 0.1; done
    whole=$(($(now) - from))
    kill -KILL $pid 2>/dev/null || true
    wait $pid 2>/dev/null || true
    # what it had started would go on writing
    for p in $(ranks_alive); do kill -KILL "$p" 2>/dev/null || true; done
    nobody_left || true
}
# stops TEXT LIMIT_MS CODES OPTIONS...: the exit status is one of those; 0 where the end was nearer
stops() {
    text=$1 limit=$2 codes=" 0 $3 "; shift 3
    duration "$@"
    worst=0 heard=0 bad=
    [ $whole -ge 50 ] || bad="; it ends after $whole ms, and nothing is tried"
    for i in $(seq $moments); do
        seed=$(((seed * 1103515245 + 12345) % 2147483648))
        at=$((seed / 8 % (whole + 1)))
        begin "$@"
        sleep "$(awk -v ms=$at 'BEGIN { printf "%.3f", ms / 1000 }')"
        from=$(now) code=0
        kill -TERM $pid 2>/dev/null || true
        wait $pid || code=$?
        took=$(($(now) - from))
        [ "$took" -le "$limit" ] || took=$((took - 10 * $(busy)))
        [ "$took" -le "$worst" ] || worst=$took
        [ "$code" -eq 0 ] || heard=$((heard + 1))
        nobody_left || bad="$bad; ranks are alive at $at ms"
        case $codes in *" $code "*) ;; *) bad="$bad; $code at $at ms" ;; esac
        [ "$took" -le "$limit" ] || bad="$bad; $took ms at $at ms"
        [ "$code" -ne 75 ] || [ "$(grep -c '^mpstage[a-z-]*: .*stopped' "$aside/err")" -eq 1 ] ||
            bad="$bad; not one line at $at ms: $(cat "$aside/err")"
        [ -z "$(find . -name '.mpstaged-*')" ] || bad="$bad; a file is left at $at ms"
        [ ! -s run/metrics.jsonl ] || [ "$(tail -c 1 run/metrics.jsonl | od -An -c | tr -d ' ')" = '\n' ] ||
            bad="$bad; half a line at $at ms"
        [ ! -s run/metrics.jsonl ] || tail -n 1 run/metrics.jsonl | grep -qE '"event":"(failed|done|start)"' ||
            bad="$bad; no last line at $at ms"
    done
    if [ -z "$bad" ]; then ok "$text: $heard of $moments moments in $whole ms heard, the slowest after $worst ms"
    else echo "$bad" | note; not_ok "$text"; fi
}

local="--transport local --progress no --run-dir run"
stops "ResNet-18" 500 75 "$mpstaged" -c resnet.conf $local --trace t.json
stops "a chain of $layers layers" 500 75 "$mpstaged" -c chain.conf $local
stops "measuring kernels" 500 75 "$mpstaged" -c resnet.conf $local --profile -o pipeline.profile_sizes=4 \
    -o pipeline.profile_spread=1e9
stops "searching a plan" 500 75 "$mpstaged" -c chain.conf --plan=search --stages 4 --write-config found.conf
stops "an experiment" 2200 75 "$build/mpstage-experiment" -c resnet.conf --out e --repeat 1 --splits 8 --no-plots
# Open MPI's mpirun has a status of its own for that: 1 (docs/mpi.md).
stops "under mpirun" 2200 "1 75" "$MPIRUN" $mpi_options -np 2 "$mpstaged" -c resnet.conf --progress no --run-dir run
tap_done
