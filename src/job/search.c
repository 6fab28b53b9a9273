/* Every schedule with every split size, each with the cut that partition auto finds, and with recomputation where it
 * does not fit without; beside them one device, and data parallelism by a formula. */
#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include "job/fit.h"
#include "job/search.h"
#include "plan/part.h"
#include "plan/sched.h"
#include "plan/sim.h"

enum { MAX_FOUND = 10, MAX_SPLITS = 15, MAX_MICRO = 64 };

struct found {
    const char *schedule, *recompute;
    int split, chunks;                                     /* chunks: stages a rank */
    double seconds, bubble;
    uint64_t peak;
    json_t *stages;                                        /* first and last layer and bytes of each; owned */
};
struct search {
    struct job *j;
    const struct search_request *q;
    int ranks, n_split, split[MAX_SPLITS], tried, unfit, done;
    struct found best[MAX_FOUND]; int n;
    struct found one, data;                                /* one device; data parallelism. seconds 0: does not fit */
};

/* The divisors of the batch, the configured size, and the sizes that cut the batch into 3, 7 and 9 nearly equal parts.
 */
static void splits_find(struct search *s)
{
    int batch = (int)s->j->conf->train.batch_size, given = (int)s->j->conf->train.split_size;
    for (int n = batch; n > 0 && s->n_split < MAX_SPLITS && (batch - 1) / n < MAX_MICRO; n--) {
        bool near = n == (batch + 2) / 3 || n == (batch + 6) / 7 || n == (batch + 8) / 9;
        if (batch % n == 0 || near || n == given) s->split[s->n_split++] = n;
    }
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
                                             last, "peak_bytes", (json_int_t)fit_bytes(v, rank)));
    }
    return all;
}

static const char *stage_first(const struct found *x, size_t stage)
{
    return json_string_value(json_object_get(json_array_get(x->stages, stage), "first"));
}

static void found_drop(struct found *x)
{
    json_decref(x->stages);
    x->stages = NULL;
}

static void conf_candidate(struct conf *c, const struct found *x, int ranks)
{
    c->pipeline.partition = "auto";
    c->pipeline.schedule = x->schedule;
    c->pipeline.recompute = x->recompute;
    c->pipeline.stages = ranks * x->chunks;
    c->pipeline.n_stages = 0;
    c->pipeline.replicas = 1;
    c->train.split_size = x->split;
}

/* Plans one candidate. 0: it fits, and x says how fast it is; 1: it does not, or cannot be. */
static int candidate(const struct search *s, struct conf c, int ranks, struct found *x)
{
    struct job v;
    struct err why = {0};
    struct sim *sim = NULL;
    conf_candidate(&c, x, ranks);
    if (!fit_variant(s->j, &c, ranks, &v, &why) && is_train(&v) && fit_all(&v))
        sim = plan_simulate(v.plan[v.plan_of[PLAN_FULL]], v.cost, &why);
    for (int r = 0; sim && r < ranks; r++) if (fit_bytes(&v, r) > x->peak) x->peak = fit_bytes(&v, r);
    if (sim) {
        x->seconds = sim->wall_ns * 1e-9;
        x->bubble = sim->bubble_of_wall;
        x->stages = stages_of(&v);
        if (c.train.batch_size != s->j->conf->train.batch_size) {
            /* Ring all-reduce of the gradients (Patarasuk and Yuan 2009): 2 (n - 1) / n of the bytes, 2 (n - 1)
             * messages. */
            double n = s->ranks, bytes = (double)v.pl->level_bytes[0];
            x->seconds += (2 * (n - 1) / n * bytes / v.cost->bytes_per_ns + 2 * (n - 1) * v.cost->latency_ns) * 1e-9;
        }
    }
    int bad = !sim;
    sim_free(sim);
    fit_variant_free(&v);
    return bad;
}

/* Stages a rank that are tried: one where the schedule is not for several, or chooses; two; four where each further
 * one makes the bubble smaller, which in a V is next to nothing already. */
