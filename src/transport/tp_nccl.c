/* The nccl transport: tensors go from device to device by ncclSend and ncclRecv; a host transport carries headers, ids
 * and everything else.
 *
 * Each link (rank pair and direction) has a communicator of two ranks and its own stream. So each stream carries
 * messages one way, in order, and waits follow the flow of data. Both calls block their stream until they meet. A send
 * is issued at once, after the stream's position at the post; its header follows. The receive is issued when the header
 * has arrived. Otherwise a receive could spin on the device for long and block kernels that the sender needs through
 * other ranks. One thread makes all calls. Communicators do not block the host: a call keeps its link busy until
 * ncclCommGetAsyncError reports that it is complete. Only then the link records its end.
 *
 * A lost peer causes an asynchronous error, or no sign at all. So when a rank's stream has reached a transfer that does
 * not move, the rank asks the other end, again and again, whether its stream is there, too. If not, that rank is only
 * computing for long. If both are there, or if no answer comes, something must move within the transport's patience. A
 * failed rank aborts all its communicators a little later, which frees its streams.
 *
 * Sums along an axis of the mesh are a link, too. Its communicator has all members, and there are no headers, because
 * all of them send and receive at once. No rank asks whether the other streams have reached the sum: they may compute
 * for any time. Heartbeats find a rank that is not responding.
 *
 * Links connect in a handshake of all ranks. Ids are exchanged first. A failure on one rank ends all ranks with its
 * cause. */
#include <pthread.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "base/clock.h"
#include "base/deadline.h"
#include "transport/tp_nccl_int.h"

/* the tag of a header's own transfer; the receiver compares its content */
static const struct tp_tag header_tag = {.bytes = sizeof(struct tp_tag)};
static const uint64_t connect_ns = 60000000000u;
static const uint64_t abort_ns = DEADLINE_NS(DEADLINE_RELEASE), finish_ns = DEADLINE_NS(DEADLINE_RELEASE);
static const uint64_t told_ns = DEADLINE_NS(DEADLINE_TOLD), doubt_ns = DEADLINE_NS(DEADLINE_DOUBT);
/* away_ns: a longer gap between two calls does not count; poll_ns: how often peers are checked */
static const uint64_t away_ns = 1000000000, poll_ns = 10000000;
enum { ASKS = 8 };                                       /* questions within the patience */

/* ---- failing --------------------------------------------------------------------------------- */

/* The end of a failed transport. Aborting makes peers fail, too, so it waits until the cause has been sent, or until
 * close. Then no caller may be left to abort, and aborting may hang. So a thread does it, which is abandoned if it
 * takes too long. */
struct releasing {
    ncclComm_t *comm; int n;
    pthread_mutex_t lock; pthread_cond_t changed;
    /* now: do not wait; left: nobody waits for done, so the thread frees this */
    bool threaded, now, done, left;
};

static void releasing_free(struct releasing *a)
{
    pthread_mutex_destroy(&a->lock);
    pthread_cond_destroy(&a->changed);
    free(a->comm);
    free(a);
}

/* Waits until *word is set, at most ns. The caller holds the lock. */
static void word_wait(struct releasing *a, const bool *word, uint64_t ns)
{
    uint64_t until = clock_ns() + ns;
    for (uint64_t now; !*word && (now = clock_ns()) < until;) clock_cond_wait(&a->changed, &a->lock, until - now);
}

static void *release_main(void *arg)
{
    struct releasing *a = arg;
    pthread_mutex_lock(&a->lock);
    word_wait(a, &a->now, told_ns);
    pthread_mutex_unlock(&a->lock);
    for (int i = 0; i < a->n; i++) if (a->comm[i]) ncclCommAbort(a->comm[i]);
    pthread_mutex_lock(&a->lock);
    a->done = true;
    bool left = a->left;
    pthread_cond_broadcast(&a->changed);
    pthread_mutex_unlock(&a->lock);
    if (left) releasing_free(a);
    return NULL;
}

