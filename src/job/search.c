/* Tries every way to divide the cores among pipelines, ranks and threads, with every schedule and every split size.
 * Each gets the cut that partition auto finds, and recomputation if it does not fit without. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "job/memory_limit.h"
#include "job/search_int.h"
#include "plan/part.h"
#include "plan/sched.h"
#include "plan/sim.h"

/* The schedule that each layout tries first; it has one stage a rank. */
static const char FIRST[] = "1f1b";

/* ---- the candidates -------------------------------------------------------------------------- */

/* The largest sizes among the batch's divisors and the sizes that cut it into 3, 7 and 9 nearly equal parts. The
 * configured size is included if it gives at most MAX_MICRO micro-batches; all others are compared with it. */
static void splits_find(struct search *s)
{
    int batch = (int)s->j->conf->train.batch_size, given = (int)s->j->conf->train.split_size;
    for (int n = batch; n > 0 && (batch - 1) / n < MAX_MICRO; n--) {
        bool near = n == (batch + 2) / 3 || n == (batch + 6) / 7 || n == (batch + 8) / 9;
        bool fits = s->n_split < MAX_SPLITS - (given < n);
        if (n == given || (fits && (batch % n == 0 || near))) s->split[s->n_split++] = n;
    }
}

static void layout_add(struct search *s, struct run_layout l)
{
    const struct conf *c = s->j->conf;
    int given = c->pipeline.max_memory.n > 1 ? c->pipeline.max_memory.n : c->pipeline.speed.n;
    if (given && l.ranks != given && l.ranks != 1) return;   /* it has values for so many ranks */
    for (int i = 0; i < s->n_layouts; i++) if (run_layout_equal(s->layout[i], l)) return;
    if (s->n_layouts < MAX_LAYOUTS) s->layout[s->n_layouts++] = l;
}

struct run_layout search_alone(const struct search *s)
{
    int threads = (int)s->j->conf->run.threads;
    return (struct run_layout){1, 1, threads < s->cores || search_gpus(s) ? threads : s->cores};
}
static int cores_each(const struct search *s) { return search_gpus(s) ? 1 : (int)s->j->conf->run.threads; }

/* All layouts that use each core. Before them the configured one, as one pipeline; after them one device. Layouts with
 * one rank a pipeline come first: planning them is fast, they have almost no idle time, and they rule out others. */
static void layouts_find(struct search *s)
{
    enum { MAX_THREADS = 1024 };
    const struct conf *c = s->j->conf;
    int threads = (int)c->run.threads, batch = (int)c->train.batch_size;
    if (s->ranks * cores_each(s) <= s->cores) layout_add(s, (struct run_layout){1, s->ranks, threads});
    for (int p = 1; p <= s->cores; p++)
        for (int r = 1; r <= MAX_DP && r <= batch && r * p <= s->cores; r *= 2) {
            int t = s->cores / (r * p);
            if (r * p * t != s->cores || t > MAX_THREADS || (search_gpus(s) && t > 1)) continue;
            layout_add(s, (struct run_layout){r, p, search_gpus(s) ? threads : t});
        }
    layout_add(s, search_alone(s));
}

/* Drops layouts whose number of threads the profile has no costs for, unless none would remain. */
static int layouts_measured(struct search *s, struct err *e)
{
    enum { MAX_PROFILE = 1 << 26 };
    int *known, n, left = 0;
    struct text t = {0};
    if (!s->j->conf->pipeline.profile) return 0;
    if (text_read_file(&t, s->j->conf->pipeline.profile, MAX_PROFILE, e)) { text_free(&t); return -1; }
    n = cost_threads(t.n ? t.s : "", t.n, s->j->conf->pipeline.profile_spread, &known);
    text_free(&t);
    for (int i = 0; i < s->n_layouts; i++) {
        int k = 0, u = 0, threads = s->layout[i].threads;
        while (k < n && known[k] != threads) k++;
        if (k < n) { s->layout[left++] = s->layout[i]; continue; }
        while (u < s->n_unmeasured && s->unmeasured[u] != threads) u++;
        if (u == s->n_unmeasured) s->unmeasured[s->n_unmeasured++] = threads;
    }
    if (left) s->n_layouts = left;
    free(known);
    return 0;
}

