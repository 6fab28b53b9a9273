/* Kernel selection by operators' traits and the device's rules. A new fused kernel is a pattern here and a kernel in a
 * backend. */
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

static bool does(const struct graph *g, int node, enum op_category what)
{
    return node >= 0 && g->node[node].op->category == what;
}

/* norm -> ReLU, or norm -> sum -> ReLU with the norm as the first summand. Returns the number of nodes, 0 if no pattern
 * begins here. */
static int bn_pattern(const struct graph *g, int bn, int node[MAX_GROUP])
{
    if (!does(g, bn, OP_NORM)) return 0;
    int next = only_reader(g, bn);
    node[0] = bn;
    node[1] = next;
    if (does(g, next, OP_RELU)) return 2;
    if (!does(g, next, OP_ADD) || g->node[next].n_in != 2 || g->node[next].in[0] != g->node[bn].out ||
        g->node[next].in[1] == g->node[bn].out)
        return 0;
    /* both gradients would be one tensor, and no kernel adds to a tensor twice */
    if (g->node[next].in[1] == g->node[bn].in[0]) return 0;
    node[2] = only_reader(g, next);
    return does(g, node[2], OP_RELU) ? 3 : 0;
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
        k->pgrad_in_w |= op_pgrad_in_w(n->op) & 1u << i;
    }
}

static void group_from(const struct graph *g, struct group *k, enum group_kind kind, int n, const int *node)
{
    const struct node *first = &g->node[node[0]], *last = &g->node[node[n - 1]];
    *k = (struct group){.kind = kind,
                        .n_nodes = n,
                        .out = last->out,
                        .is_loss = first->op->is_loss,
                        .has_stats = first->op->stats && !first->fixed,
                        .fixed = first->fixed};
    for (int i = 0; i < n; i++) k->node[i] = node[i];
    params_take(g, k, node[0]);
    if (kind == GROUP_NODE) {
        k->n_in = first->n_in;
        for (int i = 0; i < first->n_in; i++) k->in[i] = first->in[i];
        k->need_b = first->op->need_b;
        k->need_w = first->op->need_w;
        k->grad_in = op_grad_in(first->op);
    } else {
        k->in[k->n_in++] = first->in[0];
        if (kind == GROUP_BN_ADD_RELU) k->in[k->n_in++] = g->node[node[1]].in[1];
        k->need_b = 1 << 0 | NEED_OUT | NEED_SAVED;      /* the output is the ReLU mask */
        k->grad_in = (1u << k->n_in) - 1;
    }
    if (k->fixed) k->need_b &= ~(uint32_t)NEED_SAVED;
    for (int i = 0; i < k->n_in; i++) if (!g->tensor[k->in[i]].needs_grad) k->grad_in &= ~(1u << i);
    if (!k->is_loss && !g->tensor[k->out].needs_grad) k->grad_in = 0;   /* only a score reads the output */
}

/* A fused batch norm kernel reads each element of the output's gradient before it writes the same element. So one
 * result needs no memory of its own: the masked gradient, or the input's gradient if there is no addition. */
