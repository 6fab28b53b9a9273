/* The CPU backend: oneDNN for convolutions and matrix products, own vector kernels for the rest (cpu_*.c, onednn/).
 *
 * Everything runs at once on the calling thread and the OpenMP threads that oneDNN starts. The thread that opens the
 * backend also runs it. */
#include <omp.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <xmmintrin.h>
#include "backend/cpu/cpu_int.h"
#include "backend/rules.h"

/* ---- choosing a kernel ----------------------------------------------------------------------- */

/* Operators with their own kernel. It takes all groups of the operator, or those that `takes` accepts. All other
 * operators run their reference kernel. */
struct cpu_maker { const char *op; kernel_maker *make; kernel_taker *takes; const char *not_taken; };
static const struct cpu_maker makers[] = {
    {.op = "conv", .make = dnnl_conv_make},
    {.op = "conv_transpose", .make = cpu_conv_transpose_make},
    {.op = "upsample",
     .make = cpu_upsample_make,
     .takes = cpu_avg_pool_takes,
     .not_taken = "a plain loop: input and output in different layouts"},
    {.op = "linear", .make = cpu_linear_make},
    {.op = "batch_norm", .make = cpu_norm_make},
    {.op = "relu",
     .make = cpu_relu_make,
     .takes = cpu_relu_takes,
     .not_taken = "a plain loop: input and output in different layouts"},
    {.op = "add",
     .make = cpu_add_make,
     .takes = cpu_add_takes,
     .not_taken = "a plain loop: more than two inputs, or different layouts"},
    {.op = "max_pool",
     .make = cpu_max_pool_make,
     .takes = cpu_max_pool_takes,
     .not_taken = "a plain loop: over 255 elements a window"},
    {.op = "global_avg_pool", .make = cpu_global_pool_make},
    {.op = "avg_pool",
     .make = cpu_avg_pool_make,
     .takes = cpu_avg_pool_takes,
     .not_taken = "a plain loop: input and output in different layouts"},
    {.op = "adaptive_avg_pool",
     .make = cpu_adaptive_make,
     .takes = cpu_avg_pool_takes,
     .not_taken = "a plain loop: input and output in different layouts"},
    {.op = "multiply",
     .make = cpu_multiply_make,
     .takes = cpu_multiply_takes,
     .not_taken = "a plain loop: different layouts"},
    {.op = "concat", .make = cpu_concat_make},
    {.op = "stochastic_depth", .make = cpu_depth_make},
    {.op = "scale", .make = cpu_scale_make},
    {.op = "prelu",
     .make = cpu_prelu_make,
     .takes = cpu_channels_takes,
     .not_taken = "a plain loop: input and output in different layouts"},
    {.op = "dropout",
     .make = cpu_dropout_make,
     .takes = cpu_dropout_takes,
     .not_taken = "a plain loop, which draws a number for each element"},
    {.op = "repeat", .make = cpu_repeat_make},
    {.op = "softmax", .make = cpu_own_loops_make},
    {.op = "group_norm",
     .make = cpu_group_norm_make,
     .takes = cpu_channels_takes,
     .not_taken = "a plain loop: input and output in different layouts"},
    {.op = "instance_norm",
     .make = cpu_group_norm_make,
     .takes = cpu_channels_takes,
     .not_taken = "a plain loop: input and output in different layouts"},
    {.op = "layer_norm", .make = cpu_own_loops_make},
    {.op = "slice", .make = cpu_own_loops_make},
    {.op = "prepend", .make = cpu_own_loops_make},
    {.op = "positions", .make = cpu_own_loops_make},
    {.op = "attention", .make = cpu_attention_make},
    {.op = "flatten",
     .make = cpu_flatten_make,
     .takes = cpu_flatten_takes,
     .not_taken = "a plain loop: output in blocks of channels"},
    {.op = "embedding", .make = cpu_embedding_make},
};

/* Functions of one value are found by their trait: all have loops of one kind. */
static const struct cpu_maker *maker_find(const struct op_kind *op)
{
    static const struct cpu_maker unary = {.make = cpu_unary_make, .takes = cpu_relu_takes,
                                           .not_taken = "a plain loop: input and output in different layouts"};
    if (op->category == OP_UNARY) return &unary;
    for (size_t i = 0; i < sizeof makers / sizeof *makers; i++)
        if (strcmp(makers[i].op, op->name) == 0) return &makers[i];
    return NULL;
}

