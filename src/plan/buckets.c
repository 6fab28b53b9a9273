/* Buckets: a rank's gradients, cut up so that pipelines exchange those of the last layers while those of the first
 * layers are still computed. Buckets depend only on placement and sizes, so all pipelines have the same buckets in the
 * same order, whatever their rows. A value is always added to the same value of each other pipeline, so buckets change
 * no bits. Pipelines halve each bucket: in the middle or, where each updates its own share, between two weights. Then
 * norms, optimizer state and files have whole weights. */
#include <stdlib.h>
#include "plan/plan_int.h"

/* Channels between pipelines share the numbering of other channels, and a piece in an action has 8 bits. Where tied
 * weights lie between others there may be more buckets than pieces; then the last piece is larger. */
enum { MAX_CHANNELS = 4096, MAX_BUCKETS = 200, MAX_PIECES = UINT8_MAX };

int placement_halvings(const struct placement *pl)
{
    int n = 0;
    while (1 << n < pl->mesh.size[AXIS_DP]) n++;
    return n;
}

static size_t bucket_bytes(const struct placement *pl, int rank)
{
    int most = MAX_CHANNELS / (2 * placement_halvings(pl) * mesh_ranks(&pl->mesh));
    if (most > MAX_BUCKETS) most = MAX_BUCKETS;
    size_t least = pl->sum_bytes[rank] / (size_t)(most > 1 ? most : 1) + 1;
    return !pl->sharing.bucket ? SIZE_MAX : pl->sharing.bucket > least ? pl->sharing.bucket : least;
}

/* Accumulators lie in the order of weights, so they become final from the end of the region on. Accumulators to which
 * another rank adds have their own buckets. */
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

/* The group that makes a use's gradient; -1: another rank sends it. */
static int use_group(const struct placement *pl, const struct selection *s, int rank, int param, int use)
{
    bool here = pl->map.rank_of[pl->use_stage[pl->use_first[param] + use]] == rank;
    return here ? s->group_of[s->g->param[param].use_node[use]] : -1;
}

static bool owns(const struct placement *pl, int param, int rank)
{
    return pl->state[param].trained && pl->state[param].owner == rank;
}

/* Where weights are shared out, one bucket has all uses of a weight. It is final when its last use is. */
static void param_add(struct placement *pl, const struct selection *s, int rank, int param, size_t full)
{
    struct buckets *b = &pl->bucket[rank];
    int uses = s->g->param[param].n_uses, first = use_group(pl, s, rank, param, 0);
    size_t bytes = pl->state[param].bytes;
    for (int u = uses - 1; u >= 0; u--) {
        int group = use_group(pl, s, rank, param, u);
        if (group < first) first = group;
        if (!pl->sharing.weights) use_add(b, placement_use(pl, rank, param, u), bytes, group, full);
    }
    if (pl->sharing.weights) use_add(b, placement_use(pl, rank, param, 0), bytes * (size_t)uses, first, full);
}

/* ---- shares ------------------------------------------------------------------------------------------------------ */

/* Ranks that halve a share together have neighbouring share numbers: the bits of dp reversed, so the lowest bit comes
 * first. The function is its own inverse. */
static int share_of(const struct placement *pl, int dp)
{
    int share = 0, n = placement_halvings(pl);
    for (int k = 0; k < n; k++) share |= (dp >> k & 1) << (n - 1 - k);
    return share;
}

struct share placement_share(const struct placement *pl, const size_t *cut, int dp, int n)
{
    int together = pl->mesh.size[AXIS_DP] >> n, first = share_of(pl, dp & ((1 << n) - 1));
    return (struct share){cut[first], cut[first + together]};
}

/* State of cutting a rank's buckets. given: bytes of earlier buckets that each share has. */
struct cutter { struct placement *pl; int rank, n_params; struct bucket *b; size_t *given; };

static size_t distance(size_t a, size_t b) { return a > b ? a - b : b - a; }

/* The weight border in [at, end] that makes both halves most even, including their bytes of earlier buckets (left,
 * right). */
static size_t even_border(const struct cutter *x, size_t at, size_t end, size_t left, size_t right)
{
    const struct placement *pl = x->pl;
    size_t best = at;
    for (int i = 0; i < x->n_params; i++) {
        if (!owns(pl, i, x->rank)) continue;
        size_t uses = (size_t)(pl->use_first[i + 1] - pl->use_first[i]);
        size_t to = placement_use(pl, x->rank, i, 0) + uses * pl->state[i].bytes;
        if (to <= at || to > end) continue;
        if (distance(left + to - at, right + end - to) < distance(left + best - at, right + end - best)) best = to;
    }
    return best;
}

