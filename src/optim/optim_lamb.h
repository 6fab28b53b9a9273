/* LAMB (arXiv:1904.00962, algorithm 2, with phi(x) = x): Adam's step with decoupled weight decay, scaled to the norm of
 * the weight. t: be_block.update, as in optim_adamw.h, which defines m, v and their corrections.
 *
 *   g <- clip g;  m <- m + (1 - beta1) (g - m);  v <- beta2 v + (1 - beta2) g g,  from m = v = 0
 *   u = (m / (1 - beta1^t)) / (sqrt(v) / sqrt(1 - beta2^t) + epsilon) + decay w
 *   w <- w - lr (|w| / |u|) u
 *
 * |.|: the Euclidean norm over all elements of this weight; if a norm is 0, their quotient is 1. The norms are sums of
 * doubles in the order of rule.h. u is not stored, but computed twice, before and after the sums. */
#ifndef OPTIM_LAMB_H
#define OPTIM_LAMB_H
#include "optim/optim_adamw.h"

OPTIM_FN int lamb_states(const double *hyper) { return adamw_states(hyper); }
static inline void lamb_once(struct be_block *b) { adamw_once(b); }

struct lamb_step { struct adamw_step rest; double lr; float correction, decay, size; };

OPTIM_FN struct lamb_step lamb_begin(const struct be_block *b, const struct be_weight *w)
{
    struct lamb_step s = {adamw_begin(b, w), b->learning_rate * w->lr_factor, (float)b->hyper[ADAMW_CORRECTION1],
                          (float)(b->hyper[ADAMW_WEIGHT_DECAY] * w->decay_factor), 0};
    return s;
}

/* u of an element, from the m and v of this step. */
OPTIM_FN float lamb_change(const struct lamb_step *s, float w, const float *state)
{
    float u = state[0] / s->correction / (sqrtf(state[1]) / s->rest.root + s->rest.epsilon);
    return s->decay != 0 ? u + s->decay * w : u;
}

/* state[0]: m, state[1]: v; term[0]: of |w|^2, term[1]: of |u|^2 */
OPTIM_FN void lamb_first(const struct lamb_step *s, float w, float g, float *state, double *term)
{
    adamw_moments(&s->rest, clipped(g, s->rest.clip, s->rest.most), state);
    const float u = lamb_change(s, w, state);
    term[0] = (double)w * w;
    term[1] = (double)u * u;
}

OPTIM_FN void lamb_whole(struct lamb_step *s, const double *sum)
{
    const double ratio = sum[0] > 0 && sum[1] > 0 ? sqrt(sum[0]) / sqrt(sum[1]) : 1;
    s->size = (float)(s->lr * ratio);
}

OPTIM_FN float lamb_element(const struct lamb_step *s, float w, float g, float *state)
{
    (void)g;
    return w - s->size * lamb_change(s, w, state);
}

OPTIM_RULE_WHOLE(lamb, "Adam's step and weight decay, scaled for each weight to the length of that weight, so that "
                       "one rate suits all layers in large batches, too (algorithm 2 of arXiv:1904.00962)",
                 OPTIM_KEEPS("exp_avg", "exp_avg_sq"),
                 [ADAMW_BETA1] = "train.beta1", [ADAMW_BETA2] = "train.beta2", [ADAMW_EPSILON] = "train.epsilon",
                 [ADAMW_WEIGHT_DECAY] = "train.weight_decay")

#endif
