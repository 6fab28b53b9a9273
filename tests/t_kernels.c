/* The GPU's kernels, compiled for the host, against the operators' reference kernels: every operator's examples and odd
 * sizes, in float and bf16, overwriting and adding. In float the two differ by the order and width of sums only; in
 * bf16 by one rounding of what is stored. */
#include "kernels_rig.h"
#include <check.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include "base/rng.h"
#include "model/ops/window.h"
#include "optim/optim.h"
#include "sure.h"

/* _i of a loop test: bit 0 type, bit 1 way of adding. */
#define TYPE(i) ((i) & 1 ? K_BF16 : K_F32)
#define ACC(i) ((i) >> 1 & 1)
#define OK(call) ck_assert_int_eq((call), 0)

/* A gradient's place: nonsense, or what is to be added to. */
static void *place(enum ktype type, const float *old, bool acc, int64_t n, int64_t c, int64_t points)
{
    return acc ? rig_last(type, old, n, c, points) : rig_new(type, (size_t)(n * c * points));
}

/* ---- elementwise ----------------------------------------------------------------------------- */

static const size_t counts[] = {0, 1, 7, 8, 9, 1000, 2048, 20001};

static void elementwise_of(enum ktype type, bool acc, size_t n, bool odd)
{
    float *x = rig_normals(type, 1, n + 8), *z = rig_normals(type, 2, n + 8), *want = mem_alloc((n + 1) * sizeof *want);
    x[4] = 0;
    if (odd) rig_odd_among(x, n), rig_odd_among(z + 3, n);   /* of z at other places */
    void *a = rig_array(type, x, n), *b = rig_array(type, z, n), *y = rig_array(type, x, n);
    for (size_t i = 0; i < n; i++) want[i] = x[i] <= 0 ? 0 : x[i];
    OK(k_relu(NULL, type, n, y, y));
    rig_check(type, y, want, NULL, 1, 1, (int64_t)n, 0);
    for (size_t i = 0; i < n; i++) want[i] = x[i] <= 0 ? 0 : z[i];
    y = place(type, x, acc, 1, 1, (int64_t)n);
    OK(k_relu_back(NULL, type, n, a, b, y, acc));
    rig_check(type, y, want, acc ? x : NULL, 1, 1, (int64_t)n, 0);
    y = rig_array(type, x, n);
    OK(k_add(NULL, type, n, y, b, y));
    rig_check(type, y, z, x, 1, 1, (int64_t)n, 0);
    y = place(type, x, acc, 1, 1, (int64_t)n);
    OK(k_copy(NULL, type, n, b, y, acc));
    rig_check(type, y, z, acc ? x : NULL, 1, 1, (int64_t)n, 0);
    float *fine = rig_normals(K_F32, 3, n + 1);
    if (odd) rig_odd_among(fine, n);
    y = rig_new(K_BF16, n);
    OK(k_to_bf16(NULL, n, fine, y));
    for (size_t i = 0; i < n; i++) {
        float got = rig_at(K_BF16, y, i), want_bf16 = rig_round(K_BF16, fine[i]);
        if (isnan(want_bf16) ? !isnan(got) : got != want_bf16) ck_abort_msg("element %zu of %zu", i, n);
    }
    rig_guard(K_BF16, y, n);
    float *wide = place(K_F32, z, acc, 1, 1, (int64_t)n);
    OK(k_from_bf16(NULL, n, y, wide, acc));
    for (size_t i = 0; i < n; i++) fine[i] = rig_round(K_BF16, fine[i]);
    rig_check(K_F32, wide, fine, acc ? z : NULL, 1, 1, (int64_t)n, 0);
    free(x), free(z), free(want), free(a), free(b), free(y), free(fine);
}

START_TEST(elementwise)
{
    for (int way = 0; way < 2; way++) {
        rig_way(way);
        for (size_t i = 0; i < sizeof counts / sizeof *counts; i++)
            elementwise_of(TYPE(_i), ACC(_i), counts[i], false), elementwise_of(TYPE(_i), ACC(_i), counts[i], true);
    }
}
END_TEST

