/* Convolutions by Winograd's algorithm (cpu_wino.h): which ones, and their kernels. */
#include "backend/cpu/cpu_int.h"

struct wino_kernel { struct be_kernel base; struct wino_shape s; };

/* It serves pictures, and ranks with several threads, only if asked for (train.winograd): others keep the bits of
 * earlier runs. */
static bool wino_shape_of(const struct selection *s, const struct node *n, int samples, struct wino_shape *w)
{
    const struct shape *in = &s->g->tensor[n->in[0]].shape, *out = &s->g->tensor[n->out].shape;
    const int skipped = 4 - in->n;                       /* a picture has depth 1 */
    if (n->op->category != OP_CONV || (in->n != 4 && in->n != 3)) return false;
    if (!s->dev.winograd && (skipped || s->dev.threads > 1)) return false;
    if (!node_attr_is(n, "kernel", 3) || !node_attr_is(n, "stride", 1) || !node_attr_is(n, "padding", 1) ||
        !node_attr_is(n, "dilation", 1) || !node_attr_is(n, "groups", 1))
        return false;
    if (s->tensor[n->in[0]].layout != s->tensor[n->out].layout) return false;
    *w = (struct wino_shape){.n = samples, .lanes = format_lanes(&s->tensor[n->out]), .in = in->d[0], .out = out->d[0],
                             .size = {1}, .deep = skipped ? 1 : 3, .threads = s->dev.threads};
    for (int i = skipped; i < 3; i++) w->size[i] = in->d[1 + i - skipped];
    return wino_takes(w);
}

static struct wino_shape turned(const struct wino_shape *s)
{
    struct wino_shape t = *s;
    t.in = s->out;
    t.out = s->in;
    return t;
}

static size_t form_bytes(const struct wino_shape *s) { return size_align64(wino_weights(s) * sizeof(float)); }

static size_t larger(size_t a, size_t b) { return a > b ? a : b; }

static size_t wino_work_most(const struct wino_shape *s)
{
    const struct wino_shape t = turned(s);
    return larger(larger(wino_work(s), wino_work(&t)), wino_weights_work(s));
}

static int forward_run(struct be *b, struct be_kernel *base, const struct be_call *c, struct err *e)
{
    const struct wino_kernel *k = (struct wino_kernel *)base;
    wino_run(&k->s, c->in[0], c->packed, c->param[1], c->out, false, c->work);
    return 0;
}

static int data_run(struct be *b, struct be_kernel *base, const struct be_call *c, struct err *e)
{
    const struct wino_kernel *k = (struct wino_kernel *)base;
    const struct wino_shape t = turned(&k->s);
    wino_run(&t, c->gout, (float *)((char *)c->packed + form_bytes(&k->s)), NULL, c->gin[0], c->gin_acc & 1, c->work);
    return 0;
}

static int weights_run(struct be *b, struct be_kernel *base, const struct be_call *c, struct err *e)
{
    const struct wino_kernel *k = (struct wino_kernel *)base;
    if (c->pgrad[0])
        wino_weights_run(&k->s, c->in[0], c->gout, c->pgrad[0], c->pgrad[1], c->pgrad_acc, c->work);
    else if (c->pgrad[1]) dnnl_conv_bias(b, base, c->gout, c->pgrad[1], c->pgrad_acc);
    return 0;
}

static const char *wino_refuses(const struct selection *s, const struct group *k, enum phase ph)
{
    struct wino_shape w;
    bool takes = wino_shape_of(s, group_node(s, k), s->max_samples, &w);
    return takes && (ph != PH_BWD_WEIGHTS || wino_weights_wanted(&w)) ? NULL : "";
}

static double wino_time_share(const struct selection *s, const struct group *k)
{
    const double TRANSFORMS = 1.25;                      /* cost of its transforms: measured, 16 to 128 channels */
    struct wino_shape w;
    wino_shape_of(s, group_node(s, k), s->max_samples, &w);
    return TRANSFORMS * wino_share(&w);
}

static size_t wino_workspace(const struct selection *s, const struct group *k)
{
    struct wino_shape w;
    wino_shape_of(s, group_node(s, k), s->max_samples, &w);
    return larger(wino_work_most(&w), CPU_CONV_WORK);
}

/* Two forms of the weights, where input gradients are computed. */
static size_t wino_packed(const struct selection *s, const struct group *k)
{
    struct wino_shape w;
    wino_shape_of(s, group_node(s, k), s->max_samples, &w);
    return (k->grad_in & 1 ? 2 : 1) * form_bytes(&w);
}

static int wino_packs(struct be *b, const struct group *k, enum phase ph, void *const *param, void *packed,
                      struct err *e)
{
    struct wino_shape w;
    wino_shape_of(b->s, group_node(b->s, k), 1, &w);
    if (ph == PH_FWD) wino_pack(&w, param[0], false, packed);
    else wino_pack(&w, param[0], true, (float *)((char *)packed + form_bytes(&w)));
    return 0;
}

static struct be_kernel *wino_make(struct be *b, const struct be_kernel *like, struct err *e)
{
    struct wino_kernel *k = kernel_new(like, sizeof *k);
    wino_shape_of(b->s, like->node, like->key.samples, &k->s);
    k->base.run = like->key.phase == PH_FWD        ? forward_run
                  : like->key.phase == PH_BWD_DATA ? data_run
                                                   : weights_run;
    if (!kernel_workspace(b, &k->base, wino_work_most(&k->s), e)) return &k->base;
    kernel_free(&k->base);
    return NULL;
}

/* The whole group uses it, because its packed weights belong to that algorithm; except weight gradients that another
 * kernel computes faster. */
const struct kernel_row cpu_rows_conv_wino[] = {
    {.name = "winograd", .pattern = PATTERN_OP("conv"), .isa = ISA_AVX2, .cost = 0.5, .refuses = wino_refuses,
     .share = wino_time_share, .workspace = wino_workspace, .packed = wino_packed, .pack = wino_packs,
     .make = wino_make},
    {0}};
