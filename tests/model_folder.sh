#!/bin/sh
# model_folder.sh: a decoder's run leaves RUN/model/, a folder of Hugging Face: a second name of its weights, or the
# same rounded to 16 bits, in one file or in shards. A run from there continues. With transformers at hand (python3, or
# $MPSTAGED_PYTHON), they load it: no key is missing or unexpected, and they continue a prompt alike.
set -eu
. "$(dirname -- "$0")/mpi_lib.sh"
tool=$build/tests/decoder_tool models=$here/lm/models

"$tool" data "$aside"
echo "{\"input_ids\": [$("$tool" prompt 3 5)]}" >"$aside/prompts.jsonl"
# config MODEL: the file lm.conf
config() {
    cat >lm.conf <<END
run      { name = "lm" }
model    { folder = "$aside/$1"  input = {32} }
data     { source = "npy"  labels = "map"  train = "$aside/tokens.npy"  train_labels = "$aside/labels.npy"
           shuffle = no }
train    { batch_size = 6  split_size = 4  steps = 3  optimizer = "adamw"  learning_rate = 0.01 }
generate { prompts = "$aside/prompts.jsonl"  max_tokens = 12 }
pipeline { stages = 2  partition = "uniform"  profile_spread = 1e9 }
END
}
# texts OPTIONS...: what --generate writes
texts() { job threads -c lm.conf --generate - "$@"; [ "$code" -eq 0 ] || why; cat "$aside/out"; }
all=$(sed -n 's/^\([a-z][^ ]*\) .*/\1/p' "$models")
for m in $all; do
    "$tool" folder "$models" "$m" "$aside/$m"
    config "$m"
    trains "$m" threads -c lm.conf
    equal "$m: its hash is of model/model.safetensors" "$(xxhsum -H2 "$m/model/model.safetensors" | cut -d ' ' -f 1)" \
        "$hash"
    texts --run-dir "$m" >"$aside/$m.texts"
    equal "$m: a run from RUN/model continues a prompt alike" "$(texts -o model.folder="$m/model" --run-dir other)" \
        "$(cat "$aside/$m.texts")"
done

# ---- types and shards ------------------------------------------------------------------------------------------------
cat >"$aside/narrow.py" <<'END'
"""narrow.py WIDE NARROW...: are the tensors of these safetensors those of WIDE, rounded to nearest even?"""
import json, struct, sys
def tensors(paths):
    out = {}
    for path in paths:
        b = open(path, "rb").read()
        n, = struct.unpack("<Q", b[:8])
        for k, v in json.loads(b[8:8 + n]).items():
            if k == "__metadata__": assert v == {"format": "pt"}; continue
            assert k not in out
            i, j = v["data_offsets"]
            out[k] = v["dtype"], v["shape"], b[8 + n + i:8 + n + j]
    return out
def bf16(bits): return (bits + 0x7fff + (bits >> 16 & 1)) >> 16
wide, narrow = tensors(sys.argv[1:2]), tensors(sys.argv[2:])
assert list(sorted(wide)) == list(sorted(narrow))
for k, (_, shape, b) in wide.items():
    dtype, its_shape, c = narrow[k]
    n = len(b) // 4
    want = {"F32": lambda: b, "F16": lambda: struct.pack(f"<{n}e", *struct.unpack(f"<{n}f", b)),
            "BF16": lambda: struct.pack(f"<{n}H", *map(bf16, struct.unpack(f"<{n}I", b)))}[dtype]()
    assert shape == its_shape and want == c, k
print(len(narrow), dtype)
END
config gpt2
for t in bf16 fp16 fp32; do
    job threads -c lm.conf --run-dir $t -o model.save_dtype=$t -o model.max_shard_size=40000
    [ "$code" -eq 0 ] || why
    equal "$t in shards: each tensor rounded to nearest even" \
        "$(python3 "$aside/narrow.py" $t/weights.safetensors $t/model/*.safetensors 2>&1 | tail -n 1)" \
        "28 $(echo $t | sed 's/fp/F/; s/bf/BF/')"
    index=$(python3 -c 'import json, sys; m = json.load(open(sys.argv[1])); print(len(set(m["weight_map"].values())))' \
        $t/model/model.safetensors.index.json)
    equal "$t: its index names the files" "$index" "$(ls $t/model/*.safetensors | wc -l)"
    check "$t: config.json says so" grep -q "\"torch_dtype\": \"$(echo $t | sed 's/bf/bfloat/; s/fp/float/')\"" \
        $t/model/config.json
