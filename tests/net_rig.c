#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "base/half.h"
#include "base/rng.h"
#include "net_rig.h"
#include "op_graphs.h"
#include "sure.h"


void ok(int bad, const struct err *e) { ck_assert_msg(!bad, "%s", e->text); }

/* Backend memory with a canary behind it. */
void *memory(struct net *t, size_t bytes)
{
    struct err e = {0};
    char *p = t->ops->alloc(t->b, bytes + CANARY, &e);
    ck_assert_msg(p != NULL, "%s", e.text);
    memset(p + bytes, 0x5a, CANARY);
    return p;
}

void canary_check(const void *p, size_t bytes)
{
    for (int i = 0; i < CANARY; i++)
        sure(((const unsigned char *)p)[bytes + (size_t)i] == 0x5a, "written beyond %zu bytes", bytes);
}

size_t tensor_size(const struct net *t, int i)
{
    return (size_t)t->n * (size_t)shape_count(&t->g->tensor[i].shape) * dtype_bytes(t->g->tensor[i].type);
}
size_t tensor_floats(const struct net *t, int i)
{
    return (size_t)t->n * (size_t)shape_count(&t->g->tensor[i].shape);
}
size_t param_floats(const struct net *t, int i) { return (size_t)shape_count(&t->g->param[i].shape); }

/* Inputs are exact in bf16, so that only results are rounded. */
static void values_round(const struct net *t, float *x, size_t n)
{
    for (size_t i = 0; t->dev.precision == BFLOAT16 && i < n; i++) x[i] = bf16_widen(bf16_narrow(x[i]));
}

static void values_fill(struct net *t)
{
    struct err e = {0};
    for (int i = 0; i < t->g->n_tensors; i++) {
        size_t n = tensor_floats(t, i);
        t->plain[i] = calloc(n, 8);
        t->gplain[i] = calloc(n, 8);
        t->store[i] = memory(t, n * 8);
        t->gstore[i] = memory(t, n * 8);
        if (t->g->tensor[i].type == F32) rng_fill_normal((struct rng_at){7, RNG_TEST, (uint32_t)i}, t->plain[i], n);
        if (!dtype_floats(t->g->tensor[i].type)) op_graph_integers(t->g, i, 3, n, t->plain[i]);
        rng_fill_normal((struct rng_at){7, RNG_TEST, (uint32_t)i, 1}, t->gplain[i], n);
        if (t->g->tensor[i].type == F32) values_round(t, t->plain[i], n);
        values_round(t, t->gplain[i], n);
        ok(t->ops->tensor_import(t->b, i, t->n, t->store[i], t->plain[i], &e), &e);
    }
    for (int i = 0; i < t->g->n_params; i++) {
        size_t n = param_floats(t, i);
        t->param[i] = calloc(n, 8);
        t->pgrad[i] = calloc(n, sizeof(float));
        t->pstore[i] = memory(t, n * 8);
        t->pgstore[i] = memory(t, n * sizeof(float));
        /* positive: also variances */
        if (t->g->param[i].type == F32) rng_fill_uniform((struct rng_at){7, RNG_TEST, (uint32_t)i, 2}, t->param[i], n);
        if (t->g->param[i].shape.n > 1) for (size_t k = 0; k < n; k++) ((float *)t->param[i])[k] -= 0.5f;
        ok(t->ops->param_import(t->b, i, t->pstore[i], t->param[i], &e), &e);
    }
}

