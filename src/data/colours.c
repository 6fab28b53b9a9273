#include <math.h>
#include <string.h>
#include "data/colours.h"
#include "data/picture.h"

enum { COLOURS = 3 };

static size_t pixels(const struct canvas *c) { return (size_t)c->height * (size_t)c->width; }
static uint8_t *bytes(const struct canvas *c) { return (uint8_t *)c->at; }
static uint8_t clip(int64_t v) { return (uint8_t)(v < 0 ? 0 : v > 255 ? 255 : v); }

/* ---- blends with another picture
 * ---------------------------------------------------------------------------------- */

/* In float, truncated, as in Pillow's Image.blend. */
static uint8_t blended(int to, int from, float factor)
{
    float v = (float)to + factor * (float)(from - to);
    return v <= 0 ? 0 : v >= 255 ? 255 : (uint8_t)v;
}

static void blend_level(struct canvas *c, int level, double factor)
{
    uint8_t *p = bytes(c), of[256];
    if (factor == 1) return;
    for (int v = 0; v < 256; v++) of[v] = blended(level, v, (float)factor);
    for (size_t i = 0; i < pixels(c) * PICTURE_BYTES; i++) p[i] = of[p[i]];
}

void colours_brightness(struct canvas *c, double factor) { blend_level(c, 0, factor); }

/* As in picture_grey. */
static uint8_t grey_of(const uint8_t *p)
{
    return (uint8_t)((19595 * p[0] + 38470 * p[1] + 7471 * p[2] + 32768) >> 16);
}

void colours_contrast(struct canvas *c, double factor)
{
    const uint8_t *p = bytes(c);
    uint64_t sum = 0;
    for (size_t i = 0; i < pixels(c); i++) sum += grey_of(p + i * PICTURE_BYTES);
    if (pixels(c)) blend_level(c, (int)((double)sum / (double)pixels(c) + 0.5), factor);
}

void colours_saturation(struct canvas *c, double factor)
{
    uint8_t *p = bytes(c);
    if (factor == 1) return;
    for (size_t i = 0; i < pixels(c); i++, p += PICTURE_BYTES) {
        int grey = grey_of(p);
        for (int k = 0; k < COLOURS; k++) p[k] = blended(grey, p[k], (float)factor);
    }
}

/* Smooths the nine pixels around p; row: bytes of a row. The quotient is never an odd multiple of a half, so rounding
 * is unambiguous. */
static uint8_t smooth(const uint8_t *p, ptrdiff_t row)
{
    int sum = 4 * p[0];
    for (int y = -1; y <= 1; y++)
        for (int x = -1; x <= 1; x++) sum += p[y * row + x * PICTURE_BYTES];
    return (uint8_t)((2 * sum + 13) / 26);
}

void colours_sharpness(struct canvas *c, double factor)
{
    if (factor == 1) return;
    const int h = c->height, w = c->width;
    const ptrdiff_t row = (ptrdiff_t)w * PICTURE_BYTES;
    const uint8_t *from = (const uint8_t *)canvas_change(c, h, w);
    uint8_t *to = bytes(c);
    memcpy(to, from, pixels(c) * PICTURE_BYTES);
    for (int y = 1; y < h - 1; y++)
        for (int x = 1; x < w - 1; x++)
            for (int k = 0; k < COLOURS; k++) {
                ptrdiff_t at = y * row + x * PICTURE_BYTES + k;
                to[at] = blended(smooth(from + at, row), from[at], (float)factor);
            }
}

/* ---- hue ----------------------------------------------------------------------------------------------------------*/

struct hsv { uint8_t h, s, v; };

/* The hue counts sixths of the circle from one colour to the next, plus the fraction; all three are bytes. */
static struct hsv hsv_of(const uint8_t *p)
{
    int r = p[0], g = p[1], b = p[2];
    int most = r > g ? r : g, least = r < g ? r : g;
    if (b > most) most = b;
    if (b < least) least = b;
    if (most == least) return (struct hsv){0, 0, (uint8_t)most};
    float range = (float)(most - least), h;
    float red = (float)(most - r) / range, green = (float)(most - g) / range, blue = (float)(most - b) / range;
    if (r == most) h = blue - green;
    else if (g == most) h = (float)(2.0 + red - blue);
    else h = (float)(4.0 + green - red);
    double turn = h / 6.0 + 1.0;                         /* only the fraction matters; turn is above 0, below 2 */
    h = (float)(turn >= 1 ? turn - 1 : turn);
    float s = range / (float)most;
    return (struct hsv){clip((int)(h * 255.0)), clip((int)(s * 255.0)), (uint8_t)most};
}

