#!/bin/sh
# supervise.sh: mpstage-run: what it starts again and what not, stops, hangs, and that nothing is left behind. Mostly
# with a made-up job (fake_job.c), at last with mpirun and mpstaged.
set -eu
. "$(dirname -- "$0")/mpi_lib.sh"
runner=$build/mpstage-run fake=$build/tests/fake_job
unset NOTIFY_SOCKET

now() { since=$(date +%s%N); }
took() { took=$((($(date +%s%N) - since) / 1000000)); }
# A busy machine gets ten times as long.
within() { [ "$took" -lt $((10 * $1)) ]; }
# Processes that have this script's folder as theirs and this name.
named() {
    for p in $(pgrep "$1" || true); do
        [ "$(readlink "/proc/$p/cwd" 2>/dev/null)" != "$tmp" ] || echo "$p"
    done
}
all_gone() {
    for _ in $(seq 60); do
        [ -n "$(named fake_job)$(named mpstage-run)$(named mpirun)$(named prterun)$(ranks_alive)" ] || return 0
        sleep 0.05
    done
    return 1
}
# starts: how often the job was started, and with which options of ours: "1 2+--resume"
starts() { sed -n 's/^start [0-9]* *//p' log | awk '{ printf "%s%d%s", (NR > 1 ? " " : ""), NR, ($0 ? "+" $0 : "") }'; }
lines() { grep -c '^mpstage-run: ' "$aside/err" || true; }
# run OPTIONS... -- WORDS...: to its end; sets $code and $took
run() {
    rm -f log
    run_options=
    while [ "$1" != -- ]; do run_options="$run_options $1"; shift; done
    shift
    now; code=0
    # shellcheck disable=SC2086
    timeout -k 5 120 "$runner" $run_options -- "$fake" log "$@" >"$aside/out" 2>"$aside/err" </dev/null || code=$?
    took
}
# ends TEXT CODE STARTS LINES [PATTERN]: so did the last run, and nothing is left of it
ends() {
    ends_wrong=
    [ "$code" -eq "$2" ] || ends_wrong="$ends_wrong; code $code, wanted $2"
    [ "$(starts)" = "$3" ] || ends_wrong="$ends_wrong; started as $(starts), wanted $3"
    [ "$(lines)" -eq "$4" ] || ends_wrong="$ends_wrong; $(lines) lines, wanted $4"
    [ -z "${5:-}" ] || tail -1 "$aside/err" | grep -qE -- "^mpstage-run: .*$5" || ends_wrong="$ends_wrong; no $5"
    [ "$(longest <"$aside/err")" -le 120 ] || ends_wrong="$ends_wrong; a long line"
    all_gone || ends_wrong="$ends_wrong; processes are left"
    if [ -z "$ends_wrong" ]; then ok "$1"
    else { echo "$1$ends_wrong"; cat "$aside/err"; cat log; } | note; not_ok "$1"; fi
}

# ---- what is started again -------------------------------------------------------------------------------------------
run -- exit=0
ends "a command that succeeds is started once, and nothing is said" 0 1 0
for c in 64 65 66 73 77 78 79 80 126 127; do
    run -- ready exit=$c
    ends "status $c is handed on" $c 1 0
done
run -- ready saved=7 exit=69 / exit=0
ends "69 after a checkpoint: again with --resume" 0 "1 2+--resume" 1 'ended with 69; step 7 is saved; restart 1$'
check "at once: $took ms" within 100
run -- ready saved=7 kill=KILL / resumed=7 ready saved=8 kill=SEGV / resumed=8 ready saved=9 exit=1 / exit=0
ends "killed, crashed, ended with 1" 0 "1 2+--resume 3+--resume 4+--resume" 3 '1; step 9 is saved; restart 3$'
check "139 is named" grep -q ' ended with 139 (SIGSEGV); step 8 ' "$aside/err"
run -- exit=70 / exit=0 --overwrite --steps=3
ends "--overwrite is not said again" 0 "1+--overwrite --steps=3 2+--steps=3 --resume" 1
run -- failed=69 exit=69 / ready kill=KILL / failed=69 exit=69 / exit=0 --overwrite
ends "but where it failed before it began" 0 "1+--overwrite 2+--overwrite 3+--resume 4+--resume" 3
run -- exit=81 / exit=0 --resume
ends "--resume is not said twice" 0 "1+--resume 2+--resume" 1
run -- exit=81 / exit=0 --resume=force
ends "nor beside --resume=force" 0 "1+--resume=force 2+--resume=force" 1

