/* Where parameters live: regions of a rank, copies and accumulators of tied weights. The same for all plans of a set.
 */
#include <stdlib.h>
#include "plan/plan.h"

static size_t align64(size_t n) { return (n + 63) / 64 * 64; }
static size_t param_size(const struct param *p)
{
    return align64((size_t)shape_count(&p->shape) * dtype_bytes(p->type));
}

struct place_state { struct placement *pl; const struct selection *s; int *stage_of_group; int n_state; };

static int use_stage(const struct place_state *w, int param, int use)
{
    return w->stage_of_group[w->s->group_of[w->s->g->param[param].use_node[use]]];
}

static struct stage_param *held_by(const struct placement *pl, int stage, int param)
{
    for (int k = 0; k < pl->n_params[stage]; k++) if (pl->param[stage][k].param == param) return &pl->param[stage][k];
    return NULL;
}

/* The first stage of the rank that uses it. */
static int home_of(const struct place_state *w, int param, int rank)
{
    int first = w->pl->n_stages;
    for (int u = 0; u < w->s->g->param[param].n_uses; u++) {
        int s = use_stage(w, param, u);
        if (w->pl->map.rank_of[s] == rank && s < first) first = s;
    }
    return first;
}

static size_t accumulator(struct place_state *w, int stage, const struct stage_param *sp, int use)
{
    const struct stage_param *home = sp->home == stage ? NULL : held_by(w->pl, sp->home, sp->param);
    size_t *end = &w->pl->grad_bytes[w->pl->map.rank_of[stage]], at = *end;
    for (int k = 0; home && home->owner && k < home->n_uses; k++) if (home->use[k] == use) return home->use_off[k];
    *end += sp->bytes;
    return at;
}

/* The owner (stage of the first use) has an accumulator for every use, others for their own uses. */
static void uses_place(struct place_state *w, int stage, struct stage_param *sp)
{
    const struct param *p = &w->s->g->param[sp->param];
    sp->use = arena_alloc(w->pl->mem, (size_t)p->n_uses * sizeof *sp->use);
    sp->use_off = arena_alloc(w->pl->mem, (size_t)p->n_uses * sizeof *sp->use_off);
    sp->use_local = arena_alloc(w->pl->mem, (size_t)p->n_uses * sizeof *sp->use_local);
    if (p->kind != PARAM_WEIGHT || p->frozen) return;
    for (int u = 0; u < p->n_uses; u++) {
        int at = use_stage(w, sp->param, u);
        if (at != stage && !sp->owner) continue;
        sp->use[sp->n_uses] = u;
        sp->use_local[sp->n_uses] = w->pl->map.rank_of[at] == w->pl->map.rank_of[stage];
        sp->use_off[sp->n_uses] = accumulator(w, stage, sp, u);
        sp->n_uses++;
    }
}

static void param_place(struct place_state *w, int stage, int param)
{
    const struct param *p = &w->s->g->param[param];
    struct placement *pl = w->pl;
    bool used = false;
    int rank = pl->map.rank_of[stage];
    for (int u = 0; u < p->n_uses; u++) used |= use_stage(w, param, u) == stage;
    if (!used) return;
    struct stage_param *sp = &pl->param[stage][pl->n_params[stage]++];
    *sp = (struct stage_param){.param = param,
                               .off = pl->param_bytes[rank],
                               .bytes = param_size(p),
                               .state_off = SIZE_MAX,
                               .owner = use_stage(w, param, 0) == stage,
                               .home = home_of(w, param, rank)};
    if (sp->home == stage) pl->param_bytes[rank] += sp->bytes;
    else sp->off = held_by(pl, sp->home, param)->off;
    uses_place(w, stage, sp);
    if (!sp->owner || !sp->n_uses || !w->n_state) return;
    sp->state_off = pl->state_bytes[rank];
    pl->state_bytes[rank] += sp->bytes * (size_t)w->n_state;
}

