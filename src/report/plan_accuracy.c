/* Predicted and measured values, and the error: of the step, the bubble, and the time and bytes of each rank. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "cluster/log.h"
#include "report/plan_accuracy.h"
#include "report/reporter.h"
#include "report/slow_layers.h"
#include "report/warmup_costs.h"
#include "exec/costs.h"
#include "plan/cost.h"
#include "plan/sim.h"

enum { MIN_STEPS = 1, MANY_STEPS = 10 };
struct rank_time { double part[ACC_COUNT], idle; uint64_t allocated, resident, library, feed; };
struct plan_accuracy {
    const struct job *job;
    struct reporters *all;
    const struct plan *plan;                              /* of full batches */
    struct sim *sim;
    bool one_process, warm;
    uint64_t steps, last_end;
    /* wall time of the counted steps and of the gaps between them */
    double seconds;
    struct rank_time *rank;
    int n_numbers; double *numbers;                       /* costs of the first steps; n_numbers 0: not measured */
    bool known, reported;                                 /* the numbers have come; slow_log has reported */
    /* step: the last step so far; timed: number of timed steps */
    uint64_t step, timed;
    struct cost *cost;                                    /* the numbers as costs; NULL: unknown */
    const char *origin;                                   /* origin of the costs used for the prediction */
    char measured[80];
};

static int accuracy_open(const struct report_run *q, void **self, struct err *e)
{
    const struct job *j = q->job;
    struct plan_accuracy *g = *self = mem_alloc(sizeof *g);
    (void)e;
    *g = (struct plan_accuracy){.job = j, .all = q->all, .one_process = q->one_process};
    if (j->plan_of[PLAN_FULL] >= 0) g->plan = j->plan[j->plan_of[PLAN_FULL]];
    if (g->plan) g->sim = plan_simulate(g->plan, j->cost, NULL);
    g->n_numbers = warmup_count(j);
    g->numbers = mem_alloc((size_t)(g->n_numbers + 1) * sizeof *g->numbers);
    g->origin = j->cost->origin;
    g->rank = mem_alloc((size_t)j->mesh.size[AXIS_PP] * sizeof *g->rank);
    return 0;
}

/* Takes a step of any kind. Does not count evaluations, the first training step (it warms up) and short last
 * batches. */
static void step_take(struct plan_accuracy *g, const struct result *r)
{
    uint64_t began = g->last_end;
    g->last_end = r->ended;
    if (r->o.kind == ORDER_TRAIN) g->step = r->o.step;
    if (!g->sim || (int)r->o.plan != g->job->plan_of[PLAN_FULL]) return;
    if (!g->warm) {
        g->warm = true;
        return;
    }
    g->steps++;
    g->seconds += (double)(r->ended - began) * 1e-9;
    for (int i = 0; i < g->job->mesh.size[AXIS_PP]; i++) {
        const struct report *rep = &r->rep[i];
        struct rank_time *t = &g->rank[i];
        for (int k = 0; k < ACC_COUNT; k++) t->part[k] += (double)rep->ns[k] * 1e-9;
        t->idle += (double)rep->idle_ns * 1e-9;
        t->allocated = rep->allocated_bytes;
        t->library = rep->library_bytes;
        t->feed = rep->feed_bytes;
        if (rep->resident_bytes > t->resident) t->resident = rep->resident_bytes;
    }
}

/* ---- numbers ----------------------------------------------------------------------------------------------------- */

static double step_seconds(const struct plan_accuracy *g) { return g->seconds / (double)g->steps; }

/* Time in which the rank had no work: it waited for a neighbour, or between two steps for the next order. Does not
 * include waiting for bandwidth. */
static double waited(const struct rank_time *t) { return t->part[ACC_WAIT_UP] + t->part[ACC_WAIT_DOWN] + t->idle; }

/* From the end of the rank's first step to the end of its last: the run's time, except while the pipeline fills and
 * drains. */
static double window(const struct rank_time *t)
{
    double sum = t->idle;
    for (int k = 0; k < ACC_COUNT; k++) sum += t->part[k];
    return sum;
}

