/* "Did you mean ...?": finds the right name for a wrong guess. Pure; any thread.
 *
 * A name is near if it differs by few typing errors: an extra, missing or wrong byte, or two swapped ones. At most one
 * error per three bytes, and at most three. Case is ignored, and - equals _. Names of other programs (the table in
 * suggest.c) are near, too. Nothing else is: no advice is better than nonsense. */
#ifndef BASE_SUGGEST_H
#define BASE_SUGGEST_H
#include <stdbool.h>
#include <stddef.h>

enum { SUGGEST_TEXT = 160 };
struct suggest {
    const char *guess; size_t n;
    const char *name; size_t name_n;                     /* the nearest name so far; NULL: none */
    unsigned long score;
    size_t synonyms;                                     /* the first row of the table for this guess */
};
/* The caller keeps guess and all names alive while the struct is used. */
struct suggest suggest_begin(const char *guess, size_t n);
/* Offers a name. Among equally near names the lowest rank wins, then the earliest. If one byte differs, the closest
 * byte value wins ("conv9": conv3, not conv1). Returns whether this name is now the nearest. */
bool suggest_try(struct suggest *s, const char *name, size_t n, unsigned rank);
/* " (did you mean BEFORE NAME?)", without the space between the two, or "" if no name is near. Returns buf. */
const char *suggest_text(const struct suggest *s, const char *before, char buf[SUGGEST_TEXT]);
#endif
