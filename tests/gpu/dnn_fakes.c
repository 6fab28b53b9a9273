/* See dnn_fakes.h. The signatures are those of the libraries' headers. */
#include <cuda_runtime_api.h>
#include <cudnn.h>
#include <stdlib.h>
#include <string.h>
#include "backend/cuda/cuda_blaslt.h"
#include "backend/cuda/cuda_device.h"
#include "base/mem.h"
#include "kernels/kernels.h"
#include "tests/gpu/dnn_fakes.h"
#include "tests/gpu/dnn_fakes_int.h"

struct fake_engine fake_engine[8];
int fake_n_engines, fake_n_fallback, fake_n_more, fake_live, fake_ran, fake_packs;
bool fake_blas, fake_blas_bias;
float fake_blas_ms;

uint16_t fake_narrow(float x)
{
    uint32_t u;
    memcpy(&u, &x, 4);
    return (uint16_t)((u + 0x7fff + (u >> 16 & 1)) >> 16);
}

float fake_wide(uint16_t x)
{
    uint32_t u = (uint32_t)x << 16;
    float f;
    memcpy(&f, &u, 4);
    return f;
}

/* ---- the runtime, and own kernels ----------------------------------------------------------------------- */

int cuda_device_get(int unit, struct cuda_device *d, struct err *e)
{
    memset(d, 0, sizeof *d);
    strcpy(d->name, "Fake GPU");
    return 0;
}

static char something;                                   /* what opaque handles point to */

const char *cudaGetErrorString(cudaError_t e) { return e == cudaSuccess ? "no error" : "error"; }
cudaError_t cudaGetLastError(void) { return cudaSuccess; }
cudaError_t cudaMalloc(void **p, size_t n) { *p = malloc(n); fake_live++; return cudaSuccess; }
cudaError_t cudaFree(void *p) { fake_live -= p != NULL; free(p); return cudaSuccess; }
cudaError_t cudaMemsetAsync(void *p, int v, size_t n, cudaStream_t s) { memset(p, v, n); return cudaSuccess; }
cudaError_t cudaEventCreate(cudaEvent_t *e) { *e = (cudaEvent_t)(void *)&something; fake_live++; return cudaSuccess; }
cudaError_t cudaEventDestroy(cudaEvent_t e) { fake_live--; return cudaSuccess; }
cudaError_t cudaEventRecord(cudaEvent_t e, cudaStream_t s) { return cudaSuccess; }
cudaError_t cudaEventSynchronize(cudaEvent_t e) { return cudaSuccess; }
cudaError_t cudaStreamSynchronize(cudaStream_t s) { return cudaSuccess; }

cudaError_t cudaEventElapsedTime(float *ms, cudaEvent_t a, cudaEvent_t b)
{
    *ms = fake_blas_ms;
    for (int i = 0; i < 8; i++) if (fake_engine[i].index == fake_ran) *ms = fake_engine[i].ms;
    return cudaSuccess;
}

float fake_get(enum ktype t, const void *p, size_t i)
{
    return t == K_BF16 ? fake_wide(((const uint16_t *)p)[i]) : ((const float *)p)[i];
}

void fake_put(enum ktype t, void *p, size_t i, float v)
{
    if (t == K_BF16) ((uint16_t *)p)[i] = fake_narrow(v);
    else ((float *)p)[i] = v;
}

int k_hold(void *stream, uint64_t ns)
{
    (void)stream; (void)ns;
    return 0;
}

int k_from_bf16(void *stream, size_t n, const void *x, float *y, bool acc)
{
    for (size_t i = 0; i < n; i++) y[i] = (acc ? y[i] : 0) + fake_get(K_BF16, x, i);
    return 0;
}

int k_copy(void *stream, enum ktype t, size_t n, const void *x, void *y, bool acc)
{
    for (size_t i = 0; i < n; i++) fake_put(t, y, i, (acc ? fake_get(t, y, i) : 0) + fake_get(t, x, i));
    return 0;
}

int k_bias(void *stream, const struct k_shape *s, const float *bias, void *y)
{
    for (size_t i = 0; i < (size_t)(s->n * s->points * s->c); i++)
        fake_put(s->type, y, i, fake_get(s->type, y, i) + bias[i % (size_t)s->c]);
    return 0;
}

