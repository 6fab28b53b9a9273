/* What live commands have changed while a run went on: learning rates that were set, and settings that were reloaded.
 * Which of them hold for which step is noted in RUN/rates.jsonl before anybody is told of it. So a run that is lost in
 * the next moment goes on with them, at the steps that were named, however old the checkpoint is from which it goes on.
 * Rank 0's loop; the table alone: any thread. */
#ifndef TRAIN_LR_OVERRIDES_H
#define TRAIN_LR_OVERRIDES_H
#include <jansson.h>
#include <stdbool.h>
#include "base/mem.h"
#include "conf/conf.h"
#include "report/rundir.h"

/* From a step on; any false: what the configuration says. */
struct rate_from { uint64_t step; bool any; double rate; };
/* From a step on: an object of each key that a reload changed, with a list of its value before and its new one, as
 * conf_value gives them, null where it had none; of one that is not live, what conf_decides gives. conf: all that holds
 * from then on; NULL: not made yet. */
struct rate_change { uint64_t step; json_t *changed; const struct conf *conf; };
/* first: before all of v; before: before all of w, NULL: not made. Steps of v and of w ascend. own: what is freed with
 * it. */
struct rates {
    struct rate_from first;
    VEC(struct rate_from) v;
    VEC(struct rate_change) w;
    const struct conf *before;
    VEC(struct conf *) own;
};
/* What a run has that goes on from a checkpoint of `step`, after which first->any and first->rate held: that, and what
 * the file of the run directory has of later steps. 65 names a line that is damaged, 74. */
int lr_overrides_read(struct rates *r, int dir, const char *shown, uint64_t step, const struct rate_from *first,
                      struct err *e);
/* Adds one to the table, in place of those of its step and later ones. */
void lr_overrides_add(struct rates *r, const struct rate_from *f);
/* Notes a rate, a change of settings, or both of one step (f or c may be NULL) in the file, which has them also after a
 * loss of power when this returns 0, and adds them. 73, 74: it has them not. Takes c->changed in any case. */
int lr_overrides_note(struct rates *r, int dir, const char *shown, const struct rate_from *f,
                      const struct rate_change *c, struct err *e);
/* What holds for a step. r: NULL, nothing was set. */
struct rate_from lr_overrides_at(const struct rates *r, uint64_t step);
/* The settings of a step; where none were reloaded, or r is NULL: `now`. */
const struct conf *lr_overrides_conf(const struct rates *r, uint64_t step, const struct conf *now);
/* What reloads say of that key for a step: a JSON text, or null where it had no value. NULL: they do not mention it. */
const json_t *lr_overrides_value(const struct rates *r, const char *key, uint64_t step);
/* Calls f once with each key that reloads mention. */
void lr_overrides_keys(const struct rates *r, void (*f)(void *ctx, const char *key), void *ctx);
void lr_overrides_free(struct rates *r);
#endif
