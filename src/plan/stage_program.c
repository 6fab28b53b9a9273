/* Places of values and the programs of a stage: one list of kernel calls for each kind of action. */
#include <stdlib.h>
#include <string.h>
#include "plan/plan_int.h"

static bool sends(const struct lower *w, int stage, int t, enum chan_kind kind)
{
    for (int i = w->chan_at[t]; i < w->chan_at[t + 1]; i++)
        if (w->chan.v[i].kind == kind && w->chan.v[i].from_stage == stage) return true;
    return false;
}

static bool receives(const struct lower *w, int stage, int t, enum chan_kind kind)
{
    for (int i = w->chan_at[t]; i < w->chan_at[t + 1]; i++)
        if (w->chan.v[i].kind == kind && w->chan.v[i].to_stage == stage) return true;
    return false;
}

/* ---- kept values: a class of slots for each (writer, last reader) ---------------------------- */

struct life { enum slot_writer writer; enum slot_last last; int n_users; };   /* users: the first n_users in w->users */

static bool lives_so(const struct lower *w, const struct slot_class *c, const struct life *l)
{
    if (c->writer != l->writer || c->last != l->last || c->n_users != l->n_users) return false;
    for (int i = 0; i < l->n_users; i++) {
        const struct slot_user *a = &c->user[i], *b = &w->users[i];
        if (a->stage != b->stage || a->as != b->as || a->last != b->last) return false;
    }
    return true;
}

static struct place keep(struct lower *w, int stage, struct life l, size_t bytes)
{
    int c = w->cls_at[stage];
    bytes = size_align64(bytes);
    while (c < w->cls.n && !lives_so(w, &w->cls.v[c], &l)) c++;
    if (c == w->cls.n) {
        struct slot_class *new = vec_push(&w->cls);
        *new = (struct slot_class){.stage = stage, .writer = l.writer, .last = l.last, .n_users = l.n_users};
        new->user = arena_alloc(w->p->mem, (size_t)(l.n_users + 1) * sizeof *new->user);
        for (int i = 0; i < l.n_users; i++) new->user[i] = w->users[i];
    }
    struct place p = {.space = SP_SLOT, .cls = (int16_t)c, .off = w->cls.v[c].bytes, .bytes = bytes};
    w->cls.v[c].bytes += bytes;
    return p;
}

static size_t tensor_bytes(const struct lower *w, int t)
{
    return select_sample_bytes(w->p->sel, t) * (size_t)w->max_n;
}

static enum slot_last later(enum slot_last a, enum slot_last b) { return a > b ? a : b; }

/* Last reader in the backward pass: W counts as B where they are joined. Evaluation needs nothing. */
static enum slot_last need_last(const struct lower *w, const struct stage_plan *st, bool b, bool wgt)
{
    if (w->p->req.mode != PLAN_TRAIN) return L_F;
    return wgt ? (st->joined ? L_B : L_W) : b ? L_B : L_F;
}

static bool runs_b(const struct group *k) { return k->grad_in || k->pgrad_in_b; }
static bool runs_w(const struct group *k) { return k->pgrad_in_w != 0; }

static bool needs_b(const struct group *k, uint32_t what) { return runs_b(k) && (k->need_b & what); }
static bool needs_w(const struct group *k, uint32_t what) { return runs_w(k) && (k->need_w & what); }

static bool stage_has(const struct stage_plan *st, int g)
{
    return g >= st->first_group && g < st->first_group + st->n_groups;
}

/* The group of the i-th reader of t; -1: it belongs to another stage. */
static int reader_here(const struct lower *w, const struct stage_plan *st, int t, int i)
{
    int g = w->p->sel->group_of[w->g->tensor[t].reader[i]];
    return stage_has(st, g) ? g : -1;
}

