#!/bin/sh
# outputs.sh: every file that the programs make, and what may be there under its name: a link, a FIFO, a device, a
# folder, another file's second name; a folder that may not be written, a disk that is full,
# a folder that gets another name. The table is in docs/files.md.
set -eu
. "$(dirname -- "$0")/mpi_lib.sh"
write_conf toy.conf
echo precious >"$aside/victim"

# ---- what may be in the way ------------------------------------------------------------------------------------------
# obstacle KIND PATH: 1 if this user cannot make such a thing
obstacle() {
    cp "$aside/victim" victim
    case $1 in
    symlink) ln -s "$tmp/victim" "$2" ;;
    dangling) ln -s "$tmp/nowhere" "$2" ;;
    fifo) mkfifo "$2" ;;
    device) mknod "$2" c 1 3 2>/dev/null || return 1 ;;
    folder) mkdir "$2" ;;
    hardlink) ln victim "$2" ;;
    esac
}
look() { find . ! -name err ! -name out -printf '%p %y %s %l\n' 2>/dev/null | LC_ALL=C sort; }
# blocked TEXT KIND PATH OPTIONS...: refused with 73 in one line that names the file,
# before anything is made, and nothing is changed
blocked() {
    text="$1, $2"; kind=$2 path=$3; shift 3
    if ! obstacle "$kind" "$path"; then rm -rf "$path" victim; skip "$text" "mknod is not permitted"; return 0; fi
    look >"$aside/before"
    code=0
    timeout -s KILL 20 "$@" >"$aside/out" 2>"$aside/err" </dev/null || code=$?
    look >"$aside/after"
    if [ "$code" -eq 73 ] && [ "$(grep -c "$(basename "$path")" "$aside/err")" -ge 1 ] &&
        cmp -s victim "$aside/victim" && cmp -s "$aside/before" "$aside/after"
    then ok "$text: 73"
    else { echo "exit $code"; diff "$aside/before" "$aside/after" || true; cat "$aside/err"; } |
        note; not_ok "$text"; fi
    rm -rf "$path" victim
}
# spared TEXT PATH OPTIONS...: a hard link is replaced, and the file keeps its contents under its other name
spared() {
    text="$1, hard link" path=$2; shift 2
    obstacle hardlink "$path"
    code=0
    "$@" >"$aside/out" 2>"$aside/err" </dev/null || code=$?
    if [ "$code" -eq 0 ] && cmp -s victim "$aside/victim" && ! cmp -s "$path" victim; then
        ok "$text: its other name stays"
    else why; not_ok "$text: $code"; fi
    rm -rf "$path" victim
}

run="$mpstaged -c toy.conf --transport local --progress no --overwrite"
$run --run-dir made >"$aside/out" 2>&1
for kind in symlink dangling fifo device folder; do
    blocked "--trace" $kind t.json $run --run-dir new --trace t.json
    blocked "--dump-gradients" $kind g.st $run --run-dir new --dump-gradients ./g.st
    blocked "--draw-schedule" $kind p.svg "$mpstaged" -c toy.conf --draw-schedule=p.svg
    blocked "--write-onnx" $kind n.onnx "$mpstaged" -c toy.conf --init-from made --write-onnx n.onnx
    blocked "--write-config" $kind found.conf "$mpstaged" -c toy.conf --plan=search --stages 2 --write-config found.conf
    mkdir here
    for name in metrics.jsonl weights.safetensors weights.safetensors.old mpstaged.log lock control.sock; do
        blocked "$name" $kind here/$name $run --run-dir here
    done
    blocked "profile.json" $kind here/profile.json $run --run-dir here --profile
    rmdir here
done
mkdir here
blocked "lock" hardlink here/lock $run --run-dir here
rm -rf here
spared "--trace" t.json $run --run-dir run --trace t.json
spared "--dump-gradients" g.st $run --run-dir run --dump-gradients g.st
spared "--draw-schedule" p.svg "$mpstaged" -c toy.conf --draw-schedule=p.svg
spared "--write-onnx" n.onnx "$mpstaged" -c toy.conf --init-from made --write-onnx n.onnx
for name in metrics.jsonl weights.safetensors mpstaged.log; do
    rm -rf here
    mkdir here
    spared "$name" here/$name $run --run-dir here
