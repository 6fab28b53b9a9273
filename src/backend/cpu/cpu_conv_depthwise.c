/* Depthwise convolutions in bf16 on channels last, for processors with AVX512_BF16. Weights are floats in the order
 * [position of the kernel][channel].
 *
 * A point of `to` is the sum over the points of `from` that it reads, its taps: outputs read inputs, and gradients of
 * inputs those of outputs. Sums of a point are floats; weight gradients are floats over 64 points, then doubles. */
#include <stdlib.h>
#include <string.h>
#include "backend/cpu/cpu_int.h"
#include "model/ops/window.h"

#pragma GCC target("avx512f,avx512dq,avx512bw,avx512vl,avx512bf16,prefer-vector-width=512")

#include "backend/cpu/cpu_half_lanes.h"

enum { WIDE = 4, POINTS = 64, CHANNELS = 2 * LANES };   /* vectors side by side; of a part */

/* What the positions along a dimension read: n pairs of position in the kernel and point. */
struct depth_reach { int n; int64_t (*pair)[2]; };
struct depth_side { int64_t from[3], to[3], kernel[3]; struct depth_reach *reach[3]; int64_t (*pairs)[2]; };
struct depth_tap { int64_t from, position; };            /* elements before the first channel; of the kernel */
struct depth_kernel { struct be_kernel base; int64_t channels; struct depth_side g; };

/* ---- geometry -------------------------------------------------------------------------------- */

static void side_make(struct depth_side *g, const struct window *w, bool back)
{
    int64_t all = 0;
    memcpy(g->from, back ? w->out : w->in, sizeof g->from);
    memcpy(g->to, back ? w->in : w->out, sizeof g->to);
    memcpy(g->kernel, w->k, sizeof g->kernel);
    for (int d = 0; d < 3; d++) all += g->to[d] * w->k[d];
    int64_t (*pair)[2] = g->pairs = mem_alloc((size_t)all * sizeof *g->pairs);
    for (int d = 0; d < 3; d++) {
        g->reach[d] = mem_alloc((size_t)g->to[d] * sizeof *g->reach[d]);
        for (int64_t i = 0; i < g->to[d]; i++) {
            struct depth_reach *r = &g->reach[d][i];
            r->pair = pair;
            for (int64_t k = 0; k < w->k[d]; k++) {
                const int64_t x = back ? i + w->p[d] - k * w->d[d] : i * w->s[d] + k * w->d[d] - w->p[d],
                              at = back ? x / w->s[d] : x;
                if (x < 0 || (back && x % w->s[d]) || at >= g->from[d]) continue;
                r->pair[r->n][0] = k;
                r->pair[r->n++][1] = at;
            }
            pair += r->n;
        }
    }
}

static void side_free(struct depth_side *g)
{
    for (int d = 0; d < 3; d++) free(g->reach[d]);
    free(g->pairs);
}

/* The taps of a point; points of samples follow each other. */
static int taps_find(const struct depth_kernel *k, int64_t point, struct depth_tap *tap)
{
    const struct depth_side *g = &k->g;
    const int64_t points = window_size(g->to), sample = point / points, at = point % points;
    const struct depth_reach a = g->reach[0][at / (g->to[1] * g->to[2])], b = g->reach[1][at / g->to[2] % g->to[1]],
                             c = g->reach[2][at % g->to[2]];
    int n = 0;
    for (int i = 0; i < a.n; i++)
        for (int j = 0; j < b.n; j++)
            for (int l = 0; l < c.n; l++) {
                const int64_t position = (a.pair[i][0] * g->kernel[1] + b.pair[j][0]) * g->kernel[2] + c.pair[l][0],
                              from = ((sample * g->from[0] + a.pair[i][1]) * g->from[1] + b.pair[j][1]) * g->from[2] +
                                     c.pair[l][1];
                tap[n++] = (struct depth_tap){from * k->channels, position};
            }
    return n;
}

/* ---- outputs, and gradients of inputs -------------------------------------------------------- */

struct depth_call {
    const struct depth_kernel *k; const uint16_t *from; const float *weights, *bias; uint16_t *to; bool acc;
    int64_t points; char *work;                          /* points of all samples */
    const uint16_t *gout; float *sums;                   /* of weight gradients */
};

