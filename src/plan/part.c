/* Shared by all partition policies: the list, the number of stages, merging stages onto fewer ranks. */
#include "plan/part.h"

#define PARTITION(x) extern const struct part_kind part_##x;
#include "registry.inc"
const struct part_kind *const part_list[] = {
#define PARTITION(x) &part_##x,
#include "registry.inc"
    NULL
};

int part_stage_count(const struct conf *c, int n_ranks)
{
    bool by_ranks = n_ranks > 0 && c->pipeline.partition != PART_manual;
    if (c->pipeline.stages > 0) return (int)c->pipeline.stages;
    if (by_ranks) return n_ranks;
    return c->pipeline.n_stages > 0 ? c->pipeline.n_stages : 1;
}

int part_rank_count(const struct conf *c)
{
    return c->pipeline.ranks > 0 ? (int)c->pipeline.ranks : part_stage_count(c, 0);
}

void part_merge(const int *first_group, int n_stages, int n_ranks, int *out)
{
    for (int i = 0; i <= n_ranks; i++) out[i] = first_group[(int)((int64_t)i * n_stages / n_ranks)];
}

struct placement *part_place(const struct part_request *q, const int *first_group, struct err *e)
{
    struct placement_request r = {.sel = q->sel, .n_stages = q->n_stages, .mesh = q->mesh,
                                  .first_group = first_group, .rank_of = q->rank_of, .buffers = q->buffers,
                                  .groups = q->plan->groups, .sharing = q->sharing};
    return placement_make(&r, e);
}

int part_limits(const struct conf *c, const uint64_t *free_bytes, int n_ranks, uint64_t *limit, struct err *e)
{
    const struct conf_ints *l = &c->pipeline.max_memory;
    if (l->n > 1 && l->n != n_ranks)
        return conf_error(c, "pipeline.max_memory", e,
                          "%d sizes for %d rank%s: expected one for all, or one per rank", l->n, n_ranks,
                          n_ranks == 1 ? "" : "s");
    for (int r = 0; r < n_ranks; r++)
        limit[r] = l->n ? (uint64_t)l->v[l->n > 1 ? r : 0] : free_bytes ? free_bytes[r] : PART_NO_LIMIT;
    return 0;
}

double part_excess(const struct plan *p, const uint64_t *limit)
{
    double sum = 0;
    for (int r = 0; r < p->n_ranks; r++) {
        uint64_t bytes = plan_rank_bytes(p, r);
        if (bytes > limit[r]) sum += (double)(bytes - limit[r]) / (double)(limit[r] + 1);
    }
    return sum;
}
