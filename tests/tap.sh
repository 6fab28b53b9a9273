# Sourced by the test scripts: results in TAP ("ok 1 - text"),
# which tests/summary counts and `make check` judges by the exit status.
tap_n=0 tap_bad=0
ok() { tap_n=$((tap_n + 1)); echo "ok $tap_n - $*"; }
not_ok() { tap_n=$((tap_n + 1)); tap_bad=$((tap_bad + 1)); echo "not ok $tap_n - $*"; }
skip() { tap_n=$((tap_n + 1)); echo "ok $tap_n - $1 # SKIP $2"; }
# check TEXT COMMAND...: ok if the command succeeds
check() { tap_text=$1; shift; if "$@"; then ok "$tap_text"; else not_ok "$tap_text"; fi; }
# until_ok COMMAND...: tries it until it succeeds, for 20 s at most
until_ok() { for _ in $(seq 400); do ! "$@" || return 0; sleep 0.05; done; return 1; }
# Why a check failed goes to stdout as a comment, so that it stays next to its line.
note() { sed 's/^/# /'; }
# cases FEW MORE: the words of FEW, and with LONG=1 in the environment those of MORE: in check-long
cases() { echo "$1${LONG:+ $2}"; }
# python_has MODULE...: that $python, or Debian's, finds them. To import torch would take a second.
python_has() {
    "${python:-/usr/bin/python3}" -c 'import sys, importlib.util
sys.exit(not all(map(importlib.util.find_spec, sys.argv[1:])))' "$@"
} 2>/dev/null
# results_of FILE: the lines "ok - text" and "not ok - text" that a program has left there; the others are comments
results_of() {
    while read -r line; do
        case $line in "ok - "*) ok "${line#ok - }" ;; "not ok - "*) not_ok "${line#not ok - }" ;;
            *) echo "# $line" ;; esac
    done <"$1"
}
tap_done() { echo "1..$tap_n"; [ "$tap_bad" -eq 0 ]; exit $?; }

# Open MPI's hwloc looks for X displays at every start, over TCP too;
# where "localhost" takes a name server to resolve, that costs 5 s.
export HWLOC_COMPONENTS="${HWLOC_COMPONENTS--gl}"

# mpirun as the ranks of a test want it: as root too, on any number of cores, without binding two ranks to one core;
# for MPIRUN_LIMIT seconds at most. mpi_rank: the variable that has a rank's number.
: "${MPIRUN:=mpirun}"
mpi_find() {
    case $(readlink -f "$(command -v "${MPIRUN%% *}")") in
        *hydra*) mpi=mpich mpi_rank=PMI_RANK mpi_options= ;;
        *) mpi=openmpi mpi_rank=OMPI_COMM_WORLD_RANK mpi_options="--oversubscribe --bind-to none"
            [ "$(id -u)" -ne 0 ] || mpi_options="--allow-run-as-root $mpi_options" ;;
    esac
}
mpi_find
mpirun_n() {
    mpirun_ranks=$1; shift
    if [ -z "${MPIRUN_LIMIT:-}" ]; then "$MPIRUN" $mpi_options -np "$mpirun_ranks" "$@"
    else timeout -k 5 "$MPIRUN_LIMIT" "$MPIRUN" $mpi_options -np "$mpirun_ranks" "$@"; fi
}
# death SIGNAL: the status of mpirun when that signal, a number, has ended a rank
death() { if [ "$mpi" = mpich ]; then echo "$1"; else echo $((128 + $1)); fi; }
