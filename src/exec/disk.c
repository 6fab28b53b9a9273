/* Threads that read and write files and the host's memory. There is no mmap: a page fault would stop the computing
 * thread, and a file that is cut off would kill the process. */
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>
#include "base/clock.h"
#include "base/out.h"
#include "exec/disk.h"
#include "exec/meter.h"

enum { MOVERS = BE_MOVERS, PART = 4 << 20 };              /* PART: most bytes of one read or write */

/* A file: as it was when the run began to read it. */
struct weight_file { int fd; char *path; struct stat st; };

/* A thread. passing: pinned memory for a part between a file and the device; NULL: the device's memory is the host's */
struct mover { pthread_t thread; struct exec *s; int number; char *passing; };

struct disk {
    struct out_place place;                               /* of the rank's own file, a part of source 0 */
    struct out file;
    uint64_t own_bytes, host_bytes;                       /* of the own store; those of them in memory */
    char *host;
    VEC(struct weight_file) source;
    pthread_mutex_t lock;                                 /* for everything below, and transfers that run */
    pthread_cond_t changed;
    VEC(struct transfer *) queue;                         /* those with bytes that no thread took */
    bool quits;
    struct err e;                                         /* the first failure */
    uint64_t began_ns, busy_ns, bytes;                    /* since the last report: moving, what was moved */
    int busy;                                             /* threads that move something */
    struct mover mover[MOVERS]; int n_movers;
};

/* ---- threads ----------------------------------------------------------------------------------------------------- */

/* Has somebody written to the file? The rank's own file changes only through the rank. */
static int source_check(const struct weight_file *x, struct err *e)
{
    struct stat now;
    const bool same = !fstat(x->fd, &now) && now.st_size == x->st.st_size &&
                      now.st_mtim.tv_sec == x->st.st_mtim.tv_sec && now.st_mtim.tv_nsec == x->st.st_mtim.tv_nsec;
    return same ? 0 : err_set(e, E_DATA, "%s: it has changed since the run began to read it", x->path);
}

/* Where a source's file begins: what lies in memory is not in it. */
static uint64_t file_from(const struct disk *d, const struct file_piece *p)
{
    return p->source == DISK_OWN ? d->host_bytes : 0;
}

/* The first bytes of a piece that lie in the host's memory; *host: there. */
static size_t host_part(const struct disk *d, const struct file_piece *p, char **host)
{
    if (p->source != DISK_OWN || p->at >= d->host_bytes) return 0;
    *host = d->host + p->at;
    return p->bytes < d->host_bytes - p->at ? p->bytes : (size_t)(d->host_bytes - p->at);
}

/* To memory of the host. */
static int bytes_read(const struct disk *d, const struct file_piece *p, struct err *e)
{
    const struct weight_file *x = &d->source.v[p->source];
    char *host;
    size_t done = host_part(d, p, &host);
    if (done) memcpy(p->to, host, done);
    while (done < p->bytes) {
        const uint64_t at = p->at + done - file_from(d, p);
        const ssize_t got = pread(x->fd, p->to + done, p->bytes - done, (off_t)at);
        if (got < 0 && errno == EINTR) continue;
        if (got < 0) return err_set(e, E_IO, "%s: offset %llu: cannot read: %m", x->path, (unsigned long long)at);
        if (!got) return err_set(e, E_DATA, "%s: offset %llu: the file ends here", x->path, (unsigned long long)at);
        done += (size_t)got;
    }
    return p->source == DISK_OWN ? 0 : source_check(x, e);
}

/* From memory of the host. */
static int bytes_write(const struct disk *d, const struct file_piece *p, struct err *e)
{
    char *host;
    size_t done = host_part(d, p, &host);
    if (done) memcpy(host, p->to, done);
    while (done < p->bytes) {
        const uint64_t at = p->at + done - file_from(d, p);
        const ssize_t put = pwrite(d->file.fd, p->to + done, p->bytes - done, (off_t)at);
        if (put < 0 && errno == EINTR) continue;
        if (put <= 0)
            return err_set(e, E_IO, "pipeline.disk: %s: offset %llu: cannot write: %s", d->place.path,
                           (unsigned long long)at, strerror(put ? errno : EIO));
        done += (size_t)put;
    }
    return 0;
}

/* A part lies in the host's memory or in a file, not in both. */
static int part_move(const struct mover *m, const struct transfer *x, const struct file_piece *part, struct err *e)
{
    const struct exec *s = m->s;
    struct file_piece there = *part;
    char *host;
    if (!m->passing) return x->writes ? bytes_write(s->disk, part, e) : bytes_read(s->disk, part, e);
    const bool in_host = host_part(s->disk, part, &host);
    if (!in_host) there.to = host = m->passing;
    if (!x->writes && !in_host && bytes_read(s->disk, &there, e)) return -1;
    if (s->ops->move(s->be, m->number, x->writes ? host : part->to, x->writes ? part->to : host, part->bytes, e))
        return -1;
    return x->writes && !in_host ? bytes_write(s->disk, &there, e) : 0;
}

