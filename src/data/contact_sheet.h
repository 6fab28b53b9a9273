/* A contact sheet: pictures in rows, each with some lines of text below it, as a PNG. Pure. Any thread. */
#ifndef DATA_CONTACT_SHEET_H
#define DATA_CONTACT_SHEET_H
#include <stdint.h>
#include "base/err.h"
#include "base/text.h"

enum { SHEET_MOST = 256, SHEET_LINES = 2 };              /* pictures, and lines of text for each */
/* Pictures of height x width pixels. Small ones are enlarged: each pixel becomes a square. */
struct contact_sheet;
/* How many of n pictures of that size a sheet takes: up to SHEET_MOST, and up to 2^26 pixels; 0: not even one. */
int contact_sheet_takes(int64_t n, int64_t height, int64_t width);
struct contact_sheet *contact_sheet_new(int n, int height, int width); /* n: from contact_sheet_takes */
/* a line at the top; text that does not fit is cut off */
void contact_sheet_title(struct contact_sheet *s, const char *text);
/* Sets the i-th picture, red, green and blue of each pixel, and its text, whose lines end with \n. */
void contact_sheet_put(struct contact_sheet *s, int i, const uint8_t *rgb, const char *text);
int contact_sheet_png(const struct contact_sheet *s, struct text *out, struct err *e); /* 70 if libpng fails */
void contact_sheet_free(struct contact_sheet *s);        /* s may be NULL */

#endif
