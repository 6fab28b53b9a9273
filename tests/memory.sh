#!/bin/sh
# memory.sh: what a host, a cgroup and ulimit leave is compared with what all ranks need, before anything is allocated;
# what is within a limit runs, and whatever the limit, no run ends by a signal.
set -eu
. "$(dirname -- "$0")/mpi_lib.sh"
cat >net.conf <<'END'
run { name = "net" }
model { network = "mlp"  input = {1, 28, 28}  classes = 10  hidden = {32} }
data { source = "synthetic"  samples = 64 }
train { batch_size = 16  split_size = 8  steps = 2 }
pipeline { stages = 2 }
service { log_every = 0 }
END
cat >large.conf <<'END'
run { name = "large" }
model { network = "resnet50" }
data { source = "synthetic"  samples = 65536 }
train { batch_size = 65536  split_size = 32768  steps = 1 }
pipeline { schedule = "gpipe"  partition = "uniform"  stages = 2 }
END
# ended TEXT CODE PATTERN COMMAND...: one line that says so; nothing is made
ended() {
    text=$1 want=$2 pattern=$3; shift 3
    code=0; "$@" >out 2>err || code=$?
    lines=$(grep -c '^mpstaged: ' err) || true
    if [ "$code" -eq "$want" ] && [ "$lines" -eq 1 ] && grep -Eq "$pattern" err && [ ! -e run ]; then ok "$text"
    else not_ok "$text (status $code)"; note <err; fi
    rm -rf run
}

# ---- the host's ------------------------------------------------------------------------------------------------------
size='[0-9.]+ .iB'
need="^mpstaged: 2 ranks on one host need $size of memory, which exceeds the $size of free memory of the host"
ended "a run that no host has the memory for" 69 "$need" "$mpstaged" -c large.conf --run-dir run
ended "--plan of it" 69 "$need.*; for other machines set pipeline.max_memory" "$mpstaged" -c large.conf --plan
ended "--check-config of it" 69 "$need" "$mpstaged" -c large.conf --check-config
ended "--check-config with a pipeline.max_memory that it does not have" 69 "$need" "$mpstaged" -c large.conf \
    --check-config -o pipeline.max_memory=90000GiB
ended "--plan=search of batches that fit nowhere" 69 'ranks on one host need|no schedule and split size fits' \
    "$mpstaged" -c large.conf --plan=search -o model.input='{3, 640, 640}' -o pipeline.recompute=all -o pipeline.cores=1
"$mpstaged" -c large.conf --plan -o pipeline.max_memory=90000GiB >out 2>err
check "--plan of another machine, which has as much, with a note" grep -q 'note: this machine is too small' out
ended "a run that no host has the memory for, under mpirun" 69 "$need" mpirun_n 2 "$mpstaged" -c large.conf \
    --run-dir run
"$mpstaged" -c net.conf --plan -o pipeline.recompute=auto >out 2>err
check "recompute = auto without pipeline.max_memory" grep -q '^step ' out

# ---- what a run takes ------------------------------------------------------------------------------------------------
# Another copy of the largest tensor would be 102 MB. Libraries and their threads take some 20 MB.
cat >wide.conf <<'END'
run { name = "wide" }
model { network = "gpt2"  input = {16}  vocab_size = 200000  hidden_size = 128  num_hidden_layers = 2
        num_attention_heads = 2  tie_word_embeddings = yes }
data { source = "synthetic"  samples = 64 }
train { batch_size = 2  split_size = 1  steps = 3  optimizer = "adamw" }
pipeline { stages = 2 }
END
job 2 -c wide.conf --run-dir wide
[ "$code" -eq 0 ] || why
grep '"event":"account"' wide/metrics.jsonl | grep -o '"bytes":[0-9]*' | tr -dc '0-9\n' >"$aside/bytes"
note <"$aside/bytes"
check "each stage takes at most 60 MB more than planned" awk '
    { x[NR] = $1 } END { exit !(NR == 4 && x[1] > 1e8 && x[2] < x[1] + 6e7 && x[4] < x[3] + 6e7) }' "$aside/bytes"