static bool is_train(const struct job *v) { return v->plan_of[PLAN_FULL] >= 0; }

static json_t *stages_of(const struct job *v)
{
    json_t *all = json_array();
    for (int i = 0; i < v->n_stages; i++) {
        const char *first, *last;
        int rank = v->pl->map.rank_of[i];
        plan_stage_ends(v->plan[v->plan_of[PLAN_FULL]], i, &first, &last);
        json_array_append_new(all, json_pack("{s:i,s:i,s:s,s:s,s:I}", "stage", i, "rank", rank, "first", first, "last",
                                             last, "peak_bytes", (json_int_t)limit_bytes(v, rank)));
    }
    return all;
}

static void found_drop(struct found *x)
{
    json_decref(x->stages);
    x->stages = NULL;
}

int search_groups(const struct conf *c, int dp)
{
    int groups = (int)c->train.gradient_groups;            /* both are powers of two */
    return groups % dp ? dp : groups;
}

void search_candidate(struct conf *c, const struct found *x)
{
    bool alone = x->at.ranks == 1;
    c->pipeline.partition = PART_auto;
    c->pipeline.schedule = x->schedule;
    c->pipeline.recompute = x->recompute;
    c->pipeline.stages = x->at.ranks * x->chunks;
    c->pipeline.n_stages = 0;
    c->pipeline.ranks = x->at.ranks;
    c->pipeline.replicas = x->at.dp;
    c->train.gradient_groups = search_groups(c, x->at.dp);
    c->train.split_size = x->split;
    c->run.threads = x->at.threads;
    if (alone && c->pipeline.speed.n > 1) c->pipeline.speed.n = 0;
    if (alone && c->pipeline.max_memory.n > 1) c->pipeline.max_memory.n = 1;
}

/* Plans one candidate. 0: it fits, and x gets its times; 1: it does not fit, or is impossible. */
static int candidate(const struct search *s, struct found *x)
{
    struct job v;
    struct conf c = *s->j->conf;
    struct err why = {0};
    struct sim *sim = NULL;
    search_candidate(&c, x);
    bool planned = !limit_variant(s->j, &c, x->at.ranks, &v, &why) && is_train(&v);
    x->missing = planned ? limit_missing(&v) : 0;
    if (planned && limit_all(&v)) sim = plan_simulate(v.plan[v.plan_of[PLAN_FULL]], v.cost, &why);
    for (int r = 0; sim && r < x->at.ranks; r++) if (limit_bytes(&v, r) > x->peak) x->peak = limit_bytes(&v, r);
    if (sim) {
        x->seconds = sim->wall_ns * 1e-9;
        x->spread = v.cost->spread;
        x->bubble = sim->bubble_of_wall;
        x->least = v.found.least_ns * 1e-9;
        x->proven = v.found.proven;
        x->stages = stages_of(&v);
    }
    int bad = !sim;
    sim_free(sim);
    limit_variant_free(&v);
    return bad;
}

/* A candidate that does not fit may fit with recomputation and a new cut. Without a limit there is no reason to
 * recompute. 0 or 1, as candidate. */
static int recomputed(const struct search *s, struct found *x)
{
    const struct conf *c = s->j->conf;
    uint64_t missing = x->missing;
    if (!(c->pipeline.max_memory.n || missing) || c->pipeline.recompute != RECOMPUTE_NONE) return 1;
    *x = (struct found){.at = x->at, .schedule = x->schedule, .recompute = RECOMPUTE_AUTO, .split = x->split,
                        .chunks = x->chunks, .layout = x->layout, .order = x->order};
    int bad = candidate(s, x);
    if (!x->missing) x->missing = missing;
    return bad;
}

/* The next number of stages a rank to try, 0: none. One if the schedule takes one or chooses itself. Two; and four
 * if each further stage makes the bubble smaller; in a V it is almost zero already. With one rank, one schedule is
 * enough. */
