/* Where state is: regions of a rank, copies and accumulators of tied weights. The same for all plans of a set. */
#include <stdlib.h>
#include "plan/plan_int.h"

/* The stages of each parameter's uses. */
static void uses_find(struct placement *pl, const struct selection *s)
{
    int n = 0;
    pl->use_first = arena_alloc(pl->mem, (size_t)(s->g->n_params + 1) * sizeof *pl->use_first);
    for (int i = 0; i < s->g->n_params; i++, pl->use_first[i] = n) n += s->g->param[i].n_uses;
    pl->use_stage = arena_alloc(pl->mem, (size_t)(n + 1) * sizeof *pl->use_stage);
    for (int i = 0; i < s->g->n_params; i++)
        for (int u = 0; u < s->g->param[i].n_uses; u++)
            pl->use_stage[pl->use_first[i] + u] = pl->stage_of_group[s->group_of[s->g->param[i].use_node[u]]];
    pl->use_off = arena_alloc(pl->mem, (size_t)pl->mesh.size[AXIS_PP] * sizeof *pl->use_off);
    for (int r = 0; r < pl->mesh.size[AXIS_PP]; r++) {
        pl->use_off[r] = arena_alloc(pl->mem, (size_t)(n + 1) * sizeof **pl->use_off);
        for (int k = 0; k < n; k++) pl->use_off[r][k] = STATE_NOWHERE;
    }
}

static size_t take(size_t *end, size_t bytes)
{
    size_t at = *end;
    *end += bytes;
    return at;
}

static void row_own(struct placement *pl, struct state_row *r)
{
    r->owner = pl->map.rank_of[pl->use_stage[pl->use_first[r->param]]];   /* every parameter of a graph has a use */
    r->shard = (struct shard){AXIS_DP, pl->sharing.weights ? 0 : SHARD_ALL};
    r->off = arena_alloc(pl->mem, (size_t)pl->mesh.size[AXIS_PP] * sizeof *r->off);
    for (int rank = 0; rank < pl->mesh.size[AXIS_PP]; rank++) r->off[rank] = STATE_NOWHERE;
}

/* Parameters and their averages exist once on every rank that uses them. Optimizer buffers exist on the owner, the rank
 * of the first use. */
static bool row_lies(const struct placement *pl, const struct state_row *r, int rank)
{
    bool here = rank == r->owner;
    for (int k = pl->use_first[r->param]; k < pl->use_first[r->param + 1] && r->kind != STATE_OPTIMIZER; k++)
        here |= pl->map.rank_of[pl->use_stage[k]] == rank;
    return here;
}

/* ---- weights in a file ------------------------------------------------------------------------------------------- */

bool placement_may_file(const struct selection *s, const struct state_row *r)
{
    const struct param *p = &s->g->param[r->param];
    bool packed = false;
    for (int u = 0; u < p->n_uses; u++) packed |= s->group[s->group_of[p->use_node[u]]].packed_bytes > 0;
    return r->kind == STATE_WEIGHT && !packed;
}

/* The stage whose slot holds the row; -1: it stays in memory. A weight that several stages use stays there, too. */
static int stage_in_file(const struct placement *pl, const struct placement_request *q, const struct state_row *r)
{
    const int first = pl->use_first[r->param], stage = pl->use_stage[first];
    if (!q->in_file || !q->in_file[stage] || !placement_may_file(q->sel, r)) return -1;
    if (r->trained && (!q->trained_in_file || q->sel->g->param[r->param].n_uses > 1)) return -1;
    for (int k = first; k < pl->use_first[r->param + 1]; k++) if (pl->use_stage[k] != stage) return -1;
    return stage;
}

/* Slots in turn, in the order of stages: those that run one after the other have different slots. */
static void slots_number(struct placement *pl, const struct placement_request *q)
{
    pl->slots = arena_alloc(pl->mem, (size_t)pl->map.n_ranks * sizeof *pl->slots);
    pl->slot_of = arena_alloc(pl->mem, (size_t)pl->n_stages * sizeof *pl->slot_of);
    pl->slot_used = arena_alloc(pl->mem, (size_t)pl->n_stages * sizeof *pl->slot_used);
    pl->slot_grads = arena_alloc(pl->mem, (size_t)pl->n_stages * sizeof *pl->slot_grads);
    for (int s = 0; s < pl->n_stages; s++) pl->slot_of[s] = -1;
    for (int rank = 0; rank < pl->map.n_ranks; rank++) {
        int n = 0;
        for (int i = 0; i < pl->map.n_stages_of[rank]; i++) {
            const int s = pl->map.stages_of[rank][i];
            if (q->in_file && q->in_file[s]) pl->slot_of[s] = n++ % q->slots;
        }
        pl->slots[rank].n = n < q->slots ? n : q->slots;
    }
}

