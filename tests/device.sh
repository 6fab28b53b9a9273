#!/bin/sh
# device.sh: mpstaged for GPUs without one: its host code as it is, over doubles of the libraries (tests/gpu/doubles),
# with streams that run at different speeds. The same weights on one, two and four ranks, by both transports and
# whatever the schedule, and from replicas; the CPU's losses; planted mistakes; what goes wrong. Each two of ranks,
# transport and schedule meet; LONG=1: all combinations.
set -eu
. "$(dirname -- "$0")/mpi_lib.sh"
mpstaged=$build/tests/gpu/mpstaged-double
[ -x "$mpstaged" ] || { echo "1..0 # SKIP no C++ compiler"; exit 77; }
source_dir=$here
losses() { sed -n 's/.*"event":"step".*"loss":\([^,]*\),.*/\1/p' "$1/metrics.jsonl"; }
# near TEXT LIMIT RUN RUN: their losses differ by at most LIMIT, relatively
near() {
    losses "$3" >"$aside/a"; losses "$4" >"$aside/b"
    worst=$(paste "$aside/a" "$aside/b" | awk '{ d = $1 - $2; if (d < 0) d = -d; d /= $2 > 1e-30 ? $2 : 1e-30;
            if (d > m) m = d; n++ } END { if (n == 0 || m != m) m = 9; print m + 0 }')
    if awk -v w="$worst" -v l="$2" 'BEGIN { exit !(w <= l) }'; then ok "$1: $worst"
    else not_ok "$1: $worst, limit $2"; fi
}

# with NAME=VALUE COMMAND...
with() { with_name=${1%%=*}; export "$1"; shift; "$@"; unset "$with_name"; }

write_conf toy.conf 's/steps = 3/steps = 5/'
write_conf mlp.conf 's/network = "toy"/network = "mlp"  hidden = {16, 16, 16}  dropout = 0.1/; s/steps = 3/steps = 5/
    s/"sgd"  learning_rate = 0.1/"adamw"  learning_rate = 0.01/'
write_conf block.conf 's,network = "toy".*input = {10},graph = "'"$source_dir"'/gpu/block.graph",
    s/labels = "onehot"  samples = 200/samples = 50/
    s/batch_size = 20  split_size = 8/batch_size = 5  split_size = 2/; s/steps = 3/steps = 4/
    s/loss = "mse"/loss = "cross_entropy"/; s/rate = 0.1/rate = 0.01  momentum = 0.9/'

