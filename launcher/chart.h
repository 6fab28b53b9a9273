/* Pictures of a page: SVG that fits its column, and HTML around it. Pure. One thread.
 *
 * Colours are names of classes, which the style sheet of page.c defines for light and dark. They are those of Okabe and
 * Ito, which people with any colour vision tell apart; nothing depends on them alone. */
#ifndef LAUNCHER_CHART_H
#define LAUNCHER_CHART_H
#include <stdbool.h>
#include "base/mem.h"
#include "base/text.h"

/* Appends text of the format, escaped. */
void html_say(struct text *out, const char *fmt, ...) __attribute__((format(printf, 2, 3)));
/* Appends <open>text</..>, the text escaped; open: "p class='a'". */
void html_element(struct text *out, const char *open, const char *fmt, ...) __attribute__((format(printf, 3, 4)));
/* A table that scrolls in its own box. heads: names of columns, separated by '|'. */
void html_table_begin(struct text *out, const char *caption, const char *heads);
void html_table_end(struct text *out);

struct chart_point { double x, y; };
struct chart_line { const char *name, *style; VEC(struct chart_point) points; };
enum { CHART_LINES = 2, CHART_BUCKETS = 400 };
/* Lines over the steps of a run. Where there are more than CHART_BUCKETS points, neighbours become their mean, with the
 * range from the lowest to the highest, so that single values stay. A range of more than a hundred times gets a
 * logarithmic axis. */
struct chart {
    const char *title, *about;                            /* about: a sentence below the title */
    struct chart_line line[CHART_LINES];
    bool from_zero;
    VEC(struct chart_point) marks;                        /* restarts: x */
};
/* id: unique in the page, for references. Says so where no value is finite. */
void chart_draw(const struct chart *c, int id, struct text *out);
void chart_free(struct chart *c);

/* A row of boxes: bars of shares, or actions along time. from, to: 0 to 1. kind: the letter of ctl_parts. */
struct chart_box { double from, to; char kind, label[12]; };
struct chart_row { char name[32]; VEC(struct chart_box) boxes; };
typedef VEC(struct chart_row) chart_rows;
/* What is told by colour has the letter or pattern beside it, in chart_key, too: an item of a list. */
void chart_key(struct text *out, char kind, const char *fmt, ...) __attribute__((format(printf, 3, 4)));
void chart_boxes(const chart_rows *rows, int id, const char *title, const char *about, struct text *out);
void chart_rows_free(chart_rows *rows);
#endif
