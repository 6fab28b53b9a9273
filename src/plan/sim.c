/* The simulator: runs the rows in time under the transport's contract. A message starts when both ends are posted and
 * the link is free; posts cost nothing. */
#include <stdlib.h>
#include <string.h>
#include "plan/cost.h"
#include "plan/plan_int.h"
#include "plan/sim.h"

struct wire { int chan, mb; double sent, posted, began, done; bool has_send, has_recv; };
/* A sum accesses memory three times for each value; norms, an optimizer with momentum and packing of weights do so nine
 * times. */
#define SUM_BYTES (1.0 / 3)
enum { COSTS = ACC_RECOMPUTE + 1 };                      /* account parts that are kernels */
struct simulation {
    const struct plan *p; const struct cost *k; struct sim *s;
    int *at; double *now;                                /* of each rank */
    VEC(struct wire) wire; int *wire_at;                 /* index + 1 of channel and micro-batch; 0: not yet */
    /* when each link is free: of each pair of ranks and direction; then of each rank and other pipeline, in both
     * directions */
    double *link_free;
    int *feed, *feed_at;                                 /* channels, sorted by their receiving rank here */
    /* of each rank, when its disk is free; of each stage, when its weights are in their slot; of each rank's slots, was
     * one given up? */
    double *disk_free, *fetched; bool *evicted;
    /* of stage, part and size (full, last); negative: not yet computed */
    double *cost;
};

static struct wire *wire_of(struct simulation *m, int chan, int mb)
{
    int *at = &m->wire_at[chan * (m->p->n_mb + 1) + mb];
    if (*at) return &m->wire.v[*at - 1];
    struct wire *w = vec_push(&m->wire);
    *w = (struct wire){.chan = chan, .mb = mb, .done = -1};
    *at = m->wire.n;
    return w;
}

/* part: a part of the account, up to ACC_RECOMPUTE. */
static double cost_sum(const struct simulation *m, const struct stage_plan *st, enum account part, int n)
{
    static const enum phase phase[] = {
        [ACC_FORWARD] = PH_FWD, [ACC_INPUT_GRAD] = PH_BWD_DATA, [ACC_WEIGHT_GRAD] = PH_BWD_WEIGHTS};
    const struct prog *recompute = &st->prog[PROG_R];
    double sum = 0;
    if (part == ACC_RECOMPUTE)
        for (int i = 0; i < recompute->n; i++)
            sum += cost_ns(m->k, (enum phase)recompute->k[i].phase, recompute->k[i].group, n);
    else
        for (int g = st->first_group; g < st->first_group + st->n_groups; g++)
            sum += cost_ns(m->k, phase[part], g, n);
    return sum / cost_speed(m->k, st->rank);
}

/* Micro-batches have few sizes: nearly all have the largest size, the last one its own. */
static double stage_cost(const struct simulation *m, int stage, enum account part, int mb)
{
    int n = m->p->mb_n[mb];
    if (n != m->p->max_n && n != m->p->mb_n[m->p->n_mb - 1]) return cost_sum(m, &m->p->stage[stage], part, n);
    double *ns = &m->cost[(stage * COSTS + (int)part) * 2 + (n != m->p->max_n)];
    if (*ns < 0) *ns = cost_sum(m, &m->p->stage[stage], part, n);
    return *ns;
}

static bool loads_input(const struct plan *p, const struct stage_plan *st)
{
    for (int i = 0; i < st->n_load; i++) if (graph_input_is(p->sel->g, st->load[i], ROLE_SAMPLE)) return true;
    return false;
}

/* Bytes of the accumulators that the action adds. */
static size_t sum_bytes(const struct plan *p, const struct act *a)
{
    size_t bytes = 0;
    if (a->chan >= 0) return act_bytes(p, a);            /* another pipeline's share */
    int first, end;
    act_groups(p, a, &first, &end);
    for (int g = first; g < end; g++) {
        const struct group *k = &p->sel->group[g];
        uint32_t of = group_sums(k, a->flags);
        for (int i = 0; i < k->n_param; i++)
            if ((of >> i & 1) && p->pl->state[k->param[i]].trained) bytes += p->pl->state[k->param[i]].bytes;
    }
    return bytes;
}

