/* The onednn backend against the reference operators: every operator's examples, a table of convolutions, fused batch
 * norm, accumulation flags, evaluation mode, layouts, and results that must have equal bits. */
#include <string.h>
#include "backend/cpu/onednn/dnnl_product.h"
#include "net_rig.h"
#include "op_graphs.h"
#include "sure.h"

static void chain_compare_as(const char *text, int n, void (*open)(struct net *t, struct graph *g, int n))
{
    struct net t;
    open(&t, op_graph_chain(text), n);
    for (int i = 0; i < t.s->n_groups; i++) group_compare(&t, i);
    net_close(&t);
}

static void chain_compare(const char *text, int n) { chain_compare_as(text, n, net_open); }
static void chain_compare_half(const char *text, int n) { chain_compare_as(text, n, net_open_half); }

/* Each test is a process of its own, and oneDNN asks for the limit at its first call. */
static void isa_limit(int i)
{
    static const char *const isa[] = {"ALL", "AVX2", "SSE41"};
    setenv("DNNL_MAX_CPU_ISA", isa[i], 1);
}
enum { N_ISA = 3, N_ISA_BLOCKED = 2 };

static void examples_compare(const struct op_kind *op, void (*open)(struct net *t, struct graph *g, int n))
{
    for (const char *const *s = op->examples; s && *s; s++) {
        struct net t;
        open(&t, op_graph_example(op, *s), 3);
        group_compare(&t, 0);
        net_close(&t);
    }
}

START_TEST(operator_examples)
{
    const struct op_kind *op = op_list[_i / N_ISA];
    isa_limit(_i % N_ISA);
    examples_compare(op, net_open);
}
END_TEST

START_TEST(operator_examples_in_bf16)
{
    const struct op_kind *op = op_list[_i / N_ISA];
    isa_limit(_i % N_ISA);
    examples_compare(op, net_open_half);
}
END_TEST

