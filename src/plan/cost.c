/* Costs as a value: estimated from FLOPs and bytes if nothing was measured; cost_file.c reads measured costs. */
#include <stdlib.h>
#include <string.h>
#include "plan/cost.h"
#include "plan/plan.h"

/* limits of a micro-batch's activations: up to NEAR a core's cache has space for them, up to MID the processor's */
#define NEAR_BYTES 2e6
#define MID_BYTES 16e6

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

/* ---- estimates --------------------------------------------------------------------------------------------------- */

static double activation_bytes(const struct selection *s, const struct group *g)
{
    double bytes = 0;
    for (int i = 0; i < g->n_out; i++) bytes += (double)select_sample_bytes(s, g->outs[i]);
    for (int i = 0; i < g->n_in; i++) bytes += (double)select_sample_bytes(s, g->in[i]);
    return bytes;
}

static double weight_bytes(const struct selection *s, const struct group *g)
{
    double bytes = 0;
    for (int i = 0; i < g->n_param; i++) bytes += 4 * (double)shape_count(&s->g->param[g->param[i]].shape);
    return bytes;
}

static double nominal_flops(const struct selection *s, const struct group *g)
{
    double flops = 0;
    for (int i = 0; i < g->n_nodes; i++) flops += (double)graph_flops(s->g, g->node[i]);
    return flops;
}

/* An attribute's value in a spatial dimension; a single value holds for all dimensions. */
static int64_t attr_at(const struct node *n, const char *name, int dim)
{
    const struct attr_value *v = &n->attr[op_attr(n->op, name)];
    return v->i[v->n == 1 ? 0 : dim];
}

/* The share of the kernel's positions along a dimension that meet the input instead of its padding. */
static double inside(const struct node *n, int dim, int64_t in, int64_t out, int64_t kernel)
{
    int64_t step = attr_at(n, "stride", dim), pad = attr_at(n, "padding", dim), apart = attr_at(n, "dilation", dim),
            hits = 0;
    for (int64_t k = 0; k < kernel; k++) {                /* outputs o with 0 <= o * step + at < in */
        int64_t at = k * apart - pad, first = at < 0 ? (-at + step - 1) / step : 0;
        int64_t last = at < in ? (in - 1 - at) / step : -1;
        if (last > out - 1) last = out - 1;
        if (last >= first) hits += last - first + 1;
    }
    return (double)hits / (double)(kernel * out);
}

/* The share that remains when kernels leave padding out; small planes are mostly padding. A transposed convolution has
 * its windows on the output. */
static double padding_left_out(const struct selection *s, const struct group *g)
{
    const struct node *n = &s->g->node[g->node[0]];
    bool turned = n->op->category == OP_CONV_TRANSPOSED;
    const struct shape *in = &s->g->tensor[turned ? g->out : g->in[0]].shape,
                       *out = &s->g->tensor[turned ? g->in[0] : g->out].shape, *w = &s->g->param[g->param[0]].shape;
    double share = 1;
    for (int i = 1; i < out->n; i++) share *= inside(n, i - 1, in->d[i], out->d[i], w->d[i + 1]);
    return share;
}

static double at_rate(double n, double rate) { return rate > 0 ? n / rate : 0; }

static double pass_ns(const struct device_speed *v, double bytes)
{
    return bytes / (bytes <= NEAR_BYTES ? v->near : bytes <= MID_BYTES ? v->mid : v->far);
}

/* Slow kernels (group.slow) take about 1 ns for each multiply-add, 15 ns for each element of each pooling window, 2 ns
 * for each value that they only move (measured). */
