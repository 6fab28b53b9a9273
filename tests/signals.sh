#!/bin/sh
# signals.sh: how a run ends before its end: signals to a rank or to mpirun, mpstagectl stop,
# a second run in the same directory.
set -eu
. "$(dirname -- "$0")/mpi_lib.sh"
write_conf long.conf 's/steps = 3/steps = 100000000/; $a service { log_every = 0 }'

# begin NAME: starts a long run in the background and waits for its third step
begin() {
    mpirun_n 2 "$mpstaged" -c long.conf --run-dir "$1" >"$aside/out" 2>"$aside/err" </dev/null &
    launcher=$!                                           # a shell that waits for mpirun
    for _ in $(seq 200); do
        grep -qs '"step":3,' "$1/metrics.jsonl" && return 0
        sleep 0.05
    done
    why; not_ok "$1: a long run starts"
}
# ended: waits for the run; sets $code and $took (ms since $since)
ended() {
    code=0
    wait "$launcher" || code=$?
    took=$((($(date +%s%N) - since) / 1000000))
}
now() { since=$(date +%s%N); }
first_rank() { "$mpstagectl" "$1" status --json | sed -n 's/.*"pid": *\([0-9]*\).*/\1/p'; }
other_rank() { first=$(first_rank "$1"); ranks_alive | grep -vx "$first" | head -1; }
# sound NAME: whole lines only, nothing half written
sound() {
    if tail -c 1 "$1/metrics.jsonl" | od -c | grep -q '\\n' && [ -z "$(find "$1" -name '*.tmp')" ]; then
        ok "$1: no torn file"; else not_ok "$1: no torn file"; fi
}

# stopped NAME PID SIGNAL: exactly one line, status 75, gone within two seconds
stopped() {
    now; kill -s "$3" "$2"; ended
    if [ "$code" -eq 75 ] && [ "$(our_lines)" -eq 1 ] && grep -q "^mpstaged: .*SIG$3" "$aside/err" &&
        soon 2000; then ok "$1: 75 after $took ms"
    else why; not_ok "$1: $code after $took ms"; fi
    check "$1: nobody is left" nobody_left
    check "$1: no weights of an abandoned run" [ ! -e "$1/weights.safetensors" ]
    check "$1: the metrics say so" grep -q '"event":"failed","code":75' "$1/metrics.jsonl"
    sound "$1"
}
begin term-first; stopped term-first "$(first_rank term-first)" TERM
begin term-other; stopped term-other "$(other_rank term-other)" TERM
begin int-first; stopped int-first "$(first_rank int-first)" INT
check "the line says that there is no checkpoint" \
    grep -q '; no checkpoint was written (see checkpoint.every_seconds)$' "$aside/err"
begin int-saved
"$mpstagectl" int-saved checkpoint --wait >"$aside/saved"
stopped int-saved "$(first_rank int-saved)" INT
saved=$(ls int-saved/checkpoints)
check "the line names the checkpoint" grep -q "; --resume continues from checkpoints/${saved:-none}\$" "$aside/err"

# One that computes for longer than it may take to end: the scheduler does what is to be done.
cat >slow.conf <<'END'
run      { name = "slow"  device = "reference"  transport = "local" }
model    { network = "mlp"  input = {4096}  hidden = {4096, 4096}  classes = 5 }
data     { source = "synthetic"  samples = 2560 }
train    { batch_size = 256  split_size = 256  steps = 1000  optimizer = "sgd"  learning_rate = 0.001 }
END
"$mpstaged" -c slow.conf --stages 1 --run-dir slow >"$aside/out" 2>"$aside/err" </dev/null & launcher=$!
for _ in $(seq 400); do [ ! -s slow/metrics.jsonl ] || break; sleep 0.05; done
sleep 1
stopped slow "$launcher" TERM

begin term-mpirun
now; kill -TERM "$(pgrep -P "$launcher")"; ended
if [ "$code" -ne 0 ] && soon 3000; then ok "SIGTERM to mpirun ends the run in $took ms"
else not_ok "SIGTERM to mpirun: $code after $took ms"; fi
check "SIGTERM to mpirun: at most one line of ours" [ "$(our_lines)" -le 1 ]
check "SIGTERM to mpirun: nobody is left" nobody_left
sound term-mpirun

