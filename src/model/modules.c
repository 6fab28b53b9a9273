/* A tree of modules, kept as a list in which each module is followed by its own. */
#include <stdlib.h>
#include <string.h>
#include "model/modules.h"

struct modules *modules_new(const char *layer)
{
    struct modules *m = mem_alloc(sizeof *m);
    m->mem = arena_new();
    modules_add(m, "", layer, 0);
    return m;
}

static bool is_below(const char *name, const char *above)
{
    size_t n = strlen(above);
    return !n || (!strncmp(name, above, n) && name[n] == '.');
}

int modules_find(const struct modules *m, const char *name)
{
    for (int i = m->n - 1; i >= 0; i--) if (!strcmp(m->module[i].name, name)) return i;
    return -1;
}

static int put_behind(struct modules *m, int at, const char *name)
{
    vec_grow_((void **)&m->module, m->n, &m->cap, sizeof *m->module);
    memmove(&m->module[at + 1], &m->module[at], (size_t)(m->n++ - at) * sizeof *m->module);
    m->module[at] = (struct module){.name = arena_strdup(m->mem, name), .shares = -1};
    for (int i = 0; i < m->n; i++) m->module[i].shares += m->module[i].shares >= at;
    return at;
}

/* The module of that name, added with those above it. */
static int place_of(struct modules *m, const char *name)
{
    int i = modules_find(m, name), above = 0;
    if (i >= 0 || !m->n) return i >= 0 ? i : put_behind(m, 0, name);
    const char *dot = strrchr(name, '.');
    if (dot) {
        char *parent = arena_strndup(m->mem, name, (size_t)(dot - name));
        above = place_of(m, parent);
    }
    for (i = above + 1; i < m->n && is_below(m->module[i].name, m->module[above].name); i++) ;
    return put_behind(m, i, name);
}

int modules_add(struct modules *m, const char *name, const char *layer, uint64_t bytes)
{
    int i = place_of(m, name);
    if (layer) m->module[i].layer = arena_strdup(m->mem, layer);
    m->module[i].own += bytes;
    m->module[i].holds |= bytes > 0;
    return i;
}

void modules_finish(struct modules *m)
{
    for (int i = 0; i < m->n; i++) {
        struct module *x = &m->module[i];
        x->bytes = x->own;
        for (x->end = i + 1; x->end < m->n && is_below(m->module[x->end].name, x->name); x->end++)
            x->bytes += m->module[x->end].own;
    }
}

void modules_free(struct modules *m)
{
    if (!m) return;
    arena_free(m->mem);
    free(m->module);
    free(m);
}
