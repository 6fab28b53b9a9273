/* bfloat16 to float, for gradients that a library writes in bfloat16. */
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
