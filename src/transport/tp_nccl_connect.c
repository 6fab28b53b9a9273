/* Set-up of the nccl transport: links connect in a handshake of all ranks. Ids are exchanged first. Then the two ranks
 * of each link make its communicator and send a first message. A failure on one rank ends all ranks with its cause. */
#include <sched.h>
#include <stdlib.h>
#include <string.h>
#include "base/clock.h"
#include "transport/tp_nccl_int.h"

enum { CTAS_SHARED = 2, HELLO_BYTES = 64 };              /* CTAS_SHARED: the most for two ranks on one GPU */

void nccl_library(struct text *name, struct text *wrong)
{
    enum { HANGS = 22803, LAST = 22808 };                /* NVRx advises against these versions */
    int v;
    if (ncclGetVersion(&v) != ncclSuccess) return;
    text_add(name, "NCCL %d.%d.%d", v / 10000, v / 100 % 100, v % 100);
    if (v >= HANGS && v <= LAST)
        text_add(wrong, "NCCL 2.28.3 to 2.28.8 are known to hang, and this is 2.28.%d: use another one", v % 100);
}

/* All ranks connect their links in one order, even borders first, so neighbours connect in parallel and no ranks wait
 * in a circle. Links for sums come last; each rank has at most one. */
static bool goes_before(const struct nccl *n, int i, int j)
{
    const struct dev_link *k[2] = {&n->d.link[i], &n->d.link[j]};
    if (k[0]->peer == TP_ALL || k[1]->peer == TP_ALL) return k[0]->peer != TP_ALL;
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

/* Waits until NCCL's call is complete and, if given, the event is reached. */
static int link_wait(struct nccl *n, const struct dev_link *k, cudaEvent_t event, struct err *e)
{
    char advice[NCCL_ADVICE], text[DEV_LINK_TEXT];
    uint64_t began = clock_ns();
    for (int got = 0; !got;) {
        if (handshake_poll(&n->meet, e) || (got = event ? dev_reached(&n->d, k, event, e) : 1) < 0) return -1;
        int through = nccl_comm_poll(n, k, e);
        if (through < 0) return -1;
        got = got && through;
        if (clock_ns() - began > n->q.connect_ns)
            return err_set(e, E_DEVICE, "rank %d, %s: no connection in %.0f s%s", n->d.me, dev_link_text(k, text),
                           (double)n->q.connect_ns * 1e-9, nccl_env_advice(advice));
        sched_yield();
    }
    return 0;
}

/* The first message makes NCCL's connection, which must not happen in a step. It also proves that both ends mean the
 * same link. */
static int link_hello(struct nccl *n, const struct dev_link *k, struct err *e)
{
    const unsigned char *heard = n->heard;
    const struct dev_post *p = &k->post[0];              /* nothing is posted yet, so its event is free */
    int from = k->send ? n->d.me : k->peer, to = k->send ? k->peer : n->d.me, word = (from * 16 + to) % 251;
    if (dev_try(&n->d, k, e, cudaMemsetAsync(n->hello, k->send ? word : 255, HELLO_BYTES, k->stream)) ||
        nccl_issue(n, k, n->hello, HELLO_BYTES, e) || link_wait(n, k, NULL, e))
        return -1;
    if (!k->send &&
        dev_try(&n->d, k, e, cudaMemcpyAsync(n->heard, n->hello, HELLO_BYTES, cudaMemcpyDeviceToHost, k->stream)))
        return -1;
    if (dev_try(&n->d, k, e, cudaEventRecord(p->end, k->stream)) || link_wait(n, k, p->end, e)) return -1;
    for (int i = 0; i < HELLO_BYTES && !k->send; i++)
        if (heard[i] != word)
            return err_set(e, E_INTERNAL, "rank %d: the first message from rank %d was corrupted in transfer", n->d.me,
                           k->peer);
    return 0;
}

/* The first sum does the same for all members: they add ones, so the sum is their number. */
static int sum_hello(struct nccl *n, const struct dev_link *k, struct err *e)
{
    const struct dev_post *p = &k->post[0];
    float *one = n->heard;
    for (size_t i = 0; i < HELLO_BYTES / sizeof *one; i++) one[i] = 1;
    if (dev_try(&n->d, k, e, cudaMemcpyAsync(n->hello, one, HELLO_BYTES, cudaMemcpyHostToDevice, k->stream)) ||
        nccl_issue(n, k, n->hello, HELLO_BYTES, e) || link_wait(n, k, NULL, e) ||
        dev_try(&n->d, k, e, cudaMemcpyAsync(one, n->hello, HELLO_BYTES, cudaMemcpyDeviceToHost, k->stream)) ||
        dev_try(&n->d, k, e, cudaEventRecord(p->end, k->stream)) || link_wait(n, k, p->end, e))
        return -1;
    char text[DEV_LINK_TEXT];
    for (size_t i = 0; i < HELLO_BYTES / sizeof *one; i++)
        if (one[i] != (float)k->members)
            return err_set(e, E_INTERNAL, "rank %d: the first %s is %g", n->d.me, dev_link_text(k, text),
                           (double)one[i]);
    return 0;
}

/* A power of two, because NCCL rounds up to one for transfers between two ranks. */
static int ctas_of(const struct nccl *n, bool shared)
{
    int most = shared && n->q.max_ctas > CTAS_SHARED ? CTAS_SHARED : n->q.max_ctas, ctas = 1;
    while (2 * ctas <= most) ctas *= 2;
    return ctas;
}

/* Sets the number of members and this rank's index. Returns whether any two are on one GPU. */
static bool members_share(const struct nccl *n, const struct dev_link *k, int *ranks, int *rank)
{
    bool shared = false;
    *ranks = k->members;
    for (int i = 0; i < k->members; i++) {
        if (k->member[i] == n->d.me) *rank = i;
        for (int j = 0; j < i; j++) shared |= n->gpu[k->member[i]] == n->gpu[k->member[j]];
    }
    return shared;
}

static int link_connect(struct nccl *n, int i, struct err *e)
{
    struct dev_link *k = &n->d.link[i];
    int ranks = 2, rank = k->send ? 0 : 1;
    bool shared = k->peer == TP_ALL ? members_share(n, k, &ranks, &rank) : n->gpu[k->peer] == n->gpu[n->d.me];
    ncclConfig_t c = NCCL_CONFIG_INITIALIZER;
    c.blocking = 0;
    c.cgaClusterSize = 1;                                /* clusters of 4 start only if there is space for all blocks */
    c.minCTAs = 1;
    c.maxCTAs = ctas_of(n, shared);
    if (shared) c.netName = "Socket";                    /* always works; other networks may not within one GPU */
    ncclComm_t comm = NULL;
    ncclResult_t r = ncclCommInitRankConfig(&comm, ranks, n->id[i], rank, &c);
    n->comm[i] = comm;
    if (r != ncclSuccess && r != ncclInProgress) return nccl_link_fail(n, k, r, "connecting", e);
    if (link_wait(n, k, NULL, e)) return -1;
    if (k->peer == TP_ALL) return sum_hello(n, k, e);
    if (link_hello(n, k, e)) return -1;
    nccl_log_via(&n->log, n->via[i]);
    return 0;
}

static bool gives(const struct nccl *n, const struct dev_link *k)
{
    return k->peer == TP_ALL ? k->member[0] == n->d.me : k->send;
}

/* Takes the id of a link, which its sender makes; or the id of sums, which their first member sends after those. */
static void id_take(void *ctx, int from, const void *gift)
{
    struct nccl *n = ctx;
    const struct dev_link *k = dev_link_of(&n->d, from, false, NULL);
    if (!k || n->has_id[k - n->d.link]) k = dev_link_of(&n->d, TP_ALL, true, NULL);
    /* NULL only if plans differ; that rank then finds no peer to connect to */
    if (!k) return;
    memcpy(&n->id[k - n->d.link], gift, sizeof *n->id);
    n->has_id[k - n->d.link] = true;
    n->n_missing--;
}

/* Makes the id if this rank must, and gives it to the others. */
static int id_give(struct nccl *n, int i, struct err *e)
{
    const struct dev_link *k = &n->d.link[i];
    if (!gives(n, k)) return 0;
    ncclResult_t r = ncclGetUniqueId(&n->id[i]);
    if (r != ncclSuccess) return nccl_link_fail(n, k, r, "making an id", e);
    if (k->peer != TP_ALL) return handshake_give(&n->meet, k->peer, &n->id[i], e);
    for (int m = 1; m < k->members; m++) if (handshake_give(&n->meet, k->member[m], &n->id[i], e)) return -1;
    return 0;
}

static int ids_exchange(struct nccl *n, struct err *e)
{
    for (int i = 0; i < n->d.n_links; i++) n->n_missing += !gives(n, &n->d.link[i]);
    for (int sums = 0; sums < 2; sums++)
        for (int i = 0; i < n->d.n_links; i++)
            if ((n->d.link[i].peer == TP_ALL) == sums && id_give(n, i, e)) return -1;
    while (n->n_missing > 0) {
        if (handshake_poll(&n->meet, e)) return -1;
        sched_yield();
    }
    return 0;
}

static int links_connect(struct nccl *n, int *order, struct err *e)
{
    if (ids_exchange(n, e)) return -1;
    order_make(n, order);
    for (int x = 0; x < n->d.n_links; x++) if (link_connect(n, order[x], e)) return -1;
    return 0;
}

static int links_open(struct nccl *n, void *stream, const struct tp_use *use, int n_use, struct err *e)
{
    if (dev_attach(&n->d, stream, use, n_use, e) ||
        dev_check(&n->d, e, "connecting", cudaMalloc(&n->hello, HELLO_BYTES)) ||
        dev_check(&n->d, e, "connecting", cudaMallocHost(&n->heard, HELLO_BYTES)))
        return -1;
    for (int i = 0; i < n->d.n_links; i++) n->d.link[i].own = mem_alloc(sizeof(struct watch));
    return 0;
}

int nccl_attach(struct tp *t, void *stream, const struct tp_use *use, int n_use, struct err *e)
{
    struct nccl *n = nccl_of(t);
    size_t space = (size_t)n_use + 1;
    int *order = mem_alloc(space * sizeof *order);
    n->comm = mem_alloc(space * sizeof *n->comm);
    n->id = mem_alloc(space * sizeof *n->id);
    n->has_id = mem_alloc(space * sizeof *n->has_id);
    n->via = mem_alloc(space * sizeof *n->via);
    nccl_env_set(&n->q.seats, n->d.me, n->d.size);
    if (n->q.alone) nccl_log_begin(&n->log);
    n->connecting = true;
    handshake_begin(&n->meet, n->d.inner, id_take, n);
    int bad = links_open(n, stream, use, n_use, e) || links_connect(n, order, e);
    if (bad && n->remote) handshake_cause(&n->meet, e);
    bad = handshake_end(&n->meet, bad, e);
    n->connecting = false;
    for (int i = 0; i < n->d.n_links; i++) n->d.link[i].member = NULL;   /* the caller owns it */
    if (bad) {
        n->why = *e;
        nccl_fail(n);
        nccl_release_begin(n->releasing);
    }
    free(order);
    free(n->id);
    free(n->has_id);
    return bad;
}
