/* The table of optimizers, and their loops for CPUs. */
#include <string.h>
#include "optim/optim.h"
#include "optim/optim_sgd.h"

static int sgd_n_state(const struct conf *c) { return c->train.momentum > 0; }

/* As fast as memory: the compiler takes the step's choices out of the loop and vectorises it, which -O2 does not. */
__attribute__((optimize("O3"))) static void sgd_update(float *restrict w, const float *restrict g,
                                                       float *restrict state, size_t n, double lr_factor,
                                                       double decay_factor, const struct be_block *block)
{
    struct sgd_step s = {
        .clip = (float)block->clip_coef,
        .decay = (float)(block->weight_decay * decay_factor),
        .momentum = state ? (float)block->momentum : 0,
        .lr = (float)(block->learning_rate * lr_factor),
        .nesterov = block->nesterov,
    };
    float none = 0;
    for (size_t i = 0; i < n; i++) w[i] = sgd_element(&s, w[i], g[i], state ? &state[i] : &none);
}

static const struct optim_kind optim_sgd = {
    .name = "sgd", .text = "stochastic gradient descent with momentum, Nesterov momentum and weight decay",
    .n_state = sgd_n_state, .update = sgd_update,
};

#define OPTIM(x) &optim_##x,
const struct optim_kind *const optim_list[] = {
#include "registry.inc"
    NULL
};

const struct optim_kind *optim_find(const char *name)
{
    for (const struct optim_kind *const *k = optim_list; *k; k++) if (strcmp((*k)->name, name) == 0) return *k;
    return NULL;
}
