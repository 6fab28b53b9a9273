#!/bin/sh
# soak.sh: one long run, met by faults of all kinds at random: killed and stopped processes, signals, requests and
# clients that never end theirs, logs that are rotated, a disk that fails for a while, a reader that stops. First under
# the supervisor; then in one life, without what ends a process. At last both must have the bits of a run that nobody
# disturbed, and nothing may have grown or be left. SOAK: minutes that both take together (LONG=1: 5); SEED gives the
# same faults again as far as the machine does; HANG: run.hang_timeout in seconds; WAIT: how
# long a start or a checkpoint may take. Part of ./quickstart check-long.
set -eu
. "$(dirname -- "$0")/mpi_lib.sh"
. "$here/faults/lib.sh"
SOAK=${SOAK:-${LONG:+5}}; SOAK=${SOAK:-1} SEED=${SEED:-$(date +%s)} HANG=${HANG:-2} WAIT=${WAIT:-180}
python=$(command -v python3 || true)
echo "# SEED=$SEED, $SOAK min"
unset MPIEXEC_TIMEOUT NOTIFY_SOCKET
state=$SEED
random() { state=$(((state * 1103515245 + 12345) % 2147483648)); dice=$((state / 65536 % $1)); }
# nap LEAST MOST: ms
nap() { random $(($2 - $1 + 1)); dice=$((dice + $1)); sleep "$((dice / 1000)).$(printf %03d $((dice % 1000)))"; }

# What jobs leave would be in folders of this test.
mkdir "$aside/shm" "$aside/bin"
export OMPI_MCA_btl_vader_backing_directory="$aside/shm" OMPI_MCA_btl_sm_backing_directory="$aside/shm"
# The disk below run/checkpoints fails while the file "broken" is there.
cat >"$aside/bin/mpstaged" <<END
#!/bin/sh
[ -z "\${MPSTAGED_FAULT_BELOW:-}" ] || export LD_PRELOAD='$build/tests/faults/faults.so'
exec '$mpstaged' "\$@"
END
chmod +x "$aside/bin/mpstaged"
program=$aside/bin/mpstaged

metrics='metrics = "127.0.0.1:0"'
[ -n "$python" ] && ! "$mpstaged" -c /dev/null -o "service.metrics=:0" --check-config 2>&1 | grep -q libmicrohttpd ||
    metrics=
# A run may read it at any time: the whole file at once.
write_soak() {
    cat >"$1.new" <<END
run      { name = "soak"  seed = 5  hang_timeout = $HANG }
model    { network = "mlp"  input = {64}  hidden = {256, 256, 256}  classes = 10  dropout = 0.2 }
data     { source = "synthetic"  labels = "class"  samples = 1000  test_samples = 100  shuffle = yes }
train    { batch_size = 64  split_size = 16  steps = 100000000  optimizer = "adamw"  learning_rate = 0.001
           clip_norm = 1  evaluate_every = 500 }
pipeline { stages = 2 }
checkpoint { every_seconds = 0.7  keep = 3 }
service { log_every = $2  progress = "no"  stages_every = 0  $metrics }
END
    mv "$1.new" "$1"
}
write_soak s.conf 1

# ---- the run ---------------------------------------------------------------------------------------------------------
# A reader of what the run says, which may stop; the third descriptor keeps it from reading an end.
mkfifo fifo
cat fifo >"$aside/said" & reader=$!
exec 3<>fifo
pid=
trap 'kill -KILL $pid $reader 2>/dev/null || true; sleep 0.2
    for p in $(ranks_alive); do kill -KILL "$p" 2>/dev/null || true; done; rm -rf "$tmp" "$aside"' EXIT
