/* Optimizers: their table, their parameters and buffers, and their formulas against values calculated by hand and in
 * double. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "backend/be.h"
#include "base/rng.h"
#include "optim/optim.h"
#include "sure.h"

static void ok(int bad, const struct err *e) { ck_assert_msg(!bad, "%s", e->text); }

/* ---- the table --------------------------------------------------------------------------------------------------- */

START_TEST(names)
{
    for (int i = 0; optim_list[i]; i++) ck_assert_int_eq(optim_find(optim_list[i]->name), i);
    ck_assert_int_eq(optim_find("sgdm"), -1);
}
END_TEST

START_TEST(state_buffers)
{
    struct conf c = {.train = {.optimizer = OPTIM_sgd}};
    ck_assert_int_eq(optim_buffers(&c).n, 0);
    c.train.momentum = 0.9;
    ck_assert_int_eq(optim_buffers(&c).n, 1);
    ck_assert_str_eq(optim_buffers(&c).name[0], "momentum_buffer");
    c.train.optimizer = OPTIM_adamw;
    ck_assert_int_eq(optim_buffers(&c).n, 2);
    ck_assert_str_eq(optim_buffers(&c).name[1], "exp_avg_sq");
    for (int i = 0; optim_list[i]; i++)                   /* all that may be kept has a name */
        for (int k = 0; k < MAX_STATE && k < optim_list[i]->states((double[MAX_HYPER]){0.9, 0.9, 1e-8}); k++)
            ck_assert_ptr_nonnull(optim_list[i]->buffer[k]);
}
END_TEST

/* The options of all optimizers, each once. */
static int all_options(const char *key[], int most)
{
    int n = 0;
    for (int i = 0; optim_list[i]; i++)
        for (int k = 0; k < MAX_HYPER; k++) {
            int at = 0;
            while (at < n && optim_list[i]->key[k] && strcmp(key[at], optim_list[i]->key[k])) at++;
            if (!optim_list[i]->key[k] || at < n) continue;
            ck_assert_int_lt(n, most);
            key[n++] = optim_list[i]->key[k];
        }
    return n;
}

/* A configuration with that optimizer and option (1 of yes or no, else 0.5): what conf_finish says of it, and hyper. */
static int option_set(const struct optim_kind *k, const char *key, double hyper[MAX_HYPER], double *is)
{
    static const char text[] = "model { network = toy } data { source = synthetic } train { steps = 1 }";
    struct conf *c = conf_parse("f.conf", text, strlen(text), NULL);
    char set[64];
    snprintf(set, sizeof set, "train.optimizer=%s", k->name);
    ck_assert_int_eq(conf_set(c, "-o", set, NULL), 0);
    if (!strcmp(key, "train.nesterov")) ck_assert_int_eq(conf_set(c, "-o", "train.momentum=1", NULL), 0);
    snprintf(set, sizeof set, "%s=0.5", key);
    *is = 0.5;
    if (conf_set(c, "-o", set, NULL)) {
        snprintf(set, sizeof set, "%s=yes", key);
        *is = 1;
        ck_assert_msg(conf_set(c, "-o", set, NULL) == 0, "%s takes neither 0.5 nor yes", key);
    }
    int rc = conf_finish(c, NULL);
    optim_hyper(c, hyper);
    conf_free(c);
    return rc;
}

/* Every optimizer takes its own options, and only those. */
START_TEST(options)
{
    const char *key[32];
    int n = all_options(key, 32);
    ck_assert_int_gt(n, 3);
    for (int i = 0; optim_list[i]; i++)
        for (int k = 0; k < n; k++) {
            double hyper[MAX_HYPER], is;
            int rc = option_set(optim_list[i], key[k], hyper, &is), at = 0;
            while (at < MAX_HYPER && !(optim_list[i]->key[at] && !strcmp(optim_list[i]->key[at], key[k]))) at++;
            ck_assert_msg(rc == (at < MAX_HYPER ? 0 : -1), "%s with %s: %d", optim_list[i]->name, key[k], rc);
            if (at < MAX_HYPER) ck_assert(hyper[at] == is);
        }
}
END_TEST

