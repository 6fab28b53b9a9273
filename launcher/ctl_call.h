/* One question after the other to the control socket of a run: mpstagectl(1), PROTOCOL. One thread.
 *
 * Nobody waits longer than CALL_SECONDS for an answer, whatever the other end does: connecting, writing and reading
 * have that limit together. That the run has ended is said only where the socket is gone or refuses: a connection that
 * ends is made anew first, since mpstaged dismisses who is silent for long. */
#ifndef LAUNCHER_CTL_CALL_H
#define LAUNCHER_CTL_CALL_H
#include <jansson.h>
#include <stdbool.h>
#include <sys/types.h>
#include "base/err.h"

enum { CALL_SECONDS = 5 };

struct call {
    const char *dir;
    int at, fd;                                           /* the run directory; the connection, -1: none now */
    pid_t pid;                                            /* of who listens there; 0: not known */
    bool met;                                             /* there has been a connection */
    bool asked;                                           /* a request is out, its answer is not here yet */
    bool silent;                                          /* why the last question failed: no answer came in time */
    bool ended;                                           /* why it failed: nobody listens there any more */
    char *in;                                             /* bytes that have come */
    size_t n, cap;
};

/* Opens the directory; connections are made when somebody asks. 69, 77. */
int call_open(struct call *c, const char *dir, struct err *e);
void call_close(struct call *c);
/* Sends a request, unless one is out already, and takes the answer, which is the caller's. 69: nobody listens;
 * 70: it makes no sense; 75: no answer came, and a later call goes on waiting for it; or the code of a refusal, 77 if
 * it has none. */
int call_ask(struct call *c, const char *request, json_t **answer, struct err *e);
/* Takes a line that nobody asked for any more. 1: the connection has ended without one; -1: *e, as above. */
int call_hear(struct call *c, json_t **line, struct err *e);
/* Whether who listens there was stopped, by Ctrl-Z or SIGSTOP. */
bool call_stopped(const struct call *c);

#endif
