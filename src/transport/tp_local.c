/* The local transport: n ranks as threads of one process.
 *
 * The receiver's thread copies directly out of the sender's buffer once both have posted; only then is the send
 * complete. Each link has a lock for its two queues; one more lock serves everything rare (collectives, messages).
 * States of posts are atomic, because the other end's thread may change the state of a post while its owner reads
 * it. */
#include <pthread.h>
#include <sched.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include "base/clock.h"
#include "base/mem.h"
#include "transport/tp.h"

struct local_post {
    struct tp_tag tag;
    void *buf;
    atomic_int state;                                    /* enum tp_state */
    bool used, borrows;
    /* of a borrowing receive: the send, which get_release completes */
    struct local_post *lender;
    struct local_post *next;
};
struct local_queue { struct local_post *first, *last; };
struct local_link {                                      /* from one rank to another */
    pthread_mutex_t lock;
    struct local_queue sends, recvs;                     /* recvs: only the receiver's thread uses it */
    /* when the first pair may be delivered; 0: not announced yet */
    uint64_t due;
};
struct local_message { struct tp_held held; size_t n; unsigned char bytes[]; };

/* One collective at a time: the last rank to arrive does the work for all. done: number of finished collectives;
 * failed: the number of the last one that failed. */
enum meeting_kind { MEET_REDUCE, MEET_BCAST };
struct local_meeting { enum meeting_kind kind; size_t n; int arrived; uint64_t done, failed; bool differ; void **at; };

struct hub {
    int n, open;
    pthread_mutex_t lock;
    pthread_cond_t changed;
    atomic_int stopped;                                  /* code of an abort, 0: none */
    struct local_link *link;                             /* [from * n + to] */
    struct tp_box *box;                                  /* [(from * n + to) * TP_STREAMS + stream] */
    struct local_meeting meet;
    struct local **rank;
};

enum { CHUNK = 256, MAX_CHUNKS = 256 };
struct local {
    struct tp tp;
    struct hub *hub;
    int me;
    struct local_post *chunk[MAX_CHUNKS]; int n_chunks;  /* posts do not move, because queues point to them */
    /* ranks from which it has ever posted a receive; progress skips the others */
    int *from, n_from; bool *listed;
    atomic_int waiting[TP_STREAMS];                      /* messages to this rank that it has not received */
    uint64_t random; unsigned min_us, max_us;
};

static struct local *local_of(struct tp *t) { return (struct local *)t; }
static struct local_link *link_at(struct hub *h, int from, int to) { return &h->link[from * h->n + to]; }
static struct tp_box *box_at(struct hub *h, int from, int to, int stream)
{
    return &h->box[(from * h->n + to) * TP_STREAMS + stream];
}

static int local_rank(struct tp *t) { return local_of(t)->me; }
static int local_size(struct tp *t) { return local_of(t)->hub->n; }

static int stopped(const struct hub *h, struct err *e)
{
    int code = atomic_load(&h->stopped);
    return code ? err_set(e, E_STOPPED, "the job was stopped with code %d", code) : 0;
}

static int peer_check(const struct local *l, int peer, struct err *e)
{
    if (peer < 0 || peer >= l->hub->n || peer == l->me)
        return err_set(e, E_INTERNAL, "rank %d has no link with rank %d", l->me, peer);
    return stopped(l->hub, e);
}

/* ---- posts ----------------------------------------------------------------------------------- */

static struct local_post *post_at(const struct local *l, int slot) { return &l->chunk[slot / CHUNK][slot % CHUNK]; }

/* Finds a free slot; takes a new chunk only if there are more posts than ever before. */
static int slot_find(struct local *l, struct err *e)
{
    for (int i = 0; i < l->n_chunks * CHUNK; i++) if (!post_at(l, i)->used) return i;
    if (l->n_chunks == MAX_CHUNKS)
        return err_set(e, E_INTERNAL, "rank %d has more than %d open transfers", l->me, MAX_CHUNKS * CHUNK);
    l->chunk[l->n_chunks++] = mem_alloc(CHUNK * sizeof(struct local_post));
    return (l->n_chunks - 1) * CHUNK;
}

static void queue_push(struct local_queue *q, struct local_post *p)
{
    if (q->first) q->last->next = p;
    else q->first = p;
    q->last = p;
}

static void queue_pop(struct local_queue *q) { q->first = q->first->next; }