# ---- when it gives up ------------------------------------------------------------------------------------------------
four="1 2+--resume 3+--resume 4+--resume"
run --backoff 0.1 -- exit=70
ends "three restarts without a checkpoint end it" 70 "$four" 4 'giving up: 3 restarts .* ended with 70; no checkpoint'
check "with pauses before the second and third: $took ms" [ "$took" -ge 300 ]
run --backoff 0 -- ready saved=4 exit=69 / resumed=4 ready exit=69
ends "those after the last checkpoint count" 70 "$four" 4 'giving up: 3 restarts .*; step 4 is saved$'
run --backoff 0 -- ready saved=4 exit=69 / ready saved=3 saved=4 exit=69
ends "an old checkpoint once more is none" 70 "$four" 4 'giving up'
run --backoff 0 -- exit=69 / exit=69 / exit=69 / saved=1 exit=69 / exit=69 / exit=0
ends "a checkpoint begins the count anew" 0 "$four 5+--resume 6+--resume" 5
run --max-fruitless 1 -- exit=69
ends "--max-fruitless 1" 70 "1 2+--resume" 2 'giving up: 1 restart without a new checkpoint'
run --max-fruitless 6 --backoff 0.02 -- exit=69 / exit=69 / exit=69 / exit=69 / exit=69 / exit=69 / exit=0
ends "--max-fruitless 6" 0 "$four 5+--resume 6+--resume 7+--resume" 6
check "with pauses that double: $took ms" [ "$took" -ge 620 ]
run --max-restarts 0 -- exit=69
ends "--max-restarts 0" 69 1 1 'giving up after 0 restarts: the command ended with 69; no checkpoint'
run --max-restarts 2 -- ready saved=1 kill=KILL / saved=2 kill=KILL / saved=3 kill=KILL
ends "--max-restarts 2" 137 "1 2+--resume 3+--resume" 3 'giving up after 2 restarts: .* 137 \(SIGKILL\); step 3'
run --backoff 0 -- ready saved=9 kill=KILL / resumed=5 ready exit=0
ends "a checkpoint that was passed over is told" 0 "1 2+--resume" 2 'resumed from step 5, although step 9 was saved$'

# ---- 75 --------------------------------------------------------------------------------------------------------------
run -- ready saved=9 exit=75
ends "75 of a run that somebody else has stopped" 75 1 0
run -- exit=75 / exit=75 / exit=0
ends "75 at once: in use by a run that ends; tried in the same way" 0 "1 2 3" 1 'may be in use .*trying again for 10 s$'

run -- ready saved=9 failed=75 kill=KILL
ends "75 that the command told of before its launcher killed it" 75 1 0
run --max-restarts 0 -- ready failed=69 kill=KILL
ends "a lost process is the signal's end" 137 1 1 'ended with 137 \(SIGKILL\)'

# ---- why.json --------------------------------------------------------------------------------------------------------
mkdir -p "$aside/run"
echo '{"status": 79, "text": "step 3: the loss is not finite", "restart": false}' >"$aside/run/why.json"
run -- "run=$aside/run" ready saved=4 kill=KILL
ends "the run's own status, though its launcher was killed" 79 1 0
echo '{"status": 69, "text": "rank 1 exited", "rank": 1, "restart": true}' >"$aside/run/why.json"
run -- "run=$aside/run" ready saved=4 exit=69 / exit=0
ends "its text" 0 "1 2+--resume" 1 'ended with 69: rank 1 exited; step 4 is saved; restart 1$'
run --max-restarts 0 -- "run=$aside/run" ready kill=KILL
ends "a lost process is still the signal's end" 137 1 1 'ended with 137 \(SIGKILL\): rank 1 exited; no checkpoint'
rm -r "$aside/run"

