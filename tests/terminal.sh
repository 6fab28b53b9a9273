#!/bin/sh
# terminal.sh: what a person sees at a terminal of 80 columns, under mpirun and without it: what is made ready, the
# progress line, lines that fit; and that nobody else gets any of it: files, pipes, jobs in the background,
# jobs without a terminal.
set -eu
. "$(dirname -- "$0")/mpi_lib.sh"
python=$(command -v python3 || true)
if [ -z "$python" ]; then skip "everything about terminals" "no python3"; tap_done; fi
write_conf toy.conf 's/samples = 200/&  test_samples = 20000/; s/steps = 3/steps = 2000/'
export TERM=xterm
escape=$(printf '\033')
launched="$MPIRUN $mpi_options -np 2 $mpstaged -c toy.conf --overwrite"

# at [OPTIONS...] COMMAND...: at a terminal; sets $code, leaves $aside/seen: each form of a line behind "> ",
# then the screen, also alone in $aside/screen
at() {
    code=0; "$python" "$here/terminal.py" "$@" >"$aside/seen" 2>"$aside/err" </dev/null || code=$?
    grep -v '^> ' "$aside/seen" >"$aside/screen" || true
}
saw() { grep -qE -- "^> $1" "$aside/seen" || { note <"$aside/err"; note <"$aside/seen"; return 1; }; }
# The screen in the end has the lines of the log, perhaps folded, and nothing else.
words() { tr -s ' \n' '  '; }
as_logged() {
    cut -d ' ' -f 2- runs/toy/mpstaged.log | words >"$aside/logged"
    words <"$aside/screen" | cmp - "$aside/logged" >/dev/null ||
        { diff "$aside/screen" runs/toy/mpstaged.log | note; return 1; }
}
narrow() { ! grep -q '^WRAPPED ' "$aside/seen" || { grep '^WRAPPED' "$aside/seen" | note; return 1; }; }
plain() { ! grep -q "$escape" "$1" && grep -qE '^step 200/200 ' "$1" || { note <"$1"; return 1; }; }

at $launched
check "under mpirun: status 0" [ "$code" -eq 0 ]
for doing in "reading data" planning "creating kernels" "connecting ranks"; do
    check "under mpirun: $doing" saw "$doing \.\.\."
done
check "the running step" saw 'step +[0-9]+/2000  .*ETA [0-9]+:'
check "the evaluation" saw 'evaluating (20000 test|[0-9]+/20000 samples  ETA )'
check "no line is longer than the terminal" narrow
check "what stays on the screen is the log" as_logged

at --columns 50 $launched
check "50 columns: the running step fits" saw 'step +[0-9]+/2000  .*ETA [0-9:]+ *$'
check "50 columns: lines are folded, those of the account aside" \
    sh -c '! grep "^WRAPPED [a-z]" "$0" && grep -q "^note: " "$0"' "$aside/seen"
check "50 columns: no form of it is longer" \
    awk '/^> step +[0-9]+\// && length($0) > 51 { print "# " $0; bad = 1 } END { exit bad }' "$aside/seen"
at $mpstaged -c toy.conf --overwrite
check "threads of one process: what is made ready, and the running step" \
    sh -c 'grep -q "^> planning" "$0" && grep -qE "^> step +[0-9]+/2000 .*ETA" "$0"' "$aside/seen"
at $launched --steps 3 -o model.graph=toy.conf
check "a failure after the line was shown: it is gone, the error stands alone" \
    sh -c 'grep -q "^> checking" "$0" && [ "$(grep -c "^mpstaged: " "$1")" -eq 1 ]' "$aside/seen" "$aside/screen"

# ---- planning that takes long ----------------------------------------------------------------------------------------
# Planning reads the rows of a schedule, a search the profile: these are slow to open, for four seconds.
slowly() {
    slow=$1; shift
    LD_PRELOAD=$build/tests/faults/slow.so MPSTAGED_SLOW=$slow MPSTAGED_SLOW_S=4 "$@"
}
rows=$aside/rows
printf 'rank 0: 0F0 0F1 0F2 0B0 0W0 0B1 0W1 0B2 0W2\nrank 1: 1F0 1F1 1F2 1B0 1W0 1B1 1W1 1B2 1W2\n' >"$aside/rows"
plan="$mpstaged -c toy.conf -o pipeline.schedule=rows -o pipeline.rows=$rows"
$plan --plan >"$aside/quick" 2>"$aside/err"
check "a plan that is quick says nothing else" [ "$(said_lines)" -eq 0 ]
slowly "$rows" at sh -c "$plan --plan >'$aside/out'"
check "after two seconds --plan shows that it lives" saw 'planning \.\.\. 0:00:0[23]'
check "not at once" sh -c '! grep -qE "^> planning \.\.\.$" "$0"' "$aside/seen"
check "and the line goes" [ ! -s "$aside/screen" ]
check "its output is as ever" cmp "$aside/quick" "$aside/out"
slowly "$rows" $plan --plan >"$aside/out" 2>"$aside/file"
check "into a file: one note" sh -c \
    '[ "$(cat "$0" | grep -c .)" -eq 1 ] && grep -qE "^note: still planning \.\.\. 0:00:0[23]$" "$0"' "$aside/file"