/* Begins the end after n->why: no communicator is used again, and every later call fails with that error. */
void nccl_fail(struct nccl *n)
{
    struct releasing *a = mem_alloc(sizeof *a);
    pthread_t thread;
    a->comm = n->comm;
    a->n = n->d.n_links;
    n->comm = NULL;
    pthread_mutex_init(&a->lock, NULL);
    clock_cond_init(&a->changed);
    n->releasing = a;
    a->threaded = pthread_create(&thread, NULL, release_main, a) == 0;
    if (a->threaded) pthread_detach(thread);
}

/* Lets the thread abort now: the cause has been sent, or no rank is left to receive it. Freeing memory waits for
 * streams, and so for this thread. */
void nccl_release_begin(struct releasing *a)
{
    pthread_mutex_lock(&a->lock);
    bool first = !a->now;
    a->now = true;
    pthread_cond_broadcast(&a->changed);
    pthread_mutex_unlock(&a->lock);
    if (first && !a->threaded) release_main(a);
}

static void release(struct nccl *n)
{
    struct releasing *a = n->releasing;
    nccl_release_begin(a);
    pthread_mutex_lock(&a->lock);
    word_wait(a, &a->done, abort_ns);
    bool done = a->done;
    a->left = !done;
    pthread_mutex_unlock(&a->lock);
    if (done) releasing_free(a);
}

/* NCCL only reports that CUDA failed; CUDA has the cause. */
int nccl_link_fail(struct nccl *n, const struct dev_link *k, ncclResult_t result, const char *what, struct err *e)
{
    cudaError_t lost = result == ncclUnhandledCudaError ? cudaStreamQuery(k->stream) : cudaSuccess;
    bool gone = lost != cudaSuccess && lost != cudaErrorNotReady;
    const char *more = gone ? cudaGetErrorString(lost) : ncclGetLastError(NULL);
    char advice[NCCL_ADVICE], text[DEV_LINK_TEXT];
    return err_set(e, E_DEVICE, "rank %d, %s: %s: %s%s%s%s", n->d.me, dev_link_text(k, text), what,
                   ncclGetErrorString(result), more && *more ? ": " : "", more ? more : "",
                   n->connecting && !gone ? nccl_env_advice(advice) : "");
}

/* ---- driving --------------------------------------------------------------------------------- */

/* Has NCCL completed its call? 1; 0: not yet; -1: e. */
int nccl_comm_poll(struct nccl *n, const struct dev_link *k, struct err *e)
{
    ncclResult_t state, asked = ncclCommGetAsyncError(n->comm[k - n->d.link], &state);
    if (asked != ncclSuccess) return nccl_link_fail(n, k, asked, "NCCL", e);
    if (state == ncclInProgress) return 0;
    n->remote |= state == ncclRemoteError;
    return state == ncclSuccess ? 1 : nccl_link_fail(n, k, state, "NCCL", e);
}

int nccl_issue(struct nccl *n, const struct dev_link *k, void *buf, size_t bytes, struct err *e)
{
    ncclComm_t comm = n->comm[k - n->d.link];
    int peer = k->send ? 1 : 0;                          /* the sender is rank 0 of the two */
    ncclResult_t r = k->peer == TP_ALL
                         ? ncclAllReduce(buf, buf, bytes / sizeof(float), ncclFloat32, ncclSum, comm, k->stream)
                     : k->send ? ncclSend(buf, bytes, ncclUint8, peer, comm, k->stream)
                               : ncclRecv(buf, bytes, ncclUint8, peer, comm, k->stream);
    const char *what = k->peer == TP_ALL ? "adding" : k->send ? "sending" : "receiving";
    if (r == ncclSuccess || r == ncclInProgress) return 0;
    /* an earlier failure is the cause */
    return nccl_comm_poll(n, k, e) < 0 ? -1 : nccl_link_fail(n, k, r, what, e);
}

/* An empty transfer is only its header. */
static int post_issue(struct nccl *n, const struct dev_link *k, struct dev_post *p, struct err *e)
{
    if (dev_try(&n->d, k, e, cudaStreamWaitEvent(k->stream, p->ready, 0))) return -1;
    if (p->tag.bytes && nccl_issue(n, k, p->buf, p->tag.bytes, e)) return -1;
    p->stage = ISSUED;
    return 0;
}