# ---- processes of the command ----------------------------------------------------------------------------------------
run -- child=1000 child=1000 sleep=0.1 exit=0
ends "what a command leaves running is ended: its child and grandchildren, in sessions of their own" 0 1 0
run -- child=1000 ready saved=1 kill=KILL / exit=0
ends "also before a restart" 0 "1 2+--resume" 1

# A launcher that does not end after its last process, which was there for a moment; fake_job under a launcher's name.
ln -s "$fake" "$aside/mpirun"
code=0; now; rm -f log
timeout -k 5 120 "$runner" --max-restarts 0 -- "$aside/mpirun" log ignore=TERM child=0.5 sleep=1000 >"$aside/out" \
    2>"$aside/err" </dev/null || code=$?
took
ends "a launcher that stays after its last process is ended: $took ms" 137 1 2 'ended with 137'
grep -q 'the launcher has not exited 10 s after' "$aside/err" || not_ok "it is told so"

# As MPICH's, where ssh does not reach a host: the other process waits, and no rank speaks. Where one has, it goes on.
timeout -k 5 120 "$runner" --max-restarts 0 -- "$aside/mpirun" log2 extend=1 child=0.5 child=1000 sleep=14 exit=0 \
    >"$aside/spoken" 2>&1 </dev/null & spoken=$!
code=0; now; rm -f log
timeout -k 5 120 "$runner" --max-restarts 0 -- "$aside/mpirun" log child=0.5 child=1000 sleep=1000 >"$aside/out" \
    2>"$aside/err" </dev/null || code=$?
took
ends "a launcher that stays after its first process, before ranks met, is ended: $took ms" 137 1 2 'ended with 137'
grep -q 'the launcher has not exited 10 s after its first process, before' "$aside/err" || not_ok "it is told so"
code=0; wait "$spoken" || code=$?
check "one whose ranks have spoken goes on" [ "$code" -eq 0 ]

# begin OPTIONS... -- WORDS...: in the background; waits until the job has noted "up"; sets $pid
begin() {
    rm -f log
    begin_options=
    while [ "$1" != -- ]; do begin_options="$begin_options $1"; shift; done
    shift
    # A shell without job control lets background processes ignore SIGINT.
    # shellcheck disable=SC2086
    env --default-signal=INT,QUIT "$runner" $begin_options -- "$fake" log "$@" \
        >"$aside/out" 2>"$aside/err" </dev/null & pid=$!
    waits_for up || not_ok "a job begins: $*"
}
# waits_for TEXT: until the job's log has such a line
waits_for() { for _ in $(seq 1000); do ! grep -qsx "$1" log || return 0; sleep 0.02; done; return 1; }
ended() { code=0; wait "$pid" 2>/dev/null || code=$?; took; }
supervisor_of() { pgrep -P "$1"; }

begin -- child=1000 note=up sleep=100
now; kill -KILL "$(supervisor_of "$pid")"; ended
ends "a supervisor that is killed takes the command with it: $took ms" 70 1 1 'the supervisor was killed by SIGKILL'
begin -- child=1000 note=up sleep=100
now; kill -KILL "$pid"; ended
ends "so does the process that the user knows" 137 1 0

# What Open MPI leaves, by its names: of this job's process, of one that is alive, of another family and another user.
mkdir -p "$aside/left" "$aside/leftshm"
u=$(id -u)
OMPI_MCA_orte_tmpdir_base=$aside/left OMPI_MCA_btl_vader_backing_directory=$aside/leftshm begin -- note=up sleep=100
p=$(sed -n 's/^start //p' log)
(cd "$aside/left" && mkdir -p "ompi.h.x.$u/pid.$p/1/0" "ompi.h.x.$u/pid.1" "prte.h.$u/dvm.$p" "prterun.h.$p.$u/a/b" \
    "prterun.h.1.$u" "prterun.h.$p.$((u + 1))" "else.h.$p.$u" &&
    echo '305397760.0;tcp://x' >"ompi.h.x.$u/pid.$p/contact.txt" &&
    ln -s "$aside/out" "ompi.h.x.$u/pid.$p/1/link")
(cd "$aside/leftshm" && : >"vader_segment.h.x.$u.12340001.0" && : >"vader_segment.h.x.$u.12350001.0" &&
    : >"vader_segment.h.x.$((u + 1)).12340001.0" && : >"vader_segment.h.x.$u.12340001.0.x")
