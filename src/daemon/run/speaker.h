/* Which process of a host speaks for a job whose rank 0 cannot: the first one that asks. One of them makes a pipe with
 * one byte in it, the others open that while they meet; who reads the byte speaks. Nothing of it outlives them.
 *
 * One per process. Main thread, but for speaker_take. */
#ifndef DAEMON_RUN_SPEAKER_H
#define DAEMON_RUN_SPEAKER_H
#include <stdbool.h>
#include <stdint.h>

/* Where it is, as the process that made it tells the others. pid 0: nowhere. */
struct speaker_place { int32_t pid, fd; uint64_t device, inode; };
void speaker_make(struct speaker_place *p);
/* Of the same host, whose maker still lives. Where it cannot be opened each process speaks. */
void speaker_join(const struct speaker_place *p);
/* True for one process, and only once. Any thread. */
bool speaker_take(void);
#endif
