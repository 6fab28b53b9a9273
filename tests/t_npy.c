/* NumPy files: reading and writing, every kind of bad file, and files that NumPy itself writes and reads. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include "data/npy.h"
#include "data_rig.h"

#define NPY "source = npy train = \"x.npy\" train_labels = \"y.npy\" "
static const struct ds_pair pair_class = {.input = {3, {2, 1, 2}}, .target_type = I64, .classes = 3};
static const struct ds_pair pair_vector = {
    .input = {3, {2, 1, 2}}, .target = {1, {3}}, .target_type = F32, .classes = 3};
static const float pair_x[8] = {0, 1, 2, 3, 4, 5, 6, 7};

static void npy_put(const char *path, enum npy_type t, struct shape s, const void *data)
{
    struct text file = {0};
    FILE *f = fopen(path, "wb");
    npy_add(&file, t, &s, data);
    ck_assert(f && fwrite(file.s, 1, file.n, f) == file.n && !fclose(f));
    text_free(&file);
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
    static const uint8_t label1[2] = {2, 1};
    static const int32_t label4[2] = {2, 1};
    static const int64_t label8[2] = {2, 1};
    static const float vector[6] = {1, 2, 3, 4, 5, 6};
    static const struct { enum npy_type t; const void *p;
    } images[2] = {{NPY_F4, pair_x}, {NPY_F8, wide}},
      labels[3] = {{NPY_U1, label1}, {NPY_I4, label4}, {NPY_I8, label8}};
    for (int i = 0; i < 3; i++) {
        npy_put("x.npy", images[i % 2].t, (struct shape){4, {2, 2, 1, 2}}, images[i % 2].p);
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

/* Bytes are pixels: the bits of the same pixels as float32 / 255, before and after normalisation. */
START_TEST(npy_scales_bytes)
{
    uint8_t bytes[8] = {0, 1, 51, 100, 128, 200, 254, 255};
    static const char *const data[] = {NPY, NPY "mean = {0.2860, 0.5} std = {0.3530, 0.25}"};
    float scaled[8], x[4], want[4];
    struct shape s = {4, {2, 2, 1, 2}};
    for (int i = 0; i < 8; i++) scaled[i] = (float)bytes[i] / 255;
    npy_put("y.npy", NPY_U1, (struct shape){1, {2}}, "\0\1");
    for (int k = 0; k < 4; k++) {
        npy_put("x.npy", NPY_U1, s, bytes);
        struct ds *d = open_good(data[k / 2], pair_class);
        get(d, (uint64_t)k % 2, x, NULL);
        ds_close(d);
        npy_put("x.npy", NPY_F4, s, scaled);
        d = open_good(data[k / 2], pair_class);
        get(d, (uint64_t)k % 2, want, NULL);
        ds_close(d);
        ck_assert_mem_eq(x, want, sizeof x);
    }
    ck_assert(want[3] == (1 - 0.5f) / 0.25f);
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
    struct ds *d = open_good(NPY "mean = 1", (struct ds_pair){.input = {1, {3000}}, .target_type = I64, .classes = 3});
    get(d, 1, x, NULL);
    for (int i = 0; i < 3000; i++) ck_assert(x[i] == (float)(3000 + i - 1));
    ds_close(d);
}
END_TEST

/* numpy.save of NumPy 1.6 with Python 2, where numbers that were long are written so. */
START_TEST(npy_reads_python_2)
{
    static const char *const shapes[] = {"(2L, 2L, 1L, 2L)", "(2L,2 ,1L , 2L,)"};
    for (int i = 0; i < 2; i++) {
        char b[160] = "\x93NUMPY\1\0v\0";
        float x[4];
        snprintf(b + 10, 119, "{'descr': '<f4', 'fortran_order': False, 'shape': %s, }%-*s\n", shapes[i],
                 64 - (int)strlen(shapes[i]), "");
        memcpy(b + 128, pair_x, sizeof pair_x);
        put("x.npy", b, 128 + sizeof pair_x);
        npy_put("y.npy", NPY_U1, (struct shape){1, {2}}, "\0\1");
        struct ds *d = open_good(NPY, pair_class);
        get(d, 1, x, NULL);
        ck_assert_mem_eq(x, pair_x + 4, sizeof x);
        ds_close(d);
    }
}
END_TEST

