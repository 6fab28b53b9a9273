/* zb-v (Qi et al. 2024, section 6, ZB-V): stages lie in a V, so rank 0 has the first and the last one, and the turn at
 * the last rank moves nothing. With two stages a rank, and F, B and W of equal cost, a rank has no idle time between
 * its first and last pass. It then has as many micro-batches in flight on each rank as 1f1b's first rank. A micro-batch
 * that waits for W also keeps its output gradients, so it takes more bytes. The paper has no rows for other numbers of
 * stages, of micro-batches or in flight; greedy_rows makes those. */
#include "plan/greedy.h"
#include "plan/plan.h"
#include "plan/sched.h"

extern const struct sched_kind sched_zb_v;

/* The next F, B and W of each of a rank's two stages. */
struct next { const struct sched_request *r; struct sched *out; int rank, at[2][ACT_COUNT]; };

static void push(struct next *x, enum act_op op, int chunk)
{
    int *mb = &x->at[chunk][op];
    if (*mb < x->r->n_mb) sched_push(x->out, x->rank, op, x->r->map->stages_of[x->rank][chunk], (*mb)++);
}

static void push_all(struct next *x, int chunk) { push(x, ACT_F, chunk); push(x, ACT_B, chunk); push(x, ACT_W, chunk); }

/* Warm-up: the first stage alone, then both in turn, then all three passes of the second stage. Then all six in turn.
 * At the end B of both stages comes before their W, as often as the rank's number, because earlier ranks wait for these
 * B. */
static void zb_v_row_build(const struct sched_request *r, int rank, struct sched *out)
{
    int p = r->map->n_ranks;
    struct next x = {.r = r, .out = out, .rank = rank};
    for (int i = 0; i < 2 * (p - rank) - 1; i++) push(&x, ACT_F, 0);
    for (int i = 0; i < rank; i++) { push(&x, ACT_F, 1); push(&x, ACT_F, 0); }
    for (int i = 0; i < p - rank; i++) push_all(&x, 1);
    while (x.at[1][ACT_F] < r->n_mb) { push_all(&x, 0); push_all(&x, 1); }
    for (int i = 0; i < rank; i++) { push(&x, ACT_B, 0); push(&x, ACT_B, 1); }
    for (int i = 0; i < p - rank; i++) { push(&x, ACT_B, 0); push(&x, ACT_W, 0); }
    for (int chunk = 1; chunk >= 0; chunk--)
        while (x.at[chunk][ACT_W] < r->n_mb) push(&x, ACT_W, chunk);
}

static int zb_v_build(const struct sched_request *r, struct sched *out, struct err *e)
{
    int p = r->map->n_ranks, v = r->map->n_stages / p;
    int most = !r->in_flight ? p : r->in_flight < 2 * p - 1 ? r->in_flight : 2 * p - 1;
    if (sched_map_check(&sched_zb_v, r->map, e)) return -1;
    if (v == 2 && most == p && r->n_mb >= 2 * p - 1)
        for (int rank = 0; rank < p; rank++) zb_v_row_build(r, rank, out);
    else greedy_rows(&(struct greedy_ask){.map = r->map, .n_mb = r->n_mb, .most = v * most, .deep = true,
                                          .alternate = true}, out);
    return 0;
}

const struct sched_kind sched_zb_v = {
    .name = "zb-v", .text = "zb-h1 over several stages a rank, down and up again: hardly a bubble",
    .chunks = true, .turns = true, .build = zb_v_build};
