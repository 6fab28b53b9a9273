#!/bin/sh
# launchers.sh: what the environment says of ranks against what MPI says. Launchers of another MPI, and srun without
# PMIx, start processes that do not find each other: each is refused, in one line, and makes nothing. What a batch
# script or a shell of a job has left over is said.
set -eu
. "$(dirname -- "$0")/mpi_lib.sh"
for name in $(env | sed -n 's/^\(SLURM_[A-Z_]*\|PMIX*_[A-Z]*\)=.*/\1/p'); do unset "$name"; done
write_conf toy.conf
runs="$mpstaged -c toy.conf --progress no --run-dir run"

# alone TEXT PATTERN VARIABLES COMMAND...: 78, one line of the program's with the pattern, nothing made
alone() {
    text=$1 pattern=$2 variables=$3 code=0; shift 3
    find . | LC_ALL=C sort >"$aside/before"
    env $variables timeout -s KILL 60 "$@" >"$aside/out" 2>"$aside/err" </dev/null || code=$?
    find . | LC_ALL=C sort >"$aside/after"
    if [ "$code $(grep -c '^mpstage[a-z-]*: ' "$aside/err")" = "78 1" ] && grep -q -- "$pattern" "$aside/err" &&
        cmp -s "$aside/before" "$aside/after"; then ok "$text: 78"
    else why; not_ok "$text: $code"; fi
}
# both LAUNCHER SIZE RANK MORE: processes 0 and 1 of 2
both() {
    for i in 0 1; do
        alone "$1, process $i" "$1.* has started 2 processes ($2), but .* finds one" "$2=2 $3=$i ${4:-}" $runs
    done
}
both "Hydra" PMI_SIZE PMI_RANK
both "Hydra" MPI_LOCALNRANKS MPI_LOCALRANKID
both "Slurm's srun" SLURM_STEP_NUM_TASKS SLURM_PROCID "SLURM_JOB_ID=1 SLURM_STEP_ID=0 SLURM_NTASKS=2"
both "Slurm's srun" SLURM_STEP_NUM_TASKS SLURM_PROCID
both "Slurm's srun" SLURM_NTASKS SLURM_PROCID "SLURM_JOB_ID=1 SLURM_STEP_ID=0"
both "MVAPICH's mpirun_rsh" MV2_COMM_WORLD_SIZE MV2_COMM_WORLD_RANK
both "Flux" FLUX_JOB_SIZE FLUX_TASK_RANK
both "jsrun" JSM_NAMESPACE_SIZE JSM_NAMESPACE_RANK
both "PALS" PALS_SIZE PALS_RANKID
both "torchrun" WORLD_SIZE RANK TORCHELASTIC_RUN_ID=x
both "Open MPI's mpirun" OMPI_COMM_WORLD_SIZE OMPI_COMM_WORLD_RANK
alone "a rank without a size" "at least 3 processes (PMI_RANK)" PMI_RANK=2 $runs

# ---- every program and mode that trains, or uses what was trained ----------------------------------------------------
two="PMI_SIZE=2 PMI_RANK=1"
$runs >"$aside/out" 2>&1
mv run first
alone "--evaluate" "has started 2" "$two" $runs --evaluate --init-from first -o data.test_samples=20
alone "--predict" "has started 2" "$two" $runs --predict p.csv --init-from first -o data.test_samples=20
alone "--profile" "has started 2" "$two" $runs --profile
alone "--resume" "has started 2" "$two" $runs --resume
alone "transport = mpi" "has started 2" "$two" $runs --transport mpi
alone "mpstage-run" "start mpstage-run once" "$two" "$build/mpstage-run" -- $runs
alone "mpstage-experiment" "start mpstage-experiment once" "$two" \
    "$build/mpstage-experiment" -c toy.conf --out out