static int chunks_next(const struct search *s, const struct sched_kind *k, int chunks)
{
    int n = !chunks ? (k->chunks && !k->weighs && s->ranks > 1 ? 2 : 1) : chunks * 2;
    int most = k->eval ? 0 : !k->chunks || s->ranks == 1 ? 1 : k->turns ? 2 : 4;
    return n <= most ? n : 0;
}

/* How many candidates there are: pipelines, one device, and shares of it where there are more. */
static int candidates(const struct search *s)
{
    int n = s->ranks > 1 ? 2 : 1;
    for (int k = 0; sched_list[k]; k++)
        for (int v = 0; (v = chunks_next(s, sched_list[k], v)) > 0;) n++;
    return n * s->n_split;
}

/* Takes x among the best, or drops it. */
static void keep(struct search *s, struct found *x)
{
    struct found *worst = &s->best[MAX_FOUND - 1];
    if (s->n == MAX_FOUND && worst->seconds <= x->seconds) { found_drop(x); return; }
    if (s->n == MAX_FOUND) found_drop(&s->best[--s->n]);
    int at = s->n++;
    for (; at > 0 && s->best[at - 1].seconds > x->seconds; at--) s->best[at] = s->best[at - 1];
    s->best[at] = *x;
}

/* What does not fit may fit with recomputation, cut anew. Without a limit there is no reason to recompute. 0 or 1, as
 * candidate. */
static int recomputed(const struct search *s, struct found *x)
{
    const struct conf *c = s->j->conf;
    if (!c->pipeline.max_memory.n || strcmp(c->pipeline.recompute, "none") != 0) return 1;
    *x = (struct found){.schedule = x->schedule, .recompute = "auto", .split = x->split, .chunks = x->chunks};
    return candidate(s, *c, s->ranks, x);
}

/* One more was tried. */
static void tell(struct search *s)
{
    s->done++;
    if (s->q->tell) s->q->tell(s->q->to, s->done, candidates(s));
}

static void schedule_try(struct search *s, const char *schedule, int chunks)
{
    for (int i = 0; i < s->n_split; i++) {
        struct found x = {.schedule = schedule, .recompute = s->j->conf->pipeline.recompute, .split = s->split[i],
                          .chunks = chunks};
        s->tried++;
        if (candidate(s, *s->j->conf, s->ranks, &x) && recomputed(s, &x)) s->unfit++;
        else keep(s, &x);
        tell(s);
    }
}

static void pipelines_try(struct search *s)
{
    for (int k = 0; sched_list[k]; k++)
        for (int v = 0; (v = chunks_next(s, sched_list[k], v)) > 0;) schedule_try(s, sched_list[k]->name, v);
}

/* One device, with the whole batch or a replica's share of it. The schedule does not matter there. */
static void alone_try(struct search *s, int64_t batch, struct found *best)
{
    struct conf c = *s->j->conf;
    c.pipeline.speed.n = 0;
    if (c.pipeline.max_memory.n > 1) c.pipeline.max_memory.n = 1;
    c.train.batch_size = batch;
    for (int i = 0; i < s->n_split; i++, tell(s)) {
        struct found x = {.schedule = "1f1b",
                          .chunks = 1,
                          .recompute = c.pipeline.recompute,
                          .split = s->split[i] < batch ? s->split[i] : (int)batch};
        if (candidate(s, c, 1, &x)) continue;
        struct found *less = best->seconds <= 0 || x.seconds < best->seconds ? best : &x;
        found_drop(less);
        if (less == best) *best = x;
    }
}

/* ---- telling ----------------------------------------------------------------------------------------------------- */

