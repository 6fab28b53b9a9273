#!/bin/sh
# documented.sh: what the manual pages name is there. The names come from the built pages: options, exit statuses,
# events and keys of metrics.jsonl, signals, variables of the environment. Each has a row here that uses it; a name
# without a row fails, and so does a row whose name no page has. t_conf_wrong.c uses settings of the configuration so,
# commands.sh commands of mpstagectl(1), http.sh the figures of MONITORING.
set -eu
. "$(dirname -- "$0")/mpi_lib.sh"
top=$(CDPATH='' cd -- "$here/.." && pwd)
runner=$build/mpstage-run experiment=$build/mpstage-experiment tokens=$build/mpstage-tokens
unset NOTIFY_SOCKET WATCHDOG_USEC JOURNAL_STREAM
write_conf toy.conf
m="$mpstaged -c toy.conf"
# page NAME: the built one; those that are not made of tables are sources
page() { if [ -e "$build/man/$1" ]; then echo "$build/man/$1"; else echo "$top/man/$1"; fi; }
# section NAME SECTION: its lines
section() { sed -n '/^\.Sh '"$2"'$/,/^\.Sh /p' "$(page "$1")"; }
: >"$aside/used"
# used KIND NAME...: these names have a row
used() { used_kind=$1; shift; for used_name; do echo "$used_kind $used_name" >>"$aside/used"; done; }
# all_used TEXT KIND COMMAND...: the names that it prints, which a page has, are those that rows have
all_used() {
    all_text=$1 all_kind=$2; shift 2
    "$@" | LC_ALL=C sort -u >"$aside/page-names"
    sed -n "s/^$all_kind //p" "$aside/used" | LC_ALL=C sort -u >"$aside/row-names"
    LC_ALL=C comm -3 "$aside/page-names" "$aside/row-names" >"$aside/apart"
    if [ -s "$aside/page-names" ] && [ ! -s "$aside/apart" ]; then
        ok "$all_text: all $(wc -l <"$aside/page-names")"
    else { echo "in the page alone, then used here alone:"; cat "$aside/apart"; } | note; not_ok "$all_text"; fi
}
# row KIND NAME CODE PATTERN COMMAND: the command ends with that code and shows the pattern
row() {
    used "$1" "$2"
    code=0
    # a process of its own, so that it may set limits
    (eval "$5") >"$aside/out" 2>&1 </dev/null || code=$?
    if [ "$code" -eq "$3" ] && grep -qE -- "$4" "$aside/out"; then ok "$1: $2"
    else { echo "$5"; echo "code $code, wanted $3 and $4"; head -n 20 "$aside/out"; } | note; not_ok "$1: $2"; fi
}
# rows KIND: one a line on the standard input, NAME CODE PATTERN COMMAND with | between them
rows() {
    while IFS='|' read -r rows_name rows_code rows_pattern rows_command; do
        [ -z "$rows_name" ] || row "$1" "$rows_name" "$rows_code" "$rows_pattern" "$rows_command"
    done
}
# elsewhere KIND NAME FILE PATTERN: another test does it, and says so there
elsewhere() { used "$1" "$2"; check "$1: $2 is in $3" grep -qE -- "$4" "$top/$3"; }
# begin NAME OPTIONS...: starts a run; sets $pid
begin() {
    begin_name=$1; shift
    "$mpstaged" "$@" --run-dir "$begin_name" >"$aside/out" 2>"$aside/err" </dev/null & pid=$!
    sees "$begin_name" '"event":"step"' || { why; not_ok "$begin_name starts"; }
}
# sees RUN PATTERN: metrics.jsonl has a line with it, within 60 s
sees() {
    for _ in $(seq 1200); do
        ! grep -qsE -- "$2" "$1/metrics.jsonl" || return 0
        sleep 0.05
    done
    echo "# $1 has no line with $2" && return 1
}
# ends CODE: so does the run that was begun
ends() { ends_code=0; wait "$pid" || ends_code=$?; [ "$ends_code" -eq "$1" ] || { why; false; }; }
long="-c toy.conf --transport local --steps 100000000 -o service.log_every=0 -o service.metrics_every=100"

# ---- options of mpstaged(8) ------------------------------------------------------------------------------------------
"$mpstaged" -c toy.conf --transport local --run-dir first >"$aside/out" 2>&1 || note <"$aside/out"
# A language model.
yes "some words" | head -n 80 >words.txt
cat >words.conf <<'END'
model { network = "llama"  input = {8}  vocab_size = 256  hidden_size = 8  intermediate_size = 8
        num_hidden_layers = 1  num_attention_heads = 2 }