/* Products whose sizes the processor's own kernels take, with rows that fill no tile. */
static const struct { const char *chain; int n; } half_chains[] = {
    {"64; linear features=96; relu", 300}, {"96; linear features=32 bias=no; relu", 7},
    {"32; linear features=64; relu ^0", 33},
    /* sums in several parts; more rows than a piece; planes of every kind */
    {"1100; linear features=1056; relu; linear features=70; relu", 70},
    {"32x12x12; conv channels=64 kernel=1; flatten first=1; linear features=96 points=yes; layer_norm; relu", 5},
    {"64x9x9; conv channels=64 kernel=3 stride=2 padding=1; batch_norm; relu; conv channels=128 kernel=3 padding=1; "
     "max_pool kernel=3 stride=2 padding=1; conv channels=32 kernel=3 padding=1; relu", 30},
    {"33x6x6; conv channels=16 kernel=3 padding=1; batch_norm; relu; max_pool kernel=2; silu; multiply @5; flatten",
     3},
    {"3x4x6x4; conv channels=40 kernel=3 padding=1; group_norm groups=8; relu; instance_norm affine=yes ^1; add @3; "
     "conv channels=1030 kernel=1; group_norm groups=103 affine=no; add @6; group_norm groups=1; instance_norm", 3},
    {"32x3x4x5; conv_transpose channels=16 kernel=2 stride=2; conv_transpose channels=8 kernel=2 stride=2 bias=no; "
     "relu; conv channels=64 kernel=1 ^0; conv_transpose channels=96 kernel=3 stride=2 padding=1 output_padding=1; add "
     "@5", 3},
    {"64x5x7; conv_transpose channels=32 kernel=3x2 stride=1x3 dilation=2x1; conv_transpose channels=160 kernel=1; "
     "conv_transpose channels=8 kernel=1 stride=2; conv channels=32 kernel=1; conv_transpose channels=1 kernel=4 "
     "stride=2 padding=1; conv_transpose channels=32 kernel=1 ^2", 2},
    {"1x4x5x3; conv channels=16 kernel=3 padding=1; repeat count=16 ^0; add ^1 @2; conv channels=1 kernel=1; silu", 3},
    {"40x9x7; conv channels=1 kernel=1; conv channels=2 kernel=1 bias=no ^0; conv channels=1 kernel=1", 3},
    {"3x4x6x4; conv channels=40 kernel=3 padding=1; prelu; prelu shared=yes; dropout channels=yes p=0.5; scale; "
     "global_avg_pool; conv channels=40 kernel=1; sigmoid; multiply ^5 @8; stochastic_depth p=0.5; multiply ^9 @8; "
     "prelu value=-0.25; add @9", 5},
    {"3x9x8; conv channels=84 kernel=1; conv channels=84 kernel=3 padding=1 groups=84; conv channels=84 kernel=7x3 "
     "stride=2x3 padding=3x0 groups=84 bias=no; relu ^2; conv channels=84 kernel=2 stride=3 dilation=2x3 groups=84; "
     "flatten", 3},
    {"2x6x5x7; conv channels=2 kernel=3 padding=1x0x1 groups=2; conv channels=130 kernel=1; conv channels=130 "
     "kernel=3x1x2 stride=2x1x1 groups=130; relu", 4},
    /* pixels behind the last that a kernel reads; padding around one point of the kernel, and more than the kernel */
    {"16x10x10; conv channels=16 kernel=2 stride=3 padding=3 dilation=8; conv channels=8 kernel=1 stride=2 padding=1; "
     "conv channels=3 kernel=1; conv channels=16 kernel=2 stride=100 padding=5; conv_transpose channels=32 kernel=1 "
     "stride=3 padding=1 output_padding=2; relu", 3},
    /* planes smaller than the stride */
    {"32x1x2; conv channels=32 kernel=3 stride=3 padding=1; conv_transpose channels=64 kernel=2 stride=3; relu", 5},
    /* maxima of many windows, whose gradients are added in fp32 */
    {"5x15x15; conv channels=35 kernel=1; max_pool kernel=15 padding=7 stride=1; relu ^1", 3},
    {"2x4x5x9; conv channels=17 kernel=1; max_pool kernel=1x2x3 stride=2x3x1 padding=0x1x1; relu ^1", 2}};
enum { N_HALF_CHAINS = sizeof half_chains / sizeof *half_chains };

START_TEST(chains_in_bf16)
{
    isa_limit(_i % N_ISA);
    chain_compare_half(half_chains[_i / N_ISA].chain, half_chains[_i / N_ISA].n);
}
END_TEST

/* Convolutions for which the library has only its reference loop on one instruction set or another: few or odd
 * channels, depthwise ones with and without blocks, planes smaller than the kernel, and some in one and three
 * dimensions. More samples than a piece of the product takes at once. */
