/* Linear layers in bf16: tokens as rows, or samples. Weights that are trained have a copy in bf16, made once a step
 * (be_ops.pack); their gradients are added in float. Frozen ones have none, and neither have those of adapters, whose
 * copies would be padded: each call reads them as they are stored. */
#include <string.h>
#include "backend/cpu/cpu_amx.h"
#include "backend/cpu/cpu_amx_product.h"
#include "backend/cpu/cpu_int.h"
#include "backend/cpu/onednn/dnnl_half.h"

struct linear_half { struct be_kernel base; int64_t rows, in, out; struct half_product set, add; };

enum { THIN = 64 };
bool cpu_half_each(const struct selection *s, const struct group *k)
{
    const struct param *w = &s->g->param[k->param[0]];
    return w->frozen || w->shape.d[0] < THIN || w->shape.d[1] < THIN;
}
static bool is_bf16(const struct selection *s, const struct group *k) { return s->param[k->param[0]].type == BF16; }
static size_t plain_bytes(const struct selection *s, const struct group *k)
{
    return size_align64((size_t)shape_count(&s->g->param[k->param[0]].shape) * 2);
}

size_t cpu_half_copy(const struct selection *s, const struct group *k)
{
    return cpu_half_each(s, k) && !is_bf16(s, k) ? plain_bytes(s, k) : 0;
}

const void *cpu_half_weights(const struct be *b, const struct group *k, const struct be_call *c, void *copy)
{
    if (!cpu_half_each(b->s, k)) return c->packed;
    if (is_bf16(b->s, k)) return c->param[0];
    b->vec->narrow(copy, c->param[0], (size_t)shape_count(&b->g->param[k->param[0]].shape), false);
    return copy;
}

static int half_forward_run(struct be *b, struct be_kernel *base, const struct be_call *c, struct err *e)
{
    struct linear_half *k = (struct linear_half *)base;
    const void *w = cpu_half_weights(b, base->k, c, c->work);
    return half_run(b, &k->set, &(struct half_call){c->in[0], w, c->param[1], c->out,
                                                    (char *)c->work + cpu_half_copy(b->s, base->k)}, e);
}

/* Bytes of a form of the weights in either row's packed copies. */
static size_t form_bytes(const struct selection *s, const struct group *k)
{
    const struct shape *w = &s->g->param[k->param[0]].shape;
    const size_t there = amx_packed_bytes(w->d[1], w->d[0]), back = amx_packed_bytes(w->d[0], w->d[1]);
    return size_align64(there > back ? there : back);
}

/* One plain copy is for both directions, unless the forward pass has another form in its place. */
static bool shares(const struct group *k) { return k->row[PH_FWD]->pack == cpu_half_pack; }
static size_t plain_at(const struct selection *s, const struct group *k, enum phase ph)
{
    return ph == PH_FWD || shares(k) ? 0 : form_bytes(s, k);
}

static int half_data_run(struct be *b, struct be_kernel *base, const struct be_call *c, struct err *e)
{
    struct linear_half *k = (struct linear_half *)base;
    const bool each = cpu_half_each(b->s, base->k);
    const void *w = each ? cpu_half_weights(b, base->k, c, c->work)
                           : (const char *)c->packed + plain_at(b->s, base->k, PH_BWD_DATA);
    void *scratch = (char *)c->work + cpu_half_copy(b->s, base->k);
    return half_run(b, c->gin_acc & 1 ? &k->add : &k->set,
                    &(struct half_call){c->gout, w, NULL, c->gin[0], scratch}, e);
}

static int half_weights_run(struct be *b, struct be_kernel *base, const struct be_call *c, struct err *e)
{
    struct linear_half *k = (struct linear_half *)base;
    if (c->pgrad[1]) cpu_sum_rows(b, c->gout, k->rows, k->out, c->pgrad[1], c->pgrad_acc);
    if (!c->pgrad[0]) return 0;
    return half_run(b, c->pgrad_acc ? &k->add : &k->set,
                    &(struct half_call){c->gout, c->in[0], NULL, c->pgrad[0], c->work}, e);
}

/* By own loops on AMX: rows are slots, and the gradient of the output is turned. */
static struct amx_sums sums_of(int64_t rows, int64_t in, int64_t out, int threads)
{
    static const struct amx_shift none;
    return (struct amx_sums){.samples = 1, .slots = rows, .x = {out, out, rows}, .g = {in, in, rows}, .phases = 1,
                             .shifts = 1, .shift = &none, .threads = threads};
}

static int amx_weights(struct be *b, struct be_kernel *base, const struct be_call *c, struct err *e)
{
    const struct linear_half *k = (const struct linear_half *)base;
    if (c->pgrad[1]) cpu_sum_rows(b, c->gout, k->rows, k->out, c->pgrad[1], c->pgrad_acc);
    if (c->pgrad[0]) {
        const struct amx_sums sums = sums_of(k->rows, k->in, k->out, b->s->dev.threads);
        amx_sums_run(&sums, c->gout, c->in[0], c->pgrad[0], c->pgrad_acc, c->work);
    }
    return 0;
}

