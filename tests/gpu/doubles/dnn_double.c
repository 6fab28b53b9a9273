/* The double of dnn.h: convolutions and products by plain loops, which run when the stream comes to them. Sums are in
 * double, so results are exact to the last rounding. Workspace is overwritten with NaN, as a library may. */
#include <math.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "backend/cuda/dnn.h"
#include "base/mem.h"
#include "double.h"

enum { WORK = 1024 };
struct dnn { void *stream; VEC(struct dnn_plan *) plan; VEC(struct dnn_attention_plan *) attention; };
/* line: from one row of y to the next. wide: y is float. */
struct dnn_plan { struct dnn_conv c; enum dnn_pass pass; bool acc; int line; bool wide; };
struct call { struct dnn_plan p; struct dnn_operands o; };

int dnn_open(int device, const char *properties, void *stream, const char *table, struct dnn **out, struct err *e)
{
    (void)device; (void)properties;
    if (table && !strstr(table, ": loops\n")) return err_set(e, E_DATA, "the kernel table has no loops");
    struct dnn *d = mem_alloc(sizeof *d);
    d->stream = stream;
    *out = d;
    return 0;
}

void dnn_close(struct dnn *d)
{
    if (!d) return;
    for (int i = 0; i < d->plan.n; i++) free(d->plan.v[i]);
    vec_free(&d->plan);
    for (int i = 0; i < d->attention.n; i++) free(d->attention.v[i]);
    vec_free(&d->attention);
    free(d);
}

char *dnn_properties(struct dnn *d, struct err *e)
{
    (void)d; (void)e;
    return mem_strdup("{}");
}

void dnn_versions(struct text *libraries, struct text *beside)
{
    text_add(libraries, "doubles");
    text_add(beside, "no NVRTC");
}

size_t dnn_plan_work(const struct dnn_plan *p) { (void)p; return WORK; }
void dnn_plan_text(const struct dnn_plan *p, struct text *out) { text_add(out, "loops for %d samples", p->c.n); }

int dnn_conv_plan(struct dnn *d, const struct dnn_conv *c, const struct dnn_ask *ask, struct dnn_plan **out,
                  struct err *e)
{
    if (ask->max_work < WORK) return err_set(e, E_DEVICE, "%zu bytes of workspace are too few", ask->max_work);
    *out = mem_alloc(sizeof **out);
    **out = (struct dnn_plan){*c, ask->pass, ask->acc, c->c_out, false};
    *vec_push(&d->plan) = *out;
    return 0;
}

/* A product is a convolution of single points. */
int dnn_linear_plan(struct dnn *d, const struct dnn_linear *l, const struct dnn_ask *ask, struct dnn_plan **out,
                    struct err *e)
{
    struct dnn_conv c = {.type = l->type, .n = l->n, .c_in = l->in, .c_out = l->out, .groups = 1};
    for (int i = 0; i < 3; i++) c.in[i] = c.out[i] = c.kernel[i] = c.stride[i] = c.dilation[i] = 1;
    if (dnn_conv_plan(d, &c, ask, out, e)) return -1;
    if (l->line) (*out)->line = l->line;
    (*out)->wide = l->wide;
    return 0;
}

int dnn_measure(struct dnn *d, const struct dnn_conv *c, const struct dnn_ask *ask, unsigned tries,
                struct text *table, struct err *e)
{
    (void)d; (void)tries; (void)e;
    char line[96];
    snprintf(line, sizeof line, "n%d c%d>%d %dx%d pass %d%s: loops\n", c->n, c->c_in, c->c_out, c->in[1], c->in[2],
             (int)ask->pass, ask->acc ? "+" : "");
    if (!table->n || !strstr(table->s, line)) text_add(table, "%s", line);
    return 0;
}

/* ---- the loops ------------------------------------------------------------------------------- */

static double value(const void *p, enum dnn_type type, size_t i)
{
    if (type != DNN_BF16) return ((const float *)p)[i];
    uint32_t u = (uint32_t)((const uint16_t *)p)[i] << 16;
    float f;
    memcpy(&f, &u, sizeof f);
    return f;
}