/* Reference kernels are plain loops, written for readers. */
const char *cpu_loop(const struct be *b, const struct be_kernel *like)
{
    const struct op_kind *op = like->node->op;
    const struct cpu_maker *m = maker_find(op);
    if (like->k->kind != GROUP_NODE) return NULL;
    if (m) return m->takes && !m->takes(b, like) ? m->not_taken : NULL;
    return dnnl_loop_is_cheap(op) ? "a plain loop, cheap beside the rest" : "a plain loop: no kernel for CPUs yet";
}

static kernel_maker *make_of(const struct be *b, const struct be_kernel *like)
{
    if (cpu_loop(b, like)) return cpu_reference_make;
    return like->k->kind != GROUP_NODE ? cpu_norm_make : maker_find(like->node->op)->make;
}

/* ---- opening --------------------------------------------------------------------------------- */

int cpu_isa(struct device *d)
{
    int isa = (int)dnnl_get_effective_cpu_isa();
    bool avx512 = (isa & dnnl_cpu_isa_avx512_core) == dnnl_cpu_isa_avx512_core,
         avx2 = (isa & dnnl_cpu_isa_avx2) == dnnl_cpu_isa_avx2;
    snprintf(d->isa, sizeof d->isa, "%s", avx512 ? "avx512" : avx2 ? "avx2" : "generic");
    d->speed = avx512 ? &onednn_avx512_speed : avx2 ? &onednn_avx2_speed : &host_speed;
    return d->block = avx512 ? 16 : avx2 ? 8 : 1;
}

static int onednn_describe(int unit, struct device *d, struct err *e)
{
    memset(d, 0, sizeof *d);
    const dnnl_version_t *v = dnnl_version();
    snprintf(d->backend, sizeof d->backend, "onednn");
    snprintf(d->library, sizeof d->library, "oneDNN %d.%d.%d", v->major, v->minor, v->patch);
    cpu_isa(d);
    d->fuse_bn = true;
    d->threads = 1;
    d->precise[FP32] = true;
    d->rules = &onednn_rules;
    return 0;
}

static int onednn_open(const struct selection *s, int threads, int unit, struct be **out, struct err *e)
{
    struct device here = {0};
    if (cpu_isa(&here) != s->dev.block)
        return err_set(e, E_DEVICE, "kernels were selected for %s (channel block %d), this machine has %s", s->dev.isa,
                       s->dev.block, here.isa);
    struct be *b = mem_alloc(sizeof *b);
    b->s = s;
    b->g = s->g;
    b->lanes = here.block;
    b->vec = here.block == 16 ? &vec_avx512 : here.block == 8 ? &vec_avx2 : &vec_plain;
    omp_set_dynamic(0);
    omp_set_num_threads(threads);
    _mm_setcsr(_mm_getcsr() | 0x8040);                   /* denormals are zero: flush results, ignore inputs */
    dnnl_status_t status = dnnl_engine_create(&b->engine, dnnl_cpu, 0);
    if (status == dnnl_success) status = dnnl_stream_create(&b->stream, b->engine, dnnl_stream_in_order);
    if (status != dnnl_success) {
        be_onednn.close(b);
        return dnnl_fail(e, "creating the CPU engine", status);
    }
    *out = b;
    return 0;
}

static void onednn_close(struct be *b)
{
    for (int i = 0; i < b->kernel.n; i++) kernel_free(b->kernel.v[i]);
    vec_free(&b->kernel);
    vec_free(&b->join);
    if (b->stream) dnnl_stream_destroy(b->stream);
    if (b->engine) dnnl_engine_destroy(b->engine);
    free(b);
}

/* ---- kernels --------------------------------------------------------------------------------- */

int kernel_lanes(const struct be *b, const struct be_kernel *k, int tensor)
{
    return k->lanes ? k->lanes : tensor_lanes(b, tensor);
}

void *kernel_new(const struct be_kernel *like, size_t size)
{
    struct be_kernel *k = mem_alloc(size);
    *k = *like;
    return k;
}

void kernel_free(struct be_kernel *k)
{
    if (k->close) k->close(k);
    free(k);
}