/* ---- SGD --------------------------------------------------------------------------------------------------------- */

/* Values that floats hold exactly; worked out by hand with torch.optim.SGD's formula. Two steps with gradient 1 from
 * weight 2. */
static const struct {
    double learning_rate, clip_coef, momentum, weight_decay; bool nesterov;
    double lr_factor, decay_factor;
    float w1, w2, m2;
} by_hand[] = {
    {0.5, 1, 0, 0, false, 1, 1, 1.5f, 1.0f, 0},
    {0.5, 0.5, 0, 0, false, 1, 1, 1.75f, 1.5f, 0},
    {0.5, 1, 0, 0.25, false, 1, 1, 1.25f, 0.59375f, 0},
    {0.5, 1, 0.5, 0, false, 1, 1, 1.5f, 0.75f, 1.5f},
    {0.5, 1, 0.5, 0.25, false, 1, 1, 1.25f, 0.21875f, 2.0625f},
    {0.5, 1, 0.5, 0, true, 1, 1, 1.25f, 0.375f, 1.5f},
    {0.25, 1, 0, 0.125, false, 2, 2, 1.25f, 0.59375f, 0},
    {0.5, 1, 0, 0.25, false, 1, 0, 1.5f, 1.0f, 0},
};

/* What a configuration of sgd makes of a block. */
static void sgd_set(struct be_block *b, double momentum, double weight_decay, bool nesterov)
{
    struct conf c = {
        .train = {.optimizer = OPTIM_sgd, .momentum = momentum, .weight_decay = weight_decay, .nesterov = nesterov}};
    optim_hyper(&c, b->hyper);
}

START_TEST(sgd_by_hand)
{
    const struct optim_kind *k = optim_list[optim_find("sgd")];
    struct be_block b = {.learning_rate = by_hand[_i].learning_rate, .clip_coef = by_hand[_i].clip_coef};
    float w[3] = {2, 2, 2}, g[3] = {1, 1, 1}, m[3] = {0};
    sgd_set(&b, by_hand[_i].momentum, by_hand[_i].weight_decay, by_hand[_i].nesterov);
    struct be_weight one = {w, g, k->states(b.hyper) ? m : NULL, NULL, 3, by_hand[_i].lr_factor,
                            by_hand[_i].decay_factor, NULL};
    ck_assert_int_eq(k->states(b.hyper), by_hand[_i].momentum > 0);
    k->update(&one, &b);
    for (int i = 0; i < 3; i++) ck_assert_float_eq(w[i], by_hand[_i].w1);
    k->update(&one, &b);
    for (int i = 0; i < 3; i++) {
        ck_assert_float_eq(w[i], by_hand[_i].w2);
        if (one.state) ck_assert_float_eq(m[i], by_hand[_i].m2);
    }
}
END_TEST

/* _i: bit 0 momentum, 1 nesterov, 2 weight decay, 3 clipping. */
START_TEST(sgd_in_double)
{
    enum { N = 1003, STEPS = 10 };
    const struct be_ops *ops = be_find("reference");
    struct selection s = {.dev = {.block = 1}};
    struct err e = {0};
    struct be *be;
    float w[N], g[N], m[N] = {0};
    double dw[N], dm[N];
    struct be_block b = {.learning_rate = 0.1, .clip_coef = _i & 8 ? 0.3 : 1};
    double momentum = _i & 1 ? 0.9 : 0, decay = _i & 4 ? 0.01 : 0;
    sgd_set(&b, momentum, decay, _i & 2);
    ok(ops->open(&s, 1, 0, &be, &e), &e);
    rng_fill_normal((struct rng_at){1, RNG_TEST}, w, N);
    for (int i = 0; i < N; i++) dw[i] = w[i];
    for (int step = 0; step < STEPS; step++) {
        rng_fill_normal((struct rng_at){1, RNG_TEST, 1, (uint32_t)step}, g, N);
        ok(ops->update(be, optim_find("sgd"), &(struct be_weight){w, g, _i & 1 ? m : NULL, NULL, N, 1, 1}, 1, &b, &e),
           &e);
        for (int i = 0; i < N; i++) {
            double d = (double)g[i] * b.clip_coef + decay * dw[i];
            if (momentum > 0) {
                dm[i] = step ? momentum * dm[i] + d : d;
                d = _i & 2 ? d + momentum * dm[i] : dm[i];
            }
            dw[i] -= b.learning_rate * d;
        }
    }
    /* About eight roundings a step of values below 64, each at most 2^-24 relative, some weighted by the rate: 1e-4 is
     * far above that and far below what a wrong term would change (at least 0.01 of one gradient). */
    for (int i = 0; i < N; i++) ck_assert_double_eq_tol(w[i], dw[i], 1e-4);
    ops->close(be);
}
END_TEST

