/* How a process ends, as a table: in each state, what it does at each event, and the state that follows. Pure: no
 * clock, thread or message. docs/design/cluster.md prints the table; tests/t_shutdown_table.c enumerates it. */
#ifndef CLUSTER_SHUTDOWN_TABLE_H
#define CLUSTER_SHUTDOWN_TABLE_H
#include "base/text.h"

enum shutdown_state {
    IN_SETUP,       /* ranks vote after each phase */
    IN_RUN,         /* steps, evaluations, files */
    IN_ABANDONED,   /* set-up: a failure or a signal came while a phase runs */
    IN_STOPPED,     /* a signal came, the launcher exited, or another rank was stopped so */
    IN_DOUBT,       /* rank 0 failed with 69, which may be a consequence of another rank's failure */
    IN_LOST,        /* the failure detector of rank 0's process found a rank */
    IN_FAILED,      /* the cause is known here */
    IN_TOLD,        /* rank 0 has told this rank the cause */
    IN_LAST,        /* one thread prints the line and ends the process */
    IN_STATES
};

enum shutdown_event {
    ON_STOP,        /* a signal, the launcher's exit, or status 75 from a rank */
    ON_LINK,        /* status 69 from rank 0's executor */
    ON_CAUSE,       /* any other failure, of this process or reported to rank 0 */
    ON_TOLD,        /* rank 0 tells this rank the cause */
    ON_FOUND,       /* rank 0's failure detector: a rank exited or is not responding */
    ON_ALONE,       /* another rank's failure detector: rank 0 exited or is not responding */
    ON_LEAVE,       /* a rank's executor leaves its work because of a failure */
    ON_DONE,        /* all ranks know, or the time for that is over */
    ON_LATE,        /* the scheduler's deadline has passed */
    ON_OVERDUE,     /* the process's deadline has passed */
    ON_EVENTS
};

enum shutdown_action {
    DO_UNKNOWN,     /* no answer: the table has no such entry */
    DO_IGNORE,      /* an earlier event has done what is needed */
    DO_STORE,       /* store the failure, set the abort code */
    DO_DOUBT,       /* store the failure; it counts if no better one has come when rank 0 has listened */
    DO_SPREAD,      /* as DO_STORE, and tell all processes by the connections beside MPI */
    DO_LEAD,        /* if no other process has begun to: print the line, end the job instead of rank 0 */
    DO_TELL,        /* rank 0: listen for the cause, tell all, await answers; others: tell rank 0, await its order */
    DO_ANSWER,      /* answer rank 0 */
    DO_ASK,         /* ask the scheduler to write the last lines and to end the job; without one: nothing */
    DO_END_JOB,     /* print the line; rank 0: end all processes; others: wait for that; exit */
    DO_END_SELF,    /* print the line and exit, rank 0 first; other processes got the signal, too */
    DO_RETURN,      /* nothing failed: main returns */
    DO_ACTIONS
};

struct shutdown_step { enum shutdown_action action; enum shutdown_state next; };
struct shutdown_step shutdown_step(enum shutdown_state in, enum shutdown_event on);

/* In milliseconds, from base/deadline.h. late, overdue: ON_LATE and ON_OVERDUE come so long after the abort code was
 * set; 0: never. listen, answer: of DO_TELL on rank 0. order: of DO_TELL on other ranks. */
struct shutdown_times { int late, overdue, listen, answer, order; };
struct shutdown_times shutdown_times(enum shutdown_state in);

/* Adds both tables in Markdown: a row for each state. */
void shutdown_table_print(struct text *t);
#endif
