#!/bin/sh
# jsonl.sh: data.source = "jsonl". Records give the losses and gradients of the same samples in npy files, which are
# transformers' (decoders.sh); micro-batches with many labels, three and none give one batch's. Rows of several records
# have the same bits on any stages, schedule and replicas and after a stop, a record's logits do not depend on its
# neighbours, and --show-batch says what is trained.
set -eu
. "$(dirname -- "$0")/mpi_lib.sh"
tool=$build/tests/decoder_tool models=$here/lm/models

# ---- like npy --------------------------------------------------------------------------------------------------------
"$tool" data "$aside"
"$tool" folder "$models" llama "$aside/llama"
# numbers FILE.npy TYPE: a line of numbers for each sample
numbers() { od -An -v -w256 -j128 -t"$2" "$1" | sed 's/^ *//; s/  */, /g'; }
numbers "$aside/tokens.npy" d8 >tokens
numbers "$aside/labels.npy" d8 >labels
paste -d '|' tokens labels |
    sed 's/\(.*\)|\(.*\)/{"input_ids": [\1, 0], "labels": [-100, \2]}/' >records.jsonl
config() {
    cat >lm.conf <<END
run      { name = "lm" }
model    { folder = "$aside/llama"  input = {32} }
data     { $1  shuffle = no }
train    { batch_size = 6  split_size = 4  steps = 10  optimizer = "adamw"  learning_rate = 0.01 }
pipeline { stages = 2  partition = "uniform"  profile_spread = 1e9 }
END
}
config 'source = "npy"  labels = "map"  train = "'"$aside"'/tokens.npy"  train_labels = "'"$aside"'/labels.npy"'
trains npy threads -c lm.conf
want=$hash
config 'source = "jsonl"  train_jsonl = "records.jsonl"'
trains jsonl threads -c lm.conf
equal "records: the weights of npy files" "$hash" "$want"

# ---- chats -----------------------------------------------------------------------------------------------------------
# A record of many labels, of three, of none, and short ones.
long=$(seq -s ' ' 1 27)
{
    echo '{"messages": [{"role": "user", "content": "a"}, {"role": "assistant", "content": "'"$long"'"}]}'
    echo '{"prompt": "'"$long"'", "completion": "abc"}'
    echo '{"messages": [{"role": "user", "content": "nobody answers"}]}'
    for i in 1 2 3 4 5 6 7 8 9; do
        echo '{"messages": [{"role": "user", "content": "'$i'?"}, {"role": "assistant", "content": "'"$i$i$i"'."}]}'
    done
} >chats.jsonl
cat >chat.conf <<'END'
run      { name = "chat" }
model    { network = "llama"  input = {96}  vocab_size = 256  hidden_size = 32  intermediate_size = 48
           num_hidden_layers = 3  num_attention_heads = 2 }
data     { source = "jsonl"  train_jsonl = "chats.jsonl"  test_jsonl = "chats.jsonl"  chat = "plain" }
train    { batch_size = 12  split_size = 4  steps = 8  optimizer = "adamw"  learning_rate = 0.01  evaluate_every = 4 }
pipeline { stages = 2  partition = "uniform"  profile_spread = 1e9 }
END
first_loss() { sed -n '/"event":"step"/s/.*"loss":\([-+.0-9e]*\).*/\1/p' "$1/metrics.jsonl" | sed -n "${2:-1}p"; }
near() { awk -v a="$1" -v b="$2" 'BEGIN { d = a - b; if (d < 0) d = -d; exit !(a > 0 && d <= 2e-6 * b) }'; }
trains whole threads -c chat.conf -o train.split_size=12
check "labels that count: 73 + 3 + 9 times 6" grep -q '"event":"step","step":1,.*"targets":130[,}]' whole/metrics.jsonl
check "it warns of the record without labels" grep -q 'train_jsonl: 1 of 12 records have no label that counts' \
    whole/mpstaged.log
