/* What goes between replicas at the end of a step: what all micro-batches keep, so that each replica applies statistics
 * in the order of the whole batch; and gradients, by recursive halving and then doubling. In the k-th exchange a rank's
 * partner is 2^k replicas away, nearest first; they swap halves of what both hold, and each adds what it got to what it
 * kept. So sums are added neighbours first, like the blocks below them, and since a + b is b + a every share of the
 * gradients ends as the same tree. (Recursive halving and doubling: Thakur, Rabenseifner and Gropp 2005.) */
#include "plan/plan_int.h"

static struct channel *channel_between(struct lower *w, enum chan_kind kind, int rank, int from, int to)
{
    int stage = w->p->pl->map.stages_of[rank][0];
    struct channel *c = vec_push(&w->chan);
    *c = (struct channel){.kind = kind, .param = -1, .from_stage = stage, .to_stage = stage, .from_rank = rank,
                          .to_rank = rank, .from_replica = from, .to_replica = to};
    return c;
}

/* The share that a replica has of so many bytes when it has swapped halves n times. */
struct share { size_t at, end; };
static struct share share_of(size_t bytes, int replica, int n)
{
    struct share s = {0, bytes};
    for (int k = 0; k < n; k++) {
        size_t middle = s.at + size_align64((s.end - s.at) / 2);
        if (replica >> k & 1) s.at = middle;
        else s.end = middle;
    }
    return s;
}

/* Has any of the 2^k replicas around this one, whose gradients are added already, a micro-batch? */
static bool any_of(const struct plan *p, int replica, int k)
{
    int first = replica >> k << k;
    for (int i = first; i < first + (1 << k); i++) if (p->part[i].n_micro) return true;
    return false;
}

/* One that is no gradient yet is not sent: what comes from elsewhere is taken instead of added. */
static void sum_channel(struct lower *w, int rank, int from, int k, bool summed)
{
    int to = from ^ (1 << k);
    struct share s = share_of(w->p->pl->sum_bytes[rank], summed ? from : to, k + 1);
    if (s.end == s.at || (!summed && !any_of(w->p, from, k))) return;
    struct channel *c = channel_between(w, summed ? CHAN_SUMMED : CHAN_SUM, rank, from, to);
    c->off = s.at;
    c->bytes_per_sample = s.end - s.at;
}

static int exchanges(const struct plan *p)
{
    int n = 0;
    while (1 << n < p->req.replicas) n++;
    return n;
}

/* Evaluations are read on the first replica alone. */
static void kept_channels(struct lower *w)
{
    const struct plan *p = w->p;
    for (int c = 0; c < w->cls.n; c++) {
        struct slot_class *k = &w->cls.v[c];
        if (k->last != L_O) continue;
        for (int to = 0; to < (p->req.mode == PLAN_TRAIN ? p->req.replicas : 1); to++)
            for (int from = 0; from < p->req.replicas; from++) {
                if (from == to || !p->part[from].n_mb) continue;
                struct channel *h = channel_between(w, CHAN_KEPT, p->stage[k->stage].rank, from, to);
                h->tensor = c;
                h->from_stage = h->to_stage = k->stage;
                h->bytes_per_sample = k->bytes * (size_t)p->part[from].n_mb;
                if (to == p->req.replica && !k->copy)
                    k->copy = arena_alloc(p->mem, (size_t)p->req.replicas * sizeof *k->copy);
            }
    }
}

void lower_replicas(struct lower *w)
{
    const struct plan *p = w->p;
    int n = exchanges(p);
    if (p->req.replicas < 2) return;
    kept_channels(w);
    for (int rank = 0; rank < p->n_ranks && p->req.mode == PLAN_TRAIN; rank++) {
        for (int k = 0; k < n; k++)
            for (int from = 0; from < p->req.replicas; from++) sum_channel(w, rank, from, k, false);
        for (int k = n - 1; k >= 0; k--)
            for (int from = 0; from < p->req.replicas; from++) sum_channel(w, rank, from, k, true);
    }
}

/* ---- posts ------------------------------------------------------------------------------------------------------- */

static struct act post_make(const struct channel *h, int chan, enum act_kind end)
{
    return (struct act){.op = (uint8_t)act_post(h->kind, end), .stage = (uint16_t)h->from_stage, .n_mb = 1,
                        .chan = chan};
}

void replicas_kept_emit(struct lower *w, int rank)
{
    int me = w->p->req.replica;
    for (int c = 0; c < w->chan.n; c++) {
        const struct channel *h = &w->chan.v[c];
        if (h->kind != CHAN_KEPT || h->from_rank != rank || (h->from_replica != me && h->to_replica != me)) continue;
        *vec_push(&w->row[rank]) = post_make(h, c, h->from_replica == me ? KIND_SEND : KIND_RECV);
    }
}

/* The channel of the k-th exchange in one direction; -1: nothing goes that way. */
static int channel_find(const struct lower *w, enum chan_kind kind, int rank, int from, int to)
{
    for (int c = 0; c < w->chan.n; c++) {
        const struct channel *h = &w->chan.v[c];
        if (h->kind == kind && h->from_rank == rank && h->from_replica == from && h->to_replica == to) return c;
    }
    return -1;
}

static void exchange_emit(struct lower *w, int rank, enum chan_kind kind, int k)
{
    int me = w->p->req.replica, partner = me ^ (1 << k);
    int send = channel_find(w, kind, rank, me, partner), come = channel_find(w, kind, rank, partner, me);
    if (send >= 0) *vec_push(&w->row[rank]) = post_make(&w->chan.v[send], send, KIND_SEND);
    if (come < 0) return;
    *vec_push(&w->row[rank]) = post_make(&w->chan.v[come], come, KIND_RECV);
    if (kind != CHAN_SUM) return;
    struct act add = post_make(&w->chan.v[come], come, KIND_RECV);
    add.op = ACT_G;
    if (!any_of(w->p, me, k)) add.flags = ACT_FIRST;
    *vec_push(&w->row[rank]) = add;
}

void replicas_sum_emit(struct lower *w, int rank)
{
    int n = exchanges(w->p);
    for (int k = 0; k < n; k++) exchange_emit(w, rank, CHAN_SUM, k);
    for (int k = n - 1; k >= 0; k--) exchange_emit(w, rank, CHAN_SUMMED, k);
}
