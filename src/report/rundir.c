/* The run directory and its lock: an flock on RUN/lock, which names its owner. */
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>
#include "ckpt/checkpoint.h"
#include "cluster/failure.h"
#include "model/decoder.h"
#include "model/lora.h"
#include "report/rundir.h"

static const char weights[] = "weights.safetensors", weights_old[] = "weights.safetensors.old", lock[] = "lock",
                  checkpoints[] = CKPT_FOLDER, model[] = "model", adapter[] = "adapter", metrics[] = "metrics.jsonl",
                  logged[] = "mpstaged.log";

/* The files that runs make in it. use: which uses make it, as bits; result: it is a result of these uses; old: the next
 * run removes it. */
enum { T = 1 << RUNDIR_TRAIN, E = 1 << RUNDIR_EVALUATE, P = 1 << RUNDIR_PROFILE };
static const struct own { const char *name; unsigned use, result; mode_t kind; bool old; } owns[] = {
    {metrics, T | E, 0, S_IFREG, true},
    {"metrics.csv", T, 0, S_IFREG, true},
    {"mllog.txt", T, 0, S_IFREG, true},
    {LIVE_SETTINGS_FILE, T, 0, S_IFREG, true},
    {CLASS_FILE, T, 0, S_IFREG, true},
    {weights, T, T, S_IFREG, false},
    {weights_old, T, 0, S_IFREG, false},
    {"confusion.csv", T | E, 0, S_IFREG, true},
    {"confusion.png", T | E, 0, S_IFREG, true},
    {logged, T | E, 0, S_IFREG, true},
    {FAILURE_FILE, T | E, 0, S_IFREG, true},
    {"control.sock", T | E, 0, S_IFSOCK, true},
    {"profile.json", P, P, S_IFREG, false},
    {checkpoints, T, T, S_IFDIR, false},
    {model, T, 0, S_IFDIR, true},
    {adapter, T, 0, S_IFDIR, true},
    {lock, T | E | P, 0, S_IFREG, false},
};
enum { OWNS = sizeof owns / sizeof *owns };

bool rundir_owns(const char *name)
{
    for (int i = 0; i < OWNS; i++) if (strcmp(name, owns[i].name) == 0) return true;
    return false;
}

static bool resumes(const struct conf *c) { return c->run.resume != RESUME_NO; }

/* Only runs of decoders and of adapters have folders for other programs. */
static bool makes_folders(const struct conf *c) { return decoder_is(c) || conf_adapts(c); }

static bool is_folder(const struct own *o) { return o->old && o->kind == S_IFDIR; }

/* ---- checks ------------------------------------------------------------------------------------------------------ */

/* Half a checkpoint from a process that was killed. */
static bool is_half(const char *name)
{
    size_t n = strlen(name);
    return n > 4 && !strncmp(name, "step-", 5) && !strcmp(name + n - 4, ".tmp");
}

/* Whether the name exists and, for a folder, has contents. A folder that a user made before a run, or a mount point of
 * an empty file system, counts as empty. -1: it cannot be read; errno. */
static int holds(int at, const char *name, mode_t kind)
{
    static const char *const nothing[] = {".", "..", "lost+found"};
    if (faccessat(at, name, F_OK, AT_SYMLINK_NOFOLLOW)) return false;
    int fd = kind == S_IFDIR ? openat(at, name, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC) : -1;
    DIR *folder = fd < 0 ? NULL : fdopendir(fd);
    if (!folder) {
        if (fd >= 0) close(fd);
        return true;
    }
    bool found = false;
    for (struct dirent *f; !found && (errno = 0, f = readdir(folder));) {
        found = !is_half(f->d_name);
        for (int i = 0; i < 3; i++) found &= strcmp(f->d_name, nothing[i]) != 0;
    }
    int why = found ? 0 : errno;
    closedir(folder);
    errno = why;
    return why ? -1 : found;
}

/* Whether the metrics have more than the start of a run and its failure. A file of another kind counts as results. -1:
 * e. */
