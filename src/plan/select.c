/* Kernel selection by rules over the device value. A new fused kernel is a row here and a kernel in a backend. */
#include <stdlib.h>
#include <string.h>
#include "plan/select.h"

const char *const precision_name[PRECISIONS] = {[FP32] = "fp32", [TF32] = "tf32", [BFLOAT16] = "bf16"};

/* ---- groups ---------------------------------------------------------------------------------- */

static int only_reader(const struct graph *g, int node)
{
    const struct tensor *t = &g->tensor[g->node[node].out];
    return t->n_readers == 1 && g->node[node].out != g->output ? t->reader[0] : -1;
}

static bool is_op(const struct graph *g, int node, const char *op)
{
    return node >= 0 && !strcmp(g->node[node].op->name, op);
}

/* bn -> relu, or bn -> add -> relu where bn is the first summand. Returns the number of nodes, 0 if the pattern does
 * not begin here. */
static int bn_pattern(const struct graph *g, int bn, int node[MAX_GROUP])
{
    if (!is_op(g, bn, "batch_norm")) return 0;
    int next = only_reader(g, bn);
    node[0] = bn;
    node[1] = next;
    if (is_op(g, next, "relu")) return 2;
    if (!is_op(g, next, "add") || g->node[next].n_in != 2 || g->node[next].in[0] != g->node[bn].out ||
        g->node[next].in[1] == g->node[bn].out)
        return 0;
    /* both gradients would be one tensor: no kernel that adds to it twice */
    if (g->node[next].in[1] == g->node[bn].in[0]) return 0;
    node[2] = only_reader(g, next);
    return is_op(g, node[2], "relu") ? 3 : 0;
}

static int use_index(const struct graph *g, int param, int node, int slot)
{
    const struct param *p = &g->param[param];
    for (int u = 0; u < p->n_uses; u++) if (p->use_node[u] == node && p->use_slot[u] == slot) return u;
    return 0;
}

static void params_take(const struct graph *g, struct group *k, int node)
{
    const struct node *n = &g->node[node];
    k->n_param = n->n_param;
    for (int i = 0; i < n->n_param; i++) {
        k->param[i] = n->param[i];
        k->use[i] = use_index(g, n->param[i], node, i);
        const struct param *p = &g->param[n->param[i]];
        if (p->kind != PARAM_WEIGHT || p->frozen) continue;
        k->pgrad_in_b |= n->op->pgrad_in_b & 1u << i;
        k->pgrad_in_w |= n->op->pgrad_in_w & 1u << i;
    }
}

static void group_from(const struct graph *g, struct group *k, enum group_kind kind, int n, const int *node)
{
    const struct node *first = &g->node[node[0]], *last = &g->node[node[n - 1]];
    *k = (struct group){.kind = kind,
                        .n_nodes = n,
                        .out = last->out,
                        .is_loss = first->op->is_loss,
                        .has_stats = first->op->stats != NULL};
    for (int i = 0; i < n; i++) k->node[i] = node[i];
    params_take(g, k, node[0]);
    if (kind == GROUP_NODE) {
        k->n_in = first->n_in;
        for (int i = 0; i < first->n_in; i++) k->in[i] = first->in[i];
        k->need_b = first->op->need_b;
        k->need_w = first->op->need_w;
        k->grad_in = first->op->grad_in;
    } else {
        k->in[k->n_in++] = first->in[0];
        if (kind == GROUP_BN_ADD_RELU) k->in[k->n_in++] = g->node[node[1]].in[1];
        k->need_b = 1 << 0 | NEED_OUT | NEED_EXTRA;      /* the output is the ReLU mask */
        k->grad_in = (1u << k->n_in) - 1;
    }
    for (int i = 0; i < k->n_in; i++) if (!g->tensor[k->in[i]].needs_grad) k->grad_in &= ~(1u << i);
}

/* Where batch norm is one kernel, it reads each element of the output's gradient before it writes the same element: the
 * masked gradient, or with nothing to add the input's own, needs no memory beyond it. */
