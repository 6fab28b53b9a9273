/* Products: linear layers, and attention with what surrounds it. Queries times keys become scores, their softmax
 * chances, and these times values an attention; masks must be none or causal. */
#include <math.h>
#include <stdio.h>
#include "model/onnx/value.h"

static const double far = -1e4;                          /* scores so low have no chance */

/* ---- linear layers ----------------------------------------------------------------------------------------------- */

static int linear(struct import *m, struct value *v, struct value *bias)
{
    char attrs[120];
    struct value *x = v->a, w = *v->b;
    const int last = x->at.n - 1;
    const int64_t in = w.at.d[0], features = w.at.d[1];
    int t = channels_of(m, x, last);
    if (t < 0) return -1;
    const struct shape *s = &m->b->tensor.v[t].shape;
    const bool points = shape_count(s) > s->d[0], flat = s->n == 1;
    const struct axes row = axes_of(2, w.at.d), turned = axes_of(2, (int64_t[]){features, in});
    /* a row or a column lies in both orders: the file's dimensions decide */
    const bool line = in == 1 || features == 1, said = w.from && w.from->n_dims == 2 && w.from->dims[0] == in,
               as_file = axes_same(&w.at, &row) && (line ? said : true);
    w.at = as_file ? row : turned;
    w.at.offset = v->b->at.offset;
    if (!as_file && in > 1 && features > 1 && (v->b->at.stride[0] != 1 || v->b->at.stride[1] != in))
        return import_fail(m, "its weight is part of %s, or in another order", w.name ? w.name : "known numbers");
    if (!points && !flat && (t = emit(m, "flatten", NULL, "", t)) < 0) return -1;
    const char *name = node_name(m, &w);
    snprintf(attrs, sizeof attrs, "features=%lld bias=%s%s%s", (long long)features, bias ? "yes" : "no",
             points ? " points=yes" : "", as_file ? " stored=in_out" : "");
    const int y = emit(m, "linear", name, attrs, t);
    if (y < 0 || take_weight(m, &w, name, 0) || (bias && take_weight(m, bias, name, 1))) return -1;
    struct axes at = axes_with(&x->at, last, features);
    *v = (struct value){.name = v->name, .kind = V_VIEW, .uses = v->uses, .at = at, .tensor = y, .scale = 1};
    return 0;
}

int product_view(struct import *m, struct value *v) { return linear(m, v, NULL); }

int product_bias(struct import *m, struct value *v, struct value *w, struct value **out)
{
    const int last = w->at.n - 1;
    if (v->kind != V_PRODUCT || v->uses > 1 || last < 0) return 0;
    if (w->at.d[last] != v->at.d[v->at.n - 1] || axes_count(&w->at) != w->at.d[last]) return 0;
    if (!w->from && w->at.d[last] == 1) return 0;        /* a number, as in x W + 1 */
    *out = v;
    return linear(m, v, w) ? -1 : 1;
}

/* The last two dimensions, where those before are 1. */
static struct value *matrix_of(struct import *m, const struct value *w)
{
    const int ones = w->at.n - 2;
    struct axes at = {.n = 2, .offset = w->at.offset};
    for (int i = 0; i < 2; i++)
        at.d[i] = w->at.d[ones + i], at.stride[i] = w->at.stride[ones + i], at.rep[i] = w->at.rep[ones + i];
    return value_again(m, w, &at);
}

static int product(struct import *m, struct value *x, struct value *w, struct value **out)
{
    if (need_view(m, x)) return -1;
    const int last = x->at.n - 1;
    if (w->at.n > 2 && w->at.n <= x->at.n && axes_count(&w->at) == w->at.d[w->at.n - 2] * w->at.d[w->at.n - 1])
        w = matrix_of(m, w);
    if (w->at.n != 2 || last < 0 || x->at.d[last] != w->at.d[0])
        return import_fail(m, "its known operand is no matrix that fits the other one");
    struct value *v = value_again(m, x, &x->at);
    *v = (struct value){.kind = V_PRODUCT, .at = axes_with(&x->at, last, w->at.d[1]), .tensor = -1, .scale = 1, .a = x,
                        .b = w};
    *out = v;
    return 0;
}

