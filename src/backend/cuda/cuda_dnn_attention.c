/* Attention of dnn.h as graphs that cuDNN knows as one kernel, forward and backward. The library finds them by their
 * form: these operations, in this order, with these virtual tensors (its guide, "Fused Flash Attention").
 *
 * Backward: dV = P^T dO; dS = P (dO V^T - rows of dO O) scale; dK = dS^T Q; dQ = dS K; P = e^(scale Q K^T - stats).
 * dQ is the result of its product. The library's other form adds to dQ from several blocks at once, in any order; this
 * one stores dS of all pairs of positions in the workspace instead. */
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include "backend/cuda/cuda_dnn_int.h"

enum attention_id {
    ID_Q = 1, ID_K, ID_V, ID_O, ID_STATS, ID_GO, ID_GQ, ID_GK, ID_GV, ID_SUMS, ID_SCALE, ID_NEVER, ID_ONE, ATTENTION_IDS
};
enum { MAX_OPS = 24 };

struct attention_pack { const void *at[ATTENTION_IDS], *work; desc d; };
struct dnn_attention_plan {
    struct dnn_attention a;
    bool back;
    struct dnn_ask ask;
    struct pool pool;
    struct choice choice;
    float scale, never, one;                             /* read when the plan runs */
    VEC(struct attention_pack) pack;
};

/* A graph while it is built. After a failure every call returns NULL at once. */
struct attention_graph {
    struct pool *p; struct err *e; const struct dnn_attention *a;
    int64_t id;                                          /* of the next virtual tensor */
    desc op[MAX_OPS]; int n;
    bool bad;
};

static desc checked(struct attention_graph *g, desc d)
{
    g->bad |= !d;
    return d;
}

/* id 0: virtual. value: read from the host. */
struct attention_tensor { int64_t id; cudnnDataType_t type; int64_t d[4], s[4]; bool value; };

static desc tensor_add(struct attention_graph *g, const struct attention_tensor *t)
{
    const bool virtual = !t->id;
    const int64_t id = virtual ? g->id++ : t->id, align = 16;
    if (g->bad) return NULL;
    return checked(g, DESC(g->p, TENSOR, "a tensor of attention", g->e, ONE(TENSOR_UNIQUE_ID, INT64, id),
                           ONE(TENSOR_DATA_TYPE, DATA_TYPE, t->type), ONE(TENSOR_BYTE_ALIGNMENT, INT64, align),
                           SOME(TENSOR_DIMENSIONS, INT64, 4, t->d), SOME(TENSOR_STRIDES, INT64, 4, t->s),
                           ONE(TENSOR_IS_VIRTUAL, BOOLEAN, virtual), ONE(TENSOR_IS_BY_VALUE, BOOLEAN, t->value)));
}

/* [n][heads][points][width] in rows of `line`; turned: [n][heads][width][points] of the same memory. */
static desc heads_of(struct attention_graph *g, int64_t id, int64_t heads, int64_t line, bool turned)
{
    const int64_t n = g->a->n, t = g->a->points, w = g->a->width;
    const struct attention_tensor x = {id, CUDNN_DATA_BFLOAT16, {n, heads, t, w}, {t * line, w, line, 1}, false},
                                  xt = {id, CUDNN_DATA_BFLOAT16, {n, heads, w, t}, {t * line, w, 1, line}, false};
    return tensor_add(g, turned ? &xt : &x);
}
/* [n][heads][points][points], one value for each pair; turned: its rows are columns */
static desc pairs(struct attention_graph *g, cudnnDataType_t type, bool turned)
{
    const int64_t n = g->a->n, h = g->a->heads, t = g->a->points;
    return tensor_add(g, &(struct attention_tensor){0, type, {n, h, t, t}, {h * t * t, t * t, turned ? 1 : t,
                                                                           turned ? t : 1}, false});
}
/* [n][heads][points][1], float */
static desc rows_of(struct attention_graph *g, int64_t id)
{
    const int64_t h = g->a->heads, t = g->a->points;
    return tensor_add(g, &(struct attention_tensor){id, CUDNN_DATA_FLOAT, {g->a->n, h, t, 1}, {h * t, t, 1, 1}, false});
}
static desc scalar(struct attention_graph *g, int64_t id)
{
    return tensor_add(g, &(struct attention_tensor){id, CUDNN_DATA_FLOAT, {1, 1, 1, 1}, {1, 1, 1, 1}, true});
}

