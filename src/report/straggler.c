/* Finds ranks that became slow. */
#include <stdlib.h>
#include <string.h>
#include "report/straggler.h"

static int by_size(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

static double median(const double *x, int n)
{
    double sorted[STRAGGLER_FIRST > STRAGGLER_STEPS ? STRAGGLER_FIRST : STRAGGLER_STEPS];
    memcpy(sorted, x, (size_t)n * sizeof *x);
    qsort(sorted, (size_t)n, sizeof *sorted, by_size);
    return sorted[n / 2];
}

/* Collects the first steps. False: all are collected. */
static bool learns(struct straggler *s, double busy_ns)
{
    if (s->n_first == STRAGGLER_FIRST) return false;
    if (s->warm) s->first[s->n_first++] = busy_ns;
    s->warm = true;
    if (s->n_first < STRAGGLER_FIRST) return true;
    s->usual_ns = median(s->first, STRAGGLER_FIRST);
    if (s->usual_ns < s->planned_ns) s->usual_ns = s->planned_ns;
    return true;
}

enum straggler_news straggler_step(struct straggler *s, uint64_t step, double busy_ns, double *times)
{
    if (learns(s, busy_ns)) return STRAGGLER_NONE;
    bool long_one = busy_ns > STRAGGLER_TIMES * s->usual_ns && busy_ns - s->usual_ns > STRAGGLER_WORTH_NS;
    if (long_one == s->slow) {
        s->in_row = 0;
        return STRAGGLER_NONE;
    }
    s->last[s->in_row++] = busy_ns;
    if (s->in_row < STRAGGLER_STEPS) return STRAGGLER_NONE;
    *times = s->usual_ns > 0 ? median(s->last, STRAGGLER_STEPS) / s->usual_ns : 0;
    s->in_row = 0;
    s->slow = long_one;
    if (long_one) s->since = step;
    return long_one ? STRAGGLER_SLOW : STRAGGLER_OVER;
}
