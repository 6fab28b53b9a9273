/* Kernels that move values: concatenation, flattening, conversion from and to the order of files. */
#include "kernels/kernels.h"
#include "kernels/launch.h"

/* ---- concatenation --------------------------------------------------------------------------- */

template <class T, int N, class I> struct concat_op {
    const T *x; T *y; int width, first, c;
    DEVICE void one(I i) const
    {
        const I packs = (I)(c / N);
        put<N>(y + (int64_t)(i / packs) * width + first + (int)(i % packs) * N, get<N>(x + (size_t)i * N));
    }
};
template <class T, int N, class I> struct concat_back_op {
    const T *gy; T *gx; int width, first, c; bool acc;
    DEVICE void one(I i) const
    {
        const I packs = (I)(c / N);
        T *const to = gx + (size_t)i * N;
        pack<T, N> g = get<N>(gy + (int64_t)(i / packs) * width + first + (int)(i % packs) * N), old;
        if (acc) {
            old = get<N>(to);
            UNROLL for (int k = 0; k < N; k++) from_float(&g.v[k], to_float(old.v[k]) + to_float(g.v[k]));
        }
        put<N>(to, g);
    }
};

/* Are packs of x whole packs of y? */
template <class T> static bool wide(const struct k_slice *s) { return s->width % WIDE<T> + s->first % WIDE<T> == 0; }

template <class T> static int concat(void *stream, const struct k_slice *s, const void *x, void *y)
{
    return launch_packs<concat_op, T>(stream, (size_t)s->rows, s->c, wide<T>(s), (const T *)x, (T *)y, s->width,
                                      s->first, s->c);
}

template <class T> static int concat_back(void *stream, const struct k_slice *s, const struct k_grad *g)
{
    return launch_packs<concat_back_op, T>(stream, (size_t)s->rows, s->c, wide<T>(s), (const T *)g->gy, (T *)g->gx,
                                           s->width, s->first, s->c, g->acc);
}

extern "C" int k_concat(void *stream, const struct k_slice *s, const void *x, void *y)
{
    return BY_TYPE(s->type, concat<float>(stream, s, x, y), concat<bf16>(stream, s, x, y));
}

extern "C" int k_concat_back(void *stream, const struct k_slice *s, const struct k_grad *g)
{
    return BY_TYPE(s->type, concat_back<float>(stream, s, g), concat_back<bf16>(stream, s, g));
}

/* ---- [n][points][c] <-> [n][c][points]: tiles of 32 x 32 by way of shared memory, so that both sides move neighbours;
 * of few channels (images) a thread moves a point's, which needs no tile: it would be nearly empty
 * ----------------------------------------------------------------------------- */

enum { TILE = 32, TILE_ROWS = 8, FEW = 4 };

/* y[n][b][a] = x[n][a][b]. A thread has one index of the longer dimension and all of the shorter. */
template <class X, class Y, class I> struct turn_few {
    const X *x; Y *y; I a, b; bool acc;
    DEVICE void one(I i) const
    {
        const I few = a < b ? a : b, many = a < b ? b : a, in = i % many;
        const int64_t from = (int64_t)(i / many) * a * b;
        for (I k = 0; k < few; k++) {
            const I row = a < b ? k : in, column = a < b ? in : k;
            give(&y[from + (int64_t)column * a + row], to_float(x[from + (int64_t)row * b + column]), acc);
        }
    }
};

/* y[n][b][a] = x[n][a][b] */
template <class X, class Y> struct turn {
    const X *x; Y *y; int64_t a, b; int tiles_a, tiles_b; bool acc;
    DEVICE void block(const struct where &w) const
    {
        SHARED float s[TILE][TILE + 1];
        int64_t per = (int64_t)tiles_a * tiles_b, n = w.block / per, in = w.block % per, a0 = in / tiles_b * TILE,
                b0 = in % tiles_b * TILE;
        const X *from = x + n * a * b;
        Y *to = y + n * a * b;
        EACH_THREAD(w, t) {
            int tx = t % TILE, ty = t / TILE;
            for (int r = ty; r < TILE; r += TILE_ROWS)
                if (a0 + r < a && b0 + tx < b) s[r][tx] = to_float(from[(a0 + r) * b + b0 + tx]);
        }
        BARRIER();
        EACH_THREAD(w, t) {
            int tx = t % TILE, ty = t / TILE;
            for (int r = ty; r < TILE; r += TILE_ROWS)
                if (b0 + r < b && a0 + tx < a) give(&to[(b0 + r) * a + a0 + tx], s[tx][r], acc);
        }
    }
};

