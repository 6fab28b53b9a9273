#!/bin/sh
# anyway.sh: --resume=force takes what fits of a checkpoint. Other state begins anew, with a note: the optimizer's
# buffers with zeros, averages with the weights, layers of other shapes as in a new run.
set -eu
. "$(dirname -- "$0")/mpi_lib.sh"
write_conf run.conf 's/steps = 3/steps = 8  momentum = 0.9/
    $a checkpoint { every_steps = 4 }\nservice { progress = no  log_every = 0 }'

# run DIR OPTIONS...: on threads; $code
run() {
    run_dir=$1; shift
    code=0; "$mpstaged" -c run.conf --run-dir "$run_dir" "$@" >"$aside/out" 2>"$aside/err" </dev/null || code=$?
}
# changed TEXT NOTE OPTIONS...: refused by --resume with a way out; with anyway it goes on for four steps and says so
changed() {
    changed_text=$1 changed_note=$2; shift 2
    rm -rf r; cp -r base r
    run r --resume --steps 12 "$@"
    said=$(grep -c -- '--resume=force resumes nevertheless, with what fits: .* tensors are read' "$aside/err" || true)
    equal "$changed_text is refused, and how to go on is said" "$code $said" "78 1"
    run r --resume=force --steps 12 "$@"
    if [ "$code" -eq 0 ] && [ "$(done_field r/metrics.jsonl steps | tail -n 1)" = 12 ] &&
        grep -qE "note: state differs from an uninterrupted run: .*step-00000008: $changed_note" r/mpstaged.log
    then ok "$changed_text goes on anyway"
    else why; grep -h note: r/mpstaged.log | note; not_ok "$changed_text goes on anyway: $code"; fi
}
last() { hash_of "$1" | tail -n 1; }

run base
check "a run with momentum" [ "$code" -eq 0 ]
changed "a new average" '[0-9]+ of [0-9]+ tensors are read; new: [^ ]*.ema, ' -o train.ema=0.9
changed "another optimizer" '.*new: [^ ]*.exp_avg, .*left out: .*.momentum_buffer' -o train.optimizer=adamw \
    -o train.momentum=0
changed "no momentum" '.*read; left out: .*.momentum_buffer' -o train.momentum=0
changed "a frozen layer" '.*read; left out: .*.momentum_buffer' -o 'train.freeze={"net1"}'
changed "another head" '.*new: [^ ]*.weight \(.* there\)' -o model.classes=7
mv base base.kept
run base -o 'train.freeze={"net1"}'
changed "a layer that is no longer frozen" '.*read; new: net1.*.momentum_buffer' -o 'train.freeze={}'
rm -rf base; mv base.kept base

# At a rate of 0 nothing moves: what comes out is what the state began with.
for more in "-o train.ema=0.9" "-o train.optimizer=adamw -o train.momentum=0" \
    "-o train.optimizer=lamb -o train.momentum=0 -o train.ema=0.5"; do
    rm -rf r; cp -r base r
    # shellcheck disable=SC2086
    run r --resume=force --steps 12 --learning-rate 0 $more
    equal "weights are those of the checkpoint: $more" "$code $(last r)" "0 $(last base)"
done
for n in 1 4; do
    rm -rf "r$n"; cp -r base "r$n"
    run "r$n" --resume=force --steps 12 --stages "$n" -o train.optimizer=adamw -o train.momentum=0 -o train.ema=0.5
done
equal "the same bits on one stage and on four" "$(last r1)" "$(last r4)"
rm -rf r; cp -r base r
run r --resume=force -o model.network=mlp -o 'model.hidden={9}'
equal "where nothing fits it ends" "$code $(grep -c '^mpstaged: .*tensor' "$aside/err")" "65 1"
tap_done
