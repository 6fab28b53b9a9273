#!/bin/sh
# hosts.sh: mpirun over ssh between two hosts: namespaces with addresses, names, processes, shared memory and files of
# their own, joined by a cable that can be cut, and a folder that both share. Runs there have the bits of one host, also
# over a network that delays and loses; what one host lacks is named with the host; ranks that lie badly are told. Then
# the cable is cut: the rank that is not heard of any more is named, all ranks end, mpstage-run ends mpirun, which would
# wait for the other host for ever, and goes on when the cable is there again. It needs root. LIMIT: run.hang_timeout;
# SSHD: which server.
set -eu
. "$(dirname -- "$0")/mpi_lib.sh"
unset OMPI_MCA_orte_tmpdir_base PRTE_MCA_prte_tmpdir_base   # the other host has no such folder
leave_out() { skip "runs on two hosts" "NOT TRIED: $1"; tap_done; }
PATH=$PATH:/usr/sbin:/sbin
[ "$(id -u)" -eq 0 ] || leave_out "this is not root"
for p in ip unshare nsenter ssh; do command -v $p >/dev/null || leave_out "there is no $p"; done
sshd=${SSHD:-$(command -v sshd || command -v dropbear)} || leave_out "no server of ssh: apt-get install dropbear-bin"
LIMIT=${LIMIT:-2}

# ---- two hosts -------------------------------------------------------------------------------------------------------
# Their processes end with the first one of each, which ends with this script: then nobody holds `alive` open.
mkdir "$aside/near" "$aside/far" "$aside/shared" "$aside/home" "$aside/home/.ssh"
mkfifo "$aside/alive"
sed "s|^\(root:.*\):[^:]*:[^:]*\$|\1:$aside/home:/bin/sh|" /etc/passwd >"$aside/passwd"
cat >"$aside/begin" <<END
set -e
hostname "mps\$1"
mount -t tmpfs none /dev/shm
mount -t sysfs none /sys                                 # UCX looks for network devices there
mount --bind "$aside/passwd" /etc/passwd
mount --bind "$aside/\$1" "$tmp"
mkdir "$tmp/shared" "$tmp/tmp" "$tmp/run.sshd"
mount --bind "$aside/shared" "$tmp/shared"
[ ! -d /run/sshd ] || mount --bind "$tmp/run.sshd" /run/sshd
ip link set lo up
ip link add docker0 type dummy && ip addr add 172.17.0.1/16 dev docker0 && ip link set docker0 up
: >"$aside/\$1.up"
cat "$aside/alive" >/dev/null
END
# In a chroot, whose root is no mount, mounts cannot be kept to a namespace unless they are anyway.
private=
if ! unshare -m true 2>/dev/null; then
    private='--propagation unchanged'
    mkdir "$aside/mount"
    # shellcheck disable=SC2086
    unshare -m $private mount -t tmpfs none "$aside/mount" 2>"$aside/err" || leave_out "$(tail -n 1 "$aside/err")"
    if mountpoint -q "$aside/mount"; then
        umount "$aside/mount"
        leave_out "what is mounted in a namespace is seen outside of it"
    fi
fi
host_begin() {
    # shellcheck disable=SC2086
    unshare -n -u -i -p -m $private -f --kill-child --mount-proc sh "$aside/begin" "$1" 2>"$aside/$1.err" &
    outer="$outer $!"
}
outer= lossy=
trap 'exec 3>&-; kill -9 $outer $lossy 2>/dev/null || true; wait 2>/dev/null || true; rm -rf "$tmp" "$aside"' EXIT
host_begin near
host_begin far
exec 3<>"$aside/alive"
for _ in $(seq 200); do
    [ ! -e "$aside/near.up" ] || [ ! -e "$aside/far.up" ] || break
    sleep 0.05
done
[ -e "$aside/near.up" ] && [ -e "$aside/far.up" ] ||
    leave_out "no namespaces: $(cat "$aside/near.err" "$aside/far.err" | tail -n 1)"
