/* The MPI transport: ranks are processes.
 *
 * A transfer is a header and then the payload. The sender posts both at once, on one communicator with two tags. The
 * receiver posts the receive of the header. When the header has arrived, it compares it and posts the receives of the
 * payload, in the order of headers, which is posting order. MPI messages do not overtake each other, so every link
 * stays first in, first out. Collectives and messages have their own communicator.
 *
 * The header has a digest of the payload, which the receiver compares when the payload is complete. Sums and messages
 * end with their own digest; broadcasts have none. If the receiver reads the payload in a window (tp_shm.h), it is not
 * sent: the header then has its place, and the digest of the place.
 *
 * On one host Open MPI's shared memory transport lets the receiver copy once out of the sender's memory (CMA), inside
 * the progress call that sees the header. A transfer then needs one call at each end, so a call between kernels is
 * enough. If the kernel forbids CMA (some containers), payloads go through shared memory in fragments, a few for each
 * call. tp_mpi_tune makes fragments large: five calls for 10 MiB, not a hundred. */
#include <mpi.h>
#include <sched.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include "base/clock.h"
#include "base/deadline.h"
#include "base/mem.h"
#include "base/proc.h"
#include "transport/tp.h"
#include "transport/tp_shm.h"

enum { TAG_HEADER = 1, TAG_PAYLOAD, TAG_GATHER, TAG_SUM, TAG_STREAM };
enum { CHUNK = 256, MAX_CHUNKS = 256, MAX_PIECES = 32 };
/* MPI counts are ints, so payloads are sent in pieces. A piece that has just been copied is still in a core's cache
 * when its digest is computed. */
static const size_t piece_default = (size_t)1 << 30, piece_cached = (size_t)1 << 18;

/* Sent before a payload. place: where the payload is in the sender's window, which the receiver reads (tp_shm.h); 0:
 * the payload follows. */
struct mpi_head { struct tp_tag tag; uint64_t place; };

struct mpi_post {
    struct mpi_head head, came;                          /* came: the received header */
    void *buf;
    /* of a receive: the payload's address, in buf or in a window */
    const void *at;
    size_t piece_bytes;                                  /* of all pieces but the last */
    int peer, n_pieces, next;                            /* next: slot of the next post in its list, -1: none */
    int n_posted, n_here;                                /* pieces of a receive: posted; here and in its digest */
    uint32_t digest;                                     /* of the pieces that are here */
    uint64_t lent;                                       /* of a loan: its number on its link, from 1 */
    uint64_t read_ns;                                    /* time to copy it */
    bool used, damaged, borrows;
    enum tp_state state;
    MPI_Request header, piece[MAX_PIECES];
};
struct list { int first, last; };
struct mpi_message { struct tp_held held; MPI_Request req; unsigned char bytes[]; };

struct mpi {
    struct tp tp;
    MPI_Comm data, side;
    int me, n;
    size_t piece;
    struct mpi_post *chunk[MAX_CHUNKS]; int n_chunks;    /* requests point into posts, so posts do not move */
    struct list *sends, *recvs;                          /* of each peer, in posting order: posts that are not done */
    struct tp_shm *windows;
    uint64_t *lent;                                      /* number of loans to each peer so far */
    int n_open;                                          /* posts in those lists */
    struct tp_box said;                                  /* messages being sent */
    double *own, *other; size_t cap;                     /* numbers of a sum, with space for a digest */
    atomic_int stopped;
};

static struct mpi *mpi_of(struct tp *t) { return (struct mpi *)t; }
static int mpi_rank(struct tp *t) { return mpi_of(t)->me; }
static int mpi_size(struct tp *t) { return mpi_of(t)->n; }

static int mpi_fail(const struct mpi *m, int code, const char *what, struct err *e)
{
    char text[MPI_MAX_ERROR_STRING];
    int n;
    MPI_Error_string(code, text, &n);
    return err_set(e, E_DEVICE, "rank %d: MPI failed while %s: %.*s", m->me, what, n, text);
}

