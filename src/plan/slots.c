/* Operands of every action, slot numbers by liveness over the row, and the exact bytes of every rank. */
#include <stdlib.h>
#include <string.h>
#include "plan/plan_int.h"

/* A class as the stage sees it; false: the stage has no values of the class. */
static bool class_seen(const struct slot_class *c, int stage, struct slot_user *out)
{
    *out = (struct slot_user){c->stage, c->writer, c->last};
    for (int i = 0; i < c->n_users && out->stage != stage; i++) *out = c->user[i];
    return out->stage == stage;
}

/* How an action touches a class. */
static uint8_t class_mode(const struct act *a, const struct slot_class *c)
{
    const struct act_info *i = &act_info[a->op];
    struct slot_user u;
    if (!class_seen(c, a->stage, &u)) return 0;
    /* R of the class's stage may also read values kept to the end */
    unsigned last = 1u << u.last | (c->recompute && a->stage == c->stage ? 1u << L_R : 0);
    bool writes = i->writes >> u.as & 1, reads = (i->reads >> u.as & 1) && (i->lasts & last);
    return (uint8_t)((writes ? OPND_WRITE : 0) | (reads ? OPND_READ : 0));
}

static int post_class(const struct lower *w, const struct act *a)
{
    const struct channel *c = &w->chan.v[a->chan];
    const struct stage_plan *st = &w->p->stage[a->stage];
    if (c->axis == AXIS_DP) return -1;
    if (c->kind == CHAN_ACT) return st->act_place[c->tensor].cls;
    if (c->kind == CHAN_GRAD) return st->grad_place[c->tensor].cls;
    return -1;
}

static void operands(struct lower *w, struct act *a)
{
    a->opnd = (uint32_t)w->opnd.n;
    if (a->chan >= 0) {
        int c = post_class(w, a);
        bool recv = act_info[a->op].kind == KIND_RECV;
        if (c >= 0) *vec_push(&w->opnd) = (struct opnd){.cls = (uint16_t)c, .mode = recv ? OPND_WRITE : OPND_READ};
    } else {
        const struct stage_map *m = &w->p->pl->map;
        int rank = m->rank_of[a->stage];
        for (int i = 0; i < m->n_stages_of[rank]; i++)   /* also what other stages of the rank wrote */
            for (int s = m->stages_of[rank][i], c = w->cls_at[s]; c < w->cls_at[s + 1]; c++) {
                uint8_t mode = class_mode(a, &w->cls.v[c]);
                if (mode) *vec_push(&w->opnd) = (struct opnd){.cls = (uint16_t)c, .mode = mode};
            }
    }
    a->n_opnd = (uint16_t)(w->opnd.n - (int)a->opnd);
}

/* For every pair of class and micro-batch: the last action of the row that touches it. */
static void last_uses(const struct lower *w, int rank, int *last)
{
    for (int i = 0; i < w->row[rank].n; i++) {
        const struct act *a = &w->row[rank].v[i];
        for (int k = 0; k < a->n_opnd; k++)
            for (int j = 0; j < a->n_mb; j++) last[w->opnd.v[(int)a->opnd + k].cls * w->p->n_mb + a->mb + j] = i;
    }
}

/* A slot that is being sent, until its receive is known to be posted: position pos of rank `to`. */
struct sent { int cls, mb, to, pos; };
/* slot, last: of each class and micro-batch. owed[class]: the micro-batch whose slot is still being sent, -1: none.
 * many: of each stage and micro-batch, the action that it shares with others; NULL: none. The rest is used if sent
 * slots are freed by what is known (plan_lowered). known: the order; sent: slots being sent; open: of each class and
 * micro-batch, the number of its open sends; over: no longer needed. */
struct live {
    int *slot, *last; bool *busy; int *owed; const struct act **many;
    const struct happens_before *known; VEC(struct sent) sent; int *open; bool *over;
};

static void many_find(const struct lower *w, int rank, struct live *l)
{
    for (int i = 0; i < w->row[rank].n; i++) {
        const struct act *a = &w->row[rank].v[i];
        for (int j = 0; a->n_mb > 1 && j < a->n_mb; j++) l->many[a->stage * w->p->n_mb + a->mb + j] = a;
    }
}

/* The first n free neighbours. There are always some below the number of micro-batches, because each micro-batch takes
 * one slot a class. */
static int free_find(const bool *busy, int n)
{
    int s = 0;
    for (int k = 0; k < n; k++) if (busy[s + k]) { s += k + 1; k = -1; }
    return s;
}