# shellcheck disable=SC2086
set -- $outer
near=$(pgrep -P "$1") far=$(pgrep -P "$2")
# host near|far COMMAND...: runs it there
host() {
    case $1 in near) at=$near ;; far) at=$far ;; esac
    shift
    nsenter -t "$at" -m -u -i -n -p -r sh -c 'cd "$0" && exec "$@"' "$tmp" "$@" 3>&-
}
nsenter -t "$near" -n ip link add cable type veth peer name cable netns "$far" 2>"$aside/err" ||
    leave_out "$(tail -n 1 "$aside/err")"
host near sh -c 'ip addr add 10.87.3.1/24 dev cable && ip link set cable up'
host far sh -c 'ip addr add 10.87.3.2/24 dev cable && ip link set cable up'
for h in near far; do                                    # until then UCX does not see it
    until host $h ip link show cable | grep -q 'state UP'; do sleep 0.05; done
done

# ---- ssh -------------------------------------------------------------------------------------------------------------
# mpirun's words go to a shell that has the variables which a site would set for all logins.
cat >"$aside/agent" <<END
#!/bin/sh
[ "\$1" != -x ] || shift
to=\$1; shift
exec ssh -F "$aside/ssh" "\$to" "export TMPDIR='$tmp/tmp' HWLOC_COMPONENTS=-gl; \$*"
END
cat >"$aside/ssh" <<END
Host *
  IdentityFile "$aside/key"
  IdentitiesOnly yes
  UserKnownHostsFile "$aside/known"
  GlobalKnownHostsFile /dev/null
  StrictHostKeyChecking yes
  BatchMode yes
END
chmod +x "$aside/agent"
ssh-keygen -q -t ed25519 -N '' -f "$aside/key"
cp "$aside/key.pub" "$aside/home/.ssh/authorized_keys"
case $sshd in
    */sshd)
        ssh-keygen -q -t ed25519 -N '' -f "$aside/host"
        cat >"$aside/sshd" <<END
ListenAddress 0.0.0.0
HostKey "$aside/host"
AuthorizedKeysFile "$aside/home/.ssh/authorized_keys"
PidFile none
StrictModes no
UsePAM no
PasswordAuthentication no
END
        [ -d /run/sshd ] || host far mkdir -p /run/sshd
        host far "$sshd" -f "$aside/sshd" -E "$aside/sshd.log" ;;
    *)
        dropbearkey -t ed25519 -f "$aside/host" >"$aside/host.pub.all"
        grep '^ssh-' "$aside/host.pub.all" >"$aside/host.pub"
        host far "$sshd" -s -r "$aside/host" -p 22 -P "$tmp/tmp/pid" 2>"$aside/sshd.log" ;;
esac
echo "10.87.3.2,10.87.4.2 $(cut -d ' ' -f 1,2 "$aside/host.pub")" >"$aside/known"
if [ "$(host near "$aside/agent" 10.87.3.2 hostname 2>"$aside/err" </dev/null)" != mpsfar ]; then
    cat "$aside/sshd.log" "$aside/err" | note
    leave_out "ssh from one to the other: $(tail -n 1 "$aside/err")"
fi

