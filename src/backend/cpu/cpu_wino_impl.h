/* Winograd's F(2x2, 3x3) in planes (cpu_wino.h). Transformed inputs are [point][slot][tile][in], products
 * [point][plane][tile][out], weights and their gradients [point][out block][depth][in][lanes]. Compiled once for each
 * instruction set, after cpu_panel_impl.h. */
#include <string.h>
#include "backend/cpu/cpu_wino_int.h"

enum { PLANE_WEIGHTS = WINO_TAPS * BLOCK * BLOCK };

static int64_t lesser(int64_t a, int64_t b) { return a < b ? a : b; }

/* ---- weights: G g G' --------------------------------------------------------------------------------------------- */

FORCED void taps_in(VEC_T a, VEC_T b, VEC_T c, VEC_T to[WINO_EDGE])
{
    VEC_T half = VEC_SET(0.5f), sum = VEC_ADD(a, c);
    to[0] = a;
    to[1] = VEC_MUL(half, VEC_ADD(sum, b));
    to[2] = VEC_MUL(half, VEC_SUB(sum, b));
    to[3] = c;
}

/* A plane of the kernel, positions `step` floats apart; turned weights begin with the last position. */
static void kernel_in(const float *w, int64_t step, float *to, int64_t point)
{
    VEC_T t[3][WINO_EDGE], u[WINO_EDGE];
    for (int x = 0; x < 3; x++)
        taps_in(VEC_LOAD(w + x * step), VEC_LOAD(w + (3 + x) * step), VEC_LOAD(w + (6 + x) * step), t[x]);
    for (int y = 0; y < WINO_EDGE; y++) {
        taps_in(t[0][y], t[1][y], t[2][y], u);
        for (int x = 0; x < WINO_EDGE; x++) VEC_STORE(to + (WINO_EDGE * y + x) * point, u[x]);
    }
}

/* A block [point][in][out] of weights as [point][out][in]. */
static void block_turn(const float *from, float *to, int points)
{
    for (int p = 0; p < points; p++, from += BLOCK * BLOCK, to += BLOCK * BLOCK)
        for (int i = 0; i < BLOCK; i++)
            for (int o = 0; o < BLOCK; o++) to[o * BLOCK + i] = from[i * BLOCK + o];
}

struct wino_packing { const struct wino *w; const float *from; bool turned; float *to; };

static void blocks_pack(const void *data, int thread, int64_t begin, int64_t end)
{
    const struct wino_packing *k = data;
    const struct wino *w = k->w;
    const bool turned = k->turned;
    const int64_t ins = turned ? w->out_blocks : w->in_blocks, step = (turned ? -1 : 1) * BLOCK * BLOCK;
    const int deep = w->s.deep;
    const float *from = k->from + begin * w->in_blocks * deep * PLANE_WEIGHTS;
    float buffer[WINO_DEEP * PLANE_WEIGHTS];
    for (int64_t o = begin; o < end; o++)
        for (int64_t i = 0; i < w->in_blocks; i++, from += deep * PLANE_WEIGHTS) {
            const float *first = from;
            if (turned) {
                block_turn(from, buffer, deep * WINO_TAPS);
                first = buffer + (deep * WINO_TAPS - 1) * BLOCK * BLOCK;
            }
            float *at = k->to + ((turned ? i : o) * deep * ins + (turned ? o : i)) * BLOCK * BLOCK;
            for (int d = 0; d < deep; d++)
                for (int c = 0; c < BLOCK; c++)
                    kernel_in(first + WINO_TAPS * d * step + c * BLOCK, step, at + (d * ins * BLOCK + c) * BLOCK,
                              w->u_point);
        }
}

static void pack(const struct wino *w, const float *from, bool turned, float *to)
{
    cpu_each(w->s.threads, w->out_blocks, blocks_pack, &(struct wino_packing){w, from, turned, to});
}

/* ---- inputs: B' d B ---------------------------------------------------------------------------------------------- */

/* The four rows that a row of tiles reads; `zero` outside the plane. */
static void rows_find(const struct wino *w, const float *plane, int64_t row, const float *zero, const float *at[4])
{
    for (int64_t i = 0, y = 2 * row - 1; i < WINO_EDGE; i++, y++)
        at[i] = y < 0 || y >= w->s.size[1] ? zero : plane + y * w->s.size[2] * BLOCK;
}

