#!/bin/sh
# epochs.sh: which samples each step has: the number of steps decides where a run stops and nothing else;
# train.last_batch decides what happens at the end of an epoch, also for a run that is resumed.
set -eu
. "$(dirname -- "$0")/mpi_lib.sh"
. "$here/npy_lib.sh"

floats 330 1 | npy x.npy '33, 10'
floats 165 7 | npy y.npy '33, 5'
write_conf run.conf 's/source = "synthetic"  labels = "onehot"  samples = 200/source = "npy"  labels = "vector" \
    train = "x.npy"  train_labels = "y.npy"/; s/steps = 3 //; s/batch_size = 20/batch_size = 10/;
    s/split_size = 8/split_size = 4/; s/stages = 2/stages = 1/'

# run NAME OPTIONS...: in one process
run() {
    run_name=$1; shift; code=0
    "$mpstaged" -c run.conf --run-dir "$run_name" "$@" >"$aside/out" 2>"$aside/err" </dev/null || code=$?
}
sizes() { sed -n 's/.*"event":"step",.*"samples":\([0-9]*\),.*/\1/p' "$1/metrics.jsonl" | tr '\n' ' '; }
epochs() { sed -n 's/.*"event":"step","step":[0-9]*,"epoch":\([0-9]*\),.*/\1/p' "$1/metrics.jsonl" | tr '\n' ' '; }
# first N RUN: the bits of its first steps
first() { loss_bits "$2/metrics.jsonl" | sort -n | head -n "$1" | cksum; }
# ends NAME STATUS
ends() { if [ "$code" -eq "$2" ]; then ok "$1: $2"; else why; not_ok "$1: exit $code, wanted $2"; fi; }

# ---- the first steps of every run are the same -----------------------------------------------------------------------
for shuffle in no yes; do
    for last in short drop fill; do
        set -- -o data.shuffle=$shuffle -o train.last_batch=$last
        run two --overwrite "$@" --epochs 2
        run five --overwrite "$@" --epochs 5 --steps 6
        run steps --overwrite "$@" --steps 6
        case $last in
        short) want="10 10 10 3 10 10 " of_two="10 10 10 3 10 10 10 3 " in="1 1 1 1 2 2 " ;;
        drop) want="10 10 10 10 10 10 " of_two=$want in="1 1 1 2 2 2 " ;;
        fill) want="10 10 10 10 10 10 " of_two="10 10 10 10 10 10 10 " in="1 1 1 1 2 2 " ;;
        esac
        equal "$last, shuffle $shuffle: two epochs" "$(sizes two)" "$of_two"
        equal "six steps of five" "$(sizes five)" "$want"
        equal "six steps" "$(sizes steps)" "$want"
        equal "whose epochs" "$(epochs steps)" "$in"
        equal "have the bits of the first six of two epochs" "$(first 6 steps)" "$(first 6 two)"
        equal "and of five" "$(first 6 steps)" "$(first 6 five)"
        mv steps "$last-$shuffle"
    done
done
kinds=$(for l in short drop fill; do first 6 "$l-no"; done | sort -u | wc -l)
check "the ends of epochs make other bits" [ "$kinds" -eq 3 ]
run default --steps 6
equal "short is the default" "$(first 6 default)" "$(first 6 short-no)"
run half --steps 3
check "three steps need no plan for a short batch" [ "$(sizes half)" = "10 10 10 " ]
run stages --steps 6 --stages 2 -o train.last_batch=drop -o data.shuffle=yes --transport local
equal "two stages have the same bits" "$(first 6 stages)" "$(first 6 drop-yes)"