static void put(void *p, enum dnn_type type, size_t i, double v)
{
    float f = (float)v;
    uint32_t u;
    if (type != DNN_BF16) { ((float *)p)[i] = f; return; }
    memcpy(&u, &f, sizeof u);
    ((uint16_t *)p)[i] =
        (u & 0x7fffffff) > 0x7f800000 ? (uint16_t)(u >> 16 | 0x40) : (uint16_t)((u + 0x7fff + (u >> 16 & 1)) >> 16);
}

static size_t volume(const int d[3]) { return (size_t)d[0] * (size_t)d[1] * (size_t)d[2]; }

/* Offset of input point under output point o and kernel point k, -1 in the padding. */
static int64_t under(const struct dnn_conv *c, size_t o, size_t k)
{
    int64_t at = 0;
    size_t oo[3] = {o / (size_t)(c->out[1] * c->out[2]), o / (size_t)c->out[2] % (size_t)c->out[1],
                    o % (size_t)c->out[2]};
    size_t kk[3] = {k / (size_t)(c->kernel[1] * c->kernel[2]), k / (size_t)c->kernel[2] % (size_t)c->kernel[1],
                    k % (size_t)c->kernel[2]};
    for (int i = 0; i < 3; i++) {
        int64_t p = (int64_t)oo[i] * c->stride[i] - c->pad[i] + (int64_t)kk[i] * c->dilation[i];
        if (p < 0 || p >= c->in[i]) return -1;
        at = at * c->in[i] + p;
    }
    return at;
}

/* What lies there, as doubles; the caller frees it. */
static double *values(const void *p, enum dnn_type type, size_t n)
{
    double *v = malloc((n + 1) * sizeof *v);
    for (size_t i = 0; i < n; i++) v[i] = value(p, type, i);
    return v;
}

/* Adds every product of one output's sum to where the pass wants it. sums: of the pass's result. */
static void products(const struct call *k, double *sums)
{
    const struct dnn_conv *c = &k->p.c;
    size_t ci = (size_t)(c->c_in / c->groups), co = (size_t)(c->c_out / c->groups);
    size_t outs = volume(c->out), taps = volume(c->kernel), ins = volume(c->in), batch = (size_t)c->n;
    size_t n_x = batch * ins * (size_t)c->c_in, line = (size_t)k->p.line;
    size_t n_y = (batch * outs - 1) * line + (size_t)c->c_out;
    double *a = values(k->o.a, c->type, k->p.pass == DNN_DATA ? n_y : n_x);
    double *b = values(k->o.b, c->type, k->p.pass == DNN_WEIGHTS ? n_y : (size_t)c->c_out * taps * ci);
    for (size_t n = 0; n < batch; n++)
        for (size_t o = 0; o < outs; o++)
            for (size_t t = 0; t < taps; t++) {
                int64_t u = under(c, o, t);
                if (u < 0) continue;
                for (size_t oc = 0; oc < (size_t)c->c_out; oc++) {
                    size_t y = (n * outs + o) * line + oc, w = (oc * taps + t) * ci;
                    size_t x = (n * ins + (size_t)u) * (size_t)c->c_in + oc / co * ci;
                    if (k->p.pass == DNN_FORWARD) for (size_t i = 0; i < ci; i++) sums[y] += a[x + i] * b[w + i];
                    else if (k->p.pass == DNN_DATA) for (size_t i = 0; i < ci; i++) sums[x + i] += a[y] * b[w + i];
                    else for (size_t i = 0; i < ci; i++) sums[w + i] += a[x + i] * b[y];
                }
            }
    free(a);
    free(b);
}

