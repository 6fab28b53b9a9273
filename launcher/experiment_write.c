/* results.csv, results.json and the table. */
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>
#include "base/out.h"
#include "config.h"
#include "experiment.h"

/* ---- the folder ------------------------------------------------------------------------------ */

static int folder_make(const char *path, struct err *e)
{
    for (size_t n = 1; path[n - 1]; n++) { /* each folder above it, then the folder itself */
        if (path[n] != '/' && path[n]) continue;
        char part[4200];
        snprintf(part, sizeof part, "%.*s", (int)n, path);
        if (mkdir(part, 0777) && errno != EEXIST) return err_set(e, E_CANTCREAT, "%s: %s", path, strerror(errno));
    }
    return 0;
}

/* An experiment's files: these, and in metrics/ files with this ending. */
static const char *const ours[] = {"results.json", "results.csv", "bars.png", "bars.svg", "sweep.png", "sweep.svg",
                                   "plot.gp", "plot.log", "profile/profile.json", "profile", "metrics"};
static const char *const of_runs[] = {".jsonl", ".log"};

/* Fails if one of these names is neither a file nor a folder. */
static int kinds_check(const struct experiment *x, struct err *e)
{
    struct stat st;
    for (size_t i = 0; i < sizeof ours / sizeof *ours; i++) {
        if (fstatat(x->dir, ours[i], &st, AT_SYMLINK_NOFOLLOW) || S_ISREG(st.st_mode) || S_ISDIR(st.st_mode)) continue;
        return err_set(e, E_CANTCREAT, "%s/%s: is %s, not a regular file", x->out, ours[i], out_kind(st.st_mode));
    }
    return 0;
}

static int folder_refuse(const struct experiment *x, struct err *e)
{
    for (size_t i = 0; i < sizeof ours / sizeof *ours; i++)
        if (faccessat(x->dir, ours[i], F_OK, 0) == 0)
            return err_set(e, E_CANTCREAT,
                           "%s: holds the results of an earlier experiment (%s); use --overwrite or another --out",
                           x->out, ours[i]);
    return 0;
}

static void metrics_remove(const struct experiment *x)
{
    char path[4200];
    snprintf(path, sizeof path, "%s/metrics", x->out);
    DIR *d = opendir(path);
    if (!d) return;
    for (struct dirent *f; (f = readdir(d));)
        for (size_t i = 0; i < sizeof of_runs / sizeof *of_runs; i++) {
            size_t n = strlen(f->d_name), end = strlen(of_runs[i]);
            if (n > end && strcmp(f->d_name + n - end, of_runs[i]) == 0) unlinkat(dirfd(d), f->d_name, 0);
        }
    closedir(d);
}

/* Removes run directories of an experiment that was killed. */
static void runs_remove(const struct experiment *x)
{
    DIR *d = opendir(x->out);
    if (!d) return;
    for (struct dirent *f; (f = readdir(d));)
        if (!strncmp(f->d_name, EXPERIMENT_RUN, sizeof EXPERIMENT_RUN - 1)) folder_remove(dirfd(d), f->d_name);
    closedir(d);
}

/* Fails if the profile to plan with is one of the files to be removed. */
static int profile_spare(const struct experiment *x, struct err *e)
{
    struct stat own, used;
    const char *file = json_string_value(json_object_get(json_object_get(x->config, "pipeline"), "profile"));
    if (!file || stat(file, &used) || fstatat(x->dir, "profile/profile.json", &own, 0) || own.st_dev != used.st_dev ||
        own.st_ino != used.st_ino)
        return 0;
    return err_set(e, E_CANTCREAT, "%s/profile/profile.json: --overwrite would remove the profile to plan with; use "
                   "another --out", x->out);
}

void experiment_remove(const struct experiment *x)
{
    metrics_remove(x);
    runs_remove(x);
    for (size_t i = 0; i < sizeof ours / sizeof *ours; i++) /* fails if the folder has other files */
        if (unlinkat(x->dir, ours[i], 0)) unlinkat(x->dir, ours[i], AT_REMOVEDIR);
}