#define MPI_TRY(m, e, what, call) \
    do { \
        int code_ = (call); \
        if (code_ != MPI_SUCCESS) return mpi_fail(m, code_, what, e); \
    } while (0)

static int stopped(struct mpi *m, struct err *e)
{
    int code = atomic_load_explicit(&m->stopped, memory_order_relaxed);
    return code ? err_set(e, E_STOPPED, "the job was stopped with code %d", code) : 0;
}

/* ---- posts ----------------------------------------------------------------------------------- */

static struct mpi_post *post_at(const struct mpi *m, int slot) { return &m->chunk[slot / CHUNK][slot % CHUNK]; }

/* Finds a free slot; takes a new chunk only if there are more posts than ever before. */
static int slot_find(struct mpi *m, struct err *e)
{
    for (int i = 0; i < m->n_chunks * CHUNK; i++) if (!post_at(m, i)->used) return i;
    if (m->n_chunks == MAX_CHUNKS)
        return err_set(e, E_INTERNAL, "rank %d has more than %d open transfers", m->me, MAX_CHUNKS * CHUNK);
    m->chunk[m->n_chunks++] = mem_alloc(CHUNK * sizeof(struct mpi_post));
    return (m->n_chunks - 1) * CHUNK;
}

/* Both ends cut a payload alike. */
static size_t piece_of(const struct mpi *m, size_t bytes)
{
    size_t piece = (bytes + MAX_PIECES - 1) / MAX_PIECES;
    if (piece < piece_cached) piece = piece_cached;
    return piece < m->piece ? piece : m->piece;
}

static struct mpi_post *post_new(struct mpi *m, int peer, const struct tp_tag *tag, void *buf, int *slot, struct err *e)
{
    if (peer < 0 || peer >= m->n || peer == m->me)
        return err_set(e, E_INTERNAL, "rank %d has no link with rank %d", m->me, peer), NULL;
    size_t piece = piece_of(m, tag->bytes), pieces = (tag->bytes + piece - 1) / piece;
    if (pieces > MAX_PIECES)
        return err_set(e, E_INTERNAL, "a transfer of %zu bytes is too large", (size_t)tag->bytes), NULL;
    if (stopped(m, e) || (*slot = slot_find(m, e)) < 0) return NULL;
    struct mpi_post *p = post_at(m, *slot);
    p->head = (struct mpi_head){.tag = *tag};
    p->buf = buf;
    p->peer = peer;
    p->piece_bytes = piece;
    p->n_pieces = (int)pieces;
    p->n_posted = p->n_here = 0;
    p->digest = 0;
    p->lent = p->read_ns = 0;
    p->next = -1;
    p->used = true;
    p->damaged = p->borrows = false;
    p->state = TP_WAITING;
    for (int i = 0; i < p->n_pieces; i++) p->piece[i] = MPI_REQUEST_NULL;
    return p;
}

static void list_push(struct mpi *m, struct list *l, int slot)
{
    if (l->first < 0) l->first = slot;
    else post_at(m, l->last)->next = slot;
    l->last = slot;
    m->n_open++;
}

static void *piece_at(const struct mpi_post *p, int i) { return (char *)p->buf + (size_t)i * p->piece_bytes; }

static int piece_size(const struct mpi_post *p, int i)
{
    size_t left = p->head.tag.bytes - (size_t)i * p->piece_bytes;
    return (int)(left < p->piece_bytes ? left : p->piece_bytes);
}

static void piece_digest(struct mpi_post *p, int i)
{
    p->digest = tp_digest_next(p->digest, piece_at(p, i), (size_t)piece_size(p, i));
}

