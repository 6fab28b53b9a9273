/* How stages lie on hosts. Pure. */
#ifndef DAEMON_HOSTS_H
#define DAEMON_HOSTS_H
#include "base/text.h"

/* A line for people where more borders between stages lie between hosts than if ranks came host by host; otherwise
 * nothing. host: of each rank, equal numbers mean the same one; rank_of: of each stage. */
void hosts_judge(const int *host, int n_ranks, const int *rank_of, int n_stages, struct text *out);
#endif
