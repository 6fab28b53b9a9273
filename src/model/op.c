/* The list of operators, in a separate file because a test replaces it by a longer one. */
#include <string.h>
#include "model/op.h"

#define OP(x) extern const struct op_kind op_##x;
#include "registry.inc"
const struct op_kind *const op_list[] = {
#define OP(x) &op_##x,
#include "registry.inc"
    NULL
};

const struct op_kind *op_find(const char *name)
{
    for (int i = 0; op_list[i]; i++) if (!strcmp(op_list[i]->name, name)) return op_list[i];
    return NULL;
}
