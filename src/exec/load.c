/* Data into the pipeline: the samples of coming orders are requested from the feed in the order the row will take them,
 * never more than its depth. */
#include <string.h>
#include <stdlib.h>
#include "exec/stage_int.h"

static bool rank_loads(const struct stage *s, enum plan_mode mode, int tensor)
{
    for (int i = 0; i < s->n_bound; i++) {
        const struct plan *p = s->bound[i].p;
        if (p->req.mode != mode) continue;
        for (int k = 0; k < p->n_stages; k++) {
            if (p->stage[k].rank != s->rank) continue;
            for (int j = 0; j < p->stage[k].n_load; j++) if (p->stage[k].load[j] == tensor) return true;
        }
    }
    return false;
}

static size_t sample_bytes(const struct graph *g, int tensor)
{
    return (size_t)shape_count(&g->tensor[tensor].shape) * dtype_bytes(g->tensor[tensor].type);
}

int stage_feeds_open(struct stage *s, struct err *e)
{
    s->feed_depth = s->q.conf->data.prefetch > 0 ? (int)s->q.conf->data.prefetch : 2;
    for (int part = DS_TRAIN; part <= DS_TEST; part++) {
        enum plan_mode mode = part == DS_TRAIN ? PLAN_TRAIN : PLAN_EVAL;
        struct ds *d = part == DS_TRAIN ? s->q.train : s->q.test;
        bool x = rank_loads(s, mode, s->g->input), y = s->g->labels >= 0 && rank_loads(s, mode, s->g->labels);
        if (!x && !y) continue;
        if (!d) return err_set(e, E_INTERNAL, "rank %d loads samples but has no data set", s->rank);
        if (s->ops->load_room &&
            ((x && s->ops->load_room(s->be, s->g->input, e)) || (y && s->ops->load_room(s->be, s->g->labels, e))))
            return -1;
        if (feed_open(d, x, y, sample_bytes(s->g, s->g->input),
                      s->g->labels >= 0 ? sample_bytes(s->g, s->g->labels) : 0, s->q.sel->max_samples, s->feed_depth,
                      &s->feed[part], e))
            return -1;
    }
    return 0;
}

void stage_feeds_close(struct stage *s)
{
    for (int part = DS_TRAIN; part <= DS_TEST; part++)
        if (s->feed[part]) { feed_close(s->feed[part]); s->feed[part] = NULL; }
}

static int part_of(const struct bound *b) { return b->p->req.mode == PLAN_TRAIN ? DS_TRAIN : DS_TEST; }

/* The k-th load action of a row. */
static const struct act *load_act(const struct stage *s, const struct bound *b, int k)
{
    const struct act *a = b->p->row[s->rank];
    for (;; a++) if (act_info[a->op].kind == KIND_LOAD && k-- == 0) return a;
}

static int requests_top_up(struct stage *s, struct err *e)
{
    for (int i = 0; i < s->n_ahead; i++) {
        struct ahead *h = &s->ahead[i];
        const struct bound *b = &s->bound[h->bound];
        int part = part_of(b);
        while (h->next_load < b->n_loads) {
            if (s->n_requested[part] >= s->feed_depth) return 0;
            int mb = load_act(s, b, h->next_load)->mb;
            if (feed_request(s->feed[part], b->p->mb_n[mb], h->id + b->p->mb_first[mb], e)) return -1;
            s->n_requested[part]++;
            h->next_load++;
        }
    }
    return 0;
}

int stage_prefetch(struct stage *s, const struct order *o, const int64_t *id, struct err *e)
{
    if (o->kind != ORDER_TRAIN && o->kind != ORDER_EVAL) return 0;
    if (s->n_ahead == AHEAD) return err_set(e, E_INTERNAL, "more than %d orders ahead", AHEAD);
    if (o->plan >= (uint32_t)s->n_bound || o->n != s->bound[o->plan].p->req.batch)
        return err_set(e, E_INTERNAL, "order %llu does not fit plan %u", (unsigned long long)o->step, o->plan);
    struct ahead *h = &s->ahead[s->n_ahead++];
    h->step = o->step;
    h->bound = (int)o->plan;
    h->next_load = h->next_early = 0;
    memcpy(h->id, id, (size_t)o->n * sizeof *id);
    return requests_top_up(s, e);
}

/* The running order must be the oldest one ahead; one that nobody announced is announced now. */
int stage_ahead_ready(struct stage *s, const struct order *o, const int64_t *id, struct err *e)
{
    if (!s->n_ahead && stage_prefetch(s, o, id, e)) return -1;
    if (s->ahead[0].step != o->step || s->ahead[0].bound != (int)o->plan)
        return err_set(e, E_INTERNAL, "order %llu runs before order %llu", (unsigned long long)o->step,
                       (unsigned long long)s->ahead[0].step);
    return 0;
}

