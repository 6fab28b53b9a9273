#!/bin/sh
# lora.sh: adapters beside tiny language models (tests/lm/adapters) give peft's losses of ten AdamW steps, gradients
# and logits, and files that have its names; the same bits from any number of stages, schedule, replicas and after a
# kill; nothing but adapters is in checkpoints, and another base is refused; the merged folder gives the same logits;
# the plan's bytes are those of the base as it is stored and 16 a trained number. The values are kept in
# tests/lm/lora.expected: no Python is needed. With peft at hand (python3, or $MPSTAGED_PYTHON), it loads RUN/adapter/
# and continues a prompt alike.
# Tolerances: logits and each gradient 1e-4 of their norm, losses 1e-4.
set -eu
. "$(dirname -- "$0")/mpi_lib.sh"
tool=$build/tests/decoder_tool models=$here/lm/models adapters=$here/lm/adapters expected=$here/lm/lora.expected

# config MODEL LORA: the file lm.conf
config() {
    cat >lm.conf <<END
run      { name = "lm" }
model    { folder = "$aside/$1"  input = {32} }
data     { source = "npy"  labels = "map"  train = "$aside/tokens.npy"  train_labels = "$aside/labels.npy"
           shuffle = no }
train    { batch_size = 6  split_size = 4  steps = 10  optimizer = "adamw"  learning_rate = 0.01  beta2 = 0.95
           weight_decay = 0.1  epsilon = 1e-6 }
lora     { $2 }
generate { prompts = "$aside/prompts.jsonl"  max_tokens = 12 }
pipeline { stages = 2  partition = "uniform"  profile_spread = 1e9 }
END
}
# predicts FILE OPTIONS...: logits of all samples
predicts() {
    predicts_file=$1; shift
    job threads -c lm.conf -o data.test="$aside/tokens.npy" -o data.test_labels="$aside/labels.npy" \
        --predict "$predicts_file" "$@"
    [ "$code" -eq 0 ] || why
}
# near TEXT A B: two predictions differ by at most 1e-5 of the largest logit
near() {
    near_worst=$("$tool" far "$2" "$3" || echo missing)
    check "$1: logits within $near_worst" awk -v w="$near_worst" 'BEGIN { exit !(w != "missing" && w < 1e-5) }'
}

# ---- like peft -------------------------------------------------------------------------------------------------------
"$tool" data "$aside"
echo "{\"input_ids\": [$("$tool" prompt 3 5)]}" >"$aside/prompts.jsonl"
sed -n 's/^\([a-z][^ ]*\) *\([a-z][^ ]*\) .*/\1 \2/p' "$adapters" >"$aside/all"
while read -r a m; do
    [ -d "$aside/$m" ] || "$tool" folder "$models" "$m" "$aside/$m"
    "$tool" adapter "$adapters" "$a" "$aside/$m" "$aside/of-$a"
    config "$m" "init_from = \"$aside/of-$a\"  merge = yes"
    trains "$a" threads -c lm.conf -o run.dump_gradients="$aside/g.safetensors"
    worst=$(losses "$a" "$a")
    check "$a: losses within $worst of peft's, wanted 1e-4" \
        awk -v w="$worst" 'BEGIN { exit !(w != "missing" && w < 1e-4) }'
    if "$tool" check "$expected" "$a" gradient "$aside/g.safetensors" >"$aside/off"; then ok "$a: gradients"
    else note <"$aside/off"; not_ok "$a: gradients"; fi
    equal "$a: no other gradients" "$("$tool" tensors "$aside/g.safetensors" | wc -l)" \
        "$(grep -c "^$a gradient" "$expected")"
    predicts "$aside/$a.npy" --run-dir before
    if "$tool" check "$expected" "$a" logits "$aside/$a.npy" >"$aside/off"; then ok "$a: logits"
    else note <"$aside/off"; not_ok "$a: logits"; fi
    grep "^$a tensor " "$expected" | cut -d ' ' -f 3- | LC_ALL=C sort >"$aside/theirs"
    "$tool" tensors "$a/adapter/adapter_model.safetensors" | LC_ALL=C sort >"$aside/ours"
    check "$a: the names and shapes in peft's file" cmp -s "$aside/ours" "$aside/theirs"
    equal "$a: its hash is of the adapters alone" "$(xxhsum -H2 "$a/weights.safetensors" | cut -d ' ' -f 1)" "$hash"
    # What it has learned: from its directory, from the folder for peft, and merged.
    predicts "$aside/run.npy" -o lora.init_from="$a" --run-dir other
    predicts "$aside/folder.npy" -o lora.init_from="$a/adapter" --run-dir other
    check "$a: RUN/adapter is what the run has learned" cmp -s "$aside/run.npy" "$aside/folder.npy"
    check "$a: and that is not what it began with" sh -c '! cmp -s "$0" "$1"' "$aside/run.npy" "$aside/$a.npy"
    sed '/^lora/d' lm.conf >plain.conf
    job threads -c plain.conf -o model.folder="$a/model" -o data.test="$aside/tokens.npy" \
        -o data.test_labels="$aside/labels.npy" --predict "$aside/merged.npy" --run-dir other
    [ "$code" -eq 0 ] || why
    near "$a: RUN/model has the adapters in its weights" "$aside/run.npy" "$aside/merged.npy"
