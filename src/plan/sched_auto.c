/* auto: of many schedules the one with the shortest step by the costs of F, B, W and transfers, whose ranks have the
 * memory for it. A search as in Qi et al. 2024, section 3.1, over the number of micro-batches in flight, how long W
 * waits, and which pass comes first. The search includes the named schedules for the same stages, so by these costs
 * alone it is at most a thousandth worse than them. Only plans know which transfers wait for each other. */
#include <stdlib.h>
#include "plan/greedy.h"
#include "plan/plan.h"
#include "plan/sched.h"

extern const struct sched_kind sched_auto;

/* A larger number in flight must save at least this fraction of the step. */
static const double WORTH = 0.001;

/* The fastest rows so far with one number of micro-batches in flight. */
struct found_rows { struct sched rows; double ns; int most; };

static void rows_begin(struct sched *s, int n_ranks)
{
    *s = (struct sched){.n_ranks = n_ranks, .row = mem_alloc((size_t)n_ranks * sizeof *s->row)};
}

static void rows_weigh(const struct sched_request *r, struct sched *rows, struct found_rows *best)
{
    double ns = greedy_time(rows, r->map, r->n_mb, r->cost);
    if (ns < 0 || (best->ns > 0 && ns >= best->ns)) { sched_free(rows); return; }
    sched_free(&best->rows);
    best->rows = *rows;
    best->ns = ns;
}

/* Tries the named schedules for these stages, with this number of micro-batches in flight. */
static int named_try(const struct sched_request *r, struct found_rows *x, struct err *e)
{
    static const char *const name[] = {"1f1b", "zb-h1", "zb-v"};
    for (int i = 0; i < 3; i++) {
        const struct sched_kind *k = sched_find(name[i]);
        if (!k || (!k->chunks && r->map->n_stages > r->map->n_ranks)) continue;
        struct sched_request q = *r;
        struct sched rows;
        q.in_flight = x->most;
        rows_begin(&rows, r->map->n_ranks);
        if (k->build(&q, &rows, e)) { sched_free(&rows); return -1; }
        rows_weigh(r, &rows, x);
    }
    return 0;
}

static int most_try(const struct sched_request *r, struct found_rows *x, struct err *e)
{
    static const double patience[] = {0, 0.5, 1};
    for (int way = 0; way < 12; way++) {
        struct sched rows;
        rows_begin(&rows, r->map->n_ranks);
        greedy_rows(&(struct greedy_ask){.map = r->map, .n_mb = r->n_mb, .cost = r->cost,
                                         .most = x->most * (r->map->n_stages / r->map->n_ranks),
                                         .patience = patience[way % 3], .deep = way / 3 % 2, .alternate = way / 6},
                    &rows);
        rows_weigh(r, &rows, x);
    }
    return named_try(r, x, e);
}

/* Which numbers of micro-batches in flight are tried, in ascending order: up to 2p - 1, with which no rank waits for
 * its first backward pass. All of them where memory is limited; otherwise a few from p on. */
static bool most_wanted(const struct sched_request *r, int most)
{
    int p = r->map->n_ranks, end = r->in_flight ? r->in_flight : 2 * p - 1;
    if (end > r->n_mb) end = r->n_mb;
    if (most > end || most > 2 * p - 1) return false;
    if (r->grade && r->grade->limited) return true;
    return most == end || most == p || most == p + (p - 1) / 2;
}

static bool rows_equal(const struct sched *a, const struct sched *b)
{
    for (int r = 0; r < a->n_ranks; r++) {
        if (a->row[r].n != b->row[r].n) return false;
        for (int i = 0; i < a->row[r].n; i++) {
            const struct sched_act *x = &a->row[r].v[i], *y = &b->row[r].v[i];
            if (x->op != y->op || x->stage != y->stage || x->mb != y->mb) return false;
        }
    }
    return true;
}

/* Chooses among the candidates: rows that fit before rows that do not, then the shorter step. */
static int found_choose(const struct sched_request *r, struct found_rows *x, int n, int *best, struct err *e)
{
    double least = 0, excess = 0;
    *best = 0;
    for (int i = 0; i < n; i++) {
        double ns = x[i].ns, over = 0;
        if (i && rows_equal(&x[i].rows, &x[i - 1].rows)) continue;   /* a larger number changes nothing */
        if (r->grade && r->grade->weigh(r->grade->to, &x[i].rows, &ns, &over, e)) return -1;
        if (i && (over > excess || (over == excess && ns >= least * (1 - WORTH)))) continue;
        *best = i;
        least = ns;
        excess = over;
    }
    return 0;
}

static int auto_build(const struct sched_request *r, struct sched *out, struct err *e)
{
    int n = 0, best = 0, bad = sched_map_check(&sched_auto, r->map, e);
    if (bad) return -1;
    int space = 2 * r->map->n_ranks;
    struct found_rows *x = mem_alloc((size_t)space * sizeof *x);
    for (int most = 1; most < space && !bad; most++) {
        if (!most_wanted(r, most)) continue;
        x[n].most = most;
        bad = most_try(r, &x[n++], e);
    }
    bad = bad || found_choose(r, x, n, &best, e);
    for (int rank = 0; rank < r->map->n_ranks && !bad; rank++) {
        struct sched_act *v = x[best].rows.row[rank].v;
        for (int i = 0; i < x[best].rows.row[rank].n; i++) *vec_push(&out->row[rank]) = v[i];
    }
    for (int i = 0; i < n; i++) sched_free(&x[i].rows);
    free(x);
    return bad ? -1 : 0;
}

const struct sched_kind sched_auto = {
    .name = "auto", .text = "by the costs, the fastest that fits in memory; found by a search",
    .chunks = true, .turns = true, .weighs = true, .build = auto_build};
