#!/bin/sh
# gpu_tiers.sh: weights and optimizer state beyond a GPU's memory lie in the host's memory (pipeline.host_memory), on
# disk, or partly in both. With doubles of the libraries (tests/gpu/doubles) and streams of random speed: the bits of a
# run with all of it on the GPU, over both transports, in bfloat16, and resumed with other limits. What does not fit is
# refused; no pinned memory, or a GPU that is lost, ends the run in a line.
set -eu
. "$(dirname -- "$0")/mpi_lib.sh"
mpstaged=$build/tests/gpu/mpstaged-double
[ -x "$mpstaged" ] || { echo "1..0 # SKIP no C++ compiler"; exit 77; }
export DOUBLE_DELAY_US=60
mkdir disk
awk 'BEGIN { srand(5); for (i = 0; i < 400; i++) printf "%c", 33 + int(60 * rand()) }' >"$aside/tokens.bin"
sizes='network = "llama"  hidden_size = 128  intermediate_size = 256  num_hidden_layers = 4  num_attention_heads = 2'
sizes="$sizes  vocab_size = 96  max_position_embeddings = 8"
cat >full.conf <<END
run      { name = "lm"  device = "cuda"  transport = "staged" }
model    { $sizes  input = {8} }
data     { source = "tokens"  token_type = "u8"  train_tokens = {"$aside/tokens.bin"}
           test_tokens = {"$aside/tokens.bin"}  shuffle = no }
train    { batch_size = 4  split_size = 2  steps = 4  optimizer = "adamw"  learning_rate = 0.01  evaluate = no }
pipeline { profile_spread = 1e9 }
END
trains made 1 -c full.conf --steps 1 --learning-rate 0
cp -r made/model "$aside/model"
sed "s|network = .*input|folder = \"$aside/model\"  input|; s/^pipeline/lora     { rank = 2 }\n&/" full.conf >lora.conf
peak() { "$mpstaged" --plan --json -c "$@" | sed -n 's/.*"peak_bytes": \([0-9]*\).*/\1/p' | head -n 1; }
# same TEXT RANKS OPTIONS...: the weights of $want
same() {
    same_text=$1 same_ranks=$2; shift 2
    rm -rf same
    job "$same_ranks" --run-dir same "$@"
    [ "$code" -eq 0 ] || why
    equal "$same_text: the same weights" "$(hash_of same 2>/dev/null || echo "status $code")" "$want"
}
limit() { echo "-o pipeline.max_memory=$1"; }
host='-o pipeline.host_memory=1GB' disk='-o pipeline.disk=disk' both='-o pipeline.disk=disk -o pipeline.host_memory'

# ---- frozen weights --------------------------------------------------------------------------------------------------
trains lora 1 -c lora.conf
want=$hash
less=$(limit $(($(peak lora.conf) - 1000000)))
check "the plan has slots in this limit" [ -n "$(peak lora.conf $less $host)" ]
"$mpstaged" -c lora.conf --plan $less $host >"$aside/out"
check "and says where weights lie" grep -q "lie in the host's memory" "$aside/out"
same "in the host's memory" 1 -c lora.conf $less $host
same "on disk" 1 -c lora.conf $less $disk
same "in both" 1 -c lora.conf $less $both=400000
same "kernels one by one" 1 -c lora.conf $less $host -o run.graphs=no
less=$(limit $(($(peak lora.conf --stages 2 -o pipeline.ranks=2) - 500000)))
for transport in staged nccl; do
    same "two ranks, $transport" 2 -c lora.conf $less $host --transport $transport
done
rm -rf part
job 1 -c lora.conf --run-dir part --steps 2 -o checkpoint.every_steps=2 \
    $(limit $(($(peak lora.conf) - 1000000))) $host
job 1 -c lora.conf --run-dir part --resume -o checkpoint.every_steps=2
equal "half of it in the host's memory, resumed on the GPU" "$(hash_of part | tail -n 1)" "$want"

# A base in bfloat16: products read it as it is.
trains half 1 -c full.conf --steps 1 --learning-rate 0 -o model.save_dtype=bf16
cp -r half/model "$aside/half"
sed "s|$aside/model|$aside/half|" lora.conf >half.conf
trains wide-half 1 -c half.conf --precision bf16 -o train.frozen_type=fp32
want=$hash wide=$(peak half.conf --precision bf16 -o train.frozen_type=fp32) narrow=$(peak half.conf --precision bf16)
same "a base in bfloat16" 1 -c half.conf --precision bf16
check "it takes 2 bytes a weight instead of 6: $wide, $narrow" [ $((wide - narrow)) -gt 2500000 ]
for where in "$host" "$disk" "$both=200000"; do
    same "bfloat16, $where" 1 -c half.conf --precision bf16 $(limit $((narrow - 500000))) $where
done
trains half-fp32 1 -c half.conf
want=$hash
same "in fp32 as it was rounded" 1 -c half.conf $(limit $(($(peak half.conf) - 1000000))) $host
refused "bfloat16 beside fp32" 78 'frozen_type.*train.precision = "bf16"' 1 -c half.conf --run-dir none \
    -o train.frozen_type=bf16
