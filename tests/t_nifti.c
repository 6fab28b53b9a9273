/* NIfTI files: every type, order and version; every kind of bad header and file; affines; what is written. Values and
 * affines are exact: small whole numbers and powers of 2. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <unistd.h>
#include "base/mem.h"
#include "data/nifti.h"
#include "nifti_rig.h"

static const double affine_1[3][4] = {{2, 0, 0, -10}, {0, 3, 0, -20}, {0, 0, 4, -30}};
static const double count_up[24] = {0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15, 16, 17, 18, 19, 20, 21, 22,
                                    23};

static struct nifti_made plain(int version)
{
    return (struct nifti_made){.version = version, .type = 4, .n_dims = 3, .dim = {2, 3, 4}, .pixdim = {1, 2, 3, 4},
                               .slope = 1, .affine = affine_1, .sform = 1};
}

static void opened(const char *path, struct nifti *f)
{
    struct err e = {0};
    ck_assert_msg(!nifti_open(path, f, &e), "%s", e.text);
}

static void values_are(const char *path, const double *want, int n)
{
    struct nifti f;
    struct err e = {0};
    float *x = mem_alloc((size_t)n * sizeof *x);
    opened(path, &f);
    ck_assert_uint_eq(nifti_voxels(&f) * (uint64_t)f.dim[3], (uint64_t)n);
    ck_assert_msg(!nifti_values(&f, x, &e), "%s", e.text);
    for (int i = 0; i < n; i++) ck_assert_msg(x[i] == (float)want[i], "%s: %d: %g, not %g", path, i, x[i], want[i]);
    free(x);
}

static const struct { int code; const char *name; double extreme; } types[] = {
    {2, "uint8", 255}, {4, "int16", -32768}, {8, "int32", -2147483648.0}, {16, "float32", 0.1f}, {64, "float64", 1e30},
    {256, "int8", -128}, {512, "uint16", 65535}, {768, "uint32", 4294967295.0}, {1024, "int64", -0x1p62},
    {1280, "uint64", 0x1p63},
};

START_TEST(nifti_reads_all_types)
{
    double v[24];
    memcpy(v, count_up, sizeof v);
    v[13] = types[_i].extreme;
    for (int k = 0; k < 8; k++) {
        struct nifti_made m = plain(1 + k % 2);
        const char *path = k & 4 ? "x.nii.gz" : "x.nii";
        struct nifti f;
        m.type = types[_i].code;
        m.swapped = k & 2;
        m.offset = k == 5 ? 4000 : 0;
        nifti_put(path, &m, v);
        values_are(path, v, 24);
        opened(path, &f);
        ck_assert_str_eq(nifti_type_name(&f), types[_i].name);
        ck_assert_str_eq(f.repaired, "");
        ck_assert(f.version == m.version && f.swapped == m.swapped && f.dim[0] == 2 && f.dim[1] == 3 && f.dim[2] == 4);
        ck_assert_mem_eq(f.affine, affine_1, sizeof affine_1);
    }
}
END_TEST

START_TEST(nifti_scales_values)
{
    static const struct { double slope, inter; bool counts; } cases[] = {
        {2, -3, true}, {0, 5, false}, {NAN, 5, false}, {INFINITY, NAN, false}, {0, NAN, false}, {-0.5, 0, true}};
    for (size_t k = 0; k < sizeof cases / sizeof *cases; k++) {
        double want[24];
        struct nifti_made m = plain(1 + (int)k % 2);
        m.slope = cases[k].slope;
        m.inter = cases[k].inter;
        for (int i = 0; i < 24; i++) want[i] = cases[k].counts ? m.slope * i + m.inter : i;
        nifti_put("x.nii", &m, count_up);
        values_are("x.nii", want, 24);
    }
}
END_TEST

/* Four dimensions are channels, the last ones of 1 do not count, missing ones are 1. */
START_TEST(nifti_reads_dimensions)
{
    static const struct { int n; int64_t dim[7], want[4]; } cases[] = {
        {3, {2, 3, 4}, {2, 3, 4, 1}}, {4, {2, 3, 2, 2}, {2, 3, 2, 2}}, {5, {2, 3, 4, 1, 1}, {2, 3, 4, 1}},
        {7, {2, 3, 4, 1, 1, 1, 1}, {2, 3, 4, 1}}, {2, {4, 6}, {4, 6, 1, 1}}, {1, {24}, {24, 1, 1, 1}}};
    static const struct { int n; int64_t dim[7]; const char *error; } more[] = {
        {5, {2, 3, 2, 1, 2}, "5|2:"},
        {7, {2, 3, 2, 1, 1, 1, 2}, "7|2:"},
        {7, {2, 3, 4, 1, 1, 1, 0}, "dimension 7 is 0"}};
    for (size_t k = 0; k < sizeof cases / sizeof *cases; k++) {
        struct nifti f;
        struct nifti_made m = plain(1 + (int)k % 2);
        m.n_dims = cases[k].n;
        memcpy(m.dim, cases[k].dim, sizeof m.dim);
        nifti_put("x.nii", &m, count_up);
        opened("x.nii", &f);
        ck_assert_mem_eq(f.dim, cases[k].want, sizeof f.dim);
        values_are("x.nii", count_up, 24);
    }
    for (size_t k = 0; k < 2 * (sizeof more / sizeof *more); k++) {
        struct nifti f;
        struct err e = {0};
        struct nifti_made m = plain(1 + (int)k % 2);
        m.n_dims = more[k / 2].n;
        memcpy(m.dim, more[k / 2].dim, sizeof m.dim);
        nifti_put("x.nii", &m, count_up);
        ck_assert(nifti_open("x.nii", &f, &e));
        expect(&e, E_DATA, more[k / 2].error);
    }
}
END_TEST