done
rm -rf here
mkdir here
spared "profile.json" here/profile.json $run --run-dir here --profile
rm -rf here run

# ---- names that nothing can take -------------------------------------------------------------------------------------
# Found before the run begins, not when all is computed.
code=0
$run --run-dir new --trace /proc/mpstaged-t >"$aside/out" 2>"$aside/err" || code=$?
check "a trace where no files are made: $code" [ "$code" -eq 73 -a ! -e new ]
if unshare -m true 2>/dev/null; then
    mkdir here; : >mounted; : >t.json; : >here/weights.safetensors
    for what in t.json here/weights.safetensors; do
        code=0
        unshare -m sh -c 'mount --bind mounted "$1" && shift && exec "$@"' sh $what $run --run-dir here --trace t.json \
            >"$aside/out" 2>"$aside/err" || code=$?
        if [ "$code" -eq 73 ] && grep -q "$what: .*mount point" "$aside/err" &&
            [ ! -e here/metrics.jsonl ]; then ok "$what is a mount point: 73"
        else why; not_ok "$what is a mount point: $code"; fi
    done
    rm -rf here mounted t.json
else skip "names that are mount points" "unshare is not permitted"; fi

# ---- what is read ----------------------------------------------------------------------------------------------------
# kept TEXT PATTERN FILE OPTIONS...: 73, and the file is what it was
kept() {
    text=$1 pattern=$2 file=$3; shift 3
    cp "$file" "$aside/kept"
    code=0
    "$@" >"$aside/out" 2>"$aside/err" </dev/null || code=$?
    if [ "$code" -eq 73 ] && grep -q -- "$pattern" "$aside/err" && cmp -s "$file" "$aside/kept"; then ok "$text: 73"
    else why; not_ok "$text: $code"; fi
}
$run --run-dir first >"$aside/out" 2>&1
weights=first/weights.safetensors
kept "a trace over the configuration" 'the configuration' toy.conf $run --run-dir new --trace ./toy.conf
kept "gradients over the configuration, by another path" 'the configuration' \
    toy.conf $run --run-dir new --dump-gradients "$tmp/toy.conf"
$run --run-dir costs --profile >"$aside/out" 2>&1
kept "a picture over the profile" 'pipeline.profile' costs/profile.json "$mpstaged" \
    -c toy.conf -o pipeline.profile=costs/profile.json --draw-schedule=costs/profile.json
kept "a trace over the weights to start from" 'run.init_from' \
    $weights $run --run-dir new --init-from $weights --trace $weights
kept "gradients over the weights of a run to start from" 'run.init_from' \
    $weights $run --run-dir new --init-from first --dump-gradients $weights
kept "one name for two files" 'run.trace.*run.dump_gradients' \
    toy.conf $run --run-dir new --trace x --dump-gradients "$tmp/x"
kept "a trace in place of the run directory" 'new: run.trace' toy.conf $run --run-dir new --trace new
kept "gradients in place of a folder above it" 'new: run.dump_gradients' \
    toy.conf $run --run-dir new/x --dump-gradients ./new
ln -s nowhere dangling
kept "a run directory that is a link to nothing" 'dangling: .*symbolic link' toy.conf $run --run-dir dangling
kept "--check-config of that" 'dangling: .*symbolic link' toy.conf $run --run-dir dangling --check-config
rm dangling
kept "--write-config with an empty name" 'empty' toy.conf "$mpstaged" \
    -c toy.conf --plan=search --stages 2 --write-config ""
kept "a file of the run, which is not there yet" 'new/lock: run.trace' toy.conf $run --run-dir new --trace ./new/lock
mkdir own
cp toy.conf own/mpstaged.log
kept "the log over the configuration" 'the configuration' own/mpstaged.log "$mpstaged" \
    -c own/mpstaged.log --transport local --run-dir own
