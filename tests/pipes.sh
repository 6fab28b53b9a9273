#!/bin/sh
# pipes.sh: a configuration that comes from a pipe is read once, and trains as from a file. Pipes and devices as other
# text files are refused at once, and never waited for.
set -eu
. "$(dirname -- "$0")/mpi_lib.sh"
write_conf toy.conf
run="--progress no --overwrite"

# piped TEXT COMMAND...: that run of toy.conf, from a pipe, ends well with the weights of one from the file
$mpstaged -c toy.conf $run --run-dir whole >"$aside/out" 2>&1
whole=$(hash_of whole)
piped() {
    text=$1 code=0; shift
    rm -rf run
    cat toy.conf | timeout -s KILL 60 "$@" >"$aside/out" 2>"$aside/err" || code=$?
    if [ "$code" -eq 0 ] && [ "$(hash_of run 2>/dev/null)" = "$whole" ]; then ok "$text"
    else why; not_ok "$text: $code"; fi
}
mkfifo fifo
piped "from standard input" "$mpstaged" -c /dev/stdin $run --run-dir run
piped "from standard input, one process under MPI" \
    "$mpstaged" -c /dev/stdin $run --run-dir run --transport mpi --stages 1
piped "from standard input, under mpirun" \
    "$MPIRUN" $mpi_options -np 2 "$mpstaged" -c /dev/stdin $run --run-dir run
cat toy.conf >fifo & piped "from a FIFO" "$mpstaged" -c fifo $run --run-dir run
code=0
cat toy.conf | "$mpstaged" -c /dev/stdin --check-config >"$aside/out" 2>"$aside/err" || code=$?
check "--check-config from a pipe: $code" [ "$code" -eq 0 ]
code=0
cat toy.conf | "$mpstaged" -c /dev/stdin --profile --run-dir profiled >"$aside/out" 2>"$aside/err" || code=$?
check "--profile from a pipe: $code" [ "$code" -eq 0 -a -s profiled/profile.json ]

# told TEXT CODE PATTERN COMMAND...: refused at once, in one line with the pattern; nothing is made
told() {
    text=$1 wanted=$2 pattern=$3 code=0; shift 3
    rm -rf run
    timeout -s KILL 20 "$@" >"$aside/out" 2>"$aside/err" </dev/null || code=$?
    if [ "$code" -eq "$wanted" ] && grep -q -- "$pattern" "$aside/err" && [ ! -e run ]; then ok "$text: $wanted"
    else why; not_ok "$text: $code"; fi
}
told "a pipe that was read before" 78 '/dev/stdin: ' \
    "$mpstaged" -c /dev/stdin --run-dir run
told "/dev/null is an empty configuration" 78 '/dev/null: model.network' \
    "$mpstaged" -c /dev/null --run-dir run
told "mpstage-run: the command has no standard input" 78 '/dev/stdin: .*pipe' \
    "$build/mpstage-run" -- "$mpstaged" -c /dev/stdin --run-dir run
told "mpstage-experiment, which starts several runs" 78 '/dev/stdin: .*pipe' \
    "$build/mpstage-experiment" -c /dev/stdin --out run
for name in /dev/fd/5 /proc/self/fd/5; do
    code=0
    MPIRUN_LIMIT=30 mpirun_n 2 "$mpstaged" -c $name --run-dir run >"$aside/out" 2>"$aside/err" 5<toy.conf || code=$?
    check "under mpirun, $name, which the launcher does not pass on: $code" \
        sh -c '[ "$1" -eq 66 ] && grep -q "passes no open files on" "$0" && [ ! -e run ]' "$aside/err" "$code"
done
for file in "$PWD/fifo" /dev/zero; do
    odd="$mpstaged -c toy.conf $run --run-dir run"
    write_conf graph.conf '/^model/c model { graph = "'"$file"'" }'
    told "$file as model.graph" 65 "$file: is not a regular file" $mpstaged -c graph.conf $run --run-dir run
    told "$file as pipeline.profile" 65 "$file: is not a regular file" $odd -o pipeline.profile=$file
    told "$file as pipeline.rows" 65 "$file: is not a regular file" \
        $odd -o pipeline.schedule=rows -o pipeline.rows=$file
    told "$file as run.init_from" 65 "$file: is not a regular file" $odd --init-from $file
    told "$file as a list of pictures" 65 "$file: neither a folder nor a list file" $odd -o data.source=images \
        -o data.train=$file -o model.input='{3,8,8}' -o model.network=resnet18 -o train.loss=cross_entropy
done
tap_done