done <"$aside/all"
# The file as peft writes it has more keys.
cp -r "$aside/of-llama-qv" "$aside/theirs-qv"
cp "$here/lm/adapter_config.json" "$aside/theirs-qv/adapter_config.json"
want=$(hash_of llama-qv)
config llama "init_from = \"$aside/theirs-qv\""
trains theirs threads -c lm.conf
equal "settings as peft writes them" "$hash" "$want"
for a in llama-qv gpt2-conv1d; do
    config "$(sed -n "s/^$a //p" "$aside/all")" "init_from = \"$aside/of-$a\""
    trains "$a-bf16" threads -c lm.conf -o run.emulate_bf16=yes --precision bf16
    worst=$(losses "$a-bf16" "$a")
    check "$a: losses in bf16 within $worst of peft's, wanted 2e-2" \
        awk -v w="$worst" 'BEGIN { exit !(w != "missing" && w < 2e-2) }'
done
equal "Conv1D: peft is told so" "$(grep -o '"fan_in_fan_out": [a-z]*' gpt2-conv1d/adapter/adapter_config.json)" \
    '"fan_in_fan_out": true'
equal "its settings" "$(tr -d ' \n' <tied-all/adapter/adapter_config.json)" \
    "{\"base_model_name_or_path\":\"$aside/llama-tied\",\"bias\":\"none\",\"fan_in_fan_out\":false,$(
    )\"inference_mode\":true,\"lora_alpha\":7,\"lora_dropout\":0.0,\"peft_type\":\"LORA\",\"r\":3,$(
    )\"target_modules\":[\"q_proj\",\"k_proj\",\"v_proj\",\"o_proj\",\"gate_proj\",\"up_proj\",\"down_proj\"],$(
    )\"task_type\":\"CAUSAL_LM\",\"use_rslora\":true}"

# ---- gradients of some of queries, keys and values -------------------------------------------------------------------
# In the lowest layer the others need none.
for t in q_proj k_proj v_proj; do
    config llama "init_from = \"$aside/one-$t\""
    sed -i 's/steps = 10/steps = 3/' lm.conf
    echo "one-$t llama r=2 lora_alpha=4 target_modules=layers.0.self_attn.$t," >"$aside/one"
    "$tool" adapter "$aside/one" "one-$t" "$aside/llama" "$aside/one-$t"
    for d in cpu reference; do
        rm -rf "$d"
        job threads -c lm.conf -o run.device=$d --run-dir $d
        [ "$code" -eq 0 ] || why
    done
    check "$t alone: losses as those of plain loops" sh -c 'for r in cpu reference; do
        sed -n "/\"event\":\"step\"/s/.*\"loss\":\([-+.0-9e]*\).*/\1/p" $r/metrics.jsonl >$r/losses; done
        paste cpu/losses reference/losses |
            awk "{ d = \$1 - \$2; if (d < -1e-5 || d > 1e-5) bad = 1 } END { exit bad || NR != 3 }"'
    job threads -c lm.conf --plan
    check "$t alone: no plain loops" sh -c "[ $code -eq 0 ] && ! grep -q 'plain loop' '$aside/out'"
