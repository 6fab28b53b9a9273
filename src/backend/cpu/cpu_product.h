/* Products of small matrices of floats in own loops: blocks of columns, 16 of them under AVX-512 and 8 under AVX2, of
 * panels of the right side. A value's sum runs over k in ascending order, from the old value, the bias, or zero. So it
 * does not depend on other rows or columns. Any thread. It needs the instruction set. */
#ifndef BACKEND_CPU_CPU_PRODUCT_H
#define BACKEND_CPU_CPU_PRODUCT_H
#include <stdbool.h>
#include <stdint.h>

/* Rows of a and c are a_line and c_line floats apart; n is a multiple of the block. bias NULL: none; not with add. */
struct product_rows {
    int64_t m, n, k; const float *a; int64_t a_line; const float *bias; float *c; int64_t c_line; bool add;
};

/* One table for each instruction set. Panels: [n / block][k][block]. */
struct product_ops {
    int block;
    /* Panels of b[k][n] that is stored as rows of n, or of k values (turned), `line` floats apart. Columns beyond n are
     * zeros. `to`: of the first block; blocks are `apart` floats apart. */
    void (*panels)(const float *b, int64_t line, int64_t n, int64_t k, float *to, int64_t apart);
    void (*panels_turned)(const float *b, int64_t line, int64_t n, int64_t k, float *to, int64_t apart);
    /* c = or += a b, where b is panels that are `apart` floats apart */
    void (*rows)(const struct product_rows *p, const float *panels, int64_t apart);
    /* c = or += a' b: a has k rows of m values, b has k rows of n values, b_line floats apart */
    void (*outer)(const struct product_rows *p, const float *b, int64_t b_line);
};
extern const struct product_ops product_avx512, product_avx2;
struct be;
const struct product_ops *cpu_product_ops(const struct be *b);           /* of this processor; NULL: none */

#endif
