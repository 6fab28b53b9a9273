#!/bin/sh
# release.sh: make dist makes the same archive from two paths, at two times, under two umasks and, as root, by two
# users.
set -eu
: "${srcdir:=.}" "${top_builddir:=.}"
here=$(CDPATH='' cd -- "$(dirname -- "$0")" && pwd)
. "$here/tap.sh"
tmp=$(mktemp -d)
trap 'rm -rf "$tmp"' EXIT
chmod 755 "$tmp"
build=$(CDPATH='' cd -- "$top_builddir" && pwd)
for p in git gzip sha256sum; do command -v $p >/dev/null || { echo "1..0 # SKIP no $p"; exit 77; }; done

# tree NAME UMASK TOUCHED: a clean clone at $tmp/NAME: the distribution's files, all of that time, committed at 1e9
tree() {
    (umask "$2"; mkdir -p "$tmp/$1"; cp -R "$tmp/sources/." "$tmp/$1"; cd "$tmp/$1"
        find . -exec touch -d "$3" {} +
        git init -q . && git add -f NEWS.md
        GIT_COMMITTER_DATE='1000000000 +0000' git -c user.name=a -c user.email=a@b commit -qm a)
    mkdir "$tmp/$1/build"
}
# dist NAME UMASK COMMAND...: makes the archive there, COMMAND before; prints its hash
dist() {
    dist_in=$tmp/$1; dist_mask=$2; shift 2
    (umask "$dist_mask"; cd "$dist_in/build"
        [ -e Makefile ] || "$@" ../configure -q --cache-file="$tmp/cache" --with-cuda=no >configured 2>&1
        "$@" make -s dist) >"$tmp/out" 2>&1 || note <"$tmp/out"
    cat "$dist_in"/build/mpstaged-*.tar.gz.sha256
}
# same TEXT HASH: it is the first one's
same() {
    if [ -n "$first" ] && [ "$2" = "$first" ]; then ok "$1"; else echo "$first, $2" | note; not_ok "$1"; fi
}

version=$(sed -n 's/^AC_INIT(\[mpstaged\], \[\([^]]*\).*/\1/p' "$srcdir/configure.ac")
check "NEWS.md begins with version $version" test "$(sed -n '3s/^## //p' "$srcdir/NEWS.md")" = "$version"
check "CITATION.cff has it" grep -qx "version: $version" "$srcdir/CITATION.cff"

make -s -C "$build" distdir distdir="$tmp/sources" >"$tmp/out" 2>&1 || note <"$tmp/out"
# What configure found in this build; not how: CC, flags and words of precious variables differ from call to call.
sed -n '/^ac_cv_\(func\|header\|lib\|search\|type\)_/p' "$build/config.log" >"$tmp/cache"
unset SOURCE_DATE_EPOCH MAKEFLAGS MFLAGS MAKELEVEL || true
tree a 022 2020-01-01
tree deep/in/b 077 2024-06-01
other=env
if [ "$(id -u)" -eq 0 ] && command -v setpriv >/dev/null; then
    other='setpriv --reuid=65534 --regid=65534 --clear-groups env HOME=/nonexistent'
    chown -R 65534:65534 "$tmp/deep"
fi
! command -v faketime >/dev/null || other="faketime 2031-01-01 $other"
chmod 666 "$tmp/cache"
first=$(dist a 022 env)
same "another path, user, time and umask" "$(dist deep/in/b 077 $other)"
archive=$(ls "$tmp"/a/build/mpstaged-*.tar.gz)
check "the sum is of the archive" sh -c 'cd "${1%/*}" && sha256sum -c --status "$1.sha256"' sh "$archive"
TZ=UTC tar --numeric-owner -tvzf "$archive" >"$tmp/list"
awk '{ print $6 }' "$tmp/list" >"$tmp/names"
check "files of all owners, modes and times are one kind" awk '
    $1 !~ /^(-rw-r--r--|[-d]rwxr-xr-x)$/ || $2 != "0/0" || $4 " " $5 != "2001-09-09 01:46" { print "# " $0; bad = 1 }
    END { exit bad || NR < 1000 }' "$tmp/list"
rm -rf "$tmp/a/.git"
touch -d @1000000000 "$tmp/a/NEWS.md"
same "without git the time of the files is taken" "$(dist a 022 env)"
SOURCE_DATE_EPOCH=1000000001
export SOURCE_DATE_EPOCH
check "SOURCE_DATE_EPOCH is, where that is set: another archive" test "$(dist a 022 env)" != "$first"
tap_done
