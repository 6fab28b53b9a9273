/* HTTP: accepts connections; libmicrohttpd reads their requests. */
#include "config.h"
#include <errno.h>
#include <microhttpd.h>
#include <netinet/in.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <unistd.h>
#include "base/address.h"
#include "base/mem.h"
#include "cluster/log.h"
#include "service/http.h"

/* BATCH: connections accepted at a time, before other requests are read. CONNECTIONS exceeds the connections that
 * can then be open: libmicrohttpd would refuse more. */
enum { BATCH = 8, CONNECTIONS = HTTP_CLIENTS + 2 * BATCH,
       SILENCE_S = 10, REQUEST_BYTES = 16 << 10, PAUSE_MS = 1000 };

struct http {
    uv_loop_t *loop;
    uv_poll_t listener, requests;                         /* requests: all of libmicrohttpd's descriptors */
    uv_timer_t timer;
    struct MHD_Daemon *daemon;
    struct http_calls calls;
    int fd, open[CONNECTIONS], n_open;                           /* open connections, the oldest first */
    bool pausing;                                         /* no descriptor was left: accepts none for a while */
};

/* ---- the address ------------------------------------------------------------------------------------------------- */

static int address_cannot(const char *address, int why, struct err *e)
{
    return err_set(e, E_CANTCREAT, "service.metrics: cannot listen at %s: %s", address, strerror(why));
}

static int bind_once(const struct address *a)
{
    int fd = socket(a->at.ss_family, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0), yes = 1;
    if (fd < 0) return -1;
    setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &yes, sizeof yes);
    if (a->at.ss_family == AF_INET6) setsockopt(fd, IPPROTO_IPV6, IPV6_V6ONLY, &yes, sizeof yes);
    if (bind(fd, (const struct sockaddr *)&a->at, a->n) == 0) return fd;
    int why = errno;
    close(fd);
    errno = why;
    return -1;
}

int http_bind(const char *address, const atomic_int *stop, int *fd, struct err *e)
{
    enum { TRIES = 30, NAP_US = 50000 };
    struct address a;
    if (address_parse(address, &a)) return err_set(e, E_CONF, "service.metrics: %s is not an address", address);
    for (int i = 0; (*fd = bind_once(&a)) < 0 && errno == EADDRINUSE && i < TRIES; i++) {
        if (stop && atomic_load(stop)) return err_set(e, E_STOPPED, "stopped");
        usleep(NAP_US);
    }
    return *fd < 0 ? address_cannot(address, errno, e) : 0;
}

/* The bound address, with the port that the system chose. */
static void address_of(int fd, char buf[ADDRESS_TEXT])
{
    struct address a = {.n = sizeof a.at};
    *buf = '\0';
    if (!getsockname(fd, (struct sockaddr *)&a.at, &a.n)) address_text(&a, buf);
}

/* ---- answers ----------------------------------------------------------------------------------------------------- */

/* What a client wants of a type, by one range of its header Accept: "TYPE; PARAMETER=VALUE; ...". Returns the quality q
 * from 0 to 1, or -1 where the range is of another type, or of a version with another first number than 1 or 0. */
static double range_quality(const char *range, size_t n, const char *type)
{
    const char *end = range + n, *at = memchr(range, ';', n);
    double q = 1;
    if ((size_t)((at ? at : end) - range) < strlen(type) || strncasecmp(range, type, strlen(type))) return -1;
    range += strlen(type);
    if (range + strspn(range, " \t") < (at ? at : end)) return -1;
    while (at && at < end) {
        at += 1 + strspn(at + 1, " \t");
        if (!strncasecmp(at, "q=", 2)) q = strtod(at + 2, NULL);
        if (!strncasecmp(at, "version=", 8) && ((at[8] != '0' && at[8] != '1') || at[9] != '.')) return -1;
        at = memchr(at, ';', (size_t)(end - at));
    }
    return q;
}

static double accept_quality(const char *accept, const char *type)
{
    double best = -1;
    while (accept && *accept) {
        accept += strspn(accept, ", \t");
        size_t n = strcspn(accept, ",");
        double q = range_quality(accept, n, type);
        if (q > best) best = q;
        accept += n;
    }
    return best;
}

/* OpenMetrics is for those who name it, unless they prefer text/plain. */
static bool openmetrics_wanted(struct MHD_Connection *c)
{
    const char *accept = MHD_lookup_connection_value(c, MHD_HEADER_KIND, MHD_HTTP_HEADER_ACCEPT);
    double q = accept_quality(accept, "application/openmetrics-text");
    return q > 0 && q >= accept_quality(accept, "text/plain");
}

