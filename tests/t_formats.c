/* Formats of stored values: halves, codes with factors, bytes; and that kernels compute with what was stored. */
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include "backend/be.h"
#include "backend/rules.h"
#include "base/half.h"
#include "base/mem.h"
#include "base/rng.h"
#include "op_graphs.h"
#include "plan_rig.h"
#include "rig_graphs.h"
#include "sure.h"

static bool is_nan(float x) { return x != x; }

/* Every half: what is widened narrows to the same half, NaN to NaN. */
START_TEST(halves_come_back)
{
    for (uint32_t h = 0; h < 1 << 16; h++) {
        float b = bf16_widen((uint16_t)h), f = f16_widen((uint16_t)h);
        sure(is_nan(b) ? is_nan(bf16_widen(bf16_narrow(b))) : bf16_narrow(b) == h, "bfloat16 %x", h);
        sure(is_nan(f) ? is_nan(f16_widen(f16_narrow(f))) : f16_narrow(f) == h, "binary16 %x", h);
    }
    ck_assert(f16_widen(0x0001) == 0x1p-24f && f16_widen(0x3c00) == 1 && f16_widen(0x7bff) == 65504);
    ck_assert(f16_narrow(65519) == 0x7bff && f16_narrow(65520) == 0x7c00 && f16_narrow(-1e30f) == 0xfc00);
    ck_assert(f16_narrow(0x1p-25f) == 0 && f16_narrow(0x1.8p-25f) == 1 && f16_narrow(0x1p-26f) == 0);
}
END_TEST

/* The nearest of all halves; of two as near the even one. */
START_TEST(narrowing_is_nearest)
{
    float x[4096];
    rng_fill_normal((struct rng_at){5, RNG_TEST, 1}, x, 4096);
    for (int i = 0; i < 4096; i++) {
        const float tie = (f16_widen((uint16_t)i) + f16_widen((uint16_t)(i + 1))) / 2;
        const float v = i % 8 == 7 ? tie : x[i] * 0x1p-8f * (float)(i % 64);
        const uint16_t h = f16_narrow(fabsf(v));
        const float below = h ? f16_widen((uint16_t)(h - 1)) : 0, above = f16_widen((uint16_t)(h + 1));
        const float at = f16_widen(h), off = fabsf(fabsf(v) - at);
        sure(off <= fabsf(fabsf(v) - below) && off <= above - fabsf(v), "%a is %a", (double)v, (double)at);
        sure(off != above - fabsf(v) || h % 2 == 0, "%a is %a", (double)v, (double)at);
    }
}
END_TEST

START_TEST(bytes_of_formats)
{
    const struct shape s = {3, {6, 5, 2}}, none = {0};
    struct format f = format_plain(F32);
    ck_assert_uint_eq(format_bytes(&f, &s), 240);
    ck_assert_uint_eq(format_bytes(&f, &none), 4);
    f = (struct format){I8, LAYOUT_PLAIN, 1, SCALE_ROW};
    ck_assert_uint_eq(format_bytes(&f, &s), 64 + 6 * 4);
    f = (struct format){BF16, LAYOUT_LAST, 8, SCALE_NONE};
    ck_assert_uint_eq(format_bytes(&f, &s), 2 * 8 * 10);
    ck_assert_int_eq(format_channels(&f, &s), 8);
    ck_assert_str_eq(format_layout_name(&(struct format){F32, LAYOUT_BLOCKED, 16, SCALE_NONE}), "blocked16");
}
END_TEST