# ---- what is left out is said ----------------------------------------------------------------------------------------
note_drop='note: each epoch leaves out 3 of 33 training samples'
check "what drop leaves out is said" [ "$(grep -c "$note_drop (train" drop-yes/mpstaged.log)" -eq 1 ]
check "and that it is always the same" [ "$(grep -c "$note_drop, always the last ones" drop-no/mpstaged.log)" -eq 1 ]
"$mpstaged" -c run.conf --steps 6 -o train.last_batch=drop --check-config >"$aside/out"
check "by --check-config, too" grep -q "$note_drop" "$aside/out"
check "short and fill leave out nothing" sh -c '! grep -q "leaves out" short-*/mpstaged.log fill-*/mpstaged.log'
check "samples count that were trained" grep -q '"event":"done",.*"trained_samples":60,' drop-no/metrics.jsonl

# ---- evaluations behind epochs ---------------------------------------------------------------------------------------
evaluated() { sed -n 's/.*"event":"evaluation","step":\([0-9]*\),.*/\1/p' "$1/metrics.jsonl" | tr '\n' ' '; }
for k in "short:4 8 10 " "drop:3 6 9 10 " "fill:4 7 10 "; do
    run judged --overwrite --steps 10 -o train.last_batch="${k%%:*}" -o train.evaluate_epochs=1 \
        -o data.test=x.npy -o data.test_labels=y.npy
    equal "${k%%:*}: evaluations behind epochs" "$(evaluated judged)" "${k#*:}"
done

# ---- schedules by epoch and warm-up ----------------------------------------------------------------------------------
rates() { sed -n 's/.*"event":"step",.*"lr":\([^,]*\),.*/\1/p' "$1/metrics.jsonl" | tr '\n' ' '; }
for k in "short:1 1 1 1 0.5 0.5 0.5 0.5 " "drop:1 1 1 0.5 0.5 0.5 0.25 0.25 " "fill:1 1 1 1 0.5 0.5 0.5 0.25 "; do
    run rates --overwrite --steps 8 --learning-rate 1 -o train.last_batch="${k%%:*}" -o train.schedule=step \
        -o train.step_size=1 -o train.gamma=0.5 -o train.schedule_by=epoch
    equal "${k%%:*}: rates by epoch" "$(rates rates)" "${k#*:}"
done
for k in "short:0 0.25 0.5 0.75 1 1 " "drop:0 0.3333333333333333 0.6666666666666666 1 1 1 "; do
    run rates --overwrite --steps 6 --learning-rate 1 -o train.last_batch="${k%%:*}" -o train.warmup_epochs=1 \
        -o train.warmup_factor=0
    equal "${k%%:*}: an epoch of warm-up" "$(rates rates)" "${k#*:}"
done

# ---- batches that are never full, and one sample alone ---------------------------------------------------------------
run few --epochs 2 --batch-size 40 -o pipeline.stages=2
ends "a batch may be larger than the data" 0
equal "and has all of it" "$(sizes few)" "33 33 "
check "which is said" grep -q 'note: there are 33 training samples, fewer than train.batch_size = 40' few/mpstaged.log
run same --epochs 2 --batch-size 33
equal "with the bits of a batch of so many" "$(first 2 few)" "$(first 2 same)"
for last in drop fill; do
    refused "$last: no batch is full" 78 '--batch-size: 40 is larger than the number of training samples, 33, so' 1 \
        -c run.conf --epochs 2 --batch-size 40 -o train.last_batch=$last --run-dir new
done
printf 'input x 10\nn = batch_norm(x)\ny = linear(n) features=5\n' >norm.graph
sed 's/network = "toy"  classes = 5  input = {10}/graph = "norm.graph"/' run.conf >norm.conf
refused "a last batch of one sample for a batch norm" 78 \
    'the last batch of an epoch has 1 sample: batch norm "n" .*; train.last_batch = "drop" leaves that batch out$' 1 \
    -c norm.conf --batch-size 16 --split-size 8 --epochs 1 --run-dir new
for k in "-o train.last_batch=drop --epochs 2" "-o train.last_batch=fill --epochs 2" "--steps 2"; do
    code=0
    # shellcheck disable=SC2086
    "$mpstaged" -c norm.conf --batch-size 16 --split-size 8 --run-dir norm --overwrite $k \
        >"$aside/out" 2>"$aside/err" </dev/null || code=$?
    ends "where there is none ($k)" 0
done

# ---- resumed ---------------------------------------------------------------------------------------------------------
for last in short drop fill; do
    for at in 3 4 7; do
        run part --overwrite --steps $at -o train.last_batch=$last -o checkpoint.every_steps=$at
        run part --resume --steps 12 -o train.last_batch=$last
        run whole --overwrite --steps 12 -o train.last_batch=$last
        equal "$last: resumed behind step $at" "$(first 12 part)" "$(first 12 whole)"
    done
done
run part --overwrite --steps 4 -o train.last_batch=fill -o checkpoint.every_steps=4
cp -r part other
refused "another last_batch" 78 \
    'train.last_batch was "fill" and is "short" now, which changes results.*--resume=force' 1 \
    -c run.conf --run-dir part --resume --steps 8
run other --steps 8 --resume=force
ends "which --resume=force takes" 0
check "and says" grep -q 'note: results differ .*: train.last_batch was "fill" and is "short" now' other/mpstaged.log
equal "at the next sample at which a batch begins" "$(sizes other)" "10 10 10 10 10 10 3 10 "
run even --steps 3 --batch-size 11 -o train.last_batch=fill -o checkpoint.every_steps=3
run even --steps 6 --batch-size 11 -o train.last_batch=drop --resume
ends "where batches fill an epoch it decides nothing" 0
run large --steps 1 --batch-size 30 -o checkpoint.every_steps=1
run large --steps 3 --resume=force
ends "batches that were larger before" 0
equal "leave the end of an epoch to fewer steps" "$(sizes large)" "30 3 10 "

# A checkpoint that was written before there was such a setting says it in another way; what it does not know at all had
# the default.
if python3 -c 'import ctypes; ctypes.CDLL("libxxhash.so.0")' 2>/dev/null; then
    cat >old.py <<'END'
import ctypes, json, sys
xxh = ctypes.CDLL("libxxhash.so.0")
class H(ctypes.Structure): _fields_ = [("low", ctypes.c_uint64), ("high", ctypes.c_uint64)]
xxh.XXH3_128bits.restype, xxh.XXH3_128bits.argtypes = H, [ctypes.c_char_p, ctypes.c_size_t]
m = json.load(open(sys.argv[1]))
m.pop("manifest_xxh3_128")
m.pop("updates", None)
for key in "train.last_batch", "train.winograd", "train.frozen_type", "model.load_in_8bit": del m["settings"][key]
m["settings"]["a batch over the end of an epoch"] = {"null": None}.get(sys.argv[2], sys.argv[2])
text = json.dumps(m, separators=(",", ":")).encode()
h = xxh.XXH3_128bits(text, len(text))
m["manifest_xxh3_128"] = f"{h.high:016x}{h.low:016x}"
json.dump(m, open(sys.argv[1], "w"))
END
    for k in fill:allowed short:null; do
        last=${k%%:*}
        run old --overwrite --steps 4 -o train.last_batch="$last" -o checkpoint.every_steps=4
        python3 old.py old/checkpoints/step-00000004/manifest.json "${k#*:}"
        rm -rf other; cp -r old other
        run old --steps 12 -o train.last_batch="$last" --resume
        ends "an old checkpoint ($last) goes on" 0
        run whole --overwrite --steps 12 -o train.last_batch="$last"
        equal "with the bits of a run without a break" "$(first 12 old)" "$(first 12 whole)"
        refused "and not with another last_batch" 78 "train.last_batch was .$last. and is .drop. now" 1 \
            -c run.conf --run-dir other --steps 12 -o train.last_batch=drop --resume
        refused "nor with an option that it does not know" 78 'train.winograd was unset and is yes now' 1 \
            -c run.conf --run-dir other --steps 12 -o train.last_batch="$last" -o train.winograd=yes --resume
    done
else skip "old checkpoints go on" "no Python with libxxhash"; fi
check "nobody is left" nobody_left
tap_done
