/* Own vector kernels of the onednn backend: batch norm fused with add and ReLU, elementwise passes, pooling. One table
 * for each instruction set.
 *
 * Activations are [sample][block][points][lanes] (plain: lanes 1, a block is a channel). All sums have a fixed order
 * that depends only on the shape: floats over at most 64 points, doubles above that. Pointers may be equal where noted.
 * Any thread. */
#ifndef BACKEND_CPU_CPU_VEC_H
#define BACKEND_CPU_CPU_VEC_H
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct vec_shape { int n; int64_t blocks, points; };

/* Windows of a max pooling over planes of in[0] x in[1] x in[2] points: samples x blocks; of vec_half, samples. The
 * index of a window's first maximum is saved in one byte an output, so a window has at most 255 elements; NULL: not
 * saved. */
struct vec_pool { int64_t planes, in[3], out[3], kernel[3], stride[3], padding[3], channels; };

/* Means over windows of planes of in[0] x in[1] x in[2] points: output o of dimension d reads the inputs span[d][o].
 * divide: the divisor; 0: the number of the window's elements. */
struct vec_span { int64_t from, to; };
struct vec_windows { int64_t planes, in[3], out[3]; const struct vec_span *span[3]; double divide; };

/* A function of one value (model/ops/unary.h), over n elements. gx may be gy; v: the input or the output. gate: y =
 * f(x) u, and of a function that its input explains gu = gy f(x), gx = gy u f'(x); NULL: not needed. Bits 1 and 0 of
 * acc: += instead. */
struct vec_gate { float *gx, *gu; uint8_t acc; };
struct vec_unary {
    void (*forward)(float *y, const float *x, size_t n, float a);
    void (*backward)(float *gx, const float *v, const float *gy, size_t n, float a, bool acc);
    void (*gate)(float *y, const float *x, const float *u, size_t n, float a);
    void (*gate_backward)(const struct vec_gate *g, const float *x, const float *u, const float *gy, size_t n,
                          float a);
};

/* Rows of n scores, products of vectors of q and key, multiplied by scale > 0. Each vector has `width` elements, which
 * are apart.element elements apart, and the vectors apart.vector. span: columns that each row sees, the others become
 * 0; NULL: all. q NULL: large scores are as exact as the products made them. */
struct vec_apart { int64_t element, vector; };
struct vec_scores {
    int64_t rows, n; float scale; const float *q, *key; int64_t width; struct vec_apart apart_q, apart_key;
    const struct vec_span *span;
    int64_t line;                                         /* from row to row; 0: n */
};

/* Norm of one row of n channels: y = (x - mean) inv w + b, mean 0 and b NULL for RMS norm. gx (+)= inv (g - mean(g) -
 * u mean(g u)), u = (x - mean) inv, g = gy w; without the mean of g for RMS norm. */
struct vec_row { int64_t n; const float *x, *w, *b, *gy; float *y, *gx; bool centred, acc; float mean, inv; };

/* A product of few rows. factor: of codes, for each output (plan/format.h). */
enum vec_stored { VEC_F32, VEC_BF16, VEC_I8 };
struct vec_few { int64_t rows, in, out; enum vec_stored type; const float *factor; };
/* n rows of x, of which `width` floats count, `line` floats apart. */
struct vec_entries { int64_t n, width, line; const float *x; };

/* A depthwise convolution over planes of in[0] x in[1] points. */
struct vec_depthwise { int n; int64_t blocks, in[2], out[2], kernel[2], stride[2], padding[2], dilation[2]; };

/* The gradient before the ReLU: gout; gout, but 0 where the output is not positive; the same with the recomputed
 * output. */
enum vec_mask { MASK_NONE, MASK_OUT, MASK_AGAIN };

/* Batch norm of channel c: y = (x - mean) * scale + beta, scale = gamma / sqrt(var + eps). All arrays have blocks *
 * lanes elements. */