# Rank 1 waits, rank 0 computes for longer than it may take to end, and the disk is slow. mpirun kills all ranks as soon
# as one exits, so rank 1 lets rank 0 write its last lines. A busy machine may need another try. Open MPI 5 kills 0.25 s
# after SIGTERM (docs/mpi.md): on a slow disk the metrics alone may say why.
cat >long-kernel.conf <<'END'
run      { name = "kernel"  device = "reference" }
model    { network = "mlp"  hidden = {1536, 64}  classes = 10  input = {1536} }
data     { source = "synthetic"  labels = "class"  samples = 2048 }
train    { batch_size = 2048  split_size = 2048  steps = 100  optimizer = "sgd"  learning_rate = 0.001 }
pipeline { stages = 2  partition = "uniform" }
END
last_lines() { [ -e kernel/why.json ] && [ "$(our_lines)" -eq 1 ]; }
! "$MPIRUN" --version 2>/dev/null | grep -q 'Open MPI) 5' ||
    last_lines() { grep -q '"event":"failed","code":75' kernel/metrics.jsonl; }
for _ in 1 2 3; do
    rm -rf kernel "$aside/ends"
    MPSTAGED_FAULT_BELOW=$(pwd -P) MPSTAGED_FAULT=0:link:1+:slow MPSTAGED_FAULT_WHILE=$aside/ends \
        LD_PRELOAD=$build/tests/faults/faults.so "$MPIRUN" $mpi_options -np 2 "$mpstaged" -c long-kernel.conf \
        --run-dir kernel >"$aside/out" 2>"$aside/err" </dev/null & launcher=$!
    for _ in $(seq 400); do [ ! -s kernel/metrics.jsonl ] || break; sleep 0.05; done
    sleep 1
    : >"$aside/ends"
    kill -TERM "$launcher"; wait "$launcher" || true
    ! last_lines || break
done
if last_lines; then ok "within a kernel, SIGTERM to mpirun: rank 0 ends first"
else why; not_ok "within a kernel, SIGTERM to mpirun: rank 0 ends first"; fi
check "within a kernel: nobody is left" nobody_left

mkdir "$aside/left"                                      # for what a killed mpirun leaves behind
TMPDIR=$aside/left OMPI_MCA_btl_vader_backing_directory=$aside/left begin orphaned
now; kill -KILL "$(pgrep -P "$launcher")"; ended
check "SIGKILL to mpirun: nobody is left" nobody_left
sound orphaned

begin killed
now; kill -KILL "$(other_rank killed)"; ended
if [ "$code" -eq "$(death 9)" ] && soon 4000; then ok "a killed rank ends the job: $code after $took ms"
else not_ok "a killed rank: $code after $took ms"; fi
check "a killed rank: nobody is left" nobody_left

begin ignored
pid=$(first_rank ignored)
for s in HUP USR2 PIPE; do kill -s $s "$pid"; done
for s in HUP USR1 USR2 PIPE; do kill -s $s "$(other_rank ignored)"; done
sleep 0.2
check "SIGHUP, SIGUSR2 and SIGPIPE do not end a run, nor SIGUSR1 to another rank than the first" kill -0 "$pid"
mv ignored/mpstaged.log ignored/mpstaged.log.1
kill -HUP "$pid"
for _ in $(seq 100); do [ ! -e ignored/mpstaged.log ] || break; sleep 0.05; done
check "SIGHUP to the first rank: a new log where the old one was renamed" [ -e ignored/mpstaged.log ]

# ---- a second run in the same directory ------------------------------------------------------------------------------
cp "$aside/err" "$aside/err-first"
job 2 -c long.conf --run-dir ignored --overwrite
if [ "$code" -eq 75 ] && [ "$(our_lines)" -eq 1 ] && grep -q "^mpstaged: ignored: .*in use by process $pid" \
    "$aside/err"; then ok "a second run is refused and the owner named"
else why; not_ok "a second run is refused: $code"; fi
check "the first run goes on" kill -0 "$pid"