/* Behind all other parameters of a rank. */
static void slots_place(struct placement *pl, const struct placement_request *q, int n_params)
{
    for (int i = 0; i < n_params; i++) {
        const int s = stage_in_file(pl, q, &pl->state[i]);
        if (s < 0) continue;
        struct weight_slots *of = &pl->slots[pl->map.rank_of[s]];
        pl->state[i].home = HOME_FILE;
        pl->state[i].off[pl->map.rank_of[s]] = take(&pl->slot_used[s], pl->state[i].bytes);
        if (pl->slot_used[s] > of->bytes) of->bytes = pl->slot_used[s];
    }
    for (int rank = 0; rank < pl->map.n_ranks; rank++) {
        struct weight_slots *of = &pl->slots[rank];
        if (!of->bytes) { of->n = 0; continue; }
        of->at = pl->param_bytes[rank];
        pl->param_bytes[rank] = of->at + (size_t)of->n * of->bytes;
    }
    for (int i = 0; i < n_params; i++) {
        struct state_row *r = &pl->state[i];
        const int s = pl->use_stage[pl->use_first[i]], rank = pl->map.rank_of[s];
        if (r->home == HOME_FILE) r->off[rank] += pl->slots[rank].at + (size_t)pl->slot_of[s] * pl->slots[rank].bytes;
    }
    for (int s = 0; s < pl->n_stages; s++) if (!pl->slot_used[s]) pl->slot_of[s] = -1;
}

/* Behind all other gradients of a rank. */
static void grad_slots_place(struct placement *pl, int n_params)
{
    for (int i = 0; i < n_params; i++) {
        const struct state_row *r = &pl->state[i];
        const int k = pl->use_first[i], s = pl->use_stage[k], rank = pl->map.rank_of[s];
        struct weight_slots *of = &pl->slots[rank];
        if (r->home != HOME_FILE || !r->trained) continue;
        pl->use_off[rank][k] = take(&pl->slot_grads[s], r->bytes);
        if (pl->slot_grads[s] > of->grad_bytes) of->grad_bytes = pl->slot_grads[s];
    }
    for (int rank = 0; rank < pl->map.n_ranks; rank++) {
        struct weight_slots *of = &pl->slots[rank];
        of->grad_at = pl->level_bytes[rank];
        pl->level_bytes[rank] += (size_t)of->n * of->grad_bytes;
    }
    for (int i = 0; i < n_params; i++) {
        const struct state_row *r = &pl->state[i];
        const int k = pl->use_first[i], s = pl->use_stage[k], rank = pl->map.rank_of[s];
        if (r->home == HOME_FILE && r->trained)
            pl->use_off[rank][k] += pl->slots[rank].grad_at + (size_t)pl->slot_of[s] * pl->slots[rank].grad_bytes;
    }
}

/* First the trained weights that the rank owns, in the order of their gradients; then all others. Where weights
 * are shared out, weights and gradients then have the same shares. */
static void params_place(struct placement *pl, const struct placement_request *q, int n_params)
{
    for (int own = 1; own >= 0; own--)
        for (int i = 0; i < n_params; i++) {
            struct state_row *r = &pl->state[i];
            for (int rank = 0; rank < pl->mesh.size[AXIS_PP]; rank++)
                if ((r->trained && r->owner == rank) == own && row_lies(pl, r, rank) && stage_in_file(pl, q, r) < 0)
                    r->off[rank] = take(&pl->param_bytes[rank], r->bytes);
        }
}

/* State besides parameters, in the order of the registry. For the optimizer state that each pipeline keeps of its
 * share of the weights, the region has space for the largest share. */
static void beside_place(struct placement *pl, int n_params)
{
    size_t *end = mem_alloc((size_t)mesh_ranks(&pl->mesh) * sizeof *end);
    for (int i = n_params; i < pl->n_state; i++) {
        struct state_row *r = &pl->state[i];
        r->shard = pl->state[r->param].shard;
        for (int rank = 0; rank < pl->mesh.size[AXIS_PP]; rank++) {
            struct mesh_coord c = {{[AXIS_PP] = rank, [AXIS_DP] = shard_first(r->shard)}};
            size_t *all = &pl->state_bytes[rank], *own = &end[mesh_rank(&pl->mesh, c)];
            if (!row_lies(pl, r, rank) || r->home == HOME_FILE) continue;
            r->off[rank] = take(r->kind == STATE_OPTIMIZER ? own : all, r->bytes);
            if (*own > *all) *all = *own;
        }
    }
    free(end);
}

/* First the gradients of weights that the rank owns, which pipelines exchange; then those of weights that it only
 * uses. */
