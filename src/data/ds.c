/* The list of formats, and opening by configuration. */
#include <string.h>
#include "data/ds.h"

#define DATASET(x) extern const struct ds_kind ds_##x;
#include "registry.inc"
const struct ds_kind *const ds_list[] = {
#define DATASET(x) &ds_##x,
#include "registry.inc"
    NULL
};

int ds_open(const struct conf *c, enum ds_part part, const struct graph *g, struct ds **out, struct err *e)
{
    *out = NULL;
    if (g->labels < 0) return err_set(e, E_CONF, "network \"%s\" has no labels", g->name);
    const struct tensor *x = &g->tensor[g->input], *y = &g->tensor[g->labels];
    for (int i = 0; ds_list[i]; i++)
        if (!strcmp(ds_list[i]->name, c->data.source)) return ds_list[i]->open(c, part, &x->shape, &y->shape, y->type, out, e);
    return conf_error(c, "data.source", e, "there is no data source \"%s\"", c->data.source);
}
