/* The run directory and its lock: an flock on RUN/lock, which names its owner. */
#include <errno.h>
#include <fcntl.h>
#include <libgen.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>
#include "daemon/rundir.h"

static int lock_take(struct rundir *d, int flags, struct err *e)
{
    d->lock = openat(d->fd, "lock", O_RDWR | O_CLOEXEC | flags, 0666);
    if (d->lock < 0 && errno == ENOENT) return 0;
    if (d->lock < 0) return err_set(e, E_CANTCREAT, "%s/lock: %s", d->path, strerror(errno));
    if (flock(d->lock, LOCK_EX | LOCK_NB) == 0) return 0;
    char owner[32] = "";
    ssize_t n = errno == EWOULDBLOCK ? pread(d->lock, owner, sizeof owner - 1, 0) : 0;
    long pid = n > 0 ? strtol(owner, NULL, 10) : 0;
    if (errno != EWOULDBLOCK) return err_set(e, E_CANTCREAT, "%s/lock: %s", d->path, strerror(errno));
    return err_set(e, E_STOPPED, "%s: this run directory is in use by process %ld", d->path, pid);
}

static int result_refuse(const struct rundir *d, const struct conf *c, const char *result, struct err *e)
{
    if (c->run.overwrite || faccessat(d->fd, result, F_OK, 0) != 0) return 0;
    return err_set(e, E_CANTCREAT, "%s: holds the results of an earlier run (%s); use --overwrite or another "
                   "--run-dir", d->path, result);
}

