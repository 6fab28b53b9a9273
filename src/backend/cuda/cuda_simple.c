/* The cuda backend's own kernels: each is a call of kernels/kernels.h. */
#include <string.h>
#include "backend/cuda/cuda_int.h"
#include "model/ops/adaptive.h"
#include "model/ops/dropout.h"
#include "model/ops/layer_norm.h"
#include "model/ops/multiply.h"
#include "model/ops/upsample.h"
#include "model/ops/window.h"

/* ---- batch norm, alone or fused with what follows -------------------------------------------- */

static struct k_norm norm_of(const struct be *b, const struct be_kernel *k, const struct be_call *c)
{
    return (struct k_norm){
        .type = type_of(b, k->node->in[0]),
        .rows = k->key.samples * points(b, k->node->out),
        .c = channels(b, k->node->out),
        .eps = bn_eps(k->node),
        .relu = k->k->n_nodes > 1,
        .weight = c->param[BN_WEIGHT],
        .bias = c->param[BN_BIAS],
        .arrived = b->counters,
    };
}

static int norm_forward(struct be *b, struct be_kernel *k, const struct be_call *c, struct err *e)
{
    struct k_norm n = norm_of(b, k, c);
    const void *add = k->k->n_in > 1 ? c->in[1] : NULL;
    const struct k_norm_sum s = {c->in[0], add, c->out};
    int status = k->key.train ? k_norm_train(b->stream, &n, &s, c->saved, c->work)
                              : k_norm_eval(b->stream, &n, &s, c->param[BN_MEAN], c->param[BN_VAR]);
    return cuda_check(e, "batch norm", status);
}

static int norm_back(struct be *b, struct be_kernel *k, const struct be_call *c, struct err *e)
{
    struct k_norm n = norm_of(b, k, c);
    struct k_norm_grad g = {.x = c->in[0],
                            .gy = c->gout,
                            .saved = k->key.train ? c->saved : NULL,
                            .gx = c->gin[0],
                            .gx_acc = adds(c, 0),
                            .gw = c->pgrad[BN_WEIGHT],
                            .gb = c->pgrad[BN_BIAS],
                            .gp_acc = c->pgrad_acc,
                            .mean = c->param[BN_MEAN],
                            .var = c->param[BN_VAR]};
    if (k->k->n_in > 1) {               /* without add, y's sign is known from x */
        g.y = c->out;
        g.g_add = c->gin[1];
        g.g_add_acc = adds(c, 1);
    }
    return cuda_check(e, "batch norm backward", k_norm_back(b->stream, &n, &g, c->work));
}

static struct be_kernel *norm_make(struct be *b, const struct be_kernel *like, struct err *e)
{
    int out = like->node->out;
    if (cuda_kernel_workspace(b, like, k_norm_work(like->key.samples * points(b, out), channels(b, out)), e))
        return NULL;
    return cuda_kernel_new(like, sizeof *like);
}

static int layer_norm_run(struct be *b, struct be_kernel *k, const struct be_call *c, struct err *e)
{
    const struct k_shape s = shape_of(b, k->k->out, c->n);
    const bool biased = layer_norm_biased(k->node);
    const struct k_layer_norm n = {s.type, s.n * s.points, s.c, layer_norm_eps(k->node), c->param[0],
                                   biased ? c->param[1] : NULL};
    const struct k_grad g = grad_of(c, 0);
    const struct k_layer_norm_grad w = {.x = c->in[0], .gy = c->gout, .saved = c->saved, .gw = c->pgrad[0],
                                        .gb = biased ? c->pgrad[1] : NULL, .acc = c->pgrad_acc, .work = c->work};
    int status = is_forward(k)                       ? k_layer_norm(b->stream, &n, c->in[0], c->out, c->saved)
                 : k->key.phase == PH_BWD_WEIGHTS ? k_layer_norm_weights(b->stream, &n, &w)
                                                  : k_layer_norm_back(b->stream, &n, c->in[0], &g, c->saved);
    return cuda_check(e, "layer norm", status);
}

