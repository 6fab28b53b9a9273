/* For the loss operators: rows, targets and hits. A target is a class (I64 scalar) or a vector as long as the output
 * (F32: one-hot, probabilities, values). */
#ifndef OPS_LOSS_H
#define OPS_LOSS_H
#include "model/op.h"

/* Per sample: loss, top-1 hit, top-5 hit. */
enum { LOSS_COLUMNS = 3 };
static const struct score_row loss_rows[] = {{"loss", 0, -1}, {"top1", 1, -1}, {"top5", 2, -1}, {0}};

static inline int loss_infer(const struct node *n, const struct shape *const *in, struct infer *f, struct err *e)
{
    char a[96], b[96];
    if (f->in_type[1] == I64 && in[1]->n)
        return err_set(e, E_CONF, "%s compares with one class, and the target is I64 of shape %s", n->op->name,
                       shape_text(in[1], a));
    if (!in[1]->n && in[0]->n != 1)
        return err_set(e, E_CONF, "%s with a class needs one output per class, and the output is %s: put flatten, or "
                       "global_avg_pool and flatten, before it", n->op->name, shape_text(in[0], a));
    if (in[1]->n && !shape_equal(in[0], in[1]))
        return err_set(e, E_CONF, "output %s and target %s differ", shape_text(in[0], a), shape_text(in[1], b));
    f->out = (struct shape){1, {LOSS_COLUMNS}};
    f->type = F64;
    return 0;
}

/* A class is one of the outputs. */
static inline int64_t loss_range(const struct graph *g, const struct node *n, int in)
{
    bool is_class = in == 1 && g->tensor[n->in[1]].type == I64;
    return is_class ? shape_count(&g->tensor[n->in[0]].shape) : 0;
}

struct loss_target { int64_t count; bool is_class; const int64_t *cls; const float *vec; };
static inline struct loss_target loss_target_of(const struct op_call *c)
{
    bool is_class = c->g->tensor[c->node->in[1]].type == I64;
    return (struct loss_target){shape_count(&c->g->tensor[c->node->in[0]].shape), is_class, is_class ? c->in[1] : NULL,
                                is_class ? NULL : c->in[1]};
}
static inline double loss_target_at(const struct loss_target *t, int n, int64_t i)
{
    return t->is_class ? t->cls[n] == i : t->vec[n * t->count + i];
}

/* Rank of the right class among the outputs: the number of larger ones, and of equal ones before it. The right class of
 * a vector is its first maximum. */
static inline void loss_hits(const struct loss_target *t, const float *x, int n, double *out)
{
    int64_t right = t->is_class ? t->cls[n] : 0, above = 0;
    if (!t->is_class)
        for (int64_t i = 1; i < t->count; i++)
            if (t->vec[n * t->count + i] > t->vec[n * t->count + right]) right = i;
    for (int64_t i = 0; i < t->count; i++)
        above += x[i] > x[right] || (x[i] == x[right] && i < right) || x[right] != x[right];
    out[1] = above < 1;
    out[2] = above < 5;
}
#endif
