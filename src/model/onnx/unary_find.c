/* Functions of one value. A file may say silu as x * sigmoid(x), and gelu in eight nodes. So nodes of one value become
 * a tree, and where its result is needed, its values at some points are compared with those of our functions. */
#include <math.h>
#include <stdio.h>
#include "model/onnx/value.h"

/* k and k2: constants of the node. Those with two operands come first. */
enum code {
    C_ADD, C_SUB, C_MUL, C_DIV, C_MIN, C_MAX,
    C_ADD_K, C_K_SUB, C_MUL_K, C_K_DIV, C_POW_K, C_MIN_K, C_MAX_K,
    C_NEG, C_ABS, C_SQRT, C_EXP, C_LOG, C_RECIPROCAL, C_ERF, C_TANH, C_SIGMOID, C_RELU, C_LEAKY, C_ELU, C_GELU,
    C_GELU_TANH, C_HARDSIGMOID, C_HARDSWISH, C_SOFTPLUS, C_SWISH, C_MISH
};
enum { TREE_MOST = 48 };                                /* nodes of one tree */

static const struct { const char *op; enum code code; } codes[] = {
    {"Neg", C_NEG}, {"Abs", C_ABS}, {"Sqrt", C_SQRT}, {"Exp", C_EXP}, {"Log", C_LOG}, {"Reciprocal", C_RECIPROCAL},
    {"Erf", C_ERF}, {"Tanh", C_TANH}, {"Sigmoid", C_SIGMOID}, {"Relu", C_RELU}, {"LeakyRelu", C_LEAKY},
    {"Elu", C_ELU}, {"Gelu", C_GELU}, {"HardSigmoid", C_HARDSIGMOID}, {"HardSwish", C_HARDSWISH},
    {"Softplus", C_SOFTPLUS}, {"Swish", C_SWISH}, {"Mish", C_MISH}};

int function_code(const char *op)
{
    for (size_t i = 0; i < sizeof codes / sizeof *codes; i++) if (!strcmp(codes[i].op, op)) return (int)codes[i].code;
    return -1;
}

static double gelu(double x) { return 0.5 * x * (1 + erf(x / sqrt(2))); }
static double gelu_tanh(double x) { return 0.5 * x * (1 + tanh(sqrt(M_2_PI) * (x + 0.044715 * x * x * x))); }
static double sigmoid(double x) { return 1 / (1 + exp(-x)); }
static double between(double x, double low, double high) { return x < low ? low : x > high ? high : x; }

/* Of an element x of the tensor. */
static double at(const struct value *v, double x)
{
    if (v->kind == V_VIEW) return v->scale * x;
    const double a = at(v->a, x), b = v->b ? at(v->b, x) : 0, k = v->k;
    switch ((enum code)v->code) {
    case C_ADD: return a + b;
    case C_SUB: return a - b;
    case C_MUL: return a * b;
    case C_DIV: return a / b;
    case C_MIN: return fmin(a, b);
    case C_MAX: return fmax(a, b);
    case C_ADD_K: return a + k;
    case C_K_SUB: return k - a;
    case C_MUL_K: return a * k;
    case C_K_DIV: return k / a;
    case C_POW_K: return pow(a, k);
    case C_MIN_K: return fmin(a, k);
    case C_MAX_K: return fmax(a, k);
    case C_NEG: return -a;
    case C_ABS: return fabs(a);
    case C_SQRT: return sqrt(a);
    case C_EXP: return exp(a);
    case C_LOG: return log(a);
    case C_RECIPROCAL: return 1 / a;
    case C_ERF: return erf(a);
    case C_TANH: return tanh(a);
    case C_SIGMOID: return sigmoid(a);
    case C_RELU: return fmax(a, 0);
    case C_LEAKY: return a > 0 ? a : k * a;
    case C_ELU: return a > 0 ? a : k * (exp(a) - 1);
    case C_GELU: return gelu(a);
    case C_GELU_TANH: return gelu_tanh(a);
    case C_HARDSIGMOID: return between(k * a + v->k2, 0, 1);
    case C_HARDSWISH: return a * between(a / 6 + 0.5, 0, 1);
    case C_SOFTPLUS: return log1p(exp(a));
    case C_SWISH: return a * sigmoid(k * a);
    case C_MISH: return a * tanh(log1p(exp(a)));
    }
    return 0;
}

