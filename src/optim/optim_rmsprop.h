/* RMSprop (Hinton's lecture 6e, not centred) as torch.optim.RMSprop computes it, operation by operation
 * (_single_tensor_rmsprop in torch/optim/rmsprop.py); torch's alpha is train.beta2 here.
 *
 *   g <- clip g + decay w;  v <- alpha v + (1 - alpha) g g,  from v = 0;  d = g / (sqrt(v) + epsilon)
 *   w <- w - lr d, or with momentum:  m <- momentum m + d, from m = 0;  w <- w - lr m
 *
 * Values that do not depend on the element are computed in double and rounded to float. After that every operation
 * rounds to float in exactly this order. */
#ifndef OPTIM_RMSPROP_H
#define OPTIM_RMSPROP_H
#include "optim/rule.h"

enum { RMSPROP_ALPHA, RMSPROP_EPSILON, RMSPROP_MOMENTUM, RMSPROP_WEIGHT_DECAY };

OPTIM_FN int rmsprop_states(const double *hyper) { return hyper[RMSPROP_MOMENTUM] > 0 ? 2 : 1; }

static inline void rmsprop_once(struct be_block *b) { (void)b; }

struct rmsprop_step { float clip, most, decay, alpha, fresh, epsilon, momentum, size; };

OPTIM_FN struct rmsprop_step rmsprop_begin(const struct be_block *b, const struct be_weight *w)
{
    const double *hyper = b->hyper;
    struct rmsprop_step s = {
        (float)b->clip_coef,
        (float)b->clip_value,
        (float)(hyper[RMSPROP_WEIGHT_DECAY] * w->decay_factor),
        (float)hyper[RMSPROP_ALPHA],
        (float)(1 - hyper[RMSPROP_ALPHA]),
        (float)hyper[RMSPROP_EPSILON],
        (float)hyper[RMSPROP_MOMENTUM],
        (float)-(b->learning_rate * w->lr_factor),
    };
    return s;
}

/* state[0]: v, state[1]: m, with momentum only */
OPTIM_FN float rmsprop_element(const struct rmsprop_step *s, float w, float g, float *state)
{
    g = clipped(g, s->clip, s->most);
    if (s->decay != 0) g = g + s->decay * w;
    state[0] = state[0] * s->alpha + s->fresh * g * g;
    const float root = sqrtf(state[0]) + s->epsilon;
    if (s->momentum == 0) return w + s->size * g / root;
    state[1] = state[1] * s->momentum + g / root;
    return w + s->size * state[1];
}

OPTIM_RULE(rmsprop, "each gradient divided by the root of a running mean of its squares, with momentum: "
                    "torch.optim.RMSprop's formula, not centred; its alpha is train.beta2",
           OPTIM_KEEPS("square_avg", "momentum_buffer"),
           [RMSPROP_ALPHA] = "train.beta2", [RMSPROP_EPSILON] = "train.epsilon",
           [RMSPROP_MOMENTUM] = "train.momentum", [RMSPROP_WEIGHT_DECAY] = "train.weight_decay")

#endif
