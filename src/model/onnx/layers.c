/* Layers of convolutional networks: an operator of ONNX is one of ours. */
#include <math.h>
#include <stdio.h>
#include "model/onnx/value.h"

/* "3x5", or "3" if all are the same. 65: a number beyond WINDOW_MOST. */
static int dims_add(struct import *m, struct text *to, const char *name, const int64_t *v, int n)
{
    bool same = true;
    for (int i = 0; i < n; i++) {
        if (v[i] < 0 || v[i] > WINDOW_MOST) return import_fail(m, "%s of %lld", name, (long long)v[i]);
        same &= v[i] == v[0];
    }
    text_add(to, " %s=", name);
    for (int i = 0; i < (same ? 1 : n); i++) text_add(to, "%s%lld", i ? "x" : "", (long long)v[i]);
    return 0;
}

/* Windows of a convolution or a pooling. n: dimensions of space. before and behind: zeros on the two sides of the
 * points. */
struct windows { int n; int64_t kernel[RANK], stride[RANK], before[RANK], behind[RANK], dilation[RANK]; };

static void same_pads(const struct axes *at, bool upper, struct windows *w)
{
    for (int i = 0; i < w->n; i++) {
        const int64_t in = at->d[i + 2], out = (in + w->stride[i] - 1) / w->stride[i];
        int64_t all = (out - 1) * w->stride[i] + (w->kernel[i] - 1) * w->dilation[i] + 1 - in;
        all = all < 0 ? 0 : all;
        w->before[i] = upper ? all / 2 : all - all / 2;
        w->behind[i] = all - w->before[i];
    }
}

static int windows_of(struct import *m, const struct axes *at, const struct axes *weight, struct windows *w)
{
    int64_t pads[RANK] = {0};
    const char *pad = attr_word(m, "auto_pad", "NOTSET");
    *w = (struct windows){.n = at->n - 2};
    for (int i = 0; i < RANK; i++) w->stride[i] = w->dilation[i] = w->kernel[i] = 1;
    if (w->n < 1 || w->n > 3) return import_fail(m, "an input of %d dimensions", at->n);
    for (int i = 0; weight && i < w->n && i + 2 < weight->n; i++) w->kernel[i] = weight->d[i + 2];
    const struct { const char *name; int64_t *to; } of[] = {
        {"kernel_shape", w->kernel}, {"strides", w->stride}, {"dilations", w->dilation}};
    for (size_t i = 0; i < sizeof of / sizeof *of; i++)
        if (attribute(m, of[i].name) && ints_of(m, of[i].name, NULL, of[i].to) != w->n)
            return import_fail(m, "%s does not fit its input", of[i].name);
    for (int i = 0; i < w->n; i++) {
        if (w->kernel[i] < 1 || w->stride[i] < 1 || w->dilation[i] < 1) return import_fail(m, "windows below 1");
        if (w->kernel[i] > WINDOW_MOST || w->stride[i] > WINDOW_MOST || w->dilation[i] > WINDOW_MOST)
            return import_fail(m, "windows of more than %d points", WINDOW_MOST);
    }
    if (!strncmp(pad, "SAME", 4) && !strcmp(m->node->op_type, "ConvTranspose"))
        return import_fail(m, "auto_pad of a transposed convolution");
    if (attribute(m, "pads") && ints_of(m, "pads", NULL, pads) != 2 * w->n)
        return import_fail(m, "pads does not fit its input");
    for (int i = 0; i < 2 * w->n; i++)
        if (pads[i] && strcmp(pad, "NOTSET")) return import_fail(m, "pads beside auto_pad");
    if (!strncmp(pad, "SAME", 4)) {
        same_pads(at, !strcmp(pad, "SAME_UPPER"), w);
        return 0;
    }
    for (int i = 0; i < w->n; i++) {
        for (int k = i; k < 2 * w->n; k += w->n)
            if (pads[k] < 0 || pads[k] > WINDOW_MOST) return import_fail(m, "padding of %lld", (long long)pads[k]);
        w->before[i] = pads[i];
        w->behind[i] = pads[i + w->n];
    }
    return 0;
}

