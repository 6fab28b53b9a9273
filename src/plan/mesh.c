/* What people read of the mesh. */
#include <stdio.h>
#include "plan/mesh.h"

const char *const axis_word[AXES] = {"rank", "replica"};

char *mesh_pipelines(const struct mesh *m, char buf[32])
{
    buf[0] = 0;
    if (m->size[AXIS_DP] > 1) snprintf(buf, 32, "%d %ss of ", m->size[AXIS_DP], axis_word[AXIS_DP]);
    return buf;
}
