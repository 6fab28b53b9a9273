/* The reference kernels, the oracle of every other backend: results calculated by hand on small whole numbers,
 * derivatives against finite differences, and the contract of op.h for every operator (what a call reads, that it
 * overwrites, that samples are independent). */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "base/rng.h"
#include "op_graphs.h"
#include "model/ops/batch_norm.h"
#include "sure.h"

/* ---- one operator as a graph ----------------------------------------------------------------- */

/* One call of that operator with memory of its own. */
struct one {
    struct graph *g;
    const struct node *node;
    const struct op_kind *op;
    /* everything set; calls get copies with only what they may read */
    struct op_call c;
    struct be_block block;
    int64_t sample[16];
};

static size_t in_count(const struct one *o, int k)
{
    return (size_t)o->c.n * (size_t)shape_count(&o->g->tensor[o->node->in[k]].shape);
}
static size_t outs_count(const struct one *o, int k)
{
    return (size_t)o->c.n * (size_t)shape_count(&o->g->tensor[o->node->outs[k]].shape);
}
static size_t param_count(const struct one *o, int k)
{
    return (size_t)shape_count(&o->g->param[o->node->param[k]].shape);
}
static bool has_grad(const struct one *o, int k) { return op_grad_in(o->op) >> k & 1; }
static bool trained(const struct one *o, int k) { return o->g->param[o->node->param[k]].kind == PARAM_WEIGHT; }

static void *nans(size_t n)
{
    float *x = mem_alloc(n * sizeof *x);
    for (size_t i = 0; i < n; i++) x[i] = NAN;
    return x;
}

static void one_open(struct one *o, const char *op, const char *example, int n)
{
    memset(o, 0, sizeof *o);
    o->g = op_graph_example(op_find(op), example);
    o->node = &o->g->node[0];
    o->op = o->node->op;
    o->block = (struct be_block){.inv_weight = 1.0 / n, .seed = 77, .step = 3};
    o->c = (struct op_call){.g = o->g, .node = o->node, .n = n, .train = true, .block = &o->block, .sample = o->sample};
    for (int i = 0; i < 16; i++) o->sample[i] = 100 + 7 * i;
    for (int k = 0; k < o->node->n_in; k++) {
        const int first = op_graph_first(o->node, k);
        o->c.in[k] = first < k ? o->c.in[first]
                               : mem_alloc(in_count(o, k) * dtype_bytes(o->g->tensor[o->node->in[k]].type));
        if (has_grad(o, k)) o->c.gin[k] = nans(in_count(o, k));
    }
    bool f64 = o->g->tensor[o->node->out].type == F64;
    for (int k = 0; k < o->node->n_out; k++) {
        o->c.outs[k] = nans(outs_count(o, k) * (f64 ? 2 : 1));
        o->c.gouts[k] = o->op->rows ? NULL : nans(outs_count(o, k));
    }
    o->c.saved = o->op->saved_bytes ? mem_alloc(o->op->saved_bytes(o->g, o->node, n)) : NULL;
    for (int k = 0; k < o->node->n_param; k++) {
        o->c.param[k] = mem_alloc(param_count(o, k) * 8);
        if (trained(o, k)) o->c.pgrad[k] = nans(param_count(o, k));
    }
}

static void one_close(struct one *o)
{
    for (int k = 0; k < o->node->n_in; k++) {
        if (op_graph_first(o->node, k) == k) free((void *)(uintptr_t)o->c.in[k]);
        free(o->c.gin[k]);
    }
    for (int k = 0; k < MAX_PARAM; k++) { free(o->c.param[k]); free(o->c.pgrad[k]); }
    for (int k = 0; k < MAX_OUT; k++) { free(o->c.outs[k]); free((void *)(uintptr_t)o->c.gouts[k]); }
    free(o->c.saved);
    graph_free(o->g);
}

/* Random values. The operators with kinks get numbers at least 0.5 apart from each other and 0.25 from zero, so that no
 * step crosses a kink; whole makes small whole numbers, with which sums are exact. */
