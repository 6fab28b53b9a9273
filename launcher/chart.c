/* Lines, bars and tables as SVG and HTML. */
#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "base/markup.h"
#include "chart.h"

/* ---- HTML -------------------------------------------------------------------------------------------------------- */

static void escaped_add(struct text *out, const char *fmt, va_list ap)
{
    char *s = NULL;
    if (vasprintf(&s, fmt, ap) < 0) return;
    markup_text(out, s);
    free(s);
}

void html_say(struct text *out, const char *fmt, ...)
{
    va_list ap;
    va_start(ap, fmt);
    escaped_add(out, fmt, ap);
    va_end(ap);
}

void html_element(struct text *out, const char *open, const char *fmt, ...)
{
    va_list ap;
    text_add(out, "<%s>", open);
    va_start(ap, fmt);
    escaped_add(out, fmt, ap);
    va_end(ap);
    text_add(out, "</%.*s>", (int)strcspn(open, " "), open);
}

void html_table_begin(struct text *out, const char *caption, const char *heads)
{
    text_add(out, "<div class='wide' tabindex='0' role='region' aria-label='");
    html_say(out, "%s", caption);
    text_add(out, "'><table>");
    html_element(out, "caption", "%s", caption);
    if (heads) text_add(out, "<thead><tr>");
    for (const char *s = heads; s && *s; s += strcspn(s, "|"), s += *s == '|')
        html_element(out, "th scope='col'", "%.*s", (int)strcspn(s, "|"), s);
    text_add(out, heads ? "</tr></thead><tbody>\n" : "<tbody>\n");
}

void html_table_end(struct text *out) { text_add(out, "</tbody></table></div>\n"); }

/* ---- lines ------------------------------------------------------------------------------------------------------- */

enum { WIDTH = 480, HEIGHT = 236, LEFT = 60, RIGHT = 30, TOP = 26, BOTTOM = 38, BUCKETS = CHART_BUCKETS, DOTS = 60,
       NAME = 64 };
struct chart_axes { double x0, x1, y0, y1; bool log; };
struct chart_bucket { double x, low, high, sum; int n; };

/* Sums of huge numbers would not be finite. */
static bool drawable(double y) { return fabs(y) < 1e200; }

static double x_at(const struct chart_axes *a, double x)
{
    return LEFT + (x - a->x0) / (a->x1 - a->x0) * (WIDTH - LEFT - RIGHT);
}

static double y_at(const struct chart_axes *a, double y)
{
    double share = a->log ? log(y / a->y0) / log(a->y1 / a->y0) : (y - a->y0) / (a->y1 - a->y0);
    return HEIGHT - BOTTOM - share * (HEIGHT - TOP - BOTTOM);
}

/* Finds the ranges. Returns false if no value is finite. */
static bool axes_fit(const struct chart *c, struct chart_axes *a)
{
    *a = (struct chart_axes){INFINITY, -INFINITY, INFINITY, -INFINITY, false};
    for (int k = 0; k < CHART_LINES; k++)
        for (int i = 0; i < c->line[k].points.n; i++) {
            struct chart_point p = c->line[k].points.v[i];
            if (!drawable(p.y)) continue;
            a->x0 = fmin(a->x0, p.x), a->x1 = fmax(a->x1, p.x);
            a->y0 = fmin(a->y0, p.y), a->y1 = fmax(a->y1, p.y);
        }
    if (!(a->y0 <= a->y1)) return false;
    if (a->x0 == a->x1) a->x0 -= 1, a->x1 += 1;
    if (c->from_zero && a->y0 > 0) a->y0 = 0;
    a->log = a->y0 > 0 && a->y1 > 100 * a->y0;
    double more = a->y0 == a->y1 ? fmax(fabs(a->y0) / 10, 1e-9) : (a->y1 - a->y0) / 20;
    if (a->log) a->y0 /= 1.2, a->y1 *= 1.2;
    else a->y1 += more, a->y0 -= c->from_zero && a->y0 == 0 ? 0 : more;
    return true;
}

static void grid_line(const struct chart_axes *a, double y, struct text *out)
{
    text_add(out, "<path class='grid' d='M%d %.1fH%d'/><text class='y' x='%d' y='%.1f'>%.6g</text>\n", LEFT, y_at(a, y),
             WIDTH - RIGHT, LEFT - 6, y_at(a, y) + 4, y);
}

