/* Products of a few rows in registers, the building blocks of cpu_wino_impl.h and cpu_patch_impl.h: a value of one
 * matrix, broadcast, times one or two blocks of channels of the other. Compiled once for each instruction set. The
 * includer defines BLOCK, ROWS_TWO (rows that fit registers with two blocks of columns), ROWS_ONE (with one) and the
 * vector type with its operations. */
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define FORCED static inline __attribute__((always_inline))
enum { ROWS_MOST = 12, THREE = 3 };

/* Rows of sums: block 0 of row r at c + r * step, block 1 `block` floats further. They begin as the old values (add),
 * as the bias (block 1's follows block 0's), or as zero. */
struct panel_out { float *c; int64_t step, block; const float *bias; bool add; };
/* c[row][] = sum over parts s, k of a[s][row * a_step + k] * b[s * b_step + k * BLOCK + lane]; a[s] NULL: omitted. */
struct panel { const float *const *a; int parts; int64_t k, a_step; const float *b; int64_t b_step, b_block; };
/* c[row][] = sum over runs s, k of a[s][k * a_step + row] * b[s][k * b_step + lane]; a[s] NULL: omitted. */
struct outer { const float *const *a, *const *b; int runs; int64_t k, a_step, b_step, b_block; };

struct panel_sums { VEC_T v[ROWS_MOST][2]; };

FORCED void sums_begin(struct panel_sums *t, int rows, int blocks, const struct panel_out *o)
{
#pragma GCC unroll 12
    for (int j = 0; j < rows; j++)
#pragma GCC unroll 2
        for (int i = 0; i < blocks; i++)
            t->v[j][i] = o->add    ? VEC_LOAD(o->c + j * o->step + i * o->block)
                         : o->bias ? VEC_LOAD(o->bias + i * BLOCK)
                                   : VEC_ZERO();
}

FORCED void sums_end(const struct panel_sums *t, int rows, int blocks, const struct panel_out *o)
{
#pragma GCC unroll 12
    for (int j = 0; j < rows; j++)
#pragma GCC unroll 2
        for (int i = 0; i < blocks; i++) VEC_STORE(o->c + j * o->step + i * o->block, t->v[j][i]);
}

/* One value of each row times a row of blocks. Rows are `step` apart; three rows share a pointer, because an address
 * mode can add that much. */
FORCED void sums_add(struct panel_sums *t, int rows, int blocks, const float *const *a, int64_t step, const float *b,
                     int64_t b_block)
{
    VEC_T b0 = VEC_LOAD(b), b1 = blocks > 1 ? VEC_LOAD(b + b_block) : VEC_ZERO();
#pragma GCC unroll 12
    for (int j = 0; j < rows; j++) {
        VEC_T v = VEC_SET(a[j / THREE][j % THREE * step]);
        t->v[j][0] = VEC_FMA(v, b0, t->v[j][0]);
        if (blocks > 1) t->v[j][1] = VEC_FMA(v, b1, t->v[j][1]);
    }
}

FORCED void panel_rows(int rows, int blocks, const struct panel *p, int64_t row, const struct panel_out *o)
{
    const int64_t step = p->a_step, b_block = p->b_block;
    struct panel_sums t;
    sums_begin(&t, rows, blocks, o);
    for (int s = 0; s < p->parts; s++) {
        const float *b = p->b + s * p->b_step, *a = p->a[s];
        if (!a) continue;
        a += row * step;
        const float *at[ROWS_MOST / THREE] = {a, a + THREE * step, a + 2 * THREE * step, a + 3 * THREE * step};
        for (const float *end = a + p->k; at[0] < end; at[0]++, at[1]++, at[2]++, at[3]++, b += BLOCK)
            sums_add(&t, rows, blocks, at, step, b, b_block);
    }
    sums_end(&t, rows, blocks, o);
}

FORCED void outer_rows(int rows, int blocks, const struct outer *p, int64_t row, const struct panel_out *o)
{
    const int64_t a_step = p->a_step, b_step = p->b_step, b_block = p->b_block;
    struct panel_sums t;
    sums_begin(&t, rows, blocks, o);
    for (int s = 0; s < p->runs; s++) {
        const float *a = p->a[s], *b = p->b[s];
        if (!a) continue;
        a += row;
        for (int64_t k = 0; k < p->k; k++, a += a_step, b += b_step) {
            const float *at[ROWS_MOST / THREE] = {a, a + THREE, a + 2 * THREE, a + 3 * THREE};
            sums_add(&t, rows, blocks, at, 1, b, b_block);
        }
    }
    sums_end(&t, rows, blocks, o);
}

#define ROWS_OF(rows) \
    static void panel_##rows(const struct panel *p, int64_t row, const struct panel_out *o, int blocks) \
    { \
        if (blocks == 1) panel_rows(rows, 1, p, row, o); \
        else if (rows <= ROWS_TWO) panel_rows(rows, 2, p, row, o); \
    } \
    static void outer_##rows(const struct outer *p, int64_t row, const struct panel_out *o, int blocks) \
    { \
        if (blocks == 1) outer_rows(rows, 1, p, row, o); \
        else if (rows <= ROWS_TWO) outer_rows(rows, 2, p, row, o); \
    }
ROWS_OF(1) ROWS_OF(2) ROWS_OF(3) ROWS_OF(4) ROWS_OF(5) ROWS_OF(6) ROWS_OF(7) ROWS_OF(8) ROWS_OF(9) ROWS_OF(10)
ROWS_OF(11) ROWS_OF(12)
#define ALL_ROWS(of) {of##1, of##2, of##3, of##4, of##5, of##6, of##7, of##8, of##9, of##10, of##11, of##12}

/* Rows are divided as evenly as possible, because the sums in registers hide each other's latency. */
static void panel_run(const struct panel *p, int64_t rows, struct panel_out o, int blocks)
{
    static void (*const run[ROWS_MOST])(const struct panel *, int64_t, const struct panel_out *, int) =
        ALL_ROWS(panel_);
    int64_t most = blocks > 1 ? ROWS_TWO : ROWS_ONE, left = (rows + most - 1) / most;
    for (int64_t row = 0, n; row < rows; row += n, o.c += n * o.step, left--) {
        n = (rows - row + left - 1) / left;
        run[n - 1](p, row, &o, blocks);
    }
}

static void outer_run(const struct outer *p, int64_t rows, struct panel_out o, int blocks)
{
    static void (*const run[ROWS_MOST])(const struct outer *, int64_t, const struct panel_out *, int) =
        ALL_ROWS(outer_);
    int64_t most = blocks > 1 ? ROWS_TWO : ROWS_ONE, left = (rows + most - 1) / most;
    for (int64_t row = 0, n; row < rows; row += n, o.c += n * o.step, left--) {
        n = (rows - row + left - 1) / left;
        run[n - 1](p, row, &o, blocks);
    }
}