static void values(float *x, size_t n, uint32_t stream, bool spaced, bool whole)
{
    rng_fill_normal((struct rng_at){5, RNG_TEST, stream}, x, n);
    for (size_t i = 0; i < n; i++) {
        if (spaced) x[i] = (float)((double)rng_permute(stream, 1, i, n) - (double)(n / 2)) * 0.5f + 0.25f;
        else if (whole) x[i] = rintf(2 * x[i]);
    }
}

static void one_fill(struct one *o, bool whole)
{
    bool spaced = o->op->category == OP_RELU || o->op->category == OP_UNARY || !strcmp(o->op->name, "max_pool") ||
                  !strcmp(o->op->name, "prelu");
    for (int k = 0; k < o->node->n_in; k++) {
        void *x = (void *)(uintptr_t)o->c.in[k];
        size_t n = in_count(o, k);
        if (o->g->tensor[o->node->in[k]].type != F32) op_graph_integers(o->g, o->node->in[k], 3, n, x);
        else values(x, n, 10 + (uint32_t)k, spaced, whole);
    }
    for (int k = 0; k < o->node->n_out && o->c.gouts[k]; k++)
        values((float *)(uintptr_t)o->c.gouts[k], outs_count(o, k), 20 + (uint32_t)k, false, whole);
    for (int k = 0; k < o->node->n_param; k++)
        if (trained(o, k)) values(o->c.param[k], param_count(o, k), 30 + (uint32_t)k, false, whole);
}

static void forward(struct one *o)
{
    struct op_call c = o->c;
    memset(c.gouts, 0, sizeof c.gouts);
    memset(c.gin, 0, sizeof c.gin);
    memset(c.pgrad, 0, sizeof c.pgrad);
    o->op->forward(&c);
}

/* Backward with NULL in place of everything that the operator did not ask for. */
static struct op_call narrowed(const struct one *o, uint32_t need)
{
    struct op_call c = o->c;
    for (int k = 0; k < o->node->n_in; k++) if (!(need >> k & 1)) c.in[k] = NULL;
    if (!(need & NEED_OUT)) memset(c.outs, 0, sizeof c.outs);
    if (!(need & NEED_SAVED)) c.saved = NULL;
    memset(c.gin, 0, sizeof c.gin);
    memset(c.pgrad, 0, sizeof c.pgrad);
    return c;
}

static void backward_b(struct one *o)
{
    struct op_call c = narrowed(o, o->op->need_b);
    memcpy(c.gin, o->c.gin, sizeof c.gin);
    for (int k = 0; k < o->node->n_param; k++) if (o->op->pgrad_in_b >> k & 1) c.pgrad[k] = o->c.pgrad[k];
    if (o->op->backward_data) o->op->backward_data(&c);
}

static void backward_w(struct one *o)
{
    struct op_call c = narrowed(o, o->op->need_w);
    for (int k = 0; k < o->node->n_param; k++) if (op_pgrad_in_w(o->op) >> k & 1) c.pgrad[k] = o->c.pgrad[k];
    if (o->op->backward_weights) o->op->backward_weights(&c);
}

/* Opened, filled, forward and backward. */
static void one_run(struct one *o, const struct op_kind *op, const char *example, int n, bool whole)
{
    one_open(o, op->name, example, n);
    one_fill(o, whole);
    forward(o);
    backward_b(o);
    backward_w(o);
}

/* ---- by hand --------------------------------------------------------------------------------- */

