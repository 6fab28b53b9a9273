/* Finds ranks that became slow. Their steps take, without waits, more than twice as long as the plan and as the rank's
 * own first steps, for ten steps. Reported once, and once more at the end; there is no other consequence. Pure.
 *
 * Rank 0's scheduler thread. */
#ifndef REPORT_STRAGGLER_H
#define REPORT_STRAGGLER_H
#include <stdbool.h>
#include <stdint.h>

/* FIRST: the first steps, after one that warms up, whose median counts. STEPS: how many steps in a row decide. TIMES:
 * how many times as long as usual. The times of short steps vary, so an excess below WORTH_NS is never slow. */
enum { STRAGGLER_FIRST = 10, STRAGGLER_STEPS = 10, STRAGGLER_TIMES = 2, STRAGGLER_WORTH_NS = 5000000 };
enum straggler_news { STRAGGLER_NONE, STRAGGLER_SLOW, STRAGGLER_OVER };
struct straggler {
    double planned_ns;                                    /* 0: the plan gives no time */
    double first[STRAGGLER_FIRST], last[STRAGGLER_STEPS], usual_ns;
    int n_first, in_row;
    bool warm, slow;
    uint64_t since;                                       /* the step that was found slow */
};
/* Takes the rank's busy time in a full step. SLOW: *times is the factor by which it exceeds the usual time. */
enum straggler_news straggler_step(struct straggler *s, uint64_t step, double busy_ns, double *times);
#endif
