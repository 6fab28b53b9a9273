/* uniform: the same number of kernel groups for each stage; the first stages take the remainder. */
#include "plan/part.h"
#include "plan/plan.h"

static int uniform_split(const struct part_request *q, int *first_group, struct err *e)
{
    int n = q->sel->n_groups;
    for (int i = 0, at = 0; i <= q->n_stages; i++) {
        first_group[i] = at;
        at += n / q->n_stages + (i < n % q->n_stages);
    }
    return 0;
}

const struct part_kind part_uniform = {"uniform", "the same number of layers a stage", false, uniform_split};
