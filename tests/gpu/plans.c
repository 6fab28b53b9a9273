/* plans: makes every kernel plan that networks need on a GPU, with the libraries themselves, on a machine that needs no
 * GPU.
 *
 *   plans [--device N | --described FILE.json] [--print] [--measure] [[--sizes N,N,...] CONF [KEY=VALUE...]]...
 *
 * For each configuration, arithmetic and micro-batch size it plans all passes of all convolutions, transposed ones,
 * linear layers and, in bf16, cuDNN's attention, once for each shape. A shape without a plan fails the run, and so does
 * an operator without a kernel.
 * --sizes: for the configurations that follow. --print: the plans. --measure (on a device): times the candidates and
 * prints the kernel table instead. Reports in TAP. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "backend/cuda/dnn.h"
#include "backend/rules.h"
#include "base/clock.h"
#include "conf/conf.h"
#include "model/graph.h"
#include "model/op.h"
#include "model/ops/attention.h"
#include "model/ops/window.h"
#include "plan/kernel_row.h"
#include "plan/select.h"

enum { MAX_WORK = 256 << 20, MAX_SIZES = 16 };
static const enum precision precision[] = {[DNN_F32] = FP32, [DNN_TF32] = TF32, [DNN_BF16] = BFLOAT16};
static const char *const type_name[] = {[DNN_F32] = "fp32", [DNN_TF32] = "tf32", [DNN_BF16] = "bf16"};

struct run {
    struct dnn *dnn;
    bool print, measure;
    int size[MAX_SIZES], n_sizes;
    VEC(struct dnn_conv) seen[2];                        /* of one configuration, arithmetic and size; [transposed] */
    VEC(struct dnn_linear) seen_linear;
    int n_made, n_failed, n_apart, n_tests, n_bad;       /* apart: input gradients that no engine adds by itself */
    struct text table;
};

static void report(struct run *r, bool good, const char *what)
{
    r->n_tests++;
    r->n_bad += !good;
    printf("%sok %d - %s\n", good ? "" : "not ", r->n_tests, what);
    fflush(stdout);
}

/* Counts a plan; true: it was made. */
static bool counted(struct run *r, int bad, const struct err *e)
{
    r->n_failed += bad != 0;
    r->n_made += bad == 0;
    if (bad) printf("# no plan: %s\n", e->text);
    return !bad;
}

static void planned(struct run *r, int bad, const struct dnn_plan *p, const struct err *e)
{
    struct text line = {0};
    if (!counted(r, bad, e)) return;
    dnn_plan_text(p, &line);
    r->n_apart += strstr(line.s, " data+ ") && strstr(line.s, "cuDNN apart");
    if (r->print) printf("# %s\n", line.s);
    text_free(&line);
}

/* turned: a transposed convolution, whose own forward pass is the input gradient, and the other way round. */
static void conv_passes(struct run *r, const struct dnn_conv *c, bool data, bool turned)
{
    const enum dnn_pass forward = turned ? DNN_DATA : DNN_FORWARD, back = turned ? DNN_FORWARD : DNN_DATA;
    for (int pass = DNN_FORWARD; pass <= DNN_WEIGHTS; pass++) {
        for (int acc = 0; acc <= (pass != (int)forward); acc++) {
            struct dnn_plan *p = NULL;
            struct err e = {0};
            if (pass == (int)back && !data) continue;
            int bad = r->measure ? dnn_measure(r->dnn, c, &(struct dnn_ask){pass, acc, MAX_WORK}, false, &r->table, &e)
                                 : dnn_conv_plan(r->dnn, c, &(struct dnn_ask){pass, acc, MAX_WORK}, &p, &e);
            if (!r->measure || bad) planned(r, bad, p, &e);
        }
    }
}

static void conv_visit(struct run *r, const struct selection *s, const struct node *n, enum dnn_type type, int samples)
{
    const struct graph *g = s->g;
    const bool turned = n->op->category == OP_CONV_TRANSPOSED;
    const int from = select_channels(s, n->in[0]), to = (int)g->tensor[n->out].shape.d[0];
    struct window w;
    struct err e = {0};
    if (window_of_product(n, &g->tensor[n->in[0]].shape, &w, &e)) {
        planned(r, -1, NULL, &e);
        return;
    }
    struct dnn_conv c;
    memset(&c, 0, sizeof c);
    c.type = type;
    c.n = samples;
    c.c_in = turned ? to : from;
    c.c_out = turned ? from : to;
    c.groups = (int)n->attr[op_attr(n->op, "groups")].i[0];
    for (int i = 0; i < 3; i++) {
        c.in[i] = (int)w.in[i]; c.out[i] = (int)w.out[i]; c.kernel[i] = (int)w.k[i];
        c.stride[i] = (int)w.s[i]; c.pad[i] = (int)w.p[i]; c.dilation[i] = (int)w.d[i];
    }
    for (int i = 0; i < r->seen[turned].n; i++)
        if (memcmp(&r->seen[turned].v[i], &c, sizeof c) == 0) return;
    *vec_push(&r->seen[turned]) = c;
    conv_passes(r, &c, g->tensor[n->in[0]].needs_grad, turned);
}

