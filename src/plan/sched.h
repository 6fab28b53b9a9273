/* Schedules: rows of F, B, W for a rank (sched_*.c), and the text of schedule files. Pure. */
#ifndef PLAN_SCHED_H
#define PLAN_SCHED_H
#include "base/err.h"
#include "base/mem.h"
#include "plan/act.h"
#include "plan/placement.h"

/* n_mb: as act.n_mb. line: of a schedule file, where bundles are mb to last; 0: made by a schedule */
struct sched_act { uint8_t op; uint16_t stage, mb, n_mb, last; int line; };
struct sched { int n_ranks; VEC(struct sched_act) *row; };
struct sched_request {
    const struct stage_map *map;
    int n_mb, rank;
    /* most micro-batches that a stage may keep between F and B; 0: any number */
    int in_flight;
};
struct sched_kind {
    const char *name, *text;
    bool eval;                                           /* forward only */
    bool chunks;                                         /* wants several stages a rank */
    /* Appends the rank's row, for any map that it does not refuse (78): F, B and W (of an eval schedule F alone) of
     * each of the rank's stages, map->stages_of[rank], and each micro-batch, 0 to n_mb - 1, once. On a stage B comes
     * before W, and both go through the micro-batches in ascending order (R3). A bundle counts as one micro-batch.
     * What waits for what between ranks is no business of a row; plan_check finds rows that wait for each other. */
    int (*build)(const struct sched_request *r, struct sched *out, struct err *e);
};
extern const struct sched_kind *const sched_list[];
const struct sched_kind *sched_find(const char *name);   /* NULL: there is none */
void sched_push(struct sched *s, int rank, enum act_op op, int stage, int mb);
void sched_free(struct sched *s);

/* Parses compute rows ("rank 0: 0F0 0B0 0W0 ..."), the form of schedule files. */
int sched_parse(const char *file, const char *s, size_t n, struct sched *out, struct err *e);

#endif
