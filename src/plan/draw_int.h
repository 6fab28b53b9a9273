/* Pictures of a simulated step: shared by draw.c (terminal, JSON) and draw_svg.c only. */
#ifndef PLAN_DRAW_INT_H
#define PLAN_DRAW_INT_H
#include "plan/cost.h"
#include "plan/plan.h"
#include "plan/sim.h"

/* How a kind of action is drawn. sgr: the terminal's colour code. */
struct draw_kind { const char *name, *fill; int sgr; };
const struct draw_kind *draw_kind_of(int op);                        /* NULL: posts, which are drawn as arrows */
/* The unit, seconds to microseconds, that suits a step of wall_ns. */
struct draw_unit { const char *name; double ns; };
struct draw_unit draw_unit_of(double wall_ns);
/* "1f1b, 2 stages, batch 120 in 6 micro-batches of 20" */
void draw_title(const struct plan *p, struct text *out);
/* "step 812.3 ms, waiting 14.3 % of all stages' time, ..." */
void draw_summary(const struct sim *s, const struct cost *k, struct text *out);
#endif
