/* The points: their list, the planner's predictions, and the runs that measure them. */
#include "config.h"
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>
#include "base/clock.h"
#include "base/out.h"
#include "experiment.h"

const char *const point_kind_name[] = {"single", "naive", "pipelined"};

/* ---- requests to the planner ----------------------------------------------------------------- */

/* Runs mpstaged in a mode that prints JSON. Returns the object; NULL: e has mpstaged's message and exit status. */
static json_t *ask(struct argument_words *argv, struct err *e)
{
    int out = memfd_create("answer", MFD_CLOEXEC), error = memfd_create("errors", MFD_CLOEXEC), code = -1;
    json_t *o = NULL;
    if (out < 0 || error < 0) err_set(e, E_INTERNAL, "memfd_create: %s", strerror(errno));
    else code = child_run(argv, &(struct job_files){out, error, -1}, e);
    if (code == 0 && (lseek(out, 0, SEEK_SET) || !(o = json_loadfd(out, 0, NULL))))
        err_set(e, E_INTERNAL, "%s: the output is not JSON", argv->v[0]);
    else if (code > 0) child_error(error, code, e);
    if (e->code == JOB_NOT_STARTED || e->code == JOB_NOT_FOUND) e->code = E_NOINPUT;
    if (out >= 0) close(out);
    if (error >= 0) close(error);
    return o;
}

/* Adds `before` and the name of a file or folder, written as in a configuration: $$ is $, ./~ begins with ~. */
static void file_add(struct argument_words *w, const char *before, const char *name)
{
    struct text t = {0};
    text_add(&t, "%s%s", before, *name == '~' ? "./" : "");
    for (; *name; name++) text_add(&t, *name == '$' ? "$%c" : "%c", *name);
    words_add(w, "%s", t.s);
    text_free(&t);
}

static void add_base(const struct experiment *x, struct argument_words *w)
{
    words_add(w, "%s", x->mpstaged);
    words_add(w, "-c");
    words_add(w, "%s", x->conf);
    for (int i = 0; i < x->extra.n; i++) words_add(w, "%s", x->extra.v[i]);
    if (x->profile) {
        words_add(w, "-o");
        file_add(w, "pipeline.profile=", x->profile);
    }
}

/* As many stages per rank as in the configured plan; for one rank one. All points are one pipeline, even if the
 * configuration has replicas. */
static void add_ranks(const struct experiment *x, int ranks, struct argument_words *w)
{
    int chunks = ranks > 1 ? x->chunks : 1;
    words_split(w, "-o pipeline.replicas=1 --stages %d -o pipeline.ranks=%d", ranks * chunks, ranks);
}

/* Adds the options of this point. The control is one stage, for any partition. */
static void add_point(const struct experiment *x, const struct experiment_point *p, struct argument_words *w)
{
    words_add(w, "--schedule");
    words_add(w, "%s", p->schedule);
    words_split(w, "--split-size %d", p->split);
    if (p->kind == POINT_SINGLE) words_split(w, "-o pipeline.partition=uniform");
    add_ranks(x, p->ranks, w);
}

static void point_predict(const struct experiment *x, struct experiment_point *p)
{
    struct argument_words argv = {0};
    add_base(x, &argv);
    add_point(x, p, &argv);
    words_split(&argv, "--plan --json");
    json_t *o = ask(&argv, &p->err);
    p->predicted = json_number_value(json_object_get(o, "step_seconds"));
    p->n_mb = (int)json_integer_value(json_object_get(o, "micro_batches"));
    json_decref(o);
    words_free(&argv);
}

/* ---- the configuration ----------------------------------------------------------------------- */

static char *machine_name(void)
{
    static const char key[] = "model name\t: ";
    struct text all = {0};
    char *at = text_read_file(&all, "/proc/cpuinfo", 1 << 24, NULL) || !all.n ? NULL : strstr(all.s, key);
    if (at) at[strcspn(at, "\n")] = 0;
    char *name = mem_strdup(at ? at + sizeof key - 1 : "unknown processor");
    text_free(&all);
    return name;
}

static const char *word_of(const json_t *section, const char *key, const char *otherwise)
{
    const char *s = json_string_value(json_object_get(section, key));
    return s ? s : otherwise;
}

