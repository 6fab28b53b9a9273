/* Rank 0's scheduler: a libuv loop in its own thread. It decides which order comes next, writes metrics, log and
 * progress, and serves the control socket. It calls MPI only to end a job whose executor hangs (MPI_Abort). The
 * executor's thread takes its orders and delivers results (control_channel.h).
 *
 * This folder: a whole run (run.c), rank 0's scheduler (loop*.c), its control socket (ctl*.c) and HTTP (http.c). See
 * docs/design/service.md. */
#ifndef SERVICE_LOOP_H
#define SERVICE_LOOP_H
#include "train/generation.h"
#include "report/reporter.h"
#include "train/control_channel.h"
#include "conf/opts.h"

struct loop;
struct loop_request {
    const struct job *job; const struct rundir *dir; struct reporters *reporters;
    struct terminal *screen;                              /* for the progress line */
    struct save *save;
    struct generation *generation;                        /* NULL: the run does not generate */
    const struct ckpt *from;                              /* NULL, or the checkpoint from which the run continues */
    struct live_settings *rates;                         /* changes that were set before; the loop adds to them */
    const double *best;                                   /* NULL, or the best score on disk */
    const struct opts *opts; const struct text *file;     /* the command line; the configuration file at the start */
    double peak;                                          /* struct event_rates */
    int http;                                          /* socket for service.metrics, which the loop closes; -1: none */
};
/* Opens the control socket and starts the thread. Fills in *coordinator for coordinator_run, except `files`. 71, 73: no
 * loop was opened. */
int loop_open(const struct loop_request *q, struct loop **out, struct coordinator *coordinator, struct err *e);
/* Ends the thread: code 0 after ORDER_STOP ran, otherwise the failure, which it writes to the metrics. Returns -1 if
 * the loop itself failed. */
int loop_close(struct loop *l, int code, const char *text, struct err *e);
#endif
