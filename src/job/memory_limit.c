/* Limits of memory, of ranks and of hosts: the check after planning, for all policies, and the changes that would
 * fit. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "job/device_map.h"
#include "job/interim.h"
#include "job/memory_limit.h"
#include "job/tiers.h"
#include "plan/part.h"
#include "plan/sched.h"

uint64_t limit_bytes(const struct job *j, int rank)
{
    uint64_t most = 0;
    for (int i = 0; i < j->n_plans; i++) {
        uint64_t bytes = plan_rank_bytes(j->plan[i], rank);
        if (bytes > most) most = bytes;
    }
    most -= device_map_spares(j->map, rank);
    const bool more = j->interim && rank < j->interim->mesh.size[AXIS_PP] && j->interim->n_plans;
    return most + (more ? limit_bytes(j->interim, rank) : 0);
}

int limit_worst_rank(const struct job *j, uint64_t *need, uint64_t *limit, struct err *e)
{
    uint64_t *all = mem_alloc((size_t)j->mesh.size[AXIS_PP] * sizeof *all), most = 0;
    int worst = part_limits(j->conf, NULL, j->mesh.size[AXIS_PP], all, e) ? -2 : -1;
    for (int r = 0; worst > -2 && r < j->mesh.size[AXIS_PP]; r++) {
        uint64_t bytes = limit_bytes(j, r);
        if (bytes <= all[r] || bytes - all[r] <= most) continue;
        most = bytes - all[r];
        worst = r;
        *need = bytes;
        *limit = all[r];
    }
    free(all);
    return worst;
}

/* ---- memory of hosts --------------------------------------------------------------------------------------------- */

bool limit_limited(const struct job *j) { return j->conf->pipeline.max_memory.n || j->free_bytes; }

/* A rank allocates each region once, for the plan of the set that needs most of it. */
static uint64_t regions_bytes(const struct job *j, struct plan *const *plan, int r)
{
    size_t slots = 0, tmp = 0, work = 0, load = 0;
    for (int i = 0; i < j->n_plans; i++) {
        const struct plan *p = plan[i];
        if (p->slot_bytes[r] > slots) slots = p->slot_bytes[r];
        if (p->tmp_bytes[r] > tmp) tmp = p->tmp_bytes[r];
        if (p->work_bytes[r] > work) work = p->work_bytes[r];
        if (p->load_bytes[r] > load) load = p->load_bytes[r];
    }
    return j->pl->param_bytes[r] + j->pl->grad_bytes[r] + j->pl->state_bytes[r] + j->pl->packed_bytes[r] + slots +
           tmp + work + load;
}

/* Bytes on its host of a rank of the mesh. Of a plan that a device holds, what lies outside. */
static uint64_t host_bytes(const struct job *j, int rank)
{
    const struct fit_host *h = j->host;
    struct plan *const *plan = j->more && !j->first_only ? job_plans(j, rank) : j->plan;
    const int r = job_coord(j, rank).at[AXIS_PP];
    uint64_t bytes = j->be->stream ? j->pl->host_bytes[r] : regions_bytes(j, plan, r);
    const struct job *more = j->interim;                  /* on the ranks of the first pipeline */
    if (more && !j->be->stream && more->n_plans && rank < more->mesh.size[AXIS_PP])
        bytes += regions_bytes(more, more->plan, rank);
    return bytes + (h->beside ? h->beside(j, rank) : 0);
}

static bool takes_from(const struct fit_pool *p, int rank) { return !p->of || (rank < p->n_of && p->of[rank]); }

static int pool_ranks(const struct job *j, const struct fit_pool *p)
{
    int n = 0;
    for (int r = 0; r < job_world(j); r++) n += takes_from(p, r);
    return n;
}

static uint64_t pool_need(const struct job *j, const struct fit_pool *p)
{
    uint64_t sum = 0, most = 0;
    for (int r = 0; r < job_world(j); r++) {
        if (!takes_from(p, r)) continue;
        uint64_t bytes = host_bytes(j, r);
        sum += bytes;
        if (bytes > most) most = bytes;
    }
    return p->each ? most : sum;
}

const struct fit_pool *limit_pool_short(const struct job *j, bool soft, uint64_t *need)
{
    const struct fit_pool *worst = NULL;
    for (int i = 0; j->host && j->n_plans && i < j->host->n; i++) {
        const struct fit_pool *p = &j->host->pool[i];
        uint64_t bytes = p->soft == soft ? pool_need(j, p) : 0;
        if (bytes <= p->bytes || (worst && bytes - p->bytes <= *need - worst->bytes)) continue;
        worst = p;
        *need = bytes;
    }
    return worst;
}

static uint64_t pool_share(const struct job *j, const struct fit_pool *p, int rank, bool evenly)
{
    double need = (double)pool_need(j, p), part = (double)host_bytes(j, rank) / (need > 0 ? need : 1);
    if (p->each) return p->bytes;
    return (uint64_t)((double)p->bytes * (evenly ? 1.0 / pool_ranks(j, p) : part));
}