done

# ---- a new adapter changes nothing -----------------------------------------------------------------------------------
config llama 'rank = 4'
sed '/^lora/d' lm.conf >plain.conf
trains base threads -c plain.conf -o train.steps=1
trains new threads -c lm.conf -o train.steps=1
equal "a new adapter: the loss of the folder" "$(loss_bits new/metrics.jsonl)" "$(loss_bits base/metrics.jsonl)"

# ---- evaluation of a run ---------------------------------------------------------------------------------------------
# evaluates RUN OPTIONS...: sets $bits
evaluates() {
    evaluates_run=$1; shift
    rm -rf "$evaluates_run"
    job threads -c lm.conf -o data.test="$aside/tokens.npy" -o data.test_labels="$aside/labels.npy" --evaluate \
        --run-dir "$evaluates_run" "$@"
    [ "$code" -eq 0 ] || why
    bits=$(loss_bits "$evaluates_run/metrics.jsonl" 2>/dev/null || echo "status $code")
}
# Its loss would be the folder's.
refused "an evaluation of new adapters" 64 '--evaluate needs lora.init_from; for the adapters of the run in mine:' \
    threads -c lm.conf --evaluate --run-dir mine
trains mine threads -c lm.conf -o lora.merge=yes -o train.evaluate=yes -o data.test="$aside/tokens.npy" \
    -o data.test_labels="$aside/labels.npy"
want="0 evaluation $(loss_bits mine/metrics.jsonl | sed -n 's/^10 evaluation //p')"
job threads -c lm.conf --evaluate --run-dir mine
advice=$(sed -n 's/.*in mine: --evaluate //p' "$aside/err")
# shellcheck disable=SC2086
job threads -c lm.conf -o data.test="$aside/tokens.npy" -o data.test_labels="$aside/labels.npy" --evaluate $advice
[ "$code" -eq 0 ] || why
equal "as the message says: the loss of the run" "$(loss_bits mine-evaluate/metrics.jsonl 2>/dev/null)" "$want"
refused "nothing to resume from" 78 'lora.init_from starts from its adapters' threads -c lm.conf --run-dir mine --resume

# ---- base weights ----------------------------------------------------------------------------------------------------
# Files of a run's adapters name the weights they were trained with.
for from in mine mine/adapter; do
    for mode in --check-config "--run-dir fresh"; do
        # shellcheck disable=SC2086
        refused "$from with a folder that has them already, $mode" 78 \
            "lora.init_from.*$from belongs to other base weights than those of mine/model; lora.other_base = yes" \
            threads -c lm.conf -o model.folder=mine/model -o lora.init_from=$from $mode
    done
    evaluates other -o lora.init_from=$from
    equal "$from with its own" "$bits" "$want"
done
evaluates other -o lora.init_from=mine -o model.folder=mine/model -o lora.other_base=yes
check "if the configuration says so" [ "$code" -eq 0 ]
check "that is another loss" [ "$bits" != "$want" ]
refused "a prediction with other weights" 78 'mine belongs to other base weights' \
    threads -c lm.conf --generate - -o model.folder=mine/model --run-dir mine
evaluates other -o lora.init_from="$aside/of-llama-qv" -o lora.rank=4 -o lora.alpha=8 -o model.folder=mine/model
check "adapters of peft do not name them" [ "$code" -eq 0 ]
for n in 1 4; do
    evaluates other -o lora.init_from=mine --stages $n
    equal "on $n stages" "$bits" "$want"
done
refused "on four stages, other weights" 78 'mine belongs to other base weights' \
    threads -c lm.conf -o lora.init_from=mine -o model.folder=mine/model --stages 4 --run-dir fresh

