/* Operators as nodes of ONNX, opset 17. What is said of torch's exporter is so that other programs know the pattern. */
#include <math.h>
#include <stdio.h>
#include "model/onnx/write_int.h"
#include "model/ops/adaptive.h"
#include "model/ops/attention.h"
#include "model/ops/group_norm.h"
#include "model/ops/rms_norm.h"
#include "model/ops/rotary.h"
#include "model/ops/slice.h"
#include "model/ops/softmax.h"
#include "model/ops/upsample.h"

static const char *step2(struct onnx_writer *w, const char *op, const char *a, const char *b)
{
    return writer_step(w, op, INPUTS(a, b), NULL);
}
static const char *step1(struct onnx_writer *w, const char *op, const char *a)
{
    return writer_step(w, op, INPUTS(a), NULL);
}
static void end2(struct onnx_writer *w, const char *op, const char *a, const char *b)
{
    writer_end(w, op, INPUTS(a, b), NULL);
}
static void end1(struct onnx_writer *w, const char *op) { writer_end(w, op, INPUTS(w->in[0]), NULL); }

/* ---- shapes ------------------------------------------------------------------------------------------------------ */

/* The dimensions of a sample of this shape as the value has them, behind the first, `samples`. Returns their number. */
static int value_dims(const struct onnx_writer *w, const struct shape *s, int64_t samples, int64_t dim[MAX_DIMS + 1])
{
    dim[0] = samples;
    for (int i = 0; i < s->n; i++) dim[writer_axis(w, s->n, i)] = s->d[i];
    return s->n + 1;
}

/* The first dimension of a Reshape: 0 keeps that of the input. */
static const char *reshape(struct onnx_writer *w, const char *x, int n, const int64_t *dim)
{
    return step2(w, "Reshape", x, writer_ints(w, n, dim));
}
static void end_reshape(struct onnx_writer *w, const char *x)
{
    int64_t dim[MAX_DIMS + 1];
    const int n = value_dims(w, writer_out_shape(w), 0, dim);
    end2(w, "Reshape", x, writer_ints(w, n, dim));
}

static const char *transpose(struct onnx_writer *w, const char *x, int n, const int64_t *order)
{
    return writer_step(w, "Transpose", INPUTS(x), ATTRS(A_VALUES("perm", n, order)));
}

/* A parameter of one value a channel, for a value with channels first. */
static const char *of_channels(struct onnx_writer *w, int slot)
{
    const int n = writer_out_shape(w)->n;
    const char *p = writer_param(w, slot);
    int64_t dim[MAX_DIMS];
    if (n < 2 || shape_count(&w->g->param[w->node->param[slot]].shape) == 1) return p;
    dim[0] = -1;
    for (int i = 1; i < n; i++) dim[i] = 1;
    return reshape(w, p, n, dim);
}

/* ---- products ---------------------------------------------------------------------------------------------------- */

static const char *bias(struct onnx_writer *w) { return w->node->n_param > 1 ? writer_param(w, 1) : NULL; }

/* The attributes of windows. pads: before all axes, then behind. */
struct onnx_windows { int64_t kernel[3], stride[3], dilation[3], pads[6], more[3]; int n; };
static struct onnx_windows windows_of(const struct onnx_writer *w)
{
    static const char *const name[] = {"kernel", "stride", "dilation", "padding", "output_padding"};
    struct onnx_windows x = {.n = writer_shape(w)->n - 1};
    int64_t *const to[] = {x.kernel, x.stride, x.dilation, x.pads, x.more};
    for (int k = 0; k < 5; k++) {
        const struct attr_value *v = node_attr(w->node, name[k]);
        for (int i = 0; v && i < x.n; i++) to[k][i] = space_value(v, i);
    }
    for (int i = 0; i < x.n; i++) x.pads[x.n + i] = x.pads[i];
    return x;
}
#define WINDOWS(x) A_VALUES("kernel_shape", (x).n, (x).kernel), A_VALUES("strides", (x).n, (x).stride), \
                   A_VALUES("pads", 2 * (x).n, (x).pads)

