/* Watches the ranks of a job: one thread in each process. The thread calls MPI only to end the job (MPI_Abort), so it
 * continues when the executor's thread hangs. It exchanges heartbeats with rank 0 several times a second
 * (peer_socket.h). Rank 0 checks all ranks (failure_detector.h); the others check rank 0. The exit of a process is
 * noticed at once, a process that is not responding after run.hang_timeout. Where ranks are threads of one process
 * there are no connections; a child (stall_watchdog.h) notices that the whole process was stopped.
 *
 * One per process. Main thread, except heartbeat_bye, heartbeat_heard, and after heartbeat_join also heartbeat_who,
 * heartbeat_host and heartbeat_where, which only read: any thread. */
#ifndef CLUSTER_HEARTBEAT_H
#define CLUSTER_HEARTBEAT_H
#include "cluster/failure.h"
#include "cluster/world.h"
#include "exec/exec.h"

enum { HEARTBEAT_TIMEOUT_S = 10 };                        /* run.hang_timeout until the configuration is read */
/* Before MPI is initialised. If a launcher started the ranks, watches whether others on this host are stopped.
 * timeout_s 0: nothing is watched. 71. */
int heartbeat_begin(bool launched, int64_t timeout_s, struct err *e);
/* Connects the processes. Collective, right after MPI was initialised. 78 if their versions differ. */
int heartbeat_join(struct world *w, struct err *e);
/* Rank 0, after heartbeat_join: adds a warning if ranks could not connect. They are not watched. */
void heartbeat_report(struct text *out);
/* Replaces heartbeat_begin and heartbeat_join for n ranks that are threads of this process. */
int heartbeat_threads(int n, int64_t timeout_s, struct err *e);
/* The beat of a rank of this process, written by its executor and the code that drives the executor. NULL before the
 * calls above. */
struct exec_beat *heartbeat_beat(int rank);
/* Rank 0: when the last heartbeat of a rank came (clock_ns); for a rank of this process: now. Any thread. */
uint64_t heartbeat_heard(int rank);
void heartbeat_timeout(int64_t timeout_s);
/* patience_ns: how long a device may wait for another one before its transport gives up. A rank that waits for its
 * device is suspected only after that. */
void heartbeat_device(uint64_t patience_ns);
/* "rank 1 (host, process 4242)"; "rank 1" if there is only one process. Returns buf. */
enum { HEARTBEAT_WHO = 120 };
char *heartbeat_who(int rank, char buf[HEARTBEAT_WHO]);
/* The name of the rank's host if ranks are on several hosts; otherwise, and before ranks have met, "". */
const char *heartbeat_host(int rank);
/* Prepends the host's name to an error of that rank if the host may be its cause (files, devices, limits). Also to an
 * error of the configuration on another host than rank 0's. Always returns -1. */
int heartbeat_where(int rank, struct err *e);
/* Sets f to what this rank is doing, without an error. rank: of this process, FAILURE_NOBODY, or, on the heartbeat
 * thread, any. */
void heartbeat_locate(int rank, struct failure *f);
bool heartbeat_threaded(void);                            /* after heartbeat_threads */
/* Whether rank 0's process will get this one's heartbeat_bye and print it. */
bool heartbeat_carries(void);
/* Announces that this process ends and that its exit is no failure. Any thread. f: why it ends; NULL: its work is
 * done. */
void heartbeat_bye(const struct failure *f);
/* Returns when all connected processes have called it: a barrier that makes no calls to MPI. Collective, once, after
 * heartbeat_join. */
void heartbeat_meet(void);
/* Ends the thread after all work is done. Rank 0 first waits until the other processes have ended, or the failure
 * detector finds one that is not responding. If no rank is watched, it waits for DEADLINE_PARTING. */
void heartbeat_end(void);
#endif
