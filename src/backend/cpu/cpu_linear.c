/* Linear layers by oneDNN's sgemm, which can add to its output (beta = 1). Row-major: y[n][out] = x[n][in] w[out][in]^T
 * + bias; with points, sample by sample y[out][points] = w[out][in] x[in][points] + bias, or all at once where tokens
 * are rows. */
#include <stdio.h>
#include <string.h>
#include "backend/cpu/cpu_product.h"
#include "backend/cpu/cpu_stored.h"

struct linear_kernel { struct be_kernel base; int64_t rows, in, out, points; };   /* rows: samples */

/* Few inputs, as adapters have: sgemm takes several times what writing the outputs does. The panels of the weights are
 * as large as their gradient, for which there is room. */
enum { FEW_INPUTS = 64, THIN_ROWS = 12 };                /* rows: so that outputs are written row by row */
static const struct product_ops *thin_ops(const struct be *b, const struct linear_kernel *k)
{
    const struct product_ops *own = cpu_product_ops(b);
    return own && k->in <= FEW_INPUTS && k->out % own->block == 0 && k->rows > DECODE_ROWS ? own : NULL;
}

struct thin_call { const struct product_ops *own; const struct linear_kernel *k; const struct be_call *c; };

static void thin_part(const void *data, int thread, int64_t from, int64_t to)
{
    const struct thin_call *t = data;
    const struct linear_kernel *k = t->k;
    for (int64_t r = from; r < to; r += THIN_ROWS) {
        const struct product_rows p = {to - r < THIN_ROWS ? to - r : THIN_ROWS, k->out, k->in,
                                       (const float *)t->c->in[0] + r * k->in, k->in, t->c->param[1],
                                       (float *)t->c->out + r * k->out, k->out, false};
        t->own->rows(&p, t->c->work, k->in * t->own->block);
    }
}

static int thin_run(struct be *b, struct be_kernel *base, const struct be_call *c, struct err *e)
{
    const struct linear_kernel *k = (const struct linear_kernel *)base;
    const struct product_ops *own = thin_ops(b, k);
    own->panels_turned(c->param[0], k->in, k->out, k->in, c->work, k->in * own->block);
    cpu_each(b->s->dev.threads, k->rows, thin_part, &(struct thin_call){own, k, c});
    return 0;
}

static int forward_run(struct be *b, struct be_kernel *base, const struct be_call *c, struct err *e)
{
    const struct linear_kernel *k = (const struct linear_kernel *)base;
    if (c->param[1])
        for (int64_t r = 0; r < k->rows; r++)
            memcpy((float *)c->out + r * k->out, c->param[1], (size_t)k->out * sizeof(float));
    return matmul_run((struct matmul){k->rows, k->out, k->in, {'N', c->in[0], k->in}, {'T', c->param[0], k->in},
                                  c->param[1] != NULL}, c->out, k->out, e);
}

/* Of up to DECODE_ROWS rows in a network that generates. sgemm would be slower, and a row's bits would depend on their
 * number. Most of the time goes into reading the weights, which are taken as they are stored. */
static int few_run(struct be *b, struct be_kernel *base, const struct be_call *c, struct err *e)
{
    const struct linear_kernel *k = (const struct linear_kernel *)base;
    const int w = base->k->param[0];
    const struct format *f = &b->s->param[w];
    const float *factor = f->type == I8 ? format_factors(f, &b->g->param[w].shape, c->param[0]) : NULL;
    const enum vec_stored type = f->type == I8 ? VEC_I8 : f->type == BF16 ? VEC_BF16 : VEC_F32;
    b->vec->few_rows(&(struct vec_few){k->rows, k->in, k->out, type, factor}, c->in[0], c->param[0], c->param[1],
                     c->out);
    return 0;
}

static int data_run(struct be *b, struct be_kernel *base, const struct be_call *c, struct err *e)
{
    const struct linear_kernel *k = (const struct linear_kernel *)base;
    return matmul_run((struct matmul){k->rows, k->in, k->out, {'N', c->gout, k->out}, {'N', c->param[0], k->in},
                                  c->gin_acc & 1}, c->gin[0], k->in, e);
}

