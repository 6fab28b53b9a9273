/* Data sets and the feed: every format against files that the test writes byte by byte, every kind of bad file, sample order, prefetch. */
#include <check.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>
#include <zlib.h>
#include "base/rng.h"
#include "data/ds.h"
#include "data/idx.h"
#include "data/npy.h"

static char dir[] = "/tmp/t_data.XXXXXX";

static void scratch_make(void)
{
    ck_assert_ptr_nonnull(mkdtemp(dir));
    ck_assert_int_eq(chdir(dir), 0);
}

static void scratch_drop(void)
{
    char command[64];
    snprintf(command, sizeof command, "rm -rf '%s'", dir);
    ck_assert_int_eq(chdir("/"), 0);
    ck_assert_int_eq(system(command), 0);
}

static void put(const char *path, const void *p, size_t n)
{
    FILE *f = fopen(path, "wb");
    ck_assert_ptr_nonnull(f);
    ck_assert_uint_eq(fwrite(p, 1, n, f), n);
    ck_assert_int_eq(fclose(f), 0);
}
#define PUT(path, text) put(path, text, sizeof text - 1)

static void put_gz(const char *path, const void *p, size_t n)
{
    gzFile f = gzopen(path, "wb");
    ck_assert_int_eq(gzwrite(f, p, (unsigned)n), (int)n);
    ck_assert_int_eq(gzclose(f), Z_OK);
}

static void expect(const struct err *e, int code, const char *part)
{
    ck_assert_msg(e->code == code && strstr(e->text, part), "error %d \"%s\", expected %d \"%s\"", e->code, e->text, code, part);
    ck_assert_msg(!strchr(e->text, '\n'), "the text has several lines");
}

static struct conf *conf_make(const char *data)
{
    struct err e = {0};
    struct text t = {0};
    text_add(&t, "run { seed = 7 }\nmodel { network = \"toy\" }\ndata { %s }\n", data);
    struct conf *c = conf_parse("t.conf", t.s, t.n, &e);
    ck_assert_msg(c != NULL, "%s", e.text);
    text_free(&t);
    return c;
}

static const struct ds_kind *kind_find(const char *name)
{
    for (int i = 0; ds_list[i]; i++) if (!strcmp(ds_list[i]->name, name)) return ds_list[i];
    ck_abort_msg("no data source %s", name);
}

static struct ds *open_part(const char *data, enum ds_part part, struct ds_want want, struct err *e)
{
    struct conf *c = conf_make(data);
    struct ds *d = (void *)1;
    want.has_target = true;
    int bad = kind_find(c->data.source)->open(c, part, &want, &d, e);
    ck_assert_int_eq(bad, e->code ? -1 : 0);
    ck_assert(!bad || !d);
    conf_free(c);
    return d;
}
static struct ds *open_good(const char *data, struct ds_want want)
{
    struct err e = {0};
    struct ds *d = open_part(data, DS_TRAIN, want, &e);
    ck_assert_msg(!e.code, "%s", e.text);
    ck_assert_ptr_nonnull(d);
    return d;
}
static void open_bad(const char *data, struct ds_want want, int code, const char *part)
{
    struct err e = {0};
    ck_assert_ptr_null(open_part(data, DS_TRAIN, want, &e));
    expect(&e, code, part);
}

static void get(struct ds *d, uint64_t i, float *x, void *y)
{
    struct err e = {0};
    ck_assert_msg(!d->kind->read(d, i, x, y, &e), "%s", e.text);
}

/* ---- synthetic --------------------------------------------------------------------------------------------------------------------- */

static const struct ds_want toy_onehot = {.input = {1, {10}}, .target = {1, {5}}, .target_type = F32, .classes = 5};
static const struct ds_want toy_class = {.input = {1, {10}}, .target_type = I64, .classes = 5};

START_TEST(synthetic_is_a_function_of_seed_and_index)
{
    float x[10], again[10], other[10], y[5];
    int64_t cls;
    struct ds *a = open_good("source = synthetic labels = onehot", toy_onehot), *b = open_good("source = synthetic samples = 3", toy_class);
    ck_assert_uint_eq(a->kind->count(a), 1 << 20);
    ck_assert_uint_eq(b->kind->count(b), 3);
    get(a, 2, x, y);
    get(a, 1, other, NULL);
    get(b, 2, again, &cls);
    ck_assert_mem_eq(x, again, sizeof x);
    ck_assert_mem_ne(x, other, sizeof x);
    for (int i = 0; i < 5; i++) ck_assert(y[i] == (i == cls));
    rng_fill_normal(7, RNG_SYNTH, DS_TRAIN, 2, 0, again, 10);
    ck_assert_mem_eq(x, again, sizeof x);
    ds_close(a);
    ds_close(b);
}
END_TEST

