/* Operators of language models on tokens as rows, [sample x position][channel] (LAYOUT_LAST): norms, rotary positions,
 * embedding, split. The layout begins at an embedding whose readers take it; operators that keep it pass it on. */
#include <stdlib.h>
#include <string.h>
#include "backend/cpu/cpu_int.h"
#include "model/ops/embedding.h"
#include "model/ops/layer_norm.h"
#include "model/ops/rms_norm.h"
#include "model/ops/rotary.h"
#include "model/ops/slice.h"

bool cpu_rows(const struct selection *s, int tensor)
{
    return s->tensor[tensor].layout == LAYOUT_LAST;
}

/* All tensors of a group that have positions are rows. */
static const char *rows_refuse(const struct selection *s, const struct group *k, enum phase ph)
{
    const bool rows = cpu_rows(s, k->out) && (s->g->tensor[k->in[0]].type != F32 || cpu_rows(s, k->in[0]));
    return rows ? NULL : "";
}

enum layout cpu_rows_follow(const struct selection *s, const struct node *n)
{
    return cpu_rows(s, n->in[0]) ? LAYOUT_LAST : LAYOUT_NONE;
}

enum { PART = 64 };                                      /* channels that a thread takes of all rows */

/* ---- a piece of a row ------------------------------------------------------------------------ */

/* n floats at an element of a tensor: in place, or from bf16 in `copy`. */
static const float *row_read(const struct be *b, bool half, const void *p, int64_t at, int64_t n, float *copy)
{
    if (!half) return (const float *)p + at;
    b->vec->widen(copy, (const uint16_t *)p + at, (size_t)n);
    return copy;
}

/* Where a result of floats goes; row_write then brings it from `copy` to bf16. */
static float *row_place(bool half, void *p, int64_t at, float *copy) { return half ? copy : (float *)p + at; }
static void row_write(const struct be *b, bool half, void *p, int64_t at, int64_t n, const float *copy, bool acc)
{
    if (half) b->vec->narrow((uint16_t *)p + at, copy, (size_t)n, acc);
}

/* ---- norms ----------------------------------------------------------------------------------- */

/* rows: of a call; each has `heads` parts of `width` channels with a mean of their own. copy: of three parts for each
 * thread, `line` floats apart. */
struct row_norm_kernel {
    struct be_kernel base; struct rms_norm r; bool centred, biased, half; double *sums; float *copy; int64_t line;
};
struct row_norm_call { const struct be *b; const struct row_norm_kernel *k; const struct be_call *c; };

static float *copy_of(const struct row_norm_kernel *k, int thread, int which)
{
    return k->copy + (3 * thread + which) * k->line;
}

static void norm_close(struct be_kernel *base) { free(((struct row_norm_kernel *)base)->sums); }

static struct be_kernel *norm_make(struct be *b, const struct be_kernel *like, struct err *e)
{
    struct row_norm_kernel *k = kernel_new(like, sizeof *k);
    const struct extent d = extent_of(b->g, like->node->out, like->key.samples);
    k->centred = !strcmp(like->node->op->name, "layer_norm");
    k->biased = like->node->n_param > 1;
    k->r = k->centred ? (struct rms_norm){d.n, 1, d.c, d.points, layer_norm_eps(like->node)}
                      : rms_norm_of(b->g, like->node, like->key.samples);
    const size_t width = (size_t)k->r.width;
    k->half = cpu_is_half(b, like->node->out);
    k->line = (int64_t)(size_align64(width * sizeof(float)) / sizeof(float));
    k->sums = mem_alloc(2 * width * sizeof *k->sums + 3 * (size_t)b->s->dev.threads * (size_t)k->line * sizeof(float));
    k->copy = (float *)(k->sums + 2 * width);
    k->base.close = norm_close;
    return &k->base;
}

/* A head of a point, and where its saved values lie: [sample][head][point]. */
struct norm_at { int64_t x, kept; };
static struct norm_at norm_at(const struct rms_norm *r, int64_t row, int64_t head)
{
    const int64_t n = row / r->points, p = row % r->points;
    return (struct norm_at){(row * r->heads + head) * r->width, (n * r->heads + head) * r->points + p};
}

