#!/bin/sh
# kills.sh: SIGKILL at random moments, of a rank, of all ranks or of mpirun, while starting, training, evaluating and
# writing checkpoints. Every job ends by itself, under the supervisor or started anew with another number of stages,
# with the weights and the losses of a run that nobody killed, and goes on from the newest checkpoint that was told of.
# Just before a kill somebody may have set the learning rate: what was told to be set is, from the step that was named.
# KILLS=8 kills so often (LONG=1: 1000), SEED gives the same moments again as far as the machine does.
set -eu
. "$(dirname -- "$0")/mpi_lib.sh"
supervisor=$build/mpstage-run
KILLS=${KILLS:-${LONG:+1000}}; KILLS=${KILLS:-8}
SEED=${SEED:-$(date +%s)}
echo "# SEED=$SEED, $KILLS kills"
state=$SEED
random() { state=$(((state * 1103515245 + 12345) % 2147483648)); dice=$((state / 65536 % $1)); }

steps=1500
[ -z "${LONG:-}" ] || steps=3000
cat >k.conf <<END
run      { name = "kills"  seed = 5 }
model    { network = "mlp"  input = {12}  hidden = {16, 16, 16}  classes = 5  dropout = 0.2 }
data     { source = "synthetic"  labels = "class"  samples = 50  test_samples = 33  shuffle = yes }
train    { batch_size = 16  split_size = 4  steps = $steps  optimizer = "adamw"  learning_rate = 0.01  clip_norm = 1
           evaluate_every = 150 }
pipeline { stages = 2 }
checkpoint { every_steps = 40 }
service { log_every = 0  progress = "no" }
END
last_hash() { done_field "$1/metrics.jsonl" weights_hash | tail -n 1; }
# Lost a run a checkpoint that it had told of? Each resumption is from the newest of those before it, or a newer one.
lost() {
    sed -n 's/.*"event":"\(checkpoint\|resume\)",.*"step":\([0-9]*\)[,}].*/\1 \2/p' "$1/metrics.jsonl" |
        awk '$1 == "checkpoint" && $2 > top { top = $2 } $1 == "resume" && $2 < top { n++ } END { print n + 0 }'
}
count() { n=$(grep -c "$1" "$2" 2>/dev/null || true); echo "${n:-0}"; }
now() { echo $(($(date +%s%N) / 1000000)); }

trains whole threads -c k.conf
whole=$hash
loss_bits whole/metrics.jsonl >"$aside/whole"
check "$steps steps and $((steps / 150)) evaluations have bits" \
    [ "$(wc -l <"$aside/whole")" -eq $((steps + steps / 150)) ]

# Of this test's processes: those of that name.
mine() {
    for p in $(pgrep -x "$1" || true); do
        [ "$(readlink "/proc/$p/cwd" 2>/dev/null)" != "$tmp" ] || echo "$p"
    done
}
pick() { [ $# -gt 0 ] || return 0; random $#; shift $dice; echo "$1"; }
# strike: one rank, all or mpirun; $victim, empty if there was nobody
strike() {
    random 4
    case $dice in
    0) victim=$(mine 'mpirun.*|orterun|prterun|mpiexec.*' | head -n 1) ;;
    1) victim=$(ranks_alive | tr '\n' ' ') ;;
    *) random 1000; victim=$(state=$((SEED + kills + dice)); pick $(ranks_alive)) ;;
    esac
    [ -z "$victim" ] || kill -9 $victim 2>/dev/null || victim=
}
kills=0 jobs=0 slowest=0 bad=0 by_hand_kills=0 changes=0 sets=0
# No job takes more, so that each kind has its turn.
share=$((KILLS / 4 + 1))
[ "$share" -le 25 ] || share=25
# set_rate RUN: notes the step if it is told that it is set
set_rate() {
    random 9
    step=$(timeout 5 "$mpstagectl" "$1" set "train.learning_rate=0.00$((dice + 1))" 2>/dev/null </dev/null |
        sed -n 's/.* from step \([0-9]*\) on$/\1/p') || true
    [ -z "$step" ] || { echo "$step" >>"$aside/told"; sets=$((sets + 1)); }
}
begins() { count '"event":"\(start\|resume\)"' "$1/metrics.jsonl"; }   # also where there was no checkpoint yet
# await_step RUN: until a job that began after $begun was counted has done a step. Notes how long that took.
await_step() {
    from=$(now)
    while kill -0 $pid 2>/dev/null; do
        [ "$(begins "$1")" -le "$begun" ] ||
            ! tail -n 1 "$1/metrics.jsonl" 2>/dev/null | grep -q '"event":"step"' || break
        [ $(($(now) - from)) -lt 30000 ] || break
        sleep 0.05
    done
    took=$(($(now) - from))
    kill -0 $pid 2>/dev/null || return 0
    [ $took -le $slowest ] || slowest=$took
}
# judge RUN HOW: the end of a job
judge() {
    jobs=$((jobs + 1)) wrong= judged=$code
    cp "$aside/whole" "$aside/wanted"
    wanted=$whole
    while read -r step; do
        grep -q "^{\"step\":$step," "$1/rates.jsonl" || wrong="$wrong; what was set from step $step on is lost"
    done <"$aside/told"
    if [ -e "$1/rates.jsonl" ]; then                      # what a run does in which only that was set
        rm -rf alike; mkdir alike; cp "$1/rates.jsonl" alike
        job threads -c k.conf --resume --run-dir alike
        wanted=$(last_hash alike)
        loss_bits alike/metrics.jsonl >"$aside/wanted"
    fi
    code=$judged
    [ "$code" -eq 0 ] || wrong="$wrong; exit $code"
    [ "$(last_hash "$1")" = "$wanted" ] || wrong="$wrong; weights $(last_hash "$1"), not $wanted"
    loss_bits "$1/metrics.jsonl" >"$aside/bits"
    cmp -s "$aside/bits" "$aside/wanted" ||
        wrong="$wrong; losses differ: $(diff "$aside/bits" "$aside/wanted" | sed -n 2p)"
    [ "$(lost "$1")" -eq 0 ] || wrong="$wrong; $(lost "$1") checkpoints were lost"
    [ -z "$(ranks_alive)" ] || nobody_left || wrong="$wrong; ranks are left"
    [ -z "$wrong" ] && return 0
    bad=$((bad + 1))
    echo "$2$wrong" | note
    tail -n 20 "$aside/said" | note
    grep -v '"event":"step"' "$1/metrics.jsonl" | cut -c 1-160 | tail -n 12 | note
    not_ok "job $jobs: $2"
}

