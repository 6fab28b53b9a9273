/* The GPU's kernels, compiled for the host, against the operators' reference kernels: every operator's examples and odd
 * sizes, in float and bf16, overwriting and adding. In float the two differ by the order and width of sums only; in
 * bf16 by one rounding of what is stored. */
#include <math.h>
#include <string.h>
#include <time.h>
#include "kernels_rig.h"
#include "base/rng.h"
#include "model/ops/window.h"

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
    y = rig_place(type, x, acc, 1, 1, (int64_t)n);
    OK(k_relu_back(NULL, type, n, a, &(struct k_grad){b, y, acc}));
    rig_check(type, y, want, acc ? x : NULL, 1, 1, (int64_t)n, 0);
    y = rig_array(type, x, n);
    OK(k_add(NULL, type, n, y, b, y));
    rig_check(type, y, z, x, 1, 1, (int64_t)n, 0);
    y = rig_place(type, x, acc, 1, 1, (int64_t)n);
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
    float *wide = rig_place(K_F32, z, acc, 1, 1, (int64_t)n);
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
    OK(k_relu_back(NULL, TYPE(_i), 5, v, &(struct k_grad){v, y, false}));
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
            /* rows are those of all points */
            const struct k_shape s = rows % 3 ? (struct k_shape){type, rows, 1, (int)c}
                                              : (struct k_shape){type, rows / 3, 3, (int)c};
            size_t room = k_bias_work(&s) / 4;
            float *x = rig_normals(type, 1, (size_t)(rows * c)), *b = rig_normals(K_F32, 2, (size_t)c),
                  *want = mem_alloc((size_t)(rows * c) * sizeof *want);
            /* sums of the other channels are finite */
            if (odd) rig_odd_among(x, (size_t)(rows * c) / 2), rig_odd_among(b, (size_t)c / 2);
            void *y = rig_array(type, x, (size_t)(rows * c)), *g = rig_array(type, x, (size_t)(rows * c));
            void *work = rig_new(K_F32, room);
            for (int64_t k = 0; k < rows * c; k++) want[k] = x[k] + b[k % c];
            OK(k_bias(NULL, &s, b, y));
            rig_check(type, y, want, NULL, 1, 1, rows * c, 0);
            for (int64_t k = 0; k < c; k++) {
                double sum = 0;
                for (int64_t r = 0; r < rows; r++) sum += x[r * c + k];
                want[k] = (float)sum;
            }
            float *gb = rig_place(K_F32, b, ACC(_i), 1, c, 1);
            OK(k_bias_back(NULL, &s, g, gb, ACC(_i), work));
            rig_check(K_F32, gb, want, ACC(_i) ? b : NULL, 1, c, 1, 4);
            rig_guard(K_F32, work, room);
            free(x), free(b), free(want), free(g), free(work);
        }
    }
}
END_TEST

/* ---- operators with one input and one output ------------------------------------------------- */

static struct k_window window_of(const struct rig_op *o, enum ktype type)
{
    const struct node *n = o->node;
    struct window w;
    struct k_window k = {.type = type, .n = o->c.n, .c = (int)o->channels};
    window_make(n, &o->g->tensor[n->in[0]].shape, &w, NULL);
    for (int i = 0; i < 3; i++) {
        k.in[i] = (int)w.in[i];
        k.out[i] = (int)w.out[i];
        k.kernel[i] = (int)w.k[i];
        k.stride[i] = (int)w.s[i];
        k.pad[i] = (int)w.p[i];
    }
    return k;
}