/* Voxels begin where the header says, whether or not that is where others would begin; SPM wants multiples of 16. */
START_TEST(nifti_reads_from_any_offset)
{
    for (int k = 0; k < 4; k++) {
        struct nifti f;
        struct nifti_made m = plain(1 + k % 2);
        char want[64];
        m.offset = k / 2 ? 4001 : 560;
        nifti_put(k / 2 ? "x.nii.gz" : "x.nii", &m, count_up);
        opened(k / 2 ? "x.nii.gz" : "x.nii", &f);
        snprintf(want, sizeof want, "offset %d is not a multiple of 16", (int)m.offset);
        ck_assert_str_eq(f.repaired, k / 2 ? want : "");
        values_are(k / 2 ? "x.nii.gz" : "x.nii", count_up, 24);
    }
}
END_TEST

/* All that is odd about a header is one text. */
START_TEST(nifti_puts_several_things_right)
{
    struct nifti f;
    struct text t = {0};
    struct nifti_made m = plain(1);
    m.sform = 0;
    m.pixdim[0] = 3;
    m.pixdim[2] = -3;
    m.offset = 360;
    nifti_make(&m, count_up, &t);
    nifti_poke(&t, &m, 72, 2, 12);
    nifti_poke(&t, &m, 252, 2, 9);
    put("x.nii", t.s, t.n);
    text_free(&t);
    opened("x.nii", &f);
    ck_assert_str_eq(f.repaired, "bitpix 12 of int16, offset 360 is not a multiple of 16, voxel size -3, qfac 3, "
                     "qform code 9, no affine");
    values_are("x.nii", count_up, 24);
}
END_TEST

/* ---- the table of what may be wrong ------------------------------------------------------------------------------ */

