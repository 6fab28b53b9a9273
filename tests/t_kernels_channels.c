/* The GPU's kernels, as in t_kernels.c: those that work on the channels of each point, normalisation of groups of
 * channels, losses and scores of classified points. */
#include <math.h>
#include <string.h>
#include "kernels_rig.h"
#include "model/ops/dice.h"
#include "model/ops/group_norm.h"
#include "model/ops/prelu.h"
#include "model/ops/repeat.h"
#include "model/ops/softmax.h"

static void prelu(const char *example, enum ktype type, bool acc)
{
    struct rig_op o;
    rig_op_open(&o, "prelu", example, type, 3);
    const int64_t c = o.channels, points = o.points;
    const struct k_prelu p = {{type, 3, points, (int)c}, o.c.param[0], prelu_of(o.g, o.node).shared};
    size_t n = (size_t)(3 * c * points), room = k_weigh_work(&p.s) / 4;
    void *x = rig_last(type, o.c.in[0], 3, c, points), *y = rig_new(type, n),
         *gy = rig_last(type, o.c.gout, 3, c, points), *work = rig_new(K_F32, room);
    float *old = rig_normals(type, 70, n);
    OK(k_prelu(NULL, &p, x, y));
    rig_check(type, y, o.c.out, NULL, 3, c, points, 0);
    const struct k_grad g = {gy, rig_place(type, old, acc, 3, c, points), acc};
    OK(k_prelu_back(NULL, &p, x, &g));
    rig_check(type, g.gx, o.c.gin[0], acc ? old : NULL, 3, c, points, 2);
    const int64_t slopes = p.shared ? 1 : c;
    const struct k_grad a = {gy, rig_place(K_F32, old, acc, 1, slopes, 1), acc};
    OK(k_prelu_slopes(NULL, &p, x, &a, work));
    rig_check(K_F32, a.gx, o.c.pgrad[0], acc ? old : NULL, 1, slopes, 1, 4);
    rig_guard(K_F32, work, room);
    free(x), free(gy), free(work), free(old);
    rig_op_close(&o);
}

/* Those that have no weights. */
static int call(const struct rig_op *o, enum ktype type, const void *x, void *y, const struct k_grad *g)
{
    const char *op = o->node->op->name;
    const struct k_shape s = {type, o->c.n, rig_in_points(o, 0), (int)rig_in_channels(o, 0)};
    if (strcmp(op, "dropout") == 0) {
        const struct k_mask m = {s, o->node->attr[0].r, 0, &o->block, o->sample};
        return g ? k_channel_dropout(NULL, &m, g->gy, g->gx, g->acc) : k_channel_dropout(NULL, &m, x, y, false);
    }
    if (strcmp(op, "repeat") == 0) {
        const int count = (int)repeat_of(o->g, o->node).count;
        return g ? k_repeat_back(NULL, &s, count, g) : k_repeat(NULL, &s, count, x, y);
    }
    const bool logs = softmax_is_log(o->node);
    return g ? k_softmax_back(NULL, &s, logs, x, g) : k_softmax(NULL, &s, logs, x, y);
}

/* Softmax in bfloat16 has its output for its input backward, which the reference must see as it is stored. */
static void single(const char *op, const char *example, enum ktype type, bool acc)
{
    struct rig_op o;
    rig_op_open(&o, op, example, type, 4);
    const int64_t c = rig_in_channels(&o, 0), points = rig_in_points(&o, 0);
    void *x = rig_last(type, o.c.in[0], 4, c, points), *y = rig_new(type, (size_t)(4 * o.channels * points)),
         *gy = rig_last(type, o.c.gout, 4, o.channels, points), *out = rig_last(type, o.c.out, 4, o.channels, points);
    OK(call(&o, type, x, y, NULL));
    rig_check(type, y, o.c.out, NULL, 4, o.channels, points, 2);
    for (int64_t i = 0; i < 4 * o.channels * points; i++)
        ((float *)o.c.out)[i] = rig_round(type, ((const float *)o.c.out)[i]);
    o.node->op->backward_data(&o.c);
    float *old = rig_normals(type, 70, (size_t)(4 * c * points));
    void *gx = rig_place(type, old, acc, 4, c, points);
    OK(call(&o, type, out, NULL, &(struct k_grad){gy, gx, acc}));
    rig_check(type, gx, o.c.gin[0], acc ? old : NULL, 4, c, points, 3);
    free(x), free(gy), free(out), free(old);
    rig_op_close(&o);
}

