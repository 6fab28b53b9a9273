/* Timing the first steps of a run. */
#include <stdlib.h>
#include "daemon/probe.h"

/* No kernel needs more samples; nobody should wait longer than that for a word about a slow one. */
enum { MOST_SAMPLES = 64 };
#define LONG_NS 10e9

struct probe {
    const struct job *job;
    struct stage *stage;
    int rank, plan, keep, steps;
    uint64_t last;                                        /* step */
    double took_ns;
    bool over;
    struct spent spent;
    struct cost *k;                                       /* only its sizes */
    double *x;
    int n;
};

static const struct plan *full(const struct job *j) { return j->plan_of[PLAN_FULL] >= 0 ? j->plan[j->plan_of[PLAN_FULL]] : NULL; }

struct cost *probe_costs(const struct job *j)
{
    struct cost *k = cost_new("measured", j->sel->n_groups, 1);
    k->size[0] = full(j)->mb_n[0];
    return k;
}

int probe_count(const struct job *j)
{
    if (j->be->lane || !full(j) || job_steps(j) < PROBE_FIRST) return 0;
    struct cost *k = probe_costs(j);
    int n = costs_count(k) + 2;
    cost_free(k);
    return n;
}

struct probe *probe_new(const struct job *j, struct stage *s, int rank)
{
    int n = probe_count(j);
    if (!n) return NULL;
    struct probe *p = mem_alloc(sizeof *p);
    *p = (struct probe){.job = j, .stage = s, .rank = rank, .plan = j->plan_of[PLAN_FULL], .n = n};
    p->last = job_steps(j) < PROBE_LAST ? job_steps(j) : PROBE_LAST;
    p->keep = (PROBE_LAST - PROBE_FIRST + 1) * full(j)->n_mb;
    if (p->keep > MOST_SAMPLES) p->keep = MOST_SAMPLES;
    p->k = probe_costs(j);
    p->x = mem_alloc((size_t)n * sizeof *p->x);
    stage_profile(s, p->keep);                            /* takes the memory */
    stage_profile_stop(s);
    return p;
}

void probe_before(struct probe *p, const struct order *o)
{
    if (p && !p->over && o->kind == ORDER_TRAIN && o->step == PROBE_FIRST) stage_profile(p->stage, p->keep);
}

const double *probe_after(struct probe *p, const struct order *o, const struct report *r)
{
    if (!p || p->over || o->kind != ORDER_TRAIN || o->step < PROBE_FIRST) return NULL;
    if ((int)o->plan == p->plan) {
        spent_add(&p->spent, p->stage, p->plan, r);
        p->took_ns += (double)r->total_ns;
        p->steps++;
    }
    if (o->step < p->last && p->took_ns < LONG_NS) return NULL;
    p->over = true;
    stage_profile_stop(p->stage);
    costs_mine(p->stage, p->plan, &p->spent, p->k, p->x);
    p->x[p->n - 2] = p->steps;
    p->x[p->n - 1] = p->rank == 0 ? (double)o->step : 0;
    return p->x;
}

void probe_free(struct probe *p)
{
    if (!p) return;
    cost_free(p->k);
    free(p->x);
    free(p);
}
