/* The checker for replicas. It plays all exchanges between replicas, each share of the gradients as a hash of how it
 * was made. Posts must meet in the order of each link, and nothing may wait for ever. Each update of a weight must use
 * the tree over all blocks. Where one replica updates a weight, all others must end with the weight that it made. A sum
 * that the transport forms counts as that tree if each replica gave its own sum, once, in the same order. */
#include <stdlib.h>
#include <string.h>
#include "plan/check_int.h"

/* A message on its way: the pieces that it carries, as they were when it was posted. all: how many replicas have posted
 * it, for a sum over all replicas. */
struct dp_message { bool sent, posted; uint64_t *piece; int all; };
/* The rank of a replica. at: its position in the row. sum: what it holds of each piece; came: what arrived to be added.
 * updated: of each parameter, whether it is this step's result. open: of each bucket (0: none) and kind of message, how
 * many posts wait for their other end, sends and receives apart. own: the sum of its blocks. n_all: sums over all
 * replicas that it has posted. */
struct player { int at; uint64_t *sum, *came, own; bool *updated; int *open, n_all; };
/* cut: where shares of one rank's gradients begin or end, ascending; pieces are between cuts. */
struct stage_play {
    struct plan *const *p; int n, rank, n_cuts, n_buckets; size_t *cut; struct player *play;
    struct dp_message *message; struct err *e;
    uint64_t want;                                       /* the sum of all blocks */
};

static int fail(const struct stage_play *s, int dp, const struct act *a, const char *what)
{
    char t[32];
    return err_set(s->e, E_INTERNAL, "illegal plan: replica %d, rank %d, %s: %s", dp, s->rank,
                   act_text(s->p[dp], a, t), what);
}

/* Is any part of a use's accumulator in [at, end)? */
static bool use_in(const struct stage_play *s, const struct plan *p, int param, int use, size_t at, size_t end)
{
    const struct state_row *r = &p->pl->state[param];
    size_t off = placement_use(p->pl, s->rank, param, use);
    return r->trained && off != STATE_NOWHERE && off < end && off + r->bytes > at;
}

/* Does an action that accumulates add to anything in [at, end)? It checks every use of all groups that the action
 * runs. */
static bool adds_to(const struct stage_play *s, const struct plan *p, const struct act *a, size_t at, size_t end)
{
    const struct stage_plan *st = &p->stage[a->stage];
    int from = a->piece ? st->piece[a->piece - 1] : st->first_group;
    int to = a->piece > 1 ? st->piece[a->piece - 2] : st->first_group + st->n_groups;
    for (int g = from; g < to; g++) {
        const struct group *k = &p->sel->group[g];
        for (int i = 0; i < k->n_param; i++) if (use_in(s, p, k->param[i], k->use[i], at, end)) return true;
    }
    return false;
}

/* When gradients are sent or received, no later pass of this rank and no rank with uses of the weight may add to them,
 * at level 0 or 1. A rank that may wait for other replicas must have no messages left within its replica. Otherwise
 * such messages could wait for each other in a circle. */
static int final_check(const struct stage_play *s, int dp, int i)
{
    const struct plan *p = s->p[dp];
    const struct act *row = p->row[s->rank], *a = &row[i];
    const struct channel *h = &p->chan[a->chan];
    size_t end = h->off + h->bytes_per_sample;
    for (int k = 0; k < p->row_n[s->rank]; k++) {
        const struct channel *tied = row[k].op == ACT_RP ? &p->chan[row[k].chan] : NULL;
        bool comes = tied && use_in(s, p, tied->param, tied->tensor, h->off, end);
        if (comes && k > i) return fail(s, dp, a, "tied gradients come later");
        if (comes && !h->late) return fail(s, dp, a, "it does not wait for tied gradients");
    }
    for (int k = i + 1; k < p->row_n[s->rank]; k++) {
        bool adds = row[k].op == ACT_B || row[k].op == ACT_W || row[k].op == ACT_D || row[k].op == ACT_A;
        if (adds && adds_to(s, p, &row[k], h->off, end)) return fail(s, dp, a, "its gradients are not final");
        if (row[k].op == ACT_SF || row[k].op == ACT_RF || row[k].op == ACT_SB || row[k].op == ACT_RB)
            return fail(s, dp, a, "another rank of the replica would wait for other replicas, too");
    }
    return 0;
}

