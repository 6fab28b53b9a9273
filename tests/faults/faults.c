/* Faults of files, for LD_PRELOAD. Only calls below one folder count: open and openat that may create, mkdirat, write
 * and pwrite, fallocate and posix_fallocate, ftruncate, fsync and fdatasync, linkat, renameat, unlinkat, close.
 *
 *   MPSTAGED_FAULT_BELOW=DIR               the folder, by its real path
 *   MPSTAGED_FAULT=RANK:CALL:N:ACTION      the N-th CALL of that rank (OMPI_COMM_WORLD_RANK, 0 without it) does ACTION:
 *                                          kill (before the call), eio, enospc, eperm, none, slow (by 60 ms), or short
 *                                          (half of what is written; other calls: nothing). CALL: open mkdir write
 *                                          fallocate truncate fsync link rename unlink close, or any. "N+": from the
 *                                          N-th on. RANK may be "*".
 *   MPSTAGED_FAULT_WHILE=FILE              calls count only while it is there
 *   MPSTAGED_FAULT_HIT=FILE                made when that happens
 *   MPSTAGED_FAULT_COUNT=FILE              a process that ends adds "RANK CALLS", how many counted
 *   MPSTAGED_FAULT_RECORD=FILE             what the calls did is added there (record.h); the order of several processes
 *                                          is that in which their calls ended
 *
 * A program may say where it is: mark(text), which it finds with dlsym under the name faults_mark. */
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <unistd.h>
#include "record.h"

enum call { C_OPEN, C_MKDIR, C_WRITE, C_FALLOCATE, C_TRUNCATE, C_FSYNC, C_LINK, C_RENAME, C_UNLINK, C_CLOSE, C_ANY };
static const char *const call_name[] = {"open", "mkdir", "write", "fallocate", "truncate", "fsync",
                                        "link", "rename", "unlink", "close", "any"};
enum action { A_NONE, A_KILL, A_EIO, A_ENOSPC, A_EPERM, A_SLOW, A_SHORT };
static const char *const action_name[] = {"none", "kill", "eio", "enospc", "eperm", "slow", "short"};

static char below[4096];
static int record_fd = -1, rank;
static struct { enum call call; long n; bool on; enum action action; } fault;
static atomic_long counted[C_ANY + 1];

static int index_of(const char *word, const char *const *of, int n)
{
    for (int i = 0; i < n; i++) if (!strcmp(word, of[i])) return i;
    fprintf(stderr, "MPSTAGED_FAULT: what is \"%s\"?\n", word);
    _exit(64);
}

static void fault_parse(const char *s)
{
    char who[16], call[16], n[16], action[16], *end;
    if (sscanf(s, "%15[^:]:%15[^:]:%15[^:]:%15s", who, call, n, action) != 4) index_of(s, NULL, 0);
    if (strcmp(who, "*") && atoi(who) != rank) return;
    fault.call = (enum call)index_of(call, call_name, C_ANY + 1);
    fault.action = (enum action)index_of(action, action_name, A_SHORT + 1);
    fault.n = strtol(n, &end, 10);
    fault.on = *end == '+';
}

static void record_add(struct record *r, const void *data)
{
    struct iovec v[2] = {{r, sizeof *r}, {(void *)(uintptr_t)data, data ? r->n : 0}};
    if (!data) r->n = 0;
    r->rank = (uint32_t)rank;
    if (syscall(SYS_writev, record_fd, v, 2) != (long)(sizeof *r + r->n)) abort();
}

__attribute__((constructor)) static void begin(void)
{
    const char *dir = getenv("MPSTAGED_FAULT_BELOW"), *what = getenv("MPSTAGED_FAULT");
    const char *who = getenv("OMPI_COMM_WORLD_RANK") ?: getenv("PMI_RANK"), *file = getenv("MPSTAGED_FAULT_RECORD");
    struct stat st;
    if (!dir) return;
    rank = who ? atoi(who) : 0;
    if (what) fault_parse(what);
    snprintf(below, sizeof below, "%s", dir);
    if (!file) return;
    record_fd = (int)syscall(SYS_openat, AT_FDCWD, file, O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0666);
    if (record_fd < 0 || stat(below, &st)) abort();
    record_fd = fcntl(record_fd, F_DUPFD_CLOEXEC, 900);  /* where no program counts on finding its own */
    record_add(&(struct record){.kind = REC_ROOT, .ino = st.st_ino}, NULL);
}

