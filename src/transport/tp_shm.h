/* Rooms: memory of a rank that other ranks of its host read where it lies, for transports whose ranks are processes.
 *
 * A room is a file without a name (memfd), which its rank maps to write and others, by /proc, to read. What is sent
 * out of it is a loan: the sender says where it lies, the receiver reads it there and returns it. A counter in the
 * receiver's own room says how many of a sender's loans, in their order, it has returned; so two ranks have loans
 * between them only where each reads the other's room.
 *
 * Thread: the executor's of the rank. */
#ifndef TRANSPORT_TP_SHM_H
#define TRANSPORT_TP_SHM_H
#include "transport/tp.h"

struct tp_shm;
struct tp_shm *tp_shm_new(int rank, int ranks);
void tp_shm_free(struct tp_shm *r);                      /* and the room */
/* Zeroed memory, whose pages are there. NULL: this system has none to give, or it was asked before. */
void *tp_shm_make(struct tp_shm *r, size_t bytes);
/* Collective, by t's reduce: who reads whose room, of those ranks (NULL: all). Once; later calls change nothing. */
int tp_shm_meet(struct tp_shm *r, struct tp *t, const bool *with, struct err *e);
bool tp_shm_reads(const struct tp_shm *r, int peer);
/* Of those that it should have met, the i-th one of this host with which there are no loans. False: not so many. */
bool tp_shm_shut(const struct tp_shm *r, int i, int *peer);

/* Sender. Where [p, p + bytes) lies in the own room, counted from 1; 0: elsewhere, or `to` cannot read it there. Then,
 * how many of its loans that rank has returned. */
uint64_t tp_shm_place(const struct tp_shm *r, int to, const void *p, size_t bytes);
uint64_t tp_shm_returned(const struct tp_shm *r, int by);
/* Receiver. That place in another's room, NULL: it has no such. The number of the loan that has come from there, 0: too
 * many are out; and it is returned, in any order. */
const void *tp_shm_at(const struct tp_shm *r, int from, uint64_t place, size_t bytes);
uint64_t tp_shm_take(struct tp_shm *r, int from);
void tp_shm_return(struct tp_shm *r, int to, uint64_t lent);

#endif
