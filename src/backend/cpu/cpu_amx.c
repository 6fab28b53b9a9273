/* Sums of outer products by AMX tiles (cpu_amx.h).
 *
 * A chunk of slots is copied into the forms that tiles need: x turned, a line of slots for each channel, so that a
 * shift only moves where tiles are loaded; g as pairs of slots. A tile of the result, 16x16 floats, takes 32 slots at a
 * time. 2x2 tiles share what they load. Chunks fit the second cache, and DEPTH tiles of 32 channels of both the first,
 * where all shifts find them. Called only if the processor has AMX. */
#include <sys/syscall.h>
#include <unistd.h>
#include "backend/cpu/cpu_amx.h"
#include "backend/cpu/cpu_int.h"

#pragma GCC target("avx512f,avx512bw,avx512vl,avx512bf16,amx-tile,amx-bf16")
#include "backend/cpu/cpu_amx_int.h"

enum { DEPTH = 10 * STEP, DEPTH_ALONE = 31 * STEP,       /* slots; of a single shift */
       CHUNK_BYTES = 700 << 10, CHUNK_LEAST = 256 };

bool amx_ready(void)
{
    enum { REQUEST = 0x1023, TILE_DATA = 18 };            /* ARCH_REQ_XCOMP_PERM, XFEATURE_XTILEDATA */
    return syscall(SYS_arch_prctl, REQUEST, TILE_DATA) == 0;
}

/* ---- sizes ----------------------------------------------------------------------------------- */

/* Slots: all, of a chunk, beside a chunk on both sides, of a line of x. Blocks of WIDTH channels. */
struct amx_plan { int64_t all, chunk, before, after, line, x_blocks, g_blocks; };

static struct amx_plan amx_plan_of(const struct amx_sums *s)
{
    struct amx_plan p = {.all = s->samples * s->slots, .x_blocks = amx_up(s->x.channels, WIDTH) / WIDTH,
                         .g_blocks = amx_up(s->g.channels, WIDTH) / WIDTH};
    for (int i = 0; i < s->shifts; i++) {
        const int64_t by = s->shift[i].by;
        if (-by > p.before) p.before = amx_up(-by, STEP);
        if (by > p.after) p.after = amx_up(by, STEP);
    }
    const int64_t beside = p.before + p.after, x_bytes = s->phases * p.x_blocks * WIDTH * 2,
                  g_bytes = p.g_blocks * WIDTH * 2;
    p.chunk = (CHUNK_BYTES - x_bytes * beside) / (x_bytes + g_bytes);
    if (p.chunk < 2 * beside) p.chunk = 2 * beside;
    if (p.chunk < CHUNK_LEAST) p.chunk = CHUNK_LEAST;
    const int64_t chunks = amx_up(p.all, p.chunk) / p.chunk;
    p.chunk = amx_up(amx_up(p.all, chunks) / chunks, STEP);       /* of equal size */
    p.line = ((p.chunk + beside) / STEP | 1) * STEP;      /* odd: lines do not share sets of the cache */
    return p;
}

static int64_t x_block_size(const struct amx_plan *p) { return WIDTH * p->line; }
static int64_t g_block_size(const struct amx_plan *p) { return WIDTH * p->chunk; }

size_t amx_sums_work(const struct amx_sums *s)
{
    const struct amx_plan p = amx_plan_of(s);
    return (size_t)(s->phases * p.x_blocks * x_block_size(&p) + p.g_blocks * g_block_size(&p)) * sizeof(uint16_t);
}

/* ---- copies ---------------------------------------------------------------------------------- */

/* One side of a chunk: the point of each slot, or NULL. */
struct source { const uint16_t *at; const struct amx_side *side; const int32_t *point; int64_t slots, all; };

/* Where the rows of STEP slots lie; `there` is 0 where there is none, and the row is a few zeros. */
struct rows { const uint16_t *at[STEP]; int64_t there[STEP]; };

static const uint16_t zeros[WIDTH] __attribute__((aligned(64)));

static inline void rows_find(const struct source *t, int64_t from, struct rows *r)
{
    int64_t sample = from < 0 ? -1 : from / t->slots, slot = from - sample * t->slots;
    for (int i = 0; i < STEP; i++) {
        const bool inside = from + i >= 0 && from + i < t->all;
        const int64_t p = !inside ? -1 : t->point ? t->point[slot] : slot;
        r->there[i] = p >= 0;
        r->at[i] = p < 0 ? zeros : t->at + (sample * t->side->points + p) * t->side->line;
        if (++slot == t->slots) slot = 0, sample++;
    }
}

/* Channels [c, c + WIDTH), of which those of the mask are there. pair[half][p]: slots 2 p and 2 p + 1 of 16 channels, a
 * word each. */
