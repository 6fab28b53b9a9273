/* The staged transport: tensors of a device go through pinned host memory and a host transport. It needs devices only
 * for copies, so it works wherever the host transport works. The nccl transport is compared with it.
 *
 * A send: when the computing stream reaches the post, the link's stream copies to a piece of pinned memory. When the
 * copy is done, the host transport sends the piece. The device's memory is free after the copy, the piece after the
 * send. A receive: the host transport receives into a piece at once. When the message is there, the link's stream waits
 * until the computing stream has reached the post, and copies the piece to the device.
 *
 * A link has a few pieces, each for its largest post. A post that finds no free piece waits for an earlier post of the
 * link. plan_check allows for that, because it simulates sends that end only when their receiver has posted. */
#include <stdlib.h>
#include <string.h>
#include "base/text.h"
#include "transport/tp_device.h"

enum { PIECES = 4 };
/* HELD: it has no piece yet. DOWN: it is copied to its piece. SENT: the host transport sends it. POSTED: the host
 * transport receives it. UP: it is copied to the device. */
enum staged_stage { HELD = DEV_OWN, DOWN, SENT, POSTED, UP };
struct pieces { int n; bool used[PIECES]; char *at[PIECES]; };

static int piece_take(struct pieces *q)
{
    for (int i = 0; i < q->n; i++)
        if (!q->used[i]) {
            q->used[i] = true;
            return i;
        }
    return -1;
}

/* ---- driving --------------------------------------------------------------------------------- */

/* Copies between the post's piece and the device on the link's stream, after the computing stream has reached the post,
 * and records the end. */
static int copy_queue(const struct dev *d, const struct dev_link *k, struct dev_post *p, struct err *e)
{
    char *piece = ((struct pieces *)k->own)->at[p->piece];
    void *to = k->send ? piece : p->buf, *from = k->send ? p->buf : piece;
    enum cudaMemcpyKind kind = k->send ? cudaMemcpyDeviceToHost : cudaMemcpyHostToDevice;
    if (dev_try(d, k, e, cudaStreamWaitEvent(k->stream, p->ready, 0))) return -1;
    if (p->tag.bytes && dev_try(d, k, e, cudaMemcpyAsync(to, from, p->tag.bytes, kind, k->stream))) return -1;
    return dev_try(d, k, e, cudaEventRecord(p->end, k->stream));
}

static int send_step(struct dev *d, struct dev_link *k, struct dev_post *p, bool first, struct err *e)
{
    struct pieces *q = k->own;
    int got;
    switch ((enum staged_stage)p->stage) {
    case HELD:
        if ((p->piece = piece_take(q)) < 0) return 0;
        if (copy_queue(d, k, p, e)) return -1;
        p->stage = DOWN;
        return 0;
    case DOWN:
        if (!first || (got = dev_reached(d, k, p->end, e)) == 0) return 0;
        if (got < 0 || d->inner->ops->post_send(d->inner, k->peer, &p->tag, q->at[p->piece], &p->inner, e)) return -1;
        p->stage = SENT;
        return 0;
    case SENT:
        if (k->first != p - k->post || d->inner->ops->test(d->inner, &p->inner) != TP_DONE) return 0;
        q->used[p->piece] = false;
        dev_finish(k);
        return 0;
    case POSTED: case UP: break;
    }
    return err_set(e, E_INTERNAL, "a send in stage %d", p->stage);
}

static int recv_step(struct dev *d, struct dev_link *k, struct dev_post *p, bool first, struct err *e)
{
    struct pieces *q = k->own;
    enum tp_state state;
    int got;
    switch ((enum staged_stage)p->stage) {
    case HELD:
        if (!first || (p->piece = piece_take(q)) < 0) return 0;
        if (d->inner->ops->post_recv(d->inner, k->peer, &p->tag, q->at[p->piece], &p->inner, e)) return -1;
        p->stage = POSTED;
        return 0;
    case POSTED:
        state = d->inner->ops->test(d->inner, &p->inner);
        p->announced = state != TP_WAITING;
        if (state != TP_DONE) return 0;
        p->damaged = p->inner.damaged;
        if (copy_queue(d, k, p, e)) return -1;
        p->stage = UP;
        return 0;
    case UP:
        if (k->first != p - k->post || (got = dev_reached(d, k, p->end, e)) == 0) return 0;
        if (got < 0) return -1;
        q->used[p->piece] = false;
        dev_finish(k);
        return 0;
    case DOWN: case SENT: break;
    }
    return err_set(e, E_INTERNAL, "a receive in stage %d", p->stage);
}

