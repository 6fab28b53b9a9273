#!/bin/sh
# generate.sh: --generate continues prompts as transformers does (the greedy tokens of tests/lm/decoders.expected): with
# one prompt and several, on any number of stages, ranks and sequences at a time, the same tokens. Drawing follows the
# probabilities and the seed. Prompts that are wrong are said in a line.
set -eu
. "$(dirname -- "$0")/mpi_lib.sh"
tool=$build/tests/decoder_tool models=$here/lm/models expected=$here/lm/decoders.expected

# config MODEL: the file lm.conf
config() {
    printf 'run { name = "lm" }\nmodel { folder = "%s" }\ngenerate { prompts = "%s" max_tokens = 12 }\n' \
        "$aside/$1" "$aside/prompts.jsonl" >lm.conf
}
# ids: of the last run's output, a line for each text
ids() { sed -n 's/.*"ids":\[\([-0-9,]*\)\].*/\1/p' "$aside/out" | tr ',' ' '; }
# line OPTIONS...: the value of a key in the first line of the output
field() { sed -n "1s/.*\"$1\":\"\{0,1\}\([^,\"}]*\).*/\1/p" "$aside/out"; }

"$tool" data "$aside"
prompt=$("$tool" prompt 3 5)
for m in $(sed -n 's/^\([a-z][^ ]*\) .*/\1/p' "$models"); do
    "$tool" folder "$models" "$m" "$aside/$m"
    config "$m"
    echo "{\"input_ids\": [$prompt]}" >"$aside/prompts.jsonl"
    job threads -c lm.conf --generate -
    [ "$code" -eq 0 ] || why
    equal "$m: the tokens of transformers" "$(ids)" "$(sed -n "s/^$m greedy //p" "$expected")"
done

# ---- the same logits without a cache ---------------------------------------------------------------------------------
# far: the largest difference of generate.logprobs to those of the whole sequence at once, as a prediction
far() {
    all="$prompt, $(ids | tr ' ' ',')"
    # shellcheck disable=SC2059
    printf "$(echo "$all" | tr ',' '\n' | awk '{ printf "\\%03o\\%03o", $1 % 256, int($1 / 256) }')" >"$aside/sequence"
    sed -n 's/.*"logprobs":\[\([^]]*\)\].*/\1/p' "$aside/out" | tr ',' '\n' >"$aside/cached"
    new=$(ids) entered=$(echo "$prompt" | wc -w)
    rm -rf p.npy
    job threads -c lm.conf --predict p.npy --predict-tensor lm_head -o data.source=tokens \
        -o model.input=$((entered + 11)) -o data.test_tokens="$aside/sequence" --init-from "$aside/$1/model.safetensors"
    # shellcheck disable=SC2086
    "$tool" logprobs p.npy $((entered - 1)) $new | paste - "$aside/cached" |
        awk '{ d = $1 - $2; if (d < 0) d = -d; if (!(d <= worst)) worst = d }
            END { print NR == 12 ? worst + 0 : "missing" }'
}
for m in $(sed -n 's/^\([a-z][^ ]*\) .*/\1/p' "$models"); do
    config "$m"
    echo "{\"input_ids\": [$prompt]}" >"$aside/prompts.jsonl"
    job threads -c lm.conf --generate - -o generate.logprobs=yes
    apart=$(far "$m")
    check "$m: logits with a cache are those without: $apart" \
        awk -v x="$apart" 'BEGIN { exit !(x != "missing" && x < 1e-5) }'
done

# ---- the same tokens -------------------------------------------------------------------------------------------------
config llama
for i in 1 2 3 4 5 0; do
    for n in 1 3 17 $((i + 7)); do echo "{\"input_ids\": [$("$tool" prompt "$i" "$n")]}"; done
done >"$aside/prompts.jsonl"
job threads -c lm.conf --generate - -o train.evaluate_batch_size=1
[ "$code" -eq 0 ] || why
want=$(ids)
equal "24 prompts, one at a time" "$(ids | wc -l)" 24
# same TEXT RANKS OPTIONS...
same() {
    same_text=$1 same_ranks=$2; shift 2
    job "$same_ranks" -c lm.conf --generate - "$@"
    [ "$code" -eq 0 ] || why
    equal "$same_text: the same tokens" "$(ids)" "$want"
}
same "24 at a time" threads -o train.evaluate_batch_size=24
same "5 at a time" threads -o train.evaluate_batch_size=5
for n in 2 3 4; do same "$n stages" threads --stages $n -o train.evaluate_batch_size=7; done
same "2 processes" 2 --stages 2 -o train.evaluate_batch_size=24
equal "one at a time, drawn" "$(job threads -c lm.conf --generate - -o generate.temperature=1 \
    -o train.evaluate_batch_size=1; ids)" "$(job threads -c lm.conf --stages 3 --generate - \
    -o generate.temperature=1; ids)"