/* What to set for it; or why it cannot be had here. */
static void advise_replicas(const struct search *s, struct text *out)
{
    int n = s->ranks;
    text_add(out, "data parallelism would be faster than this pipeline");
    if (s->j->be->lane) text_add(out, ", but replicas are for CPUs");
    else if (n & (n - 1)) text_add(out, ", but %d replicas are no power of two", n);
    else if (n > MAX_REPLICAS) text_add(out, ", but there are %d replicas at most", MAX_REPLICAS);
    else {
        text_add(out, ": pipeline.stages = 1, pipeline.replicas = %d", n);
        if (s->j->conf->train.gradient_groups % n) text_add(out, ", train.gradient_groups = %d", n);
    }
}

static void advise(const struct search *s, struct text *out)
{
    double best = s->best[0].seconds;
    if (s->one.seconds > 0 && s->one.seconds <= best)
        text_add(out, "one device would be as fast or faster than this pipeline");
    else if (s->data.seconds > 0 && s->data.seconds < best) advise_replicas(s, out);
    else text_add(out, "the pipeline is the fastest of these");
}

static void alone_tell(const struct found *x, const char *what, struct text *out)
{
    char b[2][32];
    text_add(out, "%-42s ", what);
    if (x->seconds <= 0) { text_add(out, "does not fit\n"); return; }
    text_add(out, "%5d", x->split);
    text_right(out, 11, text_seconds(x->seconds, b[0]));
    text_add(out, " %11s\n", text_bytes(x->peak, b[1]));
}

static void alone_table(const struct search *s, struct text *out)
{
    char what[96];
    text_add(out, "%-42s %5s %10s %11s\n", "for comparison", "split", "step", "peak");
    alone_tell(&s->one, "one device", out);
    snprintf(what, sizeof what, "data parallelism on %d devices", s->ranks);
    if (s->ranks > 1) alone_tell(&s->data, what, out);
}

/* Where the stages but the first begin. */
static void cut_text(const struct found *x, struct text *out)
{
    text_add(out, "%s", "");
    for (size_t i = 1; i < json_array_size(x->stages); i++) text_add(out, "%s%s", i > 1 ? " " : "", stage_first(x, i));
}

/* Cuts stand at the end of their lines where each finds room there, otherwise below; recomputation only where there is
 * any. */
struct shown { bool recompute, chunks, beside; };

static struct shown shown_of(const struct search *s, int columns)
{
    const char heading[] = "cut before";
    size_t longest = sizeof heading - 1, before = 64;
    struct shown l = {0};
    for (int i = 0; i < s->n; i++) {
        struct text cut = {0};
        cut_text(&s->best[i], &cut);
        if (cut.n > longest) longest = cut.n;
        text_free(&cut);
        l.recompute |= strcmp(s->best[i].recompute, "none") != 0;
        l.chunks |= s->best[i].chunks > 1;
    }
    if (l.recompute) before += 10;
    if (l.chunks) before += 7;
    l.beside = s->ranks > 1 && before + longest <= (size_t)columns;
    return l;
}

static void heading_tell(struct shown l, struct text *out)
{
    text_add(out, "%3s  %-11s %5s ", "", "schedule", "split");
    if (l.chunks) text_add(out, "%6s ", "stages");
    if (l.recompute) text_add(out, "%-9s ", "recompute");
    text_add(out, "%9s %9s %7s %11s%s\n", "step", "samples/s", "bubble", "peak", l.beside ? "  cut before" : "");
}

static void found_tell(const struct search *s, int i, struct shown l, struct text *out)
{
    const struct found *x = &s->best[i];
    char b[32];
    text_add(out, "%3d  %-11s %5d ", i + 1, x->schedule, x->split);
    if (l.chunks) text_add(out, "%6d ", s->ranks * x->chunks);
    if (l.recompute) text_add(out, "%-9s ", x->recompute);
    text_right(out, 9, text_seconds(x->seconds, b));
    text_add(out, " %9s", text_number((double)s->j->conf->train.batch_size / x->seconds, b));
    text_add(out, " %5.1f %% %11s", 100 * x->bubble, text_bytes(x->peak, b));
    if (l.beside) text_add(out, "  ");
    if (l.beside) cut_text(x, out);
    text_add(out, "\n");
}