/* Our convolutions have as many zeros on each side. So where the sides differ, the windows get others, and their output
 * has more points than the file's: `count` of them from `first` on are the same. in: points of the input. */
static int sides_equal(struct import *m, struct windows *w, const int64_t *in, int64_t *first, int64_t *count)
{
    for (int i = 0; i < w->n; i++) {
        const int64_t reach = w->dilation[i] * (w->kernel[i] - 1) + 1, before = w->before[i],
                      left = in[i] + before + w->behind[i] - reach;
        if (left < 0) return import_fail(m, "it has no output");
        count[i] = left / w->stride[i] + 1;
        const int64_t wants = (count[i] - 1) * w->stride[i] + reach - before - in[i];   /* zeros behind */
        first[i] = wants > before ? (wants - before + w->stride[i] - 1) / w->stride[i] : 0;
        w->before[i] = before + first[i] * w->stride[i];
    }
    return 0;
}

/* The same of a transposed convolution, whose padding is what is cut off the sides of its output. longer: points that
 * are added to it. */
static int cuts_equal(struct import *m, struct windows *w, const int64_t *in, const int64_t *longer, int64_t *first,
                      int64_t *count)
{
    for (int i = 0; i < w->n; i++) {
        const int64_t before = w->before[i], behind = w->behind[i], least = before < behind ? before : behind;
        if (in[i] > WINDOW_MOST) return import_fail(m, "%lld points", (long long)in[i]);
        first[i] = before - least;
        count[i] = (in[i] - 1) * w->stride[i] + w->dilation[i] * (w->kernel[i] - 1) + 1 + longer[i] - before - behind;
        if (count[i] < 1) return import_fail(m, "it has no output");
        w->before[i] = least;
    }
    return 0;
}

/* The axes of a node's output: channels and points in a row behind the dimension of the batch. */
static struct axes natural(struct import *m, int tensor)
{
    const struct shape *s = &m->b->tensor.v[tensor].shape;
    int64_t d[MAX_DIMS + 1] = {1};
    for (int i = 0; i < s->n; i++) d[i + 1] = s->d[i];
    struct axes at = axes_of(s->n + 1, d);
    at.sample = m->open, at.outer = 1;
    return at;
}

static int spatial(struct import *m, struct value *v)
{
    const int t = v->at.n > 2 ? channels_of(m, v, 1) : import_fail(m, "an input of %d dimensions", v->at.n);
    if (t < 0) return -1;
    const struct axes at = natural(m, t);
    return axes_equal(&v->at, &at) ? t : import_fail(m, "its points are in another order, or were joined");
}

static int one_input(struct import *m, const char *op, const char *attrs, struct value *v, struct value **out)
{
    const int t = spatial(m, v), y = t < 0 ? -1 : emit(m, op, NULL, attrs, t);
    if (y < 0) return -1;
    const struct axes at = natural(m, y);
    *out = value_view(m, y, &at);
    return 0;
}

/* The Add that alone reads this node's output, if it adds a known number to each of the channels; else NULL. */
static const Onnx__Node *bias_find(const struct import *m, int n, int64_t channels, struct value **bias)
{
    const char *name = m->node->output[0];
    const int at = name_table_find(&m->reads, name);
    const struct reads *r = at < 0 ? NULL : &m->read[at];
    const Onnx__Node *x = r && r->n == 1 ? r->by : NULL;
    if (!x || !x->op_type || strcmp(x->op_type, "Add") || x->n_input != 2) return NULL;
    struct value *w = value_named(m, x->input[!strcmp(x->input[0], name)]);
    if (!is_fixed(w) || !w->from || w->at.n < n - 1 || w->at.n > n || !axes_along(&w->at, n, 1) ||
        axes_count(&w->at) != channels) return NULL;
    *bias = w;
    return x;
}

static bool is_zero(struct import *m, struct value *v)
{
    const double *c = fixed_numbers(m, v);
    bool zero = c != NULL;
    for (int64_t i = 0; zero && i < axes_count(&v->at); i++) zero = c[i] == 0;
    return zero;
}

