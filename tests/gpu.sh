#!/bin/sh
# gpu.sh: what tests/gpu and bench/gpu do without a GPU: the program operators on the CPU's backend, the judges and fits
# on made-up figures, the scripts where there is no GPU, and a run from a pack that sees none of the installed Open MPI.
set -eu
: "${srcdir:=.}" "${top_builddir:=.}"
here=$(CDPATH='' cd -- "$(dirname -- "$0")" && pwd)
. "$here/tap.sh"
build=$(CDPATH='' cd -- "$top_builddir" && pwd)
tmp=$(mktemp -d)
trap 'rm -rf "$tmp"' EXIT
export OMPI_MCA_btl_vader_single_copy_mechanism=none

# ---- operators -------------------------------------------------------------------------------------------------------
operators() { "$build/tests/gpu/operators" --quick "$@" >"$tmp/operators" 2>"$tmp/err"; }
if operators --backend onednn; then
    ok "onednn's operators agree with the reference, $(grep -c '^[a-z]' "$tmp/operators") results"
else grep BEYOND "$tmp/operators" | note; note <"$tmp/err"; not_ok "onednn's operators agree with the reference"; fi
check "each is printed with its error and limit" \
    sh -c 'grep -v "^#" "$0" | grep -vqE "^[a-z_0-9+]+ [a-z+]+ (fp32|bf16) [0-9.e-]+ [0-9.e-]+ [0-9]+ ." &&
        exit 1; grep -q "^batch_norm+add+relu over fp32" "$0"' "$tmp/operators"
code=0; operators --backend onednn --limit 1e-9 || code=$?
check "an error beyond the limit is a failure" [ "$code" -eq 1 ]
check "and it is named" grep -q '^conv forward .* BEYOND$' "$tmp/operators"
code=0; operators --backend onednn --precision tf32 || code=$?
check "a precision that the backend does not have is a failure" [ "$code" -eq 1 ]
code=0; operators --backend onednn --table "$tmp/none" || code=$?
check "a kernel table for a backend that has none is a mistake on the command line" [ "$code" -eq 64 ]
code=0; operators --backend abacus || code=$?
check "an unknown backend is a mistake on the command line" [ "$code" -eq 64 ]

# Backend cuda's host code, its kernels compiled for the host, doubles for the libraries:
# layouts, types, graphs and accumulation before a GPU sees them.
if [ -x "$build/tests/gpu/operators-double" ]; then
    for p in $(cases bf16 fp32); do
        set -- --quick --backend cuda --precision $p
        [ $p = fp32 ] || set -- "$@" --table "$tmp/table"      # measured kernels for one of the convolutions
        code=0; "$build/tests/gpu/operators-double" "$@" >"$tmp/operators" 2>"$tmp/err" || code=$?
        if [ "$code" -eq 0 ]; then ok "cuda's operators over the doubles agree with the reference in $p, $(grep -c \
            '^[a-z]' "$tmp/operators") results"
        else grep BEYOND "$tmp/operators" | note; note <"$tmp/err"
            not_ok "cuda's operators over the doubles agree with the reference in $p: status $code"; fi
    done
    check "a missing kernel table is measured" grep -q 'n4 c16>32 8x8 pass 2+: loops' "$tmp/table"
    check "recorded runs are among them" grep -q "^conv replay $p 0 0 " "$tmp/operators"
else
    skip "cuda's operators over the doubles" "no C++ compiler when this was configured: apt-get install g++"
fi

# ---- judges, fits, budgets -------------------------------------------------------------------------------------------
if command -v python3 >/dev/null; then
    python3 "$here/gpu/try.py" >"$tmp/try" 2>"$tmp/err" || echo "not ok - try.py ends well" >>"$tmp/try"
    note <"$tmp/err"
    while read -r line; do
        case $line in "ok - "*) ok "${line#ok - }" ;; *) not_ok "${line#not ok - }" ;; esac
    done <"$tmp/try"
    code=0; quick=yes sh "$here/gpu/run" --build "$build" --device cpu --out "$tmp/results" inventory loss volumes \
        >"$tmp/run" 2>&1 </dev/null || code=$?
    if [ "$code" -eq 0 ] && grep -q 'a rank is killed, all end' "$tmp/run" &&
        grep -q 'V-Net: equal weights over 3 runs' "$tmp/run"; then ok "tests/gpu/run on the CPU"
    else note <"$tmp/run"; not_ok "tests/gpu/run on the CPU: status $code"; fi
    # Plain loops take minutes for these.
    if [ -z "${LONG:-}" ]; then skip "tests/gpu/run volumes, replicas over the doubles" "LONG=1 asks for it"
    elif [ ! -x "$build/tests/gpu/mpstaged-double" ]; then
        skip "tests/gpu/run volumes, replicas over the doubles" \
            "no C++ compiler when this was configured: apt-get install g++"
    else
        code=0; quick=yes MPSTAGED_PROGRAM=$build/tests/gpu/mpstaged-double sh "$here/gpu/run" --build "$build" \
            --out "$tmp/results" volumes replicas >"$tmp/run" 2>&1 </dev/null || code=$?
        if [ "$code" -eq 0 ] && grep -q 'V-Net: equal weights over 4 runs' "$tmp/run" &&
            grep -q 'in bf16, each loss against fp32: within' "$tmp/run"; then
            ok "tests/gpu/run volumes over the doubles"
        else note <"$tmp/run"; not_ok "tests/gpu/run volumes over the doubles: status $code"; fi
        if [ "$code" -eq 0 ] && grep -q 'in fp32, replicas: equal weights over 7 runs' "$tmp/run" &&
            grep -q 'two GPUs: the weights of one over 4 runs' "$tmp/run"; then
            ok "tests/gpu/run replicas over the doubles"
        else note <"$tmp/run"; not_ok "tests/gpu/run replicas over the doubles: status $code"; fi
    fi
    if nvidia-smi -L >/dev/null 2>&1; then skip "tests/gpu/run without a GPU" "there is one"
    else
        code=0; sh "$here/gpu/run" --build "$build" --out "$tmp/results" >"$tmp/run" 2>&1 </dev/null || code=$?
        if [ "$code" -eq 0 ] && [ "$(grep -c '# SKIP' "$tmp/run")" -ge 8 ] && ! grep -q '^not ok' "$tmp/run"; then
            ok "tests/gpu/run without a GPU skips aloud"
        else note <"$tmp/run"; not_ok "tests/gpu/run without a GPU skips aloud: status $code"; fi
    fi
