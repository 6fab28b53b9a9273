/* auto: the cut with the shortest simulated step among those that fit every rank's memory. It starts from the cut with
 * the smallest bottleneck (dynamic programming) and from the even cut, and moves borders while that helps. Then it goes
 * through all other cuts, except those that a lower bound rules out. It compares the plans of cuts, so the compared
 * plan is the plan that runs. The number of plans is limited; a search that ends before the limit has proven its
 * result. */
#include <stdlib.h>
#include <string.h>
#include "plan/cost.h"
#include "plan/part.h"
#include "plan/part_bound.h"
#include "plan/sched.h"
#include "plan/sim.h"

enum { MAX_PLANS = 160, MAX_CLIMB = MAX_PLANS / 4, MAX_NODES = 300000, STARTS = 4 };

struct score { double excess, ns; };                     /* bytes above the limits, relative; then time */
struct tried { int *cut; struct score score; };
struct cut_search {
    const struct part_request *q;
    struct part_model m;
    struct part_bound bound;
    int p, n_at, *at;                                    /* possible borders: at[0] = 0 .. at[n_at - 1] = groups */
    uint64_t *fixed, *kept;                              /* with limits: sums over the leaves before a group */
    uint64_t *limit;                                     /* of each rank */
    int *cut, *best, *pick;                              /* p + 1 each; best: of the best plan; pick: indexes into at */
    struct bound_stage *st;
    struct score least;
    int plans, nodes;
    VEC(struct tried) tried;                             /* moving borders returns to the same cuts */
    bool limited, tied;
    struct err *e;
};

static bool better(struct score a, struct score b) { return a.excess != b.excess ? a.excess < b.excess : a.ns < b.ns; }

static const struct tried *tried_find(const struct cut_search *s)
{
    size_t bytes = (size_t)(s->p + 1) * sizeof *s->cut;
    for (int i = 0; i < s->tried.n; i++) if (!memcmp(s->tried.v[i].cut, s->cut, bytes)) return &s->tried.v[i];
    return NULL;
}

static void tried_add(struct cut_search *s, struct score score)
{
    size_t bytes = (size_t)(s->p + 1) * sizeof *s->cut;
    struct tried t = {.cut = mem_alloc(bytes), .score = score};
    memcpy(t.cut, s->cut, bytes);
    *vec_push(&s->tried) = t;
}

/* Plans and simulates s->cut, unless that was done before; saves the cut if it is the best so far. */
static int cut_try(struct cut_search *s, struct score *score)
{
    const struct tried *before = tried_find(s);
    if (before) { *score = before->score; return 0; }
    struct placement *pl = part_place(s->q, s->cut, s->e);
    struct plan *p = pl ? plan_make(s->q->sel, pl, s->q->plan, s->e) : NULL;
    struct sim *sim = p ? plan_simulate(p, s->q->cost, s->e) : NULL;
    bool bad = !sim;
    s->plans++;
    if (sim) {
        *score = (struct score){part_excess(p, s->limit), sim->wall_ns};
        tried_add(s, *score);
        const struct sched_kind *k = sched_find(s->q->plan->schedule);
        bool always = !k || !k->weighs;                  /* the same rows for every cut, so eager holds for all */
        if (s->plans == 1) s->bound.eager = always && bound_eager(p);
        if (s->plans == 1 || better(*score, s->least)) {
            s->least = *score;
            memcpy(s->best, s->cut, (size_t)(s->p + 1) * sizeof *s->best);
        }
    }
    sim_free(sim);
    plan_free(p);
    placement_free(pl);
    return bad ? -1 : 0;
}

/* ---- the first cut: the smallest bottleneck -------------------------------------------------- */

static void bytes_sum(struct cut_search *s)
{
    s->fixed = mem_alloc((size_t)(s->m.n + 1) * sizeof *s->fixed);
    s->kept = mem_alloc((size_t)(s->m.n + 1) * sizeof *s->kept);
    for (int i = 0; i < s->m.n; i++) {
        s->fixed[i + 1] = s->fixed[i] + s->m.leaf[i].fixed;
        s->kept[i + 1] = s->kept[i] + s->m.leaf[i].kept;
    }
}

