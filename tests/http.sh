#!/bin/sh
# http.sh: service.metrics: the pages that Prometheus and others read, clients that mean ill, addresses that cannot be
# had; the figures are those that mpstaged(8) lists, and the dashboard and the rules ask for no others.
set -eu
. "$(dirname -- "$0")/mpi_lib.sh"
top=$(CDPATH='' cd -- "$here/.." && pwd)
python=${MPSTAGED_PYTHON:-$(command -v python3 || true)}
unset SLURM_ARRAY_JOB_ID SLURM_ARRAY_TASK_ID SLURM_CLUSTER_NAME FLUX_JOB_ID LSB_JOBID PBS_JOBID
export SLURM_JOB_ID='4"2' MPSTAGED_POWERCAP="$aside/powercap"
write_conf long.conf 's/steps = 3/steps = 100000000/; $a service { log_every = 0  metrics = "127.0.0.1:0" }'
if "$mpstaged" -c long.conf --check-config 2>&1 | grep -q 'built without libmicrohttpd'; then
    refused "built without libmicrohttpd, service.metrics is refused" 78 'built without libmicrohttpd' 2 -c long.conf
    skip "all else of service.metrics" "apt-get install libmicrohttpd-dev"
    tap_done
fi
if [ -z "$python" ]; then echo "1..0 # SKIP no python3: apt-get install python3"; exit 77; fi
where() { sed -n 's,.*metrics at http://\(.*\):\([0-9]*\)/metrics$,\1 \2,p' "$1/mpstaged.log" | tr -d '[]'; }
# answers QUESTION [...]: of the run whose $host and $port are set
answers() { answers_to=$1; shift; "$python" "$here/scrape.py" "$answers_to" "$host" "$port" "$@"; }
# well TEXT QUESTION [...]
well() {
    well_text=$1; shift
    answers "$@" >"$aside/answer" 2>&1 || true
    if [ "$(cat "$aside/answer")" = well ]; then ok "$well_text"; else note <"$aside/answer"; not_ok "$well_text"; fi
}
# begin NAME COMMAND...: starts a run; sets $host, $port
begin() {
    name=$1; shift
    "$@" --run-dir "$name" >"$aside/out" 2>"$aside/err" </dev/null & pid=$!
    for _ in $(seq 200); do ! grep -qs '"step":3,' "$name/metrics.jsonl" || break; sleep 0.05; done
    where "$name" >"$aside/where" || true
    read -r host port <"$aside/where" || { why; not_ok "$name: begins, and says where it answers"; }
}

# ---- pages -----------------------------------------------------------------------------------------------------------
begin r "$mpstaged" -c long.conf --transport local
check "the log names the address and the port that the system chose" [ "$host" = 127.0.0.1 -a "${port:-0}" -gt 0 ]
answers silent >"$aside/silent" 2>&1 & waiter=$!
well "the page of figures is whole and its figures agree" pages
well "the run and its job have a name" named toy 2
check "a host without readable counters has no energy, and the log says so" sh -c '
    ! "$1" "$2/scrape.py" text "$3" "$4" | grep "^mpstaged_energy" && grep -q "energy: not available: .*powercap" "$5"
    ' sh "$python" "$here" "$host" "$port" r/mpstaged.log
well "the figures are those of metrics.jsonl" same r/metrics.jsonl
well "OpenMetrics for clients that ask for it" formats
if "$python" -c 'import prometheus_client.openmetrics' 2>/dev/null; then
    well "prometheus_client parses it" judged
else
    skip "prometheus_client parses it" "no prometheus_client: pip install prometheus-client, and set MPSTAGED_PYTHON"
fi
well "three paths, two methods, and errors for all else" routes
answers names >"$aside/names"
sed -n '/^\.Sh MONITORING/,/^\.Sh EXIT/p' "$top/man/mpstaged.8.in" | grep '^\.It Cm' | tr -c 'a-z_\n' '\n' |
    grep -E '^(mpstaged|process)_' | LC_ALL=C sort >"$aside/page"
if [ -s "$aside/names" ] && diff "$aside/names" "$aside/page" >"$aside/diff"; then
    ok "mpstaged(8) lists the figures that are served, and no others"
else note <"$aside/diff"; not_ok "mpstaged(8) lists the figures that are served, and no others"; fi
wait "$waiter" || true
note <"$aside/silent"
check "a client that says nothing more is shown out" grep -qx well "$aside/silent"
well "a thousand half-open clients slow nothing and take few files" flood "$pid" 56

