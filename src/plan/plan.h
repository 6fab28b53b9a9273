/* The plan: what every rank does in one step, as plain data. Open, frozen after plan_make, legal only after plan_check.
 *
 * Pure: no MPI, device, clock, environment. Every rank computes the same plan and executes its own row; ranks compare
 * plan_hash. A plan has two levels: a row of actions for each rank ("1F3": forward of micro-batch 3 on stage 1), and
 * for each stage a program of kernel calls for each kind of action. The executor (exec/run.c) decides nothing: for each
 * action it waits for the operands, runs the program, and continues.
 *
 * This folder: selection of kernels (select.c), cost, partition (part_*.c), schedules (sched_*.c), lowering to actions
 * and bytes (lower.c, channels.c, slots.c), the independent check (check*.c), simulation (sim.c), drawings. See
 * docs/design/plan.md. */
#ifndef PLAN_PLAN_H
#define PLAN_PLAN_H
#include "base/text.h"
#include "plan/act.h"
#include "plan/placement.h"

/* ---- where values live ----------------------------------------------------------------------- */
enum space { SP_NONE, SP_SLOT, SP_TMP, SP_PARAM, SP_GRAD, SP_PACKED };
/* Address of a value of n samples. SLOT: class base + off * n_slots + slot * bytes (tensor-major, so the slots of one
 * tensor are neighbours). Other spaces: region base + off. */
struct place { uint8_t space; int16_t cls; size_t off, bytes; };

/* A stage that reads in its rank's memory what another stage of the rank wrote; nothing moves within a rank. as: the
 * action that would have brought the value; last: its last reader on that stage. */
struct slot_user { int stage; enum slot_writer as; enum slot_last last; };
/* values of one stage with equal lifetime: one slot a micro-batch */
struct slot_class {
    int stage; enum slot_writer writer; enum slot_last last;
    int n_users; struct slot_user *user;                 /* other stages of its rank, ascending */
    size_t bytes;                                        /* of one slot: sum of its values, each aligned to 64 */
    int n_slots;
    size_t base;                                         /* in the rank's slot region */
    /* Values kept to the end: where the slots of each other pipeline are after they arrived. NULL: they are not
     * exchanged. */
    size_t *copy;
    bool recompute;                                      /* last == L_O: R reads some of these values, too */
};

/* ---- programs -------------------------------------------------------------------------------- */
struct kop {                                             /* one kernel call */
    uint8_t phase;
    int16_t group;
    struct place in[MAX_IN], outs[MAX_OUT], saved, gouts[MAX_OUT], gin[MAX_IN];
    /* bit k: add to gin[k] instead of overwriting (a later reader already wrote it) */
    uint8_t gin_acc;
    struct place param[MAX_PARAM], pgrad[MAX_PARAM], packed;
};
struct prog { struct kop *k; int n; size_t tmp_bytes, work_bytes; };

struct stage_plan {
    int rank, first_group, n_groups;
    bool joined;                                         /* D instead of B and W */
    /* One action loads the graph inputs that all stages of the rank read of a micro-batch: the action of the first
     * stage that reads any. load_stage: that stage; -1: this stage reads none. load: what this stage loads. */
    int load_stage, n_load, *load;
    /* of each graph tensor in this stage (SP_NONE: not here); only slots, never tmp */
    struct place *act_place, *grad_place;
    struct place *saved_place;                           /* of each group (index group - first_group) */
    /* the same places as R and the backward pass see them: recomputed values are elsewhere */
    struct place *recompute_place, *recompute_saved;
    struct prog prog[PROG_COUNT];                        /* no calls: nothing to do, for example nothing to recompute */
    int in_flight;                                       /* peak number of micro-batches kept */
    /* The backward pass of the last micro-batch may run in pieces, so that gradients go to other pipelines as soon as
     * they are final. piece[k]: the first group of piece k + 1, descending to the stage's first
     * group. */
    int n_pieces, *piece;
};

/* ---- channels: from rank to rank ------------------------------------------------------------- */
struct channel {
    enum chan_kind kind;
    int tensor;                                          /* or parameter use (CHAN_PGRAD), parameter (CHAN_PARAM) */
    int param;
    /* The axis along which the message goes. Both ends have the same coordinate on the other axis: along AXIS_PP that
     * of the plan, along AXIS_DP the rank in its pipeline. ALL has all ranks along the axis at both ends. */
    enum axis axis;
    struct mesh_coord from, to;
    int from_stage, to_stage;
    size_t bytes_per_sample;                             /* or bytes, for parameters and along AXIS_DP */
    /* offset: SUM, SUMMED, ALL in the gradient region; WEIGHT in the parameter region */
    size_t off;
    /* SUM, SUMMED, ALL, WEIGHT: the bucket, from 1 on. Messages of a bucket wait only for each other. late: the bucket
     * has gradients of tied weights that come from other ranks */
    int bucket;
    bool late;
};

/* ---- outputs --------------------------------------------------------------------------------- */
/* A value that is read after the step: its stage keeps it for all micro-batches until the next step begins. */
struct output { int tensor, stage, rank; struct place at; };