static int mpi_post_send(struct tp *t, int to, const struct tp_tag *tag, const void *buf, struct tp_req *out,
                         struct err *e)
{
    struct mpi *m = mpi_of(t);
    struct mpi_post *p = post_new(m, to, tag, (void *)(uintptr_t)buf, &out->slot, e);
    if (!p) return -1;
    p->head.place = tp_shm_place(m->windows, to, buf, tag->bytes);
    if (p->head.place) {
        p->lent = ++m->lent[to];
        p->n_pieces = 0;
        p->digest = tp_digest(&p->head.place, sizeof p->head.place);
    }
    for (int i = 0; i < p->n_pieces; i++) piece_digest(p, i);
    p->head.tag.digest = p->digest;
    MPI_TRY(m, e, "sending", MPI_Isend(&p->head, sizeof p->head, MPI_BYTE, to, TAG_HEADER, m->data, &p->header));
    for (int i = 0; i < p->n_pieces; i++)
        MPI_TRY(m, e, "sending",
                MPI_Isend(piece_at(p, i), piece_size(p, i), MPI_BYTE, to, TAG_PAYLOAD, m->data, &p->piece[i]));
    list_push(m, &m->sends[to], out->slot);
    return 0;
}

static int mpi_post_recv(struct tp *t, int from, const struct tp_tag *tag, void *buf, struct tp_req *out, struct err *e)
{
    struct mpi *m = mpi_of(t);
    struct mpi_post *p = post_new(m, from, tag, buf, &out->slot, e);
    if (!p) return -1;
    MPI_TRY(m, e, "receiving", MPI_Irecv(&p->came, sizeof p->came, MPI_BYTE, from, TAG_HEADER, m->data, &p->header));
    list_push(m, &m->recvs[from], out->slot);
    return 0;
}

static int mpi_post_get(struct tp *t, int from, const struct tp_tag *tag, void *buf, struct tp_req *out,
                        struct err *e)
{
    if (mpi_post_recv(t, from, tag, buf, out, e)) return -1;
    post_at(mpi_of(t), out->slot)->borrows = true;
    return 0;
}

static void mpi_get_release(struct tp *t, struct tp_req *r)
{
    struct mpi *m = mpi_of(t);
    struct mpi_post *p = post_at(m, r->slot);
    if (p->lent) tp_shm_return(m->windows, p->peer, p->lent);
    p->used = false;
    r->slot = -1;
}

/* Only tensors can be sent again. This message belongs to an order, a verdict, the end, or a tensor's place. */
static int other_came(const struct mpi *m, int from, struct err *e)
{
    return err_set(e, E_DEVICE, "rank %d: a message of rank %d was corrupted in transfer; suspect the memory or the "
                                "network", m->me,
                   from);
}

/* Takes a loan: the header has the payload's place in its sender's window. */
static int loan_take(struct mpi *m, struct mpi_post *p, struct err *e)
{
    p->digest = tp_digest(&p->came.place, sizeof p->came.place);
    if (p->digest != p->came.tag.digest) return other_came(m, p->peer, e);
    p->at = tp_shm_at(m->windows, p->peer, p->came.place, p->head.tag.bytes);
    p->lent = p->at ? tp_shm_take(m->windows, p->peer) : 0;
    if (!p->lent) return err_set(e, E_INTERNAL, "rank %d cannot read what rank %d lends", m->me, p->peer);
    p->n_pieces = 0;
    return 0;
}

static int piece_receive(struct mpi *m, struct mpi_post *p, struct err *e)
{
    int i = p->n_posted++;
    MPI_TRY(m, e, "receiving",
            MPI_Irecv(piece_at(p, i), piece_size(p, i), MPI_BYTE, p->peer, TAG_PAYLOAD, m->data, &p->piece[i]));
    return 0;
}

/* Adds the pieces that are here to the digest. A piece copied at once out of the sender's memory is still in a cache
 * then, so the next piece is posted after its digest. If a piece is not here yet, all others are posted, too. */
