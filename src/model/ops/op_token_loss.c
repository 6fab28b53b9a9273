/* The head of a language model and its loss in one: logits weight x + bias of each point, their softmax, and -log p of
 * the point's label. The logits of a sample are never stored together. A label equal to `ignore` does not count. The
 * loss is the mean over all labels that count, of the whole batch: each sample weighs as many of them as it has (R1).
 *
 * The gradients of logits, (softmax - onehot) inv_weight, exist for one point at a time; the gradients of input and
 * weight come from them in one pass. */
#include <math.h>
#include "model/ops/segment.h"
#include "model/ops/tile.h"
#include "model/ops/token_loss.h"

static const struct attr_kind attrs[] = {
    [TOKEN_CLASSES] = {"classes", A_INT, 0, 1, 1 << 24, "of the labels: 0 to classes - 1"},
    [TOKEN_BIAS] = {"bias", A_BOOL, 0, 0, 1, "add a bias to the logits"},
    [TOKEN_IGNORE] = {"ignore", A_INT, -100, -(1 << 24), -1, "the label of points that do not count"}, {NULL}};
static const struct score_row rows[] = {{"loss", TOKEN_SUM, TOKEN_VALID}, {"token_top1", TOKEN_HITS, TOKEN_VALID}, {0}};

static int token_loss_infer(const struct node *n, const struct shape *const *in, struct infer *f, struct err *e)
{
    const int64_t classes = n->attr[TOKEN_CLASSES].i[0], width = in[0]->d[0];
    char a[96], b[96];
    if (classes < 1) return err_set(e, E_CONF, "classes is missing");
    if (shape_count(in[1]) != shape_count(in[0]) / width || in[1]->n != in[0]->n - 1)
        return err_set(e, E_CONF, "labels %s do not fit the input %s: expected one for each point",
                       in[1]->n ? shape_text(in[1], a) : "of one class", shape_text(in[0], b));
    f->out = (struct shape){1, {TOKEN_COLUMNS}};
    f->type = F64;
    /* as op_linear.c */
    const double bound = 1 / sqrt((double)width);
    f->n_param = n->attr[TOKEN_BIAS].i[0] ? 2 : 1;
    f->param[0] = (struct infer_param){"weight", {2, {classes, width}}, INIT_UNIFORM, bound};
    f->param[1] = (struct infer_param){"bias", {1, {classes}}, INIT_UNIFORM, bound};
    return 0;
}

static int64_t range(const struct graph *g, const struct node *n, int in)
{
    return in == 1 ? n->attr[TOKEN_CLASSES].i[0] : 0;
}

static int64_t ignored(const struct graph *g, const struct node *n) { return n->attr[TOKEN_IGNORE].i[0]; }

static uint64_t flops(const struct graph *g, const struct node *n)
{
    const struct token_loss t = token_loss_of(g, n, 1);
    return 2 * (uint64_t)(t.classes * t.width) * (uint64_t)t.points;
}

static size_t token_loss_saved(const struct graph *g, const struct node *n, int samples)
{
    const struct token_loss t = token_loss_of(g, n, samples);
    return 2 * (size_t)(t.n * t.points) * sizeof(float);
}

/* A point: its channels are t.points apart. */
struct token_point { struct token_loss t; const float *x, *weight, *bias; };
static struct token_point point_of(const struct op_call *c, const struct token_loss *t, int64_t point)
{
    const int64_t n = point / t->points, p = point % t->points;
    return (struct token_point){*t, (const float *)c->in[0] + n * t->width * t->points + p, c->param[0],
                                c->node->n_param > 1 ? c->param[1] : NULL};
}

static double logit(const struct token_point *p, int64_t k)
{
    double sum = p->bias ? p->bias[k] : 0;
    for (int64_t i = 0; i < p->t.width; i++) sum += (double)p->x[i * p->t.points] * p->weight[k * p->t.width + i];
    return sum;
}

/* Adds a point's loss and hit, and saves its largest logit and the factor of its probabilities. A label out of range
 * gives NaN. */
static void point_forward(const struct token_point *p, int64_t label, double columns[TOKEN_COLUMNS], float kept[2])
{
    double most = -INFINITY, sum = 0, right = NAN;
    int64_t best = 0;
    for (int64_t k = 0; k < p->t.classes; k++) {
        const double z = logit(p, k);
        if (z > most || z != z) most = z, best = k;
    }
    for (int64_t k = 0; k < p->t.classes; k++) {
        const double z = logit(p, k);
        sum += exp(z - most);
        if (k == label) right = z;
    }
    kept[0] = (float)most;
    kept[1] = (float)(exp(kept[0] - most) / sum);         /* relative to the saved logit */
    if (label == p->t.ignore) return;
    columns[TOKEN_SUM] += most + log(sum) - right;
    columns[TOKEN_HITS] += best == label;
    columns[TOKEN_VALID]++;
}