static char *network_name(const json_t *model)
{
    struct text t = {0};
    const json_t *in = json_object_get(model, "input"), *d;
    size_t i;
    text_add(&t, "%s", word_of(model, "network", word_of(model, "graph", "network")));
    json_array_foreach ((json_t *)in, i, d) text_add(&t, "%s%lld", i ? "x" : " on ", (long long)json_integer_value(d));
    return t.s;
}

/* The number of ranks that have the stages of a plan. */
static int ranks_of(const json_t *plan)
{
    int most = 0;
    size_t i;
    json_t *stage;
    json_array_foreach (json_object_get(plan, "stages"), i, stage) {
        int rank = (int)json_integer_value(json_object_get(stage, "rank"));
        if (rank > most) most = rank;
    }
    return most + 1;
}

int experiment_configure(struct experiment *x, struct err *e)
{
    struct argument_words argv = {0};
    add_base(x, &argv);
    words_split(&argv, "--print-config --json");
    x->config = ask(&argv, e);
    words_free(&argv);
    if (!x->config) return -1;
    const json_t *run = json_object_get(x->config, "run"), *train = json_object_get(x->config, "train"),
                 *pipeline = json_object_get(x->config, "pipeline");
    x->name = mem_strdup(word_of(run, "name", "run"));
    x->threads = (int)json_integer_value(json_object_get(run, "threads"));
    x->batch = (int)json_integer_value(json_object_get(train, "batch_size"));
    x->split = (int)json_integer_value(json_object_get(train, "split_size"));
    x->schedule = word_of(pipeline, "schedule", "1f1b");
    if (x->split < 1) x->split = x->batch;
    if (json_object_get(pipeline, "profile")) x->no_profile = true;
    x->network = network_name(json_object_get(x->config, "model"));
    x->machine = machine_name();

    add_base(x, &argv); /* fails if the configured plan is not possible with these ranks */
    words_split(&argv, "--plan --json -o pipeline.replicas=1");
    if (x->ranks) words_split(&argv, "--stages %d -o pipeline.ranks=%d", x->ranks, x->ranks);
    json_t *plan = ask(&argv, e);
    words_free(&argv);
    if (!plan) return -1;
    x->ranks = ranks_of(plan);
    x->chunks = (int)json_array_size(json_object_get(plan, "stages")) / x->ranks;
    json_decref(plan);
    if (x->ranks < 2)
        return err_set(e, E_CONF, "%s: one stage is not a pipeline: use -n RANKS, or set stages in section pipeline",
                       x->conf);
    return 0;
}

/* ---- the list -------------------------------------------------------------------------------- */

static void point_add(struct experiment *x, enum point_kind kind, const char *schedule, int split, bool bar)
{
    for (int i = 0; i < x->points.n; i++) {
        struct experiment_point *p = &x->points.v[i];
        if (p->kind != kind || p->split != split || strcmp(p->schedule, schedule)) continue;
        p->sweep |= !bar;
        return;
    }
    struct experiment_point p = {.kind = kind,
                                 .schedule = schedule,
                                 .ranks = kind == POINT_SINGLE ? 1 : x->ranks,
                                 .split = split,
                                 .bar = bar,
                                 .sweep = !bar,
                                 .runs = bar ? x->repeat : 1,
                                 .repeats = bar ? 1 : x->repeat < x->sweep_repeat ? x->repeat : x->sweep_repeat};
    *vec_push(&x->points) = p;
}

static int compare_splits(const void *a, const void *b) { return *(const int *)a - *(const int *)b; }

/* Sizes of a quarter, a half, one and two times the configured one. */
static void default_splits(struct experiment *x)
{
    const int want[] = {x->split / 4, x->split / 2, x->split, x->split * 2};
    for (size_t i = 0; i < sizeof want / sizeof *want; i++)
        if (want[i] >= 1 && want[i] <= x->batch) *vec_push(&x->splits) = want[i];
}

/* One rank with the whole batch comes first: all other points are compared with it. */
void experiment_points(struct experiment *x)
{
    if (!x->splits.n) default_splits(x);
    qsort(x->splits.v, (size_t)x->splits.n, sizeof *x->splits.v, compare_splits);
    if (!x->schedules.n) words_add(&x->schedules, "%s", x->schedule);
    point_add(x, POINT_SINGLE, "naive", x->batch, true);
    x->points.v[0].sweep = true;
    point_add(x, POINT_NAIVE, "naive", x->batch, true);
    for (int i = 0; i < x->schedules.n; i++) point_add(x, POINT_PIPELINED, x->schedules.v[i], x->split, true);
    for (int s = 0; s < x->splits.n; s++) {
        point_add(x, POINT_SINGLE, "naive", x->splits.v[s], false);
        for (int i = 0; i < x->schedules.n; i++)
            point_add(x, POINT_PIPELINED, x->schedules.v[i], x->splits.v[s], false);
    }
    for (int i = 0; i < x->points.n; i++) point_predict(x, &x->points.v[i]);
}

