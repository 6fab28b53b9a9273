/* Agreement between ranks while they start. Collective. Thread: the executor's of each rank. */
#ifndef CLUSTER_VOTE_H
#define CLUSTER_VOTE_H
#include "base/text.h"
#include "cluster/world.h"

/* Returns -1 if a rank has failed; then e is the error of the lowest such rank, on every rank. */
int vote_agree(struct world *w, struct err *e);
/* Gives rank 0's text to the makers of all processes. */
void vote_share(struct world *w, struct text *t);
#endif
