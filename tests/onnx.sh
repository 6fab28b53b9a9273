#!/bin/sh
# onnx.sh: networks of ONNX files (texts in tests/onnx, which tests/onnx_tool writes as ONNX) give ONNX Runtime's
# outputs, kept in tests/onnx/expected; they train to the same bits for any number of stages, continue, and are taken
# with their external data, and come back when they are written; operators without a counterpart are refused by name,
# and so are damaged files. No Python is needed. tests/onnx_torch.sh has real networks of torch.onnx.
# Tolerance: 1e-5 of the largest number.
set -eu
. "$(dirname -- "$0")/mpi_lib.sh"
tool=$build/tests/onnx_tool texts=$here/onnx
cat >net.conf <<'END'
run      { name = "net" }
model    { graph = "net.onnx" }
data     { source = "npy"  train = "x.npy"  train_labels = "y.npy"  test = "x.npy"  test_labels = "y.npy"
           shuffle = no }
train    { batch_size = 2  split_size = 1  steps = 3  optimizer = "sgd"  learning_rate = 0.01 }
pipeline { stages = 2  partition = "uniform"  profile_spread = 1e9 }
END
if [ ! -x "$tool" ]; then
    refused "without protobuf-c ONNX files are refused" 78 'built without protobuf-c' threads -c net.conf
    skip "all else of ONNX" "apt-get install protobuf-c-compiler libprotobuf-c-dev"
    tap_done
fi
# net NAME: net.onnx, and two samples; sets $kind to the options that its labels need
net() {
    net_input=$(sed -n 's/^input [a-z]* n//p' "$texts/$1.txt")
    "$tool" make "$texts/$1.txt" net.onnx
    case $net_input in
        *I64) "$tool" data x.npy "2${net_input% I64}" 16; "$tool" data y.npy "2${net_input% I64}" 16
            kind="-o data.labels=map" ;;
        *) "$tool" data x.npy "2$net_input"
            "$tool" data y.npy "2x$(sed -n "s/^# outputs //p" "$texts/$1.txt")"
            kind="-o data.labels=vector -o train.loss=mse" ;;
    esac
}
# near TEXT NAME FILE
near() {
    near_worst=$("$tool" check "$texts/expected" "$2" "$3" 2>&1) || near_worst="missing: $near_worst"
    check "$1: outputs within $near_worst" awk -v w="$near_worst" 'BEGIN { exit !(w ~ /^[0-9]/ && w < 1e-5) }'
}
# names FILE: of its weights
names() { tail -c +9 "$1" | tr -d '\0' | grep -ao '"[a-z][a-z0-9_.]*":{"dtype' | sed 's/"//; s/".*//' | sort; }

# ---- outputs and training --------------------------------------------------------------------------------------------
for n in layers norms vit decoder attention; do
    net $n
    job threads -c net.conf $kind --predict p.npy
    [ "$code" -eq 0 ] || why
    near "$n" $n p.npy
    "$tool" make "$texts/$n.txt" net.onnx net.onnx.data
    job threads -c net.conf $kind --predict apart.npy
    [ "$code" -eq 0 ] || why
    check "$n: the same with external data" cmp -s p.npy apart.npy
    trains "$n-1" threads -c net.conf $kind --stages 1
    one=$hash
    trains "$n-3" threads -c net.conf $kind --stages 3 --schedule gpipe
    equal "$n: the same bits from one stage and from three" "$one" "$hash"
    rm net.onnx.data
    "$tool" make "$texts/$n.txt" net.onnx
    job threads -c net.conf $kind --predict trained.npy -o run.directory=$n-1
    job threads -c net.conf $kind --write-onnx back.onnx -o run.directory=$n-1
    job threads -c net.conf $kind --predict back.npy -o model.graph=back.onnx
    check "$n: written as ONNX after training, and read again: the same outputs" cmp -s trained.npy back.npy
done

# ---- other ways to say them ------------------------------------------------------------------------------------------
net layers
sed -e '/^weight se/s/x1x1//' -e 's/^const flat.*/&\nconst pic 4 0 -1 1 1/' -e 's/^l = Add/l = Sum/' \
    -e 's/^g = Conv(f, \(.*\)/fr = Reshape(f, flat)\ng = Gemm(fr, \1 transB=1/' -e 's/HardSigmoid(i)/HardSigmoid(ir)/' \
    -e 's/^i = Conv\(.*\)/i = Gemm\1 transB=1\nir = Reshape(i, pic)/' \
    -e 's/^const flat/const each 3 8 1 1\n&/' \
    -e 's/^a = Conv\(.*\), c1.bias\(.*\)/c1b = Reshape(c1.bias, each)\na0 = Conv\1\2\na = Add(c1b, a0)/' \
    "$texts/layers.txt" >"$aside/other.txt"
