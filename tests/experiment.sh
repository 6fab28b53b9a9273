#!/bin/sh
# experiment.sh: mpstage-experiment on the toy model: its files, their figures against the metrics of the runs,
# failed points, exit codes, signals.
set -eu
. "$(dirname -- "$0")/mpi_lib.sh"
program=$build/mpstage-experiment
# Replicas of the configuration are no part of any point.
write_conf toy.conf 's/learning_rate = 0.1/& gradient_groups = 2/; s/samples = 200/samples = 50/;
    s/stages = 2/& ranks = 2 replicas = 2/'
# run OPTIONS...: sets $code, leaves $aside/out and $aside/err
run() {
    code=0
    "$program" -c toy.conf --mpirun "$MPIRUN $mpi_options" "$@" \
        >"$aside/out" 2>"$aside/err" </dev/null || code=$?
}
# said TEXT CODE PATTERN: the run ended so, with exactly one line on the standard error
said() {
    if [ "$code" -eq "$2" ] && [ "$(wc -l <"$aside/err")" -eq 1 ] && grep -qE -- "$3" "$aside/err"; then ok "$1: $2"
    else { echo "exit code $code, wanted $2 and $3"; cat "$aside/err"; } | note; not_ok "$1"; fi
}
lines() { grep -cE -- "$1" "$2" || true; }

# ---- a whole experiment: a measured point of each kind, a size that is refused ---------------------------------------
run --repeat 2 --sweep-repeat 2 --steps 3 --splits 5,10,21 --out all
[ "$code" -eq 78 ] || note <"$aside/err"
check "a refused point decides the exit status" test "$code" -eq 78
check "it is reported with its reason" \
    grep -qE 'pipelined 1f1b, split 21: left out: .*larger than the batch' "$aside/err"
check "progress is shown, and how long it will take" \
    test "$(lines '^\[ *[0-9]+/[0-9]+\] .* [ mµ]s a step, [0-9]+:[0-9][0-9] left$' "$aside/err")" -eq 10 \
    -a "$(lines '^expected duration: ' "$aside/err")" -eq 1
check "the costs of each layer were measured" test -s all/profile/profile.json \
    -a "$(lines 'predicted with measured costs' "$aside/out")" -eq 1
check "the report names the best split size" grep -qE '^best split size: (5|10) \(1f1b, ' "$aside/out"
# Nine points: single, naive, pipelined at 8, and 5, 10, 21 on one rank and pipelined.
check "results.csv: a heading and nine points" test "$(wc -l <all/results.csv)" -eq 10
check "results.csv: 19 columns in each row" awk -F, 'NF != 19 { bad = 1 } END { exit bad }' all/results.csv
check "results.csv: each point twice, refused points never" test \
    "$(awk -F, 'NR > 1 { printf "%s%s:%s ", $1, $4, $6 }' all/results.csv)" = \
    "single20:2 naive20:2 pipelined8:2 single5:2 pipelined5:2 single10:2 pipelined10:2 single21:0 pipelined21:0 "
check "every measured point has a bound below its time, and a prediction" awk -F, \
    'NR > 1 && $6 > 0 && !($13 > 0 && $13 <= $7 * 1.000001 && $14 > 0) { print "# " $0; bad = 1 } END { exit bad }' \
    all/results.csv
# What is not a process of its own with 128 MiB or more counts what it allocated: the plan's bytes, rounded to pages.
check "every measured point has the bytes of its plan" awk -F, \
    'NR > 1 && $6 > 0 { n++; d = $18 / $17 - 1; if (!(d >= 0 && d < 0.02)) { print "# " $0; bad = 1 } }
        END { exit bad || n != 7 }' all/results.csv
check "every step has a whole batch" test "$(cat all/metrics/*.jsonl | grep -c '"event":"step"')" -gt 20 \
    -a "$(cat all/metrics/*.jsonl | grep '"event":"step"' | grep -vc '"samples":20,')" -eq 0
check "and these are printed" test "$(lines '^[a-z0-9 ]+ +[0-9]+ +[0-9.]+ [KM]iB +[0-9.]+ [KM]iB$' "$aside/out")" -eq 7
check "what is printed fits 80 columns" \
    sh -c '[ "$0" -le 80 ]' "$(grep -hv "left out: " "$aside/out" "$aside/err" | longest)"
