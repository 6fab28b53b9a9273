/* Optimizers: the rule that turns a weight, its gradient and the optimizer's state into the next weight.
 *
 * Who may use it: backends (update), and whoever asks how much state there is. Pure. Each optimizer is one header
 * optim_NAME.h (rule.h says what is in it) and its place in OPTIMS.
 *
 * This folder: optimizers, a header each, and schedules of the learning rate (rate_NAME.c). See
 * docs/design/model.md. */
#ifndef OPTIM_OPTIM_H
#define OPTIM_OPTIM_H
#include "optim/rule.h"

struct optim_kind {
    const char *name, *text;
    const char *key[MAX_HYPER];                          /* the option that gives hyper[i]; NULL: none does */
    int (*states)(const double *hyper);                  /* state buffers of one weight */
    const char *const *buffer;                           /* their names, MAX_STATE or NULLs */
    bool whole;                                          /* be_weight.sums has room for optim_sums(n) doubles */
    void (*once)(struct be_block *b);                    /* completes a block of which all but clip_coef is set */
    void (*update)(const struct be_weight *w, const struct be_block *b);   /* one weight in host memory */
};
extern const struct optim_kind *const optim_list[];      /* NULL-terminated, order of OPTIMS */
int optim_find(const char *name);                        /* index in optim_list, -1 */
int optim_of(const struct conf *c);                      /* that of train.optimizer */
void optim_hyper(const struct conf *c, double hyper[MAX_HYPER]);   /* what the configuration says; 0 elsewhere */
struct state_buffers optim_buffers(const struct conf *c);   /* what it keeps of each weight */

#endif
