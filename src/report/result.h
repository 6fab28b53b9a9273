/* The orders of rank 0 and the answers of all ranks, which the files of this folder read. Any thread. */
#ifndef REPORT_RESULT_H
#define REPORT_RESULT_H
#include "exec/exec.h"
#include "job/job.h"

/* Orders of rank 0: struct order.kind. CHECKPOINT: serial is its number, counted from 1 (ckpt_writer.h). CHECKPOINT:
 * code is why its folder could not be made. SAVE: row of the registry, what is enum weights_what. ABORT: a struct
 * failure follows. */
enum order_kind { ORDER_TRAIN = STEP_TRAIN, ORDER_EVAL = STEP_EVAL, ORDER_CHECKPOINT = STEP_KINDS, ORDER_ROLLBACK,
                  ORDER_SAVE, ORDER_STOP, ORDER_ABORT };
/* Bits of order.what. Of an evaluation's order: nobody needs its outputs; its plan is of job.interim; it is the first
 * of these, which takes the weights. Of a checkpoint: what follows its step and is not done yet. */
enum { ORDER_ONLY_ENTERS = 1, ORDER_INTERIM = 2, ORDER_TAKES_WEIGHTS = 4 };
enum { CHECKPOINT_EVALUATES = 1, CHECKPOINT_GENERATES = 2 };
static inline bool order_interim(const struct order *o) { return o->kind == ORDER_EVAL && o->what & ORDER_INTERIM; }
/* A task that all ranks have reported, followed by one report for each rank. */
struct result {
    struct order o;
    uint64_t epoch;
    bool last;
    uint64_t ns;                                          /* from the order to the last report */
    uint64_t ended;                                       /* when the last report came, by clock_ns */
    char hash[33];                                        /* of the weights, after ORDER_SAVE */
    struct err damaged;                                   /* ORDER_ROLLBACK: why the checkpoint cannot be read */
    struct report rep[];
};
size_t result_bytes(int n_ranks);
struct sums { struct score_sum score[MAX_SCORES]; int64_t samples; uint64_t ns; };
void sums_add(struct sums *s, const struct result *r, int n_ranks);

/* "the loss", or "the gradient of conv1.weight": of report.nonfinite. Returns buf. */
char *nonfinite_text(const struct graph *g, int nonfinite, char *buf, size_t n);

/* Changes the parts so that they add up to ns. Missing time counts as waiting for upstream, since a rank waits after
 * its own end. Excess time was waiting before the order, so it is removed from the waits first. */
void account_fit(uint64_t part[ACC_COUNT], uint64_t ns);
/* Gets the parts of a rank's report, adjusted to add up. Returns the share of ns in which the rank waited for
 * neighbours. */
double account_of(const struct report *r, uint64_t ns, uint64_t part[ACC_COUNT]);
#endif
