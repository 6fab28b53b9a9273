#!/bin/sh
# taken.sh: files that a run reads are cut off, replaced or removed while it goes on: what is in memory or open stays as
# it was, and where bytes are gone, one line names the file and the place, and the run ends with 65.
set -eu
. "$(dirname -- "$0")/mpi_lib.sh"
synthetic='source = "synthetic"  labels = "onehot"  samples = 200'
zeros() { head -c "$1" /dev/zero; }
# npy FILE SHAPE BYTES: zeros
npy() {
    { printf '\223NUMPY\001\000\166\000%-117s\n' "{'descr': '<f4', 'fortran_order': False, 'shape': ($2), }"
        zeros "$3"; } >"$1"
}
write_conf npy.conf "s/$synthetic/"'source = "npy" labels = "vector" train = "x.npy" train_labels = "y.npy"/
    s/steps = 3/steps = 100000000/; $a service { log_every = 0  progress = "no" }'
write_conf idx.conf "s/$synthetic/"'source = "idx" train = "x.idx" train_labels = "y.idx"/
    s/network = "toy"  classes = 5  input = {10}/network = "mlp" hidden = {8} classes = 5 input = {1, 4, 4}/
    s/loss = "mse"/loss = "cross_entropy"/; s/steps = 3/steps = 100000000/
    $a service { log_every = 0  progress = "no" }'

steps() { steps_n=$(grep -c '"event":"step"' run/metrics.jsonl 2>/dev/null || true); echo "${steps_n:-0}"; }
# more N: so many steps come
more() {
    more_to=$(($(steps) + $1))
    for _ in $(seq 600); do
        [ "$(steps)" -lt "$more_to" ] || return 0
        kill -0 $pid 2>/dev/null || return 1
        sleep 0.1
    done
    return 1
}
begin() {
    rm -rf run
    npy x.npy '200, 10' 8000
    npy y.npy '200, 5' 4000
    { printf '\0\0\010\003\0\0\0\036\0\0\0\004\0\0\0\004'; zeros 480; } >x.idx
    { printf '\0\0\010\001\0\0\0\036'; zeros 30; } >y.idx
    mpirun_n 2 "$mpstaged" -c "$1" --run-dir run >"$aside/out" 2>"$aside/err" </dev/null & pid=$!
    more 3 || { why; not_ok "a run with $1 begins"; }
}
stop() {
    code=0
    "$mpstagectl" run stop --wait >"$aside/stop" 2>&1 || true
    wait $pid || code=$?
    check "$1, and it ends well: $code" [ "$code" -eq 0 ]
}
for file in x y; do
    begin npy.conf
    truncate -s 150 $file.npy
    code=0; wait $pid || code=$?
    if [ "$code" -eq 65 ] && [ "$(our_lines)" -eq 1 ] &&
        grep -qE "^mpstaged: .*: $file\.npy: offset [0-9]+: the file ends here, [0-9]+ bytes too" "$aside/err"; then
        ok "$file.npy is cut off: 65"
    else why; not_ok "$file.npy is cut off: $code"; fi
    check "the metrics say so" grep -q '"event":"failed","code":65' run/metrics.jsonl
    check "nobody is left" nobody_left
done
begin npy.conf
printf 'something else' >new; mv new x.npy; rm y.npy
check "NumPy files that get another one in their place, or are removed: the run goes on" more 200
stop "with what it had opened"
begin idx.conf
truncate -s 20 x.idx; rm y.idx
check "IDX files that are cut off or removed: the run goes on" more 200
stop "with what it had read"
tap_done