static const struct value *leaf(const struct value *v)
{
    while (v->kind == V_FUNCTION) v = v->a;
    return v;
}

static struct value *leaf_of(struct value *v)
{
    while (v->kind == V_FUNCTION) v = v->a;
    return v;
}

static bool same_leaf(const struct value *a, const struct value *b)
{
    const struct value *x = leaf(a), *y = leaf(b);
    return x->tensor == y->tensor && axes_equal(&x->at, &y->at);
}

/* A child may have become a view since the tree was made. */
static bool one_leaf(const struct value *v, const struct value *of)
{
    if (v->kind == V_VIEW) return same_leaf(v, of);
    return one_leaf(v->a, of) && (!v->b || one_leaf(v->b, of));
}

static int size_of(const struct value *v) { return v->kind == V_FUNCTION ? v->size : 0; }

/* ---- our functions ----------------------------------------------------------------------------------------------- */

/* a: the attribute, found from the tree's own values. */
static double f_same(double x, double a) { return x; }
static double f_relu(double x, double a) { return fmax(x, 0); }
static double f_relu6(double x, double a) { return between(x, 0, 6); }
static double f_sigmoid(double x, double a) { return sigmoid(x); }
static double f_tanh(double x, double a) { return tanh(x); }
static double f_silu(double x, double a) { return x * sigmoid(x); }
static double f_gelu(double x, double a) { return gelu(x); }
static double f_gelu_tanh(double x, double a) { return gelu_tanh(x); }
static double f_hardsigmoid(double x, double a) { return between(x / 6 + 0.5, 0, 1); }
static double f_hardswish(double x, double a) { return x * between(x / 6 + 0.5, 0, 1); }
static double f_leaky(double x, double a) { return x > 0 ? x : a * x; }
static double f_elu(double x, double a) { return x > 0 ? x : a * (exp(x) - 1); }
static double a_leaky(const struct value *v, double by) { return -at(v, -1 / by); }
static double a_elu(const struct value *v, double by) { return at(v, -1 / by) / (exp(-1) - 1); }

static const struct known { const char *op, *attr; double (*f)(double x, double a);
                            double (*a)(const struct value *v, double by); } known[] = {
    {NULL, "", f_same, NULL}, {"relu", "", f_relu, NULL}, {"relu6", "", f_relu6, NULL},
    {"sigmoid", "", f_sigmoid, NULL}, {"tanh", "", f_tanh, NULL}, {"silu", "", f_silu, NULL},
    {"gelu", "", f_gelu, NULL}, {"gelu", "form=tanh", f_gelu_tanh, NULL}, {"hardsigmoid", "", f_hardsigmoid, NULL},
    {"hardswish", "", f_hardswish, NULL}, {"leaky_relu", "slope=%.9g", f_leaky, a_leaky},
    {"elu", "alpha=%.9g", f_elu, a_elu}};

/* by: a factor of the function's argument; factor: of its result. */
struct function_found { const struct known *f; double by, factor, a; };

static bool agrees(const struct value *v, const struct known *f, double by, struct function_found *out)
{
    static const double points[] = {1.7, -7, -4.1, -2.9, -1.3, -0.6, -0.1, 0.05, 0.4, 0.9, 2.3, 3.4, 5.2, 6.4, 9};
    const double a = f->a ? f->a(v, by) : 0, first = at(v, points[0] / by), factor = first / f->f(points[0], a);
    if (!isfinite(factor) || factor == 0 || !isfinite(a)) return false;
    for (double times = 1e-3; times < 1e9; times *= 10)  /* limits may lie anywhere */
        for (size_t i = 0; i < sizeof points / sizeof *points; i++) {
            const double x = points[i] * times, has = at(v, x / by), should = factor * f->f(x, a);
            if (!(fabs(has - should) <= 4e-6 * fabs(factor * x) + 1e-7 * fabs(should))) return false;
        }
    *out = (struct function_found){f, by, fabs(factor - 1) < 4e-6 ? 1 : factor, a};
    return true;
}

