/* bfloat16 to float, for gradients that a library writes in bfloat16; codes of 8 bits to either, for products. */
#include "kernels/kernels.h"
#include "kernels/launch.h"

struct from_bf16_op {
    const bf16 *x; float *y; bool acc;
    template <int N> DEVICE void at(size_t i) const
    {
        pack<bf16, N> v = get<N>(x + i);
        pack<float, N> r;
        if (acc) r = get<N>(y + i);
        UNROLL for (int k = 0; k < N; k++) give(&r.v[k], to_float(v.v[k]), acc);
        put<N>(y + i, r);
    }
};

extern "C" int k_from_bf16(void *stream, size_t n, const void *x, float *y, bool acc)
{
    return launch_each<float>(stream, n, from_bf16_op{(const bf16 *)x, y, acc});
}

template <class T, class I> struct from_codes_op {
    const int8_t *code; const float *factor; T *y; I n;
    DEVICE void one(I i) const { from_float(&y[i], (float)code[i] * (factor[i / n] / 127)); }
};

template <class T> static int from_codes(void *stream, int64_t rows, int64_t n, const int8_t *code, const float *factor,
                                         T *y)
{
    const size_t all = (size_t)(rows * n);
    if (short_count(all))
        return launch_one<uint32_t>(stream, all, from_codes_op<T, uint32_t>{code, factor, y, (uint32_t)n});
    return launch_one<size_t>(stream, all, from_codes_op<T, size_t>{code, factor, y, (size_t)n});
}

extern "C" int k_from_codes(void *stream, enum ktype type, int64_t rows, int64_t n, const int8_t *code,
                            const float *factor, void *y)
{
    return BY_TYPE(type, from_codes(stream, rows, n, code, factor, (float *)y),
                   from_codes(stream, rows, n, code, factor, (bf16 *)y));
}
