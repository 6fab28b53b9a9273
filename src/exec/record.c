/* Runs an action's calls: replays the recording made before the first step if there is one, otherwise makes each
 * call. */
#include "exec/meter.h"

static int optimize(struct exec *s, struct bound *b, const struct act *a, struct err *e)
{
    return exec_optimize(s, b, e);
}
static int params_changed(struct exec *s, struct bound *b, const struct act *a, struct err *e)
{
    return exec_averages_copies(s, e) || exec_pack(s, true, e) ? -1 : 0;
}

/* The function for an action of the row; index = the row's length: the function after the row. NULL: no calls. */
static act_fn *calls_of(const struct exec *s, const struct bound *b, int index)
{
    const struct act *a = &b->p->row[s->rank][index];
    if (index == b->p->row_n[s->rank]) return params_changed;
    if (act_info[a->op].kind == KIND_SUM) return exec_sum;
    if (act_info[a->op].kind == KIND_REDUCE) return exec_norms;
    if (act_info[a->op].kind == KIND_OPTIMIZER) return optimize;
    return act_calls(b->p, a) ? prog_calls : NULL;
}

/* Replays a recording if there is one: its arguments are the same in every step. */
int calls_replay(struct exec *s, struct bound *b, int index, struct err *e)
{
    struct be_graph *graph = b->graph && !meter_marks_calls(s) ? b->graph[index] : NULL;
    if (graph) return s->ops->replay(s->be, graph, e);
    act_fn *calls = calls_of(s, b, index);
    return calls ? calls(s, b, &b->p->row[s->rank][index], e) : 0;
}

/* ---- before the first step ------------------------------------------------------------------- */

/* Of several micro-batches only the last may be smaller. */
static bool warms_alike(const struct bound *b, const struct act *x, const struct act *y)
{
    return x->op == y->op && x->stage == y->stage && x->flags == y->flags && x->n_mb == y->n_mb &&
           x->piece == y->piece &&
           b->size_of[x->mb + x->n_mb - 1] == b->size_of[y->mb + y->n_mb - 1];
}

/* Runs every kernel of a plan once, before the first step. Libraries load a kernel at its first use and wait for the
 * device then. In a step that device might itself be waiting for another rank's host. No reader sees the results: later
 * calls overwrite them. */
int exec_warm(struct exec *s, struct bound *b, struct err *e)
{
    const struct act *row = b->p->row[s->rank];
    for (int i = 0; i < b->p->row_n[s->rank]; i++) {
        const struct act *a = &row[i];
        if (act_info[a->op].kind != KIND_PROGRAM) continue;
        int k = 0;
        while (k < i && !warms_alike(b, &row[k], a)) k++;
        if (k == i && prog_calls(s, b, a, e)) return -1;
    }
    return exec_drain(s, e);
}

/* An error in between must not leave the stream recording. A run without graphs accepts calls that cannot be
 * recorded. */
static int record(struct exec *s, struct bound *b, int index, struct err *e)
{
    const struct act *a = &b->p->row[s->rank][index];
    act_fn *calls = calls_of(s, b, index);
    struct err why = {0};
    if (!calls) return 0;
    /* between the calls of such an update threads move what they use */
    const bool keeps = s->q.graphs && !(s->offload && calls == optimize);
    if (s->ops->capture_begin(s->be, e)) return -1;
    s->records = true;
    int bad = calls(s, b, a, &why);
    s->records = false;
    int ended = s->ops->capture_end(s->be, bad || !keeps ? NULL : &b->graph[index], &why);
    if ((!bad && !ended) || (ended > 0 && !s->q.graphs)) return 0;
    return err_set(e, why.code, "%s", why.text);
}

/* Before the first step: makes all that the calls need at their first use, in the backend and for each slot, so that
 * steps make nothing. A run without graphs does the same, but discards the recordings. */
int exec_record(struct exec *s, struct bound *b, struct err *e)
{
    int n = b->p->row_n[s->rank];
    bool packs = false;
    if (!b->graph) return 0;
    for (int i = 0; i < n; i++) {
        operands_place(b, &b->p->row[s->rank][i]);
        if (record(s, b, i, e)) return -1;
    }
    for (int g = 0; g < s->q.sel->n_groups; g++) packs |= exec_derives(s, g);
    packs |= s->n_copies > 0;
    return b->p->req.mode == PLAN_TRAIN && packs ? record(s, b, n, e) : 0;
}
