/* Reads a point's numbers from metrics.jsonl, and computes others from them. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "experiment.h"

static double number(const json_t *o, const char *key) { return json_number_value(json_object_get(o, key)); }

/* ---- the bound ------------------------------------------------------------------------------- */

/* The shortest time of a step on this cut in any schedule, given its kernel times. Every stage must do its own work
 * after the first micro-batch has passed the stages before it. And after its last input gradient one micro-batch
 * returns to the first stage. */
static double step_bound(const struct experiment *x, const struct experiment_point *p, const json_t *stages)
{
    double first = (double)(p->split < x->batch ? p->split : x->batch) / x->batch;
    double last = (double)(x->batch - p->split * (p->n_mb - 1)) / x->batch;
    double lead = 0, back = 0, bound = 0, end = 0;
    size_t i;
    json_t *s;
    json_array_foreach (stages, i, s) {
        double f = number(s, "forward_seconds"), b = number(s, "input_grad_seconds"),
               w = number(s, "weight_grad_seconds");
        double r = number(s, "recompute_seconds"), o = number(s, "optimizer_seconds");
        bound = fmax(bound, lead + f + r + b + fmax(w + o, back + end));
        if (i == 0) end = last * w + o;
        lead += first * f;
        back += last * b;
    }
    return bound;
}

/* ---- one run --------------------------------------------------------------------------------- */

struct metric_sums {
    int steps;
    double seconds, bound, bubble;
};

/* Adds a step: x->steps measured ones are one repetition. */
static void step_take(struct experiment *x, struct experiment_point *p, const json_t *o, struct metric_sums *s)
{
    const json_t *stages = json_object_get(o, "stages");
    size_t i;
    json_t *stage;
    if (json_integer_value(json_object_get(o, "step")) <= x->warm_up) {
        p->warm_up += number(o, "step_seconds") / x->warm_up;
        return;
    }
    s->steps++;
    s->seconds += number(o, "step_seconds");
    s->bound += step_bound(x, p, stages);
    json_array_foreach (stages, i, stage) {
        s->bubble += number(stage, "bubble") / (double)json_array_size(stages);
        p->peak_bytes = fmax(p->peak_bytes, number(stage, "peak_bytes"));
    }
    if (s->steps % x->steps) return;
    *vec_push(&p->seconds) = s->seconds / x->steps;
    p->bound += s->bound / x->steps;
    p->bubble += s->bubble / x->steps;
    s->seconds = s->bound = s->bubble = 0;
}

/* Takes the memory that ranks used. */
static void account_take(struct experiment_point *p, const json_t *o)
{
    size_t i;
    json_t *stage;
    json_array_foreach (json_object_get(o, "stages"), i, stage)
        p->measured_bytes = fmax(p->measured_bytes, number(json_object_get(stage, "measured"), "bytes"));
}

int metrics_take(struct experiment *x, struct experiment_point *p, const char *path, struct err *e)
{
    struct text t = {0};
    struct metric_sums s = {0};
    if (text_read_file(&t, path, 1 << 28, e)) return -1;
    for (char *save = NULL, *line = t.n ? strtok_r(t.s, "\n", &save) : NULL; line; line = strtok_r(NULL, "\n", &save)) {
        json_t *o = json_loads(line, 0, NULL);
        const char *event = json_string_value(json_object_get(o, "event"));
        const char *numerics = json_string_value(json_object_get(o, "numerics"));
        if (event && !strcmp(event, "step")) step_take(x, p, o, &s);
        if (event && !strcmp(event, "account")) account_take(p, o);
        if (numerics && !x->numerics) x->numerics = mem_strdup(numerics);
        json_decref(o);
    }
    text_free(&t);
    if (s.steps != x->steps * p->repeats)
        return err_set(e, E_DATA, "%s: %d measured steps instead of %d", path, s.steps, x->steps * p->repeats);
    p->ran++;
    return 0;
}

/* ---- numbers of a point ---------------------------------------------------------------------- */

double point_mean(const struct experiment_point *p)
{
    double sum = 0;
    for (int i = 0; i < p->seconds.n; i++) sum += p->seconds.v[i];
    return p->seconds.n ? sum / p->seconds.n : NAN;
}

double point_deviation(const struct experiment_point *p)
{
    double mean = point_mean(p), sum = 0;
    for (int i = 0; i < p->seconds.n; i++) sum += (p->seconds.v[i] - mean) * (p->seconds.v[i] - mean);
    return p->seconds.n > 1 ? sqrt(sum / (p->seconds.n - 1)) : NAN;
}

double point_warm_up(const struct experiment_point *p) { return p->ran ? p->warm_up / p->ran : NAN; }

double point_bound(const struct experiment_point *p) { return p->seconds.n ? p->bound / p->seconds.n : NAN; }

double point_planned_bytes(const struct experiment_point *p) { return p->peak_bytes > 0 ? p->peak_bytes : NAN; }
double point_measured_bytes(const struct experiment_point *p) { return p->measured_bytes > 0 ? p->measured_bytes : NAN;
                                                               }

double point_predicted(const struct experiment_point *p) { return p->predicted > 0 ? p->predicted : NAN; }

const struct experiment_point *experiment_single(const struct experiment *x)
{
    const struct experiment_point *p = &x->points.v[0]; /* see experiment_points */
    return p->seconds.n ? p : NULL;
}

double point_speedup(const struct experiment *x, const struct experiment_point *p)
{
    const struct experiment_point *single = experiment_single(x);
    return single ? point_mean(single) / point_mean(p) : NAN;
}

/* To first order, for independent times. */
double points_ratio_deviation(const struct experiment_point *a, const struct experiment_point *b)
{
    double x = point_deviation(a) / point_mean(a), y = point_deviation(b) / point_mean(b);
    if (a == b || (!isfinite(x) && !isfinite(y))) return NAN;
    return point_mean(a) / point_mean(b) * hypot(isfinite(x) ? x : 0, isfinite(y) ? y : 0);
}

const char *point_name(const struct experiment_point *p, char buf[POINT_NAME])
{
    snprintf(buf, POINT_NAME, "%s%s%s", p->kind == POINT_SINGLE ? "one rank" : point_kind_name[p->kind],
             p->kind == POINT_PIPELINED ? " " : "", p->kind == POINT_PIPELINED ? p->schedule : "");
    return buf;
}

/* Adds a number with three digits. */
static void ratio_number(struct text *t, double v) { text_add(t, "%.*f", v >= 100 ? 0 : v >= 10 ? 1 : 2, v); }

void ratio_text(struct text *t, const struct experiment_point *a, const struct experiment_point *b)
{
    double d = points_ratio_deviation(a, b);
    ratio_number(t, point_mean(a) / point_mean(b));
    if (!isfinite(d)) return;
    text_add(t, " ± ");
    ratio_number(t, d);
}

const struct experiment_point *experiment_best(const struct experiment *x, enum point_kind kind)
{
    const struct experiment_point *best = NULL;
    for (int i = 0; i < x->points.n; i++) {
        const struct experiment_point *p = &x->points.v[i];
        if (p->kind == kind && p->sweep && p->seconds.n && (!best || point_mean(p) < point_mean(best))) best = p;
    }
    return best;
}
