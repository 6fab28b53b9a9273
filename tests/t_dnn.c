/* dnn.h over doubles of the libraries that compute what they are asked for (tests/gpu/dnn_fakes.h): values of all
 * passes against plain loops, choice of engines, kernel tables, measuring. Values are small integers, so all
 * comparisons use ==. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "backend/cuda/dnn.h"
#include "base/mem.h"
#include "base/rng.h"
#include "tests/gpu/dnn_fakes.h"
#include "tests/dnn_rig.h"

enum { MAX_WORK = 1 << 20 };
enum { NOTE_TENSOR_CORE = 1, NOTE_NONDETERMINISTIC = 16, COMPILED = 1 };

/* ---- values ----------------------------------------------------------------------------------------------------- */

static void array_is(const struct array *a, const float *want, const char *what)
{
    for (size_t i = 0; i < a->n; i++) {
        float have = a->type == DNN_BF16 ? fake_wide(((uint16_t *)a->p)[i]) : ((float *)a->p)[i];
        ck_assert_msg(have == want[i], "%s: element %zu is %g, want %g", what, i, (double)have, (double)want[i]);
    }
}

static size_t points(const int d[3]) { return (size_t)(d[0] * d[1] * d[2]); }

/* Adds one pass to out: channels last, weights [c_out][points][c_in / groups]. */
static void reference(const struct dnn_conv *c, enum dnn_pass pass, const float *x, const float *w, const float *y,
                      float *out)
{
    int per_in = c->c_in / c->groups, per_out = c->c_out / c->groups;
    for (int n = 0; n < c->n; n++)
    for (size_t o = 0; o < points(c->out); o++)
    for (size_t q = 0; q < points(c->kernel); q++) {
        int at[3], o3[3] = {(int)o / (c->out[1] * c->out[2]), (int)o / c->out[2] % c->out[1], (int)o % c->out[2]};
        int q3[3] = {(int)q / (c->kernel[1] * c->kernel[2]), (int)q / c->kernel[2] % c->kernel[1],
                     (int)q % c->kernel[2]};
        bool inside = true;
        for (int i = 0; i < 3; i++) {
            at[i] = o3[i] * c->stride[i] - c->pad[i] + q3[i] * c->dilation[i];
            inside &= at[i] >= 0 && at[i] < c->in[i];
        }
        if (!inside) continue;
        size_t in = (size_t)((at[0] * c->in[1] + at[1]) * c->in[2] + at[2]);
        for (int k = 0; k < c->c_out; k++)
        for (int j = 0; j < per_in; j++) {
            size_t ix = ((size_t)n * points(c->in) + in) * (size_t)c->c_in + (size_t)(k / per_out * per_in + j);
            size_t iw = ((size_t)k * points(c->kernel) + q) * (size_t)per_in + (size_t)j;
            size_t iy = ((size_t)n * points(c->out) + o) * (size_t)c->c_out + (size_t)k;
            if (pass == DNN_FORWARD) out[iy] += x[ix] * w[iw];
            else if (pass == DNN_DATA) out[ix] += y[iy] * w[iw];
            else out[iw] += x[ix] * y[iy];
        }
    }
}

#define CONV(samples, in_c, out_c, group, i, o, k, s, p, d) \
    {.n = samples, .c_in = in_c, .c_out = out_c, .groups = group, .in = i, .out = o, .kernel = k, .stride = s, \
     .pad = p, .dilation = d}
#define D(a, b, c) {a, b, c}
static const struct dnn_conv shapes[] = {
    CONV(2, 3, 4, 1, D(1, 7, 6), D(1, 4, 3), D(1, 3, 3), D(1, 2, 2), D(0, 1, 1), D(1, 1, 1)),
    CONV(1, 4, 6, 2, D(1, 6, 5), D(1, 6, 3), D(1, 3, 2), D(1, 1, 1), D(0, 1, 0), D(1, 1, 2)),
    CONV(2, 2, 3, 1, D(3, 4, 5), D(2, 4, 3), D(2, 3, 1), D(1, 1, 2), D(0, 1, 0), D(1, 1, 1)),
    CONV(2, 2, 2, 1, D(1, 1, 9), D(1, 1, 9), D(1, 1, 3), D(1, 1, 1), D(0, 0, 1), D(1, 1, 1)),
    CONV(2, 5, 3, 1, D(1, 3, 4), D(1, 3, 4), D(1, 1, 1), D(1, 1, 1), D(0, 0, 0), D(1, 1, 1)),
};
static const struct dnn_conv any =
    CONV(1, 2, 2, 1, D(1, 4, 4), D(1, 4, 4), D(1, 3, 3), D(1, 1, 1), D(0, 1, 1), D(1, 1, 1));