static int chunks_next(int ranks, const struct sched_kind *k, int chunks)
{
    int n = !chunks ? (k->chunks && !k->weighs && ranks > 1 ? 2 : 1) : chunks * 2;
    int most = k->eval ? 0 : ranks == 1 ? !strcmp(k->name, FIRST) : !k->chunks ? 1 : k->turns ? 2 : 4;
    return n <= most ? n : 0;
}

/* Does each pipeline get a micro-batch? */
static bool is_shared(const struct search *s, int split, int dp)
{
    return ((int)s->j->conf->train.batch_size - 1) / split + 1 >= dp;
}

static int candidates(const struct search *s)
{
    int n = 0;
    for (int l = 0; l < s->n_layouts; l++)
        for (int k = 0; sched_list[k]; k++)
            for (int v = 0; (v = chunks_next(s->layout[l].ranks, sched_list[k], v)) > 0;)
                for (int i = 0; i < s->n_split; i++) n += is_shared(s, s->split[i], s->layout[l].dp);
    return n;
}

/* ---- trying ---------------------------------------------------------------------------------- */

/* Of equal times, the earlier candidate wins. */
static bool is_before(const struct found *a, const struct found *b)
{
    return a->seconds != b->seconds ? a->seconds < b->seconds : a->order < b->order;
}

/* Adds x to the best, or drops it. */
static void keep(struct search *s, struct found *x)
{
    struct found *worst = &s->best[MAX_FOUND - 1];
    if (s->n == MAX_FOUND && is_before(worst, x)) { found_drop(x); return; }
    if (s->n == MAX_FOUND) found_drop(&s->best[--s->n]);
    int at = s->n++;
    for (; at > 0 && is_before(x, &s->best[at - 1]); at--) s->best[at] = s->best[at - 1];
    s->best[at] = *x;
}

static void keep_of_layout(struct found *best, const struct found *x)
{
    if (best->seconds > 0 && is_before(best, x)) return;
    found_drop(best);
    *best = *x;
    json_incref(best->stages);
}

/* The least missing memory of a layout, if nothing fits. */
static void missing_keep(struct search *s, const struct found *x)
{
    uint64_t *least = &s->missing[x->layout];
    if (x->missing && (!*least || x->missing < *least)) *least = x->missing;
}

/* Reports one more try. */
static void tell(struct search *s)
{
    s->done++;
    if (s->q->tell) s->q->tell(s->q->to, s->done, candidates(s) + s->rough.n);
}

/* The busy time of a layout's ranks is the same under every schedule. So if 1f1b without idle time is too slow, the
 * other schedules are, too. The configured layout is always tried. idle_free: of each split size, 0: not known. */
static bool ruled_out(const struct search *s, int layout, double idle_free)
{
    return layout > 0 && s->fastest > 0 && idle_free > s->fastest;
}

/* Makes only a first cut; refine cuts candidates again that may be among the best. */
static void schedule_try(struct search *s, int layout, const char *schedule, int chunks, double *idle_free)
{
    for (int i = 0; i < s->n_split; i++) {
        struct found x = {.at = s->layout[layout], .schedule = schedule, .recompute = s->j->conf->pipeline.recompute,
                          .split = s->split[i], .chunks = chunks, .layout = layout, .order = s->tried};
        if (!is_shared(s, x.split, x.at.dp)) continue;
        tell(s);
        if (ruled_out(s, layout, idle_free[i])) continue;
        s->tried++;
        if (candidate(s, &x) && recomputed(s, &x)) {
            s->unfit++;
            missing_keep(s, &x);
            continue;
        }
        if (!strcmp(x.schedule, FIRST) && x.recompute == RECOMPUTE_NONE) idle_free[i] = x.seconds * (1 - x.bubble);
        if (s->fastest <= 0 || x.seconds < s->fastest) s->fastest = x.seconds;
        if (!x.proven) found_drop(&x);
        *vec_push(&s->rough) = x;
    }
}

static void layout_try(struct search *s, int layout)
{
    double idle_free[MAX_SPLITS] = {0};
    schedule_try(s, layout, FIRST, 1, idle_free);
    for (int k = 0; sched_list[k]; k++)
        for (int v = 0; (v = chunks_next(s->layout[layout].ranks, sched_list[k], v)) > 0;)
            if (strcmp(sched_list[k]->name, FIRST)) schedule_try(s, layout, sched_list[k]->name, v, idle_free);
}

