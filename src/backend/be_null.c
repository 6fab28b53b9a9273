/* The null backend: real memory, no arithmetic. Kernels write constants and every call is counted, which shows the
 * executor's own work. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "backend/host.h"
#include "backend/null.h"

struct be {
    struct host host;
    struct null_count count;
};

struct be_kernel { struct be_key key; const struct group *k; };

const struct null_count *null_counts(const struct be *b) { return &b->count; }

static int null_describe(int unit, struct device *d, struct err *e)
{
    host_describe(d, "null", "none");
    return 0;
}

static int null_open(const struct selection *s, int threads, int unit, struct be **out, struct err *e)
{
    struct be *b = mem_alloc(sizeof *b);
    host_open(&b->host, s);
    *out = b;
    return 0;
}

static void null_close(struct be *b)
{
    for (int i = 0; i < b->host.kernel.n; i++) free(b->host.kernel.v[i]);
    vec_free(&b->host.kernel);
    free(b);
}

static void *null_alloc(struct be *b, size_t bytes, struct err *e)
{
    void *p = host_alloc(b, bytes, e);
    if (p) { b->count.alloc++; b->count.bytes += bytes; }
    return p;
}

static void null_free(struct be *b, void *p, size_t bytes)
{
    host_free(b, p, bytes);
    b->count.free++;
    b->count.bytes -= bytes;
}

static int null_copy(struct be *b, void *dst, const void *src, size_t bytes, struct err *e)
{
    b->count.copy++;
    return host_copy(b, dst, src, bytes, e);
}

static int null_prepare(struct be *b, const struct be_key *key, struct be_kernel **out, struct err *e)
{
    b->count.prepare++;
    if ((*out = be_kernel_find(b->host.kernel.v, b->host.kernel.n, key))) return 0;
    struct be_kernel *k = mem_alloc(sizeof *k);
    k->key = *key;
    k->k = &b->host.s->group[key->group];
    *vec_push(&b->host.kernel) = k;
    *out = k;
    return 0;
}

/* ---- kernels --------------------------------------------------------------------------------- */

static void fill(void *p, const struct shape *s, enum dtype type, int samples, int value)
{
    size_t n = (size_t)samples * (size_t)shape_count(s);
    for (size_t i = 0; p && i < n; i++) {
        if (type == F32) ((float *)p)[i] = (float)value;
        else if (type == F64) ((double *)p)[i] = value;
        else if (type == I64) ((int64_t *)p)[i] = value;
        else if (type == I32) ((int32_t *)p)[i] = value;
        else if (type == BF16) ((uint16_t *)p)[i] = (uint16_t)value;
        else ((uint8_t *)p)[i] = (uint8_t)value;
    }
}

static void fill_tensor(const struct be *b, int tensor, void *p, int samples, int value)
{
    fill(p, &b->host.g->tensor[tensor].shape, b->host.g->tensor[tensor].type, samples, value);
}

/* The optimizer step reads the statistics that batch norm saved, so they get the constant too. */
static void fill_saved(const struct group *k, void *p, int samples)
{
    for (size_t i = 0; p && k->has_stats && i < group_saved(k, samples) / sizeof(double); i++)
        ((double *)p)[i] = NULL_OUT;
}

static int null_run(struct be *b, struct be_kernel *k, const struct be_call *c, struct err *e)
{
    const struct group *g = k->k;
    if (c->n != k->key.samples)
        return err_set(e, E_INTERNAL, "kernel for %d samples called with %d", k->key.samples, c->n);
    b->count.run[k->key.phase]++;
    if (k->key.phase == PH_FWD) {
        for (int i = 0; i < g->n_out; i++) fill_tensor(b, g->outs[i], c->outs[i], c->n, NULL_OUT);
        fill_saved(g, c->saved, c->n);
        return 0;
    }
    for (int i = 0; i < g->n_in && k->key.phase == PH_BWD_DATA; i++)
        fill_tensor(b, g->in[i], c->gin[i], c->n, NULL_GRAD);
    for (int i = 0; i < g->n_param; i++) {
        const struct param *p = &b->host.g->param[g->param[i]];
        fill(c->pgrad[i], &p->shape, p->type, 1, NULL_GRAD);
    }
    return 0;
}

/* ---- values ---------------------------------------------------------------------------------- */

static int null_pack(struct be *b, int group, void *const *param, void *packed, struct err *e)
{
    b->count.pack++;
    return 0;
}

static int null_param_copy(struct be *b, int param, void *dst, const void *src, struct err *e)
{
    size_t stored = select_param_bytes(b->host.s, param), plain = graph_param_bytes(b->host.g, param);
    return host_copy(b, dst, src, stored < plain ? stored : plain, e);
}

static int null_add(struct be *b, float *y, const float *x, size_t n, struct err *e)
{
    b->count.add++;
    return 0;
}

static int null_sumsq(struct be *b, const float *x, size_t n, double *out, struct err *e)
{
    b->count.sumsq++;
    *out = 0;
    return 0;
}

static int null_update(struct be *b, int optimizer, const struct be_weight *w, int n,
                       const struct be_block *block, struct err *e)
{
    b->count.update += (uint64_t)n;
    return 0;
}

static int null_stats(struct be *b, const struct be_stats *s, struct err *e)
{
    b->count.stats++;
    return host_stats(b->host.s, s);
}

static int null_done(struct be *b, struct err *e)
{
    b->count.done++;
    return 1;
}

extern const struct be_ops be_null;
const struct be_ops be_null = {
    .name = "null",
    .text = "no arithmetic at all, for tests and measurements of everything else",
    .describe = null_describe,
    .open = null_open,
    .close = null_close,
    .alloc = null_alloc,
    .free = null_free,
    .copy = null_copy,
    .prepare = null_prepare,
    .run = null_run,
    .pack = null_pack,
    .param_import = null_param_copy,
    .param_export = null_param_copy,
    .add = null_add,
    .sumsq = null_sumsq,
    .update = null_update,
    .stats = null_stats,
    .tensor_import = host_tensor_copy,
    .tensor_export = host_tensor_copy,
    .done = null_done,
};
