/* Ranks as processes under MPI, which only this file and the transport use. */
#include <mpi.h>
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>
#include "base/deadline.h"
#include "base/proc.h"
#include "cluster/world.h"

/* Debian's MPICH does not yield in a blocking call: among four ranks on one core each took 14 to 30 ms. */
static void request_wait(MPI_Request *q)
{
    int done = 0;
    for (unsigned tries = 0; !done; tries++) {
        MPI_Test(q, &done, MPI_STATUS_IGNORE);
        if (!done && tries > 200) sched_yield();
    }
}

static int allreduce_min(struct world *w, int x)
{
    int least;
    MPI_Request q;
    (void)w;
    MPI_Iallreduce(&x, &least, 1, MPI_INT, MPI_MIN, MPI_COMM_WORLD, &q);
    request_wait(&q);
    return least;
}

static void broadcast(struct world *w, int from, void *p, size_t bytes)
{
    MPI_Request q;
    (void)w;
    MPI_Ibcast(p, (int)bytes, MPI_BYTE, from, MPI_COMM_WORLD, &q);
    request_wait(&q);
}

static void allgather(struct world *w, void *all, size_t bytes)
{
    MPI_Request q;
    (void)w;
    MPI_Iallgather(MPI_IN_PLACE, 0, MPI_DATATYPE_NULL, all, (int)bytes, MPI_BYTE, MPI_COMM_WORLD, &q);
    request_wait(&q);
}

static int open_mpi(struct world *w, struct tp **out, struct err *e)
{
    (void)w;
    return tp_mpi_open(MPI_Comm_c2f(MPI_COMM_WORLD), out, e);
}

/* Calls MPI_Abort, because mpirun takes one or two seconds longer to end a job whose ranks exit with a status. The
 * other ranks wait until mpirun ends them, so that the job's status is rank 0's. They do not handle SIGTERM, which
 * would delay the end. */
void world_mpi_abort(const struct world *w, int code)
{
    if (w->rank == w->leader) {
        proc_stderr_wait();
        MPI_Abort(MPI_COMM_WORLD, code);
    }
    signal(SIGTERM, SIG_DFL);
    sleep(DEADLINE_ENDED / 1000);
}

static void ranks_here(struct world *w)
{
    MPI_Comm here;
    MPI_Comm_split_type(MPI_COMM_WORLD, MPI_COMM_TYPE_SHARED, 0, MPI_INFO_NULL, &here);
    MPI_Comm_size(here, &w->here);
    MPI_Comm_rank(here, &w->rank_here);
    w->host = w->rank;
    MPI_Bcast(&w->host, 1, MPI_INT, 0, here);
    MPI_Comm_free(&here);
}

void world_mpi_begin(struct world *w, int *argc, char ***argv)
{
    int provided;
    *w =
        (struct world){.maker = true, .min = allreduce_min, .broadcast = broadcast, .allgather = allgather,
                       .open = open_mpi};
#ifdef OPEN_MPI
    tp_mpi_tune();                                       /* before MPI reads its settings */
#endif
    MPI_Init_thread(argc, argv, MPI_THREAD_SERIALIZED, &provided);
    MPI_Comm_rank(MPI_COMM_WORLD, &w->rank);
    MPI_Comm_size(MPI_COMM_WORLD, &w->size);
    ranks_here(w);
}

void world_mpi_end(void) { MPI_Finalize(); }

const char *world_mpi_library(void)
{
    static char text[MPI_MAX_LIBRARY_VERSION_STRING], name[80];
    char label[40], version[40];
    int n;
    MPI_Get_library_version(text, &n);
    text[strcspn(text, ",\n")] = 0;
    bool mpich = sscanf(text, "%39s Version: %39s", label, version) == 2;
    snprintf(name, sizeof name, mpich ? "%s%s%s" : "%s", mpich ? label : text, " ", version);
    return name;
}