int import_gemm(struct import *m, struct value **in, int n_in, struct value **out, int n_out)
{
    if (!is_fixed(in[1]) || attr_int(m, "transA", 0) || attr_real(m, "alpha", 1) != 1 ||
        attr_real(m, "beta", 1) != 1)
        return import_fail(m, "it is more than a matrix of weights and a bias");
    struct value *w = value_again(m, in[1], &in[1]->at);
    if (w->at.n != 2) return import_fail(m, "its weight is no matrix");
    if (attr_int(m, "transB", 0))
        for (int i = 0; i < 2; i++)
            w->at.d[i] = in[1]->at.d[1 - i], w->at.stride[i] = in[1]->at.stride[1 - i],
            w->at.rep[i] = in[1]->at.rep[1 - i];
    if (product(m, in[0], w, out)) return -1;
    if (n_in < 3 || !in[2]) return 0;
    const int is = is_fixed(in[2]) ? product_bias(m, *out, in[2], out) : 0;
    return is > 0 ? 0 : is ? -1 : import_fail(m, "its third operand is no bias");
}

/* ---- attention --------------------------------------------------------------------------------------------------- */

static struct value *scores(struct import *m, enum value_kind kind, const struct value *q, const struct axes *at)
{
    struct value *v = value_again(m, q, at);
    v->kind = kind;
    return v;
}

/* A view of heads: ..., heads, points, width. Gives a view of all channels that it takes, or -1. */
static int heads_of(struct import *m, const struct value *v, int points_at, int width_at, int64_t *heads, int64_t *kv,
                    struct value *out)
{
    const struct axes *a = &v->at;
    const struct shape *s = &m->b->tensor.v[v->tensor].shape;
    const int64_t points = shape_count(s) / s->d[0], width = a->d[width_at];
    const int head_at = a->n - 3;
    struct axes at = {.n = 3, .offset = a->offset};
    for (int i = 0; i < head_at; i++)
        if (a->d[i] != 1) return import_fail(m, "it has more dimensions than heads, points and channels");
    *heads = head_at < 0 ? 1 : a->d[head_at];
    const int64_t rep = head_at < 0 ? 1 : a->stride[head_at] ? a->rep[head_at] : *heads;   /* one head for all: 0 */
    if (rep < 1 || *heads % rep) return import_fail(m, "queries are no multiple of its keys");
    *kv = *heads / rep;
    at.d[0] = *kv, at.d[1] = a->d[points_at], at.d[2] = width;
    at.stride[0] = width * points, at.stride[1] = 1, at.stride[2] = points;
    at.rep[0] = at.rep[1] = at.rep[2] = 1;
    if (a->d[points_at] != points || (points > 1 && a->stride[points_at] != 1) ||
        (width > 1 && a->stride[width_at] != points) || (*kv > 1 && a->stride[head_at] != at.stride[0]))
        return import_fail(m, "its queries, keys or values are not the channels of heads");
    *out = *v;
    out->at = at;
    out->scale = 1;
    return 0;
}