/* As part_bytes. */
static uint64_t bytes_of(const struct cut_search *s, int a, int b, int r)
{
    return s->fixed[b] - s->fixed[a] + (s->kept[b] - s->kept[a]) * (uint64_t)s->m.in_flight[r];
}

/* Groups [a, b) as stage r: their time; with `bytes`, their share of the limit. The time above the limit is 1e300. */
static double weight(const struct cut_search *s, int r, int a, int b, bool bytes)
{
    const struct part_bound *x = &s->bound;
    double part = s->limited ? (double)bytes_of(s, a, b, r) / (double)(s->m.limit[r] + 1) : 0;
    if (bytes) return part;
    if (part > 1) return 1e300;
    return (x->f[b] - x->f[a] + x->b[b] - x->b[a] + x->w[b] - x->w[a] + x->opt[b] - x->opt[a]) /
           cost_speed(s->q->cost, part_rank(s->q, r));
}

/* Stage r ends at place j. Returns its best begin, and in *l the largest weight of stages 0 to r. before: the largest
 * weight of the earlier stages, up to each place; behind: the minimum of `before` from a place on. `before` grows with
 * the place, or hardly shrinks, and the stage's own weight shrinks. So the best place is near the place where they
 * meet. Of equal weights the first place wins. */
static int stage_begin(const struct cut_search *s, int r, int j, bool bytes, const double *before, const double *behind,
                       double *l)
{
    int low = r, high = j, best = 0;
    while (low < high) {
        int mid = (low + high) / 2;
        if (weight(s, r, s->at[mid], s->at[j], bytes) <= behind[mid]) high = mid;
        else low = mid + 1;
    }
    *l = 1e301;
    for (int i = low; i < j && behind[i] < *l; i++) if (before[i] < *l) *l = before[best = i];
    for (int i = low - 1; i >= r; i--) {
        double own = weight(s, r, s->at[i], s->at[j], bytes), max = own > before[i] ? own : before[i];
        if (own > *l) break;
        if (max <= *l && max < 1e301) { *l = max; best = i; }
    }
    return best;
}

static double bottleneck(struct cut_search *s, bool bytes)
{
    int n = s->n_at, *from = mem_alloc((size_t)(s->p * n) * sizeof *from);
    double *least = mem_alloc((size_t)(s->p * n) * sizeof *least), *behind = mem_alloc((size_t)n * sizeof *behind);
    for (int j = 0; j < n; j++) least[j] = weight(s, 0, 0, s->at[j], bytes);
    for (int r = 1; r < s->p; r++) {
        const double *before = &least[(r - 1) * n];
        for (int i = n - 1; i >= 0; i--)
            behind[i] = i < n - 1 && behind[i + 1] < before[i] ? behind[i + 1] : before[i];
        for (int j = 0; j < n; j++)
            from[r * n + j] = stage_begin(s, r, j, bytes, before, behind, &least[r * n + j]);
    }
    double value = least[s->p * n - 1];
    s->pick[s->p] = n - 1;
    for (int r = s->p - 1; r > 0; r--) s->pick[r] = from[r * n + s->pick[r + 1]];
    s->pick[0] = 0;
    free(from); free(least); free(behind);
    return value;
}

static void picked(struct cut_search *s) { for (int i = 0; i <= s->p; i++) s->cut[i] = s->at[s->pick[i]]; }

/* ---- moving borders by bound ----------------------------------------------------------------- */

/* The largest bound of the stages, plus a little of their mean, so that plateaus have a slope. */
static double bound_of(struct cut_search *s)
{
    double most = 0, sum = 0;
    picked(s);
    for (int i = 0; i < s->p; i++) {
        double t = bound_stage(&s->bound, s->cut, i, s->st);
        if (s->limited && weight(s, i, s->cut[i], s->cut[i + 1], true) > 1) return 1e300;
        sum += t;
        if (t > most) most = t;
    }
    return most + 0.02 * sum / s->p;
}

