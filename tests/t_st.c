/* safetensors: exact bytes of the writer, every rule of the reader, folders with shards, and a graph's parameters
 * against files. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>
#include "base/out.h"
#include "ckpt/weights.h"
#include "files.h"

/* A file with this header and so many bytes 0 1 2 ... of data. */
static void st_put_n(const char *path, const char *header, size_t n, size_t data)
{
    struct text t = {0};
    uint64_t length = n;
    text_add_bytes(&t, &length, 8);
    text_add_bytes(&t, header, n);
    for (size_t i = 0; i < data; i++) text_add_bytes(&t, (char[]){(char)i}, 1);
    put(path, t.s, t.n);
    text_free(&t);
}
static void st_put(const char *path, const char *header, size_t data) { st_put_n(path, header, strlen(header), data); }

static void open_bad(const char *path, int code, const char *part)
{
    struct err e = {0};
    ck_assert_ptr_null(st_open(path, &e));
    expect(&e, code, part);
}

/* ---- writing --------------------------------------------------------------------------------- */

static const float two[2] = {1, 2};
static const int64_t counter = 5;
static const void *const values[] = {two, &counter, two};
static const size_t sizes[] = {8, 8, 4};
static int value_get(void *ctx, int i, void *buf, const void **at, struct err *e)
{
    if (ctx && *(int *)ctx == i) return err_set(e, E_DEVICE, "tensor %d is lost", i);
    memcpy(buf, values[i], sizes[i]);
    return 0;
}

/* As a run writes its weights. */
static int put_out(void *ctx, const void *p, size_t n, struct err *e) { return out_write(ctx, p, n, e); }
static int file_write(const char *path, int n, const struct st_entry *entry,
                      st_data data, void *ctx, struct err *e)
{
    struct out_place at;
    struct out o;
    struct st_sink to = {put_out, &o};
    if (out_place(path, &at, e)) return -1;
    int bad = out_begin(&o, &at, NULL, e);
    if (!bad && st_write(&to, &(struct st_body){n, entry, data, ctx, NULL}, e)) {
        out_drop(&o);
        bad = -1;
    } else if (!bad) bad = out_commit(&o, false, e);
    out_place_free(&at);
    return bad;
}
static const struct st_entry entries[] = {{"b", F32, {2, {2, 1}}}, {"n", I64, {0}}, {"a\"b", F32, {1, {1}}}};

START_TEST(writes_the_reference_bytes)
{
    /* Types from wide to narrow, names within a type; no spaces but those that round the header up to 8. */
    static const char header[] = "{\"__metadata__\":{\"format\":\"pt\"},"
                                 "\"n\":{\"dtype\":\"I64\",\"shape\":[],\"data_offsets\":[0,8]},\"a\\\"b\":{\"dtype\":"
                                 "\"F32\",\"shape\":[1],\"data_offsets\":[8,12]},"
                                 "\"b\":{\"dtype\":\"F32\",\"shape\":[2,1],\"data_offsets\":[12,20]}}";
    static const char body[] = "\5\0\0\0\0\0\0\0" "\0\0\200\077" "\0\0\200\077\0\0\0\100";
    unsigned char b[512];
    struct err e = {0};
    ck_assert_msg(!file_write("w.safetensors", 3, entries, value_get, NULL, &e), "%s", e.text);
    FILE *f = fopen("w.safetensors", "rb");
    size_t n = fread(b, 1, sizeof b, f), padded = (sizeof header - 1 + 7) / 8 * 8;
    fclose(f);
    ck_assert_uint_eq(n, 8 + padded + 20);
    ck_assert_mem_eq(b, (&(uint64_t){padded}), 8);
    ck_assert_mem_eq(b + 8, header, sizeof header - 1);
    for (size_t i = 8 + sizeof header - 1; i < 8 + padded; i++) ck_assert_uint_eq(b[i], ' ');
    ck_assert_mem_eq(b + 8 + padded, body, 20);
}
END_TEST

