/* The inside of a run: shared by setup.c (phases), setup_cores.c, vote.c (agreement between ranks), device_assign.c
 * (devices and transport), profile.c, trace.c and hello.c. Nobody else. */
#ifndef DAEMON_RUN_SETUP_INT_H
#define DAEMON_RUN_SETUP_INT_H
#include "daemon/report/metrics.h"
#include "daemon/report/output_paths.h"
#include "daemon/report/setup_progress.h"
#include "daemon/report/rundir.h"
#include "daemon/run/setup.h"
#include "daemon/run/cores.h"
#include "daemon/run/loop.h"
#include "daemon/run/memory.h"
#include "daemon/run/resume.h"
#include "daemon/run/control_channel.h"
#include "daemon/run/weights.h"
#include "daemon/run/world.h"
#include "job/job.h"
#include "plan/cost.h"

struct setup {
    const struct opts *opts;
    struct world *world;
    struct conf *draft;                                   /* of the maker: conf before phase_names has completed it */
    /* conf, job and sized belong to the maker (world.h); other ranks borrow them. conf is job.conf. */
    const struct conf *conf;
    struct job job;
    struct text file, numerics;                           /* of the maker: configuration as read; numerics line */
    char plan[33];                                        /* hash of the plan set */
    struct terminal screen;                               /* of rank 0, like the following */
    struct ready *ready;
    int http;                                             /* the socket of service.metrics; -1: none */
    struct weights_used used;                             /* run.init_from */
    struct memory memory;                                 /* of the maker: what hosts have for the ranks */
    struct text notes;                                    /* about cores, hosts and links, a line each */
    struct rundir dir;
    struct outputs files;
    struct metrics *metrics;
    struct predict *predict;                              /* of a prediction */
    struct confusion *confusion;                          /* with train.confusion */
    struct tensorboard *events;
    struct loop *loop;
    struct coordinator coordinator;
    struct tp *tp;                                        /* of every rank, like the following */
    struct control *control;
    struct save *save;
    struct resume resume;
    struct warmup_profile *warmup;
    int unit; char device[BE_ID];                         /* which device of this host; its name among all */
    bool shared;                                          /* ranks share a device */
    bool nccl;                                            /* the transport is nccl */
    int *gpu, *host;                                      /* of each rank: the lowest one on its device, on its host */
    struct cores *cores;                                  /* of ranks that compute on cores, during set-up */
    cpu_set_t spare;                                      /* cores_spare: where samples are read */
    struct exec *exec;
    struct cost *costs;                                   /* --profile: costs as measured, on every rank */
    struct plan **sized; int n_sized;                     /* --profile: a plan for each size */
    const char *earlier;                                  /* --profile, rank 0: a profile to add to; NULL: none */
};

/* Returns -1 if a rank has failed; then e is the error of the lowest such rank, on every rank. Collective. */
int vote_agree(const struct setup *b, struct err *e);
/* Gives rank 0's text to all makers. Collective of these. */
void vote_share(const struct setup *b, struct text *t);
/* Sets b->numerics and b->plan from the n plans that this rank will run. */
void vote_name(struct setup *b, struct plan *const *plan, int n);
/* 78 unless all makers have rank 0's numerics line, plan and configuration. After vote_name. Collective of makers. */
int vote_same(struct setup *b, struct err *e);
/* setup.c. Opens b->tp, b->side and b->exec for the plans, data sets, graphs and links of q; sets the rest of it.
 * Collective. 69, 78. */
int setup_exec(struct setup *b, struct exec_request q, struct err *e);
/* hello.c. Rank 0: the first lines of a run that is ready, and the last one of a run that has ended well. */
void setup_hello(struct setup *b);
void setup_end(const struct setup *b);
/* setup_cores.c. Begins to watch the process's cores; finds where samples are read (b->spare), which is collective;
 * says at the end of set-up what the watch has seen, collective, too. */
int cores_watch(struct setup *b, struct err *e);
int cores_seek(struct setup *b, struct err *e);
int cores_tell(struct setup *b, struct err *e);
/* device_assign.c. 78 unless device and run.transport fit. */
int assign_check(const struct setup *b, struct err *e);
/* Sets b->unit, the device of its host that this rank computes on, describes it in b->job, and sets b->shared,
 * b->gpu and b->host. 69 when ranks share one that may not, 78 when they would compute with
 * different backends. Collective. */
int assign_unit(struct setup *b, struct err *e);
/* 69 with the bytes unless what the device has free is enough for the plans of all ranks that share it. After
 * exec_open. Collective. */
int assign_room(struct setup *b, struct err *e);
/* Opens b->tp. Collective. */
int assign_connect(struct setup *b, struct err *e);
/* After ranks have connected: adds notes on the ways by which they reach each other. Collective. */
int assign_links(struct setup *b, struct err *e);
/* When rank 0 has made the run directory: adds a note where another host does not have it, which checkpoints want.
 * Collective. */
int assign_folder(struct setup *b, struct err *e);
#endif
