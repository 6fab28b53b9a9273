/* Telling a list of reporters. */
#include <errno.h>
#include <string.h>
#include <unistd.h>
#include "cluster/log.h"
#include "report/reporter.h"

struct told { const struct reporter *kind; void *self; bool gone; };
struct reporters { int n; struct told of[]; };

static int count(const struct reporter *const *list)
{
    int n = 0;
    while (list[n]) n++;
    return n;
}

int reporters_check(const struct reporter *const *list, const struct rundir *d, const struct conf *c, struct err *e)
{
    for (; *list; list++) if ((*list)->check && (*list)->check(d, c, e)) return -1;
    return 0;
}

/* Reports once that it is no longer told. */
static int told_failed(struct told *t, const struct err *why, struct err *e)
{
    if (t->kind->required) return err_set(e, why->code, "%s", why->text);
    t->gone = true;
    log_line("warning: %s: %s; the run continues without it", t->kind->name, why->text);
    return 0;
}

int reporters_open(const struct reporter *const *list, const struct report_run *q, struct reporters **out,
                   struct err *e)
{
    struct reporters *all = mem_alloc(sizeof *all + (size_t)count(list) * sizeof *all->of);
    struct report_run run = *q;
    run.all = *out = all;
    for (; *list; list++) {
        struct told *t = &all->of[all->n++];
        struct err why = {0};
        t->kind = *list;
        if (t->kind->open && t->kind->open(&run, &t->self, &why) && told_failed(t, &why, e)) return -1;
        t->gone |= t->kind->open && !t->self;
    }
    return 0;
}

int reporters_tell(struct reporters *all, const struct event *ev, struct err *e)
{
    for (int i = 0; all && i < all->n; i++) {
        struct told *t = &all->of[i];
        struct err why = {0};
        if (!t->gone && t->kind->on(t->self, ev, &why) && told_failed(t, &why, e)) return -1;
    }
    return 0;
}

void *reporters_find(const struct reporters *all, const char *name)
{
    for (int i = 0; i < all->n; i++) if (!strcmp(all->of[i].kind->name, name)) return all->of[i].self;
    return NULL;
}

int reporters_sync(const struct reporters *all, struct err *e)
{
    for (int i = 0; i < all->n; i++) {
        const struct told *t = &all->of[i];
        const struct out_records *f = t->kind->file && !t->gone ? t->kind->file(t->self) : NULL;
        if (f && fdatasync(f->fd) && errno != EINVAL) return err_set(e, E_IO, "%s: %s", f->path, strerror(errno));
    }
    return 0;
}

void reporters_undo(const struct reporters *all, int dirfd)
{
    for (int i = 0; all && i < all->n; i++)
        if (all->of[i].kind->undo && all->of[i].self) all->of[i].kind->undo(all->of[i].self, dirfd);
}

void reporters_close(struct reporters *all)
{
    for (int i = 0; all && i < all->n; i++)
        if (all->of[i].kind->close && all->of[i].self) all->of[i].kind->close(all->of[i].self);
    free(all);
}
