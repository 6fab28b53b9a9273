/* The sections of a page about steps: curves, where the time went, the plan, a step in time, layers. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "page.h"

/* ---- curves ------------------------------------------------------------------------------------------------------ */

static void point_add(struct chart_line *l, long long step, double y)
{
    *vec_push(&l->points) = (struct chart_point){(double)step, y};
}

static void marks_add(const struct html_page *p, struct chart *c)
{
    enum { MOST = 50 };
    for (int i = 0; i < p->h->events.n && c->marks.n < MOST; i++) {
        const char *event = ctl_text_of(p->h->events.v[i], "event"), *to = NULL;
        if (!strcmp(event, "resume")) to = "step";
        if (!strcmp(event, "rollback")) to = "to";
        if (to) *vec_push(&c->marks) = (struct chart_point){(double)ctl_integer_of(p->h->events.v[i], to), 0};
    }
}

/* The curve of a number of steps, which lies at `offset` in their struct. Nothing if no step has it. */
static void number_curve(struct html_page *p, const char *title, const char *about, size_t offset, bool from_zero)
{
    struct chart c = {.title = title, .about = about, .line = {{.style = "train"}}, .from_zero = from_zero};
    bool any = false;
    for (int i = 0; i < p->h->steps.n; i++) {
        double y = *(const double *)((const char *)&p->h->steps.v[i] + offset);
        any |= !isnan(y);
        point_add(&c.line[0], p->h->steps.v[i].step, y);
    }
    marks_add(p, &c);
    if (any) chart_draw(&c, ++p->id, p->out);
    chart_free(&c);
}

/* A score of steps has a value in each of them, but for what is not finite; one of evaluations alone has none. */
static void score_curve(struct html_page *p, int k)
{
    const struct history *h = p->h;
    const char *better = history_rises(h->score[k]) ? "More is better." : "Less is better.";
    struct chart c = {.title = h->score[k], .about = better,
                      .line = {{.name = "training", .style = "train"}, {.name = "validation", .style = "test"}}};
    bool trained = !k, tested = false;
    for (int i = 0; i < h->steps.n && !trained; i++) trained = !isnan(h->steps.v[i].score[k]);
    for (int i = 0; i < h->steps.n && trained; i++) point_add(&c.line[0], h->steps.v[i].step, h->steps.v[i].score[k]);
    for (int i = 0; i < h->tests.n && !tested; i++) tested = !isnan(h->tests.v[i].score[k]);
    for (int i = 0; i < h->tests.n && tested; i++) point_add(&c.line[1], h->tests.v[i].step, h->tests.v[i].score[k]);
    marks_add(p, &c);
    if (c.line[0].points.n || c.line[1].points.n > 1) chart_draw(&c, ++p->id, p->out);
    chart_free(&c);
}

/* The last and the best value of each score. */
static void tests_table(struct html_page *p)
{
    const struct history *h = p->h;
    int finite = 0;
    for (int k = 0; k < h->n_scores; k++) finite += history_best(h, k) >= 0;
    if (!finite) { page_none(p, "No evaluation has a value that is finite."); return; }
    html_table_begin(p->out, "Validation", "score|last|best|after step");
    for (int k = 0; k < h->n_scores; k++) {
        const int best = history_best(h, k);
        if (best < 0) continue;
        text_add(p->out, "<tr>");
        html_element(p->out, "th scope='row'", "%s", h->score[k]);
        html_element(p->out, "td class='n'", "%.5g", h->tests.v[h->tests.n - 1].score[k]);
        html_element(p->out, "td class='n'", "%.5g", h->tests.v[best].score[k]);
        html_element(p->out, "td class='n'", "%lld", h->tests.v[best].step);
        text_add(p->out, "</tr>\n");
    }
    html_table_end(p->out);
    html_element(p->out, "p", "%d evaluation%s.", h->tests.n, h->tests.n == 1 ? "" : "s");
}