check "drawn with another seed" [ "$(job threads -c lm.conf --generate - -o generate.temperature=1; ids)" != \
    "$(job threads -c lm.conf --generate - -o generate.temperature=1 -o generate.seed=2; ids)" ]
same "top_k = 1" threads -o generate.temperature=1 -o generate.top_k=1
same "top_p = 0" threads -o generate.temperature=1 -o generate.top_p=0

# ---- output ----------------------------------------------------------------------------------------------------------
job threads -c lm.conf --generate texts.jsonl
[ "$code" -eq 0 ] || why
equal "a file has the same lines" "$(sed -n 's/.*"ids":\[\([-0-9,]*\)\].*/\1/p' texts.jsonl | tr ',' ' ')" "$want"
event=$(grep '"event":"generation"' runs/lm-generate/metrics.jsonl | tail -n 1)
check "its event: ${event:-none}" [ "$(echo "$event" | sed 's/.*"prompts":\([0-9]*\),"tokens":\([0-9]*\).*/\1 \2/')" = \
    "24 $((24 * 12))" ]
echo "{\"input_ids\": [$("$tool" prompt 0 4)]}" >"$aside/prompts.jsonl"
job threads -c lm.conf --generate - -o generate.max_tokens=100
equal "the context of 64 ends a text" "$(field reason) $(ids | wc -w)" "context 60"
job threads -c lm.conf --generate - -o generate.max_tokens=3
equal "generate.max_tokens ends a text" "$(field reason) $(ids | wc -w)" "length 3"
second=$(ids | cut -d ' ' -f 2)
rm -rf "$aside/ends"; cp -r "$aside/llama" "$aside/ends"
printf '\377\377\377\177' | dd of="$aside/ends/model.safetensors" bs=1 conv=notrunc 2>"$aside/err" \
    seek=$(($(wc -c <"$aside/ends/model.safetensors") - 4))
for n in 1 2; do
    job threads -c lm.conf --run-dir nan --generate - -o model.folder="$aside/ends" --stages $n
    check "weights that are not finite, $n stages" sh -c \
        '[ "$0" -eq 79 ] && grep -q "the logits of prompt 0 at position [0-9]* are not finite" "$1"' "$code" \
        "$aside/err"
done
rm -rf "$aside/ends"; cp -r "$aside/llama" "$aside/ends"
echo "{\"eos_token_id\": [$second, 256]}" >"$aside/ends/generation_config.json"
job threads -c lm.conf --generate - -o model.folder="$aside/ends"
equal "a token of eos_token_id ends a text" "$(field reason) $(ids | cut -d ' ' -f 1-2 | wc -w)" "eos 2"

# ---- a text that was learned -----------------------------------------------------------------------------------------
yes "a text that repeats itself" | head -n 300 >"$aside/text"
cat >tokens.conf <<END
model { network = "gpt2"  input = {96}  vocab_size = 256  hidden_size = 32  num_hidden_layers = 1
        num_attention_heads = 2  max_position_embeddings = 256 }
