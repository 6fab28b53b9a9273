/* Head, softmax and loss of tokens as rows: logits of BLOCK positions at a time are a product in the workspace. It is
 * oneDNN's sgemm, and in bf16 own loops on AMX, which read the weights as they are stored, or oneDNN. In training the
 * backward pass makes them, the loss, and the gradients of input, weight and bias. The forward pass leaves all to it,
 * so that the logits are made once (op_kind.outs_in_b). */
#include <stdlib.h>
#include <string.h>
#include "backend/cpu/cpu_amx.h"
#include "backend/cpu/cpu_amx_product.h"
#include "backend/cpu/cpu_stored.h"
#include "backend/cpu/onednn/dnnl_half.h"
#include "model/ops/segment.h"
#include "model/ops/token_loss.h"

enum { BLOCK = 256, SOME_CLASSES = 2048 };               /* rows; classes whose weights' gradients are added at once */
/* In bf16: the products of a block of so many rows; [1] adds. The logits and their exponentials are floats, their
 * gradients are rounded to bf16 for the products. */
struct loss_products { int64_t rows; struct half_product logits, dx[2], dw[2]; };
enum { SIZES = 2 };                                      /* of blocks: whole ones, and the last */
/* late: the backward pass makes the loss. */
/* PANELS: floats, with weights in fewer bits. The last two in bf16. */
enum loss_way { WAY_FLOATS, WAY_PANELS, WAY_HALF, WAY_AMX };
/* w: the weights in bf16. */
struct loss_kernel {
    struct be_kernel base; struct token_loss t; bool late; enum loss_way way; struct loss_products of[SIZES];
    const void *w;
};

static int64_t block_of(const struct token_loss *t, int64_t from)
{
    const int64_t all = t->n * t->points;
    return all - from < BLOCK ? all - from : BLOCK;
}

/* Places in the workspace: behind the floats of a block their gradients in bf16, the weights if they need a copy, and
 * the products' scratch. */
static size_t narrow_at(const struct token_loss *t)
{
    return size_align64((size_t)(block_of(t, 0) * t->classes) * sizeof(float));
}
/* From one row of these gradients to the next: AMX takes a multiple. */
static int64_t line_of(const struct token_loss *t, enum loss_way way)
{
    return way == WAY_AMX ? (t->classes + AMX_STEP - 1) / AMX_STEP * AMX_STEP : t->classes;
}
static size_t copy_at(const struct token_loss *t, enum loss_way way)
{
    return narrow_at(t) + size_align64((size_t)(block_of(t, 0) * line_of(t, way)) * 2);
}
static size_t scratch_at(const struct selection *s, const struct group *k, const struct token_loss *t)
{
    return copy_at(t, WAY_HALF) + cpu_half_copy(s, k);
}

static void weights_find(const struct be *b, struct loss_kernel *k, const struct be_call *c)
{
    if (k->way == WAY_HALF)
        k->w = cpu_half_weights(b, k->base.k, c, (char *)c->work + copy_at(&k->t, WAY_HALF));
}

static struct loss_products *products_of(struct loss_kernel *k, int64_t rows)
{
    return &k->of[k->of[0].rows != rows];
}

/* ---- on AMX ---------------------------------------------------------------------------------- */

static void amx_logits(struct be *b, struct loss_kernel *k, const struct be_call *c, int64_t from, int64_t rows)
{
    const int64_t classes = k->t.classes, width = k->t.width;
    const struct amx_matrix w = cpu_amx_matrix(b, k->base.k, false, c->param[0]);
    amx_product_run(&(struct amx_product){.m = rows, .k = width, .n = classes, .a_line = width, .c_line = classes,
                                          .a = (const uint16_t *)c->in[0] + from * width, .from = &w,
                                          .bias = k->base.node->n_param > 1 ? c->param[1] : NULL, .c = c->work,
                                          .wide = true, .threads = b->s->dev.threads},
                    (char *)c->work + copy_at(&k->t, WAY_AMX));
}

