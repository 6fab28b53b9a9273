/* Operators of known values: shapes, masks, tables of angles. Each operator computes in double and rounds to FLOAT
 * once, unless its values are of type DOUBLE: sizes are often rounded down from products of FLOAT. */
#include <math.h>
#include "model/onnx/value.h"

enum fold { F_NEG, F_ABS, F_SQRT, F_EXP, F_LOG, F_SIN, F_COS, F_FLOOR, F_CEIL, F_ROUND, F_NOT, F_RECIPROCAL, F_ERF,
            F_TANH, F_SIGMOID, F_ISNAN, F_SIGN, F_RELU, F_UNARY_END,
            F_ADD, F_SUB, F_MUL, F_DIV, F_POW, F_MOD, F_MIN, F_MAX, F_EQUAL, F_LESS, F_LESS_EQUAL, F_GREATER,
            F_GREATER_EQUAL, F_AND, F_OR, F_XOR, F_BINARY_END,
            F_WHERE, F_RANGE, F_FULL, F_CONCAT, F_GATHER, F_GATHER_ND, F_TRILU, F_CUMSUM, F_SUM, F_MEAN, F_MATMUL,
            F_SIZE, F_TILE };
static const struct { const char *op; enum fold fold; } folds[] = {
    {"Neg", F_NEG}, {"Abs", F_ABS}, {"Sqrt", F_SQRT}, {"Exp", F_EXP}, {"Log", F_LOG}, {"Sin", F_SIN}, {"Cos", F_COS},
    {"Floor", F_FLOOR}, {"Ceil", F_CEIL}, {"Round", F_ROUND}, {"Not", F_NOT}, {"Reciprocal", F_RECIPROCAL},
    {"Erf", F_ERF}, {"Tanh", F_TANH}, {"Sigmoid", F_SIGMOID}, {"IsNaN", F_ISNAN}, {"Sign", F_SIGN}, {"Relu", F_RELU},
    {"Add", F_ADD}, {"Sub", F_SUB}, {"Mul", F_MUL}, {"Div", F_DIV}, {"Pow", F_POW}, {"Mod", F_MOD}, {"Min", F_MIN},
    {"Max", F_MAX}, {"Equal", F_EQUAL}, {"Less", F_LESS}, {"LessOrEqual", F_LESS_EQUAL}, {"Greater", F_GREATER},
    {"GreaterOrEqual", F_GREATER_EQUAL}, {"And", F_AND}, {"Or", F_OR}, {"Xor", F_XOR}, {"Where", F_WHERE},
    {"Range", F_RANGE}, {"ConstantOfShape", F_FULL}, {"Concat", F_CONCAT}, {"Gather", F_GATHER},
    {"GatherND", F_GATHER_ND}, {"Trilu", F_TRILU}, {"CumSum", F_CUMSUM}, {"ReduceSum", F_SUM}, {"ReduceMean", F_MEAN},
    {"MatMul", F_MATMUL}, {"Size", F_SIZE}, {"Tile", F_TILE}};

static int fold_find(const char *op)
{
    for (size_t i = 0; i < sizeof folds / sizeof *folds; i++) if (!strcmp(folds[i].op, op)) return (int)folds[i].fold;
    return -1;
}

bool fold_knows(const char *op) { return fold_find(op) >= 0; }

static double unary(enum fold f, double x)
{
    switch (f) {
    case F_NEG: return -x;
    case F_ABS: return fabs(x);
    case F_SQRT: return sqrt(x);
    case F_EXP: return exp(x);
    case F_LOG: return log(x);
    case F_SIN: return sin(x);
    case F_COS: return cos(x);
    case F_FLOOR: return floor(x);
    case F_CEIL: return ceil(x);
    case F_ROUND: return nearbyint(x);
    case F_NOT: return x == 0;
    case F_RECIPROCAL: return 1 / x;
    case F_ERF: return erf(x);
    case F_TANH: return tanh(x);
    case F_SIGMOID: return 1 / (1 + exp(-x));
    case F_ISNAN: return isnan(x);
    case F_SIGN: return (x > 0) - (x < 0);
    default: return x > 0 ? x : 0;
    }
}

