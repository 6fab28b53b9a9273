/* For tests/onnx_out.sh.
 *
 *   onnx_ops ops DIR              ONNX files of each operator's examples, of chains of operators and of graph text, and
 *       what the reference kernels make of three samples. DIR/NAME.onnx, and DIR/NAME.bin: the inputs in the file's
 *       order, then the output, as they lie in memory. Prints the names.
 *   onnx_ops values SHAPE FILE    three samples of this shape, 3x32x32, as an array of NumPy */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "base/out.h"
#include "base/rng.h"
#include "data/npy.h"
#include "graph_eval.h"
#include "model/onnx/write.h"
#include "op_graphs.h"

enum { N = 3 };

/* Channels and space in turn; a row, a plane and a volume; what changes order only when it must. */
static const char *const chains[] = {
    "3x5x4; conv channels=6 kernel=3 padding=1; layer_norm; linear features=8 points=yes; gelu; conv channels=3; "
    "flatten",
    "4x6; layer_norm; slice dim=1 first=1 count=4; linear features=3 points=yes; softmax",
    "6x4x4; layer_norm; split sizes=6 dim=0; concat @1; repeat count=2; slice first=3 count=5; flatten first=1",
    "6x3x2x2; linear features=4 points=yes; flatten first=2; layer_norm; slice dim=2 first=0 count=1",
    "6x7; layer_norm; dropout; prepend count=2; positions; attention heads=1; relu",
    "4x7; layer_norm; repeat count=3; attention heads=2 causal=yes; add @1; layer_norm",
    "8x1x1; layer_norm; flatten; linear features=3; scale; prelu; sigmoid",
    "3x4x4; dropout; layer_norm; multiply @2; instance_norm; stochastic_depth p=0.2",
    "4x6; rms_norm; rotary heads=2; slice dim=1 count=2; flatten",
    "9; linear features=4; batch_norm; relu; dropout; softmax log=yes",
    "2x3; dropout",
};
/* Several outputs, tied and turned weights, names of weights that are names of tensors, positions that are known. */
static const char *const texts[] = {
    "graph tied\ninput tokens 7 I64\ninput positions 7 I32\n"
    "wte = embedding(tokens) count=11 features=6\nwpe = embedding(positions) count=9 features=6\n"
    "sum = add(wte, wpe)\nturn = rotary(sum, positions) heads=3\n"
    "mix = attention(turn, turn, sum, positions) heads=3 causal=yes\n"
    "head = linear(mix) features=11 points=yes bias=no\ntie head.weight wte.weight\noutput head\n",
    "graph parts\ninput input 6x5\na, b, c = split(input) sizes=1x2x3\n"
    "w = linear(c) features=2 points=yes stored=in_out\n"
    "d, e = split(w) sizes=2x3 dim=1\nf = concat(a, b)\ng = flatten(f)\nh = linear(g) features=4 stored=in_out\n"
    "i = flatten(d)\nj = flatten(e)\nall = concat(h, i, j)\nname w.weight w\nname h.bias all\noutput all\n",
};

static const char *folder;

static void must(int bad, const struct err *e)
{
    if (!bad) return;
    fprintf(stderr, "onnx_ops: %s\n", e->text);
    exit(1);
}

static int param_get(void *ctx, const char *name, void *buf, const void **at, struct err *e)
{
    const struct graph_eval *v = ctx;
    int i = 0;
    while (strcmp(v->g->param[i].name, name)) i++;
    const struct param *p = &v->g->param[i];
    const int64_t n = p->shape.d[0], m = p->shape.d[1];
    (void)e;
    *at = p->turned ? buf : v->param[i];
    for (int64_t k = 0; p->turned && k < n * m; k++) ((float *)buf)[k % m * n + k / m] = ((float *)v->param[i])[k];
    return 0;
}

static bool floats(const struct graph *g, int t) { return dtype_floats(g->tensor[t].type); }

