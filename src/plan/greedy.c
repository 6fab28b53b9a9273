/* Rows made by simulating a step. */
#include <stdlib.h>
#include <string.h>
#include "plan/greedy.h"

/* f, b: the end time of each stage's and micro-batch's pass; negative: it did not run yet. */
struct play {
    const struct stage_map *map;
    const struct sched_cost *cost;
    int n_mb;
    double *f, *b, *now;
    int *nf, *nb, *nw, *held, *chunk;                    /* chunk: of each stage, its index on its rank */
    bool *back;                                          /* of each rank: its last F or B was a B */
};
/* A pass that a rank may take. Of the passes that begin first, the lowest `rank` and then the lowest `order` wins. */
struct greedy_pass { double begin; int op, stage, mb, rank, order; };

static const struct sched_cost EVEN = {1, 1, 1, 0, 0};

static const struct sched_cost *cost_of(const struct sched_cost *all, int stage) { return all ? &all[stage] : &EVEN; }

static void play_begin(struct play *x, const struct stage_map *map, int n_mb, const struct sched_cost *cost)
{
    size_t n = (size_t)map->n_stages, all = n * (size_t)n_mb, ranks = (size_t)map->n_ranks;
    *x = (struct play){.map = map, .cost = cost, .n_mb = n_mb};
    x->f = mem_alloc(2 * (all + 1) * sizeof *x->f);
    x->b = x->f + all;
    for (size_t i = 0; i < 2 * all; i++) x->f[i] = -1;
    x->now = mem_alloc(ranks * sizeof *x->now);
    x->nf = mem_alloc((4 * n + ranks) * sizeof *x->nf);
    x->nb = x->nf + n, x->nw = x->nb + n, x->chunk = x->nw + n, x->held = x->chunk + n;
    x->back = mem_alloc(ranks);
    for (int r = 0; r < map->n_ranks; r++)
        for (int i = 0; i < map->n_stages_of[r]; i++) x->chunk[map->stages_of[r][i]] = i;
}

static void play_end(struct play *x) { free(x->f); free(x->now); free(x->nf); free(x->back); }

/* The time when the pass has its inputs; negative: not yet known. */
static double ready_at(const struct play *x, int op, int s, int mb)
{
    int at = s * x->n_mb + mb;
    if (op == ACT_W) return x->b[at];
    if (op == ACT_F && s == 0) return 0;
    int from = op == ACT_F ? s - 1 : s < x->map->n_stages - 1 ? s + 1 : s;
    double t = op == ACT_B && from != s ? x->b[from * x->n_mb + mb] : x->f[from * x->n_mb + mb];
    if (t < 0 || x->map->rank_of[from] == x->map->rank_of[s]) return t;
    return t + (op == ACT_F ? cost_of(x->cost, from)->down : cost_of(x->cost, from)->up);
}

static double pass_run(struct play *x, const struct greedy_pass *a)
{
    const struct sched_cost *c = cost_of(x->cost, a->stage);
    int r = x->map->rank_of[a->stage], at = a->stage * x->n_mb + a->mb;
    x->now[r] = a->begin + (a->op == ACT_F ? c->f : a->op == ACT_B ? c->b : c->w);
    if (a->op == ACT_F) x->f[at] = x->now[r];
    if (a->op == ACT_B) x->b[at] = x->now[r];
    return x->now[r];
}

/* ---- choosing -------------------------------------------------------------------------------- */

static bool before(const struct greedy_pass *a, const struct greedy_pass *b)
{
    if (b->stage < 0 || a->begin != b->begin) return b->stage < 0 || a->begin < b->begin;
    return a->rank != b->rank ? a->rank < b->rank : a->order < b->order;
}

static void offer(const struct play *x, struct greedy_pass a, struct greedy_pass *best)
{
    int r = x->map->rank_of[a.stage];
    double ready = ready_at(x, a.op, a.stage, a.mb);
    if (ready < 0) return;
    a.begin = ready > x->now[r] ? ready : x->now[r];
    if (before(&a, best)) *best = a;
}

/* F may run only if memory is left for the later stages of the same rank. Otherwise they could never begin. */
static bool has_space(const struct play *x, const struct greedy_ask *q, int r, int s)
{
    return x->held[r] + x->map->n_stages_of[r] - x->chunk[s] <= q->most;
}