START_TEST(reads_what_it_writes)
{
    struct err e = {0};
    float x[2];
    int64_t n;
    ck_assert_int_eq(file_write("w.safetensors", 3, entries, value_get, NULL, &e), 0);
    struct st *s = st_open("w.safetensors", &e);
    ck_assert_msg(s != NULL, "%s", e.text);
    ck_assert_int_eq(s->n, 3);
    int b = st_find(s, "b"), k = st_find(s, "n");
    ck_assert_str_eq(s->t[b].dtype, "F32");
    ck_assert(shape_equal(&s->t[b].shape, &entries[0].shape) && s->t[k].shape.n == 0);
    ck_assert_int_eq(st_read(s, b, x, &e) | st_read(s, k, &n, &e), 0);
    ck_assert(x[0] == 1 && x[1] == 2 && n == 5);
    ck_assert_int_eq(st_find(s, "c"), -1);
    ck_assert_int_eq(truncate("w.safetensors", (off_t)s->size - 3), 0);
    ck_assert_int_eq(st_read(s, b, x, &e), -1);
    expect(&e, 65, "the file ends here, 3 bytes too early");
    st_close(s);
}
END_TEST

START_TEST(a_failed_write_leaves_the_old_file)
{
    struct err e = {0};
    int lost = 2;
    put("w.safetensors", "old", 3);
    ck_assert_int_eq(file_write("w.safetensors", 3, entries, value_get, &lost, &e), -1);
    expect(&e, E_DEVICE, "tensor 2 is lost");
    struct stat info;
    ck_assert(!stat("w.safetensors", &info) && info.st_size == 3);
    e = (struct err){0};
    ck_assert_int_eq(file_write("none/w.safetensors", 3, entries, value_get, NULL, &e), -1);
    expect(&e, 73, "none/w.safetensors: cannot create: No such file");
}
END_TEST

/* ---- reading --------------------------------------------------------------------------------- */

#define T(name, type, shape, range) \
    "\"" name "\":{\"dtype\":\"" type "\",\"shape\":" shape ",\"data_offsets\":" range "}"
static const struct { const char *header; size_t data; } good[] = {
    {"{}", 0},
    {"{}      ", 0},
    {"{" T("a", "F32", "[2]", "[0,8]") "}", 8},
    {"{" T("b", "F16", "[1]", "[8,10]") "," T("a", "F32", "[2]", "[0,8]") "," T("z", "F32", "[0,3]", "[8,8]") "," T(
         "e", "F64", "[0]", "[10,10]") "}",
     10},
    {"{\"__metadata__\":{\"format\":\"pt\"}," T("a", "BOOL", "[]", "[0,1]") "}", 1},
    {"{" T("a", "BF16", "[1]", "[0,2]") "," T("b", "I16", "[1]", "[2,4]") "," T("c", "I8", "[1]", "[4,5]") "," T(
         "d", "U8", "[1]", "[5,6]") "," T("e", "I32", "[1]", "[6,10]") "}",
     10},
};

START_TEST(reads_what_is_legal)
{
    struct err e = {0};
    st_put("g.safetensors", good[_i].header, good[_i].data);
    struct st *s = st_open("g.safetensors", &e);
    ck_assert_msg(s != NULL, "%s", e.text);
    for (int i = 0; i < s->n; i++) {
        unsigned char b[8];
        ck_assert_int_eq(st_read(s, i, b, &e), 0);
        for (uint64_t k = 0; k < s->t[i].end - s->t[i].begin; k++)
            ck_assert_uint_eq(b[k], s->t[i].begin - 8 - strlen(good[_i].header) + k);
    }
    st_close(s);
}
END_TEST