/* What is no number stays visible, forward and backward; zeros have no sign worth keeping. */
START_TEST(relu_of_odd_values)
{
    static const float x[] = {NAN, INFINITY, -INFINITY, -0.0f, 0.0f};
    void *v = rig_array(TYPE(_i), x, 5), *y = rig_new(TYPE(_i), 5);
    OK(k_relu(NULL, TYPE(_i), 5, v, y));
    ck_assert(isnan(rig_at(TYPE(_i), y, 0)) && isinf(rig_at(TYPE(_i), y, 1)));
    for (size_t i = 2; i < 5; i++) ck_assert_float_eq(rig_at(TYPE(_i), y, i), 0);
    OK(k_relu_back(NULL, TYPE(_i), 5, v, v, y, false));
    ck_assert(isnan(rig_at(TYPE(_i), y, 0)));
    for (size_t i = 1; i < 5; i++) ck_assert(rig_at(TYPE(_i), y, i) == (i == 1 ? INFINITY : 0));
    free(v), free(y);
}
END_TEST

/* Ties go to the even neighbour, what is no number stays none, and what is too large becomes infinite. */
START_TEST(bf16_rounding)
{
    static const struct { uint32_t from; uint16_t to; } t[] = {
        {0x3f800000, 0x3f80}, {0x3f808000, 0x3f80}, {0x3f818000, 0x3f82}, {0x3f808001, 0x3f81}, {0x3f80ffff, 0x3f81},
        {0x7f7fffff, 0x7f80}, {0x7f800000, 0x7f80}, {0xff800000, 0xff80}, {0x80000000, 0x8000}, {0x7f800001, 0x7fc0},
    };
    for (size_t i = 0; i < sizeof t / sizeof *t; i++) {
        float x;
        uint16_t y;
        memcpy(&x, &t[i].from, 4);
        OK(k_to_bf16(NULL, 1, &x, &y));
        ck_assert_msg(y == t[i].to, "%08x became %04x, not %04x", t[i].from, y, t[i].to);
    }
}
END_TEST

static const struct { int64_t rows; int c; } tables[] = {{1, 1}, {3, 8}, {129, 5}, {300, 64}, {1000, 300}, {5000, 16}};

/* _i: type, adding, odd values */
START_TEST(bias)
{
    enum ktype type = TYPE(_i);
    bool odd = _i >> 2;
    for (int way = 0; way < 2; way++) {
        rig_way(way);
        for (size_t i = 0; i < sizeof tables / sizeof *tables; i++) {
            int64_t rows = tables[i].rows, c = tables[i].c;
            float *x = rig_normals(type, 1, (size_t)(rows * c)), *b = rig_normals(K_F32, 2, (size_t)c),
                  *want = mem_alloc((size_t)(rows * c) * sizeof *want);
            /* sums of the other channels are finite */
            if (odd) rig_odd_among(x, (size_t)(rows * c) / 2), rig_odd_among(b, (size_t)c / 2);
            void *y = rig_array(type, x, (size_t)(rows * c)), *g = rig_array(type, x, (size_t)(rows * c));
            void *work = rig_new(K_F32, k_bias_work(rows, (int)c) / 4);
            for (int64_t k = 0; k < rows * c; k++) want[k] = x[k] + b[k % c];
            OK(k_bias(NULL, type, rows, (int)c, b, y));
            rig_check(type, y, want, NULL, 1, 1, rows * c, 0);
            for (int64_t k = 0; k < c; k++) {
                double sum = 0;
                for (int64_t r = 0; r < rows; r++) sum += x[r * c + k];
                want[k] = (float)sum;
            }
            float *gb = place(K_F32, b, ACC(_i), 1, c, 1);
            OK(k_bias_back(NULL, type, rows, (int)c, g, gb, ACC(_i), work));
            rig_check(K_F32, gb, want, ACC(_i) ? b : NULL, 1, c, 1, 4);
            rig_guard(K_F32, work, k_bias_work(rows, (int)c) / 4);
            free(x), free(b), free(want), free(g), free(work);
        }
    }
}
END_TEST

/* ---- operators with one input and one output ------------------------------------------------- */

static struct k_window window_of(const struct rig_op *o)
{
    const struct node *n = o->node;
    struct window w;
    struct k_window k;
    window_make(&o->g->tensor[n->in[0]].shape, &n->attr[op_attr(n->op, "kernel")], &n->attr[op_attr(n->op, "stride")],
                &n->attr[op_attr(n->op, "padding")], NULL,
                &w, NULL);
    for (int i = 0; i < 3; i++) {
        k.in[i] = (int)w.in[i];
        k.out[i] = (int)w.out[i];
        k.kernel[i] = (int)w.k[i];
        k.stride[i] = (int)w.s[i];
        k.pad[i] = (int)w.p[i];
    }
    return k;
}

