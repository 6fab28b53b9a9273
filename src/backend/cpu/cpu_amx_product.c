/* Products of rows and weights by AMX tiles (cpu_amx_product.h).
 *
 * Blocks of 32 rows and 32 columns: 2x2 tiles of the result share what they load. Rows are loaded where they lie. A
 * part of the weights, which the second cache holds, meets a piece of rows. It was packed before, or is packed there.
 * Long sums are taken in parts, and wait in float. */
#include <string.h>
#include "backend/cpu/cpu_amx_product.h"
#include "backend/cpu/cpu_int.h"

#pragma GCC target("avx512f,avx512bw,avx512vl,avx512dq,avx512bf16,amx-tile,amx-bf16")
#include "backend/cpu/cpu_amx_int.h"

enum { PIECE = 256, PIECE_ALONE = 512,                   /* rows; of a sum in one part */
       PIECE_STORED = 1024,                              /* of weights that each piece packs */
       DEPTH = 1024, CACHED = 384 << 10 };               /* of k, and values, of the weights in the cache */

/* ---- parts ----------------------------------------------------------------------------------- */

struct product_part { const struct amx_product *p; int64_t rows, k_part, n_part; void *work; size_t thread_bytes; };

/* Where sums of k values are cut, and how many columns of that depth the cache holds. */
static int64_t k_part_of(int64_t k)
{
    const int64_t parts = (k + DEPTH - 1) / DEPTH;
    return amx_up((k + parts - 1) / parts, STEP);
}
static int64_t n_part_of(int64_t k) { return CACHED / k_part_of(k) / WIDTH * WIDTH; }

/* Floats of a piece's sums, from one row to the next; memory of a thread: sums, last rows, a part of the weights. */
static int64_t sums_line(int64_t k, int64_t n, bool stored)
{
    return amx_least(amx_up(n, WIDTH), stored ? n_part_of(k) : INT64_MAX);
}
static size_t sums_bytes(int64_t k, int64_t n, bool stored)
{
    if (stored && k <= DEPTH) return 0;
    return (size_t)((stored ? PIECE_STORED : PIECE) * sums_line(k, n, stored)) * sizeof(float);
}
static size_t tail_bytes(int64_t k) { return (size_t)(WIDTH * k) * sizeof(uint16_t); }
static size_t thread_bytes(int64_t k, int64_t n, bool stored)
{
    return sums_bytes(k, n, stored) + tail_bytes(k) + (stored ? CACHED * sizeof(uint16_t) : 0);
}
size_t amx_product_work(int64_t k, int64_t n, bool stored, int threads)
{
    return (size_t)threads * thread_bytes(k, n, stored);
}

/* ---- products -------------------------------------------------------------------------------- */

/* Up to 32 columns of sums, rounded if not wide. */
INLINE void block_store(const struct amx_product *p, int64_t m, int64_t rows, int64_t n, const float *c, int64_t line,
                        bool wide, bool acc)
{
    const __mmask16 mask[2] = {lanes_left(p->n - n), lanes_left(p->n - n - SIDE)};
    __m512 bias[2];
    for (int h = 0; h < 2; h++)
        bias[h] = p->bias ? _mm512_maskz_loadu_ps(mask[h], p->bias + n + h * SIDE) : _mm512_setzero_ps();
    for (int64_t r = 0; r < rows; r++)
        for (int h = 0; h < 2; h++) {
            const int64_t at = (m + r) * p->c_line + n + h * SIDE;
            uint16_t *to = (uint16_t *)p->c + at;
            __m512 x = _mm512_add_ps(_mm512_load_ps(c + r * line + h * SIDE), bias[h]);
            if (acc) x = _mm512_add_ps(x, ld(to, mask[h]));
            if (wide) _mm512_mask_storeu_ps((float *)p->c + at, mask[h], x);
            else st(to, mask[h], x);
        }
}

/* A part of the weights: `depth` rows from k on, columns [n, to). At b its columns are `line` values apart. sums: of
 * its first column, in the piece's first row. */
struct weights_part { int64_t k, depth, n, to; const uint16_t *b; int64_t line; float *sums; };

/* The rows [m, m + rows) of 32, times a part of the weights. */
static void strip_run(const struct product_part *t, const struct weights_part *w, int64_t m, int64_t rows,
                      const uint16_t *a, int64_t a_line, float *sums)
{
    const struct amx_product *p = t->p;
    const bool alone = w->depth == p->k, last = w->k + w->depth == p->k;
    const int64_t line = alone ? WIDTH : sums_line(p->k, p->n, p->from);
    _Alignas(64) float own[WIDTH * WIDTH];
    for (int64_t n = w->n; n < w->to; n += WIDTH) {
        float *c = alone ? own : sums + (n - w->n);
        block_sum(a, a_line, STEP, w->b + (n - w->n) * w->line, w->depth, c, line, w->k > 0);
        if (!last) continue;
        if (p->wide) block_store(p, m, rows, n, c, line, true, false);
        else if (p->acc) block_store(p, m, rows, n, c, line, false, true);
        else block_store(p, m, rows, n, c, line, false, false);
    }
}

