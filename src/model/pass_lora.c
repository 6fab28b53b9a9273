/* Adapters as a pass over a graph that is being built. Nodes are added at the end, then moved behind the layer that
 * they belong to, so that the order of nodes and of parameters is that of computation. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "model/graph_int.h"
#include "model/lora.h"

/* ---- which layers -------------------------------------------------------------------------------- */

static bool is_linear(const struct node *n) { return n->op->category == OP_MATRIX; }

/* A product whose weight B A can replace: linear, or a convolution of all channels with all. */
static bool can_adapt(const struct node *n)
{
    const struct attr_value *groups = n->op->category == OP_CONV ? node_attr(n, "groups") : NULL;
    return is_linear(n) || (groups && groups->i[0] == 1);
}

int builder_head(const struct graph_builder *b, const char *head)
{
    const struct op_kind *tokens = op_find("token_loss");
    int last = -1;
    for (int i = 0; i < b->node.n; i++) {
        const struct node *n = &b->node.v[i];
        if (head ? !strcmp(n->name, head) : is_linear(n)) last = i;
        if (!head && n->op == tokens) return -1;
    }
    return !head && b->loss_op == tokens ? -1 : last;
}

/* Is it the whole name, or its last parts? */
static bool names(const char *target, const char *name)
{
    const size_t n = strlen(name), m = strlen(target);
    return m <= n && !strcmp(name + n - m, target) && (m == n || name[n - m - 1] == '.');
}

struct lora_pass {
    struct graph_builder *b;
    const struct conf *c;
    struct lora set;
    int n, head, *sum;                                   /* of n layers: the tensor of the sum; -1: no adapter */
    bool head_never, *hit;                               /* [target] */
};

static bool chosen(struct lora_pass *p, int node)
{
    const struct node *n = &p->b->node.v[node];
    bool takes = false;
    if (!can_adapt(n) || (node == p->head && p->head_never)) return false;
    for (int i = 0; i < p->set.n_targets; i++) {
        const char *t = p->set.target[i];
        const bool fits = !strcmp(t, "all-linear") ? is_linear(n) && node != p->head : names(t, n->name);
        p->hit[i] |= fits;
        takes |= fits;
    }
    return takes;
}

static int target_missing(const struct lora_pass *p, const char *target, struct err *e)
{
    char hint[SUGGEST_TEXT];
    struct suggest near = suggest_begin(target, strlen(target));
    if (p->head_never && p->head >= 0 && names(target, p->b->node.v[p->head].name))
        return conf_error(p->c, "lora.targets", e, "\"%.60s\": a decoder's head takes no adapter", target);
    for (int i = 0; i < p->n; i++) {
        const struct node *n = &p->b->node.v[i];
        if (!can_adapt(n) || (i == p->head && p->head_never)) continue;
        for (const char *s = n->name; s; s = strchr(s, '.') ? strchr(s, '.') + 1 : NULL)
            suggest_try(&near, s, strlen(s), 0);
    }
    return conf_error(p->c, "lora.targets", e, "\"%.60s\" names no linear layer, nor a convolution without groups%s",
                      target, suggest_text(&near, "", hint));
}

/* Two layers that share a weight have two adapters, and one weight cannot have both added. */
static int merge_check(const struct lora_pass *p, int node, struct err *e)
{
    const struct node *v = p->b->node.v;
    for (int i = 0; p->c->lora.merge && i < p->n; i++)
        if (i != node && v[i].n_param && v[i].param[0] == v[node].param[0])
            return conf_error(p->c, "lora.merge", e, "%s shares its weight with %s", v[node].name, v[i].name);
    return 0;
}

static int choose(struct lora_pass *p, struct err *e)
{
    for (int i = 0; i < p->n; i++) {
        p->sum[i] = chosen(p, i) ? 0 : -1;
        if (!p->sum[i] && merge_check(p, i, e)) return -1;
    }
    for (int i = 0; i < p->set.n_targets; i++) if (!p->hit[i]) return target_missing(p, p->set.target[i], e);
    return 0;
}

/* ---- new nodes ----------------------------------------------------------------------------------- */