/* 5000 draws: each class is expected 1000 times with deviation 28; the mean of 50,000 normals has deviation 0.0045. Bounds are 6 deviations. */
START_TEST(synthetic_is_distributed)
{
    int seen[5] = {0};
    double sum = 0, square = 0;
    struct ds *d = open_good("source = synthetic samples = 5000", toy_class);
    for (uint64_t i = 0; i < 5000; i++) {
        float x[10];
        int64_t cls;
        get(d, i, x, &cls);
        ck_assert(cls >= 0 && cls < 5);
        seen[cls]++;
        for (int k = 0; k < 10; k++) { sum += x[k]; square += x[k] * x[k]; }
    }
    for (int k = 0; k < 5; k++) ck_assert_int_lt(abs(seen[k] - 1000), 170);
    ck_assert(sum / 50000 < 0.027 && sum / 50000 > -0.027);
    ck_assert(square / 50000 > 0.96 && square / 50000 < 1.04);
    ds_close(d);
}
END_TEST

START_TEST(synthetic_vectors_and_test_part)
{
    struct err e = {0};
    float y[5], t[5], expected[5];
    struct ds *d = open_good("source = synthetic labels = vector", toy_onehot);
    get(d, 4, NULL, y);
    rng_fill_normal(7, RNG_LABEL, DS_TRAIN, 4, 0, expected, 5);
    ck_assert_mem_eq(y, expected, sizeof y);
    ck_assert_ptr_null(open_part("source = synthetic", DS_TEST, toy_onehot, &e));
    struct ds *test = open_part("source = synthetic labels = vector test_samples = 9", DS_TEST, toy_onehot, &e);
    ck_assert_int_eq(e.code, 0);
    ck_assert_uint_eq(test->kind->count(test), 9);
    get(test, 4, NULL, t);
    ck_assert_mem_ne(y, t, sizeof y);
    ck_assert_int_eq(test->kind->read(test, 9, NULL, t, &e), -1);
    expect(&e, E_INTERNAL, "sample 9 of 9");
    ds_close(d);
    ds_close(test);
}
END_TEST

/* ---- IDX --------------------------------------------------------------------------------------------------------------------------- */

#define IMAGES "\0\0\010\003\0\0\0\002\0\0\0\002\0\0\0\003" "\000\063\146\231\314\377" "\377\000\000\000\000\063"   /* 2 x 2 x 3: 0 51 102 153 204 255 ... */
#define LABELS "\0\0\010\001\0\0\0\002" "\004\001"
#define IDX "source = idx train_images = \"i.idx\" train_labels = \"l.idx\" "
static const struct ds_want small = {.input = {3, {1, 2, 3}}, .target_type = I64, .classes = 5};

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
    /* 2x3 in 4x4: one row above and below, no column left (3 of 4: the odd one goes right). mean 1/2, std 1/4: 0 -> -2, 1 -> 2; third channel mean 1. */
    PUT("i.idx", IMAGES);
    PUT("l.idx", LABELS);
    float x[48], y[5];
    struct ds_want want = {.input = {3, {3, 4, 4}}, .target = {1, {5}}, .target_type = F32, .classes = 5};
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

START_TEST(idx_takes_channels_limits_and_rows)
{
    struct err e = {0};
    float x[6];
    PUT("i.idx", "\0\0\010\004\0\0\0\002\0\0\0\002\0\0\0\001\0\0\0\003" "\0\0\0\377\377\377" "\377\377\377\0\0\0");
    PUT("l.idx", LABELS);
    struct ds_want want = {.input = {3, {2, 1, 3}}, .target_type = I64, .classes = 5};
    struct ds *d = open_good(IDX "samples = 1", want);
    ck_assert_uint_eq(d->kind->count(d), 1);
    get(d, 0, x, NULL);
    for (int i = 0; i < 6; i++) ck_assert(x[i] == (i >= 3));
    ds_close(d);
    want.input = (struct shape){1, {6}};
    ds_close(open_good(IDX, want));
    ck_assert_ptr_null(open_part(IDX, DS_TEST, want, &e));
    ck_assert_int_eq(e.code, 0);
}
END_TEST

static const struct { const char *name, *bytes; size_t n; int code; const char *text; } bad_idx[] = {
#define CASE(name, bytes, code, text) {name, bytes, sizeof bytes - 1, code, text}
    CASE("empty", "", 65, "i.idx: offset 0: the file ends here"),
    CASE("three bytes", "\0\0\010", 65, "i.idx: offset 3: the file ends here"),
    CASE("header cut", "\0\0\010\003\0\0\0\002\0\0", 65, "i.idx: offset 10: the file ends here"),
    CASE("truncated", "\0\0\010\003\0\0\0\002\0\0\0\002\0\0\0\003" "12345678901", 65, "i.idx: offset 4: the dimensions need a file of 28 bytes, this one has 27"),
    CASE("trailing byte", IMAGES "x", 65, "need a file of 28 bytes, this one has 29"),
    CASE("huge", "\0\0\010\003\377\377\377\377\377\377\377\377\377\377\377\377" "123", 65, "i.idx: offset 4: the dimensions need"),
    CASE("lying", "\0\0\010\003\377\377\377\377\0\0\0\002\0\0\0\003" "123456789012", 65, "i.idx: offset 4: the dimensions need"),
    CASE("zero", "\0\0\010\003\0\0\0\0\0\0\0\002\0\0\0\003", 65, "i.idx: offset 4: a dimension is 0"),
    CASE("magic", "PNG\003\0\0\0\002\0\0\0\002\0\0\0\003" "123456789012", 65, "i.idx: offset 0: not an IDX file"),
    CASE("floats", "\0\0\015\003\0\0\0\002\0\0\0\002\0\0\0\003" "123456789012", 65, "i.idx: offset 2: the elements are not unsigned bytes"),
    CASE("rank 2", "\0\0\010\002\0\0\0\002\0\0\0\006" "123456789012", 65, "i.idx: offset 3: has 2 dimensions, expected 3"),
    CASE("rank 200", "\0\0\010\310\0\0\0\002\0\0\0\006" "123456789012", 65, "i.idx: offset 3: has 200 dimensions"),
};

