/* The cuda backend's losses and scores that classify each point. */
#include "backend/cuda/cuda_int.h"
#include "model/ops/dice.h"

static struct k_segment segment_on(const struct be *b, const struct be_kernel *k, int n, const void *labels)
{
    const int out = k->k->in[0];
    return (struct k_segment){.type = type_of(b, out), .n = n, .points = points(b, out), .c = channels(b, out),
                              .labels = labels,
                              .label_bytes = (int)dtype_bytes(b->g->tensor[k->k->in[1]].type)};
}

static struct be_kernel *segment_make(struct be *b, const struct be_kernel *like, struct err *e)
{
    const struct k_segment s = segment_on(b, like, like->key.samples, NULL);
    return cuda_kernel_workspace(b, like, k_segment_work(&s), e) ? NULL : cuda_kernel_new(like, sizeof *like);
}

static const char *point_entropy_refuses(const struct selection *s, const struct group *k, enum phase ph)
{
    const struct tensor *target = &s->g->tensor[k->in[1]];
    return target->shape.n && target->type != F32 ? NULL : "";
}

static int point_entropy_run(struct be *b, struct be_kernel *k, const struct be_call *c, struct err *e)
{
    struct k_segment s = segment_on(b, k, c->n, c->in[1]);
    s.smoothing = k->node->attr[op_attr(k->node->op, "smoothing")].r;
    return cuda_check(e, "loss",
                      is_forward(k) ? k_point_entropy(b->stream, &s, c->in[0], c->out, c->work)
                                    : k_point_entropy_back(b->stream, &s, c->block, c->in[0], c->gin[0], adds(c, 0)));
}

static int dice_run(struct be *b, struct be_kernel *k, const struct be_call *c, struct err *e)
{
    struct k_segment s = segment_on(b, k, c->n, c->in[1]);
    const struct dice d = dice_of(b->g, k->node);
    const struct k_grad g = grad_of(c, 0);
    s.sigmoid = d.sigmoid;
    s.ce = d.ce;
    s.power = d.power;
    s.first = (int)d.first;
    s.smooth = d.smooth;
    return cuda_check(e, k->node->op->name, is_forward(k) ? k_dice(b->stream, &s, c->in[0], c->out, c->saved, c->work)
                                                          : k_dice_back(b->stream, &s, c->block, c->in[0], c->saved,
                                                                        &g));
}

static int overlap_run(struct be *b, struct be_kernel *k, const struct be_call *c, struct err *e)
{
    const struct k_segment s = segment_on(b, k, c->n, c->in[1]);
    return cuda_check(e, "score", k_overlap(b->stream, &s, c->in[0], c->out, c->work));
}

const struct kernel_row cuda_rows_segment[] = {
    {.name = "cross entropy of points", .pattern = PATTERN_OP("softmax_cross_entropy"), .types = CUDA_TYPES,
     .cost = 0.9,
     .refuses = point_entropy_refuses, .make = segment_make, .run = point_entropy_run},
    {.name = "dice", .pattern = PATTERN_OP("dice"), .types = CUDA_TYPES, .make = segment_make, .run = dice_run},
    {.name = "dice", .pattern = PATTERN_OP("dice_ce"), .types = CUDA_TYPES, .make = segment_make, .run = dice_run},
    {.name = "overlap", .pattern = PATTERN_OP("overlap"), .types = CUDA_TYPES, .make = segment_make,
     .run = overlap_run},
    {0}};
