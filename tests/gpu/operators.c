/* operators: compares every operator of a backend with the reference kernels, on their own examples, on convolutions
 * and batch norms of many shapes and on the layers of ResNet-50, in each precision of the backend; and checks that
 * equal calls give equal bits.
 *
 * usage: operators --backend NAME [--precision fp32|tf32|bf16] [--limit X] [--table FILE] [--quick]
 *
 * Each kernel gets its own random inputs. The error is the distance in L2 norm relative to the norm of the reference's
 * result. Inputs that a precision rounds are rounded for the reference, too. Prints "operator phase precision error
 * limit cases worst-case" for the worst of each; status 1 if one exceeds its limit. A phase with + adds to the previous
 * contents, "over" writes a gradient over the one that is read. "again" and "replay" are 0 if a second run and a
 * recorded one give the same bits, else 1. --quick leaves ResNet-50 out. --table: ResNet-50's convolutions, and a small
 * one, by the measured kernels of that table (run.kernel_table). A missing table is measured first, with compiled
 * kernels. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "../op_graphs.h"
#include "base/out.h"
#include "base/rng.h"
#include "group.h"
#include "optim/optim.h"

/* ---- checks ---------------------------------------------------------------------------------- */

static void value_check(struct net *t, const char *phase, int i)
{
    int out = t->k->outs[i];
    if (t->g->tensor[out].type == F64) {                 /* losses: in double on both sides, from inputs in float */
        size_t n = count(t, out);
        double *x = malloc(n * 8 + 1), d = 0, norm = 0;
        move(t, x, t->outs[i], n * 8);
        for (size_t j = 0; j < n; j++) {
            double y = ((double *)t->value[out])[j];
            d += (x[j] - y) * (x[j] - y);
            norm += y * y;
        }
        note_error(t, phase, sqrt(d / norm));
        free(x);
        return;
    }
    float *x = get(t, out, t->outs[i]);
    note_error(t, phase, distance(x, t->value[out], NULL, count(t, out)));
    free(x);
}

/* What is in the memory of the group's results, to compare bits. */
static unsigned char *results(struct net *t, size_t *n)
{
    const struct group *k = t->k;
    size_t at = 0;
    for (int i = 0; i < k->n_out; i++) at += bytes(t, k->outs[i]);
    for (int i = 0; i < k->n_in; i++) at += bytes(t, k->in[i]);
    for (int i = 0; i < k->n_param; i++) at += pcount(t, k->param[i]) * 4;
    unsigned char *r = malloc(at + 1);
    at = 0;
    for (int i = 0; i < k->n_out; at += bytes(t, k->outs[i++])) move(t, r + at, t->outs[i], bytes(t, k->outs[i]));
    for (int i = 0; i < k->n_in; at += bytes(t, k->in[i++])) move(t, r + at, t->gin[i], bytes(t, k->in[i]));
    for (int i = 0; i < k->n_param; at += pcount(t, k->param[i++]) * 4)
        move(t, r + at, t->pg[i], pcount(t, k->param[i]) * 4);
    *n = at;
    return r;
}

static int all_phases(struct net *t, int how)
{
    return be_phase(t, PH_FWD, how) || (t->k->grad_in | t->k->pgrad_in_b ? be_phase(t, PH_BWD_DATA, how) : 0) ||
           (t->k->pgrad_in_w ? be_phase(t, PH_BWD_WEIGHTS, how) : 0);
}

static void bits_check(struct net *t)
{
    size_t n;
    for (int how = 0; how <= RECORD; how += RECORD) {
        if (how && !t->ops->capture_begin) return;
        if (all_phases(t, 0)) return;
        unsigned char *one = results(t, &n);
        for (int i = 0; i < t->k->n_out; i++) {          /* a run that does nothing is found */
            const int out = t->k->outs[i];
            memset(t->value[out], 0xff, count(t, out) * dtype_bytes(t->g->tensor[out].type));
            move(t, t->outs[i], t->value[out], bytes(t, out));
        }
        if (!all_phases(t, how)) {
            unsigned char *two = results(t, &n);
            note_same(t, how ? "replay" : "again", memcmp(one, two, n) == 0);
            free(two);
        }
        free(one);
    }
}

