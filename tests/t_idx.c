/* IDX files: what is read from files that the test writes byte by byte, plain and gzip; every kind of bad file;
 * Debian's Fashion-MNIST. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include <zlib.h>
#include "data/idx.h"
#include "data_rig.h"

static void put_gz(const char *path, const void *p, size_t n)
{
    gzFile f = gzopen(path, "wb");
    ck_assert_int_eq(gzwrite(f, p, (unsigned)n), (int)n);
    ck_assert_int_eq(gzclose(f), Z_OK);
}

#define IMAGES \
    "\0\0\010\003\0\0\0\002\0\0\0\002\0\0\0\003" \
    "\000\063\146\231\314\377" \
    "\377\000\000\000\000\063" /* 2 x 2 x 3: 0 51 102 153 204 255 ... */
#define LABELS "\0\0\010\001\0\0\0\002" "\004\001"
#define IDX "source = idx train = \"i.idx\" train_labels = \"l.idx\" "
static const struct ds_pair small = {.input = {3, {1, 2, 3}}, .target_type = I64, .classes = 5};

START_TEST(idx_reads_plain_and_gzip)
{
    /* 51 k / 255 = k / 5, rounded once: the same float division as the reader's. */
    static const float first[] = {0, 51 / 255.0f, 102 / 255.0f, 153 / 255.0f, 204 / 255.0f, 1};
    float x[6];
    int64_t y;
    for (int gz = 0; gz < 2; gz++) {
        (gz ? put_gz : put)("i.idx", IMAGES, sizeof IMAGES - 1);
        (gz ? put_gz : put)("l.idx", LABELS, sizeof LABELS - 1);
        struct ds *d = open_good(IDX, small);
        ck_assert_uint_eq(d->kind->count(d), 2);
        get(d, 0, x, &y);
        ck_assert_mem_eq(x, first, sizeof x);
        ck_assert_int_eq(y, 4);
        get(d, 1, x, &y);
        ck_assert(x[0] == 1 && x[4] == 0 && x[5] == 51 / 255.0f);
        ck_assert_int_eq(y, 1);
        ds_close(d);
    }
}
END_TEST

START_TEST(idx_pads_repeats_and_normalises)
{
    /* 2x3 in 4x4: one row above and below, no column left (3 of 4: the odd one goes right). mean 1/2, std 1/4: 0 -> -2,
     * 1 -> 2; third channel mean 1. */
    PUT("i.idx", IMAGES);
    PUT("l.idx", LABELS);
    float x[48], y[5];
    struct ds_pair want = {.input = {3, {3, 4, 4}}, .target = {1, {5}}, .target_type = F32, .classes = 5};
    struct ds *d = open_good(IDX "pad = {4, 4} channels = 3 mean = {0.5, 0.5, 1} std = 0.25", want);
    get(d, 0, x, y);
    for (int k = 0; k < 3; k++) {
        float zero = k == 2 ? -4 : -2;
        for (int col = 0; col < 4; col++) ck_assert(x[k * 16 + col] == zero && x[k * 16 + 12 + col] == zero);
        ck_assert(x[k * 16 + 4] == zero && x[k * 16 + 7] == zero);
        ck_assert(x[k * 16 + 5] == (51 / 255.0f - (k == 2 ? 1 : 0.5f)) / 0.25f);
        ck_assert(x[k * 16 + 10] == (k == 2 ? 0 : 2));
    }
    static const float onehot[] = {0, 0, 0, 0, 1};
    ck_assert_mem_eq(y, onehot, sizeof y);
    ds_close(d);
}
END_TEST

/* By hand. Twice as high: centres of the result lie at 1/4, 3/4, 5/4, 7/4 of the rows' own. Half as wide, of 4: a
 * triangle two pixels of the result wide, cut off at the edge: 3/8 3/8 1/8 of 7/8, and the same from the other side. */