static void op_add(struct attention_graph *g, desc d)
{
    if (!checked(g, d)) return;
    if (g->n < MAX_OPS) g->op[g->n++] = d;
    else g->bad |= err_set(g->e, E_INTERNAL, "attention has more than %d operations", (int)MAX_OPS) != 0;
}

static desc product(struct attention_graph *g, desc a, desc b, desc c)
{
    const cudnnDataType_t sums = CUDNN_DATA_FLOAT;
    desc how = g->bad ? NULL
                      : checked(g, DESC(g->p, MATMUL, "a product", g->e, ONE(MATMUL_COMP_TYPE, DATA_TYPE, sums)));
    if (how)
        op_add(g, DESC(g->p, OPERATION_MATMUL, "a product", g->e, ONE(OPERATION_MATMUL_ADESC, BACKEND_DESCRIPTOR, a),
                       ONE(OPERATION_MATMUL_BDESC, BACKEND_DESCRIPTOR, b),
                       ONE(OPERATION_MATMUL_CDESC, BACKEND_DESCRIPTOR, c),
                       ONE(OPERATION_MATMUL_DESC, BACKEND_DESCRIPTOR, how)));
    return c;
}

/* y = x, b, t by `mode`; axis: of an index, otherwise -1. Missing operands are NULL. */
struct pointwise { cudnnPointwiseMode_t mode; cudnnDataType_t type; int64_t axis; };
static desc pointwise_add(struct attention_graph *g, struct pointwise w, desc x, desc b, desc t, desc y)
{
    desc how = g->bad ? NULL
                      : checked(g, DESC(g->p, POINTWISE, "a step of attention", g->e,
                                        ONE(POINTWISE_MODE, POINTWISE_MODE, w.mode),
                                        ONE(POINTWISE_MATH_PREC, DATA_TYPE, w.type),
                                        {CUDNN_ATTR_POINTWISE_AXIS, CUDNN_TYPE_INT64, w.axis >= 0, &w.axis}));
    if (how)
        op_add(g, DESC(g->p, OPERATION_POINTWISE, "a step of attention", g->e,
                       ONE(OPERATION_POINTWISE_PW_DESCRIPTOR, BACKEND_DESCRIPTOR, how),
                       ONE(OPERATION_POINTWISE_XDESC, BACKEND_DESCRIPTOR, x),
                       IF_SET(OPERATION_POINTWISE_BDESC, BACKEND_DESCRIPTOR, b),
                       IF_SET(OPERATION_POINTWISE_TDESC, BACKEND_DESCRIPTOR, t),
                       ONE(OPERATION_POINTWISE_YDESC, BACKEND_DESCRIPTOR, y)));
    return y;
}
static desc step(struct attention_graph *g, cudnnPointwiseMode_t mode, desc x, desc b, desc y)
{
    return pointwise_add(g, (struct pointwise){mode, CUDNN_DATA_FLOAT, -1}, x, b, NULL, y);
}

static desc reduce(struct attention_graph *g, cudnnReduceTensorOp_t op, desc x, desc y)
{
    const cudnnDataType_t sums = CUDNN_DATA_FLOAT;
    desc how = g->bad ? NULL
                      : checked(g, DESC(g->p, REDUCTION, "sums of rows", g->e,
                                        ONE(REDUCTION_OPERATOR, REDUCTION_OPERATOR_TYPE, op),
                                        ONE(REDUCTION_COMP_TYPE, DATA_TYPE, sums)));
    if (how)
        op_add(g, DESC(g->p, OPERATION_REDUCTION, "sums of rows", g->e,
                       ONE(OPERATION_REDUCTION_XDESC, BACKEND_DESCRIPTOR, x),
                       ONE(OPERATION_REDUCTION_YDESC, BACKEND_DESCRIPTOR, y),
                       ONE(OPERATION_REDUCTION_DESC, BACKEND_DESCRIPTOR, how)));
    return y;
}

