/* Replaces http.c if configure did not find libmicrohttpd. */
#include <unistd.h>
#include "service/http.h"

static int none(struct err *e)
{
    return err_set(e, E_CONF, "service.metrics: this mpstaged was built without libmicrohttpd (libmicrohttpd-dev)");
}

int http_bind(const char *address, const atomic_int *stop, int *fd, struct err *e)
{
    (void)address, (void)stop;
    *fd = -1;
    return none(e);
}

int http_open(uv_loop_t *loop, int fd, const struct http_calls *calls, struct http **out, struct err *e)
{
    (void)loop, (void)calls;
    *out = NULL;
    if (fd >= 0) close(fd);
    return none(e);
}

void http_close(struct http *h) { (void)h; }
void http_free(struct http *h) { (void)h; }
