#!/bin/sh
# hang.sh: a rank that stands still, in whatever phase, is found and named, and all end with 81; one that goes on again
# in time changes nothing; one that is gone ends the others at once. LONG=1 stops all ranks, at more moments.
set -eu
. "$(dirname -- "$0")/mpi_lib.sh"
source_dir=$here
LIMIT=2                                                  # seconds, instead of 10
PROMISED=$(sed -n 's/.*DEADLINE_PROMISED_HANG = \([0-9]*\),.*/\1/p' "$here/../src/base/deadline.h")   # ms, after it
many=${LONG:-}

write_conf toy.conf 's/steps = 3/steps = 100000000/; $a service { log_every = 0 }'
write_conf mlp.conf 's/network = "toy"/network = "mlp"  hidden = {16, 16, 16}/; s/stages = 2/stages = 4/
    s/steps = 3/steps = 100000000/; $a service { log_every = 0 }'
# One step, and then an evaluation that does not end.
sed 's/samples = 200/&  test_samples = 1000000000/; s/steps = 100000000/steps = 1/' toy.conf >eval.conf
# Weights that take a while to write.
write_conf big.conf 's/network = "toy"/network = "mlp"  hidden = {8000}/; s/input = {10}/input = {8000}/
    s/batch_size = 20  split_size = 8/batch_size = 2  split_size = 1/; s/steps = 3/steps = 1/'
# A plan that takes a while to make.
{
    echo "graph chain"; echo "input input 8"; echo "labels labels 5"
    awk 'BEGIN { from = "input"
        for (i = 0; i < 2000; i++) { printf "l%d = linear(%s) features=8 layer=Linear\n", i, from; from = "l" i }
        printf "out = linear(%s) features=5 layer=Linear\n", from
        print "loss = softmax_cross_entropy(out, labels)\noutput out\nloss loss" }'
} >chain.graph
cat >chain.conf <<'END'
run      { name = "chain" }
model    { graph = "chain.graph" }
data     { source = "synthetic"  labels = "class"  samples = 64 }
train    { batch_size = 16  split_size = 4  steps = 20  optimizer = "sgd"  learning_rate = 0.001 }
pipeline { stages = 2  partition = "auto" }
END

# ---- jobs ------------------------------------------------------------------------------------------------------------
# begin RANKS OPTIONS...: a job in the background in run/; 0 ranks: one process without mpirun. Sets $pid
begin() {
    rm -rf run
    begin_ranks=$1; shift
    if [ "$begin_ranks" -eq 0 ]; then
        "$mpstaged" --run-dir run --progress no -o run.hang_timeout=$LIMIT "$@" \
            >"$aside/out" 2>"$aside/err" </dev/null & pid=$!
    else
        mpirun_n "$begin_ranks" "$mpstaged" --run-dir run --progress no -o run.hang_timeout=$LIMIT "$@" \
            >"$aside/out" 2>"$aside/err" </dev/null & pid=$!
    fi
}
# until COMMAND...: tries it for 30 s; fails when the job has ended
until_true() {
    for _ in $(seq 1500); do
        ! "$@" || return 0
        kill -0 $pid 2>/dev/null || return 1
        sleep 0.02
    done
    return 1
}
# rank_pid RANK: as mpirun told the process
rank_pid() {
    for p in $(ranks_alive); do
        if { tr '\0' '\n' <"/proc/$p/environ"; } 2>/dev/null | grep -qx "$mpi_rank=$1"; then
            echo "$p"; return 0
        fi
    done
    return 1
}
in_step() { grep -qs '"step":3,' run/metrics.jsonl && sleep 0.5; }  # until ranks have said so, too
evaluates() { grep -qs ' evaluating ' run/mpstaged.log && sleep 0.5; }
writes() { grep -qs '"step":1,' run/metrics.jsonl; }       # its last one
# Whether the process of a rank hears SIGTERM yet: before that it only loads libraries.
hears() {
    heard=$(rank_pid "$1") || return 1
    mask=$(sed -n 's/^SigCgt:[[:space:]]*//p' "/proc/$heard/status" 2>/dev/null) || return 1
    [ -n "$mask" ] && [ $((0x$mask >> 14 & 1)) -eq 1 ]
}
has_rank() { rank_pid "$1" >/dev/null; }

