/* Draws the picture of a confusion matrix. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "report/confusion.h"
#include "data/font5x7.h"
#include "data/picture.h"

enum { EDGE = 8, NAME_MOST = 16 };
/* largest and smallest cell; the width from which cells become smaller */
enum { CELL = 40, CELL_SMALL = 1, PIXELS = 1200 };

struct confusion_canvas { int width, height; unsigned char *rgb; };

static void box(struct confusion_canvas *c, int x, int y, int width, int height, const unsigned char rgb[3])
{
    for (int i = y; i < y + height && i < c->height; i++)
        for (int k = x; k < x + width && k < c->width; k++)
            if (i >= 0 && k >= 0) memcpy(c->rgb + 3 * ((size_t)i * (size_t)c->width + (size_t)k), rgb, 3);
}

static void write_at(struct confusion_canvas *c, int x, int y, const char *s, const unsigned char rgb[3])
{
    for (; *s; s++, x += LETTER_STEP)
        for (int row = 0; row < LETTER_HEIGHT; row++)
            for (int k = 0; k < LETTER_WIDTH; k++)
                if (letter_dot(*s, row, k)) box(c, x + k, y + row, 1, 1, rgb);
}

static int columns(const char *s) { return (int)strlen(s) * LETTER_STEP - 1; }

/* From white to dark blue. */
static void shade(double share, unsigned char rgb[3])
{
    static const int dark[3] = {8, 48, 107};
    for (int i = 0; i < 3; i++) rgb[i] = (unsigned char)(255.5 - (255 - dark[i]) * share);
}

/* The layout: cells of that many pixels, names on the left, numbers above. */
struct grid { int cell, left, top; bool labels, numbers; };

/* A row's label: the name, after the number if columns have numbers. */
static const char *label(const struct grid *l, const char *const *name, int64_t k, char buf[NAME_MOST + 1])
{
    if (!name) snprintf(buf, NAME_MOST + 1, "%lld", (long long)k);
    else if (l->numbers) snprintf(buf, NAME_MOST + 1, "%lld %s", (long long)k, name[k]);
    else snprintf(buf, NAME_MOST + 1, "%s", name[k]);
    return buf;
}

static struct grid grid_of(int64_t n, const char *const *name)
{
    struct grid l = {.cell = PIXELS / n > CELL ? CELL : PIXELS / n > CELL_SMALL ? (int)(PIXELS / n) : CELL_SMALL};
    char buf[NAME_MOST + 1];
    l.labels = l.cell >= LETTER_HEIGHT + 2;
    l.left = l.top = EDGE;
    for (int64_t k = 0; name && k < n; k++) l.numbers |= strlen(name[k]) * LETTER_STEP > (size_t)l.cell;
    for (int64_t k = 0; k < n && l.labels; k++) {
        int wide = columns(label(&l, name, k, buf)) + 2 * EDGE;
        if (wide > l.left) l.left = wide;
    }
    if (l.labels) l.top = LETTER_HEIGHT + 2 * EDGE;
    return l;
}

static void cell_draw(struct confusion_canvas *c, const struct grid *l, int64_t row, int64_t column, uint64_t count,
                      double share)
{
    unsigned char rgb[3], text[3];
    char number[24];
    int x = l->left + (int)column * l->cell, y = l->top + (int)row * l->cell, line = l->cell > 8;
    shade(share, rgb);
    box(c, x, y, l->cell - line, l->cell - line, rgb);
    snprintf(number, sizeof number, "%llu", (unsigned long long)count);
    if (!count || columns(number) > l->cell - 4 || !l->labels) return;
    memset(text, share > 0.5 ? 255 : 0, sizeof text);
    write_at(c, x + (l->cell - columns(number)) / 2, y + (l->cell - LETTER_HEIGHT) / 2, number, text);
}

/* Draws a column's name if all names fit, otherwise its number. If numbers do not fit, only every tenth is drawn. */
static void head_draw(struct confusion_canvas *c, const struct grid *l, int64_t k, const char *const *name)
{
    static const unsigned char black[3];
    char number[24];
    const char *s = name && !l->numbers ? name[k] : number;
    snprintf(number, sizeof number, "%lld", (long long)k);
    if (columns(s) > l->cell && k % 10) return;
    write_at(c, l->left + (int)k * l->cell + (l->cell > columns(s) ? (l->cell - columns(s)) / 2 : 0), EDGE, s, black);
}

static void confusion_png_draw(struct confusion_canvas *c, const struct grid *l, const uint64_t *count, int64_t n,
                 const char *const *name)
{
    static const unsigned char black[3];
    char buf[NAME_MOST + 1];
    memset(c->rgb, 255, 3 * (size_t)c->width * (size_t)c->height);
    for (int64_t i = 0; i < n; i++) {
        uint64_t all = 0;
        for (int64_t k = 0; k < n; k++) all += count[i * n + k];
        for (int64_t k = 0; k < n; k++)
            cell_draw(c, l, i, k, count[i * n + k], all ? (double)count[i * n + k] / (double)all : 0);
        if (!l->labels) continue;
        head_draw(c, l, i, name);
        write_at(c, EDGE, l->top + (int)i * l->cell + (l->cell - LETTER_HEIGHT) / 2, label(l, name, i, buf), black);
    }
}

int confusion_png(const uint64_t *count, int64_t n, const char *const *name, struct text *out, struct err *e)
{
    struct grid l = grid_of(n, name);
    struct confusion_canvas c = {.width = l.left + (int)n * l.cell + EDGE, .height = l.top + (int)n * l.cell + EDGE};
    c.rgb = mem_alloc(3 * (size_t)c.width * (size_t)c.height);
    confusion_png_draw(&c, &l, count, n, name);
    int bad = picture_png_write(c.rgb, c.height, c.width, out, e);
    free(c.rgb);
    return bad ? err_where(e, "confusion.png") : 0;
}
