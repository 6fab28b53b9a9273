/* The plan: what every rank does in one step, as plain data. Open, frozen after plan_make, legal only after plan_check.
 *
 * Pure: no MPI, device, clock, environment. Every rank computes the same plan and executes its own row; ranks compare
 * plan_hash. Two levels: a row of actions a rank ("1F3": forward of micro-batch 3 on stage 1), and for each stage one
 * program of kernel calls an action kind. The executor (exec/run.c) has no decisions left: for each action, wait for
 * its operands, run the program, hand on. */
#ifndef PLAN_PLAN_H
#define PLAN_PLAN_H
#include "plan/select.h"

/* ---- actions --------------------------------------------------------------------------------- */
enum act_op {
    ACT_L,      /* load the stage's graph inputs of a micro-batch        0L3   */
    ACT_F,      /* forward                                               1F3   */
    ACT_B,      /* gradient of the inputs                                1B3   */
    ACT_W,      /* gradient of the weights                               1W3   */
    ACT_D,      /* B and W joined, node by node                          1D3   */
    ACT_R,      /* forward again, of what was not kept for B             1R3   */
    /* post the send / receive of an activation        1SF3 1RF3 ; with several channels 1SF3.c7: channel 7 */
    ACT_SF, ACT_RF,
    ACT_SB, ACT_RB,   /* ... of a gradient of an activation              1SB3 1RB3 */
    ACT_SP, ACT_RP,   /* ... of the gradient accumulator of one use of a tied weight (to the owner)   1SP.c9 */
    ACT_N,      /* squared norms of all gradients, reduced over ranks    0N    */
    ACT_O,      /* optimizer and statistics; counts as reader of every kept statistic and loss        0O    */
    ACT_SU, ACT_RU,   /* post the send / receive of an updated tied weight (from the owner)           1SU.c9 */
    ACT_COUNT
};
/* B, W, D: overwrite the gradient accumulators instead of adding */
enum act_flag { ACT_FIRST = 1 };
extern const struct act_info { const char *text, *help; bool compute, post, has_mb; } act_info[ACT_COUNT];

enum opnd_mode { OPND_READ = 1, OPND_WRITE = 2, OPND_LAST = 4 };
struct opnd { uint16_t cls, slot; uint8_t mode; };
struct act {                                             /* no pointers */
    uint8_t op, flags;
    /* micro-batch, or bundle of micro-batches (plan_request.bundle) */
    uint16_t stage, mb;
    uint32_t opnd;                                       /* first operand in plan->opnd */
    uint16_t n_opnd;
    int16_t chan;                                        /* posts: channel; otherwise -1 */
};

/* ---- where values live ----------------------------------------------------------------------- */
enum space { SP_NONE, SP_SLOT, SP_TMP, SP_PARAM, SP_GRAD, SP_DERIVED, SP_WORK };
/* A value of n samples at: SLOT  class base + off * n_slots + slot * bytes   (tensor-major, so slots of one tensor are
 * neighbours) others  region base + off. */
struct place { uint8_t space; int16_t cls; size_t off, bytes; };

enum slot_writer { W_LOAD, W_RF, W_F, W_RB, W_B, W_R };
enum slot_last { L_F, L_SF, L_R, L_B, L_SB, L_W, L_O };       /* order of a micro-batch's life */
/* values of one stage with equal life: one slot a micro-batch */
struct slot_class {
    int stage; enum slot_writer writer; enum slot_last last;
    size_t bytes;                                        /* of one slot: sum of its values, each aligned to 64 */
    int n_slots;
    size_t base;                                         /* in the rank's slot region */
};

/* ---- programs -------------------------------------------------------------------------------- */
enum phase { PH_FWD, PH_BWD_DATA, PH_BWD_WEIGHTS, PH_COUNT };
struct kop {                                             /* one kernel call */
    uint8_t phase;
    int16_t group;
    struct place in[MAX_IN], out, extra, gout, gin[MAX_IN];
    /* bit k: add to gin[k] instead of overwriting (later reader already wrote) */
    uint8_t gin_acc;
    struct place param[MAX_PARAM], pgrad[MAX_PARAM], derived;
    struct place work;                                   /* SP_NONE: the beginning of the workspace */
};
/* Where weight gradients run aside, in a branch beside the other calls, call i begins when those up to call
 * i - ASIDE_REACH have ended: so long their operands live, and their workspace is their own. */
enum { ASIDE_REACH = 12 };
struct prog { struct kop *k; int n; size_t tmp_bytes, work_bytes; bool aside; };

struct stage_plan {
    int rank, first_group, n_groups;
    bool joined;                                         /* D instead of B and W */
    int n_load, *load;                                   /* graph inputs it reads, and where they go */
    /* of each graph tensor in this stage (SP_NONE: not here); only slots, never tmp */
    struct place *act_place, *grad_place;
    struct place *extra_place;                           /* of each group (index group - first_group) */
    /* the same as R and the backward pass see them: what is recomputed lies elsewhere */
    struct place *again_place, *again_extra;
    struct prog f, b, w, d, r;                           /* r: no calls where nothing is recomputed */
    int in_flight;                                       /* peak number of micro-batches kept */
};

