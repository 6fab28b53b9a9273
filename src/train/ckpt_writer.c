/* Checkpoints: each rank's writer thread, and the interface. */
#include <errno.h>
#include <fcntl.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>
#include "base/clock.h"
#include "base/deadline.h"
#include "cluster/log.h"
#include "report/rundir.h"
#include "cluster/heartbeat.h"
#include "train/ckpt_writer_int.h"

/* On the executor's thread, before the next step. */
static int staging_fill(struct save *s, struct err *e)
{
    for (int f = 0; s->staging && f < SAVE_FILES; f++)
        for (int i = 0; i < s->rows[f].n; i++)
            if (exec_state_get(s->q.exec, s->rows[f].row[i], s->staging[s->rows[f].row[i]], e)) return -1;
    return 0;
}

/* Moves the ranks' parts of this order to part[rank], with the lock held. Drops parts of an earlier order that was
 * given up, maybe of the same step. Returns how many parts are there. */
static int parts_take(struct save *s, struct saved *part)
{
    int n = 0, left = 0;
    for (int i = 0; i < s->heard.n; i++) {
        struct saved *m = &s->heard.v[i];
        if (m->serial == s->o.serial) part[m->rank] = *m;
        else if (m->serial > s->o.serial) s->heard.v[left++] = *m;
    }
    s->heard.n = left;
    for (int i = 0; i < save_ranks(s); i++) n += part[i].serial == s->o.serial;
    return n;
}

/* Waits until all ranks have sent their outcome and the loop has released the step. -1: stopped. */
static int all_wait(struct save *s, struct saved *part, bool *unwanted)
{
    enum { LOOK_NS = 50000000 };
    bool whole;
    pthread_mutex_lock(&s->lock);
    while (!(whole = parts_take(s, part) == save_ranks(s) && s->released) && !atomic_load(s->q.stop))
        clock_cond_wait(&s->changed, &s->lock, LOOK_NS);
    *unwanted = s->forgone;
    pthread_mutex_unlock(&s->lock);
    return whole ? 0 : -1;
}

/* Completes the checkpoint from all parts, and fills in the outcome. */
static void conclude(struct save *s, const struct saved *part, struct save_done *d)
{
    struct err e = {0}, late = {0};
    struct text shown = {0};
    char name[CKPT_NAME];
    int dir = save_folder_open(s, &shown, &e);
    for (int i = 0; i < save_ranks(s); i++) {
        if (!part[i].e.code || e.code) continue;
        e = part[i].e;
        heartbeat_where(i, &e);
    }
    if (d->unwanted) err_set(&e, E_NONFINITE, "the run rolls back to an earlier one");
    int bad = e.code || ckpt_commit(s, dir, shown.s, part, &d->bytes, &e);
    if (bad && dir >= 0) {
        struct out_folder f;
        if (!out_folder_join(&f, dir, shown.s, ckpt_name(s->o.step, name), &late)) out_folder_drop(&f);
        else out_folder_close(&f);
    }
    /* an old one that cannot be removed is no fault of the new one */
    if (!bad) save_old_remove(s, dir, shown.s, &late);
    if (dir >= 0) close(dir);
    text_free(&shown);
    if (!bad) late.code = 0;
    d->e = bad ? e : late;
}

static void tell(struct save *s, const struct save_done *d)
{
    pthread_mutex_lock(&s->lock);
    if (s->lead.done) s->lead.done(s->lead.ctx, d);
    pthread_mutex_unlock(&s->lock);
}

static void finish(struct save *s)
{
    struct saved *part = mem_alloc((size_t)save_ranks(s) * sizeof *part);
    struct save_done d = {.step = s->o.step};
    if (!all_wait(s, part, &d.unwanted)) {
        conclude(s, part, &d);
        ckpt_name(d.step, d.name);
        memcpy(d.score, s->score, sizeof d.score);
        d.value = s->value;
        d.ns = clock_ns() - s->began;
        tell(s, &d);
    }
    free(part);
}

/* ---- the thread -------------------------------------------------------------------------------------------------- */

static void *writer(void *arg)
{
    struct save *s = arg;
    ckpt_shard_write(s, &s->mine.e);
    atomic_store(&s->hold.on, false);
    if (s->q.rank == 0) {
        save_reported(s, &s->mine);
        finish(s);
        atomic_store(&s->busy, false);
    } else atomic_store(&s->said, true);
    return NULL;
}

static void thread_end(struct save *s)
{
    if (s->started) pthread_join(s->thread, NULL);
    s->started = false;
}

/* ---- the interface ----------------------------------------------------------------------------------------------- */