/* how: 0, ADD to gradients that hold random values, OVER the output's gradient. */
static void backward_check(struct net *t, int how)
{
    static const char *const data[] = {"data", "data+", "over"}, *const weights[] = {"weights", "weights+", "weights"};
    const struct group *k = t->k;
    struct err e = {0};
    float *before[MAX_IN] = {0}, *pbefore[MAX_PARAM] = {0};
    for (int i = 0; how != OVER && i < k->n_in; i++) {
        before[i] = calloc(count(t, k->in[i]) + 1, 8);
        bool adds = how == ADD && k->grad_in >> i & 1 && t->g->tensor[k->in[i]].n_readers > 1;
        if (adds) rng_fill_normal((struct rng_at){8, RNG_TEST, (uint32_t)k->in[i], 3}, before[i], count(t, k->in[i]));
        put(t, k->in[i], t->gin[i], before[i]);
    }
    for (int i = 0; i < k->n_param; i++) {
        pbefore[i] = calloc(pcount(t, k->param[i]) + 1, 8);
        if (t->g->param[k->param[i]].kind != PARAM_WEIGHT) continue;
        if (how == ADD)
            rng_fill_normal((struct rng_at){8, RNG_TEST, (uint32_t)k->param[i], 4}, pbefore[i], pcount(t, k->param[i]));
        if (t->ops->param_import(t->b, k->param[i], t->pg[i], pbefore[i], &e)) die("import", &e);
    }
    if (k->grad_in | k->pgrad_in_b && be_phase(t, PH_BWD_DATA, how)) goto out;
    for (int i = 0; i < k->n_in; i++) {
        if (!(k->grad_in >> i & 1)) continue;
        float *x = get(t, k->in[i], how == OVER && t->gin[i] == t->gin[k->grad_over] ? t->gouts[0] : t->gin[i]);
        note_error(t, data[how], distance(x, t->grad[k->in[i]], before[i], count(t, k->in[i])));
        free(x);
    }
    if (k->pgrad_in_w && be_phase(t, PH_BWD_WEIGHTS, how)) goto out;
    for (int i = 0; i < k->n_param; i++) {
        if (!((k->pgrad_in_b | k->pgrad_in_w) >> i & 1)) continue;
        float *x = malloc(pcount(t, k->param[i]) * 4 + 1);
        if (t->ops->param_export(t->b, k->param[i], x, t->pg[i], &e)) die("export", &e);
        note_error(t, weights[how], distance(x, t->pgrad[k->param[i]], pbefore[i], pcount(t, k->param[i])));
        free(x);
    }
out:
    for (int i = 0; i < k->n_in; i++) free(before[i]);
    for (int i = 0; i < k->n_param; i++) free(pbefore[i]);
}

/* Running statistics from two micro-batches, the second with its values doubled. */
static void stats_check(struct net *t)
{
    const struct node *n = &t->g->node[t->k->node[0]];
    size_t host = n->op->saved_bytes(t->g, n, t->n), x = count(t, n->in[0]);
    struct err e = {0};
    int ns[2] = {t->n, t->n};
    void *kept[2] = {t->kept, memory(t, group_saved(t->k, t->n))}, *ref[2] = {malloc(host), malloc(host)};
    for (int mb = 0; mb < 2; mb++) {
        for (size_t i = 0; mb && i < x; i++) ((float *)t->value[n->in[0]])[i] *= 2;
        put(t, n->in[0], t->in[0], t->value[n->in[0]]);
        t->kept = kept[mb];
        ref_forward(t);
        memcpy(ref[mb], t->saved[t->k->node[0]], host);
        if (be_phase(t, PH_FWD, 0)) goto out;
    }
    for (int m = 0; m < 2; m++) {
        void *param[MAX_PARAM];
        for (int i = 0; i < t->k->n_param; i++) param[i] = t->param[t->k->param[i]];
        n->op->stats(&(struct op_stats){t->g, n, m, 2, (const void *const *)ref, ns, param});
        struct be_running one = {.group = t->group};
        for (int i = 0; i < t->k->n_param; i++) one.param[i] = t->p[i];
        const struct be_stats all = {&one, 1, m, 2, ns, (const void *const *)kept};
        if (t->ops->stats(t->b, &all, &e)) die("stats", &e);
        wait_done(t);
        for (int i = 0; i < t->k->n_param; i++) {
            const struct param *q = &t->g->param[t->k->param[i]];
            size_t size = pcount(t, t->k->param[i]);
            if (q->kind == PARAM_WEIGHT) continue;
            void *got = calloc(size + 1, 8);
            if (t->ops->param_export(t->b, t->k->param[i], got, t->p[i], &e)) die("export", &e);
            if (q->kind == PARAM_STAT) note_error(t, "stats", distance(got, param[i], NULL, size));
            else note_same(t, "counter", memcmp(got, param[i], size * 8) == 0);
            free(got);
        }
    }
out:
    free(ref[0]);
    free(ref[1]);
}

