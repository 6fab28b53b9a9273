/* What the transports of devices share: they stand on a host transport, keep to the computing lane by events, and serve
 * each link by a stream of its own.
 *
 * Who may use it: tp_staged.c, tp_nccl.c. Thread: the executor's, the one that attached; abort alone may come from any.
 * CUDA's current device is the one that the lane belongs to. After attach nothing is allocated. */
#ifndef TRANSPORT_TP_DEVICE_H
#define TRANSPORT_TP_DEVICE_H
#include <cuda_runtime_api.h>
#include "base/mem.h"
#include "transport/tp.h"

/* FREE: nobody's. DONE: its owner may still ask. OWN: a transport's own stages begin here. */
enum dev_stage { DEV_FREE, DEV_DONE, DEV_OWN };

struct dev_post {
    struct tp_tag tag, came;                             /* came: a receive's header, where headers travel apart */
    void *buf;
    int stage, next;                                     /* next: behind it on the link, -1: none */
    bool let_go, announced;                              /* let_go: joined, nobody asks for it again */
    struct tp_req inner;                                 /* what the host transport does for it */
    int piece;                                           /* of pinned memory */
    cudaEvent_t ready, end;                              /* where the lane was when it was posted; the transfer's end */
};

struct dev_link {
    int peer;
    bool send;
    size_t bytes;                                        /* the most of one post */
    cudaStream_t stream;
    struct dev_post *post; int n_posts;
    int first, last;                                     /* posts that are not done, in order; -1: none */
    uint64_t n_done;                                     /* posts that are */
    void *own;                                           /* the transport's */
};

struct dev {                                             /* first member of a transport's own struct */
    struct tp tp;
    struct tp *inner;                                    /* is closed with it */
    cudaStream_t lane;
    struct dev_link *link; int n_links;
    int me, size;
};

static inline struct dev *dev_of(struct tp *t) { return (struct dev *)t; }
void dev_open(struct dev *d, const struct tp_ops *ops, struct tp *inner);
/* Streams, events and posts for all links. 69; what was made is freed by dev_close. */
int dev_attach(struct dev *d, void *lane, const struct tp_use *use, int n, struct err *e);
/* Drives what is under way to its end, for a second at most: transfers that nobody completes are given up. For close.
 */
void dev_settle(struct tp *t);
/* Streams and events, if the device still answers; then the inner transport. */
void dev_close(struct dev *d);

struct dev_link *dev_link_of(struct dev *d, int peer, bool send, struct err *e);    /* NULL: there is none, e (70) */

/* Notes a post at the end of a link, in stage DEV_OWN, with the lane's place. NULL: e (70: too large, too many), or k
 * was NULL, with the e of dev_link_of. */
struct dev_post *dev_post_new(struct dev *d, struct dev_link *k, const struct tp_tag *tag, const void *buf,
                              struct tp_req *out, struct err *e);
struct dev_post *dev_post_of(const struct dev *d, const struct tp_req *r, const struct dev_link **link);
/* the one behind it; p NULL: the first. NULL: none */
struct dev_post *dev_after(const struct dev_link *k, const struct dev_post *p);
/* the first of the link is done: posts of a link finish in order */
void dev_finish(struct dev_link *k);
bool dev_free_done(struct dev_post *p, struct tp_req *r); /* for test: true if it was done; the handle is freed */
/* 69 with "rank R: WHAT: CUDA's words" unless status is cudaSuccess. */
int dev_check(const struct dev *d, struct err *e, const char *what, cudaError_t status);
/* The same with the link: "rank R, transfer to rank P: CUDA's words". */
int dev_try(const struct dev *d, const struct dev_link *k, struct err *e, cudaError_t status);
/* 1: reached, 0: not yet, -1: e */
int dev_reached(const struct dev *d, const struct dev_link *k, cudaEvent_t event, struct err *e);

/* Entries that both have. idle: all posts are done. */
int dev_rank(struct tp *t); int dev_size(struct tp *t);
bool dev_idle(struct tp *t);
int dev_join(struct tp *t, struct tp_req *r, struct err *e);
int dev_reduce(struct tp *t, double *x, int n, struct err *e);
int dev_bcast(struct tp *t, void *p, size_t bytes, struct err *e);
int dev_say(struct tp *t, int to, int stream, const void *p, size_t bytes, struct err *e);
int dev_hear(struct tp *t, struct tp_message *m, struct err *e);
void dev_abort(struct tp *t, int code);
#endif
