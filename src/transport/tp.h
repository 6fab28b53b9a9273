/* A transport: moves border tensors between ranks, and small control values. One file tp_NAME.c with one `const struct
 * tp_ops tp_NAME`, its name in TRANSPORTS.
 *
 * Who may use it: exec and train/setup. Thread: one per rank, the executor's; abort alone may be called from any
 * thread. Contract: a post never blocks. A link (ordered rank pair) is first in first out; both sides post in plan
 * order, which plan_check proved. Posts are matched by their order; the header (struct tp_tag) is only compared on
 * receipt. From post to completion the buffer belongs to the transport. The header arrives before the payload
 * ("announced"), which tells waiting from transferring. After abort only close is legal.
 *
 * Device transports move device memory. They are attached to the stream (stream) that computes and order themselves by
 * events: a post counts as made when that stream gets to it, and its end can be QUEUED, which means that it will come
 * on a stream of the transport's own. join makes the computing stream wait for that end, so the host need not. A QUEUED
 * post becomes DONE by itself; a DONE post needs no join.
 *
 * This folder: a transport a file; what several share: memory that ranks of a host map (tp_shm.c), connecting
 * (tp_handshake.c), events and staging of devices (tp_device.c). See docs/design/transport.md. */
#ifndef TRANSPORT_TP_H
#define TRANSPORT_TP_H
#include <stdbool.h>
#include <stdint.h>
#include "base/err.h"
#include "base/text.h"

struct tp;
/* 32 bytes, compared whole but for digest, which is the transport's own: of the payload, where that goes through memory
 * and wires of hosts; 0: none. */
struct tp_tag { uint64_t step; uint32_t plan, chan; uint16_t mb, samples; uint32_t digest; uint64_t bytes; };

/* For transports: sets e to 70, saying what `rank` expected from rank `from` and what came, unless both are equal.
 * Returns 0 or -1. */
int tp_tag_check(int rank, int from, const struct tp_tag *want, const struct tp_tag *got, struct err *e);
/* For transports: 32 bits of the payload's XXH3-64, never 0. tp_digest_next: of a payload in pieces, the next one
 * behind those that gave `before`, 0 for the first; both ends cut alike. */
uint32_t tp_digest(const void *payload, size_t bytes);
uint32_t tp_digest_next(uint32_t before, const void *piece, size_t bytes);

/* For host transports: a queue of messages, oldest first, and messages whose memory is used again. A message begins
 * with a tp_held. new: one with room for `bytes` behind its first `head` bytes; pop: the oldest becomes spare. */
struct tp_held { struct tp_held *next; size_t room; };
struct tp_box { struct tp_held *first, *last, *spare; };
void *tp_box_new(struct tp_box *b, size_t head, size_t bytes);
void tp_box_add(struct tp_box *b, void *message);
void tp_box_pop(struct tp_box *b);
void tp_box_spare(struct tp_box *b, void *message);
void tp_box_free(struct tp_box *b);

/* States of a post, in this order; sends are never ANNOUNCED, host transports never QUEUED. */
enum tp_state { TP_WAITING, TP_ANNOUNCED, TP_QUEUED, TP_DONE };
/* Handle of a post; slot < 0: none. damaged: of a receive, set by test from TP_QUEUED on: what came is not what was
 * sent, and the buffer is filled with zeros instead. Set at TP_DONE: at of post_get; read_ns, of what was copied out
 * of its sender's memory, how long that took this rank; 0: it was not. */
struct tp_req { int slot; bool damaged; const void *at; uint64_t read_ns; };
/* The use of a link: the most posts that are open at a time, the most bytes of one. peer TP_ALL, send: of post_sum,
 * whose ranks are the members, of which this is one, for all of them in the same order; borrowed by attach. */
enum { TP_ALL = -1 };
struct tp_use { int peer; bool send; int posts; size_t bytes; const int *member; int members; };

/* The places of ranks. gpu, host: of each rank, equal numbers mean the same one; name: of this rank's host. */
struct tp_seats { const int *gpu, *host; char name[72]; };
/* Settings of device transports; what seats points to is copied. patience_ns: the longest time without movement once
 * the lanes of both ends have come to a transfer, or without an answer of the other end; time in which nobody called
 * progress does not count. connect_ns: how long a link may take to connect, 0: a minute. max_ctas: the most blocks of
 * threads of one link's transfers; the rest of the GPU is for kernels. */
struct tp_request {
    struct tp_seats seats;
    uint64_t patience_ns, connect_ns;
    int max_ctas;
    bool alone;                                          /* the only rank in its process: NCCL's log is about it */
};

/* A message to recv_msg: from rank `from` (-1: any), at most `max` bytes into p. n: its length, which may be larger. */
struct tp_message { int from, stream; void *p; size_t max, n; };

