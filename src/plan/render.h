/* Plans for people and programs: tables, pictures, JSON. Pure; all text is appended to `out`. */
#ifndef PLAN_RENDER_H
#define PLAN_RENDER_H
#include "plan/cost.h"
#include "plan/device_map.h"
#include "plan/plan.h"

/* --draw-schedule, --print-schedule: the simulated step as a picture, in lines of `columns` columns. With colours the
 * whole step is one line for each rank; without colours it is as wide as the texts need, and folded. */
void plan_draw_text(const struct plan *p, const struct cost *k, int columns, bool colour, struct text *out);
void plan_draw_svg(const struct plan *p, const struct cost *k, struct text *out);
char *plan_draw_json(const struct plan *p, const struct cost *k);    /* free() it */

/* "batch 120 in 30 micro-batches of 4" */
void plan_batch_text(const struct plan *p, struct text *out);
/* --plan: the stage table for people, and as JSON. plan_slow_text: a line for each group whose kernel is slow, or
 * nothing; --plan names all fallback kernels. */
void plan_slow_text(const struct selection *s, struct text *out);
void plan_table(const struct plan *p, const struct cost *k, const struct device_map *map, int columns,
                struct text *out);
char *plan_json(const struct plan *p, const struct cost *k, const struct device_map *map);

#endif
