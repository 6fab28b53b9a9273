/* kernels [--bf16] [--peak] [--threads N] [MICRO-BATCH [STEPS [CONF]]]: what each kernel of a network costs where it
 * stands, in real steps on one rank; --peak: also as shares of what a core can do.
 *
 * For each group the least time of forward, input gradient and weight gradient, and their sums by operator. A kernel's
 * least time over all micro-batches of all steps is what it takes when nobody else has the core; the sum of them is the
 * step that a quiet machine would make, and it can be compared with the limit that bench/conv_limit finds the same way.
 * Without CONF: ResNet-50 on 3x128x128. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "base/mem.h"
#include "core_peak.h"
#include "exec/exec.h"
#include "model/graph.h"
#include "optim/optim.h"

static const char resnet50[] =
    "run { name = \"kernels\" seed = 1 }\n"
    "model { network = \"resnet50\" classes = 1000 input = {3, 128, 128} }\n"
    "data { source = \"synthetic\" labels = \"onehot\" }\n"
    "train { steps = 1 loss = \"mse\" optimizer = \"sgd\" learning_rate = 0.001 }\n";

enum { MICRO_BATCHES = 2 };                              /* a step; the second one adds to the gradients of the first */

struct sum { const char *name; int count; double flops, ns[PH_COUNT]; };
struct bench {
    int n, steps;
    bool half;
    double peak;                                         /* FLOP/ns of all threads; 0: not asked for */
    int threads;
    struct conf *conf;
    struct graph *g;
    struct selection *sel;
    struct placement *pl;
    struct plan *plan;
    struct tp *tp;
    struct ds *data;
    struct exec *exec;
    VEC(struct sum) sum;
};

static int conf_make(struct bench *b, const char *file, struct err *e)
{
    b->conf = file ? conf_load(file, e) : conf_parse("ResNet-50", resnet50, sizeof resnet50 - 1, e);
    if (!b->conf) return -1;
    char set[3][64];
    snprintf(set[0], sizeof set[0], "train.batch_size=%d", MICRO_BATCHES * b->n);
    snprintf(set[1], sizeof set[1], "train.split_size=%d", b->n);
    snprintf(set[2], sizeof set[2], "run.threads=%d", b->threads);
    for (int i = 0; i < 3; i++) if (conf_set(b->conf, "kernels", set[i], e)) return -1;
    return conf_finish(b->conf, e);
}

static int bench_open(struct bench *b, const char *file, struct err *e)
{
    const struct be_ops *be = be_find("onednn");
    struct device d;
    if (conf_make(b, file, e) || !(b->g = model_build(b->conf, e)) || be->describe(0, &d, e)) return -1;
    d.precision = b->half ? BFLOAT16 : FP32;
    d.winograd = b->conf->train.winograd;
    d.threads = b->threads;
    if (!(b->sel = select_make(b->g, &d, b->n, e))) return -1;
    struct placement_request place = {.sel = b->sel, .n_stages = 1, .mesh = {{1}},
                                      .first_group = (int[]){0, b->sel->n_groups}, .buffers = optim_buffers(b->conf)};
    if (!(b->pl = placement_make(&place, e))) return -1;
    struct plan_request p = {.mode = PLAN_TRAIN,
                             .schedule = "naive",
                             .batch = MICRO_BATCHES * b->n,
                             .split = b->n,
                             .backward = BACKWARD_AUTO,
                             .batch_norm = b->conf->train.batch_norm};
    if (!(b->plan = plan_make(b->sel, b->pl, &p, e)) || tp_local_open(1, &b->tp, e) ||
        ds_open(b->conf, DS_TRAIN, b->g, &b->data, e))
        return -1;
    struct exec_request q = {.conf = b->conf,
                              .sel = b->sel,
                              .pl = b->pl,
                              .plan = &b->plan,
                              .n_plans = 1,
                              .be = be,
                              .tp = b->tp,
                              .train = b->data};
    return exec_open(&q, &b->exec, e) || exec_bind(b->exec, e) ? -1 : 0;
}

static int steps_run(struct bench *b, double *optimizer_ns, struct err *e)
{
    int batch = MICRO_BATCHES * b->n, bad = 0;
    int64_t *id = mem_alloc((size_t)batch * sizeof *id);
    for (int i = 0; i < batch; i++) id[i] = i;
    for (int k = 0; k <= b->steps && !bad; k++) {
        if (k == 1) exec_profile(b->exec, b->steps * MICRO_BATCHES);   /* the first step only warms up */
        struct order o = {.kind = STEP_TRAIN, .step = (uint64_t)k + 1, .n = batch, .weight = batch,
                          .learning_rate = b->conf->train.learning_rate};
        struct report r;
        bad = exec_step(b->exec, &o, id, &r, e);
        if (k == 1 || (double)r.ns[ACC_OPTIMIZER] < *optimizer_ns) *optimizer_ns = (double)r.ns[ACC_OPTIMIZER];
    }
    free(id);
    return bad ? -1 : 0;
}

