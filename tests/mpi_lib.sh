# Sourced by the scripts that start mpstaged under mpirun: a scratch directory, small configurations,
# and what every run must keep to.
: "${srcdir:=.}" "${top_builddir:=.}"
here=$(CDPATH='' cd -- "$(dirname -- "$0")" && pwd)
. "$here/tap.sh"
build=$(CDPATH='' cd -- "$top_builddir" && pwd)
mpstaged=$build/mpstaged mpstagectl=$build/mpstagectl
tmp=$(mktemp -d) aside=$(mktemp -d)                        # where jobs run; where the test keeps its own files
trap 'for p in $(ranks_alive); do kill -9 "$p" 2>/dev/null || true; done; rm -rf "$tmp" "$aside"' EXIT
if ! command -v "${MPIRUN%% *}" >/dev/null; then echo "1..0 # SKIP no mpirun"; exit 77; fi
cd "$tmp"
export MPIEXEC_TIMEOUT=300                              # a job that hangs fails
# Open MPI's folder of a job bears its process number, which another mpirun may get: each suite has a place of its own.
mkdir "$aside/session"
export OMPI_MCA_orte_tmpdir_base="$aside/session" PRTE_MCA_prte_tmpdir_base="$aside/session"
# Containers often forbid single copies, and Open MPI would say so. The first is for 4.1, the second for 5.0.
export OMPI_MCA_btl_vader_single_copy_mechanism=none OMPI_MCA_smsc=^cma

# Open MPI 5.0 ends what it says of an abort with a null character, which is no reason to take all of it for binary.
grep() { command grep -a "$@"; }

# write_conf FILE [SED-SCRIPT]: the toy model on synthetic data, changed by the script. It takes profiles of a busy
# machine: several suites run at once.
write_conf() {
    sed "${2:-}" >"$1" <<'EOF'
run      { name = "toy"  seed = 1 }
model    { network = "toy"  classes = 5  input = {10} }
data     { source = "synthetic"  labels = "onehot"  samples = 200 }
train    { batch_size = 20  split_size = 8  steps = 3  loss = "mse"  optimizer = "sgd"  learning_rate = 0.1 }
pipeline { schedule = "1f1b"  partition = "uniform"  stages = 2  profile_spread = 1e9 }
EOF
}

# job RANKS OPTIONS...: runs it to its end in $tmp; sets $code, $took (ms); leaves $aside/out and $aside/err. RANKS
# "threads": one process with a rank a stage, which starts in a tenth of mpirun's time.
job() {
    job_ranks=$1; shift
    job_began=$(date +%s%N) code=0
    if [ "$job_ranks" = threads ]; then set -- "$mpstaged" --transport local "$@"
    else set -- mpirun_n "$job_ranks" "$mpstaged" "$@"; fi
    "$@" >"$aside/out" 2>"$aside/err" </dev/null || code=$?
    took=$((($(date +%s%N) - job_began) / 1000000))
}
# hash_of RUN: of the weights that its last part wrote
hash_of() { done_field "$1/metrics.jsonl" weights_hash | tail -n 1; }
# trains NAME RANKS OPTIONS...: that run ends well, without a word of ours; sets $hash
trains() {
    trains_name=$1; shift
    job "$@" --run-dir "$trains_name"
    hash=$(hash_of "$trains_name" 2>/dev/null || true)
    if [ "$code" -eq 0 ] && [ -n "$hash" ] && [ "$(our_lines)" -eq 0 ]; then ok "$trains_name trains, $took ms"
    else why; not_ok "$trains_name trains: $code"; fi
}
# equal TEXT A B
equal() { if [ -n "$2" ] && [ "$2" = "$3" ]; then ok "$1"; else not_ok "$1: $2 and $3"; fi; }
# soon MS: the last run took less. A machine that is busy with other things gets more:
# ten times what it takes now to start ranks that do nothing.
soon() {
    [ "$took" -ge "$1" ] || return 0
    soon_began=$(date +%s%N)
    mpirun_n 2 "$mpstaged" --version >/dev/null 2>&1 </dev/null || true
    [ "$took" -lt $(($1 + 10 * ($(date +%s%N) - soon_began) / 1000000)) ]
}
# The longest line of the standard input, in characters.
longest() { LC_ALL=C sed 's/[\x80-\xbf]//g' | LC_ALL=C awk 'length($0) > n { n = length($0) } END { print n + 0 }'; }
# Lines of stderr, but for notes that a busy machine is still at it.
said_lines() { grep -vc '^note: still ' "$aside/err" || true; }
our_lines() { grep -c '^mpstaged: ' "$aside/err" || true; }
# says_death PATTERN: our one line has it. MPICH's mpirun may kill the ranks that would say so before they do.
says_death() {
    [ "$mpi$(our_lines)" != mpich0 ] || return 0
    [ "$(our_lines)" -eq 1 ] && grep '^mpstaged: ' "$aside/err" | grep -qE "$1"
}
why() { note <"$aside/err"; }
# Ranks of jobs that were started here and are still alive.
ranks_alive() {
    for p in $(pgrep -x "${mpstaged##*/}" || true); do
        [ "$(readlink "/proc/$p/cwd" 2>/dev/null)" != "$tmp" ] || echo "$p"
    done
}

