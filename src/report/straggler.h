/* Which ranks became slow: whose steps take, without waits, more than twice as long as both the plan and the rank's own
 * first steps say, for ten steps. Told once, and once more when it is over; nothing else follows from it. Pure.
 *
 * Rank 0's loop thread. */
#ifndef REPORT_STRAGGLER_H
#define REPORT_STRAGGLER_H
#include <stdbool.h>
#include <stdint.h>

/* The first steps whose median counts, after one that warms up; how many steps in a row decide; how many times as long.
 * Steps that are short vary by themselves: less than WORTH_NS more is never slow. */
enum { STRAGGLER_FIRST = 10, STRAGGLER_STEPS = 10, STRAGGLER_TIMES = 2, STRAGGLER_WORTH_NS = 5000000 };
enum straggler_news { STRAGGLER_NONE, STRAGGLER_SLOW, STRAGGLER_OVER };
struct straggler {
    double planned_ns;                                    /* 0: no plan says anything */
    double first[STRAGGLER_FIRST], last[STRAGGLER_STEPS], usual_ns;
    int n_first, in_row;
    bool warm, slow;
    uint64_t since;                                       /* the step that was found slow */
};
/* Takes what the rank was busy with in a full step. SLOW: times says how many times as long as usual. */
enum straggler_news straggler_step(struct straggler *s, uint64_t step, double busy_ns, double *times);
#endif
