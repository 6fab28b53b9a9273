/* The table of backends. */
#include <string.h>
#include "backend/be.h"

#define BACKEND(x) extern const struct be_ops be_##x;
#include "registry.inc"

#define BACKEND(x) &be_##x,
const struct be_ops *const be_list[] = {
#include "registry.inc"
    NULL
};

const struct be_ops *be_find(const char *name)
{
    for (const struct be_ops *const *b = be_list; *b; b++) if (strcmp((*b)->name, name) == 0) return *b;
    return NULL;
}