# steps_allow: sets $limit, ms: a machine that is so busy that steps are slow makes the limit longer
steps_allow() {
    limit=$(sed -n 's/.*"event":"step".*"step_seconds":\([0-9.e-]*\).*/\1/p' run/metrics.jsonl 2>/dev/null |
        awk -v s=$LIMIT '5 * $1 > s { s = 5 * $1 } END { printf "%.0f\n", 1000 * s }')
}
# ends TEXT CODE PATTERN: the job ends with that code and one line with that pattern, as soon after the limit as is
# promised, and leaves nobody behind
ends() {
    ends_text=$1 ends_code=$2 ends_pattern=$3 code=0
    wait $pid || code=$?
    took=$((($(date +%s%N) - since) / 1000000))
    wrong=
    [ "$code" -eq "$ends_code" ] || wrong="$wrong; exit code $code"
    [ "$(our_lines)" -eq 1 ] || wrong="$wrong; $(our_lines) lines of ours, wanted 1"
    grep '^mpstaged: ' "$aside/err" | grep -qE -- "$ends_pattern" || wrong="$wrong; no line with $ends_pattern"
    steps_allow
    soon $((limit + PROMISED)) || wrong="$wrong; after $took ms"
    nobody_left || wrong="$wrong; ranks are alive"
    if [ -z "$wrong" ]; then ok "$ends_text: $code after $took ms"; else why; not_ok "$ends_text$wrong"; fi
}
# stands TEXT RANK PATTERN: stops that rank now; it is named, with what it was at
stands() {
    victim=$(rank_pid "$2") || { why; not_ok "$1: rank $2 is there"; return 0; }
    since=$(date +%s%N)
    kill -STOP "$victim"
    ends "$1" 81 "^mpstaged: rank $2 \\([^ ]+, process $victim\\) is not responding: .*$3.*, for [0-9.]+ s"
}

# ---- phases ----------------------------------------------------------------------------------------------------------
for r in $(cases 1 0); do
    begin 2 -c toy.conf; until_true hears "$r"
    stands "rank $r of 2 at its start" "$r" "."
done
for r in 0 1; do
    begin 2 -c toy.conf; until_true in_step
    stands "rank $r of 2 in a step" "$r" "(of step|between)"
    check "the metrics say so" sh -c 'tail -n 1 run/metrics.jsonl | grep -q "\"event\":\"failed\",\"code\":81"'
done
begin 2 -c chain.conf; until_true has_rank 1; sleep 1
stands "rank 1 of 2 while it plans" 1 "."
begin 2 -c eval.conf; until_true evaluates
stands "rank 1 of 2 in an evaluation" 1 "(of evaluation batch|between|evaluating)"
for r in $(cases 2 0); do
    begin 4 -c mlp.conf; until_true in_step
    stands "rank $r of 4 in a step" "$r" "(of step|between)"
done
# The moment may be missed where the machine is fast: then the run ends well, and is tried again.
for r in $(cases 0 1); do
    for _ in 1 2 3; do
        begin 2 -c big.conf
        ! until_true writes || break
    done
    stands "rank $r of 2 while weights are written" "$r" "."
done
if [ -n "$many" ]; then
    for r in 0 1 2 3; do
        for s in 0.1 0.3 0.5 0.7 1 1.5 2; do
            begin 4 -c mlp.conf; until_true has_rank "$r"; sleep $s
            stands "rank $r of 4 after $s s" "$r" "."
        done
    done
fi

# ---- one process -----------------------------------------------------------------------------------------------------
begin 0 -c toy.conf; until_true in_step
since=$(date +%s%N); kill -STOP $pid
ends "a process with two ranks, stopped" 81 \
    "^mpstaged: process $pid \\([^ ]+\\) is not responding: it was stopped, .*, for "
check "the metrics say so, too" sh -c 'tail -n 1 run/metrics.jsonl | grep -q "\"event\":\"failed\",\"code\":81"'