/* ---- cuDNN: descriptors ----------------------------------------------------------------------------------------- */

static size_t size_of(cudnnBackendAttributeType_t t)
{
    switch (t) {
    case CUDNN_TYPE_INT64: case CUDNN_TYPE_DOUBLE: case CUDNN_TYPE_VOID_PTR: case CUDNN_TYPE_BACKEND_DESCRIPTOR:
    case CUDNN_TYPE_HANDLE: return 8;
    case CUDNN_TYPE_CHAR: case CUDNN_TYPE_BOOLEAN: return 1;
    default: return 4;
    }
}

const struct fake_attr *fake_attr_of(const struct fake *f, cudnnBackendAttributeName_t name)
{
    for (int i = 0; i < f->a.n; i++) if (f->a.v[i].name == name) return &f->a.v[i];
    return NULL;
}

const void *fake_value(const struct fake *f, cudnnBackendAttributeName_t name)
{
    const struct fake_attr *a = fake_attr_of(f, name);
    return a ? a->v : NULL;
}

struct fake *fake_child(const struct fake *f, cudnnBackendAttributeName_t name)
{
    struct fake *const *c = fake_value(f, name);
    return c ? *c : NULL;
}

static void keep(struct fake *f, cudnnBackendAttributeName_t name, cudnnBackendAttributeType_t type, int64_t n,
                 const void *v)
{
    struct fake_attr *a = vec_push(&f->a);
    *a = (struct fake_attr){name, type, n, mem_alloc((size_t)n * size_of(type) + 1)};
    memcpy(a->v, v, (size_t)n * size_of(type));
}

size_t cudnnGetVersion(void) { return 91900; }
const char *cudnnGetErrorString(cudnnStatus_t s)
{
    return s == CUDNN_STATUS_NOT_SUPPORTED ? "CUDNN_STATUS_NOT_SUPPORTED" : "CUDNN_STATUS_BAD_PARAM";
}
void cudnnGetLastErrorString(char *s, size_t n) { if (n) *s = 0; }
cudnnStatus_t cudnnCreate(cudnnHandle_t *h)
{
    *h = (cudnnHandle_t)(void *)&something;
    fake_live++;
    return CUDNN_STATUS_SUCCESS;
}
cudnnStatus_t cudnnDestroy(cudnnHandle_t h) { fake_live--; return CUDNN_STATUS_SUCCESS; }
cudnnStatus_t cudnnSetStream(cudnnHandle_t h, cudaStream_t s) { return CUDNN_STATUS_SUCCESS; }

cudnnStatus_t cudnnBackendCreateDescriptor(cudnnBackendDescriptorType_t kind, cudnnBackendDescriptor_t *out)
{
    struct fake *f = mem_alloc(sizeof *f);
    f->kind = kind;
    *out = f;
    fake_live++;
    fake_packs += kind == CUDNN_BACKEND_VARIANT_PACK_DESCRIPTOR;
    return CUDNN_STATUS_SUCCESS;
}

cudnnStatus_t cudnnBackendDestroyDescriptor(cudnnBackendDescriptor_t d)
{
    struct fake *f = d;
    for (int i = 0; i < f->a.n; i++) free(f->a.v[i].v);
    free(f->a.v);
    free(f);
    fake_live--;
    return CUDNN_STATUS_SUCCESS;
}

cudnnStatus_t cudnnBackendSetAttribute(cudnnBackendDescriptor_t d, cudnnBackendAttributeName_t name,
                                       cudnnBackendAttributeType_t type, int64_t n, const void *v)
{
    struct fake *f = d;
    if (f->finished || fake_attr_of(f, name)) return CUDNN_STATUS_BAD_PARAM;
    keep(f, name, type, n, v);
    return CUDNN_STATUS_SUCCESS;
}

