/* Checks the limit of open files before a run reaches it. One per process, as limits are. */
#ifndef CLUSTER_FD_LIMIT_H
#define CLUSTER_FD_LIMIT_H
#include "base/err.h"

/* Descriptors that a run opens after set-up. First rank: event loop 6, log and metrics 3, control socket with its
 * clients and one refused client 34, TensorBoard 1, weights and their folder 3, trace 2, and what libraries open. Other
 * ranks: files and connections of the transport. */
enum { FD_LIMIT_FIRST_RANK = 64, FD_LIMIT_RANK = 16 };

/* Raises the limit to `more` descriptors above those open now, or as far as the hard limit allows. */
void fd_limit_raise(int more);
/* The same; 71 if fewer than `more` can be opened. */
int fd_limit_check(int more, struct err *e);
#endif
