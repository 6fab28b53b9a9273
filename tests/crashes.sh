#!/bin/sh
# crashes.sh: checkpoints of a run of two ranks, of which one ends or fails at one of the calls that change files: the
# run goes on from what is there to the bits of a run without faults. And what is on disk after a power cut at any
# moment. LONG=1 takes every call; otherwise some at random.
set -eu
. "$(dirname -- "$0")/mpi_lib.sh"
. "$here/faults/lib.sh"
seed=${SEED:-$(date +%s)}
echo "# SEED=$seed gives the same calls again"
tries=1 resumed=threads                                  # resumed: on what a run goes on
[ -z "${LONG:-}" ] || tries=1000 resumed=2

write_conf toy.conf 's/steps = 3/steps = 4/'
echo 'checkpoint { every_steps = 2  keep = 1 }' >>toy.conf

# The daemon under faults.so, by its own name: what is below w/run/checkpoints counts.
mkdir "$aside/bin" w
cat >"$aside/bin/mpstaged" <<END_BIN
#!/bin/sh
[ -z "\${MPSTAGED_FAULT_BELOW:-}" ] || export LD_PRELOAD='$build/tests/faults/faults.so'
exec '$mpstaged' "\$@"
END_BIN
chmod +x "$aside/bin/mpstaged"
mpstaged=$aside/bin/mpstaged
tmp_real=$(pwd -P)

trains undisturbed 2 -c toy.conf
whole=$hash
committed() {
    sed -n 's/.*"event":"checkpoint","step":\([0-9]*\).*/\1/p' w/run/metrics.jsonl 2>/dev/null | tail -n 1
}

# under FAULT: a run with that fault, its newest checkpoint, and the run that goes on; adds to $bad
under() {
    rm -rf w/run hit
    MPSTAGED_FAULT_BELOW=$tmp_real/w/run/checkpoints MPSTAGED_FAULT_HIT=$tmp_real/hit MPSTAGED_FAULT=$1 \
        job 2 -c toy.conf --run-dir w/run
    first=$code
    [ -e hit ] || return 1
    [ ! -d w/run/checkpoints ] || is=$("$build/tests/faults/commit_rig" newest w/run 2>&1) || true
    case ${is:=0} in 0|2|4) ;; *) bad="$bad; $1 leaves $is" ;; esac
    said=$(committed)
    case $is in [024]) [ "$is" -ge "${said:-0}" ] || bad="$bad; $1 loses $said, which was committed" ;; esac
    case $1-$first in *:kill-0 | *-70 | *-139 | *-134) bad="$bad; $1 ends with $first" ;; esac
    job $resumed -c toy.conf --run-dir w/run --resume
    [ "$code" -eq 0 ] && [ "$(hash_last w/run)" = "$whole" ] ||
        bad="$bad; after $1 and $first it goes on with $code: $(tr '\n' ' ' <"$aside/err")"
    [ -z "$(find w/run/checkpoints -name '*.tmp')" ] || bad="$bad; after $1: $(ls w/run/checkpoints)"
}
hash_last() { done_field "$1/metrics.jsonl" weights_hash | tail -n 1; }

# How many calls there are
MPSTAGED_FAULT_BELOW=$tmp_real/w/run/checkpoints MPSTAGED_FAULT_COUNT=$tmp_real/count job 2 -c toy.conf --run-dir w/run

for rank in 0 1; do
    calls=$(awk -v r=$rank '$1 == r { n += $2 } END { print n + 0 }' count)
    for action in kill eio enospc short; do
        bad='' n=0 i=0
        while [ $i -lt $tries ] && [ $i -lt $calls ]; do
            i=$((i + 1)) seed=$(((seed * 1103515245 + 12345) % 2147483648))
            at=$i call=any
            [ -n "${LONG:-}" ] || at=$((seed / 8 % calls + 1))
            [ $action != short ] || { call=write at=$(((at - 1) % 4 + 1)); }
            if under $rank:$call:$at:$action; then n=$((n + 1)); fi
        done
        if [ -z "$bad" ] && [ $n -gt 0 ]; then ok "rank $rank, $action at $n of $calls calls: the same bits at last"
        else echo "$bad" | tr ';' '\n' | note; not_ok "rank $rank, $action at one of $n of $calls calls"; fi
    done
done

# A disk that stays full: the third checkpoint that cannot be written ends the run, with the first ones on disk.
rm -rf w/run again
MPSTAGED_FAULT_BELOW=$tmp_real/w/run/checkpoints MPSTAGED_FAULT='*:any:1+:enospc' MPSTAGED_FAULT_WHILE=$tmp_real/again \
    job threads -c toy.conf --steps 4 --run-dir w/run
: >again
MPSTAGED_FAULT_BELOW=$tmp_real/w/run/checkpoints MPSTAGED_FAULT='*:any:1+:enospc' MPSTAGED_FAULT_WHILE=$tmp_real/again \
    job 2 -c toy.conf --steps 400 --run-dir w/run --resume
check "three checkpoints in a row that find no room: 74" \
    [ "$code $(grep -c '"event":"checkpoint_failed"' w/run/metrics.jsonl)" = "74 3" ]
