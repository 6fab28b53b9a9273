/* JPEG and PNG pictures, decoded from memory row by row, so that a picture takes memory for some rows, and only a
 * progressive or interlaced one for all of them. First its header is read, then it may be shrunk, then it is begun.
 * For data sets. Any thread; a picture is used by one at a time.
 *
 * Pixels are 8 bits, four bytes each: red, green, blue and one that means nothing. They are libjpeg's by its accurate
 * integer transform and smooth upsampling, and PNG's as stored: what Pillow's Image.convert("RGB") gives. So grey is
 * repeated, of 16 bits the upper 8 are taken, of palettes their colours; transparency and gamma do not count; CMYK and
 * YCCK are Adobe's (255 is no ink), without colour profiles: red = (255 - ink) * (255 - black) / 255, rounded.
 *
 * Files are hostile. A header is read before anything large is allocated: more than PICTURE_SIDE pixels a side or
 * PICTURE_PIXELS in all are refused, also a progressive JPEG of more than PICTURE_SCANS scans. A picture of the largest
 * size takes less than PICTURE_MEMORY. Errors are 65 and begin with the file's name; 70 where memory runs out. */
#ifndef DATA_PICTURE_H
#define DATA_PICTURE_H
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include "base/err.h"
#include "base/text.h"

enum { PICTURE_SIDE = 65500, PICTURE_PIXELS = 1 << 27, PICTURE_SCANS = 200, PICTURE_MEMORY = 1 << 30 };
/* Bytes of a pixel; and by how many a row that is read again at once should lie behind a multiple of 16: to addresses
 * that are one, libjpeg-turbo writes past the caches. */
enum { PICTURE_BYTES = 4, PICTURE_SHIFT = 8 };

/* How a picture is turned to stand upright, by EXIF or else XMP, as Pillow 13's exif_transpose finds it: pixel (row,
 * column) of the upright picture is the stored one of (row, column), or where swap is set of (column, row), counted
 * from the end where flip says so. */
struct picture_turn { bool swap, flip_rows, flip_columns; };

struct picture;
/* The first bytes decide whether it is a JPEG or a PNG. bytes stay until the picture is closed. *out is NULL on
 * failure. path: for texts. */
int picture_open(const char *path, const uint8_t *bytes, size_t n, struct picture **out, struct err *e);
/* The same of bytes without a header: a plane for each of one or three colours. 65 where their number is another. */
struct picture_bytes { const uint8_t *at; size_t n; int width, height; };
int picture_open_raw(const char *path, const struct picture_bytes *b, struct picture **out, struct err *e);
int picture_width(const struct picture *p);              /* as stored, or as shrunk */
int picture_height(const struct picture *p);
size_t picture_memory(const struct picture *p);          /* about what it takes once it is begun, in bytes */
struct picture_turn picture_turned(const struct picture *p);   /* nothing set where the file does not say */
/* Lets a JPEG be decoded at a half, a quarter or an eighth of its size, rounded up, where that has at least this width
 * and height, counted in whole pixels: as Pillow's Image.draft. Of a PNG: nothing. Before picture_begin. */
void picture_shrink(struct picture *p, int64_t width, int64_t height);
/* A part of at least one pixel, within the picture. */
struct picture_part { int left, columns, top, rows; };
/* Begins to decode a part: a decoder leaves out what it can of the rest, and the part's pixels are those of the whole
 * picture. All of it is looked at nevertheless, so that what is damaged does not depend on the part. */
int picture_begin(struct picture *p, const struct picture_part *part, struct err *e);
/* The next row of the part, in room for picture_width pixels, of which its columns are filled in. 65 where the file
 * ends too early or is damaged so that the decoder gives up. */
int picture_row(struct picture *p, uint8_t *out, struct err *e);
int picture_finish(struct picture *p, struct err *e);    /* after the part's last row: the rest of the picture */
void picture_close(struct picture *p);                   /* p may be NULL */

/* Adds a PNG of these pixels, red, green and blue, row behind row. 70 if libpng fails. */
int picture_png_write(const uint8_t *rgb, int height, int width, struct text *out, struct err *e);

/* Is this the name of a picture: does it end with one of these, in letters of any case? picture_foreign: one that other
 * programs know as that of a picture, but which is not read here, such as .webp. */
#define PICTURE_NAMES ".jpg, .jpeg, .jpe, .jfif or .png"
bool picture_name(const char *name, size_t n);
bool picture_foreign(const char *name, size_t n);
/* The value of EXIF's tag Orientation, 1 to 8, in a block of EXIF (which begins with the byte order, "II" or "MM", or
 * with "Exif" before that), of any type that is a number; 1: another value; 0: there is none, or anything is odd. */
int picture_exif(const uint8_t *exif, size_t n);
int picture_xmp(const uint8_t *xmp, size_t n);           /* the same of tiff:Orientation in a packet of XMP */
/* Makes n pixels grey, all four bytes alike: (19595 red + 38470 green + 7471 blue + 32768) / 65536, as Pillow's "L". */
void picture_grey(uint8_t *row, size_t n);

#endif
