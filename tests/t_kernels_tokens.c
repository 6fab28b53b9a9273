/* The GPU's kernels, as in t_kernels.c: attention, parts of tensors, weights of positions. */
#include <string.h>
#include "kernels_rig.h"
#include "model/ops/attention.h"
#include "model/ops/learned.h"
#include "model/ops/rms_norm.h"
#include "model/ops/rotary.h"
#include "model/ops/slice.h"
#include "model/ops/token_loss.h"

/* ---- attention ------------------------------------------------------------------------------- */

/* One input with three parts, or three inputs, and maybe positions. */
static void attention(const char *example, enum ktype type, bool acc)
{
    struct rig_op o;
    rig_op_open(&o, "attention", example, type, 2);
    const struct attention a = attention_of(o.g, o.node, 2);
    const int64_t points = o.points, width = a.heads * a.width, kv = a.kv_heads * a.width,
                  heads = 2 * a.n * a.heads * points;
    const int parts = a.apart ? 3 : 1, at = attention_positions(o.node);
    const struct k_attention k = {type, a.n, (int)a.points, (int)a.heads, (int)a.kv_heads, (int)a.width, (float)a.scale,
                                  a.apart ? width : 3 * width, a.apart ? kv : 3 * width, a.causal,
                                  at < 0 ? NULL : o.c.in[at]};
    int64_t c[3];
    void *x[3], *gx[3];
    float *old = rig_normals(type, 70, (size_t)(6 * width * points));
    for (int i = 0; i < parts; i++) {
        c[i] = rig_in_channels(&o, i);
        x[i] = rig_last(type, o.c.in[i], 2, c[i], points);
        gx[i] = rig_place(type, old, acc, 2, c[i], points);
    }
    const size_t next = (size_t)width * rig_bytes(type, 1);
    const struct k_attention_in in = {x[0], a.apart ? x[1] : (char *)x[0] + next,
                                      a.apart ? x[2] : (char *)x[0] + 2 * next};
    void *gy = rig_last(type, o.c.gout, 2, width, points), *y = rig_new(type, (size_t)(2 * width * points)),
         *out = rig_last(type, o.c.out, 2, width, points);
    float *kept = rig_new(K_F32, (size_t)heads);
    OK(k_attention(NULL, &k, &in, y, kept));
    rig_guard(K_F32, kept, (size_t)heads);
    for (int64_t i = 0; i < heads; i++)
        ck_assert_float_eq_tol(kept[i], ((float *)o.c.saved)[i], 2e-6f * (1 + fabsf(((float *)o.c.saved)[i])));
    rig_check(type, y, o.c.out, NULL, 2, width, points, 32);
    /* backward reads the output as it is stored */
    for (int64_t i = 0; i < 2 * width * points; i++)
        ((float *)o.c.out)[i] = rig_round(type, ((const float *)o.c.out)[i]);
    o.node->op->backward_data(&o.c);
    struct k_attention_grad g = {gy, {gx[0], gx[0], gx[0]}, {acc, acc, acc}};
    for (int i = 1; i < 3; i++) g.gx[i] = a.apart ? gx[i] : (char *)gx[0] + (size_t)i * next;
    OK(k_attention_back(NULL, &k, &(struct k_attention_kept){in, out, kept}, &g));
    for (int i = 0; i < parts; i++) {
        rig_check(type, gx[i], o.c.gin[i], acc ? old : NULL, 2, c[i], points, 64);
        free(x[i]);
    }
    free(gy), free(out), free(kept), free(old);
    rig_op_close(&o);
}