check "its speed-ups have a deviation" \
    test "$(lines '^(naive|pipelined 1f1b|one rank) .* % +[0-9.]+ ± [0-9.]+ ' "$aside/out")" -eq 6
check "a baseline that deviates by more than 10 % is pointed out, another one is not" \
    sh -c 'n=$(awk -F, "NR == 2 { print (\$8 > 0.1 * \$7) + 0 }" all/results.csv);
        [ "$(grep -c "^note: the baseline" "$0")" -eq "$n" ]' "$aside/out"
# More than as many times as there are ranks, or times that are far from each other: what the results say, once.
doubts=$(awk -F, 'NR > 1 && $6 > 0 && $1 == "single" { if (!n++) { m[1] = $7; d[1] = $8 }
        if (!m[2] || $7 < m[2]) { m[2] = $7; d[2] = $8 } }
    NR > 1 && $6 > 0 && $1 == "pipelined" && (!b || $7 < b) { b = $7; bd = $8; ranks = $3 }
    END { for (i = 1; i <= 2; i++) { w = d[i] / m[i]; if (bd / b > w) w = bd / b; c += m[i] / b > ranks || w > 0.15 }
        print (c > 0) }' all/results.csv)
check "gains that are doubtful are called so" test "$(lines '^  doubtful: ' "$aside/out")" -eq "$doubts"
# The deviation of a quotient, from those of both.
check "deviations of speed-ups agree with the table of figures" \
    sh -c 'awk -F, "NR == 2 { m = \$7; d = \$8 }
        NR == 3 { r = m / \$7; printf \"%.3g %.3g\n\", r, r * sqrt((d / m) ^ 2 + (\$8 / \$7) ^ 2) }" \
        all/results.csv >"$1"
    sed -n "s/^naive .* % *\([0-9.]*\) ± \([0-9.]*\) .*/\1 \2/p" "$0" | cat "$1" - |
        awk "{ r[NR] = \$1; d[NR] = \$2 }
            END { exit !(NR == 2 && (r[1] - r[2]) ^ 2 <= (0.006 + 0.006 * r[1]) ^ 2 &&
                (d[1] - d[2]) ^ 2 <= (0.006 + 0.006 * d[1]) ^ 2) }" || { cat "$1" "$0"; exit 1; }' \
    "$aside/out" "$aside/ratio"
# The means again, from the metrics of the runs: the first step of each is warm-up.
for k in single-naive-20 naive-naive-20 pipelined-1f1b-8 single-naive-5 pipelined-1f1b-10; do
    cat all/metrics/$k-*.jsonl | sed -n 's/.*"event":"step","step":\([0-9]*\),.*"step_seconds":\([0-9.]*\),.*/\1 \2/p' |
        awk -v k=$k '$1 > 1 { s += $2; n++ } END { printf "%s %.9g\n", k, s / n }'
done >"$aside/means"
awk -F, 'NR > 1 { printf "%s-%s-%s %s\n", $1, $2, $4, $7 }' all/results.csv >"$aside/csv"
# One in a million: nine digits are printed.
check "means agree with the metrics" awk 'NR == FNR { mean[$1] = $2; next }
    { d = mean[$1] / $2 - 1; if (!($1 in mean) || d > 1e-6 || d < -1e-6) { print "# " $0 " " mean[$1]; bad = 1 } }
        END { exit bad || FNR != 5 }' "$aside/csv" "$aside/means"
check "deviation of two repetitions" awk -F, 'NR > 1 && $6 == 2 { d = ($10 - $9) / sqrt(2) - $8;
        if (d > 1e-8 || d < -1e-8) bad = 1; n++ } END { exit bad || n != 7 }' \
    all/results.csv
check "results.json holds the same points" test "$(lines '^   "kind": ' all/results.json)" -eq 9
check "a bar is a run for each repetition, another point one run: only their metrics are left" \
    test -z "$(ls -d all/*run* 2>/dev/null)" -a "$(find all/metrics -type f | wc -l)" -eq 10
