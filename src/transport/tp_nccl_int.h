/* The inside of the nccl transport: shared by tp_nccl.c (steps) and tp_nccl_connect.c (before the first). Nobody
 * else. */
#ifndef TRANSPORT_TP_NCCL_INT_H
#define TRANSPORT_TP_NCCL_INT_H
#include <nccl.h>
#include "transport/tp_device.h"
#include "transport/tp_meet.h"
#include "transport/tp_nccl_env.h"

/* HELD: its turn has not come, or its header. ISSUED: NCCL takes it. FLYING: it is on its stream, and so is its end. */
enum stage { HELD = DEV_OWN, ISSUED, FLYING };

/* Of a link, about its oldest post: how long it has not moved although this rank's lane has come to it. */
struct watch { uint64_t post, since; unsigned asked; bool answered; };
/* On TP_WATCH. asks: has your lane come to that post of the link that goes to you (sends) or comes from you? Otherwise
 * the answer to that. */
struct word { int32_t from; uint8_t asks, sends, there; uint64_t post; };

struct nccl {
    struct dev d;
    /* remote: what failed may only follow from what happened to a peer */
    bool connecting, remote;
    struct tp_request q;
    int *gpu, *host;                                     /* what q.seats points to */
    struct releasing *releasing;                         /* NULL: nothing has failed */
    struct err why;                                      /* of the first failure */
    uint64_t doubted;                                    /* clock_ns of a failure that is not believed yet; 0: none */
    /* clock_ns of the last progress; ns in which somebody looked: the watches' time */
    uint64_t polled, now;
    /* now, when a transfer last came to its end, when peers were last looked after */
    uint64_t moved, looked;
    ncclComm_t *comm;                                    /* of each link */
    char (*via)[NCCL_VIA];                               /* the way it goes */
    struct nccl_log log;
    struct meet meet;                                    /* while connecting, as all below */
    ncclUniqueId *id; int n_missing;                     /* of each link; those that peers have not given yet */
    void *hello, *heard;                                 /* the first message of a link: on the device, on the host */
};
_Static_assert(sizeof(ncclUniqueId) == MEET_GIFT, "an id is what ranks give each other");

static struct nccl *nccl_of(struct tp *t) { return (struct nccl *)t; }

/* tp_ops.attach */
int nccl_attach(struct tp *t, void *lane, const struct tp_use *use, int n_use, struct err *e);
/* Is NCCL through with what it was given for this link? 1, 0 not yet, -1: e. */
int nccl_comm_look(struct nccl *n, const struct dev_link *k, struct err *e);
/* Gives NCCL a send or receive of the link's communicator. */
int nccl_issue(struct nccl *n, const struct dev_link *k, void *buf, size_t bytes, struct err *e);
/* A call of NCCL's failed. Returns -1. */
int nccl_link_fail(struct nccl *n, const struct dev_link *k, ncclResult_t result, const char *what, struct err *e);
/* The transport has failed: its communicators are to be aborted, which release_begin does after a while. */
void nccl_fail(struct nccl *n);
void nccl_release_begin(struct releasing *a);
#endif