/* Runs one operator's kernel forward (gx NULL) or backward. extra: what forward keeps. */
static int call(const struct rig_op *o, enum ktype type, const void *x, void *y, void *extra, const void *gy, void *gx,
                bool acc)
{
    const char *op = o->node->op->name;
    int64_t n = o->c.n, points = rig_in_points(o, 0);
    int c = (int)rig_in_channels(o, 0);
    if (strcmp(op, "max_pool") == 0 || strcmp(op, "avg_pool") == 0) {
        struct k_window w = window_of(o);
        if (strcmp(op, "max_pool") == 0)
            return gx ? k_max_pool_back(NULL, type, n, c, &w, extra, gy, gx, acc)
                      : k_max_pool(NULL, type, n, c, &w, x, y, extra);
        return gx ? k_avg_pool_back(NULL, type, n, c, &w, gy, gx, acc) : k_avg_pool(NULL, type, n, c, &w, x, y);
    }
    if (strcmp(op, "global_avg_pool") == 0)
        return gx ? k_mean_back(NULL, type, n, points, c, gy, gx, acc) : k_mean(NULL, type, n, points, c, x, y);
    if (strcmp(op, "flatten") == 0)
        return gx ? k_flatten_back(NULL, type, n, points, c, gy, gx, acc) : k_flatten(NULL, type, n, points, c, x, y);
    ck_assert_str_eq(op, "dropout");
    return k_dropout(NULL, type, n, points, c, o->node->attr[0].r, 0, &o->block, o->sample, gx ? gy : x, gx ? gx : y,
                     acc);
}

static void unary(const char *op, const char *example, enum ktype type, bool acc, int n)
{
    struct rig_op o;
    rig_op_open(&o, op, example, type, n);
    int64_t c = rig_in_channels(&o, 0), points = rig_in_points(&o, 0), out = n * o.channels * o.points;
    void *x = rig_last(type, o.c.in[0], n, c, points), *y = rig_new(type, (size_t)out),
         *gy = rig_last(type, o.c.gout, n, o.channels, o.points);
    uint8_t *extra = rig_new(K_F32, (size_t)out);
    OK(call(&o, type, x, y, extra, NULL, NULL, false));
    if (strcmp(op, "max_pool") == 0) {                   /* a layer that keeps nothing gives the same */
        void *again = rig_new(type, (size_t)out);
        OK(call(&o, type, x, again, NULL, NULL, NULL, false));
        ck_assert_int_eq(memcmp(again, y, rig_bytes(type, (size_t)out)), 0);
        free(again);
    }
    rig_check(type, y, o.c.out, NULL, n, o.channels, o.points, 2);
    float *old = rig_normals(type, 70, (size_t)(n * c * points));
    void *gx = place(type, old, acc, n, c, points);
    OK(call(&o, type, x, NULL, extra, gy, gx, acc));
    rig_check(type, gx, o.c.gin[0], acc ? old : NULL, n, c, points, 2);
    free(x), free(gy), free(extra), free(old);
    rig_op_close(&o);
}

static const struct { const char *op, *example; } more[] = {
    {"max_pool", "5x13x11 kernel=3x2 stride=2x1 padding=1x0"},
    {"max_pool", "9x5x4x6 kernel=3x2x2 stride=1x2x1 padding=1"},
    {"avg_pool", "5x13x11 kernel=3x2 stride=2x3 padding=1x0"},
    {"avg_pool", "9x5x4x6 kernel=3x2x2 stride=1x2x1 padding=1"},
    {"global_avg_pool", "33x9x7"},
    {"flatten", "33x7x5"},
    {"flatten", "70x40"},
    {"dropout", "33x7x5 p=0.3"},
    {"dropout", "6x2x2 p=0.9"},
    {"dropout", "7 p=0.5"},
};

/* _i: type, adding. The examples of the operators, and some more. */
START_TEST(unary_operators)
{
    static const char *const ops[] = {"max_pool", "avg_pool", "global_avg_pool", "flatten", "dropout"};
    for (int way = 0; way < 2; way++) {
        rig_way(way);
        for (size_t k = 0; k < sizeof ops / sizeof *ops; k++)
            for (const char *const *e = op_find(ops[k])->examples; *e; e++) unary(ops[k], *e, TYPE(_i), ACC(_i), 3);
        for (size_t k = 0; k < sizeof more / sizeof *more; k++)
            unary(more[k].op, more[k].example, TYPE(_i), ACC(_i), 2);
    }
}
END_TEST