/* Of some classes: all at once would not fit the cache. */
static struct amx_sums amx_sums_of(const struct token_loss *t, int64_t rows, int64_t classes, int threads)
{
    static const struct amx_shift none;
    return (struct amx_sums){.samples = 1, .slots = rows, .x = {classes, line_of(t, WAY_AMX), rows},
                             .g = {t->width, t->width, rows}, .phases = 1, .shifts = 1, .shift = &none,
                             .threads = threads};
}

static void amx_block(struct be *b, struct loss_kernel *k, const struct be_call *c, int64_t from, int64_t rows)
{
    const int64_t width = k->t.width, line = line_of(&k->t, WAY_AMX);
    const uint16_t *dz = (const uint16_t *)((const char *)c->work + narrow_at(&k->t)),
                   *x = (const uint16_t *)c->in[0] + from * width;
    void *work = (char *)c->work + copy_at(&k->t, WAY_AMX);
    const struct amx_matrix w = cpu_amx_matrix(b, k->base.k, true, c->param[0]);
    if (c->gin[0])
        amx_product_run(&(struct amx_product){.m = rows, .k = line, .n = width, .a_line = line, .c_line = width,
                                              .a = dz, .from = &w, .c = (uint16_t *)c->gin[0] + from * width,
                                              .acc = c->gin_acc & 1, .threads = b->s->dev.threads}, work);
    for (int64_t i = 0, n; c->pgrad[0] && i < k->t.classes; i += n) {
        n = k->t.classes - i < SOME_CLASSES ? k->t.classes - i : SOME_CLASSES;
        const struct amx_sums sums = amx_sums_of(&k->t, rows, n, b->s->dev.threads);
        amx_sums_run(&sums, dz + i, x, (float *)c->pgrad[0] + i * width, c->pgrad_acc || from > 0, work);
    }
}

static size_t amx_loss_work(const struct token_loss *t, int threads)
{
    const int64_t some = t->classes < SOME_CLASSES ? t->classes : SOME_CLASSES, line = line_of(t, WAY_AMX);
    size_t most = 0;
    for (int i = 0; i < SIZES; i++) {                    /* a short block may need more for its sums */
        const int64_t rows = i ? t->n * t->points % BLOCK : block_of(t, 0);
        const struct amx_sums sums = amx_sums_of(t, rows ? rows : 1, some, threads);
        const size_t w = amx_sums_work(&sums);
        most = w > most ? w : most;
    }
    const size_t z = amx_product_work(t->width, t->classes, true, threads),
                 x = amx_product_work(line, t->width, true, threads), products = z > x ? z : x;
    return copy_at(t, WAY_AMX) + (most > products ? most : products);
}

/* ---- logits, and what rows add --------------------------------------------------------------- */

/* Behind the logits: a panel of stored weights. */
static float *panel_of(const struct loss_kernel *k, const struct be_call *c)
{
    return (float *)((char *)c->work + narrow_at(&k->t));
}

/* Gradients of the input of some rows. */
static int loss_back(struct be *b, const struct loss_kernel *k, const struct be_call *c, int64_t from, int64_t rows,
                     struct err *e)
{
    const int64_t classes = k->t.classes, width = k->t.width;
    float *gx = (float *)c->gin[0] + from * width;
    const struct stored_weights w = stored_param(b, k->base.node->param[0], c->param[0]);
    if (k->way == WAY_PANELS) return stored_back(b, &w, rows, c->work, c->gin_acc & 1, gx, panel_of(k, c), e);
    return matmul_run((struct matmul){rows, width, classes, {'N', c->work, classes}, {'N', c->param[0], width},
                                      c->gin_acc & 1}, gx, width, e);
}