# ---- the same weights, the CPU's losses ------------------------------------------------------------------------------
export DOUBLE_DELAY_US=60
for model in toy mlp block; do
    trains $model-1 1 -c $model.conf --device cuda --stages 1
    one=$hash
    job 1 -c $model.conf --device cpu --stages 1 --run-dir $model-cpu
    # Other libraries and orders of addition: last bits, which a few steps do not carry far.
    near "$model: losses of the CPU" 2e-5 $model-1 $model-cpu
    for ranks in 2 4; do
        [ $model$ranks = toy4 ] && continue              # it has not so many layers
        # each two of ranks, transport and schedule
        case $ranks in 2) few='staged:1f1b nccl:gpipe' more='staged:gpipe nccl:1f1b' ;;
            *) few='staged:gpipe nccl:1f1b' more='staged:1f1b nccl:gpipe' ;; esac
        for way in $(cases "$few" "$more"); do
            transport=${way%:*} schedule=${way#*:}
            trains $model-$ranks-$transport-$schedule $ranks -c $model.conf --device cuda --stages $ranks \
                --transport $transport --schedule $schedule
            equal "the weights of one rank" "$one" "$hash"
        done
    done
done
# Samples and targets of more than 64 KiB, several micro-batches of which go ahead to one device.
write_conf wide.conf \
    's/network = "toy"  classes = 5  input = {10}/network = "mlp"  classes = 5000  input = {5000}  hidden = {4}/;
        s/split_size = 8/split_size = 4/; s/rate = 0.1/rate = 1/'
for device in cuda cpu; do trains wide-$device 1 -c wide.conf --device $device --stages 1; done
near "targets as large as samples: losses of the CPU" 2e-5 wide-cuda wide-cpu

# So large a plan, a library's workspace, that on the CPU the whole process would be looked at.
bytes=$(grep '"event": *"account"' toy-1/metrics.jsonl | grep -oE '"(plan_)?bytes":[0-9]+' | grep -oE '[0-9]+' |
    sort -nu | tr '\n' ' ')
# two figures: the plan's, and what the device was asked for, which is a little more
check "the account of a GPU is the plan's and the device's memory, not the process's ($bytes)" \
    sh -c 'echo "$0" | awk "{ exit !(NF == 2 && \$1 > 134217728 && \$2 - \$1 < 262144) }"' "$bytes"

trains block-no-graphs 2 -c block.conf --device cuda -o run.graphs=no
equal "kernels one by one instead of recorded: the same weights" "$one" "$hash"
trains block-replays 2 -c block.conf --device cuda -o run.kernel_times=no
equal "recorded from the first step on: the same weights" "$one" "$hash"
"$mpstaged" -c block.conf --device cuda --transport staged --run-dir block-threads >"$aside/out" 2>"$aside/err" || why
equal "threads of one process: the same weights" "$one" "$(hash_of block-threads)"
trains block-bf16-1 1 -c block.conf --device cuda --precision bf16 --stages 1
one=$hash
trains block-bf16-2 2 -c block.conf --device cuda --precision bf16
equal "bfloat16: the weights of one rank" "$one" "$hash"
near "bfloat16: losses of fp32, to its eight bits" 2e-2 block-bf16-1 block-1

# ---- language models: a tied head over stages, rotary positions, fewer key heads, documents apart -----------------
# Documents of 37 bytes: 60 ends one.
awk 'BEGIN { for (i = 0; i < 3000; i++) printf "%c", i % 37 == 36 ? 60 : 1 + i * i % 59 }' >"$aside/tokens"
lm='input = {16}  vocab_size = 61  hidden_size = 48  num_hidden_layers = 4  num_attention_heads = 6'
for model in gpt2 llama; do
    case $model in
        gpt2) keys=$lm documents=apart ;;                # own kernels of attention
        *) keys="$lm  intermediate_size = 40  num_key_value_heads = 2  tie_word_embeddings = yes" documents=joined ;;
    esac
    write_conf $model.conf "s/network = \"toy\".*input = {10}/network = \"$model\"  $keys/
        s,source.*200,source = \"tokens\"  token_type = \"u8\"  train_tokens = \"$aside/tokens\"  end_token = 60 \
            documents = \"$documents\",; s/batch_size = 20  split_size = 8/batch_size = 4  split_size = 2/
        s/loss = \"mse\"  //; s/\"sgd\"  learning_rate = 0.1/\"adamw\"  learning_rate = 0.01/"
    for device in cuda cpu; do trains $model-$device 1 -c $model.conf --device $device --stages 1; done
    near "$model: losses of the CPU" 2e-5 $model-cuda $model-cpu
    one=$(hash_of $model-cuda)
    trains $model-2 2 -c $model.conf --device cuda --transport staged
    equal "$model: the weights of one rank on two" "$one" "$hash"
    trains $model-4 4 -c $model.conf --device cuda --stages 4 --schedule zb-h1
    equal "on four" "$one" "$hash"
    trains $model-bf16 1 -c $model.conf --device cuda --precision bf16 --stages 1
    near "in bfloat16 its losses, to eight bits" 2e-2 $model-bf16 $model-cuda
    one=$hash
    trains $model-bf16-2 2 -c $model.conf --device cuda --precision bf16 -o pipeline.recompute=all
    equal "$model in bfloat16: the weights of one rank on two that recompute" "$one" "$hash"
    echo '{"input_ids": [1, 5, 9]}' >"$aside/prompts"
    for device in cpu cuda; do
        job 2 -c $model.conf --device $device --generate - --init-from $model-cpu/weights.safetensors \
            -o generate.prompts="$aside/prompts" -o generate.max_tokens=8
        sed -n 's/.*"ids":\[\([^]]*\)\].*/\1/p' "$aside/out" >"$aside/$device"
    done
    [ $documents = joined ] ||
        check "the plan names the kernel that documents apart cost" sh -c \
            '"$@" | tr -s " \n" " " | grep -q "own tiles: documents apart"' sh "$mpstaged" -c $model.conf --plan \
            --device cuda --precision bf16 --stages 1
    check "$model: the CPU's text" sh -c '[ -s "$0" ] && cmp "$0" "$1"' "$aside/cpu" "$aside/cuda"
done

for transport in staged nccl; do
    job 2 -c toy.conf --device cuda --transport $transport --profile --run-dir profile-$transport
    if [ "$code" -eq 0 ] && [ -s profile-$transport/profile.json ]; then ok "--profile, $transport"
    else why; not_ok "--profile, $transport: $code"; fi
done

# ---- replicas: the bits of one pipeline, whoever carries their gradients ---------------------------------------------
write_conf pair.conf 's,network = "toy".*input = {10},graph = "'"$source_dir"'/gpu/block.graph",
    s/labels = "onehot"  samples = 200/samples = 50  test_samples = 7/
    s/batch_size = 20  split_size = 8/batch_size = 7  split_size = 1  gradient_groups = 4  clip_norm = 1/
    s/loss = "mse"/loss = "cross_entropy"/; s/rate = 0.1/rate = 0.01  momentum = 0.9/'
