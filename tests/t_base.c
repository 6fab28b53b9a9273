/* Errors, memory, texts, clocks and random numbers. */
#include <math.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/sysmacros.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <unistd.h>
#include "base/address.h"
#include "base/clock.h"
#include "base/err.h"
#include "base/mem.h"
#include "base/suggest.h"
#include "base/proc.h"
#include "base/rng.h"
#include "base/text.h"
#include "files.h"
#include "sure.h"

/* ---- errors ------------------------------------------------------------------------------------------------------ */

START_TEST(err_first_wins)
{
    struct err e = {0};
    ck_assert_int_eq(err_set(&e, E_DATA, "file %d", 7), -1);
    err_set(&e, E_CONF, "another");
    ck_assert_int_eq(e.code, E_DATA);
    ck_assert_str_eq(e.text, "file 7");
    ck_assert_int_eq(err_where(&e, "step %d", 3), -1);
    ck_assert_str_eq(e.text, "step 3: file 7");
    ck_assert_int_eq(err_set(NULL, E_DATA, "nobody asked"), -1);
    struct err none = {0};
    err_where(&none, "step");
    ck_assert_str_eq(none.text, "");
}
END_TEST

START_TEST(err_is_one_line)
{
    struct err e = {0};
    err_set(&e, E_DATA, "a\nb\033[1m\x7f é");
    ck_assert_str_eq(e.text, "a?b?[1m? é");
    err_where(&e, "c\nd");
    ck_assert_str_eq(e.text, "c?d: a?b?[1m? é");
}
END_TEST

START_TEST(err_long_texts)
{
    char name[3000];
    struct err e = {0};
    memset(name, 'n', sizeof name - 1);
    name[sizeof name - 1] = 0;
    err_set(&e, E_DATA, "%s", name);
    ck_assert_uint_eq(strlen(e.text), sizeof e.text - 1);
    err_where(&e, "%s", name);
    ck_assert_uint_lt(strlen(e.text), sizeof e.text);
    ck_assert_ptr_nonnull(strstr(e.text, "n: n"));
}
END_TEST

/* ---- memory ------------------------------------------------------------------------------------------------------ */

START_TEST(sizes_saturate)
{
    ck_assert_uint_eq(size_mul(6, 7), 42);
    ck_assert_uint_eq(size_add(6, 7), 13);
    ck_assert_uint_eq(size_mul(SIZE_MAX / 2, 3), SIZE_MAX);
    ck_assert_uint_eq(size_mul(SIZE_MAX, 0), SIZE_MAX);
    ck_assert_uint_eq(size_mul(0, SIZE_MAX), SIZE_MAX);
    ck_assert_uint_eq(size_add(SIZE_MAX - 1, 2), SIZE_MAX);
    ck_assert_uint_eq(size_add(size_mul(SIZE_MAX, 1), 0), SIZE_MAX);
}
END_TEST

START_TEST(arena_blocks)
{
    struct arena *a = arena_new();
    unsigned char *p[300];
    size_t bytes[300];
    for (int i = 0; i < 300; i++) {
        bytes[i] = (size_t)(i * i) + 1;                  /* from 1 byte to more than a block */
        p[i] = arena_alloc(a, bytes[i]);
        ck_assert_uint_eq((uintptr_t)p[i] % 16, 0);
        for (size_t k = 0; k < bytes[i]; k += 97) ck_assert_uint_eq(p[i][k], 0);
        memset(p[i], i & 0xff, bytes[i]);
    }
    for (int i = 0; i < 300; i++)
        for (size_t k = 0; k < bytes[i]; k++)
            if (p[i][k] != (i & 0xff)) ck_abort_msg("%d overlaps", i);
    ck_assert_str_eq(arena_strdup(a, "text"), "text");
    ck_assert_str_eq(arena_strndup(a, "text", 3), "tex");
    ck_assert_mem_eq(arena_strndup(a, "a\0b", 3), "a\0b", 4);
    ck_assert_str_eq(arena_strndup(a, NULL, 0), "");
    ck_assert_str_eq(arena_printf(a, "%s-%d", "stage", 12), "stage-12");
    arena_free(a);
    arena_free(NULL);
}
END_TEST

