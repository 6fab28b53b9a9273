/* How stages lie on hosts. */
#include <stdlib.h>
#include "base/mem.h"
#include "daemon/hosts.h"

static int borders_between(const int *host, const int *rank_of, int n_stages)
{
    int n = 0;
    for (int s = 0; s + 1 < n_stages; s++) n += host[rank_of[s]] != host[rank_of[s + 1]];
    return n;
}

/* The same ranks, those of a host behind each other. */
static void host_by_host(const int *host, int n, int *sorted)
{
    int at = 0;
    for (int r = 0; r < n; r++) {
        int first = 0;
        while (host[first] != host[r]) first++;
        for (int other = r; first == r && other < n; other++) if (host[other] == host[r]) sorted[at++] = host[r];
    }
}

void hosts_judge(const int *host, int n_ranks, const int *rank_of, int n_stages, struct text *out)
{
    int *sorted = mem_alloc((size_t)n_ranks * sizeof *sorted);
    host_by_host(host, n_ranks, sorted);
    int are = borders_between(host, rank_of, n_stages), would = borders_between(sorted, rank_of, n_stages);
    if (are > would)
        text_add(out, "note: %d of %d border%s between stages lie between hosts, %d would do: start ranks host by host "
                 "(mpirun --map-by slot)\n", are, n_stages - 1, n_stages == 2 ? "" : "s", would);
    free(sorted);
}
