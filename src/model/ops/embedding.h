/* For the embedding operator and backends with its memory layout: row-major, features before positions. */
#ifndef OPS_EMBEDDING_H
#define OPS_EMBEDDING_H
#include <math.h>
#include "model/op.h"

/* Indices of n samples, `points` each, and the table whose rows they select. */
struct embedding { int64_t rows, features, points, n; enum dtype type; const void *index; };
static inline struct embedding embedding_of(const struct graph *g, const struct node *node, int n, const void *index)
{
    const struct tensor *t = &g->tensor[node->in[0]];
    const struct shape *table = &g->param[node->param[0]].shape;
    return (struct embedding){table->d[0], table->d[1], shape_count(&t->shape), n, t->type, index};
}

/* The row for sample at / points, position at % points; -1: no such row. */
static inline int64_t embedding_row(const struct embedding *m, int64_t at)
{
    int64_t i = m->type == I32 ? ((const int32_t *)m->index)[at] : ((const int64_t *)m->index)[at];
    return i >= 0 && i < m->rows ? i : -1;
}
static inline int64_t embedding_place(const struct embedding *m, int64_t at)
{
    return at / m->points * m->features * m->points + at % m->points;
}

static inline void embedding_take(const struct embedding *m, const float *table, float *out)
{
    for (int64_t at = 0; at < m->n * m->points; at++) {
        int64_t row = embedding_row(m, at);
        float *to = out + embedding_place(m, at);
        for (int64_t k = 0; k < m->features; k++) to[k * m->points] = row < 0 ? NAN : table[row * m->features + k];
    }
}

/* Adds the gradients of all uses of a row, in ascending order of sample, then position. */
static inline void embedding_add(const struct embedding *m, const float *gout, float *gtable)
{
    for (int64_t at = 0; at < m->n * m->points; at++) {
        int64_t row = embedding_row(m, at);
        const float *from = gout + embedding_place(m, at);
        for (int64_t k = 0; row >= 0 && k < m->features; k++) gtable[row * m->features + k] += from[k * m->points];
    }
}
#endif