done
equal "a run from shards continues a prompt alike" "$(texts -o model.folder=fp32/model --run-dir other)" \
    "$(cat "$aside/gpt2.texts")"
job threads -c lm.conf --run-dir auto -o model.folder=bf16/model
check "save_dtype auto is the folder's" grep -q '"dtype": "bfloat16"' auto/model/config.json
job threads -c lm.conf --run-dir large -o model.save_dtype=fp16 -o train.learning_rate=1e5
check "a weight too large for fp16" sh -c '[ "$0" -eq 65 ] && grep -q "transformer.*too large for fp16" "$1"' \
    "$code" "$aside/err"
check "and no folder" [ ! -e large/model ]

# ---- files as others write them --------------------------------------------------------------------------------------
cat >"$aside/rename.py" <<'END'
"""rename.py FOLDER RULE...: of model.safetensors there. OLD=NEW renames a prefix, +NEW=OLD copies a tensor, -NAME
removes one, !NAME changes its first byte; ?NAME adds an odd one."""
import json, struct, sys
path = sys.argv[1] + "/model.safetensors"
b = open(path, "rb").read()
n, = struct.unpack("<Q", b[:8])
head = json.loads(b[8:8 + n]); head.pop("__metadata__", None)
t = {k: (v["dtype"], v["shape"], b[8 + n + v["data_offsets"][0]:8 + n + v["data_offsets"][1]]) for k, v in head.items()}
for rule in sys.argv[2:]:
    kind, name = rule[0], rule[1:]
    if kind == "+": t[name.split("=")[0]] = t[name.split("=")[1]]
    elif kind == "-": del t[name]
    elif kind == "!": t[name] = (*t[name][:2], bytes([t[name][2][0] ^ 1]) + t[name][2][1:])
    elif kind == "?": t[name] = "F32", [1], bytes(4)
    else:
        old, new = rule.split("=")
        t = {new + k[len(old):] if k.startswith(old) else k: v for k, v in t.items()}
out, at = {}, 0
for k, (d, s, v) in t.items(): out[k] = {"dtype": d, "shape": s, "data_offsets": [at, at + len(v)]}; at += len(v)
h = json.dumps(out).encode(); h += b" " * (-len(h) % 8)
open(path, "wb").write(struct.pack("<Q", len(h)) + h + b"".join(v for _, _, v in t.values()))
END
# theirs TEXT MODEL RULES...: the changed folder continues the prompt as MODEL does
theirs() {
    theirs_text=$1 theirs_of=$2; shift 2
    rm -rf "$aside/changed"; cp -r "$theirs_of/model" "$aside/changed"
    rm "$aside/changed/model.safetensors"                 # another name of the run's weights
    cp "$theirs_of/weights.safetensors" "$aside/changed/model.safetensors"
    python3 "$aside/rename.py" "$aside/changed" "$@"
    equal "$theirs_text" "$(texts -o model.folder="$aside/changed" --run-dir other)" "$(cat "$aside/$theirs_of.texts")"
}
theirs "gpt2 without prefix, with masks: the hub's" gpt2 transformer.= '?h.0.attn.bias' '?h.0.attn.masked_bias'
theirs "llama without prefix, with frequencies" llama model.= '?layers.0.self_attn.rotary_emb.inv_freq'
theirs "tied, with an equal head" llama-tied +lm_head.weight=model.embed_tokens.weight
theirs "tied, with a head alone" llama-tied +lm_head.weight=model.embed_tokens.weight -model.embed_tokens.weight
# other TEXT PATTERN MODEL RULES...: status 65
other() {
    other_text=$1 other_pattern=$2 other_of=$3; shift 3
    rm -rf "$aside/changed"; mkdir "$aside/changed"; cp "$other_of/model/config.json" "$aside/changed/"
    cp "$other_of/weights.safetensors" "$aside/changed/model.safetensors"
    python3 "$aside/rename.py" "$aside/changed" "$@"
    job threads -c lm.conf --run-dir none -o model.folder="$aside/changed"
    check "$other_text" sh -c '[ "$0" -eq 65 ] && grep -qE "$1" "$2"' "$code" "$other_pattern" "$aside/err"
}
other "tied, with another head" "lm_head.weight and model.embed_tokens.weight differ" llama-tied \
    +lm_head.weight=model.embed_tokens.weight '!lm_head.weight'
