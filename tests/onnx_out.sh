#!/bin/sh
# onnx_out.sh: --write-onnx writes the weights that a prediction takes, whole or not at all, and the same bytes whatever
# the run was cut into. With onnx and onnxruntime at hand (python3, or $MPSTAGED_PYTHON): what the checker says, and
# outputs of ONNX Runtime beside the reference kernels' for every operator, beside predictions for networks. These have
# an eighth of their channels; LONG=1: all networks.
# Tolerance: 1e-5 of the largest output. Sums of another order differ by some 1e-7 a layer.
set -eu
. "$(dirname -- "$0")/mpi_lib.sh"
tool=$build/tests/onnx_ops lm_tool=$build/tests/decoder_tool models=$here/lm/models pictures=$here/images
if [ ! -x "$tool" ]; then echo "1..0 # SKIP built without protobuf-c: apt-get install libprotobuf-c-dev"; exit 77; fi

# exports FILE OPTIONS...: one process writes that file, and says where the weights come from
exports() {
    exports_file=$1 code=0; shift
    "$mpstaged" "$@" --write-onnx "$exports_file" >"$aside/out" 2>"$aside/err" </dev/null || code=$?
    if [ "$code" -eq 0 ] && [ -s "$exports_file" ] && [ ! -s "$aside/err" ]; then ok "$exports_file"
    else why; not_ok "$exports_file: $code"; fi
}
said() { check "$1" grep -qE -- "$2" "$aside/out"; }
no_rests() { check "$1: nothing is left" sh -c '! ls -A | grep "^\.mpstaged-\|^new\.onnx"'; }

# ---- which weights ---------------------------------------------------------------------------------------------------
mkdir -p train/apple train/pear
cp "$pictures"/rgb.jpg "$pictures"/whole.jpg "$pictures"/turned[1-4].jpg train/apple
cp "$pictures"/grey.jpg "$pictures"/ink.jpg "$pictures"/turned[5-8].jpg train/pear
cat >net.graph <<'EOF'
graph small
input input 3x24x24
conv1 = conv(input) channels=8 kernel=3 padding=1 bias=no
bn1 = batch_norm(conv1)
relu1 = relu(bn1)
pool1 = max_pool(relu1) kernel=2
conv2 = conv(pool1) channels=16 kernel=3 padding=1
relu2 = relu(conv2)
pool = global_avg_pool(relu2)
flat = flatten(pool)
drop = dropout(flat) p=0.1
fc = linear(drop) features=2
output fc
EOF
cat >images.conf <<'EOF'
run      { name = "images" }
model    { graph = "net.graph" }
data     { source = "images"  train = "train"  test = "train"
           mean = {0.485, 0.456, 0.406}  std = {0.229, 0.224, 0.225} }
train    { batch_size = 6  split_size = 3  epochs = 3  learning_rate = 0.1  ema = 0.5  evaluate_every = 2 }
service  { progress = "no" }
pipeline { partition = "uniform"  profile_spread = 1e9 }
checkpoint { every_steps = 2  best = "accuracy"  keep = 9 }
EOF
for n in 1 2 4; do
    trains stages-$n threads -c images.conf --stages $n
    exports stages-$n.onnx -c images.conf --run-dir stages-$n
    check "$n stages: the same bytes" cmp stages-1.onnx stages-$n.onnx
done
said "the best checkpoint's weights, as predictions take them" \
    '^stages-4.onnx: [0-9]+ nodes, .*; weights: stages-4/checkpoints/step-[0-9]*, the best checkpoint: accuracy'
check "with names of classes" grep -aq 'classes.*\["apple","pear"\]' stages-1.onnx
check "and means" grep -aq 'mean.*\[0.485,0.456,0.406\]' stages-1.onnx
check "without dropout" sh -c '! grep -aqi dropout stages-1.onnx'
exports final.onnx -c images.conf --init-from stages-1/weights.safetensors
check "averages differ from the weights" sh -c '! cmp -s final.onnx stages-1.onnx'
exports any.onnx -c images.conf --run-dir stages-1 --device cuda --stages 3 --precision bf16
check "a configuration for GPUs: the same bytes" cmp stages-1.onnx any.onnx
mpirun_n 2 "$mpstaged" -c images.conf --run-dir stages-1 --write-onnx ranks.onnx >"$aside/out" 2>"$aside/err" </dev/null
check "under mpirun one process writes it" cmp stages-1.onnx ranks.onnx