for split in 1 3 5; do
    trains split-$split threads -c chat.conf -o train.split_size=$split
    for step in 1 8; do
        check "micro-batches of $split: the loss of one batch in step $step, $(first_loss split-$split $step)" \
            near "$(first_loss split-$split $step)" "$(first_loss whole $step)"
    done
done
echo '{"messages": [{"role": "user", "content": "nobody"}]}' >>chats.jsonl
trains a-batch-without threads -c chat.conf -o train.batch_size=1 -o train.split_size=1 -o train.steps=13
check "a batch without labels has loss 0" grep -q '"loss":0,' a-batch-without/metrics.jsonl
job threads -c chat.conf --show-batch shown.txt -o data.shuffle=no
check "--show-batch: what is trained, in brackets" sh -c '[ "$0" -eq 0 ] && grep -qFx "User: 9?" shown.txt &&
    grep -qFx "Assistant:[ 999." shown.txt' "$code"
check "and how much" grep -q 'shown.txt: 12 samples with 12 records; 130 of 1152 positions are trained' "$aside/out"

# ---- rows of several records -----------------------------------------------------------------------------------------
sed 's/batch_size = 12  split_size = 4  steps = 8/batch_size = 4  split_size = 1  steps = 8/
    s/chat = "plain"/&  packing = "first_fit"/' chat.conf >packed.conf
trains packed threads -c packed.conf --stages 1
want=$hash
# same TEXT RANKS OPTIONS...
same() {
    same_text=$1 same_ranks=$2; shift 2
    job "$same_ranks" -c packed.conf --run-dir same --overwrite "$@"
    [ "$code" -eq 0 ] || why
    equal "rows, $same_text: the same weights" "$(hash_of same 2>/dev/null || echo "status $code")" "$want"
}
same "two stages" threads --stages 2
same "three stages, gpipe" threads --stages 3 -o pipeline.schedule=gpipe
same "processes" 2 --stages 2
same "more readers" threads -o data.workers=3 -o data.prefetch=4
trains replicas threads -c packed.conf --stages 1 -o pipeline.replicas=2 -o train.gradient_groups=2
replicas=$hash
trains groups threads -c packed.conf --stages 1 -o train.gradient_groups=2
equal "rows, replicas: the weights of one" "$replicas" "$hash"
for at in 2 5; do
    job threads -c packed.conf --run-dir "part-$at" --steps $at -o checkpoint.every_steps=1
    job threads -c packed.conf --run-dir "part-$at" --resume -o checkpoint.every_steps=1 --stages 3
    equal "rows, stopped after $at steps and resumed: the same weights" "$(hash_of "part-$at" | tail -n 1)" "$want"
done
check "fewer rows than records: the last step is of a later epoch" grep -q '"event":"step","step":8,"epoch":[3-9]' \
    packed/metrics.jsonl

job threads -c packed.conf --print-config
cp "$aside/out" printed.conf
job threads -c printed.conf --check-config
check "a printed configuration is read back" [ "$code" -eq 0 ]
check "it has fill as its last_batch" grep -q 'last_batch *= *"fill"' printed.conf
trains fill threads -c packed.conf -o train.batch_size=11 --steps 9
check "batches may be larger than an epoch has rows" [ "$code" -eq 0 ]
check "which is said" grep -q 'note: there are [2-9] training samples, fewer .* = 11: each batch has samples of' \
    fill/mpstaged.log
sed 's/test_jsonl = "chats.jsonl"/validation = 0.2/' chat.conf >held.conf
echo '{"prompt": "say ", "completion": "the"}' >stray.jsonl
echo '{"prompt": "say", "completion": " the"}' >>stray.jsonl
job threads -c chat.conf --check-config -o model.vocab_size=330 -o data.train_jsonl=stray.jsonl \
    -o data.tokenizer="$here/lm/tokenizers/gpt2.json"
check "prompts that end with a blank are counted" \
    grep -q 'jsonl: 1 of 2 records do not begin with the tokens' "$aside/out"
