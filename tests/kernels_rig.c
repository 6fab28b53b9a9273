#include "kernels_rig.h"
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "base/rng.h"
#include "op_graphs.h"

unsigned rig_counters[K_COUNTERS];
extern int kernels_backwards;                            /* kernels/launch.h, on the host */

/* A stream that does things at once. */
int host_launch(void *stream, void (*fn)(void *), const void *data, size_t bytes);
int host_launch(void *stream, void (*fn)(void *), const void *data, size_t bytes)
{
    fn((void *)(uintptr_t)data);
    return 0;
}

/* ---- the same bits both ways ----------------------------------------------------------------- */

static char *told;
static size_t told_bytes, told_at;

void rig_way(int way)
{
    kernels_backwards = way;
    told_at = 0;
    if (!way) told_bytes = 0;
}

void rig_same(const void *p, size_t bytes)
{
    if (!kernels_backwards) {
        told = mem_resize(told, told_bytes + bytes + 1);
        if (bytes) memcpy(told + told_bytes, p, bytes);
        told_bytes += bytes;
        return;
    }
    ck_assert(told_at + bytes <= told_bytes);
    ck_assert_msg(!bytes || !memcmp(told + told_at, p, bytes), "other bits when threads run backwards");
    told_at += bytes;
}

/* ---- memory ---------------------------------------------------------------------------------- */

enum { GUARD = 64 };
size_t rig_bytes(enum ktype type, size_t n) { return n * (type == K_F32 ? 4 : 2); }

void *rig_new(enum ktype type, size_t n)
{
    char *p = NULL;
    ck_assert_int_eq(posix_memalign((void **)&p, 64, rig_bytes(type, n) + GUARD), 0);
    memset(p, 0xff, rig_bytes(type, n));
    memset(p + rig_bytes(type, n), 0x5a, GUARD);
    return p;
}

void rig_guard(enum ktype type, const void *p, size_t n)
{
    for (size_t i = 0; i < GUARD; i++)
        if (((const char *)p)[rig_bytes(type, n) + i] != 0x5a) ck_abort_msg("written beyond %zu elements", n);
}

static uint16_t bf16_of(float x)
{
    uint32_t u;
    memcpy(&u, &x, 4);
    uint32_t low = u & 0xffff, up = u >> 16;
    if (isnan(x)) return (uint16_t)(up | 0x40);
    return (uint16_t)(up + (low > 0x8000 || (low == 0x8000 && up & 1)));
}

float rig_at(enum ktype type, const void *p, size_t i)
{
    if (type == K_F32) return ((const float *)p)[i];
    uint32_t u = (uint32_t)((const uint16_t *)p)[i] << 16;
    float x;
    memcpy(&x, &u, 4);
    return x;
}

void rig_set(enum ktype type, void *p, size_t i, float x)
{
    if (type == K_F32) ((float *)p)[i] = x;
    else ((uint16_t *)p)[i] = bf16_of(x);
}

float rig_round(enum ktype type, float x)
{
    uint16_t b = bf16_of(x);
    return type == K_F32 ? x : rig_at(type, &b, 0);
}

void *rig_array(enum ktype type, const float *x, size_t n)
{
    void *p = rig_new(type, n);
    for (size_t i = 0; i < n; i++) rig_set(type, p, i, x[i]);
    return p;
}

float *rig_normals(enum ktype type, uint32_t which, size_t n)
{
    float *x = mem_alloc((n + 1) * sizeof *x);
    rng_fill_normal((struct rng_at){5, RNG_TEST, which}, x, n);
    for (size_t i = 0; i < n; i++) x[i] = rig_round(type, x[i]);
    return x;
}

void *rig_last(enum ktype type, const float *x, int64_t n, int64_t c, int64_t points)
{
    void *p = rig_new(type, (size_t)(n * c * points));
    for (int64_t i = 0; i < n; i++)
        for (int64_t k = 0; k < c; k++)
            for (int64_t s = 0; s < points; s++)
                rig_set(type, p, (size_t)((i * points + s) * c + k), x[(i * c + k) * points + s]);
    return p;
}

void rig_check(enum ktype type, void *y, const float *want, const float *old, int64_t n, int64_t c, int64_t points,
               double sums)
{
    rig_check_near(type, y, want, old, n, c, points, sums, 0);
}

/* sums > 2: infinities may meet their opposites in one way of summing and not in the other. */
static bool same_odd(double got, double want, double sums)
{
    if (sums > 2) return !isfinite(got);
    return isnan(want) ? isnan(got) : got == want;
}