rm -r own
check "nothing was made" [ ! -e new ]
kept "one name for two files of a run directory that is not there yet" 'run.trace.*run.dump_gradients' \
    toy.conf $run --run-dir new/.. --trace x --dump-gradients x
check "nothing was made" [ ! -e new ]
long=$(printf '%0300d' 0)
for mode in "" --check-config; do
    kept "a trace with a name of 300 characters${mode:+, $mode}" 'File name too long' \
        toy.conf $run $mode --run-dir new --trace "$long"
    kept "a run directory with such a name${mode:+, $mode}" 'File name too long' \
        toy.conf $run $mode --run-dir "none/$long"
    kept "a run of such a name${mode:+, $mode}" 'File name too long' toy.conf $run $mode -o "run.name=$long"
    kept "a trace into a folder that is not there${mode:+, $mode}" 'No such file' \
        toy.conf $run $mode --run-dir new --trace none/t
done
check "nothing was made" [ ! -e new -a ! -e none -a ! -e runs ]
for name in new/g ./new/g "$tmp/new/g" new/../new/g; do
    code=0
    $run --run-dir new --dump-gradients $name >"$aside/out" 2>"$aside/err" || code=$?
    check "gradients into the run directory that is made, as $name" [ "$code" -eq 0 -a -s new/g ]
    rm -rf new
done
code=0
timeout 20 "$mpstaged" -c toy.conf --transport local --run-dir first --trace t.json \
    >"$aside/out" 2>"$aside/err" || code=$?
check "a refused directory stays as it was: $code" [ "$code" -eq 73 -a -s first/metrics.jsonl ]

# ---- folders that may not be written ---------------------------------------------------------------------------------
# Root may write everywhere, unless that right is taken from it.
if [ "$(id -u)" -ne 0 ]; then plainly=
elif setpriv --bounding-set=-dac_override true 2>/dev/null; then plainly="setpriv --bounding-set=-dac_override"
else plainly=no; fi
if [ "$plainly" = no ]; then skip "folders without permission to write" "root, and no setpriv"
else
    mkdir -p closed/run
    chmod 555 closed/run closed
    for what in "--trace closed/t" "--dump-gradients closed/g" "--run-dir closed/new" "--run-dir closed/run" \
        "--profile --run-dir closed/run"; do
        code=0
        $plainly $run --run-dir new $what >"$aside/out" 2>"$aside/err" || code=$?
        if [ "$code" -eq 73 ] && grep -q 'closed.*Permission denied' "$aside/err" &&
            [ ! -e new ]; then ok "$what, read-only: 73"
        else why; not_ok "$what, read-only: $code"; fi
    done
    chmod 755 closed closed/run
    # Checkpoints that could not be written are told of before the run, not after hours of it.
    mkdir closed/run/checkpoints
    chmod 555 closed/run/checkpoints
    for what in --check-config --resume; do
        code=0
        $plainly "$mpstaged" -c toy.conf --transport local --run-dir closed/run -o checkpoint.every_steps=1000 $what \
            >"$aside/out" 2>"$aside/err" || code=$?
        if [ "$code" -eq 73 ] && [ "$(our_lines)" -eq 1 ] && [ ! -e closed/run/metrics.jsonl ] &&
            grep -q 'closed/run/checkpoints: .*Permission denied' "$aside/err"
        then ok "checkpoints, read-only, $what: 73"
        else why; not_ok "checkpoints, read-only, $what: $code"; fi
    done
    code=0
    $plainly $run --run-dir closed/run >"$aside/out" 2>"$aside/err" || code=$?
    check "but a run that writes none trains: $code" [ "$code" -eq 0 ]
    chmod 755 closed/run/checkpoints
    # One that may be written but not read: nothing but the last fsync needs more.
    mkdir blind
    chmod 333 blind
    code=0
    $plainly $run --run-dir new --trace blind/t >"$aside/out" 2>"$aside/err" || code=$?
    check "--trace into a folder that cannot be read" [ "$code" -eq 0 -a -s blind/t ]
    chmod 755 blind
    rm -rf closed blind new
fi