static void convolution(struct onnx_writer *w)
{
    const struct onnx_windows x = windows_of(w);
    const bool turned = w->node->op->category == OP_CONV_TRANSPOSED;
    const struct onnx_attr at[] = {WINDOWS(x), A_VALUES("dilations", x.n, x.dilation),
                                   A_NUMBER("group", node_attr(w->node, "groups")->i[0]),
                                   turned ? (struct onnx_attr)A_VALUES("output_padding", x.n, x.more)
                                          : (struct onnx_attr){0}, {0}};
    writer_end(w, turned ? "ConvTranspose" : "Conv", INPUTS(w->in[0], writer_param(w, 0), bias(w)), at);
}

static void linear(struct onnx_writer *w)
{
    const bool turned = w->g->param[w->node->param[0]].turned;
    if (writer_shape(w)->n == 1) {
        writer_end(w, "Gemm", INPUTS(w->in[0], writer_param(w, 0), bias(w)), ATTRS(A_NUMBER("transB", !turned)));
        return;
    }
    const char *weight = writer_matrix(w, 0, true);
    if (w->node->n_param > 1) end2(w, "Add", step2(w, "MatMul", w->in[0], weight), writer_param(w, 1));
    else end2(w, "MatMul", w->in[0], weight);
}

static void embedding(struct onnx_writer *w) { end2(w, "Gather", writer_matrix(w, 0, false), w->in[0]); }

/* ---- norms ------------------------------------------------------------------------------------------------------- */

static void batch_norm(struct onnx_writer *w)
{
    const char *p[4];
    for (int i = 0; i < 4; i++) p[i] = writer_param(w, i);
    writer_end(w, "BatchNormalization", INPUTS(w->in[0], p[0], p[1], p[2], p[3]),
               ATTRS(A_FLOAT("epsilon", node_attr(w->node, "eps")->r),
                     A_FLOAT("momentum", 1 - node_attr(w->node, "momentum")->r)));
}

static void layer_norm(struct onnx_writer *w)
{
    writer_end(w, "LayerNormalization", INPUTS(w->in[0], writer_param(w, 0), bias(w)),
               ATTRS(A_NUMBER("axis", -1), A_FLOAT("epsilon", node_attr(w->node, "eps")->r)));
}

/* For each head by itself the channels are split. */
static void rms_norm(struct onnx_writer *w)
{
    const struct rms_norm r = rms_norm_of(w->g, w->node, 1);
    const int64_t heads[] = {0, r.points, r.heads, r.width}, last = -1;
    const char *x = r.heads > 1 ? reshape(w, w->in[0], 4, heads) : w->in[0],
               *square = step2(w, "Pow", x, writer_number(w, 2)),
               *mean = writer_step(w, "ReduceMean", INPUTS(square), ATTRS(A_VALUES("axes", 1, &last))),
               *root = step1(w, "Sqrt", step2(w, "Add", mean, writer_number(w, r.eps))),
               *y = step2(w, "Div", x, root), *weight = writer_param(w, 0);
    if (r.heads > 1) end_reshape(w, step2(w, "Mul", y, weight));
    else end2(w, "Mul", y, weight);
}

static const char *all_equal(struct onnx_writer *w, int64_t n, float x)
{
    const struct shape s = {1, {n}};
    float *all = arena_alloc(w->mem, (size_t)n * sizeof *all);
    for (int64_t i = 0; i < n; i++) all[i] = x;
    return writer_floats(w, arena_printf(w->mem, "const/%lld times %g", (long long)n, x), &s, all);
}

/* GroupNormalization of opset 18 was a mistake of the standard; so it is written as torch's exporter does. */
static void group_norm(struct onnx_writer *w)
{
    const struct group_norm d = group_norm_of(w->g, w->node);
    const bool single = d.groups == d.c && writer_shape(w)->n > 1;
    const char *in[2];
    for (int i = 0; i < 2; i++) in[i] = single && d.affine ? writer_param(w, i) : all_equal(w, d.groups, !i);
    const int64_t groups[] = {0, d.groups, d.width * d.points};
    const char *x = single ? w->in[0] : reshape(w, w->in[0], 3, groups);
    const struct onnx_attr at[] = {A_FLOAT("epsilon", d.eps), {0}};
    if (single) writer_end(w, "InstanceNormalization", INPUTS(x, in[0], in[1]), at);
    else {
        x = writer_step(w, "InstanceNormalization", INPUTS(x, in[0], in[1]), at);
        if (!d.affine) { end_reshape(w, x); return; }
        int64_t dim[MAX_DIMS + 1];
        const int n = value_dims(w, writer_out_shape(w), 0, dim);
        x = step2(w, "Mul", reshape(w, x, n, dim), of_channels(w, GN_WEIGHT));
        end2(w, "Add", x, of_channels(w, GN_BIAS));
    }
}