static const struct { const char *chain; int n; } odd_convs[] = {
    {"1x28x28; conv channels=16 kernel=3 padding=1 bias=no; relu ^0", 3},
    {"1x9x9; conv channels=32 kernel=5; relu ^0", 70},
    {"2x7x8; conv channels=16 kernel=3 stride=2 padding=1 bias=no; relu ^0", 5},
    {"32x2x2; conv channels=32 kernel=3 padding=1 bias=no; add ^0 @1", 33},
    {"32x2x2; conv channels=64 kernel=3 stride=2 padding=1; relu ^0", 5},
    {"16x1x1; conv channels=24 kernel=3 padding=1 bias=no; relu ^0", 300},
    {"32x14x14; conv channels=32 kernel=5 padding=2 groups=32 bias=no; relu ^0", 3},
    {"32x9x9; conv channels=32 kernel=3 stride=2 padding=1 groups=32; relu ^0", 4},
    {"16x12x7; conv channels=16 kernel=5x7 stride=2x1 padding=1x3 dilation=2x1 groups=16; relu ^0", 4},
    {"20x9x7; conv channels=20 kernel=3 padding=1 groups=20; add ^0 @1", 4},
    {"3x6x6; conv channels=16 kernel=1; conv channels=16 kernel=3 padding=1 groups=16 bias=no; relu", 3},
    {"16x9; conv channels=16 kernel=3 padding=1 groups=16; relu ^0", 3},
    {"16x4x5x6; conv channels=16 kernel=3 padding=1 groups=16; relu ^0", 3},
    {"1x6x6x6; conv channels=16 kernel=3 stride=2 padding=1 bias=no; relu ^0", 3},
    {"32x6x6x6; conv channels=32 kernel=2 stride=2; relu ^0", 3},
    {"8x16x16; conv channels=64 kernel=3 padding=3 dilation=3; relu ^0", 2},
    {"20x10x10; conv channels=40 kernel=3 padding=2 dilation=2 groups=4; relu ^0", 2},
    {"24x6x6; conv channels=32 kernel=3 stride=3; relu ^0", 2},
    {"16x40x40; conv channels=40 kernel=7 padding=3 bias=no; relu ^0", 2},
    {"512x1x1; conv channels=512 kernel=3 padding=1; relu ^0", 2},              /* more weights than values */
    {"1x5000; conv channels=2 kernel=1000; relu ^0", 2},                        /* rows longer than a piece */
    {"2x4000; conv channels=3 kernel=700 stride=2 padding=300 bias=no; relu ^0", 2},
    {"8x5x5; conv channels=8 kernel=1 dilation=2 groups=8; relu", 1},
    {"16x9x9; conv channels=16 kernel=1 dilation=2 groups=16 bias=no; relu", 3},
    /* and what may stand behind them, on blocks and beside them */
    {"32x6x6; conv channels=32 kernel=3 padding=1; layer_norm; linear features=48 points=yes; gelu; "
     "linear features=32 points=yes; scale value=0.5; stochastic_depth p=0.5; add @1", 3},
    {"16x7x7; conv channels=32 kernel=1; linear features=24 points=yes bias=no; relu ^1; concat @2; scale", 2},
    {"32x6x6; conv channels=32 kernel=1; silu; global_avg_pool; conv channels=8 kernel=1; relu; conv channels=32 "
     "kernel=1; sigmoid; multiply ^2 @7; avg_pool kernel=2; adaptive_avg_pool size=2x5; flatten", 3},
    {"20x6x6; conv channels=20 kernel=1; hardswish; scale; relu6; avg_pool kernel=3 stride=2 padding=1; multiply ^4 "
     "@3; adaptive_avg_pool size=2", 3},
    {"32x5x5; conv channels=32 kernel=1; conv channels=16 kernel=1; concat @1; relu6; stochastic_depth p=0.3; "
     "leaky_relu; tanh", 3},
    {"3x12x20; conv channels=96 kernel=4 stride=4; flatten first=1; prepend; positions; layer_norm; linear "
     "features=288 points=yes; attention heads=4; linear features=96 points=yes; add @4; slice dim=1 count=1; flatten",
     3},
    {"16x6x6; conv channels=48 kernel=1; attention heads=2; slice first=2 count=8; positions; slice dim=1 first=2 "
     "count=3", 2},
    {"384x197; attention heads=2", 1}, {"240x150; attention heads=1 causal=yes", 2},
    {"24x700; attention heads=1", 1},                                           /* several blocks of queries */
    {"24x4x5; conv_transpose channels=16 kernel=2 stride=2; relu; conv channels=16 kernel=3 padding=1; add @1", 3},
    {"16x3x4; conv channels=32 kernel=1; conv_transpose channels=20 kernel=3 stride=2 padding=1 output_padding=1 "
     "bias=no; relu ^1", 5},
    {"12x4x4; conv_transpose channels=8 kernel=4x3 stride=3x2 groups=4 dilation=1x2; relu ^0", 9},
    {"8x6x6; conv_transpose channels=8 kernel=3 stride=2 groups=8; relu ^0", 3},
    {"16x9x8; conv_transpose channels=32 kernel=1; relu ^0", 3},
    {"6x3x4x2; conv_transpose channels=16 kernel=2 stride=2; conv_transpose channels=3 kernel=3 stride=1 padding=1", 2},
    {"32x5x4; conv channels=32 kernel=1; upsample; relu ^1; upsample factor=2 linear=yes; concat ^2 @4", 2},
    /* gated units: on blocks, where blocks and plain channels meet, with gradients that are added */
    {"32x6x6; conv channels=32 kernel=1; conv channels=32 kernel=3 padding=1 ^0; silu ^1; multiply @2; add @2", 3},
    {"16x5x5; conv channels=32 kernel=1; conv channels=32 kernel=1 groups=2 ^0; gelu ^2; multiply @1; relu ^1; add @4",
     3},
    {"20x7; elu alpha=0.5; multiply @0; sigmoid ^0; multiply @2; leaky_relu; multiply @0", 3},
    /* volumes: what V-Nets are made of, on blocks, beside them, and where blocks and plain channels meet */
    {"1x4x6x4; conv channels=16 kernel=3 padding=1; group_norm groups=16; relu; repeat count=16 ^0; add ^3 @4; conv "
     "channels=32 kernel=2 stride=2; group_norm groups=16; elu; prelu; dropout channels=yes p=0.5; conv_transpose "
     "channels=16 kernel=2 stride=2; instance_norm affine=yes; concat @5", 3},
    {"2x5x4x6; repeat count=8; prelu shared=yes; instance_norm; max_pool kernel=2; leaky_relu", 3},
    {"2x4x4; repeat count=5; repeat count=8; group_norm groups=4 affine=no; softmax; dropout channels=yes", 5},
    {"32x3x4x4; conv channels=32 kernel=1; repeat; concat @1; prelu ^2; relu ^3", 3},
    {"16x5x7x6; conv channels=32 kernel=1; max_pool kernel=3x2x2 stride=2x1x2 padding=1x0x1; relu; avg_pool kernel=3 "
     "stride=2 padding=1 ^1", 3},
    {"5x4x9x3; max_pool kernel=3x2x1 stride=1x2x1 padding=1x1x0; relu ^0", 4},
    {"16x4x3x4; conv channels=20 kernel=1; conv channels=32 kernel=3 padding=1 ^0; concat ^1 @2; relu ^2; concat "
     "@1", 3},
    {"32x6x6x6; conv channels=32 kernel=1; group_norm groups=2; group_norm groups=32 ^1; group_norm ^1; add @3; add @2",
     3},
    {"24x7; conv channels=48 kernel=1; instance_norm; elu alpha=0.5; prelu value=-0.25; relu ^1", 3},
    {"3x5x6x7; conv channels=16 kernel=1; conv channels=32 kernel=3 padding=1 ^0; conv channels=32 kernel=3 padding=1 "
     "bias=no; add @2; conv_transpose channels=16 kernel=2 stride=2; conv channels=32 kernel=2 stride=2; add @3", 3},
    {"16x4x4x4; conv channels=32 kernel=1; conv channels=128 kernel=3 padding=1; conv channels=144 kernel=3 padding=1; "
     "conv channels=16 kernel=3 padding=1; conv channels=16 kernel=3 padding=1 groups=2 ^4; add ^4 @5", 2},
    {"20x5x4; upsample linear=yes align_corners=yes; upsample size=7x70 ^0; relu", 3},
};
enum { N_ODD_CONVS = sizeof odd_convs / sizeof *odd_convs };

