/* Which process of a host speaks for a job whose rank 0 cannot: the first one that asks. One of them makes a pipe with
 * one byte in it, the others open that while they meet; who reads the byte speaks. Nothing of it outlives them.
 *
 * One per process. Main thread, but for leader_take. */
#ifndef CLUSTER_LEADER_H
#define CLUSTER_LEADER_H
#include <stdbool.h>
#include <stdint.h>

/* Where it is, as the process that made it tells the others. pid 0: nowhere. */
struct leader_place { int32_t pid, fd; uint64_t device, inode; };
void leader_make(struct leader_place *p);
/* Of the same host, whose maker still lives. Where it cannot be opened each process speaks. */
void leader_join(const struct leader_place *p);
/* True for one process, and only once. Any thread. */
bool leader_take(void);
#endif
