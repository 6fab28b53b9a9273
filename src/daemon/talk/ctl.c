/* The control socket: clients, lines, commands. */
#include "config.h"
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>
#include "base/mem.h"
#include "base/text.h"
#include "daemon/talk/ctl.h"

enum { MAX_CLIENTS = 32, MAX_LINE = 64 * 1024, IDLE_MS = 10000, SIGHTS = 2 };

struct client {
    uv_pipe_t pipe;                                       /* first member: the handle is the client */
    uv_timer_t idle;
    struct ctl *ctl;
    struct client *next;
    bool waiting, owner;                                  /* waiting: it stays until the run ends */
    int open_handles, sights;                             /* sights: how often the timer has found it silent */
    size_t n;
    char line[MAX_LINE];
};
struct ctl {
    uv_pipe_t listener;
    uv_loop_t *loop;
    struct ctl_calls calls;
    struct client *clients;
    int n_clients;
    bool closing;
};
struct reply { uv_write_t write; char *text; };

/* ---- clients ----------------------------------------------------------------------------------------------------- */

static void on_client_closed(uv_handle_t *h)
{
    struct client *c = h->data;
    if (--c->open_handles) return;
    for (struct client **p = &c->ctl->clients; *p; p = &(*p)->next)
        if (*p == c) { *p = c->next; break; }
    c->ctl->n_clients--;
    free(c);
}

static void client_close(struct client *c)
{
    if (uv_is_closing((uv_handle_t *)&c->pipe)) return;
    uv_close((uv_handle_t *)&c->pipe, on_client_closed);
    uv_close((uv_handle_t *)&c->idle, on_client_closed);
}

/* Called SIGHTS times in IDLE_MS. After this process was stopped it is called once before what clients sent meanwhile
 * is read. */
static void on_idle(uv_timer_t *t)
{
    struct client *c = t->data;
    if (++c->sights >= SIGHTS && !c->waiting) client_close(c);
}

static void on_written(uv_write_t *w, int status)
{
    struct reply *r = (struct reply *)w;
    if (status < 0 && status != UV_ECANCELED) client_close((struct client *)w->handle);
    free(r->text);
    free(r);
}

/* Whether replies pile up because the client does not read them. */
static bool too_many(const struct client *c)
{
    enum { UNREAD = 1 << 20 };
    return uv_stream_get_write_queue_size((const uv_stream_t *)&c->pipe) > UNREAD;
}

static void reply_send(struct client *c, json_t *o)
{
    if (too_many(c)) {
        json_decref(o);
        client_close(c);
        return;
    }
    struct reply *r = mem_alloc(sizeof *r);
    char *s = json_dumps(o, JSON_COMPACT);
    json_decref(o);
    struct text t = {0};
    text_add(&t, "%s\n", s ? s : "{}");
    free(s);
    r->text = t.s;
    uv_buf_t buf = uv_buf_init(r->text, (unsigned)t.n);
    if (uv_write(&r->write, (uv_stream_t *)&c->pipe, &buf, 1, on_written)) {
        free(r->text);
        free(r);
        client_close(c);
    }
}

/* ---- commands ---------------------------------------------------------------------------------------------------- */

static json_t *refuse(const char *why) { return json_pack("{s:b,s:s}", "ok", 0, "error", why); }

/* Sends o now or drops it, so that a client that does not read delays nobody. Frees o. */
static void line_try(struct client *c, json_t *o)
{
    struct text t = {0};
    char *s = json_dumps(o, JSON_COMPACT);
    text_add(&t, "%s\n", s ? s : "{}");
    uv_buf_t buf = uv_buf_init(t.s, (unsigned)t.n);
    uv_try_write((uv_stream_t *)&c->pipe, &buf, 1);
    free(s);
    text_free(&t);
    json_decref(o);
}

static json_t *on_status(struct client *c, const json_t *request)
{
    (void)request;
    json_t *o = json_pack("{s:b}", "ok", 1), *status = c->ctl->calls.status(c->ctl->calls.ctx);
    json_object_update(o, status);
    json_decref(status);
    return o;
}

static json_t *on_stop(struct client *c, const json_t *request)
{
    if (!c->owner) return refuse("only the owner of the run may stop it");
    c->waiting = json_is_true(json_object_get(request, "wait"));
    c->ctl->calls.stop(c->ctl->calls.ctx);
    return json_pack("{s:b,s:s}", "ok", 1, "state", "stopping");
}

static const struct { const char *name; json_t *(*run)(struct client *c, const json_t *request); } commands[] = {
    {"status", on_status},
    {"stop", on_stop},
};

static void line_run(struct client *c, const char *line, size_t n)
{
    json_error_t where;
    json_t *request = json_loadb(line, n, JSON_REJECT_DUPLICATES, &where), *answer = NULL;
    const char *name = json_string_value(json_object_get(request, "command"));
    if (!json_is_object(request)) answer = refuse("a request is one JSON object a line");
    else if (!name) answer = refuse("a request needs a \"command\"");
    for (size_t i = 0; !answer && i < sizeof commands / sizeof *commands; i++)
        if (strcmp(commands[i].name, name) == 0) answer = commands[i].run(c, request);
    if (!answer) answer = refuse("unknown command");
    json_t *id = json_object_get(request, "id");
    if (id) json_object_set(answer, "id", id);
    json_decref(request);
    reply_send(c, answer);
}