START_TEST(idx_refuses_bad_images)
{
    put("i.idx", bad_idx[_i].bytes, bad_idx[_i].n);
    PUT("l.idx", LABELS);
    open_bad(IDX, small, bad_idx[_i].code, bad_idx[_i].text);
}
END_TEST

/* A gzip file has no size to compare with: what matters is what comes out, and that little is taken for a large promise. */
START_TEST(idx_refuses_bad_gzip)
{
    static const char lie[] = "\0\0\010\003\0\0\377\377\0\0\377\377\0\0\0\001" "123", bomb[] = "\0\0\010\003\377\377\377\377\377\377\377\377\0\0\0\001";
    unsigned char raw[200];
    PUT("l.idx", LABELS);
    put_gz("i.idx", lie, sizeof lie - 1);
    open_bad(IDX, small, 65, "i.idx: offset 19: the file ends here");
    put_gz("i.idx", bomb, sizeof bomb - 1);
    open_bad(IDX, small, 65, "i.idx: offset 4: the dimensions need more than 16 GiB");
    put_gz("i.idx", IMAGES "x", sizeof IMAGES);
    open_bad(IDX, small, 65, "i.idx: offset 28: bytes after the last element");
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
    open_bad(IDX, small, 65, "l.idx: offset 4: 3 labels for the 2 images of i.idx");
    PUT("l.idx", "\0\0\010\001\0\0\0\002" "\004\005");
    open_bad(IDX, small, 65, "l.idx: offset 9: label 5, but there are 5 classes");
    PUT("l.idx", IMAGES);
    open_bad(IDX, small, 65, "l.idx: offset 3: has 3 dimensions, expected 1");
    PUT("l.idx", LABELS);
    struct ds_want want = small;
    want.input = (struct shape){3, {3, 32, 32}};
    open_bad(IDX, want, 78, "t.conf:3: data.train_images: i.idx gives samples of 1x2x3, the model takes 3x32x32");
    open_bad(IDX "pad = {1, 3}", small, 78, "t.conf:3: data.pad: i.idx has images of 2x3, which are larger than 1x3");
    open_bad(IDX "mean = {1, 2}", small, 78, "t.conf:3: data.mean: 2 values for 1 channels");
    want = small;
    want.target_type = F32;
    want.target = (struct shape){2, {5, 5}};
    open_bad(IDX, want, 65, "l.idx: has classes, the model takes targets of shape 5x5");
    open_bad("source = idx train_images = \"i.idx\"", small, 78, "data.train_images: given without data.train_labels");
    open_bad("source = idx train_labels = \"l.idx\"", small, 78, "data.train_labels: given without data.train_images");
}
END_TEST

START_TEST(files_that_are_none)
{
    struct err e = {0};
    struct idx_file f;
    struct npy a;
    ck_assert_int_eq(mkdir("folder", 0777) * mkfifo("pipe", 0666), 0);
    static const struct { const char *path; int code; const char *text; } all[] = {
        {"none", 66, "none: No such file"}, {"folder", 65, "folder: is a directory"}, {"pipe", 65, "pipe: is not a regular file"}, {"/dev/zero", 65, "not a regular"}};
    for (int i = 0; i < 4; i++) {
        e = (struct err){0};
        ck_assert_int_eq(idx_file_load(all[i].path, 3, 4, &f, &e), -1);
        expect(&e, all[i].code, all[i].text);
        e = (struct err){0};
        ck_assert_int_eq(npy_open(all[i].path, &a, &e), -1);
        expect(&e, all[i].code, all[i].text);
    }
}
END_TEST

