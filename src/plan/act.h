/* Actions: what a rank does in a step, one after the other ("1F3": forward of micro-batch 3 on stage 1). Pure data. */
#ifndef PLAN_ACT_H
#define PLAN_ACT_H

#include <stdbool.h>
#include <stdint.h>

/* Of a kernel: forward, gradient of the inputs, gradient of the weights. */
enum phase { PH_FWD, PH_BWD_DATA, PH_BWD_WEIGHTS, PH_COUNT };

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

#endif