/* Runs one operator's kernel forward (g NULL) or backward. saved: what forward keeps. */
static int call(const struct rig_op *o, enum ktype type, const void *x, void *y, void *saved, const struct k_grad *g)
{
    const char *op = o->node->op->name;
    const struct k_shape s = {type, o->c.n, rig_in_points(o, 0), (int)rig_in_channels(o, 0)};
    if (strcmp(op, "max_pool") == 0 || strcmp(op, "avg_pool") == 0) {
        struct k_window w = window_of(o, type);
        if (strcmp(op, "max_pool") == 0)
            return g ? k_max_pool_back(NULL, &w, saved, g) : k_max_pool(NULL, &w, x, y, saved);
        return g ? k_avg_pool_back(NULL, &w, g) : k_avg_pool(NULL, &w, x, y);
    }
    if (strcmp(op, "global_avg_pool") == 0) return g ? k_mean_back(NULL, &s, g) : k_mean(NULL, &s, x, y);
    if (strcmp(op, "flatten") == 0 && o->node->attr[0].i[0]) {   /* channels stay last */
        const size_t n = (size_t)(s.n * s.points * s.c);
        return g ? k_copy(NULL, type, n, g->gy, g->gx, g->acc) : k_copy(NULL, type, n, x, y, false);
    }
    if (strcmp(op, "flatten") == 0) return g ? k_flatten_back(NULL, &s, g) : k_flatten(NULL, &s, x, y);
    ck_assert_str_eq(op, "dropout");
    const struct k_mask mask = {s, o->node->attr[0].r, 0, &o->block, o->sample};
    return g ? k_dropout(NULL, &mask, g->gy, g->gx, g->acc) : k_dropout(NULL, &mask, x, y, false);
}