now; kill -KILL "$p"; kill -TERM "$pid"; ended
rest=$(cd "$aside" && find left leftshm | LC_ALL=C sort | tr '\n' ' ')
check "what is this job's is removed, and nothing else" [ "$rest" = \
    "left left/else.h.$p.$u left/ompi.h.x.$u left/ompi.h.x.$u/pid.1 left/prterun.h.1.$u left/prterun.h.$p.$((u + 1)) \
leftshm leftshm/vader_segment.h.x.$u.12340001.0.x leftshm/vader_segment.h.x.$u.12350001.0 \
leftshm/vader_segment.h.x.$((u + 1)).12340001.0 " -a -e "$aside/out" ]

# A reader of the standard error that stands still keeps up nobody.
mkfifo "$aside/deaf"
sleep 100 <"$aside/deaf" & deaf=$!
exec 8>"$aside/deaf"
dd if=/dev/zero of="$aside/deaf" bs=4096 count=1000 oflag=nonblock 2>/dev/null || true
rm -f log; code=0
timeout -k 5 60 "$runner" -- "$fake" log exit=69 / exit=0 >"$aside/out" 2>&8 </dev/null || code=$?
check "a command is started again although nobody reads that: $code" [ "$code $(starts)" = "0 1 2+--resume" ]
exec 8>&-
kill "$deaf"

# ---- requests to stop ------------------------------------------------------------------------------------------------
for s in TERM INT HUP; do
    begin -- ready saved=3 on=USR1:75 note=up sleep=100
    now; kill -$s "$pid"; ended
    ends "SIG$s: the command gets SIGUSR1, saves, and 75 is the end: $took ms" 75 1 1 "SIG$s: .* within 60 s$"
    check "SIG$s: and no other signal" [ "$(grep signal log)" = "signal 10" ]
done
begin --stop-timeout 0.3 -- ready saved=3 on=USR1:0 on=TERM:143 note=up sleep=100
now; kill -TERM "$pid"; ended
ends "a command that does not end gets SIGTERM after --stop-timeout: $took ms" 75 1 3 'with 143 .*; step 3 is saved'
check "not before" [ "$took" -ge 300 ]
check "SIGUSR1, then SIGTERM" [ "$(grep signal log | tr '\n' ' ')" = "signal 10 signal 15 " ]
begin -- ready on=USR1:0 ignore=TERM child=1000 note=up sleep=100
kill -TERM "$pid"; waits_for 'signal 10'; sleep 0.6; kill -TERM "$pid"; sleep 0.6; now; kill -TERM "$pid"; ended
ends "a second request is SIGTERM, a third SIGKILL: $took ms" 75 1 4 'ended with 137 \(SIGKILL\)'
begin -- ready on=USR1:0 note=up sleep=0.5 exit=75
kill -TERM "$pid"; kill -TERM "$pid"; kill -INT "$pid"; ended
ends "requests at once are one" 75 1 1
check "with one signal for the command" [ "$(grep -c signal log)" -eq 1 ]
begin --backoff 100 -- exit=69 / note=up exit=69
for _ in $(seq 100); do [ "$(lines)" -lt 2 ] || break; sleep 0.02; done
now; kill -TERM "$pid"; ended
ends "a request between two starts is obeyed at once: $took ms" 75 "1 2+--resume" 2
begin -- ready saved=3 on=USR1:75 note=up sleep=100
now; kill -USR1 "$pid"; ended
ends "SIGUSR1 is passed on, and is a request to stop" 75 1 0
begin -- ready saved=3 on=USR1:69 note=up sleep=100
kill -USR1 "$pid"; ended
ends "whose end is 75 also if the command cannot save any more" 75 1 1 'ended with 69; step 3 is saved'
begin -- ready on=USR2:0 note=up sleep=0.5 exit=0
kill -USR2 "$pid"; ended
ends "SIGUSR2 is passed on and stops nothing" 0 1 0
check "as it is" [ "$(grep signal log)" = "signal 12" ]
begin -- note=up sleep=0.3 on=USR2:0 ready sleep=0.5 exit=0
kill -USR2 "$pid"; ended
ends "and kept until the command, which it would end before, has said a word" 0 1 0
check "once" [ "$(grep signal log)" = "signal 12" ]
begin -- note=up sleep=0.3 on=USR2:0 sleep=2.5 exit=0
kill -USR2 "$pid"; ended
check "a command that says nothing gets it later: $code" [ "$code $(grep signal log)" = "0 signal 12" ]
begin -- on=USR1:78 note=up sleep=100
kill -TERM "$pid"; ended
ends "a command that finds something wrong while it stops" 78 1 1

