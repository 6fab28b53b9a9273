#include <stdlib.h>
#include <string.h>
#include "base/mem.h"
#include "data/font5x7.h"
#include "data/picture.h"
#include "data/contact_sheet.h"

enum { COLOURS = 3, GAP = 8, LEAST = 96, LINE = LETTER_HEIGHT + 3, STEP = LETTER_STEP,
       TITLE = 2 * GAP + LETTER_HEIGHT, PAPER = 255, INK = 40, PIXELS_MOST = 1 << 26 };

struct contact_sheet { int n, height, width, times, columns, rows, all_height, all_width; uint8_t *at; };

/* Width in squares of one pixel, such that there is space for text. */
static int times_of(int64_t height, int64_t width)
{
    int64_t side = height > width ? height : width;
    return side < LEAST ? (int)((LEAST + side - 1) / side) : 1;
}

static int64_t cell_width(int64_t width, int times) { return (width * times < LEAST ? LEAST : width * times) + GAP; }
static int64_t cell_height(int64_t height, int times) { return height * times + 3 + SHEET_LINES * LINE + GAP; }

/* About as wide as high. */
static int columns_of(int n, int64_t cell_w, int64_t cell_h)
{
    int k = 1;
    while (k < n && k * cell_w < (n + k - 1) / k * cell_h) k++;
    return k;
}

int contact_sheet_takes(int64_t n, int64_t height, int64_t width)
{
    if (height < 1 || width < 1 || height > PICTURE_SIDE / 2 || width > PICTURE_SIDE / 2) return 0;
    int times = times_of(height, width);
    int64_t cell = cell_width(width, times) * cell_height(height, times), space = PIXELS_MOST / cell;
    if (space > SHEET_MOST) space = SHEET_MOST;
    return (int)(n < space ? n : space);
}

struct contact_sheet *contact_sheet_new(int n, int height, int width)
{
    struct contact_sheet *s = mem_alloc(sizeof *s);
    int times = times_of(height, width);
    int64_t cell_w = cell_width(width, times), cell_h = cell_height(height, times);
    *s = (struct contact_sheet){.n = n, .height = height, .width = width, .times = times};
    s->columns = columns_of(n, cell_w, cell_h);
    s->rows = (n + s->columns - 1) / s->columns;
    s->all_width = (int)(s->columns * cell_w) + GAP;
    s->all_height = (int)(s->rows * cell_h) + TITLE;
    size_t bytes = (size_t)s->all_width * (size_t)s->all_height * COLOURS;
    s->at = mem_alloc(bytes);
    memset(s->at, PAPER, bytes);
    return s;
}

void contact_sheet_free(struct contact_sheet *s)
{
    if (s) free(s->at);
    free(s);
}

static uint8_t *pixel_at(const struct contact_sheet *s, int y, int x)
{
    return s->at + ((size_t)y * (size_t)s->all_width + (size_t)x) * COLOURS;
}

static void letter(const struct contact_sheet *s, int y, int x, char c)
{
    for (int i = 0; i < LETTER_HEIGHT; i++)
        for (int j = 0; j < LETTER_WIDTH; j++)
            if (letter_dot(c, i, j)) memset(pixel_at(s, y + i, x + j), INK, COLOURS);
}

/* Writes n bytes into that many pixels. A character without a letter becomes a question mark; text that does not fit
 * ends in dots. */
static void line(const struct contact_sheet *s, int y, int x, int pixels, const char *text, size_t n)
{
    int space = pixels / STEP, columns = text_columns(text, n), at = 0;
    for (size_t i = 0; i < n && at < space; i++) {
        unsigned char c = (unsigned char)text[i];
        if ((c & 0xc0) == 0x80) continue;                /* inside a character */
        bool cut = columns > space && at >= space - 2;
        letter(s, y, x + STEP * at++, cut ? '.' : c >= ' ' && c <= '~' ? (char)c : '?');
    }
}

void contact_sheet_title(struct contact_sheet *s, const char *text)
{
    line(s, GAP, GAP, s->all_width - 2 * GAP, text, strlen(text));
}

void contact_sheet_put(struct contact_sheet *s, int i, const uint8_t *rgb, const char *text)
{
    int cell = (int)cell_width(s->width, s->times);
    int left = GAP + i % s->columns * cell, top = TITLE + i / s->columns * (int)cell_height(s->height, s->times);
    for (int y = 0; y < s->height * s->times; y++)
        for (int x = 0; x < s->width * s->times; x++)
            memcpy(pixel_at(s, top + y, left + x), rgb + ((size_t)(y / s->times) * (size_t)s->width +
                                                          (size_t)(x / s->times)) * COLOURS, COLOURS);
    top += s->height * s->times + 3;
    for (int k = 0; k < SHEET_LINES && *text; k++, top += LINE) {
        size_t n = strcspn(text, "\n");
        line(s, top, left, cell - GAP, text, n);
        text += n + (text[n] == '\n');
    }
}

int contact_sheet_png(const struct contact_sheet *s, struct text *out, struct err *e)
{
    return picture_png_write(s->at, s->all_height, s->all_width, out, e);
}
