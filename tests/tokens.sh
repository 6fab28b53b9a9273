#!/bin/sh
# tokens.sh: mpstage-tokens writes the tokens that data.source = "text" makes, for files, lines of records and standard
# input, and the text back. What is wrong is said in a line, and leaves the old file.
set -eu
. "$(dirname -- "$0")/mpi_lib.sh"
tokens=$build/mpstage-tokens json=$here/lm/tokenizers/gpt2.json
# said CODE PATTERN TEXT ARGUMENTS...: the status, one line of stderr that the pattern fits, no file
said() {
    want=$1 pattern=$2 text=$3 code=0; shift 3
    rm -f out.bin
    "$tokens" "$@" >"$aside/out" 2>"$aside/err" </dev/null || code=$?
    if [ "$code" -eq "$want" ] && [ "$(wc -l <"$aside/err")" -eq 1 ] && grep -q -e "$pattern" "$aside/err" &&
        [ ! -e out.bin ]; then ok "$text: $want"
    else { echo "code $code"; cat "$aside/err"; ls; } | note; not_ok "$text: $want"; fi
}
# numbers FILE: of a file of u16
numbers() { od -An -v -tu2 -w2 "$1" | tr -d ' ' | tr '\n' ' ' | sed 's/ $//'; }

# ---- there and back --------------------------------------------------------------------------------------------------
printf 'The quick brown fox, 12 345 times\nand don'"'"'t \303\251\342\200\224!\n\n' >a.txt
printf 'a second text' >b.txt
printf '{"text": "The quick brown fox"}\n\n{"text": "a second text", "id": 7}\n' >both.jsonl
"$tokens" -t "$json" a.txt a.bin 2>"$aside/err" || cat "$aside/err"
check "says what is in the file" grep -q \
    "^mpstage-tokens: a.bin: $(numbers a.bin | wc -w) tokens of u16, 1 document, " "$aside/err"
check "and back" sh -c '"$0" -d -t "$1" a.bin a.back && cmp a.txt a.back' "$tokens" "$json"
check "on standard output" sh -c '"$0" --decode -t "$1" a.bin - >a.back && cmp a.txt a.back' "$tokens" "$json"
check "from standard input" sh -c '"$0" -t "$1" - in.bin <a.txt && cmp a.bin in.bin' "$tokens" "$json"
check "bytes are the file itself" sh -c '"$0" -t bytes --type u8 a.txt bytes.bin && cmp a.txt bytes.bin' "$tokens"
"$tokens" -t bytes --type u32 b.txt wide.bin 2>"$aside/err"
equal "u32" "$(od -An -v -tu4 -w4 wide.bin | tr -d ' \n')" "$(od -An -v -tu1 -w1 b.txt | tr -d ' \n')"
check "and back of u32" sh -c '"$0" -d -t bytes --type u32 wide.bin wide.back && cmp b.txt wide.back' "$tokens"
"$tokens" -t "$json" b.txt b.bin 2>"$aside/err"
printf 'The quick brown fox' >fox.txt
"$tokens" -t "$json" fox.txt fox.bin 2>"$aside/err"
"$tokens" -t "$json" -e '<|end|>' fox.txt b.txt two.bin 2>"$aside/err"
end=0                                                    # the number of <|end|>
equal "documents end with a token" "$(numbers two.bin)" "$(numbers fox.bin) $end $(numbers b.bin) $end"
"$tokens" -t "$json" -e '<|end|>' both.jsonl records.bin 2>"$aside/err" || note <"$aside/err"
check "records are documents" cmp two.bin records.bin
check "and counted" grep -q ', 2 documents, ' "$aside/err"

mkdir folder
cp fox.txt folder/1.txt; cp b.txt folder/2.txt; echo hidden >folder/.3.txt; echo other >folder/4.md
"$tokens" -t "$json" -e '<|end|>' folder folder.bin 2>"$aside/err" || note <"$aside/err"
check "a folder has its texts, by name" cmp two.bin folder.bin

