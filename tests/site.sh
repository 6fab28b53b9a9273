#!/bin/sh
# site.sh: `make html` makes a site of all documents and manual pages in which every link leads somewhere.
set -eu
here=$(CDPATH='' cd -- "$(dirname -- "$0")" && pwd)
. "$here/tap.sh"
src=$(CDPATH='' cd -- "$here/.." && pwd)
: "${top_builddir:=$src/build}"
tmp=$(mktemp -d)
trap 'rm -rf "$tmp"' EXIT

mkdir "$tmp/bin"
for tool in cat dirname; do ln -s "$(command -v $tool)" "$tmp/bin"; done
code=0
PATH=$tmp/bin /bin/sh "$src/docs/site.sh" "$src" "$top_builddir" "$tmp/site" >"$tmp/out" 2>&1 || code=$?
check "without cmark-gfm one line says what to install ($code)" \
    [ "$code $(grep -c '^make html needs cmark-gfm: apt-get install' "$tmp/out") $(wc -l <"$tmp/out")" = "1 1 1" ]

if ! command -v cmark-gfm >/dev/null || ! command -v mandoc >/dev/null; then
    skip "make html" "apt-get install cmark-gfm mandoc"
    tap_done
fi
if sh "$src/docs/site.sh" "$src" "$top_builddir" "$tmp/site" >"$tmp/out" 2>&1; then ok "make html"
else note <"$tmp/out"; not_ok "make html"; fi
(cd "$src" && find README.md HACKING.md NEWS.md docs -name '*.md') | sed 's/\.md$/.html/' >"$tmp/wanted"
(cd "$src/man" && ls | sed -n 's,\(.*\.[158]\)\(\.in\)*$,man/\1.html,p') >>"$tmp/wanted"
while read -r f; do [ -s "$tmp/site/$f" ] || echo "$f"; done <"$tmp/wanted" >"$tmp/lost"
note <"$tmp/lost"
check "$(wc -l <"$tmp/wanted") documents and manual pages are there" [ ! -s "$tmp/lost" ]

# dead SITE: links of its pages to files or places that are not there
dead() {
    (cd "$1" && { find .; grep -roE ' (id|href)="[^"]*"' --include='*.html' .; }) | sed 's,^\./,,' | awk '
        function place(from, to,   n, part, i, at) {          # of a link, from the top of the site
            sub(/[^\/]*$/, "", from); n = split(from to, part, "/"); at = ""
            for (i = 1; i <= n; i++)
                if (part[i] == "..") sub(/\/?[^\/]*$/, "", at)
                else if (part[i] != "" && part[i] != ".") at = at (at == "" ? "" : "/") part[i]
            return at
        }
        !/: (id|href)="/ { there[$0] = 1; next }
        { from = $0; sub(/: (id|href)=.*/, "", from); to = $0; sub(/.*="/, "", to); sub(/"$/, "", to) }
        / id="/ { id[from "#" to] = 1; next }
        to !~ /^[a-z]+:/ { link[from " " to] = 1 }
        END { for (l in link) {
            split(l, w, " "); file = w[2]; sub(/#.*/, "", file)
            at = file == "" ? w[1] : place(w[1], file)
            if (!(at in there)) print w[1] ": " w[2]
            else if (w[2] ~ /#/) { sub(/.*#/, "", w[2]); if (!((at "#" w[2]) in id)) print w[1] ": " l }
        } }'
}
dead "$tmp/site" >"$tmp/found"
note <"$tmp/found"
check "every link leads somewhere" [ ! -s "$tmp/found" ]
echo '<a href="none.html">a</a> <a href="index.html#none">b</a> <a href="README.html">c</a>' >"$tmp/site/wrong.html"
dead "$tmp/site" >"$tmp/found"
check "two dead links are seen" [ "$(wc -l <"$tmp/found")" -eq 2 ]
tap_done
