/* Lower bounds of a step. Any synchronous schedule: T >= sum_{j<i} F_j + m R_i + sum_{j<i} B_j for each stage i,
 * transfers in between (Narayanan et al. 2021, section 2.2, for unequal stages). Here stages need not form a chain: a
 * stage waits for the stages whose tensors it reads. After its last B the gradients go back to the same stages. */
#include <stdlib.h>
#include <string.h>
#include "plan/cost.h"
#include "plan/part.h"
#include "plan/part_bound.h"
#include "plan/plan_int.h"
#include "plan/sim.h"

static double optimizer_ns(const struct part_request *q, const struct group *k)
{
    double bytes = 0;
    for (int j = 0; j < k->n_param; j++) {
        const struct param *p = &q->sel->g->param[k->param[j]];
        if (p->kind == PARAM_WEIGHT && !p->frozen)
            bytes += (double)shape_count(&p->shape) * (double)dtype_bytes(p->type);
    }
    if (q->sharing.weights) bytes /= q->mesh.size[AXIS_DP];
    return bytes * q->cost->optimizer_ns_per_byte;
}

/* The micro-batches of the plan's pipeline: only the last one may differ in size. */
static void sizes_find(struct part_bound *x)
{
    struct arena *mem = arena_new();
    struct plan_request r = *x->q->plan;
    struct portion b;
    if (r.groups < 1) r.groups = 1;
    batch_split(mem, &r, x->q->mesh.size[AXIS_DP], r.dp, &b);
    x->n_micro = b.n_mb;
    if (b.n_mb) x->full = b.mb_n[0], x->last = b.mb_n[b.n_mb - 1];
    arena_free(mem);
}

static void group_add(struct part_bound *x, int g, enum phase ph, double *all, double *least, double *most)
{
    int n = x->n_micro - 1;
    double full = n < 0 ? 0 : cost_ns(x->q->cost, ph, g, x->full),
           last = n < 0 ? 0 : cost_ns(x->q->cost, ph, g, x->last);
    all[g + 1] = all[g] + n * full + last;
    least[g + 1] = least[g] + (last < full || !n ? last : full);
    if (most) most[g + 1] = most[g] + (last > full || !n ? last : full);
}

/* If a stage begins with group g, few groups from g on read tensors made before g. These lists find them without a look
 * at every group. */
enum { BOUND_BLOCK = 32 };

static void readers_find(struct part_bound *x)
{
    const struct selection *s = x->q->sel;
    x->from = mem_alloc((size_t)(x->n + 1) * sizeof *x->from);
    x->least_from = mem_alloc((size_t)(x->n / BOUND_BLOCK + 1) * sizeof *x->least_from);
    for (int g = 0; g < x->n; g++) {
        int *least = &x->least_from[g / BOUND_BLOCK];
        x->from[g] = g;
        for (int j = 0; j < s->group[g].n_in; j++) {
            const struct tensor *t = &s->g->tensor[s->group[g].in[j]];
            int from = t->producer < 0 ? g : s->group_of[t->producer];
            if (from < x->from[g]) x->from[g] = from;
        }
        if (g % BOUND_BLOCK == 0 || x->from[g] < *least) *least = x->from[g];
    }
}

/* The first of groups [g, end) that reads a tensor made before `first`; end: none. */
static int reader_next(const struct part_bound *x, int g, int end, int first)
{
    while (g < end && x->from[g] >= first) {
        bool none = g % BOUND_BLOCK == 0 && x->least_from[g / BOUND_BLOCK] >= first;
        g += none ? BOUND_BLOCK : 1;
    }
    return g < end ? g : end;
}

void bound_make(struct part_bound *x, const struct part_request *q, bool eager)
{
    *x = (struct part_bound){.q = q, .n = q->sel->n_groups, .eager = eager};
    double **sum[] = {&x->f, &x->b, &x->w, &x->f1, &x->b1, &x->w1, &x->w_most, &x->opt};
    for (int i = 0; i < 8; i++) *sum[i] = mem_alloc((size_t)(x->n + 1) * sizeof(double));
    sizes_find(x);
    readers_find(x);
    for (int g = 0; g < x->n; g++) {
        group_add(x, g, PH_FWD, x->f, x->f1, NULL);
        if (q->plan->mode != PLAN_TRAIN) continue;
        group_add(x, g, PH_BWD_DATA, x->b, x->b1, NULL);
        group_add(x, g, PH_BWD_WEIGHTS, x->w, x->w1, x->w_most);
        x->opt[g + 1] = x->opt[g] + optimizer_ns(q, &q->sel->group[g]);
    }
}

void bound_free(struct part_bound *x)
{
    free(x->f); free(x->b); free(x->w); free(x->f1); free(x->b1); free(x->w1); free(x->w_most); free(x->opt);
    free(x->from); free(x->least_from);
}

bool bound_eager(const struct plan *p)
{
    for (int r = 0; r < p->n_ranks; r++) {
        const struct act *b = NULL;
        for (int i = 0; i < p->row_n[r]; i++) {
            const struct act *a = &p->row[r][i];
            if (act_info[a->op].kind != KIND_PROGRAM) continue;
            if (b && (a->op != ACT_W || a->mb != b->mb || a->n_mb != 1 || a->stage != b->stage)) return false;
            b = a->op == ACT_B ? a : NULL;
        }
    }
    return true;
}