/* bitsandbytes' codes: rounded to binary16, ties to even, a row of zeros, a row beyond binary16. */
START_TEST(codes_of_rows)
{
    const struct format f = {I8, LAYOUT_PLAIN, 1, SCALE_ROW};
    const struct shape s = {2, {4, 4}};
    const float x[16] = {127, 2.5f, -3.5f, 0.4f, 0, 0, -0.0f, 0, 70000, -35000, 1, 0, 1, NAN, 2, 3};
    static const int8_t want[12] = {127, 2, -4, 0, 0, 0, 0, 0, 127, -64, 0, 0};
    _Alignas(64) char stored[256], again[256];
    float y[16];
    ck_assert_int_eq(format_narrow(&f, &s, x, stored), -1);
    ck_assert_mem_eq(stored, want, sizeof want);
    format_widen(&f, &s, stored, y);
    ck_assert(y[0] == 127 && y[1] == 2 && y[2] == -4 && y[4] == 0 && y[8] == 70000);
    ck_assert(is_nan(y[12]) && is_nan(y[13]) && is_nan(y[15]));
    format_narrow(&f, &s, y, again);
    ck_assert_mem_eq(stored, again, 12);
    ck_assert_mem_eq(stored + 64, again + 64, 3 * sizeof(float));
}
END_TEST

/* In blocks of channels, each value keeps its row's factor. */
START_TEST(codes_in_blocks)
{
    const struct format plain = {I8, LAYOUT_PLAIN, 1, SCALE_ROW}, blocked = {I8, LAYOUT_BLOCKED, 8, SCALE_ROW};
    const struct shape s = {3, {16, 8, 3}};
    enum { OUT = 16, IN = 24, N = OUT * IN };
    float x[N], in_blocks[N], y[N], z[N];
    _Alignas(64) char a[1024], b[1024];
    rng_fill_normal((struct rng_at){5, RNG_TEST, 2}, x, N);
    for (int o = 0; o < OUT; o++)
        for (int i = 0; i < IN; i++) x[o * IN + i] *= (float)(o + 1);
    for (int o = 0; o < OUT; o++)
        for (int i = 0; i < IN; i++) in_blocks[(o / 8 * IN + i) * 8 + o % 8] = x[o * IN + i];
    format_narrow(&plain, &s, x, a);
    format_narrow(&blocked, &s, in_blocks, b);
    format_widen(&plain, &s, a, y);
    format_widen(&blocked, &s, b, z);
    for (int o = 0; o < OUT; o++)
        for (int i = 0; i < IN; i++) ck_assert(y[o * IN + i] == z[(o / 8 * IN + i) * 8 + o % 8]);
    /* values stay below 5 OUT: half a step of a code is 5 OUT / 254, rounding to binary16 adds 5 OUT / 4096 */
    for (int i = 0; i < N; i++) ck_assert(fabsf(y[i] - x[i]) <= 5.4f * (float)OUT / 254);
}
END_TEST

START_TEST(too_large_is_found)
{
    const struct format f = format_plain(F16), b = format_plain(BF16);
    const struct shape s = {1, {4}};
    const float x[4] = {1, INFINITY, 65520, 7e4f}, most[4] = {1, 3.39e38f, 3.4028e38f, 1};
    uint16_t half[4];
    ck_assert_int_eq(format_narrow(&f, &s, x, half), 2);
    ck_assert_int_eq(format_narrow(&b, &s, x, half), -1);
    ck_assert_int_eq(format_narrow(&b, &s, most, half), 2);
}
END_TEST

/* ---- kernels ----------------------------------------------------------------------------------------------------- */

enum { SAMPLES = 3, MOST = 64 };
static const char *const backends[] = {"reference", "onednn"};
static const enum dtype types[] = {BF16, F16, I8};

/* One backend with its memory: values and gradients of tensors, parameters, and what groups keep. */
struct side {
    const struct be_ops *ops; struct be *b; struct selection *s;
    void *value[MOST], *grad[MOST], *param[MOST], *saved[MOST], *packed[MOST], *work;
};

static void *memory(struct side *t, size_t bytes)
{
    struct err e = {0};
    void *p = t->ops->alloc(t->b, bytes + 64, &e);
    ck_assert_msg(p != NULL, "%s", e.text);
    return p;
}

