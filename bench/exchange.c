/* exchange CONF STEPS TURNS: what an exchange of gradients adds to a step, way by way, in one process a rank.
 *
 * Under mpirun, a replica a rank. CONF trains with so many replicas of one stage. In a turn each way runs two steps
 * that do not count and STEPS that do, all of which begin together on all ranks and end with the last one; so all ways
 * see the same weather. "apart" has no exchange: each rank runs a pipeline of its own, on its share of the batch, and
 * meets the others at the borders of steps alone. "left out" are replicas whose gradients neither travel nor are added,
 * as with PyTorch's fake process group: they still agree on each step's norm before they update, so that all of them
 * go through their weights at the same time and share the memory's bandwidth, as all do that exchange. "one bucket" is
 * an exchange as messages behind the backward pass. Rank 0 prints JSON: of each way the median step of each turn, in
 * seconds. */
#include <stdio.h>
#include <stdlib.h>
#include "base/clock.h"
#include "base/mem.h"
#include "cluster/world.h"
#include "exec/exec.h"
#include "job/job.h"

enum { MAX_STEPS = 256, MAX_TURNS = 64, WARM = 2, MAX_SETTINGS = 3 };

static const struct kind {
    const char *name, *setting[MAX_SETTINGS];
    bool apart, left_out;
} kinds[] = {
    {.name = "apart", .apart = true},
    {.name = "left out", .setting = {"pipeline.shard_optimizer=no"}, .left_out = true},
    {.name = "ours"},
    {.name = "not shared out", .setting = {"pipeline.shard_optimizer=no"}},
    {.name = "messages", .setting = {"pipeline.read_in_place=no"}},
    {.name = "one bucket", .setting = {"pipeline.shard_optimizer=no", "pipeline.read_in_place=no",
                                       "pipeline.bucket_kib=0"}},
};
enum { KINDS = sizeof kinds / sizeof *kinds };

struct way {
    struct conf *conf;
    struct job job;
    struct tp *tp;
    struct exec *exec;
    struct plan *const *plan;
    uint64_t step;
    double median[MAX_TURNS];
};
struct exchange {
    struct world world;
    struct tp *tp;                                       /* on which ranks meet */
    int steps, turns;
    struct way way[KINDS];
};

/* A pipeline of its own: the share of the batch that a replica has. */
static int alone(struct conf *c, int ranks, struct err *e)
{
    char batch[48];
    snprintf(batch, sizeof batch, "train.batch_size=%d", (int)(c->train.batch_size / ranks));
    return conf_set(c, "exchange", batch, e) || conf_set(c, "exchange", "pipeline.replicas=1", e) ||
                   conf_set(c, "exchange", "train.gradient_groups=1", e)
               ? -1
               : 0;
}

static int configure(struct exchange *x, int i, const char *file, struct err *e)
{
    struct way *w = &x->way[i];
    if (!(w->conf = conf_load(file, e))) return -1;
    for (int k = 0; k < MAX_SETTINGS && kinds[i].setting[k]; k++)
        if (conf_set(w->conf, "exchange", kinds[i].setting[k], e)) return -1;
    if ((kinds[i].apart && alone(w->conf, x->world.size, e)) ||
        conf_set(w->conf, "exchange", "run.device=\"cpu\"", e) || conf_finish(w->conf, e))
        return -1;
    w->job.conf = w->conf;
    return 0;
}

/* A row without what gradients, or weights, go from replica to replica by. */
static void leave_out(struct plan *p, int rank)
{
    static const unsigned kinds_out = 1 << CHAN_SUM | 1 << CHAN_SUMMED | 1 << CHAN_WEIGHT | 1 << CHAN_ALL;
    struct act *row = p->row[rank];
    int n = 0;
    for (int i = 0; i < p->row_n[rank]; i++)
        if (row[i].chan < 0 || !(kinds_out >> p->chan[row[i].chan].kind & 1)) row[n++] = row[i];
    p->row_n[rank] = n;
}