static double binary(enum fold f, double x, double y, bool whole)
{
    switch (f) {
    case F_ADD: return x + y;
    case F_SUB: return x - y;
    case F_MUL: return x * y;
    case F_DIV: return whole ? (y == 0 ? 0 : trunc(x / y)) : x / y;
    case F_POW: return pow(x, y);
    case F_MOD: return y == 0 ? 0 : x - y * floor(x / y);
    case F_MIN: return fmin(x, y);
    case F_MAX: return fmax(x, y);
    case F_EQUAL: return x == y;
    case F_LESS: return x < y;
    case F_LESS_EQUAL: return x <= y;
    case F_GREATER: return x > y;
    case F_GREATER_EQUAL: return x >= y;
    case F_AND: return x != 0 && y != 0;
    case F_OR: return x != 0 || y != 0;
    default: return (x != 0) != (y != 0);
    }
}

/* The common dimensions of known values; their numbers in them. -1: the error is set. */
static int broadcast(struct import *m, struct value **in, int n_in, struct axes *at, const double **c,
                     int64_t (*stride)[RANK])
{
    *at = (struct axes){0};
    for (int i = 0; i < n_in; i++) if (in[i]->at.n > at->n) at->n = in[i]->at.n;
    for (int d = 0; d < at->n; d++) at->d[d] = 1;
    for (int i = 0; i < n_in; i++)
        for (int d = 0; d < in[i]->at.n; d++) {
            int64_t *to = &at->d[at->n - in[i]->at.n + d];
            if (in[i]->at.d[d] == 1) continue;
            if (*to != 1 && *to != in[i]->at.d[d]) return import_fail(m, "its inputs do not fit each other");
            *to = in[i]->at.d[d];
        }
    int64_t count = 1;
    for (int d = 0; d < at->n; d++)
        if (__builtin_mul_overflow(count, at->d[d], &count) || count > FOLD_MOST)
            return import_fail(m, "it computes with more than %d known numbers", FOLD_MOST);
    for (int i = 0; i < n_in; i++) {
        const struct axes row = axes_of(in[i]->at.n, in[i]->at.d);
        if (!(c[i] = fixed_numbers(m, in[i]))) return -1;
        for (int d = 0; d < at->n; d++) {
            const int of = d - (at->n - row.n);
            stride[i][d] = of < 0 || row.d[of] == 1 ? 0 : row.stride[of];
        }
    }
    return 0;
}

static int elements(struct import *m, enum fold f, struct value **in, int n_in, struct value **out)
{
    struct axes at;
    const double *c[3];
    int64_t stride[3][RANK], i[RANK] = {0};
    if (n_in < 1 || n_in > 3 || broadcast(m, in, n_in, &at, c, stride)) return n_in > 3 ? import_fail(m, "inputs") : -1;
    const bool truth = f == F_NOT || f == F_ISNAN || (f >= F_EQUAL && f <= F_XOR);
    struct value *v = value_fixed(m, at.n, at.d, truth || in[f == F_WHERE]->whole);
    for (int64_t k = 0; k < v->count; k++) {
        double x[3];
        for (int j = 0; j < n_in; j++) {
            int64_t from = 0;
            for (int d = 0; d < at.n; d++) from += stride[j][d] * i[d];
            x[j] = c[j][from];
        }
        v->c[k] = f == F_WHERE ? (x[0] != 0 ? x[1] : x[2]) : n_in > 1 ? binary(f, x[0], x[1], v->whole)
                                                                      : unary(f, x[0]);
        for (int d = at.n; d-- > 0 && ++i[d] == at.d[d];) i[d] = 0;
    }
    *out = v;
    return 0;
}