# Under the supervisor. Two kills in a row may come before a checkpoint, no more: it gives up after three.
supervised() {
    rm -rf run; early=0 before= most=$((kills + share))
    : >"$aside/told"
    "$supervisor" --backoff 0 -- "$MPIRUN" $mpi_options -np "$1" "$mpstaged" -c k.conf \
        --stages "$1" --run-dir run >"$aside/out" 2>"$aside/said" </dev/null & pid=$!
    while kill -0 $pid 2>/dev/null && [ "$kills" -lt "$KILLS" ] && [ "$kills" -lt "$most" ]; do
        random 90
        sleep "$(printf 0.%02d "$dice")"
        committed=$(count '"event":"checkpoint","step"' run/metrics.jsonl)
        if [ "${committed:-0}" = "${before:-x}" ]; then early=$((early + 1)); else early=0; fi
        [ $early -lt 2 ] || continue
        begun=$(begins run) before=$committed
        random 2
        [ "$dice" -ne 0 ] || set_rate run
        strike
        [ -n "$victim" ] || continue
        kills=$((kills + 1))
        random 3
        [ "$dice" -ne 0 ] || await_step run
    done
    code=0; wait $pid || code=$?
    judge run "$1 ranks under the supervisor"
}
# Started by hand, each time with another number of stages than before, and struck when so many steps more are done.
steps_done() { count '"event":"step"' run/metrics.jsonl; }
by_hand() {
    rm -rf run; n=0 most=$((kills + share)) writer=0     # writer: how many stages wrote the newest checkpoint
    : >"$aside/told"
    for try in $(seq 200); do
        last=$n
        random 2
        case $last-$dice in 2-0 | 4-0) n=1 ;; 1-0 | 4-1) n=2 ;; 1-1 | 2-1) n=4 ;; *) n=$((dice + 1)) ;; esac
        began=$(steps_done) begun=$(begins run)
        committed=$(count '"event":"checkpoint","step"' run/metrics.jsonl)
        "$MPIRUN" $mpi_options -np $n "$mpstaged" -c k.conf --stages $n --run-dir run --resume \
            >"$aside/out" 2>"$aside/said" </dev/null & pid=$!
        if [ "$kills" -lt "$KILLS" ] && [ "$kills" -lt "$most" ]; then
            random 300
            until=$((began + dice + 1))
            while kill -0 $pid 2>/dev/null && [ "$(steps_done)" -lt "$until" ]; do sleep 0.03; done
            random 2
            [ "$dice" -ne 0 ] || set_rate run
            strike
            [ -z "$victim" ] || { kills=$((kills + 1)) by_hand_kills=$((by_hand_kills + 1)); }
        fi
        code=0; wait $pid || code=$?
        nobody_left || true
        [ "$(begins run)" -le "$begun" ] || [ "$writer" -eq $n ] ||
            changes=$((changes + 1))
        [ "$(count '"event":"checkpoint","step"' run/metrics.jsonl)" -le "$committed" ] || writer=$n
        [ "$code" -ne 0 ] || break
    done
    judge run "other numbers of stages, $try starts"
}
while [ "$kills" -lt "$KILLS" ]; do
    supervised 2
    [ "$kills" -ge "$KILLS" ] || supervised 4
    [ "$kills" -ge "$KILLS" ] || by_hand
    [ "$kills" -ge "$KILLS" ] || supervised 1
done
echo "# $kills kills in $jobs jobs; from a kill to the next step at most $slowest ms"
[ "$bad" -gt 0 ] || ok "$jobs jobs, killed $kills times, end with the weights and losses of a run without a break"
if [ "$KILLS" -ge 4 ]; then
    check "of these $by_hand_kills by hand, and $changes resumptions had another number of stages" \
        [ "$by_hand_kills" -gt 0 -a "$changes" -gt 0 ]
fi
echo "# $sets times somebody was told that a rate is set"
check "nobody is left" nobody_left
tap_done