/* ---- functions of one value -------------------------------------------------------------------------------------- */

static void relu(struct onnx_writer *w) { end1(w, "Relu"); }
static void sigmoid(struct onnx_writer *w) { end1(w, "Sigmoid"); }
static void hyperbolic(struct onnx_writer *w) { end1(w, "Tanh"); }
static void hardswish(struct onnx_writer *w) { end1(w, "HardSwish"); }
static void times(struct onnx_writer *w) { end2(w, "Mul", w->in[0], writer_number(w, unary_attr(w->node))); }
static void silu(struct onnx_writer *w) { end2(w, "Mul", w->in[0], step1(w, "Sigmoid", w->in[0])); }

static void relu6(struct onnx_writer *w)
{
    writer_end(w, "Clip", INPUTS(w->in[0], writer_number(w, 0), writer_number(w, 6)), NULL);
}
static void elu(struct onnx_writer *w)
{
    writer_end(w, "Elu", INPUTS(w->in[0]), ATTRS(A_FLOAT("alpha", unary_attr(w->node))));
}
static void leaky_relu(struct onnx_writer *w)
{
    writer_end(w, "LeakyRelu", INPUTS(w->in[0]), ATTRS(A_FLOAT("alpha", unary_attr(w->node))));
}
static void hardsigmoid(struct onnx_writer *w)
{
    writer_end(w, "HardSigmoid", INPUTS(w->in[0]), ATTRS(A_FLOAT("alpha", 1.0 / 6), A_FLOAT("beta", 0.5)));
}

/* Gelu is an operator since opset 20. */
static void gelu(struct onnx_writer *w)
{
    const char *x = w->in[0], *y;
    if (unary_attr(w->node) != 0) {
        y = step2(w, "Mul", step2(w, "Pow", x, writer_number(w, 3)), writer_number(w, 0.044715));
        y = step2(w, "Mul", step2(w, "Add", x, y), writer_number(w, sqrt(2 / M_PI)));
        y = step1(w, "Tanh", y);
    } else y = step1(w, "Erf", step2(w, "Div", x, writer_number(w, sqrt(2))));
    y = step2(w, "Mul", x, step2(w, "Add", y, writer_number(w, 1)));
    end2(w, "Mul", y, writer_number(w, 0.5));
}

static void prelu(struct onnx_writer *w) { end2(w, "PRelu", w->in[0], of_channels(w, 0)); }
static void scale(struct onnx_writer *w) { end2(w, "Mul", w->in[0], writer_param(w, 0)); }
static void softmax(struct onnx_writer *w)
{
    const int64_t axis = writer_axis(w, writer_shape(w)->n, 0);
    writer_end(w, softmax_is_log(w->node) ? "LogSoftmax" : "Softmax", INPUTS(w->in[0]), ATTRS(A_NUMBER("axis", axis)));
}

/* ---- pooling and size -------------------------------------------------------------------------------------------- */

static void max_pool(struct onnx_writer *w)
{
    const struct onnx_windows x = windows_of(w);
    writer_end(w, "MaxPool", INPUTS(w->in[0]), ATTRS(WINDOWS(x)));
}
static void avg_pool(struct onnx_writer *w)
{
    const struct onnx_windows x = windows_of(w);
    writer_end(w, "AveragePool", INPUTS(w->in[0]), ATTRS(WINDOWS(x), A_NUMBER("count_include_pad", 1)));
}
static void global_avg_pool(struct onnx_writer *w) { end1(w, "GlobalAveragePool"); }

/* The matrix of means, [out][in], along an axis of space. */
static const char *means(struct onnx_writer *w, const struct adaptive *a, int d)
{
    const struct shape s = {2, {a->out[d], a->in[d]}};
    float *x = arena_alloc(w->mem, (size_t)shape_count(&s) * sizeof *x);
    for (int64_t o = 0; o < a->out[d]; o++) {
        const struct window_span of = adaptive_span(a, d, o);
        for (int64_t i = of.from; i < of.to; i++) x[o * a->in[d] + i] = 1 / (float)(of.to - of.from);
    }
    return writer_floats(w, arena_printf(w->mem, "const/means %lld of %lld", (long long)a->out[d], (long long)a->in[d]),
                       &s, x);
}

