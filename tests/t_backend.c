/* The reference and the null backend, and the table of backends. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "backend/be.h"
#include "backend/null.h"
#include "base/rng.h"
#include "sure.h"

static void ok(int bad, const struct err *e) { ck_assert_msg(!bad, "%s", e->text); }

/* ---- tables ------------------------------------------------------------------------------------------------------ */

START_TEST(tables)
{
    int n = 0;
    for (const struct be_ops *const *b = be_list; *b; b++, n++) {
        struct device d;
        struct err e = {0};
        ck_assert_ptr_eq(be_find((*b)->name), *b);
        if ((*b)->stream && (*b)->describe(0, &d, &e)) {    /* a device may be missing, and says so */
            ck_assert_int_eq(e.code, E_DEVICE);
            ck_assert(e.text[0]);
            continue;
        }
        ok((*b)->describe(0, &d, &e), &e);
        ck_assert_str_eq(d.backend, (*b)->name);
        ck_assert(d.block >= 1 && d.threads == 1 && d.isa[0] && d.library[0] && (*b)->text[0]);
    }
    ck_assert_int_eq(n, be_find("cuda") ? 4 : 3);
    ck_assert_ptr_null(be_find("abacus"));
}
END_TEST

/* ---- a small residual network ------------------------------------------------------------------------------------ */

enum { MAX_T = 16, MAX_P = 24, SAMPLES = 3, CANARY = 256 };
struct net {
    struct select_rules rules;
    struct graph *g;
    struct selection *s;
    const struct be_ops *ops;
    struct be *b;
    void *value[MAX_T];
    float *grad[MAX_T]; bool written[MAX_T];
    void *param[MAX_P]; float *pgrad[MAX_P];
    void *saved[MAX_T];                                  /* of each group; of each node in the oracle */
    struct be_block block;
    int64_t sample[SAMPLES];
};

/* conv1's output has two readers; bn1 + add + relu and bn2 + relu can be fused. */
static struct graph *network(void)
{
    struct graph_builder *b = graph_begin("small", NULL);
    struct err e = {0};
    struct shape image = {3, {3, 6, 6}}, target = {1, {5}};
    int in = graph_input(b, "input", ROLE_SAMPLE, &image, F32);
    int labels = graph_input(b, "labels", ROLE_TARGET, &target, F32);
    int c1 = graph_add1(b, "conv", "conv1", NULL, "channels=4 kernel=3 padding=1", in);
    int c2 = graph_add1(b, "conv", "conv2", NULL, "channels=4 kernel=3 padding=1 bias=no", c1);
    int bn1 = graph_add1(b, "batch_norm", "bn1", NULL, "", c2);
    int r1 = graph_add1(b, "relu", "relu1", NULL, "", graph_add2(b, "add", "add", bn1, c1));
    int c3 = graph_add1(b, "conv", "conv3", NULL, "channels=2 kernel=2", r1);
    int r2 = graph_add1(b, "relu", "relu2", NULL, "", graph_add1(b, "batch_norm", "bn2", NULL, "", c3));
    int fc = graph_add1(b, "linear", "fc", NULL, "features=5", graph_add1(b, "flatten", "flatten", NULL, "", r2));
    struct graph *g = graph_finish(b, fc, graph_add2(b, "mse", "loss", fc, labels), &e);
    ck_assert_msg(g != NULL, "%s", e.text);
    return g;
}

static size_t value_bytes(const struct net *t, int i)
{
    return SAMPLES * (size_t)shape_count(&t->g->tensor[i].shape) * dtype_bytes(t->g->tensor[i].type);
}
static size_t param_bytes(const struct net *t, int i)
{
    return (size_t)shape_count(&t->g->param[i].shape) * dtype_bytes(t->g->param[i].type);
}

/* The reference backend runs any chain; here its device has rows for two. */
static const struct kernel_row chain_rows[] = {{.name = "chain", .pattern = &pattern_bn_relu},
                                               {.name = "chain", .pattern = &pattern_bn_add_relu},
                                               {.name = "node", .pattern = PATTERN_ANY},
                                               {0}};
