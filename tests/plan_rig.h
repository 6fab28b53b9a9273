/* Test rig: plans of small networks, without a device. */
#ifndef TESTS_PLAN_RIG_H
#define TESTS_PLAN_RIG_H
#include "devices.h"
#include "plan/plan.h"

struct graph *rig_graph(const char *text);
struct graph *rig_chain(int n);                          /* n linear layers in a row and a loss */

/* p NULL: e has the reason. cut: stages + 1 positions, NULL: even. Takes the graph. */
struct made { struct graph *g; struct selection *s; struct placement *pl; struct plan *p; struct err e; };
struct made made_cut(struct placement_request q, struct graph *g, const struct device *d, struct plan_request r);
struct made made_make(struct graph *g, const struct device *d, int stages, const int *cut, struct plan_request r);
/* The same with several stages per rank: rank_of: for each stage. */
struct made made_on(struct graph *g, const struct device *d, int stages, int ranks, const int *rank_of,
                    struct plan_request r);
void made_free(struct made *m);
/* The plans of n replicas, each already checked alone; where.sharing describes how they share the work. */
enum { SIDES = 8 };
struct control { struct made m[SIDES]; struct plan *p[SIDES]; int n; };
void side_make(struct control *x, struct placement_request where, const char *graph, int n, struct plan_request q);
void control_free(struct control *x);
/* for a training step */
struct plan_request rig_request(const char *schedule, int batch, int split, enum backward_mode backward);

#endif
