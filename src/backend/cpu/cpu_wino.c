/* Convolutions by Winograd's algorithm: preparation before the first call. The loops are in
 * cpu_wino_impl.h. */
#include "backend/cpu/cpu_wino_int.h"

static int64_t least(int64_t a, int64_t b) { return a < b ? a : b; }
static int64_t most(int64_t a, int64_t b) { return a > b ? a : b; }

/* Of a sample. */
static int64_t tiles_of(const struct wino_shape *s)
{
    return s->size[0] * ((s->size[1] + 1) / 2) * ((s->size[2] + 1) / 2);
}

/* The least tiles of a sample and of all samples of a call, and most channels, for which it is faster; measured layer
 * by layer. Volumes: micro-batches of 1 to 4. Pictures: 4x4 to 32x32 points with 512 to 64 channels, micro-batches of
 * 20: outputs and input gradients 1.3 to 1.6 times as fast as by other kernels, weight gradients 1.2 to 1.7 times, but
 * on 4x4 as fast. With fewer tiles it is slower: 0.65 with 4, weight gradients 0.86 with 64. */
struct wino_limits { int64_t tiles, call, weights_tiles, weights_call, channels; };
static struct wino_limits limits_of(const struct wino_shape *s)
{
    return s->deep == 1 ? (struct wino_limits){4, 16, 16, 128, 512} : (struct wino_limits){16, 16, 32, 32, 128};
}

bool wino_takes(const struct wino_shape *s)
{
    const struct wino_limits of = limits_of(s);
    const int64_t tiles = tiles_of(s);
    return s->lanes > 1 && s->in % s->lanes == 0 && s->out % s->lanes == 0 && s->in <= of.channels &&
           s->out <= of.channels && s->size[1] > 1 && s->size[2] > 1 && tiles >= of.tiles && tiles * s->n >= of.call;
}

bool wino_weights_wanted(const struct wino_shape *s)
{
    const struct wino_limits of = limits_of(s);
    const int64_t tiles = tiles_of(s);
    return tiles >= of.weights_tiles && tiles * s->n >= of.weights_call;
}

/* Includes the parts of tiles beyond planes of odd height or width. */
double wino_share(const struct wino_shape *s)
{
    return (double)(tiles_of(s) * WINO_POINTS) / (double)(s->size[0] * s->size[1] * s->size[2] * WINO_TAPS);
}

/* So many tiles at a time that weights, read once for all of them, cost little; and so few that transformed values stay
 * in a second level cache where channels are few. Half and twice as many are as fast (measured). */
struct wino wino_plan(const struct wino_shape *s)
{
    enum { STRIP = 64 };
    const int64_t apart = s->deep == 1 ? WINO_APART : 0;
    struct wino w = {.s = *s,
                     .in_blocks = s->in / s->lanes,
                     .out_blocks = s->out / s->lanes,
                     .planes = s->n * s->size[0],
                     .high = (s->size[1] + 1) / 2,
                     .wide = (s->size[2] + 1) / 2};
    w.rows = least(w.high, most(1, STRIP / w.wide));
    w.tiles = w.rows * w.wide;
    w.step = least(w.planes, most(1, WINO_STEP / w.tiles));
    w.slots = least(w.planes, w.step + s->deep / 2 * 2);
    w.v_tile = s->in + apart;
    w.m_tile = s->out + apart;
    w.v_plane = w.tiles * w.v_tile;
    w.m_plane = w.tiles * w.m_tile;
    w.v_point = w.slots * w.v_plane + WINO_APART;
    w.m_point = w.step * w.m_plane + WINO_APART;
    w.u_point = s->deep * s->in * s->out + WINO_APART;
    return w;
}

struct wino wino_strip(const struct wino *w, int64_t row)
{
    struct wino s = *w;
    s.row = row;
    s.rows = least(w->rows, w->high - row);
    s.tiles = s.rows * w->wide;
    s.v_plane = s.tiles * w->v_tile;
    s.m_plane = s.tiles * w->m_tile;
    return s;
}

size_t wino_weights(const struct wino_shape *s)
{
    struct wino w = wino_plan(s);
    return (size_t)(WINO_POINTS * w.u_point);
}

/* Both kinds of transformed planes, and a row of zeros for the padding. */
size_t wino_work(const struct wino_shape *s)
{
    struct wino w = wino_plan(s);
    return (size_t)(WINO_POINTS * (w.v_point + w.m_point) + s->size[2] * s->lanes) * sizeof(float);
}

size_t wino_weights_work(const struct wino_shape *s)
{
    return wino_work(s) + wino_weights(s) * sizeof(float);
}

static const struct wino_ops *ops_of(const struct wino_shape *s) { return s->lanes == 16 ? &wino_avx512 : &wino_avx2; }

void wino_pack(const struct wino_shape *s, const float *w, bool turned, float *to)
{
    struct wino plan = wino_plan(s);
    ops_of(s)->pack(&plan, w, turned, to);
}

void wino_run(const struct wino_shape *s, const float *x, const float *u, const float *bias, float *y, bool add,
              void *work)
{
    struct wino plan = wino_plan(s);
    ops_of(s)->run(&plan, x, u, bias, y, add, work);
}

void wino_weights_run(const struct wino_shape *s, const float *x, const float *gout, float *grad, float *bias, bool add,
                      void *work)
{
    struct wino plan = wino_plan(s);
    ops_of(s)->weights(&plan, x, gout, grad, bias, add, work);
}