static double slow_ns(const struct selection *s, const struct group *k)
{
    enum { WINDOW_NS = 15, MOVE_NS = 2 };
    if (nominal_flops(s, k) > 0) return nominal_flops(s, k) / 2;
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

/* Forward and input gradients; omitted padding does not count. Threads share only products. */
static void product_ns(const struct selection *s, const struct group *g, int n, double ns[PH_COUNT])
{
    const struct device_speed *v = s->dev.speed;
    const struct shape *o = &s->g->tensor[g->out].shape;
    bool conv = op_has_windows(s->g->node[g->node[0]].op), point = conv && shape_count(o) == o->d[0];
    double flops = nominal_flops(s, g) * n, bytes = activation_bytes(s, g) * n;
    if (g->share > 0) flops *= g->share;
    else if (conv && !v->padding) flops *= padding_left_out(s, g);
    double threads = s->dev.threads > 1 ? 1 + v->threads * (s->dev.threads - 1) : 1;
    const bool wide = g->row[PH_FWD] && select_widens(s, g->row[PH_FWD], g);
    double product = flops / v->flops[wide ? FP32 : s->dev.precision] / threads,
           once = at_rate(weight_bytes(s, g), v->weights);
    ns[PH_FWD] = ns[PH_BWD_DATA] = product * (point ? v->point_times : 1) + once + bytes / v->mid;
    ns[PH_BWD_WEIGHTS] = product + once + bytes / v->mid;
    /* forward has two products; backward repeats one of them and has two gradients of each */
    if (s->g->node[g->node[0]].op->category == OP_ATTENTION) ns[PH_BWD_DATA] += 1.5 * product;
    /* a head with its loss computes its logits, and the gradients of both factors from the same logits */
    if (g->is_loss) ns[PH_BWD_DATA] += 2 * product;
    if (g->is_loss && g->row[PH_FWD] && g->row[PH_FWD]->late) ns[PH_FWD] = 0;
}

/* Time for a micro-batch of n samples. Products cost their operations, and their weights once, which counts where
 * samples are few. Everything else costs its bytes. */
static void group_ns(const struct selection *s, const struct group *g, int n, double ns[PH_COUNT])
{
    const struct device_speed *v = s->dev.speed;
    const struct op_kind *op = s->g->node[g->node[0]].op;
    double bytes = activation_bytes(s, g) * n, pass = pass_ns(v, bytes);
    ns[PH_FWD] = ns[PH_BWD_DATA] = ns[PH_BWD_WEIGHTS] = pass;
    if (op->category == OP_NORM || op->category == OP_NORM_SAMPLES) {
        double channels = v->channel_ns * (double)s->g->tensor[g->out].shape.d[0] * (op->category == OP_NORM ? 1 : n);
        ns[PH_FWD] += channels;
        ns[PH_BWD_DATA] = v->norm_back * pass + channels;
    } else if (op->draws || (g->is_loss && !(nominal_flops(s, g) > 0))) {
        ns[PH_FWD] = ns[PH_BWD_DATA] = bytes / v->values;
    } else if (nominal_flops(s, g) > 0) {
        product_ns(s, g, n, ns);
    }
    for (int ph = 0; ph < PH_COUNT; ph++) ns[ph] += v->launch_ns * n;
}

/* Sizes 1, 2, 4, ... and the largest micro-batch. */
static struct cost *estimate_new(const struct selection *s)
{
    int most = s->dev.speed->steady || s->max_samples < 1 ? 1 : s->max_samples, n = 1;
    for (int size = 1; size < most; size *= 2) n++;
    struct cost *k = cost_new("estimated", s->n_groups, n);
    for (int i = 0; i < n; i++) k->size[i] = i == n - 1 ? most : 1 << i;
    return k;
}

/* Bytes of a sample, without its targets. */
static size_t inputs_bytes(const struct selection *s)
{
    size_t sum = 0;
    for (int i = 0; i < s->g->n_inputs; i++)
        if (s->g->input[i].role == ROLE_SAMPLE) sum += select_sample_bytes(s, s->g->input[i].tensor);
    return sum;
}

struct cost *cost_estimate(const struct selection *s)
{
    struct cost *k = estimate_new(s);
    const struct device_speed *v = s->dev.speed;
    k->latency_ns = v->latency_ns;
    k->bytes_per_ns = v->transfer;
    k->busy_ns_per_byte = v->busy_ns_per_byte;
    k->optimizer_ns_per_byte = 3.0 / v->far;
    k->load_ns = at_rate((double)inputs_bytes(s), v->load);
    k->disk_ns_per_byte = 1;                             /* a solid-state disk: 1 GB/s */
    k->host_ns_per_byte = 0.04;                          /* 16 lanes of PCIe 4.0: 25 GB/s */
    for (int z = 0; z < k->n_sizes; z++)
        for (int i = 0; i < s->n_groups; i++) {
            const struct group *g = &s->group[i];
            double ns[PH_COUNT];
            group_ns(s, g, k->size[z], ns);
            for (int ph = 0; g->slow && ph < PH_COUNT; ph++) ns[ph] += slow_ns(s, g) * k->size[z];
            *cost_cell(k, z, PH_FWD, i) = ns[PH_FWD];
            *cost_cell(k, z, PH_BWD_DATA, i) = g->grad_in || g->pgrad_in_b ? ns[PH_BWD_DATA] : 0;
            *cost_cell(k, z, PH_BWD_WEIGHTS, i) = g->pgrad_in_w ? ns[PH_BWD_WEIGHTS] : 0;
        }
    return k;
}

/* Linear between two sizes. Below the smallest size in proportion to it; above the largest at the largest one's
 * speed. */
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

struct cost *cost_take(struct cost **list, int threads)
{
    for (; *list; list = &(*list)->other) {
        struct cost *k = *list;
        if (k->threads != threads) continue;
        *list = k->other;
        k->other = NULL;
        return k;
    }
    return NULL;
}

void cost_free(struct cost *k)
{
    if (!k) return;
    cost_free(k->other);
    free(k->size);
    free(k->speed);
    free(k->ns);
    free(k->origin);
    free(k);
}

/* ---- disturbed measurements -------------------------------------------------------------------------------------- */

void cost_doubt(double spread, const char *what, struct text *out)
{
    const double WARN = 1.3;
    if (spread > WARN)
        text_add(out, "warning: %s: the machine was busy: kernels took %.2f times their shortest times; "
                      "measure again when it is idle\n", what, spread);
}

int cost_spread_check(const struct cost *k, const char *what, double limit, int code, struct err *e)
{
    if (k->spread <= limit) return 0;
    return err_set(e, code, "%s: the machine was busy: kernels took %.2f times their shortest times, more than "
                            "pipeline.profile_spread = %g: measure again when it is idle, or set a higher limit", what,
                   k->spread, limit);
}
