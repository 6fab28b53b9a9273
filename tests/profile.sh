#!/bin/sh
# profile.sh: --profile under mpirun and in one process, planning with what it measured, and profiles that do not fit.
set -eu
. "$(dirname -- "$0")/mpi_lib.sh"
write_conf toy.conf
write_conf mlp.conf 's/network = "toy"/network = "mlp"  hidden = {8}/'

# refuses TEXT CODE PATTERN FILE: one line of ours that names the file
refuses() {
    code=0
    "$mpstaged" -c toy.conf --plan -o pipeline.profile="$4" >"$aside/out" 2>"$aside/err" || code=$?
    if [ "$code" -eq "$2" ] && [ "$(said_lines)" -eq 1 ] &&
        grep -qE "^mpstaged: (-o pipeline.profile=$4: )?$4:.*$3" "$aside/err"; then ok "$1"
    else { echo "code $code"; cat "$aside/err"; } | note; not_ok "$1"; fi
}

job 2 -c toy.conf --profile --run-dir two -o 'pipeline.profile_sizes={2,4,8}'
if [ "$code" -eq 0 ] && [ -s two/profile.json ]; then ok "two ranks write profile.json, $took ms"
else why; not_ok "two ranks write profile.json: $code"; fi
check "how much the machine was disturbed is said" \
    grep -qE '^profile: all kernels together took [0-9]+\.[0-9]+ times their shortest times' "$aside/err"
check "and kept" grep -qE '"spread": [0-9.]+' two/profile.json
check "nothing else is there" [ "$(ls two)" = profile.json ]
check "four groups with three times a kind" [ "$(tr -d ' \n' <two/profile.json |
    grep -oE '"(forward|input_grad|weight_grad)_ns":\[[0-9.]+,[0-9.]+,[0-9.]+\]' | wc -l)" -eq 12 ]
check "no group's forward pass takes no time" \
    sh -c '! tr -d " \n" <two/profile.json | grep -qE "forward_ns\":\[[^]]*\b0\.0"'
check "--plan uses it and says so" \
    sh -c '"$0" -c toy.conf --plan -o pipeline.profile=two/profile.json | grep -q "two/profile.json"' "$mpstaged"
check "--plan without it says that it estimates" sh -c '"$0" -c toy.conf --plan | grep -q estimated' "$mpstaged"
check "another cut and schedule are planned from the same file" \
    sh -c '"$0" -c toy.conf --stages 3 --schedule naive --plan -o pipeline.profile=two/profile.json |
        grep -q "two/profile.json"' "$mpstaged"
# Of a single sample batch norm of vectors has no statistics, unless it is frozen.
printf 'input x 10\na = linear(x) features=6\nn = batch_norm(a)\ny = linear(n) features=5\n' >norm.graph
write_conf norm.conf \
    's/network = "toy"  classes = 5  input = {10}/graph = "norm.graph"/; s/split_size = 8/split_size = 4/'
for freeze in '' 'n'; do
    job 1 -c norm.conf --stages 1 --profile --run-dir norm --overwrite -o "train.freeze={$freeze}"
    check "micro-batches of one sample are measured only where batch norm is frozen: {$freeze}" \
        [ "$code $(tr -d ' \n' <norm/profile.json | grep -o '"micro_batch_sizes":[^]]*')" = \
        "0 \"micro_batch_sizes\":[${freeze:+1,}2,4,8" ]
done
job 2 -c toy.conf --profile --run-dir two
check "an earlier profile is not overwritten" [ "$code" -eq 73 ]
job 2 -c toy.conf --profile --run-dir two --overwrite
check "unless asked to" [ "$code" -eq 0 ]
job 1 -c toy.conf --stages 1 --threads 2 --profile --run-dir two --overwrite -o pipeline.profile=two/profile.json
check "what one thread took stays beside what two take" \
    sh -c 'tr -d " \n" <two/profile.json | grep -qE "\"threads\":2,.*\"other_threads\":\[\{\"threads\":1,"'
