#!/bin/sh
# images.sh: folders of JPEG and PNG files train: the same bits on any number of ranks, by a list or archives as by the
# folder, and by PNG files as by the IDX file that they were made of; damaged files are named, or skipped and counted.
# The pictures are those of tests/images.
set -eu
. "$(dirname -- "$0")/mpi_lib.sh"
pictures=$here/images
mkdir -p train/apple train/pear train/plum/more test/apple test/plum
cp "$pictures"/rgb.jpg "$pictures"/whole.jpg "$pictures"/turned[1-4].jpg train/apple
cp "$pictures"/grey.jpg "$pictures"/ink.jpg "$pictures"/turned[5-8].jpg train/pear
cp "$pictures"/*.png train/plum
mv train/plum/rgb.png train/plum/more
cp "$pictures"/progressive.jpg test/apple
cp "$pictures"/grey.png test/plum
echo 'no picture' >train/pear/README
cat >images.conf <<'END_CONF'
run      { name = "images" }
model    { network = "mlp"  hidden = {16, 16, 16}  classes = 3  input = {3, 24, 24} }
data     { source = "images"  train = "train"  test = "test"
           mean = {0.485, 0.456, 0.406}  std = {0.229, 0.224, 0.225} }
train    { batch_size = 8  split_size = 3  epochs = 2  learning_rate = 0.01 }
service  { log_every = 0  progress = "no" }
END_CONF
(cd train && find . -type f | LC_ALL=C sort | sed 's,^\./,,' | awk -F/ '/README/ { next }
    { print "train/" $0 "\t" ($1 == "apple" ? 0 : $1 == "pear" ? 1 : 2) }') | LC_ALL=C sort >list
# In a folder's order, what lies deeper comes behind.
{ grep -v /more/ list; grep /more/ list; } >train.list
printf 'test/apple/progressive.jpg 0\ntest/plum/grey.png 2\n' >test.list

trains one threads -c images.conf
want=$hash
check "what there is to learn from is said" grep -q '^21 training samples of 3 classes: apple, pear, plum$' "$aside/err"
equal "what is not used is said once, with its number and the first name" 1 \
    "$(grep -c 'warning: train: 1 file is not used: .*; the first: train/pear/README$' one/mpstaged.log)"
"$mpstaged" -c images.conf --check-config >"$aside/checked" 2>&1
check "--check-config says it, too" grep -q '^warning: train: 1 file is not used.*; the first: train/pear/README$' \
    "$aside/checked"
check "and to be tested by" grep -q '^2 test samples of 3 classes' "$aside/err"
# The names of the classes stay beside the weights: a class that is renamed later gets no other class's results.
equal "a run keeps the names of its classes" '["apple","pear","plum"]' "$(tr -d ' \n' <one/classes.json)"
cp -r train renamed; mv renamed/apple renamed/zapple
cp -r test retested; mv retested/apple retested/zapple
for how in "--evaluate --run-dir new" "--predict new.csv"; do
    # shellcheck disable=SC2086
    refused "other names of classes with ${how%% *}" 78 \
        'data.train=renamed: class 0 is pear, and was apple in training .one/classes.json.$' threads -c images.conf \
        -o data.train=renamed -o data.test=retested --init-from one $how
done
saved=saved/checkpoints/step-00000006
mkdir -p $saved; : >$saved/manifest.json; cp one/classes.json saved
cp one/weights.safetensors $saved/model.safetensors
refused "so with those of a checkpoint" 78 'was apple in training .saved/.*/../../classes.json.$' \
    threads -c images.conf -o data.train=renamed -o data.test=retested --evaluate --run-dir new \
    --init-from $saved
printf '["apple"' >"$aside/half.json"; cp one/classes.json "$aside/whole.json"; cp "$aside/half.json" one/classes.json
refused "a damaged list of classes" 65 'one/classes.json: is not an array of class names$' threads -c images.conf \
    --init-from one --evaluate --run-dir new
cp "$aside/whole.json" one/classes.json
job threads -c images.conf -o data.train=gone -o data.test=test/apple --init-from one/weights.safetensors \
    --predict named.csv
equal "a prediction without the training pictures has the names" "0 yes" \
    "$code $(sed -n 2p named.csv 2>/dev/null | grep -qE ',(apple|pear|plum),' && echo yes)"
