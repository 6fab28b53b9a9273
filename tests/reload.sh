#!/bin/sh
# reload.sh: what mpstagectl has changed is on disk before it is answered. A run that is killed then goes on from an
# older checkpoint, does the steps up to that one as they were, and ends with the bits of one that was not killed.
# LONG=1 changes more settings.
set -eu
. "$(dirname -- "$0")/mpi_lib.sh"
. "$here/npy_lib.sh"
write_conf start.conf 's/steps = 3/steps = 3000/
    s/samples = 200/& test_samples = 40/
    $a checkpoint { every_steps = 500 }\nservice { progress = no  log_every = 0  stages_every = 1000 }'

# run DIR OPTIONS...: on threads, by now.conf; $code
run() {
    run_dir=$1; shift
    code=0; "$mpstaged" -c now.conf --run-dir "$run_dir" "$@" >"$aside/out" 2>"$aside/err" </dev/null || code=$?
}
ctl() { "$mpstagectl" "$@" >"$aside/said" 2>&1; }
step_of() { "$mpstagectl" "$1" status --json 2>/dev/null | sed -n 's/.*"step": *\([0-9]*\).*/\1/p'; }
# paused DIR STEP OPTIONS...: begins a run and stops it behind that step, but before step $late; $pid. Once more where
# the machine was too busy for that. Behind step 500 the first checkpoint is complete.
late=2800
paused() {
    paused_dir=$1 paused_step=$2; shift 2
    for _ in 1 2 3 4 5; do
        "$mpstaged" -c now.conf --run-dir "$paused_dir" "$@" >"$aside/out" 2>"$aside/err" </dev/null & pid=$!
        for _ in $(seq 1000); do
            step=$(step_of "$paused_dir"); [ "${step:-0}" -lt "$paused_step" ] || break
            kill -0 "$pid" 2>/dev/null || break
            sleep 0.02
        done
        if ctl "$paused_dir" pause && step=$(step_of "$paused_dir") && [ "${step:-$late}" -lt $late ]; then
            for _ in $(seq 1000); do
                [ "$paused_step" -gt 500 ] && ! ls -d "$paused_dir"/checkpoints/step-*[0-9] >/dev/null 2>&1 || return 0
                sleep 0.02
            done
        fi
        gone
        rm -rf "$paused_dir"
    done
    not_ok "a run is paused behind step $paused_step: $(cat "$aside/said")"
}
gone() { kill -9 "$pid" 2>/dev/null || true; wait "$pid" 2>/dev/null || true; }
last() { hash_of "$1" | tail -n 1; }
# live_settings_of DIR: "STEP LR", of steps that were done again the last time
live_settings_of() {
    sed -n 's/.*"event":"step","step":\([0-9]*\),.*"lr":\([^,]*\),.*/\1 \2/p' "$1/metrics.jsonl" |
        awk '{ lr[$1] = $2 } END { for (s in lr) print s, lr[s] }' | sort -n
}

# ---- each setting that decides bits ----------------------------------------------------------------------------------
cat >"$aside/changes" <<'EOF'
learning_rate = 0.1  schedule = "cosine"  learning_rate_end = 0.01
learning_rate = 0.1  schedule = "step"  milestones = {2, 90}  schedule_by = "epoch"
learning_rate = 0.1  warmup_steps = 2000  warmup_factor = 0.5
EOF
[ -z "${LONG:-}" ] || cat >>"$aside/changes" <<'EOF'
learning_rate = 0.05
learning_rate = 0.1  schedule = "step"  milestones = {100, 2000}
learning_rate = 0.1  schedule = "step"  step_size = 700  gamma = 0.5
learning_rate = 0.1  schedule = "polynomial"  power = 2
learning_rate = 0.1  warmup_epochs = 200
EOF
n=0
while read -r change; do
    n=$((n + 1)) r=r$n
    cp start.conf now.conf
    paused $r 600
    sed -i "s/learning_rate = 0.1/$change/" now.conf
    code=0; ctl $r reload || code=$?
    gone
    from=$(sed -n '1s/.* from step \([0-9]*\) on$/\1/p' "$aside/said")
    check "$change from step $from on" [ "$code" -eq 0 -a "${from:-0}" -gt 600 ]
    run $r --resume
    [ "$code" -eq 0 ] || why
    live_settings_of $r >"$aside/rates"
    for file in start now; do                             # what a run does in which only that was changed
        rm -rf alike; mkdir alike; cp $r/rates.jsonl alike
        "$mpstaged" -c $file.conf --stages 1 --run-dir alike --resume >"$aside/out" 2>"$aside/err" </dev/null || why
        equal "goes on after a kill as a run that has only that, by $file.conf" "$code $(last $r)" "0 $(last alike)"
        live_settings_of alike | cmp -s - "$aside/rates" || not_ok "and has other rates"
    done
    awk -v from="$from" '$1 < from && $2 != 0.1 { bad = 1 } END { exit bad }' "$aside/rates" &&
        ok "steps before have the rate that they had" || not_ok "steps before have the rate that they had"
    awk -v from="$from" '$1 >= from && $2 != 0.1 { other = 1 } END { exit !other }' "$aside/rates" &&
        ok "steps behind have other ones" || not_ok "steps behind have other ones"
done <"$aside/changes"

# ---- a network whose graph sets the loss -----------------------------------------------------------------------------
printf 'graph g\ninput x 10\nlabels t class\nout = linear(x) features=5\nloss = softmax_cross_entropy(out, t)\n' >g.txt
sed 's/network = "toy"  classes = 5  input = {10}/graph = "g.txt"/; s/  loss = "mse"//; s/"onehot"/"class"/
    ' start.conf >now.conf