struct hand { const char *op, *example; double in[2][12], param[2][8], out[9]; };
static const struct hand by_hand[] = {
    {"conv", "1x3x3 channels=1 kernel=2", {{1, 2, 3, 4, 5, 6, 7, 8, 9}}, {{1, 2, 3, 4}, {10}}, {47, 57, 77, 87}},
    {"conv",
     "1x5 channels=1 kernel=2 dilation=2 stride=2 padding=1 bias=no",
     {{1, 2, 3, 4, 5}},
     {{1, 10}},
     {20, 42, 4}},
    {"conv", "2x1x2 channels=2 kernel=1 groups=2 bias=no", {{1, 2, 3, 4}}, {{3, 5}}, {3, 6, 15, 20}},
    {"conv", "2x2 channels=2 kernel=1", {{1, 2, 3, 4}}, {{1, 10, 2, 20}, {100, 200}}, {131, 142, 262, 284}},
    {"conv", "1x2x2x2 channels=1 kernel=2 bias=no", {{1, 2, 3, 4, 5, 6, 7, 8}}, {{1, 2, 3, 4, 5, 6, 7, 8}}, {204}},
    {"conv", "1x1x3 channels=1 kernel=1x3 padding=0x1 bias=no", {{1, 2, 3}}, {{1, 10, 100}}, {210, 321, 32}},
    {"linear", "3 features=2", {{1, 2, 3}}, {{1, 0, -1, 2, 1, 0}, {5, -1}}, {3, 3}},
    {"relu", "4", {{-1, 0, 2, -0.5}}, {{0}}, {0, 0, 2, 0}},
    {"add", "2 + 2", {{1, 2}, {10, 20}}, {{0}}, {11, 22}},
    {"concat", "1x2 + 2x2", {{1, 2}, {3, 4, 5, 6}}, {{0}}, {1, 2, 3, 4, 5, 6}},
    /* as in PyTorch, the stride is the kernel */
    {"max_pool", "1x4x2 kernel=2", {{1, 2, 3, 4, 5, 8, 7, 6}}, {{0}}, {4, 8}},
    {"max_pool", "1x2x6 kernel=1x3", {{1, 2, 3, 4, 5, 6, 9, 8, 7, 6, 5, 4}}, {{0}}, {3, 6, 9, 6}},
    {"avg_pool", "1x6 kernel=3", {{1, 2, 3, 10, 20, 30}}, {{0}}, {2, 20}},
    {"max_pool", "1x3x3 kernel=2 stride=1", {{1, 2, 3, 4, 9, 6, 7, 8, 5}}, {{0}}, {9, 9, 9, 9}},
    {"max_pool", "1x3x3 kernel=3 stride=2 padding=1", {{-1, -2, -3, -4, -5, -6, -7, -8, -9}}, {{0}}, {-1, -2, -4, -5}},
    {"avg_pool", "1x2x2 kernel=2 stride=2 padding=1", {{4, 8, 12, 16}}, {{0}}, {1, 2, 3, 4}},
    {"avg_pool", "1x4 kernel=2 stride=2", {{1, 3, 5, 9}}, {{0}}, {2, 7}},
    {"global_avg_pool", "2x2x2", {{1, 2, 3, 4, 5, 6, 7, 8}}, {{0}}, {2.5, 6.5}},
    {"flatten", "2x1x2", {{1, 2, 3, 4}}, {{0}}, {1, 2, 3, 4}},
    /* mean 0, variance 3, sqrt(3 + 1) = 2 */
    {"batch_norm", "1x4 eps=1", {{-3, 1, 1, 1}}, {{2}, {1}}, {-2, 2, 2, 2}},
    {"mse", "4 + vector", {{1, 2, 3, 6}, {0, 2, 5, 6}}, {{0}}, {1.25, 1, 1}},
    /* the right one comes sixth */
    {"mse", "6 + vector", {{5, 4, 3, 2, 1, 0}, {5, 4, 3, 2, 1, 9}}, {{0}}, {13.5, 0, 0}},
    {"mse", "6 + vector", {{5, 4, 3, 2, 1, 0}, {2, 2, 3, 2, 9, 0}}, {{0}}, {12.833333333333334, 0, 1}},
    {"mean_absolute_error", "4 + vector", {{1, 2, 3, -6}, {0, 2, 5, 6}}, {{0}}, {3.75}},
    {"mean_absolute_error", "1x2 + vector", {{1, -2}, {3, -1}}, {{0}}, {1.5}},
};