void stage_ahead_done(struct stage *s)
{
    struct ahead done = s->ahead[0];
    memmove(s->ahead, s->ahead + 1, (AHEAD - 1) * sizeof *s->ahead);
    s->ahead[AHEAD - 1] = done;
    s->n_ahead--;
}

/* ---- one micro-batch ------------------------------------------------------------------------- */

/* The transport goes on: other ranks may need it. */
static int while_waiting(void *ctx, struct err *e)
{
    struct stage *s = ctx;
    return stage_aborted(s, e) || s->tp->ops->progress(s->tp, e) ? -1 : 0;
}

static int take(struct stage *s, const struct bound *b, const float **x, const void **y, struct err *e)
{
    int part = part_of(b);
    if (feed_take(s->feed[part], &(struct feed_meanwhile){while_waiting, s}, x, y, e)) return -1;
    s->n_requested[part]--;
    return 0;
}

/* To the device, where sending and taking are apart. */
static int send(struct stage *s, const struct bound *b, const struct act *a, struct early *to, struct err *e)
{
    const struct stage_plan *st = &b->p->stage[a->stage];
    const float *x;
    const void *y;
    if (take(s, b, &x, &y, e)) return -1;
    for (int i = 0; i < st->n_load; i++) {
        int t = st->load[i];
        if (s->ops->tensor_send(s->be, t, b->p->mb_n[a->mb], t == s->g->input ? (const void *)x : y, &to->ticket[i], e))
            return -1;
    }
    return 0;
}

/* The next load that is not yet on the device, of the running order or of those after it. NULL: none is known. */
static struct ahead *early_next(struct stage *s)
{
    for (int i = 0; i < s->n_ahead; i++) {
        struct ahead *h = &s->ahead[i];
        if (h->next_early < s->bound[h->bound].n_loads) return h->next_early < h->next_load ? h : NULL;
    }
    return NULL;
}

int stage_load_early(struct stage *s, struct err *e)
{
    struct ahead *h;
    if (!s->ops->tensor_send) return 0;
    while (s->n_early < EARLY && (h = early_next(s)) != NULL) {
        const struct bound *b = &s->bound[h->bound];
        if (!feed_ready(s->feed[part_of(b)])) return 0;
        if (send(s, b, load_act(s, b, h->next_early), &s->early[s->n_early], e)) return -1;
        s->n_early++;
        h->next_early++;
        if (requests_top_up(s, e)) return -1;
    }
    return 0;
}

static int load_sent(struct stage *s, const struct bound *b, const struct act *a, struct err *e)
{
    const struct stage_plan *st = &b->p->stage[a->stage];
    if (!s->n_early) {
        if (send(s, b, a, &s->early[s->n_early++], e)) return -1;
        s->ahead[0].next_early++;
    }
    struct early first = s->early[0];
    memmove(s->early, s->early + 1, (EARLY - 1) * sizeof *s->early);
    s->n_early--;
    for (int i = 0; i < st->n_load; i++) {
        int t = st->load[i];
        if (s->ops->tensor_take(s->be, t, b->p->mb_n[a->mb], place_at(s, b, &st->act_place[t], a->mb), first.ticket[i],
                                e))
            return -1;
    }
    return 0;
}

static int load_at_once(struct stage *s, const struct bound *b, const struct act *a, struct err *e)
{
    const struct stage_plan *st = &b->p->stage[a->stage];
    const float *x;
    const void *y;
    if (take(s, b, &x, &y, e)) return -1;
    for (int i = 0; i < st->n_load; i++) {
        int t = st->load[i];
        if (s->ops->tensor_import(s->be, t, b->p->mb_n[a->mb], place_at(s, b, &st->act_place[t], a->mb),
                                  t == s->g->input ? (const void *)x : y, e))
            return -1;
    }
    return 0;
}

int stage_load(struct stage *s, struct bound *b, const struct act *a, struct err *e)
{
    const struct stage_plan *st = &b->p->stage[a->stage];
    uint64_t began = s->profile ? clock_ns() : 0;
    bool input = false;
    if (lane_to(s, act_info[a->op].part, e)) return -1;
    if (s->ops->tensor_send ? load_sent(s, b, a, e) : load_at_once(s, b, a, e)) return -1;
    for (int i = 0; i < st->n_load; i++) input |= st->load[i] == s->g->input;
    if (requests_top_up(s, e)) return -1;
    if (s->profile && input) profile_note_load(s->profile, b->index, clock_ns() - began);
    return 0;
}
