#!/bin/sh
# completions.sh: shells complete the command lines of all five programs: all options, their words, settings,
# commands. A shell that is not installed is skipped.
set -eu
: "${srcdir:=.}" "${top_builddir:=.}"
here=$(CDPATH='' cd -- "$(dirname -- "$0")" && pwd)
. "$here/tap.sh"
made=$(CDPATH='' cd -- "$top_builddir/completions" && pwd)
mpstaged=$(CDPATH='' cd -- "$top_builddir" && pwd)/mpstaged mpstagectl=${made%/*}/mpstagectl
tmp=$(mktemp -d)
trap 'rm -rf "$tmp"' EXIT
cd "$tmp"
mkdir run
: >file

flags_of_help() { grep -oE '(^|[ ,|[])--[a-z][a-z-]*' | grep -oE -- '--[a-z][a-z-]*$' | LC_ALL=C sort -u; }
"$mpstaged" --help | flags_of_help >options
for p in mpstage-run mpstage-experiment mpstage-tokens; do
    "${made%/*}/$p" --help | sed -n '/^$/,$p' | flags_of_help >"$p.options"
done
"$mpstagectl" --help | sed -n '/^Commands:/,/^$/s/^  \([a-z][a-z-]*\) .*/\1/p' | LC_ALL=C sort >commands
# offers TEXT WORDS FILE: the file has these words, one a line, and no others
offers() {
    printf '%s\n' $2 | sed '/^$/d' | LC_ALL=C sort >wanted
    tr -s ' ' '\n' <"$3" | sed '/^$/d' | LC_ALL=C sort -u >got
    if diff wanted got >differ; then ok "$1"; else { cat "$3.err" 2>/dev/null; cat differ; } | note; not_ok "$1"; fi
}
steers='checkpoint log-level pause reload resume set status stop top watch'

# ---- bash ------------------------------------------------------------------------------------------------------------
if command -v bash >/dev/null; then
    cat >ask.bash <<'EOF2'
source "$1/$2" || exit 1
program=$2; shift 2
COMP_WORDS=("$program" "$@"); COMP_CWORD=$#
compopt() { :; }
"_$program"
printf '%s\n' "${COMPREPLY[@]}"
EOF2
    # asks TEXT WORDS PROGRAM WORD...: bash offers these words in place of the last one
    asks() {
        asks_text=$1 asks_words=$2; shift 2
        bash --norc ask.bash "$made" "$@" >said 2>said.err || true
        offers "bash: $asks_text" "$asks_words" said
    }
    asks "all options of mpstaged" "$(cat options)" mpstaged --
    asks "an option's beginning" "--schedule" mpstaged --sched
    asks "an option's words" "gpipe naive 1f1b interleaved breadth-first zb-h1 zb-v auto rows" mpstaged --schedule ''
    asks "behind =, too" "gpipe" mpstaged --schedule = g
    asks "and right behind it" "gpipe naive 1f1b interleaved breadth-first zb-h1 zb-v auto rows" mpstaged --schedule =
    asks "files" "file" mpstaged -c fi
    asks "settings" "pipeline.schedule=" mpstaged -o pipeline.sch
    asks "a setting's words" "yes no" mpstaged -o data.shuffle =
    asks "--plan=search" "search" mpstaged --plan = s
    asks "but nothing needs to follow --plan" "--json" mpstaged --plan --js
    asks "run directories and what looks at files" "run why report list verify" mpstagectl ''
    asks "the commands" "$steers" mpstagectl run ''
    asks "a command's options" "--wait --checkpoint --help" mpstagectl run stop --
    asks "levels" "error warning note info debug" mpstagectl run log-level ''
    asks "what can be set" "train.learning_rate=" mpstagectl run set tr
    asks "directories behind list" "run" mpstagectl list ''
    asks "and its options" "--json" mpstagectl list run --j
    asks "options before the command do not count" "resume reload" mpstagectl --json run re
    asks "the file of a page" "file" mpstagectl run report --html fi
    asks "and behind =" "file" mpstagectl run report --html = fi
    asks "which is no word before the command" "resume reload" mpstagectl --html file run re
    asks "nothing behind a command that takes nothing" "" mpstagectl run pause ''
    for p in mpstage-run mpstage-experiment mpstage-tokens; do
        asks "all options of $p" "$(cat "$p.options")" "$p" --
    done
    asks "its option's words" "gpipe naive 1f1b interleaved breadth-first zb-h1 zb-v auto rows" \
        mpstage-experiment -c file --schedules ''
    asks "its file" "file" mpstage-experiment -c fi
    asks "its folder" "run" mpstage-experiment --out r
    asks "a folder" "run" mpstaged --init ''
    asks "the first of two folders" "run" mpstaged --compare ''
    asks "and the second" "run" mpstaged --compare run r
    asks "options behind them" "--json" mpstaged --compare run run --js
    asks "nothing for a number" "" mpstage-run --backoff ''
    asks "words of an option's help" "u8 u16 u32" mpstage-tokens --type ''
    asks "files where no option stands" "file" mpstage-tokens -t x fi
    asks "files behind --" "file" mpstage-run --backoff 3 -- fi
else skip "bash completes" "no bash"; fi

# ---- zsh: reads the same files, by its bashcompinit; keys are typed in a shell on a terminal -------------------------
if command -v zsh >/dev/null; then
    cat >type.zsh <<'EOF2'
zmodload zsh/zpty
zpty shell zsh -f -i
zpty -w shell "PS1= ; autoload -Uz compinit bashcompinit; compinit -u -d $PWD/dump; bashcompinit"
zpty -w shell "for f in ${(q)1}/*; do source \$f; done; keep() { print -r -- \"\$BUFFER\" >>$PWD/said; BUFFER= }"
zpty -w shell "zle -N keep; bindkey '^G' keep; print re""ady"
zpty -r -m shell out '*ready*'
while IFS='|' read -r keys rest; do zpty -n -w shell "${(g::)keys}"$'\a'; done
zpty -n -w shell $'print en""ded\n'
zpty -r -m shell out '*ended*'
EOF2
    cat >typed <<'EOF2'
mpstaged --sched\tgp\t|mpstaged --schedule gpipe |
mpstaged --schedule=gp\t|mpstaged --schedule=gpipe |
mpstaged -o pipeline.sch\tgp\t|mpstaged -o pipeline.schedule=gpipe |
mpstaged --set=data.shuf\tn\t|mpstaged --set=data.shuffle=no |
mpstaged -c fi\t|mpstaged -c file |
mpstaged --stage-config=ru\tno\t|mpstaged --stage-config=run/notes |
mpstaged --plan=se\t|mpstaged --plan=search |
mpstaged --plan --js\t|mpstaged --plan --json |
mpstagectl ru\t pau\t|mpstagectl run/ pause |
mpstagectl run stop --ch\t|mpstagectl run stop --checkpoint |
mpstagectl run log-level war\t|mpstagectl run log-level warning |
mpstagectl run report --html=fi\t|mpstagectl run report --html=file |
mpstagectl ver\tru\t|mpstagectl verify run/|
mpstage-run --backo\t3 -- fi\t|mpstage-run --backoff 3 -- file |
mpstage-experiment --out ru\t --schedules zb-v\t|mpstage-experiment --out run/ --schedules zb-v |
EOF2
    : >run/notes
    rm -f said
    timeout 60 zsh -f type.zsh "$made" <typed >zsh.log 2>&1 || true
    cut -d '|' -f 2 typed >wanted
    if diff wanted said >differ 2>&1; then ok "zsh: what is typed is completed"
    else { cat differ; cat -v zsh.log; } | note; not_ok "zsh: what is typed is completed"; fi
else skip "zsh completes" "apt-get install zsh"; fi

offers "every command of mpstagectl --help is offered somewhere" "$steers why report list verify" commands
tap_done
