/* Axes of values, and turning values into nodes. */
#include <stdio.h>
#include <stdlib.h>
#include "model/onnx/value.h"

/* ---- axes -------------------------------------------------------------------------------------------------------- */

struct axes axes_of(int n, const int64_t *d)
{
    struct axes a = {.n = n};
    int64_t stride = 1;
    for (int i = n; i-- > 0; stride *= d[i]) a.d[i] = d[i], a.stride[i] = stride, a.rep[i] = 1;
    return a;
}

int64_t axes_count(const struct axes *a)
{
    int64_t n = 1;
    for (int i = 0; i < a->n; i++) n *= a->d[i];
    return n;
}

bool axes_sample(const struct axes *from, struct axes *to, int axis)
{
    int64_t before = from->outer, of = 1;
    to->sample = 0;
    if (!from->sample) return true;
    if (axis < 0) return false;
    for (int i = 0; i < from->sample - 1; i++) before *= from->d[i];
    for (int i = 0; i < axis; i++) of *= to->d[i];
    to->sample = axis + 1;
    to->outer = before / of;
    return before % of == 0 && to->d[axis] % to->outer == 0;
}

bool axes_aligned(const struct axes *a, const struct axes *b)
{
    return !a->sample || !b->sample || (a->n - a->sample == b->n - b->sample && a->outer == b->outer);
}

static struct axes without_ones(const struct axes *a)
{
    struct axes b = {.offset = a->offset};
    for (int i = 0; i < a->n; i++) {
        if (a->d[i] == 1) continue;
        b.d[b.n] = a->d[i], b.stride[b.n] = a->stride[i], b.rep[b.n++] = a->rep[i];
    }
    return b;
}

/* Dimensions [i0, i) of a become [j0, j) of out, which has their product. */
static bool group_reshape(const struct axes *a, int i0, int i, struct axes *out, int j0, int j)
{
    if (i - i0 == 1 && j - j0 == 1) {
        out->stride[j0] = a->stride[i0], out->rep[j0] = a->rep[i0];
        return true;
    }
    if (i - i0 == 2 && j - j0 == 1 && !a->stride[i0 + 1] && a->rep[i0] == 1) {     /* each several times */
        out->stride[j0] = a->stride[i0], out->rep[j0] = a->d[i0 + 1];
        return true;
    }
    int64_t stride = a->stride[i - 1];
    for (int k = i0; k < i; k++) {
        if (a->rep[k] != 1) return false;
        if (k + 1 < i && a->stride[k] != a->stride[k + 1] * a->d[k + 1]) return false;
    }
    for (int k = j; k-- > j0; stride *= out->d[k]) out->stride[k] = stride, out->rep[k] = 1;
    return true;
}

bool axes_reshape(const struct axes *from, int n, const int64_t *d, struct axes *out)
{
    const struct axes a = without_ones(from);
    *out = axes_of(n, d);
    out->offset = a.offset;
    if (axes_count(out) != axes_count(&a) || !axes_count(out)) return false;
    int i = 0, j = 0;
    while (i < a.n || j < n) {
        const int i0 = i, j0 = j;
        int64_t p = i < a.n ? a.d[i++] : 1, q = 1;
        while (p != q || j == j0) {
            if (p < q && i < a.n) p *= a.d[i++];
            else if (j < n) q *= d[j++];
            else break;
        }
        if (p != q) return false;
        if (i > i0) {
            int first = j0, last = j;                    /* dimensions of 1 at the edges have any stride */
            while (first < last && d[first] == 1) first++;
            while (last > first && d[last - 1] == 1) last--;
            if (!group_reshape(&a, i0, i, out, first, last)) return false;
        }
    }
    return true;
}

bool axes_same(const struct axes *x, const struct axes *y)
{
    const struct axes a = without_ones(x), b = without_ones(y);
    if (a.n != b.n || a.offset != b.offset) return false;
    for (int i = 0; i < a.n; i++)
        if (a.d[i] != b.d[i] || a.stride[i] != b.stride[i] || a.rep[i] != b.rep[i]) return false;
    return true;
}

bool axes_equal(const struct axes *a, const struct axes *b)
{
    bool same = a->n == b->n && axes_same(a, b) && axes_aligned(a, b);
    for (int i = 0; same && i < a->n; i++) same = a->d[i] == b->d[i];
    return same;
}

