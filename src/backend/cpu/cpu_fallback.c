/* The fallback kernels of groups that have no kernel made for them. The functions that make kernels find them, for the
 * largest micro-batch, before anything runs. */
#include <omp.h>
#include "backend/cpu/cpu_int.h"

static struct be_kernel like_of(const struct selection *s, int group, enum phase ph)
{
    const struct group *k = &s->group[group];
    return (struct be_kernel){.key = {group, ph, s->max_samples, true}, .k = k, .node = &s->g->node[k->node[0]]};
}

static bool has_pass(const struct group *k, enum phase ph)
{
    return ph == PH_FWD || (ph == PH_BWD_DATA ? k->grad_in & 1 : k->pgrad_in_w != 0);
}

/* For a convolution, pass by pass; the reason is that of the first pass. */
static const char *product_find(struct be *b, const struct selection *s, int group)
{
    static const char *const pass[PH_COUNT] = {
        [PH_FWD] = "output", [PH_BWD_DATA] = "input gradient", [PH_BWD_WEIGHTS] = "weight gradient"};
    struct text t = {0};
    struct err first = {0};
    for (int ph = 0; ph < PH_COUNT; ph++) {
        struct be_kernel like = like_of(s, group, (enum phase)ph), *k;
        struct err why = {0};
        if (!has_pass(like.k, like.key.phase)) continue;
        if ((k = dnnl_conv_find(b, &like, &why))) { kernel_free(k); continue; }
        text_add(&t, "%s%s", t.n ? ", " : "matrix products (", pass[ph]);
        if (!first.code) first = why;
    }
    if (t.n) text_add(&t, "): %s", first.text);
    const char *all = t.n ? arena_strdup(s->mem, t.s) : NULL;
    text_free(&t);
    return all;
}

/* Equal layers get equal kernels. */
static const struct group *seen(const struct be *b, const struct selection *s, int group)
{
    const struct group *k = &s->group[group];
    for (int i = 0; i < group; i++) {
        const struct group *x = &s->group[i];
        if (x->kind == k->kind && x->grad_in == k->grad_in && x->pgrad_in_w == k->pgrad_in_w && cpu_alike(b, x, k))
            return x;
    }
    return NULL;
}

static const char *conv_fallback(struct be *b, const struct selection *s, int group)
{
    const struct group *as = seen(b, s, group);
    return as ? as->fallback : product_find(b, s, group);
}

/* The library answers only for its own instruction set and number of threads. For others no fallback of a convolution
 * is reported. */
static bool asking_begin(struct be *b, const struct selection *s)
{
    struct device here = {0};
    b->lanes = cpu_isa(&here);
    omp_set_num_threads(s->dev.threads);
    return b->lanes == s->dev.block && dnnl_engine_create(&b->engine, dnnl_cpu, 0) == dnnl_success;
}

void cpu_fallbacks(struct selection *s)
{
    struct be b = {.s = s, .g = s->g, .asks = true};
    int threads = omp_get_max_threads();
    bool asks = asking_begin(&b, s);
    for (int i = 0; i < s->n_groups; i++) {
        struct group *k = &s->group[i];
        struct be_kernel like = like_of(s, i, PH_FWD);
        bool conv = like.node->op->category == OP_CONV;
        k->fallback = cpu_loop(&b, &like);
        k->slow = k->fallback && !dnnl_loop_is_cheap(like.node->op);
        if (conv && dnnl_conv_is_meagre(&b, like.node)) {
            k->fallback = "products of single channels, outside blocks of them";
            k->slow = true;
        } else if (conv && asks) {
            k->fallback = conv_fallback(&b, s, i);
        }
    }
    if (asks) dnnl_engine_destroy(b.engine);
    omp_set_num_threads(threads);
}