static int post_fly(struct nccl *n, const struct dev_link *k, struct dev_post *p, struct err *e)
{
    struct tp *u = n->d.inner;
    int through = p->tag.bytes ? nccl_comm_poll(n, k, e) : 1;
    if (through <= 0) return through;
    if (dev_try(&n->d, k, e, cudaEventRecord(p->end, k->stream))) return -1;
    bool tells = k->send && k->peer != TP_ALL;
    if (tells && u->ops->post_send(u, k->peer, &header_tag, &p->tag, &p->inner, e)) return -1;
    p->stage = FLYING;
    return 0;
}

/* Tests the header of a receive that has not been issued. 1: it is here. */
static int header_check(struct nccl *n, const struct dev_link *k, struct dev_post *p, struct err *e)
{
    struct tp *u = n->d.inner;
    if (p->announced) return 1;
    if (u->ops->test(u, &p->inner) != TP_DONE) return 0;
    if (tp_tag_check(n->d.me, k->peer, &p->tag, &p->came, e)) return -1;
    p->announced = true;
    return 1;
}

static int post_step(struct dev *d, struct dev_link *k, struct dev_post *p, bool first, struct err *e)
{
    struct nccl *n = (struct nccl *)d;
    struct tp *u = d->inner;
    int got;
    switch ((enum nccl_stage)p->stage) {
    case HELD:
        got = k->send ? 1 : header_check(n, k, p, e);
        if (got < 0) return -1;
        return got && first ? post_issue(n, k, p, e) : 0;
    case ISSUED:
        return post_fly(n, k, p, e);
    case FLYING:
        if (k->first != p - k->post || (got = dev_reached(&n->d, k, p->end, e)) == 0) return 0;
        if (got < 0) return -1;
        if (k->send && k->peer != TP_ALL && u->ops->test(u, &p->inner) != TP_DONE) return 0;
        n->moved = n->now;
        dev_finish(k);
        return 0;
    }
    return err_set(e, E_INTERNAL, "a transfer in stage %d", p->stage);
}

static bool has_gone(const struct dev_link *k, const struct dev_post *p)
{
    return p->stage == FLYING || p->stage < DEV_OWN;
}

static const struct dev_steps steps = {post_step, has_gone};

/* ---- watching peers -------------------------------------------------------------------------- */

/* Has this rank's stream reached that post of the link? 1; 0; -1: e. A receive that waits for its header has not: the
 * sender must come first. */
static int stream_there(struct nccl *n, const struct dev_link *k, uint64_t post, struct err *e)
{
    const struct dev_post *p = dev_after(k, NULL);
    if (k->n_done > post) return 1;
    return k->n_done == post && p && p->stage != HELD ? dev_reached(&n->d, k, p->ready, e) : 0;
}

static int word_say(struct nccl *n, int to, struct word *w, struct err *e)
{
    w->from = n->d.me;
    return dev_send_msg(&n->d.tp, to, TP_WATCH, w, sizeof *w, e);
}

static void watch_begin(const struct nccl *n, const struct dev_link *k)
{
    *(struct watch *)k->own = (struct watch){.post = k->n_done, .since = n->now};
}

static int word_take(struct nccl *n, struct word *w, struct err *e)
{
    const struct dev_link *k = dev_link_of(&n->d, w->from, !w->sends, e);
    if (!k) return -1;
    if (w->asks) {
        int there = stream_there(n, k, w->post, e);
        if (there < 0) return -1;
        struct word answer = {.sends = k->send, .there = there == 1, .post = w->post};
        return word_say(n, w->from, &answer, e);
    }
    struct watch *q = k->own;
    if (q->post == w->post && w->there) q->answered = true;
    else if (q->post == w->post) watch_begin(n, k);      /* the other rank still computes */
    return 0;
}