/* Bytes at an offset of version 1, and of version 2: what then is said, or what was put right. -1: not in that one. */
struct spoilt { int at[2], bytes[2]; uint64_t bits[2]; const char *error, *repaired; };
#define HALF(x) {2, 2}, {(uint16_t)(x), (uint16_t)(x)}
static const struct spoilt spoils[] = {
    {{0, 0}, {4, 4}, {347, 541}, "NIfTI|348|540", NULL},
    {{344, 4}, {4, 4}, {0, 0}, "not a NIfTI file: no \"n+", NULL},
    {{344, 4}, {4, 4}, {0x0031696e, 0x0032696e}, "a header whose voxels are in another file", NULL},
    {{-1, 8}, {0, 4}, {0, 0x0a1a0a0a}, "something has changed the file's ends of lines", NULL},
    {{-1, 8}, {0, 4}, {0, 0}, NULL, "ends of lines 0"},
    {{70, 12}, HALF(3), "voxels of an unknown type, 3", NULL},
    {{70, 12}, HALF(0), "voxels of an unknown type, 0", NULL},
    {{70, 12}, HALF(128), "RGB", NULL},
    {{70, 12}, HALF(1792), "complex128", NULL},
    {{72, 14}, HALF(8), NULL, "bitpix 8 of int16"},
    {{40, 16}, {2, 8}, {0, 0}, "0 dimensions, expected 1 to 7", NULL},
    {{40, 16}, {2, 8}, {8, 8}, "8 dimensions, expected 1 to 7", NULL},
    {{40, 16}, {2, 8}, {0xffff, UINT64_MAX}, "-1 dimensions, expected 1 to 7", NULL},
    {{42, 24}, {2, 8}, {0, 0}, "dimension 1 is 0", NULL},
    {{46, 40}, {2, 8}, {0xfffd, UINT64_MAX - 2}, "dimension 3 is -3", NULL},
    {{-1, 24}, {0, 8}, {0, UINT64_C(1) << 62}, "dimension 1 is 4611686018427387904, more than", NULL},
    {{42, 24}, {2, 8}, {32767, 32767}, "int16", NULL},
    {{108, 168}, {4, 8}, {0, 0}, "voxels begin at byte 0, expected a whole number from ", NULL},
    {{108, 168}, {4, 8}, {0x43af8000, 351}, "351", NULL},
    {{108, -1}, {4, 0}, {0x43b04000, 0}, "352.5", NULL},
    {{108, -1}, {4, 0}, {0x7fc00000, 0}, "voxels begin at byte nan", NULL},
    {{108, -1}, {4, 0}, {0x7f800000, 0}, "voxels begin at byte inf", NULL},
    {{108, 168}, {4, 8}, {0xc3b00000, (uint64_t)-352}, "-352", NULL},
    {{108, 168}, {4, 8}, {0x5d5e0b6b, UINT64_C(1) << 61}, "int16", NULL},
    {{116, 184}, {4, 8}, {0x7fc00000, UINT64_C(0x7ff8000000000000)}, "values are scaled by 1, but what", NULL},
    {{116, 184}, {4, 8}, {0x7f800000, UINT64_C(0x7ff0000000000000)}, "values are scaled by 1, but what", NULL},
    {{80, 112}, {4, 8}, {0, 0}, NULL, "voxel size 0"},
    {{80, 112}, {4, 8}, {0xc0000000, UINT64_C(0xc000000000000000)}, NULL, "voxel size -2"},
    {{76, 104}, {4, 8}, {0, 0}, NULL, "qfac 0"},
    {{76, 104}, {4, 8}, {0x40000000, UINT64_C(0x4000000000000000)}, NULL, "qfac 2"},
    {{252, 344}, {2, 4}, {6, 6}, NULL, "qform code 6"},
    {{252, 344}, {2, 4}, {0xffff, 0xffffffff}, NULL, "qform code -1"},
    {{254, 348}, {2, 4}, {77, 77}, NULL, "sform code 77, no affine"},
    {{280, 400}, {4, 8}, {0, 0}, "axes", NULL},
    {{280, 400}, {4, 8}, {0x7fc00000, UINT64_C(0x7ff8000000000000)}, "axes", NULL},
    {{292, 424}, {4, 8}, {0x7f800000, UINT64_C(0x7ff0000000000000)}, "axes", NULL},
};

START_TEST(nifti_meets_bad_headers)
{
    const struct spoilt *s = &spoils[_i];
    for (int k = 0; k < 8; k++) {
        const int v = k & 1;
        struct nifti_made m = plain(1 + v);
        struct text t = {0};
        struct nifti f;
        struct err e = {0};
        const char *path = k & 4 ? "x.nii.gz" : "x.nii";
        const bool magic = s->at[v] == (v ? 4 : 344) || (v && s->at[v] == 8);
        if (s->at[v] < 0) continue;
        m.swapped = k & 2;
        nifti_make(&m, count_up, &t);
        m.swapped = m.swapped && !magic;
        nifti_poke(&t, &m, (size_t)s->at[v], s->bytes[v], s->bits[v]);
        if (k & 4) gzip_put(path, t.s, t.n);
        else put(path, t.s, t.n);
        text_free(&t);
        int bad = nifti_open(path, &f, &e);
        ck_assert_int_eq(bad, s->error ? -1 : 0);
        if (!bad) {
            ck_assert_msg(strstr(f.repaired, s->repaired) != NULL, "%s, not %s", f.repaired, s->repaired);
            values_are(path, count_up, 24);
        } else {
            char where[64];
            expect(&e, E_DATA, s->error);
            snprintf(where, sizeof where, "%s: offset ", path);
            ck_assert_msg(!strncmp(e.text, where, strlen(where)), "%s", e.text);
        }
    }
}
END_TEST

