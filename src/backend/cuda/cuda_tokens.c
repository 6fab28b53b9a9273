/* The cuda backend's kernels for sequences: parts of tensors, weights of positions, attention. */
#include <stdlib.h>
#include "backend/cuda/cuda_int.h"
#include "base/mem.h"
#include "model/ops/attention.h"
#include "model/ops/cached_attention.h"
#include "model/ops/learned.h"
#include "model/ops/rms_norm.h"
#include "model/ops/rotary.h"
#include "model/ops/slice.h"
#include "model/ops/token_loss.h"

static int slice_run(struct be *b, struct be_kernel *k, const struct be_call *c, struct err *e)
{
    const struct slice s = slice_of(b->g, k->node, c->n, true);
    const struct k_slice part = {type_of(b, k->k->out), s.outer, (int)s.width, (int)s.first, (int)s.part};
    const struct k_grad taken = {c->in[0], c->out, false}, g = grad_of(c, 0);
    return cuda_check(e, "slice", is_forward(k) ? k_concat_back(b->stream, &part, &taken)
                                                : k_slice_back(b->stream, &part, &g));
}

/* Backward writes each part with zeros around it, and adds the next ones. */
static int split_run(struct be *b, struct be_kernel *k, const struct be_call *c, struct err *e)
{
    bool acc = adds(c, 0);
    int status = 0;
    for (int i = 0; i < k->node->n_out && !status; i++) {
        const struct slice s = split_of(b->g, k->node, i, c->n, true);
        const struct k_slice part = {type_of(b, k->k->outs[i]), s.outer, (int)s.width, (int)s.first, (int)s.part};
        const struct k_grad taken = {c->in[0], c->outs[i], false}, g = {c->gouts[i], c->gin[0], acc};
        if (is_forward(k)) status = k_concat_back(b->stream, &part, &taken);
        else if (c->gouts[i]) { status = k_slice_back(b->stream, &part, &g); acc = true; }
    }
    return cuda_check(e, "split", status);
}

/* A row is a sample's points with their channels: first the learned points, then the input's. */
static int prepend_run(struct be *b, struct be_kernel *k, const struct be_call *c, struct err *e)
{
    const struct learned d = learned_of(b->g, k->node, c->n);
    const int width = (int)(d.points * d.c), own = (int)(d.count * d.c);
    const struct k_slice first = {type_of(b, k->k->out), c->n, width, 0, own},
                         rest = {first.type, c->n, width, own, width - own};
    const struct k_grad g = grad_of(c, 0);
    int status;
    if (k->key.phase == PH_BWD_WEIGHTS)
        status = k_learned_weights(b->stream, &first, c->gout, c->pgrad[0], c->pgrad_acc);
    else if (!is_forward(k)) status = k_concat_back(b->stream, &rest, &g);
    else if (!(status = k_learned(b->stream, &first, c->param[0], NULL, c->out)))
        status = k_concat(b->stream, &rest, c->in[0], c->out);
    return cuda_check(e, "learned points", status);
}

static int positions_run(struct be *b, struct be_kernel *k, const struct be_call *c, struct err *e)
{
    const int width = (int)shape_count(&b->g->tensor[k->k->out].shape);
    const struct k_slice all = {type_of(b, k->k->out), c->n, width, 0, width};
    int status = is_forward(k) ? k_learned(b->stream, &all, c->param[0], c->in[0], c->out)
                 : k->key.phase == PH_BWD_WEIGHTS
                     ? k_learned_weights(b->stream, &all, c->gout, c->pgrad[0], c->pgrad_acc)
                     : k_copy(b->stream, all.type, count(b, k->k->out, c->n), c->gout, c->gin[0], adds(c, 0));
    return cuda_check(e, "positions", status);
}

/* Queries, keys and values of one input follow each other. */
static struct k_attention_in parts_of(const struct be *b, const struct attention *a, const void *const in[MAX_IN],
                                      int tensor)
{
    const size_t part = (size_t)(a->heads * a->width) * dtype_bytes(b->s->tensor[tensor].type);
    if (a->apart) return (struct k_attention_in){in[0], in[1], in[2]};
    const char *x = in[0];
    return (struct k_attention_in){x, x ? x + part : NULL, x ? x + 2 * part : NULL};
}

