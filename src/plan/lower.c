/* From compute rows (F B W) to full rows: joined backward passes, loads, posts in link order one action ahead, and the
 * end of the step. */
#include <limits.h>
#include <stdlib.h>
#include <string.h>
#include "plan/plan_int.h"
#include "plan/sched.h"

/* pos: the receiver's compute action before which the receive is posted */
struct msg { int chan, mb, from, pos; };
/* last_sent: of each rank, its last action that exchanges messages with other ranks of its pipeline; 0: none does. From
 * there on it may wait for other pipelines without a cycle of waits. */
struct lowered_rows { struct lower *w; VEC(struct act) *compute; int *last_sent; VEC(struct msg) msg; };

/* For one micro-batch. */
static struct act act_make(enum act_op op, int stage, int mb, int chan)
{
    return (struct act){
        .op = (uint8_t)op, .stage = (uint16_t)stage, .mb = (uint16_t)mb, .n_mb = 1, .chan = chan};
}

/* ---- joined backward passes ------------------------------------------------------------------ */

/* A stage may join B and W if every W directly follows its B. */
static bool adjacent(const struct sched *s, int rank, int stage)
{
    for (int i = 0; i < s->row[rank].n; i++) {
        const struct sched_act *a = &s->row[rank].v[i];
        if (a->stage != stage || a->op != ACT_B) continue;
        const struct sched_act *b = i + 1 < s->row[rank].n ? a + 1 : NULL;
        if (!b || b->op != ACT_W || b->stage != stage || b->mb != a->mb || b->n_mb != 1) return false;
    }
    return true;
}

/* auto: joined, unless the stage sends gradients: an early send right after B shortens another rank's wait. Idle time
 * falls from (p-1)(F+B+W) to (p-1)(F+B). The price is the output gradients of one micro-batch, which the plan's bytes
 * include. */
static bool may_batch(const struct lower *w, const struct sched *s, int stage)
{
    bool sends = false;
    for (int i = 0; i < w->chan.n; i++) sends |= w->chan.v[i].kind == CHAN_GRAD && w->chan.v[i].from_stage == stage;
    if (!adjacent(s, w->p->stage[stage].rank, stage) || w->p->req.backward == BACKWARD_SPLIT) return false;
    return w->p->req.backward == BACKWARD_JOINED || !sends;
}

/* After the last micro-batch of a block: the sums that it completes, for the gradients that the action makes. */
static void sums_emit(struct lowered_rows *r, int rank, const struct act *a)
{
    const struct block_sums *s = &r->w->sums;
    for (int i = 0; i < s->n_adds; i++) {
        if (s->adds[i].after != a->mb) continue;
        struct act add = act_make(ACT_A, a->stage, a->mb, -1);
        add.level = (uint8_t)s->adds[i].level;
        if (act_info[a->op].phases >> PH_BWD_DATA & 1) add.flags |= ACT_OF_B;
        if (act_info[a->op].phases >> PH_BWD_WEIGHTS & 1) add.flags |= ACT_OF_W;
        add.piece = a->piece;
        *vec_push(&r->compute[rank]) = add;
    }
}

static void accumulator_emit(struct lowered_rows *r, int rank, struct act c, int pieces)
{
    for (int k = pieces ? 1 : 0; k <= pieces; k++) {
        c.piece = (uint8_t)k;
        *vec_push(&r->compute[rank]) = c;
        struct act last = c;
        last.mb = (uint16_t)(c.mb + c.n_mb - 1);
        sums_emit(r, rank, &last);
    }
}

/* An action adds to the accumulators of its block. An action over several blocks is split, one block after the other.
 * pieces: of the last micro-batch's action, if that micro-batch is alone in it. */
static void accumulate_emit(struct lowered_rows *r, int rank, struct act c, int pieces)
{
    const struct lower *w = r->w;
    const int *block = w->p->part[w->p->req.dp].mb_block;
    for (int n = c.n_mb, mb = c.mb; n > 0; n -= c.n_mb, mb += c.n_mb) {
        c.mb = (uint16_t)mb;
        c.n_mb = 1;
        while (c.n_mb < n && block[mb + c.n_mb] == block[mb]) c.n_mb++;
        c.level = (uint8_t)w->sums.level[mb];
        c.flags = 0;                                     /* R3: ascending */
        if (!mb || block[mb] != block[mb - 1]) c.flags |= ACT_FIRST;
        accumulator_emit(r, rank, c, c.n_mb == 1 && mb == w->p->n_mb - 1 ? pieces : 0);
    }
}

/* Does the action send to other ranks of the pipeline or, unless `sends`, read from them? A stage may read a value that
 * came through any other stage of its rank. */
