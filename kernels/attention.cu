/* Attention without a mask, by tiles of queries and keys: scores are never stored, backward computes them again. A
 * block has one tile of queries or keys, and walks over all tiles of the other kind in ascending order. So its sums
 * have one order, and no other block writes its results. */
#include <math.h>
#include "kernels/block.h"
#include "kernels/kernels.h"

/* Rows of a tile: one score of a pair of tiles a thread. LINE: row length in shared memory, with one extra element, so
 * that threads that read different rows use different banks. */
enum { ROWS = 16, LINE = K_HEAD + 1 };
static_assert(ROWS * ROWS == THREADS, "a score a thread");
typedef float lines[ROWS][LINE];

/* One head of one sample; line, out_line: elements between a matrix's rows. */
template <class T> struct head {
    const T *q, *k, *v; int64_t line, out_line, from, out_from, kept_from; int tile, first;
    DEVICE head(const struct k_attention &a, const struct where &w, const T *x)
    {
        const int tiles = (a.points + ROWS - 1) / ROWS;
        const int64_t i = w.block / tiles, n = i / a.heads, h = i % a.heads;
        tile = w.block % tiles;
        first = tile * ROWS;
        out_line = (int64_t)a.heads * a.width;
        line = 3 * out_line;
        out_from = n * a.points * out_line + h * a.width;
        from = n * a.points * line + h * a.width;
        kept_from = 2 * i * a.points;
        q = x + from;
        k = q + out_line;
        v = k + out_line;
    }
};

/* loads rows [first, first + ROWS) of a matrix; rows beyond its end become zero */
template <class T>
DEVICE void tile_load(const struct where &w, const struct k_attention &a, lines &to, const T *x, int64_t line,
                      int first)
{
    EACH_THREAD(w, t) {
        for (int e = t; e < ROWS * a.width; e += w.threads) {
            const int r = e / a.width, c = e % a.width;
            to[r][c] = first + r < a.points ? to_float(x[(first + r) * line + c]) : 0;
        }
    }
}

DEVICE float product(const lines &x, int i, const lines &y, int j, int width)
{
    float sum = 0;
    for (int c = 0; c < width; c++) sum += x[i][c] * y[j][c];
    return sum;
}

template <class T> struct attention_kernel {
    struct k_attention a; const T *x; T *y; float *kept;
    DEVICE void block(const struct where &w) const
    {
        SHARED lines q, kv, sum;
        SHARED float p[ROWS][ROWS + 1], most[ROWS], all[ROWS], by[ROWS];
        const head<T> h(a, w, x);
        tile_load(w, a, q, h.q, h.line, h.first);
        EACH_THREAD(w, t) {
            for (int e = t; e < ROWS * a.width; e += w.threads) sum[e / a.width][e % a.width] = 0;
            if (t < ROWS) {
                most[t] = -INFINITY;
                all[t] = 0;
            }
        }
        for (int at = 0; at < a.points; at += ROWS) {
            BARRIER();
            tile_load(w, a, kv, h.k, h.line, at);
            BARRIER();
            EACH_THREAD(w, t) {
                const int i = t / ROWS, j = t % ROWS;
                p[i][j] = at + j < a.points ? a.scale * product(q, i, kv, j, a.width) : -INFINITY;
            }
            BARRIER();
            EACH_THREAD(w, t) {
                if (t < ROWS) {
                    float m = most[t];
                    for (int j = 0; j < ROWS; j++) m = p[t][j] > m ? p[t][j] : m;
                    by[t] = expf(most[t] - m);
                    most[t] = m;
                }
            }
            tile_load(w, a, kv, h.v, h.line, at);
            BARRIER();
            EACH_THREAD(w, t) p[t / ROWS][t % ROWS] = expf(p[t / ROWS][t % ROWS] - most[t / ROWS]);
            BARRIER();
            EACH_THREAD(w, t) {
                for (int e = t; e < ROWS * a.width; e += w.threads) {
                    const int i = e / a.width, c = e % a.width;
                    float v = sum[i][c] * by[i];
                    UNROLL for (int j = 0; j < ROWS; j++) v += p[i][j] * kv[j][c];
                    sum[i][c] = v;
                }
                if (t < ROWS) {
                    float v = all[t] * by[t];
                    for (int j = 0; j < ROWS; j++) v += p[t][j];
                    all[t] = v;
                }
            }
        }
        BARRIER();
        EACH_THREAD(w, t) {
            for (int e = t; e < ROWS * a.width; e += w.threads) {
                const int i = e / a.width, c = e % a.width;
                if (h.first + i < a.points)
                    from_float(&y[h.out_from + (h.first + i) * h.out_line + c], sum[i][c] / all[i]);
            }
            if (t < ROWS && h.first + t < a.points) {
                kept[h.kept_from + 2 * (h.first + t)] = most[t];
                kept[h.kept_from + 2 * (h.first + t) + 1] = 1 / all[t];
            }
        }
    }
};

/* the gradient that a block's tile computes */
enum { OF_QUERY, OF_KEY, OF_VALUE };

/* With p the probabilities and ds = p (go v - sum of go o) as in op_attention. Gradient of queries: the sum of ds k
 * over keys; of keys: the sum of ds q over queries; of values: the sum of p go. */