# A debugger holds one thread: the others see that it does not get on. tracer TID: holds it until the process ends.
tracer() {
    python3 - "$1" >"$aside/traced" 2>&1 <<'END' &
import ctypes, os, sys
libc, tid = ctypes.CDLL(None, use_errno=True), int(sys.argv[1])
libc.ptrace.argtypes = [ctypes.c_long, ctypes.c_long, ctypes.c_void_p, ctypes.c_void_p]
if libc.ptrace(0x4206, tid, None, None): sys.exit("cannot trace: errno %d" % ctypes.get_errno())
libc.ptrace(0x4207, tid, None, None)
os.waitpid(tid, 0x40000000)
print("held", flush=True)
while True:
    try: os.waitpid(tid, 0x40000000)
    except ChildProcessError: break
END
    tracer_pid=$!
    for _ in $(seq 100); do [ ! -s "$aside/traced" ] || return 0; sleep 0.05; done
}
# thread_of PID NAME: the first thread of that name
thread_of() {
    for t in "/proc/$1/task"/*; do [ "$(cat "$t/comm")" != "$2" ] || echo "${t##*/}"; done | sort -n | head -n 1
}
# holds TEXT TID PATTERN: that thread is held, which is found
holds() {
    tracer "$2"
    since=$(date +%s%N)
    if grep -qx held "$aside/traced"; then ends "$1" 81 "$3"
    else
        kill -KILL $pid; wait $pid 2>/dev/null || true
        skip "$1" "$(cat "$aside/traced")"
    fi
    wait $tracer_pid || true
}
if command -v python3 >/dev/null; then
    begin 0 -c toy.conf; until_true in_step
    holds "one of two ranks in a process, its thread held" "$(thread_of $pid mpstaged:1)" \
        "^mpstaged: rank 1 is not responding: (.* of step [0-9]+|between two steps), for "
    # Its process still says that it is there.
    begin 2 -c toy.conf; until_true in_step
    thread=$(rank_pid 1)
    holds "one of two processes, its main thread held" "$thread" \
        "^mpstaged: rank 1 \\([^ ]+, process $thread\\) is not responding: .*, for "
    # All ranks live and wait for orders that do not come. Paused, so that the thread is not held in a file.
    for ranks in 2 0; do
        begin $ranks -c toy.conf; until_true in_step
        "$mpstagectl" run pause >/dev/null; sleep 0.3
        first=$pid name="rank 0"
        [ $ranks -eq 0 ] || first=$(rank_pid 0) name="rank 0 \\([^ ]+, process $first\\)"
        holds "the scheduler of rank 0, held, $ranks processes" "$(thread_of "$first" mpstaged:sched)" \
            "^mpstaged: $name is not responding: its scheduler, for [0-9.]+ s"
    done
else
    skip "threads that are held" "apt-get install python3"
fi

# ---- devices' transports ---------------------------------------------------------------------------------------------
double=$build/tests/gpu/mpstaged-double
if [ -x "$double" ]; then
    program=$mpstaged mpstaged=$double
    for transport in $(cases nccl staged); do
        begin 2 -c toy.conf --device cuda --transport $transport; until_true in_step
        stands "rank 1 of 2, $transport" 1 "(of step|between)"
    done
    mpstaged=$program
else skip "ranks with devices" "no C++ compiler"; fi

# ---- gone ------------------------------------------------------------------------------------------------------------
# says_exit RANK PROCESS: our one line says that it exited
says_exit() { says_death "rank $1 \\([^ ]+, process $2\\) exited"; }
# mpirun says that it was SIGKILL where it sees that before it hears of our end.
for r in 0 1; do
    begin 2 -c toy.conf; until_true in_step
    victim=$(rank_pid $r)
    since=$(date +%s%N); kill -KILL "$victim"
    code=0; wait $pid || code=$?
    took=$((($(date +%s%N) - since) / 1000000))
    if { [ $code -eq 69 ] || [ $code -eq "$(death 9)" ]; } && soon 3000 && says_exit $r $victim; then
        ok "rank $r is killed, and the others say so: $code after $took ms"
    else why; not_ok "rank $r is killed: $code after $took ms"; fi
    check "nobody is left" nobody_left