static void cuts_tell(const struct search *s, struct text *out)
{
    text_add(out, "\n%3s  cut before\n", "");
    for (int i = 0; i < s->n; i++) {
        text_add(out, "%3d  ", i + 1);
        cut_text(&s->best[i], out);
        text_add(out, "\n");
    }
}

static void advice_text(const struct search *s, struct text *out)
{
    advise(s, out);
    text_add(out, "\n\n");
    if (!s->j->conf->pipeline.profile)
        text_add(out, "Estimated costs do not know that small micro-batches take longer a sample:\n"
                      "measure them (--profile) before choosing a split size.\n");
    text_add(out, "bubble: idle / wall. Another split size is another arithmetic: weights change in\n"
                  "their last bits, with batch norm in more.\n");
}

static void table(const struct search *s, const char *origin, int columns, struct text *out)
{
    enum { INDENT = 5 };
    struct text t = {0};
    struct shown l = shown_of(s, columns);
    text_add(&t, "%d rank%s, batch %lld, %s costs:\n", s->ranks, s->ranks == 1 ? "" : "s",
             (long long)s->j->conf->train.batch_size, origin);
    text_add(&t, "%d combinations of schedule, stages and split size, each with its best cut;\n", s->tried);
    text_add(&t, "%d do not fit or are refused\n\n", s->unfit);
    heading_tell(l, &t);
    for (int i = 0; i < s->n; i++) found_tell(s, i, l, &t);
    if (!l.beside && s->ranks > 1) cuts_tell(s, &t);
    text_add(&t, "\n");
    alone_table(s, &t);
    advice_text(s, &t);
    text_fold(t.s, columns, INDENT, out);
    text_free(&t);
}

static json_t *cut_json(const struct found *x)
{
    json_t *names = json_array();
    for (size_t i = 1; i < json_array_size(x->stages); i++)
        json_array_append_new(names, json_string(stage_first(x, i)));
    return names;
}

static json_t *found_json(const struct found *x)
{
    return json_pack("{s:o,s:s,s:s,s:i,s:f,s:f,s:I,s:o,s:b}", "cut", cut_json(x), "schedule",
                     x->schedule ? x->schedule : "", "recompute", x->recompute ? x->recompute : "", "split_size",
                     x->split, "step_seconds", x->seconds, "bubble", x->bubble, "peak_bytes", (json_int_t)x->peak,
                     "stages", x->stages ? json_incref(x->stages) : json_array(), "fits", x->seconds > 0);
}

static void tell_json(const struct search *s, const char *origin, struct text *out)
{
    json_t *best = json_array();
    struct text advice = {0};
    advise(s, &advice);
    for (int i = 0; i < s->n; i++) json_array_append_new(best, found_json(&s->best[i]));
    json_t *all = json_pack("{s:i,s:I,s:s,s:i,s:i,s:o,s:o,s:o,s:s}", "ranks", s->ranks, "batch_size",
                            (json_int_t)s->j->conf->train.batch_size, "costs", origin, "tried", s->tried, "unfit",
                            s->unfit, "best", best, "one_device", found_json(&s->one), "data_parallel",
                            found_json(&s->data), "advice", advice.s);
    char *text = json_dumps(all, JSON_INDENT(2));
    text_add(out, "%s\n", text);
    free(text);
    json_decref(all);
    text_free(&advice);
}

/* ---- the best as a file ---------------------------------------------------------------------- */

/* The cut as stage sections, so that it stays what it is whatever is measured later. A cut between layers that kernels
 * have put into another order cannot be said so: then it is left to auto, which finds it again. */