FORCED void column_in(const float *const at[4], int64_t x, int64_t wide, VEC_T to[WINO_EDGE])
{
    if (x < 0 || x >= wide) {
        to[0] = to[1] = to[2] = to[3] = VEC_ZERO();
        return;
    }
    VEC_T a = VEC_LOAD(at[0] + x * BLOCK), b = VEC_LOAD(at[1] + x * BLOCK), c = VEC_LOAD(at[2] + x * BLOCK),
          d = VEC_LOAD(at[3] + x * BLOCK);
    to[0] = VEC_SUB(a, c);
    to[1] = VEC_ADD(b, c);
    to[2] = VEC_SUB(c, b);
    to[3] = VEC_SUB(b, d);
}

/* A row of tiles of one block of channels. */
static void row_in(const struct wino *w, const float *const at[4], float *v)
{
    const int64_t point = w->v_point, wide = w->s.size[2];
    VEC_T a[WINO_EDGE], b[WINO_EDGE], c[WINO_EDGE], d[WINO_EDGE];
    column_in(at, -1, wide, a);
    column_in(at, 0, wide, b);
    for (int64_t x = 0; x < w->wide; x++, v += w->v_tile) {
        column_in(at, 2 * x + 1, wide, c);
        column_in(at, 2 * x + 2, wide, d);
#pragma GCC unroll 4
        for (int i = 0; i < WINO_EDGE; i++) {
            float *to = v + WINO_EDGE * i * point;
            VEC_STORE(to, VEC_SUB(a[i], c[i]));
            VEC_STORE(to + point, VEC_ADD(b[i], c[i]));
            VEC_STORE(to + 2 * point, VEC_SUB(c[i], b[i]));
            VEC_STORE(to + 3 * point, VEC_SUB(b[i], d[i]));
            a[i] = c[i];
            b[i] = d[i];
        }
    }
}

/* One call's tensors and work, and the planes of its step: products of [from, to), whose inputs from `in` on, before
 * in_to, are not yet transformed. Threads share blocks of channels, or points. */
struct wino_pass {
    struct wino w;
    const float *x, *u, *bias, *gout, *zero;
    float *y, *v, *m, *du, *grad, *gbias;
    int64_t from, to, in, in_to;
    bool add, begun;
};

/* Blocks [begin, end) of a plane. */
static void plane_in(const struct wino_pass *k, int64_t plane, int64_t begin, int64_t end)
{
    const struct wino *w = &k->w;
    const int64_t points = w->s.size[1] * w->s.size[2] * BLOCK, depth = w->s.size[0];
    const float *at[4], *from = k->x + (plane / depth * w->in_blocks * depth + plane % depth) * points;
    float *v = k->v + plane % w->slots * w->v_plane;
    for (int64_t r = 0; r < w->rows; r++)
        for (int64_t b = begin; b < end; b++) {
            rows_find(w, from + b * depth * points, w->row + r, k->zero, at);
            row_in(w, at, v + r * w->wide * w->v_tile + b * BLOCK);
        }
}

static void blocks_in(const void *data, int thread, int64_t begin, int64_t end)
{
    const struct wino_pass *k = data;
    for (int64_t p = k->in; p < k->in_to; p++) plane_in(k, p, begin, end);
}

/* The transformed neighbour of a plane; NULL: there is none. */
static const float *neighbour(const struct wino *w, const float *v, int64_t plane, int d)
{
    int64_t to = d - w->s.deep / 2, z = plane % w->s.size[0] + to;
    return z < 0 || z >= w->s.size[0] ? NULL : v + (plane + to) % w->slots * w->v_plane;
}

/* ---- outputs: A' m A --------------------------------------------------------------------------------------------- */

FORCED void tile_out(const float *m, int64_t point, VEC_T y[4])
{
    VEC_T s[2][WINO_EDGE];
#pragma GCC unroll 4
    for (int i = 0; i < WINO_EDGE; i++) {
        VEC_T b = VEC_LOAD(m + (WINO_EDGE + i) * point), c = VEC_LOAD(m + (2 * WINO_EDGE + i) * point);
        s[0][i] = VEC_ADD(VEC_LOAD(m + i * point), VEC_ADD(b, c));
        s[1][i] = VEC_SUB(VEC_SUB(b, c), VEC_LOAD(m + (3 * WINO_EDGE + i) * point));
    }
#pragma GCC unroll 2
    for (int i = 0; i < 2; i++) {
        y[2 * i] = VEC_ADD(s[i][0], VEC_ADD(s[i][1], s[i][2]));
        y[2 * i + 1] = VEC_SUB(VEC_SUB(s[i][1], s[i][2]), s[i][3]);
    }
}