static const struct { const char *header, *text; } bad_headers[] = {
    {"", "the header is not a dictionary"},
    {"{'descr': '<f4', 'fortran_order': False, 'shape': (2, 2, 1, 2), ", "expected a string"},
    {"{'descr': '<f4', 'fortran_order': False, }", "is missing"},
    {"{'descr': '<f4', 'fortran_order': False, 'shape': (2, 2, 1, 2), 'x': 1}", "an unknown key"},
    {"{'descr': '<f4', 'descr': '<f4', 'fortran_order': False, 'shape': (2, 2, 1, 2)}", "a key appears twice"},
    {"{'descr': '<f4' 'fortran_order': False, 'shape': (2, 2, 1, 2)}", "expected a comma"},
    {"{'descr' '<f4', 'fortran_order': False, 'shape': (2, 2, 1, 2)}", "expected a colon"},
    {"{'descr': '|O', 'fortran_order': False, 'shape': (2, 2, 1, 2)}", "object arrays are not supported"},
    {"{'descr': '>f4', 'fortran_order': False, 'shape': (2, 2, 1, 2)}", ">f4"},
    {"{'descr': [('a', '<f4')], 'fortran_order': False, 'shape': (2, 2, 1, 2)}", "structured types"},
    {"{'descr': '<f4', 'fortran_order': True, 'shape': (2, 2, 1, 2)}", "Fortran"},
    {"{'descr': '<f4', 'fortran_order': 0, 'shape': (2, 2, 1, 2)}", "neither True nor False"},
    {"{'descr': '<f4', 'fortran_order': False, 'shape': [2, 2, 1, 2]}", "expected the shape as a tuple"},
    {"{'descr': '<f4', 'fortran_order': False, 'shape': (8)}", "the shape is not a tuple"},
    {"{'descr': '<f4', 'fortran_order': False, 'shape': (2, -2, 1, 2)}", "expected a dimension"},
    {"{'descr': '<f4', 'fortran_order': False, 'shape': (2 2, 1, 2)}", "expected a comma in the shape"},
    {"{'descr': '<f4', 'fortran_order': False, 'shape': (2LL, 2, 1, 2)}", "expected a comma in the shape"},
    {"{'descr': '<f4', 'fortran_order': False, 'shape': (2 L, 2, 1, 2)}", "expected a comma in the shape"},
    {"{'descr': '<f4', 'fortran_order': False, 'shape': (1, 1, 1, 1, 1, 1, 8)}", "too many dimensions"},
    {"{'descr': '<f4', 'fortran_order': False, 'shape': (9999999999999999999, 2)}", "more than 18 digits"},
    {"{'descr': '<f4', 'fortran_order': False, 'shape': (999999999999999999, 999999999999999999)}",
     "does not fit the 32 bytes here"},
    {"{'descr': '<f4', 'fortran_order': False, 'shape': (4611686018427387904, 4, 2)}", "more than 18 digits"},
    {"{'descr': '<f4', 'fortran_order': False, 'shape': (2, 2, 1, 3)}",
     "shape 2x2x1x3 of type <f4 does not fit the 32 bytes here"},
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
        {"", 0, "x.npy: offset 0:"},
        {"\x93NUMPY\1\0", 8, "x.npy: offset 8:"},
        {"\x89PNG\r\n\032\n....", 12, "x.npy: this is a PNG picture, not a NumPy array (.npy)"},
        {"\x93NUMPY\4\0v\0{}", 12, "x.npy: offset 6:"},
        {"\x93NUMPY\1\1v\0{}", 12, "x.npy: offset 6:"},
        {"\x93NUMPY\1\0\377\377{}", 12, "x.npy: offset 10:"},
        {"\x93NUMPY\3\0\377\377\377\377{}", 14, "x.npy: offset 12:"},
        {"\x93NUMPY\3\0\377", 9, "x.npy: offset 9:"},
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
    open_bad(NPY, pair_class, 65, "y.npy: offset 136:|3|3|0");
    npy_put("y.npy", NPY_I8, two, label + 2);
    open_bad(NPY, pair_class, 65, "y.npy: offset 128:|-1|3");
    npy_put("y.npy", NPY_I8, (struct shape){1, {3}}, label);
    open_bad(NPY, pair_class, 65, "y.npy: offset 10: 3|2|x.npy");
    npy_put("y.npy", NPY_F4, (struct shape){2, {2, 3}}, pair_x);
    open_bad(NPY, pair_class, 65, "y.npy: offset 10: <f4|3|(<i8)");
    open_bad(NPY, pair_class, 65, "sample: y.argmax(1) converts these");
    npy_put("y.npy", NPY_I8, (struct shape){2, {2, 1}}, label);
    open_bad(NPY, pair_class, 65, "<i8|1|(<i8)|y.reshape(-1)");
    npy_put("y.npy", NPY_F4, two, pair_x);
    open_bad(NPY, pair_class, 65, "labels of shape scalar, the model takes a class (<i8) a sample: y.astype('int64')");
    npy_put("y.npy", NPY_F4, images, pair_x);
    open_bad(NPY, pair_vector, 65, "<f4|2x1x2|<f4|3");
    npy_put("y.npy", NPY_I8, (struct shape){0}, label);
    open_bad(NPY, pair_class, 65, "y.npy: offset 10: 0 labels");
    npy_put("y.npy", NPY_U1, two, "\0\1");
    ds_close(open_good(NPY "samples = 2", pair_class));
    open_bad(NPY "samples = 3", pair_class, 78, "t.conf:3: data.samples: 3 samples, but x.npy has 2");
    npy_put("x.npy", NPY_F4, (struct shape){4, {2, 1, 2, 2}}, pair_x);
    open_bad(NPY, pair_class, 65, "1x2x2|2x1x2:|x.transpose(0, 3");
    npy_put("x.npy", NPY_F4, (struct shape){3, {2, 2, 2}}, pair_x);
    open_bad(NPY, pair_class, 65, "x.npy: offset 10:|2x2|2x1x2");
    open_bad(NPY "pad = {3, 3}", pair_class, 78,
             "t.conf:3: data.pad: is for pictures, and x.npy has <f4 samples of 2x2");
    static const uint8_t grey[8] = {0};
    struct ds_pair colour = pair_class;
    colour.input = (struct shape){3, {3, 2, 2}};
    npy_put("x.npy", NPY_U1, (struct shape){4, {2, 1, 2, 2}}, grey);
    ds_close(open_good(NPY "channels = 3", colour));
    open_bad(NPY "pad = {2, 2}", colour, 78, "model.input: x.npy|1|3x2x2");
    open_bad(NPY "channels = 3 resize = 1", colour, 78, "t.conf:3: data.resize:");
    colour.input = (struct shape){3, {3, 1, 2}};
    open_bad(NPY "channels = 3", colour, 78, "t.conf:3: data.channels: pictures would be larger");
    npy_put("x.npy", NPY_I8, (struct shape){4, {1, 2, 1, 2}}, label);
    open_bad(NPY, pair_class, 65, "x.npy: offset 10:|<i8");
    npy_put("x.npy", NPY_F4, (struct shape){4, {0, 2, 1, 2}}, pair_x);
    open_bad(NPY, pair_class, 65, "no samples");
}
END_TEST