/* Windows of one size are average pooling. Otherwise a product along each axis makes the means. */
static void adaptive_avg_pool(struct onnx_writer *w)
{
    const struct shape *in = writer_shape(w);
    const struct adaptive a = adaptive_of(w->g, w->node, 1);
    struct onnx_windows x = {.n = in->n - 1};
    bool equal = true, same = true;
    for (int i = 0, d = 3 - x.n; i < x.n; i++, d++) {
        equal &= a.in[d] % a.out[d] == 0;
        same &= a.in[d] == a.out[d];
        x.kernel[i] = x.stride[i] = a.in[d] / a.out[d];
    }
    if (same) writer_same(w);
    else if (equal) writer_end(w, "AveragePool", INPUTS(w->in[0]), ATTRS(WINDOWS(x)));
    else {
        const char *v = w->in[0];
        int64_t before = in->d[0], behind = a.in[0] * a.in[1] * a.in[2];
        for (int d = 0; d < 3; d++) {
            behind /= a.in[d];
            const int64_t dim[] = {0, before, a.in[d], behind};
            if (a.in[d] != a.out[d]) v = step2(w, "MatMul", means(w, &a, d), reshape(w, v, 4, dim));
            before *= a.out[d];
        }
        end_reshape(w, v);
    }
}

/* The factor of an axis such that a reader, which rounds down, gets the size. */
static float resize_factor(int64_t in, int64_t out)
{
    float f = (float)out / (float)in;
    while ((int64_t)floorf((float)in * f) < out) f = nextafterf(f, INFINITY);
    return f;
}

/* Points of an axis that the nearest ones below are taken from. Resize computes them in float. */
static const char *pick(struct onnx_writer *w, const struct upsample *u, int d, const char *x, int64_t axis)
{
    int64_t *at = arena_alloc(w->mem, (size_t)u->out[d] * sizeof *at);
    for (int64_t o = 0; o < u->out[d]; o++) at[o] = upsample_tap(u, d, o).at;
    return writer_step(w, "Gather", INPUTS(x, writer_ints(w, (int)u->out[d], at)), ATTRS(A_NUMBER("axis", axis)));
}

static void upsample(struct onnx_writer *w)
{
    const struct upsample u = upsample_of(w->g, w->node, 1, 1);
    const int n = writer_shape(w)->n, first = 4 - n;        /* of space, in u */
    const struct shape s = {1, {n + 1}};
    float factor[MAX_DIMS + 1] = {1, 1};
    bool whole = true;
    struct text name = {0};
    const char *x = w->in[0];
    for (int d = first; d < 3; d++) {
        factor[2 + d - first] = resize_factor(u.in[d], u.out[d]);
        whole &= u.out[d] % u.in[d] == 0;
    }
    if (!u.linear && !whole) {
        for (int d = first; d < 3; d++) if (u.in[d] != u.out[d]) x = pick(w, &u, d, x, 2 + d - first);
        end_reshape(w, x);
        return;
    }
    text_add(&name, "const/factors");
    for (int i = 0; i <= n; i++) text_add(&name, " %.9g", factor[i]);
    const char *factors = writer_floats(w, arena_strdup(w->mem, name.s), &s, factor);
    text_free(&name);
    writer_end(w, "Resize", INPUTS(x, "", factors),
               ATTRS(A_TEXT("mode", u.linear ? "linear" : "nearest"),
                   A_TEXT("coordinate_transformation_mode", !u.linear   ? "asymmetric"
                                                            : u.corners ? "align_corners"
                                                                        : "half_pixel"),
                   A_TEXT("nearest_mode", "floor")));
}

/* Points in a row need not have their channels first, nor does a single point. */
static void flatten(struct onnx_writer *w)
{
    const int64_t first = node_attr(w->node, "first")->i[0];
    if (first != 1 && shape_count(writer_shape(w)) != writer_shape(w)->d[0]) writer_first(w);
    if (first) end_reshape(w, w->in[0]);
    else end1(w, "Flatten");
}

/* ---- several tensors --------------------------------------------------------------------------------------------- */

static void sum(struct onnx_writer *w)
{
    const char *x = w->in[0];
    for (int i = 1; i < w->node->n_in - 1; i++) x = step2(w, "Add", x, w->in[i]);
    end2(w, "Add", x, w->in[w->node->n_in - 1]);
}