FORCED void point_out(float *to, VEC_T y, VEC_T bias, bool add)
{
    VEC_STORE(to, VEC_ADD(add ? VEC_LOAD(to) : bias, y));
}

/* A row of tiles of one block of channels; first: the block's bias. */
static void row_out(const struct wino *w, const float *m, const float *first, bool add, float *y, int64_t row)
{
    const VEC_T bias = first ? VEC_LOAD(first) : VEC_ZERO();
    const int64_t wide = w->s.size[2];
    const bool both = 2 * row + 1 < w->s.size[1];
    VEC_T t[4];
    y += 2 * row * wide * BLOCK;
    for (int64_t x = 0; x < wide; x += 2, m += w->m_tile, y += 2 * BLOCK) {
        tile_out(m, w->m_point, t);
        point_out(y, t[0], bias, add);
        if (both) point_out(y + wide * BLOCK, t[2], bias, add);
        if (x + 1 == wide) break;
        point_out(y + BLOCK, t[1], bias, add);
        if (both) point_out(y + (wide + 1) * BLOCK, t[3], bias, add);
    }
}

static void plane_out(const struct wino_pass *k, int64_t plane, int64_t begin, int64_t end)
{
    const struct wino *w = &k->w;
    const int64_t points = w->s.size[1] * w->s.size[2] * BLOCK, depth = w->s.size[0];
    const float *m = k->m + (plane - k->from) * w->m_plane;
    float *y = k->y + (plane / depth * w->out_blocks * depth + plane % depth) * points;
    for (int64_t r = 0; r < w->rows; r++)
        for (int64_t b = begin; b < end; b++)
            row_out(w, m + r * w->wide * w->m_tile + b * BLOCK, k->bias ? k->bias + b * BLOCK : NULL, k->add,
                    y + b * depth * points, w->row + r);
}

static void blocks_out(const void *data, int thread, int64_t begin, int64_t end)
{
    const struct wino_pass *k = data;
    for (int64_t p = k->from; p < k->to; p++) plane_out(k, p, begin, end);
}

/* ---- products ---------------------------------------------------------------------------------------------------- */

/* How many planes of a step count as one: all, where none has neighbours, because they lie one after another. */
static int64_t joined(const struct wino *w, int64_t planes) { return w->s.deep == 1 ? planes : 1; }

/* Planes [from, to) of one point of the tiles. */
static void point_run(const struct wino *w, const float *v, const float *u, float *m, int64_t from, int64_t to)
{
    const int64_t part = w->s.in * BLOCK, step = joined(w, to - from);
    for (int64_t b = 0; b < w->out_blocks; b += 2, u += 2 * w->s.deep * part) {
        int blocks = b + 1 < w->out_blocks ? 2 : 1;
        for (int64_t p = from; p < to; p += step) {
            const float *a[WINO_DEEP];
            for (int d = 0; d < w->s.deep; d++) a[d] = neighbour(w, v, p, d);
            struct panel q = {a, w->s.deep, w->s.in, w->v_tile, u, part, w->s.deep * part};
            float *c = m + (p - from) * w->m_plane + b * BLOCK;
            panel_run(&q, step * w->tiles, (struct panel_out){.c = c, .step = w->m_tile, .block = BLOCK}, blocks);
        }
    }
}

static void points_run(const void *data, int thread, int64_t begin, int64_t end)
{
    const struct wino_pass *k = data;
    const struct wino *w = &k->w;
    for (int64_t i = begin; i < end; i++)
        point_run(w, k->v + i * w->v_point, k->u + i * w->u_point, k->m + i * w->m_point, k->from, k->to);
}

