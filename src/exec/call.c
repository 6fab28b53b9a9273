/* Programs: makes a call for each kernel, from the places of its operands. */
#include <string.h>
#include "exec/meter.h"

/* For an action of one micro-batch. */
static void call_make(const struct exec *s, const struct bound *b, const struct kop *k, const struct act *a,
                      struct be_call *c)
{
    const struct group *g = &s->q.sel->group[k->group];
    int mb = a->mb;
    memset(c, 0, sizeof *c);
    c->n = b->p->mb_n[mb];
    c->block = s->block;
    c->sample = s->sample + b->p->mb_first[mb];
    for (int i = 0; i < g->n_in; i++) {
        c->in[i] = place_at(s, b, &k->in[i], mb);
        c->gin[i] = place_at(s, b, &k->gin[i], mb);
    }
    for (int i = 0; i < g->n_out; i++) {
        c->outs[i] = place_at(s, b, &k->outs[i], mb);
        c->gouts[i] = place_at(s, b, &k->gouts[i], mb);
    }
    c->saved = place_at(s, b, &k->saved, mb);
    c->gin_acc = k->gin_acc;
    for (int i = 0; i < g->n_param; i++) {
        c->param[i] = place_at(s, b, &k->param[i], mb);
        c->pgrad[i] = level_at(s, place_at(s, b, &k->pgrad[i], mb), a->level);
    }
    c->pgrad_acc = !(a->flags & ACT_FIRST);
    c->packed = place_at(s, b, &k->packed, mb);
    c->work = s->work.at;
}

static int kop_run(struct exec *s, struct bound *b, const struct kop *k, const struct act *a, struct err *e)
{
    struct be_kernel *kernel = b->kernel[(b->size_of[a->mb] * PH_COUNT + k->phase) * s->q.sel->n_groups + k->group];
    struct be_call c;
    call_make(s, b, k, a, &c);
    return meter_run(s, kernel, &c, e) ? err_where(e, "%s", s->g->node[s->q.sel->group[k->group].node[0]].name) : 0;
}

/* Computes norms of gradients that are final after this call (micro-batches come in order), while they are in a cache.
 * The time counts as the optimizer's. */
static int norms_early(struct exec *s, const struct kop *k, struct err *e)
{
    const struct group *g = &s->q.sel->group[k->group];
    uint32_t of = k->phase == PH_BWD_WEIGHTS ? g->pgrad_in_w : k->phase == PH_BWD_DATA ? g->pgrad_in_b : 0;
    if (!of) return 0;
    meter_host(s, ACC_OPTIMIZER);
    for (int i = 0; i < g->n_param; i++) {
        int p = g->param[i];
        if (!(of >> i & 1) || s->g->param[p].n_uses != 1) continue;
        if (s->ops->stream && !exec_norm_leaves(s, p)) continue;
        if (exec_norm(s, p, e)) return -1;
        s->has_norm[p] = true;
    }
    meter_host(s, ACC_TRANSFER);
    return 0;
}

/* One call of the program; then it drives the transport and receives messages. On a stream early norms would only be
 * more launches, except of gradients that leave the device. */
static int call_run(struct exec *s, struct bound *b, const struct kop *k, const struct act *a, struct err *e)
{
    if (exec_aborted(s, e) || meter_call_begin(s, k, a, e) || kop_run(s, b, k, a, e)) return -1;
    meter_call_end(s, k, a);
    beat_moves(s);
    bool last = a->mb == b->p->n_mb - 1 && b->p->n_levels == 1 && b->p->pl->mesh.size[AXIS_DP] == 1;
    if (last && norms_early(s, k, e)) return -1;
    /* also with nothing posted: here the rank receives another rank's failure */
    if (exec_progress(s, e)) return -1;
    if (meter_messages(s)) posts_poll(s);
    return 0;
}

int prog_calls(struct exec *s, struct bound *b, const struct act *a, struct err *e)
{
    const struct prog *g = act_prog(b->p, a);
    int first, end;
    act_groups(b->p, a, &first, &end);
    for (int i = 0; i < a->n_mb; i++) {
        const struct act one = act_one(a, i);
        for (int j = 0; j < g->n; j++) {
            const struct kop *k = &g->k[j];
            if (k->group >= first && k->group < end && call_run(s, b, k, &one, e)) return -1;
        }
    }
    meter_host(s, ACC_OTHER);
    return 0;
}
