/* Serves service.metrics by HTTP: /metrics, /healthz, /readyz (mpstaged(8), MONITORING). Runs in rank 0's loop thread;
 * libmicrohttpd answers there, without its own threads. http_none.c replaces it if the program was built without
 * libmicrohttpd.
 *
 * Clients are not trusted: requests of at most 16 KiB, 10 seconds of silence, and at most HTTP_CLIENTS connections. The
 * newest connection displaces the oldest, so that silent connections keep no other client out. */
#ifndef SERVICE_HTTP_H
#define SERVICE_HTTP_H
#include <stdatomic.h>
#include <stdbool.h>
#include <uv.h>
#include "base/err.h"
#include "base/text.h"

/* HTTP_FILES: the most descriptors that it opens, including clients that have just come or left. */
enum { HTTP_CLIENTS = 32, HTTP_FILES = HTTP_CLIENTS + 24 };

struct http;
struct http_calls {
    /* Writes the page of /metrics: OpenMetrics 1.0, or Prometheus' text format 0.0.4. */
    void (*metrics)(void *ctx, bool openmetrics, struct text *page);
    bool (*ready)(void *ctx, struct text *word);          /* whether the run makes progress; word: its state */
    void *ctx;
};
/* Binds the address; it answers no client yet. An address in use is tried again for a second or two, because the
 * previous run may be about to end. 73, 78 if the program was built without HTTP, 75 if *stop is set. */
int http_bind(const char *address, const atomic_int *stop, int *fd, struct err *e);
/* Serves a bound socket, which it closes at its end, also if it fails. Logs the address. 71, 73. */
int http_open(uv_loop_t *loop, int fd, const struct http_calls *calls, struct http **out, struct err *e);
/* Ends all connections; the loop must run once more. On the scheduler's thread, or after that has ended. */
void http_close(struct http *h);
void http_free(struct http *h);                           /* after the loop has run */
#endif
