/* The processes of the command: all its descendants. The calling process is a subreaper, so descendants that lose their
 * parent become its children. */
#include <ctype.h>
#include <dirent.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "base/clock.h"
#include "base/text.h"
#include "job.h"

static int proc_compare(const void *a, const void *b)
{
    pid_t x = ((const struct proc *)a)->pid, y = ((const struct proc *)b)->pid;
    return x < y ? -1 : x > y;
}

static const struct proc *proc_find(const struct tree *t, pid_t pid)
{
    struct proc key = {.pid = pid};
    return t->all.n ? bsearch(&key, t->all.v, (size_t)t->all.n, sizeof key, proc_compare) : NULL;
}

/* Processes start and end while /proc is read. So a chain of parents may break or, if a number is used again, form a
 * circle. */
static bool descends(const struct tree *t, const struct proc *p, pid_t from)
{
    for (int i = 0; p && i < t->all.n; i++, p = proc_find(t, p->parent)) if (p->parent == from) return true;
    return false;
}

void tree_scan(struct tree *t)
{
    struct tree every = {0};
    DIR *d = opendir("/proc");
    for (struct dirent *x; d && (x = readdir(d));) {
        struct proc p;
        pid_t pid = isdigit((unsigned char)x->d_name[0]) ? (pid_t)atol(x->d_name) : 0;
        if (pid > 0 && proc_read(pid, &p)) *vec_push(&every.all) = p;
    }
    if (d) closedir(d);
    if (every.all.n) qsort(every.all.v, (size_t)every.all.n, sizeof *every.all.v, proc_compare);
    t->all.n = 0;
    for (int i = 0; i < every.all.n; i++)
        if (descends(&every, &every.all.v[i], getpid())) *vec_push(&t->all) = every.all.v[i];
    tree_free(&every);
}

bool tree_launcher(pid_t pid, int *alive, int *all, int *ended)
{
    static const char *const names[] = {"mpirun", "mpiexec", "orterun", "prterun", "prun"};
    struct tree t = {0};
    char path[40];
    struct text name = {0};
    bool is = false;
    snprintf(path, sizeof path, "/proc/%d/comm", (int)pid);
    if (!text_read_file(&name, path, 64, NULL) && name.n)
        for (size_t i = 0; i < sizeof names / sizeof *names; i++)
            is |= !strncmp(name.s, names[i], strlen(names[i])) && strchr("\n.", name.s[strlen(names[i])]);
    text_free(&name);
    *alive = *all = *ended = 0;
    if (is) tree_scan(&t);
    for (int i = 0; i < t.all.n; i++) {
        *all += t.all.v[i].pid != pid;
        *alive += t.all.v[i].pid != pid && t.all.v[i].state != 'Z';
        *ended += t.all.v[i].parent == pid && t.all.v[i].state == 'Z';
    }
    tree_free(&t);
    return is;
}

void tree_signal(pid_t pid, int number)
{
    struct tree t = {0};
    bool passed = false;
    tree_scan(&t);
    for (int i = 0; i < t.all.n; i++) {
        const struct proc *parent = proc_find(&t, t.all.v[i].parent);
        if (!parent || strcmp(parent->name, "hydra_pmi_proxy")) continue;
        kill(t.all.v[i].pid, number);
        passed = true;
    }
    if (!passed) kill(pid, number);
    tree_free(&t);
}

void tree_free(struct tree *t) { vec_free(&t->all); }

int job_finish(struct supervised_job *j, struct err *e)
{
    struct tree t = {0};
    uint64_t until = clock_ns() + JOB_GONE_S * 1000000000ull;
    unsigned pause_us = 500;
    for (;; usleep(pause_us), pause_us = pause_us < 50000 ? pause_us * 2 : pause_us) {
        tree_scan(&t);
        for (int i = 0; i < t.all.n; i++) if (t.all.v[i].state != 'Z') left_note(&j->left, t.all.v[i].pid);
        for (int i = 0; i < t.all.n; i++) kill(t.all.v[i].pid, SIGKILL);
        job_reap(j);
        if (!t.all.n || clock_ns() > until) break;
    }
    int bad = 0;
    if (t.all.n)
        bad = err_set(e, E_INTERNAL, "process %d of the command still exists %d s after SIGKILL", (int)t.all.v[0].pid,
                      JOB_GONE_S);
    tree_free(&t);
    left_clear(&j->left);
    return bad;
}
