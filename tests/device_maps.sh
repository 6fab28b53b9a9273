#!/bin/sh
# device_maps.sh: --plan --json has the device maps of Hugging Face's accelerate (lm/device_maps.expected), from a
# folder with config.json alone; the stages follow them, and bytes of each place add up. What fits nowhere, is trained
# or is asked of a run is refused in a line.
set -eu
. "$(dirname -- "$0")/mpi_lib.sh"
expected=$here/lm/device_maps.expected

# map FILE: the map in a plan as the expected ones have it
map() {
    awk '
        function flush() { if (word != "") out = out " " word (last > first ? "-" last : "") }
        /^  "device_map": \{/ { within = 1; next }
        within && /^  }/ { within = 0 }
        !within { next }
        {
            gsub(/[ ",]/, ""); n = index($0, ":"); name = substr($0, 1, n - 1); at = substr($0, n + 1)
            head = name; number = -1
            if (match(name, /\.[0-9]+$/)) { head = substr(name, 1, RSTART - 1); number = substr(name, RSTART + 1) + 0 }
            if (at == before && head == had && number >= 0 && number == last + 1) { last = number; next }
            flush()
            if (at != before) out = out (out == "" ? "" : " ") at
            word = name == "" ? "\"\"" : name; first = last = number; before = at; had = head
        }
        END { flush(); print out }' "$1"
}

# case_of LINE: its config.json, and the file lm.conf; $want: the map
case_of() {
    want=${1#* = }
    set -- ${1%% = *}
    mkdir -p "$aside/model"
    text="\"model_type\": \"$1\"" limits= host= ranks=0 policy= no_split=
    shift
    for word; do
        value=${word#*=}
        case $word in
        policy=*) policy=$value ;;
        no_split=*) no_split=$value ;;
        limits=*) for one in $(echo "$value" | tr , ' '); do
                case $one in cpu:*) host=${one#cpu:} ;;
                *) limits="$limits${limits:+, }${one#*:}" ranks=$((ranks + 1)) ;; esac
            done ;;
        *=[0-9tf]*) case $word in dtype=*) value="\"$value\"" ;; esac; text="$text, \"${word%%=*}\": $value" ;;
        *) text="$text, \"${word%%=*}\": \"$value\"" ;;
        esac
    done
    echo "{$text}" >"$aside/model/config.json"
    cat >lm.conf <<END
run      { name = "lm" }
model    { folder = "$aside/model"  input = {8} }
data     { source = "synthetic"  samples = 8 }
train    { batch_size = 1  steps = 1 }
pipeline { stages = $ranks  partition = "$policy"  max_memory = {$limits}  disk = "$aside"
           ${host:+host_memory = $host}  ${no_split:+no_split = {$no_split\}} }
END
}
planned() {
    if "$mpstaged" -c lm.conf --plan --json "$@" >plan.json 2>err; then map plan.json
    else echo none; note <err; fi
}

# The seven of LLaMA-7B, with adapters; and random ones that have host memory, which evaluate.
adapts='-o lora.rank=1 -o lora.targets=q_proj'
n=0 bad=0 of=0
every=$(cases 12 1); every=${every##* }
while read -r line; do
    case $line in "#"*) continue ;; esac
    case $line in *,cpu:*) n=$((n + 1)) ;; *) continue ;; esac
    [ "$n" -le 7 ] || [ $((n % every)) -eq 0 ] || continue
    case_of "$line"
    if [ "$n" -le 7 ]; then equal "LLaMA-7B, case $n" "$(planned $adapts)" "$want"; continue; fi
    of=$((of + 1)) got=$(planned --evaluate)
    [ "$got" = "$want" ] || { bad=$((bad + 1)); echo "# $line"; echo "# $got"; }
done <"$expected"
equal "random decoders, $of of them" "$bad" 0

# first STAGE, bytes KEY: of the plan
first() { grep -o '"first": "[^"]*"' plan.json | sed -n "$(($1 + 1))s/.*: //p"; }
bytes() { sed -n "s/.*\"$1\": \([0-9]*\).*/\1/p" plan.json | tr '\n' ' '; }
llama() { case_of "$(sed -n "$((1 + $1))p" "$expected")"; shift; planned $adapts "$@" >got; }
llama 1
equal "the second stage begins as the map says" "$(first 1)" '"model.layers.19.input_layernorm"'
llama 4
# as stored, with norms in fp32, a layer has 404783104 bytes, the last norm 16384, the head 262144000
equal "14 layers in host memory" "$(bytes host_bytes)" 5666963456\ 
equal "10 layers, norm and head on disk" "$(bytes disk_bytes)" 4309991424\ 
equal "two heads pass through" "$(bytes slot_bytes)" 524288000\ 
peak=$(bytes peak_bytes)
llama 4 -o pipeline.max_memory=40GiB
equal "and are in the rank's peak, instead of these" "$((${peak% } + 5666963456 + 4309991424 - 524288000)) " \
    "$(bytes peak_bytes)"
