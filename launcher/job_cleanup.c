/* Removes what Open MPI leaves behind when its mpirun is killed: a session folder, and segments of shared memory.
 * Removes only what belongs to the command's processes.
 *
 * Open MPI 4.1: TMP/ompi.HOST.UID/pid.MPIRUN with contact.txt, whose first number is the family of the job. Segments
 * are /dev/shm/vader_segment.HOST.UID.JOB.RANK, JOB in hexadecimal; its upper half is the family. Open MPI 5.0:
 * TMP/prte.HOST.UID/dvm.MPIRUN or, later, TMP/prterun.HOST.MPIRUN.UID, and /dev/shm/sm_segment.HOST.UID.JOB.RANK. Those
 * segments are found in the memory maps of the ranks. A folder with the number of a running process stays, even if
 * another program has that number now. */
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include "base/text.h"
#include "job.h"

static const char *const segment_names[] = {"vader_segment.", "sm_segment.", "nccl-"};
enum { SEGMENT_NAMES = sizeof segment_names / sizeof *segment_names, DEEPEST = 16 };

/* ---- recording ------------------------------------------------------------------------------- */

static void segment_note(struct left *l, const char *path)
{
    const char *name = strrchr(path, '/') + 1;
    bool wanted = false;
    for (int i = 0; i < SEGMENT_NAMES; i++) wanted |= !strncmp(name, segment_names[i], strlen(segment_names[i]));
    for (int i = 0; wanted && i < l->segments.n; i++) wanted = strcmp(l->segments.v[i], path) != 0;
    if (wanted) *vec_push(&l->segments) = mem_strdup(path);
}

void left_note(struct left *l, pid_t pid)
{
    char path[40];
    struct text maps = {0};
    bool known = false;
    for (int i = 0; i < l->pids.n; i++) known |= l->pids.v[i] == pid;
    if (!known) *vec_push(&l->pids) = pid;
    snprintf(path, sizeof path, "/proc/%d/maps", (int)pid);
    if (!text_read_file(&maps, path, 16 << 20, NULL) && maps.n)
        for (char *save = NULL, *s = strtok_r(maps.s, "\n", &save); s; s = strtok_r(NULL, "\n", &save)) {
            char *file = strchr(s, '/');
            if (file && !strstr(file, " (deleted)")) segment_note(l, file);
        }
    text_free(&maps);
}

void left_note_all(struct left *l)
{
    struct tree t = {0};
    tree_scan(&t);
    for (int i = 0; i < t.all.n; i++) left_note(l, t.all.v[i].pid);
    tree_free(&t);
}

/* ---- removing --------------------------------------------------------------------------------- */

static bool is_ours(int folder, const char *name, mode_t kind)
{
    struct stat st;
    return !fstatat(folder, name, &st, AT_SYMLINK_NOFOLLOW) && (st.st_mode & S_IFMT) == kind && st.st_uid == geteuid();
}