static void group_check(struct net *t, int group, const char *name)
{
    const struct group *k = &t->s->group[group];
    const struct op_kind *op = t->g->node[k->node[0]].op;
    snprintf(t->op, sizeof t->op, "%s%s", op->name, k->pattern ? strchr(k->pattern->text, '+') : "");
    snprintf(t->text, sizeof t->text, "%s of %s, %d samples", t->g->node[k->node[0]].name, name, t->n);
    group_open(t, group);
    if (op->saved_bytes || !strcmp(op->name, "dropout")) {   /* evaluating differs from training */
        t->train = false;
        ref_forward(t);
        bool bad = be_phase(t, PH_FWD, 0);
        for (int i = 0; !bad && i < k->n_out; i++) value_check(t, "evaluate", i);
        t->train = true;
    }
    ref_forward(t);
    if (!be_phase(t, PH_FWD, 0)) {
        for (int i = 0; i < k->n_out; i++) value_check(t, "forward", i);
        ref_backward(t);
        backward_check(t, 0);
        backward_check(t, ADD);
        bits_check(t);
        if (k->grad_over >= 0 && k->grad_in >> k->grad_over & 1) backward_check(t, OVER);
        if (k->has_stats) stats_check(t);
    }
    group_close(t);
}

/* ---- networks -------------------------------------------------------------------------------- */

static const char *table_file;                           /* --table */

/* What was measured before, and what the graph needs beside. */
static void table_measure(const struct graph *g, const struct device *d, int n, struct text *table)
{
    enum { MAX_TABLE = 1 << 26 };
    struct err e = {0};
    struct device any = *d;
    any.kernels = NULL;
    any.try_compiled = true;
    if (text_read_file(table, table_file, MAX_TABLE, &e)) text_free(table);
    size_t before = table->n;
    struct selection *s = select_make(g, &any, n, &e);
    if (!s || be_find(d->backend)->tune(s, 0, &n, 1, table, &e)) die(g->name, &e);
    if (table->n != before && out_file_named(table_file, table, false, &e)) die(g->name, &e);
    select_free(s);
}

static int lines_with(const char *s, const char *word)
{
    int n = 0;
    for (; (s = strstr(s, word)); s++) n++;
    return n;
}

/* As if layers with weights came before; not of one tensor. */
static void grads_wanted(struct graph *g, int but)
{
    for (int i = 0; i < g->n_tensors; i++)
        if (g->tensor[i].type == F32 && !graph_input_is(g, i, ROLE_TARGET) && i != but) g->tensor[i].needs_grad = true;
}

static void net_open(struct net *t, struct graph *g, const struct device *d, int n)
{
    struct err e = {0};
    *t = (struct net){.ops = be_find(d->backend), .dev = *d, .g = g, .n = n};
    if (strcmp(g->name, "resnet50") != 0) grads_wanted(g, -1);
    if (!(t->s = select_make(g, d, n, &e)) || t->ops->open(t->s, 1, 0, &t->b, &e)) die(g->name, &e);
    t->block = (struct be_block){.inv_weight = 1.0 / 8, .seed = 5, .step = 3, .update = 3, .clip_coef = 1};
    for (int i = 0; i < 64; i++) t->sample[i] = 100 + 3 * i;
    t->value = calloc((size_t)g->n_tensors + 1, sizeof(void *));
    t->grad = calloc((size_t)g->n_tensors + 1, sizeof(void *));
    t->param = calloc((size_t)g->n_params + 1, sizeof(void *));
    t->pgrad = calloc((size_t)g->n_params + 1, sizeof(void *));
    t->saved = calloc((size_t)g->n_nodes + 1, sizeof(void *));
}

