/* --profile: real training steps of the configured cut at learning rate 0. Micro-batch sizes take turns, so that a
 * temporary disturbance of the machine affects all of them alike. */
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include "cluster/log.h"
#include "train/profile.h"
#include "exec/costs.h"
#include "plan/cost.h"

enum { MICRO_BATCHES = 4, ROUNDS = 4 };

/* ---- sizes ------------------------------------------------------------------------------------------------------- */

static void sizes_append(struct conf_ints *to, int64_t n)
{
    if (n >= 1 && (!to->n || to->v[to->n - 1] < n)) to->v[to->n++] = n;
}

/* Leaves out sizes that cannot be trained, if others are left. */
static void sizes_default(struct conf_ints *to, int64_t split, int64_t batch, int64_t least)
{
    if (split > batch) split = batch;
    if (split / 4 >= least) sizes_append(to, split / 4);
    if (split / 2 >= least) sizes_append(to, split / 2);
    if (split >= least || batch < least) sizes_append(to, split);
    sizes_append(to, split * 2 < batch ? split * 2 : batch);
}

static int profile_sizes(const struct setup *b, struct conf_ints *sizes, struct err *e)
{
    const struct conf *c = b->conf;
    *sizes = c->pipeline.profile_sizes;
    if (b->opts->mode == MODE_CHECK_HOSTS) *sizes = (struct conf_ints){.v = {c->train.split_size}, .n = 1};
    if (!sizes->n)
        sizes_default(sizes, c->train.split_size, c->train.batch_size,
                      plan_norm_of_one(b->job.graph) ? 2 : 1);
    for (int i = 1; i < sizes->n; i++)
        if (sizes->v[i] <= sizes->v[i - 1]) return conf_error(c, "pipeline.profile_sizes", e, "sizes must ascend");
    return 0;
}

/* ---- plans: one for each size, all bound at once, so that their steps can take turns --------- */

/* Changes the configuration to the one that is measured: steps of the largest size, in which the others fit. */
static void conf_widest(struct conf *c, const struct conf_ints *sizes)
{
    int64_t n = sizes->v[sizes->n - 1];
    c->pipeline.profile = NULL;                           /* nothing measured earlier may shape the run */
    /* any schedule would do; this one needs least memory, or least from disk */
    c->pipeline.schedule = c->pipeline.disk || c->pipeline.host_memory.n ? "breadth-first" : "1f1b";
    c->train.learning_rate = 0;
    c->train.split_size = n;
    c->train.batch_size = n * MICRO_BATCHES;
    c->train.steps = (ROUNDS + 1) * sizes->n;
    c->train.last_batch = LAST_BATCH_FILL;
    c->data.shuffle = false;                              /* a few samples are used again and again */
}

static int plan_size(const struct setup *b, int n, struct plan **out, struct err *e)
{
    const struct conf *c = b->conf;
    struct plan_request r = {
        .mode = PLAN_TRAIN, .schedule = c->pipeline.schedule, .in_flight = job_request(&b->job, PLAN_FULL).in_flight,
        .batch = n * MICRO_BATCHES, .split = n,
        .backward = c->pipeline.backward, .batch_norm = c->train.batch_norm,
    };
    *out = plan_make(b->job.sel, b->job.pl, &r, e);
    return *out ? 0 : err_where(e, "micro-batches of %d", n);
}

static int place_of(struct setup *b, struct out_place *at, struct err *e)
{
    return rundir_enter(&b->dir, e) || out_place_in(b->dir.fd, b->dir.path, "profile.json", at, e) ? -1 : 0;
}

/* Checks that the file can be made, before minutes of measuring. Removes a run directory that it had to make. */
static int write_try(struct setup *b, struct err *e)
{
    struct out_place at = OUT_NOWHERE;
    bool there = b->dir.fd >= 0;
    int bad = place_of(b, &at, e) || out_sync_try(&at, e) ? -1 : 0;
    out_place_free(&at);
    if (there) return bad;
    rundir_undo(&b->dir);
    rundir_close(&b->dir);
    b->dir.made = 0;
    return bad;
}

int profile_check(struct setup *b, struct err *e)
{
    struct conf_ints sizes;
    struct conf trial = *b->conf;
    const bool profiles = b->opts->mode == MODE_PROFILE;
    if (profile_sizes(b, &sizes, e)) return -1;
    conf_widest(&trial, &sizes);
    if (b->world->rank != 0) return 0;
    return job_trial(&b->job, &trial, b->world->size, e) || (profiles && write_try(b, e)) ? -1 : 0;
}

int profile_plan(struct setup *b, struct err *e)
{
    struct conf_ints sizes;
    if (b->conf->pipeline.replicas > 1)
        return conf_error(b->conf, "pipeline.replicas", e, "--profile and --check-hosts measure one pipeline, "
                          "without replicas");
    if (profile_sizes(b, &sizes, e)) return -1;
    if (b->world->rank == 0) b->earlier = b->conf->pipeline.profile;
    struct conf *c = conf_copy(b->conf);
    conf_widest(c, &sizes);
    b->conf = b->job.conf = c;
    if (job_plan(&b->job, b->world->size, e)) return -1;
    b->sized = mem_alloc((size_t)sizes.n * sizeof *b->sized);
    for (; b->n_sized < sizes.n; b->n_sized++)
        if (plan_size(b, (int)sizes.v[b->n_sized], &b->sized[b->n_sized], e)) return -1;
    setup_name(b, b->sized, sizes.n);
    return 0;
}

