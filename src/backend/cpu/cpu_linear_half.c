/* Linear layers in bf16: tokens as rows, or samples. The weights have a copy in bf16, made once a step (be_ops.pack);
 * their gradients are added in float. */
#include <string.h>
#include "backend/cpu/cpu_amx.h"
#include "backend/cpu/cpu_int.h"
#include "backend/cpu/onednn/dnnl_half.h"

struct linear_half { struct be_kernel base; int64_t rows, in, out; struct half_product set, add; };

static int half_forward_run(struct be *b, struct be_kernel *base, const struct be_call *c, struct err *e)
{
    struct linear_half *k = (struct linear_half *)base;
    return half_run(b, &k->set, &(struct half_call){c->in[0], c->packed, c->param[1], c->out, c->work}, e);
}

static int half_data_run(struct be *b, struct be_kernel *base, const struct be_call *c, struct err *e)
{
    struct linear_half *k = (struct linear_half *)base;
    return half_run(b, c->gin_acc & 1 ? &k->add : &k->set,
                    &(struct half_call){c->gout, c->packed, NULL, c->gin[0], c->work}, e);
}

static int half_weights_run(struct be *b, struct be_kernel *base, const struct be_call *c, struct err *e)
{
    struct linear_half *k = (struct linear_half *)base;
    if (c->pgrad[1]) b->vec->sum_rows(c->gout, k->rows, k->out, c->pgrad[1], c->pgrad_acc);
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
    if (c->pgrad[1]) b->vec->sum_rows(c->gout, k->rows, k->out, c->pgrad[1], c->pgrad_acc);
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
    const bool none = ph != PH_BWD_WEIGHTS && !like->k->packed_bytes;      /* the copy was not planned */
    const size_t space = group_workspace(like->k, like->key.samples) - like->taken;
    sizes_take(b, k);
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

static struct be_kernel *amx_linear_make(struct be *b, const struct be_kernel *like, struct err *e)
{
    if (!amx_ready()) { err_set(e, E_CONF, "the system gives no AMX registers"); return NULL; }
    struct linear_half *k = kernel_new(like, sizeof *k);
    sizes_take(b, k);
    k->base.run = amx_weights;
    const struct amx_sums sums = sums_of(k->rows, k->in, k->out, b->s->dev.threads);
    if (!kernel_workspace(b, like, amx_sums_work(&sums), e)) return &k->base;
    kernel_free(&k->base);
    return NULL;
}

static const char *amx_refuses(const struct selection *s, const struct group *k, enum phase ph)
{
    return s->dev.bf16 && !strcmp(s->dev.bf16, "amx_bf16") ? linear_refuses(s, k, ph) : "";
}

static size_t amx_workspace(const struct selection *s, const struct group *k)
{
    int64_t size[3];
    sizes_of(s, group_node(s, k), s->max_samples, size);
    const struct amx_sums sums = sums_of(size[0], size[1], size[2], s->dev.threads);
    return CPU_WORK + amx_sums_work(&sums);
}

static size_t linear_workspace(const struct selection *s, const struct group *k)
{
    int64_t size[3];
    sizes_of(s, group_node(s, k), s->max_samples, size);
    const size_t w = half_scratch(size[2], size[1], size[0], s->dev.threads),
                 x = half_scratch(size[0], size[1], size[2], s->dev.threads);
    return w > x ? w : x;
}

size_t cpu_half_packed(const struct selection *s, const struct group *k)
{
    return size_align64((size_t)shape_count(&s->g->param[k->param[0]].shape) * 2);
}

void cpu_half_pack(struct be *b, const struct group *k, enum phase ph, void *const *param, void *packed)
{
    if (ph != PH_FWD && k->row[PH_FWD]->pack == cpu_half_pack) return;     /* one copy for both */
    b->vec->narrow(packed, param[0], (size_t)shape_count(&b->g->param[k->param[0]].shape), false);
}

const struct kernel_row cpu_rows_linear_half[] = {
    {.name = "amx", .pattern = PATTERN_OP("linear"), .types = TAKES(BF16), .layouts = ROW_ANY_LAYOUT, .cost = 0.4,
     .phases = ROW_PHASE(PH_BWD_WEIGHTS), .refuses = amx_refuses, .workspace = amx_workspace, .asks = true,
     .make = amx_linear_make},
    {.name = "bf16", .pattern = PATTERN_OP("linear"), .types = TAKES(BF16), .layouts = ROW_ANY_LAYOUT, .cost = 0.5,
     .refuses = linear_refuses, .workspace = linear_workspace, .packed = cpu_half_packed, .asks = true,
     .make = half_linear_make, .pack = cpu_half_pack},
    {0}};
