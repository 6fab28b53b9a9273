/* See lora_merge.h. */
#include <stdlib.h>
#include <string.h>
#include "model/lora.h"
#include "train/lora_merge.h"

#pragma GCC optimize("O3")                               /* the loop over a row is as long as the weight is wide */

static void line_add(float *to, const float *x, float by, int64_t n)
{
    for (int64_t i = 0; i < n; i++) to[i] += by * x[i];
}

/* The product of a line is complete before it is added, as peft does it. */
void low_rank_add(const struct low_rank *p, float *to)
{
    float *line = mem_alloc((size_t)p->m * sizeof *line + 1);
    for (int64_t i = 0; i < p->n; i++) {
        memset(line, 0, (size_t)p->m * sizeof *line);
        for (int64_t k = 0; k < p->rank; k++) line_add(line, p->r + k * p->m, p->l[i * p->rank + k], p->m);
        line_add(to + i * p->m, line, p->scale, p->m);
    }
    free(line);
}

static float *turned_copy(const float *x, int64_t n, int64_t m)
{
    float *t = mem_alloc((size_t)(n * m) * sizeof *t + 1);
    for (int64_t i = 0; i < n; i++) for (int64_t j = 0; j < m; j++) t[j * n + i] = x[i * m + j];
    return t;
}

/* w: as in files. Where these have [inputs][outputs], its change is the turned product: A^T B^T. */
static void pair_add(const struct state_row *r, float scale, int64_t rank, const float *a, const float *b, float *w)
{
    const int64_t out = r->shape.d[0], in = shape_count(&r->shape) / out;
    float *at = r->turned ? turned_copy(a, rank, in) : NULL, *bt = r->turned ? turned_copy(b, out, rank) : NULL;
    if (r->turned) low_rank_add(&(struct low_rank){in, out, rank, at, bt, scale}, w);
    else low_rank_add(&(struct low_rank){out, in, rank, b, a, scale}, w);
    free(at);
    free(bt);
}

static int row_copy(const struct lora_merge *m, int row, float **out, struct err *e)
{
    const size_t bytes = state_plain_bytes(&m->pl->state[row]);
    const void *at = *out = mem_alloc(bytes + 1);
    if (m->get(m->ctx, row, *out, &at, e)) return -1;
    if (at != *out) memcpy(*out, at, bytes);
    return 0;
}

static int merged_data(void *ctx, int i, void *buf, const void **at, struct err *e)
{
    const struct lora_merge *m = ctx;
    const int row = m->rows.row[i];
    const struct state_row *r = &m->pl->state[row];
    struct lora_pair p;
    float *a = NULL, *b = NULL;
    if (!lora_pair_find(m->g, row, &p)) return m->get(m->ctx, row, buf, at, e);   /* a parameter's row has its number */
    int bad = m->get(m->ctx, row, buf, at, e);
    if (!bad && *at != buf) memcpy(buf, *at, state_plain_bytes(r));
    *at = buf;
    bad = bad || row_copy(m, p.a, &a, e) || row_copy(m, p.b, &b, e);
    if (!bad) pair_add(r, (float)p.scale, m->pl->state[p.a].shape.d[0], a, b, buf);
    free(a);
    free(b);
    return bad ? -1 : 0;
}

struct st_body lora_merge_body(struct lora_merge *m)
{
    m->rows = weights_rows(m->pl, WEIGHTS_BASE, -1);
    return (struct st_body){m->rows.n, m->rows.entry, merged_data, m, NULL};
}