/* Adds costs from an earlier profile for other numbers of threads. Each number of threads is measured with as many
 * ranks as there are cores for, so by its own run. An unusable earlier profile does not stop the new one. */
static void earlier_take(struct setup *b)
{
    enum { MAX_PROFILE = 1 << 26 };
    struct text t = {0};
    struct err why = {0};
    if (!b->earlier) return;
    if (text_read_file(&t, b->earlier, MAX_PROFILE, &why) == 0)
        b->costs->other = cost_parse_all(b->earlier, t.n ? t.s : "", t.n, b->job.sel, &why);
    text_free(&t);
    if (b->costs->other) cost_free(cost_take(&b->costs->other, b->job.sel->dev.threads));
    else log_line("note: ignoring the earlier profile: %s", why.text);
}

int profile_open(struct setup *b, struct err *e)
{
    b->costs = cost_new("measured", b->job.sel->n_groups, b->n_sized);
    earlier_take(b);
    for (int i = 0; i < b->n_sized; i++) b->costs->size[i] = b->sized[i]->req.split;
    struct exec_request q = {.plan = b->sized, .n_plans = b->n_sized, .links = true,
                              .train = b->job.data[DS_TRAIN]};
    return setup_exec(b, q, e);
}

/* ---- steps ------------------------------------------------------------------------------------------------------- */

static int step_run(struct setup *b, int size, uint64_t step, struct report *r, struct err *e)
{
    struct order o = {.kind = ORDER_TRAIN, .plan = (uint32_t)size, .n = b->sized[size]->req.batch, .step = step,
                      .position = step * (uint64_t)b->sized[size]->req.batch};
    int64_t *id = mem_alloc((size_t)o.n * sizeof *id);
    struct feed_order order = job_order(&b->job);
    uint64_t epoch;
    order.shuffle = false;
    order.end = FEED_FILL;
    if (!feed_batch(&order, o.position, o.n, id, &epoch))     /* without samples there are only numbers */
        for (int i = 0; i < o.n; i++) id[i] = (int64_t)o.position + i;
    o.weight = ds_weight(b->job.data[DS_TRAIN], &order, o.position, id, o.n);
    int bad = exec_step(b->exec, &o, id, r, e);
    free(id);
    return bad;
}

static int steps_run(struct setup *b, struct spent *m, struct err *e)
{
    uint64_t step = 0;
    for (int round = 0; round <= ROUNDS; round++) {
        if (round <= 1) exec_profile(b->exec, ROUNDS * MICRO_BATCHES);   /* round 0 only warms up */
        for (int i = 0; i < b->costs->n_sizes; i++) {
            struct report r;
            if (step_run(b, i, ++step, &r, e)) return -1;
            if (round) spent_add(m, b->exec, i, &r);
        }
        if (b->world->rank == 0) log_line("profile: round %d of %d", round + 1, ROUNDS + 1);
    }
    return 0;
}

/* ---- the measurement --------------------------------------------------------------------------------------------- */

static int measure(struct setup *b, struct err *e)
{
    struct spent m = {0};
    if (steps_run(b, &m, e) || costs_links_measure(b->exec, b->costs, e) ||
        costs_gather(b->exec, 0, &m, b->costs, e))
        return -1;
    if (b->world->rank == 0)
        log_line("profile: all kernels together took %.2f times their shortest times", b->costs->spread);
    return 0;
}

int profile_measure(struct setup *b, struct err *e)
{
    if (measure(b, e) == 0) return 0;
    control_fail(b->control, e);
    return -1;
}

void profile_plans_free(struct setup *b)
{
    for (int i = 0; i < b->n_sized; i++) plan_free(b->sized[i]);
    free(b->sized);
}

int profile_write(struct setup *b, struct err *e)
{
    struct out_place at = OUT_NOWHERE;
    struct text t = {0};
    if (b->world->rank != 0) return 0;
    if (cost_spread_check(b->costs, "--profile", b->conf->pipeline.profile_spread, E_STOPPED, e)) return -1;
    cost_doubt(b->costs->spread, "--profile", &t);
    if (t.n) log_lines(t.s);
    t.n = 0;
    char *json = cost_json(b->costs, b->job.sel);
    text_add(&t, "%s\n", json);
    free(json);
    int bad = place_of(b, &at, e) || out_file(&at, &t, false, e) ? -1 : 0;
    if (bad) rundir_undo(&b->dir);
    else {
        log_line("profile: %s; use it by pipeline.profile", at.path);
        for (const struct cost *k = b->costs->other; k; k = k->other)
            log_line("profile: it also has the costs of %d thread%s a rank", k->threads,
                     k->threads == 1 ? "" : "s");
    }
    out_place_free(&at);
    text_free(&t);
    return bad;
}