START_TEST(results_by_hand)
{
    const struct hand *h = &by_hand[_i];
    struct one o;
    one_open(&o, h->op, h->example, 1);
    for (int k = 0; k < o.node->n_in; k++)
        for (size_t i = 0; i < in_count(&o, k); i++) ((float *)(uintptr_t)o.c.in[k])[i] = (float)h->in[k][i];
    for (int k = 0; k < o.node->n_param && k < 2; k++)
        for (size_t i = 0; i < param_count(&o, k); i++) ((float *)o.c.param[k])[i] = (float)h->param[k][i];
    forward(&o);
    for (size_t i = 0; i < outs_count(&o, 0); i++) {
        double y = o.op->rows ? ((double *)o.c.out)[i] : ((float *)o.c.out)[i];
        ck_assert_msg(y == h->out[i], "%s %s: result %zu is %.17g, not %.17g", h->op, h->example, i, y, h->out[i]);
    }
    one_close(&o);
}
END_TEST

/* Class labels, ties between outputs, and outputs that are no numbers. */
START_TEST(losses_of_classes)
{
    struct one o;
    double *out;
    float *x;
    int64_t *cls;
    one_open(&o, "softmax_cross_entropy", "7 + class", 4);
    x = (float *)(uintptr_t)o.c.in[0]; cls = (int64_t *)(uintptr_t)o.c.in[1]; out = o.c.out;
    for (int i = 0; i < 7; i++) { x[7 + i] = (float)-i; x[14 + i] = (float)-i; x[21 + i] = i == 3 ? NAN : 1; }
    cls[0] = 0; cls[1] = 4; cls[2] = 5; cls[3] = 3;
    forward(&o);
    /* seven equal outputs; the first wins the tie. Tolerance: one rounding of exp and log each */
    ck_assert_double_eq_tol(out[0], log(7), 1e-15);
    ck_assert(out[1] == 1 && out[2] == 1);
    ck_assert(out[3 + 1] == 0 && out[3 + 2] == 1 && out[6 + 1] == 0 && out[6 + 2] == 0);
    ck_assert(isnan(out[9]) && out[9 + 1] == 0 && out[9 + 2] == 0);
    backward_b(&o);
    ck_assert_float_eq(o.c.gin[0] ? ((float *)o.c.gin[0])[1] : 0, (float)(1.0 / 7 / 4));
    ck_assert_float_eq(((float *)o.c.gin[0])[0], (float)((1.0 / 7 - 1) / 4));
    one_close(&o);
    one_open(&o, "mse", "3 + class", 1);
    x = (float *)(uintptr_t)o.c.in[0]; cls = (int64_t *)(uintptr_t)o.c.in[1]; out = o.c.out;
    x[0] = 1; x[1] = 2; x[2] = 4; cls[0] = 1;
    forward(&o);
    ck_assert(out[0] == 6 && out[1] == 0 && out[2] == 1);  /* (1 + 1 + 16) / 3 */
    o.block.inv_weight = 0.75;
    backward_b(&o);
    ck_assert(((float *)o.c.gin[0])[0] == 0.5f && ((float *)o.c.gin[0])[1] == 0.5f && ((float *)o.c.gin[0])[2] == 2);
    one_close(&o);
}
END_TEST

/* Numbers of torch.nn.functional.cross_entropy(label_smoothing=0.1) in double precision, PyTorch 1.13. */
START_TEST(smoothed_targets_are_torchs)
{
    static const struct { const char *example; float vec[5]; double loss, grad[5]; } want[] = {
        {"5 + class smoothing=0.1", {0}, 1.5519143959375934,
         {.06612854443626871, .6164086465588308, -.6858783427472634, -.008343769043960392, .011684920796124269}},
        {"5 + vector smoothing=0.1", {.5f, .25f, 0, 0, .25f}, 2.226914395937593,
         {-.3838714555637313, .3914086465588308, .21412165725273663, -.008343769043960392, -.2133150792038757}},
    };
    for (int i = 0; i < 2; i++) {
        static const float x[] = {1, 3, 2, -1, 0};
        struct one o;
        one_open(&o, "softmax_cross_entropy", want[i].example, 1);
        memcpy((float *)(uintptr_t)o.c.in[0], x, sizeof x);
        if (i) memcpy((float *)(uintptr_t)o.c.in[1], want[i].vec, sizeof want[i].vec);
        else *(int64_t *)(uintptr_t)o.c.in[1] = 2;
        o.block.inv_weight = 1;
        forward(&o);
        ck_assert_double_eq_tol(*(double *)o.c.out, want[i].loss, 1e-12);
        backward_b(&o);
        for (int k = 0; k < 5; k++)                      /* gradients are floats */
            ck_assert_double_eq_tol(((float *)o.c.gin[0])[k], want[i].grad[k], 1e-7);
        one_close(&o);
    }
}
END_TEST

