/* What all partition policies share: the list, how many stages are asked for, merging stages onto fewer ranks. */
#include "plan/part.h"

#define PARTITION(x) extern const struct part_kind part_##x;
#include "registry.inc"
const struct part_kind *const part_list[] = {
#define PARTITION(x) &part_##x,
#include "registry.inc"
    NULL
};

int part_stage_count(const struct conf *c) { return c->pipeline.stages > 0 ? (int)c->pipeline.stages : c->pipeline.n_stages > 0 ? c->pipeline.n_stages : 1; }

void part_merge(const int *first_group, int n_stages, int n_ranks, int *out)
{
    for (int i = 0; i <= n_ranks; i++) out[i] = first_group[(int)((int64_t)i * n_stages / n_ranks)];
}
