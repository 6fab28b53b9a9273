/* Graphs of attention, one operation after the other, in double; what a virtual tensor's type rounds is rounded. */
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include "tests/gpu/dnn_fakes.h"
#include "tests/gpu/dnn_fakes_int.h"

enum { MAX_TENSORS = 64 };
/* v: of a virtual tensor, at its strides; p: of one in memory */
struct known { int64_t id; const int64_t *d, *s; cudnnDataType_t type; double *v; void *p; };
struct run { const struct fake *pack; struct known t[MAX_TENSORS]; int n; };

static size_t extent(const struct known *k)
{
    size_t n = 1;
    for (int i = 0; i < 4; i++) n += (size_t)((k->d[i] - 1) * k->s[i]);
    return n;
}

static struct known *known_of(struct run *r, const struct fake *t)
{
    const int64_t id = *(const int64_t *)fake_value(t, CUDNN_ATTR_TENSOR_UNIQUE_ID);
    const struct fake_attr *ids = fake_attr_of(r->pack, CUDNN_ATTR_VARIANT_PACK_UNIQUE_IDS);
    void *const *at = fake_value(r->pack, CUDNN_ATTR_VARIANT_PACK_DATA_POINTERS);
    for (int i = 0; i < r->n; i++) if (r->t[i].id == id) return &r->t[i];
    if (r->n == MAX_TENSORS) abort();
    struct known *k = &r->t[r->n++];
    *k = (struct known){id, fake_value(t, CUDNN_ATTR_TENSOR_DIMENSIONS), fake_value(t, CUDNN_ATTR_TENSOR_STRIDES),
                        *(const cudnnDataType_t *)fake_value(t, CUDNN_ATTR_TENSOR_DATA_TYPE), NULL, NULL};
    for (int64_t i = 0; i < ids->n; i++) if (((const int64_t *)ids->v)[i] == id) k->p = at[i];
    const bool virtual = *(const bool *)fake_value(t, CUDNN_ATTR_TENSOR_IS_VIRTUAL);
    if (virtual) k->v = mem_alloc(extent(k) * sizeof *k->v);
    if (virtual == (k->p != NULL)) abort();              /* memory for a virtual tensor, or none for another */
    return k;
}

static enum ktype ktype_of(const struct known *k) { return k->type == CUDNN_DATA_BFLOAT16 ? K_BF16 : K_F32; }
static double read_at(const struct known *k, size_t i)
{
    return k->v ? k->v[i] : (double)fake_get(ktype_of(k), k->p, i);
}
static void write_at(const struct known *k, size_t i, double x)
{
    if (!k->v) fake_put(ktype_of(k), k->p, i, (float)x);
    else k->v[i] = k->type == CUDNN_DATA_BFLOAT16 ? (double)fake_wide(fake_narrow((float)x)) : x;
}

/* The offset of index i of a tensor with dimensions `of`; a smaller dimension of k is shared by neighbours. */
static size_t offset_of(const struct known *k, const int64_t i[4], const int64_t of[4])
{
    size_t at = 0;
    for (int j = 0; j < 4; j++) at += (size_t)(i[j] * k->d[j] / of[j] * k->s[j]);
    return at;
}

static bool following(int64_t i[4], const int64_t limit[4])
{
    for (int j = 3; j >= 0; j--) {
        if (++i[j] < limit[j]) return true;
        i[j] = 0;
    }
    return false;
}

static struct known *operand(struct run *r, const struct fake *op, cudnnBackendAttributeName_t name)
{
    const struct fake *t = fake_child(op, name);
    return t ? known_of(r, t) : NULL;
}

static void product_run(struct run *r, const struct fake *op)
{
    const struct known *a = operand(r, op, CUDNN_ATTR_OPERATION_MATMUL_ADESC);
    const struct known *b = operand(r, op, CUDNN_ATTR_OPERATION_MATMUL_BDESC);
    const struct known *c = operand(r, op, CUDNN_ATTR_OPERATION_MATMUL_CDESC);
    int64_t i[4] = {0};
    if (a->d[3] != b->d[2] || c->d[2] != a->d[2] || c->d[3] != b->d[3]) abort();
    do {
        double sum = 0;
        for (int64_t k = 0; k < a->d[3]; k++) {
            const int64_t in_a[4] = {i[0], i[1], i[2], k}, in_b[4] = {i[0], i[1], k, i[3]};
            const int64_t of_a[4] = {c->d[0], c->d[1], a->d[2], a->d[3]};
            const int64_t of_b[4] = {c->d[0], c->d[1], b->d[2], b->d[3]};
            sum += read_at(a, offset_of(a, in_a, of_a)) * read_at(b, offset_of(b, in_b, of_b));
        }
        write_at(c, offset_of(c, i, c->d), sum);
    } while (following(i, c->d));
}