/* Two samples of three indices, the last two of which name no row. */
START_TEST(embedding_by_hand)
{
    static const int64_t index[6] = {2, 0, 2, 1, -1, 3};
    static const float table[6] = {1, 2, 3, 4, 5, 6}, want[12] = {5, 1, 5, 6, 2, 6, 3, NAN, NAN, 4, NAN, NAN},
                       grad[6] = {20, 50, 70, 100, 40, 100};
    struct one o;
    one_open(&o, "embedding", "3 I64 count=3 features=2", 2);
    memcpy((void *)(uintptr_t)o.c.in[0], index, sizeof index);
    memcpy(o.c.param[0], table, sizeof table);
    forward(&o);
    for (int i = 0; i < 12; i++) {
        float y = ((float *)o.c.out)[i];
        ck_assert_msg(isnan(want[i]) ? isnan(y) : y == want[i], "result %d is %g, not %g", i, (double)y, want[i]);
        ((float *)(uintptr_t)o.c.gout)[i] = (float)(10 * (i + 1));
    }
    backward_w(&o);
    ck_assert_mem_eq(o.c.pgrad[0], grad, sizeof grad);
    one_close(&o);
}
END_TEST

/* Contributions to a row that cancel in one order alone: first by samples, then by positions. */
START_TEST(embedding_adds_in_order)
{
    static const float terms[6] = {0x1p30f, 1, -0x1p30f, 1, -1, 0x1p-30f};
    struct one o;
    one_open(&o, "embedding", "3 I32 count=2 features=1", 2);
    memset((void *)(uintptr_t)o.c.in[0], 0, 6 * sizeof(int32_t));
    memcpy((void *)(uintptr_t)o.c.gout, terms, sizeof terms);
    backward_w(&o);
    ck_assert_float_eq(((float *)o.c.pgrad[0])[0], 0x1p-30f);
    ck_assert_float_eq(((float *)o.c.pgrad[0])[1], 0);
    one_close(&o);
}
END_TEST

START_TEST(relu_shows_what_is_no_number)
{
    struct one o;
    one_open(&o, "relu", "2", 1);
    ((float *)(uintptr_t)o.c.in[0])[0] = NAN;
    ((float *)(uintptr_t)o.c.in[0])[1] = -0.0f;
    forward(&o);
    ck_assert(isnan(((float *)o.c.out)[0]) && ((float *)o.c.out)[1] == 0 && !signbit(((float *)o.c.out)[1]));
    one_close(&o);
}
END_TEST

/* ---- derivatives ----------------------------------------------------------------------------- */

static double objective(struct one *o)
{
    double sum = 0;
    forward(o);
    if (o->op->rows) {
        const int64_t columns = o->g->tensor[o->node->out].shape.d[0];
        for (int n = 0; o->op->is_loss && n < o->c.n; n++)
            sum += ((double *)o->c.out)[columns * n] * o->block.inv_weight;
        return sum;
    }
    for (int k = 0; k < o->node->n_out; k++)
        for (size_t i = 0; i < outs_count(o, k); i++)
            sum += (double)((float *)o->c.outs[k])[i] * ((const float *)o->c.gouts[k])[i];
    return sum;
}

/* Richardson's step: central differences at h and 2h cancel the error of second order. */
static double difference(struct one *o, float *x, float h)
{
    static const float at[] = {1, -1, 2, -2};
    static const double weight[] = {8, -8, -1, 1};
    double sum = 0;
    float keep = *x;
    for (int i = 0; i < 4; i++) {
        *x = keep + at[i] * h;
        sum += weight[i] * objective(o);
    }
    *x = keep;
    return sum / (12 * (double)h);
}

/* Float results are rounded to 2^-24 of themselves; the difference of a sum of m of them, each about s large, errs by
 * about 1.5 s 2^-24 sqrt(m) / h, below 5e-5 for s = 10, m = 300, h = 1/16. Beyond it, Richardson's step leaves h^4
 * times the fifth derivative / 30, which counts for batch norm over few values alone. An error in a formula shows as a
 * difference of the gradient's own size. */
