/* The table of transports. */
#include <string.h>
#include "transport/tp.h"

#define TRANSPORT(x) extern const struct tp_ops tp_##x;
#include "registry.inc"

const struct tp_ops *const tp_list[] = {
#define TRANSPORT(x) &tp_##x,
#include "registry.inc"
    NULL
};

const struct tp_ops *tp_find(const char *name)
{
    for (const struct tp_ops *const *t = tp_list; *t; t++) if (strcmp((*t)->name, name) == 0) return *t;
    return NULL;
}
