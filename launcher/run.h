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
#include "base/address.h"
#include "job.h"

enum {
    RUN_PAUSE_S = 300,                                    /* between two starts at most, unless --backoff is more */
    RUN_BUSY_S = 10,                                      /* for how long a run directory that is in use is tried */
    RUN_HEARS_S = 2,                                      /* by when a command that says no word hears signals */
    RUN_START_S = 60,                                     /* between the start of the command and its first word */
    RUN_FAILED_S = 15,                                    /* between the word that it failed and its end */
    RUN_LOOK_S = 2,                                       /* between two looks at the processes of the command */
    RUN_EMPTY_S = 10,                                     /* how long a launcher may go on after its last process */
    RUN_DEAF_S = 30                                       /* beyond --stop-timeout, until a supervisor is ended */
};

DEADLINE_BEFORE(DEADLINE_PROCESS_FAIL + DEADLINE_PRINT + DEADLINE_ENDED + DEADLINE_LAUNCHER, RUN_FAILED_S * 1000,
                "a run that says that it failed has ended by itself before it is ended");
DEADLINE_BEFORE(RUN_LOOK_S, RUN_EMPTY_S, "a launcher that goes on is looked at before that is held against it");

struct run_options {
    int max_restarts;                                     /* -1: any number */
    int max_fruitless;                                    /* of them without a new checkpoint; at least 1 */
    double backoff, stop_timeout, hang_timeout;           /* seconds; hang_timeout 0: none */
    char **command;                                       /* ends with NULL */
};

/* Prints a line to standard error in one piece, after "mpstage-run: ". */
void run_say(const char *fmt, ...) __attribute__((format(printf, 1, 2)));

/* ---- run_notify.c: what the command says to the service manager -------------------------------------------------- */

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

/* ---- run_loop.c -------------------------------------------------------------------------------------------------- */

/* The supervisor. Returns the exit status of the program. guard: its parent's process id. */
int run_supervise(const struct run_options *o, pid_t guard);

#endif
