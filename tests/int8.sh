#!/bin/sh
# int8.sh: weights in 8 bits. model.load_in_8bit gives the loss and the texts of weights that are rounded so, with the
# same bits from any number of stages, and adapters train beside them. RUN/model with save_dtype = "int8" has
# bitsandbytes' tensors and is read back as it is; GPT-2's layers, too. With bitsandbytes at hand (python3, or
# $MPSTAGED_PYTHON) its codes are these. What does not fit is said in a line.
set -eu
. "$(dirname -- "$0")/mpi_lib.sh"
tool=$build/tests/decoder_tool models=$here/lm/models

"$tool" data "$aside"
# config MODEL: the file lm.conf
config() {
    cat >lm.conf <<END
run      { name = "lm" }
model    { folder = "$aside/$1"  input = {32} }
data     { source = "npy"  labels = "map"  train = "$aside/tokens.npy"  train_labels = "$aside/labels.npy"
           test = "$aside/tokens.npy"  test_labels = "$aside/labels.npy"  shuffle = no }
train    { batch_size = 6  split_size = 4  steps = 2  optimizer = "adamw"  learning_rate = 1e-4  evaluate = no }
pipeline { stages = 2  partition = "uniform"  profile_spread = 1e9 }
generate { prompts = "$aside/prompts.jsonl"  max_tokens = 12 }
END
}
loss() { sed -n 's/.*"event":"evaluation".*"loss":\([0-9.]*\).*"loss_bits":"\([^"]*\)".*/\1 \2/p' "$1/metrics.jsonl"; }
ids() { sed -n 's/.*"ids":\[\([-0-9,]*\)\].*/\1/p' "$aside/out"; }
# evaluates NAME OPTIONS...
evaluates() {
    evaluates_name=$1; shift
    job threads -c lm.conf --evaluate --run-dir "$evaluates_name" "$@"
    [ "$code" -eq 0 ] || why
}
# near A B: both losses, within 0.2 %
near() { awk -v a="${1% *}" -v b="${2% *}" 'BEGIN { d = a - b; if (d < 0) d = -d; exit !(a > 0 && d < 0.002 * a) }'; }

echo "{\"input_ids\": [$("$tool" prompt 3 5)]}" >"$aside/prompts.jsonl"
for m in llama gpt2 qwen3; do
    "$tool" folder "$models" "$m" "$aside/$m"
    config "$m"
    evaluates "$m-plain" --init-from "$aside/$m"
    evaluates "$m-codes" --init-from "$aside/$m" -o model.load_in_8bit=yes
    check "$m: the loss in 8 bits is near, $(loss "$m-codes") and $(loss "$m-plain")" \
        near "$(loss "$m-codes")" "$(loss "$m-plain")"
    check "$m: and another" [ "$(loss "$m-codes")" != "$(loss "$m-plain")" ]
    evaluates "$m-three" --init-from "$aside/$m" -o model.load_in_8bit=yes --stages 3
    equal "$m: the same bits on three stages" "$(loss "$m-three")" "$(loss "$m-codes")"
    # A folder with codes.
    trains "$m-run" threads -c lm.conf --init-from "$aside/$m" -o model.save_dtype=int8 --steps 1 --learning-rate 0
    check "$m: tensors of bitsandbytes" sh -c '"$0" tensors "$1" | grep -q "SCB" &&
        grep -q "\"load_in_8bit\": true" "$2"' "$tool" "$m-run/model/model.safetensors" "$m-run/model/config.json"
    trains "$m-shards" threads -c lm.conf --init-from "$aside/$m" -o model.save_dtype=int8 --steps 1 \
        --learning-rate 0 -o model.max_shard_size=5000
    evaluates "$m-pieces" --init-from "$m-shards/model" -o model.folder="$m-shards/model"
    equal "$m: in shards, too" "$(loss "$m-pieces")" "$(loss "$m-codes")"
    evaluates "$m-back" --init-from "$m-run/model" -o model.folder="$m-run/model"
    equal "$m: a folder with codes: the same bits" "$(loss "$m-back")" "$(loss "$m-codes")"
    job threads -c lm.conf --generate - --init-from "$aside/$m" -o model.load_in_8bit=yes
    all=$(ids)
    job threads -c lm.conf --generate - --init-from "$m-run/model" -o model.folder="$m-run/model" --stages 3
    equal "$m: the same texts" "$(ids)" "$all"
    job threads -c lm.conf --generate - --init-from "$m-run/model" -o model.load_in_8bit=no
    equal "$m: texts of the rounded weights in fp32" "$(ids)" "$all"
done