enum { N_SHAPES = sizeof shapes / sizeof *shapes };

static void conv_is_right(struct dnn *d, struct dnn_conv c, enum dnn_pass pass, bool acc, int engine)
{
    size_t nx = (size_t)c.n * points(c.in) * (size_t)c.c_in, ny = (size_t)c.n * points(c.out) * (size_t)c.c_out;
    size_t nw = (size_t)c.c_out * points(c.kernel) * (size_t)(c.c_in / c.groups);
    struct array x = array_new(c.type, nx, 1), y = array_new(c.type, ny, 3);
    struct array w = array_new(pass == DNN_WEIGHTS ? DNN_F32 : c.type, nw, 2);
    struct array *out = pass == DNN_FORWARD ? &y : pass == DNN_DATA ? &x : &w;
    struct array *a = pass == DNN_DATA ? &y : &x, *b = pass == DNN_WEIGHTS ? &y : &w;
    float *want = mem_alloc(out->n * sizeof *want);
    struct dnn_plan *p;
    struct text line = {0};
    struct err e = {0};
    if (acc) memcpy(want, out->v, out->n * sizeof *want);
    reference(&c, pass, x.v, w.v, y.v, want);
    ok(dnn_conv_plan(d, &c, &(struct dnn_ask){pass, acc, MAX_WORK}, &p, &e), &e);
    dnn_plan_text(p, &line);
    char *work = mem_alloc(dnn_plan_work(p) + 8);
    ck_assert(dnn_plan_work(p) <= MAX_WORK);
    work[dnn_plan_work(p)] = 42;
    ok(dnn_run(d, p, &(struct dnn_operands){a->p, b->p, out->p, work, NULL}, &e), &e);
    ck_assert_msg(work[dnn_plan_work(p)] == 42, "%s: writes behind its workspace", line.s);
    ck_assert_msg(fake_ran == engine, "%s: engine %d ran, want %d", line.s, fake_ran, engine);
    array_is(out, want, line.s);
    free(work);
    free(want);
    text_free(&line);
    array_free(&x); array_free(&w); array_free(&y);
}

START_TEST(convolutions)
{
    int live = fake_live;
    fakes_reset();
    fake_blas = false;
    struct dnn *d = opened(NULL);
    for (int type = DNN_F32; type <= DNN_BF16; type++)
        for (int pass = DNN_FORWARD; pass <= DNN_WEIGHTS; pass++)
            for (int acc = 0; acc <= (pass != DNN_FORWARD); acc++) {
                struct dnn_conv c = shapes[_i];
                c.type = type;
                conv_is_right(d, c, pass, acc, 40);
            }
    dnn_close(d);
    ck_assert_int_eq(fake_live, live);
}
END_TEST

/* Weight gradients in bfloat16 go to cuBLASLt where they are products, and are added in float within a graph where
 * the kernel table says so. */
START_TEST(weight_gradients)
{
    int live = fake_live;
    fakes_reset();
    struct dnn_conv one = shapes[4], wide = shapes[0];
    one.type = wide.type = DNN_BF16;
    struct dnn *d = opened(NULL);
    for (int acc = 0; acc < 2; acc++) {
        conv_is_right(d, one, DNN_WEIGHTS, acc, -1);
        conv_is_right(d, wide, DNN_WEIGHTS, acc, 40);
    }
    one.type = DNN_F32;
    conv_is_right(d, one, DNN_WEIGHTS, true, 40);
    dnn_close(d);
    d = opened("bf16 weights n2 c3>4/1 1x7x6>1x4x3 k1x3x3 s1x2x2 p0x1x1 d1x1x1: add 40\n"
               "bf16 weights+ n2 c3>4/1 1x7x6>1x4x3 k1x3x3 s1x2x2 p0x1x1 d1x1x1: add 40 2=0");
    for (int acc = 0; acc < 2; acc++) conv_is_right(d, wide, DNN_WEIGHTS, acc, 40);
    dnn_close(d);
    ck_assert_int_eq(fake_live, live);
}
END_TEST

