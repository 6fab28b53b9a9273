/* Optimizers: the rule that computes the next weight from a weight, its gradient and the optimizer's state.
 *
 * For backends (update), and for code that needs the amount of state. Pure. Each optimizer is one header optim_NAME.h
 * (see rule.h) and an entry in OPTIMS.
 *
 * This folder: optimizers, a header each, and learning-rate schedules (rate_NAME.c). See docs/design/model.md. */
#ifndef OPTIM_OPTIM_H
#define OPTIM_OPTIM_H
#include "optim/rule.h"

struct optim_kind {
    const char *name, *text;
    const char *key[MAX_HYPER];                          /* the option for hyper[i]; NULL: none */
    int (*states)(const double *hyper);                  /* number of state buffers per weight */
    const char *const *buffer;                           /* their names, MAX_STATE or NULLs */
    bool whole;                                          /* be_weight.sums has space for optim_sums(n) doubles */
    void (*once)(struct be_block *b);                    /* completes a block; all but clip_coef is set before */
    void (*update)(const struct be_weight *w, const struct be_block *b);   /* updates one weight in host memory */
};
extern const struct optim_kind *const optim_list[];      /* NULL-terminated, order of OPTIMS */
int optim_find(const char *name);                        /* index in optim_list, -1 */
int optim_of(const struct conf *c);                      /* index of train.optimizer */
void optim_hyper(const struct conf *c, double hyper[MAX_HYPER]);   /* values from the configuration; 0 elsewhere */
struct state_buffers optim_buffers(const struct conf *c);   /* buffers stored for each weight */

#endif