static void multiply(struct onnx_writer *w)
{
    const int n = writer_shape(w)->n;
    int64_t dim[MAX_DIMS + 1] = {0};
    const char *factors = w->in[1];
    for (int i = 1; i <= n; i++) dim[i] = 1;
    dim[w->last ? n : 1] = -1;
    if (w->g->tensor[w->node->in[1]].shape.n < n) factors = reshape(w, factors, n + 1, dim);
    end2(w, "Mul", w->in[0], factors);
}

static const char *const *inputs_all(struct onnx_writer *w)
{
    const char **all = arena_alloc(w->mem, (MAX_IN + 1) * sizeof *all);
    for (int i = 0; i < w->node->n_in; i++) all[i] = w->in[i];
    return all;
}
static void concat(struct onnx_writer *w)
{
    writer_end(w, "Concat", inputs_all(w), ATTRS(A_NUMBER("axis", writer_axis(w, writer_shape(w)->n, 0))));
}

static void slice(struct onnx_writer *w)
{
    const struct attr_value *a = w->node->attr;
    const int64_t first = a[SLICE_FIRST].i[0], end = first + a[SLICE_COUNT].i[0],
                  axis = writer_axis(w, writer_shape(w)->n, a[SLICE_DIM].i[0]);
    const char *from = writer_ints(w, 1, &first), *to = writer_ints(w, 1, &end);
    writer_end(w, "Slice", INPUTS(w->in[0], from, to, writer_ints(w, 1, &axis)), NULL);
}

static void split(struct onnx_writer *w)
{
    const struct attr_value *a = w->node->attr;
    writer_end(w, "Split", INPUTS(w->in[0], writer_ints(w, a[SPLIT_SIZES].n, a[SPLIT_SIZES].i)),
               ATTRS(A_NUMBER("axis", writer_axis(w, writer_shape(w)->n, a[SPLIT_DIM].i[0]))));
}

static void repeat(struct onnx_writer *w)
{
    int64_t times[MAX_DIMS + 1];
    for (int i = 0; i <= MAX_DIMS; i++) times[i] = 1;
    const int n = writer_shape(w)->n;
    times[writer_axis(w, n, 0)] = w->node->attr[0].i[0];
    end2(w, "Tile", w->in[0], writer_ints(w, n + 1, times));
}

/* ---- sequences: channels are last -------------------------------------------------------------------------------- */

static void positions(struct onnx_writer *w)
{
    int64_t dim[MAX_DIMS + 1];
    const int n = value_dims(w, writer_shape(w), 1, dim);
    const char *weight = writer_param(w, 0);
    end2(w, "Add", w->in[0], n == 3 ? weight : reshape(w, weight, n, dim));
}

static void prepend(struct onnx_writer *w)
{
    const struct shape *s = &w->g->param[w->node->param[0]].shape;
    const char *n = writer_step(w, "Shape", INPUTS(w->in[0]), ATTRS(A_NUMBER("start", 0), A_NUMBER("end", 1))),
               *shape = writer_step(w, "Concat", INPUTS(n, writer_ints(w, 2, &s->d[1])), ATTRS(A_NUMBER("axis", 0)));
    const char *points = step2(w, "Expand", writer_param(w, 0), shape);
    writer_end(w, "Concat", INPUTS(points, w->in[0]), ATTRS(A_NUMBER("axis", 1)));
}

/* Cosines or sines, [positions][1][width], the same for both halves of a head. */
static const char *rotary_table(struct onnx_writer *w, const struct rotary *r, bool sine)
{
    const struct shape s = {3, {r->points, 1, 2 * r->half}};
    struct text name = {0};
    text_add(&name, "const/%s %lldx%lld", sine ? "sin" : "cos", (long long)r->points, (long long)r->half);
    for (int i = ROTARY_THETA; i <= ROTARY_OLD; i++)
        text_add(&name, " %.17g", w->node->op->attr[i].type == A_REAL ? w->node->attr[i].r
                                                                      : (double)w->node->attr[i].i[0]);
    const char *known = arena_strdup(w->mem, name.s);
    text_free(&name);
    if (writer_known(w, known)) return known;
    float *x = arena_alloc(w->mem, (size_t)shape_count(&s) * sizeof *x);
    for (int64_t p = 0; p < r->points; p++)
        for (int64_t i = 0; i < 2 * r->half; i++) {
            const float angle = rotary_angle(p, rotary_rate(w->node, i % r->half, r->half));
            x[p * 2 * r->half + i] = (float)(sine ? sin(angle) : cos(angle));
        }
    return writer_floats(w, known, &s, x);
}

