/* The GPU's kernels of batch norm, as in t_kernels.c: alone, with an addition, with ReLU, each aliasing that kernels.h
 * allows, whole in one launch and in parts. */
#include <math.h>
#include <stdio.h>
#include <string.h>
#include "kernels_rig.h"
#include "model/ops/batch_norm.h"

static const struct { const char *example; int n;
} shapes[] = {
    {"3x4x4", 3},
    {"16x5x5", 2},
    {"2x3", 3},
    {"4x2x3x2", 3},
    {"32x4x4 eps=0.001", 3},
    {"8x1x1", 1},
    {"1x2x1", 1},
    {"40", 7},
    {"2048x2x2", 5},
    {"32773", 6}, /* more slabs than there are counters: one launch needs none */
    /* more than one launch can do at once: rows in parts, several slabs of channels, odd channels */
    {"8x56x56", 1},
    {"64x14x14", 4},
    {"264x14x14", 4},
    {"100x28x28", 1},
    {"7x33x25", 1},
    /* so many parts that they are added in groups: one slab and several, the last group and the last part short */
    {"256x28x28", 2},
    {"320x20x19", 4},
    {"64x40x41", 4},
    {"256x80x80", 1},
};
/* With these, every third form, and every ninth. */
enum { N_SHAPES = sizeof shapes / sizeof *shapes, LARGE = N_SHAPES - 10, HUGE = N_SHAPES - 4 };
static bool slowest(int shape) { return shape == LARGE || shape == N_SHAPES - 1; }

/* What one test does. */
struct form {
    enum ktype type;
    bool relu, add;
    int y_over;                                          /* 1: y is x, 2: y is add */
    /* 0: not wanted, 1: written, 2: added to, 3: written over gy */
    int g_add;
    /* 0: not wanted, 1: written, 2: added to, 3: written over gy */
    int gx;
    bool gp, gp_acc, guess;                              /* guess: y is not given */
    bool fixed;                                          /* by running statistics, forward and backward */
    bool odd;                                            /* some channels have a value that is no number, or infinite */
};

struct one {
    struct rig_op o;
    int64_t n, c, points, count;
    float *add, *gy;
    struct k_norm k;
    void *work;
    size_t work_floats;
};

/* NaN in channels `first` and every eighth after it; infinities of either sign in the two behind each. */
static void odd_in(const struct one *t, float *x, int64_t first, bool infinite)
{
    static const float value[] = {NAN, INFINITY, -INFINITY};
    for (int64_t k = first; k < t->c; k += 8)
        for (int64_t i = 0; i < (infinite ? 3 : 1) && k + i < t->c; i++)
            x[((t->n - 1) * t->c + k + i) * t->points + k % t->points] = value[i];
}

/* Values that lie away from zero, further in some channels than in others. */
static void one_open(struct one *t, int shape, const struct form *f)
{
    struct rig_op *o = &t->o;
    rig_op_open(o, "batch_norm", shapes[shape].example, f->type, shapes[shape].n);
    t->n = o->c.n, t->c = o->channels, t->points = o->points, t->count = t->n * t->c * t->points;
    float *x = (float *)(uintptr_t)o->c.in[0], *var = o->c.param[BN_VAR];
    for (int64_t i = 0; i < t->count; i++) x[i] = rig_round(f->type, x[i] * 2 + (float)(i / t->points % t->c % 5) * 8);
    if (f->odd) odd_in(t, x, 1, true);
    o->node->op->forward(&o->c);
    for (int64_t k = 0; k < t->c; k++) var[k] = fabsf(var[k]) + 0.1f;
    t->add = rig_normals(f->type, 80, (size_t)t->count);
    t->gy = rig_normals(f->type, 81, (size_t)t->count);
    if (f->odd) odd_in(t, t->add, 4, false), odd_in(t, t->gy, 5, true);
    t->k = (struct k_norm){f->type, t->n * t->points, (int)t->c, bn_eps(o->node), f->relu,
                          o->c.param[BN_WEIGHT], o->c.param[BN_BIAS], rig_counters};
    t->work_floats = k_norm_work(t->k.rows, t->k.c) / 4;
    t->work = rig_new(K_F32, t->work_floats);
}