check "its output is as ever" cmp "$aside/quick" "$aside/out"
slowly "$rows" $plan --overwrite --steps 2 >/dev/null 2>"$aside/file"
check "a run into a file: a note, too" grep -qE '^note: still planning \.\.\. 0:00:0[23]$' "$aside/file"
$mpstaged -c toy.conf --profile --run-dir profiled >/dev/null 2>&1
profile=$PWD/profiled/profile.json
slowly "$profile" at $mpstaged -c toy.conf --plan=search -o pipeline.profile="$profile"
check "so does --plan=search, which does not know yet what to compare" saw 'searching \.\.\. 0:00:0[23]'
at timeout 20 $mpstaged -c "$here/../conf/resnet50.conf" -o model.network=resnet152 --plan=search -o pipeline.cores=16
check "then it counts its plans" saw 'searching \.\.\. [0-9]+ of [1-9][0-9]* plans 0:00:0[2-9]'
[ "$tap_bad" -eq 0 ] || note <"$aside/seen"

# ---- mpstagectl ------------------------------------------------------------------------------------------------------
$launched --steps 3000000 --run-dir watched >/dev/null 2>&1 </dev/null & launcher=$!
shown() {
    for _ in $(seq 1000); do ! "$mpstagectl" watched status 2>/dev/null | grep -q loss || break; sleep 0.05; done
}
stop="'$mpstagectl' watched stop >/dev/null"
shown
at --when stage --then "$stop" "$mpstagectl" watched watch 0.2
wait $launcher || true
check "watch: no line is longer than the terminal" narrow
check "watch: its lines are rewritten: in the end one table with its bars, and one line" \
    sh -c '[ "$(grep -c "^stage forward" "$0")" -eq 1 ] && [ "$(grep -c "^       [FBWROT.Lo]*[FBWT.L]" "$0")" -eq 2 ] &&
        [ "$(wc -l <"$0")" -le 8 ]' "$aside/screen"
[ "$tap_bad" -eq 0 ] || note <"$aside/screen"
$launched --steps 3000000 --run-dir watched >/dev/null 2>&1 </dev/null & launcher=$!
shown
at --columns 40 "$mpstagectl" watched status
check "40 columns: status is folded" sh -c '! grep "^WRAPPED" "$0" && [ "$(wc -l <"$0")" -ge 3 ]' "$aside/screen"
at --when stage --then "$stop" --columns 40 "$mpstagectl" watched watch 0.2
wait $launcher || true
check "40 columns: so is watch" narrow
check "40 columns: and rewritten" [ "$(grep -c "^stage [01]: " "$aside/screen")" -eq 2 ]
[ "$tap_bad" -eq 0 ] || note <"$aside/screen"

# ---- for nobody ------------------------------------------------------------------------------------------------------
long="$launched" few="--steps 200 -o service.log_every=100 -o data.test_samples=20"; launched="$launched $few"
at $launched --progress no
check "--progress no: lines as in a file" \
    sh -c '! grep -q "^> planning" "$0" && grep -qE "^step 100/200 " "$0"' "$aside/seen"
at --background $launched
check "in the background: lines as in a file" \
    sh -c '! grep -q "^> planning" "$0" && grep -qE "^step 100/200 " "$0"' "$aside/seen"
TERM=dumb; at $launched; TERM=xterm
check "a dumb terminal: lines as in a file" \
    sh -c '! grep -q "^> planning" "$0" && grep -qE "^step 100/200 " "$0"' "$aside/seen"
at sh -c "$launched 2>'$aside/file'"
check "mpirun's standard error in a file: lines" plain "$aside/file"
at sh -c "$launched 2>&1 | cat >'$aside/file'"
check "mpirun's standard error in a pipe: lines" plain "$aside/file"
at $MPIRUN $mpi_options -np 2 sh -c "$mpstaged -c toy.conf --overwrite $few 2>>'$aside/own'"
check "a rank's standard error in a file: lines" plain "$aside/own"
"$python" -c 'import subprocess, sys; sys.exit(subprocess.run(sys.argv[1:], start_new_session=True).returncode)' \
    $launched 2>"$aside/file" </dev/null || true
check "without any terminal: lines" plain "$aside/file"
at $long --progress yes
check "--progress yes at a terminal" saw 'step +[0-9]+/2000  .*ETA '
$long --progress yes >/dev/null 2>"$aside/file" </dev/null || true
check "--progress yes into a file" grep -q "${escape}\[Kstep .*/2000 .*ETA" "$aside/file"
tap_done