static double stepped(cudnnPointwiseMode_t mode, double x, double b, double t)
{
    switch (mode) {
    case CUDNN_POINTWISE_ADD: return x + b;
    case CUDNN_POINTWISE_SUB: return x - b;
    case CUDNN_POINTWISE_MUL: return x * b;
    case CUDNN_POINTWISE_DIV: return x / b;
    case CUDNN_POINTWISE_EXP: return exp(x);
    case CUDNN_POINTWISE_LOG: return log(x);
    case CUDNN_POINTWISE_CMP_GE: return x >= b;
    case CUDNN_POINTWISE_BINARY_SELECT: return t != 0 ? x : b;
    default: abort();
    }
}

static void step_run(struct run *r, const struct fake *op)
{
    const struct fake *how = fake_child(op, CUDNN_ATTR_OPERATION_POINTWISE_PW_DESCRIPTOR);
    const cudnnPointwiseMode_t mode = *(const cudnnPointwiseMode_t *)fake_value(how, CUDNN_ATTR_POINTWISE_MODE);
    const int64_t *axis = fake_value(how, CUDNN_ATTR_POINTWISE_AXIS);
    const struct known *x = operand(r, op, CUDNN_ATTR_OPERATION_POINTWISE_XDESC);
    const struct known *b = operand(r, op, CUDNN_ATTR_OPERATION_POINTWISE_BDESC);
    const struct known *t = operand(r, op, CUDNN_ATTR_OPERATION_POINTWISE_TDESC);
    const struct known *y = operand(r, op, CUDNN_ATTR_OPERATION_POINTWISE_YDESC);
    int64_t i[4] = {0};
    do {
        const double in_x = read_at(x, offset_of(x, i, y->d)), in_b = b ? read_at(b, offset_of(b, i, y->d)) : 0;
        const double in_t = t ? read_at(t, offset_of(t, i, y->d)) : 0;
        write_at(y, offset_of(y, i, y->d),
                 mode == CUDNN_POINTWISE_GEN_INDEX ? (double)i[*axis] : stepped(mode, in_x, in_b, in_t));
    } while (following(i, y->d));
}

static void rows_run(struct run *r, const struct fake *op)
{
    const struct fake *how = fake_child(op, CUDNN_ATTR_OPERATION_REDUCTION_DESC);
    const bool most = *(const cudnnReduceTensorOp_t *)fake_value(how, CUDNN_ATTR_REDUCTION_OPERATOR) ==
                      CUDNN_REDUCE_TENSOR_MAX;
    const struct known *x = operand(r, op, CUDNN_ATTR_OPERATION_REDUCTION_XDESC);
    const struct known *y = operand(r, op, CUDNN_ATTR_OPERATION_REDUCTION_YDESC);
    double *sum = mem_alloc(extent(y) * sizeof *sum);
    int64_t i[4] = {0};
    for (size_t k = 0; k < extent(y); k++) sum[k] = most ? -INFINITY : 0;
    do {
        double *s = &sum[offset_of(y, i, x->d)], v = read_at(x, offset_of(x, i, x->d));
        *s = !most ? *s + v : v > *s ? v : *s;
    } while (following(i, x->d));
    memset(i, 0, sizeof i);
    do write_at(y, offset_of(y, i, y->d), sum[offset_of(y, i, y->d)]);
    while (following(i, y->d));
    free(sum);
}

/* The same memory with other dimensions. */
static void turn_run(struct run *r, const struct fake *op)
{
    const struct known *x = operand(r, op, CUDNN_ATTR_OPERATION_RESHAPE_XDESC);
    const struct known *y = operand(r, op, CUDNN_ATTR_OPERATION_RESHAPE_YDESC);
    int64_t i[4] = {0};
    if (extent(x) != extent(y)) abort();
    do write_at(y, offset_of(y, i, y->d), read_at(x, offset_of(y, i, y->d)));
    while (following(i, y->d));
}

void fake_graph_run(const struct fake_attr *ops, const struct fake *pack)
{
    struct run *r = mem_alloc(sizeof *r);
    r->pack = pack;
    for (int64_t i = 0; i < ops->n; i++) {
        const struct fake *op = ((struct fake *const *)ops->v)[i];
        switch (op->kind) {
        case CUDNN_BACKEND_OPERATION_MATMUL_DESCRIPTOR: product_run(r, op); break;
        case CUDNN_BACKEND_OPERATION_POINTWISE_DESCRIPTOR: step_run(r, op); break;
        case CUDNN_BACKEND_OPERATION_REDUCTION_DESCRIPTOR: rows_run(r, op); break;
        case CUDNN_BACKEND_OPERATION_RESHAPE_DESCRIPTOR: turn_run(r, op); break;
        default: abort();
        }
    }
    for (int i = 0; i < r->n; i++) free(r->t[i].v);
    free(r);
}