static void compare(struct one *o, float *x, const float *grad, size_t n, const char *what)
{
    double scale = 0;
    for (size_t i = 0; i < n; i++) scale = fmax(scale, fabs(grad[i]));
    for (size_t k = 0; k < n && k < 40; k++) {
        size_t i = n <= 40 ? k : rng_permute(9, 0, k, n);
        double d = difference(o, &x[i], 0x1p-4f), tolerance = 3e-4 + 1e-4 * scale;
        sure(fabs(d - grad[i]) <= tolerance, "%s: %s %zu: gradient %g, difference %g", o->op->name, what, i, grad[i],
             d);
    }
}

START_TEST(gradients_are_derivatives)
{
    const struct op_kind *op = op_list[_i];
    for (const char *const *s = op->examples; *s; s++) {
        struct one o;
        one_run(&o, op, *s, 3, false);
        for (int k = 0; k < o.node->n_in; k++) {
            if (!has_grad(&o, k) || op_graph_first(o.node, k) < k) continue;
            for (int j = k + 1; j < o.node->n_in; j++)   /* of the same tensor: one derivative */
                for (size_t i = 0; op_graph_first(o.node, j) == k && i < in_count(&o, k); i++)
                    ((float *)o.c.gin[k])[i] += ((float *)o.c.gin[j])[i];
            compare(&o, (float *)(uintptr_t)o.c.in[k], o.c.gin[k], in_count(&o, k), "input");
        }
        for (int k = 0; k < o.node->n_param; k++) {
            if (!trained(&o, k)) continue;
            compare(&o, o.c.param[k], o.c.pgrad[k], param_count(&o, k), "parameter");
        }
        one_close(&o);
    }
}
END_TEST

/* ---- what op.h promises ---------------------------------------------------------------------- */

static void written(const float *x, size_t n, const char *op)
{
    for (size_t i = 0; i < n; i++) sure(isfinite(x[i]), "%s: element %zu of %zu was not written", op, i, n);
}

START_TEST(outputs_are_overwritten)
{
    const struct op_kind *op = op_list[_i];
    for (const char *const *s = op->examples; *s; s++) {
        struct one o;
        one_run(&o, op, *s, 2, false);
        if (op->rows)
            for (size_t i = 0; i < outs_count(&o, 0); i++)
                sure(isfinite(((double *)o.c.out)[i]), "%s: loss value %zu was not written", op->name, i);
        else for (int k = 0; k < o.node->n_out; k++) written(o.c.outs[k], outs_count(&o, k), op->name);
        for (int k = 0; k < o.node->n_in; k++) if (has_grad(&o, k)) written(o.c.gin[k], in_count(&o, k), op->name);
        for (int k = 0; k < o.node->n_param; k++)
            if (trained(&o, k)) written(o.c.pgrad[k], param_count(&o, k), op->name);
        one_close(&o);
    }
}
END_TEST

/* The part of a batch from sample `first` on, in memory of its own. */
static void part_open(struct one *part, const struct one *all, const char *example, int first, int n)
{
    one_open(part, all->op->name, example, n);
    one_fill(part, true);
    part->block = all->block;
    for (int i = 0; i < n; i++) part->sample[i] = all->sample[first + i];
    for (int k = 0; k < all->node->n_in; k++) {
        size_t bytes = in_count(part, k) / (size_t)n * dtype_bytes(all->g->tensor[all->node->in[k]].type);
        memcpy((void *)(uintptr_t)part->c.in[k], (const char *)all->c.in[k] + (size_t)first * bytes, (size_t)n * bytes);
    }
    for (int k = 0; k < all->node->n_out && all->c.gouts[k]; k++) {
        size_t floats = outs_count(part, k) / (size_t)n;
        memcpy((void *)(uintptr_t)part->c.gouts[k], (const float *)all->c.gouts[k] + (size_t)first * floats,
               (size_t)n * floats * sizeof(float));
    }
    for (int k = 0; k < all->node->n_param; k++)
        memcpy(part->c.param[k], all->c.param[k],
               param_count(all, k) * dtype_bytes(all->g->param[all->node->param[k]].type));
}

