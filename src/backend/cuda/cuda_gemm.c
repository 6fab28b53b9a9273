/* Matrix products by cuBLASLt: linear layers, and convolutions over single points.
 *
 * The library counts columns first: a matrix of rows [n][k] is its k by n. So y = x w^T becomes y' = w x' with w
 * turned, dx' = w' dy', dw' = x' dy. Sums stay in float. If the product is cut along its inner dimension, the parts are
 * summed in a fixed order from workspace and never in place. */
#include <stdlib.h>
#include <string.h>
#include "backend/cuda/cuda_dnn_int.h"

struct gemm {
    cublasLtMatmulDesc_t how;
    cublasLtMatrixLayout_t a, b, d;
    cublasLtMatmulAlgo_t algo;
    size_t work;
    enum dnn_pass pass;
    enum ktype out;
    /* fused: the library adds the bias; otherwise an own kernel does */
    bool bias, fused, acc;
    struct k_shape biased;                               /* the tensor that a bias is added to */
};

static int blas_status(struct err *e, const char *what, cublasStatus_t status)
{
    if (status == CUBLAS_STATUS_SUCCESS) return 0;
    return err_set(e, E_DEVICE, "cuBLASLt: %s: %s", what, blaslt.GetStatusName(status));
}

/* Operands for the library: rows, columns, turned or not; elements from column to column, 0: rows. */
struct operand { int64_t rows, columns; bool turned; int64_t line; };
struct shape_of { struct operand a, b, d; };

static struct shape_of shape_of(const struct dnn_linear *l, enum dnn_pass pass)
{
    const struct operand y = {l->out, l->n, false, l->line};
    switch (pass) {
    case DNN_FORWARD: return (struct shape_of){{l->in, l->out, true}, {l->in, l->n, false}, y};
    case DNN_DATA: return (struct shape_of){{l->in, l->out, false}, y, {l->in, l->n, false}};
    default: return (struct shape_of){{l->in, l->n, false}, {y.rows, y.columns, true, y.line}, {l->in, l->out, false}};
    }
}

static int how_set(struct gemm *g, cublasLtMatmulDescAttributes_t name, const void *value, size_t bytes, struct err *e)
{
    return blas_status(e, "a product", blaslt.MatmulDescSetAttribute(g->how, name, value, bytes));
}

static int matrix_new(cublasLtMatrixLayout_t *m, cudaDataType_t type, struct operand o, struct err *e)
{
    uint64_t rows = (uint64_t)o.rows, columns = (uint64_t)o.columns;
    const int64_t line = o.line ? o.line : o.rows;
    return blas_status(e, "a matrix", blaslt.MatrixLayoutCreate(m, type, rows, columns, line));
}

static int describe(struct gemm *g, const struct dnn_linear *l, enum dnn_pass pass, struct err *e)
{
    struct shape_of s = shape_of(l, pass);
    cudaDataType_t in = l->type == DNN_BF16 ? CUDA_R_16BF : CUDA_R_32F;
    cudaDataType_t out = g->out == K_BF16 ? CUDA_R_16BF : CUDA_R_32F;
    cublasComputeType_t sums = l->type == DNN_TF32 ? CUBLAS_COMPUTE_32F_FAST_TF32 : CUBLAS_COMPUTE_32F;
    cublasOperation_t a = s.a.turned ? CUBLAS_OP_T : CUBLAS_OP_N, b = s.b.turned ? CUBLAS_OP_T : CUBLAS_OP_N;
    if (blas_status(e, "a product", blaslt.MatmulDescCreate(&g->how, sums, CUDA_R_32F)) ||
        how_set(g, CUBLASLT_MATMUL_DESC_TRANSA, &a, sizeof a, e) ||
        how_set(g, CUBLASLT_MATMUL_DESC_TRANSB, &b, sizeof b, e) ||
        matrix_new(&g->a, in, s.a, e) || matrix_new(&g->b, in, s.b, e) || matrix_new(&g->d, out, s.d, e))
        return -1;
    return 0;
}

static int epilogue_set(struct gemm *g, bool bias, struct err *e)
{
    cublasLtEpilogue_t epilogue = bias ? CUBLASLT_EPILOGUE_BIAS : CUBLASLT_EPILOGUE_DEFAULT;
    int32_t type = CUDA_R_32F;
    g->fused = bias;
    if (how_set(g, CUBLASLT_MATMUL_DESC_EPILOGUE, &epilogue, sizeof epilogue, e)) return -1;
    return bias ? how_set(g, CUBLASLT_MATMUL_DESC_BIAS_DATA_TYPE, &type, sizeof type, e) : 0;
}

