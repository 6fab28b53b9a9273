/* The CPU backend: oneDNN for convolutions and matrix products, own vector kernels for the rest (cpu_*.c, onednn/).
 *
 * Everything runs at once on the calling thread and the OpenMP threads that oneDNN starts. The thread that opens the
 * backend also runs it. */
#include <omp.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <xmmintrin.h>
#include "base/clock.h"
#include "base/rng.h"
#include "backend/cpu/cpu_int.h"
#include "backend/cpu/onednn/dnnl_half.h"
#include "backend/rules.h"
#include "optim/optim.h"

/* ---- opening --------------------------------------------------------------------------------- */

int cpu_isa(struct device *d)
{
    int isa = (int)dnnl_get_effective_cpu_isa();
    bool avx512 = (isa & dnnl_cpu_isa_avx512_core) == dnnl_cpu_isa_avx512_core,
         avx2 = (isa & dnnl_cpu_isa_avx2) == dnnl_cpu_isa_avx2;
    snprintf(d->isa, sizeof d->isa, "%s", avx512 ? "avx512" : avx2 ? "avx2" : "generic");
    d->features = avx512 ? ISA_AVX2 | ISA_AVX512 : avx2 ? ISA_AVX2 : 0;
    const bool bf16 = (isa & dnnl_cpu_isa_avx512_core_bf16) == dnnl_cpu_isa_avx512_core_bf16,
               amx = (isa & dnnl_cpu_isa_avx512_core_amx) == dnnl_cpu_isa_avx512_core_amx;
    d->bf16_slow = bf16 && !amx && __builtin_cpu_is("intel");   /* as many operations a cycle, and packing [0117] */
    d->bf16 = amx ? "amx_bf16" : bf16 ? "avx512_bf16" : NULL;
    d->speed = amx ? &onednn_amx_speed : avx512 ? &onednn_avx512_speed : avx2 ? &onednn_avx2_speed : &host_speed;
    return d->block = avx512 ? 16 : avx2 ? 8 : 1;
}

static int onednn_describe(int unit, struct device *d, struct err *e)
{
    memset(d, 0, sizeof *d);
    const dnnl_version_t *v = dnnl_version();
    snprintf(d->backend, sizeof d->backend, "onednn");
    snprintf(d->library, sizeof d->library, "oneDNN %d.%d.%d", v->major, v->minor, v->patch);
    cpu_isa(d);
    d->threads = 1;
    d->precise[FP32] = d->precise[BFLOAT16] = true;
    d->rules = &onednn_rules;
    return 0;
}

static int onednn_open(const struct selection *s, int threads, int unit, struct be **out, struct err *e)
{
    struct device here = {0};
    if (cpu_isa(&here) != s->dev.block)
        return err_set(e, E_DEVICE, "kernels were selected for %s (channel block %d), this machine has %s", s->dev.isa,
                       s->dev.block, here.isa);
    if (threads > omp_get_thread_limit())
        return err_set(e, E_CONF, "run.threads = %d: the environment's OMP_THREAD_LIMIT allows %d", threads,
                       omp_get_thread_limit());
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
    half_shared_free(b);
    half_weights_free(b);
    if (b->stream) dnnl_stream_destroy(b->stream);
    if (b->engine) dnnl_engine_destroy(b->engine);
    free(b);
}

enum { PEAK_SIZE = 256, PEAK_TIMES = 6 };

/* The same in bf16, of random bits that are small numbers. */
static double half_peak(struct be *b)
{
    enum { N = PEAK_SIZE };
    const struct half_shape shape = {N, N, N, {'N', N}, {'N', N}, N};
    const size_t scratch = half_scratch(N, N, N, b->s->dev.threads);
    uint64_t best = 0;
    struct half_product p;
    struct err e = {0};
    char *work = aligned_alloc(64, size_align64(3 * N * N * 2 + scratch));
    uint16_t *m = (uint16_t *)work;
    int bad = !work || half_make(b, &p, &shape, scratch, &e);
    for (uint32_t i = 0, r = 1; !bad && i < 2 * N * N; i++, r = r * 1664525 + 1013904223)
        m[i] = (uint16_t)(0x3f00 | (r >> 16 & 0x807f));
    for (int i = 0; i < PEAK_TIMES && !bad; i++) {
        uint64_t began = clock_ns();
        bad = half_run(b, &p, &(struct half_call){m, m + N * N, NULL, m + 2 * N * N, m + 3 * N * N}, &e);
        uint64_t ns = clock_ns() - began;
        if (i == 1 || (i && ns < best)) best = ns;
    }
    if (work) prim_free(&p.p);
    free(work);
    return bad || !best ? 0 : 2.0 * N * N * N * 1e9 / (double)best;
}

