#!/bin/sh
# control.sh: what mpstagectl says of a run that is busy, stands still, or has ended: the truth, within its time limit.
# One process, no mpirun.
set -eu
. "$(dirname -- "$0")/mpi_lib.sh"
write_conf long.conf 's/steps = 3/steps = 100000000/; $a service { log_every = 0 }'
python=$(command -v python3 || true)

# begin NAME: starts a long run of two threads, which may stand still; sets $pid
begin() {
    "$mpstaged" -c long.conf -o run.hang_timeout=0 --run-dir "$1" >"$aside/out" 2>"$aside/err" </dev/null & pid=$!
    for _ in $(seq 200); do
        ! "$mpstagectl" "$1" status 2>/dev/null | grep -q loss || return 0
        sleep 0.05
    done
    why; not_ok "$1: a long run starts"
}
# says TEXT CODE PATTERN ARGS...: mpstagectl ends with that code and one line of its own on the standard error,
# within 8 s
says() {
    says_text=$1 says_code=$2 says_pattern=$3 code=0; shift 3
    timeout 8 "$mpstagectl" "$@" >"$aside/out" 2>"$aside/said" || code=$?
    if [ "$code" -eq "$says_code" ] && [ "$(grep -c . "$aside/said")" -eq 1 ] &&
        grep -qE -- "^mpstagectl: $says_pattern" "$aside/said"; then ok "$says_text"
    else { echo "code $code"; cat "$aside/out" "$aside/said"; } | note; not_ok "$says_text"; fi
}
# hold NUMBER [stopped]: so many connections to r/control.sock that ask something each second, as long as a file "go" is
# not there; "stopped": as many as it takes, and nothing asked
hold() {
    rm -f go held
    "$python" - "$@" <<'EOF2' &
import os, socket, sys, time
many = []
for i in range(int(sys.argv[1])):
    s = socket.socket(socket.AF_UNIX); s.setblocking(len(sys.argv) == 2)
    try: s.connect("r/control.sock")
    except BlockingIOError: break
    many.append(s)
    if len(sys.argv) == 2: s.sendall(b'{"command":"status"}\n'); s.recv(1)
open("held", "w").write(str(len(many)))
asked = time.monotonic()
while not os.path.exists("go"):
    time.sleep(0.02)
    if len(sys.argv) > 2 or time.monotonic() < asked + 1: continue
    for s in many: s.sendall(b'{"command":"status"}\n'); s.recv(65536)
    asked = time.monotonic()
EOF2
    holder=$!
    for _ in $(seq 200); do [ ! -s held ] || return 0; sleep 0.05; done
}
released() { : >go; wait "$holder"; }

begin r
# ---- all places taken ------------------------------------------------------------------------------------------------
if [ -n "$python" ]; then
    hold 32
    sleep 0.3
    full='r: too many clients \(32\), try again later$'
    says "status while 32 clients are connected" 75 "$full" r status
    says "stop while 32 clients are connected" 75 "$full" r stop
    says "stop --wait while 32 clients are connected" 75 "$full" r stop --wait
    says "watch while 32 clients are connected" 75 "$full" r watch
    check "watch says nothing else" [ ! -s "$aside/out" ]
    released
    answers() { "$mpstagectl" r status >/dev/null 2>&1; }
    check "and when they are gone, there is an answer" until_ok answers
else skip "all places taken" "apt-get install python3"; fi

# ---- nobody at home --------------------------------------------------------------------------------------------------
"$mpstagectl" r watch 0.2 >watched 2>watched-err & watcher=$!
sleep 0.5
halt "$pid"
away="r: process $pid is not responding: it is stopped"
says "status of a run that is stopped" 75 "$away\$" r status
for _ in $(seq 100); do [ ! -s watched-err ] || break; sleep 0.1; done
halt "$watcher"
if [ -n "$python" ]; then
    hold 100 stopped
    says "status of a run that is stopped, with a queue that is full" 75 "$away\$" r status
    released
else skip "status of a run that is stopped, with a queue that is full" "apt-get install python3"; fi
sleep 1
kill -CONT "$pid"
# the watch stands still for longer than mpstaged waits for a client
sleep 12
kill -CONT "$watcher"
sleep 1
check "a watch that was stopped for long goes on" kill -0 "$watcher"
check "and said why it waited, once" [ "$(cat watched-err)" = "mpstagectl: $away; waiting for it" ]
before=$(wc -l <watched)
shows_more() { [ "$(wc -l <watched)" -gt "$before" ]; }
check "and shows what there is" until_ok shows_more
check "and does not say that the run has ended" sh -c '! grep -q "the run has ended" watched'
kept=$pid
begin a
halt "$pid"
says "a request to stop waits for a run that is stopped" \
    75 "a: process $pid is not responding: it is stopped; the request is queued\$" a stop
