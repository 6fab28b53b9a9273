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
    int64_t in_points, out_points, taps, x_points;       /* x_points: of a packed input plane */
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
    for (int i = 0; i < s->dims; i++)
        if (taps == 1 && s->padding[i]) return false;
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
    w->x_points = w->taps == 1 ? w->out_points : w->in_points;
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

size_t wgrad_work(const struct wgrad *w)
{
    return ((size_t)(w->s.in_blocks * w->s.n * w->x_points) + (size_t)(2 * w->s.n * w->out_points)) * BLOCK * sizeof(float);
}

/* [sample][block][point] -> [block][sample][point], of a 1x1 convolution only the points it reads: samples far apart in memory would fall
 * on the same few sets of the caches. */
static void input_pack(const struct wgrad *w, const float *x, float *to)
{
    const struct tap *k = &w->tap[0];
    for (int64_t ib = 0; ib < w->s.in_blocks; ib++)
        for (int n = 0; n < w->s.n; n++) {
            const float *from = x + (n * w->s.in_blocks + ib) * w->in_points * BLOCK;
            for (int64_t p = 0; p < w->x_points; p++, to += BLOCK)
                _mm512_storeu_ps(to, _mm512_loadu_ps(from + (w->taps == 1 ? k->point[p].in : p * BLOCK)));
        }
}

/* Two blocks of gout: [sample][point][32]. */
static void gout_pack(const struct wgrad *w, const float *gout, int64_t ob, float *to)
{
    int64_t next = w->out_points * BLOCK;
    for (int n = 0; n < w->s.n; n++) {
        const float *from = gout + (n * w->s.out_blocks + ob) * next;
        for (int64_t p = 0; p < next; p += BLOCK, to += 2 * BLOCK) {
            _mm512_storeu_ps(to, _mm512_loadu_ps(from + p));
            _mm512_storeu_ps(to + BLOCK, _mm512_loadu_ps(from + next + p));
        }
    }
}

struct tile { __m512 a[HALF], b[HALF]; };                /* 8 input channels x two output blocks */

static inline __attribute__((always_inline)) void tile_step(struct tile *t, const float *x, const float *g)
{
    __m512 ga = _mm512_loadu_ps(g), gb = _mm512_loadu_ps(g + BLOCK);
#pragma GCC unroll 8
    for (int i = 0; i < HALF; i++) {
        __m512 v = _mm512_set1_ps(x[i]);
        t->a[i] = _mm512_fmadd_ps(v, ga, t->a[i]);
        t->b[i] = _mm512_fmadd_ps(v, gb, t->b[i]);
    }
}

/* n packed planes at kernel position k; of a 1x1 convolution all points of all samples lie behind each other. */
static inline __attribute__((always_inline)) void tile_run(const struct wgrad *w, const struct tap *k, int n, const float *x, const float *g,
                                                           float *d0, float *d1, bool acc, bool pointwise)
{
    struct tile t;
    for (int i = 0; i < HALF; i++) {
        t.a[i] = acc ? _mm512_loadu_ps(d0 + BLOCK * i) : _mm512_setzero_ps();
        t.b[i] = acc ? _mm512_loadu_ps(d1 + BLOCK * i) : _mm512_setzero_ps();
    }
    if (pointwise)
        for (int64_t p = n * w->x_points; p > 0; p--, x += BLOCK, g += 2 * BLOCK) tile_step(&t, x, g);
    else
        for (int i = 0; i < n; i++, x += w->x_points * BLOCK, g += w->out_points * 2 * BLOCK)
            for (int p = 0; p < k->n; p++) tile_step(&t, x + k->point[p].in, g + 2 * k->point[p].out);
    for (int i = 0; i < HALF; i++) {
        _mm512_storeu_ps(d0 + BLOCK * i, t.a[i]);
        _mm512_storeu_ps(d1 + BLOCK * i, t.b[i]);
    }
}

/* One kernel position of one input block and two output blocks: [in][out]. */
static void pair_run(const struct wgrad *w, int64_t t, int n, const float *x, const float *g, float *d0, bool acc)
{
    float *d1 = d0 + w->s.in_blocks * w->taps * TILE;
    const struct tap *k = &w->tap[t];
    for (int h = 0; h < BLOCK; h += HALF, x += HALF, d0 += HALF * BLOCK, d1 += HALF * BLOCK) {
        if (w->taps == 1 && acc) tile_run(w, k, n, x, g, d0, d1, true, true);
        else if (w->taps == 1) tile_run(w, k, n, x, g, d0, d1, false, true);
        else if (acc) tile_run(w, k, n, x, g, d0, d1, true, false);
        else tile_run(w, k, n, x, g, d0, d1, false, false);
    }
}

/* All kernel positions, a few samples at a time: as many as stay in the first level cache. */
static void block_run(const struct wgrad *w, const float *x, const float *g, float *grad, bool acc)
{
    int64_t sample = (w->x_points + 2 * w->out_points) * BLOCK;
    int fit = (int)((24 << 10) / (sample * (int64_t)sizeof(float))), step = fit > 1 ? fit : 1;
    for (int n = 0; n < w->s.n; n += step) {
        int count = w->s.n - n < step ? w->s.n - n : step;
        for (int64_t t = 0; t < w->taps; t++)
            pair_run(w, t, count, x + n * w->x_points * BLOCK, g + n * w->out_points * 2 * BLOCK, grad + t * TILE, acc || n > 0);
    }
}

void wgrad_run(const struct wgrad *w, const float *x, const float *gout, float *grad, bool acc, void *work)
{
    int64_t panel = w->s.n * w->x_points * BLOCK;
    float *xp = work, *gp = xp + w->s.in_blocks * panel;
    input_pack(w, x, xp);
    for (int64_t ob = 0; ob < w->s.out_blocks; ob += 2) {
        gout_pack(w, gout, ob, gp);
        for (int64_t ib = 0; ib < w->s.in_blocks; ib++) block_run(w, xp + ib * panel, gp, grad + (ob * w->s.in_blocks + ib) * w->taps * TILE, acc);
    }
}
