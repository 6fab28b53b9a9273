#!/bin/sh
# volumes.sh: whole runs on volumes: the same bits on any number of ranks, workers and after going on; what the plan
# says of memory; refusals. Where there is nibabel, its voxels and affines of odd headers, and of the volumes of
# Debian's mricron-data, are ours; and the labels that a prediction writes lie on the voxels of what they were made of.
set -eu
. "$(dirname -- "$0")/mpi_lib.sh"
python=${PYTHON3:-/usr/bin/python3}
mkdir -p Task/imagesTr Task/labelsTr
# volume FILE TYPE BYTES SEED LEVELS: 18x20x16 voxels, in which a box is brighter
volume() {
    {
        printf '\134\001\000\000'; head -c 36 /dev/zero
        printf '\003\000\022\000\024\000\020\000\001\000\001\000\001\000\001\000'      # 3 dimensions, 18, 20, 16
        head -c 14 /dev/zero
        printf "$2"; head -c 3 /dev/zero
        printf '\000\000\200\077\000\000\200\077\000\000\200\077\000\000\200\077'      # qfac and sides of 1
        head -c 16 /dev/zero
        printf '\000\000\260\103\000\000\200\077'                                      # voxels at 352, slope 1
        head -c 138 /dev/zero
        printf '\001\000'; head -c 24 /dev/zero                                        # an sform
        printf '\000\000\200\077'; head -c 16 /dev/zero; printf '\000\000\200\077'; head -c 16 /dev/zero
        printf '\000\000\200\077'; head -c 4 /dev/zero
        head -c 16 /dev/zero; printf 'n+1\000'; head -c 4 /dev/zero
        # shellcheck disable=SC2059
        printf "$(awk -v seed="$3" -v levels="$4" 'BEGIN {
            x = seed
            for (z = 0; z < 16; z++) for (y = 0; y < 20; y++) for (i = 0; i < 18; i++) {
                x = (x * 75 + 74) % 65537
                inside = i > 4 + seed % 3 && i < 12 && y > 5 && y < 12 + seed % 4 && z > 3 && z < 10
                printf "\\%03o", levels ? inside * 100 + x % 60 : inside
            }
        }')"
    } >"$1"
}
for i in 1 2 3 4 5; do
    volume Task/imagesTr/v$i.nii '\002\000\010' $i 1
    volume Task/labelsTr/v$i.nii '\002\000\010' $i 0
    gzip -n Task/imagesTr/v$i.nii
done
{
    echo '{"labels": {"0": "background", "1": "box"}, "test": [], "training": ['
    for i in 3 1 5 2 4; do
        echo "{\"image\": \"./imagesTr/v$i.nii.gz\", \"label\": \"./labelsTr/v$i.nii\"}$([ $i = 4 ] || echo ,)"
    done
    echo ']}'
} >Task/dataset.json
cat >box.graph <<'END_GRAPH'
graph box
input input 1x16x16x16
labels labels 2x16x16x16
a = conv(input) channels=4 kernel=3 padding=1
b = relu(a)
c = conv(b) channels=4 kernel=3 padding=1
d = relu(c)
e = conv(d) channels=2 kernel=1
loss = mse(e, labels)
loss loss
output e
END_GRAPH
cat >box.conf <<'END_CONF'
run      { name = "box"  seed = 3 }
model    { graph = "box.graph" }
data     { source = "nifti"  train = "Task"  folds = 5  fold = 1  size = 0  spacing = {0.9, 1, 1.1}
           intensity = "zscore"  flip = {"x", "y"}  foreground = 0.5 }
train    { batch_size = 4  split_size = 2  epochs = 6  evaluate_every = 3  learning_rate = 0.1 }
service  { log_every = 0  progress = "no" }
END_CONF

trains one 1 -c box.conf
want=$hash
for n in 2 4; do
    trains ranks-$n $n -c box.conf --stages $n
    equal "$n ranks: the same bits" "$hash" "$want"
done
for n in 0 3; do
    trains workers-$n 2 -c box.conf --stages 2 -o data.workers=$n
    equal "$n workers: the same bits" "$hash" "$want"
done
trains uncached 2 -c box.conf --stages 2 -o data.cache=0
equal "nothing is kept: the same bits" "$hash" "$want"
equal "and the same losses" "$(loss_bits uncached/metrics.jsonl)" "$(loss_bits one/metrics.jsonl)"
trains half 2 -c box.conf --stages 2 -o train.epochs=3 -o checkpoint.every_steps=3
job 1 -c box.conf --run-dir half --resume -o checkpoint.every_steps=3
equal "goes on, elsewhere: the same bits" "$(hash_of half | tail -n 1)" "$want"
trains other 1 -c box.conf -o data.foreground=0
check "other parts: other bits" [ "$hash" != "$want" ]
"$mpstaged" --plan -c box.conf -o data.workers=3 >"$aside/plan"
check "the plan says what workers take" grep -qE \
    '^  and decoding up to [0-9.]+ KiB more in each of 3 workers$' "$aside/plan"
check "and what is kept" grep -qE \
    '^  and what is kept of files up to [0-9.]+ KiB, in each process that reads$' "$aside/plan"
"$mpstaged" --plan -c box.conf -o data.train=none -o data.train_labels=none >"$aside/plan"
check "or that the files are not here" [ -n "$(sed -n '/^  and what reading takes besides, which only the files say:$/{
    n; /^    none: No such file/p; }' "$aside/plan")" ]
"$mpstaged" --plan -c box.conf -o data.cache=0 >"$aside/plan.0"
# of five volumes of one size, of which without a cache one is there of each part
check "or is not, but for the last one" awk '/is kept of files/ { at[FILENAME] = $8 }
    END { exit !(at[ARGV[2]] > 0 && at[ARGV[1]] / at[ARGV[2]] == 2.5) }' "$aside/plan" "$aside/plan.0"