START_TEST(vec_grows)
{
    struct pair { int a, b; };
    VEC(struct pair) v = {0};
    for (int i = 0; i < 1000; i++) {
        ck_assert_int_eq(vec_push(&v)->b, 0);
        v.v[i].a = i;
        v.v[i].b = -1;
    }
    ck_assert_int_eq(v.n, 1000);
    for (int i = 0; i < 1000; i++) ck_assert_int_eq(v.v[i].a, i);
    vec_free(&v);
    ck_assert_int_eq(v.n, 0);
}
END_TEST

static void leave(size_t bytes) { _exit(bytes == SIZE_MAX ? 70 : 1); }

START_TEST(out_of_memory)
{
    mem_oom_handler(leave);
    arena_alloc(arena_new(), SIZE_MAX);
}
END_TEST

/* ---- texts ------------------------------------------------------------------------------------------------------- */

START_TEST(text_grows)
{
    struct text t = {0};
    for (int i = 0; i < 1000; i++) text_add(&t, "%03d ", i);
    ck_assert_uint_eq(t.n, 4000);
    ck_assert_uint_eq(strlen(t.s), 4000);
    ck_assert_int_eq(memcmp(t.s + 4 * 999, "999 ", 4), 0);
    text_add_bytes(&t, "a\0b", 3);
    ck_assert_uint_eq(t.n, 4003);
    ck_assert_int_eq(t.s[4003], 0);
    text_free(&t);
    ck_assert_ptr_null(t.s);
}
END_TEST

/* XXH3-128 with seed 0: of nothing as xxHash's own specification tests it, and what `printf abc | xxh128sum` prints. */
START_TEST(text_hashes)
{
    char h[33];
    text_hash("", 0, h);
    ck_assert_str_eq(h, "99aa06d3014798d86001c324468d497f");
    text_hash("abc", 3, h);
    ck_assert_str_eq(h, "06b05ab6733a618578af5f94892f3950");
}
END_TEST

START_TEST(text_says_bytes)
{
    char s[32];
    ck_assert_str_eq(text_bytes(0, s), "0 B");
    ck_assert_str_eq(text_bytes(1023, s), "1023 B");
    ck_assert_str_eq(text_bytes(1024, s), "1.00 KiB");
    ck_assert_str_eq(text_bytes(UINT64_C(5) << 28, s), "1.25 GiB");
    ck_assert_str_eq(text_bytes(UINT64_MAX, s), "16.00 EiB");
}
END_TEST

START_TEST(text_says_numbers)
{
    char s[32];
    ck_assert_str_eq(text_count(150, s), "150");
    ck_assert_str_eq(text_count(401408, s), "401.41 k");
    ck_assert_str_eq(text_count(118013952, s), "118.01 M");
    ck_assert_str_eq(text_number(7.04312, s), "7.043");
    ck_assert_str_eq(text_number(403463.2, s), "403463");
    for (double x = 0.1; x < 1e300; x *= 1.37) ck_assert(strtod(text_exact(x, s), NULL) == x && (x > 0.1 || !s[3]));
    ck_assert_str_eq(text_seconds(4957e-8, s), "49.57 µs");
    ck_assert_str_eq(text_seconds(0.0008, s), "800.0 µs");
    ck_assert_str_eq(text_seconds(0.00085731, s), "857.3 µs");
    ck_assert_str_eq(text_seconds(0.834, s), "834.0 ms");
    ck_assert_str_eq(text_seconds(0.99999, s), "1000 ms");
    ck_assert_str_eq(text_seconds(5.879, s), "5.879 s");
    ck_assert_str_eq(text_seconds(86400, s), "86400 s");
}
END_TEST

static const struct { const char *s; int columns, indent; const char *folded; } folds[] = {
    {"", 10, 2, ""},
    {"\n", 10, 2, "\n"},
    {"a\n\nb\n", 10, 2, "a\n\nb\n"},
    {"no end", 10, 2, "no end\n"},
    {"exactly 10\n", 10, 2, "exactly 10\n"},
    {"exactly 11!\n", 10, 2, "exactly\n  11!\n"},
    {"  a  table  of figures\n", 12, 2, "  a  table\n  of figures\n"},
    {"one two three four five\n", 9, 4, "one two\n    three\n    four\n    five\n"},
    {"a a-word-that-is-too-long for it\nb\n", 9, 2, "a\n  a-word-that-is-too-long\n  for it\nb\n"},
    {"a-word-that-is-too-long\n", 9, 2, "a-word-that-is-too-long\n"},
    {"12 \302\265s 67 9\n", 10, 2, "12 \302\265s 67 9\n"},
    {"ends with spaces    \n", 16, 2, "ends with spaces\n"},
};

