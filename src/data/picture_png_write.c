/* Writes PNG files with libpng, whose errors return by longjmp. */
#include <setjmp.h>
#include <stdlib.h>
#include <png.h>
#include "base/mem.h"
#include "data/picture.h"

static void bytes_add(png_structp s, png_bytep p, size_t n) { text_add_bytes(png_get_io_ptr(s), p, n); }
static void flushed(png_structp s) { (void)s; }
static void failed(png_structp s, png_const_charp why) { longjmp(png_jmpbuf(s), 1); }
static void warned(png_structp s, png_const_charp why) { (void)s; }

int picture_png_write(const uint8_t *rgb, int height, int width, struct text *out, struct err *e)
{
    png_structp s = png_create_write_struct(PNG_LIBPNG_VER_STRING, NULL, failed, warned);
    png_infop info = s ? png_create_info_struct(s) : NULL;
    if (!info || setjmp(png_jmpbuf(s))) {
        png_destroy_write_struct(&s, &info);
        return err_set(e, E_INTERNAL, "libpng cannot write a picture of %dx%d pixels", width, height);
    }
    png_set_write_fn(s, out, bytes_add, flushed);
    png_set_IHDR(s, info, (png_uint_32)width, (png_uint_32)height, 8, PNG_COLOR_TYPE_RGB, PNG_INTERLACE_NONE,
                 PNG_COMPRESSION_TYPE_DEFAULT, PNG_FILTER_TYPE_DEFAULT);
    png_write_info(s, info);
    for (int y = 0; y < height; y++) png_write_row(s, rgb + (size_t)y * (size_t)width * 3);
    png_write_end(s, info);
    png_destroy_write_struct(&s, &info);
    return 0;
}
