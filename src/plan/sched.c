/* Schedules: the list, and the code that all schedules share. */
#include <stdlib.h>
#include <string.h>
#include "plan/cost.h"
#include "plan/part.h"
#include "plan/plan.h"
#include "plan/sched.h"
#include "plan/sim.h"

#define SCHEDULE(x) extern const struct sched_kind sched_##x;
#include "registry.inc"
const struct sched_kind *const sched_list[] = {
#define SCHEDULE(x) &sched_##x,
#include "registry.inc"
    NULL
};

const struct sched_kind *sched_find(const char *name)
{
    for (int i = 0; sched_list[i]; i++) if (!strcmp(sched_list[i]->name, name)) return sched_list[i];
    return NULL;
}

void sched_push(struct sched *s, int rank, enum act_op op, int stage, int mb)
{
    *vec_push(&s->row[rank]) = (struct sched_act){
        .op = (uint8_t)op, .stage = (uint16_t)stage, .mb = (uint16_t)mb, .n_mb = 1};
}

void sched_free(struct sched *s)
{
    for (int i = 0; s->row && i < s->n_ranks; i++) vec_free(&s->row[i]);
    free(s->row);
    *s = (struct sched){0};
}

int sched_rank_of(const struct sched_kind *k, int stage, int n_ranks)
{
    int turn = stage / n_ranks, at = stage % n_ranks;
    return k && k->turns && turn % 2 ? n_ranks - 1 - at : at;
}

int sched_map_check(const struct sched_kind *k, const struct stage_map *m, struct err *e)
{
    if (!k->chunks && m->n_stages != m->n_ranks)
        return err_set(e, E_CONF, "schedule \"%s\" needs one stage per rank, not %d stages on %d rank%s", k->name,
                       m->n_stages, m->n_ranks, m->n_ranks == 1 ? "" : "s");
    if (!k->chunks) return 0;
    if (m->n_stages % m->n_ranks)
        return err_set(e, E_CONF, "schedule \"%s\" needs as many stages on each rank, not %d stages on %d ranks",
                       k->name, m->n_stages, m->n_ranks);
    for (int i = 0; i < m->n_stages; i++)
        if (m->rank_of[i] != sched_rank_of(k, i, m->n_ranks))
            return err_set(e, E_CONF, "schedule \"%s\" needs stage %d on rank %d, not %d", k->name, i,
                           sched_rank_of(k, i, m->n_ranks), m->rank_of[i]);
    return 0;
}

int sched_rows_map(const struct sched *s, int **rank_of)
{
    int n = 0;
    for (int r = 0; r < s->n_ranks; r++)
        for (int i = 0; i < s->row[r].n; i++) if (s->row[r].v[i].stage >= n) n = s->row[r].v[i].stage + 1;
    *rank_of = memset(mem_alloc((size_t)(n + 1) * sizeof **rank_of), 0xff, (size_t)(n + 1) * sizeof **rank_of);
    for (int r = s->n_ranks - 1; r >= 0; r--)
        for (int i = 0; i < s->row[r].n; i++) (*rank_of)[s->row[r].v[i].stage] = r;
    return n;
}

/* ---- costs, for schedules that choose -------------------------------------------------------- */

/* Bytes of a sample that groups before `border` make and groups after it read. */
static double border_bytes(const struct selection *s, int border)
{
    double bytes = 0;
    for (int t = 0; t < s->g->n_tensors; t++) {
        const struct tensor *x = &s->g->tensor[t];
        bool crosses = false;
        if (x->producer < 0 || s->group_of[x->producer] >= border) continue;
        for (int i = 0; i < x->n_readers; i++) crosses |= s->group_of[x->reader[i]] >= border;
        if (crosses) bytes += (double)select_sample_bytes(s, t);
    }
    return bytes;
}

/* Recomputation counts as part of B. */
static struct sched_cost stage_cost(const struct plan *p, const struct plan_request *r, int stage)
{
    const struct cost *k = r->cost;
    const struct stage_plan *st = &p->stage[stage];
    double speed = cost_speed(k, st->rank);
    int n = p->mb_n[0], end = st->first_group + st->n_groups;
    struct sched_cost c = {0};
    for (int g = st->first_group; g < end; g++) {
        double f = cost_ns(k, PH_FWD, g, n);
        c.f += f / speed;
        c.b += (cost_ns(k, PH_BWD_DATA, g, n) + (r->recompute && r->recompute[g] ? f : 0)) / speed;
        c.w += cost_ns(k, PH_BWD_WEIGHTS, g, n) / speed;
    }
    c.down = k->latency_ns + border_bytes(p->sel, end) * n / k->bytes_per_ns;
    c.up = k->latency_ns + border_bytes(p->sel, st->first_group) * n / k->bytes_per_ns;
    return c;
}

struct weighing { const struct plan *p; const struct plan_request *r; };

static int rows_weigh(void *to, const struct sched *rows, double *ns, double *excess, struct err *e)
{
    const struct weighing *x = to;
    struct plan *p = plan_make_from(x->p->sel, x->p->pl, x->r, rows, e);
    struct sim *s = p ? plan_simulate(p, x->r->cost, e) : NULL;
    bool bad = !s;
    if (s) *ns = s->wall_ns;
    if (s && x->r->limit) *excess = part_excess(p, x->r->limit);
    sim_free(s);
    plan_free(p);
    return bad ? -1 : 0;
}

int sched_ask(const struct sched_kind *k, const struct plan *p, const struct plan_request *r, struct sched *out,
              struct err *e)
{
    struct sched_request q = {.map = &p->pl->map, .n_mb = p->n_mb, .in_flight = p->req.in_flight};
    for (int i = 0; i < p->n_ranks; i++) q.in_file |= p->pl->slots[i].n > 0;
    struct weighing x = {p, r};
    struct sched_grade grade = {&x, r->limit != NULL, rows_weigh};
    struct sched_cost *cost = NULL;
    if (k->weighs && r->cost) {
        cost = mem_alloc((size_t)p->n_stages * sizeof *cost);
        for (int i = 0; i < p->n_stages; i++) cost[i] = stage_cost(p, r, i);
        q.cost = cost;
        q.grade = &grade;
    }
    int bad = k->build(&q, out, e);
    free(cost);
    return bad;
}