START_TEST(text_folds)
{
    struct text t = {0};
    text_fold(folds[_i].s, folds[_i].columns, folds[_i].indent, &t);
    ck_assert_str_eq(t.s ? t.s : "", folds[_i].folded);
    text_free(&t);
}
END_TEST

static const struct { const char *s, *clean; } prints[] = {
    {"", ""},
    {"layer1.0 (\302\265s, gr\303\266\303\237er, \344\270\255, \360\237\230\200)", NULL},
    {"a\\b", NULL},
    {"x\nmpstaged: all is lost", "x\\x0ampstaged: all is lost"},
    {"\033[2J\r\t\177", "\\x1b[2J\\x0d\\x09\\x7f"},
    {"\302\233"
     "31m\302\205",
     "\\u{9b}31m\\u{85}"},
    {"\302\240", NULL},
    {"a\342\200\256b\342\201\246c\342\200\216d\330\234", "a\\u{202e}b\\u{2066}c\\u{200e}d\\u{61c}"},
    {"\342\200\250\342\200\251\357\277\276", "\\u{2028}\\u{2029}\\u{fffe}"},
    {"\342\200\260", NULL},
    {"\377\200x", "\\xff\\x80x"},
    {"\300\212", "\\xc0\\x8a"},
    {"\340\200\212", "\\xe0\\x80\\x8a"},
    {"\355\240\200", "\\xed\\xa0\\x80"},
    {"\364\220\200\200", "\\xf4\\x90\\x80\\x80"},
    {"cut \342\202", "cut \\xe2\\x82"},
};

/* What others wrote may neither forge a line nor steer a terminal; what people write stays. */
START_TEST(text_printable_escapes)
{
    char buf[200];
    const char *want = prints[_i].clean ? prints[_i].clean : prints[_i].s;
    ck_assert_str_eq(text_printable(prints[_i].s, buf, sizeof buf), want);
    for (size_t size = 1; size <= strlen(want); size++) {
        text_printable(want, buf, size);
        ck_assert_uint_lt(strlen(buf), size);
        ck_assert(!strncmp(buf, want, strlen(buf)) && (want[strlen(buf)] & 0xc0) != 0x80);
    }
}
END_TEST

START_TEST(text_right_counts_characters)
{
    struct text t = {0};
    text_right(&t, 4, "\302\265s");
    text_right(&t, 1, "ms");
    ck_assert_str_eq(t.s, "  \302\265sms");
    text_free(&t);
}
END_TEST

START_TEST(text_reads_files)
{
    struct text t = {0};
    struct err e = {0};
    scratch_enter();
    ck_assert_int_eq(text_read_file(&t, "f", 10, &e), -1);
    expect(&e, E_NOINPUT, "f: No such file or directory");
    PUT("f", "0123456789");
    ck_assert_int_eq(text_read_file(&t, "f", 10, NULL), 0);
    ck_assert_str_eq(t.s, "0123456789");
    text_free(&t);
    e = (struct err){0};
    ck_assert_int_eq(text_read_file(&t, "f", 9, &e), -1);
    expect(&e, E_DATA, "f: larger than 9 bytes");
    char *large = mem_alloc(70000);                       /* more than one piece: nothing of the first one is left */
    memset(large, 'x', 70000);
    put("f", large, 70000);
    free(large);
    ck_assert_int_eq(text_read_file(&t, "f", 69999, NULL), -1);
    ck_assert(!t.s && !t.n);
    e = (struct err){0};
    ck_assert_int_eq(text_read_file(&t, ".", 9, &e), -1);
    ck_assert_int_eq(e.code, E_DATA);
    text_free(&t);
    scratch_leave();
}
END_TEST

