/* What NCCL reads from the environment. */
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include "transport/tp_nccl_env.h"

/* NCCL refuses two ranks on one GPU within a host, and goes by the name of the host. So the second rank of each GPU
 * gets another name, the third one a third: ranks that are the first on their GPUs still are on one host, and so are
 * the second ones, and between those NVLink and shared memory work as ever. The lowest rank of the host is part of the
 * name, because hosts may be called alike.
 *
 * Buffers of hosts: those of cuMem are not to be had in every container, and NCCL falls back on nothing. */
static void host_divide(const struct tp_seats *s, int me, int sharer)
{
    char host[128];
    snprintf(host, sizeof host, "%.64s-%d-%d", s->name, s->host[me], sharer);
    setenv("NCCL_HOSTID", host, 0);
    setenv("NCCL_CUMEM_HOST_ENABLE", "0", 0);
}

void nccl_env_set(const struct tp_seats *s, int me, int n)
{
    bool any = false, here = false, one_host = true;
    int sharer = 0;
    for (int r = 0; r < n; r++) {
        one_host = one_host && s->host[r] == s->host[me];
        sharer += r < me && s->gpu[r] == s->gpu[me];
        for (int other = 0; other < r; other++) {
            if (s->gpu[r] != s->gpu[other]) continue;
            any = true;
            here = here || s->host[r] == s->host[me];
        }
    }
    if (here) host_divide(s, me, sharer);
    if (here && one_host) setenv("NCCL_SOCKET_IFNAME", "lo", 0);
    /* NVLink across hosts would join what was divided. Both ends of a pair must agree, so it is off on all ranks. */
    if (any) setenv("NCCL_MNNVL_ENABLE", "0", 0);
}

const char *nccl_env_advice(char buf[NCCL_ADVICE])
{
    bool cumem = getenv("NCCL_CUMEM_ENABLE"), debug = getenv("NCCL_DEBUG");
    snprintf(buf, NCCL_ADVICE, "%s%s%s%s", cumem && debug ? "" : "; try again with ",
             cumem ? "" : "NCCL_CUMEM_ENABLE=0 in the environment", cumem || debug ? "" : ", or with ",
             debug ? "" : "NCCL_DEBUG=INFO, which says more");
    return buf;
}
