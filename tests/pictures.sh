#!/bin/sh
# pictures.sh: the schedule drawn as SVG and as JSON, judged by an independent reader (pictures.py):
# complete, in order, nothing at once on one rank.
set -eu
. "$(dirname -- "$0")/mpi_lib.sh"
write_conf toy.conf
python=$(command -v python3 || true)

# judged TEXT ARGUMENTS...: what pictures.py says
judged() {
    judged_text=$1; shift
    if [ -z "$python" ]; then skip "$judged_text" "no python3"
    elif "$python" "$here/pictures.py" "$@" >"$aside/said" 2>&1; then ok "$judged_text"
    else note <"$aside/said"; not_ok "$judged_text"; fi
}

for schedule in naive gpipe 1f1b; do
    "$mpstaged" -c toy.conf --schedule $schedule --stages 3 --draw-schedule s.svg \
        >"$aside/out" 2>&1 && code=0 || code=$?
    check "$schedule: drawn, nothing said" [ "$code$(cat "$aside/out")" = 0 ]
    "$mpstaged" -c toy.conf --schedule $schedule --stages 3 --draw-schedule s.json && code=0 || code=$?
    check "$schedule: drawn as JSON" [ "$code" = 0 ]
    judged "$schedule: the SVG has a box for every computing action, and its stages, axis and legend" svg s.svg s.json
    passes="3 forwards and 3 backwards a stage, none at once on a rank"
    judged "$schedule: the JSON has $passes, transfers from an end to a beginning" schedule s.json 3 3
done
# Only the last rank has room: the others stay empty, and so they are drawn.
"$mpstaged" -c toy.conf --stages 3 -o pipeline.partition=sequential -o 'pipeline.max_memory={1, 1, 1000000000}' \
    --draw-schedule empty.svg >"$aside/out" 2>&1 && code=0 || code=$?
check "ranks without layers are drawn so" [ "$code/$(grep -c 'no layers' empty.svg)" = 0/2 ]
write_conf mlp.conf 's/network = "toy"/network = "mlp"  hidden = {2048, 2048, 2048}/; s/input = {10}/input = {256}/;
        s/batch_size = 20/batch_size = 128/; s/split_size = 8/split_size = 32/'
"$mpstaged" -c mlp.conf --draw-schedule - >"$aside/dash"
"$mpstaged" -c mlp.conf --print-schedule >"$aside/printed"
check "without a terminal - is what --print-schedule prints" cmp "$aside/dash" "$aside/printed"
check "both ranks are in it, and the units" \
    sh -c 'grep -q "^rank 1.*1F0" "$0" && grep -qE " (s|ms|µs) " "$0"' "$aside/dash"
check "it is folded to 80 columns" \
    awk '{ if (length($0) > 80) { print "# " $0; bad = 1 } } END { exit bad }' "$aside/dash"
COLUMNS=50 "$mpstaged" -c mlp.conf --print-schedule >"$aside/narrow"
check "or to as many as COLUMNS says" \
    awk '/^rank/ { n[length($0)]++; rows++ } END { exit !(n[50] == rows && rows > 2) }' "$aside/narrow"
for f in "$aside/dash" "$aside/narrow"; do
    check "folds cut no name" \
        sh -c 'for a in 0F 1F; do for i in 0 1 2 3; do grep -q "$a$i" "$0" || exit 1; done; done' "$f"
done
if command -v script >/dev/null; then
    COLUMNS=60 TERM=xterm script -qec "'$mpstaged' -c mlp.conf --draw-schedule -" /dev/null \
        >"$aside/tty" </dev/null || true
    check "on a terminal it has colours" grep -q "$(printf '\033')\\[44" "$aside/tty"
    sed "s/$(printf '\033')\\[[0-9;]*m//g; s/$(printf '\r')//" "$aside/tty" | grep '^rank' >"$aside/rows" || true
    check "and the terminal's width" [ "$(awk '{ print length($0) }' "$aside/rows" | sort -u)" = 60 ]
else skip "on a terminal it has colours" "no script(1)"; fi
tap_done