static int attention_run(struct be *b, struct be_kernel *k, const struct be_call *c, struct err *e)
{
    const struct attention a = attention_of(b->g, k->node, c->n);
    const int64_t width = a.heads * a.width;
    const int at = attention_positions(k->node);
    const struct k_attention t = {
        type_of(b, k->k->out), a.n, (int)a.points, (int)a.heads, (int)a.kv_heads, (int)a.width, (float)a.scale,
        a.apart ? width : 3 * width, a.apart ? a.kv_heads * a.width : 3 * width, a.causal, at < 0 ? NULL : c->in[at]};
    const struct k_attention_kept kept = {parts_of(b, &a, c->in, k->k->out), c->out, c->saved};
    if (is_forward(k)) return cuda_check(e, "attention", k_attention(b->stream, &t, &kept.x, c->out, c->saved));
    const struct k_attention_in g = parts_of(b, &a, (const void *const *)c->gin, k->k->out);
    const struct k_attention_grad grad = {c->gout, {(void *)(uintptr_t)g.q, (void *)(uintptr_t)g.k,
                                                    (void *)(uintptr_t)g.v},
                                          {adds(c, 0), adds(c, a.apart ? 1 : 0), adds(c, a.apart ? 2 : 0)}};
    return cuda_check(e, "attention", k_attention_back(b->stream, &t, &kept, &grad));
}

static struct be_kernel *attention_make(struct be *b, const struct be_kernel *like, struct err *e)
{
    const struct attention a = attention_of(b->g, like->node, like->key.samples);
    if (a.width > K_HEAD)
        return err_set(e, E_CONF, "heads have %lld channels, GPU kernels take at most %d", (long long)a.width,
                       (int)K_HEAD), NULL;
    if (a.n * a.heads * a.points > INT32_MAX)
        return err_set(e, E_CONF, "more than 2^31 positions of heads in a micro-batch"), NULL;
    return cuda_kernel_new(like, sizeof *like);
}

/* By cuDNN: some samples at a time, so that the backward pass's workspace is bounded. The workspace has the sums of
 * rows before the library's part. */
#ifndef ATTENTION_BYTES
#define ATTENTION_BYTES (512 << 20)                      /* of some samples; one sample may need more */
#endif
struct cuda_attention { struct be_kernel k; struct attention a; int some; struct dnn_attention_plan *full, *rest; };

static struct dnn_attention library_attention(const struct attention *a, int samples)
{
    const int64_t line = a->heads * a->width, kv = a->kv_heads * a->width;
    return (struct dnn_attention){.n = samples, .points = (int)a->points, .heads = (int)a->heads,
                                  .kv_heads = (int)a->kv_heads, .width = (int)a->width, .causal = a->causal,
                                  .scale = (float)a->scale, .line_q = a->apart ? line : 3 * line,
                                  .line_kv = a->apart ? kv : 3 * line};
}

/* trained: there is a backward pass. */
static size_t library_work(const struct attention *a, int samples, bool trained)
{
    const struct dnn_attention of = library_attention(a, samples);
    return dnn_attention_work(&of, trained);
}

/* Samples of a call: as many as fit, at least one. */
static int attention_some(const struct attention *a, bool trained)
{
    int n = 1;
    while (n < a->n && library_work(a, n + 1, trained) <= ATTENTION_BYTES) n++;
    return n;
}

static size_t attention_sums_bytes(const struct attention *a, int some)
{
    return size_align64((size_t)some * (size_t)(a->heads * a->points) * sizeof(float));
}

static size_t attention_bytes(const struct attention *a, bool trained)
{
    const int some = attention_some(a, trained);
    return attention_sums_bytes(a, some) + library_work(a, some, trained);
}

