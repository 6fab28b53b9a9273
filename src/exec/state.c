/* Persistent tensors of a rank: initialisation, import and export, tied sums, gradient norms, optimizer step, running
 * statistics. */
#include <stdlib.h>
#include <string.h>
#include "base/clock.h"
#include "base/rng.h"
#include "exec/fetch.h"
#include "exec/meter.h"
#include "optim/optim.h"

/* Initial values: element i of parameter k is a function of (seed, k, i), so it does not depend on ranks or order. */
static void init_values(const struct param *p, int index, uint64_t seed, float *x)
{
    uint64_t n = (uint64_t)shape_count(&p->shape);
    struct rng_at at = {seed, RNG_INIT, (uint32_t)index};
    if (p->init == INIT_NORMAL) rng_fill_normal(at, x, n);
    if (p->init == INIT_UNIFORM) rng_fill_uniform(at, x, n);
    for (uint64_t i = 0; i < n; i++) {
        if (p->init == INIT_ZERO) x[i] = 0;
        else if (p->init == INIT_ONE) x[i] = 1;
        else if (p->init == INIT_CONSTANT) x[i] = (float)p->scale;
        else if (p->init == INIT_UNIFORM) x[i] = (float)(p->scale * (2.0 * x[i] - 1.0));
        else x[i] = (float)(p->scale * x[i]);
    }
}

/* to[j][i] = from[i][j], n x m floats. */
static void turn(float *to, const float *from, int64_t n, int64_t m)
{
    for (int64_t i = 0; i < n; i++) for (int64_t j = 0; j < m; j++) to[j * n + i] = from[i * m + j];
}

/* Between the order of files and that of the graph (state_row.turned). */
static int file_get(struct exec *s, const struct state_row *r, void *plain, const void *storage, struct err *e)
{
    if (!r->turned) return s->ops->param_export(s->be, r->param, plain, storage, e);
    float *x = mem_alloc(state_plain_bytes(r) + 1);
    int bad = s->ops->param_export(s->be, r->param, x, storage, e);
    if (!bad) turn(plain, x, r->shape.d[0], r->shape.d[1]);
    free(x);
    return bad;
}

/* A row in a file that updates change, or (grad) its gradient: its stored bytes pass through memory of their own. */
static int offloaded_get(struct exec *s, const struct state_row *r, bool grad, void *plain, struct err *e)
{
    void *stored = mem_alloc(r->bytes);
    const int bad = (grad ? offload_grad : offload_get)(s, r, stored, e) || file_get(s, r, plain, stored, e);
    free(stored);
    return bad ? -1 : 0;
}

static bool is_offloaded(const struct state_row *r)
{
    return r->home == HOME_FILE && (r->kind == STATE_OPTIMIZER || r->trained);
}

/* Through memory of the host: the slot of a frozen weight, if that is such memory. */
static int outside_set(struct exec *s, const struct state_row *r, const void *values, struct err *e)
{
    if (r->kind == STATE_WEIGHT && fetch_row_begin(s, r, e)) return -1;
    void *own = is_offloaded(r) || s->ops->stream ? mem_alloc(r->bytes) : NULL, *stored = own ? own : state_at(s, r);
    const int bad = s->ops->param_import(s->be, r->param, stored, values, e) ||
                    (is_offloaded(r) ? offload_set(s, r, stored, e) : fetch_row_write(s, r, stored, e));
    free(own);
    return bad ? -1 : 0;
}

static int values_set(struct exec *s, const struct state_row *r, const void *values, struct err *e)
{
    if (r->home == HOME_FILE) return outside_set(s, r, values, e);
    return s->ops->param_import(s->be, r->param, state_at(s, r), values, e);
}

int exec_state_begin(struct exec *s, int row, struct err *e)
{
    const struct state_row *r = &s->q.pl->state[row];
    if (r->kind == STATE_AVERAGE)
        return s->ops->copy(s->be, state_at(s, r), state_at(s, &s->q.pl->state[r->param]), r->bytes, e);
    const bool drawn = r->region == IN_PARAM && r->file.type == F32;
    void *there = exec_state_values(s, row), *x = there ? there : mem_alloc(state_plain_bytes(r) + 1);
    if (drawn) init_values(&s->g->param[r->param], r->param, (uint64_t)s->q.conf->run.seed, x);
    else memset(x, 0, state_plain_bytes(r));
    if (there) return 0;
    int bad = values_set(s, r, x, e);
    free(x);
    return bad;
}