static inline void pairs_take(const struct rows *r, int64_t c, __mmask32 mask, __m512i pair[2][SIDE])
{
    for (int p = 0; p < SIDE; p++) {
        const int i = 2 * p, k = 2 * p + 1;
        rows_pair(_mm512_maskz_loadu_epi16(mask, r->at[i] + r->there[i] * c),
                  _mm512_maskz_loadu_epi16(mask, r->at[k] + r->there[k] * c), &pair[0][p], &pair[1][p]);
    }
}

/* ---- products -------------------------------------------------------------------------------- */

/* The sizes of the tiles for `rows` by `columns` of the result, at most 32 each: 0 to 3 are the result's quarters, 4
 * and 5 halves of x, 6 and 7 halves of g. */
static void tiles_size(int64_t rows, int64_t columns)
{
    struct { uint8_t palette, start, none[14]; uint16_t bytes[16]; uint8_t rows[16]; } c = {.palette = 1};
    const int64_t right = columns > SIDE ? columns - SIDE : SIDE, low = rows > SIDE ? rows - SIDE : SIDE;
    const uint8_t high[2] = {(uint8_t)amx_least(rows, SIDE), (uint8_t)low},
                  wide[2] = {(uint8_t)(4 * amx_least(columns, SIDE)), (uint8_t)(4 * right)};
    for (int i = 0; i < 4; i++) c.rows[i] = high[i / 2], c.bytes[i] = wide[i % 2];
    for (int i = 0; i < 2; i++) {
        c.rows[4 + i] = high[i];
        c.bytes[4 + i] = 64;
        c.rows[6 + i] = SIDE;
        c.bytes[6 + i] = wide[i];
    }
    __asm__ volatile("ldtilecfg %0" : : "m"(c));
}

/* Up to 32x32 of the result at c, whose rows are `line` apart, from n slots; g2: the second half of g's channels. */
struct square { const uint16_t *x, *g, *g2; int64_t x_line, n, line; float *c; bool add; };

/* two, twice: there are second halves of the rows, of the columns. */
static inline __attribute__((always_inline)) void square_sum(const struct square *q, bool two, bool twice)
{
    const size_t step = (size_t)q->line * sizeof(float), x_step = (size_t)q->x_line * sizeof(uint16_t);
    const uint16_t *x = q->x, *x2 = q->x + SIDE * q->x_line, *g = q->g, *g2 = q->g2;
    float *c = q->c, *c2 = q->c + SIDE * q->line;
    if (q->add) {
        _tile_loadd(0, c, step);
        if (twice) _tile_loadd(1, c + SIDE, step);
        if (two) _tile_loadd(2, c2, step);
        if (two && twice) _tile_loadd(3, c2 + SIDE, step);
    } else {
        _tile_zero(0);
        if (twice) _tile_zero(1);
        if (two) _tile_zero(2);
        if (two && twice) _tile_zero(3);
    }
    for (int64_t k = 0; k < q->n; k += STEP) {
        _tile_loadd(4, x + k, x_step);
        _tile_loadd(6, g + k * SIDE, 64);
        _tile_dpbf16ps(0, 4, 6);
        if (twice) _tile_loadd(7, g2 + k * SIDE, 64);
        if (twice) _tile_dpbf16ps(1, 4, 7);
        if (two) _tile_loadd(5, x2 + k, x_step);
        if (two) _tile_dpbf16ps(2, 5, 6);
        if (two && twice) _tile_dpbf16ps(3, 5, 7);
    }
    _tile_stored(0, c, step);
    if (twice) _tile_stored(1, c + SIDE, step);
    if (two) _tile_stored(2, c2, step);
    if (two && twice) _tile_stored(3, c2 + SIDE, step);
}

static void square_add(const struct square *q, int64_t rows, int64_t columns)
{
    if (rows > SIDE && columns > SIDE) square_sum(q, true, true);
    else if (rows > SIDE) square_sum(q, true, false);
    else if (columns > SIDE) square_sum(q, false, true);
    else square_sum(q, false, false);
}

/* ---- running --------------------------------------------------------------------------------- */

/* A chunk: n slots from `from` on, whose copies are x[phase][block] and g[block]. */
struct chunk {
    const struct amx_sums *s; struct amx_plan p; const uint16_t *of_x, *of_g; int64_t from, n; uint16_t *x, *g;
    float *sums; bool add;
};