check "an answer that ends nowhere is said" grep -q 'data.chat: .*: for generation set data.end_token, or' "$aside/out"
job threads -c held.conf --check-config
check "records are held out" grep -q 'note: data.validation holds out [23] of 13 records for tests' "$aside/out"
trained=$(sed -n 's/.*"event":"step","step":1,.*"targets":\([0-9]*\).*/\1/p' fill/metrics.jsonl)
job threads -c packed.conf -o train.batch_size=11 --show-batch several.txt
check "--show-batch: the rows of later epochs, too, $trained" grep -q "; ${trained:-none} of .* positions are trained" \
    "$aside/out"

# The token that ends the template's answers ends texts.
sed 's/vocab_size = 256/vocab_size = 330/; s/chat = "plain"/chat = "end.chat"  tokenizer = "gpt2.json"/' \
    chat.conf >end.conf
cp "$here/lm/tokenizers/gpt2.json" .
printf 'user "" "\\n"\nassistant "" "<|end|>"\n' >end.chat
trains end threads -c end.conf -o train.steps=1 -o data.too_long=cut
id=$(sed -n 's/.*"content": *"<|end|>".*//p; s/.*{ *"id": *\([0-9]*\),.*/\1/p' gpt2.json | head -n 1)
check "generation_config.json has the template's end, ${id:-0}" sh -c \
    'tr -d " \n" <end/model/generation_config.json | grep -q "\"eos_token_id\":\[${0:-0}\]"' "$id"

# A record's logits have the same bits beside other neighbours, and alone.
record='{"input_ids": [7, 8, 9, 10, 11, 12, 13]}'
printf '%s\n' '{"input_ids": [1, 2, 3, 4, 5]}' "$record" '{"input_ids": [30, 31, 32]}' >a.jsonl
printf '%s\n' '{"input_ids": [99, 98, 97, 96, 95]}' "$record" '{"input_ids": [50, 51, 52, 53]}' >b.jsonl
printf '%s\n' "$record" >c.jsonl
for f in a b c; do
    job threads -c packed.conf --init-from packed --predict $f.npy -o run.predict_tensor=lm_head \
        -o data.test_jsonl=$f.jsonl --run-dir "of-$f"
    [ "$code" -eq 0 ] || why
done
# positions FILE FROM: of the row, six points from there on, of all 256 logits
positions() { od -An -v -tx4 -w384 -j128 "$1" | awk -v f="$2" '{ for (i = f + 1; i <= f + 6; i++) print NR, $i }'; }
positions a.npy 4 >a.bits
positions b.npy 4 >b.bits
positions c.npy 0 >c.bits
check "a record's logits: other neighbours, the same bits" sh -c \
    '[ -s a.bits ] && cmp a.bits b.bits && cmp a.bits c.bits'

# ---- any template, by transformers -----------------------------------------------------------------------------------
# chatml's template gives what data.chat = "chatml" gives.
python=${MPSTAGED_PYTHON:-python3}
chatml() {
    "$python" - gpt2.json chatml <<'PY'
import json, os, sys
t = json.load(open(sys.argv[1]))
most = max([*t["model"]["vocab"].values(), *(a["id"] for a in t["added_tokens"])])
for i, name in enumerate(("<|im_start|>", "<|im_end|>")):
    t["added_tokens"].append({"id": most + 1 + i, "content": name, "single_word": False, "lstrip": False,
                              "rstrip": False, "normalized": False, "special": True})
os.makedirs(sys.argv[2])
json.dump(t, open(f"{sys.argv[2]}/tokenizer.json", "w"))
template = ("{% for m in messages %}<|im_start|>{{ m.role }}\n{{ m.content }}<|im_end|>\n{% endfor %}"
            "{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}")
json.dump({"tokenizer_class": "PreTrainedTokenizerFast", "chat_template": template},
          open(f"{sys.argv[2]}/tokenizer_config.json", "w"))
PY
}
if "$python" -c 'import jinja2, transformers' 2>/dev/null; then
    chatml
    grep messages chats.jsonl >only-chats.jsonl
    if "$python" "$here/../contrib/render-chats" chatml only-chats.jsonl rendered.jsonl 2>"$aside/said"
    then ok "renders"
    else note <"$aside/said"; not_ok "renders"; fi
    sed 's/vocab_size = 256/vocab_size = 340/; s/"plain"/"chatml"  tokenizer = "chatml\/tokenizer.json"/
        s/"chats.jsonl"/"only-chats.jsonl"/g; s/batch_size = 12/batch_size = 11/' chat.conf >chatml.conf
    trains chatml-run threads -c chatml.conf -o data.too_long=cut
    want=$hash
    trains rendered-run threads -c chatml.conf -o data.too_long=cut -o data.train_jsonl=rendered.jsonl
    equal "contrib/render-chats: the weights of data.chat" "$hash" "$want"