static bool crosses(const struct lower *w, int rank, const struct sched_act *a, bool sends)
{
    enum chan_kind kind = act_info[a->op].chan;
    for (int i = 0; i < w->chan.n && kind; i++) {
        const struct channel *c = &w->chan.v[i];
        if (c->kind == kind && (c->from_stage == a->stage || (!sends && c->to.at[AXIS_PP] == rank))) return true;
    }
    return false;
}

static int last_crossing(const struct lower *w, const struct sched *s, int rank)
{
    int i = s->row[rank].n - 1;
    while (i >= 0 && !crosses(w, rank, &s->row[rank].v[i], false)) i--;
    return i;
}

/* Actions that make gradients final may run in pieces if no rank waits for the whole action. */
static int pieces_of(const struct lower *w, int rank, const struct sched_act *a, enum act_op op)
{
    bool weights = act_info[op].phases >> PH_BWD_WEIGHTS & 1;
    return weights && !crosses(w, rank, a, true) ? w->p->stage[a->stage].n_pieces : 0;
}

static void compute_rows(struct lowered_rows *r, const struct sched *s)
{
    const struct plan *p = r->w->p;
    for (int rank = 0; rank < p->n_ranks; rank++)
        for (int i = 0, last = last_crossing(r->w, s, rank); i < s->row[rank].n; i++) {
            const struct sched_act *a = &s->row[rank].v[i];
            bool joined = p->stage[a->stage].joined;
            if (joined && a->op == ACT_W) continue;
            if (a->op == ACT_B && p->stage[a->stage].prog[PROG_R].n)
                *vec_push(&r->compute[rank]) = act_make(ACT_R, a->stage, a->mb, -1);
            if (i == last) r->last_sent[rank] = r->compute[rank].n;
            struct act c = act_make(joined && a->op == ACT_B ? ACT_D : (enum act_op)a->op, a->stage, a->mb, -1);
            c.n_mb = a->n_mb;
            if (act_info[c.op].accumulates)
                accumulate_emit(r, rank, c, i >= last ? pieces_of(r->w, rank, a, (enum act_op)c.op) : 0);
            else *vec_push(&r->compute[rank]) = c;
        }
}

/* ---- posts ----------------------------------------------------------------------------------- */

/* Does this channel send what the program made? */
static bool sends_after(const struct channel *c, const struct act *a)
{
    return a->stage == c->from_stage && c->kind == act_info[a->op].chan;
}

/* Channels by their sending stage, ascending; and the action with which each stage reads a micro-batch's messages, for
 * activations and gradients. */
struct index { int *chan, *chan_at, *read[CHAN_GRAD + 1], n_mb; };

static void index_channels(const struct lower *w, struct index *x)
{
    int n = w->p->n_stages;
    x->chan = mem_alloc((size_t)(w->chan.n + 1) * sizeof *x->chan);
    x->chan_at = mem_alloc((size_t)(n + 1) * sizeof *x->chan_at);
    for (int c = 0; c < w->chan.n; c++) x->chan_at[w->chan.v[c].from_stage + 1]++;
    for (int i = 0; i < n; i++) x->chan_at[i + 1] += x->chan_at[i];
    /* from the last; the ends of the ranges serve as cursors ... */
    for (int c = w->chan.n - 1; c >= 0; c--) {
        int *end = &x->chan_at[w->chan.v[c].from_stage + 1];
        x->chan[--*end] = c;
    }
    for (int i = 0; i < n; i++) x->chan_at[i] = x->chan_at[i + 1];   /* ... and now are their begins */
    x->chan_at[n] = w->chan.n;
}

static void index_make(const struct lowered_rows *r, struct index *x)
{
    const struct plan *p = r->w->p;
    size_t n = (size_t)p->n_stages * (size_t)p->n_mb;
    index_channels(r->w, x);
    x->n_mb = p->n_mb;
    for (int kind = CHAN_ACT; kind <= CHAN_GRAD; kind++) {
        x->read[kind] = mem_alloc(n * sizeof **x->read);
        memset(x->read[kind], 0xff, n * sizeof **x->read);
    }
    for (int rank = 0; rank < p->n_ranks; rank++)
        for (int i = r->compute[rank].n - 1; i >= 0; i--) {
            const struct act *a = &r->compute[rank].v[i];
            enum chan_kind reads = act_info[a->op].chan;
            if (reads) x->read[reads][a->stage * p->n_mb + a->mb] = i;
        }
}

static void index_free(struct index *x)
{
    free(x->chan); free(x->chan_at); free(x->read[CHAN_ACT]); free(x->read[CHAN_GRAD]);
}

