/* The checker: an independent reading of the rows. It simulates all ranks under rendezvous (a send completes when its
 * receive is posted; links are first in, first out), follows every slot, and counts. It shares nothing with the passes
 * that made the rows. */
#include <stdlib.h>
#include <string.h>
#include "plan/check_int.h"

struct checked_post { int chan, mb, act; bool recv, done; };
struct rank_state { int at; VEC(struct checked_post) post; };
struct checked_link { int from, to; };
/* a program touches the class: an operand must name one of these modes */
struct touch { int cls; uint8_t mode; };
struct touches { VEC(struct touch) v; bool known; };
struct check {
    const struct plan *p; struct rank_state *r; struct err *e;
    VEC(struct checked_link) link;                       /* pairs of ranks with channels between them */
    /* of stage and action kind; known once such an action was seen */
    struct touches *touches;
    /* [stage][class]: the stage has values there that other stages own */
    bool *has;
    int *stage_of;                                       /* of each group */
};

static int fail(const struct check *c, int rank, const struct act *a, const char *what)
{
    char s[32];
    return err_set(c->e, E_INTERNAL, "illegal plan: rank %d, %s: %s", rank, act_text(c->p, a, s), what);
}

/* What posts carry; CHAN_NONE: the action is no post. */
static enum chan_kind carries(const struct act *a)
{
    static const enum chan_kind kind[ACT_COUNT] = {
        [ACT_SF] = CHAN_ACT,   [ACT_RF] = CHAN_ACT,   [ACT_SB] = CHAN_GRAD,  [ACT_RB] = CHAN_GRAD,
        [ACT_SP] = CHAN_PGRAD, [ACT_RP] = CHAN_PGRAD, [ACT_SU] = CHAN_PARAM, [ACT_RU] = CHAN_PARAM,
        [ACT_SG] = CHAN_SUM,   [ACT_RG] = CHAN_SUM,   [ACT_SM] = CHAN_SUMMED, [ACT_RM] = CHAN_SUMMED,
        [ACT_X] = CHAN_ALL,
        [ACT_SK] = CHAN_KEPT,  [ACT_RK] = CHAN_KEPT,  [ACT_SW] = CHAN_WEIGHT, [ACT_RW] = CHAN_WEIGHT};
    return kind[a->op];
}

/* Posts between pipelines. Only check_dp.c, which has the plans of all, can check that they meet. */
static bool goes_out(const struct act *a) { return carries(a) >= CHAN_SUM; }

/* ---- micro-batches: the whole batch, in order, without gaps; memory for what each keeps ---- */

static int micro_batches_check(const struct check *c)
{
    const struct plan *p = c->p;
    /* in the order of pipelines: each begins where the one before it ends */
    int all = (p->req.batch - 1) / p->req.split + 1, n_dp = p->pl->mesh.size[AXIS_DP];
    int64_t before = (int64_t)p->req.dp * all;
    int begin = (int)((before + n_dp - 1) / n_dp), end = (int)((before + all + n_dp - 1) / n_dp);
    int at = begin * p->req.split;
    bool whole = p->n_mb == end - begin;
    for (int i = 0; whole && i < p->n_mb; at += p->mb_n[i++])
        whole = p->mb_first[i] == at && p->mb_n[i] > 0 && p->mb_n[i] <= p->max_n &&
                (p->mb_n[i] == p->req.split || begin + i == all - 1);
    if (!whole || at != (end == all && p->n_mb ? p->req.batch : end * p->req.split))
        return err_set(c->e, E_INTERNAL, "illegal plan: the micro-batches are not the batch");
    for (int s = 0; s < p->n_stages; s++)
        for (int g = 0; g < p->stage[s].n_groups; g++) {
            const struct place *x = &p->stage[s].saved_place[g];
            size_t want = size_align64(group_saved(&p->sel->group[p->stage[s].first_group + g], p->max_n));
            if (x->space == SP_SLOT && x->bytes < want)
                return err_set(c->e, E_INTERNAL, "illegal plan: stage %d keeps too little of its statistics", s);
        }
    return 0;
}

