/* Shared by the device transports: they stand on a host transport, follow the computing stream by events, and have a
 * stream for each link.
 *
 * Users: tp_staged.c, tp_nccl.c. Thread: the executor's, the one that attached; only abort may come from any thread.
 * CUDA's current device is the stream's. After attach nothing is allocated. */
#ifndef TRANSPORT_TP_DEVICE_H
#define TRANSPORT_TP_DEVICE_H
#include <cuda_runtime_api.h>
#include "base/mem.h"
#include "transport/tp.h"

/* FREE: unused. DONE: its owner may still test it. OWN: the first of a transport's own stages. */
enum dev_stage { DEV_FREE, DEV_DONE, DEV_OWN };

struct dev_post {
    struct tp_tag tag, came;                             /* came: the received header, where headers travel apart */
    void *buf;
    int stage, next;                                     /* next: the post after it on the link, -1: none */
    bool let_go, announced;                              /* let_go: joined, so nobody tests it again */
    bool damaged;                                        /* as in struct tp_req */
    struct tp_req inner;                                 /* its post on the host transport */
    int piece;                                           /* index of its piece of pinned memory */
    /* ready: reached by the stream at the post; end: of the transfer */
    cudaEvent_t ready, end;
};

struct dev_link {
    int peer;                                            /* TP_ALL: sums, with all members */
    const int *member; int members;                      /* member: only during attach */
    bool send;
    size_t bytes;                                        /* of one post, at most */
    cudaStream_t stream;
    struct dev_post *post; int n_posts;
    int first, last;                                     /* the posts that are not done; -1: none */
    uint64_t n_done;                                     /* posts that are done */
    void *own;                                           /* for the transport */
};

struct dev {                                             /* first member of a transport's own struct */
    struct tp tp;
    struct tp *inner;                                    /* closed with this one */
    cudaStream_t stream;
    struct dev_link *link; int n_links;
    int me, size;
};

static inline struct dev *dev_of(struct tp *t) { return (struct dev *)t; }
void dev_open(struct dev *d, const struct tp_ops *ops, struct tp *inner);
/* Makes streams, events and posts for all links. 69; dev_close frees them. */
int dev_attach(struct dev *d, void *stream, const struct tp_use *use, int n, struct err *e);
/* For close: drives transfers to their end, but at most for a second, because the other end may not complete them. */
void dev_settle(struct tp *t);
/* Frees streams and events, if the device still answers, and closes the inner transport. */
void dev_close(struct dev *d);

/* NULL: there is no such link, e is 70 */
struct dev_link *dev_link_of(struct dev *d, int peer, bool send, struct err *e);

/* Appends a post to a link, in stage DEV_OWN, and records `ready`. NULL: e (70: too large, too many), also if k is NULL
 * from dev_link_of. */
struct dev_post *dev_post_new(struct dev *d, struct dev_link *k, const struct tp_tag *tag, const void *buf,
                              struct tp_req *out, struct err *e);
struct dev_post *dev_post_of(const struct dev *d, const struct tp_req *r, const struct dev_link **link);
/* The post after p on the link; p NULL: the first. NULL: none. */
struct dev_post *dev_after(const struct dev_link *k, const struct dev_post *p);
/* Marks the first post of the link done: posts of a link finish in order. */
void dev_finish(struct dev_link *k);
/* Makes all steps that the link's posts can make. step: makes one step if the post can. first: all earlier posts of the
 * link have come far enough, as `gone` defines. */
struct dev_steps {
    int (*step)(struct dev *d, struct dev_link *k, struct dev_post *p, bool first, struct err *e);
    bool (*gone)(const struct dev_link *k, const struct dev_post *p);
};
int dev_drive(struct dev *d, struct dev_link *k, const struct dev_steps *how, struct err *e);
/* for test: if it was done, frees the handle and returns true */
bool dev_free_done(struct dev_post *p, struct tp_req *r);
/* 69 with "rank R: WHAT: CUDA's words" unless status is cudaSuccess. */
int dev_check(const struct dev *d, struct err *e, const char *what, cudaError_t status);
/* "transfer to rank P", "transfer from rank P", and for sums */
enum { DEV_LINK_TEXT = 48 };
const char *dev_link_text(const struct dev_link *k, char buf[DEV_LINK_TEXT]);
/* The same with the link: "rank R, transfer to rank P: CUDA's words". */
int dev_try(const struct dev *d, const struct dev_link *k, struct err *e, cudaError_t status);
/* Was the event reached? 1; 0: not yet; -1: e. */
int dev_reached(const struct dev *d, const struct dev_link *k, cudaEvent_t event, struct err *e);

/* Entries of tp_ops that both transports use. idle: all posts are done. */
int dev_rank(struct tp *t); int dev_size(struct tp *t);
bool dev_idle(struct tp *t);
int dev_join(struct tp *t, struct tp_req *r, struct err *e);
int dev_reduce(struct tp *t, double *x, int n, struct err *e);
int dev_bcast(struct tp *t, void *p, size_t bytes, struct err *e);
int dev_send_msg(struct tp *t, int to, int stream, const void *p, size_t bytes, struct err *e);
int dev_recv_msg(struct tp *t, struct tp_message *m, struct err *e);
void dev_abort(struct tp *t, int code);
#endif
