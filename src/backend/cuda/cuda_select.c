/* What the cuda backend selects: channels last for tensors with spatial dimensions, and workspace for its libraries.
 * Needs no GPU. */
#include <string.h>
#include "backend/rules.h"

#define CUDA_KERNEL(x) extern const struct kernel_row cuda_rows_##x[];
#include "registry.inc"
static const struct kernel_row *const rows[] = {
#define CUDA_KERNEL(x) cuda_rows_##x,
#include "registry.inc"
    NULL};

/* An operator's output has its input's rank, except flatten; inputs that are no floats stay as they are loaded. */
static enum layout layout_of(const struct selection *s, int tensor)
{
    const struct tensor *t = &s->g->tensor[tensor];
    return t->shape.n > 1 && (t->producer >= 0 || t->type == F32) ? LAYOUT_LAST : LAYOUT_PLAIN;
}

/* cuDNN's tensor-core kernels for bfloat16 convolutions need eight channels. For an image with fewer, cuDNN makes such
 * a copy in each pass that reads it: 6 c + 64 bytes a point in all, loading included. An image stored with eight
 * channels from the start takes 48. */
static int padded(const struct selection *s, int tensor)
{
    enum { PADDED = 8 };
    const struct graph *g = s->g;
    const struct tensor *t = &g->tensor[tensor];
    if (s->tensor[tensor].type != BF16 || s->tensor[tensor].layout != LAYOUT_LAST) return 0;
    if (t->producer >= 0 || t->needs_grad || tensor == g->output || t->shape.d[0] >= PADDED) return 0;
    for (int i = 0; i < t->n_readers; i++) {
        const struct node *n = &g->node[t->reader[i]];
        if (n->op->category != OP_CONV || n->attr[op_attr(n->op, "groups")].i[0] != 1) return 0;
    }
    return t->n_readers > 0 ? PADDED : 0;
}

/* Does a product, and nothing else, read a weight in bfloat16 as it is stored? Such a weight needs no second form.
 * Codes are widened in each call, for linear layers in any precision. */
static bool narrow(const struct selection *s, int param)
{
    const struct graph *g = s->g;
    const struct param *p = &g->param[param];
    const bool codes = p->coded || s->dev.frozen == I8;
    for (int i = 0; i < p->n_uses; i++) {
        const struct node *n = &g->node[p->use_node[i]];
        const bool head = strcmp(n->op->name, "token_loss") == 0;
        if (codes ? n->op->category != OP_MATRIX : !op_is_product(n->op) && !head) return false;
        if (n->param[0] != param || s->tensor[n->in[0]].block > 1) return false;
    }
    return codes || s->dev.precision == BFLOAT16;
}

/* Has the group weights that need no second form? */
static bool is_narrow(const struct selection *s, const struct group *k)
{
    return k->n_param && s->param[k->param[0]].type != F32;
}

/* Elements of a product's weights or their gradient, as stored. */
static size_t weight_count(const struct selection *s, const struct group *k)
{
    size_t n = (size_t)shape_count(&s->g->param[k->param[0]].shape);
    if (!select_pads(s, k)) return n;
    return n / (size_t)s->g->tensor[k->in[0]].shape.d[0] * (size_t)select_channels(s, k->in[0]);
}

enum { PRODUCT_WORK = 256 << 20, WORK = 32 << 20 };

/* Groups that are no product. Of those whose kernels call a library for products, what they want lies before the
 * library's part; others use partial sums. */
static void other_sizes(const struct selection *s, struct group *k, size_t own)
{
    const struct kernel_row *r = k->row[PH_FWD];
    if (r && r->library) k->library_bytes = PRODUCT_WORK;
    own = size_align64(own) + k->library_bytes;
    k->workspace_bytes[0] = own > WORK ? own : (size_t)WORK;
    if (r && r->library && s->dev.precision == BFLOAT16 && !is_narrow(s, k))
        k->packed_bytes = size_align64((size_t)shape_count(&s->g->param[k->param[0]].shape) * 2);
}

/* Libraries choose among kernels by their workspace, and one piece serves all layers. It holds a library's kernel and,
 * before it, the gradient of padded weights, or weights that were codes; or it holds the partial sums of a bias's
 * gradient, a double for each 128 rows. A library's part is a function of the layer alone, so equal layers get equal
 * kernels. In bfloat16 there is a second form of the weights. */
static void sizes(const struct selection *s, struct group *k, size_t own)
{
    if (!op_is_product(s->g->node[k->node[0]].op)) { other_sizes(s, k, own); return; }
    size_t bias = k->n_param > 1 ? (size_t)shape_count(&s->g->tensor[k->out].shape) / 16 + 1 : 0;
    size_t weights = weight_count(s, k);
    const bool apart = select_pads(s, k) || s->param[k->param[0]].type == I8;
    const size_t beside = apart ? weights * sizeof(float) + 63 : 0;
    k->library_bytes = (size_t)PRODUCT_WORK + size_align64(graph_param_bytes(s->g, k->param[0]));
    k->workspace_bytes[0] = k->library_bytes + beside + 64 + (bias ? 8 * (size_t)s->g->tensor[k->out].shape.d[0] : 0);
    k->workspace_bytes[1] = bias;
    if (s->dev.precision == BFLOAT16 && !is_narrow(s, k)) k->packed_bytes = size_align64(weights * 2);
}

const struct select_rules cuda_rules = {
    .hardware = "gpu", .rows = rows, .layout = layout_of, .padded = padded, .frozen = TAKES(BF16) | TAKES(I8),
    .narrow = narrow, .sizes = sizes};

/* A current GPU: speeds that are reached, not those of data sheets. Its activations fit no cache anyway. */
const struct device_speed cuda_speed = {
    .flops = {[FP32] = 40e3, [TF32] = 250e3, [BFLOAT16] = 450e3},
    .near = 3500, .mid = 3500, .far = 3500, .values = 3500,
    .norm_back = 1, .launch_ns = 4000, .point_times = 1, .padding = true, .steady = true,
    .latency_ns = 5000, .transfer = 100};
