/* The nccl transport: tensors go from device to device by ncclSend and ncclRecv; a host transport carries headers, ids and everything else.
 *
 * Each link (rank pair and direction) has a communicator of two ranks and a stream of its own, so that each carries messages one way, in order, and waits
 * follow the flow of data. Both calls block their stream until they meet. A send is issued at once, behind the lane's place at the post; its header
 * follows, and the receive is issued when the header has come: a receive that spins on the device for long could keep kernels from starting that the
 * sender, by way of other ranks, waits for. One thread makes all calls; communicators do not block the host, so a call that is not through yet keeps its
 * link busy until ncclCommGetAsyncError says so, and only then its end is recorded.
 *
 * A peer that is lost shows as an asynchronous error, or not at all; so something must move within the transport's patience once both ends have
 * posted. What fails aborts all communicators of this rank in the end, so that its streams come free. */
#include <errno.h>
#include <nccl.h>
#include <pthread.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include "base/clock.h"
#include "transport/tp_device.h"

/* HELD: its turn has not come, or its header. ISSUED: NCCL takes it. FLYING: it is on its stream, and so is its end. */
enum stage { HELD = DEV_OWN, ISSUED, FLYING };
enum { CTAS = 4, CTAS_SHARED = 2, HELLO_BYTES = 64 };
static const struct tp_tag header_tag = {.bytes = sizeof(struct tp_tag)};  /* of a header's own transfer: what is compared is what it holds */
static const uint64_t set_up_ns = 60000000000u, abort_ns = 5000000000u, finish_ns = 5000000000u, told_ns = 500000000;

struct nccl {
    struct dev d;
    bool shared, aborted;
    uint64_t failed_at;                                  /* clock_ns of the first failure, 0: none */
    uint64_t patience_ns, moved;                         /* when a transfer last came to its end */
    struct err why;                                      /* of the first failure */
    ncclComm_t *comm;                                    /* of each link */
    void *hello, *heard;                                 /* the first message of a link: on the device, on the host */
};

static struct nccl *nccl_of(struct tp *t) { return (struct nccl *)t; }

/* ---- failing ------------------------------------------------------------------------------------------------------------------------------- */

struct aborting { ncclComm_t *comm; int n; pthread_mutex_t lock; pthread_cond_t changed; bool done, left; };

static void aborting_free(struct aborting *a)
{
    pthread_mutex_destroy(&a->lock);
    pthread_cond_destroy(&a->changed);
    free(a->comm);
    free(a);
}

static void *abort_main(void *arg)
{
    struct aborting *a = arg;
    for (int i = 0; i < a->n; i++) if (a->comm[i]) ncclCommAbort(a->comm[i]);
    pthread_mutex_lock(&a->lock);
    a->done = true;
    bool left = a->left;
    pthread_cond_signal(&a->changed);
    pthread_mutex_unlock(&a->lock);
    if (left) aborting_free(a);
    return NULL;
}

/* Aborting may hang by itself: a thread does it, and is left behind when it takes too long. */
static void comms_abort(struct nccl *n)
{
    struct aborting *a = mem_alloc(sizeof *a);
    pthread_t thread;
    struct timespec until;
    a->comm = n->comm;
    a->n = n->d.n_links;
    n->comm = mem_alloc((size_t)(a->n + 1) * sizeof *n->comm);
    pthread_mutex_init(&a->lock, NULL);
    pthread_cond_init(&a->changed, NULL);
    clock_gettime(CLOCK_REALTIME, &until);
    until.tv_sec += (time_t)(abort_ns / 1000000000u);
    if (pthread_create(&thread, NULL, abort_main, a)) return;
    pthread_detach(thread);
    pthread_mutex_lock(&a->lock);
    while (!a->done && pthread_cond_timedwait(&a->changed, &a->lock, &until) != ETIMEDOUT) continue;
    a->left = !a->done;
    bool done = a->done;
    pthread_mutex_unlock(&a->lock);
    if (done) aborting_free(a);
}

/* Whatever went wrong: no communicator is used again, and every later call says the same. Aborting makes peers fail, too; so it comes a little later, when
 * the cause has been told, or with the end. */
static void fail(struct nccl *n, const struct err *e)
{
    n->failed_at = clock_ns();
    n->why = *e;
}

static void release(struct nccl *n)
{
    if (!n->aborted && n->comm) comms_abort(n);
    n->aborted = true;
}