START_TEST(odd_convolutions)
{
    isa_limit(_i % N_ISA);
    chain_compare(odd_convs[_i / N_ISA].chain, odd_convs[_i / N_ISA].n);
}
END_TEST

START_TEST(odd_convolutions_in_bf16)
{
    chain_compare_half(odd_convs[_i].chain, odd_convs[_i].n);
}
END_TEST

START_TEST(convolutions_in_bf16)
{
    chain_compare_half(op_graph_convs[_i], 1 + _i % 4);
}
END_TEST

/* Kernels of three threads, which share their workspace. */
START_TEST(threads_in_bf16)
{
    const int convs = _i - N_HALF_CHAINS;
    if (convs < 0) chain_compare_as(half_chains[_i].chain, half_chains[_i].n, net_open_half_threads);
    else chain_compare_as(op_graph_convs[convs], 1 + convs % 4, net_open_half_threads);
}
END_TEST

/* Does the library sum? Its bits depend on the number of threads. */
static bool by_library(const struct group *k, const struct op_kind *op)
{
    const struct kernel_row *row = k->row[PH_BWD_WEIGHTS];
    return op->flops && (!row || strcmp(row->name, "wgrad"));
}

static uint64_t mixed(uint64_t sum, const void *p, size_t bytes)
{
    for (size_t i = 0; i < bytes; i++) sum = (sum ^ ((const unsigned char *)p)[i]) * 0x100000001b3;
    return sum;
}

