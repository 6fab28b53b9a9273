/* The two C interfaces of oneDNN. In 2.x a descriptor is the caller's struct, and an operation is described before its
 * primitive descriptor is created. In 3.x descriptors are objects of the library, and primitive descriptors are created
 * directly. */
#include "backend/cpu/onednn/dnnl_api.h"

/* A request for a primitive descriptor. hint: that of the forward pass, for backward passes. */
struct wish { const struct conv_shape *s; enum conv_pass pass; bool add; const_dnnl_primitive_desc_t hint; };

#if DNNL_VERSION_MAJOR >= 3
typedef dnnl_memory_desc_t md_t;
typedef const_dnnl_memory_desc_t const_md_t;
#define MD_OF(m) (m)

static dnnl_status_t md_make(md_t *m, const struct form *f)
{
    const dnnl_data_type_t type = f->half ? dnnl_bf16 : dnnl_f32;
    *m = NULL;
    if (f->as) return dnnl_memory_desc_clone(m, dnnl_primitive_desc_query_md(f->as, f->what, 0));
    if (f->n && !f->tag) return dnnl_memory_desc_create_with_strides(m, f->n, f->d, type, f->stride);
    return f->n ? dnnl_memory_desc_create_with_tag(m, f->n, f->d, type, f->tag) : dnnl_success;
}

static void md_drop(md_t *m)
{
    if (*m) dnnl_memory_desc_destroy(*m);
}

static dnnl_status_t add_append(dnnl_post_ops_t ops)
{
    return dnnl_post_ops_append_sum(ops, 1.0f, 0, dnnl_data_type_undef);     /* the destination's */
}

static dnnl_status_t product_make(dnnl_engine_t engine, const md_t m[4], const_dnnl_primitive_attr_t attr,
                                  dnnl_primitive_desc_t *pd)
{
    return dnnl_matmul_primitive_desc_create(pd, engine, m[0], m[1], m[2], m[3], attr);
}

static dnnl_status_t pd_make(dnnl_engine_t engine, const struct wish *w, const md_t m[4],
                             const_dnnl_primitive_attr_t attr, dnnl_primitive_desc_t *pd)
{
    const struct conv_shape *s = w->s;
    switch (w->pass) {
    case CONV_FORWARD:
        return dnnl_convolution_forward_primitive_desc_create(pd, engine, dnnl_forward_training,
                                                              dnnl_convolution_direct, m[0], m[1], m[2], m[3],
                                                              s->stride, s->dilation, s->padding, s->padding, attr);
    case CONV_DATA:
        return dnnl_convolution_backward_data_primitive_desc_create(pd, engine, dnnl_convolution_direct, m[0], m[1],
                                                                    m[3], s->stride, s->dilation, s->padding,
                                                                    s->padding, w->hint, attr);
    default:
        return dnnl_convolution_backward_weights_primitive_desc_create(pd, engine, dnnl_convolution_direct, m[0], m[1],
                                                                       m[2], m[3], s->stride, s->dilation, s->padding,
                                                                       s->padding, w->hint, attr);
    }
}
#else
typedef dnnl_memory_desc_t md_t;
typedef const dnnl_memory_desc_t *const_md_t;
#define MD_OF(m) (&(m))

static dnnl_status_t md_make(md_t *m, const struct form *f)
{
    const dnnl_data_type_t type = f->half ? dnnl_bf16 : dnnl_f32;
    *m = f->as ? *dnnl_primitive_desc_query_md(f->as, f->what, 0) : (md_t){0};
    if (f->as) return dnnl_success;
    if (f->n && !f->tag) return dnnl_memory_desc_init_by_strides(m, f->n, f->d, type, f->stride);
    return f->n ? dnnl_memory_desc_init_by_tag(m, f->n, f->d, type, f->tag) : dnnl_success;
}

static void md_drop(md_t *m) {}

static dnnl_status_t add_append(dnnl_post_ops_t ops) { return dnnl_post_ops_append_sum(ops, 1.0f); }

