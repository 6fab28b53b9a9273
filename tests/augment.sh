#!/bin/sh
# augment.sh: runs with data.augment: the same bits on any number of ranks, with any schedule, and after a resumption;
# mixed labels; lists that are refused; and every entry against torchvision, where there is one.
set -eu
. "$(dirname -- "$0")/mpi_lib.sh"
mkdir -p train/apple train/plum
for f in rgb grey whole ink turned1 turned3 turned6 turned8; do cp "$here/images/$f.jpg" train/apple; done
for f in rgb grey palette turned deep; do cp "$here/images/$f.png" train/plum; done
cat >a.conf <<'END_CONF'
run      { name = "augment" }
model    { network = "mlp"  hidden = {16, 16}  classes = 2  input = {3, 24, 24} }
data     { source = "images"  train = "train"  test = "train"
           mean = {0.485, 0.456, 0.406}  std = {0.229, 0.224, 0.225}
           augment = {"random_resized_crop", "horizontal_flip", "color_jitter brightness=0.4 hue=0.1",
                      "trivial_augment", "random_erasing"} }
train    { batch_size = 8  split_size = 3  steps = 8  learning_rate = 0.01 }
service  { log_every = 0  progress = "no" }
END_CONF
trains one threads -c a.conf
want=$hash
trains two 2 -c a.conf --stages 2
equal "two ranks: the same bits" "$hash" "$want"
trains naive threads -c a.conf --stages 2 --schedule naive -o data.prefetch=5
equal "another schedule, more read ahead: the same bits" "$hash" "$want"
trains plain threads -c a.conf -o 'data.augment={}'
check "without the list: others" [ "$hash" != "$want" ]
trains seed threads -c a.conf --seed 9
check "with another seed: others" [ "$hash" != "$want" ]
trains half threads -c a.conf --stages 2 -o checkpoint.every_steps=3 -o train.schedule=constant --steps 3
trains half threads -c a.conf --stages 2 -o checkpoint.every_steps=3 --resume
equal "resumed after three steps: the same bits" "$(echo "$hash" | tail -n 1)" "$want"

mixed='data.augment={"resize size=26", "random_crop", "mixup alpha=0.4 p=0.4", "cutmix p=0.5"}'
trains mixed threads -c a.conf -o "$mixed" -o train.label_smoothing=0.1
want=$hash
trains mixed-two threads -c a.conf -o "$mixed" -o train.label_smoothing=0.1 --stages 2
equal "mixed samples, whose labels are another rank's to mix: the same bits" "$hash" "$want"
check "labels are vectors then" sh -c '"$0" -c a.conf -o "$1" --print-config | grep -q "labels = \"onehot\""' \
    "$mpstaged" "$mixed"
"$mpstaged" -c a.conf -o 'data.augment={"mixup p=0"}' --print-config >printed.conf
trains vectors threads -c printed.conf
trains plain-again threads -c a.conf -o 'data.augment={}'
equal "vectors of one class: the bits of classes" "$(hash_of vectors)" "$hash"

refused "an unknown entry" 78 '-o data.augment=[{]flip[}]: .*"flip"' threads \
    -c a.conf --run-dir new -o 'data.augment={flip}'
sed 's/"horizontal_flip"/"horizontal_flip p=2"/' a.conf >wrong.conf
refused "an entry's number" 78 'wrong.conf:5: data.augment: horizontal_flip: p: 2 is not in 0 to 1' threads \
    -c wrong.conf --run-dir new
printf 'input input 3x24x24\nlabels labels class\nflat = flatten(input)\nfc = linear(flat) features=2\n%s\n' \
    'loss = softmax_cross_entropy(fc, labels)' >classes.graph
refused "a graph that takes classes" 78 'mixup .*data.labels = onehot' threads -c a.conf \
    --run-dir new -o model.graph=classes.graph -o 'data.augment={mixup}'

# ---- --show-batch ----------------------------------------------------------------------------------------------------
# shown TEXT STATUS PATTERN OPTIONS...: it ends so, and says so
shown() {
    shown_text=$1 shown_code=$2 shown_pattern=$3 code=0; shift 3
    "$mpstaged" "$@" >"$aside/out" 2>&1 || code=$?
    if [ "$code" -eq "$shown_code" ] && grep -qE -- "$shown_pattern" "$aside/out"; then ok "$shown_text"
    else { echo "code $code"; cat "$aside/out"; } | note; not_ok "$shown_text"; fi
}
shown "--show-batch draws the first batch" 0 '^b.png: 8 of 8 samples of the first batch, 3x24x24$' \
    -c a.conf --show-batch b.png
cp b.png b1.png
shown "also of mixed samples" 0 '^b.png: 8 of 8 samples' -c a.conf --show-batch b.png -o "$mixed"
check "which look otherwise" sh -c '! cmp -s b.png b1.png'
shown "and in place of its own file to the same bits" 0 '' -c a.conf --show-batch b.png
check "as they are" cmp b.png b1.png
shown "of synthetic samples" 0 '3x24x24, values from -[3-9]' -c a.conf -o data.source=synthetic --show-batch s.png
shown "into a file of another kind" 64 '^mpstaged: --show-batch b.jpg: expected FILE.png or FILE.txt$' \
    -c a.conf --show-batch b.jpg
shown "into a folder that is not there" 73 '^mpstaged: none/b.png: ' -c a.conf --show-batch none/b.png
cp train/plum/rgb.png only.png
shown "over what is read" 73 'only.png: --show-batch .*data.train$' -c a.conf \
    -o data.train=only.png --show-batch only.png
shown "of a network that sees no pictures" 78 'data.source=synthetic: --show-batch: .* F32 10$' -c a.conf \
    --show-batch n.png -o data.source=synthetic -o model.network=toy -o model.input=10
shown "without its file" 64 'show-batch' -c a.conf --show-batch

for python in /usr/bin/python3 python3; do ! python_has torchvision || break; done
if python_has torchvision numpy PIL; then
    "$python" "$here/torch/augment.py" compare "$build/tests/augs" >"$aside/said" 2>"$aside/err" || why
    grep -v '^ok' "$aside/said" | note
    printf '%s\n' "$here/images/rgb.png one" >one.list
    shown "of one sample" 0 '^one.png: 1 of 1' -c a.conf -o data.train=one.list -o model.classes=1 \
        -o 'model.input={3, 29, 37}' -o 'data.augment={"horizontal_flip p=1"}' --show-batch one.png --batch-size 1 \
        -o train.split_size=0
    check "its pixels are those of the file, mirrored and three times as large" "$python" -c 'if 1:
        import sys, numpy as np
        from PIL import Image
        sheet, one = (np.asarray(Image.open(f).convert("RGB")) for f in sys.argv[1:])
        one = one[:, ::-1].repeat(3, 0).repeat(3, 1)
        sys.exit(not (sheet[23:23 + one.shape[0], 8:8 + one.shape[1]] == one).all())' one.png "$here/images/rgb.png"
    check "every entry makes torchvision's pixels, and its numbers are spread as they should" \
        sh -c '[ "$(grep -c "^ok" "$0")" -ge 40 ] && ! grep -q "^not ok" "$0"' "$aside/said"
else skip "every entry against torchvision" "apt-get install python3-torchvision"; fi
tap_done