/* Both ends must have the same description of each channel. */
static int channels_check(struct plan *const *p, int n, struct err *e)
{
    for (int r = 1; r < n; r++) {
        bool same = p[r]->n_chan == p[0]->n_chan;
        for (int c = 0; c < p[0]->n_chan && same; c++) {
            const struct channel *x = &p[0]->chan[c], *y = &p[r]->chan[c];
            same = x->kind == y->kind && x->axis == y->axis && x->off == y->off && x->bucket == y->bucket &&
                   x->bytes_per_sample == y->bytes_per_sample && x->late == y->late;
            for (int a = 0; a <= (int)x->axis; a++)          /* along AXIS_PP each plan has its own coordinate dp */
                same &= x->from.at[a] == y->from.at[a] && x->to.at[a] == y->to.at[a];
        }
        if (!same) return err_set(e, E_INTERNAL, "illegal plan: replicas 0 and %d have other channels", r);
    }
    return 0;
}

static bool is_gradient(const struct channel *h)
{
    return h->kind == CHAN_SUM || h->kind == CHAN_SUMMED || h->kind == CHAN_ALL;
}

static int by_size(const void *a, const void *b)
{
    size_t x = *(const size_t *)a, y = *(const size_t *)b;
    return (x > y) - (x < y);
}

static void cuts_find(struct stage_play *s)
{
    const struct plan *p = s->p[0];
    int n = 0;
    s->cut = mem_alloc((size_t)(2 * p->n_chan + 2) * sizeof *s->cut);
    s->cut[n++] = 0;
    s->cut[n++] = p->pl->sum_bytes[s->rank];
    s->n_buckets = 1;
    for (int c = 0; c < p->n_chan; c++) {
        const struct channel *h = &p->chan[c];
        if (h->bucket >= s->n_buckets) s->n_buckets = h->bucket + 1;
        if (!is_gradient(h) || h->from.at[AXIS_PP] != s->rank) continue;
        s->cut[n++] = h->off;
        s->cut[n++] = h->off + h->bytes_per_sample;
    }
    qsort(s->cut, (size_t)n, sizeof *s->cut, by_size);
    for (int i = 0; i < n; i++) if (!s->n_cuts || s->cut[i] != s->cut[s->n_cuts - 1]) s->cut[s->n_cuts++] = s->cut[i];
}

static bool inside(const struct stage_play *s, const struct channel *h, int piece)
{
    return s->cut[piece] >= h->off && s->cut[piece + 1] <= h->off + h->bytes_per_sample;
}

static int *open_of(const struct stage_play *s, int dp, int bucket, int kind, bool comes)
{
    return &s->play[dp].open[(bucket * CHAN_KINDS + kind) * 2 + comes];
}

static int share_add(struct stage_play *s, int dp, const struct act *a)
{
    struct player *x = &s->play[dp];
    const struct channel *h = &s->p[dp]->chan[a->chan];
    for (int i = 0; i + 1 < s->n_cuts; i++) {
        if (!inside(s, h, i)) continue;
        bool first = a->flags & ACT_FIRST;
        if (!x->came[i] || first != !x->sum[i]) return fail(s, dp, a, "adds what is nothing");
        /* a + b is b + a: the lower replicas' sum comes first */
        uint64_t low = h->from.at[AXIS_DP] < dp ? x->came[i] : x->sum[i];
        uint64_t high = h->from.at[AXIS_DP] < dp ? x->sum[i] : x->came[i];
        x->sum[i] = first ? x->came[i] : check_sum_of(low, high);
        x->came[i] = 0;
    }
    --*open_of(s, h->from.at[AXIS_DP], h->bucket, CHAN_SUM, false);
    return 0;
}