static int full(struct import *m, struct value *shape, struct value **out)
{
    int64_t d[RANK], count = 1;
    double fill = 0;
    const Onnx__Attribute *a = attribute(m, "value");
    const int n = ints_of(m, NULL, shape, d);
    if (n < 0) return import_fail(m, "its shape is not known");
    for (int i = 0; i < n; i++)
        if (d[i] < 0 || __builtin_mul_overflow(count, d[i], &count) || count > FOLD_MOST)
            return import_fail(m, "more than %d known numbers", FOLD_MOST);
    struct onnx_weight place;
    if (a && a->t && (onnx_place(m->file, a->t, &place, m->e) || onnx_count(a->t) != 1))
        return import_fail(m, "its value is not one number");
    if (a && a->t && onnx_values(m->file, a->t, &fill, m->e)) return -1;
    *out = value_fixed(m, n, d, a && a->t && !onnx_floats(a->t));
    for (int64_t i = 0; i < count; i++) (*out)->c[i] = fill;
    return 0;
}

static int range(struct import *m, struct value **in, int n_in, struct value **out)
{
    double x[3];
    for (int i = 0; i < 3; i++)
        if (n_in < 3 || !fixed_single(m, in[i], &x[i])) return import_fail(m, "its limits are not known");
    const double n = x[2] == 0 ? 0 : ceil((x[1] - x[0]) / x[2]);
    if (!(n <= FOLD_MOST)) return import_fail(m, "more than %d known numbers", FOLD_MOST);
    *out = value_fixed(m, 1, &(int64_t){n > 0 ? (int64_t)n : 0}, in[0]->whole);
    for (int64_t i = 0; i < (*out)->count; i++) (*out)->c[i] = x[0] + (double)i * x[2];
    return 0;
}

/* Rows of `inner` elements around an axis: outer x d x inner. */
struct fold_rows { int64_t outer, d, inner; };
static struct fold_rows fold_rows_of(const struct axes *a, int axis)
{
    struct fold_rows r = {1, a->d[axis], 1};
    for (int i = 0; i < axis; i++) r.outer *= a->d[i];
    for (int i = axis + 1; i < a->n; i++) r.inner *= a->d[i];
    return r;
}

static int concat(struct import *m, struct value **in, int n_in, struct value **out)
{
    const int axis = axis_of(m, &in[0]->at, attr_int(m, "axis", 0));
    if (axis < 0) return -1;
    int64_t d[RANK], at = 0, count = 0;
    memcpy(d, in[0]->at.d, sizeof d);
    d[axis] = 0;
    for (int i = 0; i < n_in; i++) {
        if (in[i]->at.n != in[0]->at.n) return import_fail(m, "its inputs do not fit each other");
        for (int k = 0; k < in[0]->at.n; k++)
            if (k != axis && in[i]->at.d[k] != d[k]) return import_fail(m, "its inputs do not fit each other");
        d[axis] += in[i]->at.d[axis];
        count += axes_count(&in[i]->at);
    }
    if (count > FOLD_MOST) return import_fail(m, "more than %d known numbers", FOLD_MOST);
    struct value *v = value_fixed(m, in[0]->at.n, d, in[0]->whole);
    const struct fold_rows to = fold_rows_of(&v->at, axis);
    for (int i = 0; i < n_in; i++) {
        const double *c = fixed_numbers(m, in[i]);
        const int64_t some = in[i]->at.d[axis] * to.inner;
        if (!c) return -1;
        for (int64_t o = 0; o < to.outer; o++)
            memcpy(v->c + o * to.d * to.inner + at, c + o * some, (size_t)some * sizeof *c);
        at += some;
    }
    *out = v;
    return 0;
}