static int grad_over(const struct device *d, const struct graph *g, const struct group *k)
{
    if (!d->fuse_bn || strcmp(g->node[k->node[0]].op->name, "batch_norm") != 0) return -1;
    return k->kind == GROUP_BN_ADD_RELU ? 1 : 0;
}

static void groups_make(struct selection *s)
{
    const struct graph *g = s->g;
    int *head = mem_alloc((size_t)g->n_nodes * sizeof *head), *count = mem_alloc((size_t)g->n_nodes * sizeof *count);
    int (*nodes)[MAX_GROUP] = mem_alloc((size_t)g->n_nodes * sizeof *nodes);
    for (int i = 0; i < g->n_nodes; i++) head[i] = -1;
    for (int i = 0; i < g->n_nodes; i++) {                /* head[last node of a pattern] = its first node */
        int n = s->dev.fuse_bn ? bn_pattern(g, i, nodes[i]) : 0;
        count[i] = n;
        if (n) head[nodes[i][n - 1]] = i;
    }
    for (int i = 0; i < g->n_nodes; i++) {                /* nodes inside a pattern get no group of their own */
        for (int k = 0; count[i] > 0 && k < count[i] - 1; k++) if (nodes[i][k] != i) count[nodes[i][k]] = -1;
    }
    for (int i = 0; i < g->n_nodes; i++) {
        if (count[i] && head[i] < 0) continue;
        struct group *k = &s->group[s->n_groups];
        if (head[i] >= 0)
            group_from(g, k, count[head[i]] == 2 ? GROUP_BN_RELU : GROUP_BN_ADD_RELU, count[head[i]], nodes[head[i]]);
        else group_from(g, k, GROUP_NODE, 1, &i);
        for (int j = 0; j < k->n_nodes; j++) s->group_of[k->node[j]] = s->n_groups;
        k->grad_over = grad_over(&s->dev, g, k);
        s->n_groups++;
    }
    free(head); free(count); free(nodes);
}

/* ---- layouts --------------------------------------------------------------------------------- */

static bool keeps_layout(const char *op)
{
    static const char *const keep[] = {"batch_norm",      "relu",   "add", "max_pool", "avg_pool",
                                       "global_avg_pool", "dropout"};
    for (size_t i = 0; i < sizeof keep / sizeof *keep; i++) if (!strcmp(op, keep[i])) return true;
    return false;
}

/* Channels last wherever there is space between channels and samples; what an operator yields has its input's rank, but
 * for flatten. */
static enum layout last_of(const struct shape *s) { return s->n > 1 ? LAYOUT_LAST : LAYOUT_PLAIN; }

/* A convolution works on blocks of channels where these divide its outputs and each output reads all inputs, or, over
 * planes, just its own: depthwise. */
static bool conv_blocks(const struct selection *s, const struct node *n)
{
    const struct shape *in = &s->g->tensor[n->in[0]].shape, *out = &s->g->tensor[n->out].shape;
    int64_t groups = n->attr[op_attr(n->op, "groups")].i[0];
    return out->d[0] % s->dev.block == 0 && (groups == 1 || (groups == in->d[0] && groups == out->d[0] && in->n == 3));
}

static enum layout layout_of(const struct selection *s, int node)
{
    const struct graph *g = s->g;
    const struct node *n = &g->node[node];
    if (s->dev.channels_last) return last_of(&g->tensor[n->out].shape);
    enum layout blocked = s->dev.block == 16 ? LAYOUT_BLK16 : LAYOUT_BLK8;
    if (s->dev.block <= 1) return LAYOUT_PLAIN;
    if (!strcmp(n->op->name, "conv")) return conv_blocks(s, n) ? blocked : LAYOUT_PLAIN;
    if (!keeps_layout(n->op->name)) return LAYOUT_PLAIN;
    for (int i = 1; i < n->n_in; i++) if (s->layout[n->in[i]] != s->layout[n->in[0]]) return LAYOUT_PLAIN;
    return s->layout[n->in[0]];
}