static void one_close(struct one *t)
{
    rig_guard(K_F32, t->work, t->work_floats);
    for (int i = 0; i < K_COUNTERS; i++) ck_assert_uint_eq(rig_counters[i], 0);
    free(t->add), free(t->gy), free(t->work);
    rig_op_close(&t->o);
}

static void *last(const struct one *t, enum ktype type, const float *x)
{
    return rig_last(type, x, t->n, t->c, t->points);
}
static size_t bytes(const struct one *t, enum ktype type) { return rig_bytes(type, (size_t)t->count); }

/* relu?(bn(x) + add?) in the reference's order. */
static float *expected(const struct one *t, const struct form *f)
{
    float *want = mem_alloc((size_t)t->count * sizeof *want);
    for (int64_t i = 0; i < t->count; i++) {
        want[i] = ((const float *)t->o.c.out)[i] + (f->add ? t->add[i] : 0);
        if (f->relu && want[i] <= 0) want[i] = 0;
    }
    return want;
}

/* Checks a copy: y itself is needed further on. */
static void check_copy(const struct one *t, enum ktype type, const void *y, const float *want)
{
    void *copy = rig_new(type, (size_t)t->count);
    memcpy(copy, y, bytes(t, type));
    rig_check(type, copy, want, NULL, t->n, t->c, t->points, 64);
}

static void saved_check(const struct one *t, const double *got)
{
    const double *want = t->o.c.saved;
    for (int64_t k = 0; k < t->c; k++) {
        double deviation = sqrt(want[t->c + k]);
        if (!isfinite(want[t->c + k])) {
            if (isfinite(got[t->c + k])) ck_abort_msg("variance of channel %d is finite", (int)k);
            continue;
        }
        /* each block's mean is a float, and so are the differences from it that a thread squares */
        if (!(fabs(got[k] - want[k]) <= 0x1p-22 * (fabs(want[k]) + deviation)))
            ck_abort_msg("mean of channel %d: %.12g, the reference has %.12g", (int)k, got[k], want[k]);
        if (!(fabs(got[t->c + k] - want[t->c + k]) <= 0x1p-18 * want[t->c + k] + 0x1p-40 * want[k] * want[k]))
            ck_abort_msg("variance of channel %d: %.12g, the reference has %.12g", (int)k, got[t->c + k],
                         want[t->c + k]);
    }
    rig_same(got, 2 * (size_t)t->c * sizeof *got);
}

static void *train(struct one *t, const struct form *f, void *x, void *add, double *saved)
{
    float *want = expected(t, f);
    void *y = f->y_over == 1 ? x : f->y_over == 2 ? add : rig_new(f->type, (size_t)t->count);
    OK(k_norm_train(NULL, &t->k, &(struct k_norm_sum){x, f->add ? add : NULL, y}, saved, t->work));
    saved_check(t, saved);
    check_copy(t, f->type, y, want);
    free(want);
    return y;
}

/* Returns y. */
static void *eval(struct one *t, const struct form *f, void *x, void *add)
{
    t->o.c.train = false;
    t->o.node->op->forward(&t->o.c);
    t->o.c.train = true;
    float *want = expected(t, f);
    void *y = rig_new(f->type, (size_t)t->count);
    const struct k_norm_sum sum = {x, f->add ? add : NULL, y};
    OK(k_norm_eval(NULL, &t->k, &sum, t->o.c.param[BN_MEAN], t->o.c.param[BN_VAR]));
    check_copy(t, f->type, y, want);
    free(want);
    t->o.node->op->forward(&t->o.c);
    return y;
}