# ---- a run that was killed -------------------------------------------------------------------------------------------
config llama 'rank = 4  alpha = 9  rslora = yes'
"$mpstaged" --transport local -c lm.conf --run-dir killed -o train.steps=1000000 -o checkpoint.every_steps=50 \
    >"$aside/out" 2>"$aside/err" </dev/null &
pid=$!
for _ in $(seq 600); do ! ls killed/checkpoints/step-????????/manifest.json >"$aside/ls" 2>&1 || break; sleep 0.05; done
kill -9 $pid
wait $pid 2>/dev/null || true
evaluates other -o lora.init_from=killed
want=$bits
sed -i 's/^lora .*/lora { init_from = "killed" }/' lm.conf
evaluates other
equal "the settings of a run that was killed" "$bits" "$want"
sed -i 's/^lora .*/lora { rank = 4  init_from = "killed"  alpha = 4 }/' lm.conf
refused "another alpha than that of a run that was killed" 78 'lora.alpha.*lora_alpha = 9' threads -c lm.conf
refused "checkpoints with other base weights" 78 'killed belongs to other base weights' \
    threads -c lm.conf -o lora.alpha=9 -o lora.rslora=yes -o model.folder=mine/model
rm -rf killed/adapter
sed -i 's/^lora .*/lora { rank = 4  init_from = "killed" }/' lm.conf
refused "adapters whose alpha is nowhere" 78 'lora.alpha: missing, and killed has no adapter_config.json' \
    threads -c lm.conf

# ---- folders of an earlier run ---------------------------------------------------------------------------------------
left() { find "$1" -maxdepth 1 -type d \( -name model -o -name adapter \) -printf '%f ' | tr ' ' '\n' | sort | xargs; }
config llama 'rank = 4  merge = yes'
trains twice threads -c lm.conf -o train.steps=2 -o checkpoint.every_steps=2
equal "the folders of a run" "$(left twice)" "adapter model"
sed -i 's/^lora .*/lora { rank = 4 }/' lm.conf
job threads -c lm.conf --run-dir twice -o train.steps=3 --resume
[ "$code" -eq 0 ] || why
equal "resumed without lora.merge" "$(left twice)" "adapter"

# ---- convolutions ----------------------------------------------------------------------------------------------------
cat >conv.conf <<'END'
run { name = "conv" }
model { network = "resnet18"  classes = 5  input = {3, 32, 32} }
data { source = "synthetic"  samples = 8  test_samples = 4 }
train { batch_size = 4  split_size = 2  steps = 2  optimizer = "adamw"  learning_rate = 1e-4 }
pipeline { stages = 2  partition = "uniform"  profile_spread = 1e9 }
END
{ cat conv.conf; echo 'lora { rank = 2  alpha = 6  dropout = 0.1  targets = {"conv1", "0", "fc"}  merge = yes }'; } \
    >adapted.conf
trains conv-base threads -c conv.conf
trains conv threads -c adapted.conf --init-from conv-base
want=$hash
trains conv-one threads -c adapted.conf --init-from conv-base --stages 1
equal "convolutions on one stage: the same adapters" "$hash" "$want"
job threads -c adapted.conf --init-from conv-base --predict "$aside/run.npy" --run-dir conv
[ "$code" -eq 0 ] || why
job threads -c conv.conf --init-from conv/model --predict "$aside/merged.npy" --run-dir other
[ "$code" -eq 0 ] || why
near "convolutions: RUN/model" "$aside/run.npy" "$aside/merged.npy"
equal "the folders of such a run" "$(left conv)" "adapter model"
refused "adapters without their base" 78 'other base weights than these, which are drawn at random' \
    threads -c adapted.conf -o lora.init_from=conv --run-dir fresh
refused "a run that would remove what it reads" 73 'conv/model: is read as run.init_from' \
    threads -c conv.conf --run-dir conv --overwrite --init-from conv/model
mkdir kept; cp -r conv/model kept/model
trains kept threads -c conv.conf
equal "a user's folder" "$(left kept)" "model"
job threads -c conv.conf --run-dir conv --overwrite
[ "$code" -eq 0 ] || why
equal "replaced by a run without adapters" "$(left conv)/$(ls conv | grep -c weights.safetensors)" "/1"
trains conv-on threads -c conv.conf --init-from conv