static void net_open_as(struct net *t, struct graph *g, int n, enum precision precision, int threads,
                        enum dtype frozen)
{
    struct err e = {0};
    memset(t, 0, sizeof *t);
    ck_assert(g->n_tensors <= MAX_T && g->n_params <= MAX_T && g->n_nodes <= MAX_T);
    t->g = g;
    t->n = n;
    t->train = true;
    t->ops = be_find("onednn");
    ok(t->ops->describe(0, &t->dev, &e), &e);
    t->dev.precision = precision;
    t->dev.threads = threads;
    t->dev.frozen = frozen == I8 ? F32 : frozen;
    /* every gradient is asked for: bf16 has packed weights only for those that are planned */
    for (int i = 0; i < g->n_tensors; i++)
        g->tensor[i].needs_grad |= precision == BFLOAT16 && g->tensor[i].producer < 0 && g->tensor[i].type == F32;
    t->s = select_make(g, &t->dev, n, &e);
    ck_assert_msg(t->s != NULL, "%s", e.text);
    ok(t->ops->open(t->s, threads, 0, &t->b, &e), &e);
    for (int i = 0; i < 300; i++) t->sample[i] = 100 + 3 * i;
    for (int i = 0; i < g->n_nodes; i++) {
        const struct op_kind *op = g->node[i].op;
        if (op->saved_bytes) t->saved[i] = calloc(1, op->saved_bytes(g, &g->node[i], n));
    }
    t->block = memory(t, sizeof *t->block);
    *t->block = (struct be_block){.inv_weight = 1.0 / 8, .seed = 5, .step = 3};
    values_fill(t);
}

void net_open(struct net *t, struct graph *g, int n) { net_open_as(t, g, n, FP32, 1, F32); }
void net_open_half(struct net *t, struct graph *g, int n) { net_open_as(t, g, n, BFLOAT16, 1, F32); }
void net_open_threads(struct net *t, struct graph *g, int n) { net_open_as(t, g, n, FP32, 3, F32); }
void net_open_half_threads(struct net *t, struct graph *g, int n) { net_open_as(t, g, n, BFLOAT16, 3, F32); }

void net_open_frozen(struct net *t, struct graph *g, int n, enum dtype stored, int threads)
{
    for (int i = 0; i < g->n_params; i++) {
        g->param[i].frozen = g->param[i].shape.n > 1;
        g->param[i].coded = g->param[i].frozen && stored == I8;
    }
    net_open_as(t, g, n, BFLOAT16, threads, stored);
}

void net_close(struct net *t)
{
    for (int i = 0; i < t->g->n_tensors; i++) {
        size_t n = tensor_floats(t, i);
        canary_check(t->store[i], n * 8);
        canary_check(t->gstore[i], n * 8);
        free(t->plain[i]); free(t->gplain[i]);
        t->ops->free(t->b, t->store[i], n * 8 + CANARY);
        t->ops->free(t->b, t->gstore[i], n * 8 + CANARY);
    }
    for (int i = 0; i < t->g->n_params; i++) {
        size_t n = param_floats(t, i);
        canary_check(t->pstore[i], n * 8);
        canary_check(t->pgstore[i], n * sizeof(float));
        free(t->param[i]); free(t->pgrad[i]);
        t->ops->free(t->b, t->pstore[i], n * 8 + CANARY);
        t->ops->free(t->b, t->pgstore[i], n * sizeof(float) + CANARY);
    }
    for (int i = 0; i < t->g->n_nodes; i++) free(t->saved[i]);
    t->ops->free(t->b, t->block, sizeof *t->block + CANARY);
    t->ops->close(t->b);
    select_free(t->s);
    graph_free(t->g);
}

/* ---- reference: the group's nodes one by one ------------------------------------------------- */

struct op_call ref_call(struct net *t, int node)
{
    const struct node *n = &t->g->node[node];
    struct op_call c = {.g = t->g, .node = n, .n = t->n, .train = t->train, .block = t->block, .sample = t->sample,
                        .saved = t->saved[node]};
    for (int i = 0; i < n->n_in; i++) c.in[i] = t->plain[n->in[i]];
    for (int i = 0; i < n->n_param; i++) c.param[i] = t->param[n->param[i]];
    for (int i = 0; i < n->n_out; i++) c.outs[i] = t->plain[n->outs[i]];
    return c;
}

void ref_forward(struct net *t, const struct group *k)
{
    for (int i = 0; i < k->n_nodes; i++) {
        struct op_call c = ref_call(t, k->node[i]);
        c.node->op->forward(&c);
    }
}

/* Gradients of the group's inputs and parameters; those of tensors inside it are overwritten. That of a tensor which
 * a node reads more than once is the sum of what each of its inputs gets. */
