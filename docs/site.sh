#!/bin/sh
# site.sh SOURCE BUILD OUT: the documents and manual pages as a small site in the folder OUT, which is made anew.
# `make html` calls it. Markdown becomes HTML by cmark-gfm, manual pages by mandoc. A file that a document links to is
# copied, and of a folder the names are listed. Links keep their places: docs/guide/data.md is docs/guide/data.html.
set -eu
for tool in cmark-gfm mandoc; do
    command -v $tool >/dev/null && continue
    echo "make html needs $tool: apt-get install cmark-gfm mandoc" >&2
    exit 1
done
src=$(cd "$1" && pwd) build=$(cd "$2" && pwd)
rm -rf "$3"
mkdir -p "$3/man"
out=$(cd "$3" && pwd)
version=$(sed -n 's/^AC_INIT(\[[^]]*\], \[\([^]]*\)\].*/\1/p' "$src/configure.ac")
programs='mpstaged\|mpstaged\.conf\|mpstaged-schedule\|mpstagectl\|mpstage-run\|mpstage-experiment\|mpstage-tokens'

# page FILE ROOT TITLE: the HTML of standard input with a frame around it. ROOT leads to the first page.
page() {
    { cat <<HTML
<!DOCTYPE html>
<html lang="en"><head><meta charset="utf-8"><meta name="viewport" content="width=device-width">
<title>$3</title><link rel="stylesheet" href="$2style.css"></head><body>
<nav><a href="$2index.html">mpstaged $version</a></nav>
HTML
    cat
    echo '</body></html>'; } >"$1"
}
title_of() { sed -n '/^# /{s/^# *//; s/[`*]//g; s/&/\&amp;/g; s/</\&lt;/g; p; q; }' "$1"; }
root_of() { printf '%s' "$1" | sed 's,[^/]*$,,; s,[^/]*/,../,g'; }