static void grads_place(struct placement *pl, const struct state_row *r, bool owned)
{
    if (r->home == HOME_FILE) return;
    for (int k = pl->use_first[r->param]; r->trained && k < pl->use_first[r->param + 1]; k++)
        for (int rank = 0; rank < pl->mesh.size[AXIS_PP]; rank++)
            if (owned ? rank == r->owner : rank != r->owner && rank == pl->map.rank_of[pl->use_stage[k]])
                pl->use_off[rank][k] = take(&pl->level_bytes[rank], r->bytes);
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

/* If the host's memory is too small, each rank has it in proportion to what it needs. */
static void outside_count(struct placement *pl, uint64_t host)
{
    uint64_t all = 0;
    pl->outside_bytes = arena_alloc(pl->mem, (size_t)pl->map.n_ranks * sizeof *pl->outside_bytes);
    pl->host_bytes = arena_alloc(pl->mem, (size_t)pl->map.n_ranks * sizeof *pl->host_bytes);
    for (int s = 0; s < pl->n_stages; s++)
        pl->outside_bytes[pl->map.rank_of[s]] += pl->slot_used[s] + pl->slot_grads[s];
    for (int r = 0; r < pl->map.n_ranks; r++) {
        pl->outside_bytes[r] += pl->state_file[r].all;
        all += pl->outside_bytes[r];
    }
    for (int r = 0; r < pl->map.n_ranks; r++) {
        const double part = all > host ? (double)host / (double)all : 1;
        pl->host_bytes[r] = (uint64_t)((double)pl->outside_bytes[r] * part) / 64 * 64;
        if (all <= host) pl->host_bytes[r] = pl->outside_bytes[r];
    }
}

struct placement *placement_make(const struct placement_request *r, struct err *e)
{
    const struct selection *s = r->sel;
    const int *first_group = r->first_group;
    int n_stages = r->n_stages, n_ranks = r->mesh.size[AXIS_PP];
    if (n_ranks < 1 || n_stages < n_ranks || first_group[0] != 0 || first_group[n_stages] != s->n_groups) {
        err_set(e, E_CONF, "%d stages do not fit %d ranks and %d kernel groups", n_stages, n_ranks, s->n_groups);
        return NULL;
    }
    struct arena *mem = arena_new();
    struct placement *pl = arena_alloc(mem, sizeof *pl);
    *pl = (struct placement){.mem = mem, .mesh = r->mesh, .n_stages = n_stages,
                             .n_levels = plan_levels(r->groups, &r->mesh, r->sharing), .sharing = r->sharing};
    if (pl->mesh.size[AXIS_DP] < 1) pl->mesh.size[AXIS_DP] = 1;
    pl->first_group = arena_alloc(mem, (size_t)(n_stages + 1) * sizeof *pl->first_group);
    if (stage_map_make(mem, n_stages, n_ranks, r->rank_of, &pl->map, e)) { placement_free(pl); return NULL; }
    pl->packed_off = arena_alloc(mem, (size_t)s->n_groups * sizeof *pl->packed_off);
    size_t **per_rank[] = {&pl->param_bytes, &pl->grad_bytes, &pl->state_bytes, &pl->packed_bytes,
                           &pl->level_bytes, &pl->sum_bytes, &pl->update_bytes};
    for (int i = 0; i < 7; i++) *per_rank[i] = arena_alloc(mem, (size_t)n_ranks * sizeof(size_t));
    pl->stage_of_group = arena_alloc(mem, (size_t)s->n_groups * sizeof *pl->stage_of_group);
    for (int i = 0; i <= n_stages; i++) pl->first_group[i] = first_group[i];
    for (int i = 0; i < n_stages; i++)
        for (int g = first_group[i]; g < first_group[i + 1]; g++) {
            pl->stage_of_group[g] = i;
            pl->packed_off[g] = take(&pl->packed_bytes[pl->map.rank_of[i]], s->group[g].packed_bytes);
        }
    uses_find(pl, s);
    pl->n_state = state_rows_make(mem, s, &r->buffers, &pl->state);
    for (int i = 0; i < pl->n_state; i++) row_own(pl, &pl->state[i]);
    slots_number(pl, r);
    params_place(pl, r, s->g->n_params);
    slots_place(pl, r, s->g->n_params);
    for (int i = 0; i < s->g->n_params; i++) grads_place(pl, &pl->state[i], true);
    for (int rank = 0; rank < n_ranks; rank++) pl->sum_bytes[rank] = pl->level_bytes[rank];
    for (int i = 0; i < s->g->n_params; i++) grads_place(pl, &pl->state[i], false);
    grad_slots_place(pl, s->g->n_params);
    pl->bucket = arena_alloc(mem, (size_t)n_ranks * sizeof *pl->bucket);
    for (int rank = 0; rank < n_ranks; rank++) {
        pl->grad_bytes[rank] = (size_t)pl->n_levels * pl->level_bytes[rank];
        buckets_make(pl, s, rank);
        for (int i = 0; i < pl->map.n_stages_of[rank]; i++)
            pl->update_bytes[rank] += pl->slot_grads[pl->map.stages_of[rank][i]];
    }
    beside_place(pl, s->g->n_params);
    pl->state_file = arena_alloc(mem, (size_t)n_ranks * sizeof *pl->state_file);
    if (r->buffers.in_file) offload_place(pl, r, s->g->n_params);
    outside_count(pl, r->host);
    return pl;
}

void placement_free(struct placement *p) { if (p) arena_free(p->mem); }
