/* Shared by the suites of the executor: networks to train, and the check that two ways of training give the same
 * bits. */
#ifndef TESTS_EXEC_RIG_H
#define TESTS_EXEC_RIG_H
#include "rig.h"
#include "sure.h"

#define STAGES_STEP (IS_SANITIZED ? 2 : cases_of(3, 1, 1))
/* narrow: the graph for the reference kernels, which are slow; NULL: the same. optimizer: NULL: sgd with momentum. */
struct model_case { const char *name, *input, *graph, *labels, *loss, *more, *narrow, *optimizer; };
enum { CASE_DROPOUT, CASE_RESNET, CASE_SKIP, N_CASES = 13 };
extern const struct model_case cases[N_CASES];
/* Under a sanitizer and with RIG_CASES=few a network tries every third of a loop's ways, and the next network the ones
 * after these: together all. */
#define WAYS_STEP (IS_SANITIZED ? 3 : cases_of(3, 1, 1))
#define WAYS_FIRST(m) ((int)((m) - cases) % WAYS_STEP)
/* Loop tests over all networks on both backends: _i to N_BOTH. */
enum { N_BOTH = 2 * N_CASES };
#define ON_BOTH(i) &cases[(i) / 2], (i) % 2 ? "onednn" : "reference"

/* Synthetic data. The text is in one buffer, which the next call overwrites. */
char *case_conf(const struct model_case *m, int seed, int batch, int split);
/* Three steps of 1f1b on one stage: seven samples in micro-batches of 3, 3 and 1. Batch norm needs more than one value
 * per channel; images provide them. */
struct rig case_rig(const struct model_case *m, const char *backend);
void case_run(const struct rig *q, struct rig_result *r);
/* Runs q, and requires the weights, losses, scores and gradient norm of `one`. */
void case_same(const struct rig *q, const struct rig_result *one, struct rig_result *r);
#endif