START_TEST(clocks)
{
    char s[32];
    uint64_t a = clock_ns(), b = clock_ns();
    ck_assert_uint_ge(b, a);
    clock_rfc3339(s);
    ck_assert_uint_eq(strlen(s), strlen("2000-01-01T00:00:00.000Z"));
    ck_assert(s[4] == '-' && s[10] == 'T' && s[13] == ':' && s[19] == '.' && s[23] == 'Z');
}
END_TEST

START_TEST(addresses)
{
    static const struct { const char *given, *want; } of[] = {
        {"127.0.0.1:9464", "127.0.0.1:9464"}, {"0.0.0.0:1", "0.0.0.0:1"}, {":9464", "127.0.0.1:9464"},
        {"[::1]:0", "[::1]:0"}, {"[::]:65535", "[::]:65535"}, {"[fe80:0::1]:7", "[fe80::1]:7"},
    };
    static const char *const none[] = {"", ":", "1", "127.0.0.1", "127.0.0.1:", "127.0.0.1:65536", "127.0.0.1:x",
        "127.0.0.1:1x", "127.0.0.1:-1", "127.0.0.1:000001", "localhost:1", "[]:1", "[::1]", "::1:1", "[::1:1", "[::1]1",
        "[127.0.0.1]:1", "127.0.0.1]:1", "[:1", "]:1", " :1", "1.2.3:1",
        "1.2.3.4.5.6.7.8.9.0.1.2.3.4.5.6.7.8.9.0.1.2:1"};
    struct address a;
    char s[ADDRESS_TEXT];
    for (size_t i = 0; i < sizeof of / sizeof *of; i++) {
        ck_assert_msg(!address_parse(of[i].given, &a), "%s", of[i].given);
        ck_assert_str_eq(address_text(&a, s), of[i].want);
    }
    for (size_t i = 0; i < sizeof none / sizeof *none; i++)
        ck_assert_msg(address_parse(none[i], &a) == -1, "%s", none[i]);
}
END_TEST

START_TEST(waits_end)
{
    pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
    pthread_cond_t never;
    uint64_t began = clock_ns();
    clock_cond_init(&never);
    pthread_mutex_lock(&lock);
    while (clock_ns() < began + 20000000) clock_cond_wait(&never, &lock, 20000000);
    pthread_mutex_unlock(&lock);
    pthread_cond_destroy(&never);
}
END_TEST

/* As the kernel takes them: a path with its zero, an abstract name with one instead of "@". */
START_TEST(addresses_of_sockets)
{
    struct address a;
    char name[120];
    const size_t most = sizeof((struct sockaddr_un *)0)->sun_path, before = offsetof(struct sockaddr_un, sun_path);
    ck_assert_int_eq(address_parse_unix("/run/x", &a), 0);
    ck_assert_uint_eq(a.n, before + sizeof "/run/x");
    ck_assert_str_eq(((struct sockaddr_un *)&a.at)->sun_path, "/run/x");
    ck_assert_int_eq(address_parse_unix("@x", &a), 0);
    ck_assert_uint_eq(a.n, before + 2);
    ck_assert(!memcmp(((struct sockaddr_un *)&a.at)->sun_path, "\0x", 2));
    for (size_t n = most - 2; n <= most + 1; n++) {
        memset(name, 'n', n);
        name[n] = '\0';
        *name = '/';
        ck_assert_int_eq(address_parse_unix(name, &a), n < most ? 0 : -1);
        *name = '@';
        ck_assert_int_eq(address_parse_unix(name, &a), n <= most ? 0 : -1);
    }
    ck_assert(address_parse_unix("", &a) && address_parse_unix("x", &a) && address_parse_unix("/", &a));
}
END_TEST

/* ---- processes --------------------------------------------------------------------------------------------------- */

