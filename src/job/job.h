/* What every rank computes alike before anything is bound: graph, selection, cut, placement, the plan set. Pure, apart
 * from reading the files that the configuration names. Used by the modes without MPI and by setup.c.
 *
 * This folder: from configuration to plan set (job.c), cuts with recomputation (partition.c), limits of memory,
 * --plan=search. See docs/design/plan.md. */
#ifndef JOB_JOB_H
#define JOB_JOB_H
#include "backend/be.h"
#include "conf/conf.h"
#include "data/ds.h"
#include "data/prompts.h"
#include "plan/cost.h"
#include "plan/device_map.h"
#include "plan/part.h"
#include "plan/plan.h"

enum { PLAN_FULL, PLAN_SHORT, PLAN_EVAL_FULL, PLAN_EVAL_SHORT, PLAN_KINDS };
struct fit_host;
struct job {
    const struct conf *conf;                               /* borrowed; job_model may replace it by a copy */
    const struct be_ops *be;
    struct device dev;
    bool supposes;                                         /* planning only: the named GPU need not exist here */
    /* run.device = auto: why it chose the CPU although GPUs are built in */
    struct err no_gpu;
    struct text kernels;                                   /* contents of run.kernel_table */
    bool measured;                                         /* this run measured the kernels */
    struct graph *graph;
    struct selection *sel;
    struct cost *cost;
    bool *recompute;                                       /* of each group: recomputed, not kept */
    struct text rows;                                      /* schedule "rows": the file's text */
    /* the requested number of stages, if they were merged to one a rank; 0: not merged */
    int n_merged;
    struct mesh mesh;                                      /* 0 ranks before job_plan */
    int n_stages, *first_group;                            /* after merging */
    uint64_t *limit;                                       /* bytes of each rank of a pipeline; NULL: no limits */
    const struct fit_host *host; /* memory of the hosts (memory_limit.h), borrowed; NULL: unknown */
    uint64_t *free_bytes;                                /* of each rank, if a plan without limits was too large */
    int *rank_of;                                          /* of each stage; NULL: one stage a rank */
    struct part_found found;                               /* result of partition auto; plans 0: another policy */
    bool rough;                                            /* auto may take its first cut that fits */
    /* Weights of these stages lie in files (tiers.h); NULL: all lie in memory. n_tiers: stages that such a plan has;
     * tier_flight: micro-batches that its ranks keep, if the configuration does not say; 0: all. tiers_by_limit: a
     * rank's stages are as large as its limit wants them, because equal ones do not fit. */
    bool *in_file; int n_tiers, tier_flight; bool tiers_by_limit;
    enum offloads { OFFLOADS_NOTHING, OFFLOADS_STATE, OFFLOADS_WEIGHTS } offloads;   /* what is trained, in files */
    struct placement *pl;
    /* DS_TRAIN, DS_TEST; NULL if not opened or not configured */
    struct ds *data[2];
    uint64_t count[2];                                     /* their samples; 0: unknown or none */
    struct prompts *prompts;                               /* of run.generate; NULL: it does not generate */
    struct plan *plan[PLAN_KINDS]; int n_plans;            /* the plan set; its plans differ in batch size */
    struct plan *(*more)[PLAN_KINDS];                      /* the sets of the other pipelines; NULL: there are none */
    bool first_only;                                       /* plan only the first pipeline, which has the most to do,
                                                            * and of numbers of stages in files the first */
    int plan_of[PLAN_KINDS], batch[PLAN_KINDS];            /* index in the set and samples; -1: not needed */
    int max_batch;
    int output;                                            /* if job_wants: the tensor that evaluations return */
    struct device_map *map;                                /* device_map.h; NULL: none was asked for */
    struct job *interim;                                   /* interim.h; NULL: no texts are generated between steps */
    const struct job *cut_as;                              /* the job whose cut it takes; NULL: its own */
};
static inline int job_world(const struct job *j) { return mesh_ranks(&j->mesh); }
/* For a rank of the mesh: its coordinates, its plan set, and the stage that names it, its first. */
static inline struct mesh_coord job_coord(const struct job *j, int rank) { return mesh_coord_of(&j->mesh, rank); }
static inline struct plan *const *job_plans(const struct job *j, int rank)
{
    int dp = job_coord(j, rank).at[AXIS_DP];
    return dp ? j->more[dp - 1] : j->plan;
}
static inline int job_stage(const struct job *j, int rank)
{
    return j->pl->map.stages_of[job_coord(j, rank).at[AXIS_PP]][0];
}
/* Do evaluations send the values of a tensor to rank 0? For run.predict and train.confusion. */
bool job_wants(const struct job *j);
/* Sets the backend by run.device and describes its first device. 69 if it is not built in. */
int job_device(struct job *j, struct err *e);
/* Describes the device `unit` of this host, on which the rank computes. 69. */
int job_unit(struct job *j, int unit, struct err *e);
/* j->conf becomes job_conf of it. */
int job_model(struct job *j, struct err *e);
/* c with the loss that a graph file sets: c itself, or a copy that lives as long as c. */
const struct conf *job_conf(const struct job *j, const struct conf *c);
/* Opens the data sets that this run reads. 65, 66, or 78 if they do not fit the configuration. */
int job_data(struct job *j, struct err *e);
/* The request for the batch size of that kind, which must be needed. */
struct plan_request job_request(const struct job *j, int kind);
const char *job_schedule(const struct job *j);             /* of training */
struct state_buffers job_buffers(const struct job *j);     /* of the optimizer, and where they lie */
struct sharing job_sharing(const struct job *j, const struct conf *c);   /* of the job's network and device */
/* of its stages, cut at first_group */
struct placement *job_place(const struct job *j, const int *first_group, struct err *e);
/* Before job_kernels may measure: would job_plan refuse this configuration? After job_data. */
int job_trial(const struct job *j, const struct conf *c, int n_ranks, struct err *e);
/* The kernel table of run.kernel_table: reads it, or measures it on device `unit` and writes it if there is none. 65,
 * 66, 69, 73, 74. */
