#!/bin/sh
# commands.sh: mpstagectl's commands that steer a run, and those that look at checkpoints; who may use them; and that
# mpstagectl(1) and the programs know the same ones. One process, but where it says mpirun.
set -eu
. "$(dirname -- "$0")/mpi_lib.sh"
write_conf long.conf 's/steps = 3/steps = 100000000/; $a service { log_every = 0 }'
python=$(command -v python3 || true)
page=$here/../man/mpstagectl.1

# begin NAME [CONF]: starts a run of two threads; sets $pid
begin() {
    "$mpstaged" -c "${2:-long.conf}" --run-dir "$1" >"$aside/out" 2>"$aside/err" </dev/null & pid=$!
    for _ in $(seq 200); do
        ! "$mpstagectl" "$1" status 2>/dev/null | grep -q loss || return 0
        sleep 0.05
    done
    why; not_ok "$1: a long run starts"
}
# says TEXT CODE PATTERN ARGS...: mpstagectl ends with that code and one line with that pattern, on the standard error
# unless the code is 0
says() {
    says_text=$1 says_code=$2 says_pattern=$3 code=0; shift 3
    timeout 20 "$mpstagectl" "$@" >"$aside/said-out" 2>"$aside/said" || code=$?
    [ "$says_code" -ne 0 ] || mv "$aside/said-out" "$aside/said"
    if [ "$code" -eq "$says_code" ] && [ "$(grep -c . "$aside/said")" -eq 1 ] &&
        grep -qE -- "$says_pattern" "$aside/said"; then ok "$says_text"
    else { echo "code $code"; cat "$aside/said"; } | note; not_ok "$says_text"; fi
}
# status_of RUN KEY: a value of its status
status_of() { "$mpstagectl" "$1" status --json | sed -n 's/^  "'"$2"'": "\{0,1\}\([^",]*\).*/\1/p'; }
# becomes RUN KEY VALUE, within 10 s
becomes() {
    for _ in $(seq 200); do [ "$(status_of "$1" "$2")" != "$3" ] || return 0; sleep 0.05; done
    return 1
}
beyond() { [ "$(status_of "$1" step)" -gt "$2" ]; }
moves() { until_ok beyond "$1" "$(status_of "$1" step)"; }
event() { sed -n '/"event":"'"$2"'"/p' "$1/metrics.jsonl"; }

# ---- pause -----------------------------------------------------------------------------------------------------------
begin r
says "pause" 0 '^r: pausing$' r pause
check "the state becomes paused" becomes r state paused
at=$(status_of r step); sleep 0.5
equal "a run that pauses stays at its step" "$at" "$(status_of r step)"
"$mpstagectl" r status >"$aside/said"
check "for people, too, and nobody counts for how long" \
    sh -c 'grep -q "^toy: paused, step" "$0" && ! grep -q -e "has ended for" -e " left" "$0"' "$aside/said"
ticks() { awk '{ print $14 + $15 }' "/proc/$pid/stat"; }
before=$(ticks); sleep 2; spent=$(($(ticks) - before))
check "and processors are free: $spent ticks in 2 s" [ "$spent" -lt $(($(getconf CLK_TCK) / 5)) ]
says "pause again is no error" 0 '^r: pausing$' r pause
says "resume" 0 '^r: going on$' r resume
check "and it goes on" moves r
check "metrics.jsonl has the step and how long it was" \
    sh -c 'grep -q "\"event\":\"pause\",\"step\":'"$at"',\"pause_seconds\":[1-9]" r/metrics.jsonl'
"$mpstagectl" r pause >/dev/null
check "pausing once more" becomes r state paused
says "stop works while it pauses" 0 '^r: stopped$' r stop --wait
wait "$pid" || true
equal "and no step was done after that" "$(event r step | tail -1 | sed 's/.*"step":\([0-9]*\),"epoch.*/\1/')" \
    "$(done_field r/metrics.jsonl steps)"