/* Activations in the selected precision; targets as loaded, losses in double. */
static enum dtype type_of(const struct selection *s, int tensor)
{
    enum dtype t = s->g->tensor[tensor].type;
    return s->dev.precision == BFLOAT16 && t == F32 && tensor != s->g->labels ? BF16 : t;
}

/* For convolutions in bfloat16 cuDNN's tensor-core kernels want eight channels. Where an image has fewer, it copies the
 * image into such a form in each pass that reads it: 6 c + 64 bytes a point in all, loading included. An image that is
 * stored so from the start takes 48. */
enum { PADDED = 8 };
static bool is_padded(const struct selection *s, int tensor)
{
    const struct graph *g = s->g;
    const struct tensor *t = &g->tensor[tensor];
    if (!s->dev.channels_last || s->type[tensor] != BF16 || s->layout[tensor] != LAYOUT_LAST) return false;
    if (t->producer >= 0 || t->needs_grad || tensor == g->output || t->shape.d[0] >= PADDED) return false;
    for (int i = 0; i < t->n_readers; i++) {
        const struct node *n = &g->node[t->reader[i]];
        if (strcmp(n->op->name, "conv") || n->attr[op_attr(n->op, "groups")].i[0] != 1) return false;
    }
    return t->n_readers > 0;
}

static void layouts_make(struct selection *s)
{
    const struct graph *g = s->g;
    for (int i = 0; i < g->n_tensors; i++) {
        s->type[i] = type_of(s, i);
        if (s->dev.channels_last && g->tensor[i].producer < 0) s->layout[i] = last_of(&g->tensor[i].shape);
        s->channels[i] = is_padded(s, i) ? PADDED : g->tensor[i].shape.n ? (int)g->tensor[i].shape.d[0] : 1;
    }
    for (int i = 0; i < g->n_nodes; i++) {
        const struct node *n = &g->node[i];
        s->layout[n->out] = layout_of(s, i);
        if (!strcmp(n->op->name, "conv") && s->dev.channels_last) s->param_layout[n->param[0]] = LAYOUT_LAST;
        else if (!strcmp(n->op->name, "conv") && s->layout[n->out] != LAYOUT_PLAIN)
            s->param_layout[n->param[0]] = s->layout[n->out];
    }
}

/* ---- sizes ----------------------------------------------------------------------------------- */

size_t select_sample_bytes(const struct selection *s, int tensor)
{
    const struct shape *shape = &s->g->tensor[tensor].shape;
    size_t points = shape->n && shape->d[0] ? (size_t)shape_count(shape) / (size_t)shape->d[0] : 1;
    return points * (size_t)s->channels[tensor] * dtype_bytes(s->type[tensor]);
}

size_t select_load_bytes(const struct selection *s, bool targets)
{
    const struct graph *g = s->g;
    size_t most = 0;
    for (int t = 0; t < g->n_tensors; t++) {
        size_t bytes =
            (size_t)s->max_samples * (size_t)shape_count(&g->tensor[t].shape) * dtype_bytes(g->tensor[t].type);
        if (g->tensor[t].producer < 0 && (t == g->labels) == targets && bytes > most) most = bytes;
    }
    return most;
}

/* Of convolutions and products on a GPU: libraries choose among kernels by what they may use, and one piece serves all
 * layers. Of other groups: partial sums. oneDNN's convolutions need at most 2 MiB of scratchpad (measured at batch 20),
 * what takes their place at most 4 MiB (product_work). */
enum { GPU_PRODUCT_WORK = 256 << 20, GPU_WORK = 32 << 20, DNNL_CONV_WORK = (4 << 20) + 4096 };

static bool reads_padded(const struct selection *s, const struct group *k)
{
    const struct shape *shape = &s->g->tensor[k->in[0]].shape;
    return shape->n && s->channels[k->in[0]] > shape->d[0];
}