done
# Without rank 0 one of those that are left speaks, and no other.
for victims in 0 "0 1"; do
    begin 4 -c mlp.conf; until_true in_step
    first=$(rank_pid 0) pids=
    for r in $victims; do pids="$pids $(rank_pid "$r")"; done
    kill -KILL $pids
    code=0; wait $pid || code=$?
    if { [ $code -eq 69 ] || [ $code -eq "$(death 9)" ]; } && says_exit 0 "$first"; then
        ok "of 4 ranks are killed: $victims, and one other says so: $code"
    else why; not_ok "of 4 ranks are killed: $victims: $code, $(our_lines) lines"; fi
    check "nobody is left" nobody_left
done

# ---- in time ---------------------------------------------------------------------------------------------------------
# Stopped and continued below the limit: the bits of the run that nobody stopped.
bits() { grep -oE '"step":[0-9]+|"loss_bits":"[^"]*"' "$1/metrics.jsonl"; }
LIMIT=10
for ranks in $(cases 2 0); do
    steps="--steps 8000" stops=0
    [ $ranks -ne 0 ] || steps="--steps 20000"            # threads are quick
    begin $ranks -c toy.conf $steps
    code=0; wait $pid || code=$?
    rm -rf plain; mv run plain
    begin $ranks -c toy.conf $steps; until_true in_step
    for r in 1 0; do
        if [ $ranks -eq 0 ]; then victim=$pid; else victim=$(rank_pid $r || echo $pid); fi
        ! kill -STOP "$victim" 2>/dev/null || stops=$((stops + 1))
        sleep 1.5; kill -CONT "$victim" 2>/dev/null || true; sleep 0.1
    done
    stopped=0; wait $pid || stopped=$?
    bits plain >"$aside/a"; bits run >"$aside/b"
    if [ "$code$stopped" = 00 ] && [ $stops -ge 1 ] && [ -s "$aside/a" ] && cmp -s "$aside/a" "$aside/b" &&
        [ "$(hash_of plain)" = "$(hash_of run)" ]; then
        ok "stopped $stops times and continued, $ranks processes: the same bits"
    else why; not_ok "stopped and continued, $ranks processes: $code, $stopped"; fi
done

# A step that takes longer than the limit, in a single kernel even: its length is what the limit grows with.
cat >slow.conf <<'END'
run      { name = "slow"  device = "reference"  hang_timeout = 1 }
model    { network = "mlp"  input = {3000}  hidden = {3000}  classes = 5 }
data     { source = "synthetic"  samples = 128 }
train    { batch_size = 128  split_size = 128  steps = 2  optimizer = "sgd"  learning_rate = 0.001 }
pipeline { stages = 2 }
END
"$mpstaged" -c slow.conf --run-dir slow >"$aside/out" 2>"$aside/err" </dev/null && code=0 || code=$?
longest=$(sed -n 's/.*"event":"step".*"step_seconds":\([0-9.e-]*\).*/\1/p' slow/metrics.jsonl | sort -g | tail -n 1)
if [ $code -eq 0 ] && awk -v s="$longest" 'BEGIN { exit !(s > 1) }'; then
    ok "steps of up to $longest s, run.hang_timeout = 1: 0"
else why; not_ok "steps of up to $longest s, run.hang_timeout = 1: $code"; fi

# One of two ranks that gets a small part of its time is slow, and nothing else happens; later it is not.
write_conf duty.conf 's/network = "toy"/network = "mlp"  hidden = {3000}/; s/input = {10}/input = {3000}/
    s/batch_size = 20  split_size = 8/batch_size = 64  split_size = 16/; s/steps = 3/steps = 1000000/'
begin 2 -c duty.conf --learning-rate 0.000001
fast() { grep -qs '"step":13,' run/metrics.jsonl; }
slow() { grep -qs '"event":"straggler".*"rank":0,.*"over":false' run/metrics.jsonl; }
over() { grep -qs '"event":"straggler".*"rank":0,.*"over":true' run/metrics.jsonl; }
until_true fast || true
victim=$(rank_pid 0)
for _ in $(seq 400); do
    ! slow || break
    kill -STOP "$victim"; sleep 0.2; kill -CONT "$victim"; sleep 0.02