bool axes_along(const struct axes *a, int n, int axis)
{
    for (int i = 0; i < a->n; i++) if (a->d[i] != 1 && n - a->n + i != axis) return false;
    return true;
}

bool axes_fit(const struct axes *a, const struct axes *b)
{
    const int more = a->n - b->n;
    for (int i = 0; i < b->n; i++) {
        const int64_t of = more + i < 0 ? 1 : a->d[more + i];
        if (b->d[i] != 1 && b->d[i] != of) return false;
    }
    return true;
}

bool twins_fit(const struct axes *a, int n, const int64_t *d, const int64_t *two)
{
    for (int i = 0; i < n; i++) {                        /* counted from the last one, as dimensions are broadcast */
        const bool samples = a->sample && n - 1 - i == a->n - a->sample, twice = two[i] % 2 == 0 && two[i] / 2 == d[i];
        if (two[i] != d[i] && !(samples && twice)) return false;
    }
    return true;
}

int axis_of(struct import *m, const struct axes *a, int64_t axis)
{
    if (axis < 0) axis += a->n;
    return axis >= 0 && axis < a->n ? (int)axis : import_fail(m, "there is no axis %lld", (long long)axis);
}

struct axes axes_with(const struct axes *at, int axis, int64_t d)
{
    struct axes a = *at;
    a.d[axis] = d;
    return a;
}

/* Whether the elements are those from the offset on, each once, in any order. */
static bool packed(const struct axes *at)
{
    const struct axes a = without_ones(at);
    bool used[RANK] = {false};
    int64_t next = 1;
    for (int found = 0; found < a.n; found++) {
        int k = -1;
        for (int i = 0; i < a.n; i++) if (!used[i] && a.stride[i] == next && a.rep[i] == 1) k = i;
        if (k < 0) return false;
        used[k] = true;
        next *= a.d[k];
    }
    return true;
}

/* ---- values ------------------------------------------------------------------------------------------------------ */

static struct value *value_new(struct import *m, enum value_kind kind, const struct axes *at)
{
    struct value *v = arena_alloc(m->file->mem, sizeof *v);
    *v = (struct value){.kind = kind, .at = *at, .tensor = -1, .scale = 1};
    return v;
}

struct value *value_fixed(struct import *m, int n, const int64_t *d, bool whole)
{
    const struct axes at = axes_of(n, d);
    struct value *v = value_new(m, V_FIXED, &at);
    v->whole = whole;
    v->count = axes_count(&at);
    m->folded += v->count;
    v->c = v->row = arena_alloc(m->file->mem, (size_t)v->count * sizeof *v->c + 1);
    return v;
}

struct value *value_view(struct import *m, int tensor, const struct axes *at)
{
    struct value *v = value_new(m, V_VIEW, at);
    v->tensor = tensor;
    return v;
}

struct value *value_again(struct import *m, const struct value *v, const struct axes *at)
{
    struct value *w = value_new(m, v->kind, at);
    *w = *v;
    w->at = *at;
    w->row = NULL;
    w->uses = 0;
    return w;
}

bool is_fixed(const struct value *v) { return v && v->kind == V_FIXED; }

static void row_fill(const struct value *v, double *out)
{
    const struct axes *a = &v->at;
    int64_t i[RANK] = {0};
    for (int64_t k = 0, n = axes_count(a); k < n; k++) {
        int64_t at = a->offset;
        for (int d = 0; d < a->n; d++) at += a->stride[d] * (i[d] / a->rep[d]);
        out[k] = v->c[at];
        for (int d = a->n; d-- > 0 && ++i[d] == a->d[d];) i[d] = 0;
    }
}

const double *fixed_numbers(struct import *m, struct value *v)
{
    if (v->row) return v->row;
    const int64_t n = axes_count(&v->at);
    if (n > FOLD_MOST || v->count > FOLD_MOST) {
        import_fail(m, "it computes with %lld known numbers, and %d is the limit", (long long)v->count, FOLD_MOST);
        return NULL;
    }
    if (!v->c) {
        v->c = arena_alloc(m->file->mem, (size_t)v->count * sizeof *v->c + 1);
        if (onnx_values(m->file, v->from, v->c, m->e)) return NULL;
    }
    m->folded += n;
    v->row = arena_alloc(m->file->mem, (size_t)n * sizeof *v->row + 1);
    row_fill(v, v->row);
    return v->row;
}

