/* Schedules: rows of F, B, W for a rank (sched_*.c), and the text of schedule files. Pure. */
#ifndef PLAN_SCHED_H
#define PLAN_SCHED_H
#include "base/err.h"
#include "base/mem.h"
#include "plan/act.h"

/* n_mb: as act.n_mb. line: of a schedule file, where bundles are mb to last; 0: made by a schedule */
struct sched_act { uint8_t op; uint16_t stage, mb, n_mb, last; int line; };
struct sched { int n_ranks; VEC(struct sched_act) *row; };
struct sched_kind {
    const char *name, *text;
    bool eval;                                           /* forward only */
    /* appends rank's row */
    int (*build)(int n_stages, int n_ranks, int n_mb, int rank, struct sched *out, struct err *e);
};
extern const struct sched_kind *const sched_list[];
void sched_push(struct sched *s, int rank, enum act_op op, int stage, int mb);
void sched_free(struct sched *s);

/* Parses compute rows ("rank 0: 0F0 0B0 0W0 ..."), the form of schedule files. */
int sched_parse(const char *file, const char *s, size_t n, struct sched *out, struct err *e);

#endif
