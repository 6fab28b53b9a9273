/* Shared by the device transports. */
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "base/clock.h"
#include "base/deadline.h"
#include "transport/tp_device.h"

enum { POSTS = 1 << 16, REDUCE_PIECE = 512 };            /* a handle is link * POSTS + post; values in a piece */

int dev_check(const struct dev *d, struct err *e, const char *what, cudaError_t status)
{
    return status == cudaSuccess ? 0 : err_set(e, E_DEVICE, "rank %d: %s: %s", d->me, what, cudaGetErrorString(status));
}

const char *dev_link_text(const struct dev_link *k, char buf[DEV_LINK_TEXT])
{
    if (k->peer == TP_ALL) snprintf(buf, DEV_LINK_TEXT, "sum over %d replicas", k->members);
    else snprintf(buf, DEV_LINK_TEXT, "transfer %s rank %d", k->send ? "to" : "from", k->peer);
    return buf;
}

int dev_try(const struct dev *d, const struct dev_link *k, struct err *e, cudaError_t status)
{
    if (status == cudaSuccess) return 0;
    char text[DEV_LINK_TEXT];
    return err_set(e, E_DEVICE, "rank %d, %s: %s", d->me, dev_link_text(k, text), cudaGetErrorString(status));
}

int dev_reached(const struct dev *d, const struct dev_link *k, cudaEvent_t event, struct err *e)
{
    cudaError_t status = cudaEventQuery(event);
    if (status != cudaErrorNotReady) return dev_try(d, k, e, status) ? -1 : 1;
    /* no failure, but CUDA would return it from the next launch */
    cudaGetLastError();
    return 0;
}

/* ---- set-up ---------------------------------------------------------------------------------- */

void dev_open(struct dev *d, const struct tp_ops *ops, struct tp *inner)
{
    d->tp.ops = ops;
    d->inner = inner;
    d->me = inner->ops->rank(inner);
    d->size = inner->ops->size(inner);
}

static int link_attach(struct dev *d, struct dev_link *k, const struct tp_use *use, int priority, struct err *e)
{
    *k = (struct dev_link){.peer = use->peer, .member = use->member, .members = use->members, .send = use->send,
                           .bytes = use->bytes, .first = -1, .last = -1};
    if (use->posts >= POSTS) return err_set(e, E_INTERNAL, "rank %d: %d transfers on one link", d->me, use->posts);
    k->post = mem_alloc((size_t)use->posts * sizeof *k->post);
    k->n_posts = use->posts;
    if (dev_check(d, e, "opening a link", cudaStreamCreateWithPriority(&k->stream, cudaStreamNonBlocking, priority)))
        return -1;
    for (int i = 0; i < k->n_posts; i++) {
        struct dev_post *p = &k->post[i];
        if (dev_check(d, e, "opening a link", cudaEventCreateWithFlags(&p->ready, cudaEventDisableTiming)) ||
            dev_check(d, e, "opening a link", cudaEventCreateWithFlags(&p->end, cudaEventDisableTiming)))
            return -1;
    }
    return 0;
}

/* Transfers have priority over kernels that have not begun, because another rank waits for them. */
int dev_attach(struct dev *d, void *stream, const struct tp_use *use, int n, struct err *e)
{
    int least, greatest;
    d->stream = stream;
    d->link = mem_alloc((size_t)(n + 1) * sizeof *d->link);
    if (dev_check(d, e, "opening links", cudaDeviceGetStreamPriorityRange(&least, &greatest))) return -1;
    for (int i = 0; i < n; i++) if (link_attach(d, &d->link[d->n_links++], &use[i], greatest, e)) return -1;
    return 0;
}

void dev_settle(struct tp *t)
{
    struct err none = {0};
    uint64_t until = clock_ns() + DEADLINE_NS(DEADLINE_SETTLE);
    while (!dev_idle(t) && !t->ops->progress(t, &none) && clock_ns() < until) sched_yield();
}

void dev_close(struct dev *d)
{
    for (int i = 0; i < d->n_links; i++) {
        struct dev_link *k = &d->link[i];
        for (int j = 0; j < k->n_posts; j++) {
            if (k->post[j].ready) cudaEventDestroy(k->post[j].ready);
            if (k->post[j].end) cudaEventDestroy(k->post[j].end);
        }
        if (k->stream) cudaStreamDestroy(k->stream);
        free(k->post);
    }
    free(d->link);
    d->inner->ops->close(d->inner);
}

/* ---- posts ----------------------------------------------------------------------------------- */

struct dev_link *dev_link_of(struct dev *d, int peer, bool send, struct err *e)
{
    for (int i = 0; i < d->n_links; i++) if (d->link[i].peer == peer && d->link[i].send == send) return &d->link[i];
    return err_set(e, E_INTERNAL, "rank %d has no link %s rank %d", d->me, send ? "to" : "from", peer), NULL;
}

struct dev_post *dev_post_new(struct dev *d, struct dev_link *k, const struct tp_tag *tag, const void *buf,
                              struct tp_req *out, struct err *e)
{
    int i = 0;
    if (!k) return NULL;
    if (tag->bytes > k->bytes)
        return err_set(e, E_INTERNAL, "rank %d: a transfer of %zu bytes on a link for %zu", d->me, (size_t)tag->bytes,
                       k->bytes),
               NULL;
    while (i < k->n_posts && k->post[i].stage != DEV_FREE) i++;
    if (i == k->n_posts)
        return err_set(e, E_INTERNAL, "rank %d has more than %d open transfers on a link", d->me, k->n_posts), NULL;
    struct dev_post *p = &k->post[i];
    if (dev_check(d, e, k->send ? "sending" : "receiving", cudaEventRecord(p->ready, d->stream))) return NULL;
    *p = (struct dev_post){.tag = *tag,
                           .buf = (void *)(uintptr_t)buf,
                           .next = -1,
                           .inner.slot = -1,
                           .piece = -1,
                           .ready = p->ready,
                           .end = p->end,
                           .stage = DEV_OWN};
    if (k->first < 0) k->first = i;
    else k->post[k->last].next = i;
    k->last = i;
    out->slot = (int)(k - d->link) * POSTS + i;
    return p;
}