# launch RUN COMMAND...: $pid; the disk's fault is another one each time
launch() {
    run=$1; shift
    random 3
    case $dice in 0) action=eio ;; 1) action=enospc ;; *) action=short ;; esac
    MPSTAGED_FAULT_BELOW=$(pwd -P)/$run/checkpoints MPSTAGED_FAULT="*:any:1+:$action" \
        MPSTAGED_FAULT_WHILE=$(pwd -P)/broken "$@" "$MPIRUN" $mpi_options -np 2 "$program" \
        -c s.conf --run-dir "$run" --resume >fifo 2>&1 3>&- </dev/null & pid=$!
    lives=$((lives + 1))
}
supervised() { launch run "$build/mpstage-run" --backoff 0.1 --max-fruitless 9 --hang-timeout $((3 * HANG)) --; }
lives=0
now() { date +%s; }
newest() { find "$run/checkpoints" -maxdepth 1 -name 'step-*[0-9]' 2>/dev/null | LC_ALL=C sort | tail -n 1; }
is_alive() { kill -0 "$pid" 2>/dev/null; }
# saved_after NAME: a checkpoint newer than that one
saved_after() { is=$(newest); [ -n "$is" ] && [ "$is" != "$1" ]; }
# waits SECONDS COMMAND...: true: it succeeded by then, and before the run ended
waits() {
    until=$(($(now) + $1)); shift
    until "$@"; do is_alive && [ "$(now)" -lt "$until" ] || return 1; sleep 0.1; done
}
begins() {
    waits "$WAIT" saved_after '' && return 0
    sleep 1; tail -n 20 "$aside/said" | note
    not_ok "$1 begins"
    tap_done
}
mine() {
    for p in $(pgrep -x "$1" || true); do
        [ "$(readlink "/proc/$p/cwd" 2>/dev/null)" != "$tmp" ] || echo "$p"
    done
}
launchers() { mine 'mpirun.*|orterun|prterun|mpiexec.*'; }
pick() { [ $# -gt 0 ] || return 0; random $#; shift "$dice"; echo "$1"; }
ctl() { timeout $((WAIT / 9)) "$mpstagectl" "$run" "$@" >"$aside/answer" 2>&1 </dev/null || true; }

# ---- faults ----------------------------------------------------------------------------------------------------------
# Those that end processes:
kill_rank() { set -- $(ranks_alive); random 1000; [ $# -eq 0 ] || { shift $((dice % $#)); kill -KILL "$1"; }; }
kill_all() { kill -KILL $(ranks_alive); }
kill_mpirun() { kill -KILL $(launchers); }
kill_supervisor() { kill -KILL "$(pgrep -P "$pid" mpstage-run)"; }
kill_guard() { kill -KILL "$pid"; }
stop_long() { set -- $(ranks_alive); random 1000; [ $# -eq 0 ] || { shift $((dice % $#)); kill -STOP "$1"; }; }
# That all stand still is the supervisor's to find, which it does of what was ready.
is_ready() { "$mpstagectl" "$run" status 2>/dev/null | grep -q ': training'; }
stop_all() { waits "$WAIT" is_ready && kill -STOP $(ranks_alive); }
usr1() { kill -USR1 "$pid"; }
term() { kill -TERM "$pid"; }
# Those that do not:
stop_short() {
    set -- $(ranks_alive)
    random 1000
    [ $# -gt 0 ] || return 0
    shift $((dice % $#))
    kill -STOP "$1"
    nap 50 600
    kill -CONT "$1"
}
usr2() { kill -USR2 "$pid"; }
checkpoint() { ctl checkpoint; }
checkpoint_wait() { ctl checkpoint --wait; }
pause() { ctl pause; nap 100 3000; ctl resume; }
set_rate() { random 9; ctl set train.learning_rate=0.000$((dice + 1)); }
reload() { random 2; write_soak s.conf $((dice + 1)); ctl reload; }
level() { ctl log-level debug; ctl status; ctl log-level info; }
asks() { ctl status; ctl status --json; "$mpstagectl" list "$run" >"$aside/list" 2>&1 || true; }
watches() {
    for what in watch top; do timeout 1 "$mpstagectl" "$run" $what 0.1 >"$aside/$what" 2>&1 </dev/null & done
    nap 500 1500
}
rotate() {
    turned=$((turned + 1))
    [ ! -e "$run/mpstaged.log" ] || mv "$run/mpstaged.log" "$run/mpstaged.log.$((turned % 3))"
    for p in $(ranks_alive); do kill -HUP "$p" 2>/dev/null || true; done
}
# In one life for less than three checkpoints, whose failure would end it.
disk() {
    disk_had=$(newest)
    : >broken
    if [ "$run" = life ]; then nap 300 1000; rm -f broken; waits "$WAIT" saved_after "$disk_had" || true
    else nap 300 3000; fi
}
reader() { kill -STOP $reader; nap 300 3000; }
flood() {
    [ -n "$python" ] || return 0
    cat "$run"/mpstaged.log* 2>/dev/null | sed -n 's,.*metrics at http://.*:\([0-9]*\)/metrics$,\1,p' >"$aside/ports"
    timeout 30 "$python" "$aside/clients.py" "$run/control.sock" $(cat "$aside/ports") >"$aside/answer" 2>&1 || true
}
cat >"$aside/clients.py" <<'END'
import random, socket, sys, time, urllib.request
many = []
def half(family, where, text):
    s = socket.socket(family); s.settimeout(1)
    try:
        s.connect(where)
        if random.random() < 0.7: s.sendall(text)
        many.append(s)
    except OSError: pass
for i in range(150):
    half(socket.AF_UNIX, sys.argv[1], random.choice([b'{"command":"sta', b'{"command":"status"}\n', b"\0\xff" * 99]))
    for port in sys.argv[2:]:
        half(socket.AF_INET, ("127.0.0.1", int(port)), random.choice([b"GET /met", b"GET /metrics HTTP/1.0\r\n\r\n"]))
for port in sys.argv[2:]:
    try: print(len(urllib.request.urlopen("http://127.0.0.1:%s/metrics" % port, timeout=5).read()))
    except OSError as e: print(e)
time.sleep(random.random())
END
mild='stop_short usr2 checkpoint checkpoint_wait pause set_rate reload level asks watches rotate disk reader flood'
deadly='kill_rank kill_rank kill_all kill_mpirun kill_supervisor kill_guard stop_long stop_long stop_all usr1 usr1 term'
turned=0 met=0 ended=0
# Faults that last end with one of the next two.
mended() { rm -f broken; kill -CONT $reader; }
meets() {
    met=$((met + 1))
    echo "$1" >>"$aside/met"
    [ -z "${SOAK_TRACE:-}" ] || echo "# $(date +%T) $1 at $(newest)"
    "$1" >"$aside/fault" 2>&1 || true
    random 2
    case $1-$dice in disk-*|reader-*) ;; *-0) mended ;; esac
}

# ---- figures ---------------------------------------------------------------------------------------------------------
# figures WHAT PROCESS...: life, seconds, resident KiB and open files
figures() {
    figures_of=$1; shift
    for p in "$@"; do
        rss=$(sed -n 's/^VmRSS:[^0-9]*\([0-9]*\).*/\1/p' "/proc/$p/status" 2>/dev/null) || continue
        files=$(ls "/proc/$p/fd" 2>/dev/null | wc -l)
        [ -z "$rss" ] || echo "$p $(($(now) - began)) $rss $files" >>"$aside/$figures_of"
    done
}
# grown FILE: of each process, how much more memory it has in the last quarter of what was noted than in the second, the
# middle of each, and how many files more at the least than it had at the most in the first half, since what it has open
# comes and goes; the most of all in KiB, then in files. Processes that were seen less than eight times do not count.
grown() {
    LC_ALL=C sort -s -k 1,1n "$1" | awk '
        function middle(a, from, to,   i, j, n, v, x) {
            for (i = from; i < to; i++) v[n++] = a[i]
            for (i = 1; i < n; i++) { x = v[i]; for (j = i; j && v[j - 1] > x; j--) v[j] = v[j - 1]; v[j] = x }
            return v[int(n / 2)]
        }
        function extreme(a, from, to, sign,   m) {
            for (m = a[from++]; from < to; from++) if (sign * a[from] > sign * m) m = a[from]
            return m
        }
        function one(   q) {
            if (n < 8) return
            q = int(n / 4); seen++
            m = middle(rss, n - q, n) - middle(rss, q, 2 * q); if (m > kib || seen == 1) kib = m
            m = extreme(fds, n - q, n, -1) - extreme(fds, 0, 2 * q, 1); if (m > files || seen == 1) files = m
        }
        $1 != p { one(); n = 0; p = $1 }
        { rss[n] = $3; fds[n++] = $4 }
        END { one(); print kib + 0, files + 0, seen + 0 }'
}
# still TEXT FILE KIB: that did not grow by more
still() {
    [ -s "$2" ] || { not_ok "$1: nobody looked"; return 0; }
    grown "$2" >"$aside/grown"
    read -r kib files seen <"$aside/grown"
    [ "$seen" -gt 0 ] || { skip "$1 grows no more" "no life was long enough: more SOAK"; return 0; }
    most=$(awk '$3 > r { r = $3 } $4 > f { f = $4 } END { print r + 0, "KiB and", f + 0, "files" }' "$2")
    check "$1: at most $most; more at last: $kib KiB and $files files ($seen processes)" \
        [ "$kib" -le "$3" -a "$files" -le 0 ]
}
# Lost a run a checkpoint that it had told of?
lost() {
    sed -n 's/.*"event":"\(checkpoint\|resume\)",.*"step":\([0-9]*\)[,}].*/\1 \2/p' "$1/metrics.jsonl" |
        awk '$1 == "checkpoint" && $2 > top { top = $2 } $1 == "resume" && $2 < top { n++ } END { print n + 0 }'
}
count() { n=$(grep -c "$1" "$2" 2>/dev/null || true); echo "${n:-0}"; }
field() { done_field "$1/metrics.jsonl" "$2" | tail -n 1; }

# ---- under the supervisor --------------------------------------------------------------------------------------------
# The end of a supervisor's life: with 75 when it was asked to stop, 137 and 70 when it was killed; and the next one.
reborn() {
    code=0; wait "$pid" || code=$?
    case $1-$code in usr1-75 | term-75 | kill_supervisor-70 | kill_guard-137) ;;
    *) mended; sleep 1; tail -n 8 "$aside/said" | note; not_ok "after $1 the supervisor ends with $code" ;; esac
    nobody_left || not_ok "after $1 ranks are left"
    [ "$tap_bad" -gt 0 ] || supervised
}
supervised
begins "a run"
began=$(now) ends=$(($(now) + 40 * SOAK))
while [ "$(now)" -lt "$ends" ] && [ "$tap_bad" -eq 0 ]; do
    random 100
    kind=$(if [ "$dice" -lt 40 ]; then echo "$deadly"; else echo "$mild"; fi)
    # shellcheck disable=SC2086
    set -- $kind
    random $#
    shift "$dice"
    case " $deadly " in *" $1 "*)
        ended=$((ended + 1)) had=$(newest)
        meets "$1"
        case $1 in usr1 | term | kill_supervisor | kill_guard) mended
            for _ in $(seq $((5 * WAIT))); do is_alive || break; sleep 0.1; done; reborn "$1" ;; esac
        nap 100 1000
        mended
        # As on a disk that works, and with a reader: the next checkpoint.
        if ! waits "$WAIT" saved_after "$had"; then
            if is_alive; then not_ok "$WAIT s after $1 there is no new checkpoint"; else reborn "$1"; fi
        fi ;;
    *) meets "$1"; is_alive || { mended; reborn "$1"; } ;;
    esac
    # shellcheck disable=SC2046
    [ "$tap_bad" -gt 0 ] || figures supervisors "$pid" $(pgrep -P "$pid" mpstage-run || true)
    figures restarted $(ranks_alive)
    nap 50 700
done
mended
# It ends as a user would end it; where a rank is just being started again, once more.
stopped() { ctl stop --wait; ! is_alive; }
for _ in $(seq 60); do ! stopped || break; sleep 1; done
code=0; wait "$pid" || code=$?
echo "# $met faults in $(($(now) - began)) s, of which $ended ended processes; $lives supervisors," \
    "$(count '"event":"resume"' run/metrics.jsonl) resumptions"
[ "$code" -eq 0 ] || tail -n 30 "$aside/said" | note
check "a run that met faults ends when it is told to: $code" [ "$code" -eq 0 -a "$met" -gt 0 ]
check "no checkpoint that it told of was lost" [ "$(lost run)" -eq 0 ]
# SIGKILL is all that faults send. Who aborts has found something impossible.
check "nobody died of himself" [ "$(grep -c 'Signal: [ABS].*([0-9]*)$' "$aside/said")" -eq 0 ]
still "the supervisor" "$aside/supervisors" 512
nothing() {
    sleep 0.5
    [ -z "$(ranks_alive)" ] || nobody_left || return 1
    [ -z "$(launchers)$(mine mpstage-run)" ] && [ -z "$(find "$aside/shm" "$aside/session" ! -type d)" ]
}
left() { if nothing; then ok "$1"; else { processes; find "$aside/shm" "$aside/session"; } | note; not_ok "$1"; fi; }
processes() { launchers; mine mpstage-run; ranks_alive; }
left "nothing is left of it"
check "nor half a checkpoint" [ -z "$(find run/checkpoints -name '*.tmp' -o -name '.mpstaged*')" ]

# ---- one life --------------------------------------------------------------------------------------------------------
met_first=$met
# Standing still for long ends a process, so a busy machine may not look as if it did.
HANG=60
write_soak s.conf 1
launch life env
begins "a run without a supervisor"
began=$(now) ends=$(($(now) + 20 * SOAK))
while [ "$(now)" -lt "$ends" ] && is_alive; do
    # shellcheck disable=SC2086
    set -- $mild
    random $#
    shift "$dice"
    meets "$1"
    figures ranks $(ranks_alive)
    figures mpirun $(launchers)
    nap 50 400
done
mended
for _ in $(seq 60); do ! stopped || break; sleep 1; done
code=0; wait "$pid" || code=$?
echo "# $((met - met_first)) faults in $(($(now) - began)) s"
[ "$code" -eq 0 ] || tail -n 30 "$aside/said" | note
check "a run in one life ends when it is told to: $code" [ "$code" -eq 0 ]
equal "it was one life" "$(count '"event":"start"' life/metrics.jsonl)" 1
still "its ranks" "$aside/ranks" 2048
left "nothing is left of it, either"

# ---- the same, undisturbed -------------------------------------------------------------------------------------------
exec 3>&-
kill $reader 2>/dev/null || true
write_soak s.conf 0
for r in run life; do
    n=$(field "$r" steps)
    [ -n "$n" ] || n=$(field "$r" step)
    # with the rates that were set, from the steps on that they were set for
    rm -rf "whole-$r"; mkdir "whole-$r"
    [ ! -e "$r/rates.jsonl" ] || cp "$r/rates.jsonl" "whole-$r"
    job 2 -c s.conf --resume -o run.hang_timeout=0 -o "service.metrics=no" -o checkpoint.every_seconds=0 --steps "$n" \
        --run-dir "whole-$r"
    [ "$code" -eq 0 ] || why
    # what a life had done after the last checkpoint, and the next one has not come to again, is left out
    loss_bits "$r/metrics.jsonl" | awk -v n="${n:-0}" '$1 <= n' >"$aside/is"
    loss_bits "whole-$r/metrics.jsonl" >"$aside/wanted"
    check "$r: the losses of $(wc -l <"$aside/is") steps and evaluations are those of a run that nobody disturbed" \
        [ -s "$aside/is" -a -z "$(LC_ALL=C comm -23 "$aside/is" "$aside/wanted" | head -n 3)" -a \
        "$(grep -c step "$aside/is")" -eq "${n:-0}" ]
    equal "$r: and so are the weights" "$(field "$r" weights_hash)" "$(hash_of "whole-$r")"
done
LC_ALL=C sort "$aside/met" | uniq -c | awk '{ print "#", $1, $2 }'
tap_done
