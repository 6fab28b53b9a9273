#!/bin/sh
# service.sh: the installed mpstaged@.service under the systemd that runs this machine: start, status, reload, stop with
# a checkpoint, what happens when a rank is killed or stands still, a crash loop, what is not started again, and what
# the fences leave open. It needs root, systemd as process 1 and `make install` before; without them it says so and does
# nothing. It makes a user (as sysusers.d says) and instances whose names begin with mpstest, and removes the latter.
set -eu
here=$(CDPATH='' cd -- "$(dirname -- "$0")" && pwd)
. "$here/tap.sh"
leave_out() { skip "mpstaged@.service under systemd" "NOT TRIED: $1"; tap_done; }
[ "$(cat /proc/1/comm)" = systemd ] || leave_out "process 1 is $(cat /proc/1/comm), not systemd"
[ "$(id -u)" -eq 0 ] || leave_out "this is not root"
systemctl cat mpstaged@.service >/dev/null 2>&1 || leave_out "no mpstaged@.service is installed: make install"
unit=$(systemctl show -P FragmentPath mpstaged@mpstest.service)
bin=$(sed -n 's,^ExecReload=\(.*\)/mpstagectl .*,\1,p' "$unit")
state=/var/lib/mpstaged runtime=/run/systemd/system
instances='mpstest mpstest-conv mpstest-loop mpstest-wrong'
clean() {
    for i in $instances; do
        systemctl kill -s KILL "mpstaged@$i" 2>/dev/null || true
        systemctl stop "mpstaged@$i" 2>/dev/null || true
        systemctl reset-failed "mpstaged@$i" 2>/dev/null || true
        rm -rf "/etc/mpstaged/$i.conf" "/etc/mpstaged/$i.env" "${state:?}/$i" "$runtime/mpstaged@$i.service.d"
    done
    systemctl daemon-reload
}
trap clean EXIT
systemd-sysusers
systemd-tmpfiles --create "$(dirname "$(dirname "$(dirname "$unit")")")/tmpfiles.d/mpstaged.conf" 2>&1 | note
clean

# ---- helpers ---------------------------------------------------------------------------------------------------------
prop() { systemctl show -P "$2" "mpstaged@$1"; }
is() { [ "$(prop "$1" "$2")" = "$3" ]; }
# soon SECONDS COMMAND...: it succeeds by then
soon() {
    soon_until=$(($(date +%s) + $1)); shift
    until "$@"; do [ "$(date +%s)" -lt "$soon_until" ] || return 1; sleep 0.1; done
}
why() {
    systemctl status --no-pager -n 0 "mpstaged@$1" 2>&1 | note || true
    journalctl --no-pager -q -o cat -n 30 -u "mpstaged@$1" | note
}
# must TEXT INSTANCE COMMAND...: ok, or with the journal of the instance why not
must() {
    must_text=$1 must_of=$2; shift 2
    if "$@"; then ok "$must_text"; else why "$must_of"; not_ok "$must_text"; fi
}
cgroup() { cat "/sys/fs/cgroup$(prop "$1" ControlGroup)/cgroup.procs" 2>/dev/null || true; }
# ranks of an instance, the first one first: it holds the run directory's lock
first_rank() { cat "$state/$1/lock"; }
other_rank() {
    for p in $(cgroup "$1"); do
        [ "$(cat "/proc/$p/comm")" != mpstaged ] || [ "$p" = "$(first_rank "$1")" ] || { echo "$p"; return; }
    done
}
step_of() { prop "$1" StatusText | sed -n 's/^step \([0-9]*\).*/\1/p'; }
# moves INSTANCE: a step after the one of now is told
moves() {
    moves_from=$(step_of "$1")
    soon 20 sh -c 'n=$(systemctl show -P StatusText "mpstaged@$1" | sed -n "s/^step \([0-9]*\).*/\1/p")
        [ -n "$n" ] && [ "$n" != "$2" ]' sh "$1" "$moves_from"
}
has_checkpoint() { prop "$1" StatusText | grep -q 'checkpoint [0-9]'; }
events() { grep -c "\"event\":\"$2\"" "$state/$1/metrics.jsonl" || true; }
newest() { ls "$state/$1/checkpoints" | grep '^step-[0-9]*$' | tail -n 1 | sed 's/step-0*//'; }
last_step() { sed -n 's/.*"event":"step","step":\([0-9]*\),.*/\1/p' "$state/$1/metrics.jsonl" | tail -n 1; }
in_journal() { journalctl --no-pager -q -o cat -u "mpstaged@$1" | grep -qE -- "$2"; }
# drop INSTANCE LINES: settings of the service of that instance
drop() {
    mkdir -p "$runtime/mpstaged@$1.service.d"
    printf '[Service]\n%s\n' "$2" >"$runtime/mpstaged@$1.service.d/test.conf"
    systemctl daemon-reload
}
env_of() { printf 'MPIRUN_OPTIONS=--oversubscribe --bind-to none\n%s\n' "${2:-}" >"/etc/mpstaged/$1.env"; }

