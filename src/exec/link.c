/* Measuring links: the time of a message, and the time that a rank's thread spends on it. */
#include <stdlib.h>
#include "base/clock.h"
#include "exec/exec_int.h"

static int ascending(const void *a, const void *b)
{
    uint64_t x = *(const uint64_t *)a, y = *(const uint64_t *)b;
    return (x > y) - (x < y);
}

static double median(uint64_t *ns, int n)
{
    qsort(ns, (size_t)n, sizeof *ns, ascending);
    return (double)ns[n / 2];
}

static int wait_done(struct exec *s, struct tp_req *r, struct err *e)
{
    while (s->tp->ops->test(s->tp, r) != TP_DONE)
        if (exec_progress(s, e) || exec_aborted(s, e)) return -1;
    return 0;
}

/* bytes: of a message; apart: between the messages of two trips. */
struct trips { int peer; bool first; int n; size_t apart, bytes; };

static int one_way(struct exec *s, const struct trips *k, int trip, bool send, struct err *e)
{
    struct tp *t = s->tp;
    struct tp_tag tag = {.step = (uint64_t)trip, .bytes = k->bytes};
    struct tp_req r;
    void *at = s->link.at + (size_t)trip * k->apart;
    if (send ? t->ops->post_send(t, k->peer, &tag, at, &r, e) : t->ops->post_recv(t, k->peer, &tag, at, &r, e))
        return -1;
    return wait_done(s, &r, e);
}

/* Median time of half a round trip. */
static int half_trip(struct exec *s, const struct trips *k, double *ns, struct err *e)
{
    uint64_t *took = mem_alloc((size_t)k->n * sizeof *took);
    int bad = 0;
    for (int i = 0; i < k->n && !bad; i++) {
        uint64_t since = clock_ns();
        bad = one_way(s, k, i, k->first, e) || one_way(s, k, i, !k->first, e);
        took[i] = clock_ns() - since;
    }
    *ns = median(took, k->n) / 2;
    free(took);
    return bad ? -1 : 0;
}

/* Each trip has its own memory, because in a step no border tensor is in a cache. The pages must exist and not be
 * zero. */
static int trips_fill(struct exec *s, struct err *e)
{
    unsigned char *piece = mem_alloc(LINK_LARGE);
    for (size_t i = 0; i < LINK_LARGE; i++) piece[i] = (unsigned char)(i * 2654435761u >> 13);
    int bad = 0;
    for (int i = 0; i < LINK_TRIPS && !bad; i++)
        bad = s->ops->copy(s->be, s->link.at + (size_t)i * LINK_LARGE, piece, LINK_LARGE, e);
    free(piece);
    return bad;
}

/* ---- during work ----------------------------------------------------------------------------- */

/* Both ranks send and receive a large message at once and work meanwhile, as between two kernels. The time without the
 * work is the messages' time. */
static int beside_work(struct exec *s, const struct trips *k, int trip, uint64_t *ns, struct err *e)
{
    enum { WORK_NS = 100000 };
    struct tp *t = s->tp;
    struct tp_tag tag = {.step = (uint64_t)trip, .bytes = k->bytes};
    struct tp_req come, go;
    uint64_t since = clock_ns();
    if (t->ops->post_recv(t, k->peer, &tag, s->link.at + (size_t)((trip + 1) % k->n) * k->apart, &come, e) ||
        t->ops->post_send(t, k->peer, &tag, s->link.at + (size_t)trip * k->apart, &go, e))
        return -1;
    *ns = clock_ns() - since;
    for (bool done = false; !done;) {
        for (uint64_t from = clock_ns(); clock_ns() - from < WORK_NS;) ;
        since = clock_ns();
        if (exec_progress(s, e) || exec_aborted(s, e)) return -1;
        done = t->ops->test(t, &come) == TP_DONE;
        done = t->ops->test(t, &go) == TP_DONE && done;
        *ns += clock_ns() - since;
    }
    return 0;
}

static int busy_measure(struct exec *s, const struct trips *k, double *ns_per_byte, struct err *e)
{
    uint64_t *took = mem_alloc((size_t)k->n * sizeof *took);
    int bad = 0;
    for (int i = 0; i < k->n && !bad; i++) bad = beside_work(s, k, i, &took[i], e);
    *ns_per_byte = median(took, k->n) / (2 * (double)k->bytes);
    free(took);
    return bad ? -1 : 0;
}

/* ---- all measurements ------------------------------------------------------------------------ */

int link_measure(struct exec *s, int a, int b, struct link *l, struct err *e)
{
    enum { SMALL = 64, SMALL_TRIPS = 101 };
    int me = s->rank, peer = tp_rank_along(s, AXIS_PP, me == a ? b : a);
    double large = 0;
    *l = (struct link){0};
    if (me != a && me != b) return 0;
    const struct trips smalls = {peer, me == a, SMALL_TRIPS, 0, SMALL};
    const struct trips larges = {peer, me == a, LINK_TRIPS, LINK_LARGE, LINK_LARGE};
    if (trips_fill(s, e) || half_trip(s, &smalls, &l->latency_ns, e) || half_trip(s, &larges, &large, e)) return -1;
    l->bytes_per_ns = large > l->latency_ns ? LINK_LARGE / (large - l->latency_ns) : LINK_LARGE;
    /* the host thread's time is not the device's */
    return s->ops->stream ? 0 : busy_measure(s, &larges, &l->busy_ns_per_byte, e);
}
