/* "Did you mean ...?": the right name for a wrong guess. Pure; any thread.
 *
 * A name is near if it differs by few slips of the hand: a byte too many, missing, or another one, or two that changed
 * places; at most one slip in three bytes, and at most three. Case does not count, and - is _. Names of other programs
 * (the table in suggest.c) are near, too. Nothing else is: no advice is better than nonsense. */
#ifndef BASE_SUGGEST_H
#define BASE_SUGGEST_H
#include <stdbool.h>
#include <stddef.h>

enum { SUGGEST_TELL = 160 };
struct suggest {
    const char *guess; size_t n;
    const char *name; size_t name_n;                     /* the nearest so far; NULL: none */
    unsigned long score;
    size_t synonyms;                                     /* where those of the guess begin in the table */
};
/* guess and all names must outlive the struct */
struct suggest suggest_begin(const char *guess, size_t n);
/* Offers a name. Among equally near ones the one with the lowest rank wins, then the earliest; where one byte differs,
 * the one with the closer value ("conv9": conv3, not conv1). Returns whether this name is now the nearest. */
bool suggest_try(struct suggest *s, const char *name, size_t n, unsigned rank);
/* " (did you mean BEFORE NAME?)", without the space between them, or "" where none is near. Returns buf. */
const char *suggest_tell(const struct suggest *s, const char *before, char buf[SUGGEST_TELL]);
#endif
