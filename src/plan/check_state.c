/* The checker for state. All state that outlives a step must have its own place. A tied weight must stay one weight:
 * each use's gradient reaches the owner before the optimizer; the weight returns to each rank after it. */
#include <stdlib.h>
#include "plan/check_int.h"

struct ties {
    const struct plan *p; const int *stage_of; struct err *e;
    int *sent, *got;                                     /* of each channel: its number of posts */
};

static int state_fail(const struct ties *c, const struct state_row *r, int rank, const char *what)
{
    return err_set(c->e, E_INTERNAL, "illegal plan: rank %d, %s: %s", rank, r->name, what);
}

/* Values in the order of the registry neither overlap nor leave the region. */
static bool lies_free(size_t at, size_t bytes, size_t *end, size_t region)
{
    bool free = at >= *end && bytes <= region && at <= region - bytes;
    *end = at + bytes;
    return free;
}

static int rank_of_use(const struct ties *c, int param, int use)
{
    return c->p->stage[c->stage_of[c->p->sel->group_of[c->p->sel->g->param[param].use_node[use]]]].rank;
}

static bool rank_uses(const struct ties *c, int param, int rank)
{
    for (int u = 0; u < c->p->sel->g->param[param].n_uses; u++) if (rank_of_use(c, param, u) == rank) return true;
    return false;
}

/* Each use of a weight has one accumulator on its own rank and one on the owner's rank. */
static int grads_check(const struct ties *c, const struct state_row *r, int rank, size_t *end)
{
    const struct placement *pl = c->p->pl;
    size_t region = rank == r->owner ? pl->sum_bytes[rank] : pl->slots[rank].n ? pl->slots[rank].grad_at
                                                                              : pl->level_bytes[rank];
    for (int u = 0; u < c->p->sel->g->param[r->param].n_uses; u++) {
        size_t at = placement_use(pl, rank, r->param, u);
        bool wants = r->trained && (rank == r->owner || rank_of_use(c, r->param, u) == rank);
        if (wants && at == STATE_NOWHERE) return state_fail(c, r, rank, "a gradient is nowhere");
        if (r->home == HOME_FILE) continue;               /* slot_check */
        if (at != STATE_NOWHERE && !lies_free(at, r->bytes, end, region))
            return state_fail(c, r, rank, "a gradient lies where another one is");
    }
    return 0;
}

/* A row's place in a region of a rank: [at, end). */
struct state_place { size_t at, end; const struct state_row *row; };
struct lies { struct state_place *v; int n; };

static int by_place(const void *a, const void *b)
{
    const struct state_place *x = a, *y = b;
    return x->at != y->at ? (x->at > y->at) - (x->at < y->at) : (x->end > y->end) - (x->end < y->end);
}

static int lies_check(const struct ties *c, int rank, struct lies *x, size_t region)
{
    if (x->n) qsort(x->v, (size_t)x->n, sizeof *x->v, by_place);
    for (int i = 0; i < x->n; i++)
        if (x->v[i].at > region || x->v[i].end > region || (i && x->v[i].at < x->v[i - 1].end))
            return state_fail(c, x->v[i].row, rank, "lies where other state is");
    return 0;
}

/* Where weights are shared out, a weight's optimizer state is on the weight's shard. */
static bool row_wanted(const struct ties *c, const struct state_row *r, int rank)
{
    if (r->kind == STATE_OPTIMIZER) return rank == r->owner && (r->shard.at < 0 || r->shard.at == c->p->req.dp);
    return rank == r->owner || rank_uses(c, r->param, rank);
}

/* A parameter and its average exist once on each rank that uses the parameter; its optimizer state exists on the owner.
 * Each pipeline has its own regions. */
static int places_check(const struct ties *c, int rank)
{
    const struct placement *pl = c->p->pl;
    const struct weight_slots *slots = &pl->slots[rank];
    const struct state_file *file = &pl->state_file[rank];
    const size_t region[] = {[IN_PARAM] = slots->n ? slots->at : pl->param_bytes[rank],
                             [IN_STATE] = file->n ? file->at : pl->state_bytes[rank]};
    int bad = 0;
    for (int k = 0; k < STATE_REGIONS && !bad; k++) {
        struct lies x = {mem_alloc((size_t)(pl->n_state + 1) * sizeof *x.v), 0};
        for (int i = 0; i < pl->n_state && !bad; i++) {
            const struct state_row *r = &pl->state[i];
            bool wants = row_wanted(c, r, rank), other = r->kind == STATE_OPTIMIZER && !wants;
            if ((int)r->region != k || other) continue;
            const bool here = r->off[rank] != STATE_NOWHERE;
            if (r->home == HOME_FILE)
                bad = here == (rank == r->owner) ? 0 : state_fail(c, r, rank, "lies in a file of another rank");
            else if (here)
                x.v[x.n++] = (struct state_place){r->off[rank], r->off[rank] + r->bytes, r};
            else if (wants) bad = state_fail(c, r, rank, "is used, but nowhere");
        }
        bad = bad || lies_check(c, rank, &x, region[k]);
        free(x.v);
    }
    return bad ? -1 : 0;
}

