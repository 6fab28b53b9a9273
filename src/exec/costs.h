/* From profiled steps to a struct cost: what --profile writes, and what the first steps of a run cost.
 *
 * Who may use it: daemon, bench and tests, between steps. costs_gather and costs_links_measure are collective, and all
 * ranks end with the same numbers; a rank that fails (69, 70, 75) tells the others as after a step. Thread: the
 * executor's, but costs_take and costs_pressure are pure. */
#ifndef EXEC_COSTS_H
#define EXEC_COSTS_H
#include "exec/exec.h"
#include "plan/cost.h"
/* beside kernels, in profiled steps of this rank; calls: how many kernels ran */
struct spent {
    double optimizer_ns, optimizer_bytes, transfer_ns, transfer_bytes, sum_ns, sum_bytes, read_ns, read_bytes, calls;
};
/* Adds a step of that plan; local. */
void spent_add(struct spent *m, const struct exec *s, int plan, const struct report *r);
/* Fills all of k, which is new and has its sizes, but links; size i is what plan first + i measured since
 * exec_profile. Where links are measured already, a rank's thread gives to bytes what was measured then, and what it
 * gave to messages beside that, as looking after them behind each kernel, is the kernels'; otherwise all is the bytes'.
 * Other programs take the core for a while, and hit any layer. So medians say what each kernel takes beside the others,
 * and one factor, by which all are multiplied, makes them add up to what the kernels took together. k->spread tells how
 * much the machine was disturbed. */
int costs_gather(struct exec *s, int first, const struct spent *mine, struct cost *k, struct err *e);
/* The same in three parts: what this rank measured, as costs_count(k) numbers; added up over ranks by whoever wants
 * them, they make the costs. Neither allocates. costs_pressure: what else they say about a kernel. */
int costs_count(const struct cost *k);
void costs_mine(const struct exec *s, int first, const struct spent *mine, const struct cost *k, double *x);
void costs_take(struct cost *k, const double *x);
struct pressure costs_pressure(const struct cost *k, const double *x, int size, enum phase ph, int group);
/* The slowest of the links between neighbours: a plan knows one. An estimate where there is one rank. Before
 * costs_gather; exec_request.links was set. */
int costs_links_measure(struct exec *s, struct cost *k, struct err *e);
#endif
