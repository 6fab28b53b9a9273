/* cuDNN's descriptors, and the operation graphs of convolution passes. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "backend/cuda/cuda_dnn_int.h"

int dnn_status(struct err *e, const char *what, cudnnStatus_t status)
{
    char why[400] = "";
    if (status == CUDNN_STATUS_SUCCESS) return 0;
    cudnnGetLastErrorString(why, sizeof why);
    bool short_of = status == CUDNN_STATUS_INTERNAL_ERROR_HOST_ALLOCATION_FAILED ||
                    status == CUDNN_STATUS_INTERNAL_ERROR_DEVICE_ALLOCATION_FAILED;
    return err_set(e, short_of ? E_INTERNAL : E_DEVICE, "cuDNN: %s: %s%s%s", what, cudnnGetErrorString(status),
                   *why ? ": " : "", why);
}

desc desc_empty(struct pool *p, cudnnBackendDescriptorType_t kind, struct err *e)
{
    desc d;
    if (dnn_status(e, "a descriptor", cudnnBackendCreateDescriptor(kind, &d))) return NULL;
    *vec_push(&p->d) = d;
    return d;
}

/* A refusal of the library is no failure of the device. */
static int refusable(struct err *e, const char *what, cudnnStatus_t status)
{
    struct err why = {0};
    int category = CUDNN_STATUS_CATEGORY(status);
    bool refused = category == CUDNN_STATUS_NOT_SUPPORTED || category == CUDNN_STATUS_BAD_PARAM;
    return dnn_status(&why, what, status) ? err_set(e, refused ? E_DATA : why.code, "%s", why.text) : 0;
}

desc desc_new(struct pool *p, cudnnBackendDescriptorType_t kind, const char *what, const struct attr *a, int n,
              struct err *e)
{
    desc d = desc_empty(p, kind, e);
    for (int i = 0; d && i < n; i++)
        if (a[i].n && refusable(e, what, cudnnBackendSetAttribute(d, a[i].name, a[i].type, a[i].n, a[i].v)))
            return NULL;
    if (!d || refusable(e, what, cudnnBackendFinalize(d))) return NULL;
    return d;
}

int64_t desc_count(desc d, cudnnBackendAttributeName_t name, cudnnBackendAttributeType_t type, int64_t max)
{
    int64_t n = 0;
    if (cudnnBackendGetAttribute(d, name, type, 0, &n, NULL) != CUDNN_STATUS_SUCCESS) return 0;
    return n < max ? n : max;
}

int64_t desc_get(desc d, cudnnBackendAttributeName_t name, cudnnBackendAttributeType_t type, int64_t max, void *out)
{
    int64_t n = 0;
    if (cudnnBackendGetAttribute(d, name, type, max, &n, out) != CUDNN_STATUS_SUCCESS) return 0;
    return n < max ? n : max;
}

void pool_move(struct pool *to, struct pool *from, desc d)
{
    int i = 0;
    while (from->d.v[i] != d) i++;
    from->d.v[i] = from->d.v[--from->d.n];
    *vec_push(&to->d) = d;
}

void pool_free(struct pool *p)
{
    for (int i = p->d.n - 1; i >= 0; i--) cudnnBackendDestroyDescriptor(p->d.v[i]);
    vec_free(&p->d);
}

/* ---- tensors and operations ---------------------------------------------------------------------------- */

/* At least two spatial dimensions, as the library requires. */
static int space_of(const struct dnn_conv *c)
{
    return c->in[0] > 1 || c->out[0] > 1 || c->kernel[0] > 1 || c->pad[0] ? 3 : 2;
}

/* Channels last; virtual: within the graph, without memory. */
struct tensor_form { int64_t id, n, c; cudnnDataType_t type; const int *space; int dims; bool virtual; };