static int gather(struct import *m, struct value **in, struct value **out)
{
    const int axis = axis_of(m, &in[0]->at, attr_int(m, "axis", 0));
    if (axis < 0) return -1;
    const double *c = fixed_numbers(m, in[0]), *index = fixed_numbers(m, in[1]);
    const struct fold_rows r = fold_rows_of(&in[0]->at, axis);
    const int64_t n = axes_count(&in[1]->at);
    int64_t d[2 * RANK];
    int k = 0;
    if (!c || !index) return -1;
    for (int i = 0; i < in[0]->at.n; i++) {
        for (int j = 0; i == axis && j < in[1]->at.n; j++) d[k++] = in[1]->at.d[j];
        if (i != axis) d[k++] = in[0]->at.d[i];
    }
    if (k > RANK || r.outer * n * r.inner > FOLD_MOST) return import_fail(m, "more known numbers than it may have");
    struct value *v = value_fixed(m, k, d, in[0]->whole);
    for (int64_t o = 0, to = 0; o < r.outer; o++)
        for (int64_t i = 0; i < n; i++) {
            const int64_t from = integer_of(index[i]) + (index[i] < 0 ? r.d : 0);
            if (from < 0 || from >= r.d) return import_fail(m, "an index of %g, of %lld", index[i], (long long)r.d);
            for (int64_t j = 0; j < r.inner; j++) v->c[to++] = c[(o * r.d + from) * r.inner + j];
        }
    *out = v;
    return 0;
}

static int gather_nd(struct import *m, struct value **in, struct value **out)
{
    const struct axes *a = &in[0]->at, *b = &in[1]->at, row = axes_of(a->n, a->d);
    const double *c = fixed_numbers(m, in[0]), *index = fixed_numbers(m, in[1]);
    if (!c || !index) return -1;
    const int64_t batch = attr_int(m, "batch_dims", 0), deep = b->n ? b->d[b->n - 1] : 0;
    if (batch || deep < 1 || deep > a->n) return import_fail(m, "batch_dims, or indices of other dimensions");
    int64_t d[2 * RANK], inner = 1;
    int k = 0;
    for (int i = 0; i + 1 < b->n; i++) d[k++] = b->d[i];
    for (int i = (int)deep; i < a->n; i++) inner *= d[k++] = a->d[i];
    const int64_t n = axes_count(b) / deep;
    if (k > RANK || n * inner > FOLD_MOST) return import_fail(m, "more known numbers than it may have");
    struct value *v = value_fixed(m, k, d, in[0]->whole);
    for (int64_t i = 0; i < n; i++) {
        int64_t from = 0;
        for (int64_t j = 0; j < deep; j++) {
            const double x = index[i * deep + j];
            if (!(x < (double)a->d[j] && x >= -(double)a->d[j])) return import_fail(m, "an index of %g", x);
            from += row.stride[j] * (integer_of(x) + (x < 0 ? a->d[j] : 0));
        }
        memcpy(v->c + i * inner, c + from, (size_t)inner * sizeof *c);
    }
    *out = v;
    return 0;
}

static int trilu(struct import *m, struct value **in, int n_in, struct value **out)
{
    const int n = in[0]->at.n;
    const double *c = fixed_numbers(m, in[0]);
    double k = 0;
    if (!c || n < 2) return c ? import_fail(m, "no matrix") : -1;
    if (n_in > 1 && in[1] && !fixed_single(m, in[1], &k)) return import_fail(m, "its diagonal is not known");
    const int64_t rows = in[0]->at.d[n - 2], columns = in[0]->at.d[n - 1];
    struct value *v = value_fixed(m, n, in[0]->at.d, in[0]->whole);
    for (int64_t i = 0; i < v->count; i++) {
        const double below = (double)(i % columns - i / columns % rows);
        v->c[i] = (attr_int(m, "upper", 1) ? below >= k : below <= k) ? c[i] : 0;
    }
    *out = v;
    return 0;
}

