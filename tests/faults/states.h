/* What may be on disk after a crash, from a record of calls (record.h). The model is that of ALICE (Pillai and others,
 * OSDI 2014), with the least that a file system promises:
 *
 * - What was written to a file, and how long it is, is there for certain once that file was synced after it; until then
 *   each write may be missing, be there by half, or whole, whichever of the others are (a gap reads as zeros).
 * - That a name was made, changed or removed is certain once its folder was synced after it; until then each of these
 *   may be missing, in any combination: they need not arrive in the order in which they were made.
 * - A rename is seen whole or not at all. A file whose name arrived is there, empty if nothing of it did.
 *
 * What is of no checkpoint (no folder, and neither in a folder step-* nor such a name) always arrives: nobody reads it.
 * Of metrics.jsonl the name counts as those do, and what is written to it arrives altogether or no more than is synced.
 * So the states of a moment (a prefix of the record) are all combinations of what is not certain then. Where these are
 * more than `limit`, all with at most two missing, all with at most two there, all prefixes, and random ones up to the
 * limit stand for them. */
#ifndef FAULTS_STATES_H
#define FAULTS_STATES_H
#include <stdbool.h>
#include "record.h"

struct states;
/* Reads a record; NULL, having said why. without: syncs that are left out, to see that they are missed: "" none,
 * "files", "inner" folders (step-*), "outer" folders (the others). Then the last moment is tried first: a hole is
 * where something was committed. */
struct states *states_open(const char *path, const char *without);
/* Numbers in the marks "begin N" and "committed N" so far; or, as the daemon says it, in the names of folders
 * step-N.tmp that were made (the highest), and in events "checkpoint" that were written since metrics.jsonl was removed
 * the last time. metrics: there is such a file. */
struct moment { uint64_t begun, committed; bool metrics; };
struct tree;
/* Calls `each` once for every state that differs from those before it in what is there or in the moment. */
int states_each(struct states *s, unsigned long limit, int (*each)(void *ctx, const struct moment *m,
                const struct tree *t), void *ctx);
/* Makes it in an empty folder. */
void tree_make(const struct tree *t, int dir);
struct states_count { unsigned long calls, moments, states, distinct, bounded; };
struct states_count states_count(const struct states *s);
void states_print(const struct states *s, const struct tree *t);   /* the calls, and which of them arrived */
void states_close(struct states *s);

#endif
