#!/bin/sh
# units.sh: the units for systemd, as text: systemd-analyze finds nothing wrong with them and little to attack, what
# they call is there, and their two helpers do what the units need. That they run: service.sh.
set -eu
: "${srcdir:=.}" "${top_builddir:=.}"
here=$(CDPATH='' cd -- "$(dirname -- "$0")" && pwd)
. "$here/tap.sh"
build=$(CDPATH='' cd -- "$top_builddir" && pwd) service=$(CDPATH='' cd -- "$srcdir" && pwd)/launcher/service
tmp=$(mktemp -d)
trap 'rm -rf "$tmp"' EXIT
cpu=mpstaged@.service gpu=mpstaged-gpu@.service
# As they would be installed, but with the programs of this build.
for unit in $cpu $gpu; do
    sed "s#^\(Exec[A-Za-z]*=-*\)[^ ]*/mpstaged/\(ranks\|stop\) #\1$service/\2 #
        s# [^ ]*/\(mpstaged\|mpstagectl\) # $build/\1 #
        s#^\(Exec[A-Za-z]*=\)/[^ ]*/mpstagectl #\1$build/mpstagectl #" \
        "$build/launcher/service/$unit" >"$tmp/$unit"
done

# ---- what systemd says -----------------------------------------------------------------------------------------------
# at_most UNIT TENTHS: its exposure is no higher
at_most() { systemd-analyze security --offline=true --threshold="$2" "$tmp/$1" >"$tmp/out" 2>&1; }
if ! command -v systemd-analyze >/dev/null; then
    skip "units are correct and exposed little" "no systemd-analyze: apt-get install systemd"
elif ! systemd-analyze security --offline=true --threshold=100 "$tmp/$cpu" >"$tmp/out" 2>&1; then
    note <"$tmp/out"
    skip "units are exposed little" "systemd-analyze cannot judge files: $(systemd-analyze --version | head -n 1)"
else
    for unit in $cpu $gpu; do
        systemd-analyze verify --man=no "$tmp/$unit" >"$tmp/out" 2>&1 || echo "status $?" >>"$tmp/out"
        if [ -s "$tmp/out" ]; then note <"$tmp/out"; not_ok "$unit is correct"; else ok "$unit is correct"; fi
    done
    sed 's/^ProtectClock=/ProtectClocks=/' "$tmp/$cpu" >"$tmp/wrong@.service"
    systemd-analyze verify --man=no "$tmp/wrong@.service" >"$tmp/out" 2>&1 || true
    check "and a misspelt one is not" grep -q ProtectClocks "$tmp/out"
    for limit in "$cpu 15" "$gpu 20"; do
        # shellcheck disable=SC2086
        set -- $limit
        if at_most "$1" "$2"; then ok "$1: $(tail -n 1 "$tmp/out")"; else note <"$tmp/out"; not_ok "$1: at most $2"; fi
    done
    grep -vE '^(Protect|Private|Restrict|SystemCall)' "$tmp/$gpu" >"$tmp/open@.service"
    check "without its fences it would be exposed more" sh -c '! systemd-analyze security --offline=true \
        --threshold=50 "$1" >/dev/null 2>&1' sh "$tmp/open@.service"
fi

# ---- what the units call ---------------------------------------------------------------------------------------------
option() { "$1" --help 2>&1 | grep -qE -- "(^|[^a-z-])$2([^a-z-]|$)"; }
check "mpstaged knows --resume" option "$build/mpstaged" --resume
check "mpstaged knows --run-dir" option "$build/mpstaged" --run-dir
check "mpstagectl knows stop --checkpoint" option "$build/mpstagectl" --checkpoint
check "mpstagectl knows stop --wait" option "$build/mpstagectl" --wait
check "mpstagectl knows reload" option "$build/mpstagectl" reload
sed -n 's/^RestartPreventExitStatus=//p' "$tmp/$cpu" | tr ' ' '\n' >"$tmp/codes"
for code in $(cat "$tmp/codes"); do
    grep -qE "^ *E_[A-Z_]+ = $code[,\$ ]" "$srcdir/src/base/err.h" || echo "$code"