/* The share of wall time, as bubble_of_wall of the simulator. */
static double bubble(const struct plan_accuracy *g, int rank)
{
    double all = window(&g->rank[rank]);
    return all > 0 ? waited(&g->rank[rank]) / all : 0;
}

static double bubble_all(const struct plan_accuracy *g)
{
    double sum = 0;
    for (int i = 0; i < g->job->mesh.size[AXIS_PP]; i++) sum += bubble(g, i);
    return sum / g->job->mesh.size[AXIS_PP];
}

static const struct sim_stage *sim_of(const struct plan_accuracy *g, int rank)
{
    return &g->sim->rank[rank];
}

double plan_accuracy_planned_ns(const struct plan_accuracy *g, int rank)
{
    return g->sim && g->job->conf->pipeline.profile ? sim_busy(sim_of(g, rank)) : 0;
}

static double sim_bubble(const struct plan_accuracy *g, int rank)
{
    double share = 1 - sim_busy(sim_of(g, rank)) / g->sim->wall_ns;
    return share > 0 ? share : 0;                        /* rounding makes it negative if a rank never waits */
}

static double sim_part(const struct plan_accuracy *g, int rank, int part) { return sim_of(g, rank)->part[part] * 1e-9; }

/* The time in kernels. */
static double kernels_of(const double part[ACC_COUNT])
{
    return part[ACC_FORWARD] + part[ACC_INPUT_GRAD] + part[ACC_WEIGHT_GRAD] + part[ACC_RECOMPUTE];
}

static double part_seconds(const struct plan_accuracy *g, int rank) { return kernels_of(g->rank[rank].part); }
static double sim_seconds(const struct plan_accuracy *g, int rank) { return kernels_of(sim_of(g, rank)->part) * 1e-9; }

static double error_of(double predicted, double measured) { return measured > 0 ? predicted / measured - 1 : 0; }

static size_t bytes_planned(const struct plan_accuracy *g, int rank)
{
    return g->sim->peak_bytes[rank];
}

/* Whether to compare the resident memory of a rank's process with the plan, rather than only its allocations. Not on a
 * device, which has its own memory; not if ranks share a process; and not for a small plan, since libraries would take
 * most of the memory. */
static bool is_resident(const struct plan_accuracy *g, int rank)
{
    enum { SMALL = 128 << 20 };
    return !g->job->be->stream && !g->one_process && g->rank[rank].resident && bytes_planned(g, rank) >= SMALL;
}

static uint64_t bytes_of(const struct plan_accuracy *g, int rank)
{
    return is_resident(g, rank) ? g->rank[rank].resident : g->rank[rank].allocated;
}

/* The plan's bytes. For a process also the bytes of samples that are read ahead, and its growth while kernels were
 * made. That growth is mostly code and tables of libraries and cannot be predicted. */
static uint64_t bytes_predicted(const struct plan_accuracy *g, int rank)
{
    const struct rank_time *t = &g->rank[rank];
    return bytes_planned(g, rank) + (is_resident(g, rank) ? t->library + t->feed : 0);
}

/* The share of the run's wall time that no part of this rank's account contains. Steps of neighbours overlap, so only
 * sums over many steps show it. */
static double unaccounted(const struct plan_accuracy *g, int rank) { return 1 - window(&g->rank[rank]) / g->seconds; }

/* ---- the first steps --------------------------------------------------------------------------------------------- */

static bool estimated(const struct plan_accuracy *g) { return !g->job->conf->pipeline.profile; }

/* Takes the measured costs of kernels, optimizer, loading and the thread's share of transfers. The speed of a link
 * stays as planned. */
/* Takes the costs of the first steps on all ranks (train/warmup_profile.h). */
static void numbers_take(struct plan_accuracy *g, const double *x)
{
    const struct job *j = g->job;
    memcpy(g->numbers, x, (size_t)g->n_numbers * sizeof *x);
    g->known = true;
    g->timed = (uint64_t)x[g->n_numbers - 3] / (uint64_t)j->mesh.size[AXIS_PP];
    snprintf(g->measured, sizeof g->measured, "costs measured in steps %.0f to %.0f of this run", x[g->n_numbers - 2],
             x[g->n_numbers - 1]);
    if (!g->timed) return;
    g->cost = warmup_costs(j);
    costs_take(g->cost, g->numbers);
    g->cost->latency_ns = j->cost->latency_ns;
    g->cost->bytes_per_ns = j->cost->bytes_per_ns;
}

