/* Stochastic gradient descent as torch.optim.SGD defines it (dampening 0):
 *
 *   g <- clip g;  d = g + decay w;  m <- momentum m + d, from m = 0;  w <- w - lr (d + momentum m if nesterov, else m)
 *
 * Every product and sum is rounded to float in exactly this order. */
#ifndef OPTIM_SGD_H
#define OPTIM_SGD_H
#include "optim/rule.h"

enum { SGD_MOMENTUM, SGD_WEIGHT_DECAY, SGD_NESTEROV };

OPTIM_FN int sgd_states(const double *hyper) { return hyper[SGD_MOMENTUM] > 0; }

static inline void sgd_once(struct be_block *b) { (void)b; }

struct sgd_step { float clip, most, decay, momentum, lr; bool nesterov; };

OPTIM_FN struct sgd_step sgd_begin(const struct be_block *b, const struct be_weight *w)
{
    struct sgd_step s = {
        (float)b->clip_coef,
        (float)b->clip_value,
        (float)(b->hyper[SGD_WEIGHT_DECAY] * w->decay_factor),
        (float)b->hyper[SGD_MOMENTUM],
        (float)(b->learning_rate * w->lr_factor),
        b->hyper[SGD_NESTEROV] != 0,
    };
    return s;
}

/* state[0]: m, with momentum only */
OPTIM_FN float sgd_element(const struct sgd_step *s, float w, float g, float *state)
{
    float d = clipped(g, s->clip, s->most);
    if (s->decay != 0) d = d + s->decay * w;
    if (s->momentum != 0) {
        state[0] = s->momentum * state[0] + d;
        d = s->nesterov ? d + s->momentum * state[0] : state[0];
    }
    return w - s->lr * d;
}

OPTIM_RULE(sgd,
           "stochastic gradient descent with momentum, Nesterov momentum and weight decay: torch.optim.SGD's formula",
           OPTIM_KEEPS("momentum_buffer"),
           [SGD_MOMENTUM] = "train.momentum", [SGD_WEIGHT_DECAY] = "train.weight_decay",
           [SGD_NESTEROV] = "train.nesterov")

#endif