/* The attributes of a layer like this one with another number of outputs, without bias, in files as torch has it. */
static void attrs_like(const struct node *n, int64_t outputs, struct text *out)
{
    static const char *const width[] = {"features", "channels"}, *const off[] = {"bias", "stored"};
    struct node like = *n;
    for (int i = 0; i < 2; i++) {
        const struct attr_value *w = node_attr(n, width[i]), *o = node_attr(n, off[i]);
        if (w) like.attr[w - n->attr] = (struct attr_value){.n = 1, .i = {outputs}, .r = (double)outputs};
        if (o) like.attr[o - n->attr] = (struct attr_value){.n = 1};
    }
    out->n = 0;
    attrs_print(&like, out);
}

static const char *part(struct lora_pass *p, const struct node *n, const char *suffix)
{
    return arena_printf(p->b->mem, "%s.%s", n->name, suffix);
}

/* Returns the sum's tensor. A begins as in peft, and as torch.nn.Linear and Conv2d: kaiming_uniform_, a = sqrt(5). */
static int adapter_add(struct lora_pass *p, int node)
{
    struct graph_builder *b = p->b;
    const struct node n = b->node.v[node];               /* a copy: adding a node moves the others */
    const struct shape w = b->param.v[n.param[0]].shape;
    const char *a = part(p, &n, "lora_A"), *up = part(p, &n, "lora_B");
    const double scale = lora_scale(&p->set);
    struct text attrs = {0};
    int t = n.in[0];
    if (p->set.dropout > 0) {
        text_add(&attrs, "p=%.17g", p->set.dropout);
        t = graph_add1(b, "dropout", part(p, &n, "lora_dropout"), n.layer ? "Dropout" : NULL, attrs.s, t);
    }
    attrs_like(&n, p->set.rank, &attrs);
    t = graph_add1(b, n.op->name, a, n.layer, attrs.s, t);
    graph_init(b, a, 0, INIT_UNIFORM, 1 / sqrt((double)(shape_count(&w) / w.d[0])));
    attrs.n = 0;
    text_add(&attrs, "factor=%.17g", scale);
    if (scale != 1) t = graph_add1(b, "times", part(p, &n, "lora_scale"), NULL, attrs.s, t);
    attrs.n = 0;
    if (is_linear(&n)) attrs_like(&n, w.d[0], &attrs);
    else text_add(&attrs, "channels=%lld bias=no", (long long)w.d[0]);
    t = graph_add1(b, n.op->name, up, n.layer, attrs.s, t);
    graph_init(b, up, 0, INIT_ZERO, 0);
    text_free(&attrs);
    return graph_add2(b, "add", part(p, &n, "lora"), n.out, t);
}

/* The tensor that readers of this one read now. */
static int summed(const struct lora_pass *p, int tensor)
{
    const int node = tensor < 0 ? -1 : p->b->tensor.v[tensor].producer;
    return node >= 0 && node < p->n && p->sum[node] >= 0 && p->b->node.v[node].out == tensor ? p->sum[node] : tensor;
}

static void readers_redirect(struct lora_pass *p, int *output)
{
    struct graph_builder *b = p->b;
    for (int i = 0; i < p->n; i++)
        for (int k = 0; k < b->node.v[i].n_in; k++) b->node.v[i].in[k] = summed(p, b->node.v[i].in[k]);
    for (int i = 0; i < b->container.n; i++) b->container.v[i].out = summed(p, b->container.v[i].out);
    *output = summed(p, *output);
}

/* ---- order --------------------------------------------------------------------------------------- */

/* place[i]: the new index of node i. first[i]: the first node that was added for node i, and first[i + 1] the end. */
static void places_find(const struct lora_pass *p, int *place, const int *first)
{
    for (int i = 0, at = 0; i < p->n; i++) {
        place[i] = at++;
        for (int k = first[i]; k < first[i + 1]; k++) place[k] = at++;
    }
}