static int wish_set(cublasLtMatmulPreference_t wish, size_t max_work, struct err *e)
{
    uint64_t work = max_work;
    uint32_t parts = CUBLASLT_REDUCTION_SCHEME_COMPUTE_TYPE;   /* besides schemes that make no parts */
    uint32_t align = 64;
    const struct { cublasLtMatmulPreferenceAttributes_t name; const void *value; size_t bytes; } set[] = {
        {CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES, &work, sizeof work},
        {CUBLASLT_MATMUL_PREF_REDUCTION_SCHEME_MASK, &parts, sizeof parts},
        {CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_A_BYTES, &align, sizeof align},
        {CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_B_BYTES, &align, sizeof align},
        {CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_C_BYTES, &align, sizeof align},
        {CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_D_BYTES, &align, sizeof align},
    };
    cublasStatus_t status = CUBLAS_STATUS_SUCCESS;
    for (size_t i = 0; i < sizeof set / sizeof *set && status == CUBLAS_STATUS_SUCCESS; i++)
        status = blaslt.MatmulPreferenceSetAttribute(wish, set[i].name, set[i].value, set[i].bytes);
    return blas_status(e, "a wish", status);
}

static int algorithm_find(struct dnn *d, struct gemm *g, size_t max_work, struct err *e)
{
    cublasLtMatmulPreference_t wish;
    cublasLtMatmulHeuristicResult_t found;
    cublasStatus_t status;
    int n = 0;
    if (blas_status(e, "a wish", blaslt.MatmulPreferenceCreate(&wish))) return -1;
    int bad = wish_set(wish, max_work, e);
    if (!bad) {
        status = blaslt.MatmulAlgoGetHeuristic(d->blas, g->how, g->a, g->b, g->d, g->d, wish, 1, &found, &n);
        if (status == CUBLAS_STATUS_NOT_SUPPORTED) n = 0;
        else bad = blas_status(e, "no algorithm", status);
    }
    blaslt.MatmulPreferenceDestroy(wish);
    if (bad) return -1;
    if (n < 1) return err_set(e, E_DATA, "cuBLASLt: no algorithm within %zu bytes of workspace", max_work);
    if (blas_status(e, "an algorithm", found.state)) return -1;
    g->algo = found.algo;
    g->work = found.workspaceSize;
    return 0;
}

struct gemm *gemm_new(struct dnn *d, const struct dnn_linear *l, const struct dnn_ask *ask, struct err *e)
{
    struct gemm *g = mem_alloc(sizeof *g);
    struct err first = {0};
    const enum dnn_pass pass = g->pass = ask->pass;
    g->acc = ask->acc;
    g->out = l->type == DNN_BF16 && pass != DNN_WEIGHTS && !(pass == DNN_FORWARD && l->wide) ? K_BF16 : K_F32;
    g->bias = l->bias && pass == DNN_FORWARD;
    g->biased = (struct k_shape){g->out, l->n, 1, l->out};
    if (describe(g, l, pass, e) || epilogue_set(g, g->bias, e)) { gemm_free(g); return NULL; }
    if (algorithm_find(d, g, ask->max_work, &first) == 0) return g;
    if (g->bias && epilogue_set(g, false, e) == 0 && algorithm_find(d, g, ask->max_work, e) == 0) return g;
    err_set(e, first.code, "%s", first.text);
    gemm_free(g);
    return NULL;
}

void gemm_free(struct gemm *g)
{
    if (!g) return;
    if (g->how) blaslt.MatmulDescDestroy(g->how);
    if (g->a) blaslt.MatrixLayoutDestroy(g->a);
    if (g->b) blaslt.MatrixLayoutDestroy(g->b);
    if (g->d) blaslt.MatrixLayoutDestroy(g->d);
    free(g);
}

size_t gemm_work(const struct gemm *g) { return g->work; }

int gemm_run(struct dnn *d, struct gemm *g, const struct dnn_operands *o, struct err *e)
{
    float one = 1, beta = g->acc ? 1 : 0;
    bool weights = g->pass == DNN_WEIGHTS;               /* otherwise b, the weights, comes first */
    if (g->fused && how_set(g, CUBLASLT_MATMUL_DESC_BIAS_POINTER, &o->bias, sizeof o->bias, e)) return -1;
    const void *first = weights ? o->a : o->b, *second = weights ? o->b : o->a;
    cublasStatus_t status = blaslt.Matmul(d->blas, g->how, &one, first, g->a, second, g->b, &beta, o->c, g->d, o->c,
                                           g->d, &g->algo, o->work, g->work, d->stream);
    if (blas_status(e, "a product", status)) return -1;
    if (!g->bias || g->fused) return 0;
    int bad = k_bias(d->stream, &g->biased, o->bias, o->c);
    return bad ? err_set(e, E_DEVICE, "bias: %s", cudaGetErrorString((cudaError_t)bad)) : 0;
}

void gemm_text(const struct gemm *g, struct text *out)
{
    int32_t id = 0, split = 0;
    size_t n;
    blaslt.MatmulAlgoConfigGetAttribute(&g->algo, CUBLASLT_ALGO_CONFIG_ID, &id, sizeof id, &n);
    blaslt.MatmulAlgoConfigGetAttribute(&g->algo, CUBLASLT_ALGO_CONFIG_SPLITK_NUM, &split, sizeof split, &n);
    text_add(out, "cuBLASLt algorithm %d", (int)id);
    if (split > 1) text_add(out, " in %d parts", (int)split);
    if (g->bias) text_add(out, g->fused ? ", with bias" : ", bias apart");
}