/* NCCL knows only that CUDA failed; CUDA says how, for whoever asks after a GPU that is lost. */
static int link_fail(struct nccl *n, const struct dev_link *k, ncclResult_t result, const char *what, struct err *e)
{
    cudaError_t lost = result == ncclUnhandledCudaError ? cudaStreamQuery(k->stream) : cudaSuccess;
    const char *more = lost != cudaSuccess && lost != cudaErrorNotReady ? cudaGetErrorString(lost) : ncclGetLastError(NULL);
    return err_set(e, E_DEVICE, "rank %d, transfer %s rank %d: %s: %s%s%s", n->d.me, k->send ? "to" : "from", k->peer, what, ncclGetErrorString(result),
                   more && *more ? ": " : "", more ? more : "");
}

/* ---- driving -------------------------------------------------------------------------------------------------------------------------------- */

/* 1: NCCL is through with what it was told, 0: not yet, -1: e. */
static int comm_look(struct nccl *n, const struct dev_link *k, struct err *e)
{
    ncclResult_t state, asked = ncclCommGetAsyncError(n->comm[k - n->d.link], &state);
    if (asked != ncclSuccess) return link_fail(n, k, asked, "NCCL", e);
    if (state == ncclInProgress) return 0;
    return state == ncclSuccess ? 1 : link_fail(n, k, state, "NCCL", e);
}

static int issue(struct nccl *n, const struct dev_link *k, void *buf, size_t bytes, struct err *e)
{
    ncclComm_t comm = n->comm[k - n->d.link];
    int peer = k->send ? 1 : 0;                          /* the sender is rank 0 of the two */
    ncclResult_t r = k->send ? ncclSend(buf, bytes, ncclUint8, peer, comm, k->stream) : ncclRecv(buf, bytes, ncclUint8, peer, comm, k->stream);
    if (r == ncclSuccess || r == ncclInProgress) return 0;
    return comm_look(n, k, e) < 0 ? -1 : link_fail(n, k, r, k->send ? "sending" : "receiving", e);   /* what broke before is the cause */
}

/* A transfer of nothing is its header alone. */
static int post_issue(struct nccl *n, const struct dev_link *k, struct dev_post *p, struct err *e)
{
    if (dev_try(&n->d, k, e, cudaStreamWaitEvent(k->stream, p->ready, 0))) return -1;
    if (p->tag.bytes && issue(n, k, p->buf, p->tag.bytes, e)) return -1;
    dev_to(p, ISSUED);
    return 0;
}

static int post_fly(struct nccl *n, const struct dev_link *k, struct dev_post *p, struct err *e)
{
    struct tp *u = n->d.inner;
    int through = p->tag.bytes ? comm_look(n, k, e) : 1;
    if (through <= 0) return through;
    if (dev_try(&n->d, k, e, cudaEventRecord(p->end, k->stream))) return -1;
    if (k->send && u->ops->post_send(u, k->peer, &header_tag, &p->tag, &p->inner, e)) return -1;
    dev_to(p, FLYING);
    return 0;
}

/* The header of a receive that has not been issued yet. 1: it is here. */
static int header_look(struct nccl *n, const struct dev_link *k, struct dev_post *p, struct err *e)
{
    struct tp *u = n->d.inner;
    if (p->announced) return 1;
    if (u->ops->test(u, &p->inner) != TP_DONE) return 0;
    if (tp_tag_check(n->d.me, k->peer, &p->tag, &p->came, e)) return -1;
    p->announced = true;
    return 1;
}

/* One step, if it can be made. first: all before it on the link fly. */
static int post_step(struct nccl *n, struct dev_link *k, struct dev_post *p, bool first, struct err *e)
{
    struct tp *u = n->d.inner;
    int got;
    switch ((enum stage)p->stage) {
    case HELD:
        got = k->send ? 1 : header_look(n, k, p, e);
        if (got < 0) return -1;
        return got && first ? post_issue(n, k, p, e) : 0;
    case ISSUED:
        return post_fly(n, k, p, e);
    case FLYING:
        if (k->first != p - k->post || (got = dev_reached(&n->d, k, p->end, e)) == 0) return 0;
        if (got < 0) return -1;
        if (k->send && u->ops->test(u, &p->inner) != TP_DONE) return 0;
        n->moved = clock_ns();
        dev_finish(k);
        return 0;
    }
    return err_set(e, E_INTERNAL, "a transfer in stage %d", p->stage);
}