# ---- jobs ------------------------------------------------------------------------------------------------------------
export TMPDIR="$tmp/tmp" OMPI_MCA_odls_base_sigkill_timeout=0   # Open MPI 4.1 ends failed jobs two seconds sooner
net=10.87.3 cable=cable
lan() { echo "--mca oob_tcp_if_include $net.0/24 --mca btl_tcp_if_include $net.0/24"; }
# on_hosts RANKS: sets $options of mpirun, and $variables. UCX takes namespaces of one machine for one host.
on_hosts() {
    slots=$(($1 / 2))
    if [ "$mpi" = mpich ]; then
        variables="UCX_TLS=tcp,self UCX_NET_DEVICES=$cable"
        [ $by = slot ] || slots=1
        printf '%s\n' "$net.1:$slots" "$net.2:$slots" >"$aside/near/hosts"
        options="-launcher ssh -launcher-exec $aside/agent -iface $cable -f hosts"
    else
        variables=
        printf '%s\n' "$net.1 slots=$slots" "$net.2 slots=$slots" >"$aside/near/hosts"
        options="--allow-run-as-root --bind-to none --mca plm_rsh_agent $aside/agent $(lan) --map-by $by
            --hostfile hosts"
    fi
}
# hosts_mpirun RANKS OPTIONS...: on both hosts; $under, $before: what starts mpirun and mpstaged, if anything
by=slot under= before=
hosts_mpirun() {
    n=$1; shift
    on_hosts "$n"
    # shellcheck disable=SC2086
    host near env $variables $under "$MPIRUN" $options -np "$n" $before "$mpstaged" "$@" \
        >"$aside/out" 2>"$aside/err" </dev/null
}
# hosts_run RANKS OPTIONS...: as job() of mpi_lib.sh
hosts_run() {
    began=$(date +%s%N) code=0
    hosts_mpirun "$@" || code=$?
    took=$((($(date +%s%N) - began) / 1000000))
}
hosts_done() {                                           # hosts_done TEXT RUN: it has trained to the bits of one host
    if [ "$code" -eq 0 ] && [ "$(our_lines)" -eq 0 ]; then ok "$1 train, $took ms"
    else why; not_ok "$1 train: $code"; fi
    equal "$1: the weights of one host" "$one" "$(hash_of "$2" 2>/dev/null || true)"
    equal "$1: its losses" "$bits" "$(loss_bits "$2/metrics.jsonl" 2>/dev/null || true)"
}
# hosts_refused TEXT CODE PATTERN RANKS OPTIONS...: one line of ours with that pattern, that exit code, nothing created
hosts_refused() {
    text=$1 want=$2 pattern=$3; shift 3
    hosts_run "$@" --run-dir refused
    if [ "$code" -eq "$want" ] && [ "$(our_lines)" -eq 1 ] && grep -qE "^mpstaged: $pattern" "$aside/err" &&
        [ ! -e "$aside/near/refused" ]; then ok "$text: $code, $took ms"
    else why; not_ok "$text: $code"; fi
}
given=$here/torch
cat >mlp.conf <<END
run      { name = "mlp"  seed = 1 }
model    { network = "mlp"  hidden = {16, 12, 8}  classes = 5  input = {10} }
data     { source = "npy"  train = "x.npy"  train_labels = "t.npy" }
train    { batch_size = 20  split_size = 6  steps = 6  loss = "mse"  optimizer = "sgd"  learning_rate = 0.1 }
pipeline { partition = "uniform" }
service  { log_every = 0  progress = "no" }
END
cp "$given/toy-x.npy" x.npy
cp "$given/toy-t.npy" t.npy
trains one 2 -c mlp.conf
one=$hash bits=$(loss_bits one/metrics.jsonl)
# Rank 0 alone reads the configuration, so only its host has it.
cp mlp.conf x.npy t.npy one/weights.safetensors "$aside/near"
cp x.npy t.npy one/weights.safetensors "$aside/far"

hosts_run 2 -c mlp.conf -o checkpoint.every_steps=4 --run-dir run
hosts_done "two ranks on two hosts" "$aside/near/run"
check "a run directory that the other host does not have is told" \
    grep -q '^note: mpsfar does not have run; checkpoints' "$aside/err"
check "and a checkpoint that was not written, with the host" \
    grep -q '^warning: no checkpoint of step 4: on mpsfar: run/checkpoints: No such' "$aside/err"
# A folder of the same name that the other host has of its own, from another time: what is written there is not here.
mkdir -p "$aside/far/own/checkpoints/step-00000004.tmp"
hosts_run 2 -c mlp.conf -o checkpoint.every_steps=4 --run-dir own
hosts_done "two ranks whose run directories are not the same" "$aside/near/own"
said="rank 1 on mpsfar has written it, but here: No such file"
check "are told that the part of one is not there" grep -q \
    "_failed\",\"step\":4,\"code\":74,\"text\":\"own/checkpoints/step-00000004.tmp/model-[^ ]*: $said" \
    "$aside/near/own/metrics.jsonl"
check "and nothing has the name of a checkpoint" [ -z "$(find "$aside/near/own" "$aside/far/own" -name 'step-*[0-9]')" ]
# Going on from folders that are not the same: another checkpoint, and none.
trains seed1 2 -c mlp.conf -o checkpoint.every_steps=4
trains seed2 2 -c mlp.conf -o checkpoint.every_steps=4 -o run.seed=2
mkdir -p "$aside/near/res" "$aside/far/res"
cp -r seed1/checkpoints "$aside/near/res"
cp -r seed2/checkpoints "$aside/far/res"
hosts_run 2 -c mlp.conf --run-dir res --resume
unlike() { [ "$code$(our_lines)$(grep -cE "^mpstaged: on mpsfar: res/checkpoints/step-0000000[46]: rank 1 finds $1" \
    "$aside/err")" = 7811 ]; }