static int link_watch(struct nccl *n, const struct dev_link *k, struct err *e)
{
    const struct dev_post *p = dev_after(k, NULL);
    struct watch *q = k->own;
    if (k->peer == TP_ALL) return 0;
    if (!p || p->stage == HELD || q->post != k->n_done || q->since < n->moved) return watch_begin(n, k), 0;
    uint64_t quiet = n->now - q->since;
    if (quiet * ASKS < (q->asked + 1) * n->q.patience_ns) return 0;
    int there = stream_there(n, k, q->post, e);
    if (there <= 0) return watch_begin(n, k), there;
    if (quiet >= n->q.patience_ns)
        return err_set(e, E_DEVICE, "rank %d: no progress on the link %s rank %d for %.0f s, %s", n->d.me,
                       k->send ? "to" : "from", k->peer, (double)n->q.patience_ns * 1e-9,
                       q->answered ? "although both ends reached the transfer" : "and that rank is not responding");
    q->asked++;
    struct word ask = {.asks = 1, .sends = k->send, .post = q->post};
    return word_say(n, k->peer, &ask, e);
}

/* Only time in which this rank calls progress counts, so a stopped job loses no peer. */
static int peers_poll(struct nccl *n, struct err *e)
{
    struct word w;
    struct tp_message m = {-1, TP_WATCH, &w, sizeof w};
    int got = 0;
    uint64_t clock = clock_ns(), gap = n->polled ? clock - n->polled : 0;
    n->polled = clock;
    n->now += gap < away_ns ? gap : 0;
    if (n->now - n->peers_polled < poll_ns) return 0;
    n->peers_polled = n->now;
    while ((got = dev_recv_msg(&n->d.tp, &m, e)) > 0) {
        if (m.n != sizeof w)
            return err_set(e, E_INTERNAL, "rank %d heard %zu bytes about a link instead of %zu", n->d.me, m.n,
                           sizeof w);
        if (word_take(n, &w, e)) return -1;
    }
    for (int i = 0; i < n->d.n_links && !got; i++) if (link_watch(n, &n->d.link[i], e)) got = -1;
    return got;
}

static int drive(struct nccl *n, struct err *e)
{
    struct dev *d = &n->d;
    if (d->inner->ops->progress(d->inner, e)) return -1;
    for (int i = 0; i < d->n_links; i++) {
        struct dev_link *k = &d->link[i];
        if (k->first >= 0 && (nccl_comm_poll(n, k, e) < 0 || dev_drive(d, k, &steps, e))) return -1;
    }
    return peers_poll(n, e);
}

/* A failed transport still drives small messages, because one may bring the cause. If it only lost a peer, the failure
 * does not count for doubt_ns, in which that peer may send the cause. */
static int nccl_progress(struct tp *t, struct err *e)
{
    struct nccl *n = nccl_of(t);
    struct err below = {0};
    if (n->why.code) n->d.inner->ops->progress(n->d.inner, &below);
    else if (drive(n, &n->why) == 0) return 0;
    else if (n->remote) n->doubted = clock_ns();
    if (n->doubted && !n->releasing) {
        if (below.code) n->why = below;
        else if (clock_ns() - n->doubted < doubt_ns) return 0;
    }
    if (!n->releasing) nccl_fail(n);
    return err_set(e, n->why.code, "%s", n->why.text);
}

/* ---- posts ----------------------------------------------------------------------------------- */

static int nccl_post_send(struct tp *t, int to, const struct tp_tag *tag, const void *buf, struct tp_req *out,
                          struct err *e)
{
    struct dev *d = dev_of(t);
    return dev_post_new(d, dev_link_of(d, to, true, e), tag, buf, out, e) ? nccl_progress(t, e) : -1;
}

static int nccl_post_recv(struct tp *t, int from, const struct tp_tag *tag, void *buf, struct tp_req *out,
                          struct err *e)
{
    struct dev *d = dev_of(t);
    struct tp *u = d->inner;
    struct dev_post *p = dev_post_new(d, dev_link_of(d, from, false, e), tag, buf, out, e);
    return p ? u->ops->post_recv(u, from, &header_tag, &p->came, &p->inner, e) : -1;
}

