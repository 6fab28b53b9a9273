/* From a configuration to a plan set: the chain of pure functions, in order. */
#include <stdlib.h>
#include <string.h>
#include "base/suggest.h"
#include "base/out.h"
#include "job/generation_sizes.h"
#include "job/interim.h"
#include "job/partition.h"
#include "job/device_map.h"
#include "job/memory_limit.h"
#include "job/tiers.h"
#include "optim/optim.h"
#include "plan/cost.h"
#include "plan/part.h"
#include "plan/recompute.h"

/* Codes come from model.load_in_8bit, or from the folder itself. */
static int codes_check(const struct job *j, struct err *e)
{
    bool any = false;
    for (int i = 0; i < j->graph->n_params; i++) any |= j->graph->param[i].coded;
    if (!any || j->dev.rules->frozen >> I8 & 1) return 0;
    return conf_error(j->conf, j->conf->model.load_in_8bit == WHEN_YES ? "model.load_in_8bit" : "model.folder", e,
                      "the %s backend stores no weights in 8 bits; run.device = \"cpu\" does", j->dev.backend);
}

int job_model(struct job *j, struct err *e)
{
    if (j->conf->run.generate && generation_find(j, e)) return -1;
    j->graph = model_build(j->conf, e);
    if (!j->graph || codes_check(j, e) || (j->prompts && prompts_check(j->prompts, j->conf, j->graph, e))) return -1;
    j->conf = job_conf(j, j->conf);
    return interim_model(j, e);
}

const struct conf *job_conf(const struct job *j, const struct conf *c)
{
    if (c->train.loss || !model_loss(j->graph)) return c;
    struct conf *copy = conf_copy(c);
    conf_derive(copy, "train.loss", model_loss(j->graph));
    return copy;
}

/* A short batch may have all samples. */
static int batch_check(const struct job *j, struct err *e)
{
    const struct conf *c = j->conf;
    unsigned long long n = j->count[DS_TRAIN];
    if (!n) return conf_error(c, "data.source", e, "there are no training samples");
    if (n >= (unsigned long long)c->train.batch_size || job_order(j).end == FEED_SHORT || job_order(j).of) return 0;
    return conf_error(c, "train.batch_size", e, "%lld is larger than the number of training samples, %llu, so no "
                      "epoch fills a batch; use a smaller one, or train.last_batch = \"short\"",
                      (long long)c->train.batch_size, n);
}

int job_data(struct job *j, struct err *e)
{
    for (int part = DS_TRAIN; part <= DS_TEST; part++) {
        if (j->prompts || (part == DS_TRAIN && j->conf->run.evaluate)) continue;
        if (part == DS_TEST && !j->conf->run.evaluate && !j->conf->train.evaluate) continue;
        if (ds_open(j->conf, (enum ds_part)part, j->graph, &j->data[part], e)) return -1;
        if (!j->data[part]) continue;
        j->count[part] = j->data[part]->kind->count(j->data[part]);
        if (j->be->stream && j->data[part]->kind->keep) j->data[part]->kind->keep(j->data[part]);
    }
    if (j->prompts) return prompts_open(j->graph, &j->data[DS_TEST], e);
    if (j->conf->run.evaluate && !j->data[DS_TEST])
        return conf_error(j->conf, "data.test", e, "there are no test samples");
    if (!j->conf->run.evaluate && !j->data[DS_TRAIN])
        return conf_error(j->conf, "data.train", e, "training needs samples");
    return j->conf->run.evaluate ? 0 : batch_check(j, e);
}

/* ---- numbers of samples in the orders of this run ---------------------------------------------------------------- */

/* Steps may reach the end of an epoch earlier than their number suggests. Roll-backs skip batches, and a run that is
 * forced to resume may have had larger batches before. */
static bool jumps(const struct conf *c)
{
    return c->train.nonfinite == NONFINITE_ROLLBACK || c->run.resume == RESUME_FORCE;
}

