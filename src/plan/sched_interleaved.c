/* interleaved (Narayanan et al. 2021, section 2.2): each rank has v stages, stage s is on rank s mod p, and the bubble
 * is a v-th of 1f1b's. Micro-batches go in groups of p through one stage of each rank after the other. As in
 * Megatron-LM a rank runs (v - 1) group + 2 (p - 1 - rank) forward passes ahead. If m is no multiple of p, the groups
 * share the rest evenly; with a group smaller than p, ranks would wait for each other. With fewer in flight than this
 * needs there are no such rows; then greedy_rows makes them. */
#include "plan/greedy.h"
#include "plan/plan.h"
#include "plan/sched.h"

extern const struct sched_kind sched_interleaved;

static int least(int a, int b) { return a < b ? a : b; }

/* n groups of `size`, the first `larger` of them larger by one. */
struct groups { int n, size, larger; };

static struct groups groups_of(const struct sched_request *r)
{
    struct groups g = {.n = r->n_mb / r->map->n_ranks};
    if (g.n < 1) g.n = 1;
    g.size = r->n_mb / g.n;
    g.larger = r->n_mb % g.n;
    return g;
}

struct interleaved_pass { int chunk, mb; };

/* The k-th pass of n_chunks x n_mb, through the chunks in ascending order or backward. */
static struct interleaved_pass pass_of(const struct groups *g, int n_chunks, int k, bool back)
{
    int size = g->size + 1, first = 0, larger = g->larger * size * n_chunks;
    if (k >= larger) {                                   /* after the larger groups */
        first = g->larger * size;
        k -= larger;
        size--;
    }
    first += k / (size * n_chunks) * size;
    k %= size * n_chunks;
    int chunk = k / size;
    return (struct interleaved_pass){back ? n_chunks - 1 - chunk : chunk, first + k % size};
}

/* Forward passes up to the first backward pass, including the one directly before it. Rank 0 has the most. */
static int ahead_of(const struct sched_request *r, const struct groups *g, int rank)
{
    int v = r->map->n_stages_of[rank], n = (v - 1) * (g->size + (g->larger > 0)) + 2 * (r->map->n_ranks - 1 - rank) + 1;
    return least(n, v * r->n_mb);
}

static void interleaved_row_build(const struct sched_request *r, const struct groups *g, int rank, struct sched *out)
{
    const int *own = r->map->stages_of[rank], v = r->map->n_stages_of[rank], all = v * r->n_mb;
    const int ahead = ahead_of(r, g, rank);
    for (int k = 0; k < ahead + all; k++) {
        if (k < all) {
            struct interleaved_pass f = pass_of(g, v, k, false);
            sched_push(out, rank, ACT_F, own[f.chunk], f.mb);
        }
        if (k + 1 < ahead || k + 1 - ahead >= all) continue;
        struct interleaved_pass b = pass_of(g, v, k + 1 - ahead, true);
        sched_push(out, rank, ACT_B, own[b.chunk], b.mb);
        sched_push(out, rank, ACT_W, own[b.chunk], b.mb);
    }
}

static int interleaved_build(const struct sched_request *r, struct sched *out, struct err *e)
{
    if (sched_map_check(&sched_interleaved, r->map, e)) return -1;
    struct groups g = groups_of(r);
    int most = r->map->n_stages_of[0] * r->in_flight;
    if (r->in_flight && most < ahead_of(r, &g, 0))
        greedy_rows(&(struct greedy_ask){.map = r->map, .n_mb = r->n_mb, .most = most, .deep = true, .alternate = true},
                    out);
    else for (int rank = 0; rank < r->map->n_ranks; rank++) interleaved_row_build(r, &g, rank, out);
    return 0;
}

const struct sched_kind sched_interleaved = {
    .name = "interleaved", .text = "1f1b over several stages a rank, in turn: a smaller bubble, more transfers",
    .chunks = true, .build = interleaved_build};
