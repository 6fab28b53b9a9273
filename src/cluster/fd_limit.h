/* The limit of open files, checked before it is reached. One per process, as limits are. */
#ifndef CLUSTER_FD_LIMIT_H
#define CLUSTER_FD_LIMIT_H
#include "base/err.h"

/* Descriptors that a run opens after set-up. First rank: event loop 6, log and metrics 2, control socket with its
 * clients and one that is refused 34, TensorBoard 1, weights and their folder 3, trace 2, and what libraries open.
 * Other ranks: files and connections of the transport. */
enum { FD_LIMIT_FIRST_RANK = 64, FD_LIMIT_RANK = 16 };

/* Raises the limit to so many more descriptors than are open now, or as far as the hard limit allows. */
void fd_limit_raise(int more);
/* The same; 71 if there is less room. */
int fd_limit_check(int more, struct err *e);
#endif
