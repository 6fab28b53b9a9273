/* Cuts the network into stages by the policy. Under recompute auto it also chooses what each cut must recompute. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "job/partition.h"
#include "job/device_map.h"
#include "job/memory_limit.h"
#include "job/tiers.h"
#include "optim/optim.h"
#include "plan/cost.h"
#include "plan/part.h"
#include "plan/recompute.h"
#include "plan/sched.h"
#include "plan/sim.h"

int partition_recompute(const struct job *j, const struct placement *pl, bool *recompute, struct err *e)
{
    const struct conf *c = j->conf;
    if (recompute_stages(c, pl, recompute, e)) return -1;
    if (c->pipeline.recompute != RECOMPUTE_AUTO || j->batch[PLAN_FULL] < 0) return 0;
    if (!limit_limited(j))                                  /* a host with enough memory needs no recomputation */
        return j->host && !j->be->stream ? 0 : conf_error(c, "pipeline.recompute", e, "auto needs pipeline.max_memory");
    uint64_t *limit = mem_alloc((size_t)j->mesh.size[AXIS_PP] * sizeof *limit);
    struct plan_request r = job_request(j, PLAN_FULL);
    struct recompute_request q = {j->sel, pl, &r, j->cost, limit};
    int bad = part_limits(c, j->free_bytes, j->mesh.size[AXIS_PP], limit, e) || recompute_auto(&q, recompute, e);
    free(limit);
    return bad;
}

/* ---- partition auto with recompute auto ------------------------------------------------------ */

/* What must be recomputed depends on the cut, and which cut fits depends on what is recomputed. So the network is cut
 * three ways: as if nothing were recomputed, as if everything were, and as if memory were unlimited. Each cut is graded
 * with the blocks that it really needs. From the best of the three, borders are moved while that helps. */
struct recut {
    struct job *j;
    uint64_t *limit;
    bool *all, *recompute;
    struct part_model m;                                   /* for part_may_cut */
    int *cut, *best, graded;                               /* n_stages + 1 each; graded: number of graded cuts */
    double least;                                          /* grade_of the best */
    double bound;                                          /* ns, a lower bound of any cut with any recomputation */
};
static const double TOO_LARGE = 1e300;
enum { WAY_NOTHING, WAY_ALL, WAY_UNLIMITED, WAYS, MAX_MOVES = 12 };   /* MAX_MOVES: for each step size */

static struct part_request cut_request(struct job *j, const struct conf *c, const struct plan_request *r)
{
    return (struct part_request){
        .sel = j->sel, .cost = j->cost, .conf = c, .plan = r, .n_stages = j->n_stages, .rank_of = j->rank_of,
        .mesh = {{j->rank_of ? j->mesh.size[AXIS_PP] : j->n_stages, j->mesh.size[AXIS_DP]}},
        .buffers = job_buffers(j), .sharing = job_sharing(j, c), .free_bytes = j->free_bytes,
        .rough = j->rough};
}

/* ns; a plan that does not fit gets a grade above all times, higher the more memory is missing. */
static double grade_of(const struct recut *x, const struct plan *p, double ns)
{
    double excess = part_excess(p, x->limit);
    return excess > 0 ? TOO_LARGE * (1 + excess) : ns;
}

/* Simulates x->cut with the blocks that it needs, and saves the cut if it is better. */
static int partition_grade(struct recut *x, struct err *e)
{
    struct job *j = x->j;
    struct plan_request r = job_request(j, PLAN_FULL);
    r.recompute = memcpy(x->recompute, j->recompute, (size_t)j->sel->n_groups * sizeof *x->recompute);
    struct placement *pl = job_place(j, x->cut, e);
    struct plan *p = pl && !partition_recompute(j, pl, x->recompute, e) ? plan_make(j->sel, pl, &r, e) : NULL;
    struct sim *s = p ? plan_simulate(p, j->cost, e) : NULL;
    double grade = s ? grade_of(x, p, s->wall_ns) : 0;
    bool bad = !s;
    x->graded++;
    if (s && (x->least <= 0 || grade < x->least)) {
        x->least = grade;
        memcpy(x->best, x->cut, (size_t)(j->n_stages + 1) * sizeof *x->best);
    }
    sim_free(s);
    plan_free(p);
    placement_free(pl);
    return bad ? -1 : 0;
}