static void net_close(struct net *t)
{
    free(t->value); free(t->grad); free(t->param); free(t->pgrad); free(t->saved);
    vec_free(&t->piece);
    t->ops->close(t->b);
    select_free(t->s);
    graph_free(t->g);
}

/* Loading and looking at values: what a backend makes of an input must be what its kernels read. */
static void import_check(struct net *t)
{
    struct err e = {0};
    int i = graph_input_first(t->g, ROLE_SAMPLE);
    size_t n = count(t, i);
    t->k = &t->s->group[0];
    snprintf(t->op, sizeof t->op, "import");
    snprintf(t->text, sizeof t->text, "%s", t->g->name);
    value_make(t, i);
    void *at = memory(t, bytes(t, i)), *ours = memory(t, bytes(t, i));
    put(t, i, ours, t->value[i]);
    if (t->ops->tensor_import(t->b, i, t->n, at, t->value[i], &e)) die("import", &e);
    wait_done(t);
    unsigned char *x = malloc(bytes(t, i)), *y = malloc(bytes(t, i));
    move(t, x, at, bytes(t, i));
    move(t, y, ours, bytes(t, i));
    note_same(t, "layout", memcmp(x, y, bytes(t, i)) == 0);
    float *back = malloc(n * 4);
    if (t->ops->tensor_export(t->b, i, t->n, back, at, &e)) die("export", &e);
    note_same(t, "back", memcmp(back, t->value[i], n * 4) == 0);
    free(x); free(y); free(back);
    group_close(t);
}

static void chain_check(const char *text, const struct device *d, int n)
{
    struct net t;
    net_open(&t, op_graph_chain(text), d, n);
    import_check(&t);
    for (int i = 0; i < t.s->n_groups; i++) group_check(&t, i, text);
    net_close(&t);
}

/* A convolution whose weight gradients are added to, by measured kernels where a table is asked for. */
static void tabled_check(const struct device *d)
{
    static const char chain[] = "16x8x8; conv channels=32 kernel=3 padding=1 bias=no; relu";
    struct text table = {0};
    struct device by = *d;
    if (!table_file) return;
    table_measure(op_graph_chain(chain), d, 4, &table);
    by.kernels = table.s;
    chain_check(chain, &by, 4);
    text_free(&table);
}

enum { MAX_SEEN = 128 };

/* Layers of ResNet-50 for images of 64 x 64; those that differ in name only, once. */
static void resnet_check(const struct device *d)
{
    static const char conf[] = "model { network = \"resnet50\"  classes = 1000  input = {3, 64, 64} }\n"
                               "data { source = \"synthetic\"  labels = \"class\" }\ntrain { loss = \"cross_entropy\"  "
                               "batch_size = 4  steps = 1 }\n";
    static char seen[MAX_SEEN][400];
    int n_seen = 0;
    struct err e = {0};
    struct net t;
    struct conf *c = conf_parse("resnet50", conf, strlen(conf), &e);
    struct graph *g = c && !conf_finish(c, &e) ? model_build(c, &e) : NULL;
    if (!g) die("resnet50", &e);
    conf_free(c);
    struct text table = {0};
    struct device by = *d;
    grads_wanted(g, graph_input_first(g, ROLE_SAMPLE)); /* a first layer may be another kernel than those behind */
    if (table_file) table_measure(g, d, 4, &table), by.kernels = table.s;
    if (table_file) printf("# %d measured kernels, %d of them add to weight gradients by themselves\n",
                           lines_with(table.s, "\n") - 1, lines_with(table.s, ": add "));
    net_open(&t, g, &by, 4);
    for (int i = 0; i < t.s->n_groups; i++) {
        const struct group *k = &t.s->group[i];
        const struct node *n = &g->node[k->node[0]];
        char shape[96], key[400];
        int at = snprintf(key, sizeof key, "%s %d %s %d", n->op->name, k->n_nodes,
                          shape_text(&g->tensor[k->in[0]].shape, shape), g->tensor[k->in[0]].n_readers);
        at += snprintf(key + at, sizeof key - (size_t)at, " %s", shape_text(&g->tensor[k->out].shape, shape));
        for (int p = 0; p < k->n_param && p < 1; p++)
            snprintf(key + at, sizeof key - (size_t)at, " %s", shape_text(&g->param[k->param[p]].shape, shape));
        int s = 0;
        while (s < n_seen && strcmp(seen[s], key) != 0) s++;
        if (s < n_seen || n_seen == MAX_SEEN) continue;
        memcpy(seen[n_seen++], key, sizeof key);
        group_check(&t, i, "resnet50");
    }
    net_close(&t);
    text_free(&table);
}