# ---- a folder that gets another name while it is used ----------------------------------------------------------------
"$mpstaged" -c toy.conf --transport local --progress no --steps 100000000 -o service.log_every=0 --run-dir one \
    --trace ./t.json >"$aside/out" 2>"$aside/err" & pid=$!
timeout 100 "$mpstaged" -c toy.conf --transport local --progress no --steps 100000000 --run-dir three \
    -o service.log_every=0 -o checkpoint.every_steps=500 -o run.seed=2 >/dev/null 2>"$aside/err3" & pid3=$!
for _ in $(seq 200); do [ -s one/metrics.jsonl ] && [ -d three/checkpoints ] && break; sleep 0.05; done
mv one two
mv three four
$run --steps 3 --run-dir three -o checkpoint.every_steps=1 >/dev/null 2>&1 || true
code=0
wait $pid3 || code=$?
check "a run that checkpoints ends, once it was renamed: $code" [ "$code" -eq 74 ]
check "it says why" grep -q '^mpstaged: .*three: ' "$aside/err3"
check "checkpoints of another run under its old name stay" \
    [ "$(cd three/checkpoints && echo *)" = "step-00000001 step-00000002 step-00000003" ]
"$mpstagectl" verify three >/dev/null || not_ok "and are sound"
rm -rf three four
mkdir one
code=0
$run --steps 3 --run-dir one >"$aside/out2" 2>&1 || code=$?
check "another run in a directory of the old name: $code" [ "$code" -eq 0 ]
cp one/weights.safetensors "$aside/weights"
"$mpstagectl" two stop >/dev/null
code=0
wait $pid || code=$?
check "a run whose directory was renamed ends well: $code" [ "$code" -eq 0 ]
check "its weights are in its directory" [ -s two/weights.safetensors ]
check "and those of the other stay" cmp -s one/weights.safetensors "$aside/weights"
rm -rf one two

# Something comes under the weights' name while the run goes on.
"$mpstaged" -c toy.conf --transport local --progress no --steps 100000000 -o service.log_every=0 --run-dir one \
    >"$aside/out" 2>"$aside/err" & pid=$!
for _ in $(seq 200); do [ -s one/metrics.jsonl ] && break; sleep 0.05; done
mkdir one/weights.safetensors
for _ in $(seq 200); do ! "$mpstagectl" one stop >/dev/null 2>&1 || break; sleep 0.05; done
code=0
wait $pid || code=$?
left=$(sed -n 's/.*the new content is in \(one.*\.whole\).*/\1/p' "$aside/err")
if [ "$code" -eq 73 ] && [ -n "$left" ] && [ -s "$left" ]; then ok "weights that cannot get their name are not lost: 73"
else why; not_ok "weights that cannot get their name are not lost: $code"; fi
rm -rf one

# ---- full disks ------------------------------------------------------------------------------------------------------
# A limit on the size of files is what everybody can try.
cat >wide.conf <<'END'
run      { name = "wide" }
model    { network = "mlp"  input = {64}  hidden = {512, 512}  classes = 5 }
data     { source = "synthetic"  samples = 200 }
train    { batch_size = 20  split_size = 10  steps = 3  optimizer = "sgd"  learning_rate = 0.1 }
pipeline { stages = 2 }
END
wide="$mpstaged -c wide.conf --transport local --progress no"
# limited TEXT KIB FILE OPTIONS...: 74 that names the file, the metrics whole with their last line,
# and no other file left over
limited() {
    text=$1 kib=$2 file=$3; shift 3
    code=0
    rm -rf run
    # In blocks of 512 bytes, which is what every shell counts.
    (ulimit -f $((kib * 2)); exec "$@") >"$aside/out" 2>"$aside/err" || code=$?
    wrong=
    [ "$code" -eq 74 ] || wrong="$wrong; exit code $code"
    [ "$(our_lines)" -ge 1 ] && grep '^mpstaged: ' "$aside/err" | grep -q "$file.*File too large" ||
        wrong="$wrong; no line that names $file"
    [ "$(tail -c 1 run/metrics.jsonl | od -An -c | tr -d ' ')" = '\n' ] || wrong="$wrong; half a line"
    tail -n 1 run/metrics.jsonl | grep -q '"event":"failed","code":74' || wrong="$wrong; no last line"
    [ -z "$(find . -name '.mpstaged-*')" ] || wrong="$wrong; something is left"
    [ -z "$wrong" ] && ok "$text: 74" || { echo "$wrong"; cat "$aside/err"; } | note
    [ -z "$wrong" ] || not_ok "$text"
}
limited "weights that are too large" 512 weights.safetensors $wide --run-dir run
check "they are not there" [ ! -e run/weights.safetensors ]
limited "gradients that are too large" 512 g.st $wide --run-dir run --dump-gradients g.st
check "they are not there" [ ! -e g.st ]
limited "metrics that are too large" 128 metrics.jsonl $run --steps 100000 -o service.log_every=0 --run-dir run
rm -rf run

