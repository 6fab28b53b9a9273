/* Attention of single tokens to a cache of keys and values (model/ops/cached_attention.h). A sample's result depends
 * neither on the other samples of the call nor on their number. */
#include "backend/cpu/cpu_int.h"
#include "model/ops/cached_attention.h"

struct cached_kernel { struct be_kernel base; struct cached_attention a; };

static int cached_run(struct be *b, struct be_kernel *base, const struct be_call *c, struct err *e)
{
    const struct cached_attention *a = &((const struct cached_kernel *)base)->a;
    const int n = base->key.samples;
    float *scores = c->work, kept[2];
    for (int i = 0; i < n; i++) cached_attention_enter(a, c->in, i, c->param[0]);
    for (int i = 0; i < n; i++)
        for (int64_t h = 0; h < a->heads; h++) {
            const int64_t seen = ((const int32_t *)c->in[3])[i] + 1, at = (i * a->heads + h) * a->width;
            const float *keys = cached_attention_keys(a, c->in, i, h, c->param[0]);
            b->vec->row_scores(&(struct vec_entries){seen, a->width, a->line, keys}, (const float *)c->in[0] + at,
                               (float)a->scale, scores);
            b->vec->row_exp(scores, seen, kept);
            b->vec->row_mix(&(struct vec_entries){seen, a->width, a->line, keys + a->line / 2}, scores, kept[1],
                            (float *)c->out + at);
        }
    return 0;
}

static size_t scores_bytes(const struct cached_attention *a) { return (size_t)a->context * sizeof(float); }

static struct be_kernel *cached_make(struct be *b, const struct be_kernel *like, struct err *e)
{
    struct cached_kernel *k = kernel_new(like, sizeof *k);
    k->a = cached_attention_of(b->g, like->node);
    k->base.run = cached_run;
    if (!kernel_workspace(b, like, scores_bytes(&k->a), e)) return &k->base;
    kernel_free(&k->base);
    return NULL;
}

static size_t cached_workspace(const struct selection *s, const struct group *k)
{
    const struct cached_attention a = cached_attention_of(s->g, group_node(s, k));
    return CPU_WORK + size_align64(scores_bytes(&a));
}

static const char *cached_refuse(const struct selection *s, const struct group *k, enum phase ph)
{
    for (int i = 0; i < 3; i++) if (!cpu_rows(s, k->in[i])) return "";
    return cpu_rows(s, k->out) ? NULL : "";
}

const struct kernel_row cpu_rows_cached_attention[] = {
    {.name = "rows", .pattern = PATTERN_OP("cached_attention"), .layouts = ROW_LAYOUT(LAYOUT_LAST),
     .layout = cpu_rows_follow, .refuses = cached_refuse, .workspace = cached_workspace, .make = cached_make},
    {0}};
