/* Losses and scores of maps of classes: values calculated by hand. Finite differences are in t_ops_ref.c. */
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include "base/mem.h"
#include "model/ops/segment_rule.h"
#include "op_graphs.h"
#include "sure.h"

enum { POINTS = 4, CHANNELS = 3, COLUMNS = OVERLAP_SUMS + 2 * OVERLAP_EACH };

/* One sample of four points. */
struct one {
    struct graph *g;
    struct be_block block;
    struct op_call c;
    double out[COLUMNS], kept[CHANNELS * DICE_KEPT];
    float gx[CHANNELS * POINTS];
    int64_t sample;
};

static void one_run(struct one *o, const char *op, const char *example, const float *x, const uint8_t *labels)
{
    memset(o, 0, sizeof *o);
    o->g = op_graph_example(op_find(op), example);
    const struct node *n = &o->g->node[0];
    o->block = (struct be_block){.inv_weight = 0.5};
    o->c = (struct op_call){.g = o->g, .node = n, .n = 1, .train = true, .block = &o->block, .sample = &o->sample,
                            .in = {x, labels}, .out = o->out, .saved = o->kept};
    n->op->forward(&o->c);
    o->c.gin[0] = o->gx;
    if (n->op->backward_data) n->op->backward_data(&o->c);
}

/* The classes 0, 1, 2, 2 instead of 0, 1, 1, 2. */
START_TEST(overlap_counts)
{
    const float x[CHANNELS * POINTS] = {9, 0, -1, 0, 8, 2, 1, -3, 7, 1, 2, 0.5f};
    const uint8_t labels[POINTS] = {0, 1, 1, 2};
    struct one o;
    one_run(&o, "overlap", "3x4 + 4 U8", x, labels);
    ck_assert_double_eq_tol(o.out[OVERLAP_DICE], 4.0 / 3, 1e-15);   /* two quotients are rounded */
    ck_assert(o.out[OVERLAP_PRESENT] == 2 && o.out[OVERLAP_POOLED] == 4 && o.out[OVERLAP_POOLED_OF] == 6);
    ck_assert(o.out[OVERLAP_TP] == 2 && o.out[OVERLAP_ANY] == 4);
    const double want[2][OVERLAP_EACH] = {
        {[CLASS_DICE] = 2.0 / 3, [CLASS_PRESENT] = 1, [CLASS_TP] = 1, [CLASS_ANY] = 2, [CLASS_FN] = 1, [CLASS_TN] = 2},
        {[CLASS_DICE] = 2.0 / 3, [CLASS_PRESENT] = 1, [CLASS_TP] = 1, [CLASS_ANY] = 2, [CLASS_FP] = 1, [CLASS_TN] = 2}};
    for (int k = 0; k < 2; k++)
        ck_assert_mem_eq(o.out + OVERLAP_SUMS + k * OVERLAP_EACH, want[k], sizeof want[k]);
    graph_free(o.g);
}
END_TEST

/* A class that the truth does not have has no Dice, whatever is predicted, but its voxels count among all. Of equal
 * outputs the first is taken; one channel is class 1 from 0 on. */
START_TEST(overlap_of_absent_classes)
{
    const uint8_t none[POINTS] = {0}, half[POINTS] = {1, 1, 0, 0};
    const float equal[CHANNELS * POINTS] = {0}, one[POINTS] = {0, -1e-30f, 2, -2};
    float two[CHANNELS * POINTS] = {0};
    struct one o;
    for (int i = 0; i < POINTS; i++) two[2 * POINTS + i] = 1;
    one_run(&o, "overlap", "3x4 + 4 U8", two, none);
    ck_assert(o.out[OVERLAP_PRESENT] == 0 && o.out[OVERLAP_DICE] == 0 && o.out[OVERLAP_ANY] == 4);
    ck_assert(o.out[OVERLAP_SUMS + OVERLAP_EACH + CLASS_FP] == 4);
    graph_free(o.g);
    one_run(&o, "overlap", "3x4 + 4 U8", equal, none);
    ck_assert(o.out[OVERLAP_ANY] == 0 && o.out[OVERLAP_POOLED_OF] == 0);
    graph_free(o.g);
    one_run(&o, "overlap", "1x4 + 4 U8", one, half);
    ck_assert(o.out[OVERLAP_TP] == 1 && o.out[OVERLAP_ANY] == 3 && o.out[OVERLAP_DICE] == 0.5);
    graph_free(o.g);
}
END_TEST

/* All probabilities are a half: I = 1, Y = 2, P = 2 or, squared, 1. The slope of a logit is q / 4, halved by the batch:
 * of a float, whose rounding is 6e-8 of it. */
START_TEST(dice_by_hand)
{
    static const struct { const char *example; double of, power; int channels; } cases[] = {
        {"1x4 + 4 U8", 4, 1, 1}, {"1x4 + 4 U8 power=2", 3, 2, 1}, {"2x4 + 4 U8", 4, 1, 2},
        {"2x4 + 4 U8 power=2 background=no", 3, 2, 2}, {"2x4 + 4 U8 sigmoid=yes", 4, 1, 2}};
    static const char *const ops[] = {"dice", "dice_ce"};
    const float zero[CHANNELS * POINTS] = {0};
    const uint8_t labels[POINTS] = {1, 1, 0, 0};
    const double s = 1e-5, d = cases[_i].of + s, p = cases[_i].power == 2 ? 0.5 : 1;
    for (int ce = 0; ce < 2; ce++) {
        struct one o;
        one_run(&o, ops[ce], cases[_i].example, zero, labels);
        ck_assert_double_eq_tol(o.out[0], 1 - (2 + s) / d + (ce ? log(2) : 0), 1e-15);
        for (int i = 0; i < POINTS && cases[_i].channels == 1; i++) {
            double q = -(2 * labels[i] * d - cases[_i].power * (2 + s) * p) / (d * d);
            double want = 0.5 * (q / 4 + (ce ? (0.5 - labels[i]) / POINTS : 0));
            ck_assert_double_eq_tol(o.gx[i], want, 1e-7 * fabs(want));
        }
        graph_free(o.g);
    }
}
END_TEST

int main(void)
{
    TCase *t = suite_case("segment", 60);
    tcase_add_test(t, overlap_counts);
    tcase_add_test(t, overlap_of_absent_classes);
    tcase_add_loop_test(t, dice_by_hand, 0, 5);
    return suite_run("segment", CK_FORK, t);
}
