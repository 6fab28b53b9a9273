/* Ranks are processes: MPI. Only this file and the transport see it. */
#include <mpi.h>
#include "daemon/world.h"

static int lowest(struct world *w, int x)
{
    int least;
    (void)w;
    MPI_Allreduce(&x, &least, 1, MPI_INT, MPI_MIN, MPI_COMM_WORLD);
    return least;
}

static void share(struct world *w, int from, void *p, size_t bytes)
{
    (void)w;
    MPI_Bcast(p, (int)bytes, MPI_BYTE, from, MPI_COMM_WORLD);
}

static int open_mpi(struct world *w, struct tp **out, struct err *e)
{
    (void)w;
    return tp_mpi_open(MPI_Comm_c2f(MPI_COMM_WORLD), out, e);
}

static int ranks_here(void)
{
    MPI_Comm here;
    int n;
    MPI_Comm_split_type(MPI_COMM_WORLD, MPI_COMM_TYPE_SHARED, 0, MPI_INFO_NULL, &here);
    MPI_Comm_size(here, &n);
    MPI_Comm_free(&here);
    return n;
}

void world_mpi_begin(struct world *w, int *argc, char ***argv)
{
    int provided;
    *w = (struct world){.lowest = lowest, .share = share, .open = open_mpi};
    MPI_Init_thread(argc, argv, MPI_THREAD_SERIALIZED, &provided);
    MPI_Comm_rank(MPI_COMM_WORLD, &w->rank);
    MPI_Comm_size(MPI_COMM_WORLD, &w->size);
    w->here = ranks_here();
}

void world_mpi_end(void) { MPI_Finalize(); }
