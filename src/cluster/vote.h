/* Agreement between ranks during start-up. Collective. Thread: the executor's of each rank. */
#ifndef CLUSTER_VOTE_H
#define CLUSTER_VOTE_H
#include "base/text.h"
#include "cluster/world.h"

/* Returns -1 if a rank has failed; e is then, on every rank, the error of the lowest such rank. */
int vote_agree(struct world *w, struct err *e);
/* Sends rank 0's text to the makers of all processes. */
void vote_share(struct world *w, struct text *t);
#endif