struct vec_norm {
    struct vec_shape s;
    /* blocks to work on: few at a time, so that the second pass finds them in the cache */
    int64_t from, to;
    const float *x, *mean, *scale, *beta;
    bool relu;                                           /* forward */
    /* forward: y = [relu](norm + other), other NULL: none; y may be other */
    const float *other; float *y;
    enum vec_mask mask; const float *out, *gout;         /* backward */
    /* masked gradient = or += here, NULL: not needed; may be gout if = */
    float *gother; bool gother_acc;
    double *sum_g, *sum_gx;                              /* result of reduce: sum g, sum g * (x - mean) */
    const float *c0, *c1; float *gx; bool gx_acc;        /* gx (+)= scale * g - c0 - (x - mean) * c1; gx may be gout */
};

struct vec_ops {
    int lanes;
    void (*norm_stats)(const struct vec_norm *a, double *mean, double *var);  /* of x; biased variance */
    void (*norm_forward)(const struct vec_norm *a);
    void (*norm_reduce)(const struct vec_norm *a);       /* sum_g, sum_gx, gother */
    void (*norm_backward)(const struct vec_norm *a);     /* gx */
    void (*add)(float *y, const float *x, size_t n);     /* y += x */
    void (*sum)(float *y, const float *a, const float *b, size_t n);
    void (*relu)(float *y, const float *x, size_t n);    /* y may be x */
    void (*relu_backward)(float *gx, const float *y, const float *g, size_t n, bool acc);   /* gx may be g */
    double (*sumsq)(const float *x, size_t n);
    /* sums[columns] = or += the sum of bf16 rows, `line` apart, in float for 64 rows, then in double */
    void (*sum_rows)(const uint16_t *x, int64_t line, int64_t rows, int64_t columns, float *sums, bool acc);
    void (*widen)(float *y, const uint16_t *x, size_t n);                /* bf16, exactly */
    void (*widen_codes)(float *y, const int8_t *q, size_t n, float unit);   /* y = q unit */
    void (*narrow)(uint16_t *y, const float *x, size_t n, bool acc);     /* y = or += x, rounded to nearest even */
    void (*mean)(const struct vec_shape *s, const float *x, float *y);   /* over the points of each channel */
    void (*mean_backward)(const struct vec_shape *s, const float *gy, float *gx, bool acc);
    void (*max_pool)(const struct vec_pool *p, const float *x, float *y, uint8_t *index);
    /* grad [block][kernel point][lanes], and bias [block][lanes] unless NULL, = or += the sum of each sample over its
     * points, sample by sample. NULL in vec_plain. */
    void (*depthwise_weights)(const struct vec_depthwise *d, const float *x, const float *gy, float *grad, float *bias,
                              bool acc);
    void (*max_pool_backward)(const struct vec_pool *p, const uint8_t *index, const float *gy, float *gx, bool acc);
    void (*avg_pool)(const struct vec_windows *w, const float *x, float *y);
    void (*avg_pool_backward)(const struct vec_windows *w, const float *gy, float *gx, bool acc);
    const struct vec_unary *unary;                       /* by enum unary */
    void (*multiply)(float *y, const float *a, const float *b, size_t n, bool acc);   /* y = or += a b */
    /* y = or += x f, f[sample][block][lanes]; and f = or += the sum over the points of g x */
    void (*scale)(const struct vec_shape *s, const float *x, const float *f, float *y, bool acc);
    void (*dot)(const struct vec_shape *s, const float *x, const float *g, float *f, bool acc);
    /* y = or += x f where f is not 0, else 0: f[sample][block][lanes] */
    void (*keep)(const struct vec_shape *s, const float *x, const float *f, float *y, bool acc);
    /* y = x above zero, else a x; gx = or += gy or a gy; and a's gradient, = or += the sum of gy x where x is not above
     * zero. a[block][lanes], of one sample */
    void (*prelu)(const struct vec_shape *s, const float *x, const float *a, float *y);
    void (*prelu_backward)(const struct vec_shape *s, const float *x, const float *a, const float *gy, float *gx,
                           bool acc);
    void (*prelu_slopes)(const struct vec_shape *s, const float *x, const float *gy, float *ga, bool acc);
    /* For each row. softmax: x becomes softmax(scale x); kept[2] becomes the largest scale x and 1 / the sum of
     * e^(scale x - that). softmax_again: x becomes the same again, to the bit, from kept. softmax_backward: g, the
     * gradient of softmax(scale x), becomes that of x; p is the softmax. */
    void (*softmax)(const struct vec_scores *s, float *x, float *kept);
    void (*softmax_again)(const struct vec_scores *s, float *x, const float *kept);
    void (*softmax_backward)(const struct vec_scores *s, const float *p, float *g);
    /* ---- rows of channels: tokens ---- */
    void (*row_norm)(struct vec_row *r, double eps);     /* sets mean and inv, and y */
    void (*row_norm_backward)(const struct vec_row *r);
    /* gw += gy u, gb += gy (NULL: none), for each channel in double */
    void (*row_norm_weights)(const struct vec_row *r, double *gw, double *gb);
    /* Turns n pairs: y1 = x1 c - x2 s, y2 = x2 c + x1 s; y = or += */
    void (*row_turn)(int64_t n, const float *c, const float *s, const float *x1, const float *x2, float *y1, float *y2,
                     bool acc);
    /* x becomes e^(x - kept[0]), kept[0] its largest; kept[1] = 1 / their sum. Returns the logarithm of the sum. */
    double (*row_exp)(float *x, int64_t n, float kept[2]);
    void (*row_times)(float *x, int64_t n, float by);    /* x = x by */
    /* y[row][out] = x[row][in] w[out][in]^T + bias (NULL: none). A row's bits do not depend on the other rows. */
    void (*few_rows)(const struct vec_few *m, const float *x, const void *w, const float *bias, float *y);
    void (*row_scores)(const struct vec_entries *m, const float *q, float by, float *y);   /* y[n] = by x q */
    void (*row_mix)(const struct vec_entries *m, const float *p, float by, float *y);      /* y[width] = by p[n] x */
};
/* number of blocks with which vec_plain's sums are fastest: it adds them in parallel; the most for vec_half */
enum { VEC_PLAIN_BLOCKS = 8, VEC_HALF_BLOCKS = 1024 };
extern const struct vec_ops vec_avx512, vec_avx2, vec_plain;
/* For processors with AVX512_BF16: values are bf16 with channels last, [sample][point][channel], and pointers to values
 * point to them; factors and slopes are floats. lanes is 1, a block is a channel. Without most entries that work
 * on floats in any order or on rows. */