/* ---- values of stages: their own, and values that other stages of their rank hold for them ---- */

static bool same_place(const struct place *a, const struct place *b)
{
    return a->space == SP_SLOT && b->space == SP_SLOT && a->cls == b->cls && a->off == b->off && a->bytes == b->bytes;
}

static int tensor_fail(const struct check *c, int t, int stage, const char *what)
{
    return err_set(c->e, E_INTERNAL, "illegal plan: stage %d, %s: %s", stage, c->p->sel->g->tensor[t].name, what);
}

static bool crosses(const struct plan *p, enum chan_kind kind, int t, int from, int to)
{
    for (int i = 0; i < p->n_chan; i++) {
        const struct channel *h = &p->chan[i];
        if (h->kind == kind && h->tensor == t && h->to_stage == to && (from < 0 || h->from_stage == from)) return true;
    }
    return false;
}

/* A stage reads t, which it does not make: which stage provides t? made: another stage makes t; otherwise it is
 * loaded. */
static int reader_check(const struct check *c, int t, bool made, int s)
{
    const struct plan *p = c->p;
    const struct stage_plan *st = &p->stage[s];
    const struct place *x = &st->act_place[t];
    if (x->space != SP_SLOT) return tensor_fail(c, t, s, "what it reads is nowhere");
    int h = p->cls[x->cls].stage, listed = 0;
    const struct stage_plan *home = &p->stage[h];
    if (home->rank != st->rank || h > s || !same_place(x, &home->act_place[t]))
        return tensor_fail(c, t, s, "another stage has it elsewhere");
    for (int i = 0; i < home->n_load; i++) listed += home->load[i] == t;
    if (!made ? listed != 1 : h == s && !crosses(p, CHAN_ACT, t, -1, s))
        return tensor_fail(c, t, s, "nothing brings it");
    return 0;
}

/* A stage has a gradient for t, and `before` receives it: the stage that makes t, or the previous stage with a gradient
 * for t. */
static int grad_check(const struct check *c, int t, int before, int s)
{
    const struct plan *p = c->p;
    const struct stage_plan *st = &p->stage[s];
    bool here = p->stage[before].rank == st->rank;
    if (here ? !same_place(&st->grad_place[t], &p->stage[before].grad_place[t])
             : !crosses(p, CHAN_GRAD, t, s, before))
        return tensor_fail(c, t, s, "nothing brings its gradient back");
    return 0;
}

/* reads, grades: scratch memory, one for each stage. */
static int tensor_check(const struct check *c, int t, bool *reads, bool *grades)
{
    const struct plan *p = c->p;
    const struct tensor *x = &p->sel->g->tensor[t];
    int maker = x->producer < 0 ? -1 : c->stage_of[p->sel->group_of[x->producer]], last = maker;
    bool graded = p->req.mode == PLAN_TRAIN && x->needs_grad && maker >= 0;
    memset(reads, 0, (size_t)p->n_stages);
    memset(grades, 0, (size_t)p->n_stages);
    for (int k = 0; k < x->n_readers; k++) {
        const struct group *g = &p->sel->group[p->sel->group_of[x->reader[k]]];
        int s = c->stage_of[g - p->sel->group];
        for (int i = 0; i < g->n_in; i++) {
            reads[s] |= g->in[i] == t;
            grades[s] |= g->in[i] == t && (g->grad_in >> i & 1);
        }
    }
    for (int s = 0; s < p->n_stages; s++) {
        if (!reads[s] || s == maker) continue;
        if (reader_check(c, t, maker >= 0, s)) return -1;
        if (!graded || !grades[s]) continue;
        if (grad_check(c, t, last, s)) return -1;
        last = s;
    }
    for (int s = 0; s < p->n_stages && p->n_stages > p->n_ranks; s++) {
        const struct place *at[] = {&p->stage[s].act_place[t], &p->stage[s].grad_place[t]};
        for (int i = 0; i < 2; i++) if (at[i]->space == SP_SLOT) c->has[s * p->n_cls + at[i]->cls] = true;
    }
    return 0;
}

