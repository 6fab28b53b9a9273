/* Attention, by tiles of queries and keys: scores are never stored, backward computes them again. A
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

/* One head of queries of one sample, and the keys and values that it reads. */
template <class T> struct head {
    const T *q, *k, *v; int64_t out_line, out_from, kept_from; const int32_t *positions;
    DEVICE head(const struct k_attention &a, const struct k_attention_in &x, int64_t n, int h)
    {
        const int64_t kv = n * a.points * a.line_kv + (int64_t)(h / (a.heads / a.kv_heads)) * a.width;
        out_line = (int64_t)a.heads * a.width;
        out_from = n * a.points * out_line + (int64_t)h * a.width;
        kept_from = 2 * (n * a.heads + h) * a.points;
        q = (const T *)x.q + n * a.points * a.line_q + (int64_t)h * a.width;
        k = (const T *)x.k + kv;
        v = (const T *)x.v + kv;
        positions = a.positions ? a.positions + n * a.points : NULL;
    }
    /* Does position i see position j? */
    DEVICE bool sees(const struct k_attention &a, int i, int j) const
    {
        if (i >= a.points || j >= a.points) return false;
        return !a.causal || (j <= i && (!positions || j >= i - positions[i]));
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
    struct k_attention a; struct k_attention_in x; T *y; float *kept;
    DEVICE void block(const struct where &w) const
    {
        SHARED lines q, kv, sum;
        SHARED float p[ROWS][ROWS + 1], most[ROWS], all[ROWS], by[ROWS];
        const int tiles = (a.points + ROWS - 1) / ROWS, first = w.block % tiles * ROWS;
        const int64_t i = w.block / tiles;
        const head<T> h(a, x, i / a.heads, (int)(i % a.heads));
        const int end = a.causal && first + ROWS < a.points ? first + ROWS : a.points;
        tile_load(w, a, q, h.q, a.line_q, first);
        EACH_THREAD(w, t) {
            for (int e = t; e < ROWS * a.width; e += w.threads) sum[e / a.width][e % a.width] = 0;
            if (t < ROWS) {
                most[t] = -INFINITY;
                all[t] = 0;
            }
        }
        for (int at = 0; at < end; at += ROWS) {
            BARRIER();
            tile_load(w, a, kv, h.k, a.line_kv, at);
            BARRIER();
            EACH_THREAD(w, t) {
                const int r = t / ROWS, j = t % ROWS;
                const bool seen = a.causal ? h.sees(a, first + r, at + j) : at + j < a.points;
                p[r][j] = seen ? a.scale * product(q, r, kv, j, a.width) : -INFINITY;
            }
            BARRIER();
            EACH_THREAD(w, t) {
                if (t < ROWS) {
                    float m = most[t];
                    for (int j = 0; j < ROWS; j++) m = p[t][j] > m ? p[t][j] : m;
                    by[t] = m == -INFINITY ? 0 : expf(most[t] - m);
                    most[t] = m;
                }
            }
            tile_load(w, a, kv, h.v, a.line_kv, at);
            BARRIER();
            EACH_THREAD(w, t) {
                const float m = most[t / ROWS], s = p[t / ROWS][t % ROWS];
                p[t / ROWS][t % ROWS] = s == -INFINITY && m == -INFINITY ? 0 : expf(s - m);
            }
            BARRIER();
            EACH_THREAD(w, t) {
                for (int e = t; e < ROWS * a.width; e += w.threads) {
                    const int r = e / a.width, c = e % a.width;
                    float v = sum[r][c] * by[r];
                    UNROLL for (int j = 0; j < ROWS; j++) v += p[r][j] * kv[j][c];
                    sum[r][c] = v;
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
                const int r = e / a.width, c = e % a.width;
                if (first + r < a.points) from_float(&y[h.out_from + (first + r) * h.out_line + c], sum[r][c] / all[r]);
            }
            if (t < ROWS && first + t < a.points) {
                kept[h.kept_from + 2 * (first + t)] = most[t];
                kept[h.kept_from + 2 * (first + t) + 1] = 1 / all[t];
            }
        }
    }
};

/* the gradient that a block's tile computes */
enum { OF_QUERY, OF_KEY, OF_VALUE };

/* With p the probabilities and ds = p (go v - sum of go o) as in op_attention. Gradient of queries: the sum of ds k
 * over keys; of keys: the sum of ds q over queries; of values: the sum of p go. */
template <class T, int OF> struct attention_back {
    struct k_attention a; struct k_attention_in x; const T *y, *gy; T *gx; const float *kept; bool acc;

    DEVICE void queries_load(const struct where &w, const head<T> &h, int first, lines &q, lines &go, float *mean,
                             float (&part)[ROWS][ROWS + 1]) const
    {
        tile_load(w, a, q, h.q, a.line_q, first);
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
        tile_load(w, a, k, h.k, a.line_kv, first);
        if (OF != OF_VALUE) tile_load(w, a, v, h.v, a.line_kv, first);
    }

    /* Of queries: one head. Of keys and values: all heads of queries that read them, in order. */
    DEVICE void block(const struct where &w) const
    {
        SHARED lines q, go, k, v, sum;
        SHARED float by[ROWS][ROWS + 1], mean[ROWS];
        const int tiles = (a.points + ROWS - 1) / ROWS, first = w.block % tiles * ROWS;
        const int own = OF == OF_QUERY ? a.heads : a.kv_heads, readers = OF == OF_QUERY ? 1 : a.heads / a.kv_heads;
        const int64_t i = w.block / tiles, n = i / own;
        const int number = (int)(i % own);
        const int from = a.causal && OF != OF_QUERY ? first : 0,
                  end = a.causal && OF == OF_QUERY && first + ROWS < a.points ? first + ROWS : a.points;
        EACH_THREAD(w, t) for (int e = t; e < ROWS * a.width; e += w.threads) sum[e / a.width][e % a.width] = 0;
        for (int r = 0; r < readers; r++) {
            const head<T> h(a, x, n, number * readers + r);
            BARRIER();
            if (OF == OF_QUERY) queries_load(w, h, first, q, go, mean, by);
            else if (r == 0) keys_load(w, h, first, k, v);
            for (int at = from; at < end; at += ROWS) {
                BARRIER();
                if (OF == OF_QUERY) keys_load(w, h, at, k, v);
                else queries_load(w, h, at, q, go, mean, by);
                BARRIER();
                tile_add(w, h, OF == OF_QUERY ? first : at, OF == OF_QUERY ? at : first, q, go, k, v, mean, by, sum);
            }
        }
        BARRIER();
        const int64_t line = OF == OF_QUERY ? a.line_q : a.line_kv,
                      to = n * a.points * line + (int64_t)number * a.width;
        EACH_THREAD(w, t) {
            for (int e = t; e < ROWS * a.width; e += w.threads) {
                const int r = e / a.width, c = e % a.width;
                if (first + r < a.points) give(&gx[to + (first + r) * line + c], sum[r][c], acc);
            }
        }
    }

    /* Adds a pair of tiles of queries and keys. */
    DEVICE void tile_add(const struct where &w, const head<T> &h, int query, int key, const lines &q, const lines &go,
                         const lines &k, const lines &v, const float *mean, float (&by)[ROWS][ROWS + 1],
                         lines &sum) const
    {
        EACH_THREAD(w, t) {
            const int i = t / ROWS, j = t % ROWS;
            float p = 0;
            if (h.sees(a, query + i, key + j)) {
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
};

static int64_t blocks_of(const struct k_attention *a, int heads) { return a->n * heads * div_up(a->points, ROWS); }

template <class T>
static int forward(void *stream, const struct k_attention *a, const struct k_attention_in *x, void *y, float *kept)
{
    return launch(stream, blocks_of(a, a->heads), THREADS, attention_kernel<T>{*a, *x, (T *)y, kept});
}

extern "C" int k_attention(void *stream, const struct k_attention *a, const struct k_attention_in *x, void *y,
                           float *kept)
{
    if (a->width > K_HEAD) return BAD_CALL;
    return BY_TYPE(a->type, forward<float>(stream, a, x, y, kept), forward<bf16>(stream, a, x, y, kept));
}

template <class T, int OF>
static int back_of(void *stream, const struct k_attention *a, const struct k_attention_kept *f,
                   const struct k_attention_grad *g)
{
    if (!g->gx[OF]) return 0;
    return launch(stream, blocks_of(a, OF == OF_QUERY ? a->heads : a->kv_heads), THREADS,
                  attention_back<T, OF>{*a, f->x, (const T *)f->y, (const T *)g->gy, (T *)g->gx[OF], f->kept,
                                        g->acc[OF]});
}

template <class T>
static int back(void *stream, const struct k_attention *a, const struct k_attention_kept *f,
                const struct k_attention_grad *g)
{
    int bad = back_of<T, OF_QUERY>(stream, a, f, g);
    if (!bad) bad = back_of<T, OF_KEY>(stream, a, f, g);
    return bad ? bad : back_of<T, OF_VALUE>(stream, a, f, g);
}

extern "C" int k_attention_back(void *stream, const struct k_attention *a, const struct k_attention_kept *f,
                                const struct k_attention_grad *g)
{
    if (a->width > K_HEAD) return BAD_CALL;
    return BY_TYPE(a->type, back<float>(stream, a, f, g), back<bf16>(stream, a, f, g));
}