struct tp_ops {
    const char *name, *text;
    /* Device transports; NULL in others. Opens one on `inner`, a host transport that carries headers, ids and small
     * messages, and is closed with it. */
    int (*over)(struct tp *inner, const struct tp_request *q, struct tp **out, struct err *e);
    /* NULL, or: adds the library that it uses, with its version, and what is known to be wrong with that version, if
     * anything. Starts nothing. */
    void (*library)(struct text *name, struct text *wrong);
    int (*rank)(struct tp *t); int (*size)(struct tp *t);
    int (*post_send)(struct tp *t, int to, const struct tp_tag *tag, const void *buf, struct tp_req *out,
                     struct err *e);
    int (*post_recv)(struct tp *t, int from, const struct tp_tag *tag, void *buf, struct tp_req *out, struct err *e);
    /* Host transports; NULL in others. As post_recv, but when test says TP_DONE, which does not free the handle,
     * out->at is where the payload lies: in buf, or where the sender has it, if this rank can read it there.
     * get_release frees the handle, and only then is the send complete; in any order. */
    int (*post_get)(struct tp *t, int from, const struct tp_tag *tag, void *buf, struct tp_req *out, struct err *e);
    void (*get_release)(struct tp *t, struct tp_req *r);
    /* Optional, of host transports: memory that other ranks of the host can read where it lies. room: zeroed, the
     * transport's until close, at most once; NULL: there is none. Not collective. meet: collective, behind all rooms
     * and before any post, with those ranks (NULL: all), which want it, too; from then on what is sent out of a room to
     * a rank that reads it is not sent, but copied there by the receiver or lent to it, without a digest. reads: what
     * is sent to that rank, and by it? */
    void *(*room)(struct tp *t, size_t bytes);
    int (*meet)(struct tp *t, const bool *with, struct err *e);
    bool (*reads)(struct tp *t, int peer);
    /* Optional, of device transports: floats at buf become their sums over all members of this rank's group (tp_use),
     * which post the same sums in the same order. In which order they are added is the transport's. The tag is only
     * this rank's. NULL: there are no sums. */
    int (*post_sum)(struct tp *t, const struct tp_tag *tag, void *buf, struct tp_req *out, struct err *e);
    /* Drives everything posted; cheap enough to call between kernels. Returns 0, or -1 with e (mismatched tag: 70; peer
     * lost: 69; aborted: 75). A device transport that has failed says so again at each call, but still says and hears
     * small messages. */
    int (*progress)(struct tp *t, struct err *e);
    /* State of a post; TP_DONE frees the handle (sets slot to -1). Does not progress. */
    enum tp_state (*test)(struct tp *t, struct tp_req *r);
    /* Collectives at step borders: sum of n doubles over all ranks, each term added in rank order (entries that only
     * one rank sets are exact); broadcast from rank 0; blocking until done or aborted. */
    int (*reduce)(struct tp *t, double *x, int n, struct err *e);
    int (*bcast)(struct tp *t, void *p, size_t bytes, struct err *e);
    /* Small messages outside the plan: orders from rank 0 (to = each), reports and state tensors to rank 0. Each stream
     * (0 to TP_STREAMS - 1) is first in first out by itself. send_msg copies and never blocks; recv_msg returns 1 and
     * fills m in, or 0 if nothing is there. */
    int (*send_msg)(struct tp *t, int to, int stream, const void *p, size_t bytes, struct err *e);
    int (*recv_msg)(struct tp *t, struct tp_message *m, struct err *e);
    /* Device transports; NULL in others. attach: once before any post, on the thread and device of the stream; use: all
     * links of this rank, so that posts allocate nothing. Collective. 69, on all ranks and with one cause where they
     * need each other. join: of a QUEUED post; frees the handle as DONE does. idle: whether all posts of this rank are
     * done, also joined ones; until then somebody must call progress, because other ranks may need it. */
    int (*attach)(struct tp *t, void *stream, const struct tp_use *use, int n, struct err *e);
    int (*join)(struct tp *t, struct tp_req *r, struct err *e);
    bool (*idle)(struct tp *t);
    /* NULL if there is only one way. After attach or meet, for the i-th link on which this rank sends: to which rank,
     * and by which way, "P2P/CUMEM" in NCCL's words; "" if unknown. Of host transports only links whose way is not the
     * usual one. False: there are not so many. via is valid until close. */
    bool (*via)(struct tp *t, int i, int *to, const char **via);
    /* Wakes all ranks; mpi ends the job with that exit code. */
    void (*abort)(struct tp *t, int code);
    void (*close)(struct tp *t);
};
/* Streams 0 to TP_UNDER - 1 are the callers'. UNDER, WATCH: for transports that stand on another one. */
enum { TP_UNDER = 6, TP_WATCH, TP_STREAMS };
struct tp { const struct tp_ops *ops; };                 /* first member of every transport's own struct */
extern const struct tp_ops *const tp_list[];             /* tp_list.c: the built ones, NULL-terminated */
const struct tp_ops *tp_find(const char *name);          /* NULL where it is not built */

/* local: n ranks as threads of one process. Returns n handles. */
int tp_local_open(int n, struct tp **out, struct err *e);
/* For tests: random delays before deliveries to this rank. */
void tp_local_delay(struct tp *t, uint64_t seed, unsigned min_us, unsigned max_us);
/* staged: tensors go through pinned host memory and the host transport. nccl: from one device to the other; between
 * ranks that share a GPU by sockets, which is slow. */
extern const struct tp_ops tp_staged, tp_nccl;
/* mpi. tp_mpi_tune: called before MPI_Init; sets defaults of Open MPI in the environment, unless the user has set them.
 * MPI_Init_thread (SERIALIZED) and MPI_Finalize are the caller's; comm_f is MPI_Comm_c2f(communicator to duplicate). */
void tp_mpi_tune(void);
int tp_mpi_open(int comm_f, struct tp **out, struct err *e);
/* For tests: the largest single message instead of 1 GiB; the same on all ranks, before any post. */
void tp_mpi_pieces(struct tp *t, size_t bytes);

#endif