static int way_try(struct recut *x, const struct part_kind *part, int way, struct err *e)
{
    struct conf c = *x->j->conf;
    struct plan_request r = job_request(x->j, PLAN_FULL);
    if (way == WAY_ALL) r.recompute = x->all;
    if (way == WAY_UNLIMITED) c.pipeline.max_memory.n = 0;
    struct part_request q = cut_request(x->j, &c, &r);
    struct part_found found = {0};
    if (way == WAY_UNLIMITED) q.free_bytes = NULL;
    q.found = &found;
    if (part->split(&q, x->cut, e)) return -1;
    if (way == WAY_NOTHING) x->bound = found.least_ns;
    return partition_grade(x, e);
}

/* 1: better; 0: not better, or no such place. */
static int border_move(struct recut *x, int border, int by, int *tried, struct err *e)
{
    double before = x->least;
    memcpy(x->cut, x->best, (size_t)(x->j->n_stages + 1) * sizeof *x->cut);
    int *at = &x->cut[border], to = *at + by;
    if (to <= at[-1] || to >= at[1] || !part_may_cut(&x->m, to) || *tried >= MAX_MOVES) return 0;
    *at = to;
    ++*tried;
    return partition_grade(x, e) ? -1 : x->least < before;
}

static int borders_move(struct recut *x, struct err *e)
{
    for (int step = 8; step; step /= 2)
        for (int any = 1, tried = 0; any;) {
            any = 0;
            for (int k = 2; k < 2 * x->j->n_stages; k++)   /* each border up and down, as far as it helps */
                for (int moved = 1; moved; any |= moved)
                    if ((moved = border_move(x, k / 2, k % 2 ? step : -step, &tried, e)) < 0) return -1;
        }
    return 0;
}

static int recut(struct job *j, const struct part_kind *part, struct err *e)
{
    size_t n = (size_t)j->n_stages + 1, groups = (size_t)j->sel->n_groups;
    struct plan_request r = job_request(j, PLAN_FULL);
    struct part_request q = cut_request(j, j->conf, &r);
    struct recut x = {.j = j,
                      .limit = mem_alloc((size_t)j->mesh.size[AXIS_PP] * sizeof *x.limit),
                      .all = mem_alloc(groups * sizeof *x.all),
                      .recompute = mem_alloc(groups * sizeof *x.recompute),
                      .cut = mem_alloc(n * sizeof *x.cut),
                      .best = j->first_group};
    for (size_t g = 0; g < groups; g++) x.all[g] = true;
    int bad = part_limits(j->conf, j->free_bytes, j->mesh.size[AXIS_PP], x.limit, e) || part_model_make(&q, &x.m, e);
    for (int way = 0; way < WAYS && !bad; way++) bad = way_try(&x, part, way, e);
    if (!bad && !(j->rough && x.least < TOO_LARGE)) bad = borders_move(&x, e);
    j->found = (struct part_found){.plans = x.graded, .fits = x.least < TOO_LARGE, .ns = x.least,
                                   .least_ns = x.bound};
    part_model_free(&x.m);
    free(x.limit); free(x.all); free(x.recompute); free(x.cut);
    return bad;
}

/* ---- several stages a rank ------------------------------------------------------------------- */

