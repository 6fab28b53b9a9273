/* The GPU's kernels, as in t_kernels.c: functions of one value, products, stochastic depth, adaptive pooling, layer
 * norm. */
#include <math.h>
#include <string.h>
#include "kernels_rig.h"
#include "model/ops/adaptive.h"
#include "model/ops/layer_norm.h"
#include "model/ops/multiply.h"
#include "model/ops/upsample.h"

/* ---- functions of one value ------------------------------------------------------------------ */

/* The derivative may read the output, which is then what `type` holds of it: in the reference, too. */
static void out_round(struct rig_op *o, enum ktype type)
{
    size_t n = (size_t)o->c.n * (size_t)(o->channels * o->points);
    for (size_t i = 0; i < n; i++) ((float *)o->c.out)[i] = rig_round(type, ((float *)o->c.out)[i]);
    o->node->op->backward_data(&o->c);
}

static void unary(const struct op_kind *op, const char *example, enum ktype type, bool acc)
{
    struct rig_op o;
    rig_op_open(&o, op->name, example, type, 3);
    int64_t c = o.channels, points = o.points;
    const struct k_unary k = {type, op->unary, unary_attr(o.node), (size_t)(3 * c * points)};
    void *x = rig_last(type, o.c.in[0], 3, c, points), *y = rig_last(type, o.c.in[0], 3, c, points);
    OK(k_unary(NULL, &k, y, y));
    rig_check(type, y, o.c.out, NULL, 3, c, points, 2);
    out_round(&o, type);
    void *v = rig_last(type, op->need_b & NEED_OUT ? o.c.out : o.c.in[0], 3, c, points),
         *gy = rig_last(type, o.c.gout, 3, c, points);
    float *old = rig_normals(type, 70, (size_t)(3 * c * points));
    void *gx = rig_place(type, old, acc, 3, c, points);
    OK(k_unary_back(NULL, &k, v, &(struct k_grad){gy, gx, acc}));
    rig_check(type, gx, o.c.gin[0], acc ? old : NULL, 3, c, points, 2);
    free(x), free(v), free(gy), free(old);
    rig_op_close(&o);
}

/* _i: type, adding, values among them that are no numbers, or infinite. */
START_TEST(functions)
{
    rig_odd(_i >> 2);
    for (int way = 0; way < 2; way++) {
        rig_way(way);
        for (int i = 0; op_list[i]; i++) {
            if (op_list[i]->category != OP_UNARY) continue;
            for (const char *const *e = op_list[i]->examples; *e; e++) unary(op_list[i], *e, TYPE(_i), ACC(_i));
            unary(op_list[i], "33x7x5", TYPE(_i), ACC(_i));
        }
        unary(op_find("gelu"), "40x9 tanh=yes", TYPE(_i), ACC(_i));
        unary(op_find("leaky_relu"), "40x9 slope=0.2", TYPE(_i), ACC(_i));
    }
}
END_TEST

/* ---- products -------------------------------------------------------------------------------- */

static void multiply(const char *example, enum ktype type, bool acc)
{
    struct rig_op o;
    rig_op_open(&o, "multiply", example, type, 3);
    int64_t c = o.channels, points = o.points, of[2] = {points, rig_in_points(&o, 1)};
    bool each = factors_of(o.g, o.node, 1).points > 1;
    const struct k_shape s = {type, 3, points, (int)c};
    size_t n = (size_t)(3 * c * points);
    void *in[2], *y = rig_new(type, n), *gy = rig_last(type, o.c.gout, 3, c, points);
    for (int k = 0; k < 2; k++) in[k] = rig_last(type, o.c.in[k], 3, c, of[k]);
    OK(each ? k_scale(NULL, &s, in[0], in[1], y) : k_multiply(NULL, type, n, in[0], in[1], y));
    rig_check(type, y, o.c.out, NULL, 3, c, points, 0);
    for (int k = 0; k < 2; k++) {
        float *old = rig_normals(type, 70, (size_t)(3 * c * of[k]));
        const struct k_grad g = {gy, rig_place(type, old, acc, 3, c, of[k]), acc};
        if (!each) OK(k_multiply_back(NULL, type, n, in[1 - k], &g));
        else OK(k ? k_dot_back(NULL, &s, in[0], &g) : k_scale_back(NULL, &s, in[1], &g));
        rig_check(type, g.gx, o.c.gin[k], acc ? old : NULL, 3, c, of[k], 2);
        free(old);
    }
    free(in[0]), free(in[1]), free(gy);
    rig_op_close(&o);
}

