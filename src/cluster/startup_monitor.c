/* Watches the other children of the launcher. */
#include "config.h"
#include <ctype.h>
#include <dirent.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include "base/deadline.h"
#include "base/launched.h"
#include "base/mem.h"
#include "base/proc.h"
#include "base/text.h"
#include "cluster/startup_monitor.h"

/* MOST: processes that are stopped at the same time. AWAY_NS: a longer gap between two checks does not count. */
enum { MOST = 16, AWAY_NS = 1000000000, MAX_FILE = 1 << 20 };
struct stopped { int pid; uint64_t since; };
struct startup_monitor { struct stopped at[MOST]; int n; uint64_t checked; };

struct startup_monitor *startup_monitor_new(void) { return mem_alloc(sizeof (struct startup_monitor)); }

/* Whether the process is another child of this one's parent and a signal has stopped it. */
static bool is_stopped(int pid)
{
    struct proc p;
    return pid != getpid() && proc_read(pid, &p) && p.state == 'T' && p.parent == getppid();
}

/* The rank that the launcher gave to a process; -1: unknown. */
static int rank_of(int pid)
{
    char path[40];
    struct text all = {0};
    int rank = -1;
    snprintf(path, sizeof path, "/proc/%d/environ", pid);
    if (text_read_bytes(&all, path, MAX_FILE, NULL)) all.n = 0;
    for (const char *entry = all.s; rank < 0 && entry && entry < all.s + all.n; entry += strlen(entry) + 1)
        rank = launched_rank_in(entry);
    text_free(&all);
    return rank;
}

static uint64_t since_of(const struct startup_monitor *s, int pid, uint64_t now)
{
    for (int i = 0; i < s->n; i++) if (s->at[i].pid == pid) return s->at[i].since;
    return now;
}

static void find(struct startup_monitor *s, uint64_t now)
{
    struct startup_monitor found = {.checked = now};
    uint64_t gap = s->checked && now - s->checked > AWAY_NS ? now - s->checked : 0;
    DIR *d = opendir("/proc");
    for (const struct dirent *entry; d && found.n < MOST && (entry = readdir(d));) {
        int pid = isdigit((unsigned char)*entry->d_name) ? atoi(entry->d_name) : 0;
        if (pid <= 0 || !is_stopped(pid)) continue;
        uint64_t since = since_of(s, pid, now) + gap;
        found.at[found.n++] = (struct stopped){pid, since > now ? now : since};
    }
    if (d) closedir(d);
    *s = found;
}

uint64_t startup_monitor_slept(const struct startup_monitor *s, uint64_t now)
{
    return s->checked ? now - s->checked : 0;
}

/* The lowest rank that is not stopped speaks; higher ranks wait in case it does not. */
static uint64_t patience(const struct startup_monitor *s)
{
    int me = rank_of((int)getpid()), before = me;
    for (int i = 0; i < s->n; i++) before -= rank_of(s->at[i].pid) < me;
    return before > 0 ? (uint64_t)before * DEADLINE_NS(DEADLINE_STARTUP) : 0;
}

uint64_t startup_monitor_poll(struct startup_monitor *s, uint64_t now, uint64_t limit_ns, struct err *e)
{
    char host[72] = "", rank[24] = "a rank";
    find(s, now);
    for (int i = 0; i < s->n && limit_ns; i++) {
        uint64_t ns = now - s->at[i].since;
        if (ns <= limit_ns || ns <= limit_ns + patience(s)) continue;
        gethostname(host, sizeof host - 1);
        if (rank_of(s->at[i].pid) >= 0) snprintf(rank, sizeof rank, "rank %d", rank_of(s->at[i].pid));
        err_set(e, E_HANG, "%s (%s, process %d) is not responding: starting MPI, for %.1f s", rank, host,
                s->at[i].pid, (double)ns * 1e-9);
        return ns;
    }
    return 0;
}
