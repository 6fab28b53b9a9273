/* Costs from what all ranks measured in profiled steps. */
#include "exec/costs.h"
#include "exec/stage_int.h"

/* What this rank sends to and receives from others in a step. */
static double posted_bytes(const struct plan *p, int rank)
{
    double sum = 0;
    for (int i = 0; i < p->row_n[rank]; i++) {
        const struct act *a = &p->row[rank][i];
        if (!act_info[a->op].post) continue;
        const struct channel *c = &p->chan[a->chan];
        if (c->from_rank == c->to_rank) continue;
        sum += (double)c->bytes_per_sample * (act_info[a->op].has_mb ? p->mb_n[a->mb] : 1);
    }
    return sum;
}

void spent_add(struct spent *m, const struct stage *s, int plan, const struct report *r)
{
    m->optimizer_ns += (double)r->ns[ACC_OPTIMIZER];
    m->optimizer_bytes += (double)s->q.pl->grad_bytes[s->rank];
    m->transfer_ns += (double)r->ns[ACC_TRANSFER];
    m->transfer_bytes += posted_bytes(s->q.plan[plan], s->rank);
}

static double ratio(double a, double b) { return b > 0 ? a / b : 0; }

/* Of a kernel and of loading one rank has a time and all others zero, so their sum is what it said; the rest are totals of all ranks. */
int costs_gather(struct stage *s, int first, const struct spent *mine, struct cost *k, double *spells, struct err *e)
{
    enum { LOAD, OPTIMIZER, OPTIMIZER_BYTES, TRANSFER, TRANSFER_BYTES, KERNELS, MEDIANS, SUMS };
    int n = k->n_sizes * PH_COUNT * k->n_groups;
    double sum[SUMS] = {0, mine->optimizer_ns, mine->optimizer_bytes, mine->transfer_ns, mine->transfer_bytes};
    for (int i = 0; i < k->n_sizes; i++) {
        double all, at_medians;
        stage_profile_sums(s, first + i, &all, &at_medians);
        sum[KERNELS] += all;
        sum[MEDIANS] += at_medians;
        sum[LOAD] = stage_profile_load_ns(s, first + i) / k->size[i];
        for (int ph = 0; ph < PH_COUNT; ph++)
            for (int g = 0; g < k->n_groups; g++) *cost_cell(k, i, (enum phase)ph, g) = stage_profile_ns(s, first + i, (enum phase)ph, g);
    }
    if (s->tp->ops->reduce(s->tp, k->ns, n, e) || s->tp->ops->reduce(s->tp, sum, SUMS, e)) return -1;
    *spells = sum[MEDIANS] > 0 ? sum[KERNELS] / sum[MEDIANS] : 1;
    for (int i = 0; i < n; i++) k->ns[i] *= *spells;
    k->load_ns = sum[LOAD];
    k->optimizer_ns_per_byte = ratio(sum[OPTIMIZER], sum[OPTIMIZER_BYTES]);
    k->busy_ns_per_byte = ratio(sum[TRANSFER], sum[TRANSFER_BYTES]);
    return 0;
}

/* A sum makes each known. */
int costs_links_measure(struct stage *s, struct cost *k, struct err *e)
{
    int n = s->tp->ops->size(s->tp);
    struct cost *guess = cost_estimate(s->q.sel);
    k->latency_ns = n > 1 ? 0 : guess->latency_ns;
    k->bytes_per_ns = guess->bytes_per_ns;
    cost_free(guess);
    for (int r = 0; r + 1 < n; r++) {
        double link[2] = {0};
        if (link_measure(s, r, r + 1, &link[0], &link[1], e)) return -1;
        if (s->rank != r) link[0] = link[1] = 0;
        if (s->tp->ops->reduce(s->tp, link, 2, e)) return -1;
        if (link[0] > k->latency_ns) k->latency_ns = link[0];
        if (r == 0 || link[1] < k->bytes_per_ns) k->bytes_per_ns = link[1];
    }
    return 0;
}