/* The optimizer's buffers begin as zeros, because the backend's memory is zeroed. */
int exec_state_init(struct exec *s, struct err *e)
{
    for (int i = 0; i < s->q.pl->n_state; i++) {
        bool here = s->q.pl->state[i].region == IN_PARAM && exec_holds(s, i);
        if (here && exec_state_begin(s, i, e)) return -1;
    }
    return exec_averages_begin(s, e) || exec_state_changed(s, e) ? -1 : 0;
}

bool exec_holds(const struct exec *s, int row)
{
    const struct state_row *r = &s->q.pl->state[row];
    bool here = r->kind != STATE_OPTIMIZER || placement_updates(r, exec_coord(s));
    return here && r->off[s->rank] != STATE_NOWHERE;
}
bool exec_owns(const struct exec *s, int row)
{
    return placement_writer(s->q.pl, &s->q.pl->state[row]) == all_rank(s);
}

void *exec_state_values(struct exec *s, int row)
{
    const struct state_row *r = &s->q.pl->state[row];
    if (r->turned || r->home == HOME_FILE || !s->ops->param_values) return NULL;
    return s->ops->param_values(s->be, r->param, state_at(s, r));
}

int exec_state_get(struct exec *s, int row, void *plain, struct err *e)
{
    const struct state_row *r = &s->q.pl->state[row];
    if (is_offloaded(r)) return offloaded_get(s, r, false, plain, e);
    if (r->home != HOME_FILE) return file_get(s, r, plain, state_at(s, r), e);
    void *stored = mem_alloc(r->bytes);
    const int bad = fetch_row_read(s, r, stored, e) || file_get(s, r, plain, stored, e);
    free(stored);
    return bad ? -1 : 0;
}

int exec_state_set(struct exec *s, int row, const void *plain, struct err *e)
{
    const struct state_row *r = &s->q.pl->state[row];
    if (!r->turned) return values_set(s, r, plain, e);
    float *x = mem_alloc(state_plain_bytes(r) + 1);
    turn(x, plain, r->shape.d[1], r->shape.d[0]);
    int bad = values_set(s, r, x, e);
    free(x);
    return bad;
}

int exec_state_from(struct exec *s, int row, const struct exec_source *from, struct err *e)
{
    const struct state_row *r = &s->q.pl->state[row];
    return r->home == HOME_FILE && !is_offloaded(r) ? fetch_row_from(s, r, from, e) : 0;
}

int exec_state_changed(struct exec *s, struct err *e) { return exec_pack(s, false, e); }

bool exec_derives(const struct exec *s, int group)
{
    const struct group *k = &s->q.sel->group[group];
    bool changes = false;
    for (int j = 0; j < k->n_param; j++) changes |= !s->g->param[k->param[j]].frozen;
    return changes && k->packed_bytes && !s->packed_by_update[group];
}

int exec_pack(struct exec *s, bool after_step, struct err *e)
{
    const struct selection *sel = s->q.sel;
    for (int n = 0; n < s->n_own; n++) {
        int i = s->own[n];
        for (int g = s->q.pl->first_group[i]; g < s->q.pl->first_group[i + 1]; g++) {
            const struct group *k = &sel->group[g];
            if (!k->packed_bytes || (after_step && !exec_derives(s, g))) continue;
            void *param[MAX_PARAM] = {0};
            for (int j = 0; j < k->n_param; j++) param[j] = state_at(s, &s->q.pl->state[k->param[j]]);
            if (s->ops->pack(s->be, g, param, s->packed.at + s->q.pl->packed_off[g], e)) return -1;
        }
    }
    return 0;
}

/* Does this rank update it? Trained rows are the graph's weights, and buffers after them. */
static bool updates(const struct exec *s, int param)
{
    return placement_updates(&s->q.pl->state[param], exec_coord(s));
}

/* The group whose packed weights one optimizer pass can make together with the weight: the only group on this rank with
 * packed weights of it. -1: none. */