# Codes of 8 bits: the CPU's losses, to the last bits of other libraries' sums.
losses() { sed -n 's/.*"event":"step".*"loss":\([^,]*\),.*/\1/p' "$1/metrics.jsonl"; }
trains eight 1 -c lora.conf -o model.load_in_8bit=yes
want=$hash
job 1 -c lora.conf --run-dir eight-cpu -o run.device=cpu -o run.transport=auto -o model.load_in_8bit=yes
losses eight >"$aside/a"; losses eight-cpu >"$aside/b"
paste "$aside/a" "$aside/b" >"$aside/both"
check "8 bits: the CPU's losses" awk '{ d = $1 / $2 - 1; bad += d > 2e-6 || d < -2e-6; n++ }
    END { exit !(n == 4 && !bad) }' "$aside/both"
less=$(limit $(($(peak lora.conf -o model.load_in_8bit=yes) - 400000)))
same "8 bits in the host's memory" 1 -c lora.conf -o model.load_in_8bit=yes $less $host
same "8 bits on disk" 1 -c lora.conf -o model.load_in_8bit=yes $less $disk
trains eight-bf16 1 -c lora.conf -o model.load_in_8bit=yes --precision bf16
# Convolutions: their weights have another order. The image's have channels that are padded, and stay as they are.
write_conf block.conf 's,network = "toy".*input = {10},graph = "'"$here"'/gpu/block.graph",
    s/labels = "onehot"  samples = 200/samples = 20/
    s/batch_size = 20  split_size = 8/batch_size = 5  split_size = 2/; s/steps = 3/steps = 2/
    s/loss = "mse"/loss = "cross_entropy"  freeze = {"conv1*", "block.conv*"}/; s/rate = 0.1/rate = 0.01/'
for type in fp32 bf16; do
    trains block-$type 1 -c block.conf --device cuda --precision bf16 -o train.frozen_type=$type
    sed -n 's/.*"event":"step".*"loss_bits":"\([^"]*\)".*/\1/p' block-$type/metrics.jsonl >"$aside/losses-$type"
done
check "frozen convolutions in bfloat16: the same losses" cmp "$aside/losses-fp32" "$aside/losses-bf16"

# ---- what is trained -------------------------------------------------------------------------------------------------
on="-o pipeline.offload_optimizer=yes $(limit 1GB)"
for precision in fp32 bf16; do
    trains full-$precision 1 -c full.conf --precision $precision
    want=$hash
    same "$precision, optimizer state in the host's memory" 1 -c full.conf --precision $precision $on $host
    same "$precision, on disk" 1 -c full.conf --precision $precision $on $disk
    same "$precision, in both" 1 -c full.conf --precision $precision $on $both=3000000
done
rm -rf part
job 1 -c full.conf --run-dir part --precision bf16 --steps 2 -o checkpoint.every_steps=2
job 1 -c full.conf --run-dir part --precision bf16 --resume -o checkpoint.every_steps=2 $on $host
equal "resumed with its state in the host's memory" "$(hash_of part | tail -n 1)" "$want"
want=$(hash_of full-fp32)
less=$(limit $(($(peak full.conf) - 6000000)))
same "trained weights and gradients, too" 1 -c full.conf $less $host
same "in both" 1 -c full.conf $less $both=3000000
# Norms of gradients that leave the GPU are made before.
clips='-o train.clip_norm=0.5 -o run.verify_every=1'
trains clipped 1 -c full.conf $clips
want=$hash
norms() { grep -o '"grad_\(norm\|hash\)":[^,]*' "$1/metrics.jsonl"; }
same "clipped" 1 -c full.conf $less $host $clips
equal "their norms and hashes" "$(norms same)" "$(norms clipped)"
same "clipped, kernels one by one" 1 -c full.conf $less $host $clips -o run.graphs=no

# ---- what goes wrong -------------------------------------------------------------------------------------------------
less=$(limit $(($(peak lora.conf) - 1000000)))
rm -rf none
# wrong TEXT STATUS WORDS OPTIONS...: a line with these words, and that status
wrong() {
    wrong_text=$1 status=$2 words=$3; shift 3
    rm -rf none
    job 1 -c lora.conf --run-dir none "$@"
    check "$wrong_text: $status" [ "$code/$(our_lines)/$(grep -c "^mpstaged: .*$words" "$aside/err")" = "$status/1/1" ]
    [ "$code/$(our_lines)" = "$status/1" ] || why
}
wrong "too little of the host's memory" 78 "pipeline.host_memory=400000: .* lie outside the GPUs, .* more" $less \
    -o pipeline.host_memory=400000
wrong "without either" 78 "it would fit with pipeline.host_memory = 3MiB" $less
job 1 -c lora.conf --run-dir fits $less -o pipeline.host_memory=3MiB
check "and so it fits" [ "$code" -eq 0 ]
"$mpstaged" -c lora.conf --plan $less -o pipeline.host_memory=1MiB -o pipeline.offload_optimizer=yes \
    -o pipeline.disk=disk >"$aside/out" 2>"$aside/err"
both_lie=$(tr -s " \n" " " <"$aside/out" | grep -o "of the host.s memory, and on disk" | wc -l)
equal "state and weights, planned" "$both_lie" 2
DOUBLE_PINNED=10000000; export DOUBLE_PINNED
wrong "no pinned memory" 69 "pipeline.host_memory: GPU 0: no 2.60 MiB of pinned host memory" $less $host
unset DOUBLE_PINNED
DOUBLE_VANISH=3000; export DOUBLE_VANISH
wrong "the GPU is lost" 69 "" $less $host
unset DOUBLE_VANISH
tap_done