/* ---- parameters of a stage: same for all plans of a set -------------------------------------- */
struct stage_param {
    int param;                                           /* graph->param */
    size_t off, bytes;                                   /* in the rank's parameter region (weights and statistics) */
    /* in the optimizer state region (n_state x bytes), SIZE_MAX: none */
    size_t state_off;
    /* this stage updates it; others hold a copy of a tied weight */
    bool owner;
    /* local uses and their accumulators in the gradient region (the owner: all uses) */
    int n_uses, *use; size_t *use_off;
    bool *use_local;
};
struct placement {
    struct arena *mem;
    int n_stages, n_ranks, *first_group;                 /* n_stages + 1 entries */
    int *rank_of;                                        /* of each stage */
    int *n_params; struct stage_param **param;           /* of each stage, canonical order */
    size_t *param_bytes, *grad_bytes, *state_bytes, *derived_bytes; /* of each rank */
    size_t *derived_off;                                 /* of each group, in its rank's derived region */
};
/* n_state: optimizer buffers a weight (0 SGD, 1 momentum). */
struct placement *placement_make(const struct selection *s, int n_stages, const int *first_group, int n_ranks,
                                 int n_state, struct err *e);
void placement_free(struct placement *p);

/* ---- channels -------------------------------------------------------------------------------- */
enum chan_kind { CHAN_ACT, CHAN_GRAD, CHAN_PGRAD, CHAN_PARAM };
struct channel {
    enum chan_kind kind;
    int tensor;                                          /* or parameter use (CHAN_PGRAD), parameter (CHAN_PARAM) */
    int param;
    int from_stage, to_stage, from_rank, to_rank;
    size_t bytes_per_sample;                             /* or bytes, for parameters */
};

/* ---- the plan -------------------------------------------------------------------------------- */
enum plan_mode { PLAN_TRAIN, PLAN_EVAL };
struct plan_request {
    enum plan_mode mode;
    const char *schedule;                                /* name in SCHEDULES; "rows": text in rows */
    const char *rows;
    /* micro-batches of the batch that the rows name, where this one has fewer; 0: as many */
    int rows_micro;
    int batch, split;
    /* how many neighbouring micro-batches go through the pipeline as one; 0: 1 */
    int bundle;
    const char *backward;                                /* auto, joined, split */
    const char *batch_norm;                              /* micro, deferred, frozen */
    bool clip;
    /* of each group: not kept for the backward pass but recomputed; NULL: none */
    const bool *again;
};
struct plan {
    struct arena *mem;
    const struct selection *sel;
    const struct placement *pl;
    struct plan_request req;
    /* The micro-batch is the unit of arithmetic: statistics, and gradients of weights, which are added one after the
     * other. */
    int n_micro, *micro_n;                               /* samples of each (R2: split, split, ..., rest) */
    /* What rows, slots and messages count ("mb"): bundles of req.bundle micro-batches, the last may be smaller. Without
     * bundles: micro-batches. */
    int n_mb, *mb_n, *mb_first;                          /* samples of each, and offset of its first in the batch */
    struct slot_class *cls; int n_cls;
    struct stage_plan *stage; int n_stages;
    struct channel *chan; int n_chan;
    struct act **row; int *row_n; int n_ranks;
    struct opnd *opnd; int n_opnd;
    /* of each rank; load: what is on its way to a device, beside the slots */
    size_t *slot_bytes, *tmp_bytes, *work_bytes, *load_bytes;
};
/* 78 for an unknown schedule or an impossible request, 65 with FILE:LINE for bad rows. Calls plan_check before it
 * returns. */
struct plan *plan_make(const struct selection *s, const struct placement *pl, const struct plan_request *r,
                       struct err *e);
void plan_free(struct plan *p);
size_t plan_rank_bytes(const struct plan *p, int rank);   /* all that the rank allocates for this plan */

/* Complete (each F, B, W once a stage and micro-batch; bundles of whole micro-batches), ordered (ascending
 * accumulation, R3), operands written before read and never overwritten while live, posts matched first-in-first-out on
 * every link, no deadlock under rendezvous, channel and slot bounds. 70 names rank and action. */
int plan_check(const struct plan *p, struct err *e);

/* everything: header, groups, placement, classes, channels, rows, bytes */
void plan_print(const struct plan *p, struct text *out);
void plan_print_rows(const struct plan *p, struct text *out);        /* "rank 0: 0L0 0F0 0SF0 ..." */
void plan_hash(const struct plan *p, char out[33]);                  /* of everything, programs included */
char *act_text(const struct plan *p, const struct act *a, char buf[32]); /* "1F3", of a bundle "1F0-4" */
char *mb_text(const struct plan *p, int mb, char buf[16]);           /* "3", "0-4" */
int mb_parts(const struct plan *p, int mb);                          /* micro-batches of a bundle */
/* a group keeps these bytes of one micro-batch; those of a bundle lie behind each other */
size_t plan_part_extra(const struct plan *p, const struct group *k);
/* Names of the stage's first and last node; "-" where it has none. */
void plan_stage_ends(const struct plan *p, int s, const char **first, const char **last);
/* Parses compute rows ("rank 0: 0F0 0B0 0W0 ..."), the form of schedule files. */
struct sched;
int sched_parse(const char *file, const char *s, size_t n, struct sched *out, struct err *e);

