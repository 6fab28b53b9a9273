/* Shared by tests of plans and of the executor: networks as text, schedules, maps of stages. */
#ifndef TESTS_RIG_GRAPHS_H
#define TESTS_RIG_GRAPHS_H
#include "plan/sched.h"

/* The rows of a schedule, in which each W takes n micro-batches at once (the last one the rest), at the position of the
 * last of them. rank_of NULL: stages in turn. sched_free */
void rig_rows(const char *schedule, int n_stages, int n_ranks, const int *rank_of, int n_mb, int n, struct sched *out);
/* One stage per rank. n_state: buffers of the optimizer. */
struct placement *rig_place(const struct selection *s, int n_stages, const int *cut, int n_state, struct err *e);

enum { N_SCHEDULES = 3 };
extern const char *const rig_schedules[N_SCHEDULES];     /* naive, gpipe, 1f1b */
extern const enum backward_mode rig_backwards[3];        /* auto first */
/* Several stages per rank: rank_of: for each stage. */
enum { N_MAPS = 8 };
extern const struct rig_map { const char *name; int stages, ranks, rank_of[6]; } rig_maps[N_MAPS];
/* Graph texts used by several suites. */
extern const char rig_frozen_resnet[], rig_narrow_frozen[];
extern const char rig_mlp_dropout[], rig_small_resnet[], rig_narrow_resnet[], rig_skip[], rig_tied[], rig_words[],
    rig_three_readers[];
#endif