"$tool" make "$aside/other.txt" net.onnx
job threads -c net.conf $kind --predict other.npy
[ "$code" -eq 0 ] || why
near "gates of linear layers, a bias by itself, a sum of two" layers other.npy
# Norms whose bias is zero, and without one: as an operator, and in parts.
for n in norms:ln.bias vit:ln1.bias; do
    net ${n%:*}
    rm -f same.npy without.npy
    for to in same without; do
        sed "s/^weight ${n#*:} /zeros ${n#*:} /" "$texts/${n%:*}.txt" >"$aside/other.txt"
        [ $to = same ] ||
            sed -i "s/ = Add(\(.*\), ${n#*:})/ = Identity(\1)/; s/, ${n#*:}//" "$aside/other.txt"
        "$tool" make "$aside/other.txt" net.onnx
        job threads -c net.conf $kind --predict $to.npy
        [ "$code" -eq 0 ] || why
    done
    check "$n: the same without it" cmp same.npy without.npy
done

# Equal vectors of one number, written once for several layers: each has its own, which trains.
net layers
cat >"$aside/bn.txt" <<'END'
opset 17
input x nx3x8x8
weight c.weight 3x3x3x3
ones w1 3
zeros b1 3
ones w2 3
zeros b2 3
ones w3 3
zeros b3 3
weight head.weight 5x192
weight head.bias 5
a = Conv(x, c.weight) pads=[1,1,1,1]
b = BatchNormalization(a, w1, b1, b2, w2)
c = Relu(b)
d = BatchNormalization(c, w3, b3, b2, w2)
f = Flatten(d)
y = Gemm(f, head.weight, head.bias) transB=1
output y
END
for to in apart once; do
    [ $to = apart ] || sed -i 's/(a, .*)/(a, w1, b1, b1, w1)/; s/(c, .*)/(c, w1, b1, b1, w1)/' "$aside/bn.txt"
    "$tool" make "$aside/bn.txt" net.onnx
    trains "bn-$to" threads -c net.conf $kind
    job threads -c net.conf $kind --predict $to.npy -o run.directory=bn-$to
    [ "$code" -eq 0 ] || why
done
check "they give the outputs of vectors of their own" cmp -s apart.npy once.npy
whole=$hash
trains bn-part threads -c net.conf $kind -o train.steps=2 -o checkpoint.every_steps=1
trains bn-part threads -c net.conf $kind --stages 1 --resume
equal "a run with such vectors continues with its bits" "$whole" "$hash"
check "their names differ" [ "$(names bn-part/weights.safetensors | grep -c '^[bw]1\.[2-9]$')" -ge 2 ]

# ---- names, freezing, weights of another file ------------------------------------------------------------------------
net layers
names layers-1/weights.safetensors | grep -v num_batches_tracked >"$aside/has"
sed -n 's/^weight \([^ ]*\) .*/\1/p' "$texts/layers.txt" | sort >"$aside/wants"
check "weights keep the names that the file gives them" cmp -s "$aside/has" "$aside/wants"
job threads -c net.conf $kind --check-config -o run.init_from=net.onnx
equal "a file's weights can be named as run.init_from" "$code" 0
job 2 -c net.conf $kind --run-dir ranks
equal "ranks under mpirun give the same weights" "$(hash_of ranks)" "$(hash_of layers-1)"
job threads -c net.conf $kind --run-dir stopped --steps 2 -o checkpoint.every_steps=1
job threads -c net.conf $kind --run-dir stopped --steps 3 -o checkpoint.every_steps=1 --resume
equal "a run that is continued has the weights of one that was not" \
    "$(hash_of stopped | tail -n 1)" "$(hash_of layers-1)"
job threads -c net.conf $kind --predict trained.npy -o run.directory=layers-1
check "a prediction takes the run's weights, not the file's" sh -c '! cmp -s trained.npy p.npy'
refused "model.input that differs from the file's" 78 'the graph decides, and its input is 3x8x8' \
    threads -c net.conf $kind -o model.input={3,9,9}

