/* Costs as a value: estimated from FLOPs and bytes when nothing was measured; cost_file.c reads measured ones. */
#include <stdlib.h>
#include <string.h>
#include "plan/plan.h"

/* One core of a current server: about 60 GFLOP/s in convolutions, 10 GB/s from memory. Only ratios matter to a plan,
 * and --plan says "estimated". */
enum { FLOP_PER_NS = 60, BYTES_PER_NS = 10 };

/* A current GPU, likewise: what is reached, not what is printed on it; by precision. Every kernel costs a launch. */
static const double gpu_flop_per_ns[PRECISIONS] = {[FP32] = 40e3, [TF32] = 250e3, [BFLOAT16] = 450e3};
enum { GPU_BYTES_PER_NS = 3500, GPU_LAUNCH_NS = 4000 };

struct cost *cost_new(const char *origin, int n_groups, int n_sizes)
{
    struct cost *k = mem_alloc(sizeof *k);
    *k = (struct cost){.origin = mem_strdup(origin), .n_groups = n_groups, .n_sizes = n_sizes};
    k->size = mem_alloc((size_t)n_sizes * sizeof *k->size);
    k->ns = mem_alloc((size_t)n_sizes * PH_COUNT * (size_t)n_groups * sizeof *k->ns);
    return k;
}

double *cost_cell(const struct cost *k, int size, enum phase ph, int group)
{
    return &k->ns[((size_t)size * PH_COUNT + (size_t)ph) * (size_t)k->n_groups + (size_t)group];
}

/* A plain loop of the reference kernels: about 15 ns for each element of each window of a pooling, 2 ns for each value that is only moved (measured). */
static double slow_ns(const struct selection *s, const struct group *k)
{
    enum { WINDOW_NS = 15, MOVE_NS = 2 };
    const struct node *n = &s->g->node[k->node[0]];
    int64_t out = shape_count(&s->g->tensor[k->out].shape), values = out, window = 0;
    for (int j = 0; j < k->n_in; j++) values += shape_count(&s->g->tensor[k->in[j]].shape);
    for (int a = 0; n->op->attr && n->op->attr[a].name; a++) {
        if (strcmp(n->op->attr[a].name, "kernel")) continue;
        window = 1;
        for (int i = 1; i < s->g->tensor[k->in[0]].shape.n; i++) window *= n->attr[a].i[n->attr[a].n > 1 ? i - 1 : 0];
    }
    return window ? (double)out * (double)window * WINDOW_NS : (double)values * MOVE_NS;
}

struct cost *cost_estimate(const struct selection *s)
{
    struct cost *k = cost_new("estimated", s->n_groups, 1);
    k->latency_ns = 5000;
    bool gpu = s->dev.channels_last;
    double flop_per_ns = gpu ? gpu_flop_per_ns[s->dev.precision] : FLOP_PER_NS, bytes_per_ns = gpu ? GPU_BYTES_PER_NS : BYTES_PER_NS;
    k->bytes_per_ns = gpu ? 100 : 5;
    k->optimizer_ns_per_byte = 3.0 / bytes_per_ns;
    k->size[0] = 1;
    for (int i = 0; i < s->n_groups; i++) {
        const struct group *g = &s->group[i];
        double flops = 0, bytes = (double)select_sample_bytes(s, g->out);
        for (int j = 0; j < g->n_nodes; j++) flops += (double)graph_flops(s->g, g->node[j]);
        for (int j = 0; j < g->n_in; j++) bytes += (double)select_sample_bytes(s, g->in[j]);
        double ns = flops / flop_per_ns + bytes / bytes_per_ns + (gpu ? GPU_LAUNCH_NS : 0) + (g->slow ? slow_ns(s, g) : 0);
        *cost_cell(k, 0, PH_FWD, i) = ns;
        *cost_cell(k, 0, PH_BWD_DATA, i) = g->grad_in || g->pgrad_in_b ? ns : 0;
        *cost_cell(k, 0, PH_BWD_WEIGHTS, i) = g->pgrad_in_w ? ns : 0;
    }
    return k;
}

/* Between two sizes a straight line, below the smallest in proportion, above the largest at the largest one's speed. */
double cost_ns(const struct cost *k, enum phase ph, int group, int n)
{
    int hi = 0, last = k->n_sizes - 1;
    while (hi < last && k->size[hi] < n) hi++;
    double at_hi = *cost_cell(k, hi, ph, group);
    if (hi == 0 || n >= k->size[last]) return at_hi * n / k->size[hi];
    double at_lo = *cost_cell(k, hi - 1, ph, group);
    return at_lo + (at_hi - at_lo) * (n - k->size[hi - 1]) / (k->size[hi] - k->size[hi - 1]);
}

double cost_speed(const struct cost *k, int rank) { return rank < k->n_speed ? k->speed[rank] : 1; }

void cost_free(struct cost *k)
{
    if (!k) return;
    free(k->size);
    free(k->speed);
    free(k->ns);
    free(k->origin);
    free(k);
}
