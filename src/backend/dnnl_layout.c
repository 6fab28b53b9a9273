/* Layouts of the onednn backend: descriptors for oneDNN and conversions from and to plain row-major. */
#include <string.h>
#include "backend/dnnl_int.h"

size_t align64(size_t bytes) { return (bytes + 63) & ~(size_t)63; }

int layout_lanes(enum layout l) { return l == LAYOUT_BLK16 ? 16 : l == LAYOUT_BLK8 ? 8 : 1; }
int tensor_lanes(const struct be *b, int tensor) { return layout_lanes(b->s->layout[tensor]); }

int64_t shape_points(const struct shape *s)
{
    int64_t points = 1;
    for (int i = 1; i < s->n; i++) points *= s->d[i];
    return points;
}

size_t tensor_bytes(const struct be *b, int tensor, int n)
{
    const struct tensor *t = &b->g->tensor[tensor];
    return (size_t)n * (size_t)shape_count(&t->shape) * dtype_bytes(t->type);
}

struct weight_form weight_form(const struct be *b, int param)
{
    const struct param *p = &b->g->param[param];
    struct weight_form f = {.out = p->shape.d[0], .in = p->shape.n > 1 ? p->shape.d[1] : 1, .points = 1, .lanes = layout_lanes(b->s->param_layout[param])};
    for (int i = 2; i < p->shape.n; i++) f.points *= p->shape.d[i];
    f.in_plain = f.lanes > 1 && f.in % f.lanes != 0;
    return f;
}

/* ---- descriptors ------------------------------------------------------------------------------------------------------------------ */

static void md_begin(dnnl_memory_desc_t *d, int ndims)
{
    memset(d, 0, sizeof *d);
    d->ndims = ndims;
    d->data_type = dnnl_f32;
    d->format_kind = dnnl_blocked;
}

static void md_dims(dnnl_memory_desc_t *d)
{
    for (int i = 0; i < d->ndims; i++) d->padded_dims[i] = d->dims[i];
}

static void md_inner(dnnl_memory_desc_t *d, int dim, int lanes)
{
    dnnl_blocking_desc_t *k = &d->format_desc.blocking;
    k->inner_blks[k->inner_nblks] = lanes;
    k->inner_idxs[k->inner_nblks++] = dim;
}

/* Strides of the outer dimensions, order[] from outermost to innermost, `inner` elements in the innermost block. */
static void md_strides(dnnl_memory_desc_t *d, const int *order, int64_t inner, int lanes)
{
    dnnl_blocking_desc_t *k = &d->format_desc.blocking;
    int64_t stride = inner;
    for (int i = d->ndims - 1; i >= 0; i--) {
        bool blocked = false;
        for (int j = 0; j < k->inner_nblks; j++) blocked |= k->inner_idxs[j] == order[i];
        k->strides[order[i]] = stride;
        stride *= blocked ? d->dims[order[i]] / lanes : d->dims[order[i]];
    }
}

static const int in_order[MAX_DIMS + 2] = {0, 1, 2, 3, 4, 5, 6, 7};

void md_tensor(const struct be *b, int tensor, int lanes, int n, dnnl_memory_desc_t *d)
{
    const struct shape *s = &b->g->tensor[tensor].shape;
    md_begin(d, s->n + 1);
    d->dims[0] = n;
    for (int i = 0; i < s->n; i++) d->dims[i + 1] = s->d[i];
    md_dims(d);
    if (lanes > 1) md_inner(d, 1, lanes);
    md_strides(d, in_order, lanes, lanes);
}

static void md_weight_plain(const struct shape *s, int64_t groups, dnnl_memory_desc_t *d)
{
    int first = groups > 1;
    md_begin(d, s->n + first);
    if (first) d->dims[0] = groups;
    for (int i = 0; i < s->n; i++) d->dims[i + first] = s->d[i];
    if (first) d->dims[1] /= groups;
    md_dims(d);
    md_strides(d, in_order, 1, 1);
}

void md_weight(const struct be *b, int param, int64_t groups, dnnl_memory_desc_t *d)
{
    const struct shape *s = &b->g->param[param].shape;
    struct weight_form f = weight_form(b, param);
    md_weight_plain(s, f.lanes > 1 ? 1 : groups, d);
    if (f.lanes == 1) return;
    if (!f.in_plain) md_inner(d, 1, f.lanes);
    md_inner(d, 0, f.lanes);
    int order[MAX_DIMS] = {0};                           /* in_plain: out, points, in */
    for (int i = 1; i < s->n; i++) order[i] = f.in_plain ? 1 + i % (s->n - 1) : i;
    md_strides(d, order, f.in_plain ? f.lanes : f.lanes * f.lanes, f.lanes);
}

