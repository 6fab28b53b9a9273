#!/bin/sh
# replicas.sh: pipelines side by side (pipeline.replicas) end with the bits of one: loss, evaluations, weights and
# running statistics, with batch norm, micro-batches and batches that are smaller at the end of an epoch, replicas that
# have none of these, recomputation, buckets, several schedules and cuts; after checkpoints, with another
# number of replicas; after a rank was killed; with steps that are skipped. And what cannot be shared out is refused.
set -eu
. "$(dirname -- "$0")/mpi_lib.sh"

# A network of residual blocks, narrow ones: weights of a large one would be what this test writes and reads all along.
{
    echo 'graph net'
    echo 'input input 3x16x16'
    echo 'labels labels class'
    echo 'conv0 = conv(input) channels=16 kernel=3 padding=1 bias=no'
    echo 'bn0 = batch_norm(conv0)'
    echo 'out0 = relu(bn0)'
    for i in 1 2 3 4; do
        echo "conv${i}a = conv(out$((i - 1))) channels=16 kernel=3 padding=1 bias=no"
        echo "bn${i}a = batch_norm(conv${i}a)"
        echo "relu${i} = relu(bn${i}a)"
        echo "conv${i}b = conv(relu${i}) channels=16 kernel=3 padding=1 bias=no"
        echo "bn${i}b = batch_norm(conv${i}b)"
        echo "sum${i} = add(bn${i}b, out$((i - 1)))"
        echo "out${i} = relu(sum${i})"
    done
    echo 'pool = global_avg_pool(out4)'
    echo 'flat = flatten(pool)'
    echo 'fc = linear(flat) features=4'
    echo 'loss = softmax_cross_entropy(fc, labels)'
    echo 'output fc'
    echo 'loss loss'
} >net.graph
cat >net.conf <<'END'
run   { name = "net"  seed = 1 }
model { graph = "net.graph" }
data  { source = "synthetic"  samples = 24  test_samples = 7  labels = "class"  shuffle = yes }
train { batch_size = 11  split_size = 2  epochs = 2  loss = "cross_entropy"  momentum = 0.9  clip_norm = 1
        gradient_groups = 4  evaluate_every = 2 }
pipeline { partition = "uniform" }
END
sed 's/graph = "net.graph"/network = "resnet18"  small_stem = yes  input = {3, 16, 16}  classes = 4/' net.conf \
    >large.conf

cat >thin.conf <<'END'
model { network = "mlp"  hidden = {1, 32}  input = {1, 8, 8}  classes = 4 }
data  { source = "synthetic"  samples = 24 }
train { batch_size = 16  split_size = 4  steps = 2  gradient_groups = 2 }
END

# same NAME RANKS OPTIONS...: ends with what `one` ended with
same() {
    trains "$@" -c net.conf
    equal "$1: the weights of one pipeline" "$one" "$hash"
    equal "$1: its losses" "$bits" "$(loss_bits "$1/metrics.jsonl")"
}

trains one threads -c net.conf
one=$hash bits=$(loss_bits one/metrics.jsonl)
same two 2 -o pipeline.replicas=2
same four 4 -o pipeline.replicas=4
check "which read each other's memory" sh -c '! grep -q "memory cannot be shared" "$0"' "$aside/err"
whole='-o pipeline.shard_optimizer=no' messages='-o pipeline.read_in_place=no'
same two-buckets threads -o pipeline.replicas=2 -o pipeline.bucket_kib=8 $whole
same four-buckets threads -o pipeline.replicas=4 -o pipeline.bucket_kib=1 $whole
same four-messages 4 -o pipeline.replicas=4 -o pipeline.bucket_kib=1 $whole $messages
same two-of-two 4 -o pipeline.bucket_kib=10 -o pipeline.replicas=2 -o pipeline.schedule=gpipe \
    -o pipeline.recompute=all $messages
LD_PRELOAD="$build/tests/faults/noroom.so" same two-apart 2 -o pipeline.replicas=2
check "where memory cannot be shared, that is said" \
    grep -q 'all 2 links: via messages, as memory cannot be shared' "$aside/err"
check "a run says that it has replicas" grep -q ': net, 2 replicas of 1 stage, ' "$aside/err"
check "and of which its account is" grep -q 'of the first of 2 replicas' "$aside/err"
same two-zb-h1 4 -o pipeline.replicas=2 -o pipeline.stages=2 -o pipeline.schedule=zb-h1 $whole
for schedule in interleaved zb-v auto; do
    same two-$schedule threads -o pipeline.replicas=2 -o pipeline.ranks=2 -o pipeline.schedule=$schedule \
        -o pipeline.stages=4
