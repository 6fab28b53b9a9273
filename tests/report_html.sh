#!/bin/sh
# report_html.sh: mpstagectl report --html. A page is well-formed, loads nothing, can be read by everybody, and has the
# figures of metrics.jsonl, whatever became of the run and whatever names are in it. What is refused creates nothing.
set -eu
. "$(dirname -- "$0")/mpi_lib.sh"
python=${MPSTAGED_PYTHON:-$(command -v python3 || true)}
if [ -z "$python" ]; then echo "1..0 # SKIP no python3: apt-get install python3"; exit 77; fi
asks() { "$python" "$here/page.py" "$@" >"$aside/asked" 2>&1 || { note <"$aside/asked"; return 1; }; }
# page RUN [WHAT]: its page, RUN.html, which says that
page() {
    code=0; "$mpstagectl" "$1" report --html "$1.html" >"$aside/out" 2>"$aside/err" || code=$?
    if [ "$code" -eq 0 ] && [ ! -s "$aside/out" ] && [ ! -s "$aside/err" ] && asks check "$1.html"; then
        ok "$1: a page"
    else why; not_ok "$1: a page, status $code"; fi
    [ $# -lt 2 ] || check "$1: it says $2" grep -qF -- "$2" "$1.html"
}
# fails TEXT CODE ARGUMENTS...: one line, that status, and no file more or less
fails() {
    fails_text=$1 fails_code=$2; shift 2
    find . | LC_ALL=C sort >"$aside/before"
    code=0; "$mpstagectl" "$@" >"$aside/out" 2>"$aside/err" || code=$?
    find . | LC_ALL=C sort >"$aside/after"
    if [ "$code" -eq "$fails_code" ] && [ "$(wc -l <"$aside/err")" -eq 1 ] && cmp -s "$aside/before" "$aside/after"
    then ok "$fails_text: $code"; else why; not_ok "$fails_text: $code instead of $fails_code"; fi
}

cat >run.conf <<'END'
run        { name = "<script>alert(1)<script> \"a\" & 'b'"  seed = 1 }
model      { network = "mlp"  input = {10}  hidden = {20}  classes = 5 }
data       { source = "synthetic"  labels = "class"  samples = 160  test_samples = 40 }
train      { batch_size = 16  split_size = 4  steps = 12  evaluate_every = 4  optimizer = "sgd"  learning_rate = 0.1 }
pipeline   { stages = 2 }
checkpoint { every_steps = 5  keep = 9 }
service    { log_every = 0 }
END

# ---- runs ------------------------------------------------------------------------------------------------------------
trains one threads -c run.conf --trace one/trace.json
# Passes as long as each other, so that there is room for their names: what was measured depends on the machine.
"$python" - one/trace.json <<'END'
import json, re, sys
trace = json.load(open(sys.argv[1]))
passes = [e for e in trace["traceEvents"] if re.fullmatch(r"\d+[FBD]\d", e["name"])]
passes = [e for e in passes if e["args"]["step"] == max(e["args"]["step"] for e in passes)]
for at, e in enumerate(passes):
    e.update(ts=at % 8 * 100, dur=90)
json.dump({"traceEvents": passes}, open(sys.argv[1], "w"))
END
page one 'Run &#60;script&#62;alert(1)&#60;script&#62; &#34;a&#34; &#38; &#39;b&#39;'
check "with the figures of metrics.jsonl" asks figures one.html one/metrics.jsonl
check "one sentence says what, on what, how long and how it ended" grep -qE \
    "class='lead'>mpstaged trained mlp .*with 2 ranks on cpu; the run finished after 12 steps and .* accuracy [0-9]" \
    one.html
check "the plan has grades" grep -qE '<td>(good|fair|poor)</td>' one.html
check "the trace is drawn: a step of four micro-batches on two ranks" \
    [ "$(grep -o '>F[0-3]<\|>B[0-3]<' one.html | wc -l)" -eq 16 ]
check "what is not there is said" grep -q 'No profile is in the run directory' one.html

cp -r one two
rm -r two/checkpoints/step-0000001* two/weights.safetensors
sed -i '/"event":"done"/d' two/metrics.jsonl
page two 'the run ended without a last word after 12 steps and'
job threads -c run.conf --run-dir two --resume
page two 'the run had ended without a last word'
check "resumed: the figures are of the steps that count" asks figures two.html two/metrics.jsonl
check "and the lost ones are counted" grep -q '<td class=.d.>7, which took' two.html

job threads -c run.conf --run-dir bad --learning-rate 1e6 --steps 40
equal "it fails" "$code" 79
page bad 'failed after step'
check "with place and advice" grep -q 'the loss is not finite; try a smaller' bad.html
check "no curve is drawn of what is not finite" grep -q 'not finite, the first at step' bad.html

job threads -c run.conf --run-dir plain --steps 1 -o train.evaluate=no -o data.test_samples=0
page plain 'No validation was run.'
job threads -c run.conf --run-dir test --evaluate --init-from one
page test 'mpstaged evaluated mlp'
check "no steps, no empty pictures" [ "$(grep -c '<svg' test.html)" -eq 0 ]
job threads -c run.conf --run-dir labels --predict labels.csv --init-from one
page labels-predict 'predictions were written'
job threads -c run.conf --run-dir eight --stages 4 -o pipeline.replicas=2 -o train.gradient_groups=2
page eight 'rank 7'

"$mpstaged" -c run.conf --transport local --run-dir runs -o train.steps=100000000 -o checkpoint.every_steps=0 \
    -o train.evaluate_every=0 >"$aside/out" 2>&1 </dev/null &
pid=$!
until grep -q '"step":20,' runs/metrics.jsonl 2>/dev/null || ! kill -0 $pid 2>/dev/null; do sleep 0.05; done
page runs 'is still running after step'
"$mpstagectl" runs stop >/dev/null || true
wait $pid || true
page runs 'was stopped after step'

# ---- a hundred thousand steps ----------------------------------------------------------------------------------------
# A single high loss stays.
mkdir long
head -1 one/metrics.jsonl >long/metrics.jsonl
step=$(sed -n '/"event":"step","step":2,/{s/.*"step":2,"epoch":1,"loss":[^,]*\(,.*\)/\1/p; q}' one/metrics.jsonl)
awk -v rest="$step" 'BEGIN { for (i = 1; i <= 100000; i++)
    printf "{\"event\":\"step\",\"step\":%d,\"epoch\":1,\"loss\":%s%s\n", i, i == 77777 ? 9.5 : 1 + 1 / i, rest }' \
    >>long/metrics.jsonl