done
check "a rank that gets little of its core is named as slow" \
    grep -qE "^note: rank 0 \\([^ ]+, process $victim\\) is slow" "$aside/err"
until_true over || true
check "and no longer when it is not" grep -qE "^note: rank 0 .* is no longer slow" "$aside/err"
check "both in the metrics, and the run goes on" sh -c 'kill -0 '$pid' &&
    [ "$(grep -c "\"event\":\"straggler\".*\"rank\":0," run/metrics.jsonl)" -eq 2 ]'
"$mpstagectl" run stop >/dev/null
wait $pid || true
check "it leaves nobody" nobody_left

# ---- ranks that are not alike -------------------------------------------------------------------------------------
# unlike TEXT PATTERN PROGRAM OPTIONS...: rank 1 is that program with these options
unlike() {
    unlike_text=$1 unlike_pattern=$2 unlike_program=$3; shift 3
    rm -rf run
    code=0
    # not by mpirun's colon: with it Open MPI 5.0.7 of Debian 13 crashes now and then
    cat >"$aside/unlike" <<'END'
#!/bin/sh
first=$1 other=$2; shift 2
[ "${OMPI_COMM_WORLD_RANK:-$PMI_RANK}" -ne 0 ] || exec "$first" -c toy.conf --run-dir run
exec "$other" -c toy.conf --run-dir run "$@"
END
    chmod +x "$aside/unlike"
    mpirun_n 2 "$aside/unlike" "$mpstaged" "$unlike_program" "$@" >"$aside/out" 2>"$aside/err" </dev/null || code=$?
    if [ $code -eq 78 ] && [ "$(our_lines)" -eq 1 ] && grep -qE "^mpstaged: $unlike_pattern" "$aside/err" &&
        [ ! -e run ]; then ok "$unlike_text: 78"
    else why; not_ok "$unlike_text: $code"; fi
}
unlike "rank 1 with another learning rate" 'rank 1 has another configuration than rank 0: "learning_rate = 0\.2"' \
    "$mpstaged" -o train.learning_rate=0.2
unlike "rank 1 with another batch size" 'rank 1 (has another|would compute)' "$mpstaged" -o train.batch_size=10
version=$("$mpstaged" --version | sed -n '1s/.* \([0-9.]*\)$/\1/p')
other=$(echo "$version" | tr 0-8 1-9)
LC_ALL=C sed "s/mpstaged-version=$version/mpstaged-version=$other/g" "$mpstaged" >mpstaged-other
chmod +x mpstaged-other
unlike "rank 1 of another version" "rank 1 \\([^ ]+, process [0-9]+\\) runs mpstaged $other, rank 0 runs $version:" \
    "$tmp/mpstaged-other"

