/* Weights from a file into their slots. A stage's weights are read in parts, by several threads, in the order in which
 * the row asks for stages. There is no mmap: a page fault would stop the computing thread, and a file that is cut off
 * would kill the process. */
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
#include "exec/fetch.h"
#include "exec/meter.h"
#include "plan/plan_int.h"

enum { READERS = 2, PART = 4 << 20 };                     /* PART: most bytes of one read */

/* A file with weights: as it was when the run began to read it. */
struct weight_file { int fd; char *path; struct stat st; };
/* A row's bytes: from `at` on in a file, to its place in the slot. */
struct file_piece { int source; uint64_t at; size_t bytes; char *to; };
/* Of a stage. next, done: the piece that readers take parts of, and its bytes that they took; left: bytes of all pieces
 * that have not come. */
struct fetched { struct file_piece *piece; int n, next; size_t done, bytes, left; };

struct fetcher {
    struct out_place place;                               /* of the rank's own file, source 0 */
    struct out file;
    uint64_t file_bytes;
    VEC(struct weight_file) source;
    struct fetched *stage;                                /* of each stage of the plan */
    pthread_mutex_t lock;                                 /* for everything below */
    pthread_cond_t changed;
    int *holds;                                           /* of each slot: the stage that is there, or comes; -1 */
    int *queue, n_queue;                                  /* stages with bytes that no reader took */
    bool quits;
    struct err e;                                         /* the first failure */
    uint64_t began_ns, busy_ns, bytes;                    /* since the last report: reading, what was read */
    int busy;                                             /* readers that read */
    pthread_t reader[READERS]; int n_readers;
};

/* ---- readers ----------------------------------------------------------------------------------------------------- */

/* Has somebody written to the file? The rank's own file changes only through the rank. */
static int source_check(const struct weight_file *x, struct err *e)
{
    struct stat now;
    const bool same = !fstat(x->fd, &now) && now.st_size == x->st.st_size &&
                      now.st_mtim.tv_sec == x->st.st_mtim.tv_sec && now.st_mtim.tv_nsec == x->st.st_mtim.tv_nsec;
    return same ? 0 : err_set(e, E_DATA, "%s: it has changed since the run began to read it", x->path);
}

/* n bytes of a row, from `from` on. */
static int part_read(const struct fetcher *f, const struct file_piece *p, size_t from, size_t n, char *to,
                     struct err *e)
{
    const struct weight_file *x = &f->source.v[p->source];
    for (size_t done = 0; done < n;) {
        const uint64_t at = p->at + from + done;
        const ssize_t got = pread(x->fd, to + done, n - done, (off_t)at);
        if (got < 0 && errno == EINTR) continue;
        if (got < 0) return err_set(e, E_IO, "%s: offset %llu: cannot read: %m", x->path, (unsigned long long)at);
        if (!got) return err_set(e, E_DATA, "%s: offset %llu: the file ends here", x->path, (unsigned long long)at);
        done += (size_t)got;
    }
    return p->source ? source_check(x, e) : 0;
}

/* Takes the next part of the oldest stage in the queue; NULL: there is none. With the lock held. */
static struct fetched *part_take(struct fetcher *f, const struct file_piece **p, size_t *from, size_t *n)
{
    if (!f->n_queue) return NULL;
    struct fetched *x = &f->stage[f->queue[0]];
    *p = &x->piece[x->next];
    *from = x->done;
    *n = (*p)->bytes - x->done < PART ? (*p)->bytes - x->done : PART;
    x->done += *n;
    if (x->done == (*p)->bytes) x->next++, x->done = 0;
    if (x->next == x->n) memmove(f->queue, f->queue + 1, (size_t)--f->n_queue * sizeof *f->queue);
    return x;
}