/* Takes the next part of the oldest transfer in the queue; NULL: there is none. With the lock held. */
static struct transfer *part_take(struct disk *d, struct file_piece *part)
{
    if (!d->queue.n) return NULL;
    struct transfer *x = d->queue.v[0];
    const struct file_piece *p = &x->piece[x->next];
    const size_t from = x->done, n = p->bytes - from < PART ? p->bytes - from : PART;
    char *host;
    *part = (struct file_piece){p->source, p->at + from, n, p->to + from};
    const size_t in_host = host_part(d, part, &host);
    if (in_host) part->bytes = in_host;
    x->done += part->bytes;
    if (x->done == p->bytes) x->next++, x->done = 0;
    if (x->next == x->n) memmove(d->queue.v, d->queue.v + 1, (size_t)--d->queue.n * sizeof *d->queue.v);
    return x;
}

static void part_work(const struct mover *m, struct transfer *x, const struct file_piece *part)
{
    struct disk *d = m->s->disk;
    struct err e = {0};
    pthread_mutex_unlock(&d->lock);
    int bad = m->passing ? m->s->ops->passed(m->s->be, x->fence, &e) : 0;
    pthread_mutex_lock(&d->lock);
    if (!d->busy++) d->began_ns = clock_ns();
    pthread_mutex_unlock(&d->lock);
    if (!bad) bad = part_move(m, x, part, &e);
    pthread_mutex_lock(&d->lock);
    if (!--d->busy) d->busy_ns += clock_ns() - d->began_ns;
    if (bad && !d->e.code) d->e = e;
    d->bytes += part->bytes;
    x->left -= part->bytes;
    if (!x->left || bad) pthread_cond_broadcast(&d->changed);
}

static void *mover_main(void *of)
{
    const struct mover *m = of;
    struct disk *d = m->s->disk;
    struct file_piece part;
    pthread_mutex_lock(&d->lock);
    while (!d->quits) {
        struct transfer *x = part_take(d, &part);
        if (x) part_work(m, x, &part);
        else pthread_cond_wait(&d->changed, &d->lock);
    }
    pthread_mutex_unlock(&d->lock);
    return NULL;
}

/* With signals blocked, because the main thread handles signals. */
static int movers_start(struct exec *s, struct err *e)
{
    struct disk *d = s->disk;
    sigset_t all, old;
    int bad = 0;
    for (int i = 0; i < MOVERS; i++) {
        d->mover[i] = (struct mover){.s = s, .number = i};
        if (s->ops->move && !(d->mover[i].passing = s->ops->pinned(s->be, PART, e))) return -1;
    }
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &old);
    while (d->n_movers < MOVERS && !bad)
        if (!(bad = pthread_create(&d->mover[d->n_movers].thread, NULL, mover_main, &d->mover[d->n_movers])))
            d->n_movers++;
    pthread_sigmask(SIG_SETMASK, &old, NULL);
    return bad ? err_set(e, E_OS, "cannot create a thread that reads files (ulimit -u, ulimit -v)") : 0;
}

/* ---- files ------------------------------------------------------------------------------------------------------- */

int disk_open(struct exec *s, struct err *e)
{
    if (s->disk) return 0;
    struct disk *d = s->disk = mem_alloc(sizeof *d);
    d->place = (struct out_place)OUT_NOWHERE;
    d->file.fd = -1;
    pthread_mutex_init(&d->lock, NULL);
    clock_cond_init(&d->changed);
    *vec_push(&d->source) = (struct weight_file){.fd = -1};
    d->host_bytes = s->q.pl->host_bytes[s->rank];
    if (d->host_bytes) {
        if (!(d->host = s->ops->pinned(s->be, d->host_bytes, e))) return err_where(e, "pipeline.host_memory");
        memset(d->host, 0, d->host_bytes);
    }
    return movers_start(s, e);
}

void disk_close(struct exec *s)
{
    struct disk *d = s->disk;
    if (!d) return;
    pthread_mutex_lock(&d->lock);
    d->quits = true;
    pthread_cond_broadcast(&d->changed);
    pthread_mutex_unlock(&d->lock);
    for (int i = 0; i < d->n_movers; i++) pthread_join(d->mover[i].thread, NULL);
    for (int i = 1; i < d->source.n; i++) { close(d->source.v[i].fd); free(d->source.v[i].path); }
    if (d->file.fd >= 0) out_drop(&d->file);
    out_place_free(&d->place);
    pthread_cond_destroy(&d->changed);
    pthread_mutex_destroy(&d->lock);
    vec_free(&d->queue);
    vec_free(&d->source);
    free(d);
    s->disk = NULL;
}