static int weights_run(struct be *b, struct be_kernel *base, const struct be_call *c, struct err *e)
{
    const struct linear_kernel *k = (const struct linear_kernel *)base;
    const float *g = c->gout;
    if (c->pgrad[1]) cpu_add_rows(b, c->pgrad[1], g, k->rows, k->out, c->pgrad_acc);
    if (!c->pgrad[0]) return 0;
    return matmul_run((struct matmul){k->out, k->in, k->rows, {'T', g, k->out}, {'N', c->in[0], k->in}, c->pgrad_acc},
                     c->pgrad[0], k->in, e);
}

/* ---- with points ----------------------------------------------------------------------------------------------- */

static int points_forward_run(struct be *b, struct be_kernel *base, const struct be_call *c, struct err *e)
{
    const struct linear_kernel *k = (const struct linear_kernel *)base;
    const float *bias = c->param[1];
    for (int64_t n = 0; n < k->rows; n++) {
        float *y = (float *)c->out + n * k->out * k->points;
        const float *x = (const float *)c->in[0] + n * k->in * k->points;
        for (int64_t o = 0; bias && o < k->out; o++)
            for (int64_t p = 0; p < k->points; p++) y[o * k->points + p] = bias[o];
        const struct matmul g = {
            k->out, k->points, k->in, {'N', c->param[0], k->in}, {'N', x, k->points}, bias != NULL
        };
        if (matmul_run(g, y, k->points, e)) return -1;
    }
    return 0;
}

static int points_data_run(struct be *b, struct be_kernel *base, const struct be_call *c, struct err *e)
{
    const struct linear_kernel *k = (const struct linear_kernel *)base;
    for (int64_t n = 0; n < k->rows; n++) {
        const float *g = (const float *)c->gout + n * k->out * k->points;
        const struct matmul x = {k->in, k->points, k->out, {'T', c->param[0], k->in}, {'N', g, k->points},
                               c->gin_acc & 1};
        if (matmul_run(x, (float *)c->gin[0] + n * k->in * k->points, k->points, e)) return -1;
    }
    return 0;
}

/* Adds sample by sample. */
static int points_weights_run(struct be *b, struct be_kernel *base, const struct be_call *c, struct err *e)
{
    const struct linear_kernel *k = (const struct linear_kernel *)base;
    float *bias = c->pgrad[1];
    for (int64_t n = 0; n < k->rows; n++) {
        const float *g = (const float *)c->gout + n * k->out * k->points,
                    *x = (const float *)c->in[0] + n * k->in * k->points;
        bool acc = c->pgrad_acc || n > 0;
        for (int64_t o = 0; bias && o < k->out; o++) {
            double sum = 0;
            for (int64_t p = 0; p < k->points; p++) sum += g[o * k->points + p];
            bias[o] = (acc ? bias[o] : 0) + (float)sum;
        }
        const struct matmul w = {k->out, k->in, k->points, {'N', g, k->points}, {'T', x, k->points}, acc};
        if (c->pgrad[0] && matmul_run(w, c->pgrad[0], k->in, e)) return -1;
    }
    return 0;
}

/* ---- making ---------------------------------------------------------------------------------------------------- */

static struct be_kernel *linear_make(struct be *b, const struct be_kernel *like, struct err *e)
{
    const struct node *n = like->node;
    struct linear_kernel *k = kernel_new(like, sizeof *k);
    const struct shape *w = &b->g->param[n->param[0]].shape;
    enum phase ph = like->key.phase;
    k->out = w->d[0];
    k->in = w->d[1];
    k->rows = like->key.samples;
    k->points = shape_points(&b->g->tensor[n->out].shape);
    if (cpu_rows(b->s, n->in[0]) && cpu_rows(b->s, n->out)) {
        k->rows *= k->points;
        k->points = 1;
    }
    const bool few = k->rows <= DECODE_ROWS && graph_generates(b->g);
    const enum dtype stored = b->s->param[n->param[0]].type;
    k->base.stored |= few && k->points == 1 && ph == PH_FWD && (stored == I8 || stored == BF16);
    if (k->points == 1 && ph == PH_FWD && few) k->base.run = few_run;
    else if (k->points == 1 && ph == PH_FWD && thin_ops(b, k)) k->base.run = thin_run;
    else if (k->points == 1) k->base.run = ph == PH_FWD ? forward_run : ph == PH_BWD_DATA ? data_run : weights_run;
    else k->base.run = ph == PH_FWD       ? points_forward_run
                       : ph == PH_BWD_DATA ? points_data_run
                                           : points_weights_run;
    const size_t panels = k->base.run == thin_run ? (size_t)(k->in * k->out) * sizeof(float) : 0;
    if (!panels || !kernel_workspace(b, like, panels, e)) return &k->base;
    kernel_free(&k->base);
    return NULL;
}

