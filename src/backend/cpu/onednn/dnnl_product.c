/* Convolutions as matrix products, and transposed ones, whose passes are a convolution's passes in other roles.
 *
 * With C channels, K outputs, T taps and P output points a group's weights are a matrix [K][C T], and the windows of
 * some samples' points are a matrix [C T][columns]: y = w x, dx = sum over windows of (w' g), dw = g x'. A piece is
 * some rows of one sample's points; a part of a row, if one row is too long; or all points of several samples, if one
 * sample has too few. */
#include <stdlib.h>
#include <string.h>
#include "backend/cpu/cpu_int.h"
#include "backend/cpu/onednn/dnnl_product.h"
#include "model/ops/conv.h"

#pragma GCC optimize("O3")                               /* vector instructions for the loops over rows */

/* PIECE_BYTES: of the matrix of windows, and of the other matrix if it is gathered. FEW: too few points of a sample.
 * MANY: enough columns. */
enum { PIECE_BYTES = 2 << 20, FEW = 64, MANY = 256 };

/* The input of a kernel position along one row of output points: points [from, to) read in[at], in[at + step], ... of
 * the plane; all others read padding. */
struct product_row { int32_t at, from, to; };

struct product {
    enum phase phase;
    struct window w;
    int n, step;                                         /* samples: of all, of a piece */
    int64_t c, k, groups, cg, kg, in, out, taps, rows;   /* channels, of a group; points; rows of windows: cg * taps */
    int64_t piece;                                       /* points of a piece: whole rows, or less than one */
    struct product_row *row;                             /* [tap][row of output points] */
    int64_t n_rows, width, along;                        /* rows of output points, points of a row, step along a row */
    bool turned;                                         /* a transposed convolution: phase is the convolution's */
    bool bias;                                           /* the output gets a bias */
    bool thin;                                           /* one input and one output a group: no product at all */
    bool direct;                                         /* windows are the input: a single tap, no step, no padding */
};

bool product_gathers(int64_t points) { return points < FEW; }

static void pieces_choose(struct product *p)
{
    int64_t floats = PIECE_BYTES / (int64_t)sizeof(float), fit = floats / p->rows, many = floats / p->kg;
    p->piece = fit < p->width ? (fit > 1 ? fit : 1) : fit / p->width * p->width;
    if (p->piece > p->out) p->piece = p->out;
    if (many > fit) many = fit;
    if (many > MANY) many = MANY;
    p->step = !product_gathers(p->out) || p->piece < p->out ? 1 : (int)(many / p->out);
    if (p->step < 1) p->step = 1;
    if (p->step > p->n) p->step = p->n;
}

static struct product_row row_find(const struct product *p, int64_t first, int64_t tap)
{
    struct product_row r = {0};
    for (int64_t o = 0; o < p->width; o++) {
        int64_t at = window_at(&p->w, first + o, tap);
        if (at < 0) continue;
        if (r.to == r.from) r = (struct product_row){.at = (int32_t)at, .from = (int32_t)o};
        r.to = (int32_t)o + 1;
    }
    return r;
}

static void rows_find(struct product *p)
{
    p->width = p->w.out[2];
    p->along = p->w.s[2];
    p->n_rows = p->out / p->width;
    p->row = mem_alloc((size_t)(p->taps * p->n_rows) * sizeof *p->row);
    for (int64_t t = 0; t < p->taps; t++)
        for (int64_t r = 0; r < p->n_rows; r++) p->row[t * p->n_rows + r] = row_find(p, r * p->width, t);
}

struct product *product_new(const struct op_call *shape, enum phase ph)
{
    const struct node *n = shape->node;
    const struct shape *in = &shape->g->tensor[n->in[0]].shape, *out = &shape->g->tensor[n->out].shape;
    static const enum phase turn[PH_COUNT] = {
        [PH_FWD] = PH_BWD_DATA, [PH_BWD_DATA] = PH_FWD, [PH_BWD_WEIGHTS] = PH_BWD_WEIGHTS};
    bool turned = n->op->category == OP_CONV_TRANSPOSED;
    struct product *p = mem_alloc(sizeof *p);
    *p = (struct product){.phase = turned ? turn[ph] : ph,
                          .n = shape->n,
                          .c = (turned ? out : in)->d[0],
                          .k = (turned ? in : out)->d[0],
                          .groups = n->attr[op_attr(n->op, "groups")].i[0],
                          .turned = turned,
                          .bias = ph == PH_FWD && n->n_param > 1};
    window_of_product(n, in, &p->w, NULL);
    p->cg = p->c / p->groups;
    p->kg = p->k / p->groups;
    p->in = window_in_size(&p->w);
    p->out = window_out_size(&p->w);
    p->taps = window_k_size(&p->w);
    p->rows = p->cg * p->taps;
    rows_find(p);
    pieces_choose(p);
    p->thin = p->cg == 1 && p->kg == 1;
    p->direct = !p->thin && p->taps == 1 && p->step == 1;
    for (int i = 0; i < 3; i++) p->direct = p->direct && p->w.s[i] == 1 && p->w.p[i] == 0;
    return p;
}