static int grad_over(const struct device *d, const struct graph *g, const struct group *k)
{
    if (!d->fuse_bn || !does(g, k->node[0], OP_NORM)) return -1;
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

/* Activations in the selected precision; targets as loaded, losses in double. */
static enum dtype type_of(const struct selection *s, int tensor)
{
    enum dtype t = s->g->tensor[tensor].type;
    return s->dev.precision == BFLOAT16 && t == F32 && !graph_input_is(s->g, tensor, ROLE_TARGET) ? BF16 : t;
}

static enum layout layout_of(const struct selection *s, int tensor)
{
    return s->dev.rules->layout ? s->dev.rules->layout(s, tensor) : LAYOUT_PLAIN;
}

static void layouts_make(struct selection *s)
{
    const struct graph *g = s->g;
    const struct select_rules *r = s->dev.rules;
    for (int i = 0; i < g->n_tensors; i++) {
        s->type[i] = type_of(s, i);
        if (g->tensor[i].producer < 0) s->layout[i] = layout_of(s, i);
    }
    for (int i = 0; i < g->n_nodes; i++) s->layout[g->node[i].out] = layout_of(s, g->node[i].out);
    for (int i = 0; i < g->n_tensors; i++) {
        s->channels[i] = r->padded ? r->padded(s, i) : 0;
        if (!s->channels[i]) s->channels[i] = g->tensor[i].shape.n ? (int)g->tensor[i].shape.d[0] : 1;
    }
    for (int i = 0; i < g->n_nodes && r->param_layout; i++)
        for (int j = 0; j < g->node[i].n_param; j++) {
            enum layout l = r->param_layout(s, i, j);
            if (l != LAYOUT_PLAIN) s->param_layout[g->node[i].param[j]] = l;
        }
    for (int i = 0; i < g->n_params; i++)
        s->param_type[i] = g->param[i].frozen && r->frozen_type ? (enum dtype)r->frozen_type(s, i)
                                                                 : g->param[i].type;
}

/* ---- sizes ----------------------------------------------------------------------------------- */

size_t select_sample_bytes(const struct selection *s, int tensor)
{
    const struct shape *shape = &s->g->tensor[tensor].shape;
    size_t points = shape->n && shape->d[0] ? (size_t)shape_count(shape) / (size_t)shape->d[0] : 1;
    return points * (size_t)s->channels[tensor] * dtype_bytes(s->type[tensor]);
}

size_t select_load_bytes(const struct selection *s, int tensor)
{
    const struct tensor *t = &s->g->tensor[tensor];
    return (size_t)s->max_samples * (size_t)shape_count(&t->shape) * dtype_bytes(t->type);
}

bool select_pads(const struct selection *s, const struct group *k)
{
    const struct shape *shape = &s->g->tensor[k->in[0]].shape;
    return shape->n && s->channels[k->in[0]] > shape->d[0];
}

size_t select_param_bytes(const struct selection *s, int param)
{
    return size_align64((size_t)shape_count(&s->g->param[param].shape) * dtype_bytes(s->param_type[param]));
}

static void sizes_make(struct selection *s)
{
    const struct graph *g = s->g;
    for (int i = 0; i < s->n_groups; i++) {
        struct group *k = &s->group[i];
        const struct node *n = &g->node[k->node[0]];
        s->dev.rules->sizes(s, k);
        if (n->op->saved_bytes && !k->fixed) {
            size_t one = n->op->saved_bytes(g, n, 1), two = n->op->saved_bytes(g, n, 2);
            k->saved_bytes[1] = two - one;
            k->saved_bytes[0] = one - k->saved_bytes[1];
        }
        k->packed_apart = k->packed_bytes && select_pads(s, k);
    }
}

struct selection *select_make(const struct graph *g, const struct device *dev, int max_samples, struct err *e)
{
    if (max_samples < 1) { err_set(e, E_INTERNAL, "selection for %d samples", max_samples); return NULL; }
    for (int i = 0; i < g->n_nodes; i++) {
        const struct node *n = &g->node[i];
        if (!dev->rules->has || dev->rules->has(n->op)) continue;
        err_set(e, E_CONF, "%s: the %s backend has no operator %s", n->name, dev->backend, n->op->name);
        return NULL;
    }
    struct arena *mem = arena_new();
    struct selection *s = arena_alloc(mem, sizeof *s);
    *s = (struct selection){.mem = mem, .g = g, .dev = *dev, .max_samples = max_samples};
    s->group = arena_alloc(mem, (size_t)g->n_nodes * sizeof *s->group);
    s->type = arena_alloc(mem, (size_t)g->n_tensors * sizeof *s->type);
    s->layout = arena_alloc(mem, (size_t)g->n_tensors * sizeof *s->layout);
    s->channels = arena_alloc(mem, (size_t)g->n_tensors * sizeof *s->channels);
    s->param_layout = arena_alloc(mem, (size_t)(g->n_params + 1) * sizeof *s->param_layout);
    s->param_type = arena_alloc(mem, (size_t)(g->n_params + 1) * sizeof *s->param_type);
    s->group_of = arena_alloc(mem, (size_t)g->n_nodes * sizeof *s->group_of);
    groups_make(s);
    layouts_make(s);
    sizes_make(s);
    if (dev->rules->fallbacks) dev->rules->fallbacks(s);
    return s;
}

void select_free(struct selection *s) { if (s) arena_free(s->mem); }

static size_t sized(const size_t b[2], int samples) { return b[0] + b[1] * (size_t)samples; }
size_t group_saved(const struct group *k, int samples) { return sized(k->saved_bytes, samples); }
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
        if (k->fixed) text_add(out, " fixed");
        if (select_pads(s, k)) text_add(out, " input in %d channels", s->channels[k->in[0]]);
        text_add(out, " %s keep b %x w %x extra %zu+%zu work %zu+%zu derived %zu\n", layout_text[s->layout[k->out]],
                 k->need_b, k->need_w, k->saved_bytes[0], k->saved_bytes[1], k->workspace_bytes[0],
                 k->workspace_bytes[1], k->packed_bytes);
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
             "weight-group 1, ",
             s->dev.rules->hardware, s->dev.backend, s->dev.isa, s->dev.library,
             *s->dev.beside ? ", " : "", s->dev.beside, c->train.precision, hash, s->dev.threads,
             (long long)c->train.split_size);
    /* for one block: the words of checkpoints from before there were blocks */
    if (c->train.gradient_groups > 1) text_add(out, "gradient groups %lld", (long long)c->train.gradient_groups);
    else text_add(out, "replicas 1");
    if (c->pipeline.replicas > 1 && c->pipeline.reduce == REDUCE_NCCL)
        text_add(out, ", those of %lld replicas added by NCCL in buckets of %lld KiB", (long long)c->pipeline.replicas,
                 (long long)c->pipeline.bucket_kib);
}