# ---- a run trains on both alike --------------------------------------------------------------------------------------
# alike TEXT IN...: weights from these texts, and from the tokens that mpstage-tokens makes of them
alike() {
    alike_text=$1; shift
    rm -rf as-text as-tokens
    "$tokens" -t "$json" -e '<|end|>' "$@" text.bin 2>"$aside/err" || note <"$aside/err"
    job threads -c lm.conf --run-dir as-text -o data.train_text="$(echo "$@" | tr ' ' ',')"
    [ "$code" -eq 0 ] || why
    job threads -c lm.conf -o data.source=tokens -o data.train_tokens=text.bin --run-dir as-tokens
    [ "$code" -eq 0 ] || why
    equal "the same weights from $alike_text and from its tokens" "$(done_field as-text/metrics.jsonl weights_hash)" \
        "$(done_field as-tokens/metrics.jsonl weights_hash)"
}
for i in 1 2 3 4 5 6; do cat a.txt; done >text.txt
i=0
while [ $i -lt 40 ]; do cp both.jsonl "folder/$i.jsonl"; i=$((i + 1)); done
cat >lm.conf <<END
run { name = "lm" }
model { network = "llama" input = {8} vocab_size = 512 hidden_size = 16 intermediate_size = 32 num_hidden_layers = 1
        num_attention_heads = 2 }
data { source = "text" tokenizer = "$json" end_token = 0 }
train { batch_size = 2 steps = 3 }
pipeline { stages = 1 }
END
alike "a text" text.txt
alike "texts" text.txt b.txt both.jsonl
alike "a folder of 42 texts" folder

# A wrong vocabulary or type is found before the run begins.
printf '\001\000\001\000%04096d' 0 >strange.bin
job threads -c lm.conf -o data.source=tokens -o data.train_tokens=strange.bin --run-dir strange
check "a vocabulary that the tokens do not fit" sh -c \
    '[ "$0" -eq 65 ] && [ ! -e strange ] && grep -q "^mpstaged: strange.bin: token 12336 at 2, and the voc" "$1"' \
    "$code" "$aside/err"

# ---- what is wrong ---------------------------------------------------------------------------------------------------
said 64 'no tokenizer' "no tokenizer" a.txt out.bin
said 64 'IN and OUT' "one file" -t "$json" a.txt
said 64 'unknown option --what' "an unknown option" -t "$json" --what a.txt out.bin
said 64 'decode takes one file' "two files to decode" -d -t "$json" a.bin b.bin out.bin
said 64 '"u9"' "a type that is none" -t "$json" --type u9 a.txt out.bin
said 64 'u8 is too small' "a type that is too small" -t "$json" --type u8 a.txt out.bin
said 65 '[2-9] tokens of this tokenizer, expected 1' "an end of several tokens" \
    -t "$json" -e 'two words' a.txt out.bin
said 66 'none.json' "a tokenizer that is missing" -t none.json a.txt out.bin
said 66 'none.txt' "a text that is missing" -t "$json" none.txt out.bin
said 66 'none.jsonl' "records that are missing" -t "$json" none.jsonl out.bin
ln -s around around
said 66 'around' "a link to itself" -t "$json" around out.bin
said 65 'a.txt' "a tokenizer that is none" -t a.txt a.txt out.bin
printf '\377\376abc' >bad.txt
said 65 'bad.txt' "no UTF-8" -t "$json" bad.txt out.bin
printf '{"text": "x"}\n{"texts": "x"}\n' >bad.jsonl
said 65 'bad.jsonl:2: expected' "a line without text" -t "$json" bad.jsonl out.bin
printf '{"text": "x"}\n{"text"\n' >bad.jsonl
said 65 'bad.jsonl:2: ' "a line that is no JSON" -t "$json" bad.jsonl out.bin
: >empty.txt
mkdir empty
said 65 'without tokens' "an empty text" -t "$json" empty.txt out.bin
said 65 'empty: has no files' "a folder without texts" -t "$json" empty out.bin
said 64 'OUT: .*name of a text' "no OUT" -t "$json" a.txt b.txt
said 64 'OUT: ' "standard output" -t "$json" a.txt -
cp a.txt a.text
said 64 'OUT: a.text is an IN' "the text as OUT" -t "$json" a.text a.text
said 73 'nowhere/out.bin' "no folder for the output" -t "$json" a.txt nowhere/out.bin
printf '\377\377' >big.bin
said 65 'big.bin: token 65535' "a token that the tokenizer has not" -d -t "$json" big.bin out.bin
printf 'abc' >odd.bin
said 65 'odd.bin: 3 bytes' "half a number" -d -t "$json" odd.bin out.bin
printf old >kept.bin
code=0; "$tokens" -t "$json" a.txt bad.txt kept.bin 2>"$aside/err" || code=$?
equal "a second text that is wrong: the old file is kept" "$code $(cat kept.bin)" "65 old"
tap_done