/* Input gradients are added by the library; where no engine of it adds, beside the output and by an own kernel, which
 * rounds once more. */
START_TEST(input_gradients)
{
    int live = fake_live;
    for (int adds_not = 0; adds_not < 2; adds_not++) {
        struct err e = {0};
        struct dnn_plan *p;
        struct text line = {0};
        struct dnn_conv c = shapes[0];
        fakes_reset();
        fake_engine[0].adds_not = adds_not;
        c.type = DNN_BF16;
        struct dnn *d = opened(NULL);
        for (int acc = 0; acc < 2; acc++) conv_is_right(d, c, DNN_DATA, acc, 40);
        ok(dnn_conv_plan(d, &c, &(struct dnn_ask){DNN_DATA, true, MAX_WORK}, &p, &e), &e);
        dnn_plan_text(p, &line);
        ck_assert_msg(strstr(line.s, adds_not ? "cuDNN apart 40" : "cuDNN plain 40"), "%s", line.s);
        size_t apart = (size_t)c.n * points(c.in) * (size_t)c.c_in * 2;
        ck_assert_int_eq(dnn_plan_work(p) >= apart, adds_not);
        text_free(&line);
        dnn_close(d);
    }
    ck_assert_int_eq(fake_live, live);
}
END_TEST

/* y with rows of `line` values becomes rows of `out`, or back; the rest of a row stays. */
static void rows_move(float *to, const float *from, int n, int out, int to_line, int from_line)
{
    for (int i = 0; i < n * out; i++) to[i / out * to_line + i % out] = from[i / out * from_line + i % out];
}

static void linear_is_right(struct dnn *d, const struct dnn_linear *l, enum dnn_pass pass, bool acc)
{
    struct dnn_conv c = {.type = l->type, .n = l->n, .c_in = l->in, .c_out = l->out, .groups = 1, .in = D(1, 1, 1),
                         .out = D(1, 1, 1), .kernel = D(1, 1, 1), .stride = D(1, 1, 1), .dilation = D(1, 1, 1)};
    const int line = l->line ? l->line : l->out;
    struct array x = array_new(l->type, (size_t)(l->n * l->in), 1);
    struct array y = array_new(l->wide ? DNN_F32 : l->type, (size_t)(l->n * line), 3);
    struct array w = array_new(pass == DNN_WEIGHTS ? DNN_F32 : l->type, (size_t)(l->in * l->out), 2);
    struct array bias = array_new(DNN_F32, (size_t)l->out, 4);
    struct array *out = pass == DNN_FORWARD ? &y : pass == DNN_DATA ? &x : &w;
    struct array *a = pass == DNN_DATA ? &y : &x, *b = pass == DNN_WEIGHTS ? &y : &w;
    float *want = mem_alloc((y.n + out->n) * sizeof *want), *dense = mem_alloc((y.n + out->n) * sizeof *dense);
    bool add = pass == DNN_FORWARD && l->bias;
    struct dnn_plan *p;
    struct err e = {0};
    for (size_t i = 0; i < out->n; i++) want[i] = acc ? out->v[i] : add ? bias.v[i % (size_t)l->out] : 0;
    rows_move(dense, y.v, l->n, l->out, l->out, line);
    reference(&c, pass, x.v, w.v, dense, want);
    if (pass == DNN_FORWARD) {
        memcpy(dense, want, out->n * sizeof *want);
        memcpy(want, y.v, out->n * sizeof *want);
        rows_move(want, dense, l->n, l->out, line, l->out);
    }
    ok(dnn_linear_plan(d, l, &(struct dnn_ask){pass, acc, MAX_WORK}, &p, &e), &e);
    char *work = mem_alloc(dnn_plan_work(p) + 1);
    ok(dnn_run(d, p, &(struct dnn_operands){a->p, b->p, out->p, work, add ? bias.p : NULL}, &e), &e);
    array_is(out, want, "linear");
    free(work);
    free(want);
    free(dense);
    array_free(&x); array_free(&w); array_free(&y); array_free(&bias);
}

