/* Who stands still? What ranks say of themselves comes in (heartbeats), a suspicion goes out. Pure: no clock, thread,
 * socket; the caller says what time it is (clock_ns).
 *
 *   silent  nothing has come from a rank for as long as the limit says
 *   stuck   the process of a rank says that it is there, but the rank neither gets on with its step nor looks for what
 *           it waits for, or between two steps for what to do; found from a rank that waits, along the chain of whom
 *           waits for whom
 *   lost    ranks wait for each other in a ring, so a message is lost
 *
 * The limit is run.hang_timeout; for ranks that do speak also never less than DETECTOR_TIMES the slowest step so far,
 * and DETECTOR_FIRST limits before a rank has done its first step of the kind. Time in which the failure detector
 * itself did not run counts against nobody, and time in which a rank did not speak is no part of how long it is stuck.
 * */
#ifndef CLUSTER_FAILURE_DETECTOR_H
#define CLUSTER_FAILURE_DETECTOR_H
#include <stdbool.h>
#include <stdint.h>
#include "exec/exec.h"

enum { DETECTOR_TIMES = 5, DETECTOR_FIRST = 30 };
/* A rank spoke less than so long ago: what it said still holds. A longer gap between two looks was the failure
 * detector's own. */
#define DETECTOR_FRESH_NS UINT64_C(1000000000)

/* What a rank says of itself: struct exec_beat at one moment, and in which phase its process is. */
struct beat {
    uint64_t count, looks, step, where, slowest_ns;
    int32_t wait, state;
    char doing[40];                                       /* "": a step */
};
void beat_take(const struct exec_beat *b, const char *doing, struct beat *out);
/* "stage 1, backward of micro-batch 3 of step 17", "reading data"; what it was at when it spoke last. Returns buf. */
enum { BEAT_TEXT = 120 };
char *beat_text(const struct beat *b, char buf[BEAT_TEXT]);

struct detector_rank {
    bool watched, spoke;                                  /* spoke: at least once */
    /* when it spoke last; when its count was seen to change, and that it looks for what it waits for */
    uint64_t heard, moved, looked;
    struct beat beat;
};
struct failure_detector {
    int n;
    bool silence;                                         /* whether ranks may be found silent: not threads */
    uint64_t limit_ns;                                    /* 0: nobody is watched */
    uint64_t device_ns;                                   /* the least limit of a rank that waits for its device */
    uint64_t looked;
    struct detector_rank *rank;
};
enum suspicion_kind { SUSPECT_SILENT, SUSPECT_STUCK, SUSPECT_LOST };
/* LOST: rank waits for other. ns: for how long. */
struct suspicion { enum suspicion_kind kind; int rank, other; uint64_t ns; };

/* Rank 0's scheduler, which is a thread and no rank: it comes by again and again, whatever ranks do. */
struct thread_view { bool spoke; uint64_t count, moved, looked; };

/* All n ranks are watched from now on. rank: room for n. */
void detector_begin(struct failure_detector *j, struct detector_rank *rank, int n, uint64_t now);
void detector_hear(struct failure_detector *j, int rank, const struct beat *b, uint64_t now);
void detector_leave(struct failure_detector *j, int rank); /* it is watched no more */
/* To be called several times a second. */
bool detector_look(struct failure_detector *j, uint64_t now, struct suspicion *v);
/* Whether all that are watched have said a moment ago that they are there. */
bool detector_hears(const struct failure_detector *j, uint64_t now);
/* The same for the scheduler, which has come by that often, and begins with d zeroed. in_file: it waits for a file
 * system, which may take as long as a step waits for a checkpoint (DEADLINE_WRITER). Returns for how long it has stood
 * still, ns, if that is too long; or 0. */
uint64_t detector_thread(const struct failure_detector *j, struct thread_view *d, uint64_t count, bool in_file,
                         uint64_t now);
#endif