/* The best of some products of random matrices that fit the second cache. */
static double onednn_peak(struct be *b)
{
    enum { N = PEAK_SIZE, TIMES = PEAK_TIMES };
    uint64_t best = 0;
    if (b->s->dev.precision == BFLOAT16 && b->s->dev.bf16) return half_peak(b);
    float *m = mem_alloc(3 * N * N * sizeof *m), *out = m + 2 * N * N;
    rng_fill_uniform((struct rng_at){.domain = RNG_SYNTH}, m, 2 * N * N);
    for (int i = 0; i < TIMES; i++) {
        uint64_t began = clock_ns();
        dnnl_sgemm('N', 'N', N, N, N, 1, m, N, m + N * N, N, 0, out, N);
        uint64_t ns = clock_ns() - began;
        if (i == 1 || (i && ns < best)) best = ns;        /* the first one makes the kernel */
    }
    free(m);
    return best ? 2.0 * N * N * N * 1e9 / (double)best : 0;
}

/* ---- kernels --------------------------------------------------------------------------------- */

int kernel_lanes(const struct be *b, const struct be_kernel *k, int tensor)
{
    if (k->lanes == CPU_LAST) return (int)b->g->tensor[tensor].shape.d[0];
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
    const bool open = b->asks && b->s->dev.precision == BFLOAT16;   /* the selection makes sizes once more */
    bytes += k->taken;
    if (open || bytes <= have) return 0;
    return err_set(e, E_INTERNAL, "%s: kernel needs %zu bytes of workspace, selected are %zu", k->node->name, bytes,
                   have);
}

static int onednn_prepare(struct be *b, const struct be_key *key, struct be_kernel **out, struct err *e)
{
    if ((*out = be_kernel_find(b->kernel.v, b->kernel.n, key))) return 0;
    const struct group *g = &b->s->group[key->group];
    struct be_kernel like = {.key = *key, .k = g, .node = &b->g->node[g->node[0]]};
    struct be_kernel *k = cpu_kernel_make(b, &like, NULL, e);
    if (!k) return -1;
    *vec_push(&b->kernel) = k;
    *out = k;
    return 0;
}

static int onednn_run(struct be *b, struct be_kernel *k, const struct be_call *c, struct err *e)
{
    return k->run(b, k, c, e);
}

static int weights_pack(struct be *b, const struct group *k, void *const *param, void *packed, struct err *e)
{
    const struct node *n = &b->g->node[k->node[0]];
    struct weight_form f = weight_form(b, n->param[0]);
    bool own = false;
    for (int ph = PH_BWD_DATA; ph >= PH_FWD; ph--) {     /* the forward pass last: see kernel_row.pack */
        if (!k->row[ph] || !k->row[ph]->pack) continue;
        if (k->row[ph]->pack(b, k, (enum phase)ph, param, packed, e)) return -1;
        own = true;
    }
    if (!own && f.lanes > 1 && !f.in_plain)
        weight_transpose(packed, param[0], &f, packed_in_first(&f, dnnl_conv_pointwise(b, n)),
                         b->s->dev.threads);
    return 0;
}

static int onednn_pack(struct be *b, int group, void *const *param, void *packed, struct err *e)
{
    const struct group *k = &b->s->group[group];
    const int weight = k->param[0];
    float *wide = select_narrows(b->s, weight) ? mem_alloc(graph_param_bytes(b->g, weight)) : NULL;
    if (wide) format_widen(&b->s->param[weight], &b->g->param[weight].shape, param[0], wide);
    const int bad = weights_pack(b, k, wide ? (void *[]){wide} : param, packed, e);
    free(wide);
    return bad;
}

/* ---- values ---------------------------------------------------------------------------------- */

/* Values of another type go through floats in the stored order. */
static int onednn_param_import(struct be *b, int param, void *storage, const void *plain, struct err *e)
{
    struct weight_form f = weight_form(b, param);
    if (f.lanes == 1) return host_param_import(b->s, param, storage, plain, e);
    if (!select_narrows(b->s, param)) { weight_to_blocked(storage, plain, &f, false); return 0; }
    float *blocked = mem_alloc(graph_param_bytes(b->g, param));
    weight_to_blocked(blocked, plain, &f, false);
    int bad = host_param_import(b->s, param, storage, blocked, e);
    free(blocked);
    return bad;
}

static int onednn_param_export(struct be *b, int param, void *plain, const void *storage, struct err *e)
{
    struct weight_form f = weight_form(b, param);
    float *wide = f.lanes > 1 && select_narrows(b->s, param) ? mem_alloc(graph_param_bytes(b->g, param)) : NULL;
    if (f.lanes == 1 || wide) host_param_export(b->s, param, wide ? wide : plain, storage);
    if (f.lanes > 1) weight_to_plain(plain, wide ? wide : storage, &f);
    free(wide);
    return 0;
}

static void *onednn_param_values(struct be *b, int param, void *storage)
{
    return weight_form(b, param).lanes == 1 && !select_narrows(b->s, param) ? storage : NULL;
}