static void token_loss_forward(const struct op_call *c)
{
    const struct token_loss t = token_loss_of(c->g, c->node, c->n);
    const struct labels y = {c->g->tensor[c->node->in[1]].type, c->in[1]};
    for (int64_t n = 0; n < t.n; n++) {
        double columns[TOKEN_COLUMNS] = {0};
        for (int64_t i = n * t.points; i < (n + 1) * t.points; i++) {
            const struct token_point p = point_of(c, &t, i);
            point_forward(&p, label_at(y, i), columns, (float *)c->saved + 2 * i);
        }
        for (int k = 0; k < TOKEN_COLUMNS; k++) ((double *)c->out)[TOKEN_COLUMNS * n + k] = columns[k];
    }
}

/* The gradient of logit k of a point: 0 where the label is ignored. */
static double logit_gradient(const struct op_call *c, const struct token_point *p, int64_t label, int64_t point,
                             int64_t k)
{
    const float *kept = (const float *)c->saved + 2 * point;
    if (label == p->t.ignore) return 0;
    return (exp(logit(p, k) - kept[0]) * kept[1] - (k == label)) * c->block->inv_weight;
}

/* The gradient of a point's channels. */
static void input_gradient(const struct op_call *c, const struct token_point *p, int64_t label, int64_t point)
{
    float *gx = (float *)c->gin[0] + (p->x - (const float *)c->in[0]);
    for (int64_t i = 0; i < p->t.width; i += TILE) {
        double sum[TILE] = {0};
        const int some = tile_size(p->t.width, i);
        for (int64_t k = 0; k < p->t.classes; k++) {
            const double dz = logit_gradient(c, p, label, point, k);
            for (int j = 0; j < some; j++) sum[j] += dz * p->weight[k * p->t.width + i + j];
        }
        for (int j = 0; j < some; j++) gx[(i + j) * p->t.points] = (float)sum[j];
    }
}

/* The gradient of a class's row of the weight, and of its bias. */
static void class_gradient(const struct op_call *c, const struct token_loss *t, struct labels y, int64_t k)
{
    float *gw = c->pgrad[0], *gb = c->node->n_param > 1 ? c->pgrad[1] : NULL;
    double bias = 0;
    for (int64_t i = 0; i < t->width; i += TILE) {
        double sum[TILE] = {0};
        const int some = tile_size(t->width, i);
        bias = 0;
        for (int64_t at = 0; at < t->n * t->points; at++) {
            const struct token_point p = point_of(c, t, at);
            const double dz = logit_gradient(c, &p, label_at(y, at), at, k);
            bias += dz;
            for (int j = 0; j < some; j++) sum[j] += dz * p.x[(i + j) * t->points];
        }
        for (int j = 0; gw && j < some; j++) gw[k * t->width + i + j] = (float)sum[j];
    }
    if (gb) gb[k] = (float)bias;
}

static void token_loss_backward_data(const struct op_call *c)
{
    const struct token_loss t = token_loss_of(c->g, c->node, c->n);
    const struct labels y = {c->g->tensor[c->node->in[1]].type, c->in[1]};
    for (int64_t at = 0; c->gin[0] && at < t.n * t.points; at++) {
        const struct token_point p = point_of(c, &t, at);
        input_gradient(c, &p, label_at(y, at), at);
    }
    for (int64_t k = 0; (c->pgrad[0] || c->pgrad[1]) && k < t.classes; k++) class_gradient(c, &t, y, k);
}

static const char *const examples[] = {"6x5 + 5 I64 classes=7", "4 + class classes=3", "5x3x2 + 3x2 I64 classes=2",
                                       "16x9 + 9 I64 classes=33 bias=yes", NULL};
const struct op_kind op_token_loss = {
    .name = "token_loss",
    .text = "a linear layer to classes, softmax, and the cross-entropy of each point's label",
    .category = OP_OTHER,
    .n_in = 2,
    .takes = {TAKES(F32), TAKES(I64) | TAKES(I32)},
    .attr = attrs,
    .infer = token_loss_infer,
    .range = range,
    .ignored = ignored,
    .flops = flops,
    .saved_bytes = token_loss_saved,
    .need_b = 3 | NEED_OUT | NEED_SAVED,
    .outs_in_b = true,
    .pgrad_in_b = 3,
    .is_loss = true,
    .rows = rows,
    .forward = token_loss_forward,
    .backward_data = token_loss_backward_data,
    .examples = examples,
};