# And a disk that really is full, where this user may have one.
if unshare -m true 2>/dev/null; then alone="unshare -m"
elif unshare -rm true 2>/dev/null; then alone="unshare -rm"
else alone=no; fi
if [ "$alone" = no ] || ! $alone sh -c 'mkdir disk && mount -t tmpfs -o size=64k none disk' 2>/dev/null; then
    skip "full disks" "no file system can be mounted here"
else
    # full TEXT KIB FILE OPTIONS...: the same on a disk with so much room, which holds all that is written
    full() {
        text=$1 kib=$2 file=$3; shift 3
        code=0
        $alone sh -c 'mount -t tmpfs -o size='"$kib"'k none disk && cp *.conf disk && cd disk && {
            code=0; "$@" || code=$?; ls -A run; tail -n 2 run/metrics.jsonl
            [ ! -e g.st ] && [ ! -e t.json ] && [ ! -e run/weights.safetensors ] && echo nothing else; exit $code; }' \
                sh "$@" >"$aside/out" 2>"$aside/err" || code=$?
        if [ "$code" -eq 74 ] && grep '^mpstaged: ' "$aside/err" | grep -q "$file.*No space left" &&
            grep -q '^nothing else' "$aside/out" &&
            grep -q '^{"event":"failed","code":74.*}$' "$aside/out" &&
            ! grep -q '^\.mpstaged' "$aside/out"; then ok "$text: 74"
        else { echo "exit $code"; cat "$aside/out" "$aside/err"; } | note; not_ok "$text"; fi
    }
    full "no room for weights" 1000 weights.safetensors $wide --run-dir run
    full "no room for gradients" 1000 g.st $wide --run-dir run --dump-gradients g.st
    full "no room for metrics" 400 metrics.jsonl $run --steps 100000 -o service.log_every=0 --run-dir run
    code=0                                                # a trace is written when all else is done
    $alone sh -c 'mount -t tmpfs -o size=632k none disk && cp *.conf disk && cd disk && {
            code=0; "$@" || code=$?; ls -A . run; exit $code; }' sh \
        $run --steps 400 --run-dir run --trace t.json -o run.trace_steps=300 -o service.log_every=0 \
        >"$aside/out" 2>"$aside/err" || code=$?
    if [ "$code" -eq 74 ] && grep -q '^mpstaged: t.json: No space left' "$aside/err" &&
        ! grep -qE '^(t.json|.mpstaged)' "$aside/out" &&
        grep -q '^weights.safetensors$' "$aside/out"; then ok "no room for a trace: 74, and the weights are there"
    else { echo "exit $code"; cat "$aside/out" "$aside/err"; } | note; not_ok "no room for a trace"; fi
fi
rm -rf disk

# ---- mpstage-experiment ----------------------------------------------------------------------------------------------
experiment="$build/mpstage-experiment -c toy.conf --overwrite --no-profile --repeat 1 --steps 1 --warm-up 0 --splits 10
    --no-plots --out e"
for kind in symlink fifo device; do
    for name in results.csv results.json; do
        mkdir e
        blocked "mpstage-experiment, $name" $kind e/$name $experiment
        rm -rf e
    done
done
check "no job is left" nobody_left
tap_done
