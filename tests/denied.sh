#!/bin/sh
# denied.sh: calls that a policy or a file system refuses (seccomp, AppArmor, FUSE): links, renames, syncs, sockets,
# locks. What a run needs is tried before it begins; what is complete is never thrown away.
set -eu
. "$(dirname -- "$0")/mpi_lib.sh"
. "$here/faults/lib.sh"
write_conf toy.conf
write_conf long.conf 's/steps = 3/steps = 100000000/; $a service { log_every = 0 }'
scratch=$(pwd -P)

# under FAULT COMMAND...: below w; sets $code, leaves $aside/err
under() {
    fault=$1 code=0; shift
    MPSTAGED_FAULT_BELOW=$scratch/w MPSTAGED_FAULT=$fault LD_PRELOAD=$build/tests/faults/faults.so \
        timeout 60 "$@" >"$aside/out" 2>"$aside/err" </dev/null || code=$?
}
# tried TEXT PATTERN FAULT COMMAND...: 73 in one line that matches, before anything is computed; nothing is left in w
tried() {
    text=$1 pattern=$2; shift 2
    rm -rf w; mkdir w
    under "$@"
    if [ "$code" -eq 73 ] && grep -q "$pattern" "$aside/err" && [ -z "$(ls -A w)" ]; then ok "$text: 73"
    else { ls -A w; cat "$aside/err"; } | note; not_ok "$text: $code"; fi
}
seen() { for _ in $(seq 600); do ! grep -qs "$1" w/run/metrics.jsonl || return 0; sleep 0.05; done; return 1; }
left() { find w -name '.mpstaged-*'; }

mkdir w
under '9:any:1:none' "$mpstaged" -c toy.conf --transport local --run-dir w/run
whole=$(hash_of w/run)

# ---- from the beginning ----------------------------------------------------------------------------------------------
rm -rf w; mkdir w
run="$mpstaged -c toy.conf --transport local --run-dir w/run"
under '*:link:1+:eperm' $run -o checkpoint.every_steps=1 --trace w/t.json
check "no links: it trains ($code)" [ "$code" -eq 0 ]
equal "and the weights are the same" "$(hash_of w/run)" "$whole"
check "no file is left over" [ -s w/t.json -a -s w/run/weights.safetensors -a -z "$(left)" ]
under '*:link:1+:eperm' "$mpstaged" -c toy.conf --plan=search --stages 2 --write-config w/found.conf
check "no links: a file that replaces none is written ($code)" [ "$code" -eq 0 -a -s w/found.conf -a -z "$(left)" ]
cp w/found.conf "$aside/kept"
under '*:link:1+:eperm' "$mpstaged" -c toy.conf --plan=search --stages 2 --write-config w/found.conf
check "and one that is there stays ($code)" cmp -s w/found.conf "$aside/kept"
tried "no renames" 'w/run/weights.safetensors.* not permitted' '*:rename:1+:eperm' $run
tried "no syncs" 'w/run/weights.safetensors: .* cannot be synced' '*:fsync:3+:eperm' $run
saving="$run -o checkpoint.every_steps=1"
tried "no renames, checkpoints" 'w/run: a run cannot create its output there: ' '*:rename:1+:eperm' $saving
tried "no syncs, checkpoints" 'w/run: a run cannot create its output there: ' '*:fsync:3+:eperm' $saving
tried "no renames, a profile" 'cannot be renamed' '*:rename:1+:eperm' $run --profile
tried "no syncs, a profile" 'cannot be synced' '*:fsync:2+:eperm' $run --profile
tried "no renames, a trace" 'w/t.json: files cannot be renamed' '*:rename:1+:eperm' $run --trace w/t.json
rm -rf w; mkdir w w/out
under '*:rename:1+:eperm' "$build/mpstage-experiment" -c toy.conf --out w/out --overwrite
check "no renames, an experiment ($code)" [ "$code" -eq 73 ]

# ---- from the middle of a run ----------------------------------------------------------------------------------------
# later FAULT: a run that is told to stop and write its weights after what it needs was denied to it
later() {
    rm -rf w again; mkdir w
    MPSTAGED_FAULT_BELOW=$scratch/w MPSTAGED_FAULT=$1 MPSTAGED_FAULT_WHILE=$scratch/again \
        LD_PRELOAD=$build/tests/faults/faults.so "$mpstaged" -c long.conf --transport local --run-dir w/run \
        >"$aside/out" 2>"$aside/err" </dev/null & pid=$!
    seen '"step":20,' || not_ok "a long run begins"
    : >again
    "$mpstagectl" w/run stop >"$aside/said" 2>&1 || true
    code=0
    wait $pid || code=$?
    rm -f again
}
later '*:link:1+:eperm'
check "links are denied later: the weights are there ($code)" \
    [ "$code" -eq 0 -a -s w/run/weights.safetensors -a -z "$(left)" ]
later '*:rename:1+:eperm'
kept=$(sed -n 's/.*the new content is in \(.*\)$/\1/p' "$aside/err")
check "renames are denied later: 73 says where the weights are ($code)" [ "$code" -eq 73 -a -s "${kept:-none}" ]
cp "$kept" "$aside/st"
code=0
"$mpstaged" -c toy.conf --transport local --run-dir w/run --overwrite >"$aside/out" 2>"$aside/err" || code=$?
check "and the next run leaves them there ($code)" cmp -s "$kept" "$aside/st"
code=0
"$mpstaged" -c toy.conf --transport local --run-dir w/next --init-from "$kept" >"$aside/out" 2>"$aside/err" || code=$?
check "from which another one starts ($code)" [ "$code" -eq 0 ]

