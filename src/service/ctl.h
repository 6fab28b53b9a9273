/* The control socket RUN/control.sock: one JSON object a line in, one out (mpstagectl(1), PROTOCOL). Lives in rank 0's
 * loop thread.
 *
 * Clients are local users and not trusted. Root and the owner of the process may do everything, members of the socket's
 * group may read, others get nothing. At most 32 are served at a time, with lines of at most 64 KiB; one that says
 * nothing whole for 10 seconds is dismissed. When all places are taken, the oldest that has said nothing yet makes
 * room, for the owner also one who may only read; otherwise the new one is refused with a message. */
#ifndef SERVICE_CTL_H
#define SERVICE_CTL_H
#include <jansson.h>
#include <stdbool.h>
#include <stdint.h>
#include <uv.h>
#include "base/err.h"

struct ctl;
/* What may be asked. -1: refused, and *e says why, with the code for the client. */
struct ctl_calls {
    json_t *(*status)(void *ctx);                         /* a new object */
    int (*stop)(void *ctx, struct err *e);
    /* then_stop: the run ends after it. *step: of which step it will be; ctl_checkpoint_done tells the end. */
    int (*checkpoint)(void *ctx, bool then_stop, uint64_t *step, struct err *e);
    int (*pause)(void *ctx, struct err *e);
    int (*resume)(void *ctx, struct err *e);
    /* These add to the answer what they did. */
    int (*set)(void *ctx, const char *key, const char *value, json_t *answer, struct err *e);
    int (*reload)(void *ctx, json_t *answer, struct err *e);
    int (*log_level)(void *ctx, const char *level, struct err *e);
    void *ctx;
};
/* Listens in the directory dirfd, which messages call `dir`. -1: 73; 1: 73, because no socket can be made there. Also
 * then *out is to be closed, and to be freed when the loop has run. The other calls take NULL for no socket. */
int ctl_open(uv_loop_t *loop, int dirfd, const char *dir, const struct ctl_calls *calls, struct ctl **out,
             struct err *e);
/* Answers the clients that wait for a checkpoint of this step or of an earlier one: code 0, or why there is none. On
 * the loop's thread. */
void ctl_checkpoint_done(struct ctl *c, uint64_t step, int code, const char *text);
/* The run goes back to that step: clients that wait for a later checkpoint wait for the first one behind it. On the
 * loop's thread. */
void ctl_checkpoint_back(struct ctl *c, uint64_t step);
/* Closes listener and clients; the loop has to run once more. Clients that wait for the end get a last line on how the
 * run ended: code 0 and "finished" or "stopped", or its exit status and why. On the loop's thread, or after it has
 * ended. */
void ctl_close(struct ctl *c, int code, const char *how);
void ctl_free(struct ctl *c);                             /* after the loop has run */
#endif
