/* The inside of a run: shared by boot.c (phases), vote.c (agreement between ranks), place.c (devices and transport),
 * profile.c and trace.c. Nobody else. */
#ifndef DAEMON_RUN_BOOT_INT_H
#define DAEMON_RUN_BOOT_INT_H
#include "daemon/report/metrics.h"
#include "daemon/report/outputs.h"
#include "daemon/report/ready.h"
#include "daemon/report/rundir.h"
#include "daemon/run/boot.h"
#include "daemon/run/cores.h"
#include "daemon/run/loop.h"
#include "daemon/run/side.h"
#include "daemon/run/world.h"
#include "job/job.h"
#include "plan/cost.h"

struct boot {
    const struct opts *opts;
    struct world *world;
    struct conf *draft;                                   /* of the maker: conf, until phase_names has completed it */
    /* conf, job and sized: the maker's (world.h); others borrow them. conf is job.conf. */
    const struct conf *conf;
    struct job job;
    struct text file, numerics;                           /* of the maker: configuration as read; numerics line */
    char plan[33];                                        /* hash of the plan set */
    struct screen screen;                                 /* rank 0, like all below */
    struct ready *ready;
    struct text notes;                                    /* about cores, hosts and links, a line each */
    struct rundir dir;
    struct outputs files;
    struct metrics *metrics;
    struct events *events;
    struct loop *loop;
    struct lead lead;
    struct tp *tp;                                        /* every rank */
    struct side *side;
    struct probe *probe;
    int unit; char device[BE_ID];                         /* which device of this host; its name among all */
    bool shared;                                          /* ranks share a device */
    bool nccl;                                            /* b->tp is that */
    int *gpu, *host;                                      /* of each rank: the lowest one on its device, on its host */
    struct cores *cores;                                  /* of ranks that compute on them, while they start */
    struct exec *exec;
    struct cost *costs;                                   /* --profile: what was measured, of every rank, ... */
    struct plan **sized; int n_sized;                     /* ... and a plan for each size */
};

/* Did all ranks succeed so far? If not: e is the error of the lowest rank that failed, on every rank. Collective. */
int vote_agree(const struct boot *b, struct err *e);
/* Rank 0's text becomes everybody's, of makers. Collective of these. */
void vote_share(const struct boot *b, struct text *t);
/* Sets b->numerics and b->plan, of the n plans that this rank will run. After planning. */
void vote_name(struct boot *b, struct plan *const *plan, int n);
/* Do all makers have rank 0's numerics line and plan? 78. After vote_name. Collective of makers. */
int vote_same(struct boot *b, struct err *e);
/* boot.c. Opens b->tp, b->side and b->exec for the plans, data sets, graphs and links of q; sets the rest of it.
 * Collective. 69, 78. */
int boot_exec(struct boot *b, struct exec_request q, struct err *e);
/* place.c. Do device and run.transport fit? 78. */
int place_check(const struct boot *b, struct err *e);
/* Sets b->unit, the device of its host that this rank computes on, describes it in b->job, and sets b->shared,
 * b->gpu and b->host. 69 when ranks share one that may not, 78 when they would compute with
 * different backends. Collective. */
int place_unit(struct boot *b, struct err *e);
/* Do the plans of all ranks that share this rank's device fit into what it has free? 69 with the bytes. After
 * exec_open. Collective. */
int place_room(struct boot *b, struct err *e);
/* Opens b->tp. Collective. */
int place_connect(struct boot *b, struct err *e);
/* After ranks have connected: notes by which ways. Collective. */
int place_links(struct boot *b, struct err *e);
#endif