static void axes_draw(const struct chart_axes *a, struct text *out)
{
    enum { MOST = 5 };
    double tick = markup_tick(a->y1 - a->y0, MOST), from = ceil(log10(a->y0)), n = log10(a->y1) - from;
    if (a->log) for (double i = 0; i <= n; i += ceil((n + 1) / 6)) grid_line(a, pow(10, from + i), out);
    else
        for (double i = 0, first = ceil(a->y0 / tick); i <= MOST && (first + i) * tick <= a->y1; i++)
            grid_line(a, (first + i) * tick + 0, out);    /* without "-0" */
    tick = fmax(1, markup_tick(a->x1 - a->x0, 5));
    for (double x = ceil(a->x0 / tick) * tick; x <= a->x1; x += tick)
        text_add(out, "<path class='grid' d='M%.1f %dv4'/><text class='x' x='%.1f' y='%d'>%.15g</text>\n", x_at(a, x),
                 HEIGHT - BOTTOM, x_at(a, x), HEIGHT - BOTTOM + 17, x);
    text_add(out, "<path class='axis' d='M%d %dH%d'/><text class='x' x='%d' y='%d'>step</text>\n", LEFT,
             HEIGHT - BOTTOM, WIDTH - RIGHT, (LEFT + WIDTH - RIGHT) / 2, HEIGHT - 5);
}

/* Puts points that are finite into buckets along the axis, or into one of their own each if they are few. */
static int buckets_fill(const struct chart_line *l, const struct chart_axes *a, struct chart_bucket *to)
{
    int n = 0;
    double width = (a->x1 - a->x0) / BUCKETS, end = -INFINITY;
    for (int i = 0; i < l->points.n; i++) {
        struct chart_point p = l->points.v[i];
        if (!drawable(p.y)) continue;
        if (l->points.n <= BUCKETS || p.x >= end || !n) {
            if (n == BUCKETS) break;
            to[n++] = (struct chart_bucket){0, p.y, p.y, 0, 0};
            end = a->x0 + (floor((p.x - a->x0) / width) + 1) * width;
        }
        struct chart_bucket *b = &to[n - 1];
        b->x += (p.x - b->x) / ++b->n;
        b->sum += p.y;
        b->low = fmin(b->low, p.y), b->high = fmax(b->high, p.y);
    }
    return n;
}

static void line_draw(const struct chart_line *l, const struct chart_axes *a, struct text *out)
{
    struct chart_bucket *b = mem_alloc((BUCKETS + 1) * sizeof *b);
    int n = buckets_fill(l, a, b);
    if (l->points.n > BUCKETS) {
        text_add(out, "<path class='band %s' d='", l->style);
        for (int i = 0; i < n; i++) text_add(out, "%c%.1f %.1f", i ? 'L' : 'M', x_at(a, b[i].x), y_at(a, b[i].high));
        for (int i = n; i-- > 0;) text_add(out, "L%.1f %.1f", x_at(a, b[i].x), y_at(a, b[i].low));
        text_add(out, "Z'/>\n");
    }
    text_add(out, "<path class='line %s' d='", l->style);
    for (int i = 0; i < n; i++)
        text_add(out, "%c%.1f %.1f", i ? 'L' : 'M', x_at(a, b[i].x), y_at(a, b[i].sum / b[i].n));
    text_add(out, "'/>\n");
    for (int i = 0; i < n && n <= DOTS; i++)
        text_add(out, "<circle class='dot %s' cx='%.1f' cy='%.1f' r='2.5'/>\n", l->style, x_at(a, b[i].x),
                 y_at(a, b[i].sum / b[i].n));
    free(b);
}

static void legend_draw(const struct chart *c, struct text *out)
{
    int x = LEFT;
    for (int k = 0; k < CHART_LINES; k++) {
        if (!c->line[k].points.n || !c->line[k].name) continue;
        text_add(out, "<path class='line %s' d='M%d 10h26'/><text x='%d' y='14'>", c->line[k].style, x, x + 32);
        html_say(out, "%s", c->line[k].name);
        text_add(out, "</text>\n");
        x += 56 + 7 * (int)strlen(c->line[k].name);
    }
}

/* What the picture shows, for those who cannot see it. */
static void line_describe(const struct chart_line *l, struct text *out)
{
    double low = INFINITY, high = -INFINITY, first = NAN, last = NAN;
    for (int i = 0; i < l->points.n; i++) {
        double y = l->points.v[i].y;
        if (!drawable(y)) continue;
        if (isnan(first)) first = y;
        last = y, low = fmin(low, y), high = fmax(high, y);
    }
    if (low <= high)
        html_say(out, "%s%sfirst %.6g, last %.6g, lowest %.6g, highest %.6g. ", l->name ? l->name : "",
                 l->name ? ": " : "", first, last, low, high);
}

/* Values that have no place in the picture are counted below it. */
static void infinite_count(const struct chart_line *l, struct text *out)
{
    int n = 0;
    double first = 0;
    for (int i = 0; i < l->points.n; i++) {
        if (drawable(l->points.v[i].y)) continue;
        if (!n++) first = l->points.v[i].x;
    }
    if (n) html_element(out, "p class='warn'", "%d value%s not finite, the first at step %.15g.", n,
                        n == 1 ? " is" : "s are", first);
}