/* The same values with other dimensions. */
static desc turned_add(struct attention_graph *g, desc x, desc y)
{
    if (!g->bad)
        op_add(g, DESC(g->p, OPERATION_RESHAPE, "a transposed tensor", g->e,
                       ONE(OPERATION_RESHAPE_XDESC, BACKEND_DESCRIPTOR, x),
                       ONE(OPERATION_RESHAPE_YDESC, BACKEND_DESCRIPTOR, y)));
    return y;
}

/* Pairs whose key comes after the query become minus infinity. */
static desc masked(struct attention_graph *g, desc x)
{
    if (!g->a->causal) return x;
    const struct pointwise row = {CUDNN_POINTWISE_GEN_INDEX, CUDNN_DATA_INT32, 2},
                           column = {CUDNN_POINTWISE_GEN_INDEX, CUDNN_DATA_INT32, 3},
                           sees = {CUDNN_POINTWISE_CMP_GE, CUDNN_DATA_BOOLEAN, -1},
                           select = {CUDNN_POINTWISE_BINARY_SELECT, CUDNN_DATA_FLOAT, -1};
    desc i = pointwise_add(g, row, x, NULL, NULL, pairs(g, CUDNN_DATA_INT32, false));
    desc j = pointwise_add(g, column, x, NULL, NULL, pairs(g, CUDNN_DATA_INT32, false));
    desc seen = pointwise_add(g, sees, i, j, NULL, pairs(g, CUDNN_DATA_BOOLEAN, false));
    return pointwise_add(g, select, x, scalar(g, ID_NEVER), seen, pairs(g, CUDNN_DATA_FLOAT, false));
}

static desc floats(struct attention_graph *g) { return pairs(g, CUDNN_DATA_FLOAT, false); }

static void forward_build(struct attention_graph *g)
{
    const struct dnn_attention *a = g->a;
    desc q = heads_of(g, ID_Q, a->heads, a->line_q, false), kt = heads_of(g, ID_K, a->kv_heads, a->line_kv, true);
    desc s = step(g, CUDNN_POINTWISE_MUL, product(g, q, kt, floats(g)), scalar(g, ID_SCALE), floats(g));
    s = masked(g, s);
    desc most = reduce(g, CUDNN_REDUCE_TENSOR_MAX, s, rows_of(g, 0));
    desc e = step(g, CUDNN_POINTWISE_EXP, step(g, CUDNN_POINTWISE_SUB, s, most, floats(g)), NULL, floats(g));
    desc sum = reduce(g, CUDNN_REDUCE_TENSOR_ADD, e, rows_of(g, 0));
    desc log = step(g, CUDNN_POINTWISE_LOG, sum, NULL, rows_of(g, 0));
    step(g, CUDNN_POINTWISE_ADD, most, log, rows_of(g, ID_STATS));
    desc p = step(g, CUDNN_POINTWISE_DIV, e, sum, pairs(g, CUDNN_DATA_BFLOAT16, false));
    product(g, p, heads_of(g, ID_V, a->kv_heads, a->line_kv, false),
            heads_of(g, ID_O, a->heads, (int64_t)a->heads * a->width, false));
}

/* The gradient of keys or values: the sum over the heads of queries that share a head of keys. */
static void shared_product(struct attention_graph *g, desc x, desc y, int64_t id)
{
    const struct dnn_attention *a = g->a;
    desc out = heads_of(g, id, a->kv_heads, a->line_kv, false);
    if (a->heads == a->kv_heads) { product(g, x, y, out); return; }
    const int64_t t = a->points, w = a->width, h = a->heads;
    desc all = tensor_add(g, &(struct attention_tensor){0, CUDNN_DATA_BFLOAT16, {a->n, h, t, w},
                                                        {h * t * w, t * w, w, 1}, false});
    reduce(g, CUDNN_REDUCE_TENSOR_ADD, product(g, x, y, all), out);
}

