/* Costs as a value: estimated from FLOPs and bytes when nothing was measured. */
#include <stdlib.h>
#include "plan/plan.h"

/* One core of a current server: about 60 GFLOP/s in convolutions, 10 GB/s from memory. Only ratios matter to a plan, and --plan says "estimated". */
enum { FLOP_PER_NS = 60, BYTES_PER_NS = 10 };

struct cost *cost_estimate(const struct selection *s)
{
    struct cost *k = mem_alloc(sizeof *k);
    *k = (struct cost){.origin = "estimated", .n_groups = s->n_groups, .latency_ns = 5000, .bytes_per_ns = 5, .optimizer_ns_per_byte = 3.0 / BYTES_PER_NS};
    k->f = mem_alloc((size_t)s->n_groups * sizeof(double));
    k->b = mem_alloc((size_t)s->n_groups * sizeof(double));
    k->w = mem_alloc((size_t)s->n_groups * sizeof(double));
    for (int i = 0; i < s->n_groups; i++) {
        const struct group *g = &s->group[i];
        double flops = 0, bytes = (double)shape_count(&s->g->tensor[g->out].shape) * 4;
        for (int j = 0; j < g->n_nodes; j++) flops += (double)graph_flops(s->g, g->node[j]);
        for (int j = 0; j < g->n_in; j++) bytes += (double)shape_count(&s->g->tensor[g->in[j]].shape) * 4;
        double ns = flops / FLOP_PER_NS + bytes / BYTES_PER_NS;
        k->f[i] = ns;
        k->b[i] = g->grad_in || g->pgrad_in_b ? ns : 0;
        k->w[i] = g->pgrad_in_w ? ns : 0;
    }
    return k;
}

void cost_free(struct cost *k)
{
    if (!k) return;
    free(k->f); free(k->b); free(k->w);
    free(k);
}