/* Of what own loops made of the group; 0: the library did. */
static uint64_t own_bits(const struct net *t, const struct group *k)
{
    const struct op_kind *op = t->g->node[k->node[0]].op;
    uint64_t sum = 1;
    if (by_library(k, op)) return 0;
    for (int i = 0; i < k->n_param; i++)
        sum = mixed(sum, t->pgstore[k->param[i]], param_floats(t, k->param[i]) * sizeof(float));
    if (op->flops) return sum;
    for (int i = 0; i < k->n_in; i++) sum = mixed(sum, t->gstore[k->in[i]], tensor_floats(t, k->in[i]) * sizeof(float));
    for (int i = 0; i < k->n_out; i++) sum = mixed(sum, t->store[k->outs[i]], tensor_size(t, k->outs[i]));
    return sum;
}

/* Three threads give the values of the reference, and own loops the bits of one thread. */
static void threads_compare(struct graph *one, struct graph *three, int n)
{
    uint64_t bits[MAX_T];
    struct net t;
    net_open(&t, one, n);
    for (int i = 0; i < t.s->n_groups; i++) {
        group_compare(&t, i);
        bits[i] = own_bits(&t, &t.s->group[i]);
    }
    net_close(&t);
    net_open_threads(&t, three, n);
    for (int i = 0; i < t.s->n_groups; i++) {
        group_compare(&t, i);
        sure(own_bits(&t, &t.s->group[i]) == bits[i], "%s: other bits", t.g->node[t.s->group[i].node[0]].name);
    }
    net_close(&t);
}

static void chain_threads(const char *text, int n) { threads_compare(op_graph_chain(text), op_graph_chain(text), n); }

START_TEST(threads)
{
    const struct op_kind *op = op_list[_i];
    for (const char *const *s = op->examples; s && *s; s++)
        threads_compare(op_graph_example(op, *s), op_graph_example(op, *s), 3);
}
END_TEST

START_TEST(chains_of_threads)
{
    if (_i < N_HALF_CHAINS) chain_threads(half_chains[_i].chain, half_chains[_i].n);
    else chain_threads(odd_convs[_i - N_HALF_CHAINS].chain, odd_convs[_i - N_HALF_CHAINS].n);
}
END_TEST

START_TEST(fused_batch_norm_in_bf16)
{
    chain_compare_half(op_graph_norms[_i], 4);
}
END_TEST

/* The matrix products themselves, also of shapes for which the library has a kernel everywhere. */
static const char *const products[] = {"5x6x5; conv_transpose channels=3 kernel=3x2 stride=2 bias=no",
                                       "6x9x9; conv_transpose channels=4 kernel=1 groups=2",
                                       "20x9x9; conv channels=20 kernel=1 groups=20",
                                       "1x9x9; conv channels=1 kernel=1 bias=no", "6x9x9; conv channels=4 kernel=1",
                                       "6x3x3; conv channels=4 kernel=1 groups=2",
                                       "5x9x8; conv channels=10 kernel=3x2 padding=2x1 stride=2x3 groups=5"};