if command -v python3 >/dev/null; then
    rm -f log
    python3 - "$runner" "$fake" >"$aside/out" 2>"$aside/err" <<'END' || why
import os, pty, sys, time
pid, fd = pty.fork()
if pid == 0:
    os.execv(sys.argv[1], [sys.argv[1], "--", sys.argv[2], "log", "ready",
                           "on=INT:99", "on=USR1:75", "note=up", "sleep=100"])
while not os.path.exists("log") or "up" not in open("log").read(): time.sleep(0.02)
os.write(fd, b"\3")
try:
    while os.read(fd, 1000): pass
except OSError: pass
print(os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]))
END
    check "Ctrl-C is one request to stop, and the command itself gets no SIGINT" \
        [ "$(cat "$aside/out")$(grep signal log)" = "75signal 10" ]
else skip "Ctrl-C is one request to stop" "apt-get install python3"; fi

# ---- hangs -----------------------------------------------------------------------------------------------------------
run --hang-timeout 0.5 -- ready saved=2 child=1000 stop / resumed=2 ready sleep=0.3 watchdog sleep=0.3 watchdog exit=0
ends "--hang-timeout: a command that stands still is started again" 0 "1 2+--resume" 2 'ended with 81; step 2 is saved'
check "who is stopped is named" \
    grep -qE "no message from the command for 0[.0-9]* s, and process [0-9]+ is stopped: killing it$" "$aside/err"
run --hang-timeout 0.2 -- sleep=0.6 exit=0
ends "nothing is a hang before it was ready" 0 1 0

# mpirun is there for ever where it cannot reach another host any more, or nobody reads what it writes.
run -- ready saved=2 failed=81 ignore=TERM child=1000 sleep=1000 / resumed=2 ready failed=69 exit=1 / exit=0
ends "a command that failed and does not end is ended, and started again" 0 "1 2+--resume 3+--resume" 4 \
    'ended with 1; step 2 is saved; restart 2$'
check "after its time, with the status that it told of" \
    grep -q 'the command ended with 81; step 2 is saved; restart 1$' "$aside/err"
check "which one that ends by itself does not get" [ "$(grep -c 'it has not exited' "$aside/err")" -eq 1 ]
run -- ready failed=79 sleep=1000
ends "a status that a restart does not mend is final" 79 1 1 'failed with 79 it has not exited: killing it$'

# ---- the service manager ---------------------------------------------------------------------------------------------
"$fake" manager listen="$tmp/notify" & manager=$!
for _ in $(seq 100); do [ ! -S notify ] || break; sleep 0.02; done
NOTIFY_SOCKET=$tmp/notify; export NOTIFY_SOCKET
run -- extend=5 ready saved=2 watchdog stopping exit=81 / resumed=2 ready stopping exit=0
WATCHDOG_USEC=9000000; export WATCHDOG_USEC
run -- extend=5 ready exit=81 / extend=7 ready exit=0
unset NOTIFY_SOCKET WATCHDOG_USEC
sleep 0.2; kill "$manager"; wait "$manager" 2>/dev/null || true
cat >"$aside/wanted" <<'END'
EXTEND_TIMEOUT_USEC=5
STATUS=fake
READY=1
X_MPSTAGED_CHECKPOINT=2
WATCHDOG=1
STATUS=ends
STATUS=restart 1
X_MPSTAGED_RESUMED=2
STATUS=fake
READY=1
STATUS=ends
STOPPING=1
EXTEND_TIMEOUT_USEC=5
STATUS=fake
READY=1
STATUS=restart 1
WATCHDOG_USEC=60000000
WATCHDOG_USEC=7
EXTEND_TIMEOUT_USEC=7
STATUS=fake
READY=1
STOPPING=1
END
grep -v ^start manager >"$aside/manager"
check "the service manager hears every word, but STOPPING only at the end; its watchdog waits for restarts" \
    cmp "$aside/wanted" "$aside/manager"