check "which the log says" grep -q '^profile: it also has the costs of 1 thread a rank' "$aside/err"
for n in 1 2; do
    check "--plan with $n threads a rank uses it" \
        sh -c '"$0" -c toy.conf --threads $1 --plan -o pipeline.profile=two/profile.json | grep -q "two/profile.json"' \
        "$mpstaged" $n
done
check "with three it is refused, and says what it has" \
    sh -c '"$0" -c toy.conf --threads 3 --plan -o pipeline.profile=two/profile.json 2>&1 |
        grep -q "measured with [12], [12] threads a rank, but these are 3"' "$mpstaged"
job 1 -c mlp.conf --stages 1 --profile --run-dir other -o pipeline.profile=two/profile.json
check "an earlier profile of another network is left aside" \
    sh -c '[ "$0" -eq 0 ] && ! grep -q other_threads other/profile.json &&
        grep -q "^note: ignoring the earlier profile" "$1"' \
    "$code" "$aside/err"
job 2 -c toy.conf --run-dir two -o pipeline.profile=two/profile.json
check "a run may use that directory, and the profile" [ "$code" -eq 0 ]
check "the run left the profile there" [ -s two/profile.json ]

# A layer that the profile claims to be 100 times faster than it is;
# and a run without a profile, which measures its first steps.
write_conf wide.conf 's/network = "toy"/network = "mlp"  hidden = {1024, 1024}/;
        s/batch_size = 20  split_size = 8  steps = 3/batch_size = 128  split_size = 32  steps = 24/'
job 2 -c wide.conf --profile --run-dir wide -o 'pipeline.profile_sizes={32}'
awk '/"name"/ { planted = /"fc2"/ } planted && $1 ~ /^[0-9.]+$/ { $1 = $1 / 100 } { print }' \
    wide/profile.json >planted.json
job 2 -c wide.conf --run-dir planted -o pipeline.profile=planted.json
check "a layer that takes 100 times what was planned is named while the run goes" \
    awk '/^slow: fc2 takes .* a micro-batch, [0-9]+ times its plan$/ { slow = NR } /^step +24\/24/ { last = NR }
        END { exit !(slow && last && slow <= last) }' "$aside/err"
check "with a likely cause" sh -c 'grep -A 1 "^slow: fc2" "$0" | grep -q "^      likely because "' "$aside/err"
check "once" [ "$(grep -c '^slow: fc2 ' "$aside/err")" -eq 1 ]
check "the plan is graded with the profile that it was made with" \
    grep -q '^predicted with planted.json costs' "$aside/err"
job 2 -c wide.conf --run-dir measured
check "without a profile the first steps are measured" \
    grep -q '^predicted with costs measured in steps [0-9]* to [0-9]* of this run' "$aside/err"
check "and the account's event says so" \
    grep -q '"costs":"costs measured in steps [0-9]* to [0-9]* of this run"' measured/metrics.jsonl
job 2 -c wide.conf --steps 4 --run-dir short
check "where there are no steps beyond these, costs are estimates" grep -q '"costs":"estimated"' short/metrics.jsonl
"$mpstaged" -c toy.conf --profile --run-dir threads >"$aside/out" 2>"$aside/err" </dev/null && code=0 || code=$?
check "stages as threads of one process" [ "$code" -eq 0 -a -s threads/profile.json ]
job 1 -c mlp.conf --stages 1 --profile --run-dir mlp
check "one rank" [ "$code" -eq 0 -a -s mlp/profile.json ]
# A machine that other programs disturb. Kernels never take exactly their shortest times, so a limit of 1 refuses all.
job 2 -c toy.conf --profile --run-dir busy -o pipeline.profile_spread=1
check "a profile above the limit of its spread is not written: $code" [ "$code" -eq 75 -a ! -e busy ]
check "which one line says" sh -c '[ "$1" -eq 1 ] && grep -qE \
    "^mpstaged: --profile: the machine was busy: .* more than pipeline.profile_spread = 1: measure again" "$0"' \
    "$aside/err" "$(our_lines)"