/* The first of equals wins, and what is no number wins over all. */
START_TEST(max_pool_of_odd_values)
{
    struct k_window w = {{1, 1, 4}, {1, 1, 2}, {1, 1, 2}, {1, 1, 2}, {0, 0, 0}};
    static const float x[] = {2, 2, NAN, 5};
    void *v = rig_array(TYPE(_i), x, 4), *y = rig_new(TYPE(_i), 2);
    uint8_t where[2];
    OK(k_max_pool(NULL, TYPE(_i), 1, 1, &w, v, y, where));
    ck_assert(rig_at(TYPE(_i), y, 0) == 2 && isnan(rig_at(TYPE(_i), y, 1)) && where[0] == 0 && where[1] == 0);
    free(v), free(y);
}
END_TEST

static void concat_of(const char *example, enum ktype type, bool acc)
{
    struct rig_op o;
    rig_op_open(&o, "concat", example, type, 3);
    int64_t rows = o.c.n * o.points, first = 0;
    int width = (int)o.channels;
    void *y = rig_new(type, (size_t)(rows * width)), *gy = rig_last(type, o.c.gout, o.c.n, width, o.points);
    for (int k = 0; k < o.node->n_in; k++) {
        int64_t c = rig_in_channels(&o, k);
        void *x = rig_last(type, o.c.in[k], o.c.n, c, o.points);
        float *old = rig_normals(type, 70, (size_t)(rows * c));
        void *gx = place(type, old, acc, o.c.n, c, o.points);
        OK(k_concat(NULL, type, rows, width, (int)first, (int)c, x, y));
        OK(k_concat_back(NULL, type, rows, width, (int)first, (int)c, gy, gx, acc));
        rig_check(type, gx, o.c.gin[k], acc ? old : NULL, o.c.n, c, o.points, 0);
        first += c;
        free(x), free(old);
    }
    rig_check(type, y, o.c.out, NULL, o.c.n, width, o.points, 0);
    free(gy);
    rig_op_close(&o);
}

START_TEST(concat)
{
    for (int way = 0; way < 2; way++) {
        rig_way(way);
        for (const char *const *e = op_find("concat")->examples; *e; e++) concat_of(*e, TYPE(_i), ACC(_i));
        concat_of("64x5x5 + 32x5x5", TYPE(_i), ACC(_i));
    }
}
END_TEST

/* As y, with zeros behind the channels that are used; and back. */
static void padded_is(int64_t n, int c, int64_t p, const float *x, const void *y)
{
    size_t all = (size_t)(n * p);
    void *z = rig_new(K_BF16, all * K_PADDED);
    float *back = rig_new(K_F32, all * (size_t)c);
    OK(k_import_padded(NULL, n, c, p, x, z));
    OK(k_export_padded(NULL, n, c, p, z, back));
    for (size_t i = 0; i < all; i++)
        for (size_t k = 0; k < K_PADDED; k++) {
            float want = k < (size_t)c ? rig_at(K_BF16, y, i * (size_t)c + k) : 0;
            if (rig_at(K_BF16, z, i * K_PADDED + k) != want) ck_abort_msg("point %d, channel %d", (int)i, (int)k);
        }
    for (size_t k = 0; k < all * (size_t)c; k++)
        if (back[k] != rig_round(K_BF16, x[k])) ck_abort_msg("element %d of what comes back", (int)k);
    rig_guard(K_BF16, z, all * K_PADDED);
    rig_guard(K_F32, back, all * (size_t)c);
    rig_same(z, all * K_PADDED * 2);
    free(z), free(back);
    ck_assert_int_ne(k_import_padded(NULL, 1, K_PADDED + 1, 1, x, NULL), 0);
}

