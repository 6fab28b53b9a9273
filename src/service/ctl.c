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
#include "cluster/log.h"
#include "service/ctl.h"
#include "service/ctl_request.h"

enum { MAX_CLIENTS = 32, MAX_LINE = 64 * 1024, IDLE_MS = 10000, SIGHTS = 2 };
enum ctl_role { ROLE_NOBODY, ROLE_READER, ROLE_OWNER };
enum awaits { AWAITS_NOTHING, AWAITS_CHECKPOINT, AWAITS_END };

struct client {
    uv_pipe_t pipe;                                       /* first member: the handle is the client */
    uv_timer_t idle;
    struct ctl *ctl;
    struct client *next;
    enum ctl_role role;
    unsigned uid;
    enum awaits awaits;                                   /* it stays connected until then */
    uint64_t step;                                        /* of the checkpoint that it waits for */
    bool spoke, eof;                                     /* it has sent a whole line; its input is no longer read */
    int open_handles, idle_ticks;                             /* sights: how often the timer found it silent */
    size_t n;
    char *line;                                           /* MAX_LINE bytes, allocated at the first byte */
};
struct ctl {
    uv_pipe_t listener;
    uv_loop_t *loop;
    struct ctl_calls calls;
    struct client *clients;                               /* the newest first */
    unsigned group;                                       /* of the socket */
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
    free(c->line);
    free(c);
}

static bool is_leaving(const struct client *c) { return uv_is_closing((const uv_handle_t *)&c->pipe); }

static void client_close(struct client *c)
{
    if (is_leaving(c)) return;
    uv_close((uv_handle_t *)&c->pipe, on_client_closed);
    uv_close((uv_handle_t *)&c->idle, on_client_closed);
}

/* Called SIGHTS times in IDLE_MS. One call is not enough: after this process was stopped, the timer fires before the
 * loop reads what clients sent meanwhile. */
static void on_idle(uv_timer_t *t)
{
    struct client *c = t->data;
    if (++c->idle_ticks >= SIGHTS && !c->awaits) client_close(c);
}

static void lines_take(struct client *c);

/* Takes the next line only after the previous answer was written, so that a client cannot keep the loop busy with many
 * lines. */
