#!/bin/sh
# check_hosts.sh: --check-hosts measures ranks and links, names a rank that is slow, and creates nothing.
set -eu
. "$(dirname -- "$0")/mpi_lib.sh"
write_conf toy.conf
rows() { grep -cE "^ +[0-9]+  [^ ]+ +[0-9.]+ +[0-9.]+( +[0-9.]+ +[0-9.]+){$1}\$" "$aside/out" || true; }

refused "no time" 64 'check-hosts=0: ' threads -c toy.conf --check-hosts=0
refused "no number" 64 'check-hosts=x: ' threads -c toy.conf --check-hosts=x
refused "replicas" 78 'replicas.*without replicas' threads -c toy.conf --check-hosts=1 -o pipeline.replicas=2 \
    -o train.gradient_groups=2
job 1 -c toy.conf --stages 1 --check-hosts=0.1
check "one rank is its own median" test "$code $(our_lines) $(rows 0)" = "0 0 1"
job threads -c toy.conf --stages 3 --check-hosts=0.1
check "three ranks have two links" test "$(rows 1) $(rows 0)" = "2 1"
name=ip-10-0-0-1.eu-central-1.compute.internal
if unshare -ru true 2>/dev/null; then
    unshare -ru sh -c 'hostname "$0" && exec "$@"' "$name" "$mpstaged" --transport local -c toy.conf --stages 3 \
        --check-hosts=0.1 >"$aside/out" 2>"$aside/err" </dev/null || true
    check "a long name of a host loses its middle" \
        test "$(grep -c '^   [0-2]  ip-10-0-0-1\.\.\.te\.internal ' "$aside/out")" -eq 3
    check "and rows have 80 columns at most" test "$(rows 1) $(rows 0) $(longest <"$aside/out")" = "2 1 80"
else skip "a host with a long name" "unshare is not permitted"; fi
for p in $(cases fp32 bf16); do
    job 2 -c toy.conf --check-hosts=0.1 --precision "$p"
    check "two processes in $p: a row for each" test "$(rows 1) $(rows 0)" = "1 1"
done

# One of two ranks whose products are slow. Memory that gives back other bytes: of one rank alone, of one of two.
copies() {
    export LD_PRELOAD="$build/tests/faults/copies.so"
    refused "$@" -c toy.conf --check-hosts=0.1
    unset LD_PRELOAD
}
if grep -q 'define SANITIZED 1' "$build/config.h"; then
    skip "products that are slow, memory that gives back other bytes" "sanitizers come first in a process"
else
    export LD_PRELOAD="$build/tests/faults/sgemm.so" MPSTAGED_SLOW_RANK=1
    job 2 -c toy.conf --check-hosts=3
    unset LD_PRELOAD
    check "a rank that is slow ends it with 1" test "$code" -eq 1
    check "after the table" test "$(rows 1) $(rows 0)" = "1 1"
    check "which names rank, host and what is slow" \
        grep -qE '^mpstaged: .*the product of rank 1 on [^ ]+ has 0\.[0-7][0-9] of the median' "$aside/err"
    check "and not the other one's product" test -z "$(grep 'the product of rank 0' "$aside/err" || true)"
    copies "memory of the only rank" 80 'rank 0: its memory gives back other bytes' threads --stages 1
    export MPSTAGED_FLIP_RANK=1
    copies "memory of rank 1" 80 'rank 1: its memory gives back other bytes' 2
fi
check "nothing was created" test "$(ls)" = toy.conf
tap_done