static int packed_with(const struct exec *s, int param)
{
    int found = -1;
    for (int n = 0; n < s->n_own && s->ops->packs; n++) {
        int i = s->own[n];
        for (int g = s->q.pl->first_group[i]; g < s->q.pl->first_group[i + 1]; g++) {
            const struct group *k = &s->q.sel->group[g];
            if (!k->packed_bytes || k->param[0] != param) continue;
            if (found >= 0 || k->packed_apart) return -1;
            found = g;
        }
    }
    return found;
}

static void weight_list(struct exec *s, int param)
{
    const struct state_row *r = &s->q.pl->state[param];
    size_t n = r->bytes / sizeof(float);
    int with = packed_with(s, param);
    if (with >= 0) s->packed_by_update[with] = true;
    s->weight[s->n_weights++] = (struct be_weight){
        .w = state_at(s, r), .g = use_at(s, param, 0), .n = n, .lr_factor = r->lr_factor,
        .decay_factor = r->decay_factor, .packed = with >= 0 ? s->packed.at + s->q.pl->packed_off[with] : NULL,
    };
}

/* Memory for the optimizer's sums over each weight: a double or two for 4096 elements, too little to plan. */
static int sums_list(struct exec *s, struct err *e)
{
    size_t at = 0;
    if (!s->n_weights || !optim_list[s->optimizer]->whole) return 0;
    for (int i = 0; i < s->n_weights; i++) s->n_sums += optim_sums(s->weight[i].n);
    if (!(s->sums = s->ops->alloc(s->be, s->n_sums * sizeof *s->sums, e))) return -1;
    for (int i = 0; i < s->n_weights; at += optim_sums(s->weight[i++].n)) s->weight[i].sums = s->sums + at;
    return 0;
}

/* Adds the average of a weight, which an optimizer step updates here or on another rank. */
static void average_list(struct exec *s, const struct state_row *r)
{
    float *w = state_at(s, &s->q.pl->state[r->param]);
    if (!updates(s, r->param))
        s->copy[s->n_copies++] =
            (struct be_weight){.w = w, .average = state_at(s, r), .n = r->bytes / sizeof(float)};
    for (int k = 0; k < s->n_weights; k++) if (s->weight[k].w == w) s->weight[k].average = state_at(s, r);
}

/* The weights that an optimizer step updates: each trained weight once, in canonical order. Buffers of a weight follow
 * each other in memory; rows of buffers come in the order of their weights. */
int exec_weights_list(struct exec *s, struct err *e)
{
    s->packed_by_update = mem_alloc((size_t)s->q.sel->n_groups * sizeof *s->packed_by_update);
    s->weight = mem_alloc((size_t)(s->g->n_params + 1) * sizeof *s->weight);
    for (int i = 0; i < s->g->n_params; i++) if (updates(s, i)) weight_list(s, i);
    s->copy = mem_alloc((size_t)(s->g->n_params + 1) * sizeof *s->copy);
    for (int i = s->g->n_params, k = 0; i < s->q.pl->n_state; i++) {
        const struct state_row *r = &s->q.pl->state[i];
        if (r->kind == STATE_AVERAGE && exec_holds(s, i)) average_list(s, r);
        else if (r->kind == STATE_OPTIMIZER && !r->buffer && !is_offloaded(r) && exec_holds(s, i))
            s->weight[k++].state = state_at(s, r);
    }
    return sums_list(s, e);
}

int exec_grad_get(struct exec *s, int param, void *plain, struct err *e)
{
    const struct state_row *r = &s->q.pl->state[param];
    if (!updates(s, param)) return err_set(e, E_INTERNAL, "%s has no gradient here", r->name);
    if (is_offloaded(r)) return offloaded_get(s, r, true, plain, e);
    return file_get(s, r, plain, use_at(s, param, 0), e);
}

/* If weights are shared out, the last exchange of a bucket leaves sums that only this rank needs. It computes their
 * norms while they are in a cache, so after the last bucket few norms are left. On a stream norms would only be more
 * launches. */
