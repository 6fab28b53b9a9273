#!/bin/sh
# hour.sh: the three commands for an hour on a GPU (tests/gpu/hour), over the doubles: cut at three moments each, by
# SIGKILL and by SIGTERM; lines that hang and crash at five moments; a disk that is full at three moments. LONG=1 cuts
# and fills at two moments more. Whatever happens, what was known before can be read.
set -eu
. "$(dirname -- "$0")/mpi_lib.sh"
command -v python3 >/dev/null || { echo "1..0 # SKIP no python3"; exit 77; }
[ -x "$build/tests/gpu/mpstaged-double" ] || { echo "1..0 # SKIP no C++ compiler"; exit 77; }
top=$(dirname -- "$here")
export PYTHON=none                                       # PyTorch takes seconds to import, and is not needed
mkdir scratch
export TMPDIR="$tmp/scratch"
# Replaces the shell: for ( ) and &, so that $! is its process.
hour() {
    exec python3 "$here/gpu/hour" --tiny --build "$build" --mpstaged "$build/tests/gpu/mpstaged-double" \
        --operators "$build/tests/gpu/operators-double" "$@"
}
# verdicts of judge.py, of what lies in $1; $2: what became of the lines
read_out() {
    text=$1; shift
    judged=$aside/judged
    python3 "$here/gpu/judge.py" hour "$@" >"$judged" 2>&1 || echo "not ok - judge.py ends with $?" >>"$judged"
    if grep -q '^ok - ' "$judged" && ! grep -q '^not ok' "$judged"; then
        ok "$text: $(sed -n 's/^ok - //p' "$judged" | tail -n 1)"
    else note <"$judged"; not_ok "$text"; fi
}
# Processes that a command with that process id has started and left.
left_by() { grep -lz "^MPSTAGED_HOUR=$1\\." /proc/[0-9]*/environ 2>/dev/null || true; }
gone() {
    for _ in $(seq 100); do [ -n "$(left_by "$1")" ] || return 0; sleep 0.05; done
    return 1
}
# nothing_left TEXT PID
nothing_left() { if gone "$2"; then ok "$1"; else left_by "$2" | note; not_ok "$1"; fi; }
# NAME|LIMIT|alone or nothing|COMMAND as tests/gpu/hour --lines wants it
lines() {
    python3 -c 'import json, sys
rows = [x.rstrip("\n").split("|", 3) for x in sys.stdin]
json.dump([{"name": n, "limit": float(t), "alone": a == "alone", "command": c} for n, t, a, c in rows], sys.stdout)'
}

# ---- lines that hang, crash, fail, say nothing -----------------------------------------------------------------------
toy="'$build/tests/gpu/mpstaged-double' -c '$top/conf/toy.conf' -o pipeline.partition=uniform --stages 2 --device cuda \
    --transport staged --steps 2 --progress no"
lines >planted.json <<END
bad|9||echo 'ok - one'; echo 'not ok - two'; exit 1
crash0|9||kill -SEGV \$\$
crash1|9||echo 'ok - before'; kill -SEGV \$\$
crash2|9||sleep 0.2; exit 77
crash3|9||sleep 0.4; echo 'ok - before'; kill -KILL \$\$
crash4|9||sleep 0.6; printf 'ok - hal'; kill -ABRT \$\$
good|9||echo 'ok - one'; echo 'skip - two # SKIP not here'; echo 'figure - 3 things'
hang0|0.4||sleep 1000
hang1|0.5||echo 'ok - first'; trap '' TERM; sleep 1000 & sleep 1000
hang2|0.6||setsid sleep 1000; sleep 1000
hang3|0.7||while :; do sleep 0.1; echo 'ok - again'; done
hang4|0.8|alone|python3 -c 'import signal, time; signal.signal(15, signal.SIG_IGN); time.sleep(1000)'
hang5|0.8||exec env -i sleep 1000
silent|9||true
skipped|9||echo 'skip - this # SKIP not here'
trained|60|alone|cd '$tmp' && $toy --run-dir trained && echo 'ok - it trains'
END
code=0; hour first --lines planted.json --out planted >"$aside/out" 2>&1 & job=$!
wait $job || code=$?
check "a command with lines that fail ends with 1" [ "$code" -eq 1 ]
read_out "lines that hang and crash cost no other" "$tmp/planted" \
    "failed crashed crashed crashed crashed crashed ok hung hung hung hung hung hung crashed skipped ok"
