/* Actions: the work of a rank in a step, in order ("1F3": forward of micro-batch 3 on stage 1). One table describes
 * each kind of action; the checker alone has its own reading of actions. Pure data. */
#ifndef PLAN_ACT_H
#define PLAN_ACT_H

#include <stdbool.h>
#include <stdint.h>

/* Phase of a kernel call: forward, gradient of the inputs, gradient of the weights. */
enum phase { PH_FWD, PH_BWD_DATA, PH_BWD_WEIGHTS, PH_COUNT };

/* The parts of a rank's time. Exactly one of them runs at any time. */
enum account {
    ACC_FORWARD, ACC_INPUT_GRAD, ACC_WEIGHT_GRAD, ACC_RECOMPUTE, ACC_OPTIMIZER, ACC_TRANSFER, ACC_WAIT_UP,
    ACC_WAIT_DOWN, ACC_CHECKPOINT, ACC_LOAD, ACC_FETCH, ACC_OTHER, ACC_COUNT,
    ACC_GRADS = ACC_COUNT                                /* both gradients, where they are measured together */
};
extern const char *const account_name[ACC_COUNT];        /* the keys of metrics.jsonl: "forward_seconds", ... */

/* What a message carries. Between stages: an activation, its gradient, the gradient or the value of a tied weight.
 * Between pipelines: gradients that the receiver adds (SUM), gradients whose sum is complete (SUMMED), values kept to
 * the end of a step (KEPT), updated weights (WEIGHT), gradients that the transport adds over all pipelines (ALL). */
enum chan_kind {
    CHAN_NONE, CHAN_ACT, CHAN_GRAD, CHAN_PGRAD, CHAN_PARAM, CHAN_SUM, CHAN_SUMMED, CHAN_KEPT, CHAN_WEIGHT, CHAN_ALL,
    CHAN_KINDS
};
enum prog_kind { PROG_F, PROG_B, PROG_W, PROG_D, PROG_R, PROG_COUNT };   /* programs of a stage */

/* A class of slots has one first writer and one last reader. */
enum slot_writer { W_LOAD, W_RF, W_F, W_RB, W_B, W_R };
enum slot_last { L_F, L_SF, L_R, L_B, L_SB, L_W, L_O };  /* in the order of a micro-batch's life */

enum act_op {
    ACT_L,      /* load the stage's graph inputs of a micro-batch        0L3   */
    ACT_F,      /* forward                                               1F3   */
    ACT_B,      /* gradient of the inputs                                1B3   */
    ACT_W,      /* gradient of the weights                               1W3   */
    ACT_D,      /* B and W joined, node by node                          1D3   */
    ACT_R,      /* forward again, for values that were not kept for B    1R3   */
    ACT_A,      /* add a block's gradients to those of earlier blocks, after the last micro-batch of the block
                 *                                                       1A3   */
    /* post the send / receive of an activation        1SF3 1RF3 ; with several channels 1SF3.c7: channel 7 */
    ACT_SF, ACT_RF,
    ACT_SB, ACT_RB,   /* ... of a gradient of an activation              1SB3 1RB3 */
    ACT_SP, ACT_RP,   /* ... of the gradient accumulator of one use of a tied weight (to the owner)   1SP.c9 */
    ACT_SG, ACT_RG,   /* ... of a share of the gradients, to another pipeline that adds it          0SG.c9 */
    ACT_G,            /* add the gradients that RG received to this pipeline's                      0G.c9 */
    ACT_SM, ACT_RM,   /* ... of gradients that are the sum over all pipelines                       0SM.c9 */
    ACT_X,      /* post the sum of gradients over all pipelines; the sum replaces them              0X.c9 */
    ACT_SK, ACT_RK,   /* ... of values kept for all micro-batches until the step ends               0SK.c9 */
    ACT_N,      /* squared norms of all gradients, and the loss, over all ranks                       0N    */
    ACT_O,      /* optimizer and statistics; counts as reader of every kept statistic and loss        0O    */
    ACT_SW, ACT_RW,   /* post the send / receive of weights that one pipeline updated for all         0SW.c9 */
    ACT_SU, ACT_RU,   /* post the send / receive of an updated tied weight (from the owner)           1SU.c9 */
    ACT_LW,     /* begin to load the stage's weights from disk into their slot                        1LW   */
    ACT_EW,     /* their slot is free for another stage's weights                                     1EW   */
    ACT_COUNT
};
enum act_kind { KIND_LOAD, KIND_PROGRAM, KIND_SUM, KIND_SEND, KIND_RECV, KIND_ALL, KIND_REDUCE, KIND_OPTIMIZER,
                KIND_FETCH, KIND_EVICT };
