/* One source for kernels on a GPU and on the host. For the kernels in this folder only.
 *
 * A kernel is a struct with its arguments and `DEVICE void block(const struct where &w) const`: the work of one block.
 * In it, EACH_THREAD(w, t) runs its body for every thread of the block. BARRIER() separates phases: a phase may read
 * what other threads wrote in earlier ones. Values that outlive a phase are SHARED. nvcc compiles this to a CUDA
 * kernel. A plain C++ compiler makes loops over threads and blocks, which run in the stream's order (host_launch): so
 * tests run every kernel without a GPU. So a phase must not depend on the order of its threads, nor a launch on the
 * order of its blocks. */
#ifndef KERNELS_LAUNCH_H
#define KERNELS_LAUNCH_H
#include <stddef.h>
#include <stdint.h>
#include <string.h>

enum { THREADS = 256 };                                  /* the most in a block */
struct where { int block, blocks, threads; };            /* this block's number, number of blocks, threads of each */

#ifdef __CUDACC__
#include <cuda_runtime_api.h>
#define DEVICE __device__ __forceinline__
#define SHARED __shared__
#define EACH_THREAD(w, t) for (int t = (int)threadIdx.x, t##_once = 1; t##_once; t##_once = 0)
#define BARRIER() __syncthreads()
#define UNROLL _Pragma("unroll")

template <class K, int RESIDENT> __global__ void __launch_bounds__(THREADS, RESIDENT) kernel_entry(const K k)
{
    struct where w = {(int)blockIdx.x, (int)gridDim.x, (int)blockDim.x};
    k.block(w);
}

/* RESIDENT: how many blocks at once must fit a multiprocessor's registers. */
template <int RESIDENT = 1, class K> static int launch(void *stream, int64_t blocks, int threads, const K &k)
{
    if (blocks <= 0) return 0;
    cudaLaunchConfig_t c = {};
    void *arguments[] = {(void *)&k};
    c.gridDim = dim3((unsigned)blocks);
    c.blockDim = dim3((unsigned)threads);
    c.stream = (cudaStream_t)stream;
    /* returns its own status, not an earlier error */
    return (int)cudaLaunchKernelExC(&c, (const void *)kernel_entry<K, RESIDENT>, arguments);
}

