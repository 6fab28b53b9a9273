/* Posting: buffers and headers of messages, and the list of pending posts. */
#include "exec/meter.h"

static void *channel_buffer(const struct exec *s, const struct bound *b, const struct act *a, const struct channel *c)
{
    if (c->kind == CHAN_PGRAD) return use_at(s, c->param, c->tensor);
    if (c->kind == CHAN_PARAM) return state_at(s, &s->q.pl->state[c->param]);
    bool send = act_info[a->op].kind == KIND_SEND;
    if (c->kind == CHAN_SUM) return level_at(s, s->grad.at + c->off, send ? 0 : 1);
    if (c->kind == CHAN_WEIGHT) return s->param.at + c->off;
    if (c->kind == CHAN_SUMMED || c->kind == CHAN_ALL) return s->grad.at + c->off;
    if (c->kind == CHAN_KEPT)
        return s->slots.at + (send ? b->p->cls[c->tensor].base : b->p->cls[c->tensor].copy[c->from.at[AXIS_DP]]);
    const struct stage_plan *st = &b->p->stage[a->stage];
    return place_at(s, b, c->kind == CHAN_ACT ? &st->act_place[c->tensor] : &st->grad_place[c->tensor], a->mb);
}

/* Without micro-batches there are no gradients; the memory holds those of the step before, so it is set to zero. */
static int nothing_make(struct exec *s, void *at, size_t bytes, struct err *e)
{
    for (size_t done = 0, n; done < bytes; done += n) {
        n = bytes - done < sizeof s->nothing ? bytes - done : sizeof s->nothing;
        if (s->ops->copy(s->be, (char *)at + done, s->nothing, n, e)) return -1;
    }
    return 0;
}

/* Reads gradients that are added here in place, if possible; receives everything else into its own place. */
static int receive(struct exec *s, struct bound *b, const struct act *a, const struct tp_tag *tag, void *at,
                   struct pending *p, struct err *e)
{
    const struct channel *c = &b->p->chan[a->chan];
    int from = tp_rank_of(s, c->from);
    bool borrows = c->kind == CHAN_SUM && s->q.conf->pipeline.read_in_place && !s->ops->stream;
    if (!borrows) return s->tp->ops->post_recv(s->tp, from, tag, at, &p->req, e);
    p->lent = &b->lent[a->chan];
    return s->tp->ops->post_get(s->tp, from, tag, at, &p->req, e);
}

int exec_post(struct exec *s, struct bound *b, const struct act *a, struct err *e)
{
    const struct channel *c = &b->p->chan[a->chan];
    const struct act_info *info = &act_info[a->op];
    bool send = info->kind != KIND_RECV;
    size_t bytes = act_bytes(b->p, a);
    void *at = channel_buffer(s, b, a, c);
    if (!at) return err_set(e, E_INTERNAL, "channel %d has no buffer here", a->chan);
    struct tp_tag tag = {.step = s->step, .plan = (uint32_t)b->index, .mb = a->mb, .chan = (uint32_t)a->chan,
                         .samples = (uint16_t)(info->has_mb ? b->p->mb_n[a->mb] : 0), .bytes = bytes};
    struct pending *p = &s->pending[s->n_pending++];
    const struct opnd *od = a->n_opnd ? &b->p->opnd[a->opnd] : NULL;
    *p = (struct pending){.send = send, .cls = od ? (int16_t)od->cls : -3, .slot = od ? od->slot : 0, .info = info,
                         .bucket = c->bucket, .bytes = bytes,
                         .from = (int16_t)mesh_rank(&b->p->pl->mesh, c->from), .act = act_index(s, b, a),
                         .peer = info->kind == KIND_ALL ? EXEC_WAITS_DEVICE : tp_rank_of(s, send ? c->to : c->from)};
    p->posted = meter_host(s, info->part);
    if (info->kind == KIND_ALL) {
        if (!s->tp->ops->post_sum) return err_set(e, E_INTERNAL, "this transport makes no sums");
        int bad = (!b->p->n_mb && nothing_make(s, at, bytes, e)) || s->tp->ops->post_sum(s->tp, &tag, at, &p->req, e);
        meter_host(s, ACC_OTHER);
        return bad ? -1 : 0;
    }
    int bad = send ? s->tp->ops->post_send(s->tp, tp_rank_of(s, c->to), &tag, at, &p->req, e)
                   : receive(s, b, a, &tag, at, p, e);
    meter_host(s, ACC_OTHER);
    return bad;
}
