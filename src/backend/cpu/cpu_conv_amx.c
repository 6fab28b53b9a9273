/* Weight gradients of convolutions in bf16 by AMX (cpu_amx.h). Each position of the kernel is a shift in a grid of
 * slots. Where pixels have few channels, a row of the kernel is one shift, and its pixels are the channels. */
#include <stdlib.h>
#include <string.h>
#include "backend/cpu/cpu_amx.h"
#include "backend/cpu/cpu_conv_half.h"
#include "model/ops/window.h"

enum { NARROW = 16, WIDE = 32 };                         /* channels: of pixels that are joined; of joined ones */

struct amx_conv {
    struct be_kernel base;
    struct window w;                                     /* of the grid: last dimension joined, if `joined` */
    bool turned;                                         /* transposed: the window's input is the node's output */
    int64_t in, out, padded, before;                     /* channels; pixels of a padded row, and before its first */
    bool joined, swapped;                                /* swapped: x is the window's output, for [out][in] */
    struct amx_sums s;
    int32_t *points;                                     /* x_point, then g_point */
    struct amx_shift *shift;
};

/* ---- geometry -------------------------------------------------------------------------------- */

/* The input that position k of the kernel reads for output 0: pixel phase + place * stride. */
struct kernel_reach { int64_t phase, place; };
static struct kernel_reach kernel_reach_of(const struct window *w, int d, int64_t k)
{
    const int64_t at = k * w->d[d] - w->p[d], phase = (at % w->s[d] + w->s[d]) % w->s[d];
    return (struct kernel_reach){phase, (at - phase) / w->s[d]};
}

/* Slots of a row: its outputs, and room on both sides for what is read there. Both sides share the room, except where
 * there are pixels on the right. */
static int64_t pitch_of(const struct window *w, int d)
{
    int64_t left = 0, right = 0;
    bool pixels = false;
    for (int64_t k = 0; k < w->k[d]; k++) {
        const struct kernel_reach r = kernel_reach_of(w, d, k);
        if (-r.place > left) left = -r.place;
        if (r.place > right) right = r.place;
        pixels |= r.phase + w->out[d] * w->s[d] < w->in[d];
    }
    return w->out[d] + (pixels ? left + right : left > right ? left : right);
}

/* The point that lies in a slot of the grid with steps `s` from `phase` on, -1: none. */
static int32_t point_at(const int64_t slot[3], const int64_t phase[3], const int64_t s[3], const int64_t size[3])
{
    int64_t at = 0;
    for (int d = 0; d < 3; d++) {
        const int64_t x = slot[d] * s[d] + phase[d];
        if (x >= size[d]) return -1;
        at = at * size[d] + x;
    }
    return (int32_t)at;
}

static void points_fill(int32_t *to, const int64_t pitch[3], const int64_t phase[3], const int64_t s[3],
                        const int64_t size[3])
{
    int64_t at[3];
    for (at[0] = 0; at[0] < pitch[0]; at[0]++)
        for (at[1] = 0; at[1] < pitch[1]; at[1]++)
            for (at[2] = 0; at[2] < pitch[2]; at[2]++) *to++ = point_at(at, phase, s, size);
}

/* A row of the kernel becomes one position, over rows with their padding. */
static void window_join(struct amx_conv *k)
{
    struct window *w = &k->w;
    k->joined = k->in < NARROW && w->k[2] > 1 && w->d[2] == 1 && w->k[2] * k->in <= WIDE;
    if (!k->joined) return;
    k->padded = (w->out[2] - 1) * w->s[2] + w->k[2];
    k->before = w->p[2] < k->padded ? w->p[2] : k->padded;
    w->in[2] = k->padded;
    w->k[2] = 1;
    w->p[2] = 0;
}

static void shifts_fill(struct amx_conv *k, const int64_t pitch[3], int32_t *points)
{
    const struct window *w = &k->w;
    const int64_t slots = window_size(pitch), one[3] = {1, 1, 1}, none[3] = {0};
    int64_t seen = 0, *phase_of = mem_alloc((size_t)window_size(w->s) * sizeof *phase_of), at[3];
    for (int64_t i = 0; i < window_size(w->s); i++) phase_of[i] = -1;
    struct amx_shift *to = k->shift;
    for (at[0] = 0; at[0] < w->k[0]; at[0]++)
        for (at[1] = 0; at[1] < w->k[1]; at[1]++)
            for (at[2] = 0; at[2] < w->k[2]; at[2]++, to++) {
                int64_t phase[3], which = 0, by = 0;
                for (int d = 0; d < 3; d++) {
                    const struct kernel_reach r = kernel_reach_of(w, d, at[d]);
                    phase[d] = r.phase;
                    which = which * w->s[d] + r.phase;
                    by = by * pitch[d] + r.place;
                }
                if (phase_of[which] < 0) {
                    points_fill(points + seen * slots, pitch, phase, w->s, w->in);
                    phase_of[which] = seen++;
                }
                *to = (struct amx_shift){(int)phase_of[which], by};
            }
    points_fill(points + seen * slots, pitch, none, one, w->out);
    k->s.phases = (int)seen;
    k->s.x_point = points;
    k->s.g_point = points + seen * slots;
    free(phase_of);
}

