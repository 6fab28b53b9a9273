/* State outside the device: in files, or in the host's memory beside a GPU. Threads move it while the rank computes:
 * they take parts of transfers, in the order in which they were asked for. Used by the files of exec only, by the
 * executor's thread where nothing else is said. */
#ifndef EXEC_DISK_H
#define EXEC_DISK_H
#include "exec/exec_int.h"

/* Bytes of a source, from `at` on, and where they lie in the device's memory. Source 0 is the rank's own store. Its
 * first bytes lie in the host's memory beside a GPU, all others in a file in pipeline.disk, which has no name. The
 * other sources are the files of disk_source. */
enum { DISK_OWN };
struct file_piece { int source; uint64_t at; size_t bytes; char *to; };
/* Pieces that are read, or written, together; only the own store is written. bytes: of all. The rest is of disk.c.
 * next, done: the piece that threads take parts of, and its bytes that they took; left: bytes that have not moved;
 * fence: of the backend, where the stream was when it was asked for. */
struct transfer {
    struct file_piece *piece; int n; bool writes; size_t bytes;
    int next; size_t done, left; void *fence;
};

/* Takes the host's memory, and starts the threads, unless they run. 69, 71. */
int disk_open(struct exec *s, struct err *e);
void disk_close(struct exec *s);
int disk_own(struct exec *s, struct err *e);               /* makes the own file, unless it is there. 73 */
/* A place for so many bytes in the own store, whose file may not exist yet. */
uint64_t disk_take(struct exec *s, uint64_t bytes);
bool disk_in_host(const struct exec *s, const struct file_piece *p);   /* does all of it lie in the host's memory? */
/* Reserves all that was taken: 74. It reads as zeros. */
int disk_reserve(struct exec *s, struct err *e);
/* The source that is this file. No transfer may run. 66. */
int disk_source(struct exec *s, const char *path, struct err *e);

/* Set-up of one that will be asked for. 69. */
int disk_prepare(struct exec *s, struct transfer *x, struct err *e);
/* Begins it, after all that the stream has to do now; a transfer that still runs may not begin again. 69. */
int disk_ask(struct exec *s, struct transfer *x, struct err *e);
/* Until it is over, or another one has failed. Meanwhile the transport continues, because other ranks may need it.
 * 65: a file ends early, or has changed; 74. */
int disk_wait(struct exec *s, const struct transfer *x, struct err *e);
void disk_report(struct exec *s, struct report *r);        /* fills fetch_bytes and fetch_ns */
/* At once, while no transfer of these bytes runs. 65, 74. The other end is memory of the host. read: on any
 * thread. */
int disk_read(const struct exec *s, const struct file_piece *p, struct err *e);
int disk_write(const struct exec *s, const struct file_piece *p, struct err *e);

#endif
