#!/bin/sh
# width.sh: what the programs print for people fits 80 columns, or those that the environment's COLUMNS names.
set -eu
. "$(dirname -- "$0")/mpi_lib.sh"
unset COLUMNS
conf=$(CDPATH='' cd -- "$here/../conf" && pwd)

# fits TEXT COLUMNS COMMAND...: status 0, prints something, and no line of it is longer
fits() {
    fits_text=$1 fits_columns=$2 code=0; shift 2
    "$@" >"$aside/out" 2>&1 </dev/null || code=$?
    if [ "$code" -eq 0 ] && [ -s "$aside/out" ] &&
        [ "$(longest <"$aside/out")" -le "$fits_columns" ]; then ok "$fits_text"
    else { echo "code $code"; awk -v n="$fits_columns" 'length($0) > n' "$aside/out"; } | note; not_ok "$fits_text"; fi
}
printf 'x\n12345\n' >"$aside/known"
printf '12 \302\265s\n' >"$aside/utf8"
check "a line that is too long is found" [ "$(longest <"$aside/known")$(longest <"$aside/utf8")" = 55 ]

for program in mpstaged mpstagectl mpstage-experiment mpstage-tokens; do
    fits "$program --help" 80 "$build/$program" --help
done
fits "mpstaged --version" 80 "$mpstaged" --version
mkdir conf && cp "$conf"/*.graph conf/                    # as the configurations name them
for file in "$conf"/*.conf; do
    name=$(basename "$file")
    # These searches take as long as all others together.
    search=--plan=search
    [ "$name" != imagenet.conf ] || search=$(cases '' $search)
    for mode in --plan $search --summary --print-schedule; do
        fits "$name $mode" 80 "$mpstaged" -c "$file" $mode
    done
    case $name in mlp.conf | toy.conf | $(cases '' resnet50.conf | tr -d ' '))
        fits "$name --plan=search, 4 stages" 80 "$mpstaged" -c "$file" --plan=search --stages 4 \
            -o train.split_size=10 -o train.batch_size=20 ;;
    esac
done

# ---- long names ------------------------------------------------------------------------------------------------------
# So much to compute that two ranks are among the best that --plan=search finds, and it has to say where to cut.
long=encoder.block_with_a_long_name.attention_like_projection
{
    echo 'input x 700'; echo 'labels t class'
    echo "$long.first = linear(x) features=700"; echo "$long.second = linear($long.first) features=700"
    echo "l = softmax_cross_entropy($long.second, t)"
} >net.txt
write_conf net.conf \
    's/network = "toy"  classes = 5  input = {10}/graph = "net.txt"/; s/labels = "onehot"  //; s/loss = "mse"  //'
for mode in --plan --plan=search --summary --print-schedule; do
    fits "long names: $mode" 80 "$mpstaged" -c net.conf $mode
    [ $mode = --print-schedule ] || check "long names: $mode has them whole" grep -q "$long\.second" "$aside/out"
done
fits "recomputed layers" 80 "$mpstaged" -c "$conf/resnet50.conf" --plan -o pipeline.recompute=all
check "each of them is named" grep -q 'recomputed on stage 0: conv1' "$aside/out"

# ---- runs ------------------------------------------------------------------------------------------------------------
write_conf toy.conf 's/samples = 200/&  test_samples = 40/'
dir=$tmp/a/directory/whose/name/is/so/long/that/no/line/of/eighty/columns
mkdir -p "$dir"
fits "a run" 140 mpirun_n 2 "$mpstaged" -c toy.conf --run-dir "$dir/run"
check "its notes are folded" \
    sh -c 'awk "/^note: / && length(\$0) > 80 { exit 1 }" "$0" && grep -q "^account of " "$0"' "$aside/out"
check "only what has its directory's name is longer" \
    sh -c '[ "$(awk "length(\$0) > 80" "$0" | grep -vcF "$1")" -eq 0 ]' "$aside/out" "$dir"
check "in its log they are whole" grep -qE "T[0-9:.]+Z? mpstaged [0-9.]+: .*, results in $dir/run\$" \
    "$dir/run/mpstaged.log"
fits "a run in a directory with a short name" 80 mpirun_n 2 "$mpstaged" -c toy.conf
fits "a profile" 80 mpirun_n 2 "$mpstaged" -c toy.conf --profile --run-dir p
fits "a plan with it" 80 "$mpstaged" -c toy.conf --plan -o pipeline.profile=p/profile.json
fits "a search with it" 80 "$mpstaged" -c toy.conf --plan=search -o pipeline.profile=p/profile.json
tap_done
