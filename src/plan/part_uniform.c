/* uniform: the same number of kernel groups a stage, the first stages get one more where it does not divide. */
#include "plan/plan.h"

static int split(const struct selection *s, const struct cost *k, const struct conf *c, int n_stages, int *first_group, struct err *e)
{
    if (n_stages > s->n_groups) return conf_error(c, "pipeline.stages", e, "%d stages are more than the network's %d kernel groups", n_stages, s->n_groups);
    for (int i = 0, at = 0; i <= n_stages; i++) {
        first_group[i] = at;
        at += s->n_groups / n_stages + (i < s->n_groups % n_stages);
    }
    return 0;
}

const struct part_kind part_uniform = {"uniform", "the same number of layers a stage", split};