START_TEST(nifti_refuses_short_files)
{
    struct nifti_made m = plain(1);
    struct text t = {0};
    struct nifti f;
    nifti_make(&m, count_up, &t);
    for (size_t n = 0; n < t.n; n++) {
        struct err e = {0};
        put("x.nii", t.s, n);
        ck_assert(nifti_open("x.nii", &f, &e));
        expect(&e, E_DATA, n < 348 ? "too early" : "2x3x4x1|int16|400");
    }
    put("x.nii", t.s, t.n);
    opened("x.nii", &f);
    ck_assert_int_eq(truncate("x.nii", 390), 0);
    struct err e = {0};
    float x[24];
    ck_assert(nifti_values(&f, x, &e));
    expect(&e, E_DATA, "400|390");
    text_add_bytes(&t, "trailing", 8);                   /* what comes after the voxels does not count */
    put("x.nii", t.s, t.n);
    values_are("x.nii", count_up, 24);
    text_free(&t);
}
END_TEST

/* A packed file may hold 1032 times its size, so only reading shows that it ends too early. */
START_TEST(nifti_refuses_damaged_packed_files)
{
    struct nifti_made m = plain(2);
    struct nifti f;
    struct text t = {0};
    float x[24];
    struct err e = {0}, data = {0};
    nifti_put("x.nii.gz", &m, count_up);
    ck_assert(!text_read_bytes(&t, "x.nii.gz", 1 << 20, &e));
    opened("x.nii.gz", &f);
    put("x.nii.gz", t.s, t.n - 9);
    ck_assert(nifti_values(&f, x, &data));
    expect(&data, E_DATA, "truncated");
    t.s[t.n - 5] ^= 1;                                   /* the checksum */
    put("x.nii.gz", t.s, t.n);
    data = (struct err){0};
    ck_assert(nifti_values(&f, x, &data));
    expect(&data, E_DATA, "x.nii.gz: offset ");
    put("x.nii.gz", t.s, 5);
    data = (struct err){0};
    ck_assert(nifti_open("x.nii.gz", &f, &data) && data.code == E_DATA);
    text_free(&t);
    nifti_make(&m, count_up, &t);
    gzip_put("x.nii.gz", t.s, t.n - 10);
    opened("x.nii.gz", &f);
    data = (struct err){0};
    ck_assert(nifti_values(&f, x, &data));
    expect(&data, E_DATA, "offset 582:|592)");
    text_free(&t);
}
END_TEST

/* Whether a file is packed is what its first bytes say, not its name. Parts that were packed one by one count together,
 * wherever they were cut; what comes behind them, and is not packed, does not count. The input is longer than what is
 * read of it at a time. */
START_TEST(nifti_reads_packed_parts)
{
    enum { N = 100 * 40 * 40, CUTS = 5 };
    static double v[N];
    static float x[N];
    struct nifti_made m = plain(1);
    struct text whole = {0};
    struct nifti f;
    uint64_t h = 1;
    for (int i = 0; i < N; i++) v[i] = (double)((h = h * UINT64_C(6364136223846793005) + 1) >> 48) - 32768;
    m.dim[0] = 100;
    m.dim[1] = m.dim[2] = 40;
    nifti_make(&m, v, &whole);
    const size_t cut[CUTS] = {0, 1, 200, 352, whole.n - 1};
    for (int k = 0; k < CUTS; k++) {
        struct text packed = {0};
        struct err e = {0};
        gzip_put("first", whole.s, cut[k]);
        gzip_put("second", whole.s + cut[k], whole.n - cut[k]);
        ck_assert(!text_read_bytes(&packed, "first", 1 << 20, &e) && !text_read_bytes(&packed, "second", 1 << 20, &e));
        ck_assert_uint_gt(packed.n, 1 << 18);
        if (k % 2) text_add_bytes(&packed, "\x1f\x8a trailing", 11);
        put("x.nii", packed.s, packed.n);
        opened("x.nii", &f);
        ck_assert_msg(!nifti_values(&f, x, &e), "%s", e.text);
        for (int i = 0; i < N; i++) ck_assert(x[i] == (float)v[i]);
        text_free(&packed);
    }
    put("x.nii.gz", whole.s, whole.n);
    opened("x.nii.gz", &f);
    ck_assert(!nifti_values(&f, x, &(struct err){0}));
    for (int i = 0; i < N; i++) ck_assert(x[i] == (float)v[i]);
    text_free(&whole);
}
END_TEST

