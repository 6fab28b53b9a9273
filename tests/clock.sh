#!/bin/sh
# clock.sh: somebody sets the clock during a run: nothing changes but time stamps (libfaketime).
set -eu
. "$(dirname -- "$0")/mpi_lib.sh"
fake=$(find /usr/lib /usr/local/lib -name libfaketimeMT.so.1 2>/dev/null | head -n 1)
if [ -z "$fake" ]; then echo "1..0 # SKIP no libfaketime: apt-get install faketime"; exit 77; fi
write_conf long.conf 's/steps = 3/steps = 100000000/'

# The library reads the file at every call; what runs by the monotonic clock is left alone.
set_clock() { echo "$1" >"$aside/clock.new"; mv "$aside/clock.new" "$aside/clock"; }
# steps N: waits for so many steps more; 0 when they have come within 20 s
steps() {
    steps_to=$(($(grep -c '"event":"step"' r/metrics.jsonl) + $1))
    for _ in $(seq 400); do
        [ "$(grep -c '"event":"step"' r/metrics.jsonl)" -lt "$steps_to" ] || return 0
        sleep 0.05
    done
    return 1
}
last_time() { tail -n 1 r/mpstaged.log | cut -c1-4; }

set_clock +0
env LD_PRELOAD="$fake" FAKETIME_DONT_FAKE_MONOTONIC=1 FAKETIME_NO_CACHE=1 FAKETIME_TIMESTAMP_FILE="$aside/clock" \
    "$mpstaged" -c long.conf --transport local -o service.log_every=10 --run-dir r \
    >"$aside/out" 2>"$aside/err" </dev/null & pid=$!
for _ in $(seq 1200); do ! grep -qs '"step":3,' r/metrics.jsonl || break; sleep 0.05; done
if ! grep -qs '"step":3,' r/metrics.jsonl; then
    kill "$pid" 2>/dev/null || true
    code=0; wait "$pid" || code=$?
    not_ok "steps come: $code"; why; tap_done
fi
year=$(last_time)
for jump in -3650d +3650d -1h +0; do
    set_clock $jump
    check "steps go on when the clock is set to now $jump" steps 200
    [ $jump != -3650d ] || check "and time stamps follow it" [ "$(last_time)" -lt $((year - 8)) ]
done
check "status answers" sh -c '"$0" r status >/dev/null' "$mpstagectl"
set_clock -1h
code=0
timeout 20 "$mpstagectl" r stop --wait >"$aside/stop" 2>&1 || code=$?
wait "$pid" || code=$?
check "a stop is done in time" [ "$code" -eq 0 ]
# values KEY: all of them, one a line
values() { sed -n 's/.*"'"$1"'":\([0-9.]*\).*/\1/p' r/metrics.jsonl; }
check "no duration shows the jumps" sh -c '[ -s "$0" ] && awk "\$1 > 60 { bad = 1 } END { exit bad }" "$0"' "$(
    values step_seconds >"$aside/durations"; values total_seconds >>"$aside/durations"; echo "$aside/durations")"
n=$(done_field r/metrics.jsonl steps)
"$mpstaged" -c long.conf --transport local --steps "$n" --run-dir plain >"$aside/out" 2>&1 </dev/null
equal "the weights are those of a run with a steady clock" "$(hash_of r)" "$(hash_of plain)"
tap_done