# ---- refusals --------------------------------------------------------------------------------------------------------
# net_of LINE...: net.onnx of these lines behind an input x of nx4x6x6 and some weights
net_of() {
    { printf '%s\n' "opset ${opset:-17}" "input x ${input:-nx4x6x6}" "weight w 4x4x3x3" "weight b 4" "const one 1 1"
      printf '%s\n' "$@" "output y"; } >"$aside/of.txt"
    "$tool" make "$aside/of.txt" net.onnx
}
"$tool" data x.npy 2x4x6x6
"$tool" data y.npy 2x4
# takes TEXT LINE...: a network of these lines has the outputs of the first one that was taken
takes() {
    takes_text=$1; shift
    net_of "$@" 'p = GlobalAveragePool(m)' 'y = Flatten(p)'
    rm -f taken.npy
    job threads -c net.conf -o data.labels=vector -o train.loss=mse --predict taken.npy
    [ "$code" -eq 0 ] || why
    [ -e first.npy ] || cp taken.npy first.npy
    check "$takes_text" cmp taken.npy first.npy
}
# ties: of weights of the network in net.onnx
ties() {
    job threads -c net.conf -o data.labels=vector -o train.loss=mse --print-graph
    [ "$code" -eq 0 ] && grep -c '^tie' "$aside/out"
}
c='c = Conv(x, w) pads=[1,1,1,1]' g='g = GlobalAveragePool(c)' s='s = Sigmoid(g)' m='m = Mul(c, s)'
takes "a gate" "$c" "$g" "$s" "$m"
takes "a gate for each point" "$c" "$g" "$s" 'e = Shape(c)' 'f = Expand(s, e)' 'm = Mul(f, c)'
takes "a bias of zeros" 'const n 1 4' 'z = ConstantOfShape(n)' 'c = Conv(x, w, z) pads=[1,1,1,1]' "$g" "$s" "$m"
takes "a concatenation of one" 'k = Concat(x) axis=1' 'c = Conv(k, w) pads=[1,1,1,1]' "$g" "$s" "$m"
takes "shapes that have the number of samples" 'const t 1 0' 'const l 1 -1' 'h = Shape(x)' 'n = Gather(h, t)' \
    'nl = Concat(n, l) axis=0' 'r = Reshape(x, nl)' 'q = Reshape(r, h)' 'c = Conv(q, w) pads=[1,1,1,1]' "$g" "$s" "$m"
takes "all elements by their numbers" 'const l 1 -1' 'const from scalar 0' 'const by scalar 1' "$c" 'h = Shape(c)' \
    'const each scalar 144' 'o = Gather(h, from)' 'n = Mul(o, each)' \
    'r = Range(from, n, by)' 'j = Reshape(r, h)' 'f = Reshape(c, l)' 'd = Gather(f, j)' \
    'g = GlobalAveragePool(d)' "$s" 'm = Mul(d, s)'
# Norms of equal vectors.
rm first.npy
t='t = Transpose(x) perm=[0,2,3,1]' m='m = Transpose(n2) perm=[0,3,1,2]'
takes "two norms" 'ones s 4' 'zeros z 4' 'ones s9 4' 'zeros z9 4' "$t" \
    'n1 = LayerNormalization(t, s, z)' 'n2 = LayerNormalization(n1, s9, z9)' "$m"
for how in Identity Cast; do
    takes "vectors that each has, one behind $how" 'ones s 4' 'zeros z 4' "$t" "si = $how(s) to=1" \
        'n1 = LayerNormalization(t, s, z)' 'n2 = LayerNormalization(n1, si, z)' "$m"
    equal "$how: nothing is tied" "$(ties)" 0
done
"$tool" make "$aside/of.txt" net.onnx net.onnx.data
equal "nor where they lie in another file" "$(ties)" 0
net_of 'ones s 4' 'ones s.2 4' 'zeros z 4' "$t" \
    'n0 = LayerNormalization(t, s, z)' 'n1 = LayerNormalization(n0, s.2, z)' 'n2 = LayerNormalization(n1, s, z)' "$m" \
    'p = GlobalAveragePool(m)' 'y = Flatten(p)'
equal "a vector that has the name of another's second use" "$(ties)" 0
net_of 'zeros z 4' 'c = Conv(x, w, z) pads=[1,1,1,1]' 'd = Conv(c, w, z) pads=[1,1,1,1]' \
    'p = GlobalAveragePool(d)' 'y = Flatten(p)'
equal "a layer that is applied twice is tied, its zeros too" "$(ties)" 2
rm first.npy
k='1 2 3 4 5 6 7 8 9 0 1 2 3 4 5 6' r='r = MatMul(t, k)' a='a = Add(r, s)'
takes "a matrix" "real k 4x4 $k" 'real s 4 1 2 3 4' "$t" "$r" "$a" 'n2 = Identity(a)' "$m"
takes "a matrix behind a dimension of 1" "real k 1x4x4 $k" 'real s 1x1x4 1 2 3 4' "$t" "$r" "$a" 'n2 = Identity(a)' "$m"
rm first.npy
takes "one feature of each point" 'real k 4x1 1 2 3 4' 'real s 1 0.5' "$t" "$r" "$a" \
    'n2 = Concat(a, a, a, a) axis=-1' "$m"