/* The constants are byte sums and sizes of Debian's dataset-fashion-mnist. */
START_TEST(idx_reads_fashion_mnist)
{
    static const struct { const char *name; int rank; uint64_t n, sum; } all[] = {
        {"train-images-idx3", 3, 60000, 3431114169u}, {"t10k-images-idx3", 3, 10000, 573469082}, {"train-labels-idx1", 1, 60000, 270000}, {"t10k-labels-idx1", 1, 10000, 45000}};
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

/* ---- NumPy ------------------------------------------------------------------------------------------------------------------------- */

#define NPY "source = npy train_images = \"x.npy\" train_labels = \"y.npy\" "
static const struct ds_want pair_class = {.input = {3, {2, 1, 2}}, .target_type = I64, .classes = 3};
static const struct ds_want pair_vector = {.input = {3, {2, 1, 2}}, .target = {1, {3}}, .target_type = F32, .classes = 3};
static const float pair_x[8] = {0, 1, 2, 3, 4, 5, 6, 7};

static void npy_put(const char *path, enum npy_type t, struct shape s, const void *data)
{
    struct err e = {0};
    ck_assert_msg(!npy_write(path, t, &s, data, &e), "%s", e.text);
}

START_TEST(npy_writes_what_numpy_writes)
{
    /* numpy.save('a.npy', numpy.float32([[1, 2]])), as NumPy 1.24 writes it. */
    static const char head[] = "\x93NUMPY\1\0v\0{'descr': '<f4', 'fortran_order': False, 'shape': (1, 2), }";
    unsigned char b[256];
    npy_put("a.npy", NPY_F4, (struct shape){2, {1, 2}}, (float[]){1, 2});
    FILE *f = fopen("a.npy", "rb");
    ck_assert_uint_eq(fread(b, 1, sizeof b, f), 136);
    fclose(f);
    ck_assert_mem_eq(b, head, sizeof head - 1);
    for (size_t i = sizeof head - 1; i < 127; i++) ck_assert_uint_eq(b[i], ' ');
    ck_assert_uint_eq(b[127], '\n');
    ck_assert_mem_eq(b + 128, "\0\0\200\077\0\0\0\100", 8);
}
END_TEST

START_TEST(npy_reads_all_types)
{
    float x[4], y[3];
    int64_t cls;
    static const double wide[8] = {0, 1, 2, 3, 4, 5, 6, 7};
    static const uint8_t bytes[8] = {0, 1, 2, 3, 4, 5, 6, 7}, label1[2] = {2, 1};
    static const int32_t label4[2] = {2, 1};
    static const int64_t label8[2] = {2, 1};
    static const float vector[6] = {1, 2, 3, 4, 5, 6};
    static const struct { enum npy_type t; const void *p; } images[3] = {{NPY_F4, pair_x}, {NPY_F8, wide}, {NPY_U1, bytes}},
                                                            labels[3] = {{NPY_U1, label1}, {NPY_I4, label4}, {NPY_I8, label8}};
    for (int i = 0; i < 3; i++) {
        npy_put("x.npy", images[i].t, (struct shape){4, {2, 2, 1, 2}}, images[i].p);
        npy_put("y.npy", labels[i].t, (struct shape){1, {2}}, labels[i].p);
        struct ds *d = open_good(NPY, pair_class), *v = open_good(NPY, pair_vector);
        ck_assert_uint_eq(d->kind->count(d), 2);
        get(d, 1, x, &cls);
        ck_assert_mem_eq(x, pair_x + 4, sizeof x);
        ck_assert_int_eq(cls, 1);
        get(v, 0, NULL, y);
        ck_assert(y[0] == 0 && y[1] == 0 && y[2] == 1);
        ds_close(d);
        ds_close(v);
    }
    npy_put("y.npy", NPY_F4, (struct shape){2, {2, 3}}, vector);
    struct ds *d = open_good(NPY "mean = {1, 2} std = 2", pair_vector);
    get(d, 1, x, y);
    ck_assert(x[0] == 1.5f && x[1] == 2 && x[2] == 2 && x[3] == 2.5f);
    ck_assert_mem_eq(y, vector + 3, sizeof y);
    ds_close(d);
}
END_TEST

/* More than one piece of conversion, and a scalar mean for all channels. */
START_TEST(npy_converts_long_samples)
{
    static double in[2][3000];
    static float x[3000];
    for (int i = 0; i < 6000; i++) in[i / 3000][i % 3000] = i;
    npy_put("x.npy", NPY_F8, (struct shape){2, {2, 3000}}, in);
    npy_put("y.npy", NPY_U1, (struct shape){1, {2}}, "\0\1");
    struct ds *d = open_good(NPY "mean = 1", (struct ds_want){.input = {1, {3000}}, .target_type = I64, .classes = 3});
    get(d, 1, x, NULL);
    for (int i = 0; i < 3000; i++) ck_assert(x[i] == (float)(3000 + i - 1));
    ds_close(d);
}
END_TEST

static const struct { const char *header, *text; } bad_headers[] = {
    {"", "the header is no dictionary"},
    {"{'descr': '<f4', 'fortran_order': False, 'shape': (2, 2, 1, 2), ", "expected a string"},
    {"{'descr': '<f4', 'fortran_order': False, }", "is missing"},
    {"{'descr': '<f4', 'fortran_order': False, 'shape': (2, 2, 1, 2), 'x': 1}", "an unknown key"},
    {"{'descr': '<f4', 'descr': '<f4', 'fortran_order': False, 'shape': (2, 2, 1, 2)}", "a key appears twice"},
    {"{'descr': '<f4' 'fortran_order': False, 'shape': (2, 2, 1, 2)}", "expected a comma"},
    {"{'descr' '<f4', 'fortran_order': False, 'shape': (2, 2, 1, 2)}", "expected a colon"},
    {"{'descr': '|O', 'fortran_order': False, 'shape': (2, 2, 1, 2)}", "object arrays are not supported"},
    {"{'descr': '>f4', 'fortran_order': False, 'shape': (2, 2, 1, 2)}", "its type is not one of"},
    {"{'descr': [('a', '<f4')], 'fortran_order': False, 'shape': (2, 2, 1, 2)}", "structured types"},
    {"{'descr': '<f4', 'fortran_order': True, 'shape': (2, 2, 1, 2)}", "Fortran order is not supported"},
    {"{'descr': '<f4', 'fortran_order': 0, 'shape': (2, 2, 1, 2)}", "neither True nor False"},
    {"{'descr': '<f4', 'fortran_order': False, 'shape': [2, 2, 1, 2]}", "expected the shape as a tuple"},
    {"{'descr': '<f4', 'fortran_order': False, 'shape': (8)}", "the shape is no tuple"},
    {"{'descr': '<f4', 'fortran_order': False, 'shape': (2, -2, 1, 2)}", "expected a dimension"},
    {"{'descr': '<f4', 'fortran_order': False, 'shape': (2 2, 1, 2)}", "expected a comma in the shape"},
    {"{'descr': '<f4', 'fortran_order': False, 'shape': (1, 1, 1, 1, 1, 1, 8)}", "too many dimensions"},
    {"{'descr': '<f4', 'fortran_order': False, 'shape': (9999999999999999999, 2)}", "more than 18 digits"},
    {"{'descr': '<f4', 'fortran_order': False, 'shape': (999999999999999999, 999999999999999999)}", "does not fit the 32 bytes here"},
    {"{'descr': '<f4', 'fortran_order': False, 'shape': (4611686018427387904, 4, 2)}", "more than 18 digits"},
    {"{'descr': '<f4', 'fortran_order': False, 'shape': (2, 2, 1, 3)}", "shape 2x2x1x3 of type <f4 does not fit the 32 bytes here"},
    {"{'descr': '<f4', 'fortran_order': False, 'shape': (2, 2, 1, 1)}", "does not fit the 32 bytes here"},
    {"{'descr': '<f4', 'fortran_order': False, 'shape': (2, 2, 1, 2)} import os", "more text after the dictionary"},
    {"{'descr': '<f4\n', 'fortran_order': False, 'shape': (2, 2, 1, 2)}", "a string that is too long"},
};

START_TEST(npy_refuses_bad_headers)
{
    struct text t = {0};
    struct npy f;
    struct err e = {0};
    const char *h = bad_headers[_i].header;
    text_add_bytes(&t, "\x93NUMPY\2\0", 8);
    uint32_t n = (uint32_t)strlen(h);
    text_add_bytes(&t, &n, 4);
    text_add_bytes(&t, h, n);
    text_add_bytes(&t, pair_x, sizeof pair_x);
    put("x.npy", t.s, t.n);
    text_free(&t);
    ck_assert_int_eq(npy_open("x.npy", &f, &e), -1);
    expect(&e, 65, "x.npy: offset ");
    expect(&e, 65, bad_headers[_i].text);
}
END_TEST

START_TEST(npy_refuses_bad_files)
{
    static const struct { const char *bytes; size_t n; const char *text; } all[] = {
        {"", 0, "x.npy: offset 0: the file ends here"},
        {"\x93NUMPY\1\0", 8, "x.npy: offset 8: the file ends here"},
        {"\x89PNG\r\n\032\n....", 12, "x.npy: offset 0: not an .npy file"},
        {"\x93NUMPY\4\0v\0{}", 12, "x.npy: offset 6: an unknown version"},
        {"\x93NUMPY\1\1v\0{}", 12, "x.npy: offset 6: an unknown version"},
        {"\x93NUMPY\1\0\377\377{}", 12, "x.npy: offset 10: the header is longer than the file"},
        {"\x93NUMPY\3\0\377\377\377\377{}", 14, "x.npy: offset 12: the header is longer than the file"},
        {"\x93NUMPY\3\0\377", 9, "x.npy: offset 9: the file ends here"},
    };
    for (size_t i = 0; i < sizeof all / sizeof *all; i++) {
        struct err e = {0};
        struct npy f;
        put("x.npy", all[i].bytes, all[i].n);
        ck_assert_int_eq(npy_open("x.npy", &f, &e), -1);
        expect(&e, 65, all[i].text);
    }
}
END_TEST

START_TEST(npy_refuses_what_does_not_fit)
{
    static const int64_t label[4] = {0, 3, -1, 0};
    struct shape images = {4, {2, 2, 1, 2}}, two = {1, {2}};
    npy_put("x.npy", NPY_F4, images, pair_x);
    npy_put("y.npy", NPY_I8, two, label);
    open_bad(NPY, pair_class, 65, "y.npy: offset 136: label 3, but there are 3 classes");
    npy_put("y.npy", NPY_I8, two, label + 2);
    open_bad(NPY, pair_class, 65, "y.npy: offset 128: label -1, but there are 3 classes");
    npy_put("y.npy", NPY_I8, (struct shape){1, {3}}, label);
    open_bad(NPY, pair_class, 65, "y.npy: offset 10: 3 labels for the 2 images of x.npy");
    npy_put("y.npy", NPY_F4, (struct shape){2, {2, 3}}, pair_x);
    open_bad(NPY, pair_class, 65, "y.npy: offset 10: <f4 labels of shape 3, the model takes <i8 classes of shape scalar");
    npy_put("y.npy", NPY_F4, images, pair_x);
    open_bad(NPY, pair_vector, 65, "<f4 labels of shape 2x1x2, the model takes <f4 targets of shape 3");
    npy_put("y.npy", NPY_I8, (struct shape){0}, label);
    open_bad(NPY, pair_class, 65, "y.npy: offset 10: 0 labels");
    npy_put("x.npy", NPY_F4, (struct shape){3, {2, 2, 2}}, pair_x);
    open_bad(NPY, pair_class, 65, "x.npy: offset 10: samples of 2x2, the model takes 2x1x2");
    npy_put("x.npy", NPY_I8, (struct shape){4, {1, 2, 1, 2}}, label);
    open_bad(NPY, pair_class, 65, "x.npy: offset 10: images of type <i8");
    npy_put("x.npy", NPY_F4, (struct shape){4, {0, 2, 1, 2}}, pair_x);
    open_bad(NPY, pair_class, 65, "no samples");
}
END_TEST

START_TEST(npy_that_shrinks_is_an_error)
{
    float x[4];
    struct err e = {0};
    npy_put("x.npy", NPY_F4, (struct shape){4, {2, 2, 1, 2}}, pair_x);
    npy_put("y.npy", NPY_U1, (struct shape){1, {2}}, "\0\1");
    struct ds *d = open_good(NPY, pair_class);
    ck_assert_int_eq(truncate("x.npy", 150), 0);
    ck_assert_int_eq(d->kind->read(d, 1, x, NULL, &e), -1);
    expect(&e, 65, "x.npy: offset 150: the file ends here, 10 bytes too early");
    ds_close(d);
}
END_TEST

START_TEST(npy_reads_what_numpy_writes)
{
    float x[4];
    int64_t y;
    if (system("/usr/bin/python3 -c 'import numpy' 2>/dev/null")) {
        fprintf(stderr, "SKIPPED: python3-numpy is not installed\n");
        return;
    }
    ck_assert_int_eq(system("/usr/bin/python3 -c 'import numpy as np; np.save(\"x.npy\", np.arange(8, dtype=np.float32).reshape(2,2,1,2));"
                            "f = open(\"y.npy\", \"wb\"); np.lib.format.write_array(f, np.array([2, 0]), version=(3, 0))'"), 0);
    struct ds *d = open_good(NPY, pair_class);
    get(d, 1, x, &y);
    ck_assert_mem_eq(x, pair_x + 4, sizeof x);
    ck_assert_int_eq(y, 0);
    ds_close(d);
}
END_TEST

/* ---- sample order ------------------------------------------------------------------------------------------------------------------ */

START_TEST(order_in_file_order)
{
    int64_t id[8];
    uint64_t epoch;
    struct feed_order wrap = {.count = 10, .wrap = true}, stop = {.count = 10};
    ck_assert_int_eq(feed_batch(&wrap, 8, 4, id, &epoch), 4);
    ck_assert(id[0] == 8 && id[1] == 9 && id[2] == 0 && id[3] == 1 && epoch == 0);
    ck_assert_int_eq(feed_batch(&stop, 8, 4, id, &epoch), 2);
    ck_assert(id[0] == 8 && id[1] == 9 && epoch == 0);
    ck_assert_int_eq(feed_batch(&stop, 10, 4, id, &epoch), 4);
    ck_assert(id[0] == 0 && id[3] == 3 && epoch == 1);
    struct feed_order tiny = {.count = 3, .wrap = true}, none = {.wrap = true};
    ck_assert_int_eq(feed_batch(&tiny, 2, 8, id, &epoch), 8);
    for (int i = 0; i < 8; i++) ck_assert_int_eq(id[i], (2 + i) % 3);
    ck_assert_int_eq(feed_batch(&none, 2, 8, id, &epoch), 0);
}
END_TEST

START_TEST(order_shuffled)
{
    struct feed_order o = {.seed = 5, .count = 103, .shuffle = true, .wrap = true}, other = o;
    int64_t first[103], id[20];
    uint64_t epoch, at = 0;
    int moved = 0, differs = 0;
    for (uint64_t e = 0; e < 3; e++) {
        char seen[103] = {0};
        for (int k = 0; k < 6; k++) {
            int n = feed_batch(&o, at, 20, id, &epoch);
            ck_assert_int_eq(n, k < 5 ? 20 : 3);
            ck_assert_uint_eq(epoch, e);
            for (int i = 0; i < n; i++) {
                ck_assert_int_eq(seen[id[i]]++, 0);
                if (!e) first[k * 20 + i] = id[i];
                moved += e && id[i] != first[k * 20 + i];
            }
            at += (uint64_t)n;
        }
    }
    ck_assert_uint_eq(at, 309);
    ck_assert_int_gt(moved, 150);                        /* two permutations of 103 agree in one place on average */
    other.seed = 6;
    feed_batch(&other, 0, 20, id, &epoch);
    for (int i = 0; i < 20; i++) differs += id[i] != first[i];
    ck_assert_int_gt(differs, 10);
    feed_batch(&o, 40, 20, id, &epoch);                  /* from the cursor alone, as after a resume */
    ck_assert_mem_eq(id, first + 40, sizeof id);
}
END_TEST

/* ---- prefetch ---------------------------------------------------------------------------------------------------------------------- */

/* Sample i is {i, i + 1/2}, its label i. Sample 13 is broken; sample 99 is read only once the gate opens. */
struct probe { struct ds ds; pthread_mutex_t lock; pthread_cond_t changed; bool open, waiting; int reads; };
static uint64_t probe_count(const struct ds *d) { (void)d; return 1000; }
static int probe_read(struct ds *d, uint64_t i, float *x, void *y, struct err *e)
{
    struct probe *p = (struct probe *)d;
    pthread_mutex_lock(&p->lock);
    p->reads++;
    p->waiting = i == 99;
    pthread_cond_broadcast(&p->changed);
    while (i == 99 && !p->open) pthread_cond_wait(&p->changed, &p->lock);
    pthread_mutex_unlock(&p->lock);
    if (i == 13) return err_set(e, E_DATA, "x: offset 13: broken");
    if (x) { x[0] = (float)i; x[1] = (float)i + 0.5f; }
    if (y) *(int64_t *)y = (int64_t)i;
    return 0;
}
static const struct ds_kind probe_kind = {.name = "probe", .count = probe_count, .read = probe_read};
#define PROBE {.ds.kind = &probe_kind, .lock = PTHREAD_MUTEX_INITIALIZER, .changed = PTHREAD_COND_INITIALIZER}

static struct feed *probe_feed(struct probe *p, bool x, bool y, int depth)
{
    struct err e = {0};
    struct feed *f;
    ck_assert_int_eq(feed_open(&p->ds, x, y, 8, 8, 4, depth, &f, &e), 0);
    return f;
}

START_TEST(feed_gives_samples_in_order)
{
    struct probe p = PROBE;
    struct err e = {0};
    struct feed *f = probe_feed(&p, true, true, 3);
    const float *x;
    const void *y;
    for (int64_t k = 0; k < 50; k++) {
        int n = (int)(k % 4) + 1;
        for (int64_t ahead = k ? k + 2 : 0; ahead <= k + 2; ahead++) {
            int64_t id[4] = {100 + 4 * ahead, 101 + 4 * ahead, 102 + 4 * ahead, 103 + 4 * ahead};
            ck_assert_int_eq(feed_request(f, (int)(ahead % 4) + 1, id, &e), 0);
        }
        ck_assert_int_eq(feed_take(f, &x, &y, &e), 0);
        for (int i = 0; i < n; i++) {
            int64_t id = 100 + 4 * k + i;
            ck_assert(x[2 * i] == (float)id && x[2 * i + 1] == (float)id + 0.5f && ((const int64_t *)y)[i] == id);
        }
    }
    feed_close(f);
}
END_TEST

START_TEST(feed_reads_only_what_is_wanted_and_keeps_its_bound)
{
    struct probe p = PROBE;
    struct err e = {0};
    struct feed *f = probe_feed(&p, false, true, 2);
    const float *x = (void *)1;
    const void *y;
    int64_t id[5] = {7, 8};
    ck_assert_int_eq(feed_take(f, &x, &y, &e), -1);
    expect(&e, E_INTERNAL, "nobody requested");
    e = (struct err){0};
    ck_assert_int_eq(feed_request(f, 2, id, &e) | feed_request(f, 1, id + 1, &e), 0);
    ck_assert_int_eq(feed_request(f, 1, id, &e), -1);
    expect(&e, E_INTERNAL, "more samples are requested");
    e = (struct err){0};
    ck_assert_int_eq(feed_take(f, &x, &y, &e), 0);
    ck_assert_ptr_null(x);
    ck_assert_int_eq(((const int64_t *)y)[1], 8);
    ck_assert_int_eq(feed_request(f, 5, id, &e), -1);
    expect(&e, E_INTERNAL, "the feed takes 4");
    e = (struct err){0};
    ck_assert_int_eq(feed_request(f, 1, id, &e), 0);     /* while the first is still lent: its content stays */
    ck_assert_int_eq(((const int64_t *)y)[0], 7);
    feed_close(f);
}
END_TEST

START_TEST(feed_carries_errors_and_goes_on)
{
    struct probe p = PROBE;
    struct err e = {0};
    struct feed *f = probe_feed(&p, true, true, 2);
    const float *x;
    const void *y;
    ck_assert_int_eq(feed_request(f, 2, (int64_t[]){12, 13}, &e) | feed_request(f, 1, (int64_t[]){14}, &e), 0);
    ck_assert_int_eq(feed_take(f, &x, &y, &e), -1);
    expect(&e, 65, "x: offset 13: broken");
    e = (struct err){0};
    ck_assert_int_eq(feed_take(f, &x, &y, &e), 0);
    ck_assert(x[0] == 14);
    feed_close(f);
}
END_TEST

static void *gate_open(void *arg)
{
    struct probe *p = arg;
    pthread_mutex_lock(&p->lock);
    while (!p->waiting) pthread_cond_wait(&p->changed, &p->lock);
    p->open = true;
    pthread_cond_broadcast(&p->changed);
    pthread_mutex_unlock(&p->lock);
    return NULL;
}

/* The reader hangs in a sample when the step is abandoned: cancel waits for that sample alone, reads none of the others, and the feed serves again. */
START_TEST(feed_cancels)
{
    struct probe p = PROBE;
    struct err e = {0};
    pthread_t gate;
    struct feed *f = probe_feed(&p, true, true, 3);
    const float *x;
    const void *y;
    for (int i = 0; i < 3; i++) ck_assert_int_eq(feed_request(f, 4, (int64_t[]){99, 1, 2, 3}, &e), 0);
    pthread_mutex_lock(&p.lock);
    while (!p.waiting) pthread_cond_wait(&p.changed, &p.lock);
    pthread_mutex_unlock(&p.lock);
    pthread_create(&gate, NULL, gate_open, &p);
    feed_cancel(f);
    pthread_join(gate, NULL);
    ck_assert_int_eq(feed_take(f, &x, &y, &e), -1);
    expect(&e, E_INTERNAL, "nobody requested");
    e = (struct err){0};
    for (int i = 0; i < 3; i++) ck_assert_int_eq(feed_request(f, 1, (int64_t[]){20 + i}, &e), 0);
    for (int i = 0; i < 3; i++) {
        ck_assert_int_eq(feed_take(f, &x, &y, &e), 0);
        ck_assert(x[0] == (float)(20 + i));
    }
    feed_cancel(f);
    feed_close(f);
    feed_close(NULL);
}
END_TEST

START_TEST(feed_closes_while_full)
{
    struct probe p = PROBE;
    struct err e = {0};
    p.open = true;
    struct feed *f = probe_feed(&p, true, true, 3);
    for (int i = 0; i < 3; i++) ck_assert_int_eq(feed_request(f, 4, (int64_t[]){99, 99, 99, 99}, &e), 0);
    feed_close(f);
    ck_assert_int_le(p.reads, 12);
}
END_TEST

/* ---- by configuration and graph ------------------------------------------------------------------------------------------------------ */

START_TEST(ds_open_takes_shapes_from_the_graph)
{
    struct err e = {0};
    struct ds *d;
    float x[10], y[5];
    struct conf *c = conf_make("source = synthetic labels = onehot");
    ck_assert_msg(!conf_set(c, "t", "train.loss=mse", &e), "%s", e.text);
    struct graph *g = model_build(c, &e);
    ck_assert_msg(g != NULL, "%s", e.text);
    ck_assert_msg(!ds_open(c, DS_TRAIN, g, &d, &e), "%s", e.text);
    get(d, 0, x, y);
    ck_assert(y[0] + y[1] + y[2] + y[3] + y[4] == 1);
    ds_close(d);
    ck_assert_int_eq(ds_open(c, DS_TEST, g, &d, &e), 0);
    ck_assert_ptr_null(d);
    ds_close(d);
    c->data.source = "tape";
    ck_assert_int_eq(ds_open(c, DS_TRAIN, g, &d, &e), -1);
    expect(&e, 78, "t.conf:3: data.source: there is no data source \"tape\"");
    graph_free(g);
    conf_free(c);
}
END_TEST

static Suite *suite(void)
{
    Suite *s = suite_create("data");
    TCase *t = tcase_create("all");
    tcase_add_unchecked_fixture(t, scratch_make, scratch_drop);
    tcase_set_timeout(t, 60);
    tcase_add_test(t, synthetic_is_a_function_of_seed_and_index);
    tcase_add_test(t, synthetic_is_distributed);
    tcase_add_test(t, synthetic_vectors_and_test_part);
    tcase_add_test(t, idx_reads_plain_and_gzip);
    tcase_add_test(t, idx_pads_repeats_and_normalises);
    tcase_add_test(t, idx_takes_channels_limits_and_rows);
    tcase_add_loop_test(t, idx_refuses_bad_images, 0, (int)(sizeof bad_idx / sizeof *bad_idx));
    tcase_add_test(t, idx_refuses_bad_gzip);
    tcase_add_test(t, idx_refuses_what_does_not_fit);
    tcase_add_test(t, files_that_are_none);
    tcase_add_test(t, idx_reads_fashion_mnist);
    tcase_add_test(t, npy_writes_what_numpy_writes);
    tcase_add_test(t, npy_reads_all_types);
    tcase_add_test(t, npy_converts_long_samples);
    tcase_add_loop_test(t, npy_refuses_bad_headers, 0, (int)(sizeof bad_headers / sizeof *bad_headers));
    tcase_add_test(t, npy_refuses_bad_files);
    tcase_add_test(t, npy_refuses_what_does_not_fit);
    tcase_add_test(t, npy_that_shrinks_is_an_error);
    tcase_add_test(t, npy_reads_what_numpy_writes);
    tcase_add_test(t, order_in_file_order);
    tcase_add_test(t, order_shuffled);
    tcase_add_test(t, feed_gives_samples_in_order);
    tcase_add_test(t, feed_reads_only_what_is_wanted_and_keeps_its_bound);
    tcase_add_test(t, feed_carries_errors_and_goes_on);
    tcase_add_test(t, feed_cancels);
    tcase_add_test(t, feed_closes_while_full);
    tcase_add_test(t, ds_open_takes_shapes_from_the_graph);
    suite_add_tcase(s, t);
    return s;
}

int main(void)
{
    SRunner *r = srunner_create(suite());
    srunner_run_all(r, CK_NORMAL);
    int failed = srunner_ntests_failed(r);
    srunner_free(r);
    return failed != 0;
}