if [ "$(id -u)" -eq 0 ] && command -v setpriv >/dev/null; then
    begin -- name note=up sleep=1.5 exit=69
    name=$(grep '^@' log)
    NOTIFY_SOCKET=$name setpriv --reuid 65534 --clear-groups "$fake" /dev/null saved=7 2>/dev/null || true
    kill -USR1 "$pid"; ended
    check "what other users say is not believed" grep -q 'no checkpoint is known' "$aside/err"
else skip "what other users say is not believed" "not root, or no setpriv"; fi

# ---- the command line ------------------------------------------------------------------------------------------------
# wrong TEXT CODE PATTERN ARGS...
wrong() {
    wrong_text=$1 wrong_code=$2 wrong_pattern=$3; shift 3
    code=0
    "$runner" "$@" >"$aside/out" 2>"$aside/err" </dev/null || code=$?
    if [ "$code" -eq "$wrong_code" ] && [ "$(lines)" -eq 1 ] && grep -q -- "$wrong_pattern" "$aside/err"
    then ok "$wrong_text: $code"; else why; not_ok "$wrong_text: $code"; fi
}
wrong "no command" 64 'no command'
wrong "no command behind --" 64 'no command' --backoff 1 --
wrong "an unknown option" 64 'unknown option --explode ' --explode -- true
wrong "an option without its value" 64 '--backoff needs a value' --backoff
wrong "no fruitless restart" 64 '"0".* 1' --max-fruitless 0 -- true
wrong "restarts that are no number" 64 '"x"' --max-restarts x -- true
wrong "seconds that are none" 64 '"-1"' --backoff -1 -- true
wrong "seconds without end" 64 '"inf"' --hang-timeout inf -- true
wrong "a command that is not there" 127 'nobody: No such file' -- nobody
wrong "a command that cannot be started" 126 'Permission denied' -- /
check "--help" sh -c '"$0" --help | grep -q "^usage: "' "$runner"
check "its lines fit a terminal" [ "$("$runner" --help | longest)" -le 80 ]
check "--version" sh -c '"$0" --version | grep -qE "^mpstage-run [0-9]"' "$runner"
# shellcheck disable=SC2016
check "options of the command are its own" "$runner" sh -c 'test "$1" = --help' x --help
check "the command's standard input is empty" sh -c 'echo word | "$0" sh -c "! read -r x"' "$runner"

# ---- mpirun ----------------------------------------------------------------------------------------------------------
# Sessions and segments go into folders of this test; another job has its own there, which nobody may touch.
mkdir "$aside/shm" other
export OMPI_MCA_btl_vader_backing_directory="$aside/shm" OMPI_MCA_btl_sm_backing_directory="$aside/shm"
write_conf long.conf 's/steps = 3/steps = 100000000/; $a service { log_every = 0 }'
(cd other && MPIEXEC_TIMEOUT=3600 mpirun_n 2 "$mpstaged" -c ../long.conf --run-dir r >out 2>&1 </dev/null) & other=$!
for _ in $(seq 400); do ! grep -qs '"step":3,' other/r/metrics.jsonl || break; sleep 0.05; done
everything() { (cd "$aside" && find session shm | LC_ALL=C sort); }
theirs=$(everything)