/* Some rows from `from` on: their logits. */
static int logits(struct be *b, struct loss_kernel *k, const struct be_call *c, int64_t from, int64_t rows,
                  struct err *e)
{
    const int64_t classes = k->t.classes, width = k->t.width;
    float *z = c->work;
    const bool bias = k->base.node->n_param > 1;
    if (k->way == WAY_AMX) { amx_logits(b, k, c, from, rows); return 0; }
    if (k->way == WAY_HALF)
        return half_run(b, &products_of(k, rows)->logits,
                        &(struct half_call){(const uint16_t *)c->in[0] + from * width, k->w, c->param[1], z,
                                            (char *)c->work + scratch_at(b->s, k->base.k, &k->t)}, e);
    for (int64_t r = 0; bias && r < rows; r++)
        memcpy(z + r * classes, c->param[1], (size_t)classes * sizeof *z);
    if (k->way == WAY_PANELS) {
        const struct stored_weights w = stored_param(b, k->base.node->param[0], c->param[0]);
        return stored_forward(b, &w, rows, (const float *)c->in[0] + from * width, bias, z, panel_of(k, c), e);
    }
    return matmul_run((struct matmul){rows, classes, width, {'N', (const float *)c->in[0] + from * width, width},
                                      {'T', c->param[0], width}, bias}, z, classes, e);
}

static struct labels labels_of(const struct be *b, const struct loss_kernel *k, const struct be_call *c)
{
    return (struct labels){b->g->tensor[k->base.node->in[1]].type, c->in[1]};
}

/* What a row adds to its sample's columns. The first of equal logits counts as the largest. */
static void row_score(const struct be *b, const struct loss_kernel *k, float *z, int64_t label, double *columns,
                      float kept[2])
{
    const int64_t classes = k->t.classes;
    const bool known = label >= 0 && label < classes;
    const float right = known ? z[label] : NAN;
    bool before = false;                                 /* one that is as large, or larger */
    for (int64_t i = 0; known && i < label && !before; i++) before = z[i] >= right;
    const double log_sum = b->vec->row_exp(z, classes, kept);
    memset(columns, 0, TOKEN_COLUMNS * sizeof *columns);
    if (label == k->t.ignore) return;
    columns[TOKEN_SUM] = kept[0] + log_sum - right;
    columns[TOKEN_HITS] = right >= kept[0] && !before;
    columns[TOKEN_VALID] = 1;
}

/* The exponentials of a row become the gradients of its logits. */
static void row_gradient(const struct be *b, const struct loss_kernel *k, const struct be_call *c, float *z,
                         int64_t label, int64_t at)
{
    const float seed = (float)c->block->inv_weight, times = ((const float *)c->saved)[2 * at + 1] * seed;
    if (label == k->t.ignore) { memset(z, 0, (size_t)k->t.classes * sizeof *z); return; }
    b->vec->row_times(z, k->t.classes, times);
    if (label >= 0 && label < k->t.classes) z[label] -= seed;
}

/* A block from row `from` on, and what its rows add to the columns. */
struct block {
    const struct be *b; const struct loss_kernel *k; const struct be_call *c; int64_t from; double *columns;
};

static void some_rows_score(const void *data, int thread, int64_t from, int64_t to)
{
    const struct block *t = data;
    const struct loss_kernel *k = t->k;
    const struct be_call *c = t->c;
    const struct labels y = labels_of(t->b, k, c);
    const int64_t classes = k->t.classes;
    for (int64_t r = from; r < to; r++) {
        const int64_t at = t->from + r, label = label_at(y, at);
        float *z = (float *)c->work + r * classes;
        row_score(t->b, k, z, label, t->columns + r * TOKEN_COLUMNS, (float *)c->saved + 2 * at);
        if (k->base.key.phase == PH_FWD) continue;
        row_gradient(t->b, k, c, z, label, at);
        if (k->way <= WAY_PANELS) continue;
        const int64_t line = line_of(&k->t, k->way);
        uint16_t *narrow = (uint16_t *)((char *)c->work + narrow_at(&k->t)) + r * line;
        t->b->vec->narrow(narrow, z, (size_t)classes, false);
        memset(narrow + classes, 0, (size_t)(line - classes) * sizeof *narrow);
    }
}

/* Logits of a block from row `from` on, which become e^(logit - most), or in the backward pass their gradients; adds
 * to the columns. */
