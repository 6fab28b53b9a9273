/* The differences between oneDNN's C interfaces 2.x and 3.x: memory descriptors, convolutions, the attribute that adds
 * to an output. All other calls are the same in both. Users: the onednn backend, and bench/. Any thread; statuses are
 * the library's. */
#ifndef BACKEND_CPU_ONEDNN_DNNL_API_H
#define BACKEND_CPU_ONEDNN_DNNL_API_H
#include <dnnl.h>
#include <stdbool.h>

/* A tensor of floats or bf16 (half): n dimensions and their order in memory; dnnl_format_tag_any lets the library
 * choose; without a tag, the distances of elements. n = 0: no tensor. as: the form that this primitive descriptor has
 * for its argument `what` (dnnl_query_weights_md), and nothing else counts. */
struct form {
    int n; dnnl_dims_t d; dnnl_format_tag_t tag; bool half; dnnl_dims_t stride;
    const_dnnl_primitive_desc_t as; dnnl_query_t what;
};

/* A convolution, for all three passes: source, weights (with a leading dimension if there are groups), bias,
 * destination, or their gradients. Dilation 0: dense. Padding is the same at both ends of a dimension. */
struct conv_shape {
    struct form src, wei, bias, dst;
    dnnl_dims_t stride, dilation, padding;
};
enum conv_pass { CONV_FORWARD, CONV_DATA, CONV_WEIGHTS };

/* By the direct algorithm (never Winograd, which gives other numbers), in float without lower precisions, with the
 * caller's scratchpad. add (forward only): the result is added to the destination. The caller destroys *pd. */
dnnl_status_t api_conv(dnnl_engine_t engine, const struct conv_shape *s, enum conv_pass pass, bool add,
                       dnnl_primitive_desc_t *pd);
/* A product dst = or += (add) src wei + bias of matrices. */
struct product_shape { struct form src, wei, bias, dst; bool add; };
dnnl_status_t api_product(dnnl_engine_t engine, const struct product_shape *s, dnnl_primitive_desc_t *pd);
/* A copy from one form to another. The caller destroys *pd. */
dnnl_status_t api_reorder(dnnl_engine_t engine, const struct form *from, const struct form *to,
                          dnnl_primitive_desc_t *pd);
size_t api_bytes(const struct form *f);                  /* 0: the library knows no such form */
/* A memory object without memory. */
dnnl_status_t api_memory(dnnl_engine_t engine, const struct form *f, dnnl_memory_t *out);
/* The library's name of the kernel, "jit:avx2" or "ref:any"; lives as long as pd. */
const char *api_kernel(const_dnnl_primitive_desc_t pd);
/* Memory for an argument of pd in the form that pd chose, and its size in bytes. */
dnnl_status_t api_argument(dnnl_engine_t engine, const_dnnl_primitive_desc_t pd, dnnl_query_t argument,
                           dnnl_memory_t *out, size_t *bytes);
size_t api_scratch(const_dnnl_primitive_desc_t pd);      /* bytes */
/* without memory */
dnnl_status_t api_scratch_memory(dnnl_engine_t engine, const_dnnl_primitive_desc_t pd, dnnl_memory_t *out);

#endif
