/* "Did you mean ...?": the right name for a wrong guess. Pure; any thread.
 *
 * Near is what differs by few slips of the hand: a byte too many, missing, another one, or two that changed places; at
 * most one slip in three bytes, and at most three. Case does not count, and - is _. What other programs call it is
 * near, too (the table in nearest.c). Otherwise nothing is: no advice is better than nonsense. */
#ifndef BASE_NEAREST_H
#define BASE_NEAREST_H
#include <stdbool.h>
#include <stddef.h>

enum { NEAREST_TELL = 160 };
struct nearest {
    const char *guess; size_t n;
    const char *name; size_t name_n;                     /* the nearest so far; NULL: none is near */
    unsigned long score;
};
/* guess and all names must live as long as this is used */
struct nearest nearest_begin(const char *guess, size_t n);
/* Of names that are as near as each other the earlier wins, and the one with the lower rank before it; of names that
 * differ by one byte of another value, the one with the closer value ("conv9": conv3, not conv1). Returns whether this
 * name is now the nearest. */
bool nearest_try(struct nearest *s, const char *name, size_t n, unsigned rank);
/* " (did you mean BEFORE NAME?)", without the space between them, or "" where none is near. Returns buf. */
const char *nearest_tell(const struct nearest *s, const char *before, char buf[NEAREST_TELL]);
#endif