static int homes_check(const struct check *c)
{
    const struct plan *p = c->p;
    bool *reads = mem_alloc(2 * (size_t)p->n_stages);
    int bad = 0;
    for (int i = 0; i < p->n_chan && !bad; i++)
        if (p->chan[i].from.at[AXIS_PP] == p->chan[i].to.at[AXIS_PP] && p->chan[i].axis == AXIS_PP)
            bad = err_set(c->e, E_INTERNAL, "illegal plan: channel %d leads from rank %d to itself", i,
                          p->chan[i].to.at[AXIS_PP]);
    for (int t = 0; t < p->sel->g->n_tensors && !bad; t++) bad = tensor_check(c, t, reads, reads + p->n_stages);
    free(reads);
    return bad;
}

/* ---- counting: every F, B, W once; accumulation ascending ------------------------------------ */

/* b, w: counters from W's first micro-batch on. */
static int count_w(const struct check *c, int rank, const struct act *a, const int *b, int *w)
{
    for (int k = 0; k < a->n_mb; k++) {
        if (!b[k]) return fail(c, rank, a, "before its B");
        if (w[k]++) return fail(c, rank, a, "twice");
        if (a->mb + k && !w[k - 1]) return fail(c, rank, a, "gradients are not added in ascending order");
    }
    return 0;
}

static int pieces_check(const struct check *c)
{
    for (int s = 0; s < c->p->n_stages; s++) {
        const struct stage_plan *st = &c->p->stage[s];
        int end = st->first_group + st->n_groups;
        bool whole = !st->n_pieces || st->piece[st->n_pieces - 1] == st->first_group;
        for (int i = 0; i < st->n_pieces && whole; end = st->piece[i++]) whole = st->piece[i] < end;
        if (!whole) return err_set(c->e, E_INTERNAL, "illegal plan: stage %d does not consist of its pieces", s);
    }
    return 0;
}

/* A piece comes after the previous piece. No other program runs between them, because it would overwrite what the first
 * piece left. */
static int piece_check(const struct check *c, int rank, int i)
{
    const struct act *row = c->p->row[rank], *a = &row[i];
    if (a->op != ACT_D && a->op != ACT_W && a->op != ACT_A) return fail(c, rank, a, "it has no pieces");
    if (a->piece > c->p->stage[a->stage].n_pieces) return fail(c, rank, a, "no such piece");
    int k = i - 1;
    while (k >= 0 && (carries(&row[k]) != CHAN_NONE || row[k].op == ACT_A || row[k].op == ACT_G)) k--;
    bool follows = k >= 0 && row[k].op == a->op && row[k].stage == a->stage && row[k].mb == a->mb &&
                   row[k].n_mb == a->n_mb && row[k].piece == a->piece - 1;
    return a->op == ACT_A || a->piece == 1 || follows ? 0 : fail(c, rank, a, "not behind the piece before it");
}

static int count_row(const struct check *c, int rank, int *f, int *b, int *w, int *r)
{
    const struct plan *p = c->p;
    for (int i = 0; i < p->row_n[rank]; i++) {
        const struct act *a = &p->row[rank][i];
        if (a->op >= ACT_COUNT || a->stage >= p->n_stages || a->n_mb < 1 || a->mb + a->n_mb > (p->n_mb ? p->n_mb : 1))
            return fail(c, rank, a, "no such stage or micro-batch");
        if (p->stage[a->stage].rank != rank) return fail(c, rank, a, "the stage belongs to another rank");
        if (a->n_mb > 1 && a->op != ACT_W) return fail(c, rank, a, "only W takes several micro-batches");
        bool posts = carries(a) != CHAN_NONE;
        if ((posts || a->op == ACT_G) != (a->chan >= 0) || a->chan >= p->n_chan)
            return fail(c, rank, a, "no such channel");
        if ((int64_t)a->opnd + a->n_opnd > p->n_opnd) return fail(c, rank, a, "operands beyond the list");
        if (a->piece && piece_check(c, rank, i)) return -1;
        /* counted with its last piece */
        if (a->piece && a->op != ACT_A && a->piece < p->stage[a->stage].n_pieces) continue;
        int at = a->stage * p->n_mb + a->mb;
        bool recompute = p->stage[a->stage].prog[PROG_R].n > 0;
        if (a->op == ACT_F) f[at]++;
        if (a->op == ACT_R) {
            if (!f[at]) return fail(c, rank, a, "before its forward pass");
            if (!recompute || r[at]++) return fail(c, rank, a, "nothing is to be recomputed");
        }
        if (a->op == ACT_B || a->op == ACT_D) {
            if (!f[at]) return fail(c, rank, a, "before its forward pass");
            if (recompute && !r[at]) return fail(c, rank, a, "before what it reads was recomputed");
            b[at]++;
        }
        if (a->op == ACT_B && a->mb && !b[at - 1])
            return fail(c, rank, a, "gradients are not added in ascending order");
        if ((a->op == ACT_W || a->op == ACT_D) && count_w(c, rank, a, b + at, w + at)) return -1;
    }
    return 0;
}