/* ---- schedules: rows of F, B, W for a rank (sched_*.c) --------------------------------------- */
/* line: of a schedule file, where bundles are mb to last; 0: made by a schedule */
struct sched_act { uint8_t op; uint16_t stage, mb, last; int line; };
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

/* ---- partitions (part_*.c): where to cut the list of groups ---------------------------------- */
struct cost;
/* of auto: plans compared; proven: no cut is faster */
struct part_found { int plans; bool proven, fits; double ns; };
struct part_request {
    const struct selection *sel;
    const struct cost *cost;
    const struct conf *conf;
    const struct plan_request *plan;                     /* the plan that is to be fast and to fit */
    int n_stages, n_state;                               /* n_state: optimizer buffers a weight */
    struct part_found *found;                            /* NULL: not asked for */
};
struct part_kind {
    const char *name, *text;
    /* knows ranks' limits: cuts for ranks, never for more stages than ranks */
    bool by_rank;
    /* first_group[n_stages + 1]. 78 (conf_error where a key is to blame) names the layer. */
    int (*split)(const struct part_request *q, int *first_group, struct err *e);
};
extern const struct part_kind *const part_list[];
/* pipeline.stages; without it the stage sections under partition manual, n_ranks under others; where no ranks are known
 * (0), the stage sections again, or 1. */
int part_stage_count(const struct conf *c, int n_ranks);

/* ---- cost and simulation --------------------------------------------------------------------- */
/* what each group takes; a value: estimated, or measured by --profile */
struct cost {
    char *origin;                                        /* "estimated", or the file's name */
    int n_groups, n_sizes, *size;                        /* micro-batch sizes that were measured, ascending */
    double *ns;                                          /* cost_cell: of a whole micro-batch */
    double load_ns;                                      /* of one sample, on the stage that reads it */
    double latency_ns, bytes_per_ns;                     /* of a transfer */
    double busy_ns_per_byte;                             /* that a rank's thread gives to what it sends or receives */
    double optimizer_ns_per_byte;                        /* of gradient bytes */
    /* of each rank's device, relative to the one measured; none: all alike */
    int n_speed; double *speed;
};
double cost_speed(const struct cost *k, int rank);
struct cost *cost_new(const char *origin, int n_groups, int n_sizes);   /* all zero */
double *cost_cell(const struct cost *k, int size, enum phase ph, int group);  /* size: index */
double cost_ns(const struct cost *k, enum phase ph, int group, int n);  /* of a micro-batch of n samples */
struct cost *cost_estimate(const struct selection *s);   /* from FLOPs and bytes */
/* profile.json: groups by name with their times and bytes (free() it); and back. 65 for damage, another network or
 * device. */
char *cost_json(const struct cost *k, const struct selection *s);
struct cost *cost_parse(const char *file, const char *text, size_t n, const struct selection *s, struct err *e);
void cost_free(struct cost *k);
struct sim_stage { double f, b, w, r, optimizer, load, transfer, wait, finish; };
double sim_busy(const struct sim_stage *s);              /* all but waiting */
struct sim_wire { int chan, mb; double start, end; };
struct sim {
    double wall_ns;
    int n_ranks;
    struct sim_stage *rank;
    double bubble_of_wall, bubble_of_ideal;
    size_t *peak_bytes;
    double **start, **end; /* ns, of each action of each row */
    struct sim_wire *wire;
    int n_wires;
}; /* messages between ranks, as they were matched */
/* 70 on deadlock, naming the waiting actions */
struct sim *plan_simulate(const struct plan *p, const struct cost *k, struct err *e);
/* ns that no schedule of this cut can beat (part_bound.c) */
double plan_bound(const struct plan *p, const struct cost *k);
void sim_free(struct sim *s);

/* --draw-schedule, --print-schedule: the simulated step as a picture in lines of so many columns: in colours all of it
 * in one row a rank, without them as wide as texts need, folded. */
void plan_draw_text(const struct plan *p, const struct cost *k, int columns, bool colour, struct text *out);
void plan_draw_svg(const struct plan *p, const struct cost *k, struct text *out);
char *plan_draw_json(const struct plan *p, const struct cost *k);    /* free() it */

/* "batch 120 in 30 micro-batches of 4, bundles of 5" */
void plan_batch_text(const struct plan *p, struct text *out);
/* --plan: the stage table for people, and as JSON. */
/* a line for each group whose kernel is slow; nothing if there is none */
void plan_slow_text(const struct selection *s, struct text *out);
void plan_table(const struct plan *p, const struct cost *k, int columns, struct text *out);
char *plan_json(const struct plan *p, const struct cost *k);

#endif
