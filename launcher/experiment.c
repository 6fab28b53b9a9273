/* mpstage-experiment: the command line and the order of work. See mpstage-experiment(1). */
#include <limits.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include "base/launched.h"
#include "cli.h"
#include "config.h"
#include "experiment.h"

/* ---- the command line ------------------------------------------------------------------------ */

static int take_splits(struct experiment *x, const char *list, struct err *e)
{
    char *copy = mem_strdup(list);
    int bad = 0, n;
    for (char *rest = copy, *part; !bad && (part = strsep(&rest, ","));) {
        bad = cli_count("--splits", part, 1, &n, e);
        for (int i = 0; !bad && i < x->splits.n; i++)
            if (x->splits.v[i] == n) bad = err_set(e, E_USAGE, "--splits: %d is named twice", n);
        if (!bad) *vec_push(&x->splits) = n;
    }
    free(copy);
    return bad;
}

static int take_schedules(struct experiment *x, const char *list, struct err *e)
{
    for (const char *s = list;; s++) {
        size_t n = strcspn(s, ",");
        if (!n) return err_set(e, E_USAGE, "--schedules: \"%s\" has an empty name", list);
        words_add(&x->schedules, "%.*s", (int)n, s);
        s += n;
        if (!*s) return 0;
    }
}

static int option_take(struct experiment *x, int c, const char *arg, struct err *e)
{
    switch (c) {
    case EXPERIMENT_CONFIG: x->conf = arg; return 0;
    case EXPERIMENT_RANKS: return cli_count("--ranks", arg, 2, &x->ranks, e);
    case EXPERIMENT_REPEAT: return cli_count("--repeat", arg, 1, &x->repeat, e);
    case EXPERIMENT_SWEEP_REPEAT: return cli_count("--sweep-repeat", arg, 1, &x->sweep_repeat, e);
    case EXPERIMENT_STEPS: return cli_count("--steps", arg, 1, &x->steps, e);
    case EXPERIMENT_WARM_UP: return cli_count("--warm-up", arg, 0, &x->warm_up, e);
    case EXPERIMENT_SPLITS: return take_splits(x, arg, e);
    case EXPERIMENT_SCHEDULES: return take_schedules(x, arg, e);
    case EXPERIMENT_OUT: x->out = arg; return 0;
    case EXPERIMENT_OVERWRITE: x->overwrite = true; return 0;
    case EXPERIMENT_NO_PROFILE: x->no_profile = true; return 0;
    case EXPERIMENT_NO_PLOTS: x->no_plots = true; return 0;
    case EXPERIMENT_MPIRUN: x->mpirun = arg; return 0;
    default: x->mpstaged = arg; return 0;
    }
}

/* Refuses options that the experiment itself varies. */
static int extra_check(const struct experiment *x, struct err *e)
{
    static const char *const ours[] = {"-c",        "--stage-config", "--schedule", "--split-size",
                                       "--stages",  "--steps",        "--epochs",   "--run-dir",
                                       "--profile", "--plan",         "--evaluate", "--resume"};
    for (int i = 0; i < x->extra.n; i++)
        for (size_t j = 0; j < sizeof ours / sizeof *ours; j++)
            if (!strncmp(x->extra.v[i], ours[j], strlen(ours[j])) && strchr("=", x->extra.v[i][strlen(ours[j])]))
                return err_set(e, E_USAGE, "%s cannot be passed on: the experiment sets it itself", ours[j]);
    return 0;
}

/* 0: continue; 1: finished, as after --help; -1: *e. */
static int parse(struct experiment *x, int argc, char **argv, struct err *e)
{
    int c;
    while ((c = cli_next(&cli_experiment, argc, argv, e)) >= 0) if (option_take(x, c, optarg, e)) return -1;
    if (c != CLI_END) return c == CLI_FINISHED ? 1 : -1;
    if (optind < argc && strcmp(argv[optind - 1], "--"))
        return err_set(e, E_USAGE, "unexpected argument %s (options of mpstaged come after --)", argv[optind]);
    for (; optind < argc; optind++) words_add(&x->extra, "%s", argv[optind]);
    if (!x->conf) return err_set(e, E_USAGE, "no configuration: use -c FILE (see mpstage-experiment --help)");
    return extra_check(x, e);
}

/* Finds the daemon in the folder of this program, so that a build tree measures itself; otherwise the one in PATH. */
static char *mpstaged_find(void)
{
    char path[PATH_MAX + 16];
    ssize_t n = readlink("/proc/self/exe", path, PATH_MAX);
    if (n > 0) {
        path[n] = 0;
        strcpy(strrchr(path, '/') + 1, "mpstaged");
        if (access(path, X_OK) == 0) return mem_strdup(path);
    }
    return mem_strdup("mpstaged");
}

/* ---- the order of work ----------------------------------------------------------------------- */