# ---- adapters --------------------------------------------------------------------------------------------------------
config llama
cat >>lm.conf <<'END'
lora { rank = 4 }
END
trains wide threads -c lm.conf --steps 4
trains codes threads -c lm.conf --steps 4 -o model.load_in_8bit=yes
want=$hash
check "adapters beside codes: other weights" [ "$want" != "$(hash_of wide)" ]
# train.frozen_type stores the table of tokens in 8 bits, too.
first_loss() { sed -n '/"event":"step","step":1,/s/.*"loss":\([0-9.]*\).*/\1/p' "$1/metrics.jsonl"; }
trains tables threads -c lm.conf --steps 4 -o train.frozen_type=int8
check "all frozen weights in 8 bits: the loss is near, $(first_loss tables) and $(first_loss wide)" \
    near "$(first_loss tables)" "$(first_loss wide)"
trains codes-3 3 -c lm.conf --steps 4 -o model.load_in_8bit=yes --stages 3
equal "adapters beside codes: the same weights on three ranks" "$hash" "$want"
# The digest of the base, which is another, is in the file of weights.
gradients() { grep -o '"grad_hash":"[^"]*"' "$1/metrics.jsonl"; }
trains from-codes threads -c lm.conf --steps 4 -o model.folder="$PWD/llama-run/model"
equal "adapters beside a folder of codes: the same gradients" "$(gradients from-codes)" "$(gradients codes)"
# bytes OPTIONS...: of the stage of the plan
bytes() {
    job threads -c lm.conf --plan --json --stages 1 "$@"
    grep -o '"peak_bytes": *[0-9]*' "$aside/out" | head -n 1 | grep -o '[0-9]*$'
}
for from in "$aside/llama" "$PWD/llama-run/model"; do
    job threads -c lm.conf --plan -o model.folder="$from" -o model.load_in_8bit=yes
    check "--plan beside codes says what is saved" sh -c '[ "$0" -eq 0 ] && grep -q "^frozen" "$1"' "$code" "$aside/out"
done
check "and they take less" [ "$(bytes -o model.load_in_8bit=yes)" -lt "$(bytes)" ]

# ---- what is wrong ---------------------------------------------------------------------------------------------------
# wrong TEXT CODE LINE OPTIONS...
wrong() {
    wrong_text=$1 wrong_code=$2 wrong_line=$3; shift 3
    rm -rf wrong
    job threads --run-dir wrong "$@"
    if [ "$code" -eq "$wrong_code" ] && [ "$(our_lines)" -eq 1 ] && [ ! -e wrong ] &&
        grep -q "^mpstaged: .*$wrong_line" "$aside/err"; then ok "$wrong_text"
    else why; not_ok "$wrong_text: $code"; fi
}
config llama
wrong "nothing is frozen" 78 "model.load_in_8bit.*no linear layer is frozen" -c lm.conf -o model.load_in_8bit=yes
wrong "a folder of codes, and nothing is frozen" 78 "no linear layer is frozen" -c lm.conf \
    -o model.folder="$PWD/llama-run/model"
write_conf toy.conf
trains wide-again threads -c lm.conf -o model.folder="$PWD/llama-run/model" -o model.load_in_8bit=no
wrong "a network that trains all its layers" 78 "no linear layer is frozen" -c toy.conf -o model.load_in_8bit=yes
cp -r llama-run/model four
sed -i 's/"load_in_8bit": true/"load_in_8bit": false/' four/config.json
wrong "other codes" 78 "four/config.json: quantization_config" -c lm.conf -o model.folder=four
cp -r llama-run/model without
LC_ALL=C sed -i 's/q_proj\.SCB/q_proj.SCX/' without/model.safetensors
wrong "codes without their factors" 65 "codes need factors, SCB" -c lm.conf -o model.folder=without -o lora.rank=2

# ---- bitsandbytes ----------------------------------------------------------------------------------------------------
python=${MPSTAGED_PYTHON:-python3}
if "$python" -c 'import bitsandbytes, torch, safetensors' 2>/dev/null; then
    if "$python" - "$aside/llama/model.safetensors" llama-run/model/model.safetensors >"$aside/said" 2>&1 <<'PY'
import sys
import bitsandbytes.functional as F
from safetensors.torch import load_file
plain, codes = load_file(sys.argv[1]), load_file(sys.argv[2])
names = [n[:-3] + "weight" for n in codes if n.endswith("SCB")]
assert len(names) >= 7
for n in names:
    q, scale, _ = F.int8_vectorwise_quant(plain[n].half())
    assert (q == codes[n]).all() and (scale == codes[n[:-6] + "SCB"]).all(), n
PY
    then ok "bitsandbytes' codes and factors"
    else note <"$aside/said"; not_ok "bitsandbytes' codes and factors"; fi
else skip "bitsandbytes' codes and factors" "no bitsandbytes: pip install bitsandbytes, and set MPSTAGED_PYTHON"; fi
tap_done
