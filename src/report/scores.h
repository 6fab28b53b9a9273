/* Names and formats of the scores that a network's operators define (graph_scores). No other file knows them. */
#ifndef REPORT_SCORES_H
#define REPORT_SCORES_H
#include "exec/exec.h"
#include "job/job.h"

struct score_style {
    const char *row;                                      /* score_row.name */
    /* in metrics.jsonl and status, with "test_" before it for a test; in event files with "train/" or "test/" */
    const char *key;
    const char *text, *brief;                             /* in lines for people; where space is short */
    bool bits;                                            /* metrics.jsonl also has its 64 bits, as KEY_bits */
    bool significant;                                     /* printed with significant digits, otherwise with decimals */
    bool tests_only;                                      /* not shown after a step */
    bool rises;                                           /* higher is better */
    bool beside;                                          /* the loss says more: accuracy of a language model */
};
/* A row that is not in the table has its own name everywhere. */
struct score_style score_style(const char *row);
/* The same for a key. */
struct score_style score_style_of(const char *key);
/* 78, with the names there are, unless checkpoint.best is a score of the evaluations, and there are evaluations; a
 * prediction has none. */
int scores_check(const struct job *j, struct err *e);
/* Whether a higher value is better. key: as score_style.key. */
bool score_rises(const char *key);
/* The row that people judge a network by: the first that rises and is not beside the loss, otherwise the loss. */
int scores_leading(const struct scores *s);
bool score_better(const char *key, double a, double b);   /* whether a is better than b; a NaN never is */
/* The mean of a row of a network's sums; row 0 is the loss. NaN if nothing was counted, as for the Dice of a class that
 * no case has. A loss without counts is 0. */
bool score_counted(const struct score_sum *s);
double score_mean(const struct score_sum *all, int row);
/* Prints "accuracy 0.912", with four decimals for a test, or "Dice none". Returns the length, as snprintf does. */
enum score_form { SCORE_STEP, SCORE_BRIEF, SCORE_TEST };
int score_print(const struct score_style *s, double x, enum score_form form, char *buf, size_t n);
#endif