static int attention(struct import *m, struct value *p, struct value *v, struct value **out)
{
    char attrs[120];
    struct value part[3];
    int64_t heads[3], kv[3];
    const int n = p->a->at.n, w = v->at.n;
    if (n < 2 || p->b->at.n < 2 || w < 2) return import_fail(m, "it has no points and channels");
    struct axes first = p->a->at;
    first.d[n - 1] = p->b->at.d[p->b->at.n - 1];
    if (p->at.n != n || memcmp(p->at.d, first.d, (size_t)n * sizeof *first.d))
        return import_fail(m, "its scores were put into other dimensions");
    if (p->a->at.sample > n - 2 || v->at.sample > w - 2 || !axes_aligned(&p->a->at, &p->b->at) ||
        !axes_aligned(&p->a->at, &v->at))
        return import_fail(m, "its samples lie along its points or channels");
    if (heads_of(m, p->a, n - 2, n - 1, &heads[0], &kv[0], &part[0]) ||
        heads_of(m, p->b, p->b->at.n - 1, p->b->at.n - 2, &heads[1], &kv[1], &part[1]) ||
        heads_of(m, v, w - 2, w - 1, &heads[2], &kv[2], &part[2])) return -1;
    const int64_t width = part[0].at.d[2], points = part[0].at.d[1];
    const double ratio = p->k * sqrt((double)width);
    if (heads[1] != heads[0] || heads[2] != heads[0] || kv[0] != heads[0] || kv[1] != kv[2] ||
        part[1].at.d[2] != width || part[2].at.d[2] != width)
        return import_fail(m, "queries, keys and values have other heads");
    if (fabs(ratio - 1) > 1e-5) part[0].scale = ratio;
    part[2].scale = v->scale;
    const struct shape *s = &m->b->tensor.v[part[0].tensor].shape;
    const int64_t all = heads[0] * width * points;
    const bool one = part[0].tensor == part[1].tensor && part[1].tensor == part[2].tensor && part[0].scale == 1 &&
                     v->scale == 1 && !part[0].at.offset && part[1].at.offset == all && part[2].at.offset == 2 * all &&
                     kv[1] == heads[0] && shape_count(s) == 3 * all;
    snprintf(attrs, sizeof attrs, "heads=%lld kv_heads=%lld causal=%s", (long long)heads[0],
             kv[1] == heads[0] ? 0LL : (long long)kv[1], p->code ? "yes" : "no");
    struct graph_node node = {"attention", node_name(m, NULL), NULL, attrs, one ? 1 : 3, {part[0].tensor}, {NULL}};
    for (int i = 0; i < 3 && !one; i++) {
        if ((node.in[i] = whole_of(m, &part[i])) < 0) return -1;
        const struct shape *in = &m->b->tensor.v[node.in[i]].shape;
        if (in->n > 2 && (node.in[i] = emit(m, "flatten", NULL, "first=1", node.in[i])) < 0) return -1;
    }
    if (!one) node.name = node_name(m, NULL);
    const int t = graph_add(m->b, &node);
    if (t < 0) return import_fail(m, "%s", m->b->e.text);
    struct axes at = p->a->at;
    at.offset = 0;
    if (n > 2) at.stride[n - 3] = width * points;
    at.stride[n - 2] = 1, at.stride[n - 1] = points;
    *out = value_view(m, t, &at);
    return 0;
}

int import_matmul(struct import *m, struct value **in, int n_in, struct value **out, int n_out)
{
    if (is_fixed(in[1])) return product(m, in[0], in[1], out);
    if (is_fixed(in[0])) return import_fail(m, "known numbers times an activation");
    if (in[0]->kind == V_CHANCES) return need_view(m, in[1]) ? -1 : attention(m, in[0], in[1], out);
    if (need_view(m, in[0]) || need_view(m, in[1])) return -1;
    struct axes at = in[0]->at;
    if (at.n < 2 || at.n != in[1]->at.n || at.d[at.n - 1] != in[1]->at.d[at.n - 2])
        return import_fail(m, "its operands do not fit each other");
    at.d[at.n - 1] = in[1]->at.d[at.n - 1];
    *out = scores(m, V_SCORES, in[0], &at);
    (*out)->a = in[0], (*out)->b = in[1], (*out)->k = in[0]->scale * in[1]->scale, (*out)->code = 0;
    return 0;
}