static int pieces_receive(struct mpi *m, struct mpi_post *p, struct err *e)
{
    p->state = TP_ANNOUNCED;
    p->at = p->buf;
    if (p->came.place && loan_take(m, p, e)) return -1;
    while (p->n_here < p->n_pieces) {
        int done;
        if (p->n_here == p->n_posted && piece_receive(m, p, e)) return -1;
        MPI_TRY(m, e, "receiving", MPI_Test(&p->piece[p->n_here], &done, MPI_STATUS_IGNORE));
        if (!done) break;
        piece_digest(p, p->n_here++);
    }
    while (p->n_posted < p->n_pieces) if (piece_receive(m, p, e)) return -1;
    return 0;
}

/* *done: all pieces are complete. Completed requests are MPI_REQUEST_NULL and are not tested again. */
static int pieces_test(struct mpi *m, struct mpi_post *p, int *done, struct err *e)
{
    *done = 1;
    for (int i = 0; i < p->n_pieces && *done; i++)
        if (p->piece[i] != MPI_REQUEST_NULL)
            MPI_TRY(m, e, "transferring", MPI_Test(&p->piece[i], done, MPI_STATUS_IGNORE));
    return 0;
}

/* Removes posts that are done from the front of a list. */
static void list_trim(struct mpi *m, struct list *l)
{
    while (l->first >= 0 && post_at(m, l->first)->state == TP_DONE) {
        l->first = post_at(m, l->first)->next;
        m->n_open--;
    }
}

/* Transfers of a link finish in order, so this stops at the first one that is not complete. */
static int sends_drive(struct mpi *m, struct list *l, struct err *e)
{
    for (int slot = l->first; slot >= 0; slot = post_at(m, slot)->next) {
        struct mpi_post *p = post_at(m, slot);
        int done = 1;
        if (p->header != MPI_REQUEST_NULL) MPI_TRY(m, e, "sending", MPI_Test(&p->header, &done, MPI_STATUS_IGNORE));
        if (done && pieces_test(m, p, &done, e)) return -1;
        if (!done || (p->lent && tp_shm_returned(m->windows, p->peer) < p->lent)) break;
        p->state = TP_DONE;
    }
    list_trim(m, l);
    return 0;
}

/* Memory and wires may change bits without any layer below noticing, so the digest is compared. */
static void recv_end(struct mpi *m, struct mpi_post *p)
{
    if (p->lent && !p->borrows) {
        uint64_t began = clock_ns();
        memcpy(p->buf, p->at, p->head.tag.bytes);
        tp_shm_return(m->windows, p->peer, p->lent);
        p->read_ns = clock_ns() - began;
    }
    while (p->n_here < p->n_pieces) piece_digest(p, p->n_here++);
    p->damaged = p->digest != p->came.tag.digest;
    if (p->damaged) memset(p->buf, 0, p->head.tag.bytes);
    p->state = TP_DONE;
}

static int recvs_drive(struct mpi *m, int from, struct err *e)
{
    struct list *l = &m->recvs[from];
    int all = 1;                                         /* so far: posts leave the list only from its front */
    for (int slot = l->first; slot >= 0; slot = post_at(m, slot)->next) {
        struct mpi_post *p = post_at(m, slot);
        int here = 1;
        if (p->state == TP_WAITING) {
            MPI_TRY(m, e, "receiving", MPI_Test(&p->header, &here, MPI_STATUS_IGNORE));
            if (!here) break;                            /* nor is any later header */
            if (tp_tag_check(m->me, from, &p->head.tag, &p->came.tag, e) || pieces_receive(m, p, e)) return -1;
        }
        if (pieces_test(m, p, &here, e)) return -1;
        all = all && here;
        if (all) recv_end(m, p);
    }
    list_trim(m, l);
    return 0;
}

/* Frees the buffers of completed messages. */
static int said_drive(struct mpi *m, struct err *e)
{
    while (m->said.first) {
        struct mpi_message *s = (struct mpi_message *)m->said.first;
        int done;
        MPI_TRY(m, e, "sending a message", MPI_Test(&s->req, &done, MPI_STATUS_IGNORE));
        if (!done) return 0;
        tp_box_pop(&m->said);
    }
    return 0;
}