static struct greedy_pass pass_choose(const struct play *x, const struct greedy_ask *q, int r)
{
    struct greedy_pass best = {.stage = -1}, w = {.stage = -1};
    for (int i = 0; i < x->map->n_stages_of[r]; i++) {
        int s = x->map->stages_of[r][i];
        struct greedy_pass f = {.op = ACT_F, .stage = s, .mb = x->nf[s], .order = -s,
                                .rank = q->alternate && x->back[r] ? 0 : 2};
        struct greedy_pass b = {.op = ACT_B, .stage = s, .mb = x->nb[s], .order = q->deep ? -s : s, .rank = 1};
        if (f.mb < x->n_mb && has_space(x, q, r, s)) offer(x, f, &best);
        if (b.mb < x->nf[s]) offer(x, b, &best);
        if (x->nw[s] < x->nb[s] && (w.stage < 0 || x->nw[s] < w.mb))
            w = (struct greedy_pass){.begin = x->now[r], .op = ACT_W, .stage = s, .mb = x->nw[s]};
    }
    if (w.stage < 0) return best;
    bool fills = best.stage < 0 || best.begin - x->now[r] > q->patience * cost_of(x->cost, w.stage)->w;
    return fills ? w : best;
}

static void pass_take(struct play *x, const struct greedy_pass *a, int r, struct sched *out)
{
    pass_run(x, a);
    sched_push(out, r, (enum act_op)a->op, a->stage, a->mb);
    if (a->op == ACT_F) x->nf[a->stage]++, x->held[r]++;
    if (a->op == ACT_B) x->nb[a->stage]++;
    if (a->op == ACT_W) x->nw[a->stage]++, x->held[r]--;
    if (a->op != ACT_W) x->back[r] = a->op == ACT_B;
}

/* The choice of a rank changes only when the rank itself, or a rank whose results its stages read, runs another
 * pass. */
struct greedy_choices { struct greedy_pass *of; bool *stale; };

static void choices_spoil(const struct play *x, const struct greedy_pass *a, struct greedy_choices *c)
{
    const int *rank_of = x->map->rank_of;
    int next = a->op == ACT_F ? a->stage + 1 : a->op == ACT_B ? a->stage - 1 : -1;
    c->stale[rank_of[a->stage]] = true;
    if (next >= 0 && next < x->map->n_stages) c->stale[rank_of[next]] = true;
}

/* The rank whose pass can begin first; -1: no rank has a pass. */
static int rank_choose(const struct play *x, const struct greedy_ask *q, struct greedy_choices *c)
{
    int rank = -1;
    for (int r = 0; r < q->map->n_ranks; r++) {
        if (c->stale[r]) c->of[r] = pass_choose(x, q, r);
        c->stale[r] = false;
        if (c->of[r].stage >= 0 && (rank < 0 || c->of[r].begin < c->of[rank].begin)) rank = r;
    }
    return rank;
}

void greedy_rows(const struct greedy_ask *q, struct sched *out)
{
    struct play x;
    struct greedy_choices c = {mem_alloc((size_t)q->map->n_ranks * sizeof *c.of), mem_alloc((size_t)q->map->n_ranks)};
    play_begin(&x, q->map, q->n_mb, q->cost);
    for (int r = 0; r < q->map->n_ranks; r++) c.stale[r] = true;
    for (int left = 3 * q->map->n_stages * q->n_mb; left; left--) {
        int rank = rank_choose(&x, q, &c);
        if (rank < 0) break;                             /* no memory for one micro-batch on each stage */
        pass_take(&x, &c.of[rank], rank, out);
        choices_spoil(&x, &c.of[rank], &c);
    }
    play_end(&x);
    free(c.of); free(c.stale);
}

/* ---- existing rows --------------------------------------------------------------------------- */

static bool row_advance(struct play *x, const struct sched *s, int r, int *at)
{
    int from = *at;
    for (; *at < s->row[r].n; ++*at) {
        const struct sched_act *a = &s->row[r].v[*at];
        double ready = ready_at(x, a->op, a->stage, a->mb);
        if (ready < 0) break;
        struct greedy_pass p = {ready > x->now[r] ? ready : x->now[r], a->op, a->stage, a->mb, 0, 0};
        pass_run(x, &p);
    }
    return *at > from;
}

double greedy_time(const struct sched *s, const struct stage_map *map, int n_mb, const struct sched_cost *cost)
{
    struct play x;
    double wall = 0;
    int *at = mem_alloc((size_t)map->n_ranks * sizeof *at);
    play_begin(&x, map, n_mb, cost);
    for (bool moved = true; moved;) {
        moved = false;
        for (int r = 0; r < map->n_ranks; r++) moved |= row_advance(&x, s, r, &at[r]);
    }
    for (int r = 0; r < map->n_ranks; r++)
        wall = wall < 0 || at[r] < s->row[r].n ? -1 : x.now[r] > wall ? x.now[r] : wall;
    play_end(&x);
    free(at);
    return wall;
}