/* Halves the bytes of shares [first, end), recursively. */
static void halve(const struct cutter *x, int first, int end)
{
    int middle = first + (end - first) / 2;
    size_t at = x->b->cut[first], to = x->b->cut[end], left = 0, right = 0;
    if (end - first < 2) return;
    for (int k = first; k < end; k++) *(k < middle ? &left : &right) += x->given[k];
    x->b->cut[middle] = x->pl->sharing.weights ? even_border(x, at, to, left, right)
                                               : at + size_align64((to - at) / 2);
    halve(x, first, middle);
    halve(x, middle, end);
}

/* Sets the shard of each weight of a bucket. Weights lie in the order of their gradients, so the same cuts
 * apply to them. */
static void weights_share(const struct cutter *x)
{
    struct placement *pl = x->pl;
    struct bucket *b = x->b;
    int n = pl->mesh.size[AXIS_DP], k = 0;
    b->weight_cut = arena_alloc(pl->mem, (size_t)(n + 1) * sizeof *b->weight_cut);
    for (int i = 0; i < x->n_params; i++) {
        struct state_row *r = &pl->state[i];
        size_t at = owns(pl, i, x->rank) ? placement_use(pl, x->rank, i, 0) : b->end;
        if (at < b->at || at >= b->end) continue;
        for (; k <= n && b->cut[k] <= at; k++) b->weight_cut[k] = r->off[x->rank];
        r->shard.at = share_of(pl, k - 1);
        for (int j = k; j <= n; j++) b->weight_cut[j] = r->off[x->rank] + r->bytes;
    }
}

static void shares_make(struct placement *pl, int rank, int n_params)
{
    int n = pl->mesh.size[AXIS_DP];
    struct buckets *b = &pl->bucket[rank];
    struct cutter x = {pl, rank, n_params, NULL, mem_alloc((size_t)n * sizeof *x.given)};
    for (int i = 0; i < b->n; i++) {
        x.b = &b->v[i];
        x.b->cut = arena_alloc(pl->mem, (size_t)(n + 1) * sizeof *x.b->cut);
        x.b->cut[0] = x.b->at, x.b->cut[n] = x.b->end;
        halve(&x, 0, n);
        for (int k = 0; k < n; k++) x.given[k] += x.b->cut[k + 1] - x.b->cut[k];
        if (pl->sharing.weights) weights_share(&x);
    }
    for (int k = 0; k < n && pl->sharing.weights; k++)
        if (x.given[k] > pl->update_bytes[rank]) pl->update_bytes[rank] = x.given[k];
    free(x.given);
}

void buckets_make(struct placement *pl, const struct selection *s, int rank)
{
    struct buckets *b = &pl->bucket[rank];
    if (!pl->sharing.weights || pl->mesh.size[AXIS_DP] < 2) pl->update_bytes[rank] = pl->sum_bytes[rank];
    if (pl->mesh.size[AXIS_DP] < 2) return;
    size_t full = bucket_bytes(pl, rank);
    b->v = arena_alloc(pl->mem, (size_t)(pl->use_first[s->g->n_params] + 1) * sizeof *b->v);
    for (int i = s->g->n_params - 1; i >= 0; i--) if (owns(pl, i, rank)) param_add(pl, s, rank, i, full);
    final_first(b);
    shares_make(pl, rank, s->g->n_params);
}

/* A stage's pieces end where a bucket of its rank becomes final. */
void pieces_make(struct plan *p, const struct buckets *b)
{
    for (int s = 0; s < p->n_stages; s++) {
        struct stage_plan *st = &p->stage[s];
        const struct buckets *x = &b[st->rank];
        st->piece = arena_alloc(p->mem, (size_t)(x->n + 1) * sizeof *st->piece);
        for (int i = 0; i < x->n && st->n_pieces < MAX_PIECES - 1; i++) {
            int g = x->v[i].group;
            bool inside = g > st->first_group && g < st->first_group + st->n_groups;
            if (inside && (!st->n_pieces || g < st->piece[st->n_pieces - 1])) st->piece[st->n_pieces++] = g;
        }
        if (st->n_pieces) st->piece[st->n_pieces++] = st->first_group;
    }
}