static int count_all(const struct check *c)
{
    const struct plan *p = c->p;
    size_t n = (size_t)p->n_stages * (size_t)p->n_mb;
    int *f = mem_alloc(4 * n * sizeof *f), *b = f + n, *w = b + n, *recompute = w + n, bad = 0,
        want = p->req.mode == PLAN_TRAIN;
    for (int r = 0; r < p->n_ranks && !bad; r++) bad = count_row(c, r, f, b, w, recompute);
    for (size_t i = 0; i < n && !bad; i++)
        if (f[i] != 1 || b[i] != want || w[i] != want)
            bad = err_set(c->e, E_INTERNAL, "illegal plan: stage %d, micro-batch %d: %d F, %d B, %d W",
                          (int)i / p->n_mb, (int)i % p->n_mb, f[i], b[i], w[i]);
    free(f);
    return bad;
}

/* ---- operands: an action names every class of slots that its program touches ----------------- */

static void touch_add(struct touches *t, const struct place *x, uint8_t mode)
{
    if (x->space != SP_SLOT) return;
    for (int i = 0; i < t->v.n; i++) if (t->v.v[i].cls == x->cls && t->v.v[i].mode == mode) return;
    *vec_push(&t->v) = (struct touch){x->cls, mode};
}

/* What a program touches, each once, because the program runs for every micro-batch. */
static void touches_find(struct touches *t, const struct prog *g)
{
    const uint8_t any = OPND_READ | OPND_WRITE;          /* a program may have written itself what it reads */
    for (int n = 0; n < g->n; n++) {
        const struct kop *k = &g->k[n];
        const uint8_t made = k->phase == PH_FWD ? OPND_WRITE : any;
        touch_add(t, &k->saved, made);
        for (int i = 0; i < MAX_OUT; i++) {
            touch_add(t, &k->outs[i], made);
            touch_add(t, &k->gouts[i], any);
        }
        for (int i = 0; i < MAX_IN; i++) {
            touch_add(t, &k->in[i], any);
            touch_add(t, &k->gin[i], OPND_WRITE);
        }
    }
    t->known = true;
}

static bool named(const struct check *c, const struct act *a, const struct touch *t)
{
    for (int k = 0; k < a->n_opnd; k++) {
        const struct opnd *o = &c->p->opnd[a->opnd + k];
        if (o->cls == t->cls && (o->mode & t->mode)) return true;
    }
    return false;
}

static int programs_named(const struct check *c, int rank)
{
    for (int i = 0; i < c->p->row_n[rank]; i++) {
        const struct act *a = &c->p->row[rank][i];
        const struct stage_plan *s = &c->p->stage[a->stage];
        const struct prog *g = a->op == ACT_F   ? &s->prog[PROG_F]
                               : a->op == ACT_B ? &s->prog[PROG_B]
                               : a->op == ACT_W ? &s->prog[PROG_W]
                               : a->op == ACT_D ? &s->prog[PROG_D]
                               : a->op == ACT_R ? &s->prog[PROG_R]
                                                : NULL;
        struct touches *t = &c->touches[a->stage * ACT_COUNT + a->op];
        if (g && !t->known) touches_find(t, g);
        for (int k = 0; k < t->v.n; k++)
            if (!named(c, a, &t->v.v[k])) return fail(c, rank, a, "its program touches slots that it does not name");
    }
    return 0;
}