data  { source = "tokens"  token_type = "u8"  train_tokens = {"$aside/text"} }
train { batch_size = 8  steps = 250  optimizer = "adamw"  learning_rate = 0.01 }
pipeline { stages = 2  partition = "uniform"  profile_spread = 1e9 }
END
trains text threads -c tokens.conf
job threads -c tokens.conf --run-dir text --generate - --prompt "a text" --prompt "that r" -o generate.max_tokens=8
[ "$code" -eq 0 ] || why
equal "it continues its text" "$(sed 's/.*"text":"\([^"]*\)".*/\1/' "$aside/out")" "$(printf ' that re\neats its')"
long=$(head -n 3 "$aside/text")
job threads -c tokens.conf --run-dir text --generate - --prompt "$long" -o generate.max_tokens=8
equal "also a long prompt, of $(printf %s "$long" | wc -c) tokens" "$(field text)" '\na text '
job threads -c tokens.conf --run-dir text --generate - --prompt "a text" -o generate.stop=tha
equal "generate.stop ends a text" "$(field reason) $(field text)" "stop  tha"

# A run that has only checkpoints: the newest, if its files are those of the manifest.
job threads -c tokens.conf --run-dir kept --steps 2 -o checkpoint.every_steps=2
rm kept/weights.safetensors
job threads -c tokens.conf --run-dir kept --generate - --prompt "a text" -o generate.max_tokens=2
check "the newest checkpoint" sh -c '[ "$0" -eq 0 ] && grep -q "step-00000002 (the newest checkpoint)" "$1"' "$code" \
    "$aside/err"
for f in kept/checkpoints/*/model-*.safetensors; do
    printf '\0\0\0\0' | dd of="$f" bs=1 conv=notrunc seek=$(($(wc -c <"$f") - 4)) 2>"$aside/dd"
done
rm -rf kept-generate
job threads -c tokens.conf --run-dir kept --generate - --prompt "a text" -o generate.max_tokens=2
check "not if its hash differs" sh -c '[ "$0" -eq 65 ] && [ ! -e kept-generate ] &&
    grep -q "^mpstaged: kept.*hash" "$1"' "$code" "$aside/err"

# ---- text and a tokenizer.json ---------------------------------------------------------------------------------------
cat >bpe.conf <<END
model { network = "gpt2"  input = {32}  vocab_size = 330  hidden_size = 32  num_hidden_layers = 1
        num_attention_heads = 2  max_position_embeddings = 256 }
data  { source = "text"  tokenizer = "$here/lm/tokenizers/gpt2.json"
        train_text = "$aside/text"  test_text = "$aside/text" }
train { batch_size = 8  steps = 150  optimizer = "adamw"  learning_rate = 0.01 }
pipeline { stages = 2  partition = "uniform"  profile_spread = 1e9 }
END
trains bpe threads -c bpe.conf
bits=$(sed -n 's/.*"bits_per_byte":\([0-9.]*\).*/\1/p' bpe/metrics.jsonl | tail -n 1)
check "bits a byte: ${bits:-none}" awk -v x="${bits:-9}" 'BEGIN { exit !(x > 0 && x < 1) }'
job threads -c bpe.conf --run-dir bpe --generate - --prompt "a text that" -o generate.max_tokens=6
[ "$code" -eq 0 ] || why
check "it continues its text: $(field text)" \
    sh -c 'case " repeats itself" in "$0"*) [ ${#0} -gt 3 ] ;; *) false ;; esac' "$(field text)"
job threads -c bpe.conf --run-dir bpe --generate - --prompt "a" -o generate.max_tokens=2 -o checkpoint.best=loss
check "with checkpoint.best, of a run that has none" sh -c '[ "$0" -eq 0 ] && grep -q "final weights" "$1"' "$code" \
    "$aside/err"
# The first samples have shorter tokens than the rest: only their bytes count. Two samples are 64 labels.
{ seq 1 80 | tr '\n' ' '; cat "$aside/text"; } >"$aside/mixed"
job threads -c bpe.conf --evaluate --init-from bpe --run-dir mixed -o data.test_text="$aside/mixed" \
    -o data.test_samples=2
[ "$code" -eq 0 ] || why
"$build/mpstage-tokens" -t "$here/lm/tokenizers/gpt2.json" "$aside/mixed" "$aside/mixed.bin" 2>"$aside/err"
dd if="$aside/mixed.bin" of="$aside/labels.bin" bs=2 skip=1 count=64 2>"$aside/err"
bytes=$("$build/mpstage-tokens" -d -t "$here/lm/tokenizers/gpt2.json" "$aside/labels.bin" - | wc -c)
scores=$(sed -n 's/.*"event":"evaluation".*"loss":\([0-9.]*\),.*"bits_per_byte":\([0-9.]*\).*/\1 \2/p' \
    mixed/metrics.jsonl)
check "bits a byte of $bytes bytes: ${scores:-none}" awk -v s="$scores" -v b="$bytes" 'BEGIN {
    split(s, x); d = x[1] / log(2) * 64 / b - x[2]; if (d < 0) d = -d; exit !(x[2] > 0 && d < 1e-4 * x[2]) }'
job threads -c bpe.conf --run-dir small -o model.vocab_size=300
check "a tokenizer larger than the vocabulary" \
    sh -c '[ "$0" -eq 78 ] && grep -q "data.tokenizer: .*330 tokens.*300" "$1"' "$code" "$aside/err"
printf 'a\377' >"$aside/no"
job threads -c bpe.conf --run-dir small -o data.train_text="$aside/no"
check "a text that is none" sh -c '[ "$0" -eq 65 ] && grep -q "no: byte 1 is not UTF-8" "$1"' "$code" "$aside/err"

# ---- what is wrong ---------------------------------------------------------------------------------------------------
# wrong TEXT STATUS PATTERN OPTIONS...: one line with that pattern, nothing created
wrong() {
    wrong_text=$1 wrong_code=$2 wrong_pattern=$3; shift 3
    rm -rf wrong wrong-generate
    job threads -c lm.conf --run-dir wrong "$@"
    if [ "$code" -eq "$wrong_code" ] && [ "$(our_lines)" -eq 1 ] && [ ! -e wrong ] && [ ! -e wrong-generate ] &&
        grep '^mpstaged: ' "$aside/err" | grep -qE -- "$wrong_pattern"; then ok "$wrong_text"
    else why; not_ok "$wrong_text: $code, wanted $wrong_code and $wrong_pattern"; fi
}
wrong "a prompt without --generate" 64 "prompt needs --generate" --prompt a
wrong "what draws, where nothing is drawn" 78 "generate.top_k=4: nothing is drawn" --generate - --prompt a \
    -o generate.top_k=4
wrong "a prompt that is no UTF-8" 78 "--prompt: the text is not UTF-8" --generate - --prompt "$(printf 'a\377')"
echo '{"input_ids": [1, 257]}' >"$aside/prompts.jsonl"
wrong "a token above the vocabulary" 65 "prompts.jsonl:1: token 257 at 1, and the vocabulary has 257" --generate -
printf '{"input_ids": [1]}\n{"input_ids": []}\n' >"$aside/prompts.jsonl"
wrong "an empty prompt" 65 "prompts.jsonl:2: .*empty" --generate -
echo '{"input_ids": ["a"]}' >"$aside/prompts.jsonl"
wrong "a prompt that is no number" 65 "prompts.jsonl:1: " --generate -
echo '{"prompt": "a"}' >"$aside/prompts.jsonl"
wrong "a line of another form" 65 "prompts.jsonl:1: expected" --generate -
echo '[1' >"$aside/prompts.jsonl"
wrong "a line that is no JSON" 65 "prompts.jsonl:1: " --generate -
echo "{\"input_ids\": [$(seq -s , 1 64)]}" >"$aside/prompts.jsonl"
wrong "a prompt as long as the context" 65 "prompts.jsonl:1: .*64" --generate -
echo "{\"input_ids\": [1]}" >"$aside/prompts.jsonl"
wrong "generate.stop without a tokenizer" 78 "data.tokenizer" --generate - -o generate.stop=x
wrong "an empty text as generate.stop" 78 "generate.stop" --generate - -o 'generate.stop={""}'
wrong "other weights that are missing" 66 "run.init_from: nowhere|--init-from: nowhere" --generate - --init-from nowhere
wrong "a name of a hub" 66 "gpt-9: No such .*nothing is downloaded: fetch the folder first" --generate - \
    -o model.folder=gpt-9
wrong "a tokenizer that the vocabulary is too small for" 78 "data.tokenizer=.*has 330 tokens, and .* has 257" \
    --generate - --prompt " the the" -o data.tokenizer="$here/lm/tokenizers/gpt2.json"
: >"$aside/prompts.jsonl"
wrong "no prompts" 65 "prompts.jsonl: has no prompt$" --generate -
wrong "no file of texts" 78 "generate: expected FILE.jsonl or -, not a.txt" --generate a.txt --prompt a
wrong "no file of prompts" 66 "nowhere" --generate - -o generate.prompts=nowhere
echo '{"input_ids": [1]}' >"$aside/prompts.jsonl"
job 3 -c lm.conf --run-dir wrong --generate - --stages 2 -o pipeline.replicas=2 -o train.gradient_groups=2
check "more ranks than stages" sh -c '[ "$0" -eq 78 ] && grep -q "3 ranks for 2 stages: generation takes one" "$1"' \
    "$code" "$aside/err"
write_conf lm.conf
wrong "a network that is no decoder" 78 "generate: .*decoder" --generate - -o generate.prompts="$aside/prompts.jsonl"
tap_done
