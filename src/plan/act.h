/* Actions: what a rank does in a step, one after the other ("1F3": forward of micro-batch 3 on stage 1); and what is
 * true of each kind of action, in one table. Only the checker has its own reading of them. Pure data. */
#ifndef PLAN_ACT_H
#define PLAN_ACT_H

#include <stdbool.h>
#include <stdint.h>

/* Of a kernel: forward, gradient of the inputs, gradient of the weights. */
enum phase { PH_FWD, PH_BWD_DATA, PH_BWD_WEIGHTS, PH_COUNT };

/* The parts of a rank's time, of which exactly one runs at any time. */
enum account {
    ACC_FORWARD, ACC_INPUT_GRAD, ACC_WEIGHT_GRAD, ACC_RECOMPUTE, ACC_OPTIMIZER, ACC_TRANSFER, ACC_WAIT_UP,
    ACC_WAIT_DOWN, ACC_CHECKPOINT, ACC_LOAD, ACC_OTHER, ACC_COUNT,
    ACC_GRADS = ACC_COUNT                                /* both gradients, where nobody tells them apart */
};
extern const char *const account_name[ACC_COUNT];        /* "forward_seconds", ..., as metrics.jsonl has them */

/* What messages carry: an activation, its gradient, the gradient and the value of a tied weight; between replicas a
 * share of gradients that is to be added, one whose sum is complete, what is kept to the end of a step, a share of
 * updated weights, and gradients that the transport adds up over all replicas. */
enum chan_kind {
    CHAN_NONE, CHAN_ACT, CHAN_GRAD, CHAN_PGRAD, CHAN_PARAM, CHAN_SUM, CHAN_SUMMED, CHAN_KEPT, CHAN_WEIGHT, CHAN_ALL,
    CHAN_KINDS
};
enum prog_kind { PROG_F, PROG_B, PROG_W, PROG_D, PROG_R, PROG_COUNT };   /* of a stage */

/* A class of slots: who writes it first, and who reads it last. */
enum slot_writer { W_LOAD, W_RF, W_F, W_RB, W_B, W_R };
enum slot_last { L_F, L_SF, L_R, L_B, L_SB, L_W, L_O };  /* order of a micro-batch's life */

enum act_op {
    ACT_L,      /* load the stage's graph inputs of a micro-batch        0L3   */
    ACT_F,      /* forward                                               1F3   */
    ACT_B,      /* gradient of the inputs                                1B3   */
    ACT_W,      /* gradient of the weights                               1W3   */
    ACT_D,      /* B and W joined, node by node                          1D3   */
    ACT_R,      /* forward again, of what was not kept for B             1R3   */
    ACT_A,      /* add the gradients of a block of micro-batches to those of blocks before it, behind the last of
                 * them                                                  1A3   */
    /* post the send / receive of an activation        1SF3 1RF3 ; with several channels 1SF3.c7: channel 7 */
    ACT_SF, ACT_RF,
    ACT_SB, ACT_RB,   /* ... of a gradient of an activation              1SB3 1RB3 */
    ACT_SP, ACT_RP,   /* ... of the gradient accumulator of one use of a tied weight (to the owner)   1SP.c9 */
    ACT_SG, ACT_RG,   /* ... of a share of the gradients, to another replica that adds it           0SG.c9 */
    ACT_G,            /* add what came so to the gradients here                                     0G.c9 */
    ACT_SM, ACT_RM,   /* ... of gradients that are the sum over all replicas                        0SM.c9 */
    ACT_X,      /* post the sum of gradients over all replicas, which takes their place               0X.c9 */
    ACT_SK, ACT_RK,   /* ... of what is kept of all micro-batches until the step ends               0SK.c9 */
    ACT_N,      /* squared norms of all gradients, the loss, over ranks  0N    */
    ACT_O,      /* optimizer and statistics; counts as reader of every kept statistic and loss        0O    */
    ACT_SW, ACT_RW,   /* post the send / receive of weights that one replica has updated for all      0SW.c9 */
    ACT_SU, ACT_RU,   /* post the send / receive of an updated tied weight (from the owner)           1SU.c9 */
    ACT_COUNT
};
enum act_kind { KIND_LOAD, KIND_PROGRAM, KIND_SUM, KIND_SEND, KIND_RECV, KIND_ALL, KIND_REDUCE, KIND_OPTIMIZER };
extern const struct act_info {
    const char *text, *help;
    enum act_kind kind;
    enum prog_kind prog;                                 /* programs: which of the stage's */
    unsigned phases;                                     /* ... and those of its calls, 1 << enum phase */
    /* posts: what they carry; others: what messages they wait for, and programs: what is sent after them */
    enum chan_kind chan;
    enum act_op peer;                                    /* posts: the other end */
    /* messages of the rank, 1 << enum chan_kind, that must have come, and have left, before it runs */
    unsigned after_come, after_left;
    enum account part, wait;                             /* its own time; posts: that of waits for it */
    bool has_mb;                                         /* of a micro-batch; otherwise of the whole step */
    bool accumulates;                                    /* adds to gradients of parameters */
    bool across;                                         /* reads and writes what all micro-batches of its rank left */
    /* Classes of its stage, 1 << enum slot_writer: those that it writes, and those that it reads if `lasts` (1 << enum
     * slot_last) has their last reader. */
    unsigned writes, reads, lasts;
} act_info[ACT_COUNT];

static inline bool act_is_post(int op)
{
    return act_info[op].kind == KIND_SEND || act_info[op].kind == KIND_RECV || act_info[op].kind == KIND_ALL;
}
/* Of a call of the action's program. */
static inline enum account act_part(int op, int phase)
{
    if (act_info[op].part != ACC_GRADS) return act_info[op].part;
    return phase == PH_BWD_WEIGHTS ? ACC_WEIGHT_GRAD : ACC_INPUT_GRAD;
}
/* Between replicas, in buckets: what its receiver may read where its sender has it. */
static inline bool channel_lends(enum chan_kind kind)
{
    return kind == CHAN_SUM || kind == CHAN_SUMMED || kind == CHAN_WEIGHT;
}
enum act_op act_post(enum chan_kind kind, enum act_kind end);   /* the one that posts this end of such a message */

/* Of actions that accumulate: the first micro-batch of a block overwrites the accumulators instead of adding to them.
 * Of ACT_A: what it adds are the gradients that B makes (those of norms), those that W makes, or both. */
enum act_flag { ACT_FIRST = 1, ACT_OF_B = 2, ACT_OF_W = 4 };

enum opnd_mode { OPND_READ = 1, OPND_WRITE = 2, OPND_LAST = 4 };
/* slot: of the action's first micro-batch; those of the others follow it */
struct opnd { uint16_t cls, slot; uint8_t mode; };
struct act {                                             /* no pointers */
    uint8_t op, flags;
    /* Level of the accumulators: of what accumulates, those that it adds to; of ACT_A, those to which the ones of the
     * next level are added. */
    uint8_t level;
    /* D and W of a batch's last micro-batch, and the ACT_A behind them: which piece of the stage's layers, from the
     * last ones on; 0: all of them (stage_plan.piece). */
    uint8_t piece;
    /* micro-batch, or bundle of micro-batches (plan_request.bundle); and how many from there on. Only W has more than
     * one, and their slots are neighbours. */
    uint16_t stage, mb, n_mb;
    uint16_t n_opnd;
    uint32_t opnd;                                       /* first operand in plan->opnd */
    int32_t chan;                                        /* posts: channel; otherwise -1 */
};

#endif