/* Host order to channels last and back is the identity, to the type's rounding. */
START_TEST(import_and_export)
{
    static const int64_t sizes[][3] = {{1, 1, 1},    {2, 3, 49}, {3, 40, 1}, {2, 65, 33},
                                       {1, 3, 1024}, {2, 4, 4},  {3, 50, 2}, {2, 5, 5}};
    for (int way = 0; way < 2; way++) {
        rig_way(way);
        for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++) {
            int64_t n = sizes[i][0], c = sizes[i][1], p = sizes[i][2];
            float *x = rig_normals(K_F32, 1, (size_t)(n * c * p)), *back = rig_new(K_F32, (size_t)(n * c * p));
            void *y = rig_new(TYPE(_i), (size_t)(n * c * p));
            OK(k_import(NULL, TYPE(_i), n, (int)c, p, x, y));
            OK(k_export(NULL, TYPE(_i), n, (int)c, p, y, back));
            for (int64_t k = 0; k < n * c * p; k++)
                if (back[k] != rig_round(TYPE(_i), x[k])) ck_abort_msg("element %d", (int)k);
            rig_guard(K_F32, back, (size_t)(n * c * p));
            if (TYPE(_i) == K_BF16 && c <= K_PADDED) padded_is(n, (int)c, p, x, y);
            rig_check(TYPE(_i), y, x, NULL, n, c, p, 0);
            free(x), free(back);
        }
    }
}
END_TEST

/* ---- losses ---------------------------------------------------------------------------------- */

typedef int forward_fn(void *, const struct k_loss *, const void *, double *);
typedef int backward_fn(void *, const struct k_loss *, const struct be_block *, const void *, void *, bool);

static void loss_of(const char *op, const char *example, enum ktype type, bool acc, forward_fn *forward,
                    backward_fn *backward, int n)
{
    struct rig_op o;
    rig_op_open(&o, op, example, type, n);
    int64_t count = shape_count(&o.g->tensor[o.node->in[0]].shape);
    bool is_class = o.g->tensor[o.node->in[1]].type == I64;
    struct k_loss k = {.type = type,
                       .n = n,
                       .count = (int)count,
                       .cls = is_class ? o.c.in[1] : NULL,
                       .vec = is_class ? NULL : o.c.in[1]};
    void *x = rig_array(type, o.c.in[0], (size_t)(n * count));
    double *loss = rig_new(K_F32, (size_t)n * 6);
    const double *want = o.c.out;
    OK(forward(NULL, &k, x, loss));
    for (int i = 0; i < 3 * n; i++) {
        /* sums of doubles in another order */
        ck_assert_msg(isfinite(want[i]) ? fabs(loss[i] - want[i]) <= 1e-13 * (double)count * (1 + fabs(want[i]))
                      : isnan(want[i])  ? isnan(loss[i])
                                        : loss[i] == want[i],
                      "%s %s [%d]: %.17g, the reference has %.17g", op, example, i, loss[i], want[i]);
        if (i % 3) ck_assert_double_eq(loss[i], want[i]);
    }
    rig_same(loss, sizeof(double) * 3 * (size_t)n);
    rig_guard(K_F32, loss, (size_t)n * 6);
    float *old = rig_normals(type, 70, (size_t)(n * count));
    void *gx = place(type, old, acc, n, count, 1);
    OK(backward(NULL, &k, &o.block, x, gx, acc));
    rig_check(type, gx, o.c.gin[0], acc ? old : NULL, n, count, 1, 0.01);
    free(x), free(loss), free(old);
    rig_op_close(&o);
}

START_TEST(losses)
{
    for (int way = 0; way < 2; way++) {
        rig_way(way);
        for (const char *const *e = op_find("mse")->examples; *e; e++)
            loss_of("mse", *e, TYPE(_i), ACC(_i), k_mse, k_mse_back, 4);
        for (const char *const *e = op_find("softmax_cross_entropy")->examples; *e; e++)
            loss_of("softmax_cross_entropy", *e, TYPE(_i), ACC(_i), k_cross_entropy, k_cross_entropy_back, 4);
        static const char *const larger[] = {"1000 + class", "257 + vector"};
        for (int k = 0; k < 2; k++) {
            loss_of("softmax_cross_entropy", larger[k], TYPE(_i), ACC(_i), k_cross_entropy, k_cross_entropy_back, 16);
            loss_of("mse", larger[k], TYPE(_i), ACC(_i), k_mse, k_mse_back, 7);
        }
    }
}
END_TEST

static void absolute_error_of(const char *example, enum ktype type, int n)
{
    struct rig_op o;
    rig_op_open(&o, "mean_absolute_error", example, type, n);
    int64_t count = shape_count(&o.g->tensor[o.node->in[0]].shape);
    bool is_class = o.g->tensor[o.node->in[1]].type == I64;
    struct k_loss k = {type, n, (int)count, is_class ? o.c.in[1] : NULL, is_class ? NULL : o.c.in[1]};
    void *x = rig_array(type, o.c.in[0], (size_t)(n * count));
    double *error = rig_new(K_F32, (size_t)n * 2);
    OK(k_mean_absolute_error(NULL, &k, x, error));
    for (int i = 0; i < n; i++)                          /* sums of doubles in another order */
        ck_assert_double_eq_tol(error[i], ((double *)o.c.out)[i], 1e-13 * (double)count);
    rig_same(error, sizeof *error * (size_t)n);
    rig_guard(K_F32, error, (size_t)n * 2);
    free(x), free(error);
    rig_op_close(&o);
}