static int metrics_report(const struct rundir *d, struct err *e)
{
    static const char *const nothing[] = {"start", "resume", "weights", "failed"};
    enum { LOOK = 1 << 20 };                              /* the first step's line is one of the first few */
    int fd = openat(d->fd, metrics, O_RDONLY | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC);
    char *s = fd < 0 ? NULL : mem_alloc(LOOK + 1);
    ssize_t n = fd < 0 ? -1 : read(fd, s, LOOK);
    int why = errno;
    bool any = false;
    if (fd >= 0) close(fd);
    for (char *line = s, *end; n > 0 && !any && *line; line = end) {
        char event[12] = "";
        bool known = false;
        sscanf(line, "{\"event\":\"%11[a-z_]\"", event);
        for (int i = 0; i < 4; i++) known |= !strcmp(event, nothing[i]);
        end = strchr(line, '\n');
        end = end ? end + 1 : line + strlen(line);
        any = !known;
    }
    free(s);
    if (n >= 0 || (fd < 0 && why == ENOENT)) return any;
    return err_set(e, E_IO, "%s/%s: %s", d->path, metrics, strerror(why));
}

/* Files of a run that failed before its first step do not matter. The metrics and log of a run without checkpoints and
 * weights stay, and the next run adds to them. */
static int leftovers_report(struct rundir *d, const struct conf *c, enum rundir_use use, struct err *e)
{
    int found = d->fd < 0 || c->run.overwrite || resumes(c) ? 0 : metrics_report(d, e);
    if (found < 0) return -1;
    d->adds = found && use == RUNDIR_TRAIN;
    if (!found || d->adds) return 0;
    return err_set(e, E_CANTCREAT, "%s: holds the results of an earlier run (%s); use another --run-dir, or "
                   "--overwrite, which removes its metrics and its log", d->path, metrics);
}

static int results_refuse(struct rundir *d, const struct conf *c, enum rundir_use use, struct err *e)
{
    for (int i = 0; i < OWNS && !c->run.overwrite && !resumes(c); i++) {
        int is = owns[i].result & 1u << use ? holds(d->fd, owns[i].name, owns[i].kind) : 0;
        if (is < 0) return err_set(e, E_IO, "%s/%s: %s", d->path, owns[i].name, strerror(errno));
        bool goes_on = is > 0 && use == RUNDIR_TRAIN && holds(d->fd, checkpoints, S_IFDIR) > 0;
        if (is)
            return err_set(e, E_CANTCREAT, "%s: holds the results of an earlier run (%s); use %s--overwrite or another "
                           "--run-dir", d->path, owns[i].name, goes_on ? "--resume, " : "");
    }
    return use == RUNDIR_PROFILE ? 0 : leftovers_report(d, c, use, e);
}

static int replaceable(int fd, const char *path, const char *name, struct err *e)
{
    struct text t = {0};
    text_add(&t, "%s/%s", path, name);
    int bad = out_replaceable(fd, t.s, name, e);
    text_free(&t);
    return bad;
}

