/* The cuda backend's kernels that work on the channels of each point: learned slopes, repetition, softmax; and those
 * that normalise groups of channels. */
#include "backend/cuda/cuda_int.h"
#include "model/ops/group_norm.h"
#include "model/ops/prelu.h"
#include "model/ops/repeat.h"
#include "model/ops/softmax.h"

static int prelu_run(struct be *b, struct be_kernel *k, const struct be_call *c, struct err *e)
{
    const struct k_prelu p = {shape_of(b, k->k->out, c->n), c->param[0], prelu_of(b->g, k->node).shared};
    const struct k_grad g = grad_of(c, 0), a = {c->gout, c->pgrad[0], c->pgrad_acc};
    int status = is_forward(k)                       ? k_prelu(b->stream, &p, c->in[0], c->out)
                 : k->key.phase == PH_BWD_WEIGHTS ? k_prelu_slopes(b->stream, &p, c->in[0], &a, c->work)
                                                  : k_prelu_back(b->stream, &p, c->in[0], &g);
    return cuda_check(e, "prelu", status);
}

static struct be_kernel *prelu_make(struct be *b, const struct be_kernel *like, struct err *e)
{
    const struct k_shape s = shape_of(b, like->k->out, like->key.samples);
    return cuda_kernel_workspace(b, like, k_weigh_work(&s), e) ? NULL : cuda_kernel_new(like, sizeof *like);
}

static int repeat_run(struct be *b, struct be_kernel *k, const struct be_call *c, struct err *e)
{
    const struct k_shape s = shape_of(b, k->k->in[0], c->n);
    const struct k_grad g = grad_of(c, 0);
    const int times = (int)repeat_of(b->g, k->node).count;
    return cuda_check(e, "repeat", is_forward(k) ? k_repeat(b->stream, &s, times, c->in[0], c->out)
                                                 : k_repeat_back(b->stream, &s, times, &g));
}

static int softmax_run(struct be *b, struct be_kernel *k, const struct be_call *c, struct err *e)
{
    const struct k_shape s = shape_of(b, k->k->out, c->n);
    const struct k_grad g = grad_of(c, 0);
    const bool logs = softmax_is_log(k->node);
    return cuda_check(e, "softmax", is_forward(k) ? k_softmax(b->stream, &s, logs, c->in[0], c->out)
                                                  : k_softmax_back(b->stream, &s, logs, c->out, &g));
}

static struct k_group_norm group_norm_on(const struct be *b, const struct be_kernel *k, int n)
{
    const struct group_norm d = group_norm_of(b->g, k->node);
    return (struct k_group_norm){.s = shape_of(b, k->k->out, n), .groups = (int)d.groups, .eps = d.eps};
}

static int group_norm_run(struct be *b, struct be_kernel *k, const struct be_call *c, struct err *e)
{
    struct k_group_norm n = group_norm_on(b, k, c->n);
    const bool affine = k->k->n_param > 0;
    n.weight = affine ? c->param[GN_WEIGHT] : NULL;
    n.bias = affine ? c->param[GN_BIAS] : NULL;
    const struct k_group_norm_grad g = {.x = c->in[0], .gy = c->gout, .saved = c->saved, .gx = c->gin[0],
                                        .gx_acc = adds(c, 0), .gw = affine ? c->pgrad[GN_WEIGHT] : NULL,
                                        .gb = affine ? c->pgrad[GN_BIAS] : NULL, .gp_acc = c->pgrad_acc,
                                        .work = c->work};
    return cuda_check(e, k->node->op->name,
                      is_forward(k) ? k_group_norm(b->stream, &n, c->in[0], c->out, c->saved, c->work)
                                    : k_group_norm_back(b->stream, &n, &g));
}

static struct be_kernel *group_norm_make(struct be *b, const struct be_kernel *like, struct err *e)
{
    const struct k_group_norm n = group_norm_on(b, like, like->key.samples);
    return cuda_kernel_workspace(b, like, k_group_norm_work(&n), e) ? NULL : cuda_kernel_new(like, sizeof *like);
}

const struct kernel_row cuda_rows_channels[] = {
    {.name = "prelu", .pattern = PATTERN_OP("prelu"), .types = CUDA_TYPES, .make = prelu_make, .run = prelu_run},
    {.name = "repeat", .pattern = PATTERN_OP("repeat"), .types = CUDA_TYPES, .run = repeat_run},
    {.name = "softmax", .pattern = PATTERN_OP("softmax"), .types = CUDA_TYPES, .run = softmax_run},
    {.name = "group norm", .pattern = PATTERN_OP("group_norm"), .types = CUDA_TYPES, .make = group_norm_make,
     .run = group_norm_run},
    {.name = "group norm", .pattern = PATTERN_OP("instance_norm"), .types = CUDA_TYPES, .make = group_norm_make,
     .run = group_norm_run},
    {0}};