trains ranks-2 2 -c images.conf --stages 2
equal "2 ranks: the same bits" "$hash" "$want"
trains ranks-4 threads -c images.conf --stages 4
equal "4 ranks: the same bits" "$hash" "$want"
for n in 0 3; do
    trains workers-$n threads -c images.conf --stages 2 -o data.workers=$n
    equal "$n workers: the same bits" "$hash" "$want"
done
"$mpstaged" --plan -c images.conf -o data.workers=3 >"$aside/plan"
check "the plan says what is read ahead" grep -q \
    '^  and decoding up to 32.00 MiB more in each of 3 workers$' "$aside/plan"
trains by-list threads -c images.conf -o data.train=train.list -o data.test=test.list
equal "by a list: the same bits" "$hash" "$want"
equal "and the same loss of the test set" "$(loss_bits by-list/metrics.jsonl | grep evaluation)" \
    "$(loss_bits one/metrics.jsonl | grep evaluation)"
# Archives know no folders within classes.
cp -r train flat
mv flat/plum/more/rgb.png flat/plum
sed 's,^train/,,; s,\t.*,,; s,/more/,/,' train.list >in-order
cd flat
tar --format=gnu -cf ../a-0.tar $(head -n 9 ../in-order)
tar --format=pax -cf ../a-1.tar $(tail -n +10 ../in-order)
cd ..
trains by-archives threads -c images.conf --stages 2 -o 'data.train=a-{0..1}.tar' -o data.workers=2
equal "by archives in the same order: the same bits" "$hash" "$want"
# From a checkpoint the same pictures go on, wherever they lie; others do not, however many there are.
trains going threads -c images.conf -o checkpoint.every_steps=2 -o checkpoint.keep=9
rm -r going/checkpoints/step-0000000[46]
cp -r train other
cp other/apple/whole.jpg other/apple/turned1.jpg
refused "another picture" 78 'step-00000002: the training samples are other ones now.*--resume=force' threads \
    -c images.conf --run-dir going --resume -o data.train=other
sed '1s/0$/1/; 7s/1$/0/' train.list >other.list
refused "other classes" 78 'step-00000002: the training samples are other ones now' threads \
    -c images.conf --run-dir going --resume -o data.train=other.list -o data.test=test.list
job threads -c images.conf --run-dir going --resume -o 'data.train=a-{0..1}.tar'
equal "archives of the same pictures go on" "$(hash_of going | tail -n 1)" "$want"
trains turned threads -c images.conf -o data.upright=no
check "pictures as they are stored: other bits" [ "$hash" != "$want" ]

# ---- damaged files ---------------------------------------------------------------------------------------------------
cp -r train bad
head -c 200 "$pictures/rgb.jpg" >bad/apple/cut.jpg
echo 'no picture at all' >bad/pear/text.jpg
: >bad/plum/empty.png
job 2 -c images.conf -o data.train=bad --run-dir error --stages 2
check "a damaged picture ends the run with 65" [ "$code" -eq 65 ]
why='cut\.jpg: damaged JPEG: the file ends too early|empty\.png: the file is empty'
why="$why|text\\.jpg: this is text, not JPEG or PNG"
hint='; data\.damaged = "skip" skips it'
check "and one line that names it, and the way on" \
    grep -qE "^mpstaged: rank 0, step 1, .*: bad/[a-z]*/($why)$hint$" "$aside/err"
equal "and no other" "$(our_lines)" 1
error=$(grep -o 'bad/.*' "$aside/err")
for n in 1 2; do
    trains skips-$n threads -c images.conf -o data.train=bad -o data.damaged=skip --stages $n
    [ "$n" -ne 1 ] || skipped=$hash
    equal "damaged pictures are skipped, $n ranks: the same bits" "$hash" "$skipped"
    check "how many they were is said" grep -qE 'warning: 3 damaged samples skipped so far, .*; the first: bad/' \
        skips-$n/mpstaged.log
    check "and stands in the metrics" grep -q '"event":"damaged","step":[0-9]*,"samples":3,"text":"bad/' \
        skips-$n/metrics.jsonl
done
trains skips-replicas 2 -c images.conf -o data.train=bad -o data.damaged=skip --stages 1 \
    -o pipeline.replicas=2 -o train.gradient_groups=2 -o train.epochs=1
check "two replicas, an epoch: what each came upon adds up" grep -q '"event":"damaged",.*"samples":3,"text":"bad/' \
    skips-replicas/metrics.jsonl