/* ---- AdamW ------------------------------------------------------------------------------------------------------- */

/* A first step whose every value floats hold exactly: m 1, v 1, sqrt(v) over its correction 2. */
START_TEST(adamw_by_hand)
{
    struct conf c = {.train = {.optimizer = OPTIM_adamw, .beta1 = 0.5, .beta2 = 0.75, .epsilon = 1e-30,
                               .weight_decay = 0.5}};
    const struct optim_kind *k = optim_list[optim_of(&c)];
    struct be_block b = {.learning_rate = 0.25, .clip_coef = 0.5, .update = 1};
    float w[3] = {2, 2, -2}, g[3] = {4, -4, 4}, state[32] = {0};
    optim_hyper(&c, b.hyper);
    k->once(&b);
    k->update(&(struct be_weight){w, g, state, NULL, 3, 1, 1, NULL}, &b);
    ck_assert(w[0] == 1.5f && w[1] == 2.0f && w[2] == -2.0f);
    for (int i = 0; i < 3; i++) ck_assert(state[i] == g[i] / 4 && state[optim_stride(3) + (size_t)i] == 1);
}
END_TEST

/* torch.optim.AdamW's formula, as its manual writes it, in double. _i: bit 0 weight decay, 1 clipping, 2 the other end
 * of lerp_, 3 factors of the weight. */
START_TEST(adamw_in_double)
{
    enum { N = 1003, STEPS = 20 };
    const double beta1 = _i & 4 ? 0.3 : 0.9, beta2 = 0.99, epsilon = 1e-6, lr = 0.01, clip = _i & 2 ? 0.3 : 1;
    const double decay = _i & 1 ? 0.5 : 0, lr_factor = _i & 8 ? 2 : 1, decay_factor = _i & 8 ? 0 : 1;
    struct conf c = {.train = {.optimizer = OPTIM_adamw, .beta1 = beta1, .beta2 = beta2, .epsilon = epsilon,
                               .weight_decay = decay}};
    const struct optim_kind *kind = optim_list[optim_of(&c)];
    static float w[N], g[N], state[2 * (N + 16)];
    static double dw[N], m[N], v[N];
    struct be_block b = {.learning_rate = lr, .clip_coef = clip};
    memset(state, 0, sizeof state), memset(m, 0, sizeof m), memset(v, 0, sizeof v);
    rng_fill_normal((struct rng_at){1, RNG_TEST}, w, N);
    for (int i = 0; i < N; i++) dw[i] = w[i];
    optim_hyper(&c, b.hyper);
    for (b.update = 1; b.update <= STEPS; b.update++) {
        rng_fill_normal((struct rng_at){1, RNG_TEST, 1, (uint32_t)b.update}, g, N);
        kind->once(&b);
        kind->update(&(struct be_weight){w, g, state, NULL, N, lr_factor, decay_factor, NULL}, &b);
        for (int i = 0; i < N; i++) {
            double t = (double)b.update, d = clip * g[i], rate = lr * lr_factor;
            dw[i] -= rate * decay * decay_factor * dw[i];
            m[i] = beta1 * m[i] + (1 - beta1) * d;
            v[i] = beta2 * v[i] + (1 - beta2) * d * d;
            dw[i] -= rate * (m[i] / (1 - pow(beta1, t))) / (sqrt(v[i] / (1 - pow(beta2, t))) + epsilon);
        }
    }
    /* About ten roundings a step of at most 2^-24 relative, of weights below 5 and of changes below 0.1: 2e-5 is far
     * above that, and a wrong factor in one step alone would change 1e-3. */
    for (int i = 0; i < N; i++) ck_assert_double_eq_tol(w[i], dw[i], 2e-5);
}
END_TEST