trains pair 1 -c pair.conf --device cuda --stages 1
one=$hash
# side NAME RANKS OPTIONS...
side() { trains "$@" -c pair.conf --device cuda -o pipeline.bucket_kib=4; equal "$1: the same weights" "$one" "$hash"; }
trains toy-two 1 -c toy.conf --device cuda --stages 1 -o train.gradient_groups=2
side two-nccl 2 --stages 1 --transport nccl -o pipeline.replicas=2
side four-staged 4 --stages 1 --transport staged -o pipeline.replicas=4
side four-nccl-shared 4 --stages 1 --transport nccl -o pipeline.replicas=4 -o pipeline.shard_optimizer=yes
side two-of-two 4 --stages 2 --transport nccl -o pipeline.replicas=2 --schedule zb-h1
side two-of-two-shared 4 --stages 2 --transport staged -o pipeline.replicas=2 -o pipeline.shard_optimizer=yes
job 4 -c pair.conf --device cuda --stages 1 -o pipeline.replicas=4 -o checkpoint.every_steps=2 -o train.steps=2 \
    --run-dir pair-kept
job 2 -c pair.conf --device cuda --stages 1 -o pipeline.replicas=2 --resume --run-dir pair-kept
equal "two go on where four stopped: the same weights" "$one" "$(hash_of pair-kept | tail -n 1)"

# Sums that NCCL makes: of two there is one order; of four the double has another than the plans' tree, but always that.
# With eight steps the last batch leaves three of four replicas without a micro-batch.
whole='-o pipeline.reduce=nccl -o train.steps=8'
trains pair-longer 1 -c pair.conf --device cuda --stages 1 -o train.steps=8
two='-o train.gradient_groups=2 -o pipeline.bucket_kib=4'
trains pair-two 1 -c pair.conf --device cuda --stages 1 -o train.gradient_groups=2 -o train.steps=8
two_hash=$hash
trains whole-two 2 -c pair.conf --device cuda --stages 1 -o pipeline.replicas=2 $two $whole
equal "NCCL adds two up: the same weights" "$two_hash" "$hash"
trains whole-two-of-two 4 -c pair.conf --device cuda --stages 2 -o pipeline.replicas=2 $two $whole --schedule zb-h1
equal "on each of two stages, too" "$two_hash" "$hash"
trains whole-four 4 -c pair.conf --device cuda --stages 1 -o pipeline.replicas=4 -o pipeline.bucket_kib=4 $whole
four_hash=$hash
trains whole-four-again 4 -c pair.conf --device cuda --stages 1 -o pipeline.replicas=4 -o pipeline.bucket_kib=4 $whole
equal "NCCL adds four up: twice the same weights" "$four_hash" "$hash"
check "others than those of the tree" [ "$hash" != "$(hash_of pair-longer)" ]
near "but near" 1e-5 pair-longer whole-four
check "the numerics line says so" grep -q \
    '"numerics":"[^"]*gradient groups 4, those of 4 replicas added by NCCL in buckets of 4 Ki' whole-four/metrics.jsonl
refused "NCCL for CPUs" 78 'pipeline.reduce=nccl: nccl is for GPUs' 2 -c pair.conf --device cpu --stages 1 \
    -o pipeline.replicas=2 $whole
refused "NCCL, and weights shared out" 78 'pipeline.shard_optimizer needs "tree"' 2 -c pair.conf --device cuda \
    --stages 1 -o pipeline.replicas=2 -o pipeline.shard_optimizer=yes $whole
refused "NCCL by staged" 78 'nccl needs run.transport = "nccl"' 2 -c pair.conf --device cuda --stages 1 \
    -o pipeline.replicas=2 --transport staged $whole

# A GPU is one core, whatever run.threads says, which changes nothing there.
"$mpstaged" -c pair.conf --device cuda --stages 1 --plan=search -o pipeline.cores=4 -o run.threads=2 >"$aside/out" \
    2>"$aside/err" || why
for line in '4 GPUs, batch 7, estimated costs:' ' +[0-9]+  4x1 +1f1b .*' ' +[0-9]+  1x4 +auto .*' \
    'data parallelism on 4 devices  +[0-9]+ .*' 'a pipeline of 4 ranks  +[0-9]+ .*' \
    '2 replicas of 2 ranks  +[0-9]+ .*' '  mpirun -np 4 mpstaged -c FILE' 'layout: replicas x ranks of each'; do
    check "a search shares out GPUs: $line" grep -qxE "$line" "$aside/out"