int import_softmax(struct import *m, struct value **in, int n_in, struct value **out, int n_out)
{
    const int axis = axis_of(m, &in[0]->at, attr_int(m, "axis", m->opset < 13 ? 1 : -1));
    if (axis < 0) return -1;
    for (int i = axis + 1; m->opset < 13 && i < in[0]->at.n; i++)
        if (in[0]->at.d[i] > 1) return import_fail(m, "before opset 13 it joins all axes from its own on");
    const bool logs = *m->node->op_type == 'L';
    if (in[0]->kind == V_SCORES && !logs) {
        if (axis != in[0]->at.n - 1) return import_fail(m, "its axis is not that of the keys");
        *out = scores(m, V_CHANCES, in[0], &in[0]->at);
        return 0;
    }
    const int t = need_view(m, in[0]) ? -1 : channels_of(m, in[0], axis);
    const int y = t < 0 ? -1 : emit(m, "softmax", NULL, logs ? "log=yes" : "", t);
    if (y < 0) return -1;
    *out = value_view(m, y, &in[0]->at);
    return 0;
}

/* A mask that is added: 0: hides nothing; 1: hides what comes later; -1: another one. */
static int mask_kind(const double *c, const struct axes *mask, int64_t queries, int64_t keys)
{
    const int64_t n = axes_count(mask);
    bool none = true, causal = n == queries * keys && queries == keys && mask->n > 1 && mask->d[mask->n - 1] == keys &&
                               mask->d[mask->n - 2] == queries;
    for (int64_t i = 0; i < n; i++) {
        none &= c[i] == 0;
        const int64_t key = i % keys, query = i / keys % queries;
        causal &= key <= query ? c[i] == 0 : c[i] <= far;
    }
    return none ? 0 : causal ? 1 : -1;
}

static int masked(struct import *m, struct value *v, const double *c, const struct axes *mask, struct value **out)
{
    const int n = v->at.n, is = mask_kind(c, mask, v->at.d[n - 2], v->at.d[n - 1]);
    if (mask->n > n || !axes_fit(&v->at, mask)) return import_fail(m, "a mask that does not fit its scores");
    if (is < 0) return import_fail(m, "a mask that is neither causal nor empty");
    *out = scores(m, V_SCORES, v, &v->at);
    (*out)->code |= is;
    return 1;
}

int scores_binary(struct import *m, char sign, struct value *a, struct value *b, struct value **out)
{
    double k;
    if (a->kind != V_SCORES || !is_fixed(b)) return 0;
    if (sign != '+' && a->code) return import_fail(m, "scores are scaled behind their mask");
    if (sign != '+' && fixed_single(m, b, &k)) {
        *out = scores(m, V_SCORES, a, &a->at);
        (*out)->k *= sign == '*' ? k : 1 / k;
        return 1;
    }
    const double *c = sign == '+' ? fixed_numbers(m, b) : NULL;
    if (!c) return sign == '+' ? -1 : import_fail(m, "scores times more than one number");
    return masked(m, a, c, &b->at, out);
}

int import_is_nan(struct import *m, struct value **in, int n_in, struct value **out, int n_out)
{
    if (in[0]->kind != V_CHANCES) return import_fail(m, "there is no counterpart of this operator");
    *out = scores(m, V_NONE, in[0], &in[0]->at);
    return 0;
}

/* Masks of scores: by a number that has no chance; and chances that are no number, of points that see nothing. */
int import_where(struct import *m, struct value **in, int n_in, struct value **out, int n_out)
{
    double k;
    if (in[0]->kind == V_NONE && in[2]->kind == V_CHANCES && fixed_single(m, in[1], &k) && k == 0) {
        *out = in[2];
        return 0;
    }
    const int low = in[1]->kind == V_SCORES ? 2 : 1;
    struct value *v = in[3 - low];
    if (v->kind != V_SCORES || !is_fixed(in[0]) || !fixed_single(m, in[low], &k) || k > far)
        return import_fail(m, "there is no counterpart of this operator but for causal masks");
    const double *c = fixed_numbers(m, in[0]);
    if (!c) return -1;
    struct value *mask = value_fixed(m, in[0]->at.n, in[0]->at.d, false);
    for (int64_t i = 0; i < mask->count; i++) mask->c[i] = (c[i] != 0) == (low == 1) ? k : 0;
    return masked(m, v, mask->c, &mask->at, out) < 0 ? -1 : 0;
}