check "each is told in a line" \
    [ "$(grep -cE '^(ok|failed|crashed|hung|skipped) +[a-z0-9]+ +[0-9.]+ s ' "$aside/out")" -eq 16 ]
check "with what it found" grep -qE '^ok +good .* 1 ok, 1 skip; 3 things' "$aside/out"
check "with what failed first" grep -qE '^failed +bad .* 1 not ok; two' "$aside/out"
check "verdicts before an end count" \
    sh -c 'grep -A20 "\"line\": \"hang1\"" planted/results.json | grep -q "\"text\": \"first\""'
nothing_left "nothing is left of them" $job

# ---- where results go, and what they are made from -----------------------------------------------------------------
printf 'one|9||echo "ok - here"; echo "figure - \\351\\303\\251"\n' | lines >one.json
echo a file >file
for out in file /proc/none; do
    code=0; (hour first --lines one.json --out $out) >"$aside/out" 2>&1 || code=$?
    check "results cannot go to $out: one line, 73" \
        [ "$code/$(grep -c '^hour: .*'"$out: " "$aside/out")/$(wc -l <"$aside/out")" = 73/1/1 ]
done
code=0; (export PYTHONIOENCODING=ascii; hour first --lines one.json --out 'with [1]') >"$aside/out" 2>&1 || code=$?
[ "$code" -eq 0 ] || { note <"$aside/out"; not_ok "a terminal without its characters: $code"; }
read_out "a folder with brackets in its name, what is not UTF-8" "$tmp/with [1]" "ok"
check "the archive has the log" sh -c 'tar tzf "with [1]/all.tar.gz" | grep -q "logs/one.log$"'
mkdir -p 'with [1]/tables/folder'
echo kernels >'with [1]/tables/measured'
code=0; (hour second --lines one.json --out 'with [1]' --tables 'with [1]/tables') >"$aside/out" 2>&1 || code=$?
check "the same folder again, with its own tables: 0" [ "$code" -eq 0 ]
check "the archive of the first command is still there" sh -c '
    tar xzOf "with [1]/all-1.tar.gz" --wildcards "*/results.json" |
    grep -q "\"command\": \"first\""'
(hour second --lines one.json --out second --tables nowhere) >"$aside/out" 2>&1 || note <"$aside/out"
check "tables that are not there are told" grep -q '^nowhere has no tables: kernels are measured anew' "$aside/out"
code=0; (hour first --only nothing --out second) >"$aside/out" 2>&1 || code=$?
check "lines that there are not: 64" [ "$code" -eq 64 ]
# A machine with next to no programs.
mkdir bare
for p in sh cat head; do ln -s "$(command -v $p)" bare/$p; done
python=$(python3 -c 'import sys; print(sys.executable)')
(unset MPIRUN; export PATH="$tmp/bare"; exec "$python" "$here/gpu/hour" first --tiny --build "$build" \
    --mpstaged "$build/tests/gpu/mpstaged-double" --only inventory --only toy --only ranks-staged --out bare/out) \
    >"$aside/out" 2>&1 || true
read_out "no timeout, no mpirun: what needs neither is done" "$tmp/bare/out" "ok failed ok"
# A process that waits for a device is not ended by SIGKILL.
printf '%s\n' "stuck|1||sleep 1000" "other|9|alone|echo 'ok - here'" | lines >stuck.json
cat >"$aside/stuck.py" <<'END'
import importlib.machinery, importlib.util, sys
loader = importlib.machinery.SourceFileLoader("hour", sys.argv.pop(1))
hour = importlib.util.module_from_spec(importlib.util.spec_from_loader("hour", loader))
loader.exec_module(hour)
hour.signal_all = lambda *_: None
sys.exit(hour.main())
END
code=0; timeout -s KILL 60 python3 "$aside/stuck.py" "$here/gpu/hour" first --scale 0.3 --lines stuck.json \
    --out stuck >"$aside/out" 2>&1 || code=$?