/* Widens [*first, *end) to the micro-batches that an action of the stage reads together with one of them. */
static bool range_widen(const struct lower *w, const struct live *l, const struct slot_class *c, int stage, int *first,
                        int *end)
{
    int was = *end - *first;
    for (int mb = *first; mb < *end; mb++) {
        const struct act *with = l->many[stage * w->p->n_mb + mb];
        if (!with || !class_mode(with, c)) continue;
        if (with->mb < *first) *first = mb = with->mb;
        if (with->mb + with->n_mb > *end) *end = with->mb + with->n_mb;
    }
    return *end - *first > was;
}

/* Frees the slot if no action here needs it any more and it is not being sent. */
static void slot_free(const struct lower *w, struct live *l, int cls, int mb)
{
    int at = cls * w->p->n_mb + mb;
    if (l->over[at] && !l->open[at]) l->busy[cls * (w->p->n_mb + 1) + l->slot[at]] = false;
}

/* Settles the sends that have met their receives before action i. */
static void sends_settle(const struct lower *w, struct live *l, int rank, int i)
{
    int n = 0;
    for (int k = 0; k < l->sent.n; k++) {
        struct sent x = l->sent.v[k];
        if (before_of(l->known, rank, i, x.to) <= x.pos) { l->sent.v[n++] = x; continue; }
        l->open[x.cls * w->p->n_mb + x.mb]--;
        slot_free(w, l, x.cls, x.mb);
    }
    l->sent.n = n;
}

static void slot_send(const struct lower *w, struct live *l, const struct act *a, int cls)
{
    *vec_push(&l->sent) = (struct sent){cls, a->mb, w->chan.v[a->chan].to.at[AXIS_PP], before_receive(l->known, a)};
    l->open[cls * w->p->n_mb + a->mb]++;
}

/* Takes a slot for the micro-batch; if an action reads it together with others, slots for all of them. */
static void slot_take(struct lower *w, struct live *l, int cls, int mb)
{
    struct slot_class *c = &w->cls.v[cls];
    int first = mb, end = mb + 1;
    for (bool wider = true; wider;) {
        wider = range_widen(w, l, c, c->stage, &first, &end);
        for (int u = 0; u < c->n_users; u++) wider |= range_widen(w, l, c, c->user[u].stage, &first, &end);
    }
    int n = end - first;
    bool *busy = l->busy + cls * (w->p->n_mb + 1);
    /* values sent to other pipelines are in the order of micro-batches */
    int s = c->last == L_O && w->p->pl->mesh.size[AXIS_DP] > 1 ? first : free_find(busy, n);
    for (int k = 0; k < n; k++) {
        busy[s + k] = true;
        l->slot[cls * w->p->n_mb + first + k] = s + k;
    }
    if (s + n > c->n_slots) c->n_slots = s + n;
}

/* A slot whose last reader is a send is freed one micro-batch later, so that the next value does not wait for the
 * transfer. */
static void slot_release(struct lower *w, struct live *l, int cls, int mb)
{
    const struct slot_class *c = &w->cls.v[cls];
    bool *busy = l->busy + cls * (w->p->n_mb + 1);
    int give = mb;
    if (c->last == L_O) return;                          /* kept until the step ends */
    if (l->known) {
        l->over[cls * w->p->n_mb + mb] = true;
        slot_free(w, l, cls, mb);
        return;
    }
    if (c->last == L_SF || c->last == L_SB) { give = l->owed[cls]; l->owed[cls] = mb; }
    if (give >= 0) busy[l->slot[cls * w->p->n_mb + give]] = false;
}

static void row_slots(struct lower *w, int rank, struct live *l)
{
    for (int i = 0; i < w->row[rank].n; i++) {
        const struct act *a = &w->row[rank].v[i];
        if (l->known) sends_settle(w, l, rank, i);
        for (int k = 0; k < a->n_opnd; k++) {
            struct opnd *o = &w->opnd.v[(int)a->opnd + k];
            int *at = &l->slot[o->cls * w->p->n_mb + a->mb];
            if (*at < 0) slot_take(w, l, o->cls, a->mb);
            o->slot = (uint16_t)*at;
            if (l->known && act_info[a->op].kind == KIND_SEND) slot_send(w, l, a, o->cls);
        }
        for (int k = 0; k < a->n_opnd; k++) {
            struct opnd *o = &w->opnd.v[(int)a->opnd + k];
            if (l->last[o->cls * w->p->n_mb + a->mb] != i) continue;
            o->mode |= OPND_LAST;
            for (int j = 0; j < a->n_mb; j++) slot_release(w, l, o->cls, a->mb + j);
        }
    }
}