/* Some points of all channels at a time. */
static void import_half(struct be *b, uint16_t *to, const float *plain, struct blocks s)
{
    enum { POINTS = 64 };
    uint16_t part[POINTS];
    for (int64_t block = 0; block < s.n * (s.channels / s.lanes); block++, to += s.points * s.lanes)
        for (int l = 0; l < s.lanes; l++, plain += s.points)
            for (int64_t p = 0; p < s.points; p += POINTS) {
                const int64_t n = s.points - p < POINTS ? s.points - p : POINTS;
                b->vec->narrow(part, plain + p, (size_t)n, false);
                for (int64_t i = 0; i < n; i++) to[(p + i) * s.lanes + l] = part[i];
            }
}

static int onednn_tensor_import(struct be *b, int tensor, int n, void *storage, const void *plain, struct err *e)
{
    struct blocks s = tensor_blocks(b, tensor, n);
    const bool half = cpu_is_half(b, tensor);
    if (half && (s.lanes == 1 || s.points == 1)) {
        b->vec->narrow(storage, plain, tensor_bytes(b, tensor, n) / sizeof(float), false);
        return 0;
    }
    if (half) import_half(b, storage, plain, s);
    else if (s.lanes > 1) to_blocked(storage, plain, s, false);
    else memcpy(storage, plain, tensor_bytes(b, tensor, n));
    return 0;
}

static int onednn_tensor_export(struct be *b, int tensor, int n, void *plain, const void *storage, struct err *e)
{
    struct blocks s = tensor_blocks(b, tensor, n);
    float *wide = cpu_is_half(b, tensor) ? mem_alloc(tensor_bytes(b, tensor, n)) : NULL;
    if (wide) b->vec->widen(wide, storage, tensor_bytes(b, tensor, n) / sizeof *wide);
    if (s.lanes > 1) to_plain(plain, wide ? wide : storage, s, false);
    else memcpy(plain, wide ? wide : storage, tensor_bytes(b, tensor, n));
    free(wide);
    return 0;
}

static int onednn_add(struct be *b, float *y, const float *x, size_t n, struct err *e)
{
    cpu_add(b, y, x, n);
    return 0;
}

/* A large sum is that of parts, whose size depends on n alone. */
enum { SQUARES = 64, FEW_SQUARES = 1 << 16 };
struct squares { const struct vec_ops *vec; const float *x; size_t n, each; double *sum; };

static void some_square(const void *data, int thread, int64_t from, int64_t to)
{
    const struct squares *q = data;
    for (size_t i = (size_t)from; i < (size_t)to; i++) {
        const size_t at = i * q->each, left = at < q->n ? q->n - at : 0;
        q->sum[i] = q->vec->sumsq(q->x + (left ? at : 0), left < q->each ? left : q->each);
    }
}

static int onednn_sumsq(struct be *b, const float *x, size_t n, double *out, struct err *e)
{
    double sum[SQUARES];
    const int parts = n < FEW_SQUARES ? 1 : SQUARES;
    const struct squares q = {b->vec, x, n, size_align64(n / (size_t)parts + 1), sum};
    cpu_each(b->s->dev.threads, parts, some_square, &q);
    *out = 0;
    for (int i = 0; i < parts; i++) *out += sum[i];
    return 0;
}

static int onednn_stats(struct be *b, const struct be_stats *s, struct err *e) { return host_stats(b->s, s); }

/* Weights spread over parts of about equal size: a part has those that begin in it. */
struct update_parts {
    int optimizer, parts; const struct be_weight *w; int n; const struct be_block *block; size_t all;
};

static void update_part(const void *data, int thread, int64_t from, int64_t to)
{
    const struct update_parts *u = data;
    const size_t first = u->all * (size_t)from / (size_t)u->parts, end = u->all * (size_t)to / (size_t)u->parts;
    size_t at = 0;
    for (int i = 0; i < u->n; at += u->w[i++].n)
        if (at >= first && at < end) optim_list[u->optimizer]->update(&u->w[i], u->block);
}

static int onednn_update(struct be *b, int optimizer, const struct be_weight *w, int n, const struct be_block *block,
                         struct err *e)
{
    enum { PARTS_A_THREAD = 8 };                         /* large weights fill several */
    const int threads = b->s->dev.threads;
    struct update_parts u = {optimizer, threads * PARTS_A_THREAD, w, n, block, 0};
    for (int i = 0; i < n; i++) u.all += w[i].n;
    if (threads == 1) return host_update(b, optimizer, w, n, block, e);
    cpu_each(threads, u.parts, update_part, &u);
    return 0;
}

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
    .peak = onednn_peak,
    .pack = onednn_pack,
    .param_import = onednn_param_import,
    .param_export = onednn_param_export,
    .param_values = onednn_param_values,
    .add = onednn_add,
    .sumsq = onednn_sumsq,
    .update = onednn_update,
    .stats = onednn_stats,
    .tensor_import = onednn_tensor_import,
    .tensor_export = onednn_tensor_export,
    .done = onednn_done,
};
