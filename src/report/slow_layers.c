/* Finds late layers or stages, and the reason. */
#include <stdlib.h>
#include <string.h>
#include "report/slow_layers.h"
#include "plan/cost.h"

/* A delay below this share of its stage's step, or of a whole step, gets no line. */
#define WORTH_SHARE 0.01
#define WORTH_NS 1e6
#define WORTH_LOAD 0.05
/* A thread with less than this share of a core had to share the core. */
#define SHARED_CORE 0.7
enum { WORTH_FAULTS = 8 };

void likely_cause(const struct late *l, struct text *out)
{
    /* with its own core it would have met the plan */
    bool explains = l->ns * l->met.core <= SLOW_LAYERS_TIMES * l->planned_ns;
    if (l->slow) text_add(out, "%s", l->slow);
    else if (l->met.faults >= WORTH_FAULTS)
        text_add(out, "likely because memory is short: it waited for %.0f pages from a disk", l->met.faults);
    else if (l->met.core > 0 && l->met.core < SHARED_CORE && explains)
        text_add(out, "likely because it shares its core: it had the core for %.0f %% of that time", 100 * l->met.core);
    else if (l->estimated) text_add(out, "likely because the plan's costs are estimates: --profile measures them");
    else text_add(out, "likely because the profile was measured on a less busy machine, or is old");
}

static void duration(double ns, struct text *out)
{
    if (ns < 1e6) text_add(out, "%.3g us", ns * 1e-3);
    else if (ns < 1e9) text_add(out, "%.3g ms", ns * 1e-6);
    else text_add(out, "%.3g s", ns * 1e-9);
}

static void late_text(const struct late *l, struct text *out)
{
    double times = l->ns / l->planned_ns;
    text_add(out, "slow: ");
    if (l->name) text_add(out, "%s", l->name);
    else text_add(out, "stage %d", l->stage);
    text_add(out, " takes ");
    duration(l->ns, out);
    text_add(out, " a %s, ", l->name ? "micro-batch" : "step");
    if (times < 1e6) text_add(out, times < 10 ? "%.2g" : "%.0f", times);
    else text_add(out, "over a million");
    text_add(out, " times its plan\n      ");
    likely_cause(l, out);
    text_add(out, "\n");
}

void slow_layers_stage(int stage, double planned, double measured, bool estimated, struct text *out)
{
    struct late l = {.stage = stage, .ns = measured * 1e9, .planned_ns = planned * 1e9, .estimated = estimated};
    if (planned > 0 && measured > SLOW_LAYERS_TIMES * planned && l.ns - l.planned_ns >= WORTH_NS) late_text(&l, out);
}

void slow_layers_load(int rank, double load, double step, int workers, struct text *out)
{
    if (load * 1e9 < WORTH_NS || load < WORTH_LOAD * step) return;
    text_add(out, "slow: rank %d %s samples for %.0f %% of a step\n      ", rank, workers ? "waits for" : "reads",
             100 * load / step);
    if (!workers) text_add(out, "because data.workers = 0: threads would read them during training\n");
    else
        text_add(out, "likely because data.workers = %d is too few, or their cores are busy\n", workers);
}

/* ---- layers ------------------------------------------------------------------------------------------------------ */

/* Gets the times of a group of a stage. Kernels that did not run in the timed steps do not count. */
static struct late group_time(const struct slow_layers_request *q, int stage, int group)
{
    const struct selection *s = q->plan->sel;
    struct late l = {.name = s->g->node[s->group[group].node[0]].name,
                     .stage = stage,
                     .slow = s->group[group].slow ? s->group[group].fallback : NULL,
                     .estimated = q->estimated};
    double speed = cost_speed(q->planned, q->plan->stage[stage].rank);
    for (int ph = 0; ph < PH_COUNT; ph++) {
        double ns = *cost_cell(q->measured, 0, (enum phase)ph, group);
        struct pressure met = costs_pressure(q->measured, q->x, 0, (enum phase)ph, group);
        if (ns <= 0) continue;
        l.ns += ns;
        l.planned_ns += cost_ns(q->planned, (enum phase)ph, group, q->measured->size[0]) / speed;
        l.met.core += met.core * ns;
        l.met.faults += met.faults;
    }
    if (l.ns > 0) l.met.core /= l.ns;
    return l;
}

static int by_ratio(const void *a, const void *b)
{
    const struct late *x = a, *y = b;
    double d = x->ns * y->planned_ns - y->ns * x->planned_ns;
    return (d > 0) - (d < 0);
}

static int by_excess(const void *a, const void *b)
{
    const struct late *x = a, *y = b;
    double d = (y->ns - y->planned_ns) - (x->ns - x->planned_ns);
    return (d > 0) - (d < 0);
}

