# Sourced by the scripts that use faults.so: a scratch directory in memory where there is one, and the checks of
# recorded commits.
scratch_enter() {
    build=$(CDPATH='' cd -- "$top_builddir" && pwd)
    scratch=$(TMPDIR=$([ -w /dev/shm ] && echo /dev/shm || echo /tmp) mktemp -d)
    trap 'rm -rf "$scratch"' EXIT
    cd "$scratch"
}
if grep -q 'define SANITIZED 1' "${build:-$top_builddir}/config.h"; then
    echo "1..0 # SKIP sanitizers come first in a process"
    exit 77
fi
# Nothing to do where mpi_lib.sh was sourced before.
[ -n "${build:-}" ] || scratch_enter

# faulty COMMAND...: with faults.so, which watches run/ and leaves `hit`
faulty() {
    MPSTAGED_FAULT_BELOW=$(pwd -P)/run MPSTAGED_FAULT_HIT=$PWD/hit LD_PRELOAD=$build/tests/faults/faults.so "$@"
}

# crashes TEXT RECORD [RUN]: every state that a power cut may leave recovers
crashes() {
    again=$(TMPDIR=$([ -w /dev/shm ] && echo /dev/shm || echo /tmp) mktemp -d)
    if "$build/tests/faults/crash" "$2" "$again" "${limit:-5000}" "" "${3:-.}" >states
    then ok "$1: $(tail -n 1 states)"
    else tail -n 60 states | note; not_ok "$1: a state does not recover"; fi
    rm -rf "$again"
}
# blind RECORD: without the syncs of files, of checkpoints' folders, of the folders above, holes are found. Two lost
# calls suffice for each; LONG=1 also loses many at a time.
blind() {
    blind_limit=100
    [ -z "${LONG:-}" ] || blind_limit=5000
    for without in files inner outer; do
        rm -rf again; mkdir again
        code=0; "$build/tests/faults/crash" "$1" again $blind_limit $without >states || code=$?
        hole=$(sed -n 's/^# hole: //p' states)
        if [ $code -eq 1 ] && [ -n "$hole" ]; then ok "without syncs of $without: $hole"
        else note <states; not_ok "without syncs of $without nothing is found: $code"; fi
    done
}