# A disk that stands still is no rank that does: rank 0 begins a checkpoint, waits for the one before to be written, or
# writes down what a step came to.
cat >"$aside/slow.c" <<'END'
#define _GNU_SOURCE
#include <dlfcn.h>
#include <fcntl.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>
/* The $SLOW_NTH call of the name $SLOW on rank $SLOW_RANK takes $SLOW_SECONDS. */
static void slow(const char *call)
{
    static atomic_int n;
    const char *rank = getenv("OMPI_COMM_WORLD_RANK") ?: getenv("PMI_RANK"), *wanted = getenv("SLOW");
    if (!rank || !wanted || strcmp(wanted, call) || strcmp(rank, getenv("SLOW_RANK"))) return;
    if (atomic_fetch_add(&n, 1) + 1 != atoi(getenv("SLOW_NTH"))) return;
    close(open("held", O_CREAT | O_WRONLY, 0666));
    sleep((unsigned)atoi(getenv("SLOW_SECONDS")));
}
int fsync(int fd)
{
    int (*next)(int) = dlsym(RTLD_NEXT, "fsync");
    slow("fsync");
    return next(fd);
}
int mkdirat(int at, const char *path, mode_t mode)
{
    int (*next)(int, const char *, mode_t) = dlsym(RTLD_NEXT, "mkdirat");
    slow("mkdirat");
    return next(at, path, mode);
}
int faccessat(int at, const char *path, int mode, int flags)   /* of the checkpoint to which a run goes back */
{
    int (*next)(int, const char *, int, int) = dlsym(RTLD_NEXT, "faccessat");
    if (!strncmp(path, "step-", 5)) slow("faccessat");
    return next(at, path, mode, flags);
}
ssize_t write(int fd, const void *p, size_t n)           /* of what a step came to */
{
    static const char step[] = "{\"event\":\"step\"";
    ssize_t (*next)(int, const void *, size_t) = dlsym(RTLD_NEXT, "write");
    if (n > sizeof step && !memcmp(p, step, sizeof step - 1)) slow("write");
    return next(fd, p, n);
}
END
# Its loss soon is not a number.
sed 's/learning_rate = 0.1/learning_rate = 1e6  nonfinite = "rollback"/' toy.conf >back.conf
# slowly RANK CALL NTH SECONDS: what begins next has a disk that does so
slowly() {
    rm -f held
    export LD_PRELOAD="$aside/slow.so" SLOW_RANK="$1" SLOW="$2" SLOW_NTH="$3" SLOW_SECONDS="$4"
}
slow_disk() {
    LIMIT=2
    for call in $(cases fsync:8 "mkdirat:2 write:2"); do       # the eighth is one of a checkpoint's
        call="${call%:*} ${call#*:}"
        slowly 0 $call 5
        begin 2 -c toy.conf --steps 9 -o checkpoint.every_steps=2
        unset LD_PRELOAD
        code=0; wait $pid || code=$?
        if [ $code -eq 0 ] && [ -e held ]; then ok "a slow ${call% *} is no rank that stands still"
        else why; not_ok "a slow ${call% *} is no rank that stands still: $code"; fi
    done
    # A rank that is stopped meanwhile is found all the same: that which is at the disk, and one that waits for it.
    for r in $(cases 1 0); do
        slowly 0 fsync 8 60
        begin 2 -c toy.conf -o checkpoint.every_steps=2
        unset LD_PRELOAD
        until_true [ -e held ]
        stands "rank $r of 2 while rank 0 writes a checkpoint" "$r" "."
        slowly 0 faccessat 1 60
        begin 2 -c back.conf -o checkpoint.every_steps=1
        unset LD_PRELOAD
        until_true [ -e held ]
        stands "rank $r of 2 while rank 0 goes back to a checkpoint" "$r" "."
    done
    [ -n "$many" ] || return 0
    slowly 0 write 2 1000
    MPIEXEC_TIMEOUT=900                                   # more than DEADLINE_WRITER
    begin 2 -c toy.conf
    MPIEXEC_TIMEOUT=300
    unset LD_PRELOAD
    until_true [ -e held ]
    since=$(date +%s%N) LIMIT=600
    ends "a disk that does not answer" 74 "^mpstaged: rank 0 \\([^ ]+, process [0-9]+\\) has waited for metrics\.jsonl \
without progress for 600\.[0-9] s: the file system is not responding"
}
if ${CC:-cc} -shared -fPIC -o "$aside/slow.so" "$aside/slow.c" -ldl 2>"$aside/err"; then slow_disk
else skip "a slow disk is no rank that stands still" "no C compiler"; fi

# Who asks for it may stand still as long as they like.
begin 0 -c toy.conf -o run.hang_timeout=0; until_true in_step
kill -STOP $pid; sleep 3; kill -CONT $pid; sleep 0.3
check "run.hang_timeout = 0: nobody is judged" kill -0 $pid
kill -KILL $pid; wait $pid 2>/dev/null || true

# A firewall between hosts: MPI gets through, and heartbeats do not.
MPSTAGED_WITHOUT=h LD_PRELOAD=$build/tests/faults/without.so mpirun_n 2 "$mpstaged" -c toy.conf --steps 3 \
    --run-dir deaf >"$aside/out" 2>"$aside/err" </dev/null || true
check "a rank whose heartbeats do not get through is named" grep -q \
    '^warning: 1 of 2 ranks cannot connect to rank 0, first rank 1 (' "$aside/err"
check "and the run ends well" grep -q '^done: ' "$aside/err"
tap_done