static void batches_train(struct job *j)
{
    const struct feed_order o = job_order(j);
    uint64_t n = o.count, batch = (uint64_t)j->conf->train.batch_size;
    if (n && n < batch && o.end == FEED_SHORT) batch = n;
    j->batch[PLAN_FULL] = (int)batch;
    if (!n || o.end != FEED_SHORT || !(n % batch)) return;
    if (job_steps(j) > n / batch || jumps(j->conf)) j->batch[PLAN_SHORT] = (int)(n % batch);
}

static void batches_test(struct job *j)
{
    uint64_t n = j->count[DS_TEST];
    uint64_t batch = (uint64_t)j->conf->train.evaluate_batch_size;
    if (j->prompts) {
        const struct generation_sizes s = generation_sizes(j);
        j->batch[PLAN_EVAL_FULL] = s.prefill_rows;
        j->batch[PLAN_EVAL_SHORT] = s.rows;
        return;
    }
    if (n >= batch) j->batch[PLAN_EVAL_FULL] = (int)batch;
    if (n % batch) j->batch[PLAN_EVAL_SHORT] = (int)(n % batch);
}

static void batches_find(struct job *j)
{
    for (int k = 0; k < PLAN_KINDS; k++) j->batch[k] = j->plan_of[k] = -1;
    if (!j->conf->run.evaluate) batches_train(j);
    batches_test(j);
    j->max_batch = 1;
    for (int k = 0; k < PLAN_KINDS; k++) if (j->batch[k] > j->max_batch) j->max_batch = j->batch[k];
}

/* ---- plans ------------------------------------------------------------------------------------------------------- */

/* A short batch may be smaller than a micro-batch. */
static int split_of(const struct job *j, int batch)
{
    int64_t split = j->prompts ? batch : j->conf->train.split_size;
    return split < batch ? (int)split : batch;
}

static int rows_read(struct job *j, struct err *e)
{
    enum { MAX_ROWS = 1 << 26 };
    const char *file = j->conf->pipeline.rows;
    if (!conf_by_rows(j->conf)) return 0;
    if (!file) return conf_error(j->conf, "pipeline.schedule", e, "schedule \"rows\" needs pipeline.rows");
    if (text_read_file(&j->rows, file, MAX_ROWS, e)) return -1;
    text_add(&j->rows, "%s", "");
    int line = 1;                                          /* the planner takes a string; a NUL would end it early */
    for (size_t i = 0; i < j->rows.n; i++) {
        if (!j->rows.s[i]) return err_set(e, E_DATA, "%s:%d: this is not text: it has a NUL byte", file, line);
        line += j->rows.s[i] == '\n';
    }
    return 0;
}

/* The planner calls the text "rows"; the user needs the file's name. False: the error is about something else. */
static bool rows_blamed(const struct job *j, const struct err *why, struct err *e)
{
    if (why->code != E_DATA || strncmp(why->text, "rows:", 5)) return false;
    err_set(e, why->code, "%s%s", j->conf->pipeline.rows, why->text + 4);
    return true;
}

/* The message explains where a short batch comes from. */
static int plan_failed(const struct job *j, int kind, const struct err *why, struct err *e)
{
    int n = j->batch[kind];
    if (rows_blamed(j, why, e)) return -1;
    if (kind != PLAN_SHORT) return err_set(e, why->code, "%s", why->text);
    err_set(e, why->code, "%s; train.last_batch = \"drop\" leaves that batch out", why->text);
    return err_where(e, "the last batch of an epoch has %d sample%s", n, n == 1 ? "" : "s");
}

bool job_wants(const struct job *j) { return conf_predicts(j->conf) || j->conf->train.confusion; }

const char *job_schedule(const struct job *j)
{
    const bool own = !j->n_tiers || conf_given(j->conf, "pipeline.schedule");
    return own ? j->conf->pipeline.schedule : "breadth-first";
}

