/* Winograd's F(2x2, 3x3) in the planes of volumes (cpu_wino.h). Transformed inputs are [point][slot][tile][in],
 * products [point][plane][tile][out], weights and their gradients [point][out block][depth][in][lanes]. Compiled once
 * for each instruction set, after cpu_panel_impl.h. */
#include <string.h>
#include "backend/cpu/cpu_wino_int.h"

enum { TILE_WEIGHTS = 27 * BLOCK * BLOCK };

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

/* A block [27][in][out] of weights as [27][out][in]. */
static void block_turn(const float *from, float *to)
{
    for (int p = 0; p < 27; p++, from += BLOCK * BLOCK, to += BLOCK * BLOCK)
        for (int i = 0; i < BLOCK; i++)
            for (int o = 0; o < BLOCK; o++) to[o * BLOCK + i] = from[i * BLOCK + o];
}

static void pack(const struct wino *w, const float *from, bool turned, float *to)
{
    const int64_t ins = turned ? w->out_blocks : w->in_blocks, step = (turned ? -1 : 1) * BLOCK * BLOCK;
    float buffer[TILE_WEIGHTS];
    for (int64_t o = 0; o < w->out_blocks; o++)
        for (int64_t i = 0; i < w->in_blocks; i++, from += TILE_WEIGHTS) {
            const float *first = from;
            if (turned) block_turn(from, buffer), first = buffer + 26 * BLOCK * BLOCK;
            float *at = to + ((turned ? i : o) * 3 * ins + (turned ? o : i)) * BLOCK * BLOCK;
            for (int d = 0; d < 3; d++)
                for (int c = 0; c < BLOCK; c++)
                    kernel_in(first + WINO_TAPS * d * step + c * BLOCK, step, at + (d * ins * BLOCK + c) * BLOCK,
                              w->u_point);
        }
}

/* ---- inputs: B' d B ---------------------------------------------------------------------------------------------- */