static void weigh(const char *example, enum ktype type, bool acc)
{
    struct rig_op o;
    rig_op_open(&o, "scale", example, type, 3);
    const struct k_shape s = {type, 3, o.points, (int)o.channels};
    size_t n = (size_t)(3 * o.channels * o.points), room = k_weigh_work(&s) / 4;
    void *x = rig_last(type, o.c.in[0], 3, o.channels, o.points), *y = rig_new(type, n),
         *gy = rig_last(type, o.c.gout, 3, o.channels, o.points), *work = rig_new(K_F32, room);
    float *old = rig_normals(type, 70, n);
    OK(k_weigh(NULL, &s, x, o.c.param[0], y));
    rig_check(type, y, o.c.out, NULL, 3, o.channels, o.points, 0);
    const struct k_grad g = {gy, rig_place(type, old, acc, 3, o.channels, o.points), acc};
    OK(k_weigh_back(NULL, &s, o.c.param[0], &g));
    rig_check(type, g.gx, o.c.gin[0], acc ? old : NULL, 3, o.channels, o.points, 2);
    const struct k_grad w = {gy, rig_place(K_F32, old, acc, 1, o.channels, 1), acc};
    OK(k_weigh_weights(NULL, &s, x, &w, work));
    rig_check(K_F32, w.gx, o.c.pgrad[0], acc ? old : NULL, 1, o.channels, 1, 4);
    rig_guard(K_F32, work, room);
    free(x), free(gy), free(work), free(old);
    rig_op_close(&o);
}

START_TEST(products)
{
    rig_odd(_i >> 2);
    for (int way = 0; way < 2; way++) {
        rig_way(way);
        for (const char *const *e = op_find("multiply")->examples; *e; e++) multiply(*e, TYPE(_i), ACC(_i));
        multiply("64x5x5 + 64x1x1", TYPE(_i), ACC(_i));
        multiply("33x9x7 + 33x9x7", TYPE(_i), ACC(_i));
        for (const char *const *e = op_find("scale")->examples; *e; e++) weigh(*e, TYPE(_i), ACC(_i));
        weigh("24x17x9", TYPE(_i), ACC(_i));
    }
}
END_TEST

/* ---- stochastic depth, adaptive pooling, other numbers of points ----------------------------- */

static int call(const struct rig_op *o, enum ktype type, const void *x, void *y, const struct k_grad *g)
{
    if (strcmp(o->node->op->name, "stochastic_depth") == 0) {
        const struct k_mask m = {{type, o->c.n, o->points, (int)o->channels}, o->node->attr[0].r, 0, &o->block,
                                 o->sample};
        return g ? k_depth(NULL, &m, g->gy, g->gx, g->acc) : k_depth(NULL, &m, x, y, false);
    }
    if (strcmp(o->node->op->name, "upsample") == 0) {
        const struct upsample u = upsample_of(o->g, o->node, o->c.n, 1);
        const struct k_shape s = {type, o->c.n, o->points, (int)o->channels};
        return g ? k_upsample_back(NULL, &s, &u, g) : k_upsample(NULL, &s, &u, x, y);
    }
    const struct adaptive a = adaptive_of(o->g, o->node, o->c.n);
    struct k_adaptive w = {.type = type, .n = o->c.n, .c = (int)o->channels};
    for (int d = 0; d < 3; d++) w.in[d] = (int)a.in[d], w.out[d] = (int)a.out[d];
    return g ? k_adaptive_pool_back(NULL, &w, g) : k_adaptive_pool(NULL, &w, x, y);
}

static void single(const char *op, const char *example, enum ktype type, bool acc)
{
    struct rig_op o;
    rig_op_open(&o, op, example, type, 4);
    int64_t c = o.channels, points = rig_in_points(&o, 0);
    void *x = rig_last(type, o.c.in[0], 4, c, points), *y = rig_new(type, (size_t)(4 * c * o.points)),
         *gy = rig_last(type, o.c.gout, 4, c, o.points);
    OK(call(&o, type, x, y, NULL));
    rig_check(type, y, o.c.out, NULL, 4, c, o.points, 2);
    float *old = rig_normals(type, 70, (size_t)(4 * c * points));
    void *gx = rig_place(type, old, acc, 4, c, points);
    OK(call(&o, type, NULL, NULL, &(struct k_grad){gy, gx, acc}));
    rig_check(type, gx, o.c.gin[0], acc ? old : NULL, 4, c, points, 3);
    free(x), free(gy), free(old);
    rig_op_close(&o);
}