void page_curves(struct html_page *p)
{
    const struct history *h = p->h;
    if (!h->steps.n) page_none(p, "No step was trained, so there are no curves.");
    if (h->tests.n) tests_table(p);
    else page_none(p, "No validation was run.");
    if (h->crowded) page_none(p, "More scores than these are in metrics.jsonl.");
    if (h->steps.n > CHART_BUCKETS)
        html_element(p->out, "p", "There are more steps than space: lines are means of neighbouring steps, and the "
                     "shade reaches from the lowest to the highest of them.");
    if (h->starts > 1 || h->rollbacks)
        html_element(p->out, "p", "Dotted upright lines: from there the run was resumed, or went back to there. What "
                     "it computed behind them before is left out.");
    text_add(p->out, "<div class='charts'>\n");
    for (int k = 0; k < h->n_scores; k++) score_curve(p, k);
    if (h->steps.n) {
        number_curve(p, "learning rate", "As the schedule sets it for each step.", offsetof(struct history_step, lr),
                     true);
        number_curve(p, h->tokens ? "tokens a second" : "samples a second", "Throughput of all ranks together.",
                     offsetof(struct history_step, rate), true);
        number_curve(p, "gradient norm", "Before it is clipped.", offsetof(struct history_step, norm), false);
    }
    text_add(p->out, "</div>\n");
}

/* ---- the account ------------------------------------------------------------------------------------------------- */

static const char *const part_names[CTL_PARTS] = {
    "forward pass", "gradients of inputs", "gradients of weights", "recomputation", "optimizer", "transfer",
    "waiting for other ranks: the bubble", "waiting for samples, or for weights from disk or host memory",
    "other, and waiting for checkpoints",
};

static double share(const struct html_page *p, int rank, int part)
{
    return p->h->account.ranks.v[rank].part[part] / p->h->account.seconds;
}

static double mean_share(const struct html_page *p, int part)
{
    double sum = 0;
    for (int i = 0; i < p->h->account.ranks.n; i++) sum += share(p, i, part) / p->h->account.ranks.n;
    return sum;
}

static void account_table(struct html_page *p)
{
    char bytes[32];
    const struct history_account *a = &p->h->account;
    struct text heads = {0};
    text_add(&heads, "rank|stage");
    for (int k = 0; k < CTL_PARTS; k++) text_add(&heads, "|%s", ctl_parts[k].name);
    text_add(&heads, "|memory");
    html_table_begin(p->out, "Share of the step in percent, and memory of each rank", heads.s);
    for (int i = 0; i < a->ranks.n; i++) {
        text_add(p->out, "<tr><th scope='row'>%d</th><td class='n'>%d</td>", i, a->ranks.v[i].stage);
        for (int k = 0; k < CTL_PARTS; k++) html_element(p->out, "td class='n'", "%.1f", 100 * share(p, i, k));
        html_element(p->out, "td class='n'", "%s", text_bytes((uint64_t)fmin(a->ranks.v[i].peak, 1e18), bytes));
        text_add(p->out, "</tr>\n");
    }
    html_table_end(p->out);
    text_free(&heads);
}

static void account_picture(struct html_page *p)
{
    enum { MOST = 256 };
    const struct history_account *a = &p->h->account;
    chart_rows rows = {0};
    for (int i = 0; i < a->ranks.n && i < MOST; i++) {
        struct chart_row *r = vec_push(&rows);
        snprintf(r->name, sizeof r->name, "rank %d", i);
        double at = 0;
        for (int k = 0; k < CTL_PARTS; k++) {
            struct chart_box *b = vec_push(&r->boxes);
            *b = (struct chart_box){at, at + share(p, i, k), ctl_parts[k].letter, {0}};
            at = b->to;
            snprintf(b->label, sizeof b->label, b->kind == '.' ? "wait" : "%c", b->kind);
        }
    }
    text_add(p->out, "<figure>");
    chart_boxes(&rows, ++p->id, "Where the time of each rank went", "The table below has the same numbers.", p->out);
    text_add(p->out, "<ul class='keys'>\n");
    for (int k = 0; k < CTL_PARTS; k++)
        chart_key(p->out, ctl_parts[k].letter, "%s: %.1f %%", part_names[k], 100 * mean_share(p, k));
    text_add(p->out, "</ul></figure>\n");
    if (a->ranks.n > MOST) html_element(p->out, "p", "The picture has the first %d of %d ranks.", MOST, a->ranks.n);
    chart_rows_free(&rows);
}

