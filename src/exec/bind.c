/* Set-up of a rank's executor: regions and kernels. All memory that a step needs is allocated here. */
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include "exec/disk.h"
#include "exec/fetch.h"
#include "exec/meter.h"
#include "optim/optim.h"

static size_t max_size(size_t a, size_t b) { return a > b ? a : b; }

static int region_open(struct exec *s, struct region *r, struct err *e)
{
    if (!r->bytes || r->at) return 0;
    r->at = s->ops->alloc(s->be, r->bytes, e);
    return r->at ? 0 : -1;
}

static void region_close(struct exec *s, struct region *r)
{
    if (r->at) s->ops->free(s->be, r->at, r->bytes);
    r->at = NULL;
}

/* Regions that depend on the plan get the maximum over the plan set. */
static void regions_size(struct exec *s)
{
    const struct placement *pl = s->q.pl;
    int r = s->rank;
    s->param.bytes = pl->param_bytes[r];
    s->grad.bytes = pl->grad_bytes[r];
    s->state.bytes = pl->state_bytes[r];
    s->packed.bytes = pl->packed_bytes[r];
    if (s->q.links && s->tp->ops->size(s->tp) > 1) s->link.bytes = (size_t)LINK_LARGE * LINK_TRIPS;
    for (int i = 0; i < s->q.n_plans; i++) {
        const struct plan *p = s->q.plan[i];
        s->slots.bytes = max_size(s->slots.bytes, p->slot_bytes[r]);
        s->tmp.bytes = max_size(s->tmp.bytes, p->tmp_bytes[r]);
        s->work.bytes = max_size(s->work.bytes, p->work_bytes[r]);
        s->load_bytes = max_size(s->load_bytes, p->load_bytes[r]);
        if (p->req.batch > s->max_batch) s->max_batch = p->req.batch;
    }
}

/* Puts parameters and gradients where other ranks of this host can read them, if there is such memory. Both begin at
 * whole pages. */
static void window_open(struct exec *s)
{
    const size_t page = 4096, param = (s->param.bytes + page - 1) / page * page;
    bool lends = s->q.pl->mesh.size[AXIS_DP] > 1 && s->q.conf->pipeline.read_in_place && !s->ops->stream;
    if (!lends || !s->tp->ops->window || !(s->window = s->tp->ops->window(s->tp, param + s->grad.bytes))) return;
    s->param.at = s->window;
    s->grad.at = s->window + param;
}

/* One allocation a region. */
static int regions_open(struct exec *s, struct err *e)
{
    window_open(s);
    struct region *all[] = {&s->param, &s->grad, &s->state, &s->packed, &s->slots, &s->tmp, &s->work, &s->link};
    for (size_t i = 0; i < sizeof all / sizeof *all; i++) if (region_open(s, all[i], e)) return -1;
    s->block = s->ops->alloc(s->be, sizeof *s->block, e);
    s->sample = s->ops->alloc(s->be, (size_t)s->max_batch * sizeof *s->sample, e);
    s->norm_at = s->ops->alloc(s->be, (size_t)(s->g->n_params + 1) * sizeof *s->norm_at, e);
    return s->block && s->sample && s->norm_at ? 0 : -1;
}

static void sizes_find(struct bound *b)
{
    const struct plan *p = b->p;
    b->size_of = mem_alloc((size_t)(p->n_mb + 1) * sizeof *b->size_of);
    for (int i = 0; i < p->n_mb; i++) {
        int k = 0;
        while (k < i && p->mb_n[k] != p->mb_n[i]) k++;
        b->size_of[i] = k < i ? b->size_of[k] : b->n_sizes++;
    }
}

static void micro_list(struct bound *b)
{
    const struct plan *p = b->p;
    b->micro_n = mem_alloc((size_t)((p->req.batch - 1) / p->req.split + 1) * sizeof *b->micro_n);
    for (int r = 0; r < p->pl->mesh.size[AXIS_DP]; r++)
        for (int i = 0; i < p->part[r].n_mb; i++) b->micro_n[b->n_micro++] = p->part[r].mb_n[i];
}

