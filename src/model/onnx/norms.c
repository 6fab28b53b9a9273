/* Norms, as operators of their own or in parts: means, squares, roots and quotients. */
#include <math.h>
#include <stdio.h>
#include "model/onnx/value.h"

static struct value *norm_part(struct import *m, int part, const struct value *of, struct value *x)
{
    struct value *v = value_again(m, of, &x->at);
    *v = (struct value){.kind = V_NORM, .at = x->at, .tensor = -1, .scale = 1, .code = part, .a = x};
    return v;
}

static bool is_part(const struct value *v, int part) { return v && v->kind == V_NORM && v->code == part; }

static bool same_view(const struct value *a, const struct value *b)
{
    return a->kind == V_VIEW && b->kind == V_VIEW && a->tensor == b->tensor && a->scale == b->scale &&
           axes_equal(&a->at, &b->at);
}

/* ---- means ------------------------------------------------------------------------------------------------------- */

static struct axes reduced(const struct axes *at, const bool *gone, bool keep)
{
    struct axes a = {.offset = at->offset, .outer = at->outer};
    for (int i = 0; i < at->n; i++) {
        if (gone[i] && !keep) continue;
        if (at->sample == i + 1) a.sample = a.n + 1;
        a.d[a.n] = gone[i] ? 1 : at->d[i];
        a.stride[a.n] = gone[i] ? 0 : at->stride[i];
        a.rep[a.n++] = at->rep[i];
    }
    return a;
}

/* A mean over all points of each channel. */
static int pooled(struct import *m, struct value *v, const bool *gone, bool keep, struct value **out)
{
    const int t = whole_of(m, v);
    if (t < 0) return -1;
    const struct shape *s = &m->b->tensor.v[t].shape;
    const int64_t points = shape_count(s) / s->d[0];
    int64_t left = 1;
    for (int i = 0; i < v->at.n; i++)
        if (!gone[i] && v->at.d[i] > 1) left *= v->at.stride[i] >= points ? v->at.d[i] : 0;
    if (left != s->d[0]) return import_fail(m, "it is no mean over all points of each channel");
    const int y = s->n == 1 ? t : emit(m, "global_avg_pool", NULL, "", t);
    if (y < 0) return -1;
    struct axes at = reduced(&v->at, gone, keep);
    for (int i = 0; i < at.n; i++) at.stride[i] /= points;
    *out = value_view(m, y, &at);
    return 0;
}

int import_reduce_mean(struct import *m, struct value **in, int n_in, struct value **out, int n_out)
{
    int64_t axes[RANK];
    bool gone[RANK] = {false};
    struct value *v = in[0];
    const struct value *x;
    const bool keep = attr_int(m, "keepdims", 1);
    const int n = ints_of(m, "axes", n_in > 1 ? in[1] : NULL, axes), last = v->at.n - 1;
    if (n < 1) return import_fail(m, "its axes are not known");
    for (int i = 0; i < n; i++) {
        const int at = axis_of(m, &v->at, axes[i]);
        if (at < 0) return -1;
        gone[at] = true;
    }
    if (v->at.sample && gone[v->at.sample - 1]) return import_fail(m, "a mean over samples");
    const bool of_last = n == 1 && gone[last];
    if (of_last && keep && function_is_square(v, &x)) {
        *out = norm_part(m, N_MEANSQ, v, value_again(m, x, &x->at));
        (*out)->at.d[last] = 1;
        return 0;
    }
    if (of_last && keep && is_part(v, N_SQUARE)) {
        *out = norm_part(m, N_MEANSQ, v, v->a);
        (*out)->centred = true;
        (*out)->at.d[last] = 1;
        return 0;
    }
    if (need_view(m, v)) return -1;
    const struct shape *s = &m->b->tensor.v[v->tensor].shape;
    const int64_t points = shape_count(s) / s->d[0];
    if (of_last && keep && v->at.d[last] == s->d[0] && v->at.stride[last] == points) {
        *out = norm_part(m, N_MEAN, v, v);
        (*out)->at.d[last] = 1;
        return 0;
    }
    return pooled(m, v, gone, keep, out);
}

int import_global_mean(struct import *m, struct value **in, int n_in, struct value **out, int n_out)
{
    bool gone[RANK] = {false};
    for (int i = 2; i < in[0]->at.n; i++) gone[i] = true;
    if (in[0]->at.sample > 2) return import_fail(m, "a mean over samples");
    return pooled(m, in[0], gone, true, out);
}

/* ---- nodes ------------------------------------------------------------------------------------------------------- */

static int emit_norm(struct import *m, const char *op, const char *attrs, int t, struct value *w, struct value *b)
{
    const char *name = node_name(m, w);
    const int y = emit(m, op, name, attrs, t);
    if (y < 0 || (w && take_weight(m, w, name, 0)) || (b && take_weight(m, b, name, 1))) return -1;
    return y;
}

