/* The files that a run writes outside of its run directory: checked before training, and reached through their open
 * folders until they are written. Rank 0; the thread of set-up. */
#ifndef REPORT_OUTPUT_PATHS_H
#define REPORT_OUTPUT_PATHS_H
#include "base/out.h"
#include "conf/conf.h"
#include "report/rundir.h"
/* path is NULL for a file that was not requested. weights: in the run directory, set when that exists. */
struct outputs { struct out_place trace, gradients, predictions, weights; };
#define OUTPUTS_NONE {.trace = OUT_NOWHERE, .gradients = OUT_NOWHERE, .predictions = OUT_NOWHERE, \
                      .weights = OUT_NOWHERE}
/* Checks run.trace, run.dump_gradients, run.predict and a run.kernel_table that will be measured. 73 if such a file
 * cannot be made, is one of the run's own files, is read by this run, or if two names are the same file. Creates
 * nothing. o NULL: only checks. */
int output_paths_check(struct outputs *o, const struct conf *c, struct err *e);
/* Opens the places in the run directory, which exists now. 73. */
int output_paths_enter(struct outputs *o, const struct conf *c, const struct rundir *d, struct err *e);
void output_paths_free(struct outputs *o);
/* 73 if this configuration reads the file of that name. `what`: the option, for the text. */
int output_paths_spare(const struct conf *c, const char *what, const char *path, struct err *e);
#endif