# ---- two files -------------------------------------------------------------------------------------------------------
exports out.onnx -c images.conf --run-dir stages-1 -o model.max_shard_size=4000
said "both are named" '^out.onnx: .*, and .* in out.onnx.data; '
# 9 tensors, each at a multiple of 4096 bytes: one is larger than that, and the last has 2 values.
equal "bytes of the weights" "$(wc -c <out.onnx.data)" $((9 * 4096 + 2 * 4))
check "the rest is small" [ "$(wc -c <out.onnx)" -lt 4000 ]
cp out.onnx out.onnx.data "$aside"
exports out.onnx -c images.conf --run-dir stages-4 -o model.max_shard_size=4000
check "in place of the first: the same bytes" \
    sh -c "cmp out.onnx '$aside/out.onnx' && cmp out.onnx.data '$aside/out.onnx.data'"

# ---- what is refused -------------------------------------------------------------------------------------------------
write="threads -c images.conf --run-dir stages-1 --write-onnx"
refused "another kind of file" 64 'write-onnx new.pt: expected FILE.onnx' $write new.pt
refused "two modes" 64 'cannot be combined' $write new.onnx --plan
refused "a prediction, too" 64 'cannot be combined with --predict' $write new.onnx --predict new.csv
refused "no weights" 66 '^mpstaged: nothing: .*; an ONNX file needs the weights of a run that has trained' \
    threads -c images.conf --run-dir nothing --write-onnx new.onnx
refused "a folder that is not there" 73 '^mpstaged: none/new.onnx' $write none/new.onnx
mkdir folder.onnx both.onnx.data
refused "a folder of that name" 73 '^mpstaged: folder.onnx' $write folder.onnx
refused "a folder in place of the weights" 73 '^mpstaged: both.onnx.data' $write both.onnx \
    -o model.max_shard_size=4000
sed 's/features=2/features=5/' net.graph >five.graph
refused "weights of another network" 65 'fc\.weight has shape 2x16, the model has 5x16' $write new.onnx \
    -o model.graph=five.graph --init-from stages-1/weights.safetensors
refused "weights that a run would draw" 65 'fc.weight is in no file' $write new.onnx -o model.graph=five.graph \
    -o 'run.init_missing={"fc"}' --init-from stages-1/weights.safetensors
sed 's/^input.*/&\ninput at 1 I32\ninput slot 1 I32/
    s/^flat = .*/row = flatten(pool) first=1\nmix = cached_attention(row, row, row, at, slot) context=4\n&/
    s/\nflat = flatten(pool)/\nflat = flatten(mix)/' net.graph >cached.graph
refused "an operator without a counterpart" 65 '^mpstaged: cached.graph:13: mix: ONNX .* cached_attention' \
    $write new.onnx -o model.graph=cached.graph
no_rests "refused"
cp -r stages-1 damaged
find damaged -name 'model*.safetensors' -exec sh -c 'printf x | dd of="$1" bs=1 seek=300 conv=notrunc' - {} \; \
    2>"$aside/dd"
refused "a damaged checkpoint" 65 'damaged/checkpoints/.*model' threads -c images.conf --run-dir damaged \
    --write-onnx new.onnx
# limited OPTIONS...: files have at most 4 KiB; in blocks of 512 bytes
limited() {
    code=0
    (ulimit -f 8; exec "$mpstaged" -c images.conf --run-dir stages-1 "$@") >"$aside/out" 2>"$aside/err" || code=$?
}
limited --write-onnx new.onnx
check "no room: 74" [ "$code" -eq 74 ]
check "and the file is named" grep -q '^mpstaged: new.onnx: File too large' "$aside/err"
no_rests "no room"
limited --write-onnx out.onnx -o model.max_shard_size=4000
check "no room for the weights: 74" [ "$code" -eq 74 ]
check "and the files before stay" \
    sh -c "cmp out.onnx '$aside/out.onnx' && cmp out.onnx.data '$aside/out.onnx.data'"