static void side_open(struct side *t, const char *backend, const struct graph *g, enum dtype frozen,
                      const struct select_rules *rules)
{
    struct err e = {0};
    struct device d;
    size_t work = 64;
    *t = (struct side){.ops = be_find(backend)};
    ck_assert(!t->ops->describe(0, &d, &e));
    d.frozen = frozen;
    if (rules) d.rules = rules;
    t->s = select_make(g, &d, SAMPLES, &e);
    ck_assert_msg(t->s && !t->ops->open(t->s, 1, 0, &t->b, &e), "%s", e.text);
    ck_assert(g->n_tensors <= MOST && g->n_params <= MOST && t->s->n_groups <= MOST);
    for (int i = 0; i < g->n_tensors; i++) {
        t->value[i] = memory(t, SAMPLES * select_sample_bytes(t->s, i));
        t->grad[i] = memory(t, SAMPLES * select_sample_bytes(t->s, i));
    }
    for (int i = 0; i < g->n_params; i++) t->param[i] = memory(t, select_param_bytes(t->s, i));
    for (int i = 0; i < t->s->n_groups; i++) {
        const struct group *k = &t->s->group[i];
        t->saved[i] = memory(t, group_saved(k, SAMPLES));
        t->packed[i] = memory(t, k->packed_bytes);
        if (group_workspace(k, SAMPLES) > work) work = group_workspace(k, SAMPLES);
    }
    t->work = memory(t, work);
}

static void side_close(struct side *t)
{
    t->ops->close(t->b);                                 /* the process ends: memory stays */
    select_free(t->s);
}

/* The stored values of `narrow`, and the same values, widened, in `wide`. */
static void params_set(struct side *narrow, struct side *wide, const struct graph *g)
{
    struct err e = {0};
    for (int i = 0; i < g->n_params; i++) {
        const size_t n = (size_t)shape_count(&g->param[i].shape);
        float *x = calloc(n, 8), *y = calloc(n, 8);
        if (g->param[i].type == F32) rng_fill_uniform((struct rng_at){7, RNG_TEST, 1, (uint32_t)i}, x, n);
        ck_assert_msg(!narrow->ops->param_import(narrow->b, i, narrow->param[i], x, &e), "%s", e.text);
        ck_assert(!narrow->ops->param_export(narrow->b, i, y, narrow->param[i], &e));
        ck_assert(!wide->ops->param_import(wide->b, i, wide->param[i], y, &e));
        ck_assert((memcmp(x, y, n * sizeof *x) != 0) == (select_narrows(narrow->s, i)));
        free(x);
        free(y);
    }
}

static void run(struct side *t, int group, enum phase ph)
{
    struct err e = {0};
    struct be_kernel *kernel;
    static int64_t sample[SAMPLES];
    static struct be_block block = {.inv_weight = 1};
    const struct group *k = &t->s->group[group];
    struct be_call c = {.n = SAMPLES, .block = &block, .sample = sample, .out = t->value[k->out],
                        .saved = t->saved[group], .packed = t->packed[group], .work = t->work};
    for (int i = 0; i < k->n_in; i++) c.in[i] = t->value[k->in[i]];
    for (int i = 0; i < k->n_param; i++) c.param[i] = t->param[k->param[i]];
    if (ph == PH_BWD_DATA) {
        c.gout = t->grad[k->out];
        for (int i = 0; i < k->n_in; i++) if (k->grad_in >> i & 1) c.gin[i] = t->grad[k->in[i]];
    }
    if (ph == PH_FWD && k->packed_bytes) ck_assert(!t->ops->pack(t->b, group, c.param, c.packed, &e));
    ck_assert_msg(!t->ops->prepare(t->b, &(struct be_key){group, ph, SAMPLES, false}, &kernel, &e), "%s", e.text);
    ck_assert_msg(!t->ops->run(t->b, kernel, &c, &e), "%s", e.text);
}

static void fill(struct side *t, void *const *where, int tensor, uint32_t stream)
{
    struct err e = {0};
    const size_t n = SAMPLES * (size_t)shape_count(&t->s->g->tensor[tensor].shape);
    float *x = calloc(n, 8);
    if (t->s->g->tensor[tensor].type == F32)
        rng_fill_normal((struct rng_at){9, RNG_TEST, stream, (uint32_t)tensor}, x, n);
    ck_assert(!t->ops->tensor_import(t->b, tensor, SAMPLES, where[tensor], x, &e));
    free(x);
}