kill -CONT "$pid"
for _ in $(seq 100); do ! grep -q '"reason":"stopped"' a/metrics.jsonl || break; sleep 0.1; done
check "and is obeyed when it goes on" grep -q '"reason":"stopped"' a/metrics.jsonl
wait "$pid" || true
pid=$kept
"$mpstagectl" r stop >/dev/null
code=0; wait "$watcher" || code=$?
check "watch ends with the run, and says how: $code" \
    sh -c 'echo "$0" | grep -qx "0r: the run has ended after step [0-9]*: stopped"' "$code$(tail -1 watched)"
wait "$pid" || true
says "a run that has ended" 69 'r: nothing is running there; mpstaged.log in it says how .* ended$' r watch
# watch_killed [--json]: a run is killed while it is watched; the last line that watch has printed is in $last
watch_killed() {
    begin gone
    "$mpstagectl" gone watch 0.2 "$@" >watched 2>watched-err & watcher=$!
    for _ in $(seq 100); do [ ! -s watched ] || break; sleep 0.1; done
    check "watch $* shows the run that will be killed" [ -s watched ]
    killed=0 code=0
    kill -KILL "$pid"
    wait "$pid" || killed=$?
    wait "$watcher" || code=$?
    check "which is killed, and watch $* ends with 69: $killed $code" [ "$killed$code" = 13769 ]
    last=$(tail -1 watched)
    rm -rf gone
}
watch_killed
check "and says no more than that it has ended" [ "$last" = "gone: the run has ended" ]
watch_killed --json
case $last in
"{"*) ok "with --json not even that" ;;
*) note <watched; not_ok "with --json not even that" ;;
esac
pid=$kept

# ---- one rank stands still -------------------------------------------------------------------------------------------
mpirun_n 2 "$mpstaged" -c long.conf --run-dir idle >"$aside/out" 2>"$aside/err" </dev/null & launcher=$!
for _ in $(seq 200); do ! "$mpstagectl" idle status 2>/dev/null | grep -q loss || break; sleep 0.05; done
"$mpstagectl" idle status --json >json
first=$(sed -n 's/.*"pid": *\([0-9]*\).*/\1/p' json)
check "a run that moves has a rate and a time left" \
    sh -c 'grep -q eta_seconds json && grep -q samples_per_second json && ! grep -q idle_seconds json'
other=$(ranks_alive | grep -vx "$first" | head -1)
halt "$other"
for _ in $(seq 100); do
    ! "$mpstagectl" idle status | tr -s '\n ' ' ' | grep -q 'has ended for' || break; sleep 0.1
done
"$mpstagectl" idle status | tr -s '\n ' ' ' >people
check "one that does not move has neither" \
    sh -c 'grep -q "no step has ended for [1-9][0-9]* s" people && ! grep -q -e left -e samples/s people'
"$mpstagectl" idle status --json >json
check "its JSON says for how long" \
    sh -c 'grep -qE "\"idle_seconds\": [1-9]" json && ! grep -q eta_seconds json && ! grep -q samples_per_second json'
kill -CONT "$other"
for _ in $(seq 100); do ! "$mpstagectl" idle status | grep -q left || break; sleep 0.1; done
check "when it moves again they are back" sh -c '"$0" idle status | grep -q left' "$mpstagectl"
"$mpstagectl" idle stop --wait >/dev/null
wait "$launcher" || true

# ---- output that cannot be written -----------------------------------------------------------------------------------
begin full
for what in --help --version "full status" "full status --json" "full watch"; do
    code=0
    # shellcheck disable=SC2086
    timeout 8 "$mpstagectl" $what >/dev/full 2>"$aside/said" || code=$?
    check "mpstagectl $what into a full device: $code" \
        [ "$code$(cat "$aside/said")" = "74mpstagectl: standard output: No space left on device" ]
done
for what in "mpstaged --help" "mpstaged --version" "mpstaged -c long.conf --plan" "mpstage-experiment --help" \
    "mpstage-experiment --version"; do
    code=0
    # shellcheck disable=SC2086
    "$build"/$what >/dev/full 2>"$aside/said" || code=$?
    check "$what into a full device: $code" \
        [ "$code$(cat "$aside/said")" = "74${what%% *}: standard output: No space left on device" ]
done
code=0; "$mpstagectl" full stop >/dev/full 2>"$aside/said" || code=$?
check "mpstagectl stop into a full device: $code" [ "$code" -eq 74 ]
wait "$pid" || true

