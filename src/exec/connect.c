/* What a device transport must know before the first step: the stream, and the maximum use of each link. */
#include <stdlib.h>
#include "exec/exec_int.h"

/* peer: TP_ALL is the group for sums. */
static struct tp_use *use_find(struct tp_use *use, int *n, int peer, bool send)
{
    for (int i = 0; i < *n; i++) if (use[i].peer == peer && use[i].send == send) return &use[i];
    use[*n] = (struct tp_use){.peer = peer, .send = send};
    return &use[(*n)++];
}

/* Adds one plan's posts to the links. Posts of different plans are never open together, so the largest count is
 * enough. */
static void uses_of(const struct exec *s, const struct plan *p, struct tp_use *use, int *n, int *count)
{
    for (int i = 0; i < *n; i++) count[i] = 0;
    for (int i = 0; i < p->row_n[s->rank]; i++) {
        const struct act *a = &p->row[s->rank][i];
        if (!act_is_post(a->op)) continue;
        const struct channel *c = &p->chan[a->chan];
        bool send = act_info[a->op].kind == KIND_SEND;
        int known = *n;
        int peer = c->kind == CHAN_ALL ? TP_ALL : tp_rank_of(s, send ? c->to : c->from);
        struct tp_use *u = use_find(use, n, peer, send || peer == TP_ALL);
        if (*n > known) count[known] = 0;
        int posts = ++count[u - use];
        if (posts > u->posts) u->posts = posts;
        size_t bytes = act_bytes(p, a);
        if (bytes > u->bytes) u->bytes = bytes;
    }
}

/* link_measure sends to and receives from neighbours, whatever the plans do. */
static void uses_of_measuring(const struct exec *s, struct tp_use *use, int *n)
{
    for (int i = 0; i < 4; i++) {
        int peer = i < 2 ? s->rank - 1 : s->rank + 1;
        if (peer < 0 || peer >= s->q.pl->mesh.size[AXIS_PP]) continue;
        struct tp_use *u = use_find(use, n, tp_rank_along(s, AXIS_PP, peer), i % 2);
        if (!u->posts) u->posts = 1;
        if (u->bytes < LINK_LARGE) u->bytes = LINK_LARGE;
    }
}

/* Sets `with` for the peers, in the transport's numbers, of the plan's messages that may be lent. Returns the bytes of
 * other ranks' memory that a step reads; the system counts them as this rank's, too. */
static size_t lending(const struct exec *s, const struct plan *p, bool *with)
{
    size_t bytes = 0;
    for (int i = 0; i < p->row_n[s->rank]; i++) {
        const struct act *a = &p->row[s->rank][i];
        const struct channel *c = act_is_post(a->op) ? &p->chan[a->chan] : NULL;
        if (!c || !channel_lends(c->kind)) continue;
        bool comes = act_info[a->op].kind == KIND_RECV;
        int peer = tp_rank_of(s, comes ? c->from : c->to);
        with[peer] = true;
        if (comes && s->tp->ops->reads(s->tp, peer)) bytes += act_bytes(p, a);
    }
    return bytes;
}

/* The maximum over all plans. */
static size_t lending_most(const struct exec *s, bool *with)
{
    size_t most = 0;
    for (int i = 0; i < s->n_bound; i++) {
        size_t bytes = lending(s, s->bound[i].p, with);
        if (bytes > most) most = bytes;
    }
    return most;
}

static int windows_meet(struct exec *s, struct err *e)
{
    if (s->q.pl->mesh.size[AXIS_DP] < 2 || !s->tp->ops->meet || !s->q.conf->pipeline.read_in_place) return 0;
    bool *with = mem_alloc((size_t)s->tp->ops->size(s->tp) * sizeof *with);
    lending_most(s, with);
    int bad = s->tp->ops->meet(s->tp, with, e);
    if (!bad) s->read_bytes = lending_most(s, with);
    free(with);
    return bad;
}

int exec_connect(struct exec *s, struct err *e)
{
    if (!s->ops->stream && windows_meet(s, e)) return -1;
    if (!s->ops->stream || !s->tp->ops->attach) return 0;
    int links = 2 * s->tp->ops->size(s->tp) + 1, n = 0, n_dp = s->q.pl->mesh.size[AXIS_DP], member[MAX_DP];
    struct tp_use *use = mem_alloc((size_t)links * sizeof *use);
    int *count = mem_alloc((size_t)links * sizeof *count);
    for (int i = 0; i < s->n_bound; i++) uses_of(s, s->bound[i].p, use, &n, count);
    if (s->q.links) uses_of_measuring(s, use, &n);
    for (int i = 0; i < n_dp; i++) member[i] = tp_rank_along(s, AXIS_DP, i);
    for (int i = 0; i < n; i++) if (use[i].peer == TP_ALL) use[i].member = member, use[i].members = n_dp;
    int bad = s->tp->ops->attach(s->tp, s->ops->stream(s->be), use, n, e);
    free(use);
    free(count);
    return bad;
}
