/* What service.metrics serves by HTTP: /metrics, /healthz, /readyz (mpstaged(8), MONITORING). Lives in rank 0's loop
 * thread; libmicrohttpd answers from there, without threads of its own. http_none.c stands in where the program was
 * built without it.
 *
 * Clients are not trusted: requests of at most 16 KiB, 10 seconds of silence, and at most HTTP_CLIENTS connections: the
 * newest takes the place of the oldest, so that connections which say nothing keep nobody out. */
#ifndef SERVICE_HTTP_H
#define SERVICE_HTTP_H
#include <stdatomic.h>
#include <stdbool.h>
#include <uv.h>
#include "base/err.h"
#include "base/text.h"

/* HTTP_FILES: descriptors that it opens at most, those of clients that have just come or gone included. */
enum { HTTP_CLIENTS = 32, HTTP_FILES = HTTP_CLIENTS + 24 };

struct http;
struct http_calls {
    void (*metrics)(void *ctx, struct text *page);        /* writes the page of /metrics */
    bool (*ready)(void *ctx, struct text *word);          /* whether the run is at work; and what it does */
    void *ctx;
};
/* Takes the address; nobody is answered yet. One that another process has is tried again for a second or two, for that
 * may be the run before, which is about to end. 73, 78 if the program was built without HTTP, 75 if *stop is set. */
int http_bind(const char *address, const atomic_int *stop, int *fd, struct err *e);
/* Answers at a bound socket, which it closes at its end, also where this fails; says in the log where. 71, 73. */
int http_open(uv_loop_t *loop, int fd, const struct http_calls *calls, struct http **out, struct err *e);
/* Ends all connections; the loop has to run once more. On the loop's thread, or after it has ended. */
void http_close(struct http *h);
void http_free(struct http *h);                           /* after the loop has run */
#endif
