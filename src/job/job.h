/* What every rank computes alike before anything is bound: graph, selection, cut, placement, the plan set. Pure apart
 * from reading the files that the configuration names. Used by the modes that need no MPI and by setup.c.
 *
 * This folder: from configuration to plan set (job.c), cuts with recomputation (partition.c), limits of memory,
 * --plan=search. See docs/design/plan.md. */
#ifndef JOB_JOB_H
#define JOB_JOB_H
#include "backend/be.h"
#include "conf/conf.h"
#include "data/ds.h"
#include "plan/cost.h"
#include "plan/part.h"
#include "plan/plan.h"

enum { PLAN_FULL, PLAN_SHORT, PLAN_EVAL_FULL, PLAN_EVAL_SHORT, PLAN_KINDS };
struct fit_host;
struct job {
    const struct conf *conf;                               /* borrowed, but for what the graph decides */
    const struct be_ops *be;
    struct device dev;
    bool supposes;                                         /* only planning: a GPU that is named need not be there */
    /* run.device = auto: why it is the CPU although GPUs are built in */
    struct err no_gpu;
    struct text kernels;                                   /* run.kernel_table: its contents */
    bool measured;                                         /* they were not there before */
    struct graph *graph;
    struct selection *sel;
    struct cost *cost;
    bool *recompute;                                       /* of each group: recomputed, not kept */
    struct text rows;                                      /* of schedule "rows": the file's text */
    /* stages that were asked for, where there are as many as ranks instead; 0: all that were asked for */
    int n_merged;
    /* Stages after merging; ranks of one replica; replicas, 0: one. */
    int n_stages, n_ranks, n_replicas, *first_group;
    uint64_t *limit;                                       /* bytes of each rank of a replica; NULL: none */
    const struct fit_host *host; /* what the hosts have (memory_limit.h), borrowed; NULL: not known */
    uint64_t *room;                                        /* of each rank, where a plan without limits was too large */
    int *rank_of;                                          /* of each stage; NULL: one a rank */
    struct part_found found;                               /* what auto says of its cut; plans 0: another policy */
    bool rough;                                            /* the first of auto's cuts that fit will do */
    struct placement *pl;
    /* DS_TRAIN, DS_TEST; NULL where not opened or not configured */
    struct ds *data[2];
    uint64_t count[2];                                     /* their samples; 0: unknown or none */
    struct plan *plan[PLAN_KINDS]; int n_plans;            /* the set; batch sizes differ */
    struct plan *(*more)[PLAN_KINDS];                      /* the sets of the other replicas; NULL: there are none */
    bool first_only;                                       /* ... nor shall there be: the first has the most to do */
    int plan_of[PLAN_KINDS], batch[PLAN_KINDS];            /* index in the set and samples, -1: not needed */
    int max_batch;
    int output;                                            /* where job_wants: the tensor that evaluations bring */
};
/* Ranks of all replicas, those of the first one first. */
static inline int job_world(const struct job *j) { return j->n_ranks * (j->n_replicas > 1 ? j->n_replicas : 1); }
static inline int job_replica(const struct job *j, int rank) { return rank / j->n_ranks; }
/* Of a rank among those of all replicas: its plan set, and the stage that it is called by. */
static inline struct plan *const *job_plans(const struct job *j, int rank)
{
    int replica = job_replica(j, rank);
    return replica ? j->more[replica - 1] : j->plan;
}
static inline int job_stage(const struct job *j, int rank) { return placement_stage(j->pl, rank % j->n_ranks); }
/* Do evaluations bring the values of a tensor to rank 0? For run.predict and train.confusion. */
bool job_wants(const struct job *j);
/* Backend by run.device, described by its first device. 69 for what is not built in. */
int job_device(struct job *j, struct err *e);
/* the same by the device of this host that the rank computes on. 69 */
int job_unit(struct job *j, int unit, struct err *e);
/* j->conf becomes a copy where a graph file decides the loss. */
int job_model(struct job *j, struct err *e);
/* Opens the data sets that this run reads. 65, 66, or 78 where they do not fit the configuration. */
int job_data(struct job *j, struct err *e);
/* Of the batch size of that kind, which is needed. */
struct plan_request job_request(const struct job *j, int kind);
struct sharing job_sharing(const struct job *j, const struct conf *c);   /* of the job's network and device */
struct placement *job_place(const struct job *j, const int *first_group, struct err *e);   /* of its stages, cut so */
/* Where job_kernels may measure: would job_plan refuse that configuration? After job_data. */
int job_trial(const struct job *j, const struct conf *c, int n_ranks, struct err *e);
/* The kernel table of run.kernel_table: read, or measured on device `unit` and written when there is none. 65, 66, 69,
 * 73, 74. */
int job_kernels(struct job *j, int unit, struct err *e);
void job_kernels_use(struct job *j);                       /* for the selection that job_plan makes */
/* Selection, cut, placement, plans for n_ranks of all replicas (0: as many as stages). job_data first, unless planning
 * without data. */
int job_plan(struct job *j, int n_ranks, struct err *e);
/* for n_ranks of one replica, without asking whether it fits. Where pipeline.max_memory says nothing and j->host has
 * too little for the plan, it is made again, and the ranks' shares of what there is are their limits. Pure. */
int job_plan_only(struct job *j, int n_ranks, struct err *e);
int job_stage_of(const struct job *j, int *stage_of, struct err *e);   /* of each node; for the summary */
struct feed_order job_order(const struct job *j);          /* of the training samples */
/* What of the training samples batches leave out, or that there are fewer than a batch has: adds a line for people. */
void job_samples_note(const struct job *j, struct text *out);
uint64_t job_steps(const struct job *j);                   /* optimizer steps of the whole run */
uint64_t job_epochs(const struct job *j, uint64_t steps);  /* those that so many steps see any of */
void job_free(struct job *j);
#endif
