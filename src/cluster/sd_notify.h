/* Reports a run to a service manager by the protocol of sd_notify(3): a datagram of lines to the socket that
 * NOTIFY_SOCKET names. Rank 0 speaks for the job. Without notify_open, or without a manager, all functions do nothing.
 *
 * Any thread. A message that the manager's socket does not take at once is lost, except those that mpstage-run(1) acts
 * on: "ready", the step of a checkpoint, a failure. The sender retries these for a second. WATCHDOG=1 means that work
 * was finished, never only that the process lives. */
#ifndef CLUSTER_SD_NOTIFY_H
#define CLUSTER_SD_NOTIFY_H
#include <stdbool.h>
#include <stdint.h>
#include "base/text.h"

/* extend: the time that a phase of set-up requests at once. tick: how often a long phase may request it. least: the
 * time between two messages about steps; a shorter watchdog gets more messages. Milliseconds. */
struct notify_times { unsigned extend, tick, least; };
/* Connects to a manager if there is one. times: NULL: the usual ones. */
void notify_open(const struct notify_times *times);
void notify_close(void);

/* ---- set-up ---- */
/* A phase of set-up begins. doing: the status for people; NULL: unchanged. work: what may take minutes. COMPUTES: it
 * computes, without waiting for other ranks. READS: it only reads files, also between ranks that wait for each other.
 * notify_alive then requests more time as long as the process computes or reads, or only while it reads. */
enum notify_work { NOTIFY_WAITS, NOTIFY_COMPUTES, NOTIFY_READS };
void notify_phase(const char *doing, enum notify_work work);
/* Rank 0 has done its part of a phase and waits for the others, which may take four times as long as rank 0 did. */
void notify_others(void);
/* Must be called about once a second while ranks are set up. */
void notify_alive(void);
/* All ranks are ready for the first step, with their weights. dir: the run directory. */
void notify_ready(const char *dir);

/* ---- the run ---- */
void notify_resumed(uint64_t step);                       /* the run continues from the checkpoint of this step */
/* Adds the progress of the run, for people, to the status that the manager shows. */
struct notify_status { void (*add)(const void *ctx, struct text *t); const void *ctx; };
/* A step, or a batch of an evaluation, has ended. It took took_ns. */
void notify_step(uint64_t took_ns, struct notify_status how_far);
void notify_checkpoint(uint64_t step);                    /* the checkpoint of this step is on disk */
/* Why steps may have to wait: a checkpoint is written or read, or the scheduler waits for a file. */
enum notify_wait { NOTIFY_CHECKPOINT = 1, NOTIFY_FILE = 2 };
void notify_disk(enum notify_wait what, bool on);
/* Must be called several times a second. If steps wait for files and half the watchdog's time is over, the watchdog
 * gets DEADLINE_WATCHED until a step has ended. Without that a disk that does not respond would never be named. This
 * does not apply if a rank is silent, since steps may wait for that rank. */
void notify_poll(bool all_heard);
/* Called again and again while the run is paused on request. */
void notify_paused(struct notify_status how_far);

/* ---- the end ---- */
void notify_stopping(const char *doing);                  /* no more steps begin; only the first call counts */
void notify_failed(int code, const char *text);           /* code: the exit status of the run */
#endif