/* ---- slots: written before read, never overwritten before the last read ---------------------- */

/* holds: the micro-batch in each slot, -1: none; first: the first slot of each class in it; read: of each class and
 * micro-batch, the row's last action that reads it. 0: no action does, because nothing is written before the first
 * action. */
struct slots { int *holds, *first, *read, total; };

static void slots_make(const struct plan *p, struct slots *x)
{
    *x = (struct slots){.first = mem_alloc((size_t)(p->n_cls + 1) * sizeof *x->first),
                        .read = mem_alloc((size_t)(p->n_cls + 1) * (size_t)p->n_mb * sizeof *x->read)};
    for (int k = 0; k < p->n_cls; x->total += p->cls[k++].n_slots) x->first[k] = x->total;
    x->holds = mem_alloc((size_t)(x->total + 1) * sizeof *x->holds);
    memset(x->holds, 0xff, (size_t)(x->total + 1) * sizeof *x->holds);
}

static void slots_free(struct slots *x) { free(x->holds); free(x->first); free(x->read); }

static void reads_find(const struct plan *p, int rank, struct slots *x)
{
    for (int i = 0; i < p->row_n[rank]; i++) {
        const struct act *a = &p->row[rank][i];
        for (int k = 0; k < a->n_opnd; k++) {
            const struct opnd *o = &p->opnd[a->opnd + k];
            for (int j = 0; j < a->n_mb && o->cls < p->n_cls && (o->mode & OPND_READ); j++)
                x->read[o->cls * p->n_mb + a->mb + j] = i;
        }
    }
}

/* At the end of its row an output's slots hold every micro-batch. */
static int outputs_row(const struct check *c, int rank, const struct slots *x)
{
    const struct plan *p = c->p;
    for (int i = 0; i < p->n_outputs; i++) {
        const struct output *o = &p->output[i];
        const char *name = p->sel->g->tensor[o->tensor].name;
        bool there = o->at.space == SP_SLOT && o->at.cls < p->n_cls && p->cls[o->at.cls].stage == o->stage;
        if (o->stage < 0 || o->stage >= p->n_stages || p->stage[o->stage].rank != o->rank || !there)
            return err_set(c->e, E_INTERNAL, "illegal plan: output \"%s\" has no place", name);
        for (int mb = 0; mb < p->n_mb && o->rank == rank; mb++) {
            const int *held = x->holds + x->first[o->at.cls], n = p->cls[o->at.cls].n_slots;
            int k = 0;
            while (k < n && held[k] != mb) k++;
            if (k == n)
                return err_set(c->e, E_INTERNAL, "illegal plan: output \"%s\": micro-batch %d was overwritten", name,
                               mb);
        }
    }
    return 0;
}

/* One micro-batch of an action, in one slot. */
static int slot_used(const struct check *c, struct slots *x, int rank, int i, const struct opnd *o, int j)
{
    const struct act *a = &c->p->row[rank][i];
    int *h = &x->holds[x->first[o->cls] + o->slot + j], mb = a->mb + j;
    if ((o->mode & OPND_READ) && *h != mb) return fail(c, rank, a, "reads a slot that does not hold its micro-batch");
    if (!(o->mode & OPND_WRITE)) return 0;
    if (*h >= 0 && *h != mb && x->read[o->cls * c->p->n_mb + *h] > i)
        return fail(c, rank, a, "writes over a slot that is still needed");
    *h = mb;
    return 0;
}

/* A send that uses a slot must be complete before the slot is written. The executor waits for it; here the order only
 * must be possible. */