static bool find(const struct value *v, struct function_found *out)
{
    const double by[] = {1, leaf(v)->scale};
    for (int k = 0; k < 2; k++)
        for (size_t i = 0; i < sizeof known / sizeof *known; i++)
            if (agrees(v, &known[i], by[k], out)) return true;
    return false;
}

/* ---- trees ------------------------------------------------------------------------------------------------------- */

static int two_views(struct import *m, enum code code, struct value *a, struct value *b, struct value **out);

static void becomes(struct value *v, const struct value *view)
{
    const char *name = v->name;
    const int uses = v->uses;
    *v = *view;
    v->name = name;
    v->uses = uses;
}

static int emit_found(struct import *m, struct value *v, const struct function_found *f)
{
    char attrs[64];
    struct value *from = leaf_of(v), x = *from;
    x.scale = f->by;
    int t = whole_of(m, &x);
    if (t < 0) return -1;
    if (f->by == 1) from->tensor = x.tensor, from->at = x.at;      /* what was cut off serves others, too */
    snprintf(attrs, sizeof attrs, f->f->attr, f->a);
    if (f->f->op && (t = emit(m, f->f->op, NULL, attrs, t)) < 0) return -1;
    const struct value view = {.kind = V_VIEW, .at = x.at, .tensor = t, .scale = f->factor};
    becomes(v, &view);
    return 0;
}

int function_view(struct import *m, struct value *v)
{
    struct function_found f;
    if (one_leaf(v, v) && find(v, &f)) return emit_found(m, v, &f);
    const bool tree = v->a->kind == V_FUNCTION || (v->b && v->b->kind == V_FUNCTION);
    if (!tree && !v->b)
        return import_fail(m, "no operator of ours has its values, nor those of the functions around it");
    if (need_view(m, v->a) || (v->b && need_view(m, v->b))) return -1;
    v->size = 1;
    if (!v->b || same_leaf(v->a, v->b)) if (find(v, &f)) return emit_found(m, v, &f);
    if (!v->b) return import_fail(m, "no operator of ours has its values, nor those of the functions around it");
    struct value *out;
    if (two_views(m, (enum code)v->code, v->a, v->b, &out)) return -1;
    becomes(v, out);
    return 0;
}

/* Axes along which each element is repeated have one element again. */
static struct axes unrepeated(const struct axes *at)
{
    struct axes a = *at;
    for (int i = 0; i < a.n; i++) if (!a.stride[i]) a.d[i] = 1;
    return a;
}

/* Sum or product of two tensors. The axes of b may be 1 where those of a are not. */
static int two_views(struct import *m, enum code code, struct value *a, struct value *b, struct value **out)
{
    const struct axes of_a = unrepeated(&a->at), of_b = unrepeated(&b->at);
    if (axes_count(&of_b) > axes_count(&of_a)) {
        if (code == C_DIV || code == C_SUB) return import_fail(m, "its first operand is the smaller one");
        return two_views(m, code, b, a, out);
    }
    if (b->at.n > a->at.n || !axes_fit(&a->at, &b->at))
        return import_fail(m, "its operands do not fit each other");
    struct value other = *b;
    if (code == C_SUB) other.scale = -other.scale;
    if (code == C_MUL) other.at = of_b;
    b = &other;
    if (code != C_ADD && code != C_SUB && code != C_MUL)
        return import_fail(m, "there is no counterpart of this operator of two activations");
    int x = whole_of(m, a), y = x < 0 ? -1 : whole_of(m, b);
    if (y < 0) return -1;
    const struct shape s = m->b->tensor.v[x].shape, t = m->b->tensor.v[y].shape;
    if (!axes_aligned(&a->at, &b->at)) return import_fail(m, "it joins different samples");
    const bool all = axes_same(&a->at, &b->at);
    if (!all && code != C_MUL) return import_fail(m, "its operands differ in their dimensions or their order");
    if (all && !shape_equal(&s, &t)) {                   /* the same elements in other dimensions of space */
        const char *how = s.d[0] == t.d[0] && s.n > 1 && t.n > 1 ? "first=1" : "";
        if (s.n > (*how ? 2 : 1) && (x = emit(m, "flatten", NULL, how, x)) < 0) return -1;
        if (t.n > (*how ? 2 : 1) && (y = emit(m, "flatten", NULL, how, y)) < 0) return -1;
    }
    for (int i = 0, k; !all && i < b->at.n; i++)         /* one factor for each channel */
        if (b->at.d[i] != 1 && (k = a->at.n - b->at.n + i, channels_of(m, a, k) != x || b->at.stride[i] != 1))
            return m->e->code ? -1 : import_fail(m, "its factors are not one for each channel");
    const int z = emit2(m, code == C_MUL ? "multiply" : "add", NULL, x, y);
    if (z < 0) return -1;
    *out = value_view(m, z, &a->at);
    return 0;
}

