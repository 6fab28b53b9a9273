#include "data/frame.h"

/* Along one axis of the upright picture: scaled to `scaled` pixels, of which n from `first` on go to `at` on. */
struct span { int64_t scaled, first; int at, n; };

static int64_t larger(int64_t a, int64_t b) { return a > b ? a : b; }

/* size * num / den, rounded down, as Python's int(size * num / den). */
static int64_t ratio(int64_t size, int64_t num, int64_t den) { return (int64_t)((double)(size * num) / (double)den); }

static void sizes(const struct frame *f, int64_t height, int64_t width, int64_t *to_height, int64_t *to_width)
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

/* Half, of an odd number rounded to an even one. */
static int64_t half_even(int64_t n) { return n / 2 + (n % 2 && n / 2 % 2); }

static struct span span_of(int64_t scaled, int64_t pad, int size)
{
    int64_t padded = larger(scaled, pad), before = (padded - scaled) / 2;
    int64_t from = half_even(padded - size) - before, end = from + size;   /* in the scaled picture, beyond it, too */
    struct span s = {.scaled = scaled, .first = larger(from, 0)};
    s.at = (int)(s.first - from);
    s.n = (int)((end < scaled ? end : scaled) - s.first);
    return s;
}

/* Counted from the other end. */
static int64_t flipped(const struct span *s, bool flip) { return flip ? s->scaled - s->first - s->n : s->first; }

struct frame_place frame_place(const struct frame *f, int width, int height, struct picture_turn turn)
{
    int64_t to_height, to_width;
    sizes(f, turn.swap ? width : height, turn.swap ? height : width, &to_height, &to_width);
    struct span rows = span_of(to_height, f->pad[0], f->height), columns = span_of(to_width, f->pad[1], f->width);
    const struct span *down = turn.swap ? &columns : &rows, *across = turn.swap ? &rows : &columns;
    return (struct frame_place){
        .window = {.width = width, .height = height, .to_width = across->scaled, .to_height = down->scaled,
                   .left = flipped(across, turn.flip_columns), .top = flipped(down, turn.flip_rows),
                   .n_columns = across->n, .n_rows = down->n},
        .top = rows.at, .left = columns.at, .rows = rows.n, .columns = columns.n, .turn = turn};
}