bool fixed_single(struct import *m, struct value *v, double *x)
{
    if (!is_fixed(v) || axes_count(&v->at) != 1) return false;
    const double *c = fixed_numbers(m, v);
    if (c) *x = *c;
    return c != NULL;
}

/* ---- nodes ------------------------------------------------------------------------------------------------------- */

static const char *unique(struct import *m, const char *name)
{
    const char *out = name;
    if (builder_tensor(m->b, name) < 0) return name;
    int k = name_table_find(&m->bases, name);            /* the number that this name had last */
    if (k < 0) {
        k = m->last.n;
        name_table_add(&m->bases, arena_strdup(m->file->mem, name), k);
        *vec_push(&m->last) = 1;
    }
    do out = arena_printf(m->file->mem, "%s_%d", name, ++m->last.v[k]);
    while (builder_tensor(m->b, out) >= 0);
    return out;
}

const char *node_name(struct import *m, const struct value *weight)
{
    char *name;
    const char *of = weight && weight->from ? weight->name : NULL;
    if (of && text_ends(of, ".weight")) {
        name = arena_strdup(m->file->mem, onnx_name(m->file, of));
        name[strlen(name) - strlen(".weight")] = 0;
        return unique(m, name);
    }
    const char *said = m->node->name ? m->node->name : "";
    while (*said == '/') said++;
    name = arena_strdup(m->file->mem, *said ? said : m->node->op_type);
    for (char *c = name; *c; c++) if (*c == '/') *c = '.';
    return unique(m, onnx_name(m->file, name));
}

static int emitted(struct import *m, int tensor)
{
    return tensor >= 0 && !m->b->e.code ? tensor : import_fail(m, "%s", m->b->e.text);
}

int emit(struct import *m, const char *op, const char *name, const char *attrs, int in)
{
    return emitted(m, graph_add1(m->b, op, name ? name : node_name(m, NULL), NULL, attrs, in));
}

int emit2(struct import *m, const char *op, const char *name, int x, int y)
{
    return emitted(m, graph_add2(m->b, op, name ? name : node_name(m, NULL), x, y));
}

static struct param *param_of(struct import *m, const char *node, int slot)
{
    const int t = builder_tensor(m->b, node);
    return &m->b->param.v[m->b->node.v[m->b->tensor.v[t].producer].param[slot]];
}

/* NAME.2, NAME.3 and so on, but for names that the file has. */
static const char *name_again(struct import *m, const char *name, int *last)
{
    const char *again;
    do again = arena_printf(m->file->mem, "%s.%d", name, ++*last);
    while (value_named(m, again));
    return onnx_name(m->file, again);
}

int take_weight(struct import *m, struct value *w, const char *node, int slot)
{
    const struct axes a = without_ones(&w->at), row = axes_of(a.n, a.d);
    if (!w->from) return import_fail(m, "a weight that is computed from others");
    if (a.offset || !axes_same(&a, &row) || axes_count(&a) != w->count)
        return import_fail(m, "it takes part of the weight %s, or its elements in another order", w->name);
    struct param *p = param_of(m, node, slot);
    char has[96], wants[96];
    struct shape s = {.n = a.n < MAX_DIMS ? a.n : 0};
    for (int i = 0; i < s.n; i++) s.d[i] = a.d[i];
    if (shape_count(&p->shape) != w->count)
        return import_fail(m, "the weight %s is %s, and %s is needed", w->name, shape_text(&s, has),
                           shape_text(&p->shape, wants));
    const char *name = onnx_name(m->file, w->name);
    int first = -1, tie = -1;
    for (int i = 0; i < m->used.n && tie < 0; i++) {
        const struct used_weight *u = &m->used.v[i];
        if (u->from != w->from) continue;
        if (first < 0) first = i;
        /* of a layer whose weight is tied: it is the same layer */
        if (slot && slot == u->slot && param_of(m, node, 0) == param_of(m, u->node, 0)) tie = i;
    }
    if (first >= 0 && tie < 0) {
        struct used_weight *u = &m->used.v[first];
        if (!u->plain) u->plain = !w->constant && onnx_is_plain(m->file, w->from) ? 1 : -1;
        if (u->plain < 0) tie = first;
        else name = name_again(m, w->name, &u->last);
    }
    if (tie >= 0) {
        graph_tie(m->b, node, slot, m->used.v[tie].node, m->used.v[tie].slot);
        return m->b->e.code ? import_fail(m, "%s", m->b->e.text) : 0;
    }
    *vec_push(&m->used) = (struct used_weight){w->from, node, slot, 0, 1};
    if (strcmp(p->name, name)) graph_name(m->b, node, slot, name);
    if (w->constant) param_freeze(param_of(m, node, slot), 0);
    return m->b->e.code ? import_fail(m, "%s", m->b->e.text) : 0;
}