/* The rows [from, to) and the columns [n, n_to); tail: the last rows, if they fill no block. */
struct piece { int64_t from, to, n, n_to; uint16_t *tail; };

static void strips_run(const struct product_part *t, const struct weights_part *w, const struct piece *i)
{
    const struct amx_product *p = t->p;
    const int64_t line = sums_line(p->k, p->n, p->from), whole = i->from + (i->to - i->from) / WIDTH * WIDTH;
    for (int64_t m = i->from; m < whole; m += WIDTH)
        strip_run(t, w, m, WIDTH, p->a + m * p->a_line + w->k, p->a_line, w->sums + (m - i->from) * line);
    if (whole < i->to)
        strip_run(t, w, whole, i->to - whole, i->tail + w->k, p->k, w->sums + (whole - i->from) * line);
}

static void tail_take(const struct amx_product *p, const struct piece *i)
{
    const int64_t whole = i->from + (i->to - i->from) / WIDTH * WIDTH, left = i->to - whole;
    for (int64_t r = 0; r < WIDTH && left; r++) {
        if (r < left) memcpy(i->tail + r * p->k, p->a + (whole + r) * p->a_line, (size_t)p->k * sizeof *i->tail);
        else memset(i->tail + r * p->k, 0, (size_t)p->k * sizeof *i->tail);
    }
}

static void piece_run(const struct product_part *t, struct piece i, char *work)
{
    const struct amx_product *p = t->p;
    float *sums = (float *)work;
    struct weights_part w = {.line = p->k};
    i.tail = (uint16_t *)(work + sums_bytes(p->k, p->n, false));
    tail_take(p, &i);
    for (w.k = 0; w.k < p->k; w.k += w.depth) {
        w.depth = amx_least(t->k_part, p->k - w.k);
        for (w.n = i.n; w.n < i.n_to; w.n = w.to) {
            w.to = amx_least(i.n_to, w.n + t->n_part);
            w.b = p->packed + w.n * p->k + w.k * WIDTH;
            w.sums = sums + w.n;
            strips_run(t, &w, &i);
        }
    }
}

/* The same, packing each part of the weights. */
static void stored_piece_run(const struct product_part *t, struct piece i, char *work)
{
    const struct amx_product *p = t->p;
    struct weights_part w = {.sums = (float *)work};
    i.tail = (uint16_t *)(work + sums_bytes(p->k, p->n, true));
    uint16_t *part = (uint16_t *)((char *)i.tail + tail_bytes(p->k));
    w.b = part;
    tail_take(p, &i);
    for (w.n = i.n; w.n < i.n_to; w.n = w.to) {
        w.to = amx_least(i.n_to, w.n + t->n_part);
        for (w.k = 0; w.k < p->k; w.k += w.depth) {
            w.line = w.depth = amx_least(t->k_part, p->k - w.k);
            amx_pack_part(p->from, &(struct amx_part){w.k, w.k + w.depth, w.n, w.to}, part, w.depth);
            strips_run(t, &w, &i);
        }
    }
}

static void pieces_run(const void *data, int thread, int64_t from, int64_t to)
{
    const struct product_part *t = data;
    char *work = (char *)t->work + (size_t)thread * t->thread_bytes;
    tiles_begin();
    for (int64_t i = from; i < to; i++)
        piece_run(t, (struct piece){i * t->rows, amx_least((i + 1) * t->rows, t->p->m), 0, t->p->n, NULL}, work);
    _tile_release();
}

/* Blocks of columns, so that no two threads pack the same part. */
static void columns_run(const void *data, int thread, int64_t from, int64_t to)
{
    const struct product_part *t = data;
    const int64_t n = from * WIDTH, n_to = amx_least(to * WIDTH, t->p->n);
    char *work = (char *)t->work + (size_t)thread * t->thread_bytes;
    tiles_begin();
    for (int64_t m = 0; m < t->p->m; m += t->rows)
        stored_piece_run(t, (struct piece){m, amx_least(m + t->rows, t->p->m), n, n_to, NULL}, work);
    _tile_release();
}

void amx_product_run(const struct amx_product *p, void *work)
{
    const int64_t each = amx_up((p->m + p->threads - 1) / p->threads, WIDTH);
    struct product_part t = {.p = p, .work = work, .k_part = k_part_of(p->k), .n_part = n_part_of(p->k),
                             .thread_bytes = thread_bytes(p->k, p->n, p->from)};
    t.rows = p->from ? PIECE_STORED : amx_least(p->k > DEPTH ? PIECE : PIECE_ALONE, each);
    if (p->from) cpu_each(p->threads, (p->n + WIDTH - 1) / WIDTH, columns_run, &t);
    else cpu_each(p->threads, (p->m + t.rows - 1) / t.rows, pieces_run, &t);
}