static dnnl_status_t product_make(dnnl_engine_t engine, const md_t m[4], const_dnnl_primitive_attr_t attr,
                                  dnnl_primitive_desc_t *pd)
{
    dnnl_matmul_desc_t d;
    dnnl_status_t status = dnnl_matmul_desc_init(&d, &m[0], &m[1], m[2].ndims ? &m[2] : NULL, &m[3]);
    return status == dnnl_success ? dnnl_primitive_desc_create(pd, &d, attr, engine, NULL) : status;
}

static dnnl_status_t pd_make(dnnl_engine_t engine, const struct wish *w, const md_t m[4],
                             const_dnnl_primitive_attr_t attr, dnnl_primitive_desc_t *pd)
{
    const struct conv_shape *s = w->s;
    dnnl_convolution_desc_t c;
    const md_t *bias = s->bias.n ? &m[2] : NULL;
    dnnl_status_t status =
        w->pass == CONV_FORWARD
            ? dnnl_dilated_convolution_forward_desc_init(&c, dnnl_forward_training, dnnl_convolution_direct, &m[0],
                                                         &m[1], bias, &m[3], s->stride, s->dilation, s->padding,
                                                         s->padding)
        : w->pass == CONV_DATA
            ? dnnl_dilated_convolution_backward_data_desc_init(&c, dnnl_convolution_direct, &m[0], &m[1], &m[3],
                                                               s->stride, s->dilation, s->padding, s->padding)
            : dnnl_dilated_convolution_backward_weights_desc_init(&c, dnnl_convolution_direct, &m[0], &m[1], bias,
                                                                  &m[3], s->stride, s->dilation, s->padding,
                                                                  s->padding);
    return status == dnnl_success ? dnnl_primitive_desc_create(pd, &c, attr, engine, w->hint) : status;
}
#endif

static dnnl_status_t attr_make(dnnl_primitive_attr_t *attr, bool add)
{
    dnnl_status_t status = dnnl_primitive_attr_create(attr);
    if (status != dnnl_success) return status;
    status = dnnl_primitive_attr_set_scratchpad_mode(*attr, dnnl_scratchpad_mode_user);
    if (status == dnnl_success) status = dnnl_primitive_attr_set_fpmath_mode(*attr, dnnl_fpmath_mode_strict);
    dnnl_post_ops_t ops;
    if (add && status == dnnl_success && (status = dnnl_post_ops_create(&ops)) == dnnl_success) {
        status = add_append(ops);
        if (status == dnnl_success) status = dnnl_primitive_attr_set_post_ops(*attr, ops);
        dnnl_post_ops_destroy(ops);
    }
    if (status != dnnl_success) dnnl_primitive_attr_destroy(*attr);
    return status;
}

static dnnl_status_t described(dnnl_engine_t engine, const struct wish *w, dnnl_primitive_desc_t *pd)
{
    const struct form *form[4] = {&w->s->src, &w->s->wei, &w->s->bias, &w->s->dst};
    md_t m[4] = {0};
    dnnl_primitive_attr_t attr;
    dnnl_status_t status = attr_make(&attr, w->add);
    if (status != dnnl_success) return status;
    for (int i = 0; i < 4 && status == dnnl_success; i++) status = md_make(&m[i], form[i]);
    if (status == dnnl_success) status = pd_make(engine, w, m, attr, pd);
    for (int i = 0; i < 4; i++) md_drop(&m[i]);
    dnnl_primitive_attr_destroy(attr);
    return status;
}

dnnl_status_t api_product(dnnl_engine_t engine, const struct product_shape *s, dnnl_primitive_desc_t *pd)
{
    const struct form *form[4] = {&s->src, &s->wei, &s->bias, &s->dst};
    md_t m[4] = {0};
    dnnl_primitive_attr_t attr;
    dnnl_status_t status = attr_make(&attr, s->add);
    if (status != dnnl_success) return status;
    for (int i = 0; i < 4 && status == dnnl_success; i++) status = md_make(&m[i], form[i]);
    if (status == dnnl_success) status = product_make(engine, m, attr, pd);
    for (int i = 0; i < 4; i++) md_drop(&m[i]);
    dnnl_primitive_attr_destroy(attr);
    return status;
}