struct matrices { int64_t n, a, b; };                    /* x[n][a][b] */

template <class X, class Y>
static int launch_turn(void *stream, struct matrices m, const void *x, void *y, bool acc)
{
    const int64_t n = m.n, a = m.a, b = m.b;
    const size_t many = (size_t)(n * (a < b ? b : a));
    if ((a <= FEW || b <= FEW) && short_count(many))
        return launch_one<uint32_t>(stream, many,
                                    turn_few<X, Y, uint32_t>{(const X *)x, (Y *)y, (uint32_t)a, (uint32_t)b, acc});
    int64_t ta = div_up(a, TILE), tb = div_up(b, TILE);
    return launch(stream, n * ta * tb, TILE * TILE_ROWS, turn<X, Y>{(const X *)x, (Y *)y, a, b, (int)ta, (int)tb, acc});
}

/* By channels: y[n][c][points] = x[n][points][c]. By points: the reverse. */
static struct matrices by_channels(const struct k_shape *s) { return {s->n, s->points, s->c}; }
static struct matrices by_points(const struct k_shape *s) { return {s->n, s->c, s->points}; }

static int turn_or_copy(void *stream, enum ktype type, struct matrices m, const void *x, void *y, bool acc)
{
    if (m.a == 1 || m.b == 1) return k_copy(stream, type, (size_t)(m.n * m.a * m.b), x, y, acc);
    return BY_TYPE(type, (launch_turn<float, float>(stream, m, x, y, acc)),
                   (launch_turn<bf16, bf16>(stream, m, x, y, acc)));
}

extern "C" int k_flatten(void *stream, const struct k_shape *s, const void *x, void *y)
{
    return turn_or_copy(stream, s->type, by_channels(s), x, y, false);
}

extern "C" int k_flatten_back(void *stream, const struct k_shape *s, const struct k_grad *g)
{
    return turn_or_copy(stream, s->type, by_points(s), g->gy, g->gx, g->acc);
}

extern "C" int k_import(void *stream, const struct k_shape *s, const float *x, void *y)
{
    return BY_TYPE(s->type, (launch_turn<float, float>(stream, by_points(s), x, y, false)),
                   (launch_turn<float, bf16>(stream, by_points(s), x, y, false)));
}

extern "C" int k_export(void *stream, const struct k_shape *s, const void *x, float *y)
{
    return BY_TYPE(s->type, (launch_turn<float, float>(stream, by_channels(s), x, y, false)),
                   (launch_turn<bf16, float>(stream, by_channels(s), x, y, false)));
}

/* A thread has one point with all of its channels. */
template <class I> struct pad_op {
    const float *x; bf16 *y; int c; I points;
    DEVICE void one(I i) const
    {
        const float *from = x + (int64_t)(i / points) * c * points + i % points;
        pack<bf16, K_PADDED> v;
        UNROLL for (int k = 0; k < K_PADDED; k++) from_float(&v.v[k], k < c ? from[(int64_t)k * points] : 0.0f);
        put<K_PADDED>(y + (int64_t)i * K_PADDED, v);
    }
};
template <class I> struct strip_op {
    const bf16 *x; float *y; int c; I points;
    DEVICE void one(I i) const
    {
        float *to = y + (int64_t)(i / points) * c * points + i % points;
        pack<bf16, K_PADDED> v = get<K_PADDED>(x + (int64_t)i * K_PADDED);
        UNROLL for (int k = 0; k < K_PADDED; k++) if (k < c) to[(int64_t)k * points] = to_float(v.v[k]);
    }
};

template <template <class> class Op, class X, class Y>
static int launch_padded(void *stream, const struct k_shape *s, const void *x, void *y)
{
    const size_t all = (size_t)(s->n * s->points);
    if (s->c > K_PADDED || s->type != K_BF16) return 1;  /* cudaErrorInvalidValue */
    const Op<size_t> op = {(const X *)x, (Y *)y, s->c, (size_t)s->points};
    if (!short_count(all)) return launch_one<size_t>(stream, all, op);
    return launch_one<uint32_t>(stream, all, Op<uint32_t>{op.x, op.y, op.c, (uint32_t)op.points});
}

extern "C" int k_import_padded(void *stream, const struct k_shape *s, const float *x, void *y)
{
    return launch_padded<pad_op, float, bf16>(stream, s, x, y);
}

extern "C" int k_export_padded(void *stream, const struct k_shape *s, const void *x, float *y)
{
    return launch_padded<strip_op, bf16, float>(stream, s, x, y);
}
