/* Settings of Open MPI for the MPI transport, made before MPI begins. */
#include "config.h"
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/statvfs.h>
#include <sys/uio.h>
#include <unistd.h>
#include "base/environ.h"
#include "base/launched.h"
#include "transport/tp.h"

/* Sets a parameter of Open MPI's shared memory transport, unless the user has set it. The transport is called vader
 * until 4.1 and sm later. */
static void shared_set(const char *setting, const char *value)
{
    static const char *const names[] = {"vader", "sm"};
    char name[2][64];
    bool given = false;
    for (int i = 0; i < 2; i++) {
        snprintf(name[i], sizeof name[i], "OMPI_MCA_btl_%s_%s", names[i], setting);
        given = given || getenv(name[i]);
    }
    for (int i = 0; i < 2 && !given; i++) environ_default(name[i], value);
}

/* Does CMA work? Tries it on the process's own memory, where containers forbid it, too. Open MPI 4.1 tries at each copy
 * and reports each failure. */
static bool may_copy(void)
{
    char from = 1, to = 0;
    struct iovec in = {&to, 1}, out = {&from, 1};
    return process_vm_readv(getpid(), &in, 1, &out, 1, 0) == 1;
}

/* A rank's segment must hold eight of the largest fragments. Otherwise Open MPI silently uses TCP, which is four times
 * as slow. Segments are made in /dev/shm, which is small in containers.
 *
 * A job on one host needs no IPv6. If a host has both, Open MPI 5.0.7 complains of interfaces without a pairing. */
void tp_mpi_tune(void)
{
    static const char fragment[] = "1048576", segment[] = "16777216";
    struct statvfs shm;
    int here = launched_here();
    uint64_t ranks = here ? (uint64_t)here : (uint64_t)sysconf(_SC_NPROCESSORS_ONLN), need = 2 * ranks * 16777216;
    if (statvfs("/dev/shm", &shm) == 0 && (uint64_t)shm.f_bavail * shm.f_frsize >= need) {
        shared_set("max_send_size", fragment);
        shared_set("segment_size", segment);
    }
    if (!may_copy()) environ_default("OMPI_MCA_btl_vader_single_copy_mechanism", "none");
    bool one_host = here && here == launched_ranks();
    if (one_host) environ_default("OMPI_MCA_btl_tcp_disable_family", "6");
}