/* The last backward pass of this stage that reads t. */
static enum slot_last back_last(const struct lower *w, int s, int t)
{
    const struct stage_plan *st = &w->p->stage[s];
    enum slot_last last = L_F;
    for (int i = -1; i < w->g->tensor[t].n_readers; i++) {
        int maker = group_making(w, t), g = i >= 0 ? reader_here(w, st, t, i) : stage_has(st, maker) ? maker : -1;
        if (g < 0) continue;
        const struct group *k = &w->p->sel->group[g];
        uint32_t what = group_reads(k, t) | (group_makes(k, t) ? NEED_OUT : 0);
        last = later(last, need_last(w, st, needs_b(k, what), needs_w(k, what)));
    }
    return last;
}

static enum slot_last saved_last(const struct lower *w, const struct stage_plan *st, const struct group *k)
{
    return need_last(w, st, needs_b(k, NEED_SAVED), needs_w(k, NEED_SAVED));
}

static bool stage_makes(const struct lower *w, const struct stage_plan *st, int t)
{
    int maker = group_making(w, t);
    return stage_has(st, maker) && group_makes(&w->p->sel->group[maker], t);
}

static bool is_recomputed(const struct lower *w, int s, int t)
{
    return stage_makes(w, &w->p->stage[s], t) && w->recomputed[group_making(w, t)];
}

static bool recompute_reads(const struct lower *w, const struct stage_plan *st, int t)
{
    for (int i = 0; i < w->g->tensor[t].n_readers; i++) {
        int g = reader_here(w, st, t, i);
        if (g >= 0 && w->recomputed[g] && group_reads(&w->p->sel->group[g], t)) return true;
    }
    return false;
}

static bool stage_reads(const struct lower *w, const struct stage_plan *st, int t)
{
    for (int i = 0; i < w->g->tensor[t].n_readers; i++) {
        int g = reader_here(w, st, t, i);
        if (g >= 0 && group_reads(&w->p->sel->group[g], t)) return true;
    }
    return false;
}

/* Of the values that are not kept, only those run again that the backward pass reads, or that lead to them. The values
 * that a batch norm keeps for its statistics stay kept. */
static void recompute_find(struct lower *w, int s)
{
    const struct stage_plan *st = &w->p->stage[s];
    for (int g = st->first_group + st->n_groups - 1; g >= st->first_group; g--) {
        const struct group *k = &w->p->sel->group[g];
        if (!w->recompute[g]) continue;
        w->recomputed[g] = !k->has_stats && saved_last(w, st, k) > L_F;
        for (int i = 0; i < k->n_out; i++)
            w->recomputed[g] |= back_last(w, s, k->outs[i]) > L_F || recompute_reads(w, st, k->outs[i]);
    }
}

/* Last reader of t as the forward pass wrote it. */
static enum slot_last act_last(const struct lower *w, int s, int t)
{
    enum slot_last last = sends(w, s, t, CHAN_ACT) ? L_SF : L_F;
    if (stage_makes(w, &w->p->stage[s], t) && plan_is_output(w->p, t)) return L_O;
    if (is_recomputed(w, s, t)) return last;
    if (recompute_reads(w, &w->p->stage[s], t)) last = later(last, L_R);
    return later(last, back_last(w, s, t));
}

static enum slot_last grad_last(const struct lower *w, int s, int t)
{
    bool made = stage_makes(w, &w->p->stage[s], t);
    if (sends(w, s, t, CHAN_GRAD)) return L_SB;
    return need_last(w, &w->p->stage[s], true, made && runs_w(&w->p->sel->group[group_making(w, t)]));
}

/* The stages that find t, or its gradient, in the place of stage s; into w->users. Returns their number. */
static int users_find(struct lower *w, int what, int s, int t)
{
    const struct stage_map *m = &w->p->pl->map;
    int r = w->p->stage[s].rank, n = 0;
    if (m->n_stages_of[r] == 1) return 0;
    enum slot_writer as = what == HOME_GRAD ? W_RB : group_making(w, t) < 0 ? W_LOAD : W_RF;
    for (int i = 0; i < m->n_stages_of[r]; i++) {
        int u = m->stages_of[r][i];
        if (*home_of(w, what, t, u) != s) continue;
        w->users[n++] = (struct slot_user){u, as, what == HOME_ACT ? act_last(w, u, t) : grad_last(w, u, t)};
    }
    return n;
}