int kernel_workspace(struct be *b, const struct be_kernel *k, size_t bytes, struct err *e)
{
    size_t have = group_workspace(k->k, k->key.samples);
    bytes += k->taken;
    if (bytes <= have) return 0;
    return err_set(e, E_INTERNAL, "%s: kernel needs %zu bytes of workspace, selected are %zu", k->node->name, bytes,
                   have);
}

static int onednn_prepare(struct be *b, const struct be_key *key, struct be_kernel **out, struct err *e)
{
    if ((*out = be_kernel_find(b->kernel.v, b->kernel.n, key))) return 0;
    const struct group *g = &b->s->group[key->group];
    struct be_kernel like = {.key = *key, .k = g, .node = &b->g->node[g->node[0]]};
    struct be_kernel *k = make_of(b, &like)(b, &like, e);
    if (!k) return -1;
    *vec_push(&b->kernel) = k;
    *out = k;
    return 0;
}

static int onednn_run(struct be *b, struct be_kernel *k, const struct be_call *c, struct err *e)
{
    return k->run(b, k, c, e);
}

static int onednn_pack(struct be *b, int group, void *const *param, void *packed, struct err *e)
{
    const struct group *k = &b->s->group[group];
    const struct node *n = &b->g->node[k->node[0]];
    struct weight_form f = weight_form(b, n->param[0]);
    struct wino_shape w;
    if (cpu_conv_wino(b->s, n, 1, &w)) {
        cpu_conv_wino_derive(&w, param[0], k->grad_in & 1, packed);
        return 0;
    }
    if (!f.in_plain) weight_transpose(packed, param[0], &f, packed_in_first(&f, dnnl_conv_pointwise(b, n)));
    return 0;
}

/* ---- values ---------------------------------------------------------------------------------- */

static int onednn_param_import(struct be *b, int param, void *storage, const void *plain, struct err *e)
{
    struct weight_form f = weight_form(b, param);
    if (f.lanes > 1) weight_to_blocked(storage, plain, &f, false);
    else memcpy(storage, plain, graph_param_bytes(b->g, param));
    return 0;
}

static int onednn_param_export(struct be *b, int param, void *plain, const void *storage, struct err *e)
{
    struct weight_form f = weight_form(b, param);
    if (f.lanes > 1) weight_to_plain(plain, storage, &f);
    else memcpy(plain, storage, graph_param_bytes(b->g, param));
    return 0;
}

static int onednn_tensor_import(struct be *b, int tensor, int n, void *storage, const void *plain, struct err *e)
{
    struct blocks s = tensor_blocks(b, tensor, n);
    if (s.lanes > 1) to_blocked(storage, plain, s, false);
    else memcpy(storage, plain, tensor_bytes(b, tensor, n));
    return 0;
}

static int onednn_tensor_export(struct be *b, int tensor, int n, void *plain, const void *storage, struct err *e)
{
    struct blocks s = tensor_blocks(b, tensor, n);
    if (s.lanes > 1) to_plain(plain, storage, s, false);
    else memcpy(plain, storage, tensor_bytes(b, tensor, n));
    return 0;
}

static int onednn_add(struct be *b, float *y, const float *x, size_t n, struct err *e)
{
    b->vec->add(y, x, n);
    return 0;
}

static int onednn_sumsq(struct be *b, const float *x, size_t n, double *out, struct err *e)
{
    *out = b->vec->sumsq(x, n);
    return 0;
}

static int onednn_stats(struct be *b, const struct be_stats *s, struct err *e) { return host_stats(b->s, s); }

static int onednn_done(struct be *b, struct err *e)
{
    dnnl_status_t status = dnnl_stream_wait(b->stream);
    return status == dnnl_success ? 1 : dnnl_fail(e, "waiting for the stream", status);
}

const struct be_ops be_onednn = {
    .name = "onednn",
    .text = "CPUs, by oneDNN and own vector kernels",
    .describe = onednn_describe,
    .open = onednn_open,
    .close = onednn_close,
    .alloc = host_alloc,
    .free = host_free,
    .copy = host_copy,
    .prepare = onednn_prepare,
    .run = onednn_run,
    .may_batch = cpu_may_batch,
    .pack = onednn_pack,
    .param_import = onednn_param_import,
    .param_export = onednn_param_export,
    .add = onednn_add,
    .sumsq = onednn_sumsq,
    .update = host_update,
    .stats = onednn_stats,
    .tensor_import = onednn_tensor_import,
    .tensor_export = onednn_tensor_export,
    .done = onednn_done,
};