static int block_score(struct be *b, struct loss_kernel *k, const struct be_call *c, int64_t from, int64_t rows,
                       struct err *e)
{
    double columns[BLOCK * TOKEN_COLUMNS];
    if (logits(b, k, c, from, rows, e)) return -1;
    cpu_each(b->s->dev.threads, rows, some_rows_score, &(struct block){b, k, c, from, columns});
    for (int64_t r = 0; r < rows; r++)
        for (int i = 0; i < TOKEN_COLUMNS; i++)
            ((double *)c->out)[(from + r) / k->t.points * TOKEN_COLUMNS + i] += columns[r * TOKEN_COLUMNS + i];
    return 0;
}

static int forward_run(struct be *b, struct be_kernel *base, const struct be_call *c, struct err *e)
{
    struct loss_kernel *k = (struct loss_kernel *)base;
    int bad = 0;
    if (k->late) return 0;
    weights_find(b, k, c);
    memset(c->out, 0, (size_t)k->t.n * TOKEN_COLUMNS * sizeof(double));
    for (int64_t from = 0; from < k->t.n * k->t.points && !bad; from += BLOCK)
        bad = block_score(b, k, c, from, block_of(&k->t, from), e);
    return bad;
}

static int half_block(struct be *b, struct loss_kernel *k, const struct be_call *c, int64_t from, int64_t rows,
                      struct err *e)
{
    const int64_t at = from * k->t.width;
    struct loss_products *p = products_of(k, rows);
    uint16_t *dz = (uint16_t *)((char *)c->work + narrow_at(&k->t));
    void *scratch = (char *)c->work + scratch_at(b->s, k->base.k, &k->t);
    if (c->gin[0] && half_run(b, &p->dx[c->gin_acc & 1], &(struct half_call){dz, k->w, NULL,
                              (uint16_t *)c->gin[0] + at, scratch}, e))
        return -1;
    if (!c->pgrad[0]) return 0;
    return half_run(b, &p->dw[c->pgrad_acc || from > 0], &(struct half_call){dz, (const uint16_t *)c->in[0] + at, NULL,
                    c->pgrad[0], scratch}, e);
}

static int backward_run(struct be *b, struct be_kernel *base, const struct be_call *c, struct err *e)
{
    struct loss_kernel *k = (struct loss_kernel *)base;
    const int64_t classes = k->t.classes, width = k->t.width;
    float *z = c->work, *bias = k->base.node->n_param > 1 ? c->pgrad[1] : NULL;
    weights_find(b, k, c);
    memset(c->out, 0, (size_t)k->t.n * TOKEN_COLUMNS * sizeof(double));
    for (int64_t from = 0; from < k->t.n * k->t.points; from += BLOCK) {
        const int64_t rows = block_of(&k->t, from);
        const float *x = (const float *)c->in[0] + from * width;
        if (block_score(b, k, c, from, rows, e)) return -1;
        if (bias) cpu_add_rows(b, bias, z, rows, classes, c->pgrad_acc || from > 0);
        if (k->way == WAY_HALF && half_block(b, k, c, from, rows, e)) return -1;
        if (k->way == WAY_AMX) amx_block(b, k, c, from, rows);
        if (k->way > WAY_PANELS) continue;
        const struct matmul dw = {classes, width, rows, {'T', z, classes}, {'N', x, width}, c->pgrad_acc || from > 0};
        if ((c->gin[0] && loss_back(b, k, c, from, rows, e)) ||
            (c->pgrad[0] && matmul_run(dw, c->pgrad[0], width, e)))
            return -1;
    }
    return 0;
}

static void loss_close(struct be_kernel *base)
{
    struct loss_kernel *k = (struct loss_kernel *)base;
    for (int i = 0; i < SIZES; i++) {
        prim_free(&k->of[i].logits.p);
        for (int j = 0; j < 2; j++) prim_free(&k->of[i].dx[j].p), prim_free(&k->of[i].dw[j].p);
    }
}