static void act_places(struct lower *w, int s)
{
    struct stage_plan *st = &w->p->stage[s];
    for (int t = 0; t < w->g->n_tensors; t++) {
        bool made = stage_makes(w, st, t), got = receives(w, s, t, CHAN_ACT);
        int n = users_find(w, HOME_ACT, s, t);
        bool load = group_making(w, t) < 0 && st->load_stage == s && (n || stage_reads(w, st, t));
        if (!made && !got && !load) continue;
        enum slot_last last = act_last(w, s, t);
        if (load) st->load[st->n_load++] = t;
        if (made && last == L_F && !n) continue;         /* lives within the forward program */
        st->act_place[t] = keep(w, s, (struct life){load ? W_LOAD : got ? W_RF : W_F, last, n}, tensor_bytes(w, t));
        if (last == L_O && recompute_reads(w, st, t)) w->cls.v[st->act_place[t].cls].recompute = true;
    }
}

/* After act_places. */
static void recompute_places(struct lower *w, int s)
{
    struct stage_plan *st = &w->p->stage[s];
    for (int t = 0; t < w->g->n_tensors; t++) {
        st->recompute_place[t] = is_recomputed(w, s, t) ? (struct place){0} : st->act_place[t];
        enum slot_last last = back_last(w, s, t);
        if (is_recomputed(w, s, t) && last > L_F)
            st->recompute_place[t] = keep(w, s, (struct life){W_R, last, 0}, tensor_bytes(w, t));
    }
}

/* The backward calls of a tensor's maker read its gradient, or the stage sends the gradient to where the tensor came
 * from. */
static void grad_places(struct lower *w, int s)
{
    struct stage_plan *st = &w->p->stage[s];
    for (int t = 0; t < w->g->n_tensors; t++) {
        bool made = stage_makes(w, st, t);
        bool out = sends(w, s, t, CHAN_GRAD), in = receives(w, s, t, CHAN_GRAD);
        int n = users_find(w, HOME_GRAD, s, t);
        if (!tensor_graded(w, t) || *home_of(w, HOME_GRAD, t, s) >= 0 || (!made && !out && !n)) continue;
        enum slot_last last = grad_last(w, s, t);
        if (!in && last == L_B && !n) continue;          /* lives within the backward program */
        st->grad_place[t] = keep(w, s, (struct life){in ? W_RB : W_B, last, n}, tensor_bytes(w, t));
    }
}

static size_t saved_bytes(const struct lower *w, const struct group *k)
{
    return size_align64(group_saved(k, w->max_n));
}

static void saved_places(struct lower *w, int s)
{
    struct stage_plan *st = &w->p->stage[s];
    for (int i = 0; i < st->n_groups; i++) {
        const struct group *k = &w->p->sel->group[st->first_group + i];
        size_t bytes = saved_bytes(w, k);
        if (!bytes || w->p->req.mode != PLAN_TRAIN) continue;
        enum slot_last last = k->has_stats ? L_O : saved_last(w, st, k);
        bool recompute = w->recomputed[st->first_group + i] && !k->has_stats;
        if (last == L_F) continue;
        struct place at = keep(w, s, (struct life){recompute ? W_R : W_F, last, 0}, bytes);
        if (!recompute) st->saved_place[i] = at;
        st->recompute_saved[i] = at;
    }
}

/* Takes the places that other stages of the rank have. */
static void homes_take(struct lower *w, int s)
{
    struct stage_plan *st = &w->p->stage[s];
    for (int t = 0; t < w->g->n_tensors; t++) {
        int act = *home_of(w, HOME_ACT, t, s), grad = *home_of(w, HOME_GRAD, t, s);
        if (act >= 0) st->act_place[t] = st->recompute_place[t] = w->p->stage[act].act_place[t];
        if (grad >= 0) st->grad_place[t] = w->p->stage[grad].grad_place[t];
    }
}

