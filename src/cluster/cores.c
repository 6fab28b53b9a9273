/* Measures whether other programs use a rank's cores. */
#include "config.h"
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <unistd.h>
#include "base/clock.h"
#include "base/mem.h"
#include "base/proc.h"
#include "cluster/cores.h"

/* ---- values from the system -------------------------------------------------------------------------------------- */

void core_times_parse(const char *stat, struct core_times *t)
{
    memset(t, 0, sizeof *t);
    for (const char *line = stat; line; line = strchr(line, '\n') ? strchr(line, '\n') + 1 : NULL) {
        unsigned long long user, nice, system, idle, wait, irq, soft;
        unsigned cpu;
        if (sscanf(line, "cpu%u %llu %llu %llu %llu %llu %llu %llu", &cpu, &user, &nice, &system, &idle, &wait, &irq,
                   &soft) != 8 || cpu >= CPU_SETSIZE) continue;
        t->busy[cpu] = user + nice + system + irq + soft;
        t->total[cpu] = t->busy[cpu] + idle + wait;
    }
}

static bool times_read(struct core_times *t)
{
    struct text s = {0};
    bool there = !text_read_file(&s, "/proc/stat", 16 << 20, NULL);
    if (there) core_times_parse(s.s, t);
    text_free(&s);
    return there;
}

/* Finds the first processor of each processor's core; if unknown, the processor itself. */
static void first_read(const cpu_set_t *of, int *first)
{
    char path[80];
    for (int i = 0; i < CPU_SETSIZE; i++) {
        first[i] = i;
        if (!CPU_ISSET(i, of)) continue;
        snprintf(path, sizeof path, "/sys/devices/system/cpu/cpu%d/topology/thread_siblings_list", i);
        FILE *f = fopen(path, "re");
        int least;
        if (f && fscanf(f, "%d", &least) == 1 && least >= 0 && least < CPU_SETSIZE) first[i] = least;
        if (f) fclose(f);
    }
}

/* Gets the processors of the nearest ancestor that may use more of them than this process. False: there is none. */
static bool launcher_cores(const cpu_set_t *mine, cpu_set_t *theirs)
{
    enum { MOST = 8 };
    struct proc p;
    pid_t pid = getppid();
    for (int i = 0; i < MOST && pid > 0; i++, pid = p.parent) {
        cpu_set_t both;
        if (sched_getaffinity(pid, sizeof *theirs, theirs)) return false;
        CPU_AND(&both, mine, theirs);
        if (CPU_EQUAL(&both, mine) && !CPU_EQUAL(theirs, mine)) return true;
        if (!proc_read(pid, &p)) return false;
    }
    return false;
}

/* ---- one rank ---------------------------------------------------------------------------------------------------- */

struct cores { struct core_times before, after; uint64_t began, own; bool there; };

static uint64_t own_ns(void)
{
    struct rusage r;
    getrusage(RUSAGE_SELF, &r);
    uint64_t seconds = (uint64_t)(r.ru_utime.tv_sec + r.ru_stime.tv_sec);
    return seconds * 1000000000 + (uint64_t)(r.ru_utime.tv_usec + r.ru_stime.tv_usec) * 1000;
}

struct cores *cores_begin(void)
{
    struct cores *c = mem_alloc(sizeof *c);
    c->there = times_read(&c->before);
    c->began = clock_ns();
    c->own = own_ns();
    return c;
}

static double share(const struct core_times *a, const struct core_times *b, int cpu)
{
    uint64_t total = b->total[cpu] - a->total[cpu];
    return total && b->total[cpu] > a->total[cpu] ? (double)(b->busy[cpu] - a->busy[cpu]) / (double)total : 0;
}