static int rows_place(struct job *j, const struct sched *s, struct err *e)
{
    const struct conf *c = j->conf;
    int *rank_of, n = sched_rows_map(s, &rank_of);
    bool asked = c->pipeline.stages > 0 || c->pipeline.partition == PART_manual;
    if (n <= j->mesh.size[AXIS_PP]) { free(rank_of); return 0; }   /* one stage a rank: the planner checks the rows */
    j->rank_of = rank_of;
    if (asked && n != j->n_stages)
        return conf_error(c, "pipeline.rows", e, "%s has actions of %d stages, but there are %d", c->pipeline.rows, n,
                          j->n_stages);
    for (int i = 0; i < n; i++)
        if (rank_of[i] < 0)
            return conf_error(c, "pipeline.rows", e, "%s has actions of stage %d, but none of stage %d",
                              c->pipeline.rows, n - 1, i);
    j->n_stages = n;
    return 0;
}

/* A rows file with more stages than ranks defines the rank of each stage. The planner refuses an unreadable file. */
static int rows_chunks(struct job *j, struct err *e)
{
    int n = j->mesh.size[AXIS_PP];
    struct sched s = {.n_ranks = n, .row = mem_alloc((size_t)n * sizeof *s.row)};
    struct err unread = {0};
    int bad = !sched_parse("rows", j->rows.s, strlen(j->rows.s), &s, &unread) && rows_place(j, &s, e);
    sched_free(&s);
    return bad ? -1 : 0;
}

/* Sets the rank of each stage if the schedule needs stages that would otherwise be merged. 78 if ranks would have
 * different numbers of stages. */
static int chunks_place(struct job *j, struct err *e)
{
    const struct sched_kind *k = sched_find(job_schedule(j));
    int n = j->n_stages, p = j->mesh.size[AXIS_PP];
    if (j->rows.s) return rows_chunks(j, e);
    if (!k || !k->chunks || n <= p) return 0;
    if (n % p)
        return conf_error(j->conf, "pipeline.stages", e, "%d stages on %d ranks: schedule \"%s\" needs as many on each",
                          n, p, k->name);
    j->rank_of = mem_alloc((size_t)n * sizeof *j->rank_of);
    for (int i = 0; i < n; i++) j->rank_of[i] = sched_rank_of(k, i, p);
    return 0;
}

/* Policies by bytes may leave a rank empty. With several stages a rank, no stage may be empty. */
static int chunks_check(const struct job *j, struct err *e)
{
    for (int i = 0; j->rank_of && i < j->n_stages; i++)
        if (j->first_group[i] == j->first_group[i + 1])
            return conf_error(j->conf, "pipeline.partition", e, "\"%s\" leaves no layers for stage %d of %d",
                              conf_word(j->conf, "pipeline.partition"), i, j->n_stages);
    return 0;
}

/* ---- all policies ---------------------------------------------------------------------------- */

static int stages_cut(struct job *j, struct err *e)
{
    const struct part_kind *part = part_list[j->conf->pipeline.partition - 1];
    if (chunks_place(j, e)) return -1;
    const enum partition_word word = j->conf->pipeline.partition;
    const bool own = word == PART_manual || (word == PART_uniform && conf_given(j->conf, "pipeline.partition"));
    const bool tiers = j->n_tiers && !own;
    if (part->by_rank && j->mesh.size[AXIS_PP] < j->n_stages && !j->rank_of) {
        j->n_merged = j->n_stages;
        j->n_stages = j->mesh.size[AXIS_PP];
    }
    if (j->n_stages > j->sel->n_groups)
        return conf_error(j->conf, "pipeline.stages", e, "%d stages, but this network can be cut into %d at most",
                          j->n_stages, j->sel->n_groups);
    int kind = 0;
    while (kind < PLAN_KINDS - 1 && j->batch[kind] < 0) kind++;
    if (j->batch[kind] < 0 && j->conf->run.evaluate)
        return conf_error(j->conf, "data.test", e, "--evaluate needs test samples");
    if (j->batch[kind] < 0) return conf_error(j->conf, "data.source", e, "there are no samples to plan for");
    j->first_group = mem_alloc((size_t)(j->n_stages + 1) * sizeof *j->first_group);
    if (tiers) return tiers_cut(j, e);
    bool both = j->conf->pipeline.partition == PART_auto && j->conf->pipeline.recompute == RECOMPUTE_AUTO &&
                limit_limited(j);
    bool mapped;
    if (job_map_find(j, &mapped, e)) return -1;
    if (mapped) { job_map_cut(j, j->first_group); return 0; }
    if (kind == PLAN_FULL && both && j->mesh.size[AXIS_PP] <= j->n_stages) return recut(j, part, e);
    struct plan_request r = job_request(j, kind);
    struct part_request q = cut_request(j, j->conf, &r);
    q.found = &j->found;
    return part->split(&q, j->first_group, e);
}

