#!/bin/sh
# figures.sh: the figures of a run that others are compared by: metrics.csv, FLOPs a second, mfu, and what became of the
# time of a run that was killed and went on.
set -eu
. "$(dirname -- "$0")/mpi_lib.sh"

cat >run.conf <<'END'
run      { name = "figures"  seed = 1 }
model    { network = "mlp"  input = {10}  hidden = {20}  classes = 5 }
data     { source = "synthetic"  labels = "class"  samples = 160 }
train    { batch_size = 16  split_size = 4  steps = 12  optimizer = "sgd"  learning_rate = 0.1 }
pipeline { stages = 2 }
checkpoint { every_steps = 5  keep = 9 }
service  { csv = yes  log_every = 0 }
END
steps_of() { sed 1d "$1/metrics.csv" | cut -d, -f1 | tr '\n' ' '; }
column() { awk -F, -v name="$2" 'NR == 1 { for (i = 1; i <= NF; i++) if ($i == name) at = i; next } { print $at }' \
    "$1/metrics.csv"; }
figure() { "$mpstagectl" report "$1" --json | sed -n 's/^ *"'"$2"'": \([0-9.e+-]*\),\{0,1\}$/\1/p'; }
all="1 2 3 4 5 6 7 8 9 10 11 12 "

# ---- a run -----------------------------------------------------------------------------------------------------------
trains one threads -c run.conf
check "a row for each step" [ "$(steps_of one)" = "$all" ]
check "with the numbers of metrics.jsonl" [ "$(column one loss)" = \
    "$(sed -n 's/.*"event":"step",.*"loss":\([^,]*\),.*/\1/p' one/metrics.jsonl)" ]
check "nothing but numbers" sh -c '! sed 1d one/metrics.csv | grep -q "[^-0-9.,e+]"'
# 10 x 20 multiply-adds forward and for weights, 20 x 5 also for inputs: 2 (2 x 200 + 3 x 100)
check "FLOPs are those of the model" sh -c 'paste -d, "$1" "$2" | awk -F, \
    "{ f = \$1 / \$2; if (f < 1399.9 || f > 1400.1) bad = 1 } END { exit bad || !NR }"' sh \
    /dev/fd/3 /dev/fd/4 3<<END3 4<<END4
$(column one flops_per_second)
END3
$(column one samples_per_second)
END4
check "mfu is a share" sh -c 'awk "{ if (\$1 <= 0 || \$1 > 2) bad = 1 } END { exit bad || !NR }"' <<END
$(column one mfu)
END
job threads -c run.conf --run-dir plain --device reference
check "a device without a measured speed has no mfu" [ "$code" -eq 0 ] && ! grep -q '"mfu"' plain/metrics.jsonl
check "all its time but starts is productive" [ "$(figure one lost_steps) $(figure one starts)" = "0 1" ]
check "goodput is a share" sh -c 'awk "BEGIN { exit !($1 > 0 && $1 <= 1) }"' sh "$(figure one goodput)"

# ---- killed, and resumed ---------------------------------------------------------------------------------------------
# Its last steps after a checkpoint are lost: as a kill leaves it.
cp -r one two
rm -r two/checkpoints/step-0000001* two/weights.safetensors
printf '\n13,2,0.5' >>two/metrics.csv
job threads -c run.conf --run-dir two --resume
check "it goes on from step 5" grep -q '"event":"resume",.*"step":5,' two/metrics.jsonl
check "each step has one row" [ "$(steps_of two)" = "$all" ]
equal "with the same losses" "$(column one loss | cksum)" "$(column two loss | cksum)"
check "the steps that were lost are not productive" [ "$(figure two lost_steps) $(figure two starts)" = "7 2" ]
check "nor the time between" [ "$(figure two steps)" = 12 ]

# A start that ended without a word is a failure.
mkdir silent
{ grep -v '"event":"done"' one/metrics.jsonl; cat one/metrics.jsonl; } >silent/metrics.jsonl
for code in 75 69; do
    mkdir told$code
    grep -v '"event":"done"' one/metrics.jsonl >told$code/metrics.jsonl
    echo '{"event":"failed","code":'$code',"text":"x"}' >>told$code/metrics.jsonl
done
equal "a stop on request is none, another end is" "$(figure told75 failures) $(figure told69 failures)" "0 1"
equal "a kill is a failure" "$(figure one failures) $(figure silent failures) $(figure silent starts)" "0 1 2"

job threads -c run.conf --run-dir thin -o service.metrics_every=3
rm -r thin/checkpoints/step-0000001* thin/weights.safetensors
job threads -c run.conf --run-dir thin --resume -o service.metrics_every=3
check "lines that were left out count" [ "$(figure thin lost_steps) $(figure thin steps)" = "7 12" ]
for wrong in '{"event":"start"}' '{"event":"step","step":3,"step_seconds":1}' 'nonsense' ''; do
    mkdir -p odd; echo "$wrong" >odd/metrics.jsonl
    code=0; "$mpstagectl" report odd >"$aside/out" 2>"$aside/err" || code=$?
    check "no history of a run: $wrong" [ "$code" -eq 65 ]
done
{ head -1 one/metrics.jsonl; echo '{"event":"step","step":1,"step_seconds":1e308}'
    echo '{"event":"step","step":2,"step_seconds":1e308}'; } >odd/metrics.jsonl
code=0; "$mpstagectl" report odd >"$aside/out" 2>"$aside/err" || code=$?
check "numbers without end are refused" [ "$code" -eq 65 ]
rm -r odd

# ---- what cannot go on -----------------------------------------------------------------------------------------------
cp -r one three
rm -r three/checkpoints/step-0000001* three/weights.safetensors
sed -i '1s/step/steps/' three/metrics.csv
cp three/metrics.csv "$aside/other"
refused "a file with other columns" 73 'metrics.csv: has other columns' threads -c run.conf --run-dir three --resume
check "and stays as it is" cmp -s three/metrics.csv "$aside/other"
mkdir -p four/metrics.csv
refused "a folder of that name" 73 'metrics.csv' threads -c run.conf --run-dir four
rm -r four
tap_done
