/* Numbers by name: a table that finds a name in one look, however many there are. Not thread-safe.
 *
 * Zeroed it is empty. Names outlive it. The hash has no key, so whoever writes the names can make them collide: what
 * hostile text may hold of them has a limit of its own. */
#ifndef BASE_NAMES_H
#define BASE_NAMES_H

struct names { struct names_row { const char *name; int number; } *row; int n, room; };

/* The number of the name; -1: it is not there. */
int names_find(const struct names *t, const char *name);
/* A name that is not there yet; number >= 0. */
void names_add(struct names *t, const char *name, int number);
void names_free(struct names *t);

#endif