/* Samples do not know each other, batch norm and caches aside: eight at once, or five and three, give the same bits.
 * Sums over samples, the weight gradients, are exact on small whole numbers, but for those of norms and losses. */
START_TEST(samples_are_independent)
{
    const struct op_kind *op = op_list[_i];
    static const int first[] = {0, 5}, count[] = {5, 3};
    const bool apart = strcmp(op->name, "batch_norm") && strcmp(op->name, "cached_attention");
    for (const char *const *s = op->examples; *s && apart; s++) {
        struct one all, part;
        float *sum[MAX_PARAM] = {NULL};
        one_run(&all, op, *s, 8, true);
        for (int k = 0; k < all.node->n_param; k++) sum[k] = mem_alloc(param_count(&all, k) * sizeof(float));
        for (int p = 0; p < 2; p++) {
            part_open(&part, &all, *s, first[p], count[p]);
            forward(&part);
            backward_b(&part);
            backward_w(&part);
            for (int k = 0; k < all.node->n_out; k++) {
                size_t bytes = outs_count(&part, k) / (size_t)count[p] * dtype_bytes(all.g->tensor[all.node->out].type);
                const char *want = (char *)all.c.outs[k] + (size_t)first[p] * bytes;
                ck_assert_msg(!memcmp(part.c.outs[k], want, (size_t)count[p] * bytes), "%s %s: outputs", op->name, *s);
            }
            for (int k = 0; k < all.node->n_in; k++) {
                size_t floats = in_count(&part, k) / (size_t)count[p];
                if (has_grad(&all, k))
                    ck_assert_msg(!memcmp(part.c.gin[k], (float *)all.c.gin[k] + (size_t)first[p] * floats,
                                          (size_t)count[p] * floats * 4),
                                  "%s %s: gradients", op->name, *s);
            }
            for (int k = 0; k < all.node->n_param; k++)
                for (size_t i = 0; i < param_count(&all, k); i++) sum[k][i] += ((float *)part.c.pgrad[k])[i];
            one_close(&part);
        }
        for (int k = 0; k < all.node->n_param; k++) {
            for (size_t i = 0; i < param_count(&all, k); i++) {
                float got = sum[k][i], want = ((float *)all.c.pgrad[k])[i];
                const float off = strstr(op->name, "_norm") || op->is_loss ? 1e-5f * (1 + fabsf(want)) : 0;
                sure(fabsf(got - want) <= off, "%s %s: weight gradient %zu", op->name, *s, i);
            }
            free(sum[k]);
        }
        one_close(&all);
    }
}
END_TEST

/* ---- batch norm ------------------------------------------------------------------------------ */

START_TEST(batch_norm_evaluation)
{
    struct one o;
    one_open(&o, "batch_norm", "1x2 eps=1", 1);
    float *x = (float *)(uintptr_t)o.c.in[0];
    x[0] = 4; x[1] = -5;
    *(float *)o.c.param[BN_WEIGHT] = 3;
    *(float *)o.c.param[BN_BIAS] = 10;
    *(float *)o.c.param[BN_MEAN] = 1;
    *(float *)o.c.param[BN_VAR] = 8;
    o.c.train = false;
    forward(&o);
    ck_assert(((float *)o.c.out)[0] == 13 && ((float *)o.c.out)[1] == 4);
    ((float *)(uintptr_t)o.c.gout)[0] = 7; ((float *)(uintptr_t)o.c.gout)[1] = -1;
    backward_b(&o);                                      /* the statistics are constants: 3 / sqrt(8 + 1) */
    ck_assert(((float *)o.c.gin[0])[0] == 7 && ((float *)o.c.gin[0])[1] == -1);
    one_close(&o);
}
END_TEST

/* Two micro-batches of one channel, {-3 1 1 1} and {6 6 6 6}: means 0 and 6, variances 3 and 0; together mean 3,
 * squared deviations 84. */