static int mpi_progress(struct tp *t, struct err *e)
{
    struct mpi *m = mpi_of(t);
    if (stopped(m, e) || (m->said.first && said_drive(m, e))) return -1;
    for (int peer = 0; m->n_open && peer < m->n; peer++)
        if ((m->sends[peer].first >= 0 && sends_drive(m, &m->sends[peer], e)) ||
            (m->recvs[peer].first >= 0 && recvs_drive(m, peer, e)))
            return -1;
    return 0;
}

static enum tp_state mpi_test(struct tp *t, struct tp_req *r)
{
    if (r->slot < 0) return TP_DONE;
    struct mpi_post *p = post_at(mpi_of(t), r->slot);
    if (p->state != TP_DONE) return p->state;
    *r = (struct tp_req){r->slot, p->damaged, p->at, p->read_ns};
    if (p->borrows) return TP_DONE;
    p->used = false;
    r->slot = -1;
    return TP_DONE;
}

/* ---- collectives ----------------------------------------------------------------------------- */

/* Waits for a request while transfers continue. Yields, because ranks may outnumber cores. */
static int side_wait(struct mpi *m, MPI_Request *q, struct err *e)
{
    int done = 0;
    for (unsigned tries = 0; !done; tries++) {
        if (mpi_progress(&m->tp, e)) return -1;
        MPI_TRY(m, e, "meeting", MPI_Test(q, &done, MPI_STATUS_IGNORE));
        if (!done && tries > 200) sched_yield();
    }
    return 0;
}

/* n numbers, followed by space for their digest. */
static int doubles_send(struct mpi *m, double *x, int n, int to, int tag, struct err *e)
{
    MPI_Request q;
    x[n] = tp_digest(x, (size_t)n * sizeof *x);
    MPI_TRY(m, e, "meeting", MPI_Isend(x, n + 1, MPI_DOUBLE, to, tag, m->side, &q));
    return side_wait(m, &q, e);
}

static int doubles_recv(struct mpi *m, double *x, int n, int from, int tag, struct err *e)
{
    MPI_Request q;
    MPI_TRY(m, e, "meeting", MPI_Irecv(x, n + 1, MPI_DOUBLE, from, tag, m->side, &q));
    if (side_wait(m, &q, e)) return -1;
    return x[n] == tp_digest(x, (size_t)n * sizeof *x) ? 0 : other_came(m, from, e);
}

/* Rank 0 takes the terms in rank order, so the sum does not depend on the order of arrival. */
static int sum_gather(struct mpi *m, double *sum, int n, struct err *e)
{
    if (m->me)
        return doubles_send(m, sum, n, 0, TAG_GATHER, e) || doubles_recv(m, sum, n, 0, TAG_SUM, e) ? -1 : 0;
    for (int r = 1; r < m->n; r++) {
        if (doubles_recv(m, m->other, n, r, TAG_GATHER, e)) return -1;
        for (int i = 0; i < n; i++) sum[i] += m->other[i];
    }
    for (int r = 1; r < m->n; r++) if (doubles_send(m, sum, n, r, TAG_SUM, e)) return -1;
    return 0;
}

static int mpi_reduce(struct tp *t, double *x, int n, struct err *e)
{
    struct mpi *m = mpi_of(t);
    size_t bytes = (size_t)n * sizeof *x;
    if ((size_t)n + 1 > m->cap) {
        m->cap = (size_t)n + 1;
        m->own = mem_resize(m->own, m->cap * sizeof *x);
        m->other = mem_resize(m->other, m->cap * sizeof *x);
    }
    memcpy(m->own, x, bytes);
    if (sum_gather(m, m->own, n, e)) return -1;
    memcpy(x, m->own, bytes);
    return 0;
}

static int mpi_bcast(struct tp *t, void *p, size_t bytes, struct err *e)
{
    struct mpi *m = mpi_of(t);
    for (size_t at = 0; at < bytes; at += piece_default) {
        size_t n = bytes - at < piece_default ? bytes - at : piece_default;
        MPI_Request q;
        MPI_TRY(m, e, "meeting", MPI_Ibcast((char *)p + at, (int)n, MPI_BYTE, 0, m->side, &q));
        if (side_wait(m, &q, e)) return -1;
    }
    return 0;
}