void limit_share(const struct job *j, bool evenly, uint64_t *free_bytes)
{
    for (int r = 0; r < j->mesh.size[AXIS_PP]; r++) free_bytes[r] = PART_NO_LIMIT;
    for (int r = 0; r < job_world(j); r++) {
        uint64_t least = PART_NO_LIMIT, beside = j->host->beside ? j->host->beside(j, r) : 0;
        for (int i = 0; i < j->host->n; i++) {
            const struct fit_pool *p = &j->host->pool[i];
            uint64_t share = p->soft || !takes_from(p, r) ? least : pool_share(j, p, r, evenly);
            if (share < least) least = share;
        }
        least = least > beside ? least - beside : 0;
        if (least < free_bytes[job_coord(j, r).at[AXIS_PP]]) free_bytes[job_coord(j, r).at[AXIS_PP]] = least;
    }
}

/* The pool that the plan exceeds, unless hosts are only advisory. */
static const struct fit_pool *pool_unfit(const struct job *j, uint64_t *need)
{
    return j->host && !j->host->advisory ? limit_pool_short(j, false, need) : NULL;
}

uint64_t limit_missing(const struct job *j)
{
    uint64_t need = 0, limit = 0;
    if (limit_worst_rank(j, &need, &limit, NULL) >= 0) return need - limit;
    const struct fit_pool *p = pool_unfit(j, &need);
    return p ? need - p->bytes : 0;
}

bool limit_all(const struct job *j)
{
    uint64_t need, limit;
    struct err why = {0};
    return limit_worst_rank(j, &need, &limit, NULL) == -1 && !pool_unfit(j, &need) && !tiers_check(j, &why);
}

int limit_variant(const struct job *j, const struct conf *c, int n_ranks, struct job *out, struct err *e)
{
    *out = (struct job){.conf = c, .be = j->be, .dev = j->dev, .graph = j->graph, .count = {j->count[0], j->count[1]}};
    out->dev.threads = (int)c->run.threads;
    out->first_only = true;
    out->rough = j->rough;
    out->host = j->host;
    interim_variant(j, out);
    return job_plan_only(out, n_ranks, e) || job_map_count(out, e) ? -1 : 0;
}

void limit_variant_free(struct job *out)
{
    out->graph = NULL;                                     /* it belongs to another job */
    interim_variant_free(out);
    job_free(out);
}

static bool variant_fits(const struct job *j, struct conf c, int n_ranks)
{
    struct job v;
    struct err why = {0};
    bool fits = !limit_variant(j, &c, n_ranks, &v, &why) && limit_all(&v);
    limit_variant_free(&v);
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
    if (c.pipeline.partition == PART_auto) return;
    c.pipeline.partition = PART_auto;
    c.pipeline.stages = j->n_stages;
    if (variant_fits(j, c, j->mesh.size[AXIS_PP])) found(out, "pipeline.partition = \"auto\"", 0);
}

/* Tries smaller splits that divide the batch, largest first. */
static void try_split(const struct job *j, struct text *out)
{
    struct conf c = *j->conf;
    for (int64_t n = c.train.split_size - 1, tried = 0; n > 0 && tried < 8; n--) {
        if (c.train.batch_size % n) continue;
        c.train.split_size = n;
        tried++;
        if (!variant_fits(j, c, j->mesh.size[AXIS_PP])) continue;
        found(out, "train.split_size = %d", (int)n);
        return;
    }
}

static void try_shard(const struct job *j, struct text *out)
{
    struct conf c = *j->conf;
    struct sharing now = job_sharing(j, &c);
    if (j->mesh.size[AXIS_DP] < 2 || now.weights || now.by_transport) return;
    c.pipeline.shard_optimizer = WHEN_YES;
    if (variant_fits(j, c, j->mesh.size[AXIS_PP])) found(out, "pipeline.shard_optimizer = yes", 0);
}

static void try_in_flight(const struct job *j, struct text *out)
{
    struct conf c = *j->conf;
    while (c.pipeline.in_flight > 1) {
        c.pipeline.in_flight /= 2;
        if (!variant_fits(j, c, j->mesh.size[AXIS_PP])) continue;
        found(out, "pipeline.in_flight = %d", (int)c.pipeline.in_flight);
        return;
    }
}

static void try_recompute(const struct job *j, struct text *out)
{
    struct conf c = *j->conf;
    if (c.pipeline.recompute != RECOMPUTE_NONE) return;
    c.pipeline.recompute = RECOMPUTE_ALL;
    if (variant_fits(j, c, j->mesh.size[AXIS_PP])) found(out, "pipeline.recompute = \"all\"", 0);
}