# below PID NAME: processes of this name among its descendants
# That of Open MPI 5.0 calls itself prterun, that of MPICH may be mpirun.mpich or mpiexec.hydra.
below() {
    for p in $(pgrep -P "$1"); do
        below_name=$(cat "/proc/$p/comm" 2>/dev/null || true)
        case $below_name in prterun | mpirun.* | mpiexec.*) below_name=mpirun ;; esac
        [ "$below_name" != "$2" ] || echo "$p"
        below "$p" "$2"
    done
}
# job_begin OPTIONS... -- MPSTAGED-OPTIONS...: two ranks in the background, until their third step; sets $pid
job_begin() {
    rm -rf r
    begin_options=
    while [ "$1" != -- ]; do begin_options="$begin_options $1"; shift; done
    shift
    # shellcheck disable=SC2086
    env --default-signal=INT,QUIT "$runner" $begin_options -- \
        "$MPIRUN" $mpi_options -np 2 "$mpstaged" --run-dir r "$@" \
        >"$aside/out" 2>"$aside/err" </dev/null & pid=$!
    for _ in $(seq 400); do ! grep -qs '"step":3,' r/metrics.jsonl || return 0; sleep 0.05; done
    why; not_ok "a job of mpirun begins"
}
# left_nothing TEXT CODE: so did the last job end; what it has made is gone, and what is the other job's is there
left_nothing() {
    if [ "$code" -eq "$2" ] && all_gone && [ "$(everything)" = "$theirs" ]; then ok "$1: nothing is left, $took ms"
    else { echo "code $code"; cat "$aside/err"; everything; } | note; not_ok "$1: nothing is left"; fi
}
job_begin --max-restarts 0 -- -c long.conf
check "a job of Open MPI's mpirun has made files of its own" [ "$mpi" = mpich -o "$(everything)" != "$theirs" ]
now; kill -KILL "$(below "$pid" mpstaged | tail -1)"; ended
left_nothing "a rank that is killed" "$(death 9)"
job_begin --max-restarts 0 -- -c long.conf
now; kill -KILL "$(below "$pid" mpirun)"; ended
left_nothing "mpirun killed" 137
job_begin --max-restarts 0 -- -c long.conf
# shellcheck disable=SC2046
now; kill -KILL "$(below "$pid" mpirun)" $(below "$pid" mpstaged); ended
left_nothing "mpirun and its ranks killed at once" 137
job_begin --max-restarts 0 -- -c long.conf
now; kill -KILL "$(below "$pid" mpstage-run)"; ended
left_nothing "the supervisor killed" 70
job_begin --max-restarts 0 -- -c long.conf
now; kill -KILL "$pid"; ended
left_nothing "the process that the user knows killed" 137
job_begin --max-restarts 0 -- -c long.conf
now; kill -KILL "$pid" "$(below "$pid" mpstage-run)"; ended
# mpirun gets SIGTERM once or, when the guard outlives the supervisor for a moment, twice; then it leaves its files.
check "both its processes killed at once: no process is left" all_gone
find "$aside/session" "$aside/shm" -mindepth 1 -depth >"$aside/all"
while read -r f; do echo "$theirs" | grep -qxF "${f#"$aside/"}" || rm -d "$f"; done <"$aside/all"
job_begin --max-restarts 0 --stop-timeout 0.1 -- -c long.conf
kill -STOP "$(below "$pid" mpirun)"
now; kill -TERM "$pid"; ended
left_nothing "mpirun stands still and is to stop" 75
job_begin --hang-timeout 1 --max-restarts 0 -- -c long.conf
# shellcheck disable=SC2046
kill -STOP $(below "$pid" mpstaged); now; ended
left_nothing "all ranks stand still" 81
job_begin --max-restarts 0 --stop-timeout 5 -- -c long.conf
kill -STOP "$(below "$pid" mpstage-run)"
now; kill -TERM "$pid"; ended
left_nothing "the supervisor stands still and is to stop" 75
job_begin --max-restarts 0 -- -c long.conf
kill -STOP "$(below "$pid" mpstage-run)"
# shellcheck disable=SC2046
now; kill -KILL $(below "$pid" mpstaged); ended
left_nothing "the supervisor stands still while ranks die" "$(death 9)"
check "which is said" grep -q '^mpstage-run: the supervisor, process [0-9]*, was stopped: continuing it$' "$aside/err"

