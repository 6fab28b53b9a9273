/* Requests to the control socket of a run, one after the other: mpstagectl(1), PROTOCOL. One thread.
 *
 * No call waits longer than CALL_SECONDS for an answer, whatever the other end does: connecting, writing and reading
 * share that limit. mpstaged closes silent connections, so a connection that ends is opened again. The run counts as
 * ended only if there is no socket or it refuses connections. */
#ifndef LAUNCHER_CTL_CALL_H
#define LAUNCHER_CTL_CALL_H
#include <jansson.h>
#include <stdbool.h>
#include <sys/types.h>
#include "base/err.h"

enum { CALL_SECONDS = 5 };

struct call {
    const char *dir;
    int at, fd;                                           /* the run directory; the connection, -1: none */
    pid_t pid;                                            /* of the process that listens; 0: unknown */
    bool met;                                             /* a connection has been made before */
    bool asked;                                           /* a request was sent and its answer has not come */
    bool silent;                                          /* the last request failed because no answer came in time */
    bool ended;                                           /* it failed because no process listens any more */
    char *in;                                             /* bytes received */
    size_t n, cap;
};

/* Opens the directory; connections are made when needed. 69, 77. */
int call_open(struct call *c, const char *dir, struct err *e);
void call_close(struct call *c);
/* Whether the run directory is in use, also where no process listens: a socket cannot be made everywhere. */
bool call_runs(struct call *c);
/* Sends a request, unless one is unanswered, and returns the answer, which the caller owns. 69: no process listens; 70:
 * the answer is invalid; 75: no answer came, and a later call continues waiting for it; or the code of a refusal, 77 if
 * it has none. */
int call_ask(struct call *c, const char *request, json_t **answer, struct err *e);
/* Waits for a further line without a request. 1: the connection ended without one; -1: *e, as above. */
int call_hear(struct call *c, json_t **line, struct err *e);
/* Whether Ctrl-Z or SIGSTOP has stopped the process that listens. */
bool call_stopped(const struct call *c);

#endif
