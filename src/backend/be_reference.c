/* The reference backend: runs every group node by node with the operators' reference kernels, in plain layout. Tests
 * compare the other backends with it.
 *
 * A fused group is a chain: tensors between its nodes are in scratch memory. Backward computes the chain again if the
 * output was not kept. A result that is added goes to scratch memory first, so the kernels always overwrite. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "backend/host.h"

struct be { struct host host; };

struct be_kernel {
    struct be_key key;
    const struct group *k;
    /* scratch memory, if the selection reserves less than plain kernels need */
    void *own; size_t own_bytes;
};

static int reference_describe(int unit, struct device *d, struct err *e)
{
    host_describe(d, "reference", "plain C");
    return 0;
}

static int reference_open(const struct selection *s, int threads, int unit, struct be **out, struct err *e)
{
    if (s->dev.block > 1)
        return err_set(e, E_DEVICE, "kernels were selected for channel blocks of %d, the reference backend has none",
                       s->dev.block);
    struct be *b = mem_alloc(sizeof *b);
    host_open(&b->host, s);
    *out = b;
    return 0;
}

static void reference_close(struct be *b)
{
    for (int i = 0; i < b->host.kernel.n; i++) {
        host_free(b, b->host.kernel.v[i]->own, b->host.kernel.v[i]->own_bytes);
        free(b->host.kernel.v[i]);
    }
    vec_free(&b->host.kernel);
    free(b);
}

/* ---- a group as a chain of operator calls ---------------------------------------------------- */

/* external[k]: the group's input that input k of a node is, -1: the output of node inner[k] of the chain. */
struct link_of { int external[MAX_IN], inner[MAX_IN], first_param; };
struct chain {
    struct link_of link[MAX_GROUP];
    struct op_call o[MAX_GROUP];
    void *grad[MAX_GROUP];                               /* gradients of inner outputs */
};

/* The group's inputs are numbered in the order in which its nodes read them. Its parameters are those of its nodes, in
 * order. */
static void chain_link(const struct be *b, const struct group *k, struct chain *c)
{
    int n_external = 0, n_param = 0;
    for (int i = 0; i < k->n_nodes; i++) {
        const struct node *n = &b->host.g->node[k->node[i]];
        c->link[i].first_param = n_param;
        n_param += n->n_param;
        for (int j = 0; j < n->n_in; j++) {
            int inner = -1;
            for (int p = 0; p < i; p++) if (b->host.g->node[k->node[p]].out == n->in[j]) inner = p;
            c->link[i].inner[j] = inner;
            c->link[i].external[j] = inner < 0 ? n_external++ : -1;
        }
    }
}

/* A parameter as operators read it: the stored one, or a copy in the graph's type. */
static void *param_read(struct be *b, int param, void *stored, struct carve *w)
{
    const struct param *p = &b->host.g->param[param];
    if (!select_narrows(b->host.s, param)) return stored;
    float *x = carve(w, graph_param_bytes(b->host.g, param));
    if (x) format_widen(&b->host.s->param[param], &p->shape, stored, x);
    return x;
}

static void chain_inputs(struct be *b, const struct be_kernel *k, const struct be_call *call, struct chain *c,
                         struct carve *w)
{
    chain_link(b, k->k, c);
    for (int i = 0; i < k->k->n_nodes; i++) {
        const struct node *n = &b->host.g->node[k->k->node[i]];
        c->o[i] = (struct op_call){.g = b->host.g,
                                   .node = n,
                                   .n = k->key.samples,
                                   .train = k->key.train,
                                   .block = call->block,
                                   .sample = call->sample};
        c->o[i].saved = n->op->saved_bytes ? call->saved : NULL;
        for (int j = 0; j < n->n_in; j++)
            if (c->link[i].external[j] >= 0) c->o[i].in[j] = call->in[c->link[i].external[j]];
        for (int j = 0; j < n->n_param; j++)
            c->o[i].param[j] = param_read(b, n->param[j], call->param[c->link[i].first_param + j], w);
    }
}