if command -v gnuplot >/dev/null; then
    for f in bars sweep; do
        check "$f.png is a PNG" test "$(head -c 4 all/$f.png | tail -c 3)" = PNG
        check "$f.svg is an SVG" grep -q '</svg>' all/$f.svg
    done
    check "gnuplot had no complaint" test ! -e all/plot.log
    check "times of some microseconds or milliseconds are labelled so, not 0.00491 s" \
        sh -c '[ "$(grep -cE "^set label \"[0-9.e+]+ (ms|µs).nspeed-up" "$0")" -eq 3 ] &&
            [ "$(grep -cE "^set ylabel \"(milli|micro)seconds a step" "$0")" -eq 2 ]' all/plot.gp
    check "speed-ups have their deviation, but for the baseline" \
        sh -c '[ "$(grep -cE "^set label .*speed-up [0-9.]+ ± [0-9.]+\"" "$0")" -eq 2 ] &&
            grep -qE "^set label .*speed-up 1.00\"" "$0"' all/plot.gp
    check "that of the best size, too" \
        grep -qE 'best split size: [0-9]+, [0-9.e+]+ (ms|µs); [0-9.]+ ± [0-9.]+ times as fast' all/plot.gp
else skip "pictures" "gnuplot is not installed"; fi

# ---- a point whose runs fail: the rest goes on -----------------------------------------------------------------------
# MPICH's mpirun waits for whatever holds one of the descriptors that a rank inherits.
cat >"$aside/failing" <<'SCRIPT'
#!/bin/bash
(for f in /proc/$BASHPID/fd/*; do eval "exec ${f##*/}>&-"; done; exec setsid sleep 4321) &
case "$*" in *"--split-size 8 "*"--steps"*) printf -- "-----\n \0mpstaged: the dog ate it\n" >&2; exit 69 ;; esac
exec "$REAL" "$@"
SCRIPT
chmod +x "$aside/failing"
REAL=$mpstaged; export REAL
run --repeat 1 --splits 10 --out failing --no-profile --no-plots --mpstaged "$aside/failing"
check "a failed run decides the exit status" test "$code" -eq 69
check "its first line stands in the table" grep -qE '^pipelined 1f1b +8 .*failed: the dog ate it' "$aside/out"
check "nothing that it has started is left" sh -c '! pgrep -fx "sleep 4321" >/dev/null'
check "the points after it were measured" test "$(awk -F, '$6 == 1' failing/results.csv | wc -l)" -eq 4
check "predictions without measured costs are called estimates" grep -q 'predicted with estimated costs' "$aside/out"

# ---- what a run saves and evaluates ----------------------------------------------------------------------------------
cp toy.conf plain.conf
sed -i 's/samples = 50/& test_samples = 20/; s/steps = 3/steps = 3 evaluate_epochs = 1 patience = 2/' toy.conf
echo 'checkpoint { every_steps = 1 best = "loss" }' >>toy.conf
run --repeat 1 --steps 3 --splits 10 --out saving
[ "$code" -eq 0 ] || note <"$aside/err"
check "a configuration that saves and evaluates is measured" test "$code" -eq 0
check "nothing is saved between measured steps, and evaluated behind the last one" \
    sh -c 'for f in saving/metrics/*.jsonl; do
        awk "/\"event\":\"(checkpoint|eval)/ { seen = 1 } /\"event\":\"step\"/ && seen { exit 1 }" "$f" || exit 1; done'
check "no run directory is left" test -z "$(find saving -name 'experiment-run-*')"
mv plain.conf toy.conf

# ---- without gnuplot -------------------------------------------------------------------------------------------------
mkdir "$aside/bin"
for f in sh env mpirun orterun orted prterun prted ssh; do
    ln -s "$(command -v "$f" || echo /bin/true)" "$aside/bin/$f"
done
before=$PATH
PATH=$aside/bin; run --repeat 1 --splits 8 --out bare --no-profile; PATH=$before
check "without gnuplot: exit status 0" test "$code" -eq 0
check "no deviation of one repetition" \
    awk -F, 'NR > 1 && $6 == 1 { if ($8 != "") bad = 1; n++ } END { exit bad || n != 4 }' bare/results.csv
check "without gnuplot: said once" test "$(lines 'no plots: gnuplot is not installed' "$aside/err")" -eq 1
check "without gnuplot: tables, no pictures" test -s bare/results.csv -a -s bare/results.json \
    -a ! -e bare/bars.png -a ! -e bare/plot.gp