begin t
"$mpstagectl" t pause >/dev/null
kill -TERM "$pid"
code=0; wait "$pid" || code=$?
check "SIGTERM ends a run that pauses: $code" [ "$code" -eq 75 ]

# A checkpoint of a step is there before a rate is set, and the run stops at that step.
write_conf far.conf 's/steps = 3/steps = 100000000/
    $a checkpoint { every_steps = 100000000 } service { log_every = 0 }'
begin o far.conf
"$mpstagectl" o pause >/dev/null
check "it pauses" becomes o state paused
says "a checkpoint in a pause" 0 'checkpoint' o checkpoint --wait
says "a rate that is set behind it" 0 'is 0.05 from step' o set train.learning_rate=0.05
says "and a stop" 0 '^o: stopped$' o stop --wait
wait "$pid" || true
last=$(done_field o/metrics.jsonl steps)
check "one checkpoint, of that step" [ "$(cd o/checkpoints && echo *)" = "$(printf 'step-%08d' "$last")" ]
says "which is sound" 0 'valid' verify o
"$mpstaged" -c far.conf --run-dir o --resume --steps $((last + 1)) >"$aside/out" 2>"$aside/err" || why
check "and what goes on from it has the rate" grep -qE '"step":'$((last + 1))',"epoch".*"lr":0.05,' o/metrics.jsonl

# A run of known length with pauses has the bits of one without. Samples are shuffled and the last batch is short.
shuffled='s/samples = 200/&  shuffle = yes  test_samples = 40/; s/steps = 3/epochs = 400  evaluate_every = 1000/
    s/batch_size = 20/batch_size = 24/; $a service { log_every = 0 }'
write_conf some.conf "$shuffled"
"$mpstaged" -c some.conf --run-dir plain >"$aside/out" 2>"$aside/err" </dev/null || why
# pauses NAME COMMAND...: such a run, paused some times; sets $code
pauses() {
    pauses_name=$1; shift
    "$@" -c some.conf --run-dir "$pauses_name" >"$aside/out" 2>"$aside/err" </dev/null & launcher=$!
    set -- "$pauses_name"
    for _ in $(seq 100); do ! "$mpstagectl" "$1" status >/dev/null 2>&1 || break; sleep 0.05; done
    n=0
    while kill -0 "$launcher" 2>/dev/null && [ "$n" -lt 6 ]; do
        n=$((n + 1))
        "$mpstagectl" "$1" pause >/dev/null 2>&1 || break
        sleep 0.05
        "$mpstagectl" "$1" resume >/dev/null 2>&1 || break
        sleep 0.05
    done
    code=0; wait "$launcher" || code=$?
}
bits() { grep -oE '"event":"(step|evaluation)","step":[0-9]*|"loss_bits":"[^"]*"' "$1/metrics.jsonl"; }
pauses local "$mpstaged"
check "a run with pauses ends well: $code" [ "$code$(event local pause | grep -c .)" -ge 1 ]
equal "with the same weights" "$(hash_of plain)" "$(hash_of local)"
bits plain >"$aside/a"; bits local >"$aside/b"
check "and each loss has the same bits" cmp "$aside/a" "$aside/b"
pauses mpi mpirun_n 2 "$mpstaged"
check "the same under mpirun: $code" [ "$code$(event mpi pause | grep -c .)" -ge 1 ]
equal "with the same weights" "$(hash_of plain)" "$(hash_of mpi)"

# ---- set -------------------------------------------------------------------------------------------------------------
begin s
says "set" 0 '^s: train.learning_rate is 0.05 from step [0-9]+ on$' s set train.learning_rate=0.05
from=$(sed 's/.* step \([0-9]*\) .*/\1/' "$aside/said")
for _ in $(seq 100); do [ "$(status_of s step)" -le "$from" ] || break; sleep 0.05; done
lr_of() { sed -n 's/.*"step":'"$1"',"epoch".*"lr":\([0-9.e-]*\),.*/\1/p' s/metrics.jsonl; }
equal "from that step on" "0.1 0.05" "$(lr_of $((from - 1))) $(lr_of "$from")"
check "metrics.jsonl says so" \
    grep -q '"event":"set","step":'"$from"',"key":"train.learning_rate","value":0.05' s/metrics.jsonl