/* ---- LAMB -------------------------------------------------------------------------------------------------------- */

/* Algorithm 2 of arXiv:1904.00962 in double. _i: bit 0 weight decay, 1 clipping, 2 a weight of zeros, whose first step
 * is Adam's, 3 factors of the weight. 9001 elements are three tiles, whose order only the last bits can show. */
START_TEST(lamb_in_double)
{
    enum { N = 9001, STEPS = 12 };
    const double beta1 = 0.9, beta2 = 0.99, epsilon = 1e-6, lr = 0.01, clip = _i & 2 ? 0.3 : 1;
    const double decay = _i & 1 ? 0.5 : 0, rate = lr * (_i & 8 ? 2 : 1), factor = _i & 8 ? 0.25 : 1;
    struct conf c = {.train = {.optimizer = OPTIM_lamb, .beta1 = beta1, .beta2 = beta2, .epsilon = epsilon,
                               .weight_decay = decay}};
    const struct optim_kind *kind = optim_list[optim_of(&c)];
    static float w[N], g[N], state[2 * (N + 16)];
    static double dw[N], m[N], v[N], u[N], sums[OPTIM_SUMS * 4];
    struct be_block b = {.learning_rate = lr, .clip_coef = clip};
    ck_assert(kind->whole && optim_sums(N) == sizeof sums / sizeof *sums);
    memset(state, 0, sizeof state), memset(m, 0, sizeof m), memset(v, 0, sizeof v), memset(w, 0, sizeof w);
    if (!(_i & 4)) rng_fill_normal((struct rng_at){1, RNG_TEST}, w, N);
    for (int i = 0; i < N; i++) dw[i] = w[i];
    optim_hyper(&c, b.hyper);
    for (b.update = 1; b.update <= STEPS; b.update++) {
        double t = (double)b.update, of_w = 0, of_u = 0;
        rng_fill_normal((struct rng_at){1, RNG_TEST, 1, (uint32_t)b.update}, g, N);
        kind->once(&b);
        kind->update(&(struct be_weight){w, g, state, NULL, N, rate / lr, factor, NULL, sums}, &b);
        for (int i = 0; i < N; i++) {
            m[i] = beta1 * m[i] + (1 - beta1) * clip * g[i];
            v[i] = beta2 * v[i] + (1 - beta2) * clip * g[i] * clip * g[i];
            u[i] = m[i] / (1 - pow(beta1, t)) / (sqrt(v[i] / (1 - pow(beta2, t))) + epsilon) + decay * factor * dw[i];
            of_w += dw[i] * dw[i], of_u += u[i] * u[i];
        }
        for (int i = 0; i < N; i++) dw[i] -= rate * (of_w > 0 ? sqrt(of_w / of_u) : 1) * u[i];
        ck_assert_double_eq_tol(sums[1], of_u, 1e-5 * of_u);
    }
    for (int i = 0; i < N; i++) ck_assert_double_eq_tol(w[i], dw[i], 2e-5);
}
END_TEST

/* ---- RMSprop ----------------------------------------------------------------------------------------------------- */