/* ---- running --------------------------------------------------------------------------------- */

static void add_launcher(const struct experiment *x, int ranks, struct argument_words *w)
{
    long cores = sysconf(_SC_NPROCESSORS_ONLN);
    bool fits = (long)x->ranks * x->threads <= cores;
    if (x->mpirun) words_split(w, "%s", x->mpirun);
    else words_split(w, "mpirun --bind-to %s", fits && x->threads == 1 ? "core" : "none");
#ifndef WITH_MPICH
    words_split(w, "%s %s", fits ? "" : "--oversubscribe", geteuid() ? "" : "--allow-run-as-root");
#endif
    words_split(w, "-np %d", ranks);
}

/* Runs mpirun with one set of options; keeps its output only if it fails. */
static int launch(const struct experiment *x, struct argument_words *argv, const char *log, struct err *e)
{
    struct out_records file;
    bool ours = !out_records_open(&file, x->metrics, x->out, log, e);
    int code = ours ? child_run(argv, &(struct job_files){file.fd, file.fd, -1}, e) : -1;
    if (code > 0) child_error(file.fd, code, e);
    else if (ours) unlinkat(x->metrics, log, 0);
    out_records_close(&file);
    return code;
}

static void point_run(struct experiment *x, struct experiment_point *p, int nth)
{
    char run[4200], log[200], metrics[4200], made[4300];
    struct argument_words argv = {0};
    /* a new folder each time, so all that is in it may be removed later */
    snprintf(run, sizeof run, "%s/" EXPERIMENT_RUN "XXXXXX", x->out);
    if (!mkdtemp(run)) {
        err_set(&p->err, E_CANTCREAT, "%s: %s", run, strerror(errno));
        return;
    }
    snprintf(metrics, sizeof metrics, "%s/metrics/%s-%s-%d-%d.jsonl", x->out, point_kind_name[p->kind], p->schedule,
             p->split, nth);
    snprintf(log, sizeof log, "%s-%s-%d-%d.log", point_kind_name[p->kind], p->schedule, p->split, nth);
    add_launcher(x, p->ranks, &argv);
    add_base(x, &argv);
    add_point(x, p, &argv);
    words_split(&argv, "--steps %d --run-dir", x->warm_up + x->steps * p->repeats);
    file_add(&argv, "", run);
    words_split(&argv, "--progress no -o service.log_every=0 -o service.metrics_every=1 "
                "-o service.stages_every=1 -o train.last_batch=fill "
                "-o train.evaluate_every=0 -o train.evaluate_epochs=0 -o train.patience=0 "
                "-o train.nonfinite=stop -o checkpoint.every_steps=0 -o checkpoint.every_seconds=0");
    /* with checkpoint.best the evaluation of the last step saves a checkpoint, which no time contains and which is
     * removed */
    uint64_t began = clock_ns();
    int code = launch(x, &argv, log, &p->err);
    p->wall = (double)(clock_ns() - began) / 1e9;
    snprintf(made, sizeof made, "%s/metrics.jsonl", run);
    if (code == 0) rename(made, metrics);
    folder_remove(AT_FDCWD, run);                         /* weights are large */
    if (code == 0) metrics_take(x, p, metrics, &p->err);
    words_free(&argv);
}

/* Adds the sizes of the pipelined points, ascending, except sizes that the planner refuses: they would make the whole
 * measurement fail. */
static void add_profile_sizes(const struct experiment *x, struct argument_words *w)
{
    struct text t = {0};
    for (int size = 0, next; size < INT_MAX; size = next) {
        next = INT_MAX;
        for (int i = 0; i < x->points.n; i++) {
            const struct experiment_point *p = &x->points.v[i];
            if (p->kind == POINT_PIPELINED && !p->err.code && p->split > size && p->split < next) next = p->split;
        }
        if (next < INT_MAX) text_add(&t, "%s%d", t.n ? ", " : "", next);
    }
    if (t.n) {
        words_add(w, "-o");
        words_add(w, "pipeline.profile_sizes={%s}", t.s);
    }
    text_free(&t);
}