/* ---- weights: updated from the sum of all blocks, then sent to other replicas ---- */

static bool weight_in(const struct stage_play *s, const struct state_row *r, const struct channel *h)
{
    size_t at = r->off[s->rank];
    return at != STATE_NOWHERE && h->off < at + r->bytes && at < h->off + h->bytes_per_sample;
}

/* Are all sums from which the optimizer updates a parameter, over its uses, the sum of all blocks? */
static bool sum_is_whole(const struct stage_play *s, int dp, int param)
{
    const struct plan *p = s->p[dp];
    const struct player *x = &s->play[dp];
    for (int u = 0; u < p->sel->g->param[param].n_uses; u++)
        for (int i = 0; i + 1 < s->n_cuts; i++)
            if (use_in(s, p, param, u, s->cut[i], s->cut[i + 1]) && x->sum[i] != s->want) return false;
    return true;
}

static int weights_update(struct stage_play *s, int dp, const struct act *a)
{
    const struct mesh_coord rank = {{[AXIS_PP] = s->rank, [AXIS_DP] = dp}};
    for (int i = 0; i < s->p[dp]->sel->g->n_params; i++) {
        if (!placement_updates(&s->p[dp]->pl->state[i], rank)) continue;
        if (!sum_is_whole(s, dp, i)) return fail(s, dp, a, "it has not the sum of all blocks");
        s->play[dp].updated[i] = true;
    }
    return 0;
}

/* A message of weights carries whole weights that the rank owns, and nothing else. The sender has their new values. */
static int weights_check(const struct stage_play *s, int dp, const struct act *a, bool send)
{
    const struct placement *pl = s->p[dp]->pl;
    const struct channel *h = &s->p[dp]->chan[a->chan];
    size_t bytes = 0;
    for (int i = 0; i < s->p[dp]->sel->g->n_params; i++) {
        const struct state_row *r = &pl->state[i];
        if (!weight_in(s, r, h)) continue;
        bool updated = s->play[dp].updated[i];
        if (!r->trained || r->owner != s->rank) return fail(s, dp, a, "it carries what is not trained here");
        if (updated != send) return fail(s, dp, a, send ? "it sends an old weight" : "it has the weight already");
        bytes += r->bytes;
    }
    return bytes == h->bytes_per_sample ? 0 : fail(s, dp, a, "it carries parts of weights");
}

static int weights_end(const struct stage_play *s, int dp)
{
    const struct placement *pl = s->p[dp]->pl;
    for (int i = 0; i < s->p[dp]->sel->g->n_params; i++) {
        const struct state_row *r = &pl->state[i];
        if (r->trained && r->owner == s->rank && !s->play[dp].updated[i])
            return err_set(s->e, E_INTERNAL, "illegal plan: replica %d, rank %d ends with an old %s", dp, s->rank,
                           r->name);
    }
    return 0;
}

static void message_take(struct stage_play *s, int dp, const struct channel *h, int chan)
{
    struct player *x = &s->play[dp];
    uint64_t *to = h->kind == CHAN_SUM ? x->came : x->sum;
    for (int i = 0; h->kind == CHAN_WEIGHT && i < s->p[dp]->sel->g->n_params; i++)
        if (weight_in(s, &s->p[dp]->pl->state[i], h)) x->updated[i] = true;
    for (int i = 0; i + 1 < s->n_cuts && is_gradient(h); i++)
        if (inside(s, h, i)) to[i] = s->message[chan].piece[i];
}