/* ---- programs -------------------------------------------------------------------------------- */

/* Values that live within one program: the calls that they span, then an offset for each. In the order of their first
 * calls. at: index + 1 of each key. owner: the key of the value whose memory it uses, or its own key. */
struct temp { int key, owner, from, to; size_t bytes, off; bool placed; };
struct temps { VEC(struct temp) v; int *at, n_tensors; };

/* key: tensor >= 0, or -1 - group for saved tensors. */
static int *temp_at(struct temps *ts, int key) { return &ts->at[key >= 0 ? key : ts->n_tensors - 1 - key]; }

static struct temp *temp_find(struct temps *ts, int key)
{
    int at = *temp_at(ts, key);
    return at ? &ts->v.v[at - 1] : NULL;
}

static void temp_add(struct temps *ts, struct temp t)
{
    *vec_push(&ts->v) = t;
    *temp_at(ts, t.key) = ts->v.n;
}

/* A value lives from its first mention to its last. */
static void temp_mention(struct temps *ts, int key, int at, size_t bytes)
{
    struct temp *t = temp_find(ts, key);
    if (t) t->to = temp_find(ts, t->owner)->to = at;
    else temp_add(ts, (struct temp){.key = key, .owner = key, .from = at, .to = at, .bytes = size_align64(bytes)});
}

/* A value that begins with the last call that reads `over`, in the memory of `over`. */
static void temp_over(struct temps *ts, int key, int over, int at)
{
    struct temp *o = temp_find(ts, over);
    temp_add(ts, (struct temp){.key = key, .owner = o->owner, .from = at, .to = at, .bytes = o->bytes});
}

static bool temp_owns(const struct temp *t) { return t->owner == t->key; }

static int by_size(const void *a, const void *b)
{
    const struct temp *x = *(struct temp *const *)a, *y = *(struct temp *const *)b;
    if (temp_owns(x) != temp_owns(y)) return temp_owns(x) ? -1 : 1;
    return x->bytes != y->bytes ? (x->bytes < y->bytes ? 1 : -1)
           : x->from != y->from ? (x->from > y->from) - (x->from < y->from)
                                : x->key - y->key;
}

/* The lowest offset that is free during the span of t. No value before index `first` lives then. */
static size_t temp_offset(const struct temps *ts, const struct temp *t, int first)
{
    size_t off = 0;
    for (bool moved = true; moved;) {
        moved = false;
        for (int j = first; j < ts->v.n && ts->v.v[j].from <= t->to; j++) {
            const struct temp *o = &ts->v.v[j];
            if (!o->placed || o->to < t->from || off >= o->off + o->bytes || o->off >= off + t->bytes) continue;
            off = o->off + o->bytes;
            moved = true;
        }
    }
    return off;
}

/* Interval colouring, largest first, at the lowest offset that is free over the whole span; then the values in memory
 * of another. Returns the bytes used. */
static size_t temps_place(struct temps *ts, int n_calls)
{
    /* of each call: the first value that still lives at it */
    int n = ts->v.n, *first = mem_alloc((size_t)(n_calls + 1) * sizeof *first);
    struct temp **order = mem_alloc((size_t)(n + 1) * sizeof *order);
    size_t peak = 0;
    for (int c = 0, i = 0; c < n_calls; first[c++] = i) while (i < n && ts->v.v[i].to < c) i++;
    for (int i = 0; i < n; i++) order[i] = &ts->v.v[i];
    qsort(order, (size_t)n, sizeof *order, by_size);
    for (int i = 0; i < n; i++) {
        struct temp *t = order[i];
        t->off = temp_owns(t) ? temp_offset(ts, t, first[t->from]) : temp_find(ts, t->owner)->off;
        t->placed = temp_owns(t);
        if (t->off + t->bytes > peak) peak = t->off + t->bytes;
    }
    free(first);
    free(order);
    return peak;
}