/* Sets the memory of each node's output: `last` for the last node, scratch memory for the others. */
static void chain_outputs(struct be *b, const struct be_kernel *k, void *last, struct chain *c, struct carve *w)
{
    int n_nodes = k->k->n_nodes;
    for (int i = 0; i < n_nodes; i++) {
        const struct node *n = c->o[i].node;
        c->o[i].out = i == n_nodes - 1 ? last : carve(w, host_tensor_bytes(b->host.g, n->out, k->key.samples));
        for (int j = 0; j < n->n_in; j++) if (c->link[i].inner[j] >= 0) c->o[i].in[j] = c->o[c->link[i].inner[j]].out;
    }
}

/* Runs the chain again for the values that backward reads. What the first run saved stays unchanged. */
static void chain_again(struct be *b, const struct be_kernel *k, struct chain *c, struct carve *w)
{
    const struct node *last = c->o[k->k->n_nodes - 1].node;
    chain_outputs(b, k, carve(w, host_tensor_bytes(b->host.g, last->out, k->key.samples)), c, w);
    for (int i = 0; i < k->k->n_nodes; i++) {
        struct op_call o = c->o[i];
        if (o.saved || !w->at) o.saved = carve(w, group_saved(k->k, k->key.samples));
        if (w->at) o.node->op->forward(&o);
    }
}

/* ---- results that are added to --------------------------------------------------------------- */

static void floats_add(float *y, const float *x, size_t bytes)
{
    for (size_t i = 0; i < bytes / sizeof *y; i++) y[i] += x[i];
}

/* Gradient pointers of node i: the result itself, or scratch memory if the gradient is added to the result. count: as
 * if every gradient were requested and added. */
static void chain_gradients(struct be *b, const struct be_kernel *k, const struct be_call *call, int i, struct chain *c,
                            struct carve *w)
{
    const struct node *n = c->o[i].node;
    uint32_t arises = k->key.phase == PH_BWD_DATA ? k->k->pgrad_in_b : k->k->pgrad_in_w;
    bool count = !w->at;
    for (int j = 0; j < n->n_in && k->key.phase == PH_BWD_DATA; j++) {
        int x = c->link[i].external[j];
        bool beside = count || (x >= 0 && call->gin[x] && call->gin_acc >> x & 1);
        c->o[i].gin[j] = x < 0    ? c->grad[c->link[i].inner[j]]
                         : beside ? carve(w, host_tensor_bytes(b->host.g, n->in[j], k->key.samples))
                                  : call->gin[x];
    }
    for (int j = 0; j < n->n_param; j++) {
        int p = c->link[i].first_param + j;
        if (!(arises >> p & 1) || (!call->pgrad[p] && !count)) continue;
        bool beside = count || call->pgrad_acc;
        c->o[i].pgrad[j] = beside ? carve(w, graph_param_bytes(b->host.g, n->param[j])) : call->pgrad[p];
    }
}

static void chain_results_add(struct be *b, const struct be_kernel *k, const struct be_call *call, int i,
                              struct chain *c)
{
    const struct node *n = c->o[i].node;
    for (int j = 0; j < n->n_in; j++) {
        int x = c->link[i].external[j];
        if (x >= 0 && c->o[i].gin[j] && c->o[i].gin[j] != call->gin[x])
            floats_add(call->gin[x], c->o[i].gin[j], host_tensor_bytes(b->host.g, n->in[j], k->key.samples));
    }
    for (int j = 0; j < n->n_param; j++) {
        int p = c->link[i].first_param + j;
        if (c->o[i].pgrad[j] && c->o[i].pgrad[j] != call->pgrad[p])
            floats_add(call->pgrad[p], c->o[i].pgrad[j], graph_param_bytes(b->host.g, n->param[j]));
    }
}

/* ---- running --------------------------------------------------------------------------------- */

static void forward_run(struct be *b, const struct be_kernel *k, const struct be_call *call, struct carve *w)
{
    struct chain c = {0};
    chain_inputs(b, k, call, &c, w);
    chain_outputs(b, k, call->out, &c, w);
    memcpy(c.o[k->k->n_nodes - 1].outs, call->outs, sizeof call->outs);
    for (int i = 0; w->at && i < k->k->n_nodes; i++) c.o[i].node->op->forward(&c.o[i]);
}

/* In a chain of several nodes, W has no weight gradients that need inner gradients: B computes those
 * (plan/select.h). */