/* The same for positions that are an input. */
static const char *rotary_angles(struct onnx_writer *w, const struct rotary *r)
{
    const struct shape s = {1, {2 * r->half}};
    const int64_t dim[] = {0, r->points, 1, 1};
    float *rate = arena_alloc(w->mem, (size_t)s.d[0] * sizeof *rate);
    for (int64_t i = 0; i < s.d[0]; i++) rate[i] = rotary_rate(w->node, i % r->half, r->half);
    const char *rates = writer_floats(w, arena_printf(w->mem, "%s/rates", w->node->name), &s, rate),
               *at = writer_step(w, "Cast", INPUTS(w->in[1]), ATTRS(A_NUMBER("to", 1)));
    return step2(w, "Mul", reshape(w, at, 4, dim), rates);
}

/* x cos + (-x2, x1) sin, for the halves x1 and x2 of a head, as transformers does it. */
static void rotary(struct onnx_writer *w)
{
    const struct rotary r = rotary_of(w->g, w->node, 1);
    const int64_t heads[] = {0, r.points, r.heads, 2 * r.half}, halves[] = {r.half, r.half};
    const char *x = reshape(w, w->in[0], 4, heads), *half[2], *table[2];
    if (w->in[1]) {
        const char *angles = rotary_angles(w, &r);
        table[0] = step1(w, "Cos", angles);
        table[1] = step1(w, "Sin", angles);
    } else for (int i = 0; i < 2; i++) table[i] = rotary_table(w, &r, i);
    writer_steps(w, "Split", INPUTS(x, writer_ints(w, 2, halves)), ATTRS(A_NUMBER("axis", 3)), 2, half);
    const char *turned = writer_step(w, "Concat", INPUTS(step1(w, "Neg", half[1]), half[0]),
                                   ATTRS(A_NUMBER("axis", 3)));
    const char *a = step2(w, "Mul", x, table[0]), *b = step2(w, "Mul", turned, table[1]);
    end_reshape(w, step2(w, "Add", a, b));
}

/* 0 where a position sees another, -infinity above the diagonal: [positions][positions]. */
static const char *causal_mask(struct onnx_writer *w, int64_t points)
{
    const int64_t dim[] = {points, points}, one = 1;
    const char *all = arena_printf(w->mem, "const/hidden %lld", (long long)points),
               *mask = arena_printf(w->mem, "const/causal %lld", (long long)points);
    writer_shared(w, all, "ConstantOfShape", INPUTS(writer_ints(w, 2, dim)), ATTRS(A_FILLED("value", -INFINITY)));
    writer_shared(w, mask, "Trilu", INPUTS(all, writer_ints(w, 1, &one)), ATTRS(A_NUMBER("upper", 1)));
    return mask;
}

/* The same where a position sees only those of its document, [samples][1][positions][positions]: point i none before
 * i - p. */
static const char *document_mask(struct onnx_writer *w, int64_t points)
{
    const int64_t row[] = {0, points}, column[] = {0, 1, points, 1};
    const char *indices = writer_indices(w, points),
               *p = reshape(w, writer_step(w, "Cast", INPUTS(w->in[3]), ATTRS(A_NUMBER("to", 7))), 2, row),
               *first = step2(w, "Min", step2(w, "Sub", indices, p), indices),
               *hidden = step2(w, "Less", indices, reshape(w, first, 4, column));
    return writer_step(w, "Where", INPUTS(hidden, writer_number(w, -INFINITY), writer_number(w, 0)), NULL);
}

/* Queries and values, [samples][heads][points][width], or keys, [samples][heads][width][points]. A head of keys and
 * values that several heads of queries share is there several times, as transformers does it. */