START_TEST(depth_and_resizing)
{
    static const char *const ops[] = {"stochastic_depth", "adaptive_avg_pool", "upsample"};
    rig_odd(_i >> 2);
    for (int way = 0; way < 2; way++) {
        rig_way(way);
        for (int k = 0; k < 3; k++)
            for (const char *const *e = op_find(ops[k])->examples; *e; e++) single(ops[k], *e, TYPE(_i), ACC(_i));
        single("stochastic_depth", "24x5x5 p=0.5", TYPE(_i), ACC(_i));
        single("adaptive_avg_pool", "40x13x9 size=7x4", TYPE(_i), ACC(_i));
        single("adaptive_avg_pool", "9x2x2 size=7", TYPE(_i), ACC(_i));
        single("upsample", "24x5x9 linear=yes", TYPE(_i), ACC(_i));
        single("upsample", "24x13x9 size=40x4 linear=yes align_corners=yes", TYPE(_i), ACC(_i));
    }
}
END_TEST

/* ---- layer norm ------------------------------------------------------------------------------ */

static void layer_norm(const char *example, enum ktype type, bool acc)
{
    struct rig_op o;
    rig_op_open(&o, "layer_norm", example, type, 5);
    int64_t c = o.channels, points = o.points, rows = 5 * points;
    const bool biased = layer_norm_biased(o.node);
    const struct k_layer_norm k = {type, rows, (int)c, layer_norm_eps(o.node), o.c.param[0],
                                   biased ? o.c.param[1] : NULL};
    size_t n = (size_t)(rows * c), room = k_layer_norm_work(rows, (int)c) / 4;
    void *x = rig_last(type, o.c.in[0], 5, c, points), *y = rig_new(type, n),
         *gy = rig_last(type, o.c.gout, 5, c, points);
    float *saved = rig_new(K_F32, (size_t)rows * 2), *old = rig_normals(type, 70, n);
    OK(k_layer_norm(NULL, &k, x, y, saved));
    for (int64_t i = 0; i < 2 * rows; i++)
        ck_assert_float_eq_tol(saved[i], ((float *)o.c.saved)[i], 1e-6f * (1 + fabsf(((float *)o.c.saved)[i])));
    rig_check(type, y, o.c.out, NULL, 5, c, points, 2);
    void *gx = rig_place(type, old, acc, 5, c, points);
    OK(k_layer_norm_back(NULL, &k, x, &(struct k_grad){gy, gx, acc}, saved));
    rig_check(type, gx, o.c.gin[0], acc ? old : NULL, 5, c, points, 4);
    float *gp[2] = {NULL};
    void *work = rig_new(K_F32, room);
    for (int i = 0; i < 1 + biased; i++) gp[i] = rig_place(K_F32, old, acc, 1, c, 1);
    OK(k_layer_norm_weights(NULL, &k, &(struct k_layer_norm_grad){x, gy, saved, gp[0], gp[1], acc, work}));
    for (int i = 0; i < 1 + biased; i++) rig_check(K_F32, gp[i], o.c.pgrad[i], acc ? old : NULL, 1, c, 1, 16);
    rig_guard(K_F32, work, room);
    free(x), free(gy), free(saved), free(old), free(work);
    rig_op_close(&o);
}

/* _i: type, adding. */
START_TEST(layer_norms)
{
    rig_odd(false);
    for (int way = 0; way < 2; way++) {
        rig_way(way);
        for (const char *const *e = op_find("layer_norm")->examples; *e; e++) layer_norm(*e, TYPE(_i), ACC(_i));
        layer_norm("300x11", TYPE(_i), ACC(_i));
        layer_norm("12x17x31", TYPE(_i), ACC(_i));
    }
}
END_TEST

int main(void)
{
    TCase *t = suite_case("kernels_unary", 60);
    tcase_add_loop_test(t, functions, 0, 8);
    tcase_add_loop_test(t, products, 0, 8);
    tcase_add_loop_test(t, depth_and_resizing, 0, 8);
    tcase_add_loop_test(t, layer_norms, 0, 4);
    return suite_run("kernels_unary", CK_FORK, t);
}