static void same(const struct side *a, void *const *x, void *const *y, int tensor, const char *what)
{
    const size_t bytes = SAMPLES * select_sample_bytes(a->s, tensor);
    ck_assert_msg(!memcmp(x[tensor], y[tensor], bytes), "%s of tensor %s on %s", what, a->s->g->tensor[tensor].name,
                  a->s->dev.backend);
}

/* Of tensors in different layouts, whose kernels add in different orders. */
static void same_values(const struct side *a, const struct side *b, void *const *x, void *const *y, int tensor)
{
    struct err e = {0};
    const size_t n = SAMPLES * (size_t)shape_count(&a->s->g->tensor[tensor].shape);
    float *p = calloc(n, 8), *q = calloc(n, 8);
    ck_assert(!a->ops->tensor_export(a->b, tensor, SAMPLES, p, x[tensor], &e));
    ck_assert(!b->ops->tensor_export(b->b, tensor, SAMPLES, q, y[tensor], &e));
    for (size_t i = 0; i < n; i++)
        sure(fabsf(p[i] - q[i]) <= 1e-4f * (1 + fabsf(q[i])), "tensor %s: %g and %g",
             a->s->g->tensor[tensor].name, (double)p[i], (double)q[i]);
    free(p);
    free(q);
}

/* All weights frozen: evaluation, and gradients of inputs, with stored and with widened weights. */
static int graph_compare(struct graph *g, const char *backend, enum dtype type)
{
    struct side narrow, wide;
    int stored = 0;
    for (int i = 0; i < g->n_params; i++) g->param[i].frozen = g->param[i].kind == PARAM_WEIGHT;
    side_open(&narrow, backend, g, type, NULL);
    side_open(&wide, backend, g, F32, NULL);
    params_set(&narrow, &wide, g);
    for (int i = 0; i < g->n_params; i++) stored += select_narrows(narrow.s, i);
    for (int i = 0; i < g->n_inputs; i++) {
        fill(&narrow, narrow.value, g->input[i].tensor, 1);
        fill(&wide, wide.value, g->input[i].tensor, 1);
    }
    for (int i = 0; i < narrow.s->n_groups; i++) {
        const struct group *k = &narrow.s->group[i];
        ck_assert(!k->pgrad_in_w);
        run(&narrow, i, PH_FWD);
        run(&wide, i, PH_FWD);
        same(&narrow, narrow.value, wide.value, k->out, "values");
        if (!k->grad_in || k->is_loss) continue;
        fill(&narrow, narrow.grad, k->out, 2);
        fill(&wide, wide.grad, k->out, 2);
        run(&narrow, i, PH_BWD_DATA);
        run(&wide, i, PH_BWD_DATA);
        for (int j = 0; j < k->n_in; j++)
            if (k->grad_in >> j & 1) same(&narrow, narrow.grad, wide.grad, k->in[j], "gradients");
    }
    side_close(&narrow);
    side_close(&wide);
    graph_free(g);
    return stored;
}

START_TEST(kernels_see_stored_values)
{
    static const char volume[] =
        "graph v\ninput input 16x8x16x16\nlabels labels class\na = conv(input) channels=32 kernel=3 padding=1\n"
        "r = relu(a)\nb = conv(r) channels=64 kernel=2 stride=2\nc = conv_transpose(b) channels=32 kernel=2 stride=2\n"
        "d = conv(c) channels=32 kernel=3 padding=1\ne = global_avg_pool(d)\nf = flatten(e)\n"
        "g = linear(f) features=5\nloss = softmax_cross_entropy(g, labels)\noutput g\nloss loss\n";
    const char *backend = backends[_i / N_OF(types)];
    const enum dtype type = types[_i % N_OF(types)];
    int stored = 0;
    for (int i = 0; i < OP_GRAPH_CONVS; i++) stored += graph_compare(op_graph_chain(op_graph_convs[i]), backend, type);
    stored += graph_compare(rig_graph(rig_small_resnet), backend, type);
    stored += graph_compare(rig_graph(rig_tied), backend, type);
    if (_i / N_OF(types)) stored += graph_compare(rig_graph(volume), backend, type);   /* for blocks of channels */
    ck_assert_int_gt(stored, 25);
}
END_TEST

