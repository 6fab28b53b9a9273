/* A rank from the configuration to its first step. Set-up goes in phases; each ends in a vote, so that all ranks enter
 * the next one or none. Shared by the files that have phases, and by service/run.c, which makes a run of it. Thread:
 * the executor's of each rank.
 *
 * This folder: set-up, the sequence of orders (sequencer.c), rank 0 and the others while they train (coordinator.c,
 * worker.c, control_channel.c), checkpoints (ckpt_*.c), resume, devices and memory of ranks, warm-up profile. See
 * docs/design/train.md. */
#ifndef TRAIN_SETUP_H
#define TRAIN_SETUP_H
#include "report/metrics.h"
#include "report/output_paths.h"
#include "report/setup_progress.h"
#include "report/rundir.h"
#include "cluster/cores.h"
#include "train/memory.h"
#include "train/resume.h"
#include "train/control_channel.h"
#include "train/weights.h"
#include "cluster/world.h"
#include "report/predict.h"
#include "report/confusion.h"
#include "report/tensorboard.h"
#include "conf/opts.h"
#include "job/job.h"
#include "plan/cost.h"

/* What rank 0's service does in set-up. */
struct setup_service {
    int (*take)(void *ctx, const struct conf *c, struct err *e);   /* takes early what others may have; 73, 75, 78 */
    /* last of all: starts the scheduler and fills in setup.coordinator. from: as in struct loop_request. 71, 73 */
    int (*open)(void *ctx, const struct ckpt *from, struct err *e);
    void *ctx;
};

struct setup {
    const struct opts *opts;
    struct world *world;
    const struct setup_service *service; int service_files;   /* which opens so many files, once it has taken its own */
    struct conf *draft;                                   /* of the maker: conf before phase_names has completed it */
    /* conf, job and sized belong to the maker (world.h); other ranks borrow them. conf is job.conf. */
    const struct conf *conf;
    struct job job;
    struct text file, numerics;                           /* of the maker: configuration as read; numerics line */
    char plan[33];                                        /* hash of the plan set */
    struct terminal screen;                               /* of rank 0, like the following */
    struct ready *ready;
    struct weights_used used;                             /* run.init_from */
    struct memory memory;                                 /* of the maker: what hosts have for the ranks */
    struct text notes;                                    /* about cores, hosts and links, a line each */
    struct rundir dir;
    struct outputs files;
    struct metrics *metrics;
    struct predict *predict;                              /* of a prediction */
    struct confusion *confusion;                          /* with train.confusion */
    struct tensorboard *events;
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

/* setup.c. service lives as long as b. */
void setup_init(struct setup *b, const struct opts *o, struct world *w, const struct setup_service *service);
/* Runs the phases. Collective. */
int setup_begin(struct setup *b, struct err *e);
void setup_close(struct setup *b);                        /* frees all that b has */
/* setup_same.c. Sets b->numerics and b->plan from the n plans that this rank will run. */
void setup_name(struct setup *b, struct plan *const *plan, int n);
/* 78 unless all makers have rank 0's numerics line, plan and configuration. After setup_name. Collective of makers. */
int setup_same(struct setup *b, struct err *e);
/* setup.c. Opens b->tp, b->side and b->exec for the plans, data sets, graphs and links of q; sets the rest of it.
 * Collective. 69, 78. */
int setup_exec(struct setup *b, struct exec_request q, struct err *e);
/* banner.c. Rank 0: the first lines of a run that is ready, and the last one of a run that has ended well. */
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
