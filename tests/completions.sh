#!/bin/sh
# completions.sh: shells complete the command lines of all four programs: all options, their words, settings,
# commands. Each shell loads its own file; one that is not installed is skipped.
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
for p in mpstage-run mpstage-experiment; do
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
        bash --norc ask.bash "$made/bash" "$@" >said 2>said.err || true
        offers "bash: $asks_text" "$asks_words" said
    }
    asks "all options of mpstaged" "$(cat options)" mpstaged --
    asks "an option's beginning" "--schedule" mpstaged --sched
    asks "an option's words" "gpipe naive 1f1b interleaved zb-h1 zb-v auto rows" mpstaged --schedule ''
    asks "behind =, too" "gpipe" mpstaged --schedule = g
    asks "and right behind it" "gpipe naive 1f1b interleaved zb-h1 zb-v auto rows" mpstaged --schedule =
    asks "files" "file" mpstaged -c fi
    asks "settings" "pipeline.schedule=" mpstaged -o pipeline.sch
    asks "a setting's words" "yes no" mpstaged -o data.shuffle =
    asks "--plan=search" "search" mpstaged --plan = s
    asks "but nothing needs to follow --plan" "--json" mpstaged --plan --js
    asks "run directories and what looks at files" "run list verify" mpstagectl ''
    asks "the commands" "$steers" mpstagectl run ''
    asks "a command's options" "--wait --checkpoint --help" mpstagectl run stop --
    asks "levels" "error warning note info debug" mpstagectl run log-level ''
    asks "what can be set" "train.learning_rate=" mpstagectl run set tr
    asks "directories behind list" "run" mpstagectl list ''
    asks "and its options" "--json" mpstagectl list run --j
    asks "options before the command do not count" "resume reload" mpstagectl --json run re
    asks "nothing behind a command that takes nothing" "" mpstagectl run pause ''
    for p in mpstage-run mpstage-experiment; do asks "all options of $p" "$(cat "$p.options")" "$p" --; done
    asks "its option's words" "gpipe naive 1f1b interleaved zb-h1 zb-v auto rows" \
        mpstage-experiment -c file --schedules ''
    asks "its file" "file" mpstage-experiment -c fi
    asks "its folder" "run" mpstage-experiment --out r
    asks "nothing for a number" "" mpstage-run --backoff ''
    asks "files behind --" "file" mpstage-run --backoff 3 -- fi
else skip "bash completes" "no bash"; fi

# ---- zsh: what the file gives to the functions that zsh has for it ---------------------------------------------------
if command -v zsh >/dev/null; then
    cat >ask.zsh <<'EOF2'
_arguments() { for w; do print -r -- "$w"; done | grep -oE -- "--[a-z][a-z-]*" ; }
compadd() { for w; do [[ $w == -- ]] || print -r -- "$w"; done }
_files() { print files; }
_describe() { for w in ${(P)2}; do print -r -- ${w%%:*}; done }
file=$1; shift
words=("$@") CURRENT=$# PREFIX=${@[-1]}
complete_it() { source $file }
complete_it
EOF2
    asks() {
        asks_text=$1 asks_words=$2; shift 2
        zsh -f ask.zsh "$made/zsh/_$1" "$@" >said 2>said.err || true
        offers "zsh: $asks_text" "$asks_words" said
    }
    for p in mpstaged mpstagectl mpstage-run mpstage-experiment; do
        check "zsh: _$p says what it is for" [ "$(head -1 "$made/zsh/_$p")" = "#compdef $p" ]
    done
    asks "all options of mpstaged" "$(cat options)" mpstaged --
    for p in mpstage-run mpstage-experiment; do asks "all options of $p" "$(cat "$p.options")" "$p" --; done
    asks "what stands first" "files list verify" mpstagectl ''
    asks "the commands" "$steers" mpstagectl run ''
    asks "a command's options" "--wait --checkpoint --help" mpstagectl run stop --
    asks "levels" "error warning note info debug" mpstagectl run log-level ''
    asks "directories behind list" "files" mpstagectl list ''
    # and with zsh's own functions, in a shell on a terminal
    cat >type.zsh <<'EOF2'
zmodload zsh/zpty
zpty shell zsh -f -i
zpty -w shell "PS1= ; fpath=($1 \$fpath); autoload -Uz compinit; compinit -u -d $PWD/dump; print re""ady"
zpty -r -m shell out '*ready*'
zpty -n -w shell $'mpstaged --sched\tgp\t\n'
zpty -r -m shell out '*gpipe*'
print -r -- "$out"
EOF2
    timeout 30 zsh -f type.zsh "$made/zsh" >said 2>said.err </dev/null || true
    if grep -q -- '--schedule.*gpipe' said; then ok "zsh: what is typed becomes --schedule=gpipe"
    else cat -v said said.err | note; not_ok "zsh: what is typed becomes --schedule=gpipe"; fi
else skip "zsh completes" "apt-get install zsh"; fi

# ---- fish ------------------------------------------------------------------------------------------------------------
if command -v fish >/dev/null; then
    # asks TEXT WORDS PROGRAM LINE
    asks() {
        HOME=$tmp fish --no-config -c "source $made/fish/$3.fish; complete -C '$4'" 2>said.err | cut -f 1 |
            sed 's/^--\(plan\|resume\)=$/--\1/' >said || true        # it offers both
        offers "fish: $1" "$2" said
    }
    asks "all options of mpstaged" "$(cat options)" mpstaged "mpstaged --"
    asks "an option's words" "gpipe naive 1f1b interleaved zb-h1 zb-v auto rows" mpstaged "mpstaged --schedule "
    for p in mpstage-run mpstage-experiment; do asks "all options of $p" "$(cat "$p.options")" "$p" "$p --"; done
    asks "its option's words" "gpipe naive 1f1b interleaved zb-h1 zb-v auto rows" \
        mpstage-experiment "mpstage-experiment --schedules "
    asks "behind =, too" "--schedule=gpipe" mpstaged "mpstaged --schedule=gp"
    asks "settings" "pipeline.schedule=" mpstaged "mpstaged -o pipeline.sch"
    asks "files" "file" mpstaged "mpstaged -c fi"
    asks "run directories and what looks at files" "run/ list verify" mpstagectl "mpstagectl "
    asks "the commands" "$steers" mpstagectl "mpstagectl run "
    asks "a command's options" "--wait --checkpoint --help --version" mpstagectl "mpstagectl run stop --"
    asks "levels" "error warning note info debug" mpstagectl "mpstagectl run log-level "
    asks "directories behind list" "run/" mpstagectl "mpstagectl list "
else skip "fish completes" "apt-get install fish"; fi

offers "every command of mpstagectl --help is offered somewhere" "$steers list verify" commands
tap_done
