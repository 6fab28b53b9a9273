/* How stages lie on hosts, and over which networks they reach each other. Pure. */
#ifndef CLUSTER_HOSTS_H
#define CLUSTER_HOSTS_H
#include <stdint.h>
#include "base/text.h"

/* After how many seconds without movement on a link its other end counts as lost. said: run.transfer_timeout. hang:
 * run.hang_timeout, which must expire first, because its message names the rank. */
int64_t hosts_patience_s(int64_t said, int64_t hang, const int *host, int n_ranks);

/* The links on which a rank sends, at most HOSTS_LINKS. via "": network unknown. */
enum { HOSTS_LINKS = 8 };
struct hosts_links { int n; struct { int to; char via[48]; } link[HOSTS_LINKS]; };
/* Adds lines for people: one if all links use the same network, otherwise one for each network; none if no network is
 * known. all: the links of each rank. */
void hosts_links_text(const struct hosts_links *all, int n_ranks, struct text *out);

/* Adds a line if ranks lie on hosts so that more borders between stages cross hosts than if each host had successive
 * ranks. host: of each of n_ranks; equal numbers mean the same host. of: ranks of a replica. rank_of: for each stage of
 * a replica, its rank within the replica. */
void hosts_report(const int *host, int n_ranks, int of, const int *rank_of, int n_stages, struct text *out);
#endif
