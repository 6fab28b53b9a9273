/* The table of actions. */
#include "plan/act.h"

const char *const account_name[ACC_COUNT] = {
    "forward_seconds", "input_grad_seconds", "weight_grad_seconds", "recompute_seconds", "optimizer_seconds",
    "transfer_seconds", "wait_upstream_seconds", "wait_downstream_seconds", "checkpoint_seconds", "load_seconds",
    "weights_wait_seconds", "other_seconds",
};

#define BIT(x) (1u << (x))
enum {
    MADE = BIT(W_LOAD) | BIT(W_RF) | BIT(W_F),           /* activations of the forward pass */
    ANY = MADE | BIT(W_RB) | BIT(W_B) | BIT(W_R),
    /* messages that must arrive before a step can end */
    ENDS = BIT(CHAN_PGRAD) | BIT(CHAN_SUMMED) | BIT(CHAN_KEPT) | BIT(CHAN_ALL),
    FROM_B = BIT(L_B) | BIT(L_SB) | BIT(L_W) | BIT(L_O),
};

/* side: the direction in which a send's message goes, or from which a receive's message comes. */
#define POST(name, what, end, other, carries, side, mb) \
    {.text = name, .help = what, .kind = end, .chan = carries, .peer = other, .part = ACC_TRANSFER, .wait = side, \
     .has_mb = mb}

