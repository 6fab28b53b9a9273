/* From compute rows (F B W) to full rows: joined backward passes, loads, posts in link order one action ahead, the step's tail. */
#include <stdlib.h>
#include <string.h>
#include "plan/plan_int.h"

struct msg { int chan, mb, from_rank, pos; };            /* pos: index of the receiver's compute action before which it is posted */
struct rows { struct lower *w; VEC(struct act) *compute; VEC(struct msg) msg; };

static struct act act_make(enum act_op op, int stage, int mb, int chan)
{
    return (struct act){.op = (uint8_t)op, .stage = (uint16_t)stage, .mb = (uint16_t)mb, .chan = (int16_t)chan};
}

/* ---- joined backward passes --------------------------------------------------------------------------------------------------------- */

/* A stage may join B and W where every W follows its B at once. */
static bool adjacent(const struct sched *s, int rank, int stage)
{
    for (int i = 0; i < s->row[rank].n; i++) {
        const struct sched_act *a = &s->row[rank].v[i];
        if (a->stage != stage || a->op != ACT_B) continue;
        const struct sched_act *b = i + 1 < s->row[rank].n ? a + 1 : NULL;
        if (!b || b->op != ACT_W || b->stage != stage || b->mb != a->mb) return false;
    }
    return true;
}

/* auto: joined unless an early send right after B shortens somebody's wait, that is where the stage sends gradients (architecture: idle time falls from
 * (p-1)(F+B+W) to (p-1)(F+B); the price, output gradients of one micro-batch, is in the plan's bytes). */
static bool joins(const struct lower *w, const struct sched *s, int stage)
{
    bool sends = false;
    for (int i = 0; i < w->chan.n; i++) sends |= w->chan.v[i].kind == CHAN_GRAD && w->chan.v[i].from_stage == stage;
    if (!adjacent(s, w->p->stage[stage].rank, stage) || !strcmp(w->p->req.backward, "split")) return false;
    return !strcmp(w->p->req.backward, "joined") || !sends;
}

static void compute_rows(struct rows *r, const struct sched *s)
{
    const struct plan *p = r->w->p;
    for (int rank = 0; rank < p->n_ranks; rank++)
        for (int i = 0; i < s->row[rank].n; i++) {
            const struct sched_act *a = &s->row[rank].v[i];
            bool joined = p->stage[a->stage].joined;
            if (joined && a->op == ACT_W) continue;
            if (a->op == ACT_B && p->stage[a->stage].r.n) *vec_push(&r->compute[rank]) = act_make(ACT_R, a->stage, a->mb, -1);
            struct act c = act_make(joined && a->op == ACT_B ? ACT_D : (enum act_op)a->op, a->stage, a->mb, -1);
            if (c.op != ACT_F && c.mb == 0) c.flags |= ACT_FIRST;   /* R3: ascending, so micro-batch 0 is the first */
            *vec_push(&r->compute[rank]) = c;
        }
}

/* ---- posts ---------------------------------------------------------------------------------------------------------------------- */

static bool backward(int op) { return op == ACT_B || op == ACT_D; }

static bool sends_after(const struct channel *c, const struct act *a)
{
    return a->stage == c->from_stage && ((c->kind == CHAN_ACT && a->op == ACT_F) || (c->kind == CHAN_GRAD && backward(a->op)));
}

static bool reads(const struct channel *c, const struct act *a)
{
    return a->stage == c->to_stage && ((c->kind == CHAN_ACT && a->op == ACT_F) || (c->kind == CHAN_GRAD && backward(a->op)));
}

/* Every message in its sender's order, with the position its receiver wants: one compute action ahead. */
static int messages(struct rows *r, struct err *e)
{
    struct lower *w = r->w;
    for (int from = 0; from < w->p->n_ranks; from++)
        for (int i = 0; i < r->compute[from].n; i++)
            for (int c = 0; c < w->chan.n; c++) {
                const struct act *a = &r->compute[from].v[i];
                const struct channel *ch = &w->chan.v[c];
                if (!sends_after(ch, a)) continue;
                int at = 0;
                while (at < r->compute[ch->to_rank].n && !(reads(ch, &r->compute[ch->to_rank].v[at]) && r->compute[ch->to_rank].v[at].mb == a->mb)) at++;
                if (at == r->compute[ch->to_rank].n) return err_set(e, E_INTERNAL, "nobody reads channel %d of micro-batch %d", c, a->mb);
                *vec_push(&r->msg) = (struct msg){c, a->mb, from, at ? at - 1 : 0};
            }
    return 0;
}

