/* PNG by libpng. Its errors come back by longjmp, its warnings do not count. */
#include <setjmp.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <png.h>
#include "base/mem.h"
#include "data/picture_int.h"

struct png {
    struct picture p;
    png_structp s;
    png_infop info;
    size_t at;                                           /* bytes of the file that have been read */
    uint8_t *all, **row;                                 /* of an interlaced picture: all of its rows */
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

static int orientation_find(const struct png *g)
{
    png_bytep exif;
    png_uint_32 n;
    return png_get_eXIf_1(g->s, g->info, &n, &exif) ? picture_exif(exif, n) : 1;
}

/* Whatever it holds becomes four bytes a pixel. */
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
    p->orientation = orientation_find(g);
    return 0;
}

static size_t png_memory(const struct picture *p)
{
    const struct png *g = (const struct png *)p;
    size_t row = (size_t)p->width * 2 * PICTURE_BYTES;   /* as stored at most, 16 bits */
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