static void bounds_descend(struct cut_search *s)
{
    double least = bound_of(s);
    for (int step = s->n_at / (2 * s->p) + 1, moved; step > 0; step = moved ? step : step / 2) {
        moved = 0;
        for (int k = 2; k < 2 * s->p; k++) {             /* each border up and down */
            int *at = &s->pick[k / 2], was = *at, now = was + (k % 2 ? step : -step);
            if (now <= at[-1] || now >= at[1]) continue;
            *at = now;
            double t = bound_of(s);
            if (t < least) { least = t; moved = 1; }
            else *at = was;
        }
    }
    picked(s);
}

/* ---- moving borders by simulation ------------------------------------------------------------ */

struct start { int *pick; struct score score; };

/* 1: moved; 0: no improvement, or no such place. */
static int border_move(struct cut_search *s, struct start *x, int border, int by)
{
    int *at = &x->pick[border], was = *at, now = was + by;
    struct score score;
    if (now <= at[-1] || now >= at[1]) return 0;
    *at = now;
    for (int i = 0; i <= s->p; i++) s->cut[i] = s->at[x->pick[i]];
    if (cut_try(s, &score)) return -1;
    if (better(score, x->score)) { x->score = score; return 1; }
    *at = was;
    return 0;
}

static int climb(struct cut_search *s, struct start *x)
{
    int end = s->plans + MAX_CLIMB;
    for (int step = 4, moved; step > 0; step = moved ? step : step / 2) {
        moved = 0;
        for (int k = 2; k < 2 * s->p && s->plans < end; k++) {   /* each border up and down */
            int m = border_move(s, x, k / 2, k % 2 ? step : -step);
            if (m < 0) return -1;
            moved |= m;
        }
        if (s->plans >= end) break;
    }
    return 0;
}

static int start_add(struct cut_search *s, struct start *x)
{
    x->pick = mem_alloc((size_t)(s->p + 1) * sizeof *x->pick);
    memcpy(x->pick, s->pick, (size_t)(s->p + 1) * sizeof *x->pick);
    picked(s);
    return cut_try(s, &x->score);
}

/* Starts from the smallest bottleneck and from the even cut, each unchanged and moved by bound. Simulation then moves
 * the borders of the two best. */
static int starts_try(struct cut_search *s, struct start *x)
{
    for (int i = 0; i < STARTS; i++) {
        if (i == 0 && bottleneck(s, false) >= 1e300) bottleneck(s, true);
        /* as policy uniform */
        for (int k = 0, n = s->n_at - 1; i == 2 && k <= s->p; k++)
            s->pick[k] = k * (n / s->p) + (k < n % s->p ? k : n % s->p);
        if (i % 2) bounds_descend(s);
        if (start_add(s, &x[i])) return -1;
        if (s->q->rough && i && s->least.excess == 0) return 0;
    }
    for (int done = 0; done < 2; done++) {
        for (int i = done + 1; i < STARTS; i++)
            if (better(x[i].score, x[done].score)) { struct start t = x[i]; x[i] = x[done]; x[done] = t; }
        if (climb(s, &x[done])) return -1;
    }
    return 0;
}

/* ---- all other cuts -------------------------------------------------------------------------- */

/* Do weights, gradients and optimizer state alone exceed the limit? Always false with tied weights, which count at each
 * use. */
static bool too_large(const struct cut_search *s, int r, int a, int b)
{
    if (!s->limited || s->tied || s->least.excess > 0) return false;
    return s->fixed[b] - s->fixed[a] > s->limit[part_rank(s->q, r)];
}

static bool ruled_out(const struct cut_search *s, double bound)
{
    return s->least.excess == 0 && bound >= s->least.ns * (1 - 1e-12);
}