static void half_linear_close(struct be_kernel *base)
{
    struct linear_half *k = (struct linear_half *)base;
    prim_free(&k->set.p);
    prim_free(&k->add.p);
}

/* Rows, inputs and outputs; false: features of points that are not rows. */
static bool sizes_of(const struct selection *s, const struct node *n, int samples, int64_t size[3])
{
    const struct shape *w = &s->g->param[n->param[0]].shape;
    const int64_t points = shape_points(&s->g->tensor[n->out].shape);
    size[0] = samples * points;
    size[1] = w->d[1];
    size[2] = w->d[0];
    return points == 1 || (cpu_rows(s, n->in[0]) && cpu_rows(s, n->out));
}

static void sizes_take(const struct be *b, struct linear_half *k)
{
    int64_t size[3];
    sizes_of(b->s, k->base.node, k->base.key.samples, size);
    k->rows = size[0];
    k->in = size[1];
    k->out = size[2];
}

static struct half_shape shape_of(const struct linear_half *k, bool acc)
{
    const bool bias = k->base.node->n_param > 1;
    if (k->base.key.phase == PH_FWD)
        return (struct half_shape){k->rows, k->out, k->in, {'N', k->in}, {'T', k->in}, k->out, .bias = bias};
    if (k->base.key.phase == PH_BWD_DATA)
        return (struct half_shape){k->rows, k->in, k->out, {'N', k->out}, {'N', k->in}, k->in, .acc = acc};
    return (struct half_shape){k->out, k->in, k->rows, {'T', k->out}, {'N', k->in}, k->in, .wide = true, .acc = acc};
}

static struct be_kernel *half_linear_make(struct be *b, const struct be_kernel *like, struct err *e)
{
    struct linear_half *k = kernel_new(like, sizeof *k);
    const enum phase ph = like->key.phase;
    const bool each = cpu_half_each(b->s, like->k),
               none = ph != PH_BWD_WEIGHTS && !each && !like->k->packed_bytes;   /* the copy was not planned */
    const size_t have = group_workspace(like->k, like->key.samples),
                 taken = like->taken + (ph == PH_BWD_WEIGHTS ? 0 : cpu_half_copy(b->s, like->k)),
                 space = have > taken ? have - taken : 0;
    sizes_take(b, k);
    k->base.stored = is_bf16(b->s, like->k);
    k->base.run = ph == PH_FWD ? half_forward_run : ph == PH_BWD_DATA ? half_data_run : half_weights_run;
    k->base.close = half_linear_close;
    const struct half_shape set = shape_of(k, false), add = shape_of(k, true);
    const bool adds = ph == PH_BWD_WEIGHTS || (ph == PH_BWD_DATA && b->g->tensor[like->node->in[0]].n_readers > 1);
    int bad = none ? err_set(e, E_CONF, "no copy of the weights in bf16 is planned") : 0;
    bad = bad || half_make(b, &k->set, &set, space, e) || (adds && half_make(b, &k->add, &add, space, e));
    if (!bad) return &k->base;
    kernel_free(&k->base);
    return NULL;
}

/* In a network that generates, a row's bits must not depend on the number of rows. */
static const char *linear_refuses(const struct selection *s, const struct group *k, enum phase ph)
{
    int64_t size[3];
    if (!s->dev.bf16 || graph_generates(s->g)) return "";
    return sizes_of(s, group_node(s, k), 1, size) ? NULL : "features of points that are not rows";
}

struct amx_matrix cpu_amx_matrix(const struct be *b, const struct group *k, bool back, const void *w)
{
    const struct shape *s = &b->g->param[k->param[0]].shape;
    const struct format *f = &b->s->param[k->param[0]];
    const int64_t out = s->d[0], in = s->d[1];
    return (struct amx_matrix){.b = w, .k = back ? out : in, .n = back ? in : out, .k_step = back ? in : 1,
                               .n_step = back ? 1 : in, .k_all = back ? out : in, .threads = b->s->dev.threads,
                               .type = f->type, .factor = f->type == I8 ? format_factors(f, s, w) : NULL};
}

/* Rows times weights, which have a form for each direction: outputs, then input gradients. */
static int amx_product(struct be *b, struct be_kernel *base, const struct be_call *c, struct err *e)
{
    const struct linear_half *k = (const struct linear_half *)base;
    const bool back = base->key.phase == PH_BWD_DATA;
    const int64_t from = back ? k->out : k->in, to = back ? k->in : k->out;
    const struct amx_matrix w = cpu_amx_matrix(b, base->k, back, c->param[0]);
    const struct amx_product p = {
        .m = k->rows, .k = from, .n = to, .a_line = from, .c_line = to, .a = back ? c->gout : c->in[0],
        .packed = (const uint16_t *)((const char *)c->packed + (back ? form_bytes(b->s, base->k) : 0)),
        .from = cpu_half_each(b->s, base->k) ? &w : NULL,
        .bias = back ? NULL : c->param[1], .c = back ? c->gin[0] : c->out, .acc = back && c->gin_acc & 1,
        .threads = b->s->dev.threads};
    amx_product_run(&p, c->work);
    return 0;
}