static int layer_norm(struct import *m, struct value *x, double eps, struct value *w, struct value *b,
                      struct value **out)
{
    char attrs[48];
    const int t = channels_of(m, x, x->at.n - 1);
    snprintf(attrs, sizeof attrs, "eps=%.9g%s", eps, b ? "" : " bias=no");
    const int y = t < 0 ? -1 : emit_norm(m, "layer_norm", attrs, t, w, b);
    if (y < 0) return -1;
    *out = value_view(m, y, &x->at);
    return 0;
}

/* Over the last axis, which may be that of each head. */
static int rms_norm(struct import *m, struct value *x, double eps, struct value *w, struct value **out)
{
    char attrs[80];
    const int t = whole_of(m, x), last = x->at.n - 1;
    if (t < 0) return -1;
    const struct shape *s = &m->b->tensor.v[t].shape;
    const int64_t c = s->d[0], points = shape_count(s) / c, width = x->at.d[last];
    if (c % width || (width > 1 && x->at.stride[last] != points) || x->at.sample == x->at.n)
        return import_fail(m, "its last axis is neither the channels nor those of a head");
    snprintf(attrs, sizeof attrs, "eps=%.9g heads=%lld", eps, (long long)(c / width));
    const int y = emit_norm(m, "rms_norm", attrs, t, w, NULL);
    if (y < 0) return -1;
    *out = value_view(m, y, &x->at);
    return 0;
}

static int last_axis(struct import *m, struct value *x)
{
    const int axis = axis_of(m, &x->at, attr_int(m, "axis", -1));
    if (axis < 0) return -1;
    return axis == x->at.n - 1 ? 0 : import_fail(m, "it normalises more than the last axis");
}

int import_layer_norm(struct import *m, struct value **in, int n_in, struct value **out, int n_out)
{
    if (need_view(m, in[0]) || last_axis(m, in[0])) return -1;
    if (!is_fixed(in[1]) || (in[2] && !is_fixed(in[2]))) return import_fail(m, "its weights are not known");
    return layer_norm(m, in[0], attr_real(m, "epsilon", 1e-5), in[1], in[2], out);
}

int import_rms_norm(struct import *m, struct value **in, int n_in, struct value **out, int n_out)
{
    if (need_view(m, in[0]) || last_axis(m, in[0])) return -1;
    if (!is_fixed(in[1])) return import_fail(m, "its weight is not known");
    return rms_norm(m, in[0], attr_real(m, "epsilon", 1e-5), in[1], out);
}

static int channels_first(struct import *m, struct value *x)
{
    if (x->at.sample > 1) return import_fail(m, "samples are not the first dimension of its input");
    if (x->at.d[0] != 1) return import_fail(m, "the first dimension of its input is more than its samples");
    return x->at.n > 1 ? channels_of(m, x, 1) : import_fail(m, "it has no channels");
}

static int of_channels(struct import *m, struct value **in, int n_in, int64_t groups, struct value **out)
{
    char attrs[80];
    const int t = channels_first(m, in[0]);
    if (t < 0) return -1;
    if (!is_fixed(in[1]) || !is_fixed(in[2])) return import_fail(m, "its weights are not known");
    snprintf(attrs, sizeof attrs, "eps=%.9g affine=yes", attr_real(m, "epsilon", 1e-5));
    if (groups) snprintf(attrs + strlen(attrs), 30, " groups=%lld", (long long)groups);
    const int y = emit_norm(m, groups ? "group_norm" : "instance_norm", attrs, t, in[1], in[2]);
    if (y < 0) return -1;
    *out = value_view(m, y, &in[0]->at);
    return 0;
}

int import_instance_norm(struct import *m, struct value **in, int n_in, struct value **out, int n_out)
{
    if (need_view(m, in[0])) return -1;
    const bool grouped = in[0]->at.n == 3 && in[0]->at.sample < 2 && in[0]->at.d[0] == 1;
    if (is_fixed(in[1]) && grouped) {                /* groups as channels: a group norm */
        const struct shape *s = &m->b->tensor.v[in[0]->tensor].shape;
        const double *w = fixed_numbers(m, in[1]), *b = is_fixed(in[2]) ? fixed_numbers(m, in[2]) : NULL;
        bool plain = w && b && in[0]->at.d[1] < s->d[0] && s->d[0] % in[0]->at.d[1] == 0;
        for (int64_t i = 0; plain && i < axes_count(&in[1]->at); i++) plain = w[i] == 1 && b[i] == 0;
        if (plain) {
            *out = norm_part(m, N_GROUP, in[0], in[0]);
            (*out)->k = attr_real(m, "epsilon", 1e-5);
            (*out)->k2 = (double)in[0]->at.d[1];
            return 0;
        }
    }
    return of_channels(m, in, n_in, 0, out);
}

int import_group_norm(struct import *m, struct value **in, int n_in, struct value **out, int n_out)
{
    const int64_t groups = attr_int(m, "num_groups", 0);
    if (groups < 1) return import_fail(m, "num_groups is missing");
    return need_view(m, in[0]) ? -1 : of_channels(m, in, n_in, groups, out);
}

