/* Data into the pipeline: requests the samples of coming orders from the feed, in the order in which the row takes
 * them, never more than the feed's depth. */
#include <string.h>
#include <stdlib.h>
#include "exec/meter.h"

static int plan_part(const struct plan *p) { return p->req.mode == PLAN_TRAIN ? DS_TRAIN : DS_TEST; }
static int part_of(const struct bound *b) { return plan_part(b->p); }
static int depth_of(const struct conf *c) { return c->data.prefetch > 0 ? (int)c->data.prefetch : 2; }

static bool rank_loads(struct plan *const *plan, int n_plans, int rank, int part, int tensor)
{
    for (int i = 0; i < n_plans; i++)
        if (plan_part(plan[i]) == part && plan_rank_loads(plan[i], rank, tensor)) return true;
    return false;
}

size_t exec_feed_bytes(const struct conf *c, struct plan *const *plan, int n_plans, int rank)
{
    size_t all = 0;
    const struct graph *g = plan[0]->sel->g;
    for (int part = DS_TRAIN; part <= DS_TEST; part++) {
        size_t sample = 0;
        for (int i = 0; i < g->n_inputs; i++) {
            const struct tensor *t = &g->tensor[g->input[i].tensor];
            if (!rank_loads(plan, n_plans, rank, part, g->input[i].tensor)) continue;
            sample += (size_t)shape_count(&t->shape) * dtype_bytes(t->type);
        }
        if (sample) all += (size_t)depth_of(c) * (size_t)plan[0]->sel->max_samples * (sample + sizeof(int64_t));
    }
    return all;
}

void exec_loads_list(struct exec *s, struct bound *b)
{
    const struct plan *p = b->p;
    b->load = mem_alloc((size_t)(p->row_n[s->rank] + 1) * sizeof *b->load);
    for (int i = 0; i < p->row_n[s->rank]; i++)
        if (act_info[p->row[s->rank][i].op].kind == KIND_LOAD) b->load[b->n_loads++] = &p->row[s->rank][i];
}

/* The fields that the rank's stages load, with memory for them on their way to a device. */
static int feed_want(struct exec *s, int part, struct ds *d, struct feed_want *w, struct err *e)
{
    *w = (struct feed_want){.ds = d, .max_samples = s->q.sel->max_samples, .depth = s->feed_depth,
                            .cores = s->q.reader_cores};
    int64_t workers = s->q.conf->data.workers;
    w->readers = workers > 0;                             /* more readers only for data that takes time to read */
    for (int i = 0; i < s->g->n_inputs; i++) {
        int t = s->g->input[i].tensor;
        if (!rank_loads(s->q.plan, s->q.n_plans, s->rank, part, t)) continue;
        if (!d) return err_set(e, E_INTERNAL, "rank %d loads samples but has no data set", s->rank);
        if (s->ops->load_open && s->ops->load_open(s->be, t, e)) return -1;
        if (s->g->input[i].role == ROLE_SAMPLE) w->readers = (int)workers;
        s->value_at[part][i] = w->n_fields;
        w->field[w->n_fields++] = d->of[i];
    }
    return 0;
}

int exec_feeds_open(struct exec *s, struct err *e)
{
    s->feed_depth = depth_of(s->q.conf);
    for (int part = DS_TRAIN; part <= DS_TEST; part++) {
        struct feed_want w;
        if (feed_want(s, part, part == DS_TRAIN ? s->q.train : s->q.test, &w, e)) return -1;
        if (!w.n_fields) continue;
        if (feed_open(&w, &s->feed[part], e)) return -1;
        s->feed_bytes += feed_bytes(&w);
    }
    return 0;
}

void exec_feeds_close(struct exec *s)
{
    for (int part = DS_TRAIN; part <= DS_TEST; part++)
        if (s->feed[part]) { feed_close(s->feed[part]); s->feed[part] = NULL; }
}

static int requests_top_up(struct exec *s, struct err *e)
{
    for (int i = 0; i < s->n_ahead; i++) {
        struct ahead *h = &s->ahead[i];
        const struct bound *b = &s->bound[h->bound];
        int part = part_of(b);
        for (; h->next_load < b->n_loads; h->next_load++) {
            int mb = b->load[h->next_load]->mb, first = b->p->mb_first[mb];
            if (s->n_requested[part] >= s->feed_depth) return 0;
            if (feed_request(s->feed[part], b->p->mb_n[mb], h->id + first, h->position + (uint64_t)first, e))
                return -1;
            s->n_requested[part]++;
        }
    }
    return 0;
}

int exec_prefetch(struct exec *s, const struct order *o, const int64_t *id, struct err *e)
{
    if (o->kind != STEP_TRAIN && o->kind != STEP_EVAL) return 0;
    if (s->n_ahead == AHEAD) return err_set(e, E_INTERNAL, "more than %d orders ahead", AHEAD);
    if (o->plan >= (uint32_t)s->n_bound || o->n != s->bound[o->plan].p->req.batch)
        return err_set(e, E_INTERNAL, "order %llu does not fit plan %u", (unsigned long long)o->step, o->plan);
    struct ahead *h = &s->ahead[s->n_ahead++];
    h->step = o->step;
    h->position = o->position;
    h->bound = (int)o->plan;
    h->next_load = h->next_early = 0;
    memcpy(h->id, id, (size_t)o->n * sizeof *id);
    return requests_top_up(s, e);
}