static const struct { const char *header; size_t data; const char *text; } bad[] = {
    {"", 0, "offset 8: the header does not begin with {"},
    {" {}", 0, "offset 8: the header does not begin with {"},
    {"[]", 0, "offset 8: the header does not begin with {"},
    {"{}\n", 0, "offset 10: the header ends with neither } nor spaces"},
    {"{}x", 0, "offset 10: the header ends with neither } nor spaces"},
    {"{}}", 0, "line 1 column 3: end of file expected"},
    {"{\"a\":}", 0, "line 1 column 6: "},
    {"{\"a\xff\":1}", 0, "unable to decode byte 0xff"},
    {"{\"a\n\":1}", 0, "unexpected newline"},
    {"{" T("a", "F32", "[2]", "[0,8]") "," T("a", "F32", "[2]", "[0,8]") "}", 8, "duplicate object key"},
    {"{\"a\":{\"dtype\":\"F32\",\"dtype\":\"F32\",\"shape\":[2],\"data_offsets\":[0,8]}}", 8, "duplicate object key"},
    {"{\"a\\u0000b\":{}}", 0, "NUL byte"},
    {"{\"a\\n\":{}}", 0, "offset 8: a tensor's name has control characters"},
    {"{\"a\":[]}", 0, "tensor \"a\": expected dtype, shape and data_offsets"},
    {"{\"a\":{\"dtype\":\"F32\",\"shape\":[2]}}", 8, "tensor \"a\": expected dtype, shape and data_offsets"},
    {"{\"a\":{\"dtype\":\"F32\",\"shape\":[2],\"data_offsets\":[0,8],\"x\":1}}", 8, "and nothing else"},
    {"{" T("a", "F33", "[2]", "[0,8]") "}", 8, "tensor \"a\": unsupported dtype"},
    {"{" T("a", "F4", "[2]", "[0,1]") "}", 1, "tensor \"a\": unsupported dtype"},
    {"{" T("a", "F32", "[-2]", "[0,8]") "}", 8, "a dimension is not a whole number"},
    {"{" T("a", "F32", "[2.0]", "[0,8]") "}", 8, "a dimension is not a whole number"},
    {"{" T("a", "F32", "[99999999999999999999]", "[0,8]") "}", 8, "too big integer"},
    {"{" T("a", "F32", "[1,1,1,1,1,1,2]", "[0,8]") "}", 8, "too many dimensions"},
    {"{" T("a", "F32", "[2]", "[0]") "}", 8, "data_offsets are not a range"},
    {"{" T("a", "F32", "[2]", "[8,0]") "}", 8, "data_offsets are not a range"},
    {"{" T("a", "F32", "[2]", "[-8,0]") "}", 8, "data_offsets are not a range"},
    {"{" T("a", "F32", "[2]", "[0,8.0]") "}", 8, "data_offsets are not a range"},
    {"{" T("a", "F32", "[2]", "[0,12]") "}", 8, "its data is beyond the end of the file"},
    {"{" T("a", "F32", "[2]", "[0,9223372036854775807]") "}", 8, "its data is beyond the end of the file"},
    {"{" T("a", "F32", "[2]", "[0,4]") "}", 4, "shape and data_offsets disagree"},
    {"{" T("a", "F32", "[4611686018427387904,2]", "[0,8]") "}", 8, "shape and data_offsets disagree"},
    {"{" T("a", "F32", "[4611686018427387904,4,0]", "[0,8]") "}", 8, "shape and data_offsets disagree"},
    {"{" T("a", "F32", "[1]", "[4,8]") "}", 8, "unused bytes between tensors"},
    {"{" T("a", "F32", "[1]", "[0,4]") "," T("b", "F32", "[1]", "[8,12]") "}", 12, "unused bytes between tensors"},
    {"{" T("a", "F32", "[2]", "[0,8]") "," T("b", "F32", "[1]", "[4,8]") "}", 8, "two tensors overlap"},
    {"{" T("a", "F32", "[1]", "[0,4]") "}", 5, "bytes after the last tensor"},
    {"{}", 1, "bytes after the last tensor"},
    {"{\"__metadata__\":{\"a\":1}}", 0, "__metadata__ has a value that is not text"},
    {"{\"__metadata__\":[]}", 0, "__metadata__ is not an object"},
};

START_TEST(refuses_what_is_not)
{
    st_put("b.safetensors", bad[_i].header, bad[_i].data);
    open_bad("b.safetensors", 65, "b.safetensors: offset ");
    open_bad("b.safetensors", 65, bad[_i].text);
}
END_TEST