const struct act_info act_info[ACT_COUNT] = {
    [ACT_L] = {"L", "load the inputs that the rank's stages read", KIND_LOAD, .part = ACC_LOAD, .has_mb = true,
               .writes = BIT(W_LOAD)},
    [ACT_F] = {"F", "forward pass", KIND_PROGRAM, PROG_F, BIT(PH_FWD), CHAN_ACT, .part = ACC_FORWARD, .has_mb = true,
               .writes = BIT(W_F), .reads = BIT(W_LOAD) | BIT(W_RF), .lasts = ~0u},
    /* B reads gradients that it received, and adds to them; norms also make their parameters' gradients here */
    [ACT_B] = {"B", "gradient of the inputs", KIND_PROGRAM, PROG_B, BIT(PH_BWD_DATA), CHAN_GRAD,
               .part = ACC_INPUT_GRAD, .has_mb = true, .accumulates = true, .writes = BIT(W_RB) | BIT(W_B),
               .reads = ANY & ~BIT(W_B), .lasts = FROM_B},
    [ACT_W] = {"W", "gradient of the weights", KIND_PROGRAM, PROG_W, BIT(PH_BWD_WEIGHTS), .part = ACC_WEIGHT_GRAD,
               .has_mb = true, .accumulates = true, .reads = ANY, .lasts = BIT(L_W) | BIT(L_O)},
    [ACT_D] = {"D", "B and W joined, layer by layer", KIND_PROGRAM, PROG_D, BIT(PH_BWD_DATA) | BIT(PH_BWD_WEIGHTS),
               CHAN_GRAD, .part = ACC_GRADS, .has_mb = true, .accumulates = true, .writes = BIT(W_RB) | BIT(W_B),
               .reads = ANY & ~BIT(W_B), .lasts = FROM_B},
    [ACT_R] = {"R", "forward again, of what was not kept", KIND_PROGRAM, PROG_R, BIT(PH_FWD), .part = ACC_RECOMPUTE,
               .has_mb = true, .writes = BIT(W_R), .reads = MADE,
               .lasts = BIT(L_R) | BIT(L_B) | BIT(L_SB) | BIT(L_W)},
    [ACT_A] = {"A", "add a block's gradients to those before it", KIND_SUM, .part = ACC_WEIGHT_GRAD, .has_mb = true},
    [ACT_SF] = POST("SF", "post the send of an activation", KIND_SEND, ACT_RF, CHAN_ACT, ACC_WAIT_DOWN, true),
    [ACT_RF] = POST("RF", "post the receive of an activation", KIND_RECV, ACT_SF, CHAN_ACT, ACC_WAIT_UP, true),
    [ACT_SB] = POST("SB", "post the send of a gradient", KIND_SEND, ACT_RB, CHAN_GRAD, ACC_WAIT_UP, true),
    [ACT_RB] = POST("RB", "post the receive of a gradient", KIND_RECV, ACT_SB, CHAN_GRAD, ACC_WAIT_DOWN, true),
    [ACT_SP] = POST("SP", "post the send of a tied weight's gradient to its owner", KIND_SEND, ACT_RP, CHAN_PGRAD,
                    ACC_WAIT_UP, false),
    [ACT_RP] = POST("RP", "post the receive of a tied weight's gradient", KIND_RECV, ACT_SP, CHAN_PGRAD,
                    ACC_WAIT_DOWN, false),
    [ACT_SG] = {"SG", "post the send of gradients that another replica adds", KIND_SEND, .chan = CHAN_SUM,
                .peer = ACT_RG, .after_come = BIT(CHAN_PGRAD), .part = ACC_TRANSFER, .wait = ACC_WAIT_DOWN},
    [ACT_RG] = POST("RG", "post the receive of another replica's gradients", KIND_RECV, ACT_SG, CHAN_SUM,
                    ACC_WAIT_DOWN, false),
    [ACT_G] = {"G", "add another replica's gradients", KIND_SUM,
               .after_come = BIT(CHAN_SUM) | BIT(CHAN_PGRAD), .part = ACC_WEIGHT_GRAD},
    [ACT_SM] = {"SM", "post the send of gradients that are added up", KIND_SEND, .chan = CHAN_SUMMED, .peer = ACT_RM,
                .after_come = BIT(CHAN_SUMMED), .part = ACC_TRANSFER, .wait = ACC_WAIT_DOWN},
    /* RM overwrites the part that was sent to the adding replica. That replica may read the part there until it has
     * added it. */
    [ACT_RM] = {"RM", "post the receive of gradients that are added up", KIND_RECV, .chan = CHAN_SUMMED,
                .peer = ACT_SM, .after_left = BIT(CHAN_SUM), .part = ACC_TRANSFER, .wait = ACC_WAIT_DOWN},
    [ACT_X] = {"X", "post the sum of gradients over all replicas", KIND_ALL, .chan = CHAN_ALL, .peer = ACT_X,
               .after_come = BIT(CHAN_PGRAD), .part = ACC_TRANSFER, .wait = ACC_WAIT_DOWN},
    [ACT_SK] = POST("SK", "post the send of what is kept of all micro-batches to another replica", KIND_SEND, ACT_RK,
                    CHAN_KEPT, ACC_WAIT_DOWN, false),
    [ACT_RK] = POST("RK", "post the receive of what another replica keeps", KIND_RECV, ACT_SK, CHAN_KEPT,
                    ACC_WAIT_DOWN, false),
    [ACT_N] = {"N", "norms of all gradients, and whether all is finite, over all ranks", KIND_REDUCE,
               .chan = CHAN_PGRAD, .after_come = ENDS, .after_left = BIT(CHAN_SUMMED) | BIT(CHAN_ALL),
               .part = ACC_OPTIMIZER, .across = true},
    [ACT_O] = {"O", "optimizer step and running statistics", KIND_OPTIMIZER, .chan = CHAN_PGRAD,
               .after_come = ENDS, .part = ACC_OPTIMIZER, .across = true},
    [ACT_SW] = {"SW", "post the send of updated weights to another replica", KIND_SEND, .chan = CHAN_WEIGHT,
                .peer = ACT_RW, .after_come = BIT(CHAN_WEIGHT), .part = ACC_TRANSFER, .wait = ACC_WAIT_DOWN},
    [ACT_RW] = POST("RW", "post the receive of weights that another replica has updated", KIND_RECV, ACT_SW,
                    CHAN_WEIGHT, ACC_WAIT_DOWN, false),
    [ACT_SU] = {"SU", "post the send of an updated tied weight", KIND_SEND, .chan = CHAN_PARAM, .peer = ACT_RU,
                .after_come = BIT(CHAN_WEIGHT), .part = ACC_TRANSFER, .wait = ACC_WAIT_DOWN},
    [ACT_RU] = POST("RU", "post the receive of an updated tied weight", KIND_RECV, ACT_SU, CHAN_PARAM,
                    ACC_WAIT_UP, false),
    [ACT_LW] = {"LW", "begin to load weights from outside the device", KIND_FETCH, .part = ACC_FETCH},
    [ACT_EW] = {"EW", "give up the memory of weights", KIND_EVICT, .part = ACC_FETCH},
};

enum act_op act_post(enum chan_kind kind, enum act_kind end)
{
    int op = ACT_SF;
    enum act_kind first = end == KIND_ALL ? KIND_ALL : KIND_SEND;
    while (act_info[op].kind != first || act_info[op].chan != kind) op++;
    return end == KIND_RECV ? act_info[op].peer : (enum act_op)op;
}