struct plan_request job_request(const struct job *j, int kind)
{
    const struct conf *c = j->conf;
    bool train = kind == PLAN_FULL || kind == PLAN_SHORT;
    int full = j->batch[PLAN_FULL] > 0 ? j->batch[PLAN_FULL] : (int)c->train.batch_size;
    return (struct plan_request){
        .mode = train ? PLAN_TRAIN : PLAN_EVAL, .schedule = train ? job_schedule(j) : "forward",
        .rows = train ? j->rows.s : NULL,
        .rows_micro = (full - 1) / split_of(j, full) + 1,
        .batch = j->batch[kind], .split = split_of(j, j->batch[kind]),
        .in_flight = !train ? 0 : c->pipeline.in_flight ? (int)c->pipeline.in_flight : j->tier_flight,
        .groups = (int)c->train.gradient_groups,
        .backward = c->pipeline.backward,
        .cost = j->cost, .limit = j->limit, .batch_norm = c->train.batch_norm, .recompute = j->recompute,
        .output = &j->output, .n_outputs = job_wants(j) && !train ? 1 : 0,
    };
}

/* Makes the last plan for all other pipelines. */
static int plan_others(struct job *j, struct plan_request *r, struct err *e)
{
    struct plan *all[MAX_DP] = {j->plan[j->n_plans - 1]};
    if (!j->more) j->more = mem_alloc((size_t)(j->mesh.size[AXIS_DP] - 1) * sizeof *j->more);
    for (r->dp = 1; r->dp < j->mesh.size[AXIS_DP]; r->dp++) {
        struct plan *p = plan_make(j->sel, j->pl, r, e);
        if (!p) return -1;
        all[r->dp] = j->more[r->dp - 1][j->n_plans - 1] = p;
    }
    return plan_check_dp(all, e);
}

static int plan_one(struct job *j, int kind, struct err *e)
{
    if (j->batch[kind] < 0) return 0;
    struct plan_request r = job_request(j, kind);
    struct err why = {0};
    struct plan *p = plan_make(j->sel, j->pl, &r, &why);
    if (!p) return plan_failed(j, kind, &why, e);
    j->plan_of[kind] = j->n_plans;
    j->plan[j->n_plans++] = p;
    return j->mesh.size[AXIS_DP] > 1 && !j->first_only ? plan_others(j, &r, e) : 0;
}

/* On CPUs each pipeline's shorter optimizer pass saves more than it costs to send weights without overlap. A weight's
 * owner takes all of its gradients. If one weight is more than half of all, pipelines wait for its owner, and sharing
 * does not pay. */
static bool shares_pay(const struct job *j)
{
    int64_t all = 0, largest = 0;
    for (int i = 0; i < j->graph->n_params; i++) {
        const struct param *p = &j->graph->param[i];
        int64_t n = p->frozen ? 0 : shape_count(&p->shape);
        all += n;
        if (n > largest) largest = n;
    }
    return !j->be->stream && 2 * largest <= all;
}

struct sharing job_sharing(const struct job *j, const struct conf *c)
{
    bool by_transport = c->pipeline.reduce == REDUCE_NCCL, yes = c->pipeline.shard_optimizer == WHEN_YES;
    bool pays = c->pipeline.shard_optimizer == WHEN_AUTO && c->pipeline.replicas > 1 && !by_transport &&
                shares_pay(j);
    return (struct sharing){(size_t)c->pipeline.bucket_kib * 1024, yes || pays, by_transport};
}

struct state_buffers job_buffers(const struct job *j)
{
    struct state_buffers b = optim_buffers(j->conf);
    b.in_file = j->offloads >= OFFLOADS_STATE;
    return b;
}

struct placement *job_place(const struct job *j, const int *first_group, struct err *e)
{
    struct placement_request r = {.sel = j->sel, .n_stages = j->n_stages, .mesh = j->mesh,
                                  .first_group = first_group, .rank_of = j->rank_of,
                                  .buffers = job_buffers(j), .sharing = job_sharing(j, j->conf),
                                  .groups = (int)j->conf->train.gradient_groups, .in_file = j->in_file,
                                  .slots = TIER_SLOTS, .host = tiers_host(j),
                                  .trained_in_file = j->offloads == OFFLOADS_WEIGHTS};
    return placement_make(&r, e);
}