static int import_conv(struct import *m, struct value **in, int n_in, struct value **out, int n_out)
{
    struct text attrs = {0};
    struct windows w;
    const bool turned = !strcmp(m->node->op_type, "ConvTranspose");
    struct value *bias = n_in > 2 ? in[2] : NULL;
    const Onnx__Node *added = NULL;
    const int64_t groups = attr_int(m, "group", 1);
    if (groups < 1 || groups > WINDOW_MOST) return import_fail(m, "%lld groups", (long long)groups);
    if (!is_fixed(in[1])) return import_fail(m, "its weight is not known");
    const bool padded = in[0]->kind == V_PADDED && !turned;
    struct value *x = padded ? in[0]->a : in[0];
    if (need_view(m, x) || windows_of(m, &in[0]->at, &in[1]->at, &w)) return -1;
    for (int i = 0; i < w.n && padded; i++)
        w.before[i] += in[0]->pads[i + 2], w.behind[i] += in[0]->pads[i + 2 + in[0]->at.n];
    if (turned && attribute(m, "output_shape")) return import_fail(m, "output_shape");
    if (in[1]->at.n < 3 || in[1]->at.n > MAX_DIMS) return import_fail(m, "a weight of %d dimensions", in[1]->at.n);
    const int t = spatial(m, x);
    if (t < 0) return -1;
    const int64_t channels = turned ? in[1]->at.d[1] * groups : in[1]->at.d[0];
    if (bias && is_fixed(bias) && (!bias->from || bias->constant) && is_zero(m, bias)) bias = NULL;
    if (!bias) added = bias_find(m, in[1]->at.n, channels, &bias);
    int64_t more[RANK] = {0}, first[RANK], count[RANK];
    const bool longer = turned && attribute(m, "output_padding");
    if (longer && ints_of(m, "output_padding", NULL, more) != w.n)
        return import_fail(m, "output_padding does not fit");
    bool differ = false;
    for (int i = 0; i < w.n; i++) {
        differ |= w.before[i] != w.behind[i];
        if (more[i] < 0 || more[i] > WINDOW_MOST) return import_fail(m, "output_padding of %lld", (long long)more[i]);
    }
    if (differ && (turned ? cuts_equal(m, &w, x->at.d + 2, more, first, count)
                          : sides_equal(m, &w, x->at.d + 2, first, count))) return -1;
    text_add(&attrs, "channels=%lld groups=%lld bias=%s", (long long)channels, (long long)groups, bias ? "yes" : "no");
    const char *name = node_name(m, in[1]);
    const int y = dims_add(m, &attrs, "kernel", w.kernel, w.n) || dims_add(m, &attrs, "stride", w.stride, w.n) ||
                  dims_add(m, &attrs, "padding", w.before, w.n) || dims_add(m, &attrs, "dilation", w.dilation, w.n) ||
                  (longer && dims_add(m, &attrs, "output_padding", more, w.n)) ? -1
                  : emit(m, turned ? "conv_transpose" : "conv", name, attrs.s, t);
    text_free(&attrs);
    if (y < 0 || take_weight(m, in[1], name, 0) || (bias && !is_fixed(bias)) ||
        (bias && take_weight(m, bias, name, 1)))
        return m->e->code ? -1 : import_fail(m, "its bias is not known");
    struct axes at = natural(m, y);
    for (int i = 0; i < w.n && differ; i++) at.offset += first[i] * at.stride[i + 2], at.d[i + 2] = count[i];
    *out = value_view(m, y, &at);
    (*out)->added = added;
    return differ && whole_of(m, *out) < 0 ? -1 : 0;
}

static int import_batch_norm(struct import *m, struct value **in, int n_in, struct value **out, int n_out)
{
    char attrs[80];
    const int t = in[0]->at.n > 1 ? channels_of(m, in[0], 1) : import_fail(m, "it has no channels");
    if (t < 0) return -1;
    for (int i = 1; i < 5; i++) if (!is_fixed(in[i])) return import_fail(m, "its weights are not known");
    snprintf(attrs, sizeof attrs, "eps=%.9g momentum=%.7f", attr_real(m, "epsilon", 1e-5),
             1 - attr_real(m, "momentum", 0.9));
    const char *name = node_name(m, in[1]);
    const int y = emit(m, "batch_norm", name, attrs, t);
    for (int i = 0; i < 4 && y >= 0; i++) if (take_weight(m, in[i + 1], name, i)) return -1;
    if (y < 0) return -1;
    *out = value_view(m, y, &in[0]->at);
    return 0;
}

