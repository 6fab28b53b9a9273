/* Limits of memory: the check after planning, whatever the policy, and what to change where it fails. */
#include <stdlib.h>
#include <string.h>
#include "job/fit.h"
#include "plan/part.h"

uint64_t fit_bytes(const struct job *j, int rank)
{
    uint64_t most = 0;
    for (int i = 0; i < j->n_plans; i++) {
        uint64_t bytes = plan_rank_bytes(j->plan[i], rank);
        if (bytes > most) most = bytes;
    }
    return most;
}

/* The rank that misses most; -1: all have room; -2: error. */
static int worst_rank(const struct job *j, uint64_t *need, uint64_t *limit, struct err *e)
{
    uint64_t *all = mem_alloc((size_t)j->n_ranks * sizeof *all), most = 0;
    int worst = part_limits(j->conf, j->n_ranks, all, e) ? -2 : -1;
    for (int r = 0; worst > -2 && r < j->n_ranks; r++) {
        uint64_t bytes = fit_bytes(j, r);
        if (bytes <= all[r] || bytes - all[r] <= most) continue;
        most = bytes - all[r];
        worst = r;
        *need = bytes;
        *limit = all[r];
    }
    free(all);
    return worst;
}

uint64_t fit_missing(const struct job *j)
{
    uint64_t need = 0, limit = 0;
    return worst_rank(j, &need, &limit, NULL) < 0 ? 0 : need - limit;
}

bool fit_all(const struct job *j)
{
    uint64_t need, limit;
    return worst_rank(j, &need, &limit, NULL) == -1;
}

int fit_variant(const struct job *j, const struct conf *c, int n_ranks, struct job *out, struct err *e)
{
    *out = (struct job){.conf = c, .be = j->be, .dev = j->dev, .graph = j->graph, .count = {j->count[0], j->count[1]}};
    out->dev.threads = (int)c->run.threads;
    out->first_only = true;
    out->rough = j->rough;
    return job_plan_only(out, n_ranks, e);
}

void fit_variant_free(struct job *out)
{
    out->graph = NULL;                                     /* it is another job's */
    job_free(out);
}

static bool variant_fits(const struct job *j, struct conf c, int n_ranks)
{
    struct job v;
    struct err why = {0};
    bool fits = !fit_variant(j, &c, n_ranks, &v, &why) && fit_all(&v);
    fit_variant_free(&v);
    return fits;
}

/* ---- what would fit ---------------------------------------------------------------------------------------------- */

static void found(struct text *out, const char *fmt, int n)
{
    text_add(out, "%s", out->n ? ", or " : "");
    text_add(out, fmt, n);
}

static void try_auto(const struct job *j, struct text *out)
{
    struct conf c = *j->conf;
    if (strcmp(c.pipeline.partition, "auto") == 0) return;
    c.pipeline.partition = "auto";
    c.pipeline.stages = j->n_stages;
    if (variant_fits(j, c, j->n_ranks)) found(out, "pipeline.partition = \"auto\"", 0);
}

/* The largest split that divides the batch and fits. */
static void try_split(const struct job *j, struct text *out)
{
    struct conf c = *j->conf;
    for (int64_t n = c.train.split_size - 1, tried = 0; n > 0 && tried < 8; n--) {
        if (c.train.batch_size % n) continue;
        c.train.split_size = n;
        tried++;
        if (!variant_fits(j, c, j->n_ranks)) continue;
        found(out, "train.split_size = %d", (int)n);
        return;
    }
}

static void try_shard(const struct job *j, struct text *out)
{
    struct conf c = *j->conf;
    struct sharing now = job_sharing(j, &c);
    if (now.replicas < 2 || now.weights || now.by_transport) return;
    c.pipeline.shard_optimizer = "yes";
    if (variant_fits(j, c, j->n_ranks)) found(out, "pipeline.shard_optimizer = yes", 0);
}

static void try_bundle(const struct job *j, struct text *out)
{
    struct conf c = *j->conf;
    while (c.pipeline.bundle > 1) {
        c.pipeline.bundle /= 2;
        if (!variant_fits(j, c, j->n_ranks)) continue;
        found(out, "pipeline.bundle = %d", (int)c.pipeline.bundle);
        return;
    }
}

static void try_in_flight(const struct job *j, struct text *out)
{
    struct conf c = *j->conf;
    while (c.pipeline.in_flight > 1) {
        c.pipeline.in_flight /= 2;
        if (!variant_fits(j, c, j->n_ranks)) continue;
        found(out, "pipeline.in_flight = %d", (int)c.pipeline.in_flight);
        return;
    }
}

static void try_recompute(const struct job *j, struct text *out)
{
    struct conf c = *j->conf;
    if (strcmp(c.pipeline.recompute, "none") != 0) return;
    c.pipeline.recompute = "all";
    if (variant_fits(j, c, j->n_ranks)) found(out, "pipeline.recompute = \"all\"", 0);
}

static void try_ranks(const struct job *j, struct text *out)
{
    int more[] = {j->n_ranks + 1, j->n_ranks + 2, 2 * j->n_ranks, 4 * j->n_ranks}, before = j->n_ranks;
    struct conf c = *j->conf;
    bool fixed = strcmp(c.pipeline.partition, "manual") == 0 || strcmp(c.pipeline.partition, "uniform") == 0;
    if (c.pipeline.max_memory.n > 1 || c.pipeline.speed.n || strcmp(c.pipeline.schedule, "rows") == 0) return;
    if (fixed) c.pipeline.partition = "auto";
    for (int i = 0; i < 4; i++) {
        if (more[i] <= before) continue;
        before = more[i];
        c.pipeline.stages = j->rank_of ? more[i] * (j->n_stages / j->n_ranks) : more[i];
        if (!variant_fits(j, c, more[i])) continue;
        found(out, fixed ? "%d ranks with pipeline.partition = \"auto\"" : "%d ranks",
              more[i] * (int)c.pipeline.replicas);
        return;
    }
}

int fit_check(const struct job *j, struct err *e)
{
    uint64_t need = 0, limit = 0;
    int rank = worst_rank(j, &need, &limit, e);
    if (rank < 0) return rank == -1 ? 0 : -1;
    struct text fits = {0};
    char b[3][32];
    try_auto(j, &fits);
    try_shard(j, &fits);
    try_bundle(j, &fits);
    try_in_flight(j, &fits);
    try_recompute(j, &fits);
    try_split(j, &fits);
    try_ranks(j, &fits);
    conf_error(j->conf, "pipeline.max_memory", e, "rank %d%s needs %s, %s more than its %s; %s%s", rank,
               j->conf->pipeline.replicas > 1 ? " of each replica" : "",
               text_bytes(need, b[0]), text_bytes(need - limit, b[1]), text_bytes(limit, b[2]),
               fits.n ? "it would fit with " : "nothing that was tried fits", fits.n ? fits.s : "");
    text_free(&fits);
    return -1;
}