static void part_work(struct fetcher *f, struct fetched *x, const struct file_piece *p, size_t from, size_t n)
{
    struct err e = {0};
    if (!f->busy++) f->began_ns = clock_ns();
    pthread_mutex_unlock(&f->lock);
    const int bad = part_read(f, p, from, n, p->to + from, &e);
    pthread_mutex_lock(&f->lock);
    if (!--f->busy) f->busy_ns += clock_ns() - f->began_ns;
    if (bad && !f->e.code) f->e = e;
    f->bytes += n;
    x->left -= n;
    if (!x->left || bad) pthread_cond_broadcast(&f->changed);
}

static void *fetch_main(void *of)
{
    struct fetcher *f = of;
    const struct file_piece *p;
    size_t from, n;
    pthread_mutex_lock(&f->lock);
    while (!f->quits) {
        struct fetched *x = part_take(f, &p, &from, &n);
        if (x) part_work(f, x, p, from, n);
        else pthread_cond_wait(&f->changed, &f->lock);
    }
    pthread_mutex_unlock(&f->lock);
    return NULL;
}

/* With signals blocked, because the main thread handles signals. */
static int fetchers_start(struct fetcher *f, struct err *e)
{
    sigset_t all, old;
    int bad = 0;
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &old);
    while (f->n_readers < READERS && !bad)
        if (!(bad = pthread_create(&f->reader[f->n_readers], NULL, fetch_main, f))) f->n_readers++;
    pthread_sigmask(SIG_SETMASK, &old, NULL);
    return bad ? err_set(e, E_OS, "cannot create a thread that reads weights (ulimit -u, ulimit -v)") : 0;
}

/* ---- opening ----------------------------------------------------------------------------------------------------- */

static int stage_of_row(const struct exec *s, const struct state_row *r)
{
    return s->q.pl->use_stage[s->q.pl->use_first[r->param]];
}

/* Every row has a place in the rank's own file, until it is known to lie in another one. */
static void stages_list(struct exec *s, struct fetcher *f)
{
    const struct placement *pl = s->q.pl;
    f->stage = mem_alloc((size_t)pl->n_stages * sizeof *f->stage);
    f->queue = mem_alloc((size_t)(pl->n_stages + 1) * sizeof *f->queue);
    f->holds = mem_alloc((size_t)pl->slots[s->rank].n * sizeof *f->holds);
    for (int i = 0; i < pl->slots[s->rank].n; i++) f->holds[i] = -1;
    for (int i = 0; i < pl->n_state; i++) {
        const struct state_row *r = &pl->state[i];
        if (r->home != HOME_FILE || r->off[s->rank] == STATE_NOWHERE) continue;
        struct fetched *x = &f->stage[stage_of_row(s, r)];
        if (!x->piece) x->piece = mem_alloc((size_t)pl->n_state * sizeof *x->piece);
        x->piece[x->n++] = (struct file_piece){.at = f->file_bytes, .bytes = r->bytes, .to = state_at(s, r)};
        x->bytes += r->bytes;
        f->file_bytes += r->bytes;
    }
}

/* The rank's own file, when the first row goes there. */
static int file_begin(struct exec *s, struct err *e)
{
    struct fetcher *f = s->fetch;
    struct text path = {0};
    if (f->file.fd >= 0) return 0;
    text_add(&path, "%s/weights-%d", s->q.conf->pipeline.disk, all_rank(s));
    const int bad = out_place(path.s, &f->place, e) || out_scratch(&f->file, &f->place, e);
    text_free(&path);
    f->source.v[0] = (struct weight_file){.fd = f->file.fd, .path = f->place.path};
    return bad ? err_where(e, "pipeline.disk") : 0;
}

int fetch_open(struct exec *s, struct err *e)
{
    if (!s->q.pl->slots[s->rank].n) return 0;
    struct fetcher *f = s->fetch = mem_alloc(sizeof *f);
    f->place = (struct out_place)OUT_NOWHERE;
    f->file.fd = -1;
    pthread_mutex_init(&f->lock, NULL);
    clock_cond_init(&f->changed);
    *vec_push(&f->source) = (struct weight_file){.fd = -1};
    stages_list(s, f);
    return fetchers_start(f, e);
}