/* Names the rank that waits longest for samples. */
static void load_report(const struct plan_accuracy *g, struct text *out)
{
    int most = 0;
    for (int i = 1; i < g->job->mesh.size[AXIS_PP]; i++)
        if (g->rank[i].part[ACC_LOAD] > g->rank[most].part[ACC_LOAD]) most = i;
    double steps = (double)g->steps;
    slow_layers_load(most, g->rank[most].part[ACC_LOAD] / steps, step_seconds(g), (int)g->job->conf->data.workers, out);
}

/* Checks kernels if they were timed, otherwise whole stages. */
/* Logs layers or stages that take much longer than planned, once in a run. */
static void slow_log(struct plan_accuracy *g)
{
    struct text t = {0};
    bool wait = g->n_numbers ? !g->known : g->step < WARMUP_FIRST + WARMUP_STEPS - 1 && g->step < job_steps(g->job);
    if (g->reported || wait || !g->sim || !g->steps) return;
    g->reported = true;
    struct slow_layers_request q = {
        .plan = g->plan, .planned = g->job->cost, .measured = g->cost, .x = g->numbers, .estimated = estimated(g)};
    if (g->cost) slow_layers_kernels(&q, &t);
    for (int i = 0; !g->n_numbers && i < g->job->mesh.size[AXIS_PP]; i++)
        slow_layers_stage(job_stage(g->job, i), sim_seconds(g, i), part_seconds(g, i) / (double)g->steps, estimated(g),
                          &t);
    load_report(g, &t);
    if (t.n) log_lines(t.s);
    text_free(&t);
}

/* With a profile the plan is always compared with it. Without one the costs of the first steps, if known, predict the
 * other steps. */
static void costs_settle(struct plan_accuracy *g)
{
    if (!g->cost || !estimated(g) || g->steps <= g->timed) return;
    struct sim *again = plan_simulate(g->plan, g->cost, NULL);
    if (!again) return;
    sim_free(g->sim);
    g->sim = again;
    g->origin = g->measured;
}

/* ---- the table --------------------------------------------------------------------------------------------------- */

/* LABEL, CELLS, WIDE: columns of the names, of one rank, and of a terminal; BESIDE: number of ranks in a row */
enum { LABEL = 12, CELLS = 33, WIDE = 80, BESIDE = (WIDE - LABEL) / CELLS };

static struct text_unit unit_of(const struct plan_accuracy *g) { return text_unit(step_seconds(g)); }

static const char *figure(const struct plan_accuracy *g, double seconds, char buf[32])
{
    struct text_unit u = unit_of(g);
    snprintf(buf, 32, "%.*f", u.seconds < 1 ? 3 : 4, seconds / u.seconds);
    return buf;
}

/* Waiting has no prediction: it also depends on the neighbours' measured times. */
static void part_text(const struct plan_accuracy *g, int i, enum account part, struct text *out)
{
    double measured = g->rank[i].part[part] / (double)g->steps, predicted = sim_part(g, i, part);
    bool waits = part == ACC_WAIT_UP || part == ACC_WAIT_DOWN;
    char p[32] = "", m[32], e[32] = "";
    if (!waits) figure(g, predicted, p);
    const bool graded = part <= ACC_OPTIMIZER || part == ACC_FETCH;
    if (graded && measured > 0) snprintf(e, sizeof e, "%+.1f %%", 100 * error_of(predicted, measured));
    text_add(out, " %11s %10s %9s", p, figure(g, measured, m), e);
}

static void bubble_text(const struct plan_accuracy *g, int i, struct text *out)
{
    double predicted = 100 * sim_bubble(g, i), measured = 100 * bubble(g, i);
    text_add(out, " %9.1f %% %8.1f %% %+5.1f pts", predicted, measured, predicted - measured);
}

