/* Windows: memory of a rank that other ranks of its host read in place, for transports whose ranks are processes.
 *
 * A window is a file without a name (memfd). Its rank maps it to write; others map it by /proc to read. A payload sent
 * out of a window is a loan: the sender sends its place, and the receiver reads it there and returns it. A counter in
 * the receiver's own window holds how many of a sender's loans, in their order, the receiver has returned. So two ranks
 * lend to each other only if each reads the other's window.
 *
 * Thread: the executor's of the rank. */
#ifndef TRANSPORT_TP_SHM_H
#define TRANSPORT_TP_SHM_H
#include "transport/tp.h"

struct tp_shm;
struct tp_shm *tp_shm_new(int rank, int ranks);
void tp_shm_free(struct tp_shm *r);                      /* and the window */
/* Zeroed memory with all pages present. NULL: the system has none, or it was called before. */
void *tp_shm_make(struct tp_shm *r, size_t bytes);
/* Collective, by t's reduce: finds which of these ranks (NULL: all) read whose windows. Once; later calls change
 * nothing. */
int tp_shm_meet(struct tp_shm *r, struct tp *t, const bool *with, struct err *e);
bool tp_shm_reads(const struct tp_shm *r, int peer);
/* The i-th of the requested ranks of this host that has no loans with this one. False: there are fewer. */
bool tp_shm_shut(const struct tp_shm *r, int i, int *peer);

/* Sender. tp_shm_place: the offset of [p, p + bytes) in the own window, counted from 1; 0: it is elsewhere, or `to`
 * cannot read it there. tp_shm_returned: how many of this rank's loans that rank has returned. */
uint64_t tp_shm_place(const struct tp_shm *r, int to, const void *p, size_t bytes);
uint64_t tp_shm_returned(const struct tp_shm *r, int by);
/* Receiver. tp_shm_at: the address of that place in another rank's window, NULL: none. tp_shm_take: the number of the
 * loan that arrived from there, 0: too many are out. tp_shm_return: returns it, in any order. */
const void *tp_shm_at(const struct tp_shm *r, int from, uint64_t place, size_t bytes);
uint64_t tp_shm_take(struct tp_shm *r, int from);
void tp_shm_return(struct tp_shm *r, int to, uint64_t lent);

#endif