done
check "without a word of cores and threads, in 80 columns" \
    sh -c '[ -s "$0" ] && ! grep -E "core|thread|.{81}" "$0"' "$aside/out"

# ---- a kernel table: what the profile measures with is what runs use -------------------------------------------------
job 1 -c block.conf --device cuda --stages 1 --profile --run-dir measured -o run.kernel_table=table
if [ "$code" -eq 0 ] && [ -s measured/profile.json ] && grep -q 'n2 .*: loops' table; then
    ok "--profile measures the kernels that a run would"
else why; not_ok "--profile measures the kernels that a run would: $code"; fi
trains tabled 1 -c block.conf --device cuda --stages 1 -o run.kernel_table=table
echo junk >other
for mode in --profile ''; do
    # shellcheck disable=SC2086
    refused "another table is refused${mode:+, $mode}" 65 'kernel table' \
        1 -c block.conf --device cuda --stages 1 -o run.kernel_table=other --run-dir run $mode
done

# ---- a version of NCCL that hangs is named --------------------------------------------------------------------------
for version in 22802 22803 22808 22809; do
    case $version in 22803 | 22808) says=1 ;; *) says=0 ;; esac
    export DOUBLE_NCCL_VERSION=$version
    job 2 -c block.conf --device cuda --transport nccl --steps 1 --run-dir version --overwrite
    check "NCCL $version: $code, its warning $says times" \
        [ "$code $(grep -c 'warning: NCCL .* known to hang' version/mpstaged.log)" = "0 $says" ]
    check "and --version has it" [ "$("$mpstaged" --version | grep -c 'known to hang')" -eq "$says" ]
    unset DOUBLE_NCCL_VERSION
done

# ---- settings that change nothing are named -----------------------------------------------------------------------
# moot TEXT NOTE OPTIONS...: two steps on the CPU or over the doubles say NOTE, or nothing of that kind
moot() {
    moot_text=$1 moot_note=$2; shift 2
    job 1 -c block.conf --steps 2 --run-dir moot --overwrite "$@"
    sed -n 's/^.* note: no effect //p' moot/mpstaged.log >"$aside/moot"
    if [ "$code" -eq 0 ] && [ "$(cat "$aside/moot")" = "$moot_note" ]; then ok "$moot_text"
    else note <"$aside/moot"; why; not_ok "$moot_text: $code"; fi
}
moot "on CPUs, settings for GPUs" \
    "on CPUs: run.kernel_table, run.graphs, run.kernel_times, run.nccl_max_ctas" --device cpu \
    -o run.kernel_table=moot-table -o run.graphs=no -o run.kernel_times=no -o run.nccl_max_ctas=8
moot "on CPUs, their defaults" "" --device cpu -o run.graphs=yes -o run.kernel_candidates=some -o run.nccl_max_ctas=4
moot "which kernels are tried, without a table" "without run.kernel_table: run.try_compiled, run.kernel_candidates" \
    --device cuda --stages 1 -o run.try_compiled=yes -o run.kernel_candidates=all
moot "which kernels are tried, when they are" "" --device cuda --stages 1 \
    -o run.kernel_candidates=all -o run.kernel_table=moot-table
moot "which kernels are tried, when they were" "because run.kernel_table was measured before: run.kernel_candidates" \
    --device cuda --stages 1 -o run.kernel_candidates=all -o run.kernel_table=moot-table
moot "what is for replicas, without any" "without replicas: pipeline.reduce, pipeline.bucket_kib" --device cuda \
    --stages 1 -o pipeline.reduce=nccl -o pipeline.bucket_kib=8
moot "limits of nccl by staged" "without nccl: run.nccl_max_ctas, run.transfer_timeout" \
    --device cuda --stages 2 --transport staged \
    -o run.nccl_max_ctas=8 -o run.transfer_timeout=30

refused "sizes that do not ascend, before kernels are measured" 78 'sizes must ascend' 1 -c block.conf --device cuda \
    --stages 1 --profile --run-dir run \
    -o run.kernel_table=new -o 'pipeline.profile_sizes={4,2}'
for mode in --profile ''; do
    # shellcheck disable=SC2086
    refused "no plan within that memory, before kernels are measured${mode:+, $mode}" 78 'needs .* more than its' \
        1 -c block.conf --device cuda --stages 1 \
        --run-dir run -o run.kernel_table=new -o 'pipeline.max_memory={1KB}' $mode
done