void core_info_fill(const struct core_times *before, const struct core_times *after, const cpu_set_t *mine,
                    const cpu_set_t *launcher, const int *first, struct core_info *w)
{
    const double NOTHING = 0.25;                          /* of a processor: what an idle system uses */
    cpu_set_t all;
    CPU_ZERO(&all);
    CPU_ZERO(&w->cores);
    CPU_ZERO(&w->idle);
    w->processors = CPU_COUNT(mine);
    w->bound = !CPU_EQUAL(mine, launcher);
    w->busy = 0;
    for (int i = 0; i < CPU_SETSIZE; i++) {
        if (CPU_ISSET(i, mine)) CPU_SET(first[i], &w->cores), w->busy += share(before, after, i);
        if (CPU_ISSET(i, launcher)) CPU_SET(first[i], &all);
    }
    w->idle = w->there = all;
    w->allowed = CPU_COUNT(&all);
    for (int i = 0; i < CPU_SETSIZE; i++)
        if (after->total[i] && share(before, after, i) > NOTHING) CPU_CLR(first[i], &w->idle);
}

void cores_read(bool launched, struct core_info *w)
{
    cpu_set_t mine, launcher;
    struct core_times *none = mem_alloc(sizeof *none);
    int *first = mem_alloc(CPU_SETSIZE * sizeof *first);
    *w = (struct core_info){0};
    gethostname(w->host, sizeof w->host - 1);
    if (sched_getaffinity(0, sizeof mine, &mine) == 0) {
        if (!launched || !launcher_cores(&mine, &launcher)) launcher = mine;
        first_read(&launcher, first);
        core_info_fill(none, none, &mine, &launcher, first, w);
    }
    free(first);
    free(none);
}

/* A tick is a hundredth of a second, so a measurement takes a quarter of a second to show whether a core is shared.
 * Only a rank that was bound waits that long. */
void cores_end(struct cores *c, bool launched, int threads, struct core_info *w)
{
    enum { ENOUGH_NS = 250000000, LEAST_NS = 150000000 };
    cpu_set_t mine, launcher;
    int *first = mem_alloc(CPU_SETSIZE * sizeof *first);
    *w = (struct core_info){.threads = threads};
    gethostname(w->host, sizeof w->host - 1);
    if (c->there && sched_getaffinity(0, sizeof mine, &mine) == 0) {
        bool bound = launched && launcher_cores(&mine, &launcher);
        if (!bound) launcher = mine;
        while (bound && clock_ns() - c->began < ENOUGH_NS) { }
        double ns = (double)(clock_ns() - c->began);
        w->measured = ns >= LEAST_NS && times_read(&c->after);
        w->own = (double)(own_ns() - c->own) / ns;
        first_read(&launcher, first);
        core_info_fill(&c->before, &c->after, &mine, &launcher, first, w);
    }
    free(first);
    free(c);
}

/* ---- the report -------------------------------------------------------------------------------------------------- */

struct view { int ranks, threads; double others; cpu_set_t idle; };

static bool same_host(const struct core_info *a, const struct core_info *b) { return strcmp(a->host, b->host) == 0; }

/* The use by all ranks that share a core with w counts as w's own. A rank's cores are never idle, whatever ran there so
 * far. */
static struct view view_of(const struct core_info *all, int n, const struct core_info *w)
{
    struct view v = {.others = w->busy, .idle = w->idle};
    for (int i = 0; i < n; i++) {
        cpu_set_t both;
        if (!same_host(&all[i], w)) continue;
        CPU_AND(&both, &all[i].cores, &w->cores);
        if (CPU_COUNT(&both)) {
            v.ranks++;
            v.threads += all[i].threads;
            v.others -= all[i].own;
        }
        CPU_AND(&both, &v.idle, &all[i].cores);
        if (w->bound) CPU_XOR(&v.idle, &v.idle, &both);
    }
    return v;
}