static void memory_text(const struct plan_accuracy *g, int i, struct text *out)
{
    char a[32], b[32];
    text_add(out, " %11s %10s %+7.1f %%", text_bytes(bytes_predicted(g, i), a), text_bytes(bytes_of(g, i), b),
             100 * error_of((double)bytes_predicted(g, i), (double)bytes_of(g, i)));
}

static void row_begin(const char *name, struct text *out)
{
    while (out->n && out->s[out->n - 1] == ' ') out->s[--out->n] = 0;
    text_add(out, "\n%-*s", LABEL, name);
}

/* Adds ranks `from` to `to` - 1, next to each other. If each rank has one stage they are called stages. */
static void ranks_text(const struct plan_accuracy *g, int from, int to, struct text *out)
{
    static const char *const head[ACC_COUNT] = {
        "forward", "input grad", "weight grad", "recompute", "optimizer", "transfer", "wait up", "wait down",
        "checkpoint", "load", "weights", "other",
    };
    char name[32];
    text_add(out, "%-*s", LABEL, "");
    for (int i = from; i < to; i++) {
        bool chunks = g->job->n_stages > g->job->mesh.size[AXIS_PP];
        snprintf(name, sizeof name, "%s %d", chunks ? "rank" : "stage", chunks ? i : job_stage(g->job, i));
        text_add(out, "   %s %.*s", name, CELLS - 4 - (int)strlen(name), "------------------------------");
    }
    row_begin("", out);
    for (int i = from; i < to; i++) text_add(out, " %11s %10s %9s", "predicted", "measured", "error");
    for (int k = 0; k < ACC_COUNT; k++) {
        row_begin(head[k], out);
        for (int i = from; i < to; i++) part_text(g, i, (enum account)k, out);
    }
    row_begin("between", out);
    for (int i = from; i < to; i++)
        text_add(out, " %11s %10s %9s", "", figure(g, g->rank[i].idle / (double)g->steps, name), "");
    row_begin("bubble", out);
    for (int i = from; i < to; i++) bubble_text(g, i, out);
    row_begin("memory", out);
    for (int i = from; i < to; i++) memory_text(g, i, out);
    text_add(out, "\n");
}

static void account_head(const struct plan_accuracy *g, struct text *out)
{
    text_add(out, "account of %llu step%s after the first, in %s a step;\n", (unsigned long long)g->steps,
             g->steps == 1 ? "" : "s", unit_of(g).plural);
    if (g->job->mesh.size[AXIS_DP] > 1)
        text_add(out, "of the first of %d %ss, which has the most to do\n", g->job->mesh.size[AXIS_DP],
                 axis_word[AXIS_DP]);
    if (!estimated(g)) text_add(out, "predicted with %s costs\n", g->origin);
    else if (g->origin == g->measured)
        text_add(out, "predicted with %s\n(it was planned with estimates; --profile measures costs before a run)\n",
                 g->origin);
    else text_add(out, "predicted with estimated costs: expect large errors, --profile measures costs\n");
}

static void account_text(const struct plan_accuracy *g, struct text *out)
{
    double worst = 0, predicted = g->sim->wall_ns * 1e-9;
    char b[32];
    account_head(g, out);
    text_add(out, "%-12s %12s %12s %12s\n", "", "predicted", "measured", "error");
    text_add(out, "%-12s ", "step");
    text_right(out, 12, text_seconds(predicted, b));
    text_add(out, " ");
    text_right(out, 12, text_seconds(step_seconds(g), b));
    text_add(out, " %10.1f %%\n", 100 * error_of(predicted, step_seconds(g)));
    text_add(out, "%-12s %10.1f %% %10.1f %% %8.1f pts\n", "bubble", 100 * g->sim->bubble_of_wall, 100 * bubble_all(g),
             100 * (g->sim->bubble_of_wall - bubble_all(g)));
    int n = g->job->mesh.size[AXIS_PP];
    for (int i = 0; i < n; i += BESIDE) ranks_text(g, i, i + BESIDE < n ? i + BESIDE : n, out);
    for (int i = 0; i < g->job->mesh.size[AXIS_PP]; i++)
        if (fabs(unaccounted(g, i)) > fabs(worst)) worst = unaccounted(g, i);
    if (g->steps >= MANY_STEPS)
        text_add(out, "unaccounted: at most %.2f %% of wall time on any stage\n", 100 * fabs(worst));
}

