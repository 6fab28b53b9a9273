/* Exchanges along AXIS_DP. Pipelines exchange the values kept of all micro-batches, so that each applies
 * statistics in the order of the whole batch. They exchange gradients bucket by bucket (buckets.c), by recursive
 * halving and then doubling. In the k-th exchange a rank's partner is 2^k pipelines away, nearest first. Partners swap
 * halves of what both hold, and each adds the received half to its own. So sums are added neighbours first, like the
 * blocks below them; since a + b is b + a, every share of the gradients ends as the same tree. (Recursive halving and
 * doubling: Thakur, Rabenseifner and Gropp 2005.) If each rank updates its own share of the weights (ZeRO's first
 * stage: Rajbhandari, Rasley, Ruwase and He 2020), weights are doubled after the optimizer instead of sums before it.
 * Or the transport adds each bucket along the axis at once. */
#include "plan/plan_int.h"

static struct channel *channel_between(struct lower *w, enum chan_kind kind, int rank, int from, int to)
{
    int stage = w->p->pl->map.stages_of[rank][0];
    struct channel *c = vec_push(&w->chan);
    *c = (struct channel){.kind = kind, .param = -1, .from_stage = stage, .to_stage = stage, .axis = AXIS_DP,
                          .from = {{[AXIS_PP] = rank, [AXIS_DP] = from}},
                          .to = {{[AXIS_PP] = rank, [AXIS_DP] = to}}};
    return c;
}

/* Does any of the 2^k pipelines around this one, whose gradients are already added, have a micro-batch? */
static bool any_of(const struct plan *p, int dp, int k)
{
    int first = dp >> k << k;
    for (int i = first; i < first + (1 << k); i++) if (p->part[i].n_mb) return true;
    return false;
}

static void share_channel(struct lower *w, enum chan_kind kind, int rank, int b, int from, int to, struct share s)
{
    struct channel *c = channel_between(w, kind, rank, from, to);
    c->off = s.at;
    c->bytes_per_sample = s.end - s.at;
    c->bucket = b + 1;
    c->late = w->bucket[rank].v[b].group < 0;
}

/* Halving sends the half that the partner continues with, unless the sender has no gradient yet. A receiver without
 * gradients takes the received ones instead of adding them. Doubling sends all that is complete here. */
static void bucket_channel(struct lower *w, enum chan_kind kind, int rank, int b, int from, int k)
{
    int to = from ^ (1 << k);
    const struct bucket *x = &w->bucket[rank].v[b];
    const size_t *cut = kind == CHAN_WEIGHT ? x->weight_cut : x->cut;
    struct share s = placement_share(w->p->pl, cut, kind == CHAN_SUM ? to : from, k + 1);
    if (s.end == s.at || (kind == CHAN_SUM && !any_of(w->p, from, k))) return;
    share_channel(w, kind, rank, b, from, to, s);
}

/* What doubling exchanges: sums, or the updated weights. */
static enum chan_kind doubled(const struct plan *p) { return p->pl->sharing.weights ? CHAN_WEIGHT : CHAN_SUMMED; }

/* Only the first pipeline's evaluations are read. */
static void kept_channels(struct lower *w)
{
    const struct plan *p = w->p;
    for (int c = 0; c < w->cls.n; c++) {
        struct slot_class *k = &w->cls.v[c];
        if (k->last != L_O) continue;
        for (int to = 0; to < (p->req.mode == PLAN_TRAIN ? p->pl->mesh.size[AXIS_DP] : 1); to++)
            for (int from = 0; from < p->pl->mesh.size[AXIS_DP]; from++) {
                if (from == to || !p->part[from].n_mb) continue;
                struct channel *h = channel_between(w, CHAN_KEPT, p->stage[k->stage].rank, from, to);
                h->tensor = c;
                h->from_stage = h->to_stage = k->stage;
                h->bytes_per_sample = k->bytes * (size_t)p->part[from].n_mb;
                if (to == p->req.dp && !k->copy)
                    k->copy = arena_alloc(p->mem, (size_t)p->pl->mesh.size[AXIS_DP] * sizeof *k->copy);
            }
    }
}

static void bucket_channels(struct lower *w, int rank, int b)
{
    const struct bucket *x = &w->bucket[rank].v[b];
    int n = placement_halvings(w->p->pl), n_dp = w->p->pl->mesh.size[AXIS_DP];
    if (w->p->pl->sharing.by_transport) {                /* one channel with all ranks at both ends */
        share_channel(w, CHAN_ALL, rank, b, 0, 0, (struct share){x->at, x->end});
        return;
    }
    for (int k = 0; k < n; k++)
        for (int from = 0; from < n_dp; from++) bucket_channel(w, CHAN_SUM, rank, b, from, k);
    for (int k = n - 1; k >= 0; k--)
        for (int from = 0; from < n_dp; from++) bucket_channel(w, doubled(w->p), rank, b, from, k);
}

void lower_dp(struct lower *w)
{
    struct plan *p = w->p;
    w->bucket = arena_alloc(p->mem, (size_t)p->n_ranks * sizeof *w->bucket);
    w->phase = arena_alloc(p->mem, (size_t)p->n_ranks * sizeof *w->phase);
    w->final = arena_alloc(p->mem, (size_t)p->n_stages * sizeof *w->final);
    for (int s = 0; s < p->n_stages; s++) w->final[s] = p->stage[s].first_group + (p->n_mb ? p->stage[s].n_groups : 0);
    if (p->pl->mesh.size[AXIS_DP] < 2) return;
    kept_channels(w);
    for (int rank = 0; rank < p->n_ranks && p->req.mode == PLAN_TRAIN; rank++) {
        w->bucket[rank] = p->pl->bucket[rank];
        for (int b = 0; b < w->bucket[rank].n; b++) bucket_channels(w, rank, b);
    }
    pieces_make(p, w->bucket);
}

