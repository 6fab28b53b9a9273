#!/bin/sh
# predict.sh: predictions have a row for each sample, in order, with the same bytes on any number of stages and for any
# batch; they are what torch computes with the same weights, where there is torch. Folders without labels, weights of
# a run, of its checkpoints and of a file; what is refused leaves nothing. Also weights to begin with that fit in part.
set -eu
. "$(dirname -- "$0")/mpi_lib.sh"
pictures=$here/images torch=$(CDPATH='' cd -- "$here/torch" && pwd)
mkdir -p train/apple train/pear "train/plum, red" unsorted/more
cp "$pictures"/rgb.jpg "$pictures"/whole.jpg "$pictures"/turned[1-4].jpg train/apple
cp "$pictures"/grey.jpg "$pictures"/ink.jpg "$pictures"/turned[5-8].jpg train/pear
cp "$pictures"/*.png "train/plum, red"
cp "$pictures"/progressive.jpg unsorted/b.jpg
cp "$pictures"/turned1.jpg unsorted/a.jpg
cp "$pictures"/turned2.jpg unsorted/more/c.jpg
# ResNet-18 with an eighth of the channels: weights of the whole one would be what this test reads and writes.
echo 'model { network = resnet18  classes = 3  input = {3, 24, 24} } data { source = synthetic } train { steps = 1 }' \
    >whole.conf
"$mpstaged" -c whole.conf --print-graph |
    sed '/^labels /d; /^loss /d; /^loss =/d; s/channels=512/channels=64/; t; s/channels=64/channels=8/
        s/channels=128/channels=16/; s/channels=256/channels=32/' >three.graph
sed 's/features=3/features=5/' three.graph >five.graph
cat >images.conf <<'END_CONF'
run      { name = "images" }
model    { graph = "three.graph" }
data     { source = "images"  train = "train"  test = "train"
           mean = {0.485, 0.456, 0.406}  std = {0.229, 0.224, 0.225} }
train    { batch_size = 8  split_size = 3  evaluate_batch_size = 7  epochs = 2  learning_rate = 0.01
           evaluate_every = 6  patience = 9  confusion = yes  label_smoothing = 0.1  ema = 0.5
           scores = {"mean_absolute_error"} }
service  { log_every = 0  progress = "no" }
checkpoint { every_steps = 2  best = "accuracy" }
END_CONF
trains runs/images threads -c images.conf
trained=$hash
equal "one evaluation: the last weights are the best" 1 "$(grep -c '"event":"evaluation"' runs/images/metrics.jsonl)"
# predicts FILE RANKS OPTIONS...: a prediction with the weights of that run
predicts() {
    predicts_file=$1; shift
    job "$@" --predict "$predicts_file"
    if [ "$code" -eq 0 ] && [ -s "$predicts_file" ] && [ "$(our_lines)" -eq 0 ]; then ok "$predicts_file, $took ms"
    else why; not_ok "$predicts_file: $code"; fi
}
rows() { tail -n +2 "$1" | wc -l; }

predicts one.csv threads -c images.conf
equal "a row for each picture" "$(rows one.csv)" "$(find train -name '*.jpg' -o -name '*.png' | wc -l)"
equal "and names of columns" "$(head -n 1 one.csv)" 'sample,class,class2,class3,p_apple,p_pear,"p_plum, red"'
check "in order" sh -c "tail -n +2 one.csv | sed 's/^\"\{0,1\}\(train.[a-z]*\).*/\1/' | LC_ALL=C sort -c"
check "with the class first" grep -qE '^train/apple/rgb.jpg,(apple|pear|"plum, red"),' one.csv
check "the weights stay" [ "$(hash_of runs/images)" = "$trained" ]
check "the metrics say it" grep -q '"event":"prediction","samples":21,"file":"one.csv"' \
    runs/images-predict/metrics.jsonl
predicts ranks-2.csv 2 -c images.conf --stages 2
check "2 ranks: the same bytes" cmp one.csv ranks-2.csv
predicts ranks-4.csv threads -c images.conf --stages 4
check "4 ranks: the same bytes" cmp one.csv ranks-4.csv
predicts six.csv threads -c images.conf -o train.evaluate_batch_size=6
predicts twelve.csv threads -c images.conf -o train.evaluate_batch_size=12
check "other batches of the same micro-batches: the same bytes" cmp six.csv twelve.csv
predicts one.jsonl threads -c images.conf --stages 2
predicts one.npy threads -c images.conf --stages 2
predicts pool.npy threads -c images.conf --stages 2 --predict-tensor avgpool
predicts pool.csv threads -c images.conf --predict-tensor avgpool
check "a tensor's values" grep -qE '^train/apple/rgb.jpg,[-0-9.e]+(,[-0-9.e]+){63}$' pool.csv
predicts unsorted.csv threads -c images.conf --stages 2 -o data.test=unsorted
equal "a folder needs no labels" "$(sed 's/,.*//' unsorted.csv | tr '\n' ' ')" \
    "sample unsorted/a.jpg unsorted/b.jpg unsorted/more/c.jpg "