static unsigned page_metrics(const struct http *h, struct text *t)
{
    h->calls.metrics(h->calls.ctx, false, t);
    return MHD_HTTP_OK;
}

static unsigned page_openmetrics(const struct http *h, struct text *t)
{
    h->calls.metrics(h->calls.ctx, true, t);
    return MHD_HTTP_OK;
}

static unsigned page_health(const struct http *h, struct text *t)
{
    (void)h;
    text_add(t, "ok\n");
    return MHD_HTTP_OK;
}

static unsigned page_ready(const struct http *h, struct text *t)
{
    bool ready = h->calls.ready(h->calls.ctx, t);
    text_add(t, "\n");
    return ready ? MHD_HTTP_OK : MHD_HTTP_SERVICE_UNAVAILABLE;
}

struct http_page { const char *path, *type; unsigned (*write)(const struct http *h, struct text *t); };
static const struct http_page
openmetrics = {"/metrics", "application/openmetrics-text; version=1.0.0; charset=utf-8", page_openmetrics},
pages[] = {
    {"/metrics", "text/plain; version=0.0.4; charset=utf-8", page_metrics},
    {"/healthz", "text/plain; charset=utf-8", page_health},
    {"/readyz", "text/plain; charset=utf-8", page_ready},
};

/* Sends a text, which the library then owns. */
static enum MHD_Result text_send(struct MHD_Connection *c, unsigned status, const char *type, struct text *t)
{
    struct MHD_Response *r = MHD_create_response_from_buffer(t->n, t->s, MHD_RESPMEM_MUST_FREE);
    if (!r) {
        text_free(t);
        return MHD_NO;                                    /* ends the connection */
    }
    MHD_add_response_header(r, MHD_HTTP_HEADER_CONTENT_TYPE, type);
    MHD_add_response_header(r, MHD_HTTP_HEADER_CACHE_CONTROL, "no-store");
    MHD_add_response_header(r, MHD_HTTP_HEADER_VARY, MHD_HTTP_HEADER_ACCEPT);
    if (status == MHD_HTTP_METHOD_NOT_ALLOWED) MHD_add_response_header(r, MHD_HTTP_HEADER_ALLOW, "GET, HEAD");
    enum MHD_Result sent = MHD_queue_response(c, status, r);
    MHD_destroy_response(r);
    return sent;
}

static enum MHD_Result refuse(struct MHD_Connection *c, unsigned status, const char *why)
{
    struct text t = {0};
    text_add(&t, "%s\n", why);
    return text_send(c, status, "text/plain; charset=utf-8", &t);
}

/* Called after the head of a request was read, and again after all of it was. */
static enum MHD_Result on_request(void *ctx, struct MHD_Connection *c, const char *path, const char *method,
                                  const char *version, const char *body, size_t *n, void **seen)
{
    struct http *h = ctx;
    struct text t = {0};
    (void)version, (void)body;
    if (strcmp(method, "GET") && strcmp(method, "HEAD"))
        return refuse(c, MHD_HTTP_METHOD_NOT_ALLOWED, "only GET and HEAD");
    if (!*seen || *n) {
        *seen = h;
        *n = 0;
        return MHD_YES;
    }
    for (size_t i = 0; i < sizeof pages / sizeof *pages; i++) {
        if (strcmp(pages[i].path, path)) continue;
        const struct http_page *p = i == 0 && openmetrics_wanted(c) ? &openmetrics : &pages[i];
        unsigned status = p->write(h, &t);
        return text_send(c, status, p->type, &t);
    }
    return refuse(c, MHD_HTTP_NOT_FOUND, "here are /metrics, /healthz and /readyz");
}

/* ---- connections ------------------------------------------------------------------------------------------------- */

static void on_connection(void *ctx, struct MHD_Connection *c, void **of, enum MHD_ConnectionNotificationCode what)
{
    struct http *h = ctx;
    int fd = MHD_get_connection_info(c, MHD_CONNECTION_INFO_CONNECTION_FD)->connect_fd, i = 0;
    (void)of;
    if (what == MHD_CONNECTION_NOTIFY_STARTED) {
        if (h->n_open < CONNECTIONS) h->open[h->n_open++] = fd;
        return;
    }
    while (i < h->n_open && h->open[i] != fd) i++;
    if (i == h->n_open) return;
    memmove(&h->open[i], &h->open[i + 1], (size_t)(--h->n_open - i) * sizeof *h->open);
}

static void on_timer(uv_timer_t *t);

