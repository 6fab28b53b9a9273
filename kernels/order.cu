/* Kernels that put values elsewhere: concatenation, flattening, and the way from and to the order of files. */
#include "kernels/kernels.h"
#include "kernels/launch.h"

/* ---- concatenation ---------------------------------------------------------------------------------------------------------------------- */

template <class T> struct concat_op {
    const T *x; T *y; int width, first, c;
    DEVICE void one(size_t i) const { y[i / (size_t)c * (size_t)width + (size_t)first + i % (size_t)c] = x[i]; }
};
template <class T> struct concat_back_op {
    const T *gy; T *gx; int width, first, c; bool acc;
    DEVICE void one(size_t i) const { give(&gx[i], to_float(gy[i / (size_t)c * (size_t)width + (size_t)first + i % (size_t)c]), acc); }
};

extern "C" int k_concat(void *stream, enum ktype type, int64_t rows, int width, int first, int c, const void *x, void *y)
{
    size_t n = (size_t)rows * (size_t)c;
    return BY_TYPE(type, launch_one(stream, n, concat_op<float>{(const float *)x, (float *)y, width, first, c}),
                   launch_one(stream, n, concat_op<bf16>{(const bf16 *)x, (bf16 *)y, width, first, c}));
}

extern "C" int k_concat_back(void *stream, enum ktype type, int64_t rows, int width, int first, int c, const void *gy, void *gx, bool acc)
{
    size_t n = (size_t)rows * (size_t)c;
    return BY_TYPE(type, launch_one(stream, n, concat_back_op<float>{(const float *)gy, (float *)gx, width, first, c, acc}),
                   launch_one(stream, n, concat_back_op<bf16>{(const bf16 *)gy, (bf16 *)gx, width, first, c, acc}));
}

/* ---- [n][points][c] <-> [n][c][points]: tiles of 32 x 32 by way of shared memory, so that both sides move neighbours ----------------------- */

enum { TILE = 32, TILE_ROWS = 8 };

/* y[n][b][a] = x[n][a][b] */
template <class X, class Y> struct turn {
    const X *x; Y *y; int64_t a, b; int tiles_a, tiles_b; bool acc;
    DEVICE void block(const struct where &w) const
    {
        SHARED float s[TILE][TILE + 1];
        int64_t per = (int64_t)tiles_a * tiles_b, n = w.block / per, in = w.block % per, a0 = in / tiles_b * TILE, b0 = in % tiles_b * TILE;
        const X *from = x + n * a * b;
        Y *to = y + n * a * b;
        EACH_THREAD(w, t) {
            int tx = t % TILE, ty = t / TILE;
            for (int r = ty; r < TILE; r += TILE_ROWS) if (a0 + r < a && b0 + tx < b) s[r][tx] = to_float(from[(a0 + r) * b + b0 + tx]);
        }
        BARRIER();
        EACH_THREAD(w, t) {
            int tx = t % TILE, ty = t / TILE;
            for (int r = ty; r < TILE; r += TILE_ROWS) if (b0 + r < b && a0 + tx < a) give(&to[(b0 + r) * a + a0 + tx], s[tx][r], acc);
        }
    }
};

template <class X, class Y> static int launch_turn(void *stream, int64_t n, int64_t a, int64_t b, const void *x, void *y, bool acc)
{
    int64_t ta = div_up(a, TILE), tb = div_up(b, TILE);
    return launch(stream, n * ta * tb, TILE * TILE_ROWS, turn<X, Y>{(const X *)x, (Y *)y, a, b, (int)ta, (int)tb, acc});
}

extern "C" int k_flatten(void *stream, enum ktype type, int64_t n, int64_t points, int c, const void *x, void *y)
{
    if (points == 1 || c == 1) return k_copy(stream, type, (size_t)(n * points * c), x, y, false);
    return BY_TYPE(type, (launch_turn<float, float>(stream, n, points, c, x, y, false)), (launch_turn<bf16, bf16>(stream, n, points, c, x, y, false)));
}

extern "C" int k_flatten_back(void *stream, enum ktype type, int64_t n, int64_t points, int c, const void *gy, void *gx, bool acc)
{
    if (points == 1 || c == 1) return k_copy(stream, type, (size_t)(n * points * c), gy, gx, acc);
    return BY_TYPE(type, (launch_turn<float, float>(stream, n, c, points, gy, gx, acc)), (launch_turn<bf16, bf16>(stream, n, c, points, gy, gx, acc)));
}

extern "C" int k_import(void *stream, enum ktype type, int64_t n, int c, int64_t points, const float *x, void *y)
{
    return BY_TYPE(type, (launch_turn<float, float>(stream, n, c, points, x, y, false)), (launch_turn<float, bf16>(stream, n, c, points, x, y, false)));
}

extern "C" int k_export(void *stream, enum ktype type, int64_t n, int c, int64_t points, const void *x, float *y)
{
    return BY_TYPE(type, (launch_turn<float, float>(stream, n, points, c, x, y, false)), (launch_turn<bf16, float>(stream, n, points, c, x, y, false)));
}
