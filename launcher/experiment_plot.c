/* Pictures, drawn by gnuplot. Its script stays in the folder, so that users can change and redraw them. */
#include <errno.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include "base/out.h"
#include "experiment.h"

/* Escapes s for double quotes of gnuplot. */
static void quote(struct text *t, const char *s)
{
    for (; *s; s++) text_add(t, strchr("\\\"`", *s) ? " " : "%c", *s);
}

static void value(struct text *t, double v)
{
    if (isfinite(v)) text_add(t, " %.9g", v);
    else text_add(t, " NaN");
}

static void point_values(const struct experiment_point *p, struct text_unit u, struct text *t)
{
    double d = point_deviation(p);
    value(t, point_mean(p) / u.seconds);
    value(t, isfinite(d) ? d / u.seconds : 0);
    value(t, point_bound(p) / u.seconds);
    value(t, point_predicted(p) / u.seconds);
    text_add(t, "\n");
}

static const char bound_title[] = "title \"bound: the kernels' time without any waiting or transfer\"";

static void terminal(struct text *t, const char *file, bool svg)
{
    text_add(t, "set terminal %s\nset output \"%s\"\n",
             svg ? "svg size 1000,680 font \"sans-serif,14\" background rgb \"white\""
                 : "pngcairo size 1000,680 font \"Sans,12\"",
             file);
}

static double highest_of(const struct experiment_point *p)
{
    double d = point_deviation(p);
    return fmax(point_mean(p) + (isfinite(d) ? d : 0), fmax(point_bound(p), point_predicted(p)));
}

static double highest(const struct experiment *x, bool bars)
{
    double top = 0;
    for (int i = 0; i < x->points.n; i++) {
        const struct experiment_point *p = &x->points.v[i];
        if (!p->seconds.n || (bars && !p->bar)) continue;
        top = fmax(top, highest_of(p));
    }
    return top;
}

/* ---- bars ------------------------------------------------------------------------------------ */

/* Adds the position, the values and the two labels of each bar. Returns the number of bars. */
static int bars_data(const struct experiment *x, struct text_unit u, struct text *t, struct text *tics,
                     struct text *labels)
{
    int n = 0;
    for (int i = 0; i < x->points.n; i++) {
        const struct experiment_point *p = &x->points.v[i];
        if (!p->bar || !p->seconds.n) continue;
        text_add(tics, "%s\"", n ? ", " : "");
        if (p->kind == POINT_SINGLE) text_add(tics, "one rank\\nwhole batch");
        else if (p->kind == POINT_NAIVE) text_add(tics, "%d ranks, naive\\nwhole batch", p->ranks);
        else {
            text_add(tics, "%d ranks, pipelined ", p->ranks);
            quote(tics, p->schedule);
            text_add(tics, "\\nsplit size %d", p->split);
        }
        text_add(tics, "\" %d", n);
        text_add(labels, "set label \"%.3g %s", point_mean(p) / u.seconds, u.name);
        if (experiment_single(x)) {
            text_add(labels, "\\nspeed-up ");
            ratio_text(labels, experiment_single(x), p);
        }
        text_add(labels, "\" at %d,%.9g center offset 0,1.7\n", n, highest_of(p) / u.seconds);
        text_add(t, "%d", n++);
        point_values(p, u, t);
    }
    return n;
}

static const char *repeated(int n, char buf[100])
{
    snprintf(buf, 100, "mean of %d repetition%s%s", n, n == 1 ? "" : "s", n == 1 ? "" : ", standard deviation");
    return buf;
}

