/* Schedules: rows of F, B, W for each rank (sched_*.c), and the text of schedule files. Pure. */
#ifndef PLAN_SCHED_H
#define PLAN_SCHED_H
#include "base/err.h"
#include "base/mem.h"
#include "plan/act.h"
#include "plan/placement.h"

/* n_mb: as act.n_mb. line: in a schedule file; 0: a schedule made it */
struct sched_act { uint8_t op; uint16_t stage, mb, n_mb; int line; };
struct sched { int n_ranks; VEC(struct sched_act) *row; };
/* ns of a stage's passes for a micro-batch, and of the transfer to the next stage (down) and to the previous one
 * (up). */
struct sched_cost { double f, b, w, down, up; };
/* Grades rows: the step time of a plan with these rows, and how much it exceeds its ranks' limits. */
struct sched_grade {
    void *to;
    bool limited;                                        /* are there limits? */
    int (*weigh)(void *to, const struct sched *rows, double *ns, double *excess, struct err *e);
};
struct sched_request {
    const struct stage_map *map;
    int n_mb;
    bool in_file;                                        /* weights of some stages are read from a file as they run */
    /* most micro-batches that a rank may keep, from F until neither B nor W needs them; 0: the schedule's own number. A
     * micro-batch on one of the rank's n stages counts 1/n. */
    int in_flight;
    /* for schedules that choose. cost: of each stage; NULL: all equal. grade NULL: only costs are known */
    const struct sched_cost *cost;
    const struct sched_grade *grade;
};
struct sched_kind {
    const char *name, *text;
    bool eval;                                           /* forward only */
    bool chunks;                                         /* needs several stages a rank */
    bool weighs;                                         /* needs costs and limits */
    bool turns;                                          /* chunks, and a micro-batch turns at both ends */
    /* Appends the row of each rank, for any map that it does not refuse (78). A row has F, B and W (under an eval
     * schedule only F) once for each of the rank's stages, map->stages_of[rank], and each micro-batch, 0 to n_mb - 1.
     * On a stage B comes before W, and both go through the micro-batches in ascending order (R3). A row ignores waits
     * between ranks; plan_check finds rows that wait for each other. */
    int (*build)(const struct sched_request *r, struct sched *out, struct err *e);
};
extern const struct sched_kind *const sched_list[];
const struct sched_kind *sched_find(const char *name);   /* NULL: there is none */
/* Rows of a schedule for the plan p that the request will make; costs and limits are the request's. */
struct plan;
struct plan_request;
int sched_ask(const struct sched_kind *k, const struct plan *p, const struct plan_request *r, struct sched *out,
              struct err *e);
/* The rank of a stage: round robin, or down and up again: 0 1 1 0. */
int sched_rank_of(const struct sched_kind *k, int stage, int n_ranks);
/* 78 unless every rank has the same number of stages, on the ranks that the schedule needs. */
int sched_map_check(const struct sched_kind *k, const struct stage_map *m, struct err *e);
void sched_push(struct sched *s, int rank, enum act_op op, int stage, int mb);
void sched_free(struct sched *s);

/* From rows: the rank whose row has each stage, -1 where none has. Returns the number of stages. free(). */
int sched_rows_map(const struct sched *s, int **rank_of);
/* Parses compute rows ("rank 0: 0F0 0B0 0W0 ..."), the form of schedule files. */
int sched_parse(const char *file, const char *s, size_t n, struct sched *out, struct err *e);

#endif