/* As Linux 6 wrote them: mpirun of a terminal, /dev/pts/300 of a program with an odd name, a daemon. */
START_TEST(processes_are_read)
{
    struct proc p;
    ck_assert(proc_parse("23042 (mpirun) S 23041 23042 23042 34816 23042 4194560 1 2 3 4 50 7 0 0 20 0 3 0 1234567 "
                         "9007104 2211 18446744073709551615 1 1", &p));
    ck_assert_int_eq(p.pid, 23042);
    ck_assert_int_eq(p.parent, 23041);
    ck_assert_int_eq(p.group, 23042);
    ck_assert_int_eq(p.foreground, 23042);
    ck_assert_uint_eq(p.terminal, makedev(136, 0));
    ck_assert_int_eq(p.state, 'S');
    ck_assert_str_eq(p.name, "mpirun");
    ck_assert_uint_eq(p.cpu, 57);
    ck_assert_uint_eq(p.start, 1234567);
    ck_assert_uint_eq(p.virtual_bytes, 9007104);
    ck_assert_uint_eq(p.resident_pages, 2211);
    ck_assert(proc_parse("7 (a) b (c)) R 1 7 7 1083436 -1 0", &p));
    ck_assert_str_eq(p.name, "a) b (c)");
    ck_assert_uint_eq(p.terminal, makedev(136, 300));
    ck_assert_int_eq(p.foreground, -1);
    ck_assert(proc_parse("9 (cron) S 1 9 9 0 -1 4194624", &p));
    ck_assert_uint_eq(p.terminal, 0);
    ck_assert(!proc_parse("", &p) && !proc_parse("9 (cron) S 1 9", &p) && !proc_parse("9 )( S 1 9 9 0 -1", &p));
}
END_TEST

START_TEST(processes_live_and_end)
{
    struct proc p;
    ck_assert(proc_read(getpid(), &p) && proc_lives(getpid()));
    ck_assert_int_eq(p.parent, getppid());
    ck_assert_uint_gt(p.resident_pages, 0);
    pid_t child = fork();
    if (!child) _exit(0);
    siginfo_t ended;
    ck_assert_int_eq(waitid(P_PID, (id_t)child, &ended, WEXITED | WNOWAIT), 0);
    ck_assert(proc_read(child, &p) && p.state == 'Z' && !proc_lives(child));
    ck_assert_int_eq(waitpid(child, NULL, 0), child);
    ck_assert(!proc_read(child, &p) && !proc_lives(child));
}
END_TEST

/* The system's start comes behind a line as long as the machine has interrupts. */
START_TEST(processes_know_their_start)
{
    struct text t = {0};
    text_add(&t, "cpu  1 2\nintr 5");
    for (int i = 0; i < 50000; i++) text_add(&t, " 0");
    text_add(&t, "\nctxt 7\nbtime 1700000000\nprocesses 3\n");
    ck_assert(proc_boot_parse(t.s) == 1700000000.0);
    text_free(&t);
    ck_assert(proc_boot_parse("btime 5\n") == 5.0);
    ck_assert(proc_boot_parse("cpu 1\nxbtime 5\n") < 0 && proc_boot_parse("") < 0);
    double start = proc_own_start();
    ck_assert(start > 1e9);
}
END_TEST

/* ---- random numbers ---------------------------------------------------------------------------------------------- */

/* Known answers of philox4x32-10 from Random123's kat_vectors. A domain is the counter's highest byte. */
START_TEST(philox_known_answers)
{
    static const struct { uint32_t ctr[4]; uint64_t seed; uint32_t out[4];
    } kat[] = {
        {{0, 0, 0, 0}, 0, {0x6627e8d5, 0xe169c58d, 0xbc57ac4c, 0x9b00dbd8}},
        {{0xffffffff, 0xffffffff, 0xffffffff, 0xffffffff},
         UINT64_MAX,
         {0x408f276d, 0x41c83b0e, 0xa20bc7c6, 0x6d5451fd}},
        {{0x243f6a88, 0x85a308d3, 0x13198a2e, 0x03707344},
         UINT64_C(0x299f31d0a4093822),
         {0xd16cfe09, 0x94fdcceb, 0x5001e420, 0x24126ea1}},
    };
    for (size_t i = 0; i < sizeof kat / sizeof *kat; i++) {
        uint32_t out[4];
        const uint32_t *c = kat[i].ctr;
        struct rng_at at = {kat[i].seed, (enum rng_domain)(c[0] >> 24), c[0] & 0xffffff, c[1], c[2]};
        rng_words(at, c[3], out);
        for (int k = 0; k < 4; k++) ck_assert_uint_eq(out[k], kat[i].out[k]);
    }
}
END_TEST