START_TEST(idx_resizes)
{
    static const float column[2][4] = {{3 / 7.0f, 3 / 7.0f, 1 / 7.0f, 0}, {0, 1 / 7.0f, 3 / 7.0f, 3 / 7.0f}},
                       down[] = {0, 0.25f, 0.75f, 1};
    PUT("i.idx", "\0\0\010\003\0\0\0\001\0\0\0\002\0\0\0\004" "\000\010\020\030" "\240\250\260\270");
    PUT("l.idx", "\0\0\010\001\0\0\0\001" "\004");
    float x[64];
    struct ds_pair want = {.input = {3, {1, 4, 2}}, .target_type = I64, .classes = 5};
    struct ds *d = open_good(IDX "resize = {4, 2}", want);
    get(d, 0, x, NULL);
    for (int i = 0; i < 4; i++)
        for (int j = 0; j < 2; j++) {
            float sum = 0;
            for (int k = 0; k < 4; k++) sum += column[j][k] * (8.0f * (float)k + down[i] * 160);
            ck_assert_float_eq_tol(x[2 * i + j], sum / 255, 1e-6f);
        }
    ds_close(d);
    /* the same size: the same numbers; then padding, in two channels, normalised */
    want.input = (struct shape){3, {2, 4, 6}};
    d = open_good(IDX "resize = {2, 4} pad = {4, 6} channels = 2 mean = 0.5 std = 0.5", want);
    get(d, 0, x, NULL);
    for (int k = 0; k < 2; k++) {
        ck_assert(x[24 * k] == -1 && x[24 * k + 6] == -1 && x[24 * k + 23] == -1);
        ck_assert(x[24 * k + 8] == (8 / 255.0f - 0.5f) / 0.5f && x[24 * k + 16] == (184 / 255.0f - 0.5f) / 0.5f);
    }
    ds_close(d);
    open_bad(IDX "resize = {4, 4} pad = {3, 9}", want, 78,
             "t.conf:3: data.pad: i.idx has images of 4x4 after data.resize, which are larger than 3x9");
}
END_TEST

START_TEST(idx_takes_channels_limits_and_rows)
{
    struct err e = {0};
    float x[6];
    PUT("i.idx", "\0\0\010\004\0\0\0\002\0\0\0\002\0\0\0\001\0\0\0\003" "\0\0\0\377\377\377" "\377\377\377\0\0\0");
    PUT("l.idx", LABELS);
    struct ds_pair want = {.input = {3, {2, 1, 3}}, .target_type = I64, .classes = 5};
    struct ds *d = open_good(IDX "samples = 1", want);
    ck_assert_uint_eq(d->kind->count(d), 1);
    get(d, 0, x, NULL);
    for (int i = 0; i < 6; i++) ck_assert(x[i] == (i >= 3));
    ds_close(d);
    open_bad(IDX "samples = 3", want, 78, "t.conf:3: data.samples: 3 samples, but i.idx has 2");
    want.input = (struct shape){1, {6}};
    ds_close(open_good(IDX, want));
    ck_assert_ptr_null(open_part(IDX, DS_TEST, want, &e));
    ck_assert_int_eq(e.code, 0);
}
END_TEST

static const struct { const char *name, *bytes; size_t n; int code; const char *text; } bad_idx[] = {
#define CASE(name, bytes, code, text) {name, bytes, sizeof bytes - 1, code, text}
    CASE("empty", "", 65, "i.idx: offset 0:"),
    CASE("three bytes", "\0\0\010", 65, "i.idx: offset 3:"),
    CASE("header cut", "\0\0\010\003\0\0\0\002\0\0", 65, "i.idx: offset 10:"),
    CASE("truncated",
         "\0\0\010\003\0\0\0\002\0\0\0\002\0\0\0\003"
         "12345678901",
         65, "i.idx: offset 4:|28|27"),
    CASE("trailing byte", IMAGES "x", 65, "28|29"),
    CASE("huge",
         "\0\0\010\003\377\377\377\377\377\377\377\377\377\377\377\377"
         "123",
         65, "i.idx: offset 4:"),
    CASE("lying",
         "\0\0\010\003\377\377\377\377\0\0\0\002\0\0\0\003"
         "123456789012",
         65, "i.idx: offset 4:"),
    CASE("zero", "\0\0\010\003\0\0\0\0\0\0\0\002\0\0\0\003", 65, "i.idx: offset 4:|0"),
    CASE("magic",
         "PNG\003\0\0\0\002\0\0\0\002\0\0\0\003"
         "123456789012",
         65, "i.idx: offset 0: not an IDX file"),
    CASE("floats",
         "\0\0\015\003\0\0\0\002\0\0\0\002\0\0\0\003"
         "123456789012",
         65, "i.idx: offset 2:"),
    CASE("rank 2",
         "\0\0\010\002\0\0\0\002\0\0\0\006"
         "123456789012",
         65, "i.idx: offset 3: has 2 dimensions, expected 3"),
    CASE("rank 200",
         "\0\0\010\310\0\0\0\002\0\0\0\006"
         "123456789012",
         65, "i.idx: offset 3: has 200 dimensions"),
};

START_TEST(idx_refuses_bad_images)
{
    put("i.idx", bad_idx[_i].bytes, bad_idx[_i].n);
    PUT("l.idx", LABELS);
    open_bad(IDX, small, bad_idx[_i].code, bad_idx[_i].text);
}
END_TEST

/* A gzip file has no size to compare with: what matters is what comes out, and that little is taken for a large
 * promise. */