/* A backward pass needs the descriptor of a forward pass of the same convolution. The layouts of that pass do not
 * matter, so the library may choose any. */
dnnl_status_t api_conv(dnnl_engine_t engine, const struct conv_shape *s, enum conv_pass pass, bool add,
                       dnnl_primitive_desc_t *pd)
{
    if (pass == CONV_FORWARD) return described(engine, &(struct wish){s, pass, add, NULL}, pd);
    struct conv_shape any = *s;
    any.src.tag = any.wei.tag = any.dst.tag = dnnl_format_tag_any;
    any.wei.as = NULL;
    any.wei.half = any.src.half;
    if (pass == CONV_DATA) any.bias.n = 0;
    dnnl_primitive_desc_t hint;
    dnnl_status_t status = described(engine, &(struct wish){&any, CONV_FORWARD, false, NULL}, &hint);
    if (status != dnnl_success) return status;
    status = described(engine, &(struct wish){s, pass, false, hint}, pd);
    dnnl_primitive_desc_destroy(hint);
    return status;
}

size_t api_bytes(const struct form *f)
{
    md_t m;
    const size_t bytes = md_make(&m, f) == dnnl_success ? dnnl_memory_desc_get_size(MD_OF(m)) : 0;
    md_drop(&m);
    return bytes;
}

dnnl_status_t api_reorder(dnnl_engine_t engine, const struct form *from, const struct form *to,
                          dnnl_primitive_desc_t *pd)
{
    md_t m[2] = {0};
    dnnl_status_t status = md_make(&m[0], from);
    if (status == dnnl_success) status = md_make(&m[1], to);
    if (status == dnnl_success)
        status = dnnl_reorder_primitive_desc_create(pd, MD_OF(m[0]), engine, MD_OF(m[1]), engine, NULL);
    for (int i = 0; i < 2; i++) md_drop(&m[i]);
    return status;
}

dnnl_status_t api_memory(dnnl_engine_t engine, const struct form *f, dnnl_memory_t *out)
{
    md_t m;
    dnnl_status_t status = md_make(&m, f);
    if (status == dnnl_success) status = dnnl_memory_create(out, MD_OF(m), engine, DNNL_MEMORY_NONE);
    md_drop(&m);
    return status;
}

const char *api_kernel(const_dnnl_primitive_desc_t pd)
{
    const char *name = NULL;
    return dnnl_primitive_desc_query(pd, dnnl_query_impl_info_str, 0, &name) == dnnl_success && name ? name : "unknown";
}

size_t api_scratch(const_dnnl_primitive_desc_t pd)
{
    const_md_t m = dnnl_primitive_desc_query_md(pd, dnnl_query_scratchpad_md, 0);
    return m ? dnnl_memory_desc_get_size(m) : 0;
}

dnnl_status_t api_scratch_memory(dnnl_engine_t engine, const_dnnl_primitive_desc_t pd, dnnl_memory_t *out)
{
    return dnnl_memory_create(out, dnnl_primitive_desc_query_md(pd, dnnl_query_scratchpad_md, 0), engine,
                              DNNL_MEMORY_NONE);
}

dnnl_status_t api_argument(dnnl_engine_t engine, const_dnnl_primitive_desc_t pd, dnnl_query_t argument,
                           dnnl_memory_t *out, size_t *bytes)
{
    const_md_t m = dnnl_primitive_desc_query_md(pd, argument, 0);
    *bytes = dnnl_memory_desc_get_size(m);
    return dnnl_memory_create(out, m, engine, DNNL_MEMORY_ALLOCATE);
}
