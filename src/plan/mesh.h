/* The mesh of ranks: an axis for each way to divide the work, and the coordinates of each rank on them. How ranks are
 * numbered is known here alone. Pure. */
#ifndef PLAN_MESH_H
#define PLAN_MESH_H
#include <stdbool.h>

/* PP: the ranks of a pipeline, which share its stages. DP: equal pipelines, each with its own blocks of the batch. */
enum axis { AXIS_PP, AXIS_DP, AXES };
extern const char *const axis_word[AXES];                /* what people call a coordinate */
struct mesh { int size[AXES]; };                         /* at least 1 each */
struct mesh_coord { int at[AXES]; };

/* Ranks are numbered pipeline by pipeline. */
static inline int mesh_ranks(const struct mesh *m) { return m->size[AXIS_PP] * m->size[AXIS_DP]; }
static inline int mesh_rank(const struct mesh *m, struct mesh_coord c)
{
    return c.at[AXIS_DP] * m->size[AXIS_PP] + c.at[AXIS_PP];
}
static inline struct mesh_coord mesh_coord_of(const struct mesh *m, int rank)
{
    return (struct mesh_coord){{rank % m->size[AXIS_PP], rank / m->size[AXIS_PP]}};
}
char *mesh_pipelines(const struct mesh *m, char buf[32]);  /* "2 ... of "; of one pipeline "" */

/* Where a value is along an axis: at one coordinate alone, or with at = SHARD_ALL a copy at each. */
enum { SHARD_ALL = -1 };
struct shard { enum axis axis; int at; };
static inline bool shard_has(struct shard s, struct mesh_coord c) { return s.at == SHARD_ALL || s.at == c.at[s.axis]; }
/* The first coordinate that has it. */
static inline int shard_first(struct shard s) { return s.at == SHARD_ALL ? 0 : s.at; }

#endif
