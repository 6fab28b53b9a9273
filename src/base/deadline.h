/* How long those who take part in the end of a run wait for each other, in one place: each of them is right only beside
 * the others, and the compiler checks that. Milliseconds.
 *
 * A failure ends a run from the inside out: the rank that failed tells rank 0, rank 0 tells everybody and writes the
 * last lines, mpirun ends what is left. Where one of them does not move, the next one outwards goes on without it. */
#ifndef BASE_DEADLINE_H
#define BASE_DEADLINE_H

enum deadline {
    /* ---- the orderly way, by messages ---- */
    DEADLINE_LISTEN = 60,              /* rank 0 that was stopped or lost a peer listens so long for the cause */
    DEADLINE_ANSWER = 300,             /* ... and waits so long until all others know that the job has failed; */
    DEADLINE_ANSWER_SHORT = 100,       /* after a signal, or when one of them stands still, so long */
    DEADLINE_GRACE = 600,              /* another rank that failed waits so long for rank 0's order to end */
    /* ---- who ends a process whose executor hangs ---- */
    DEADLINE_LOOP_STOP = 220,          /* after a signal the scheduler of rank 0, with the last line of the metrics; */
    DEADLINE_PROCESS_STOP = 300,       /* ... then the watching thread of any process, and without a scheduler */
    DEADLINE_LOOP_FAIL = 1000,         /* the same after any other failure */
    DEADLINE_PROCESS_FAIL = 2500,
    DEADLINE_SCREEN = 500,             /* a terminal that is stopped gets so long to take a line */
    DEADLINE_PRINT = 1000,             /* ... and printing may hold up the end of a process for so long */
    DEADLINE_READ = 1000,              /* mpirun has so long to read what rank 0 printed, */
    DEADLINE_PASSED = 50,              /* ... and then gets so long to pass it on */
    DEADLINE_ENDED = 1000,             /* other ranks wait so long to be ended by mpirun, after rank 0 */
    DEADLINE_HEIR = 500,               /* rank 0 stands still: rank r speaks for the job after r - 1 times so long */
    DEADLINE_HEIR_LEFT = 2000,         /* rank 0 is gone: a rank of the next host speaks after so long */
    DEADLINE_PARTING = 5000,           /* all is done and nobody is watched: rank 0 waits so long for others to end */
    DEADLINE_WRITER = 600000,          /* a step waits so long for the next tensor of a checkpoint to be written */
    DEADLINE_COMMIT = 3600000,         /* the next checkpoint, or the end, waits so long for one to be on disk */
    /* ---- who is seen to stand still ---- */
    DEADLINE_BEAT = 250,               /* a process says that it is there so often, and judges what it has heard */
    DEADLINE_JOIN = 3000,              /* a process tries for so long to reach rank 0 with its beats */
    DEADLINE_STARTUP = 3000,           /* before ranks have met, each rank speaks so much later than the one before */
    /* ---- transports ---- */
    DEADLINE_SAID = 1000,              /* closing waits so long for messages on their way */
    DEADLINE_SETTLE = 1000,            /* ... and for transfers between devices */
    DEADLINE_DOUBT = 1500,             /* over nccl, who only lost a peer waits so long for the cause to come */
    DEADLINE_MEET = 1500,              /* the same where ranks connect */
    DEADLINE_TOLD = 2000,              /* and so long communicators live on after a failure, until all have heard */
    DEADLINE_RELEASE = 5000,           /* giving them back may take so long, afterwards they are abandoned */
    /* ---- the service manager ---- */
    DEADLINE_EXTEND = 300000,          /* a phase of set-up asks for so long at a time, */
    DEADLINE_EXTEND_LOOK = 30000,      /* ... when it has got on in so long */
    DEADLINE_WATCHDOG = 120000,        /* WatchdogSec of our units: for a finished step */
    DEADLINE_WATCHED = 4200000,        /* ... and while steps may have to wait for files */
    /* ---- what others promise ---- */
    DEADLINE_PROMISED_STOP = 500,      /* mpstaged(8): from SIGTERM to the end of a process */
    DEADLINE_PROMISED_HANG = 2000,     /* from run.hang_timeout to the end of all ranks */
    DEADLINE_LAUNCHER = 1000,          /* Open MPI 4.1 sends SIGTERM and SIGKILL to ranks that far apart */
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
DEADLINE_BEFORE(DEADLINE_SCREEN, DEADLINE_PRINT, "a line is given up before the process that prints it");
DEADLINE_BEFORE(DEADLINE_LOOP_FAIL + DEADLINE_PRINT - 1, DEADLINE_PROMISED_HANG,
                "a run whose rank stands still ends as soon as the manual says");
DEADLINE_BEFORE(DEADLINE_READ + DEADLINE_PASSED + DEADLINE_ANSWER, DEADLINE_HEIR_LEFT,
                "a rank that speaks for the job has ended it before the next host's speaks");
DEADLINE_BEFORE(DEADLINE_WRITER, DEADLINE_COMMIT, "a file that is not written is told of before one not synced");
DEADLINE_BEFORE(DEADLINE_ANSWER + 2 * DEADLINE_BEAT, DEADLINE_ENDED,
                "where its scheduler stands still, rank 0 ends the job before others have given up waiting for that");
DEADLINE_BEFORE(DEADLINE_LAUNCHER + DEADLINE_PRINT, DEADLINE_STARTUP,
                "a rank that spoke has ended the job before the next one speaks");
DEADLINE_BEFORE(DEADLINE_EXTEND_LOOK, DEADLINE_EXTEND, "a phase that gets on has asked again before its time is over");
DEADLINE_BEFORE(DEADLINE_COMMIT + DEADLINE_PROCESS_FAIL + DEADLINE_PRINT, DEADLINE_WATCHED,
                "a disk that does not answer is named before the watchdog ends the service");
DEADLINE_BEFORE(DEADLINE_DOUBT, DEADLINE_TOLD, "communicators live while somebody still waits for a cause");
DEADLINE_BEFORE(DEADLINE_TOLD, DEADLINE_RELEASE, "what is released late is still waited for");

#define DEADLINE_NS(ms) ((uint64_t)(ms) * 1000000u)
#endif