static size_t layer_norm_workspace(const struct selection *s, const struct group *k)
{
    const struct shape *o = &s->g->tensor[k->out].shape;
    return k_layer_norm_work(s->max_samples * (shape_count(o) / o->d[0]), (int)o->d[0]);
}

static struct be_kernel *layer_norm_make(struct be *b, const struct be_kernel *like, struct err *e)
{
    int out = like->node->out;
    if (cuda_kernel_workspace(b, like, k_layer_norm_work(like->key.samples * points(b, out), channels(b, out)), e))
        return NULL;
    return cuda_kernel_new(like, sizeof *like);
}

/* All groups in one launch. The table of groups, their saved values and numbers of samples is made at a plan's first
 * step; later steps find it. */
int cuda_stats(struct be *b, const struct be_stats *s, struct err *e)
{
    struct k_running *of;
    size_t kept = (size_t)s->n * sizeof *of, samples = kept + (size_t)s->n * (size_t)s->n_mb * sizeof *s->saved;
    size_t bytes = samples + (size_t)s->n_mb * sizeof *s->ns;
    if (bytes > b->running_bytes) b->running = mem_resize(b->running, b->running_bytes = bytes);
    of = (struct k_running *)b->running;
    memset(of, 0, kept);
    memcpy(b->running + kept, s->saved, samples - kept);
    memcpy(b->running + samples, s->ns, bytes - samples);
    int most = 0;
    for (int i = 0; i < s->n; i++) {
        const struct be_running *k = &s->of[i];
        const struct node *node = &b->g->node[b->s->group[k->group].node[0]];
        of[i].mean = k->param[BN_MEAN];
        of[i].var = k->param[BN_VAR];
        of[i].count = k->param[BN_COUNT];
        of[i].points = points(b, node->out);
        of[i].momentum = node->attr[op_attr(node->op, "momentum")].r;
        of[i].c = channels(b, node->out);
        if (of[i].c > most) most = of[i].c;
    }
    const char *at = cuda_mirror(b, s->ns, b->running, bytes, e);
    if (!at) return -1;
    const struct k_running_step k = {
        .deferred = s->deferred, .of = (const struct k_running *)at, .n = s->n, .most_c = most,
        .n_mb = s->n_mb, .saved = (const double *const *)(at + kept), .samples = (const int *)(at + samples)};
    return cuda_check(e, "running statistics", k_norm_running(b->stream, &k));
}

/* ---- elementwise ----------------------------------------------------------------------------- */

static int relu_run(struct be *b, struct be_kernel *k, const struct be_call *c, struct err *e)
{
    enum ktype type = type_of(b, k->k->out);
    size_t n = count(b, k->k->out, c->n);
    const struct k_grad g = grad_of(c, 0);
    return cuda_check(e, "relu",
                      is_forward(k) ? k_relu(b->stream, type, n, c->in[0], c->out)
                                    : k_relu_back(b->stream, type, n, c->out, &g));
}

static int unary_run(struct be *b, struct be_kernel *k, const struct be_call *c, struct err *e)
{
    const struct op_kind *op = k->node->op;
    const struct k_unary u = {type_of(b, k->k->out), op->unary, unary_attr(k->node), count(b, k->k->out, c->n)};
    const struct k_grad g = grad_of(c, 0);
    const void *v = op->need_b & NEED_OUT ? c->out : c->in[0];
    return cuda_check(e, op->name, is_forward(k) ? k_unary(b->stream, &u, c->in[0], c->out)
                                                 : k_unary_back(b->stream, &u, v, &g));
}