# ---- mistakes that are planted: waits of one stream are lost ---------------------------------------------------------
# Streams of a rank in the order in which it makes them: 0 computes, 1 loads, then the links.
# caught TEXT STREAM RANK: the weights are not those of the run $right, or not finite
caught() {
    seen=0
    for seed in $(cases 1 '2 3'); do
        export DOUBLE_DROP=$2 DOUBLE_RANK=$3 DOUBLE_DELAY_US=300 DOUBLE_SEED=$seed
        # shellcheck disable=SC2086
        job 2 -c toy.conf --device cuda --transport "$transport" $apart --run-dir lost --overwrite
        if [ "$code" -ne 0 ] || [ "$(hash_of lost)" != "$(hash_of $right)" ]; then
            seen=$((seen + 1))
        fi
    done
    unset DOUBLE_DROP DOUBLE_RANK DOUBLE_SEED
    equal "$transport: $1 is seen, every time" "$([ -n "${LONG:-}" ] && echo 3 || echo 1)" $seen
}
for transport in staged nccl; do
    right=toy-1 apart=
    caught "a send that does not wait for its kernel" 2 0
    caught "a kernel that does not wait for what it receives" 0 1
    right=toy-two apart="--stages 1 -o pipeline.replicas=2 -o train.gradient_groups=2"
    caught "a share of gradients that does not wait for its kernel" 2 0
    caught "an addition that does not wait for what comes" 0 1
    apart="$apart -o pipeline.reduce=nccl"
    [ $transport = staged ] || caught "a sum over replicas that does not wait for its kernel" 2 0
    [ $transport = staged ] || caught "norms that do not wait for sums over replicas" 0 1
done

# ---- what goes wrong -------------------------------------------------------------------------------------------------
unset DOUBLE_DELAY_US
cuda() {
    refused_text=$1 c_code=$2 c_pattern=$3; shift 3
    refused "$refused_text" "$c_code" "$c_pattern" 2 -c toy.conf --device cuda --run-dir run "$@"
}
with DOUBLE_DRIVER=0 cuda "no driver" 69 'no CUDA driver'
with DOUBLE_DRIVER=12040 cuda "too old a driver" 69 'driver is too old: it has CUDA 12\.4, this program needs 13\.0'
with DOUBLE_DEVICES=0 cuda "no GPU" 69 'no GPU is visible'
with DOUBLE_OTHER=1 cuda "GPUs of two kinds" \
    78 'rank 1 would compute other numbers than rank 0: .*Double of another GPU'
with DOUBLE_OTHER=1 cuda "GPUs of two kinds, --profile" \
    78 'rank 1 would compute other numbers than rank 0: .*Double of another GPU' --profile
export DOUBLE_RANK
DOUBLE_RANK=0
with DOUBLE_DRIVER=0 refused "only rank 0 has no driver" \
    78 'rank 1 would compute with cuda, rank 0 with onednn: no CUDA driver' 2 -c toy.conf --run-dir run
DOUBLE_RANK=1
with DOUBLE_DRIVER=0 refused "only rank 1 has no driver" \
    78 'rank 1 would compute with onednn, rank 0 with cuda: no CUDA driver' 2 -c toy.conf --run-dir run
unset DOUBLE_RANK
with NVIDIA_TF32_OVERRIDE=1 cuda "TF32 by the environment" 78 'NVIDIA_TF32_OVERRIDE=1 in the environment forces TF32'
with NVIDIA_TF32_OVERRIDE=0 cuda "no TF32 by the environment" \
    78 'NVIDIA_TF32_OVERRIDE=0 in the environment forbids TF32' --precision tf32
with NVIDIA_TF32_OVERRIDE=0 trains exact 2 -c toy.conf --device cuda
equal "the environment says as the configuration does: the same weights" "$(hash_of toy-1)" "$hash"
if grep -q '"numerics":"[^"]*doubles, driver 13\.0, no NVRTC, NVIDIA_TF32_OVERRIDE=0' exact/metrics.jsonl; then
    ok "the numerics line has driver and environment"
else grep -o '"numerics":"[^"]*"' exact/metrics.jsonl | note; not_ok "the numerics line has driver and environment"; fi
with DOUBLE_DEVICES=1 cuda "two ranks on one GPU" 69 'ranks 0 and 1 would share GPU 0 .*--allow-shared-gpu'
with DOUBLE_MEMORY=100000000 cuda "too little memory" \
    69 'rank 0: the plan needs [0-9]+ bytes \(.*\), the device has [0-9]+ \(.*\) free'
need=$(sed -n 's/.*rank 0: the plan needs \([0-9]*\) bytes.*/\1/p' "$aside/err")
# Libraries need room, too: an estimate that grows with graphs and links.
beside() { with DOUBLE_MEMORY=50000000 job 2 -c toy.conf --device cuda --run-dir run "$@"
           sed -n 's/.*rank 0: the plan needs .*, libraries an estimated \([0-9]*\) .*/\1/p' "$aside/err"; }
