/* The GPU's kernels, as in t_kernels.c: attention, parts of tensors, weights of positions. */
#include <string.h>
#include "kernels_rig.h"
#include "model/ops/attention.h"
#include "model/ops/learned.h"
#include "model/ops/slice.h"

/* ---- attention ------------------------------------------------------------------------------- */

static void attention(const char *example, enum ktype type, bool acc)
{
    struct rig_op o;
    rig_op_open(&o, "attention", example, type, 2);
    const struct attention a = attention_of(o.g, o.node, 2);
    const struct k_attention k = {type, a.n, (int)a.points, (int)a.heads, (int)a.width, (float)a.scale};
    int64_t c = o.channels, points = o.points, heads = 2 * a.n * a.heads * points;
    void *x = rig_last(type, o.c.in[0], 2, 3 * c, points), *gy = rig_last(type, o.c.gout, 2, c, points),
         *y = rig_new(type, (size_t)(2 * c * points)), *out = rig_last(type, o.c.out, 2, c, points);
    float *kept = rig_new(K_F32, (size_t)heads), *old = rig_normals(type, 70, (size_t)(6 * c * points));
    OK(k_attention(NULL, &k, x, y, kept));
    rig_guard(K_F32, kept, (size_t)heads);
    for (int64_t i = 0; i < heads; i++)
        ck_assert_float_eq_tol(kept[i], ((float *)o.c.saved)[i], 2e-6f * (1 + fabsf(((float *)o.c.saved)[i])));
    rig_check(type, y, o.c.out, NULL, 2, c, points, 32);
    /* backward reads the output as it is stored */
    for (int64_t i = 0; i < 2 * c * points; i++)
        ((float *)o.c.out)[i] = rig_round(type, ((const float *)o.c.out)[i]);
    o.node->op->backward_data(&o.c);
    void *gx = rig_place(type, old, acc, 2, 3 * c, points);
    OK(k_attention_back(NULL, &k, &(struct k_attention_kept){x, out, kept}, &(struct k_grad){gy, gx, acc}));
    rig_check(type, gx, o.c.gin[0], acc ? old : NULL, 2, 3 * c, points, 64);
    free(x), free(gy), free(out), free(kept), free(old);
    rig_op_close(&o);
}

/* _i: type, adding. */
START_TEST(attentions)
{
    rig_odd(false);
    for (int way = 0; way < 3; way++) {
        rig_way(way);
        for (const char *const *e = op_find("attention")->examples; *e; e++) attention(*e, TYPE(_i), ACC(_i));
        attention("384x16 heads=1", TYPE(_i), ACC(_i));          /* the widest head, one tile */
        attention("192x5x7 heads=4", TYPE(_i), ACC(_i));
    }
    ck_assert_int_ne(k_attention(NULL, &(struct k_attention){K_F32, 1, 1, 1, K_HEAD + 1, 1}, NULL, NULL, NULL), 0);
}
END_TEST

/* ---- parts and positions --------------------------------------------------------------------- */

static void slice(const char *example, enum ktype type, bool acc)
{
    struct rig_op o;
    rig_op_open(&o, "slice", example, type, 3);
    const struct slice s = slice_of(o.g, o.node, 3, true);
    const struct k_slice part = {type, s.outer, (int)s.width, (int)s.first, (int)s.part};
    int64_t c = rig_in_channels(&o, 0), points = rig_in_points(&o, 0);
    void *x = rig_last(type, o.c.in[0], 3, c, points), *y = rig_new(type, (size_t)(3 * o.channels * o.points)),
         *gy = rig_last(type, o.c.gout, 3, o.channels, o.points);
    float *old = rig_normals(type, 70, (size_t)(3 * c * points));
    OK(k_concat_back(NULL, &part, &(struct k_grad){x, y, false}));
    rig_check(type, y, o.c.out, NULL, 3, o.channels, o.points, 0);
    void *gx = rig_place(type, old, acc, 3, c, points);
    OK(k_slice_back(NULL, &part, &(struct k_grad){gy, gx, acc}));
    rig_check(type, gx, o.c.gin[0], acc ? old : NULL, 3, c, points, 0);
    free(x), free(gy), free(old);
    rig_op_close(&o);
}

/* prepend, and positions, whose weights are those of all points. */
static void learned(const char *op, const char *example, enum ktype type, bool acc)
{
    struct rig_op o;
    rig_op_open(&o, op, example, type, 3);
    const struct learned d = learned_of(o.g, o.node, 3);
    bool all = d.count == d.points;
    int width = (int)(d.points * d.c), own = (int)(d.count * d.c);
    const struct k_slice first = {type, 3, width, 0, own}, rest = {type, 3, width, own, width - own};
    void *x = rig_last(type, o.c.in[0], 3, d.c, rig_in_points(&o, 0)), *y = rig_new(type, (size_t)(3 * width)),
         *gy = rig_last(type, o.c.gout, 3, d.c, d.points);
    float *old = rig_normals(type, 70, (size_t)(3 * width));
    OK(k_learned(NULL, &first, o.c.param[0], all ? x : NULL, y));
    if (!all) OK(k_concat(NULL, &rest, x, y));
    rig_check(type, y, o.c.out, NULL, 3, d.c, d.points, 0);
    if (!all) {
        void *gx = rig_place(type, old, acc, 3, d.c, d.points - d.count);
        OK(k_concat_back(NULL, &rest, &(struct k_grad){gy, gx, acc}));
        rig_check(type, gx, o.c.gin[0], acc ? old : NULL, 3, d.c, d.points - d.count, 0);
    }
    float *gw = rig_place(K_F32, old, acc, 1, own, 1);
    OK(k_learned_weights(NULL, &first, gy, gw, acc));
    rig_check(K_F32, gw, o.c.pgrad[0], acc ? old : NULL, 1, own, 1, 0);
    free(x), free(gy), free(old);
    rig_op_close(&o);
}

/* _i: type, adding, odd values. */
START_TEST(parts_and_positions)
{
    rig_odd(_i >> 2);
    for (int way = 0; way < 2; way++) {
        rig_way(way);
        for (const char *const *e = op_find("slice")->examples; *e; e++) slice(*e, TYPE(_i), ACC(_i));
        slice("24x9x8 dim=2 first=3 count=4", TYPE(_i), ACC(_i));
        for (const char *const *e = op_find("prepend")->examples; *e; e++) learned("prepend", *e, TYPE(_i), ACC(_i));
        for (const char *const *e = op_find("positions")->examples; *e; e++)
            learned("positions", *e, TYPE(_i), ACC(_i));
    }
}
END_TEST

int main(void)
{
    TCase *t = suite_case("kernels_tokens", 60);
    tcase_add_loop_test(t, attentions, 0, 4);
    tcase_add_loop_test(t, parts_and_positions, 0, 8);
    return suite_run("kernels_tokens", CK_FORK, t);
}