cat >/etc/mpstaged/mpstest.conf <<'END'
run        { name = "toy"  seed = 1 }
model      { network = "toy"  classes = 5  input = {10} }
data       { source = "synthetic"  labels = "onehot"  samples = 200 }
train      { batch_size = 20  split_size = 8  steps = 100000000  loss = "mse"  optimizer = "sgd"  learning_rate = 0.1 }
pipeline   { schedule = "1f1b"  partition = "uniform"  stages = 2 }
checkpoint { every_seconds = 1 }
service    { log_every = 0 }
END
env_of mpstest

# ---- start, status ---------------------------------------------------------------------------------------------------
began=$(date +%s%N)
systemctl start mpstaged@mpstest >/dev/null 2>&1 || true
took=$((($(date +%s%N) - began) / 1000000))
must "start: active after $took ms" mpstest is mpstest ActiveState active
is mpstest ActiveState active || tap_done                 # nothing else can be tried
must "as many ranks as the configuration has stages" mpstest grep -qx RANKS=2 /run/mpstaged/mpstest/ranks
must "start returns when all ranks have joined" mpstest [ "$(events mpstest start)" -eq 1 ]
must "the main process is mpirun" mpstest [ "$(cat "/proc/$(prop mpstest MainPID)/comm")" != mpstaged ]
must "the status moves from step to step" mpstest moves mpstest
must "and has loss, speed and checkpoint" mpstest soon 20 has_checkpoint mpstest
prop mpstest StatusText | note
like='^step [0-9]+/100000000, loss [0-9.e-]+, [0-9.]+ samples/s, checkpoint [0-9]+$'
check "like this" [ "$(prop mpstest StatusText | grep -cE "$like")" -eq 1 ]
rank=$(other_rank mpstest)
check "ranks are no root's" [ "$(ps -o user= -p "$rank")" = mpstaged ]
check "ranks have system calls filtered, no capability, and get none" [ "$(sed -n -e 's/^Seccomp:[^0-9]*//p' \
    -e 's/^NoNewPrivs:[^0-9]*//p' -e 's/^Cap\(Eff\|Bnd\):[^0-9]*0*//p' "/proc/$rank/status" | tr -d '\n')" = 12 ]
check "what is not theirs is read-only" sh -c '! nsenter -t "$1" -m touch /etc/mpstaged/mpstest 2>/dev/null' sh "$rank"
priorities=$(journalctl --no-pager -q -o json -u mpstaged@mpstest | sed -n 's/.*"PRIORITY":"\([0-7]\)".*/\1/p' |
    sort -u | tr -d '\n')
must "notes and other lines have their priority in the journal: $priorities" mpstest [ "$priorities" = 56 ]
check "and no prefix" sh -c '! journalctl --no-pager -q -o cat -u mpstaged@mpstest | grep -q "^<[0-9]>"'

# ---- reload, stop, start ---------------------------------------------------------------------------------------------
main=$(prop mpstest MainPID)
must "reload" mpstest systemctl reload mpstaged@mpstest
must "the same run goes on then" mpstest [ "$(prop mpstest MainPID)" = "$main" ]
must "with steps" mpstest moves mpstest
code=0; systemctl stop mpstaged@mpstest >/dev/null 2>&1 || code=$?
must "stop: inactive" mpstest is mpstest ActiveState inactive
must "stop: the run has ended with 0" mpstest [ "$code$(prop mpstest ExecMainStatus)" = 00 ]
must "stop: with a checkpoint of its last step" mpstest [ "$(newest mpstest)" = "$(last_step mpstest)" ]
must "stop: it was told" mpstest [ "$(tail -n 1 "$state/mpstest/metrics.jsonl" | grep -c '"reason":"stopped"')" -eq 1 ]
check "stop: nobody is left" [ -z "$(pgrep -u mpstaged || true)" ]
check "stop: no shared memory is left" [ -z "$(find /dev/shm -user mpstaged 2>/dev/null)" ]
stopped=$(last_step mpstest)
systemctl start mpstaged@mpstest >/dev/null 2>&1 || true
must "a second start goes on from there" mpstest [ "$(events mpstest resume)" -eq 1 ]
must "after step $stopped" mpstest grep -q "\"event\":\"resume\".*\"step\":$stopped[,}]" "$state/mpstest/metrics.jsonl"

# ---- a rank dies; a rank stands still --------------------------------------------------------------------------------
again() { [ "$(prop mpstest NRestarts)" -eq "$1" ] && is mpstest ActiveState active; }
soon 20 has_checkpoint mpstest || true
began=$(date +%s%N)
kill -KILL "$(other_rank mpstest)" || true
must "a killed rank: started again" mpstest soon 30 again 1
note <<END
active again $((($(date +%s%N) - began) / 1000000)) ms after the kill
END
must "and resumed" mpstest [ "$(events mpstest resume)" -eq 2 ]
must "and training" mpstest moves mpstest