/* The operator Attention of opset 23: queries, keys, values, maybe a mask. */
int import_attention(struct import *m, struct value **in, int n_in, struct value **out, int n_out)
{
    struct value *part[3], *all, *keys;
    const int64_t heads[] = {attr_int(m, "q_num_heads", 0), attr_int(m, "kv_num_heads", 0),
                             attr_int(m, "kv_num_heads", 0)};
    for (int i = 0; i < 3; i++) {
        if (need_view(m, in[i])) return -1;
        struct axes at = in[i]->at, four;
        if (at.sample > 1) return import_fail(m, "samples are not its first dimension");
        if (at.n == 3 && heads[i] > 0) {
            const int64_t d[] = {at.d[0], at.d[1], heads[i], at.d[2] / heads[i]};
            if (!axes_reshape(&at, 4, d, &four) || !axes_sample(&at, &four, 0))
                return import_fail(m, "its heads do not divide the channels");
            at = four;
            at.d[1] = four.d[2], at.stride[1] = four.stride[2];
            at.d[2] = four.d[1], at.stride[2] = four.stride[1];
        }
        if (at.n != 4) return import_fail(m, "inputs of other than 3 or 4 dimensions");
        part[i] = value_again(m, in[i], &at);
    }
    if (attr_real(m, "softcap", 0) != 0 || attr_int(m, "qk_matmul_output_mode", 0))
        return import_fail(m, "softcap or qk_matmul_output_mode");
    for (int i = 4; i < n_in; i++) if (in[i]) return import_fail(m, "keys and values of earlier points");
    const int64_t rep = part[1]->at.d[1] ? part[0]->at.d[1] / part[1]->at.d[1] : 0;
    if (rep < 1) return import_fail(m, "queries have fewer heads than keys");
    for (int i = 1; i < 3; i++) part[i]->at.d[1] *= rep, part[i]->at.rep[1] = rep;
    struct axes at = part[1]->at;
    at.d[2] = part[1]->at.d[3], at.stride[2] = part[1]->at.stride[3];
    at.d[3] = part[1]->at.d[2], at.stride[3] = part[1]->at.stride[2];
    keys = value_again(m, part[1], &at);
    struct value *two[] = {part[0], keys};
    if (import_matmul(m, two, 2, &all, 1)) return -1;
    all->k *= attr_real(m, "scale", 1 / sqrt((double)part[0]->at.d[3]));
    all->code = attr_int(m, "is_causal", 0) != 0;
    const double *c = n_in > 3 && in[3] ? is_fixed(in[3]) ? fixed_numbers(m, in[3]) : NULL : NULL;
    if (n_in > 3 && in[3] && !c) return import_fail(m, "its mask is not known");
    if (c && in[3]->whole) {                             /* truth values: what is seen */
        struct value *mask = value_fixed(m, in[3]->at.n, in[3]->at.d, false);
        for (int64_t i = 0; i < mask->count; i++) mask->c[i] = c[i] != 0 ? 0 : 2 * far;
        if (masked(m, all, mask->c, &mask->at, &all) < 0) return -1;
    } else if (c && masked(m, all, c, &in[3]->at, &all) < 0) return -1;
    if (attention(m, all, part[2], out)) return -1;
    if (in[0]->at.n == 4) return 0;
    at = (*out)->at;                                     /* back to three dimensions */
    const struct axes a = {3, {at.d[0], at.d[2], at.d[1] * at.d[3]}, {0, at.stride[2], at.stride[3]}, {1, 1, 1}, 0,
                           at.sample, 1};
    (*out)->at = a;
    return 0;
}

/* ---- rotary position embedding ----------------------------------------------------------------------------------- */

