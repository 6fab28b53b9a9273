#!/bin/sh
# notify.sh: what a service manager hears of whole runs, and how lines look that go to systemd's journal.
set -eu
. "$(dirname -- "$0")/mpi_lib.sh"
write_conf long.conf 's/steps = 3/steps = 100000000/; $a service { log_every = 0 }'
write_conf short.conf
heard=$aside/heard

# manager: listens from now on; what it hears is in $heard
manager() {
    ! [ -n "${sink:-}" ] || kill "$sink" 2>/dev/null || true
    rm -f "$aside/notify"
    : >"$heard"
    "$build/tests/notify_sink" "$aside/notify" >"$heard" & sink=$!
    for _ in $(seq 100); do [ ! -S "$aside/notify" ] || return 0; sleep 0.05; done
}
# heard_all: what has been sent until now is in $heard; nobody listens any more
heard_all() { "$build/tests/notify_sink" "$aside/notify" end; wait "$sink"; sink=; }
# begin NAME OPTIONS...: starts a long run in the background and waits for a word of its steps
begin() {
    name=$1; shift
    manager
    NOTIFY_SOCKET=$aside/notify WATCHDOG_USEC=1000000 WATCHDOG_PID=1 mpirun_n 2 "$mpstaged" -c long.conf \
        --run-dir "$name" "$@" >"$aside/out" 2>"$aside/err" </dev/null & launcher=$!
    for _ in $(seq 400); do ! grep -q 'STATUS=step' "$heard" || return 0; sleep 0.05; done
    why; not_ok "$name: a long run starts"
}
# line PATTERN: the number of the first message with it
line() { grep -nE -- "$1" "$heard" | head -n 1 | cut -d : -f 1; }
# before A B: a message with A was heard, and before the first with B
before() { [ -n "$(line "$1")" ] && [ -n "$(line "$2")" ] && [ "$(line "$1")" -lt "$(line "$2")" ]; }
never() { ! grep -qE -- "$1" "$heard"; }
exactly() { [ "$(grep -cE -- "$1" "$heard")" = "$2" ]; }

# ---- a run from its start to mpstagectl stop -------------------------------------------------------------------------
begin whole
ready='^READY=1 \| STATUS=the first step is running \| X_MPSTAGED_RUN=/.*/whole \| WATCHDOG_USEC=10000000$'
check "READY names the run, once, by one rank" exactly "$ready" 1
check "the main process is not ours to name" never MAINPID
check "set-up says what it does and asks for time" \
    before '^STATUS=planning \| EXTEND_TIMEOUT_USEC=300000000$' '^READY=1'
check "READY is said when the last phase is over" before '^STATUS=creating the run directory' '^READY=1'
check "nothing of set-up feeds the watchdog" before '^READY=1' 'WATCHDOG=1'
check "the status has step, loss and speed" \
    grep -qE '^STATUS=step [0-9]+/100000000, loss [0-9.]+, [0-9.]+ samples/s \| WATCHDOG=1' "$heard"
check "after the first step the watchdog has its own time again" \
    grep -qE 'WATCHDOG=1 \| WATCHDOG_USEC=[0-9]{7}$' "$heard"
sleep 1
n=$(grep -c WATCHDOG=1 "$heard")
check "thousands of steps a second are few messages ($n)" [ "$n" -ge 2 -a "$n" -le 200 ]

# One rank stands still, so no step ends: all processes live, and nobody says so.
first=$("$mpstagectl" whole status --json | sed -n 's/.*"pid": *\([0-9]*\).*/\1/p')
other=$(ranks_alive | grep -vx "$first" | head -n 1)
kill -STOP "$other"; sleep 1; n=$(grep -c . "$heard"); sleep 1.5
check "a rank that stands still starves the watchdog" [ "$(grep -c . "$heard")" -eq "$n" ]
kill -CONT "$other"
more() { [ "$(grep -cE -- "$1" "$heard")" -gt "$2" ]; }
check "and a rank that goes on feeds it" until_ok more . "$n"
"$mpstagectl" whole pause >"$aside/pause"
check "a run that pauses feeds it, because it is told to stand still" \
    until_ok more '^STATUS=paused after step [0-9]*/100000000, .* \| WATCHDOG=1' 3
"$mpstagectl" whole resume >"$aside/resume"
steps_feed() { tail -n 1 "$heard" | grep -q '^STATUS=step [0-9]*/.*WATCHDOG=1'; }
check "and then its steps do" until_ok steps_feed
"$mpstagectl" whole stop --wait >"$aside/stop"
code=0; wait "$launcher" || code=$?
heard_all
check "the run ends well" [ "$code" -eq 0 ]
check "STOPPING is said once, and ends the watchdog" \
    exactly '^STOPPING=1 \| STATUS=stopping \| EXTEND_TIMEOUT_USEC=[0-9]+ \| WATCHDOG_USEC=0$' 1

# ---- checkpoints -----------------------------------------------------------------------------------------------------
manager
NOTIFY_SOCKET=$aside/notify; export NOTIFY_SOCKET
job 2 -c short.conf --run-dir kept -o checkpoint.every_steps=2 --steps 4
heard_all
check "each checkpoint is told when it is on disk" exactly '^X_MPSTAGED_CHECKPOINT=[24]$' 2
manager
job 2 -c short.conf --run-dir kept -o checkpoint.every_steps=2 --steps 6 --resume
heard_all
check "and the one from which a run goes on, before READY" before '^X_MPSTAGED_RESUMED=4$' '^READY=1'
check "the status names the newest" grep -qE '^STATUS=step [56]/6, .*, checkpoint [46] ' "$heard"

