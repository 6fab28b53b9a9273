/* Optimizers: the rule that turns a weight, its gradient and the optimizer's state into the next weight.
 *
 * Who may use it: backends (update) and exec (how much state). Pure. Each optimizer is one header optim_NAME.h with the
 * rule for one element, compiled for CPUs here and for GPUs by their backend, and a row in optim.c; its name in OPTIMS.
 */
#ifndef OPTIM_OPTIM_H
#define OPTIM_OPTIM_H
#include "model/op.h"

struct optim_kind {
    const char *name, *text;
    /* State buffers of one weight, each as long as the weight. */
    int (*n_state)(const struct conf *c);
    /* One weight of n elements. state: n_state buffers behind each other (buffer k begins at state + k * n), NULL if
     * there are none. */
    void (*update)(float *w, const float *g, float *state, size_t n, double lr_factor, double decay_factor,
                   const struct be_block *block);
};
extern const struct optim_kind *const optim_list[];      /* NULL-terminated, order of OPTIMS */
const struct optim_kind *optim_find(const char *name);   /* NULL if there is none */

#endif