/* _i: type, adding. */
START_TEST(attentions)
{
    rig_odd(false);
    for (int way = 0; way < 3; way++) {
        rig_way(way);
        for (const char *const *e = op_find("attention")->examples; *e; e++)
            if (!strstr(*e, "=0")) attention(*e, TYPE(_i), ACC(_i));
        attention("96x35 + 32x35 + 32x35 + 35 I32 heads=6 kv_heads=2 causal=yes", TYPE(_i), ACC(_i));
        attention("384x16 heads=1", TYPE(_i), ACC(_i));          /* the widest head, one tile */
        attention("192x5x7 heads=4", TYPE(_i), ACC(_i));
    }
    ck_assert_int_ne(k_attention(NULL, &(struct k_attention){.width = K_HEAD + 1}, NULL, NULL, NULL), 0);
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

/* ---- decoders -------------------------------------------------------------------------------- */

static void rms_norm(const char *example, enum ktype type, bool acc)
{
    struct rig_op o;
    rig_op_open(&o, "rms_norm", example, type, 3);
    const struct rms_norm r = rms_norm_of(o.g, o.node, 3);
    const int64_t c = o.channels, points = o.points, rows = r.n * r.points * r.heads;
    const struct k_layer_norm k = {type, rows, (int)r.width, r.eps, o.c.param[0], NULL, (int)r.heads, r.points};
    void *x = rig_last(type, o.c.in[0], 3, c, points), *gy = rig_last(type, o.c.gout, 3, c, points),
         *y = rig_new(type, (size_t)(3 * c * points));
    float *old = rig_normals(type, 70, (size_t)(3 * c * points)), *saved = rig_new(K_F32, (size_t)rows);
    void *work = rig_new(K_F32, k_layer_norm_work(rows, k.c) / sizeof(float));
    OK(k_layer_norm(NULL, &k, x, y, saved));
    rig_check(type, y, o.c.out, NULL, 3, c, points, 4);
    for (int64_t i = 0; i < rows; i++) ck_assert_float_eq_tol(saved[i], ((float *)o.c.saved)[i], 1e-5f * saved[i]);
    void *gx = rig_place(type, old, acc, 3, c, points);
    OK(k_layer_norm_back(NULL, &k, x, &(struct k_grad){gy, gx, acc}, saved));
    rig_check(type, gx, o.c.gin[0], acc ? old : NULL, 3, c, points, 8);
    float *gw = rig_place(K_F32, old, acc, 1, r.width, 1);
    const struct k_layer_norm_grad g = {.x = x, .gy = gy, .saved = saved, .gw = gw, .acc = acc, .work = work};
    OK(k_layer_norm_weights(NULL, &k, &g));
    rig_check(K_F32, gw, o.c.pgrad[0], acc ? old : NULL, 1, r.width, 1, 8);
    free(x), free(gy), free(old), free(saved), free(work);
    rig_op_close(&o);
}

static void rotary(const char *example, enum ktype type, bool acc)
{
    struct rig_op o;
    rig_op_open(&o, "rotary", example, type, 3);
    const struct rotary r = rotary_of(o.g, o.node, 3);
    const int64_t c = o.channels, points = o.points;
    float *rate = mem_alloc((size_t)r.half * sizeof *rate), *old = rig_normals(type, 70, (size_t)(3 * c * points));
    for (int64_t i = 0; i < r.half; i++) rate[i] = rotary_rate(o.node, i, r.half);
    struct k_rotary k = {type, 3, (int)points, (int)r.heads, (int)r.half, rate, o.node->n_in > 1 ? o.c.in[1] : NULL,
                         false, false};
    void *x = rig_last(type, o.c.in[0], 3, c, points), *gy = rig_last(type, o.c.gout, 3, c, points),
         *y = rig_new(type, (size_t)(3 * c * points)), *gx = rig_place(type, old, acc, 3, c, points);
    OK(k_rotary(NULL, &k, x, y));
    rig_check(type, y, o.c.out, NULL, 3, c, points, 1);
    k.back = true;
    k.acc = acc;
    OK(k_rotary(NULL, &k, gy, gx));
    rig_check(type, gx, o.c.gin[0], acc ? old : NULL, 3, c, points, 1);
    free(x), free(gy), free(old), free(rate);
    rig_op_close(&o);
}

/* Logits of a row as a library's product gives them, in lines that are longer than the classes. */
static float *logits_of(const struct rig_op *o, const struct token_loss *t, int64_t rows, int line)
{
    float *z = rig_new(K_F32, (size_t)(rows * line));
    for (int64_t r = 0; r < rows; r++)
        for (int64_t k = 0; k < t->classes; k++) {
            const float *x = (const float *)o->c.in[0] + r / t->points * t->width * t->points + r % t->points;
            double sum = 0;
            for (int64_t i = 0; i < t->width; i++)
                sum += (double)x[i * t->points] * ((const float *)o->c.param[0])[k * t->width + i];
            z[r * line + k] = (float)sum;
        }
    return z;
}

/* The gradients of logits give the reference's gradients of the weight: the sum of dz x over the rows. */
static void weights_check(const struct rig_op *o, const struct token_loss *t, int64_t rows, const float *dz, int line)
{
    float *gw = rig_new(K_F32, (size_t)(t->classes * t->width));
    memset(gw, 0, (size_t)(t->classes * t->width) * sizeof *gw);
    for (int64_t r = 0; r < rows; r++)
        for (int64_t k = 0; k < t->classes; k++)
            for (int64_t i = 0; i < t->width; i++)
                gw[k * t->width + i] += dz[r * line + k] * ((const float *)o->c.in[0])
                    [(r / t->points * t->width + i) * t->points + r % t->points];
    rig_check_near(K_F32, gw, o->c.pgrad[0], NULL, 1, t->classes * t->width, 1, 8, 1);
}

static void token_loss(const char *example, enum ktype type, bool acc)
{
    struct rig_op o;
    rig_op_open(&o, "token_loss", example, K_F32, 3);
    const struct token_loss t = token_loss_of(o.g, o.node, 3);
    const int64_t rows = 3 * t.points;
    const int line = (int)t.classes + 3;
    const struct k_tokens k = {type, (int)t.classes, line, o.c.in[1], o.g->tensor[o.node->in[1]].type == I64, t.ignore,
                               o.node->n_param > 1 ? o.c.param[1] : NULL};
    float *z = logits_of(&o, &t, rows, line), *kept = rig_new(K_F32, 2 * (size_t)rows),
          *old = rig_normals(K_F32, 70, (size_t)t.classes);
    void *dz = rig_new(type, (size_t)(rows * line));
    double columns[9], *work = mem_alloc(3 * (size_t)rows * sizeof *work);
    struct k_token_rows to = {kept, work, NULL, NULL};
    struct k_tokens plain = k;
    plain.type = K_F32;
    for (int call = 0; call < 3; call++) {               /* the loss; with gradients; with gradients over the logits */
        to.block = call ? &o.block : NULL;
        to.dz = call == 0 ? NULL : call == 1 ? dz : z;
        memset(kept, 0xff, 2 * (size_t)rows * sizeof *kept);
        OK(k_token_rows(NULL, call == 2 ? &plain : &k, rows, z, &to));
        OK(k_token_sums(NULL, 3, (int)t.points, work, columns));
        for (int i = 0; i < 9; i++) ck_assert_double_eq_tol(columns[i], ((double *)o.c.out)[i], 2e-6 * (double)rows);
        for (int64_t i = 0; i < 2 * rows; i++)
            ck_assert_float_eq_tol(kept[i], ((float *)o.c.saved)[i], 1e-5f * (1 + fabsf(kept[i])));
    }
    float *bias = rig_new(K_F32, (size_t)t.classes), *gb = rig_place(K_F32, old, acc, 1, t.classes, 1);
    memset(bias, 0, (size_t)t.classes * sizeof *bias);
    for (int64_t i = 0; i < rows * line; i++) {
        if (i % line >= t.classes) continue;
        ck_assert_float_eq(rig_at(type, dz, (size_t)i), rig_round(type, z[i]));
        bias[i % line] += rig_at(type, dz, (size_t)i);
    }
    OK(k_token_bias(NULL, &k, rows, dz, gb, acc));
    rig_check(K_F32, gb, bias, acc ? old : NULL, 1, t.classes, 1, 8);
    weights_check(&o, &t, rows, z, line);
    free(z), free(dz), free(bias), free(old), free(kept), free(work);
    rig_op_close(&o);
}

/* _i: type, adding. */
START_TEST(decoders)
{
    rig_odd(false);
    for (int way = 0; way < 2; way++) {
        rig_way(way);
        for (const char *const *e = op_find("rms_norm")->examples; *e; e++) rms_norm(*e, TYPE(_i), ACC(_i));
        for (const char *const *e = op_find("rotary")->examples; *e; e++) rotary(*e, TYPE(_i), ACC(_i));
        for (const char *const *e = op_find("token_loss")->examples; *e; e++) token_loss(*e, TYPE(_i), ACC(_i));
        rms_norm("300x5", TYPE(_i), ACC(_i));
        token_loss("300x2 + 2 I32 classes=300", TYPE(_i), ACC(_i));
        token_loss("5x3x2 + 3x2 I64 classes=1", TYPE(_i), ACC(_i));
    }
}
END_TEST

int main(void)
{
    TCase *t = suite_case("kernels_tokens", 60);
    tcase_add_loop_test(t, attentions, 0, 4);
    tcase_add_loop_test(t, parts_and_positions, 0, 8);
    tcase_add_loop_test(t, decoders, 0, 4);
    return suite_run("kernels_tokens", CK_FORK, t);
}
