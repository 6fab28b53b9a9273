/* Questions to the control socket of a run, one after the other: mpstagectl(1), PROTOCOL. One thread.
 *
 * Nobody waits longer than CALL_SECONDS for an answer, whatever the other end does: connecting, writing and reading
 * have that limit together. mpstaged closes silent connections, so one that ends is opened again; the run counts as
 * ended only if there is no socket or it refuses. */
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
    bool met;                                             /* there has been a connection */
    bool asked;                                           /* a request was sent and its answer has not come */
    bool silent;                                          /* the last question failed because no answer came in time */
    bool ended;                                           /* it failed because nobody listens any more */
    char *in;                                             /* bytes that have come */
    size_t n, cap;
};

/* Opens the directory; connections are made when needed. 69, 77. */
int call_open(struct call *c, const char *dir, struct err *e);
void call_close(struct call *c);
/* Sends a request, unless one is unanswered, and returns the answer, which is the caller's. 69: nobody listens; 70: it
 * makes no sense; 75: no answer came, and a later call goes on waiting for it; or the code of a refusal, 77 if it has
 * none. */
int call_ask(struct call *c, const char *request, json_t **answer, struct err *e);
/* Waits for a further line without a request. 1: the connection has ended without one; -1: *e, as above. */
int call_hear(struct call *c, json_t **line, struct err *e);
/* Whether the process that listens was stopped, by Ctrl-Z or SIGSTOP. */
bool call_stopped(const struct call *c);

#endif