room=$(beside)
check "the reserve grows with graphs ($room)" [ "$(beside -o run.graphs=no)" -lt "$room" ]
check "and with micro-batches" [ "$(beside -o train.split_size=4)" -gt "$room" ]
check "and with what a link may occupy" [ "$(beside -o run.nccl_max_ctas=8)" -eq $((room + 8 * 10485760)) ]
check "which is a power of two" [ "$(beside -o run.nccl_max_ctas=5)" -eq "$room" ]
check "links by the hosts' memory need none" [ "$(beside --transport staged -o run.graphs=no)" -eq 67108864 ]
# The second replica has rows of its own, links to the first one and from it, and one where NCCL adds up.
export DOUBLE_RANK=1
replica() { with DOUBLE_MEMORY=50000000 job 2 -c toy.conf --device cuda --stages 1 -o pipeline.replicas=2 \
                -o train.gradient_groups=2 -o run.graphs=no --run-dir run "$@"
            sed -n 's/.*rank 1: the plan needs .*, libraries an estimated \([0-9]*\) .*/\1/p' "$aside/err"; }
a_link=$(((16 + 4 * 10) * 1048576))
equal "a replica's links to others need some" $((67108864 + 2 * a_link)) "$(replica)"
equal "and so do sums" $((67108864 + 3 * a_link)) "$(replica -o pipeline.reduce=nccl)"
unset DOUBLE_RANK
with DOUBLE_MEMORY=$((need + room - 1)) cuda "room for the plan alone" 69 'rank 0: the plan .*, libraries an estimated'
with DOUBLE_MEMORY=$((need + room + 1048576)) trains room-beside 2 -c toy.conf --device cuda
# What measures links takes 128 MiB.
with DOUBLE_MEMORY=$((need + room + 1048576)) cuda "too little memory for a profile, where a run would fit" \
    69 'rank 0: the plan needs .*, the device has' --profile
cuda "a host's transport for GPUs" 78 'transport "mpi" cannot reach the memory of GPUs' --transport mpi
refused "a GPU's transport for the CPU" 78 'transport "nccl" is for GPUs' 2 \
    -c toy.conf --device cpu --transport nccl --run-dir run
with DOUBLE_DRIVER=0 job 2 -c toy.conf --run-dir auto
equal "without a driver, --device auto takes the CPU" "0 0" "$code $(our_lines)"
for transport in auto staged nccl; do
    with DOUBLE_DEVICES=1 trains shared-$transport 2 -c toy.conf --device cuda --allow-shared-gpu --transport $transport
    equal "two ranks share a GPU, $transport: the same weights" "$(hash_of toy-1)" "$hash"
done
export DOUBLE_DEVICES=1 DOUBLE_NCCL_WANTS='NCCL_SOCKET_IFNAME=lo NCCL_CUMEM_HOST_ENABLE=0 NCCL_MNNVL_ENABLE=0'
trains shared-by-loopback 2 -c toy.conf --device cuda --allow-shared-gpu --transport nccl
check "the log says by which way" grep -q 'all 2 links: via NET/Socket/0$' shared-by-loopback/mpstaged.log
unset DOUBLE_NCCL_WANTS
# Ranks 0 and 2 on one GPU, 1 and 3 on the other: first ones among themselves, and second ones, are as ever.
with DOUBLE_DEVICES=2 trains shared-by-four 4 -c mlp.conf --device cuda --stages 4 --allow-shared-gpu --transport nccl
equal "four ranks share two GPUs, nccl: the same weights" "$(hash_of mlp-1)" "$hash"
check "ranks 0 and 1 are on one host" grep -q 'links 0 to 1, 1 to 0, 2 to 3, 3 to 2: via P2P/CUMEM$' \
    shared-by-four/mpstaged.log
check "ranks 1 and 2 are not" grep -q 'links 1 to 2, 2 to 1: via NET/IB/0/GDRDMA$' shared-by-four/mpstaged.log
with NCCL_DEBUG=WARN trains log-of-the-user 2 -c toy.conf --device cuda --allow-shared-gpu --transport nccl
check "a log that the user asks for is the user's" sh -c '! grep -q "via" log-of-the-user/mpstaged.log'
export DOUBLE_DEVICES=1
export NCCL_SOCKET_IFNAME=other NCCL_IB_HCA=mlx5_0 NCCL_CUMEM_HOST_ENABLE=1 \
    DOUBLE_NCCL_WANTS='NCCL_SOCKET_IFNAME=other NCCL_IB_HCA=mlx5_0 NCCL_CUMEM_HOST_ENABLE=1'