/* The tensors x, w, y of each pass, and which of them it writes. */
#define PASS(kind, name, x, w, y, written) \
    {CUDNN_BACKEND_OPERATION_CONVOLUTION_##kind##_DESCRIPTOR, \
     {CUDNN_ATTR_OPERATION_CONVOLUTION_##name##_##x, CUDNN_ATTR_OPERATION_CONVOLUTION_##name##_##w, \
      CUDNN_ATTR_OPERATION_CONVOLUTION_##name##_##y}, \
     CUDNN_ATTR_OPERATION_CONVOLUTION_##name##_CONV_DESC, CUDNN_ATTR_OPERATION_CONVOLUTION_##name##_ALPHA, \
     CUDNN_ATTR_OPERATION_CONVOLUTION_##name##_BETA, written}
static const struct {
    cudnnBackendDescriptorType_t kind;
    cudnnBackendAttributeName_t t[3], how, alpha, beta;
    int written;
} pass[] = {
    PASS(FORWARD, FORWARD, X, W, Y, 2), PASS(BACKWARD_DATA, BWD_DATA, DX, W, DY, 0),
    PASS(BACKWARD_FILTER, BWD_FILTER, X, DW, DY, 1)};

static bool graph_adds(const struct fake *graph)
{
    const struct fake *op = fake_child(graph, CUDNN_ATTR_OPERATIONGRAPH_OPS);   /* the first */
    int k = 0;
    while (pass[k].kind != op->kind) k++;
    return *(const float *)fake_value(op, pass[k].beta) != 0;
}

static int fakes_all(void) { return fake_n_engines + fake_n_fallback + fake_n_more; }

cudnnStatus_t cudnnBackendFinalize(cudnnBackendDescriptor_t d)
{
    struct fake *f = d, *config = f->kind == CUDNN_BACKEND_EXECUTION_PLAN_DESCRIPTOR
        ? fake_child(f, CUDNN_ATTR_EXECUTION_PLAN_ENGINE_CONFIG) : NULL;
    if (f->finished) return CUDNN_STATUS_BAD_PARAM;
    f->finished = true;
    if (f->kind == CUDNN_BACKEND_ENGINE_DESCRIPTOR) {
        const int64_t *index = fake_value(f, CUDNN_ATTR_ENGINE_GLOBAL_INDEX);
        for (f->engine = 0; f->engine < fakes_all() && fake_engine[f->engine].index != *index; f->engine++);
        if (f->engine == fakes_all()) return CUDNN_STATUS_BAD_PARAM;
        f->graph = fake_child(f, CUDNN_ATTR_ENGINE_OPERATION_GRAPH);
    }
    if (f->kind == CUDNN_BACKEND_ENGINECFG_DESCRIPTOR) {
        f->engine = fake_child(f, CUDNN_ATTR_ENGINECFG_ENGINE)->engine;
        f->graph = fake_child(f, CUDNN_ATTR_ENGINECFG_ENGINE)->graph;
    }
    if (config && fake_engine[config->engine].broken) return CUDNN_STATUS_NOT_SUPPORTED;
    if (config && fake_engine[config->engine].adds_not && graph_adds(config->graph)) return CUDNN_STATUS_NOT_SUPPORTED;
    if (config && fake_engine[config->engine].lost) return CUDNN_STATUS_EXECUTION_FAILED_CUDA_DRIVER;
    return CUDNN_STATUS_SUCCESS;
}

static int64_t engines_given(const struct fake *heur)
{
    const cudnnBackendHeurMode_t *mode = fake_value(heur, CUDNN_ATTR_ENGINEHEUR_MODE);
    if (*mode == CUDNN_HEUR_MODE_B) return fake_n_more ? fake_n_more + 1 : 0;
    return *mode == CUDNN_HEUR_MODE_FALLBACK ? fake_n_fallback : fake_n_engines;
}

/* The library fills descriptors that the caller made. */
static int64_t engines_give(const struct fake *heur, struct fake **config)
{
    const cudnnBackendHeurMode_t *mode = fake_value(heur, CUDNN_ATTR_ENGINEHEUR_MODE);
    int from = *mode == CUDNN_HEUR_MODE_FALLBACK ? fake_n_engines : 0, n = (int)engines_given(heur);
    for (int i = 0; i < n; i++) {
        config[i]->finished = true;
        config[i]->engine = *mode != CUDNN_HEUR_MODE_B ? from + i : i ? fake_n_engines + fake_n_fallback + i - 1 : 0;
        config[i]->graph = fake_child(heur, CUDNN_ATTR_ENGINEHEUR_OPERATION_GRAPH);
    }
    return n;
}

static int64_t notes_give(unsigned bits, int *out)
{
    int64_t n = 0;
    for (int i = 0; i < 10; i++) if (bits >> i & 1) out[n++] = i;
    return n;
}

static void knob_give(const struct fake *config, struct fake *knob)
{
    int type = 2;
    int64_t v = config->engine;
    keep(knob, CUDNN_ATTR_KNOB_CHOICE_KNOB_TYPE, CUDNN_TYPE_KNOB_TYPE, 1, &type);
    keep(knob, CUDNN_ATTR_KNOB_CHOICE_KNOB_VALUE, CUDNN_TYPE_INT64, 1, &v);
}

cudnnStatus_t cudnnBackendGetAttribute(cudnnBackendDescriptor_t const d, cudnnBackendAttributeName_t name,
                                       cudnnBackendAttributeType_t type, int64_t max, int64_t *n, void *out)
{
    const struct fake *f = d;
    const struct fake_engine *g = &fake_engine[f->engine];
    const struct fake_attr *a = fake_attr_of(f, name);
    *n = 1;
    if (!out && name == CUDNN_ATTR_ENGINEHEUR_RESULTS) *n = engines_given(f);
    else if (!out && name == CUDNN_ATTR_ENGINECFG_KNOB_CHOICES) *n = 1;
    else if (name == CUDNN_ATTR_ENGINEHEUR_RESULTS) *n = engines_give(f, out);
    else if (name == CUDNN_ATTR_ENGINECFG_ENGINE) (*(struct fake **)out)->engine = f->engine;
    else if (name == CUDNN_ATTR_ENGINE_GLOBAL_INDEX) *(int64_t *)out = g->index;
    else if (name == CUDNN_ATTR_ENGINE_NUMERICAL_NOTE) *n = notes_give(g->notes, out);
    else if (name == CUDNN_ATTR_ENGINE_BEHAVIOR_NOTE) *n = notes_give(g->behaviour, out);
    else if (name == CUDNN_ATTR_ENGINECFG_KNOB_CHOICES) knob_give(f, *(struct fake **)out);
    else if (name == CUDNN_ATTR_EXECUTION_PLAN_WORKSPACE_SIZE)
        *(int64_t *)out = (int64_t)fake_engine[fake_child(f, CUDNN_ATTR_EXECUTION_PLAN_ENGINE_CONFIG)->engine].work;
    else if (!a || a->type != type) return CUDNN_STATUS_BAD_PARAM;
    else {
        *n = a->n;
        if (max) memcpy(out, a->v, (size_t)(a->n < max ? a->n : max) * size_of(type));
    }
    return CUDNN_STATUS_SUCCESS;
}

/* ---- cuDNN: running --------------------------------------------------------------------------------------------- */

struct view { enum ktype type; int dims; const int64_t *d, *s; void *p; int64_t id; size_t n; };

static struct view view_of(const struct fake *t, const struct fake *pack)
{
    const struct fake_attr *d = fake_attr_of(t, CUDNN_ATTR_TENSOR_DIMENSIONS),
        *id = fake_attr_of(pack, CUDNN_ATTR_VARIANT_PACK_UNIQUE_IDS);
    void *const *at = fake_value(pack, CUDNN_ATTR_VARIANT_PACK_DATA_POINTERS);
    const cudnnDataType_t *type = fake_value(t, CUDNN_ATTR_TENSOR_DATA_TYPE);
    const bool *virtual = fake_value(t, CUDNN_ATTR_TENSOR_IS_VIRTUAL);
    struct view v = {*type == CUDNN_DATA_BFLOAT16 ? K_BF16 : K_F32, (int)d->n, d->v,
                     fake_value(t, CUDNN_ATTR_TENSOR_STRIDES), NULL, 0, 1};
    v.id = *(const int64_t *)fake_value(t, CUDNN_ATTR_TENSOR_UNIQUE_ID);
    for (int i = 0; i < v.dims; i++) v.n *= (size_t)v.d[i];
    for (int64_t i = 0; i < id->n; i++) if (((const int64_t *)id->v)[i] == v.id) v.p = at[i];
    if (*virtual) v.p = mem_alloc(v.n * sizeof(float));
    return v;
}

/* Next index below the limits, last dimension fastest; false: that was the last one. */
static bool next(int64_t *i, const int64_t *limit, int n)
{
    while (n-- > 0) {
        if (++i[n] < limit[n]) return true;
        i[n] = 0;
    }
    return false;
}

static int64_t offset(const struct view *v, int64_t first, int64_t second, const int64_t *space)
{
    int64_t at = first * v->s[0] + second * v->s[1];
    for (int i = 2; i < v->dims; i++) at += space[i - 2] * v->s[i];
    return at;
}

/* Adds up to `sum`, one double an element of the tensor that is written: 0 x, 1 w, 2 y. */
static void convolve(const struct fake *how, const struct view t[3], int written, double *sum)
{
    const int64_t *pad = fake_value(how, CUDNN_ATTR_CONVOLUTION_PRE_PADDINGS),
        *stride = fake_value(how, CUDNN_ATTR_CONVOLUTION_FILTER_STRIDES);
    const int64_t *dilation = fake_value(how, CUDNN_ATTR_CONVOLUTION_DILATIONS);
    int space = t[0].dims - 2;
    int64_t per_group = t[1].d[0] / (t[0].d[1] / t[1].d[1]);
    int64_t limit[9] = {t[2].d[0], t[2].d[1], t[1].d[1]}, i[9] = {0};
    for (int k = 0; k < space; k++) {
        limit[3 + k] = t[2].d[2 + k];
        limit[3 + space + k] = t[1].d[2 + k];
    }
    do {
        int64_t in[3], c = i[1] / per_group * t[1].d[1] + i[2];
        bool inside = true;
        for (int k = 0; k < space; k++) {
            in[k] = i[3 + k] * stride[k] - pad[k] + i[3 + space + k] * dilation[k];
            inside &= in[k] >= 0 && in[k] < t[0].d[2 + k];
        }
        if (!inside) continue;
        size_t at[3] = {(size_t)offset(&t[0], i[0], c, in), (size_t)offset(&t[1], i[1], i[2], i + 3 + space),
                        (size_t)offset(&t[2], i[0], i[1], i + 3)};
        int a = written == 0 ? 1 : 0, b = written == 2 ? 1 : 2;
        sum[at[written]] += (double)fake_get(t[a].type, t[a].p, at[a]) * (double)fake_get(t[b].type, t[b].p, at[b]);
    } while (next(i, limit, 3 + 2 * space));
}

/* A convolution; returns what it wrote. */
static struct view convolution_run(const struct fake *op, const struct fake *pack)
{
    int k = 0;
    struct view t[3];
    while (pass[k].kind != op->kind) k++;
    for (int i = 0; i < 3; i++) t[i] = view_of(fake_child(op, pass[k].t[i]), pack);
    struct view *out = &t[pass[k].written];
    double *sum = mem_alloc(out->n * sizeof *sum);
    const float *alpha = fake_value(op, pass[k].alpha), *beta = fake_value(op, pass[k].beta);
    convolve(fake_child(op, pass[k].how), t, pass[k].written, sum);
    for (size_t i = 0; i < out->n; i++) {
        /* what is overwritten may be no number */
        float before = *beta != 0 ? *beta * fake_get(out->type, out->p, i) : 0;
        fake_put(out->type, out->p, i, *alpha * (float)sum[i] + before);
    }
    free(sum);
    return *out;
}

cudnnStatus_t cudnnBackendExecute(cudnnHandle_t h, cudnnBackendDescriptor_t plan, cudnnBackendDescriptor_t pack)
{
    const struct fake *config = fake_child(plan, CUDNN_ATTR_EXECUTION_PLAN_ENGINE_CONFIG), *p = pack;
    const struct fake_attr *ops = fake_attr_of(config->graph, CUDNN_ATTR_OPERATIONGRAPH_OPS);
    struct fake *const *op = ops->v;
    const struct fake_engine *g = &fake_engine[config->engine];
    if (g->work) memset(*(void *const *)fake_value(p, CUDNN_ATTR_VARIANT_PACK_WORKSPACE), 0xff, g->work);
    fake_ran = g->index;
    if (op[0]->kind == CUDNN_BACKEND_OPERATION_MATMUL_DESCRIPTOR ||
        op[0]->kind == CUDNN_BACKEND_OPERATION_POINTWISE_DESCRIPTOR) {
        fake_graph_run(ops, p);
        return CUDNN_STATUS_SUCCESS;
    }
    struct view out = convolution_run(op[0], p);
    if (ops->n == 1) return CUDNN_STATUS_SUCCESS;
    struct view b = view_of(fake_child(op[1], CUDNN_ATTR_OPERATION_POINTWISE_BDESC), p),
        y = view_of(fake_child(op[1], CUDNN_ATTR_OPERATION_POINTWISE_YDESC), p);
    for (size_t i = 0; i < out.n; i++)
        fake_put(y.type, y.p, i, fake_get(out.type, out.p, i) + fake_get(b.type, b.p, i));
    free(out.p);
    return CUDNN_STATUS_SUCCESS;
}

/* ---- cuBLASLt --------------------------------------------------------------------------------------------------- */

/* The library's descriptors are opaque arrays of words; ours point to these. */
struct fake_how { cublasOperation_t a, b; cublasLtEpilogue_t epilogue; int32_t bias_type; const float *bias; };
struct fake_matrix { cudaDataType_t type; int64_t rows, columns, ld; };

size_t cublasLtGetVersion(void) { return 130100; }
const char *cublasLtGetStatusName(cublasStatus_t s)
{
    return s == CUBLAS_STATUS_NOT_SUPPORTED ? "CUBLAS_STATUS_NOT_SUPPORTED" : "CUBLAS_STATUS_INVALID_VALUE";
}
cublasStatus_t cublasLtCreate(cublasLtHandle_t *h)
{
    *h = (cublasLtHandle_t)(void *)&something;
    fake_live++;
    return CUBLAS_STATUS_SUCCESS;
}
cublasStatus_t cublasLtDestroy(cublasLtHandle_t h) { fake_live--; return CUBLAS_STATUS_SUCCESS; }

static void *made(size_t n) { fake_live++; return mem_alloc(n); }
static cublasStatus_t gone(void *p) { fake_live--; free(p); return CUBLAS_STATUS_SUCCESS; }

cublasStatus_t cublasLtMatmulDescCreate(cublasLtMatmulDesc_t *d, cublasComputeType_t c, cudaDataType_t scale)
{
    struct fake_how *h = made(sizeof *h);
    *d = (cublasLtMatmulDesc_t)(void *)h;
    h->bias_type = -1;
    return CUBLAS_STATUS_SUCCESS;
}
cublasStatus_t cublasLtMatmulDescDestroy(cublasLtMatmulDesc_t d) { return gone(d); }

cublasStatus_t cublasLtMatmulDescSetAttribute(cublasLtMatmulDesc_t d, cublasLtMatmulDescAttributes_t name,
                                              const void *v, size_t n)
{
    struct fake_how *h = (struct fake_how *)(void *)d;
    switch (name) {
    case CUBLASLT_MATMUL_DESC_TRANSA: memcpy(&h->a, v, n); break;
    case CUBLASLT_MATMUL_DESC_TRANSB: memcpy(&h->b, v, n); break;
    case CUBLASLT_MATMUL_DESC_EPILOGUE: memcpy(&h->epilogue, v, n); break;
    case CUBLASLT_MATMUL_DESC_BIAS_DATA_TYPE: memcpy(&h->bias_type, v, n); break;
    case CUBLASLT_MATMUL_DESC_BIAS_POINTER: memcpy(&h->bias, v, n); break;
    default: return CUBLAS_STATUS_INVALID_VALUE;
    }
    return CUBLAS_STATUS_SUCCESS;
}

cublasStatus_t cublasLtMatrixLayoutCreate(cublasLtMatrixLayout_t *m, cudaDataType_t type, uint64_t rows,
                                          uint64_t columns, int64_t ld)
{
    struct fake_matrix *f = made(sizeof *f);
    *f = (struct fake_matrix){type, (int64_t)rows, (int64_t)columns, ld};
    *m = (cublasLtMatrixLayout_t)(void *)f;
    return ld >= (int64_t)rows ? CUBLAS_STATUS_SUCCESS : CUBLAS_STATUS_INVALID_VALUE;
}
cublasStatus_t cublasLtMatrixLayoutDestroy(cublasLtMatrixLayout_t m) { return gone(m); }
cublasStatus_t cublasLtMatmulPreferenceCreate(cublasLtMatmulPreference_t *p)
{
    *p = made(1);
    return CUBLAS_STATUS_SUCCESS;
}
cublasStatus_t cublasLtMatmulPreferenceDestroy(cublasLtMatmulPreference_t p) { return gone(p); }
cublasStatus_t cublasLtMatmulPreferenceSetAttribute(cublasLtMatmulPreference_t p,
                                                    cublasLtMatmulPreferenceAttributes_t name, const void *v, size_t n)
{
    return CUBLAS_STATUS_SUCCESS;
}

cublasStatus_t cublasLtMatmulAlgoGetHeuristic(cublasLtHandle_t h, cublasLtMatmulDesc_t d, cublasLtMatrixLayout_t a,
                                              cublasLtMatrixLayout_t b, cublasLtMatrixLayout_t c,
                                              cublasLtMatrixLayout_t out, cublasLtMatmulPreference_t p, int max,
                                              cublasLtMatmulHeuristicResult_t r[], int *n)
{
    const struct fake_how *how = (const void *)d;
    memset(r, 0, sizeof *r);
    *n = fake_blas && (how->epilogue != CUBLASLT_EPILOGUE_BIAS || fake_blas_bias);
    return *n ? CUBLAS_STATUS_SUCCESS : CUBLAS_STATUS_NOT_SUPPORTED;
}

cublasStatus_t cublasLtMatmulAlgoConfigGetAttribute(const cublasLtMatmulAlgo_t *a,
                                                    cublasLtMatmulAlgoConfigAttributes_t name, void *v, size_t n,
                                                    size_t *written)
{
    memset(v, 0, n);
    return CUBLAS_STATUS_SUCCESS;
}

static enum ktype kind(const struct fake_matrix *m) { return m->type == CUDA_R_16BF ? K_BF16 : K_F32; }
static double entry(const struct fake_matrix *m, const void *p, cublasOperation_t op, int64_t row, int64_t column)
{
    return (double)fake_get(kind(m), p, (size_t)(op == CUBLAS_OP_T ? column + row * m->ld : row + column * m->ld));
}

cublasStatus_t cublasLtMatmul(cublasLtHandle_t h, cublasLtMatmulDesc_t d, const void *alpha, const void *a,
                              cublasLtMatrixLayout_t at, const void *b, cublasLtMatrixLayout_t bt, const void *beta,
                              const void *c, cublasLtMatrixLayout_t ct, void *out, cublasLtMatrixLayout_t dt,
                              const cublasLtMatmulAlgo_t *algo, void *work, size_t work_bytes, cudaStream_t s)
{
    const struct fake_how *how = (const void *)d;
    const struct fake_matrix *ma = (const void *)at, *mb = (const void *)bt, *md = (const void *)dt;
    int64_t inner = how->a == CUBLAS_OP_T ? ma->rows : ma->columns;
    float scale = *(const float *)beta;
    fake_ran = -1;
    if (inner != (how->b == CUBLAS_OP_T ? mb->columns : mb->rows) ||
        md->rows != (how->a == CUBLAS_OP_T ? ma->columns : ma->rows) ||
        md->columns != (how->b == CUBLAS_OP_T ? mb->rows : mb->columns))
        return CUBLAS_STATUS_INVALID_VALUE;
    for (int64_t j = 0; j < md->columns; j++) {
        for (int64_t i = 0; i < md->rows; i++) {
            double sum = how->epilogue == CUBLASLT_EPILOGUE_BIAS ? (double)how->bias[i] : 0;
            size_t o = (size_t)(i + j * md->ld);
            for (int64_t k = 0; k < inner; k++) sum += entry(ma, a, how->a, i, k) * entry(mb, b, how->b, k, j);
            const float before = scale != 0 ? scale * fake_get(kind(md), c, o) : 0;
            fake_put(kind(md), out, o, (float)sum * *(const float *)alpha + before);
        }
    }
    return CUBLAS_STATUS_SUCCESS;
}

struct blaslt blaslt;

int blaslt_load(struct err *e)
{
#define SET(name) blaslt.name = cublasLt##name;
    BLASLT_FUNCTIONS(SET)
    return 0;
}