# Is none left? Processes that mpirun has killed are not gone at once on a busy machine.
nobody_left() {
    for _ in $(seq 60); do
        [ -n "$(ranks_alive)" ] || return 0
        sleep 0.05
    done
    return 1
}

# loss_bits METRICS: "STEP EVENT BITS" of each step and evaluation; of those that were done again the last time
loss_bits() {
    sed -n 's/.*"event":"\(step\|evaluation\)","step":\([0-9]*\),.*"loss_bits":"\([^"]*\)".*/\2 \1 \3/p' "$1" |
        awk '{ b[$1 " " $2] = $3 } END { for (s in b) print s, b[s] }' | LC_ALL=C sort
}

# losses RUN NAME: the largest difference of ten losses to those of $expected
losses() {
    sed -n '/"event":"step"/s/.*"loss":\([-+.0-9e]*\).*/\1/p' "$1/metrics.jsonl" >"$aside/loss"
    grep "^$2 losses " "$expected" | tr ' ' '\n' | sed 1,2d | paste "$aside/loss" - |
        awk 'NF != 2 { bad = 1 } { d = ($1 - $2) / $2; if (d < 0) d = -d; if (!(d <= worst)) worst = d }
            END { print bad || NR < 10 ? "missing" : worst + 0 }'
}

# done_field FILE KEY: a value of the last line of metrics
done_field() { sed -n '/"event":"done"/s/.*"'"$2"'":"\{0,1\}\([^",}]*\).*/\1/p' "$1"; }

# refused TEXT CODE PATTERN RANKS OPTIONS...: one line of ours with that pattern, that exit code,
# nothing created, nobody left
refused() {
    refused_text=$1 refused_code=$2 refused_pattern=$3; shift 3
    find . | LC_ALL=C sort >"$aside/before"
    job "$@"
    find . | LC_ALL=C sort >"$aside/after"
    wrong=
    [ "$code" -eq "$refused_code" ] || wrong="$wrong; exit code $code, wanted $refused_code"
    [ "$(our_lines)" -eq 1 ] || wrong="$wrong; $(our_lines) lines of ours, wanted 1"
    grep '^mpstaged: ' "$aside/err" | grep -qE -- "$refused_pattern" || wrong="$wrong; no line with $refused_pattern"
    # a start removes the why.json of an earlier one
    refused_files=$(LC_ALL=C comm -3 "$aside/before" "$aside/after" | grep -v '^\./.*/why\.json$' || true)
    [ -z "$refused_files" ] || wrong="$wrong; files were created or removed"
    nobody_left || wrong="$wrong; ranks are alive"
    if [ -z "$wrong" ]; then ok "$refused_text: $refused_code, $took ms"
    else { echo "$refused_text$wrong"; cat "$aside/err"; } | note; not_ok "$refused_text"; fi
}

# halt PID: stops a process; when this returns, none of its threads runs any more
halt() { kill -STOP "$1"; until grep -q '^State:.*T' "/proc/$1/status"; do sleep 0.02; done; sleep 0.2; }
