/* Convolutions without overlap (cpu_patch.h). Compiled once for each instruction set, after cpu_panel_impl.h. */
#include "backend/cpu/cpu_patch.h"

enum { PATCH_RUNS = 64, PATCH_WEIGHTS = BLOCK * BLOCK };

/* Floats in a sample's block: of rows, of planes and of everything, in both tensors. */
struct sides { int64_t coarse_row, coarse, fine_row, fine_plane, fine; };

static struct sides sides_of(const struct patch_shape *s)
{
    struct sides d = {.coarse_row = s->size[2] * BLOCK, .fine_row = 2 * s->size[2] * BLOCK};
    d.coarse = s->size[0] * s->size[1] * d.coarse_row;
    d.fine_plane = 2 * s->size[1] * d.fine_row;
    d.fine = 2 * s->size[0] * d.fine_plane;
    return d;
}

/* Offset in the fine tensor of a kernel's point, from the first point's place. */
static int64_t tap_at(const struct sides *d, int tap)
{
    return tap / 4 * d->fine_plane + tap / 2 % 2 * d->fine_row + tap % 2 * BLOCK;
}

/* First fine row of coarse row `row`, counted over all planes. */
static int64_t fine_at(const struct patch_shape *s, const struct sides *d, int64_t row)
{
    return row / s->size[1] * 2 * d->fine_plane + row % s->size[1] * 2 * d->fine_row;
}

static void patch_coarse(const struct patch_shape *s, const float *fine, const float *w, const float *bias,
                         float *coarse, bool add)
{
    const struct sides d = sides_of(s);
    const float *a[PATCH_BLOCKS * PATCH_TAPS];
    const int parts = (int)s->in_blocks * PATCH_TAPS;
    const int64_t next = parts * PATCH_WEIGHTS;
    for (int n = 0; n < s->n; n++, fine += s->in_blocks * d.fine, coarse += s->out_blocks * d.coarse)
        for (int64_t row = 0; row < s->size[0] * s->size[1]; row++) {
            for (int i = 0; i < parts; i++)
                a[i] = fine + i / PATCH_TAPS * d.fine + fine_at(s, &d, row) + tap_at(&d, i % PATCH_TAPS);
            for (int64_t o = 0; o < s->out_blocks; o += 2) {
                struct panel p = {a, parts, BLOCK, 2 * BLOCK, w + o * next, PATCH_WEIGHTS, next};
                struct panel_out to = {coarse + o * d.coarse + row * d.coarse_row, BLOCK, d.coarse,
                                       bias ? bias + o * BLOCK : NULL, add};
                panel_run(&p, s->size[2], to, o + 1 < s->out_blocks ? 2 : 1);
            }
        }
}

static void patch_fine(const struct patch_shape *s, const float *coarse, const float *turned, const float *bias,
                       float *fine, bool add)
{
    const struct sides d = sides_of(s);
    const float *a[PATCH_BLOCKS];
    const int64_t block = PATCH_TAPS * PATCH_WEIGHTS, next = s->in_blocks * block;
    for (int n = 0; n < s->n; n++, fine += s->in_blocks * d.fine, coarse += s->out_blocks * d.coarse)
        for (int64_t row = 0; row < s->size[0] * s->size[1]; row++) {
            for (int64_t o = 0; o < s->out_blocks; o++) a[o] = coarse + o * d.coarse + row * d.coarse_row;
            for (int64_t i = 0; i < s->in_blocks; i += 2)
                for (int t = 0; t < PATCH_TAPS; t++) {
                    struct panel p = {a, (int)s->out_blocks, BLOCK, BLOCK, turned + i * block + t * PATCH_WEIGHTS,
                                      next, block};
                    struct panel_out to = {fine + i * d.fine + fine_at(s, &d, row) + tap_at(&d, t), 2 * BLOCK, d.fine,
                                           bias ? bias + i * BLOCK : NULL, add};
                    panel_run(&p, s->size[2], to, i + 1 < s->in_blocks ? 2 : 1);
                }
        }
}

/* For at most PATCH_RUNS rows. */
static void rows_weights(const struct patch_shape *s, const struct sides *d, const float *fine, const float *coarse,
                         int64_t row, int64_t rows, float *grad, bool add)
{
    const float *a[PATCH_RUNS], *b[PATCH_RUNS];
    const int64_t next = s->in_blocks * PATCH_TAPS * PATCH_WEIGHTS;
    for (int64_t o = 0; o < s->out_blocks; o += 2, grad += 2 * next)
        for (int64_t i = 0; i < s->in_blocks * PATCH_TAPS; i++) {
            for (int64_t r = 0; r < rows; r++) {
                a[r] = fine + i / PATCH_TAPS * d->fine + fine_at(s, d, row + r) + tap_at(d, (int)(i % PATCH_TAPS));
                b[r] = coarse + o * d->coarse + (row + r) * d->coarse_row;
            }
            struct outer p = {a, b, (int)rows, s->size[2], 2 * BLOCK, BLOCK, d->coarse};
            outer_run(&p, BLOCK, (struct panel_out){grad + i * PATCH_WEIGHTS, BLOCK, next, NULL, add},
                      o + 1 < s->out_blocks ? 2 : 1);
        }
}

static void patch_weights(const struct patch_shape *s, const float *fine, const float *coarse, float *grad, bool add)
{
    const struct sides d = sides_of(s);
    const int64_t all = s->size[0] * s->size[1];
    for (int n = 0; n < s->n; n++, fine += s->in_blocks * d.fine, coarse += s->out_blocks * d.coarse)
        for (int64_t row = 0, rows; row < all; row += rows, add = true) {
            rows = all - row < PATCH_RUNS ? all - row : PATCH_RUNS;
            rows_weights(s, &d, fine, coarse, row, rows, grad, add);
        }
}

/* The sum of a sample's block; four partial sums, because one would wait for itself. */
static VEC_T block_sum(const float *x, int64_t points)
{
    VEC_T sum[4] = {VEC_ZERO(), VEC_ZERO(), VEC_ZERO(), VEC_ZERO()};
    int64_t p = 0;
    for (; p + 4 <= points; p += 4, x += 4 * BLOCK)
#pragma GCC unroll 4
        for (int i = 0; i < 4; i++) sum[i] = VEC_ADD(sum[i], VEC_LOAD(x + i * BLOCK));
    for (; p < points; p++, x += BLOCK) sum[0] = VEC_ADD(sum[0], VEC_LOAD(x));
    return VEC_ADD(VEC_ADD(sum[0], sum[1]), VEC_ADD(sum[2], sum[3]));
}

static void patch_sums(int n, int64_t blocks, int64_t points, const float *x, float *sums, bool add)
{
    for (int i = 0; i < n; i++, add = true)
        for (int64_t b = 0; b < blocks; b++, x += points * BLOCK) {
            float *to = sums + b * BLOCK;
            VEC_STORE(to, add ? VEC_ADD(VEC_LOAD(to), block_sum(x, points)) : block_sum(x, points));
        }
}
