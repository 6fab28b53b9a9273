#!/bin/sh
# mpi_train.sh: whole runs under mpirun with one, two and four ranks: same weights, sound metrics,
# evaluation, starting weights.
set -eu
. "$(dirname -- "$0")/mpi_lib.sh"
write_conf toy.conf

trains np1 1 -c toy.conf --stages 1
one=$hash
if command -v xxh128sum >/dev/null; then equal "weights_hash is the file's xxh128sum" "$one" \
    "$(xxh128sum np1/weights.safetensors 2>/dev/null | cut -d' ' -f1)"
else skip "weights_hash is the file's xxh128sum" "apt-get install xxhash"; fi
for schedule in naive gpipe 1f1b; do
    trains np2-$schedule 2 -c toy.conf --schedule $schedule
    equal "two ranks, $schedule: the weights of one" "$one" "$hash"
done
trains np1-of-2 1 -c toy.conf
equal "two stages on one rank: the same weights" "$one" "$hash"
trains np2-of-3 2 -c toy.conf --stages 3
equal "three stages on two ranks: the same weights" "$one" "$hash"
if [ -n "${OTHER_BUILD:-}" ]; then
    own_mpstaged=$mpstaged own_mpirun=$MPIRUN
    mpstaged=$OTHER_BUILD/mpstaged MPIRUN=$(sed -n 's/^MPIRUN = //p' "$OTHER_BUILD/Makefile"); mpi_find
    trains "by-$mpi" 2 -c toy.conf
    equal "$("$mpstaged" --version | sed -n 's/^MPI: //p'): the weights of one" "$one" "$hash"
    mpstaged=$own_mpstaged MPIRUN=$own_mpirun; mpi_find
else skip "the weights of another MPI library" "OTHER_BUILD=FOLDER, a build with it"; fi
mlp='-o model.network=mlp -o model.hidden={16,16,16} -o model.dropout=0.1'
# shellcheck disable=SC2086
for ranks in 1 2 4; do
    trains mlp-np$ranks $ranks -c toy.conf $mlp --stages $ranks --steps 5
    [ $ranks -eq 1 ] && mlp_one=$hash || equal "MLP with dropout on $ranks ranks: the weights of one" "$mlp_one" "$hash"
done
# shellcheck disable=SC2086
{ "$mpstaged" -c toy.conf $mlp --stages 4 --steps 5 --transport local --run-dir threads \
    >"$aside/out" 2>"$aside/err" || true; }
equal "four threads of one process: the same weights" "$mlp_one" "$(hash_of threads)"
for ranks in 1 2 4; do
    # shellcheck disable=SC2086
    trains adamw-np$ranks $ranks -c toy.conf $mlp --stages $ranks --steps 5 -o train.optimizer=adamw
    [ $ranks -eq 1 ] && adamw_one=$hash || equal "AdamW on $ranks ranks: the weights of one" "$adamw_one" "$hash"
done
trains seed 2 -c toy.conf --seed 2
if [ "$hash" != "$one" ]; then ok "another seed gives other weights"; else not_ok "another seed gives other weights"; fi
trains split 2 -c toy.conf --split-size 7
if [ "$hash" != "$one" ]; then ok "another split size gives other weights"
else not_ok "another split size gives other weights"; fi

# ---- metrics ---------------------------------------------------------------------------------------------------------
m=np2-1f1b/metrics.jsonl
check "metrics: start, three steps, account, done" [ "$(sed 's/^{"event":"\([a-z]*\)".*/\1/' $m | tr '\n' ' ' |
    sed 's/evaluation //g')" = "start step step step account done " ]
check "the done line repeats no key of a step" \
    sh -c '! grep "\"event\":\"done\"" '$m' | grep -qE "\"(step|loss|samples|lr|epoch|accuracy|step_seconds)\":"'