/* Calls `step` for each step of planes of each strip, with their inputs transformed. */
static void steps_run(const struct wino *all, struct wino_pass *k, void (*step)(struct wino_pass *k))
{
    for (int64_t row = 0; row < all->high; row += all->rows) {
        k->w = wino_strip(all, row);
        k->in = 0;
        for (k->from = 0; k->from < all->planes; k->from = k->to) {
            k->to = lesser(k->from + all->step, all->planes);
            k->in_to = lesser(k->to + all->s.deep / 2, all->planes);
            cpu_each(all->s.threads, all->in_blocks, blocks_in, k);
            k->in = k->in_to;
            step(k);
        }
    }
}

static void run_step(struct wino_pass *k)
{
    cpu_each(k->w.s.threads, WINO_POINTS, points_run, k);
    cpu_each(k->w.s.threads, k->w.out_blocks, blocks_out, k);
}

static void run(const struct wino *w, const float *x, const float *u, const float *bias, float *y, bool add,
                float *work)
{
    float *m = work + WINO_POINTS * w->v_point, *zero = m + WINO_POINTS * w->m_point;
    memset(zero, 0, (size_t)w->s.size[2] * BLOCK * sizeof *zero);
    steps_run(w, &(struct wino_pass){.x = x, .u = u, .bias = bias, .zero = zero, .y = y, .v = work, .m = m, .add = add},
              run_step);
}

/* ---- weight gradients: G' (B' d B . A g A') G -------------------------------------------------------------------- */

/* A row of tiles of one block of channels; the sum of its points is added to bias[]. */
static void row_gout(const struct wino *w, const float *g, int64_t row, float *m, VEC_T *bias)
{
    const int64_t wide = w->s.size[2], point = w->m_point;
    const bool both = 2 * row + 1 < w->s.size[1];
    const float *at[2] = {g + 2 * row * wide * BLOCK, g + (2 * row + both) * wide * BLOCK};
    VEC_T sum = VEC_ZERO();
    for (int64_t x = 0; x < wide; x += 2, m += w->m_tile) {
        VEC_T t[2][WINO_EDGE];
        for (int i = 0; i < 2; i++) {
            bool is = x + i < wide;
            VEC_T a = is ? VEC_LOAD(at[0] + (x + i) * BLOCK) : VEC_ZERO(),
                  b = is && both ? VEC_LOAD(at[1] + (x + i) * BLOCK) : VEC_ZERO();
            t[i][0] = a;
            t[i][1] = VEC_ADD(a, b);
            t[i][2] = VEC_SUB(a, b);
            t[i][3] = VEC_SUB(VEC_ZERO(), b);
            sum = VEC_ADD(sum, t[i][1]);
        }
#pragma GCC unroll 4
        for (int i = 0; i < WINO_EDGE; i++) {
            float *to = m + WINO_EDGE * i * point;
            VEC_STORE(to, t[0][i]);
            VEC_STORE(to + point, VEC_ADD(t[0][i], t[1][i]));
            VEC_STORE(to + 2 * point, VEC_SUB(t[0][i], t[1][i]));
            VEC_STORE(to + 3 * point, VEC_SUB(VEC_ZERO(), t[1][i]));
        }
    }
    *bias = VEC_ADD(*bias, sum);
}

static void plane_gout(const struct wino_pass *k, int64_t plane, int64_t begin, int64_t end)
{
    const struct wino *w = &k->w;
    const int64_t points = w->s.size[1] * w->s.size[2] * BLOCK, depth = w->s.size[0];
    const float *g = k->gout + (plane / depth * w->out_blocks * depth + plane % depth) * points;
    float *m = k->m + (plane - k->from) * w->m_plane;
    for (int64_t b = begin; b < end; b++) {
        VEC_T sum = VEC_ZERO();
        for (int64_t r = 0; r < w->rows; r++)
            row_gout(w, g + b * depth * points, w->row + r, m + r * w->wide * w->m_tile + b * BLOCK, &sum);
        float *bias = k->gbias ? k->gbias + b * BLOCK : NULL;
        if (bias) VEC_STORE(bias, VEC_ADD(VEC_LOAD(bias), sum));
    }
}

static void blocks_gout(const void *data, int thread, int64_t begin, int64_t end)
{
    const struct wino_pass *k = data;
    for (int64_t p = k->from; p < k->to; p++) plane_gout(k, p, begin, end);
}