/* Values that floats hold exactly: v 0.25 * 16, m 4 / (2 + 2); then a step without gradient and without momentum. */
START_TEST(rmsprop_by_hand)
{
    struct conf c = {.train = {.optimizer = OPTIM_rmsprop, .beta2 = 0.75, .epsilon = 2, .momentum = 0.5}};
    const struct optim_kind *k = optim_list[optim_of(&c)];
    struct be_block b = {.learning_rate = 0.5, .clip_coef = 0.5};
    float w[2] = {2, -2}, g[2] = {8, -8}, state[32] = {0};
    optim_hyper(&c, b.hyper);
    ck_assert_int_eq(k->states(b.hyper), 2);
    k->once(&b);
    k->update(&(struct be_weight){w, g, state, NULL, 2, 1, 1, NULL}, &b);
    ck_assert(w[0] == 1.5f && w[1] == -1.5f && state[0] == 4 && state[optim_stride(2)] == 1);
    c.train.momentum = 0;
    optim_hyper(&c, b.hyper);
    ck_assert_int_eq(k->states(b.hyper), 1);
    k->update(&(struct be_weight){w, (float[2]){0, 0}, state, NULL, 2, 1, 1, NULL}, &b);
    ck_assert(w[0] == 1.5f && state[0] == 3);
}
END_TEST

/* torch.optim.RMSprop's formula, as its manual writes it, in double. _i: bit 0 weight decay, 1 clipping, 2 momentum,
 * 3 factors of the weight. */
START_TEST(rmsprop_in_double)
{
    enum { N = 1003, STEPS = 20 };
    const double alpha = 0.9, epsilon = 0.01, lr = 0.01, clip = _i & 2 ? 0.3 : 1, momentum = _i & 4 ? 0.9 : 0;
    const double decay = _i & 1 ? 0.5 : 0, lr_factor = _i & 8 ? 2 : 1, decay_factor = _i & 8 ? 0.25 : 1;
    struct conf c = {.train = {.optimizer = OPTIM_rmsprop, .beta2 = alpha, .epsilon = epsilon, .momentum = momentum,
                               .weight_decay = decay}};
    const struct optim_kind *kind = optim_list[optim_of(&c)];
    static float w[N], g[N], state[2 * (N + 16)];
    static double dw[N], m[N], v[N];
    struct be_block b = {.learning_rate = lr, .clip_coef = clip};
    memset(state, 0, sizeof state), memset(m, 0, sizeof m), memset(v, 0, sizeof v);
    rng_fill_normal((struct rng_at){1, RNG_TEST}, w, N);
    for (int i = 0; i < N; i++) dw[i] = w[i];
    optim_hyper(&c, b.hyper);
    for (b.update = 1; b.update <= STEPS; b.update++) {
        rng_fill_normal((struct rng_at){1, RNG_TEST, 1, (uint32_t)b.update}, g, N);
        kind->once(&b);
        kind->update(&(struct be_weight){w, g, state, NULL, N, lr_factor, decay_factor, NULL}, &b);
        for (int i = 0; i < N; i++) {
            double d = clip * g[i] + decay * decay_factor * dw[i];
            v[i] = alpha * v[i] + (1 - alpha) * d * d;
            m[i] = momentum * m[i] + d / (sqrt(v[i]) + epsilon);
            dw[i] -= lr * lr_factor * m[i];
        }
    }
    /* Changes are below 0.7 a step with momentum, roundings 2^-24 of them and of weights below 9, which twenty steps
     * and momentum's sum of ten make 2e-4 at most, were they all to one side; a wrong factor changes 1e-2. */
    for (int i = 0; i < N; i++) ck_assert_double_eq_tol(w[i], dw[i], 2e-4);
}
END_TEST

int main(void)
{
    TCase *t = suite_case("optim", 60);
    tcase_add_test(t, names);
    tcase_add_test(t, state_buffers);
    tcase_add_test(t, options);
    tcase_add_test(t, adamw_by_hand);
    tcase_add_loop_test(t, adamw_in_double, 0, 16);
    tcase_add_loop_test(t, lamb_in_double, 0, 16);
    tcase_add_test(t, rmsprop_by_hand);
    tcase_add_loop_test(t, rmsprop_in_double, 0, 16);
    tcase_add_loop_test(t, sgd_by_hand, 0, sizeof by_hand / sizeof *by_hand);
    tcase_add_loop_test(t, sgd_in_double, 0, 16);
    return suite_run("optim", CK_NOFORK, t);
}