static int share_norms(struct exec *s, const struct channel *c, struct err *e)
{
    const struct placement *pl = s->q.pl;
    bool last = (c->from.at[AXIS_DP] ^ c->to.at[AXIS_DP]) * 2 >= pl->mesh.size[AXIS_DP];
    if (!pl->sharing.weights || !last || s->ops->stream) return 0;
    meter_host(s, ACC_OPTIMIZER);
    for (int i = 0; i < s->g->n_params; i++) {
        if (!updates(s, i) || s->g->param[i].n_uses != 1) continue;
        size_t at = placement_use(pl, s->rank, i, 0);
        if (at < c->off || at >= c->off + c->bytes_per_sample) continue;
        if (exec_norm(s, i, e)) return -1;
        s->has_norm[i] = true;
    }
    return 0;
}

/* sum += more. The time is known only where the addition is over when the call returns. */
static int sum_add(struct exec *s, float *sum, const float *more, size_t n, struct err *e)
{
    uint64_t began = clock_ns();
    if (s->ops->add(s->be, sum, more, n, e)) return -1;
    if (s->ops->stream) return 0;
    s->report->sum_ns += clock_ns() - began;
    s->report->sum_bytes += n * sizeof *sum;
    return 0;
}

/* Another pipeline's share is at level 1, or in lent memory. With ACT_FIRST there is nothing here to add it to. */
static int share_add(struct exec *s, const struct channel *c, struct tp_req *lent, bool first, struct err *e)
{
    void *sum = s->grad.at + c->off;
    const void *came = lent->at ? lent->at : level_at(s, sum, 1);
    int bad = first ? s->ops->copy(s->be, sum, came, c->bytes_per_sample, e)
                    : sum_add(s, sum, came, c->bytes_per_sample / sizeof(float), e);
    if (lent->at) s->tp->ops->get_release(s->tp, lent);
    return bad ? -1 : share_norms(s, c, e);
}

/* Adds the accumulators of the next level to those of the action's level, use by use; the group of a use is on its
 * rank. */
int exec_sum(struct exec *s, struct bound *b, const struct act *a, struct err *e)
{
    int first, end;
    if (a->chan >= 0) return share_add(s, &b->p->chan[a->chan], &b->lent[a->chan], a->flags & ACT_FIRST, e);
    act_groups(b->p, a, &first, &end);
    for (int g = first; g < end; g++) {
        const struct group *k = &s->q.sel->group[g];
        uint32_t of = group_sums(k, a->flags);
        for (int i = 0; i < k->n_param; i++) {
            const struct state_row *r = &s->q.pl->state[k->param[i]];
            if (!(of >> i & 1) || !r->trained) continue;
            float *sum = level_at(s, use_at(s, r->param, k->use[i]), a->level);
            if (sum_add(s, sum, level_at(s, sum, 1), r->bytes / sizeof(float), e)) return -1;
        }
    }
    return 0;
}

/* Adds gradients of a tied weight in the order of uses (R8), so the sum does not depend on where the uses are. */
static int uses_add(struct exec *s, struct err *e)
{
    for (int i = 0; i < s->g->n_params; i++)
        for (int u = 1; u < s->g->param[i].n_uses && updates(s, i); u++)
            if (s->ops->add(s->be, use_at(s, i, 0), use_at(s, i, u), s->q.pl->state[i].bytes / sizeof(float), e))
                return -1;
    return 0;
}

/* If all pipelines have the same sums, each computes the norms of its part of the region. */
bool exec_norms_it(const struct exec *s, int param)
{
    const struct placement *pl = s->q.pl;
    if (!updates(s, param)) return false;
    if (pl->sharing.weights || pl->mesh.size[AXIS_DP] < 2) return true;
    size_t part = pl->sum_bytes[s->rank] / (size_t)pl->mesh.size[AXIS_DP] + 1;
    return placement_use(pl, s->rank, param, 0) / part == (size_t)exec_coord(s).at[AXIS_DP];
}

/* R6: squared norm of each unique parameter in double. Norms that other ranks compute stay 0. */
int exec_norm(struct exec *s, int param, struct err *e)
{
    if (!exec_norms_it(s, param)) return 0;
    /* call.c makes norms of gradients that go to a file before they go */
    return s->ops->sumsq(s->be, use_at(s, param, 0), s->q.pl->state[param].bytes / sizeof(float), &s->norm_at[param],
                         e);
}

bool exec_norm_leaves(const struct exec *s, int param) { return is_offloaded(&s->q.pl->state[param]); }