/* Elements of a convolution's weights or their gradient, n without padding. */
static size_t padded_count(const struct selection *s, const struct group *k, size_t n)
{
    if (!reads_padded(s, k)) return n;
    return n / (size_t)s->g->tensor[k->in[0]].shape.d[0] * (size_t)s->channels[k->in[0]];
}

/* A second form of the weights: in bfloat16 on a GPU, transposed for oneDNN's input gradients. */
static size_t derived_size(const struct selection *s, const struct group *k, const char *op)
{
    bool conv = !strcmp(op, "conv"), linear = !strcmp(op, "linear");
    if (!conv && !linear) return 0;
    size_t n = (size_t)shape_count(&s->g->param[k->param[0]].shape);
    if (s->dev.precision == BFLOAT16) return (padded_count(s, k, n) * 2 + 63) / 64 * 64;
    bool blocks =
        s->param_layout[k->param[0]] != LAYOUT_PLAIN && s->g->param[k->param[0]].shape.d[1] % s->dev.block == 0;
    bool turned = conv && !strcmp(s->dev.backend, "onednn") && blocks && (k->grad_in & 1);
    return turned ? (n * sizeof(float) + 63) / 64 * 64 : 0;
}

static size_t param_bytes(const struct graph *g, int param)
{
    return ((size_t)shape_count(&g->param[param].shape) * dtype_bytes(g->param[param].type) + 63) / 64 * 64;
}

/* On a CPU: room to compute every gradient apart before it is added, and to convert layouts of all values; and what the
 * library wants. */
static void work_cpu(const struct selection *s, struct group *k, const char *op)
{
    size_t weights = 0, values = select_sample_bytes(s, k->out);
    for (int j = 0; j < k->n_param; j++) weights += param_bytes(s->g, k->param[j]);
    for (int j = 0; j < k->n_in; j++) values += select_sample_bytes(s, k->in[j]);
    k->workspace_bytes[0] =
        weights + (!strcmp(s->dev.backend, "onednn") && !strcmp(op, "conv") ? (size_t)DNNL_CONV_WORK : 4096);
    k->workspace_bytes[1] = 2 * values;
}

/* On a GPU: a library's kernel beside its weights' gradient, behind that of padded weights; or the partial sums of a
 * bias's gradient, a double for each 128 rows. What a library gets is a function of the layer alone, so equal layers
 * get equal kernels. */
static void work_gpu(const struct selection *s, struct group *k, const char *op)
{
    if (strcmp(op, "conv") && strcmp(op, "linear")) { k->workspace_bytes[0] = GPU_WORK; return; }
    size_t bias = k->n_param > 1 ? (size_t)shape_count(&s->g->tensor[k->out].shape) / 16 + 1 : 0;
    k->library_bytes = (size_t)GPU_PRODUCT_WORK + param_bytes(s->g, k->param[0]);
    size_t weights = (size_t)shape_count(&s->g->param[k->param[0]].shape);
    size_t padded = reads_padded(s, k) ? padded_count(s, k, weights) * sizeof(float) + 63 : 0;
    k->workspace_bytes[0] = k->library_bytes + padded + 64 + (bias ? 8 * (size_t)s->g->tensor[k->out].shape.d[0] : 0);
    k->workspace_bytes[1] = bias;
}

static void sizes_make(struct selection *s)
{
    const struct graph *g = s->g;
    for (int i = 0; i < s->n_groups; i++) {
        struct group *k = &s->group[i];
        const struct node *n = &g->node[k->node[0]];
        if (s->dev.channels_last) work_gpu(s, k, n->op->name);
        else work_cpu(s, k, n->op->name);
        if (n->op->extra_bytes) {
            size_t one = n->op->extra_bytes(g, n, 1), two = n->op->extra_bytes(g, n, 2);
            k->extra_bytes[1] = two - one;
            k->extra_bytes[0] = one - k->extra_bytes[1];
        }
        k->derived_bytes = derived_size(s, k, n->op->name);
        k->derived_apart = k->derived_bytes && reads_padded(s, k);
    }
}