done
same two-naive threads -o pipeline.replicas=2 -o pipeline.stages=2 -o pipeline.schedule=naive
trains fold threads -c net.conf -o train.gradient_groups=1
if [ "$hash" != "$one" ]; then ok "one block has other bits"; else not_ok "one block has other bits"; fi

# ---- steps that are not finite, which buckets are under way in ----
cat >far.conf <<'END'
run   { name = "far"  seed = 1 }
model { network = "mlp"  hidden = {64, 64, 64}  input = {1, 8, 8}  classes = 4 }
data  { source = "synthetic"  samples = 24 }
train { batch_size = 12  split_size = 2  steps = 6  momentum = 0.9  gradient_groups = 4  learning_rate = 30000
        nonfinite = "skip"  nonfinite_limit = 100 }
END
skips() { grep '"event":"skip"' "$1/metrics.jsonl"; }
trains far threads -c far.conf
far=$hash
trains far-two threads -c far.conf -o pipeline.stages=2 -o pipeline.replicas=2 -o pipeline.bucket_kib=4
equal "skipped steps leave the same weights" "$far" "$hash"
equal "and are the same" "$(skips far)" "$(skips far-two)"
if [ "$(skips far | grep -c .)" -gt 0 ]; then ok "there are some"; else not_ok "there are some"; fi

# ---- weights shared out: each replica updates its own and keeps what the optimizer wants for them ----
shared='-o pipeline.shard_optimizer=yes'
same two-shared threads -o pipeline.replicas=2 $shared
same four-shared 4 -o pipeline.replicas=4 -o pipeline.bucket_kib=8 $shared
same shared-stages threads -o pipeline.stages=2 -o pipeline.replicas=2 -o pipeline.schedule=gpipe \
    -o pipeline.bucket_kib=10 $shared
same shared-zb-v threads -o pipeline.ranks=2 -o pipeline.replicas=2 -o pipeline.schedule=zb-v \
    -o pipeline.stages=4 $shared
trains far-shared threads -c far.conf -o pipeline.replicas=4 -o pipeline.bucket_kib=4 -o run.verify_every=2 $shared
equal "shared, too, skipped steps leave the same weights" "$far" "$hash"
equal "and are the same" "$(skips far)" "$(skips far-shared)"
lamb='-o train.optimizer=lamb -o train.momentum=0 -o train.ema=0.9 -o train.learning_rate=0.01'
trains lamb threads -c net.conf $lamb -o run.dump_gradients=one.grad
lamb_one=$hash lamb_bits=$(loss_bits lamb/metrics.jsonl)
trains lamb-shared threads -c net.conf $lamb -o pipeline.replicas=4 -o run.dump_gradients=four.grad $shared
equal "LAMB, whose steps go by norms of weights, and averages of weights" "$lamb_one" "$hash"
equal "their losses" "$lamb_bits" "$(loss_bits lamb-shared/metrics.jsonl)"
if cmp -s one.grad four.grad && [ -s one.grad ]; then ok "gradients are written by who has them"
else why; not_ok "gradients are written by who has them"; fi
# keeps FROM SHARED REPLICAS TO SHARED REPLICAS: one's checkpoint, with which the other goes on
keeps() {
    rm -rf kept
    job threads -c net.conf -o pipeline.replicas="$2" -o pipeline.shard_optimizer="$1" -o checkpoint.every_steps=2 \
        -o train.steps=2 --run-dir kept
    job threads -c net.conf -o pipeline.replicas="$4" -o pipeline.shard_optimizer="$3" --resume --run-dir kept
    equal "$2 replicas, shared: $1, then $4, shared: $3" "$one" "$(hash_of kept | tail -n 1)"
}
keeps yes 4 yes 2
keeps yes 2 no 4
keeps no 2 yes 4
keeps yes 4 yes 1
# optimizer_bytes SHARED: that a replica keeps, as the summary says it; memory_of SHARED: its plan's
optimizer_bytes() {
    "$mpstaged" -c large.conf --summary --json -o pipeline.replicas=4 -o pipeline.shard_optimizer="$1" |
        sed -n 's/.*"optimizer_bytes": \([0-9]*\).*/\1/p'
}
all=$(optimizer_bytes no) share=$(optimizer_bytes yes)
if [ "$share" -ge $((all / 4)) ] && [ "$share" -lt $((all * 3 / 10)) ]
then ok "each of four keeps about a quarter"; else not_ok "each of four keeps about a quarter: $share of $all"; fi
equal "which is what happens by itself" "$share" "$(optimizer_bytes auto)"
one_weight() {
    "$mpstaged" -c thin.conf --summary --json -o 'model.hidden={64}' -o train.momentum=0.9 -o pipeline.replicas=2 \
        -o pipeline.shard_optimizer="$1" | sed -n 's/.*"optimizer_bytes": \([0-9]*\).*/\1/p'
}
equal "but not where one weight is more than half of all" "$(one_weight no)" "$(one_weight auto)"
if [ "$(one_weight yes)" -lt "$(one_weight no)" ]; then ok "which would be less"; else not_ok "which would be less"; fi
job 2 -c thin.conf -o train.split_size=16 -o pipeline.replicas=2 --run-dir idle
check "a replica without work is told of" grep -q '^note: 1 of 2 replicas have no micro-batch of a batch' "$aside/err"
memory_of() {
    "$mpstaged" -c large.conf --plan --json -o pipeline.replicas=4 -o pipeline.shard_optimizer="$1" |
        tr -d '\n ' | sed -n 's/.*"optimizer_bytes":\([0-9]*\).*/\1/p'
}
all=$(memory_of no) planned=$(memory_of yes)
if [ "$planned" -ge "$share" ] && [ "$planned" -lt $((all * 3 / 10)) ]
then ok "and so its plan says"; else not_ok "and so its plan says: $planned of $all, $share"; fi