/* ---- the plan -------------------------------------------------------------------------------- */
enum plan_mode { PLAN_TRAIN, PLAN_EVAL };
struct cost;
struct plan_request {
    enum plan_mode mode;
    const char *schedule;                                /* name in SCHEDULES; "rows": text in rows */
    const char *rows;
    /* micro-batches of the batch that the rows are written for, if this batch has fewer; 0: the same number */
    int rows_micro;
    int batch, split;
    /* train.gradient_groups: blocks of micro-batches, whose gradients are added as a binary tree; 0: 1 */
    int groups;
    /* This plan's coordinate on AXIS_DP of the placement's mesh. Each pipeline has its own blocks of the batch; `batch`
     * is the whole batch of all. The axis has a power of two as size, which divides groups. */
    int dp;
    /* most micro-batches that a rank keeps for their backward pass (sched.h); 0: the schedule's own number */
    int in_flight;
    /* for schedules that choose: costs, and each rank's limit in bytes; NULL: all passes cost the same, no limit. The
     * plan does not keep them. */
    const struct cost *cost;
    const uint64_t *limit;
    enum backward_mode backward;                         /* unset: auto */
    enum norm_stats batch_norm;                          /* unset: micro */
    /* of each group: recompute its results for the backward pass instead of keeping them; NULL: no group */
    const bool *recompute;
    /* tensors requested as outputs, besides the tensors of scores, which are always outputs */
    const int *output; int n_outputs;
};
/* A pipeline's part of a batch: whole blocks. */
struct portion {
    int first_micro;                                     /* its first micro-batch's number in the batch */
    int n_mb, *mb_n, *mb_first;                          /* as in struct plan */
    int *mb_block;                                       /* the number, among all blocks, of each one's block */
    int first_block, end_block;
    bool shared;                                         /* other pipelines have parts of the batch, too */
};
struct plan {
    struct arena *mem;
    const struct selection *sel;
    const struct placement *pl;
    struct plan_request req;
    /* The micro-batch ("mb") is the unit of arithmetic, for statistics and for gradients of weights. These gradients
     * are added one micro-batch after the other. */
    int n_mb, *mb_n;                                     /* samples of each (R2: split, split, ..., rest) */
    int *mb_first;                                       /* offset of its first sample in the batch */
    int max_n;                                           /* samples of the largest one, of any pipeline */
    struct portion *part;                                  /* of each coordinate on AXIS_DP; the first has most */
    int n_levels;                                        /* of accumulators of gradients (struct placement) */
    struct slot_class *cls; int n_cls;
    struct stage_plan *stage; int n_stages;
    struct channel *chan; int n_chan;
    struct output *output; int n_outputs;                /* the loss comes first; each tensor once */
    struct act **row; int *row_n; int n_ranks;
    struct opnd *opnd; int n_opnd;
    /* of each rank; load: values on their way to a device, besides the slots */
    size_t *slot_bytes, *tmp_bytes, *work_bytes, *load_bytes;
};
/* A batch norm that sees one value a channel in a micro-batch of one sample, which cannot be trained; or NULL. */
const struct node *plan_norm_of_one(const struct graph *g);
/* 78 for an unknown schedule or an impossible request, 65 with FILE:LINE for bad rows. It calls plan_check before it
 * returns. */
struct plan *plan_make(const struct selection *s, const struct placement *pl, const struct plan_request *r,
                       struct err *e);
/* The same for a schedule that exists already: F, B and W of each rank; r->schedule only names it. W may cover several
 * micro-batches. */
struct sched;
struct plan *plan_make_from(const struct selection *s, const struct placement *pl, const struct plan_request *r,
                            const struct sched *rows, struct err *e);
void plan_free(struct plan *p);
size_t plan_rank_bytes(const struct plan *p, int rank);   /* all bytes that the rank allocates for this plan */
bool plan_rank_loads(const struct plan *p, int rank, int tensor);   /* does one of its stages load that graph input? */

/* Proves that the plan is complete (each F, B, W once a stage and micro-batch) and ordered (ascending accumulation,
 * R3). Operands are written before they are read and not overwritten while live; outputs are there at the end. Posts
 * match first-in-first-out on every link, without deadlock under rendezvous. Channels and slots are in bounds. 70 names
 * rank and action. */
int plan_check(const struct plan *p, struct err *e);

/* Checks the plans of all pipelines for one batch: their posts meet, nothing waits for ever, and on each the gradients
 * are the tree over all blocks. After plan_check of each plan. 70. */
int plan_check_dp(struct plan *const *p, struct err *e);

/* everything: header, groups, placement, classes, channels, rows, bytes */
void plan_print(const struct plan *p, struct text *out);
void plan_print_rows(const struct plan *p, struct text *out);        /* "rank 0: 0L0 0F0 0SF0 ..." */
void plan_hash(const struct plan *p, char out[33]);                  /* of everything, programs included */
char *act_text(const struct plan *p, const struct act *a, char buf[32]); /* "1F3", or "1W0-4" */
char *act_mb_text(const struct act *a, char buf[16]);     /* its micro-batches: "3" or "0-4" */
/* of all its micro-batches */
int act_samples(const struct plan *p, const struct act *a);
/* the action's program; NULL: it has none */
const struct prog *act_prog(const struct plan *p, const struct act *a);
/* calls of its program, for all its micro-batches */
int act_calls(const struct plan *p, const struct act *a);
/* The groups of its stage that a program's action runs: [first, end). */
void act_groups(const struct plan *p, const struct act *a, int *first, int *end);
size_t act_bytes(const struct plan *p, const struct act *a);         /* of a post: bytes of its message */
int plan_micro_batches(const struct plan *p);                        /* of the whole batch */
/* Bit mask of the group's parameters whose gradients an ACT_A with these flags adds up. */
static inline uint32_t group_sums(const struct group *k, int flags)
{
    return (flags & ACT_OF_B ? (uint32_t)k->pgrad_in_b : 0) | (flags & ACT_OF_W ? (uint32_t)k->pgrad_in_w : 0);
}
/* Most levels of accumulators that plans with this number of blocks take. */
int plan_levels(int groups, const struct mesh *m, struct sharing s);
/* Names of the stage's first and last node; "-" where it has none. */
void plan_stage_ends(const struct plan *p, int s, const char **first, const char **last);

#endif