# ---- the same bits ---------------------------------------------------------------------------------------------------
# same TEXT RANKS OPTIONS...: weights as those of $want
same() {
    same_text=$1 same_ranks=$2; shift 2
    rm -rf same
    job "$same_ranks" -c lm.conf --run-dir same "$@"
    [ "$code" -eq 0 ] || why
    equal "$same_text: the same adapters" "$(hash_of same 2>/dev/null || echo "status $code")" "$want"
}
config llama-tied 'rank = 3  alpha = 7  rslora = yes  dropout = 0.2'
trains one threads -c lm.conf --stages 1
want=$hash
for n in 2 3 4; do same "$n stages" threads --stages $n; done
for s in naive gpipe zb-h1; do same "$s" threads --stages 3 -o pipeline.schedule=$s; done
same "zb-v" threads --stages 4 -o pipeline.ranks=2 -o pipeline.schedule=zb-v
same "recomputed" threads --stages 2 -o pipeline.recompute=all
same "processes" 2 --stages 2
trains groups threads -c lm.conf --stages 1 -o train.split_size=1 -o train.gradient_groups=2
want=$hash
same "two replicas" 4 --stages 2 -o train.split_size=1 -o train.gradient_groups=2 -o pipeline.replicas=2
trains averaged threads -c lm.conf --stages 1 -o train.ema=0.9
want=$hash
same "averages" threads --stages 3 -o train.ema=0.9

# ---- checkpoints -----------------------------------------------------------------------------------------------------
config llama-tied 'rank = 3  dropout = 0.2'
trains whole threads -c lm.conf
want=$hash
job threads -c lm.conf --run-dir part -o train.steps=4 -o checkpoint.every_steps=2
equal "a checkpoint has adapters alone" "$(for f in part/checkpoints/step-00000004/*.safetensors; do
    "$tool" tensors "$f"; done | grep -vc '\.lora_[AB]\.weight')" 0
cp -r part again
job threads -c lm.conf --run-dir part --resume -o checkpoint.every_steps=2 --stages 3
equal "stopped after 4 steps and resumed on 3 stages: the same adapters" "$(hash_of part | tail -n 1)" "$want"
predicts "$aside/whole.npy" --run-dir whole
job threads -c lm.conf -o data.test="$aside/tokens.npy" -o data.test_labels="$aside/labels.npy" \
    --predict "$aside/part.npy" --run-dir part
check "a prediction takes the run's adapters" cmp -s "$aside/whole.npy" "$aside/part.npy"
cp -r "$aside/llama-tied" "$aside/other-base"
size=$(wc -c <"$aside/other-base/model.safetensors")
printf '\001' | dd of="$aside/other-base/model.safetensors" bs=1 seek=$((size - 4)) conv=notrunc 2>"$aside/dd"
refused "resumed with other base weights" 78 "step-00000004: the base weights are other ones now, which changes" \
    threads -c lm.conf --run-dir again --resume -o checkpoint.every_steps=2 -o model.folder="$aside/other-base"
job threads -c lm.conf --run-dir again --resume=force -o checkpoint.every_steps=2 -o model.folder="$aside/other-base"
check "but with --resume=force" [ "$code" -eq 0 ]