void fetch_close(struct exec *s)
{
    struct fetcher *f = s->fetch;
    if (!f) return;
    pthread_mutex_lock(&f->lock);
    f->quits = true;
    pthread_cond_broadcast(&f->changed);
    pthread_mutex_unlock(&f->lock);
    for (int i = 0; i < f->n_readers; i++) pthread_join(f->reader[i], NULL);
    for (int i = 1; i < f->source.n; i++) { close(f->source.v[i].fd); free(f->source.v[i].path); }
    if (f->file.fd >= 0) out_drop(&f->file);
    out_place_free(&f->place);
    pthread_cond_destroy(&f->changed);
    pthread_mutex_destroy(&f->lock);
    for (int i = 0; i < s->q.pl->n_stages; i++) free(f->stage[i].piece);
    free(f->stage); free(f->holds); free(f->queue);
    vec_free(&f->source);
    free(f);
    s->fetch = NULL;
}

/* ---- waiting ----------------------------------------------------------------------------------------------------- */

/* Until the slot's weights are there; meanwhile the transport continues, because other ranks may need it. */
static int slot_wait(struct exec *s, int slot, struct err *e)
{
    enum { LOOK_NS = 500000 };
    struct fetcher *f = s->fetch;
    struct meter_wait w;
    int bad = 0;
    if (s->meter) meter_wait_begin(s, &w);
    pthread_mutex_lock(&f->lock);
    while (!bad && !f->e.code && f->holds[slot] >= 0 && f->stage[f->holds[slot]].left) {
        pthread_mutex_unlock(&f->lock);
        bad = (s->meter && meter_wait_for(s, &w, ACC_FETCH, e)) || exec_aborted(s, e) || exec_progress(s, e);
        exec_beat_poll(s->beat);
        pthread_mutex_lock(&f->lock);
        if (!bad && !f->e.code && f->stage[f->holds[slot]].left) clock_cond_wait(&f->changed, &f->lock, LOOK_NS);
    }
    if (!bad && f->e.code) bad = err_set(e, f->e.code, "%s", f->e.text);
    pthread_mutex_unlock(&f->lock);
    if (s->meter && !bad) meter_wait_end(s, &w);
    return bad ? -1 : 0;
}

/* Asks for a stage's weights, unless they are in the slot or on their way. What still comes for another stage comes
 * first. */
static int stage_ask(struct exec *s, int stage, struct err *e)
{
    struct fetcher *f = s->fetch;
    const int slot = s->q.pl->slot_of[stage];
    if (f->holds[slot] == stage) return 0;
    if (slot_wait(s, slot, e)) return -1;
    pthread_mutex_lock(&f->lock);
    f->holds[slot] = stage;
    f->stage[stage].next = 0;
    f->stage[stage].done = 0;
    f->stage[stage].left = f->stage[stage].bytes;
    f->queue[f->n_queue++] = stage;
    pthread_cond_broadcast(&f->changed);
    pthread_mutex_unlock(&f->lock);
    return 0;
}

int exec_fetch(struct exec *s, struct bound *b, const struct act *a, struct err *e)
{
    return stage_ask(s, a->stage, e);
}

int exec_evict(struct exec *s, struct bound *b, const struct act *a, struct err *e) { return 0; }

int fetch_wait(struct exec *s, struct bound *b, const struct act *a, struct err *e)
{
    const struct placement *pl = s->q.pl;
    const int slot = pl->slot_of[a->stage];
    if (slot < 0 || !prog_fetches(pl, s->rank, act_prog(b->p, a))) return 0;
    if (s->fetch->holds[slot] != a->stage)
        return err_set(e, E_INTERNAL, "stage %d runs without its weights", a->stage);
    return slot_wait(s, slot, e);
}

