/* Where persistent values live: which stages lie on which rank, and the regions of their parameters. The same for all
 * plans of a set. Pure, frozen after placement_make. */
#ifndef PLAN_PLACEMENT_H
#define PLAN_PLACEMENT_H
#include "plan/select.h"

/* Which stages each rank has. Ranks here are the plan's; the transport may number them otherwise (exec/exec.h). */
struct stage_map {
    int n_stages, n_ranks, *rank_of;                     /* of each stage */
    int *n_stages_of, **stages_of;                       /* of each rank: its stages, ascending; at least one */
};
/* rank_of NULL: in turn, so one stage a rank or round robin. 78 where a rank has no stage. */
int stage_map_make(struct arena *mem, int n_stages, int n_ranks, const int *rank_of, struct stage_map *out,
                   struct err *e);

struct stage_param {
    int param;                                           /* graph->param */
    size_t off, bytes;                                   /* in the rank's parameter region (weights and statistics) */
    /* in the optimizer state region (n_state x bytes), SIZE_MAX: none */
    size_t state_off;
    /* this stage updates it; the first stage of another rank that uses a tied weight holds a copy (home), and further
     * ones of a rank use what their home holds */
    bool owner;
    int home;
    /* local uses and their accumulators in the gradient region (the owner: all uses, those of its rank are local) */
    int n_uses, *use; size_t *use_off;
    bool *use_local;
};
struct placement {
    struct arena *mem;
    int n_stages, n_ranks, *first_group;                 /* n_stages + 1 entries */
    struct stage_map map;
    int *n_params; struct stage_param **param;           /* of each stage, canonical order */
    size_t *param_bytes, *grad_bytes, *state_bytes, *derived_bytes; /* of each rank */
    size_t *derived_off;                                 /* of each group, in its rank's derived region */
};
struct placement_request {
    const struct selection *sel;
    int n_stages, n_ranks;
    const int *first_group;                              /* n_stages + 1 entries */
    const int *rank_of;                                  /* of each stage; NULL: in turn */
    int n_state;                                         /* optimizer buffers a weight (optim_states) */
};
struct placement *placement_make(const struct placement_request *r, struct err *e);
void placement_free(struct placement *p);

#endif