int rundir_check(struct rundir *d, const struct conf *c, const char *result, struct err *e)
{
    *d = (struct rundir){c->run.directory, -1, -1};
    d->fd = open(d->path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (d->fd < 0 && errno == ENOENT) return 0;
    if (d->fd < 0) return err_set(e, E_CANTCREAT, "%s: %s", d->path, strerror(errno));
    if (lock_take(d, 0, e)) return -1;
    if (strcmp(result, "metrics.jsonl") == 0 && !c->run.evaluate && faccessat(d->fd, result, F_OK, 0) != 0)
        result = "weights.safetensors";                   /* a run writes them: those of somebody else stay */
    return result_refuse(d, c, result, e);
}

static const char weights[] = "weights.safetensors", weights_old[] = "weights.safetensors.old";

/* Of a file, or of the weights of a run directory. */
static int weights_stat(const char *from, struct stat *st)
{
    if (stat(from, st) || !S_ISDIR(st->st_mode)) return stat(from, st);
    struct text file = {0};
    text_add(&file, "%s/weights.safetensors", from);
    int bad = stat(file.s, st);
    text_free(&file);
    return bad;
}

static bool same_file(const struct rundir *d, const char *name, const struct stat *st)
{
    struct stat own;
    return !fstatat(d->fd, name, &own, 0) && own.st_dev == st->st_dev && own.st_ino == st->st_ino;
}

/* The weights to start from must not be among what --overwrite removes in the end. */
int rundir_spares(const struct rundir *d, const struct conf *c, struct err *e)
{
    struct stat from;
    if (d->fd < 0 || !c->run.overwrite || c->run.evaluate || !c->run.init_from) return 0;
    if (weights_stat(c->run.init_from, &from)) return 0;
    if (!same_file(d, weights, &from) && !same_file(d, weights_old, &from)) return 0;
    return err_set(e, E_CANTCREAT, "%s: --overwrite would remove the weights to start from; use another --run-dir", c->run.init_from);
}

static int output_check(const struct conf *c, const char *key, const char *file, struct err *e)
{
    static const char *const ours[] = {"metrics.jsonl", weights, weights_old, "mpstaged.log", "control.sock", "lock",
                                       "profile.json"};
    struct stat st;
    if (!file) return 0;
    if (!*file) return conf_error(c, key, e, "the name is empty");
    if (stat(file, &st) == 0 && S_ISDIR(st.st_mode)) return err_set(e, E_CANTCREAT, "%s: is a directory", file);
    char *copy = mem_strdup(file), *dir = dirname(copy);
    const char *slash = strrchr(file, '/'), *name = slash ? slash + 1 : file;
    struct stat folder, own;
    bool in_run = strcmp(dir, c->run.directory) == 0 ||
                  (!stat(dir, &folder) && !stat(c->run.directory, &own) && folder.st_dev == own.st_dev && folder.st_ino == own.st_ino);
    int bad = 0;
    for (size_t i = 0; in_run && i < sizeof ours / sizeof *ours; i++)
        if (strcmp(name, ours[i]) == 0) bad = err_set(e, E_CANTCREAT, "%s: %s would write over a file of the run", file, key);
    if (!bad && access(dir, W_OK | X_OK) && !(in_run && errno == ENOENT))   /* the run directory will be made */
        bad = err_set(e, E_CANTCREAT, "%s: cannot create: %s", file, strerror(errno));
    free(copy);
    return bad;
}

int rundir_outputs(const struct conf *c, struct err *e)
{
    return output_check(c, "run.trace", c->run.trace, e) || output_check(c, "run.dump_gradients", c->run.dump_gradients, e) ? -1 : 0;
}

static int make_parents(const char *path, struct err *e)
{
    char *s = mem_strdup(path);
    int bad = 0;
    for (char *p = s + 1; !bad; p++) {
        char end = *p;
        if (end != '/' && end) continue;
        *p = '\0';
        if (mkdir(s, 0777) && errno != EEXIST)
            bad = err_set(e, E_CANTCREAT, "%s: cannot create: %s", s, strerror(errno));
        *p = end;
        if (!end) break;
    }
    free(s);
    return bad;
}

static int lock_sign(struct rundir *d, struct err *e)
{
    char owner[32];
    int n = snprintf(owner, sizeof owner, "%ld\n", (long)getpid());
    if (ftruncate(d->lock, 0) || pwrite(d->lock, owner, (size_t)n, 0) != n)
        return err_set(e, E_CANTCREAT, "%s/lock: %s", d->path, strerror(errno));
    return 0;
}

int rundir_enter(struct rundir *d, struct err *e)
{
    if (d->fd >= 0) return 0;
    if (make_parents(d->path, e)) return -1;
    d->fd = open(d->path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    return d->fd >= 0 ? 0 : err_set(e, E_CANTCREAT, "%s: %s", d->path, strerror(errno));
}

/* What an earlier run left of its weights is never called as this run's are. If there are none, those that were set
 * aside before stay: a run that failed wrote none. */
static int weights_aside(const struct rundir *d, struct err *e)
{
    if (renameat(d->fd, weights, d->fd, weights_old) == 0 || errno == ENOENT) return 0;
    return err_set(e, E_CANTCREAT, "%s/%s: %s", d->path, weights_old, strerror(errno));
}

int rundir_make(struct rundir *d, const struct conf *c, struct err *e)
{
    static const char *const old[] = {"metrics.jsonl", "control.sock", "mpstaged.log", NULL};
    if (rundir_enter(d, e)) return -1;
    if (d->lock < 0 && lock_take(d, O_CREAT, e)) return -1;
    /* Another run may have begun and ended since the check, when there was nothing to lock. */
    if (result_refuse(d, c, "metrics.jsonl", e) || (!c->run.evaluate && result_refuse(d, c, "weights.safetensors", e))) return -1;
    if (lock_sign(d, e)) return -1;
    for (int i = 0; old[i]; i++)
        if (unlinkat(d->fd, old[i], 0) && errno != ENOENT)
            return err_set(e, E_CANTCREAT, "%s/%s: %s", d->path, old[i], strerror(errno));
    return c->run.evaluate ? 0 : weights_aside(d, e);
}

static bool replaces(const struct conf *c) { return c->run.overwrite && !c->run.evaluate; }

bool rundir_keeps(const struct rundir *d, const struct conf *c)
{
    return replaces(c) && faccessat(d->fd, weights_old, F_OK, 0) == 0;
}

int rundir_settle(const struct rundir *d, const struct conf *c, struct err *e)
{
    if (!replaces(c) || unlinkat(d->fd, weights_old, 0) == 0 || errno == ENOENT) return 0;
    return err_set(e, E_IO, "%s/%s: %s", d->path, weights_old, strerror(errno));
}

void rundir_close(struct rundir *d)
{
    if (d->lock >= 0) close(d->lock);
    if (d->fd >= 0) close(d->fd);
    d->lock = d->fd = -1;
}
