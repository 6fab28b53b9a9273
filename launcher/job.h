/* One start of a command, of mpstage-run and mpstage-experiment: in a process group of its own, so that a terminal's
 * Ctrl-C reaches the program alone; asked, told and forced to end; and nothing is left of it. The program that starts
 * it is a subreaper (prctl(2)) and blocks the signals that it takes. One thread, one job at a time. */
#ifndef LAUNCHER_JOB_H
#define LAUNCHER_JOB_H
#include <stdbool.h>
#include <stdint.h>
#include <unistd.h>
#include "base/deadline.h"
#include "base/err.h"
#include "base/mem.h"
#include "base/proc.h"

enum {
    JOB_TERM_S = 5,                                       /* between SIGTERM and SIGKILL */
    JOB_GONE_S = 10,                                      /* by when killed processes have to be gone */
    JOB_NOT_STARTED = 126, JOB_NOT_FOUND = 127            /* exit codes, as of env(1) */
};

DEADLINE_BEFORE(DEADLINE_PROMISED_STOP + DEADLINE_LAUNCHER, JOB_TERM_S * 1000,
                "a run that gets SIGTERM has ended before it is killed");

/* ---- job_processes.c: all descendants of this process, in any order ---------------------------------------------- */

struct tree { VEC(struct proc) all; };
void tree_scan(struct tree *t);
/* Whether process pid is one that starts a job's processes and does nothing itself, going by its name, and how many of
 * its descendants live. */
bool tree_launcher(pid_t pid, int *alive);
void tree_free(struct tree *t);

/* ---- job_cleanup.c: what a killed Open MPI leaves on the disk and in shared memory ------------------------------- */

struct left {
    VEC(pid_t) pids;                                      /* processes of the command */
    VEC(char *) segments;                                 /* shared memory that they had */
};
void left_note(struct left *l, pid_t pid);                /* a process that is alive, or was */
void left_note_all(struct left *l);                       /* all descendants */
/* Removes what dead processes that were noted have left, and forgets all that was noted. */
void left_clear(struct left *l);
/* Removes a folder in another with all that is in it; links are not followed. */
void folder_remove(int above, const char *name);

/* ---- job.c ------------------------------------------------------------------------------------------------------- */

enum job_stage { JOB_RUNS, JOB_ASKED, JOB_TERM, JOB_KILL };
struct supervised_job {
    pid_t pid;                                            /* 0: it does not run */
    int code;                                             /* how it ended: an exit status, or 128 and a signal */
    uint64_t began;
    enum job_stage stage;                                 /* how far ending it has come */
    uint64_t stage_ends;                                  /* when the next begins (clock_ns); 0: never */
    struct left left;
    /* for mpstage-run alone */
    bool hung;
    bool had;                                             /* it is a launcher that had processes */
    uint64_t look, empty;                                 /* when they are looked at next; since when it has none */
    int said;                                             /* it did not end by itself: the status that it had told of */
};
/* Descriptors for the command's output and errors, and of the folder that it works in, or -1. */
struct job_files { int out, error, folder; };
/* files: NULL: those of this process. -1: *e, 126 or 127 if the program cannot be executed. */
int job_start(struct supervised_job *j, char **argv, const struct job_files *files, struct err *e);
/* Begins the next stage of ending it: SIGUSR1 with `patience` seconds for it, SIGTERM, SIGKILL. */
void job_end_further(struct supervised_job *j, double patience);
/* Takes the status of a command that has ended. True: it has. */
bool job_reap(struct supervised_job *j);
/* Kills all descendants, takes their exit statuses, and removes what they left. A job that was never started is zeroed.
 * -1: after JOB_GONE_S some are still there (70). */
int job_finish(struct supervised_job *j, struct err *e);
#endif