else skip "contrib/render-chats" "no transformers: pip install transformers jinja2, and set MPSTAGED_PYTHON"; fi

# ---- what is wrong ---------------------------------------------------------------------------------------------------
echo '{"input_ids": [1, 2, 3' >bad.jsonl
seq -s ', ' 1 200 | sed 's/.*/{"input_ids": [&]}/' >long.jsonl
echo '{"messages": [{"role": "judge", "content": "a"}]}' >role.jsonl
echo 'user "a"' >bad.chat
gzip -c chats.jsonl >chats.jsonl.gz
sed 's/chat = "plain"//' chat.conf >bare.conf
check "the graph is printed" sh -c '"$0" -c chat.conf --print-graph >net.graph' "$mpstaged"
sed 's/network = "llama".*/graph = "net.graph"/; /hidden_size/d; /num_hidden/d; s/packing/shuffle = no packing/' \
    packed.conf |
    sed 's/graph = "net.graph"/& }/' >graph.conf
while IFS='|' read -r text status pattern options; do
    case $options in -c*) ;; *) options="-c chat.conf $options" ;; esac
    # shellcheck disable=SC2086
    refused "$text" "$status" "$pattern" threads --run-dir none $options
done <<'END'
a line that is no JSON|65|bad.jsonl:1: |-o data.train_jsonl=bad.jsonl
a record that is too long|65|long.jsonl:1: 200 tokens, and a sample has 97|-o data.train_jsonl=long.jsonl
a role without a rule|65|role.jsonl:1: the role judge has no rule|-o data.train_jsonl=role.jsonl
no such file|66|nowhere.jsonl|-o data.train_jsonl=nowhere.jsonl
a template that is wrong|65|bad.chat:1: expected a text|-o data.chat=bad.chat
a template that is missing|66|chatnl: No such .*the words are chatml, llama3, |-o data.chat=chatnl
a compressed file|65|chats.jsonl.gz: this is a gzip file.*gunzip|-o data.train_jsonl=chats.jsonl.gz
TRL's name of a template|64|did you mean data.chat.?|-o data.chat_template=chatml
packing as a yes|78|did you mean first_fit.?|-o data.packing=yes
TRL's name of a length|64|did you mean model.input.?|-o data.max_length=96
TRL's name of a batch|64|did you mean train.split_size.?|-o train.per_device_train_batch_size=2
messages without a template|65|chats.jsonl:1: messages need data.chat|-c bare.conf
packing of other samples|78|data.packing|-o data.source=text -o data.train_text=chats.jsonl -o data.packing=first_fit
packing with another last batch|78|last_batch=drop: with data.packing, only fill|-c packed.conf -o train.last_batch=drop
packing in a network without positions|78|data.packing: .*positions|-c graph.conf
an end token above the vocabulary|78|data.end_token=300: 300, and the vocabulary has 256|-o data.end_token=300
more samples than there are|78|data.samples|-o data.samples=500
END
tap_done
