/* Weight gradients by outer products: a tile of half a block of input channels and two blocks of output channels in
 * registers, and a list of points for each kernel position. Compiled once for each instruction set. The includer
 * defines BLOCK, WGRAD_RUN and the vector type with its operations. */
#include "backend/cpu/cpu_int.h"
#include "backend/cpu/cpu_wgrad_int.h"

enum { HALF = BLOCK / 2, TILE = BLOCK * BLOCK };

/* A call, and its copy of x in panels of a block. */
struct wgrad_call { const struct wgrad *w; const float *x, *gout; float *grad, *xp, *gp; bool acc; int64_t panel; };

/* [sample][block][point] -> [block][sample][point]; for a 1x1 convolution only the points it reads. Samples far apart
 * in memory would fall on the same few sets of the caches. */
static void input_pack(const void *data, int thread, int64_t first, int64_t end)
{
    const struct wgrad_call *c = data;
    const struct wgrad *w = c->w;
    const struct tap *k = &w->tap[0];
    float *to = c->xp + first * c->panel;
    for (int64_t ib = first; ib < end; ib++)
        for (int n = 0; n < w->s.n; n++) {
            const float *from = c->x + (n * w->s.in_blocks + ib) * w->in_points * BLOCK;
            for (int64_t p = 0; p < w->x_points; p++, to += BLOCK)
                VEC_STORE(to, VEC_LOAD(from + (w->taps == 1 ? k->point[p].in : p * BLOCK)));
        }
}

/* Two blocks of gout: [sample][point][lanes of both]. */
static void gout_pack(const struct wgrad *w, const float *gout, int64_t ob, float *to)
{
    int64_t next = w->out_points * BLOCK;
    for (int n = 0; n < w->s.n; n++) {
        const float *from = gout + (n * w->s.out_blocks + ob) * next;
        for (int64_t p = 0; p < next; p += BLOCK, to += 2 * BLOCK) {
            VEC_STORE(to, VEC_LOAD(from + p));
            VEC_STORE(to + BLOCK, VEC_LOAD(from + next + p));
        }
    }
}

struct planes { const float *x, *g; int n; };            /* of n samples, packed */
struct tile { VEC_T a[HALF], b[HALF]; };                 /* half a block of input channels x two output blocks */

static inline __attribute__((always_inline)) void tile_step(struct tile *t, const float *x, const float *g)
{
    VEC_T ga = VEC_LOAD(g), gb = VEC_LOAD(g + BLOCK);
#pragma GCC unroll 8
    for (int i = 0; i < HALF; i++) {
        VEC_T v = VEC_SET(x[i]);
        t->a[i] = VEC_FMA(v, ga, t->a[i]);
        t->b[i] = VEC_FMA(v, gb, t->b[i]);
    }
}

/* At kernel position k. All points of all samples of a 1x1 convolution follow each other. */
static inline __attribute__((always_inline)) void tile_run(const struct wgrad *w, const struct tap *k,
                                                           struct planes in, float *d0, bool acc, bool pointwise)
{
    const float *x = in.x, *g = in.g;
    const int n = in.n;
    float *d1 = d0 + w->s.in_blocks * w->taps * TILE;
    struct tile t;
    for (int i = 0; i < HALF; i++) {
        t.a[i] = acc ? VEC_LOAD(d0 + BLOCK * i) : VEC_ZERO();
        t.b[i] = acc ? VEC_LOAD(d1 + BLOCK * i) : VEC_ZERO();
    }
    if (pointwise)
        for (int64_t p = n * w->x_points; p > 0; p--, x += BLOCK, g += 2 * BLOCK) tile_step(&t, x, g);
    else
        for (int i = 0; i < n; i++, x += w->x_points * BLOCK, g += w->out_points * 2 * BLOCK)
            for (int p = 0; p < k->n; p++) tile_step(&t, x + k->point[p].in, g + 2 * k->point[p].out);
    for (int i = 0; i < HALF; i++) {
        VEC_STORE(d0 + BLOCK * i, t.a[i]);
        VEC_STORE(d1 + BLOCK * i, t.b[i]);
    }
}

/* One kernel position of one input block and two output blocks: [in][out]. */
static void pair_run(const struct wgrad *w, int64_t t, struct planes in, float *d0, bool acc)
{
    const struct tap *k = &w->tap[t];
    for (int h = 0; h < BLOCK; h += HALF, in.x += HALF, d0 += HALF * BLOCK) {
        if (w->taps == 1 && acc) tile_run(w, k, in, d0, true, true);
        else if (w->taps == 1) tile_run(w, k, in, d0, false, true);
        else if (acc) tile_run(w, k, in, d0, true, false);
        else tile_run(w, k, in, d0, false, false);
    }
}

/* All kernel positions, for as many samples at a time as fit the first level cache. */
static void block_run(const struct wgrad *w, const float *x, const float *g, float *grad, bool acc)
{
    int64_t sample = (w->x_points + 2 * w->out_points) * BLOCK;
    int fit = (int)((24 << 10) / (sample * (int64_t)sizeof(float))), step = fit > 1 ? fit : 1;
    for (int n = 0; n < w->s.n; n += step) {
        struct planes in = {x + n * w->x_points * BLOCK, g + n * w->out_points * 2 * BLOCK,
                            w->s.n - n < step ? w->s.n - n : step};
        for (int64_t t = 0; t < w->taps; t++) pair_run(w, t, in, grad + t * TILE, acc || n > 0);
    }
}

/* Some pairs of an input block with two output blocks. */
static void blocks_run(const void *data, int thread, int64_t from, int64_t to)
{
    const struct wgrad_call *c = data;
    const struct wgrad *w = c->w;
    float *gp = c->gp + thread * w->s.n * w->out_points * 2 * BLOCK;
    for (int64_t i = from; i < to; i++) {
        const int64_t ob = i / w->s.in_blocks * 2, ib = i % w->s.in_blocks;
        if (i == from || !ib) gout_pack(w, c->gout, ob, gp);
        block_run(w, c->xp + ib * c->panel, gp, c->grad + (ob * w->s.in_blocks + ib) * w->taps * TILE, c->acc);
    }
}

void WGRAD_RUN(const struct wgrad *w, const float *x, const float *gout, float *grad, bool acc, void *work)
{
    struct wgrad_call c = {w, x, gout, grad, work, NULL, acc, w->s.n * w->x_points * BLOCK};
    c.gp = c.xp + w->s.in_blocks * c.panel;
    cpu_each(w->s.threads, w->s.in_blocks, input_pack, &c);
    cpu_each(w->s.threads, w->s.out_blocks / 2 * w->s.in_blocks, blocks_run, &c);
}