static int prog_prepare(struct exec *s, struct bound *b, const struct prog *g, int size, int samples, struct err *e)
{
    int n_groups = s->q.sel->n_groups;
    for (int i = 0; i < g->n; i++) {
        const struct kop *k = &g->k[i];
        const struct group *group = &s->q.sel->group[k->group];
        const struct be_key key = {k->group, (enum phase)k->phase, samples,
                                   b->p->req.mode == PLAN_TRAIN && !group->fixed};
        struct be_kernel **kernel = &b->kernel[(size * PH_COUNT + k->phase) * n_groups + k->group];
        if (!*kernel && s->ops->prepare(s->be, &key, kernel, e))
            return err_where(e, "%s", s->g->node[group->node[0]].name);
    }
    return 0;
}

static int kernels_prepare(struct exec *s, struct bound *b, struct err *e)
{
    const struct plan *p = b->p;
    b->kernel = mem_alloc((size_t)b->n_sizes * PH_COUNT * (size_t)s->q.sel->n_groups * sizeof *b->kernel);
    for (int i = 0; i < s->n_own; i++) {
        const struct stage_plan *st = &p->stage[s->own[i]];
        for (int mb = 0; mb < p->n_mb; mb++)
            for (int k = 0; k < PROG_COUNT; k++)
                if (prog_prepare(s, b, &st->prog[k], b->size_of[mb], p->mb_n[mb], e)) return -1;
    }
    return 0;
}

static int bound_open(struct exec *s, int index, struct err *e)
{
    struct bound *b = &s->bound[index];
    const struct plan *p = b->p = s->q.plan[index];
    b->index = index;
    int posts = 0;
    for (int i = 0; i < p->row_n[s->rank]; i++) posts += act_is_post(p->row[s->rank][i].op);
    exec_loads_list(s, b);
    if (posts > s->max_pending) s->max_pending = posts;
    sizes_find(b);
    micro_list(b);
    b->slot = mem_alloc((size_t)(p->n_cls * p->n_mb + 1) * sizeof *b->slot);
    b->lent = mem_alloc((size_t)(p->n_chan + 1) * sizeof *b->lent);
    if (s->ops->replay) b->graph = mem_alloc((size_t)(p->row_n[s->rank] + 1) * sizeof *b->graph);
    return kernels_prepare(s, b, e);
}

/* The most memory this process ever had in RAM. */
uint64_t resident_peak(void)
{
    struct rusage u;
    return getrusage(RUSAGE_SELF, &u) ? 0 : (uint64_t)u.ru_maxrss * 1024;
}

/* The most bytes of one tensor of scores on this rank, for a whole step. */
static size_t scores_bytes(const struct exec *s, const struct plan *p)
{
    size_t most = 0;
    for (int i = 0; i < p->n_outputs; i++) {
        const struct output *o = &p->output[i];
        bool here = o->rank == s->rank && output_scores(s, o);
        if (here) most = max_size(most, o->at.bytes * (size_t)p->part[0].n_mb);
    }
    return most;
}

int exec_open(const struct exec_request *r, struct exec **out, struct err *e)
{
    struct exec *s = mem_alloc(sizeof *s);
    s->resident_before = resident_peak();
    s->q = *r;
    s->beat = r->beat ? r->beat : &s->unwatched;
    s->g = r->sel->g;
    s->ops = r->be;
    s->tp = r->tp;
    s->rank = r->rank;
    s->n_bound = r->n_plans;
    s->bound = mem_alloc((size_t)r->n_plans * sizeof *s->bound);
    s->norm = mem_alloc((size_t)exec_agreed_numbers(s) * sizeof *s->norm);
    s->has_norm = mem_alloc((size_t)(s->g->n_params + 1) * sizeof *s->has_norm);
    s->norm_before = mem_alloc((size_t)exec_agreed_numbers(s) * sizeof *s->norm);
    graph_scores(s->g, &s->scores);
    s->grad_norm = -1;
    s->plan = -1;
    s->optimizer = optim_of(r->conf);
    s->given = (struct be_block){
        .clip_coef = 1, .clip_value = r->conf->train.clip_value, .seed = (uint64_t)r->conf->run.seed};
    optim_hyper(r->conf, s->given.hyper);
    if (s->ops->open(r->sel, (int)r->conf->run.threads, r->unit, &s->be, e)) {
        exec_close(s);
        return -1;
    }
    s->own = s->q.pl->map.stages_of[s->rank];
    s->n_own = s->q.pl->map.n_stages_of[s->rank];
    regions_size(s);
    *out = s;
    return 0;
}

