#!/bin/sh
# decoders.sh: tiny language models of the five families (tests/lm/models) give the losses of ten AdamW steps, the
# gradients and the logits of transformers, in micro-batches with uneven numbers of labels; the same bits from any
# number of stages, schedule, replicas, recomputation and after a kill; and what is wrong with a folder is said in a
# line. The values are kept in
# tests/lm/decoders.expected: no Python is needed.
# Tolerances: logits and each gradient 1e-4 of their norm, losses 1e-4.
set -eu
. "$(dirname -- "$0")/mpi_lib.sh"
tool=$build/tests/decoder_tool models=$here/lm/models expected=$here/lm/decoders.expected

# config MODEL SETTINGS...: the file lm.conf
config() {
    config_of=$1; shift
    cat >lm.conf <<END
run      { name = "lm" }
model    { folder = "$aside/$config_of"  input = {32} }
data     { source = "npy"  labels = "map"  train = "$aside/tokens.npy"  train_labels = "$aside/labels.npy"
           shuffle = no }
train    { batch_size = 6  split_size = 4  steps = 10  optimizer = "adamw"  learning_rate = 0.01  beta2 = 0.95
           weight_decay = 0.1  epsilon = 1e-6 }
pipeline { stages = 2  partition = "uniform"  profile_spread = 1e9 }
END
}

# ---- like transformers -----------------------------------------------------------------------------------------------
"$tool" data "$aside"
for m in $(sed -n 's/^\([a-z][^ ]*\) .*/\1/p' "$models"); do
    "$tool" folder "$models" "$m" "$aside/$m"
    config "$m"
    trains "$m" threads -c lm.conf -o run.dump_gradients="$aside/g.safetensors"
    worst=$(losses "$m" "$m")
    check "$m: losses within $worst of transformers', wanted 1e-4" \
        awk -v w="$worst" 'BEGIN { exit !(w != "missing" && w < 1e-4) }'
    if "$tool" check "$expected" "$m" gradient "$aside/g.safetensors" >"$aside/off"; then ok "$m: gradients"
    else note <"$aside/off"; not_ok "$m: gradients"; fi
    job threads -c lm.conf -o data.test="$aside/tokens.npy" -o data.test_labels="$aside/labels.npy" \
        --predict "$aside/$m.npy" --run-dir "$m-predict"
    if [ "$code" -eq 0 ] && "$tool" check "$expected" "$m" logits "$aside/$m.npy" >"$aside/off"; then ok "$m: logits"
    else why; note <"$aside/off"; not_ok "$m: logits"; fi
    # In bf16 the values that are kept are rounded to 2^-9, and those of ten steps depend on each other.
    trains "$m-bf16" threads -c lm.conf -o run.dump_gradients="$aside/g.safetensors" -o run.emulate_bf16=yes \
        --precision bf16
    worst=$(losses "$m-bf16" "$m")
    check "$m: losses in bf16 within $worst of transformers', wanted 2e-2" \
        awk -v w="$worst" 'BEGIN { exit !(w != "missing" && w < 2e-2) }'
    if "$tool" check "$expected" "$m" gradient "$aside/g.safetensors" 2e-2 >"$aside/off"; then
        ok "$m: gradients in bf16"
    else note <"$aside/off"; not_ok "$m: gradients in bf16"; fi
done

# ---- each operator has a kernel of its own ---------------------------------------------------------------------------
head -c 4096 /dev/zero >"$aside/zeros.bin"
# planned TEXT OPTIONS...
planned() {
    planned_of=$1; shift
    job threads -c lm.conf "$@" --plan
    check "$planned_of: no plain loops" sh -c "[ $code -eq 0 ] && ! grep -q 'plain loop' '$aside/out'"
}
for m in $(sed -n 's/^\([a-z][^ ]*\) .*/\1/p' "$models"); do
    config "$m"
    planned "$m"
    planned "$m, generation" --generate -
    sed -i '/^data/d; s/^ *shuffle.*/data { source = "tokens" token_type = "u8" documents = "apart" end_token = 0 }/' \
        lm.conf
    planned "$m, documents apart" -o "data.train_tokens=$aside/zeros.bin"
done