/* Replays of programs, which have made the norms of gradients that leave, do not set has_norm. */
int exec_norms(struct exec *s, struct bound *b, const struct act *a, struct err *e)
{
    if (uses_add(s, e)) return -1;
    for (int i = 0; i < s->g->n_params; i++)
        if (!s->has_norm[i] && !(s->ops->stream && exec_norm_leaves(s, i)) && exec_norm(s, i, e)) return -1;
    return 0;
}

/* The n-th group whose running statistics a step applies: what each micro-batch's forward pass saved, in the order
 * of the whole batch (R4). */
static void stats_of(struct exec *s, struct bound *b, int stage, int group, int n)
{
    const struct group *k = &s->q.sel->group[group];
    const struct plan *p = b->p;
    const struct place *at = &p->stage[stage].saved_place[group - p->stage[stage].first_group];
    const void **saved = s->saved + n * b->n_micro;
    for (int r = 0; r < p->pl->mesh.size[AXIS_DP]; r++)
        for (int mb = 0; mb < p->part[r].n_mb; mb++) *saved++ = kept_at(s, b, at, r, mb);
    s->running[n] = (struct be_running){.group = group};
    for (int j = 0; j < k->n_param; j++)
        s->running[n].param[j] = state_at(s, &s->q.pl->state[k->param[j]]);
}

/* ---- averages ---------------------------------------------------------------------------------------------------- */

int exec_averages_begin(struct exec *s, struct err *e)
{
    for (int i = s->g->n_params; i < s->q.pl->n_state; i++) {
        bool here = s->q.pl->state[i].kind == STATE_AVERAGE && exec_holds(s, i);
        if (here && exec_state_begin(s, i, e)) return -1;
    }
    return 0;
}

/* Where a rank accumulates a weight's gradients; no reader needs these between steps. */
static float *spare_at(const struct exec *s, int param)
{
    float *at = NULL;
    for (int u = 0; u < s->g->param[param].n_uses && !at; u++) at = use_at(s, param, u);
    return at;
}

static int averages_swap(struct exec *s, bool averaged, struct err *e)
{
    bool any = false;
    for (int i = s->g->n_params; i < s->q.pl->n_state; i++) {
        const struct state_row *r = &s->q.pl->state[i];
        if (r->kind != STATE_AVERAGE || !exec_holds(s, i)) continue;
        if (!any && state_wait(s, e)) return -1;         /* a checkpoint may be reading the weights */
        any = true;
        void *w = state_at(s, &s->q.pl->state[r->param]), *spare = spare_at(s, r->param);
        if (averaged && s->ops->copy(s->be, spare, w, r->bytes, e)) return -1;
        if (s->ops->copy(s->be, w, averaged ? state_at(s, r) : spare, r->bytes, e)) return -1;
    }
    s->averaged = averaged;
    return any ? exec_pack(s, false, e) : 0;
}

int exec_averages_use(struct exec *s, bool averaged, struct err *e)
{
    bool trains = s->q.pl->n_state > s->g->n_params && s->q.conf->train.ema > 0;
    return trains && s->averaged != averaged ? averages_swap(s, averaged, e) : 0;
}

int exec_averages_copies(struct exec *s, struct err *e)
{
    return s->n_copies ? s->ops->update(s->be, s->optimizer, s->copy, s->n_copies, s->block, e) : 0;
}

static int weights_update(struct exec *s, struct err *e)
{
    if (s->offload) return (s->records ? offload_record : offload_update)(s, e);
    return s->ops->update(s->be, s->optimizer, s->weight, s->n_weights, s->block, e);
}

int exec_optimize(struct exec *s, struct bound *b, struct err *e)
{
    if (weights_update(s, e)) return -1;
    if (b->p->req.batch_norm == STATS_FROZEN) return 0;
    int n = 0;
    for (int k = 0; k < s->n_own; k++) {
        int i = s->own[k];
        for (int g = s->q.pl->first_group[i]; g < s->q.pl->first_group[i + 1]; g++)
            if (s->q.sel->group[g].has_stats) stats_of(s, b, i, g, n++);
    }
    const struct be_stats all = {.of = s->running, .n = n, .deferred = b->p->req.batch_norm == STATS_DEFERRED,
                                 .n_mb = b->n_micro,
                                 .ns = b->micro_n, .saved = s->saved};
    return n ? s->ops->stats(s->be, &all, e) : 0;
}