static int stages_set(const struct search *s, struct conf *c, struct err *e)
{
    struct conf trial = *c;
    struct job v;
    conf_candidate(&trial, &s->best[0], s->ranks);
    int bad = fit_variant(s->j, &trial, s->ranks, &v, e);
    for (int i = 0; !bad && i < v.n_stages; i++) {
        const char *first, *last;
        plan_stage_ends(v.plan[0], i, &first, &last);
        conf_stage_add(c, (struct conf_stage){.first = first, .last = last});
    }
    trial = *c;
    trial.pipeline.partition = "manual";
    trial.pipeline.stages = s->ranks * s->best[0].chunks;
    struct job w = {0};
    struct err none = {0};
    bool same = !bad && !fit_variant(s->j, &trial, s->ranks, &w, &none) &&
                !memcmp(v.first_group, w.first_group, (size_t)v.n_stages * sizeof *v.first_group);
    if (!same) c->pipeline.n_stages = 0;
    fit_variant_free(&w);
    fit_variant_free(&v);
    return bad;
}

static int best_set(const struct search *s, struct conf *c, struct err *e)
{
    const struct found *x = &s->best[0];
    struct text t = {0};
    c->pipeline.n_stages = 0;
    c->pipeline.rows = NULL;
    text_add(&t, "pipeline.schedule=%s\npipeline.recompute=%s\ntrain.split_size=%d\npipeline.stages=%d\n"
             "pipeline.ranks=%d\npipeline.replicas=1", x->schedule, x->recompute, x->split, s->ranks * x->chunks,
             s->ranks);
    int bad = 0;
    for (char *save = NULL, *set = strtok_r(t.s, "\n", &save); set && !bad; set = strtok_r(NULL, "\n", &save))
        bad = conf_set(c, "--plan=search", set, e);
    text_free(&t);
    return bad || stages_set(s, c, e) ||
                   conf_set(c, "--plan=search",
                            c->pipeline.n_stages ? "pipeline.partition=manual" : "pipeline.partition=auto", e)
               ? -1
               : 0;
}

static int best_print(const struct search *s, const char *origin, struct text *t, struct err *e)
{
    char b[32];
    long long split = (long long)s->j->conf->train.split_size;
    struct conf *c = conf_copy(s->j->conf);
    if (best_set(s, c, e)) return -1;
    text_add(t, "# Found by mpstaged --plan=search: step %s (%s costs).\n", text_seconds(s->best[0].seconds, b),
             origin);
    if (!c->pipeline.n_stages) {
        text_add(t, "# Its cut, before ");
        cut_text(&s->best[0], t);
        text_add(t, ", cannot be said in stage sections: auto finds it again.\n");
    }
    if (s->best[0].split != split)
        text_add(t, "# split_size was %lld: results differ from those of that size.\n", split);
    conf_print(c, t);
    return 0;
}

int search_run(struct job *j, const struct search_request *r, struct text *out, struct err *e)
{
    struct search s = {.j = j, .q = r, .ranks = r->n_ranks};
    if (!s.ranks) s.ranks = part_rank_count(j->conf) * (int)j->conf->pipeline.replicas;
    const char *origin = j->conf->pipeline.profile ? j->conf->pipeline.profile : "estimated";
    splits_find(&s);
    if (r->tell) r->tell(r->to, 0, candidates(&s));
    pipelines_try(&s);
    if (!s.n) {                                            /* why not: as for the plan that was configured */
        if (job_plan(j, r->n_ranks, e)) return -1;
        return conf_error(j->conf, "pipeline.max_memory", e, "no schedule and split size fits %d ranks", s.ranks);
    }
    alone_try(&s, j->conf->train.batch_size, &s.one);
    if (s.ranks > 1) alone_try(&s, (j->conf->train.batch_size + s.ranks - 1) / s.ranks, &s.data);
    if (r->json) tell_json(&s, origin, out);
    else table(&s, origin, text_output_columns(), out);
    int bad = r->best ? best_print(&s, origin, r->best, e) : 0;
    for (int i = 0; i < s.n; i++) found_drop(&s.best[i]);
    found_drop(&s.one);
    found_drop(&s.data);
    return bad;
}