/* One stage a rank, unless the schedule needs several. More ranks than stages would be idle, which is an error. Fewer
 * ranks run neighbouring stages as one. */
static int stages_fit(struct job *j, struct err *e)
{
    if (j->mesh.size[AXIS_PP] > j->n_stages) {
        char of[32];
        if (j->conf->run.generate)
            return conf_error(j->conf, "pipeline.stages", e, "%d ranks for %d stage%s: generation takes one replica; "
                              "start at most %d", job_world(j), j->n_stages, j->n_stages == 1 ? "" : "s", j->n_stages);
        return conf_error(j->conf, "pipeline.stages", e, "%d ranks for %s%d stage%s; start at most one rank a stage, "
                          "or use more stages or %ss", job_world(j), mesh_pipelines(&j->mesh, of), j->n_stages,
                          j->n_stages == 1 ? "" : "s", axis_word[AXIS_DP]);
    }
    if (j->mesh.size[AXIS_PP] == j->n_stages || j->rank_of) return 0;
    int *merged = mem_alloc((size_t)(j->mesh.size[AXIS_PP] + 1) * sizeof *merged);
    part_merge(j->first_group, j->n_stages, j->mesh.size[AXIS_PP], merged);
    free(j->first_group);
    j->first_group = merged;
    j->n_merged = j->n_stages;
    j->n_stages = j->mesh.size[AXIS_PP];
    return 0;
}

int partition_stages(struct job *j, struct err *e)
{
    return stages_cut(j, e) || chunks_check(j, e) || stages_fit(j, e) ? -1 : 0;
}

/* ---- the cut of another job ------------------------------------------------------------------ */

/* The stage of the layer in a planned job; -1: it has none of that name. */
static int stage_named(const struct job *j, const char *layer)
{
    const int node = graph_node_find(j->graph, layer), group = node < 0 ? -1 : j->sel->group_of[node];
    return group < 0 ? -1 : j->pl->stage_of_group[group];
}

/* Makes neighbouring stages of one rank one stage. */
static void neighbours_merge(struct job *j)
{
    int n = 0;
    for (int s = 1; j->rank_of && s < j->n_stages; s++) {
        if (j->rank_of[s] == j->rank_of[n]) continue;
        j->rank_of[++n] = j->rank_of[s];
        j->first_group[n] = j->first_group[s];
    }
    if (!j->rank_of) return;
    j->first_group[n + 1] = j->first_group[j->n_stages];
    j->n_stages = n + 1;
}

int partition_as(struct job *j, const struct job *of)
{
    const int n = of->n_stages;
    j->n_stages = n;
    j->first_group = mem_alloc((size_t)(n + 1) * sizeof *j->first_group);
    if (of->rank_of) {
        j->rank_of = mem_alloc((size_t)n * sizeof *j->rank_of);
        memcpy(j->rank_of, of->rank_of, (size_t)n * sizeof *j->rank_of);
    }
    int stage = 0;
    for (int g = 0; g < j->sel->n_groups; g++) {
        const struct group *k = &j->sel->group[g];
        for (int i = 0; i < k->n_nodes; i++)
            for (const int at = stage_named(of, j->graph->node[k->node[i]].name); stage < at;)
                j->first_group[++stage] = g;
    }
    while (stage < n) j->first_group[++stage] = j->sel->n_groups;
    neighbours_merge(j);
    return 0;
}
