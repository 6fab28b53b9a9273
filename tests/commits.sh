#!/bin/sh
# commits.sh: commits of checkpoints by two processes, made of the daemon's functions (tests/faults/rig.c), which end or
# fail at every one of their calls that change files; and what is on disk after a power cut at any moment of them.
set -eu
: "${srcdir:=.}" "${top_builddir:=.}"
here=$(CDPATH='' cd -- "$(dirname -- "$0")" && pwd)
. "$here/tap.sh"
. "$here/faults/lib.sh"
rig=$build/tests/faults/commit_rig

# save STEP FAULT: $code, and what it said in said and e
save() {
    code=0
    MPSTAGED_FAULT=$2 faulty "$rig" save run "$1" >said 2>e || code=$?
}
newest() { "$rig" newest run 2>&1 || true; }

# judge FAULT: what save 2 may have left, and that save 3 succeeds; adds to $bad
judge() {
    is=$(newest)
    case $is in 1|2) ;; *) bad="$bad; $1 leaves $is" ;; esac
    [ "$is" = 2 ] || ! grep -q 'committed 2' said || bad="$bad; $1 loses what was committed"
    case $1-$code in
    *:kill-137) ;;
    *:short-0 | *:eio-0 | *:enospc-0) [ "$is" = 2 ] || bad="$bad; $1 ends with 0, but leaves $is" ;;
    *:eio-7[34] | *:enospc-7[34]) [ "$(wc -l <e)" -eq 1 ] || bad="$bad; $1 says $(cat e)" ;;
    *) bad="$bad; $1 ends with $code, $(cat e)" ;;
    esac
    "$rig" save run 3 >/dev/null 2>e || bad="$bad; after $1: $(cat e)"
    [ "$(newest)" = 3 ] && [ "$(ls run/checkpoints)" = step-00000003 ] || bad="$bad; after $1: $(ls run/checkpoints)"
}

# every RANK CALL ACTION: at the first, second ... of these calls, until there are no more
every() {
    bad='' n=1
    while :; do
        rm -rf run hit; cp -a old run
        save 2 "$1:$2:$n:$3"
        [ -e hit ] || break
        judge "$1:$2:$n:$3"
        n=$((n + 1))
    done
    if [ -z "$bad" ] && [ $n -gt 1 ]; then ok "rank $1, $3: the old or the new one is there, $((n - 1)) failpoints"
    else echo "$bad" | tr ';' '\n' | note; not_ok "rank $1, $3 at one of $((n - 1)) failpoints"; fi
    failpoints=$((failpoints + n - 1))
}

mkdir run
save 1 '*:any:0:none'
check "a commit ends well" [ "$code-$(newest)" = 0-1 ]
mv run old
failpoints=0
for rank in 0 1; do
    for action in kill eio enospc; do every $rank any $action; done
    every $rank write short
done
echo "# $failpoints failpoints"
check "on either rank at least 20 calls, four ways" [ $failpoints -ge 160 ]

# Power cuts: the first commit and the second, recorded; several times, as the ranks' calls mix anew each time.
for i in 1 2 3; do
    rm -rf run record; mkdir run
    for step in 1 2; do MPSTAGED_FAULT_RECORD=$PWD/record faulty "$rig" save run $step >/dev/null; done
    crashes "power cut, recording $i" record
done
blind record
tap_done