/* ---- views ------------------------------------------------------------------------------------------------------- */

int need_view(struct import *m, struct value *v)
{
    switch (v->kind) {
    case V_VIEW: return 0;
    case V_FUNCTION: return function_view(m, v);
    case V_PRODUCT: return product_view(m, v);
    case V_FIXED: return import_fail(m, "known numbers where it needs an activation");
    case V_NORM: return norm_view(m, v);
    case V_PADDED: return import_fail(m, "padding, which only Conv can follow");
    default: return import_fail(m, "part of an attention or a rotation that has no counterpart");
    }
}

static const struct shape *shape_of(struct import *m, int tensor) { return &m->b->tensor.v[tensor].shape; }

/* The view as one of a part of the tensor along one dimension, if it then has all of that part. Returns the number of
 * elements of the part along it, 0: no. */
static int64_t part_along(const struct shape *s, int dim, const struct axes *from, struct axes *to, int64_t *first)
{
    int64_t inner = 1;
    for (int i = dim + 1; i < s->n; i++) inner *= s->d[i];
    const int64_t outer = inner * s->d[dim], all = shape_count(s), n = axes_count(from);
    if (n >= all || n * s->d[dim] % all) return 0;
    const int64_t count = n * s->d[dim] / all;
    *first = from->offset / inner;
    if (from->offset % inner || *first + count > s->d[dim] || !count) return 0;
    *to = *from;
    to->offset = 0;
    int64_t within = 1, along = 1;                       /* elements behind the dimension, and of it */
    for (int i = 0; i < to->n; i++) {
        if (to->d[i] == 1) continue;
        if (to->stride[i] < outer) *(to->stride[i] < inner ? &within : &along) *= to->d[i];
        else if (to->stride[i] % outer) return 0;
        else to->stride[i] = to->stride[i] / outer * inner * count;
    }
    return within == inner && along == count && packed(to) ? count : 0;
}

/* The same along several dimensions, if each axis lies within one of them. */
static bool part_of(const struct shape *s, const struct axes *from, struct axes *to, int64_t *first, int64_t *count)
{
    int64_t inner[MAX_DIMS], width = 1, of[MAX_DIMS];
    int within[RANK] = {0};
    for (int dim = s->n; dim-- > 0; width *= s->d[dim]) {
        inner[dim] = width;
        first[dim] = from->offset / width % s->d[dim];
        count[dim] = 1;
    }
    *to = *from;
    to->offset = 0;
    for (int i = 0; i < to->n; i++) {
        int dim = s->n - 1;
        if (to->d[i] == 1) continue;
        while (dim > 0 && to->stride[i] >= inner[dim] * s->d[dim]) dim--;
        if (to->stride[i] % inner[dim]) return false;
        within[i] = dim;
        count[dim] *= to->d[i];
    }
    width = 1;
    for (int dim = s->n; dim-- > 0; width *= count[dim]) {
        if (first[dim] + count[dim] > s->d[dim]) return false;
        of[dim] = width;
    }
    for (int i = 0; i < to->n; i++) if (to->d[i] > 1) to->stride[i] = to->stride[i] / inner[within[i]] * of[within[i]];
    return packed(to);
}