# Headings get their anchors in order, links to pages become links to HTML, and names of manual pages become links.
html_of() {
    awk -f "$src/docs/anchors.awk" "$src/$1" >"$out/anchors"
    cmark-gfm -e table "$src/$1" | awk -v anchors="$out/anchors" '
        /^<h[1-6]>/ { getline line <anchors; sub(/.* /, "", line); sub(/>/, " id=\"" line "\">") }
        { print }' | sed "s,\(href=\"[^\":#]*\)\.md\([\"#]\),\1.html\2,g
        s,\(^\|[ (]\)\($programs\)(\([158]\)),\1<a href=\"$2man/\2.\3.html\">\2(\3)</a>,g"
    rm "$out/anchors"
}

# linked PAGE: what a page of the site links to, and is no page, is copied or listed
linked() {
    grep -o 'href="[^":#]*' "$out/$1" | sed 's/^href="//' | while read -r to; do
        case $1 in */*) from=${1%/*}/ ;; *) from= ;; esac
        [ ! -e "$out/$from$to" ] && [ -e "$src/$from$to" ] || continue
        at=$(cd "$src" && cd "$(dirname -- "$from$to")" && pwd)/$(basename -- "$to")
        at=${at#"$src"/}
        if [ -d "$src/$at" ]; then
            mkdir -p "$out/$at"
            (cd "$src/$at" && ls) | sed 's,.*,<li>&</li>,; 1s/^/<ul>/; $s,$,</ul>,' |
                page "$out/$at/index.html" "$(root_of "$at/x")" "$at"
        else mkdir -p "$out/$(dirname -- "$at")"; cp "$src/$at" "$out/$at"; fi
    done
}

# ---- pages -----------------------------------------------------------------------------------------------------------
documents=$(cd "$src" && find README.md HACKING.md NEWS.md docs -name '*.md' | LC_ALL=C sort)
for f in $documents; do
    mkdir -p "$out/$(dirname -- "$f")"
    html_of "$f" "$(root_of "$f")" | page "$out/${f%.md}.html" "$(root_of "$f")" "$(title_of "$src/$f")"
done
for f in $documents; do linked "${f%.md}.html"; done
cp "$src/COPYING" "$out/COPYING"

# mandoc looks where a manual page lies before it links to it.
pages='mpstaged.8 mpstaged.conf.5 mpstaged-schedule.5 mpstagectl.1 mpstage-run.1 mpstage-experiment.1 mpstage-tokens.1'
source_of() { if [ -f "$build/man/$1" ]; then echo "$build/man/$1"; else echo "$src/man/$1"; fi; }
for p in $pages; do : >"$out/man/$p"; done
for p in $pages; do
    (cd "$out/man" && mandoc -T html -I os=mpstaged -O 'toc,style=../style.css' \
        -O 'man=%N.%S.html;https://manpages.debian.org/%N.%S' "$(source_of $p)") |
        sed 's,^<body>$,<body><nav><a href="../index.html">mpstaged '"$version"'</a></nav>,' >"$out/man/$p.html"
done
for p in $pages; do rm "$out/man/$p"; done

# ---- the first page --------------------------------------------------------------------------------------------------
# part TITLE FOLDER: a list of the folder's pages
part() {
    [ -d "$src/$2" ] || return 0
    printf '<h2>%s</h2>\n<ul>\n' "$1"
    for f in "$src/$2"/*.md; do
        printf '<li><a href="%s.html">%s</a></li>\n' "$2/$(basename "$f" .md)" "$(title_of "$f")"
    done
    echo '</ul>'
}
{
    echo "<h1>mpstaged $version</h1>"
    printf '<ul>\n<li><a href="README.html">What it is, and the first five minutes</a></li>\n'
    printf '<li><a href="NEWS.html">News</a></li>\n<li><a href="COPYING">Licence</a></li>\n</ul>\n'
    part Guide docs/guide
    printf '<h2>Reference</h2>\n<ul>\n'
    for p in $pages; do
        about=$(sed -n 's/^\.Nd //p' "$(source_of $p)")
        printf '<li><a href="man/%s.html">%s(%s)</a>: %s</li>\n' "$p" "${p%.*}" "${p##*.}" "$about"
    done
    printf '</ul>\n'
    part Design docs/design
    printf '<h2>For contributors</h2>\n<ul>\n<li><a href="HACKING.html">%s</a></li>\n' "$(title_of "$src/HACKING.md")"
    printf '<li><a href="docs/decisions/README.html">Decisions</a></li>\n'
    for f in "$src"/docs/*.md; do
        printf '<li><a href="docs/%s.html">%s</a></li>\n' "$(basename "$f" .md)" "$(title_of "$f")"
    done
    echo '</ul>'
} | page "$out/index.html" "" "mpstaged $version"
cat >"$out/style.css" <<'CSS'
body { max-width: 52em; margin: 0 auto; padding: 0 1em 3em; font: 16px/1.5 sans-serif; color: #222; }
nav { padding: .5em 0; border-bottom: 1px solid #ccc; margin-bottom: 1em; }
pre, code { font-family: monospace; font-size: .92em; background: #f4f4f4; }
pre { padding: .6em; overflow-x: auto; }
table { border-collapse: collapse; }
th, td { border: 1px solid #ccc; padding: .2em .5em; text-align: left; vertical-align: top; }
table.head, table.foot, table.Nm { width: 100%; }
table.head td, table.foot td, table.Nm td { border: 0; }
td.head-vol { text-align: center; } td.head-rtitle, td.foot-os { text-align: right; }
dd { margin: 0 0 .5em 2em; } .Bl-compact > dd { margin-bottom: 0; }
.Nd, .Bf, .Op { display: inline; } .Pa, .Ad, .Ar, .Em { font-style: italic; }
.Nm, .Fl, .Cm, .Ic, .Sy, .permalink { font-weight: bold; color: inherit; text-decoration: none; }
CSS
