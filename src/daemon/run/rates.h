/* Learning rates that were set while a run went on: which one holds for which step. They are noted in RUN/rates.jsonl
 * before anybody is told that they are set, so a run that is lost in the next moment goes on with them, at the steps
 * that it named, however old the checkpoint is from which it goes on. Rank 0's loop; the table alone: any thread. */
#ifndef DAEMON_RUN_RATES_H
#define DAEMON_RUN_RATES_H
#include <stdbool.h>
#include "base/err.h"
#include "base/mem.h"

#define RATES_FILE "rates.jsonl"
/* From a step on; any false: what the configuration says. */
struct rate_from { uint64_t step; bool any; double rate; };
/* first: before all of v, whose steps ascend */
struct rates { struct rate_from first; VEC(struct rate_from) v; };
/* What a run has that goes on from a checkpoint of `step`, after which first->any and first->rate held: that, and what
 * the file of the run directory has of later steps. 65 names a line that is damaged, 74. */
int rates_read(struct rates *r, int dir, const char *shown, uint64_t step, const struct rate_from *first,
               struct err *e);
/* Adds one to the table, in place of those of its step and later ones. */
void rates_add(struct rates *r, const struct rate_from *f);
/* Notes one in the file, which has it also after a loss of power when this returns 0, and adds it. 73, 74: it has it
 * not. */
int rates_note(struct rates *r, int dir, const char *shown, const struct rate_from *f, struct err *e);
/* What holds for a step. r: NULL, nothing was set. */
struct rate_from rates_at(const struct rates *r, uint64_t step);
void rates_free(struct rates *r);
#endif
