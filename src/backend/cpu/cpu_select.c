/* What the onednn backend selects: channels in blocks of the instruction set, and the first kernel row that does not
 * refuse, once the library was asked. */
#include <omp.h>
#include <stdio.h>
#include <string.h>
#include "backend/cpu/cpu_conv_half.h"
#include "backend/cpu/cpu_int.h"
#include "backend/cpu/onednn/dnnl_half.h"
#include "backend/rules.h"

#define CPU_KERNEL(x) extern const struct kernel_row cpu_rows_##x[];
#include "registry.inc"
static const struct kernel_row *const rows[] = {
#define CPU_KERNEL(x) cpu_rows_##x,
#include "registry.inc"
    NULL};

/* ---- layouts and sizes ----------------------------------------------------------------------- */

/* A tensor with one point a channel, next to a tensor with more points, is the same in every layout. */
static bool lies_anyhow(const struct selection *s, const struct node *n, int i)
{
    const struct shape *x = &s->g->tensor[n->in[i]].shape;
    return shape_count(x) == x->d[0] && shape_count(&s->g->tensor[n->in[0]].shape) > x->d[0];
}

/* An input lies as the convolutions that read it like it. A single channel lies so in any case. */
static enum layout input_layout(const struct selection *s, int tensor)
{
    bool read = false;
    for (int i = 0; i < s->g->n_nodes; i++)
        for (int j = 0; j < s->g->node[i].n_in; j++) {
            if (s->g->node[i].in[j] != tensor) continue;
            if (conv_half(s, &s->g->node[i])) read = true;
            else if (s->g->tensor[tensor].shape.d[0] > 1) return LAYOUT_PLAIN;
        }
    return read ? LAYOUT_LAST : LAYOUT_PLAIN;
}

static enum layout layout_of(const struct selection *s, int tensor)
{
    int producer = s->g->tensor[tensor].producer;
    const struct node *n = producer < 0 ? NULL : &s->g->node[producer];
    if (!n) return input_layout(s, tensor);
    if ( !n->op->keeps_layout) return LAYOUT_PLAIN;
    for (int i = 1; i < n->n_in; i++)
        if (s->tensor[n->in[i]].layout != s->tensor[n->in[0]].layout && !lies_anyhow(s, n, i)) return LAYOUT_PLAIN;
    return s->tensor[n->in[0]].layout;
}

static void sizes(const struct selection *s, struct group *k, size_t beside)
{
    host_sizes(s, k, beside > CPU_WORK ? beside : CPU_WORK);
}

/* ---- asking the library ---------------------------------------------------------------------- */

/* The layout of copies of a group's tensors: that of a convolution's weights, else blocks if all channels fill them. */
static int relay_lanes(const struct be *b, const struct group *k)
{
    bool blocks = true;
    if (group_node(b->s, k)->op->category == OP_CONV) return weight_form(b, k->param[0]).lanes;
    for (int i = -1; i < k->n_in; i++) {
        const struct tensor *t = &b->g->tensor[i < 0 ? k->out : k->in[i]];
        blocks &= t->type != F32 || t->shape.d[0] % b->lanes == 0;
    }
    return blocks ? b->lanes : 1;
}

struct be_kernel *cpu_kernel_make(struct be *b, const struct be_kernel *like, const char **why, struct err *e)
{
    struct err last = {0};
    err_set(&last, E_INTERNAL, "%s: no kernel", like->node->name);
    for (const struct kernel_row *r = NULL; (r = select_row(b->s, like->k, like->key.phase, r, why));) {
        struct err refusal = {0};
        struct be_kernel as = *like;
        as.run = r->run;
        const bool half = select_widens(b->s, r, like->k);
        as.half = !half;
        as.stored = r->stored;
        as.taken += (r->stored ? 0 : cpu_widen_work(b, like->k)) + (half && !r->pointwise ? cpu_half_work(b, like) : 0);
        struct be_kernel *k = select_relays(b->s, r, like->k) ? cpu_convert_make(b, &as, relay_lanes(b, like->k),
                                                                                r->make, &refusal)
                              : r->make                       ? r->make(b, &as, &refusal)
                                                              : kernel_new(&as, sizeof as);
        if (k) {
            k->row = r;
            if (!*k->name) snprintf(k->name, sizeof k->name, "%s", r->name);
            if (half || (k->elements && b->s->dev.threads > 1)) k = cpu_half_make(b, k);
            return group_narrows(b->s, like->k) && !k->stored ? cpu_widen_make(b, k) : k;
        }
        last = refusal;
        if (refusal.code == E_DEVICE) break;
        if (why) *why = arena_strdup(b->s->mem, refusal.text);
    }
    *e = last;
    return NULL;
}