/* Planes [from, to) of one point of the tiles, at most WINO_STEP: du = or += (add). */
static void point_weights(const struct wino *w, const float *v, const float *m, float *du, int64_t from, int64_t to,
                          bool add)
{
    const float *a[WINO_STEP], *g[WINO_STEP];
    const int64_t part = w->s.in * BLOCK, step = joined(w, to - from);
    for (int64_t b = 0; b < w->out_blocks; b += 2, du += w->s.deep * part) {
        int blocks = b + 1 < w->out_blocks ? 2 : 1;
        for (int d = 0; d < w->s.deep; d++, du += part) {
            int runs = 0;
            for (int64_t p = from; p < to; p += step, runs++) {
                a[runs] = neighbour(w, v, p, d);
                g[runs] = m + (p - from) * w->m_plane + b * BLOCK;
            }
            struct outer q = {a, g, runs, step * w->tiles, w->v_tile, w->m_tile, BLOCK};
            outer_run(&q, w->s.in, (struct panel_out){du, BLOCK, w->s.deep * part, NULL, add}, blocks);
        }
    }
}

FORCED void taps_out(const VEC_T z[WINO_EDGE], VEC_T to[3])
{
    VEC_T half = VEC_SET(0.5f), sum = VEC_MUL(half, VEC_ADD(z[1], z[2]));
    to[0] = VEC_ADD(z[0], sum);
    to[1] = VEC_MUL(half, VEC_SUB(z[1], z[2]));
    to[2] = VEC_ADD(sum, z[3]);
}

/* A plane of the kernel. */
static void kernel_out(const float *du, int64_t point, float *w, bool add)
{
    VEC_T t[WINO_EDGE][3], z[WINO_EDGE], u[3];
    for (int x = 0; x < WINO_EDGE; x++) {
        for (int y = 0; y < WINO_EDGE; y++) z[y] = VEC_LOAD(du + (WINO_EDGE * y + x) * point);
        taps_out(z, t[x]);
    }
    for (int y = 0; y < 3; y++) {
        for (int x = 0; x < WINO_EDGE; x++) z[x] = t[x][y];
        taps_out(z, u);
        for (int x = 0; x < 3; x++) {
            float *to = w + (3 * y + x) * BLOCK * BLOCK;
            VEC_STORE(to, add ? VEC_ADD(VEC_LOAD(to), u[x]) : u[x]);
        }
    }
}

static void points_weights(const void *data, int thread, int64_t begin, int64_t end)
{
    const struct wino_pass *k = data;
    const struct wino *w = &k->w;
    for (int64_t i = begin; i < end; i++)
        point_weights(w, k->v + i * w->v_point, k->m + i * w->m_point, k->du + i * w->u_point, k->from, k->to,
                      k->begun);
}

static void weights_step(struct wino_pass *k)
{
    cpu_each(k->w.s.threads, k->w.out_blocks, blocks_gout, k);
    cpu_each(k->w.s.threads, WINO_POINTS, points_weights, k);
    k->begun = true;
}

static void gradient_out(const void *data, int thread, int64_t begin, int64_t end)
{
    const struct wino_pass *k = data;
    const struct wino *w = &k->w;
    const int64_t deep = w->s.deep;
    float *grad = k->grad + begin * w->in_blocks * deep * PLANE_WEIGHTS;
    for (int64_t o = begin; o < end; o++)
        for (int64_t i = 0; i < w->in_blocks; i++)
            for (int64_t d = 0; d < deep; d++, grad += PLANE_WEIGHTS)
                for (int c = 0; c < BLOCK; c++)
                    kernel_out(k->du + (((o * deep + d) * w->in_blocks + i) * BLOCK + c) * BLOCK, w->u_point,
                               grad + c * BLOCK, k->add);
}

static void weights_run(const struct wino *w, const float *x, const float *gout, float *grad, float *bias, bool add,
                        float *work)
{
    float *m = work + WINO_POINTS * w->v_point, *du = m + WINO_POINTS * w->m_point,
          *zero = du + WINO_POINTS * w->u_point;
    struct wino_pass k = {.x = x, .gout = gout, .zero = zero, .v = work, .m = m, .du = du, .grad = grad, .gbias = bias,
                     .add = add};
    memset(zero, 0, (size_t)w->s.size[2] * BLOCK * sizeof *zero);
    if (bias && !add) memset(bias, 0, (size_t)w->s.out * sizeof *bias);
    steps_run(w, &k, weights_step);
    cpu_each(w->s.threads, w->out_blocks, gradient_out, &k);
}