static void saved_store(const struct row_norm_kernel *k, float *saved, int64_t at, const struct vec_row *v)
{
    if (!k->centred) { saved[at] = v->inv; return; }
    saved[2 * at] = v->mean;
    saved[2 * at + 1] = v->inv;
}

static void saved_load(const struct row_norm_kernel *k, const float *saved, int64_t at, struct vec_row *v)
{
    v->mean = k->centred ? saved[2 * at] : 0;
    v->inv = k->centred ? saved[2 * at + 1] : saved[at];
}

static void norm_forward_part(const void *data, int thread, int64_t from, int64_t to)
{
    const struct row_norm_call *n = data;
    const struct row_norm_kernel *k = n->k;
    const struct be *b = n->b;
    const struct be_call *c = n->c;
    struct vec_row v = {.n = k->r.width, .w = c->param[0], .b = k->biased ? c->param[1] : NULL, .centred = k->centred};
    for (int64_t row = from; row < to; row++)
        for (int64_t h = 0; h < k->r.heads; h++) {
            const struct norm_at at = norm_at(&k->r, row, h);
            v.x = row_read(b, k->half, c->in[0], at.x, v.n, copy_of(k, thread, 0));
            v.y = row_place(k->half, c->out, at.x, copy_of(k, thread, 1));
            b->vec->row_norm(&v, k->r.eps);
            row_write(b, k->half, c->out, at.x, v.n, v.y, false);
            saved_store(k, c->saved, at.kept, &v);
        }
}

static void norm_data_part(const void *data, int thread, int64_t from, int64_t to)
{
    const struct row_norm_call *n = data;
    const struct row_norm_kernel *k = n->k;
    const struct be *b = n->b;
    const struct be_call *c = n->c;
    const bool acc = c->gin_acc & 1;
    struct vec_row v = {.n = k->r.width, .w = c->param[0], .centred = k->centred, .acc = acc && !k->half};
    for (int64_t row = from; row < to; row++)
        for (int64_t h = 0; h < k->r.heads; h++) {
            const struct norm_at at = norm_at(&k->r, row, h);
            v.x = row_read(b, k->half, c->in[0], at.x, v.n, copy_of(k, thread, 0));
            v.gy = row_read(b, k->half, c->gout, at.x, v.n, copy_of(k, thread, 1));
            v.gx = row_place(k->half, c->gin[0], at.x, copy_of(k, thread, 2));
            saved_load(k, c->saved, at.kept, &v);
            b->vec->row_norm_backward(&v);
            row_write(b, k->half, c->gin[0], at.x, v.n, v.gx, acc);
        }
}

static int norm_rows_run(struct be *b, struct be_kernel *base, const struct be_call *c, struct err *e)
{
    const struct row_norm_kernel *k = (const struct row_norm_kernel *)base;
    cpu_each(b->s->dev.threads, k->r.n * k->r.points, base->key.phase == PH_FWD ? norm_forward_part : norm_data_part,
             &(struct row_norm_call){b, k, c});
    return 0;
}

static void sum_store(float *to, const double *sum, int64_t from, int64_t end, bool acc)
{
    for (int64_t i = from; to && i < end; i++) to[i] = (acc ? to[i] : 0) + (float)sum[i];
}

/* Some PART channels, of all rows. */
static void norm_weights_part(const void *data, int thread, int64_t from, int64_t to)
{
    const struct row_norm_call *n = data;
    const struct row_norm_kernel *k = n->k;
    const struct be *b = n->b;
    const struct be_call *c = n->c;
    const int64_t first = from * PART, end = to * PART < k->r.width ? to * PART : k->r.width;
    double *gw = k->sums + first, *gb = k->centred ? gw + k->r.width : NULL;
    struct vec_row v = {.n = end - first, .centred = k->centred};
    memset(gw, 0, (size_t)v.n * sizeof *gw);
    if (gb) memset(gb, 0, (size_t)v.n * sizeof *gb);
    for (int64_t row = 0; row < k->r.n * k->r.points; row++)
        for (int64_t h = 0; h < k->r.heads; h++) {
            const struct norm_at at = norm_at(&k->r, row, h);
            v.x = row_read(b, k->half, c->in[0], at.x + first, v.n, copy_of(k, thread, 0));
            v.gy = row_read(b, k->half, c->gout, at.x + first, v.n, copy_of(k, thread, 1));
            saved_load(k, c->saved, at.kept, &v);
            b->vec->row_norm_weights(&v, gw, gb);
        }
    sum_store(c->pgrad[0], k->sums, first, end, c->pgrad_acc);
    if (k->biased) sum_store(c->pgrad[1], k->sums + k->r.width, first, end, c->pgrad_acc);
}

