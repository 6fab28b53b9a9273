/* The ranks of a job while they start and end: processes under MPI, or threads of this process. Only what votes need;
 * training uses tp.h.
 *
 * Collective: every rank calls them in the same order. Thread: the executor's of each rank. */
#ifndef DAEMON_RUN_WORLD_H
#define DAEMON_RUN_WORLD_H
#include <stdbool.h>
#include <stddef.h>
#include "transport/tp.h"

struct world {
    /* here: ranks on this host; rank_here: which of them; host: the lowest of them, which tells hosts apart */
    int rank, size, here, rank_here, host;
    bool one_process;
    /* Makes what ranks of its process share: under MPI each, of threads rank 0. */
    bool maker;
    int (*lowest)(struct world *w, int x);                /* the smallest x of all ranks */
    void (*share)(struct world *w, int from, void *p, size_t bytes); /* from's bytes become everybody's */
    /* all: an array by rank, of elements of so many bytes; each one's element becomes everybody's */
    void (*gather)(struct world *w, void *all, size_t bytes);
    int (*open)(struct world *w, struct tp **out, struct err *e);    /* the transport */
    /* ends the job at once with that exit code, when rank 0 has said why. Never returns */
    void (*end)(struct world *w, int code);
};
/* Initialises MPI; world_mpi_end finalizes it. */
void world_mpi_begin(struct world *w, int *argc, char ***argv);
void world_mpi_end(void);
/* n ranks for n threads, as an array. NULL: e. The transports belong to whoever opens them. */
struct world **world_local(int n, struct err *e);
void world_local_free(struct world **w);                  /* after all threads have ended */
#endif