/* The running order must be the oldest one ahead; an order that was not announced is announced now. */
int exec_ahead_ready(struct exec *s, const struct order *o, const int64_t *id, struct err *e)
{
    if (!s->n_ahead && exec_prefetch(s, o, id, e)) return -1;
    if (s->ahead[0].step != o->step || s->ahead[0].bound != (int)o->plan)
        return err_set(e, E_INTERNAL, "order %llu runs before order %llu", (unsigned long long)o->step,
                       (unsigned long long)s->ahead[0].step);
    return 0;
}

void exec_ahead_done(struct exec *s)
{
    struct ahead done = s->ahead[0];
    memmove(s->ahead, s->ahead + 1, (AHEAD - 1) * sizeof *s->ahead);
    s->ahead[AHEAD - 1] = done;
    s->n_ahead--;
}

/* ---- one micro-batch ------------------------------------------------------------------------- */

/* The transport continues, because other ranks may need it. */
static int while_waiting(void *ctx, struct err *e)
{
    struct exec *s = ctx;
    return exec_aborted(s, e) || exec_progress(s, e) ? -1 : 0;
}

static int fields_send(struct exec *s, const struct bound *b, const struct act *a, void *const *value, struct err *e)
{
    const struct stage_plan *st = &b->p->stage[a->stage];
    int n = b->p->mb_n[a->mb];
    for (int i = 0; i < st->n_load; i++) {
        int t = st->load[i];
        const void *plain = value[s->value_at[part_of(b)][graph_input_find(s->g, t)]];
        void *at = place_at(s, b, &st->act_place[t], a->mb);
        if (s->ops->tensor_send ? s->ops->tensor_send(s->be, t, n, plain, &s->early[s->n_early].ticket[i], e)
                                : s->ops->tensor_import(s->be, t, n, at, plain, e))
            return -1;
    }
    return 0;
}

/* Discards loads on their way, of orders after the running one; the running order has taken all its loads. */
static int early_drop(struct exec *s, struct err *e)
{
    int k = 0;
    for (int i = 1; i < s->n_ahead; i++) {
        const struct bound *b = &s->bound[s->ahead[i].bound];
        for (int j = 0; j < s->ahead[i].next_early && k < s->n_early; j++, k++) {
            const struct stage_plan *st = &b->p->stage[b->load[j]->stage];
            int n = b->p->mb_n[b->load[j]->mb];
            for (int l = 0; l < st->n_load; l++)
                if (s->ops->tensor_take(s->be, st->load[l], n, NULL, s->early[k].ticket[l], e)) return -1;
        }
    }
    s->n_early = 0;
    return 0;
}

int exec_ahead_again(struct exec *s, struct err *e)
{
    if (early_drop(s, e)) return -1;
    for (int part = DS_TRAIN; part <= DS_TEST; part++) {
        if (s->feed[part] && feed_drop(s->feed[part], &(struct feed_meanwhile){while_waiting, s}, e)) return -1;
        s->n_requested[part] = 0;
    }
    for (int i = 0; i < s->n_ahead; i++) s->ahead[i].next_load = s->ahead[i].next_early = 0;
    return requests_top_up(s, e);
}

/* Takes the fields of the next load action: into their places or, if sending and taking are separate, on their way. */
static int load_next(struct exec *s, struct ahead *h, struct err *e)
{
    const struct bound *b = &s->bound[h->bound];
    struct feed *feed = s->feed[part_of(b)];
    void *const *value;
    if (feed_take(feed, &(struct feed_meanwhile){while_waiting, s}, &value, e)) return -1;
    s->n_requested[part_of(b)]--;
    if (fields_send(s, b, b->load[h->next_early], value, e)) return -1;
    feed_give(feed);
    h->next_early++;
    s->n_early += s->ops->tensor_send != NULL;
    return 0;
}

/* The next load that is not yet on the device, of the running order or of later ones. NULL: none is known. */
static struct ahead *early_next(struct exec *s)
{
    for (int i = 0; i < s->n_ahead; i++) {
        struct ahead *h = &s->ahead[i];
        if (h->next_early < s->bound[h->bound].n_loads) return h->next_early < h->next_load ? h : NULL;
    }
    return NULL;
}

int exec_load_early(struct exec *s, struct err *e)
{
    struct ahead *h;
    if (!s->ops->tensor_send) return 0;
    while (s->n_early < EARLY && (h = early_next(s)) != NULL) {
        if (!feed_ready(s->feed[part_of(&s->bound[h->bound])])) return 0;
        if (load_next(s, h, e) || requests_top_up(s, e)) return -1;
    }
    return 0;
}

static int early_take(struct exec *s, const struct bound *b, const struct act *a, struct err *e)
{
    const struct stage_plan *st = &b->p->stage[a->stage];
    const struct early first = s->early[0];
    memmove(s->early, s->early + 1, (EARLY - 1) * sizeof *s->early);
    s->n_early--;
    for (int i = 0; i < st->n_load; i++) {
        int t = st->load[i];
        void *at = place_at(s, b, &st->act_place[t], a->mb);
        if (s->ops->tensor_take(s->be, t, b->p->mb_n[a->mb], at, first.ticket[i], e)) return -1;
    }
    return 0;
}

int exec_load(struct exec *s, struct bound *b, const struct act *a, struct err *e)
{
    const struct stage_plan *st = &b->p->stage[a->stage];
    uint64_t began = meter_load(s);
    bool input = false;
    if (meter_to(s, act_info[a->op].part, e) || (!s->n_early && load_next(s, &s->ahead[0], e))) return -1;
    if (s->ops->tensor_send && early_take(s, b, a, e)) return -1;
    for (int i = 0; i < st->n_load; i++) input |= graph_input_is(s->g, st->load[i], ROLE_SAMPLE);
    if (requests_top_up(s, e)) return -1;
    if (input) meter_load_end(s, began);
    return 0;
}