/* As stored, whatever the type in the file, and not beyond what the model takes; in more than one piece. */
START_TEST(npy_gives_whole_numbers)
{
    enum { LONG = 2500 };
    static const uint8_t bytes[6] = {0, 1, 2, 255, 4, 5};
    static const int32_t fours[6] = {0, 1, 2, 255, 4, 5};
    static const int64_t eights[6] = {0, 1, 2, 255, 4, 5};
    static const struct { enum npy_type t; const void *p;
    } files[3] = {{NPY_U1, bytes}, {NPY_I4, fours}, {NPY_I8, eights}};
    static int64_t many[2 * LONG], got[LONG];
    struct ds_pair want = {.input = {1, {3}}, .input_type = I32, .range = 256, .target_type = I64, .classes = 3};
    struct shape s = {2, {2, 3}};
    int32_t x[3];
    struct err e = {0};
    npy_put("y.npy", NPY_U1, (struct shape){1, {2}}, "\0\1");
    for (int i = 0; i < 3; i++) {
        npy_put("x.npy", files[i].t, s, files[i].p);
        struct ds *d = open_good(NPY, want);
        get(d, 1, (float *)x, NULL);
        ck_assert(x[0] == 255 && x[1] == 4 && x[2] == 5);
        ds_close(d);
    }
    want.range = 255;
    struct ds *d = open_good(NPY, want);
    ck_assert_int_eq(d->kind->read(d, 0, 0, PAIR_INPUT, x, &e), 0);
    ck_assert_int_eq(d->kind->read(d, 1, 0, PAIR_INPUT, x, &e), -1);
    expect(&e, 65, "x.npy: offset 152: 255|0|254");
    ds_close(d);
    npy_put("x.npy", NPY_I8, s, (int64_t[]){0, 0, -1, (int64_t)INT32_MAX + 1, 0, 0});
    want.range = 0;
    d = open_good(NPY, want);
    for (uint64_t i = 0; i < 2; i++) {
        e = (struct err){0};
        ck_assert_int_eq(d->kind->read(d, i, 0, PAIR_INPUT, x, &e), -1);
        expect(&e, 65, i ? "offset 152: 2147483648|0|2147483647" : "offset 144: -1, the model");
    }
    ds_close(d);
    npy_put("x.npy", NPY_F4, s, pair_x);
    open_bad(NPY, want, 65, "x.npy: offset 10:|<f4");
    npy_put("x.npy", NPY_I8, s, eights);
    open_bad(NPY "std = 2", want, 78, "t.conf:3: data.std:");
    want.input.d[0] = 2;
    open_bad(NPY, want, 65, "x.npy: offset 10:|3|2");
    for (int i = 0; i < 2 * LONG; i++) many[i] = 3 * i;
    npy_put("x.npy", NPY_I8, (struct shape){2, {2, LONG}}, many);
    want = (struct ds_pair){.input = {1, {LONG}}, .input_type = I64, .target_type = I64, .classes = 3};
    d = open_good(NPY, want);
    get(d, 1, (float *)got, NULL);
    ck_assert_mem_eq(got, many + LONG, sizeof got);
    ds_close(d);
}
END_TEST