static void backward_build(struct attention_graph *g)
{
    const struct dnn_attention *a = g->a;
    const int64_t line = (int64_t)a->heads * a->width, h = a->heads, t = a->points, w = a->width;
    desc q = heads_of(g, ID_Q, a->heads, a->line_q, false), kt = heads_of(g, ID_K, a->kv_heads, a->line_kv, true);
    desc vt = heads_of(g, ID_V, a->kv_heads, a->line_kv, true), scale = scalar(g, ID_SCALE);
    desc o = heads_of(g, ID_O, a->heads, line, false), go = heads_of(g, ID_GO, a->heads, line, false);
    desc both = tensor_add(g, &(struct attention_tensor){0, CUDNN_DATA_FLOAT, {a->n, h, t, w}, {t * line, w, line, 1},
                                                         false});
    desc sums = reduce(g, CUDNN_REDUCE_TENSOR_ADD, step(g, CUDNN_POINTWISE_MUL, go, o, both), rows_of(g, 0));
    sums = step(g, CUDNN_POINTWISE_MUL, sums, scalar(g, ID_ONE), rows_of(g, ID_SUMS));
    desc s = step(g, CUDNN_POINTWISE_MUL, product(g, q, kt, floats(g)), scale, floats(g));
    s = masked(g, step(g, CUDNN_POINTWISE_SUB, s, rows_of(g, ID_STATS), floats(g)));
    desc p = step(g, CUDNN_POINTWISE_EXP, s, NULL, floats(g));
    shared_product(g, turned_add(g, p, pairs(g, CUDNN_DATA_BFLOAT16, true)), go, ID_GV);
    desc gp = step(g, CUDNN_POINTWISE_SUB, product(g, go, vt, floats(g)), sums, floats(g));
    desc gs = step(g, CUDNN_POINTWISE_MUL, step(g, CUDNN_POINTWISE_MUL, gp, p, floats(g)), scale, floats(g));
    shared_product(g, turned_add(g, gs, pairs(g, CUDNN_DATA_BFLOAT16, true)), q, ID_GK);
    desc k = turned_add(g, kt, heads_of(g, 0, a->kv_heads, a->line_kv, false));
    product(g, gs, k, heads_of(g, ID_GQ, a->heads, a->line_q, false));
}

static int attention_make(struct dnn *d, struct dnn_attention_plan *p, struct err *e)
{
    struct attention_graph g = {&p->pool, e, &p->a, ATTENTION_IDS, {NULL}, 0, false};
    const size_t space = p->ask.max_work > WORK_ALIGN ? p->ask.max_work - WORK_ALIGN : 0;
    if (p->back) backward_build(&g);
    else forward_build(&g);
    if (g.bad) return -1;
    desc graph = DESC(&p->pool, OPERATIONGRAPH, "attention", e, IF_SET(OPERATIONGRAPH_HANDLE, HANDLE, d->handle),
                      SOME(OPERATIONGRAPH_OPS, BACKEND_DESCRIPTOR, g.n, g.op));
    return graph ? choice_first(d, graph, &(struct choice_wish){LIST_A, DNN_BF16, space}, &p->pool, &p->choice, e) : -1;
}

void attention_free(struct dnn_attention_plan *p)
{
    for (int i = 0; i < p->pack.n; i++) cudnnBackendDestroyDescriptor(p->pack.v[i].d);
    vec_free(&p->pack);
    pool_free(&p->pool);
    free(p);
}

static bool same(const struct dnn_attention *a, const struct dnn_attention *b)
{
    return a->n == b->n && a->points == b->points && a->heads == b->heads && a->kv_heads == b->kv_heads &&
           a->width == b->width && a->causal == b->causal && a->scale >= b->scale &&
           a->scale <= b->scale && a->line_q == b->line_q && a->line_kv == b->line_kv;
}