static const struct kernel_row *const chains[] = {chain_rows, NULL};

static void net_open(struct net *t, const char *backend, bool fuse)
{
    struct err e = {0};
    struct device d;
    memset(t, 0, sizeof *t);
    t->g = network();
    ck_assert(t->g->n_tensors <= MAX_T && t->g->n_params <= MAX_P);
    t->ops = be_find(backend);
    ok(t->ops->describe(0, &d, &e), &e);
    t->rules = *d.rules;
    t->rules.rows = fuse ? chains : NULL;
    d.rules = &t->rules;
    t->s = select_make(t->g, &d, SAMPLES, &e);
    ck_assert_msg(t->s != NULL, "%s", e.text);
    ok(t->ops->open(t->s, 1, 0, &t->b, &e), &e);
    for (int i = 0; i < t->g->n_tensors; i++) {
        t->value[i] = calloc(1, value_bytes(t, i));
        t->grad[i] = calloc(1, value_bytes(t, i));
        if (t->g->tensor[i].producer < 0)
            rng_fill_normal((struct rng_at){3, RNG_TEST, (uint32_t)i}, t->value[i], value_bytes(t, i) / sizeof(float));
    }
    for (int i = 0; i < t->g->n_params; i++) {
        t->param[i] = calloc(1, param_bytes(t, i));
        t->pgrad[i] = calloc(1, param_bytes(t, i));
        if (t->g->param[i].type == F32)
            rng_fill_uniform((struct rng_at){3, RNG_TEST, (uint32_t)i, 1}, t->param[i],
                             param_bytes(t, i) / sizeof(float));
    }
    for (int i = 0; i < t->g->n_nodes; i++) t->saved[i] = calloc(1, 4096);
    t->block = (struct be_block){.inv_weight = 0.125, .clip_coef = 1};
}

static void net_close(struct net *t)
{
    for (int i = 0; i < t->g->n_tensors; i++) { free(t->value[i]); free(t->grad[i]); }
    for (int i = 0; i < t->g->n_params; i++) { free(t->param[i]); free(t->pgrad[i]); }
    for (int i = 0; i < t->g->n_nodes; i++) free(t->saved[i]);
    t->ops->close(t->b);
    select_free(t->s);
    graph_free(t->g);
}

/* The oracle of the oracle: operators node by node, gradients added from the last reader to the first. */
static void oracle_node(struct net *t, int i, enum phase ph, bool train)
{
    const struct node *n = &t->g->node[i];
    struct op_call c = {.g = t->g, .node = n, .n = SAMPLES, .train = train, .block = &t->block, .sample = t->sample,
                        .saved = t->saved[i], .out = t->value[n->out], .gout = t->grad[n->out]};
    for (int k = 0; k < n->n_in; k++) c.in[k] = t->value[n->in[k]];
    for (int k = 0; k < n->n_param; k++) c.param[k] = t->param[n->param[k]];
    if (ph == PH_FWD) { n->op->forward(&c); return; }
    for (int k = 0; k < n->n_param; k++) c.pgrad[k] = t->pgrad[n->param[k]];
    for (int k = 0; k < n->n_in; k++)
        if (op_grad_in(n->op) >> k & 1 && t->g->tensor[n->in[k]].needs_grad)
            c.gin[k] = calloc(1, value_bytes(t, n->in[k]));
    if (n->op->backward_data && t->g->tensor[n->in[0]].needs_grad) n->op->backward_data(&c);
    if (n->op->backward_weights) n->op->backward_weights(&c);
    for (int k = 0; k < n->n_in; k++) {
        float *to = t->grad[n->in[k]], *from = c.gin[k];
        for (size_t j = 0; from && j < value_bytes(t, n->in[k]) / sizeof *to; j++)
            to[j] = t->written[n->in[k]] ? to[j] + from[j] : from[j];
        t->written[n->in[k]] |= from != NULL;
        free(from);
    }
}