static void linear_visit(struct run *r, const struct graph *g, const struct node *n, enum dnn_type type, int samples)
{
    struct dnn_linear l;
    memset(&l, 0, sizeof l);
    l.type = type;
    const struct shape *out = &g->tensor[n->out].shape;
    l.n = samples * (int)(shape_count(out) / out->d[0]);
    l.in = (int)g->tensor[n->in[0]].shape.d[0];
    l.out = (int)out->d[0];
    l.bias = n->n_param > 1;
    for (int i = 0; i < r->seen_linear.n; i++)
        if (memcmp(&r->seen_linear.v[i], &l, sizeof l) == 0) return;
    *vec_push(&r->seen_linear) = l;
    for (int pass = DNN_FORWARD; pass <= DNN_WEIGHTS && !r->measure; pass++) {
        for (int acc = 0; acc <= (pass != DNN_FORWARD); acc++) {
            struct dnn_plan *p = NULL;
            struct err e = {0};
            int bad = dnn_linear_plan(r->dnn, &l, &(struct dnn_ask){pass, acc, MAX_WORK}, &p, &e);
            planned(r, bad, p, &e);
        }
    }
}

/* Only where the selection takes the library. */
static void attention_visit(struct run *r, const struct selection *s, int node, int samples)
{
    const struct kernel_row *row = s->group[s->group_of[node]].row[PH_FWD];
    if (!row || strcmp(row->name, "cuDNN") != 0) return;
    const struct attention a = attention_of(s->g, &s->g->node[node], samples);
    const int q = (int)(a.heads * a.width), kv = (int)(a.kv_heads * a.width);
    const struct dnn_attention of = {samples, (int)a.points, (int)a.heads, (int)a.kv_heads, (int)a.width, a.causal,
                                     (float)a.scale, a.apart ? q : 3 * q, a.apart ? kv : 3 * q};
    for (int back = 0; back < 2; back++) {
        struct dnn_attention_plan *p;
        struct text line = {0};
        struct err e = {0};
        if (!counted(r, dnn_attention_plan(r->dnn, &of, back, dnn_attention_work(&of, back), &p, &e), &e)) continue;
        dnn_attention_text(p, &line);
        if (r->print) printf("# %s\n", line.s);
        text_free(&line);
    }
}

static void graph_visit(struct run *r, const char *name, const struct graph *g)
{
    for (int type = DNN_F32; type <= DNN_BF16; type++) {
        uint64_t from = clock_ns();
        char what[200];
        struct err e = {0};
        struct device gpu = {.rules = &cuda_rules, .block = 1, .precision = precision[type]};
        struct selection *s = select_make(g, &gpu, 1, &e);
        r->n_made = r->n_failed = r->n_apart = 0;
        if (!s) planned(r, -1, NULL, &e);
        for (int i = 0; s && i < r->n_sizes; i++) {
            r->seen[0].n = r->seen[1].n = r->seen_linear.n = 0;
            for (int j = 0; j < g->n_nodes; j++) {
                const struct node *n = &g->node[j];
                if (op_has_windows(n->op)) conv_visit(r, s, n, type, r->size[i]);
                if (strcmp(n->op->name, "linear") == 0) linear_visit(r, g, n, type, r->size[i]);
                if (strcmp(n->op->name, "attention") == 0 && !r->measure) attention_visit(r, s, j, r->size[i]);
            }
        }
        if (s) select_free(s);
        snprintf(what, sizeof what, "%s, %s: %d plans, %d without, %d input gradients added apart (%.1f s)",
                 name, type_name[type], r->n_made, r->n_failed, r->n_apart, (double)(clock_ns() - from) / 1e9);
        report(r, r->n_failed == 0 && r->n_apart == 0 && (r->n_made > 0 || r->measure), what);
    }
}