/* n vectors of channels from c on. */
INLINE void channels_sum(const struct depth_call *d, const struct depth_tap *tap, int taps, uint16_t *to, int64_t c,
                         int n)
{
    __m512 sum[WIDE];
    __mmask16 m[WIDE];
    for (int v = 0; v < n; v++) {
        m[v] = lanes_left(d->k->channels - c - v * LANES);
        sum[v] = d->bias ? _mm512_maskz_loadu_ps(m[v], d->bias + c + v * LANES) : _mm512_setzero_ps();
    }
    for (int t = 0; t < taps; t++) {
        const float *w = d->weights + tap[t].position * d->k->channels;
        for (int v = 0; v < n; v++)
            sum[v] = _mm512_fmadd_ps(ld(d->from + tap[t].from + c + v * LANES, m[v]),
                                     _mm512_maskz_loadu_ps(m[v], w + c + v * LANES), sum[v]);
    }
    for (int v = 0; v < n; v++) {
        uint16_t *at = to + c + v * LANES;
        if (d->acc) sum[v] = _mm512_add_ps(sum[v], ld(at, m[v]));
        st(at, m[v], sum[v]);
    }
}

static size_t tap_bytes(const struct depth_side *g)
{
    return size_align64((size_t)window_size(g->kernel) * sizeof(struct depth_tap));
}

static void points_run(const void *data, int thread, int64_t from, int64_t to)
{
    const struct depth_call *d = data;
    struct depth_tap *tap = (void *)(d->work + (size_t)thread * tap_bytes(&d->k->g));
    for (int64_t p = from * POINTS; p < to * POINTS && p < d->points; p++) {
        const int taps = taps_find(d->k, p, tap);
        uint16_t *at = d->to + p * d->k->channels;
        int64_t c = 0;
        for (; c + WIDE * LANES <= d->k->channels; c += WIDE * LANES) channels_sum(d, tap, taps, at, c, WIDE);
        for (; c < d->k->channels; c += LANES) channels_sum(d, tap, taps, at, c, 1);
    }
}

static int pass_run(struct be *b, struct be_kernel *base, const struct be_call *c, struct err *e)
{
    const struct depth_kernel *k = (const struct depth_kernel *)base;
    const bool back = base->key.phase != PH_FWD;
    const struct depth_call d = {.k = k, .from = back ? c->gout : c->in[0], .weights = c->param[0],
                                 .bias = back ? NULL : c->param[1], .to = back ? c->gin[0] : c->out,
                                 .acc = back && c->gin_acc & 1, .points = base->key.samples * window_size(k->g.to),
                                 .work = c->work};
    cpu_each(b->s->dev.threads, (d.points + POINTS - 1) / POINTS, points_run, &d);
    return 0;
}

/* ---- gradients of weights -------------------------------------------------------------------- */

/* Memory of a thread: sums in double and in float, and taps. */
static size_t sums_bytes(const struct depth_side *g, size_t element)
{
    return size_align64((size_t)(window_size(g->kernel) * CHANNELS) * element);
}
static size_t thread_bytes(const struct depth_side *g)
{
    return sums_bytes(g, sizeof(double)) + sums_bytes(g, sizeof(float)) + tap_bytes(g);
}

/* sum += the products of a point, for CHANNELS channels from c on */
INLINE void point_add(const struct depth_call *d, const struct depth_tap *tap, int taps, int64_t p, int64_t c,
                      float *sum)
{
    const int64_t all = d->k->channels;
    const __mmask16 m[2] = {lanes_left(all - c), lanes_left(all - c - LANES)};
    const __m512 g[2] = {ld(d->gout + p * all + c, m[0]), ld(d->gout + p * all + c + LANES, m[1])};
    for (int t = 0; t < taps; t++)
        for (int v = 0; v < 2; v++) {
            float *to = sum + tap[t].position * CHANNELS + v * LANES;
            _mm512_storeu_ps(to, _mm512_fmadd_ps(ld(d->from + tap[t].from + c + v * LANES, m[v]), g[v],
                                                 _mm512_loadu_ps(to)));
        }
}