/* The rank that waits longest. */
static int waits_most(const struct html_page *p, int waiting)
{
    int most = 0;
    for (int i = 1; i < p->h->account.ranks.n; i++) if (share(p, i, waiting) > share(p, most, waiting)) most = i;
    return most;
}

void page_account(struct html_page *p)
{
    enum { WAITING = 6 };
    const struct history_account *a = &p->h->account;
    char time[32];
    if (!a->steps) {
        page_none(p, "No step after the first of a start has an account, so there is nothing to show.");
        return;
    }
    int most = waits_most(p, WAITING);
    html_element(p->out, "p", "A step took %s on average over %lld steps. Ranks waited %.1f %% of it for each other, "
                 "which is the bubble; rank %d waited longest, %.1f %%.", text_seconds(a->seconds / (double)a->steps,
                 time), a->steps, 100 * mean_share(p, WAITING), most, 100 * share(p, most, WAITING));
    account_picture(p);
    account_table(p);
}

/* ---- the plan ---------------------------------------------------------------------------------------------------- */

/* A prediction that is off by a tenth still chooses the right plan; one off by half does not. */
static const char *grade(double error)
{
    error = fabs(error);
    return error <= 0.1 ? "good" : error <= 0.3 ? "fair" : error <= 1e9 ? "poor" : "-";
}

static double kernels_of(const json_t *side)
{
    return ctl_part_seconds(side, 0) + ctl_part_seconds(side, 1) + ctl_part_seconds(side, 2) +
           ctl_part_seconds(side, 3);
}

/* A row: times, or for bytes sizes, or for a share percents, whose error is their difference. */
enum plan_unit { PLAN_SECONDS, PLAN_BYTES, PLAN_SHARE };
static void plan_row(struct html_page *p, const char *name, enum plan_unit unit, double predicted, double measured)
{
    char a[32], b[32], error[48];
    double off = unit == PLAN_SHARE ? predicted - measured : measured > 0 ? predicted / measured - 1 : 0;
    if (!(predicted >= 0 && predicted < 1e18 && measured >= 0 && measured < 1e18)) return;
    if (unit == PLAN_SECONDS) text_seconds(predicted, a), text_seconds(measured, b);
    else if (unit == PLAN_BYTES) text_bytes((uint64_t)predicted, a), text_bytes((uint64_t)measured, b);
    else snprintf(a, 32, "%.1f %%", 100 * predicted), snprintf(b, 32, "%.1f %%", 100 * measured);
    snprintf(error, sizeof error, unit == PLAN_SHARE ? "%+.1f points" : "%+.1f %%", 100 * off);
    text_add(p->out, "<tr>");
    html_element(p->out, "th scope='row'", "%s", name);
    html_element(p->out, "td class='n'", "%s", a);
    html_element(p->out, "td class='n'", "%s", b);
    html_element(p->out, "td class='n'", "%s", error);
    html_element(p->out, "td", "%s", predicted > 0 || measured > 0 ? grade(off) : "-");
    text_add(p->out, "</tr>\n");
}

static void stage_rows(struct html_page *p, const json_t *stage)
{
    const json_t *plan = json_object_get(stage, "predicted"), *real = json_object_get(stage, "measured");
    char name[48], n[24];
    ctl_stage_name(stage, n);
    const struct { const char *what; double predicted, measured; enum plan_unit unit; } row[] = {
        {"kernels", kernels_of(plan), kernels_of(real), PLAN_SECONDS},
        {"optimizer", ctl_part_seconds(plan, 4), ctl_part_seconds(real, 4), PLAN_SECONDS},
        {"transfer", ctl_part_seconds(plan, 5), ctl_part_seconds(real, 5), PLAN_SECONDS},
        {"bubble", ctl_number_of(plan, "bubble"), ctl_number_of(real, "bubble"), PLAN_SHARE},
        {"memory", ctl_number_of(plan, "bytes"), ctl_number_of(real, "bytes"), PLAN_BYTES},
    };
    for (size_t i = 0; i < sizeof row / sizeof *row; i++) {
        snprintf(name, sizeof name, "stage %s: %s", n, row[i].what);
        plan_row(p, name, row[i].unit, row[i].predicted, row[i].measured);
    }
}