/* A configuration and the overrides behind it; returns how many arguments that were, -1: e. */
static int conf_visit(struct run *r, char **arg, int n, struct err *e)
{
    struct conf *c = conf_load(arg[0], e);
    struct text name = {0};
    int used = 1, bad = c == NULL;
    text_add(&name, "%s", arg[0]);
    for (; used < n && !bad && strchr(arg[used], '='); used++) {
        bad = conf_set(c, "argument", arg[used], e);
        text_add(&name, " %s", arg[used]);
    }
    struct graph *g = !bad && !conf_finish(c, e) ? model_build(c, e) : NULL;
    if (g) graph_visit(r, name.s, g);
    if (g) graph_free(g);
    if (c) conf_free(c);
    text_free(&name);
    return g ? used : -1;
}

/* ---- the planner itself -------------------------------------------------------------------------------- */

static const struct dnn_conv plain = {.type = DNN_BF16, .n = 4, .c_in = 64, .c_out = 64, .groups = 1,
                                      .in = {1, 32, 32}, .out = {1, 32, 32}, .kernel = {1, 3, 3},
                                      .stride = {1, 1, 1}, .pad = {0, 1, 1}, .dilation = {1, 1, 1}};

/* The library says of its device what could be given to it again. */
static void described(struct run *r)
{
    struct err e = {0};
    char *json = dnn_properties(r->dnn, &e);
    bool told = json && strstr(json, "\"deviceName\"") && strstr(json, "\"multiProcessorCount\"");
    if (!told) printf("# %s\n", json ? json : e.text);
    report(r, told, "the device is described");
    free(json);
}

/* What cannot be is said, with its key and the library's reason. */
static void impossible(struct run *r)
{
    struct dnn_conv c = plain;
    struct dnn_plan *p;
    struct err e = {0}, none = {0};
    c.out[1] = 31;
    const struct dnn_ask forward = {DNN_FORWARD, false, MAX_WORK}, little = {DNN_WEIGHTS, true, 1000};
    bool refused = dnn_conv_plan(r->dnn, &c, &forward, &p, &e) && e.code == E_DEVICE &&
                   strstr(e.text, "bf16 forward n4 c64>64") && strstr(e.text, "cuDNN");
    if (!refused) printf("# %s\n", e.text);
    report(r, refused, "a convolution whose output has another size has no plan");
    c = plain;
    c.groups = 4;
    refused = dnn_conv_plan(r->dnn, &c, &little, &p, &none) && strstr(none.text, "workspace");
    if (!refused) printf("# %s\n", none.text);
    report(r, refused, "what needs more workspace than there is has no plan");
}

/* "KEY: cuDNN FORM ENGINE, notes; ..." -> "KEY: FORM ENGINE" */
static void table_line(const struct text *plan, struct text *line)
{
    const char *at = strstr(plan->s, ": cuDNN ");
    if (!at) return;
    text_add_bytes(line, plan->s, (size_t)(at - plan->s));
    at += strlen(": cuDNN ");
    text_add(line, ": %.*s\n", (int)strcspn(at, ",;"), at);
}

static int table_plan(const struct run *r, const char *properties, int device, const char *table,
                      const struct dnn_conv *c, enum dnn_pass pass, bool acc, struct text *out, struct err *e)
{
    struct dnn *d;
    struct dnn_plan *p;
    if (dnn_open(device, properties, NULL, table, &d, e)) return -1;
    int bad = dnn_conv_plan(d, c, &(struct dnn_ask){pass, acc, MAX_WORK}, &p, e);
    if (!bad) dnn_plan_text(p, out);
    dnn_close(d);
    return bad;
}

/* A plan's own name in a kernel table gives that plan again; a wrong name is an error; sums within the graph are had
 * by name. */
static void named(struct run *r, const char *properties, int device)
{
    struct text before = {0}, line = {0}, after = {0}, sum = {0}, add = {0};
    dnn_table_head(r->dnn, &line);
    size_t head = line.n;
    struct err e = {0}, wrong = {0};
    bool same = table_plan(r, properties, device, NULL, &plain, DNN_FORWARD, false, &before, &e) == 0;
    if (same) table_line(&before, &line);
    same = same && line.n > head && table_plan(r, properties, device, line.s, &plain, DNN_FORWARD, false, &after,
                                               &e) == 0;
    same = same && strstr(after.s, "by kernel table") && strcspn(after.s, ";") == strcspn(before.s, ";") &&
           memcmp(after.s, before.s, strcspn(after.s, ";")) == 0;
    if (!same) printf("# %s / %s / %s\n", before.n ? before.s : "", after.n ? after.s : "", e.text);
    report(r, same, "the kernel table's engine is taken");
    text_add(&add, "%.*s: plain 9999\n", (int)strcspn(line.s, ":"), line.s);
    bool refused = table_plan(r, properties, device, add.s, &plain, DNN_FORWARD, false, &sum, &wrong) &&
                   strstr(wrong.text, "kernel table");
    report(r, refused, "an engine that does not exist is refused");
    text_free(&before); text_free(&line); text_free(&after); text_free(&sum); text_free(&add);
}

