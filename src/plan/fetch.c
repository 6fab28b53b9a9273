/* When the weights that lie in a file come into memory. Each stage with such weights has a fixed slot. From the row of
 * programs follows which stage's weights each slot must hold, and from when to when. A slot is given up after the last
 * program that reads it, and at once its next weights are on their way: the row itself is the prefetch. */
#include <stdlib.h>
#include "plan/plan_int.h"

/* From the first to the last program that reads the weights of a stage, without another stage in its slot between. */
struct fetch_span { int slot, stage, first, last; bool grads; };    /* grads: it adds to their gradients, too */
struct fetch_spans { VEC(struct fetch_span) v; int *open; };   /* open: of each slot, its newest span; -1: none */

static bool prog_grads(const struct placement *pl, int rank, const struct prog *g)
{
    for (int i = 0; i < g->n && pl->slots[rank].grad_bytes; i++)
        for (int k = 0; k < MAX_PARAM; k++)
            if (g->k[i].pgrad[k].space == SP_GRAD && g->k[i].pgrad[k].off >= pl->slots[rank].grad_at) return true;
    return false;
}

bool prog_fetches(const struct placement *pl, int rank, const struct prog *g)
{
    for (int i = 0; i < g->n; i++)
        for (int k = 0; k < MAX_PARAM; k++)
            if (g->k[i].param[k].space == SP_PARAM && g->k[i].param[k].off >= pl->slots[rank].at) return true;
    return prog_grads(pl, rank, g);
}

static bool act_fetches(const struct plan *p, int rank, const struct act *a)
{
    const struct prog *g = act_prog(p, a);
    return g && p->pl->slot_of[a->stage] >= 0 && prog_fetches(p->pl, rank, g);
}

static void spans_find(const struct lower *w, int rank, struct fetch_spans *x)
{
    const struct placement *pl = w->p->pl;
    for (int i = 0; i < pl->slots[rank].n; i++) x->open[i] = -1;
    for (int i = 0; i < w->row[rank].n; i++) {
        const struct act *a = &w->row[rank].v[i];
        if (!act_fetches(w->p, rank, a)) continue;
        int *open = &x->open[pl->slot_of[a->stage]];
        if (*open < 0 || x->v.v[*open].stage != a->stage) {
            *open = x->v.n;
            *vec_push(&x->v) = (struct fetch_span){pl->slot_of[a->stage], a->stage, i, i, false};
        }
        x->v.v[*open].last = i;
        x->v.v[*open].grads |= prog_grads(pl, rank, act_prog(w->p, a));
    }
}

/* The next span of the slot after span k; from the last one on the slot's first, for the next step. */
static int span_next(const struct fetch_spans *x, int k)
{
    for (int i = k + 1; i < x->v.n; i++) if (x->v.v[i].slot == x->v.v[k].slot) return i;
    int i = 0;
    while (x->v.v[i].slot != x->v.v[k].slot) i++;
    return i;
}

static void fetch_emit(struct lower *w, int rank, enum act_op op, int stage, bool grads)
{
    *vec_push(&w->row[rank]) = (struct act){.op = (uint8_t)op, .flags = grads ? ACT_GRADS : 0,
                                            .stage = (uint16_t)stage, .n_mb = 1, .chan = -1};
}

/* The span continues gradients that an earlier one of this step has left in the file. */
static bool span_continues(const struct fetch_spans *x, int k)
{
    bool before = false;
    for (int i = 0; i < k; i++) before |= x->v.v[i].stage == x->v.v[k].stage && x->v.v[i].grads;
    return before && x->v.v[k].grads;
}

/* At the end of span k: the slot is given up, and its next weights are asked for. What the update changes is asked for
 * after it (late). */
static void span_end(struct lower *w, int rank, const struct fetch_spans *x, int k, bool late)
{
    const int next = span_next(x, k);
    const struct fetch_span *is = &x->v.v[k], *comes = &x->v.v[next];
    const bool after = w->p->req.mode == PLAN_TRAIN && next <= k && w->p->pl->slot_grads[comes->stage];
    if (comes->stage == is->stage && !is->grads) return;
    if (!late) fetch_emit(w, rank, ACT_EW, is->stage, is->grads);
    if (late == after) fetch_emit(w, rank, ACT_LW, comes->stage, next > k && span_continues(x, next));
}

static void row_fetch(struct lower *w, int rank, const struct fetch_spans *x)
{
    const int n = w->row[rank].n;
    struct act *was = w->row[rank].v;
    int *ends = mem_alloc((size_t)(n + 1) * sizeof *ends);    /* of each action: the span that ends there, plus 1 */
    for (int k = 0; k < x->v.n; k++) ends[x->v.v[k].last] = k + 1;
    w->row[rank].v = NULL;
    w->row[rank].n = w->row[rank].cap = 0;
    for (int k = 0; k < x->v.n; k++) {
        bool first = true;
        for (int i = 0; i < k; i++) first &= x->v.v[i].slot != x->v.v[k].slot;
        if (first) fetch_emit(w, rank, ACT_LW, x->v.v[k].stage, false);
    }
    for (int i = 0; i < n; i++) {
        *vec_push(&w->row[rank]) = was[i];
        if (ends[i]) span_end(w, rank, x, ends[i] - 1, false);
    }
    for (int k = 0; k < x->v.n; k++) if (span_next(x, k) <= k) span_end(w, rank, x, k, true);
    free(was);
    free(ends);
}

void lower_fetch(struct lower *w)
{
    for (int rank = 0; rank < w->p->n_ranks; rank++) {
        const int n = w->p->pl->slots[rank].n;
        if (!n) continue;
        struct fetch_spans x = {.open = mem_alloc((size_t)n * sizeof *x.open)};
        spans_find(w, rank, &x);
        row_fetch(w, rank, &x);
        vec_free(&x.v);
        free(x.open);
    }
}