/* Does oneDNN see the same problem? */
static bool layers_alike(const struct be *b, const struct group *x, const struct group *y)
{
    const struct graph *g = b->g;
    const struct node *m = &g->node[x->node[0]], *n = &g->node[y->node[0]];
    if (m->op != n->op || m->n_param != n->n_param || x->packed_bytes != y->packed_bytes) return false;
    bool same = tensor_lanes(b, x->in[0]) == tensor_lanes(b, y->in[0]) &&
                tensor_lanes(b, x->out) == tensor_lanes(b, y->out) &&
                (g->tensor[x->in[0]].n_readers > 1) == (g->tensor[y->in[0]].n_readers > 1) &&
                shape_equal(&g->tensor[x->in[0]].shape, &g->tensor[y->in[0]].shape) &&
                shape_equal(&g->tensor[x->out].shape, &g->tensor[y->out].shape);
    same = same && x->n_in == y->n_in;
    for (int i = 1; i < x->n_in && same; i++) {
        same = shape_equal(&g->tensor[x->in[i]].shape, &g->tensor[y->in[i]].shape) &&
               tensor_lanes(b, x->in[i]) == tensor_lanes(b, y->in[i]);
        for (int j = 0; j < i; j++) same = same && (x->in[i] == x->in[j]) == (y->in[i] == y->in[j]);
    }
    for (int i = 0; i < m->n_param; i++)
        same = same && shape_equal(&g->param[m->param[i]].shape, &g->param[n->param[i]].shape);
    for (int i = 0; i < MAX_ATTR; i++)
        same = same && m->attr[i].n == n->attr[i].n && !memcmp(m->attr[i].i, n->attr[i].i, sizeof n->attr[i].i);
    return same;
}

/* Equal layers get equal kernels. */
static const struct group *seen(const struct be *b, const struct selection *s, const struct group *k)
{
    for (const struct group *x = s->group; x < k; x++)
        if (x->pattern == k->pattern && x->grad_in == k->grad_in && x->pgrad_in_w == k->pgrad_in_w &&
            layers_alike(b, x, k))
            return x;
    return NULL;
}

static void group_ask(struct be *b, struct selection *s, struct group *k)
{
    const char *why[PH_COUNT] = {NULL};
    const struct group *as = seen(b, s, k);
    for (int ph = 0; ph < PH_COUNT && !as; ph++) {
        struct be_kernel like = {.key = {(int)(k - s->group), (enum phase)ph, s->max_samples, true}, .k = k,
                                 .node = group_node(s, k)}, *made;
        struct err e = {0};
        if (!k->row[ph] || !(made = cpu_kernel_make(b, &like, &why[ph], &e))) continue;
        k->row[ph] = made->row;
        kernel_free(made);
    }
    if (!as) { group_explain(s, k, why); return; }
    memcpy(k->row, as->row, sizeof k->row);
    k->fallback = as->fallback;
    k->slow = as->slow;
}

static bool asks(const struct group *k)
{
    for (int ph = 0; ph < PH_COUNT; ph++) if (k->row[ph] && k->row[ph]->asks) return true;
    return false;
}

/* The library answers only for its own instruction set and number of threads. For others, its rows are taken as they
 * are selected. */
static void library_ask(struct selection *s)
{
    struct be b = {.s = s, .g = s->g, .asks = true};
    struct device here = {0};
    int threads = omp_get_max_threads();
    if ((b.lanes = cpu_isa(&here)) != s->dev.block) return;
    if (dnnl_engine_create(&b.engine, dnnl_cpu, 0) != dnnl_success) return;
    omp_set_num_threads(s->dev.threads);
    for (int i = 0; i < s->n_groups; i++) if (asks(&s->group[i])) group_ask(&b, s, &s->group[i]);
    half_shared_free(&b);
    half_weights_free(&b);
    dnnl_engine_destroy(b.engine);
    omp_set_num_threads(threads);
}

const struct select_rules onednn_rules = {.hardware = "cpu", .rows = rows, .layout = layout_of,
                                          .layouts = ROW_LAYOUT(LAYOUT_PLAIN) | ROW_LAYOUT(LAYOUT_BLOCKED),
                                          .relaid = ROW_LAYOUT(LAYOUT_LAST), .widened = 1u << BF16,
                                          .frozen = HOST_FROZEN, .sizes = sizes,
                                          .ask = library_ask};

/* One core of a current server. */
const struct device_speed onednn_avx512_speed = {
    .flops = {[FP32] = 110, [BFLOAT16] = 110}, .near = 16, .mid = 11, .far = 7, .load = 7, .threads = 0.8, HOST_SPEED};
const struct device_speed onednn_amx_speed = {
    .flops = {[FP32] = 110, [BFLOAT16] = 600}, .near = 16, .mid = 11, .far = 7, .load = 7, .threads = 0.8, HOST_SPEED};
const struct device_speed onednn_avx2_speed = {
    .flops = {[FP32] = 65, [BFLOAT16] = 65}, .near = 13, .mid = 10, .far = 8, .load = 8, .threads = 0.8, HOST_SPEED};