llama 6
equal "on three ranks, the last computes what is on none" "$(bytes host_bytes)" "0 0 1619132416 "
llama 1 -o pipeline.no_split=LlamaMLP -o pipeline.max_memory=7GiB
check "a block that is divided" grep -q 'self_attn.v_proj 1 model.layers.17.self_attn.o_proj' got
equal "and where" "$(first 1)" '"model.layers.17.self_attn.o_proj"'
"$mpstaged" -c lm.conf --plan $adapts -o pipeline.max_memory=5GiB >plan.txt
check "the table" grep -Eq '^    1 .* [0-9.]+ GiB +0 B +500.00 MiB' plan.txt
check "a note of what else a rank needs" grep -q '^note: a device map counts weights only' plan.txt
# without host memory the map is shown where there is a folder for weights, or where weights are what is divided
sed 's/host_memory = [0-9]*//' lm.conf >disk.conf
sed 's/disk = "[^"]*"//' disk.conf >ranks.conf
"$mpstaged" -c disk.conf --plan --json $adapts -o 'pipeline.max_memory={5GiB, 14GiB}' --partition auto >plan.json
check "only shown" sh -c '! grep -q places plan.json'
equal "with a folder" "$(map plan.json)" "0 model.embed_tokens model.layers.0-10 1 model.layers.11-31 model.norm \
model.rotary_emb lm_head"
"$mpstaged" -c ranks.conf --plan --json $adapts -o pipeline.count_bytes=weights --partition balanced >plan.json
equal "with weights alone" "$(map plan.json)" "0 model.embed_tokens model.layers.0-15 1 model.layers.16-31 model.norm \
model.rotary_emb lm_head"
equal "whose stages follow it" "$(first 1)" '"model.layers.16.input_layernorm"'
"$mpstaged" -c "$here/../conf/mlp.conf" --plan --json --stages 2 --partition balanced >plan.json
check "no map without being asked for" sh -c '! grep -q device_map plan.json'

# A network that is no decoder.
cat >net.conf <<END
run      { name = "net" }
model    { network = "resnet18"  input = {3, 32, 32} }
data     { source = "synthetic"  samples = 8 }
train    { batch_size = 4  steps = 1 }
pipeline { stages = 2  partition = "sequential"  max_memory = 24MB  host_memory = 0
           disk = "$aside"  no_split = "BasicBlock" }
END
"$mpstaged" -c net.conf --plan --json --evaluate --init-from x >plan.json
equal "layers of another network" "$(map plan.json)" \
    "0 conv1 bn1 layer1 layer2 1 layer3 layer4.0 disk layer4.1 fc"

# ---- refused ---------------------------------------------------------------------------------------------------------
# refuses TEXT WORDS OPTION...: status 78, one line, and nothing is made
refuses() {
    text=$1 words=$2; shift 2
    code=0
    "$mpstaged" -c lm.conf --run-dir made "$@" >out 2>err || code=$?
    if [ "$code" -eq 78 ] && [ "$(wc -l <err)" -eq 1 ] && grep -Eq "$words" err && [ ! -e made ]; then ok "$text"
    else not_ok "$text (status $code)"; note <err; fi
}
llama 4
refuses "a trained weight in host memory" 'host_memory: model.layers.8.*trained.*lora' --plan
refuses "on disk" 'disk: .*trained' --plan -o pipeline.host_memory=0
refuses "a run" 'host_memory: 9.29 GiB of weights' $adapts
refuses "--check-config" 'host_memory: 9.29 GiB of weights' $adapts --check-config
sed 's/disk = "[^"]*"//' lm.conf >x && mv x lm.conf
refuses "what fits nowhere" 'host_memory: 4.01 GiB of weights, from model.layers.22 on' --plan $adapts
refuses "two sizes" 'host_memory=.*: expected one size' --plan $adapts -o 'pipeline.host_memory={1GB, 2GB}'
refuses "no size" '"much" is not a size' --plan $adapts -o pipeline.host_memory=much
refuses "limits of other ranks" '3 sizes for 2 ranks' --plan $adapts --stages 2 -o 'pipeline.max_memory={1GB, 1GB, 1GB}'
refuses "cuts that are not made of bytes" 'host_memory: takes .*sequential, not uniform' --plan $adapts --stages 2 \
    --partition uniform
refuses "several stages a rank" 'host_memory: takes one stage a rank' --plan $adapts --stages 4 \
    -o pipeline.ranks=2 --schedule interleaved
refuses "a class that there is not" 'no module or class "LlamaMLPs" .did you mean LlamaMLP' --plan $adapts \
    -o pipeline.no_split=LlamaMLPs
sed '/pipeline {/,$d' lm.conf >x && echo 'pipeline { host_memory = 1GB }' >>x && mv x lm.conf
refuses "no limit of the ranks" 'host_memory: needs pipeline.max_memory' --plan $adapts
mv ranks.conf lm.conf
refuses "weights that do not fit the ranks, and have no other place" 'max_memory=.*: rank . needs' --plan $adapts \
    -o pipeline.count_bytes=weights -o pipeline.max_memory=4GiB
tap_done