START_TEST(refuses_bad_files)
{
    static const struct { const char *bytes; size_t n; const char *text;
    } all[] = {
        {"", 0, "b: the file is empty"},
        {"\2\0\0\0\0\0\0", 7, "b: offset 7: the file ends here"},
        {"\3\0\0\0\0\0\0\0{}", 10,
         "b: offset 0: not a safetensors file, or a truncated one: the header claims to be longer than the file"},
        {"\1\341\365\5\0\0\0\0{}", 10, "longer than 100 MB"},
        {"\377\377\377\377\377\377\377\377{}", 10, "longer than 100 MB"},
        {"\2\0\0\0\0\0\0\200{}", 10, "longer than 100 MB"},
    };
    for (size_t i = 0; i < sizeof all / sizeof *all; i++) {
        put("b", all[i].bytes, all[i].n);
        open_bad("b", 65, all[i].text);
    }
    st_put_n("b", "{}\0}", 4, 0);
    open_bad("b", 65, "b: offset ");
    open_bad("none", 66, "none: No such file");
    ck_assert_int_eq(mkdir("folder", 0777), 0);
    open_bad("folder", 65, "folder: is a directory");
    open_bad("/dev/zero", 65, "not a regular file");
}
END_TEST

START_TEST(reads_an_independent_writer)
{
    struct err e = {0};
    float x[4];
    if (system("/usr/bin/python3 -c 'import numpy' 2>/dev/null")) {
        fprintf(stderr, "SKIPPED: python3-numpy is not installed\n");
        return;
    }
    ck_assert_int_eq(
        system("/usr/bin/python3 -c 'import json, struct, numpy as np; a = np.arange(4, dtype=np.float32);"
               "h = json.dumps({\"w\": {\"dtype\": \"F32\", \"shape\": [2, 2], \"data_offsets\": [0, 16]}}).encode();"
               "open(\"p.safetensors\", \"wb\").write(struct.pack(\"<Q\", len(h)) + h + a.tobytes())'"),
        0);
    struct st *s = st_open("p.safetensors", &e);
    ck_assert_msg(s != NULL, "%s", e.text);
    ck_assert_int_eq(st_read(s, st_find(s, "w"), x, &e), 0);
    for (int i = 0; i < 4; i++) ck_assert(x[i] == (float)i);
    st_close(s);
}
END_TEST

/* ---- folders --------------------------------------------------------------------------------- */

static void folder_bad(const char *path, int code, const char *part)
{
    struct err e = {0};
    struct st **f;
    int n;
    ck_assert_int_eq(st_open_all(path, &f, &n, &e), -1);
    ck_assert(!f && !n);
    expect(&e, code, part);
}

static int folder_open(const char *path)
{
    struct err e = {0};
    struct st **f;
    int n;
    ck_assert_msg(!st_open_all(path, &f, &n, &e), "%s", e.text);
    for (int i = 0; i < n; i++) st_close(f[i]);
    free(f);
    return n;
}

static void index_put(const char *text) { put("m/model.safetensors.index.json", text, strlen(text)); }

START_TEST(folders_with_one_file_and_with_shards)
{
    ck_assert_int_eq(mkdir("m", 0777), 0);
    folder_bad("m", 66, "m: holds none of model.safetensors, model.safetensors.index.json and weights.safetensors");
    folder_bad("none", 66, "none: No such file");
    ck_assert_int_eq(mkdir("run", 0777), 0);              /* a run directory */
    st_put("run/weights.safetensors", "{" T("a", "F32", "[2]", "[0,8]") "}", 8);
    ck_assert_int_eq(folder_open("run"), 1);
    st_put("m/one.safetensors", "{" T("a", "F32", "[2]", "[0,8]") "}", 8);
    st_put("m/two.safetensors", "{" T("b", "U8", "[2]", "[0,2]") "," T("c", "U8", "[2]", "[2,4]") "}", 4);
    index_put("{\"metadata\":{\"total_size\":12},\"weight_map\":{\"a\":\"one.safetensors\",\"b\":\"two.safetensors\","
              "\"c\":\"two.safetensors\"}}");
    ck_assert_int_eq(folder_open("m"), 2);
    ck_assert_int_eq(folder_open("m/one.safetensors"), 1);
    st_put("m/model.safetensors", "{" T("a", "F32", "[2]", "[0,8]") "}", 8);
    ck_assert_int_eq(folder_open("m"), 1);
}
END_TEST

