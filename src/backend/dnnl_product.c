/* Convolutions as matrix products.
 *
 * With C channels, K outputs, T taps and P output points a group's weights are a matrix [K][C T] and the windows of some samples' points a matrix [C T][columns]:
 * y = w x, dx = sum over windows of (w' g), dw = g x'. A piece is some points of one sample, or all points of several samples, where one has too few of them. */
#include <stdlib.h>
#include <string.h>
#include "backend/dnnl_int.h"
#include "backend/dnnl_product.h"
#include "model/ops/window.h"

enum { PIECE_BYTES = 2 << 20, FEW = 64, MANY = 256 };    /* of the matrix of windows; points of a sample that are few, columns that are enough */

struct product {
    enum phase phase;
    struct window w;
    int n, step;                                         /* samples: all, of a piece */
    int64_t c, k, groups, cg, kg, in, out, taps, rows;   /* channels, of a group; points; rows of windows: cg * taps */
    int64_t piece;                                       /* points of a piece */
    int32_t *at;                                         /* [tap][out]: offset in the input plane, -1: padding */
    bool direct;                                         /* windows are the input: a single tap, no step, no padding */
};

static void pieces_choose(struct product *p)
{
    int64_t fit = PIECE_BYTES / (int64_t)sizeof(float) / p->rows;
    if (fit < 1) fit = 1;
    p->piece = p->out < fit ? p->out : fit;
    p->step = p->out >= FEW || p->piece < p->out ? 1 : (int)((fit < MANY ? fit : MANY) / p->out);
    if (p->step < 1) p->step = 1;
    if (p->step > p->n) p->step = p->n;
}

struct product *product_new(const struct op_call *shape, enum phase ph)
{
    const struct node *n = shape->node;
    const struct shape *in = &shape->g->tensor[n->in[0]].shape, *out = &shape->g->tensor[n->out].shape;
    struct product *p = mem_alloc(sizeof *p);
    *p = (struct product){.phase = ph, .n = shape->n, .c = in->d[0], .k = out->d[0], .groups = n->attr[op_attr(n->op, "groups")].i[0]};
    window_make(in, &n->attr[op_attr(n->op, "kernel")], &n->attr[op_attr(n->op, "stride")], &n->attr[op_attr(n->op, "padding")],
                &n->attr[op_attr(n->op, "dilation")], &p->w, NULL);
    p->cg = p->c / p->groups;
    p->kg = p->k / p->groups;
    p->in = window_in_size(&p->w);
    p->out = window_out_size(&p->w);
    p->taps = window_k_size(&p->w);
    p->rows = p->cg * p->taps;
    p->at = mem_alloc((size_t)(p->taps * p->out) * sizeof *p->at);
    bool same = p->taps == 1 && p->in == p->out;
    for (int64_t t = 0; t < p->taps; t++)
        for (int64_t o = 0; o < p->out; o++) {
            p->at[t * p->out + o] = (int32_t)window_at(&p->w, o, t);
            same = same && p->at[o] == o;
        }
    pieces_choose(p);
    p->direct = same && p->step == 1;
    return p;
}

void product_free(struct product *p)
{
    if (!p) return;
    free(p->at);
    free(p);
}

bool product_joins(const struct product *p) { return p->step == 1; }

/* Two matrices: windows, and the other tensor's columns where they come from several samples. */
static size_t windows_bytes(const struct product *p) { return align64((size_t)(p->rows * p->piece * p->step) * sizeof(float)); }
size_t product_work(const struct product *p)
{
    size_t gathered = p->step > 1 ? align64((size_t)(p->kg * p->piece * p->step) * sizeof(float)) : 0;
    return windows_bytes(p) + gathered;
}

/* ---- one piece of one group ---------------------------------------------------------------------------------------------------------- */

struct piece {
    const struct product *p;
    int64_t group, sample, samples, first, points, columns;
    float *windows, *gathered;
};

static int64_t x_offset(const struct piece *q, int64_t s, int64_t c) { return ((q->sample + s) * q->p->c + q->group * q->p->cg + c) * q->p->in; }
static int64_t y_offset(const struct piece *q, int64_t s, int64_t k) { return ((q->sample + s) * q->p->k + q->group * q->p->kg + k) * q->p->out + q->first; }