/* Cost of the groups that the action runs: all groups of its stage, or a piece. */
static double part_cost(const struct simulation *m, const struct act *a, int phase, int mb)
{
    int first, end;
    double sum = 0;
    if (!a->piece) return stage_cost(m, a->stage, act_part(a->op, phase), mb);
    act_groups(m->p, a, &first, &end);
    for (int g = first; g < end; g++) sum += cost_ns(m->k, (enum phase)phase, g, m->p->mb_n[mb]);
    return sum / cost_speed(m->k, m->p->stage[a->stage].rank);
}

double sim_outside_ns(const struct cost *k, const struct placement *pl, int rank)
{
    const double out = (double)pl->outside_bytes[rank], host = out > 0 ? (double)pl->host_bytes[rank] / out : 0;
    const double host_ns = k->host_ns_per_byte > 0 ? k->host_ns_per_byte : k->disk_ns_per_byte;
    return host * host_ns + (1 - host) * k->disk_ns_per_byte;
}

/* The update waits for its first chunk to come and its last one to go; between, it takes as long as the longer of both.
 * Returns the time that it waits. What was asked for before comes first. */
static double moves_wait(struct simulation *m, int rank, double update)
{
    const struct state_file *f = &m->p->pl->state_file[rank];
    const uint64_t moved = 2 * f->all + 3 * f->beside;      /* weights come and go, gradients come */
    const double ns = sim_outside_ns(m->k, m->p->pl, rank), all = (double)moved * ns, ends = 2 * (double)f->place * ns;
    double busy = m->disk_free[rank] - m->now[rank];
    if (!f->n) return 0;
    if (busy < 0) busy = 0;
    m->s->rank[rank].moved += moved;
    double wait = busy + (all > update + ends ? all - update : ends);
    m->disk_free[rank] = m->now[rank] + update + wait;
    m->s->rank[rank].part[ACC_FETCH] += wait;
    return wait;
}

/* Adds the action's cost to the rank's account and returns it. */
static double act_cost(struct simulation *m, const struct act *a)
{
    const struct stage_plan *st = &m->p->stage[a->stage];
    const struct act_info *i = &act_info[a->op];
    double *part = m->s->rank[st->rank].part, sum = 0;
    if (i->kind == KIND_PROGRAM) {
        for (int ph = 0; ph < PH_COUNT; ph++)
            for (int k = 0; k < a->n_mb && i->phases >> ph & 1; k++) {
                double ns = part_cost(m, a, ph, a->mb + k);
                part[act_part(a->op, ph)] += ns;
                sum += ns;
            }
        return sum;
    }
    if (i->kind == KIND_LOAD && loads_input(m->p, st)) sum = m->k->load_ns * act_samples(m->p, a);
    double added = m->k->sum_ns_per_byte > 0 ? m->k->sum_ns_per_byte : SUM_BYTES * m->k->optimizer_ns_per_byte;
    if (i->kind == KIND_SUM) sum = added * (double)sum_bytes(m->p, a) / cost_speed(m->k, st->rank);
    if (i->kind == KIND_OPTIMIZER)
        sum = m->k->optimizer_ns_per_byte * (double)m->p->pl->update_bytes[st->rank] / cost_speed(m->k, st->rank);
    part[i->part] += sum;
    return sum + (i->kind == KIND_OPTIMIZER ? moves_wait(m, st->rank, sum) : 0);
}

static double *link_of(const struct simulation *m, const struct channel *c)
{
    int n = m->p->n_ranks, me = m->p->req.dp;
    if (c->axis == AXIS_PP) return &m->link_free[c->from.at[AXIS_PP] * n + c->to.at[AXIS_PP]];
    bool comes = c->to.at[AXIS_DP] == me;
    int other = comes ? c->from.at[AXIS_DP] : c->to.at[AXIS_DP];
    return &m->link_free[n * n + (c->from.at[AXIS_PP] * m->p->pl->mesh.size[AXIS_DP] + other) * 2 + comes];
}

/* For a sum over n ranks a link carries at least 2 (n - 1) / n of its bytes (Patarasuk and Yuan 2009). */
static double wire_bytes(const struct plan *p, const struct channel *c, double bytes)
{
    return c->kind == CHAN_ALL ? 2 * bytes * (p->pl->mesh.size[AXIS_DP] - 1) / p->pl->mesh.size[AXIS_DP] : bytes;
}