/* The builder has an entry for each parameter of each node, in their order, before ties. */
static void nodes_move(struct graph_builder *b, const int *place, int n_old)
{
    const int n = b->node.n;
    struct node *node = mem_alloc((size_t)n * sizeof *node);
    struct param *param = mem_alloc(((size_t)b->param.n + 1) * sizeof *param);
    int *own = mem_alloc(((size_t)n + 1) * sizeof *own), *from = mem_alloc((size_t)n * sizeof *from),
        *to = mem_alloc(((size_t)b->param.n + 1) * sizeof *to);
    for (int i = 0; i < n; i++) {
        own[i + 1] = own[i] + b->node.v[i].n_param;
        from[place[i]] = i;
    }
    for (int i = 0, at = 0; i < n; i++)
        for (int k = own[from[i]]; k < own[from[i] + 1]; k++, at++) {
            param[at] = b->param.v[k];
            to[k] = at;
        }
    for (int i = 0; i < n; i++) {
        node[i] = b->node.v[from[i]];
        for (int k = 0; k < node[i].n_param; k++) node[i].param[k] = to[node[i].param[k]];
    }
    for (int i = 0; i < b->tensor.n; i++)
        if (b->tensor.v[i].producer >= 0) b->tensor.v[i].producer = place[b->tensor.v[i].producer];
    for (int i = 0; i < b->container.n; i++) {
        int *end = &b->container.v[i].end;
        *end = *end < n_old ? place[*end] : n;
    }
    memcpy(b->node.v, node, (size_t)n * sizeof *node);
    memcpy(b->param.v, param, (size_t)b->param.n * sizeof *param);
    free(node);
    free(param);
    free(own);
    free(from);
    free(to);
}

static void params_mark(struct graph_builder *b)
{
    for (int i = 0; i < b->param.n; i++) {
        b->param.v[i].base = true;
        b->param.v[i].frozen = b->param.v[i].kind == PARAM_WEIGHT;
    }
}

/* Adapters begin after what is marked. */
static void adapters_add(struct lora_pass *p, int *output)
{
    struct graph_builder *b = p->b;
    int *first = mem_alloc(((size_t)p->n + 1) * sizeof *first);
    params_mark(b);
    for (int i = 0; i < p->n; i++) {
        first[i] = b->node.n;
        if (p->sum[i] >= 0) p->sum[i] = adapter_add(p, i);
    }
    first[p->n] = b->node.n;
    int *place = mem_alloc((size_t)b->node.n * sizeof *place);
    if (!b->e.code) {
        readers_redirect(p, output);
        places_find(p, place, first);
        nodes_move(b, place, p->n);
    }
    free(place);
    free(first);
}

int lora_apply(struct graph_builder *b, const struct conf *c, const char *head, int *output, struct err *e)
{
    struct lora_pass p = {.b = b, .c = c, .n = b->node.n, .head = builder_head(b, head), .head_never = head != NULL};
    if (b->e.code || !conf_adapts(c)) return 0;          /* graph_finish reports the error */
    if (lora_of(c, b->mem, &p.set, e)) return -1;
    p.sum = mem_alloc(((size_t)p.n + 1) * sizeof *p.sum);
    p.hit = mem_alloc((size_t)p.set.n_targets + 1);
    const int bad = choose(&p, e);
    if (!bad) adapters_add(&p, output);
    free(p.sum);
    free(p.hit);
    return bad;
}

/* ---- of a finished graph ------------------------------------------------------------------------- */

static const struct node *beside(const struct graph *g, const char *name, const char *suffix)
{
    struct text t = {0};
    text_add(&t, "%s.%s", name, suffix);
    const int i = graph_node_find(g, t.s);
    text_free(&t);
    return i < 0 ? NULL : &g->node[i];
}

bool lora_beside(const struct graph *g, int node, struct lora_pair *p)
{
    const char *name = g->node[node].name;
    const struct node *a = beside(g, name, "lora_A"), *b = beside(g, name, "lora_B"),
                      *scale = beside(g, name, "lora_scale");
    if (!a || !b) return false;
    *p = (struct lora_pair){a->param[0], b->param[0], scale ? unary_attr(scale) : 1};
    return true;
}

bool lora_pair_find(const struct graph *g, int param, struct lora_pair *p)
{
    const struct param *w = &g->param[param];
    return w->base && !w->use_slot[0] && lora_beside(g, w->use_node[0], p);
}
