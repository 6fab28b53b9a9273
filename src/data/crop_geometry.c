#include <string.h>
#include "data/crop_geometry.h"

/* One axis of the upright picture, scaled to `scaled` pixels: n of these, from `first` on, go to position `at`. */
struct crop_span { int64_t scaled, first; int at, n; };

static int64_t larger(int64_t a, int64_t b) { return a > b ? a : b; }

/* size * num / den, rounded down, like Python's int(size * num / den). */
static int64_t ratio(int64_t size, int64_t num, int64_t den) { return (int64_t)((double)(size * num) / (double)den); }

static void sizes(const struct crop_frame *f, int64_t height, int64_t width, int64_t *to_height, int64_t *to_width)
{
    int64_t h = f->height, w = f->width;
    if (f->resize[1]) {
        *to_height = f->resize[0];
        *to_width = f->resize[1];
        return;
    }
    if (f->resize[0]) h = w = f->resize[0];
    bool by_height = h * width >= w * height;
    *to_height = by_height ? h : ratio(w, height, width);
    *to_width = by_height ? ratio(h, width, height) : w;
}

/* Half, with halves of odd numbers rounded to even. */
static int64_t half_even(int64_t n) { return n / 2 + (n % 2 && n / 2 % 2); }

/* The part of `scaled` pixels that `size` pixels of the sample show, from `from` on, which may lie outside. */
static struct crop_span span_of(int64_t scaled, int64_t from, int size)
{
    int64_t end = from + size;
    struct crop_span s = {.scaled = scaled, .first = larger(from, 0)};
    if (s.first >= scaled) s.first = scaled - 1;
    s.at = from < 0 ? (int)(-from < size ? -from : size) : 0;
    s.n = (int)larger((end < scaled ? end : scaled) - larger(from, 0), 0);
    return s;
}

/* The first pixel, counted from the other end. */
static int64_t flipped(const struct crop_span *s, bool flip)
{
    return flip ? s->scaled - s->first - (s->n ? s->n : 1) : s->first;
}

static int other_end(int all, int first, int n, bool flip) { return flip ? all - first - n : first; }

void crop_order(struct crop_place *p)
{
    struct resample_want *w = &p->window;
    const bool turned = p->turn.swap;
    const int64_t down = turned ? w->width - w->to_width : w->height - w->to_height;
    const int64_t across = turned ? w->height - w->to_height : w->width - w->to_width;
    w->down_first = (down > 0 && down > 2 * across) != turned;
}

struct crop_place crop_cut_place(const struct crop_cut *cut, int width, int height, struct picture_turn turn)
{
    struct crop_span rows = span_of(cut->to_height, cut->top, cut->height);
    struct crop_span columns = span_of(cut->to_width, cut->left, cut->width);
    const struct crop_span *down = turn.swap ? &columns : &rows, *across = turn.swap ? &rows : &columns;
    const struct canvas_part *p = &cut->part;
    struct canvas_part as = turn.swap ? (struct canvas_part){p->left, p->top, p->width, p->height} : *p;
    struct crop_place place = {
        .window = {.width = as.width, .height = as.height, .to_width = across->scaled, .to_height = down->scaled,
                   .left = flipped(across, turn.flip_columns), .top = flipped(down, turn.flip_rows),
                   .n_columns = across->n ? across->n : 1, .n_rows = down->n ? down->n : 1,
                   .mirror_columns = turn.flip_columns, .mirror_rows = turn.flip_rows},
        .from_top = other_end(height, as.top, as.height, turn.flip_rows),
        .from_left = other_end(width, as.left, as.width, turn.flip_columns),
        .height = cut->height, .width = cut->width,
        .top = rows.at, .left = columns.at, .rows = rows.n, .columns = columns.n, .turn = turn};
    crop_order(&place);
    return place;
}

int64_t crop_centred(int64_t scaled, int64_t pad, int size)
{
    int64_t padded = larger(scaled, pad), before = (padded - scaled) / 2;
    return half_even(padded - size) - before;
}

struct crop_place crop_place(const struct crop_frame *f, int width, int height, struct picture_turn turn)
{
    struct crop_cut cut = {.part = {0, 0, turn.swap ? width : height, turn.swap ? height : width},
                           .height = f->height, .width = f->width};
    sizes(f, cut.part.height, cut.part.width, &cut.to_height, &cut.to_width);
    cut.top = crop_centred(cut.to_height, f->pad[0], f->height);
    cut.left = crop_centred(cut.to_width, f->pad[1], f->width);
    return crop_cut_place(&cut, width, height, turn);
}

void crop_show(const struct crop_place *p, const struct resample *r, struct canvas *c)
{
    const struct picture_turn t = p->turn;
    const uint32_t *at = (const uint32_t *)resample_window(r, 0);
    ptrdiff_t down = (const uint32_t *)resample_window(r, 1) - at, across = 1;
    if (t.flip_rows) { at += down * (p->window.n_rows - 1); down = -down; }
    if (t.flip_columns) { at += across * (p->window.n_columns - 1); across = -across; }
    if (t.swap) { ptrdiff_t other = down; down = across; across = other; }
    canvas_begin(c, true, 1, p->height, p->width);
    uint32_t *to = c->at;
    for (int i = 0; i < p->height; i++, to += p->width) {
        memset(to, 0, (size_t)p->width * sizeof *to);
        if (i < p->top || i >= p->top + p->rows) continue;
        const uint32_t *from = at + (i - p->top) * down;
        if (across == 1) memcpy(to + p->left, from, (size_t)p->columns * sizeof *to);
        else for (int j = 0; j < p->columns; j++, from += across) to[p->left + j] = *from;
    }
}

void crop_scale(const struct crop_place *p, struct canvas *c)
{
    resample_begin(&c->scaler, &p->window);
    const struct picture_part part = resample_part(&c->scaler);
    const uint32_t *row = c->at + (size_t)(p->from_top + part.top) * (size_t)c->width + p->from_left;
    for (int y = 0; y < part.rows; y++, row += c->width) resample_row(&c->scaler, (const uint8_t *)row);
    crop_show(p, &c->scaler, c);
}