/* A message waits only for messages of its bucket, so no other bucket may contain the same gradients. */
static int buckets_check(const struct stage_play *s)
{
    const struct plan *p = s->p[0];
    for (int i = 0; i + 1 < s->n_cuts; i++) {
        int bucket = 0;
        for (int c = 0; c < p->n_chan; c++) {
            const struct channel *h = &p->chan[c];
            bool here = is_gradient(h) && h->from.at[AXIS_PP] == s->rank && inside(s, h, i);
            if (!here) continue;
            if (h->bucket < 1 || (bucket && h->bucket != bucket))
                return err_set(s->e, E_INTERNAL, "illegal plan: rank %d: gradients of bucket %d are in bucket %d, too",
                               s->rank, bucket, h->bucket);
            bucket = h->bucket;
        }
    }
    return 0;
}

/* Have all posts of these kinds and this bucket (0: any) met their other end? */
static bool over(const struct stage_play *s, int dp, int bucket, unsigned come, unsigned left)
{
    for (int b = bucket; b < (bucket ? bucket + 1 : s->n_buckets); b++)
        for (int kind = 0; kind < CHAN_KINDS; kind++)
            if ((come >> kind & 1 && *open_of(s, dp, b, kind, true)) ||
                (left >> kind & 1 && *open_of(s, dp, b, kind, false)))
                return false;
    return true;
}

/* Posts this end; the second end completes the message. The receiver may read a SUM in the sender's memory, so the
 * sender's post stays open until the receiver has added it. */
static void message_post(struct stage_play *s, const struct channel *h, int chan, bool send)
{
    struct dp_message *m = &s->message[chan];
    int *sending = open_of(s, h->from.at[AXIS_DP], h->bucket, h->kind, false);
    int *coming = open_of(s, h->to.at[AXIS_DP], h->bucket, h->kind, true);
    *(send ? &m->sent : &m->posted) = true;
    ++*(send ? sending : coming);
    if (!m->sent || !m->posted) return;
    --*coming;
    if (h->kind != CHAN_SUM) --*sending;
    message_take(s, h->to.at[AXIS_DP], h, chan);
}

/* The n-th sum that a replica posts is the n-th sum of all other replicas. The last post completes it. */
static int all_post(struct stage_play *s, int dp, const struct act *a, int i)
{
    struct player *x = &s->play[dp];
    const struct channel *h = &s->p[dp]->chan[a->chan];
    struct dp_message *m = &s->message[a->chan];
    if (final_check(s, dp, i)) return -1;
    for (int k = 0, n = 0; k < s->p[0]->row_n[s->rank]; k++) {
        const struct act *y = &s->p[0]->row[s->rank][k];
        if (y->op == ACT_X && n++ == x->n_all && y->chan != a->chan)
            return fail(s, dp, a, "another replica adds something else first");
    }
    for (int k = 0; k + 1 < s->n_cuts; k++)
        if (inside(s, h, k) && x->sum[k] != x->own) return fail(s, dp, a, "it has not the sum of its blocks");
    x->n_all++;
    ++*open_of(s, dp, h->bucket, CHAN_ALL, false);
    if (++m->all < s->n) return 1;
    for (int r = 0; r < s->n; r++) {
        --*open_of(s, r, h->bucket, CHAN_ALL, false);
        for (int k = 0; k + 1 < s->n_cuts; k++) if (inside(s, h, k)) s->play[r].sum[k] = s->want;
    }
    return 1;
}