/* Frozen weights on disk: where no folder for them is given, or a schedule with one stage a rank. */
static void try_disk(const struct job *j, struct text *out)
{
    struct conf c = *j->conf;
    const struct sched_kind *k = sched_find(c.pipeline.schedule);
    if (c.pipeline.host_memory.n || conf_by_rows(&c)) return;
    if (!c.pipeline.disk) c.pipeline.disk = ".";
    else if (k && !k->chunks && conf_given(&c, "pipeline.schedule")) c.pipeline.schedule = "breadth-first";
    else return;
    if (variant_fits(j, c, j->mesh.size[AXIS_PP]))
        found(out, j->conf->pipeline.disk ? "pipeline.schedule = \"breadth-first\"" : "pipeline.disk = \"FOLDER\"", 0);
}

/* The host's memory beside GPUs, if nothing may lie outside yet. */
static void try_host(const struct job *j, struct text *out)
{
    struct conf c = *j->conf;
    struct job v;
    struct err why = {0};
    if (!j->be->stream || c.pipeline.host_memory.n || c.pipeline.disk || conf_by_rows(&c)) return;
    c.pipeline.host_memory = (struct conf_ints){1, {INT64_MAX}};
    if (!limit_variant(j, &c, j->mesh.size[AXIS_PP], &v, &why) && limit_all(&v))
        found(out, "pipeline.host_memory = %dMiB", (int)((tiers_outside(&v) >> 20) + 1));
    limit_variant_free(&v);
}

/* Texts between steps have all weights in memory once more. */
static void try_texts(const struct job *j, struct text *out)
{
    struct job alone = *j;
    alone.interim = NULL;
    if (j->interim && variant_fits(&alone, *j->conf, j->mesh.size[AXIS_PP])) found(out, "generate.every_steps = 0", 0);
}

static void try_ranks(const struct job *j, struct text *out)
{
    int n = j->mesh.size[AXIS_PP], more[] = {n + 1, n + 2, 2 * n, 4 * n}, before = n;
    struct conf c = *j->conf;
    bool fixed = c.pipeline.partition == PART_manual || c.pipeline.partition == PART_uniform;
    if (c.pipeline.max_memory.n > 1 || c.pipeline.speed.n || conf_by_rows(&c)) return;
    if (fixed) c.pipeline.partition = PART_auto;
    for (int i = 0; i < 4; i++) {
        if (more[i] <= before) continue;
        before = more[i];
        c.pipeline.stages = j->rank_of ? more[i] * (j->n_stages / n) : more[i];
        if (!variant_fits(j, c, more[i])) continue;
        found(out, fixed ? "%d ranks with pipeline.partition = \"auto\"" : "%d ranks",
              more[i] * j->mesh.size[AXIS_DP]);
        return;
    }
}

/* Appends the changes that would fit, as the end of a message. */
static void what_fits(const struct job *j, struct text *out)
{
    struct text fits = {0};
    try_auto(j, &fits);
    try_shard(j, &fits);
    try_in_flight(j, &fits);
    try_recompute(j, &fits);
    try_split(j, &fits);
    try_host(j, &fits);
    try_disk(j, &fits);
    try_texts(j, &fits);
    try_ranks(j, &fits);
    text_add(out, "%s%s", fits.n ? "it would fit with " : "nothing that was tried fits", fits.n ? fits.s : "");
    text_free(&fits);
}

int limit_pool_error(const struct job *j, int code, struct err *e)
{
    uint64_t need = 0;
    const struct fit_pool *p = limit_pool_short(j, false, &need);
    int ranks = p->each ? 1 : pool_ranks(j, p);
    struct text way = {0};
    char b[3][32], who[64] = "a rank needs";
    if (ranks > 1) snprintf(who, sizeof who, "%d ranks on one host need", ranks);
    what_fits(j, &way);
    err_set(e, code, "%s %s of memory, which exceeds the %s of %s by %s; %s%s", who, text_bytes(need, b[0]),
            text_bytes(p->bytes, b[2]), p->name, text_bytes(need - p->bytes, b[1]), way.s,
            j->host->elsewhere ? "; for other machines set pipeline.max_memory" : "");
    text_free(&way);
    return -1;
}

int limit_check(const struct job *j, struct err *e)
{
    uint64_t need = 0, limit = 0;
    int rank = limit_worst_rank(j, &need, &limit, e);
    if (rank >= 0 && j->supposes && j->map && j->map->bytes) rank = -1;   /* --plan adds a note */
    if (rank == -1) return pool_unfit(j, &need) ? limit_pool_error(j, E_DEVICE, e) : tiers_check(j, e);
    if (rank < 0) return -1;
    struct text way = {0};
    char b[3][32];
    what_fits(j, &way);
    conf_error(j->conf, "pipeline.max_memory", e, "rank %d%s%s needs %s, %s more than its %s; %s", rank,
               j->mesh.size[AXIS_DP] > 1 ? " of each " : "", j->mesh.size[AXIS_DP] > 1 ? axis_word[AXIS_DP] : "",
               text_bytes(need, b[0]), text_bytes(need - limit, b[1]), text_bytes(limit, b[2]), way.s);
    text_free(&way);
    return -1;
}