# ---- what reads them -------------------------------------------------------------------------------------------------
# Names in the expressions of the dashboard and of the rules, without what histograms add to them.
"$python" - "$top/conf/grafana.json" >"$aside/exprs" <<'END'
import json, sys
d = json.load(open(sys.argv[1]))
print("\n".join(t["expr"] for p in d["panels"] for t in p["targets"]))
print("\n".join(v["query"] for v in d["templating"]["list"]))
END
check "the dashboard asks for figures" [ "$(grep -c mpstaged_ "$aside/exprs")" -ge 10 ]
cat "$aside/exprs" "$top/conf/alerts.yml" | grep -oE '\b(mpstaged|process)_[a-z_]+' |
    sed 's/\(mpstaged_step_duration_seconds\)_\(bucket\|sum\|count\)$/\1/' | LC_ALL=C sort -u |
    LC_ALL=C comm -23 - "$aside/names" >"$aside/strange"
if [ -s "$aside/strange" ]; then note <"$aside/strange"; fi
check "dashboard and rules name only figures that are served" [ ! -s "$aside/strange" ]
if command -v promtool >/dev/null; then
    answers text >"$aside/text"
    code=0
    promtool check metrics <"$aside/text" >"$aside/prom" 2>&1 || code=$?
    note <"$aside/prom"
    check "promtool has nothing to say of the page" [ "$code" -eq 0 -a ! -s "$aside/prom" ]
    {
        echo 'groups: [{name: a, rules: ['
        grep -v label_values "$aside/exprs" | grep mpstaged_ |
            while IFS= read -r x; do echo "  {record: a, expr: '$x'},"; done
        echo ']}]'
    } >"$aside/rules.yml"
    for f in "$aside/rules.yml" "$top/conf/alerts.yml"; do
        promtool check rules --lint=none "$f" >"$aside/prom" 2>&1 && code=0 || code=$?
        [ "$code" -eq 0 ] || note <"$aside/prom"
        check "promtool takes the expressions of ${f##*/}" [ "$code" -eq 0 ]
    done
    # Of three targets one answers, one has stopped, one was never ours.
    cat >"$aside/gone.yml" <<END
rule_files: [$(cd "$top" && pwd)/conf/alerts.yml]
tests:
  - interval: 1m
    input_series:
      - {series: 'up{instance="a",job="m"}', values: '1x9 0x20'}
      - {series: 'mpstaged_info{instance="a",job="m",run="r"}', values: '1x9'}
      - {series: 'up{instance="b",job="m"}', values: '1x30'}
      - {series: 'mpstaged_info{instance="b",job="m",run="s"}', values: '1x30'}
      - {series: 'up{instance="c",job="node"}', values: '0x30'}
    alert_rule_test:
      - {alertname: MpstagedIsGone, eval_time: 5m}
      - alertname: MpstagedIsGone
        eval_time: 12m
        exp_alerts:
          - exp_labels: {severity: warning, instance: a, job: m}
            exp_annotations: {summary: "a: the run has ended, or cannot be reached; mpstagectl why tells of a failure"}
END
    promtool test rules "$aside/gone.yml" >"$aside/prom" 2>&1 && code=0 || code=$?
    [ "$code" -eq 0 ] || note <"$aside/prom"
    check "a run that is gone is told" [ "$code" -eq 0 ]
else
    skip "promtool has nothing to say of the page" "apt-get install prometheus"
    skip "promtool takes the expressions" "apt-get install prometheus"
fi

# ---- addresses -------------------------------------------------------------------------------------------------------
write_conf three.conf
# refuses TEXT CODE PATTERN OPTIONS...: a start beside the run: one line with that pattern, that code, nothing created
refuses() {
    refuses_text=$1 refuses_code=$2 refuses_pattern=$3 code=0; shift 3
    find . ! -name metrics.jsonl | LC_ALL=C sort >"$aside/before"
    "$mpstaged" "$@" >"$aside/out" 2>"$aside/err" </dev/null || code=$?
    find . ! -name metrics.jsonl | LC_ALL=C sort >"$aside/after"
    if [ "$code" -eq "$refuses_code" ] && [ "$(said_lines)" -eq 1 ] &&
        grep -qE -- "$refuses_pattern" "$aside/err" && cmp -s "$aside/before" "$aside/after"; then ok "$refuses_text"
    else why; not_ok "$refuses_text: $code"; fi
}
used="mpstaged: service.metrics: cannot listen at 127.0.0.1:$port: Address already in use"
refuses "an address that is taken" 73 "^$used\$" -c three.conf --transport local \
    -o "service.metrics=127.0.0.1:$port" --run-dir taken
refuses "and --check-config knows" 73 "^$used\$" -c three.conf -o "service.metrics=127.0.0.1:$port" --check-config
refuses "an address of somebody else" 73 'cannot listen at 192.0.2.1:9464: ' -c three.conf --transport local \
    -o service.metrics=192.0.2.1:9464 --run-dir other