/* By cuBLASLt, with the bias and without, and by cuDNN where that has nothing. */
START_TEST(linears)
{
    int live = fake_live;
    fakes_reset();
    fake_blas = _i < 2;
    fake_blas_bias = _i < 1;
    struct dnn *d = opened(NULL);
    for (int type = DNN_F32; type <= DNN_BF16; type++)
        for (int pass = DNN_FORWARD; pass <= DNN_WEIGHTS; pass++)
            for (int acc = 0; acc <= (pass != DNN_FORWARD); acc++) {
                struct dnn_linear l = {type, 3, 5, 7, acc || pass};
                linear_is_right(d, &l, pass, acc);
                l.bias = true;
                linear_is_right(d, &l, pass, acc);
                l.bias = false;
                l.line = 9;
                l.wide = pass == DNN_FORWARD;
                struct dnn_plan *p;
                struct err e = {0};
                if (fake_blas) linear_is_right(d, &l, pass, acc);
                else ck_assert_int_eq(dnn_linear_plan(d, &l, &(struct dnn_ask){pass, acc, MAX_WORK}, &p, &e), -1);
                ck_assert(fake_blas || e.code == 69);
            }
    dnn_close(d);
    ck_assert_int_eq(fake_live, live);
}
END_TEST

/* ---- choice ----------------------------------------------------------------------------------------------------- */

/* The engine that a plan took; -1: there is none. */
static int taken(struct dnn *d, enum dnn_type type, size_t max_work, struct err *e)
{
    struct dnn_conv c = any;
    struct dnn_plan *p;
    struct text line = {0};
    int engine;
    c.type = type;
    if (dnn_conv_plan(d, &c, &(struct dnn_ask){DNN_FORWARD, false, max_work}, &p, e)) return -1;
    dnn_plan_text(p, &line);
    ck_assert_msg(sscanf(strstr(line.s, "plain ") + 6, "%d", &engine) == 1, "%s", line.s);
    text_free(&line);
    return engine;
}

START_TEST(engines)
{
    struct err e = {0}, small = {0};
    fakes_reset();
    fake_engine[0] = (struct fake_engine){.index = 10, .notes = NOTE_NONDETERMINISTIC};
    fake_engine[1] = (struct fake_engine){.index = 11, .broken = true};
    fake_engine[2] = (struct fake_engine){.index = 12, .notes = NOTE_TENSOR_CORE, .work = 5000};
    fake_engine[3] = (struct fake_engine){.index = 13, .work = 2000};
    fake_engine[4] = (struct fake_engine){.index = 14};
    fake_n_engines = 4;
    struct dnn *d = opened(NULL);
    ck_assert_int_eq(taken(d, DNN_BF16, MAX_WORK, &e), 12);
    ck_assert_int_eq(taken(d, DNN_TF32, MAX_WORK, &e), 12);
    ck_assert_int_eq(taken(d, DNN_F32, MAX_WORK, &e), 13);
    ck_assert_int_eq(taken(d, DNN_BF16, 4000, &e), 13);
    ck_assert_int_eq(taken(d, DNN_BF16, 1000, &small), -1);
    ck_assert_msg(small.code == E_DEVICE && strstr(small.text, "bf16 forward n1 c2>2/1 1x4x4>1x4x4 k1x3x3") &&
                  strstr(small.text, "workspace"), "%s", small.text);
    fake_n_fallback = 1;
    ck_assert_int_eq(taken(d, DNN_BF16, 1000, &e), 14);
    ck_assert_msg(!e.code, "%s", e.text);
    dnn_close(d);
}
END_TEST

