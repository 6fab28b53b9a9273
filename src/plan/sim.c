/* The simulator: runs the rows in time, with the transport's contract: a message starts when both ends are posted and
 * the link is free; posts cost nothing. */
#include <stdlib.h>
#include <string.h>
#include "plan/cost.h"
#include "plan/plan.h"
#include "plan/sim.h"

struct wire { int chan, mb; double sent, posted, began, done; bool has_send, has_recv; };
enum { COSTS = PH_COUNT + 1 };                           /* phases, and what is recomputed */
struct simulation {
    const struct plan *p; const struct cost *k; struct sim *s;
    int *at; double *now;                                /* of each rank */
    VEC(struct wire) wire; int *wire_at;                 /* index + 1 of channel and micro-batch; 0: not yet */
    double *link_free;
    int *feed, *feed_at;                                 /* channels by the rank that receives, ascending */
    /* of stage, kind and size (full, last); negative: not yet asked for */
    double *cost;
};

static struct wire *wire_of(struct simulation *m, int chan, int mb)
{
    int *at = &m->wire_at[chan * m->p->n_mb + mb];
    if (*at) return &m->wire.v[*at - 1];
    struct wire *w = vec_push(&m->wire);
    *w = (struct wire){.chan = chan, .mb = mb, .done = -1};
    *at = m->wire.n;
    return w;
}

static double cost_sum(const struct simulation *m, const struct stage_plan *st, int kind, int n)
{
    double sum = 0;
    if (kind == PH_COUNT)
        for (int i = 0; i < st->r.n; i++) sum += cost_ns(m->k, (enum phase)st->r.k[i].phase, st->r.k[i].group, n);
    else
        for (int g = st->first_group; g < st->first_group + st->n_groups; g++)
            sum += cost_ns(m->k, (enum phase)kind, g, n);
    return sum / cost_speed(m->k, st->rank);
}

/* kind: a phase, or PH_COUNT for what is recomputed. All micro-batches but the last have one size. */
static double stage_cost(const struct simulation *m, int stage, int kind, int mb)
{
    double *ns = &m->cost[(stage * COSTS + kind) * 2 + (mb == m->p->n_mb - 1)];
    if (*ns < 0) *ns = cost_sum(m, &m->p->stage[stage], kind, m->p->mb_n[mb]);
    return *ns;
}

static bool loads_input(const struct plan *p, const struct stage_plan *st)
{
    for (int i = 0; i < st->n_load; i++) if (st->load[i] == p->sel->g->input) return true;
    return false;
}

static double act_cost(const struct simulation *m, const struct act *a)
{
    const struct stage_plan *st = &m->p->stage[a->stage];
    int n = m->p->mb_n[a->mb];
    switch ((enum act_op)a->op) {
    case ACT_L: return loads_input(m->p, st) ? m->k->load_ns * n : 0;
    case ACT_F: return stage_cost(m, a->stage, PH_FWD, a->mb);
    case ACT_B: return stage_cost(m, a->stage, PH_BWD_DATA, a->mb);
    case ACT_W: return stage_cost(m, a->stage, PH_BWD_WEIGHTS, a->mb);
    case ACT_D: return stage_cost(m, a->stage, PH_BWD_DATA, a->mb) + stage_cost(m, a->stage, PH_BWD_WEIGHTS, a->mb);
    case ACT_R: return stage_cost(m, a->stage, PH_COUNT, a->mb);
    case ACT_O:
        return m->k->optimizer_ns_per_byte * (double)m->p->pl->grad_bytes[st->rank] / cost_speed(m->k, st->rank);
    default: return 0;
    }
}