/* 1: it ran; 0: it waits; -1: illegal. */
static int act_play(struct stage_play *s, int dp, int i)
{
    const struct plan *p = s->p[dp];
    const struct act *a = &p->row[s->rank][i];
    enum { SUM = 1 << CHAN_SUM, SUMMED = 1 << CHAN_SUMMED, KEPT = 1 << CHAN_KEPT, WEIGHT = 1 << CHAN_WEIGHT,
           ALL = 1 << CHAN_ALL };
    bool ends = a->op == ACT_N || a->op == ACT_O;
    bool weight = a->op == ACT_SW || a->op == ACT_SU;
    unsigned come = a->op == ACT_G ? SUM : a->op == ACT_SM ? SUMMED : ends ? SUMMED | KEPT : weight ? WEIGHT : 0;
    const struct channel *h = a->chan >= 0 ? &p->chan[a->chan] : NULL;
    unsigned left = a->op == ACT_RM ? SUM : ends ? SUMMED | ALL : 0;
    if (a->op == ACT_N) come |= SUM, left |= SUM;        /* a row may end there: no memory is lent any more */
    if (!over(s, dp, h ? h->bucket : 0, come, left)) return 0;
    if (a->op == ACT_O && weights_update(s, dp, a)) return -1;
    if (a->op == ACT_SU && !s->play[dp].updated[h->param])
        return fail(s, dp, a, "the weight has not come from who updates it");
    if (!h || h->axis == AXIS_PP) return 1;
    if (a->op == ACT_X) return all_post(s, dp, a, i);
    struct dp_message *m = &s->message[a->chan];
    bool send = h->from.at[AXIS_DP] == dp;
    if (!send && h->to.at[AXIS_DP] != dp) return fail(s, dp, a, "the channel is another replica's");
    if (is_gradient(h) && final_check(s, dp, i)) return -1;
    if (a->op == ACT_G) return share_add(s, dp, a) ? -1 : 1;
    if (send != (a->op == ACT_SG || a->op == ACT_SM || a->op == ACT_SK || a->op == ACT_SW))
        return fail(s, dp, a, "the wrong end");
    if (h->kind == CHAN_WEIGHT && weights_check(s, dp, a, send)) return -1;
    if (send ? m->sent : m->posted) return fail(s, dp, a, "twice");
    if (send) {
        m->piece = mem_alloc((size_t)s->n_cuts * sizeof *m->piece);
        for (int k = 0; k + 1 < s->n_cuts && is_gradient(h); k++)
            if (inside(s, h, k) && !(m->piece[k] = s->play[dp].sum[k]))
                return fail(s, dp, a, "sends what is nothing");
    }
    message_post(s, h, a->chan, send);
    return 1;
}

/* Posts from one replica to another, in the order of a row. */
struct link_posts { VEC(const struct act *) end[2]; };

static struct link_posts *links_find(const struct stage_play *s)
{
    struct link_posts *link = mem_alloc((size_t)(s->n * s->n) * sizeof *link);
    for (int r = 0; r < s->n; r++)
        for (int i = 0; i < s->p[r]->row_n[s->rank]; i++) {
            const struct act *a = &s->p[r]->row[s->rank][i];
            const struct channel *h = a->chan >= 0 && a->op != ACT_G ? &s->p[r]->chan[a->chan] : NULL;
            if (!h || h->axis == AXIS_PP || h->kind == CHAN_ALL) continue;
            struct link_posts *l = &link[h->from.at[AXIS_DP] * s->n + h->to.at[AXIS_DP]];
            if (h->from.at[AXIS_DP] == r) *vec_push(&l->end[0]) = a;
            if (h->to.at[AXIS_DP] == r) *vec_push(&l->end[1]) = a;
        }
    return link;
}

/* Both ends of each link have the same messages in the same order. */
static int order_check(const struct stage_play *s)
{
    struct link_posts *link = links_find(s);
    int bad = 0;
    for (int k = 0; k < s->n * s->n; k++) {
        struct link_posts *l = &link[k];
        int n = l->end[0].n > l->end[1].n ? l->end[0].n : l->end[1].n;
        for (int i = 0; i < n && !bad; i++) {
            const struct act *from = i < l->end[0].n ? l->end[0].v[i] : NULL;
            const struct act *to = i < l->end[1].n ? l->end[1].v[i] : NULL;
            if (!from || !to || from->chan != to->chan)
                bad = fail(s, from ? k / s->n : k % s->n, from ? from : to, "the link has another message first");
        }
        vec_free(&l->end[0]); vec_free(&l->end[1]);
    }
    free(link);
    return bad;
}