/* ---- optimizer state in a file ---- */

/* The first buffer of a weight; NULL: it has none in the rank's file. */
static const struct state_row *buffer_first(const struct placement *pl, int rank, int param)
{
    for (int i = 0; i < pl->n_state; i++) {
        const struct state_row *r = &pl->state[i];
        if (r->kind == STATE_OPTIMIZER && r->param == param && !r->buffer && r->home == HOME_FILE && r->owner == rank)
            return r;
    }
    return NULL;
}

/* Rows fill the file in their order, and chunks do; each begins with a block. */
static int file_check(const struct ties *c, int rank)
{
    const struct placement *pl = c->p->pl;
    const struct state_file *f = &pl->state_file[rank];
    uint64_t end = 0;
    size_t buffers = 0;
    for (int i = 0; i < pl->n_state; i++) {
        const struct state_row *r = &pl->state[i];
        if (r->kind != STATE_OPTIMIZER || r->owner != rank) continue;
        if (r->home != pl->state[i - (r->buffer > 0)].home) return state_fail(c, r, rank, "lies apart from the other");
        if (r->home != HOME_FILE) continue;
        if (r->off[rank] != end || pl->mesh.size[AXIS_DP] > 1)
            return state_fail(c, r, rank, "has the wrong place in its file");
        end += r->bytes;
        if (buffers < (size_t)r->buffer + 1) buffers = (size_t)r->buffer + 1;
    }
    uint64_t beside = 0;
    for (int i = 0; i < c->p->sel->g->n_params; i++)
        if (pl->state[i].home == HOME_FILE && pl->state[i].trained && pl->state[i].owner == rank)
            beside += pl->state[i].bytes;
    const size_t place = f->bytes + (beside ? 2 * f->bytes / (buffers ? buffers : 1) : 0);
    bool bad = end != f->all || (end && f->n < 1) || beside != f->beside || f->place < place ||
               f->at + (size_t)f->n * f->place > pl->state_bytes[rank];
    end = 0;
    for (int i = 0; i < f->n_chunks && !bad; end += f->chunk[i++].bytes) {
        const struct state_chunk *k = &f->chunk[i];
        const struct state_row *r = buffer_first(pl, rank, k->param);
        bad = !r || k->at != end || k->bytes > f->bytes || k->from * sizeof(float) >= r->bytes ||
              k->from % f->block || r->off[rank] + k->from * sizeof(float) * buffers != end;
    }
    if (!bad && end == f->all) return 0;
    return err_set(c->e, E_INTERNAL, "illegal plan: rank %d: its optimizer state in a file has no right chunks", rank);
}

/* ---- weights in a file ---- */

/* May a trained weight lie in a file? One update changes it there, with its optimizer state; nothing else does. */
static bool trained_moves(const struct placement *pl, const struct state_row *r)
{
    bool average = false;
    for (int i = 0; i < pl->n_state; i++)
        average |= pl->state[i].kind == STATE_AVERAGE && pl->state[i].param == r->param;
    return buffer_first(pl, r->owner, r->param) && !average && !r->tied && pl->n_levels == 1 &&
           pl->mesh.size[AXIS_DP] == 1;
}

/* What of a stage lies in its slot: its weights, their gradients. */
struct slot_lies { struct lies weights, grads; };

static int slot_row(const struct ties *c, int s, const struct state_row *r, struct slot_lies *x)
{
    const struct placement *pl = c->p->pl;
    const int rank = c->p->stage[s].rank, slot = pl->slot_of[s];
    const struct weight_slots *of = &pl->slots[rank];
    const struct param *p = &c->p->sel->g->param[r->param];
    int here = 0;
    for (int u = 0; u < p->n_uses; u++) here += c->stage_of[c->p->sel->group_of[p->use_node[u]]] == s;
    if (!here) return 0;
    if (here < p->n_uses || (r->trained && !trained_moves(pl, r)) || r->region != IN_PARAM || slot < 0 || slot >= of->n)
        return state_fail(c, r, rank, "cannot lie in a file");
    const size_t at = r->off[rank], grad = r->trained ? placement_use(pl, rank, r->param, 0) : 0;
    if (at < of->at + (size_t)slot * of->bytes || (r->trained && grad < of->grad_at + (size_t)slot * of->grad_bytes))
        return state_fail(c, r, rank, "lies before its slot");
    x->weights.v[x->weights.n++] = (struct state_place){at, at + r->bytes, r};
    if (r->trained) x->grads.v[x->grads.n++] = (struct state_place){grad, grad + r->bytes, r};
    return 0;
}