static desc tensor_new(struct pool *p, const struct tensor_form *t, struct err *e)
{
    const int dims = t->dims;
    int64_t dim[5] = {t->n, t->c}, stride[5], points = 1, align = 16;
    stride[1] = 1;
    for (int i = dims - 1; i >= 0; i--) {
        dim[2 + i] = t->space[3 - dims + i];
        stride[2 + i] = t->c * points;
        points *= dim[2 + i];
    }
    stride[0] = t->c * points;
    return DESC(p, TENSOR, "a tensor", e, ONE(TENSOR_UNIQUE_ID, INT64, t->id),
                ONE(TENSOR_DATA_TYPE, DATA_TYPE, t->type), ONE(TENSOR_BYTE_ALIGNMENT, INT64, align),
                SOME(TENSOR_DIMENSIONS, INT64, 2 + dims, dim), SOME(TENSOR_STRIDES, INT64, 2 + dims, stride),
                ONE(TENSOR_IS_VIRTUAL, BOOLEAN, t->virtual));
}

static desc convolution_new(struct pool *p, const struct dnn_conv *c, struct err *e)
{
    int dims = space_of(c), from = 3 - dims;
    int64_t pad[3], stride[3], dilation[3], space = dims;
    cudnnDataType_t sums = CUDNN_DATA_FLOAT;
    cudnnConvolutionMode_t mode = CUDNN_CROSS_CORRELATION;
    for (int i = 0; i < dims; i++) {
        pad[i] = c->pad[from + i];
        stride[i] = c->stride[from + i];
        dilation[i] = c->dilation[from + i];
    }
    return DESC(p, CONVOLUTION, "a convolution", e, ONE(CONVOLUTION_COMP_TYPE, DATA_TYPE, sums),
                ONE(CONVOLUTION_CONV_MODE, CONVOLUTION_MODE, mode), ONE(CONVOLUTION_SPATIAL_DIMS, INT64, space),
                SOME(CONVOLUTION_PRE_PADDINGS, INT64, dims, pad), SOME(CONVOLUTION_POST_PADDINGS, INT64, dims, pad),
                SOME(CONVOLUTION_FILTER_STRIDES, INT64, dims, stride),
                SOME(CONVOLUTION_DILATIONS, INT64, dims, dilation));
}