read_out "a process that nothing ends costs no other line" "$tmp/stuck" "ok hung"
check "and is told" sh -c '[ "$0" -eq 1 ] && grep -q "^hung  *stuck .*; it cannot be killed" "$1"' "$code" "$aside/out"
# All lines hang, to the last: all is told in time.
printf '%s\n' "one|560||trap '' TERM; sleep 1000" "two|560|alone|sleep 1000" | lines >all.json
began=$(date +%s%N)
(hour third --seconds 12 --lines all.json --out all) >"$aside/out" 2>&1 || true
took=$((($(date +%s%N) - began) / 1000000))
if [ $took -lt 12000 ]; then ok "the end of all: $took of 12000 ms"
else not_ok "the end of all: $took ms, not 12000"; fi
read_out "what hung is told" "$tmp/all" "hung left"
rm -rf 'with [1]' second stuck all

# ---- the lines of the first command, those that are quick over the doubles -------------------------------------------
first() {
    hour first --only inventory --only toy --only replay --only ranks-staged --only ranks-nccl \
        --only ranks-four --only table --only levers --only loads "$@"
}
code=0
(export DOUBLE_DEVICES=1 DOUBLE_NCCL_WANTS=NCCL_CUMEM_ENABLE=0; first --out done) >"$aside/out" 2>&1 || code=$?
read_out "lines of the first command over the doubles" "$tmp/done" "ok ok skipped ok ok ok ok ok ok"
[ "$code" -eq 0 ] || { note <"$aside/out"; not_ok "they end with 0: $code"; }
check "NCCL meets at the second attempt, and the first is told" \
    sh -c 'grep -q "^figure - nccl, as it is: .*status 69: .*making an id" "$0" &&
        grep -q "^ok - two ranks by nccl, NCCL_CUMEM_ENABLE=0" "$0"' done/logs/ranks-nccl.log
check "what is off is measured beside what is on" \
    sh -c '[ "$(grep -c "^figure - .* ms a step" "$0")" -eq 2 ] &&
        grep -q "^figure - .* every kernel a candidate" "$0"' done/logs/levers.log
check "measured kernels are kept" [ -s done/tables/kernels-resnet50-224-120 ]
(hour first --only table --tables done/tables --out again) >"$aside/out" 2>&1 || note <"$aside/out"
check "and used by the next command" cmp done/tables/kernels-resnet50-224-120 again/tables/kernels-resnet50-224-120
code=0; (export DOUBLE_VANISH=60; first --out lost) >"$aside/out" 2>&1 || code=$?
read_out "a GPU that is lost again and again: every line says so" "$tmp/lost" \
    "ok failed skipped failed failed failed failed failed failed"
check "in its own words" sh -c '[ "$(grep -c "busy or unavailable" "$0")" -ge 5 ]' lost/summary.txt
code=0; (export DOUBLE_DEVICES=0; first --out none) >"$aside/out" 2>&1 || code=$?
if [ "$code" -eq 1 ] && [ "$(grep -c '^left out .*no GPU that this build can use' "$aside/out")" -eq 8 ]; then
    ok "without a GPU the first line says why, and no other begins"
else note <"$aside/out"; not_ok "without a GPU the first line says why, and no other begins: $code"; fi
check "and its reason" grep -q "can use the device: status 69: run.device" none/summary.txt
check "what is printed fits 80 columns" sh -c '! grep -E ".{81}" "$0"' "$aside/out"
cat >late <<END
#!/bin/sh
case "\$*" in *--check-config*) sleep 60 ;; esac
exec '$build/tests/gpu/mpstaged-double' "\$@"
END
chmod +x late
(hour first --only inventory --only toy --mpstaged "$tmp/late" --scale 0.2 --out late-out) >"$aside/out" 2>&1 || true
read_out "a program that does not answer yet is no build without a GPU" "$tmp/late-out" "failed ok"
rm -rf done again lost none late-out

