/* For LD_PRELOAD: changes a bit of what a rank sends to another by MPI, after the sender has taken its digest, as
 * memory or a wire would. MPSTAGED_FLIP_RANK is the rank (Open MPI's), MPSTAGED_FLIP its payloads, counted from 1,
 * whose bit changes: "7", or "7-9". MPSTAGED_FLIP_TAG: of messages with that tag of src/transport/tp_mpi.c instead.
 * MPI's own library need not be at hand to build this: its handles go through unread. */
#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>


static int hits(int n)
{
    static int first, last;
    if (!last) {
        const char *rank = getenv("OMPI_COMM_WORLD_RANK") ?: getenv("PMI_RANK"), *want = getenv("MPSTAGED_FLIP_RANK");
        const char *at = getenv("MPSTAGED_FLIP");
        last = -1;
        if (rank && want && at && !strcmp(rank, want)) {
            int k = sscanf(at, "%d-%d", &first, &last);
            if (k == 1) last = first;
            if (k < 1) abort();
        }
    }
    return n >= first && n <= last;
}

int MPI_Isend(const void *p, int count, void *type, int to, int tag, void *comm, void **request);
int MPI_Isend(const void *p, int count, void *type, int to, int tag, void *comm, void **request)
{
    static int n, tag_wanted = 2;
    static int (*real)(const void *, int, void *, int, int, void *, void **);
    if (!real) {
        const char *other = getenv("MPSTAGED_FLIP_TAG");
        *(void **)&real = dlsym(RTLD_NEXT, "MPI_Isend");
        if (other) tag_wanted = atoi(other);
    }
    if (tag == tag_wanted && count > 0 && hits(++n)) {
        ((unsigned char *)p)[count / 2] ^= 1;
        fprintf(stderr, "flip: payload %d of %d bytes to rank %d\n", n, count, to);
    }
    return real(p, count, type, to, tag, comm, request);
}
