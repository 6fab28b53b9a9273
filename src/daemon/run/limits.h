/* What the system lets a process have, looked at before it is needed. One per process (limits are). */
#ifndef DAEMON_RUN_LIMITS_H
#define DAEMON_RUN_LIMITS_H
#include "base/err.h"

/* Descriptors that a run opens after its set-up. The first rank: event loop 6, log and metrics 2, control socket, its
 * clients and one that is dismissed 34, events of TensorBoard 1, weights and their folder 3, trace 2; with room for
 * what libraries open. Any other: files and connections of the transport. */
enum { LIMITS_FIRST_RANK = 64, LIMITS_RANK = 16 };

/* Makes room for so many more descriptors than are open now, as far as the hard limit lets. */
void limits_raise(int more);
/* The same; 71 if there is less room. */
int limits_files(int more, struct err *e);
#endif
