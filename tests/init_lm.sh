#!/bin/sh
# init_lm.sh: --init-lm writes a configuration for a text, a folder of texts, and a folder of each family of decoders:
# each trains as it is, with a text named in those of the folders. What is wrong is said in a line.
set -eu
. "$(dirname -- "$0")/mpi_lib.sh"
tool=$build/tests/decoder_tool models=$here/lm/models

# trained TEXT CONF OPTIONS...: two steps, with an evaluation of what is held out
trained() {
    text=$1 conf=$2; shift 2
    rm -rf run
    job threads -c "$conf" --steps 2 -o train.evaluate_every=2 -o train.warmup_steps=1 --run-dir run "$@"
    if [ "$code" -eq 0 ] && grep -q '"event":"evaluation"' run/metrics.jsonl; then ok "$text"
    else why; not_ok "$text: $code"; fi
}
mkdir texts
yes "It was the best of times, it was the worst of times." | head -n 400 >"texts/a tale.txt"
yes "Call me Ishmael. Some years ago" | head -n 400 >texts/whale.txt
: >texts/notes.md
code=0; "$mpstaged" --init-lm "texts/a tale.txt" >"$aside/out" 2>&1 || code=$?
check "a text: $(cat "$aside/out")" [ "$code" -eq 0 -a -e a_tale.conf ]
"$mpstaged" -c a_tale.conf --check-config >"$aside/out" 2>&1
check "which is right as it is" grep -q '^configuration OK$' "$aside/out"
trained "and trains" a_tale.conf
"$mpstaged" -c a_tale.conf --run-dir run --generate - --prompt It -o generate.max_tokens=4 >"$aside/out" \
    2>"$aside/err" || why
check "and continues a prompt" grep -q '"ids":\[' "$aside/out"
"$mpstaged" --init-lm texts >"$aside/out" 2>&1
check "a folder of texts" grep -q '^texts.conf: 2 texts, ' "$aside/out"
check "by its name" grep -q 'train_text = "texts"' texts.conf
trained "which train" texts.conf
for i in 1 2 3 4 5 6 7 8 9; do
    for k in 1 2 3 4 5 6; do
        echo '{"messages": [{"role": "user", "content": "'$i$k'?"}, {"role": "assistant", "content": "'$k$i'."}]}'
    done
done >chats.jsonl
"$mpstaged" --init-lm chats.jsonl >"$aside/out" 2>&1
check "chats: $(cat "$aside/out")" grep -q 'source = "jsonl"' chats.conf
trained "which train" chats.conf
check "config.json has short numbers" grep -q '"rms_norm_eps": 1e-6' run/model/config.json
"$mpstaged" -c chats.conf --run-dir run --show-batch shown.txt >"$aside/out" 2>&1 || note <"$aside/out"
check "and whose answers end" grep -q '^Assistant:. [0-9]*\.[^0-9]*]$' shown.txt
sed 's/.*/{"text": "&"}/' texts/whale.txt >whales.jsonl
"$mpstaged" --init-lm whales.jsonl >"$aside/out" 2>&1
check "texts in lines" grep -q 'source = "text"' whales.conf
for m in $(sed -n 's/^\([a-z][^ ]*\) .*/\1/p' "$models"); do
    "$tool" folder "$models" "$m" "$m"
    rm -f "$m.conf"
    "$mpstaged" --init-lm "$m" >"$aside/out" 2>&1 || note <"$aside/out"
    sed 's/"tokenizer.json"/"bytes"/; s/train.txt/texts\/whale.txt/' "$m.conf" >one.conf
    trained "$m is fine-tuned" one.conf
done

# wrong TEXT STATUS PATTERN OPTIONS...: one line with that pattern
wrong() {
    text=$1 want=$2 pattern=$3 code=0; shift 3
    "$mpstaged" "$@" >"$aside/out" 2>"$aside/err" || code=$?
    if [ "$code" -eq "$want" ] && [ "$(said_lines)" -eq 1 ] && grep -qE -- "$pattern" "$aside/err"; then
        ok "$text"
    else why; not_ok "$text: $code"; fi
}
wrong "an existing file" 73 'texts.conf: File exists; --write-config' --init-lm texts
wrong "nothing there" 66 '^mpstaged: none' --init-lm none
mkdir empty
: >short.txt
wrong "an empty text" 65 'short.txt: 0 bytes of text' --init-lm short.txt
yes "Call me Ishmael." | head -n 400 | gzip >packed.txt
wrong "a packed text" 65 'packed.txt: .*gzip' --init-lm packed.txt
wrong "a folder without either" 65 'empty: has no files' --init-lm empty
mkdir strange
echo '{"model_type": "mamba"}' >strange/config.json
wrong "a family that is not supported" 78 'config.json: model_type' --init-lm strange
wrong "with a configuration" 64 '--init-lm writes a configuration' -c texts.conf --init-lm texts
tap_done
