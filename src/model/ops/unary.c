/* Operators that are functions of one value (unary.h): rows of the table, and reference kernels. */
#include "model/op.h"

/* As fast as memory allows: -O2 does not vectorise loops with an unknown count. The pragma also covers the functions,
 * which could not be inlined into the loops otherwise. */
#pragma GCC optimize("O3", "no-trapping-math")
#include "model/ops/unary.h"

float unary_attr(const struct node *n) { return n->op->attr && n->op->attr[0].name ? (float)n->attr[0].r : 0; }

static const char *const examples[] = {"7", "16x3x3", "3x5", "5x2x2x2", NULL};

#define UNARY_RULE(rule, from, said, ...) \
    static void rule##_loop(float *y, const float *x, size_t n, float a) \
    { \
        for (size_t i = 0; i < n; i++) y[i] = rule##_value(x[i], a); \
    } \
    static void rule##_back(float *gx, const float *v, const float *gy, size_t n, float a) \
    { \
        for (size_t i = 0; i < n; i++) gx[i] = gy[i] * rule##_slope(v[i], a); \
    } \
    static void rule##_forward(const struct op_call *c) \
    { \
        rule##_loop(c->out, c->in[0], (size_t)op_count(c), unary_attr(c->node)); \
    } \
    static void rule##_backward_data(const struct op_call *c) \
    { \
        rule##_back(c->gin[0], (from) == UNARY_FROM_OUTPUT ? c->out : c->in[0], c->gout, \
                    (size_t)op_count(c), unary_attr(c->node)); \
    } \
    static const struct attr_kind rule##_attrs[] = {__VA_ARGS__, {NULL}}; \
    const struct op_kind op_##rule = { \
        .name = #rule, .text = said, .category = OP_UNARY, .unary = UNARY_##rule, .keeps_layout = true, \
        .attr = rule##_attrs, .need_b = (from) == UNARY_FROM_OUTPUT ? NEED_OUT : 1, .forward = rule##_forward, \
        .backward_data = rule##_backward_data, .examples = examples};
#define UNARY_FILES
#include "registry.inc"