/* A micro-batch is in flight from F until neither B nor W needs its kept values. */
static void in_flight_count(struct lower *w, int rank)
{
    int *now = mem_alloc((size_t)w->p->n_stages * sizeof *now);
    for (int i = 0; i < w->row[rank].n; i++) {
        const struct act *a = &w->row[rank].v[i];
        struct stage_plan *st = &w->p->stage[a->stage];
        if (a->op == ACT_F && ++now[a->stage] > st->in_flight) st->in_flight = now[a->stage];
        enum phase last = st->prog[PROG_W].n && !st->joined ? PH_BWD_WEIGHTS : PH_BWD_DATA;
        bool back = act_info[a->op].phases >> last & 1 && (!a->piece || a->piece == st->n_pieces);
        if (back || (a->op == ACT_F && w->p->req.mode == PLAN_EVAL)) now[a->stage] -= a->n_mb;
    }
    free(now);
}

static size_t max_size(size_t a, size_t b) { return a > b ? a : b; }

/* Each input has its own staging places, whichever stages of the rank load it. */
static size_t loads_of(const struct plan *p, int rank)
{
    const struct graph *g = p->sel->g;
    size_t bytes = 0;
    for (int i = 0; i < g->n_inputs; i++)
        if (plan_rank_loads(p, rank, g->input[i].tensor)) bytes += select_load_bytes(p->sel, g->input[i].tensor);
    return (size_t)p->sel->dev.load_ways * bytes;
}

/* Memory after all slots, for the values that other pipelines send here. */
static void copies_count(struct lower *w)
{
    struct plan *p = w->p;
    for (int c = 0; c < w->cls.n; c++) {
        struct slot_class *k = &w->cls.v[c];
        size_t *total = &p->slot_bytes[p->stage[k->stage].rank];
        for (int i = 0; i < p->pl->mesh.size[AXIS_DP] && k->copy; i++) {
            k->copy[i] = i == p->req.dp ? k->base : *total;
            if (i != p->req.dp) *total += k->bytes * (size_t)p->part[i].n_mb;
        }
    }
}

static void bytes_count(struct lower *w)
{
    struct plan *p = w->p;
    const bool several = p->n_stages > p->n_ranks;        /* stages a rank: they share memory */
    for (int r = 0; several && r < p->n_ranks; r++) slot_places_shared(w, r);
    for (int c = 0; c < w->cls.n && !several; c++) {
        size_t *total = &p->slot_bytes[p->stage[w->cls.v[c].stage].rank];
        w->cls.v[c].base = *total;
        *total += w->cls.v[c].bytes * (size_t)w->cls.v[c].n_slots;
    }
    copies_count(w);
    for (int s = 0; s < p->n_stages; s++) {
        struct stage_plan *st = &p->stage[s];
        for (int i = 0; i < PROG_COUNT; i++) {
            p->tmp_bytes[st->rank] = max_size(p->tmp_bytes[st->rank], st->prog[i].tmp_bytes);
            p->work_bytes[st->rank] = max_size(p->work_bytes[st->rank], st->prog[i].work_bytes);
        }
    }
    for (int r = 0; r < p->n_ranks; r++) p->load_bytes[r] = loads_of(p, r);
}

int lower_slots(struct lower *w, struct err *e)
{
    int pairs = w->cls.n * w->p->n_mb + 1;
    struct live l = {mem_alloc((size_t)pairs * sizeof(int)), mem_alloc((size_t)pairs * sizeof(int)),
                     mem_alloc((size_t)(w->cls.n + 1) * (size_t)(w->p->n_mb + 1)),
                     mem_alloc((size_t)(w->cls.n + 1) * sizeof(int)),
                     mem_alloc(((size_t)w->p->n_stages * (size_t)w->p->n_mb + 1) * sizeof(struct act *))};
    struct happens_before known;
    if (w->sure) {
        before_find(w, &known);
        l.known = &known;
        l.over = mem_alloc((size_t)pairs);
        l.open = mem_alloc((size_t)pairs * sizeof *l.open);
    }
    memset(l.slot, 0xff, (size_t)pairs * sizeof(int));
    memset(l.owed, 0xff, (size_t)(w->cls.n + 1) * sizeof(int));
    for (int r = 0; r < w->p->n_ranks; r++) {
        for (int i = 0; i < w->row[r].n; i++) operands(w, &w->row[r].v[i]);
        last_uses(w, r, l.last);
        many_find(w, r, &l);
        row_slots(w, r, &l);
        in_flight_count(w, r);
        l.sent.n = 0;
    }
    bytes_count(w);
    if (l.known) before_free(&known);
    vec_free(&l.sent);
    free(l.over); free(l.open);
    free(l.slot); free(l.last); free(l.busy); free(l.owed); free(l.many);
    return 0;
}