for bad in localhost:9464 127.0.0.1 127.0.0.1: 127.0.0.1:65536 127.0.0.1:-1 '[::1]' '[]:1' ::1:9464 1.2.3:1 :x; do
    refuses "service.metrics=$bad" 78 'service\.metrics=.*: .*127\.0\.0\.1:9464' -c three.conf \
        -o "service.metrics=$bad" --check-config
done
"$mpstagectl" r stop --wait >"$aside/stop" 2>&1 || true
wait "$pid" || true
code=0
"$mpstaged" -c three.conf --transport local -o "service.metrics=:$port" --run-dir again >"$aside/out" 2>"$aside/err" \
    </dev/null || code=$?
check "the next run takes the address at once" [ "$code" -eq 0 ]
check ":PORT is of this host only" grep -q "metrics at http://127.0.0.1:$port/metrics" again/mpstaged.log
code=0
"$mpstaged" -c three.conf --transport local -o service.metrics=no --run-dir none >"$aside/out" 2>"$aside/err" \
    </dev/null || code=$?
check "no: no address" [ "$code" -eq 0 -a "$(grep -c 'metrics at' none/mpstaged.log)" -eq 0 ]
equal "and all that changes no weights" "$(hash_of none)" "$(hash_of again)"

# ---- processes, the other family -------------------------------------------------------------------------------------
six='[::1]:0'
[ -e /proc/net/if_inet6 ] || { six=127.0.0.1:0; skip "::1" "this host has no IPv6"; }
begin mpi mpirun_n 2 "$mpstaged" -c long.conf -o "service.metrics=$six"
well "two processes: the same at $six" pages
other=$(ranks_alive | grep -vx "$(cat mpi/lock)")
kill -STOP "$other"; sleep 1
answers text >"$aside/text" || true
kill -CONT "$other"
beat() { sed -n 's/^mpstaged_heartbeat_age_seconds{stage="'"$1"'"} //p' "$aside/text"; }
check "the rank that stands still is the one that is not heard of: $(beat 0) and $(beat 1) s" \
    awk "BEGIN { exit !(\"$(beat 0)\" != \"\" && $(beat 0) + 0.3 < $(beat 1)) }"
"$mpstagectl" mpi stop --wait >"$aside/stop" 2>&1 || true
wait "$pid" || true

# ---- replicas --------------------------------------------------------------------------------------------------------
begin two "$mpstaged" -c long.conf --transport local -o pipeline.stages=1 -o pipeline.replicas=2 \
    -o train.gradient_groups=2 -o service.tensorboard=yes
well "replicas have figures of their own" replicas
"$mpstagectl" two status --json >"$aside/status"
check "the status names ranks and replicas" sh -c 'tr -d " \n" <"$0" | grep -qE \
    "\"stage\":0,\"rank\":0,\"replica\":0,.*\"stage\":0,\"rank\":1,\"replica\":1,"' "$aside/status"
timeout 1 "$mpstagectl" two top 0.2 >"$aside/top" 2>&1 || true
check "top tells them apart" sh -c 'grep -qE "^ +0:0 .* %" "$0" && grep -qE "^ +1:0 .* %" "$0"' "$aside/top"
check "the alert of a silent stage says of which replica" grep -q 'with $labels.replica' "$top/conf/alerts.yml"
"$mpstagectl" two stop --wait >"$aside/stop" 2>&1 || true
wait "$pid" || true
check "TensorBoard has curves of each" sh -c 'grep -q bubble/replica_0_stage_0 two/events* &&
    grep -q bubble/replica_1_stage_0 two/events*'

# ---- ready, or not ---------------------------------------------------------------------------------------------------
# Steps that take their time.
cat >slow.conf <<'END'
run      { name = "slow"  device = "reference"  transport = "local" }
model    { network = "mlp"  input = {1024}  hidden = {1024, 1024}  classes = 5 }
data     { source = "synthetic"  samples = 2560 }
train    { batch_size = 128  split_size = 128  steps = 1000  optimizer = "sgd"  learning_rate = 0.001 }
service  { metrics = "127.0.0.1:0" }
END
"$mpstaged" -c slow.conf --stages 1 --run-dir slow >"$aside/out" 2>"$aside/err" </dev/null & pid=$!
for _ in $(seq 400); do ! grep -qs 'metrics at' slow/mpstaged.log || break; sleep 0.05; done
where slow >"$aside/where"
read -r host port <"$aside/where"
equal "before the first step has ended: starting" "$(answers word)" "503 starting"
for _ in $(seq 400); do ! grep -qs '"step":1,' slow/metrics.jsonl || break; sleep 0.1; done
equal "then: training" "$(answers word)" "200 training"
"$mpstagectl" slow stop >"$aside/stop" 2>&1
equal "and when it is to stop: stopping" "$(answers word)" "503 stopping"
kill -TERM "$pid"
wait "$pid" || true
tap_done