static int slots_row(const struct check *c, int rank, struct slots *x)
{
    const struct plan *p = c->p;
    int bad = 0;
    reads_find(p, rank, x);
    for (int i = 0; i < p->row_n[rank] && !bad; i++) {
        const struct act *a = &p->row[rank][i];
        for (int k = 0; k < a->n_opnd && !bad; k++) {
            const struct opnd *o = &p->opnd[a->opnd + k];
            bool own = o->cls < p->n_cls && (p->cls[o->cls].stage == a->stage || c->has[a->stage * p->n_cls + o->cls]);
            if (!own || o->slot + a->n_mb > p->cls[o->cls].n_slots) {
                bad = fail(c, rank, a, "no such slot");
                break;
            }
            for (int j = 0; j < a->n_mb && !bad; j++) bad = slot_used(c, x, rank, i, o, j);
        }
    }
    return bad;
}

/* ---- rendezvous ------------------------------------------------------------------------------ */

static bool is_recv(const struct act *a)
{
    return a->op == ACT_RF || a->op == ACT_RB || a->op == ACT_RP || a->op == ACT_RU;
}

static int post_add(struct check *c, int rank)
{
    const struct act *a = &c->p->row[rank][c->r[rank].at];
    const struct channel *ch = &c->p->chan[a->chan];
    bool recv = is_recv(a);
    bool fits = recv ? ch->to_stage == a->stage : ch->from_stage == a->stage;
    if (!fits || carries(a) != ch->kind) return fail(c, rank, a, "the channel does not lead there");
    *vec_push(&c->r[rank].post) = (struct checked_post){.chan = a->chan, .mb = a->mb, .act = c->r[rank].at,
                                                        .recv = recv};
    return 0;
}

/* The oldest open post of a rank on the link from -> to. */
static struct checked_post *oldest(struct check *c, int rank, bool recv, int from, int to)
{
    for (int i = 0; i < c->r[rank].post.n; i++) {
        struct checked_post *q = &c->r[rank].post.v[i];
        const struct channel *h = &c->p->chan[q->chan];
        if (!q->done && q->recv == recv && h->from.at[AXIS_PP] == from && h->to.at[AXIS_PP] == to)
            return q;
    }
    return NULL;
}

static int by_ranks(const void *a, const void *b)
{
    const struct checked_link *x = a, *y = b;
    return x->from != y->from ? (x->from > y->from) - (x->from < y->from) : (x->to > y->to) - (x->to < y->to);
}

static void links_find(struct check *c)
{
    int n = 0, ranks = c->p->n_ranks;
    for (int i = 0; i < c->p->n_chan; i++) {
        struct checked_link l = {c->p->chan[i].from.at[AXIS_PP], c->p->chan[i].to.at[AXIS_PP]};
        if (l.from >= 0 && l.from < ranks && l.to >= 0 && l.to < ranks) *vec_push(&c->link) = l;
    }
    if (c->link.n) qsort(c->link.v, (size_t)c->link.n, sizeof *c->link.v, by_ranks);
    for (int i = 0; i < c->link.n; i++)
        if (!i || by_ranks(&c->link.v[i], &c->link.v[n - 1])) c->link.v[n++] = c->link.v[i];
    c->link.n = n;
}

static int match_links(struct check *c, bool *moved)
{
    for (int i = 0; i < c->link.n; i++) {
        int from = c->link.v[i].from, to = c->link.v[i].to;
        for (;;) {
            struct checked_post *s = oldest(c, from, false, from, to), *r = oldest(c, to, true, from, to);
            if (!s || !r) break;
            if (s->chan != r->chan || s->mb != r->mb)
                return fail(c, to, &c->p->row[to][r->act], "the link delivers another message first");
            s->done = r->done = *moved = true;
        }
    }
    return 0;
}