/* Copies STEP slots of x: of all phases and channels, so that rows are read in one go. at: in the copy. */
static void x_take(const struct chunk *k, int64_t at)
{
    const struct amx_sums *s = k->s;
    const struct amx_plan *p = &k->p;
    for (int phase = 0; phase < s->phases; phase++) {
        const struct source t = {k->of_x, &s->x, s->x_point ? s->x_point + phase * s->slots : NULL, s->slots, p->all};
        struct rows r;
        rows_find(&t, k->from - p->before + at, &r);
        for (int64_t b = 0; b < p->x_blocks; b++) {
            uint16_t *to = k->x + (phase * p->x_blocks + b) * x_block_size(p) + at;
            __m512i pair[2][SIDE];
            pairs_take(&r, b * WIDTH, wide_mask(s->x.channels - b * WIDTH), pair);
            for (int h = 0; h < 2; h++) {
                tile_turn(pair[h]);
                for (int i = 0; i < SIDE; i++) _mm512_store_si512(to + (h * SIDE + i) * p->line, pair[h][i]);
            }
        }
    }
}

static void g_take(const struct chunk *k, int64_t at)
{
    const struct amx_sums *s = k->s;
    const struct amx_plan *p = &k->p;
    const struct source t = {k->of_g, &s->g, s->g_point, s->slots, p->all};
    struct rows r;
    rows_find(&t, k->from + at, &r);
    for (int64_t b = 0; b < p->g_blocks; b++) {
        uint16_t *to = k->g + b * g_block_size(p) + at * SIDE;
        __m512i pair[2][SIDE];
        pairs_take(&r, b * WIDTH, wide_mask(s->g.channels - b * WIDTH), pair);
        for (int h = 0; h < 2; h++)
            for (int i = 0; i < SIDE; i++) _mm512_store_si512(to + (h * k->n + 2 * i) * SIDE, pair[h][i]);
    }
}

static void block_add(const struct chunk *k, int64_t xb, int64_t gb, int64_t rows, int64_t columns)
{
    const struct amx_sums *s = k->s;
    const struct amx_plan *p = &k->p;
    const int64_t depth = s->shifts > 1 ? DEPTH : DEPTH_ALONE;
    const uint16_t *g = k->g + gb * g_block_size(p);
    for (int64_t at = 0; at < k->n; at += depth)
        for (int i = 0; i < s->shifts; i++) {
            const uint16_t *x = k->x + (s->shift[i].phase * p->x_blocks + xb) * x_block_size(p);
            const struct square q = {
                .x = x + p->before + s->shift[i].by + at, .x_line = p->line, .g = g + at * SIDE,
                .g2 = g + (k->n + at) * SIDE, .n = amx_least(depth, k->n - at), .line = s->g.channels,
                .c = k->sums + ((i * s->x.channels + xb * WIDTH) * s->g.channels + gb * WIDTH),
                .add = k->add || at > 0};
            square_add(&q, rows, columns);
        }
}

static int64_t x_steps(const struct chunk *k) { return (k->n + k->p.before + k->p.after) / STEP; }

static void copies_make(const void *data, int thread, int64_t from, int64_t to)
{
    const struct chunk *k = data;
    const int64_t of_x = x_steps(k);
    for (int64_t i = from; i < to; i++)
        if (i < of_x) x_take(k, i * STEP);
        else g_take(k, (i - of_x) * STEP);
}

static void blocks_add(const void *data, int thread, int64_t from, int64_t to)
{
    const struct chunk *k = data;
    int64_t high = 0, wide = 0;
    for (int64_t i = from; i < to; i++) {
        const int64_t xb = i / k->p.g_blocks, gb = i % k->p.g_blocks,
                      rows = amx_least(k->s->x.channels - xb * WIDTH, WIDTH),
                      columns = amx_least(k->s->g.channels - gb * WIDTH, WIDTH);
        if (rows != high || columns != wide) tiles_size(high = rows, wide = columns);
        block_add(k, xb, gb, rows, columns);
    }
    _tile_release();
}

void amx_sums_run(const struct amx_sums *s, const uint16_t *x, const uint16_t *g, float *sums, bool acc, void *work)
{
    const struct amx_plan p = amx_plan_of(s);
    struct chunk k = {.s = s, .p = p, .of_x = x, .of_g = g, .x = work,
                      .g = (uint16_t *)work + s->phases * p.x_blocks * x_block_size(&p), .sums = sums};
    for (int64_t from = 0; from < p.all; from += p.chunk) {
        k.from = from;
        k.n = amx_up(amx_least(p.all - from, p.chunk), STEP);
        k.add = acc || from > 0;
        cpu_each(s->threads, x_steps(&k) + k.n / STEP, copies_make, &k);
        __asm__ volatile("" : : : "memory");              /* tiles are loaded from what was just stored */
        cpu_each(s->threads, p.x_blocks * p.g_blocks, blocks_add, &k);
    }
}