# ---- names that would steer a terminal or forge a line ---------------------------------------------------------------
# unsafe FILE...: control characters beside line ends (after those of the progress line and of colours there are none
# here), C1, marks of direction
unsafe() {
    cat "$@" | LC_ALL=C grep \
        -aqE "$(printf '[\001-\010\013-\037\177]|\302[\200-\237]|\342\200[\216\217\250-\256]|\342\201[\246-\251]')"
}
safe() { cat "$@" >/dev/null && ! unsafe "$@"; }
lost='mpstaged: all is lost'
name=$(printf 'x\302\2331m\342\200\256y')
write_conf named.conf
"$mpstaged" -c named.conf --run-dir "$name" >"$aside/out" 2>"$aside/err" </dev/null || why
check "a run directory's name steers no terminal" safe "$aside/err" "$name/mpstaged.log"
check "but is there to read" grep -qF 'x\u{9b}1m\u{202e}y' "$name/mpstaged.log"
name=$(printf 'x\n%s\033[2J\302\2331m\342\200\256y' "$lost")
echo "$name" >"$aside/out"
check "(what is looked for is found)" unsafe "$aside/out"
code=0; "$mpstagectl" "$name" status >"$aside/out" 2>"$aside/err" || code=$?
check "mpstagectl names it, too: $code" [ "$code" -eq 69 ]
check "in one line that steers nothing" [ "$(wc -l <"$aside/err")" -eq 1 ]
check "and steers no terminal" safe "$aside/err"
code=0; "$build/mpstage-experiment" -c named.conf --out "$name" >"$aside/out" 2>"$aside/err" || code=$?
check "so does mpstage-experiment: $code" [ "$code" -ne 0 ]
check "and steers no terminal" safe "$aside/out" "$aside/err"
if [ -n "$python" ]; then
    "$python" - "$lost" <<'EOF2'
import json, struct, sys
t = {"x\n" + sys.argv[1] + "\x9b2J\u202e": {"dtype": "F32", "shape": [1], "data_offsets": [0, 4]}}
h = json.dumps(t).encode()
open("forged.safetensors", "wb").write(struct.pack("<Q", len(h)) + h + bytes(4))
EOF2
    code=0; "$mpstaged" -c named.conf --run-dir new --init-from forged.safetensors \
        >"$aside/out" 2>"$aside/err" </dev/null || code=$?
    check "a tensor's name forges no line: $code" [ "$code$(said_lines)" = 651 ]
    check "and steers no terminal" safe "$aside/err"
    mkdir fake
    "$python" - "$lost" <<'EOF2' &
import json, socket, sys
s = socket.socket(socket.AF_UNIX); s.bind("fake/control.sock"); s.listen(4)
bad = "x\n" + sys.argv[1] + "\x1b[2J\x9b1m\u202e"
answers = {"ok": False, "error": bad}, {"ok": True, "name": bad, "state": bad, "step": 1}, {"ok": True, "name": bad}
for answer in answers:
    c, _ = s.accept(); c.recv(1000); c.sendall(json.dumps(answer, ensure_ascii=False).encode() + b"\n"); c.close()
EOF2
    faker=$!
    for _ in $(seq 100); do [ ! -S fake/control.sock ] || break; sleep 0.05; done
    sleep 0.1
    for what in "stop" "status" "status --json"; do
        # shellcheck disable=SC2086
        "$mpstagectl" fake $what >"$aside/out" 2>"$aside/err" || true
        check "what a socket says to $what forges no line" \
            sh -c '[ -s "$1" -o -s "$2" ] && ! cat "$1" "$2" | grep -q "^$0"' "$lost" "$aside/out" "$aside/err"
        check "and steers no terminal" safe "$aside/out" "$aside/err"
    done
    wait "$faker"
else skip "names of tensors and of sockets" "apt-get install python3"; fi

# ---- a checkpoint that could not be written --------------------------------------------------------------------------
# While the run pauses, each is of the same step. A file is where the folder of checkpoints would be.
begin again
: >again/checkpoints
"$mpstagectl" again pause >"$aside/out"
for _ in $(seq 200); do ! "$mpstagectl" again status | grep -q paused || break; sleep 0.05; done
says "a checkpoint that cannot be written" 73 'again: .*checkpoints: ' again checkpoint --wait
says "nor when it is asked for again" 73 'again: .*checkpoints: ' again checkpoint --wait
rm again/checkpoints
code=0; timeout 60 "$mpstagectl" again checkpoint --wait >"$aside/out" 2>"$aside/said" || code=$?
ls again/checkpoints >"$aside/list" 2>&1 || true
check "of that step there can still be one: $code" [ "$code" -eq 0 -a "$(grep -c "^step-" "$aside/list")" -eq 1 ]
"$mpstagectl" again stop --wait >"$aside/out" 2>&1 || note <"$aside/out"
wait "$pid" || true
check "nobody is left" nobody_left
tap_done
