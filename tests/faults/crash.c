/* After a power cut at any moment of some commits: crash RECORD DIR [LIMIT [WITHOUT [RUN]]]. Each state of states.h is
 * made in the empty folder DIR, in which RUN (.) is the run directory. It must have a newest valid checkpoint that is
 * the one committed last, or the one begun since; what has a checkpoint's name must be whole; and a commit must succeed
 * there. Ends with 1 at the first that has not. */
#include <dirent.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>
#include "rig.h"
#include "states.h"

struct job { int dir; const char *run; struct states *s; };

static void folder_empty(int dir)
{
    int fd = openat(dir, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    DIR *d = fdopendir(fd);
    if (!d) abort();
    for (struct dirent *f; (f = readdir(d));) {
        if (!strcmp(f->d_name, ".") || !strcmp(f->d_name, "..") || !unlinkat(fd, f->d_name, 0)) continue;
        int inner = openat(fd, f->d_name, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
        if (inner < 0) abort();
        folder_empty(inner);
        close(inner);
        if (unlinkat(fd, f->d_name, AT_REMOVEDIR)) abort();
    }
    closedir(d);
}

/* Has metrics.jsonl all steps up to that of the checkpoint which is said to be committed? */
static int metrics_check(int run, const struct moment *m, struct err *e)
{
    struct text t = {0}, step = {0};
    char path[64];
    int fd = openat(run, "metrics.jsonl", O_RDONLY);
    if (fd < 0) return err_set(e, E_DATA, "committed was %lu, but there is no metrics.jsonl", m->committed);
    snprintf(path, sizeof path, "/proc/self/fd/%d", fd);
    int bad = text_read_bytes(&t, path, (size_t)1 << 30, e);
    for (uint64_t i = 1; !bad && i <= m->committed; i++) {
        step.n = 0;
        text_add(&step, "{\"event\":\"step\",\"step\":%lu,", i);
        if (!t.n || !strstr(t.s, step.s))
            bad = err_set(e, E_DATA, "committed was %lu, but metrics.jsonl lacks step %lu", m->committed, i);
    }
    close(fd);
    text_free(&step);
    text_free(&t);
    return bad;
}

/* What is wrong with what is there. */
static int recover(const struct job *j, const struct moment *m, struct err *e)
{
    uint64_t newest = 0, next = m->begun + 1;
    mkdirat(j->dir, j->run, 0777);                       /* as a run does that begins there */
    int run = openat(j->dir, j->run, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    int dir = openat(run, "checkpoints", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (dir >= 0 && rig_newest(dir, &newest, e)) return -1;
    if (dir >= 0) close(dir);
    if (newest < m->committed || newest > m->begun)
        return err_set(e, E_DATA, "the newest is %lu, committed was %lu, begun %lu", newest, m->committed, m->begun);
    if (m->metrics && m->committed && metrics_check(run, m, e)) return -1;
    dir = rig_checkpoints(run, e);
    if (dir < 0 || rig_save_alone(dir, next, e) || rig_newest(dir, &newest, e)) return -1;
    close(dir);
    close(run);
    return newest == next ? 0 : err_set(e, E_DATA, "the next commit left %lu", newest);
}

static int state_try(void *ctx, const struct moment *m, const struct tree *t)
{
    struct job *j = ctx;
    struct err e = {0};
    folder_empty(j->dir);
    tree_make(t, j->dir);
    if (!recover(j, m, &e)) return 0;
    states_print(j->s, t);
    printf("# hole: %s\n", e.text);
    return -1;
}

int main(int argc, char **argv)
{
    if (argc < 3) return 64;
    struct job j = {.dir = open(argv[2], O_RDONLY | O_DIRECTORY), .s = states_open(argv[1], argc > 4 ? argv[4] : "")};
    j.run = argc > 5 ? argv[5] : ".";
    if (j.dir < 0 || !j.s) return 66;
    int bad = states_each(j.s, argc > 3 ? strtoul(argv[3], NULL, 10) : 5000, state_try, &j);
    struct states_count c = states_count(j.s);
    if (!bad) folder_empty(j.dir);
    printf("%lu calls, %lu moments (%lu of them bounded), %lu states, %lu of them distinct\n", c.calls, c.moments,
           c.bounded, c.states, c.distinct);
    states_close(j.s);
    return bad ? 1 : 0;
}