static struct local_post *post_new(struct local *l, const struct tp_tag *tag, void *buf, struct tp_req *out,
                                   struct err *e)
{
    int slot = slot_find(l, e);
    if (slot < 0) return NULL;
    struct local_post *p = post_at(l, slot);
    p->tag = *tag;
    p->buf = buf;
    p->used = true;
    p->borrows = false;
    p->lender = NULL;
    p->next = NULL;
    atomic_store_explicit(&p->state, TP_WAITING, memory_order_relaxed);
    out->slot = slot;
    return p;
}

static int post_queue(struct local_link *k, struct local_queue *q, struct local_post *p)
{
    if (!p) return -1;
    pthread_mutex_lock(&k->lock);
    queue_push(q, p);
    pthread_mutex_unlock(&k->lock);
    return 0;
}

static int local_post_send(struct tp *t, int to, const struct tp_tag *tag, const void *buf, struct tp_req *out,
                           struct err *e)
{
    struct local *l = local_of(t);
    if (peer_check(l, to, e)) return -1;
    struct local_link *k = link_at(l->hub, l->me, to);
    return post_queue(k, &k->sends, post_new(l, tag, (void *)(uintptr_t)buf, out, e));
}

static int recv_queue(struct local *l, int from, struct local_post *p)
{
    struct local_link *k = link_at(l->hub, from, l->me);
    if (!l->listed[from]) l->from[l->n_from++] = from;
    l->listed[from] = true;
    return post_queue(k, &k->recvs, p);
}

static int local_post_recv(struct tp *t, int from, const struct tp_tag *tag, void *buf, struct tp_req *out,
                           struct err *e)
{
    struct local *l = local_of(t);
    return peer_check(l, from, e) ? -1 : recv_queue(l, from, post_new(l, tag, buf, out, e));
}

static int local_post_get(struct tp *t, int from, const struct tp_tag *tag, void *buf, struct tp_req *out,
                          struct err *e)
{
    struct local *l = local_of(t);
    if (peer_check(l, from, e)) return -1;
    struct local_post *p = post_new(l, tag, buf, out, e);
    if (p) p->borrows = true;
    return recv_queue(l, from, p);
}

static void local_get_release(struct tp *t, struct tp_req *r)
{
    struct local_post *p = post_at(local_of(t), r->slot);
    atomic_store_explicit(&p->lender->state, TP_DONE, memory_order_release);
    p->used = false;
    r->slot = -1;
}

/* xorshift64*, which is good enough for delays. */
static uint64_t delay_ns(struct local *l)
{
    if (!l->max_us) return 0;
    l->random ^= l->random >> 12;
    l->random ^= l->random << 25;
    l->random ^= l->random >> 27;
    return l->min_us * 1000ull + (l->random * 2685821657736338717ull >> 32) % ((l->max_us - l->min_us) * 1000ull + 1);
}

/* Delivers, in order, what both ends of a link have posted. The receiver calls it with the link locked. */
static int deliver(struct local *l, int from, struct local_link *k, struct err *e)
{
    while (k->sends.first && k->recvs.first) {
        struct local_post *s = k->sends.first, *r = k->recvs.first;
        if (tp_tag_check(l->me, from, &r->tag, &s->tag, e)) return -1;
        atomic_store_explicit(&r->state, TP_ANNOUNCED, memory_order_relaxed);
        if (l->max_us) {
            uint64_t now = clock_ns();
            if (!k->due) k->due = now + 1 + delay_ns(l);
            if (now < k->due) return 0;
            k->due = 0;
        }
        if (r->borrows) r->lender = s;
        else if (r->tag.bytes) memcpy(r->buf, s->buf, r->tag.bytes);
        queue_pop(&k->sends);
        queue_pop(&k->recvs);
        atomic_store_explicit(&r->state, TP_DONE, memory_order_release);
        if (!r->borrows) atomic_store_explicit(&s->state, TP_DONE, memory_order_release);
    }
    return 0;
}

static int local_progress(struct tp *t, struct err *e)
{
    struct local *l = local_of(t);
    if (stopped(l->hub, e)) return -1;
    for (int i = 0; i < l->n_from; i++) {
        int from = l->from[i];
        struct local_link *k = link_at(l->hub, from, l->me);
        if (!k->recvs.first) continue;
        pthread_mutex_lock(&k->lock);
        int bad = deliver(l, from, k, e);
        pthread_mutex_unlock(&k->lock);
        if (bad) return -1;
    }
    return 0;
}

