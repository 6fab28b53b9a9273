/* Weight gradients by outer products: preparation before the first call. The loops are in cpu_wgrad_impl.h. */
#include <stdlib.h>
#include "backend/cpu/cpu_wgrad_int.h"
#include "base/mem.h"

static int64_t product(const int64_t *d, int n)
{
    int64_t p = 1;
    for (int i = 0; i < n; i++) p *= d[i];
    return p;
}

/* Without padding a 1x1 kernel needs no list of points. */
bool wgrad_can(const struct wgrad_shape *s)
{
    int64_t taps = product(s->kernel, s->dims);
    for (int i = 0; i < s->dims; i++)
        if (taps == 1 && s->padding[i]) return false;
    return s->out_blocks % 2 == 0;
}

bool wgrad_wanted(const struct wgrad_shape *s)
{
    int64_t points = product(s->out, s->dims), taps = product(s->kernel, s->dims);
    /* measured layer by layer, micro-batches of 4 and 32 */
    return s->lanes == 16 ? points <= (taps > 1 ? 64 : 16) : points <= (taps > 1 ? 32 : 4);
}

/* Offset in the input plane that output point `at` reads at kernel position `tap`, or -1 in the padding. */
static int64_t input_point(const struct wgrad_shape *s, int64_t at, int64_t tap)
{
    int64_t offset = 0, stride = 1;
    for (int d = s->dims - 1; d >= 0; d--) {
        int64_t i = at % s->out[d] * s->stride[d] - s->padding[d] + tap % s->kernel[d] * s->dilation[d];
        if (i < 0 || i >= s->in[d]) return -1;
        offset += i * stride;
        stride *= s->in[d];
        at /= s->out[d];
        tap /= s->kernel[d];
    }
    return offset;
}

struct wgrad *wgrad_new(const struct wgrad_shape *s)
{
    struct wgrad *w = mem_alloc(sizeof *w);
    w->s = *s;
    w->in_points = product(s->in, s->dims);
    w->out_points = product(s->out, s->dims);
    w->taps = product(s->kernel, s->dims);
    w->x_points = w->taps == 1 ? w->out_points : w->in_points;
    w->tap = mem_alloc((size_t)w->taps * sizeof *w->tap);
    for (int64_t t = 0; t < w->taps; t++) {
        struct tap *k = &w->tap[t];
        k->point = mem_alloc((size_t)w->out_points * sizeof *k->point);
        for (int64_t p = 0; p < w->out_points; p++) {
            int64_t at = input_point(s, p, t);
            if (at >= 0) k->point[k->n++] = (struct point){(int32_t)(at * s->lanes), (int32_t)(p * s->lanes)};
        }
    }
    return w;
}

void wgrad_free(struct wgrad *w)
{
    if (!w) return;
    for (int64_t t = 0; t < w->taps; t++) free(w->tap[t].point);
    free(w->tap);
    free(w);
}

size_t wgrad_work(const struct wgrad_shape *s)
{
    const int64_t out = product(s->out, s->dims),
                  x = product(s->kernel, s->dims) == 1 ? out : product(s->in, s->dims);
    return (size_t)(s->n * (s->in_blocks * x + 2 * s->threads * out) * s->lanes) * sizeof(float);
}

void wgrad_run(const struct wgrad *w, const float *x, const float *gout, float *grad, bool acc, void *work)
{
    (w->s.lanes == 16 ? wgrad_run_avx512 : wgrad_run_avx2)(w, x, gout, grad, acc, work);
}