static int cumsum(struct import *m, struct value **in, int n_in, struct value **out)
{
    double axis_said = 0;
    if (n_in < 2 || !fixed_single(m, in[1], &axis_said)) return import_fail(m, "its axis is not known");
    const int axis = axis_of(m, &in[0]->at, integer_of(axis_said));
    if (axis < 0 || attr_int(m, "exclusive", 0) || attr_int(m, "reverse", 0))
        return axis < 0 ? -1 : import_fail(m, "exclusive or reverse");
    const double *c = fixed_numbers(m, in[0]);
    const struct fold_rows r = fold_rows_of(&in[0]->at, axis);
    if (!c) return -1;
    struct value *v = value_fixed(m, in[0]->at.n, in[0]->at.d, in[0]->whole);
    for (int64_t i = 0; i < v->count; i++)
        v->c[i] = c[i] + (i / r.inner % r.d ? v->c[i - r.inner] : 0);
    *out = v;
    return 0;
}

static int reduce(struct import *m, bool mean, struct value **in, int n_in, struct value **out)
{
    int64_t axes[RANK], d[RANK], i[RANK] = {0};
    bool gone[RANK] = {false};
    const struct axes *a = &in[0]->at;
    const double *c = fixed_numbers(m, in[0]);
    const bool none = !attribute(m, "axes") && n_in < 2, keep = attr_int(m, "keepdims", 1);
    const int n = none ? 0 : ints_of(m, "axes", n_in > 1 ? in[1] : NULL, axes);
    const bool all = n == 0;
    if (!c || n < 0) return c ? import_fail(m, "its axes are not known") : -1;
    if (all && attr_int(m, "noop_with_empty_axes", 0)) { *out = in[0]; return 0; }
    for (int k = 0; k < n; k++) {
        const int at = axis_of(m, a, axes[k]);
        if (at < 0) return -1;
        gone[at] = true;
    }
    for (int k = 0; k < a->n; k++) d[k] = gone[k] || all ? 1 : a->d[k];
    struct value *v = value_fixed(m, a->n, d, in[0]->whole);
    const struct axes to = v->at;
    for (int64_t k = 0, count = axes_count(a); k < count; k++) {
        int64_t at = 0;
        for (int x = 0; x < a->n; x++) at += d[x] == 1 ? 0 : to.stride[x] * i[x];
        v->c[at] += c[k] / (mean ? (double)count / (double)v->count : 1);
        for (int x = a->n; x-- > 0 && ++i[x] == a->d[x];) i[x] = 0;
    }
    int left = 0;
    for (int k = 0; k < a->n; k++) if (keep || !(gone[k] || all)) d[left++] = to.d[k];
    v->at = axes_of(left, d);
    *out = v;
    return 0;
}

/* Of a matrix, or of one matrix each of a batch, and the same or one. */
static int matmul(struct import *m, struct value **in, struct value **out)
{
    const struct axes *a = &in[0]->at, *b = &in[1]->at;
    const double *x = fixed_numbers(m, in[0]), *y = fixed_numbers(m, in[1]);
    if (!x || !y) return -1;
    if (!axes_count(a) || !axes_count(b)) return import_fail(m, "matrices without elements");
    if (a->n < 2 || b->n < 2 || a->d[a->n - 1] != b->d[b->n - 2]) return import_fail(m, "its inputs do not fit");
    const int64_t rows = a->d[a->n - 2], deep = a->d[a->n - 1], columns = b->d[b->n - 1],
                  batch = axes_count(a) / (rows * deep), of_b = axes_count(b) / (deep * columns);
    if (b->n > a->n || (of_b != 1 && (a->n != b->n || memcmp(a->d, b->d, (size_t)(a->n - 2) * sizeof *a->d))))
        return import_fail(m, "batches of matrices that differ");
    if (batch * rows * columns > FOLD_MOST / 64)
        return import_fail(m, "more known numbers than it may have");
    int64_t d[RANK];
    memcpy(d, a->d, sizeof d);
    d[a->n - 1] = columns;
    struct value *v = value_fixed(m, a->n, d, in[0]->whole);
    for (int64_t n = 0; n < batch; n++)
        for (int64_t i = 0; i < rows; i++)
            for (int64_t j = 0; j < columns; j++)
                for (int64_t k = 0; k < deep; k++)
                    v->c[(n * rows + i) * columns + j] += x[(n * rows + i) * deep + k] *
                        y[((of_b == 1 ? 0 : n) * deep + k) * columns + j];
    *out = v;
    return 0;
}