# A supervisor that a debugger holds hears nothing and cannot be made to go on.
cat >"$aside/hold.py" <<'EOF'
import ctypes, os, signal, sys
signal.alarm(90)
pid, sign = int(sys.argv[1]), sys.argv[2]
if ctypes.CDLL(None, use_errno=True).ptrace(16, pid, None, None): sys.exit(1)   # PTRACE_ATTACH
os.waitpid(pid, 0x40000000)
open(sign, "w").close()
os.waitpid(pid, 0x40000000)                               # its parent hears of its end behind this
EOF
begin --stop-timeout 0.5 -- note=up sleep=1000
python3 "$aside/hold.py" "$(supervisor_of "$pid")" "$aside/held" 2>/dev/null & holder=$!
for _ in $(seq 100); do [ ! -e "$aside/held" ] && kill -0 "$holder" 2>/dev/null || break; sleep 0.05; done
if [ -e "$aside/held" ]; then
    now; kill -TERM "$pid"; ended
    ends "a supervisor that cannot be woken is killed, and so is the command: $took ms" 70 1 2 \
        'the supervisor was killed by SIGKILL; the command was killed, too$'
    check "not before its time" [ "$took" -ge 30000 ]
    check "which is said" grep -q 'supervisor, process [0-9]*, has not exited 30.5 s after a stop request' \
        "$aside/err"
else kill -TERM "$pid"; ended; skip "a supervisor that cannot be woken" "nothing may be traced here"; fi
kill "$holder" 2>/dev/null || true

# ---- mpstaged: checkpoints and resumption ----------------------------------------------------------------------------
write_conf saves.conf 's/steps = 3/steps = 4000/; $a checkpoint { every_steps = 50 }\nservice { log_every = 0 }'
"$mpstaged" -c saves.conf --transport local --run-dir whole >"$aside/out" 2>&1 </dev/null || note <"$aside/out"
whole=$(hash_of whole)
bits() {
    sed -n '/"event":"step"/s/.*"step":\([0-9]*\),.*"loss_bits":"\([^"]*\)".*/\1 \2/p' "$1/metrics.jsonl" | sort -u
}
bits whole >"$aside/bits"
# same_run TEXT: the run r ended well, with the weights and the losses of the one that nobody disturbed
same_run() {
    if [ "$code" -eq 0 ] && [ -n "$whole" ] && [ "$(hash_of r)" = "$whole" ] && bits r | cmp -s - "$aside/bits"
    then ok "$1: the same weights and losses"; else why; not_ok "$1: the same weights and losses; code $code"; fi
}
saved() {
    for _ in $(seq 400); do
        [ -z "$(find r/checkpoints -name 'step-*[0-9]' 2>/dev/null)" ] || break
        sleep 0.02
    done
}
# next_step COMMAND...: does it, and waits for the first step after that; sets $took
next_step() {
    resumes=$(grep -c '"event":"resume"' r/metrics.jsonl || true)
    now; "$@"
    for _ in $(seq 1000); do
        [ "$(grep -c '"event":"resume"' r/metrics.jsonl)" -eq "$resumes" ] || break
        sleep 0.01
    done
    for _ in $(seq 1000); do ! tail -1 r/metrics.jsonl | grep -q '"event":"step"' || break; sleep 0.01; done
    took
}
job_begin -- -c saves.conf; saved
next_step kill -KILL "$(below "$pid" mpstaged | tail -1)"; again=$took; ended
same_run "a rank killed, and started again after $again ms"
check "a run that goes on is not started more often" [ "$(lines)" -eq 1 ]
job_begin -- -c saves.conf; saved
next_step kill -KILL "$(below "$pid" mpirun)"; again=$took; ended
same_run "mpirun killed, and started again after $again ms"
job_begin -- -c saves.conf; saved
now; kill -TERM "$pid"; ended
left_nothing "SIGTERM saves and ends with 75" 75
check "with one line of ours" [ "$(lines)" -eq 1 ]
code=0
"$mpstaged" -c saves.conf --transport local --run-dir r --resume >"$aside/out" 2>"$aside/err" </dev/null || code=$?
same_run "and the run goes on from there"
kill "$(below $other mpirun)"; wait "$other" 2>/dev/null || true

code=0
bash "$here/../conf/mpstaged.sbatch" >"$aside/out" 2>"$aside/err" || code=$?
check "mpstaged.sbatch without a configuration says what it wants: $code" [ "$code" = 64 ]
check "in one line" grep -q '^mpstaged\.sbatch: .*: sbatch mpstaged\.sbatch FILE' "$aside/err"

tap_done