extern const struct vec_ops vec_half;
void half_add(uint16_t *y, const uint16_t *x, size_t n); /* y += x; for such processors */

/* ---- for the files that fill these tables ---------------------------------------------------- */

#define INLINE static inline __attribute__((always_inline))

/* The entries that every table has, with functions of these names. */
#define VEC_SHARED \
    .norm_stats = norm_stats, .norm_forward = norm_forward, .norm_reduce = norm_reduce, \
    .norm_backward = norm_backward, .add = add, .sum = sum, .relu = relu, .relu_backward = relu_backward, \
    .sumsq = sumsq, .sum_rows = sum_rows, .widen = bf16_to_floats, .widen_codes = codes_to_floats, \
    .narrow = floats_to_bf16, .mean = mean, .mean_backward = mean_backward, .max_pool = max_pool, \
    .max_pool_backward = max_pool_backward, .avg_pool = avg_pool, .avg_pool_backward = avg_pool_backward, \
    .unary = unary_loops, .multiply = multiply, .scale = scale, .dot = dot, .keep = keep_some, \
    .prelu = prelu, .prelu_backward = prelu_backward, .prelu_slopes = prelu_slopes, \
    .softmax = softmax, .softmax_again = softmax_again, .softmax_backward = softmax_backward, .row_norm = row_norm, \
    .row_norm_backward = row_norm_backward, .row_norm_weights = row_norm_weights, .row_turn = row_turn, \
    .row_exp = row_exp_sum, .row_times = row_times, .few_rows = few_rows, .row_scores = row_scores, \
    .row_mix = row_mix

/* The input point of a window's element k in a dimension; negative in the padding. */
INLINE int64_t pool_point(const struct vec_pool *p, int dim, int64_t out, int64_t k)
{
    int64_t at = out * p->stride[dim] - p->padding[dim] + k;
    return at < p->in[dim] ? at : -1;
}

#endif