says "what is not a number is refused" 78 'set: .*x.' s set train.learning_rate=x
says "what is out of range is refused" 78 'set: ' s set train.learning_rate=-1
says "-0 is 0" 0 '^s: train.learning_rate is 0 from step' s set train.learning_rate=-0
"$mpstagectl" s set train.learning_rate=0.05 >/dev/null
says "another key is refused" 64 'only train.learning_rate can be set' s set train.momentum=0.5
says "set needs a value" 64 'KEY=VALUE' s set train.learning_rate
equal "and nothing has changed" 0.05 "$(status_of s learning_rate | cut -c1-4)"

# Somebody who sends a byte now and then is dismissed after 10 s; what he is told is looked at below.
if [ -n "$python" ]; then
    "$python" - >"$aside/slow" 2>&1 <<'EOF2' &
import socket, time
began, s = time.time(), socket.socket(socket.AF_UNIX)
s.connect("s/control.sock"); s.settimeout(0.5)
while time.time() < began + 60:
    try: s.sendall(b" ")
    except OSError: break
    try:
        if not s.recv(10): break
    except socket.timeout: pass
print("dismissed" if 9 < time.time() - began < 55 else time.time() - began)
EOF2
    slow=$!
fi
# ---- reload ----------------------------------------------------------------------------------------------------------
says "a file that has not changed" 0 '^s: nothing has changed$' s reload
equal "what was set stays" 0.05 "$(status_of s learning_rate | cut -c1-4)"
sed -i 's/learning_rate = 0.1/learning_rate = 0.025/' long.conf
says "reload" 0 '^s: train.learning_rate is 0.025 from step [0-9]+ on$' s reload
check "and it counts" becomes s learning_rate 0.025000000000000001
check "the log names it" \
    grep -qE 'reloaded .*long.conf: train.learning_rate is 0.025 from step [0-9]+ on$' s/mpstaged.log
check "metrics.jsonl says so" grep -qE '"event":"reload","step":[0-9]*,"changed":.*0.025' s/metrics.jsonl
sed -i 's/learning_rate = 0.025/learning_rate = 0.5/; s/seed = 1/seed = 2/' long.conf
says "a seed is refused by name" 78 'long.conf: settings that cannot change during a run: run.seed;' s reload
equal "and the rest is not applied" 0.025000000000000001 "$(status_of s learning_rate)"
sed -i 's/learning_rate = 0.5/learning_rate = 0.025/; s/seed = 2/seed = 1/
    s/log_every = 0/& progress = "yes"/' long.conf
says "the progress line can be switched on" 0 's: service.progress is "yes" from step' s reload
for _ in $(seq 100); do ! grep -q 'step *[0-9]*/100000000 ' "$aside/err" || break; sleep 0.05; done
check "and appears" grep -q 'step *[0-9]*/100000000 ' "$aside/err"
sed -i 's/progress = "yes"/progress = "auto"/' long.conf
says "and off" 0 's: service.progress is "auto" from step' s reload
echo 'train {' >>long.conf
says "an error in the file is named" 78 'long.conf:[0-9]+: ' s reload
mv long.conf kept.conf
mkfifo long.conf
says "a pipe that nobody writes into is not waited for" 78 'long.conf: is a FIFO, not a regular file' s reload
rm long.conf
mv kept.conf long.conf
check "and the run goes on" moves s

# ---- log-level -------------------------------------------------------------------------------------------------------
says "log-level" 0 'level debug$' s log-level debug
"$mpstagectl" s status >/dev/null
check "what is asked stands in the log" grep -q 'debug: control: user .*: status' s/mpstaged.log
says "an unknown level" 64 'log-level: .*error, warning, note, info or debug' s log-level loud
says "note" 0 'level note$' s log-level note
lines=$(wc -l <s/mpstaged.log)
"$mpstagectl" s set train.learning_rate=0.1 >/dev/null
equal "leaves out the rest" "$lines" "$(wc -l <s/mpstaged.log)"