/* What the library's form has not: documents, other widths, gradients that are added or of some inputs alone. */
static const char *library_refuses(const struct selection *s, const struct group *k, enum phase ph)
{
    const size_t most = (size_t)8 << 30;
    const struct node *n = &s->g->node[k->node[0]];
    const struct attention a = attention_of(s->g, n, 1);
    if (attention_positions(n) >= 0) return "documents apart";
    if (a.width % 8 || a.width > 128) return "heads of other widths than multiples of 8 up to 128";
    if (k->grad_in && k->grad_in != (a.apart ? 7u : 1u)) return "only some of queries, keys and values are trained";
    if (library_work(&a, 1, k->grad_in) > most) return "the pairs of positions of a sample need more than 8 GiB";
    for (int i = 0; i < n->n_in; i++)
        if (s->g->tensor[n->in[i]].n_readers > 1) return "another layer reads its input";
    return NULL;
}

/* Floats from the stats of one call to those of the next: 16 bytes, as the library wants. The operator saves two floats
 * a row, the library's kernels take one. */
static int64_t stats_line(const struct attention *a, int some) { return (some * a->heads * a->points + 3) / 4 * 4; }

/* Rows [from, from + the plan's samples) of all operands. */
static int library_some(struct be *b, struct cuda_attention *k, const struct be_call *c, int64_t from,
                        struct dnn_attention_plan *plan, struct err *e)
{
    const struct attention *a = &k->a;
    const struct dnn_attention of = library_attention(a, 1);
    const size_t q = (size_t)(from * a->points * of.line_q) * 2, kv = (size_t)(from * a->points * of.line_kv) * 2,
                 o = (size_t)(from * a->points * a->heads * a->width) * 2;
    const struct k_attention_in x = parts_of(b, a, c->in, k->k.k->out),
                                g = parts_of(b, a, (const void *const *)c->gin, k->k.k->out);
    const bool back = !is_forward(&k->k);
    const struct dnn_attention_operands at = {
        (const char *)x.q + q, (const char *)x.k + kv, (const char *)x.v + kv, (char *)c->out + o,
        (float *)c->saved + from / k->some * stats_line(a, k->some), back ? (const char *)c->gout + o : NULL,
        back ? (char *)(uintptr_t)g.q + q : NULL, back ? (char *)(uintptr_t)g.k + kv : NULL,
        back ? (char *)(uintptr_t)g.v + kv : NULL, c->work, (char *)c->work + attention_sums_bytes(a, k->some)};
    return dnn_attention_run(b->dnn, plan, &at, e);
}

static int library_run(struct be *b, struct be_kernel *base, const struct be_call *c, struct err *e)
{
    struct cuda_attention *k = (struct cuda_attention *)base;
    for (int64_t from = 0; from < k->a.n; from += k->some)
        if (library_some(b, k, c, from, k->a.n - from < k->some ? k->rest : k->full, e)) return -1;
    return 0;
}

static struct be_kernel *library_make(struct be *b, const struct be_kernel *like, struct err *e)
{
    struct cuda_attention *k = cuda_kernel_new(like, sizeof *k);
    k->a = attention_of(b->g, like->node, like->key.samples);
    const bool back = !is_forward(like), trained = like->k->grad_in != 0;
    k->some = attention_some(&k->a, trained);
    const int rest = (int)(k->a.n % k->some);
    const struct dnn_attention of = library_attention(&k->a, k->some), left = library_attention(&k->a, rest);
    const size_t work = library_work(&k->a, k->some, trained);
    if (!cuda_kernel_workspace(b, like, attention_bytes(&k->a, trained), e) &&
        !dnn_attention_plan(b->dnn, &of, back, work, &k->full, e) &&
        !(rest && dnn_attention_plan(b->dnn, &left, back, work, &k->rest, e)))
        return &k->k;
    free(k);
    return NULL;
}

static size_t library_workspace(const struct selection *s, const struct group *k)
{
    const struct attention a = attention_of(s->g, &s->g->node[k->node[0]], s->max_samples);
    return attention_bytes(&a, k->grad_in);
}

/* ---- decoders -------------------------------------------------------------------------------- */

