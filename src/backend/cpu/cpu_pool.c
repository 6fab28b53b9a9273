/* Means over windows, of fixed size or adaptive, and changes of the number of points, on any layout. */
#include <stdlib.h>
#include "backend/cpu/cpu_int.h"
#include "model/ops/adaptive.h"
#include "model/ops/upsample.h"
#include "model/ops/window.h"

struct avg_kernel {
    struct be_kernel base;
    const struct vec_ops *vec;
    struct vec_windows w;
    struct vec_span *spans;                              /* of all dimensions, one after the other */
};

static int avg_run(struct be *b, struct be_kernel *base, const struct be_call *c, struct err *e)
{
    const struct avg_kernel *k = (const struct avg_kernel *)base;
    if (base->key.phase == PH_FWD) k->vec->avg_pool(&k->w, c->in[0], c->out);
    else k->vec->avg_pool_backward(&k->w, c->gout, c->gin[0], c->gin_acc & 1);
    return 0;
}

static void avg_close(struct be_kernel *base) { free(((struct avg_kernel *)base)->spans); }

static struct avg_kernel *avg_new(struct be *b, const struct be_kernel *like, const int64_t in[3], const int64_t out[3])
{
    struct avg_kernel *k = kernel_new(like, sizeof *k);
    int lanes = kernel_lanes(b, like, like->node->in[0]);
    k->base.close = avg_close;
    k->vec = lanes > 1 ? b->vec : &vec_plain;
    k->w.planes = like->key.samples * b->g->tensor[like->node->in[0]].shape.d[0] / lanes;
    k->spans = mem_alloc((size_t)(out[0] + out[1] + out[2]) * sizeof *k->spans);
    struct vec_span *at = k->spans;
    for (int d = 0; d < 3; d++) {
        k->w.in[d] = in[d];
        k->w.out[d] = out[d];
        k->w.span[d] = at;
        at += out[d];
    }
    return k;
}

/* Padding counts as zeros: the sum omits it, the divisor includes it. */
static struct be_kernel *avg_pool_make(struct be *b, const struct be_kernel *like, struct err *e)
{
    struct window w;
    if (window_make(like->node, &b->g->tensor[like->node->in[0]].shape, &w, e)) return NULL;
    struct avg_kernel *k = avg_new(b, like, w.in, w.out);
    struct vec_span *at = k->spans;
    for (int d = 0; d < 3; d++)
        for (int64_t o = 0; o < w.out[d]; o++, at++) {
            int64_t from = o * w.s[d] - w.p[d], to = from + w.k[d];
            *at = (struct vec_span){from < 0 ? 0 : from, to > w.in[d] ? w.in[d] : to};
        }
    k->w.divide = (double)window_k_size(&w);
    return &k->base;
}

static struct be_kernel *adaptive_make(struct be *b, const struct be_kernel *like, struct err *e)
{
    const struct adaptive a = adaptive_of(b->g, like->node, like->key.samples);
    struct avg_kernel *k = avg_new(b, like, a.in, a.out);
    struct vec_span *at = k->spans;
    for (int d = 0; d < 3; d++)
        for (int64_t o = 0; o < a.out[d]; o++) {
            const struct window_span s = adaptive_span(&a, d, o);
            *at++ = (struct vec_span){s.from, s.to};
        }
    return &k->base;
}

static int upsample_run(struct be *b, struct be_kernel *base, const struct be_call *c, struct err *e)
{
    const struct node *n = base->node;
    const struct upsample u = upsample_of(b->g, n, base->key.samples, kernel_lanes(b, base, n->in[0]));
    if (base->key.phase == PH_FWD) upsample_forward(&u, c->in[0], c->out);
    else upsample_backward(&u, c->gout, c->gin[0], c->gin_acc & 1);
    return 0;
}

const struct kernel_row cpu_rows_pool[] = {
    {.name = "mean of windows", .pattern = PATTERN_OP("avg_pool"), .same_layout = true, .make = avg_pool_make,
     .run = avg_run},
    {.name = "mean of windows", .pattern = PATTERN_OP("adaptive_avg_pool"), .same_layout = true, .make = adaptive_make,
     .run = avg_run},
    {.name = "upsample", .pattern = PATTERN_OP("upsample"), .same_layout = true, .run = upsample_run},
    {0}};
