#!/bin/sh
# events.sh: TensorBoard's event files, read by an independent decoder (events.py):
# checksums, and the same values as metrics.jsonl.
set -eu
. "$(dirname -- "$0")/mpi_lib.sh"
write_conf toy.conf 's/samples = 200/samples = 200  test_samples = 40/; s/steps = 3/steps = 200  evaluate_every = 50/'

job 2 -c toy.conf --run-dir plain
check "without service.tensorboard there is no event file" [ "$code$(ls plain | grep -c tfevents)" = 00 ]
job 2 -c toy.conf --run-dir told -o service.tensorboard=yes
check "with it there is one" [ "$code$(ls told | grep -c '^events\.out\.tfevents\.[0-9]\{10\}\.')" = 01 ]
if ! command -v python3 >/dev/null; then skip "its records have the values of metrics.jsonl" "no python3"
elif python3 "$here/events.py" told/events.out.tfevents.* told/metrics.jsonl >"$aside/said" 2>&1; then
    ok "its records have the values of metrics.jsonl: $(cat "$aside/said")"
else note <"$aside/said"; not_ok "its records have the values of metrics.jsonl"; fi
if command -v python3 >/dev/null; then
    cp told/events.out.tfevents.* damaged; printf X | dd of=damaged bs=1 seek=100 conv=notrunc 2>/dev/null
    check "the reader notices a changed byte" \
        sh -c '! python3 "$0" damaged told/metrics.jsonl >/dev/null 2>&1' "$here/events.py"
else skip "the reader notices a changed byte" "no python3"; fi
touch told/events.out.tfevents.0000000001.old
mkdir other; touch other/events.out.tfevents.0000000001.other
refused "event files of somebody else" 73 '^mpstaged: other: holds event files' \
    2 -c toy.conf --run-dir other -o service.tensorboard=yes
check "they are still there" [ "$(ls other)" = events.out.tfevents.0000000001.other ]
job 2 -c toy.conf --run-dir told -o service.tensorboard=yes --overwrite
check "--overwrite leaves no earlier file" [ "$code$(ls told | grep -c tfevents)" = 01 ]
tap_done