static const char *kind_of(const struct bench *b, const struct group *k)
{
    return k->pattern ? k->pattern->text : b->g->node[k->node[0]].op->name;
}

static struct sum *sum_of(struct bench *b, const char *name)
{
    for (int i = 0; i < b->sum.n; i++)
        if (strcmp(b->sum.v[i].name, name) == 0) return &b->sum.v[i];
    struct sum *s = vec_push(&b->sum);
    *s = (struct sum){.name = name};
    return s;
}

/* flops: of each phase. */
static void line_print(const struct bench *b, const char *name, const char *what, double flops, const double *ns)
{
    printf("%-34s %-24s", name, what);
    for (int ph = 0; ph < PH_COUNT; ph++) printf(" %9.3f", ns[ph] * 1e-6);
    for (int ph = 0; b->peak > 0 && flops > 0 && ph < PH_COUNT; ph++)
        printf(" %5.1f%%", ns[ph] > 0 ? 100 * flops / ns[ph] / b->peak : 0);
    printf("\n");
}

static double flops_of(const struct bench *b, const struct group *k)
{
    double sum = 0;
    for (int i = 0; i < k->n_nodes; i++) sum += (double)graph_flops(b->g, k->node[i]) * b->n;
    return sum;
}

static void result_print(struct bench *b, double optimizer_ns)
{
    double total = 0, all[PH_COUNT] = {0};
    printf("least milliseconds of a micro-batch of %d: forward, input gradient, weight gradient", b->n);
    if (b->peak > 0) printf("; and shares of %.0f GFLOP/s", b->peak);
    printf("\n");
    for (int g = 0; g < b->sel->n_groups; g++) {
        const struct group *k = &b->sel->group[g];
        struct sum *s = sum_of(b, kind_of(b, k));
        const double flops = flops_of(b, k);
        double ns[PH_COUNT];
        s->count++;
        s->flops += flops;
        for (int ph = 0; ph < PH_COUNT; ph++) {
            ns[ph] = exec_profile_best_ns(b->exec, 0, (enum phase)ph, g);
            s->ns[ph] += ns[ph];
            all[ph] += ns[ph];
            total += ns[ph];
        }
        line_print(b, b->g->node[k->node[0]].name, s->name, flops, ns);
    }
    for (int i = 0; i < b->sum.n; i++) {
        char count[24];
        snprintf(count, sizeof count, "all %d", b->sum.v[i].count);
        line_print(b, count, b->sum.v[i].name, b->sum.v[i].flops, b->sum.v[i].ns);
    }
    line_print(b, "all", "", 0, all);
    printf("optimizer %.3f ms a step\n", optimizer_ns * 1e-6);
    printf("kernels %.3f images/s\n", b->n / (total * 1e-9));
}

int main(int argc, char **argv)
{
    struct bench b = {.threads = 1};
    bool peak = false;
    for (; argc > 1 && argv[1][0] == '-'; argc--, argv++) {
        if (!strcmp(argv[1], "--bf16")) b.half = true;
        else if (!strcmp(argv[1], "--peak")) peak = true;
        else if (argc > 2 && !strcmp(argv[1], "--threads")) { b.threads = atoi(argv[2]); argc--; argv++; }
        else break;
    }
    if (peak) b.peak = b.threads * (b.half ? core_peak_bf16() : core_peak_fp32());
    b.n = argc > 1 ? atoi(argv[1]) : 20;
    b.steps = argc > 2 ? atoi(argv[2]) : 5;
    struct err e = {0};
    double optimizer_ns = 0;
    if (argc > 4 || b.n < 1 || b.steps < 1 || b.threads < 1) {
        fprintf(stderr, "usage: kernels [--bf16] [--peak] [--threads N] [MICRO-BATCH [STEPS [CONF]]]\n");
        return E_USAGE;
    }
    int bad = bench_open(&b, argc > 3 ? argv[3] : NULL, &e) || steps_run(&b, &optimizer_ns, &e);
    if (bad) fprintf(stderr, "kernels: %s\n", e.text);
    else result_print(&b, optimizer_ns);
    exec_close(b.exec);
    if (b.data) b.data->kind->close(b.data);
    if (b.tp) b.tp->ops->close(b.tp);
    plan_free(b.plan);
    placement_free(b.pl);
    select_free(b.sel);
    graph_free(b.g);
    conf_free(b.conf);
    vec_free(&b.sum);
    return bad ? e.code : 0;
}
