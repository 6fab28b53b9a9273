/* The parts of mpstage-run, which restarts a command when it fails. See mpstage-run(1).
 *
 * Two processes of one thread each. The guard has the process number that the user knows, and forwards signals. Its
 * child, the supervisor, does everything else. The command is the supervisor's child. If either of the two is killed,
 * the other one ends the rest of the command. */
#ifndef LAUNCHER_RUN_H
#define LAUNCHER_RUN_H
#include <stdbool.h>
#include <stdint.h>
#include <sys/socket.h>
#include <sys/un.h>
#include "base/address.h"
#include "job.h"

enum {
    RUN_PAUSE_S = 300,                                    /* maximum between two starts, unless --backoff is more */
    RUN_BUSY_S = 10,                                      /* for how long a run directory in use is retried */
    RUN_HEARS_S = 2,                                      /* when a silent command is assumed to handle signals */
    RUN_START_S = 60,                                     /* between the start of the command and its first message */
    RUN_FAILED_S = 15,                                    /* between the message that it failed and its end */
    RUN_LOOK_S = 2,                                       /* between two checks of the command's processes */
    RUN_FIRST_LOOK_MS = 200,                              /* the same while a launcher has had none */
    RUN_EMPTY_S = 10,                                     /* how long a launcher may run after its last process, */
                                                          /* ... or after the first, before a rank has spoken */
    RUN_DEAF_S = 30                                       /* beyond --stop-timeout, until a supervisor is killed */
};

DEADLINE_BEFORE(DEADLINE_PROCESS_FAIL + DEADLINE_PRINT + DEADLINE_ENDED + DEADLINE_LAUNCHER, RUN_FAILED_S * 1000,
                "a run that says that it failed has ended by itself before it is ended");
DEADLINE_BEFORE(RUN_LOOK_S, RUN_EMPTY_S, "a launcher that goes on is looked at before that is held against it");

struct run_options {
    int max_restarts;                                     /* -1: any number */
    int max_fruitless;                                    /* restarts without a new checkpoint; at least 1 */
    double backoff, stop_timeout, hang_timeout;           /* seconds; hang_timeout 0: none */
    char **command;                                       /* ends with NULL */
};

/* Prints a line to standard error in one write, after "mpstage-run: ". */
void run_say(const char *fmt, ...) __attribute__((format(printf, 1, 2)));

/* ---- run_notify.c: what the command says to the service manager -------------------------------------------------- */

struct words {
    int fd, out;                                          /* out: to the service manager; -1: none */
    struct address to;
    char name[sizeof((struct sockaddr_un *)0)->sun_path + 1];   /* for NOTIFY_SOCKET */
    bool watched, was_ready;                              /* the manager has a watchdog; READY in any start */
    bool spoke, ready, advanced;                          /* in this start: any message; READY; a new checkpoint */
    uint64_t last;                                        /* when the last message came (clock_ns) */
    long long failed;                                     /* the exit status that it has announced; -1: none */
    uint64_t failed_at;
    char *run;                                            /* run directory of this start; NULL: not announced */
    long long committed, resumed;                         /* newest checkpoint ever; resumed by this start; -1: none */
};
int words_open(struct words *w, struct err *e);
void words_begin(struct words *w);                        /* before the command is started */
void words_take(struct words *w);                         /* reads all messages that have come, and passes them on */
void words_report(const struct words *w, const char *text); /* to the service manager, as from the supervisor */
void words_patience(const struct words *w, double seconds);   /* for the manager's watchdog, until the next message */

/* ---- run_loop.c -------------------------------------------------------------------------------------------------- */

/* The supervisor. Returns the program's exit status. guard: its parent's process number. */
int run_supervise(const struct run_options *o, pid_t guard);

#endif