START_TEST(absolute_error)
{
    for (int way = 0; way < 2; way++) {
        rig_way(way);
        for (const char *const *e = op_find("mean_absolute_error")->examples; *e; e++)
            absolute_error_of(*e, TYPE(_i), 4);
        absolute_error_of("1000 + class", TYPE(_i), 5);
        absolute_error_of("257 + vector", TYPE(_i), 5);
    }
}
END_TEST

/* ---- embedding ------------------------------------------------------------------------------- */

/* In float to the bit, also the sums of gradients: both add in the same order. none: indices that name no row. */
static void embedding_of(const char *example, enum ktype type, bool acc, int n, bool none)
{
    struct rig_op o;
    rig_op_open(&o, "embedding", example, type, n);
    const struct tensor *t = &o.g->tensor[o.node->in[0]];
    const struct shape *s = &o.g->param[o.node->param[0]].shape;
    struct k_rows k = {o.c.in[0], t->type == I64, n * o.points, s->d[0], (int)s->d[1]};
    if (none) {
        int64_t last = k.n - 1;
        if (k.wide) ((int64_t *)(uintptr_t)k.index)[0] = -1, ((int64_t *)(uintptr_t)k.index)[last] = INT64_MAX;
        else ((int32_t *)(uintptr_t)k.index)[0] = -1, ((int32_t *)(uintptr_t)k.index)[last] = (int32_t)k.count;
        o.node->op->forward(&o.c);
        o.node->op->backward_weights(&o.c);
    }
    float *old = rig_normals(K_F32, 70, (size_t)(k.count * k.c)), *table = rig_array(K_F32, o.c.param[0],
                                                                                     (size_t)(k.count * k.c));
    void *gy = rig_last(type, o.c.gout, n, k.c, o.points), *y = rig_new(type, (size_t)(k.n * k.c));
    OK(k_embed(NULL, type, &k, table, y));
    rig_check(type, y, o.c.out, NULL, n, k.c, o.points, 0);
    float *gw = place(K_F32, old, acc, 1, k.count * k.c, 1);
    OK(k_embed_back(NULL, type, &k, gy, gw, acc));
    rig_check(K_F32, gw, o.c.pgrad[0], acc ? old : NULL, 1, k.count * k.c, 1, 0);
    free(old), free(table), free(gy);
    rig_op_close(&o);
}

/* _i: type, adding. Wide rows, more positions than a block has threads, one row for all. */
START_TEST(embedding)
{
    static const char *const larger[] = {"70 I64 count=3 features=300", "3x100 I32 count=50 features=24",
                                       "300 I32 count=1 features=8", "40 I64 count=1000 features=5"};
    for (int way = 0; way < 3; way++) {
        rig_way(way);
        for (const char *const *e = op_find("embedding")->examples; *e; e++)
            embedding_of(*e, TYPE(_i), ACC(_i), 3, false), embedding_of(*e, TYPE(_i), ACC(_i), 3, true);
        for (size_t k = 0; k < sizeof larger / sizeof *larger; k++)
            embedding_of(larger[k], TYPE(_i), ACC(_i), 2, false), embedding_of(larger[k], TYPE(_i), ACC(_i), 2, true);
    }
}
END_TEST

/* Equal outputs: the earlier one comes first. A class that does not exist is never hit, and what is no number hits
 * nothing. */
START_TEST(hits)
{
    static const float x[] = {1, 3, 3, 3, 2, 3, 3, NAN};
    static const struct {
        int64_t cls;
        double one, five;
    } want[] = {{1, 1, 1}, {2, 0, 1}, {4, 0, 0}, {6, 0, 1}, {7, 0, 0}, {8, 0, 0}, {-1, 0, 0}};
    for (size_t i = 0; i < sizeof want / sizeof *want; i++) {
        double loss[3];
        struct k_loss k = {.type = TYPE(_i), .n = 1, .count = 8, .cls = &want[i].cls};
        void *v = rig_array(TYPE(_i), x, 8);
        OK(k_cross_entropy(NULL, &k, v, loss));
        ck_assert_msg(loss[1] == want[i].one && loss[2] == want[i].five, "class %d: %g %g", (int)want[i].cls, loss[1],
                      loss[2]);
        free(v);
    }
}
END_TEST

