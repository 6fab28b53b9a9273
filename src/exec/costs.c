/* Costs from what all ranks measured in profiled steps. */
#include <stdlib.h>
#include <string.h>
#include "exec/costs.h"
#include "exec/exec_int.h"
#include "plan/cost.h"

/* Bytes that this rank sends and receives in a step; in_place: without those that are read in place. */
static double posted_bytes(const struct plan *p, int rank, bool in_place)
{
    double sum = 0;
    for (int i = 0; i < p->row_n[rank]; i++) {
        const struct act *a = &p->row[rank][i];
        if (!act_is_post(a->op)) continue;
        if (!in_place || !channel_lends(p->chan[a->chan].kind)) sum += (double)act_bytes(p, a);
    }
    return sum;
}

static double calls_of(const struct plan *p, int rank)
{
    double n = 0;
    for (int i = 0; i < p->row_n[rank]; i++) {
        const struct act *a = &p->row[rank][i];
        if (act_info[a->op].kind != KIND_PROGRAM) continue;
        const struct prog *g = act_prog(p, a);
        int first, end;
        act_groups(p, a, &first, &end);
        for (int j = 0; j < g->n; j++) if (g->k[j].group >= first && g->k[j].group < end) n += a->n_mb;
    }
    return n;
}

void spent_add(struct spent *m, const struct exec *s, int plan, const struct report *r)
{
    m->calls += calls_of(s->q.plan[plan], s->rank);
    m->optimizer_ns += (double)r->ns[ACC_OPTIMIZER];
    m->optimizer_bytes += (double)s->q.pl->update_bytes[s->rank];
    m->transfer_ns += (double)(r->ns[ACC_TRANSFER] - (r->read_ns < r->ns[ACC_TRANSFER] ? r->read_ns : 0));
    m->transfer_bytes += posted_bytes(s->q.plan[plan], s->rank, r->read_bytes > 0);
    m->read_ns += (double)r->read_ns;
    m->read_bytes += (double)r->read_bytes;
    m->sum_ns += (double)r->sum_ns;
    m->sum_bytes += (double)r->sum_bytes;
    m->fetch_ns += (double)r->fetch_ns;
    m->fetch_bytes += (double)r->fetch_bytes;
}

/* ---- numbers to be added over ranks ---------------------------------------------------------- */

/* Of a kernel and of loading one rank has a time and all others have zero, so the sum is that time. The rest are totals
 * of all ranks. Then come each kernel's time, its share of a core, and its page faults. */
enum {
    LOAD, OPTIMIZER, OPTIMIZER_BYTES, TRANSFER, TRANSFER_BYTES, ADDING, ADDED_BYTES, READING, READ_BYTES, CALLS,
    FETCHING, FETCHED_BYTES,
    KERNELS, MEDIANS, BEST, SUMS
};

static int cells(const struct cost *k) { return k->n_sizes * PH_COUNT * k->n_groups; }
static int cell(const struct cost *k, int size, enum phase ph, int group)
{
    return (int)(cost_cell(k, size, ph, group) - k->ns);
}

int costs_count(const struct cost *k) { return SUMS + 3 * cells(k); }

void costs_mine(const struct exec *s, int first, const struct spent *mine, const struct cost *k, double *x)
{
    const double sum[SUMS] = {0, mine->optimizer_ns, mine->optimizer_bytes, mine->transfer_ns, mine->transfer_bytes,
                             mine->sum_ns, mine->sum_bytes, mine->read_ns, mine->read_bytes, mine->calls,
                             mine->fetch_ns, mine->fetch_bytes};
    int n = cells(k);
    memcpy(x, sum, sizeof sum);
    for (int i = 0; i < n; i++) {
        int size = i / (PH_COUNT * k->n_groups), group = i % k->n_groups;
        enum phase ph = (enum phase)(i / k->n_groups % PH_COUNT);
        struct pressure met = exec_profile_pressure(s, first + size, ph, group);
        x[SUMS + i] = exec_profile_ns(s, first + size, ph, group);
        x[SUMS + n + i] = met.core;
        x[SUMS + 2 * n + i] = met.faults;
    }
    for (int i = 0; i < k->n_sizes; i++) {
        struct kernel_sums kernels = exec_profile_sums(s, first + i);
        x[KERNELS] += kernels.all;
        x[MEDIANS] += kernels.at_medians;
        x[BEST] += kernels.at_best;
        x[LOAD] = exec_profile_load_ns(s, first + i) / k->size[i];
    }
}