static void bars(const struct experiment *x, const char *title, struct text *t)
{
    struct text data = {0}, tics = {0}, labels = {0};
    char what[100];
    double top = highest(x, true);
    struct text_unit u = text_unit(top);
    int n = bars_data(x, u, &data, &tics, &labels);
    if (n) {
        text_add(t, "$bars << EOD\n%sEOD\n%sset title \"Time of one training step\\n%s\" noenhanced\n", data.s,
                 labels.s, title);
        text_add(t,
                 "set ylabel \"%s a step of %d samples (less is better)\"\nset yrange [0:%.9g]\nset xrange "
                 "[-0.7:%g]\nset xtics (%s) noenhanced scale 0\n",
                 u.plural, x->batch, top / u.seconds * 1.25, n - 0.3, tics.s);
        text_add(t, "set boxwidth 0.5\nset style fill solid 0.8 noborder\n");
        terminal(t, "bars.png", false);
        text_add(t, "plot $bars using 1:2 with boxes linecolor rgb \"#4c78a8\" title \"measured: %s\", \\\n",
                 repeated(x->repeat, what));
        text_add(
            t, "  $bars using 1:2:3 with yerrorbars linecolor rgb \"black\" pt 7 ps 0.5 linewidth 1.5 notitle, \\\n");
        text_add(
            t, "  $bars using ($1-0.3):4:(0.6):(0) with vectors nohead linecolor rgb \"#2e8b3d\" linewidth 3 %s, \\\n",
            bound_title);
        text_add(t, "  $bars using 1:5 with points linecolor rgb \"#e45756\" pointtype 7 pointsize 1.4 title "
                    "\"predicted by the planner\"\n");
        terminal(t, "bars.svg", true);
        text_add(t, "replot\nunset label\n");
    }
    text_free(&data);
    text_free(&tics);
    text_free(&labels);
}

/* ---- sweep ----------------------------------------------------------------------------------- */

static int compare_points(const void *a, const void *b)
{
    const struct experiment_point *const *p = a, *const *q = b;
    return (*p)->split - (*q)->split;
}

/* Adds one curve: all points of a kind and schedule, by split size. Returns their number. */
static int curve_data(const struct experiment *x, enum point_kind kind, const char *schedule, const char *name,
                      struct text_unit u, struct text *t)
{
    VEC(const struct experiment_point *) v = {0};
    for (int i = 0; i < x->points.n; i++) {
        const struct experiment_point *p = &x->points.v[i];
        if (p->kind == kind && (p->sweep || kind == POINT_NAIVE) && p->seconds.n &&
            (!schedule || !strcmp(p->schedule, schedule)))
            *vec_push(&v) = p;
    }
    qsort(v.v, (size_t)v.n, sizeof *v.v, compare_points);
    text_add(t, "$%s << EOD\n", name);
    for (int i = 0; i < v.n; i++) {
        text_add(t, "%d", v.v[i]->split);
        point_values(v.v[i], u, t);
    }
    text_add(t, "%sEOD\n", v.n ? "" : "1 NaN NaN NaN NaN\n");
    int n = v.n;
    vec_free(&v);
    return n;
}

static void sweep_tics(const struct experiment *x, struct text *t)
{
    text_add(t, "set xtics (\"%d\\n(whole batch)\" %d", x->batch, x->batch);
    for (int i = 0; i < x->splits.n; i++)
        if (x->splits.v[i] < x->batch) text_add(t, ", \"%d\" %d", x->splits.v[i], x->splits.v[i]);
    text_add(t, ") noenhanced scale 1\n");
}

/* Draws a circle around the best point, and adds a line about it to the title. */
static void sweep_best(const struct experiment *x, const char *title, struct text_unit u, struct text *t)
{
    const struct experiment_point *p = experiment_best(x, POINT_PIPELINED), *s = experiment_best(x, POINT_SINGLE);
    text_add(t, "set title \"Time of one training step by the size of its micro-batches\\n%s", title);
    if (p) {
        text_add(t, "\\nbest split size: %d, %.3g %s", p->split, point_mean(p) / u.seconds, u.name);
        if (s) {
            text_add(t, "; ");
            ratio_text(t, s, p);
            text_add(t, " times as fast as one rank at its best");
        }
    }
    text_add(t, "\" noenhanced\n");
    if (p)
        text_add(t, "set label \"\" at %d,%.9g point pointtype 6 pointsize 3 linewidth 2\n", p->split,
                 point_mean(p) / u.seconds);
}

static void sweep_curve(const struct experiment *x, int i, struct text *t)
{
    static const char *const colour[] = {"#4c78a8", "#b07aa1", "#9c755f", "#17becf"};
    const char *c = colour[i % 4];
    text_add(
        t,
        ", \\\n  $pipe%d using 1:2:3 with yerrorlines linecolor rgb \"%s\" linewidth 2 pointtype 7 title \"%d ranks, ",
        i, c, x->ranks);
    quote(t, x->schedules.v[i]);
    text_add(t,
             "\", \\\n  $pipe%d using 1:5 with linespoints linecolor rgb \"%s\" dashtype 2 pointtype 6 title "
             "\"predicted by the planner\"",
             i, i ? c : "#e45756");
    text_add(t, ", \\\n  $pipe%d using 1:4 with lines linecolor rgb \"%s\" dashtype 3 linewidth 2 %s", i,
             i ? c : "#2e8b3d", bound_title);
}