static void folder_remove_to(int depth, int above, const char *name)
{
    int fd = openat(above, name, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
    DIR *d = fd < 0 ? NULL : fdopendir(fd);
    for (struct dirent *x; d && (x = readdir(d));) {
        if (!strcmp(x->d_name, ".") || !strcmp(x->d_name, "..")) continue;
        if (unlinkat(fd, x->d_name, 0) && errno == EISDIR && depth) folder_remove_to(depth - 1, fd, x->d_name);
    }
    if (d) closedir(d);
    else if (fd >= 0) close(fd);
    unlinkat(above, name, AT_REMOVEDIR);
}

void folder_remove(int above, const char *name) { folder_remove_to(DEEPEST, above, name); }

/* The job's family, from the folder of its mpirun; -1: unknown. */
static long family_read(int session)
{
    char text[64];
    int fd = openat(session, "contact.txt", O_RDONLY | O_NOFOLLOW | O_CLOEXEC);
    ssize_t n = fd < 0 ? -1 : read(fd, text, sizeof text - 1);
    if (fd >= 0) close(fd);
    text[n > 0 ? n : 0] = 0;
    unsigned long job = strtoul(text, NULL, 10);
    return job >> 16 && job >> 16 <= 0xffff ? (long)(job >> 16) : -1;
}

/* Whether name is vader_segment.HOST.UID.JOB.RANK of this user and family. HOST may contain dots. */
static bool segment_of(const char *name, long family)
{
    unsigned long uid, job, rank;
    int end = 0, dots = 0;
    if (strncmp(name, segment_names[0], strlen(segment_names[0]))) return false;
    const char *s = name + strlen(name);
    while (s > name && (dots += *s == '.') < 3) s--;
    return sscanf(s, ".%lu.%lx.%lu%n", &uid, &job, &rank, &end) == 3 && !s[end] && uid == geteuid() &&
           job >> 16 == (unsigned long)family;
}

static void segments_remove(long family)
{
    const char *where = getenv("OMPI_MCA_btl_vader_backing_directory");
    DIR *d = opendir(where ? where : "/dev/shm");
    for (struct dirent *x; d && (x = readdir(d));)
        if (segment_of(x->d_name, family) && is_ours(dirfd(d), x->d_name, S_IFREG)) unlinkat(dirfd(d), x->d_name, 0);
    if (d) closedir(d);
}

/* Removes the folder of one mpirun in a user's session folder, and its segments. */
static void session_remove(int top, const char *format, pid_t pid)
{
    char name[40];
    snprintf(name, sizeof name, format, (int)pid);
    if (!is_ours(top, name, S_IFDIR)) return;
    int session = openat(top, name, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
    if (session < 0) return;
    long family = family_read(session);
    close(session);
    if (family >= 0) segments_remove(family);
    folder_remove(top, name);
}

static bool is_gone(pid_t pid) { return kill(pid, 0) && errno == ESRCH; }

static bool begins(const char *name, const char *const *with)
{
    while (*with && strncmp(name, *with, strlen(*with))) with++;
    return *with;
}

/* Removes the folders of mpiruns in a user's common folder, and that folder if no other job uses it. */
static void user_sessions_remove(const struct left *l, int above, const char *name)
{
    int top = openat(above, name, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
    for (int i = 0; top >= 0 && i < l->pids.n; i++)
        if (is_gone(l->pids.v[i])) {
            session_remove(top, "pid.%d", l->pids.v[i]);
            session_remove(top, "dvm.%d", l->pids.v[i]);
        }
    if (top >= 0) close(top);
    unlinkat(above, name, AT_REMOVEDIR);
}

/* Removes a folder whose name ends with the number of its mpirun and the user. */
static void own_session_remove(const struct left *l, int above, const char *name)
{
    char end[40];
    for (int i = 0; i < l->pids.n; i++) {
        int n = snprintf(end, sizeof end, ".%d.%lu", (int)l->pids.v[i], (unsigned long)geteuid());
        size_t length = strlen(name);
        if (length > (size_t)n && !strcmp(name + length - n, end) && is_gone(l->pids.v[i]))
            folder_remove(above, name);
    }
}

static void sessions_remove(const struct left *l, const char *folder)
{
    static const char *const users[] = {"ompi.", "prte.", NULL};
    static const char *const own[] = {"prterun.", "mpirun.", "mpiexec.", NULL};
    DIR *d = folder && *folder ? opendir(folder) : NULL;
    for (struct dirent *x; d && (x = readdir(d));) {
        bool of_user = begins(x->d_name, users), of_job = begins(x->d_name, own);
        if ((!of_user && !of_job) || !is_ours(dirfd(d), x->d_name, S_IFDIR)) continue;
        if (of_user) user_sessions_remove(l, dirfd(d), x->d_name);
        else own_session_remove(l, dirfd(d), x->d_name);
    }
    if (d) closedir(d);
}

void left_clear(struct left *l)
{
    static const char *const places[] = {"OMPI_MCA_orte_tmpdir_base", "PRTE_MCA_prte_tmpdir_base", "TMPDIR", "TEMP",
                                         "TMP"};
    for (size_t i = 0; l->pids.n && i < sizeof places / sizeof *places; i++) sessions_remove(l, getenv(places[i]));
    if (l->pids.n) sessions_remove(l, "/tmp");
    for (int i = 0; i < l->segments.n; i++) {
        if (is_ours(AT_FDCWD, l->segments.v[i], S_IFREG)) unlink(l->segments.v[i]);
        free(l->segments.v[i]);
    }
    vec_free(&l->segments);
    vec_free(&l->pids);
}