static double ratio(double a, double b) { return b > 0 ? a / b : 0; }

/* A thread polls messages after each kernel. The time of that beyond the bytes themselves does not depend on their
 * number. So where links were measured, it counts as the kernels'. */
static double beside_bytes(const struct cost *k, const double *x)
{
    double ns = x[TRANSFER] - k->busy_ns_per_byte * x[TRANSFER_BYTES];
    return ns > 0 ? ratio(ns, x[CALLS]) : 0;
}

void costs_take(struct cost *k, const double *x)
{
    bool known = k->busy_ns_per_byte > 0;
    double more = known ? beside_bytes(k, x) : 0;
    double above = x[MEDIANS] > 0 ? x[KERNELS] / x[MEDIANS] : 1;
    k->spread = ratio(x[KERNELS], x[BEST]);
    for (int i = 0; i < cells(k); i++) k->ns[i] = x[SUMS + i] > 0 ? x[SUMS + i] * above + more : 0;
    k->load_ns = x[LOAD];
    k->optimizer_ns_per_byte = ratio(x[OPTIMIZER], x[OPTIMIZER_BYTES]);
    k->read_ns_per_byte = ratio(x[READING], x[READ_BYTES]);
    k->sum_ns_per_byte = ratio(x[ADDING], x[ADDED_BYTES]);
    k->disk_ns_per_byte = ratio(x[FETCHING], x[FETCHED_BYTES]);
    if (!known) k->busy_ns_per_byte = ratio(x[TRANSFER], x[TRANSFER_BYTES]);
}

struct pressure costs_pressure(const struct cost *k, const double *x, int size, enum phase ph, int group)
{
    int n = cells(k), i = cell(k, size, ph, group);
    return (struct pressure){.core = x[SUMS + n + i], .faults = x[SUMS + 2 * n + i]};
}

int costs_gather(struct exec *s, int first, const struct spent *mine, struct cost *k, struct err *e)
{
    int n = costs_count(k);
    double *x = mem_alloc((size_t)n * sizeof *x);
    costs_mine(s, first, mine, k, x);
    int bad = exec_reduce(s, x, n, e);
    if (!bad) costs_take(k, x);
    free(x);
    return bad ? -1 : 0;
}

/* A sum over ranks makes each measurement known to all. */
int costs_links_measure(struct exec *s, struct cost *k, struct err *e)
{
    int n = s->q.pl->mesh.size[AXIS_PP];
    struct cost *guess = cost_estimate(s->q.sel);
    k->latency_ns = n > 1 ? 0 : guess->latency_ns;
    k->bytes_per_ns = guess->bytes_per_ns;
    k->busy_ns_per_byte = n > 1 ? 0 : guess->busy_ns_per_byte;
    cost_free(guess);
    for (int r = 0; r + 1 < n; r++) {
        struct link l;
        if (link_measure(s, r, r + 1, &l, e)) return -1;
        double x[3] = {0};
        if (s->rank == r) x[0] = l.latency_ns, x[1] = l.bytes_per_ns, x[2] = l.busy_ns_per_byte;
        if (exec_reduce(s, x, 3, e)) return -1;
        if (x[0] > k->latency_ns) k->latency_ns = x[0];
        if (r == 0 || x[1] < k->bytes_per_ns) k->bytes_per_ns = x[1];
        if (x[2] > k->busy_ns_per_byte) k->busy_ns_per_byte = x[2];
    }
    return 0;
}