/* A link is first in first out: a message is posted no later than those behind it. */
static void messages_order(struct rows *r)
{
    for (int i = r->msg.n - 1; i > 0; i--) {
        struct msg *m = &r->msg.v[i];
        for (int j = i - 1; j >= 0; j--) {
            struct msg *before = &r->msg.v[j];
            if (before->from_rank != m->from_rank || r->w->chan.v[before->chan].to_rank != r->w->chan.v[m->chan].to_rank) continue;
            if (before->pos > m->pos) before->pos = m->pos;
            break;
        }
    }
}

static void row_emit(struct rows *r, int rank)
{
    struct lower *w = r->w;
    for (int i = 0; i < r->compute[rank].n; i++) {
        const struct act *a = &r->compute[rank].v[i];
        for (int m = 0; m < r->msg.n; m++) {
            const struct channel *c = &w->chan.v[r->msg.v[m].chan];
            if (c->to_rank == rank && r->msg.v[m].pos == i)
                *vec_push(&w->row[rank]) = act_make(c->kind == CHAN_ACT ? ACT_RF : ACT_RB, c->to_stage, r->msg.v[m].mb, r->msg.v[m].chan);
        }
        if (a->op == ACT_F && w->p->stage[a->stage].n_load) *vec_push(&w->row[rank]) = act_make(ACT_L, a->stage, a->mb, -1);
        *vec_push(&w->row[rank]) = *a;
        for (int c = 0; c < w->chan.n; c++)
            if (sends_after(&w->chan.v[c], a)) *vec_push(&w->row[rank]) = act_make(w->chan.v[c].kind == CHAN_ACT ? ACT_SF : ACT_SB, a->stage, a->mb, c);
    }
}

/* ---- the step's tail: tied gradients to their owners, norm, optimizer, updated weights back -------------------------------------------- */

static void tail_posts(struct lower *w, int rank, enum chan_kind kind)
{
    for (int c = 0; c < w->chan.n; c++) {
        const struct channel *ch = &w->chan.v[c];
        if (ch->kind != kind) continue;
        if (ch->from_rank == rank) *vec_push(&w->row[rank]) = act_make(kind == CHAN_PGRAD ? ACT_SP : ACT_SU, ch->from_stage, 0, c);
        if (ch->to_rank == rank) *vec_push(&w->row[rank]) = act_make(kind == CHAN_PGRAD ? ACT_RP : ACT_RU, ch->to_stage, 0, c);
    }
}

static void tail_emit(struct lower *w, int rank)
{
    int stage = 0;
    while (w->p->stage[stage].rank != rank) stage++;
    tail_posts(w, rank, CHAN_PGRAD);
    if (w->p->req.clip) *vec_push(&w->row[rank]) = act_make(ACT_N, stage, 0, -1);
    *vec_push(&w->row[rank]) = act_make(ACT_O, stage, 0, -1);
    tail_posts(w, rank, CHAN_PARAM);
}

int lower_rows(struct lower *w, const struct sched *s, struct err *e)
{
    struct rows r = {.w = w, .compute = mem_alloc((size_t)w->p->n_ranks * sizeof *r.compute)};
    compute_rows(&r, s);
    int bad = messages(&r, e);
    if (!bad) messages_order(&r);
    for (int rank = 0; !bad && rank < w->p->n_ranks; rank++) {
        row_emit(&r, rank);
        if (w->p->req.mode == PLAN_TRAIN) tail_emit(w, rank);
    }
    for (int rank = 0; rank < w->p->n_ranks; rank++) vec_free(&r.compute[rank]);
    free(r.compute);
    vec_free(&r.msg);
    return bad;
}

/* Where every backward pass follows its forward pass at once, nothing would be freed in between: what is recomputed would only cost. */
static bool keeps_anyway(const struct sched *s, int rank, int stage)
{
    for (int i = 0; i < s->row[rank].n; i++) {
        const struct sched_act *a = &s->row[rank].v[i], *next = i + 1 < s->row[rank].n ? a + 1 : NULL;
        if (a->stage != stage || a->op != ACT_F) continue;
        if (!next || next->op != ACT_B || next->stage != stage || next->mb != a->mb) return false;
    }
    return true;
}

/* Before programs exist, because both decide what is kept. */
void lower_join(struct lower *w, const struct sched *s)
{
    for (int i = 0; i < w->p->n_stages; i++) {
        struct stage_plan *st = &w->p->stage[i];
        st->joined = w->p->req.mode == PLAN_TRAIN && joins(w, s, i);
        bool drop = w->p->req.again && !keeps_anyway(s, st->rank, i);
        for (int g = st->first_group; drop && g < st->first_group + st->n_groups; g++)
            w->again[g] = w->p->req.again[g] && !w->p->sel->group[g].is_loss;
    }
}
