/* Numbers by name: a table that finds a name in one look, however many there are. Not thread-safe.
 *
 * Zeroed it is empty. Names outlive it. The hash has no key, so whoever writes the names can make them collide: what
 * hostile text may hold of them has a limit of its own. */
#ifndef BASE_NAME_TABLE_H
#define BASE_NAME_TABLE_H

struct name_table { struct name_table_row { const char *name; int number; } *row; int n, room; };

/* The number of the name; -1: it is not there. */
int name_table_find(const struct name_table *t, const char *name);
/* A name that is not there yet; number >= 0. */
void name_table_add(struct name_table *t, const char *name, int number);
void name_table_free(struct name_table *t);

#endif
