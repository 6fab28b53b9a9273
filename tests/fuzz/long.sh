#!/bin/sh
# long.sh: each parser is fuzzed under the address and undefined-behaviour sanitizers for FUZZ_SECONDS (60). Where there
# is clang, by its engine, in a build of its own (fuzz/ in the build directory); otherwise by random changes of the
# corpus. Part of `./quickstart check-long`. FUZZ="idx npy" takes these alone. FUZZ_DEPTH=parse: parsers alone
# (depth.h).
set -eu
: "${srcdir:=.}" "${top_builddir:=.}"
here=$(CDPATH='' cd -- "$(dirname -- "$0")" && pwd)
. "$here/../tap.sh"
top=$(CDPATH='' cd -- "$srcdir" && pwd) build=$(CDPATH='' cd -- "$top_builddir" && pwd)/fuzz
seconds=${FUZZ_SECONDS:-60}
: "${FUZZ:=$(cd "$here/corpus" && echo *)}"

# made COMPILER FLAGS TARGET: whether the fuzzers are built by this compiler, and then the target, if one is named
made() {
    compiler=$1 flags=$2; shift 2
    mkdir -p "$build" && cd "$build" || return 1
    [ -f Makefile ] && [ ! "$top/configure" -nt Makefile ] ||
        "$top/configure" -q --with-cuda=no CC="$compiler" --enable-sanitizer=address,undefined \
            CFLAGS="$flags" >configure.out 2>&1 || return 1
    programs=$(for f in $FUZZ; do echo "tests/fuzz/fuzz_$f"; done | tr '\n' ' ')
    make -s src/registry.inc $programs >make.out 2>&1 &&
        { [ -z "$1" ] || make -s "$1" FUZZERS="$programs" >>make.out 2>&1; }
}

mkdir -p "$build"
echo 'int LLVMFuzzerTestOneInput(const void *p, unsigned long n) { return p && n == 77; }' >"$build/try.c"
: "${CLANG:=clang}"
if $CLANG -fsanitize=fuzzer,address,undefined "$build/try.c" -o "$build/try" 2>/dev/null; then
    made "$CLANG" "-O1 -g1 -fsanitize=fuzzer-no-link" fuzz-engines && engine=yes || engine=failed
else engine=no; fi
if [ $engine = failed ]; then tail -n 20 make.out | note; not_ok "the fuzzers build with clang"; tap_done; fi
if [ $engine = no ]; then
    build=$build-plain
    made "${CC:-cc}" "-O1 -g1" "" || { tail -n 20 make.out | note; not_ok "the fuzzers build"; tap_done; }
fi
cd "$build"
# Few freed blocks wait, and few callers are noted of each, since an input is over in less than a millisecond: memory
# that is in the cache is used again.
export UBSAN_OPTIONS=halt_on_error=1:print_stacktrace=1 srcdir="$top"
export ASAN_OPTIONS="quarantine_size_mb=4:malloc_context_size=4${ASAN_OPTIONS:+:$ASAN_OPTIONS}"

# longest TARGET: bytes of its inputs. A kilobyte of gzip may be a megabyte, which then costs more than all else; the
# corpus has one that is longer, and the replay of `make check` tries it.
longest() {
    case $1 in idx) echo 1024 ;; *) echo 8192 ;; esac
}
for f in $FUZZ; do
    status=0
    if [ $engine = yes ]; then
        mkdir -p ".corpus/$f"
        tests/fuzz/fuzz_$f-engine -max_total_time="$seconds" -print_final_stats=1 -timeout=60 -rss_limit_mb=4096 \
            -max_len="$(longest "$f")" -artifact_prefix="$f-" ".corpus/$f" "$here/corpus/$f" >"$f.out" 2>&1 || status=$?
        n=$(sed -n 's/^stat::number_of_executed_units: *//p' "$f.out")
    else
        tests/fuzz/fuzz_$f -t "$seconds" -s "$(date +%s)" >"$f.out" 2>&1 || status=$?
        n=$(sed -n 's/ executions$//p' "$f.out")
    fi
    if [ $status -eq 0 ]; then ok "$f: $n executions in $seconds s"
    else tail -n 40 "$f.out" | note; not_ok "$f: what did it is in $build"; fi
done
tap_done