trains shared-as-the-user-says 2 -c toy.conf --device cuda --allow-shared-gpu --transport nccl
unset NCCL_SOCKET_IFNAME NCCL_IB_HCA NCCL_CUMEM_HOST_ENABLE DOUBLE_NCCL_WANTS
export DOUBLE_DELAY_US=60
"$mpstaged" -c block.conf --device cuda --transport staged --allow-shared-gpu --run-dir shared-threads \
    >"$aside/out" 2>"$aside/err" || why
equal "threads of one process share a GPU: the same weights" "$(hash_of block-1)" "$(hash_of shared-threads)"
code=0; "$mpstaged" -c block.conf --device cuda --transport nccl --allow-shared-gpu --run-dir run \
    >"$aside/out" 2>"$aside/err" || code=$?
check "but not by nccl" [ "$code" -eq 78 ]
check "which is said" grep -q 'threads of one process cannot share a GPU by nccl' "$aside/err"
unset DOUBLE_DEVICES DOUBLE_DELAY_US
export DOUBLE_MEMORY=$((need + room + 1048576))
trains room-apart 2 -c toy.conf --device cuda
together='together with rank 1 on the same GPU [0-9]+ bytes \(.*\)'
with DOUBLE_DEVICES=1 cuda "too little memory for two ranks on one GPU, where each alone would fit" 69 \
    "rank 0: the plan needs [0-9]+ bytes \\(.*\\), $together, the device has [0-9]+ \\(.*\\) free" --allow-shared-gpu
unset DOUBLE_MEMORY

