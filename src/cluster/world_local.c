/* Ranks as threads of this process, which synchronise at a barrier. */
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include "base/mem.h"
#include "cluster/world.h"

struct world_meeting {
    pthread_barrier_t barrier;
    const void *p;
    void **all;
    int *x;
    struct tp **tp;
};
struct local_member { struct world w; struct world_meeting *m; };

static struct world_meeting *meeting_of(struct world *w) { return ((struct local_member *)w)->m; }

static int allreduce_min(struct world *w, int x)
{
    struct world_meeting *m = meeting_of(w);
    m->x[w->rank] = x;
    pthread_barrier_wait(&m->barrier);
    for (int i = 0; i < w->size; i++) if (m->x[i] < x) x = m->x[i];
    pthread_barrier_wait(&m->barrier);
    return x;
}

static void broadcast(struct world *w, int from, void *p, size_t bytes)
{
    struct world_meeting *m = meeting_of(w);
    if (w->rank == from) m->p = p;
    pthread_barrier_wait(&m->barrier);
    if (w->rank != from && bytes) memcpy(p, m->p, bytes);
    pthread_barrier_wait(&m->barrier);
}

static void allgather(struct world *w, void *all, size_t bytes)
{
    struct world_meeting *m = meeting_of(w);
    m->all[w->rank] = all;
    pthread_barrier_wait(&m->barrier);
    for (int i = 0; i < w->size; i++)
        if (i != w->rank) memcpy((char *)all + (size_t)i * bytes, (const char *)m->all[i] + (size_t)i * bytes, bytes);
    pthread_barrier_wait(&m->barrier);
}

static int open_local(struct world *w, struct tp **out, struct err *e)
{
    struct tp **mine = &meeting_of(w)->tp[w->rank];
    (void)e;
    *out = *mine;
    *mine = NULL;                                         /* the rank that opened it closes it */
    return 0;
}

struct world **world_local(int n, struct err *e)
{
    struct world_meeting *m = mem_alloc(sizeof *m);
    struct world **w = mem_alloc((size_t)n * sizeof *w);
    m->x = mem_alloc((size_t)n * sizeof *m->x);
    m->all = mem_alloc((size_t)n * sizeof *m->all);
    m->tp = mem_alloc((size_t)n * sizeof *m->tp);
    pthread_barrier_init(&m->barrier, NULL, (unsigned)n);
    for (int i = 0; i < n; i++) {
        struct local_member *k = mem_alloc(sizeof *k);
        k->m = m;
        k->w = (struct world){.rank = i, .size = n, .here = n, .rank_here = i, .one_process = true, .maker = i == 0,
                              .min = allreduce_min, .broadcast = broadcast, .allgather = allgather,
                              .open = open_local};
        w[i] = &k->w;
    }
    if (!tp_local_open(n, m->tp, e)) return w;
    world_local_free(w);
    return NULL;
}

void world_local_free(struct world **w)
{
    struct world_meeting *m = meeting_of(w[0]);
    for (int i = w[0]->size - 1; i >= 0; i--) {
        if (m->tp[i]) m->tp[i]->ops->close(m->tp[i]);
        free(w[i]);
    }
    pthread_barrier_destroy(&m->barrier);
    free(m->x);
    free(m->all);
    free(m->tp);
    free(m);
    free(w);
}