alone "the command of mpstage-run" "has started 2" "" "$build/mpstage-run" -- env $two $runs
code=0
mpirun_n 2 "$build/mpstage-run" -- $runs >"$aside/out" 2>"$aside/err" </dev/null || code=$?
check "mpstage-run by mpirun -np 2 ($code)" [ "$code" -ne 0 -a ! -e run ]

# ---- one process, and what is left over ------------------------------------------------------------------------------
# trains_with TEXT NOTES VARIABLES COMMAND...: it trains, with that many notes of variables
trains_with() {
    text=$1 notes=$2 variables=$3 code=0; shift 3
    env $variables timeout -s KILL 60 "$@" >"$aside/out" 2>"$aside/err" </dev/null || code=$?
    if [ "$code $(grep -c "note: .*and this run has [0-9]* rank" "$aside/err")" = "0 $notes" ] &&
        [ -s run/weights.safetensors ]; then ok "$text: trains, $notes notes"
    else why; not_ok "$text: $code"; fi
    rm -rf run
}
task="SLURM_JOB_ID=1 SLURM_NTASKS=4 SLURM_PROCID=0"
trains_with "mpiexec.hydra -n 1" 0 "PMI_SIZE=1 PMI_RANK=0 MPI_LOCALNRANKS=1 MPI_LOCALRANKID=0" $runs
trains_with "srun -n 1" 0 "SLURM_STEP_NUM_TASKS=1 SLURM_PROCID=0 SLURM_STEP_ID=0" $runs
trains_with "a shell of salloc -n 4" 1 "SLURM_JOB_ID=1 SLURM_NTASKS=4" $runs
trains_with "a batch script of sbatch -n 4" 1 "$task" $runs
trains_with "a batch step" 2 "$task SLURM_STEP_ID=4294967291 SLURM_STEP_NUM_TASKS=4" $runs
trains_with "an interactive step" 1 "$task SLURM_STEP_ID=4294967290 SLURM_STEP_NUM_TASKS=1" $runs
trains_with "a shell of srun -n 4 --pty" 2 "$task SLURM_STEP_ID=0 SLURM_STEP_NUM_TASKS=4 SLURM_PTY_PORT=4711" $runs
by_mpirun() {
    text=$1 notes=$2 variables=$3
    trains_with "$text" "$notes" "$variables" "$MPIRUN" $mpi_options -np "$4" $runs
}
if [ "$mpi" = mpich ]; then shell="OMPI_COMM_WORLD_SIZE=4 OMPI_COMM_WORLD_RANK=0"
    other=${OPENMPI:-mpirun.openmpi} others="Open MPI" options="--oversubscribe --allow-run-as-root"
else shell="PMI_SIZE=4 PMI_RANK=0" other=${HYDRA:-mpiexec.hydra} others=Hydra options=; fi
by_mpirun "mpirun -np 2 in a shell of another MPI's" 1 "$shell" 2
by_mpirun "mpirun -np 1 in a shell of another MPI's" 1 "$shell" 1
by_mpirun "mpirun -np 2 with another job's WORLD_SIZE" 0 "WORLD_SIZE=8 RANK=3" 2

# ---- the launcher of the other MPI -----------------------------------------------------------------------------------
if command -v "$other" >/dev/null; then
    code=0
    timeout -s KILL 60 "$other" $options -np 3 $runs >"$aside/out" 2>"$aside/err" </dev/null || code=$?
    refusals=$(cat "$aside/out" "$aside/err" | grep -c "$others.* has started 3 processes" || true)
    check "$other -np 3: $refusals of them refuse, $code" [ "$code" -eq 78 -a "$refusals" -ge 1 ]
    check "and nothing is made" [ ! -e run ]
    trains_with "$other -np 1" 0 "" "$other" $options -np 1 $runs
else skip "the launcher of the other MPI" "apt-get install mpich openmpi-bin, or HYDRA=PATH or OPENMPI=PATH"; fi
nobody_left || not_ok "a rank is alive"
tap_done