# ---- mpstagectl ------------------------------------------------------------------------------------------------------
"$mpstagectl" ignored status >"$aside/status"
check "status for people" grep -qE '^toy: training, step [0-9]+/100000000' "$aside/status"
"$mpstagectl" ignored status --json >"$aside/status"
check "status as JSON" grep -qE '"step": [0-9]+' "$aside/status"
# shellcheck disable=SC2016
if command -v python3 >/dev/null; then
    python3 - >"$aside/answers" 2>"$aside/err" <<'EOF' || why
import json, socket, time
s = socket.socket(socket.AF_UNIX); s.connect("ignored/control.sock")
f = s.makefile("rw")
def ask(line):
    f.write(line + "\n"); f.flush(); return json.loads(f.readline())
assert ask('{"command":"status","id":17}')["id"] == 17
assert ask('{"command":"status","id":"x"}')["ok"]
for bad in ("garbage", "[]", "{}", '{"command":"explode"}', '{"command":3}', '{"a":1,"a":2}', "\x00\x01"):
    assert not ask(bad)["ok"], bad
many = []
for i in range(40):
    c = socket.socket(socket.AF_UNIX); c.connect("ignored/control.sock"); many.append(c)
for c in many: c.close()
time.sleep(0.5)
s2 = socket.socket(socket.AF_UNIX); s2.connect("ignored/control.sock"); s2.settimeout(5)
try: s2.sendall(b"x" * 100000)
except BrokenPipeError: pass
assert b"longer than 64 KiB" in s2.recv(1000)
print("well")
EOF
    check "the control socket answers strangers with errors" grep -qx well "$aside/answers"
else
    skip "the control socket answers strangers with errors" "apt-get install python3"
fi
"$mpstagectl" ignored watch 0.1 >"$aside/watched" & watcher=$!
sleep 1
if command -v script >/dev/null; then
    for seconds in 1 2 4 8; do                           # a busy machine shows nothing in the first second
        TERM=xterm timeout $seconds script -qfec "'$mpstagectl' ignored watch 0.1" /dev/null \
            >"$aside/tty" </dev/null || true
        ! grep -q "$(printf '\033')\\[44;97mF" "$aside/tty" || break
    done
    check "watch on a terminal rewrites its lines and has bars" grep -q "$(printf '\033')\\[44;97mF" "$aside/tty"
else skip "watch on a terminal rewrites its lines and has bars" "no script(1)"; fi
now; "$mpstagectl" ignored stop --wait >"$aside/stop"; ended
check "stop: said so" grep -q stopped "$aside/stop"
if [ "$code" -eq 0 ]; then ok "stop: the run ends with status 0, $took ms"
else not_ok "stop: the run ends with $code"; fi
code_stop=$code code=0; wait "$watcher" || code=$?; watched=$code code=$code_stop
check "watch ends with the run, with status 0, and says how" \
    sh -c 'echo "$0" | grep -qx "0ignored: the run has ended after step [0-9]*: stopped"' \
    "$watched$(tail -1 "$aside/watched")"
check "watch shows more than one moment" [ "$(grep -c '^stage forward' "$aside/watched")" -ge 2 ]
check "watch: both stages, each with nine shares of a step that make a hundred" awk '
    /^ +[01] .* %$/ { sum = 0; n = 0; for (i = 2; i < NF; i += 2) { sum += $i; n++ }
        seen[$1] = 1; if (n != 9 || sum < 99 || sum > 101) bad = 1 }
    END { exit bad || !seen[0] || !seen[1] }' "$aside/watched"
check "stop: final weights" [ -s ignored/weights.safetensors ]
check "stop: the last line says why" \
    sh -c 'tail -1 ignored/metrics.jsonl | grep -q "\"event\":\"done\".*\"reason\":\"stopped\""'
steps=$(done_field ignored/metrics.jsonl steps)
check "stop: done counts the steps that were written" [ "$(grep -c '"event":"step"' ignored/metrics.jsonl)" = "$steps" ]

