#include <math.h>
#include <stdlib.h>
#include <string.h>
#include "base/mem.h"
#include "data/canvas.h"

static uint32_t *canvas_for(struct canvas *c, int k, int height, int width)
{
    size_t n = size_mul(size_mul((size_t)c->planes, (size_t)height), (size_t)width);
    if (n > c->space[k]) {
        free(c->memory[k]);
        c->memory[k] = mem_alloc(size_mul(n, sizeof *c->memory[k]));
        c->space[k] = n;
    }
    return c->memory[k];
}

void canvas_begin(struct canvas *c, bool pixels, int planes, int height, int width)
{
    c->pixels = pixels;
    c->planes = planes;
    c->height = height;
    c->width = width;
    c->at = canvas_for(c, 0, height, width);
}

const uint32_t *canvas_change(struct canvas *c, int height, int width)
{
    uint32_t *was = c->at, *now = canvas_for(c, 1, height, width);
    size_t space = c->space[0];
    c->memory[1] = was;
    c->space[0] = c->space[1];
    c->space[1] = space;
    c->memory[0] = c->at = now;
    c->height = height;
    c->width = width;
    return was;
}

size_t canvas_bytes(const struct canvas *c)
{
    return (c->space[0] + c->space[1]) * sizeof *c->at + c->scaler.bytes;
}

void canvas_free(struct canvas *c)
{
    free(c->memory[0]);
    free(c->memory[1]);
    resample_free(&c->scaler);
    *c = (struct canvas){0};
}

void canvas_crop(struct canvas *c, int top, int left, int height, int width)
{
    int h = c->height, w = c->width;
    if (!top && !left && h == height && w == width) return;
    int begin = left < 0 ? -left : 0, end = w - left < width ? w - left : width;
    if (begin > width) begin = width;
    if (end < begin) end = begin;
    const uint32_t *from = canvas_change(c, height, width);
    uint32_t *to = c->at;
    for (int k = 0; k < c->planes; k++, from += (size_t)h * (size_t)w)
        for (int y = top; y < top + height; y++, to += width) {
            bool inside = y >= 0 && y < h && end > begin;
            memset(to, 0, (size_t)width * sizeof *to);
            if (inside)
                memcpy(to + begin, from + (size_t)y * (size_t)w + left + begin, (size_t)(end - begin) * sizeof *to);
        }
}

static void row_turn(uint32_t *row, int n)
{
    for (int i = 0, k = n - 1; i < k; i++, k--) {
        uint32_t other = row[i];
        row[i] = row[k];
        row[k] = other;
    }
}

static void rows_swap(uint32_t *a, uint32_t *b, int n)
{
    for (int i = 0; i < n; i++) {
        uint32_t other = a[i];
        a[i] = b[i];
        b[i] = other;
    }
}

void canvas_flip(struct canvas *c, bool rows, bool columns)
{
    size_t w = (size_t)c->width;
    uint32_t *plane = c->at;
    for (int k = 0; k < c->planes; k++, plane += (size_t)c->height * w) {
        for (int y = 0; columns && y < c->height; y++) row_turn(plane + (size_t)y * w, c->width);
        for (int y = 0; rows && y < c->height / 2; y++)
            rows_swap(plane + (size_t)y * w, plane + (size_t)(c->height - 1 - y) * w, c->width);
    }
}

/* In multiples of 2^-16. */
static int64_t fixed(double v) { return (int64_t)floor(v * 65536 + 0.5); }

void canvas_move(struct canvas *c, const double m[6])
{
    const int64_t a = fixed(m[0]), b = fixed(m[1]), d = fixed(m[3]), e = fixed(m[4]);
    const int h = c->height, w = c->width;
    const uint32_t *from = canvas_change(c, h, w);
    uint32_t *to = c->at;
    for (int k = 0; k < c->planes; k++, from += (size_t)h * (size_t)w) {
        int64_t column = fixed(m[2] + m[0] * 0.5 + m[1] * 0.5), row = fixed(m[5] + m[3] * 0.5 + m[4] * 0.5);
        for (int y = 0; y < h; y++, column += b, row += e) {
            int64_t x_at = column, y_at = row;
            for (int x = 0; x < w; x++, x_at += a, y_at += d) {
                int64_t i = x_at >> 16, j = y_at >> 16;
                bool inside = i >= 0 && i < w && j >= 0 && j < h;
                *to++ = inside ? from[(size_t)j * (size_t)w + (size_t)i] : 0;
            }
        }
    }
}

/* ---- pool ------------------------------------------------------------------------------------------------------- */

struct canvas_kept { struct canvas c; struct canvas_kept *next; };

void canvas_pool_begin(struct canvas_pool *p)
{
    pthread_mutex_init(&p->lock, NULL);
    p->first = NULL;
}

struct canvas *canvas_take(struct canvas_pool *p)
{
    pthread_mutex_lock(&p->lock);
    struct canvas_kept *k = p->first;
    if (k) p->first = k->next;
    pthread_mutex_unlock(&p->lock);
    return k ? &k->c : mem_alloc(sizeof *k);
}

void canvas_give(struct canvas_pool *p, struct canvas *c)
{
    struct canvas_kept *k = (struct canvas_kept *)c;
    pthread_mutex_lock(&p->lock);
    k->next = p->first;
    p->first = k;
    pthread_mutex_unlock(&p->lock);
}

void canvas_pool_end(struct canvas_pool *p)
{
    while (p->first) {
        struct canvas_kept *k = p->first;
        p->first = k->next;
        canvas_free(&k->c);
        free(k);
    }
    pthread_mutex_destroy(&p->lock);
}
