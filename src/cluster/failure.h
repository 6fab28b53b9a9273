/* Why a job ends. A failure travels unchanged: between threads, in frames and messages between processes, and to
 * RUN/why.json. It has no pointers and a fixed size. */
#ifndef CLUSTER_FAILURE_H
#define CLUSTER_FAILURE_H
#include <stdbool.h>
#include <stdint.h>
#include "base/err.h"

enum { FAILURE_NOBODY = -1, FAILURE_ACTION = 120, FAILURE_HOST = 72 };
/* rank: that failed, exited or is not responding; FAILURE_NOBODY: it is about no rank. step: that ran there; 0: none.
 * action: what ran there ("stage 1, backward of micro-batch 3 of step 17", "planning"); "": unknown. host: of
 * the rank. */
struct failure {
    int32_t rank;
    uint64_t step;
    char action[FAILURE_ACTION], host[FAILURE_HOST];
    struct err e;
};

/* Whether a restart may end otherwise. It does not after a failure that every start repeats: 64, 65, 66, 73, 77, 78,
 * 79, 80. The units' RestartPreventExitStatus= lists the same (tests/units.sh). */
bool failure_may_pass(int code);
#define FAILURE_FILE "why.json"
/* Writes it as a file: status, rank, host, step, action, text, time, restart. dir: an open folder, which messages call
 * `shown`. Errors are dropped, because the job ends. */
void failure_write(const struct failure *f, int dir, const char *shown);
/* Reads it. dir: the run directory. 66 if there is none, 65 if it is not such a file. */
int failure_read(const char *dir, struct failure *f, struct err *e);
#endif