template <class T, int OF> struct attention_back {
    struct k_attention a; const T *x, *y, *gy; T *gx; const float *kept; bool acc;

    DEVICE void queries_load(const struct where &w, const head<T> &h, int first, lines &q, lines &go, float *mean,
                             float (&part)[ROWS][ROWS + 1]) const
    {
        tile_load(w, a, q, h.q, h.line, first);
        tile_load(w, a, go, gy + h.out_from, h.out_line, first);
        if (OF == OF_VALUE) return;
        BARRIER();
        EACH_THREAD(w, t) {
            const int i = t / ROWS;
            float v = 0;
            for (int c = t % ROWS; c < a.width && first + i < a.points; c += ROWS)
                v += go[i][c] * to_float(y[h.out_from + (first + i) * h.out_line + c]);
            part[i][t % ROWS] = v;
        }
        BARRIER();
        EACH_THREAD(w, t) {
            if (t < ROWS) {
                float v = 0;
                for (int j = 0; j < ROWS; j++) v += part[t][j];
                mean[t] = v;
            }
        }
    }

    DEVICE void keys_load(const struct where &w, const head<T> &h, int first, lines &k, lines &v) const
    {
        tile_load(w, a, k, h.k, h.line, first);
        if (OF != OF_VALUE) tile_load(w, a, v, h.v, h.line, first);
    }

    DEVICE void block(const struct where &w) const
    {
        SHARED lines q, go, k, v, sum;
        SHARED float by[ROWS][ROWS + 1], mean[ROWS];
        const head<T> h(a, w, x);
        EACH_THREAD(w, t) for (int e = t; e < ROWS * a.width; e += w.threads) sum[e / a.width][e % a.width] = 0;
        if (OF == OF_QUERY) queries_load(w, h, h.first, q, go, mean, by);
        else keys_load(w, h, h.first, k, v);
        for (int at = 0; at < a.points; at += ROWS) {
            const int query = OF == OF_QUERY ? h.first : at, key = OF == OF_QUERY ? at : h.first;
            BARRIER();
            if (OF == OF_QUERY) keys_load(w, h, at, k, v);
            else queries_load(w, h, at, q, go, mean, by);
            BARRIER();
            EACH_THREAD(w, t) {
                const int i = t / ROWS, j = t % ROWS;
                float p = 0;
                if (query + i < a.points && key + j < a.points) {
                    const float *const row = kept + h.kept_from + 2 * (query + i);
                    p = expf(a.scale * product(q, i, k, j, a.width) - row[0]) * row[1];
                    if (OF != OF_VALUE) p *= a.scale * (product(go, i, v, j, a.width) - mean[i]);
                }
                if (OF == OF_QUERY) by[i][j] = p;
                else by[j][i] = p;
            }
            BARRIER();
            EACH_THREAD(w, t) {
                for (int e = t; e < ROWS * a.width; e += w.threads) {
                    const int r = e / a.width, c = e % a.width;
                    const lines &of = OF == OF_QUERY ? k : OF == OF_KEY ? q : go;
                    float s = sum[r][c];
                    UNROLL for (int j = 0; j < ROWS; j++) s += by[r][j] * of[j][c];
                    sum[r][c] = s;
                }
            }
        }
        BARRIER();
        EACH_THREAD(w, t) {
            for (int e = t; e < ROWS * a.width; e += w.threads) {
                const int r = e / a.width, c = e % a.width;
                if (h.first + r < a.points)
                    give(&gx[h.from + OF * h.out_line + (h.first + r) * h.line + c], sum[r][c], acc);
            }
        }
    }
};

static int64_t blocks_of(const struct k_attention *a) { return a->n * a->heads * div_up(a->points, ROWS); }

template <class T> static int forward(void *stream, const struct k_attention *a, const void *x, void *y, float *kept)
{
    return launch(stream, blocks_of(a), THREADS, attention_kernel<T>{*a, (const T *)x, (T *)y, kept});
}

extern "C" int k_attention(void *stream, const struct k_attention *a, const void *x, void *y, float *kept)
{
    if (a->width > K_HEAD) return BAD_CALL;
    return BY_TYPE(a->type, forward<float>(stream, a, x, y, kept), forward<bf16>(stream, a, x, y, kept));
}

template <class T, int OF>
static int back_of(void *stream, const struct k_attention *a, const struct k_attention_kept *f, const struct k_grad *g)
{
    return launch(stream, blocks_of(a), THREADS,
                  attention_back<T, OF>{*a, (const T *)f->x, (const T *)f->y, (const T *)g->gy, (T *)g->gx, f->kept,
                                        g->acc});
}

template <class T>
static int back(void *stream, const struct k_attention *a, const struct k_attention_kept *f, const struct k_grad *g)
{
    int bad = back_of<T, OF_QUERY>(stream, a, f, g);
    if (!bad) bad = back_of<T, OF_KEY>(stream, a, f, g);
    return bad ? bad : back_of<T, OF_VALUE>(stream, a, f, g);
}

extern "C" int k_attention_back(void *stream, const struct k_attention *a, const struct k_attention_kept *f,
                                const struct k_grad *g)
{
    if (a->width > K_HEAD) return BAD_CALL;
    return BY_TYPE(a->type, back<float>(stream, a, f, g), back<bf16>(stream, a, f, g));
}