int job_kernels(struct job *j, int unit, struct err *e);
void job_kernels_use(struct job *j);                       /* for the selection that job_plan makes */
/* Selection, cut, placement and plans for n_ranks of the mesh (0: one rank a stage). Call job_data first, except to
 * plan without data. */
int job_plan(struct job *j, int n_ranks, struct err *e);
/* Plans for n_ranks of one pipeline, without checking limits. If pipeline.max_memory is not set and j->host has too
 * little memory, it plans again; each rank's limit is then its share of that memory. Pure. */
int job_plan_only(struct job *j, int n_ranks, struct err *e);
int job_stage_of(const struct job *j, int *stage_of, struct err *e);   /* of each node; for the summary */
struct feed_order job_order(const struct job *j);          /* of the training samples */
/* Adds lines for the user if batches leave out training samples, if there are fewer samples than a batch has, and if
 * the network ends with the softmax or sigmoid that its loss applies. */
void job_notes(const struct job *j, struct text *out);
/* Model FLOPs of a sample in training: multiply-adds times two of convolutions, products and attention; forward, and
 * the gradients of inputs and of weights that are computed. Recomputation does not count (Chowdhery et al., PaLM,
 * arXiv:2204.02311, appendix B). */
double job_flops(const struct job *j);
/* Tokens of a sample: labels of a loss that counts them; 0 for another loss. */
int64_t job_tokens(const struct job *j);
double job_token_flops(const struct job *j);               /* job_flops for each token; -1: it has none */
int64_t job_parameters(const struct job *j, bool trained); /* elements of weights; trained: without frozen ones */
uint64_t job_steps(const struct job *j);                   /* optimizer steps of the whole run */
int job_order_samples(const struct job *j);                /* of the largest order */
uint64_t job_epochs(const struct job *j, uint64_t steps);  /* epochs of which this many steps see samples */
void job_free(struct job *j);
#endif
