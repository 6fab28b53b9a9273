/* The list of transports of the program over the doubles: with those of GPUs, whatever configure found. */
#include <string.h>
#include "transport/tp.h"

extern const struct tp_ops tp_mpi, tp_local;
const struct tp_ops *const tp_list[] = {&tp_mpi, &tp_local, &tp_staged, &tp_nccl, NULL};

const struct tp_ops *tp_find(const char *name)
{
    for (int i = 0; tp_list[i]; i++)
        if (strcmp(tp_list[i]->name, name) == 0) return tp_list[i];
    return NULL;
}