/* The second factor has one point a channel, or as many points as the first. */
static int multiply_run(struct be *b, struct be_kernel *k, const struct be_call *c, struct err *e)
{
    const bool each = factors_of(b->g, k->node, 1).points > 1;
    const struct k_shape s = shape_of(b, k->k->out, c->n);
    const struct k_grad gx = grad_of(c, 0), gf = grad_of(c, 1);
    size_t n = count(b, k->k->out, c->n);
    int status = 0;
    if (is_forward(k) && each) status = k_scale(b->stream, &s, c->in[0], c->in[1], c->out);
    else if (is_forward(k)) status = k_multiply(b->stream, s.type, n, c->in[0], c->in[1], c->out);
    else {
        if (gx.gx)
            status = each ? k_scale_back(b->stream, &s, c->in[1], &gx)
                          : k_multiply_back(b->stream, s.type, n, c->in[1], &gx);
        if (gf.gx && !status)
            status = each ? k_dot_back(b->stream, &s, c->in[0], &gf)
                          : k_multiply_back(b->stream, s.type, n, c->in[0], &gf);
    }
    return cuda_check(e, "multiply", status);
}

static int scale_run(struct be *b, struct be_kernel *k, const struct be_call *c, struct err *e)
{
    const struct k_shape s = shape_of(b, k->k->out, c->n);
    const struct k_grad g = grad_of(c, 0), w = {c->gout, c->pgrad[0], c->pgrad_acc};
    int status = is_forward(k)                       ? k_weigh(b->stream, &s, c->in[0], c->param[0], c->out)
                 : k->key.phase == PH_BWD_WEIGHTS ? k_weigh_weights(b->stream, &s, c->in[0], &w, c->work)
                                                  : k_weigh_back(b->stream, &s, c->param[0], &g);
    return cuda_check(e, "scale", status);
}

static struct be_kernel *scale_make(struct be *b, const struct be_kernel *like, struct err *e)
{
    const struct k_shape s = shape_of(b, like->k->out, like->key.samples);
    return cuda_kernel_workspace(b, like, k_weigh_work(&s), e) ? NULL : cuda_kernel_new(like, sizeof *like);
}

static int add_run(struct be *b, struct be_kernel *k, const struct be_call *c, struct err *e)
{
    enum ktype type = type_of(b, k->k->out);
    size_t n = count(b, k->k->out, c->n);
    int status = 0;
    for (int i = 1; is_forward(k) && i < k->k->n_in && !status; i++)
        status = k_add(b->stream, type, n, i == 1 ? c->in[0] : c->out, c->in[i], c->out);
    for (int i = 0; !is_forward(k) && i < k->k->n_in && !status; i++)
        if (c->gin[i]) status = k_copy(b->stream, type, n, c->gout, c->gin[i], adds(c, i));
    return cuda_check(e, "add", status);
}

static int concat_run(struct be *b, struct be_kernel *k, const struct be_call *c, struct err *e)
{
    const struct k_shape out = shape_of(b, k->k->out, c->n);
    struct k_slice s = {.type = out.type, .rows = out.n * out.points, .width = out.c};
    int status = 0;
    for (int i = 0; i < k->k->n_in && !status; i++, s.first += s.c) {
        const struct k_grad g = grad_of(c, i);
        s.c = channels(b, k->k->in[i]);
        if (is_forward(k)) status = k_concat(b->stream, &s, c->in[i], c->out);
        else if (g.gx) status = k_concat_back(b->stream, &s, &g);
    }
    return cuda_check(e, "concat", status);
}

static int flatten_run(struct be *b, struct be_kernel *k, const struct be_call *c, struct err *e)
{
    const struct k_shape s = shape_of(b, k->k->in[0], c->n);
    const struct k_grad g = grad_of(c, 0);
    const bool stay = k->node->attr[op_attr(k->node->op, "first")].i[0] > 0;   /* channels are last in both tensors */
    const size_t n = count(b, k->k->out, c->n);
    int status = stay && is_forward(k) ? k_copy(b->stream, s.type, n, c->in[0], c->out, false)
                 : stay                ? k_copy(b->stream, s.type, n, g.gy, g.gx, g.acc)
                 : is_forward(k)       ? k_flatten(b->stream, &s, c->in[0], c->out)
                                       : k_flatten_back(b->stream, &s, &g);
    return cuda_check(e, "flatten", status);
}