/* The header of a small file asks for gigabytes: refused with an address space in which they find no room. */
START_TEST(nifti_refuses_bombs)
{
    static const int64_t large[][3] = {{32767, 32767, 32767}, {1024, 1024, 512}, {300, 300, 10},
                                       {1 << 24, 1 << 24, 1 << 24}};   /* more bytes than 64 bits count */
    struct rlimit was, low;
    struct nifti f;
    for (size_t k = 0; k < sizeof large / sizeof *large; k++) {
        struct nifti_made m = plain(1 + (int)k % 2);
        struct text t = {0};
        struct err e = {0};
        nifti_make(&m, count_up, &t);
        for (int i = 0; i < 3; i++) {
            int bytes = m.version == 1 ? 2 : 8;
            nifti_poke(&t, &m, (size_t)((m.version == 1 ? 40 : 16) + (i + 1) * bytes), bytes, (uint64_t)large[k][i]);
        }
        gzip_put("x.nii.gz", t.s, t.n);
        ck_assert(!getrlimit(RLIMIT_AS, &was));
        low = (struct rlimit){(rlim_t)1 << 33, was.rlim_max};
#ifndef __SANITIZE_ADDRESS__
        ck_assert(!setrlimit(RLIMIT_AS, &low));
#endif
        ck_assert(nifti_open("x.nii.gz", &f, &e));
        ck_assert(!setrlimit(RLIMIT_AS, &was));
        expect(&e, E_DATA, "int16");
        expect(&e, E_DATA, "this one has at most");
        text_free(&t);
    }
}
END_TEST

START_TEST(nifti_refuses_files_that_change)
{
    struct nifti_made m = plain(1);
    struct nifti f;
    struct err e = {0};
    float x[24];
    nifti_put("x.nii", &m, count_up);
    opened("x.nii", &f);
    m.dim[0] = 4;
    m.dim[2] = 2;
    nifti_put("x.nii", &m, count_up);
    ck_assert(nifti_values(&f, x, &e));
    expect(&e, E_DATA, "x.nii: offset 0:");
    e = (struct err){0};
    ck_assert(!unlink("x.nii") && nifti_values(&f, x, &e));
    expect(&e, E_NOINPUT, "x.nii");
}
END_TEST

START_TEST(nifti_refuses_values_that_are_none)
{
    static const double odd[] = {NAN, INFINITY, -INFINITY, 1e300};
    for (int k = 0; k < 4; k++) {
        struct nifti_made m = plain(1);
        double v[24] = {0};
        struct nifti f;
        struct err e = {0};
        float x[24];
        m.type = 64;
        v[17] = odd[k];
        nifti_put("x.nii", &m, v);
        opened("x.nii", &f);
        ck_assert(nifti_values(&f, x, &e));
        expect(&e, E_DATA, "x.nii: offset 488: voxel 1x2x2 is ");
        expect(&e, E_DATA, "which is not finite");
    }
}
END_TEST

/* ---- affines: numbers that nibabel 5.0 gives --------------------------------------------------------------------- */

