/* Finds ranks that are not responding, from the heartbeats that ranks send. Pure: no clock, thread or socket; the
 * caller passes the time (clock_ns).
 *
 *   silent    no heartbeat has come from a rank for longer than the limit
 *   stuck     heartbeats of a rank arrive, but it makes no progress and does not poll what it waits for (in a step) or
 *             the next order (between steps); found from a rank that waits, along the chain of who waits for whom
 *   deadlock  ranks wait for each other in a cycle, so a message was lost
 *
 * The limit is run.hang_timeout. For ranks whose heartbeats arrive it is also at least DETECTOR_TIMES the slowest step
 * so far. Before a rank has done its first step of the kind it is at least DETECTOR_FIRST times run.hang_timeout. Time
 * in which the failure detector itself did not run counts against no rank. A gap in a rank's heartbeats does not count
 * as time that it was stuck. */
#ifndef CLUSTER_FAILURE_DETECTOR_H
#define CLUSTER_FAILURE_DETECTOR_H
#include <stdbool.h>
#include <stdint.h>
#include "exec/exec.h"

enum { DETECTOR_TIMES = 5, DETECTOR_FIRST = 30 };
/* The state in a heartbeat is valid for this long. A longer gap between two calls of detector_poll means that the
 * failure detector itself did not run. */
#define DETECTOR_FRESH_NS UINT64_C(1000000000)

/* What a heartbeat reports: struct exec_beat at one moment, and the phase of its process. */
struct beat {
    uint64_t count, polls, step, where, slowest_ns;
    int32_t wait, state;
    char doing[40];                                       /* "": a step */
};
void beat_take(const struct exec_beat *b, const char *doing, struct beat *out);
/* "stage 1, backward of micro-batch 3 of step 17", "reading data": what the rank was doing at its last heartbeat.
 * Returns buf. */
enum { BEAT_TEXT = 120 };
char *beat_text(const struct beat *b, char buf[BEAT_TEXT]);

struct detector_rank {
    bool watched, spoke;                                  /* spoke: at least once */
    /* when its last heartbeat came; when its count last changed; when it last polled what it waits for */
    uint64_t heard, moved, polled;
    struct beat beat;
};
struct failure_detector {
    int n;
    bool silence;                              /* whether ranks may be found silent; false for ranks that are threads */
    uint64_t limit_ns;                                    /* 0: no rank is watched */
    uint64_t device_ns;                                   /* minimum limit of a rank that waits for its device */
    uint64_t checked;
    struct detector_rank *rank;
};
enum suspicion_kind { SUSPECT_SILENT, SUSPECT_STUCK, SUSPECT_DEADLOCK };
/* DEADLOCK: rank waits for other. ns: for how long. */
struct suspicion { enum suspicion_kind kind; int rank, other; uint64_t ns; };

/* Rank 0's scheduler, a thread that is no rank. It runs its loop all the time, whatever ranks do. */
struct thread_view { bool spoke; uint64_t count, moved, checked; };

/* Watches all n ranks from now on. rank: memory for n. */
void detector_begin(struct failure_detector *j, struct detector_rank *rank, int n, uint64_t now);
void detector_beat(struct failure_detector *j, int rank, const struct beat *b, uint64_t now);
void detector_leave(struct failure_detector *j, int rank); /* no longer watches it */
/* Must be called several times a second. True: v is a suspicion. */
bool detector_poll(struct failure_detector *j, uint64_t now, struct suspicion *v);
/* Whether a heartbeat of every watched rank has come within DETECTOR_FRESH_NS. */
bool detector_is_current(const struct failure_detector *j, uint64_t now);
/* Checks the scheduler. count: how many times it has run its loop. d: zeroed before the first call. in_file: it waits
 * for a file system, which may take as long as a step waits for a checkpoint (DEADLINE_WRITER). Returns for how long it
 * has made no progress, ns, if that exceeds the limit; otherwise 0. */
uint64_t detector_thread(const struct failure_detector *j, struct thread_view *d, uint64_t count, bool in_file,
                         uint64_t now);
#endif