/* Dropout, of elements or of whole samples. */
typedef int mask_kernel(void *stream, const struct k_mask *m, const void *x, void *y, bool acc);
struct masked { struct be_kernel k; mask_kernel *mask; };

static int dropout_run(struct be *b, struct be_kernel *k, const struct be_call *c, struct err *e)
{
    int t = k->k->out;
    const void *x = is_forward(k) ? c->in[0] : c->gout;
    void *y = is_forward(k) ? c->out : c->gin[0];
    bool acc = !is_forward(k) && adds(c, 0);
    if (!k->key.train) return cuda_check(e, "dropout", k_copy(b->stream, type_of(b, t), count(b, t, c->n), x, y, acc));
    double p = k->node->attr[op_attr(k->node->op, "p")].r;
    const struct k_mask m = {.shape = shape_of(b, t, c->n), .p = p, .layer = (uint32_t)(k->node - b->g->node),
                             .block = c->block, .sample = c->sample};
    return cuda_check(e, k->node->op->name, ((struct masked *)k)->mask(b->stream, &m, x, y, acc));
}

static struct be_kernel *masked_make(const struct be_kernel *like, mask_kernel *mask)
{
    struct masked *k = cuda_kernel_new(like, sizeof *k);
    k->k.run = dropout_run;
    k->mask = mask;
    return &k->k;
}

static struct be_kernel *dropout_make(struct be *b, const struct be_kernel *like, struct err *e)
{
    return masked_make(like, dropout_channels(like->node) ? k_channel_dropout : k_dropout);
}

static struct be_kernel *depth_make(struct be *b, const struct be_kernel *like, struct err *e)
{
    return masked_make(like, k_depth);
}

/* ---- pooling --------------------------------------------------------------------------------- */

struct cuda_pool { struct be_kernel k; struct k_window w; };

static struct be_kernel *pool_make(struct be *b, const struct be_kernel *like, struct err *e)
{
    const struct node *n = like->node;
    struct window w;
    if (window_make(n, &b->g->tensor[n->in[0]].shape, &w, e)) return NULL;
    struct cuda_pool *p = cuda_kernel_new(like, sizeof *p);
    p->w.type = type_of(b, n->out);
    p->w.n = like->key.samples;
    p->w.c = channels(b, n->out);
    for (int i = 0; i < 3; i++) {
        p->w.in[i] = (int)w.in[i]; p->w.out[i] = (int)w.out[i];
        p->w.kernel[i] = (int)w.k[i]; p->w.stride[i] = (int)w.s[i]; p->w.pad[i] = (int)w.p[i];
    }
    return &p->k;
}

static int max_pool_run(struct be *b, struct be_kernel *k, const struct be_call *c, struct err *e)
{
    const struct k_window *w = &((struct cuda_pool *)k)->w;
    const struct k_grad g = grad_of(c, 0);
    return cuda_check(e, "max pool", is_forward(k) ? k_max_pool(b->stream, w, c->in[0], c->out, c->saved)
                                                   : k_max_pool_back(b->stream, w, c->saved, &g));
}

static int avg_pool_run(struct be *b, struct be_kernel *k, const struct be_call *c, struct err *e)
{
    const struct k_window *w = &((struct cuda_pool *)k)->w;
    const struct k_grad g = grad_of(c, 0);
    return cuda_check(e, "average pool", is_forward(k) ? k_avg_pool(b->stream, w, c->in[0], c->out)
                                                       : k_avg_pool_back(b->stream, w, &g));
}

static int adaptive_run(struct be *b, struct be_kernel *k, const struct be_call *c, struct err *e)
{
    const struct adaptive a = adaptive_of(b->g, k->node, c->n);
    const struct k_grad g = grad_of(c, 0);
    struct k_adaptive w = {.type = type_of(b, k->k->out), .n = c->n, .c = channels(b, k->k->out)};
    for (int d = 0; d < 3; d++) {
        w.in[d] = (int)a.in[d];
        w.out[d] = (int)a.out[d];
    }
    return cuda_check(e, "adaptive average pool", is_forward(k) ? k_adaptive_pool(b->stream, &w, c->in[0], c->out)
                                                                : k_adaptive_pool_back(b->stream, &w, &g));
}