/* Weights of a stage that lie in a file: weights of that stage alone, within the stage's slot; and their gradients. */
static int slot_check(const struct ties *c, int s)
{
    const struct placement *pl = c->p->pl;
    const int rank = c->p->stage[s].rank, slot = pl->slot_of[s];
    const struct weight_slots *of = &pl->slots[rank];
    const size_t n = (size_t)(pl->n_state + 1);
    struct slot_lies x = {{mem_alloc(n * sizeof *x.weights.v), 0}, {mem_alloc(n * sizeof *x.grads.v), 0}};
    int bad = 0;
    for (int i = 0; i < pl->n_state && !bad; i++)
        if (pl->state[i].home == HOME_FILE && pl->state[i].kind != STATE_OPTIMIZER)
            bad = slot_row(c, s, &pl->state[i], &x);
    bad = bad || lies_check(c, rank, &x.weights, of->at + (size_t)(slot + 1) * of->bytes) ||
          lies_check(c, rank, &x.grads, of->grad_at + (size_t)(slot + 1) * of->grad_bytes);
    free(x.weights.v);
    free(x.grads.v);
    return bad ? -1 : 0;
}

static int slots_check(const struct ties *c)
{
    const struct placement *pl = c->p->pl;
    for (int r = 0; r < c->p->n_ranks; r++) {
        const struct weight_slots *of = &pl->slots[r];
        if (of->n && (of->at + (size_t)of->n * of->bytes > pl->param_bytes[r] ||
                      of->grad_at + (size_t)of->n * of->grad_bytes > pl->grad_bytes[r]))
            return err_set(c->e, E_INTERNAL, "illegal plan: rank %d: its slots of weights exceed its memory", r);
    }
    for (int s = 0; s < c->p->n_stages; s++) if (slot_check(c, s)) return -1;
    return 0;
}

/* What of a stage in a file does a program use: 1: weights; 2: it adds to their gradients. */
enum { USES_WEIGHTS = 1, USES_GRADS = 2 };
static int uses_file(const struct plan *p, const struct prog *g)
{
    int uses = 0;
    for (int i = 0; i < g->n; i++) {
        const struct group *k = &p->sel->group[g->k[i].group];
        for (int j = 0; j < k->n_param; j++) {
            if (p->pl->state[k->param[j]].home != HOME_FILE) continue;
            if (g->k[i].param[j].space == SP_PARAM) uses |= USES_WEIGHTS;
            if (g->k[i].pgrad[j].space == SP_GRAD) uses |= USES_GRADS;
        }
    }
    return uses;
}

static int fetch_fail(const struct ties *c, int rank, const struct act *a, const char *what)
{
    char s[32];
    return err_set(c->e, E_INTERNAL, "illegal plan: rank %d, %s: %s", rank, act_text(c->p, a, s), what);
}

/* Of each slot: holds: the stage whose weights it has, or gets; -1: none that this row brought; grads: the stage whose
 * gradients it has; -1: none. filed: of each stage, are its gradients in the file? */
struct slots_state { int *holds, *grads; bool *filed; };

static int move_check(const struct ties *c, int rank, const struct act *a, struct slots_state *x, int slot)
{
    const bool grads = a->flags & ACT_GRADS, loads = a->op == ACT_LW;
    if (loads && x->holds[slot] >= 0) return fetch_fail(c, rank, a, "the slot has other weights");
    if (!loads && x->holds[slot] != a->stage) return fetch_fail(c, rank, a, "its weights are not in their slot");
    if (loads && grads && !x->filed[a->stage]) return fetch_fail(c, rank, a, "the file has no gradients of this step");
    if (!loads && grads != (x->grads[slot] >= 0)) return fetch_fail(c, rank, a, "it loses gradients, or has none");
    x->holds[slot] = loads ? a->stage : -1;
    x->grads[slot] = loads && grads ? a->stage : -1;
    x->filed[a->stage] |= !loads && grads;
    return 0;
}