/* ---- the event --------------------------------------------------------------------------------------------------- */

static json_t *parts_json(const struct plan_accuracy *g, int i, bool predicted)
{
    json_t *o = json_object();
    for (int k = 0; k < ACC_COUNT; k++) {
        if (predicted && (k == ACC_WAIT_UP || k == ACC_WAIT_DOWN)) continue;
        double s = predicted ? sim_part(g, i, k) : g->rank[i].part[k] / (double)g->steps;
        json_object_set_new(o, account_name[k], json_real(s));
    }
    if (!predicted) json_object_set_new(o, "between_steps_seconds", json_real(g->rank[i].idle / (double)g->steps));
    return o;
}

static json_t *side_json(double seconds, double bubble)
{
    return json_pack("{s:f,s:f}", "seconds", seconds, "bubble", bubble);
}

static json_t *account_json(const struct plan_accuracy *g)
{
    json_t *stages = json_array();
    for (int i = 0; i < g->job->mesh.size[AXIS_PP]; i++) {
        json_t *p = parts_json(g, i, true), *m = parts_json(g, i, false);
        json_object_set_new(p, "bubble", json_real(sim_bubble(g, i)));
        json_object_set_new(p, "bytes", json_integer((json_int_t)bytes_predicted(g, i)));
        json_object_set_new(p, "plan_bytes", json_integer((json_int_t)bytes_planned(g, i)));
        json_object_set_new(m, "bubble", json_real(bubble(g, i)));
        json_object_set_new(m, "bytes", json_integer((json_int_t)bytes_of(g, i)));
        json_array_append_new(stages, json_pack("{s:i,s:o,s:o,s:f}", "stage", job_stage(g->job, i), "predicted", p,
                                                "measured", m, "unaccounted", unaccounted(g, i)));
    }
    double predicted = g->sim->wall_ns * 1e-9;
    return json_pack("{s:I,s:s,s:o,s:o,s:f,s:o}", "counted_steps", (json_int_t)g->steps, "costs", g->origin,
                     "predicted", side_json(predicted, g->sim->bubble_of_wall), "measured",
                     side_json(step_seconds(g), bubble_all(g)), "error", error_of(predicted, step_seconds(g)), "stages",
                     stages);
}

static int account_tell(struct plan_accuracy *g, struct err *e)
{
    struct text t = {0};
    if (g->steps < MIN_STEPS) return 0;
    costs_settle(g);
    account_text(g, &t);
    log_lines(t.s);
    text_free(&t);
    json_t *o = account_json(g);
    int bad = reporters_tell(g->all, &(struct event){.kind = EVENT_ACCOUNT, .json = o}, e);
    json_decref(o);
    return bad;
}

/* After a pause or roll-back the next step is not counted, because ranks waited for its order. */
static int accuracy_on(void *self, const struct event *ev, struct err *e)
{
    struct plan_accuracy *g = self;
    if (ev->kind == EVENT_STEP || ev->kind == EVENT_BATCH) step_take(g, ev->result);
    if (ev->kind == EVENT_COSTS) numbers_take(g, ev->costs);
    if (ev->kind == EVENT_STEP || ev->kind == EVENT_COSTS) slow_log(g);
    if (ev->kind == EVENT_PAUSE || ev->kind == EVENT_ROLLBACK) g->warm = false;
    return ev->kind == EVENT_END ? account_tell(g, e) : 0;
}

static void accuracy_close(void *self)
{
    struct plan_accuracy *g = self;
    if (g->sim) sim_free(g->sim);
    if (g->cost) cost_free(g->cost);
    free(g->numbers);
    free(g->rank);
    free(g);
}

const struct reporter reporter_plan_accuracy = {.name = "plan_accuracy", .required = true, .open = accuracy_open,
                                                .on = accuracy_on, .close = accuracy_close};