static int mean_run(struct be *b, struct be_kernel *k, const struct be_call *c, struct err *e)
{
    const struct k_shape s = shape_of(b, k->k->in[0], c->n);
    const struct k_grad g = grad_of(c, 0);
    return cuda_check(e, "global average pool", is_forward(k) ? k_mean(b->stream, &s, c->in[0], c->out)
                                                              : k_mean_back(b->stream, &s, &g));
}

static int upsample_run(struct be *b, struct be_kernel *k, const struct be_call *c, struct err *e)
{
    const struct upsample u = upsample_of(b->g, k->node, c->n, 1);
    const struct k_shape s = shape_of(b, k->k->out, c->n);
    const struct k_grad g = grad_of(c, 0);
    return cuda_check(e, "upsample", is_forward(k) ? k_upsample(b->stream, &s, &u, c->in[0], c->out)
                                                   : k_upsample_back(b->stream, &s, &u, &g));
}

/* ---- losses ---------------------------------------------------------------------------------- */

static struct k_loss loss_of(const struct be *b, const struct be_kernel *k, const struct be_call *c)
{
    bool is_class = b->g->tensor[k->k->in[1]].type == I64;
    return (struct k_loss){.type = type_of(b, k->k->in[0]),
                           .n = c->n,
                           .count = (int)shape_count(&b->g->tensor[k->k->in[0]].shape),
                           .cls = is_class ? c->in[1] : NULL,
                           .vec = is_class ? NULL : c->in[1]};
}

static int cross_entropy_run(struct be *b, struct be_kernel *k, const struct be_call *c, struct err *e)
{
    struct k_loss l = loss_of(b, k, c);
    l.smoothing = k->node->attr[op_attr(k->node->op, "smoothing")].r;
    return cuda_check(e, "loss",
                      is_forward(k) ? k_cross_entropy(b->stream, &l, c->in[0], c->out)
                                    : k_cross_entropy_back(b->stream, &l, c->block, c->in[0], c->gin[0], adds(c, 0)));
}

static int mse_run(struct be *b, struct be_kernel *k, const struct be_call *c, struct err *e)
{
    struct k_loss l = loss_of(b, k, c);
    return cuda_check(e, "loss",
                      is_forward(k) ? k_mse(b->stream, &l, c->in[0], c->out)
                                    : k_mse_back(b->stream, &l, c->block, c->in[0], c->gin[0], adds(c, 0)));
}

static int absolute_error_run(struct be *b, struct be_kernel *k, const struct be_call *c, struct err *e)
{
    struct k_loss l = loss_of(b, k, c);
    return cuda_check(e, "score", k_mean_absolute_error(b->stream, &l, c->in[0], c->out));
}

/* ---- embedding ------------------------------------------------------------------------------- */

static int embedding_run(struct be *b, struct be_kernel *k, const struct be_call *c, struct err *e)
{
    const struct tensor *t = &b->g->tensor[k->k->in[0]];
    const struct shape *table = &b->g->param[k->k->param[0]].shape;
    enum ktype type = type_of(b, k->k->out);
    struct k_rows r = {.index = c->in[0],
                       .wide = t->type == I64,
                       .n = c->n * shape_count(&t->shape),
                       .count = table->d[0],
                       .c = (int)table->d[1]};
    return cuda_check(e, "embedding",
                      is_forward(k) ? k_embed(b->stream, type, &r, c->param[0], c->out)
                                    : k_embed_back(b->stream, type, &r, c->gout, c->pgrad[0], c->pgrad_acc,
                                                   c->work));
}

static int64_t embedding_positions(const struct graph *g, const struct node *n, int samples)
{
    return samples * shape_count(&g->tensor[n->in[0]].shape);
}

static size_t embedding_workspace(const struct selection *s, const struct group *k)
{
    return k_embed_work(embedding_positions(s->g, &s->g->node[k->node[0]], s->max_samples));
}