struct strip { int64_t row, rows, tiles; };               /* of tiles */

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
    for (int64_t x = 0; x < w->wide; x++, v += w->s.in) {
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

static void plane_in(const struct wino *w, const float *x, int64_t plane, struct strip s, const float *zero, float *v)
{
    const int64_t points = w->s.size[1] * w->s.size[2] * BLOCK, depth = w->s.size[0];
    const float *at[4], *from = x + (plane / depth * w->in_blocks * depth + plane % depth) * points;
    v += plane % w->slots * w->v_plane;
    for (int64_t r = 0; r < s.rows; r++)
        for (int64_t b = 0; b < w->in_blocks; b++) {
            rows_find(w, from + b * depth * points, s.row + r, zero, at);
            row_in(w, at, v + r * w->wide * w->s.in + b * BLOCK);
        }
}

/* The transformed neighbour of a plane; NULL: there is none. */
static const float *neighbour(const struct wino *w, const float *v, int64_t plane, int d)
{
    int64_t z = plane % w->s.size[0] + d - 1;
    return z < 0 || z >= w->s.size[0] ? NULL : v + (plane + d - 1) % w->slots * w->v_plane;
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
    for (int64_t x = 0; x < wide; x += 2, m += w->s.out, y += 2 * BLOCK) {
        tile_out(m, w->m_point, t);
        point_out(y, t[0], bias, add);
        if (both) point_out(y + wide * BLOCK, t[2], bias, add);
        if (x + 1 == wide) break;
        point_out(y + BLOCK, t[1], bias, add);
        if (both) point_out(y + (wide + 1) * BLOCK, t[3], bias, add);
    }
}

static void plane_out(const struct wino *w, const float *m, const float *bias, bool add, int64_t plane, struct strip s,
                      float *y)
{
    const int64_t points = w->s.size[1] * w->s.size[2] * BLOCK, depth = w->s.size[0];
    y += (plane / depth * w->out_blocks * depth + plane % depth) * points;
    for (int64_t r = 0; r < s.rows; r++)
        for (int64_t b = 0; b < w->out_blocks; b++)
            row_out(w, m + r * w->wide * w->s.out + b * BLOCK, bias ? bias + b * BLOCK : NULL, add,
                    y + b * depth * points, s.row + r);
}

/* ---- products ---------------------------------------------------------------------------------------------------- */

/* Planes [from, to) of one point of the tiles. */
static void point_run(const struct wino *w, const float *v, const float *u, float *m, struct strip s, int64_t from,
                      int64_t to)
{
    for (int64_t b = 0; b < w->out_blocks; b += 2, u += 2 * 3 * w->s.in * BLOCK) {
        int blocks = b + 1 < w->out_blocks ? 2 : 1;
        for (int64_t p = from; p < to; p++) {
            const float *a[3] = {neighbour(w, v, p, 0), neighbour(w, v, p, 1), neighbour(w, v, p, 2)};
            struct panel q = {a, 3, w->s.in, w->s.in, u, w->s.in * BLOCK, 3 * w->s.in * BLOCK};
            float *c = m + (p - from) * w->m_plane + b * BLOCK;
            panel_run(&q, s.tiles, (struct panel_out){.c = c, .step = w->s.out, .block = BLOCK}, blocks);
        }
    }
}

static int64_t lesser(int64_t a, int64_t b) { return a < b ? a : b; }

static void run(const struct wino *w, const float *x, const float *u, const float *bias, float *y, bool add,
                float *work)
{
    float *v = work, *m = v + WINO_POINTS * w->v_point, *zero = m + WINO_POINTS * w->m_point;
    memset(zero, 0, (size_t)w->s.size[2] * BLOCK * sizeof *zero);
    for (int64_t row = 0; row < w->high; row += w->rows) {
        struct strip s = {row, lesser(w->rows, w->high - row), 0};
        s.tiles = s.rows * w->wide;
        for (int64_t p = 0, to, in = 0; p < w->planes; p = to) {
            to = lesser(p + w->step, w->planes);
            for (; in < lesser(to + 1, w->planes); in++) plane_in(w, x, in, s, zero, v);
            for (int i = 0; i < WINO_POINTS; i++)
                point_run(w, v + i * w->v_point, u + i * w->u_point, m + i * w->m_point, s, p, to);
            for (int64_t q = p; q < to; q++) plane_out(w, m + (q - p) * w->m_plane, bias, add, q, s, y);
        }
    }
}

/* ---- weight gradients: G' (B' d B . A g A') G -------------------------------------------------------------------- */

/* A row of tiles of one block of channels; the sum of its points is added to bias[]. */
static void row_gout(const struct wino *w, const float *g, int64_t row, float *m, VEC_T *bias)
{
    const int64_t wide = w->s.size[2], point = w->m_point;
    const bool both = 2 * row + 1 < w->s.size[1];
    const float *at[2] = {g + 2 * row * wide * BLOCK, g + (2 * row + both) * wide * BLOCK};
    VEC_T sum = VEC_ZERO();
    for (int64_t x = 0; x < wide; x += 2, m += w->s.out) {
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

static void plane_gout(const struct wino *w, const float *g, int64_t plane, struct strip s, float *m, float *bias)
{
    const int64_t points = w->s.size[1] * w->s.size[2] * BLOCK, depth = w->s.size[0];
    g += (plane / depth * w->out_blocks * depth + plane % depth) * points;
    for (int64_t b = 0; b < w->out_blocks; b++) {
        VEC_T sum = VEC_ZERO();
        for (int64_t r = 0; r < s.rows; r++)
            row_gout(w, g + b * depth * points, s.row + r, m + r * w->wide * w->s.out + b * BLOCK, &sum);
        if (bias) VEC_STORE(bias + b * BLOCK, VEC_ADD(VEC_LOAD(bias + b * BLOCK), sum));
    }
}

/* Planes [from, to) of one point of the tiles, at most WINO_STEP: du = or += (add). */
static void point_weights(const struct wino *w, const float *v, const float *m, float *du, struct strip s,
                          int64_t from, int64_t to, bool add)
{
    const float *a[WINO_STEP], *g[WINO_STEP];
    for (int64_t b = 0; b < w->out_blocks; b += 2) {
        int blocks = b + 1 < w->out_blocks ? 2 : 1;
        for (int d = 0; d < 3; d++, du += w->s.in * BLOCK) {
            for (int64_t p = from; p < to; p++) {
                a[p - from] = neighbour(w, v, p, d);
                g[p - from] = m + (p - from) * w->m_plane + b * BLOCK;
            }
            struct outer q = {a, g, (int)(to - from), s.tiles, w->s.in, w->s.out, BLOCK};
            outer_run(&q, w->s.in, (struct panel_out){du, BLOCK, 3 * w->s.in * BLOCK, NULL, add}, blocks);
        }
        du += 3 * w->s.in * BLOCK;
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

static void gradient_out(const struct wino *w, const float *du, float *grad, bool add)
{
    for (int64_t o = 0; o < w->out_blocks; o++)
        for (int64_t i = 0; i < w->in_blocks; i++, grad += TILE_WEIGHTS)
            for (int d = 0; d < 3; d++)
                for (int c = 0; c < BLOCK; c++)
                    kernel_out(du + (((o * 3 + d) * w->in_blocks + i) * BLOCK + c) * BLOCK, w->u_point,
                               grad + WINO_TAPS * d * BLOCK * BLOCK + c * BLOCK, add);
}

static void weights_run(const struct wino *w, const float *x, const float *gout, float *grad, float *bias, bool add,
                        float *work)
{
    float *v = work, *m = v + WINO_POINTS * w->v_point, *du = m + WINO_POINTS * w->m_point,
          *zero = du + WINO_POINTS * w->u_point;
    bool begun = false;
    memset(zero, 0, (size_t)w->s.size[2] * BLOCK * sizeof *zero);
    if (bias && !add) memset(bias, 0, (size_t)w->s.out * sizeof *bias);
    for (int64_t row = 0; row < w->high; row += w->rows) {
        struct strip s = {row, lesser(w->rows, w->high - row), 0};
        s.tiles = s.rows * w->wide;
        for (int64_t p = 0, to, in = 0; p < w->planes; p = to, begun = true) {
            to = lesser(p + w->step, w->planes);
            for (; in < lesser(to + 1, w->planes); in++) plane_in(w, x, in, s, zero, v);
            for (int64_t q = p; q < to; q++) plane_gout(w, gout, q, s, m + (q - p) * w->m_plane, bias);
            for (int i = 0; i < WINO_POINTS; i++)
                point_weights(w, v + i * w->v_point, m + i * w->m_point, du + i * w->u_point, s, p, to, begun);
        }
    }
    gradient_out(w, du, grad, add);
}