void product_free(struct product *p)
{
    if (!p) return;
    free(p->row);
    free(p);
}

/* Two matrices: windows, and the other tensor's columns if they come from several samples. */
static size_t windows_bytes(const struct product *p)
{
    return size_align64((size_t)(p->rows * p->piece * p->step) * sizeof(float));
}
size_t product_work(const struct product *p)
{
    size_t gathered = p->step > 1 ? size_align64((size_t)(p->kg * p->piece * p->step) * sizeof(float)) : 0;
    return windows_bytes(p) + gathered;
}

/* ---- one piece of one group ------------------------------------------------------------------------------------ */

struct product_piece {
    const struct product *p;
    int64_t group, sample, samples, first, points, columns;
    float *windows, *gathered;
};

static int64_t x_offset(const struct product_piece *q, int64_t s, int64_t c)
{
    return ((q->sample + s) * q->p->c + q->group * q->p->cg + c) * q->p->in;
}
static int64_t y_offset(const struct product_piece *q, int64_t s, int64_t k)
{
    return ((q->sample + s) * q->p->k + q->group * q->p->kg + k) * q->p->out + q->first;
}

/* The part of a row from point `first` on, n points long; its points count from there. */
static struct product_row row_part(const struct product *p, const struct product_row *r, int64_t first, int64_t n)
{
    int64_t from = r->from > first ? r->from : first, to = r->to < first + n ? r->to : first + n;
    if (to <= from) return (struct product_row){0};
    int32_t at = r->at + (int32_t)((from - r->from) * p->along);
    return (struct product_row){.at = at, .from = (int32_t)(from - first), .to = (int32_t)(to - first)};
}

/* n window elements along a row: to[o] = x at point o, 0 in the padding. */
static void row_take(const struct product *p, const struct product_row *r, int64_t n, const float *restrict x,
                     float *restrict to)
{
    const float *restrict from = x + r->at;
    for (int64_t o = 0; o < r->from; o++) to[o] = 0;
    if (p->along == 1) memcpy(to + r->from, from, (size_t)(r->to - r->from) * sizeof *to);
    else for (int64_t o = 0; o < r->to - r->from; o++) to[r->from + o] = from[o * p->along];
    for (int64_t o = r->to; o < n; o++) to[o] = 0;
}

/* x at point o += w * g[o] */
static void row_add(const struct product *p, const struct product_row *r, float *restrict x, float w,
                    const float *restrict g)
{
    int64_t n = r->to - r->from;
    x += r->at;
    g += r->from;
    if (p->along == 1) for (int64_t o = 0; o < n; o++) x[o] += w * g[o];
    else for (int64_t o = 0; o < n; o++) x[o * p->along] += w * g[o];
}

static void windows_take(const struct product_piece *q, const float *x)
{
    const struct product *p = q->p;
    int64_t first = q->first / p->width, at = q->first % p->width, n = q->points < p->width ? q->points : p->width;
    float *to = q->windows;
    for (int64_t c = 0; c < p->cg; c++)
        for (int64_t t = 0; t < p->taps; t++)
            for (int64_t s = 0; s < q->samples; s++) {
                const struct product_row *row = p->row + t * p->n_rows + first;
                for (int64_t i = 0; i < q->points; i += n, row++, to += n) {
                    struct product_row r = row_part(p, row, at, n);
                    row_take(p, &r, n, x + x_offset(q, s, c), to);
                }
            }
}

static void windows_add(const struct product_piece *q, float *x)
{
    const struct product *p = q->p;
    int64_t first = q->first / p->width, at = q->first % p->width, n = q->points < p->width ? q->points : p->width;
    const float *from = q->windows;
    for (int64_t c = 0; c < p->cg; c++)
        for (int64_t t = 0; t < p->taps; t++)
            for (int64_t s = 0; s < q->samples; s++) {
                const struct product_row *row = p->row + t * p->n_rows + first;
                for (int64_t i = 0; i < q->points; i += n, row++, from += n) {
                    struct product_row r = row_part(p, row, at, n);
                    row_add(p, &r, x + x_offset(q, s, c), 1, from);
                }
            }
}

