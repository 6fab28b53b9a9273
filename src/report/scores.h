/* Names and formats of the scores that a network's operators name (graph_scores). Nothing else knows them. */
#ifndef REPORT_SCORES_H
#define REPORT_SCORES_H
#include "exec/exec.h"
#include "job/job.h"

struct score_style {
    const char *row;                                      /* score_row.name */
    /* in metrics.jsonl and status, with "test_" before it if of a test; in event files with "train/" or "test/" */
    const char *key;
    const char *text, *brief;                             /* in lines for people; where there is little room */
    bool bits;                                            /* metrics.jsonl has its 64 bits, too, as KEY_bits */
    bool significant;                                     /* printed with significant digits, otherwise with decimals */
    bool tests_only;                                      /* not shown after a step */
    bool rises;                                           /* more is better */
};
/* A row that is not in the table has its own name everywhere. */
struct score_style score_style(const char *row);
/* The same of a key. */
struct score_style score_style_of(const char *key);
/* 78 with the names there are, unless checkpoint.best is a score of the evaluations, and there are any; a prediction
 * has none. */
int scores_check(const struct job *j, struct err *e);
/* Is more of it better? key: as score_style.key. */
bool score_rises(const char *key);
bool score_better(const char *key, double a, double b);   /* is a better than b? no NaN is */
/* The mean of a row of a network's sums, of which the first is the loss. NaN where nothing was counted, as for the Dice
 * of a class that no case has; but a loss of nothing is 0. */
bool score_counted(const struct score_sum *s);
double score_mean(const struct score_sum *all, int row);
/* "accuracy 0.912", with four decimals for a test, or "Dice none". Returns the length, as snprintf. */
enum score_form { SCORE_STEP, SCORE_BRIEF, SCORE_TEST };
int score_print(const struct score_style *s, double x, enum score_form form, char *buf, size_t n);
#endif
