#!/bin/sh
# interim.sh: generate.every_steps writes texts between steps. They are those of --generate from the checkpoint of the
# same step, on any stages, replicas and schedule, with averages and with adapters. Training has the same bits as
# without. A run that resumes writes the texts that are still due. What is wrong is said in a line.
set -eu
. "$(dirname -- "$0")/mpi_lib.sh"

yes "a text that repeats itself" | head -n 300 >"$aside/text"
# config [LINE]: the file tale.conf
config() {
    cat >tale.conf <<END
model { network = "llama"  input = {48}  vocab_size = 256  hidden_size = 32  intermediate_size = 48
        num_hidden_layers = 3  num_attention_heads = 4  num_key_value_heads = 2  max_position_embeddings = 128 }
data  { source = "tokens"  token_type = "u8"  train_tokens = {"$aside/text"}  test_tokens = {"$aside/text"}
        test_samples = 4 }
train { batch_size = 8  split_size = 2  steps = 10  optimizer = "adamw"  learning_rate = 0.01 }
checkpoint { every_steps = 4  keep = 9 }
pipeline { stages = 2  partition = "uniform"  profile_spread = 1e9 }
generate { prompt = {"a text", "that", "repeats itself, a text"}  max_tokens = 9 }
${1:-}
END
}
# texts RUN: a line for each text, with its step
texts() {
    sed -n 's/.*"event":"generated","step":\([0-9]*\),"index":\([0-9]*\),.*"ids":\(\[[^]]*\]\).*/\1 \2 \3/p' \
        "$1/metrics.jsonl"
}
# generated STEP: the same lines of the last run, which generates
generated() { sed -n "s/.*\"index\":\([0-9]*\),.*\"ids\":\(\[[^]]*\]\).*/$1 \1 \2/p" "$aside/out"; }
# of_checkpoint RUN STEP OPTIONS...: the same lines by --generate
of_checkpoint() {
    of_run=$1 of_step=$2; shift 2
    job threads -c tale.conf --run-dir other --generate - --init-from \
        "$of_run/checkpoints/$(printf 'step-%08d' "$of_step")" "$@"
    [ "$code" -eq 0 ] || why
    generated "$of_step"
}
# evaluations RUN: their losses
evaluations() { grep '"event":"evaluation"' "$1/metrics.jsonl" | grep -o '"loss_bits":"[^"]*"'; }

config
trains plain threads -c tale.conf
without=$hash
trains texts threads -c tale.conf -o generate.every_steps=4
equal "the same weights" "$hash" "$without"
equal "after which steps" "$(texts texts | cut -d ' ' -f 1,2 | tr '\n' ' ')" "4 0 4 1 4 2 8 0 8 1 8 2 10 0 10 1 10 2 "
for n in 4 8 10; do
    equal "the texts of checkpoint $n" "$(texts texts | grep "^$n ")" "$(of_checkpoint texts "$n")"
done
check "they change" [ "$(texts texts | sed -n 's/^4 //p')" != "$(texts texts | sed -n 's/^10 //p')" ]
equal "a line tells how each went" "$(grep -c '"event":"generation","step":[0-9]*,"prompts":3,"tokens":27' \
    texts/metrics.jsonl)" 3
equal "evaluations are not disturbed" "$(evaluations texts)" "$(evaluations plain)"
check "a line of the log has the text" grep -q 'step 10, prompt 1: ' texts/mpstaged.log
all=$(texts texts)

same() {
    same_name=$1; shift
    rm -rf same
    trains same "$@" -c tale.conf -o generate.every_steps=4
    equal "$same_name: the same texts" "$(texts same)" "$all"
    equal "$same_name: the same weights" "$hash" "$without"
}
same "one stage" threads --stages 1
same "three ranks" 3 --stages 3
same "gpipe, two processes" 2 -o pipeline.schedule=gpipe
same "stages in turn" threads --stages 4 -o pipeline.ranks=2 -o pipeline.schedule=interleaved
same "one sequence at a time" threads -o train.evaluate_batch_size=1
config 'train { gradient_groups = 2 }'
trains groups threads -c tale.conf
without=$hash all=$(of_checkpoint groups 4; of_checkpoint groups 8; of_checkpoint groups 10)
same "two replicas" 4 -o pipeline.replicas=2

# ---- averages, adapters, drawing -------------------------------------------------------------------------------------
config 'train { ema = 0.9 }'
trains ema threads -c tale.conf -o generate.every_steps=10 -o generate.temperature=1 -o generate.top_k=5
job threads -c tale.conf --run-dir ema --generate - -o generate.temperature=1 -o generate.top_k=5
equal "averages, and drawn" "$(texts ema)" "$(generated 10)"
config 'lora { rank = 4 }'
trains lora threads -c tale.conf -o generate.every_steps=10 -o run.init_from=texts
job threads -c tale.conf --run-dir lora --generate - -o run.init_from=texts
equal "with adapters" "$(texts lora)" "$(generated 10)"

# ---- stopped and resumed ---------------------------------------------------------------------------------------------
config
all=$(texts texts)
trains resumed threads -c tale.conf -o generate.every_steps=4 --steps 6
trains resumed threads -c tale.conf -o generate.every_steps=4 --resume
equal "resumed: the same weights" "$(hash_of resumed | tail -n 1)" "$(hash_of texts)"
equal "resumed: the texts after each part" "$(texts resumed | cut -d ' ' -f 1 | uniq | tr '\n' ' ')" "4 6 8 10 "
equal "resumed: the same texts" "$(texts resumed | grep -v '^6 ')" "$all"

