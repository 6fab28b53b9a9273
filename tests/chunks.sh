#!/bin/sh
# chunks.sh: several stages a rank, and W put off, under mpirun and as threads: the bits of one stage, also of a run
# that is resumed with other numbers of ranks, stages and another schedule; rows that say which rank has which stage;
# what is refused. LONG=1 in the environment: every schedule on every number of ranks and stages.
set -eu
. "$(dirname -- "$0")/mpi_lib.sh"

cat >net.conf <<'END'
run      { name = "net"  seed = 5 }
model    { network = "mlp"  input = {12}  hidden = {16, 16, 16, 16, 16, 16, 16}  classes = 5  dropout = 0.2 }
data     { source = "synthetic"  labels = "class"  samples = 50  test_samples = 21  shuffle = yes }
train    { batch_size = 20  split_size = 3  steps = 6  optimizer = "adamw"  learning_rate = 0.01  clip_norm = 1 }
pipeline { partition = "uniform" }
END
# threads NAME RANKS OPTIONS...: as trains, without mpirun
threads() {
    threads_name=$1 threads_ranks=$2 code=0; shift 2
    "$mpstaged" --transport local "$@" -o pipeline.ranks="$threads_ranks" --run-dir "$threads_name" >"$aside/out" \
        2>"$aside/err" </dev/null || code=$?
    hash=$(hash_of "$threads_name" 2>/dev/null || true)
    if [ "$code" -eq 0 ] && [ -n "$hash" ]; then ok "$threads_name trains"; else why; not_ok "$threads_name: $code"; fi
}
threads one 1 -c net.conf --stages 1
one=$hash
# same HOW SCHEDULE RANKS STAGES OPTIONS...
n=0
same() {
    same_how=$1 same_schedule=$2 same_ranks=$3 same_stages=$4 n=$((n + 1)); shift 4
    "$same_how" "$n-$same_how-$same_schedule-$same_ranks-$same_stages" "$same_ranks" -c net.conf \
        --schedule "$same_schedule" --stages "$same_stages" "$@"
    equal "$same_schedule, $same_stages stages on $same_ranks ranks, $same_how $*: the bits of one" "$one" "$hash"
}
if [ -n "${LONG:-}" ]; then
    for how in threads trains; do for ranks in 1 2 4; do for chunks in 1 2 4; do
        [ $((ranks * chunks)) -le 8 ] || continue
        for schedule in naive gpipe 1f1b interleaved breadth-first zb-h1 zb-v auto; do
            same $how $schedule $ranks $((ranks * chunks))
        done
    done; done; done
fi
same trains interleaved 2 4
same trains zb-v 2 4 -o pipeline.recompute=all
same trains auto 2 8
same trains breadth-first 2 8 -o pipeline.recompute=all
same trains zb-h1 3 3 -o pipeline.in_flight=5
same threads zb-v 4 8
same threads zb-h1 2 4

# ---- rows that say where stages are ----------------------------------------------------------------------------------
cat >two.rows <<'END'
rank 0: 0F0 0F1 3F0 3B0 3W0 3F1 3B1 3W1 0B0 0W0 0B1 0W1
rank 1: 1F0 1F1 2F0 2F1 2B0 1B0 1W0 2W0 2B1 1B1 1W1 2W1
END
rows="-c net.conf --steps 3 --batch-size 20 --split-size 10 -o pipeline.schedule=rows"
threads rows-one 1 -c net.conf --steps 3 --split-size 10 --stages 1
one=$hash
trains rows 2 $rows -o pipeline.rows=two.rows
equal "rows of four stages on two ranks: the bits of one" "$one" "$hash"
check "as the manual has them" grep -q '^rank 1: 1F0 1F1 2F0 2F1 2B0 1B0 1W0 2W0 2B1 1B1 1W1 2W1$' \
    "$here/../man/mpstaged-schedule.5.in"
check "stages are where the rows say" sh -c \
    "\"$mpstaged\" $rows -o pipeline.rows=two.rows -o pipeline.ranks=2 --plan | grep -qE '^ +3 +0 +'"

# ---- resumed with other numbers --------------------------------------------------------------------------------------
threads whole 1 -c net.conf --stages 1 -o checkpoint.every_steps=2
whole=$hash
trains part 2 -c net.conf --schedule zb-v --stages 4 -o checkpoint.every_steps=2 -o checkpoint.keep=9
rm -rf part/checkpoints/step-00000006 part/checkpoints/step-00000004
for other in "interleaved 2 8" "1f1b 4 4" "auto 1 1" "zb-v 4 8"; do
    set -- $other
    rm -rf again; cp -r part again
    job "$2" -c net.conf --schedule "$1" --stages "$3" -o checkpoint.every_steps=2 --run-dir again --resume
    equal "from zb-v, 4 stages on 2 ranks, on under $1, $3 on $2: the bits of a run without a break" "$whole" \
        "$(hash_of again | tail -n 1)"
done

# ---- what is refused -------------------------------------------------------------------------------------------------
# refused TEXT PATTERN OPTIONS...
refused() {
    refused_text=$1 refused_what=$2 code=0; shift 2
    "$mpstaged" -c net.conf --transport local --run-dir refused "$@" >"$aside/out" 2>"$aside/err" </dev/null || code=$?
    if [ "$code" -eq 78 ] && [ "$(said_lines)" -eq 1 ] && grep -qE "$refused_what" "$aside/err" &&
        [ ! -e refused ]; then ok "$refused_text is refused"
    else why; not_ok "$refused_text is refused: $code"; fi
}
refused "an odd number of stages" 'stages: 3 stages on 2 ranks: .*"zb-v"' \
    --schedule zb-v --stages 3 -o pipeline.ranks=2
refused "more stages than layers" '64 stages, but this network can be cut into' --schedule interleaved --stages 64 \
    -o pipeline.ranks=2
refused "a stage without layers" 'partition: "sequential" leaves no layers for stage 1 of 4' --schedule zb-v \
    --stages 4 -o pipeline.ranks=2 --partition sequential -o pipeline.max_memory=1GB
refused "more in flight than there is memory for" 'rank 0 needs .* it would fit with .*pipeline.in_flight = ' \
    --schedule gpipe --stages 2 -o pipeline.in_flight=6 -o pipeline.max_memory="$("$mpstaged" -c net.conf --stages 2 \
    --schedule gpipe -o pipeline.in_flight=3 --plan --json | sed -n 's/ *"peak_bytes": \([0-9]*\),*/\1/p' | sort -n |
    tail -n 1)"
sed 's/3F1/7F1/' two.rows >seven.rows
refused "rows of a stage that no row has all of" 'rows: .* has actions of stage 7, but none of stage 4' \
    --split-size 10 --schedule rows -o pipeline.rows=seven.rows -o pipeline.ranks=2
refused "rows of more stages than are wanted" 'rows: .* has actions of 4 stages, but there are 3' \
    --split-size 10 --schedule rows -o pipeline.rows=two.rows -o pipeline.ranks=2 --stages 3
refused "no micro-batch in flight" 'in_flight=0: 0 is not in 1 to' -o pipeline.in_flight=0
tap_done
