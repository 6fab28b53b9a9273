/* Convolutions of volumes without overlap, and transposed ones (cpu_patch.h): which ones, and their kernels. */
#include "backend/cpu/cpu_int.h"
#include "backend/cpu/cpu_patch.h"

struct patch_kernel {
    struct be_kernel base;
    struct patch_shape s;
    const struct patch_ops *ops;
};

/* Ranks with several threads use the library's kernels and products, which divide their work among threads. */
static bool is_patch(const struct selection *s, const struct node *n)
{
    const bool turned = n->op->category == OP_CONV_TRANSPOSED;
    const struct shape *fine = &s->g->tensor[turned ? n->out : n->in[0]].shape,
                       *coarse = &s->g->tensor[turned ? n->in[0] : n->out].shape;
    if ((n->op->category != OP_CONV && !turned) || fine->n != 4 || s->dev.threads > 1) return false;
    for (int i = 1; i < 4; i++) if (fine->d[i] != 2 * coarse->d[i]) return false;
    return node_attr_is(n, "kernel", 2) && node_attr_is(n, "stride", 2) && node_attr_is(n, "padding", 0) &&
           node_attr_is(n, "dilation", 1) && node_attr_is(n, "groups", 1);
}

bool cpu_conv_patch(const struct selection *s, const struct node *n)
{
    const int64_t in = s->g->tensor[n->in[0]].shape.d[0], out = s->g->tensor[n->out].shape.d[0];
    const int lanes = format_lanes(&s->tensor[n->out]);
    return lanes > 1 && s->tensor[n->in[0]].layout == s->tensor[n->out].layout && in <= PATCH_BLOCKS * lanes &&
           out <= PATCH_BLOCKS * lanes && is_patch(s, n);
}

static const float *bias_of(const struct be_call *c) { return c->param[1]; }

static int coarse_run(struct be *b, struct be_kernel *base, const struct be_call *c, struct err *e)
{
    const struct patch_kernel *k = (struct patch_kernel *)base;
    if (base->key.phase == PH_FWD) k->ops->coarse(&k->s, c->in[0], c->param[0], bias_of(c), c->out, false);
    else k->ops->coarse(&k->s, c->gout, c->param[0], NULL, c->gin[0], c->gin_acc & 1);
    return 0;
}

static int fine_run(struct be *b, struct be_kernel *base, const struct be_call *c, struct err *e)
{
    const struct patch_kernel *k = (struct patch_kernel *)base;
    if (base->key.phase == PH_FWD) k->ops->fine(&k->s, c->in[0], c->packed, bias_of(c), c->out, false);
    else k->ops->fine(&k->s, c->gout, c->packed, NULL, c->gin[0], c->gin_acc & 1);
    return 0;
}

static int weights_run(struct be *b, struct be_kernel *base, const struct be_call *c, struct err *e)
{
    const struct patch_kernel *k = (struct patch_kernel *)base;
    const struct shape *out = &b->g->tensor[base->node->out].shape;
    const bool turned = base->node->op->category == OP_CONV_TRANSPOSED;
    if (c->pgrad[0])
        k->ops->weights(&k->s, turned ? c->gout : c->in[0], turned ? c->in[0] : c->gout, c->pgrad[0], c->pgrad_acc);
    if (c->pgrad[1])
        k->ops->sums(base->key.samples, out->d[0] / k->s.lanes, shape_points(out), c->gout, c->pgrad[1], c->pgrad_acc);
    return 0;
}

static struct be_kernel *patch_make(struct be *b, const struct be_kernel *like, struct err *e)
{
    const struct node *n = like->node;
    const bool turned = n->op->category == OP_CONV_TRANSPOSED;
    const int fine = turned ? n->out : n->in[0], coarse = turned ? n->in[0] : n->out;
    const struct shape *size = &b->g->tensor[coarse].shape;
    struct patch_kernel *k = kernel_new(like, sizeof *k);
    k->s = (struct patch_shape){.n = like->key.samples, .lanes = tensor_lanes(b, coarse)};
    k->s.in_blocks = b->g->tensor[fine].shape.d[0] / k->s.lanes;
    k->s.out_blocks = size->d[0] / k->s.lanes;
    for (int i = 0; i < 3; i++) k->s.size[i] = size->d[1 + i];
    k->ops = k->s.lanes == 16 ? &patch_avx512 : &patch_avx2;
    k->base.run = like->key.phase == PH_BWD_WEIGHTS            ? weights_run
                  : (like->key.phase == PH_FWD) == turned ? fine_run
                                                               : coarse_run;
    return &k->base;
}

static const char *patch_refuses(const struct selection *s, const struct group *k, enum phase ph)
{
    return cpu_conv_patch(s, group_node(s, k)) ? NULL : "";
}

/* A transposed convolution's kernels take blocks, or make plain copies anyway, and a convolution reads the output. */
static enum layout turned_layout(const struct selection *s, const struct node *n)
{
    return s->g->tensor[n->out].shape.d[0] % s->dev.block ? LAYOUT_PLAIN : LAYOUT_BLOCKED;
}

static enum layout turned_param_layout(const struct selection *s, const struct node *n, int slot)
{
    return !slot && cpu_conv_patch(s, n) ? s->tensor[n->out].layout : LAYOUT_NONE;
}

static size_t patch_workspace(const struct selection *s, const struct group *k) { return CPU_CONV_WORK; }
static size_t patch_packed(const struct selection *s, const struct group *k)
{
    bool turned = group_node(s, k)->op->category == OP_CONV_TRANSPOSED;
    return turned || k->grad_in & 1 ? size_align64(graph_param_bytes(s->g, k->param[0])) : 0;
}

const struct kernel_row cpu_rows_conv_patch[] = {
    {.name = "patches", .pattern = PATTERN_OP("conv"), .isa = ISA_AVX2, .cost = 0.8, .refuses = patch_refuses,
     .workspace = patch_workspace, .packed = patch_packed, .make = patch_make},
    {.name = "patches", .pattern = PATTERN_OP("conv_transpose"), .isa = ISA_AVX2, .cost = 0.8,
     .refuses = patch_refuses, .layout = turned_layout, .param_layout = turned_param_layout,
     .workspace = patch_workspace, .packed = patch_packed, .make = patch_make},
    {0}};