/* Lets the library work, and sets the timer that the library requests. */
static void turn(struct http *h)
{
    MHD_UNSIGNED_LONG_LONG ms;
    MHD_run(h->daemon);
    bool wants = MHD_get_timeout(h->daemon, &ms) == MHD_YES;
    if (h->pausing && (!wants || ms > PAUSE_MS)) ms = PAUSE_MS;
    if (wants || h->pausing) uv_timer_start(&h->timer, on_timer, ms, 0);
    else uv_timer_stop(&h->timer);
}

static void on_requests(uv_poll_t *p, int status, int events)
{
    (void)status, (void)events;
    turn(p->data);
}

/* Ends the oldest connections, so that no more than HTTP_CLIENTS remain with the new one. The library treats them as
 * closed by the client. */
static void oldest_end(struct http *h)
{
    for (int i = 0; i <= h->n_open - HTTP_CLIENTS; i++) shutdown(h->open[i], SHUT_RDWR);
}

static void on_listener(uv_poll_t *p, int status, int events)
{
    struct http *h = p->data;
    (void)status, (void)events;
    for (int i = 0; i < BATCH; i++) {
        struct address from = {.n = sizeof from.at};
        int fd = accept4(h->fd, (struct sockaddr *)&from.at, &from.n, SOCK_NONBLOCK | SOCK_CLOEXEC);
        if (fd < 0 && (errno == EMFILE || errno == ENFILE || errno == ENOBUFS || errno == ENOMEM)) {
            h->pausing = true;
            uv_poll_stop(&h->listener);
        }
        if (fd < 0) break;
        oldest_end(h);
        MHD_add_connection(h->daemon, fd, (const struct sockaddr *)&from.at, from.n);   /* closes it if it fails */
    }
    turn(h);
}

static void listener_start(struct http *h) { uv_poll_start(&h->listener, UV_READABLE, on_listener); }

static void on_timer(uv_timer_t *t)
{
    struct http *h = t->data;
    if (h->pausing) listener_start(h);
    h->pausing = false;
    turn(h);
}

/* ---- open and close ---------------------------------------------------------------------------------------------- */

static int poll_begin(struct http *h)
{
    const union MHD_DaemonInfo *info = MHD_get_daemon_info(h->daemon, MHD_DAEMON_INFO_EPOLL_FD);
    int bad = info ? 0 : UV_ENOSYS;
    if (!bad) bad = uv_timer_init(h->loop, &h->timer);
    if (!bad) bad = uv_poll_init(h->loop, &h->listener, h->fd);
    if (!bad) bad = uv_poll_init(h->loop, &h->requests, info->epoll_fd);
    h->timer.data = h->listener.data = h->requests.data = h;
    if (!bad) bad = uv_poll_start(&h->requests, UV_READABLE, on_requests);
    if (!bad) listener_start(h);
    return bad;
}

int http_open(uv_loop_t *loop, int fd, const struct http_calls *calls, struct http **out, struct err *e)
{
    enum { QUEUE = 128 };
    char where[ADDRESS_TEXT];
    struct http *h = mem_alloc(sizeof *h);
    *h = (struct http){.loop = loop, .fd = fd, .calls = *calls};
    *out = h;
    address_of(fd, where);
    if (listen(fd, QUEUE)) return address_cannot(where, errno, e);
    h->daemon = MHD_start_daemon(MHD_USE_EPOLL | MHD_USE_NO_LISTEN_SOCKET, 0, NULL, NULL, on_request, h,
                                 MHD_OPTION_CONNECTION_LIMIT, (unsigned)CONNECTIONS,
                                 MHD_OPTION_CONNECTION_TIMEOUT, (unsigned)SILENCE_S,
                                 MHD_OPTION_CONNECTION_MEMORY_LIMIT, (size_t)REQUEST_BYTES,
                                 MHD_OPTION_NOTIFY_CONNECTION, on_connection, h, MHD_OPTION_END);
    if (!h->daemon) return err_set(e, E_OS, "service.metrics: libmicrohttpd does not start");
    int bad = poll_begin(h);
    if (bad) return err_set(e, E_OS, "service.metrics: %s", uv_strerror(bad));
    log_line("metrics at http://%s/metrics", where);
    return 0;
}

static void handle_end(uv_handle_t *handle)
{
    if (handle->type != UV_UNKNOWN_HANDLE && !uv_is_closing(handle)) uv_close(handle, NULL);
}

void http_close(struct http *h)
{
    if (!h || h->fd < 0) return;
    handle_end((uv_handle_t *)&h->listener);
    handle_end((uv_handle_t *)&h->requests);
    handle_end((uv_handle_t *)&h->timer);
    if (h->daemon) MHD_stop_daemon(h->daemon);
    close(h->fd);
    h->fd = -1;
}

void http_free(struct http *h) { free(h); }