void fetch_report(struct exec *s, struct report *r)
{
    struct fetcher *f = s->fetch;
    pthread_mutex_lock(&f->lock);
    const uint64_t now = clock_ns();
    r->fetch_bytes = f->bytes;
    r->fetch_ns = f->busy_ns + (f->busy ? now - f->began_ns : 0);
    f->began_ns = now;
    f->bytes = f->busy_ns = 0;
    pthread_mutex_unlock(&f->lock);
}

/* ---- rows, between steps ----------------------------------------------------------------------------------------- */

static struct file_piece *piece_of(const struct exec *s, const struct state_row *r)
{
    struct file_piece *p = s->fetch->stage[stage_of_row(s, r)].piece;
    while (p->to != (char *)state_at(s, r)) p++;
    return p;
}

int fetch_row_read(struct exec *s, const struct state_row *r, void *to, struct err *e)
{
    const struct file_piece *p = piece_of(s, r);
    return part_read(s->fetch, p, 0, p->bytes, to, e);
}

int fetch_row_begin(struct exec *s, const struct state_row *r, struct err *e)
{
    const int slot = s->q.pl->slot_of[stage_of_row(s, r)];
    if (slot_wait(s, slot, e)) return -1;
    s->fetch->holds[slot] = -1;
    return 0;
}

int fetch_row_write(struct exec *s, const struct state_row *r, struct err *e)
{
    struct fetcher *f = s->fetch;
    char b[32];
    if (file_begin(s, e)) return -1;
    struct file_piece *p = piece_of(s, r);
    if (p->source) {                                      /* it gets a place in the rank's own file after all */
        f->stage[stage_of_row(s, r)].bytes += r->bytes - p->bytes;
        *p = (struct file_piece){.at = f->file_bytes, .bytes = r->bytes, .to = p->to};
        f->file_bytes += r->bytes;
    }
    for (size_t done = 0; done < r->bytes;) {
        const ssize_t put = pwrite(f->file.fd, p->to + done, r->bytes - done, (off_t)(p->at + done));
        if (put < 0 && errno == EINTR) continue;
        if (put <= 0)
            return err_set(e, E_IO, "pipeline.disk: %s: cannot write %s of frozen weights: %s", f->place.path,
                           text_bytes(f->file_bytes, b), strerror(put ? errno : EIO));
        done += (size_t)put;
    }
    return 0;
}

/* The list may move when it grows, so no reader may use it meanwhile. */
static int source_find(struct exec *s, const char *path, struct err *e)
{
    struct fetcher *f = s->fetch;
    for (int i = 1; i < f->source.n; i++) if (!strcmp(f->source.v[i].path, path)) return i;
    for (int i = 0; i < s->q.pl->slots[s->rank].n; i++) if (slot_wait(s, i, e)) return -1;
    struct weight_file x = {.fd = open(path, O_RDONLY | O_CLOEXEC)};
    if (x.fd < 0 || fstat(x.fd, &x.st)) {
        if (x.fd >= 0) close(x.fd);
        return err_set(e, E_NOINPUT, "%s: %m", path);
    }
    x.path = mem_strdup(path);
    *vec_push(&f->source) = x;
    return f->source.n - 1;
}

/* 1: taken; 0: the row's form in memory is not the file's. */
int fetch_row_from(struct exec *s, const struct state_row *r, const struct exec_source *from, struct err *e)
{
    const bool same = !r->turned && r->stored.type == from->type && r->stored.layout == LAYOUT_PLAIN &&
                      r->stored.scale == SCALE_NONE && format_bytes(&r->stored, &r->shape) == from->bytes;
    if (!same) return 0;
    const int source = source_find(s, from->path, e);
    if (source < 0 || fetch_row_begin(s, r, e)) return -1;
    struct file_piece *p = piece_of(s, r);
    struct fetched *x = &s->fetch->stage[stage_of_row(s, r)];
    x->bytes -= p->bytes - from->bytes;
    *p = (struct file_piece){.source = source, .at = from->at, .bytes = from->bytes, .to = p->to};
    return 1;
}