# A disk that is slow: where steps wait for a checkpoint, the watchdog waits, too, and has its own time again when a
# step has ended after it.
cat >"$aside/slow.c" <<'END'
#define _GNU_SOURCE
#include <dlfcn.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
int fsync(int fd)                                          /* the first one of a checkpoint of rank 0 */
{
    static atomic_int n;
    char link[40], path[4096] = "";
    int (*next)(int) = dlsym(RTLD_NEXT, "fsync");
    const char *rank = getenv("OMPI_COMM_WORLD_RANK") ?: getenv("PMI_RANK");
    snprintf(link, sizeof link, "/proc/self/fd/%d", fd);
    if (readlink(link, path, sizeof path - 1) < 0) path[0] = 0;
    if (rank && *rank == '0' && strstr(path, "/step-") && !atomic_fetch_add(&n, 1)) sleep(3);
    return next(fd);
}
END
if ${CC:-cc} -shared -fPIC -o "$aside/slow.so" "$aside/slow.c" -ldl 2>"$aside/err"; then
    manager
    export WATCHDOG_USEC=1000000 LD_PRELOAD="$aside/slow.so"
    job 2 -c short.conf --run-dir slow -o checkpoint.every_steps=2 --steps 9
    unset WATCHDOG_USEC LD_PRELOAD
    heard_all
    check "where steps wait for a checkpoint, the watchdog waits for the disk" before 'WATCHDOG_USEC=4200000000$' \
        '^STOPPING=1'
    check "until a step has ended" [ -n "$(sed -n '/WATCHDOG_USEC=4200000000$/,/^STOPPING=1/p' "$heard" |
        grep -E '^STATUS=step .* \| WATCHDOG=1 \| WATCHDOG_USEC=[0-9]{7,8}$')" ]
else skip "a watchdog that waits for a disk" "no C compiler"; fi
check "our units have the watchdog that the deadlines were compared with" \
    [ "$(sed -n 's/^WatchdogSec=\([0-9]*\)min$/\1/p' "$here/../launcher/service/unit.in")" -eq \
    $(($(sed -n 's/.*DEADLINE_WATCHDOG = \([0-9]*\),.*/\1/p' "$here/../src/base/deadline.h") / 60000)) ]

# Nobody asked for that: a supervisor is told that something is lost (69), not that the run was stopped (75).
begin orphaned
kill -KILL "$(pgrep -P "$launcher")"
for _ in $(seq 100); do ! grep -q X_MPSTAGED_FAILED "$heard" || break; sleep 0.05; done
wait "$launcher" || true
# MPICH's proxy kills the ranks before they can say so.
[ "$mpi" = mpich ] ||
    check "a run whose launcher was killed says that it lost it" grep -q 'X_MPSTAGED_FAILED=69$' "$heard"
check "and not that it was stopped" never 'X_MPSTAGED_FAILED=75'
! grep -q 'X_MPSTAGED_FAILED=75' "$heard" || { tail -n 3 "$heard"; cat "$aside/err"; } | note

# ---- other ends ------------------------------------------------------------------------------------------------------
manager
job 2 -c short.conf --run-dir short
heard_all
check "a run that ends by itself stops, too" [ "$code" -eq 0 -a -n "$(line '^STOPPING=1 \| STATUS=writing weights')" ]
check "without a watchdog its time is not changed" never WATCHDOG_USEC
manager
job 2 -c short.conf --run-dir short
heard_all
check "a run that fails says why, and never READY" [ "$code" -eq 73 -a -z "$(line READY)" -a \
    -n "$(line '^STATUS=failed: short: holds the results of an earlier run')" ]
manager
"$mpstaged" -c short.conf --run-dir threads >"$aside/out" 2>"$aside/err" || why
"$mpstaged" -c short.conf --check-config >"$aside/out" 2>"$aside/err" || why
heard_all
check "stages that are threads are one run, and a check is none" exactly '^READY=1' 1
rm -f "$aside/notify"
job 2 -c short.conf --run-dir alone
check "a manager that is gone changes nothing" [ "$code" -eq 0 ]
unset NOTIFY_SOCKET

# ---- the journal -----------------------------------------------------------------------------------------------------
# Its socket is known by device and inode; a file is as good. The ranks' standard error is a pipe to mpirun.
: >"$aside/journal"
JOURNAL_STREAM=$(stat -c %d:%i "$aside/journal"); export JOURNAL_STREAM
code=0
mpirun_n 2 "$mpstaged" -c short.conf --run-dir journal >"$aside/out" 2>>"$aside/journal" </dev/null || code=$?
mpirun_n 2 "$mpstaged" -c short.conf --run-dir journal >"$aside/out" 2>>"$aside/journal" </dev/null || code=$?
check "notes and other lines begin with their priority" [ "$(grep -c '^<6>mpstaged [0-9]' "$aside/journal")" -eq 1 -a \
    "$(grep -c '^<5>note: ' "$aside/journal")" -ge 1 ]
check "and so does the error" [ "$(grep -c '^<3>mpstaged: journal: holds' "$aside/journal")" -eq 1 ]
check "all lines of ours do" [ "$(grep -cE '^(note: |step [0-9]|mpstaged|account )' "$aside/journal")" -eq 0 ]
check "mpstaged.log has no priorities" [ -s journal/mpstaged.log -a "$(grep -c '<[0-9]>' journal/mpstaged.log)" -eq 0 ]
job 2 -c short.conf --run-dir aside
check "what is redirected elsewhere has none" [ "$code" -eq 0 -a "$(grep -c '^<[0-9]>' "$aside/err")" -eq 0 ]
tap_done