# ---- the base is read once -------------------------------------------------------------------------------------------
# Counts the bytes that are read of model.safetensors; with READ_TERM the first piece brings a SIGTERM.
cat >"$aside/read.c" <<'END'
#define _GNU_SOURCE
#include <dlfcn.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
ssize_t pread(int fd, void *p, size_t n, off_t at)
{
    static size_t all;
    char link[40], path[400] = "";
    ssize_t (*next)(int, void *, size_t, off_t) = dlsym(RTLD_NEXT, "pread");
    const ssize_t got = next(fd, p, n, at);
    snprintf(link, sizeof link, "/proc/self/fd/%d", fd);
    if (readlink(link, path, sizeof path - 1) < 0 || !strstr(path, "/llama-tied/model.safetensors") || at <= 8)
        return got;
    FILE *f = fopen(getenv("READ_COUNT"), "w");
    fprintf(f, "%zu\n", all += (size_t)got);
    fclose(f);
    if (getenv("READ_TERM") && all == (size_t)got) kill(getpid(), SIGTERM), usleep(150000);
    return got;
}
END
if ${CC:-cc} -shared -fPIC -o "$aside/read.so" "$aside/read.c" -ldl 2>"$aside/err"; then
    export READ_COUNT="$aside/count" LD_PRELOAD="$aside/read.so"
    job threads -c lm.conf --run-dir counted --stages 1 -o train.steps=2 -o checkpoint.every_steps=1
    first=$(cat "$aside/count")
    job threads -c lm.conf --run-dir counted --stages 1 -o train.steps=3 --resume
    check "the base is read once, also by a resumed run: $first, $(cat "$aside/count")" \
        [ "$((first <= $(wc -c <"$aside/llama-tied/model.safetensors"))) $first" = "1 $(cat "$aside/count")" ]
    export READ_TERM=yes
    job threads -c lm.conf --run-dir stopped --stages 1
    check "a signal ends that: $code, after $(cat "$aside/count") bytes" \
        [ "$code $(($(cat "$aside/count") < first / 2))" = "75 1" ]
    unset READ_COUNT READ_TERM LD_PRELOAD
else skip "the base is read once" "no C compiler"; fi

# ---- the base as it is stored ----------------------------------------------------------------------------------------
# Weights with 8 bits are the same in bf16, so a folder in bf16 changes no bit.
sed '/^lora/d; s/steps = 10/steps = 1/' lm.conf >plain.conf
job threads -c plain.conf --run-dir rounded -o model.save_dtype=bf16 -o train.learning_rate=0
job threads -c plain.conf --run-dir widened -o model.folder=rounded/model -o model.save_dtype=fp32 \
    -o train.learning_rate=0
[ "$code" -eq 0 ] || why
trains narrow threads -c lm.conf -o model.folder=rounded/model
want=$hash
same "the same weights in fp32" threads -o model.folder=widened/model
# A head of many classes, with more rows in a micro-batch than it has inputs: its workspace is no larger than planned.
cat >wide.conf <<END
run      { name = "wide" }
model    { network = "llama"  hidden_size = 64  intermediate_size = 64  num_hidden_layers = 1  num_attention_heads = 1
           vocab_size = 6000  max_position_embeddings = 64  input = {64} }
data     { source = "tokens"  token_type = "u8"  train_tokens = {"$aside/wide.bin"} }
train    { batch_size = 4  split_size = 4  steps = 2  optimizer = "adamw"  learning_rate = 0.01 }
lora     { rank = 2 }
END
awk 'BEGIN { for (i = 0; i < 400; i++) printf "%c", 33 + i * i % 60 }' >"$aside/wide.bin"
sed '/^lora/d' wide.conf >whole.conf
job threads -c whole.conf --run-dir wide -o model.save_dtype=bf16 --learning-rate 0 --steps 1
sed -i 's|network = .*|folder = "wide/model"  input = {64} }|; /vocab_size/d' wide.conf
trains wide-narrow threads -c wide.conf
want=$hash
job threads -c wide.conf --run-dir same-wide -o train.frozen_type=fp32
equal "a wide head in bf16 and in fp32: the same adapters" "$(hash_of same-wide)" "$want"
# planned WHAT FOLDER OPTIONS...: bytes on one rank
planned() {
    planned_what=$1 planned_folder=$2; shift 2
    "$mpstaged" -c lm.conf --stages 1 --plan --json -o model.folder="$planned_folder" "$@" 2>"$aside/err" |
        grep -o "\"${planned_what}_bytes\": *[0-9]*" | grep -o '[0-9]*$'
}
# stored MATRIX FILE: bytes of its tensors, those of matrices MATRIX a number, in lines of 64
stored() {
    "$tool" tensors "$2" | awk -v m="$1" '{ n = 1; for (i = 2; i <= NF; i++) n *= $i
        all += int((n * (NF > 2 ? m : 4) + 63) / 64) * 64 } END { print all }'
}
own=$(stored 4 narrow/weights.safetensors)
equal "bytes of weights by the plan: 2 a number of base weights" "$(planned weight rounded/model)" \
    $(($(stored 2 rounded/model/model.safetensors) + own))