job threads -c net.conf -o data.labels=vector -o train.loss=mse --print-graph
check "and its bias is a weight" grep -q '^name [^ ]*\.bias s$' "$aside/out"
# Padding that differs is a part of what larger padding gives.
rm first.npy
s='const from 2 1 0' e='const to 2 6 5' i='const axes 2 2 3'
takes "a part along two axes" "$s" "$e" "$i" 'c = Conv(x, w) pads=[1,1,1,1]' 'm = Slice(c, from, to, axes)'
takes "in two steps" 'const zero 1 0' 'const two 1 2' 'const three 1 3' 'const five 1 5' 'const six 1 6' \
    'ones s 4x1x1' 'c = Conv(x, w) pads=[1,1,1,1]' \
    'd = Slice(c, one, six, two)' 'f = Mul(d, s)' 'm = Slice(f, zero, five, three)'
takes "padding that differs" 'm = Conv(x, w) pads=[0,1,1,0]'
takes "padding of its own" 'const pads 8 0 0 0 1 0 0 1 0' 'q = Pad(x, pads)' 'm = Conv(q, w)'
takes "padding that two read" 'const pads 8 0 0 0 1 0 0 1 0' 'q = Pad(x, pads)' 'i = Identity(q)' 'd = Conv(i, w)' \
    'h = Shape(d)' 'c = Conv(q, w)' 'm = Reshape(c, h)'
rm first.npy
takes "a part of the input" 'const six 1 6' 'const two 1 2' 'q = Slice(x, one, six, two)' \
    'm = Conv(q, w) pads=[1,1,1,1]'
takes "which padding cuts off" 'const pads 8 0 0 -1 1 0 0 1 1' 'q = Pad(x, pads)' 'm = Conv(q, w) pads=[1,0,0,0]'
rm first.npy
takes "windows two apart" 'const from 2 1 1' 'const to 2 4 4' "$i" 'c = Conv(x, w) strides=[2,2] pads=[2,2,2,2]' \
    'm = Slice(c, from, to, axes)'
takes "behind the points alone" 'm = Conv(x, w) strides=[2,2] pads=[0,0,1,1]'
takes "by auto_pad" 'm = Conv(x, w) strides=[2,2] auto_pad=SAME_UPPER'
opset=18
takes "by axes" 'const pads 4 0 0 1 1' 'const axes 2 -1 2' 'q = Pad(x, pads,, axes)' 'm = Conv(q, w) strides=[2,2]'
opset=10
takes "by an attribute" 'q = Pad(x) pads=[0,0,0,0,0,0,1,1]' 'm = Conv(q, w) strides=[2,2]'
opset=
rm first.npy
takes "windows that end further" 'const from 2 1 1' 'const to 2 4 4' "$i" \
    'c = Conv(x, w) strides=[2,2] pads=[3,3,3,3]' 'm = Slice(c, from, to, axes)'
takes "the lower half of auto_pad" 'm = Conv(x, w) strides=[2,2] auto_pad=SAME_LOWER'
rm first.npy
takes "windows with gaps" 'const from 2 0 2' 'const to 2 4 8' "$i" 'c = Conv(x, w) dilations=[2,2] pads=[2,3,2,3]' \
    'm = Slice(c, from, to, axes)'
takes "whose padding differs" 'm = Conv(x, w) dilations=[2,2] pads=[2,1,0,3]'
rm first.npy
f='f = Flatten(d)' g='g = Gemm(f, v)' m4='m = Reshape(g, four)' k='const four 4 -1 4 1 1'
takes "a part along one axis, then another, as a row" "$k" 'const two 1 2' 'const three 1 3' 'const six 1 6' \
    'weight v 100x4' 'ones s 4x1x1' 'c = Conv(x, w) pads=[1,1,1,1]' 'a = Slice(c, one, six, two)' 'h = Mul(a, s)' \
    'l = Slice(h, one, six, three)' 'd = Mul(l, s)' "$f" "$g" "$m4"
takes "both at once" "$k" 'const from 2 1 1' 'const to 2 6 6' "$i" 'weight v 100x4' 'c = Conv(x, w) pads=[1,1,1,1]' \
    'd = Slice(c, from, to, axes)' "$f" "$g" "$m4"