# ---- the same bits ---------------------------------------------------------------------------------------------------
# same TEXT RANKS OPTIONS...: weights as those of $want
same() {
    same_text=$1 same_ranks=$2; shift 2
    rm -rf same
    job "$same_ranks" -c lm.conf --run-dir same "$@"
    [ "$code" -eq 0 ] || why
    equal "$same_text: the same weights" "$(hash_of same 2>/dev/null || echo "status $code")" "$want"
}
config llama-tied
trains tied threads -c lm.conf --stages 1
want=$hash
for n in 2 3 4; do same "$n stages, tied head" threads --stages $n; done
for s in naive gpipe 1f1b zb-h1; do same "$s, tied head" threads --stages 3 -o pipeline.schedule=$s; done
same "zb-v, tied head" threads --stages 4 -o pipeline.ranks=2 -o pipeline.schedule=zb-v
same "interleaved, tied head" threads --stages 4 -o pipeline.ranks=2 -o pipeline.schedule=interleaved
same "recomputed, tied head" threads --stages 2 -o pipeline.recompute=all
same "processes, tied head" 2 --stages 2
config gpt2
trains gpt2-one threads -c lm.conf --stages 1
want=$hash
same "gpt2, 4 stages" threads --stages 4
job threads -c lm.conf --run-dir same2 -o train.steps=4 -o checkpoint.every_steps=2
job threads -c lm.conf --run-dir same2 --resume -o checkpoint.every_steps=2 --stages 3
equal "gpt2, stopped after 4 steps and resumed on 3 stages: the same weights" "$(hash_of same2 | tail -n 1)" "$want"

# ---- tokens ----------------------------------------------------------------------------------------------------------
# Bytes of a text that repeats itself are learned, and documents apart have the same bits on two stages.
yes "a text that repeats itself" | head -n 300 >"$aside/text"
cat >tokens.conf <<END
model { network = "gpt2"  input = {16}  vocab_size = 256  hidden_size = 32  num_hidden_layers = 1
        num_attention_heads = 2 }
data  { source = "tokens"  token_type = "u8"  train_tokens = {"$aside/text"}  test_tokens = {"$aside/text"} }
train { batch_size = 8  split_size = 3  steps = 120  optimizer = "adamw"  learning_rate = 0.01  evaluate_every = 120 }
pipeline { stages = 2  partition = "uniform" }
END
trains text threads -c tokens.conf
perplexity=$(sed -n 's/.*"perplexity":\([0-9.]*\).*/\1/p' text/metrics.jsonl)
check "its text is learned: perplexity ${perplexity:-none}, and 256 at the start" \
    awk -v x="${perplexity:-0}" 'BEGIN { exit !(x >= 1 && x < 3) }'
# 6 (12 d^2 + V d) + 6 T d, and the parameters of GPT-2's form, its head tied
start=$(grep -o '"parameters":.*"flops_per_token":[0-9]*' text/metrics.jsonl)
equal "its size" "$start" \
    '"parameters":21472,"trained_parameters":21472,"context":16,"flops_per_token":125952'
"$mpstaged" -c tokens.conf --plan >"$aside/out" 2>"$aside/err" || why
check "the plan names the head's share" grep -qE '^lm_head takes [0-9.]+ % of the time of all kernels, as long as' \
    "$aside/out"
trains apart-1 threads -c tokens.conf -o data.documents=apart -o data.end_token=10 --stages 1
want=$hash
trains apart-2 threads -c tokens.conf -o data.documents=apart -o data.end_token=10
equal "documents apart: the same weights" "$hash" "$want"
job threads -c tokens.conf -o data.train_tokens= --run-dir none
check "tokens without files" sh -c '[ "$0" -eq 78 ] && grep -q "data.train_tokens" "$1"' "$code" "$aside/err"

# ---- what is wrong ---------------------------------------------------------------------------------------------------
# wrong TEXT STATUS PATTERN OPTIONS...: one line with that pattern, nothing created
wrong() {
    wrong_text=$1 wrong_code=$2 wrong_pattern=$3; shift 3
    rm -rf wrong
    job threads -c lm.conf --run-dir wrong "$@"
    if [ "$code" -eq "$wrong_code" ] && [ "$(our_lines)" -eq 1 ] && [ ! -e wrong ] &&
        grep '^mpstaged: ' "$aside/err" | grep -qE -- "$wrong_pattern"; then ok "$wrong_text"
    else why; not_ok "$wrong_text: $code, wanted $wrong_code and $wrong_pattern"; fi
}
# changed JQ-LIKE: llama's config.json with a key set
changed() {
    rm -rf "$aside/bad"; cp -r "$aside/llama" "$aside/bad"
    sed "s|\"model_type\"|$1, \"model_type\"|" "$aside/llama/config.json" >"$aside/bad/config.json"
}
config llama
wrong "no folder" 66 "nowhere" -o model.folder=nowhere
wrong "folder and network" 78 "use one of the two" -o model.network=llama -o model.folder="$aside/llama"
wrong "no input" 78 "model.input.*64" -o model.input=
wrong "longer than the context" 78 "model.input is 65.*64" -o model.input=65
for c in '"rope_scaling": {"type": "yarn", "factor": 2}|rope_type' '"hidden_act": "gelu"|hidden_act "gelu"' \
    '"pretraining_tp": 2|pretraining_tp 2' \
    '"quantization_config": {}|quantization' \
    '"rope_scaling": {"type": "linear", "factor": 2}|contradict' '"head_dim": 7|head_dim 7' \
    '"layer_types": ["sliding_attention"]|layer_types' '"rms_norm_eps": "x"|rms_norm_eps'; do
    changed "${c%|*}"
    wrong "${c%|*}" 78 "bad/config.json: .*${c#*|}" -o model.folder="$aside/bad"
