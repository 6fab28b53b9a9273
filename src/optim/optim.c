/* The table of optimizers, and their loops for CPUs. */
#include <assert.h>
#include <string.h>
#include "optim/optim.h"

/* As fast as memory: the compiler moves the step's branches out of the loop and vectorises it. -O2 does not (and square
 * roots vectorise only with -fno-math-errno, see src.am). */
#define FAST __attribute__((optimize("O3")))

FAST static void average_loop(float *restrict average, const float *restrict w, float fresh, size_t n)
{
    for (size_t i = 0; i < n; i++) average[i] = average_element(average[i], w[i], fresh);
}

/* For a weight with N states. */
#define EACH_ELEMENT(rule, N) \
    for (size_t i = 0; i < n; i++) { \
        float at[MAX_STATE] = {(N) > 0 ? m[i] : 0, (N) > 1 ? v[i] : 0}; \
        w[i] = rule##_element(&s, w[i], g[i], at); \
        if ((N) > 0) m[i] = at[0]; \
        if ((N) > 1) v[i] = at[1]; \
    }

/* Adds up the lanes of a sum. */
FAST static double lanes_join(double *lane)
{
    for (int half = OPTIM_LANES / 2; half; half /= 2)
        for (int k = 0; k < half; k++) lane[k] += lane[k + half];
    return lane[0];
}

/* n: at most OPTIM_TILE */
FAST static double tile_sum(const double *term, size_t n)
{
    double lane[OPTIM_LANES] = {0};
    for (size_t i = 0; i < n; i++) lane[i / 4 % OPTIM_LANES] += term[i];
    return lanes_join(lane);
}

static void totals(double *sums, size_t tiles)
{
    for (int k = 0; k < OPTIM_SUMS; k++) {
        double lane[OPTIM_LANES] = {0};
        for (size_t i = 0; i < tiles; i++) lane[i % OPTIM_LANES] += sums[(1 + i) * OPTIM_SUMS + (size_t)k];
        sums[k] = lanes_join(lane);
    }
}

#define OPTIM_RULE(rule, said, kept, ...) \
    static const char *const rule##_buffer[MAX_STATE] = kept; \
    RULE(rule, said, false, rule##_begin(b, w), __VA_ARGS__)

#define OPTIM_RULE_WHOLE(rule, said, kept, ...) \
    static const char *const rule##_buffer[MAX_STATE] = kept; \
    FAST static void rule##_tile(const struct rule##_step *s, const float *restrict w, const float *restrict g, \
                                 float *restrict m, float *restrict v, size_t n, double *restrict sums) \
    { \
        double term[OPTIM_SUMS][OPTIM_TILE]; \
        for (size_t i = 0; i < n; i++) { \
            float at[MAX_STATE] = {m[i], v[i]}; \
            double one[OPTIM_SUMS]; \
            rule##_first(s, w[i], g[i], at, one); \
            m[i] = at[0], v[i] = at[1]; \
            term[0][i] = one[0], term[1][i] = one[1]; \
        } \
        for (int k = 0; k < OPTIM_SUMS; k++) sums[k] = tile_sum(term[k], n); \
    } \
    static struct rule##_step rule##_step_of(const struct be_block *b, const struct be_weight *w) \
    { \
        struct rule##_step s = rule##_begin(b, w); \
        float *m = w->state, *v = m + optim_stride(w->n); \
        double *sums = w->sums + OPTIM_SUMS; \
        for (size_t i = 0; i < w->n; i += OPTIM_TILE, sums += OPTIM_SUMS) \
            rule##_tile(&s, w->w + i, w->g + i, m + i, v + i, w->n - i < OPTIM_TILE ? w->n - i : OPTIM_TILE, sums); \
        totals(w->sums, optim_tiles(w->n)); \
        rule##_whole(&s, w->sums); \
        return s; \
    } \
    RULE(rule, said, true, rule##_step_of(b, w), __VA_ARGS__)

#define RULE(rule, said, over_whole, step, ...) \
    FAST static void rule##_loop(struct rule##_step s, float *restrict w, const float *restrict g, \
                                 float *restrict m, float *restrict v, size_t n, int states) \
    { \
        if (states == 0) EACH_ELEMENT(rule, 0) \
        else if (states == 1) EACH_ELEMENT(rule, 1) \
        else EACH_ELEMENT(rule, 2) \
    } \
    static void rule##_update(const struct be_weight *w, const struct be_block *b) \
    { \
        float *next = w->state ? w->state + optim_stride(w->n) : NULL; \
        if (w->g) rule##_loop(step, w->w, w->g, w->state, next, w->n, rule##_states(b->hyper)); \
        if (w->average) average_loop(w->average, w->w, (float)b->fresh, w->n); \
    } \
    static const struct optim_kind optim_##rule = { \
        .name = #rule, .text = said, .key = {__VA_ARGS__}, .states = rule##_states, .buffer = rule##_buffer, \
        .whole = over_whole, .once = rule##_once, .update = rule##_update};
#define OPTIM_FILES
#include "registry.inc"

#define OPTIM(x) &optim_##x,
const struct optim_kind *const optim_list[] = {
#include "registry.inc"
    NULL
};

int optim_find(const char *name)
{
    int i = 0;
    while (optim_list[i] && strcmp(optim_list[i]->name, name) != 0) i++;
    return optim_list[i] ? i : -1;
}

int optim_of(const struct conf *c)
{
    return (int)c->train.optimizer - 1;                  /* the option's words are optim_list */
}

void optim_hyper(const struct conf *c, double hyper[MAX_HYPER])
{
    const struct optim_kind *k = optim_list[optim_of(c)];
    for (int i = 0; i < MAX_HYPER; i++) hyper[i] = k->key[i] ? conf_number(c, k->key[i]) : 0;
}

struct state_buffers optim_buffers(const struct conf *c)
{
    const struct optim_kind *k = optim_list[optim_of(c)];
    double hyper[MAX_HYPER];
    if (c->run.evaluate) return (struct state_buffers){.fixed = true};
    optim_hyper(c, hyper);
    return (struct state_buffers){k->states(hyper), k->buffer, c->train.ema > 0, .whole = k->whole};
}
