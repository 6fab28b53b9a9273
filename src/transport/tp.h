/* A transport moves border tensors between ranks, and small control values. One file tp_NAME.c with one `const struct
 * tp_ops tp_NAME`; its name is in TRANSPORTS.
 *
 * Users: exec and train/setup. Thread: one per rank, the executor's; only abort may be called from any thread.
 * Contract: a post never blocks. A link (ordered rank pair) is first in, first out; both ends post in plan order, which
 * plan_check proved. Posts are matched by their order; the receiver only compares the header (struct tp_tag). From post
 * to completion the buffer belongs to the transport. The header arrives before the payload ("announced"), so callers
 * can separate waiting from transferring. After abort only close is legal.
 *
 * Device transports move device memory. They are attached to the computing stream and order themselves by events. A
 * post counts as made when that stream reaches it. Its end can be QUEUED: it will come on one of the transport's own
 * streams. join makes the computing stream wait for that end, so the host need not wait. A QUEUED post becomes DONE by
 * itself; a DONE post needs no join.
 *
 * This folder: one file for each transport, and shared parts: memory that ranks of a host map (tp_shm.c), connecting
 * (tp_handshake.c), events and staging of devices (tp_device.c). See docs/design/transport.md. */
#ifndef TRANSPORT_TP_H
#define TRANSPORT_TP_H
#include <stdbool.h>
#include <stdint.h>
#include "base/err.h"
#include "base/text.h"

struct tp;
/* 32 bytes. The receiver compares all but digest. The transport sets digest, of a payload that goes through memory and
 * wires of hosts; 0: none. */
struct tp_tag { uint64_t step; uint32_t plan, chan; uint16_t mb, samples; uint32_t digest; uint64_t bytes; };

/* For transports: sets e to 70 with what `rank` expected from rank `from` and what arrived, unless both are equal.
 * Returns 0 or -1. */
int tp_tag_check(int rank, int from, const struct tp_tag *want, const struct tp_tag *got, struct err *e);
/* For transports: 32 bits of the payload's XXH3-64, never 0. tp_digest_next: for a payload in pieces, adds the next
 * piece to `before`, which is 0 for the first piece. Both ends cut the payload alike. */
uint32_t tp_digest(const void *payload, size_t bytes);
uint32_t tp_digest_next(uint32_t before, const void *piece, size_t bytes);

/* For host transports: a queue of messages, oldest first, and spare messages whose memory is reused. A message begins
 * with a tp_held. new: returns a message with space for `bytes` after its first `head` bytes. pop: makes the oldest
 * message spare. */
struct tp_held { struct tp_held *next; size_t space; };
struct tp_box { struct tp_held *first, *last, *spare; };
void *tp_box_new(struct tp_box *b, size_t head, size_t bytes);
void tp_box_add(struct tp_box *b, void *message);
void tp_box_pop(struct tp_box *b);
void tp_box_spare(struct tp_box *b, void *message);
void tp_box_free(struct tp_box *b);

/* States of a post, in this order; sends are never ANNOUNCED, host transports never QUEUED. */
enum tp_state { TP_WAITING, TP_ANNOUNCED, TP_QUEUED, TP_DONE };
/* Handle of a post; slot < 0: none. damaged: set by test from TP_QUEUED on. The received payload differs from the sent
 * one, and the buffer is filled with zeros. Set at TP_DONE: `at`, of post_get; read_ns, the time in which this rank
 * copied the payload out of the sender's memory; 0: it did not. */
struct tp_req { int slot; bool damaged; const void *at; uint64_t read_ns; };
/* The use of a link: the most open posts, the most bytes of one. With peer TP_ALL and send: post_sum over the ranks in
 * `member`. This rank is one of them; all of them use the same order. attach borrows the list. */
enum { TP_ALL = -1 };
struct tp_use { int peer; bool send; int posts; size_t bytes; const int *member; int members; };

/* The places of ranks. gpu, host: of each rank; equal numbers mean the same GPU or host. name: of this rank's host. */
struct tp_seats { const int *gpu, *host; char name[72]; };
/* Settings of device transports; what seats points to is copied. patience_ns: the longest time without movement after
 * the streams of both ends reached a transfer, or without an answer of the other end. Time in which progress is not
 * called does not count. connect_ns: how long a link may take to connect, 0: a minute. max_ctas: the most thread blocks
 * for one link's transfers; kernels use the rest of the GPU. */
struct tp_request {
    struct tp_seats seats;
    uint64_t patience_ns, connect_ns;
    int max_ctas;
    bool alone;                                          /* the only rank in its process, so NCCL's log is its own */
};

/* A message for recv_msg: from rank `from` (-1: any), at most `max` bytes into p. n: its length, which may exceed
 * max. */
struct tp_message { int from, stream; void *p; size_t max, n; };

