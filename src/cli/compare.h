/* --compare: where two runs part. Reads what they have written, and nothing else. Main thread. */
#ifndef CLI_COMPARE_H
#define CLI_COMPARE_H
#include <stdbool.h>
#include "base/err.h"
#include "base/text.h"

/* Compares two run directories to the bit, whatever their layouts: the steps and evaluations of metrics.jsonl, the
 * checkpoints that both have, and the final weights where both ended with the same step. Appends the answer to out, as
 * lines or one JSON object. *code: 0 where they are equal, E_DIFFERS. -1: 65 a file is damaged, 66 one is missing or
 * nothing can be compared, 74, 77. */
int compare_runs(const char *const dir[2], bool json, struct text *out, int *code, struct err *e);
#endif