takes "of a convolution" "$k" 'weight v 100x4' 'd = Conv(x, w) pads=[0,0,1,1]' "$f" "$g" "$m4"
rm first.npy
k='k = Concat(a, l, a, l) axis=1' r='m = Relu(k)'
takes "channels of two convolutions" 'weight v 1x4x3x3' 'weight u 1x4x3x3' 'a = Conv(x, v)' 'l = Conv(x, u)' "$k" "$r"
takes "which are parts" 'weight v 1x4x3x3' 'weight u 1x4x3x3' 'const from 2 1 1' 'const to 2 5 5' "$i" \
    'c = Conv(x, v) pads=[1,1,1,1]' 'a = Slice(c, from, to, axes)' 'd = Conv(x, u) pads=[1,1,1,1]' \
    'l = Slice(d, from, to, axes)' "$k" "$r"

rm first.npy
takes "a part of a transposed convolution" 'const from 2 0 1' 'const to 2 7 8' "$i" 'c = ConvTranspose(x, w)' \
    'm = Slice(c, from, to, axes)'
takes "whose padding differs" 'm = ConvTranspose(x, w) pads=[0,1,1,0]'
rm first.npy
takes "a norm before a function" 'ones s 4' 'zeros z 4' "$t" 'n1 = LayerNormalization(t, s, z) epsilon=1e-5' \
    'r = Relu(n1)' 'n2 = Add(r, n1)' "$m"
takes "in parts and without a bias" 'ones s 4' 'real e scalar 1e-5' "$t" 'a = ReduceMean(t) axes=[-1]' \
    'd = Sub(t, a)' 'q = Mul(d, d)' 'v = ReduceMean(q) axes=[-1]' 'f = Add(v, e)' 'i = Sqrt(f)' 'u = Div(d, i)' \
    'n1 = Mul(u, s)' 'r = Relu(n1)' 'n2 = Add(r, n1)' "$m"
# Sizes that are rounded down from a product of FLOAT, in double a little less than 14.
"$tool" data x.npy 2x4x10x10
rm first.npy
input=nx4x10x10 h='h = Shape(x)' m='m = Resize(x,,, sizes) mode=linear'
n='n = Slice(h, z, two, z)' sizes='sizes = Concat(n, s) axis=0'
takes "sizes" "$h" 'const z 1 0' 'const two 1 2' "$n" 'const s 2 14 14' "$sizes" "$m"
takes "sizes that are computed" "$h" 'const z 1 0' 'const two 1 2' "$n" 'const four 1 4' 'q = Slice(h, two, four, z)' \
    'f = Cast(q) to=1' 'real k scalar 1.4' 'g = Mul(f, k)' 'r = Floor(g)' 's = Cast(r) to=7' "$sizes" "$m"
input=
"$tool" data x.npy 2x4x6x6
for op in Acos Acosh AffineGrid And ArgMax Bernoulli BitShift BlackmanWindow Celu Col2Im Compress ConvInteger \
    DeformConv DepthToSpace DequantizeLinear Det DFT DynamicQuantizeLinear Einsum EyeLike GRU GatherElements \
    GlobalLpPool GlobalMaxPool GridSample Hardmax If LRN LSTM Loop \
    LpNormalization MaxRoiPool MaxUnpool \
    MelWeightMatrix NonMaxSuppression NonZero OneHot QLinearConv QuantizeLinear RNN RandomNormal \
    ReverseSequence RoiAlign Scan ScatterND SequenceAt Shrink SpaceToDepth StringNormalizer \
    TfIdfVectorizer ThresholdedRelu TopK Unique; do
    net_of "y = $op(x)"
    refused "$op" 65 "net.onnx: node y \($op\): " threads -c net.conf
done
# says TEXT PATTERN LINE...: net.onnx of these lines is refused so
says() {
    says_text=$1 says_pattern=$2; shift 2
    net_of "$@"
    refused "$says_text" 65 "net.onnx: $says_pattern" threads -c net.conf
}
says "an operator of another domain" 'node y \(Attention\): an operator of the domain com.microsoft' \
    'y = com.microsoft:Attention(x)'
says "padding that differs" 'node y \(MaxPool\): padding that differs' \
    'y = MaxPool(x) kernel_shape=[3,3] pads=[0,0,1,1]'
says "padding that no convolution follows" 'node y \(Relu\): padding, which only Conv can follow' \
    'const p 8 0 0 1 1 0 0 1 1' 'q = Pad(x, p)' 'y = Relu(q)'
says "channels of zeros" 'node q \(Pad\): padding of more than points' 'const p 8 0 1 1 1 0 0 1 1' 'q = Pad(x, p)' \
    'y = Conv(q, w)'
says "padding that reflects" 'node q \(Pad\): padding with other' 'const p 8 0 0 1 1 0 0 1 1' \
    'q = Pad(x, p) mode=reflect' 'y = Conv(q, w)'