# ---- top, watch ------------------------------------------------------------------------------------------------------
timeout 2 "$mpstagectl" s top 0.2 >"$aside/top" 2>&1 || true
check "top has both stages, with bubble and memory" sh -c 'grep -qE "^ +0 .* %  +[0-9.]+ [KM]?i?B$" "$0" &&
    grep -qE "^ +1 .* %  +[0-9.]+ [KM]?i?B$" "$0" && grep -q "a step takes .*, rate 0.1" "$0"' "$aside/top"
check "and fits 80 columns" [ "$(longest <"$aside/top")" -lt 80 ]
check "and a file gets no codes for terminals" sh -c '! grep -q "$(printf "\033")" "$0"' "$aside/top"
for what in watch top; do
    timeout 2 "$mpstagectl" s $what 0.2 --json >"$aside/lines" 2>&1 || true
    check "$what --json prints objects, one a line" \
        sh -c '[ "$(grep -c . "$0")" -ge 2 ] && ! grep -qv "^{\"ok\":true,.*}$" "$0"' "$aside/lines"
done
if [ -n "$python" ]; then
    code=0
    "$python" - "$mpstagectl" >"$aside/tty" <<'EOF2' || code=$?
import os, pty, select, sys, termios, time
pid, fd = pty.fork()
if pid == 0: os.execv(sys.argv[1], [sys.argv[1], "s", "top", "0.2"])
said, end, asked = b"", time.time() + 20, False
while time.time() < end:
    if select.select([fd], [], [], 0.1)[0]:
        try: got = os.read(fd, 65536)
        except OSError: break
        if not got: break
        said += got
    if said.count(b"a step takes") >= 3 and not asked:
        assert not termios.tcgetattr(fd)[3] & termios.ECHO
        os.write(fd, b"q"); asked = True
_, status = os.waitpid(pid, 0)
assert asked and os.waitstatus_to_exitcode(status) == 0, said
assert b"\x1b[J" in said
EOF2
    check "on a terminal top rewrites its lines until q: $code" [ "$code" -eq 0 ]
else skip "on a terminal top rewrites its lines until q" "apt-get install python3"; fi

# ---- who may what ----------------------------------------------------------------------------------------------------
if [ -n "$python" ] && [ "$(id -u)" -eq 0 ]; then
    chmod 755 "$tmp" s
    cat >ask.py <<'EOF2'
import json, os, socket, sys
uid, gid, groups, commands = int(sys.argv[1]), int(sys.argv[2]), json.loads(sys.argv[3]), sys.argv[4:]
os.setgroups(groups); os.setgid(gid); os.setuid(uid)
for c in commands:
    s = socket.socket(socket.AF_UNIX)
    try: s.connect("s/control.sock")
    except PermissionError: print("no entry"); continue
    try: s.sendall(json.dumps({"command": c}).encode() + b"\n")
    except BrokenPipeError: pass
    a = json.loads(s.makefile().readline())
    print(a.get("state") or (str(a["code"]) + " " + a["error"]))
EOF2
    ask() { "$python" ask.py "$@" | tr '\n' '|'; }
    owner='77 stop: only the owner of the run may ask that'
    equal "another user of the group reads" "training|$owner|" "$(ask 54321 0 '[]' status stop)"
    equal "by any of the user's groups" "training|$owner|" "$(ask 54321 54321 '[7, 0]' status stop)"
    equal "others do not come in" "no entry|" "$(ask 54321 54321 '[]' status)"
    chmod 666 s/control.sock
    nobody='77 only the owner of the run and its group may ask'
    equal "not even where the socket is open to all" "$nobody|$nobody|" "$(ask 54321 54321 '[]' status stop)"
    chmod 660 s/control.sock
    equal "the owner may" "pausing|going on|" "$(ask 0 0 '[]' pause resume)"
else skip "who may what" "needs root and python3"; fi