/* The first action of the receiving rank that reads a message: on its stage, or on a stage that finds the value
 * there. */
static int read_first(const struct lower *w, const struct index *x, const struct channel *c, int mb)
{
    const struct stage_map *m = &w->p->pl->map;
    int first = x->read[c->kind][c->to_stage * x->n_mb + mb];
    for (int i = 0; c->kind == CHAN_ACT && i < m->n_stages_of[c->to.at[AXIS_PP]]; i++) {
        int s = m->stages_of[c->to.at[AXIS_PP]][i], at = x->read[c->kind][s * x->n_mb + mb];
        if (*home_of(w, HOME_ACT, c->tensor, s) == c->to_stage && at >= 0 && at < first) first = at;
    }
    return first;
}

/* Every message in its sender's order, with the position of its receive: one compute action before its reader. */
static int messages(struct lowered_rows *r, const struct index *x, struct err *e)
{
    struct lower *w = r->w;
    for (int from = 0; from < w->p->n_ranks; from++)
        for (int i = 0; i < r->compute[from].n; i++) {
            const struct act *a = &r->compute[from].v[i];
            for (int k = x->chan_at[a->stage]; k < x->chan_at[a->stage + 1]; k++) {
                int c = x->chan[k];
                const struct channel *ch = &w->chan.v[c];
                if (!sends_after(ch, a)) continue;
                int at = read_first(w, x, ch, a->mb);
                if (at < 0) return err_set(e, E_INTERNAL, "nobody reads channel %d of micro-batch %d", c, a->mb);
                *vec_push(&r->msg) = (struct msg){c, a->mb, from, at ? at - 1 : 0};
            }
        }
    return 0;
}

/* A link is first in, first out, so a message is posted no later than the messages after it. */
static void messages_order(struct lowered_rows *r)
{
    /* of the later messages, by receiver; messages are sorted by sender */
    int n = r->w->p->n_ranks, *least = mem_alloc((size_t)n * sizeof *least);
    for (int i = r->msg.n - 1; i >= 0; i--) {
        struct msg *m = &r->msg.v[i];
        int to = r->w->chan.v[m->chan].to.at[AXIS_PP];
        for (int k = 0; k < n && (i == r->msg.n - 1 || m[1].from != m->from); k++) least[k] = INT_MAX;
        if (least[to] < m->pos) m->pos = least[to];
        least[to] = m->pos;
    }
    free(least);
}

/* The messages of each rank's row by position, and in order within a position: head has the first message of a
 * position, next[i] the one after message i. */
struct arrivals { int *head, *next, *row; };             /* row: each rank's first index in head */

static void arrivals_find(const struct lowered_rows *r, struct arrivals *x)
{
    int n = r->w->p->n_ranks, total = 0;
    x->row = mem_alloc((size_t)n * sizeof *x->row);
    for (int rank = 0; rank < n; rank++) { x->row[rank] = total; total += r->compute[rank].n; }
    x->head = mem_alloc((size_t)(total + 1) * sizeof *x->head);
    x->next = mem_alloc((size_t)(r->msg.n + 1) * sizeof *x->next);
    memset(x->head, 0xff, (size_t)(total + 1) * sizeof *x->head);
    for (int m = r->msg.n - 1; m >= 0; m--) {
        int *head = &x->head[x->row[r->w->chan.v[r->msg.v[m].chan].to.at[AXIS_PP]] + r->msg.v[m].pos];
        x->next[m] = *head;
        *head = m;
    }
}

/* After action i: gradients that are final now go to other pipelines. They are final when the last micro-batch is in
 * and blocks are added. */
static void finals_emit(struct lowered_rows *r, int rank, int i)
{
    const struct lower *w = r->w;
    const struct act *a = &r->compute[rank].v[i];
    bool makes = act_info[a->op].phases >> PH_BWD_WEIGHTS & 1 || (a->op == ACT_A && (a->flags & ACT_OF_W));
    bool added = i + 1 == r->compute[rank].n || a[1].op != ACT_A || a[1].stage != a->stage || a[1].mb != a->mb;
    int end;
    if (makes && added && a->mb + a->n_mb == w->p->n_mb) act_groups(w->p, a, &w->final[a->stage], &end);
    if (i >= r->last_sent[rank]) dp_final_emit(r->w, rank);
}

