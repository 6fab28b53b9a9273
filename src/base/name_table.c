#include <assert.h>
#include <stdlib.h>
#include <string.h>
#include <xxhash.h>
#include "base/mem.h"
#include "base/name_table.h"

enum { SPACE_LEAST = 64 };                                /* rows; a power of two, like all later sizes */

/* The row of the name, or the empty row for it. A third of the rows is always empty. */
static struct name_table_row *row_of(const struct name_table *t, const char *name)
{
    size_t mask = (size_t)t->space - 1, i = (size_t)XXH3_64bits(name, strlen(name)) & mask;
    while (t->row[i].name && strcmp(t->row[i].name, name)) i = (i + 1) & mask;
    return &t->row[i];
}

int name_table_find(const struct name_table *t, const char *name)
{
    const struct name_table_row *r = t->space ? row_of(t, name) : NULL;
    return r && r->name ? r->number : -1;
}

static void grow(struct name_table *t)
{
    struct name_table old = *t;
    t->space = old.space ? 2 * old.space : SPACE_LEAST;
    t->row = mem_alloc(size_mul((size_t)t->space, sizeof *t->row));
    for (int i = 0; i < old.space; i++)
        if (old.row[i].name) *row_of(t, old.row[i].name) = old.row[i];
    free(old.row);
}

void name_table_add(struct name_table *t, const char *name, int number)
{
    assert(number >= 0);
    if (t->n >= t->space / 3 * 2) grow(t);
    struct name_table_row *r = row_of(t, name);
    assert(!r->name);
    *r = (struct name_table_row){name, number};
    t->n++;
}

void name_table_free(struct name_table *t)
{
    free(t->row);
    *t = (struct name_table){0};
}
