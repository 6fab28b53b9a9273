/* PNG by libpng. Errors return by longjmp; warnings are ignored. */
#include <ctype.h>
#include <setjmp.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <png.h>
#include <zlib.h>
#include "base/mem.h"
#include "data/picture_int.h"

struct png {
    struct picture p;
    png_structp s;
    png_infop info;
    size_t at;                                           /* bytes of the file read so far */
    uint8_t *all, **row;                                 /* for an interlaced picture: all rows */
    char why[120];
};

static void png_failed(png_structp s, png_const_charp why)
{
    struct png *g = png_get_error_ptr(s);
    snprintf(g->why, sizeof g->why, "%s", why);
    longjmp(png_jmpbuf(s), 1);
}

static void png_warned(png_structp s, png_const_charp why)
{
    (void)s;
    (void)why;
}

static png_voidp png_take(png_structp s, png_alloc_size_t n) { return mem_got(malloc(n ? n : 1)); }
static void png_give(png_structp s, png_voidp at) { free(at); }

static void png_bytes(png_structp s, png_bytep out, size_t n)
{
    struct png *g = png_get_io_ptr(s);
    if (n > g->p.n - g->at) png_error(s, "the file ends too early");
    memcpy(out, g->p.bytes + g->at, n);
    g->at += n;
}

/* ---- orientation ------------------------------------------------------------------------------------------------- */

/* libpng returns chunks after the pixels only once it has read the pixels, so this code searches the file itself. */
struct bytes { const uint8_t *s; size_t n; };
struct notes { struct bytes exif, raw, xmp; bool has_exif; uint8_t *unpacked[2]; };

static uint32_t number_at(const uint8_t *s)
{
    return (uint32_t)s[0] << 24 | (uint32_t)s[1] << 16 | (uint32_t)s[2] << 8 | s[3];
}

/* Removes n bytes and the NUL after them from the front; false: no NUL. */
static bool word_take(struct bytes *b, struct bytes *word)
{
    const uint8_t *end = b->n ? memchr(b->s, 0, b->n) : NULL;
    if (!end) return false;
    *word = (struct bytes){b->s, (size_t)(end - b->s)};
    *b = (struct bytes){end + 1, b->n - word->n - 1};
    return true;
}

static bool unpack(struct bytes *b, uint8_t **at)
{
    enum { MOST = 1 << 20 };                              /* limit of Pillow */
    uLongf n = MOST;
    free(*at);
    *at = mem_alloc(MOST);
    if (uncompress(*at, &n, b->s, b->n) != Z_OK) return false;
    *b = (struct bytes){*at, n};
    return true;
}

/* tEXt: key, text; zTXt: key, 0, packed text; iTXt: key, packed flag, 0, language, translated key, text. */
static void text_take(struct notes *k, char kind, struct bytes b)
{
    static const char *const names[] = {"Raw profile type exif", "XML:com.adobe.xmp"};
    struct bytes *const to[] = {&k->raw, &k->xmp};
    struct bytes key, none;
    if (!word_take(&b, &key)) return;
    if (kind == 't' && key.n == 4 && !memcmp(key.s, "exif", 4)) k->exif = b, k->has_exif = true;
    for (int i = 0; i < 2; i++) {
        if (key.n != strlen(names[i]) || memcmp(key.s, names[i], key.n)) continue;
        bool packed = kind == 'z';
        if (kind != 't' && (b.n < 2 || b.s[kind == 'i'])) return;   /* unknown compression method */
        if (kind == 'z') b.s++, b.n--;
        if (kind == 'i') {
            packed = b.s[0];
            b.s += 2, b.n -= 2;
            if (!word_take(&b, &none) || !word_take(&b, &none)) return;
        }
        if (!packed || unpack(&b, &k->unpacked[i])) *to[i] = b;
    }
}

static void notes_find(const struct picture *p, struct notes *k)
{
    enum { HEAD = 8, SUM = 4 };
    bool pixels = false;
    for (size_t at = 8, n; p->n - at >= HEAD + SUM; at += HEAD + SUM + n) {
        const uint8_t *s = p->bytes + at, *type = s + 4;
        const struct bytes b = {s + HEAD, number_at(s)};
        n = b.n;
        if (n > p->n - at - HEAD - SUM || !memcmp(type, "IEND", 4) || (pixels && !memcmp(type, "fcTL", 4))) return;
        const bool exif = !memcmp(type, "eXIf", 4), text = !memcmp(type + 1, "TXt", 3) || !memcmp(type, "tEXt", 4);
        pixels |= !memcmp(type, "IDAT", 4);
        if ((!exif && !text) || crc32(0, type, (uInt)n + 4) != number_at(b.s + n)) continue;
        if (exif) k->exif = b, k->has_exif = true;
        else if (strchr("tzi", type[0])) text_take(k, (char)type[0], b);
    }
}