START_TEST(fills_are_prefixes)
{
    float all[103], part[103];
    void (*const fill[])(struct rng_at, float *, uint64_t) = {rng_fill_uniform, rng_fill_normal};
    for (int f = 0; f < 2; f++) {
        fill[f]((struct rng_at){9, RNG_TEST, 1, 2, 3}, all, 103);
        for (uint64_t n = 0; n <= 103; n++) {
            for (int i = 0; i < 103; i++) part[i] = -7;
            fill[f]((struct rng_at){9, RNG_TEST, 1, 2, 3}, part, n);
            ck_assert_int_eq(memcmp(all, part, n * sizeof *all), 0);
            for (uint64_t i = n; i < 103; i++) ck_assert(part[i] == -7);
        }
        fill[f]((struct rng_at){9, RNG_TEST, 1, 2, 4}, part, 103);
        ck_assert_int_ne(memcmp(all, part, sizeof all), 0);
    }
}
END_TEST

/* Mean and variance of 40,000 draws: tolerances are five standard errors; the numbers are fixed, so the test cannot
 * flicker. */
START_TEST(fills_have_their_moments)
{
    enum { N = 40000 };
    static float x[N];
    double mean = 0, square = 0;
    rng_fill_uniform((struct rng_at){1, RNG_TEST}, x, N);
    for (int i = 0; i < N; i++) {
        ck_assert(x[i] >= 0 && x[i] < 1);
        mean += x[i] / N;
        square += (double)x[i] * x[i] / N;
    }
    ck_assert_double_eq_tol(mean, 0.5, 5 * sqrt(1 / 12.0 / N));
    ck_assert_double_eq_tol(square, 1 / 3.0, 5 * sqrt(4 / 45.0 / N));
    mean = square = 0;
    rng_fill_normal((struct rng_at){1, RNG_TEST}, x, N);
    for (int i = 0; i < N; i++) { ck_assert(isfinite(x[i])); mean += x[i] / N; square += (double)x[i] * x[i] / N; }
    ck_assert_double_eq_tol(mean, 0, 5 * sqrt(1.0 / N));
    ck_assert_double_eq_tol(square, 1, 5 * sqrt(2.0 / N));
}
END_TEST

START_TEST(permutations)
{
    static const uint64_t size[] = {1, 2, 3, 4, 5, 16, 17, 100, 255, 256, 257, 1000, 4097};
    static unsigned char seen[4097];
    for (size_t k = 0; k < sizeof size / sizeof *size; k++) {
        memset(seen, 0, sizeof seen);
        for (uint64_t i = 0; i < size[k]; i++) {
            uint64_t j = rng_permute(3, 1, i, size[k]);
            ck_assert_uint_lt(j, size[k]);
            ck_assert_uint_eq(seen[j], 0);
            seen[j] = 1;
        }
    }
    int moved = 0, changed = 0;
    for (uint64_t i = 0; i < 1000; i++) {
        moved += rng_permute(3, 1, i, 1000) != i;
        changed += rng_permute(3, 2, i, 1000) != rng_permute(3, 1, i, 1000);
    }
    ck_assert_int_gt(moved, 980);                        /* one fixed point is expected; 20 would be absurd */
    ck_assert_int_gt(changed, 980);
    ck_assert_uint_lt(rng_permute(3, 1, UINT64_C(1) << 62, UINT64_MAX), UINT64_MAX);
}
END_TEST

/* ---- did you mean ...? ------------------------------------------------------------------------------------------- */

