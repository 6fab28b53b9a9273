/* Measuring single kernels: they run in real steps, at their place in the pipeline, during the other ranks' work. */
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include "exec/meter_int.h"

struct kernel_times { int n; uint64_t *ns, wall_ns, core_ns, faults; }; /* the last three: of all recorded calls */
struct profile { int keep, n_plans, n_groups; struct kernel_times *kernel, *load; }; /* kernel: [plan][phase][group] */

static void note(const struct profile *p, struct kernel_times *to, uint64_t ns)
{
    if (to->n < p->keep) to->ns[to->n++] = ns;
}

static int ascending(const void *a, const void *b)
{
    uint64_t x = *(const uint64_t *)a, y = *(const uint64_t *)b;
    return (x > y) - (x < y);
}

static double median(const struct kernel_times *from)
{
    if (!from->n) return 0;
    qsort(from->ns, (size_t)from->n, sizeof *from->ns, ascending);
    int half = from->n / 2;
    return from->n % 2 ? (double)from->ns[half] : ((double)from->ns[half - 1] + (double)from->ns[half]) / 2;
}

static struct kernel_times samples_new(int keep)
{
    return (struct kernel_times){.ns = mem_alloc((size_t)keep * sizeof(uint64_t))};
}

static struct kernel_times *kernel_of(const struct profile *p, int plan, enum phase ph, int group)
{
    return &p->kernel[(plan * PH_COUNT + (int)ph) * p->n_groups + group];
}

static int kernels_of(const struct profile *p) { return p->n_plans * PH_COUNT * p->n_groups; }

static struct profile *profile_new(int keep, int n_plans, int n_groups)
{
    struct profile *p = mem_alloc(sizeof *p);
    *p = (struct profile){.keep = keep, .n_plans = n_plans, .n_groups = n_groups};
    p->kernel = mem_alloc((size_t)kernels_of(p) * sizeof *p->kernel);
    p->load = mem_alloc((size_t)n_plans * sizeof *p->load);
    for (int i = 0; i < kernels_of(p); i++) p->kernel[i] = samples_new(keep);
    for (int i = 0; i < n_plans; i++) p->load[i] = samples_new(keep);
    return p;
}

static void forget(struct kernel_times *k) { *k = (struct kernel_times){.ns = k->ns}; }

void exec_profile(struct exec *s, int keep)
{
    if (!s->meter->profiled) s->meter->profiled = profile_new(keep, s->n_bound, s->q.sel->n_groups);
    struct profile *p = s->meter->profile = s->meter->profiled;
    for (int i = 0; i < kernels_of(p); i++) forget(&p->kernel[i]);
    for (int i = 0; i < s->n_bound; i++) forget(&p->load[i]);
}

void exec_profile_stop(struct exec *s) { s->meter->profile = NULL; }

/* Pages that had to come from a disk: memory that was swapped out. */
static uint64_t faults_now(void)
{
    struct rusage u;
    return getrusage(RUSAGE_THREAD, &u) ? 0 : (uint64_t)u.ru_majflt;
}

void noted_begin(struct noted *k)
{
    k->faults = faults_now();
    k->core_ns = clock_thread_ns();
}

void noted_end(struct noted *k)
{
    k->core_ns = clock_thread_ns() - k->core_ns;
    k->faults = faults_now() - k->faults;
}

void profile_note(struct profile *p, int plan, enum phase ph, int group, const struct noted *k)
{
    struct kernel_times *to = kernel_of(p, plan, ph, group);
    note(p, to, k->ns);
    to->wall_ns += k->ns;
    to->core_ns += k->core_ns;
    to->faults += k->faults;
}

void profile_note_load(struct profile *p, int plan, uint64_t ns) { note(p, &p->load[plan], ns); }

double exec_profile_ns(const struct exec *s, int plan, enum phase ph, int group)
{
    return median(kernel_of(s->meter->profiled, plan, ph, group));
}

double exec_profile_best_ns(const struct exec *s, int plan, enum phase ph, int group)
{
    const struct kernel_times *from = kernel_of(s->meter->profiled, plan, ph, group);
    uint64_t best = from->n ? from->ns[0] : 0;
    for (int i = 1; i < from->n; i++)
        if (from->ns[i] < best) best = from->ns[i];
    return (double)best;
}

double exec_profile_load_ns(const struct exec *s, int plan) { return median(&s->meter->profiled->load[plan]); }

struct pressure exec_profile_pressure(const struct exec *s, int plan, enum phase ph, int group)
{
    const struct kernel_times *from = kernel_of(s->meter->profiled, plan, ph, group);
    if (!from->wall_ns) return (struct pressure){0};
    double core = (double)from->core_ns / (double)from->wall_ns;
    return (struct pressure){.core = core < 1 ? core : 1, .faults = (double)from->faults};
}

struct kernel_sums exec_profile_sums(const struct exec *s, int plan)
{
    const struct profile *p = s->meter->profiled;
    struct kernel_sums sum = {0};
    for (int i = 0; i < PH_COUNT * p->n_groups; i++) {
        const struct kernel_times *from = &p->kernel[plan * PH_COUNT * p->n_groups + i];
        for (int k = 0; k < from->n; k++) sum.all += (double)from->ns[k];
        sum.at_medians += median(from) * from->n;        /* which sorts ns */
        if (from->n) sum.at_best += (double)from->ns[0] * from->n;
    }
    return sum;
}

void profile_free(struct profile *p)
{
    if (!p) return;
    for (int i = 0; i < kernels_of(p); i++) free(p->kernel[i].ns);
    for (int i = 0; i < p->n_plans; i++) free(p->load[i].ns);
    free(p->kernel);
    free(p->load);
    free(p);
}
