/* Test rig: a whole training run in one process, ranks as threads of the local transport. */
#ifndef TESTS_RIG_H
#define TESTS_RIG_H
#include "exec/costs.h"
#include "plan/cost.h"
#include "rig_graphs.h"

struct rig {
    const char *conf;          /* configuration text; model.network or graph below */
    const char *graph;         /* graph text instead of model.network, or NULL */
    const char *backend;       /* reference, onednn, null; cuda over its doubles */
    enum precision precision;
    enum dtype frozen;                  /* how frozen weights are stored; 0: F32 */
    bool graphs;
    /* GPUs: makes the transport of a device over the local one, and reports a device's memory in use. NULL
     * elsewhere. */
    const struct tp_ops *over;
    size_t (*taken)(int unit);
    int n_stages;
    int n_ranks; const int *rank_of;   /* for each stage; 0: one stage per rank; NULL: in turn */
    /* copies: runs of the same plan next to each other, 0: 1; n_tp: ranks of the transport, 0: as many as needed; seat:
     * which of these each rank of each copy has, NULL: in order */
    int copies, n_tp; const int *seat;
    /* the data set of a part, which replaces the configuration's; NULL: the configuration's */
    struct ds *(*data)(enum ds_part part);
    const int *first_group;    /* n_stages + 1 cut positions; NULL: uniform */
    const char *schedule; enum backward_mode backward;
    const struct sched *rows;  /* of training, replace the schedule's; NULL: the schedule's */
    int groups, replicas;      /* blocks of micro-batches, and pipelines among which they are divided; 0: 1 */
    size_t bucket;             /* bytes of gradients that replicas exchange together; 0: all */
    bool shard;                /* each replica updates its shard of the weights */
    unsigned recompute;        /* bit i: groups i, i + 8, i + 16, ... are recomputed */
    int steps;
    unsigned delay_us;         /* random delays in the transport */
    unsigned late_us; int late;/* every delivery to rank `late` takes that long */
    bool evaluate;             /* one evaluation over data.test_samples after the last step */
    /* records kernels one by one, and ranks make costs from that; only one micro-batch size */
    bool profile;
    bool no_loss;              /* uses the graph text unchanged, for evaluation only */
    const char *output[3];     /* requested tensors; NULL: none */
    void (*change)(struct graph *g);   /* called before anything is made from the graph */
    double (*weight)(const struct ds *d, uint64_t index, uint64_t visit);   /* of the samples of all data sets */
    /* changes a field of a training sample after each read, in any thread; NULL: none */
    void (*spoil)(uint64_t sample, int field, void *value);
    bool ahead;                /* the next step's order is known when a step runs, as in a daemon */
    const struct exec_hold *hold;   /* another thread reads state; NULL: none */
    uint64_t hold_ns;          /* how long that thread may make no progress */
    int omit;                  /* this step is not run; 0: all are */
};
struct rig_result {
    char hash[33];             /* XXH3-128 over all persistent tensors in canonical order */
    char copy_hash[8][33];     /* of each copy */
    double loss[64];           /* mean of each step */
    double eval_loss; int64_t eval_top1, eval_samples;
    double grad_norm;          /* of the last step, -1: not computed */
    int recomputed;            /* recomputing calls in the training plan */
    uint64_t bytes[16];        /* allocated by each rank */
    uint64_t planned[16];      /* planned by its training plan */
    uint64_t taken[16];        /* of its device after the steps, by rig.taken */
    int n_groups;
    struct cost *cost[16];     /* of each rank; cost_free */
    double kernels_ns[16];               /* sum over all records */
    struct spent spent[16];    /* besides kernels */
    struct report last[16];    /* last training report of each rank */
    int nonfinite[16][8];      /* for each rank and each of the first steps */
    struct score_sum score[MAX_SCORES], eval_score[MAX_SCORES];   /* last step, evaluation; of all ranks */
    /* The requested outputs, in that order, of the last step and of the evaluation; rig_free. */
    struct { float *x; size_t n; } value[2][3];
    struct err e;              /* first error of any rank */
};
/* The rows of q's schedule for its stages and ranks, in which each W takes n micro-batches at once (the last one the
 * rest), at the position of the last of them. sched_free */
void rig_rows_of(const struct rig *q, int n_mb, int n, struct sched *out);
/* 0, or -1 with r->e set. */
int rig_run(const struct rig *q, struct rig_result *r);
void rig_free(struct rig_result *r);
#endif
