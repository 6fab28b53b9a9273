/* Environment variables of the launcher that started this process, and the number of ranks they claim. A launcher of
 * another MPI, or srun without PMIx, starts N processes that do not find each other: the environment claims N, but MPI
 * reports 1. Variables may also be left over from an outer job; in a batch script or an interactive shell they always
 * are. This code only reads the environment. Call it before MPI starts, which sets some variables. */
#ifndef BASE_LAUNCHED_H
#define BASE_LAUNCHED_H
#include <stdbool.h>
#include "base/err.h"
#include "base/text.h"

/* A variable that states the number of ranks. launcher: the program that sets it. way: how that launcher starts ranks
 * that find each other, or NULL. own: it is the launcher of our MPI library. */
struct launched_claim { const char *launcher, *name, *way; int ranks; bool own; };
/* The claim that counts: the first one of several ranks. ranks is 0 without any claim, 1 if all claims are of one rank.
 * A claim by our own MPI's launcher is the innermost, so it alone counts. */
struct launched_claim launched_claim(void);
/* Fails (78) if the environment claims more than `ranks`, the number that MPI or the program found. */
int launched_check(const struct launched_claim *c, int ranks, const char *library, struct err *e);
/* Fails (78) if the environment claims several ranks. For a program that must run once, because it starts the ranks
 * itself. */
int launched_once(const char *program, struct err *e);
/* Appends a line for each variable with another number than `ranks`, which is assumed to belong to an outer job. */
void launched_outer(int ranks, struct text *out);
/* Whether a launcher of our MPI library, or one that uses PMIx or PMI, started this process. */
bool launched_any(void);
/* Whether this process may print for the job: it is rank 0 of such a launcher, or there is no launcher. */
bool launched_first(void);
/* How many ranks the launcher started, and how many on this host; 0: unknown, or no launcher. */
int launched_ranks(void);
int launched_here(void);
/* The rank in "NAME=VALUE", an entry of a process's environment; -1: it is another variable. */
int launched_rank_in(const char *entry);
/* Gives the ids of jobs that the environment names, each with its label, such as "slurm_job_id". */
void launched_ids(void (*take)(void *ctx, const char *label, const char *id), void *ctx);
/* Seconds until the job's end that Slurm states in SLURM_JOB_END_TIME (seconds since 1970), by the wall clock of now.
 * -1: it states none, or one that is over. */
int64_t launched_seconds_left(void);
#endif
