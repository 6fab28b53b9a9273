/* Timeouts in milliseconds, all in one place. Most concern the end of a run. Each is right only relative to the others,
 * and the compiler checks that.
 *
 * A failure ends a run from the inside out. The failed rank reports to rank 0. Rank 0 orders all ranks to end and
 * writes the last lines. mpirun ends the remaining processes. If one of these does not act, the next one continues
 * without it. */
#ifndef BASE_DEADLINE_H
#define BASE_DEADLINE_H

enum deadline {
    /* ---- the orderly end, by messages ---- */
    DEADLINE_LISTEN = 60,              /* rank 0, stopped or without a peer, listens so long for the cause */
    DEADLINE_ANSWER = 300,             /* ... and waits so long until all ranks know that the job failed, */
    DEADLINE_ANSWER_SHORT = 100,       /* ... or so long after a signal or when a rank is not responding */
    DEADLINE_GRACE = 600,              /* another rank that failed waits so long for rank 0's order to end */
    /* ---- when the executor hangs: time until a thread ends the process ---- */
    DEADLINE_LOOP_STOP = 220,          /* after a signal: rank 0's scheduler, with the last line of the metrics; */
    DEADLINE_PROCESS_STOP = 300,       /* ... the shutdown thread of each process, also without a scheduler */
    DEADLINE_LOOP_FAIL = 1000,         /* the same two after any other failure */
    DEADLINE_PROCESS_FAIL = 2500,
    DEADLINE_SCREEN = 500,             /* a suspended terminal gets so long to accept a line */
    DEADLINE_PRINT = 1000,             /* ... and printing may delay the end of a process so long */
    DEADLINE_WHY = 150,                /* writing why.json may delay it so long; other ranks wait for that */
    DEADLINE_EXIT = 2000,              /* ending the other processes may delay it so long */
    DEADLINE_READ = 1000,              /* mpirun gets so long to read rank 0's output, */
    DEADLINE_PASSED = 50,              /* ... and then so long to pass it on */
    DEADLINE_ENDED = 1000,             /* after rank 0, other ranks wait so long until mpirun ends them */
    DEADLINE_LEADER = 500,             /* rank 0 is not responding: rank r leads the job after (r - 1) times this */
    DEADLINE_LEADER_LEFT = 2000,       /* rank 0 was lost: a rank of the next host leads the job after so long */
    DEADLINE_PARTING = 5000,           /* at the end of an unmonitored run, rank 0 waits so long for other ranks */
    DEADLINE_WRITER = 600000,          /* a step waits so long for the next tensor of a checkpoint to be written */
    DEADLINE_COMMIT = 3600000,         /* the next checkpoint, or the end, waits so long for the previous one */
    /* ---- when a process counts as not responding ---- */
    DEADLINE_BEAT = 250,               /* period of heartbeats, and of judging the received ones */
    DEADLINE_JOIN = 3000,              /* a process tries so long to connect its heartbeats to rank 0 */
    DEADLINE_STARTUP = 3000,           /* before ranks have met: delay between one rank's report and the next's */
    /* ---- transports ---- */
    DEADLINE_SAID = 1000,              /* closing waits so long for messages in flight */
    DEADLINE_SETTLE = 1000,            /* ... and for transfers between devices */
    DEADLINE_DOUBT = 1500,             /* nccl: a rank that only lost a peer waits so long for the cause */
    DEADLINE_MEET = 1500,              /* the same while ranks connect */
    DEADLINE_TOLD = 2000,              /* after a failure communicators live so long, until all ranks know of it */
    DEADLINE_RELEASE = 5000,           /* releasing them may take so long, then they are abandoned */
    /* ---- the service manager ---- */
    DEADLINE_EXTEND = 300000,          /* a phase of set-up requests so much time at once, */
    DEADLINE_EXTEND_LOOK = 30000,      /* ... whenever it has progressed within this time */
    DEADLINE_WATCHDOG = 120000,        /* WatchdogSec of our units: time for a step */
    DEADLINE_WATCHED = 4200000,        /* ... and while steps may have to wait for files */
    /* ---- promises of the manual and of the launcher ---- */
    DEADLINE_PROMISED_STOP = 500,      /* mpstaged(8): from SIGTERM to the end of a process */
    DEADLINE_PROMISED_HANG = 2000,     /* from run.hang_timeout to the end of all ranks */
    DEADLINE_LAUNCHER = 1000,          /* Open MPI 4.1: delay from SIGTERM to SIGKILL */
};