/* Every operator's examples with values among them that are no numbers, or infinite: what comes out is what the
 * reference makes of them. */
START_TEST(odd_values)
{
    static const char *const ops[] = {"max_pool", "avg_pool", "global_avg_pool", "flatten", "dropout"};
    rig_odd(true);
    for (int way = 0; way < 2; way++) {
        rig_way(way);
        for (size_t k = 0; k < sizeof ops / sizeof *ops; k++)
            for (const char *const *e = op_find(ops[k])->examples; *e; e++) unary(ops[k], *e, TYPE(_i), ACC(_i), 3);
        for (size_t k = 0; k < sizeof more / sizeof *more; k++)
            unary(more[k].op, more[k].example, TYPE(_i), ACC(_i), 2);
        for (const char *const *e = op_find("concat")->examples; *e; e++) concat_of(*e, TYPE(_i), ACC(_i));
        concat_of("64x5x5 + 32x5x5", TYPE(_i), ACC(_i));
        for (const char *const *e = op_find("mse")->examples; *e; e++)
            loss_of("mse", *e, TYPE(_i), ACC(_i), k_mse, k_mse_back, 4);
        for (const char *const *e = op_find("softmax_cross_entropy")->examples; *e; e++)
            loss_of("softmax_cross_entropy", *e, TYPE(_i), ACC(_i), k_cross_entropy, k_cross_entropy_back, 4);
    }
    rig_odd(false);
}
END_TEST

/* ---- optimizer, sums ------------------------------------------------------------------------- */

/* Below 8, bit 0: momentum, 1: nesterov; from there bit 0: the other end of lerp_, 1: a large epsilon; 2: weight decay.
 */
static struct conf optimizer(int i)
{
    struct conf c = {.train = {.optimizer = i < 8 ? "sgd" : "adamw", .weight_decay = i & 4 ? 0.01 : 0}};
    c.train.momentum = i & 1 ? 0.9 : 0;
    c.train.nesterov = i >> 1 & 1;
    c.train.beta1 = i & 1 ? 0.3 : 0.9;
    c.train.beta2 = 0.999;
    c.train.epsilon = i & 2 ? 0.01 : 1e-8;
    return c;
}

/* One weight for a kernel, and the same for optim/optim.c. */
static void weight_make(int i, size_t n, int states, struct be_weight *k, struct be_weight *c)
{
    size_t all = states ? (size_t)(states - 1) * optim_stride(n) + n : 0;
    float *state = states ? rig_normals(K_F32, 3, all) : NULL;
    for (size_t j = 0; j < all; j++) state[j] = fabsf(state[j]);   /* a mean of squares may be among them */
    *c = (struct be_weight){rig_normals(K_F32, 1, n), rig_normals(K_F32, 2, n), state, n, 1 + i % 3, i % 2, NULL};
    *k = *c;
    k->w = rig_array(K_F32, c->w, n);
    k->g = rig_array(K_F32, c->g, n);
    k->state = states ? rig_array(K_F32, state, all) : NULL;
    k->derived = i % 3 ? rig_new(K_BF16, n) : NULL;
}

/* Looks at a weight after the step and frees both. */
static void weight_check(int i, int states, struct be_weight *k, struct be_weight *c)
{
    ck_assert_msg(!memcmp(k->w, c->w, k->n * sizeof(float)), "weight %d", i);
    for (int j = 0; j < states; j++) {
        size_t at = (size_t)j * optim_stride(k->n);
        ck_assert_msg(!memcmp(k->state + at, c->state + at, k->n * sizeof(float)), "state %d of weight %d", j, i);
    }
    rig_guard(K_F32, k->w, k->n);
    if (states) rig_guard(K_F32, k->state, (size_t)(states - 1) * optim_stride(k->n) + k->n);
    for (size_t e = 0; k->derived && e < k->n; e++)
        if (rig_at(K_BF16, k->derived, e) != rig_round(K_BF16, k->w[e]))
            ck_abort_msg("rounded weight %d, element %zu", i, e);
    if (k->derived) rig_guard(K_BF16, k->derived, k->n);
    void *all[] = {k->w, (float *)(uintptr_t)k->g, k->state, k->derived, c->w, (float *)(uintptr_t)c->g, c->state};
    for (size_t j = 0; j < sizeof all / sizeof *all; j++) free(all[j]);
}