says "padding of what is repeated" 'node q \(Pad\): it takes part of what was repeated' 'const a 1 3' \
    'const e 5 1 1 1 2 1' 'const r 4 0 4 12 6' 'const p 8 0 0 -1 0 0 0 -10 0' 'u = Unsqueeze(x, a)' 'v = Expand(u, e)' \
    's = Reshape(v, r)' 'q = Pad(s, p)' 'y = Conv(q, w)'
says "padding of an axis that is named twice" 'node q \(Pad\): an axis is named twice' 'const p 4 1 1 0 0' \
    'const a 2 2 -2' 'q = Pad(x, p,, a)' 'y = Conv(q, w)'
says "pads beside auto_pad" 'node y \(Conv\): pads beside auto_pad' 'y = Conv(x, w) auto_pad=VALID pads=[1,1,1,1]'
says "too many groups" 'node y \(ConvTranspose\): 4611686018427387904 groups' \
    'y = ConvTranspose(x, w) group=4611686018427387904'
says "padding by ones" 'node q \(Pad\): padding with other' 'const p 8 0 0 1 1 0 0 1 1' 'q = Pad(x, p, one)' \
    'y = Conv(q, w)'
says "a mean that leaves out its padding" 'node y \(AveragePool\): count_include_pad=0' \
    'y = AveragePool(x) kernel_shape=[3,3] pads=[1,1,1,1]'
says "windows beyond the padding" 'node y \(MaxPool\): ceil_mode' \
    'y = MaxPool(x) kernel_shape=[4,4] strides=[4,4] ceil_mode=1'
says "an input that is missing" 'node y \(Add\): its input 1 is missing' 'y = Add(x)'
says "an input that does not exist" 'node y \(Add\): its input z does not exist' 'y = Add(x, z)'
says "a shape that is not known" 'node y \(Reshape\): its shape is not known' 'y = Reshape(x, x)'
says "a function that we do not have" 'node y \(Relu\): no operator of ours has its values' \
    'a = Softplus(x)' 'y = Relu(a)'
says "a weight of another shape" 'node y \(BatchNormalization\): the weight w is 4x4x3x3, and 4 is needed' \
    'y = BatchNormalization(x, w, b, b, b)'
says "a weight that is computed" 'node y \(Conv\): a weight that is computed' 'v = Mul(w, w)' 'y = Conv(x, v)'
says "a quotient of activations" 'node y \(Div\): there is no counterpart' \
    'a = Conv(x, w) pads=[1,1,1,1]' 'y = Div(a, x)'
says "an output that depends on nothing" \
    'node y \(Add\): its output does not depend on its input' 'a = Relu(x)' 'y = Add(one, one)'
says "two inputs" 'more than one input' 'input z nx4x6x6' 'y = Add(x, z)'
# Each of these was once read as another network.
says "one of the samples" 'node a \(Slice\): it takes some of the samples' 'const z 1 0' 'const e 1 1' \
    'a = Slice(x, z, e, z)' 'y = Add(x, a)'
says "the first sample" 'node a \(Gather\): it takes some of the samples' 'const z 1 0' 'a = Gather(x, z)' \
    'y = Add(x, a)'
says "two of the samples" 'node a \(Slice\): it takes some of the samples' 'const z 1 0' 'const e 1 2' \
    'a = Slice(x, z, e, z)' 'y = Add(x, a)'
h='h = Shape(x)' i='const i 1 0' n='n = Gather(h, i)' on='depends on the number of samples'
says "the last sample" "node a \\(Slice\\): its input 1 $on" "$h" "$i" "$n" 'const k 1 1' 'f = Sub(n, k)' \
    'const e 1 9223372036854775807' 'a = Slice(x, f, e, i)' 'y = Add(x, a)'
says "the number of samples as a factor" "node y \\(Mul\\): its input 1 $on" "$h" "$i" "$n" 'f = Cast(n) to=1' \
    'y = Mul(x, f)'
says "channels up to that number" "node a \\(Slice\\): its end $on" "$h" "$i" "$n" 'const k 1 1' \
    'a = Slice(x, i, n, k)' 'y = Relu(a)'
says "points of that number" "node y \\(Resize\\): .* sizes depend" "$h" "$i" "$n" 'const c 3 1 4 6' \
    'const t 1 6' 'u = Mul(n, t)' 'g = Concat(c, u) axis=0' \
    'y = Resize(x,,, g) coordinate_transformation_mode=asymmetric'
says "one sample of all" 'node y \(Resize\): it changes the number' 'const g 4 1 4 12 12' \
    'y = Resize(x,,, g) coordinate_transformation_mode=asymmetric'