void ref_backward(struct net *t, const struct group *k)
{
    for (int i = k->n_nodes - 1; i >= 0; i--) {
        struct op_call c = ref_call(t, k->node[i]);
        const struct op_kind *op = c.node->op;
        for (int j = 0; j < c.node->n_out && !op->is_loss; j++) c.gouts[j] = t->gplain[c.node->outs[j]];
        for (int j = 0; j < c.node->n_in; j++)
            if (op_grad_in(op) >> j & 1)
                c.gin[j] = op_graph_first(c.node, j) < j ? calloc(tensor_floats(t, c.node->in[j]), sizeof(float))
                                                         : t->gplain[c.node->in[j]];
        for (int j = 0; j < c.node->n_param; j++)
            if ((op->pgrad_in_b | op_pgrad_in_w(op)) >> j & 1) c.pgrad[j] = t->pgrad[c.node->param[j]];
        if (op->backward_weights) op->backward_weights(&c);
        if (op->backward_data) op->backward_data(&c);
        for (int j = 0; j < c.node->n_in; j++) if (c.gin[j]) op_graph_twice_add(&c, j, tensor_floats(t, c.node->in[j]));
    }
}

/* ---- the backend ----------------------------------------------------------------------------- */

/* What is overwritten must not depend on what was there: NaN. */
static void garbage_fill(float *x, size_t n) { memset(x, 0xff, n * sizeof *x); }

/* Gradients are only added to where a tensor has several readers. */
static bool adds(const struct net *t, int tensor) { return t->g->tensor[tensor].n_readers > 1; }

void be_phase(struct net *t, int group, enum phase ph, bool acc)
{
    const struct group *k = &t->s->group[group];
    struct be_kernel *kernel, *again;
    struct err e = {0};
    struct be_call c = {.n = t->n, .block = t->block, .sample = t->sample, .saved = t->bextra, .work = t->work,
                        .packed = t->packed, .pgrad_acc = acc};
    uint32_t gin = 0, pgrad = 0;
    for (int i = 0; i < k->n_nodes; i++) {
        const struct op_kind *op = t->g->node[k->node[i]].op;
        if (i == 0) { gin |= op_grad_in(op); pgrad |= ph == PH_BWD_DATA ? op->pgrad_in_b : op_pgrad_in_w(op); }
        else gin |= (1u << k->n_in) - 2;                 /* the other summand of a fused add */
    }
    for (int i = 0; i < k->n_in; i++) {
        c.in[i] = t->store[k->in[i]];
        if (ph == PH_BWD_DATA && gin >> i & 1) c.gin[i] = t->gstore[k->in[i]];
        bool first = true;                               /* of the inputs that are this tensor */
        for (int j = 0; j < i; j++) first &= k->in[j] != k->in[i];
        if (c.gin[i] && (!first || (acc && adds(t, k->in[i])))) c.gin_acc |= (uint8_t)(1u << i);
    }
    for (int i = 0; i < k->n_param; i++) {
        c.param[i] = t->pstore[k->param[i]];
        if (ph != PH_FWD && pgrad >> i & 1) c.pgrad[i] = t->pgstore[k->param[i]];
    }
    for (int i = 0; i < k->n_out; i++) {
        c.outs[i] = t->store[k->outs[i]];
        if (ph != PH_FWD && !k->is_loss) c.gouts[i] = t->gstore[k->outs[i]];
    }
    if (t->work) garbage_fill(t->work, group_workspace(k, t->n) / sizeof(float));
    ok(t->ops->prepare(t->b, &(struct be_key){group, ph, t->n, t->train}, &kernel, &e), &e);
    ok(t->ops->prepare(t->b, &(struct be_key){group, ph, t->n, t->train}, &again, &e), &e);
    ck_assert(kernel == again);
    ok(t->ops->run(t->b, kernel, &c, &e), &e);
    ok(t->ops->done(t->b, &e) != 1, &e);
}

void group_memory(struct net *t, const struct group *k, bool get)
{
    struct { void **p; size_t bytes; } m[] = {
        {&t->bextra, group_saved(k, t->n)}, {&t->work, group_workspace(k, t->n)}, {&t->packed, k->packed_bytes}};
    for (int i = 0; i < 3; i++) {
        if (get) *m[i].p = m[i].bytes ? memory(t, m[i].bytes) : NULL;
        else if (*m[i].p) {
            canary_check(*m[i].p, m[i].bytes);
            t->ops->free(t->b, *m[i].p, m[i].bytes + CANARY);
        }
    }
    if (!get || !t->packed) return;
    struct err e = {0};
    void *param[MAX_PARAM] = {0};
    for (int i = 0; i < k->n_param; i++) param[i] = t->pstore[k->param[i]];
    ok(t->ops->pack(t->b, (int)(k - t->s->group), param, t->packed, &e), &e);
}