/* The reference's backward pass from the masked gradient; the mask is that of the output as the kernel stored it. */
static float *masked_back(struct one *t, const struct form *f, const void *y)
{
    float *g = (float *)(uintptr_t)t->o.c.gout;
    for (int64_t i = 0; i < t->n; i++)
        for (int64_t k = 0; k < t->c; k++)
            for (int64_t s = 0; s < t->points; s++) {
                int64_t at = (i * t->c + k) * t->points + s;
                g[at] = f->relu && rig_at(f->type, y, (size_t)((i * t->points + s) * t->c + k)) <= 0 ? 0 : t->gy[at];
            }
    t->o.c.train = !f->fixed;
    t->o.node->op->backward_data(&t->o.c);
    t->o.c.train = true;
    return g;
}

/* The largest slope: gradients of about 1 are scaled by it, and what is left after subtracting their mean may be next
 * to nothing. */
static double steepest(const struct one *t)
{
    double most = 0;
    for (int64_t k = 0; k < t->c; k++) {
        double var = ((const double *)t->o.c.saved)[t->c + k];
        if (isfinite(var)) most = fmax(most, fabs(t->k.weight[k]) / sqrt(var + t->k.eps));
    }
    return most;
}

static void back(struct one *t, const struct form *f, const void *x, const void *y, const double *saved)
{
    float *g = masked_back(t, f, y), *old = rig_normals(f->type, 82, (size_t)t->count),
          *old_p = rig_normals(K_F32, 83, (size_t)t->c);
    void *gy = last(t, f->type, t->gy),
         *fresh[2] = {f->g_add == 2 ? last(t, f->type, old) : rig_new(f->type, (size_t)t->count),
                      f->gx == 2 ? last(t, f->type, old) : rig_new(f->type, (size_t)t->count)};
    float *gw = f->gp_acc ? rig_array(K_F32, old_p, (size_t)t->c) : rig_new(K_F32, (size_t)t->c);
    float *gb = f->gp_acc ? rig_array(K_F32, old_p, (size_t)t->c) : rig_new(K_F32, (size_t)t->c);
    struct k_norm_grad to = {
        .x = x, .y = f->guess || !f->relu ? NULL : y, .gy = gy, .saved = f->fixed ? NULL : saved,
        .g_add = f->g_add == 3 ? gy : f->g_add ? fresh[0] : NULL, .gx = f->gx == 3 ? gy : f->gx ? fresh[1] : NULL,
        .g_add_acc = f->g_add == 2, .gx_acc = f->gx == 2,
        .gw = f->gp ? gw : NULL, .gb = f->gp ? gb : NULL, .gp_acc = f->gp_acc,
        .mean = t->o.c.param[BN_MEAN], .var = t->o.c.param[BN_VAR],
    };
    OK(k_norm_back(NULL, &t->k, &to, t->work));
    if (f->gp) {
        rig_check(K_F32, gw, t->o.c.pgrad[BN_WEIGHT], f->gp_acc ? old_p : NULL, 1, t->c, 1, 256);
        rig_check(K_F32, gb, t->o.c.pgrad[BN_BIAS], f->gp_acc ? old_p : NULL, 1, t->c, 1, 256);
    } else free(gw), free(gb);
    if (f->g_add != 3 && f->gx != 3) check_copy(t, f->type, gy, t->gy);   /* an input stays as it was */
    if (f->g_add) rig_check(f->type, to.g_add, g, f->g_add == 2 ? old : NULL, t->n, t->c, t->points, 0);
    if (f->gx)
        rig_check_near(f->type, to.gx, t->o.c.gin[0], f->gx == 2 ? old : NULL, t->n, t->c, t->points, 256, steepest(t));
    for (int i = 0; i < 2; i++) if (fresh[i] != to.g_add && fresh[i] != to.gx) free(fresh[i]);
    if (gy != to.g_add && gy != to.gx) free(gy);
    free(old), free(old_p);
}