void md_derived(const struct be *b, int param, bool transposed, dnnl_memory_desc_t *d)
{
    static const int in_first[MAX_DIMS] = {1, 0, 2, 3, 4, 5};
    const struct shape *s = &b->g->param[param].shape;
    struct weight_form f = weight_form(b, param);
    struct shape t = *s;
    if (transposed) { t.d[0] = s->d[1]; t.d[1] = s->d[0]; }
    md_weight_plain(&t, 1, d);
    md_inner(d, transposed ? 1 : 0, f.lanes);
    md_inner(d, transposed ? 0 : 1, f.lanes);
    md_strides(d, derived_in_first(&f, transposed) && !transposed ? in_first : in_order, f.lanes * f.lanes, f.lanes);
}

bool derived_in_first(const struct weight_form *f, bool pointwise) { return f->points == 1 && (pointwise || f->lanes == 16); }

/* ---- conversions ------------------------------------------------------------------------------------------------------------------ */

static void copy_or_add(float *dst, const float *src, size_t n, bool acc)
{
    if (!acc) memcpy(dst, src, n * sizeof *dst);
    else for (size_t i = 0; i < n; i++) dst[i] += src[i];
}

void to_blocked(float *dst, const float *src, int n, int64_t channels, int64_t points, int lanes, bool acc)
{
    if (lanes == 1 || points == 1) {
        copy_or_add(dst, src, (size_t)(n * channels * points), acc);
        return;
    }
    for (int64_t block = 0; block < n * (channels / lanes); block++, src += points * lanes)
        for (int64_t p = 0; p < points; p++)
            for (int l = 0; l < lanes; l++, dst++) *dst = (acc ? *dst : 0) + src[l * points + p];
}

void to_plain(float *dst, const float *src, int n, int64_t channels, int64_t points, int lanes, bool acc)
{
    if (lanes == 1 || points == 1) {
        copy_or_add(dst, src, (size_t)(n * channels * points), acc);
        return;
    }
    for (int64_t block = 0; block < n * (channels / lanes); block++, src += points * lanes)
        for (int l = 0; l < lanes; l++)
            for (int64_t p = 0; p < points; p++, dst++) *dst = (acc ? *dst : 0) + src[p * lanes + l];
}

/* Where plain element (o, i, p) lies in the blocked form. */
static size_t weight_at(const struct weight_form *f, int64_t o, int64_t i, int64_t p)
{
    int64_t l = f->lanes;
    if (f->in_plain) return (size_t)((((o / l) * f->points + p) * f->in + i) * l + o % l);
    return (size_t)(((((o / l) * (f->in / l) + i / l) * f->points + p) * l + i % l) * l + o % l);
}

void weight_to_blocked(float *dst, const float *src, const struct weight_form *f, bool acc)
{
    for (int64_t o = 0; o < f->out; o++)
        for (int64_t i = 0; i < f->in; i++)
            for (int64_t p = 0; p < f->points; p++) {
                float *to = &dst[weight_at(f, o, i, p)];
                *to = (acc ? *to : 0) + *src++;
            }
}

void weight_to_plain(float *dst, const float *src, const struct weight_form *f)
{
    for (int64_t o = 0; o < f->out; o++)
        for (int64_t i = 0; i < f->in; i++)
            for (int64_t p = 0; p < f->points; p++) *dst++ = src[weight_at(f, o, i, p)];
}

void weight_transpose(float *dst, const float *src, const struct weight_form *f, bool swap)
{
    int64_t l = f->lanes, n_out = f->out / l, n_in = f->in / l;
    for (int64_t o = 0; o < n_out; o++)
        for (int64_t i = 0; i < n_in; i++)
            for (int64_t p = 0; p < f->points; p++, src += l * l) {
                float *to = dst + ((swap ? i * n_out + o : o * n_in + i) * f->points + p) * l * l;
                for (int64_t a = 0; a < l; a++)
                    for (int64_t c = 0; c < l; c++) to[c * l + a] = src[a * l + c];
            }
}
