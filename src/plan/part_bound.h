/* Lower bounds of the simulated step time over all cuts, for part_auto. Pure. */
#ifndef PLAN_PART_BOUND_H
#define PLAN_PART_BOUND_H
#include "plan/part.h"

/* earliest start; least time between the end of the stage's last B and the end of the step */
struct bound_stage { double start, after; };
struct part_bound {
    const struct part_request *q;
    int n;                                               /* groups */
    int n_micro, full, last;                             /* micro-batches; samples of the first and of the last */
    bool eager;                                          /* every W comes right after its B */
    /* Sums over groups [0, i): of all micro-batches; of the cheapest one (1); W of the most expensive one; the
     * optimizer. */
    double *f, *b, *w, *f1, *b1, *w1, *w_most, *opt;
    /* the first group that a group reads from; the minimum of each BOUND_BLOCK groups */
    int *from, *least_from;
};
/* eager: from the schedule's rows (bound_eager). */
void bound_make(struct part_bound *x, const struct part_request *q, bool eager);
void bound_free(struct part_bound *x);
bool bound_eager(const struct plan *p);
/* A bound of the whole step from stage i = groups [cut[i], cut[i + 1]). The stages before it are known: it reads st[0
 * .. i-1] and sets st[i]. */
double bound_stage(const struct part_bound *x, const int *cut, int i, struct bound_stage *st);
/* ... from the groups after `first`, however stages i .. n_stages - 1 divide them. */
double bound_rest(const struct part_bound *x, int first, int i);
#endif