# Nanoseconds are printed exactly, so the parts must add up exactly.
sed -n '/"event":"step"/p' $m | tr '{' '\n' | awk -F'[,:}]' '
    function ns(s) { split(s, p, "."); return p[1] * 1000000000 + p[2] }
    /"event":"step"/ { for (i = 1; i < NF; i++) if ($i == "\"step_seconds\"") whole = ns($(i + 1)) }
    /^"stage":/ { sum = 0
        for (i = 1; i < NF; i++) if ($i ~ /_seconds"$/) sum += ns($(i + 1))
        n++; if (sum != whole) bad++ }
    END { print n + 0, bad + 0 }' >"$aside/sums"
equal "the times of each stage add up to step_seconds" "6 0" "$(cat "$aside/sums")"
losses() { sed -n 's/.*"event":"step".*"loss_bits":"\([^"]*\)".*/\1/p' "$1/metrics.jsonl" | tr '\n' ' '; }
equal "one and two ranks print the same losses" "$(losses np1)" "$(losses np2-1f1b)"

# ---- epochs, evaluation, starting weights ----------------------------------------------------------------------------
write_conf epochs.conf 's/steps = 3/epochs = 2  evaluate_every = 4/; s/samples = 200/samples = 50  test_samples = 33/'
trains epochs 2 -c epochs.conf
equal "50 samples in batches of 20, two epochs: six steps" "20 20 10 20 20 10 " \
    "$(sed -n 's/.*"event":"step".*"samples":\([0-9]*\),"step_s.*/\1/p' epochs/metrics.jsonl | tr '\n' ' ')"
equal "evaluations after step 4 and at the end, of all 33 samples" "4/33 6/33 " \
    "$(sed -n 's/.*"event":"evaluation","step":\([0-9]*\),.*"samples":\([0-9]*\).*/\1\/\2/p' \
    epochs/metrics.jsonl | tr '\n' ' ')"
trains epochs-each 2 -c epochs.conf -o train.evaluate_every=0 -o train.evaluate_epochs=1
equal "evaluations behind each epoch" "3/33 6/33 " \
    "$(sed -n 's/.*"event":"evaluation","step":\([0-9]*\),.*"samples":\([0-9]*\).*/\1\/\2/p' \
    epochs-each/metrics.jsonl | tr '\n' ' ')"
trains epochs-only 2 -c epochs.conf -o train.evaluate=no
check "train.evaluate = no: no evaluation, and the same weights" \
    sh -c '! grep -q "\"event\":\"evaluation\"" epochs-only/metrics.jsonl && [ "$0" = "$1" ]' \
    "$hash" "$(hash_of epochs)"
trains epochs-one 1 -c epochs.conf --stages 1
equal "one rank: the same weights" "$(hash_of epochs)" "$hash"
# Two micro-batches of 8 and one of 4 a batch, but the last one of an epoch has 10 samples: its rows lack micro-batch 2.
# Evaluation needs no rows.
printf 'rank 0: 0F0 0F1 0F2 0B0 0W0 0B1 0B2 0W1 0W2\nrank 1: 1F0 1B0 1F1 1W0 1B1 1F2 1B2 1W1 1W2\n' >short.rows
trains epochs-rows 2 -c epochs.conf -o pipeline.schedule=rows -o pipeline.rows=short.rows
equal "a schedule file serves the short last batch, too: the same weights" "$(hash_of epochs)" "$hash"
job 2 -c epochs.conf --evaluate --init-from epochs/weights.safetensors --run-dir evaluated
last_bits() { sed -n 's/.*"event":"evaluation".*"loss_bits":"\([^"]*\)".*/\1/p' "$1/metrics.jsonl" | tail -1; }
equal "--evaluate of the final weights: the same loss" "$(last_bits epochs)" "$(last_bits evaluated)"
check "--evaluate writes no weights" [ ! -e evaluated/weights.safetensors ]
trains from-run 2 -c toy.conf --steps 1 -o train.learning_rate=0 --init-from np1
equal "weights from a run directory, not changed" "$one" "$hash"
check "the log says which weights of a run it takes" \
    grep -qF 'weights: np1/weights.safetensors (final' from-run/mpstaged.log
trains again 2 -c toy.conf --steps 1 -o train.learning_rate=0 --init-from np1/weights.safetensors
equal "weights that are loaded and not changed are written as they were" "$one" "$hash"
# The same weights as somebody else may bring them: halves, and every name behind a wrapper's.
cat >"$aside/halve.py" <<'EOF'
import json, struct, sys
raw = open(sys.argv[1], "rb").read()
n = struct.unpack("<Q", raw[:8])[0]
header, parts, rounded, at = json.loads(raw[8:8 + n]), [], bytearray(raw), 0
header.pop("__metadata__")
for name, t in header.items():
    begin, end = (8 + n + x for x in t["data_offsets"])
    count = (end - begin) // 4
    half = struct.pack(f"<{count}e", *struct.unpack(f"<{count}f", raw[begin:end]))
    rounded[begin:end] = struct.pack(f"<{count}f", *struct.unpack(f"<{count}e", half))
    parts.append(half)
    t["dtype"], t["data_offsets"], at = "F16", [at, at + len(half)], at + len(half)
text = json.dumps({"module." + name: t for name, t in header.items()}).encode()
open(sys.argv[2], "wb").write(struct.pack("<Q", len(text)) + text + b"".join(parts))
open(sys.argv[3], "wb").write(rounded)
EOF
if command -v python3 >/dev/null; then
    python3 "$aside/halve.py" np1/weights.safetensors half.safetensors rounded.safetensors
    trains halves 2 -c toy.conf --steps 1 -o train.learning_rate=0 --init-from half.safetensors
    check "halves behind module. are taken as the floats they are" \
        sh -c '[ "$(cksum <"$0")" = "$(cksum <"$1")" ]' halves/weights.safetensors rounded.safetensors
else skip "halves behind module. are taken as the floats they are" "no python3"; fi
# File names: only rank 0 knows the variables, and all ranks read the graph and the weights.
cat >"$aside/wrapped" <<'EOF'
#!/bin/sh
[ "${OMPI_COMM_WORLD_RANK:-${PMI_RANK:-0}}" = 0 ] || { unset PLACE; HOME=/; }    # Open MPI 5.0 needs a HOME
exec "$@"
EOF
chmod +x "$aside/wrapped"
mkdir place
"$mpstaged" -c toy.conf --print-graph >place/net.txt
write_conf named.conf 's/network = "toy"  classes = 5  input = {10}/graph = ${PLACE}\/net.txt/'
real_mpstaged=$mpstaged mpstaged=$aside/wrapped
PLACE=$tmp/place HOME=$tmp job 2 "$real_mpstaged" -c named.conf --run-dir '~/named' --steps 1 \
    -o train.learning_rate=0 --init-from '~/np1'
mpstaged=$real_mpstaged
[ "$code" -eq 0 ] || why
equal "~ and variables in file names, as rank 0 has them" "0$one" "$code$(hash_of named)"
PLACE='' && unset PLACE
job 2 -c named.conf --run-dir unset
check "a variable that is not set: 78, and nothing is created" \
    [ "$code$(grep -c '^mpstaged: named.conf:2: model.graph: the variable PLACE is not set' \
    "$aside/err")$(ls unset 2>&1 | grep -c 'No such')" = 7811 ]

# ---- somebody else on a rank's core ----------------------------------------------------------------------------------
# bound OPTIONS...: one rank, bound by mpirun to its first core
bound() { "$MPIRUN" ${mpi_options%--bind-to none} -np 1 --bind-to core "$@"; }
core=$(bound sed -n 's/^Cpus_allowed_list:[^0-9]*\([0-9]*\).*/\1/p' /proc/self/status 2>/dev/null </dev/null || true)
if command -v taskset >/dev/null && [ -n "$core" ] && [ "$(nproc)" -gt 1 ]; then
    taskset -c "$core" sh -c 'while :; do :; done' & hog=$!
    bound "$mpstaged" -c toy.conf --stages 1 --run-dir hog >"$aside/out" 2>"$aside/err" </dev/null || why
    kill $hog; wait $hog 2>/dev/null || true
    grep ' note: ' hog/mpstaged.log | note
    # Which of the two depends on what else runs on this machine.
    check "another program on a rank's core is found" grep -qE \
        -e ' note: rank 0 is bound to cores where other programs run .*: use mpirun --bind-to none' \
        -e ' note: this machine is busy: other programs take ' hog/mpstaged.log
else skip "another program on a rank's core is found" "no taskset(1), no mpirun that binds, or a single core"; fi
check "nobody is left" nobody_left
tap_done