# ---- stopped in the middle of the texts, with more of them than slots ------------------------------------------------
seq -s ' ' 1 40 | tr ' ' '\n' | sed 's/.*/{"input_ids": [&, 97]}/' >many.jsonl
config
sed -i 's/^generate.*/generate { prompts = "many.jsonl"  max_tokens = 60 }/' tale.conf
trains many threads -c tale.conf -o generate.every_steps=4
all=$(texts many)
check "the last line names the weights" grep -q 'done: .*/weights.safetensors' many/mpstaged.log
"$mpstaged" --transport local -c tale.conf --run-dir halted -o generate.every_steps=4 >"$aside/out" 2>"$aside/err" &
until grep -qs '"generated","step":4,' halted/metrics.jsonl; do sleep 0.01; done
"$mpstagectl" --json halted status >"$aside/status"
"$mpstagectl" halted stop --checkpoint >/dev/null
wait
check "the status says so" grep -q '"state": \{0,1\}"generating"' "$aside/status"
check "they are due" grep -q '"generation_due": \{0,1\}true' halted/checkpoints/step-00000004/manifest.json
check "a training run has other lines than one that generates" \
    sh -c '! grep -q "the last prompt" "$1" && grep -q "done: .*/weights.safetensors" "$1"' sh halted/mpstaged.log
trains halted 3 -c tale.conf -o generate.every_steps=4 --resume --stages 3
equal "resumed on three ranks: the same texts" "$(texts halted | tail -n 120)" "$all"

# ---- what only some weights write ------------------------------------------------------------------------------------
head -c 6000 /dev/zero >nul.bin
config
trains zeros threads -c tale.conf -o generate.every_steps=10 -o 'data.train_tokens={"nul.bin"}'
check "a text of NULs" \
    grep -q '"event":"generated","step":10,"index":0,.*"ids":\[0,.*"text":"\\u0000' zeros/metrics.jsonl
check "the log shows them" grep -q 'step 10, prompt 0: \\x00\\x00' zeros/mpstaged.log
# Weights that grow a millionfold a step: the logits are not finite before a loss is.
for k in stop rollback skip; do
    job threads -c tale.conf --run-dir "large-$k" -o generate.every_steps=1 -o train.learning_rate=1e3 \
        -o 'train.learning_rate_factors={"*=1e6"}' -o train.weight_decay=10 -o 'train.weight_decay_factors={"*=1e6"}' \
        -o checkpoint.every_steps=1 -o train.nonfinite="$k"
    check "logits that are not finite, $k: the step decides" \
        sh -c '[ "$1" -eq 79 ] && grep -q "step [2-9]: the loss is not" "$2" &&
            grep -q "\"generated\",\"step\":1,.*\"reason\":\"nonfinite\"" "$3"' \
        sh "$code" "$aside/err" "large-$k/metrics.jsonl"
done

# ---- plans and errors ------------------------------------------------------------------------------------------------
# With gradients and AdamW's state it would be 6.5 times the weights.
job threads -c tale.conf --plan --stages 1 -o generate.every_steps=4
more=$(sed -n 's/^texts of generate.every_steps take at most \(.*\) KiB more a rank$/\1/p' "$aside/out")
check "--plan says what it takes, ${more:-nothing} KiB, and that is weights and caches" \
    awk -v k="${more:-0}" -v w="$(wc -c <texts/weights.safetensors)" 'BEGIN { exit !(k > 0 && k * 1024 < 5 * w) }'
# wrong TEXT CODE LINE OPTIONS...
wrong() {
    wrong_text=$1 wrong_code=$2 wrong_line=$3; shift 3
    rm -rf wrong
    job threads --run-dir wrong "$@"
    if [ "$code" -eq "$wrong_code" ] && [ "$(our_lines)" -eq 1 ] && [ ! -e wrong ] &&
        grep -q "^mpstaged: .*$wrong_line" "$aside/err"; then ok "$wrong_text"
    else why; not_ok "$wrong_text: $code"; fi
}
wrong "no prompts" 78 "generate.every_steps.*needs generate.prompts" -c tale.conf -o generate.every_steps=4 \
    -o 'generate.prompt={}'
wrong "a prompt as long as the context" 78 "generate.prompt.*128" -c tale.conf -o generate.every_steps=4 \
    -o "generate.prompt={\"$(head -n 5 "$aside/text" | tr '\n' ' ')\"}"
wrong "nothing is drawn" 78 "generate.top_k.*nothing is drawn" -c tale.conf -o generate.every_steps=4 \
    -o generate.top_k=2
wrong "a limit of memory that it exceeds" 78 "pipeline.max_memory" -c tale.conf -o generate.every_steps=4 \
    -o pipeline.max_memory=800KiB
# The changes that would fit are tried with the texts of their own stages.
limited="-c tale.conf --plan -o generate.every_steps=4 -o pipeline.max_memory=1000KiB -o pipeline.partition=auto"
job threads $limited --stages 8
ranks=$(sed -n 's/.*it would fit with .* \([0-9]*\) ranks$/\1/p' "$aside/err")
job threads $limited --stages "${ranks:-8}"
check "what is said to fit fits: ${ranks:-no} ranks" [ "$code" -eq 0 ]
write_conf toy.conf
wrong "a network that is no decoder" 78 "generate.every_steps.*no decoder" -c toy.conf -o generate.every_steps=2 \
    -o 'generate.prompt={"a"}'
tap_done
