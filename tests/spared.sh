#!/bin/sh
# spared.sh: what lies in a run directory is begun anew, thinned out or written over only with --overwrite: --resume
# ends where it finds checkpoints that it cannot use, or weights without any, and touches nothing.
set -eu
. "$(dirname -- "$0")/mpi_lib.sh"
write_conf run.conf 's/steps = 3/steps = 8/
    $a checkpoint { every_steps = 2  keep = 3 }\nservice { progress = no  log_every = 0 }'

# run DIR OPTIONS...: on threads; $code
run() {
    run_dir=$1; shift
    code=0; "$mpstaged" -c run.conf --run-dir "$run_dir" "$@" >"$aside/out" 2>"$aside/err" </dev/null || code=$?
}
state() { (cd "$1" && find . ! -name lock && find . -type f ! -name lock -exec md5sum {} +) | LC_ALL=C sort; }
# spares TEXT CODE PATTERN DIR OPTIONS...: --resume ends with that status and one line, and all stays as it is
spares() {
    spares_text=$1 spares_code=$2 spares_pattern=$3 spares_dir=$4; shift 4
    state "$spares_dir" >"$aside/before"
    run "$spares_dir" --resume "$@"
    state "$spares_dir" >"$aside/after"
    if [ "$code" -eq "$spares_code" ] && [ "$(our_lines)" -eq 1 ] && grep -qE -- "$spares_pattern" "$aside/err" &&
        cmp -s "$aside/before" "$aside/after"; then ok "$spares_text: $code"
    else why; diff "$aside/before" "$aside/after" | note; not_ok "$spares_text: $code"; fi
}
copy() { rm -rf "$2"; cp -r "$1" "$2"; }
version() { sed -i 's/"version": *1,/"version": 2,/' "$@"; }
steps_of() { (cd "$1/checkpoints" && echo *); }

run whole
check "a run with checkpoints" [ "$code" -eq 0 ]
whole=$(hash_of whole)