static void post(struct simulation *m, int rank, const struct act *a)
{
    bool recv = a->op == ACT_RF || a->op == ACT_RB || a->op == ACT_RP || a->op == ACT_RU;
    const struct channel *c = &m->p->chan[a->chan];
    struct wire *w = wire_of(m, a->chan, a->mb);
    bool params = c->kind == CHAN_PGRAD || c->kind == CHAN_PARAM;
    double bytes = (double)c->bytes_per_sample * (params ? 1 : m->p->mb_n[a->mb]);
    double busy = c->from_rank == c->to_rank ? 0 : bytes * m->k->busy_ns_per_byte;
    m->s->rank[rank].transfer += busy;
    m->now[rank] += busy;
    if (recv) { w->posted = m->now[rank]; w->has_recv = true; }
    else { w->sent = m->now[rank]; w->has_send = true; }
    if (!w->has_send || !w->has_recv) return;
    double *link = &m->link_free[c->from_rank * m->p->n_ranks + c->to_rank];
    double start = w->sent > w->posted ? w->sent : w->posted;
    if (start < *link) start = *link;
    w->began = start;
    w->done = c->from_rank == c->to_rank ? start : start + m->k->latency_ns + bytes / m->k->bytes_per_ns;
    *link = w->done;
}

static bool channel_feeds(const struct plan *p, const struct channel *c, const struct act *a)
{
    bool back = a->op == ACT_B || a->op == ACT_D;
    if (c->kind == CHAN_PGRAD) return (a->op == ACT_O || a->op == ACT_N) && c->to_rank == p->stage[a->stage].rank;
    return c->to_stage == a->stage && ((c->kind == CHAN_ACT && a->op == ACT_F) || (c->kind == CHAN_GRAD && back));
}

/* When the action may start, or -1 while a message it reads has not been matched. */
static double ready_at(struct simulation *m, int rank, const struct act *a)
{
    double t = m->now[rank];
    for (int i = m->feed_at[rank]; i < m->feed_at[rank + 1]; i++) {
        int c = m->feed[i];
        if (!channel_feeds(m->p, &m->p->chan[c], a)) continue;
        struct wire *w = wire_of(m, c, a->mb);
        if (w->done < 0) return -1;
        if (w->done > t) t = w->done;
    }
    return t;
}

static bool rank_advance(struct simulation *m, int rank)
{
    bool moved = false;
    for (; m->at[rank] < m->p->row_n[rank]; m->at[rank]++, moved = true) {
        const struct act *a = &m->p->row[rank][m->at[rank]];
        struct sim_stage *st = &m->s->rank[rank];
        m->s->start[rank][m->at[rank]] = m->now[rank];
        if (act_info[a->op].post) post(m, rank, a);
        else {
            double t = ready_at(m, rank, a);
            if (t < 0) return moved;
            double cost = act_cost(m, a);
            st->wait += t - m->now[rank];
            m->s->start[rank][m->at[rank]] = t;
            m->now[rank] = t + cost;
            if (a->op == ACT_F) st->f += cost;
            if (a->op == ACT_B) st->b += cost;
            if (a->op == ACT_W) st->w += cost;
            if (a->op == ACT_R) st->r += cost;
            if (a->op == ACT_D) {
                st->b += stage_cost(m, a->stage, PH_BWD_DATA, a->mb);
                st->w += stage_cost(m, a->stage, PH_BWD_WEIGHTS, a->mb);
            }
            if (a->op == ACT_O) st->optimizer += cost;
            if (a->op == ACT_L) st->load += cost;
        }
        m->s->end[rank][m->at[rank]] = m->now[rank];
    }
    return moved;
}

static void wires_keep(const struct simulation *m, struct sim *s)
{
    s->wire = mem_alloc((size_t)(m->wire.n + 1) * sizeof *s->wire);
    for (int i = 0; i < m->wire.n; i++) {
        const struct wire *w = &m->wire.v[i];
        const struct channel *c = &m->p->chan[w->chan];
        if (w->done >= 0 && c->from_rank != c->to_rank)
            s->wire[s->n_wires++] = (struct sim_wire){w->chan, w->mb, w->began, w->done};
    }
}

double sim_busy(const struct sim_stage *s) { return s->f + s->b + s->w + s->r + s->optimizer + s->load + s->transfer; }