if unlike "another checkpoint there, rank 0 on mpsnear a valid one"
then ok "another checkpoint there is refused"
else why; not_ok "another checkpoint there is refused: $code"; fi
rm "$aside/far/res/checkpoints"/step-*/manifest.json
hosts_run 2 -c mlp.conf --run-dir res --resume
if unlike "no valid one there, rank 0 on mpsnear a valid one"
then ok "so is none, instead of a start from the beginning"
else why; not_ok "so is none: $code"; fi
by=node
hosts_run 4 -c mlp.conf -o checkpoint.every_steps=4 --run-dir shared/run
hosts_done "four ranks, dealt out in turns," "$aside/shared/run"
check "are told to lie badly" grep -q '^note: 3 of 3 borders between stages lie between hosts, 1 would' "$aside/err"
check "a shared run directory has the checkpoint" [ -d "$aside/shared/run/checkpoints/step-00000004" ]
by=slot
# MPI_Finalize of MPICH 4.0 hangs where a rank is still in MPI when another calls it.
cat >"$aside/late" <<END
#!/bin/sh
[ "\$(hostname)" != mpsfar ] || export LD_PRELOAD="$build/tests/faults/late.so"
exec "\$@"
END
chmod +x "$aside/late"
under="timeout -k 5 60" before="$aside/late"
hosts_run 2 -c mlp.conf --run-dir late
under= before=
hosts_done "two ranks, one of them late at each vote," "$aside/near/late"
# Another network between both, which the MPI library is told to take.
lossy_begin() {
    command -v python3 >/dev/null || { echo "there is no python3" >"$aside/lossy"; return 1; }
    python3 "$here/lossy.py" "$near" "$far" lossy >"$aside/lossy" 2>&1 3>&- & lossy=$!
    for _ in $(seq 100); do
        ! grep -qs '^ready' "$aside/lossy" || return 0
        kill -0 $lossy 2>/dev/null || return 1
        sleep 0.05
    done
    return 1
}
if lossy_begin; then
    host near sh -c 'ip addr add 10.87.4.1/24 dev lossy && ip link set lossy up'
    host far sh -c 'ip addr add 10.87.4.2/24 dev lossy && ip link set lossy up'
    net=10.87.4 cable=lossy
    hosts_run 4 -c mlp.conf -o run.hang_timeout=60 --run-dir slow
    net=10.87.3 cable=cable
    kill -TERM "$lossy"
    wait "$lossy" || true
    lossy=
    hosts_done "four ranks over a network that delays and loses" "$aside/near/slow"
    check "of whose frames some were lost: $(tail -n 1 "$aside/lossy")" grep -qE ', [1-9][0-9]* lost' "$aside/lossy"
    check "are not told to lie badly" sh -c '! grep -q "borders between stages" "$0"' "$aside/err"
else skip "a network that delays and loses" "NOT TRIED: $(tail -n 1 "$aside/lossy")"; fi

# ---- what one host does not have -------------------------------------------------------------------------------------
mv "$aside/far/t.npy" "$aside/far/gone.npy"
hosts_refused "a file that the second host does not have" 66 \
    'on mpsfar: .*: data\.[a-z_]*: t\.npy: No such' 2 -c mlp.conf
mv "$aside/far/gone.npy" "$aside/far/t.npy"
mv "$aside/near/x.npy" "$aside/near/gone.npy"
hosts_refused "one that the first does not have" 66 'on mpsnear: .*: data\.[a-z_]*: x\.npy: No such' 2 -c mlp.conf
mv "$aside/near/gone.npy" "$aside/near/x.npy"
echo damaged >"$aside/far/weights.safetensors"
hosts_refused "weights that are damaged on one" 65 'on mpsfar: .*weights\.safetensors: ' 2 -c mlp.conf \
    --init-from weights.safetensors

