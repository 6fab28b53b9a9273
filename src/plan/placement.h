/* Where persistent values live: which stages lie on which rank, and the regions of their parameters. The same for all
 * plans of a set. Pure, frozen after placement_make. */
#ifndef PLAN_PLACEMENT_H
#define PLAN_PLACEMENT_H
#include "plan/select.h"

struct stage_param {
    int param;                                           /* graph->param */
    size_t off, bytes;                                   /* in the rank's parameter region (weights and statistics) */
    /* in the optimizer state region (n_state x bytes), SIZE_MAX: none */
    size_t state_off;
    /* this stage updates it; others hold a copy of a tied weight */
    bool owner;
    /* local uses and their accumulators in the gradient region (the owner: all uses) */
    int n_uses, *use; size_t *use_off;
    bool *use_local;
};
struct placement {
    struct arena *mem;
    int n_stages, n_ranks, *first_group;                 /* n_stages + 1 entries */
    int *rank_of;                                        /* of each stage */
    int *n_params; struct stage_param **param;           /* of each stage, canonical order */
    size_t *param_bytes, *grad_bytes, *state_bytes, *derived_bytes; /* of each rank */
    size_t *derived_off;                                 /* of each group, in its rank's derived region */
};
/* n_state: state buffers that the optimizer keeps of a weight. */
struct placement *placement_make(const struct selection *s, int n_stages, const int *first_group, int n_ranks,
                                 int n_state, struct err *e);
void placement_free(struct placement *p);

#endif