static void temps_free(struct temps *ts)
{
    for (int i = 0; i < ts->v.n; i++) *temp_at(ts, ts->v.v[i].key) = 0;
    vec_free(&ts->v);
}

static struct place temp_place(struct temps *ts, int key)
{
    const struct temp *t = temp_find(ts, key);
    return t ? (struct place){.space = SP_TMP, .cls = -1, .off = t->off, .bytes = t->bytes}
             : (struct place){.space = SP_NONE, .cls = -1};
}

struct program_maker {
    struct lower *w; int s; struct stage_plan *st;
    bool first;                                          /* the forward program */
    struct temps act, grad;
    struct kop *k; int n;
};

static void call_add(struct program_maker *m, enum phase ph, int g)
{
    m->k[m->n].phase = (uint8_t)ph;
    m->k[m->n++].group = (int16_t)g;
}

static const struct group *group_at(const struct program_maker *m, int g) { return &m->w->p->sel->group[g]; }
static struct place *act_kept(const struct program_maker *m, int t)
{
    return &(m->first ? m->st->act_place : m->st->recompute_place)[t];
}
static bool act_is_temp(const struct program_maker *m, int t) { return act_kept(m, t)->space == SP_NONE; }
/* Statistics are applied from what the first forward pass saved, so recomputation must not write there. */
static struct place saved_kept(const struct program_maker *m, const struct kop *c)
{
    int i = c->group - m->st->first_group;
    bool recompute = c->phase == PH_FWD && !m->first;
    if (m->first) return m->st->saved_place[i];
    return recompute && group_at(m, c->group)->has_stats ? (struct place){.space = SP_NONE, .cls = -1}
                                                     : m->st->recompute_saved[i];
}
static bool grad_is_temp(const struct program_maker *m, int t) { return m->st->grad_place[t].space == SP_NONE; }

/* Of several outputs, the loss may depend on some only. */
static bool has_gradient(const struct program_maker *m, const struct group *k, int out)
{
    return k->n_out == 1 || m->w->g->tensor[k->outs[out]].needs_grad;
}

/* First pass over the calls: which temporaries each call touches. */
static void temps_collect(struct program_maker *m)
{
    const struct lower *w = m->w;
    for (int i = 0; i < m->n; i++) {
        const struct kop *c = &m->k[i];
        const struct group *k = group_at(m, c->group);
        if (c->phase == PH_FWD) {
            for (int j = 0; j < k->n_in; j++)
                if (act_is_temp(m, k->in[j])) temp_mention(&m->act, k->in[j], i, tensor_bytes(w, k->in[j]));
            for (int j = 0; j < k->n_out; j++)
                if (act_is_temp(m, k->outs[j])) temp_mention(&m->act, k->outs[j], i, tensor_bytes(w, k->outs[j]));
            if (saved_kept(m, c).space == SP_NONE && saved_bytes(w, k))
                temp_mention(&m->act, -1 - c->group, i, saved_bytes(w, k));
            continue;
        }
        for (int j = 0; j < k->n_out && !k->is_loss; j++)
            if (has_gradient(m, k, j) && grad_is_temp(m, k->outs[j]))
                temp_mention(&m->grad, k->outs[j], i, tensor_bytes(w, k->outs[j]));
        for (int j = 0; c->phase == PH_BWD_DATA && j < k->n_in; j++) {
            if (!(k->grad_in >> j & 1) || !grad_is_temp(m, k->in[j])) continue;
            bool over = j == k->grad_over && grad_is_temp(m, k->out) && !temp_find(&m->grad, k->in[j]);
            if (over) temp_over(&m->grad, k->in[j], k->out, i);
            else temp_mention(&m->grad, k->in[j], i, tensor_bytes(w, k->in[j]));
        }
    }
}

