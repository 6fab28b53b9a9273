/* mpstage-experiment: compares one rank, naive model parallelism and the pipeline on the same work, and split sizes.
 * One thread.
 *
 * A mpstaged under mpirun measures each point; the results are read from its metrics.jsonl. */
#ifndef LAUNCHER_EXPERIMENT_H
#define LAUNCHER_EXPERIMENT_H
#include <jansson.h>
#include <stdbool.h>
#include "base/err.h"
#include "base/mem.h"
#include "base/text.h"
#include "job.h"

struct argument_words { char **v; int n, cap; }; /* NULL at the end for a command line; owns its strings */
void words_add(struct argument_words *w, const char *fmt, ...) __attribute__((format(printf, 2, 3)));
/* Adds the words of a text. */
void words_split(struct argument_words *w, const char *fmt, ...) __attribute__((format(printf, 2, 3)));
void words_free(struct argument_words *w);

enum point_kind { POINT_SINGLE, POINT_NAIVE, POINT_PIPELINED };
extern const char *const point_kind_name[];

struct experiment_point {
    enum point_kind kind;
    const char *schedule;
    int ranks, split, n_mb;          /* n_mb: micro-batches per step, from the plan */
    int runs, ran, repeats;          /* programs to start, successful ones, repetitions in each */
    bool bar, sweep;                 /* which pictures show it */
    VEC(double) seconds;             /* of one step, the mean of each repetition */
    double bound, bubble;            /* sums over repetitions */
    double warm_up;                  /* sum over runs */
    double peak_bytes, measured_bytes; /* of the rank with the most: planned, and measured; 0: unknown */
    double predicted, wall;          /* wall: time of the last whole run */
    struct err err;                  /* why it has no runs, or no further ones */
};

struct experiment {
    const char *conf, *mpirun, *mpstaged, *out; /* the command line */
    int ranks, chunks;               /* chunks: stages per rank */
    int repeat, sweep_repeat, steps, warm_up;
    bool overwrite, no_profile, no_plots;
    VEC(int) splits;
    struct argument_words schedules, extra;

    char *name, *network, *numerics, *machine; /* from the configuration, the first run and the machine */
    int batch, split, threads;
    const char *schedule;
    json_t *config;
    int dir, metrics;               /* the output folder, locked, and metrics/ in it */
    char *profile; /* file of measured costs; NULL: estimated ones */
    struct err profile_err;
    VEC(struct experiment_point) points;
    double took;
    bool stopped;
};

/* Prints a line, or part of one, to standard error, in a form that is safe on a terminal. */
void say(const char *fmt, ...) __attribute__((format(printf, 1, 2)));

/* ---- experiment_run.c: other programs -------------------------------------------------------- */

/* Makes SIGINT, SIGTERM and SIGHUP end the running program. After such a signal child_stopped() is true and no more
 * programs start. Programs get these signals unblocked. */
void child_signals(void);
bool child_stopped(void);
void child_forgive(void); /* lets a short program start after a signal */
/* Runs a program until all its processes are gone. Returns its exit status (128 + signal), or -1 with *e as from
 * job_start if it cannot be started. */
int child_run(struct argument_words *argv, const struct job_files *files, struct err *e);
/* Sets e to that code and the line of a program's output that describes the error. Returns -1. */
int child_error(int output, int code, struct err *e);

/* ---- experiment_points.c: the points to measure ---------------------------------------------- */
int experiment_configure(struct experiment *x, struct err *e); /* reads the configuration; 78 and errors of mpstaged */
void experiment_points(struct experiment *x);  /* lists the points with predictions; a refused one has its error */
void experiment_profile(struct experiment *x); /* measures costs, unless a profile is given */
void experiment_measure(struct experiment *x); /* does all runs, interleaved */
#define EXPERIMENT_RUN "experiment-run-"       /* beginning of a run directory's name */

/* ---- experiment_metrics.c: numbers ----------------------------------------------------------- */
int metrics_take(struct experiment *x, struct experiment_point *p, const char *path, struct err *e);
double point_mean(const struct experiment_point *p); /* NAN without a repetition, like all of these */
double point_deviation(const struct experiment_point *p); /* of a sample, n - 1: NAN with one repetition */
double point_warm_up(const struct experiment_point *p); /* of one step */
double point_bound(const struct experiment_point *p);
double point_predicted(const struct experiment_point *p);
double point_planned_bytes(const struct experiment_point *p);
double point_measured_bytes(const struct experiment_point *p);
double point_speedup(const struct experiment *x, const struct experiment_point *p);
enum { POINT_NAME = 100 };
const char *point_name(const struct experiment_point *p, char buf[POINT_NAME]); /* for people: "pipelined 1f1b";
    returns buf */
/* Standard deviation of mean(a) / mean(b), from the known deviations of a and b; NAN: both are unknown, or a is b. */
double points_ratio_deviation(const struct experiment_point *a, const struct experiment_point *b);
/* "1.52 ± 0.56", without the deviation if it is unknown */
void ratio_text(struct text *t, const struct experiment_point *a, const struct experiment_point *b);
/* one rank, whole batch; NULL if it failed */
const struct experiment_point *experiment_single(const struct experiment *x);
const struct experiment_point *experiment_best(const struct experiment *x,
                                               enum point_kind kind); /* the fastest of the sweep; NULL: none */

/* ---- experiment_write.c, experiment_plot.c: results ------------------------------------------ */
/* Makes the folder and locks it until the program ends. 73 if it has results, 75 if another experiment uses it. */
int experiment_folder(struct experiment *x, struct err *e);
/* Writes a whole file in the folder. */
int experiment_file(const struct experiment *x, const char *name, const struct text *t, struct err *e);
void experiment_remove(const struct experiment *x); /* removes an experiment's files from it, and no others */
int experiment_write(const struct experiment *x, struct err *e);  /* writes results.csv and results.json */
void experiment_table(const struct experiment *x, struct text *t);
void experiment_title(const struct experiment *x, struct text *t);
int experiment_plot(const struct experiment *x, struct err *e); /* 0; 1: no gnuplot; 2: nothing to draw */

#endif