static void digest(const struct ds_pair *want, const float *x, const void *y, char hash[33])
{
    static const struct shape vector = {2, {2, 3}}, class = {1, {2}};
    npy_put("x.npy", NPY_F4, (struct shape){4, {2, 2, 1, 2}}, x);
    if (want == &pair_class) npy_put("y.npy", NPY_I8, class, y);
    else npy_put("y.npy", NPY_F4, vector, y);
    struct ds *d = open_good(NPY, *want);
    ck_assert_uint_eq(strlen(ds_digest(d, hash)), 32);
    d->kind->close(d);
}

/* Another number of a sample, another class or another target makes other data. */
START_TEST(npy_data_are_told_apart)
{
    char was[33], is[33];
    float x[8], y[6] = {1, 2, 3, 4, 5, 6};
    int64_t class[2] = {2, 1};
    memcpy(x, pair_x, sizeof x);
    digest(&pair_class, x, class, was);
    digest(&pair_class, x, class, is);
    ck_assert_str_eq(is, was);
    class[1] = 0;
    digest(&pair_class, x, class, is);
    ck_assert_str_ne(is, was);
    class[1] = 1;
    x[7] = 8;
    digest(&pair_class, x, class, is);
    ck_assert_str_ne(is, was);
    digest(&pair_vector, x, y, was);
    y[5] = 7;
    digest(&pair_vector, x, y, is);
    ck_assert_str_ne(is, was);
    ck_assert_str_eq(ds_digest(NULL, is), "");
    ck_assert(ds_message(1, DS_TOLD - 1) == 0 && ds_message(1000000, 0) == 0 &&
              ds_message(1000000, DS_TOLD - 1) < 1000000);
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
    ck_assert_int_eq(d->kind->read(d, 1, 0, PAIR_INPUT, x, &e), -1);
    expect(&e, 65, "x.npy: offset 150:|10");
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
    ck_assert_int_eq(
        system("/usr/bin/python3 -c 'import numpy as np; np.save(\"x.npy\", np.arange(8, "
               "dtype=np.float32).reshape(2,2,1,2));"
               "f = open(\"y.npy\", \"wb\"); np.lib.format.write_array(f, np.array([2, 0]), version=(3, 0))'"),
        0);
    struct ds *d = open_good(NPY, pair_class);
    get(d, 1, x, &y);
    ck_assert_mem_eq(x, pair_x + 4, sizeof x);
    ck_assert_int_eq(y, 0);
    ds_close(d);
}
END_TEST

static void all(TCase *t)
{
    tcase_add_test(t, npy_writes_what_numpy_writes);
    tcase_add_test(t, npy_reads_all_types);
    tcase_add_test(t, npy_scales_bytes);
    tcase_add_test(t, npy_gives_whole_numbers);
    tcase_add_test(t, npy_converts_long_samples);
    tcase_add_test(t, npy_reads_python_2);
    tcase_add_loop_test(t, npy_refuses_bad_headers, 0, (int)(sizeof bad_headers / sizeof *bad_headers));
    tcase_add_test(t, npy_refuses_bad_files);
    tcase_add_test(t, npy_refuses_what_does_not_fit);
    tcase_add_test(t, npy_data_are_told_apart);
    tcase_add_test(t, npy_that_shrinks_is_an_error);
    tcase_add_test(t, npy_reads_what_numpy_writes);
}

int main(void) { return scratch_suite("npy", all); }
