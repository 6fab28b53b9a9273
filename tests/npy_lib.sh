# Sourced after mpi_lib.sh: NPY files of samples of 10 numbers, some of them spoiled.

# floats N SEED: little-endian numbers, each one of -1, -0.5, 0.5 and 1
floats() {
    # shellcheck disable=SC2059
    printf "$(awk -v n="$1" -v x="$2" 'BEGIN {
        split("\\000\\000\\200\\277 \\000\\000\\000\\277 \\000\\000\\000\\077 \\000\\000\\200\\077", f, " ")
        for (i = 0; i < n; i++) { x = (x * 75 + 74) % 65537; printf "%s", f[x % 4 + 1] }
    }')"
}
# npy FILE SHAPE: the numbers of the standard input
npy() {
    {
        printf '\223NUMPY\001\000\166\000%-117s\n' "{'descr': '<f4', 'fortran_order': False, 'shape': ($2), }"
        cat
    } >"$1"
}
# spoiled FILE NUMBER [COUNT [FIRST]]: x.npy, in which COUNT samples from FIRST on are that number, which printf knows
spoiled() {
    n=${3:-1} first=${4:-45}
    # shellcheck disable=SC2059
    { head -c $((128 + first * 40)) x.npy; for _ in $(seq $((n * 10))); do printf "$2"; done
      tail -c +$((129 + (first + n) * 40)) x.npy; } >"$1"
}