/* Tensors that are not plain are copied. */
static struct be_kernel *linear_any_make(struct be *b, const struct be_kernel *like, struct err *e)
{
    const struct node *n = like->node;
    const bool rows = cpu_rows(b->s, n->in[0]) && cpu_rows(b->s, n->out),
               blocked = !rows && (tensor_lanes(b, n->in[0]) > 1 || tensor_lanes(b, n->out) > 1);
    return blocked ? cpu_convert_make(b, like, 1, linear_make, e) : linear_make(b, like, e);
}

/* ---- weights in fewer bits --------------------------------------------------------------------------------------- */

static int panels_forward_run(struct be *b, struct be_kernel *base, const struct be_call *c, struct err *e)
{
    const struct linear_kernel *k = (const struct linear_kernel *)base;
    const struct stored_weights w = stored_param(b, base->node->param[0], c->param[0]);
    for (int64_t r = 0; c->param[1] && r < k->rows; r++)
        memcpy((float *)c->out + r * k->out, c->param[1], (size_t)k->out * sizeof(float));
    return stored_forward(b, &w, k->rows, c->in[0], c->param[1] != NULL, c->out, c->work, e);
}

static int panels_data_run(struct be *b, struct be_kernel *base, const struct be_call *c, struct err *e)
{
    const struct linear_kernel *k = (const struct linear_kernel *)base;
    const struct stored_weights w = stored_param(b, base->node->param[0], c->param[0]);
    return stored_back(b, &w, k->rows, c->gout, c->gin_acc & 1, c->gin[0], c->work, e);
}

static struct be_kernel *panels_make(struct be *b, const struct be_kernel *like, struct err *e)
{
    struct be_kernel *k = linear_make(b, like, e);
    if (k->run != few_run) k->run = like->key.phase == PH_FWD ? panels_forward_run : panels_data_run;
    return k;
}

/* Where samples or tokens are rows. A bias in fewer bits would be widened, so its group is not taken; nor are weights
 * in fp16, which the loops for few rows do not know. */
static const char *panels_refuse(const struct selection *s, const struct group *k, enum phase ph)
{
    const struct node *n = group_node(s, k);
    const int w = n->param[0];
    bool takes = select_narrows(s, w) && s->param[w].type != F16 && s->g->param[w].shape.n == 2;
    for (int i = 1; i < n->n_param; i++) takes &= !select_narrows(s, n->param[i]);
    return takes && cpu_rows(s, n->in[0]) && cpu_rows(s, n->out) ? NULL : "";
}

static size_t panels_work(const struct selection *s, const struct group *k)
{
    const struct shape *w = &s->g->param[k->param[0]].shape;
    return CPU_WORK + stored_work(w->d[0], w->d[1]);
}

const struct kernel_row cpu_rows_linear[] = {
    {.name = "panels", .pattern = PATTERN_OP("linear"), .phases = ROW_PHASE(PH_FWD) | ROW_PHASE(PH_BWD_DATA),
     .layouts = ROW_ANY_LAYOUT, .refuses = panels_refuse, .workspace = panels_work, .stored = true,
     .make = panels_make},
    {.name = "sgemm", .pattern = PATTERN_OP("linear"), .layouts = ROW_ANY_LAYOUT, .layout = cpu_rows_follow,
     .make = linear_any_make}, {0}};
