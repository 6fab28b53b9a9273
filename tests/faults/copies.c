/* For LD_PRELOAD: memory that gives back other bytes than were written. A bit changes in each copy of more than
 * 16 MiB; of one rank alone if MPSTAGED_FLIP_RANK names it. */
#include <stdlib.h>
#include <string.h>

void *memcpy(void *to, const void *from, size_t n)
{
    memmove(to, from, n);                                  /* with restrict, GCC would make memcpy of it */
    if (n <= (size_t)16 << 20) return to;
    const char *rank = getenv("OMPI_COMM_WORLD_RANK") ?: getenv("PMI_RANK"), *only = getenv("MPSTAGED_FLIP_RANK");
    if (!only || (rank && !strcmp(rank, only))) ((unsigned char *)to)[n / 2] ^= 1;
    return to;
}