int dnn_attention_plan(struct dnn *d, const struct dnn_attention *a, bool back, size_t max_work,
                       struct dnn_attention_plan **out, struct err *e)
{
    struct err why = {0};
    for (int i = 0; i < d->attention.n; i++) {
        struct dnn_attention_plan *k = d->attention.v[i];
        if (k->back != back || k->ask.max_work != max_work || !same(&k->a, a)) continue;
        *out = k;
        return 0;
    }
    struct dnn_attention_plan *p = mem_alloc(sizeof *p);
    *p = (struct dnn_attention_plan){.a = *a, .back = back, .ask = {.max_work = max_work}, .scale = a->scale,
                                     .never = -INFINITY, .one = 1};
    int bad = attention_make(d, p, &why);
    if (d->device >= 0) cudaGetLastError();              /* errors of tries are no error of the next call */
    if (bad) {
        attention_free(p);
        return err_set(e, why.code == E_DATA ? E_DEVICE : why.code, "attention of %d heads of %d channels: %s; other "
                       "precisions than bf16 have own kernels", a->heads, a->width, why.text);
    }
    *vec_push(&d->attention) = p;
    *out = p;
    return 0;
}

/* The pack for these pointers, made at their first use. NULL: e. */
static desc attention_pack(struct dnn_attention_plan *p, const struct attention_pack *want, struct err *e)
{
    for (int i = 0; i < p->pack.n; i++) {
        const struct attention_pack *k = &p->pack.v[i];
        if (!memcmp(k->at, want->at, sizeof k->at) && k->work == want->work) return k->d;
    }
    int64_t id[ATTENTION_IDS];
    const void *at[ATTENTION_IDS];
    int n = 0;
    for (int i = ID_Q; i < ATTENTION_IDS; i++) {
        if (!want->at[i]) continue;
        id[n] = i;
        at[n++] = want->at[i];
    }
    struct pool one = {0};
    struct err why = {0};
    desc d = DESC(&one, VARIANT_PACK, "operands", &why, SOME(VARIANT_PACK_UNIQUE_IDS, INT64, n, id),
                  SOME(VARIANT_PACK_DATA_POINTERS, VOID_PTR, n, at),
                  ONE(VARIANT_PACK_WORKSPACE, VOID_PTR, want->work));
    if (!d) {
        err_set(e, why.code == E_DATA ? E_DEVICE : why.code, "%s", why.text);
        pool_free(&one);
        return NULL;
    }
    vec_free(&one.d);                                    /* d stays in the list of packs */
    struct attention_pack *k = vec_push(&p->pack);
    *k = *want;
    k->d = d;
    return d;
}

int dnn_attention_run(struct dnn *d, struct dnn_attention_plan *p, const struct dnn_attention_operands *o,
                      struct err *e)
{
    if (d->device < 0) return err_set(e, E_INTERNAL, "a described device cannot run kernels");
    struct attention_pack want = {
        {[ID_Q] = o->q, [ID_K] = o->k, [ID_V] = o->v, [ID_O] = o->o, [ID_STATS] = o->stats, [ID_SCALE] = &p->scale},
        (char *)o->work + (WORK_ALIGN - (uintptr_t)o->work % WORK_ALIGN) % WORK_ALIGN, NULL};
    if (p->a.causal) want.at[ID_NEVER] = &p->never;
    if (p->back) {
        want.at[ID_GO] = o->go;
        want.at[ID_GQ] = o->gq;
        want.at[ID_GK] = o->gk;
        want.at[ID_GV] = o->gv;
        want.at[ID_SUMS] = o->sums;
        want.at[ID_ONE] = &p->one;
    }
    desc pack = attention_pack(p, &want, e);
    return pack ? dnn_status(e, "attention", cudnnBackendExecute(d->handle, p->choice.plan, pack)) : -1;
}

void dnn_attention_text(const struct dnn_attention_plan *p, struct text *out)
{
    const struct dnn_attention *a = &p->a;
    char work[32];
    text_add(out, "bf16 attention%s n%d t%d h%d/%d w%d%s: cuDNN ", p->back ? " back" : "", a->n, a->points, a->heads,
             a->kv_heads, a->width, a->causal ? " causal" : "");
    engine_text(&p->choice.engine, out);
    text_add(out, "; %s of workspace", text_bytes(p->choice.work, work));
}