static void channels_run(const void *data, int thread, int64_t from, int64_t to)
{
    const struct depth_call *d = data;
    const struct depth_side *g = &d->k->g;
    const int64_t count = window_size(g->kernel) * CHANNELS;
    double *sums = (void *)(d->work + (size_t)thread * thread_bytes(g));
    float *part = (void *)((char *)sums + sums_bytes(g, sizeof *sums));
    struct depth_tap *tap = (void *)((char *)part + sums_bytes(g, sizeof *part));
    for (int64_t c = from * CHANNELS; c < to * CHANNELS && c < d->k->channels; c += CHANNELS) {
        memset(sums, 0, (size_t)count * sizeof *sums);
        memset(part, 0, (size_t)count * sizeof *part);
        for (int64_t p = 0; p < d->points; p++) {
            const int taps = taps_find(d->k, p, tap);
            point_add(d, tap, taps, p, c, part);
            if ((p + 1) % POINTS && p + 1 < d->points) continue;
            for (int64_t i = 0; i < count; i++) sums[i] += (double)part[i], part[i] = 0;
        }
        for (int64_t i = 0; i < count; i++) {
            float *at = d->sums + i / CHANNELS * d->k->channels + c + i % CHANNELS;
            if (c + i % CHANNELS < d->k->channels) *at = (d->acc ? *at : 0) + (float)sums[i];
        }
    }
}

static int depth_weights_run(struct be *b, struct be_kernel *base, const struct be_call *c, struct err *e)
{
    const struct depth_kernel *k = (const struct depth_kernel *)base;
    const struct depth_call d = {.k = k, .from = c->in[0], .gout = c->gout, .sums = c->pgrad[0], .acc = c->pgrad_acc,
                                 .points = base->key.samples * window_size(k->g.to), .work = c->work};
    if (c->pgrad[1]) cpu_sum_rows(b, c->gout, d.points, k->channels, c->pgrad[1], c->pgrad_acc);
    if (d.sums) cpu_each(b->s->dev.threads, (k->channels + CHANNELS - 1) / CHANNELS, channels_run, &d);
    return 0;
}

/* ---- rows ------------------------------------------------------------------------------------ */

static bool is_depthwise(const struct selection *s, const struct node *n)
{
    const struct shape *w = &s->g->param[n->param[0]].shape;
    return s->dev.precision == BFLOAT16 && s->dev.bf16 && !graph_generates(s->g) && w->d[0] > 1 &&
           node_attr_is(n, "groups", w->d[0]) && s->g->tensor[n->in[0]].shape.d[0] == w->d[0];
}

static const char *depthwise_refuses(const struct selection *s, const struct group *k, enum phase ph)
{
    return is_depthwise(s, group_node(s, k)) ? NULL : "";
}

static enum layout depthwise_layout(const struct selection *s, const struct node *n)
{
    return is_depthwise(s, n) ? LAYOUT_LAST : LAYOUT_NONE;
}

static enum layout depthwise_param_layout(const struct selection *s, const struct node *n, int slot)
{
    return slot ? LAYOUT_NONE : depthwise_layout(s, n);
}

static void depth_close(struct be_kernel *base) { side_free(&((struct depth_kernel *)base)->g); }

static struct be_kernel *depth_last_make(struct be *b, const struct be_kernel *like, struct err *e)
{
    const struct shape *in = &b->g->tensor[like->node->in[0]].shape;
    struct depth_kernel *k = kernel_new(like, sizeof *k);
    struct window w;
    k->base.close = depth_close;
    k->base.run = like->key.phase == PH_BWD_WEIGHTS ? depth_weights_run : pass_run;
    k->channels = in->d[0];
    if (!window_make(like->node, in, &w, e)) side_make(&k->g, &w, like->key.phase == PH_BWD_DATA);
    if (k->g.pairs && !kernel_workspace(b, like, (size_t)b->s->dev.threads * thread_bytes(&k->g), e)) return &k->base;
    kernel_free(&k->base);
    return NULL;
}

static struct be_kernel *depthwise_make(struct be *b, const struct be_kernel *like, struct err *e)
{
    const bool last = b->s->tensor[like->k->in[0]].layout == LAYOUT_LAST;
    return last ? depth_last_make(b, like, e) : cpu_convert_make(b, like, CPU_LAST, depth_last_make, e);
}

static size_t depthwise_workspace(const struct selection *s, const struct group *k)
{
    struct depth_side g = {0};
    struct window w;
    struct err none = {0};
    window_make(group_node(s, k), &s->g->tensor[k->in[0]].shape, &w, &none);
    memcpy(g.kernel, w.k, sizeof g.kernel);
    return CPU_WORK + (size_t)s->dev.threads * thread_bytes(&g);
}

const struct kernel_row cpu_rows_conv_depthwise[] = {
    {.name = "bf16", .pattern = PATTERN_OP("conv"), .types = TAKES(BF16), .layouts = ROW_ANY_LAYOUT, .cost = 0.4,
     .refuses = depthwise_refuses, .layout = depthwise_layout, .param_layout = depthwise_param_layout,
     .workspace = depthwise_workspace, .make = depthwise_make},
    {0}};