static int slice(struct import *m, struct value *v)
{
    const struct shape s = *shape_of(m, v->tensor);
    struct axes to;
    int64_t first[MAX_DIMS] = {0}, count[MAX_DIMS];
    bool found = false;
    for (int dim = 0; dim < s.n && !found; dim++) {
        memcpy(count, s.d, sizeof count);
        first[dim] = 0;
        const int64_t some = part_along(&s, dim, &v->at, &to, &first[dim]);
        if ((found = some > 0)) count[dim] = some;
        else first[dim] = 0;
    }
    if (!found && !part_of(&s, &v->at, &to, first, count))
        return import_fail(m, "it takes elements in an order or a selection that has no counterpart");
    for (int dim = 0; dim < s.n; dim++) {
        char attrs[96];
        if (count[dim] == s.d[dim]) continue;
        snprintf(attrs, sizeof attrs, "dim=%d first=%lld count=%lld", dim, (long long)first[dim],
                 (long long)count[dim]);
        if ((v->tensor = emit(m, "slice", NULL, attrs, v->tensor)) < 0) return -1;
    }
    v->at = to;
    return 0;
}

int whole_of(struct import *m, struct value *v)
{
    char attrs[64];
    if (need_view(m, v)) return -1;
    const bool all = packed(&v->at) && !v->at.offset && axes_count(&v->at) == shape_count(shape_of(m, v->tensor));
    if (!all && slice(m, v)) return -1;
    if (v->scale == 1) return v->tensor;
    snprintf(attrs, sizeof attrs, "factor=%.9g", v->scale);
    v->tensor = emit(m, "times", NULL, attrs, v->tensor);
    v->scale = 1;
    return v->tensor;
}

int channels_of(struct import *m, struct value *v, int axis)
{
    const int t = whole_of(m, v);
    if (t < 0) return -1;
    if (v->at.sample == axis + 1) return import_fail(m, "it computes across samples");
    const struct shape *s = shape_of(m, t);
    const int64_t all = shape_count(s), c = v->at.d[axis];
    if (c == 1) v->at.stride[axis] = all;                /* callers may make this axis longer */
    if (c == s->d[0] && v->at.stride[axis] == all / c) return t;
    if (c == all && v->at.stride[axis] == 1) return v->tensor = emit(m, "flatten", NULL, "", t);
    return import_fail(m, "its channels are not the first dimension of a sample");
}

/* ---- attributes -------------------------------------------------------------------------------------------------- */

const Onnx__Attribute *attribute(const struct import *m, const char *name)
{
    for (size_t i = 0; i < m->node->n_attribute; i++)
        if (m->node->attribute[i]->name && !strcmp(m->node->attribute[i]->name, name)) return m->node->attribute[i];
    return NULL;
}

int64_t attr_int(const struct import *m, const char *name, int64_t otherwise)
{
    const Onnx__Attribute *a = attribute(m, name);
    return a && a->has_i ? a->i : otherwise;
}

/* The number with the fewest digits that is this float: 1e-5 was meant, and not 9.99999975e-06. */
double attr_real(const struct import *m, const char *name, double otherwise)
{
    const Onnx__Attribute *a = attribute(m, name);
    double x = otherwise;
    if (!a || !a->has_f) return x;
    for (int digits = 6; digits < 10; digits++) {
        char text[32];
        snprintf(text, sizeof text, "%.*g", digits, (double)a->f);
        if ((float)(x = strtod(text, NULL)) == a->f) break;
    }
    return x;
}

const char *attr_word(struct import *m, const char *name, const char *otherwise)
{
    const Onnx__Attribute *a = attribute(m, name);
    return a && a->has_s ? arena_strndup(m->file->mem, (const char *)a->s.data, a->s.len) : otherwise;
}

/* The standard writes "to the end" as the largest integer. */
int64_t integer_of(double x)
{
    const double most = 9e18;
    return x > most ? (int64_t)most : x < -most ? -(int64_t)most : x == x ? (int64_t)x : 0;
}

int ints_of(struct import *m, const char *name, struct value *v, int64_t out[RANK])
{
    const Onnx__Attribute *a = name ? attribute(m, name) : NULL;
    if (a) {
        if (a->n_ints > RANK) return -1;
        for (size_t i = 0; i < a->n_ints; i++) out[i] = a->ints[i];
        return (int)a->n_ints;
    }
    const int64_t n = is_fixed(v) ? axes_count(&v->at) : RANK + 1;
    const double *c = n <= RANK ? fixed_numbers(m, v) : NULL;
    if (!c) return -1;
    for (int64_t i = 0; i < n; i++) out[i] = integer_of(c[i]);
    return (int)n;
}

int twins_of(struct import *m, const char *name, struct value *v, int64_t out[RANK])
{
    return ints_of(m, name, v && v->twin ? v->twin : v, out);
}