/* samples: of a call */
static void geometry_make(struct amx_conv *k, const struct selection *s, const struct node *n, int samples)
{
    const struct shape *w = &s->g->param[n->param[0]].shape;
    struct err none = {0};
    int64_t pitch[3];
    window_of_product(n, &s->g->tensor[n->in[0]].shape, &k->w, &none);
    k->turned = n->op->category == OP_CONV_TRANSPOSED;
    k->in = w->d[1];
    k->out = w->d[0];
    const int64_t columns = k->w.k[2];
    window_join(k);
    for (int d = 0; d < 3; d++) pitch[d] = pitch_of(&k->w, d);
    k->s = (struct amx_sums){.samples = samples, .slots = window_size(pitch), .phases = 1,
                             .x = {k->in, k->in, window_size(k->w.in)}, .g = {k->out, k->out, window_size(k->w.out)},
                             .shifts = (int)window_size(k->w.k), .threads = s->dev.threads};
    if (k->joined) k->s.x.channels = k->in * columns;
    k->shift = mem_alloc((size_t)k->s.shifts * sizeof *k->shift);
    k->points = mem_alloc((size_t)((window_size(k->w.s) + 1) * k->s.slots) * sizeof *k->points);
    k->s.shift = k->shift;
    shifts_fill(k, pitch, k->points);
    if (k->s.slots == k->s.x.points && k->s.slots == k->s.g.points) k->s.x_point = k->s.g_point = NULL;
    k->swapped = !conv_half_last(s, n->param[0]);
    if (!k->swapped) return;                             /* one shift */
    k->shift->by = -k->shift->by;
    const struct amx_side x = k->s.x;
    const int32_t *point = k->s.x_point;
    k->s.x = k->s.g;
    k->s.g = x;
    k->s.x_point = k->s.g_point;
    k->s.g_point = point;
}

static void geometry_free(struct amx_conv *k)
{
    free(k->points);
    free(k->shift);
}

static size_t padded_bytes(const struct amx_conv *k)
{
    return k->joined ? size_align64((size_t)(k->s.samples * k->s.x.points * k->in) * sizeof(uint16_t)) : 0;
}

/* ---- running --------------------------------------------------------------------------------- */

/* Rows of pixels with zeros around them, and as many as kernels read. */
static void rows_pad(const struct amx_conv *k, const uint16_t *x, int64_t width, uint16_t *to)
{
    const int64_t rows = k->s.samples * k->w.in[0] * k->w.in[1], room = k->padded - k->before,
                  count = (width < room ? width : room) * k->in, before = k->before * k->in, line = k->padded * k->in;
    for (int64_t i = 0; i < rows; i++, x += width * k->in, to += line) {
        memset(to, 0, (size_t)before * sizeof *to);
        memcpy(to + before, x, (size_t)count * sizeof *to);
        memset(to + before + count, 0, (size_t)(line - before - count) * sizeof *to);
    }
}

static int amx_conv_run(struct be *b, struct be_kernel *base, const struct be_call *c, struct err *e)
{
    const struct amx_conv *k = (const struct amx_conv *)base;
    const struct shape *out = &b->g->tensor[base->node->out].shape;
    const uint16_t *x = k->turned ? c->gout : c->in[0], *g = k->turned ? c->in[0] : c->gout;
    if (c->pgrad[1]) cpu_sum_rows(b, c->gout, k->s.samples * shape_points(out), out->d[0], c->pgrad[1], c->pgrad_acc);
    if (!c->pgrad[0]) return 0;
    if (k->joined) {
        const struct shape *in = k->turned ? out : &b->g->tensor[base->node->in[0]].shape;
        rows_pad(k, x, in->d[in->n - 1], c->work);
        x = c->work;
    }
    amx_sums_run(&k->s, k->swapped ? g : x, k->swapped ? x : g, c->pgrad[0], c->pgrad_acc,
                 (char *)c->work + padded_bytes(k));
    return 0;
}

/* ---- making ---------------------------------------------------------------------------------- */

static void amx_conv_close(struct be_kernel *base) { geometry_free((struct amx_conv *)base); }

static struct be_kernel *amx_conv_make(struct be *b, const struct be_kernel *like, struct err *e)
{
    if (!amx_ready()) { err_set(e, E_CONF, "the system gives no AMX registers"); return NULL; }
    struct amx_conv *k = kernel_new(like, sizeof *k);
    geometry_make(k, b->s, like->node, like->key.samples);
    k->base.run = amx_conv_run;
    k->base.close = amx_conv_close;
    if (!kernel_workspace(b, like, padded_bytes(k) + amx_sums_work(&k->s), e)) return &k->base;
    kernel_free(&k->base);
    return NULL;
}

static struct be_kernel *amx_row(struct be *b, const struct be_kernel *like, struct err *e)
{
    return conv_half_on_last(b, like, amx_conv_make, e);
}

static const char *amx_refuses(const struct selection *s, const struct group *k, enum phase ph)
{
    return s->dev.bf16 && !strcmp(s->dev.bf16, "amx_bf16") ? conv_half_refuses(s, k, ph) : "";
}

static size_t amx_workspace(const struct selection *s, const struct group *k)
{
    struct amx_conv c = {0};
    geometry_make(&c, s, group_node(s, k), s->max_samples);
    const size_t bytes = CPU_WORK + padded_bytes(&c) + amx_sums_work(&c.s);
    geometry_free(&c);
    return bytes;
}

const struct kernel_row cpu_rows_conv_amx[] = {
    {.name = "amx", .pattern = PATTERN_OP("conv"), .phases = ROW_PHASE(PH_BWD_WEIGHTS), .types = TAKES(BF16),
     .layouts = ROW_ANY_LAYOUT, .cost = 0.3, .refuses = amx_refuses, .workspace = amx_workspace, .asks = true,
     .make = amx_row},
    {.name = "amx", .pattern = PATTERN_OP("conv_transpose"), .phases = ROW_PHASE(PH_BWD_WEIGHTS),
     .types = TAKES(BF16), .layouts = ROW_ANY_LAYOUT, .cost = 0.3, .refuses = amx_refuses,
     .workspace = amx_workspace, .asks = true, .make = amx_row},
    {0}};
