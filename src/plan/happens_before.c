/* Which actions are over when an action begins, whatever time other actions take: vector clocks over the rows. A sent
 * slot is certainly free if its receive is among the finished actions. Plans with several stages a rank use this rule;
 * so do plans with one stage a rank that would deadlock otherwise (plan_lowered). Without it a rank that waits for its
 * send may wait for itself. */
#include <stdlib.h>
#include <string.h>
#include "plan/plan_int.h"

/* send: of each channel and micro-batch, the position of its send; -1: not yet reached. at: position of each rank. */
struct clocks { const struct lower *w; struct happens_before *k; int *send, *at; };

static void clock_join(int *to, const int *from, int n)
{
    for (int i = 0; i < n; i++) if (from[i] > to[i]) to[i] = from[i];
}

/* Joins the clocks of the messages that the action reads; false: one of them is not sent yet. */
static bool action_hears(const struct clocks *x, int rank, const struct act *a, int *now)
{
    const struct act_info *i = &act_info[a->op];
    for (int c = 0; c < x->w->chan.n && !act_is_post(a->op); c++) {
        const struct channel *ch = &x->w->chan.v[c];
        bool reads = ch->axis == AXIS_PP && ch->kind == i->chan &&
                     (i->across ? ch->to.at[AXIS_PP] == rank : ch->to_stage == a->stage);
        if (!reads) continue;
        int at = x->send[c * x->k->n_mb + a->mb];
        if (at < 0) return false;
        clock_join(now, x->k->of[ch->from.at[AXIS_PP]] + at * x->k->n_ranks, x->k->n_ranks);
    }
    return true;
}

/* Advances a rank's row as far as possible. A row that stops waits for itself; plan_check reports it. */
static bool rank_advance(struct clocks *x, int rank)
{
    int n = x->k->n_ranks, from = x->at[rank];
    for (; x->at[rank] < x->w->row[rank].n; x->at[rank]++) {
        int i = x->at[rank], *now = x->k->of[rank] + i * n;
        const struct act *a = &x->w->row[rank].v[i];
        if (i) clock_join(now, now - n, n);
        now[rank] = i;
        if (!action_hears(x, rank, a, now)) break;
        if (act_info[a->op].kind == KIND_SEND) x->send[a->chan * x->k->n_mb + a->mb] = i;
        if (act_info[a->op].kind == KIND_RECV) x->k->receive[a->chan * x->k->n_mb + a->mb] = i;
    }
    return x->at[rank] > from;
}

void before_find(const struct lower *w, struct happens_before *k)
{
    size_t pairs = (size_t)(w->chan.n + 1) * (size_t)(w->p->n_mb + 1);
    *k = (struct happens_before){.n_ranks = w->p->n_ranks, .n_mb = w->p->n_mb,
                                 .receive = mem_alloc(pairs * sizeof(int))};
    k->of = mem_alloc((size_t)k->n_ranks * sizeof *k->of);
    struct clocks x = {w, k, mem_alloc(pairs * sizeof(int)), mem_alloc((size_t)k->n_ranks * sizeof(int))};
    memset(x.send, 0xff, pairs * sizeof(int));
    for (int r = 0; r < k->n_ranks; r++)
        k->of[r] = mem_alloc((size_t)(w->row[r].n + 1) * (size_t)k->n_ranks * sizeof **k->of);
    for (bool moved = true; moved;) {
        moved = false;
        for (int r = 0; r < k->n_ranks; r++) moved |= rank_advance(&x, r);
    }
    free(x.send); free(x.at);
}

void before_free(struct happens_before *k)
{
    for (int r = 0; r < k->n_ranks; r++) free(k->of[r]);
    free(k->of); free(k->receive);
}