/* _i: type, adding, odd values. */
START_TEST(channels)
{
    static const char *const ops[] = {"repeat", "softmax"};
    for (int way = 0; way < 2; way++) {
        rig_way(way);
        rig_odd(_i >> 2);
        for (const char *const *e = op_find("prelu")->examples; *e; e++) prelu(*e, TYPE(_i), ACC(_i));
        prelu("24x17x9", TYPE(_i), ACC(_i));
        prelu("40x12x13 shared=yes value=0", TYPE(_i), ACC(_i));
        for (const char *const *e = op_find("dropout")->examples; *e; e++)
            if (strstr(*e, "channels")) single("dropout", *e, TYPE(_i), ACC(_i));
        single("dropout", "24x5x5 channels=yes", TYPE(_i), ACC(_i));
        rig_odd(false);                                  /* sums of infinities depend on their order */
        for (int k = 0; k < 2; k++)
            for (const char *const *e = op_find(ops[k])->examples; *e; e++) single(ops[k], *e, TYPE(_i), ACC(_i));
        single("repeat", "9x7x5 count=5", TYPE(_i), ACC(_i));
        single("softmax", "33x7x5", TYPE(_i), ACC(_i));
        single("softmax", "33x7x5 log=yes", TYPE(_i), ACC(_i));
    }
}
END_TEST

/* ---- groups of channels ---------------------------------------------------------------------- */

static void group_norm(const char *op, const char *example, enum ktype type, bool acc)
{
    struct rig_op o;
    rig_op_open(&o, op, example, type, 3);
    const struct group_norm d = group_norm_of(o.g, o.node);
    const int64_t c = d.c, points = d.points, kept = 3 * d.groups * 2;
    const struct k_group_norm k = {{type, 3, points, (int)c}, (int)d.groups, d.eps, d.affine ? o.c.param[0] : NULL,
                                   d.affine ? o.c.param[1] : NULL};
    size_t n = (size_t)(3 * c * points), room = k_group_norm_work(&k) / 4;
    void *x = rig_last(type, o.c.in[0], 3, c, points), *y = rig_new(type, n),
         *gy = rig_last(type, o.c.gout, 3, c, points), *work = rig_new(K_F32, room);
    double *saved = rig_new(K_F32, (size_t)kept * 2);
    float *old = rig_normals(type, 70, n), *gp[2] = {NULL, NULL};
    OK(k_group_norm(NULL, &k, x, y, saved, work));
    rig_guard(K_F32, saved, (size_t)kept * 2);
    for (int64_t i = 0; i < kept; i++)                   /* sums of doubles in another order */
        ck_assert_double_eq_tol(saved[i], ((double *)o.c.saved)[i], 1e-12 * (1 + fabs(((double *)o.c.saved)[i])));
    rig_check(type, y, o.c.out, NULL, 3, c, points, 2);
    for (int i = 0; i < 2 && d.affine; i++) gp[i] = rig_place(K_F32, old, acc, 1, c, 1);
    struct k_group_norm_grad g = {x, gy, saved, rig_place(type, old, acc, 3, c, points), acc, gp[0], gp[1], acc, work};
    OK(k_group_norm_back(NULL, &k, &g));
    rig_check(type, g.gx, o.c.gin[0], acc ? old : NULL, 3, c, points, 4);
    for (int i = 0; i < 2 && d.affine; i++) rig_check(K_F32, gp[i], o.c.pgrad[i], acc ? old : NULL, 1, c, 1, 16);
    if (d.affine) {                                      /* the first layer: nobody wants the input's gradient */
        for (int i = 0; i < 2; i++) gp[i] = rig_place(K_F32, old, acc, 1, c, 1);
        g = (struct k_group_norm_grad){x, gy, saved, NULL, false, gp[0], gp[1], acc, work};
        OK(k_group_norm_back(NULL, &k, &g));
        for (int i = 0; i < 2; i++) rig_check(K_F32, gp[i], o.c.pgrad[i], acc ? old : NULL, 1, c, 1, 16);
    }
    rig_guard(K_F32, work, room);
    free(x), free(gy), free(saved), free(old), free(work);
    rig_op_close(&o);
}

/* _i: type, adding. */
START_TEST(groups)
{
    static const char *const ops[] = {"group_norm", "instance_norm"};
    rig_odd(false);
    for (int way = 0; way < 2; way++) {
        rig_way(way);
        for (int k = 0; k < 2; k++)
            for (const char *const *e = op_find(ops[k])->examples; *e; e++) group_norm(ops[k], *e, TYPE(_i), ACC(_i));
        group_norm("group_norm", "24x17x31 groups=3", TYPE(_i), ACC(_i));
        group_norm("group_norm", "16x13x11x9 groups=16", TYPE(_i), ACC(_i));
        group_norm("instance_norm", "9x70", TYPE(_i), ACC(_i));
    }
}
END_TEST

/* ---- classes of points ----------------------------------------------------------------------- */

static struct k_segment segment_on(const struct rig_op *o, enum ktype type)
{
    const struct tensor *in = &o->g->tensor[o->node->in[0]], *labels = &o->g->tensor[o->node->in[1]];
    const int c = (int)in->shape.d[0];
    return (struct k_segment){.type = type, .n = o->c.n, .points = shape_count(&in->shape) / c, .c = c,
                              .labels = o->c.in[1], .label_bytes = (int)dtype_bytes(labels->type)};
}

