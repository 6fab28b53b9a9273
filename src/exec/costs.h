/* From profiled steps to a struct cost: what --profile writes, and the cost of a run's first steps.
 *
 * Users: train, report, bench and tests, between steps. costs_gather and costs_links_measure are collective, and all
 * ranks end with the same numbers. A rank that fails (69, 70, 75) reports it to the others as after a step. Thread: the
 * executor's, except that costs_take and costs_pressure are pure. */
#ifndef EXEC_COSTS_H
#define EXEC_COSTS_H
#include "exec/exec.h"
#include "plan/cost.h"
/* besides kernels, in profiled steps of this rank; calls: number of kernels that ran */
struct spent {
    double optimizer_ns, optimizer_bytes, transfer_ns, transfer_bytes, sum_ns, sum_bytes, read_ns, read_bytes, calls,
           fetch_ns, fetch_bytes;
};
/* Adds a step of that plan; local. */
void spent_add(struct spent *m, const struct exec *s, int plan, const struct report *r);
/* Fills all of k except links; k is new and has its sizes. Size i is what plan first + i measured since exec_profile.
 * If links are measured already, the time for bytes is the measured one, and the rest of the message time (polling
 * after each kernel) counts as the kernels'. Otherwise all message time counts for bytes. Other programs take the core
 * for a while, and hit any layer. So medians give the kernels' relative times, and one factor scales these to the
 * measured total. k->spread is how much the machine was disturbed. */
int costs_gather(struct exec *s, int first, const struct spent *mine, struct cost *k, struct err *e);
/* The same in three parts. costs_mine: what this rank measured, as costs_count(k) numbers. The caller adds them over
 * ranks; costs_take makes the costs of the sums. Neither allocates. costs_pressure: the pressure on a kernel, from the
 * same sums. */
int costs_count(const struct cost *k);
void costs_mine(const struct exec *s, int first, const struct spent *mine, const struct cost *k, double *x);
void costs_take(struct cost *k, const double *x);
struct pressure costs_pressure(const struct cost *k, const double *x, int size, enum phase ph, int group);
/* Measures the slowest link between neighbours, because a plan knows only one. With one rank it is an estimate. Call it
 * before costs_gather; exec_request.links must be set. */
int costs_links_measure(struct exec *s, struct cost *k, struct err *e);
/* rates.c. What a rank achieves while all ranks work. flops: operations a second of a product in the precision of the
 * run (0: unknown). memory: bytes a second that a copy reads and writes. latency_s, link: to the next rank; 0 of the
 * last. */
struct rates { double flops, memory, latency_s, link; };
/* Measures links, then the rest for that time. all: one for each rank, equal on every rank. exec_request.links must be
 * set. Takes 128 MiB of the device meanwhile. Collective. 80: memory gives back other bytes than were written. */
int rates_measure(struct exec *s, double seconds, struct rates *all, struct err *e);
#endif