static void run(void *data)
{
    const struct call *k = data;
    const struct dnn_conv *c = &k->p.c;
    bool weights = k->p.pass == DNN_WEIGHTS;
    size_t n = weights ? (size_t)c->c_out * volume(c->kernel) * (size_t)(c->c_in / c->groups)
                       : (size_t)c->n * (k->p.pass == DNN_FORWARD ? volume(c->out) * (size_t)k->p.line
                                                                  : volume(c->in) * (size_t)c->c_in);
    const size_t line = k->p.pass == DNN_FORWARD ? (size_t)k->p.line : 1, used = line > 1 ? (size_t)c->c_out : 1;
    enum dnn_type type = weights || (k->p.pass == DNN_FORWARD && k->p.wide) ? DNN_F32 : c->type;
    double *sums = calloc(n, sizeof *sums);              /* not our own allocation: it stands for what a device does */
    products(k, sums);
    for (size_t i = 0; i < n; i++) {
        if (i % line >= used) continue;
        double v = sums[i] + (k->o.bias ? k->o.bias[i % line] : 0);
        put(k->o.c, type, i, k->p.acc ? value(k->o.c, type, i) + (float)v : v);
    }
    memset(k->o.work, 0xff, WORK);
    free(sums);
}

int dnn_run(struct dnn *d, struct dnn_plan *p, const struct dnn_operands *o, struct err *e)
{
    struct call k = {*p, *o};
    int status = host_launch(d->stream, run, &k, sizeof k);
    return status ? err_set(e, E_DEVICE, "loops: %s", cudaGetErrorString((cudaError_t)status)) : 0;
}

/* ---- attention ------------------------------------------------------------------------------- */

struct dnn_attention_plan { struct dnn_attention a; bool back; };
struct attention_call { struct dnn_attention_plan p; struct dnn_attention_operands o; };

int dnn_attention_plan(struct dnn *d, const struct dnn_attention *a, bool back, size_t max_work,
                       struct dnn_attention_plan **out, struct err *e)
{
    if (max_work < dnn_attention_work(a, back))
        return err_set(e, E_DEVICE, "%zu bytes of workspace are too few", max_work);
    *out = mem_alloc(sizeof **out);
    **out = (struct dnn_attention_plan){*a, back};
    *vec_push(&d->attention) = *out;
    return 0;
}

void dnn_attention_text(const struct dnn_attention_plan *p, struct text *out)
{
    text_add(out, "loops for attention of %d samples", p->a.n);
}

/* One head of queries of a sample: where its rows begin, and how far they are apart. */
struct lane { const struct dnn_attention *a; size_t q, kv, o, stats; size_t line_o; };

static double dot(const struct lane *h, const void *x, size_t at, const void *y, size_t by)
{
    double sum = 0;
    for (int c = 0; c < h->a->width; c++)
        sum += value(x, DNN_BF16, at + (size_t)c) * value(y, DNN_BF16, by + (size_t)c);
    return sum;
}

static size_t row_q(const struct lane *h, int i) { return h->q + (size_t)i * (size_t)h->a->line_q; }
static size_t row_kv(const struct lane *h, int i) { return h->kv + (size_t)i * (size_t)h->a->line_kv; }
static size_t row_o(const struct lane *h, int i) { return h->o + (size_t)i * h->line_o; }
static int seen(const struct lane *h, int i) { return h->a->causal ? i + 1 : h->a->points; }

static double score(const struct attention_call *k, const struct lane *h, int i, int j)
{
    return (double)h->a->scale * dot(h, k->o.q, row_q(h, i), k->o.k, row_kv(h, j));
}

static void lane_forward(const struct attention_call *k, const struct lane *h)
{
    for (int i = 0; i < h->a->points; i++) {
        double most = -INFINITY, sum = 0;
        for (int j = 0; j < seen(h, i); j++) most = fmax(most, score(k, h, i, j));
        for (int j = 0; j < seen(h, i); j++) sum += exp(score(k, h, i, j) - most);
        k->o.stats[h->stats + (size_t)i] = (float)(most + log(sum));
        for (int c = 0; c < h->a->width; c++) {
            double y = 0;
            for (int j = 0; j < seen(h, i); j++)
                y += exp(score(k, h, i, j) - most) / sum * value(k->o.v, DNN_BF16, row_kv(h, j) + (size_t)c);
            put(k->o.o, DNN_BF16, row_o(h, i) + (size_t)c, y);
        }
    }
}