volume odd.nii '\002\000\010' 1 0
head -c 700 odd.nii >Task/labelsTr/v2.nii
refused "a label file that is cut off" 65 \
    'Task/labelsTr/v2.nii: offset 40: 18x20x16x1 voxels of uint8 need a file of 6112' \
    1 -c box.conf
volume Task/labelsTr/v2.nii '\004\000\020' 2 0
refused "or of another type" 65 'Task/labelsTr/v2.nii: offset 40: 18x20x16x1 voxels of int16 need a file of 11872' \
    1 -c box.conf
volume Task/labelsTr/v2.nii '\002\000\010' 2 0
volume Task/labelsTr/v2.nii '\002\000\007' 2 0
job 1 -c box.conf --run-dir odd
equal "a header that is put right is no error" "$code" 0
check "but it is said, once" [ "$(tr -s '\n ' ' ' <odd/mpstaged.log |
    grep -o 'warning: 1 of 1 volumes [^:]*: Task/labelsTr/v2.nii: bitpix 7 of uint8' | wc -l)" -eq 1 ]
volume Task/labelsTr/v2.nii '\002\000\010' 2 0
job 1 -c box.conf --run-dir none -o data.train=Task/labelsTr/v1.nii \
    -o data.train_labels=Task/imagesTr/v3.nii.gz -o data.folds=0 -o data.fold=0 --batch-size 1 --split-size 1
equal "labels without a class end the run" "$code" 65
check "and are named with their place" grep -qE \
    'Task/imagesTr/v3.nii.gz: offset 352: voxel 0x0x0 is [0-9]+, but there are 2 classes' "$aside/err"

# ---- predictions -----------------------------------------------------------------------------------------------------
# The weights are nearly those of the beginning, so that both classes come up.
trains begun 1 -c box.conf --epochs 1 --learning-rate 1e-9
# maps FOLDER RANKS OPTIONS...: a prediction into it
maps() {
    maps_folder=$1; shift
    job "$@" --init-from begun --predict "$maps_folder/"
    if [ "$code" -eq 0 ] && [ -s "$maps_folder/montage.png" ] && [ "$(our_lines)" -eq 0 ]; then ok "$maps_folder"
    else why; not_ok "$maps_folder: $code"; fi
}
maps maps-1 1 -c box.conf -o data.folds=2 -o data.fold=0
equal "a file for each volume" "$(ls maps-1 | tr '\n' ' ')" "montage.png scores.csv v1.nii.gz v3.nii.gz v5.nii.gz "
maps maps-2 2 -c box.conf --stages 2 -o data.folds=2 -o data.fold=0
check "2 ranks: the same bytes" diff -r maps-1 maps-2
maps bare 1 -c box.conf -o data.folds=0 -o data.fold=0 -o data.test=Task
equal "without labels there are no scores" "$(ls bare | tr '\n' ' ')" \
    "montage.png v1.nii.gz v2.nii.gz v3.nii.gz v4.nii.gz v5.nii.gz "
check "and the labels are the same" cmp bare/v3.nii.gz maps-1/v3.nii.gz
refused "a folder that is there" 73 'maps-1: is a directory, not a regular file' 1 -c box.conf --init-from begun \
    --predict maps-1/
write_conf toy.conf
refused "a folder for what is no volume" 78 '--predict: .*FILE.csv.*maps/' \
    1 -c toy.conf --init-from begun --predict maps/ -o data.test_samples=9
# What the guide begins with, on these volumes, which are smaller.
sed -n '/^run { name = "task04"/,/^pipeline/p' "$here/../docs/guide/volumes.md" >task04.conf
ln -s Task Task04_Hippocampus
set -- -c task04.conf -o 'model.input={1,16,16,16}' -o data.size=16 -o train.epochs=1 -o train.evaluate_epochs=1
trains task04 2 "$@"
check "the guide's example of volumes is evaluated" grep -q '"event":"evaluation".*"dice":' task04/metrics.jsonl
job 2 "$@" --init-from task04 --predict task04.maps/
equal "and predicts the fold that is left out" "$(ls task04.maps | tr '\n' ' ')" "montage.png scores.csv v1.nii.gz "
head -c 300 Task/imagesTr/v2.nii.gz >cut && cp cut Task/imagesTr/v2.nii.gz
job 1 -c box.conf --init-from begun --predict cut.maps/
equal "a volume that is cut off ends it" "$code" 65
check "and leaves nothing" [ ! -e cut.maps ]

# ---- nibabel ---------------------------------------------------------------------------------------------------------
if ! "$python" -c 'import nibabel' 2>/dev/null; then skip "as nibabel" "nibabel is not installed"; tap_done; fi
templates=/usr/share/mricron/templates
[ -e $templates/ch2.nii.gz ] || skip "as nibabel: its volumes" "mricron-data is not installed"
# Some of both byte orders of x, extensions, offsets, and an sform and a qform that disagree.
set --
for name in jhu189 natbrainlab JHU-WhiteMatter-labels-1mm AICHAmc HarvardOxford-cort-maxprob-thr0-1mm aal ch2 \
    inia19-NeuroMaps inia19-t1-brain; do
    [ ! -e $templates/$name.nii.gz ] || set -- "$@" $templates/$name.nii.gz
done
code=0
"$python" "$here/volumes.py" "$build/tests/volume_tool" maps-1 "$@" >"$aside/out" 2>"$aside/err" || code=$?
while read -r word rest; do
    if [ "$word" = ok ]; then ok "as nibabel: $rest"; else not_ok "as nibabel: $rest"; fi
done <"$aside/out"
[ $code -eq 0 ] || why
equal "nibabel's script ends" "$code" 0
tap_done
