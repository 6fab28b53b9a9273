/* The optimizer's step over all weights, the norm of gradients, and the test that they are finite. Must be compiled
 * without fused multiply-add: weights get the same bits as from optim/optim.c. */
#include "kernels/block.h"
#include "kernels/kernels.h"
#include "optim/rule.h"

/* A rule as a type. whole: changes the step by sums over the whole weight, for rules that have such sums. */
#define OPTIM_RULE(name, ...) \
    struct name##_rule { \
        static constexpr bool sums = false; \
        DEVICE static void whole(struct name##_step *s, const double *sum) { (void)s, (void)sum; } \
        RULE(name) \
    };
#define OPTIM_RULE_WHOLE(name, ...) \
    struct name##_rule { \
        static constexpr bool sums = true; \
        DEVICE static void whole(struct name##_step *s, const double *sum) { name##_whole(s, sum); } \
        DEVICE static void first(const struct name##_step *s, float w, float g, float *at, double *term) \
        { \
            name##_first(s, w, g, at, term); \
        } \
        RULE(name) \
    };
#define RULE(name) \
        typedef struct name##_step step; \
        DEVICE static step begin(const struct be_block *b, const struct be_weight *w) { return name##_begin(b, w); } \
        DEVICE static int states(const double *hyper) { return name##_states(hyper); } \
        DEVICE static float element(const step *s, float w, float g, float *at) \
        { \
            return name##_element(s, w, g, at); \
        }
#define OPTIM_FILES
#include "registry.inc"

enum {
    TILE = OPTIM_TILE,                                   /* elements of a weight that a block takes at a time */
    STEP_BLOCKS = 1056, SUM_BLOCKS = 528,                /* eight and four for each multiprocessor of a large GPU */
};

static_assert((int)OPTIM_LANES == (int)THREADS, "a thread is a lane of the sums of optim/rule.h");

/* ---- a step: weights are cut into tiles, and a block takes every w.blocks-th of all tiles ----- */

struct tiles {
    const struct be_weight *weight; int n_weights;
    DEVICE static int64_t of(const struct be_weight &k) { return (int64_t)((k.n + TILE - 1) / TILE); }

    /* Calls f(weight, tile number in it) for each of this block's tiles; all threads call f. Thread t counts the tiles
     * of its share of the weights; prefix sums of the counts show in which share a tile is. */
    template <class F> DEVICE void each(const struct where &w, F f) const
    {
        SHARED int64_t before[THREADS + 1], sum[THREADS];
        const int share = (n_weights + THREADS - 1) / THREADS;
        EACH_THREAD(w, t) {
            sum[t] = 0;
            for (int i = t * share; i < (t + 1) * share && i < n_weights; i++) sum[t] += of(weight[i]);
        }
        for (int reach = 1; reach < THREADS; reach *= 2) {
            BARRIER();
            EACH_THREAD(w, t) before[t] = sum[t] + (t >= reach ? sum[t - reach] : 0);
            BARRIER();
            EACH_THREAD(w, t) sum[t] = before[t];
        }
        BARRIER();
        EACH_THREAD(w, t) {
            before[t + 1] = sum[t];
            if (t == 0) before[0] = 0;
        }
        BARRIER();
        for (int64_t at = w.block; at < before[THREADS]; at += w.blocks) {
            int low = 0, high = THREADS;                 /* before[low] <= at < before[high] */
            while (high - low > 1) {
                int mid = (low + high) / 2;
                if (before[mid] <= at) low = mid;
                else high = mid;
            }
            int i = low * share;
            int64_t in = at - before[low];
            for (; in >= of(weight[i]); i++) in -= of(weight[i]);
            f(weight[i], in);
        }
    }
};

/* The first pass of a rule with sums over whole weights: updates the state, and stores sums of each tile. */
template <class Rule> struct first_kernel {
    struct tiles all; const struct be_block *b;

    template <int N>
    DEVICE static void some(const struct be_weight &k, const typename Rule::step &s, size_t i, double *sum)
    {
        const pack<float, N> w = get<N>(k.w + i), g = get<N>(k.g + i);
        pack<float, N> state[MAX_STATE];
        UNROLL for (int j = 0; j < MAX_STATE; j++) state[j] = get<N>(k.state + (size_t)j * optim_stride(k.n) + i);
        UNROLL for (int e = 0; e < N; e++) {
            float at[MAX_STATE];
            double term[OPTIM_SUMS];
            UNROLL for (int j = 0; j < MAX_STATE; j++) at[j] = state[j].v[e];
            Rule::first(&s, w.v[e], g.v[e], at, term);
            UNROLL for (int j = 0; j < MAX_STATE; j++) state[j].v[e] = at[j];
            UNROLL for (int j = 0; j < OPTIM_SUMS; j++) sum[j] += term[j];
        }
        UNROLL for (int j = 0; j < MAX_STATE; j++) put<N>(k.state + (size_t)j * optim_stride(k.n) + i, state[j]);
    }

    DEVICE void block(const struct where &w) const
    {
        SHARED double lane[OPTIM_SUMS][THREADS];
        all.each(w, [&](const struct be_weight &k, int64_t tile) {
            const size_t from = (size_t)tile * TILE, to = from + TILE < k.n ? from + TILE : k.n;
            if (!k.g) return;
            EACH_THREAD(w, t) {
                const typename Rule::step s = Rule::begin(b, &k);
                double sum[OPTIM_SUMS] = {};
                size_t i = from + (size_t)t * 4;
                UNROLL_4 for (; i + 4 <= to; i += THREADS * 4) some<4>(k, s, i, sum);
                for (; i < to; i++) some<1>(k, s, i, sum);
                UNROLL for (int j = 0; j < OPTIM_SUMS; j++) lane[j][t] = sum[j];
            }
            for (int j = 0; j < OPTIM_SUMS; j++) {
                const double sum = block_sum(w, [&](int t) { return lane[j][t]; });
                EACH_THREAD(w, t) if (t == 0) k.sums[(1 + tile) * OPTIM_SUMS + j] = sum;
            }
        });
    }
};

/* Adds the tiles' sums of each weight; one block a weight. */
struct totals_kernel {
    const struct be_weight *weight;
    DEVICE void block(const struct where &w) const
    {
        const struct be_weight &k = weight[w.block];
        if (!k.g) return;
        for (int j = 0; j < OPTIM_SUMS; j++) {
            const double sum = block_sum(w, [&](int t) {
                double v = 0;
                for (int64_t i = t; i < tiles::of(k); i += THREADS) v += k.sums[(1 + i) * OPTIM_SUMS + j];
                return v;
            });
            EACH_THREAD(w, t) if (t == 0) k.sums[j] = sum;
        }
    }
};

template <class Rule> struct update_kernel {
    struct tiles all; const struct be_block *b;

    /* updates the average of N neighbours, from element i on */
    template <int N>
    DEVICE static void averaged(const struct be_weight &k, float fresh, size_t i, const pack<float, N> &w)
    {
        if (!k.average) return;
        pack<float, N> old = get<N>(k.average + i);
        UNROLL for (int e = 0; e < N; e++) old.v[e] = average_element(old.v[e], w.v[e], fresh);
        put<N>(k.average + i, old);
    }

    template <int N>
    DEVICE static void some(const struct be_weight &k, const typename Rule::step &s, int states, float fresh, size_t i)
    {
        if (!k.g) {
            averaged<N>(k, fresh, i, get<N>(k.w + i));
            return;
        }
        pack<float, N> w = get<N>(k.w + i), g = get<N>(k.g + i), state[MAX_STATE] = {};
        pack<bf16, N> rounded;
        UNROLL for (int j = 0; j < MAX_STATE; j++)
            if (j < states) state[j] = get<N>(k.state + (size_t)j * optim_stride(k.n) + i);
        UNROLL for (int e = 0; e < N; e++) {
            float at[MAX_STATE];
            UNROLL for (int j = 0; j < MAX_STATE; j++) at[j] = state[j].v[e];
            w.v[e] = Rule::element(&s, w.v[e], g.v[e], at);
            UNROLL for (int j = 0; j < MAX_STATE; j++) state[j].v[e] = at[j];
            from_float(&rounded.v[e], w.v[e]);
        }
        put<N>(k.w + i, w);
        averaged<N>(k, fresh, i, w);
        if (k.packed) put<N>((bf16 *)k.packed + i, rounded);
        UNROLL for (int j = 0; j < MAX_STATE; j++)
            if (j < states) put<N>(k.state + (size_t)j * optim_stride(k.n) + i, state[j]);
    }

    DEVICE void block(const struct where &w) const
    {
        all.each(w, [&](const struct be_weight &k, int64_t tile) {
            EACH_THREAD(w, t) {
                typename Rule::step s = Rule::begin(b, &k);
                const int states = Rule::states(b->hyper);
                const size_t from = (size_t)tile * TILE, to = from + TILE < k.n ? from + TILE : k.n;
                size_t i = from + (size_t)t * 4;
                if (k.g) Rule::whole(&s, k.sums);
                UNROLL_4 for (; i + 4 <= to; i += THREADS * 4) some<4>(k, s, states, (float)b->fresh, i);
                for (; i < to; i++) some<1>(k, s, states, (float)b->fresh, i);
            }
        });
    }
};

template <class Rule, bool SUMS = Rule::sums> struct before_update {
    static int launched(void *, int64_t, const struct tiles &, const struct be_block *) { return 0; }
};
template <class Rule> struct before_update<Rule, true> {
    static int launched(void *stream, int64_t blocks, const struct tiles &all, const struct be_block *block)
    {
        int status = launch(stream, blocks, THREADS, first_kernel<Rule>{all, block});
        return status ? status : launch(stream, all.n_weights, THREADS, totals_kernel{all.weight});
    }
};

template <class Rule>
static int update(void *stream, const struct be_weight *weight, int n, size_t total, const struct be_block *block)
{
    int64_t most = (int64_t)(total / TILE) + n;          /* tiles: each weight's last may be short */
    if (total == 0) return 0;
    if (most > STEP_BLOCKS) most = STEP_BLOCKS;
    int status = before_update<Rule>::launched(stream, most, tiles{weight, n}, block);
    return status ? status : launch(stream, most, THREADS, update_kernel<Rule>{{weight, n}, block});
}

extern "C" int k_update(void *stream, int optimizer, const struct be_weight *weight, int n, size_t total,
                        const struct be_block *block)
{
#define OPTIM(name) update<name##_rule>,
    static int (*const update_of[])(void *, const struct be_weight *, int, size_t, const struct be_block *) = {
#include "registry.inc"
    };
    return update_of[optimizer](stream, weight, n, total, block);
}

/* ---- sum of squares -------------------------------------------------------------------------- */

struct sum_squares {
    const float *x; size_t n; double *out, *part; unsigned *arrived;
    DEVICE void block(const struct where &w) const
    {
        double sum = block_sum(w, [&](int t) {
            double v = 0;
            size_t i = ((size_t)w.block * THREADS + (size_t)t) * 4;
            UNROLL_4 for (; i + 4 <= n; i += (size_t)w.blocks * THREADS * 4) {
                pack<float, 4> p = get<4>(x + i);
                UNROLL for (int e = 0; e < 4; e++) v += (double)p.v[e] * p.v[e];
            }
            for (; i < n; i++) v += (double)x[i] * x[i];
            return v;
        });
        EACH_THREAD(w, t) if (t == 0) part[w.block] = sum;
        if (!last_block(arrived, (unsigned)w.blocks)) return;
        sum = block_sum(w, [&](int t) {
            double v = 0;
            for (int i = t; i < w.blocks; i += THREADS) v += fresh(&part[i]);
            return v;
        });
        EACH_THREAD(w, t) if (t == 0) *out = sum;
    }
};

extern "C" size_t k_sum_work(void) { return SUM_BLOCKS * sizeof(double); }

extern "C" int k_sum_squares(void *stream, const float *x, size_t n, double *out, void *work, unsigned *arrived)
{
    int64_t blocks = div_up((int64_t)n, THREADS * 16);
    blocks = blocks < 1 ? 1 : blocks < SUM_BLOCKS ? blocks : (int64_t)SUM_BLOCKS;
    return launch(stream, blocks, THREADS, sum_squares{x, n, out, (double *)work, arrived});
}

/* ---- finite? --------------------------------------------------------------------------------- */

struct count_nonfinite {
    const float *x; size_t n; unsigned long long *count;
    DEVICE void block(const struct where &w) const
    {
        double bad = block_sum(w, [&](int t) {
            double v = 0;
            for (size_t i = (size_t)w.block * THREADS + (size_t)t; i < n; i += (size_t)w.blocks * THREADS)
                v += x[i] - x[i] != 0;
            return v;
        });
        EACH_THREAD(w, t) if (t == 0 && bad > 0) count_up(count, (unsigned long long)bad);
    }
};

extern "C" int k_count_nonfinite(void *stream, const float *x, size_t n, unsigned long long *count)
{
    int64_t blocks = div_up((int64_t)n, THREADS * 16);
    return launch(stream, blocks < SUM_BLOCKS ? blocks : (int64_t)SUM_BLOCKS, THREADS, count_nonfinite{x, n, count});
}