static int norm_weights_run(struct be *b, struct be_kernel *base, const struct be_call *c, struct err *e)
{
    const struct row_norm_kernel *k = (const struct row_norm_kernel *)base;
    cpu_each(b->s->dev.threads, (k->r.width + PART - 1) / PART, norm_weights_part, &(struct row_norm_call){b, k, c});
    return 0;
}

/* ---- rotary positions -------------------------------------------------------------------------- */

/* cosine, sine: [points][half], of the positions 0, 1 ... of a sample; further ones are computed when they occur, in
 * the first of three pairs of halves that each thread has at `own`. The others are copies. */
struct rotary_kernel { struct be_kernel base; struct rotary r; bool is_half; float *rate, *cosine, *sine, *own; };

static void rotary_close(struct be_kernel *base) { free(((struct rotary_kernel *)base)->rate); }

static void angles_fill(const struct rotary_kernel *k, int64_t position, float *c, float *s)
{
    for (int64_t i = 0; i < k->r.half; i++) {
        const float angle = rotary_angle(position, k->rate[i]);
        c[i] = (float)cos(angle);
        s[i] = (float)sin(angle);
    }
}

static struct be_kernel *rotary_make(struct be *b, const struct be_kernel *like, struct err *e)
{
    struct rotary_kernel *k = kernel_new(like, sizeof *k);
    k->r = rotary_of(b->g, like->node, like->key.samples);
    const size_t half = (size_t)k->r.half, table = half * (size_t)k->r.points;
    k->is_half = cpu_is_half(b, like->node->out);
    k->rate = mem_alloc((half + 2 * table + 6 * half * (size_t)b->s->dev.threads) * sizeof *k->rate);
    k->cosine = k->rate + half;
    k->sine = k->cosine + table;
    k->own = k->sine + table;
    for (size_t i = 0; i < half; i++) k->rate[i] = rotary_rate(like->node, (int64_t)i, k->r.half);
    for (int64_t p = 0; p < k->r.points; p++)
        angles_fill(k, p, k->cosine + p * k->r.half, k->sine + p * k->r.half);
    k->base.close = rotary_close;
    return &k->base;
}

/* The sines change their sign for the gradient, which is the same as to swap the two halves. */
struct turns {
    const struct be *b; const struct rotary_kernel *k; const void *from; void *to; const int32_t *positions;
    bool back, acc;
};

static void rotary_part(const void *data, int thread, int64_t from, int64_t to)
{
    const struct turns *t = data;
    const struct be *b = t->b;
    const struct rotary_kernel *k = t->k;
    const int64_t half = k->r.half;
    float *own = k->own + thread * 6 * half, *copy[2] = {own + 2 * half, own + 4 * half};
    int64_t at = from * k->r.heads * 2 * half;
    for (int64_t row = from; row < to; row++) {
        const int64_t p = t->positions ? t->positions[row] : row % k->r.points;
        const bool known = p >= 0 && p < k->r.points;
        const float *cosine = known ? k->cosine + p * half : own, *sine = known ? k->sine + p * half : own + half;
        if (!known) angles_fill(k, p, own, own + half);
        for (int64_t h = 0; h < k->r.heads; h++, at += 2 * half) {
            const float *x = row_read(b, k->is_half, t->from, at, 2 * half, copy[0]);
            float *y = row_place(k->is_half, t->to, at, copy[1]);
            const float *x1 = t->back ? x + half : x, *x2 = t->back ? x : x + half;
            float *y1 = t->back ? y + half : y, *y2 = t->back ? y : y + half;
            b->vec->row_turn(half, cosine, sine, x1, x2, y1, y2, t->acc && !k->is_half);
            row_write(b, k->is_half, t->to, at, 2 * half, y, t->acc);
        }
    }
}