START_TEST(idx_refuses_bad_gzip)
{
    static const char lie[] = "\0\0\010\003\0\0\377\377\0\0\377\377\0\0\0\001"
                              "123",
                      bomb[] = "\0\0\010\003\377\377\377\377\377\377\377\377\0\0\0\001";
    unsigned char raw[200];
    PUT("l.idx", LABELS);
    put_gz("i.idx", lie, sizeof lie - 1);
    open_bad(IDX, small, 65, "i.idx: offset 19:");
    put_gz("i.idx", bomb, sizeof bomb - 1);
    open_bad(IDX, small, 65, "i.idx: offset 4:|16 GiB");
    put_gz("i.idx", IMAGES "x", sizeof IMAGES);
    open_bad(IDX, small, 65, "i.idx: offset 28:");
    put_gz("i.idx", IMAGES, sizeof IMAGES - 1);
    FILE *f = fopen("i.idx", "rb");
    size_t n = fread(raw, 1, sizeof raw, f);
    fclose(f);
    put("i.idx", raw, n - 9);
    open_bad(IDX, small, 65, "i.idx: offset ");
    put("i.idx", raw, n - 3);
    open_bad(IDX, small, 65, "the compressed file is truncated");
    raw[n - 8] ^= 1;
    put("i.idx", raw, n);
    open_bad(IDX, small, 65, "incorrect data check");
}
END_TEST

START_TEST(idx_refuses_what_does_not_fit)
{
    PUT("i.idx", IMAGES);
    PUT("l.idx", "\0\0\010\001\0\0\0\003" "\004\001\002");
    open_bad(IDX, small, 65, "l.idx: offset 4: 3|2|i.idx");
    PUT("l.idx", "\0\0\010\001\0\0\0\002" "\004\005");
    open_bad(IDX, small, 65, "l.idx: offset 9:|5|5");
    PUT("l.idx", IMAGES);
    open_bad(IDX, small, 65, "l.idx: offset 3: has 3 dimensions, expected 1");
    PUT("l.idx", LABELS);
    struct ds_pair want = small;
    want.input = (struct shape){3, {3, 32, 32}};
    open_bad(IDX, want, 78, "t.conf:3: data.train: i.idx|1x2x3|3x32x32");
    open_bad(IDX "pad = {1, 3}", small, 78, "t.conf:3: data.pad: i.idx|2x3|1x3");
    open_bad(IDX "mean = {1, 2}", small, 78, "t.conf:3: data.mean: 2 values for 1 channels");
    want = small;
    want.target_type = F32;
    want.target = (struct shape){2, {5, 5}};
    open_bad(IDX, want, 65, "l.idx:|5x5");
    open_bad("source = idx train = \"i.idx\"", small, 78, "data.train: given without data.train_labels");
    open_bad("source = idx train_labels = \"l.idx\"", small, 78, "data.train_labels: given without data.train");
}
END_TEST

/* The constants are byte sums and sizes of Debian's dataset-fashion-mnist. */
START_TEST(idx_reads_fashion_mnist)
{
    static const struct { const char *name; int rank; uint64_t n, sum;
    } all[] = {{"train-images-idx3", 3, 60000, 3431114169u},
               {"t10k-images-idx3", 3, 10000, 573469082},
               {"train-labels-idx1", 1, 60000, 270000},
               {"t10k-labels-idx1", 1, 10000, 45000}};
    for (int i = 0; i < 4; i++) {
        char path[128];
        struct err e = {0};
        struct idx_file f;
        uint64_t sum = 0;
        snprintf(path, sizeof path, "/usr/share/datasets/fashion-mnist/%s-ubyte.gz", all[i].name);
        if (access(path, R_OK)) {
            fprintf(stderr, "SKIPPED: %s is not installed\n", path);
            return;
        }
        ck_assert_msg(!idx_file_load(path, all[i].rank, all[i].rank, &f, &e), "%s", e.text);
        ck_assert_uint_eq(f.dim[0], all[i].n);
        ck_assert_uint_eq(f.bytes, all[i].n * (all[i].rank == 3 ? 784 : 1));
        for (uint64_t k = 0; k < f.bytes; k++) sum += f.data[k];
        ck_assert_uint_eq(sum, all[i].sum);
        free(f.data);
    }
}
END_TEST

static void all(TCase *t)
{
    tcase_add_test(t, idx_reads_plain_and_gzip);
    tcase_add_test(t, idx_pads_repeats_and_normalises);
    tcase_add_test(t, idx_resizes);
    tcase_add_test(t, idx_takes_channels_limits_and_rows);
    tcase_add_loop_test(t, idx_refuses_bad_images, 0, (int)(sizeof bad_idx / sizeof *bad_idx));
    tcase_add_test(t, idx_refuses_bad_gzip);
    tcase_add_test(t, idx_refuses_what_does_not_fit);
    tcase_add_test(t, idx_reads_fashion_mnist);
}

int main(void) { return scratch_suite("idx", all); }