static int link_drive(struct nccl *n, struct dev_link *k, struct err *e)
{
    bool first = true;
    for (struct dev_post *p = dev_after(k, NULL), *next; p; p = next) {
        int stage;
        next = dev_after(k, p);
        do {
            stage = p->stage;
            if (post_step(n, k, p, first, e)) return -1;
        } while (p->stage != stage && p->stage >= DEV_OWN);
        first = first && (p->stage == FLYING || p->stage < DEV_OWN);
    }
    return 0;
}

/* The oldest transfer of a link: once both ends have posted it and the lane has got to it, it or another one must come to its end in time. */
static int link_watch(struct nccl *n, const struct dev_link *k, uint64_t now, struct err *e)
{
    struct dev_post *p = dev_after(k, NULL);
    struct tp *u = n->d.inner;
    uint64_t since = p && p->since > n->moved ? p->since : n->moved;
    if (!p || p->stage == HELD || now - since < n->patience_ns) return 0;
    int ready = dev_reached(&n->d, k, p->ready, e);
    if (ready < 0) return -1;
    if (!ready || (p->stage == FLYING && k->send && u->ops->test(u, &p->inner) != TP_DONE)) {
        p->since = now;
        return 0;
    }
    return err_set(e, E_DEVICE, "rank %d: nothing moved on the link %s rank %d for %.0f s, although both ends have posted", n->d.me, k->send ? "to" : "from",
                   k->peer, (double)n->patience_ns * 1e-9);
}

static int drive(struct nccl *n, struct err *e)
{
    struct dev *d = &n->d;
    if (d->inner->ops->progress(d->inner, e)) return -1;
    for (int i = 0; i < d->n_links; i++) {
        struct dev_link *k = &d->link[i];
        if (!n->comm[i]) continue;                       /* not connected yet */
        if (k->first >= 0 && (comm_look(n, k, e) < 0 || link_drive(n, k, e) || link_watch(n, k, clock_ns(), e))) return -1;
    }
    return 0;
}

static int nccl_progress(struct tp *t, struct err *e)
{
    struct nccl *n = nccl_of(t);
    struct err mine = {0};
    if (n->failed_at) {
        if (clock_ns() - n->failed_at > told_ns) release(n);
        return err_set(e, n->why.code, "%s", n->why.text);
    }
    if (drive(n, &mine) == 0) return 0;
    fail(n, &mine);
    return err_set(e, mine.code, "%s", mine.text);
}

/* ---- posts ----------------------------------------------------------------------------------------------------------------------------------- */

static int nccl_post_send(struct tp *t, int to, const struct tp_tag *tag, const void *buf, struct tp_req *out, struct err *e)
{
    return dev_post_new(dev_of(t), to, true, tag, buf, HELD, out, e) ? nccl_progress(t, e) : -1;
}

static int nccl_post_recv(struct tp *t, int from, const struct tp_tag *tag, void *buf, struct tp_req *out, struct err *e)
{
    struct tp *u = dev_of(t)->inner;
    struct dev_post *p = dev_post_new(dev_of(t), from, false, tag, buf, HELD, out, e);
    return p ? u->ops->post_recv(u, from, &header_tag, &p->came, &p->inner, e) : -1;
}

static enum tp_state nccl_test(struct tp *t, struct tp_req *r)
{
    if (r->slot < 0) return TP_DONE;
    struct dev_post *p = dev_post_of(dev_of(t), r, NULL);
    if (dev_free_done(p, r)) return TP_DONE;
    if (p->stage == FLYING) return TP_QUEUED;
    return p->announced ? TP_ANNOUNCED : TP_WAITING;
}

/* ---- connecting -------------------------------------------------------------------------------------------------------------------------------- */

/* Several ranks of one GPU: NCCL refuses that within a host, so each rank becomes a host of its own, and they meet by sockets. The user's settings win.
 * Read by NCCL at its first call in a process. */
static void env_shared(int rank)
{
    static const char *const fixed[][2] = {
        {"NCCL_NET", "Socket"}, {"NCCL_IB_DISABLE", "1"}, {"NCCL_P2P_DISABLE", "1"}, {"NCCL_SHM_DISABLE", "1"},
        {"NCCL_MNNVL_ENABLE", "0"}, {"NCCL_NVLS_ENABLE", "0"}, {"NCCL_RAS_ENABLE", "0"},
    };
    char host[32];
    snprintf(host, sizeof host, "mpstaged-%d", rank);
    setenv("NCCL_HOSTID", host, 0);
    for (size_t i = 0; i < sizeof fixed / sizeof *fixed; i++) setenv(fixed[i][0], fixed[i][1], 0);
}