paused g 600
sed -i 's/learning_rate = 0.1/learning_rate = 0.05/' now.conf
ctl g reload || note <"$aside/said"
gone
run g --resume
[ "$code" -eq 0 ] || why
equal "the loss that a graph sets is no change" \
    "$code $(live_settings_of g | cut -d' ' -f2 | uniq | tr '\n' ' ')" "0 0.1 0.05 "
check "the file has the change alone" \
    grep -q '"changed":{"train.learning_rate":\["0.1","0.05"\]}' g/rates.jsonl

# ---- twice, with a rate that was set, and before any checkpoint ------------------------------------------------------
cp start.conf now.conf
paused r 20 -o checkpoint.every_steps=1000000
sed -i 's/learning_rate = 0.1/learning_rate = 0.1  evaluate_every = 70/' now.conf
ctl r reload
ctl r set train.learning_rate=0.07
ctl r resume
for _ in $(seq 400); do [ "$(step_of r)" -lt 300 ] || break; sleep 0.02; done
ctl r pause
sed -i 's/learning_rate = 0.1/learning_rate = 0.02/' now.conf
ctl r reload
gone
run r --resume -o checkpoint.every_steps=1000000
[ "$code" -eq 0 ] || why
rm -rf alike; mkdir alike; cp r/rates.jsonl alike
cp r/metrics.jsonl "$aside/metrics"
run alike --stages 1 --resume -o checkpoint.every_steps=1000000
equal "a reload, a rate that is set, and a reload again" "$code $(last r)" "0 $(last alike)"
equal "three rates, one after the other" "$(live_settings_of r | cut -d' ' -f2 | uniq | tr '\n' ' ')" "0.1 0.07 0.02 "
loss_bits r/metrics.jsonl >"$aside/a"; loss_bits alike/metrics.jsonl >"$aside/b"
check "losses and evaluations are the same" cmp -s "$aside/a" "$aside/b"

# ---- twice at one step -----------------------------------------------------------------------------------------------
cp start.conf now.conf
paused r 600 --overwrite
for change in 's/learning_rate = 0.1/learning_rate = 0.05/' 's/every_steps = 500/every_steps = 700/' \
    's/learning_rate = 0.05/learning_rate = 0.03/' 's/train  *{/& evaluate_every = 2900 /'; do
    sed -i "$change" now.conf
    ctl r reload || note <"$aside/said"
done
gone
equal "four reloads of one step" "$(grep -c changed r/rates.jsonl) $(cut -d, -f1 r/rates.jsonl | uniq | wc -l)" "4 1"
run r --resume
[ "$code" -eq 0 ] || why
equal "all of them count" "$code $(live_settings_of r | cut -d' ' -f2 | uniq | tr '\n' ' ')" "0 0.1 0.03 "
check "the last one, too" grep -q '"event":"evaluation","step":2900,' r/metrics.jsonl

# ---- a file that was changed once more -------------------------------------------------------------------------------
cp start.conf now.conf
paused r 600 --overwrite
sed -i 's/learning_rate = 0.1/learning_rate = 0.05/' now.conf
ctl r reload
gone
rm -rf kept; cp -r r kept
for rate in 0.1 0.02; do
    sed "s/learning_rate = 0.1/learning_rate = $rate/" start.conf >now.conf
    run r --resume
    check "with $rate in the file it is refused by what was reloaded" sh -c \
        'test "$0" -eq 78 && grep -q "train.learning_rate was 0.05 and is $1 now" "$2"' "$code" $rate "$aside/err"
    check "and nothing is touched" cmp -s r/rates.jsonl kept/rates.jsonl
done
run r --resume=force --steps 1200
equal "anyway the file counts" "$code $(live_settings_of r | tail -n 1)" "0 1200 0.02"
run r --resume
equal "and goes on counting" "$code $(live_settings_of r | tail -n 1)" "0 3000 0.02"

# ---- roll-backs ------------------------------------------------------------------------------------------------------
floats 40000 1 | npy x.npy '4000, 10'
floats 20000 7 | npy y.npy '4000, 5'
spoiled nan.npy '\000\000\300\177' 1 3990                  # of step 998
sed 's/source = "synthetic".*/source = "npy"  labels = "vector"  train = "nan.npy"  train_labels = "y.npy" }/
    s/batch_size = 20  split_size = 8/batch_size = 4  split_size = 2  nonfinite = "rollback"/; s/3000/1200/
    ' start.conf >now.conf
sed -i 's/{ every_steps = 500 }/{ every_steps = 500  keep = 1 }/' now.conf
run whole
check "a run goes back" grep -q '"event":"rollback","step":998,.*"to":500' whole/metrics.jsonl
late=990
paused set 525
ctl set set train.learning_rate=0.1
cp now.conf aside.conf
echo '# nothing else' >>now.conf; sed -i 's/log_every = 0/log_every = 1000/' now.conf
ctl set reload
cp aside.conf now.conf
ctl set resume
code=0; wait "$pid" || code=$?
check "a rate is set between the checkpoint and that step" \
    grep -q '"event":"set","step":[5-9][0-9][0-9],' set/metrics.jsonl
equal "the same rate set on the way changes nothing" "$code $(last set)" "0 $(last whole)"
check "nor where it goes back to" grep -q '"event":"rollback","step":998,.*"to":500' set/metrics.jsonl
tap_done