START_TEST(batch_norm_statistics)
{
    static const struct {
        bool deferred;
        float mean, var;
        int64_t count;
    } want[] = {{false, 3.25f, 3, 2}, {true, 2, 10, 1}};
    for (int m = 0; m < 2; m++) {
        struct one o[2];
        const void *saved[2];
        static const int ns[2] = {1, 1};
        for (int i = 0; i < 2; i++) {
            one_open(&o[i], "batch_norm", "1x4 momentum=0.5", 1);
            float *x = (float *)(uintptr_t)o[i].c.in[0];
            for (int k = 0; k < 4; k++) x[k] = i ? 6 : k ? 1 : -3;
            forward(&o[i]);
            saved[i] = o[i].c.saved;
        }
        float mean = 1, var = 8;
        int64_t count = 5;
        void *param[MAX_PARAM] = {[BN_MEAN] = &mean, [BN_VAR] = &var, [BN_COUNT] = &count};
        o[0].op->stats(&(struct op_stats){o[0].g, o[0].node, want[m].deferred, 2, saved, ns, param});
        ck_assert_msg(mean == want[m].mean && var == want[m].var && count == 5 + want[m].count, "deferred %d: %g %g %d",
                      want[m].deferred, mean, var, (int)count);
        one_close(&o[0]);
        one_close(&o[1]);
    }
}
END_TEST

/* ---- dropout --------------------------------------------------------------------------------- */

static uint64_t dropout_mask(uint64_t seed, uint64_t step, int64_t sample, bool train, int *zeros)
{
    struct one o;
    uint64_t bits = 0;
    one_open(&o, "dropout", "4000 p=0.25", 1);
    o.block.seed = seed;
    o.block.step = step;
    o.sample[0] = sample;
    o.c.train = train;
    for (int i = 0; i < 4000; i++) { ((float *)(uintptr_t)o.c.in[0])[i] = 3; ((float *)(uintptr_t)o.c.gout)[i] = 6; }
    forward(&o);
    backward_b(&o);
    *zeros = 0;
    for (int i = 0; i < 4000; i++) {
        float y = ((float *)o.c.out)[i];
        sure(y == 0 || y == (train ? 4 : 3), "value %d is %g", i, y);
        sure(((float *)o.c.gin[0])[i] == 2 * y, "gradient %d: not the mask and factor of the value", i);
        *zeros += y == 0;
        if (i < 64) bits |= (uint64_t)(y == 0) << i;
    }
    one_close(&o);
    return bits;
}

START_TEST(dropout_masks)
{
    int zeros, none;
    uint64_t mask = dropout_mask(1, 1, 1, true, &zeros);
    ck_assert_int_ge(zeros, 1000 - 137);                 /* 4000 draws of 1/4: five deviations of 27.4 */
    ck_assert_int_le(zeros, 1000 + 137);
    ck_assert(mask == dropout_mask(1, 1, 1, true, &none));
    ck_assert(mask != dropout_mask(2, 1, 1, true, &none) && mask != dropout_mask(1, 2, 1, true, &none) &&
              mask != dropout_mask(1, 1, 2, true, &none));
    dropout_mask(1, 1, 1, false, &none);
    ck_assert_int_eq(none, 0);
}
END_TEST

int main(void)
{
    TCase *c = suite_case("operators", 120);
    int n = 0;
    while (op_list[n]) n++;
    tcase_add_loop_test(c, results_by_hand, 0, (int)(sizeof by_hand / sizeof *by_hand));
    tcase_add_test(c, losses_of_classes);
    tcase_add_test(c, smoothed_targets_are_torchs);
    tcase_add_test(c, embedding_by_hand);
    tcase_add_test(c, embedding_adds_in_order);
    tcase_add_test(c, relu_shows_what_is_no_number);
    tcase_add_loop_test(c, gradients_are_derivatives, 0, n);
    tcase_add_loop_test(c, outputs_are_overwritten, 0, n);
    tcase_add_loop_test(c, samples_are_independent, 0, n);
    tcase_add_test(c, batch_norm_evaluation);
    tcase_add_test(c, batch_norm_statistics);
    tcase_add_test(c, dropout_masks);
    return suite_run("ops_ref", CK_FORK, c);
}