static int tile(struct import *m, struct value **in, int n_in, struct value **out)
{
    int64_t times[RANK], d[RANK], count = 1, i[RANK] = {0};
    const struct axes row = axes_of(in[0]->at.n, in[0]->at.d);
    const double *c = fixed_numbers(m, in[0]);
    if (!c || ints_of(m, NULL, n_in > 1 ? in[1] : NULL, times) != row.n)
        return c ? import_fail(m, "its repeats are not known") : -1;
    for (int k = 0; k < row.n; k++) {
        d[k] = row.d[k];
        if (times[k] < 1 || __builtin_mul_overflow(d[k], times[k], &d[k]) ||
            __builtin_mul_overflow(count, d[k], &count) || count > FOLD_MOST)
            return import_fail(m, "more than %d known numbers", FOLD_MOST);
    }
    struct value *v = value_fixed(m, row.n, d, in[0]->whole);
    for (int64_t k = 0; k < count; k++) {
        int64_t at = 0;
        for (int x = 0; x < row.n; x++) at += row.stride[x] * (i[x] % row.d[x]);
        v->c[k] = c[at];
        for (int x = row.n; x-- > 0 && ++i[x] == d[x];) i[x] = 0;
    }
    *out = v;
    return 0;
}

static int fold(struct import *m, struct value **in, int n_in, struct value **out)
{
    const int f = fold_find(m->node->op_type);
    if (f == F_MOD && attr_int(m, "fmod", 0)) return import_fail(m, "fmod");
    while (n_in > 0 && !in[n_in - 1]) n_in--;
    for (int i = 0; i < n_in; i++) if (!in[i]) return import_fail(m, "an input is missing");
    if (f < F_UNARY_END) return n_in == 1 ? elements(m, (enum fold)f, in, 1, out) : import_fail(m, "its inputs");
    if ((f == F_MIN || f == F_MAX) && n_in == 1) { *out = in[0]; return 0; }
    if (f < F_BINARY_END) return n_in == 2 ? elements(m, (enum fold)f, in, 2, out) : import_fail(m, "its inputs");
    if (!n_in) return import_fail(m, "it has no inputs");
    switch (f) {
    case F_WHERE: return n_in == 3 ? elements(m, F_WHERE, in, 3, out) : import_fail(m, "its inputs");
    case F_RANGE: return range(m, in, n_in, out);
    case F_FULL: return full(m, in[0], out);
    case F_CONCAT: return concat(m, in, n_in, out);
    case F_GATHER: return n_in == 2 ? gather(m, in, out) : import_fail(m, "its inputs");
    case F_GATHER_ND: return n_in == 2 ? gather_nd(m, in, out) : import_fail(m, "its inputs");
    case F_TRILU: return trilu(m, in, n_in, out);
    case F_CUMSUM: return cumsum(m, in, n_in, out);
    case F_SUM: return reduce(m, false, in, n_in, out);
    case F_MEAN: return reduce(m, true, in, n_in, out);
    case F_MATMUL: return n_in == 2 ? matmul(m, in, out) : import_fail(m, "its inputs");
    case F_TILE: return tile(m, in, n_in, out);
    default:
        *out = value_fixed(m, 0, NULL, true);
        (*out)->c[0] = (double)axes_count(&in[0]->at);
        return 0;
    }
}

int import_fold(struct import *m, struct value **in, int n_in, struct value **out, int n_out)
{
    bool f64 = false;
    if (fold(m, in, n_in, out)) return -1;
    struct value *v = *out;
    for (int i = 0; i < n_in; i++) {
        if (v == in[i]) return 0;
        f64 |= in[i] && in[i]->f64;
    }
    v->f64 = f64 && !v->whole;
    for (int64_t i = 0; !v->whole && !f64 && i < v->count; i++) v->c[i] = (double)(float)v->c[i];
    return 0;
}