int stage_map_make(struct arena *mem, int n_stages, int n_ranks, const int *rank_of, struct stage_map *out,
                   struct err *e)
{
    *out = (struct stage_map){.n_stages = n_stages,
                              .n_ranks = n_ranks,
                              .rank_of = arena_alloc(mem, (size_t)n_stages * sizeof *out->rank_of),
                              .n_stages_of = arena_alloc(mem, (size_t)n_ranks * sizeof *out->n_stages_of),
                              .stages_of = arena_alloc(mem, (size_t)n_ranks * sizeof *out->stages_of)};
    for (int r = 0; r < n_ranks; r++) out->stages_of[r] = arena_alloc(mem, (size_t)n_stages * sizeof **out->stages_of);
    for (int i = 0; i < n_stages; i++) {
        int r = out->rank_of[i] = rank_of ? rank_of[i] : i % n_ranks;
        if (r < 0 || r >= n_ranks) return err_set(e, E_CONF, "stage %d on rank %d of %d", i, r, n_ranks);
        out->stages_of[r][out->n_stages_of[r]++] = i;
    }
    for (int r = 0; r < n_ranks; r++)
        if (!out->n_stages_of[r]) return err_set(e, E_CONF, "rank %d of %d has no stage", r, n_ranks);
    return 0;
}

struct placement *placement_make(const struct placement_request *r, struct err *e)
{
    const struct selection *s = r->sel;
    const int *first_group = r->first_group;
    int n_stages = r->n_stages, n_ranks = r->n_ranks;
    if (n_ranks < 1 || n_stages < n_ranks || first_group[0] != 0 || first_group[n_stages] != s->n_groups) {
        err_set(e, E_CONF, "%d stages do not fit %d ranks and %d kernel groups", n_stages, n_ranks, s->n_groups);
        return NULL;
    }
    struct arena *mem = arena_new();
    struct placement *pl = arena_alloc(mem, sizeof *pl);
    *pl = (struct placement){.mem = mem, .n_stages = n_stages, .n_ranks = n_ranks};
    pl->first_group = arena_alloc(mem, (size_t)(n_stages + 1) * sizeof *pl->first_group);
    if (stage_map_make(mem, n_stages, n_ranks, r->rank_of, &pl->map, e)) { placement_free(pl); return NULL; }
    pl->n_params = arena_alloc(mem, (size_t)n_stages * sizeof *pl->n_params);
    pl->param = arena_alloc(mem, (size_t)n_stages * sizeof *pl->param);
    pl->derived_off = arena_alloc(mem, (size_t)s->n_groups * sizeof *pl->derived_off);
    size_t **per_rank[] = {&pl->param_bytes, &pl->grad_bytes, &pl->state_bytes, &pl->derived_bytes};
    for (int i = 0; i < 4; i++) *per_rank[i] = arena_alloc(mem, (size_t)n_ranks * sizeof(size_t));
    int *stage_of_group = mem_alloc((size_t)s->n_groups * sizeof *stage_of_group);
    for (int i = 0; i <= n_stages; i++) pl->first_group[i] = first_group[i];
    for (int i = 0; i < n_stages; i++)
        for (int g = first_group[i]; g < first_group[i + 1]; g++) stage_of_group[g] = i;
    struct place_state w = {pl, s, stage_of_group, r->n_state};
    for (int i = 0; i < n_stages; i++) {
        pl->param[i] = arena_alloc(mem, (size_t)(s->g->n_params + 1) * sizeof **pl->param);
        for (int k = 0; k < s->g->n_params; k++) param_place(&w, i, k);
        for (int g = first_group[i]; g < first_group[i + 1]; g++) {
            size_t *used = &pl->derived_bytes[pl->map.rank_of[i]];
            pl->derived_off[g] = *used;
            *used += s->group[g].derived_bytes;
        }
    }
    free(stage_of_group);
    return pl;
}

void placement_free(struct placement *p) { if (p) arena_free(p->mem); }