static void oracle_run(struct net *t, bool train)
{
    for (int i = 0; i < t->g->n_nodes; i++) oracle_node(t, i, PH_FWD, train);
    for (int i = t->g->n_nodes - 1; train && i >= 0; i--) oracle_node(t, i, PH_BWD_DATA, train);
}

/* One kernel of the backend. keep_out: backward may read the output; else it sees NULL. */
static void group_run(struct net *t, int i, enum phase ph, bool train, bool keep_out, bool acc)
{
    const struct group *k = &t->s->group[i];
    struct be_kernel *kernel, *again;
    struct err e = {0};
    size_t work = group_workspace(k, SAMPLES);
    unsigned char *mem = malloc(work + CANARY);
    struct be_call c = {
        .n = SAMPLES, .block = &t->block, .sample = t->sample, .saved = t->saved[i], .work = mem, .pgrad_acc = acc};
    memset(mem, 0x5a, work + CANARY);
    c.out = ph == PH_FWD || keep_out || k->n_nodes == 1 ? t->value[k->out] : NULL;
    c.gout = ph == PH_FWD || k->is_loss ? NULL : t->grad[k->out];
    for (int j = 0; j < k->n_in; j++) {
        c.in[j] = t->value[k->in[j]];
        if (ph != PH_BWD_DATA || !(k->grad_in >> j & 1)) continue;
        c.gin[j] = t->grad[k->in[j]];
        c.gin_acc |= (uint8_t)(t->written[k->in[j]] << j);
        t->written[k->in[j]] = true;
    }
    for (int j = 0; j < k->n_param; j++) {
        c.param[j] = t->param[k->param[j]];
        if (ph != PH_FWD && (ph == PH_BWD_DATA ? k->pgrad_in_b : k->pgrad_in_w) >> j & 1)
            c.pgrad[j] = t->pgrad[k->param[j]];
    }
    ok(t->ops->prepare(t->b, &(struct be_key){i, ph, SAMPLES, train}, &kernel, &e), &e);
    ok(t->ops->prepare(t->b, &(struct be_key){i, ph, SAMPLES, train}, &again, &e), &e);
    ck_assert_ptr_eq(kernel, again);
    ok(t->ops->run(t->b, kernel, &c, &e), &e);
    for (int j = 0; j < CANARY; j++)
        ck_assert_msg(mem[work + (size_t)j] == 0x5a, "%s: written behind the workspace", t->g->node[k->node[0]].name);
    free(mem);
}

static void backend_run(struct net *t, bool train, bool keep_out, bool acc)
{
    for (int i = 0; i < t->s->n_groups; i++) group_run(t, i, PH_FWD, train, true, false);
    for (int i = t->s->n_groups - 1; train && i >= 0; i--) {
        if (t->s->group[i].grad_in || t->s->group[i].pgrad_in_b) group_run(t, i, PH_BWD_DATA, train, keep_out, acc);
        if (t->s->group[i].pgrad_in_w) group_run(t, i, PH_BWD_WEIGHTS, train, keep_out, acc);
    }
}

static bool inside_group(const struct net *t, int tensor)
{
    int node = t->g->tensor[tensor].producer;
    return node >= 0 && t->s->group[t->s->group_of[node]].out != tensor;
}

static void compare(const struct net *t, const struct net *want, float before)
{
    for (int i = 0; i < t->g->n_tensors; i++) {
        if (inside_group(t, i)) continue;
        ck_assert_msg(!memcmp(t->value[i], want->value[i], value_bytes(t, i)), "value of %s differs",
                      t->g->tensor[i].name);
        ck_assert_msg(!memcmp(t->grad[i], want->grad[i], value_bytes(t, i)), "gradient of %s differs",
                      t->g->tensor[i].name);
    }
    for (int i = 0; i < t->g->n_params; i++) {
        const struct param *p = &t->g->param[i];
        for (size_t k = 0; p->kind == PARAM_WEIGHT && k < param_bytes(t, i) / sizeof(float); k++)
            ck_assert_msg(t->pgrad[i][k] == before + want->pgrad[i][k], "gradient of %s differs", p->name);
    }
}