static void on_written(uv_write_t *w, int status)
{
    struct reply *r = (struct reply *)w;
    struct client *c = (struct client *)w->handle;
    free(r->text);
    free(r);
    if (status < 0) client_close(c);
    else lines_take(c);
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

static json_t *refuse(int code, const char *why)
{
    char clean[2000];                                     /* JSON takes only UTF-8 */
    return json_pack("{s:b,s:s,s:i}", "ok", 0, "error", text_printable(why, clean, sizeof clean), "code", code);
}

/* Sends o now or drops it, so that a client that does not read delays no other. Frees o. */
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

static json_t *on_status(struct client *c)
{
    json_t *o = json_pack("{s:b}", "ok", 1), *status = c->ctl->calls.status(c->ctl->calls.ctx);
    json_object_update(o, status);
    json_decref(status);
    return o;
}

static json_t *did(const char *state) { return json_pack("{s:b,s:s}", "ok", 1, "state", state); }

static json_t *on_checkpoint(struct client *c, const struct ctl_request *r, struct err *e)
{
    const struct ctl_calls *k = &c->ctl->calls;
    bool stops = r->command == CTL_STOP;
    if (k->checkpoint(k->ctx, stops, &c->step, e)) return NULL;
    if (r->wait) c->awaits = stops ? AWAITS_END : AWAITS_CHECKPOINT;
    json_t *o = did(stops ? "stopping" : "writing a checkpoint");
    json_object_set_new(o, "step", json_integer((json_int_t)c->step));
    return o;
}

static json_t *on_stop(struct client *c, const struct ctl_request *r, struct err *e)
{
    const struct ctl_calls *k = &c->ctl->calls;
    if (r->checkpoint) return on_checkpoint(c, r, e);
    if (k->stop(k->ctx, e)) return NULL;
    if (r->wait) c->awaits = AWAITS_END;
    return did("stopping");
}

/* NULL: e has the reason. */
static json_t *command_run(struct client *c, const struct ctl_request *r, struct err *e)
{
    const struct ctl_calls *k = &c->ctl->calls;
    json_t *o = NULL;
    switch (r->command) {
    case CTL_STATUS: return on_status(c);
    case CTL_CHECKPOINT: return on_checkpoint(c, r, e);
    case CTL_STOP: return on_stop(c, r, e);
    case CTL_PAUSE: return k->pause(k->ctx, e) ? NULL : did("pausing");
    case CTL_RESUME: return k->resume(k->ctx, e) ? NULL : did("going on");
    case CTL_LOG_LEVEL: return k->log_level(k->ctx, r->level, e) ? NULL : did(r->level);
    case CTL_SET:
        o = did("set");
        if (!k->set(k->ctx, r->key, r->value, o, e)) return o;
        break;
    case CTL_RELOAD:
        o = did("reloaded");
        if (!k->reload(k->ctx, o, e)) return o;
        break;
    }
    json_decref(o);
    return NULL;
}

static json_t *request_run(struct client *c, const struct ctl_request *r, struct err *e)
{
    const char *name = ctl_command_name(r->command);
    if (!r->reads && c->role < ROLE_OWNER) {
        err_set(e, E_PERM, "%s: only the owner of the run may ask that", name);
        return NULL;
    }
    log_at(LEVEL_DEBUG, "control: user %u: %s%s%s", c->uid, name, r->key ? " " : "", r->key ? r->key : "");
    return command_run(c, r, e);
}

static void line_run(struct client *c, const char *line, size_t n)
{
    struct ctl_request r;
    struct err e = {0};
    json_t *answer = ctl_request_parse(line, n, &r, &e) ? NULL : request_run(c, &r, &e);
    if (!answer) answer = refuse(e.code, e.text);
    if (r.id) json_object_set(answer, "id", r.id);
    ctl_request_free(&r);
    reply_send(c, answer);
}

/* ---- reading ----------------------------------------------------------------------------------------------------- */

static void on_alloc(uv_handle_t *h, size_t wish, uv_buf_t *buf)
{
    struct client *c = h->data;
    (void)wish;
    if (!c->line) c->line = mem_alloc(MAX_LINE);
    *buf = uv_buf_init(c->line + c->n, (unsigned)(MAX_LINE - c->n));
}

static void on_read(uv_stream_t *stream, ssize_t n, const uv_buf_t *buf);

static void line_refuse(struct client *c)
{
    c->eof = true;
    c->awaits = AWAITS_NOTHING;
    reply_send(c, refuse(E_USAGE, "a line is longer than 64 KiB"));
}

/* Takes one line, or continues reading if there is none. Only whole lines reset the timer, so that single bytes do not
 * keep a place. */
static void lines_take(struct client *c)
{
    char *end = c->n ? memchr(c->line, '\n', c->n) : NULL;
    if (c->eof || is_leaving(c)) return;
    if (!end && c->n == MAX_LINE) { line_refuse(c); return; }
    if (!end) {
        if (!uv_is_active((uv_handle_t *)&c->pipe)) uv_read_start((uv_stream_t *)&c->pipe, on_alloc, on_read);
        return;
    }
    size_t used = (size_t)(end - c->line) + 1;
    c->spoke = true;
    c->idle_ticks = 0;
    uv_timer_again(&c->idle);
    line_run(c, c->line, used - 1);
    memmove(c->line, c->line + used, c->n - used);
    c->n -= used;
}

static void on_read(uv_stream_t *stream, ssize_t n, const uv_buf_t *buf)
{
    struct client *c = (struct client *)stream;
    (void)buf;
    if (n < 0) { client_close(c); return; }
    c->n += (size_t)n;
    uv_read_stop(stream);
    lines_take(c);
}

/* ---- access ------------------------------------------------------------------------------------------------------ */

static bool in_group(int fd, unsigned primary, unsigned group)
{
    gid_t more[256];                                      /* if a client is in more groups, its primary group decides */
    socklen_t n = sizeof more;
    if (primary == group) return true;
    if (getsockopt(fd, SOL_SOCKET, SO_PEERGROUPS, more, &n)) return false;
    for (size_t i = 0; i < n / sizeof *more; i++) if (more[i] == group) return true;
    return false;
}

static void role_find(struct client *c)
{
    uv_os_fd_t fd;
    struct ucred who;
    socklen_t n = sizeof who;
    if (uv_fileno((uv_handle_t *)&c->pipe, &fd) || getsockopt(fd, SOL_SOCKET, SO_PEERCRED, &who, &n)) return;
    c->uid = who.uid;
    if (who.uid == 0 || who.uid == geteuid()) c->role = ROLE_OWNER;
    else if (in_group(fd, who.gid, c->ctl->group)) c->role = ROLE_READER;
}

static void client_refuse(struct client *c, int code, const char *why)
{
    line_try(c, refuse(code, why));
    client_close(c);
}

/* Frees a place for a new client if there is none. False: no client may be displaced. */
static bool client_evict(struct ctl *ctl, const struct client *fresh)
{
    struct client *silent = NULL, *reader = NULL;
    int n = 0;
    for (struct client *k = ctl->clients; k; k = k->next) {
        if (is_leaving(k) || k == fresh) continue;
        n++;
        if (!k->spoke) silent = k;
        else if (k->role < ROLE_OWNER) reader = k;
    }
    struct client *leaves = silent ? silent : fresh->role == ROLE_OWNER ? reader : NULL;
    if (n < MAX_CLIENTS) return true;
    if (leaves) client_close(leaves);
    return leaves != NULL;
}

static void on_connection(uv_stream_t *listener, int status)
{
    struct ctl *ctl = listener->data;
    char full[60];
    if (status < 0) return;
    struct client *c = mem_alloc(sizeof *c);
    if (uv_pipe_init(ctl->loop, &c->pipe, 0)) { free(c); return; }
    uv_timer_init(ctl->loop, &c->idle);                   /* cannot fail; starting it cannot, either */
    c->ctl = ctl;
    c->open_handles = 2;
    c->pipe.data = c->idle.data = c;
    c->next = ctl->clients;
    ctl->clients = c;
    if (uv_accept(listener, (uv_stream_t *)&c->pipe)) { client_close(c); return; }
    role_find(c);
    snprintf(full, sizeof full, "too many clients (%d), try again later", MAX_CLIENTS);
    if (!c->role) { client_refuse(c, E_PERM, "only the owner of the run and its group may ask"); return; }
    if (!client_evict(ctl, c)) { client_refuse(c, E_STOPPED, full); return; }
    uv_timer_start(&c->idle, on_idle, IDLE_MS / SIGHTS, IDLE_MS / SIGHTS);
    if (uv_read_start((uv_stream_t *)&c->pipe, on_alloc, on_read)) client_close(c);
}

/* ---- the listener ------------------------------------------------------------------------------------------------ */

/* The mask gives the socket its mode at once: a chmod by name could hit another user's file. The mask is per process,
 * so threads that create files wait for this one. */
static int bind_shut(uv_pipe_t *p, const char *path)
{
    mode_t was = umask(0117);
    int bad = uv_pipe_bind(p, path);
    umask(was);
    return bad;
}

/* The errors of file systems without sockets, and of policies that forbid them. */
static bool has_none(int bad)
{
    static const int says[] = {UV_EPERM, UV_EACCES, UV_ENOTSUP, UV_ENOSYS, UV_EINVAL, UV_EAFNOSUPPORT, UV_ENXIO,
                               UV_EIO};
    for (size_t i = 0; i < sizeof says / sizeof *says; i++) if (bad == says[i]) return true;
    return false;
}

int ctl_open(uv_loop_t *loop, int dirfd, const char *dir, const struct ctl_calls *calls, struct ctl **out,
             struct err *e)
{
    struct ctl *c = mem_alloc(sizeof *c);
    /* By the directory's descriptor, because names of sockets must be short. */
    char path[64];
    snprintf(path, sizeof path, "/proc/self/fd/%d/control.sock", dirfd);
    c->loop = loop;
    c->calls = *calls;
    *out = c;
    struct stat st;
    int bad = fstat(dirfd, &st) ? UV_EBADF : uv_pipe_init(loop, &c->listener, 0);
    c->listener.data = c;
    if (!bad) bad = bind_shut(&c->listener, path);
    c->group = st.st_mode & S_ISGID ? st.st_gid : getegid();
    if (!bad) bad = uv_listen((uv_stream_t *)&c->listener, 16, on_connection);
    if (!bad) return 0;
    if (access("/proc/self/fd", X_OK))
        return err_set(e, E_CANTCREAT, "%s/control.sock: /proc is needed to make it, and is not mounted", dir);
    err_set(e, E_CANTCREAT, "%s/control.sock: cannot make a unix socket: %s", dir, uv_strerror(bad));
    return has_none(bad) ? 1 : -1;
}

void ctl_checkpoint_done(struct ctl *c, uint64_t step, int code, const char *text)
{
    for (struct client *k = c ? c->clients : NULL; k; k = k->next) {
        if (k->awaits != AWAITS_CHECKPOINT || k->step > step || is_leaving(k)) continue;
        json_t *o = code ? refuse(code, text) : did("checkpoint");
        json_object_set_new(o, "step", json_integer((json_int_t)step));
        k->awaits = AWAITS_NOTHING;
        reply_send(k, o);
    }
}

void ctl_checkpoint_back(struct ctl *c, uint64_t step)
{
    for (struct client *k = c ? c->clients : NULL; k; k = k->next) if (k->step > step) k->step = step + 1;
}

void ctl_close(struct ctl *c, int code, const char *how)
{
    if (!c || c->closing) return;
    c->closing = true;
    uv_close((uv_handle_t *)&c->listener, NULL);
    for (struct client *k = c->clients; k; k = k->next) {
        if (k->awaits && !is_leaving(k)) line_try(k, code ? refuse(code, how) : did(how));
        client_close(k);
    }
}

void ctl_free(struct ctl *c) { free(c); }