page long 'first 2, last 1.00001, lowest 1.00001, highest 9.5.'
check "less than 2 MB" [ "$(wc -c <long.html)" -lt 2000000 ]
top=$(sed -n "s/^<path class='band train' d='M\(.*\)Z'\/>/\1/p" long.html | head -1 | tr L '\n' | cut -d' ' -f2 |
    sort -n | head -1)
check "it reaches the top of the picture: $top" sh -c 'awk "BEGIN { exit !($1 < 40) }"' sh "$top"

# ---- names, texts and damage -----------------------------------------------------------------------------------------
cp -r one 'odd <b>&"'
printf '2026-11-30T00:00:00.000Z warning: \033[2J <i>layer</i> \377\200 & "so"\n' >>'odd <b>&"/mpstaged.log'
{ cat one/metrics.jsonl
    printf '{"event":"generated","step":12,"index":0,"text":"<script>x</script>\\u0007\\nl&l\\ufffe","reason":"eos"}\n'
    printf '{"event":"set","step":12,"key":"<img src=x onerror=y>","value":1e999}\n'
    printf '{"event":"damaged","step":3,"samples":1,"text":"\377"}\n{"event":"st'; } >'odd <b>&"/metrics.jsonl'
page 'odd <b>&"' '&#60;script&#62;x&#60;/script&#62;\x07'
check "messages of the log are text" grep -qF \
    '\x1b[2J &#60;i&#62;layer&#60;/i&#62; \xff\x80 &#38; &#34;so&#34;' 'odd <b>&".html'
check "damaged lines are counted" grep -q '<td class=.d.>3 of [0-9]* in metrics.jsonl, left out' 'odd <b>&".html'
check "150 cut and damaged metrics" asks cut "$mpstagectl" two/metrics.jsonl "$aside"

# ---- the file --------------------------------------------------------------------------------------------------------
"$mpstagectl" report one --html - >"$aside/page" 2>"$aside/err"
check "- is standard output" cmp "$aside/page" one.html
echo old >one.html
page one
check "a page is replaced" cmp "$aside/page" one.html
cp one.html before.html
ln -s before.html link.html
fails "a link is not followed" 73 one report --html link.html
mkdir folder folder.html
fails "a folder is not replaced" 73 one report --html folder.html
fails "no such folder" 73 one report --html none/page.html
fails "no metrics" 66 folder report --html page.html
fails "no such run" 66 none report --html page.html
echo nonsense >folder/metrics.jsonl
fails "nothing of a run" 65 folder report --html page.html
fails "a file that is no page" 64 one report --html one/metrics.jsonl
fails "--html and --json" 64 one report --html page.html --json
fails "--html is for report" 64 one status --html page.html
fails "--html needs a file" 64 one report --html
code=0; "$mpstagectl" one report --html - >/dev/full 2>"$aside/err" || code=$?
equal "a full disk is noticed" "$code" 74
check "the earlier page stays" cmp before.html one.html
tap_done