enum { N_PRODUCTS = sizeof products / sizeof *products };

static void product_compare(struct net *t, enum phase ph)
{
    struct op_call c = ref_call(t, 0);
    struct err e = {0};
    const struct node *n = c.node;
    int to = n->in[0], w = n->param[0];
    size_t x = tensor_floats(t, to), y = tensor_floats(t, n->out), k = param_floats(t, w);
    float *got = ph == PH_FWD ? t->store[n->out] : ph == PH_BWD_DATA ? t->gstore[to] : t->pgstore[w];
    float bias[64];
    struct product *p = product_new(&c, ph);
    void *work = aligned_alloc(64, (product_work(p) + 63) / 64 * 64);
    /* what is overwritten does not count */
    memset(got, 0x7f, (ph == PH_FWD ? y : ph == PH_BWD_DATA ? x : k) * sizeof *got);
    if (ph == PH_FWD) c.out = got;
    else c.gout = t->gplain[n->out];
    if (ph == PH_BWD_DATA) c.gin[0] = got;
    if (ph == PH_BWD_WEIGHTS) {
        c.pgrad[0] = got;
        c.pgrad[1] = bias;
    }
    ok(product_run(p, &c, work, &e), &e);
    if (ph == PH_FWD) close_enough("value", t, got, t->plain[n->out], y, 64);
    else if (ph == PH_BWD_DATA) close_enough("input gradient", t, got, t->gplain[to], x, 64);
    else close_enough("weight gradient", t, got, t->pgrad[w], k, 1024);
    free(work);
    product_free(p);
}

START_TEST(products_equal)
{
    struct net t;
    net_open(&t, op_graph_chain(products[_i]), 3);
    ref_forward(&t, &t.s->group[0]);
    ref_backward(&t, &t.s->group[0]);
    for (int ph = 0; ph < PH_COUNT; ph++) product_compare(&t, (enum phase)ph);
    net_close(&t);
}
END_TEST

START_TEST(convolutions)
{
    isa_limit(_i % N_ISA_BLOCKED);
    chain_compare(op_graph_convs[_i / N_ISA_BLOCKED], 1 + _i / N_ISA_BLOCKED % 4);
}
END_TEST

START_TEST(fused_batch_norm)
{
    isa_limit(_i % N_ISA);
    chain_compare(op_graph_norms[_i / N_ISA], 4);
}
END_TEST

/* Values survive the way into the backend's layout and back, and the layout is a permutation: nothing is lost or
 * doubled. */
START_TEST(layouts_round_trip)
{
    struct net t;
    struct err e = {0};
    net_open(&t, op_graph_chain(op_graph_convs[_i]), 3);
    for (int i = 0; i < t.g->n_tensors; i++) {
        size_t n = tensor_floats(&t, i);
        float *x = calloc(n, sizeof *x), *y = calloc(n, sizeof *y);
        for (size_t k = 0; k < n; k++) x[k] = (float)k;
        ok(t.ops->tensor_import(t.b, i, 3, t.store[i], x, &e), &e);
        ok(t.ops->tensor_export(t.b, i, 3, y, t.store[i], &e), &e);
        ck_assert(!memcmp(x, y, n * sizeof *x));
        free(x); free(y);
    }
    for (int i = 0; i < t.g->n_params; i++) {
        size_t n = param_floats(&t, i);
        float *x = calloc(n, sizeof *x), *y = calloc(n, sizeof *y);
        for (size_t k = 0; k < n; k++) x[k] = (float)k;
        ok(t.ops->param_import(t.b, i, t.pstore[i], x, &e), &e);
        ok(t.ops->param_export(t.b, i, y, t.pstore[i], &e), &e);
        ck_assert(!memcmp(x, y, n * sizeof *x));
        free(x); free(y);
    }
    net_close(&t);
}
END_TEST