# ---- language models -------------------------------------------------------------------------------------------------
# lm SETTINGS: the file lm.conf
lm() {
    cat >lm.conf <<EOF
run      { name = "lm" }
model    { folder = "$aside/$1"  input = {32} }
data     { source = "npy"  labels = "map"  train = "$aside/tokens.npy"  train_labels = "$aside/labels.npy"
           test = "$aside/tokens.npy"  test_labels = "$aside/labels.npy" }
train    { batch_size = 3  split_size = 3  steps = 2  optimizer = "adamw"  learning_rate = 0.01 }
pipeline { stages = 2  partition = "uniform"  profile_spread = 1e9 }
$2
EOF
}
# near NAME: what our reader has made of a file gives the values that it was written for
near() {
    far=$("$lm_tool" far "$nets/$1-y.npy" "$aside/z.npy" || echo missing)
    check "$1: read back, within $far" awk -v w="$far" 'BEGIN { exit !(w != "missing" && w < 1e-6) }'
    rm -f "$aside/z.npy"
}
nets=$aside/nets
mkdir "$nets"
"$lm_tool" data "$aside"
all=$(sed -n 's/^\([a-z][^ ]*\) .*/\1/p' "$models")
for m in $all; do
    "$lm_tool" folder "$models" "$m" "$aside/$m"
    lm "$m" ''
    exports "$nets/$m.onnx" -c lm.conf
    job threads -c lm.conf --predict "$nets/$m-y.npy" --run-dir "$m"
    [ "$code" -eq 0 ] || why
    # A network for documents that do not see each other has positions as an input: here texts begin at 0.
    exports "$nets/$m-apart.onnx" -c lm.conf -o data.source=tokens -o data.train_tokens="{\"$aside/tokens.npy\"}" \
        -o data.documents=apart -o data.end_token=3
    check "$m: tokens are the only input" sh -c "! grep -aq positions '$nets/$m-apart.onnx'"
    for x in "$m" "$m-apart"; do
        cp "$aside/tokens.npy" "$nets/$x-x.npy"
        [ "$x" = "$m" ] || cp "$nets/$m-y.npy" "$nets/$x-y.npy"
    done
    [ "$m" != llama-3 ] || continue                        # our reader takes angles with one base only
    sed -i 's,^model.*,model { graph = "'"$nets/$m"'.onnx" },' lm.conf
    job threads -c lm.conf --init-from "$nets/$m.onnx" --predict "$aside/z.npy" --run-dir "$m"
    near "$m"
done
lm qwen2 'lora { rank = 4  merge = yes }'
trains adapters threads -c lm.conf
exports adapters.onnx -c lm.conf --run-dir adapters
lm qwen2 ''
exports merged.onnx -c lm.conf -o model.folder=adapters/model
check "adapters are added, as lora.merge does" cmp adapters.onnx merged.onnx
lm qwen2 'lora { rank = 4 }'
refused "adapters of another base" 78 'lora.init_from.*other base weights' threads -c lm.conf --run-dir adapters \
    -o model.folder=adapters/model --write-onnx new.onnx

# ---- ONNX Runtime ----------------------------------------------------------------------------------------------------
python=${MPSTAGED_PYTHON:-python3}
if ! python_has numpy onnx onnxruntime; then
    skip "what ONNX Runtime computes" \
        "python3 -m venv v && v/bin/pip install onnx onnxruntime; then MPSTAGED_PYTHON=v/bin/python"
    tap_done