static const char *heads_apart(struct onnx_writer *w, const struct attention *a, const char *x, int which)
{
    static const int64_t order[][4] = {{0, 2, 1, 3}, {0, 2, 3, 1}};
    const bool keys = which == 1;
    const int64_t heads = which ? a->kv_heads : a->heads, times[] = {1, 1, a->heads / heads, 1, 1},
                  rows = keys ? a->width : a->points, columns = keys ? a->points : a->width,
                  split[] = {0, a->points, heads, a->width}, one[] = {0, heads, 1, rows, columns},
                  all[] = {0, a->heads, rows, columns};
    x = transpose(w, reshape(w, x, 4, split), 4, order[keys]);
    if (heads == a->heads) return x;
    return reshape(w, step2(w, "Expand", reshape(w, x, 5, one), writer_ints(w, 5, times)), 4, all);
}

static void attention(struct onnx_writer *w)
{
    static const int64_t order[] = {0, 2, 1, 3};
    const struct attention a = attention_of(w->g, w->node, 1);
    const int64_t all = a.heads * a.width, thirds[] = {all, all, all};
    const char *in[3] = {w->in[0], w->in[1], w->in[2]};
    if (!a.apart)
        writer_steps(w, "Split", INPUTS(w->in[0], writer_ints(w, 3, thirds)),
                     ATTRS(A_NUMBER("axis", writer_shape(w)->n)), 3, in);
    for (int i = 0; i < 3; i++) in[i] = heads_apart(w, &a, in[i], i);
    const char *x = step2(w, "Mul", step2(w, "MatMul", in[0], in[1]), writer_number(w, a.scale));
    if (a.causal) x = step2(w, "Add", x, causal_mask(w, a.points));
    if (a.causal && w->in[3]) x = step2(w, "Add", x, document_mask(w, a.points));
    x = step2(w, "MatMul", writer_step(w, "Softmax", INPUTS(x), ATTRS(A_NUMBER("axis", -1))), in[2]);
    end_reshape(w, transpose(w, x, 4, order));
}

/* ---- the table --------------------------------------------------------------------------------------------------- */

static const struct onnx_op ops[] = {
    {"conv", ONNX_FIRST, convolution}, {"conv_transpose", ONNX_FIRST, convolution}, {"linear", ONNX_LAST, linear},
    {"embedding", ONNX_LAST, embedding}, {"scale", ONNX_FIRST, scale}, {"prepend", ONNX_LAST, prepend},
    {"positions", ONNX_LAST, positions}, {"prelu", ONNX_FIRST, prelu},
    {"batch_norm", ONNX_FIRST, batch_norm}, {"layer_norm", ONNX_LAST, layer_norm}, {"rms_norm", ONNX_LAST, rms_norm},
    {"group_norm", ONNX_FIRST, group_norm}, {"instance_norm", ONNX_FIRST, group_norm},
    {"relu", ONNX_ANY, relu}, {"relu6", ONNX_ANY, relu6}, {"leaky_relu", ONNX_ANY, leaky_relu}, {"elu", ONNX_ANY, elu},
    {"silu", ONNX_ANY, silu}, {"gelu", ONNX_ANY, gelu}, {"hardswish", ONNX_ANY, hardswish}, {"times", ONNX_ANY, times},
    {"sigmoid", ONNX_ANY, sigmoid}, {"tanh", ONNX_ANY, hyperbolic}, {"hardsigmoid", ONNX_ANY, hardsigmoid},
    {"softmax", ONNX_ANY, softmax}, {"dropout", ONNX_ANY, writer_same}, {"stochastic_depth", ONNX_ANY, writer_same},
    {"max_pool", ONNX_FIRST, max_pool}, {"avg_pool", ONNX_FIRST, avg_pool},
    {"adaptive_avg_pool", ONNX_FIRST, adaptive_avg_pool}, {"global_avg_pool", ONNX_FIRST, global_avg_pool},
    {"upsample", ONNX_FIRST, upsample}, {"flatten", ONNX_ANY, flatten},
    {"add", ONNX_ANY, sum}, {"multiply", ONNX_ANY, multiply}, {"concat", ONNX_ANY, concat}, {"slice", ONNX_ANY, slice},
    {"split", ONNX_ANY, split}, {"repeat", ONNX_ANY, repeat},
    {"rotary", ONNX_LAST, rotary}, {"attention", ONNX_LAST, attention}};

const struct onnx_op *onnx_op_find(const char *name)
{
    for (size_t i = 0; i < sizeof ops / sizeof *ops; i++) if (!strcmp(ops[i].name, name)) return &ops[i];
    return NULL;
}
