/* The phases of a run's set-up about cores. */
#include <stdlib.h>
#include "base/mem.h"
#include "base/launched.h"
#include "train/setup.h"

/* Measures the cores of the process; with threads rank 0 measures for all. If a device computes, cores matter
 * little. */
int cores_watch(struct setup *b, struct err *e)
{
    (void)e;
    if (!b->job.be->stream && (b->world->rank == 0 || !b->world->one_process)) b->cores = cores_begin();
    return 0;
}

int cores_check(struct setup *b, struct err *e)
{
    (void)e;
    bool one = b->world->one_process;
    int n = one ? 1 : b->world->size, me = b->world->rank;
    if (!b->cores) return 0;
    struct core_info *w = mem_alloc((size_t)n * sizeof *w);
    cores_end(b->cores, launched_any(), (int)b->conf->run.threads * (one ? b->world->size : 1), &w[me]);
    b->cores = NULL;
    if (!one) b->world->allgather(b->world, w, sizeof *w);
    if (me == 0) cores_report(w, n, &b->notes);
    free(w);
    return 0;
}

/* Finds the cores for reading samples. Ranks that are threads are bound alike. */
int cores_seek(struct setup *b, struct err *e)
{
    (void)e;
    bool one = b->world->one_process;
    int n = one ? 1 : b->world->size, me = one ? 0 : b->world->rank;
    struct core_info *w = mem_alloc((size_t)n * sizeof *w);
    cores_read(launched_any(), &w[me]);
    if (!one) b->world->allgather(b->world, w, sizeof *w);
    cores_spare(w, n, me, &b->spare);
    free(w);
    return 0;
}
