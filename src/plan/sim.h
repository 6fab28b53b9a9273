/* Simulation of a plan from its costs. Pure. */
#ifndef PLAN_SIM_H
#define PLAN_SIM_H
#include "plan/cost.h"
#include "plan/plan.h"

/* Of a rank. ns; waits are the rest of the step. Bytes: fetched: of weights read from files; moved: of optimizer state,
 * read and written. */
struct sim_stage { double part[ACC_COUNT]; uint64_t fetched, moved; };
double sim_busy(const struct sim_stage *s);
struct sim_wire { int chan, mb; double start, end; };
struct sim {
    double wall_ns;
    int n_ranks; struct sim_stage *rank;
    double bubble_of_wall, bubble_of_ideal;
    size_t *peak_bytes;
    double **start, **end;                               /* ns, of each action of each row */
    struct sim_wire *wire; int n_wires;                  /* messages between ranks, as they were matched */
};
/* 70 on deadlock, naming the waiting actions */
struct sim *plan_simulate(const struct plan *p, const struct cost *k, struct err *e);
/* ns that no schedule of this cut can beat (part_bound.c) */
double plan_bound(const struct plan *p, const struct cost *k);
/* ns to move a byte of what lies outside the device of a rank */
double sim_outside_ns(const struct cost *k, const struct placement *pl, int rank);
void sim_free(struct sim *s);

#endif