#else
extern "C" { inline int kernels_backwards = 0; }         /* tests: 1 all in descending order, 2 blocks in mixed order */
#define DEVICE inline
#define SHARED
#define EACH_THREAD(w, t) \
    for (int t##_i = 0, t; t##_i < (w).threads && ((t = kernels_backwards ? (w).threads - 1 - t##_i : t##_i), true); \
         t##_i++)
#define BARRIER() do { } while (0)
#define UNROLL

/* Calls fn with a copy of these bytes when the stream gets there; returns 0 or a cudaError_t. The double of the CUDA
 * runtime, or the test, defines it. */
extern "C" int host_launch(void *stream, void (*fn)(void *), const void *data, size_t bytes);

template <class K> struct launched { K k; int64_t blocks; int threads; };

static inline int64_t divisor_of(int64_t a, int64_t b) { return b ? divisor_of(b, a % b) : a; }
/* The i-th block to run. Mixed order: in strides of about 0.6 of the blocks, coprime to their number. */
static inline int64_t block_at(int64_t i, int64_t blocks)
{
    if (kernels_backwards < 2) return kernels_backwards ? blocks - 1 - i : i;
    int64_t stride = blocks * 5 / 8 + 1;
    while (divisor_of(stride, blocks) != 1) stride++;
    return i * stride % blocks;
}

template <class K> static void launched_run(void *data)
{
    const launched<K> *l = (const launched<K> *)data;
    for (int64_t b = 0; b < l->blocks; b++) {
        struct where w = {(int)block_at(b, l->blocks), (int)l->blocks, l->threads};
        l->k.block(w);
    }
}

template <int RESIDENT = 1, class K> static int launch(void *stream, int64_t blocks, int threads, const K &k)
{
    if (blocks <= 0) return 0;
    launched<K> l = {k, blocks, threads};
    return host_launch(stream, launched_run<K>, &l, sizeof l);
}
#endif

/* ---- elements -------------------------------------------------------------------------------- */

struct bf16 { uint16_t bits; };

DEVICE float to_float(float x) { return x; }
DEVICE float to_float(bf16 x)
{
    uint32_t u = (uint32_t)x.bits << 16;
    float f;
    memcpy(&f, &u, sizeof f);
    return f;
}

/* Rounded to nearest, ties to even; NaN stays NaN. */
DEVICE void from_float(float *y, float x) { *y = x; }
DEVICE void from_float(bf16 *y, float x)
{
#ifdef __CUDA_ARCH__
    asm("cvt.rn.bf16.f32 %0, %1;" : "=h"(y->bits) : "f"(x));
#else
    uint32_t u;
    memcpy(&u, &x, sizeof u);
    y->bits =
        (u & 0x7fffffff) > 0x7f800000 ? (uint16_t)(u >> 16 | 0x40) : (uint16_t)((u + 0x7fff + (u >> 16 & 1)) >> 16);
#endif
}

/* N neighbours, moved together: 16 bytes if N is WIDE<T>. */
template <class T> constexpr int WIDE = 16 / (int)sizeof(T);
template <class T, int N> struct alignas(N * sizeof(T)) pack { T v[N]; };
template <int N, class T> DEVICE pack<T, N> get(const T *p) { return *(const pack<T, N> *)p; }
template <int N, class T> DEVICE void put(T *p, const pack<T, N> &v) { *(pack<T, N> *)p = v; }

static inline int64_t div_up(int64_t a, int64_t b) { return (a + b - 1) / b; }

/* Calls op.at<N>(i) so that each i < n is covered once: N = WIDE<T> neighbours, and single elements at the end. The
 * pointers of op are aligned to 16 bytes. */
template <class T, class Op> struct each {
    Op op; size_t n;
    DEVICE void block(const struct where &w) const
    {
        EACH_THREAD(w, t) {
            size_t i = ((size_t)w.block * (size_t)w.threads + (size_t)t) * WIDE<T>;
            if (i + WIDE<T> <= n) op.template at<WIDE<T>>(i);
            else for (; i < n; i++) op.template at<1>(i);
        }
    }
};
template <class T, class Op> static int launch_each(void *stream, size_t n, const Op &op)
{
    return launch(stream, div_up((int64_t)n, THREADS * WIDE<T>), THREADS, each<T, Op>{op, n});
}

/* Calls op.one(i) for i < n. I: the type of i. Ops divide i to find a place, so I should have 32 bits where they
 * suffice: a GPU has no 64-bit division. */
template <class Op, class I> struct each_one {
    Op op; I n;
    DEVICE void block(const struct where &w) const
    {
        EACH_THREAD(w, t) {
            I i = (I)w.block * (I)w.threads + (I)t;
            if (i < n) op.one(i);
        }
    }
};
template <class I = size_t, class Op> static int launch_one(void *stream, size_t n, const Op &op)
{
    return launch(stream, div_up((int64_t)n, THREADS), THREADS, each_one<Op, I>{op, (I)n});
}
static inline bool short_count(size_t n) { return n <= UINT32_MAX - THREADS; }

/* [rows][c] in packs of N neighbouring channels: calls one(i) of Op<T, N, I> for each pack. N is WIDE<T> if c is a
 * multiple of it (and `wide` allows it), otherwise 1; args initialise the Op. */
template <template <class, int, class> class Op, class T, class... Args>
static int launch_packs(void *stream, size_t rows, int c, bool wide, Args... args)
{
    const size_t n = rows * (size_t)c;
    if (wide && c % WIDE<T> == 0 && short_count(n / WIDE<T>))
        return launch_one<uint32_t>(stream, n / WIDE<T>, Op<T, WIDE<T>, uint32_t>{args...});
    return launch_one<size_t>(stream, n, Op<T, 1, size_t>{args...});
}

/* y = v, or y += v. */
template <class T> DEVICE void give(T *y, float v, bool acc) { from_float(y, acc ? to_float(*y) + v : v); }

/* BY_TYPE(type, f<float>(...), f<bf16>(...)): the call for the type. */
#define BY_TYPE(type, call32, call16) ((type) == K_BF16 ? (call16) : (call32))
#endif