for op in 'InstanceNormalization(e, b, b)' 'GlobalAveragePool(e)'; do
    says "${op%(*} across samples" "node y \\(${op%(*}\\): .*samples" 'r = Relu(x)' 'const s 3 0 4 -1' \
        'a = Reshape(r, s)' 'const z 1 0' 'd = Unsqueeze(a, z)' 'e = Transpose(d) perm=[0,2,1,3]' "y = $op"
done
says "gates of which one is repeated" 'node m \(Mul\): its operands do not fit' 'g = GlobalAveragePool(x)' \
    's = Sigmoid(g)' "$h" 'f = Expand(s, h)' 'm = Mul(g, f)' 'y = Conv(m, w) pads=[1,1,1,1]'
says "a weight of more dimensions" 'node y \(Add\): known numbers of more dimensions' 'weight v 1x1x4x1x1' \
    'c = Conv(x, w)' 'y = Add(c, v)'
says "a gate of more dimensions" 'node y \(Mul\): its operands do not fit' 'c = Conv(x, w) pads=[1,1,1,1]' \
    'g = GlobalAveragePool(c)' 'const z 1 0' 'u = Unsqueeze(g, z)' 'y = Mul(c, u)'
rows='t = Transpose(x) perm=[0,2,1,3]' far='const s 3 -1 4 6'
says "a norm of rows as samples" 'node y \(InstanceNormalization\): the first dimension' "$rows" "$far" \
    'a = Reshape(t, s)' 'y = InstanceNormalization(a, b, b)'
says "groups of some channels" 'node c \(InstanceNormalization\): the first dimension' 'r = Relu(x)' \
    'const s 3 -1 2 36' 'a = Reshape(r, s)' 'ones u 2' 'zeros z 2' 'c = InstanceNormalization(a, u, z)' \
    'const q 4 -1 4 6 6' 'd = Reshape(c, q)' 'weight g 4x1x1' 'e = Mul(d, g)' 'y = Add(e, g)'
says "a mean over no axes" 'node y \(ReduceMean\): its axes are not known' 'const e 0' 'y = ReduceMean(x, e)'
says "one point by another rule" 'node y \(Resize\): pytorch_half_pixel to one point' 'real k 4 1 1 0.16666667 1' \
    'y = Resize(x,, k) mode=linear coordinate_transformation_mode=pytorch_half_pixel'
input=nx4x7x6 says "a scale that is a little less" 'node y \(Resize\): scales that do not give' \
    'real k 4 1 1 4.428571 1' 'y = Resize(x,, k) mode=linear'
says "an input that nothing changes" 'node y \(Expand\): it has no layer' \
    'c = Conv(x, w) pads=[1,1,1,1]' "$h" 'y = Expand(x, h)'
says "an axis of channels and points" 'node y \(Reshape\): an axis of its output' 'r = Relu(x)' \
    'const s 5 0 2 2 6 6' 'a = Reshape(r, s)' 'const q 4 0 2 12 6' 'y = Reshape(a, q)'
scores='s = MatMul(i, t)' i='const s4 4 0 1 8 6'
for mask in 'zeros z 2x1x1' 'zeros z 1x2x1x1'; do
    input=nx8x6 says "a mask of more heads (${mask##* })" 'node s2 \(Add\): a mask that does not fit' \
        "$mask" "$i" \
        'i = Reshape(x, s4)' 't = Transpose(i) perm=[0,1,3,2]' "$scores" 's2 = Add(s, z)' 'p = Softmax(s2)' \
        'y = MatMul(p, i)'
done
input=nx8x6 says "scores with other dimensions" 'node y \(MatMul\): its scores were put' "$i" 'i = Reshape(x, s4)' \
    't = Transpose(i) perm=[0,1,3,2]' "$scores" 'const q 4 0 8 1 8' 's2 = Reshape(s, q)' 'p = Softmax(s2)' \
    'y = MatMul(p, i)'
says "batches of known matrices" 'node c \(MatMul\): batches of matrices' 'weight l 2x1x1x4' 'weight r 1x2x4x1' \
    'c = MatMul(l, r)' 'y = Mul(x, c)'