/* _i: a shape and a type. All forms that fit together. */
START_TEST(norm)
{
    static const struct form forms[] = {
        {.gx = 1, .gp = true},
        {.y_over = 1, .gx = 3, .gp = true, .gp_acc = true},
        {.relu = true, .gx = 1, .gp = true},
        {.relu = true, .gx = 2, .gp = true, .gp_acc = true, .guess = true},
        {.relu = true, .gx = 3, .gp = true, .guess = true},
        {.relu = true, .add = true, .gx = 1, .g_add = 1, .gp = true},
        {.relu = true, .add = true, .gx = 2, .g_add = 2, .gp = true},
        {.relu = true, .add = true, .y_over = 2, .gx = 1, .g_add = 3, .gp = true},
        {.relu = true, .add = true, .gx = 2, .g_add = 3, .gp = true, .gp_acc = true},
        {.relu = true, .add = true, .gx = 3, .gp = true},
        {.relu = true, .add = true, .g_add = 1, .gp = true},
        {.add = true, .gx = 1, .g_add = 2},
        {.relu = true, .gp = true},
        {.gx = 1, .gp = true, .odd = true},
        {.relu = true, .gx = 1, .gp = true, .odd = true},
        {.relu = true, .gx = 3, .gp = true, .guess = true, .odd = true},
        {.relu = true, .add = true, .gx = 1, .g_add = 1, .gp = true, .odd = true},
        {.relu = true, .add = true, .gx = 2, .g_add = 2, .gp = true, .odd = true},
        {.relu = true, .add = true, .gx = 1, .g_add = 3, .gp = true, .odd = true},
        {.gx = 1, .fixed = true},
        {.relu = true, .gx = 3, .guess = true, .fixed = true},
        {.relu = true, .add = true, .gx = 1, .g_add = 1, .fixed = true},
        {.relu = true, .add = true, .gx = 2, .g_add = 2, .fixed = true},
    };
    if (IS_SANITIZED && _i % N_SHAPES % 2 != _i / N_SHAPES) return;   /* each shape in one type */
    for (int way = 0; way < 3 && !(IS_SANITIZED && slowest(_i % N_SHAPES)); way++) {
        if (IS_SANITIZED && _i % N_SHAPES >= LARGE && way == 1 + _i % 2) continue;
        if (rig_cases() == CASES_FEW && way == 2) continue;
        rig_way(way);
        for (size_t i = 0; i < sizeof forms / sizeof *forms; i++) {
            if (_i % N_SHAPES >= (IS_SANITIZED ? 1 : LARGE) && (int)i % 3 != _i % 3) continue;
            /* each form in each type and each shape, in every other shape of a type and type of a shape */
            if (rig_cases() != CASES_ALL && ((int)i + _i % N_SHAPES + _i / N_SHAPES) % 2) continue;
            if (_i % N_SHAPES >= HUGE && ((int)i % 9 != _i % 9 || (IS_SANITIZED && i >= 9))) continue;
            struct form f = forms[i];
            struct one t;
            f.type = _i / N_SHAPES ? K_BF16 : K_F32;
            one_open(&t, _i % N_SHAPES, &f);
            void *x = last(&t, f.type, t.o.c.in[0]), *x_kept = last(&t, f.type, t.o.c.in[0]),
                 *add = last(&t, f.type, t.add);
            double *saved = rig_new(K_F32, 4 * (size_t)t.c);
            void *y = f.y_over ? NULL : eval(&t, &f, x, add);
            if (!f.fixed) free(y), y = train(&t, &f, x, add, saved);
            back(&t, &f, x_kept, y, saved);
            rig_guard(K_F32, saved, 4 * (size_t)t.c);
            if (y != x && y != add) free(y);
            free(x), free(x_kept), free(add), free(saved);
            one_close(&t);
        }
    }
}
END_TEST