void cores_spare(const struct core_info *w, int n, int me, cpu_set_t *out)
{
    CPU_ZERO(out);
    if (!w[me].bound) return;
    *out = w[me].there;
    for (int i = 0; i < n; i++) {
        cpu_set_t both;
        if (!same_host(&w[i], &w[me])) continue;
        CPU_AND(&both, out, &w[i].cores);
        CPU_XOR(out, out, &both);
    }
}

/* Whether other programs take a quarter or more of the cores that the threads need. A processor is part of a core. */
static bool disturbed(const struct core_info *w, const struct view *v)
{
    const double QUARTER = 0.25;
    int cores = CPU_COUNT(&w->cores), need = v->threads < cores ? v->threads : cores;
    if (!w->measured || !cores) return false;
    double others = v->others * cores / w->processors;
    return others - (cores - need) >= QUARTER * need;
}

static void where_text(const struct core_info *w, const struct view *v, struct text *out)
{
    int core = 0;
    double part = v->others / w->processors;
    while (core < CPU_SETSIZE - 1 && !CPU_ISSET(core, &w->cores)) core++;
    text_add(out, "%.0f %% of ", 100 * (part < 1 ? part : 1));
    if (CPU_COUNT(&w->cores) == 1) text_add(out, "core %d", core);
    else text_add(out, "%d cores", CPU_COUNT(&w->cores));
}

/* Adds a line about ranks that are disturbed although their launcher has idle cores, and what to do about it. */
static void disturbed_text(const struct core_info *w, int n, struct text *out)
{
    int bound = -1, full = -1, n_bound = 0;
    struct view v;
    for (int i = n - 1; i >= 0; i--) {
        v = view_of(w, n, &w[i]);
        if (!disturbed(&w[i], &v)) continue;
        if (w[i].bound && CPU_COUNT(&v.idle)) bound = i, n_bound++;
        else if (!CPU_COUNT(&v.idle)) full = i;
    }
    int rank = bound >= 0 ? bound : full;
    if (rank < 0) return;
    v = view_of(w, n, &w[rank]);
    if (bound < 0) {
        text_add(out, "note: this machine is busy: other programs take ");
        where_text(&w[rank], &v, out);
        text_add(out, ", and no core is idle; steps take longer, and their times vary\n");
        return;
    }
    text_add(out, "note: rank %d", rank);
    if (n_bound > 1) text_add(out, " and %d more", n_bound - 1);
    text_add(out, " %s bound to cores where other programs run (", n_bound > 1 ? "are" : "is");
    where_text(&w[rank], &v, out);
    text_add(out, "), while %d of %d cores %s idle: use mpirun --bind-to none\n", CPU_COUNT(&v.idle),
             w[rank].allowed, CPU_COUNT(&v.idle) == 1 ? "is" : "are");
}

/* Adds a line if one rank, or all ranks that may use the same processors, have fewer processors than threads. */
static void narrow_text(const struct core_info *w, int n, struct text *out)
{
    for (int i = 0; i < n; i++) {
        struct view v = view_of(w, n, &w[i]);
        int k = w[i].processors;
        if (!k || v.threads <= k) continue;
        if (!w[i].bound && w[i].threads <= k)
            text_add(out, "note: %d ranks of %s, with %d thread%s each, share", v.ranks, w[i].host, w[i].threads,
                     w[i].threads == 1 ? "" : "s");
        else if (n == 1) text_add(out, "note: %d threads compute on", w[i].threads);
        else if (w[i].threads > k)
            text_add(out, "note: rank %d computes with %d threads, but may use", i, w[i].threads);
        else text_add(out, "note: rank %d and %d more are bound to the same", i, v.ranks - 1);
        text_add(out, " %d core%s%s\n", k, k == 1 ? "" : "s", w[i].bound ? ": use mpirun --bind-to none" :
                 n == 1 || w[i].threads > k ? "" : ": they take turns");
        return;
    }
}

void cores_report(const struct core_info *w, int n, struct text *out)
{
    narrow_text(w, n, out);
    disturbed_text(w, n, out);
}