extern const struct act_info {
    const char *text, *help;
    enum act_kind kind;
    enum prog_kind prog;                                 /* programs: which of the stage's programs */
    unsigned phases;                                     /* ... and the phases of its calls, 1 << enum phase */
    /* posts: what the message carries; others: the messages that they wait for; programs: what is sent after them */
    enum chan_kind chan;
    enum act_op peer;                                    /* posts: the action at the other end */
    /* the rank's messages, 1 << enum chan_kind, that must have arrived or left before the action runs */
    unsigned after_come, after_left;
    enum account part, wait;                             /* its own time; posts: the time of waits for the message */
    bool has_mb;                                         /* belongs to a micro-batch; otherwise to the whole step */
    bool accumulates;                                    /* adds to gradients of parameters */
    bool across;                                         /* reads and writes values of all micro-batches of its rank */
    /* Slot classes of its stage, 1 << enum slot_writer. It writes the classes in `writes`. It reads a class in `reads`
     * if `lasts` (1 << enum slot_last) has the last reader of that class. */
    unsigned writes, reads, lasts;
} act_info[ACT_COUNT];

static inline bool act_is_post(int op)
{
    return act_info[op].kind == KIND_SEND || act_info[op].kind == KIND_RECV || act_info[op].kind == KIND_ALL;
}
/* The part of time of a call in the action's program. */
static inline enum account act_part(int op, int phase)
{
    if (act_info[op].part != ACC_GRADS) return act_info[op].part;
    return phase == PH_BWD_WEIGHTS ? ACC_WEIGHT_GRAD : ACC_INPUT_GRAD;
}
/* Along AXIS_DP, in buckets: may the receiver read the data in the sender's memory? */
static inline bool channel_lends(enum chan_kind kind)
{
    return kind == CHAN_SUM || kind == CHAN_SUMMED || kind == CHAN_WEIGHT;
}
enum act_op act_post(enum chan_kind kind, enum act_kind end);   /* the action that posts this end of such a message */

/* Actions that accumulate: with ACT_FIRST the first micro-batch of a block overwrites the accumulators. ACT_A: it adds
 * the gradients that B makes (of norms), those that W makes, or both. ACT_LW with ACT_GRADS: gradients come from the
 * file, too; ACT_EW: they go there. */
enum act_flag { ACT_FIRST = 1, ACT_OF_B = 2, ACT_OF_W = 4, ACT_GRADS = 8 };

enum opnd_mode { OPND_READ = 1, OPND_WRITE = 2, OPND_LAST = 4 };
/* slot: of the action's first micro-batch; the slots of its other micro-batches follow */
struct opnd { uint16_t cls, slot; uint8_t mode; };
struct act {                                             /* no pointers */
    uint8_t op, flags;
    /* Level of the accumulators. Actions that accumulate add to this level; ACT_A adds the next level to this level. */
    uint8_t level;
    /* Piece of the stage's layers, counted from the last layers (stage_plan.piece); 0: all layers. Only D and W of a
     * batch's last micro-batch, and the ACT_A after them, have pieces. */
    uint8_t piece;
    /* the first micro-batch, and how many follow from it. Only W has more than one; their slots are neighbours. */
    uint16_t stage, mb, n_mb;
    uint16_t n_opnd;
    uint32_t opnd;                                       /* index of the first operand in plan->opnd */
    int32_t chan;                                        /* posts: channel; otherwise -1 */
};

#endif