static int rms_norm_run(struct be *b, struct be_kernel *k, const struct be_call *c, struct err *e)
{
    const struct rms_norm r = rms_norm_of(b->g, k->node, c->n);
    const struct k_layer_norm n = {type_of(b, k->k->out), r.n * r.points * r.heads, (int)r.width, r.eps, c->param[0],
                                   NULL, (int)r.heads, r.points};
    const struct k_grad g = grad_of(c, 0);
    const struct k_layer_norm_grad w = {.x = c->in[0], .gy = c->gout, .saved = c->saved, .gw = c->pgrad[0],
                                        .acc = c->pgrad_acc, .work = c->work};
    int status = is_forward(k)                       ? k_layer_norm(b->stream, &n, c->in[0], c->out, c->saved)
                 : k->key.phase == PH_BWD_WEIGHTS ? k_layer_norm_weights(b->stream, &n, &w)
                                                  : k_layer_norm_back(b->stream, &n, c->in[0], &g, c->saved);
    return cuda_check(e, "RMS norm", status);
}

static size_t rms_norm_workspace(const struct selection *s, const struct group *k)
{
    const struct rms_norm r = rms_norm_of(s->g, &s->g->node[k->node[0]], s->max_samples);
    return k_layer_norm_work(r.n * r.points * r.heads, (int)r.width);
}

static struct be_kernel *rms_norm_make(struct be *b, const struct be_kernel *like, struct err *e)
{
    const struct rms_norm r = rms_norm_of(b->g, like->node, like->key.samples);
    if (cuda_kernel_workspace(b, like, k_layer_norm_work(r.n * r.points * r.heads, (int)r.width), e)) return NULL;
    return cuda_kernel_new(like, sizeof *like);
}

static int cached_run(struct be *b, struct be_kernel *k, const struct be_call *c, struct err *e)
{
    const struct cached_attention a = cached_attention_of(b->g, k->node);
    const struct k_cached t = {type_of(b, k->k->out), c->n, (int)a.heads, (int)a.kv_heads, (int)a.width,
                               (int)a.context, (float)a.scale, c->in[3], c->in[4], {c->in[0], c->in[1], c->in[2]},
                               c->param[0], c->work};
    return cuda_check(e, "cached attention", k_cached_attention(b->stream, &t, c->out));
}

static size_t cached_bytes(const struct graph *g, const struct node *n, int samples)
{
    const struct cached_attention a = cached_attention_of(g, n);
    return (size_t)samples * (size_t)(a.heads * a.context) * sizeof(float);
}

static struct be_kernel *cached_make(struct be *b, const struct be_kernel *like, struct err *e)
{
    if (cuda_kernel_workspace(b, like, cached_bytes(b->g, like->node, like->key.samples), e)) return NULL;
    return cuda_kernel_new(like, sizeof *like);
}

static size_t cached_workspace(const struct selection *s, const struct group *k)
{
    return cached_bytes(s->g, &s->g->node[k->node[0]], s->max_samples);
}

static int rotary_run(struct be *b, struct be_kernel *k, const struct be_call *c, struct err *e)
{
    const struct rotary r = rotary_of(b->g, k->node, c->n);
    const size_t bytes = (size_t)r.half * sizeof(float);
    float *rate = mem_alloc(bytes);
    for (int64_t i = 0; i < r.half; i++) rate[i] = rotary_rate(k->node, i, r.half);
    const float *at = cuda_mirror(b, k->node, rate, bytes, e);
    free(rate);
    if (!at) return -1;
    const bool back = !is_forward(k);
    const struct k_rotary t = {type_of(b, k->k->out), r.n, (int)r.points, (int)r.heads, (int)r.half, at,
                               k->node->n_in > 1 ? c->in[1] : NULL, back, back && adds(c, 0)};
    return cuda_check(e, "rotary positions", k_rotary(b->stream, &t, back ? c->gout : c->in[0],
                                                      back ? c->gin[0] : c->out));
}

/* Head, softmax and loss: logits of `block` rows at a time are a product in the workspace, float for every precision.
 * As on CPUs, the backward pass makes all in training, so that the logits are made once. The workspace has the logits,
 * their gradients (in bfloat16; otherwise in place of the logits), the scores of all rows, the library's part. */
struct loss_part { struct dnn_plan *logits, *data[2], *weights[2]; int rows; };     /* [acc] */
struct cuda_token_loss {
    struct be_kernel k; struct token_loss t;
    int block, line;
    bool late;
    struct loss_part full, rest;                         /* of `block` rows; of those that are left, or 0 */
};
struct loss_places { size_t dz, scores, library; };      /* bytes from the workspace's begin, where the logits are */

