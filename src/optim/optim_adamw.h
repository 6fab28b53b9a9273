/* Adam with decoupled weight decay (arXiv:1711.05101) as torch.optim.AdamW computes it, operation by operation
 * (_single_tensor_adamw in torch/optim/adamw.py since 2.0; lerp_ in aten/src/ATen/native/Lerp.h). t: be_block.update,
 * the number of the update, from 1; skipped steps do not count.
 *
 *   g <- clip g;  w <- w (1 - lr decay);  m <- m + (1 - beta1) (g - m);  v <- beta2 v + (1 - beta2) g g
 *   w <- w - lr / (1 - beta1^t) m / (sqrt(v) / sqrt(1 - beta2^t) + epsilon),  from m = v = 0
 *
 * Values that do not depend on the element are computed in double and rounded to float. After that every operation
 * rounds to float in exactly this order. With beta1 <= 0.5, lerp_ starts from the other end: m <- g - (g - m) beta1. */
#ifndef OPTIM_ADAMW_H
#define OPTIM_ADAMW_H
#include "optim/rule.h"

enum { ADAMW_BETA1, ADAMW_BETA2, ADAMW_EPSILON, ADAMW_WEIGHT_DECAY, ADAMW_CORRECTION1, ADAMW_CORRECTION2_ROOT };

OPTIM_FN int adamw_states(const double *hyper) { (void)hyper; return 2; }

static inline void adamw_once(struct be_block *b)
{
    b->hyper[ADAMW_CORRECTION1] = 1 - pow(b->hyper[ADAMW_BETA1], (double)b->update);
    b->hyper[ADAMW_CORRECTION2_ROOT] = sqrt(1 - pow(b->hyper[ADAMW_BETA2], (double)b->update));
}

struct adamw_step {
    float clip, most, keep;                              /* keep: factor that decay applies to a weight */
    float towards; bool from_old;                        /* for lerp_: m <- (old m or g) + towards (g - old m) */
    float beta2, fresh2, root, epsilon, size;
};

OPTIM_FN struct adamw_step adamw_begin(const struct be_block *b, const struct be_weight *w)
{
    const double *hyper = b->hyper, lr = b->learning_rate * w->lr_factor;
    const float fresh = (float)(1 - hyper[ADAMW_BETA1]);
    struct adamw_step s = {
        (float)b->clip_coef,
        (float)b->clip_value,
        (float)(1 - lr * (hyper[ADAMW_WEIGHT_DECAY] * w->decay_factor)),
        fresh < 0.5f ? fresh : -(1 - fresh),
        fresh < 0.5f,
        (float)hyper[ADAMW_BETA2],
        (float)(1 - hyper[ADAMW_BETA2]),
        (float)hyper[ADAMW_CORRECTION2_ROOT],
        (float)hyper[ADAMW_EPSILON],
        (float)-(lr / hyper[ADAMW_CORRECTION1]),
    };
    return s;
}

/* state[0]: m, state[1]: v; g: the clipped gradient */
OPTIM_FN void adamw_moments(const struct adamw_step *s, float g, float *state)
{
    state[0] = (s->from_old ? state[0] : g) + s->towards * (g - state[0]);
    state[1] = state[1] * s->beta2 + s->fresh2 * g * g;
}

OPTIM_FN float adamw_element(const struct adamw_step *s, float w, float g, float *state)
{
    g = clipped(g, s->clip, s->most);
    w = w * s->keep;
    adamw_moments(s, g, state);
    return w + s->size * state[0] / (sqrtf(state[1]) / s->root + s->epsilon);
}

OPTIM_RULE(adamw, "Adam with decoupled weight decay: torch.optim.AdamW's formula",
           OPTIM_KEEPS("exp_avg", "exp_avg_sq"),
           [ADAMW_BETA1] = "train.beta1", [ADAMW_BETA2] = "train.beta2", [ADAMW_EPSILON] = "train.epsilon",
           [ADAMW_WEIGHT_DECAY] = "train.weight_decay")

#endif