int exec_free_memory(struct exec *s, size_t *bytes, struct err *e)
{
    *bytes = SIZE_MAX;
    return s->ops->free_memory ? s->ops->free_memory(s->be, bytes, e) : 0;
}

int exec_bind(struct exec *s, struct err *e)
{
    const struct exec_request *r = &s->q;
    if (regions_open(s, e) || exec_weights_list(s, e) || offload_open(s, e) || fetch_open(s, e)) return -1;
    int max_micro = 1;
    uint64_t before = resident_peak();
    for (int i = 0; i < r->n_plans; i++) {
        if (bound_open(s, i, e)) return -1;
        if (s->bound[i].n_micro > max_micro) max_micro = s->bound[i].n_micro;
    }
    s->library_bytes = resident_peak() - before;
    s->pending = mem_alloc((size_t)(s->max_pending + 1) * sizeof *s->pending);
    size_t scores = 0;
    for (int i = 0; i < r->n_plans; i++) scores = max_size(scores, scores_bytes(s, r->plan[i]));
    s->scores_host = mem_alloc(scores + 1);
    s->running = mem_alloc((size_t)r->sel->n_groups * sizeof *s->running);
    s->saved = mem_alloc((size_t)r->sel->n_groups * (size_t)max_micro * sizeof *s->saved);
    for (int i = 0; i < AHEAD; i++) s->ahead[i].id = mem_alloc((size_t)s->max_batch * sizeof(int64_t));
    if (meter_open(s, e) || exec_feeds_open(s, e) || (!r->filled && exec_state_init(s, e))) return -1;
    for (int i = 0; i < s->n_bound && s->ops->stream; i++)
        if (exec_warm(s, &s->bound[i], e) || exec_record(s, &s->bound[i], e)) return -1;
    return 0;
}

uint64_t exec_bytes(const struct exec *s)
{
    return s->param.bytes + s->grad.bytes + s->state.bytes + s->packed.bytes + s->slots.bytes + s->tmp.bytes +
           s->work.bytes + s->link.bytes + s->load_bytes;
}

double exec_peak(struct exec *s) { return s->ops->peak ? s->ops->peak(s->be) : 0; }
uint64_t exec_taken(const struct exec *s) { return s->ops->taken ? s->ops->taken(s->be) : exec_bytes(s); }

void exec_close(struct exec *s)
{
    if (!s) return;
    exec_feeds_close(s);
    disk_close(s);
    fetch_close(s);
    offload_close(s);
    if (s->window) s->param.at = s->grad.at = NULL;        /* the transport owns them */
    if (s->be) {
        region_close(s, &s->param); region_close(s, &s->grad); region_close(s, &s->state); region_close(s, &s->packed);
        region_close(s, &s->slots); region_close(s, &s->tmp); region_close(s, &s->work); region_close(s, &s->link);
        if (s->block) s->ops->free(s->be, s->block, sizeof *s->block);
        if (s->sample) s->ops->free(s->be, s->sample, (size_t)s->max_batch * sizeof *s->sample);
        if (s->norm_at) s->ops->free(s->be, s->norm_at, (size_t)(s->g->n_params + 1) * sizeof *s->norm_at);
        if (s->sums) s->ops->free(s->be, s->sums, s->n_sums * sizeof *s->sums);
        s->ops->close(s->be);
    }
    for (int i = 0; i < s->n_bound; i++) {
        free(s->bound[i].size_of);
        free(s->bound[i].micro_n);
        free((void *)s->bound[i].kernel);
        free(s->bound[i].graph);
        free(s->bound[i].slot);
        free(s->bound[i].lent);
        free((void *)s->bound[i].load);
    }
    for (int i = 0; i < AHEAD; i++) free(s->ahead[i].id);
    meter_close(s);
    free(s->bound);
    free(s->norm);
    free(s->norm_before);
    free(s->has_norm);
    free(s->weight);
    free(s->copy);
    free(s->packed_by_update);
    free(s->pending);
    free(s->scores_host);
    free(s->running);
    free((void *)s->saved);
    free(s);
}