static int fetch_check(const struct ties *c, int rank, const struct act *a, struct slots_state *x)
{
    static const enum prog_kind prog[] = {[ACT_F] = PROG_F, [ACT_B] = PROG_B, [ACT_W] = PROG_W, [ACT_D] = PROG_D,
                                          [ACT_R] = PROG_R};
    const int slot = c->p->pl->slot_of[a->stage], n = c->p->pl->slots[rank].n;
    const bool moves = a->op == ACT_LW || a->op == ACT_EW, runs = a->op >= ACT_F && a->op <= ACT_R;
    const int uses = runs ? uses_file(c->p, &c->p->stage[a->stage].prog[prog[a->op]]) : 0;
    for (int i = 0; i < n && a->op == ACT_O; i++) {
        if (x->grads[i] >= 0) return fetch_fail(c, rank, a, "gradients are not in their file");
        if (x->holds[i] >= 0 && c->p->pl->slot_grads[x->holds[i]])
            return fetch_fail(c, rank, a, "a slot keeps weights");
    }
    if (!moves && !uses) return 0;
    if (slot < 0 || slot >= n) return fetch_fail(c, rank, a, "its weights have no slot");
    if (moves) return move_check(c, rank, a, x, slot);
    if (x->holds[slot] != a->stage) return fetch_fail(c, rank, a, "its weights are not in their slot");
    if (!(uses & USES_GRADS)) return 0;
    if (x->grads[slot] < 0 && x->filed[a->stage]) return fetch_fail(c, rank, a, "its gradients are in their file");
    x->grads[slot] = a->stage;
    return 0;
}

static int fetches_check(const struct ties *c, int rank)
{
    const int n = c->p->pl->slots[rank].n;
    struct slots_state x = {mem_alloc((size_t)(n + 1) * sizeof *x.holds), mem_alloc((size_t)(n + 1) * sizeof *x.grads),
                            mem_alloc((size_t)c->p->n_stages * sizeof *x.filed)};
    int bad = 0;
    for (int i = 0; i < n; i++) x.holds[i] = x.grads[i] = -1;
    for (int i = 0; i < c->p->row_n[rank] && !bad; i++) bad = fetch_check(c, rank, &c->p->row[rank][i], &x);
    free(x.holds); free(x.grads); free(x.filed);
    return bad;
}

/* The shard and owner of a row exist, and all rows of a weight have the same ones. */
static int writers_check(const struct ties *c)
{
    const struct placement *pl = c->p->pl;
    for (int i = 0; i < pl->n_state; i++) {
        const struct state_row *r = &pl->state[i], *w = &pl->state[r->param];
        bool there = pl->sharing.weights ? r->shard.at >= 0 && r->shard.at < pl->mesh.size[AXIS_DP]
                                         : r->shard.at == SHARD_ALL;
        if (!there || r->shard.axis != AXIS_DP || r->shard.at != w->shard.at || r->owner != w->owner)
            return state_fail(c, r, r->owner, "nobody speaks for it");
    }
    return 0;
}

static int grads_all_check(const struct ties *c, int rank)
{
    const struct placement *pl = c->p->pl;
    size_t end[2] = {0, pl->sum_bytes[rank]};
    for (int i = 0; i < c->p->sel->g->n_params; i++)
        if (grads_check(c, &pl->state[i], rank, &end[rank != pl->state[i].owner])) return -1;
    return 0;
}

/* ---- tied weights ---------------------------------------------------------------------------- */

/* Number of channels of a weight between two ranks; use -1: any use. */
static int ways(const struct plan *p, enum chan_kind kind, const struct state_row *r, int use, int from, int to)
{
    int n = 0;
    for (int i = 0; i < p->n_chan; i++) {
        const struct channel *h = &p->chan[i];
        bool same = h->kind == kind && h->param == r->param && (use < 0 || h->tensor == use);
        n += same && h->from.at[AXIS_PP] == from && h->to.at[AXIS_PP] == to;
    }
    return n;
}

static int ways_check(const struct ties *c, const struct state_row *r)
{
    for (int u = 0; u < c->p->sel->g->param[r->param].n_uses; u++) {
        int rank = rank_of_use(c, r->param, u);
        if (rank == r->owner) continue;
        if (ways(c->p, CHAN_PGRAD, r, u, rank, r->owner) != 1)
            return state_fail(c, r, rank, "no one way of its gradient to the owner");
        if (ways(c->p, CHAN_PARAM, r, -1, r->owner, rank) != 1)
            return state_fail(c, r, rank, "no one way from its owner");
    }
    return 0;
}

