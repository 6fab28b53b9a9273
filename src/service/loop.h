/* Rank 0's scheduler: a libuv loop in a thread of its own. It decides which order comes next, writes metrics, log and
 * progress, and serves the control socket. It never calls MPI; the executor's thread takes its orders and brings
 * results (control_channel.h).
 *
 * This folder: a whole run (run.c), rank 0's scheduler (loop*.c), its control socket (ctl*.c) and HTTP (http.c). See
 * docs/design/service.md. */
#ifndef SERVICE_LOOP_H
#define SERVICE_LOOP_H
#include "report/tensorboard.h"
#include "report/metrics.h"
#include "report/rundir.h"
#include "train/control_channel.h"
#include "conf/opts.h"

struct loop;
struct loop_request {
    const struct job *job; const struct rundir *dir; struct metrics *metrics;
    struct tensorboard *events;                           /* NULL: not wanted */
    bool one_process;                                     /* ranks are threads */
    struct terminal *screen;                              /* where the progress line goes */
    struct save *save;
    const struct ckpt *from;                              /* NULL, or the checkpoint that the run goes on from */
    struct rates *rates;                                  /* what was set before; the loop adds to it */
    const double *best;                                   /* NULL, or the best score of those on disk */
    const struct opts *opts; const struct text *file;     /* the command line; the configuration file at the start */
    struct tp *tp;                                        /* to abort a job whose executor hangs */
    int http;                                             /* bound for service.metrics, and closed by the loop; -1 */
};
/* Opens the control socket and starts the thread. Fills in *lead for coordinator_run, but for `files`. 71, 73: no loop
 * was opened. */
int loop_open(const struct loop_request *q, struct loop **out, struct coordinator *coordinator, struct err *e);
/* Ends the thread: code 0 after ORDER_STOP was obeyed, otherwise the failure, which goes into the metrics. Returns -1
 * if the loop itself failed. */
int loop_close(struct loop *l, int code, const char *text, struct err *e);
#endif