static int as_operand(struct import *m, struct value *v) { return v->kind == V_FUNCTION ? 0 : need_view(m, v); }

int function_make(struct import *m, int code, struct value *a, struct value *b, double k, struct value **out)
{
    if (as_operand(m, a) || (b && as_operand(m, b))) return -1;
    /* leaves of their own: what a node makes of a value does not change the tree */
    if (a->kind == V_VIEW && code != C_MUL_K) a = value_again(m, a, &a->at);
    if (b && b->kind == V_VIEW) b = value_again(m, b, &b->at);
    if (code == C_MUL_K && a->kind == V_VIEW) {
        *out = value_again(m, a, &a->at);
        (*out)->scale *= k;
        return 0;
    }
    if (b && !same_leaf(a, b)) {
        if (need_view(m, a) || need_view(m, b)) return -1;
        if (!same_leaf(a, b)) return two_views(m, (enum code)code, a, b, out);
    }
    if (1 + size_of(a) + (b ? size_of(b) : 0) > TREE_MOST && (need_view(m, a) || (b && need_view(m, b)))) return -1;
    if (b && !same_leaf(a, b)) return two_views(m, (enum code)code, a, b, out);
    struct value *v = value_again(m, a, &a->at);
    *v = (struct value){.kind = V_FUNCTION, .at = a->at, .tensor = -1, .scale = 1, .code = code, .a = a, .b = b, .k = k,
                        .size = 1 + size_of(a) + (b ? size_of(b) : 0)};
    *out = v;
    return 0;
}

bool function_is_square(const struct value *v, const struct value **x)
{
    if (v->kind != V_FUNCTION || !one_leaf(v, v)) return false;
    const double s = leaf(v)->scale;
    for (double p = -3.5; p < 4; p += 1.25) if (fabs(at(v, p) - s * s * p * p) > 1e-5 * s * s * p * p) return false;
    *x = leaf(v);
    return true;
}

/* ---- operators --------------------------------------------------------------------------------------------------- */

int import_function(struct import *m, struct value **in, int n_in, struct value **out, int n_out)
{
    const char *op = m->node->op_type;
    int code = function_code(op);
    double k = 1;
    if (in[0]->kind == V_NORM) {
        const int is = norm_binary(m, code == C_SQRT ? 'r' : code == C_RECIPROCAL ? 'i' : '?', in[0], NULL, out);
        if (is) return is < 0 ? -1 : 0;
    }
    if (code == C_NEG) return function_make(m, C_MUL_K, in[0], NULL, -1, out);
    if (code == C_GELU && !strcmp(attr_word(m, "approximate", "none"), "tanh")) code = C_GELU_TANH;
    if (code == C_LEAKY) k = attr_real(m, "alpha", 0.01);
    if (code == C_ELU || code == C_SWISH) k = attr_real(m, "alpha", 1);
    if (code == C_HARDSIGMOID) k = attr_real(m, "alpha", 0.2);
    if (function_make(m, code, in[0], NULL, k, out)) return -1;
    if (code == C_HARDSIGMOID) (*out)->k2 = attr_real(m, "beta", 0.5);
    return 0;
}