# ---- within kernels --------------------------------------------------------------------------------------------------
# oneDNN's matrix products use the stack pointer for other things: a handler there would write over the heap.
cat >products.conf <<'END'
run      { name = "products"  transport = "local" }
model    { network = "mlp"  input = {64}  hidden = {256, 256, 256}  classes = 10 }
data     { source = "synthetic"  labels = "class"  samples = 1000 }
train    { batch_size = 64  split_size = 16  steps = 800  optimizer = "adamw"  learning_rate = 0.001 }
pipeline { stages = 1 }
service  { log_every = 0  progress = "no"  stages_every = 0 }
END
"$mpstaged" -c products.conf --run-dir products >"$aside/out" 2>"$aside/err" </dev/null || why
"$mpstaged" -c products.conf --run-dir struck-often >"$aside/out" 2>"$aside/err" </dev/null & launcher=$!
for _ in $(seq 400); do [ ! -s struck-often/metrics.jsonl ] || break; sleep 0.01; done
n=0
while kill -HUP "$launcher" 2>/dev/null; do n=$((n + 1)); sleep 0.001; done
code=0; wait "$launcher" || code=$?
check "$n times SIGHUP in a run of matrix products: it ends with $code" [ "$n" -gt 20 -a "$code" -eq 0 ]
equal "with the bits of one without" "$(hash_of products)" "$(hash_of struck-often)"
# UCX gives SIGHUP back its first effect when it is unloaded.
cat >"$aside/gives.c" <<'END'
#include <signal.h>
#include <unistd.h>
__attribute__((destructor)) static void give(void)
{
    signal(SIGHUP, SIG_DFL);
    kill(getpid(), SIGHUP);
    usleep(1000);
}
END
if cc -shared -fPIC -o "$aside/gives.so" "$aside/gives.c" 2>"$aside/cc" && [ -z "${SANITIZED:-}" ]; then
    code=0; LD_PRELOAD=$aside/gives.so "$mpstaged" -c products.conf --run-dir gives --steps 2 \
        >"$aside/out" 2>"$aside/err" </dev/null || code=$?
    equal "SIGHUP after the run, in the program's last moment" "$code" 0
else skip "SIGHUP in the program's last moment" "no compiler, or sanitizers"; fi

# ---- while it evaluates ----------------------------------------------------------------------------------------------
write_conf eval.conf 's/samples = 200/&  test_samples = 1000000000/; s/steps = 3/steps = 1/'
"$mpstaged" -c eval.conf --progress yes --run-dir eval >"$aside/out" 2>"$aside/err" </dev/null & launcher=$!
for _ in $(seq 200); do
    ! "$mpstagectl" eval status >"$aside/status" 2>/dev/null || ! grep -q ' of 1000000000' "$aside/status" || break
    sleep 0.05
done
check "status tells how far an evaluation is" sh -c 'tr -s "\n" " " <"$0" |
        grep -qE "^toy: evaluating \([1-9][0-9]* of 1000000000 samples\), .* [0-9:]* left"' "$aside/status"
"$mpstagectl" eval status --json >"$aside/status"
check "and so does its JSON" grep -qE '"evaluated_samples": [1-9]' "$aside/status"
check "the progress line, too" until_ok grep -qE 'evaluating [1-9][0-9]*/1000000000 samples  ETA ' "$aside/err"
now; "$mpstagectl" eval stop --wait >"$aside/stop"; ended
check "stop breaks an evaluation off and keeps the weights" [ "$code" -eq 0 -a -s eval/weights.safetensors ]

# ctl_fails TEXT CODE PATTERN ARGS...
ctl_fails() {
    ctl_text=$1 ctl_code=$2 ctl_pattern=$3 code=0; shift 3
    "$mpstagectl" "$@" >"$aside/out" 2>"$aside/err" || code=$?
    if [ "$code" -eq "$ctl_code" ] && [ "$(grep -c . "$aside/err")" -eq 1 ] &&
        grep -qE -- "^mpstagectl: .*$ctl_pattern" "$aside/err"; then ok "mpstagectl: $ctl_text"
    else { echo "code $code"; cat "$aside/err"; } | note; not_ok "mpstagectl: $ctl_text"; fi
}
ctl_fails "an ended run" 69 'ignored: nothing is running there' ignored status
# fails NAME SIGNAL RANK: one rank stands still, so that the run cannot end; somebody waits for its end;
# then RANK gets the signal. Sets $code.
fails() {
    begin "$1"
    first=$(first_rank "$1") other=$(other_rank "$1")
    kill -STOP "$other"
    "$mpstagectl" "$1" stop --wait >"$aside/stop" 2>"$aside/err-stop" & waiter=$!
    for _ in $(seq 200); do ! "$mpstagectl" "$1" status | grep -q ': stopping, ' || break; sleep 0.05; done
    if [ "$3" = first ]; then kill -s "$2" "$first"; else kill -s "$2" "$other"; fi
    code=0; wait "$waiter" || code=$?
    wait "$launcher" 2>/dev/null || true
}
fails struck KILL other
check "stop --wait of a run that is killed is no success: $code" [ "$code" -ne 0 \
    -a "$(grep -cE '^mpstagectl: struck: the run (failed: |ended without a message)' "$aside/err-stop")" -eq 1 ]