# ---- checkpoints ----
job threads -c net.conf -o pipeline.replicas=2 -o checkpoint.every_steps=2 -o train.steps=2 --run-dir again
if [ "$code" -eq 0 ]; then ok "two replicas write a checkpoint"; else why; not_ok "two replicas write a checkpoint"; fi
job threads -c net.conf -o pipeline.replicas=4 --resume --run-dir again
equal "four go on with it, to the same weights" "$one" "$(hash_of again | tail -n 1)"
job threads -c net.conf --init-from again -o run.evaluate=yes --run-dir look-one
job threads -c net.conf --init-from again -o run.evaluate=yes -o pipeline.replicas=2 --run-dir look-two
equal "and an evaluation by two says the same" "$(loss_bits look-one/metrics.jsonl)" \
    "$(loss_bits look-two/metrics.jsonl)"
job threads -c net.conf --init-from again -o run.predict=one.csv --run-dir look
job 4 -c net.conf --init-from again -o run.predict=four.csv -o pipeline.replicas=4 --run-dir look
if cmp -s one.csv four.csv && [ -s one.csv ]; then ok "predictions of four are those of one"
else why; not_ok "predictions of four are those of one"; fi

# ---- a rank of the second replica is killed ----
mpirun_n 2 "$mpstaged" -c net.conf -o pipeline.replicas=2 -o train.epochs=500000 -o train.evaluate_every=0 \
    -o checkpoint.every_steps=2 $shared --run-dir killed >"$aside/out" 2>"$aside/err" </dev/null &
job=$!
# The first checkpoint may be gone again before it is seen here.
for i in $(seq 600); do ! ls killed/checkpoints 2>/dev/null | grep -q '^step-[0-9]*$' || break; sleep 0.1; done
victim=$(for p in $(ranks_alive); do
    tr '\0' '\n' <"/proc/$p/environ" 2>/dev/null | grep -q "^$mpi_rank=1\$" && echo "$p"
done | head -n 1) || true
[ -z "$victim" ] || kill -9 "$victim"
code=0; wait "$job" || code=$?
if [ -n "$victim" ] && [ "$code" -ne 0 ] && says_death 'rank 1'
then ok "its death ends the job, and it is named"
else why; not_ok "its death ends the job, and it is named: $code"; fi
step=$(ls killed/checkpoints | grep '^step-[0-9]*$' | sort | tail -n 1 | sed 's/step-0*//')
job threads -c net.conf -o train.epochs=1 -o train.steps="$((step + 1))" -o train.evaluate_every=0 --resume \
    --run-dir killed
end=$(hash_of killed | tail -n 1)
job threads -c net.conf -o train.steps="$((step + 1))" -o train.evaluate_every=0 --run-dir unbroken
equal "one pipeline goes on, to the weights of a run without a break" "$(hash_of unbroken)" "$end"

# ---- bad input ----
refused "three ranks for two replicas" 78 "3 ranks .* 2 replicas" 3 \
    -c net.conf -o pipeline.replicas=2