static int amx_linear_pack(struct be *b, const struct group *k, enum phase ph, void *const *param, void *packed,
                           struct err *e)
{
    const bool back = ph != PH_FWD;
    const struct amx_matrix w = cpu_amx_matrix(b, k, back, param[0]);
    amx_pack(&w, (uint16_t *)((char *)packed + (back ? form_bytes(b->s, k) : 0)));
    return 0;
}

static size_t amx_linear_packed(const struct selection *s, const struct group *k)
{
    return cpu_half_each(s, k) ? 0 : (k->grad_in & 1 ? 2 : 1) * form_bytes(s, k);
}

static size_t amx_work(const struct linear_half *k, enum phase ph, bool each, int threads)
{
    const struct amx_sums sums = sums_of(k->rows, k->in, k->out, threads);
    if (ph == PH_BWD_WEIGHTS) return amx_sums_work(&sums);
    return amx_product_work(ph == PH_FWD ? k->in : k->out, ph == PH_FWD ? k->out : k->in, each, threads);
}

static struct be_kernel *amx_linear_make(struct be *b, const struct be_kernel *like, struct err *e)
{
    const enum phase ph = like->key.phase;
    const bool back = like->k->grad_in & 1, each = cpu_half_each(b->s, like->k),
               none = ph != PH_BWD_WEIGHTS && !each && (!like->k->packed_bytes || (ph == PH_BWD_DATA && !back));
    if (!amx_ready() || none) {
        err_set(e, E_CONF, none ? "no packed weights are planned" : "the system gives no AMX registers");
        return NULL;
    }
    struct linear_half *k = kernel_new(like, sizeof *k);
    sizes_take(b, k);
    k->base.run = ph == PH_BWD_WEIGHTS ? amx_weights : amx_product;
    if (!kernel_workspace(b, like, amx_work(k, ph, each, b->s->dev.threads), e)) return &k->base;
    kernel_free(&k->base);
    return NULL;
}

static const char *amx_refuses(const struct selection *s, const struct group *k, enum phase ph)
{
    const struct shape *w = &s->g->param[k->param[0]].shape;
    const bool steps = ph == PH_BWD_WEIGHTS || w->d[ph == PH_FWD ? 1 : 0] % AMX_STEP == 0;
    return steps && s->dev.bf16 && !strcmp(s->dev.bf16, "amx_bf16") ? linear_refuses(s, k, ph) : "";
}

static size_t amx_workspace(const struct selection *s, const struct group *k)
{
    int64_t size[3];
    size_t most = 0;
    sizes_of(s, group_node(s, k), s->max_samples, size);
    const struct linear_half of = {.rows = size[0], .in = size[1], .out = size[2]};
    for (int ph = 0; ph < PH_COUNT; ph++) {
        const size_t bytes = amx_work(&of, (enum phase)ph, cpu_half_each(s, k), s->dev.threads);
        most = bytes > most ? bytes : most;
    }
    return CPU_WORK + most;
}

static size_t linear_workspace(const struct selection *s, const struct group *k)
{
    int64_t size[3];
    sizes_of(s, group_node(s, k), s->max_samples, size);
    const size_t w = half_scratch(size[2], size[1], size[0], s->dev.threads),
                 x = half_scratch(size[0], size[1], size[2], s->dev.threads);
    return (w > x ? w : x) + cpu_half_copy(s, k);
}

size_t cpu_half_packed(const struct selection *s, const struct group *k)
{
    if (cpu_half_each(s, k)) return 0;
    return (shares(k) ? 0 : form_bytes(s, k)) + plain_bytes(s, k);
}

int cpu_half_pack(struct be *b, const struct group *k, enum phase ph, void *const *param, void *packed, struct err *e)
{
    if (ph == PH_FWD || !shares(k))
        b->vec->narrow((uint16_t *)((char *)packed + plain_at(b->s, k, ph)), param[0],
                       (size_t)shape_count(&b->g->param[k->param[0]].shape), false);
    return 0;
}

const struct kernel_row cpu_rows_linear_half[] = {
    {.name = "amx", .pattern = PATTERN_OP("linear"), .types = TAKES(BF16), .layouts = ROW_ANY_LAYOUT, .cost = 0.4,
     .refuses = amx_refuses, .workspace = amx_workspace, .packed = amx_linear_packed,
     .stored = true, .asks = true, .make = amx_linear_make, .pack = amx_linear_pack},
    {.name = "bf16", .pattern = PATTERN_OP("linear"), .types = TAKES(BF16), .layouts = ROW_ANY_LAYOUT, .cost = 0.5,
     .refuses = linear_refuses, .workspace = linear_workspace, .packed = cpu_half_packed, .asks = true,
     .make = half_linear_make, .pack = cpu_half_pack},
    {0}};