/* ---- comparing ------------------------------------------------------------------------------- */

/* Distance in L2 norm relative to the norm of y. The backend sums K products in float and some other order, the
 * reference in double: a random walk of K roundings of 2^-24 each; 8 leaves room for partial sums that are larger than
 * the result. */
void close_enough(const char *what, const struct net *t, const float *x, const float *y, size_t n, double terms)
{
    double d = 0, norm = 0;
    for (size_t i = 0; i < n; i++) {
        sure(isfinite(x[i]), "%s: value %zu is not finite", what, i);
        d += ((double)x[i] - y[i]) * ((double)x[i] - y[i]);
        norm += (double)y[i] * y[i];
    }
    double limit = 8 * sqrt(terms + 1) * ldexp(1, -24);
    if (t->dev.precision == BFLOAT16) limit += ldexp(1, -7);         /* of weights and results: 2^-9 each */
    ck_assert_msg(sqrt(d) <= limit * sqrt(norm) + 1e-30, "%s: relative distance %g, limit %g (%s)", what,
                  sqrt(d / norm), limit, t->dev.isa);
}

static void tensor_close(struct net *t, int i, bool grad, const float *want, double terms)
{
    struct err e = {0};
    size_t n = tensor_floats(t, i);
    if (t->g->tensor[i].type == F64) {
        const double *got = t->store[i], *y = t->plain[i];
        const struct op_kind *op = t->g->node[t->g->tensor[i].producer].op;
        /* the logits of a loss with a head are floats, of weights that may be rounded */
        const double limit = !op->flops ? 1e-12 : t->dev.precision == BFLOAT16 ? 1e-2 : 1e-6;
        for (size_t k = 0; k < n; k++)
            sure(fabs(got[k] - y[k]) <= limit * (1 + fabs(y[k])), "%s, value %zu: %.17g, not %.17g",
                 t->g->tensor[i].name, k, got[k], y[k]);
        return;
    }
    float *x = calloc(n, sizeof *x);
    ok(t->ops->tensor_export(t->b, i, t->n, x, grad ? (void *)t->gstore[i] : t->store[i], &e), &e);
    char what[96];
    snprintf(what, sizeof what, "%s of %s", grad ? "gradient" : "value", t->g->tensor[i].name);
    close_enough(what, t, x, want, n, terms);
    free(x);
}

static void param_close(struct net *t, int i, const float *want, double terms)
{
    struct err e = {0};
    float *x = calloc(param_floats(t, i), sizeof *x);
    ok(t->ops->param_export(t->b, i, x, t->pgstore[i], &e), &e);
    close_enough(t->g->param[i].name, t, x, want, param_floats(t, i), terms);
    free(x);
}

static float *plus(const float *a, const float *b, size_t n)
{
    float *y = calloc(n, sizeof *y);
    for (size_t i = 0; i < n; i++) y[i] = a[i] + b[i];
    return y;
}

/* Sum lengths: of an output, of a parameter gradient. */
static void terms_of(const struct net *t, const struct group *k, double *value, double *grad)
{
    double weights = 1;
    for (int i = 0; i < k->n_param; i++) {
        const struct shape *s = &t->g->param[k->param[i]].shape;
        if (s->n > 1) weights = (double)shape_count(s) / (double)(s->d[0] < s->d[1] ? s->d[0] : s->d[1]);
    }
    const struct shape *out = &t->g->tensor[k->out].shape;
    *value = weights;
    *grad = (double)t->n * (double)shape_count(out) / (double)(out->n ? out->d[0] : 1);
    /* statistics over the micro-batch enter every value */
    if (t->g->node[k->node[0]].op->saved_bytes) *value = *grad;
}