/* The library's names of the pass, its tensors and its attributes. */
#define PASS(kind, name, x, w, y, what) \
    {CUDNN_BACKEND_OPERATION_CONVOLUTION_##kind##_DESCRIPTOR, CUDNN_ATTR_OPERATION_CONVOLUTION_##name##_##x, \
     CUDNN_ATTR_OPERATION_CONVOLUTION_##name##_##w, CUDNN_ATTR_OPERATION_CONVOLUTION_##name##_##y, \
     CUDNN_ATTR_OPERATION_CONVOLUTION_##name##_CONV_DESC, CUDNN_ATTR_OPERATION_CONVOLUTION_##name##_ALPHA, \
     CUDNN_ATTR_OPERATION_CONVOLUTION_##name##_BETA, what}
static const struct {
    cudnnBackendDescriptorType_t kind;
    cudnnBackendAttributeName_t x, w, y, conv, alpha, beta;
    const char *what;
} operation[] = {
    [DNN_FORWARD] = PASS(FORWARD, FORWARD, X, W, Y, "convolution"),
    [DNN_DATA] = PASS(BACKWARD_DATA, BWD_DATA, DX, W, DY, "input gradient of a convolution"),
    [DNN_WEIGHTS] = PASS(BACKWARD_FILTER, BWD_FILTER, X, DW, DY, "weight gradient of a convolution"),
};

/* y = x + b */
static desc sum_new(struct pool *p, desc x, desc b, desc y, struct err *e)
{
    cudnnPointwiseMode_t mode = CUDNN_POINTWISE_ADD;
    cudnnDataType_t sums = CUDNN_DATA_FLOAT;
    desc how = DESC(p, POINTWISE, "a sum", e, ONE(POINTWISE_MODE, POINTWISE_MODE, mode),
                    ONE(POINTWISE_MATH_PREC, DATA_TYPE, sums));
    if (!how) return NULL;
    return DESC(p, OPERATION_POINTWISE, "a sum", e, ONE(OPERATION_POINTWISE_PW_DESCRIPTOR, BACKEND_DESCRIPTOR, how),
                ONE(OPERATION_POINTWISE_XDESC, BACKEND_DESCRIPTOR, x),
                ONE(OPERATION_POINTWISE_BDESC, BACKEND_DESCRIPTOR, b),
                ONE(OPERATION_POINTWISE_YDESC, BACKEND_DESCRIPTOR, y));
}

static desc graph_new(struct dnn *d, struct pool *p, const desc *op, int n, struct err *e)
{
    return DESC(p, OPERATIONGRAPH, "an operation graph", e, IF_SET(OPERATIONGRAPH_HANDLE, HANDLE, d->handle),
                SOME(OPERATIONGRAPH_OPS, BACKEND_DESCRIPTOR, n, op));
}

/* The ids of x, w and y in a pass: the pass writes C. */
struct role { int64_t x, w, y; };
static const struct role role[] = {
    [DNN_FORWARD] = {ID_A, ID_B, ID_C}, [DNN_DATA] = {ID_C, ID_B, ID_A}, [DNN_WEIGHTS] = {ID_A, ID_C, ID_B},
};

static desc filter_new(struct pool *p, const struct dnn_conv *c, int64_t id, cudnnDataType_t type, bool virtual,
                       struct err *e)
{
    const struct tensor_form w = {id, c->c_out, c->c_in / c->groups, type, c->kernel, space_of(c), virtual};
    return tensor_new(p, &w, e);
}

static desc operation_new(struct pool *p, const struct dnn_conv *c, enum dnn_pass pass, desc w, float beta,
                          struct err *e)
{
    cudnnDataType_t type = c->type == DNN_BF16 ? CUDNN_DATA_BFLOAT16 : CUDNN_DATA_FLOAT;
    const int dims = space_of(c);
    const struct tensor_form in = {role[pass].x, c->n, c->c_in, type, c->in, dims, false},
                             out = {role[pass].y, c->n, c->c_out, type, c->out, dims, false};
    float alpha = 1;
    desc x = tensor_new(p, &in, e), y = x ? tensor_new(p, &out, e) : NULL;
    desc how = y ? convolution_new(p, c, e) : NULL;
    const struct attr a[] = {
        {operation[pass].x, CUDNN_TYPE_BACKEND_DESCRIPTOR, 1, &x},
        {operation[pass].w, CUDNN_TYPE_BACKEND_DESCRIPTOR, 1, &w},
        {operation[pass].y, CUDNN_TYPE_BACKEND_DESCRIPTOR, 1, &y},
        {operation[pass].conv, CUDNN_TYPE_BACKEND_DESCRIPTOR, 1, &how},
        {operation[pass].alpha, CUDNN_TYPE_FLOAT, 1, &alpha}, {operation[pass].beta, CUDNN_TYPE_FLOAT, 1, &beta}};
    return how ? desc_new(p, operation[pass].kind, operation[pass].what, a, sizeof a / sizeof *a, e) : NULL;
}

desc graph_conv(struct dnn *d, struct pool *p, const struct graph_ask *ask, struct err *e)
{
    const struct dnn_conv *c = ask->c;
    const enum dnn_pass pass = ask->pass;
    cudnnDataType_t type = c->type == DNN_BF16 ? CUDNN_DATA_BFLOAT16 : CUDNN_DATA_FLOAT;
    desc op[2], w, before, after;
    if (ask->form != FORM_ADD) {
        w = filter_new(p, c, role[pass].w, type, false, e);
        op[0] = w ? operation_new(p, c, pass, w, ask->acc ? 1 : 0, e) : NULL;
        return op[0] ? graph_new(d, p, op, 1, e) : NULL;
    }
    if (!(w = filter_new(p, c, ID_INNER, CUDNN_DATA_FLOAT, true, e)) || !(op[0] = operation_new(p, c, pass, w, 0, e)) ||
        !(before = filter_new(p, c, ID_SUM, CUDNN_DATA_FLOAT, false, e)) ||
        !(after = filter_new(p, c, ID_C, CUDNN_DATA_FLOAT, false, e)) || !(op[1] = sum_new(p, w, before, after, e)))
        return NULL;
    return graph_new(d, p, op, 2, e);
}