static int cost_read(struct job *j, struct err *e)
{
    enum { MAX_PROFILE = 1 << 26 };
    const char *file = j->conf->pipeline.profile;
    struct text t = {0};
    if (!file) {
        j->cost = cost_estimate(j->sel);
        return 0;
    }
    if (!text_read_file(&t, file, MAX_PROFILE, e)) j->cost = cost_parse(file, t.n ? t.s : "", t.n, j->sel, e);
    text_free(&t);
    return j->cost ? cost_spread_check(j->cost, file, j->conf->pipeline.profile_spread, E_DATA, e) : -1;
}

static int speed_set(struct job *j, struct err *e)
{
    const struct conf_reals *l = &j->conf->pipeline.speed;
    if (!l->n) return 0;
    if (l->n != j->mesh.size[AXIS_PP])
        return conf_error(j->conf, "pipeline.speed", e, "%d value%s for %d rank%s", l->n, l->n == 1 ? "" : "s",
                          j->mesh.size[AXIS_PP], j->mesh.size[AXIS_PP] == 1 ? "" : "s");
    j->cost->n_speed = l->n;
    j->cost->speed = mem_alloc((size_t)l->n * sizeof *j->cost->speed);
    memcpy(j->cost->speed, l->v, (size_t)l->n * sizeof *j->cost->speed);
    return 0;
}

/* Samples of the largest micro-batch. */
static int widest_split(const struct job *j)
{
    int widest = 1;
    for (int k = 0; k < PLAN_KINDS; k++) {
        int n = j->batch[k] > 0 ? split_of(j, j->batch[k]) : 0;
        if (n > widest) widest = n;
    }
    return widest;
}

/* Micro-batch sizes of all batches: full ones and remainders. */
static int sizes_of(const struct job *j, int size[2 * PLAN_KINDS])
{
    int n = 0;
    for (int k = 0; k < PLAN_KINDS; k++) {
        int split = j->batch[k] > 0 ? split_of(j, j->batch[k]) : 0, of[2] = {split, split ? j->batch[k] % split : 0};
        for (int i = 0; i < 2; i++) {
            int known = 0;
            while (known < n && size[known] != of[i]) known++;
            if (of[i] && known == n) size[n++] = of[i];
        }
    }
    return n;
}

static int kernels_measure(struct job *j, int unit, const char *file, struct err *e)
{
    int size[2 * PLAN_KINDS];
    batches_find(j);
    struct selection *s = select_make(j->graph, &j->dev, widest_split(j), e);
    if (!s) return -1;
    int bad =
        j->be->tune(s, unit, size, sizes_of(j, size), &j->kernels, e) || out_file_named(file, &j->kernels, false, e);
    select_free(s);
    j->measured = true;
    return bad ? -1 : 0;
}

int job_kernels(struct job *j, int unit, struct err *e)
{
    enum { MAX_TABLE = 1 << 26 };
    const char *file = j->conf->run.kernel_table;
    struct err none = {0};
    if (!file || !j->be->tune) return 0;
    if (!text_read_file(&j->kernels, file, MAX_TABLE, &none))
        return j->kernels.n ? 0 : err_set(e, E_DATA, "%s: the file is empty", file);
    return none.code == E_NOINPUT ? kernels_measure(j, unit, file, e) : err_set(e, none.code, "%s", none.text);
}

void job_kernels_use(struct job *j) { j->dev.kernels = j->kernels.n ? j->kernels.s : NULL; }

static int limits_find(struct job *j, struct err *e)
{
    if (!limit_limited(j)) return 0;
    j->limit = mem_alloc((size_t)j->mesh.size[AXIS_PP] * sizeof *j->limit);
    return part_limits(j->conf, j->free_bytes, j->mesh.size[AXIS_PP], j->limit, e);
}