fails told TERM first
check "stop --wait of a run that fails says why, with its status: $code" \
    [ "$code" -eq 75 -a "$(grep -c '^mpstagectl: told: the run failed: stopped by SIGTERM' "$aside/err-stop")" -eq 1 ]
ctl_fails "no such directory" 69 'nowhere' nowhere status
ctl_fails "unknown command" 64 'explode' ignored explode
ctl_fails "no command" 64 'needed' ignored
ctl_fails "unknown option" 64 'colour' ignored status --colour
ctl_fails "unknown letter" 64 'unknown option -x ' ignored status -xyz
ctl_fails "an option of another command" 64 '--wait .*checkpoint, stop' ignored status --wait
check "mpstagectl --help" sh -c '"$0" --help | grep -q "^usage: "' "$mpstagectl"
check "nobody is left" nobody_left
# ---- what the line says goes on -------------------------------------------------------------------------------------
write_conf said.conf
"$mpstaged" -c said.conf --transport local --run-dir trained >"$aside/out" 2>&1 </dev/null
"$mpstaged" -c said.conf --transport local --evaluate --init-from trained \
    -o data.test_samples=100000000 --run-dir evaluated \
    >"$aside/out" 2>"$aside/err" </dev/null & pid=$!
evaluating() { "$mpstagectl" evaluated status 2>/dev/null | tr -s '\n' ' ' | grep -q evaluating; }
until_ok evaluating || true
code=0
kill -TERM $pid
wait $pid || code=$?
if [ "$code" -eq 75 ] && grep -q '^mpstaged: stopped by SIGTERM while evaluating$' "$aside/err"; then
    ok "SIGTERM in an evaluation says so"
else why; not_ok "SIGTERM in an evaluation says so: $code"; fi

# ---- the end of a Slurm job ------------------------------------------------------------------------------------------
# job_of SECONDS OPTIONS...: a run in a job that ends then
job_of() {
    end=$(($(date +%s) + $1)) code=0; shift; now
    SLURM_JOB_END_TIME=$end timeout -s KILL 60 "$mpstaged" --transport local -c "$@" >"$aside/out" 2>"$aside/err" \
        </dev/null || code=$?
    took=$((($(date +%s%N) - since) / 1000000))
}
job_of 12 long.conf --run-dir ends
if [ "$code" -eq 75 ] && [ "$took" -ge 4500 ] &&
    grep -q 'which is in checkpoints/step-.*--resume continues' "$aside/err"; then
    ok "a run stops with a checkpoint after half of a short job: $took ms"
else why; not_ok "a run stops before the end of its job: $code after $took ms"; fi
job_of 1000 said.conf --run-dir other
check "by default 120 s before" grep -q 'stops with a checkpoint 120 s before' other/mpstaged.log
# unasked TEXT SECONDS OPTIONS...: no such end is planned
unasked() {
    unasked_text=$1 seconds=$2; shift 2
    job_of "$seconds" said.conf --overwrite --run-dir unasked "$@"
    check "$unasked_text: no planned end ($code)" [ "$code" -eq 0 -a "$(grep -c Slurm unasked/mpstaged.log)" -eq 0 ]
}
unasked "run.stop_before_end = 0" 1000 -o run.stop_before_end=0
unasked "a job that is over" -5
unasked "an evaluation" 1000 --evaluate --init-from trained -o data.test_samples=20

tap_done