told() { sed -n 's/.*"event":"damaged",//p' "$1/metrics.jsonl"; }
for n in 0 4; do
    trains skips-by-$n threads -c images.conf -o data.train=bad -o data.damaged=skip -o data.workers=$n
    equal "with $n workers: the same bits" "$hash" "$skipped"
    equal "and the same damage after the same steps" "$(told skips-by-$n)" "$(told skips-1)"
    job threads -c images.conf -o data.train=bad --run-dir error-$n -o data.workers=$n
    equal "an error: the same one" "$code $(our_lines) $(grep -o 'bad/.*' "$aside/err")" "65 1 $error"
done

# ---- Fashion-MNIST as files ------------------------------------------------------------------------------------------
fashion=/usr/share/datasets/fashion-mnist
if [ -r $fashion/train-images-idx3-ubyte.gz ] && command -v python3 >/dev/null; then
    mkdir fashion
    python3 - $fashion fashion <<'END_PYTHON'
import gzip, struct, sys, zlib
def chunk(name, data): return struct.pack(">I", len(data)) + name + data + struct.pack(">I", zlib.crc32(name + data))
x = gzip.open(sys.argv[1] + "/train-images-idx3-ubyte.gz").read(16 + 200 * 784)[16:]
y = gzip.open(sys.argv[1] + "/train-labels-idx1-ubyte.gz").read(8 + 200)[8:]
with open(sys.argv[2] + "/list", "w") as names:
    for i in range(200):
        rows = b"".join(b"\0" + x[(28 * i + r) * 28:][:28] for r in range(28))
        with open("%s/%d.png" % (sys.argv[2], i), "wb") as f:
            f.write(b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", struct.pack(">IIBBBBB", 28, 28, 8, 0, 0, 0, 0)) +
                    chunk(b"IDAT", zlib.compress(rows)) + chunk(b"IEND", b""))
        names.write("%d.png\t%d\n" % (i, y[i]))
END_PYTHON
    cat >fashion.conf <<'END_CONF'
run      { name = "fashion" }
model    { network = "mlp"  hidden = {32}  classes = 10  input = {1, 28, 28} }
data     { source = "idx"  samples = 200  mean = 0.286  std = 0.353 }
train    { batch_size = 20  split_size = 7  epochs = 2  learning_rate = 0.05 }
service  { log_every = 0  progress = "no" }
END_CONF
    trains idx threads -c fashion.conf -o data.train=$fashion/train-images-idx3-ubyte.gz \
        -o data.train_labels=$fashion/train-labels-idx1-ubyte.gz
    idx=$hash
    trains png threads -c fashion.conf -o data.source=images -o data.train=fashion/list
    equal "Fashion-MNIST as PNG files: the bits of the IDX file" "$hash" "$idx"
else skip "Fashion-MNIST as PNG files" "apt-get install dataset-fashion-mnist python3"; fi

# ---- a part to test with ---------------------------------------------------------------------------------------------
sed 's/  test = "test"/  validation = 0.25/' images.conf >part.conf
"$mpstaged" -c part.conf --check-config >"$aside/checked" 2>&1
check "--check-config says how many are kept" grep -q '^note: data.validation holds out 5 of 21 samples for tests$' \
    "$aside/checked"
trains part threads -c part.conf
part=$hash
check "the others are trained" grep -q '^16 training samples of 3 classes' "$aside/err"
check "those are tested" grep -q '^5 test samples of 3 classes' "$aside/err"
trains part-2 threads -c part.conf --stages 2 -o data.workers=3
equal "2 ranks: the same bits" "$hash" "$part"
equal "and the same scores" "$(loss_bits part-2/metrics.jsonl | grep evaluation)" \
    "$(loss_bits part/metrics.jsonl | grep evaluation)"
trains part-list threads -c part.conf -o data.train=train.list
equal "of a list the same part" "$hash" "$part"
trains part-tar threads -c part.conf -o 'data.train=a-{0..1}.tar'
equal "of archives, too" "$hash" "$part"

"$mpstaged" -c part.conf --predict kept.csv --init-from part >/dev/null 2>&1
"$mpstaged" -c part.conf --predict other.csv --init-from part --seed 2 >/dev/null 2>&1
check "a prediction is of those that were kept" [ "$(tail -n +2 kept.csv | wc -l)" -eq 5 ]
check "another seed keeps others" sh -c '! [ "$(cut -d, -f1 kept.csv)" = "$(cut -d, -f1 other.csv)" ]'
trains part-going threads -c part.conf -o checkpoint.every_steps=2 -o checkpoint.keep=9
rm -r part-going/checkpoints/step-00000004
refused "another share is another run" 78 'data.validation' threads -c part.conf --run-dir part-going --resume \
    -o data.validation=0.4