/* Check writes a line for every assertion that holds, so loops over elements assert nothing. */
void rig_check_near(enum ktype type, void *y, const float *want, const float *old, int64_t n, int64_t c, int64_t points,
                    double sums, double most)
{
    for (int64_t i = 0; i < n * c * points; i++) if (isfinite(want[i])) most = fmax(most, fabs((double)want[i]));
    for (int64_t i = 0; i < n; i++)
        for (int64_t k = 0; k < c; k++)
            for (int64_t s = 0; s < points; s++) {
                int64_t from = (i * c + k) * points + s, at = (i * points + s) * c + k;
                double w = (double)want[from] + (old ? (double)old[from] : 0), got = rig_at(type, y, (size_t)at);
                double room = fabs(w) * (type == K_F32 ? 0x1p-24 : 0x1p-8) + sums * 0x1p-24 * most +
                              (old ? fabs((double)old[from]) * 0x1p-24 : 0);
                if (isfinite(w) ? !(fabs(got - w) <= room) : !same_odd(got, w, sums))
                    ck_abort_msg("sample %d channel %d point %d: %.9g, the reference has %.9g", (int)i, (int)k, (int)s,
                                 got, w);
            }
    rig_same(y, rig_bytes(type, (size_t)(n * c * points)));
    rig_guard(type, y, (size_t)(n * c * points));
    free(y);
}

/* ---- one operator ---------------------------------------------------------------------------- */

static bool odd;
void rig_odd(bool on) { odd = on; }
void rig_odd_among(float *x, size_t n)
{
    static const float value[] = {[3] = NAN, [5] = INFINITY, [8] = -INFINITY, [9] = -0.0f};
    for (size_t i = 0; i < n; i++) {
        size_t k = i % 11;
        if (k == 3 || k == 5 || k == 8 || k == 9) x[i] = value[k];
    }
}

static int64_t channels_of(const struct shape *s) { return s->n ? s->d[0] : 1; }
static const struct shape *in_shape(const struct rig_op *o, int k) { return &o->g->tensor[o->node->in[k]].shape; }
int64_t rig_in_channels(const struct rig_op *o, int k) { return channels_of(in_shape(o, k)); }
int64_t rig_in_points(const struct rig_op *o, int k)
{
    return shape_count(in_shape(o, k)) / channels_of(in_shape(o, k));
}

static void *input_of(const struct rig_op *o, int k, enum ktype type)
{
    size_t n = (size_t)o->c.n * (size_t)shape_count(in_shape(o, k));
    if (o->g->tensor[o->node->in[k]].type == F32) return rig_normals(type, (uint32_t)k, n);
    void *x = mem_alloc(n * sizeof(int64_t));
    op_graph_integers(o->g, o->node->in[k], 3, n, x);
    return x;
}

void rig_op_open(struct rig_op *o, const char *op, const char *example, enum ktype type, int n)
{
    memset(o, 0, sizeof *o);
    o->g = op_graph_example(op_find(op), example);
    o->node = &o->g->node[0];
    const struct op_kind *k = o->node->op;
    const struct shape *out = &o->g->tensor[o->node->out].shape;
    size_t count = (size_t)n * (size_t)shape_count(out);
    o->channels = channels_of(out);
    o->points = shape_count(out) / o->channels;
    o->block = (struct be_block){.inv_weight = 1.0 / n, .seed = 77, .step = 3};
    for (int i = 0; i < 16; i++) o->sample[i] = 100 + 7 * i;
    o->c = (struct op_call){.g = o->g, .node = o->node, .n = n, .train = true, .block = &o->block, .sample = o->sample};
    o->c.out = mem_alloc(count * sizeof(double));
    o->c.gout = rig_normals(type, 40, count);
    if (odd) rig_odd_among((float *)(uintptr_t)o->c.gout, count);
    if (k->saved_bytes) o->c.saved = mem_alloc(k->saved_bytes(o->g, o->node, n));
    for (int i = 0; i < o->node->n_in; i++) {
        const int first = op_graph_first(o->node, i);
        o->c.in[i] = first < i ? o->c.in[first] : input_of(o, i, type);
        if (odd && o->g->tensor[o->node->in[i]].type == F32)
            rig_odd_among((float *)(uintptr_t)o->c.in[i], (size_t)n * (size_t)shape_count(in_shape(o, i)));
        if (op_grad_in(k) >> i & 1)
            o->c.gin[i] = mem_alloc((size_t)n * (size_t)shape_count(in_shape(o, i)) * sizeof(float));
    }
    for (int i = 0; i < o->node->n_param; i++) {
        size_t size = (size_t)shape_count(&o->g->param[o->node->param[i]].shape);
        o->c.param[i] = rig_normals(K_F32, 60 + (uint32_t)i, size + 1);
        o->c.pgrad[i] = mem_alloc(size * sizeof(float));
    }
    k->forward(&o->c);
    if (k->backward_data) k->backward_data(&o->c);
    if (k->backward_weights) k->backward_weights(&o->c);
}

void rig_op_close(struct rig_op *o)
{
    for (int i = 0; i < o->node->n_in; i++) {
        if (op_graph_first(o->node, i) == i) free((void *)(uintptr_t)o->c.in[i]);
        free(o->c.gin[i]);
    }
    for (int i = 0; i < o->node->n_param; i++) free(o->c.param[i]), free(o->c.pgrad[i]);
    free(o->c.out), free((void *)(uintptr_t)o->c.gout), free(o->c.saved);
    graph_free(o->g);
}

void *rig_place(enum ktype type, const float *old, bool acc, int64_t n, int64_t c, int64_t points)
{
    return acc ? rig_last(type, old, n, c, points) : rig_new(type, (size_t)(n * c * points));
}