# The run's own search for ranks that stand still is put off, so that the watchdog is what is left.
env_of mpstest 'MPSTAGED_OPTIONS=-o run.hang_timeout=600'
drop mpstest "WatchdogSec=3s
ExecStopPost=/bin/sh -c 'echo \$\$SERVICE_RESULT >>$state/mpstest/results'"
systemctl restart mpstaged@mpstest >/dev/null 2>&1 || true
must "with a watchdog of 3 seconds it trains" mpstest moves mpstest
sleep 4
must "which finished steps keep quiet" mpstest [ "$(prop mpstest NRestarts)" -eq 0 ]
resumes=$(events mpstest resume) began=$(date +%s%N)
kill -STOP "$(other_rank mpstest)" || true
must "a rank that stands still: the watchdog fires, and the service is started again" mpstest soon 60 again 1
note <<END
active again $((($(date +%s%N) - began) / 1000000)) ms after the rank was stopped
END
must "it was the watchdog" mpstest grep -qx watchdog "$state/mpstest/results"
must "and the run is resumed" mpstest [ "$(events mpstest resume)" -eq $((resumes + 1)) ]
must "and training" mpstest moves mpstest
systemctl stop mpstaged@mpstest >/dev/null 2>&1 || true
must "stop" mpstest is mpstest Result success

# ---- what is not started again ---------------------------------------------------------------------------------------
sed 's/samples = 200/samples = -1/' /etc/mpstaged/mpstest.conf >/etc/mpstaged/mpstest-wrong.conf
env_of mpstest-wrong
systemctl start mpstaged@mpstest-wrong >/dev/null 2>&1 || true
sleep 3
must "a wrong configuration: failed with 78" mpstest-wrong \
    [ "$(prop mpstest-wrong ActiveState)$(prop mpstest-wrong ExecMainStatus)" = failed78 ]
must "and not started again" mpstest-wrong [ "$(prop mpstest-wrong NRestarts)" -eq 0 ]
must "the error is one line, and an error to the journal" mpstest-wrong [ "$(journalctl --no-pager -q -o cat -p err \
    -u mpstaged@mpstest-wrong _COMM=mpirun + SYSLOG_IDENTIFIER=mpstaged | grep -c '^mpstaged: .*samples')" -eq 1 ]

# With so little memory each start fails, for a reason that may go away.
cp /etc/mpstaged/mpstest.conf /etc/mpstaged/mpstest-loop.conf
env_of mpstest-loop
drop mpstest-loop 'LimitDATA=1M'
systemctl start mpstaged@mpstest-loop >/dev/null 2>&1 || true
must "a crash loop ends in failed" mpstest-loop soon 60 is mpstest-loop ActiveState failed
note <<END
after $(prop mpstest-loop NRestarts) restarts
END
sleep 3
must "and stays there, after several starts" mpstest-loop \
    [ "$(prop mpstest-loop ActiveState)" = failed -a "$(prop mpstest-loop NRestarts)" -ge 3 ]

# ---- a whole run: convolutions, whose machine code is made at run time -----------------------------------------------
cat >/etc/mpstaged/mpstest-conv.conf <<'END'
run        { name = "conv"  seed = 1 }
model      { network = "resnet18"  classes = 10  input = {3, 32, 32} }
data       { source = "synthetic"  labels = "class"  samples = 64  test_samples = 16 }
train      { batch_size = 16  split_size = 8  steps = 4  loss = "cross_entropy"  learning_rate = 0.01 }
pipeline   { schedule = "1f1b"  partition = "uniform"  stages = 2 }
checkpoint { every_steps = 2 }
END
env_of mpstest-conv
systemctl start mpstaged@mpstest-conv >/dev/null 2>&1 || true
must "a whole run ends by itself, with 0" mpstest-conv soon 120 is mpstest-conv ActiveState inactive
must "well" mpstest-conv [ "$(prop mpstest-conv Result)$(prop mpstest-conv ExecMainStatus)" = success0 ]
must "with its weights" mpstest-conv [ -s "$state/mpstest-conv/weights.safetensors" ]
must "by oneDNN" mpstest-conv in_journal mpstest-conv '^mpstaged [0-9].*oneDNN'

# ---- exposure --------------------------------------------------------------------------------------------------------
for limit in 'mpstaged@mpstest 15' 'mpstaged-gpu@mpstest 20'; do
    # shellcheck disable=SC2086
    set -- $limit
    code=0; all=$(systemd-analyze security --no-pager --threshold="$2" "$1" 2>/dev/null) || code=$?
    check "$(echo "$all" | tail -n 1) (at most $2 tenths)" [ "$code" -eq 0 -a -n "$all" ]
done
tap_done