static void row_emit(struct lowered_rows *r, const struct index *x, const struct arrivals *in, int rank)
{
    struct lower *w = r->w;
    bool *loaded = mem_alloc((size_t)w->p->n_mb);
    for (int i = 0; i < r->compute[rank].n; i++) {
        const struct act *a = &r->compute[rank].v[i];
        for (int m = in->head[in->row[rank] + i]; m >= 0; m = in->next[m]) {
            const struct channel *c = &w->chan.v[r->msg.v[m].chan];
            *vec_push(&w->row[rank]) =
                act_make(act_post(c->kind, KIND_RECV), c->to_stage, r->msg.v[m].mb, r->msg.v[m].chan);
        }
        int load = w->p->stage[a->stage].load_stage;
        if (a->op == ACT_F && load >= 0 && !loaded[a->mb]) {
            *vec_push(&w->row[rank]) = act_make(ACT_L, load, a->mb, -1);
            loaded[a->mb] = true;
        }
        *vec_push(&w->row[rank]) = *a;
        for (int k = x->chan_at[a->stage]; k < x->chan_at[a->stage + 1]; k++) {
            const struct channel *c = &w->chan.v[x->chan[k]];
            if (sends_after(c, a))
                *vec_push(&w->row[rank]) = act_make(act_post(c->kind, KIND_SEND), a->stage, a->mb, x->chan[k]);
        }
        finals_emit(r, rank, i);
    }
    if (w->p->req.mode == PLAN_TRAIN) dp_final_emit(w, rank);
    free(loaded);
}

/* ---- the end of a step: tied gradients to their owners, norms, optimizer, updated weights to others ---- */

static void tail_posts(struct lower *w, int rank, enum chan_kind kind)
{
    for (int c = 0; c < w->chan.n; c++) {
        const struct channel *ch = &w->chan.v[c];
        if (ch->kind != kind) continue;
        if (ch->from.at[AXIS_PP] == rank)
            *vec_push(&w->row[rank]) = act_make(act_post(kind, KIND_SEND), ch->from_stage, 0, c);
        if (ch->to.at[AXIS_PP] == rank)
            *vec_push(&w->row[rank]) = act_make(act_post(kind, KIND_RECV), ch->to_stage, 0, c);
    }
}

static void tail_emit(struct lower *w, int rank)
{
    int stage = w->p->pl->map.stages_of[rank][0];
    tail_posts(w, rank, CHAN_PGRAD);
    dp_sum_emit(w, rank);
    *vec_push(&w->row[rank]) = act_make(ACT_N, stage, 0, -1);
    *vec_push(&w->row[rank]) = act_make(ACT_O, stage, 0, -1);
    dp_weights_emit(w, rank);
    tail_posts(w, rank, CHAN_PARAM);
}

int lower_rows(struct lower *w, const struct sched *s, struct err *e)
{
    struct lowered_rows r = {.w = w, .compute = mem_alloc((size_t)w->p->n_ranks * sizeof *r.compute),
                             .last_sent = mem_alloc((size_t)w->p->n_ranks * sizeof *r.last_sent)};
    struct index x = {0};
    struct arrivals in = {0};
    compute_rows(&r, s);
    index_make(&r, &x);
    int bad = messages(&r, &x, e);
    if (!bad) messages_order(&r);
    if (!bad) arrivals_find(&r, &in);
    for (int rank = 0; !bad && rank < w->p->n_ranks; rank++) {
        row_emit(&r, &x, &in, rank);
        dp_kept_emit(w, rank);
        if (w->p->req.mode == PLAN_TRAIN) tail_emit(w, rank);
    }
    for (int rank = 0; rank < w->p->n_ranks; rank++) vec_free(&r.compute[rank]);
    free(r.compute); free(r.last_sent);
    vec_free(&r.msg);
    index_free(&x);
    free(in.head); free(in.next); free(in.row);
    return bad;
}

/* If every backward pass directly follows its forward pass, recomputation frees nothing in between and only costs
 * time. */
static bool keeps_anyway(const struct sched *s, int rank, int stage)
{
    for (int i = 0; i < s->row[rank].n; i++) {
        const struct sched_act *a = &s->row[rank].v[i], *next = i + 1 < s->row[rank].n ? a + 1 : NULL;
        if (a->stage != stage || a->op != ACT_F) continue;
        if (!next || next->op != ACT_B || next->stage != stage || next->mb != a->mb) return false;
    }
    return true;
}

/* Runs before programs exist, because joining and recomputation decide what is kept. */
void lower_join(struct lower *w, const struct sched *s)
{
    for (int i = 0; i < w->p->n_stages; i++) {
        struct stage_plan *st = &w->p->stage[i];
        st->joined = w->p->req.mode == PLAN_TRAIN && may_batch(w, s, i);
        bool drop = w->p->req.recompute && !keeps_anyway(s, st->rank, i);
        for (int g = st->first_group; drop && g < st->first_group + st->n_groups; g++)
            w->recompute[g] = w->p->req.recompute[g] && !w->p->sel->group[g].is_loss;
    }
}