static int rotary_run(struct be *b, struct be_kernel *base, const struct be_call *c, struct err *e)
{
    const struct rotary_kernel *k = (const struct rotary_kernel *)base;
    const bool back = base->key.phase != PH_FWD;
    const struct turns t = {b, k, back ? c->gout : c->in[0], back ? c->gin[0] : c->out,
                            base->node->n_in > 1 ? c->in[1] : NULL, back, back && c->gin_acc & 1};
    cpu_each(b->s->dev.threads, k->r.n * k->r.points, rotary_part, &t);
    return 0;
}

/* ---- embedding --------------------------------------------------------------------------------- */

/* An embedding gives rows if each of its readers has a kernel for rows; others take the plain layout. */
static enum layout embedding_layout(const struct selection *s, const struct node *n)
{
    static const char *const take[] = {"add", "rms_norm", "layer_norm", "dropout"};
    const struct tensor *t = &s->g->tensor[n->out];
    if (t->shape.n < 2) return LAYOUT_NONE;
    for (int i = 0; i < t->n_readers; i++) {
        const char *op = s->g->node[t->reader[i]].op->name;
        bool takes = false;
        for (size_t k = 0; k < sizeof take / sizeof *take; k++) takes |= !strcmp(op, take[k]);
        if (!takes) return LAYOUT_NONE;
    }
    return LAYOUT_LAST;
}

struct embedding_kernel { struct be_kernel base; float *copy; };

static void embedding_close(struct be_kernel *base) { free(((struct embedding_kernel *)base)->copy); }

static struct be_kernel *embedding_make(struct be *b, const struct be_kernel *like, struct err *e)
{
    struct embedding_kernel *k = kernel_new(like, sizeof *k);
    k->copy = mem_alloc((size_t)b->s->dev.threads * (size_t)b->g->param[like->node->param[0]].shape.d[1] *
                        sizeof *k->copy);
    k->base.close = embedding_close;
    return &k->base;
}

struct embedding_call {
    const struct be *b; const struct be_call *c; struct embedding m; bool half; float *copy; int param;
};

/* A row of the table as it is stored. */
static void table_row(const struct embedding_call *k, int64_t row, float *y)
{
    const struct format *f = &k->b->s->param[k->param];
    const struct shape one = {.n = 1, .d = {k->m.features}}, *all = &k->b->g->param[k->param].shape;
    const char *at = (const char *)k->c->param[0] + (size_t)(row * k->m.features) * dtype_bytes(f->type);
    if (f->type != I8) format_widen(f, &one, at, y);
    else k->b->vec->widen_codes(y, (const int8_t *)at, (size_t)k->m.features,
                                format_code_unit(format_factors(f, all, k->c->param[0])[row]));
}

static void embedding_forward_part(const void *data, int thread, int64_t from, int64_t to)
{
    const struct embedding_call *k = data;
    const struct embedding *m = &k->m;
    for (int64_t at = from; at < to; at++) {
        const int64_t row = embedding_row(m, at), first = at * m->features;
        float *y = row_place(k->half, k->c->out, first, k->copy + thread * m->features);
        if (row >= 0) table_row(k, row, y);
        for (int64_t i = 0; row < 0 && i < m->features; i++) y[i] = NAN;
        row_write(k->b, k->half, k->c->out, first, m->features, y, false);
    }
}

/* Some PART features, of all rows. */
static void embedding_backward_part(const void *data, int thread, int64_t from, int64_t to)
{
    const struct embedding_call *k = data;
    const struct embedding *m = &k->m;
    const int64_t first = from * PART, n = (to * PART < m->features ? to * PART : m->features) - first;
    float *table = (float *)k->c->pgrad[0] + first;
    for (int64_t row = 0; row < m->rows && !k->c->pgrad_acc; row++)
        memset(table + row * m->features, 0, (size_t)n * sizeof *table);
    for (int64_t at = 0; at < m->n * m->points; at++) {
        const int64_t row = embedding_row(m, at);
        if (row < 0) continue;
        k->b->vec->add(table + row * m->features, row_read(k->b, k->half, k->c->gout, at * m->features + first, n,
                                                           k->copy + thread * m->features), (size_t)n);
    }
}

static int embedding_run(struct be *b, struct be_kernel *base, const struct be_call *c, struct err *e)
{
    const struct embedding_call k = {b, c, embedding_of(b->g, base->node, base->key.samples, c->in[0]),
                                     cpu_is_half(b, base->node->out), ((struct embedding_kernel *)base)->copy,
                                     base->node->param[0]};
    if (base->key.phase == PH_FWD) cpu_each(b->s->dev.threads, k.m.n * k.m.points, embedding_forward_part, &k);
    else cpu_each(b->s->dev.threads, (k.m.features + PART - 1) / PART, embedding_backward_part, &k);
    return 0;
}