/* The halves of each head exchanged, the first with the other sign: x y becomes -y x. */
int rotary_concat(struct import *m, struct value **in, int n_in, int axis, struct value **out)
{
    struct value *y = in[0], *x = n_in == 2 ? in[1] : NULL;
    if (!x || y->kind != V_VIEW || x->kind != V_VIEW || y->tensor != x->tensor || y->scale != -x->scale) return 0;
    struct axes at = y->at;
    at.offset = x->at.offset;
    if (axis != at.n - 1 || !axes_same(&at, &x->at)) return 0;
    if (y->at.offset != x->at.offset + x->at.d[axis] * x->at.stride[axis]) return 0;
    at = x->at;
    at.d[axis] *= 2;
    *out = value_again(m, x, &at);
    (*out)->kind = V_ROTATED;
    return 1;
}

/* Whether the tables are those of one base: cos and sin of t base^(-2 i / width), twice. */
static bool rotary_base(const double *c, const double *s, int64_t points, int64_t width, double *base)
{
    const int64_t half = width / 2, last = half - 1;
    *base = 10000;
    if (width % 2 || !half) return false;
    if (points > 1 && last > 0) {
        *base = pow(atan2(s[width + last], c[width + last]), -(double)half / (double)last);
        if (!(*base > 1 && *base < 1e12)) return false;
        if (fabs(*base - nearbyint(*base)) < 1e-4 * *base) *base = nearbyint(*base);
    }
    for (int64_t t = 0; t < points; t++)
        for (int64_t i = 0; i < width; i++) {
            const double angle = (double)t * pow(*base, -2.0 * (double)(i % half) / (double)width);
            const double near = 2e-5 + 3e-7 * angle;
            if (fabs(c[t * width + i] - cos(angle)) > near || fabs(s[t * width + i] - sin(angle)) > near) return false;
        }
    return true;
}

int rotary_add(struct import *m, struct value *a, struct value *b, struct value **out)
{
    char attrs[96];
    double base;
    if (a->kind != V_TIMES || b->kind != V_TIMES) return 0;
    if (a->a->kind == V_ROTATED) { struct value *swap = a; a = b; b = swap; }
    struct value *x = a->a, *r = b->a;
    if (x->kind != V_VIEW || r->kind != V_ROTATED || x->tensor != r->tensor || x->scale != r->scale ||
        !axes_same(&x->at, &r->at)) return 0;
    const int last = x->at.n - 1;
    const double *c = fixed_numbers(m, a->b), *s = fixed_numbers(m, b->b);
    if (!c || !s) return -1;
    const int64_t width = x->at.d[last];
    struct value whole = *x;
    whole.scale = 1;
    const int t = whole_of(m, &whole);
    if (t < 0) return -1;
    const struct shape *in = &m->b->tensor.v[t].shape;
    const int64_t points = shape_count(in) / in->d[0];
    int of = -1;
    for (int i = 0; i < last; i++) if (whole.at.d[i] == points && whole.at.stride[i] == 1) of = i;
    const struct axes *table[] = {&a->b->at, &b->b->at};
    for (int k = 0; k < 2; k++)
        for (int i = 0; i < table[k]->n; i++) {
            const int axis = x->at.n - table[k]->n + i;
            const int64_t wants = axis == last ? width : axis == of ? points : 1;
            if (table[k]->d[i] != wants && !(axis == of && points == 1))
                return import_fail(m, "its angles are not one for each point and channel of a head");
        }
    if (of < 0 || (width > 1 && whole.at.stride[last] != points) || !rotary_base(c, s, points, width, &base))
        return import_fail(m, "its angles are not those of a rotary embedding with one base");
    snprintf(attrs, sizeof attrs, "heads=%lld theta=%.17g", (long long)(in->d[0] / width), base);
    const int y = emit(m, "rotary", NULL, attrs, t);
    if (y < 0) return -1;
    *out = value_view(m, y, &whole.at);
    (*out)->scale = x->scale;
    return 1;
}
