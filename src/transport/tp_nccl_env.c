/* NCCL's environment variables and log. */
#include "config.h"
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>
#include "base/environ.h"
#include "base/text.h"
#include "transport/tp_nccl_env.h"

/* NCCL refuses two ranks on one GPU within a host, and it identifies the host by its name. So the second rank of each
 * GPU gets another name, the third one a third name. First ranks of their GPUs still share a host, second ranks share
 * another. Within each, NVLink and shared memory work. The lowest rank of the host is part of the name, because two
 * hosts may have one name.
 *
 * NCCL_CUMEM_HOST_ENABLE: cuMem buffers on hosts do not work in every container, and NCCL before 2.26.3 does not detect
 * that. */
static void host_divide(const struct tp_seats *s, int me, int sharer)
{
    char host[128];
    snprintf(host, sizeof host, "%.64s-%d-%d", s->name, s->host[me], sharer);
    environ_default("NCCL_HOSTID", host);
    environ_default("NCCL_CUMEM_HOST_ENABLE", "0");
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
    if (here && one_host) environ_default("NCCL_SOCKET_IFNAME", "lo");
    /* NVLink across hosts would join the divided ranks. Both ends of a pair must agree, so it is off on all ranks. */
    if (any) environ_default("NCCL_MNNVL_ENABLE", "0");
}

/* ---- the log ----------------------------------------------------------------------------------------------------- */

static const char log_place[] = "/proc/self/fd/";

static bool log_is_ours(void)
{
    const char *at = getenv("NCCL_DEBUG_FILE");
    return at && strncmp(at, log_place, sizeof log_place - 1) == 0;
}

/* If NCCL cannot open the file, it writes to standard output, so the file is tried first. The descriptor stays open as
 * long as NCCL may open the file by its number. */
void nccl_log_begin(struct nccl_log *l)
{
    char path[40];
    *l = (struct nccl_log){.fd = -1};
    if (getenv("NCCL_DEBUG") || getenv("NCCL_DEBUG_FILE") || getenv("NCCL_DEBUG_SUBSYS")) return;
    if ((l->fd = memfd_create("nccl.log", MFD_CLOEXEC)) < 0) return;
    snprintf(path, sizeof path, "%s%d", log_place, l->fd);
    if (access(path, W_OK)) {
        close(l->fd);
        l->fd = -1;
        return;
    }
    environ_default("NCCL_DEBUG", "INFO");
    environ_default("NCCL_DEBUG_FILE", path);
}

void nccl_log_end(struct nccl_log *l)
{
    if (l->fd < 0) return;
    environ_remove("NCCL_DEBUG");
    environ_remove("NCCL_DEBUG_FILE");
    close(l->fd);
    l->fd = -1;
}

/* Takes the way from a line such as "... Channel 00/1 : 0[0] -> 1[1] [send] via NET/IB/0/GDRDMA comm 0x55 nRanks 02":
 * up to " comm ", or the end. */
static void via_take(const char *line, size_t n, char via[NCCL_VIA])
{
    static const char mark[] = " via ", behind[] = " comm ";
    const char *at = memmem(line, n, mark, sizeof mark - 1);
    size_t space = at ? n - (size_t)(at - line) - (sizeof mark - 1) : 0;
    if (!at || !memmem(line, n, "Channel ", 8)) return;
    at += sizeof mark - 1;
    const char *end = memmem(at, space, behind, sizeof behind - 1);
    snprintf(via, NCCL_VIA, "%.*s", (int)(end ? (size_t)(end - at) : space), at);
    for (size_t i = strlen(via); i && via[i - 1] == ' '; i--) via[i - 1] = 0;
}

void nccl_via(const char *log, char via[NCCL_VIA])
{
    char any[NCCL_VIA] = "";
    *via = 0;
    for (const char *line = log; *line; line += strcspn(line, "\n"), line += *line == '\n') {
        size_t n = strcspn(line, "\n");
        via_take(line, n, memmem(line, n, "-> 1[", 5) ? via : any);
    }
    if (!*via) memcpy(via, any, NCCL_VIA);
}

void nccl_log_via(struct nccl_log *l, char via[NCCL_VIA])
{
    struct text t = {0};
    char buf[4096];
    *via = 0;
    for (ssize_t n; l->fd >= 0 && (n = pread(l->fd, buf, sizeof buf, (off_t)l->seen)) > 0; l->seen += (size_t)n)
        text_add_bytes(&t, buf, (size_t)n);
    if (t.n) nccl_via(t.s, via);
    text_free(&t);
}

/* ---- advice ------------------------------------------------------------------------------------------------------ */

const char *nccl_env_advice(char buf[NCCL_ADVICE])
{
    bool cumem = getenv("NCCL_CUMEM_ENABLE"), debug = getenv("NCCL_DEBUG") && !log_is_ours();
    snprintf(buf, NCCL_ADVICE, "%s%s%s%s", cumem && debug ? "" : "; try again with ",
             cumem ? "" : "NCCL_CUMEM_ENABLE=0 in the environment", cumem || debug ? "" : ", or with ",
             debug ? "" : "NCCL_DEBUG=INFO, which says more");
    return buf;
}