START_TEST(folders_that_disagree)
{
    static const struct { const char *index; int code; const char *text;
    } all[] = {
        {"", 65, "m/model.safetensors.index.json: offset 0: line 1"},
        {"{\"weight_map\":[]}", 65, "there is no weight_map"},
        {"{\"weight_map\":{}}", 65, "there is no weight_map"},
        {"{\"weight_map\":{\"a\":1}}", 65, "a shard's name is not text"},
        {"{\"weight_map\":{\"a\":\"../m/one\"}}", 65, "shard name \"../m/one\" is not a plain file name"},
        {"{\"weight_map\":{\"a\":\"/etc/passwd\"}}", 65, "shard name \"/etc/passwd\" is not a plain file name"},
        {"{\"weight_map\":{\"a\":\"..\"}}", 65, "is not a plain file name"},
        {"{\"weight_map\":{\"a\":\"\"}}", 65, "is not a plain file name"},
        {"{\"weight_map\":{\"a\":\"x\\ny\"}}", 65, "is not a plain file name"},
        {"{\"weight_map\":{\"a\":\"three\"}}", 66, "m/three: No such file"},
        {"{\"weight_map\":{\"a\":\"one\",\"a\":\"one\"}}", 65, "duplicate object key"},
        {"{\"weight_map\":{\"a\":\"one\",\"b\":\"two\"}}", 65,
         "m/two: offset 8: tensor \"c\" is in this shard, but not in the index"},
        {"{\"weight_map\":{\"a\":\"one\",\"b\":\"one\",\"c\":\"two\"}}", 65,
         "tensor \"b\" is in this shard, but not in the index"},
        {"{\"weight_map\":{\"a\":\"one\",\"b\":\"two\",\"c\":\"two\",\"d\":\"two\"}}", 65,
         "offset 0: tensor \"d\" is not in two"},
    };
    ck_assert(!mkdir("m", 0777) || !unlink("m/model.safetensors"));
    st_put("m/one", "{" T("a", "F32", "[2]", "[0,8]") "}", 8);
    st_put("m/two", "{" T("b", "U8", "[2]", "[0,2]") "," T("c", "U8", "[2]", "[2,4]") "}", 4);
    for (size_t i = 0; i < sizeof all / sizeof *all; i++) {
        index_put(all[i].index);
        folder_bad("m", all[i].code, all[i].text);
    }
}
END_TEST

/* ---- other types ----------------------------------------------------------------------------- */

/* A file of one tensor "x" with n elements. */
static struct st *floats_put(const char *type, const void *x, size_t n, size_t bytes)
{
    struct text t = {0};
    struct err e = {0};
    char header[200];
    uint64_t length =
        (uint64_t)snprintf(header, sizeof header, "{\"x\":{\"dtype\":\"%s\",\"shape\":[%zu],\"data_offsets\":[0,%zu]}}",
                           type, n, n * bytes);
    text_add_bytes(&t, &length, 8);
    text_add(&t, "%s", header);
    text_add_bytes(&t, x, n * bytes);
    put("f.safetensors", t.s, t.n);
    text_free(&t);
    struct st *s = st_open("f.safetensors", &e);
    ck_assert_msg(s != NULL, "%s", e.text);
    return s;
}

/* All 65,536 of them, against the formula of IEEE 754: subnormals, both zeros, infinities and NaNs among them. */
START_TEST(halves_keep_their_value)
{
    static uint16_t half[65536];
    static float x[65536];
    struct err e = {0};
    for (int i = 0; i < 65536; i++) half[i] = (uint16_t)i;
    struct st *s = floats_put("F16", half, 65536, 2);
    ck_assert(st_is_float(&s->t[0]) && !st_read_float(s, 0, x, &e));
    for (int i = 0; i < 65536; i++) {
        int exponent = i >> 10 & 31, fraction = i & 1023;
        double want = exponent ? ldexp(1024 + fraction, exponent - 25) : ldexp(fraction, -24);
        uint32_t bits;
        memcpy(&bits, &x[i], sizeof bits);
        ck_assert_int_eq(bits >> 31, i >> 15);
        if (exponent < 31) ck_assert_msg(fabs((double)x[i]) == want, "%x: %a", i, x[i]);
        /* a NaN keeps what it carries */
        else ck_assert_uint_eq(bits & 0x7fffffff, 0x7f800000 | (uint32_t)fraction << 13);
    }
    st_close(s);
    s = floats_put("BF16", half, 65536, 2);
    ck_assert(st_is_float(&s->t[0]) && !st_read_float(s, 0, x, &e));
    for (int i = 0; i < 65536; i++) ck_assert_int_eq(memcmp(&x[i], &(uint32_t){(uint32_t)i << 16}, 4), 0);
    st_close(s);
}
END_TEST

