/* A hash table from names to numbers, with lookup in constant time. Not thread-safe.
 *
 * A zeroed table is empty. The caller keeps the names alive. The hash has no key, so the author of the names can make
 * them collide: limit how many names of hostile text are added. */
#ifndef BASE_NAME_TABLE_H
#define BASE_NAME_TABLE_H

struct name_table { struct name_table_row { const char *name; int number; } *row; int n, space; };

/* The number of the name; -1: not found. */
int name_table_find(const struct name_table *t, const char *name);
/* Adds a name that is not in the table; number >= 0. */
void name_table_add(struct name_table *t, const char *name, int number);
void name_table_free(struct name_table *t);

#endif
