/* Changes that live commands made during a run: learning rates that were set, and settings that were reloaded.
 * RUN/rates.jsonl records the steps at which they apply before the change is confirmed. So a run that is lost right
 * afterwards resumes with them, at the same steps, from however old a checkpoint. Thread: rank 0's loop; the table
 * alone: any. */
#ifndef TRAIN_LIVE_SETTINGS_H
#define TRAIN_LIVE_SETTINGS_H
#include <jansson.h>
#include <stdbool.h>
#include "base/mem.h"
#include "conf/conf.h"
#include "report/rundir.h"

/* Applies from that step on; any false: the configuration's rate. */
struct rate_from { uint64_t step; bool any; double rate; };
/* Applies from that step on. changed: an object with each key that a reload changed, and a list of its old and its new
 * value, as conf_value gives them; null: it had none. A key that is not live has the values that conf_decides gives.
 * conf: all settings from then on; NULL: not made yet. */
struct rate_change { uint64_t step; json_t *changed; const struct conf *conf; };
/* first: before all of v; before: before all of w, NULL: not made. Steps of v and of w ascend. own: freed with the
 * table. */
struct live_settings {
    struct rate_from first;
    VEC(struct rate_from) v;
    VEC(struct rate_change) w;
    const struct conf *before;
    VEC(struct conf *) own;
};
/* Makes the table of a run that continues from a checkpoint of `step`, after which *first applied. Adds the later steps
 * from the file in the run directory. 65 names a line that is damaged, 74. */
int live_settings_read(struct live_settings *r, int dir, const char *shown, uint64_t step,
                       const struct rate_from *first, struct err *e);
/* Adds one to the table. It replaces the entries of its step and of later steps. */
void live_settings_add(struct live_settings *r, const struct rate_from *f);
/* Records a rate, a change of settings, or both of one step (f or c may be NULL) in the file, and adds them to the
 * table. 0: the record survives a loss of power. 73, 74: it was not recorded. Takes c->changed in any case. */
int live_settings_note(struct live_settings *r, int dir, const char *shown, const struct rate_from *f,
                       const struct rate_change *c, struct err *e);
/* The rate that applies to a step. r: NULL: none was set. */
struct rate_from live_settings_at(const struct live_settings *r, uint64_t step);
/* The settings of a step; `now` if nothing was reloaded or r is NULL. */
const struct conf *live_settings_conf(const struct live_settings *r, uint64_t step, const struct conf *now);
/* The value of that key at a step after reloads: a JSON string, or null if it had no value. NULL: no reload changed
 * it. */
const json_t *live_settings_value(const struct live_settings *r, const char *key, uint64_t step);
/* Calls f once with each key that reloads changed. */
void live_settings_keys(const struct live_settings *r, void (*f)(void *ctx, const char *key), void *ctx);
void live_settings_free(struct live_settings *r);
#endif