/* Sums of doubles in another order. */
static void doubles_check(double *got, const double *want, size_t n)
{
    for (size_t i = 0; i < n; i++)
        if (!(fabs(got[i] - want[i]) <= 1e-12 * (1 + fabs(want[i]))))
            ck_abort_msg("value %zu: %.17g, the reference has %.17g", i, got[i], want[i]);
    rig_same(got, n * sizeof *got);
    rig_guard(K_F32, got, 2 * n);
    free(got);
}

static void segment(const char *op, const char *example, enum ktype type, bool acc, int n)
{
    struct rig_op o;
    rig_op_open(&o, op, example, type, n);
    struct k_segment k = segment_on(&o, type);
    const size_t columns = (size_t)o.g->tensor[o.node->out].shape.d[0], room = k_segment_work(&k) / 4;
    const bool dice = !strncmp(op, "dice", 4), entropy = !strcmp(op, "softmax_cross_entropy");
    void *x = rig_last(type, o.c.in[0], n, k.c, k.points), *work = rig_new(K_F32, room);
    double *out = rig_new(K_F32, (size_t)n * columns * 2), *kept = NULL;
    float *old = rig_normals(type, 70, (size_t)(n * k.c * k.points));
    if (dice) {
        const struct dice d = dice_of(o.g, o.node);
        k.sigmoid = d.sigmoid, k.ce = d.ce, k.power = d.power, k.first = (int)d.first, k.smooth = d.smooth;
        kept = rig_new(K_F32, (size_t)(n * k.c) * DICE_KEPT * 2);
        OK(k_dice(NULL, &k, x, out, kept, work));
    } else if (entropy) {
        k.smoothing = o.node->attr[0].r;
        OK(k_point_entropy(NULL, &k, x, out, work));
    } else OK(k_overlap(NULL, &k, x, out, work));
    doubles_check(out, o.c.out, (size_t)n * columns);
    rig_guard(K_F32, work, room);
    if (dice || entropy) {
        const struct k_grad g = {NULL, rig_place(type, old, acc, n, k.c, k.points), acc};
        OK(dice ? k_dice_back(NULL, &k, &o.block, x, kept, &g)
                : k_point_entropy_back(NULL, &k, &o.block, x, g.gx, acc));
        rig_check(type, g.gx, o.c.gin[0], acc ? old : NULL, n, k.c, k.points, 0.01);
    }
    if (dice) doubles_check(kept, o.c.saved, (size_t)(n * k.c) * DICE_KEPT);
    free(x), free(work), free(old);
    rig_op_close(&o);
}

/* _i: type, adding. */
START_TEST(classes_of_points)
{
    static const char *const ops[] = {"dice", "dice_ce", "overlap", "softmax_cross_entropy"};
    rig_odd(false);
    for (int way = 0; way < 2; way++) {
        rig_way(way);
        for (int k = 0; k < 4; k++) {
            for (const char *const *e = op_find(ops[k])->examples; *e; e++)
                if (!strstr(*e, "class") && !strstr(*e, "vector")) segment(ops[k], *e, TYPE(_i), ACC(_i), 3);
            segment(ops[k], "3x17x11x5 + 17x11x5 U8", TYPE(_i), ACC(_i), 3);
        }
        segment("dice_ce", "3x31x9 + 31x9 I64 background=no power=2", TYPE(_i), ACC(_i), 3);
    }
}
END_TEST

/* Whatever a call takes: what the selection reserves is 32 MiB (cuda_select.c). */
START_TEST(work_is_bounded)
{
    static const struct { int64_t n, points; int c; } cases[] = {
        {64, 262144, 256}, {1, 262144, 2}, {1 << 20, 70, 1}, {4096, 4096, 1000}, {32, 1 << 24, 65536}};
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        const struct k_segment k = {.n = cases[i].n, .points = cases[i].points, .c = cases[i].c};
        ck_assert_uint_le(k_segment_work(&k), 4 << 20);
    }
    const struct k_segment small = {.n = 3, .points = 64, .c = 2};
    ck_assert_uint_eq(k_segment_work(&small), 3 * 2 * 32);
}
END_TEST

/* So many samples that they take several launches, the last of which is shorter. _i: type. */
START_TEST(classes_of_points_in_parts)
{
    static const struct { const char *op, *example; int n; } cases[] = {
        {"dice_ce", "3x65 + 65 U8", 23000}, {"overlap", "3x65 + 65 I32", 33000},
        {"softmax_cross_entropy", "2x1 + 1 I64", 140000}};
    rig_odd(false);
    rig_way(0);
    for (int k = 0; k < 3; k++) segment(cases[k].op, cases[k].example, TYPE(_i), false, cases[k].n);
}
END_TEST

int main(void)
{
    TCase *t = suite_case("kernels_channels", 60);
    suite_loop(t, channels, 8, EVERY(1) && SANITIZED_EVERY(3));
    suite_loop(t, groups, 4, EVERY(1) && SANITIZED_EVERY(3));
    suite_loop(t, classes_of_points, 4, EVERY(1));
    suite_loop(t, classes_of_points_in_parts, 2, EVERY(1));
    tcase_add_test(t, work_is_bounded);
    return suite_run("kernels_channels", CK_FORK, t);
}