/* ---- messages -------------------------------------------------------------------------------- */

static int mpi_send_msg(struct tp *t, int to, int stream, const void *p, size_t bytes, struct err *e)
{
    struct mpi *m = mpi_of(t);
    if (to < 0 || to >= m->n || stream < 0 || stream >= TP_STREAMS || bytes > INT32_MAX - sizeof(uint32_t))
        return err_set(e, E_INTERNAL, "rank %d cannot say %zu bytes to rank %d on stream %d", m->me, bytes, to, stream);
    if (stopped(m, e) || said_drive(m, e)) return -1;
    uint32_t digest = tp_digest(p, bytes);
    struct mpi_message *s = tp_box_new(&m->said, sizeof *s, bytes + sizeof digest);
    if (bytes) memcpy(s->bytes, p, bytes);
    memcpy(s->bytes + bytes, &digest, sizeof digest);
    tp_box_add(&m->said, s);
    MPI_TRY(m, e, "sending a message",
            MPI_Isend(s->bytes, (int)(bytes + sizeof digest), MPI_BYTE, to, TAG_STREAM + stream, m->side, &s->req));
    return 0;
}

/* Receives a whole message; its last bytes are its digest. */
static int message_take(struct mpi *m, MPI_Message *what, const MPI_Status *status, struct tp_message *heard,
                        struct err *e)
{
    int count;
    uint32_t digest;
    MPI_TRY(m, e, "listening", MPI_Get_count(status, MPI_BYTE, &count));
    if (count < (int)sizeof digest) return other_came(m, status->MPI_SOURCE, e);
    heard->n = (size_t)count - sizeof digest;
    struct mpi_message *s = tp_box_new(&m->said, sizeof *s, (size_t)count);
    int code = MPI_Mrecv(s->bytes, count, MPI_BYTE, what, MPI_STATUS_IGNORE);
    memcpy(&digest, s->bytes + heard->n, sizeof digest);
    bool sound = digest == tp_digest(s->bytes, heard->n);
    size_t n = heard->n < heard->max ? heard->n : heard->max;
    if (n) memcpy(heard->p, s->bytes, n);
    tp_box_spare(&m->said, s);
    if (code != MPI_SUCCESS) return mpi_fail(m, code, "receiving a message", e);
    return sound ? 1 : other_came(m, status->MPI_SOURCE, e);
}

static int mpi_recv_msg(struct tp *t, struct tp_message *h, struct err *e)
{
    struct mpi *m = mpi_of(t);
    MPI_Message what;
    MPI_Status status;
    int here, from = h->from < 0 ? MPI_ANY_SOURCE : h->from;
    if (h->from >= m->n || h->stream < 0 || h->stream >= TP_STREAMS)
        return err_set(e, E_INTERNAL, "rank %d has no stream %d from rank %d", m->me, h->stream, h->from);
    if (stopped(m, e)) return -1;
    MPI_TRY(m, e, "listening",
            MPI_Improbe(from, TAG_STREAM + h->stream, m->side, &here, &what, &status));
    if (!here) return 0;
    return message_take(m, &what, &status, h, e);
}

/* ---- windows --------------------------------------------------------------------------------- */

static void *mpi_window(struct tp *t, size_t bytes) { return tp_shm_make(mpi_of(t)->windows, bytes); }
static int mpi_meet(struct tp *t, const bool *with, struct err *e)
{
    return tp_shm_meet(mpi_of(t)->windows, t, with, e);
}
static bool mpi_reads(struct tp *t, int peer) { return tp_shm_reads(mpi_of(t)->windows, peer); }

/* Lists ranks of one host that send messages although they should share memory; the user should see them. */
static bool mpi_via(struct tp *t, int i, int *to, const char **via)
{
    *via = "messages, as memory cannot be shared";
    return tp_shm_shut(mpi_of(t)->windows, i, to);
}