/* A table names engines; those that cannot be had are errors that say so. */
START_TEST(tables)
{
    static const char key[] = "fp32 forward n1 c2>2/1 1x4x4>1x4x4 k1x3x3 s1x1x1 p0x1x1 d1x1x1: ";
    static const char *const wrong[] = {"apart 41", "add 41", "cublaslt", "plain 99", "plain 42"};
    struct text t = {0};
    struct err good = {0};
    fakes_reset();
    fake_engine[1] = (struct fake_engine){.index = 41};
    fake_engine[2] = (struct fake_engine){.index = 42, .broken = true};
    fake_n_engines = 3;
    text_add(&t, "tf32%splain 40\n%splain 41 2=1\n", key + 4, key);
    struct dnn *d = opened(t.s);
    ck_assert_int_eq(taken(d, DNN_F32, MAX_WORK, &good), 41);
    ck_assert_int_eq(taken(d, DNN_TF32, MAX_WORK, &good), 40);
    ck_assert_int_eq(taken(d, DNN_BF16, MAX_WORK, &good), 40);
    dnn_close(d);
    for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++) {
        struct err e = {0};
        text_free(&t);
        text_add(&t, "%s%s\n", key, wrong[i]);
        d = opened(t.s);
        ck_assert_int_eq(taken(d, DNN_F32, MAX_WORK, &e), -1);
        ck_assert_msg(e.code == E_DATA && strstr(e.text, "kernel table: fp32 forward n1 c2>2/1") &&
                          strstr(e.text, "measure a new"),
                      "%s: %s", wrong[i], e.text);
        dnn_close(d);
    }
    struct err large = {0};                              /* its workspace was larger when the table was made */
    struct err lost = {0};                               /* that is not the table's fault */
    fake_engine[1].lost = true;
    text_free(&t);
    text_add(&t, "%splain 41\n", key);
    d = opened(t.s);
    ck_assert_int_eq(taken(d, DNN_F32, MAX_WORK, &lost), -1);
    ck_assert_msg(lost.code == E_DEVICE && strstr(lost.text, "fp32 forward n1") && !strstr(lost.text, "measure a new"),
                  "%s", lost.text);
    dnn_close(d);
    text_free(&t);
    text_add(&t, "%splain 40\n", key);
    d = opened(t.s);
    ck_assert_int_eq(taken(d, DNN_F32, 300, &large), -1);
    ck_assert_msg(large.code == E_DATA && strstr(large.text, "workspace") && strstr(large.text, "measure a new"), "%s",
                  large.text);
    dnn_close(d);
    text_free(&t);
}
END_TEST

/* What is no table, or not of this device and these libraries, is refused before anything is planned. */
START_TEST(bad_tables)
{
    static const char *const wrong[] = {
        "junk", "\n", "kernels of Fake GPU, cuDNN 9.19.0, cuBLASLt 13.1.0",
            "kernels of Fake GPU, cuDNN 9.18.0, cuBLASLt 13.1.0\n",
        "kernels of NVIDIA H200, cuDNN 9.19.0, cuBLASLt 13.1.0\n", HEAD HEAD, HEAD "k", HEAD "\n", HEAD "k:",
            HEAD "k: ",
        HEAD ": plain 1", HEAD "k: plain", HEAD "k: plain ", HEAD "k: plain x", HEAD "k: plain 41 2",
            HEAD "k: plain 41 2=",
        HEAD "k: plain 41 2=1 ", HEAD "k: plain 41 999=1", HEAD "k: plain 41 -2=1", HEAD "k: plain -1",
            HEAD "k: cublaslt ",
        HEAD "k: plainer 1", HEAD "k: plain 1\nk: plain", HEAD "k: plain 1  2=1"};
    char many[2000] = HEAD "k: plain 1";
    int live = fake_live;
    fakes_reset();
    for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++) {
        struct dnn *d;
        struct err e = {0};
        ck_assert_msg(dnn_open(0, NULL, NULL, wrong[i], &d, &e) && e.code == E_DATA && strstr(e.text, "kernel table"),
                      "%s: %s", wrong[i], e.text);
    }
    for (int i = 0; i < 60; i++) strcat(many, " 2=1");
    struct dnn *d;
    struct err e = {0};
    ck_assert(dnn_open(0, NULL, NULL, many, &d, &e) && e.code == E_DATA);
    dnn_close(opened(""));
    dnn_close(opened("k: plain 1\nl: apart 2 3=-4\n"));
    ck_assert_int_eq(fake_live, live);
}
END_TEST