int disk_own(struct exec *s, struct err *e)
{
    struct disk *d = s->disk;
    struct text path = {0};
    if (d->file.fd >= 0) return 0;
    text_add(&path, "%s/rank-%d", s->q.conf->pipeline.disk, all_rank(s));
    const int bad = out_place(path.s, &d->place, e) || out_scratch(&d->file, &d->place, e);
    text_free(&path);
    d->source.v[DISK_OWN] = (struct weight_file){.fd = d->file.fd, .path = d->place.path};
    return bad ? err_where(e, "pipeline.disk") : 0;
}

uint64_t disk_take(struct exec *s, uint64_t bytes)
{
    const uint64_t at = s->disk->own_bytes;
    s->disk->own_bytes += bytes;
    return at;
}

bool disk_in_host(const struct exec *s, const struct file_piece *p)
{
    char *host;
    return host_part(s->disk, p, &host) == p->bytes;
}

int disk_reserve(struct exec *s, struct err *e)
{
    struct disk *d = s->disk;
    if (d->own_bytes <= d->host_bytes) return 0;
    const uint64_t bytes = d->own_bytes - d->host_bytes;
    if (disk_own(s, e)) return -1;
    if (out_reserve(&d->file, bytes, e)) return err_where(e, "pipeline.disk");
    return ftruncate(d->file.fd, (off_t)bytes) ? err_set(e, E_IO, "pipeline.disk: %s: %m", d->place.path) : 0;
}

int disk_source(struct exec *s, const char *path, struct err *e)
{
    struct disk *d = s->disk;
    for (int i = 1; i < d->source.n; i++) if (!strcmp(d->source.v[i].path, path)) return i;
    struct weight_file x = {.fd = open(path, O_RDONLY | O_CLOEXEC)};
    if (x.fd < 0 || fstat(x.fd, &x.st)) {
        if (x.fd >= 0) close(x.fd);
        return err_set(e, E_NOINPUT, "%s: %m", path);
    }
    x.path = mem_strdup(path);
    *vec_push(&d->source) = x;
    return d->source.n - 1;
}

int disk_read(const struct exec *s, const struct file_piece *p, struct err *e) { return bytes_read(s->disk, p, e); }
int disk_write(const struct exec *s, const struct file_piece *p, struct err *e) { return bytes_write(s->disk, p, e); }

/* ---- transfers --------------------------------------------------------------------------------------------------- */

int disk_prepare(struct exec *s, struct transfer *x, struct err *e)
{
    return s->ops->fence && x->bytes ? s->ops->fence(s->be, &x->fence, e) : 0;
}

int disk_ask(struct exec *s, struct transfer *x, struct err *e)
{
    struct disk *d = s->disk;
    if (disk_prepare(s, x, e)) return -1;                 /* the fence moves */
    pthread_mutex_lock(&d->lock);
    x->next = 0;
    x->done = 0;
    x->left = x->bytes;
    if (x->left) *vec_push(&d->queue) = x;
    pthread_cond_broadcast(&d->changed);
    pthread_mutex_unlock(&d->lock);
    return 0;
}

int disk_wait(struct exec *s, const struct transfer *x, struct err *e)
{
    enum { LOOK_NS = 500000 };
    struct disk *d = s->disk;
    struct meter_wait w;
    int bad = 0;
    if (s->meter) meter_wait_begin(s, &w);
    pthread_mutex_lock(&d->lock);
    while (!bad && !d->e.code && x->left) {
        pthread_mutex_unlock(&d->lock);
        bad = (s->meter && meter_wait_for(s, &w, ACC_FETCH, e)) || exec_aborted(s, e) || exec_progress(s, e);
        exec_beat_poll(s->beat);
        pthread_mutex_lock(&d->lock);
        if (!bad && !d->e.code && x->left) clock_cond_wait(&d->changed, &d->lock, LOOK_NS);
    }
    if (!bad && d->e.code) bad = err_set(e, d->e.code, "%s", d->e.text);
    pthread_mutex_unlock(&d->lock);
    if (s->meter && !bad) meter_wait_end(s, &w);
    return bad ? -1 : 0;
}

void disk_report(struct exec *s, struct report *r)
{
    struct disk *d = s->disk;
    pthread_mutex_lock(&d->lock);
    const uint64_t now = clock_ns();
    r->fetch_bytes = d->bytes;
    r->fetch_ns = d->busy_ns + (d->busy ? now - d->began_ns : 0);
    d->began_ns = now;
    d->bytes = d->busy_ns = 0;
    pthread_mutex_unlock(&d->lock);
}