/* ---- posts ------------------------------------------------------------------------------------------------------- */

static struct act post_make(const struct channel *h, int chan, enum act_kind end)
{
    return (struct act){.op = (uint8_t)act_post(h->kind, end), .stage = (uint16_t)h->from_stage, .n_mb = 1,
                        .chan = chan};
}

void dp_kept_emit(struct lower *w, int rank)
{
    int me = w->p->req.dp;
    for (int c = 0; c < w->chan.n; c++) {
        const struct channel *h = &w->chan.v[c];
        bool sends = h->from.at[AXIS_DP] == me, comes = h->to.at[AXIS_DP] == me;
        if (h->kind != CHAN_KEPT || h->from.at[AXIS_PP] != rank || (!sends && !comes)) continue;
        *vec_push(&w->row[rank]) = post_make(h, c, sends ? KIND_SEND : KIND_RECV);
    }
}

/* The channel of a bucket's exchange in one direction; -1: nothing is sent that way. */
static int channel_find(const struct lower *w, enum chan_kind kind, int rank, int b, int from, int to)
{
    for (int c = 0; c < w->chan.n; c++) {
        const struct channel *h = &w->chan.v[c];
        bool here = h->kind == kind && h->from.at[AXIS_PP] == rank && h->bucket == b + 1;
        if (here && h->from.at[AXIS_DP] == from && h->to.at[AXIS_DP] == to) return c;
    }
    return -1;
}

static void exchange_emit(struct lower *w, int rank, int b, enum chan_kind kind, int k)
{
    int me = w->p->req.dp, partner = me ^ (1 << k);
    int send = channel_find(w, kind, rank, b, me, partner), come = channel_find(w, kind, rank, b, partner, me);
    if (send >= 0) *vec_push(&w->row[rank]) = post_make(&w->chan.v[send], send, KIND_SEND);
    if (come >= 0) *vec_push(&w->row[rank]) = post_make(&w->chan.v[come], come, KIND_RECV);
}

/* Adds the gradients received in the k-th exchange. */
static void add_emit(struct lower *w, int rank, int b, int k)
{
    int me = w->p->req.dp, come = channel_find(w, CHAN_SUM, rank, b, me ^ (1 << k), me);
    if (come < 0) return;
    struct act add = post_make(&w->chan.v[come], come, KIND_RECV);
    add.op = ACT_G;
    if (!any_of(w->p, me, k)) add.flags = ACT_FIRST;
    *vec_push(&w->row[rank]) = add;
}

/* A bucket takes 2 n steps, each with posts: halving, where the received share is added first, then doubling. If
 * weights are shared out, the optimizer runs between the two, so the last step only adds. The transport takes one
 * step. */
static int steps(const struct plan *p)
{
    if (p->pl->sharing.by_transport) return 1;
    return placement_halvings(p->pl) + (p->pl->sharing.weights ? 1 : placement_halvings(p->pl));
}

static void step_emit(struct lower *w, int rank, int b, int step)
{
    int n = placement_halvings(w->p->pl);
    if (w->p->pl->sharing.by_transport) {
        int c = channel_find(w, CHAN_ALL, rank, b, 0, 0);
        *vec_push(&w->row[rank]) = post_make(&w->chan.v[c], c, KIND_ALL);
        return;
    }
    if (step >= 1 && step <= n) add_emit(w, rank, b, step - 1);
    if (step < n) exchange_emit(w, rank, b, CHAN_SUM, step);
    else if (!w->p->pl->sharing.weights) exchange_emit(w, rank, b, CHAN_SUMMED, 2 * n - 1 - step);
}

/* Phase i starts bucket i and advances each earlier bucket by a step, the oldest first, so all pipelines have the same
 * order on each link. LAG phases lie between two steps of a bucket; its messages travel in that time. */
enum { LAG = 2 };
static int phases(const struct lower *w, int rank)
{
    int n = w->bucket[rank].n;
    return n ? n + (steps(w->p) - 1) * LAG : 0;
}

static void phase_emit(struct lower *w, int rank)
{
    int i = w->phase[rank]++;
    for (int b = 0; b <= i && b < w->bucket[rank].n; b++)
        if ((i - b) % LAG == 0 && (i - b) / LAG < steps(w->p)) step_emit(w, rank, b, (i - b) / LAG);
}

/* Are the gradients of a bucket final? Then all later gradients of the network are final, too. */
static bool is_final(const struct lower *w, int rank, const struct bucket *b)
{
    const struct plan *p = w->p;
    bool yes = b->group >= 0;
    for (int s = 0; s < p->n_stages && yes; s++) {
        const struct stage_plan *st = &p->stage[s];
        if (st->rank == rank && st->first_group + st->n_groups > b->group)
            yes = w->final[s] <= (b->group > st->first_group ? b->group : st->first_group);
    }
    return yes;
}

void dp_final_emit(struct lower *w, int rank)
{
    const struct buckets *b = &w->bucket[rank];
    while (w->phase[rank] < b->n && is_final(w, rank, &b->v[w->phase[rank]])) phase_emit(w, rank);
}

void dp_sum_emit(struct lower *w, int rank)
{
    while (w->phase[rank] < phases(w, rank)) phase_emit(w, rank);
}

/* Messages of one exchange travel while those of the next buckets are posted. */
void dp_weights_emit(struct lower *w, int rank)
{
    for (int k = placement_halvings(w->p->pl) - 1; k >= 0 && w->p->pl->sharing.weights; k--)
        for (int b = 0; b < w->bucket[rank].n; b++) exchange_emit(w, rank, b, CHAN_WEIGHT, k);
}
