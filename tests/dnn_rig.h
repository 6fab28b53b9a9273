/* Shared by the tests of dnn.h over fakes of the libraries: the fakes' first state, and tensors of small integers. */
#ifndef TESTS_DNN_RIG_H
#define TESTS_DNN_RIG_H
#include <stdlib.h>
#include <string.h>
#include "backend/cuda/dnn.h"
#include "base/mem.h"
#include "base/rng.h"
#include "tests/gpu/dnn_fakes.h"
#include "sure.h"

static inline void ok(int bad, const struct err *e) { ck_assert_msg(!bad, "%s", e->text); }

static inline void fakes_reset(void)
{
    memset(fake_engine, 0, sizeof fake_engine);
    fake_engine[0] = (struct fake_engine){.index = 40, .work = 100, .ms = 3};
    fake_n_engines = 1;
    fake_n_fallback = fake_n_more = fake_packs = fake_ran = 0;
    fake_blas = fake_blas_bias = true;
    fake_blas_ms = 5;
}

#define HEAD "kernels of Fake GPU, cuDNN 9.19.0, cuBLASLt 13.1.0\n"

static inline struct dnn *opened(const char *lines)
{
    struct dnn *d;
    struct text table = {0};
    struct err e = {0};
    if (lines) text_add(&table, HEAD "%s", lines);
    ok(dnn_open(0, NULL, NULL, table.s, &d, &e), &e);
    text_free(&table);
    return d;
}

struct array { enum dnn_type type; size_t n; void *p; float *v; };    /* as the device has it, and as numbers */

static inline struct array array_new(enum dnn_type type, size_t n, uint32_t key)
{
    struct array a = {type, n, mem_alloc(n * 4 + 64), mem_alloc(n * sizeof(float))};
    rng_fill_uniform((struct rng_at){1, RNG_TEST, key}, a.v, n);
    for (size_t i = 0; i < n; i++) {
        a.v[i] = (float)((int)(a.v[i] * 3) - 1);
        if (type == DNN_BF16) ((uint16_t *)a.p)[i] = fake_narrow(a.v[i]);
        else ((float *)a.p)[i] = a.v[i];
    }
    return a;
}

static inline void array_free(struct array *a)
{
    free(a->p);
    free(a->v);
}
#endif