static enum tp_state local_test(struct tp *t, struct tp_req *r)
{
    if (r->slot < 0) return TP_DONE;
    struct local_post *p = post_at(local_of(t), r->slot);
    int state = atomic_load_explicit(&p->state, memory_order_acquire);
    if (state != TP_DONE) return (enum tp_state)state;
    r->damaged = false;
    r->at = p->buf;
    r->read_ns = 0;
    if (p->lender) {
        r->at = p->lender->buf;
        return TP_DONE;
    }
    p->used = false;
    r->slot = -1;
    return TP_DONE;
}

/* ---- collectives ----------------------------------------------------------------------------- */

static void meeting_work(struct local_meeting *m, int ranks)
{
    if (m->kind == MEET_BCAST) {
        for (int r = 1; r < ranks && m->n; r++) memcpy(m->at[r], m->at[0], m->n);
        return;
    }
    for (size_t i = 0; i < m->n; i++) {
        double sum = ((double *)m->at[0])[i];
        for (int r = 1; r < ranks; r++) sum += ((double *)m->at[r])[i];
        for (int r = 0; r < ranks; r++) ((double *)m->at[r])[i] = sum;
    }
}

/* Enters the collective; returns its number, which meet.done reaches when the work is done. */
static uint64_t meeting_enter(struct local *l, enum meeting_kind kind, void *p, size_t n)
{
    struct hub *h = l->hub;
    struct local_meeting *m = &h->meet;
    uint64_t number = m->done + 1;
    if (m->arrived++ == 0) {
        m->kind = kind;
        m->n = n;
        m->differ = false;
    } else if (m->kind != kind || m->n != n) m->differ = true;
    m->at[l->me] = p;
    if (m->arrived < h->n) return number;
    if (m->differ) m->failed = number;
    else meeting_work(m, h->n);
    m->arrived = 0;
    m->done = number;
    pthread_cond_broadcast(&h->changed);
    return number;
}

static void meeting_pause(struct hub *h) { clock_cond_wait(&h->changed, &h->lock, 1000000); }

/* This rank's transfers continue while it waits, because other ranks may need them to arrive here. A rank that leaves
 * early ends the job, because the collective holds its pointer. */
static int meet(struct local *l, enum meeting_kind kind, void *p, size_t n, struct err *e)
{
    struct hub *h = l->hub;
    pthread_mutex_lock(&h->lock);
    int bad = stopped(h, e), none = 0;
    uint64_t number = bad ? 0 : meeting_enter(l, kind, p, n);
    while (!bad && h->meet.done < number) {
        meeting_pause(h);
        pthread_mutex_unlock(&h->lock);
        bad = local_progress(&l->tp, e);
        pthread_mutex_lock(&h->lock);
    }
    if (bad) atomic_compare_exchange_strong(&h->stopped, &none, e && e->code ? e->code : E_INTERNAL);
    bool failed = !bad && h->meet.failed == number;
    pthread_mutex_unlock(&h->lock);
    return failed ? err_set(e, E_INTERNAL, "the ranks met for different collectives") : bad;
}

static int local_reduce(struct tp *t, double *x, int n, struct err *e)
{
    return meet(local_of(t), MEET_REDUCE, x, (size_t)n, e);
}
static int local_bcast(struct tp *t, void *p, size_t bytes, struct err *e)
{
    return meet(local_of(t), MEET_BCAST, p, bytes, e);
}

/* ---- messages -------------------------------------------------------------------------------- */

static int stream_check(const struct local *l, int peer, int stream, struct err *e)
{
    if (peer < 0 || peer >= l->hub->n || stream < 0 || stream >= TP_STREAMS)
        return err_set(e, E_INTERNAL, "rank %d has no stream %d with rank %d", l->me, stream, peer);
    return stopped(l->hub, e);
}

static int local_send_msg(struct tp *t, int to, int stream, const void *p, size_t bytes, struct err *e)
{
    struct local *l = local_of(t);
    if (stream_check(l, to, stream, e)) return -1;
    struct tp_box *b = box_at(l->hub, l->me, to, stream);
    pthread_mutex_lock(&l->hub->lock);
    struct local_message *m = tp_box_new(b, sizeof *m, bytes);
    m->n = bytes;
    if (bytes) memcpy(m->bytes, p, bytes);
    tp_box_add(b, m);
    atomic_fetch_add(&l->hub->rank[to]->waiting[stream], 1);
    pthread_mutex_unlock(&l->hub->lock);
    return 0;
}

static bool box_take(struct tp_box *b, struct tp_message *heard)
{
    const struct local_message *m = (const struct local_message *)b->first;
    if (!m) return false;
    heard->n = m->n;
    if (heard->max && m->n) memcpy(heard->p, m->bytes, m->n < heard->max ? m->n : heard->max);
    tp_box_pop(b);
    return true;
}

