#include "graph_eval.h"
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "base/rng.h"

static size_t tensor_count(const struct graph_eval *v, int t)
{
    return (size_t)v->n * (size_t)shape_count(&v->g->tensor[t].shape);
}
static size_t param_count(const struct graph_eval *v, int p) { return (size_t)shape_count(&v->g->param[p].shape); }

struct graph_eval *graph_eval_new(const struct graph *g, int n, bool train)
{
    struct graph_eval *v = mem_alloc(sizeof *v);
    *v = (struct graph_eval){.g = g, .n = n, .train = train, .block = {.inv_weight = 1.0 / n, .seed = 1, .step = 1}};
    v->sample = mem_alloc((size_t)n * sizeof *v->sample);
    v->value = mem_alloc((size_t)g->n_tensors * sizeof *v->value);
    v->grad = mem_alloc((size_t)g->n_tensors * sizeof *v->grad);
    v->param = mem_alloc((size_t)(g->n_params + 1) * sizeof *v->param);
    v->pgrad = mem_alloc((size_t)(g->n_params + 1) * sizeof *v->pgrad);
    v->saved = mem_alloc((size_t)g->n_nodes * sizeof *v->saved);
    for (int i = 0; i < n; i++) v->sample[i] = i;
    for (int i = 0; i < g->n_tensors; i++) {
        v->value[i] = mem_alloc(tensor_count(v, i) * dtype_bytes(g->tensor[i].type));
        if (g->tensor[i].needs_grad) v->grad[i] = mem_alloc(tensor_count(v, i) * sizeof(float));
    }
    for (int i = 0; i < g->n_params; i++) {
        v->param[i] = mem_alloc(param_count(v, i) * dtype_bytes(g->param[i].type));
        if (g->param[i].kind == PARAM_WEIGHT && !g->param[i].frozen)
            v->pgrad[i] = mem_alloc(param_count(v, i) * sizeof(float));
    }
    for (int i = 0; i < g->n_nodes; i++) {
        const struct op_kind *op = g->node[i].op;
        v->saved[i] = op->saved_bytes ? mem_alloc(op->saved_bytes(g, &g->node[i], n)) : NULL;
    }
    return v;
}

void graph_eval_init(struct graph_eval *v, uint64_t seed)
{
    for (int i = 0; i < v->g->n_params; i++) {
        const struct param *p = &v->g->param[i];
        float *x = v->param[i];
        size_t n = param_count(v, i);
        if (p->kind == PARAM_COUNTER) continue;
        if (p->init == INIT_UNIFORM) rng_fill_uniform((struct rng_at){seed, RNG_INIT, (uint32_t)i}, x, n);
        if (p->init == INIT_NORMAL) rng_fill_normal((struct rng_at){seed, RNG_INIT, (uint32_t)i}, x, n);
        for (size_t k = 0; k < n; k++)
            x[k] = p->init == INIT_ZERO  ? 0
                   : p->init == INIT_ONE ? 1
                                         : (float)((p->init == INIT_UNIFORM ? 2 * x[k] - 1 : x[k]) * p->scale);
    }
}

static struct op_call call_of(struct graph_eval *v, int node)
{
    const struct node *n = &v->g->node[node];
    struct op_call c = {.g = v->g, .node = n, .n = v->n, .train = v->train, .block = &v->block, .sample = v->sample,
                        .saved = v->saved[node]};
    for (int k = 0; k < n->n_out; k++) c.outs[k] = v->value[n->outs[k]];
    for (int k = 0; k < n->n_in; k++) c.in[k] = v->value[n->in[k]];
    for (int k = 0; k < n->n_param; k++) c.param[k] = v->param[n->param[k]];
    return c;
}

void graph_eval_forward(struct graph_eval *v)
{
    for (int i = 0; i < v->g->n_nodes; i++) {
        struct op_call c = call_of(v, i);
        v->g->node[i].op->forward(&c);
    }
}

static void *take(size_t floats) { return mem_alloc(floats * sizeof(float)); }

static void add_and_free(float *sum, void *part, size_t n)
{
    for (size_t i = 0; i < n; i++) sum[i] += ((float *)part)[i];
    free(part);
}

/* The gradients of each use of a parameter lie at use[p][index of the use] until all are there. */
static void node_backward(struct graph_eval *v, int node, void ***use)
{
    const struct node *n = &v->g->node[node];
    struct op_call c = call_of(v, node);
    bool any = false;
    if (!graph_wants_grad(v->g, n)) return;
    for (int k = 0; k < n->n_out; k++) c.gouts[k] = v->grad[n->outs[k]];
    for (int k = 0; k < n->n_in; k++)
        if ((op_grad_in(n->op) >> k & 1) && v->grad[n->in[k]]) {
            c.gin[k] = take(tensor_count(v, n->in[k]));
            any = true;
        }
    for (int k = 0; k < n->n_param; k++) {
        const struct param *p = &v->g->param[n->param[k]];
        if (!v->pgrad[n->param[k]]) continue;
        int u = 0;
        while (p->use_node[u] != node || p->use_slot[u] != k) u++;
        c.pgrad[k] = use[n->param[k]][u] = take(param_count(v, n->param[k]));
    }
    if (any || n->op->pgrad_in_b) n->op->backward_data(&c);
    if (n->op->backward_weights) n->op->backward_weights(&c);
    for (int k = 0; k < n->n_in; k++)
        if (c.gin[k]) add_and_free(v->grad[n->in[k]], c.gin[k], tensor_count(v, n->in[k]));
}

void graph_eval_backward(struct graph_eval *v)
{
    const struct graph *g = v->g;
    void ***use = mem_alloc((size_t)(g->n_params + 1) * sizeof *use);
    for (int i = 0; i < g->n_params; i++) use[i] = mem_alloc((size_t)g->param[i].n_uses * sizeof **use);
    for (int i = 0; i < g->n_tensors; i++)
        if (v->grad[i] && (g->loss >= 0 || i != g->output)) memset(v->grad[i], 0, tensor_count(v, i) * sizeof(float));
    for (int i = g->n_nodes - 1; i >= 0; i--) node_backward(v, i, use);
    for (int i = 0; i < g->n_params; i++) {
        if (v->pgrad[i]) memset(v->pgrad[i], 0, param_count(v, i) * sizeof(float));
        for (int u = 0; u < g->param[i].n_uses; u++)
            if (use[i][u]) add_and_free(v->pgrad[i], use[i][u], param_count(v, i));
        free(use[i]);
    }
    free(use);
}

double graph_eval_loss(const struct graph_eval *v)
{
    double sum = 0;
    for (int i = 0; i < v->n; i++) sum += ((double *)v->value[v->g->loss])[3 * i];
    return sum;
}

static void all_free(void **p, int n)
{
    for (int i = 0; i < n; i++) free(p[i]);
    free(p);
}

void graph_eval_free(struct graph_eval *v)
{
    all_free(v->value, v->g->n_tensors);
    all_free((void **)v->grad, v->g->n_tensors);
    all_free(v->param, v->g->n_params);
    all_free((void **)v->pgrad, v->g->n_params);
    all_free(v->saved, v->g->n_nodes);
    free(v->sample);
    free(v);
}