data  { source = "text"  train_text = "words.txt"  test_text = "words.txt"  samples = 8 }
train { batch_size = 4  steps = 2  evaluate_every = 1 }
generate { prompt = {"some"}  max_tokens = 2  every_steps = 2  logprobs = yes }
END
"$mpstaged" --transport local -c words.conf --run-dir words >"$aside/out" 2>&1 || note <"$aside/out"
for n in 2 3; do
    "$mpstaged" --transport local -c words.conf --run-dir more --resume --steps $n -o checkpoint.every_steps=1 \
        >"$aside/out" 2>&1 || note <"$aside/out"
done
echo '{"input_ids": [1, 2]}' >prompts.jsonl
rows mpstaged <<'END'
stage-config|0|name = "toy"|$mpstaged --stage-config toy.conf --print-config
set|0|^    samples = 77$|$m --set data.samples=77 --print-config
steps|0|^    steps = 7$|$m --steps 7 --print-config
epochs|0|^    epochs = 7$|$m --epochs 7 --print-config
batch-size|0|^    batch_size = 28$|$m --batch-size 28 --print-config
split-size|0|^    split_size = 7$|$m --split-size 7 --print-config
learning-rate|0|^    learning_rate = 0.7$|$m --learning-rate 0.7 --print-config
schedule|0|^    schedule = "gpipe"$|$m --schedule gpipe --print-config
partition|0|^    partition = "auto"$|$m --partition auto --print-config
stages|0|^    stages = 1$|$m --stages 1 --print-config
device|0|reference plain C|$m --device reference --transport local --run-dir device
transport|78|--transport: "pigeon"|$m --transport pigeon --check-config
precision|78|--precision: tf32 is for GPUs|$m --precision tf32 --device cpu --check-config
allow-shared-gpu|0|^    allow_shared_gpu = yes$|$m --allow-shared-gpu --print-config
threads|0|threads 2,|$m --threads 2 --transport local --run-dir threads && head -n 1 threads/metrics.jsonl
seed|0|"seed":7,|$m --seed 7 --transport local --run-dir seed && head -n 1 seed/metrics.jsonl
init-from|66|^mpstaged: --init-from: none: |$m --init-from none --check-config
run-dir|0|weights.safetensors|$m --transport local --run-dir elsewhere && ls elsewhere
overwrite|0|done: |$m --transport local --run-dir elsewhere --overwrite -o checkpoint.every_steps=50
resume|0|"event":"resume"|$m --transport local --run-dir elsewhere --resume && cat elsewhere/metrics.jsonl
evaluate|0|9 samples: |$m --evaluate --init-from first -o data.test_samples=9 --transport local --run-dir evaluated
predict|0|^sample,v0,|$m --predict p.csv --init-from first -o data.test_samples=9 --run-dir p --stages 1 && cat p.csv
generate|0|"reason":|$mpstaged -c words.conf --run-dir words --generate - -o generate.prompts=prompts.jsonl
prompt|64|prompt needs --generate|$m --prompt x --check-config
predict-tensor|78|did you mean net|$m --predict p.csv --predict-tensor net9 -o data.test_samples=9 --check-config
dump-gradients|0|^dumped/g$|$m --dump-gradients dumped/g --transport local --run-dir dumped && ls dumped/g
trace|0|traceEvents|$m --trace traced/t --transport local --run-dir traced && cat traced/t
progress|0|\[Kplanning|$m --progress yes --transport local --run-dir progress
profile|0|profile.json|$m --profile -o pipeline.profile_sizes=8 --transport local --run-dir profile && ls profile
check-hosts|0|^rank +host |$m --check-hosts=0.1 --stages 1 --transport local
check-config|0|^configuration OK$|$m --check-config
print-config|0|^train \{$|$m --print-config
summary|0|^net1 +Linear-1 |$m --summary
print-graph|0|= linear\(|$m --print-graph
plan|0|mult-adds|$m --plan
init|65|^mpstaged: dumped: has no folders, which are the classes|$mpstaged --init dumped
init-lm|0|^words.conf.made: 1 text,|$mpstaged --init-lm words.txt --write-config words.conf.made
write-config|0|^# Found by |$m --plan=search --write-config found.conf >found && cat found.conf
print-schedule|0|^rank 1 |$m --print-schedule
draw-schedule|0|</svg>|$m --draw-schedule s.svg && cat s.svg
compare|1|^step 1: loss |mkdir seeds; $m --transport local --seed 2 --run-dir seeds/2; $mpstaged --compare first seeds/2
show-batch|0|^b.png: 9 of 9|$m -o model.network=resnet18 -o model.input=3,32,32 --batch-size 9 --show-batch b.png
write-onnx|0|^w.onnx: 3 nodes, |$m --init-from first --write-onnx w.onnx
json|0|^ *"train": \{|$m --print-config --json
help|0|^usage: mpirun|$mpstaged --help
version|0|^mpstaged [0-9]|$mpstaged --version
END
options() { grep -E '^\.It .*Fl -[a-z]' "$(page "$1")" | sed 's/.*Fl -\([a-z][a-z-]*\).*/\1/'; }
all_used "options of mpstaged(8)" mpstaged options mpstaged.8

# ---- options of mpstagectl(1), mpstage-run(1), mpstage-experiment(1) -------------------------------------------------
begin asked $long -o checkpoint.keep=1
rows mpstagectl <<'END'
json|0|^  "state": "training"|$mpstagectl asked status --json
html|0|is still running after step|$mpstagectl asked report --html -
wait|0|written|$mpstagectl asked checkpoint --wait && ls asked/checkpoints && echo written
checkpoint|0|stopped|$mpstagectl asked stop --checkpoint --wait && [ "$(ls asked/checkpoints | wc -l)" -eq 1 ]
help|0|^usage: mpstagectl|$mpstagectl --help
version|0|^mpstagectl .*[0-9]|$mpstagectl --version
END
check "the run that was asked ends" ends 0
all_used "options of mpstagectl(1)" mpstagectl options mpstagectl.1
printf '#!/bin/sh\ntrap "" USR1\n: >up\nexec sleep 100\n' >deaf
chmod +x deaf
stopped_deaf() { "$runner" "$@" -- ./deaf & until [ -e up ]; do sleep 0.05; done; kill -TERM $!; wait $!; }
rows mpstage-run <<'END'
max-restarts|9|giving up after 1 restart|$runner --max-restarts 1 --backoff 0 -- sh -c 'exit 9'
max-fruitless|70|giving up: 1 restart without|$runner --max-fruitless 1 -- sh -c 'exit 9'
backoff|64|--backoff: "-1"|$runner --backoff -1 -- true
stop-timeout|75|SIGTERM|stopped_deaf --stop-timeout 0
hang-timeout|64|--hang-timeout: "never"|$runner --hang-timeout never -- true
help|0|^usage: mpstage-run|$runner --help
version|0|^mpstage-run .*[0-9]|$runner --version
END
all_used "options of mpstage-run(1)" mpstage-run options mpstage-run.1
# Ranks are threads here: what would start them leaves mpirun out.
cat >threads.sh <<'END'
#!/bin/sh
echo "$*" >>"${0%/*}/mpirun-log"
while [ "$1" != -np ]; do shift; done
ranks=$2; shift 2
exec "$@" --transport local --stages "$ranks"
END
printf '#!/bin/sh\necho "$*" >>"%s/mpstaged-log"\nexec "%s" "$@"\n' "$tmp" "$mpstaged" >program.sh
chmod +x threads.sh program.sh
x="$experiment -c toy.conf --mpirun $tmp/threads.sh --no-profile --no-plots"
row "exit status of mpstage-experiment" 0 0 '^best split size' '$x --mpstaged $tmp/program.sh --ranks 3 --repeat 2 \
    --sweep-repeat 1 --steps 2 --warm-up 3 --splits 10 --schedules gpipe,naive --out tried'
cp "$aside/out" "$aside/tried"
rows mpstage-experiment <<'END'
stage-config|66|none.conf|$experiment --stage-config none.conf --out none
ranks|0|-np 3 |cat mpirun-log
repeat|0|^single,2$|cut -d, -f1,6 tried/results.csv
sweep-repeat|0|^pipelined,gpipe,.*,10,.*,1,|cat tried/results.csv
steps|0|"step":5,|cat tried/metrics/naive-naive-20-*.jsonl
warm-up|0|"warm_up": 3|cat tried/results.json
splits|0|^pipelined,gpipe,[0-9]+,10,|cat tried/results.csv
schedules|0|^pipelined,naive,|cat tried/results.csv
out|0|^results.csv$|ls tried
overwrite|73|results|$x --out tried
no-profile|0|estimated|cat "$aside/tried"; test ! -e tried/profile/profile.json
no-plots|0|^none$|ls tried/*.png 2>/dev/null || echo none
mpirun|0|-np |cat mpirun-log
mpstaged|0|toy.conf|cat mpstaged-log
help|0|^usage: mpstage-experiment|$experiment --help
version|0|^mpstage-experiment .*[0-9]|$experiment --version
END
all_used "options of mpstage-experiment(1)" mpstage-experiment options mpstage-experiment.1
rows mpstage-tokens <<'END'
tokenizer|0|^123 125 125 $|echo -n '{}}' >t.txt; $tokens --tokenizer bytes t.txt t.bin; echo $(od -An -tu2 t.bin) ""
decode|0|^{}}$|$tokens --decode -t bytes t.bin -; echo
end|0|^ 35|$tokens -t bytes --end '#' t.txt e.bin; od -An -tu1 e.bin | grep -o ' 35'
type|0|^3$|$tokens -t bytes --type u8 t.txt t8.bin; wc -c <t8.bin
help|0|^usage: mpstage-tokens|$tokens --help
version|0|^mpstage-tokens .*[0-9]|$tokens --version
END
all_used "options of mpstage-tokens(1)" mpstage-tokens options mpstage-tokens.1

# ---- exit statuses ---------------------------------------------------------------------------------------------------
# Who may not read: root may read everything.
denied() {
    chmod 000 "$1"; shift
    if [ "$(id -u)" -ne 0 ]; then "$@"; else setpriv --bounding-set=-all --inh-caps=-all "$@"; fi
}
begin busy $long
"$mpstagectl" busy pause >"$aside/said"
cp toy.conf secret.conf
head -c 100 first/weights.safetensors >cut.safetensors
# What fits no plan is refused (69); here a file of 50 MB does not fit the address space, whatever libraries take of it.
starved() {
    yes 'no schedule at all' | head -c 50000000 >large.rows
    for kb in $(seq 60000 60000 2400000); do
        code=0; (ulimit -v "$kb"; "$@" -o pipeline.schedule=rows -o pipeline.rows=large.rows 2>starved) || code=$?
        [ "$code" -ne 70 ] || break
    done
    cat starved >&2; return "$code"
}
rows "exit status of mpstaged" <<'END'
0|0|done: |$m --transport local --run-dir status0
1|1|^set up differently: run.seed: 1 and 2$|$mpstaged --compare first seeds/2
64|64|unknown option|$m --colour
65|65|^mpstaged: cut.safetensors: |$m --init-from cut.safetensors --check-config
66|66|^mpstaged: none.conf: |$mpstaged -c none.conf --check-config
69|69|run.device = "cuda"|CUDA_VISIBLE_DEVICES= $m --device cuda --transport local --run-dir status69
70|70|out of memory|starved $m --plan
71|71|limit of open files|ulimit -n 12; $m --transport local --run-dir status71
73|73|--overwrite|$m --transport local --run-dir first
74|74|No space left on device|$mpstaged --help >/dev/full
75|75|^mpstaged: busy|$m --transport local --run-dir busy --overwrite
77|77|^mpstaged: secret.conf: |denied secret.conf $mpstaged -c secret.conf --check-config
78|78|--batch-size: 0|$m --batch-size 0 --check-config
79|79|loss is not finite|$m -o train.learning_rate=1000000 --steps 9 --transport local --run-dir status79
END
kill -TERM "$pid"
check "the run whose directory was in use" ends 75
# What no sound machine does is made up there, where steps are computed again.
elsewhere "exit status of mpstaged" 80 tests/t_finite.c E_CORRUPT
# One process that is stopped is woken by its child, to say so.
begin still $long -o run.hang_timeout=4
kill -STOP "$pid"
used "exit status of mpstaged" 81
check "exit status of mpstaged: 81" ends 81
statuses() { section "$1" "EXIT STATUS" | sed -n 's/^\.It \([0-9][0-9 ,]*\)$/\1/p' | tr -s ' ,' '\n'; }
all_used "exit statuses of mpstaged(8)" "exit status of mpstaged" statuses mpstaged.8
# A run that answers in a way that is none, and one that does not answer.
cat >nonsense.py <<'END'
import os, socket, sys
s = socket.socket(socket.AF_UNIX); s.bind("nonsense/control.sock"); s.listen(8)
while True:
    c, _ = s.accept(); c.recv(65536); c.sendall(b"cheese\n"); c.close()
END
nonsense=
if command -v python3 >/dev/null; then
    mkdir nonsense
    python3 nonsense.py & nonsense=$!
    for _ in $(seq 200); do [ ! -e nonsense/control.sock ] || break; sleep 0.05; done
    row "exit status of mpstagectl" 70 70 'not JSON' '$mpstagectl nonsense status'
    kill "$nonsense"; wait "$nonsense" 2>/dev/null || true
else
    used "exit status of mpstagectl" 70
    skip "exit status of mpstagectl: 70" "apt-get install python3"
fi
begin mute $long -o checkpoint.every_steps=100
mute=$pid
sees mute '"event":"checkpoint"' || not_ok "a run writes checkpoints"
"$mpstagectl" mute pause >"$aside/said"
mkdir closed kept
# One may still be written beside the pause.
for _ in $(seq 600); do ls mute/checkpoints | grep -q tmp || break; sleep 0.05; done
cp -r mute/checkpoints kept/
damaged=$(ls -d kept/checkpoints/step-* | head -n 1)
echo cheese >>"$damaged/model-00001-of-00002.safetensors"
rows "exit status of mpstagectl" <<'END'
0|0|^toy: paus|$mpstagectl mute status
64|64|colour|$mpstagectl mute colour
65|65|model-00001-of-00002.safetensors|$mpstagectl verify "$damaged"
66|66|nowhere|$mpstagectl list nowhere
69|69|nothing is running there|$mpstagectl first status
73|73|nowhere|$mpstagectl first report --html nowhere/page.html
74|74|No space left on device|$mpstagectl mute status >/dev/full
75|75|is not responding|halt $mute; $mpstagectl mute status; code=$?; kill -CONT $mute; exit $code
77|77|[Pp]ermission denied|denied closed $mpstagectl closed status
78|78|-1 is not in|$mpstagectl mute set train.learning_rate=-1
END
all_used "exit statuses of mpstagectl(1)" "exit status of mpstagectl" statuses mpstagectl.1
rows "exit status of mpstage-run" <<'END'
0|0|done: |$runner -- $m --transport local --run-dir run0
64|64|--backoff: |$runner --backoff x -- true
70|70|giving up|$runner --max-fruitless 1 -- sh -c 'exit 69'
71|71|cannot make a pipe|ulimit -n 5; $runner -- true
126|126|Permission denied|$runner -- ./toy.conf
127|127|No such file|$runner -- ./none
END
$runner -- "$mpstaged" $long --run-dir run75 >"$aside/out" 2>"$aside/err" </dev/null & pid=$!
sees run75 '"event":"step"' && kill -TERM "$pid"
used "exit status of mpstage-run" 75
check "exit status of mpstage-run: 75" ends 75
all_used "exit statuses of mpstage-run(1)" "exit status of mpstage-run" statuses mpstage-run.1
rows "exit status of mpstage-experiment" <<'END'
64|64|--repeat|$experiment -c toy.conf --repeat none
66|66|none.conf|$experiment -c none.conf
73|73|results|$x --out tried
78|78|--batch-size|$x --out refused -- --batch-size 0
END
mkdir fake
printf '#!/bin/sh\necho no room >&2; exit 1\n' >fake/gnuplot
chmod +x fake/gnuplot
row "exit status of mpstage-experiment" 74 74 gnuplot \
    'PATH=$tmp/fake:$PATH $experiment -c toy.conf --mpirun $tmp/threads.sh --no-profile --repeat 1 --out undrawn'
elsewhere "exit status of mpstage-experiment" 75 tests/experiment.sh 'SIGINT ends it with 75'
rows "exit status of mpstage-tokens" <<'END'
0|0|3 tokens of u16|$tokens -t bytes t.txt t.bin
64|64|no tokenizer|$tokens t.txt t.bin
65|65|without tokens|: >no.txt; $tokens -t bytes no.txt t.bin
66|66|none.txt|$tokens -t bytes none.txt t.bin
73|73|nowhere|$tokens -t bytes t.txt nowhere/t.bin
74|74|standard output|$tokens -d -t bytes t.bin - >/dev/full
END
all_used "exit statuses of mpstage-tokens(1)" "exit status of mpstage-tokens" statuses mpstage-tokens.1
all_used "exit statuses of mpstage-experiment(1)" "exit status of mpstage-experiment" statuses mpstage-experiment.1

# ---- signals and the environment -------------------------------------------------------------------------------------
kill -PIPE "$mute"; kill -XFSZ "$mute"
used "signal of mpstaged" SIGPIPE SIGXFSZ SIGHUP SIGUSR2 SIGUSR1 SIGTERM
mv mute/mpstaged.log mute/old.log
kill -HUP "$mute"
for _ in $(seq 600); do [ ! -e mute/mpstaged.log ] || break; sleep 0.05; done
check "SIGHUP: a log where the old one was renamed" [ -e mute/mpstaged.log ]
pid=$mute
"$mpstagectl" mute resume >"$aside/said"
kill -USR1 "$mute"
check "SIGPIPE and SIGXFSZ end no run, and SIGUSR1 does" ends 75
check "with a checkpoint" grep -q 'which is in checkpoints/step-.*--resume continues' "$aside/err"
begin asked-by-signal $long
kill -USR2 "$pid"
check "SIGUSR2: a checkpoint" sees asked-by-signal '"event":"checkpoint"'
kill -TERM "$pid"
check "SIGTERM" ends 75
# A shell without job control lets its background processes ignore SIGINT.
elsewhere "signal of mpstaged" SIGINT tests/signals.sh '^begin int.*INT$'
signals() { section "$1" SIGNALS | grep '^\.It Dv' | tr ' ' '\n' | grep '^SIG'; }
all_used "signals of mpstaged(8)" "signal of mpstaged" signals mpstaged.8
for s in TERM INT HUP USR1; do elsewhere "signal of mpstage-run" SIG$s tests/supervise.sh "(kill -|for s in .*)$s"; done
elsewhere "signal of mpstage-run" SIGUSR2 tests/supervise.sh 'kill -USR2'
all_used "signals of mpstage-run(1)" "signal of mpstage-run" signals mpstage-run.1

while read -r name file pattern; do elsewhere "variable of mpstaged" "$name" "$file" "$pattern"; done <<'END'
NCCL_SOCKET_IFNAME tests/device.sh NCCL_SOCKET_IFNAME=other
NCCL_IB_HCA tests/device.sh NCCL_IB_HCA=mlx5_0
NCCL_CUMEM_ENABLE tests/t_links.c setenv..NCCL_CUMEM_ENABLE
NCCL_DEBUG tests/device.sh NCCL_DEBUG=WARN
NVIDIA_TF32_OVERRIDE tests/device.sh NVIDIA_TF32_OVERRIDE=1
SLURM_JOB_END_TIME tests/signals.sh SLURM_JOB_END_TIME=
NOTIFY_SOCKET tests/notify.sh NOTIFY_SOCKET=
WATCHDOG_USEC tests/notify.sh WATCHDOG_USEC=
JOURNAL_STREAM tests/notify.sh JOURNAL_STREAM=
END
# With no GPU to be seen, automatic is the processor.
row "variable of mpstaged" CUDA_VISIBLE_DEVICES 0 'oneDNN|reference' \
    'CUDA_VISIBLE_DEVICES= $m --device auto --transport local --run-dir hidden'
row "variable of mpstaged" COLUMNS 0 '^.{120,}$' 'COLUMNS=200 $m --print-schedule -o train.split_size=1'
# The counter moves while the run trains.
mkdir -p powercap/intel-rapl:0
echo package-0 >powercap/intel-rapl:0/name
echo 262143328850 >powercap/intel-rapl:0/max_energy_range_uj
echo 1 >powercap/intel-rapl:0/energy_uj
(for i in $(seq 2 2000); do echo "$i"000000 >powercap/new; mv powercap/new powercap/intel-rapl:0/energy_uj; sleep 0.02
done) & mover=$!
row "variable of mpstaged" MPSTAGED_POWERCAP 0 '"energy_joules":[1-9]' \
    'MPSTAGED_POWERCAP=powercap $m --transport local -o train.steps=200 --run-dir energy && cat energy/metrics.jsonl'
kill "$mover"
variables() { section "$1" ENVIRONMENT | grep '^\.It Ev' | tr ' ' '\n' | grep '^[A-Z][A-Z]'; }
all_used "variables of mpstaged(8)" "variable of mpstaged" variables mpstaged.8
sigkill=OMPI_MCA_odls_base_sigkill_timeout
printf '#!/bin/sh\nprintf "%%s " $%s\n' $sigkill >tells
chmod +x tells
rows "variable of mpstage-run" <<'END'
OMPI_MCA_odls_base_sigkill_timeout|0|^0 7 $|$runner -- ./tells; export $sigkill=7; $runner -- ./tells
NOTIFY_SOCKET|0|^@|NOTIFY_SOCKET=@of-nobody $runner -- sh -c 'echo $NOTIFY_SOCKET'
END
elsewhere "variable of mpstage-run" WATCHDOG_USEC tests/supervise.sh WATCHDOG_USEC
all_used "variables of mpstage-run(1)" "variable of mpstage-run" variables mpstage-run.1

# ---- events and keys of metrics.jsonl --------------------------------------------------------------------------------
# One run that everything happens to, but for what ends it.
cat >much.conf <<'END'
run      { name = "much"  transport = "local" }
model    { network = "mlp"  input = {8}  hidden = {8}  classes = 9 }
data     { source = "synthetic"  labels = "class"  samples = 64  test_samples = 32 }
train    { batch_size = 16  split_size = 8  steps = 100000000  learning_rate = 0.01  clip_norm = 1
           evaluate_every = 50 }
pipeline { stages = 2 }
service  { log_every = 0  metrics_every = 10 }
checkpoint { every_steps = 1000 }
END
begin much -c much.conf
sees much '"event":"evaluation"' || not_ok "a run evaluates"
"$mpstagectl" much pause >"$aside/said"
for _ in $(seq 600); do ! "$mpstagectl" much status 2>/dev/null | grep -q paused || break; sleep 0.05; done
"$mpstagectl" much resume >"$aside/said"
"$mpstagectl" much set train.learning_rate=0.02 >"$aside/said"
sed -i 's/evaluate_every = 50/evaluate_every = 70/' much.conf
"$mpstagectl" much reload >"$aside/said"
sees much '"event":"checkpoint"' || not_ok "a run writes checkpoints"
"$mpstagectl" much stop --checkpoint --wait >"$aside/said"
check "a run that is stopped" ends 0
"$mpstaged" -c much.conf --steps 5 --run-dir much --resume=force >"$aside/out" 2>&1 || note <"$aside/out"
# A gradient becomes too large at the third step, and steps are skipped.
"$mpstaged" -c toy.conf --transport local --steps 6 -o train.learning_rate=50000 -o train.nonfinite=skip \
    -o train.nonfinite_limit=9 --run-dir skipped >"$aside/out" 2>&1 || note <"$aside/out"
# The same goes back to a checkpoint, until that is enough.
"$mpstaged" -c toy.conf --transport local --steps 6 -o train.learning_rate=50000 -o train.nonfinite=rollback \
    -o train.nonfinite_limit=2 -o checkpoint.every_steps=1 --run-dir rolled >"$aside/out" 2>&1 || true
# Where the folder of checkpoints was, a file is: three times, then the run ends.
begin unsaved $long -o checkpoint.every_steps=100
sees unsaved '"event":"checkpoint"' || not_ok "a run writes checkpoints"
: >a-file; n=0
until mv -T a-file unsaved/checkpoints 2>/dev/null || [ $n -eq 100 ]; do       # the run may make the folder again
    n=$((n + 1)); mv unsaved/checkpoints "unsaved/away$n" 2>/dev/null || true
done
check "a file is where the checkpoints were" [ -f unsaved/checkpoints ]
check "a run that cannot write checkpoints" ends 74
# A picture is damaged, and another one of its class stands in.
mkdir -p seen/a
: >nothing.conf
head -c 20 "$here/images/rgb.png" >seen/a/1.png
cp "$here/images/grey.png" seen/a/2.png
"$mpstaged" --transport local -o data.source=images -o data.train=seen -o data.damaged=skip \
    -o data.resize='{4,4}' -o model.network=mlp \
    -o model.input=16 -o model.classes=1 -o train.steps=1 -o train.batch_size=2 --run-dir damaged \
    -c nothing.conf >"$aside/out" 2>&1 || note <"$aside/out"
# A bit changes between two ranks.
LD_PRELOAD="$build/tests/faults/flip.so" MPSTAGED_FLIP_RANK=0 MPSTAGED_FLIP=2 mpirun_n 2 "$mpstaged" -c toy.conf \
    --steps 4 --run-dir flipped >"$aside/out" 2>&1 || note <"$aside/out"
# A processor that gets slow, at the exponentials of the loss.
cat >"$aside/slow.c" <<'END'
#define _GNU_SOURCE
#include <dlfcn.h>
#include <unistd.h>
double exp(double x)
{
    double (*next)(double) = (double (*)(double))dlsym(RTLD_NEXT, "exp");
    if (!access("slowly", F_OK)) usleep(2000);
    return next(x);
}
END
unseen='^$'
if ${CC:-cc} -shared -fPIC -o "$aside/slow.so" "$aside/slow.c" -ldl 2>"$aside/err"; then
    export LD_PRELOAD="$aside/slow.so"
    begin slow -c much.conf -o service.metrics_every=1 -o checkpoint.every_steps=0
    unset LD_PRELOAD
    sees slow '"step":14,' || not_ok "a run begins"
    : >slowly
    check "a rank that gets slow" sees slow '"event":"straggler"'
    rm slowly
    kill -TERM "$pid"
    check "a run that was slow" ends 75
else
    skip "a rank that gets slow, and its event" "no C compiler"
    unseen='^straggler'
fi
# keys: "EVENT KEY" of each line; "stage KEY" of the elements of a step's stages. What is below config, libraries and
# changed are keys of others.
keys() {
    awk '
        function value(outer, own,    key) {           # reads one value of s from i on
            if (substr(s, i, 1) == "\"") { string(); return }
            if (substr(s, i, 1) == "[") {
                for (i++; substr(s, i, 1) != "]"; ) { value(outer, own); if (substr(s, i, 1) == ",") i++ }
                i++; return
            }
            if (substr(s, i, 1) != "{") { while (substr(s, i, 1) !~ /[],}]/) i++; return }
            for (i++; substr(s, i, 1) != "}"; ) {
                key = string(); i++
                if (!own) print outer, key
                if (key == "stages" && outer == "step") value("stage", own)
                else value(outer, own || key == "config" || key == "libraries" || key == "changed" || \
                    key == "settings")
                if (substr(s, i, 1) == ",") i++
            }
            i++
        }
        function string(    from) {
            for (from = ++i; substr(s, i, 1) != "\""; i++) if (substr(s, i, 1) == "\\") i++
            return substr(s, from, i++ - from)
        }
        { event = $0; sub(/^\{"event":"/, "", event); sub(/".*/, "", event); if (n[FILENAME, event]++ > 20) next
            s = $0; i = 1; value(event, 0) }' ./*/metrics.jsonl | grep -v ' event$' | LC_ALL=C sort -u
}
# The page is made of the table of events (event.c), which man/gen prints as such lines. Energy of GPUs: energy.sh.
"$build/man/gen" events | grep -v -e "$unseen" -e '^done gpu_energy_joules$' >"$aside/page-all"
cut -d' ' -f1 "$aside/page-all" | grep -vx stage | LC_ALL=C sort -u >"$aside/page-events"
cat ./*/metrics.jsonl | sed 's/^{"event":"\([a-z_]*\)".*/\1/' | LC_ALL=C sort -u >"$aside/seen-events"
section mpstaged.8 METRICS | sed -n 's/^\.It Cm //p' | LC_ALL=C sort -u >"$aside/page-words"
tr ' ' '\n' <"$aside/page-all" | LC_ALL=C sort -u >"$aside/page-named"
check "METRICS has all of them" sh -c '[ -s "$0" ] && ! LC_ALL=C comm -23 "$0" "$1" | grep .' "$aside/page-named" \
    "$aside/page-words"
check "each event of METRICS was written, and no other: $(wc -l <"$aside/page-events")" \
    sh -c '[ -s "$0" ] && diff "$0" "$1"' "$aside/page-events" "$aside/seen-events"
# Stages of the account have the parts of those of a step.
{
    cat "$aside/page-all"
    sed -n 's/^stage \([a-z_]*\)$/account \1/p' "$aside/page-all" | grep -vxE 'account (rank|peak_bytes)'
} | LC_ALL=C sort -u >"$aside/page-keys"
keys >"$aside/seen-keys"
check "each key of each event, too: $(wc -l <"$aside/page-keys")" \
    sh -c '[ -s "$0" ] && diff "$0" "$1"' "$aside/page-keys" "$aside/seen-keys"
# Of the parts of a stage's time the page names the first.
$mpstaged -c toy.conf --plan --json | grep -oE '"[a-z_]+":' | tr -d '":' |
    grep -vE '^(input_grad|weight_grad|recompute|optimizer|transfer)_seconds$' | LC_ALL=C sort -u >"$aside/plan-keys"
sed -n '/^\.Ss --plan$/,/^\.Ss --plan=search$/p' "$(page mpstaged.8)" |
    grep -E '^\.(It Cm|Cm) ' | grep -oE '[a-z_]+' | LC_ALL=C sort -u >"$aside/plan-words"
check "each key of a plan as JSON is on the page: $(wc -l <"$aside/plan-keys")" \
    sh -c '[ -s "$0" ] && ! LC_ALL=C comm -23 "$0" "$1" | grep .' "$aside/plan-keys" "$aside/plan-words"
check "nobody is left" nobody_left
tap_done