static void post(struct simulation *m, int rank, const struct act *a)
{
    const struct channel *c = &m->p->chan[a->chan];
    struct wire *w = wire_of(m, a->chan, a->mb);
    double bytes = (double)act_bytes(m->p, a), busy = bytes * m->k->busy_ns_per_byte;
    bool reads = m->k->read_ns_per_byte > 0 && channel_lends(c->kind);
    if (reads) {                                         /* the addition reads the data itself; other data is copied */
        bool copies = act_info[a->op].kind == KIND_RECV && c->kind != CHAN_SUM;
        busy = copies ? bytes * m->k->read_ns_per_byte : 0;
        bytes = 0;
    }
    m->s->rank[rank].part[act_info[a->op].part] += busy;
    m->now[rank] += busy;
    /* the other pipelines are assumed to be where this one is, which has the most to do */
    if (c->axis == AXIS_DP) w->sent = w->posted = m->now[rank], w->has_send = w->has_recv = true;
    else if (act_info[a->op].kind == KIND_RECV) { w->posted = m->now[rank]; w->has_recv = true; }
    else { w->sent = m->now[rank]; w->has_send = true; }
    if (!w->has_send || !w->has_recv) return;
    double *link = link_of(m, c);
    double start = w->sent > w->posted ? w->sent : w->posted;
    if (start < *link) start = *link;
    w->began = start;
    w->done = start + m->k->latency_ns + wire_bytes(m->p, c, bytes) / m->k->bytes_per_ns;
    *link = w->done;
}

static bool channel_feeds(const struct plan *p, const struct channel *c, const struct act *a)
{
    const struct act_info *i = &act_info[a->op];
    const struct channel *own = a->chan < 0 ? NULL : &p->chan[a->chan];
    if (c->axis == AXIS_DP)
        return (i->after_come >> c->kind & 1) && c->to.at[AXIS_PP] == p->stage[a->stage].rank &&
               (!own || c == own || (i->kind == KIND_SEND && (!own->bucket || c->bucket == own->bucket)));
    if (c->kind == CHAN_PGRAD && i->after_come >> CHAN_PGRAD & 1)
        return c->to.at[AXIS_PP] == p->stage[a->stage].rank && (!own || own->late);
    return c->kind == i->chan && (i->across ? c->to.at[AXIS_PP] == p->stage[a->stage].rank : c->to_stage == a->stage);
}

/* Weights that the row brings before it gave up any are there already: the row before has brought them. */
static void fetch(struct simulation *m, int rank, const struct act *a)
{
    const struct placement *pl = m->p->pl;
    const bool evicts = act_info[a->op].kind == KIND_EVICT, fetches = act_info[a->op].kind == KIND_FETCH;
    if (evicts) m->evicted[rank] = true;
    if ((!evicts && !fetches) || !m->evicted[rank]) return;
    const size_t grads = a->flags & ACT_GRADS ? pl->slot_grads[a->stage] : 0;
    const size_t bytes = grads + (fetches ? pl->slot_used[a->stage] : 0);
    double *free = &m->disk_free[rank];
    if (*free < m->now[rank]) *free = m->now[rank];
    *free += sim_outside_ns(m->k, pl, rank) * (double)bytes;
    if (fetches) m->fetched[a->stage] = *free;
    m->s->rank[rank].fetched += bytes;
}

/* Waits for the weights that the action reads. */
static void fetch_wait(struct simulation *m, int rank, const struct act *a, double *t)
{
    const struct prog *g = act_prog(m->p, a);
    double wait = g && m->p->pl->slot_of[a->stage] >= 0 ? m->fetched[a->stage] - *t : 0;
    if (wait <= 0 || !prog_fetches(m->p->pl, rank, g)) return;
    m->s->rank[rank].part[ACC_FETCH] += wait;
    *t += wait;
}

