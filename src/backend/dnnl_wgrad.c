/* Weight gradients by outer products: a tile of 8 input x 32 output channels in registers, a list of points for each kernel position. */
#include <immintrin.h>
#include <stdlib.h>
#include "backend/dnnl_wgrad.h"
#include "base/mem.h"

#pragma GCC target("avx512f")

enum { BLOCK = 16, HALF = 8, TILE = BLOCK * BLOCK };

struct point { int32_t in, out; };                       /* offsets in floats within a plane */
struct tap { struct point *point; int n; };
struct wgrad {
    struct wgrad_shape s;
    int64_t in_points, out_points, taps;
    struct tap *tap;
};

static int64_t product(const int64_t *d, int n)
{
    int64_t p = 1;
    for (int i = 0; i < n; i++) p *= d[i];
    return p;
}

bool wgrad_wanted(const struct wgrad_shape *s)
{
    int64_t points = product(s->out, s->dims), taps = product(s->kernel, s->dims);
    return s->out_blocks % 2 == 0 && points <= (taps > 1 ? 64 : 16);
}

/* Offset in the input plane that output point `at` meets at kernel position `tap`, or -1 in the padding. */
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
    w->tap = mem_alloc((size_t)w->taps * sizeof *w->tap);
    for (int64_t t = 0; t < w->taps; t++) {
        struct tap *k = &w->tap[t];
        k->point = mem_alloc((size_t)w->out_points * sizeof *k->point);
        for (int64_t p = 0; p < w->out_points; p++) {
            int64_t at = input_point(s, p, t);
            if (at >= 0) k->point[k->n++] = (struct point){(int32_t)(at * BLOCK), (int32_t)(p * BLOCK)};
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

/* Rows of the accumulators of two output blocks, 8 input channels. */
static inline __attribute__((always_inline)) void tile_run(const struct wgrad *w, const struct tap *k, const float *x, const float *g,
                                                           float *d0, float *d1, bool acc)
{
    int64_t x_step = w->s.in_blocks * w->in_points * BLOCK, g_step = w->s.out_blocks * w->out_points * BLOCK, g_next = w->out_points * BLOCK;
    __m512 a[HALF], b[HALF];
    for (int i = 0; i < HALF; i++) {
        a[i] = acc ? _mm512_loadu_ps(d0 + BLOCK * i) : _mm512_setzero_ps();
        b[i] = acc ? _mm512_loadu_ps(d1 + BLOCK * i) : _mm512_setzero_ps();
    }
    for (int n = 0; n < w->s.n; n++, x += x_step, g += g_step)
        for (int p = 0; p < k->n; p++) {
            const float *xp = x + k->point[p].in, *gp = g + k->point[p].out;
            __m512 ga = _mm512_loadu_ps(gp), gb = _mm512_loadu_ps(gp + g_next);
#pragma GCC unroll 8
            for (int i = 0; i < HALF; i++) {
                __m512 v = _mm512_set1_ps(xp[i]);
                a[i] = _mm512_fmadd_ps(v, ga, a[i]);
                b[i] = _mm512_fmadd_ps(v, gb, b[i]);
            }
        }
    for (int i = 0; i < HALF; i++) {
        _mm512_storeu_ps(d0 + BLOCK * i, a[i]);
        _mm512_storeu_ps(d1 + BLOCK * i, b[i]);
    }
}

/* Both halves of a pair of tiles: [in][out] of one kernel position. */
static void pair_run(const struct wgrad *w, int64_t ob, int64_t ib, int64_t t, const float *x, const float *gout, float *grad, bool acc)
{
    float *d0 = grad + ((ob * w->s.in_blocks + ib) * w->taps + t) * TILE, *d1 = d0 + w->s.in_blocks * w->taps * TILE;
    const float *xb = x + ib * w->in_points * BLOCK, *gb = gout + ob * w->out_points * BLOCK;
    for (int h = 0; h < BLOCK; h += HALF) {
        if (acc) tile_run(w, &w->tap[t], xb + h, gb, d0 + h * BLOCK, d1 + h * BLOCK, true);
        else tile_run(w, &w->tap[t], xb + h, gb, d0 + h * BLOCK, d1 + h * BLOCK, false);
    }
}

void wgrad_run(const struct wgrad *w, const float *x, const float *gout, float *grad, bool acc)
{
    for (int64_t ob = 0; ob < w->s.out_blocks; ob += 2)
        for (int64_t ib = 0; ib < w->s.in_blocks; ib++)
            for (int64_t t = 0; t < w->taps; t++) pair_run(w, ob, ib, t, x, gout, grad, acc);
}