__attribute__((destructor)) static void end(void)
{
    const char *file = getenv("MPSTAGED_FAULT_COUNT");
    int fd = file ? (int)syscall(SYS_openat, AT_FDCWD, file, O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0666) : -1;
    if (fd >= 0) dprintf(fd, "%d %ld\n", rank, atomic_load(&counted[C_ANY]));
}

/* ---- which calls count ------------------------------------------------------------------------------------------- */

static bool path_is_below(const char *path)
{
    size_t n = strlen(below);
    return n && !strncmp(path, below, n) && (!path[n] || path[n] == '/' || path[n] == ' ');
}

/* The path of a descriptor, with `name` behind it if that is not NULL. */
static bool path_of(int fd, const char *name, char path[8192])
{
    char link[40];
    snprintf(link, sizeof link, fd == AT_FDCWD ? "/proc/self/cwd" : "/proc/self/fd/%d", fd);
    long n = syscall(SYS_readlinkat, AT_FDCWD, link, path, 4096);
    if (n < 0) return false;
    snprintf(path + n, 4096, "%s%s", name ? "/" : "", name ? name : "");
    return true;
}

static bool fd_is_below(int fd)
{
    char path[8192];
    return *below && fd != record_fd && path_of(fd, NULL, path) && path_is_below(path);
}

static bool at_is_below(int dir, const char *name)
{
    char path[8192];
    if (!*below) return false;
    return *name == '/' ? path_is_below(name) : path_of(dir, name, path) && path_is_below(path);
}

static void hit(void)
{
    const char *file = getenv("MPSTAGED_FAULT_HIT");
    if (file) syscall(SYS_close, syscall(SYS_openat, AT_FDCWD, file, O_WRONLY | O_CREAT, 0666));
    if (fault.action == A_KILL) {
        syscall(SYS_kill, getpid(), SIGKILL);
        for (;;) pause();
    }
}

/* A call that counts is about to be made. True: it fails, with errno set. *n: bytes to write; may become fewer. */
static bool fails(enum call c, size_t *n)
{
    const char *gate = getenv("MPSTAGED_FAULT_WHILE");
    if (gate && access(gate, F_OK)) return false;
    long mine = atomic_fetch_add(&counted[c], 1) + 1, all = atomic_fetch_add(&counted[C_ANY], 1) + 1;
    long is = fault.call == C_ANY ? all : fault.call == c ? mine : 0;
    if (!fault.n || !is || (is != fault.n && !(fault.on && is > fault.n))) return false;
    hit();
    if (fault.action == A_SLOW) usleep(60000);
    if (fault.action == A_NONE || fault.action == A_SLOW) return false;
    if (fault.action == A_SHORT && n && *n > 1) *n /= 2;
    errno = fault.action == A_ENOSPC ? ENOSPC : fault.action == A_EPERM ? EPERM : EIO;
    return fault.action != A_SHORT;
}

/* ---- notes ------------------------------------------------------------------------------------------------------- */

static uint64_t ino_of(int fd)
{
    struct stat st;
    return fstatat(fd, "", &st, AT_EMPTY_PATH) ? 0 : st.st_ino;
}

static uint64_t ino_at(int dir, const char *name)
{
    struct stat st;
    return fstatat(dir, name, &st, AT_SYMLINK_NOFOLLOW) ? 0 : st.st_ino;
}

/* The folder of a path, and its last name. */
static uint64_t folder_of(int dir, const char *path, char name[80])
{
    char folder[4096];
    const char *slash = strrchr(path, '/');
    snprintf(name, 80, "%s", slash ? slash + 1 : path);
    snprintf(folder, sizeof folder, "%.*s", slash ? (int)(slash - path) + (slash == path) : 1, slash ? path : ".");
    return ino_at(dir, folder);
}