equal "4 where the folder has fp32" "$(planned weight widened/model)" \
    $(($(stored 4 widened/model/model.safetensors) + own))
for folder in rounded/model widened/model; do
    equal "$folder: in bf16 no more" \
        "$(planned weight $folder --precision bf16 -o run.emulate_bf16=yes)" "$(planned weight $folder)"
done
equal "and 12 a trained number besides its value" \
    "$(planned gradient rounded/model) $(planned optimizer rounded/model)" "$own $((2 * own))"

# ---- peft ------------------------------------------------------------------------------------------------------------
cat >"$aside/load.py" <<'END'
import json, sys
import torch
from peft import PeftModel
from transformers import AutoModelForCausalLM
prompts, rows = sys.argv[1], sys.argv[2:]
for base, adapter, texts in zip(rows[::3], rows[1::3], rows[2::3]):
    model = PeftModel.from_pretrained(AutoModelForCausalLM.from_pretrained(base), adapter)
    ids = torch.tensor([json.loads(open(prompts).readline())["input_ids"]])
    n = ids.shape[1]
    with torch.no_grad():
        for _ in range(12):
            ids = torch.cat([ids, model(input_ids=ids).logits[:, -1].argmax(-1, keepdim=True)], 1)
    print(adapter, ids[0, n:].tolist() == json.loads(open(texts).readline())["ids"])
END
python=${MPSTAGED_PYTHON:-python3}
if "$python" -c 'import peft, torch, transformers' 2>/dev/null; then
    while read -r a m; do
        config "$m" "init_from = \"$a/adapter\""
        job threads -c lm.conf --generate - --run-dir other
        cp "$aside/out" "$aside/$a.texts"
        echo "$aside/$m" "$a/adapter" "$aside/$a.texts"
    done <"$aside/all" >"$aside/rows"
    xargs "$python" "$aside/load.py" "$aside/prompts.jsonl" <"$aside/rows" >"$aside/loaded" 2>"$aside/err" || why
    while read -r a m; do
        equal "$a: peft loads it and continues alike" "$(sed -n "s#^$a/adapter ##p" "$aside/loaded")" True
    done <"$aside/all"
else skip "peft loads RUN/adapter" "no peft: pip install peft"
fi

# ---- what is wrong ---------------------------------------------------------------------------------------------------
config llama 'rank = 4'
refused "a target that names nothing" 78 'lora.targets=.*"q_prod" names no linear layer.*did you mean q_proj' \
    threads -c lm.conf -o 'lora.targets={"v_proj", "q_prod"}'
refused "a network as adapter" 78 'lora.init_from=.* holds no adapter .no adapter_config.json.; a network.s folder is' \
    threads -c lm.conf -o lora.init_from="$aside/llama"
refused "the head" 78 'lora.targets=.*"lm_head": a decoder.s head takes no' threads -c lm.conf -o lora.targets=lm_head
refused "an embedding" 78 'lora.targets=.*"embed_tokens" names no' threads -c lm.conf -o lora.targets=embed_tokens
refused "frozen layers" 78 'train.freeze=.*with lora' threads -c lm.conf -o train.freeze=lm_head
refused "an adapter that is not there" 66 'nowhere' threads -c lm.conf -o lora.init_from=nowhere
config llama 'alpha = 3'
refused "settings without a rank" 78 'lm.conf:7: lora.alpha: needs lora.rank' threads -c lm.conf
config llama 'rank = 4'

