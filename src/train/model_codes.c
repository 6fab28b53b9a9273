/* See model_codes.h. */
#include <stdlib.h>
#include <string.h>
#include "base/mem.h"
#include "base/text.h"
#include "model/op.h"
#include "plan/format.h"
#include "train/model_codes.h"

enum { CODES_PLAIN, CODES_VALUES, CODES_FACTORS, CODES_ORDER };
static const struct format coded = {I8, LAYOUT_PLAIN, 1, SCALE_ROW};

/* Is it the weight of linear layers alone, and not of the head? A decoder's head has this name. */
static bool is_coded(const struct param *p, const struct graph *g)
{
    bool all = p->kind == PARAM_WEIGHT && p->shape.n == 2;
    for (int u = 0; u < p->n_uses; u++) {
        const struct node *n = &g->node[p->use_node[u]];
        all &= n->op->category == OP_MATRIX && !p->use_slot[u] && strcmp(n->name, "lm_head");
    }
    return all;
}

/* NULL: it stays as it is. */
static const struct param *coded_param(const struct graph *g, const struct st_entry *t)
{
    for (int i = 0; i < g->n_params && t->type == F32; i++)
        if (!strcmp(g->param[i].name, t->name)) {
            const struct param *p = &g->param[i];
            return is_coded(p, g) && shape_count(&p->shape) == shape_count(&t->shape) ? p : NULL;
        }
    return NULL;
}

/* Codes have the order of the graph. */
static float *rows_of_param(const struct param *p, const float *x)
{
    const int64_t n = p->shape.d[0], m = p->shape.d[1];
    float *to = mem_alloc((size_t)(n * m) * sizeof *to + 1);
    if (!p->turned) memcpy(to, x, (size_t)(n * m) * sizeof *to);
    else for (int64_t i = 0; i < n; i++) for (int64_t j = 0; j < m; j++) to[i * m + j] = x[j * n + i];
    return to;
}

static int coded_data(void *ctx, int i, void *buf, const void **at, struct err *e)
{
    const struct model_codes *m = ctx;
    const int k = m->of[i], part = m->part[i];
    const struct st_entry *t = &m->from->entry[k];
    if (part == CODES_PLAIN) return m->from->data(m->from->ctx, k, buf, at, e);
    *at = buf;
    if (part == CODES_ORDER) return *(uint8_t *)buf = 0, 0;
    const struct param *p = coded_param(m->g, t);
    float *own = mem_alloc((size_t)shape_count(&t->shape) * sizeof *own + 1);
    const void *there = own;
    const int bad = m->from->data(m->from->ctx, k, own, &there, e);
    if (!bad) {
        float *rows = rows_of_param(p, there);
        char *stored = mem_alloc(format_bytes(&coded, &p->shape) + 1);
        format_narrow(&coded, &p->shape, rows, stored);
        if (part == CODES_VALUES) memcpy(buf, stored, (size_t)shape_count(&p->shape));
        else memcpy(buf, format_factors(&coded, &p->shape, stored), (size_t)p->shape.d[0] * sizeof(float));
        free(rows);
        free(stored);
    }
    free(own);
    return bad;
}

static void coded_entry(struct model_codes *m, int *n, int of, int part, struct st_entry t)
{
    m->of[*n] = of;
    m->part[*n] = (char)part;
    m->entry[(*n)++] = t;
}

struct st_body model_codes_body(struct model_codes *m, const struct st_body *from, const struct graph *g)
{
    const size_t most = 3 * (size_t)from->n + 1;
    int n = 0;
    *m = (struct model_codes){from, g, mem_alloc(most * sizeof *m->of), mem_alloc(most),
                              mem_alloc(most * sizeof *m->entry), arena_new()};
    for (int i = 0; i < from->n; i++) {
        const struct st_entry *t = &from->entry[i];
        const struct param *p = coded_param(g, t);
        if (!p) {
            coded_entry(m, &n, i, CODES_PLAIN, *t);
            continue;
        }
        const int stem = (int)(strlen(t->name) - strlen("weight"));
        coded_entry(m, &n, i, CODES_VALUES, (struct st_entry){t->name, I8, p->shape, false});
        coded_entry(m, &n, i, CODES_FACTORS, (struct st_entry){arena_printf(m->mem, "%.*sSCB", stem, t->name), F32,
                                                               {1, {p->shape.d[0]}}, false});
        coded_entry(m, &n, i, CODES_ORDER, (struct st_entry){arena_printf(m->mem, "%.*sweight_format", stem, t->name),
                                                             U8, {0, {0}}, false});
    }
    return (struct st_body){n, m->entry, coded_data, m, from->base};
}

void model_codes_free(struct model_codes *m)
{
    free(m->of);
    free(m->part);
    free(m->entry);
    if (m->mem) arena_free(m->mem);
}

bool model_codes_are_factors(const char *name) { return text_ends(name, ".SCB"); }

bool model_codes_follows(const char *name)
{
    return model_codes_are_factors(name) || text_ends(name, ".weight_format");
}
