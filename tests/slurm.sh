#!/bin/sh
# slurm.sh: conf/mpstaged.sbatch under a Slurm of its own: slurmctld and slurmd on this machine, in a scratch directory.
# Skipped aloud where they are not installed or do not start.
set -eu
. "$(dirname -- "$0")/mpi_lib.sh"
PATH=$PATH:/usr/sbin:/sbin
for p in slurmctld slurmd sbatch scontrol srun; do
    command -v $p >/dev/null || { echo "1..0 # SKIP no $p: apt-get install slurmctld slurmd"; exit 77; }
done
sample=$aside/mpstaged.sbatch
if [ "$mpi" = mpich ]; then sed 's/--mpi=pmix/--mpi=pmi2/'; else cat; fi <"${here%/*}/conf/mpstaged.sbatch" >"$sample"
unset NOTIFY_SOCKET

# ---- a Slurm ---------------------------------------------------------------------------------------------------------
slurm=$aside/slurm
mkdir -p "$slurm/state" "$slurm/spool"
port=$((20000 + $$ % 20000))
me=$(id -un) host=$(hostname -s)
cat >"$slurm/slurm.conf" <<END
ClusterName=test
SlurmctldHost=$host(127.0.0.1)
SlurmctldPort=$port
SlurmdPort=$((port + 1))
SlurmUser=$me
SlurmdUser=$me
AuthType=auth/none
CredType=cred/none
AuthInfo=cred_expire=5
MpiDefault=pmix
ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
JobAcctGatherType=jobacct_gather/none
SelectType=select/cons_tres
StateSaveLocation=$slurm/state
SlurmdSpoolDir=$slurm/spool
SlurmctldPidFile=$slurm/slurmctld.pid
SlurmdPidFile=$slurm/slurmd.pid
SlurmctldLogFile=$slurm/slurmctld.log
SlurmdLogFile=$slurm/slurmd.log
ReturnToService=2
SchedulerParameters=sched_interval=1
KillWait=5
NodeName=$host NodeAddr=127.0.0.1 CPUs=64 State=UNKNOWN
PartitionName=all Nodes=$host Default=YES MaxTime=INFINITE State=UP
END
sed -i 's/CPUs=64/CPUs='"$(nproc)"'/' "$slurm/slurm.conf"
export SLURM_CONF="$slurm/slurm.conf"
slurmctld -D -i >"$slurm/ctld.out" 2>&1 & ctld=$!
slurmd -D -N "$host" >"$slurm/d.out" 2>&1 & d=$!
trap 'kill $ctld $d 2>/dev/null || true; for p in $(ranks_alive); do kill -9 "$p" 2>/dev/null || true; done
    wait 2>/dev/null || true; rm -rf "$tmp" "$aside"' EXIT
for _ in $(seq 100); do ! sinfo -h -o %T 2>/dev/null | grep -qx idle || break; sleep 0.1; done
if ! sinfo -h -o %T 2>/dev/null | grep -qx idle; then
    cat "$slurm/"*.out "$slurm/"*.log | tail -20 | note
    echo "1..0 # SKIP Slurm does not start here"; exit 77
fi

# ---- jobs ------------------------------------------------------------------------------------------------------------
mkdir bin
ln -s "$build/mpstaged" "$build/mpstage-run" "$build/mpstagectl" bin/
PATH=$tmp/bin:$PATH
export PATH
write_conf long.conf 's/steps = 3/steps = 100000000/
    $a checkpoint { every_seconds = 1 }\nservice { log_every = 0 }'
# submit RUN OPTIONS...: sets $job, and waits for the third step
submit() {
    run=$1; shift
    job=$(sbatch --parsable --output="$run.log" --ntasks=2 "$@" "$sample" long.conf --run-dir "$run")
    for _ in $(seq 1000); do ! grep -qs '"step":3,' "$run/metrics.jsonl" || return 0; sleep 0.1; done
    { scontrol show job "$job"; cat "$run.log"; tail "$slurm/"*.log; } | note; not_ok "$run: a job begins to train"
}
field() { scontrol show job "$job" | tr ' ' '\n' | sed -n "s/^$1=//p" | head -1; }
# waits_for SECONDS COMMAND...
waits_for() { for _ in $(seq $((10 * $1))); do ! eval "$2" || return 0; sleep 0.1; done; return 1; }
resumes() { grep -c '"event":"resume"' "$run/metrics.jsonl" || true; }
tell() { { cat "$run.log"; scontrol show job "$job"; tail -n 20 "$slurm/slurmctld.log" "$slurm/slurmd.log"; } | note; }
# Slurm lets a job that was queued again wait for some minutes. Before its last start is wholly over it must not be
# hurried: the end of that start, told late, would be taken for the end of the next.
over() { ! pgrep -f "^slurmstepd: \\[$job\\." >/dev/null; }
hurry() { ! over || scontrol update JobId="$job" StartTime=now 2>/dev/null || true; }

submit limit --time=1 --signal=USR1@45
if waits_for 75 '[ "$(field Restarts)" = 1 ]'; then
    ok "before its time is over a job saves, ends with 75 and is queued again"
else tell; not_ok "before its time is over a job is queued again"; fi
check "a job has no comment by itself" [ "$(scontrol show job "$job" | grep -c Comment=)" -eq 0 ]
check "with a checkpoint" [ -n "$(find limit/checkpoints -name 'step-*[0-9]')" ]
waits_for 30 over || true
sleep 1
if waits_for 60 'hurry; [ "$(resumes)" -ge 1 ]'; then ok "and goes on from its checkpoint"
else tell; not_ok "and goes on from its checkpoint"; fi
if waits_for 20 'grep -qs "\"step\"" limit/metrics.jsonl && mpstagectl limit stop --wait >/dev/null 2>&1'; then
    waits_for 20 '[ "$(field JobState)" != RUNNING ]' || true
fi
check "a run that is done is a job that is completed: $(field JobState)" [ "$(field JobState)" = COMPLETED ]

submit lost --time=5 --export=ALL,MPSTAGED_COMMENT=1
waits_for 20 'scontrol show job "$job" | grep -q "Comment=.*step [0-9]"' || true
check "the job's comment has the step, if that is asked for" \
    sh -c 'scontrol show job "$0" | grep -q "Comment=.*step [0-9]"' "$job"
before=$(resumes)
kill -KILL "$(ranks_alive | tail -1)"
if waits_for 40 '[ "$(resumes)" -gt "$before" ]'; then ok "a rank that is lost is started again within the job"
else tell; not_ok "a rank that is lost is started again within the job"; fi
check "which is not queued again" [ "$(field Restarts)$(field JobState)" = 0RUNNING ]
sleep 1
scancel "$job"
waits_for 20 '[ "$(field JobState)" = CANCELLED ]' || true
check "a job that is cancelled is not queued again: $(field JobState)" \
    [ "$(field Restarts)$(field JobState)" = 0CANCELLED ]
waits_for 10 '[ -z "$(ranks_alive)" ]' || true
check "nobody is left" nobody_left

tap_done
