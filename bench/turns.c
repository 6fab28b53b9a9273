/* turns CONF SPLIT TURNS [SCHEDULE...]: what --profile measures and the steps it is to foretell, in one process a rank,
 * taking turns.
 *
 * Under mpirun. A shared machine changes its speed by a fifth within minutes; so a turn is steps as --profile runs them
 * and one of each schedule, and all of them see the same weather. The profiled steps of each turn give costs by the
 * code of --profile, and these a prediction. Rank 0 prints JSON: of each schedule the seconds planned and measured in
 * each turn, the bubbles too, the same as simulated with the costs of that very step ("own"), and how many times as
 * long as in that turn's profiled steps its own kernels took. On CPUs; without recomputation and clipping;
 * inputs are not read ahead. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "base/clock.h"
#include "base/mem.h"
#include "cluster/world.h"
#include "exec/costs.h"
#include "job/job.h"
#include "model/graph.h"
#include "plan/cost.h"
#include "plan/sim.h"

/* micro-batches of a profiled step: as many as --profile takes */
enum { PROFILED = 4, MAX_SCHEDULES = 8, MAX_TURNS = 64 };

struct turns {
    /* plan 0 is profiled, the others are those of the schedules */
    int split, n_turns, n_plans, batch;
    const char *schedule[1 + MAX_SCHEDULES];
    struct world world;
    struct conf *conf;
    struct job job;
    struct tp *tp;
    struct plan *plan[1 + MAX_SCHEDULES];
    struct exec *exec;
    struct cost *cost[1 + MAX_SCHEDULES][MAX_TURNS];       /* as a plan's own steps measured them */
    struct cost *links;                                    /* links alone */
    /* ns; ns of all ranks together; sum of a micro-batch's medians */
    struct turn { double took, waited, kernels; } got[1 + MAX_SCHEDULES][MAX_TURNS];
};

static int configure(struct turns *t, const char *file, struct err *e)
{
    char split[32];
    if (!(t->conf = conf_load(file, e))) return -1;
    snprintf(split, sizeof split, "train.split_size=%d", t->split);
    if (conf_set(t->conf, "turns", split, e) || conf_set(t->conf, "turns", "run.device=\"cpu\"", e) ||
        conf_finish(t->conf, e))
        return -1;
    t->job.conf = t->conf;
    t->batch = (int)t->conf->train.batch_size;
    return job_device(&t->job, e) || job_model(&t->job, e) || job_data(&t->job, e) ||
                   job_plan(&t->job, t->world.size, e)
               ? -1
               : 0;
}

static int plans_make(struct turns *t, struct err *e)
{
    const struct conf *c = t->job.conf;
    for (int i = 0; i < t->n_plans; i++) {
        struct plan_request r = {.mode = PLAN_TRAIN,
                                 .schedule = t->schedule[i],
                                 .batch = i ? t->batch : PROFILED * t->split,
                                 .split = t->split,
                                 .backward = c->pipeline.backward,
                                 .batch_norm = c->train.batch_norm};
        if (!(t->plan[i] = plan_make(t->job.sel, t->job.pl, &r, e))) return -1;
    }
    return 0;
}

static int turns_open(struct turns *t, const char *file, struct err *e)
{
    if (configure(t, file, e) || plans_make(t, e) || t->world.open(&t->world, &t->tp, e)) return -1;
    struct exec_request q = {.conf = t->job.conf,
                              .sel = t->job.sel,
                              .pl = t->job.pl,
                              .plan = t->plan,
                              .n_plans = t->n_plans,
                              .be = t->job.be,
                              .tp = t->tp,
                              .train = t->job.data[DS_TRAIN],
                              .links = true};
    return exec_open(&q, &t->exec, e) || exec_bind(t->exec, e) || exec_connect(t->exec, e) ? -1 : 0;
}

/* ---- steps ----------------------------------------------------------------------------------- */

/* All ranks begin it together, and it ends with the last of them. */
static int step_run(struct turns *t, int plan, uint64_t step, double *took, struct report *r, struct err *e)
{
    struct order o = {.kind = STEP_TRAIN, .plan = (uint32_t)plan, .step = step, .n = t->plan[plan]->req.batch};
    double none = 0;
    int64_t *id = mem_alloc((size_t)o.n * sizeof *id);
    uint64_t count = t->job.count[DS_TRAIN];
    for (int i = 0; i < o.n; i++) id[i] = count ? (int64_t)((uint64_t)i % count) : i;
    o.weight = ds_weight(t->job.data[DS_TRAIN], NULL, 0, id, o.n);
    int bad = t->tp->ops->reduce(t->tp, &none, 1, e);
    uint64_t began = clock_ns();
    bad = bad || exec_step(t->exec, &o, id, r, e) || t->tp->ops->reduce(t->tp, &none, 1, e);
    *took = (double)(clock_ns() - began);
    free(id);
    return bad ? -1 : 0;
}

/* Of a plan's steps that have just run, the last of which said r. */
static struct cost *costs_make(struct turns *t, int plan, const struct report *r, struct err *e)
{
    struct spent m = {0};
    struct cost *k = cost_new("measured", t->job.sel->n_groups, 1);
    k->size[0] = t->split;
    k->latency_ns = t->links->latency_ns;
    k->bytes_per_ns = t->links->bytes_per_ns;
    k->busy_ns_per_byte = t->links->busy_ns_per_byte;
    spent_add(&m, t->exec, plan, r);
    if (costs_gather(t->exec, plan, &m, k, e) == 0) return k;
    cost_free(k);
    return NULL;
}

