/* How stages lie on hosts, and by which ways they reach each other. Pure. */
#ifndef DAEMON_RUN_HOSTS_H
#define DAEMON_RUN_HOSTS_H
#include <stdint.h>
#include "base/text.h"

/* Seconds in which nothing moves on a link, after which its other end counts as lost. said: run.transfer_timeout. */
int64_t hosts_patience_s(int64_t said, const int *host, int n_ranks);

/* The links on which a rank sends, those for which there is room; via "": nobody knows. */
enum { HOSTS_LINKS = 8 };
struct hosts_links { int n; struct { int to; char via[48]; } link[HOSTS_LINKS]; };
/* Lines for people: one where all go the same way, otherwise one a way; none where nobody knows of any. all: of each
 * rank. */
void hosts_links_text(const struct hosts_links *all, int n_ranks, struct text *out);

/* A line for people where more borders between stages lie between hosts than if ranks came host by host; otherwise
 * nothing. host: of each rank, equal numbers mean the same one; rank_of: of each stage. */
void hosts_judge(const int *host, int n_ranks, const int *rank_of, int n_stages, struct text *out);
#endif