START_TEST(nifti_takes_affines_as_nibabel)
{
    /* half a turn about z, and a third of one about (1, 1, 1) */
    static const double turned[3][4] = {{-2, 0, 0, 7}, {0, -3, 0, 8}, {0, 0, 4, 9}},
                        third[3][4] = {{0, 0, -4, 7}, {2, 0, 0, 8}, {0, 3, 0, 9}},
                        none[3][4] = {{-2, 0, 0, 1}, {0, 3, 0, -3}, {0, 0, 4, -6}};
    struct nifti f;
    for (int version = 1; version <= 2; version++) {
        struct nifti_made m = plain(version);
        m.qform = 1;
        m.quatern[2] = 1;
        for (int i = 0; i < 3; i++) m.qoffset[i] = 7 + i;
        nifti_put("x.nii", &m, count_up);
        opened("x.nii", &f);
        ck_assert_mem_eq(f.affine, affine_1, sizeof affine_1);   /* the sform comes first */
        m.sform = 0;
        nifti_put("x.nii", &m, count_up);
        opened("x.nii", &f);
        for (int i = 0; i < 12; i++) ck_assert(f.affine[i / 4][i % 4] == turned[i / 4][i % 4]);
        for (int i = 0; i < 3; i++) m.quatern[i] = 0.5;
        m.pixdim[0] = -1;
        nifti_put("x.nii", &m, count_up);
        opened("x.nii", &f);
        for (int i = 0; i < 12; i++) ck_assert(f.affine[i / 4][i % 4] == third[i / 4][i % 4]);
        m.quatern[0] = 0.9;
        nifti_put("x.nii", &m, count_up);
        struct err e = {0};
        ck_assert(nifti_open("x.nii", &f, &e));
        expect(&e, E_DATA, "not a rotation: (0.9");
        m.qform = 0;
        nifti_put("x.nii", &m, count_up);
        opened("x.nii", &f);
        for (int i = 0; i < 12; i++) ck_assert(f.affine[i / 4][i % 4] == none[i / 4][i % 4]);
        ck_assert_str_eq(f.repaired, "no affine");
    }
}
END_TEST

/* Half a turn about z whose quaternion has been rounded: the rest counts from three steps of the header's numbers on.
 * Then it turns by twice its root, 6.9e-4 or 3e-8. */
START_TEST(nifti_takes_half_turns_as_such)
{
    static const double below[] = {1 - 0x1p-23, 1 - 0x1p-53}, above[] = {1 - 0x1p-22, 1 - 0x1p-51},
                        beyond[] = {1 + 0x1p-22, 1 + 0x1p-51}, angle[] = {2 * 6.9053396600248786e-4, 2 * 0x1p-25};
    for (int k = 0; k < 2; k++) {
        struct nifti_made m = plain(1 + k);
        struct nifti f;
        struct err e = {0};
        m.sform = 0;
        m.qform = 1;
        m.quatern[2] = below[k];
        nifti_put("x.nii", &m, count_up);
        opened("x.nii", &f);
        ck_assert(f.affine[0][1] == 0 && f.affine[1][0] == 0 && f.affine[2][2] == 4);
        ck_assert(fabs(f.affine[0][0] + 2) < 1e-15 && fabs(f.affine[1][1] + 3) < 1e-15);   /* of a quotient's product */
        m.quatern[2] = above[k];
        nifti_put("x.nii", &m, count_up);
        opened("x.nii", &f);
        ck_assert_double_eq_tol(f.affine[0][1], -3 * angle[k], 1e-6 * 3 * angle[k]);   /* of an angle's square */
        m.quatern[2] = beyond[k];
        nifti_put("x.nii", &m, count_up);
        ck_assert(nifti_open("x.nii", &f, &e));
        expect(&e, E_DATA, "rotation");
    }
}
END_TEST

/* ---- labels ------------------------------------------------------------------------------------------------------ */

static struct nifti_map map_of(int classes)
{
    struct nifti_map m = {.classes = classes};
    for (int i = 0; i < NIFTI_MAPPED; i++) m.to[i] = (int16_t)(i < classes ? i : -1);
    return m;
}

START_TEST(nifti_reads_labels)
{
    struct nifti_made m = plain(1);
    struct nifti_map map = map_of(24);
    struct nifti f;
    struct err e = {0};
    uint8_t y[24];
    m.type = 64;
    nifti_put("y.nii", &m, count_up);
    opened("y.nii", &f);
    ck_assert(!nifti_labels(&f, &map, y, &e));
    for (int i = 0; i < 24; i++) ck_assert_uint_eq(y[i], i);
    map = map_of(3);
    ck_assert(nifti_labels(&f, &map, y, &e));
    expect(&e, E_DATA, "y.nii: offset 376:|1x1x0|3|3");
    map.binary = true;
    ck_assert(!nifti_labels(&f, &map, y, &(struct err){0}));
    for (int i = 0; i < 24; i++) ck_assert_uint_eq(y[i], i > 0);
}
END_TEST