/* ---- split ------------------------------------------------------------------------------------- */

struct split_call { const struct be *b; const struct be_call *c; struct slice s; int k; bool back; };

/* The gradient of a part that the loss does not depend on is zero. */
static void split_part(const void *data, int thread, int64_t from, int64_t to)
{
    const struct split_call *t = data;
    const struct be_call *c = t->c;
    const struct slice *s = &t->s;
    const size_t n = (size_t)s->part;
    const int k = t->k;
    for (int64_t i = from; i < to; i++) {
        float *whole = (float *)(t->back ? c->gin[0] : (void *)c->in[0]) + i * s->width + s->first;
        if (!t->back) memcpy((float *)c->outs[k] + i * s->part, whole, n * sizeof *whole);
        else if (!c->gouts[k]) memset(whole, 0, c->gin_acc & 1 ? 0 : n * sizeof *whole);
        else if (c->gin_acc & 1) t->b->vec->add(whole, (const float *)c->gouts[k] + i * s->part, n);
        else memcpy(whole, (const float *)c->gouts[k] + i * s->part, n * sizeof *whole);
    }
}

static int split_run(struct be *b, struct be_kernel *base, const struct be_call *c, struct err *e)
{
    const bool back = base->key.phase != PH_FWD;
    for (int k = 0; k < base->node->n_out; k++) {
        const struct split_call t = {b, c, split_of(b->g, base->node, k, base->key.samples, true), k, back};
        cpu_each(b->s->dev.threads, t.s.outer, split_part, &t);
    }
    return 0;
}

static const char *split_refuse(const struct selection *s, const struct group *k, enum phase ph)
{
    for (int i = 0; i < k->n_out; i++) if (!cpu_rows(s, k->outs[i])) return "";
    return cpu_rows(s, k->in[0]) ? NULL : "";
}

#define ROWS_TYPES (TAKES(F32) | TAKES(BF16))
#define NORM_ROWS(op) \
    {.name = "rows", .pattern = PATTERN_OP(op), .types = ROWS_TYPES, .layouts = ROW_LAYOUT(LAYOUT_LAST), \
     .phases = ROW_PHASE(PH_FWD), .layout = cpu_rows_follow, .refuses = rows_refuse, .make = norm_make, \
     .run = norm_rows_run}, \
    {.name = "rows", .pattern = PATTERN_OP(op), .types = ROWS_TYPES, .layouts = ROW_LAYOUT(LAYOUT_LAST), \
     .phases = ROW_PHASE(PH_BWD_DATA), .refuses = rows_refuse, .make = norm_make, .run = norm_rows_run}, \
    {.name = "rows", .pattern = PATTERN_OP(op), .types = ROWS_TYPES, .layouts = ROW_LAYOUT(LAYOUT_LAST), \
     .phases = ROW_PHASE(PH_BWD_WEIGHTS), .refuses = rows_refuse, .make = norm_make, .run = norm_weights_run}
const struct kernel_row cpu_rows_tokens[] = {
    NORM_ROWS("layer_norm"), NORM_ROWS("rms_norm"),
    {.name = "rows", .pattern = PATTERN_OP("rotary"), .types = ROWS_TYPES,
     .layouts = ROW_LAYOUT(LAYOUT_LAST) | ROW_LAYOUT(LAYOUT_PLAIN), .layout = cpu_rows_follow, .refuses = rows_refuse,
     .make = rotary_make, .run = rotary_run},
    {.name = "rows", .pattern = PATTERN_OP("embedding"), .types = ROWS_TYPES,
     .layouts = ROW_LAYOUT(LAYOUT_LAST) | ROW_LAYOUT(LAYOUT_PLAIN), .layout = embedding_layout,
     .refuses = rows_refuse, .stored = true, .make = embedding_make, .run = embedding_run},
    {.name = "rows", .pattern = PATTERN_OP("split"), .layouts = ROW_LAYOUT(LAYOUT_LAST), .layout = cpu_rows_follow,
     .refuses = split_refuse, .run = split_run},
    {0}};