static struct place act_at(struct program_maker *m, int t)
{
    return act_is_temp(m, t) ? temp_place(&m->act, t) : *act_kept(m, t);
}
static struct place grad_at(struct program_maker *m, int t)
{
    return grad_is_temp(m, t) ? temp_place(&m->grad, t) : m->st->grad_place[t];
}

static void params_at(struct program_maker *m, const struct group *k, struct kop *c)
{
    const struct placement *pl = m->w->p->pl;
    int rank = m->st->rank;
    uint32_t wanted = c->phase == PH_BWD_DATA ? k->pgrad_in_b : c->phase == PH_BWD_WEIGHTS ? k->pgrad_in_w : 0;
    for (int i = 0; i < k->n_param; i++) {
        const struct state_row *r = &pl->state[k->param[i]];
        c->param[i] = (struct place){.space = SP_PARAM, .cls = -1, .off = r->off[rank], .bytes = r->bytes};
        if (!(wanted >> i & 1) || !r->trained) continue;
        size_t at = placement_use(pl, rank, r->param, k->use[i]);
        c->pgrad[i] = (struct place){.space = SP_GRAD, .cls = -1, .off = at, .bytes = r->bytes};
    }
    if (k->packed_bytes)
        c->packed =
            (struct place){.space = SP_PACKED, .cls = -1, .off = pl->packed_off[c->group], .bytes = k->packed_bytes};
}

/* Gradients of an input: the first contribution overwrites, unless a later stage already wrote one. written: of each
 * tensor, whether this program wrote its gradient. */
static void gins_at(struct program_maker *m, const struct group *k, struct kop *c, bool *written)
{
    for (int j = 0; j < k->n_in; j++) {
        int t = k->in[j];
        if (!(k->grad_in >> j & 1)) continue;
        c->gin[j] = grad_at(m, t);
        bool came = receives(m->w, m->s, t, CHAN_GRAD) || *home_of(m->w, HOME_GRAD, t, m->s) >= 0;
        if (written[t] || came) c->gin_acc |= (uint8_t)(1u << j);
        written[t] = true;
    }
}

static void calls_fill(struct program_maker *m)
{
    bool *written = mem_alloc((size_t)m->w->g->n_tensors);
    for (int i = 0; i < m->n; i++) {
        struct kop *c = &m->k[i];
        const struct group *k = group_at(m, c->group);
        struct place saved = saved_kept(m, c);
        uint32_t need = c->phase == PH_FWD ? ~0u : c->phase == PH_BWD_DATA ? k->need_b : k->need_w;
        for (int j = 0; j < k->n_in; j++) if (need >> j & 1) c->in[j] = act_at(m, k->in[j]);
        for (int j = 0; need & NEED_OUT && j < k->n_out; j++) c->outs[j] = act_at(m, k->outs[j]);
        if (need & NEED_SAVED) c->saved = saved.space == SP_NONE ? temp_place(&m->act, -1 - c->group) : saved;
        for (int j = 0; c->phase != PH_FWD && !k->is_loss && j < k->n_out; j++)
            if (has_gradient(m, k, j)) c->gouts[j] = grad_at(m, k->outs[j]);
        if (c->phase == PH_BWD_DATA) gins_at(m, k, c, written);
        params_at(m, k, c);
    }
    free(written);
}

static void prog_close(struct program_maker *m, struct prog *out)
{
    temps_collect(m);
    size_t act = temps_place(&m->act, m->n), grad = temps_place(&m->grad, m->n);
    out->tmp_bytes = act > grad ? act : grad;            /* a program has only one of the two kinds */
    calls_fill(m);
    for (int i = 0; i < m->n; i++) {
        size_t work = group_workspace(group_at(m, m->k[i].group), m->w->max_n);
        if (work > out->work_bytes) out->work_bytes = work;
    }
    out->n = m->n;
    out->k = m->k;
    temps_free(&m->act); temps_free(&m->grad);
}

