/* Who watches over the ranks of a job: one thread in each process, which never calls MPI and so goes on when the
 * executor's thread does not. It tells rank 0 several times a second what this rank is at, and hears the same from
 * rank 0 (peer_socket.h); rank 0 checks all (failure detector.h), the others rank 0. A process that is gone is seen at
 * once, one that stands still after run.hang_timeout. Where ranks are threads of one process there are no connections,
 * and a child (stall_watchdog.h) sees when the whole process stands still.
 *
 * One per process. Main thread, but for heartbeat_bye. */
#ifndef CLUSTER_HEARTBEAT_H
#define CLUSTER_HEARTBEAT_H
#include "cluster/world.h"
#include "exec/exec.h"

enum { HEARTBEAT_TIMEOUT_S = 10 };                        /* run.hang_timeout until the configuration is read */
/* Before MPI is there: where a launcher has started ranks, watches whether others of this host are stopped. 0 seconds:
 * nobody is watched. 71 */
int heartbeat_begin(bool launched, int64_t timeout_s, struct err *e);
/* Connects the processes. Collective, right after MPI was initialised. 78 if they are not the same program. */
int heartbeat_join(struct world *w, struct err *e);
/* For n ranks that are threads of this process, instead of both. */
int heartbeat_threads(int n, int64_t timeout_s, struct err *e);
/* The beat of a rank of this process, for its executor and whoever drives that. NULL before the calls above. */
struct exec_beat *heartbeat_beat(int rank);
/* Rank 0: when a rank was last heard of (clock_ns); one of this process: now. Any thread. */
uint64_t heartbeat_heard(int rank);
void heartbeat_timeout(int64_t timeout_s);
/* A device may wait for so long for another one before its transport gives up; ranks are watched later then. */
void heartbeat_device(uint64_t patience_ns);
/* "rank 1 (host, process 4242)"; "rank 1" where there is only one process. Returns buf. */
enum { HEARTBEAT_WHO = 120 };
char *heartbeat_who(int rank, char buf[HEARTBEAT_WHO]);
/* The name of that rank's host, where ranks are on several; otherwise "", and before ranks have met. */
const char *heartbeat_host(int rank);
/* Prepends that to an error of that rank which may be its host's (files, devices, limits), or which rank 0's host does
 * not have. Returns -1 always. */
int heartbeat_where(int rank, struct err *e);
/* From now on the end of this process means nothing to others. Any thread. code not 0: it ends for that reason, which
 * rank 0 may not have heard; text NULL: it has. */
void heartbeat_bye(int code, const char *text);
/* When all is done: rank 0 waits until the other processes have ended, or the failure detector finds that one stands
 * still; where nobody is watched, DEADLINE_PARTING. */
void heartbeat_end(void);
#endif
