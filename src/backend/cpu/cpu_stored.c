/* Panels of stored weights: of whole rows for outputs, of whole columns for input gradients, so that each sum is one
 * product's. */
#include "backend/cpu/cpu_stored.h"
#include "base/half.h"

enum { PANEL = 512 << 10, STEP = 64 };                    /* floats of a panel, about; its outputs are whole steps */

struct stored_weights stored_param(const struct be *b, int param, const void *at)
{
    return (struct stored_weights){&b->s->param[param], &b->g->param[param].shape, at};
}

/* Outputs of a panel whose sums have k terms. */
static int64_t panel_width(int64_t k, int64_t outputs)
{
    const int64_t n = PANEL / k / STEP * STEP, some = n < STEP ? STEP : n;
    return some < outputs ? some : outputs;
}

size_t stored_work(int64_t out, int64_t in)
{
    const int64_t there = panel_width(in, out) * in, back = panel_width(out, in) * out;
    return size_align64((size_t)(there > back ? there : back) * sizeof(float));
}

/* Columns [from, from + n) of a row. */
static void part_widen(const struct vec_ops *vec, const struct stored_weights *w, int64_t row, int64_t from, int64_t n,
                       float *to)
{
    const int64_t at = row * w->shape->d[1] + from;
    const uint16_t *half = (const uint16_t *)w->at + at;
    if (w->f->type == BF16) vec->widen(to, half, (size_t)n);
    else if (w->f->type == I8)
        vec->widen_codes(to, (const int8_t *)w->at + at, (size_t)n,
                         format_code_unit(format_factors(w->f, w->shape, w->at)[row]));
    else for (int64_t i = 0; i < n; i++) to[i] = f16_widen(half[i]);
}

/* Rows [row, ...) of the weights; of each, columns [from, from + n). */
struct stored_panel { const struct vec_ops *vec; const struct stored_weights *w; int64_t row, from, n; float *to; };

static void some_rows_widen(const void *data, int thread, int64_t from, int64_t to)
{
    const struct stored_panel *p = data;
    for (int64_t r = from; r < to; r++) part_widen(p->vec, p->w, p->row + r, p->from, p->n, p->to + r * p->n);
}

int stored_forward(struct be *b, const struct stored_weights *w, int64_t rows, const float *x, bool acc, float *y,
                   float *panel, struct err *e)
{
    const int64_t out = w->shape->d[0], in = w->shape->d[1], width = panel_width(in, out);
    for (int64_t o = 0; o < out; o += width) {
        const int64_t n = out - o < width ? out - o : width;
        cpu_each(b->s->dev.threads, n, some_rows_widen, &(struct stored_panel){b->vec, w, o, 0, in, panel});
        if (matmul_run((struct matmul){rows, n, in, {'N', x, in}, {'T', panel, in}, acc}, y + o, out, e)) return -1;
    }
    return 0;
}

int stored_back(struct be *b, const struct stored_weights *w, int64_t rows, const float *gy, bool acc, float *gx,
                float *panel, struct err *e)
{
    const int64_t out = w->shape->d[0], in = w->shape->d[1], width = panel_width(out, in);
    for (int64_t i = 0; i < in; i += width) {
        const int64_t n = in - i < width ? in - i : width;
        cpu_each(b->s->dev.threads, out, some_rows_widen, &(struct stored_panel){b->vec, w, 0, i, n, panel});
        if (matmul_run((struct matmul){rows, n, out, {'N', gy, out}, {'N', panel, n}, acc}, gx + i, in, e)) return -1;
    }
    return 0;
}