static void note_entry(enum record_kind kind, uint64_t ino, int dir, const char *path)
{
    if (record_fd < 0) return;
    int was = errno;
    struct record r = {.kind = kind, .ino = ino};
    if (path) r.dir = folder_of(dir, path, r.name);
    record_add(&r, NULL);
    errno = was;
}

static void note_file(enum record_kind kind, int fd, uint64_t at, bool grow, const void *data, size_t n)
{
    if (record_fd < 0) return;
    int was = errno;
    struct record r = {.kind = kind, .ino = ino_of(fd), .at = at, .grow = grow, .n = n};
    record_add(&r, data);
    errno = was;
}

void faults_mark(const char *text);
void faults_mark(const char *text)
{
    struct record r = {.kind = REC_MARK};
    snprintf(r.name, sizeof r.name, "%s", text);
    if (record_fd >= 0) record_add(&r, NULL);
}

/* ---- the calls --------------------------------------------------------------------------------------------------- */

static int open_at(int dir, const char *path, int flags, mode_t mode)
{
    bool makes = flags & O_CREAT || (flags & O_TMPFILE) == O_TMPFILE, counts = makes && at_is_below(dir, path);
    if (counts && fails(C_OPEN, NULL)) return -1;
    bool is_new = counts && ((flags & O_TMPFILE) == O_TMPFILE || !ino_at(dir, path));
    int fd = (int)syscall(SYS_openat, dir, path, flags, mode);
    if (fd < 0 || !counts) return fd;
    if (is_new) note_entry(REC_CREATE, ino_of(fd), dir, flags & O_CREAT ? path : NULL);
    else if (flags & O_TRUNC) note_file(REC_SIZE, fd, 0, false, NULL, 0);
    return fd;
}

#define MODE_OF(flags) __extension__ ({ mode_t m_ = 0; va_list ap_; \
    va_start(ap_, flags); if ((flags) & (O_CREAT | O_TMPFILE)) m_ = va_arg(ap_, mode_t); va_end(ap_); m_; })
int open(const char *path, int flags, ...) { return open_at(AT_FDCWD, path, flags, MODE_OF(flags)); }
int open64(const char *path, int flags, ...) { return open_at(AT_FDCWD, path, flags, MODE_OF(flags)); }
int openat(int dir, const char *path, int flags, ...) { return open_at(dir, path, flags, MODE_OF(flags)); }
int openat64(int dir, const char *path, int flags, ...) { return open_at(dir, path, flags, MODE_OF(flags)); }

int mkdirat(int dir, const char *path, mode_t mode)
{
    bool counts = at_is_below(dir, path);
    if (counts && fails(C_MKDIR, NULL)) return -1;
    int bad = (int)syscall(SYS_mkdirat, dir, path, mode);
    if (!bad && counts) note_entry(REC_MKDIR, ino_at(dir, path), dir, path);
    return bad;
}
int mkdir(const char *path, mode_t mode) { return mkdirat(AT_FDCWD, path, mode); }

ssize_t write(int fd, const void *p, size_t n)
{
    bool counts = fd_is_below(fd);
    if (counts && fails(C_WRITE, &n)) return -1;
    ssize_t k = syscall(SYS_write, fd, p, n);
    if (k > 0 && counts) note_file(REC_WRITE, fd, (uint64_t)lseek(fd, 0, SEEK_CUR) - (uint64_t)k, false, p, (size_t)k);
    return k;
}

static ssize_t write_at(int fd, const void *p, size_t n, off_t at)
{
    bool counts = fd_is_below(fd);
    if (counts && fails(C_WRITE, &n)) return -1;
    ssize_t k = syscall(SYS_pwrite64, fd, p, n, at);
    if (k > 0 && counts) note_file(REC_WRITE, fd, (uint64_t)at, false, p, (size_t)k);
    return k;
}
ssize_t pwrite(int fd, const void *p, size_t n, off_t at) { return write_at(fd, p, n, at); }
ssize_t pwrite64(int fd, const void *p, size_t n, off_t at) { return write_at(fd, p, n, at); }