/* ---- tokens as rows ---------------------------------------------------------------------------------------------- */

/* Puts every tensor of channels by points into rows of channels, and serves none. */
static const char *serves_none(const struct selection *s, const struct group *k, enum phase ph) { return ""; }
static enum layout token_rows(const struct selection *s, const struct node *n)
{
    return s->g->tensor[n->out].shape.n == 2 ? LAYOUT_LAST : LAYOUT_NONE;
}
static const struct kernel_row rows_of_tokens[] = {
    {.name = "rows", .pattern = PATTERN_ANY, .cost = 0.1, .refuses = serves_none, .layout = token_rows}, {0}};

/* A transformer's block: kernels of rows, those that read both layouts, and copies give the same values, forward and
 * backward. */
START_TEST(tokens_as_rows)
{
    static const char text[] =
        "graph t\ninput input 12x10\nlabels labels class\na = linear(input) features=24 points=yes\n"
        "p = positions(a)\nn = layer_norm(p)\nq = linear(n) features=72 points=yes\nt = attention(q) heads=3\n"
        "r = add(t, p)\nm = linear(r) features=48 points=yes\ng = gelu(m)\ne = relu(g)\nw = batch_norm(e)\n"
        "v = relu(w)\n"
        "f = flatten(v)\nh = linear(f) features=5\nloss = softmax_cross_entropy(h, labels)\n"
        "output h\nloss loss\n";
    const struct kernel_row *table[32] = {rows_of_tokens};
    struct select_rules rules = onednn_rules;
    struct side rows, plain;
    struct graph *g = rig_graph(text);
    int last = 0;
    for (int i = 0; onednn_rules.rows[i]; i++) table[i + 1] = onednn_rules.rows[i];
    rules.rows = table;
    side_open(&rows, "onednn", g, F32, &rules);
    side_open(&plain, "onednn", g, F32, NULL);
    params_set(&rows, &plain, g);
    fill(&rows, rows.value, g->input[0].tensor, 1);
    fill(&plain, plain.value, g->input[0].tensor, 1);
    for (int i = 0; i < rows.s->n_groups; i++) {
        const struct group *k = &rows.s->group[i];
        run(&rows, i, PH_FWD);
        run(&plain, i, PH_FWD);
        last += rows.s->tensor[k->out].layout == LAYOUT_LAST;
        same_values(&rows, &plain, rows.value, plain.value, k->out);
        if (!k->grad_in || k->is_loss) continue;
        fill(&rows, rows.grad, k->out, 2);
        fill(&plain, plain.grad, k->out, 2);
        run(&rows, i, PH_BWD_DATA);
        run(&plain, i, PH_BWD_DATA);
        for (int j = 0; j < k->n_in; j++)
            if (k->grad_in >> j & 1) same_values(&rows, &plain, rows.grad, plain.grad, k->in[j]);
    }
    ck_assert_int_ge(last, 10);
    side_close(&rows);
    side_close(&plain);
    graph_free(g);
}
END_TEST

START_TEST(gpus_store_no_fp16)
{
    struct err e = {0};
    struct device d;
    struct graph *g = rig_graph(rig_tied);
    if (be_find("cuda")) {
        be_find("cuda")->suppose(&d);
        d.frozen = F16;
        ck_assert(!select_make(g, &d, 2, &e) && e.code == E_CONF);
    }
    graph_free(g);
}
END_TEST

int main(void)
{
    TCase *t = suite_case("formats", 120);
    tcase_add_test(t, halves_come_back);
    tcase_add_test(t, narrowing_is_nearest);
    tcase_add_test(t, bytes_of_formats);
    tcase_add_test(t, codes_of_rows);
    tcase_add_test(t, codes_in_blocks);
    tcase_add_test(t, too_large_is_found);
    tcase_add_loop_test(t, kernels_see_stored_values, 0, N_OF(backends) * N_OF(types));
    tcase_add_test(t, tokens_as_rows);
    tcase_add_test(t, gpus_store_no_fp16);
    return suite_run("formats", CK_FORK, t);
}