/* Is the post with the host transport? Sends go there in the order of posts, and so do receives. */
static bool has_gone(const struct dev_link *k, const struct dev_post *p)
{
    return k->send ? p->stage != HELD && p->stage != DOWN : p->stage != HELD;
}

static int post_step(struct dev *d, struct dev_link *k, struct dev_post *p, bool first, struct err *e)
{
    return k->send ? send_step(d, k, p, first, e) : recv_step(d, k, p, first, e);
}

static const struct dev_steps steps = {post_step, has_gone};

static int staged_progress(struct tp *t, struct err *e)
{
    struct dev *d = dev_of(t);
    if (d->inner->ops->progress(d->inner, e)) return -1;
    for (int i = 0; i < d->n_links; i++) if (d->link[i].first >= 0 && dev_drive(d, &d->link[i], &steps, e)) return -1;
    return 0;
}

/* ---- posts ----------------------------------------------------------------------------------- */

static int staged_post(struct dev *d, struct dev_link *k, const struct tp_tag *tag, const void *buf, struct tp_req *out,
                       struct err *e)
{
    return dev_post_new(d, k, tag, buf, out, e) ? dev_drive(d, k, &steps, e) : -1;
}

static int staged_post_send(struct tp *t, int to, const struct tp_tag *tag, const void *buf, struct tp_req *out,
                            struct err *e)
{
    return staged_post(dev_of(t), dev_link_of(dev_of(t), to, true, e), tag, buf, out, e);
}

static int staged_post_recv(struct tp *t, int from, const struct tp_tag *tag, void *buf, struct tp_req *out,
                            struct err *e)
{
    return staged_post(dev_of(t), dev_link_of(dev_of(t), from, false, e), tag, buf, out, e);
}

static enum tp_state staged_test(struct tp *t, struct tp_req *r)
{
    if (r->slot < 0) return TP_DONE;
    struct dev_post *p = dev_post_of(dev_of(t), r, NULL);
    r->damaged = p->damaged;
    if (dev_free_done(p, r)) return TP_DONE;
    if (p->stage == HELD || p->stage == POSTED) return p->announced ? TP_ANNOUNCED : TP_WAITING;
    return TP_QUEUED;
}

/* ---- opening and closing --------------------------------------------------------------------- */

static int staged_attach(struct tp *t, void *stream, const struct tp_use *use, int n, struct err *e)
{
    struct dev *d = dev_of(t);
    if (dev_attach(d, stream, use, n, e)) return -1;
    for (int i = 0; i < d->n_links; i++) {
        struct dev_link *k = &d->link[i];
        struct pieces *q = k->own = mem_alloc(sizeof *q);
        int wanted = k->n_posts < PIECES ? k->n_posts : PIECES;
        char text[32];
        for (; q->n < wanted; q->n++)
            if (cudaMallocHost((void **)&q->at[q->n], k->bytes + 1) != cudaSuccess)
                return err_set(e, E_DEVICE, "rank %d: no %s of pinned memory for transfers", d->me,
                               text_bytes(k->bytes, text));
    }
    return 0;
}

static void staged_close(struct tp *t)
{
    struct dev *d = dev_of(t);
    dev_settle(t);
    for (int i = 0; i < d->n_links; i++) {
        struct pieces *q = d->link[i].own;
        for (int j = 0; q && j < q->n; j++) cudaFreeHost(q->at[j]);
        free(q);
    }
    dev_close(d);
    free(d);
}

static int staged_over(struct tp *inner, const struct tp_request *q, struct tp **out, struct err *e)
{
    struct dev *d = mem_alloc(sizeof *d);
    (void)e;
    dev_open(d, &tp_staged, inner);
    *out = &d->tp;
    return 0;
}

const struct tp_ops tp_staged = {
    .name = "staged",
    .text = "tensors of GPUs by way of pinned host memory and MPI",
    .over = staged_over,
    .rank = dev_rank,
    .size = dev_size,
    .post_send = staged_post_send,
    .post_recv = staged_post_recv,
    .progress = staged_progress,
    .test = staged_test,
    .reduce = dev_reduce,
    .bcast = dev_bcast,
    .send_msg = dev_send_msg,
    .recv_msg = dev_recv_msg,
    .attach = staged_attach,
    .join = dev_join,
    .idle = dev_idle,
    .abort = dev_abort,
    .close = staged_close,
};