# spreads NAME SPREAD: a copy of the first profile that says so
spreads() { sed "s/\"spread\": [0-9.]*/\"spread\": $2/" two/profile.json >"$1"; }
sed -z 's/,\n *"spread": [0-9.]*//g' two/profile.json >older.json
spreads calm.json 1.2
spreads busy.json 1.7
spreads bad.json 0.5
warning='warning: busy.json: the machine was busy: kernels took 1.70 times their shortest times'
for mode in --plan --plan=search; do
    for of in older calm; do
        "$mpstaged" -c toy.conf $mode -o pipeline.profile=$of.json >"$aside/out" 2>"$aside/err" || why
        check "$mode: no warning: $of.json" sh -c 'grep -q "$1.json costs:" "$0" && ! grep -q warning: "$0"' \
            "$aside/out" $of
    done
    "$mpstaged" -c toy.conf $mode -o pipeline.profile=busy.json 2>&1 | tr '\n' ' ' | sed 's/  */ /g' >"$aside/out"
    check "$mode warns of a busy machine" grep -q "$warning" "$aside/out"
done
job 2 -c toy.conf --run-dir warned -o pipeline.profile=busy.json
check "a run warns" sh -c '[ "$0" -eq 0 ] && tr "\n" " " <"$1" | grep -q "warning: busy.json: the machine was busy"' \
    "$code" "$aside/err"
"$mpstaged" -c toy.conf --plan --json -o pipeline.profile=busy.json >"$aside/out"
check "the plan's JSON has the spread" grep -q '"profile_spread": 1.7' "$aside/out"
refuses "a spread below 1" 65 'a number from 1 is missing: spread' bad.json
for mode in --plan --plan=search --check-config; do
    code=0
    "$mpstaged" -c toy.conf $mode -o pipeline.profile=busy.json -o pipeline.profile_spread=1.5 \
        >"$aside/out" 2>"$aside/err" || code=$?
    check "$mode refuses a profile above the limit: $code" [ "$code $(our_lines)" = "65 1" ]
done
write_conf slow.conf 's/network = "toy"/network = "mlp"  hidden = {1024, 1024}/'
mpirun_n 2 "$mpstaged" -c slow.conf --profile --run-dir slow -o 'pipeline.profile_sizes={2048}' \
    >"$aside/out" 2>"$aside/err" </dev/null &
launcher=$! code=0
for _ in $(seq 400); do ! grep -q '^profile: round 1 of 5' "$aside/err" || break; sleep 0.05; done
for p in $(ranks_alive); do kill -TERM "$p"; done
wait "$launcher" || code=$?
if [ "$code" -eq 75 ] && [ "$(our_lines)" -eq 1 ] && grep -q '^mpstaged: stopped by SIGTERM' "$aside/err"; then
    ok "SIGTERM ends it with the line of a run"
else why; not_ok "SIGTERM ends it: $code"; fi

refuses "another network's profile" 65 'network' mlp/profile.json
sed 's/"device": "/&another /' two/profile.json >device.json
refuses "another device's profile" 65 'device' device.json
head -c 300 two/profile.json >cut.json
refuses "a truncated profile" 65 '' cut.json
: >empty.json
refuses "an empty profile" 65 '' empty.json
refuses "a missing profile" 66 'No such file' none.json
job 2 -c toy.conf --profile --run-dir bad -o 'pipeline.profile_sizes={8,4}'
check "sizes that do not ascend" [ "$code" -eq 78 -a ! -e bad ]
check "and says so in one line" [ "$(our_lines)" -eq 1 ]
check "no rank is left" nobody_left
tap_done
