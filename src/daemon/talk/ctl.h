/* The control socket RUN/control.sock: one JSON object a line in, one out (mpstagectl(1), PROTOCOL). Lives in rank 0's
 * loop thread.
 *
 * Clients are local users and not trusted: at most 32 of them (the next one is refused with a message), lines of at
 * most 64 KiB, 10 seconds of silence; only the owner may stop a run. */
#ifndef DAEMON_TALK_CTL_H
#define DAEMON_TALK_CTL_H
#include <jansson.h>
#include <stdbool.h>
#include <uv.h>
#include "base/err.h"

struct ctl;
struct ctl_calls {
    json_t *(*status)(void *ctx);                         /* a new object */
    void (*stop)(void *ctx);
    void *ctx;
};
/* Listens in the directory dirfd, which messages call `dir`. 73; also then *out is to be freed when the loop has
 * run. */
int ctl_open(uv_loop_t *loop, int dirfd, const char *dir, const struct ctl_calls *calls, struct ctl **out,
             struct err *e);
/* Closes listener and clients; the loop has to run once more. Clients that wait for the end get a last line on how the
 * run ended: code 0 and "finished" or "stopped", or its exit status and why. On the loop's thread, or after it has
 * ended. */
void ctl_close(struct ctl *c, int code, const char *how);
void ctl_free(struct ctl *c);                             /* after the loop has run */
#endif