static int nccl_post_sum(struct tp *t, const struct tp_tag *tag, void *buf, struct tp_req *out, struct err *e)
{
    struct dev *d = dev_of(t);
    return dev_post_new(d, dev_link_of(d, TP_ALL, true, e), tag, buf, out, e) ? nccl_progress(t, e) : -1;
}

static enum tp_state nccl_test(struct tp *t, struct tp_req *r)
{
    if (r->slot < 0) return TP_DONE;
    struct dev_post *p = dev_post_of(dev_of(t), r, NULL);
    if (dev_free_done(p, r)) return TP_DONE;
    if (p->stage == FLYING) return TP_QUEUED;
    return p->announced ? TP_ANNOUNCED : TP_WAITING;
}

/* ---- closing --------------------------------------------------------------------------------- */

/* Ends a communicator together with the other end, for which it does not wait long. */
static int comm_finish(struct nccl *n, int i)
{
    uint64_t until = clock_ns() + finish_ns;
    struct err none = {0};
    int through = 0;
    ncclResult_t r = ncclCommFinalize(n->comm[i]);
    if (r != ncclSuccess && r != ncclInProgress) return -1;
    while ((through = nccl_comm_poll(n, &n->d.link[i], &none)) == 0 && clock_ns() < until) sched_yield();
    if (through <= 0) return -1;
    ncclCommDestroy(n->comm[i]);
    n->comm[i] = NULL;
    return 0;
}

static void nccl_close(struct tp *t)
{
    struct nccl *n = nccl_of(t);
    dev_settle(t);
    bool clean = !n->releasing && dev_idle(t);
    for (int i = 0; i < n->d.n_links && clean; i++) if (n->comm[i] && comm_finish(n, i)) clean = false;
    if (!clean && !n->releasing) nccl_fail(n);
    if (!clean) release(n);
    /* only now: freeing waits for all streams, and one might wait for a peer */
    if (n->hello) cudaFree(n->hello);
    if (n->heard) cudaFreeHost(n->heard);
    for (int i = 0; i < n->d.n_links; i++) free(n->d.link[i].own);
    nccl_log_end(&n->log);
    free(n->comm);
    free(n->via);
    free(n->gpu);
    free(n->host);
    dev_close(&n->d);
    free(n);
}

static int nccl_over(struct tp *inner, const struct tp_request *q, struct tp **out, struct err *e)
{
    struct nccl *n = mem_alloc(sizeof *n);
    (void)e;
    dev_open(&n->d, &tp_nccl, inner);
    n->q = *q;
    n->log.fd = -1;
    if (!n->q.connect_ns) n->q.connect_ns = connect_ns;
    size_t bytes = (size_t)n->d.size * sizeof(int);
    n->q.seats.gpu = memcpy(n->gpu = mem_alloc(bytes), q->seats.gpu, bytes);
    n->q.seats.host = memcpy(n->host = mem_alloc(bytes), q->seats.host, bytes);
    *out = &n->d.tp;
    return 0;
}

static bool nccl_link_via(struct tp *t, int i, int *to, const char **via)
{
    const struct nccl *n = nccl_of(t);
    for (int at = 0; at < n->d.n_links; at++) {
        if (!n->d.link[at].send || n->d.link[at].peer == TP_ALL || i--) continue;
        *to = n->d.link[at].peer;
        *via = n->via[at];
        return true;
    }
    return false;
}

const struct tp_ops tp_nccl = {
    .name = "nccl",
    .text = "tensors from GPU to GPU by NCCL",
    .over = nccl_over,
    .library = nccl_library,
    .rank = dev_rank,
    .size = dev_size,
    .post_send = nccl_post_send,
    .post_recv = nccl_post_recv,
    .post_sum = nccl_post_sum,
    .progress = nccl_progress,
    .test = nccl_test,
    .reduce = dev_reduce,
    .bcast = dev_bcast,
    .send_msg = dev_send_msg,
    .recv_msg = dev_recv_msg,
    .attach = nccl_attach,
    .join = dev_join,
    .idle = dev_idle,
    .via = nccl_link_via,
    .abort = dev_abort,
    .close = nccl_close,
};
