/* Adam (arXiv:1412.6980) as torch.optim.Adam computes it: weight decay is part of the gradient. The rest is AdamW.
 *
 *   g <- clip g + decay w;  m, v and w as in optim_adamw.h, without its own decay */
#ifndef OPTIM_ADAM_H
#define OPTIM_ADAM_H
#include "optim/optim_adamw.h"

OPTIM_FN int adam_states(const double *hyper) { return adamw_states(hyper); }
static inline void adam_once(struct be_block *b) { adamw_once(b); }

struct adam_step { struct adamw_step rest; float clip, most, decay; };

OPTIM_FN struct adam_step adam_begin(const struct be_block *b, const struct be_weight *w)
{
    struct adam_step s = {adamw_begin(b, w), 0, 0, (float)(b->hyper[ADAMW_WEIGHT_DECAY] * w->decay_factor)};
    s.clip = s.rest.clip;
    s.most = s.rest.most;
    s.rest.clip = s.rest.keep = 1;
    s.rest.most = 0;
    return s;
}

/* state[0]: m, state[1]: v */
OPTIM_FN float adam_element(const struct adam_step *s, float w, float g, float *state)
{
    g = clipped(g, s->clip, s->most);
    if (s->decay != 0) g = g + s->decay * w;
    return adamw_element(&s->rest, w, g, state);
}

OPTIM_RULE(adam, "Adam with weight decay as a part of the gradient: torch.optim.Adam's formula",
           OPTIM_KEEPS("exp_avg", "exp_avg_sq"),
           [ADAMW_BETA1] = "train.beta1", [ADAMW_BETA2] = "train.beta2", [ADAMW_EPSILON] = "train.epsilon",
           [ADAMW_WEIGHT_DECAY] = "train.weight_decay")

#endif