static int way_open(struct exchange *x, int i, const char *file, struct err *e)
{
    struct way *w = &x->way[i];
    struct job *j = &w->job;
    int ranks = kinds[i].apart ? 1 : x->world.size;
    if (configure(x, i, file, e) || job_device(j, e) || job_model(j, e) || job_data(j, e) || job_plan(j, ranks, e))
        return -1;
    if (kinds[i].apart ? tp_local_open(1, &w->tp, e) : x->world.open(&x->world, &w->tp, e)) return -1;
    w->plan = job_plans(j, kinds[i].apart ? 0 : x->world.rank);
    for (int k = 0; k < j->n_plans && kinds[i].left_out; k++) leave_out(w->plan[k], 0);
    struct exec_request q = {.conf = j->conf, .sel = j->sel, .pl = j->pl, .plan = w->plan, .n_plans = j->n_plans,
                              .be = j->be, .tp = w->tp, .train = j->data[DS_TRAIN], .test = j->data[DS_TEST]};
    return exec_open(&q, &w->exec, e) || exec_bind(w->exec, e) || exec_connect(w->exec, e) ? -1 : 0;
}

/* *ns: until all ranks have ended it. */
static int step_run(struct exchange *x, struct way *w, double *ns, struct err *e)
{
    int plan = w->job.plan_of[PLAN_FULL];
    struct order o = {.kind = STEP_TRAIN, .plan = (uint32_t)plan, .step = ++w->step,
                      .learning_rate = w->conf->train.learning_rate, .n = w->plan[plan]->req.batch};
    struct report r;
    double none = 0;
    uint64_t count = w->job.count[DS_TRAIN];
    int64_t *id = mem_alloc((size_t)o.n * sizeof *id);
    for (int i = 0; i < o.n; i++) id[i] = count ? (int64_t)((uint64_t)i % count) : i;
    o.weight = ds_weight(w->job.data[DS_TRAIN], NULL, 0, id, o.n);
    int bad = x->tp->ops->reduce(x->tp, &none, 1, e);
    uint64_t began = clock_ns();
    bad = bad || exec_step(w->exec, &o, id, &r, e) || x->tp->ops->reduce(x->tp, &none, 1, e);
    *ns = (double)(clock_ns() - began);
    free(id);
    return bad ? -1 : 0;
}

static int ascending(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

static int turn_run(struct exchange *x, struct way *w, double *median, struct err *e)
{
    double ns[MAX_STEPS], warm;
    for (int i = 0; i < WARM; i++) if (step_run(x, w, &warm, e)) return -1;
    for (int i = 0; i < x->steps; i++) if (step_run(x, w, &ns[i], e)) return -1;
    qsort(ns, (size_t)x->steps, sizeof *ns, ascending);
    *median = (ns[(x->steps - 1) / 2] + ns[x->steps / 2]) / 2;
    return 0;
}

static int run(struct exchange *x, const char *file, struct err *e)
{
    if (x->world.open(&x->world, &x->tp, e)) return -1;
    for (int i = 0; i < KINDS; i++) if (way_open(x, i, file, e)) return -1;
    for (int t = 0; t < x->turns; t++)                    /* every other one the other way round */
        for (int i = 0; i < KINDS; i++) {
            struct way *w = &x->way[t % 2 ? KINDS - 1 - i : i];
            if (turn_run(x, w, &w->median[t], e)) return -1;
        }
    for (int i = 0; i < KINDS && x->world.rank == 0; i++) {
        printf("%s\"%s\": [", i ? "," : "{", kinds[i].name);
        for (int t = 0; t < x->turns; t++) printf("%s%.6g", t ? ", " : "", x->way[i].median[t] * 1e-9);
        printf("]%s\n", i < KINDS - 1 ? "" : "}");
    }
    return 0;
}

static int number(int argc, char **argv, int i, int most)
{
    int n = i < argc ? atoi(argv[i]) : 0;
    return n > most ? 0 : n;
}

int main(int argc, char **argv)
{
    static struct exchange x;
    struct err e = {0};
    x.steps = number(argc, argv, 2, MAX_STEPS);
    x.turns = number(argc, argv, 3, MAX_TURNS);
    if (argc != 4 || x.steps < 1 || x.turns < 1) {
        fprintf(stderr, "usage: exchange CONF STEPS TURNS, of at most %d and %d\n", MAX_STEPS, MAX_TURNS);
        return E_USAGE;
    }
    world_mpi_begin(&x.world, &argc, &argv);
    if (run(&x, argv[1], &e)) {                          /* other ranks may wait in the middle of a step */
        fprintf(stderr, "exchange: rank %d: %s\n", x.world.rank, e.text);
        world_mpi_abort(&x.world, e.code);
    }
    for (int i = 0; i < KINDS; i++) {
        struct way *w = &x.way[i];
        exec_close(w->exec);
        w->tp->ops->close(w->tp);
        job_free(&w->job);
        conf_free(w->conf);
    }
    x.tp->ops->close(x.tp);
    world_mpi_end();
    return 0;
}