/* A learned vector for each point of a sequence. */
static int positions(struct import *m, struct value *v, struct value *w, struct value **out)
{
    const int last = v->at.n - 1;
    const int t = last < 0 ? import_fail(m, "a single number") : channels_of(m, v, last);
    if (t < 0) return -1;
    const int64_t width = v->at.d[last], points = axes_count(&v->at) / width;
    if (!w->at.n || w->at.d[w->at.n - 1] != width || axes_count(&w->at) != points * width ||
        !axes_fit(&v->at, &w->at))
        return import_fail(m, "known numbers that are neither a bias nor a vector for each point");
    for (int i = 0, k; i < last; i++)                    /* points in the order of the weight */
        for (k = i + 1; k < last; k++)
            if (v->at.d[i] > 1 && v->at.d[k] > 1 && v->at.stride[i] < v->at.stride[k])
                return import_fail(m, "the points are in another order than the known vectors");
    if (w->from && axes_count(&w->at) < w->count && m->tokens >= 0) {    /* the first rows of a table */
        char attrs[80];
        const char *name = node_name(m, w);
        const struct axes rows = axes_of(w->at.n, w->at.d);
        if (w->at.offset || w->from->n_dims != 2 || w->from->dims[1] != width || !axes_same(&w->at, &rows))
            return import_fail(m, "positions that are not the first rows of a table");
        const struct shape s = m->b->tensor.v[m->tokens].shape;
        if (m->positions < 0) m->positions = graph_input(m->b, "positions", ROLE_SAMPLE, &s, I32);
        snprintf(attrs, sizeof attrs, "count=%lld features=%lld", (long long)(w->count / width), (long long)width);
        const int p = emit(m, "embedding", name, attrs, m->positions);
        struct value whole = *w;
        whole.at = axes_of(2, (int64_t[]){w->count / width, width});
        if (p < 0 || take_weight(m, &whole, name, 0)) return -1;
        const int sum = emit2(m, "add", NULL, t, p);
        *out = value_view(m, sum, &v->at);
        return sum < 0 ? -1 : 0;
    }
    const char *name = node_name(m, w);
    const int p = emit(m, "positions", name, "", t);
    if (p < 0 || take_weight(m, w, name, 0)) return -1;
    *out = value_view(m, p, &v->at);
    return 0;
}

int import_add(struct import *m, struct value **in, int n_in, struct value **out, int n_out)
{
    struct value *a = is_fixed(in[0]) ? in[1] : in[0], *b = is_fixed(in[0]) ? in[0] : in[1];
    double k;
    if (a->added == m->node) { *out = a; return 0; }
    int is = norm_binary(m, '+', a, b, out);
    if (!is) is = scores_binary(m, '+', a, b, out);
    if (!is) is = rotary_add(m, a, b, out);
    if (is) return is < 0 ? -1 : 0;
    if (!is_fixed(b)) return function_make(m, C_ADD, a, b, 0, out);
    if ((is = product_bias(m, a, b, out))) return is < 0 ? -1 : 0;
    if (fixed_single(m, b, &k)) {
        *out = a;
        return k == 0 ? 0 : function_make(m, C_ADD_K, a, NULL, k, out);
    }
    return m->e->code || need_view(m, a) ? -1 : positions(m, a, b, out);
}

int import_sum(struct import *m, struct value **in, int n_in, struct value **out, int n_out)
{
    *out = in[0];
    for (int i = 1; i < n_in; i++)
        if (import_add(m, (struct value *[]){*out, in[i]}, 2, out, n_out)) return -1;
    return 0;
}

int import_sub(struct import *m, struct value **in, int n_in, struct value **out, int n_out)
{
    double k;
    const int is = norm_binary(m, '-', in[0], in[1], out);
    if (is) return is < 0 ? -1 : 0;
    if (fixed_single(m, in[1], &k)) return function_make(m, C_ADD_K, in[0], NULL, -k, out);
    if (fixed_single(m, in[0], &k)) return function_make(m, C_K_SUB, in[1], NULL, k, out);
    if (m->e->code) return -1;
    if (is_fixed(in[0]) || is_fixed(in[1]))
        return import_fail(m, "a difference with known numbers of several elements");
    return function_make(m, C_SUB, in[0], in[1], 0, out);
}

