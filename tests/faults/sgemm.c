/* For LD_PRELOAD: products of matrices that other programs disturb, of rank MPSTAGED_SLOW_RANK: one of 12 takes a
 * second longer, whatever else the machine does. */
#include <dlfcn.h>
#include <dnnl.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

dnnl_status_t dnnl_sgemm(char ta, char tb, dnnl_dim_t m, dnnl_dim_t n, dnnl_dim_t k, float alpha, const float *a,
                         dnnl_dim_t lda, const float *b, dnnl_dim_t ldb, float beta, float *c, dnnl_dim_t ldc)
{
    static unsigned calls;
    __typeof__(dnnl_sgemm) *real = (__typeof__(real))dlsym(RTLD_NEXT, "dnnl_sgemm");
    const char *rank = getenv("OMPI_COMM_WORLD_RANK") ?: getenv("PMI_RANK"), *slow = getenv("MPSTAGED_SLOW_RANK");
    dnnl_status_t status = real(ta, tb, m, n, k, alpha, a, lda, b, ldb, beta, c, ldc);
    if (rank && slow && !strcmp(rank, slow) && ++calls % 12 == 0) sleep(1);
    return status;
}
