#!/bin/sh
# scores.sh: which classes an evaluation takes for which, as a table and a picture, the same on any number of ranks; and
# runs that end when evaluations do not get better, also when they are resumed meanwhile.
set -eu
. "$(dirname -- "$0")/mpi_lib.sh"
write_conf toy.conf 's/labels = "onehot"/labels = "onehot" test_samples = 50/'
learns="-c toy.conf --steps 30 --learning-rate 3 -o train.evaluate_every=10 -o train.confusion=yes"
# Of a table: samples, and how many of them lie on the diagonal.
diagonal() { awk -F, 'NR > 1 { n += $2; hits += $(NR + 2) } END { print n, hits / n }' "$1"; }
for n in 1 2; do
    trains learns-$n $n $learns --stages $n
    equal "$n ranks: each sample counts once, and the right ones are the accuracy" \
        "$(diagonal learns-$n/confusion.csv)" "50 $(sed -n 's/.*"evaluation","step":30.*"accuracy":\([0-9.]*\).*/\1/p' \
        learns-$n/metrics.jsonl)"
    check "$n ranks: the same table" cmp learns-1/confusion.csv learns-$n/confusion.csv
    check "$n ranks: the same picture" cmp learns-1/confusion.png learns-$n/confusion.png
    equal "$n ranks: the bits of a run without them" "$hash" "${plain:=$hash}"
done
trains plain 1 $learns --stages 1 -o train.confusion=no
equal "the bits of a run without it" "$hash" "$plain"
check "which has no table" [ ! -e plain/confusion.csv ]
equal "a header" "$(head -n 1 learns-1/confusion.csv)" "class,samples,accuracy,as_0,as_1,as_2,as_3,as_4"
check "the log names the worst" grep -q 'lowest accuracy: [0-4] 0\.' learns-1/mpstaged.log
if /usr/bin/python3 -c 'import PIL' 2>/dev/null; then
    equal "the picture can be read" "$(/usr/bin/python3 -c 'import PIL.Image, sys
im = PIL.Image.open(sys.argv[1]); im.load(); print(im.size, im.mode)' learns-1/confusion.png)" "(229, 231) RGB"
else skip "the picture can be read" "apt-get install python3-pil"; fi
job 2 -c toy.conf --stages 2 --evaluate --init-from plain -o train.confusion=yes --run-dir evaluated
check "an evaluation alone makes the same" cmp learns-1/confusion.csv evaluated/confusion.csv
refused "no test samples" 78 'train.confusion=yes: there are no test samples' 1 -c toy.conf --run-dir new --stages 1 \
    -o train.confusion=yes -o data.test_samples=0
refused "no classes" 78 'train.confusion.*: is for networks with one output a class' 1 -c toy.conf --run-dir new \
    --stages 1 -o train.confusion=yes -o data.labels=vector

# ---- patience --------------------------------------------------------------------------------------------------------
# Nothing is learned, so no evaluation is better than the first one.
still="-c toy.conf --learning-rate 0 -o train.evaluate_every=2 -o train.patience=3"
# ended NAME: after the eighth step, by itself
ended() {
    equal "$1 ends when three evaluations were not better" "$(done_field "$1/metrics.jsonl" steps)" 8
    equal "$1 says why" "$(done_field "$1/metrics.jsonl" reason)" patience
    check "$1 keeps the checkpoint of the best" [ -d "$1/checkpoints/step-00000002" ]
}
for n in 1 2; do
    trains still-$n $n $still --steps 100 --stages $n
    ended still-$n
done
trains once 1 $still --steps 100 --stages 1 -o train.patience=1
check "a single evaluation is said as one" grep -q '1 evaluation without a better one than loss' once/mpstaged.log
# resumed STEP: the same run, when all behind that step is lost
resumed() {
    for k in $(seq $(($1 + 1)) 8); do rm -rf again/checkpoints/step-0000000"$k"; done
    sed -i '/"done"/d' again/metrics.jsonl
    job 2 $still --steps 100 -o checkpoint.every_steps=1 -o checkpoint.keep=9 --resume --run-dir again
    [ "$code" -eq 0 ] || why
    ended again
}
trains again 2 $still --steps 100 -o checkpoint.every_steps=1 -o checkpoint.keep=9
for step in 8 7 5 2; do resumed $step; done
check "a run that patience had ended says so" grep -q 'train.patience = 3; a larger value' again/mpstaged.log
refused "no evaluations to be patient with" 78 \
    'train.patience=3: needs train.evaluate_epochs or train.evaluate_every' 1 $still --stages 1 --steps 9 \
    -o train.evaluate_every=0 --run-dir new
tap_done