/* Exact data: small integers, so sums in any order are equal. */
START_TEST(vector_helpers)
{
    struct net t;
    struct err e = {0};
    net_open(&t, op_graph_chain("16x2x2; relu"), 1);
    enum { N = 1003 };
    float *x = memory(&t, N * sizeof *x), *y = memory(&t, N * sizeof *y);
    double sum, want = 0;
    for (int i = 0; i < N; i++) { x[i] = (float)(i % 17 - 8); y[i] = (float)i; want += x[i] * x[i]; }
    ok(t.ops->sumsq(t.b, x, N, &sum, &e), &e);
    ck_assert(sum == want);
    ok(t.ops->add(t.b, y, x, N, &e), &e);
    for (int i = 0; i < N; i++) sure(y[i] == (float)(i + i % 17 - 8), "sum %d is %g", i, y[i]);
    canary_check(y, N * sizeof *y);
    t.ops->free(t.b, x, N * sizeof *x + CANARY);
    t.ops->free(t.b, y, N * sizeof *y + CANARY);
    net_close(&t);
}
END_TEST

/* A selection for other vectors than the machine's is refused: its layouts would be read wrongly. */
START_TEST(other_isa_refused)
{
    struct net t;
    struct err e = {0};
    net_open(&t, op_graph_chain("16x2x2; relu"), 1);
    struct device other = t.dev;
    other.block = t.dev.block == 16 ? 8 : 16;
    struct selection *s = select_make(t.g, &other, 1, &e);
    struct be *b = NULL;
    ck_assert(s && t.ops->open(s, 1, 0, &b, &e) == -1);
    ck_assert_int_eq(e.code, E_DEVICE);
    select_free(s);
    net_close(&t);
}
END_TEST

int main(void)
{
    int n_ops = 0;
    while (op_list[n_ops]) n_ops++;
    TCase *c = suite_case("kernels", 300);
    suite_loop(c, operator_examples, N_ISA * n_ops, EVERY(1) && (!IS_SANITIZED || IN_TURN(N_ISA)));
    suite_loop(c, chains_in_bf16, N_ISA * N_HALF_CHAINS, EVERY(1) && (!IS_SANITIZED || IN_TURN(N_ISA)));
    suite_loop(c, operator_examples_in_bf16, N_ISA * n_ops, EVERY(1) && (!IS_SANITIZED || IN_TURN(N_ISA)));
    suite_loop(c, convolutions, N_ISA_BLOCKED * OP_GRAPH_CONVS, IN_TURN(N_ISA_BLOCKED) && SANITIZED_EVERY(3));
    suite_loop(c, fused_batch_norm, N_ISA * OP_GRAPH_NORMS, IN_TURN(N_ISA));
    suite_loop(c, odd_convolutions, N_ISA * N_ODD_CONVS, IN_TURN(N_ISA));
    suite_loop(c, odd_convolutions_in_bf16, N_ODD_CONVS, EVERY(1));
    suite_loop(c, convolutions_in_bf16, OP_GRAPH_CONVS, EVERY(1));
    suite_loop(c, threads_in_bf16, N_HALF_CHAINS + OP_GRAPH_CONVS, EVERY(1));
    suite_loop(c, threads, n_ops, EVERY(1));
    suite_loop(c, chains_of_threads, N_HALF_CHAINS + N_ODD_CONVS, EVERY(1));
    suite_loop(c, fused_batch_norm_in_bf16, OP_GRAPH_NORMS, EVERY(1));
    suite_loop(c, products_equal, N_PRODUCTS, EVERY(1));
    suite_loop(c, layouts_round_trip, OP_GRAPH_CONVS, EVERY(1));
    tcase_add_test(c, vector_helpers);
    tcase_add_test(c, other_isa_refused);
    return suite_run("onednn", CK_FORK, c);
}