static int import_pool(struct import *m, struct value **in, int n_in, struct value **out, int n_out)
{
    struct text attrs = {0};
    struct windows w;
    const bool most = *m->node->op_type == 'M';
    if (need_view(m, in[0]) || windows_of(m, &in[0]->at, NULL, &w)) return -1;
    bool padded = false, whole = true;
    for (int i = 0; i < w.n; i++) {
        if (w.before[i] != w.behind[i]) return import_fail(m, "padding that differs from side to side");
        const int64_t left = in[0]->at.d[i + 2] + 2 * w.before[i] - w.dilation[i] * (w.kernel[i] - 1) - 1;
        padded |= w.before[i] > 0;
        whole &= left % w.stride[i] == 0;
        if (w.dilation[i] != 1) return import_fail(m, "windows with gaps");
    }
    if (attr_int(m, "ceil_mode", 0) && !whole) return import_fail(m, "ceil_mode: windows beyond the padding");
    if (!most && padded && !attr_int(m, "count_include_pad", 0))
        return import_fail(m, "count_include_pad=0: a mean that leaves out its padding");
    if (n_out > 1 && m->node->n_output > 1 && *m->node->output[1]) return import_fail(m, "the places of maxima");
    const int bad = dims_add(m, &attrs, "kernel", w.kernel, w.n) || dims_add(m, &attrs, "stride", w.stride, w.n) ||
                    dims_add(m, &attrs, "padding", w.before, w.n) ||
                    one_input(m, most ? "max_pool" : "avg_pool", attrs.s, in[0], out);
    text_free(&attrs);
    return bad ? -1 : 0;
}

/* Resize and Upsample: the nearest point below, or linear between neighbours. */
static int import_resize(struct import *m, struct value **in, int n_in, struct value **out, int n_out)
{
    struct text attrs = {0};
    const bool old = *m->node->op_type == 'U' || m->opset < 11;
    const char *mode = attr_word(m, "mode", "nearest"),
               *where = old ? "asymmetric" : attr_word(m, "coordinate_transformation_mode", "half_pixel"),
               *round = old ? "floor" : attr_word(m, "nearest_mode", "round_prefer_floor");
    struct value *scales = n_in > (old ? 1 : 2) ? in[old ? 1 : 2] : NULL, *sizes = n_in > 3 ? in[3] : NULL;
    int64_t size[RANK], two[RANK];
    if (need_view(m, in[0])) return -1;
    const int n = in[0]->at.n;
    const bool linear = !strcmp(mode, "linear"), corners = !strcmp(where, "align_corners");
    if (sizes && ints_of(m, NULL, sizes, size) != n) return import_fail(m, "its sizes are not known");
    if (sizes && (twins_of(m, NULL, sizes, two) != n || !twins_fit(&in[0]->at, n, size, two) ||
                  (m->open && two[0] == size[0])))
        return import_fail(m, "it changes the number of samples, or its sizes depend on it");
    if (!sizes) {
        const double *c = is_fixed(scales) && axes_count(&scales->at) == n ? fixed_numbers(m, scales) : NULL;
        if (!c) return import_fail(m, "its scales are not known");
        for (int i = 0; i < n; i++) {
            size[i] = integer_of((double)floorf((float)in[0]->at.d[i] * (float)c[i]));
            if (fabs((double)size[i] - (double)in[0]->at.d[i] * c[i]) > 1e-3)
                return import_fail(m, "scales that do not give whole numbers of points");
        }
    }
    if (n < 3 || size[0] != in[0]->at.d[0] || size[1] != in[0]->at.d[1])
        return import_fail(m, "it changes more than the points of space");
    if (attr_int(m, "antialias", 0)) return import_fail(m, "antialias");
    if (strcmp(attr_word(m, "keep_aspect_ratio_policy", "stretch"), "stretch"))
        return import_fail(m, "keep_aspect_ratio_policy");
    bool multiple = true, twice = true;                  /* up to twice round_prefer_floor is floor */
    for (int i = 2; i < n; i++) {
        multiple &= size[i] % in[0]->at.d[i] == 0;
        twice &= multiple && size[i] <= 2 * in[0]->at.d[i];
        if (linear && !strcmp(where, "pytorch_half_pixel") && size[i] == 1 && in[0]->at.d[i] > 1)
            return import_fail(m, "pytorch_half_pixel to one point");
    }
    const bool floor = !strcmp(where, "asymmetric") &&
                       (!strcmp(round, "floor") || (twice && !strcmp(round, "round_prefer_floor"))),
               half = !strcmp(where, "half_pixel") && multiple && strstr(round, "prefer");
    if (linear ? !corners && strcmp(where, "half_pixel") && strcmp(where, "pytorch_half_pixel")
               : strcmp(mode, "nearest") || !(floor || half))
        return import_fail(m, "mode %s with %s and %s", mode, where, round);
    int bad = dims_add(m, &attrs, "size", size + 2, n - 2);
    if (linear) text_add(&attrs, " linear=yes align_corners=%s", corners ? "yes" : "no");
    bad = bad || one_input(m, "upsample", attrs.s, in[0], out);
    text_free(&attrs);
    return bad ? -1 : 0;
}

