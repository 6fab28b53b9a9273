/* Times the first steps of a run. */
#include <stdlib.h>
#include <string.h>
#include "train/warmup_profile.h"
#include "plan/cost.h"

/* More samples do not improve the time of a kernel. */
enum { MOST_SAMPLES = 64 };
/* Kernels are timed after WARM_NS of steps, from the second step of this process on, when their costs are stable. After
 * LONG_NS timing ends, because the line about slow kernels is due. */
#define WARM_NS 0.2e9
#define LONG_NS 10e9

struct warmup_profile {
    const struct job *job;
    struct exec *exec;
    int rank, plan, keep, steps;
    uint64_t first, last;                                 /* steps that are timed */
    double took_ns, ran_ns;                        /* time of the timed steps; of all steps since the first timed one */
    bool over;
    struct spent spent;
    struct cost *k;                                       /* for its sizes */
    double *x;
    int n;
};

static const struct plan *full(const struct job *j) { return j->plan[j->plan_of[PLAN_FULL]]; }

/* Sets which steps are timed next. */
static void window(struct warmup_profile *p, uint64_t first)
{
    uint64_t steps = job_steps(p->job);
    p->first = first;
    p->last = steps < first + WARMUP_STEPS - 1 ? steps : first + WARMUP_STEPS - 1;
    p->spent = (struct spent){0};
    p->took_ns = p->steps = 0;
}

struct warmup_profile *warmup_new(const struct job *j, struct exec *s, int rank, uint64_t behind)
{
    int n = warmup_count(j);
    if (!n) return NULL;
    struct warmup_profile *p = mem_alloc(sizeof *p);
    *p = (struct warmup_profile){.job = j, .exec = s, .rank = rank, .plan = j->plan_of[PLAN_FULL], .n = n};
    window(p, behind + WARMUP_FIRST);
    p->keep = WARMUP_STEPS * full(j)->n_mb;
    if (p->keep > MOST_SAMPLES) p->keep = MOST_SAMPLES;
    p->k = warmup_costs(j);
    p->x = mem_alloc((size_t)n * sizeof *p->x);
    exec_profile(s, p->keep);                            /* allocates memory */
    exec_profile_stop(s);
    return p;
}

void warmup_before(struct warmup_profile *p, const struct order *o)
{
    if (p && !p->over && o->kind == ORDER_TRAIN && o->step == p->first) exec_profile(p->exec, p->keep);
}

static const double *numbers(struct warmup_profile *p)
{
    p->over = true;
    exec_profile_stop(p->exec);
    costs_mine(p->exec, p->plan, &p->spent, p->k, p->x);
    p->x[p->n - 3] = p->steps;
    p->x[p->n - 2] = p->rank == 0 ? (double)p->first : 0;
    p->x[p->n - 1] = p->rank == 0 ? (double)p->last : 0;
    if (job_coord(p->job, p->rank).at[AXIS_DP]) memset(p->x, 0, (size_t)p->n * sizeof *p->x);   /* the first reports */
    return p->x;
}

const double *warmup_after(struct warmup_profile *p, const struct order *o, const struct report *r)
{
    if (!p || p->over || o->kind != ORDER_TRAIN || o->step < p->first) return NULL;
    p->ran_ns += (double)r->total_ns;
    if ((int)o->plan == p->plan) {
        spent_add(&p->spent, p->exec, p->plan, r);
        p->took_ns += (double)r->total_ns;
        p->steps++;
    }
    if (p->took_ns >= LONG_NS) p->last = o->step;
    if (o->step < p->last) return NULL;
    if (p->ran_ns >= WARM_NS || o->step + WARMUP_STEPS > job_steps(p->job)) return numbers(p);
    window(p, o->step + 1);
    return NULL;
}

void warmup_again(struct warmup_profile *p, uint64_t step)
{
    if (p && !p->over) window(p, step + 1 > WARMUP_FIRST ? step + 1 : WARMUP_FIRST);
}

void warmup_free(struct warmup_profile *p)
{
    if (!p) return;
    cost_free(p->k);
    free(p->x);
    free(p);
}
