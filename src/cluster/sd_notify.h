/* What a service manager hears of a run, by the protocol of sd_notify(3): a datagram of lines to the socket that
 * NOTIFY_SOCKET names. Rank 0 speaks for the job. Without notify_open, or without a manager, all of these do nothing.
 *
 * Any thread. What the manager's socket does not take at once is lost, except what mpstage-run(1) decides by: "ready",
 * the step of a checkpoint, a failure. These are tried again for a second. WATCHDOG=1 says that something was finished,
 * never only that the process lives. */
#ifndef CLUSTER_SD_NOTIFY_H
#define CLUSTER_SD_NOTIFY_H
#include <stdbool.h>
#include <stdint.h>
#include "base/text.h"

/* extend: what a phase of set-up asks for at a time. tick: how often a long phase may ask. least: between two messages
 * about steps; a watchdog that wants more hears more. In milliseconds. */
struct notify_times { unsigned extend, tick, least; };
/* Looks for a manager. times: NULL, the usual ones. */
void notify_open(const struct notify_times *times);
void notify_close(void);

/* ---- set-up ---- */
/* A phase of set-up begins. doing: what people are told; NULL: the same as before. What may take minutes: it computes,
 * without waiting for other ranks, or only reads files, also between ranks that wait for each other; then notify_alive
 * asks for more time as long as the process computes or reads, or only reads. */
enum notify_work { NOTIFY_WAITS, NOTIFY_COMPUTES, NOTIFY_READS };
void notify_phase(const char *doing, enum notify_work work);
/* Rank 0 is through with its part of a phase and waits for the others, which may take four times as long as it did. */
void notify_others(void);
/* Called every second or so while ranks are set up. */
void notify_alive(void);
/* All ranks are ready for the first step, with their weights. dir: the run directory. */
void notify_ready(const char *dir);

/* ---- the run ---- */
void notify_resumed(uint64_t step);                       /* it goes on from the checkpoint of this step */
/* Adds how far the run is, for people, to the status that the manager shows. */
struct notify_status { void (*add)(const void *ctx, struct text *t); const void *ctx; };
/* A step, or a batch of an evaluation, was finished, which took so long. */
void notify_step(uint64_t took_ns, struct notify_status how_far);
void notify_checkpoint(uint64_t step);                    /* the checkpoint of this step is on disk */
/* Steps may have to wait because a checkpoint is written or read, or the scheduler waits for a file. */
enum notify_wait { NOTIFY_CHECKPOINT = 1, NOTIFY_FILE = 2 };
void notify_disk(enum notify_wait what, bool on);
/* To be called several times a second. Where steps wait for files and half the watchdog's time is over, it gets
 * DEADLINE_WATCHED until a step has ended, or a disk that does not answer would never be named; but not where some rank
 * is not heard, since then it may be that for which they wait. */
void notify_look(bool all_heard);
/* Called again and again while the run stands still because somebody told it to. */
void notify_paused(struct notify_status how_far);

/* ---- the end ---- */
void notify_stopping(const char *doing);                  /* no more steps are begun; only the first time counts */
void notify_failed(int code, const char *text);           /* code: the exit status of the run */
#endif