static int stage_of(const int *cut, int i, int group)
{
    while (group < cut[i]) i--;
    return i;
}

static double part_of(const double *sum, const int *cut, int i) { return sum[cut[i + 1]] - sum[cut[i]]; }

static double speed_of(const struct part_request *q, int stage)
{
    return cost_speed(q->cost, part_rank(q, stage));
}

double bound_stage(const struct part_bound *x, const int *cut, int i, struct bound_stage *st)
{
    const struct selection *s = x->q->sel;
    const struct cost *k = x->q->cost;
    const enum backward_mode backward = x->q->plan->backward;
    bool sends = false, train = x->q->plan->mode == PLAN_TRAIN;
    double speed = speed_of(x->q, i), opt = part_of(x->opt, cut, i) / speed, least = x->last, back = 0;
    st[i] = (struct bound_stage){0};
    for (int g = reader_next(x, cut[i], cut[i + 1], cut[i]); g < cut[i + 1];
         g = reader_next(x, g + 1, cut[i + 1], cut[i]))
        for (int j = 0; j < s->group[g].n_in; j++) {
            const struct tensor *t = &s->g->tensor[s->group[g].in[j]];
            int from = t->producer < 0 ? -1 : s->group_of[t->producer];
            if (from < 0 || from >= cut[i]) continue;
            int d = stage_of(cut, i, from);
            bool crosses = part_rank(x->q, d) != part_rank(x->q, i);
            double bytes = (double)select_sample_bytes(s, s->group[g].in[j]) * least;
            double move = crosses ? k->latency_ns + bytes / k->bytes_per_ns : 0;
            double start = st[d].start + part_of(x->f1, cut, d) / speed_of(x->q, d) + move;
            if (start > st[i].start) st[i].start = start;
            if (!train || !(s->group[g].grad_in >> j & 1)) continue;
            double after = move + part_of(x->b1, cut, d) / speed_of(x->q, d) + st[d].after;
            if (after > back) back = after;
            sends |= crosses;
        }
    bool joined = x->eager && backward != BACKWARD_SPLIT && (backward == BACKWARD_JOINED || !sends);
    double before = part_of(x->f, cut, i) + part_of(x->b, cut, i), w = part_of(x->w, cut, i);
    double own = (joined ? 0 : part_of(x->w1, cut, i) / speed) + opt;
    st[i].after = own > back ? own : back;
    double to_last_b = before + (!x->eager ? 0 : joined ? w : w - part_of(x->w_most, cut, i));
    double t1 = st[i].start + to_last_b / speed + st[i].after, t2 = st[i].start + (before + w) / speed + opt;
    /* for earlier stages: the rank that gets the gradient runs B and W in one */
    if (joined) st[i].after += part_of(x->w1, cut, i) / speed;
    return t1 > t2 ? t1 : t2;
}

/* Is `stage` the first stage of its rank, among the stages from `from` on? */
static bool first_of_rank(const struct part_request *q, int from, int stage)
{
    for (int i = from; i < stage; i++) if (part_rank(q, i) == part_rank(q, stage)) return false;
    return true;
}

double bound_rest(const struct part_bound *x, int first, int i)
{
    double speed = 0, work = x->f[x->n] - x->f[first] + x->b[x->n] - x->b[first] + x->w[x->n] - x->w[first];
    for (int k = i; k < x->q->n_stages; k++) if (first_of_rank(x->q, i, k)) speed += speed_of(x->q, k);
    return work / speed;
}

/* A rank runs all passes of its stages, from the time when the first of them can begin. */
static double bound_rank(const struct part_bound *x, const struct placement *pl, const struct bound_stage *st, int rank)
{
    const struct stage_map *m = &pl->map;
    double start = st[m->stages_of[rank][0]].start, work = 0;
    for (int i = 0; i < m->n_stages_of[rank]; i++) {
        int s = m->stages_of[rank][i];
        if (st[s].start < start) start = st[s].start;
        work += part_of(x->f, pl->first_group, s) + part_of(x->b, pl->first_group, s) +
                part_of(x->w, pl->first_group, s) + part_of(x->opt, pl->first_group, s);
    }
    return start + work / cost_speed(x->q->cost, rank);
}

double plan_bound(const struct plan *p, const struct cost *k)
{
    struct part_request q = {.sel = p->sel, .cost = k, .plan = &p->req, .n_stages = p->n_stages,
                             .mesh = p->pl->mesh, .rank_of = p->pl->map.rank_of, .sharing = p->pl->sharing};
    struct bound_stage *st = mem_alloc((size_t)p->n_stages * sizeof *st);
    struct part_bound x;
    double most = 0;
    bound_make(&x, &q, false);                             /* not eager: a bound for any schedule */
    for (int i = 0; i < p->n_stages; i++) {
        double t = bound_stage(&x, p->pl->first_group, i, st);
        if (t > most) most = t;
    }
    for (int r = 0; r < p->n_ranks; r++) {
        double t = bound_rank(&x, p->pl, st, r);
        if (t > most) most = t;
    }
    bound_free(&x);
    free(st);
    return most;
}