fi
# compared DIR: all files there
compared() {
    (cd "$1" && ls ./*.onnx) | sed 's,./\(.*\).onnx,\1,' >"$aside/names"
    xargs "$python" -B "$here/onnx_out.py" "$1" <"$aside/names" >"$aside/compared" 2>"$aside/err" || why
    results_of "$aside/compared"
    equal "all of $1 were compared" "$(grep -c '^\(not \)\{0,1\}ok' "$aside/compared")" "$(wc -l <"$aside/names")"
}
mkdir "$aside/ops"
"$tool" ops "$aside/ops" >"$aside/out"
compared "$aside/ops"

# An eighth of the channels, where they are at least 16.
thin() {
    awk '{ n = split($0, w, " "); s = ""
           for (i = 1; i <= n; i++) {
               if (match(w[i], /^(channels|features|groups)=[0-9]+$/)) {
                   split(w[i], v, "=")
                   if (v[2] % 8 == 0 && v[2] >= 16 && w[3] != "group_norm") w[i] = v[1] "=" v[2] / 8
               }
               s = s (i > 1 ? " " : "") w[i]
           }
           print s }'
}
# plain: of graph text the operators and attributes that count when it computes, without names. Files have floats.
plain() {
    sed -n 's/^[^=]* = \([a-z_0-9]*\)([^)]*)/\1/p' | sed '/^dropout/d; /^stochastic_depth/d; s/ layer=.*//
        /^mse/d; s/ value=[^ ]*//; /^upsample/s/ size=[^ ]*//' |
        awk '{ for (i = 2; i <= NF; i++) {
                   k = index($i, "="); v = substr($i, k + 1)
                   if (v ~ /^[0-9.e-]+$/) $i = substr($i, 1, k) sprintf("%.5g", v)
                   if ($i == "eps=1e-05" || $i == "momentum=0.1") $i = "" }
               print }' | tr -s ' ' | sed 's/ $//'
}
for net in $(cases "toy:10 mlp:49 resnet18:3x64x64 mobilenet_v3_small:3x64x64 convnext_tiny:3x64x64 vit_b_32:3x96x96
        unet_bilinear:3x32x32 unet3d:1x16x16x16" \
        "resnet50:3x64x64 vgg11:3x40x40 vgg13_bn:3x32x32 densenet121:3x64x64 mobilenet_v2:3x64x64
        mobilenet_v3_large:3x64x64 efficientnet_b0:3x64x64 convnext_small:3x64x64 vit_b_16:3x64x64 vit_l_16:3x32x32
        unet:3x32x32 vnet:1x16x16x16 vnet_eisen:1x16x16x16"); do
    shape=${net#*:} net=${net%%:*}
    hidden=
    [ "$net" != mlp ] || hidden='hidden = {64, 32}'
    cat >net.conf <<EOF
run      { name = "$net" }
model    { network = "$net"  classes = 10  input = {$(echo "$shape" | tr x ,)}  $hidden }
data     { source = "synthetic"  labels = "vector" }
train    { batch_size = 4  split_size = 4  steps = 2  loss = "mse"  learning_rate = 0.001 }
pipeline { partition = "uniform"  stages = 1  profile_spread = 1e9 }
EOF
    case $net in vnet*) ;; *)                              # they begin by repeating one channel 16 times
        "$mpstaged" -c net.conf --print-graph | thin >net.graph
        sed -i 's,^model.*,model { graph = "net.graph" },' net.conf ;;
    esac
    trains "$net" threads -c net.conf
    case $net in resnet*) most=100000 ;; *) most=2000000000 ;; esac   # some have their weights in another file
    exports "$nets/$net.onnx" -c net.conf --run-dir "$net" -o model.max_shard_size=$most
    "$tool" values "$shape" "$nets/$net-x.npy"
    job threads -c net.conf -o data.source=npy -o data.test="$nets/$net-x.npy" --predict "$nets/$net-y.npy" \
        --run-dir "$net"
    [ "$code" -eq 0 ] || why
    case $net in vnet*|vgg*) continue ;; esac              # our reader takes neither Tile nor products with constants
    "$mpstaged" -c net.conf --print-graph | plain >"$aside/had"
    sed -i 's,^model.*,model { graph = "'"$nets/$net"'.onnx" },' net.conf
    "$mpstaged" -c net.conf --print-graph | plain >"$aside/has"
    check "$net: read back, the same operators" cmp "$aside/had" "$aside/has"
    job threads -c net.conf -o data.source=npy -o data.test="$nets/$net-x.npy" --predict "$aside/z.npy" \
        --init-from "$nets/$net.onnx"
    near "$net"
done
compared "$nets"
tap_done