/* Every optimizer, against optim/optim.c: in float whatever the precision. */
static void optimizer_check(const struct device *d, int optimizer)
{
    enum { N = 100032, PARTS = 3, STEPS = 3 };
    static const size_t from[PARTS + 1] = {0, 64, 4160, N};
    static const struct conf c = {.train = {.momentum = 0.9, .nesterov = true, .weight_decay = 0.01, .beta1 = 0.9,
                                            .beta2 = 0.999, .epsilon = 1e-8}};
    const struct optim_kind *kind = optim_list[optimizer];
    struct net t;
    struct err e = {0};
    struct be_weight w[PARTS], ours[PARTS];
    struct conf of = c;
    of.train.optimizer = (enum optimizer_word)(1 + optim_find(kind->name));
    net_open(&t, op_graph_chain("16x2x2; relu"), d, 1);
    t.block = (struct be_block){.learning_rate = 0.1, .clip_coef = 0.5, .inv_weight = 1};
    optim_hyper(&of, t.block.hyper);
    snprintf(t.op, sizeof t.op, "%s", kind->name);
    snprintf(t.text, sizeof t.text, "%d weights in %d tensors", N, PARTS);
    enum { ALL = 2 + MAX_STATE };                        /* weights, gradients, state of each part */
    double *sums = memory(&t, optim_sums(N) * PARTS * sizeof *sums), *our_sums = calloc(optim_sums(N), sizeof *sums);
    float *x = calloc((size_t)ALL * N, sizeof *x), *at = memory(&t, (size_t)ALL * N * sizeof *x);
    rng_fill_normal((struct rng_at){7, RNG_TEST, 0, 5}, x, 2 * N);
    move(&t, at, x, (size_t)ALL * N * sizeof *x);
    struct be_block *block = memory(&t, sizeof t.block);
    for (int i = 0; i < PARTS; i++) {
        size_t n = from[i + 1] - from[i], state = 2 * (size_t)N + MAX_STATE * from[i];
        w[i] = (struct be_weight){at + from[i], at + N + from[i], at + state, NULL, n, 1 + i, i, NULL,
                                  sums + (size_t)i * optim_sums(N)};
        ours[i] = (struct be_weight){x + from[i], x + N + from[i], x + state, NULL, n, 1 + i, i, NULL, our_sums};
    }
    for (t.block.step = 1; t.block.step <= STEPS; t.block.step++) {
        t.block.update = t.block.step;
        kind->once(&t.block);
        move(&t, block, &t.block, sizeof t.block);
        if (t.ops->update(t.b, optimizer, w, PARTS, block, &e)) die("update", &e);
        wait_done(&t);
        for (int i = 0; i < PARTS; i++) kind->update(&ours[i], &t.block);
    }
    float *got = malloc(N * sizeof *got);
    move(&t, got, at, N * sizeof *got);
    note_error(&t, "update", distance(got, x, NULL, N));
    memory_free(&t);
    free(x);
    free(our_sums);
    free(got);
    net_close(&t);
}