static int local_recv_msg(struct tp *t, struct tp_message *m, struct err *e)
{
    struct local *l = local_of(t);
    struct hub *h = l->hub;
    int first = m->from < 0 ? 0 : m->from, end = m->from < 0 ? h->n : m->from + 1;
    if (stream_check(l, first, m->stream, e)) return -1;
    bool heard = false;
    if (!atomic_load(&l->waiting[m->stream])) return 0;
    pthread_mutex_lock(&h->lock);
    for (int r = first; !heard && r < end; r++) heard = box_take(box_at(h, r, l->me, m->stream), m);
    if (heard) atomic_fetch_sub(&l->waiting[m->stream], 1);
    pthread_mutex_unlock(&h->lock);
    return heard;
}

/* ---- opening and closing --------------------------------------------------------------------- */

static void local_abort(struct tp *t, int code)
{
    struct hub *h = local_of(t)->hub;
    int none = 0;
    atomic_compare_exchange_strong(&h->stopped, &none, code ? code : E_INTERNAL);
    pthread_mutex_lock(&h->lock);
    pthread_cond_broadcast(&h->changed);
    pthread_mutex_unlock(&h->lock);
}

static void hub_free(struct hub *h)
{
    for (int i = 0; i < h->n * h->n; i++) pthread_mutex_destroy(&h->link[i].lock);
    for (int i = 0; i < h->n * h->n * TP_STREAMS; i++) tp_box_free(&h->box[i]);
    for (int r = 0; r < h->n; r++) {
        for (int i = 0; i < h->rank[r]->n_chunks; i++) free(h->rank[r]->chunk[i]);
        free(h->rank[r]->from);
        free(h->rank[r]->listed);
        free(h->rank[r]);
    }
    pthread_mutex_destroy(&h->lock);
    pthread_cond_destroy(&h->changed);
    free(h->link); free(h->box); free(h->meet.at); free(h->rank); free(h);
}

/* Posts stay until the last rank has closed, because other ranks' queues may hold them. */
static void local_close(struct tp *t)
{
    struct hub *h = local_of(t)->hub;
    pthread_mutex_lock(&h->lock);
    int left = --h->open;
    pthread_mutex_unlock(&h->lock);
    if (!left) hub_free(h);
}

extern const struct tp_ops tp_local;
const struct tp_ops tp_local = {
    .name = "local",
    .text = "ranks as threads of one process",
    .rank = local_rank,
    .size = local_size,
    .post_send = local_post_send,
    .post_recv = local_post_recv,
    .post_get = local_post_get,
    .get_release = local_get_release,
    .progress = local_progress,
    .test = local_test,
    .reduce = local_reduce,
    .bcast = local_bcast,
    .send_msg = local_send_msg,
    .recv_msg = local_recv_msg,
    .abort = local_abort,
    .close = local_close,
};

int tp_local_open(int n, struct tp **out, struct err *e)
{
    if (n < 1 || n > 1024) return err_set(e, E_INTERNAL, "a job of %d ranks", n);
    struct hub *h = mem_alloc(sizeof *h);
    h->n = h->open = n;
    pthread_mutex_init(&h->lock, NULL);
    clock_cond_init(&h->changed);
    h->link = mem_alloc((size_t)(n * n) * sizeof *h->link);
    h->box = mem_alloc((size_t)(n * n * TP_STREAMS) * sizeof *h->box);
    h->meet.at = mem_alloc((size_t)n * sizeof *h->meet.at);
    h->rank = mem_alloc((size_t)n * sizeof(struct local *));
    for (int i = 0; i < n * n; i++) pthread_mutex_init(&h->link[i].lock, NULL);
    for (int r = 0; r < n; r++) {
        struct local *l = h->rank[r] = mem_alloc(sizeof *l);
        *l = (struct local){.tp.ops = &tp_local, .hub = h, .me = r};
        l->from = mem_alloc((size_t)n * sizeof *l->from);
        l->listed = mem_alloc((size_t)n * sizeof *l->listed);
        l->chunk[l->n_chunks++] = mem_alloc(CHUNK * sizeof(struct local_post));
        out[r] = &l->tp;
    }
    return 0;
}

void tp_local_delay(struct tp *t, uint64_t seed, unsigned min_us, unsigned max_us)
{
    struct local *l = local_of(t);
    l->random = (seed + 1) * 0x9e3779b97f4a7c15ull ^ (uint64_t)(l->me + 1) << 32;
    l->min_us = min_us;
    l->max_us = max_us;
}
