#include <assert.h>
#include <stdlib.h>
#include <string.h>
#include <xxhash.h>
#include "base/mem.h"
#include "base/names.h"

enum { ROOM_LEAST = 64 };                                /* rows; a power of two, as all later ones */

/* The row of the name, or the empty one where it belongs. A third of the rows is always empty. */
static struct names_row *row_of(const struct names *t, const char *name)
{
    size_t mask = (size_t)t->room - 1, i = (size_t)XXH3_64bits(name, strlen(name)) & mask;
    while (t->row[i].name && strcmp(t->row[i].name, name)) i = (i + 1) & mask;
    return &t->row[i];
}

int names_find(const struct names *t, const char *name)
{
    const struct names_row *r = t->room ? row_of(t, name) : NULL;
    return r && r->name ? r->number : -1;
}

static void grow(struct names *t)
{
    struct names old = *t;
    t->room = old.room ? 2 * old.room : ROOM_LEAST;
    t->row = mem_alloc(size_mul((size_t)t->room, sizeof *t->row));
    for (int i = 0; i < old.room; i++)
        if (old.row[i].name) *row_of(t, old.row[i].name) = old.row[i];
    free(old.row);
}

void names_add(struct names *t, const char *name, int number)
{
    assert(number >= 0);
    if (t->n >= t->room / 3 * 2) grow(t);
    struct names_row *r = row_of(t, name);
    assert(!r->name);
    *r = (struct names_row){name, number};
    t->n++;
}

void names_free(struct names *t)
{
    free(t->row);
    *t = (struct names){0};
}