void chart_draw(const struct chart *c, int id, struct text *out)
{
    struct chart_axes a;
    bool any = axes_fit(c, &a);
    text_add(out, "<figure><figcaption>");
    html_element(out, "h3", "%s", c->title);
    html_element(out, "p", "%s%s", any ? c->about : "No value is finite.",
                 any && a.log ? " The axis is logarithmic." : "");
    text_add(out, "</figcaption>\n");
    if (any) {
        text_add(out, "<svg role='img' aria-labelledby='t%d d%d' viewBox='0 0 %d %d'><title id='t%d'>", id, id, WIDTH,
                 HEIGHT, id);
        html_say(out, "%s by step", c->title);
        text_add(out, "</title><desc id='d%d'>", id);
        for (int k = 0; k < CHART_LINES; k++) line_describe(&c->line[k], out);
        text_add(out, "</desc>\n");
        axes_draw(&a, out);
        for (int i = 0; i < c->marks.n; i++)
            if (c->marks.v[i].x >= a.x0 && c->marks.v[i].x <= a.x1)
                text_add(out, "<path class='mark' d='M%.1f %dV%d'/>\n", x_at(&a, c->marks.v[i].x), TOP,
                         HEIGHT - BOTTOM);
        for (int k = 0; k < CHART_LINES; k++) if (c->line[k].points.n) line_draw(&c->line[k], &a, out);
        legend_draw(c, out);
        text_add(out, "</svg>\n");
    }
    for (int k = 0; k < CHART_LINES; k++) infinite_count(&c->line[k], out);
    text_add(out, "</figure>\n");
}

void chart_free(struct chart *c)
{
    for (int k = 0; k < CHART_LINES; k++) vec_free(&c->line[k].points);
    vec_free(&c->marks);
}

/* ---- boxes ------------------------------------------------------------------------------------------------------- */

/* The letter in names of classes. */
static char box_class(char kind) { return kind == '.' ? '_' : kind; }

void chart_key(struct text *out, char kind, const char *fmt, ...)
{
    va_list ap;
    va_start(ap, fmt);
    text_add(out, "<li><span class='key p%c' aria-hidden='true'>%c</span> ", box_class(kind), box_class(kind));
    escaped_add(out, fmt, ap);
    va_end(ap);
    text_add(out, "</li>\n");
}

static void box_draw(const struct chart_box *b, int id, int y, int height, struct text *out)
{
    enum { LETTER = 8 };
    double x = NAME + fmax(0, fmin(1, b->from)) * (WIDTH - NAME);
    double width = NAME + fmax(0, fmin(1, b->to)) * (WIDTH - NAME) - x;
    if (!(width > 0.05)) return;
    text_add(out, "<rect class='p%c'", box_class(b->kind));
    if (b->kind == '.') text_add(out, " fill='url(#h%d)'", id);
    text_add(out, " x='%.2f' y='%d' width='%.2f' height='%d'/>", x, y, width, height - 2);
    if (!*b->label || height <= 12 || width < LETTER * (double)strlen(b->label) + 2) return;
    text_add(out, "<text class='in p%c' x='%.1f' y='%d'>", box_class(b->kind), x + width / 2, y + height / 2 + 3);
    html_say(out, "%s", b->label);
    text_add(out, "</text>");
}

static void row_draw(const struct chart_row *r, int id, int y, int height, bool named, struct text *out)
{
    if (named) {
        text_add(out, "<text x='0' y='%d'>", y + height / 2 + 3);
        html_say(out, "%s", r->name);
        text_add(out, "</text>\n");
    }
    for (int i = 0; i < r->boxes.n; i++) box_draw(&r->boxes.v[i], id, y, height, out);
    text_add(out, "\n");
}

void chart_boxes(const chart_rows *rows, int id, const char *title, const char *about, struct text *out)
{
    int height = rows->n <= 16 ? 24 : rows->n <= 64 ? 14 : 8, every = height < 14 ? 2 : 1;
    text_add(out, "<svg class='bars' role='img' aria-labelledby='t%d d%d' viewBox='0 -6 %d %d'><title id='t%d'>", id,
             id, WIDTH, rows->n * height + 12, id);
    html_say(out, "%s", title);
    text_add(out, "</title><desc id='d%d'>", id);
    html_say(out, "%s", about);
    text_add(out, "</desc><defs><pattern id='h%d' width='6' height='6' patternUnits='userSpaceOnUse' "
             "patternTransform='rotate(45)'><path class='hatch' d='M1 0V6'/></pattern></defs>\n", id);
    for (int i = 0; i < rows->n; i++) row_draw(&rows->v[i], id, i * height, height, i % every == 0, out);
    text_add(out, "</svg>\n");
}

void chart_rows_free(chart_rows *rows)
{
    for (int i = 0; i < rows->n; i++) vec_free(&rows->v[i].boxes);
    vec_free(rows);
}