START_TEST(nifti_refuses_what_is_no_label)
{
    static const double odd[] = {0.5, -1, 4096, NAN, 1e300, -1e-300};
    struct nifti_map map = map_of(255), binary = {.binary = true, .classes = 2};
    for (int k = 0; k < 6; k++) {
        struct nifti_made m = plain(1);
        double v[24] = {0};
        struct nifti f;
        struct err e = {0}, other = {0};
        uint8_t y[24];
        m.type = 64;
        v[6] = odd[k];
        nifti_put("y.nii", &m, v);
        opened("y.nii", &f);
        ck_assert(nifti_labels(&f, &map, y, &e));
        expect(&e, E_DATA, "which is not a label");
        ck_assert_int_eq(nifti_labels(&f, &binary, y, &other), isnan(odd[k]) ? -1 : 0);
        if (!isnan(odd[k])) ck_assert_uint_eq(y[6], odd[k] > 0);
    }
    struct nifti_made m = plain(1);
    struct nifti f;
    struct err e = {0};
    uint8_t y[24];
    m.n_dims = 4;
    m.dim[2] = m.dim[3] = 2;
    nifti_put("y.nii", &m, count_up);
    opened("y.nii", &f);
    ck_assert(nifti_labels(&f, &map, y, &e));
    expect(&e, E_DATA, "2 channels");
}
END_TEST

/* ---- writing ----------------------------------------------------------------------------------------------------- */

/* What is written says where voxels lie with the bytes of what was read, and nothing of how values were scaled. */
START_TEST(nifti_writes_labels)
{
    struct nifti_map map = map_of(24);
    for (int k = 0; k < 4; k++) {
        struct nifti_made m = plain(1 + k % 2);
        struct nifti f, g;
        struct text t = {0}, again = {0};
        struct err e = {0};
        uint8_t y[24], back[24];
        for (int i = 0; i < 24; i++) y[i] = (uint8_t)(23 - i);
        m.swapped = k & 2;
        m.slope = 2;
        m.inter = 1;
        m.offset = 2000;
        m.qform = 3;
        m.quatern[1] = 0.25;
        nifti_put("x.nii", &m, count_up);
        opened("x.nii", &f);
        nifti_add(&t, &f, y);
        nifti_add(&again, &f, y);
        ck_assert_uint_eq(t.n, again.n);
        ck_assert_mem_eq(t.s, again.s, t.n);
        put("p.nii.gz", t.s, t.n);
        opened("p.nii.gz", &g);
        ck_assert(!nifti_labels(&g, &map, back, &e));
        ck_assert_mem_eq(y, back, sizeof y);
        ck_assert(g.slope == 1 && g.inter == 0 && g.version == f.version && g.swapped == f.swapped);
        ck_assert(g.begin == (m.version == 1 ? 352 : 544) && !strcmp(nifti_type_name(&g), "uint8"));
        ck_assert_mem_eq(g.affine, f.affine, sizeof g.affine);
        const int from = m.version == 1 ? 252 : 344, to = m.version == 1 ? 344 : 496;   /* codes and both forms */
        ck_assert_mem_eq(g.header + from, f.header + from, (size_t)(to - from));
        text_free(&t);
        text_free(&again);
    }
}
END_TEST

static void all(TCase *t)
{
    tcase_add_loop_test(t, nifti_reads_all_types, 0, (int)(sizeof types / sizeof *types));
    tcase_add_test(t, nifti_scales_values);
    tcase_add_test(t, nifti_reads_dimensions);
    tcase_add_test(t, nifti_reads_from_any_offset);
    tcase_add_test(t, nifti_puts_several_things_right);
    tcase_add_loop_test(t, nifti_meets_bad_headers, 0, (int)(sizeof spoils / sizeof *spoils));
    tcase_add_test(t, nifti_refuses_short_files);
    tcase_add_test(t, nifti_refuses_damaged_packed_files);
    tcase_add_test(t, nifti_reads_packed_parts);
    tcase_add_test(t, nifti_refuses_bombs);
    tcase_add_test(t, nifti_refuses_files_that_change);
    tcase_add_test(t, nifti_refuses_values_that_are_none);
    tcase_add_test(t, nifti_takes_affines_as_nibabel);
    tcase_add_test(t, nifti_takes_half_turns_as_such);
    tcase_add_test(t, nifti_reads_labels);
    tcase_add_test(t, nifti_refuses_what_is_no_label);
    tcase_add_test(t, nifti_writes_labels);
}

int main(void) { return scratch_suite("nifti", all); }