START_TEST(doubles_are_rounded)
{
    static const double given[] = {1, -0.1, 1e-46, 0x1.fffffefffffffp127, INFINITY, -INFINITY};
    static const float want[] = {1, -0.1f, 0, 0x1.fffffep127f, INFINITY, -INFINITY};
    static const float plain[] = {3, 4};
    float x[6];
    struct err e = {0};
    struct st *s = floats_put("F64", given, 6, 8);
    ck_assert_msg(!st_read_float(s, 0, x, &e), "%s", e.text);
    ck_assert_mem_eq(x, want, sizeof want);
    st_close(s);
    s = floats_put("F32", plain, 2, 4);
    ck_assert(!st_read_float(s, 0, x, &e) && !memcmp(x, plain, sizeof plain));
    st_close(s);
    s = floats_put("F64", (double[]){1, -1e39}, 2, 8);
    ck_assert_int_eq(st_read_float(s, 0, x, &e), -1);
    expect(&e, 65, "f.safetensors: tensor x: -1e+39 is too large for F32");
    st_close(s);
    s = floats_put("I32", plain, 2, 4);
    ck_assert(!st_is_float(&s->t[0]));
    st_close(s);
}
END_TEST

/* ---- what a network wants --------------------------------------------------------------------- */

static struct st_entry tensors[12];
static struct weights_want want_make(int n)
{
    static char names[12][8];
    for (int i = 0; i < n; i++) {
        snprintf(names[i], sizeof names[i], "p%d", i);
        tensors[i] = (struct st_entry){names[i], F32, {1, {2}}};
    }
    tensors[n - 1].type = I64;
    tensors[n - 1].shape.n = 0;
    return (struct weights_want){tensors, n, NULL};
}

static int zero_get(void *ctx, int i, void *buf, const void **at, struct err *e)
{
    (void)ctx, (void)e, (void)at;
    memset(buf, i, 8);
    return 0;
}

START_TEST(a_graph_finds_its_tensors)
{
    struct err e = {0};
    const struct weights_want w = want_make(12);
    struct weights_at at[12];
    unsigned char b[8];
    ck_assert_int_eq(file_write("g.safetensors", 12, tensors, zero_get, NULL, &e), 0);
    struct st *s = st_open("g.safetensors", &e);
    ck_assert_msg(s && !weights_match("g.safetensors", &w, &s, 1, at, NULL, &e), "%s", e.text);
    for (int i = 0; i < 12; i++) {
        ck_assert_int_eq(st_read(at[i].file, at[i].tensor, b, &e), 0);
        ck_assert_uint_eq(b[7], i);
    }
    st_close(s);
}
END_TEST

START_TEST(a_graph_lists_what_does_not_fit)
{
    struct err e = {0};
    struct weights_want w = want_make(3);
    struct weights_at at[12];
    st_put(
        "g.safetensors",
        "{" T("p0", "F32", "[1]", "[0,4]") "," T("p2", "F32", "[2]", "[4,12]") "," T("q", "U8", "[0]", "[12,12]") "}",
        12);
    struct st *s = st_open("g.safetensors", &e);
    ck_assert_int_eq(weights_match("g.safetensors", &w, &s, 1, at, NULL, &e), -1);
    ck_assert_int_eq(e.code, 65);
    ck_assert_str_eq(e.text, "g.safetensors: tensor p0 has shape 1, the model has 2; tensor p1 is missing; tensor p2 "
                             "has type F32, the model has I64; "
                             "tensor q is unexpected: the model has none");
    w = want_make(12);
    tensors[0].shape.d[0] = 1;
    e = (struct err){0};
    ck_assert_int_eq(weights_match("g.safetensors", &w, &s, 1, at, NULL, &e), -1);
    expect(&e, 65, "tensor p1 is missing; tensor p3 is missing; ");
    expect(&e, 65, "tensor p9 is missing; and 3 more");
    st_close(s);
}
END_TEST