/* All ranks connect their links in one order, those of even borders first: neighbours connect side by side, and nobody waits in a circle. */
static bool goes_before(const struct nccl *n, int i, int j)
{
    const struct dev_link *k[2] = {&n->d.link[i], &n->d.link[j]};
    int key[2][4];
    for (int x = 0; x < 2; x++) {
        int low = k[x]->peer < n->d.me ? k[x]->peer : n->d.me, from = k[x]->send ? n->d.me : k[x]->peer;
        int all[4] = {low % 2, low, k[x]->peer + n->d.me, from};
        memcpy(key[x], all, sizeof all);
    }
    for (int y = 0; y < 4; y++) if (key[0][y] != key[1][y]) return key[0][y] < key[1][y];
    return false;
}

static void order_make(const struct nccl *n, int *order)
{
    for (int i = 0; i < n->d.n_links; i++) {
        int at = i;
        for (; at && goes_before(n, i, order[at - 1]); at--) order[at] = order[at - 1];
        order[at] = i;
    }
}

/* Waits until NCCL is through and, if there is one, the event is reached. */
static int link_wait(struct nccl *n, const struct dev_link *k, cudaEvent_t event, struct err *e)
{
    uint64_t began = clock_ns();
    for (int got = 0; !got;) {
        if (n->d.inner->ops->progress(n->d.inner, e) || (got = event ? dev_reached(&n->d, k, event, e) : 1) < 0) return -1;
        int through = comm_look(n, k, e);
        if (through < 0) return -1;
        got = got && through;
        if (clock_ns() - began > set_up_ns)
            return err_set(e, E_DEVICE, "rank %d: no connection %s rank %d in %.0f s", n->d.me, k->send ? "to" : "from", k->peer, (double)set_up_ns * 1e-9);
        sched_yield();
    }
    return 0;
}

/* The first message makes NCCL's connection, which must not happen in a step; it also shows that both ends mean the same link. */
static int link_hello(struct nccl *n, const struct dev_link *k, struct err *e)
{
    const unsigned char *heard = n->heard;
    const struct dev_post *p = &k->post[0];              /* nothing is posted yet: its event is free */
    int from = k->send ? n->d.me : k->peer, to = k->send ? k->peer : n->d.me, word = (from * 16 + to) % 251;
    if (dev_try(&n->d, k, e, cudaMemsetAsync(n->hello, k->send ? word : 255, HELLO_BYTES, k->stream)) || issue(n, k, n->hello, HELLO_BYTES, e) ||
        link_wait(n, k, NULL, e))
        return -1;
    if (!k->send && dev_try(&n->d, k, e, cudaMemcpyAsync(n->heard, n->hello, HELLO_BYTES, cudaMemcpyDeviceToHost, k->stream))) return -1;
    if (dev_try(&n->d, k, e, cudaEventRecord(p->end, k->stream)) || link_wait(n, k, p->end, e)) return -1;
    for (int i = 0; i < HELLO_BYTES && !k->send; i++)
        if (heard[i] != word) return err_set(e, E_INTERNAL, "rank %d: the first message from rank %d arrived changed", n->d.me, k->peer);
    return 0;
}

static int link_connect(struct nccl *n, int i, const ncclUniqueId *own, struct err *e)
{
    struct dev_link *k = &n->d.link[i];
    ncclUniqueId id;
    ncclConfig_t c = NCCL_CONFIG_INITIALIZER;
    c.blocking = 0;
    c.minCTAs = 1;
    c.maxCTAs = n->shared ? CTAS_SHARED : CTAS;          /* the rest of the GPU is for kernels */
    if (k->send) id = *own;
    else if (dev_hear_own(&n->d, k->peer, &id, sizeof id, set_up_ns, e)) return -1;
    ncclComm_t comm = NULL;
    ncclResult_t r = ncclCommInitRankConfig(&comm, 2, id, k->send ? 0 : 1, &c);
    n->comm[i] = comm;
    if (r != ncclSuccess && r != ncclInProgress) return link_fail(n, k, r, "connecting", e);
    return link_wait(n, k, NULL, e) || link_hello(n, k, e) ? -1 : 0;
}