/* _i: bit 0 clipping, then which optimizer. Every bit is that of optim/optim.c. */
START_TEST(optimizers)
{
    static const size_t sizes[] = {1, 3, 4, 64, 4095, 4096, 4097, 20000};
    enum { N_SIZES = sizeof sizes / sizeof *sizes };
    struct conf c = optimizer(_i / 2);
    struct be_block block = {.learning_rate = 0.1, .clip_coef = _i & 1 ? 0.3 : 1, .step = 3};
    const struct optim_kind *kind = optim_list[optim_of(&c)];
    optim_hyper(&c, block.hyper);
    kind->once(&block);
    int states = optim_buffers(&c).n;
    for (int n = 1; n < 700; n = n < 9 ? n + 3 : 300 + n) {
        for (int way = 0; way < 2; way++) {
            struct be_weight *k = mem_alloc((size_t)n * sizeof *k), *want = mem_alloc((size_t)n * sizeof *want);
            size_t total = 0;
            rig_way(way);
            for (int i = 0; i < n; i++) {
                weight_make(i, n > 20 ? 1 + (size_t)i % 90 : sizes[i % N_SIZES], states, &k[i], &want[i]);
                kind->update(&want[i], &block);
                total += k[i].n;
            }
            OK(k_update(NULL, optim_of(&c), k, n, total, &block));
            for (int i = 0; i < n; i++) weight_check(i, states, &k[i], &want[i]);
            free(k), free(want);
        }
    }
}
END_TEST

START_TEST(sums)
{
    static const size_t sizes[] = {0, 1, 5, 1024, 4099, 3000003};
    for (int way = 0; way < 2; way++) {
        rig_way(way);
        for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++) {
            size_t n = sizes[i];
            float *x = rig_normals(K_F32, 1, n + 4), *v;
            double want = 0, got, *work = rig_new(K_F32, k_sum_work() / 4);
            for (size_t k = 0; k < n; k++) want += (double)x[k] * x[k];
            v = rig_array(K_F32, x, n);
            OK(k_sum_squares(NULL, v, n, &got, work, rig_counters));
            ck_assert_double_eq_tol(got, want, 1e-12 * (1 + want));
            rig_same(&got, sizeof got);
            rig_guard(K_F32, work, k_sum_work() / 4);
            unsigned long long bad = 7;
            OK(k_count_nonfinite(NULL, v, n, &bad));
            ck_assert_uint_eq(bad, 7);
            if (n > 4) {
                v[0] = NAN, v[n / 2] = INFINITY, v[n - 1] = -INFINITY;
                OK(k_count_nonfinite(NULL, v, n, &bad));
                ck_assert_uint_eq(bad, 10);
            }
            free(x), free(v), free(work);
        }
    }
}
END_TEST

START_TEST(hold_takes_its_time)
{
    struct timespec from, to;
    clock_gettime(CLOCK_MONOTONIC, &from);
    OK(k_hold(NULL, 2000000));
    clock_gettime(CLOCK_MONOTONIC, &to);
    ck_assert((double)(to.tv_sec - from.tv_sec) * 1e9 + (double)(to.tv_nsec - from.tv_nsec) >= 2e6);
}
END_TEST

int main(void)
{
    TCase *c = suite_case("all", 60);
    tcase_add_loop_test(c, elementwise, 0, 4);
    tcase_add_loop_test(c, relu_of_odd_values, 0, 2);
    tcase_add_test(c, bf16_rounding);
    tcase_add_test(c, hold_takes_its_time);
    tcase_add_loop_test(c, bias, 0, 8);
    tcase_add_loop_test(c, unary_operators, 0, 4);
    tcase_add_loop_test(c, max_pool_of_odd_values, 0, 2);
    tcase_add_loop_test(c, concat, 0, 4);
    tcase_add_loop_test(c, import_and_export, 0, 2);
    tcase_add_loop_test(c, losses, 0, 4);
    tcase_add_loop_test(c, absolute_error, 0, 2);
    tcase_add_loop_test(c, embedding, 0, 4);
    tcase_add_loop_test(c, hits, 0, 2);
    tcase_add_loop_test(c, odd_values, 0, 4);
    tcase_add_loop_test(c, optimizers, 0, 32);
    tcase_add_test(c, sums);
    norm_tests(c);
    return suite_run("kernels", CK_FORK, c);
}