if [ -n "$python" ]; then
    wait "$slow" || true
    equal "who sends no whole line is dismissed" dismissed "$(cat "$aside/slow")"
fi

# ---- a flood ---------------------------------------------------------------------------------------------------------
if [ -n "$python" ]; then
    code=0
    "$python" - "$mpstagectl" >"$aside/flood" 2>&1 <<'EOF2' || code=$?
import json, resource, socket, subprocess, sys, time
hard = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
def step():
    return json.loads(subprocess.run([sys.argv[1], "s", "status", "--json"], check=True, stdout=-1).stdout)["step"]
def moves():
    before, end = step(), time.time() + 20
    while step() <= before: assert time.time() < end
many = []
for i in range(1000):
    s = socket.socket(socket.AF_UNIX); s.connect("s/control.sock"); many.append(s)
    if i % 3 == 0:
        try: s.sendall(b'{"comm')
        except BrokenPipeError: pass
    if i in (300, 600, 900): moves()
for i in range(3): moves()
EOF2
    note <"$aside/flood"
    check "a flood of 1,000 half-open clients stops neither steps nor answers: $code" [ "$code" -eq 0 ]
else skip "a flood of 1,000 half-open clients" "apt-get install python3"; fi
"$mpstagectl" s stop --wait >/dev/null
wait "$pid" || true

# ---- list and verify -------------------------------------------------------------------------------------------------
says "a run without checkpoints" 0 '^plain: no checkpoints$' list plain
says "has nothing to verify" 66 'plain: no checkpoints$' verify plain
write_conf kept.conf
trains kept 2 -c kept.conf -o checkpoint.every_steps=1 -o data.test_samples=20 -o train.evaluate_every=2 --steps 3
"$mpstagectl" list kept >"$aside/list"
check "list shows them, the newest first" sh -c 'sed -n 2p "$0" | grep -qE "^ +3 .* accuracy 0[.0-9]*(  best)?$" &&
    sed -n 4p "$0" | grep -qE "^ +1 .* -$" && [ "$(grep -c . "$0")" -eq 4 ]' "$aside/list"