void say(const char *fmt, ...)
{
    char line[2000], clean[4000];
    va_list ap;
    va_start(ap, fmt);
    vsnprintf(line, sizeof line, fmt, ap);
    va_end(ap);
    size_t n = strlen(line);
    bool ends = n && line[n - 1] == '\n';
    if (ends) line[n - 1] = 0;
    fprintf(stderr, "%s%s", text_printable(line, clean, sizeof clean), ends ? "\n" : "");
}

static int experiment_fail(const struct err *e)
{
    say("mpstage-experiment: %s\n", e->text);
    return e->code;
}

/* The exit status of an experiment: stopped, or the status of the first failed point. */
static int verdict(const struct experiment *x)
{
    int failed = 0, code = 0;
    for (int i = 0; i < x->points.n; i++) {
        if (!x->points.v[i].err.code) continue;
        failed++;
        if (!code) code = x->points.v[i].err.code;
    }
    if (failed) say("mpstage-experiment: %d of %d points failed\n", failed, x->points.n);
    if (x->stopped) say("mpstage-experiment: stopped; what was measured is kept\n");
    return x->stopped ? E_STOPPED : code;
}

/* Prints each line of s, which it changes. */
static void print_lines(char *s)
{
    char clean[4000];
    for (char *line; s && *s && (line = strsep(&s, "\n"));) puts(text_printable(line, clean, sizeof clean));
}

static int results(const struct experiment *x, struct err *e)
{
    struct text t = {0};
    if (experiment_write(x, e)) return -1;
    experiment_table(x, &t);
    int drawn = x->no_plots ? 1 : experiment_plot(x, e);
    if (drawn == 0) text_add(&t, "%s: results.csv, results.json, bars.png, bars.svg, sweep.png, sweep.svg\n", x->out);
    else text_add(&t, "%s: results.csv, results.json\n", x->out);
    if (drawn == 1 && !x->no_plots)
        say("mpstage-experiment: no plots: gnuplot is not installed (apt-get install gnuplot-nox)\n");
    enum { INDENT = 4 };
    struct text folded = {0};
    text_fold(t.s, text_output_columns(), INDENT, &folded);
    print_lines(folded.s);
    text_free(&folded);
    text_free(&t);
    if (text_output_end(e)) return -1;
    return drawn < 0 ? -1 : 0;
}

static bool any_measured(const struct experiment *x)
{
    for (int i = 0; i < x->points.n; i++)
        if (x->points.v[i].seconds.n) return true;
    return false;
}

static int nothing(const struct experiment *x, struct err *e)
{
    experiment_remove(x);
    rmdir(x->out);
    return err_set(e, E_STOPPED, "stopped; nothing was measured");
}

static int experiment(struct experiment *x, struct err *e)
{
    struct text out = {0};
    char *beside = mpstaged_find();
    if (!x->mpstaged) x->mpstaged = beside;
    child_signals();
    signal(SIGXFSZ, SIG_IGN);
    int bad = experiment_configure(x, e);
    if (!bad && !x->out) {
        text_add(&out, "experiments/%s", x->name);
        x->out = out.s;
    }
    bad = bad || experiment_folder(x, e);
    if (!bad) {
        experiment_points(x);
        experiment_profile(x);
        experiment_measure(x);
        bad = x->stopped && !any_measured(x) ? nothing(x, e) : results(x, e);
    }
    text_free(&out);
    free(beside);
    return bad ? -1 : 0;
}

static void experiment_free(struct experiment *x)
{
    for (int i = 0; i < x->points.n; i++) vec_free(&x->points.v[i].seconds);
    vec_free(&x->points);
    vec_free(&x->splits);
    words_free(&x->schedules);
    words_free(&x->extra);
    json_decref(x->config);
    free(x->name);
    free(x->network);
    free(x->numerics);
    free(x->machine);
    free(x->profile);
    if (x->metrics >= 0) close(x->metrics);
    if (x->dir >= 0) close(x->dir);
}

static void out_of_memory(size_t bytes)
{
    struct err e = {0};
    err_set(&e, E_INTERNAL, "out of memory: cannot allocate %zu bytes", bytes);
    _exit(experiment_fail(&e));
}

int main(int argc, char **argv)
{
    struct experiment x = {.repeat = 5, .sweep_repeat = 2, .steps = 1, .warm_up = 1, .dir = -1, .metrics = -1};
    struct err e = {0};
    mem_oom_handler(out_of_memory);
    json_set_alloc_funcs(mem_alloc, free);
    setenv("HWLOC_COMPONENTS", "-gl", 0); /* keeps mpirun from looking for X displays */
    int said = parse(&x, argc, argv, &e);
    if (!said && launched_once("mpstage-experiment", &e)) said = -1;
    int code = said > 0 ? 0 : said < 0 || experiment(&x, &e) ? experiment_fail(&e) : verdict(&x);
    experiment_free(&x);
    return code;
}