struct save *save_new(void)
{
    struct save *s = mem_alloc(sizeof *s);
    clock_cond_init(&s->changed);
    pthread_mutex_init(&s->lock, NULL);
    s->lead.dir = -1;
    return s;
}

const struct exec_hold *save_hold(const struct save *s) { return &s->hold; }

void save_open(struct save *s, const struct save_request *q)
{
    s->q = *q;
    for (int f = 0; f < SAVE_FILES; f++) s->rows[f] = weights_rows(q->job->pl, save_file_what[f], q->rank);
}

void save_lead(struct save *s, const struct save_lead *l) { s->lead = *l; }

void save_leave(struct save *s)
{
    pthread_mutex_lock(&s->lock);
    s->lead.done = NULL;
    pthread_mutex_unlock(&s->lock);
}

/* Makes the new checkpoint folder survive a loss of power. Outside of a checkpoint only rank 0 makes names that
 * resuming needs: this folder, metrics.jsonl (rundir_sync) and rates.jsonl (live_settings_note). Each rank syncs its
 * own files and their folder (st_out_commit) before it reports them to rank 0. */
static int run_sync(const struct save *s)
{
    int fd = openat(s->lead.dir, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    int bad = fd < 0 || out_sync(fd);
    if (fd >= 0) close(fd);
    return bad;
}

static int folder_make(const struct save *s, struct err *e)
{
    if (mkdirat(s->lead.dir, CKPT_FOLDER, 0777) ? errno == EEXIST : !run_sync(s)) return 0;
    return err_set(e, E_CANTCREAT, "%s/%s: cannot create: %s", s->q.dir, CKPT_FOLDER, strerror(errno));
}

/* Frees the name of a new checkpoint. A checkpoint of this run under that name was skipped as damaged, so it is
 * removed. Anything else may be needed by a user and is renamed. */
static int name_free(struct save *s, int dir, const char *shown, uint64_t step, struct err *e)
{
    struct err none = {0};
    struct ckpt c;
    char name[CKPT_NAME];
    ckpt_name(step, name);
    bool own = !ckpt_read(dir, shown, step, &c, &none) && ckpt_is_of(&c, s->q.head->run);
    if (!none.code) ckpt_free(&c);
    if (own) return out_folder_remove(dir, shown, name, e);
    int moved = out_folder_aside(dir, shown, name, e);
    if (moved > 0) log_line("note: %s/%s is not a readable checkpoint of this run: renamed to %s" OUT_FOLDER_ASIDE,
                            shown, name, name);
    return moved < 0 ? -1 : 0;
}

void save_prepare(struct save *s, struct order *o)
{
    struct text shown = {0};
    struct out_folder f = {.dir = -1, .fd = -1};
    char name[CKPT_NAME];
    s->unprepared = (struct err){0};
    o->serial = ++s->serial;
    bool bad = rundir_named(s->lead.dir, s->q.dir, &s->unprepared) || folder_make(s, &s->unprepared);
    int dir = bad ? -1 : save_folder_open(s, &shown, &s->unprepared);
    ckpt_name(o->step, name);
    if (dir >= 0 && !name_free(s, dir, shown.s, o->step, &s->unprepared))
        out_folder_begin(&f, dir, shown.s, name, &s->unprepared);
    out_folder_close(&f);
    if (dir >= 0) close(dir);
    text_free(&shown);
}

int save_prepared(const struct save *s) { return s->unprepared.code; }

bool save_busy(const struct save *s) { return atomic_load(&s->busy); }

int save_await(struct save *s, struct err *e)
{
    uint64_t moved = atomic_load(&s->hold.moved), now = clock_ns();
    char name[CKPT_NAME];
    if (!save_busy(s)) return 1;
    if (moved != s->moved) s->moved = moved, s->moved_at = now;
    uint64_t ns = now - s->moved_at, limit = s->q.patience_ns ? s->q.patience_ns : DEADLINE_NS(DEADLINE_COMMIT);
    if (ns <= limit) return 0;
    return err_set(e, E_IO, "%s/%s/%s: rank %d: not on disk, without progress for %.1f s: the file system is not "
                            "responding", s->q.dir, CKPT_FOLDER, ckpt_name(s->o.step, name), s->q.rank,
                                (double)ns * 1e-9);
}

static uint64_t state_of_rank(const struct job *j, int rank)
{
    uint64_t bytes = 0;
    for (int i = 0; i < j->pl->n_state; i++)
        if (placement_writer(j->pl, &j->pl->state[i]) == rank) bytes += state_plain_bytes(&j->pl->state[i]);
    return bytes;
}

/* Copies the state if it is on a device or small. Copying a small state takes less time than creating a file, for which
 * the next optimizer action would wait. */
enum { SMALL = 4 << 20 };

uint64_t save_staging_bytes(const struct job *j, int rank)
{
    uint64_t bytes = state_of_rank(j, rank);
    return (j->be && j->be->stream) || bytes <= SMALL ? bytes : 0;
}

/* Allocated once. */
static void staging_make(struct save *s)
{
    const struct placement *pl = s->q.job->pl;
    if (s->staging || !save_staging_bytes(s->q.job, s->q.rank)) return;
    s->staging = mem_alloc((size_t)pl->n_state * sizeof *s->staging + 1);
    for (int f = 0; f < SAVE_FILES; f++)
        for (int i = 0; i < s->rows[f].n; i++)
            s->staging[s->rows[f].row[i]] = mem_alloc(state_plain_bytes(&pl->state[s->rows[f].row[i]]) + 1);
}

static void failed(struct save *s, const struct err *e)
{
    tell(s, &(struct save_done){.step = s->o.step, .e = *e});
}

void save_begin(struct save *s, const struct order *o)
{
    struct err e = {0};
    thread_end(s);
    s->o = *o;
    s->past = exec_past(s->q.exec);
    s->began = s->moved_at = clock_ns();
    s->mine = (struct saved){.serial = o->serial, .rank = s->q.rank};
    pthread_mutex_lock(&s->lock);
    s->released = s->forgone = false;
    s->head = s->q.head;                                  /* of the steps so far, whatever is set later */
    *s->score = '\0';
    pthread_mutex_unlock(&s->lock);
    if (o->code) {                                        /* no other rank has received it */
        err_set(&e, o->code, "%s", *s->unprepared.text ? s->unprepared.text : "its folder could not be made");
        failed(s, &e);
        return;
    }
    staging_make(s);
    atomic_store(&s->busy, true);
    bool far = s->staging != NULL;
    /* the weights themselves, not their averages */
    if (!exec_averages_use(s->q.exec, false, &e) && !staging_fill(s, &e)) {
        atomic_store(&s->hold.on, !far);
        if (!pthread_create(&s->thread, NULL, writer, s)) { s->started = true; return; }
        err_set(&e, E_OS, "cannot create a thread (ulimit -u, ulimit -v)");
    }
    atomic_store(&s->hold.on, false);
    s->mine.e = e;
    if (s->q.rank != 0) { atomic_store(&s->said, true); return; }
    failed(s, &e);
    atomic_store(&s->busy, false);
}

bool save_report(struct save *s, struct saved *m)
{
    if (!s || !atomic_exchange(&s->said, false)) return false;
    *m = s->mine;
    atomic_store(&s->busy, false);
    return true;
}

void save_reported(struct save *s, const struct saved *m)
{
    pthread_mutex_lock(&s->lock);
    *vec_push(&s->heard) = *m;
    pthread_cond_signal(&s->changed);
    pthread_mutex_unlock(&s->lock);
}

void save_release(struct save *s, const struct save_note *n)
{
    pthread_mutex_lock(&s->lock);
    s->released = true;
    if (n->score && isfinite(n->value)) snprintf(s->score, sizeof s->score, "%s", n->score);
    snprintf(s->best, sizeof s->best, "%s", n->best ? n->best : "");
    s->value = n->value;
    s->keep = n->keep;
    s->skipped = n->skipped;
    s->so_far = n->so_far;
    pthread_cond_signal(&s->changed);
    pthread_mutex_unlock(&s->lock);
}

void save_forgo(struct save *s)
{
    pthread_mutex_lock(&s->lock);
    s->released = s->forgone = true;
    pthread_cond_signal(&s->changed);
    pthread_mutex_unlock(&s->lock);
}

void save_head(struct save *s, struct ckpt *head)
{
    pthread_mutex_lock(&s->lock);
    *vec_push(&s->heads) = head;                          /* the old one may be in use */
    s->q.head = head;
    pthread_mutex_unlock(&s->lock);
}

const struct ckpt *save_headed(const struct save *s) { return s->q.head; }

const char *save_base(const struct save *s) { return s->q.base; }

void save_free(struct save *s)
{
    if (!s) return;
    thread_end(s);
    for (int i = 0; s->staging && i < s->q.job->pl->n_state; i++) free(s->staging[i]);
    free(s->staging);
    for (int f = 0; f < SAVE_FILES; f++) weights_rows_free(&s->rows[f]);
    vec_free(&s->heard);
    for (int i = 0; i < s->heads.n; i++) {
        ckpt_free(s->heads.v[i]);
        free(s->heads.v[i]);
    }
    vec_free(&s->heads);
    pthread_cond_destroy(&s->changed);
    pthread_mutex_destroy(&s->lock);
    free(s);
}