/* What wrappers put before every name is passed over; before some of them only, or before a network's own name, it is
 * none. */
START_TEST(a_graph_finds_wrapped_tensors)
{
    static const struct { const char *name[2], *own[2], *wrong;
    } of[] = {
        {{"module.a", "module.b"}, {"a", "b"}, NULL},
        {{"_orig_mod.module.a", "_orig_mod.module.b"}, {"a", "b"}, NULL},
        {{"module._orig_mod.a", "module._orig_mod.b"}, {"a", "b"}, NULL},
        {{"model.a", "model.b"}, {"a", "b"}, NULL},
        {{"module.a", "module.b"}, {"module.a", "module.b"}, NULL},
        {{"module.model.a", "module.model.b"}, {"model.a", "model.b"}, NULL},
        {{"module.a", "b"},
         {"a", "b"},
         "g.safetensors: tensor a is missing; tensor module.a is unexpected: the model has none"},
        {{"net.a", "net.b"},
         {"a", "b"},
         "tensor a is missing; tensor b is missing; tensor net.a is unexpected: the model has none; tensor net.b is"},
        {{"module.a", "module.c"},
         {"a", "b"},
         "tensor b is missing; tensor module.c is unexpected: the model has none"},
        {{"module.c", "module.d"},
         {"a", "b"},
         "tensor a is missing; tensor b is missing; tensor module.c is unexpected"},
    };
    for (size_t i = 0; i < sizeof of / sizeof *of; i++) {
        char header[300];
        struct err e = {0};
        struct weights_at at[2];
        const struct st_entry own[2] = {{of[i].own[0], F32, {1, {2}}}, {of[i].own[1], F32, {1, {2}}}};
        const struct weights_want w = {own, 2, NULL};
        snprintf(header, sizeof header,
                 "{\"%s\":{\"dtype\":\"F32\",\"shape\":[2],\"data_offsets\":[0,8]},\"%s\":{\"dtype\":\"F16\",\"shape\":"
                 "[2],\"data_offsets\":[8,12]}}",
                 of[i].name[0], of[i].name[1]);
        st_put("g.safetensors", header, 12);
        struct st *s = st_open("g.safetensors", &e);
        int wrong = weights_match("g.safetensors", &w, &s, 1, at, NULL, &e);
        ck_assert_msg(!wrong == !of[i].wrong, "%zu: %s", i, e.text);
        if (wrong) expect(&e, 65, of[i].wrong);
        else ck_assert(at[0].tensor == st_find(s, of[i].name[0]) && at[1].tensor == st_find(s, of[i].name[1]));
        st_close(s);
    }
}
END_TEST

static void all(TCase *t)
{
    tcase_add_test(t, halves_keep_their_value);
    tcase_add_test(t, doubles_are_rounded);
    tcase_add_test(t, a_graph_finds_wrapped_tensors);
    tcase_add_test(t, writes_the_reference_bytes);
    tcase_add_test(t, reads_what_it_writes);
    tcase_add_test(t, a_failed_write_leaves_the_old_file);
    tcase_add_loop_test(t, reads_what_is_legal, 0, (int)(sizeof good / sizeof *good));
    tcase_add_loop_test(t, refuses_what_is_not, 0, (int)(sizeof bad / sizeof *bad));
    tcase_add_test(t, refuses_bad_files);
    tcase_add_test(t, reads_an_independent_writer);
    tcase_add_test(t, folders_with_one_file_and_with_shards);
    tcase_add_test(t, folders_that_disagree);
    tcase_add_test(t, a_graph_finds_its_tensors);
    tcase_add_test(t, a_graph_lists_what_does_not_fit);
}

int main(void) { return scratch_suite("safetensors", all); }
