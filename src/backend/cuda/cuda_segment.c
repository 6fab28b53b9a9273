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

static struct be_kernel *segment_make(struct be *b, const struct be_kernel *like,
                                      int (*run)(struct be *, struct be_kernel *, const struct be_call *, struct err *),
                                      struct err *e)
{
    const struct k_segment s = segment_on(b, like, like->key.samples, NULL);
    return cuda_kernel_workspace(b, like, k_segment_work(&s), e) ? NULL : cuda_simple_new(like, run);
}

static int point_entropy_run(struct be *b, struct be_kernel *k, const struct be_call *c, struct err *e)
{
    struct k_segment s = segment_on(b, k, c->n, c->in[1]);
    s.smoothing = k->node->attr[op_attr(k->node->op, "smoothing")].r;
    return cuda_check(e, "loss",
                      is_forward(k) ? k_point_entropy(b->stream, &s, c->in[0], c->out, c->work)
                                    : k_point_entropy_back(b->stream, &s, c->block, c->in[0], c->gin[0], adds(c, 0)));
}

struct be_kernel *cuda_point_entropy_make(struct be *b, const struct be_kernel *like, struct err *e)
{
    return segment_make(b, like, point_entropy_run, e);
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

struct be_kernel *cuda_dice_make(struct be *b, const struct be_kernel *like, struct err *e)
{
    return segment_make(b, like, dice_run, e);
}

static int overlap_run(struct be *b, struct be_kernel *k, const struct be_call *c, struct err *e)
{
    const struct k_segment s = segment_on(b, k, c->n, c->in[1]);
    return cuda_check(e, "score", k_overlap(b->stream, &s, c->in[0], c->out, c->work));
}

struct be_kernel *cuda_overlap_make(struct be *b, const struct be_kernel *like, struct err *e)
{
    return segment_make(b, like, overlap_run, e);
}