/* _i: bit 0 fused, 1 outputs not kept and no workspace selected, 2 parameter gradients are added to. Bits are equal:
 * it is the same arithmetic in the same order. */
START_TEST(reference_backward)
{
    struct net t, want;
    bool fuse = _i & 1, acc = _i & 4;
    net_open(&want, "reference", false);
    net_open(&t, "reference", fuse);
    ck_assert_int_eq(t.s->n_groups, fuse ? want.g->n_nodes - 3 : want.g->n_nodes);
    for (int i = 0; _i & 2 && i < t.s->n_groups; i++)
        memset(t.s->group[i].workspace_bytes, 0, sizeof t.s->group[i].workspace_bytes);
    for (int i = 0; i < t.g->n_params; i++)
        for (size_t k = 0; acc && k < param_bytes(&t, i) / sizeof(float); k++) t.pgrad[i][k] = 8;
    oracle_run(&want, true);
    backend_run(&t, true, !(_i & 2), acc);
    compare(&t, &want, acc ? 8 : 0);
    double loss = 0;
    for (size_t k = 0; k < value_bytes(&t, t.g->loss) / sizeof(double); k += 3)
        loss += ((double *)t.value[t.g->loss])[k];
    ck_assert(isfinite(loss) && loss > 0);
    net_close(&t);
    net_close(&want);
}
END_TEST

START_TEST(reference_evaluation)
{
    struct net t, want;
    net_open(&want, "reference", false);
    net_open(&t, "reference", _i);
    oracle_run(&want, false);
    backend_run(&t, false, true, false);
    compare(&t, &want, 0);
    net_close(&t);
    net_close(&want);
}
END_TEST

/* ---- values and memory ------------------------------------------------------------------------------------------- */

START_TEST(values)
{
    enum { N = 1000 };
    struct net t;
    struct err e = {0};
    float x[N], y[N];
    double sum;
    net_open(&t, "reference", false);
    for (int i = 0; i < N; i++) { x[i] = (float)(i % 17); y[i] = (float)i; }
    ok(t.ops->add(t.b, y, x, N - 1, &e), &e);
    for (int i = 0; i < N; i++) ck_assert_float_eq(y[i], i < N - 1 ? (float)(i + i % 17) : (float)i);
    int want = 0;
    for (int i = 0; i < N; i++) want += (i % 17) * (i % 17);
    ok(t.ops->sumsq(t.b, x, N, &sum, &e), &e);
    ck_assert_double_eq(sum, want);
    ok(t.ops->sumsq(t.b, x, 0, &sum, &e), &e);
    ck_assert_double_eq(sum, 0);
    float big[2] = {1e20f, 1e-20f};                      /* squares overflow and vanish in float, not in double */
    ok(t.ops->sumsq(t.b, big, 1, &sum, &e), &e);
    ck_assert_double_eq(sum, (double)big[0] * big[0]);
    for (int i = 0; i < t.g->n_params; i++) {
        void *copy = calloc(1, param_bytes(&t, i));
        ok(t.ops->param_export(t.b, i, copy, t.param[i], &e), &e);
        ck_assert(!memcmp(copy, t.param[i], param_bytes(&t, i)));
        free(copy);
    }
    net_close(&t);
}
END_TEST

START_TEST(memory)
{
    struct net t;
    struct err e = {0};
    net_open(&t, _i ? "null" : "reference", false);
    unsigned char *p = t.ops->alloc(t.b, 100001, &e);
    ck_assert(p && (uintptr_t)p % 64 == 0);
    for (int i = 0; i < 100001; i++) ck_assert_int_eq(p[i], 0);
    ok(t.ops->copy(t.b, p + 1, "abc", 3, &e), &e);
    ck_assert(!memcmp(p, "\0abc\0", 5));
    t.ops->free(t.b, p, 100001);
    ck_assert_ptr_null(t.ops->alloc(t.b, (size_t)1 << 60, &e));
    ck_assert_int_eq(e.code, E_INTERNAL);
    ck_assert_ptr_nonnull(strstr(e.text, "wanted"));
    ck_assert_ptr_nonnull(strstr(e.text, "free"));
    net_close(&t);
}
END_TEST

