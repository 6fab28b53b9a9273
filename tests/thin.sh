#!/bin/sh
# thin.sh: metrics.jsonl of long runs: fewer lines, or lines without stages; what is there is what would have been.
set -eu
. "$(dirname -- "$0")/mpi_lib.sh"
write_conf toy.conf 's/samples = 200/samples = 200  test_samples = 40/; s/steps = 3/steps = 520  evaluate_every = 50/'
# thin NAME OPTIONS...
thin() {
    thin_name=$1; shift
    "$mpstaged" -c toy.conf --transport local --run-dir "$thin_name" "$@" >"$aside/out" 2>"$aside/err" </dev/null || why
}
# steps NAME: number and bits of the loss of each step that is there; numbers NAME: the numbers alone
steps() { sed -n 's/.*"event":"step","step":\([0-9]*\),.*"loss_bits":"\([^"]*\)".*/\1 \2/p' "$1/metrics.jsonl"; }
numbers() { steps "$1" | sed 's/ .*//' | tr '\n' ' '; }
with_stages() { grep '"stages":\[' "$1/metrics.jsonl" | sed -n 's/.*"step","step":\([0-9]*\),.*/\1/p' | tr '\n' ' '; }
rest() { grep -v '"event":"step"' "$1/metrics.jsonl" | sed 's/.*"event":"\([a-z]*\)".*/\1/' | tr '\n' ' '; }
bytes() { grep '"event":"step"' "$1/metrics.jsonl" | wc -c; }

thin plain
equal "by default all steps are there" "$(numbers plain)" "$(seq 520 | tr '\n' ' ')"
equal "and their stages" "$(with_stages plain)" "$(numbers plain)"

thin some -o service.stages_every=100
equal "stages_every: all steps with the bits of their loss" "$(steps some)" "$(steps plain)"
equal "stages_every: stages of the first step and of every hundredth" "$(with_stages some)" "1 100 200 300 400 500 "
thin none -o service.stages_every=0
equal "stages_every = 0: only the first" "$(with_stages none)" "1 "

thin few -o service.metrics_every=70
equal "metrics_every: the first, every seventieth, and the last before an evaluation or the end" "$(numbers few)" \
    "1 50 70 100 140 150 200 210 250 280 300 350 400 420 450 490 500 520 "
steps few >"$aside/few"; steps plain >"$aside/plain"
check "metrics_every: with the bits of their loss" [ "$(grep -cxFf "$aside/few" "$aside/plain")" -eq 18 ]
equal "metrics_every: everything else is there" "$(rest few)" "$(rest plain)"
equal "none of this changes weights" "$(hash_of plain) $(hash_of plain) $(hash_of plain)" \
    "$(hash_of some) $(hash_of none) $(hash_of few)"

note_bytes() { echo "# $1: $(($(bytes "$1") / 520)) bytes a step of two stages"; }
note_bytes plain; note_bytes some; note_bytes few
check "stages_every takes at most a third" [ $((3 * $(bytes some))) -lt "$(bytes plain)" ]
check "metrics_every takes at most a twentieth" [ $((20 * $(bytes few))) -lt "$(bytes plain)" ]

# A run that ends early: its last step is there.
"$mpstaged" -c toy.conf --transport local --run-dir ended -o service.metrics_every=1000000000 --steps 100000000 \
    -o train.evaluate_every=0 >"$aside/out" 2>"$aside/err" </dev/null & pid=$!
for _ in $(seq 200); do
    ! "$mpstagectl" ended status 2>/dev/null | grep -qE 'step [1-9][0-9]{2,}/' || break
    sleep 0.05
done
kill -TERM "$pid"
wait "$pid" || true
equal "what a run that is stopped says" "$(rest ended | sed 's/ account / /')" "start failed "
check "and its first and last step" sh -c 'set -- $0; [ $# -eq 2 ] && [ "$1" -eq 1 ] && [ "$2" -gt 50 ]' \
    "$(numbers ended)"
tap_done