static size_t scratch_bytes(const struct token_loss *t, int threads)
{
    const int64_t rows = block_of(t, 0);
    const size_t x = half_scratch(rows, t->classes, t->width, threads),
                 w = half_scratch(t->classes, t->width, rows, threads);
    return x > w ? x : w;
}

static int products_make(struct be *b, struct loss_kernel *k, struct loss_products *p, int64_t rows, struct err *e)
{
    const int64_t classes = k->t.classes, width = k->t.width;
    const size_t space = scratch_bytes(&k->t, b->s->dev.threads);
    const bool bias = k->base.node->n_param > 1;
    p->rows = rows;
    int bad = half_make(b, &p->logits, &(struct half_shape){rows, classes, width, {'N', width}, {'T', width}, classes,
                                                            .wide = true, .bias = bias}, space, e);
    for (int i = 0; i < 2 && k->base.key.phase != PH_FWD && !bad; i++)
        bad = half_make(b, &p->dx[i], &(struct half_shape){rows, width, classes, {'N', classes}, {'N', width}, width,
                                                           .acc = i}, space, e) ||
              half_make(b, &p->dw[i], &(struct half_shape){classes, width, rows, {'T', classes}, {'N', width}, width,
                                                           .wide = true, .acc = i}, space, e);
    return bad ? -1 : 0;
}

static struct loss_kernel *loss_new(struct be *b, const struct be_kernel *like, enum loss_way way)
{
    struct loss_kernel *k = kernel_new(like, sizeof *k);
    k->t = token_loss_of(b->g, like->node, like->key.samples);
    k->late = like->key.train && group_has_phase(like->k, PH_BWD_DATA);
    k->way = way;
    k->base.run = like->key.phase == PH_FWD ? forward_run : backward_run;
    return k;
}

/* In bf16, on a processor with instructions for it. */
static struct be_kernel *half_loss_make(struct be *b, const struct be_kernel *like, struct err *e)
{
    struct loss_kernel *k = loss_new(b, like, WAY_HALF);
    k->base.close = loss_close;
    const int64_t all = k->t.n * k->t.points, first = block_of(&k->t, 0), last = all % BLOCK ? all % BLOCK : first;
    const size_t bytes = scratch_at(b->s, like->k, &k->t) + scratch_bytes(&k->t, b->s->dev.threads);
    const bool each = cpu_half_each(b->s, like->k);
    k->base.stored = b->s->param[like->k->param[0]].type == BF16;
    int bad = !each && !like->k->packed_bytes ? err_set(e, E_CONF, "no copy of the weights in bf16 is planned") : 0;
    bad = bad || products_make(b, k, &k->of[0], first, e) ||
              (last != first && products_make(b, k, &k->of[1], last, e)) || kernel_workspace(b, like, bytes, e);
    if (!bad) return &k->base;
    kernel_free(&k->base);
    return NULL;
}

static size_t half_loss_workspace(const struct selection *s, const struct group *k)
{
    const struct token_loss t = token_loss_of(s->g, group_node(s, k), s->max_samples);
    return CPU_WORK + scratch_at(s, k, &t) + scratch_bytes(&t, s->dev.threads);
}

static struct be_kernel *amx_loss_make(struct be *b, const struct be_kernel *like, struct err *e)
{
    if (!amx_ready()) { err_set(e, E_CONF, "the system gives no AMX registers"); return NULL; }
    struct loss_kernel *k = loss_new(b, like, WAY_AMX);
    if (!kernel_workspace(b, like, amx_loss_work(&k->t, b->s->dev.threads), e)) return &k->base;
    kernel_free(&k->base);
    return NULL;
}

static size_t amx_loss_workspace(const struct selection *s, const struct group *k)
{
    const struct token_loss t = token_loss_of(s->g, group_node(s, k), s->max_samples);
    return CPU_WORK + amx_loss_work(&t, s->dev.threads);
}

