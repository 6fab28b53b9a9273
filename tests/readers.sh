#!/bin/sh
# readers.sh: who reads what a run says goes away, or stands still: the run goes on, to the same weights.
set -eu
. "$(dirname -- "$0")/mpi_lib.sh"
write_conf many.conf 's/steps = 3/steps = 3000/'
"$mpstaged" -c many.conf --transport local --run-dir plain >"$aside/out" 2>&1 </dev/null
want=$(hash_of plain)
n=$(wc -l <plain/mpstaged.log)

"$mpstaged" -c many.conf --transport local --run-dir gone 2>&1 </dev/null | head -n 2 >"$aside/out"
equal "a reader that goes away" "$(hash_of gone)" "$want"
check "and mpstaged.log has all lines" [ "$(grep -c 'Z step  *[0-9]*/3000 ' gone/mpstaged.log)" -eq 3000 ]
mpirun_n 2 "$mpstaged" -c many.conf --run-dir mpi 2>"$aside/err" </dev/null | head -n 1 >"$aside/out"
equal "the same of mpirun's standard output" "$(hash_of mpi)" "$want"

# stands NAME COMMAND...: its standard error is a FIFO that nobody reads until the run is done; mpirun ends when it is
# read
stands() {
    stands_name=$1; shift
    rm -f fifo
    mkfifo fifo
    { until grep -qs '"event":"done"' "$stands_name/metrics.jsonl"; do sleep 0.05; done
        cat >"$aside/read"; } <fifo & reader=$!
    code=0
    "$@" --run-dir "$stands_name" 2>fifo >"$aside/out" </dev/null || code=$?
    wait "$reader"
    equal "$stands_name: a reader that stands still" "$code $(hash_of "$stands_name")" "0 $want"
    check "$stands_name: mpstaged.log has all lines" \
        [ "$(grep -c 'Z step  *[0-9]*/3000 ' "$stands_name/mpstaged.log")" -eq 3000 ]
}
stands threads "$mpstaged" -c many.conf --transport local
check "some lines were left out" [ "$(wc -l <"$aside/read")" -lt "$n" ]
check "none in part" [ "$(grep -vcE '^(step |mpstaged |note: |done: |stage|unaccounted| |slow: |account|plan|$)' \
    "$aside/read")" -le 1 ]
MPIRUN_LIMIT=200 stands processes mpirun_n 2 "$mpstaged" -c many.conf

# logrotate, where it is installed, renames a log and says so.
if command -v logrotate >/dev/null; then
    write_conf long.conf 's/steps = 3/steps = 100000000/; $a service { log_every = 1000 }'
    "$mpstaged" -c long.conf --transport local --run-dir turned >"$aside/out" 2>&1 </dev/null & pid=$!
    for _ in $(seq 200); do ! grep -qs '"step":3,' turned/metrics.jsonl || break; sleep 0.05; done
    chmod 755 . turned
    printf '%s\n' "\"$PWD/turned/mpstaged.log\" { rotate 3" \
        "postrotate" "kill -HUP $pid" "endscript" "}" >"$aside/rotate"
    logrotate -f -s "$aside/state" "$aside/rotate" >"$aside/said" 2>&1 || note <"$aside/said"
    for _ in $(seq 200); do ! grep -qs 'Z step' turned/mpstaged.log || break; sleep 0.05; done
    check "logrotate: lines go on in a new log" sh -c 'grep -q "Z step" turned/mpstaged.log && [ -s "$0" ]' \
        turned/mpstaged.log.1
    "$mpstagectl" turned stop --wait >"$aside/stop" 2>&1 || true
    wait "$pid" || true
    cat turned/mpstaged.log.1 turned/mpstaged.log | sed -n 's,.*Z step  *\([0-9]*\)/.*,\1,p' >"$aside/steps"
    check "logrotate: no line is lost" awk '$1 != last + 1000 && NR > 2 { exit 1 } { last = $1 }' "$aside/steps"
else skip "logrotate" "apt-get install logrotate"; fi
tap_done