static void windows_take(const struct piece *q, const float *x)
{
    const struct product *p = q->p;
    float *to = q->windows;
    for (int64_t c = 0; c < p->cg; c++)
        for (int64_t t = 0; t < p->taps; t++)
            for (int64_t s = 0; s < q->samples; s++) {
                const float *from = x + x_offset(q, s, c);
                const int32_t *at = p->at + t * p->out + q->first;
                for (int64_t o = 0; o < q->points; o++) *to++ = at[o] < 0 ? 0 : from[at[o]];
            }
}

static void windows_add(const struct piece *q, float *x)
{
    const struct product *p = q->p;
    const float *from = q->windows;
    for (int64_t c = 0; c < p->cg; c++)
        for (int64_t t = 0; t < p->taps; t++)
            for (int64_t s = 0; s < q->samples; s++) {
                float *to = x + x_offset(q, s, c);
                const int32_t *at = p->at + t * p->out + q->first;
                for (int64_t o = 0; o < q->points; o++, from++) if (at[o] >= 0) to[at[o]] += *from;
            }
}

/* The output's columns of this piece as a matrix [kg][columns]: where they lie in the tensor, or gathered. */
static float *columns_of(const struct piece *q, const float *y, int64_t *ld)
{
    *ld = q->samples > 1 ? q->columns : q->p->out;
    return q->samples > 1 ? q->gathered : (float *)y + y_offset(q, 0, 0);
}

static void columns_copy(const struct piece *q, float *y, bool gather)
{
    for (int64_t k = 0; q->samples > 1 && k < q->p->kg; k++)
        for (int64_t s = 0; s < q->samples; s++) {
            float *at = y + y_offset(q, s, k), *g = q->gathered + k * q->columns + s * q->points;
            memcpy(gather ? g : at, gather ? at : g, (size_t)q->points * sizeof *g);
        }
}

static dnnl_status_t forward_piece(const struct piece *q, const struct op_call *c)
{
    const struct product *p = q->p;
    const float *w = (const float *)c->param[0] + q->group * p->kg * p->rows, *bias = p->phase == PH_FWD && c->node->n_param > 1 ? c->param[1] : NULL;
    int64_t ld, ldx = q->columns;
    float *y = columns_of(q, c->out, &ld);
    const float *x = q->windows;
    if (p->direct) {
        x = (const float *)c->in[0] + x_offset(q, 0, 0) + q->first;
        ldx = p->in;
    } else windows_take(q, c->in[0]);
    for (int64_t k = 0; bias && k < p->kg; k++)
        for (int64_t i = 0; i < q->columns; i++) y[k * ld + i] = bias[q->group * p->kg + k];
    dnnl_status_t status = dnnl_sgemm('N', 'N', p->kg, q->columns, p->rows, 1.0f, w, p->rows, x, ldx, bias ? 1.0f : 0.0f, y, ld);
    columns_copy(q, c->out, false);
    return status;
}

static dnnl_status_t data_piece(const struct piece *q, const struct op_call *c)
{
    const struct product *p = q->p;
    const float *w = (const float *)c->param[0] + q->group * p->kg * p->rows;
    int64_t ld;
    columns_copy(q, (float *)c->gout, true);
    const float *g = columns_of(q, c->gout, &ld);
    if (p->direct)
        return dnnl_sgemm('T', 'N', p->rows, q->columns, p->kg, 1.0f, w, p->rows, g, ld, 0.0f, (float *)c->gin[0] + x_offset(q, 0, 0) + q->first, p->in);
    dnnl_status_t status = dnnl_sgemm('T', 'N', p->rows, q->columns, p->kg, 1.0f, w, p->rows, g, ld, 0.0f, q->windows, q->columns);
    windows_add(q, c->gin[0]);
    return status;
}

static dnnl_status_t weights_piece(const struct piece *q, const struct op_call *c)
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
    return dnnl_sgemm('N', 'T', p->kg, p->rows, q->columns, 1.0f, g, ld, x, ldx, beta, (float *)c->pgrad[0] + q->group * p->kg * p->rows, p->rows);
}

