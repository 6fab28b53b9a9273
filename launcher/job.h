/* One start of a command by mpstage-run or mpstage-experiment, in its own process group, so that only the program gets
 * a terminal's Ctrl-C. It can be asked, signalled and forced to end; afterwards none of its processes or files remain.
 * The program that starts it is a subreaper (prctl(2)) and blocks the signals that it reads. One thread, one job at a
 * time. */
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
    JOB_GONE_S = 10,                                      /* when killed processes must have disappeared */
    JOB_NOT_STARTED = 126, JOB_NOT_FOUND = 127            /* exit statuses, as of env(1) */
};

DEADLINE_BEFORE(DEADLINE_PROMISED_STOP + DEADLINE_LAUNCHER, JOB_TERM_S * 1000,
                "a run that gets SIGTERM has ended before it is killed");

/* ---- job_processes.c: all descendants of this process, in any order ---------------------------------------------- */

struct tree { VEC(struct proc) all; };
void tree_scan(struct tree *t);
/* Whether process pid is a launcher, which starts a job's processes and does nothing itself, judging by its name.
 * alive: how many of its descendants run; all: with zombies; ended: how many of its children are zombies. */
bool tree_launcher(pid_t pid, int *alive, int *all, int *ended);
/* Sends command pid a signal, or this host's ranks of MPICH's launcher, which SIGUSR2 kills. */
void tree_signal(pid_t pid, int number);
void tree_free(struct tree *t);

/* ---- job_cleanup.c: what a killed Open MPI leaves on the disk and in shared memory ------------------------------- */

struct left {
    VEC(pid_t) pids;                                      /* processes of the command */
    VEC(char *) segments;                                 /* their shared memory */
};
void left_note(struct left *l, pid_t pid);                /* records a process that runs or ran */
void left_note_all(struct left *l);                       /* records all descendants */
/* Removes what recorded processes that have exited left behind, and clears the record. */
void left_clear(struct left *l);
/* Removes a folder in another with all its contents; does not follow links. */
void folder_remove(int above, const char *name);

/* ---- job.c ------------------------------------------------------------------------------------------------------- */

enum job_stage { JOB_RUNS, JOB_ASKED, JOB_TERM, JOB_KILL };
struct supervised_job {
    pid_t pid;                                            /* 0: not running */
    int code;                                             /* how it ended: an exit status, or 128 and a signal */
    uint64_t began;
    enum job_stage stage;                                 /* how far stopping it has come */
    uint64_t stage_ends;                                  /* when the next stage begins (clock_ns); 0: never */
    struct left left;
    /* only for mpstage-run */
    bool hung;
    bool had;                                             /* a launcher that had processes */
    uint64_t look, empty;                              /* when its processes are checked; since when it lacks some */
    int said;                                             /* status announced by a command that did not exit; 0: none */
};
/* Descriptors for the command's output and errors, and of its working directory, or -1. */
struct job_files { int out, error, folder; };
/* files: NULL: this process's files. -1: *e, 126 or 127 if the program cannot be executed. */
int job_start(struct supervised_job *j, char **argv, const struct job_files *files, struct err *e);
/* Begins the next stage of ending it: SIGUSR1 with `patience` seconds, SIGTERM, SIGKILL. */
void job_end_further(struct supervised_job *j, double patience);
/* Takes the status of a command that has ended. True: it has ended. */
bool job_reap(struct supervised_job *j);
/* Kills all descendants, takes their exit statuses, and removes what they left. A job that was never started is zeroed.
 * -1: some still exist after JOB_GONE_S (70). */
int job_finish(struct supervised_job *j, struct err *e);
#endif