static void backward_compare(struct net *t, const struct group *k, bool acc)
{
    static float *before[2][MAX_T];
    double value, grad;
    terms_of(t, k, &value, &grad);
    struct err e = {0};
    for (int i = 0; i < t->g->n_tensors; i++) {          /* what accumulating starts from */
        before[0][i] = calloc(tensor_floats(t, i), 8);
        if (acc && adds(t, i))
            rng_fill_normal((struct rng_at){8, RNG_TEST, (uint32_t)i, 3}, before[0][i], tensor_floats(t, i));
        bool out = group_makes(k, i);
        ok(t->ops->tensor_import(t->b, i, t->n, t->gstore[i], out ? t->gplain[i] : before[0][i], &e), &e);
        if (!out && !(acc && adds(t, i))) garbage_fill(t->gstore[i], tensor_floats(t, i));
    }
    for (int i = 0; i < t->g->n_params; i++) {
        before[1][i] = calloc(param_floats(t, i) + 1, 8);
        if (acc && t->g->param[i].type == F32)
            rng_fill_normal((struct rng_at){8, RNG_TEST, (uint32_t)i, 4}, before[1][i], param_floats(t, i));
        ok(t->ops->param_import(t->b, i, t->g->param[i].type == F32 ? t->pgstore[i] : t->pstore[i], before[1][i], &e),
           &e);
        if (!acc) garbage_fill(t->pgstore[i], param_floats(t, i));
    }
    int group = (int)(k - t->s->group);
    const struct op_kind *op = t->g->node[k->node[0]].op;
    if (op->backward_data) be_phase(t, group, PH_BWD_DATA, acc);
    if (op->backward_weights) be_phase(t, group, PH_BWD_WEIGHTS, acc);
    for (int i = 0; i < k->n_in; i++) {
        if (i == 0 ? !(op_grad_in(op) & 1) : k->n_nodes == 1 && !(op_grad_in(op) >> i & 1)) continue;
        float *want = plus(before[0][k->in[i]], t->gplain[k->in[i]], tensor_floats(t, k->in[i]));
        tensor_close(t, k->in[i], true, want, value);
        free(want);
    }
    for (int i = 0; i < k->n_param; i++) {
        if (!((op->pgrad_in_b | op_pgrad_in_w(op)) >> i & 1)) continue;
        float *want = plus(before[1][k->param[i]], t->pgrad[k->param[i]], param_floats(t, k->param[i]));
        param_close(t, k->param[i], want, grad);
        free(want);
    }
    for (int i = 0; i < t->g->n_tensors; i++) free(before[0][i]);
    for (int i = 0; i < t->g->n_params; i++) free(before[1][i]);
}

static void outs_compare(struct net *t, const struct group *k, double terms)
{
    for (int i = 0; i < k->n_out; i++) tensor_close(t, k->outs[i], false, t->plain[k->outs[i]], terms);
}

void group_compare(struct net *t, int group)
{
    const struct group *k = &t->s->group[group];
    double value, grad;
    terms_of(t, k, &value, &grad);
    struct err e = {0};
    for (int i = 0; i < k->n_in; i++)
        ok(t->ops->tensor_import(t->b, k->in[i], t->n, t->store[k->in[i]], t->plain[k->in[i]], &e), &e);
    group_memory(t, k, true);
    const struct op_kind *op = t->g->node[k->node[0]].op;
    /* where evaluating differs, both */
    for (int train = op->saved_bytes || !strcmp(op->name, "dropout") ? 0 : 1; train < 2; train++) {
        t->train = train;
        ref_forward(t, k);
        for (int i = 0; i < k->n_out; i++)
            garbage_fill(t->store[k->outs[i]], tensor_size(t, k->outs[i]) / sizeof(float));
        be_phase(t, group, PH_FWD, false);
        if (!train || !op->outs_in_b) outs_compare(t, k, value);
    }
    for (int i = 0; i < k->n_out; i++)                   /* what the next group reads, and this one's backward */
        if (t->g->tensor[k->outs[i]].type == F32) values_round(t, t->plain[k->outs[i]], tensor_floats(t, k->outs[i]));
    ref_backward(t, k);
    for (int acc = 0; acc < 2; acc++) {
        backward_compare(t, k, acc);
        if (op->outs_in_b) outs_compare(t, k, value);
    }
    group_memory(t, k, false);
}