/* ---- parts ------------------------------------------------------------------------------------------------------- */

static int next(struct import *m, const struct value *v, int part, const struct axes *at, struct value **out)
{
    *out = norm_part(m, part, v, v->a);
    (*out)->at = *at;
    (*out)->k = v->k, (*out)->k2 = v->k2, (*out)->centred = v->centred;
    return 1;
}

/* x (or x - mean x) over its root: scale 1 of both operands of the quotient. */
static int quotient(struct import *m, struct value *x, struct value *root, struct value **out)
{
    if (root->centred ? is_part(x, N_CENTRED) && same_view(x->a, root->a) : same_view(x, root->a))
        return next(m, root, root->centred ? N_LAYER : N_RMS, &root->a->at, out);
    return import_fail(m, "it divides by the root of another value's mean");
}

static int group_end(struct import *m, struct value *v, struct value *b, struct value **out)
{
    char attrs[80];
    struct value x = *v->a;
    x.at = v->at;
    const int t = channels_first(m, &x);
    snprintf(attrs, sizeof attrs, "eps=%.9g affine=yes groups=%lld", v->k, (long long)v->k2);
    const int y = t < 0 ? -1 : emit_norm(m, "group_norm", attrs, t, v->b, b);
    if (y < 0) return -1;
    *out = value_view(m, y, &x.at);
    return 1;
}

static int scaled(struct import *m, struct value *v, struct value *w, struct value **out)
{
    const int axis = v->code == N_GROUP ? 1 : v->at.n - 1;
    if (!axes_along(&w->at, v->at.n, axis) || axes_count(&w->at) != v->at.d[axis])
        return import_fail(m, "its factors are not one for each channel");
    if (v->code == N_RMS) return rms_norm(m, v->a, v->k, w, out) ? -1 : 1;
    next(m, v, v->code == N_LAYER ? N_SCALED : N_GROUP_SCALED, &v->at, out);
    (*out)->b = w;
    return 1;
}

int norm_view(struct import *m, struct value *v)
{
    struct value *y;
    if (v->code != N_SCALED) return import_fail(m, "part of a norm that has no counterpart");
    if (layer_norm(m, v->a, v->k, v->b, NULL, &y)) return -1;
    y->name = v->name, y->uses = v->uses;
    *v = *y;
    return 0;
}

int norm_binary(struct import *m, char sign, struct value *a, struct value *b, struct value **out)
{
    double k;
    const bool any = a->kind == V_NORM || (b && b->kind == V_NORM);
    if (!any) return 0;
    if (sign == '-' && is_part(b, N_MEAN)) {
        if (a->kind != V_NORM && need_view(m, a)) return -1;
        if (same_view(a, b->a)) return next(m, b, N_CENTRED, &b->a->at, out);
    }
    if ((sign == '2' || (sign == '*' && b == a)) && is_part(a, N_CENTRED)) return next(m, a, N_SQUARE, &a->at, out);
    if (sign == '+' && is_part(a, N_MEANSQ) && fixed_single(m, b, &k)) {
        next(m, a, N_MEANSQ, &a->at, out);
        (*out)->k += k;
        return 1;
    }
    if (sign == 'r' && is_part(a, N_MEANSQ)) return next(m, a, N_ROOT, &a->at, out);
    if (sign == 'i' && is_part(a, N_ROOT)) return next(m, a, N_INVERSE, &a->at, out);
    if (sign == 'I' && is_part(a, N_MEANSQ)) return next(m, a, N_INVERSE, &a->at, out);
    if (sign == '/' && is_part(b, N_ROOT) && fixed_single(m, a, &k) && k == 1)
        return next(m, b, N_INVERSE, &b->at, out);
    if (sign == '/' && is_part(b, N_ROOT)) return quotient(m, a, b, out);
    if (sign == '*' && is_part(b, N_INVERSE)) return quotient(m, a, b, out);
    if (sign == '*' && is_part(a, N_INVERSE)) return quotient(m, b, a, out);
    if (sign == '*' && (is_part(a, N_RMS) || is_part(a, N_LAYER) || is_part(a, N_GROUP)) && is_fixed(b))
        return scaled(m, a, b, out);
    if (sign == '+' && (is_part(a, N_SCALED) || is_part(a, N_GROUP_SCALED)) && is_fixed(b) &&
        !axes_along(&b->at, a->at.n, is_part(a, N_SCALED) ? a->at.n - 1 : 1))
        return import_fail(m, "its bias is not one number for each channel");
    if (sign == '+' && is_part(a, N_SCALED) && is_fixed(b) && a->uses < 2)
        return layer_norm(m, a->a, a->k, a->b, b, out) ? -1 : 1;
    if (sign == '+' && is_part(a, N_GROUP_SCALED) && is_fixed(b)) return group_end(m, a, b, out);
    for (int i = 0; i < 2; i++) {                        /* a norm without a bias is a layer; others are incomplete */
        struct value *v = i ? b : a;
        if (v && v->kind == V_NORM && norm_view(m, v)) return -1;
    }
    return 0;
}