#define DEADLINE_BEFORE(first, second, why) _Static_assert((first) < (second), why)
DEADLINE_BEFORE(DEADLINE_LISTEN + DEADLINE_ANSWER, DEADLINE_GRACE,
                "a rank that failed still waits when rank 0 orders the end");
DEADLINE_BEFORE(DEADLINE_LISTEN, DEADLINE_DOUBT, "rank 0 listens for less time than a rank that lost rank 0 doubts");
DEADLINE_BEFORE(DEADLINE_LISTEN + DEADLINE_ANSWER_SHORT, DEADLINE_LOOP_STOP,
                "the orderly end after a signal comes before the scheduler's");
DEADLINE_BEFORE(DEADLINE_LOOP_STOP, DEADLINE_PROCESS_STOP,
                "the scheduler writes the last line of the metrics before its process ends");
DEADLINE_BEFORE(DEADLINE_PROCESS_STOP, DEADLINE_PROMISED_STOP, "SIGTERM ends a process as soon as the manual says");
DEADLINE_BEFORE(DEADLINE_PROCESS_STOP, DEADLINE_LAUNCHER, "a rank has ended before mpirun kills it");
DEADLINE_BEFORE(DEADLINE_LISTEN + DEADLINE_ANSWER, DEADLINE_LOOP_FAIL,
                "the orderly end after a failure comes before the scheduler's");
DEADLINE_BEFORE(DEADLINE_LOOP_FAIL + DEADLINE_READ + DEADLINE_PASSED, DEADLINE_PROCESS_FAIL,
                "the scheduler has ended the job before its process is ended without it");
DEADLINE_BEFORE(DEADLINE_SCREEN + DEADLINE_WHY, DEADLINE_PRINT, "a file is given up before the process that writes it");
DEADLINE_BEFORE(DEADLINE_PROCESS_STOP + DEADLINE_WHY, DEADLINE_PROMISED_STOP, "... also after SIGTERM");
DEADLINE_BEFORE(DEADLINE_READ + DEADLINE_PASSED, DEADLINE_EXIT, "rank 0's output is read before its process ends");
DEADLINE_BEFORE(DEADLINE_ENDED, DEADLINE_EXIT, "other ranks wait for mpirun before their processes end");
DEADLINE_BEFORE(DEADLINE_SCREEN, DEADLINE_PRINT, "a line is given up before the process that prints it");
DEADLINE_BEFORE(DEADLINE_LOOP_FAIL + DEADLINE_PRINT - 1, DEADLINE_PROMISED_HANG,
                "a run with a rank that hangs ends as soon as the manual says");
DEADLINE_BEFORE(DEADLINE_READ + DEADLINE_PASSED + DEADLINE_ANSWER, DEADLINE_LEADER_LEFT,
                "a leader has ended the job before a rank of the next host becomes leader");
DEADLINE_BEFORE(DEADLINE_WRITER, DEADLINE_COMMIT, "a stalled write is reported before a stalled sync");
DEADLINE_BEFORE(DEADLINE_ANSWER + 2 * DEADLINE_BEAT, DEADLINE_ENDED,
                "where its scheduler hangs, rank 0 ends the job before other ranks stop waiting for that");
DEADLINE_BEFORE(DEADLINE_LAUNCHER + DEADLINE_PRINT, DEADLINE_STARTUP,
                "a rank that reported has ended the job before the next one reports");
DEADLINE_BEFORE(DEADLINE_EXTEND_LOOK, DEADLINE_EXTEND,
                "a phase that makes progress asks for more time before its time is over");
DEADLINE_BEFORE(DEADLINE_COMMIT + DEADLINE_PROCESS_FAIL + DEADLINE_PRINT, DEADLINE_WATCHED,
                "a disk that does not answer is named before the watchdog ends the service");
DEADLINE_BEFORE(DEADLINE_DOUBT, DEADLINE_TOLD, "communicators live while somebody still waits for a cause");
DEADLINE_BEFORE(DEADLINE_TOLD, DEADLINE_RELEASE, "what is released late is still waited for");

#define DEADLINE_NS(ms) ((uint64_t)(ms) * 1000000u)
#endif
