#!/bin/sh
# messages.sh: the messages that users meet most, word for word. tests/golden/messages has how each is provoked and what
# is said; UPDATE=1 in the environment writes it anew. All other tests look for status, place, keys and names.
set -eu
. "$(dirname -- "$0")/mpi_lib.sh"
write_conf toy.conf
sed 's/steps = 3 /stepz = 3 /' toy.conf >key.conf
sed 's/stages = 2 /stages: 2/' toy.conf >syntax.conf
printf 'input x 10\na = gellu(x)\n' >net.graph
sed 's/network = "toy"  classes = 5  input = {10}/graph = "net.graph"/' toy.conf >graph.conf
mkdir weights-only
cut='stage { first = "net1" last = "net1" } stage { first = "net9" last = "net3" }'
sed "s/partition = \"uniform\"  stages = 2/$cut/" toy.conf >layer.conf
head -c 100 "$mpstaged" >cut.npy
m="$mpstaged -c toy.conf --check-config" run="$mpstaged -c toy.conf --transport local"
$run --run-dir first >"$aside/out" 2>&1 || note <"$aside/out"
cp first/weights.safetensors weights-only
while IFS= read -r line; do
    case $line in
    '#'*) echo "$line" ;;
    '$ '*) code=0
        (eval "${line#??}") >"$aside/out" 2>"$aside/err" </dev/null || code=$?
        echo "$line"; tail -n 1 "$aside/err" | sed "s/^/$code /" ;;
    esac
done <"$here/golden/messages" >"$aside/now"
check "all messages: $(grep -c '^\$' "$aside/now")" diff "$here/golden/messages" "$aside/now"
[ -z "${UPDATE:-}" ] || cp "$aside/now" "$here/golden/messages"
tap_done
