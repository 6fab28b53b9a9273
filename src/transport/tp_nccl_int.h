/* The inside of the nccl transport: shared by tp_nccl.c (steps) and tp_nccl_connect.c (set-up). Nobody else. */
#ifndef TRANSPORT_TP_NCCL_INT_H
#define TRANSPORT_TP_NCCL_INT_H
#include <nccl.h>
#include "transport/tp_device.h"
#include "transport/tp_handshake.h"
#include "transport/tp_nccl_env.h"

/* HELD: waits for its turn or its header. ISSUED: NCCL has been called. FLYING: it and its end are on its stream. */
enum nccl_stage { HELD = DEV_OWN, ISSUED, FLYING };

/* A watch on the oldest post of a link: how long it has not moved although this rank's stream has come to it. */
struct watch { uint64_t post, since; unsigned asked; bool answered; };
/* A message on TP_WATCH. asks: has your stream come to that post of the link on which I send (sends) or receive?
 * Otherwise the answer. */
struct word { int32_t from; uint8_t asks, sends, there; uint64_t post; };

struct nccl {
    struct dev d;
    /* remote: the failure may follow from a peer's */
    bool connecting, remote;
    struct tp_request q;
    int *gpu, *host;                                     /* what q.seats points to */
    struct releasing *releasing;                         /* NULL: nothing has failed */
    struct err why;                                      /* the first failure */
    uint64_t doubted;                                    /* clock_ns of a failure that does not count yet; 0: none */
    /* clock_ns of the last progress; the watches' time: ns in which somebody looked */
    uint64_t polled, now;
    /* times on that clock: when a transfer last ended, when peers were last checked */
    uint64_t moved, looked;
    ncclComm_t *comm;                                    /* of each link */
    char (*via)[NCCL_VIA];                               /* the way it goes */
    struct nccl_log log;
    struct meet meet;                                    /* only while connecting, like the following */
    /* of each link; whether it was heard; how many peers have not given yet */
    ncclUniqueId *id; bool *has_id; int n_missing;
    void *hello, *heard;                                 /* the first message of a link: on the device, on the host */
};
void nccl_library(struct text *name, struct text *wrong);   /* tp_ops.library */
_Static_assert(sizeof(ncclUniqueId) == MEET_GIFT, "an id is what ranks give each other");

static struct nccl *nccl_of(struct tp *t) { return (struct nccl *)t; }

/* tp_ops.attach */
int nccl_attach(struct tp *t, void *stream, const struct tp_use *use, int n_use, struct err *e);
/* Whether NCCL has completed its call for this link: 1, 0 not yet, -1: e. */
int nccl_comm_look(struct nccl *n, const struct dev_link *k, struct err *e);
/* Calls NCCL to send or receive on the link's communicator. */
int nccl_issue(struct nccl *n, const struct dev_link *k, void *buf, size_t bytes, struct err *e);
/* Sets e after a call of NCCL failed. Returns -1. */
int nccl_link_fail(struct nccl *n, const struct dev_link *k, ncclResult_t result, const char *what, struct err *e);
/* Says that the transport has failed; its communicators are aborted after a while. */
void nccl_fail(struct nccl *n);
void nccl_release_begin(struct releasing *a);
#endif