/* computes_last: the last action of a row that computes, on a stage or on any (-1). first_of: the first action of this
 * kind. */
static int computes_last(const struct plan *p, int rank, int stage)
{
    int last = -1;
    for (int i = 0; i < p->row_n[rank]; i++) {
        const struct act *a = &p->row[rank][i];
        bool computes = a->op == ACT_F || a->op == ACT_B || a->op == ACT_W || a->op == ACT_D || a->op == ACT_R ||
                        a->op == ACT_A;
        if (computes && (stage < 0 || a->stage == stage)) last = i;
    }
    return last;
}
static int first_of(const struct plan *p, int rank, enum act_op op)
{
    int i = 0;
    while (i < p->row_n[rank] && p->row[rank][i].op != op) i++;
    return i;
}

/* An abandoned step ends after its norms: no action before them may write state, and no gradient may come after
 * them. */
static int tail_check(const struct ties *c, int rank)
{
    const struct plan *p = c->p;
    int norm = first_of(p, rank, ACT_N), update = first_of(p, rank, ACT_O), of_norm = 0, of_update = 0;
    for (int i = 0; i < p->row_n[rank]; i++) {
        of_norm += p->row[rank][i].op == ACT_N;
        of_update += p->row[rank][i].op == ACT_O;
    }
    if (of_norm == 1 && of_update == 1 && computes_last(p, rank, -1) < norm && norm < update) return 0;
    return err_set(c->e, E_INTERNAL, "illegal plan: rank %d does not end with its norms, then its update, once", rank);
}

static int posts_check(const struct ties *c, int rank)
{
    const struct plan *p = c->p;
    int norm = first_of(p, rank, ACT_N), update = first_of(p, rank, ACT_O);
    for (int i = 0; i < p->row_n[rank]; i++) {
        const struct act *a = &p->row[rank][i];
        bool early = (a->op == ACT_SP && i < computes_last(p, rank, a->stage)) ||
                     ((a->op == ACT_SU || a->op == ACT_SW) && i < update) ||
                     ((a->op == ACT_RU || a->op == ACT_RW) && i < norm);
        bool sums = a->op == ACT_SG || a->op == ACT_RG || a->op == ACT_G || a->op == ACT_SM || a->op == ACT_RM ||
                    a->op == ACT_X;
        bool kept = a->op == ACT_SK || a->op == ACT_RK;
        early |= kept && i < computes_last(p, rank, -1);   /* check_dp.c checks when sums may be sent */
        bool late = (a->op == ACT_RP || sums || kept) && i > norm;
        char s[32];
        if (early || late)
            return err_set(c->e, E_INTERNAL, "illegal plan: rank %d, %s: too %s in the step", rank, act_text(p, a, s),
                           early ? "early" : "late");
        if (a->op == ACT_SP || a->op == ACT_SU) c->sent[a->chan]++;
        if (a->op == ACT_RP || a->op == ACT_RU) c->got[a->chan]++;
    }
    return 0;
}

static int ties_check(const struct ties *c)
{
    const struct plan *p = c->p;
    for (int i = 0; i < p->sel->g->n_params; i++)
        if (p->pl->state[i].tied && p->pl->state[i].trained && ways_check(c, &p->pl->state[i])) return -1;
    for (int rank = 0; rank < p->n_ranks; rank++) if (tail_check(c, rank) || posts_check(c, rank)) return -1;
    for (int i = 0; i < p->n_chan; i++) {
        const struct channel *h = &p->chan[i];
        if ((h->kind == CHAN_PGRAD || h->kind == CHAN_PARAM) && (c->sent[i] != 1 || c->got[i] != 1))
            return state_fail(c, &p->pl->state[h->param], h->from.at[AXIS_PP], "does not travel once a step");
    }
    return 0;
}

int check_state(const struct plan *p, const int *stage_of, struct err *e)
{
    struct ties c = {.p = p, .stage_of = stage_of, .e = e};
    int bad = 0;
    c.sent = mem_alloc(2 * (size_t)(p->n_chan + 1) * sizeof *c.sent);
    c.got = c.sent + p->n_chan;
    bad = writers_check(&c);
    for (int rank = 0; rank < p->n_ranks && !bad; rank++)
        bad = places_check(&c, rank) || grads_all_check(&c, rank) || fetches_check(&c, rank) ||
              file_check(&c, rank);
    bad = bad || slots_check(&c);
    if (!bad && p->req.mode == PLAN_TRAIN) bad = ties_check(&c);
    free(c.sent);
    return bad ? -1 : 0;
}
