/* Ranks are numbered pipeline by pipeline: the first axis changes fastest. */
#include "plan/mesh.h"

int mesh_ranks(const struct mesh *m)
{
    int n = 1;
    for (int a = 0; a < AXES; a++) n *= m->size[a];
    return n;
}

int mesh_rank(const struct mesh *m, struct mesh_coord c)
{
    int rank = 0;
    for (int a = AXES - 1; a >= 0; a--) rank = rank * m->size[a] + c.at[a];
    return rank;
}

struct mesh_coord mesh_coord_of(const struct mesh *m, int rank)
{
    struct mesh_coord c;
    for (int a = 0; a < AXES; rank /= m->size[a++]) c.at[a] = rank % m->size[a];
    return c;
}