check "in one line" [ "$(our_lines)" -eq 1 ]
equal "and the one before is sound" "$("$build/tests/faults/commit_rig" newest w/run 2>&1)" 4
# Behind the last step, though, a third one does not take the final weights from the run.
MPSTAGED_FAULT_BELOW=$tmp_real/w/last/checkpoints MPSTAGED_FAULT='*:any:1+:enospc' \
    MPSTAGED_FAULT_WHILE=$tmp_real/again job threads -c toy.conf --steps 3 -o checkpoint.every_steps=1 --run-dir w/last
check "three that find no room, the third behind the last step: the weights are written" \
    [ "$code $(grep -c '"event":"checkpoint_failed"' w/last/metrics.jsonl) $(ls w/last/weights.safetensors)" = \
    "0 3 w/last/weights.safetensors" ]
rm -f again
code=0
MPSTAGED_FAULT_BELOW=$tmp_real/w/run/checkpoints MPSTAGED_FAULT='*:any:1+:eio' \
    "$mpstaged" -c toy.conf --steps 20 --run-dir w/run --resume >"$aside/out" 2>"$aside/err" </dev/null || code=$?
equal "while the disk fails it does not begin, with a status that supervisors try again" "$code" 74
job threads -c toy.conf --steps 20 --run-dir w/run --resume
check "from which the run goes on" [ "$code" -eq 0 ]

# A rate is set while the disk of checkpoints fails, so that the next checkpoint is lost, and then the run is killed:
# it goes on from the one before with that rate, at the steps that it was told of.
rm -rf w/run again
write_conf long.conf 's/steps = 3/steps = 100000000/; $a service { log_every = 0 }'
echo 'checkpoint { every_steps = 100000000 }' >>long.conf
MPSTAGED_FAULT_BELOW=$tmp_real/w/run/checkpoints MPSTAGED_FAULT='*:any:1+:eio' MPSTAGED_FAULT_WHILE=$tmp_real/again \
    "$mpstaged" -c long.conf --run-dir w/run >"$aside/out" 2>"$aside/err" </dev/null & pid=$!
seen() { for _ in $(seq 600); do ! grep -qs "$1" w/run/metrics.jsonl || return 0; sleep 0.05; done; return 1; }
seen '"step":20,' || not_ok "a long run begins"
"$mpstagectl" w/run checkpoint --wait >"$aside/said" 2>&1 || true
: >again
from=$("$mpstagectl" w/run set train.learning_rate=0.0625 2>&1 | sed -n 's/.* step \([0-9]*\) on$/\1/p')
check "a rate is set, from step ${from:=0}" [ "$from" -gt 0 ]
"$mpstagectl" w/run checkpoint >"$aside/said" 2>&1 || true
check "the next checkpoint is lost" seen '"event":"checkpoint_failed"'
check "and it trains on" seen "\"step\":$((from + 9)),"
kill -KILL $pid
wait $pid 2>/dev/null || true
rm -f again
newest=$("$build/tests/faults/commit_rig" newest w/run 2>&1)
check "the newest checkpoint, of step $newest, is an older one" [ "$newest" -gt 0 -a "$newest" -lt $((from - 1)) ]
lost_at=$(loss_bits w/run/metrics.jsonl | sort -n | tail -n 1 | cut -d " " -f 1)
# what was done before: to be done again
loss_bits w/run/metrics.jsonl >"$aside/before"
"$mpstaged" -c long.conf --steps $((lost_at + 5)) --run-dir w/run --resume >"$aside/out" 2>"$aside/err" || why
rate_of() { sed -n 's/.*"step":'"$1"',"epoch".*"lr":\([0-9.e-]*\),.*/\1/p' w/run/metrics.jsonl | tail -n 1; }
equal "the run that goes on has it from that step on" "0.1 0.0625" "$(rate_of $((from - 1))) $(rate_of "$from")"
loss_bits w/run/metrics.jsonl | awk -v n="$lost_at" '$1 <= n' >"$aside/after"
check "and says so" grep -q "^note: train.learning_rate is 0.0625 again from step $from on" "$aside/err"
check "steps that were done again have the same losses" cmp "$aside/before" "$aside/after"
rm -rf w/whole; mkdir w/whole; cp w/run/rates.jsonl w/whole
"$mpstaged" -c long.conf --steps $((lost_at + 5)) --run-dir w/whole --resume >"$aside/out" 2>"$aside/err" || why
loss_bits w/run/metrics.jsonl >"$aside/after"; loss_bits w/whole/metrics.jsonl >"$aside/whole"
check "which are those of a run in which only that was set" cmp "$aside/after" "$aside/whole"
equal "and so are the weights" "$(hash_last w/run)" "$(hash_last w/whole)"

# A power cut: what the daemon says was committed is there.
rm -rf w record; mkdir w
MPSTAGED_FAULT_BELOW=$tmp_real/w MPSTAGED_FAULT_RECORD=$tmp_real/record job 2 -c toy.conf --run-dir w/run
check "the recorded run ends well" [ "$code" -eq 0 ]
crashes "power cut" record run
# The same of a run in place of an earlier one, whose folder of checkpoints is there already.
rm -rf w record; mkdir w
for how in '--steps 2' '--steps 2 --overwrite'; do
    # shellcheck disable=SC2086
    MPSTAGED_FAULT_BELOW=$tmp_real/w MPSTAGED_FAULT_RECORD=$tmp_real/record job threads -c toy.conf $how --run-dir w/run
    check "a run with $how ends well" [ "$code" -eq 0 ]
done
crashes "power cut, one run after another" record run
tap_done