done >"$tmp/unknown"
if [ -s "$tmp/codes" ] && [ ! -s "$tmp/unknown" ]; then ok "codes that prevent a restart are exit codes of ours"
else tr '\n' ' ' <"$tmp/unknown" | note; not_ok "codes that prevent a restart are exit codes of ours"; fi
for name in $(sed -n '/lasting\[\] = /,/;/p' "$srcdir/src/cluster/failure.c" | grep -oE 'E_[A-Z]+'); do
    sed -n "s/^ *$name = \([0-9]*\).*/\1/p" "$srcdir/src/base/err.h"
done | sort -n >"$tmp/lasting"
check "the same codes that mpstage-run and why.json take" cmp -s "$tmp/lasting" "$tmp/codes"
check "mpstagectl knows why" option "$build/mpstagectl" why
check "the user of the units is made by sysusers.d" [ "$(sed -n 's/^User=//p' "$tmp/$cpu")" = \
    "$(sed -n 's/^u \([a-z]*\) .*/\1/p' "$service/sysusers.d/mpstaged.conf")" ]
check "only one of the two may use devices" [ "$(grep -lE '^DeviceAllow=' "$tmp/$cpu" "$tmp/$gpu")" = "$tmp/$gpu" ]
check "nothing is left to fill in" sh -c '! grep -nE "@[A-Za-z]+@|^(CPU|GPU): " "$@"' sh "$tmp/$cpu" "$tmp/$gpu"

# ---- how many ranks --------------------------------------------------------------------------------------------------
# ranks WANTED CONF OPTIONS...
ranks() {
    ranks_wanted=$1 ranks_of=$2; shift 2
    "$service/ranks" "$tmp/ranks" "$build/mpstaged" -c "$ranks_of" "$@" || true
    check "${ranks_of##*/}${*:+ $*}: RANKS=$ranks_wanted" [ "$(cat "$tmp/ranks")" = "RANKS=$ranks_wanted" ]
}
ranks 2 "$srcdir/conf/resnet50.conf"
ranks 3 "$srcdir/conf/toy.conf" -o pipeline.partition=uniform --stages 3
ranks 2 "$srcdir/conf/toy.conf" -o pipeline.partition=uniform --stages 4 -o pipeline.ranks=2
sed '/^pipeline/,$d' "$srcdir/conf/toy.conf" >"$tmp/plain.conf"
ranks 4 "$srcdir/conf/resnet50.conf" -o train.gradient_groups=2 -o pipeline.replicas=2
ranks 1 "$tmp/plain.conf"
ranks 1 "$tmp/nowhere.conf"

# ---- how a run is stopped --------------------------------------------------------------------------------------------
# ctl STATUS: in the place of mpstagectl, answers so and leaves what it was told
ctl() { printf '#!/bin/sh\necho "$@" >"%s/told"\nexit %s\n' "$tmp" "$1" >"$tmp/ctl"; chmod +x "$tmp/ctl"; }
ctl 0; rm -f "$tmp/told"
MAINPID='' "$service/stop" "$tmp/ctl" /run/dir || true
check "a main process that is gone is told nothing" [ ! -e "$tmp/told" ]
# The shell would not see that its own child has ended; another one, like systemd, reaps it.
(sleep 1 & echo $! >"$tmp/pid"; wait)& sleep 0.2
pid=$(cat "$tmp/pid")
MAINPID=$pid "$service/stop" "$tmp/ctl" /run/dir
check "stop writes a checkpoint, and waits for the end" [ "$(cat "$tmp/told")" = "/run/dir stop --checkpoint --wait" ]
check "the main process is gone then" sh -c '! kill -0 "$1" 2>/dev/null' sh "$pid"
ctl 69; code=0
MAINPID=$$ "$service/stop" "$tmp/ctl" /run/dir || code=$?
check "a run that does not answer is left to signals" [ "$code" -eq 69 ]
tap_done