check "in 80 columns" [ "$(longest <"$aside/list")" -lt 80 ]
# the first of those that have most
best_is=$(awk '/accuracy/ { if ($(NF - ($NF == "best")) + 0 >= most) { most = $(NF - ($NF == "best")) + 0; at = $1 } }
    END { print at }' "$aside/list")
equal "and the best is marked, alone" "$(awk '/  best$/ { print $1 }' "$aside/list")" "$best_is"
"$mpstagectl" list kept --json >"$aside/json"
check "as JSON, too" [ "$(grep -c '"best": true' "$aside/json") $(grep -c '"best": false' "$aside/json")" = "1 1" ]
"$mpstagectl" verify kept >"$aside/verified" || true
check "verify finds all valid" [ "$(grep -cE '^step-0000000[123]: valid, 4 files' "$aside/verified")" -eq 3 ]
says "one alone" 0 '^step-00000003: valid, 4 files' verify kept/checkpoints/step-00000003
printf x | dd of=kept/checkpoints/step-00000003/model-00001-of-00002.safetensors bs=1 seek=300 conv=notrunc 2>/dev/null
says "a byte that changed is found" 65 'step-00000003/model-.*: its hash ' verify kept/checkpoints/step-00000003/
code=0; "$mpstagectl" verify kept --json >"$aside/json" || code=$?
check "among all, too: $code" sh -c '[ "$1" -eq 65 ] && grep -q "\"valid\": true" "$0" &&
    grep -q "\"valid\": false" "$0"' "$aside/json" "$code"
echo '{' >kept/checkpoints/step-00000001/manifest.json
"$mpstagectl" list kept >"$aside/list"
check "list names what cannot be read, and ends well" grep -qE '^ +1 .* damaged$' "$aside/list"
# What may not be read is not said to be damaged. Root may read everything, unless that right is taken from it.
plainly=
[ "$(id -u)" -ne 0 ] || plainly="setpriv --bounding-set=-dac_override,-dac_read_search"
if ! $plainly true 2>/dev/null; then skip "list of what may not be read" "root, and no setpriv"
else
    chmod 000 kept/checkpoints/step-00000002/manifest.json
    code=0; $plainly "$mpstagectl" list kept >"$aside/list" || code=$?
    check "what may not be read is unreadable, not damaged: $code" \
        sh -c '[ "$1" -eq 0 ] && grep -qE "^ +2 .* unreadable$" "$0"' "$aside/list" "$code"
    chmod 644 kept/checkpoints/step-00000002/manifest.json
fi
"$mpstagectl" list kept --json >"$aside/json"
check "as JSON, too" sh -c 'grep -q "\"readable\": false" "$0" && grep -q "\"name\": \"accuracy\"" "$0"' "$aside/json"
says "a directory that is not there" 66 'nowhere: No such file' list nowhere
says "list may stand behind, too" 0 '^plain: no checkpoints$' plain list
says "and other commands before" 69 'gone: No such file' status gone

# ---- the manual ------------------------------------------------------------------------------------------------------
write_conf long.conf 's/steps = 3/steps = 100000000/; $a service { log_every = 0 }'
begin m
sed -n '/commands are/,/^\.El/s/^\.It Cm \([a-z-]*\).*/\1/p' "$page" >"$aside/commands"
sed -n '/^\.Sh PROTOCOL/,/^\.El/s/^\.It Ic \([a-z-]*\).*/\1/p' "$page" >"$aside/requests"
check "mpstagectl(1) has commands and requests" [ "$(cat "$aside/commands" "$aside/requests" | grep -c .)" -ge 20 ]
while read -r c; do
    code=0
    case $c in
    report) timeout 20 "$mpstagectl" report m ;;
    why) timeout 20 "$mpstagectl" why m ;;
    list) timeout 20 "$mpstagectl" list m ;;
    verify) timeout 20 "$mpstagectl" verify kept/checkpoints/step-00000002 ;;
    watch | top) timeout 0.5 "$mpstagectl" m "$c" ;;
    set) timeout 20 "$mpstagectl" m set train.learning_rate=0.1 ;;
    log-level) timeout 20 "$mpstagectl" m log-level info ;;
    stop) continue ;;                                      # below
    *) timeout 20 "$mpstagectl" m "$c" ;;
    esac >"$aside/out" 2>"$aside/said" || code=$?
    case $c$code in
    watch124 | top124 | verify65 | checkpoint78 | why66) ;;   # till it is ended; damaged above; no such thing
    *) [ "$code" -eq 0 ] || note <"$aside/said"; check "mpstagectl(1): $c is a command: $code" [ "$code" -eq 0 ] ;;
    esac
done <"$aside/commands"
says "mpstagectl(1): stop is a command" 0 stopped m stop --wait
wait "$pid" || true
if [ -n "$python" ]; then
    begin p
    code=0
    "$python" - "$aside/requests" <<'EOF2' || code=$?
import json, socket, sys
s = socket.socket(socket.AF_UNIX); s.connect("p/control.sock"); f = s.makefile("rw")
more = {"set": {"key": "train.learning_rate", "value": 0.1}, "log-level": {"level": "info"}}
for name in sorted(open(sys.argv[1]).read().split(), key="stop".__eq__):    # stop is last: nobody answers after it
    f.write(json.dumps({"command": name, "other": 1, **more.get(name, {})}) + "\n"); f.flush()
    assert json.loads(f.readline())["code"] == 64
    f.write(json.dumps({"command": name, "id": name, **more.get(name, {})}) + "\n"); f.flush()
    a = json.loads(f.readline())
    assert a["id"] == name and (a["ok"] or (name == "checkpoint" and a["code"] == 78)), a
EOF2
    check "mpstagectl(1), PROTOCOL: the socket takes every command, and none an unknown key: $code" [ "$code" -eq 0 ]
    wait "$pid" || true
fi
check "nobody is left" nobody_left
tap_done