/* ---- one channel a group: nothing to multiply -------------------------------------------------------------------------------------------- */

/* Taps one after another over all points, so that the innermost loop is long. kg outputs read the group's one channel. */
static void thin_run(const struct product *p, const struct op_call *c)
{
    const float *bias = p->phase == PH_FWD && c->node->n_param > 1 ? c->param[1] : NULL;
    for (int64_t n = 0; n < p->n; n++)
        for (int64_t k = 0; k < p->k; k++) {
            const float *w = c->param[0] ? (const float *)c->param[0] + k * p->taps : NULL;
            const float *x = c->in[0] ? (const float *)c->in[0] + (n * p->c + k / p->kg) * p->in : NULL;
            float *y = p->phase == PH_FWD ? (float *)c->out + (n * p->k + k) * p->out : NULL;
            const float *g = c->gout ? (const float *)c->gout + (n * p->k + k) * p->out : NULL;
            float *dx = p->phase == PH_BWD_DATA ? (float *)c->gin[0] + (n * p->c + k / p->kg) * p->in : NULL;
            for (int64_t o = 0; y && o < p->out; o++) y[o] = bias ? bias[k] : 0;
            for (int64_t t = 0; t < p->taps; t++) {
                const int32_t *at = p->at + t * p->out;
                float sum = 0;
                for (int64_t o = 0; o < p->out; o++) {
                    if (at[o] < 0) continue;
                    if (y) y[o] += w[t] * x[at[o]];
                    else if (dx) dx[at[o]] += w[t] * g[o];
                    else sum += x[at[o]] * g[o];
                }
                if (p->phase == PH_BWD_WEIGHTS) ((float *)c->pgrad[0])[k * p->taps + t] += sum;
            }
        }
}

/* ---- all pieces ---------------------------------------------------------------------------------------------------------------------- */

static void bias_sum(const struct product *p, const struct op_call *c)
{
    for (int64_t k = 0; k < p->k; k++) {
        double sum = 0;
        for (int64_t n = 0; n < p->n; n++) {
            const float *g = (const float *)c->gout + (n * p->k + k) * p->out;
            for (int64_t o = 0; o < p->out; o++) sum += g[o];
        }
        ((float *)c->pgrad[1])[k] = (float)sum;
    }
}

static dnnl_status_t pieces_run(const struct product *p, const struct op_call *c, void *work)
{
    dnnl_status_t (*const piece)(const struct piece *, const struct op_call *) =
        p->phase == PH_FWD ? forward_piece : p->phase == PH_BWD_DATA ? data_piece : weights_piece;
    dnnl_status_t status = dnnl_success;
    struct piece q = {.p = p, .windows = work, .gathered = (float *)((char *)work + windows_bytes(p))};
    for (q.sample = 0; q.sample < p->n; q.sample += p->step)
        for (q.group = 0; q.group < p->groups; q.group++)
            for (q.first = 0; q.first < p->out && status == dnnl_success; q.first += p->piece) {
                q.samples = p->n - q.sample < p->step ? p->n - q.sample : p->step;
                q.points = p->out - q.first < p->piece ? p->out - q.first : p->piece;
                q.columns = q.samples * q.points;
                status = piece(&q, c);
            }
    return status;
}

int product_run(const struct product *p, const struct op_call *c, void *work, struct err *e)
{
    bool thin = p->cg == 1 && p->kg == 1, weights = p->phase == PH_BWD_WEIGHTS;
    if (p->phase == PH_BWD_DATA && !p->direct) memset(c->gin[0], 0, (size_t)(p->n * p->c * p->in) * sizeof(float));
    if (weights && thin && c->pgrad[0]) memset(c->pgrad[0], 0, (size_t)(p->k * p->taps) * sizeof(float));
    if (weights && c->node->n_param > 1 && c->pgrad[1]) bias_sum(p, c);
    if (weights && !c->pgrad[0]) return 0;
    if (thin) {
        thin_run(p, c);
        return 0;
    }
    dnnl_status_t status = pieces_run(p, c, work);
    return status == dnnl_success ? 0 : dnnl_fail(e, "sgemm", status);
}