/* A guess, names between spaces, and which one is meant; "": none. */
static const struct { const char *guess, *names, *meant; } guesses[] = {
    {"steps", "epochs steps", "steps"},
    {"stepz", "epochs steps", "steps"},
    {"setps", "epochs steps", "steps"},
    {"stps", "epochs steps", "steps"},
    {"stteps", "epochs steps", "steps"},
    {"STEPS", "steps", "steps"},
    {"batch-size", "batch_size split_size", "batch_size"},
    {"lr", "momentum learning_rate", "learning_rate"},
    {"lr", "learning-rate", "learning-rate"},
    {"wd", "weight_decay", "weight_decay"},
    {"gpus", "steps stages", "stages"},
    {"LR", "learning_rate", "learning_rate"},
    {"gpu", "auto cpu cuda", "cuda"},
    {"gpu", "cpu cuda", "cuda"},
    {"layer4.2.conv9", "layer4.2.conv1 layer4.2.conv2 layer4.2.conv3 layer4.2", "layer4.2.conv3"},
    {"layer4.9.bn1", "layer4.1.bn1 layer4.2.bn1", "layer4.2.bn1"},
    {"conv0", "conv2 conv1", "conv1"},
    {"ab12", "ab13 ab1", "ab13"},
    {"schedlue", "schedule", "schedule"},
    /* no advice where it would be nonsense */
    {"ema", "gamma eps", ""},
    {"x", "y", ""},
    {"p", "eps", ""},
    {"ab", "ac", ""},
    {"colour", "column classes", ""},
    {"vgg16", "toy mlp resnet18", ""},
    {"momentum", "learning_rate", ""},
    {"nesterov", "network", ""},
    {"", "a", ""},
    {"abc", "", ""},
    {"cat", "bat", "bat"},
    {"cat", "bit", ""},
    {"lr", "lrs", ""},
};

START_TEST(nearest_names)
{
    char buf[SUGGEST_TEXT], want[SUGGEST_TEXT] = "";
    struct suggest s = suggest_begin(guesses[_i].guess, strlen(guesses[_i].guess));
    for (const char *at = guesses[_i].names; *at; at += strcspn(at, " "), at += strspn(at, " "))
        suggest_try(&s, at, strcspn(at, " "), 0);
    if (*guesses[_i].meant) snprintf(want, sizeof want, " (did you mean --%s?)", guesses[_i].meant);
    ck_assert_msg(!strcmp(suggest_text(&s, "--", buf), want), "%s:%s", guesses[_i].guess, buf);
}
END_TEST

START_TEST(nearest_rank_and_length)
{
    char name[300], buf[SUGGEST_TEXT];
    struct suggest s = suggest_begin("abcd", 4);
    ck_assert(suggest_try(&s, "abcx", 4, 1) && !suggest_try(&s, "abcx", 4, 1) && suggest_try(&s, "abcx", 4, 0));
    ck_assert(suggest_try(&s, "ABCD", 4, 1) && !suggest_try(&s, "abce", 4, 0));
    memset(name, 'a', sizeof name);
    s = suggest_begin(name, 299);
    ck_assert(!suggest_try(&s, name, 298, 0));           /* too long to compare */
    ck_assert(suggest_try(&s, name, 299, 0));
    ck_assert_uint_lt(strlen(suggest_text(&s, "", buf)), sizeof buf);
}
END_TEST

int main(void)
{
    TCase *t = suite_case("base", 60);
    tcase_add_test(t, err_first_wins);
    tcase_add_test(t, err_is_one_line);
    tcase_add_test(t, err_long_texts);
    tcase_add_test(t, sizes_saturate);
    tcase_add_test(t, arena_blocks);
    tcase_add_test(t, vec_grows);
    tcase_add_exit_test(t, out_of_memory, 70);
    tcase_add_test(t, text_grows);
    tcase_add_test(t, text_hashes);
    tcase_add_test(t, text_says_bytes);
    tcase_add_test(t, text_says_numbers);
    tcase_add_loop_test(t, text_folds, 0, (int)(sizeof folds / sizeof *folds));
    tcase_add_loop_test(t, text_printable_escapes, 0, (int)(sizeof prints / sizeof *prints));
    tcase_add_test(t, text_right_counts_characters);
    tcase_add_test(t, text_reads_files);
    tcase_add_test(t, clocks);
    tcase_add_test(t, waits_end);
    tcase_add_test(t, addresses);
    tcase_add_test(t, addresses_of_sockets);
    tcase_add_test(t, processes_are_read);
    tcase_add_test(t, processes_live_and_end);
    tcase_add_test(t, processes_know_their_start);
    tcase_add_test(t, philox_known_answers);
    tcase_add_test(t, fills_are_prefixes);
    tcase_add_test(t, fills_have_their_moments);
    tcase_add_test(t, permutations);
    tcase_add_loop_test(t, nearest_names, 0, (int)(sizeof guesses / sizeof *guesses));
    tcase_add_test(t, nearest_rank_and_length);
    return suite_run("base", CK_FORK, t);
}