#ifndef LOSS_BYTES
#define LOSS_BYTES (256 << 20)                           /* of a block of logits: enough for products at full speed */
#define LOSS_LEAST 32                                    /* rows, so that each block begins at 64 bytes */
#endif

static int loss_block(const struct token_loss *t, int line)
{
    enum { STEP = 128 };
    const int64_t all = t->n * t->points, most = (int64_t)LOSS_BYTES / (int64_t)sizeof(float) / line;
    const int64_t step = most < STEP ? LOSS_LEAST : STEP, block = most < step ? step : most / step * step;
    return (int)(block < all ? block : all);
}

static int loss_line(const struct token_loss *t) { return (int)((t->classes + 15) / 16 * 16); }

static struct loss_places loss_places(const struct token_loss *t, bool narrow)
{
    const size_t line = (size_t)loss_line(t), n = (size_t)loss_block(t, (int)line) * line;
    const size_t scores = n * (narrow ? sizeof(float) + 2 : sizeof(float));
    return (struct loss_places){narrow ? n * sizeof(float) : 0, scores,
                                scores + size_align64((size_t)(t->n * t->points) * 3 * sizeof(double))};
}

static bool loss_narrow(const struct selection *s) { return s->dev.precision == BFLOAT16; }

static double *loss_scores(const struct be_call *c, const struct loss_places *w)
{
    return (double *)(void *)((char *)c->work + w->scores);
}

/* The rows from `from` on: logits, scores and, in training, gradients. */
static int loss_rows(struct be *b, struct cuda_token_loss *k, const struct be_call *c, const struct loss_part *part,
                     int64_t from, bool back, struct err *e)
{
    const struct node *n = k->k.node;
    const bool wide = b->g->tensor[n->in[1]].type == I64, narrow = loss_narrow(b->s);
    const struct loss_places w = loss_places(&k->t, narrow);
    float *z = c->work;
    void *dz = (char *)c->work + w.dz, *library = (char *)c->work + w.library;
    const size_t at = (size_t)(from * k->t.width) * dtype_bytes(b->s->tensor[n->in[0]].type);
    const char *x = (const char *)c->in[0] + at;
    const void *weights = c->packed ? c->packed : c->param[0];
    const struct k_tokens t = {
        narrow ? K_BF16 : K_F32, (int)k->t.classes, k->line,
        (const char *)c->in[1] + (size_t)from * (wide ? sizeof(int64_t) : sizeof(int32_t)), wide, k->t.ignore,
        n->n_param > 1 ? c->param[1] : NULL};
    const struct k_token_rows rows = {(float *)c->saved + 2 * from, loss_scores(c, &w) + 3 * from, c->block,
                                      back ? dz : NULL};
    const bool acc = c->pgrad_acc || from > 0;
    if (dnn_run(b->dnn, part->logits, &(struct dnn_operands){x, weights, z, library, NULL}, e) ||
        cuda_check(e, "token loss", k_token_rows(b->stream, &t, part->rows, z, &rows)))
        return -1;
    if (!back) return 0;
    if (c->gin[0] && dnn_run(b->dnn, part->data[adds(c, 0)],
                             &(struct dnn_operands){dz, weights, (char *)c->gin[0] + at, library, NULL}, e))
        return -1;
    if (c->pgrad[0] && dnn_run(b->dnn, part->weights[acc],
                               &(struct dnn_operands){x, dz, c->pgrad[0], library, NULL}, e))
        return -1;
    if (!t.bias || !c->pgrad[1]) return 0;
    return cuda_check(e, "bias gradient", k_token_bias(b->stream, &t, part->rows, dz, c->pgrad[1], acc));
}

static int token_loss_run(struct be *b, struct be_kernel *base, const struct be_call *c, struct err *e)
{
    struct cuda_token_loss *k = (struct cuda_token_loss *)base;
    const struct loss_places w = loss_places(&k->t, loss_narrow(b->s));
    const int64_t all = k->t.n * k->t.points;
    const bool back = !is_forward(base);
    if (k->late && !back) return 0;
    for (int64_t from = 0; from < all; from += k->block)
        if (loss_rows(b, k, c, all - from < k->block ? &k->rest : &k->full, from, back, e)) return -1;
    return cuda_check(e, "token loss", k_token_sums(b->stream, k->t.n, (int)k->t.points, loss_scores(c, &w), c->out));
}