# A config.json that speaks of bf16 beside files of fp32 rounds nothing.
trains as-stored threads -c lm.conf -o train.steps=2
want=$hash
cp -r "$aside/llama" "$aside/llama-says-bf16"
sed -i 's/"model_type"/"torch_dtype": "bfloat16", "model_type"/' "$aside/llama-says-bf16/config.json"
trains says-bf16 threads -c lm.conf -o train.steps=2 -o model.folder="$aside/llama-says-bf16"
equal "files of fp32 whose config.json says bf16: the same weights" "$hash" "$want"

# wrong TEXT STATUS PATTERN SED OPTIONS...: with a changed adapter_config.json
wrong() {
    rm -rf "$aside/bad"; cp -r "$aside/of-llama-qv" "$aside/bad"
    wrong_text=$1 wrong_code=$2 wrong_pattern=$3
    sed -i "$4" "$aside/bad/adapter_config.json"; shift 4
    refused "$wrong_text" "$wrong_code" "$wrong_pattern" threads -c lm.conf -o lora.init_from="$aside/bad" "$@"
}
one='s/"bias"/KEY, "bias"/'
for k in use_dora:true 'rank_pattern:{"q_proj":2}' 'modules_to_save:["lm_head"]' 'alpha_pattern:{"q_proj":2}' \
    'layers_to_transform:[1]' lora_bias:true 'init_lora_weights:"pissa"'; do
    wrong "${k%%:*}" 78 "bad/adapter_config.json: ${k%%:*} .*not supported" \
        "$(echo "$one" | sed "s/KEY/\"${k%%:*}\": ${k#*:}/")"
done
wrong "another kind of adapter" 78 'bad/adapter_config.json: peft_type IA3' s/LORA/IA3/
wrong "trained biases" 78 'bad/adapter_config.json: bias "all"' s/none/all/
wrong "no rank" 78 'bad/adapter_config.json: r is no number' '/"r":/d'
wrong "a rank that is no whole number" 78 'bad/adapter_config.json: r is no whole number' 's/"r": *4/"r": 4.5/'
wrong "a dropout of 1" 78 'bad/adapter_config.json: lora_dropout 1 is not below 1' \
    's/"lora_dropout": *[0-9.]*/"lora_dropout": 1/'
wrong "a pattern of names" 78 'target_modules ".\*q_proj" is a pattern' \
    '/"target_modules"/,/]/c "target_modules": ".*q_proj"'
wrong "another alpha" 78 'lora.alpha=4: .*lora_alpha = 8' '' -o lora.alpha=4
wrong "no JSON" 78 'bad/adapter_config.json:[0-9]*: ' 's/^{/[/'
a=model.layers.0.self_attn.q_proj.lora_A.weight
wrong "another rank" 78 'lora.rank=2: .*bad/adapter_config.json has r = 4' '' -o lora.rank=2
wrong "tensors of another rank" 65 "bad: tensor $a has shape 4x32, the model has 2x32" 's/"r": *4/"r": 2/' \
    -o lora.rank=2
wrong "other layers" 65 'tensor model.layers.0.self_attn.k_proj.lora_A.weight is missing' '' \
    -o 'lora.targets={"q_proj", "k_proj", "v_proj"}'
wrong "another base" 65 "tensor $a has shape 4x32, the model has 4x24" '' -o model.folder="$aside/llama-tied"
wrong "fewer layers" 65 'tensor .*v_proj.lora_[AB].weight is unexpected' '' -o lora.targets=q_proj
refused "a run of adapters as the base" 78 'llama-qv is a run of adapters: lora.init_from .*folder model' \
    threads -c lm.conf --init-from llama-qv
rm -f "$aside/bad/adapter_model.safetensors"
refused "no weights of it" 66 'bad/adapter_model.safetensors' threads -c lm.conf -o lora.init_from="$aside/bad"
refused "the weights that a run begins with" 73 'read as lora.init_from' \
    threads -c lm.conf -o lora.init_from=llama-qv/adapter --run-dir llama-qv --overwrite
job threads -c lm.conf --generate - --run-dir nothing
check "a generation without trained adapters" \
    sh -c '[ "$0" -eq 66 ] && grep -q "lora.init_from" "$1"' "$code" "$aside/err"
tap_done