job threads -c part.conf --run-dir part-going --resume
equal "a run that goes on has the bits of one that was not cut" "$(hash_of part-going | tail -n 1)" "$part"
refused "a share that is too small" 78 'data.validation=0.01: .* 21 samples' threads -c part.conf \
    -o data.validation=0.01 --run-dir new
refused "images to test with beside it" 78 'data.test=test: data.validation is set, too' threads -c part.conf \
    -o data.test=test --run-dir new
"$mpstaged" -c part.conf --predict given.csv --init-from part -o data.test=test >/dev/null 2>&1
check "but a prediction takes them instead" [ "$(tail -n +2 given.csv | wc -l)" -eq 2 ]

# ---- a first configuration -------------------------------------------------------------------------------------------
cp images.conf own.conf
mkdir photos
cp -r train photos/train
cp -r train photos/val
rm photos/*/pear/README
code=0
"$mpstaged" --init photos >"$aside/out" 2>"$aside/err" || code=$?
equal "--init tells what it made" "$code $(cat "$aside/out")" \
    "0 photos.conf: 21 pictures of 3 classes; next: mpstaged -c photos.conf --check-config"
check "in lines of 80 columns, but for names of files" [ "$(grep -v '_images = ' photos.conf | longest)" -le 80 ]
check "by what is there" grep -q 'classes = 3  input = {3, 32, 32}' photos.conf
check "which is one" "$mpstaged" -c photos.conf --check-config
trains initial threads -c photos.conf --epochs 1
check "and has the best evaluation told" \
    grep -q 'last and best evaluation: accuracy .* after step 2, in checkpoints/step-' initial/mpstaged.log
check "a warm-up that ends behind the run is told" grep -q 'note: the warm-up is as long as the run or' \
    initial/mpstaged.log
code=0
"$mpstaged" --init photos >"$aside/out" 2>"$aside/err" || code=$?
check "and is not replaced: 73" [ "$code" -eq 73 ]
check "but may have another name" "$mpstaged" --init train --write-config new.conf
check "a share is kept to test with where no folder is" grep -q '^    # validation = 0.1$' new.conf
mkdir many
for c in a b; do mkdir many/$c; for i in 1 2 3 4 5 6 7 8 9 10; do cp "$pictures/rgb.png" many/$c/$i.png; done; done
"$mpstaged" --init many >"$aside/out"
mkdir odd; for c in a b; do mkdir odd/$c; for i in $(seq 45); do ln "$PWD/train/apple/rgb.jpg" odd/$c/$i.jpg; done; done
"$mpstaged" --init odd >"$aside/odd" || note <"$aside/odd"
check "an odd size of micro-batches has its reason" sh -c \
    'grep -A1 "^    # 16 would leave a micro-batch of one" odd.conf | grep -q "split_size = 17 "'
check "if there are enough" sh -c 'grep -q "20 pictures of 2 classes, a tenth to test with; next" "$0" &&
    grep -q "^    validation = 0.1$" many.conf && grep -q "best = \"accuracy\"" many.conf' "$aside/out"
"$mpstaged" -c many.conf --check-config >"$aside/checked" 2>&1 || true
check "so many are said" grep -q '^note: data.validation holds out 2 of 20 samples for tests$' "$aside/checked"
check "small pictures get the small first layers" grep -q '^    small_stem = yes$' new.conf
check "a line says what split_size is" grep -q '# .*micro-batches of split_size' new.conf
refused "a folder that is not there" 66 '^mpstaged: nowhere: No such file or directory' threads --init nowhere
# parts NAME OTHER...: a folder with these parts, each with the classes of train
parts() {
    rm -rf parts parts.conf; mkdir parts
    for part; do cp -r test "parts/$part"; done
    code=0; "$mpstaged" --init parts >"$aside/out" 2>"$aside/err" || code=$?
}
for names in 'Train Val' 'training testing' 'train val_images' 'TrainSet TestSet' 'train2017 dev'; do
    parts $names
    check "--init of $names: the classes in them" \
        sh -c '[ "$0" = 0 ] && grep -q "2 classes: apple, plum" parts.conf &&
            grep -q "^    test" parts.conf' $code
done
parts train val test extra
check "what else lies there is said" \
    grep -q '^warning: parts: 2 names are not used; the first: parts/extra$' "$aside/out"
parts Train
check "a single part is no class either" grep -q '^    train = "parts/Train"$' parts.conf
parts train Training
check "two parts for training are refused" grep -q '^mpstaged: parts: holds Training and train: rename one' "$aside/err"
parts val test
check "so are parts without one to train with" \
    grep -q '^mpstaged: parts: holds val and test, but no folder to train with' "$aside/err"
rm -rf parts; mkdir -p parts/train parts/test; cp train/apple/*.jpg parts/train; cp train/pear/*.jpg parts/test
"$mpstaged" --init parts >"$aside/out" 2>"$aside/err" && code=0 || code=$?
check "and parts without classes" grep -q '^mpstaged: parts: train and test look like parts of a data set' "$aside/err"
rm -rf parts; mkdir parts; cp -r train/apple parts/train; cp -r train/pear parts/bus
"$mpstaged" --init parts >"$aside/out" 2>"$aside/err" && code=0 || code=$?
check "a class may be called train" grep -q '2 classes: bus, train' parts.conf
rm -rf parts parts.conf; mkdir parts; cp -r train/apple parts/dev1; cp -r train/pear parts/dev2
"$mpstaged" --init parts >"$aside/out" 2>"$aside/err" && code=0 || code=$?
check "several of a kind without others are classes" grep -q '2 classes: dev1, dev2' parts.conf
rm -rf parts parts.conf; mkdir parts; cp -r photos/train parts/Train; cp -r photos/train parts/Val
"$mpstaged" --init parts >/dev/null
"$mpstaged" -c parts.conf --check-config -o data.train=parts -o data.test=parts -o model.classes=2 \
    -o train.batch_size=14 -o train.split_size=7 >"$aside/checked" 2>&1 || note <"$aside/checked"
check "parts that are taken for classes are said" grep -q '^warning: parts: Train and Val are taken for classes' \
    "$aside/checked"
# ---- what --check-config finds ---------------------------------------------------------------------------------------
printf 'train/apple/rgb.jpg a\ntrain/gone.jpg b\ntrain/pear/grey.jpg b\ntrain/lost.png a\n' >more.txt
refused "pictures of a list that are not there" 66 \
    '^mpstaged: -o data.train=more.txt: more.txt: names 2 files that are not there; the first: train/gone.jpg$' \
    threads -c images.conf -o data.train=more.txt -o data.test=more.txt -o model.classes=2 --check-config
refused "an empty picture" 65 \
    '^mpstaged: bad: 1 picture is empty; data.damaged = "skip" skips such; the first: bad/plum/empty.png$' \
    threads -c images.conf -o data.train=bad --check-config
check "which may be skipped" "$mpstaged" -c images.conf -o data.train=bad -o data.damaged=skip --check-config
"$mpstaged" --init bad >"$aside/out" 2>"$aside/err" && code=0 || code=$?
check "what --init cannot read is said" grep -hqE \
    '^warning: bad: 3 of 24 pictures that were looked at cannot be read; data.damaged = "skip" .*; the first: bad/' \
    "$aside/out" "$aside/err"
refused "a configuration that is there stays" 73 '^mpstaged: bad.conf: File exists; --write-config FILE' threads \
    --init bad
refused "a picture in place of a folder" 65 'rgb.jpg: is one picture: name the folder that holds it' threads \
    -c images.conf -o "data.train=$pictures/rgb.jpg" --check-config
mkdir -p Task/imagesTr Task/labelsTr
: >Task/imagesTr/a.nii.gz; : >Task/labelsTr/a.nii.gz
refused "volumes" 65 'Task/imagesTr/a.nii.gz: .*--init.*docs/guide/volumes.md$' threads --init Task
refused "no pictures to begin with" 65 '^mpstaged: photos/train/apple: has no folders' threads --init photos/train/apple
refused "and a configuration that is given" 64 'init writes a configuration' threads --init photos -c images.conf
refused "a folder that is spelled almost so" 66 \
    '^mpstaged: -o data.train=trian: trian: No such file or directory .did you mean train..$' threads \
    -c images.conf -o data.train=trian --run-dir new
refused "no folder" 66 '^mpstaged: -o data.train=none: none: No such file' threads -c images.conf -o data.train=none \
    --run-dir new
refused "too many classes" 78 'train has 3 classes, the model has 2: change model.classes$' threads -c images.conf \
    -o model.classes=2 --run-dir new
tap_done