/* The fastest wins, unless it wins by little; what runs nowhere is passed over; a second time nothing is measured. */
START_TEST(measured)
{
    int live = fake_live;
    struct text table = {0};
    struct err e = {0};
    struct dnn_conv one = shapes[4], narrow = any;
    fakes_reset();
    fake_engine[0] = (struct fake_engine){.index = 10, .ms = 1.01f};
    fake_engine[1] = (struct fake_engine){.index = 11, .ms = 1.00f};
    fake_engine[2] = (struct fake_engine){.index = 12, .ms = 0.1f, .broken = true};
    fake_engine[3] = (struct fake_engine){.index = 13, .ms = 0.2f, .notes = NOTE_NONDETERMINISTIC};
    fake_n_engines = 4;
    fake_blas_ms = 0.5f;
    struct dnn *d = opened(NULL);
    ok(dnn_measure(d, &any, &(struct dnn_ask){DNN_FORWARD, false, MAX_WORK}, false, &table, &e), &e);
    ck_assert_str_eq(table.s, HEAD "fp32 forward n1 c2>2/1 1x4x4>1x4x4 k1x3x3 s1x1x1 p0x1x1 d1x1x1: plain 10 2=0\n");
    size_t once = table.n;
    fake_engine[1].ms = 0.9f;
    ok(dnn_measure(d, &any, &(struct dnn_ask){DNN_FORWARD, false, MAX_WORK}, false, &table, &e), &e);
    ck_assert_uint_eq(table.n, once);
    ok(dnn_measure(d, &any, &(struct dnn_ask){DNN_DATA, false, MAX_WORK}, false, &table, &e), &e);
    ck_assert_msg(strstr(table.s, ": plain 11 2=1\n") != NULL, "%s", table.s);
    one.type = narrow.type = DNN_BF16;
    ok(dnn_measure(d, &one, &(struct dnn_ask){DNN_WEIGHTS, true, MAX_WORK}, false, &table, &e), &e);
    ck_assert_msg(strstr(table.s, ": cublaslt\n") != NULL, "%s", table.s);
    ok(dnn_measure(d, &narrow, &(struct dnn_ask){DNN_WEIGHTS, true, MAX_WORK}, false, &table, &e), &e);
    ck_assert_msg(strstr(table.s, ": apart 11 2=1\n") != NULL, "%s", table.s);
    dnn_close(d);
    d = opened(table.s + strlen(HEAD));
    ck_assert_int_eq(taken(d, DNN_F32, MAX_WORK, &e), 10);
    conv_is_right(d, one, DNN_WEIGHTS, true, -1);
    dnn_close(d);
    text_free(&table);
    ck_assert_int_eq(fake_live, live);
}
END_TEST

/* Kernels that are compiled when they are made cost seconds: only who asks for them has them tried. */
START_TEST(measured_compiled)
{
    struct err e = {0};
    fakes_reset();
    fake_engine[0] = (struct fake_engine){.index = 20, .ms = 1};
    fake_engine[1] = (struct fake_engine){.index = 21, .ms = 0.5f, .behaviour = COMPILED};
    fake_n_engines = 2;
    fake_blas_ms = 9;
    for (int compiled = 0; compiled < 2; compiled++) {
        struct text table = {0};
        struct dnn *d = opened(NULL);
        ok(dnn_measure(d, &any, &(struct dnn_ask){DNN_FORWARD, false, MAX_WORK}, compiled, &table, &e), &e);
        ck_assert_msg(strstr(table.s, compiled ? ": plain 21 " : ": plain 20 ") != NULL, "%s", table.s);
        dnn_close(d);
        text_free(&table);
    }
}
END_TEST