# ---- places without sockets or locks ---------------------------------------------------------------------------------
# without LETTERS COMMAND...
without() { letters=$1; shift; MPSTAGED_WITHOUT=$letters LD_PRELOAD=$build/tests/faults/without.so "$@"; }
# begins LETTERS: a long run in w/run; $pid
begins() {
    rm -rf w; mkdir w
    MPSTAGED_WITHOUT=$1 LD_PRELOAD=$build/tests/faults/without.so "$mpstaged" -c long.conf --transport local \
        --run-dir w/run >"$aside/out" 2>"$aside/err" </dev/null & pid=$!
    seen '"step":20,' || not_ok "a long run begins"
}
ends() { kill -TERM $pid; code=0; wait $pid || code=$?; }
for letters in s f fo sfo; do
    begins $letters
    code=0
    without $letters "$mpstaged" -c toy.conf --transport local --run-dir w/run >"$aside/second" 2>&1 || code=$?
    check "without $letters: a second start is refused ($code)" \
        [ "$code $(grep -c "in use by process $pid" "$aside/second")" = "75 1" ]
    code=0
    without $letters "$mpstagectl" w/run status >"$aside/said" 2>&1 || code=$?
    case $letters in
    s*) check "without $letters: mpstagectl says why it cannot reach the run ($code)" \
            [ "$code $(grep -c "process $pid runs there without a control socket" "$aside/said")" = "69 1" ]
        check "without $letters: the run says so once" \
            [ "$(grep -c 'note: w/run/control.sock: cannot make a unix socket' "$aside/err")" -eq 1 ] ;;
    *) check "without $letters: mpstagectl reaches the run ($code)" [ "$code" -eq 0 ] ;;
    esac
    ends
    check "without $letters: it hears SIGTERM ($code)" [ "$code" -eq 75 ]
    code=0
    without $letters "$mpstagectl" w/run status >"$aside/said" 2>&1 || code=$?
    check "without $letters: and is gone then ($code)" \
        [ "$code $(grep -c 'nothing is running' "$aside/said")" = "69 1" ]
    begins $letters
    kill -KILL $pid
    wait $pid 2>/dev/null || true
    code=0
    without $letters "$mpstaged" -c toy.conf --transport local --run-dir w/run --overwrite >"$aside/out" 2>&1 || code=$?
    check "without $letters: what a killed run had is free ($code)" [ "$code" -eq 0 ]
done
rm -rf w/run; mkdir w/run
echo "1234 5 some-other-boot some-other-host" >w/run/lock
code=0
without fo "$mpstaged" -c toy.conf --transport local --run-dir w/run >"$aside/out" 2>&1 || code=$?
check "without locks: another host's process is not run over ($code)" \
    [ "$code $(grep -c 'process 1234 on some-other-host may still run' "$aside/out")" = "73 1" ]
rm -rf w; mkdir w
for what in no yes; do
    code=0
    without s "$mpstaged" -c toy.conf --transport local --run-dir w/$what -o service.control=$what >"$aside/out" 2>&1 ||
        code=$?
    check "without sockets, service.control = $what: $code" [ "$code" -eq $([ $what = no ] && echo 0 || echo 73) ]
    [ $what = yes ] || check "and nothing is said of it" [ "$(grep -c socket "$aside/out")" -eq 0 ]
done

# ---- calls that a container refuses ----------------------------------------------------------------------------------
rm -rf w; mkdir w
run="$mpstaged -c toy.conf --transport local --run-dir w/run -o checkpoint.every_steps=1 -o checkpoint.keep=1"
code=0
without x $run >"$aside/out" 2>&1 || code=$?
check "no statx: it trains ($code)" [ "$code $(hash_of w/run)" = "0 $whole" ]
code=0
without r $run --resume --steps 5 >"$aside/out" 2>&1 || code=$?
check "checkpoints of a layer below are thinned out, too: $(ls w/run/checkpoints) ($code)" \
    [ "$code $(ls w/run/checkpoints)" = "0 step-00000005" ]
code=0
without r $run --overwrite >"$aside/out" 2>&1 || code=$?
check "and make room for another run ($code)" [ "$code $(ls w/run/checkpoints)" = "0 step-00000003" ]

# The socket has its mode from the beginning, whatever the mask: no name is followed to give it.
if command -v strace >/dev/null && strace -o "$aside/trace" true 2>/dev/null; then
    rm -rf w; mkdir w
    (umask 022; strace -f -e trace=chmod,fchmod,fchmodat,?fchmodat2,chown,fchown,fchownat,lchown -o "$aside/trace" \
        "$mpstaged" -c toy.conf --transport local --run-dir w/run >"$aside/out" 2>&1)
    check "no mode and no owner is changed by name" [ "$(grep -cE 'chmod|chown' "$aside/trace")" -eq 0 ]
else skip "no mode and no owner is changed by name" "no strace"; fi
begins x
check "the socket is its owner's and group's: $(stat -c %a w/run/control.sock)" \
    [ "$(stat -c %a w/run/control.sock)" = 660 ]
check "and other files have the mask's mode: $(stat -c %a w/run/metrics.jsonl)" \
    [ "$(stat -c %a w/run/metrics.jsonl)" = $(printf %o $((0666 & ~0$(umask)))) ]
ends
tap_done