void page_plan(struct html_page *p)
{
    enum { MOST = 64 };
    const json_t *o = page_event(p, "account"), *stage, *plan = json_object_get(o, "predicted"),
                 *real = json_object_get(o, "measured");
    size_t i;
    if (!o) {
        page_none(p, "There is no comparison with the plan: a run writes it at its end, after at least two steps.");
        return;
    }
    html_element(p->out, "p", "Basis of the prediction: %s. %lld steps count. Good: within 10 %% of what was "
                 "measured, or 10 points; fair: within 30.", ctl_text_of(o, "costs"),
                 ctl_integer_of(o, "counted_steps"));
    html_table_begin(p->out, "The plan against what was measured, a step", "of|predicted|measured|error|grade");
    plan_row(p, "step", PLAN_SECONDS, ctl_number_of(plan, "seconds"), ctl_number_of(real, "seconds"));
    plan_row(p, "bubble", PLAN_SHARE, ctl_number_of(plan, "bubble"), ctl_number_of(real, "bubble"));
    json_array_foreach(json_object_get(o, "stages"), i, stage) if (i < MOST) stage_rows(p, stage);
    html_table_end(p->out);
    if (i > MOST) html_element(p->out, "p", "The table has the first %d of %zu stages.", MOST, i);
}

/* ---- a step in time ---------------------------------------------------------------------------------------------- */

/* The kind of an action, by the letters of its name: "0F3", "1W0-3". 0: none that is drawn. */
static char action_kind(const json_t *event)
{
    const char *name = ctl_text_of(event, "name"), *letter = name + strspn(name, "0123456789");
    if (!strcmp(ctl_text_of(event, "cat"), "wait")) return '.';
    if (letter == name || !*letter || (letter[1] && (letter[1] < '0' || letter[1] > '9'))) return 0;
    return *letter == 'D' ? 'B' : strchr("FBWROL", *letter) ? *letter : 0;
}

struct trace_view { long long step, ranks; double from, to; };

/* Whether the event is part of a rank's row: an action, or a wait between them. */
static bool row_has(const json_t *event, long long step)
{
    const json_t *args = json_object_get(event, "args");
    return !strcmp(ctl_text_of(event, "ph"), "X") && ctl_integer_of(event, "tid") == 1 && action_kind(event) &&
           (!json_object_get(args, "step") || ctl_integer_of(args, "step") == step);
}

/* Finds the last step, and when it begins and ends. */
static struct trace_view view_find(const json_t *events)
{
    struct trace_view v = {0, 0, INFINITY, -INFINITY};
    const json_t *o;
    size_t i;
    json_array_foreach(events, i, o) {
        long long step = ctl_integer_of(json_object_get(o, "args"), "step");
        if (step > v.step && action_kind(o)) v.step = step;
    }
    json_array_foreach(events, i, o) {
        if (!row_has(o, v.step) || !json_object_get(json_object_get(o, "args"), "step")) continue;
        v.from = fmin(v.from, ctl_number_of(o, "ts"));
        v.to = fmax(v.to, ctl_number_of(o, "ts") + ctl_number_of(o, "dur"));
        if (ctl_integer_of(o, "pid") >= v.ranks) v.ranks = ctl_integer_of(o, "pid") + 1;
    }
    return v;
}