/* All of heuristics A and B, those that both name once. */
START_TEST(measured_all)
{
    struct err e = {0};
    fakes_reset();
    fake_blas = false;
    for (int i = 0; i < 8; i++) fake_engine[i] = (struct fake_engine){.index = 20 + i, .ms = 8 - 0.5f * (float)i};
    fake_n_engines = 3;
    fake_n_more = 5;
    for (int all = 0; all < 2; all++) {
        struct text table = {0};
        struct dnn *d = opened(NULL);
        int packs = fake_packs;
        const struct dnn_ask ask = {DNN_FORWARD, false, MAX_WORK};
        ok(dnn_measure(d, &any, &ask, all ? DNN_TRY_ALL : 0, &table, &e), &e);
        ck_assert_msg(strstr(table.s, all ? ": plain 27 2=7\n" : ": plain 22 2=2\n") != NULL, "%s", table.s);
        ck_assert_int_eq(fake_packs - packs, all ? 8 : 3);
        dnn_close(d);
        text_free(&table);
    }
}
END_TEST

/* Layers of one shape share a plan; operands are described once for each set of pointers. */
START_TEST(packs)
{
    float a[64] = {0}, b[64] = {0}, c[2][64], work[512];
    struct dnn_plan *p, *same, *other;
    struct dnn_linear l = {DNN_F32, 3, 4, 5, true};
    struct err e = {0};
    fakes_reset();
    struct dnn *d = opened(NULL);
    ok(dnn_conv_plan(d, &any, &(struct dnn_ask){DNN_FORWARD, false, MAX_WORK}, &p, &e), &e);
    ok(dnn_conv_plan(d, &any, &(struct dnn_ask){DNN_FORWARD, false, MAX_WORK}, &same, &e), &e);
    ok(dnn_conv_plan(d, &any, &(struct dnn_ask){DNN_FORWARD, false, MAX_WORK - 1}, &other, &e), &e);
    ck_assert(same == p && other != p);
    ok(dnn_conv_plan(d, &any, &(struct dnn_ask){DNN_WEIGHTS, false, MAX_WORK}, &p, &e), &e);
    ok(dnn_conv_plan(d, &any, &(struct dnn_ask){DNN_WEIGHTS, true, MAX_WORK}, &other, &e), &e);
    ck_assert(other != p && p != same);
    ok(dnn_linear_plan(d, &l, &(struct dnn_ask){DNN_FORWARD, false, MAX_WORK}, &p, &e), &e);
    l.bias = false;
    ok(dnn_linear_plan(d, &l, &(struct dnn_ask){DNN_FORWARD, false, MAX_WORK}, &other, &e), &e);
    ck_assert(other != p);
    p = same;
    for (int i = 0; i < 6; i++) ok(dnn_run(d, p, &(struct dnn_operands){a, b, c[i % 2], work, NULL}, &e), &e);
    ck_assert_int_eq(fake_packs, 2);
    dnn_close(d);
}
END_TEST

START_TEST(versions)
{
    struct text t = {0}, beside = {0};
    dnn_versions(&t, &beside);
    ck_assert_msg(strncmp(t.s, "cuDNN 9.", 8) == 0 && strstr(t.s, ", cuBLASLt 13.1.0") && !strstr(t.s, "NVRTC"), "%s",
                  t.s);
    ck_assert_msg(strncmp(beside.s, "NVRTC ", 6) == 0 || strcmp(beside.s, "no NVRTC") == 0, "%s", beside.s);
    text_free(&t);
    text_free(&beside);
}
END_TEST

int main(void)
{
    TCase *t = tcase_create("dnn");
    tcase_add_loop_test(t, convolutions, 0, N_SHAPES);
    tcase_add_test(t, weight_gradients);
    tcase_add_test(t, input_gradients);
    tcase_add_loop_test(t, linears, 0, 3);
    tcase_add_test(t, engines);
    tcase_add_test(t, tables);
    tcase_add_test(t, bad_tables);
    tcase_add_test(t, measured);
    tcase_add_test(t, measured_compiled);
    tcase_add_test(t, measured_all);
    tcase_add_test(t, packs);
    tcase_add_test(t, versions);
    return suite_run("dnn", CK_FORK, t);
}