static int links_connect(struct nccl *n, int *order, ncclUniqueId *own, struct err *e)
{
    order_make(n, order);
    for (int x = 0; x < n->d.n_links; x++) {
        const struct dev_link *k = &n->d.link[order[x]];
        if (!k->send) continue;
        ncclResult_t r = ncclGetUniqueId(&own[order[x]]);
        if (r != ncclSuccess) return link_fail(n, k, r, "making an id", e);
        if (dev_say(&n->d.tp, k->peer, TP_UNDER, &own[order[x]], sizeof *own, e)) return -1;
    }
    for (int x = 0; x < n->d.n_links; x++) if (link_connect(n, order[x], &own[order[x]], e)) return -1;
    return 0;
}

static int nccl_attach(struct tp *t, void *lane, const struct tp_use *use, int n_use, struct err *e)
{
    struct nccl *n = nccl_of(t);
    n->comm = mem_alloc((size_t)(n_use + 1) * sizeof *n->comm);
    if (dev_attach(&n->d, lane, use, n_use, e) || dev_check(&n->d, e, "connecting", cudaMalloc(&n->hello, HELLO_BYTES)) ||
        dev_check(&n->d, e, "connecting", cudaMallocHost(&n->heard, HELLO_BYTES)))
        return -1;
    if (n->shared) env_shared(n->d.me);
    int *order = mem_alloc((size_t)(n_use + 1) * sizeof *order);
    ncclUniqueId *own = mem_alloc((size_t)(n_use + 1) * sizeof *own);
    int bad = links_connect(n, order, own, e);
    if (bad) {
        fail(n, e);
        release(n);                                      /* before anybody frees memory: that waits for streams */
    }
    free(order);
    free(own);
    n->moved = clock_ns();
    return bad;
}

/* ---- the end ---------------------------------------------------------------------------------------------------------------------------------- */

/* Both ends say that they are through; a peer that does not is not waited for. */
static int comm_finish(struct nccl *n, int i)
{
    uint64_t until = clock_ns() + finish_ns;
    struct err none = {0};
    int through = 0;
    ncclResult_t r = ncclCommFinalize(n->comm[i]);
    if (r != ncclSuccess && r != ncclInProgress) return -1;
    while ((through = comm_look(n, &n->d.link[i], &none)) == 0 && clock_ns() < until) sched_yield();
    if (through <= 0) return -1;
    ncclCommDestroy(n->comm[i]);
    n->comm[i] = NULL;
    return 0;
}

static void nccl_close(struct tp *t)
{
    enum { PATIENCE_NS = 1000000000 };
    struct nccl *n = nccl_of(t);
    struct err none = {0};
    uint64_t until = clock_ns() + PATIENCE_NS;
    while (!n->failed_at && !dev_idle(t) && clock_ns() < until && !nccl_progress(t, &none)) sched_yield();
    bool clean = !n->failed_at && dev_idle(t);
    for (int i = 0; i < n->d.n_links && clean; i++) if (n->comm[i] && comm_finish(n, i)) clean = false;
    if (!clean) release(n);
    if (n->hello) cudaFree(n->hello);                    /* only now: a free waits for all streams, and one of them might wait for a peer */
    if (n->heard) cudaFreeHost(n->heard);
    free(n->comm);
    dev_close(&n->d);
    free(n);
}

extern const struct tp_ops tp_nccl;
const struct tp_ops tp_nccl = {
    .name = "nccl", .text = "tensors from GPU to GPU by NCCL", .rank = dev_rank, .size = dev_size, .post_send = nccl_post_send,
    .post_recv = nccl_post_recv, .progress = nccl_progress, .test = nccl_test, .reduce = dev_reduce, .bcast = dev_bcast, .say = dev_say, .hear = dev_hear,
    .attach = nccl_attach, .join = dev_join, .idle = dev_idle, .abort = dev_abort, .close = nccl_close,
};

int tp_nccl_open(struct tp *inner, bool shared, uint64_t patience_ns, struct tp **out, struct err *e)
{
    struct nccl *n = mem_alloc(sizeof *n);
    (void)e;
    dev_open(&n->d, &tp_nccl, inner);
    n->shared = shared;
    n->patience_ns = patience_ns;
    *out = &n->d.tp;
    return 0;
}