struct dev_post *dev_post_of(const struct dev *d, const struct tp_req *r, const struct dev_link **link)
{
    struct dev_link *k = &d->link[r->slot / POSTS];
    if (link) *link = k;
    return &k->post[r->slot % POSTS];
}

struct dev_post *dev_after(const struct dev_link *k, const struct dev_post *p)
{
    int i = p ? p->next : k->first;
    return i < 0 ? NULL : &k->post[i];
}

void dev_finish(struct dev_link *k)
{
    struct dev_post *p = &k->post[k->first];
    k->first = p->next;
    k->n_done++;
    p->stage = p->let_go ? DEV_FREE : DEV_DONE;
}

int dev_drive(struct dev *d, struct dev_link *k, const struct dev_steps *how, struct err *e)
{
    bool first = true;
    for (struct dev_post *p = dev_after(k, NULL), *next; p; p = next) {
        int stage;
        next = dev_after(k, p);
        do {
            stage = p->stage;
            if (how->step(d, k, p, first, e)) return -1;
        } while (p->stage != stage && p->stage >= DEV_OWN);
        first = first && how->gone(k, p);
    }
    return 0;
}

bool dev_free_done(struct dev_post *p, struct tp_req *r)
{
    if (p->stage != DEV_DONE) return false;
    p->stage = DEV_FREE;
    r->slot = -1;
    return true;
}

bool dev_idle(struct tp *t)
{
    const struct dev *d = dev_of(t);
    for (int i = 0; i < d->n_links; i++) if (d->link[i].first >= 0) return false;
    return true;
}

int dev_join(struct tp *t, struct tp_req *r, struct err *e)
{
    struct dev *d = dev_of(t);
    if (r->slot < 0) return 0;
    struct dev_post *p = dev_post_of(d, r, NULL);
    if (dev_check(d, e, "waiting for a transfer", cudaStreamWaitEvent(d->stream, p->end, 0))) return -1;
    p->let_go = true;
    r->slot = -1;
    return 0;
}

/* ---- entries that the inner transport serves ------------------------------------------------- */

static struct tp *inner(struct tp *t) { return dev_of(t)->inner; }
int dev_rank(struct tp *t) { return dev_of(t)->me; }
int dev_size(struct tp *t) { return dev_of(t)->size; }

int dev_send_msg(struct tp *t, int to, int stream, const void *p, size_t bytes, struct err *e)
{
    return inner(t)->ops->send_msg(inner(t), to, stream, p, bytes, e);
}

int dev_recv_msg(struct tp *t, struct tp_message *m, struct err *e) { return inner(t)->ops->recv_msg(inner(t), m, e); }

void dev_abort(struct tp *t, int code) { inner(t)->ops->abort(inner(t), code); }

/* ---- collectives: those of the inner transport would not drive transfers here ---------------- */

/* Receives exactly that many bytes, and drives transfers meanwhile. */
static int recv_all(struct dev *d, int from, void *p, size_t bytes, struct err *e)
{
    struct tp_message m = {from, TP_UNDER, p, bytes};
    int got;
    while ((got = dev_recv_msg(&d->tp, &m, e)) == 0) {
        if (d->tp.ops->progress(&d->tp, e)) return -1;
        sched_yield();
    }
    if (got < 0) return -1;
    if (m.n == bytes) return 0;
    return err_set(e, E_INTERNAL, "rank %d heard %zu bytes of rank %d instead of %zu", d->me, m.n, from, bytes);
}

/* Rank 0 adds the terms in rank order. */
static int reduce_piece(struct dev *d, double *x, int n, struct err *e)
{
    double term[REDUCE_PIECE];
    size_t bytes = (size_t)n * sizeof *x;
    if (d->me) return dev_send_msg(&d->tp, 0, TP_UNDER, x, bytes, e) || recv_all(d, 0, x, bytes, e) ? -1 : 0;
    for (int r = 1; r < d->size; r++) {
        if (recv_all(d, r, term, bytes, e)) return -1;
        for (int i = 0; i < n; i++) x[i] += term[i];
    }
    for (int r = 1; r < d->size; r++) if (dev_send_msg(&d->tp, r, TP_UNDER, x, bytes, e)) return -1;
    return 0;
}

/* In pieces, so that a step allocates nothing. */
int dev_reduce(struct tp *t, double *x, int n, struct err *e)
{
    for (int at = 0; at < n; at += REDUCE_PIECE)
        if (reduce_piece(dev_of(t), x + at, n - at < REDUCE_PIECE ? n - at : (int)REDUCE_PIECE, e)) return -1;
    return 0;
}

int dev_bcast(struct tp *t, void *p, size_t bytes, struct err *e)
{
    struct dev *d = dev_of(t);
    if (d->me) return recv_all(d, 0, p, bytes, e);
    for (int r = 1; r < d->size; r++) if (dev_send_msg(t, r, TP_UNDER, p, bytes, e)) return -1;
    return 0;
}