static struct be_kernel *loss_make(struct be *b, const struct be_kernel *like, struct err *e)
{
    struct loss_kernel *k = loss_new(b, like, WAY_FLOATS);
    const size_t bytes = (size_t)block_of(&k->t, 0) * (size_t)k->t.classes * sizeof(float);
    if (!kernel_workspace(b, like, bytes, e)) return &k->base;
    kernel_free(&k->base);
    return NULL;
}

static size_t loss_workspace(const struct selection *s, const struct group *k)
{
    const struct token_loss t = token_loss_of(s->g, group_node(s, k), s->max_samples);
    return CPU_WORK + (size_t)block_of(&t, 0) * (size_t)t.classes * sizeof(float);
}

static size_t panels_bytes(const struct token_loss *t)
{
    return narrow_at(t) + stored_work(t->classes, t->width);
}

static struct be_kernel *panels_loss_make(struct be *b, const struct be_kernel *like, struct err *e)
{
    struct loss_kernel *k = loss_new(b, like, WAY_PANELS);
    if (!kernel_workspace(b, like, panels_bytes(&k->t), e)) return &k->base;
    kernel_free(&k->base);
    return NULL;
}

static size_t panels_loss_workspace(const struct selection *s, const struct group *k)
{
    const struct token_loss t = token_loss_of(s->g, group_node(s, k), s->max_samples);
    return CPU_WORK + panels_bytes(&t);
}

/* One point a sample is a row in every layout. */
static const char *loss_refuses(const struct selection *s, const struct group *k, enum phase ph)
{
    const struct tensor *t = &s->g->tensor[k->in[0]];
    return cpu_rows(s, k->in[0]) || shape_count(&t->shape) == t->shape.d[0] ? NULL : "";
}

static const char *panels_loss_refuses(const struct selection *s, const struct group *k, enum phase ph)
{
    const bool bias = k->n_param > 1 && select_narrows(s, k->param[1]);
    return select_narrows(s, k->param[0]) && !bias ? loss_refuses(s, k, ph) : "";
}

static const char *half_loss_refuses(const struct selection *s, const struct group *k, enum phase ph)
{
    return s->dev.bf16 && !graph_generates(s->g) ? loss_refuses(s, k, ph) : "";
}

static const char *amx_loss_refuses(const struct selection *s, const struct group *k, enum phase ph)
{
    const bool steps = s->g->param[k->param[0]].shape.d[1] % AMX_STEP == 0;
    return steps && s->dev.bf16 && !strcmp(s->dev.bf16, "amx_bf16") ? half_loss_refuses(s, k, ph) : "";
}

const struct kernel_row cpu_rows_token_loss[] = {
    {.name = "amx", .pattern = PATTERN_OP("token_loss"), .types = TAKES(BF16), .cost = 0.4,
     .layouts = ROW_LAYOUT(LAYOUT_LAST) | ROW_LAYOUT(LAYOUT_PLAIN), .refuses = amx_loss_refuses,
     .workspace = amx_loss_workspace, .stored = true, .late = true, .asks = true, .make = amx_loss_make},
    {.name = "bf16", .pattern = PATTERN_OP("token_loss"), .types = TAKES(BF16), .cost = 0.5,
     .layouts = ROW_LAYOUT(LAYOUT_LAST) | ROW_LAYOUT(LAYOUT_PLAIN), .refuses = half_loss_refuses,
     .workspace = half_loss_workspace, .packed = cpu_half_packed, .late = true, .asks = true, .make = half_loss_make,
     .pack = cpu_half_pack},
    {.name = "panels", .pattern = PATTERN_OP("token_loss"),
     .layouts = ROW_LAYOUT(LAYOUT_LAST) | ROW_LAYOUT(LAYOUT_PLAIN), .refuses = panels_loss_refuses,
     .workspace = panels_loss_workspace, .stored = true, .late = true, .make = panels_loss_make},
    {.name = "rows", .pattern = PATTERN_OP("token_loss"),
     .layouts = ROW_LAYOUT(LAYOUT_LAST) | ROW_LAYOUT(LAYOUT_PLAIN), .refuses = loss_refuses,
     .workspace = loss_workspace, .late = true, .make = loss_make},
    {0}};