else
    skip "judges, fits and tests/gpu/run" "apt-get install python3"
fi
for tool in run pack; do
    check "tests/gpu/$tool --help fits 80 columns" sh -c '"$0" --help >"$1" && [ "$(wc -l <"$1")" -gt 5 ] &&
        ! grep -E ".{81}" "$1"' \
        "$here/gpu/$tool" "$tmp/help"
done
# refused TEXT COMMAND...: with one line and status 66
refused() {
    text=$1; shift
    code=0; "$@" >"$tmp/out" 2>&1 || code=$?
    if [ "$code" -eq 66 ] && [ "$(grep -c . "$tmp/out")" -eq 1 ]; then ok "$text"
    else note <"$tmp/out"; not_ok "$text: status $code"; fi
}
refused "tests/gpu/run: a build that is not there" "$here/gpu/run" --build "$tmp/none" --out "$tmp/none"
refused "tests/gpu/run: a folder that is no pack" "$here/gpu/run" --pack "$tmp" --out "$tmp/none"
refused "tests/gpu/pack: a folder where nothing was built" "$here/gpu/pack" "$tmp" "$tmp/none"
code=0; sh "$here/gpu/run" --build "$build" --device cpu --out "$tmp/results" dancing >"$tmp/run" 2>&1 || code=$?
check "an unknown section is a mistake on the command line" [ "$code" -eq 64 ]

# ---- the pack --------------------------------------------------------------------------------------------------------
code=0; sh "$here/gpu/pack" "$build" "$tmp/mpstaged-gpu.tar.gz" >"$tmp/out" 2>&1 || code=$?
if [ "$code" -eq 1 ] && grep -q "is not Open MPI 4's" "$tmp/out"; then
    skip "a pack" "it is made with Open MPI 4.1"; tap_done
fi
if [ "$code" -ne 0 ]; then note <"$tmp/out"; not_ok "a pack is made"; tap_done; fi
ok "a pack is made: $(sed 's/.*gz: //' "$tmp/out")"
mkdir "$tmp/there" "$tmp/work"
cat >"$tmp/there/try" <<'END'
set -eu
cd "$1"
MPSTAGED_PACK=$2 MPSTAGED_UNPACKED=$1/pack
. "$3"
echo "plugins $OPAL_PKGLIBDIR"
ldd "$MPSTAGED_GPU/build/mpstaged" | grep -E 'lib(mpi|uv|dnnl|jansson|xxhash|hwloc|event_core)[-.]'
exec mpirun -np 2 "$MPSTAGED_GPU/build/mpstaged" -c "$MPSTAGED_GPU/conf/toy.conf" --device cpu --steps 3 \
    --run-dir run --progress no
END
# An environment that knows nothing, and a PATH without our mpirun.
mkdir "$tmp/bin"
for p in sh env tar gzip mktemp mkdir cp cat grep ldd ldconfig python3 ip dirname pwd timeout uname nproc; do
    if command -v $p >/dev/null; then ln -s "$(command -v $p)" "$tmp/bin/$p"; fi
done
code=0
env -i PATH="$tmp/bin" HOME="$tmp" TMPDIR="$tmp" MPIEXEC_TIMEOUT=300 sh "$tmp/there/try" "$tmp/work" \
    "$tmp/mpstaged-gpu.tar.gz" "$here/gpu/env.sh" >"$tmp/out" 2>&1 </dev/null || code=$?
if [ "$code" -eq 0 ] && [ -s "$tmp/work/run/weights.safetensors" ]; then ok "two ranks train from the pack"
else note <"$tmp/out"; not_ok "two ranks train from the pack: status $code"; fi
check "with the libraries in it" sh -c '[ "$(grep -c " => $1/" "$0")" -ge 6 ] &&
        ! grep -E "^[[:space:]]*lib.* => /(usr|lib)" "$0"' "$tmp/out" "$tmp/work/pack/lib"
"$build/mpstaged" -c "$srcdir/conf/toy.conf" --transport local --steps 3 --run-dir "$tmp/direct" --progress no \
    >"$tmp/out" 2>&1 || note <"$tmp/out"
code=0
env -i PATH="$tmp/bin" HOME="$tmp" TMPDIR="$tmp" PYTHON=none "$(python3 -c 'import sys; print(sys.executable)')" \
    "$here/gpu/hour" first --pack "$tmp/mpstaged-gpu.tar.gz" --device cpu --tiny --out "$tmp/hour" \
    --only inventory --only toy --only ranks-staged --only ranks-four >"$tmp/out" 2>&1 </dev/null || code=$?
if [ "$code" -eq 0 ] && [ "$(grep -c '^ok ' "$tmp/out")" -eq 4 ]; then ok "lines of tests/gpu/hour from the pack"
else note <"$tmp/out"; not_ok "lines of tests/gpu/hour from the pack: $code"; fi
check "and to the bit what the build itself trains" cmp "$tmp/work/run/weights.safetensors" \
    "$tmp/direct/weights.safetensors"
tap_done