static int rough_order(const void *a, const void *b)
{
    return is_before(a, b) ? -1 : is_before(b, a);
}

/* A better cut removes less than 0.4 of the first cut's time above the lower bound. Up to 0.29 was seen, in chains and
 * in the networks of conf/. */
static bool may_be_best(const struct search *s, const struct found *x)
{
    double hoped = x->seconds - (x->seconds - x->least) * 0.4;
    return s->n < MAX_FOUND || hoped < s->best[MAX_FOUND - 1].seconds;
}

/* From the fastest on, cuts each candidate that may be among the best again, as well as possible. The first candidate
 * of each layout is cut again, too. */
static void refine(struct search *s)
{
    if (s->rough.n) qsort(s->rough.v, (size_t)s->rough.n, sizeof *s->rough.v, rough_order);
    for (int i = 0; i < s->rough.n; i++) {
        struct found x = s->rough.v[i];
        s->rough.v[i].stages = NULL;
        tell(s);
        if (s->of[x.layout].seconds > 0 && !may_be_best(s, &x)) { found_drop(&x); continue; }
        x.peak = x.proven ? x.peak : 0;
        if (!x.proven && candidate(s, &x)) continue;
        keep_of_layout(&s->of[x.layout], &x);
        keep(s, &x);
    }
    vec_free(&s->rough);
}

/* The number of cores: the configured one. Without it, the cores of the ranks that the configuration or a launcher
 * requests. Without these, all cores here, or one device with a stream. */
static void cores_find(struct search *s)
{
    const struct conf *c = s->j->conf;
    bool given = s->q->n_ranks > 0 || c->pipeline.ranks > 0 || c->pipeline.stages > 0 || c->pipeline.n_stages > 0 ||
                c->pipeline.replicas > 1;
    s->ranks = s->q->n_ranks > 0 ? s->q->n_ranks : part_rank_count(c) * (int)c->pipeline.replicas;
    s->cores = s->ranks * cores_each(s);
    if (!given && !search_gpus(s) && s->q->cores > s->cores) s->cores = s->q->cores;
    if (c->pipeline.cores > 0) s->cores = (int)c->pipeline.cores;
}

static int search_report(struct search *s, const struct search_request *r, struct text *out, struct err *e)
{
    const char *origin = s->j->conf->pipeline.profile ? s->j->conf->pipeline.profile : "estimated";
    if (r->json) search_json(s, origin, out);
    else search_table(s, origin, text_output_columns(), out);
    return r->best ? search_best(s, origin, r->best, e) : 0;
}

static int nothing_fits(const struct search *s, struct err *e)
{
    const struct conf *c = s->j->conf;
    char of[40];
    snprintf(of, sizeof of, "%d %s%s", s->cores, search_gpus(s) ? "GPU" : "core", s->cores == 1 ? "" : "s");
    if (!c->pipeline.max_memory.n)
        return err_set(e, E_DEVICE, "no schedule and split size fits %s and the memory here", of);
    return conf_error(c, "pipeline.max_memory", e, "no schedule and split size fits %s", of);
}

int search_run(struct job *j, const struct search_request *r, struct text *out, struct err *e)
{
    struct search *s = mem_alloc(sizeof *s);
    *s = (struct search){.j = j, .q = r};
    cores_find(s);
    splits_find(s);
    layouts_find(s);
    int bad = layouts_measured(s, e);
    if (!bad && r->tell) r->tell(r->to, 0, candidates(s));
    j->rough = true;
    for (int l = 0; l < s->n_layouts && !bad; l++) layout_try(s, l);
    j->rough = false;
    refine(s);
    if (!bad && !s->n) {                                   /* the error is that of the configured plan, if that fails */
        bad = job_plan(j, r->n_ranks, e) || nothing_fits(s, e);
    } else if (!bad) bad = search_report(s, r, out, e);
    for (int i = 0; i < s->n; i++) found_drop(&s->best[i]);
    for (int i = 0; i < s->n_layouts; i++) found_drop(&s->of[i]);
    free(s);
    return bad ? -1 : 0;
}