struct selection *select_make(const struct graph *g, const struct device *dev, int max_samples, struct err *e)
{
    if (max_samples < 1) { err_set(e, E_INTERNAL, "selection for %d samples", max_samples); return NULL; }
    struct arena *mem = arena_new();
    struct selection *s = arena_alloc(mem, sizeof *s);
    *s = (struct selection){.mem = mem, .g = g, .dev = *dev, .max_samples = max_samples};
    s->group = arena_alloc(mem, (size_t)g->n_nodes * sizeof *s->group);
    s->type = arena_alloc(mem, (size_t)g->n_tensors * sizeof *s->type);
    s->layout = arena_alloc(mem, (size_t)g->n_tensors * sizeof *s->layout);
    s->channels = arena_alloc(mem, (size_t)g->n_tensors * sizeof *s->channels);
    s->param_layout = arena_alloc(mem, (size_t)(g->n_params + 1) * sizeof *s->param_layout);
    s->group_of = arena_alloc(mem, (size_t)g->n_nodes * sizeof *s->group_of);
    groups_make(s);
    layouts_make(s);
    sizes_make(s);
    for (int i = 0; dev->slow && i < s->n_groups; i++) s->group[i].slow = dev->slow(s, i);
    return s;
}

void select_free(struct selection *s) { if (s) arena_free(s->mem); }

static size_t sized(const size_t b[2], int samples) { return b[0] + b[1] * (size_t)samples; }
size_t group_extra(const struct group *k, int samples) { return sized(k->extra_bytes, samples); }
size_t group_workspace(const struct group *k, int samples) { return sized(k->workspace_bytes, samples); }

/* ---- text ------------------------------------------------------------------------------------ */

static const char *const kind_text[] = {
    [GROUP_NODE] = "", [GROUP_BN_RELU] = " bn+relu", [GROUP_BN_ADD_RELU] = " bn+add+relu"};
static const char *const layout_text[] = {
    [LAYOUT_PLAIN] = "plain", [LAYOUT_BLK8] = "blocked8", [LAYOUT_BLK16] = "blocked16", [LAYOUT_LAST] = "last"};

void select_print(const struct selection *s, struct text *out)
{
    for (int i = 0; i < s->n_groups; i++) {
        const struct group *k = &s->group[i];
        text_add(out, "group %d%s", i, kind_text[k->kind]);
        for (int j = 0; j < k->n_nodes; j++) text_add(out, " %s", s->g->node[k->node[j]].name);
        if (reads_padded(s, k)) text_add(out, " input in %d channels", s->channels[k->in[0]]);
        text_add(out, " %s keep b %x w %x extra %zu+%zu work %zu+%zu derived %zu\n", layout_text[s->layout[k->out]],
                 k->need_b, k->need_w, k->extra_bytes[0], k->extra_bytes[1], k->workspace_bytes[0],
                 k->workspace_bytes[1], k->derived_bytes);
    }
}

void numerics_line(const struct selection *s, const struct conf *c, struct text *out)
{
    struct text t = {0};
    char hash[33];
    select_print(s, &t);
    if (s->dev.kernels) text_add(&t, "%s", s->dev.kernels);
    text_hash(t.s, t.n, hash);
    text_free(&t);
    hash[8] = 0;
    text_add(out,
             "device %s, backend %s, isa %s, library %s%s%s, precision %s, kernels %s, threads %d, micro-batch %lld, "
             "weight-group 1, replicas %lld",
             s->dev.channels_last ? "gpu" : "cpu", s->dev.backend, s->dev.isa, s->dev.library,
             *s->dev.beside ? ", " : "", s->dev.beside, c->train.precision, hash, s->dev.threads,
             (long long)c->train.split_size, (long long)c->pipeline.replicas);
}
