/* Buckets: a rank's gradients, cut up so that replicas exchange those of the last layers while the first ones' are
 * still computed. Which there are follows from placement and sizes alone, so all replicas have the same ones in the
 * same order, whatever their rows; and every value is added to the same one of each other replica, so buckets decide
 * no bits. */
#include "plan/plan_int.h"

/* Channels between replicas are numbered with others, and a piece in an action has 8 bits. Where tied weights lie
 * between others there may be more buckets than that; then the last piece is larger. */
enum { MAX_CHANNELS = 4096, MAX_BUCKETS = 200, MAX_PIECES = UINT8_MAX };

static size_t bucket_bytes(const struct plan *p, int rank)
{
    int n = 0, replicas = p->req.replicas;
    while (1 << n < replicas) n++;
    int most = MAX_CHANNELS / (2 * n * replicas * p->n_ranks);
    if (most > MAX_BUCKETS) most = MAX_BUCKETS;
    size_t least = p->pl->sum_bytes[rank] / (size_t)(most > 1 ? most : 1) + 1;
    return !p->req.bucket ? SIZE_MAX : p->req.bucket > least ? p->req.bucket : least;
}

/* Accumulators lie in the order of weights, so from the end of the region they become final one after the other. What
 * another rank adds to has buckets of its own. */
static void use_add(struct buckets *b, size_t at, size_t bytes, int group, size_t full)
{
    struct bucket *last = b->n ? &b->v[b->n - 1] : NULL;
    bool joins = last && last->end - last->at < full && (last->group < 0) == (group < 0);
    if (!joins) {
        b->v[b->n++] = (struct bucket){at, at + bytes, group};
        return;
    }
    last->at = at;
    if (group < last->group) last->group = group;
}

static void final_first(struct buckets *b)
{
    for (int i = 1; i < b->n; i++)
        for (int k = i; k > 0 && b->v[k].group > b->v[k - 1].group; k--) {
            struct bucket x = b->v[k];
            b->v[k] = b->v[k - 1];
            b->v[k - 1] = x;
        }
}

struct buckets buckets_make(struct arena *mem, const struct plan *p, int rank)
{
    const struct placement *pl = p->pl;
    const struct graph *g = p->sel->g;
    struct buckets b = {0};
    if (p->req.replicas < 2 || p->req.mode != PLAN_TRAIN) return b;
    size_t full = bucket_bytes(p, rank);
    b.v = arena_alloc(mem, (size_t)(pl->use_first[g->n_params] + 1) * sizeof *b.v);
    for (int i = g->n_params - 1; i >= 0; i--)
        for (int u = g->param[i].n_uses - 1; u >= 0 && pl->state[i].trained && pl->state[i].owner == rank; u--) {
            bool here = pl->map.rank_of[pl->use_stage[pl->use_first[i] + u]] == rank;
            use_add(&b, placement_use(pl, rank, i, u), pl->state[i].bytes,
                    here ? p->sel->group_of[g->param[i].use_node[u]] : -1, full);
        }
    final_first(&b);
    return b;
}

/* A stage's pieces end where a bucket of its rank becomes final. */
void pieces_make(struct plan *p, const struct buckets *b)
{
    for (int s = 0; s < p->n_stages; s++) {
        struct stage_plan *st = &p->stage[s];
        const struct buckets *x = &b[st->rank];
        st->piece = arena_alloc(p->mem, (size_t)(x->n + 1) * sizeof *st->piece);
        for (int i = 0; i < x->n && st->n_pieces < MAX_PIECES - 1 && !p->sel->dev.overlap_wgrad; i++) {
            int g = x->v[i].group;
            bool inside = g > st->first_group && g < st->first_group + st->n_groups;
            if (inside && (!st->n_pieces || g < st->piece[st->n_pieces - 1])) st->piece[st->n_pieces++] = g;
        }
        if (st->n_pieces) st->piece[st->n_pieces++] = st->first_group;
    }
}
