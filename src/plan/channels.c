/* Which tensors cross which borders. A tensor travels from its producer through the stages that read it; its gradient
 * travels the same way back. Within a rank the tensor stays in place. Channels connect ranks; homes are places within a
 * rank. */
#include <stdlib.h>
#include "plan/plan_int.h"

static int rank_of(const struct lower *w, int stage) { return w->p->stage[stage].rank; }
static struct mesh_coord coord_of(const struct lower *w, int stage)
{
    return (struct mesh_coord){{[AXIS_PP] = rank_of(w, stage), [AXIS_DP] = w->p->req.dp}};
}

/* Distinct stages whose groups read t from outside, ascending. Returns their number. */
static int reader_stages(const struct lower *w, int t, int *stage)
{
    const struct tensor *x = &w->g->tensor[t];
    int n = 0;
    for (int i = 0; i < x->n_readers; i++) {
        int g = w->p->sel->group_of[x->reader[i]], s = w->stage_of_group[g], at = n;
        if (!group_reads(&w->p->sel->group[g], t)) continue;
        while (at > 0 && stage[at - 1] > s) at--;
        if (at > 0 && stage[at - 1] == s) continue;
        for (int k = n++; k > at; k--) stage[k] = stage[k - 1];
        stage[at] = s;
    }
    return n;
}

static struct channel *channel_add(struct lower *w, enum chan_kind kind, int tensor, int from, int to)
{
    struct channel *c = vec_push(&w->chan);
    *c = (struct channel){.kind = kind, .tensor = tensor, .param = -1, .axis = AXIS_PP, .from_stage = from,
                          .to_stage = to, .from = coord_of(w, from), .to = coord_of(w, to)};
    if (kind == CHAN_ACT || kind == CHAN_GRAD) c->bytes_per_sample = select_sample_bytes(w->p->sel, tensor);
    return c;
}

static void tied_channel(struct lower *w, const struct state_row *r, int use, int from, int to)
{
    struct channel *c = channel_add(w, use < 0 ? CHAN_PARAM : CHAN_PGRAD, use < 0 ? 0 : use, from, to);
    c->param = r->param;
    c->bytes_per_sample = r->bytes;
}

/* A trained tied weight: the accumulated gradients of a stage's uses travel to the owner. The weight comes back to the
 * first stage of each rank that uses it. */
static void tied_channels(struct lower *w, const struct state_row *r, int stage)
{
    const int *at = w->p->pl->use_stage + w->p->pl->use_first[r->param];
    int n = w->g->param[r->param].n_uses, used = 0;
    bool first = true;
    if (!r->trained || rank_of(w, at[0]) == rank_of(w, stage)) return;
    for (int u = 0; u < n; u++) {
        first &= at[u] >= stage || rank_of(w, at[u]) != rank_of(w, stage);
        if (at[u] != stage) continue;
        tied_channel(w, r, u, stage, at[0]);
        used++;
    }
    if (used && first) tied_channel(w, r, -1, at[0], stage);
}

static void pgrad_channels(struct lower *w)
{
    for (int s = 0; s < w->p->n_stages; s++)
        for (int i = 0; i < w->g->n_params; i++) tied_channels(w, &w->p->pl->state[i], s);
}

/* The first of n stages that is on the rank of s; -1: none. */
static int first_here(const struct lower *w, const int *stage, int n, int s)
{
    for (int i = 0; i < n; i++) if (rank_of(w, stage[i]) == rank_of(w, s)) return stage[i];
    return -1;
}

/* Does the stage have a gradient for t, which it reads? Not if only scores read t there. */
static bool stage_grades(const struct lower *w, int t, int stage)
{
    const struct tensor *x = &w->g->tensor[t];
    for (int i = 0; i < x->n_readers && tensor_graded(w, t); i++) {
        int g = w->p->sel->group_of[x->reader[i]];
        const struct group *k = &w->p->sel->group[g];
        for (int j = 0; j < k->n_in && w->stage_of_group[g] == stage; j++)
            if (k->in[j] == t && (k->grad_in >> j & 1)) return true;
    }
    return false;
}

/* way: the stage that makes t, then the stages that read it from there, ascending. The gradient comes back through the
 * stages that have one for t. */
static void tensor_travels(struct lower *w, int t, const int *way, int n)
{
    for (int i = 1, back = way[0]; i < n; i++) {
        int here = first_here(w, way, i, way[i]);
        *home_of(w, HOME_ACT, t, way[i]) = here;
        if (here < 0) channel_add(w, CHAN_ACT, t, way[i - 1], way[i]);
        if (!stage_grades(w, t, way[i])) continue;
        if (rank_of(w, back) != rank_of(w, way[i])) channel_add(w, CHAN_GRAD, t, way[i], back);
        back = way[i];
    }
    for (int i = n - 1, next = -1; i >= 0; i--) {
        if (i && !stage_grades(w, t, way[i])) continue;
        int home = next < 0 ? -1 : *home_of(w, HOME_GRAD, t, next);
        if (next >= 0 && rank_of(w, next) == rank_of(w, way[i]))
            *home_of(w, HOME_GRAD, t, way[i]) = home < 0 ? next : home;
        next = way[i];
    }
}

/* Sets the stage that loads for each stage. stage: scratch memory. */
static void loads_find(struct lower *w, int *stage)
{
    const struct stage_map *m = &w->p->pl->map;
    bool *reads = mem_alloc((size_t)w->p->n_stages);
    for (int t = 0; t < w->g->n_tensors; t++)
        for (int i = group_making(w, t) < 0 ? reader_stages(w, t, stage) : 0; i > 0;) reads[stage[--i]] = true;
    for (int s = 0; s < w->p->n_stages; s++) {
        int k = 0, r = rank_of(w, s);
        while (!reads[m->stages_of[r][k]] && m->stages_of[r][k] != s) k++;
        w->p->stage[s].load_stage = reads[s] ? m->stages_of[r][k] : -1;
    }
    for (int t = 0; t < w->g->n_tensors; t++)
        for (int i = group_making(w, t) < 0 ? reader_stages(w, t, stage) : 0; i-- > 0;) {
            int from = w->p->stage[stage[i]].load_stage;
            *home_of(w, HOME_ACT, t, stage[i]) = from == stage[i] ? -1 : from;
        }
    free(reads);
}

void lower_channels(struct lower *w)
{
    int *stage = mem_alloc((size_t)(w->p->n_stages + 2) * sizeof *stage);
    loads_find(w, stage);
    for (int t = 0; t < w->g->n_tensors; t++) {
        int maker = group_making(w, t), n = maker < 0 ? 0 : reader_stages(w, t, stage + 1);
        w->chan_at[t] = w->chan.n;
        if (!n) continue;
        stage[0] = w->stage_of_group[maker];
        bool own = stage[1] == stage[0];                 /* the maker reads t itself */
        tensor_travels(w, t, stage + own, n + 1 - own);
    }
    w->chan_at[w->g->n_tensors] = w->chan.n;
    if (w->p->req.mode == PLAN_TRAIN) pgrad_channels(w);
    free(stage);
}