/* ---- closing --------------------------------------------------------------------------------- */

static void mpi_abort(struct tp *t, int code)
{
    struct mpi *m = mpi_of(t);
    int none = 0;
    if (!code) code = E_INTERNAL;
    atomic_compare_exchange_strong(&m->stopped, &none, code);
    proc_stderr_wait();
    MPI_Abort(MPI_COMM_WORLD, code);               /* on another communicator MPICH waits for its ranks */
}

/* Delivers the remaining messages, if their receivers live; open transfers are abandoned. */
static void said_finish(struct mpi *m)
{
    uint64_t until = clock_ns() + DEADLINE_NS(DEADLINE_SAID);
    struct err none = {0};
    while (m->said.first && !said_drive(m, &none) && m->said.first && clock_ns() < until) sched_yield();
}

static void mpi_close(struct tp *t)
{
    struct mpi *m = mpi_of(t);
    said_finish(m);
    bool clean = !m->said.first && !m->n_open;
    /* otherwise MPI may still write to posts or read messages, so they are not freed */
    if (!clean) m->said.first = NULL;
    else {
        for (int i = 0; i < m->n_chunks; i++) free(m->chunk[i]);
        MPI_Comm_free(&m->data);
        MPI_Comm_free(&m->side);
    }
    tp_box_free(&m->said);
    free(m->sends);
    free(m->recvs);
    free(m->lent);
    tp_shm_free(m->windows);
    free(m->own);
    free(m->other);
    free(m);
}

extern const struct tp_ops tp_mpi;
const struct tp_ops tp_mpi = {
    .name = "mpi",
    .text = "ranks as processes under mpirun",
    .rank = mpi_rank,
    .size = mpi_size,
    .post_send = mpi_post_send,
    .post_recv = mpi_post_recv,
    .post_get = mpi_post_get,
    .get_release = mpi_get_release,
    .window = mpi_window,
    .meet = mpi_meet,
    .reads = mpi_reads,
    .via = mpi_via,
    .progress = mpi_progress,
    .test = mpi_test,
    .reduce = mpi_reduce,
    .bcast = mpi_bcast,
    .send_msg = mpi_send_msg,
    .recv_msg = mpi_recv_msg,
    .abort = mpi_abort,
    .close = mpi_close,
};

/* ---- opening --------------------------------------------------------------------------------- */

int tp_mpi_open(int comm_f, struct tp **out, struct err *e)
{
    struct mpi *m = mem_alloc(sizeof *m);
    MPI_Comm from = MPI_Comm_f2c(comm_f);
    m->tp.ops = &tp_mpi;
    m->piece = piece_default;
    MPI_Comm_rank(from, &m->me);
    MPI_Comm_size(from, &m->n);
    int code = MPI_Comm_dup(from, &m->data);
    if (code == MPI_SUCCESS) code = MPI_Comm_dup(from, &m->side);
    if (code != MPI_SUCCESS) {
        mpi_fail(m, code, "opening communicators", e);
        free(m);
        return -1;
    }
    MPI_Comm_set_errhandler(m->data, MPI_ERRORS_RETURN);
    MPI_Comm_set_errhandler(m->side, MPI_ERRORS_RETURN);
    m->sends = mem_alloc((size_t)m->n * sizeof *m->sends);
    m->recvs = mem_alloc((size_t)m->n * sizeof *m->recvs);
    m->lent = mem_alloc((size_t)m->n * sizeof *m->lent);
    m->windows = tp_shm_new(m->me, m->n);
    for (int i = 0; i < m->n; i++) m->sends[i].first = m->recvs[i].first = -1;
    m->chunk[m->n_chunks++] = mem_alloc(CHUNK * sizeof(struct mpi_post));
    *out = &m->tp;
    return 0;
}

void tp_mpi_pieces(struct tp *t, size_t bytes) { mpi_of(t)->piece = bytes; }