/* ---- reading ----------------------------------------------------------------------------------------------------- */

static void on_alloc(uv_handle_t *h, size_t wish, uv_buf_t *buf)
{
    struct client *c = h->data;
    (void)wish;
    *buf = uv_buf_init(c->line + c->n, (unsigned)(MAX_LINE - c->n));
}

static void lines_take(struct client *c)
{
    for (char *end; (end = memchr(c->line, '\n', c->n)) && !uv_is_closing((uv_handle_t *)&c->pipe);) {
        size_t used = (size_t)(end - c->line) + 1;
        line_run(c, c->line, used - 1);
        memmove(c->line, c->line + used, c->n - used);
        c->n -= used;
    }
}

static void on_read(uv_stream_t *stream, ssize_t n, const uv_buf_t *buf)
{
    struct client *c = (struct client *)stream;
    (void)buf;
    if (n < 0) { client_close(c); return; }
    c->n += (size_t)n;
    c->sights = 0;
    uv_timer_again(&c->idle);
    lines_take(c);
    if (c->n < MAX_LINE || uv_is_closing((uv_handle_t *)stream)) return;
    uv_read_stop(stream);
    reply_send(c, refuse("a line is longer than 64 KiB"));
    c->waiting = false;
}

static bool is_owner(const uv_pipe_t *pipe)
{
    uv_os_fd_t fd;
    struct ucred who;
    socklen_t n = sizeof who;
    if (uv_fileno((const uv_handle_t *)pipe, &fd) || getsockopt(fd, SOL_SOCKET, SO_PEERCRED, &who, &n)) return false;
    return who.uid == 0 || who.uid == geteuid();
}

static void client_refuse(struct client *c)
{
    struct text why = {0};
    text_add(&why, "too many clients (%d), try again later", MAX_CLIENTS);
    json_t *o = refuse(why.s);
    json_object_set_new(o, "code", json_integer(E_STOPPED));
    line_try(c, o);
    text_free(&why);
    client_close(c);
}

static void on_connection(uv_stream_t *listener, int status)
{
    struct ctl *ctl = listener->data;
    if (status < 0) return;
    struct client *c = mem_alloc(sizeof *c);
    if (uv_pipe_init(ctl->loop, &c->pipe, 0)) { free(c); return; }
    uv_timer_init(ctl->loop, &c->idle);                   /* cannot fail; starting it cannot, either */
    c->ctl = ctl;
    c->open_handles = 2;
    c->pipe.data = c->idle.data = c;
    c->next = ctl->clients;
    ctl->clients = c;
    ctl->n_clients++;
    if (uv_accept(listener, (uv_stream_t *)&c->pipe)) { client_close(c); return; }
    if (ctl->n_clients > MAX_CLIENTS) { client_refuse(c); return; }
    c->owner = is_owner(&c->pipe);
    uv_timer_start(&c->idle, on_idle, IDLE_MS / SIGHTS, IDLE_MS / SIGHTS);
    if (uv_read_start((uv_stream_t *)&c->pipe, on_alloc, on_read)) client_close(c);
}

/* ---- the listener ------------------------------------------------------------------------------------------------ */

int ctl_open(uv_loop_t *loop, int dirfd, const char *dir, const struct ctl_calls *calls, struct ctl **out,
             struct err *e)
{
    struct ctl *c = mem_alloc(sizeof *c);
    /* Through the directory's descriptor, because names of sockets must be short. */
    char path[64];
    snprintf(path, sizeof path, "/proc/self/fd/%d/control.sock", dirfd);
    c->loop = loop;
    c->calls = *calls;
    *out = c;
    int bad = uv_pipe_init(loop, &c->listener, 0);
    c->listener.data = c;
    if (!bad) bad = uv_pipe_bind(&c->listener, path);
    if (!bad && fchmodat(dirfd, "control.sock", 0660, 0)) bad = UV_EIO;
    if (!bad) bad = uv_listen((uv_stream_t *)&c->listener, 16, on_connection);
    if (!bad) return 0;
    return err_set(e, E_CANTCREAT, "%s/control.sock: %s", dir,
                   access("/proc/self/fd", X_OK) ? "/proc is needed to make it, and is not mounted" : uv_strerror(bad));
}

static void last_line(struct client *c, int code, const char *how)
{
    char clean[2000];                                     /* JSON takes only UTF-8 */
    json_t *o = code ? refuse(text_printable(how, clean, sizeof clean)) : json_pack("{s:b,s:s}", "ok", 1, "state", how);
    if (code) json_object_set_new(o, "code", json_integer(code));
    line_try(c, o);
}

void ctl_close(struct ctl *c, int code, const char *how)
{
    if (c->closing) return;
    c->closing = true;
    uv_close((uv_handle_t *)&c->listener, NULL);
    for (struct client *k = c->clients; k; k = k->next) {
        if (k->waiting && !uv_is_closing((uv_handle_t *)&k->pipe)) last_line(k, code, how);
        client_close(k);
    }
}

void ctl_free(struct ctl *c) { free(c); }