START_TEST(refusals)
{
    struct net t;
    struct err e = {0};
    struct be *b;
    struct be_kernel *k;
    struct be_call c = {.n = SAMPLES - 1};
    net_open(&t, _i ? "null" : "reference", false);
    ok(t.ops->prepare(t.b, &(struct be_key){0, PH_FWD, SAMPLES, true}, &k, &e), &e);
    ck_assert(t.ops->run(t.b, k, &c, &e) == -1 && e.code == E_INTERNAL);
    e = (struct err){0};
    t.s->dev.block = 16;
    if (!_i) ck_assert(t.ops->open(t.s, 1, 0, &b, &e) == -1 && e.code == E_DEVICE);
    t.s->dev.block = 1;
    net_close(&t);
}
END_TEST

/* ---- null -------------------------------------------------------------------------------------------------------- */

START_TEST(null_constants)
{
    struct net t;
    struct err e = {0};
    struct be_block b = {0};
    double sum = 5;
    float w = 3, g = 1;
    net_open(&t, "null", false);
    backend_run(&t, true, true, false);
    for (int i = 0; i < t.g->n_tensors; i++) {
        if (t.g->tensor[i].producer < 0) continue;
        bool f32 = t.g->tensor[i].type == F32;
        for (size_t k = 0; k < value_bytes(&t, i) / (f32 ? 4 : 8); k++)
            ck_assert(f32 ? ((float *)t.value[i])[k] == NULL_OUT : ((double *)t.value[i])[k] == NULL_OUT);
        for (size_t k = 0; f32 && k < value_bytes(&t, i) / 4; k++) ck_assert_float_eq(t.grad[i][k], NULL_GRAD);
    }
    for (int i = 0; i < t.g->n_params; i++)
        for (size_t k = 0; t.g->param[i].kind == PARAM_WEIGHT && k < param_bytes(&t, i) / sizeof(float); k++)
            ck_assert_float_eq(t.pgrad[i][k], NULL_GRAD);
    ok(t.ops->sumsq(t.b, &w, 1, &sum, &e) || t.ops->add(t.b, &w, &g, 1, &e) || t.ops->done(t.b, &e) != 1, &e);
    ok(t.ops->update(t.b, 0, &(struct be_weight){&w, &g, NULL, NULL, 1, 1, 1}, 1, &b, &e) ||
           t.ops->pack(t.b, 0, NULL, NULL, &e) || t.ops->copy(t.b, &w, &w, 0, &e),
       &e);
    ck_assert(w == 3 && sum == 0);
    const struct null_count *n = null_counts(t.b);
    ck_assert_uint_eq(n->run[PH_FWD], (uint64_t)t.s->n_groups);
    ck_assert_uint_eq(n->run[PH_BWD_WEIGHTS], 4);        /* three convolutions, one linear layer */
    ck_assert_uint_eq(n->run[PH_BWD_DATA], (uint64_t)t.s->n_groups - 1);   /* all but the first convolution */
    ck_assert_uint_eq(n->prepare, 2 * (n->run[0] + n->run[1] + n->run[2]));
    ck_assert(n->add == 1 && n->sumsq == 1 && n->update == 1 && n->pack == 1 && n->copy == 1 && n->done == 1);
    void *p = t.ops->alloc(t.b, 300, &e);
    ck_assert(n->alloc == 1 && n->bytes == 300);
    t.ops->free(t.b, p, 300);
    ck_assert(n->free == 1 && n->bytes == 0);
    net_close(&t);
}
END_TEST

int main(void)
{
    TCase *t = suite_case("backend", 60);
    tcase_add_test(t, tables);
    tcase_add_loop_test(t, reference_backward, 0, 8);
    tcase_add_loop_test(t, reference_evaluation, 0, 2);
    tcase_add_test(t, values);
    tcase_add_loop_test(t, memory, 0, 2);
    tcase_add_loop_test(t, refusals, 0, 2);
    tcase_add_test(t, null_constants);
    return suite_run("backend", CK_NOFORK, t);
}
