/* The ranks of a job while they start and end: processes under MPI, or threads of this process. Only what votes need;
 * training uses tp.h.
 *
 * Collective: every rank makes the same calls in the same order. Thread: the executor's of each rank.
 *
 * This folder: ranks as processes: votes (vote.c), heartbeats and the failure detector, control connections beside MPI
 * (peer_socket.c), the end of a process (shutdown.c), hosts, cores and NUMA nodes; and what a process reports to the
 * outside: log, terminal, service manager. See docs/design/cluster.md. */
#ifndef CLUSTER_WORLD_H
#define CLUSTER_WORLD_H
#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include "transport/tp.h"

struct world {
    /* here: number of ranks on this host; rank_here: index of this rank among them; host: the lowest of them, which
     * identifies the host */
    int rank, size, here, rank_here, host;
    bool one_process;
    atomic_int leader;                              /* the rank that ends the job: 0, unless rank 0 is not responding */
    /* This rank makes what the ranks of its process share. Under MPI every rank is a maker, among threads rank 0. */
    bool maker;
    int (*min)(struct world *w, int x);                /* the smallest x of all ranks */
    void (*broadcast)(struct world *w, int from, void *p, size_t bytes); /* copies rank from's bytes to all ranks */
    /* all: an array with one element of `bytes` bytes for each rank; copies each rank's element to all ranks */
    void (*allgather)(struct world *w, void *all, size_t bytes);
    int (*open)(struct world *w, struct tp **out, struct err *e);    /* opens the transport */
};
/* Initialises MPI; world_mpi_end finalizes it. */
void world_mpi_begin(struct world *w, int *argc, char ***argv);
void world_mpi_end(void);
/* Ends the job with that exit status, after the leader has printed why. The leader never returns; the other ranks wait
 * until mpirun ends them, at most DEADLINE_ENDED. */
void world_mpi_abort(const struct world *w, int code);
/* The MPI library's own name, such as "Open MPI v4.1.4"; also before world_mpi_begin. */
const char *world_mpi_library(void);
/* An array of n ranks for n threads. NULL: e. A transport belongs to the rank that opens it. */
struct world **world_local(int n, struct err *e);
void world_local_free(struct world **w);                  /* after all threads have ended */
#endif
