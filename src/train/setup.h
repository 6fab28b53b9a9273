/* A rank from the configuration to its first step. Set-up has phases; each ends in a vote, so that all ranks enter the
 * next one or none. Shared by the files that have phases, and by service/run.c, which makes a run from it. Thread: the
 * executor's of each rank.
 *
 * This folder: set-up, the sequence of orders (sequencer.c), rank 0 and the other ranks during training (coordinator.c,
 * worker.c, control_channel.c), checkpoints (ckpt_*.c), resume, devices and memory of ranks, warm-up profile. See
 * docs/design/train.md. */
#ifndef TRAIN_SETUP_H
#define TRAIN_SETUP_H
#include "report/output_paths.h"
#include "report/setup_progress.h"
#include "report/rundir.h"
#include "cluster/cores.h"
#include "train/memory.h"
#include "train/resume.h"
#include "train/control_channel.h"
#include "train/weights.h"
#include "cluster/world.h"
#include "train/generation.h"
#include "train/interim_rank.h"
#include "report/predict.h"
#include "report/class_file.h"
#include "report/confusion.h"
#include "report/reporter.h"
#include "conf/opts.h"
#include "job/job.h"
#include "plan/cost.h"

/* What rank 0's service does in set-up. */
struct setup_service {
    /* early: takes what other programs may hold; 73, 75, 78 */
    int (*take)(void *ctx, const struct conf *c, struct err *e);
    /* last: starts the scheduler and fills in setup.coordinator. from: as in struct loop_request. 71, 73 */
    int (*open)(void *ctx, const struct ckpt *from, struct err *e);
    void *ctx;
};

struct setup {
    const struct opts *opts;
    struct world *world;
    const struct setup_service *service; int service_files;   /* files that the service still opens after take */
    struct conf *draft;                                   /* the maker's conf before phase_names has completed it */
    /* conf, job and sized belong to the maker (world.h); other ranks borrow them. conf is job.conf. */
    const struct conf *conf;
    struct job job;
    struct text file, numerics;                           /* the maker's: configuration as read; numerics line */
    char plan[33];                                        /* hash of the plan set */
    struct terminal screen;                               /* rank 0's, like the following */
    struct ready *ready;
    struct weights_used used;                             /* run.init_from */
    struct class_names classes;                           /* those of used, if the data have none */
    struct memory memory;                                 /* the maker's: memory that hosts have for the ranks */
    struct text notes;                                    /* about cores, hosts and links, one line each */
    struct rundir dir;
    struct outputs files;
    struct model_files *model;                            /* for RUN/model/; NULL: not a decoder's training */
    struct reporters *reporters;
    struct predict *predict;                              /* if the run predicts */
    struct generation *generation;                        /* if it generates, at all or between steps */
    struct confusion *confusion;                          /* with train.confusion */
    struct coordinator coordinator;
    struct tp *tp;                                        /* every rank's, like the following */
    struct control *control;
    struct save *save;
    struct resume resume;
    struct warmup_profile *warmup;
    int unit; char device[BE_ID];                    /* number of the device on this host; its name among all devices */
    bool shared;                                          /* ranks share a device */
    bool nccl;                                            /* the transport is nccl */
    char (*ids)[BE_ID]; int n_ids;                       /* names of the devices on rank 0's host, each once */
    int *gpu, *host;                                     /* for each rank: the lowest rank on its device, on its host */
    struct cores *cores;                                  /* of ranks that compute on cores, during set-up */
    cpu_set_t spare;                                      /* from cores_spare: cores for reading samples */
    struct exec *exec;
    struct interim *interim;                              /* of generate.every_steps */
    double peak;                                          /* FLOPs a second of all ranks; 0: unknown */
    struct cost *costs;                                   /* --profile: measured costs, on every rank */
    struct plan **sized; int n_sized;                     /* --profile: a plan for each size */
    const char *earlier;                                  /* --profile, rank 0: a profile to extend; NULL: none */
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
/* setup.c. Opens b->tp, b->control, b->save and b->exec for the plans, data sets, graphs and links of q; sets the other
 * fields of q. Collective. 69, 78. */
int setup_exec(struct setup *b, struct exec_request q, struct err *e);
/* banner.c. Rank 0: prints the first lines of a run that is ready, and the last line of a run that succeeded. */
void setup_hello(struct setup *b);
void setup_end(const struct setup *b);
/* setup_cores.c. cores_watch starts to measure the process's cores. cores_seek finds the cores for reading samples
 * (b->spare); collective. cores_check reports the measurement at the end of set-up; collective. */
int cores_watch(struct setup *b, struct err *e);
int cores_seek(struct setup *b, struct err *e);
int cores_check(struct setup *b, struct err *e);
/* device_assign.c. 78 unless device and run.transport fit. */
int assign_check(const struct setup *b, struct err *e);
/* Sets b->unit, the device of the host on which this rank computes, describes it in b->job, and sets b->shared, b->gpu
 * and b->host. 69 if ranks share a device but may not, 78 if they would compute with different backends. Collective. */
int assign_unit(struct setup *b, struct err *e);
/* 69, with the bytes, unless the device has enough free memory for the plans of all ranks that share it. After
 * exec_open. Collective. */
int assign_memory(struct setup *b, struct err *e);
/* Opens b->tp. Collective. */
int assign_connect(struct setup *b, struct err *e);
/* After ranks have connected: adds notes on the networks of their links. Collective. */
int assign_links(struct setup *b, struct err *e);
/* After rank 0 has made the run directory: adds a note if another host does not have it, because checkpoints need it.
 * Collective. */
int assign_folder(struct setup *b, struct err *e);
#endif