/* Checks by a trial that checkpoint folders can be made and removed. */
static int saves_try(const struct rundir *d, const struct conf *c, struct err *e)
{
    if (!conf_saves(c)) return 0;
    struct text shown = {0};
    int fd = openat(d->fd, checkpoints, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
    text_add(&shown, "%s%s%s", d->path, fd < 0 ? "" : "/", fd < 0 ? "" : checkpoints);
    int bad = out_folder_try(fd < 0 ? d->fd : fd, shown.s, e);
    if (fd >= 0) close(fd);
    text_free(&shown);
    return bad;
}

/* Checks now, not after hours, that a run can save checkpoints. */
static int saves_check(int fd, const char *path, const struct conf *c, struct err *e)
{
    if (!conf_saves(c) || !faccessat(fd, checkpoints, W_OK | X_OK, AT_EACCESS)) return 0;
    return err_set(e, E_CANTCREAT, "%s/%s: cannot write into it: %s", path, checkpoints, strerror(errno));
}

/* Has the folder a file that runs leave there? */
static bool is_known(int fd, const char *name)
{
    static const char *const ours[] = {"config.json", "model.safetensors", "model.safetensors.index.json",
                                       "adapter_config.json"};
    bool known = false;
    for (size_t i = 0; i < sizeof ours / sizeof *ours && !known; i++) {
        struct text file = {0};
        text_add(&file, "%s/%s", name, ours[i]);
        known = !faccessat(fd, file.s, F_OK, AT_SYMLINK_NOFOLLOW);
        text_free(&file);
    }
    return known;
}

/* Did an earlier run leave this folder? Then it has files alone, and that run made the lock. */
static bool is_left(const struct rundir *d, const char *name)
{
    struct stat st;
    const int fd = d->lock < 0 || d->locked_first || !is_known(d->fd, name) ? -1
                   : openat(d->fd, name, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
    DIR *folder = fd < 0 ? NULL : fdopendir(fd);
    bool left = folder != NULL;
    if (!folder && fd >= 0) close(fd);
    for (struct dirent *f; left && (f = readdir(folder));)
        left = !strcmp(f->d_name, ".") || !strcmp(f->d_name, "..") ||
               (!fstatat(fd, f->d_name, &st, AT_SYMLINK_NOFOLLOW) && S_ISREG(st.st_mode));
    if (folder) closedir(folder);
    return left;
}

/* Does this run remove it when it begins? Evaluations leave folders alone. */
static bool goes(const struct rundir *d, const struct own *o, const struct conf *c)
{
    return o->old && (!is_folder(o) || (!c->run.evaluate && (makes_folders(c) || is_left(d, o->name))));
}

/* The folder that a run will replace has what such a run leaves there, or nothing. */
static int folder_check(int fd, const char *path, const char *name, struct err *e)
{
    if (holds(fd, name, S_IFDIR) <= 0 || is_known(fd, name)) return 0;
    return err_set(e, E_CANTCREAT, "%s/%s: holds other files, but the run would replace it; use another --run-dir",
                   path, name);
}

static int kinds_check(int fd, const char *path, const struct conf *c, enum rundir_use use, struct err *e)
{
    struct stat st;
    for (int i = 0; i < OWNS; i++) {
        if (!(owns[i].use & 1u << use) || fstatat(fd, owns[i].name, &st, AT_SYMLINK_NOFOLLOW)) continue;
        const bool folder = is_folder(&owns[i]);
        if (folder && !makes_folders(c)) continue;
        if ((st.st_mode & S_IFMT) != owns[i].kind)
            return err_set(e, E_CANTCREAT, "%s/%s: is %s, not %s", path, owns[i].name, out_kind(st.st_mode),
                           out_kind(owns[i].kind));
        bool locks = strcmp(owns[i].name, lock) == 0;
        if (folder ? folder_check(fd, path, owns[i].name, e)
            : owns[i].kind == S_IFDIR ? saves_check(fd, path, c, e) : !locks && replaceable(fd, path, owns[i].name, e))
            return -1;
        if (locks && faccessat(fd, lock, R_OK | W_OK, AT_EACCESS))
            return err_set(e, E_CANTCREAT, "%s/%s: %s", path, lock, strerror(errno));
    }
    return 0;
}

static int cannot(const char *path, struct err *e)
{
    return err_set(e, E_CANTCREAT, "%s: cannot create: %s", path, strerror(errno));
}

/* Opens the directory if it exists. Otherwise checks that it can be made below the last directory that exists. */
static int look(const char *path, int *fd, struct err *e)
{
    *fd = open(path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (*fd >= 0 && faccessat(*fd, ".", W_OK | X_OK, AT_EACCESS))
        return err_set(e, E_CANTCREAT, "%s: cannot write into it: %s", path, strerror(errno));
    if (*fd >= 0) return 0;
    if (errno != ENOENT) return err_set(e, E_CANTCREAT, "%s: %s", path, strerror(errno));
    struct stat st;
    if (!lstat(path, &st) && S_ISLNK(st.st_mode))
        return err_set(e, E_CANTCREAT, "%s: is a dangling symbolic link", path);
    char *s = mem_strdup(path);
    size_t n = strlen(s), longest = 0;
    int bad = 0;
    while (n && stat(s, &st)) {                            /* up to a path that exists; n 0: the current directory */
        size_t before = n;
        while (n && s[n - 1] == '/') n--;
        while (n && s[n - 1] != '/') n--;
        if (before - n > longest) longest = before - n;
        s[n] = '\0';
    }
    const char *above = n ? s : ".";
    long most = pathconf(above, _PC_NAME_MAX);
    if (longest > (size_t)(most > 0 ? most : NAME_MAX) || strlen(path) >= PATH_MAX)
        errno = ENAMETOOLONG, bad = cannot(path, e);
    else if (n && !S_ISDIR(st.st_mode)) errno = ENOTDIR, bad = cannot(path, e);
    else if (faccessat(AT_FDCWD, above, W_OK | X_OK, AT_EACCESS)) bad = cannot(path, e);
    free(s);
    return bad;
}

int rundir_inspect(const struct conf *c, enum rundir_use use, struct err *e)
{
    int fd, bad = look(c->run.directory, &fd, e) || (fd >= 0 && kinds_check(fd, c->run.directory, c, use, e));
    if (fd >= 0) close(fd);
    return bad ? -1 : 0;
}

static int lock_take(struct rundir *d, bool make, struct err *e)
{
    struct stat st;
    long owner;
    d->locked_first = make && fstatat(d->fd, lock, &st, AT_SYMLINK_NOFOLLOW) != 0;
    int fd = out_lock(d->fd, d->path, lock, make, &owner, e);
    d->lock = fd >= 0 ? fd : -1;
    if (fd != OUT_LOCK_BUSY) return fd == -1 ? -1 : 0;
    return err_set(e, E_STOPPED, "%s: this run directory is in use by process %ld", d->path, owner);
}

int rundir_check(struct rundir *d, const struct conf *c, enum rundir_use use, struct err *e)
{
    *d = (struct rundir){.path = c->run.directory, .fd = -1, .lock = -1};
    if (look(d->path, &d->fd, e)) return -1;
    if (d->fd < 0) return 0;
    return lock_take(d, false, e) || kinds_check(d->fd, d->path, c, use, e) || results_refuse(d, c, use, e) ? -1 : 0;
}

/* For a file, or for the weights file of a run directory. */
static int weights_stat(const char *from, struct stat *st)
{
    if (stat(from, st) || !S_ISDIR(st->st_mode)) return stat(from, st);
    struct text file = {0};
    text_add(&file, "%s/%s", from, weights);
    int bad = stat(file.s, st);
    text_free(&file);
    return bad;
}

static bool same_file(const struct rundir *d, const char *name, const struct stat *st)
{
    struct stat own;
    return !fstatat(d->fd, name, &own, 0) && own.st_dev == st->st_dev && own.st_ino == st->st_ino;
}

/* Is the file or folder this folder of the run directory, or in it? */
static bool lies_in(const struct rundir *d, const char *name, const char *file)
{
    struct stat st;
    char *path = realpath(file, NULL), *slash = path;
    bool in = false;
    while (path && slash && *path && !in) {
        in = !stat(path, &st) && same_file(d, name, &st);
        slash = strrchr(path, '/');
        if (slash) *slash = '\0';
    }
    free(path);
    return in;
}

struct eaten { const struct rundir *d; const struct conf *c; const char *key, *file, *name; };

static void input_check(void *ctx, const char *key, const char *file)
{
    struct eaten *x = ctx;
    struct stat st;
    if (x->name || stat(file, &st)) return;
    for (int i = 0; i < OWNS && !x->name; i++)
        if (goes(x->d, &owns[i], x->c) && (owns[i].kind == S_IFDIR ? lies_in(x->d, owns[i].name, file)
                                     : !S_ISDIR(st.st_mode) && same_file(x->d, owns[i].name, &st)))
            *x = (struct eaten){x->d, x->c, key, file, owns[i].name};
}

/* Fails if this run reads what it removes when it begins. */
static int inputs_spare(const struct rundir *d, const struct conf *c, struct err *e)
{
    struct eaten x = {.d = d, .c = c};
    conf_inputs(c, input_check, &x);
    if (!x.name) return 0;
    return err_set(e, E_CANTCREAT, "%s: is read%s%s, but the run would replace it as its %s; use another --run-dir",
                   x.file, *x.key ? " as " : ": the configuration", x.key, x.name);
}

/* Fails if --overwrite would later remove the initial weights or adapters. */
int rundir_spares(const struct rundir *d, const struct conf *c, struct err *e)
{
    const char *const from[] = {c->run.init_from, c->lora.init_from};
    if (d->fd >= 0 && inputs_spare(d, c, e)) return -1;
    for (int i = 0; i < 2 && d->fd >= 0 && c->run.overwrite && !c->run.evaluate; i++) {
        struct stat st;
        if (!from[i] || weights_stat(from[i], &st)) continue;
        if (!same_file(d, weights, &st) && !same_file(d, weights_old, &st)) continue;
        return err_set(e, E_CANTCREAT, "%s: --overwrite would remove the weights to start from; use another --run-dir",
                       from[i]);
    }
    return 0;
}

/* ---- the beginning ----------------------------------------------------------------------------------------------- */

/* A new folder survives a loss of power only if its parent is synced, and checkpoints lie in it. A parent with write
 * but no read permission cannot be opened for that. */
static int above_sync(const char *path)
{
    char *above = mem_strdup(path), *slash = strrchr(above, '/');
    if (slash) slash[slash == above] = '\0';
    int fd = open(slash ? above : ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    int bad = fd >= 0 ? out_sync(fd) : 0;
    if (fd >= 0) close(fd);
    free(above);
    return bad;
}

static int make_parents(struct rundir *d, struct err *e)
{
    char *s = mem_strdup(d->path);
    int bad = 0;
    for (char *p = s + 1; !bad; p++) {
        char end = *p;
        if (end != '/' && end) continue;
        *p = '\0';
        if (mkdir(s, 0777) == 0) {
            d->made = d->made ? d->made : (size_t)(p - s);
            if (above_sync(s)) bad = cannot(s, e);
        } else if (errno != EEXIST) bad = cannot(s, e);
        *p = end;
        if (!end) break;
    }
    free(s);
    return bad;
}

int rundir_enter(struct rundir *d, struct err *e)
{
    if (d->fd >= 0) return 0;
    if (make_parents(d, e)) return -1;
    d->fd = open(d->path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    return d->fd >= 0 ? 0 : err_set(e, E_CANTCREAT, "%s: %s", d->path, strerror(errno));
}

/* Renames earlier weights, so that they never have the name of this run's. If there are none, weights that an earlier
 * start renamed stay: that run failed and wrote none. */
static int weights_aside(struct rundir *d, struct err *e)
{
    d->set_aside = renameat(d->fd, weights, d->fd, weights_old) == 0;
    if (d->set_aside || errno == ENOENT) return 0;
    return err_set(e, E_CANTCREAT, "%s/%s: %s", d->path, weights_old, strerror(errno));
}

/* Removes half checkpoints of killed processes, and with `all` also an earlier run's checkpoints. */
static int checkpoints_clear(struct rundir *d, bool all, struct err *e)
{
    struct text shown = {0};
    uint64_t *step = NULL;
    int n = 0, bad = 0, fd = openat(d->fd, checkpoints, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
    if (fd < 0) return 0;
    text_add(&shown, "%s/%s", d->path, checkpoints);
    out_folder_sweep(fd, "step-");
    if (all) bad = ckpt_list(fd, shown.s, &step, &n, e);
    for (int i = 0; i < n && !bad; i++) {
        char name[CKPT_NAME];
        bad = out_folder_remove(fd, shown.s, ckpt_name(step[i], name), e);
    }
    free(step);
    text_free(&shown);
    close(fd);
    return bad;
}

/* A run that resumes keeps everything except the socket. */
static int old_remove(struct rundir *d, const struct conf *c, struct err *e)
{
    out_sweep(d->fd);
    for (int i = 0; i < OWNS; i++) {
        bool stays = resumes(c) ? owns[i].kind != S_IFSOCK : d->adds && (owns[i].name == metrics ||
                                                                         owns[i].name == logged);
        if (stays || !goes(d, &owns[i], c)) continue;
        if (is_folder(&owns[i])) {
            const bool there = !faccessat(d->fd, owns[i].name, F_OK, AT_SYMLINK_NOFOLLOW);
            if (there && out_folder_remove(d->fd, d->path, owns[i].name, e)) return -1;
        } else if (unlinkat(d->fd, owns[i].name, 0) && errno != ENOENT)
            return err_set(e, E_CANTCREAT, "%s/%s: %s", d->path, owns[i].name, strerror(errno));
    }
    d->cleared = !resumes(c) && !d->adds;
    return c->run.evaluate ? 0 : checkpoints_clear(d, !resumes(c), e);
}

int rundir_make(struct rundir *d, const struct conf *c, struct err *e)
{
    enum rundir_use use = c->run.evaluate ? RUNDIR_EVALUATE : RUNDIR_TRAIN;
    if (rundir_enter(d, e)) return -1;
    if (d->lock < 0 && lock_take(d, true, e)) return -1;
    /* another run may have begun and ended since the check, before a lock file existed */
    if (kinds_check(d->fd, d->path, c, use, e) || results_refuse(d, c, use, e)) return -1;
    if (out_lock_sign(d->lock, d->path, lock, e) || old_remove(d, c, e)) return -1;
    if (c->run.evaluate) return 0;
    return saves_try(d, c, e) || (!resumes(c) && weights_aside(d, e)) ? -1 : 0;
}

int rundir_sync(const struct rundir *d, struct err *e)
{
    if (!out_sync(d->fd)) return 0;
    return err_set(e, E_IO, "%s: %s", d->path, strerror(errno));
}

void rundir_undo(struct rundir *d)
{
    for (int i = 0; i < OWNS && d->fd >= 0 && d->cleared; i++) if (owns[i].old) unlinkat(d->fd, owns[i].name, 0);
    if (d->set_aside) renameat(d->fd, weights_old, d->fd, weights);
    if (d->lock >= 0 && d->locked_first) unlinkat(d->fd, lock, 0);
    char *s = mem_strdup(d->path ? d->path : "");
    for (size_t n = strlen(s); d->made && n >= d->made;) {
        s[n] = '\0';
        if (rmdir(s)) break;
        while (n && s[n - 1] != '/') n--;
        while (n && s[n - 1] == '/') n--;
    }
    free(s);
}

/* ---- the end ----------------------------------------------------------------------------------------------------- */

static bool replaces(const struct conf *c) { return c->run.overwrite && !c->run.evaluate; }

bool rundir_keeps(const struct rundir *d, const struct conf *c)
{
    return replaces(c) && faccessat(d->fd, weights_old, F_OK, 0) == 0;
}

/* Removes folders of weights before this run's, which a resumed run keeps until its end. */
static int folders_settle(const struct rundir *d, const struct conf *c, struct err *e)
{
    for (int i = 0; i < OWNS && resumes(c); i++) {
        const bool own = owns[i].name == model ? lora_leaves_model(c) : conf_adapts(c);
        if (is_folder(&owns[i]) && !own && is_left(d, owns[i].name) &&
            out_folder_remove(d->fd, d->path, owns[i].name, e)) return -1;
    }
    return 0;
}

int rundir_settle(const struct rundir *d, const struct conf *c, struct err *e)
{
    if (folders_settle(d, c, e)) return -1;
    if (!replaces(c) || unlinkat(d->fd, weights_old, 0) == 0 || errno == ENOENT) return 0;
    return err_set(e, E_IO, "%s/%s: %s", d->path, weights_old, strerror(errno));
}

int rundir_named(int fd, const char *path, struct err *e)
{
    struct stat ours, named;
    if (stat(path, &named)) return err_set(e, E_CANTCREAT, "%s: %s", path, strerror(errno));
    if (!fstatat(fd, ".", &ours, 0) && ours.st_dev == named.st_dev && ours.st_ino == named.st_ino) return 0;
    return err_set(e, E_CANTCREAT, "%s: is no longer the directory of this run, which was renamed or removed",
                   path);
}

void rundir_close(struct rundir *d)
{
    if (d->lock >= 0) close(d->lock);
    if (d->fd >= 0) close(d->fd);
    d->lock = d->fd = -1;
}