/* When the action may start, or -1 while a message that it reads has no match. */
static double ready_at(struct simulation *m, int rank, const struct act *a)
{
    double t = m->now[rank];
    for (int i = m->feed_at[rank]; i < m->feed_at[rank + 1]; i++) {
        int c = m->feed[i];
        if (!channel_feeds(m->p, &m->p->chan[c], a)) continue;
        struct wire *w = wire_of(m, c, a->mb);
        /* other pipelines' messages count only once they are posted: gradients are sent on as they arrive */
        if (w->done < 0 && m->p->chan[c].axis == AXIS_DP) continue;
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
        m->s->start[rank][m->at[rank]] = m->now[rank];
        if (act_is_post(a->op)) {
            double t = act_info[a->op].after_come ? ready_at(m, rank, a) : m->now[rank];
            if (t < 0) return moved;
            m->now[rank] = t;
            post(m, rank, a);
        }
        else {
            double t = ready_at(m, rank, a);
            if (t < 0) return moved;
            fetch_wait(m, rank, a, &t);
            m->s->start[rank][m->at[rank]] = m->now[rank] = t;
            m->now[rank] += act_cost(m, a);
            fetch(m, rank, a);
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
        if (w->done >= 0)
            s->wire[s->n_wires++] = (struct sim_wire){w->chan, w->mb, w->began, w->done};
    }
}

double sim_busy(const struct sim_stage *s)
{
    double sum = 0;
    for (int i = 0; i < ACC_COUNT; i++) sum += s->part[i];
    return sum;
}

/* A step ends when all its messages have arrived. The weights that the next step begins with are read until then, too;
 * otherwise it would wait for them. */
static void arrivals_wait(struct simulation *m)
{
    for (int r = 0; r < m->s->n_ranks; r++) {
        if (m->disk_free[r] > m->now[r]) {
            m->s->rank[r].part[ACC_FETCH] += m->disk_free[r] - m->now[r];
            m->now[r] = m->disk_free[r];
        }
        for (int i = m->feed_at[r]; i < m->feed_at[r + 1]; i++) {
            bool once = m->p->chan[m->feed[i]].kind == CHAN_PARAM || m->p->chan[m->feed[i]].kind == CHAN_WEIGHT;
            double done = once ? wire_of(m, m->feed[i], 0)->done : 0;
            if (done > m->now[r]) m->now[r] = done;
        }
    }
}

static void finish(struct simulation *m)
{
    struct sim *s = m->s;
    double busy = 0, ideal = 0;
    arrivals_wait(m);
    wires_keep(m, s);
    for (int r = 0; r < s->n_ranks; r++) {
        if (m->now[r] > s->wall_ns) s->wall_ns = m->now[r];
        double work = sim_busy(&s->rank[r]);
        busy += work;
        if (work > ideal) ideal = work;
        s->peak_bytes[r] = plan_rank_bytes(m->p, r);
    }
    double idle = s->wall_ns * s->n_ranks - busy;
    if (idle < 1e-9 * busy) idle = 0;                    /* rounding, where no rank waits */
    if (s->wall_ns > 0) s->bubble_of_wall = idle / (s->wall_ns * s->n_ranks);
    if (busy > 0) s->bubble_of_ideal = idle / busy;
}

static void feeds_find(struct simulation *m)
{
    const struct plan *p = m->p;
    m->feed = mem_alloc((size_t)(p->n_chan + 1) * sizeof *m->feed);
    m->feed_at = mem_alloc((size_t)(p->n_ranks + 1) * sizeof *m->feed_at);
    for (int r = 0, n = 0; r < p->n_ranks; m->feed_at[++r] = n)
        for (int c = 0; c < p->n_chan; c++) {
            const struct channel *h = &p->chan[c];
            bool comes = h->axis == AXIS_PP || h->kind == CHAN_ALL || h->to.at[AXIS_DP] == p->req.dp;
            if (h->to.at[AXIS_PP] == r && comes) m->feed[n++] = c;
        }
}

static void tables_make(struct simulation *m)
{
    size_t n = (size_t)m->p->n_ranks, costs = (size_t)m->p->n_stages * COSTS * 2;
    m->at = mem_alloc(n * sizeof *m->at);
    m->now = mem_alloc(n * sizeof *m->now);
    m->disk_free = mem_alloc((n + (size_t)m->p->n_stages) * sizeof *m->disk_free);
    m->fetched = m->disk_free + n;
    m->evicted = mem_alloc(n);
    m->link_free = mem_alloc(n * (n + 2 * (size_t)m->p->pl->mesh.size[AXIS_DP]) * sizeof *m->link_free);
    m->wire_at = mem_alloc((size_t)(m->p->n_chan + 1) * (size_t)(m->p->n_mb + 1) * sizeof *m->wire_at);
    m->cost = mem_alloc(costs * sizeof *m->cost);
    for (size_t i = 0; i < costs; i++) m->cost[i] = -1;
    feeds_find(m);
}

static void tables_free(struct simulation *m)
{
    free(m->at); free(m->now); free(m->disk_free); free(m->evicted); free(m->link_free);
    free(m->wire_at); free(m->cost); free(m->feed); free(m->feed_at);
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