static void mesh_find(struct job *j, int n_ranks)
{
    if (!n_ranks) n_ranks = (int)j->conf->pipeline.ranks;
    j->n_stages = j->n_tiers ? j->n_tiers : part_stage_count(j->conf, n_ranks);
    j->mesh = (struct mesh){{n_ranks ? n_ranks : j->n_stages, (int)j->conf->pipeline.replicas}};
}

static int select_and_cut(struct job *j, struct err *e)
{
    j->sel = select_make(j->graph, &j->dev, widest_split(j), e);
    if (!j->sel) return -1;
    j->recompute = mem_alloc((size_t)j->sel->n_groups * sizeof *j->recompute);
    if (recompute_named(j->conf, j->sel, j->recompute, e)) return -1;
    struct err why = {0};
    if (limits_find(j, e) || cost_read(j, e) || speed_set(j, e)) return -1;
    if (j->cut_as) return partition_as(j, j->cut_as);
    if (!partition_stages(j, &why)) return 0;
    if (!rows_blamed(j, &why, e)) *e = why;               /* simulating a cut makes a plan, too */
    return -1;
}

/* The tensor that evaluations return: the network's output, or another tensor for a prediction. */
static int output_find(struct job *j, struct err *e)
{
    const char *name = j->conf->run.predict_tensor;
    const struct graph *g = j->graph;
    char hint[SUGGEST_TEXT];
    j->output = g->output;
    if (!j->conf->run.predict || !name) return 0;
    struct suggest near = suggest_begin(name, strlen(name));
    for (int i = 0; i < g->n_tensors; i++) suggest_try(&near, g->tensor[i].name, strlen(g->tensor[i].name), 0);
    j->output = graph_tensor_find(g, name);
    if (j->output < 0)
        return conf_error(j->conf, "run.predict_tensor", e, "the network has no tensor \"%.60s\"%s", name,
                          suggest_text(&near, "", hint));
    if (g->tensor[j->output].type == F32) return 0;
    return conf_error(j->conf, "run.predict_tensor", e, "\"%s\" has values of type %s, not F32", name,
                      dtype_name(g->tensor[j->output].type));
}

static void plans_free(struct job *j)
{
    for (int i = 0; i < j->n_plans; i++) plan_free(j->plan[i]);
    for (int r = 0; j->more && r < j->mesh.size[AXIS_DP] - 1; r++)
        for (int i = 0; i < PLAN_KINDS; i++) plan_free(j->more[r][i]);
    free(j->more);
    if (j->pl) placement_free(j->pl);
    memset(j->plan, 0, sizeof j->plan);
    j->n_plans = 0;
    j->more = NULL;
    j->pl = NULL;
}

/* Frees the plans and what they were made from, as if job_plan_only had not been called. */
static void unplan(struct job *j)
{
    plans_free(j);
    free(j->first_group);
    free(j->rank_of);
    free(j->in_file);
    free(j->limit);
    free(j->recompute);
    text_free(&j->rows);
    job_map_free(j->map);
    if (j->cost) cost_free(j->cost);
    if (j->sel) select_free(j->sel);
    j->n_merged = 0;
    j->first_group = j->rank_of = NULL;
    j->in_file = NULL;
    j->limit = NULL;
    j->recompute = NULL;
    j->cost = NULL;
    j->sel = NULL;
    j->found = (struct part_found){0};
    j->map = NULL;
}

static int plan_kinds(struct job *j, struct err *e)
{
    for (int k = 0; k < PLAN_KINDS; k++) if (plan_one(j, k, e)) return -1;
    return 0;
}

static int plan_all(struct job *j, int n_ranks, struct err *e)
{
    mesh_find(j, n_ranks);
    batches_find(j);
    if (output_find(j, e) || rows_read(j, e) || select_and_cut(j, e)) return -1;
    if (j->n_tiers) tiers_all(j);
    j->pl = job_place(j, j->first_group, e);
    if (!j->pl || partition_recompute(j, j->pl, j->recompute, e)) return -1;
    return plan_kinds(j, e) || interim_plan(j, e) ? -1 : 0;
}

