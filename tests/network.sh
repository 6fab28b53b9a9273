#!/bin/sh
# network.sh: the network between two hosts is cut while they train: the rank that is not heard of any more is named,
# all ranks end, and mpstage-run ends mpirun, which would wait for the other host for ever. Hosts are namespaces, joined
# by a pair of virtual devices; it needs root. LIMIT: run.hang_timeout, in seconds.
set -eu
. "$(dirname -- "$0")/mpi_lib.sh"
leave_out() { skip "a network that is cut" "NOT TRIED: $1"; tap_done; }
[ "$(id -u)" -eq 0 ] || leave_out "this is not root"
command -v ip >/dev/null || leave_out "no ip: apt-get install iproute2"
a=mpscut$$a b=mpscut$$b
trap 'for p in $(ranks_alive); do kill -9 "$p" 2>/dev/null || true; done
    ip netns del $a 2>/dev/null || true; ip netns del $b 2>/dev/null || true; rm -rf "$tmp" "$aside"' EXIT
{ ip netns add $a && ip netns add $b && ip link add v$$a netns $a type veth peer name v$$b netns $b; } 2>"$aside/err" ||
    leave_out "$(tail -n 1 "$aside/err")"
for side in "$a v$$a 10.87.3.1" "$b v$$b 10.87.3.2"; do
    # shellcheck disable=SC2086
    set -- $side
    ip -n "$1" addr add "$3/24" dev "$2"
    ip -n "$1" link set "$2" up
    ip -n "$1" link set lo up
done
# mpirun reaches its other host by this instead of ssh; each has a name of its own.
cat >"$aside/agent" <<END
#!/bin/sh
shift
exec ip netns exec $b unshare -u sh -c 'hostname mpscutb; exec sh -c "\$0"' "\$*"
END
chmod +x "$aside/agent"
LIMIT=${LIMIT:-2}
write_conf long.conf 's/steps = 3/steps = 100000000/; s/seed = 1/&  hang_timeout = '"$LIMIT"'/
    $a service { log_every = 0  progress = "no" }'
mca="--mca plm_rsh_agent $aside/agent --mca oob_tcp_if_include 10.87.3.0/24 --mca btl_tcp_if_include 10.87.3.0/24"
# shellcheck disable=SC2086
ip netns exec $a unshare -u sh -c 'hostname mpscuta; exec "$@"' sh "$build/mpstage-run" --max-restarts 0 -- \
    "$MPIRUN" --allow-run-as-root --bind-to none $mca --mca btl self,tcp --host 10.87.3.1:1,10.87.3.2:1 -np 2 \
    "$mpstaged" -c long.conf --run-dir run >"$aside/out" 2>"$aside/err" </dev/null & pid=$!
until_step() {
    for _ in $(seq 900); do
        ! grep -qs '"step":3,' run/metrics.jsonl || return 0
        kill -0 $pid 2>/dev/null || return 1
        sleep 0.1
    done
    return 1
}
if ! until_step; then
    kill -TERM $pid 2>/dev/null || true
    why; leave_out "no job of mpirun begins on two hosts"
fi
ok "two ranks on two hosts train"
sleep 1                                                  # until ranks have told each other how long steps take
began=$(date +%s%N)
ip -n $a link set v$$a down
for _ in $(seq $((10 * LIMIT + 300))); do [ -n "$(ranks_alive)" ] || break; sleep 0.1; done
took=$((($(date +%s%N) - began) / 1000000))
if [ -z "$(ranks_alive)" ] && soon $((LIMIT * 1000 + 5000)); then
    ok "the network is cut: ranks on both hosts are gone after $took ms"
else why; not_ok "the network is cut: ranks are alive after $took ms"; fi
code=0; wait $pid || code=$?
took=$((($(date +%s%N) - began) / 1000000))
if [ "$code" -eq 81 ] && soon $((LIMIT * 1000 + 20000)); then ok "and the job ends: 81 after $took ms"
else why; not_ok "and the job ends: $code after $took ms"; fi
check "one line names the rank and its host" \
    [ "$(our_lines)$(grep -cE '^mpstaged: rank 1 \(mpscutb, process [0-9]+\) .*, for [0-9.]+ s$' "$aside/err")" = 11 ]
check "nobody is left on either host" nobody_left
tap_done