static void values_fill(struct graph_eval *v)
{
    const struct graph *g = v->g;
    for (int i = 0; i < g->n_inputs; i++) {
        const int t = g->input[i].tensor;
        const size_t one = (size_t)shape_count(&g->tensor[t].shape);
        if (floats(g, t)) rng_fill_normal((struct rng_at){1, RNG_INIT, (uint32_t)i}, v->value[t], N * one);
        else op_graph_integers(g, t, 3, N * one, v->value[t]);
        for (size_t k = 0; k < N * one && !strcmp(g->tensor[t].name, "positions"); k++)
            ((int32_t *)v->value[t])[k] = (int32_t)(k % one);
    }
    for (int i = 0; i < g->n_params; i++) {
        float *x = v->param[i];
        const size_t n = (size_t)shape_count(&g->param[i].shape);
        if (g->param[i].type != F32) continue;
        rng_fill_normal((struct rng_at){2, RNG_INIT, (uint32_t)i}, x, n);
        for (size_t k = 0; k < n && g->param[i].kind == PARAM_STAT; k++) x[k] = 0.5f + x[k] * x[k];
    }
}

/* The output of a network on integers has its channels last. */
static void output_add(const struct graph_eval *v, struct text *t)
{
    const struct shape *s = &v->g->tensor[v->g->output].shape;
    const int64_t c = s->n ? s->d[0] : 1, points = shape_count(s) / c;
    const bool last = !floats(v->g, v->g->input[0].tensor);
    const float *x = v->value[v->g->output];
    for (int64_t n = 0; n < N; n++)
        for (int64_t i = 0; i < c * points; i++)
            text_add_bytes(t, &x[n * c * points + (last ? i % c * points + i / c : i)], sizeof *x);
}

static void write_case(const char *name, struct graph *g)
{
    struct graph_eval *v = graph_eval_new(g, N, false);
    struct text path = {0}, values = {0};
    struct onnx_written w;
    struct err e = {0};
    values_fill(v);
    graph_eval_forward(v);
    text_add(&path, "%s/%s.onnx", folder, name);
    const struct onnx_output o = {.path = path.s, .version = "test", .most = INT32_MAX, .values = param_get, .ctx = v};
    must(onnx_write(g, &o, &w, &e), &e);
    path.n = 0;
    text_add(&path, "%s/%s.bin", folder, name);
    for (int i = 0; i < g->n_inputs; i++) {
        const struct tensor *t = &g->tensor[g->input[i].tensor];
        if (!strcmp(t->name, "positions")) continue;
        const size_t one = (size_t)shape_count(&t->shape) * dtype_bytes(t->type);
        text_add_bytes(&values, v->value[g->input[i].tensor], N * one);
    }
    output_add(v, &values);
    must(out_file_named(path.s, &values, false, &e), &e);
    printf("%s\n", name);
    text_free(&path);
    text_free(&values);
    graph_eval_free(v);
    graph_free(g);
}

static void values_write(const char *said, const char *file)
{
    struct shape s = {1, {N}};
    struct text t = {0};
    struct err e = {0};
    for (const char *at = said; *at && s.n < MAX_DIMS; at += *at == 'x') s.d[s.n++] = strtoll(at, (char **)&at, 10);
    const size_t n = (size_t)shape_count(&s);
    float *x = mem_alloc(n * sizeof *x);
    rng_fill_normal((struct rng_at){3, RNG_INIT, 0}, x, n);
    npy_add(&t, NPY_F4, &s, x);
    must(out_file_named(file, &t, false, &e), &e);
    text_free(&t);
    free(x);
}

static void ops_write(void)
{
    char name[64];
    struct err e = {0};
    for (int i = 0; op_list[i]; i++) {
        const bool left_out = op_list[i]->rows || !strcmp(op_list[i]->name, "cached_attention");
        for (int k = 0; !left_out && op_list[i]->examples[k]; k++) {
            snprintf(name, sizeof name, "%s-%d", op_list[i]->name, k);
            write_case(name, op_graph_example(op_list[i], op_list[i]->examples[k]));
        }
    }
    for (size_t i = 0; i < sizeof chains / sizeof *chains; i++) {
        snprintf(name, sizeof name, "chain-%zu", i);
        write_case(name, op_graph_chain(chains[i]));
    }
    for (size_t i = 0; i < sizeof texts / sizeof *texts; i++) {
        struct graph *g = graph_parse("text", texts[i], strlen(texts[i]), &e);
        must(!g, &e);
        snprintf(name, sizeof name, "text-%zu", i);
        write_case(name, g);
    }
}

int main(int argc, char **argv)
{
    if (argc == 4 && !strcmp(argv[1], "values")) values_write(argv[2], argv[3]);
    else if (argc == 3 && !strcmp(argv[1], "ops")) folder = argv[2], ops_write();
    else return fprintf(stderr, "usage: onnx_ops ops DIR | values SHAPE FILE\n"), 64;
    return 0;
}
