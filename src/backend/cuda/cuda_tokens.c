/* The cuda backend's kernels for sequences: parts of tensors, weights of positions, attention. */
#include "backend/cuda/cuda_int.h"
#include "model/ops/attention.h"
#include "model/ops/learned.h"
#include "model/ops/slice.h"

static int slice_run(struct be *b, struct be_kernel *k, const struct be_call *c, struct err *e)
{
    const struct slice s = slice_of(b->g, k->node, c->n, true);
    const struct k_slice part = {type_of(b, k->k->out), s.outer, (int)s.width, (int)s.first, (int)s.part};
    const struct k_grad taken = {c->in[0], c->out, false}, g = grad_of(c, 0);
    return cuda_check(e, "slice", is_forward(k) ? k_concat_back(b->stream, &part, &taken)
                                                : k_slice_back(b->stream, &part, &g));
}

/* Backward writes each part with zeros around it, and adds the next ones. */
static int split_run(struct be *b, struct be_kernel *k, const struct be_call *c, struct err *e)
{
    bool acc = adds(c, 0);
    int status = 0;
    for (int i = 0; i < k->node->n_out && !status; i++) {
        const struct slice s = split_of(b->g, k->node, i, c->n, true);
        const struct k_slice part = {type_of(b, k->k->outs[i]), s.outer, (int)s.width, (int)s.first, (int)s.part};
        const struct k_grad taken = {c->in[0], c->outs[i], false}, g = {c->gouts[i], c->gin[0], acc};
        if (is_forward(k)) status = k_concat_back(b->stream, &part, &taken);
        else if (c->gouts[i]) { status = k_slice_back(b->stream, &part, &g); acc = true; }
    }
    return cuda_check(e, "split", status);
}

/* A row is a sample's points with their channels: first the learned points, then the input's. */
static int prepend_run(struct be *b, struct be_kernel *k, const struct be_call *c, struct err *e)
{
    const struct learned d = learned_of(b->g, k->node, c->n);
    const int width = (int)(d.points * d.c), own = (int)(d.count * d.c);
    const struct k_slice first = {type_of(b, k->k->out), c->n, width, 0, own},
                         rest = {first.type, c->n, width, own, width - own};
    const struct k_grad g = grad_of(c, 0);
    int status;
    if (k->key.phase == PH_BWD_WEIGHTS)
        status = k_learned_weights(b->stream, &first, c->gout, c->pgrad[0], c->pgrad_acc);
    else if (!is_forward(k)) status = k_concat_back(b->stream, &rest, &g);
    else if (!(status = k_learned(b->stream, &first, c->param[0], NULL, c->out)))
        status = k_concat(b->stream, &rest, c->in[0], c->out);
    return cuda_check(e, "learned points", status);
}

static int positions_run(struct be *b, struct be_kernel *k, const struct be_call *c, struct err *e)
{
    const int width = (int)shape_count(&b->g->tensor[k->k->out].shape);
    const struct k_slice all = {type_of(b, k->k->out), c->n, width, 0, width};
    int status = is_forward(k) ? k_learned(b->stream, &all, c->param[0], c->in[0], c->out)
                 : k->key.phase == PH_BWD_WEIGHTS
                     ? k_learned_weights(b->stream, &all, c->gout, c->pgrad[0], c->pgrad_acc)
                     : k_copy(b->stream, all.type, count(b, k->k->out, c->n), c->gout, c->gin[0], adds(c, 0));
    return cuda_check(e, "positions", status);
}

static int attention_run(struct be *b, struct be_kernel *k, const struct be_call *c, struct err *e)
{
    const struct attention a = attention_of(b->g, k->node, c->n);
    const struct k_attention t = {type_of(b, k->k->out), a.n, (int)a.points, (int)a.heads, (int)a.width,
                                  (float)a.scale};
    const struct k_attention_kept kept = {c->in[0], c->out, c->saved};
    const struct k_grad g = grad_of(c, 0);
    return cuda_check(e, "attention", is_forward(k) ? k_attention(b->stream, &t, c->in[0], c->out, c->saved)
                                                    : k_attention_back(b->stream, &t, &kept, &g));
}

static struct be_kernel *attention_make(struct be *b, const struct be_kernel *like, struct err *e)
{
    const struct attention a = attention_of(b->g, like->node, like->key.samples);
    if (a.width > K_HEAD)
        return err_set(e, E_CONF, "heads have %lld channels, GPU kernels take at most %d", (long long)a.width,
                       (int)K_HEAD), NULL;
    if (a.n * a.heads * a.points > INT32_MAX)
        return err_set(e, E_CONF, "more than 2^31 positions of heads in a micro-batch"), NULL;
    return cuda_kernel_new(like, sizeof *like);
}

const struct kernel_row cuda_rows_tokens[] = {
    {.name = "slice", .pattern = PATTERN_OP("slice"), .types = CUDA_TYPES, .run = slice_run},
    {.name = "split", .pattern = PATTERN_OP("split"), .types = CUDA_TYPES, .run = split_run},
    {.name = "prepend", .pattern = PATTERN_OP("prepend"), .types = CUDA_TYPES, .run = prepend_run},
    {.name = "positions", .pattern = PATTERN_OP("positions"), .types = CUDA_TYPES, .run = positions_run},
    {.name = "attention", .pattern = PATTERN_OP("attention"), .types = CUDA_TYPES, .make = attention_make,
     .run = attention_run},
    {0}};