# ---- what is refused before it costs a slot --------------------------------------------------------------------------
# refused TEXT STATUS SAID ARGUMENTS...: one line, and nothing is made
refused() {
    text=$1 status=$2 said=$3; shift 3
    code=0; (hour "$@") >"$aside/out" 2>&1 || code=$?
    if [ "$code" -eq "$status" ] && [ "$(grep -c . "$aside/out")" -eq 1 ] && grep -q "^hour: .*$said" "$aside/out" &&
        [ ! -e refused ]; then ok "$text is refused"
    else note <"$aside/out"; not_ok "$text is refused: status $code"; fi
}
: >a-file
refused "no command" 64 "which command" --out refused
refused "an unknown command" 64 "frist" frist --out refused
refused "an unknown line" 64 "no line operators-bf61, but inventory, " first --only operators-bf61 --out refused
refused "a build without mpstaged" 66 "build mpstaged with CUDA" first --mpstaged /nonexistent/mpstaged --out refused
refused "a pack that is not there" 66 "not what tests/gpu/pack made" first --pack /nonexistent.tar.gz --out refused
refused "a folder that is no pack" 66 "not what tests/gpu/pack made" first --pack "$tmp" --out refused
refused "a missing file of lines" 66 "/nonexistent" first --lines /nonexistent --out refused
refused "a file where results go" 73 "no folder for results" first --out a-file
(hour first --help) >"$aside/out" 2>&1
check "--help fits 80 columns and names the options" sh -c '! grep -E ".{81}" "$0" &&
    for o in out build pack tables seconds only device tiny; do grep -q -- "--$o " "$0" || exit 1; done' "$aside/out"
# A slot is worth more than a wrong name.
(hour first --only toy --tables /nonexistent --out tables) >"$aside/out" 2>&1 || note <"$aside/out"
check "without tables kernels are measured, and a line says so" \
    sh -c 'grep -q "^/nonexistent has no tables" "$0" && grep -q "^ok  *toy " "$0"' "$aside/out"
rm -rf tables

# ---- cut at any moment -----------------------------------------------------------------------------------------------
for moment in $(cases '0 1 4' '0.4 2'); do
    for how in KILL TERM; do
        jobs=
        for which in first second third; do
            hour $which --out cut-$which >"$aside/$which" 2>&1 &
            jobs="$jobs $!"
        done
        for which in first second third; do             # from when it has begun: before, there is nothing to be read
            for _ in $(seq 600); do [ ! -s "cut-$which/all.tar.gz" ] || break; sleep 0.05; done
        done
        sleep $moment
        for job in $jobs; do kill -$how "$job"; done
        set -- $jobs
        for which in first second third; do
            code=0; wait "$1" 2>/dev/null || code=$?
            if [ $how = TERM ]; then
                check "$which, SIGTERM after $moment s: 75" [ "$code" -eq 75 ]
                nothing_left "$which: nothing is left" "$1"
            fi
            read_out "$which, SIG$how after $moment s" "$tmp/cut-$which"
            rm -rf "cut-$which"
            shift
        done
    done
    killed=$jobs
done
echo '[]' >none.json
(hour first --lines none.json --out none) >/dev/null
for job in $killed; do nothing_left "the next command ends what a killed one left" "$job"; done

# ---- a full disk -----------------------------------------------------------------------------------------------------
mkdir full
if mount -t tmpfs -o size=3m none full 2>/dev/null; then
    trap 'umount "$tmp/full" 2>/dev/null || true; rm -rf "$tmp" "$aside"' EXIT
    for at in $(cases '0 2 4' '1 3'); do
        for n in 0 1 2 3 4; do
            if [ $n -eq $at ]; then echo "line$n|9|alone|echo 'ok - before'; cat /dev/zero >'$tmp/full/filler' || true"
            else echo "line$n|9|alone|sleep 0.1; echo 'ok - here'"; fi
        done | lines >full.json
        (hour second --lines full.json --out full/out) >"$aside/out" 2>&1 || true
        check "the disk is full when line $at runs: every line is told" \
            [ "$(grep -cE '^(ok|crashed) +line' "$aside/out")" -eq 5 ]
        read_out "what was known before can be read" "$tmp/full/out"
        check "and it knows of the lines until then" [ "$(grep -c '"state": "ok"' full/out/results.json)" -ge $at ]
        rm -rf full/*
    done
    umount full
else
    skip "a full disk" "a file system of a few megabytes cannot be mounted here"
fi
# The same without a mount: a device that is always full stands where the new file would be written.
mkdir -p reserve
ln -s /dev/full reserve/results.json.tmp
printf 'one|9||echo "ok - here"\n' | lines >one.json
(hour third --lines one.json --out reserve) >"$aside/out" 2>&1 || true
read_out "a reserve of the disk's is given up for the results" "$tmp/reserve" "ok"
check "once" [ ! -e reserve/.reserve ]
tap_done
