/* The plan, graded: what the steps of a run really took beside what the simulator said, stage by stage.
 *
 * Rank 0's loop thread. grade_step allocates nothing. */
#ifndef DAEMON_GRADE_H
#define DAEMON_GRADE_H
#include <jansson.h>
#include "daemon/metrics.h"

struct grade;
struct grade *grade_new(const struct job *j, bool one_process);
/* A step of any kind. Of training steps the first one (it warms up) and those of a short last batch do not count. */
void grade_step(struct grade *g, const struct result *r);
bool grade_any(const struct grade *g);                    /* was there a step that counts? */
void grade_text(const struct grade *g, struct text *out); /* the table at the end of a run */
json_t *grade_json(const struct grade *g);                /* the event "account" of metrics.jsonl */
void grade_free(struct grade *g);
#endif