/* How much slower than estimated the machine is: the factor that half of the planned work does not exceed. */
static double usual(struct late *all, int n)
{
    double sum = 0, half = 0;
    for (int i = 0; i < n; i++) half += all[i].planned_ns / 2;
    qsort(all, (size_t)n, sizeof *all, by_ratio);
    for (int i = 0; i < n; i++) {
        sum += all[i].planned_ns;
        if (sum >= half)
            return all[i].planned_ns > 0 && all[i].ns > all[i].planned_ns ? all[i].ns / all[i].planned_ns : 1;
    }
    return 1;
}

/* Sorts the groups of one stage, all[0 to n - 1], with late ones first. Returns the number of late ones. A program that
 * shares the core delays any layer, so then only the time that layers had the core counts. */
static int late_sort(const struct slow_layers_request *q, struct late *all, int n, double usual)
{
    double stage_ns = 0, core_ns = 0;
    int k = 0, mb = q->plan->n_mb;
    for (int i = 0; i < n; i++) stage_ns += all[i].ns;
    for (int i = 0; i < n; i++) core_ns += all[i].ns * all[i].met.core;
    bool shared = core_ns < SHARED_CORE * stage_ns;
    for (int i = 0; i < n; i++) {
        double excess = all[i].ns - all[i].planned_ns, counts = shared ? all[i].ns * all[i].met.core : all[i].ns;
        if (all[i].planned_ns <= 0 || counts <= SLOW_LAYERS_TIMES * usual * all[i].planned_ns) continue;
        if (excess < WORTH_SHARE * stage_ns || excess * mb < WORTH_NS) continue;
        struct late t = all[k];
        all[k++] = all[i];
        all[i] = t;
    }
    return k;
}

/* Whether a stage is late as a whole: in most of its work, or through many small delays in a step. */
static bool stage_late(const struct slow_layers_request *q, const struct late *all, int n, int n_late, struct late *l)
{
    double planned = 0, excess = 0;
    *l = (struct late){.stage = n ? all[0].stage : 0, .estimated = q->estimated};
    for (int i = 0; i < n; i++) {
        l->ns += all[i].ns;
        l->planned_ns += all[i].planned_ns;
        l->met.core += all[i].met.core * all[i].ns;
        l->met.faults += all[i].met.faults;
        if (i < n_late) planned += all[i].planned_ns;
        if (i < n_late) excess += all[i].ns - all[i].planned_ns;
    }
    if (l->ns > 0) l->met.core /= l->ns;
    bool late = l->planned_ns > 0 && l->ns > SLOW_LAYERS_TIMES * l->planned_ns &&
                (l->ns - l->planned_ns) * q->plan->n_mb >= WORTH_NS;
    bool whole = planned > l->planned_ns / 2 || excess < (l->ns - l->planned_ns) / 2;
    l->ns *= q->plan->n_mb;
    l->planned_ns *= q->plan->n_mb;
    return late && whole && n_late != 1;
}

static int collect(const struct slow_layers_request *q, struct late *to)
{
    int n = 0;
    for (int i = 0; i < q->plan->n_stages; i++) {
        const struct stage_plan *st = &q->plan->stage[i];
        for (int g = st->first_group; g < st->first_group + st->n_groups; g++) to[n++] = group_time(q, i, g);
    }
    return n;
}

void slow_layers_kernels(const struct slow_layers_request *q, struct text *out)
{
    int space = q->plan->sel->n_groups + 1, n, n_named = 0;
    struct late *all = mem_alloc((size_t)space * sizeof *all), *named = mem_alloc((size_t)space * sizeof *named), stage;
    n = collect(q, all);
    double norm = q->estimated ? usual(all, n) : 1;
    collect(q, all);                                      /* usual() has changed the order */
    for (int i = 0, at = 0; i < q->plan->n_stages; at += q->plan->stage[i++].n_groups) {
        int k = q->plan->stage[i].n_groups, n_late = late_sort(q, all + at, k, norm);
        if (stage_late(q, all + at, k, n_late, &stage)) { late_text(&stage, out); continue; }
        memcpy(named + n_named, all + at, (size_t)n_late * sizeof *all);
        n_named += n_late;
    }
    qsort(named, (size_t)n_named, sizeof *named, by_excess);
    for (int i = 0; i < n_named && i < SLOW_LAYERS_LINES; i++) late_text(&named[i], out);
    if (n_named > SLOW_LAYERS_LINES)
        text_add(out, "slow: and %d more, each more than %d times its plan\n", n_named - SLOW_LAYERS_LINES,
                 SLOW_LAYERS_TIMES);
    free(all);
    free(named);
}