/* Values far from zero, all equal but for one in each channel: the variance must not drown. */
START_TEST(norm_far_from_zero)
{
    enum { ROWS = 4096, C = 4 };
    struct form f = {.type = K_F32};
    float *x = mem_alloc(ROWS * C * sizeof *x), weight[C] = {1, 1, 1, 1}, bias[C] = {0};
    double saved[2 * C];
    for (int i = 0; i < ROWS * C; i++) x[i] = 4096 + (i / C == 0);
    void *v = rig_array(f.type, x, ROWS * C), *y = rig_new(f.type, ROWS * C),
         *work = rig_new(K_F32, k_norm_work(ROWS, C) / 4);
    OK(k_norm_train(NULL, &(struct k_norm){K_F32, ROWS, C, 1e-5, false, weight, bias, rig_counters},
                    &(struct k_norm_sum){v, NULL, y}, saved, work));
    for (int k = 0; k < C; k++) {
        ck_assert_double_eq_tol(saved[k], 4096 + 1.0 / ROWS, 1e-3);
        ck_assert_double_eq_tol(saved[C + k], 1.0 / ROWS, 1e-6);
    }
    free(x), free(v), free(y), free(work);
}
END_TEST

/* _i: deferred. Batch norms of several sizes in one launch, micro-batches of two; every bit as in op_batch_norm. */
START_TEST(norm_running)
{
    enum { N = 4, NORMS = 3, MOST = 600 };
    static const struct { const char *example; int c, points; double momentum; } each[NORMS] = {
        {"37x5x3 momentum=0.3", 37, 15, 0.3}, {"600x2", 600, 2, 0.1}, {"256x1x1 momentum=0.5", 256, 1, 0.5}};
    const int samples[N] = {5, 5, 5, 2};
    const double *saved[NORMS * N];
    struct k_running of[NORMS];
    int64_t count[NORMS] = {11, 0, 7}, want_count[NORMS] = {11, 0, 7};
    float *want[NORMS];
    for (int j = 0; j < NORMS; j++) {
        struct rig_op o;
        const int c = each[j].c;
        rig_op_open(&o, "batch_norm", each[j].example, K_F32, 2);
        for (int i = 0; i < N; i++) {
            double *e = mem_alloc((size_t)c * 2 * sizeof *e);
            float *x = rig_normals(K_F32, 10 + (uint32_t)(j * N + i), (size_t)c * 2);
            for (int k = 0; k < 2 * c; k++) e[k] = k < c ? x[k] : fabs((double)x[k]);
            saved[j * N + i] = e;
            free(x);
        }
        of[j] = (struct k_running){rig_normals(K_F32, 1, (size_t)c), rig_normals(K_F32, 2, (size_t)c),
                                   &count[j], each[j].points, each[j].momentum, c};
        want[j] = mem_alloc(2 * MOST * sizeof *want[j]);
        memcpy(want[j], of[j].mean, (size_t)c * sizeof(float));
        memcpy(want[j] + MOST, of[j].var, (size_t)c * sizeof(float));
        o.node->op->stats(&(struct op_stats){
            o.g, o.node, _i, N, (const void *const *)saved + j * N, samples,
            (void *[]){NULL, NULL, want[j], want[j] + MOST, &want_count[j]}});
        rig_op_close(&o);
    }
    const struct k_running_step step = {_i, of, NORMS, MOST, N, saved, samples};
    OK(k_norm_running(NULL, &step));
    for (int j = 0; j < NORMS; j++) {
        ck_assert_int_eq(count[j], want_count[j]);
        ck_assert_int_eq(memcmp(of[j].mean, want[j], (size_t)each[j].c * sizeof(float)), 0);
        ck_assert_int_eq(memcmp(of[j].var, want[j] + MOST, (size_t)each[j].c * sizeof(float)), 0);
        free(of[j].mean), free(of[j].var), free(want[j]);
        for (int i = 0; i < N; i++) free((double *)(uintptr_t)saved[j * N + i]);
    }
}
END_TEST

int main(void)
{
    TCase *t = suite_case("kernels_norm", 300);
    suite_loop(t, norm, 2 * N_SHAPES, EVERY(1));
    tcase_add_test(t, norm_far_from_zero);
    tcase_add_loop_test(t, norm_running, 0, 2);
    return suite_run("kernels_norm", CK_FORK, t);
}