static void finish(struct simulation *m)
{
    struct sim *s = m->s;
    double busy = 0, ideal = 0;
    wires_keep(m, s);
    for (int r = 0; r < s->n_ranks; r++) {
        struct sim_stage *st = &s->rank[r];
        st->finish = m->now[r];
        if (m->now[r] > s->wall_ns) s->wall_ns = m->now[r];
        double work = sim_busy(st);
        busy += work;
        if (work > ideal) ideal = work;
        s->peak_bytes[r] = plan_rank_bytes(m->p, r);
    }
    double idle = s->wall_ns * s->n_ranks - busy;
    if (idle < 1e-9 * busy) idle = 0;                    /* rounding, where nobody waits */
    if (s->wall_ns > 0) s->bubble_of_wall = idle / (s->wall_ns * s->n_ranks);
    if (busy > 0) s->bubble_of_ideal = idle / busy;
}

static void feeds_find(struct simulation *m)
{
    const struct plan *p = m->p;
    m->feed = mem_alloc((size_t)(p->n_chan + 1) * sizeof *m->feed);
    m->feed_at = mem_alloc((size_t)(p->n_ranks + 1) * sizeof *m->feed_at);
    for (int r = 0, n = 0; r < p->n_ranks; m->feed_at[++r] = n)
        for (int c = 0; c < p->n_chan; c++) if (p->chan[c].to_rank == r) m->feed[n++] = c;
}

static void tables_make(struct simulation *m)
{
    size_t n = (size_t)m->p->n_ranks, costs = (size_t)m->p->n_stages * COSTS * 2;
    m->at = mem_alloc(n * sizeof *m->at);
    m->now = mem_alloc(n * sizeof *m->now);
    m->link_free = mem_alloc(n * n * sizeof *m->link_free);
    m->wire_at = mem_alloc((size_t)(m->p->n_chan + 1) * (size_t)m->p->n_mb * sizeof *m->wire_at);
    m->cost = mem_alloc(costs * sizeof *m->cost);
    for (size_t i = 0; i < costs; i++) m->cost[i] = -1;
    feeds_find(m);
}

static void tables_free(struct simulation *m)
{
    free(m->at); free(m->now); free(m->link_free); free(m->wire_at); free(m->cost); free(m->feed); free(m->feed_at);
    vec_free(&m->wire);
}

struct sim *plan_simulate(const struct plan *p, const struct cost *k, struct err *e)
{
    struct sim *s = mem_alloc(sizeof *s);
    size_t n = (size_t)p->n_ranks;
    *s = (struct sim){.n_ranks = p->n_ranks,
                      .rank = mem_alloc(n * sizeof *s->rank),
                      .peak_bytes = mem_alloc(n * sizeof(size_t)),
                      .start = mem_alloc(n * sizeof(double *)),
                      .end = mem_alloc(n * sizeof(double *))};
    for (int r = 0; r < p->n_ranks; r++) {
        s->start[r] = mem_alloc((size_t)(p->row_n[r] + 1) * sizeof(double));
        s->end[r] = mem_alloc((size_t)(p->row_n[r] + 1) * sizeof(double));
    }
    struct simulation m = {.p = p, .k = k, .s = s};
    tables_make(&m);
    for (bool moved = true; moved;) {
        moved = false;
        for (int r = 0; r < p->n_ranks; r++) moved |= rank_advance(&m, r);
    }
    bool stuck = false;
    for (int r = 0; r < p->n_ranks; r++) stuck |= m.at[r] < p->row_n[r];
    finish(&m);
    tables_free(&m);
    if (!stuck) return s;
    err_set(e, E_INTERNAL, "the plan does not run to its end");
    sim_free(s);
    return NULL;
}

void sim_free(struct sim *s)
{
    if (!s) return;
    for (int r = 0; r < s->n_ranks; r++) { free(s->start[r]); free(s->end[r]); }
    free(s->rank); free(s->peak_bytes); free(s->start); free(s->end); free(s->wire);
    free(s);
}