/* The output's columns of this piece as a matrix [kg][columns]: in place in the tensor, or gathered. */
static float *columns_of(const struct product_piece *q, const float *y, int64_t *ld)
{
    *ld = q->samples > 1 ? q->columns : q->p->out;
    return q->samples > 1 ? q->gathered : (float *)y + y_offset(q, 0, 0);
}

static void columns_copy(const struct product_piece *q, float *y, bool gather)
{
    for (int64_t k = 0; q->samples > 1 && k < q->p->kg; k++)
        for (int64_t s = 0; s < q->samples; s++) {
            float *at = y + y_offset(q, s, k), *g = q->gathered + k * q->columns + s * q->points;
            memcpy(gather ? g : at, gather ? at : g, (size_t)q->points * sizeof *g);
        }
}

static dnnl_status_t forward_piece(const struct product_piece *q, const struct op_call *c)
{
    const struct product *p = q->p;
    const float *w = (const float *)c->param[0] + q->group * p->kg * p->rows,
                *bias = p->bias ? c->param[1] : NULL;
    int64_t ld, ldx = q->columns;
    float *y = columns_of(q, c->out, &ld);
    const float *x = q->windows;
    if (p->direct) {
        x = (const float *)c->in[0] + x_offset(q, 0, 0) + q->first;
        ldx = p->in;
    } else windows_take(q, c->in[0]);
    for (int64_t k = 0; bias && k < p->kg; k++)
        for (int64_t i = 0; i < q->columns; i++) y[k * ld + i] = bias[q->group * p->kg + k];
    dnnl_status_t status =
        dnnl_sgemm('N', 'N', p->kg, q->columns, p->rows, 1.0f, w, p->rows, x, ldx, bias ? 1.0f : 0.0f, y, ld);
    columns_copy(q, c->out, false);
    return status;
}

static dnnl_status_t data_piece(const struct product_piece *q, const struct op_call *c)
{
    const struct product *p = q->p;
    const float *w = (const float *)c->param[0] + q->group * p->kg * p->rows;
    int64_t ld;
    columns_copy(q, (float *)c->gout, true);
    const float *g = columns_of(q, c->gout, &ld);
    if (p->direct)
        return dnnl_sgemm('T', 'N', p->rows, q->columns, p->kg, 1.0f, w, p->rows, g, ld, p->bias ? 1.0f : 0.0f,
                          (float *)c->gin[0] + x_offset(q, 0, 0) + q->first, p->in);
    dnnl_status_t status =
        dnnl_sgemm('T', 'N', p->rows, q->columns, p->kg, 1.0f, w, p->rows, g, ld, 0.0f, q->windows, q->columns);
    windows_add(q, c->gin[0]);
    return status;
}

static dnnl_status_t weights_piece(const struct product_piece *q, const struct op_call *c)
{
    const struct product *p = q->p;
    int64_t ld, ldx = q->columns;
    const float *x = q->windows;
    if (p->direct) {
        x = (const float *)c->in[0] + x_offset(q, 0, 0) + q->first;
        ldx = p->in;
    } else windows_take(q, c->in[0]);
    columns_copy(q, (float *)c->gout, true);
    const float *g = columns_of(q, c->gout, &ld);
    float beta = q->sample || q->first ? 1.0f : 0.0f;
    return dnnl_sgemm('N', 'T', p->kg, p->rows, q->columns, 1.0f, g, ld, x, ldx, beta,
                      (float *)c->pgrad[0] + q->group * p->kg * p->rows, p->rows);
}

/* ---- one input and one output a group: nothing to multiply ----------------------------------------------------- */

/* One plane each. Of y, dx and dw only the result of the pass is set. */
struct thin { const float *w, *x, *g; float *y, *dx, *dw; };

static float row_dot(const struct product *p, const struct product_row *r, const float *x, const float *g)
{
    float sum = 0;
    for (int64_t o = r->from; o < r->to; o++) sum += x[r->at + (o - r->from) * p->along] * g[o];
    return sum;
}

static void row_scale(const struct product *p, const struct product_row *r, float *restrict y, float w,
                      const float *restrict x)
{
    int64_t n = r->to - r->from;
    x += r->at;
    y += r->from;
    if (p->along == 1) for (int64_t o = 0; o < n; o++) y[o] += w * x[o];
    else for (int64_t o = 0; o < n; o++) y[o] += w * x[o * p->along];
}