other "untied, without a head" "lm_head.weight is missing" llama -lm_head.weight
other "an unknown tensor" "c_attn.bias2 is unexpected" gpt2 '?transformer.h.0.attn.c_attn.bias2'

# ---- other files, from scratch, again --------------------------------------------------------------------------------
cp -r "$aside/llama" "$aside/more"
for f in tokenizer.json tokenizer_config.json merges.txt; do echo "{\"of\": \"$f\"}" >"$aside/more/$f"; done
sed -i 's/"model_type"/"their_key": 7, "model_type"/' "$aside/more/config.json"
config more
trains more threads -c lm.conf
check "the tokenizer's files are copied" cmp -s "$aside/more/merges.txt" more/model/merges.txt
check "unknown keys stay" grep -q '"their_key": 7' more/model/config.json
echo old >more/model/old
job threads -c lm.conf --run-dir more --overwrite -o train.steps=1
check "--overwrite replaces the folder" [ "$code" -eq 0 -a ! -e more/model/old -a -e more/model/config.json ]
job threads -c lm.conf --run-dir more --overwrite -o model.folder=more/model
check "but not if the run begins with it" sh -c '[ "$0" -eq 73 ] && [ -e more/model/config.json ]' "$code"
# spared OPTION: a run that replaces what it reads
spared() {
    job threads -c lm.conf --run-dir more --overwrite -o "$1"
    check "nor if it reads $1" sh -c '[ "$0" -eq 73 ] && [ -e more/model/merges.txt ] &&
        grep -q "more/model.*: is read as ${1%=*}" "$2"' "$code" "$1" "$aside/err"
}
job threads -c lm.conf --run-dir more --overwrite -o train.steps=1
spared run.init_from=more/model
spared data.tokenizer=more/model/tokenizer.json
mkdir -p his/model && echo mine >his/model/plan.txt
job threads -c lm.conf --run-dir his
check "a folder that no run has made stays" sh -c '[ "$0" -eq 73 ] && [ -e his/model/plan.txt ]' "$code"
sed 's/folder = "[^"]*"/network = "qwen3"  vocab_size = 257  hidden_size = 16  num_hidden_layers = 1\
    num_attention_heads = 2  head_dim = 8  intermediate_size = 24  max_position_embeddings = 64/' lm.conf \
    >new.conf
trains scratch threads -c new.conf
job threads -c new.conf --run-dir scratch --generate -
cp "$aside/out" "$aside/scratch.texts"
equal "from scratch: a run from RUN/model continues a prompt alike" \
    "$(texts -o model.folder=scratch/model --run-dir other)" "$(cat "$aside/scratch.texts")"
cp "$here/lm/tokenizers/gpt2.json" "$aside/tok.json"
trains tokenizer threads -c new.conf -o model.vocab_size=512 -o data.tokenizer="$aside/tok.json"
check "the file of data.tokenizer is copied" cmp -s "$aside/tok.json" tokenizer/model/tokenizer.json
job threads -c new.conf -o model.vocab_size=512 -o data.tokenizer=tokenizer/model --run-dir again
check "and the folder of data.tokenizer" cmp -s "$aside/tok.json" again/model/tokenizer.json

# ---- a rank reads its own tensors ------------------------------------------------------------------------------------
cat >wide.conf <<'END'
run { name = "wide" }
model { network = "llama"  input = {8}  vocab_size = 256  hidden_size = 256  num_hidden_layers = 8
        num_attention_heads = 4  intermediate_size = 768 }
