/* The ranks of a job while they start and end: processes under MPI, or threads of this process. Only what votes need;
 * training uses tp.h.
 *
 * Collective: every rank calls them in the same order. Thread: the executor's of each rank.
 *
 * This folder: ranks as processes: votes (vote.c), heartbeats and the failure detector, control connections beside MPI
 * (peer_socket.c), the end of a process (shutdown.c), hosts, cores and memory nodes; and what a process says to the
 * outside: log, terminal, service manager. See docs/design/cluster.md. */
#ifndef CLUSTER_WORLD_H
#define CLUSTER_WORLD_H
#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include "transport/tp.h"

struct world {
    /* here: how many ranks are on this host; rank_here: which of them this is; host: the lowest of them, which
     * identifies the host */
    int rank, size, here, rank_here, host;
    bool one_process;
    atomic_int leader;                                      /* which rank ends the job: 0, unless it stands still */
    /* This rank makes what ranks of its process share: under MPI every rank, among threads rank 0. */
    bool maker;
    int (*lowest)(struct world *w, int x);                /* the smallest x of all ranks */
    void (*share)(struct world *w, int from, void *p, size_t bytes); /* gives rank from's bytes to all */
    /* all: an array with an element of so many bytes for each rank; gives each rank's element to all */
    void (*gather)(struct world *w, void *all, size_t bytes);
    int (*open)(struct world *w, struct tp **out, struct err *e);    /* opens the transport */
    /* Ends the job at once with that exit code, after the speaker has printed why. Never returns. */
    void (*end)(struct world *w, int code);
};
/* Initialises MPI; world_mpi_end finalizes it. */
void world_mpi_begin(struct world *w, int *argc, char ***argv);
void world_mpi_end(void);
/* What the MPI library calls itself, such as "Open MPI v4.1.4"; also before world_mpi_begin. */
const char *world_mpi_library(void);
/* An array of n ranks for n threads. NULL: e. The transports belong to whoever opens them. */
struct world **world_local(int n, struct err *e);
void world_local_free(struct world **w);                  /* after all threads have ended */
#endif