equal "and classes keep their names" "$(sed -n 's,^train/apple/turned1.jpg,,p' one.csv)" \
    "$(sed -n 's,^unsorted/a.jpg,,p' unsorted.csv)"
cp runs/images/weights.safetensors .
predicts by-file.csv threads -c images.conf --init-from weights.safetensors -o run.name=other
check "weights by --init-from: the same bytes" cmp one.csv by-file.csv
mkdir cut
cp -r runs/images/checkpoints cut/
job threads -c images.conf --init-from "$(ls -d cut/checkpoints/* | tail -n 1)" --predict newest.csv --run-dir other
rm -f runs/images/weights.safetensors
predicts from-checkpoint.csv threads -c images.conf
check "without weights, those of the best checkpoint, too" cmp one.csv from-checkpoint.csv

# ---- against torch ---------------------------------------------------------------------------------------------------
if python_has torch torchvision; then
    code=0
    "$torch/predict.py" weights.safetensors one.csv one.jsonl one.npy pool.npy >"$aside/tap" 2>&1 || code=$?
    sed -n 's/^not ok [0-9]* - //p' "$aside/tap" >"$aside/bad"
    if [ -s "$aside/bad" ] || [ "$code" -ne 0 ] || ! grep -q '^1\.\.[1-9]' "$aside/tap"; then
        note <"$aside/tap"; not_ok "predictions are torch's"
    else ok "predictions are torch's: $(grep -c '^ok' "$aside/tap") comparisons"; fi
    predicts from-torch.csv threads -c images.conf --init-from torch.safetensors
    check "what torchvision saves is loaded as it is" cmp one.csv from-torch.csv
else skip "predictions against torch" "apt-get install python3-torch python3-torchvision"; fi

# ---- what is refused -------------------------------------------------------------------------------------------------
predict="threads -c images.conf --stages 2 --init-from weights.safetensors --predict"
refused "another kind of file" 78 "predict: .*FILE.csv, FILE.jsonl or FILE.npy.*new.txt" $predict new.txt
refused "a folder that is not there" 73 '^mpstaged: none/new.csv' $predict none/new.csv
refused "a tensor that is not there" 78 'no tensor "layer4.1.rely" .did you mean layer4.1.relu.?' \
    $predict new.csv --predict-tensor layer4.1.rely
refused "a tensor within a kernel" 78 '"bn1" cannot be an output.*"relu" can' $predict new.csv --predict-tensor bn1
refused "no weights" 66 '^mpstaged: runs/nothing: .*; a prediction needs the weights of a run that has trained' \
    threads -c images.conf -o run.name=nothing --predict new.csv
echo damaged >unsorted/z.jpg
job 2 -c images.conf --stages 2 --init-from weights.safetensors --predict new.csv -o data.test=unsorted \
    -o data.damaged=skip
check "a damaged picture ends it with 65" [ "$code" -eq 65 ]
check "and leaves nothing" [ ! -e new.csv ]
check "of its own" sh -c '! ls -A | grep "^\.mpstaged-"'

# In blocks of 512 bytes: enough for metrics and log.
code=0
(ulimit -f 80; exec "$mpstaged" -c images.conf -o data.source=synthetic -o data.test_samples=99 --transport local \
    --init-from weights.safetensors --predict new.npy --predict-tensor layer1.1.relu.2) \
    >"$aside/out" 2>"$aside/err" || code=$?
check "no room: 74" [ "$code" -eq 74 ]
check "and the file is named" grep -q '^mpstaged: new.npy: File too large' "$aside/err"
check "and not there" sh -c '! ls -A | grep "^\.mpstaged-\|new.npy"'

# ---- weights that fit in part ----------------------------------------------------------------------------------------
new="threads -c images.conf --stages 2 --run-dir new --init-from"
refused "another last layer" 65 'fc\.weight has shape 3x64, the model has 5x64; .*init_missing = ."fc". initialises' \
    $new weights.safetensors -o model.graph=five.graph -o data.source=synthetic -o data.test_samples=9 --steps 2
refused "a pattern of nothing" 78 'init_missing=."fcc".: "fcc" .*fc?' \
    $new weights.safetensors -o 'run.init_missing={"fcc"}'
refused "a rule that renames nothing" 78 'init_rename=.*: "heat" .* weights' \
    $new weights.safetensors -o 'run.init_rename={"heat -> fc"}'
refused "no rule" 78 'init_rename=.*: "fc": .*PATTERN -> NAME' $new weights.safetensors -o 'run.init_rename={"fc"}'
for n in 1 2; do
    trains head-$n threads -c images.conf --stages $n --steps 2 \
        -o model.graph=five.graph -o data.source=synthetic -o data.test_samples=9 \
        --init-from weights.safetensors -o 'run.init_missing={"fc"}' -o 'train.freeze={"conv1","bn1","layer*"}'
    equal "a new head, $n ranks: the same bits" "$hash" "${head:=$hash}"
    check "and the log says which" grep -q \
        ' weights.safetensors: 120 of 122 tensors are read; new: fc.weight (3x64 there), fc.bias (3 there)$' \
        head-$n/mpstaged.log
done
tap_done
