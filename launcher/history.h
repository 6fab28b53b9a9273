/* The history of a run, from its metrics.jsonl: for mpstagectl report. One thread. */
#ifndef LAUNCHER_HISTORY_H
#define LAUNCHER_HISTORY_H
#include <jansson.h>
#include <stdbool.h>
#include "base/err.h"
#include "base/mem.h"
#include "ctl_say.h"

enum { HISTORY_SCORES = 10 };
/* n: steps since the line before, which service.metrics_every may leave out. Missing: seconds and mfu 0, others NAN. */
struct history_step { long long step, n; double seconds, mfu, rate, lr, norm, score[HISTORY_SCORES]; };
struct history_test { long long step; double score[HISTORY_SCORES]; };      /* an evaluation */
/* The seconds of a rank, in the steps of struct history_account. */
struct history_rank { int stage; double part[CTL_PARTS], peak; };
/* Of the steps since the last start with another plan; the first step of each start, which warms up, does not count. */
struct history_account { long long steps; double seconds; VEC(struct history_rank) ranks; };
struct history {
    VEC(struct history_step) steps;                       /* those that count, in order */
    VEC(struct history_test) tests;
    char *score[HISTORY_SCORES];                          /* names, the loss first */
    int n_scores;
    bool crowded;                                         /* there are more scores than places for them */
    bool tokens;                                          /* rates are of tokens, not of samples */
    struct history_account account;
    VEC(json_t *) events;                                 /* other lines, in order */
    const json_t *start;                                  /* the last event start or resume; NULL: none */
    long long at;                                         /* the step before the next line's */
    long long starts, failures, rollbacks, lost;          /* a start without an end is a failure once another follows; a
                                                              stop on request is none */
    long long lines, damaged;                             /* damaged: those that cannot be read */
    bool runs, fresh;                                     /* runs: no end is known; fresh: no step since the start */
    double lost_seconds, began, ended;                    /* began, ended: seconds since 1970; 0: unknown */
};

/* Reads RUN/metrics.jsonl; what is damaged is left out and counted. 65: nothing of a run is in it, 66, 74. Call
 * history_free after any result. */
int history_read(const char *dir, struct history *h, struct err *e);
void history_free(struct history *h);
bool history_rises(const char *score);                    /* whether more is better */
int history_best(const struct history *h, int score);     /* the index of the best evaluation; -1: none */

/* Calls `take` for each whole line of a regular file, and `rest` for what follows the last one. mtime: NULL, or gets
 * the file's time. 65, 66, 74. */
typedef void lines_take(void *to, const char *line, size_t n);
int lines_read(const char *path, lines_take *take, lines_take *rest, void *to, double *mtime, struct err *e);

/* Walks over a line of JSON without making values of it, in a tenth of the time: tells each number of the object
 * (element -1), and of the objects in its array "stages" (their index). true is 1, false 0, null NAN. Returns false if
 * the line is damaged. line[n] must be readable, and no digit. */
typedef void scan_take(void *to, int element, const char *key, size_t n, double value);
bool json_scan(const char *line, size_t n, scan_take *take, void *to);
#endif
