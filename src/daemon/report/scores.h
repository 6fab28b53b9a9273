/* How scores are called: the one place that knows it, for whatever a network's operators say (graph_scores). */
#ifndef DAEMON_REPORT_SCORES_H
#define DAEMON_REPORT_SCORES_H
#include "exec/exec.h"

struct score_style {
    const char *row;                                      /* score_row.name */
    /* in metrics.jsonl and status, of a test there with "test_" before it; in event files with "train/" or "test/" */
    const char *key;
    const char *text, *brief;                             /* in lines for people; where there is little room */
    bool bits;                                            /* metrics.jsonl has its 64 bits, too, as KEY_bits */
    bool significant;                                     /* people see significant digits, otherwise decimals */
    bool tests_only;                                      /* nothing is said of it after a step */
};
/* A row that the table does not have goes by its own name everywhere. */
struct score_style score_style(const char *row);
double score_mean(const struct score_sum *s);
/* "accuracy 0.912", of a test "accuracy 0.9123". Returns the columns, as snprintf. */
enum score_form { SCORE_STEP, SCORE_BRIEF, SCORE_TEST };
int score_print(const struct score_style *s, double x, enum score_form form, char *buf, size_t n);
#endif