static int room(int fd, int mode, off_t at, off_t n)
{
    bool counts = fd_is_below(fd);
    if (counts && fails(C_FALLOCATE, NULL)) return -1;
    int bad = (int)syscall(SYS_fallocate, fd, mode, at, n);
    if (!bad && counts && !mode) note_file(REC_SIZE, fd, (uint64_t)(at + n), true, NULL, 0);
    return bad;
}
int fallocate(int fd, int mode, off_t at, off_t n) { return room(fd, mode, at, n); }
int fallocate64(int fd, int mode, off_t at, off_t n) { return room(fd, mode, at, n); }
int posix_fallocate(int fd, off_t at, off_t n) { return room(fd, 0, at, n) ? errno : 0; }
int posix_fallocate64(int fd, off_t at, off_t n) { return room(fd, 0, at, n) ? errno : 0; }

static int size_set(int fd, off_t n)
{
    bool counts = fd_is_below(fd);
    if (counts && fails(C_TRUNCATE, NULL)) return -1;
    int bad = (int)syscall(SYS_ftruncate, fd, n);
    if (!bad && counts) note_file(REC_SIZE, fd, (uint64_t)n, false, NULL, 0);
    return bad;
}
int ftruncate(int fd, off_t n) { return size_set(fd, n); }
int ftruncate64(int fd, off_t n) { return size_set(fd, n); }

static int sync_by(long how, int fd)
{
    bool counts = fd_is_below(fd);
    if (counts && fails(C_FSYNC, NULL)) return -1;
    int bad = (int)syscall(how, fd);
    if (!bad && counts) note_file(REC_SYNC, fd, 0, false, NULL, 0);
    return bad;
}
int fsync(int fd) { return sync_by(SYS_fsync, fd); }
int fdatasync(int fd) { return sync_by(SYS_fdatasync, fd); }

int linkat(int from, const char *old, int dir, const char *path, int flags)
{
    bool counts = at_is_below(dir, path);
    if (counts && fails(C_LINK, NULL)) return -1;
    int bad = (int)syscall(SYS_linkat, from, old, dir, path, flags);
    if (!bad && counts) note_entry(REC_LINK, ino_at(dir, path), dir, path);
    return bad;
}

int renameat(int from, const char *old, int dir, const char *path)
{
    bool counts = at_is_below(dir, path);
    if (counts && fails(C_RENAME, NULL)) return -1;
    int bad = (int)syscall(SYS_renameat2, from, old, dir, path, 0);
    if (bad || !counts || record_fd < 0) return bad;
    struct record r = {.kind = REC_RENAME, .ino = ino_at(dir, path)};
    r.dir = folder_of(from, old, r.name);
    r.dir_to = folder_of(dir, path, r.to);
    record_add(&r, NULL);
    return 0;
}
int rename(const char *old, const char *path) { return renameat(AT_FDCWD, old, AT_FDCWD, path); }

int unlinkat(int dir, const char *path, int flags)
{
    bool counts = at_is_below(dir, path);
    if (counts && fails(C_UNLINK, NULL)) return -1;
    int bad = (int)syscall(SYS_unlinkat, dir, path, flags);
    if (!bad && counts) note_entry(REC_UNLINK, 0, dir, path);
    return bad;
}
int unlink(const char *path) { return unlinkat(AT_FDCWD, path, 0); }
int rmdir(const char *path) { return unlinkat(AT_FDCWD, path, AT_REMOVEDIR); }

/* A file that is closed with an error is closed all the same. Only files that were written count. */
int close(int fd)
{
    int flags = *below && fd >= 0 ? fcntl(fd, F_GETFL) : -1;
    bool counts = flags >= 0 && (flags & O_ACCMODE) != O_RDONLY && !(flags & O_PATH) && fd_is_below(fd);
    int was = 0;
    if (counts && fails(C_CLOSE, NULL)) was = errno;
    int bad = (int)syscall(SYS_close, fd);
    if (!was) return bad;
    errno = was;
    return -1;
}