# ---- what cannot be used ---------------------------------------------------------------------------------------------
for more in "" "--steps 12" "--resume=force"; do
    copy whole r; version r/checkpoints/*/manifest.json
    # shellcheck disable=SC2086
    spares "checkpoints of another version $more" 78 \
        'r/checkpoints/step-00000008: it was written by another version of mpstaged .*version 2.*1.*--overwrite' r $more
done
copy whole r; version r/checkpoints/step-00000008/manifest.json
spares "the newest of another version, older ones sound" 78 'step-00000008: it was written by another version' r
check "list names it" sh -c '"$0" list r | grep -q "^ *8 .*of another version"' "$mpstagectl"
copy whole r; version r/checkpoints/step-0000000[46]/manifest.json
run r --resume --steps 14
check "older ones of another version do not matter" [ "$code" -eq 0 ]
equal "and are neither counted nor removed" "$(steps_of r)" \
    "step-00000004 step-00000006 step-00000010 step-00000012 step-00000014"
copy whole r; for m in r/checkpoints/*/manifest.json; do echo '{' >"$m"; done
unusable='r/checkpoints: none of its checkpoints can be used \(3 checkpoints\)'
spares "all damaged" 65 "$unusable.*step-00000008.*--overwrite" r
copy whole r; rm r/checkpoints/*/model-*
spares "all without weights" 65 "$unusable.*step-00000008/model" r
copy whole r; rm -r r/checkpoints/*/*
spares "all empty" 65 "$unusable.*step-00000008/manifest.json" r
copy whole r; mkdir moved
for s in r/checkpoints/*; do mv "$s" moved; ln -s "../../moved/${s##*/}" r/checkpoints; done
spares "links in their places" 65 'none of its checkpoints can be used .*is a symbolic link, not a directory' r
copy whole r; mv r/checkpoints r/elsewhere; echo >r/checkpoints
spares "a file in the folder's place" 73 'r/checkpoints: is a regular file, not a directory' r
rm r/checkpoints; ln -s nowhere r/checkpoints
spares "a link that leads nowhere" 73 'r/checkpoints: is a symbolic link, not a directory' r
rm r/checkpoints
spares "weights without checkpoints" 78 'no checkpoint to resume from, but weights.safetensors .*--overwrite' r
mkdir r/checkpoints r/checkpoints/step-00000004.tmp
spares "nor does half a checkpoint help" 78 'no checkpoint to resume from, but weights.safetensors' r
run r --overwrite
equal "--overwrite begins anew" "$code $(hash_of r)" "0 $whole"
rm -r r/checkpoints/* r/weights.safetensors; mkdir r/checkpoints/step-00000004.tmp
run r --resume
equal "with nothing to lose --resume begins anew" "$code $(hash_of r | tail -n 1)" "0 $whole"

# ---- what is in nobody's way -----------------------------------------------------------------------------------------
# A run that failed before its first step, one that was killed later, half a checkpoint.
rm -rf r; mkdir -p r/checkpoints/step-00000002.tmp
printf '{"event":"start","steps":8}\n{"event":"failed","code":65}\n' >r/metrics.jsonl; echo old >r/mpstaged.log
run r
equal "a run that failed before its first step blocks nothing" "$code $(hash_of r)" "0 $whole"
equal "and its lines go" "$(head -c 16 r/metrics.jsonl) $(grep -c '^old$' r/mpstaged.log || true)" '{"event":"start" 0'
rm -rf r; mkdir r
{ grep '"event":"start"' whole/metrics.jsonl; grep -m 3 '"event":"step"' whole/metrics.jsonl; } >r/metrics.jsonl
echo old >r/mpstaged.log
run r
equal "nor does one that left no checkpoint" "$code $(hash_of r)" "0 $whole"
equal "whose lines stay" "$(grep -c '"event":"step"' r/metrics.jsonl) $(head -n 1 r/mpstaged.log)" "11 old"
check "and a line says so" grep -q 'note: r has metrics of an earlier run, which left neither ' r/mpstaged.log
spares_in=$(state r)
run r
equal "one with weights and checkpoints does" "$code $(state r)" "73 $spares_in"
rm -rf r/checkpoints; run r
equal "and with weights alone" "$code" 73

# ---- passed over -----------------------------------------------------------------------------------------------------
copy whole r; echo '{' >r/checkpoints/step-00000008/manifest.json
run r --resume --steps 14
check "a damaged newest one is passed over" [ "$code" -eq 0 ]
check "by name" grep -q 'skipping a damaged checkpoint: r/checkpoints/step-00000008/manifest.json: ' r/mpstaged.log
equal "and is not written over: nobody knows whose it is" "$(steps_of r)" \
    "step-00000008.old step-00000010 step-00000012 step-00000014"
check "nor without a word" \
    grep -q 'step-00000008 is not a readable checkpoint of this run: renamed to step-00000008.old' r/mpstaged.log

# ---- whose it is -----------------------------------------------------------------------------------------------------
run other --seed 7
copy whole r; rm -r r/checkpoints/step-00000004; cp -r other/checkpoints/step-00000004 r/checkpoints
run r --resume --steps 14
equal "another run's checkpoint is neither counted nor removed" "$code $(steps_of r)" \
    "0 step-00000004 step-00000010 step-00000012 step-00000014"
scored='-o checkpoint.keep=1 -o checkpoint.best=loss -o data.test_samples=20'
# shellcheck disable=SC2086
run better $scored --steps 1 -o train.evaluate_every=1
# shellcheck disable=SC2086
run r --overwrite $scored --steps 4 -o train.evaluate_every=2 --learning-rate 0
cp -r better/checkpoints/step-00000001 r/checkpoints
# shellcheck disable=SC2086
run r --resume $scored --steps 8 -o train.evaluate_every=2 --learning-rate 0
equal "nor is it the best one of this" "$code $(steps_of r)" "0 step-00000001 step-00000002 step-00000008"
"$mpstagectl" list r >"$aside/list"
check "though it is better" awk '$1 == 1 { a = $7 } $1 == 2 { b = $7 } END { exit !(a > 0 && a < b) }' "$aside/list"
tap_done