big='[1111111111111111111,2222222222222222222,3333333333333333333]'
for what in kernel_shape strides pads dilations output_padding; do
    value=$big
    [ $what != pads ] || value=${big%]},${big#[}
    input=nx4x6x6x6 says "$what without a measure" 'node y \(ConvTranspose\): .* [0-9]+' 'weight k 4x4x3x3x3' \
        "y = ConvTranspose(x, k) $what=$value"
done
says "samples behind channels" 'node y \(Transpose\): samples are not the first dimension of its output' \
    'r = Relu(x)' 'y = Transpose(r) perm=[1,0,2,3]'
says "samples in another order" 'node y \(Reshape\): it does not keep samples apart' \
    'const s 4 -1 4 6 6' 'r = Relu(x)' 't = Transpose(r) perm=[1,2,3,0]' 'y = Reshape(t, s)'
says "one shape for all samples" 'node y \(Reshape\): samples are not the first' 'const s 2 1 -1' 'r = Relu(x)' \
    'y = Reshape(r, s)'
says "a mean over samples" 'node y \(ReduceMean\): a mean over samples' 'y = ReduceMean(x) axes=[0]'
says "joined samples" 'node y \(Concat\): it joins samples' 'r = Relu(x)' 'y = Concat(x, r) axis=0'
says "every second row" 'node y \(Relu\): it takes elements in an order' 'const z 1 0' 'const six 1 6' 'const ax 1 2' \
    'const two 1 2' 'a = Slice(x, z, six, ax, two)' 'y = Relu(a)'
says "limits that no function of ours has" 'node y \(Relu\): no operator of ours has its values' 'real l scalar -10' \
    'real h scalar 10' 'a = Clip(x, l, h)' 'y = Relu(a)'
says "a number that is small but added" 'node y \(Relu\): no operator' 'real e scalar 3e-6' \
    'a = Add(x, e)' 'y = Relu(a)'
says "rows of one point for columns" 'node y \(Conv\): its points are in another order' 'const s 4 0 4 36 1' \
    'weight u 4x4x3x1' 'const t 4 0 4 1 36' 'a = Reshape(x, s)' 'r = Relu(a)' 'c = Reshape(r, t)' 'y = Conv(c, u)'
says "an output whose points are exchanged" 'node y \(Transpose\): its output has its points in another order' \
    'r = Relu(x)' 'y = Transpose(r) perm=[0,1,3,2]'
opset=11 says "a softmax over several axes" 'node y \(Softmax\): before opset 13' 'y = Softmax(x) axis=1'
says "a rounding of Resize that is not ours" 'node y \(Resize\): mode nearest with asymmetric and ceil' \
    'real k 4 1 1 2 2' \
    'y = Resize(x,, k) mode=nearest coordinate_transformation_mode=asymmetric nearest_mode=ceil'
says "a weight of a norm along another axis" 'node y \(Mul\): its factors are not one' \
    'weight lw 36x1' 'real two scalar 2' 'const s 3 0 4 -1' 'i = Reshape(x, s)' 't = Transpose(i) perm=[0,2,1]' \
    'q = Pow(t, two)'     'm = ReduceMean(q) axes=[-1]' 'r = Sqrt(m)' 'n = Div(t, r)' 'y = Mul(n, lw)'
says "a mean over samples" 'node y \(ReduceMean\): a mean over samples' 'y = ReduceMean(x) axes=[0,2,3] keepdims=0'
input=2x4x6x6 says "a batch that is fixed" 'its input is of 2 samples' 'y = Relu(x)'
input=nx4xhxw says "dimensions that are open" \
    'dimension 2 of its input, h, is open: model.input decides it' 'y = Relu(x)'
input=nx4xhxw net_of 'a = GlobalAveragePool(x)' 'y = Flatten(a)'
job threads -c net.conf -o model.input={4,6,6} -o data.labels=vector -o train.loss=mse --check-config
equal "model.input decides them" "$code" 0
input=nx4x6 says "a mask that is not causal" 'node s2 \(Add\): a mask that is neither causal nor empty' \
    'real mask 6x6 0 -1e30' 'weight v 4x12' 'i = Transpose(x) perm=[0,2,1]' \
    'a = MatMul(i, v)' 'q, k, u = Split(a) axis=2 num_outputs=3' \
    't = Transpose(k) perm=[0,2,1]' 's = MatMul(q, t)' \
    's2 = Add(s, mask)' 'p = Softmax(s2) axis=-1' 'y = MatMul(p, u)'
net_of 'y = Relu(x)'
cp net.onnx "$aside/whole"
head -c 60 "$aside/whole" >net.onnx
refused "a file that was cut off" 65 'net.onnx: this is no ONNX file, or' threads -c net.conf
echo "graph net" >net.onnx
refused "graph text under this name" 65 'net.onnx: this is no ONNX file, or' threads -c net.conf
: >net.onnx
refused "an empty file" 65 'net.onnx: ' threads -c net.conf
rm net.onnx
refused "a file that is missing" 66 'net.onnx: ' threads -c net.conf
"$tool" make "$texts/layers.txt" net.onnx net.data
"$tool" data x.npy 2x3x8x8
rm net.data
refused "external data that are missing" 66 'net.data: ' threads -c net.conf $kind
tap_done