static int loss_plans(struct be *b, struct cuda_token_loss *k, int rows, struct loss_part *part, struct err *e)
{
    struct dnn_linear l = {.type = product_type(b), .n = rows, .in = (int)k->t.width, .out = (int)k->t.classes,
                           .line = k->line, .wide = true};
    const size_t work = k->k.k->library_bytes;
    part->rows = rows;
    if (!rows) return 0;
    if (dnn_linear_plan(b->dnn, &l, &(struct dnn_ask){DNN_FORWARD, false, work}, &part->logits, e)) return -1;
    l.wide = false;
    for (int acc = 0; acc < 2 && !is_forward(&k->k); acc++)
        if (dnn_linear_plan(b->dnn, &l, &(struct dnn_ask){DNN_DATA, acc, work}, &part->data[acc], e) ||
            dnn_linear_plan(b->dnn, &l, &(struct dnn_ask){DNN_WEIGHTS, acc, work}, &part->weights[acc], e))
            return -1;
    return 0;
}

static struct be_kernel *token_loss_make(struct be *b, const struct be_kernel *like, struct err *e)
{
    struct cuda_token_loss *k = cuda_kernel_new(like, sizeof *k);
    k->t = token_loss_of(b->g, like->node, like->key.samples);
    k->line = loss_line(&k->t);
    k->block = loss_block(&k->t, k->line);
    k->late = like->key.train && group_has_phase(like->k, PH_BWD_DATA);
    const size_t bytes = loss_places(&k->t, loss_narrow(b->s)).library + like->k->library_bytes;
    if (!cuda_kernel_workspace(b, like, bytes, e) && !loss_plans(b, k, k->block, &k->full, e) &&
        !loss_plans(b, k, (int)(k->t.n * k->t.points % k->block), &k->rest, e))
        return &k->k;
    free(k);
    return NULL;
}

static size_t token_loss_workspace(const struct selection *s, const struct group *k)
{
    const struct token_loss t = token_loss_of(s->g, &s->g->node[k->node[0]], s->max_samples);
    return loss_places(&t, loss_narrow(s)).library;
}

const struct kernel_row cuda_rows_tokens[] = {
    {.name = "slice", .pattern = PATTERN_OP("slice"), .types = CUDA_TYPES, .run = slice_run},
    {.name = "split", .pattern = PATTERN_OP("split"), .types = CUDA_TYPES, .run = split_run},
    {.name = "prepend", .pattern = PATTERN_OP("prepend"), .types = CUDA_TYPES, .run = prepend_run},
    {.name = "positions", .pattern = PATTERN_OP("positions"), .types = CUDA_TYPES, .run = positions_run},
    {.name = "cuDNN", .pattern = PATTERN_OP("attention"), .types = TAKES(BF16), .refuses = library_refuses,
     .workspace = library_workspace, .make = library_make, .run = library_run},
    {.name = "attention", .pattern = PATTERN_OP("attention"), .types = CUDA_TYPES, .fallback = "own tiles",
     .why = "cuDNN's attention is for bfloat16", .slow = true, .make = attention_make,
     .run = attention_run},
    {.name = "cached attention", .pattern = PATTERN_OP("cached_attention"), .types = CUDA_TYPES,
     .workspace = cached_workspace, .make = cached_make, .run = cached_run},
    {.name = "RMS norm", .pattern = PATTERN_OP("rms_norm"), .types = CUDA_TYPES,
     .workspace = rms_norm_workspace, .make = rms_norm_make, .run = rms_norm_run},
    {.name = "rotary", .pattern = PATTERN_OP("rotary"), .types = CUDA_TYPES, .run = rotary_run},
    {.name = "cuBLASLt", .pattern = PATTERN_OP("token_loss"), .types = CUDA_TYPES, .workspace = token_loss_workspace,
     .library = true, .late = true, .make = token_loss_make, .run = token_loss_run},
    {0}};
