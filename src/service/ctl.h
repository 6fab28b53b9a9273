/* The control socket RUN/control.sock: one JSON object per line in, one out (mpstagectl(1), PROTOCOL). Thread: rank 0's
 * loop.
 *
 * Clients are local users and not trusted. Root and the owner of the process may do everything, members of the socket's
 * group may read, others get nothing. At most 32 clients are served at a time, with lines of at most 64 KiB. A client
 * that sends no whole line for 10 seconds is disconnected. If all places are taken, a new client displaces the oldest
 * one that has not sent a line. If there is none, the owner also displaces a client that may only read; otherwise the
 * new client is refused with a message. */
#ifndef SERVICE_CTL_H
#define SERVICE_CTL_H
#include <jansson.h>
#include <stdbool.h>
#include <stdint.h>
#include <uv.h>
#include "base/err.h"

struct ctl;
/* What clients may request. -1: refused; *e has the reason and the code for the client. */
struct ctl_calls {
    json_t *(*status)(void *ctx);                         /* a new object */
    int (*stop)(void *ctx, struct err *e);
    /* then_stop: the run ends after it. *step: the step of that checkpoint; ctl_checkpoint_done reports its end. */
    int (*checkpoint)(void *ctx, bool then_stop, uint64_t *step, struct err *e);
    int (*pause)(void *ctx, struct err *e);
    int (*resume)(void *ctx, struct err *e);
    /* These add what they did to the answer. */
    int (*set)(void *ctx, const char *key, const char *value, json_t *answer, struct err *e);
    int (*reload)(void *ctx, json_t *answer, struct err *e);
    int (*log_level)(void *ctx, const char *level, struct err *e);
    void *ctx;
};
/* Listens in the directory dirfd, which messages call `dir`. -1: 73; 1: 73, because no socket can be made there. In
 * both cases *out must still be closed, and freed after the loop has run. The other functions accept NULL for no
 * socket. */
int ctl_open(uv_loop_t *loop, int dirfd, const char *dir, const struct ctl_calls *calls, struct ctl **out,
             struct err *e);
/* Answers the clients that wait for a checkpoint of this step or of an earlier one. code: 0, or why there is none.
 * Thread: the scheduler's. */
void ctl_checkpoint_done(struct ctl *c, uint64_t step, int code, const char *text);
/* The run returns to that step: clients that wait for a later checkpoint now wait for the first one after it. Thread:
 * the scheduler's. */
void ctl_checkpoint_back(struct ctl *c, uint64_t step);
/* Closes listener and clients; the loop must run once more. Clients that wait for the end get a last line about it:
 * code 0 and "finished" or "stopped", or the run's exit status and the reason. On the scheduler's thread, or after
 * that has ended. */
void ctl_close(struct ctl *c, int code, const char *how);
void ctl_free(struct ctl *c);                             /* after the loop has run */
#endif