static uint8_t nearest(double v) { return (uint8_t)(v + 0.5); }

static void hsv_write(struct hsv c, uint8_t *p)
{
    float s = (float)(c.s / 255.0);
    int sector = (int)(c.h * 6.0 / 255.0);
    float in = (float)(c.h * 6.0 / 255.0 - sector);
    uint8_t low = nearest(c.v * (1.0 - s)), fall = nearest(c.v * (1.0 - s * in));
    uint8_t rise = nearest(c.v * (1.0 - s * (1.0 - in)));
    const uint8_t of[6][3] = {{c.v, rise, low}, {fall, c.v, low}, {low, c.v, rise},
                              {low, fall, c.v}, {rise, low, c.v}, {c.v, low, fall}};
    if (!c.s) p[0] = p[1] = p[2] = c.v;
    else memcpy(p, of[sector % 6], 3);
}

void colours_hue(struct canvas *c, double turn)
{
    uint8_t *p = bytes(c), by = (uint8_t)(int)(turn * 255);
    for (size_t i = 0; i < pixels(c); i++, p += PICTURE_BYTES) {
        struct hsv at = hsv_of(p);
        at.h = (uint8_t)(at.h + by);
        hsv_write(at, p);
    }
}

/* ---- maps of single values --------------------------------------------------------------------------------------- */

static void map(struct canvas *c, int colour, const uint8_t of[256])
{
    uint8_t *p = bytes(c) + colour;
    for (size_t i = 0; i < pixels(c); i++, p += PICTURE_BYTES) *p = of[*p];
}

static void map_all(struct canvas *c, const uint8_t of[256])
{
    for (int k = 0; k < COLOURS; k++) map(c, k, of);
}

void colours_posterize(struct canvas *c, int bits)
{
    uint8_t of[256];
    for (int v = 0; v < 256; v++) of[v] = (uint8_t)(v & ~((1 << (8 - bits)) - 1));
    map_all(c, of);
}

void colours_solarize(struct canvas *c, double from)
{
    uint8_t of[256];
    for (int v = 0; v < 256; v++) of[v] = (uint8_t)(v < from ? v : 255 - v);
    map_all(c, of);
}

/* Counts how often each value of a colour occurs. */
static void histogram(const struct canvas *c, int colour, uint64_t n[256])
{
    const uint8_t *p = bytes(c) + colour;
    memset(n, 0, 256 * sizeof *n);
    for (size_t i = 0; i < pixels(c); i++, p += PICTURE_BYTES) n[*p]++;
}

void colours_autocontrast(struct canvas *c)
{
    uint64_t n[256];
    uint8_t of[256];
    for (int k = 0; k < COLOURS; k++) {
        int lo = 0, hi = 255;
        histogram(c, k, n);
        while (lo < 255 && !n[lo]) lo++;
        while (hi > 0 && !n[hi]) hi--;
        if (hi <= lo) continue;
        double scale = 255.0 / (hi - lo), offset = -lo * scale;
        for (int v = 0; v < 256; v++) of[v] = clip((int64_t)(v * scale + offset));
        map(c, k, of);
    }
}

void colours_equalize(struct canvas *c)
{
    uint64_t n[256];
    uint8_t of[256];
    for (int k = 0; k < COLOURS; k++) {
        int hi = 255;
        histogram(c, k, n);
        while (hi > 0 && !n[hi]) hi--;
        uint64_t step = (pixels(c) - n[hi]) / 255, sum = step / 2;
        if (!step) continue;
        for (int v = 0; v < 256; v++) {
            of[v] = clip((int64_t)(sum / step));
            sum += n[v];
        }
        map(c, k, of);
    }
}
