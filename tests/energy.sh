#!/bin/sh
# energy.sh: the energy of GPUs, by a double of NVIDIA's management library: in metrics.jsonl and for Prometheus; not
# available where the library or its counter is missing.
set -eu
. "$(dirname -- "$0")/mpi_lib.sh"
mpstaged=$build/tests/gpu/mpstaged-double
[ -x "$mpstaged" ] || { echo "1..0 # SKIP no C++ compiler"; exit 77; }
write_conf toy.conf '$a service { metrics = "127.0.0.1:0" }'
# energy NAME FOLDER: a run whose library is the one in FOLDER; "missing" has none
energy() {
    LD_LIBRARY_PATH="$build/tests/$2${LD_LIBRARY_PATH:+:$LD_LIBRARY_PATH}" \
        job 2 -c toy.conf --run-dir "$1" --transport staged --allow-shared-gpu
    [ "$code" -eq 0 ] || { why; not_ok "$1: $code"; }
    done_field "$1/metrics.jsonl" gpu_energy_joules
}
joules=$(energy counted nvml-double)
check "each reading moves the counter: $joules J" sh -c 'awk "BEGIN { x = $1 / 1.5; exit !(x >= 1 && x == int(x)) }"' \
    sh "${joules:-0}"
equal "without its counter there is no figure" "-$(energy lacking nvml-lacks)" "-"
check "and the log says why" \
    grep -q 'energy of GPUs: not available: libnvidia-ml.so.1 lacks .*Energy' lacking/mpstaged.log
if ldconfig -p 2>/dev/null | grep -q libnvidia-ml.so.1; then skip "no library" "this machine has it"
else
    equal "without the library there is no figure" "-$(energy without missing)" "-"
    check "and the log says so" grep -q 'energy of GPUs: not available: libnvidia-ml.so.1: ' without/mpstaged.log
fi
job 2 -c toy.conf --run-dir processor --device cpu
check "a run on processors does not ask" [ "$code" -eq 0 ] && ! grep -q 'energy of GPUs' processor/mpstaged.log
tap_done