static void thin_plane(const struct product *p, const struct thin *a)
{
    for (int64_t t = 0; t < p->taps; t++)
        for (int64_t r = 0; r < p->n_rows; r++) {
            const struct product_row *row = p->row + t * p->n_rows + r;
            if (a->y) row_scale(p, row, a->y + r * p->width, a->w[t], a->x);
            else if (a->dx) row_add(p, row, a->dx, a->w[t], a->g + r * p->width);
            else a->dw[t] += row_dot(p, row, a->x, a->g + r * p->width);
        }
}

static void thin_run(const struct product *p, const struct op_call *c)
{
    const float *bias = p->bias ? c->param[1] : NULL;
    bool forward = p->phase == PH_FWD, data = p->phase == PH_BWD_DATA, weights = p->phase == PH_BWD_WEIGHTS;
    for (int64_t i = 0; i < p->n * p->k; i++) {
        int64_t k = i % p->k;
        struct thin a = {0};
        if (!weights) a.w = (const float *)c->param[0] + k * p->taps;
        if (!data) a.x = (const float *)c->in[0] + i * p->in;
        if (!forward) a.g = (const float *)c->gout + i * p->out;
        if (forward) a.y = (float *)c->out + i * p->out;
        if (data) a.dx = (float *)c->gin[0] + i * p->in;
        if (weights) a.dw = (float *)c->pgrad[0] + k * p->taps;
        for (int64_t o = 0; a.y && o < p->out; o++) a.y[o] = bias ? bias[k] : 0;
        thin_plane(p, &a);
    }
}

/* ---- all pieces ------------------------------------------------------------------------------------------------ */

/* The initial value of the input's gradient: nothing, or the bias of a transposed convolution. */
static void data_begin(const struct product *p, const struct op_call *c)
{
    float *x = c->gin[0];
    if (!p->bias && !p->direct) memset(x, 0, (size_t)(p->n * p->c * p->in) * sizeof *x);
    for (int64_t i = 0; p->bias && i < p->n * p->c; i++)
        for (int64_t s = 0; s < p->in; s++) x[i * p->in + s] = ((const float *)c->param[1])[i % p->c];
}

/* A transposed convolution's call as the call of the convolution whose passes it computes. */
static struct op_call call_turned(const struct op_call *c)
{
    struct op_call t = *c;
    t.in[0] = c->gout;
    t.gout = c->in[0];
    t.out = c->gin[0];
    t.gin[0] = c->out;
    return t;
}

/* A piece shorter than a row ends with its row. */
static int64_t points_from(const struct product *p, int64_t first)
{
    int64_t all = p->piece < p->width ? p->width - first % p->width : p->out - first;
    return all < p->piece ? all : p->piece;
}

static dnnl_status_t pieces_run(const struct product *p, const struct op_call *c, void *work)
{
    dnnl_status_t (*const piece)(const struct product_piece *, const struct op_call *) =
        p->phase == PH_FWD ? forward_piece : p->phase == PH_BWD_DATA ? data_piece : weights_piece;
    dnnl_status_t status = dnnl_success;
    struct product_piece q = {.p = p, .windows = work, .gathered = (float *)((char *)work + windows_bytes(p))};
    for (q.sample = 0; q.sample < p->n; q.sample += p->step)
        for (q.group = 0; q.group < p->groups; q.group++)
            for (q.first = 0; q.first < p->out && status == dnnl_success; q.first += q.points) {
                q.samples = p->n - q.sample < p->step ? p->n - q.sample : p->step;
                q.points = points_from(p, q.first);
                q.columns = q.samples * q.points;
                status = piece(&q, c);
            }
    return status;
}

int product_run(const struct product *p, const struct op_call *c, void *work, struct err *e)
{
    bool weights = p->phase == PH_BWD_WEIGHTS;
    struct op_call turned;
    if (weights && c->node->n_param > 1 && c->pgrad[1])
        conv_bias(p->n, p->turned ? p->c : p->k, p->turned ? p->in : p->out, c->gout, c->pgrad[1]);
    if (p->turned) turned = call_turned(c), c = &turned;
    if (p->phase == PH_BWD_DATA) data_begin(p, c);
    if (weights && p->thin && c->pgrad[0]) memset(c->pgrad[0], 0, (size_t)(p->k * p->taps) * sizeof(float));
    if (weights && !c->pgrad[0]) return 0;
    if (p->thin) {
        thin_run(p, c);
        return 0;
    }
    dnnl_status_t status = pieces_run(p, c, work);
    return status == dnnl_success ? 0 : dnnl_fail(e, "sgemm", status);
}