/* gk, gv: sums of a head of keys, [points][width] each. */
static void lane_back(const struct attention_call *k, const struct lane *h, double *gk, double *gv)
{
    const size_t width = (size_t)h->a->width;
    for (int i = 0; i < h->a->points; i++) {
        double *gq = calloc(width, sizeof *gq), both = dot(h, k->o.go, row_o(h, i), k->o.o, row_o(h, i));
        k->o.sums[h->stats + (size_t)i] = (float)both;
        for (int j = 0; j < seen(h, i); j++) {
            const double p = exp(score(k, h, i, j) - (double)k->o.stats[h->stats + (size_t)i]);
            const double gs = p * (dot(h, k->o.go, row_o(h, i), k->o.v, row_kv(h, j)) - both) * (double)h->a->scale;
            for (size_t c = 0; c < width; c++) {
                gq[c] += gs * value(k->o.k, DNN_BF16, row_kv(h, j) + c);
                gk[(size_t)j * width + c] += gs * value(k->o.q, DNN_BF16, row_q(h, i) + c);
                gv[(size_t)j * width + c] += p * value(k->o.go, DNN_BF16, row_o(h, i) + c);
            }
        }
        for (size_t c = 0; c < width; c++) put(k->o.gq, DNN_BF16, row_q(h, i) + c, gq[c]);
        free(gq);
    }
}

static void attention_loops(void *data)
{
    const struct attention_call *k = data;
    const struct dnn_attention *a = &k->p.a;
    const int group = a->heads / a->kv_heads;
    const size_t width = (size_t)a->width, points = (size_t)a->points;
    for (int i = 0; i < a->n * a->kv_heads; i++) {
        const size_t n = (size_t)(i / a->kv_heads), kv = (size_t)(i % a->kv_heads);
        double *g = calloc(2 * points * width + 1, sizeof *g);
        struct lane h = {a, 0, n * points * (size_t)a->line_kv + kv * width, 0, 0, (size_t)a->heads * width};
        for (int j = 0; j < group; j++) {
            const size_t head = kv * (size_t)group + (size_t)j;
            h.q = n * points * (size_t)a->line_q + head * width;
            h.o = n * points * h.line_o + head * width;
            h.stats = (n * (size_t)a->heads + head) * points;
            if (k->p.back) lane_back(k, &h, g, g + points * width);
            else lane_forward(k, &h);
        }
        for (size_t t = 0; k->p.back && t < points * width; t++) {
            const size_t at = row_kv(&h, (int)(t / width)) + t % width;
            put(k->o.gk, DNN_BF16, at, g[t]);
            put(k->o.gv, DNN_BF16, at, g[points * width + t]);
        }
        free(g);
    }
    memset(k->o.work, 0xff, dnn_attention_work(a, k->p.back));
}

/* The library refuses operands that are missing or do not begin at 16 bytes. */
static bool operands_right(const struct dnn_attention_plan *p, const struct dnn_attention_operands *o)
{
    const void *const all[] = {o->q, o->k, o->v, o->o, o->stats, o->go, o->gq, o->gk, o->gv, o->sums};
    const int n = p->back ? 10 : 5;
    for (int i = 0; i < n; i++) if (!all[i] || (uintptr_t)all[i] % 16) return false;
    return true;
}

int dnn_attention_run(struct dnn *d, struct dnn_attention_plan *p, const struct dnn_attention_operands *o,
                      struct err *e)
{
    struct attention_call k = {*p, *o};
    if (!operands_right(p, o)) return err_set(e, E_DEVICE, "an operand of attention is missing or not aligned");
    int status = host_launch(d->stream, attention_loops, &k, sizeof k);
    return status ? err_set(e, E_DEVICE, "loops: %s", cudaGetErrorString((cudaError_t)status)) : 0;
}
