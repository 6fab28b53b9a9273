/* The parts of mpstage-run, which starts a command again when it fails. See mpstage-run(1).
 *
 * Two processes of one thread each: the guard, which has the number that the user knows and hands signals on, and its
 * child, the supervisor, which does all else. The command is the supervisor's child. Whichever of the two is killed,
 * the other one ends what is left of the command. */
#ifndef LAUNCHER_RUN_H
#define LAUNCHER_RUN_H
#include <stdbool.h>
#include <stdint.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>
#include "base/address.h"
#include "base/deadline.h"
#include "base/err.h"
#include "base/mem.h"
#include "base/proc.h"

enum {
    RUN_PAUSE_S = 300,                                    /* between two starts at most, unless --backoff is more */
    RUN_TERM_S = 5,                                       /* between SIGTERM and SIGKILL */
    RUN_BUSY_S = 10,                                      /* for how long a run directory that is in use is tried */
    RUN_HEARS_S = 2,                                      /* by when a command that says no word hears signals */
    RUN_START_S = 60,                                     /* between the start of the command and its first word */
    RUN_FAILED_S = 15,                                    /* between the word that it failed and its end */
    RUN_LOOK_S = 2,                                       /* between two looks at the processes of the command */
    RUN_EMPTY_S = 10,                                     /* how long a launcher may go on after its last process */
    RUN_DEAF_S = 30,                                      /* beyond --stop-timeout, until a supervisor is ended */
    RUN_GONE_S = 10,                                      /* by when killed processes have to be gone */
    RUN_NOT_STARTED = 126, RUN_NOT_FOUND = 127            /* exit codes, as of env(1) */
};

DEADLINE_BEFORE(DEADLINE_PROMISED_STOP + DEADLINE_LAUNCHER, RUN_TERM_S * 1000,
                "a run that gets SIGTERM has ended before it is killed");
DEADLINE_BEFORE(DEADLINE_PROCESS_FAIL + DEADLINE_PRINT + DEADLINE_ENDED + DEADLINE_LAUNCHER, RUN_FAILED_S * 1000,
                "a run that says that it failed has ended by itself before it is ended");
DEADLINE_BEFORE(RUN_LOOK_S, RUN_EMPTY_S, "a launcher that goes on is looked at before that is held against it");

struct run_options {
    long max_restarts;                                    /* -1: any number */
    long max_fruitless;                                   /* of them without a new checkpoint; at least 1 */
    double backoff, stop_timeout, hang_timeout;           /* seconds; hang_timeout 0: none */
    char **command;                                       /* ends with NULL */
};

/* Prints a line to standard error in one piece, after "mpstage-run: ". */
void run_say(const char *fmt, ...) __attribute__((format(printf, 1, 2)));

/* ---- job_processes.c: processes
 * --------------------------------------------------------------------------------------- */

struct tree { VEC(struct proc) all; };
/* All descendants of this process, in any order. */
void tree_scan(struct tree *t);
/* Whether process pid is one that starts a job's processes and does nothing itself, going by its name, and how many of
 * its descendants live. */
bool tree_launcher(pid_t pid, int *alive);
void tree_free(struct tree *t);

struct left;
/* Kills all descendants, takes their exit statuses, and notes in `left` who they were. -1: after RUN_GONE_S some are
 * still there (70). `child`: where the status of that child goes, as of waitpid; -1 stays if it was taken before. */
int tree_end(struct left *left, pid_t child, int *status, struct err *e);

/* ---- job_cleanup.c: what a killed Open MPI leaves on the disk and in shared memory ----------------------------------
 * */

struct left {
    VEC(pid_t) pids;                                      /* processes of the command */
    VEC(char *) segments;                                 /* shared memory that they had */
};
void left_note(struct left *l, pid_t pid);                /* a process that is alive, or was */
void left_note_all(struct left *l);                       /* all descendants */
/* Removes what dead processes that were noted have left, and forgets all that was noted. */
void left_clear(struct left *l);

/* ---- run_notify.c: what the command says to the service manager ---------------------------------------------------
 * */

struct words {
    int fd, out;                                          /* out: to the service manager; -1: there is none */
    struct address to;
    char name[sizeof((struct sockaddr_un *)0)->sun_path + 1];   /* for NOTIFY_SOCKET */
    bool watched, was_ready;                              /* the manager has a watchdog; READY by any start */
    bool spoke, ready, advanced;                          /* this start: any word; READY; a new checkpoint */
    uint64_t last;                                        /* when the last word came (clock_ns) */
    long long failed;                                     /* the status with which it is about to end; -1: unknown */
    uint64_t failed_at;
    long long committed, resumed;                         /* newest checkpoint ever; of this start; -1: none */
};
int words_open(struct words *w, struct err *e);
void words_begin(struct words *w);                        /* before the command is started */
void words_take(struct words *w);                         /* reads all that has come, and passes it on */
void words_tell(const struct words *w, const char *text); /* to the service manager, in the supervisor's name */
void words_patience(const struct words *w, double seconds);   /* for the manager's watchdog, until the next word */

/* ---- job.c: one start of the command ------------------------------------------------------------------------- */

enum job_stage { JOB_RUNS, JOB_ASKED, JOB_TERM, JOB_KILL };
struct supervised_job {
    pid_t pid;                                            /* 0: it does not run */
    int code;                                             /* how it ended: an exit status, or 128 and a signal */
    uint64_t began;
    enum job_stage stage;                                 /* how far ending it has come */
    uint64_t stage_ends;                                  /* when the next begins (clock_ns); 0: never */
    bool hung;
    bool had;                                             /* it is a launcher that had processes */
    uint64_t look, empty;                                 /* when they are looked at next; since when it has none */
    int said;                                             /* it did not end by itself: the status that it had told of */
};
/* `resume`: started again, so --resume is added and --overwrite left out. -1: *e. */
int job_start(struct supervised_job *j, const struct run_options *o, const struct words *w, bool resume, struct err *e);
/* Begins the next stage of ending it: SIGUSR1, SIGTERM, SIGKILL. */
void job_end_further(struct supervised_job *j, const struct run_options *o);
/* Takes the status of a command that has ended. True: it has. */
bool job_reap(struct supervised_job *j);
int job_code(int status);

/* ---- run_loop.c -------------------------------------------------------------------------------------------------- */

/* The supervisor. Returns the exit status of the program. guard: its parent's process id. */
int run_supervise(const struct run_options *o, pid_t guard);

#endif
