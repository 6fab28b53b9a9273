/* What the environment says of the launcher that has started this process, and of how many ranks there are. A launcher
 * of another MPI, or srun without PMIx, starts N processes that do not find each other: then the environment says N,
 * and MPI says 1. Variables may also be left over from an outer job, which is so for sure where a batch script or an
 * interactive shell has them. Reads the environment, changes nothing; call it before MPI starts, which sets some. */
#ifndef BASE_LAUNCHED_H
#define BASE_LAUNCHED_H
#include <stdbool.h>
#include "base/err.h"
#include "base/text.h"

/* A variable that says how many ranks there are. launcher: who sets it; way: how such a launcher starts ranks that find
 * each other, or NULL. own: by the launcher of our MPI library. */
struct launched_claim { const char *launcher, *name, *way; int ranks; bool own; };
/* The claim that counts: the first one of several ranks. ranks is 0 if there is none, 1 if there are only such. If the
 * launcher of our own MPI has set one, that is the innermost, and it alone counts. */
struct launched_claim launched_claim(void);
/* Fails (78) if the environment says more ranks than `ranks`, which MPI, or the program, has found. */
int launched_check(const struct launched_claim *c, int ranks, const char *library, struct err *e);
/* Fails (78) if the environment says several ranks: of a program that starts the ranks itself, and is wanted once. */
int launched_once(const char *program, struct err *e);
/* Adds a line on each variable that is taken for an outer job's, because it says another number than `ranks`. */
void launched_outer(int ranks, struct text *out);
/* Whether a launcher of our MPI library, or one that speaks PMIx or PMI, has started this process. */
bool launched_any(void);
/* Whether this process may speak for the job: rank 0 of such a launcher, or no launcher at all. */
bool launched_first(void);
/* How many ranks the launcher has started; 0: unknown, or no launcher. */
int launched_ranks(void);
#endif