/* Sums are added in the order of their receives, because the transport takes the memory back in that order. */
static int adds_check(const struct stage_play *s, int dp, int from)
{
    const struct plan *p = s->p[dp];
    const struct act *row = p->row[s->rank];
    int n = p->row_n[s->rank], next = 0;
    for (int i = 0; i < n; i++) {
        if (row[i].op != ACT_G || p->chan[row[i].chan].from.at[AXIS_DP] != from) continue;
        while (next < n && (row[next].op != ACT_RG || p->chan[row[next].chan].from.at[AXIS_DP] != from)) next++;
        if (next >= i || row[next].chan != row[i].chan) return fail(s, dp, &row[i], "something else came first");
        next++;
    }
    return 0;
}

static int rank_play(struct stage_play *s)
{
    const struct plan *first = s->p[0];
    int bad = buckets_check(s);
    for (int r = 0; r < s->n && !bad; r++) for (int from = 0; from < s->n && !bad; from++) bad = adds_check(s, r, from);
    s->want = check_sum_wanted(first, 0, first->req.groups);
    for (int r = 0; r < s->n && !bad; r++) {
        uint64_t own = check_sum_wanted(s->p[r], s->p[r]->part[r].first_block, s->p[r]->part[r].end_block);
        s->play[r].sum = mem_alloc((size_t)(2 * s->n_cuts) * sizeof(uint64_t));
        s->play[r].came = s->play[r].sum + s->n_cuts;
        s->play[r].updated = mem_alloc((size_t)first->sel->g->n_params + 1);
        s->play[r].open = mem_alloc((size_t)s->n_buckets * CHAN_KINDS * 2 * sizeof(int));
        s->play[r].own = own;
        for (int i = 0; i < s->n_cuts; i++) s->play[r].sum[i] = own;
    }
    if (!bad) bad = order_check(s);
    for (bool moved = true; moved && bad >= 0;) {
        moved = false;
        for (int r = 0; r < s->n; r++)
            for (int ran = 1; ran > 0 && bad >= 0 && s->play[r].at < s->p[r]->row_n[s->rank];) {
                ran = act_play(s, r, s->play[r].at);
                s->play[r].at += ran > 0;
                moved |= ran > 0;
                if (ran < 0) bad = -1;
            }
    }
    for (int r = 0; r < s->n && !bad; r++) {
        int at = s->play[r].at;
        if (at < s->p[r]->row_n[s->rank]) bad = fail(s, r, &s->p[r]->row[s->rank][at], "waits for ever");
        if (!bad && first->req.mode == PLAN_TRAIN) bad = weights_end(s, r);
    }
    for (int c = 0; c < first->n_chan && !bad; c++)
        if (first->chan[c].from.at[AXIS_PP] == s->rank && s->message[c].sent != s->message[c].posted)
            bad = err_set(s->e, E_INTERNAL, "illegal plan: channel %d has one end", c);
    return bad;
}

int plan_check_dp(struct plan *const *p, struct err *e)
{
    int n = p[0]->pl->mesh.size[AXIS_DP];
    if (channels_check(p, n, e)) return -1;
    for (int rank = 0; rank < p[0]->n_ranks; rank++) {
        struct stage_play s = {.p = p, .n = n, .rank = rank, .e = e, .play = mem_alloc((size_t)n * sizeof *s.play),
                               .message = mem_alloc((size_t)(p[0]->n_chan + 1) * sizeof *s.message)};
        cuts_find(&s);
        int bad = rank_play(&s);
        for (int r = 0; r < n; r++) { free(s.play[r].sum); free(s.play[r].updated); free(s.play[r].open); }
        for (int c = 0; c < p[0]->n_chan; c++) free(s.message[c].piece);
        free(s.play); free(s.message); free(s.cut);
        if (bad) return -1;
    }
    return 0;
}