/* May the action run: are the receives of what it reads, and the sends of what it overwrites, complete? */
static bool runnable(struct check *c, int rank)
{
    const struct act *a = &c->p->row[rank][c->r[rank].at];
    for (int i = 0; i < c->r[rank].post.n; i++) {
        const struct checked_post *q = &c->r[rank].post.v[i];
        const struct act *by = &c->p->row[rank][q->act];
        if (q->done) continue;
        bool sums = a->op == ACT_O || a->op == ACT_N || a->op == ACT_SG || a->op == ACT_G || a->op == ACT_X;
        if (sums && q->recv && c->p->chan[q->chan].kind == CHAN_PGRAD) return false;
        for (int k = 0; k < a->n_opnd && by->n_opnd; k++) {
            const struct opnd *o = &c->p->opnd[a->opnd + k], *p = &c->p->opnd[by->opnd];
            bool same = o->cls == p->cls && p->slot >= o->slot && p->slot < o->slot + a->n_mb;
            if (same && (o->mode & (q->recv ? OPND_READ : OPND_WRITE))) return false;
        }
    }
    return true;
}

static void forget_done(struct rank_state *r)
{
    int n = 0;
    for (int i = 0; i < r->post.n; i++) if (!r->post.v[i].done) r->post.v[n++] = r->post.v[i];
    r->post.n = n;
}

static int deadlock(const struct check *c)
{
    struct text t = {0};
    char s[32];
    for (int r = 0; r < c->p->n_ranks; r++) {
        bool end = c->r[r].at == c->p->row_n[r];
        if (end && !c->r[r].post.n) continue;
        text_add(&t, "%s rank %d waits at %s", t.n ? ";" : "", r,
                 end ? "its end" : act_text(c->p, &c->p->row[r][c->r[r].at], s));
    }
    err_set(c->e, E_INTERNAL, "illegal plan: deadlock:%s", t.s ? t.s : "");
    text_free(&t);
    return -1;
}

static int rendezvous(struct check *c)
{
    bool moved = true, open = true;
    links_find(c);
    while (moved) {
        moved = open = false;
        for (int r = 0; r < c->p->n_ranks; r++) {
            for (; c->r[r].at < c->p->row_n[r] && runnable(c, r); c->r[r].at++) {
                moved = true;
                const struct act *a = &c->p->row[r][c->r[r].at];
                if (carries(a) != CHAN_NONE && !goes_out(a) && post_add(c, r)) return -1;
            }
        }
        if (match_links(c, &moved)) return -1;
        for (int r = 0; r < c->p->n_ranks; r++) {
            forget_done(&c->r[r]);
            open |= c->r[r].at < c->p->row_n[r] || c->r[r].post.n;
        }
    }
    return open ? deadlock(c) : 0;
}

int plan_check(const struct plan *p, struct err *e)
{
    struct err own = {0};
    int kinds = p->n_stages * ACT_COUNT;
    struct check c = {.p = p,
                      .e = e ? e : &own,
                      .r = mem_alloc((size_t)p->n_ranks * sizeof *c.r),
                      .touches = mem_alloc((size_t)kinds * sizeof *c.touches)};
    c.stage_of = mem_alloc((size_t)p->sel->n_groups * sizeof *c.stage_of);
    for (int s = 0; s < p->n_stages; s++)
        for (int g = 0; g < p->stage[s].n_groups; g++) c.stage_of[p->stage[s].first_group + g] = s;
    c.has = mem_alloc((size_t)p->n_stages * (size_t)(p->n_cls + 1));
    int bad = micro_batches_check(&c) || homes_check(&c) || pieces_check(&c) || count_all(&c) || check_sums(p, c.e) ||
              check_state(p, c.stage_of, c.e);
    struct slots slots;
    slots_make(p, &slots);
    for (int r = 0; r < p->n_ranks && !bad; r++)
        bad = programs_named(&c, r) || slots_row(&c, r, &slots) || check_memory(p, r, c.e) ||
              outputs_row(&c, r, &slots);
    slots_free(&slots);
    if (!bad) bad = rendezvous(&c);
    for (int r = 0; r < p->n_ranks; r++) vec_free(&c.r[r].post);
    for (int i = 0; i < kinds; i++) vec_free(&c.touches[i].v);
    free(c.touches);
    free(c.has); free(c.stage_of);
    free(c.r);
    vec_free(&c.link);
    return bad ? -1 : 0;
}