static void sweep(const struct experiment *x, const char *title, struct text *t)
{
    struct text_unit u = text_unit(highest(x, false));
    int n = curve_data(x, POINT_SINGLE, NULL, "single", u, t) + curve_data(x, POINT_NAIVE, NULL, "naive", u, t);
    char name[40], what[100];
    for (int i = 0; i < x->schedules.n; i++) {
        snprintf(name, sizeof name, "pipe%d", i);
        n += curve_data(x, POINT_PIPELINED, x->schedules.v[i], name, u, t);
    }
    if (!n) return;
    int least = x->splits.v[0] < x->batch ? x->splits.v[0] : x->batch, most = x->splits.v[x->splits.n - 1];
    text_add(t,
             "set ylabel \"%s a step of %d samples (less is better)\"\nset xlabel offset 0,-0.8 \"split size: "
             "samples of a micro-batch (logarithmic); %s\"\n",
             u.plural, x->batch, repeated(x->repeat < x->sweep_repeat ? x->repeat : x->sweep_repeat, what));
    text_add(t, "set bmargin %d\n", 8 + 3 * x->schedules.n);
    text_add(t, "set logscale x 2\nset xrange [%g:%g]\nset yrange [0:%.9g]\n", least / 1.3,
             1.3 * (most > x->batch ? most : x->batch), highest(x, false) / u.seconds * 1.1);
    sweep_tics(x, t);
    sweep_best(x, title, u, t);
    terminal(t, "sweep.png", false);
    text_add(t, "plot $single using 1:2:3 with yerrorlines linecolor rgb \"#555555\" linewidth 2 pointtype 5 title "
                "\"one rank, same micro-batches (control)\", \\\n");
    text_add(t,
             "  $naive using 1:2:3 with yerrorbars linecolor rgb \"#f58518\" linewidth 2 pointtype 9 pointsize 1.6 "
             "title \"%d ranks, naive (whole batch)\"",
             x->ranks);
    for (int i = 0; i < x->schedules.n; i++) sweep_curve(x, i, t);
    text_add(t, "\n");
    terminal(t, "sweep.svg", true);
    text_add(t, "replot\n");
}

/* ---- gnuplot --------------------------------------------------------------------------------- */

int experiment_plot(const struct experiment *x, struct err *e)
{
    struct text t = {0}, title = {0}, quoted = {0};
    struct out_records log = {.fd = -1};
    struct argument_words argv = {0};
    if (!(highest(x, false) > 0)) return 2;
    experiment_title(x, &title);
    quote(&quoted, title.s);
    text_add(&t, "# Draws the pictures again: gnuplot plot.gp, in this folder.\nset encoding utf8\n"
                 "set grid ytics linecolor rgb "
                 "\"#dddddd\"\nset border 3\nset tics nomirror\n");
    text_add(&t, "set key at screen 0.5, screen 0.015 center bottom vertical maxcols 1 noenhanced\nset bmargin 9\n");
    bars(x, quoted.s, &t);
    sweep(x, quoted.s, &t);
    int bad = experiment_file(x, "plot.gp", &t, e) || out_records_open(&log, x->dir, x->out, "plot.log", e), code = 0;
    words_split(&argv, "gnuplot plot.gp");
    if (!bad) code = child_run(&argv, &(struct job_files){log.fd, log.fd, x->dir}, e);
    bool none = !bad && code < 0 && (e->code == JOB_NOT_FOUND || e->code == JOB_NOT_STARTED);
    if (none) {
        *e = (struct err){0};
        unlinkat(x->dir, "plot.gp", 0);
    }
    if (code > 0) child_error(log.fd, E_IO, e), err_where(e, "gnuplot");
    if (!bad && code <= 0) unlinkat(x->dir, "plot.log", 0);
    out_records_close(&log);
    words_free(&argv);
    text_free(&t);
    text_free(&title);
    text_free(&quoted);
    return none ? 1 : bad || code ? -1 : 0;
}
