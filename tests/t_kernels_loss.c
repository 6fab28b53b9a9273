/* The GPU's kernels, as in t_kernels.c: losses and scores, the table of an embedding, the optimizers, sums. */
#include <math.h>
#include <string.h>
#include "kernels_rig.h"
#include "optim/optim.h"

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
    struct k_loss k = {.type = type, .n = n, .count = (int)count, .cls = is_class ? o.c.in[1] : NULL,
                       .vec = is_class ? NULL : o.c.in[1], .smoothing = o.node->op->attr ? o.node->attr[0].r : 0};
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
    void *gx = rig_place(type, old, acc, n, count, 1);
    OK(backward(NULL, &k, &o.block, x, gx, acc));
    rig_check(type, gx, o.c.gin[0], acc ? old : NULL, n, count, 1, 0.01);
    free(x), free(loss), free(old);
    rig_op_close(&o);
}

/* _i: type, adding, values among them that are no numbers, or infinite. */
START_TEST(losses)
{
    rig_odd(_i >> 2);
    for (int way = 0; way < 2; way++) {
        rig_way(way);
        for (const char *const *e = op_find("mse")->examples; *e; e++)
            loss_of("mse", *e, TYPE(_i), ACC(_i), k_mse, k_mse_back, 4);
        for (const char *const *e = op_find("softmax_cross_entropy")->examples; *e; e++)
            if (strstr(*e, "class") || strstr(*e, "vector"))
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
    struct k_loss k = {.type = type, .n = n, .count = (int)count, .cls = is_class ? o.c.in[1] : NULL,
                       .vec = is_class ? NULL : o.c.in[1]};
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
    float *gw = rig_place(K_F32, old, acc, 1, k.count * k.c, 1);
    void *work = mem_alloc(k_embed_work(k.n));
    OK(k_embed_back(NULL, type, &k, gy, gw, acc, work));
    free(work);
    rig_check(K_F32, gw, o.c.pgrad[0], acc ? old : NULL, 1, k.count * k.c, 1, 0);
    free(old), free(table), free(gy);
    rig_op_close(&o);
}

/* _i: type, adding. Wide rows, more positions than a block has threads, one row for all. */
START_TEST(embedding)
{
    static const char *const larger[] = {"70 I64 count=3 features=300", "3x100 I32 count=50 features=24",
                                       "300 I32 count=1 features=8", "40 I64 count=1000 features=5",
                                       "150 I32 count=70000 features=1"};
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

/* ---- optimizer, sums ------------------------------------------------------------------------- */

/* Below 8, bit 0: momentum, 1: nesterov; from there, AdamW, Adam, LAMB and RMSprop, bit 0: the other end of lerp_, or
 * momentum, 1: a large epsilon; 2: weight decay. */
static struct conf optimizer(int i)
{
    enum optimizer_word name = i < 8    ? OPTIM_sgd
                                  : i < 16 ? OPTIM_adamw
                                  : i < 24 ? OPTIM_adam
                                  : i < 32 ? OPTIM_lamb
                                           : OPTIM_rmsprop;
    struct conf c = {.train = {.optimizer = name, .weight_decay = i & 4 ? 0.01 : 0}};
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
    *c = (struct be_weight){rig_normals(K_F32, 1, n), rig_normals(K_F32, 2, n), state,
                            i % 4 ? rig_normals(K_F32, 4, n) : NULL, n, 1 + i % 3, i % 2, NULL};
    *k = *c;
    k->w = rig_array(K_F32, c->w, n);
    k->g = rig_array(K_F32, c->g, n);
    k->state = states ? rig_array(K_F32, state, all) : NULL;
    k->packed = i % 3 ? rig_new(K_BF16, n) : NULL;
    if (c->average) k->average = rig_array(K_F32, c->average, n);
    c->sums = (double *)rig_new(K_F32, 2 * optim_sums(n));
    k->sums = (double *)rig_new(K_F32, 2 * optim_sums(n));
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
    rig_guard(K_F32, k->sums, 2 * optim_sums(k->n));
    if (k->average) {
        ck_assert_msg(!memcmp(k->average, c->average, k->n * sizeof(float)), "average of weight %d", i);
        rig_guard(K_F32, k->average, k->n);
    }
    if (states) rig_guard(K_F32, k->state, (size_t)(states - 1) * optim_stride(k->n) + k->n);
    for (size_t e = 0; k->packed && e < k->n; e++)
        if (rig_at(K_BF16, k->packed, e) != rig_round(K_BF16, k->w[e]))
            ck_abort_msg("rounded weight %d, element %zu", i, e);
    if (k->packed) rig_guard(K_BF16, k->packed, k->n);
    void *all[] = {k->w, (float *)(uintptr_t)k->g, k->state, k->packed, c->w, (float *)(uintptr_t)c->g, c->state,
                   k->average, c->average, k->sums, c->sums};
    for (size_t j = 0; j < sizeof all / sizeof *all; j++) free(all[j]);
}

/* _i: bit 0 clipping, then which optimizer. Every bit is that of optim/optim.c. */
START_TEST(optimizers)
{
    static const size_t sizes[] = {1, 3, 4, 64, 4095, 4096, 4097, 20000};
    enum { N_SIZES = sizeof sizes / sizeof *sizes };
    struct conf c = optimizer(_i / 2);
    struct be_block block = {.learning_rate = 0.1, .clip_coef = _i & 1 ? 0.3 : 1, .update = 3,
                             .clip_value = _i & 2 ? 0.5 : 0, .fresh = _i & 1 ? 0.25 : 0.75};
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

/* torch.lerp's two formulas, a first step that copies, and a weight that another rank has updated. */
START_TEST(averages_by_hand)
{
    const struct optim_kind *k = optim_list[optim_find("sgd")];
    struct be_block b = {.learning_rate = 1, .clip_coef = 1, .fresh = 1};
    float w[1] = {2}, g[1] = {-1}, average[1] = {50};
    struct be_weight one = {.w = w, .g = g, .average = average, .n = 1, .lr_factor = 1, .decay_factor = 1};
    k->update(&one, &b);
    ck_assert(w[0] == 3 && average[0] == 3);
    b.fresh = 0.25;
    k->update(&one, &b);
    ck_assert(w[0] == 4 && average[0] == 3.25f);
    one.g = NULL;
    b.fresh = 0.75;
    k->update(&one, &b);
    ck_assert(w[0] == 4 && average[0] == 3.8125f);
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

int main(void)
{
    TCase *t = suite_case("kernels_loss", 60);
    suite_loop(t, losses, 8, EVERY(1));
    tcase_add_loop_test(t, absolute_error, 0, 2);
    suite_loop(t, embedding, 4, EVERY(1));
    tcase_add_loop_test(t, hits, 0, 2);
    suite_loop(t, optimizers, 80, cases_of(i_ % 16 == 0, 1, 1));
    tcase_add_test(t, averages_by_hand);
    tcase_add_test(t, sums);
    return suite_run("kernels_loss", CK_FORK, t);
}