static void compiled(struct run *r, const char *properties, int device)
{
    struct text line = {0}, out = {0};
    struct err e = {0};
    struct dnn_conv deep = plain;
    dnn_table_head(r->dnn, &line);
    text_add(&line, "bf16 weights+ n4 c64>64/1 1x32x32>1x32x32 k1x3x3 s1x1x1 p0x1x1 d1x1x1: add 1\n");
    bool made = table_plan(r, properties, device, line.s, &plain, DNN_WEIGHTS, true, &out, &e) == 0 &&
                strstr(out.s, "cuDNN add 1");
    if (!made) printf("# %s%s\n", out.n ? out.s : "", e.text);
    report(r, made, "a weight gradient that is added in float within the graph");
    text_free(&out);
    deep.groups = deep.c_in;
    made = table_plan(r, properties, device, NULL, &deep, DNN_FORWARD, false, &out, &e) == 0;
    if (!made) printf("# %s\n", e.text);
    report(r, made, "a convolution of each channel alone");
    text_free(&out);
    made = table_plan(r, properties, device, NULL, &deep, DNN_DATA, true, &out, &e) == 0 &&
           strstr(out.s, "cuDNN plain");
    if (!made) printf("# %s%s\n", out.n ? out.s : "", e.text);
    report(r, made, "its input gradient, added to");
    text_free(&line); text_free(&out);
}

/* ---- main ---------------------------------------------------------------------------------------------- */

static int usage(void)
{
    fprintf(stderr, "usage: plans [--device N | --described FILE.json] [--print] [--measure]\n"
                    "             [[--sizes N,N,...] CONF [KEY=VALUE...]]...\n");
    return E_USAGE;
}

static bool sizes_read(struct run *r, const char *s)
{
    for (r->n_sizes = 0; r->n_sizes < MAX_SIZES; s++) {
        char *end;
        long n = strtol(s, &end, 10);
        if (end == s || n < 1 || n > 1 << 20) return false;
        r->size[r->n_sizes++] = (int)n;
        if (!*(s = end)) return true;
        if (*s != ',') return false;
    }
    return false;
}

static int fail(const struct err *e)
{
    fprintf(stderr, "plans: %s\n", e->text);
    return e->code;
}

int main(int argc, char **argv)
{
    struct run r = {.size = {1, 5, 20, 120}, .n_sizes = 4};
    struct text properties = {0}, versions = {0}, beside = {0};
    struct err e = {0};
    const char *file = NULL;
    int device = -1, i = 1;
    for (; i < argc && strncmp(argv[i], "--", 2) == 0; i++) {
        bool more = i + 1 < argc;
        if (strcmp(argv[i], "--print") == 0) r.print = true;
        else if (strcmp(argv[i], "--measure") == 0) r.measure = true;
        else if (strcmp(argv[i], "--device") == 0 && more) device = atoi(argv[++i]);
        else if (strcmp(argv[i], "--described") == 0 && more) file = argv[++i];
        else if (strcmp(argv[i], "--sizes") == 0 && more && sizes_read(&r, argv[i + 1])) i++;
        else return usage();
    }
    if (file && text_read_file(&properties, file, 1 << 16, &e)) return fail(&e);
    if (i == argc || (device < 0) != (properties.n > 0)) return usage();
    if (dnn_open(device, properties.s, NULL, NULL, &r.dnn, &e)) return fail(&e);
    dnn_versions(&versions, &beside);
    printf("# %s, %s\n", versions.s, beside.s);
    while (i < argc) {
        if (!strcmp(argv[i], "--sizes") && i + 2 < argc && sizes_read(&r, argv[i + 1])) {
            i += 2;
            continue;
        }
        int used = conf_visit(&r, argv + i, argc - i, &e);
        if (used < 0) return fail(&e);
        i += used;
    }
    if (r.measure) printf("%s", r.table.n ? r.table.s : "");
    else {
        described(&r);
        impossible(&r);
        named(&r, properties.s, device);
        compiled(&r, properties.s, device);
    }
    printf("1..%d\n", r.n_tests);
    dnn_close(r.dnn);
    vec_free(&r.seen[0]);
    vec_free(&r.seen[1]);
    vec_free(&r.seen_linear);
    text_free(&r.table);
    text_free(&properties);
    text_free(&versions);
    text_free(&beside);
    return r.n_bad ? 1 : 0;
}