static void unary(const char *op, const char *example, enum ktype type, bool acc, int n)
{
    struct rig_op o;
    rig_op_open(&o, op, example, type, n);
    int64_t c = rig_in_channels(&o, 0), points = rig_in_points(&o, 0), out = n * o.channels * o.points;
    void *x = rig_last(type, o.c.in[0], n, c, points), *y = rig_new(type, (size_t)out),
         *gy = rig_last(type, o.c.gout, n, o.channels, o.points);
    uint8_t *saved = rig_new(K_F32, (size_t)out);
    OK(call(&o, type, x, y, saved, NULL));
    if (strcmp(op, "max_pool") == 0) {                   /* a layer that keeps nothing gives the same */
        void *again = rig_new(type, (size_t)out);
        OK(call(&o, type, x, again, NULL, NULL));
        ck_assert_int_eq(memcmp(again, y, rig_bytes(type, (size_t)out)), 0);
        free(again);
    }
    rig_check(type, y, o.c.out, NULL, n, o.channels, o.points, 2);
    float *old = rig_normals(type, 70, (size_t)(n * c * points));
    void *gx = rig_place(type, old, acc, n, c, points);
    OK(call(&o, type, x, NULL, saved, &(struct k_grad){gy, gx, acc}));
    rig_check(type, gx, o.c.gin[0], acc ? old : NULL, n, c, points, 2);
    free(x), free(gy), free(saved), free(old);
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

/* _i: type, adding, values among them that are no numbers, or infinite: what comes out is what the reference makes of
 * them. The examples of the operators, and some more. */
START_TEST(unary_operators)
{
    static const char *const ops[] = {"max_pool", "avg_pool", "global_avg_pool", "flatten", "dropout"};
    rig_odd(_i >> 2);
    for (int way = 0; way < 2; way++) {
        rig_way(way);
        for (size_t k = 0; k < sizeof ops / sizeof *ops; k++)
            for (const char *const *e = op_find(ops[k])->examples; *e; e++)
                if (!strstr(*e, "channels=yes")) unary(ops[k], *e, TYPE(_i), ACC(_i), 3);
        for (size_t k = 0; k < sizeof more / sizeof *more; k++)
            unary(more[k].op, more[k].example, TYPE(_i), ACC(_i), 2);
    }
}
END_TEST

/* The first of equals wins, and what is no number wins over all. */
START_TEST(max_pool_of_odd_values)
{
    struct k_window w = {TYPE(_i), 1, 1, {1, 1, 4}, {1, 1, 2}, {1, 1, 2}, {1, 1, 2}, {0, 0, 0}};
    static const float x[] = {2, 2, NAN, 5};
    void *v = rig_array(TYPE(_i), x, 4), *y = rig_new(TYPE(_i), 2);
    uint8_t where[2];
    OK(k_max_pool(NULL, &w, v, y, where));
    ck_assert(rig_at(TYPE(_i), y, 0) == 2 && isnan(rig_at(TYPE(_i), y, 1)) && where[0] == 0 && where[1] == 0);
    free(v), free(y);
}
END_TEST

static void concat_of(const char *example, enum ktype type, bool acc)
{
    struct rig_op o;
    rig_op_open(&o, "concat", example, type, 3);
    int64_t rows = o.c.n * o.points, width = o.channels;
    struct k_slice s = {.type = type, .rows = rows, .width = (int)width};
    void *y = rig_new(type, (size_t)(rows * width)), *gy = rig_last(type, o.c.gout, o.c.n, width, o.points);
    for (int k = 0; k < o.node->n_in; k++, s.first += s.c) {
        int64_t c = s.c = (int)rig_in_channels(&o, k);
        void *x = rig_last(type, o.c.in[k], o.c.n, c, o.points);
        float *old = rig_normals(type, 70, (size_t)(rows * c));
        void *gx = rig_place(type, old, acc, o.c.n, c, o.points);
        OK(k_concat(NULL, &s, x, y));
        OK(k_concat_back(NULL, &s, &(struct k_grad){gy, gx, acc}));
        rig_check(type, gx, o.c.gin[k], acc ? old : NULL, o.c.n, c, o.points, 0);
        free(x), free(old);
    }
    rig_check(type, y, o.c.out, NULL, o.c.n, width, o.points, 0);
    free(gy);
    rig_op_close(&o);
}

/* _i: as above. */
START_TEST(concat)
{
    rig_odd(_i >> 2);
    for (int way = 0; way < 2; way++) {
        rig_way(way);
        for (const char *const *e = op_find("concat")->examples; *e; e++) concat_of(*e, TYPE(_i), ACC(_i));
        concat_of("64x5x5 + 32x5x5", TYPE(_i), ACC(_i));
    }
}
END_TEST

/* As y, with zeros behind the channels that are used; and back. */
static void padded_is(const struct k_shape *s, const float *x, const void *y)
{
    size_t all = (size_t)(s->n * s->points), c = (size_t)s->c;
    void *z = rig_new(K_BF16, all * K_PADDED);
    float *back = rig_new(K_F32, all * c);
    OK(k_import_padded(NULL, s, x, z));
    OK(k_export_padded(NULL, s, z, back));
    for (size_t i = 0; i < all; i++)
        for (size_t k = 0; k < K_PADDED; k++) {
            float want = k < c ? rig_at(K_BF16, y, i * c + k) : 0;
            if (rig_at(K_BF16, z, i * K_PADDED + k) != want) ck_abort_msg("point %d, channel %d", (int)i, (int)k);
        }
    for (size_t k = 0; k < all * c; k++)
        if (back[k] != rig_round(K_BF16, x[k])) ck_abort_msg("element %d of what comes back", (int)k);
    rig_guard(K_BF16, z, all * K_PADDED);
    rig_guard(K_F32, back, all * c);
    rig_same(z, all * K_PADDED * 2);
    free(z), free(back);
    ck_assert_int_ne(k_import_padded(NULL, &(struct k_shape){K_BF16, 1, 1, K_PADDED + 1}, x, NULL), 0);
    ck_assert_int_ne(k_import_padded(NULL, &(struct k_shape){K_F32, 1, 1, 1}, x, NULL), 0);
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
            const struct k_shape s = {TYPE(_i), n, p, (int)c};
            float *x = rig_normals(K_F32, 1, (size_t)(n * c * p)), *back = rig_new(K_F32, (size_t)(n * c * p));
            void *y = rig_new(TYPE(_i), (size_t)(n * c * p));
            OK(k_import(NULL, &s, x, y));
            OK(k_export(NULL, &s, y, back));
            for (int64_t k = 0; k < n * c * p; k++)
                if (back[k] != rig_round(TYPE(_i), x[k])) ck_abort_msg("element %d", (int)k);
            rig_guard(K_F32, back, (size_t)(n * c * p));
            if (TYPE(_i) == K_BF16 && c <= K_PADDED) padded_is(&s, x, y);
            rig_check(TYPE(_i), y, x, NULL, n, c, p, 0);
            free(x), free(back);
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
    TCase *t = suite_case("kernels", 60);
    tcase_add_loop_test(t, elementwise, 0, 4);
    tcase_add_loop_test(t, relu_of_odd_values, 0, 2);
    tcase_add_test(t, bf16_rounding);
    tcase_add_test(t, hold_takes_its_time);
    tcase_add_loop_test(t, bias, 0, 8);
    tcase_add_loop_test(t, unary_operators, 0, 8);
    tcase_add_loop_test(t, max_pool_of_odd_values, 0, 2);
    tcase_add_loop_test(t, concat, 0, 8);
    tcase_add_loop_test(t, import_and_export, 0, 2);
    return suite_run("kernels", CK_FORK, t);
}