/* First reduces each rank in proportion to its need; if that fails, all ranks get the same share. */
static int plan_recompute(struct job *j, int n_ranks, struct err *e)
{
    uint64_t need, *free_bytes[2];
    int bad = 0, tried = 0;
    size_t bytes = (size_t)j->mesh.size[AXIS_PP] * sizeof **free_bytes;
    for (int i = 0; i < 2; i++) limit_share(j, i, free_bytes[i] = mem_alloc(bytes));
    while (!bad && tried < 2 && limit_pool_short(j, false, &need)) {
        unplan(j);
        j->free_bytes = free_bytes[tried++];
        bad = plan_all(j, n_ranks, e);
    }
    free(free_bytes[2 - tried]);
    return bad;
}

static int plan_placed(struct job *j, struct err *e)
{
    plans_free(j);
    j->pl = job_place(j, j->first_group, e);
    return !j->pl || plan_kinds(j, e) ? -1 : 0;
}

/* With all weights in files that may lie there. Sets *fits. */
static int plan_cut(struct job *j, int n_ranks, const uint64_t *limit, int n, int flight, bool *fits, struct err *e)
{
    unplan(j);
    j->n_tiers = n, j->tier_flight = flight;
    if (plan_all(j, n_ranks, e)) return -1;
    *fits = tiers_choose(j, limit);
    return 0;
}

/* The more micro-batches are kept, the less often weights in files are read; fewer are kept until the plan fits. */
static int plan_flights(struct job *j, int n_ranks, const uint64_t *limit, int n, bool *fits, struct err *e)
{
    const int most = j->batch[PLAN_FULL] > 0 ? (j->batch[PLAN_FULL] - 1) / split_of(j, j->batch[PLAN_FULL]) + 1 : 1;
    for (int k = most; k; k = k > 1 && !*fits && !j->conf->pipeline.in_flight ? (k + 1) / 2 : 0)
        if (plan_cut(j, n_ranks, limit, n, k < most ? k : 0, fits, e)) return -1;
    return 0;
}

/* How even stages can be depends on their number: if the first one does not fit, others up to twice it may. */
static int plan_in_files(struct job *j, int n_ranks, const uint64_t *limit, struct err *e)
{
    const int n = tiers_stages(j, limit), p = j->mesh.size[AXIS_PP];
    bool fits = false, bad = plan_flights(j, n_ranks, limit, n, &fits, e);
    const int most = j->conf->pipeline.stages > p || j->first_only ? 0 : n / p;
    for (int k = 2; !bad && !fits && k <= most; k = k > 0 ? -k : 2 - k) {
        const int other = n - k * p;
        if (other > p && other <= j->sel->n_groups)
            bad = plan_cut(j, n_ranks, limit, other, 1, &fits, e) ||
                  (fits && plan_flights(j, n_ranks, limit, other, &fits, e));
    }
    if (bad || (most && !fits && plan_flights(j, n_ranks, limit, n, &fits, e)) || plan_placed(j, e)) return -1;
    if (j->offloads < OFFLOADS_WEIGHTS || tiers_fit(j, limit)) return 0;
    free(j->in_file);                                     /* the largest weights and gradients are of two stages */
    tiers_all(j);
    return plan_placed(j, e);
}

/* As before, if files do not help. */
static int plan_tiers(struct job *j, struct err *e)
{
    const int n_ranks = j->mesh.size[AXIS_PP];
    const uint64_t missing = limit_missing(j);
    uint64_t *limit = tiers_limits(j, e);
    j->tiers_by_limit = false;
    int bad = !limit || plan_in_files(j, n_ranks, limit, e);
    j->tiers_by_limit = !bad && j->conf->pipeline.max_memory.n > 1 && !tiers_fit(j, limit);
    if (j->tiers_by_limit) bad = plan_in_files(j, n_ranks, limit, e);
    if (!bad && !tiers_fit(j, limit) && limit_missing(j) >= missing) {
        unplan(j);
        j->n_tiers = j->tier_flight = 0;
        bad = plan_all(j, n_ranks, e);
    }
    free(limit);
    return bad ? -1 : 0;
}

