/* Chooses the process of a host that speaks for a job whose rank 0 cannot: the first one that asks. One process makes a
 * pipe with one byte in it. The others open that pipe while they meet. The process that reads the byte speaks. The pipe
 * ends with these processes.
 *
 * One per process. Main thread, except leader_take. */
#ifndef CLUSTER_LEADER_H
#define CLUSTER_LEADER_H
#include <stdbool.h>
#include <stdint.h>

/* Where the pipe is, as its maker sends it to the others. pid 0: there is none. */
struct leader_place { int32_t pid, fd; uint64_t device, inode; };
void leader_make(struct leader_place *p);
/* p: from a process of the same host, which must still run. If the pipe cannot be opened, each process speaks. */
void leader_join(const struct leader_place *p);
/* True for one process, and only once. Any thread. */
bool leader_take(void);
#endif