static void backward_run(struct be *b, const struct be_kernel *k, const struct be_call *call, struct carve *w)
{
    struct chain c = {0};
    int last = k->k->n_nodes - 1;
    chain_inputs(b, k, call, &c, w);
    if (last > 0 && !call->out) chain_again(b, k, &c, w);
    else memcpy(c.o[last].outs, call->outs, sizeof call->outs);
    for (int i = 0; i < last; i++) c.grad[i] = carve(w, host_tensor_bytes(b->host.g, c.o[i].node->out, k->key.samples));
    for (int i = last; i >= 0; i--) {
        host_loop *kernel = host_pass(c.o[i].node->op, k->key.phase);
        if (i == last) memcpy(c.o[i].gouts, call->gouts, sizeof call->gouts);
        else c.o[i].gout = c.grad[i];
        chain_gradients(b, k, call, i, &c, w);
        if (!w->at || !kernel) continue;
        kernel(&c.o[i]);
        chain_results_add(b, k, call, i, &c);
    }
}

/* Scratch memory of the worst case: nothing was kept, every gradient is requested and added. */
static size_t scratch_bytes(struct be *b, const struct be_kernel *k)
{
    struct be_call none = {0};
    struct carve w = {NULL, 0};
    (k->key.phase == PH_FWD ? forward_run : backward_run)(b, k, &none, &w);
    return w.used;
}

static int reference_prepare(struct be *b, const struct be_key *key, struct be_kernel **out, struct err *e)
{
    if ((*out = be_kernel_find(b->host.kernel.v, b->host.kernel.n, key))) return 0;
    struct be_kernel *k = mem_alloc(sizeof *k);
    k->key = *key;
    k->k = &b->host.s->group[key->group];
    *vec_push(&b->host.kernel) = k;
    size_t need = scratch_bytes(b, k);
    if (need > group_workspace(k->k, key->samples)) {
        k->own_bytes = need;
        if (!(k->own = host_alloc(b, need, e))) return -1;
    }
    *out = k;
    return 0;
}

static int reference_run(struct be *b, struct be_kernel *k, const struct be_call *c, struct err *e)
{
    char none[64];                                       /* for calls without scratch memory: not NULL, never written */
    struct carve w = {k->own ? k->own : c->work ? c->work : none, 0};
    if (c->n != k->key.samples)
        return err_set(e, E_INTERNAL, "kernel for %d samples called with %d", k->key.samples, c->n);
    (k->key.phase == PH_FWD ? forward_run : backward_run)(b, k, c, &w);
    return 0;
}

/* ---- values ---------------------------------------------------------------------------------- */

static int reference_pack(struct be *b, int group, void *const *param, void *packed, struct err *e) { return 0; }

static int reference_param_import(struct be *b, int param, void *storage, const void *plain, struct err *e)
{
    return host_param_import(b->host.s, param, storage, plain, e);
}

static int reference_param_export(struct be *b, int param, void *plain, const void *storage, struct err *e)
{
    host_param_export(b->host.s, param, plain, storage);
    return 0;
}

static int reference_stats(struct be *b, const struct be_stats *s, struct err *e) { return host_stats(b->host.s, s); }

static int reference_add(struct be *b, float *y, const float *x, size_t n, struct err *e)
{
    floats_add(y, x, n * sizeof *y);
    return 0;
}

static int reference_sumsq(struct be *b, const float *x, size_t n, double *out, struct err *e)
{
    double sum = 0;
    for (size_t i = 0; i < n; i++) sum += (double)x[i] * x[i];
    *out = sum;
    return 0;
}

extern const struct be_ops be_reference;
const struct be_ops be_reference = {
    .name = "reference",
    .text = "plain C, the oracle of the tests",
    .describe = reference_describe,
    .open = reference_open,
    .close = reference_close,
    .alloc = host_alloc,
    .free = host_free,
    .copy = host_copy,
    .prepare = reference_prepare,
    .run = reference_run,
    .pack = reference_pack,
    .param_import = reference_param_import,
    .param_export = reference_param_export,
    .add = reference_add,
    .sumsq = reference_sumsq,
    .update = host_update,
    .stats = reference_stats,
    .tensor_import = host_tensor_copy,
    .tensor_export = host_tensor_copy,
    .done = host_done,
};