static int cuts_try(struct cut_search *s, int i)
{
    if (i == s->p - 1) {
        s->cut[s->p] = s->bound.n;
        if (too_large(s, i, s->cut[i], s->cut[s->p]) || ruled_out(s, bound_stage(&s->bound, s->cut, i, s->st)))
            return 0;
        if (s->plans >= MAX_PLANS) { s->nodes = MAX_NODES; return 0; }
        struct score score;
        return cut_try(s, &score);
    }
    for (int j = s->pick[i] + 1; j < s->n_at - (s->p - 1 - i); j++) {
        if (++s->nodes >= MAX_NODES) return 0;
        s->pick[i + 1] = j;
        s->cut[i + 1] = s->at[j];
        if (too_large(s, i, s->cut[i], s->cut[i + 1])) break;
        if (ruled_out(s, bound_stage(&s->bound, s->cut, i, s->st)) ||
            ruled_out(s, bound_rest(&s->bound, s->cut[i + 1], i + 1)))
            continue;
        if (cuts_try(s, i + 1)) return -1;
    }
    return 0;
}

/* ---- all together ---------------------------------------------------------------------------- */

static int places_find(struct cut_search *s)
{
    s->at = mem_alloc((size_t)(s->bound.n + 1) * sizeof *s->at);
    for (int g = 0; g <= s->bound.n; g++)
        if (g == 0 || g == s->bound.n || part_may_cut(&s->m, g)) s->at[s->n_at++] = g;
    if (s->n_at > s->p) return 0;
    return conf_error(s->q->conf, "pipeline.no_split", s->e,
                      "%d stages, but the blocks that stay whole leave %d place%s to cut", s->p, s->n_at - 2,
                      s->n_at == 3 ? "" : "s");
}

static int search_run(struct cut_search *s)
{
    for (int r = 0; r < s->p; r++) s->limited |= s->m.limit[r] != PART_NO_LIMIT;
    for (int i = 0; i < s->q->sel->g->n_params; i++) s->tied |= s->q->sel->g->param[i].n_uses > 1;
    if (s->limited && part_model_count(s->q, true, &s->m, s->e)) return -1;
    if (s->limited) bytes_sum(s);
    if (places_find(s)) return -1;
    struct start x[STARTS] = {0};
    int bad = starts_try(s, x);
    for (int i = 0; i < STARTS; i++) free(x[i].pick);
    if (bad) return -1;
    s->pick[0] = s->cut[0] = 0;
    if (s->q->rough && s->least.excess == 0 && s->p > 1) { s->nodes = MAX_NODES; return 0; }
    return cuts_try(s, 0);
}

static int auto_split(const struct part_request *q, int *first_group, struct err *e)
{
    size_t n = (size_t)q->n_stages + 1;
    struct cut_search s = {.q = q,
                           .p = q->n_stages,
                           .e = e,
                           .cut = mem_alloc(n * sizeof(int)),
                           .best = mem_alloc(n * sizeof(int)),
                           .pick = mem_alloc(n * sizeof(int)),
                           .limit = mem_alloc((size_t)q->mesh.size[AXIS_PP] * sizeof(uint64_t)),
                           .st = mem_alloc(n * sizeof(struct bound_stage))};
    bound_make(&s.bound, q, false);
    int bad = part_limits(q->conf, q->free_bytes, q->mesh.size[AXIS_PP], s.limit, e) || part_model_make(q, &s.m, e) ||
              search_run(&s)
                  ? -1
                  : 0;
    if (!bad) memcpy(first_group, s.best, n * sizeof *first_group);
    if (q->found)
        *q->found = (struct part_found){
            .plans = s.plans, .proven = s.nodes < MAX_NODES, .fits = s.least.excess == 0, .ns = s.least.ns,
            .least_ns = bound_rest(&s.bound, 0, 0)};
    for (int i = 0; i < s.tried.n; i++) free(s.tried.v[i].cut);
    vec_free(&s.tried);
    part_model_free(&s.m);
    bound_free(&s.bound);
    free(s.fixed); free(s.kept); free(s.limit);
    free(s.at); free(s.cut); free(s.best); free(s.pick); free(s.st);
    return bad;
}

const struct part_kind part_auto = {"auto", "the shortest simulated step that fits the ranks' memory", true,
                                    auto_split};
