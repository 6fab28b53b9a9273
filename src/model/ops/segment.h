/* For losses and scores that classify each point. The output has a channel for each class, or one channel that
 * separates class 1 from class 0. The target is an integer at each point. */
#ifndef OPS_SEGMENT_H
#define OPS_SEGMENT_H
#include <math.h>
#include "model/op.h"

/* Integers at points. */
struct labels { enum dtype type; const void *at; };
static inline int64_t label_at(struct labels l, int64_t i)
{
    return l.type == U8 ? ((const uint8_t *)l.at)[i] : l.type == I32 ? ((const int32_t *)l.at)[i]
                                                                     : ((const int64_t *)l.at)[i];
}

#define LABEL_TAKES (TAKES(U8) | TAKES(I32) | TAKES(I64))   /* op_kind.takes */
static inline bool label_type(enum dtype t) { return LABEL_TAKES & TAKES(t); }

/* The target has the output's points, with one integer each. */
static inline int segment_check(const struct node *n, const struct shape *const *in, struct err *e)
{
    char a[96], b[96];
    struct shape points = {.n = in[0]->n - 1};
    if (in[0]->n < 2)
        return err_set(e, E_CONF, "%s needs an output with channels and points, and it is %s", n->op->name,
                       shape_text(in[0], a));
    for (int i = 0; i < points.n; i++) points.d[i] = in[0]->d[i + 1];
    if (shape_equal(&points, in[1])) return 0;
    return err_set(e, E_CONF, "the target is %s, and the output has the points %s",
                   in[1]->n ? shape_text(in[1], a) : "one class", shape_text(&points, b));
}

static inline int64_t segment_classes(const struct shape *output) { return output->d[0] > 1 ? output->d[0] : 2; }

/* op_kind.range */
static inline int64_t segment_range(const struct graph *g, const struct node *n, int in)
{
    return in == 1 ? segment_classes(&g->tensor[n->in[0]].shape) : 0;
}

/* One sample: channel c of point i is x[c * points + i]. */
struct segment { int64_t c, points; const float *x; struct labels y; };
static inline struct segment segment_of(const struct op_call *call, int n)
{
    const struct tensor *t = &call->g->tensor[call->node->in[0]], *l = &call->g->tensor[call->node->in[1]];
    const int64_t c = t->shape.d[0], points = shape_count(&t->shape) / c;
    const size_t first = (size_t)n * (size_t)points;
    return (struct segment){c, points, (const float *)call->in[0] + first * (size_t)c,
                            {l->type, (const char *)call->in[1] + first * dtype_bytes(l->type)}};
}

/* log sum exp of n values at distance `apart` */
static inline double log_sum(const float *x, int64_t n, int64_t apart)
{
    double most = x[0], sum = 0;
    for (int64_t i = 1; i < n; i++) if (x[i * apart] > most) most = x[i * apart];
    for (int64_t i = 0; i < n; i++) sum += exp(x[i * apart] - most);
    return most + log(sum);
}
/* The same for a point's channels. */
static inline double segment_log_sum(const struct segment *s, int64_t i) { return log_sum(s->x + i, s->c, s->points); }

/* The class of a point: the first of the largest outputs; with one channel, 1 if the probability is at least 1/2. */
static inline int64_t segment_class(const struct segment *s, int64_t i)
{
    int64_t best = 0;
    if (s->c == 1) return s->x[i] >= 0;
    for (int64_t c = 1; c < s->c; c++) if (s->x[c * s->points + i] > s->x[best * s->points + i]) best = c;
    return best;
}
#endif