/* Sums over parameters: in float whatever the precision. */
static void sums_check(const struct device *d)
{
    enum { N = 100003 };
    struct net t;
    struct err e = {0};
    net_open(&t, op_graph_chain("16x2x2; relu"), d, 1);
    snprintf(t.op, sizeof t.op, "sums");
    snprintf(t.text, sizeof t.text, "%d numbers", N);
    float *x[2], *at[2], *got = malloc(N * sizeof *got);
    for (int i = 0; i < 2; i++) {
        x[i] = calloc(N, sizeof(float));
        at[i] = memory(&t, N * sizeof(float));
        rng_fill_normal((struct rng_at){7, RNG_TEST, (uint32_t)i, 5}, x[i], N);
        move(&t, at[i], x[i], N * sizeof(float));
    }
    double *sum_at = memory(&t, sizeof *sum_at), sum, want = 0;
    for (int i = 0; i < N; i++) want += (double)x[1][i] * x[1][i];
    if (t.ops->sumsq(t.b, at[1], N, sum_at, &e)) die("sumsq", &e);
    wait_done(&t);
    move(&t, &sum, sum_at, sizeof sum);
    note_error(&t, "sumsq", fabs(sum - want) / want);
    for (int i = 0; i < N; i++) x[0][i] += x[1][i];
    if (t.ops->add(t.b, at[0], at[1], N, &e)) die("add", &e);
    wait_done(&t);
    move(&t, got, at[0], N * sizeof *got);
    note_same(&t, "add", memcmp(got, x[0], N * sizeof *got) == 0);
    memory_free(&t);
    for (int i = 0; i < 2; i++) free(x[i]);
    free(got);
    net_close(&t);
}

static void precision_check(const struct device *d, bool quick)
{
    for (int i = 0; op_list[i]; i++)
        for (const char *const *s = op_list[i]->examples; s && *s; s++) {
            struct net t;
            net_open(&t, op_graph_example(op_list[i], *s), d, 3);
            group_check(&t, 0, *s);
            net_close(&t);
        }
    for (int i = 0; i < OP_GRAPH_CONVS; i++) chain_check(op_graph_convs[i], d, 1 + i % 4);
    for (int i = 0; i < OP_GRAPH_NORMS; i++) chain_check(op_graph_norms[i], d, 4);
    for (int i = 0; optim_list[i]; i++) optimizer_check(d, i);
    sums_check(d);
    tabled_check(d);
    if (!quick) resnet_check(d);
}

int main(int argc, char **argv)
{
    struct err e = {0};
    struct device d;
    const char *backend = NULL, *precision = NULL;
    bool quick = false, bad = false, ran = false;
    for (int i = 1; i < argc; i++) {
        if (!strcmp(argv[i], "--quick")) quick = true;
        else if (!strcmp(argv[i], "--backend") && i + 1 < argc) backend = argv[++i];
        else if (!strcmp(argv[i], "--precision") && i + 1 < argc) precision = argv[++i];
        else if (!strcmp(argv[i], "--limit") && i + 1 < argc) limit_given = atof(argv[++i]);
        else if (!strcmp(argv[i], "--table") && i + 1 < argc) table_file = argv[++i];
        else backend = NULL, i = argc;
    }
    if (!backend || !be_find(backend) || (table_file && !be_find(backend)->tune)) {
        fprintf(stderr, "usage: operators --backend NAME [--precision fp32|tf32|bf16] [--limit X] [--table FILE] "
                        "[--quick]\n");
        return E_USAGE;
    }
    if (be_find(backend)->describe(0, &d, &e)) die(backend, &e);
    printf("# %s, %s, %s\n", d.backend, d.isa, d.library);
    for (int p = 0; p < PRECISIONS; p++) {
        if (!d.precise[p] || (precision && strcmp(precision, precision_name[p]) != 0)) continue;
        d.precision = (enum precision)p;
        precision_check(&d, quick);
        ran = true;
    }
    bad = results_print();
    if (!ran) fprintf(stderr, "operators: backend %s does not have this precision\n", backend);
    return bad || !ran;
}