static int plan_offload(struct job *j, int n_ranks, enum offloads offloads, struct err *e)
{
    unplan(j);
    j->offloads = offloads;
    j->n_tiers = j->tier_flight = 0;
    if (plan_all(j, n_ranks, e)) return -1;
    return tiers_needed(j) ? plan_tiers(j, e) : 0;
}

int job_plan_only(struct job *j, int n_ranks, struct err *e)
{
    uint64_t need;
    enum offloads most, k;
    free(j->free_bytes);
    j->free_bytes = NULL;
    if (offload_range(j, &k, &most, e) || plan_offload(j, n_ranks, k, e)) return -1;
    while (k < most && tiers_needed(j)) if (plan_offload(j, n_ranks, ++k, e)) return -1;
    if (j->n_tiers || j->conf->pipeline.max_memory.n || j->be->stream || !limit_pool_short(j, false, &need)) return 0;
    return plan_recompute(j, n_ranks, e);
}

/* Computes the ranks of one pipeline. */
static int share_ranks(const struct job *j, const struct conf *c, int *n_ranks, struct err *e)
{
    int n = (int)c->pipeline.replicas;
    if (*n_ranks % n)
        return conf_error(c, "pipeline.replicas", e, "%d rank%s cannot be divided among %d replicas", *n_ranks,
                          *n_ranks == 1 ? "" : "s", n);
    *n_ranks /= n;
    return 0;
}

/* NCCL leaves equal shares with all ranks, but shares of whole weights are not equal. */
static int reduce_check(const struct job *j, const struct conf *c, struct err *e)
{
    if (c->pipeline.replicas < 2 || c->pipeline.reduce != REDUCE_NCCL) return 0;
    if (!j->be->stream) return conf_error(c, "pipeline.reduce", e,
                                          "nccl is for GPUs, and this run computes on the CPU");
    if (job_sharing(j, c).weights)
        return conf_error(c, "pipeline.reduce", e, "nccl adds all weights' gradients up for all replicas, so "
                          "pipeline.shard_optimizer needs \"tree\"");
    if (c->run.transport == TRANSPORT_staged)
        return conf_error(c, "pipeline.reduce", e, "nccl needs run.transport = \"nccl\", not \"staged\"");
    return 0;
}

int job_plan(struct job *j, int n_ranks, struct err *e)
{
    bool bad = share_ranks(j, j->conf, &n_ranks, e) || reduce_check(j, j->conf, e) || job_plan_only(j, n_ranks, e);
    return bad || job_map_count(j, e) || job_map_run_check(j, e) || limit_check(j, e) ? -1 : 0;
}

int job_trial(const struct job *j, const struct conf *c, int n_ranks, struct err *e)
{
    struct job trial;
    if (!c->run.kernel_table || !j->be->tune) return 0;
    if (share_ranks(j, c, &n_ranks, e)) return -1;
    int bad = limit_variant(j, c, n_ranks, &trial, e) || limit_check(&trial, e);
    limit_variant_free(&trial);
    return bad ? -1 : 0;
}

int job_order_samples(const struct job *j)
{
    const int more = j->interim ? j->interim->max_batch : 0;
    return j->max_batch > more ? j->max_batch : more;
}

int job_stage_of(const struct job *j, int *stage_of, struct err *e)
{
    for (int node = 0; node < j->graph->n_nodes; node++) {
        int group = j->sel->group_of[node], stage = 0;
        while (stage + 1 < j->n_stages && group >= j->first_group[stage + 1]) stage++;
        if (group < 0) return err_set(e, E_INTERNAL, "%s is in no group", j->graph->node[node].name);
        stage_of[node] = stage;
    }
    return 0;
}

void job_free(struct job *j)
{
    interim_free(j);
    unplan(j);
    free(j->free_bytes);
    text_free(&j->kernels);
    prompts_free(j->prompts);
    for (int i = 0; i < 2; i++) ds_close(j->data[i]);
    if (j->graph) graph_free(j->graph);
    *j = (struct job){0};
}