/* A micro-batch's medians of all kernels on all ranks, added up, ns. */
static int kernels_sum(struct turns *t, int plan, double *sum, struct err *e)
{
    *sum = 0;
    for (int g = 0; g < t->job.sel->n_groups; g++)
        for (int ph = 0; ph < PH_COUNT; ph++) *sum += exec_profile_ns(t->exec, plan, (enum phase)ph, g);
    return t->tp->ops->reduce(t->tp, sum, 1, e);
}

/* ---- turns ----------------------------------------------------------------------------------- */

/* Profiled steps about as long as the others, all together: a long stretch is never as quiet as a short one. */
static int profiled_run(struct turns *t, uint64_t *step, double *took, struct report *r, struct err *e)
{
    int n = t->batch / t->plan[0]->req.batch;
    for (int i = 0; i == 0 || i < n; i++) if (step_run(t, 0, ++*step, took, r, e)) return -1;
    return 0;
}

static int turn_run(struct turns *t, int turn, uint64_t *step, struct err *e)
{
    exec_profile(t->exec, PROFILED + t->batch / t->split);
    for (int i = 0; i < t->n_plans; i++) {
        struct report r;
        struct turn got;
        if (i == 0 ? profiled_run(t, step, &got.took, &r, e) : step_run(t, i, ++*step, &got.took, &r, e)) return -1;
        /* and between its steps */
        got.waited = (double)(r.ns[ACC_WAIT_UP] + r.ns[ACC_WAIT_DOWN]) + got.took - (double)r.total_ns;
        if (t->tp->ops->reduce(t->tp, &got.waited, 1, e) || kernels_sum(t, i, &got.kernels, e)) return -1;
        if (turn < 0) continue;                            /* warms up */
        if (!(t->cost[i][turn] = costs_make(t, i, &r, e))) return -1;
        t->got[i][turn] = got;
    }
    return 0;
}

static int turns_run(struct turns *t, struct err *e)
{
    uint64_t step = 0;
    t->links = cost_new("measured", t->job.sel->n_groups, 1);
    if (costs_links_measure(t->exec, t->links, e)) return -1;
    for (int turn = -1; turn < t->n_turns; turn++) if (turn_run(t, turn, &step, e)) return -1;
    return 0;
}

/* ---- the result ------------------------------------------------------------------------------ */

struct line { const char *name; double x[MAX_TURNS]; };

static void line_print(const struct line *l, int n, const char *end)
{
    printf("  \"%s\": [", l->name);
    for (int k = 0; k < n; k++) printf("%s%.6g", k ? ", " : "", l->x[k]);
    printf("]%s", end);
}

static int plan_report(struct turns *t, int i, struct err *e)
{
    struct line line[] = {{.name = "planned_seconds"}, {.name = "step_seconds"}, {.name = "planned_bubble"},
                          {.name = "bubble"},          {.name = "own_seconds"},  {.name = "own_bubble"},
                          {.name = "kernels"}};
    enum { LINES = sizeof line / sizeof *line };
    for (int k = 0; k < t->n_turns; k++) {
        const struct turn *got = &t->got[i][k];
        struct sim *s = plan_simulate(t->plan[i], t->cost[0][k], e),
                   *own = s ? plan_simulate(t->plan[i], t->cost[i][k], e) : NULL;
        if (own) {
            double x[LINES] = {s->wall_ns * 1e-9,
                               got->took * 1e-9,
                               s->bubble_of_wall,
                               got->waited / got->took / t->world.size,
                               own->wall_ns * 1e-9,
                               own->bubble_of_wall,
                               got->kernels / t->got[0][k].kernels};
            for (int m = 0; m < LINES; m++) line[m].x[k] = x[m];
            sim_free(own);
        }
        if (s) sim_free(s);
        if (!own) return -1;
    }
    if (t->world.rank != 0) return 0;
    printf("%s\"%s\": {\n", i > 1 ? "},\n" : "{", t->schedule[i]);
    for (int m = 0; m < LINES; m++) line_print(&line[m], t->n_turns, m < LINES - 1 ? ",\n" : "\n");
    return 0;
}

static int run(struct turns *t, const char *file, struct err *e)
{
    if (turns_open(t, file, e) || turns_run(t, e)) return -1;
    for (int i = 1; i < t->n_plans; i++) if (plan_report(t, i, e)) return -1;
    if (t->world.rank == 0) printf("}}\n");
    return 0;
}

int main(int argc, char **argv)
{
    struct turns t = {.split = argc > 2 ? atoi(argv[2]) : 0,
                      .n_turns = argc > 3 ? atoi(argv[3]) : 0,
                      .schedule = {"1f1b", "naive", "gpipe", "1f1b"},
                      .n_plans = 4};
    struct err e = {0};
    if (t.split < 1 || t.n_turns < 1 || t.n_turns > MAX_TURNS || argc - 4 > MAX_SCHEDULES) {
        fprintf(stderr, "usage: turns CONF SPLIT TURNS [SCHEDULE...]\n");
        return E_USAGE;
    }
    if (argc > 4) t.n_plans = 1;
    for (int i = 4; i < argc; i++) t.schedule[t.n_plans++] = argv[i];
    world_mpi_begin(&t.world, &argc, &argv);
    if (run(&t, argv[1], &e)) {                            /* other ranks may wait in the middle of a step */
        fprintf(stderr, "turns: rank %d: %s\n", t.world.rank, e.text);
        world_mpi_abort(&t.world, e.code);
    }
    exec_close(t.exec);
    for (int i = 0; i < t.n_plans; i++) plan_free(t.plan[i]);
    for (int i = 0; i < t.n_plans; i++)
        for (int k = 0; k < t.n_turns; k++) cost_free(t.cost[i][k]);
    cost_free(t.links);
    t.tp->ops->close(t.tp);
    job_free(&t.job);
    conf_free(t.conf);
    world_mpi_end();
    return 0;
}