# until_so COMMAND...: waits until it succeeds, as long as the job runs, and a minute and a half at most
until_so() {
    for _ in $(seq 900); do
        ! "$@" || return 0
        kill -0 $pid 2>/dev/null || return 1
        sleep 0.1
    done
    return 1
}
endless="-c mlp.conf -o train.steps=100000000"
# shellcheck disable=SC2086
hosts_mpirun 2 $endless --run-dir short 3>&- & pid=$!
until_so grep -qs '"step":3,' "$aside/near/short/metrics.jsonl" || true
truncate -s 150 "$aside/far/t.npy"
code=0; wait $pid || code=$?
if [ "$code" -eq 65 ] && [ "$(our_lines)" -eq 1 ] && grep -q '^mpstaged: on mpsfar: .*t\.npy: offset' "$aside/err"
then ok "a file that is cut off on one while it is read: 65"
else why; not_ok "a file that is cut off on one while it is read: $code"; fi
cp t.npy "$aside/far"

# ---- the cable is cut ------------------------------------------------------------------------------------------------
under="$build/mpstage-run --max-fruitless 20 --"
# shellcheck disable=SC2086
hosts_mpirun 2 $endless -o checkpoint.every_seconds=0.5 -o run.hang_timeout="$LIMIT" --run-dir shared/long 3>&- & pid=$!
there() { pgrep --ns "$1" --nslist pid -x "${mpstaged##*/}" || true; }
alive() { echo $(there "$near") $(there "$far"); }
has_new() {
    newest=$(ls "$aside/shared/long/checkpoints" 2>/dev/null | grep -v tmp | tail -n 1)
    [ "$newest" != "$1" ]
}
nobody() { [ -z "$(alive)" ]; }
restarts() { grep -q "; restart $1\$" "$aside/err"; }
gone() { nobody || restarts 1; }                         # where mpirun ends at once, the next start has ranks
if ! until_so has_new ''; then why; not_ok "a long run begins: no checkpoint"; tap_done; fi
sleep 1                                                  # until ranks have told each other how long steps take
began=$(date +%s%N)
host near ip link set cable down
until_so gone || true
took=$((($(date +%s%N) - began) / 1000000))
if gone && soon $((LIMIT * 1000 + 5000)); then ok "the cable is cut: ranks on both hosts are gone after $took ms"
else why; not_ok "the cable is cut: ranks are alive after $took ms"; fi
until_so restarts 1 || true
took=$((($(date +%s%N) - began) / 1000000))
if restarts 1 && soon $((LIMIT * 1000 + 30000)); then ok "and the job ends after $took ms"
else why; not_ok "and the job ends: not after $took ms"; fi
if grep -q '^mpstage-run: the command ended with 81: .*; restart 1$' "$aside/err"; then ok "with 81"
else why; not_ok "with 81"; fi
check "one line names the rank and its host" \
    [ "$(our_lines)$(grep -cE '^mpstaged: rank 1 \(mpsfar, process [0-9]+\) .*, for [0-9.]+ s' "$aside/err")" = 11 ]
until_so restarts 2 || true
has_new '' || true
check "it is tried again while the other host cannot be reached" restarts 2
host near ip link set cable up
before=$newest
if until_so has_new "$before"; then ok "the cable is there again: the run goes on"
else why; not_ok "the cable is there again: the run does not go on"; fi
stop() { host near "$mpstagectl" shared/long stop >/dev/null 2>&1; }
until_so stop || true
code=0; wait $pid || code=$?
if [ "$code" -eq 0 ]; then ok "and ends when it is told to"
else why; not_ok "and ends when it is told to: $code"; fi
check "nobody is left on either host" nobody
steps=$(done_field "$aside/shared/long/metrics.jsonl" steps | tail -n 1)
# A step that was not done again is of no run that has ended.
loss_bits "$aside/shared/long/metrics.jsonl" | awk '$1 <= '"${steps:-0}" >"$aside/long"
trains again 2 -c mlp.conf -o train.steps="${steps:-1}"
equal "its weights after $steps steps are those of one host" "$hash" "$(hash_of "$aside/shared/long" | tail -n 1)"
if [ -s "$aside/long" ] && loss_bits again/metrics.jsonl | cmp -s - "$aside/long"; then ok "and so are its losses"
else not_ok "and so are its losses"; fi
tap_done
