/* Decodes JPEG and PNG pictures from memory row by row. So a picture needs memory for some rows; only a progressive or
 * interlaced one needs it for all. First read its header, then optionally shrink it, then begin it. For data sets. Any
 * thread, but one at a time for a picture.
 *
 * Pixels are 8 bits, four bytes each: red, green, blue and an unused one. JPEG uses libjpeg's accurate integer
 * transform and smooth upsampling, PNG is as stored: the result of Pillow's Image.convert("RGB"). So grey is repeated,
 * 16 bits are cut to the upper 8, palettes are expanded; transparency and gamma are ignored. CMYK and YCCK are Adobe's
 * (255 is no ink), without colour profiles: red = (255 - ink) * (255 - black) / 255, rounded.
 *
 * Files are hostile. The header is read before any large allocation. Pictures with more than PICTURE_SIDE pixels per
 * dimension or PICTURE_PIXELS in all are refused, and so are progressive JPEGs of more than PICTURE_SCANS scans. A
 * picture of the largest size takes less than PICTURE_MEMORY. Errors are 65 and begin with the file's name; 70 if
 * memory runs out. */
#ifndef DATA_PICTURE_H
#define DATA_PICTURE_H
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include "base/err.h"
#include "base/text.h"

enum { PICTURE_SIDE = 65500, PICTURE_PIXELS = 1 << 27, PICTURE_SCANS = 200, PICTURE_MEMORY = 1 << 30 };
/* PICTURE_BYTES: bytes of a pixel. PICTURE_SHIFT: offset from a multiple of 16 for a row that is read again at once:
 * libjpeg-turbo bypasses the caches when it writes to such multiples. */
enum { PICTURE_BYTES = 4, PICTURE_SHIFT = 8 };

/* How to turn a picture upright, by EXIF or else XMP, as Pillow 13's exif_transpose does. Pixel (row, column) of the
 * upright picture is the stored pixel (row, column), or with swap (column, row); flip counts from the end. */
struct picture_turn { bool swap, flip_rows, flip_columns; };

struct picture;
/* The first bytes decide whether it is a JPEG or a PNG. The caller keeps bytes until the picture is closed. *out is
 * NULL on failure. path: for texts. */
int picture_open(const char *path, const uint8_t *bytes, size_t n, struct picture **out, struct err *e);
/* The same for bytes without a header: one plane for each of one or three colours. 65 if their number differs. */
struct picture_bytes { const uint8_t *at; size_t n; int width, height; };
int picture_open_raw(const char *path, const struct picture_bytes *b, struct picture **out, struct err *e);
int picture_width(const struct picture *p);              /* as stored, or as shrunk */
int picture_height(const struct picture *p);
size_t picture_memory(const struct picture *p);          /* approximate bytes once it is begun */
struct picture_turn picture_turned(const struct picture *p);   /* all false if the file has no orientation */
/* Allows decoding a JPEG at a half, a quarter or an eighth of its size, rounded up. That size must have at least this
 * width and height in whole pixels, as in Pillow's Image.draft. No effect on a PNG. Before picture_begin. */
void picture_shrink(struct picture *p, int64_t width, int64_t height);
/* A part of at least one pixel, within the picture. */
struct picture_part { int left, columns, top, rows; };
/* Begins to decode a part. The decoder skips other pixels if it can; the part's pixels are those of the whole picture.
 * It still checks all of the file, so errors do not depend on the part. */
int picture_begin(struct picture *p, const struct picture_part *part, struct err *e);
/* The next row of the part. out has space for picture_width pixels; only the part's columns are written. 65 if the file
 * ends too early or is too damaged for the decoder. */
int picture_row(struct picture *p, uint8_t *out, struct err *e);
int picture_finish(struct picture *p, struct err *e);    /* after the part's last row: checks the rest */
void picture_close(struct picture *p);                   /* p may be NULL */

/* Appends a PNG of these pixels, red, green and blue, row by row. 70 if libpng fails. */
int picture_png_write(const uint8_t *rgb, int height, int width, struct text *out, struct err *e);

/* Does the name end with one of these, in any case? picture_foreign: does it end like a picture's of an unsupported
 * format, such as .webp? */
#define PICTURE_NAMES ".jpg, .jpeg, .jpe, .jfif or .png"
bool picture_name(const char *name, size_t n);
bool picture_foreign(const char *name, size_t n);
/* The value of EXIF's tag Orientation, 1 to 8, of any numeric type, in a block of EXIF. The block begins with the byte
 * order, "II" or "MM", or with "Exif" before that. 1: another value; 0: no tag, or malformed. */
int picture_exif(const uint8_t *exif, size_t n);
int picture_xmp(const uint8_t *xmp, size_t n);           /* the same for tiff:Orientation in an XMP packet */
/* Makes n pixels grey, all four bytes equal: (19595 red + 38470 green + 7471 blue + 32768) / 65536, as Pillow's "L". */
void picture_grey(uint8_t *row, size_t n);

#endif
