/* The inside of the nccl transport, shared by tp_nccl.c (steps) and tp_nccl_connect.c (set-up) only. */
#ifndef TRANSPORT_TP_NCCL_INT_H
#define TRANSPORT_TP_NCCL_INT_H
#include <nccl.h>
#include "transport/tp_device.h"
#include "transport/tp_handshake.h"
#include "transport/tp_nccl_env.h"

/* HELD: waits for its turn or its header. ISSUED: NCCL has been called. FLYING: it and its end are on its stream. */
enum nccl_stage { HELD = DEV_OWN, ISSUED, FLYING };

/* Watches the oldest post of a link: how long it has not moved although this rank's stream reached it. */
struct watch { uint64_t post, since; unsigned asked; bool answered; };
/* A message on TP_WATCH. asks: has your stream reached that post of the link on which I send (sends) or receive?
 * Otherwise it is the answer. */
struct word { int32_t from; uint8_t asks, sends, there; uint64_t post; };

struct nccl {
    struct dev d;
    /* remote: a peer's failure may have caused this failure */
    bool connecting, remote;
    struct tp_request q;
    int *gpu, *host;                                     /* the arrays that q.seats points to */
    struct releasing *releasing;                         /* NULL: nothing has failed */
    struct err why;                                      /* the first failure */
    uint64_t doubted;                                    /* clock_ns of a failure that does not count yet; 0: none */
    /* clock_ns of the last progress; time of the watches: ns in which progress was called */
    uint64_t polled, now;
    /* on that clock: the last end of a transfer, the last check of peers */
    uint64_t moved, peers_polled;
    ncclComm_t *comm;                                    /* of each link */
    char (*via)[NCCL_VIA];                               /* the way of each link */
    struct nccl_log log;
    struct meet meet;                                    /* this and the following: only while connecting */
    /* of each link: its id, and whether it arrived; how many ids are missing */
    ncclUniqueId *id; bool *has_id; int n_missing;
    /* the first message of a link, on the device and on the host */
    void *hello, *heard;
};
void nccl_library(struct text *name, struct text *wrong);   /* tp_ops.library */
_Static_assert(sizeof(ncclUniqueId) == MEET_GIFT, "an id is what ranks give each other");

static struct nccl *nccl_of(struct tp *t) { return (struct nccl *)t; }

/* tp_ops.attach */
int nccl_attach(struct tp *t, void *stream, const struct tp_use *use, int n_use, struct err *e);
/* Has NCCL completed its call for this link? 1; 0: not yet; -1: e. */
int nccl_comm_poll(struct nccl *n, const struct dev_link *k, struct err *e);
/* Calls NCCL to send or receive on the link's communicator. */
int nccl_issue(struct nccl *n, const struct dev_link *k, void *buf, size_t bytes, struct err *e);
/* Sets e after a call of NCCL failed. Returns -1. */
int nccl_link_fail(struct nccl *n, const struct dev_link *k, ncclResult_t result, const char *what, struct err *e);
/* Marks the transport failed; its communicators are aborted after a while. */
void nccl_fail(struct nccl *n);
void nccl_release_begin(struct releasing *a);
#endif