/* Locks the folder itself until this program ends, so that no lock file is left behind. */
static int folder_lock(struct experiment *x, struct err *e)
{
    x->dir = open(x->out, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (x->dir < 0) return err_set(e, E_CANTCREAT, "%s: %s", x->out, strerror(errno));
    if (flock(x->dir, LOCK_EX | LOCK_NB) == 0) return 0;
    return err_set(e, errno == EWOULDBLOCK ? E_STOPPED : E_CANTCREAT, "%s: %s", x->out,
                   errno == EWOULDBLOCK ? "another experiment is running there" : strerror(errno));
}

int experiment_folder(struct experiment *x, struct err *e)
{
    char path[4200];
    struct stat st;
    if (strlen(x->out) > 4000) return err_set(e, E_CANTCREAT, "--out: longer than 4000 bytes");
    bool there = stat(x->out, &st) == 0;
    if (there && (folder_lock(x, e) || kinds_check(x, e))) return -1;
    if (there && (x->overwrite ? profile_spare(x, e) : folder_refuse(x, e))) return -1;
    if (there) experiment_remove(x);
    if (folder_make(x->out, e) || (!there && folder_lock(x, e))) return -1;
    snprintf(path, sizeof path, "%s/metrics", x->out);
    if (folder_make(path, e)) return -1;
    x->metrics = open(path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (x->metrics < 0) return err_set(e, E_CANTCREAT, "%s: %s", path, strerror(errno));
    return out_folder_try(x->metrics, path, e);
}

int experiment_file(const struct experiment *x, const char *name, const struct text *t, struct err *e)
{
    struct out_place at;
    if (out_place_in(x->dir, x->out, name, &at, e)) return -1;
    int bad = out_file(&at, t, false, e);
    out_place_free(&at);
    return bad;
}

/* ---- numbers of a point: columns in results.csv, keys in results.json ------------------------ */

static const char *const figure_name[] = {"mean_seconds", "deviation_seconds", "least_seconds", "most_seconds",
                                          "samples_per_second", "speedup", "bound_seconds", "predicted_seconds",
                                          "warm_up_seconds", "bubble", "peak_bytes", "measured_bytes"};
enum { FIGURES = sizeof figure_name / sizeof *figure_name };

static void figures_of(const struct experiment *x, const struct experiment_point *p, double v[FIGURES])
{
    double least = NAN, most = NAN, mean = point_mean(p), n = p->seconds.n ? p->seconds.n : NAN;
    for (int i = 0; i < p->seconds.n; i++) {
        least = fmin(least, p->seconds.v[i]);
        most = fmax(most, p->seconds.v[i]);
    }
    const double all[FIGURES] = {mean, point_deviation(p), least, most, x->batch / mean, point_speedup(x, p),
                                 point_bound(p), point_predicted(p), point_warm_up(p), p->bubble / n,
                                 point_planned_bytes(p), point_measured_bytes(p)};
    memcpy(v, all, sizeof all);
}

/* RFC 4180. */
static void csv_point(const struct experiment *x, const struct experiment_point *p, struct text *t)
{
    double v[FIGURES];
    figures_of(x, p, v);
    text_add(t, "%s,%s,%d,%d,%d,%d", point_kind_name[p->kind], p->schedule, p->ranks, p->split, p->n_mb, p->seconds.n);
    for (int i = 0; i < FIGURES; i++) text_add(t, isfinite(v[i]) ? ",%.9g" : ",", v[i]);
    text_add(t, ",\"");
    for (const char *s = p->err.text; *s; s++) text_add(t, *s == '"' ? "\"\"" : "%c", *s);
    text_add(t, "\"\n");
}

static int csv_write(const struct experiment *x, struct err *e)
{
    struct text t = {0};
    text_add(&t, "kind,schedule,ranks,split_size,micro_batches,repetitions");
    for (int i = 0; i < FIGURES; i++) text_add(&t, ",%s", figure_name[i]);
    text_add(&t, ",error\n");
    for (int i = 0; i < x->points.n; i++) csv_point(x, &x->points.v[i], &t);
    int bad = experiment_file(x, "results.csv", &t, e);
    text_free(&t);
    return bad;
}

static json_t *json_point(const struct experiment *x, const struct experiment_point *p)
{
    double v[FIGURES];
    figures_of(x, p, v);
    json_t *seconds = json_array();
    for (int i = 0; i < p->seconds.n; i++) json_array_append_new(seconds, json_real(p->seconds.v[i]));
    json_t *o = json_pack("{ss ss si si si sb sb so}", "kind", point_kind_name[p->kind], "schedule", p->schedule,
                          "ranks", p->ranks, "split_size", p->split, "micro_batches", p->n_mb, "bar", p->bar, "sweep",
                          p->sweep, "seconds", seconds);
    for (int i = 0; i < FIGURES; i++)
        json_object_set_new(o, figure_name[i], isfinite(v[i]) ? json_real(v[i]) : json_null());
    json_object_set_new(o, "error", p->err.code ? json_string(p->err.text) : json_null());
    return o;
}

static json_t *json_best(const struct experiment *x, enum point_kind kind)
{
    const struct experiment_point *p = experiment_best(x, kind);
    return p ? json_point(x, p) : json_null();
}

static const char *costs_name(const struct experiment *x)
{
    return x->profile || json_object_get(json_object_get(x->config, "pipeline"), "profile") ? "measured" : "estimated";
}

static int json_write(const struct experiment *x, struct err *e)
{
    json_t *points = json_array();
    for (int i = 0; i < x->points.n; i++) json_array_append_new(points, json_point(x, &x->points.v[i]));
    json_t *o = json_pack("{ss ss ss ss ss ss* si si si si si si ss sb sf}", "version", PACKAGE_VERSION,
                          "configuration", x->conf, "name", x->name, "network", x->network, "machine", x->machine,
                          "numerics", x->numerics, "ranks", x->ranks, "threads", x->threads, "batch_size", x->batch,
                          "split_size", x->split, "steps", x->steps, "warm_up", x->warm_up, "costs", costs_name(x),
                          "stopped", x->stopped, "total_seconds", x->took);
    json_object_set_new(o, "best_pipelined", json_best(x, POINT_PIPELINED));
    json_object_set_new(o, "best_single", json_best(x, POINT_SINGLE));
    json_object_set_new(o, "points", points);
    json_object_set(o, "config", x->config);
    char *s = json_dumps(o, JSON_INDENT(1));
    struct text t = {0};
    text_add(&t, "%s\n", s);
    int bad = experiment_file(x, "results.json", &t, e);
    text_free(&t);
    free(s);
    json_decref(o);
    return bad;
}

int experiment_write(const struct experiment *x, struct err *e) { return csv_write(x, e) || json_write(x, e) ? -1 : 0; }

/* ---- the table ------------------------------------------------------------------------------- */

void experiment_title(const struct experiment *x, struct text *t)
{
    char backend[80] = "";
    const char *at = x->numerics ? strstr(x->numerics, "backend ") : NULL;
    if (at) snprintf(backend, sizeof backend, ", %.*s", (int)strcspn(at + 8, ","), at + 8);
    text_add(t, "%s, batch %d, %d ranks, %d thread%s each%s, %s", x->network, x->batch, x->ranks, x->threads,
             x->threads == 1 ? "" : "s", backend, x->machine);
}

static void cell(struct text *t, int width, const char *format, double v)
{
    char s[40] = "-";
    if (isfinite(v)) snprintf(s, sizeof s, format, v);
    text_add(t, " ");
    text_right(t, width, s);
}

static void row(const struct experiment *x, const struct experiment_point *p, struct text_unit u, struct text *t)
{
    char name[POINT_NAME];
    struct text ratio = {0};
    text_add(t, "%-15s %5d %4d", point_name(p, name), p->split, p->seconds.n);
    if (p->err.code && !p->seconds.n) {
        text_add(t, "  failed: %s\n", p->err.text);
        return;
    }
    cell(t, 8, "%.4g", point_mean(p) / u.seconds);
    cell(t, 5, "%.0f %%", 100 * point_deviation(p) / point_mean(p));
    if (experiment_single(x)) ratio_text(&ratio, experiment_single(x), p);
    text_add(t, " ");
    text_right(t, 11, ratio.n ? ratio.s : "-");
    cell(t, 8, "%.4g", point_bound(p) / u.seconds);
    cell(t, 9, "%.4g", point_predicted(p) / u.seconds);
    cell(t, 6, "%+.0f %%", 100 * (point_predicted(p) / point_mean(p) - 1));
    text_add(t, "%s%s\n", p->err.code ? "  then failed: " : "", p->err.code ? p->err.text : "");
    text_free(&ratio);
}

/* Ranks speed up a step at most by their number. A larger gain, or widely different times, come from other programs on
 * the machine. */
static bool doubt(const struct experiment_point *one, const struct experiment_point *p, struct text *t)
{
    const double most = 0.15;
    const size_t before = t->n;
    if (!one) return false;
    double times = point_mean(one) / point_mean(p), x = point_deviation(one) / point_mean(one);
    double y = point_deviation(p) / point_mean(p), worst = x > y ? x : y;
    if (times > p->ranks)
        text_add(t, "  doubtful: %.2f times on %d ranks is more than these can gain;\n"
                 "  the machine was busy, measure again\n", times, p->ranks);
    else if (worst > most)
        text_add(t, "  doubtful: times deviate by %.0f %%; the machine was busy, measure again\n", 100 * worst);
    return t->n > before;
}

static void best(const struct experiment *x, struct text_unit u, struct text *t)
{
    const struct experiment_point *p = experiment_best(x, POINT_PIPELINED), *s = experiment_best(x, POINT_SINGLE);
    if (!p) return;
    text_add(t, "best split size: %d (%s, %.4g %s)\n", p->split, p->schedule, point_mean(p) / u.seconds, u.name);
    if (experiment_single(x)) {
        text_add(t, "  ");
        ratio_text(t, experiment_single(x), p);
        text_add(t, " times as fast as one rank with the whole batch\n");
    }
    if (s) {
        text_add(t, "  ");
        ratio_text(t, s, p);
        text_add(t, " times as fast as one rank with its best size, %d\n", s->split);
    }
    if (!doubt(experiment_single(x), p, t)) doubt(s, p, t);
}

static void memory(const struct experiment *x, struct text *t)
{
    char name[POINT_NAME], planned[32], measured[32];
    for (int i = 0, n = 0; i < x->points.n; i++) {
        const struct experiment_point *p = &x->points.v[i];
        if (!(p->peak_bytes > 0 && p->measured_bytes > 0)) continue;
        if (!n++) text_add(t, "\nmemory of the rank that needs most, as planned and as measured:\n");
        text_add(t, "%-15s %5d  ", point_name(p, name), p->split);
        text_right(t, 12, text_bytes((uint64_t)p->peak_bytes, planned));
        text_right(t, 13, text_bytes((uint64_t)p->measured_bytes, measured));
        text_add(t, "\n");
    }
}

/* Prints the time to which all speed-ups are relative. */
static void baseline(const struct experiment *x, struct text *t)
{
    const double MUCH = 0.1;
    const struct experiment_point *s = experiment_single(x);
    double d = s ? point_deviation(s) / point_mean(s) : NAN;
    if (!isfinite(d) || d <= MUCH) return;
    text_add(t, "note: the baseline of all speed-ups, one rank with the whole batch, deviates by\n"
                "%.0f %% from one repetition to another: use more repetitions\nor an idle machine\n",
             100 * d);
}

void experiment_table(const struct experiment *x, struct text *t)
{
    double top = 0;
    for (int i = 0; i < x->points.n; i++) if (x->points.v[i].seconds.n) top = fmax(top, point_mean(&x->points.v[i]));
    struct text_unit u = text_unit(top);
    experiment_title(x, t);
    text_add(t,
             "\n%s a step of %d samples; %d step%s a repetition after %d of warm-up;\npredicted with %s costs; "
             "±: standard deviation of both times\n\n%-15s %5s %4s %8s %5s %11s %8s %9s %6s\n",
             u.plural, x->batch, x->steps, x->steps == 1 ? "" : "s", x->warm_up, costs_name(x), "", "split", "runs",
             "mean", "dev.", "speed-up", "bound", "predicted", "error");
    for (int i = 0; i < x->points.n; i++) row(x, &x->points.v[i], u, t);
    text_add(t, "\n");
    best(x, u, t);
    baseline(x, t);
    memory(x, t);
}