# ---- ulimit ----------------------------------------------------------------------------------------------------------
over=                                                     # what starts it
series_by=18 least_by=4                                   # percent from one limit to the next
[ -z "${LONG:-}" ] || series_by=9 least_by=2
limited() { kb=$1; shift; $over sh -c 'ulimit -c 0; ulimit -v "$1"; shift; exec "$@"' sh "$kb" "$@"; }
# From less than libraries need to enough, which is more where CUDA is built in: clear statuses, then 0 for good.
# 127 and lines of the loader come before main, as do exceptions of libraries' constructors. 1 and 2: Open MPI could
# not begin.
series() {
    text=$1; shift
    kb=50000 bad= good= refused=
    while [ "$kb" -lt 2500000 ]; do
        code=0; limited "$kb" timeout 60 "$@" --run-dir run >out 2>err || code=$?
        case $code in
        0) good=$kb ;;
        69) refused=$kb; grep -q 'ulimit -v' err || bad="$bad $kb:69-without-a-word" ;;
        70 | 71 | 127) ;;
        134) [ "$kb" -lt 100000 ] && grep -q bad_alloc err || bad="$bad $kb:134" ;;
        *) bad="$bad $kb:$code" ;;
        esac
        if [ "$code" -ne 0 ] && [ -n "$good" ]; then bad="$bad $kb:$code-after-$good"; fi
        if [ "$code" -ne 0 ] && [ -e run ]; then bad="$bad $kb:run-directory"; fi
        rm -rf run
        [ -z "$good" ] || [ "$kb" -lt $((good * 2)) ] || break
        [ "$code" -ne 0 ] || [ "$kb" -lt 700000 ] || break
        kb=$((kb * (100 + series_by) / 100))
    done
    if [ -n "$good" ] && [ -n "$refused" ] && [ -z "$bad" ]; then ok "$text"; else not_ok "$text: $bad"; fi
}
series "no limit of address space ends a run by a signal" "$mpstaged" -c net.conf
large_kb=4000000
ended "a plan above ulimit -v" 69 'exceeds the [0-9.]+ .iB of the process.s address space \(ulimit -v\)' \
    limited $large_kb "$mpstaged" -c net.conf --run-dir run -o 'model.hidden={30000, 30000}'
ended "--check-config of it" 69 'ulimit -v' limited $large_kb "$mpstaged" -c net.conf --check-config \
    -o 'model.hidden={30000, 30000}'

# The least that is not refused lets a run end well, which holds each tensor once more when it writes its weights.
suffices() {
    text=$1; shift
    kb=500000 refused='' code=69
    while [ "$kb" -lt 4000000 ]; do
        code=0; limited "$kb" "$@" --run-dir run -o 'model.hidden={5000, 5000}' -o data.samples=16 >out 2>err || code=$?
        rm -rf run
        [ "$code" -ne 69 ] || refused=$kb
        [ "$code" -ne 0 ] && { [ "$code" -eq 69 ] || [ -z "$refused" ]; } || break
        if [ -n "$refused" ]; then kb=$((kb * (100 + least_by) / 100)); else kb=$((kb * 110 / 100)); fi
    done
    check "$text ($kb after $refused)" [ "$code" -eq 0 -a -n "$refused" ] || note <err
}
suffices "what is let in has the memory to write its weights" "$mpstaged" -c net.conf
suffices "and its checkpoints" "$mpstaged" -c net.conf -o checkpoint.every_steps=1
over='mpirun_n 2'
suffices "and what other processes send" "$mpstaged" -c net.conf
over=

# ---- cgroups ---------------------------------------------------------------------------------------------------------
group=
for top in /sys/fs/cgroup/memory /sys/fs/cgroup; do
    [ -z "$group" ] || break
    group=$top/mpstaged-test-$$
    limit=memory.limit_in_bytes
    [ "$top" != /sys/fs/cgroup ] || limit=memory.max
    mkdir "$group" "$group/in" 2>/dev/null || { group=; continue; }
    [ -w "$group/$limit" ] && sh -c 'echo $$ >"$1/in/cgroup.procs"' sh "$group" 2>/dev/null && continue
    rmdir "$group/in" "$group"; group=
done
if [ -n "$group" ]; then
    trap 'rmdir "$group/in" "$group"; rm -rf "$tmp"' EXIT
    # The limit is of the level above: all levels count.
    within() { sh -c 'echo $$ >"$1/in/cgroup.procs"; shift; exec "$@"' sh "$group" "$@"; }
    echo $((256 << 20)) >"$group/$limit"
    ended "a plan above a cgroup's limit" 69 "of the cgroup's $limit \\($group\\)" within "$mpstaged" -c net.conf \
        --run-dir run -o 'model.hidden={6000, 6000}'
    ended "--plan of it" 69 "of the cgroup's $limit" within "$mpstaged" -c net.conf --plan \
        -o 'model.hidden={6000, 6000}'
    # the largest that is let in is not killed
    width=500 last=
    while [ "$width" -lt 6000 ]; do
        code=0; within "$mpstaged" -c net.conf --run-dir run -o "model.hidden={$width, $width}" >out 2>err || code=$?
        rm -rf run
        [ "$code" -eq 0 ] || break
        last=$width width=$((width * 11 / 10))
    done
    check "runs up to a cgroup's limit end well, the next is refused (width $last)" \
        [ "$code" -eq 69 -a -n "$last" ]
else skip "a real cgroup" "no cgroup with a limit of memory can be made here"; fi
tap_done