/* Known factors: one for each channel is a layer's weight. */
static int times_known(struct import *m, struct value *v, struct value *w, struct value **out)
{
    int axis = -1, n = 0;
    if (v->kind != V_ROTATED && need_view(m, v)) return -1;
    for (int i = 0; i < w->at.n; i++) if (w->at.d[i] != 1) axis = v->at.n - w->at.n + i, n++;
    if (axis < 0 || !axes_fit(&v->at, &w->at)) return import_fail(m, "its operands do not fit each other");
    if (n > 1 || v->kind == V_ROTATED) {
        *out = value_again(m, v, &v->at);
        **out = (struct value){.kind = V_TIMES, .at = v->at, .tensor = -1, .scale = 1, .a = v, .b = w};
        return 0;
    }
    const int t = channels_of(m, v, axis);
    const char *name = node_name(m, w);
    if (t < 0) return -1;
    const int y = emit(m, "scale", name, "", t);
    if (y < 0 || take_weight(m, w, name, 0)) return -1;
    *out = value_view(m, y, &v->at);
    return 0;
}

int import_mul(struct import *m, struct value **in, int n_in, struct value **out, int n_out)
{
    struct value *a = is_fixed(in[0]) ? in[1] : in[0], *b = is_fixed(in[0]) ? in[0] : in[1];
    double k;
    int is = norm_binary(m, '*', a, b, out);
    if (!is) is = scores_binary(m, '*', a, b, out);
    if (is) return is < 0 ? -1 : 0;
    if (!is_fixed(b)) return function_make(m, C_MUL, a, b, 0, out);
    if (fixed_single(m, b, &k)) return function_make(m, C_MUL_K, a, NULL, k, out);
    return m->e->code ? -1 : times_known(m, a, b, out);
}

int import_div(struct import *m, struct value **in, int n_in, struct value **out, int n_out)
{
    double k;
    int is = norm_binary(m, '/', in[0], in[1], out);
    if (!is) is = scores_binary(m, '/', in[0], in[1], out);
    if (is) return is < 0 ? -1 : 0;
    if (fixed_single(m, in[1], &k)) return function_make(m, C_MUL_K, in[0], NULL, 1 / k, out);
    if (fixed_single(m, in[0], &k)) return function_make(m, C_K_DIV, in[1], NULL, k, out);
    if (m->e->code) return -1;
    if (is_fixed(in[0]) || is_fixed(in[1])) return import_fail(m, "a quotient with known numbers of several elements");
    return function_make(m, C_DIV, in[0], in[1], 0, out);
}

int import_pow(struct import *m, struct value **in, int n_in, struct value **out, int n_out)
{
    double k;
    if (!fixed_single(m, in[1], &k)) return import_fail(m, "its exponent is not one known number");
    const int is = in[0]->kind == V_NORM ? norm_binary(m, k == 2 ? '2' : k == -0.5 ? 'I' : '?', in[0], NULL, out) : 0;
    if (is) return is < 0 ? -1 : 0;
    return function_make(m, C_POW_K, in[0], NULL, k, out);
}

/* Clip; Min and Max with one number. */
int import_clip(struct import *m, struct value **in, int n_in, struct value **out, int n_out)
{
    const char *op = m->node->op_type;
    const bool clip = *op == 'C';
    double low = attr_real(m, "min", -INFINITY), high = attr_real(m, "max", INFINITY);
    struct value *v = in[0];
    if (clip && n_in > 1 && in[1] && !fixed_single(m, in[1], &low)) return import_fail(m, "its limits are not known");
    if (clip && n_in > 2 && in[2] && !fixed_single(m, in[2], &high)) return import_fail(m, "its limits are not known");
    if (!clip && n_in == 2 && !is_fixed(in[0]) && !is_fixed(in[1]))
        return function_make(m, op[1] == 'a' ? C_MAX : C_MIN, in[0], in[1], 0, out);
    if (!clip) {
        v = n_in > 1 && is_fixed(in[0]) ? in[1] : in[0];
        if (n_in != 2 || !fixed_single(m, v == in[0] ? in[1] : in[0], op[1] == 'a' ? &low : &high))
            return import_fail(m, "its operands are not one activation and one known number");
    }
    *out = v;
    if (isfinite(low) && function_make(m, C_MAX_K, v, NULL, low, out)) return -1;
    return isfinite(high) ? function_make(m, C_MIN_K, *out, NULL, high, out) : 0;
}