refused "two replicas of one block" 78 "replicas=2: 2 .*train.gradient_groups = 1" 2 \
    -c net.conf -o pipeline.replicas=2 \
    -o train.gradient_groups=1
refused "three replicas" 78 "pipeline.replicas=3: .*3" 3 -c net.conf -o pipeline.replicas=3
refused "two ranks for each replica of one stage" 78 "4 ranks for 2 replicas of 1 stage; start at most" 4 \
    -c net.conf -o pipeline.replicas=2 -o pipeline.stages=1

# ---- what plans say ----
# says TEXT PATTERN OPTIONS...: in lines that are folded
says() {
    says_text=$1 says_what=$2 code=0; shift 2
    "$mpstaged" "$@" >"$aside/out" 2>"$aside/err" </dev/null || code=$?
    if cat "$aside/out" "$aside/err" | tr -s '\n ' '  ' | grep -qE -- "$says_what"; then ok "$says_text"
    else why; not_ok "$says_text: $code"; fi
}
says "micro-batches of all replicas" \
    'batch 11 in 6 micro-batches of 2 \(the last is smaller\), up to 2 on each of 4 replicas' \
    -c net.conf --plan -o pipeline.replicas=4
for schedule in interleaved zb-v; do
    says "$schedule where the last stage that others wait for is recomputed, and has no weights" 'no schedule of this' \
        -c thin.conf --plan -o pipeline.ranks=3 -o pipeline.replicas=2 -o pipeline.schedule=$schedule \
        -o pipeline.stages=6 -o pipeline.recompute=all
done
says "as JSON" '"micro_batches": 6,.* "replicas": 2,' -c net.conf --plan --json -o pipeline.replicas=2
says "memory that is missing, and all ranks that would do" \
    'rank 1 of each replica needs .* it would fit with .* 6 ranks with' \
    -c large.conf --plan -o pipeline.replicas=2 -o pipeline.stages=2 -o pipeline.max_memory=150MiB
says "sharing weights out among what would fit" \
    'rank 0 of each replica needs .* it would fit with pipeline.shard_optimizer = yes' \
    -c large.conf --plan -o pipeline.replicas=2 -o pipeline.max_memory=215MiB -o pipeline.shard_optimizer=no
"$mpstaged" -c "$here/../conf/resnet50.conf" -o model.network=resnet18 -o 'model.input={3,64,64}' --stages 1 \
    --partition uniform --batch-size 16 --split-size 4 -o pipeline.replicas=2 -o train.gradient_groups=2 --plan --json \
    >"$aside/out"
seconds() { sed -n "s/.*\"$1_seconds\": \([0-9.e-]*\).*/\1/p" "$aside/out" | head -n 1; }
check "what an exchange in shared memory takes of a rank is planned as less than forward passes" \
    awk "BEGIN { exit !(0 < $(seconds transfer) && $(seconds transfer) < $(seconds forward)) }"
cat >wide.graph <<'END'
graph wide
input input 3x32x32
labels labels class
conv = conv(input) channels=8 kernel=3 padding=1
pool = global_avg_pool(conv)
flat = flatten(pool)
fc = linear(flat) features=4
loss = softmax_cross_entropy(fc, labels)
loss loss
output fc
END
cat >wide.conf <<'END'
run      { device = "reference" }
model    { graph = "wide.graph" }
data     { source = "synthetic" }
train    { batch_size = 8  split_size = 4  steps = 1  gradient_groups = 2 }
pipeline { ranks = 2  replicas = 2 }
END
says "a search is for the ranks of all replicas, and its advice can be followed" \
    '^4 cores, batch 8, .* data parallelism on 4 devices is the fastest of these: mpirun -np 4 mpstaged -c best.conf ' \
    -c wide.conf --plan=search --write-config best.conf
step=$(sed -n 's/.*search: step \(.*s\) (.*/\1/p' best.conf)
says "what it writes is these replicas" " each of 4 replicas .* step ${step:-none}, " -c best.conf --plan
check "and what other bits come of" grep -q '^# gradient_groups was 2: results differ' best.conf
job 4 -c best.conf --run-dir best
check "and runs" [ "$code" -eq 0 ]
says "what cannot be had is said" 'data parallelism on 3 devices: ' \
    -c wide.conf --plan=search -o pipeline.ranks=3 -o pipeline.replicas=1
says "and no bits change where none have to" 'of these: mpirun -np 2 mpstaged .* batch norm in more. *$' \
    -c wide.conf --plan=search -o pipeline.ranks=1
tap_done