data { source = "synthetic"  samples = 4 }
train { batch_size = 2  steps = 1 }
pipeline { stages = 2  partition = "uniform" }
END
# bytes_read OPTIONS...: a line for each of two ranks. A shell's figure has those of its children.
bytes_read() {
    rm -rf io read; mkdir io
    mpirun_n 2 sh -c '"$0" "$@" && grep rchar "/proc/$$/io" >"io/$$"' "$mpstaged" -c wide.conf --run-dir read "$@" \
        >"$aside/out" 2>"$aside/err" </dev/null || why
    cat io/* | sed 's/.* //' | sort -n
}
if [ -r /proc/self/io ]; then
    trains wide threads -c wide.conf -o model.max_shard_size=4194304
    bytes_read >"$aside/none"
    bytes_read --init-from wide/model >"$aside/own"
    size=$(wc -c <wide/weights.safetensors)
    note <<END
bytes without and with a folder of $size: $(paste "$aside/none" "$aside/own" | tr '\n\t' ', ')
END
    check "two ranks read about half of the weights each" sh -c 'paste "$1" "$2" | awk -v all="$0" "
        { d = \$2 - \$1; bad += d < 0.4 * all || d > 0.65 * all } END { exit NR != 2 || bad }"' "$size" "$aside/none" \
        "$aside/own"
else skip "two ranks read about half of the weights each" "no /proc/self/io"; fi

# ---- as the folder was when the run began ----------------------------------------------------------------------------
# The tokenizer is a link to a file of the run that is replaced; config.json changes while the run trains.
mkdir linked
cp more/model/tokenizer.json "$aside/of-more"
ln -s ../more/model/tokenizer.json linked/tokenizer.json
job threads -c lm.conf --run-dir more --overwrite -o data.tokenizer=linked
check "a tokenizer in what the run replaces" cmp "$aside/of-more" more/model/tokenizer.json
cp -r "$aside/more" "$aside/moving"
"$mpstaged" --transport local -c lm.conf --run-dir moving -o model.folder="$aside/moving" --steps 100000000 \
    >"$aside/out" 2>&1 &
pid=$!
for _ in $(seq 100); do ! grep -qs '"event":"step"' moving/metrics.jsonl || break; sleep 0.1; done
sed -i 's/"vocab_size": [0-9]*/"vocab_size": 7/' "$aside/moving/config.json"
rm "$aside/moving/merges.txt"
"$mpstagectl" stop moving >"$aside/err" 2>&1 || note <"$aside/err"
wait $pid || note <"$aside/out"
equal "the folder has what it was trained from" "$(grep -c '"vocab_size": 7,' moving/model/config.json) $(
    ls moving/model/merges.txt)" "0 moving/model/merges.txt"

# ---- transformers ----------------------------------------------------------------------------------------------------
cat >"$aside/load.py" <<'END'
import json, sys, warnings
import torch
from transformers import CONFIG_MAPPING, AutoModelForCausalLM
prompts, pairs = sys.argv[1], sys.argv[2:]
for folder, texts in zip(pairs[::2], pairs[1::2]):
    if json.load(open(folder + "/config.json"))["model_type"] not in CONFIG_MAPPING:
        print(folder, "unknown")
        continue
    model, info = AutoModelForCausalLM.from_pretrained(folder, output_loading_info=True)
    ids = torch.tensor([json.loads(open(prompts).readline())["input_ids"]])
    n = ids.shape[1]
    with torch.no_grad():
        for _ in range(12):
            ids = torch.cat([ids, model.float()(input_ids=ids).logits[:, -1].argmax(-1, keepdim=True)], 1)
    print(folder, [k for k, v in info.items() if v], ids[0, n:].tolist() == json.loads(open(texts).readline())["ids"])
END
python=${MPSTAGED_PYTHON:-python3}
if "$python" -c 'import torch, transformers' 2>/dev/null; then
    for m in $all scratch; do echo "$m/model" "$aside/$m.texts"; done >"$aside/pairs"
    xargs "$python" "$aside/load.py" "$aside/prompts.jsonl" <"$aside/pairs" >"$aside/loaded" 2>"$aside/err" || why
    for m in $all scratch; do
        said=$(sed -n "s#^$m/model ##p" "$aside/loaded")
        if [ "$said" = unknown ]; then ok "$m # SKIP this version of transformers does not know its family"
        else equal "$m: transformers load it and continue alike" "$said" "[] True"; fi
    done
else ok "transformers load it # SKIP no transformers: pip install torch transformers"
fi
tap_done
