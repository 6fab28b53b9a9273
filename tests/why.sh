#!/bin/sh
# why.sh: after a failure RUN/why.json says which rank, what it was doing, the status, and whether a restart may help;
# whichever process ends the job. The next start removes it.
set -eu
. "$(dirname -- "$0")/mpi_lib.sh"
write_conf run.conf 's/steps = 3/steps = 100000000/; $a service { log_every = 0 }'
write_conf short.conf '$a service { log_every = 0 }'

field() { sed -n 's/^ *"'"$1"'": "\{0,1\}\([^"]*[^",]\)"\{0,1\},\{0,1\}$/\1/p' "$2/why.json" 2>/dev/null || true; }
rank_pid() {
    for p in $(ranks_alive); do
        ! { tr '\0' '\n' <"/proc/$p/environ"; } 2>/dev/null | grep -qx "$mpi_rank=$1" || echo "$p"
    done
}
# begin NAME: three ranks in NAME/, in their third step. On a busy machine a rank may not respond for a second.
begin() {
    name=$1
    for begin_limit in 1 4 16; do
        rm -rf "$name"
        mpirun_n 3 "$mpstaged" -c run.conf --stages 3 --run-dir "$name" --progress no \
            -o run.hang_timeout=$begin_limit >"$aside/out" 2>"$aside/err" </dev/null & pid=$!
        while kill -0 $pid 2>/dev/null; do
            ! grep -qs '"step":3,' "$name/metrics.jsonl" || return 0
            sleep 0.02
        done
        why
    done
}
# tells TEXT STATUS RANK RESTART: why.json of the last run; RANK "": none is named
tells() {
    code=0; wait "$pid" || code=$?
    tells_left=; nobody_left || tells_left=yes
    tells_got="$(field status "$name") $(field rank "$name") $(field restart "$name")"
    why_code=0; "$mpstagectl" why "$name" >"$aside/why" 2>&1 || why_code=$?
    tells_wanted=0; [ "$4" = true ] || tells_wanted=$2
    if [ -z "$tells_left" ] && [ "$tells_got" = "$2 $3 $4" ] && [ "$why_code" -eq "$tells_wanted" ] &&
        [ -n "$(field text "$name")" ] &&
        [ -n "$(field action "$name")" ] && [ "$(field host "$name")" = "$(hostname)" ]; then ok "$1"
    else { cat "$aside/err" "$aside/why" "$name/why.json" || true; } 2>&1 | note; not_ok "$1: $tells_got, $why_code"; fi
}

# dead TEXT RANK: as tells. MPICH's mpirun may kill the others before they write the file.
dead() {
    wait "$pid" || true
    if [ "$mpi" = mpich ] && [ ! -e "$name/why.json" ]; then skip "$1" "MPICH's mpirun killed the others at once"
    else tells "$1" 69 "$2" true; fi
}
begin lost; kill -9 "$(rank_pid 1)"
dead "a rank that was killed: its number" 1
if [ -e lost/why.json ]; then
    # as of its last beat, which may be from set-up
    check "and what it was doing" grep -qE '^rank 1 on [^ ]+: [a-z].*$' "$aside/why"
    check "a restart may help" grep -qx 'a restart may help' "$aside/why"
fi
begin first; kill -9 "$(rank_pid 0)"
dead "rank 0: another process tells" 0
begin stopped; kill -TERM "$(rank_pid 0)"
tells "a stop" 75 "" true
begin hung; halt "$(rank_pid 2)"
tells "a rank that is not responding" 81 2 true
told=$(sed -n 's/.* of step \([0-9]*\)$/\1/p' "$aside/why")
check "and its step, if it was in one" [ "$(field step hung)" = "$told" ]
begin asleep; halt "$(rank_pid 0)"
tells "rank 0 that is not responding" 81 0 true
check "which is woken and prints nothing" [ "$(our_lines)" -eq 1 ]

begin asked; kill -USR1 "$(rank_pid 0)"
tells "a stop on request" 75 0 true
check "which names its checkpoint once" [ "$(grep -o -- '--resume' asked/why.json | wc -l)" -eq 1 ]

# ---- causes that stay ------------------------------------------------------------------------------------------------
sed 's/learning_rate = 0.1/learning_rate = 1e6/; s/steps = 3/steps = 30/' short.conf >wild.conf
name=wild; "$mpstaged" -c wild.conf --run-dir wild --transport local >"$aside/out" 2>"$aside/err" </dev/null & pid=$!
tells "a loss that is not finite, ranks as threads" 79 0 false
check "which ends in the same way" grep -qx 'a restart ends in the same way' "$aside/why"
"$mpstagectl" why wild --json >"$aside/json" || true
check "--json prints the file" [ "$(tr -d ' \n' <"$aside/json")" = "$(tr -d ' \n' <wild/why.json)" ]

# ---- nothing to tell -------------------------------------------------------------------------------------------------
job 2 -c short.conf --run-dir stopped --overwrite
check "a run that succeeds removes it" [ "$code" -eq 0 ] && [ ! -e stopped/why.json ]
code=0; "$mpstagectl" why stopped >"$aside/out" 2>"$aside/err" || code=$?
check "then nothing is known" grep -q '^mpstagectl: stopped: it has no why.json, which a run leaves' "$aside/err"
echo '{"status": "x"}' >stopped/why.json
code=0; "$mpstagectl" why stopped >"$aside/out" 2>"$aside/err" || code=$?
check "what is no such file is refused" [ "$code" -eq 65 ]
printf '{"status": 69, "text": "a\\u001b[31mb", "rank": 1}' >stopped/why.json
"$mpstagectl" why stopped >"$aside/why"
check "its texts are printable" sh -c '! grep -q "$(printf "\033")" "$1"' sh "$aside/why"
echo '{"status": 4294967365}' >stopped/why.json
code=0; "$mpstagectl" why stopped >"$aside/out" 2>"$aside/err" || code=$?
check "nor is a status that is none" [ "$code" -eq 65 ]
cp asleep/why.json stopped/why.json
job 2 -c short.conf --run-dir stopped
check "a start that is refused removes it" [ "$code" -eq 73 ] && [ ! -e stopped/why.json ]
refused "what ends before the run directory leaves none" 78 'stages' threads -c short.conf --stages 99 --run-dir none
tap_done