run --out all --overwrite -- -o pipeline.profile=all/profile/profile.json
said "the profile to plan with is not overwritten" 73 \
    '^mpstage-experiment: all/profile/profile\.json: .*remove the profile'
mkdir all/experiment-run-killed; : >all/experiment-run-killed/weights.safetensors
run --repeat 1 --splits 10 --out all --no-profile --no-plots --overwrite
check "--overwrite: nothing of the earlier experiment is left" test "$code" -eq 0 \
    -a "$(ls all)" = "$(printf 'metrics\nresults.csv\nresults.json')" -a "$(ls all/metrics | grep -c -- -5-)" -eq 0

# ---- refused before anything runs ------------------------------------------------------------------------------------
run --out bare; said "a folder with results" 73 '^mpstage-experiment: bare: holds the results'
mkdir -p own/run own/metrics; : >own/run/weights; : >own/metrics/mine
run --out own; said "a folder of somebody else" 73 '^mpstage-experiment: own: holds the results .*metrics'
check "its files are still there" test -e own/run/weights -a -e own/metrics/mine
if command -v flock >/dev/null; then
    mkdir busy; flock busy sleep 100 & sleeper=$!
    for i in $(seq 50); do flock -n busy true || break; sleep 0.1; done
    run --out busy; said "a folder where another one is at work" 75 '^mpstage-experiment: busy: another experiment'
    pkill -P $sleeper 2>/dev/null || true; wait $sleeper 2>/dev/null || true
else skip "a folder where another one is at work" "no flock(1)"; fi
mkdir pictures; echo mine >pictures/bars.png
run --out pictures; said "a folder with a picture of somebody else" 73 \
    '^mpstage-experiment: pictures: holds the results .*bars\.png'
check "it is still there" grep -q mine pictures/bars.png
: >file
run --out file/below; said "an unwritable folder" 73 '^mpstage-experiment: file/below'
run --out /proc/nowhere; said "a folder that cannot be" 73 '^mpstage-experiment: /proc/nowhere'
run --splits 5,x; said "a size that is not a number" 64 '^mpstage-experiment: --splits: "x"'
run --splits 5,5; said "a size named twice" 64 '^mpstage-experiment: --splits: 5'
run --repeat 0; said "no repetition" 64 '^mpstage-experiment: --repeat'
run --bogus; said "an unknown option" 64 '^mpstage-experiment: unknown option --bogus'
run -qx; said "an unknown letter" 64 '^mpstage-experiment: unknown option -q '
run -- --steps 3; said "an option that is the experiment's" 64 '^mpstage-experiment: --steps cannot be passed on'
run --out none -- -o train.colour=red; said "what mpstaged refuses" 64 '^mpstage-experiment: .*colour'
run -n 100 --out none; said "more ranks than layers" 78 '^mpstage-experiment: .*stage'
run -c missing.conf --out none; said "a missing configuration" 66 '^mpstage-experiment: missing\.conf'
check "nothing was created" test ! -e none

# ---- a signal: nobody is left, what was measured is kept -------------------------------------------------------------
"$program" -c toy.conf --mpirun "$MPIRUN $mpi_options" --repeat 2 --splits 10 --no-profile \
    --no-plots --out told \
    --steps 40000 -- -o train.split_size=1 >"$aside/out" 2>"$aside/err" </dev/null &
pid=$!
for i in $(seq 3000); do [ "$(lines '^\[' "$aside/err")" -eq 0 ] || break; sleep 0.1; done
sleep 0.5
kill -INT $pid 2>/dev/null || true
code=0; wait $pid || code=$?
check "SIGINT ends it with 75" test "$code" -eq 75
check "no rank is left" nobody_left
code=0
"$program" -c toy.conf --mpirun "$MPIRUN $mpi_options" --repeat 2 --splits 10 --no-plots --out early \
    -- -o pipeline.profile_sizes='{20}' >"$aside/out" 2>"$aside/err" </dev/null &
pid=$!
for i in $(seq 100); do ! grep -q '^measuring' "$aside/err" || break; sleep 0.05; done
kill -INT $pid 2>/dev/null || true
code=0; wait $pid || code=$?
check "SIGINT before the first point: 75, and nothing is left" test "$code" -eq 75 -a ! -e early
check "what was measured is kept" test "$(awk -F, '$6 >= 1' told/results.csv | wc -l)" -ge 1
tap_done