/* ImageMagick's text: three header lines, then lines of bytes in hexadecimal. */
static int raw_check(struct bytes b)
{
    struct text t = {0};
    int half = -1;
    for (int i = 0; i < 3; i++) {
        const uint8_t *end = b.n ? memchr(b.s, '\n', b.n) : NULL;
        if (!end) return 0;
        b = (struct bytes){end + 1, b.n - (size_t)(end + 1 - b.s)};
    }
    for (; b.n; b.s++, b.n--) {
        const int digit = isdigit(*b.s) ? *b.s - '0' : isxdigit(*b.s) ? tolower(*b.s) - 'a' + 10 : -1;
        const char byte = (char)(16 * half + digit);
        if (digit < 0) continue;
        if (half >= 0) text_add_bytes(&t, &byte, 1);
        half = half < 0 ? digit : -1;
    }
    const int found = picture_exif((const uint8_t *)t.s, t.n);
    text_free(&t);
    return found;
}

static int orientation_find(const struct picture *p)
{
    struct notes k = {0};
    notes_find(p, &k);
    int found = k.has_exif ? picture_exif(k.exif.s, k.exif.n) : raw_check(k.raw);
    if (!found) found = picture_xmp(k.xmp.s, k.xmp.n);
    for (int i = 0; i < 2; i++) free(k.unpacked[i]);
    return found ? found : 1;
}

/* ---- reading ----------------------------------------------------------------------------------------------------- */

/* Converts any format to four bytes a pixel. */
static int four_bytes(struct png *g, struct err *e)
{
    png_set_expand(g->s);
    png_set_strip_16(g->s);
    png_set_gray_to_rgb(g->s);
    png_set_filler(g->s, 255, PNG_FILLER_AFTER);
    int passes = png_set_interlace_handling(g->s);
    png_read_update_info(g->s, g->info);
    if (png_get_rowbytes(g->s, g->info) != (size_t)g->p.width * PICTURE_BYTES)
        return err_set(e, E_INTERNAL, "%s: libpng gives rows of %zu bytes", g->p.path,
                       png_get_rowbytes(g->s, g->info));
    return passes;
}

static void rows_read(struct png *g)
{
    size_t bytes = (size_t)g->p.width * PICTURE_BYTES;
    g->all = mem_alloc(bytes * (size_t)g->p.height);
    g->row = mem_alloc((size_t)g->p.height * sizeof *g->row);
    for (int i = 0; i < g->p.height; i++) g->row[i] = g->all + bytes * (size_t)i;
    png_read_image(g->s, g->row);
}

static int png_open(struct picture *p, struct err *e)
{
    enum { CHUNK_MOST = 8 << 20, CHUNKS_MOST = 128 };
    struct png *g = (struct png *)p;
    g->s = png_create_read_struct_2(PNG_LIBPNG_VER_STRING, g, png_failed, png_warned, NULL, png_take, png_give);
    g->info = g->s ? png_create_info_struct(g->s) : NULL;
    if (!g->info) return err_set(e, E_INTERNAL, "%s: libpng cannot be used", p->path);
    if (setjmp(png_jmpbuf(g->s))) return picture_damaged(p, g->why, e);
    png_set_user_limits(g->s, PNG_UINT_31_MAX, PNG_UINT_31_MAX);
    png_set_chunk_malloc_max(g->s, CHUNK_MOST);
    png_set_chunk_cache_max(g->s, CHUNKS_MOST);
    png_set_read_fn(g->s, g, png_bytes);
    png_read_info(g->s, g->info);
    png_uint_32 width = png_get_image_width(g->s, g->info), height = png_get_image_height(g->s, g->info);
    p->width = (int)width;                               /* libpng refuses 2^31 and more */
    p->height = (int)height;
    p->orientation = orientation_find(p);
    return 0;
}

static size_t png_memory(const struct picture *p)
{
    const struct png *g = (const struct png *)p;
    size_t row = (size_t)p->width * 2 * PICTURE_BYTES;   /* upper bound as stored, 16 bits */
    bool whole = png_get_interlace_type(g->s, g->info) != PNG_INTERLACE_NONE;
    return row * (whole ? (size_t)p->height : 4);
}

static int png_begin(struct picture *p, struct err *e)
{
    struct png *g = (struct png *)p;
    if (setjmp(png_jmpbuf(g->s))) return picture_damaged(p, g->why, e);
    int passes = four_bytes(g, e);
    if (passes < 0) return -1;
    if (passes > 1) rows_read(g);
    return 0;
}

static int png_row(struct picture *p, uint8_t *out, struct err *e)
{
    struct png *g = (struct png *)p;
    if (setjmp(png_jmpbuf(g->s))) return picture_damaged(p, g->why, e);
    if (g->row) memcpy(out, g->row[p->rows - 1], (size_t)p->width * PICTURE_BYTES);
    else png_read_row(g->s, out, NULL);
    return 0;
}

static int png_skip(struct picture *p, int rows, struct err *e)
{
    struct png *g = (struct png *)p;
    if (setjmp(png_jmpbuf(g->s))) return picture_damaged(p, g->why, e);
    for (int i = 0; i < rows && !g->row; i++) png_read_row(g->s, NULL, NULL);
    return 0;
}

static void png_close(struct picture *p)
{
    struct png *g = (struct png *)p;
    if (g->s) png_destroy_read_struct(&g->s, g->info ? &g->info : NULL, NULL);
    free(g->all);
    free(g->row);
}

const struct picture_kind picture_png = {
    .name = "PNG", .magic = "\x89PNG\r\n\x1a\n", .magic_n = 8, .bytes = sizeof(struct png),
    .open = png_open, .memory = png_memory, .begin = png_begin, .row = png_row, .skip = png_skip, .close = png_close,
};