# While ranks connect, or before: the one that fails says why, and nobody waits for it.
# early TEXT PATTERN RANKS OPTIONS...
early() {
    early_text=$1 early_pattern=$2 early_ranks=$3; shift 3
    refused "$early_text" 69 "$early_pattern" "$early_ranks" \
        -c mlp.conf --device cuda --stages "$early_ranks" --run-dir run "$@"
    if soon 10000; then ok "$early_text: at once"; else not_ok "$early_text: after $took ms"; fi
}
export DOUBLE_RANK
for pair in $(cases '0:2 3:4' 1:2); do                   # one of two, and of four the last one: most do not know it
    DOUBLE_RANK=${pair%:*} ranks=${pair#*:}
    for transport in staged nccl; do
        with DOUBLE_STREAMS=3 early "rank $DOUBLE_RANK of $ranks has no stream for a link, $transport" \
            "^mpstaged: rank $DOUBLE_RANK: opening a link: out of memory" \
            $ranks --transport $transport
    done
    with DOUBLE_COMMS=1 early "rank $DOUBLE_RANK of $ranks cannot connect" \
        "^mpstaged: rank $DOUBLE_RANK, transfer .*: connecting: unhandled system error" $ranks --transport nccl
    with DOUBLE_STREAMS=1 early "rank $DOUBLE_RANK of $ranks has no stream for loads" \
        "^mpstaged: rank $DOUBLE_RANK: GPU $DOUBLE_RANK: a stream: out of memory" \
        $ranks --transport nccl
done
# So much pinned memory has a rank that loads nothing, before it connects.
DOUBLE_RANK=1
with DOUBLE_PINNED=8388608 early "no pinned memory for staged links" \
    '^mpstaged: rank 1: no .* of pinned memory for transfers' 4 --transport staged
with DOUBLE_PINNED=8388608 early "no pinned memory for nccl links" \
    '^mpstaged: rank 1: connecting: out of memory' 4 --transport nccl
unset DOUBLE_RANK

# breaks TEXT PATTERN RANKS OPTIONS...: in the middle of a long run; one cause, 69, all ranks gone within $limit ms
limit=10000
breaks() {
    breaks_text=$1 breaks_pattern=$2 breaks_ranks=$3; shift 3
    rm -rf broken
    job "$breaks_ranks" --device cuda --steps 100000 --run-dir broken "$@"
    wrong=
    [ "$code" -eq 69 ] || wrong="$wrong; exit code $code"
    soon "$limit" || wrong="$wrong; $took ms"
    [ "$(our_lines)" -eq 1 ] || wrong="$wrong; $(our_lines) lines of ours"
    grep '^mpstaged: ' "$aside/err" | grep -q -- "$breaks_pattern" || wrong="$wrong; no line with $breaks_pattern"
    nobody_left || wrong="$wrong; ranks are alive"
    if [ -z "$wrong" ]; then ok "$breaks_text: 69, $took ms"; else why; not_ok "$breaks_text$wrong"; fi
}
export DOUBLE_RANK
for DOUBLE_RANK in 0 1; do
    for transport in staged nccl; do
        with DOUBLE_VANISH=3000 breaks "rank $DOUBLE_RANK loses its GPU, $transport" \
            "rank $DOUBLE_RANK.*unavailable" 2 -c toy.conf --transport $transport
    done
    with DOUBLE_NCCL_CLOSE=200 breaks "a connection of rank $DOUBLE_RANK breaks" 'rank [01].*NCCL.*remote' \
        2 -c toy.conf --transport nccl
    with DOUBLE_NCCL_HANG=200 breaks "rank $DOUBLE_RANK moves nothing any more" 'rank [01].*no progress on the link' \
        2 -c toy.conf --transport nccl -o run.transfer_timeout=2
done
whole='-c pair.conf --stages 1 -o pipeline.replicas=2 -o pipeline.reduce=nccl'
# shellcheck disable=SC2086
with DOUBLE_NCCL_CLOSE=60 breaks "a connection of sums over replicas breaks" 'rank [01].*NCCL.*remote' 2 $whole
# All wait for such a sum, so nobody is asked whether it should have come: the heartbeat tells.
# shellcheck disable=SC2086
with DOUBLE_NCCL_SUMS_HANG=20 job 2 --device cuda --steps 100000 --run-dir hung $whole -o run.hang_timeout=2 \
    -o run.transfer_timeout=1
if [ "$code" -eq 81 ] && nobody_left &&
    grep -q '^mpstaged: rank [01] .*is not responding: stage 0, gradient norm of step' "$aside/err"
then ok "sums over replicas move no more: 81, $took ms"; else why; not_ok "sums over replicas move no more: $code"; fi
for way in $(cases '0:nccl 2:staged' '0:staged 2:nccl'); do
    DOUBLE_RANK=${way%:*} transport=${way#*:}
    with DOUBLE_VANISH=600 breaks "rank $DOUBLE_RANK of four loses its GPU while kernels are measured, $transport" \
        "rank $DOUBLE_RANK, .*unavailable" \
        4 -c mlp.conf --stages 4 --transport $transport --profile -o 'pipeline.profile_sizes={4}'
done
DOUBLE_RANK=1
with DOUBLE_NCCL_CLOSE=200 breaks "a connection breaks while kernels are measured" 'rank [01].*NCCL.*remote' \
    2 -c toy.conf --transport nccl --profile
with DOUBLE_NCCL_HANG=200 breaks "rank 1 moves nothing any more while kernels are measured" \
    'rank [01].*no progress on the link' 2 -c toy.conf --transport nccl --profile \
    -o run.transfer_timeout=2
# As long as runs wait when nobody says for how long.
job 2 -c toy.conf --device cuda --steps 1 --run-dir started
limit=$((17000 + took))                               # 5 s more than run.hang_timeout
with DOUBLE_NCCL_HANG=200 breaks "rank $DOUBLE_RANK moves nothing any more, run.transfer_timeout as it is" \
    'rank [01].*no progress on the link' 2 -c toy.conf --transport nccl
unset DOUBLE_RANK

# killed RANK TRANSPORT: in the middle of a long run; mpirun names the cause, and says that it was SIGKILL
killed() {
    rm -rf broken
    mpirun_n 2 "$mpstaged" -c toy.conf --device cuda --steps 100000 --run-dir broken --transport "$2" \
        >"$aside/out" 2>"$aside/err" </dev/null &
    launcher=$!
    for _ in $(seq 200); do
        ! grep -qs '"step":3,' broken/metrics.jsonl || break
        sleep 0.05
    done
    for p in $(ranks_alive); do
        ! tr '\0' '\n' <"/proc/$p/environ" | grep -qx "$mpi_rank=$1" || kill -KILL "$p"
    done
    job_began=$(date +%s%N) code=0
    wait $launcher || code=$?
    took=$((($(date +%s%N) - job_began) / 1000000)) wrong=
    [ "$code" -eq "$(death 9)" ] || wrong="$wrong; exit code $code"
    soon 10000 || wrong="$wrong; $took ms"
    [ "$(our_lines)" -le 1 ] || wrong="$wrong; $(our_lines) lines of ours"
    if [ "$mpi" = mpich ]; then says_death "rank $1 "
    else tr '\n' ' ' <"$aside/err" | grep -q "process rank $1 .*signal 9"; fi || wrong="$wrong; no cause"
    nobody_left || wrong="$wrong; ranks are alive"
    if [ -z "$wrong" ]; then ok "rank $1 is killed, $2: $code, $took ms"
    else why; not_ok "rank $1 is killed, $2$wrong"; fi
}
for way in $(cases '0:staged 1:nccl' '1:staged 0:nccl'); do killed ${way%:*} ${way#*:}; done
tap_done
