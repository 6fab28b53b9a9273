/* How stages lie on hosts, and over which networks they reach each other. */
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>
#include "base/mem.h"
#include "cluster/hosts.h"

/* A network retries lost packets for tens of seconds before it reports a failure. InfiniBand, as NCCL sets it up, waits
 * 4.096 us x 2^20 (NCCL_IB_TIMEOUT) for an answer and retries 7 times (NCCL_IB_RETRY_CNT): 8 x 4.3 s = 34 s. The
 * InfiniBand Architecture Specification (9.7.6.1.3) lets the timer run for longer. */
int64_t hosts_patience_s(int64_t said, int64_t hang, const int *host, int n_ranks)
{
    enum { ONE_HOST_S = 8, HOSTS_S = 60, BEYOND_S = 5 };
    int64_t least = hang + BEYOND_S > ONE_HOST_S ? hang + BEYOND_S : ONE_HOST_S;
    for (int r = 1; r < n_ranks && !said; r++) if (host[r] != host[0]) return HOSTS_S > least ? HOSTS_S : least;
    return said ? said : least;
}

static int borders_between(const int *host, const int *rank_of, int n_stages)
{
    int n = 0;
    for (int s = 0; s + 1 < n_stages; s++) n += host[rank_of[s]] != host[rank_of[s + 1]];
    return n;
}

/* Sorts the ranks by host. */
static void host_by_host(const int *host, int n, int *sorted)
{
    int at = 0;
    for (int r = 0; r < n; r++) {
        int first = 0;
        while (host[first] != host[r]) first++;
        for (int other = r; first == r && other < n; other++) if (host[other] == host[r]) sorted[at++] = host[r];
    }
}

void hosts_report(const int *host, int n_ranks, int of, const int *rank_of, int n_stages, struct text *out)
{
    int *sorted = mem_alloc((size_t)n_ranks * sizeof *sorted), are = 0, would = 0, all = n_ranks / of * (n_stages - 1);
    host_by_host(host, n_ranks, sorted);
    for (int first = 0; first < n_ranks; first += of) {
        are += borders_between(host + first, rank_of, n_stages);
        would += borders_between(sorted + first, rank_of, n_stages);
    }
    if (are > would)
        text_add(out, "note: %d of %d border%s between stages lie between hosts, %d would be enough: start ranks host "
                 "by host (mpirun --map-by slot)\n", are, all, all == 1 ? "" : "s", would);
    free(sorted);
}

/* ---- networks ---------------------------------------------------------------------------------------------------- */

static int links_by(const struct hosts_links *all, int n_ranks, const char *via)
{
    int n = 0;
    for (int r = 0; r < n_ranks; r++)
        for (int i = 0; i < all[r].n; i++) n += !via || strcmp(all[r].link[i].via, via) == 0;
    return n;
}

/* Whether that link is the first one that uses its network. */
static bool opens_way(const struct hosts_links *all, int rank, int link)
{
    const char *via = all[rank].link[link].via;
    for (int i = 0; i < link; i++) if (strcmp(all[rank].link[i].via, via) == 0) return false;
    return links_by(all, rank, via) == 0;
}

static void way_text(const struct hosts_links *all, int n_ranks, const char *via, struct text *out)
{
    const char *between = links_by(all, n_ranks, via) == 1 ? "link " : "links ";
    for (int r = 0; r < n_ranks; r++)
        for (int i = 0; i < all[r].n; i++) {
            if (strcmp(all[r].link[i].via, via) != 0) continue;
            text_add(out, "%s%d to %d", between, r, all[r].link[i].to);
            between = ", ";
        }
    if (*via) text_add(out, ": via %s\n", via);
    else text_add(out, ": NCCL does not report how\n");
}

void hosts_links_text(const struct hosts_links *all, int n_ranks, struct text *out)
{
    int n = links_by(all, n_ranks, NULL);
    if (links_by(all, n_ranks, "") == n) return;
    for (int r = 0; r < n_ranks; r++)
        for (int i = 0; i < all[r].n; i++) {
            const char *via = all[r].link[i].via;
            if (n > 1 && links_by(all, n_ranks, via) == n) {
                text_add(out, "all %d links: via %s\n", n, via);
                return;
            }
            if (opens_way(all, r, i)) way_text(all, n_ranks, via, out);
        }
}