done
rm -rf "$aside/bad"; cp -r "$aside/llama" "$aside/bad"
sed 's/"llama"/"mamba"/' "$aside/llama/config.json" >"$aside/bad/config.json"
wrong "another family" 78 'bad/config.json: model_type "mamba" is not supported' -o model.folder="$aside/bad"
for window in 8 '"4"'; do
    sed "s/\"llama\"/\"mistral\"/; s/\"model_type\"/\"sliding_window\": $window, \"model_type\"/" \
        "$aside/llama/config.json" >"$aside/bad/config.json"
    wrong "sliding_window $window" 78 "bad/config.json: sliding_window $window" -o model.folder="$aside/bad"
done
sed 's/"num_hidden_layers": 2/"num_hidden_layers": 3/' "$aside/llama/config.json" >"$aside/bad/config.json"
wrong "weights of fewer layers" 65 "model.layers.2" -o model.folder="$aside/bad"
sed 's/"intermediate_size": 40/"intermediate_size": 41/' "$aside/llama/config.json" >"$aside/bad/config.json"
wrong "weights of another shape" 65 "40.*41|41.*40" -o model.folder="$aside/bad"
for c in model.classes=3 model.hidden=8 model.small_stem=yes train.label_smoothing=0.1; do
    wrong "$c" 78 "$c: a decoder has none" -o "$c"
done
# rope PATTERN SETTINGS: llama3 with other keys
rope() {
    changed "\"rope_scaling\": {\"rope_type\": \"llama3\", \"factor\": 2, \"low_freq_factor\": 1, $2}"
    sed -i '/"rope_parameters": {/,/}/d; s/\("max_position_embeddings": 64\),/\1/' "$aside/bad/config.json"
    wrong "$1" 78 "bad/config.json: $1" -o model.folder="$aside/bad"
}
rope "high_freq_factor is missing" '"rope_theta": 10000'
rope "partial_rotary_factor 0.5" '"high_freq_factor": 4, "partial_rotary_factor": 0.5'
rope "rope_theta 10000 contradicts" '"high_freq_factor": 4, "rope_theta": 100}, "rope_theta": 10000, "y": {"z": 1'
old='"original_max_position_embeddings"'
rope "original_max_position_embeddings 32 contradicts 16" \
    "\"high_freq_factor\": 4, $old: 32}, $old: 16, \"y\": {\"z\": 1"
changed '"rope_scaling": {"rope_type": "llama3", "factor": 2}'
wrong "llama3 without its frequencies" 78 "bad/config.json: low_freq_factor is missing" -o model.folder="$aside/bad"
changed '"torch_dtype": "float8"'
wrong "another type of weights" 78 'bad/config.json: torch_dtype "float8"' -o model.folder="$aside/bad"
sed -i 's/folder = "[^"]*"/network = "gpt-2"  vocab_size = 9/' lm.conf
wrong "an unknown network" 78 'lm.conf:2: model.network: .*gpt2'
config gpt2
rm -rf "$aside/bad"; cp -r "$aside/gpt2" "$aside/bad"
sed 's/"n_embd"/"hidden_size"/; s/"n_layer"/"num_hidden_layers"/; s/"n_head"/"num_attention_heads"/
    s/"n_positions"/"max_position_embeddings"/' "$aside/gpt2/config.json" >"$aside/bad/config.json"
trains gpt2-names threads -c lm.conf --stages 1 -o model.folder="$aside/bad"
equal "the other names of gpt2's sizes" "$(hash_of gpt2-names)" "$(hash_of gpt2-one)"
check "its folder has the names that all readers know" \
    sh -c 'for k in n_embd n_layer n_head n_positions n_ctx; do grep -q "\"$k\": [0-9]" "$0" || exit 1; done' \
    gpt2-names/model/config.json
sed 's/"n_head"/"num_attention_heads": 7, "n_head"/' "$aside/gpt2/config.json" >"$aside/bad/config.json"
wrong "two names that differ" 78 "n_head and num_attention_heads contradict" -o model.folder="$aside/bad"
wrong "a size besides a folder" 78 "config.json decides" -o model.hidden_size=8
tap_done
