/* The checker for sums of gradients. It plays accumulations and additions, each value as a hash of how it was made. The
 * result must be the tree over the blocks of micro-batches. */
#include <stdlib.h>
#include <string.h>
#include "plan/check_int.h"

/* What the accumulators of a stage hold at each level, for gradients that B makes and for those that W makes; 0:
 * nothing. */
enum { OF_B, OF_W, MADE };
struct sums_check { const struct plan *p; uint64_t *at[MADE]; struct err *e; };

static uint64_t joined(uint64_t a, uint64_t b, uint64_t how)
{
    uint64_t x = (a * 0x9e3779b97f4a7c15u) ^ (b + how * 0xc2b2ae3d27d4eb4fu);
    x = (x ^ (x >> 29)) * 0xbf58476d1ce4e5b9u;
    return (x ^ (x >> 32)) | 1;
}
static uint64_t leaf(int micro) { return joined((uint64_t)micro + 1, 0, 1); }

uint64_t check_sum_of(uint64_t left, uint64_t right) { return joined(left, right, 3); }

static int sums_fail(const struct sums_check *t, int rank, const struct act *a, const char *what)
{
    char s[32];
    return err_set(t->e, E_INTERNAL, "illegal plan: rank %d, %s: %s", rank, act_text(t->p, a, s), what);
}

static int accumulate(const struct sums_check *t, int rank, const struct act *a, uint64_t *at)
{
    const struct plan *p = t->p;
    bool first = a->flags & ACT_FIRST;
    for (int m = a->mb; m < a->mb + a->n_mb; m++, first = false) {
        if (!first && !at[a->level]) return sums_fail(t, rank, a, "adds to accumulators that hold nothing");
        if (first && at[a->level]) return sums_fail(t, rank, a, "overwrites a sum that is still needed");
        uint64_t one = leaf(p->part[p->req.dp].first_micro + m);
        at[a->level] = first ? one : joined(at[a->level], one, 2);
    }
    return 0;
}

static int blocks_add(const struct sums_check *t, int rank, const struct act *a)
{
    if (!(a->flags & (ACT_OF_B | ACT_OF_W)) || (a->flags & ~(ACT_OF_B | ACT_OF_W)))
        return sums_fail(t, rank, a, "adds nothing that there is");
    for (int k = 0; k < MADE; k++) {
        uint64_t *at = t->at[k] + a->level;
        if (!(a->flags & (k == OF_B ? ACT_OF_B : ACT_OF_W))) continue;
        if (a->level + 1 >= t->p->n_levels || !at[0] || !at[1])
            return sums_fail(t, rank, a, "adds accumulators that hold nothing");
        at[0] = check_sum_of(at[0], at[1]);
        at[1] = 0;
    }
    return 0;
}

/* piece: the piece of the stage's layers, where some actions run only one piece; 0: all layers. */
static int stage_play(const struct sums_check *t, int stage, int piece)
{
    const struct plan *p = t->p;
    int rank = p->stage[stage].rank;
    for (int i = 0; i < p->row_n[rank]; i++) {
        const struct act *a = &p->row[rank][i];
        bool b = a->op == ACT_B || a->op == ACT_D, w = a->op == ACT_W || a->op == ACT_D;
        if (a->stage != stage || (a->piece && a->piece != piece)) continue;
        if (a->level >= p->n_levels || (a->level && !b && !w && a->op != ACT_A))
            return sums_fail(t, rank, a, "there is no such level of accumulators");
        if (a->op == ACT_A && blocks_add(t, rank, a)) return -1;
        if ((b && accumulate(t, rank, a, t->at[OF_B])) || (w && accumulate(t, rank, a, t->at[OF_W]))) return -1;
    }
    return 0;
}

/* Micro-batch m of n is in block m * groups / n. */
uint64_t check_sum_wanted(const struct plan *p, int first, int end)
{
    uint64_t sum = 0;
    int n = (p->req.batch - 1) / p->req.split + 1;
    if (end - first == 1) {
        for (int m = 0; m < n; m++)
            if ((int64_t)m * p->req.groups / n == first) sum = sum ? joined(sum, leaf(m), 2) : leaf(m);
        return sum;
    }
    uint64_t left = check_sum_wanted(p, first, (first + end) / 2), right = check_sum_wanted(p, (first + end) / 2, end);
    return left && right ? check_sum_of(left, right) : left ? left : right;
}

int check_sums(const struct plan *p, struct err *e)
{
    struct sums_check t = {.p = p, .e = e};
    size_t bytes = (size_t)p->n_levels * sizeof *t.at[0];
    uint64_t want;
    int bad = 0;
    if (p->req.mode != PLAN_TRAIN) return 0;
    if (p->n_levels < 1 || p->n_levels > p->pl->n_levels)
        return err_set(e, E_INTERNAL, "illegal plan: %d levels of accumulators have no place", p->n_levels);
    int blocks = p->req.groups / p->pl->mesh.size[AXIS_DP], first = p->req.dp * blocks;
    want = check_sum_wanted(p, first, first + blocks);
    for (int k = 0; k < MADE; k++) t.at[k] = mem_alloc(bytes);
    for (int s = 0, piece = p->stage[0].n_pieces; s < p->n_stages && !bad;) {
        for (int k = 0; k < MADE; k++) memset(t.at[k], 0, bytes);
        bad = stage_play(&t, s, piece);
        for (int k = 0; k < MADE && !bad; k++)
            if (t.at[k][0] != want)
                bad = err_set(e, E_INTERNAL, "illegal plan: stage %d does not add its gradients as a tree of %d blocks",
                              s, p->req.groups);
        if (--piece < 1 && ++s < p->n_stages) piece = p->stage[s].n_pieces;
    }
    for (int k = 0; k < MADE; k++) free(t.at[k]);
    return bad ? -1 : 0;
}
