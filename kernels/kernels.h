/* The project's own kernels for GPUs, for work that cuDNN and cuBLASLt do not do. C launchers for the kernels in the
 * .cu files.
 *
 * Users: the cuda backend and tests. Thread: any. Kernels whose blocks meet in counters need counters that only their
 * stream uses. Every launcher enqueues on `stream` (a cudaStream_t) and returns 0 or the cudaError_t of the launch;
 * launchers never allocate or wait. Pointers are device memory; tensors start at multiples of 64 bytes.
 *
 * Tensors are channels last: [sample][point][channel]; `rows` is samples * points. Elements are float or bfloat16 (enum
 * ktype). All sums are in float or wider, in an order that depends on the sizes alone, so equal calls give equal bits.
 * acc: add to the old value instead of overwriting it. The arithmetic is that of the operators' reference kernels
 * (src/model/ops), with which the tests compare. */
#ifndef KERNELS_KERNELS_H
#define KERNELS_KERNELS_H
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#ifdef __cplusplus
extern "C" {
#endif
struct be_block; struct be_weight;                       /* model/op.h; in device memory */
struct upsample;                                         /* model/ops/upsample.h */

enum ktype { K_F32, K_BF16 };
/* A tensor, or a matrix of n rows, which has one point a row. */
struct k_shape { enum ktype type; int64_t n, points; int c; };
/* Of an operator's backward pass: the output's gradient, and the memory for the input's. acc: add to it. */
struct k_grad { const void *gy; void *gx; bool acc; };
/* unsigned, zero before and after every kernel that counts in them */
enum { K_COUNTERS = 8192 };

/* ---- batch norm: over rows, of each channel -------------------------------------------------- */
/* weight, bias, running mean and variance: float[c]. saved: double[2][c], mean and biased variance, as op_batch_norm
 * keeps them. */
struct k_norm {
    enum ktype type;
    int64_t rows; int c;
    double eps;
    bool relu;
    const float *weight, *bias;
    unsigned *arrived;                                   /* K_COUNTERS of the stream; k_norm_eval does not use them */
};
size_t k_norm_work(int64_t rows, int c);                 /* bytes of `work` for training forward and backward */
/* y = relu?(bn(x) + add?). add may be NULL. y may be x or add. */
struct k_norm_sum { const void *x, *add; void *y; };
/* train: with the statistics of this micro-batch, which it stores in saved. eval: with running statistics. */
int k_norm_train(void *stream, const struct k_norm *k, const struct k_norm_sum *s, double *saved, void *work);
int k_norm_eval(void *stream, const struct k_norm *k, const struct k_norm_sum *s, const float *mean, const float *var);
/* g = relu ? (y <= 0 ? 0 : gy) : gy. saved NULL: with the running statistics mean and var, which are constants; gw and
 * gb are NULL then. g_add (may be NULL): gradient of the other summand = g. gx (may be NULL): gradient of x. gw, gb
 * (may be NULL): of weight and bias, float. g_add may be the memory of gy unless g_add_acc; so may gx if g_add is NULL,
 * unless gx_acc. y is not read without relu. y NULL with relu: the kernel computes y's sign again from x, which saves
 * reading y (only if nothing was added). */
struct k_norm_grad {
    const void *x, *y, *gy; const double *saved;
    void *g_add, *gx; bool g_add_acc, gx_acc; float *gw, *gb; bool gp_acc;
    const float *mean, *var;
};
int k_norm_back(void *stream, const struct k_norm *k, const struct k_norm_grad *g, void *work);
/* Running statistics of n batch norms at the optimizer step, as op_batch_norm's `stats`: micro (deferred false) or
 * deferred. In device memory: of[n], saved[n][n_mb], samples[n_mb]. points of a sample; count: num_batches_tracked.
 * most_c: the largest c. */
struct k_running {
    float *mean, *var; int64_t *count;
    int64_t points; double momentum; int c;
};
struct k_running_step {
    bool deferred;
    const struct k_running *of; int n, most_c;
    int n_mb; const double *const *saved; const int *samples;
};
int k_norm_running(void *stream, const struct k_running_step *k);

/* ---- elementwise ----------------------------------------------------------------------------- */
int k_relu(void *stream, enum ktype type, size_t n, const void *x, void *y);               /* y may be x */
int k_relu_back(void *stream, enum ktype type, size_t n, const void *y, const struct k_grad *g);
int k_add(void *stream, enum ktype type, size_t n, const void *a, const void *b, void *y); /* y may be a or b */
int k_copy(void *stream, enum ktype type, size_t n, const void *x, void *y, bool acc);     /* y = x, y += x */
/* A function of one value, `which` in UNARIES, with its attribute; y may be x. v: the input or the output, whichever
 * the function's derivative reads (model/ops/unary.h). */
struct k_unary { enum ktype type; int which; float a; size_t n; };
int k_unary(void *stream, const struct k_unary *k, const void *x, void *y);
int k_unary_back(void *stream, const struct k_unary *k, const void *v, const struct k_grad *g);
int k_multiply(void *stream, enum ktype type, size_t n, const void *a, const void *b, void *y);
int k_multiply_back(void *stream, enum ktype type, size_t n, const void *other, const struct k_grad *g);
/* y[n][points][c] = x f[n][c]; the gradient of x; the gradient of f, the sum over points of gy x. */
int k_scale(void *stream, const struct k_shape *s, const void *x, const void *f, void *y);
int k_scale_back(void *stream, const struct k_shape *s, const void *f, const struct k_grad *g);
int k_dot_back(void *stream, const struct k_shape *s, const void *x, const struct k_grad *g);
/* y = weight x of each channel, weight: float[c]; the gradient of x; the gradient of the weights (g->gx: float[c]), the
 * sum over rows of gy x. work: k_weigh_work bytes, at most 4 KiB a channel. */
int k_weigh(void *stream, const struct k_shape *s, const void *x, const float *weight, void *y);
int k_weigh_back(void *stream, const struct k_shape *s, const float *weight, const struct k_grad *g);
int k_weigh_weights(void *stream, const struct k_shape *s, const void *x, const struct k_grad *g, void *work);
size_t k_weigh_work(const struct k_shape *s);
/* y = x above zero, otherwise a x. a: float[c], or one value for all channels. Then the gradient of x, and that of a
 * (g->gx: same shape as a). work: k_weigh_work bytes. */
struct k_prelu { struct k_shape s; const float *a; bool shared; };
int k_prelu(void *stream, const struct k_prelu *p, const void *x, void *y);
int k_prelu_back(void *stream, const struct k_prelu *p, const void *x, const struct k_grad *g);
int k_prelu_slopes(void *stream, const struct k_prelu *p, const void *x, const struct k_grad *g, void *work);
/* y[rows][count * c]: the channels of x[rows][c] `count` times; and the gradient of x, the sum over the copies. s: of
 * x. */
int k_repeat(void *stream, const struct k_shape *s, int count, const void *x, void *y);
int k_repeat_back(void *stream, const struct k_shape *s, int count, const struct k_grad *g);
/* softmax over the channels of each row, or its logarithm; y: its output */
int k_softmax(void *stream, const struct k_shape *s, bool logs, const void *x, void *y);
int k_softmax_back(void *stream, const struct k_shape *s, bool logs, const void *y, const struct k_grad *g);
/* rounds to nearest, ties to even */
int k_to_bf16(void *stream, size_t n, const float *x, void *y);
/* y[rows][n] in the type: code x factor / 127, a factor for each row (plan/format.h). */
int k_from_codes(void *stream, enum ktype type, int64_t rows, int64_t n, const int8_t *code, const float *factor,
                 void *y);
int k_from_bf16(void *stream, size_t n, const void *x, float *y, bool acc);           /* y = x, y += x */
/* y += bias of each channel; and gb = sum of the rows of gy, float. work: k_bias_work bytes */
size_t k_bias_work(const struct k_shape *s);
int k_bias(void *stream, const struct k_shape *s, const float *bias, void *y);
int k_bias_back(void *stream, const struct k_shape *s, const void *gy, float *gb, bool acc, void *work);
/* Channels [first, first + c) of y[rows][width] are x[rows][c]. */
struct k_slice { enum ktype type; int64_t rows; int width, first, c; };
int k_concat(void *stream, const struct k_slice *s, const void *x, void *y);
int k_concat_back(void *stream, const struct k_slice *s, const struct k_grad *g);
/* k_concat_back is also the slice x[rows][c] = those channels of y. The slice's gradient: gx[rows][width] is gy in
 * those channels, zero elsewhere. */
int k_slice_back(void *stream, const struct k_slice *s, const struct k_grad *g);
/* Those channels are weight[c] in every row, plus x[rows][c] unless x is NULL; and the gradient of the weights, the sum
 * of gy's rows. y may be x. */
int k_learned(void *stream, const struct k_slice *s, const float *weight, const void *x, void *y);
int k_learned_weights(void *stream, const struct k_slice *s, const void *gy, float *gw, bool acc);
/* Channels last [n][points][c] -> the order of features [n][c][points], and the gradient back. */
int k_flatten(void *stream, const struct k_shape *s, const void *x, void *y);
int k_flatten_back(void *stream, const struct k_shape *s, const struct k_grad *g);
/* op_dropout's mask of a tensor: a function of (block->seed, layer, block->step, sample id, element in logical order).
 * sample: int64[n] in device memory. */
struct k_mask {
    struct k_shape shape;
    double p; uint32_t layer;
    const struct be_block *block; const int64_t *sample;
};
/* y may be x; backward is the same call on gradients */
int k_dropout(void *stream, const struct k_mask *m, const void *x, void *y, bool acc);
/* as k_dropout, but the mask drops whole channels */
int k_channel_dropout(void *stream, const struct k_mask *m, const void *x, void *y, bool acc);
/* op_stochastic_depth's mask, which drops whole samples; y and backward as for k_dropout */
int k_depth(void *stream, const struct k_mask *m, const void *x, void *y, bool acc);

/* ---- layer norm: of each of `rows`, over its c channels --------------------------------------- */
/* weight, bias (may be NULL): float[c]. saved: float[rows][2], mean and 1 / sqrt(var + eps), as op_layer_norm stores
 * them. heads above 0: RMS norm, without bias; a row is a head of a point. saved: float[n][heads][points],
 * 1 / sqrt(mean of squares + eps), as op_rms_norm stores them. */
struct k_layer_norm {
    enum ktype type; int64_t rows; int c; double eps; const float *weight, *bias; int heads; int64_t points;
};
int k_layer_norm(void *stream, const struct k_layer_norm *k, const void *x, void *y, float *saved);
int k_layer_norm_back(void *stream, const struct k_layer_norm *k, const void *x, const struct k_grad *g,
                      const float *saved);
/* gw, gb (may be NULL): float[c]. work: k_layer_norm_work bytes, at most 8 KiB a channel. */
struct k_layer_norm_grad { const void *x, *gy; const float *saved; float *gw, *gb; bool acc; void *work; };
int k_layer_norm_weights(void *stream, const struct k_layer_norm *k, const struct k_layer_norm_grad *g);
size_t k_layer_norm_work(int64_t rows, int c);

/* ---- group norm: of each sample, over the points of a group of channels ------------------------ */
/* weight, bias: float[c], NULL: 1 and 0. saved: double[n][groups][2], mean and 1 / sqrt(var + eps), as op_group_norm
 * stores them. work: k_group_norm_work bytes. */
struct k_group_norm { struct k_shape s; int groups; double eps; const float *weight, *bias; };
size_t k_group_norm_work(const struct k_group_norm *k);
int k_group_norm(void *stream, const struct k_group_norm *k, const void *x, void *y, double *saved, void *work);
/* gx, gw, gb may be NULL; gw, gb: float[c] */
struct k_group_norm_grad {
    const void *x, *gy; const double *saved;
    void *gx; bool gx_acc; float *gw, *gb; bool gp_acc;
    void *work;
};
int k_group_norm_back(void *stream, const struct k_group_norm *k, const struct k_group_norm_grad *g);

/* ---- attention: softmax(scale q k^T) v of each head, over `points` positions -------------------- */
/* Queries [n][points][heads][width], keys and values [n][points][kv_heads][width]; their rows of a point are line_q and
 * line_kv elements apart, so that they may lie in one tensor. y[n][points][heads][width]; kept:
 * float[n][heads][points][2], as op_attention stores it. width: at most K_HEAD. causal: position i sees none behind it;
 * with positions, int32[n][points], none before i - positions[i]. */
enum { K_HEAD = 128 };
struct k_attention {
    enum ktype type; int64_t n; int points, heads, kv_heads, width; float scale;
    int64_t line_q, line_kv; bool causal; const int32_t *positions;
};
struct k_attention_in { const void *q, *k, *v; };
int k_attention(void *stream, const struct k_attention *a, const struct k_attention_in *x, void *y, float *kept);
struct k_attention_kept { struct k_attention_in x; const void *y; const float *kept; };
/* Gradients of queries, keys, values, in their places; NULL: not needed. They may lie in one tensor, and be one. */
struct k_attention_grad { const void *gy; void *gx[3]; bool acc[3]; };
int k_attention_back(void *stream, const struct k_attention *a, const struct k_attention_kept *f,
                     const struct k_attention_grad *g);

/* ---- attention of n single tokens to a cache --------------------------------------------------- */
/* q[n][heads][width], k and v[n][kv_heads][width], y like q. cache: float[slots][context][2][kv_heads][width];
 * positions and slots: int32[n]; scores: float[n][heads][context]. */
struct k_cached {
    enum ktype type; int n, heads, kv_heads, width, context; float scale; const int32_t *positions, *slots;
    struct k_attention_in x; float *cache, *scores;
};
int k_cached_attention(void *stream, const struct k_cached *k, void *y);

/* ---- rotary positions: pairs of channels i and i + half of each head ---------------------------- */
/* x[n][points][heads][2 half]; rate: float[half], the angle for each position; positions: int32[n][points], NULL: 0, 1
 * ... in each sample. The gradient is the same call with back: it turns in the other direction. */
struct k_rotary {
    enum ktype type; int64_t n; int points, heads, half; const float *rate; const int32_t *positions; bool back, acc;
};
int k_rotary(void *stream, const struct k_rotary *r, const void *x, void *y);

/* ---- token loss: head, softmax and loss of each of n x points rows of `width` channels ----------- */
/* Rows of logits, float[rows][line] of which `classes` are used. labels: int64 or int32 (wide false) of each row,
 * `ignore`: does not count. bias: float[classes], added to the logits, or NULL. type: of the logits' gradients. */
struct k_tokens {
    enum ktype type; int classes, line; const void *labels; bool wide; int64_t ignore; const float *bias;
};
/* kept: float[rows][2] as op_token_loss has it; columns: double[rows][3]. dz: type[rows][line], the gradients of the
 * logits' mean loss by block->inv_weight; NULL: none. dz may be z where the types are equal. */
struct k_token_rows { float *kept; double *columns; const struct be_block *block; void *dz; };
int k_token_rows(void *stream, const struct k_tokens *k, int64_t rows, const float *z, const struct k_token_rows *o);
/* rows: double[n * points][3]; columns: double[n][3], the sums of each sample */
int k_token_sums(void *stream, int64_t n, int points, const double *rows, double *columns);
/* The sum of the rows of dz: float[classes]. */
int k_token_bias(void *stream, const struct k_tokens *k, int64_t rows, const void *dz, float *gb, bool acc);

/* ---- pooling --------------------------------------------------------------------------------- */
/* Of n samples of c channels; missing dimensions come first and have width 1 (pad 0). */
struct k_window { enum ktype type; int64_t n; int c, in[3], out[3], kernel[3], stride[3], pad[3]; };
/* where: a uint8 for each value, its index in the window, as op_max_pool stores it but in the order of y. NULL: not
 * stored. */
int k_max_pool(void *stream, const struct k_window *w, const void *x, void *y, uint8_t *where);
int k_max_pool_back(void *stream, const struct k_window *w, const uint8_t *where, const struct k_grad *g);
int k_avg_pool(void *stream, const struct k_window *w, const void *x, void *y);
int k_avg_pool_back(void *stream, const struct k_window *w, const struct k_grad *g);
/* op_adaptive_avg_pool's windows */
struct k_adaptive { enum ktype type; int64_t n; int c, in[3], out[3]; };
int k_adaptive_pool(void *stream, const struct k_adaptive *w, const void *x, void *y);
int k_adaptive_pool_back(void *stream, const struct k_adaptive *w, const struct k_grad *g);
/* op_upsample of s->n samples of s->c channels; s->points is not read */
int k_upsample(void *stream, const struct k_shape *s, const struct upsample *u, const void *x, void *y);
int k_upsample_back(void *stream, const struct k_shape *s, const struct upsample *u, const struct k_grad *g);
/* global average of x[n][points][c]: y[n][c] */
int k_mean(void *stream, const struct k_shape *s, const void *x, void *y);
int k_mean_back(void *stream, const struct k_shape *s, const struct k_grad *g);

/* ---- embedding: rows of table[count][c] by n indices ------------------------------------------ */
/* wide: int64, otherwise int32. An index outside the table gives NaN, and adds to no gradient. */
struct k_rows { const void *index; bool wide; int64_t n, count; int c; };
int k_embed(void *stream, enum ktype type, const struct k_rows *k, const float *table, void *y);   /* y[n][c] */
/* gw[count][c], float: each row gets the sum of its positions' gy[n][c], in ascending order */
size_t k_embed_work(int64_t n);                          /* bytes of work */
int k_embed_back(void *stream, enum ktype type, const struct k_rows *k, const void *gy, float *gw, bool acc,
                 void *work);

/* ---- losses: x[n][count]; target: int64[n] classes, or float[n][count]; loss: double[n][3] ---- */
/* exactly one of cls and vec */
struct k_loss { enum ktype type; int n, count; const int64_t *cls; const float *vec; double smoothing; };
int k_cross_entropy(void *stream, const struct k_loss *k, const void *x, double *loss);
int k_cross_entropy_back(void *stream, const struct k_loss *k, const struct be_block *block, const void *x, void *gx,
                         bool acc);
int k_mse(void *stream, const struct k_loss *k, const void *x, double *loss);
int k_mse_back(void *stream, const struct k_loss *k, const struct be_block *block, const void *x, void *gx, bool acc);
int k_mean_absolute_error(void *stream, const struct k_loss *k, const void *x, double *error);     /* error[n] */

/* ---- classes of points: x[n][points][c]; labels[n][points], whole numbers of label_bytes -------- */
/* sigmoid, ce, power, first, smooth: of dice and dice_ce (model/ops/dice.h); smoothing: of the cross-entropy. work:
 * k_segment_work bytes, at most 4 MiB or 32 bytes a class. */
struct k_segment {
    enum ktype type;
    int64_t n, points; int c;
    const void *labels; int label_bytes;
    double smoothing;
    bool sigmoid, ce; int power, first; double smooth;
};
size_t k_segment_work(const struct k_segment *k);
/* loss[n][3], as from k_cross_entropy */
int k_point_entropy(void *stream, const struct k_segment *k, const void *x, double *loss, void *work);
int k_point_entropy_back(void *stream, const struct k_segment *k, const struct be_block *block, const void *x, void *gx,
                         bool acc);
/* loss[n]; kept[n][c][3], as op_dice stores them. g->gy is not read. */
int k_dice(void *stream, const struct k_segment *k, const void *x, double *loss, double *kept, void *work);
int k_dice_back(void *stream, const struct k_segment *k, const struct be_block *block, const void *x,
                const double *kept, const struct k_grad *g);
/* op_overlap's columns of each sample */
int k_overlap(void *stream, const struct k_segment *k, const void *x, double *out, void *work);

/* ---- optimizer, sums ------------------------------------------------------------------------- */
/* One step of optimizer number `optimizer` in OPTIMS, for n weights of `total` elements together. weight: table in
 * device memory. The bits are those of optim/optim.c. be_weight.packed also gets the new weight in bfloat16, rounded as
 * by k_to_bf16. */
int k_update(void *stream, int optimizer, const struct be_weight *weight, int n, size_t total,
             const struct be_block *block);
/* work: k_sum_work bytes */
int k_sum_squares(void *stream, const float *x, size_t n, double *out, void *work, unsigned *arrived);
size_t k_sum_work(void);
int k_count_nonfinite(void *stream, const float *x, size_t n, unsigned long long *count);  /* adds to *count */

/* ---- host order ------------------------------------------------------------------------------ */
/* float [n][c][points] -> the shape's type [n][points][c], and back. */
int k_import(void *stream, const struct k_shape *s, const float *x, void *y);
int k_export(void *stream, const struct k_shape *s, const void *x, float *y);
/* The same for [n][points][K_PADDED] with c channels in use; the others are zeros. Only for bfloat16. */
enum { K_PADDED = 8 };
int k_import_padded(void *stream, const struct k_shape *s, const float *x, void *y);
int k_export_padded(void *stream, const struct k_shape *s, const void *x, float *y);
/* ---- time ------------------------------------------------------------------------------------------------------- */
/* Keeps the stream busy for ns nanoseconds, so that the work enqueued meanwhile follows without a gap. */
int k_hold(void *stream, uint64_t ns);
#ifdef __cplusplus
}
#endif
#endif