struct tp_ops {
    const char *name, *text;
    /* Device transports; NULL in others. Opens one on `inner`, a host transport that carries headers, ids and small
     * messages. Closing it closes `inner`. */
    int (*over)(struct tp *inner, const struct tp_request *q, struct tp **out, struct err *e);
    /* NULL, or: adds the library's name and version to `name`, and known faults of that version to `wrong`. Starts
     * nothing. */
    void (*library)(struct text *name, struct text *wrong);
    int (*rank)(struct tp *t); int (*size)(struct tp *t);
    int (*post_send)(struct tp *t, int to, const struct tp_tag *tag, const void *buf, struct tp_req *out,
                     struct err *e);
    int (*post_recv)(struct tp *t, int from, const struct tp_tag *tag, void *buf, struct tp_req *out, struct err *e);
    /* Host transports; NULL in others. As post_recv, but TP_DONE does not free the handle: out->at is the payload's
     * address, in buf, or in the sender's memory if this rank can read it there. get_release frees the handle, in any
     * order; only then is the send complete. */
    int (*post_get)(struct tp *t, int from, const struct tp_tag *tag, void *buf, struct tp_req *out, struct err *e);
    void (*get_release)(struct tp *t, struct tp_req *r);
    /* Optional, of host transports: memory that other ranks of the host can read in place. window: zeroed memory that
     * the transport owns until close; at most once; NULL: not available. Not collective. meet: collective, after all
     * calls of window and before any post, with the ranks `with` (NULL: all), which call it, too. From then on a
     * payload in that memory is not sent to a rank that reads it: the receiver copies or borrows it there, without a
     * digest. reads: do this rank and `peer` read each other's memory? */
    void *(*window)(struct tp *t, size_t bytes);
    int (*meet)(struct tp *t, const bool *with, struct err *e);
    bool (*reads)(struct tp *t, int peer);
    /* Optional, of device transports: replaces the floats at buf by their sums over all members of this rank's group
     * (tp_use). The members post the same sums in the same order. The transport chooses the order of the additions. The
     * tag is only for this rank. NULL: no sums. */
    int (*post_sum)(struct tp *t, const struct tp_tag *tag, void *buf, struct tp_req *out, struct err *e);
    /* Drives all posts; cheap enough to call between kernels. Returns 0, or -1 with e (mismatched tag: 70; peer lost:
     * 69; aborted: 75). A failed device transport returns the same error at each call, but still sends and receives
     * small messages. */
    int (*progress)(struct tp *t, struct err *e);
    /* State of a post; TP_DONE frees the handle (sets slot to -1). Does not call progress. */
    enum tp_state (*test)(struct tp *t, struct tp_req *r);
    /* Collectives at step borders. reduce: sum of n doubles over all ranks, added in rank order (entries that only one
     * rank sets are exact). bcast: from rank 0. Both block until done or aborted. */
    int (*reduce)(struct tp *t, double *x, int n, struct err *e);
    int (*bcast)(struct tp *t, void *p, size_t bytes, struct err *e);
    /* Small messages outside the plan: orders from rank 0 (to = each), reports and state tensors to rank 0. Each stream
     * (0 to TP_STREAMS - 1) is first in, first out. send_msg copies and never blocks. recv_msg returns 1 and fills m,
     * or 0 if there is no message. */
    int (*send_msg)(struct tp *t, int to, int stream, const void *p, size_t bytes, struct err *e);
    int (*recv_msg)(struct tp *t, struct tp_message *m, struct err *e);
    /* Device transports; NULL in others. attach: once, before any post, on the thread and device of the stream. use:
     * all links of this rank, so that posts allocate nothing. Collective. 69; ranks that need each other all fail with
     * one cause. join: of a QUEUED post; frees the handle, as DONE does. idle: are all posts of this rank done, joined
     * ones included? Until then the rank must call progress, because other ranks may need it. */
    int (*attach)(struct tp *t, void *stream, const struct tp_use *use, int n, struct err *e);
    int (*join)(struct tp *t, struct tp_req *r, struct err *e);
    bool (*idle)(struct tp *t);
    /* NULL if there is only one way. After attach or meet: the peer and the way of the i-th link on which this rank
     * sends; "P2P/CUMEM" in NCCL's words, "" if unknown. Host transports list only links with an unusual way. False:
     * there are fewer links. via is valid until close. */
    bool (*via)(struct tp *t, int i, int *to, const char **via);
    /* Wakes all ranks; mpi ends the job with that exit code. */
    void (*abort)(struct tp *t, int code);
    void (*close)(struct tp *t);
};
/* Streams 0 to TP_UNDER - 1 are the callers'. UNDER, WATCH: for transports on top of another transport. */
enum { TP_UNDER = 6, TP_WATCH, TP_STREAMS };
struct tp { const struct tp_ops *ops; };                 /* first member of every transport's own struct */
extern const struct tp_ops *const tp_list[];             /* tp_list.c: the built ones, NULL-terminated */
const struct tp_ops *tp_find(const char *name);          /* NULL if it is not built */

/* local: n ranks as threads of one process. Returns n handles. */
int tp_local_open(int n, struct tp **out, struct err *e);
/* For tests: random delays before deliveries to this rank. */
void tp_local_delay(struct tp *t, uint64_t seed, unsigned min_us, unsigned max_us);
/* staged: tensors go through pinned host memory and the host transport. nccl: from device to device; between ranks that
 * share a GPU by sockets, which is slow. */
extern const struct tp_ops tp_staged, tp_nccl;
/* mpi. Call tp_mpi_tune before MPI_Init: it sets defaults of Open MPI in the environment; the user's settings win. The
 * caller calls MPI_Init_thread (SERIALIZED) and MPI_Finalize. comm_f is MPI_Comm_c2f(communicator to duplicate). */
void tp_mpi_tune(void);
int tp_mpi_open(int comm_f, struct tp **out, struct err *e);
/* For tests: the largest single message instead of 1 GiB; the same on all ranks, before any post. */
void tp_mpi_pieces(struct tp *t, size_t bytes);

#endif