static struct be_kernel *embedding_make(struct be *b, const struct be_kernel *like, struct err *e)
{
    const size_t bytes = k_embed_work(embedding_positions(b->g, like->node, like->key.samples));
    return cuda_kernel_workspace(b, like, bytes, e) ? NULL : cuda_kernel_new(like, sizeof *like);
}

/* Batch norm backward reads each element of the output's gradient before it writes the same element. So one result
 * needs no memory of its own: the masked gradient, or the input's gradient if there is no addition. */
#define NORM_ROWS(what, over) \
    {.name = "batch norm", .pattern = what, .phases = ROW_PHASE(PH_FWD), .types = CUDA_TYPES, .grad_over = over, \
     .make = norm_make, .run = norm_forward}, \
    {.name = "batch norm", .pattern = what, .phases = ROW_BACKWARD, .types = CUDA_TYPES, .grad_over = over, \
     .make = norm_make, .run = norm_back}
const struct kernel_row cuda_rows_simple[] = {
    NORM_ROWS(PATTERN_OP("batch_norm"), 1),
    NORM_ROWS(&pattern_bn_relu, 1),
    NORM_ROWS(&pattern_bn_add_relu, 2),
    {.name = "layer norm", .pattern = PATTERN_OP("layer_norm"), .types = CUDA_TYPES,
     .workspace = layer_norm_workspace, .make = layer_norm_make, .run = layer_norm_run},
    {.name = "relu", .pattern = PATTERN_OP("relu"), .types = CUDA_TYPES, .run = relu_run},
    {.name = "unary", .pattern = PATTERN_CATEGORY(OP_UNARY), .types = CUDA_TYPES, .run = unary_run},
    {.name = "multiply", .pattern = PATTERN_OP("multiply"), .types = CUDA_TYPES, .run = multiply_run},
    {.name = "scale", .pattern = PATTERN_OP("scale"), .types = CUDA_TYPES, .make = scale_make, .run = scale_run},
    {.name = "add", .pattern = PATTERN_OP("add"), .types = CUDA_TYPES, .run = add_run},
    {.name = "concat", .pattern = PATTERN_OP("concat"), .types = CUDA_TYPES, .run = concat_run},
    {.name = "flatten", .pattern = PATTERN_OP("flatten"), .types = CUDA_TYPES, .run = flatten_run},
    {.name = "dropout", .pattern = PATTERN_OP("dropout"), .types = CUDA_TYPES, .make = dropout_make},
    {.name = "stochastic depth", .pattern = PATTERN_OP("stochastic_depth"), .types = CUDA_TYPES, .make = depth_make},
    {.name = "max pool", .pattern = PATTERN_OP("max_pool"), .types = CUDA_TYPES, .make = pool_make,
     .run = max_pool_run},
    {.name = "mean of windows", .pattern = PATTERN_OP("avg_pool"), .types = CUDA_TYPES, .make = pool_make,
     .run = avg_pool_run},
    {.name = "mean of windows", .pattern = PATTERN_OP("adaptive_avg_pool"), .types = CUDA_TYPES, .run = adaptive_run},
    {.name = "mean", .pattern = PATTERN_OP("global_avg_pool"), .types = CUDA_TYPES, .run = mean_run},
    {.name = "upsample", .pattern = PATTERN_OP("upsample"), .types = CUDA_TYPES, .run = upsample_run},
    {.name = "cross entropy", .pattern = PATTERN_OP("softmax_cross_entropy"), .types = CUDA_TYPES,
     .run = cross_entropy_run},
    {.name = "mse", .pattern = PATTERN_OP("mse"), .types = CUDA_TYPES, .run = mse_run},
    {.name = "mean absolute error", .pattern = PATTERN_OP("mean_absolute_error"), .types = CUDA_TYPES,
     .run = absolute_error_run},
    {.name = "embedding", .pattern = PATTERN_OP("embedding"), .types = CUDA_TYPES, .workspace = embedding_workspace,
     .make = embedding_make, .run = embedding_run},
    {0}};