static void trace_rows(const json_t *events, const struct trace_view *v, chart_rows *rows)
{
    enum { BOXES = 4000 };
    const json_t *o;
    size_t i;
    int n = 0;
    for (int r = 0; r < (int)v->ranks; r++) snprintf(vec_push(rows)->name, sizeof rows->v->name, "rank %d", r);
    json_array_foreach(events, i, o) {
        long long rank = ctl_integer_of(o, "pid"), mb = ctl_integer_of(json_object_get(o, "args"), "micro_batch");
        double from = (ctl_number_of(o, "ts") - v->from) / (v->to - v->from);
        double to = from + ctl_number_of(o, "dur") / (v->to - v->from);
        if (!row_has(o, v->step) || rank < 0 || rank >= v->ranks || !(from >= 0 && to <= 1.0001) || ++n > BOXES)
            continue;
        struct chart_box *b = vec_push(&rows->v[rank].boxes);
        *b = (struct chart_box){from, to, action_kind(o), {0}};
        if (json_object_get(json_object_get(o, "args"), "micro_batch"))
            snprintf(b->label, sizeof b->label, "%c%lld", b->kind, mb % 1000000);
    }
}

void page_trace(struct html_page *p)
{
    enum { MOST = 64 };
    const char *path = json_string_value(page_config(p, "run", "trace")), *slash = path ? strrchr(path, '/') : NULL;
    json_t *o = path ? page_json(p, slash ? slash + 1 : path) : NULL;
    const json_t *events = json_object_get(o, "traceEvents");
    struct trace_view v = view_find(events);
    char time[32];
    chart_rows rows = {0};
    if (!path) page_none(p, "No step was traced: --trace asks for it.");
    else if (!(v.to > v.from)) page_none(p, "No trace that can be drawn is in the run directory.");
    else if (v.ranks > MOST) page_none(p, "The trace has too many ranks to be drawn here.");
    else {
        trace_rows(events, &v, &rows);
        html_element(p->out, "p", "Step %lld from left to right: %s. Numbers are micro-batches; hatched: the rank "
                     "waits.", v.step, text_seconds((v.to - v.from) * 1e-6, time));
        text_add(p->out, "<figure class='long'>");
        chart_boxes(&rows, ++p->id, "A step in time", "One row for each rank, a box for each action.", p->out);
        text_add(p->out, "</figure>\n");
    }
    chart_rows_free(&rows);
    json_decref(o);
}

/* ---- layers ------------------------------------------------------------------------------------------------------ */

struct layer_time { const char *name; double part[3], sum; };

static int by_time(const void *a, const void *b)
{
    double d = ((const struct layer_time *)b)->sum - ((const struct layer_time *)a)->sum;
    return (d > 0) - (d < 0);
}

void page_layers(struct html_page *p)
{
    enum { MOST = 15 };
    static const char *const keys[] = {"forward_ns", "input_grad_ns", "weight_grad_ns"};
    json_t *o = page_json(p, "profile.json"), *group;
    VEC(struct layer_time) all = {0};
    double sum = 0;
    size_t i;
    char time[32];
    json_array_foreach(json_object_get(o, "groups"), i, group) {
        struct layer_time l = {.name = ctl_text_of(group, "name")};
        for (int k = 0; k < 3; k++) {
            const json_t *sizes = json_object_get(group, keys[k]);
            size_t n = json_array_size(sizes);
            l.part[k] = n ? json_number_value(json_array_get(sizes, n - 1)) * 1e-9 : 0;
            l.sum += l.part[k];
        }
        sum += l.sum;
        *vec_push(&all) = l;
    }
    if (!all.n) page_none(p, "No profile is in the run directory; --profile writes one. Layers that were far above "
                          "the plan are among the messages of the log.");
    else {
        if (all.n) qsort(all.v, (size_t)all.n, sizeof *all.v, by_time);
        html_table_begin(p->out, "The slowest layers by the profile, a micro-batch of its largest size",
                         "layer|forward|input grad|weight grad|share");
        for (int k = 0; k < all.n && k < MOST; k++) {
            text_add(p->out, "<tr>");
            html_element(p->out, "th scope='row'", "%s", all.v[k].name);
            for (int j = 0; j < 3; j++)
                html_element(p->out, "td class='n'", "%s", text_seconds(all.v[k].part[j], time));
            html_element(p->out, "td class='n'", "%.1f %%", sum > 0 ? 100 * all.v[k].sum / sum : 0);
            text_add(p->out, "</tr>\n");
        }
        html_table_end(p->out);
        if (all.n > MOST) html_element(p->out, "p", "The profile has %d layers.", all.n);
    }
    vec_free(&all);
    json_decref(o);
}