/* With space for n calls. */
static struct program_maker maker_of(struct lower *w, int s, bool first, int n)
{
    return (struct program_maker){.w = w,
                                  .s = s,
                                  .st = &w->p->stage[s],
                                  .first = first,
                                  .k = arena_alloc(w->p->mem, (size_t)(n + 1) * sizeof(struct kop)),
                                  .act = {.at = w->temp_at[0], .n_tensors = w->g->n_tensors},
                                  .grad = {.at = w->temp_at[1], .n_tensors = w->g->n_tensors}};
}

static void forward_make(struct lower *w, int s, bool first, struct prog *out)
{
    struct stage_plan *st = &w->p->stage[s];
    int n = 0;
    for (int g = st->first_group; g < st->first_group + st->n_groups; g++) n += first || w->recomputed[g];
    struct program_maker m = maker_of(w, s, first, n);
    for (int g = st->first_group; g < st->first_group + st->n_groups; g++)
        if (first || w->recomputed[g]) call_add(&m, PH_FWD, g);
    prog_close(&m, out);
}

static void backward_make(struct lower *w, int s, bool b, bool wgt, struct prog *out)
{
    struct stage_plan *st = &w->p->stage[s];
    int n = 0;
    for (int g = st->first_group; g < st->first_group + st->n_groups; g++) {
        const struct group *k = &w->p->sel->group[g];
        n += (wgt && runs_w(k)) + (b && runs_b(k));
    }
    struct program_maker m = maker_of(w, s, false, n);
    for (int g = st->first_group + st->n_groups - 1; g >= st->first_group; g--) {
        if (wgt && runs_w(group_at(&m, g))) call_add(&m, PH_BWD_WEIGHTS, g);
        if (b && runs_b(group_at(&m, g))) call_add(&m, PH_BWD_DATA, g);
    }
    prog_close(&m, out);
}

static void places_make(struct lower *w)
{
    for (int s = 0; s < w->p->n_stages; s++) recompute_find(w, s);
    for (int s = 0; s < w->p->n_stages; s++) {
        struct stage_plan *st = &w->p->stage[s];
        w->cls_at[s] = w->cls.n;
        st->load = arena_alloc(w->p->mem, (size_t)w->g->n_tensors * sizeof *st->load);
        st->act_place = arena_alloc(w->p->mem, (size_t)w->g->n_tensors * sizeof *st->act_place);
        st->grad_place = arena_alloc(w->p->mem, (size_t)w->g->n_tensors * sizeof *st->grad_place);
        st->saved_place = arena_alloc(w->p->mem, (size_t)(st->n_groups + 1) * sizeof *st->saved_place);
        st->recompute_place = arena_alloc(w->p->mem, (size_t)w->g->n_tensors * sizeof *st->recompute_place);
        st->recompute_saved = arena_alloc(w->p->mem, (size_t)(st->n_groups + 1) * sizeof *st->recompute_saved);
        act_places(w, s);
        recompute_places(w, s);
        saved_places(w, s);
        if (w->p->req.mode == PLAN_TRAIN) grad_places(w, s);
    }
    w->cls_at[w->p->n_stages] = w->cls.n;
    for (int s = 0; s < w->p->n_stages; s++) homes_take(w, s);
}

int lower_programs(struct lower *w, struct err *e)
{
    places_make(w);
    for (int s = 0; s < w->p->n_stages; s++) {
        struct stage_plan *st = &w->p->stage[s];
        forward_make(w, s, true, &st->prog[PROG_F]);
        if (w->p->req.mode != PLAN_TRAIN) continue;
        forward_make(w, s, false, &st->prog[PROG_R]);
        if (st->joined) { backward_make(w, s, true, true, &st->prog[PROG_D]); continue; }
        backward_make(w, s, true, false, &st->prog[PROG_B]);
        backward_make(w, s, false, true, &st->prog[PROG_W]);
    }
    lower_outputs(w);
    return 0;
}