static int import_prelu(struct import *m, struct value **in, int n_in, struct value **out, int n_out)
{
    if (!is_fixed(in[1])) return import_fail(m, "its slope is not known");
    const int t = need_view(m, in[0]) || in[0]->at.n < 2 ? -1 : channels_of(m, in[0], 1);
    const int64_t slopes = axes_count(&in[1]->at);
    if (t < 0) return m->e->code ? -1 : import_fail(m, "it has no channels");
    if (slopes != 1 && (slopes != in[0]->at.d[1] || !axes_along(&in[1]->at, in[0]->at.n, 1)))
        return import_fail(m, "its slopes are not one for each channel");
    const char *name = node_name(m, in[1]);
    const int y = emit(m, "prelu", name, slopes == 1 ? "shared=yes" : "", t);
    if (y < 0 || take_weight(m, in[1], name, 0)) return -1;
    *out = value_view(m, y, &in[0]->at);
    return 0;
}

const struct import_row import_layers[] = {
    {"Conv", import_conv, 2, 0}, {"ConvTranspose", import_conv, 2, 0},
    {"BatchNormalization", import_batch_norm, 5, 0}, {"MaxPool", import_pool, 1, 0},
    {"AveragePool", import_pool, 1, 0}, {"GlobalAveragePool", import_global_mean, 1, 0},
    {"ReduceMean", import_reduce_mean, 1, 0}, {"Resize", import_resize, 1, 3}, {"Upsample", import_resize, 1, 0},
    {"PRelu", import_prelu, 2, 0}, {"LayerNormalization", import_layer_norm, 2, 0},
    {"RMSNormalization", import_rms_norm, 2, 0}, {"InstanceNormalization", import_instance_norm, 3, 0},
    {"GroupNormalization", import_group_norm, 3, 0}, {"MatMul", import_matmul, 2, BROADCASTS},
    {"Gemm", import_gemm, 2, 0}, {"Softmax", import_softmax, 1, 0}, {"LogSoftmax", import_softmax, 1, 0},
    {"Attention", import_attention, 3, 0}, {"Where", import_where, 3, BROADCASTS}, {"IsNaN", import_is_nan, 1, 0},
    {"Add", import_add, 2, BROADCASTS}, {"Sum", import_sum, ALL, BROADCASTS}, {"Sub", import_sub, 2, BROADCASTS},
    {"Mul", import_mul, 2, BROADCASTS}, {"Div", import_div, 2, BROADCASTS}, {"Pow", import_pow, 2, BROADCASTS},
    {"Clip", import_clip, 1, 0}, {"Min", import_clip, ALL, BROADCASTS}, {"Max", import_clip, ALL, BROADCASTS},
    {NULL, NULL, 0, 0}};