void experiment_profile(struct experiment *x)
{
    char run[4200];
    struct argument_words argv = {0};
    if (x->no_profile || child_stopped()) return;
    say("measuring the costs of each layer\n");
    snprintf(run, sizeof run, "%s/profile", x->out);
    add_launcher(x, x->ranks, &argv);
    add_base(x, &argv);
    add_ranks(x, x->ranks, &argv);
    words_split(&argv, "--profile --run-dir");
    file_add(&argv, "", run);
    if (x->overwrite) words_add(&argv, "--overwrite");
    add_profile_sizes(x, &argv);
    if (launch(x, &argv, "profile.log", &x->profile_err) == 0) {
        struct text t = {0};
        text_add(&t, "%s/profile.json", run);
        x->profile = t.s;
        for (int i = 0; i < x->points.n; i++)
            if (!x->points.v[i].err.code) point_predict(x, &x->points.v[i]);
    } else if (!child_stopped()) {
        say("measuring failed, predictions are estimates: %s\n", x->profile_err.text);
    }
    words_free(&argv);
}

/* ---- the whole measurement ------------------------------------------------------------------- */

/* The remaining seconds: a point that ran takes as long again; others take the predicted time, corrected by the points
 * that ran. */
static double time_left(const struct experiment *x)
{
    double took = 0, expected = 0, left = 0;
    for (int i = 0; i < x->points.n; i++) {
        const struct experiment_point *p = &x->points.v[i];
        if (p->err.code || !p->ran) continue;
        took += p->wall;
        expected += p->predicted * (x->warm_up + x->steps * p->repeats);
    }
    for (int i = 0; i < x->points.n; i++) {
        const struct experiment_point *p = &x->points.v[i];
        int n = p->runs - p->ran;
        double steps = x->warm_up + x->steps * p->repeats;
        if (p->err.code || n <= 0) continue;
        left += n * (p->ran ? p->wall : expected > 0 ? p->predicted * steps * took / expected : 0);
    }
    return left;
}

static void progress(const struct experiment *x, const struct experiment_point *p, int run, int runs)
{
    char name[POINT_NAME];
    say("[%*d/%d] %s, split %d", runs > 99 ? 3 : 2, run, runs, point_name(p, name), p->split);
    if (p->runs > 1) say(", repetition %d", p->ran + (p->err.code != 0));
    say(": ");
    if (p->err.code) {
        say("failed: %s\n", p->err.text);
        return;
    }
    double left = time_left(x), step = p->runs > 1 ? p->seconds.v[p->seconds.n - 1] : point_mean(p);
    char b[32];
    say("%s a step, %.0f:%02d left\n", text_seconds(step, b), floor(left / 60), (int)fmod(left, 60));
}

static void expected(double seconds)
{
    if (seconds < 60) say("expected duration: less than a minute\n");
    else say("expected duration: about %.0f minutes\n", ceil(seconds / 60));
}

static int runs_count(const struct experiment *x)
{
    int n = 0;
    for (int i = 0; i < x->points.n; i++) n += x->points.v[i].err.code ? 0 : x->points.v[i].runs;
    return n;
}

/* Every round visits all points with remaining runs, so that a temporary disturbance of the machine affects all
 * alike. */
void experiment_measure(struct experiment *x)
{
    uint64_t began = clock_ns();
    int run = 0, runs = runs_count(x), most = x->repeat;
    char name[POINT_NAME];
    for (int i = 0; i < x->points.n; i++)
        if (x->points.v[i].err.code)
            say("%s, split %d: left out: %s\n", point_name(&x->points.v[i], name), x->points.v[i].split,
                    x->points.v[i].err.text);
    for (int r = 0; r < most; r++) {
        for (int i = 0; i < x->points.n && !child_stopped(); i++) {
            struct experiment_point *p = &x->points.v[i];
            if (p->err.code || r >= p->runs) continue;
            point_run(x, p, r + 1);
            if (child_stopped()) break;
            progress(x, p, ++run, runs);
            if (run == 1 && !p->err.code)
                expected(p->wall + time_left(x));
        }
    }
    x->stopped = child_stopped();
    child_forgive();
    for (int i = 0; x->stopped && i < x->points.n; i++)
        if (x->points.v[i].err.code == E_STOPPED) x->points.v[i].err = (struct err){0};
    x->took = (double)(clock_ns() - began) / 1e9;
}
