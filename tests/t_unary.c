/* Functions of one value: torch's values and derivatives, precision, and an element's bits, which depend neither on its
 * position nor on the width of vectors. */
#include <math.h>
#include <stdio.h>
#include <string.h>
#include "backend/cpu/cpu_vec.h"
#include "model/op.h"
#include "model/ops/unary.h"
#include "sure.h"

static const struct vec_unary *loops(const char *op) { return &vec_plain.unary[op_find(op)->unary]; }

/* ---- torch ----------------------------------------------------------------------------------- */

enum { POINTS = 10 };
static const float at[POINTS] = {-9, -3, -1.5f, -.25f, 0, .5f, 1, 2.75f, 3.5f, 7};
/* Of torch 1.13 in double precision; derivatives by autograd. */
static const struct { const char *op; float a; double value[POINTS], slope[POINTS]; } torchs[] = {
    {"sigmoid", 0,
     {.000123394576, .0474258732, .182425524, .437823499, .5, .622459331, .731058579, .93991335, .970687769,
      .999088949},
     {.00012337935, .0451766597, .149146452, .246134083, .25, .235003712, .196611933, .0564762446, .0284530239,
      .00091022118}},
    {"tanh", 0,
     {-.99999997, -.995054754, -.905148254, -.244918662, 0, .462117157, .761594156, .991859725, .998177898,
      .999998337},
     {6.09199171e-08, .00986603717, .180706639, .940014849, 1, .786447733, .419974342, .0162142868, .00364088472,
      3.32610934e-06}},
    {"silu", 0,
     {-.00111055118, -.14227762, -.273638286, -.109455875, 0, .311229666, .731058579, 2.58476171, 3.39740719,
      6.99362264},
     {-.000987019572, -.088104106, -.0412941543, .376289978, .5, .739961187, .927670512, 1.09522302, 1.07027335,
      1.0054605}},
    {"gelu", 0,
     {0, -.00404969409, -.100210802, -.100323419, 0, .345731231, .841344746, 2.74180565, 3.4991858, 7},
     {0, -.0119456472, -.127469192, .304626645, .5, .867495125, 1.08331547, 1.02202753, 1.00282176, 1}},
    {"gelu", 1,
     {0, -.00363739208, -.100428423, -.100324649, 0, .34571401, .841191991, 2.74227686, 3.4993838, 7},
     {0, -.0115841666, -.127710793, .304645905, .5, .867369904, 1.08296408, 1.02194892, 1.00242264, 1}},
    {"hardsigmoid", 0,
     {0, 0, .25, .458333333, .5, .583333333, .666666667, .958333333, 1, 1},
     {0, 0, .166666667, .166666667, .166666667, .166666667, .166666667, .166666667, 0, 0}},
    {"hardswish", 0,
     {0, 0, -.375, -.114583333, 0, .291666667, .666666667, 2.63541667, 3.5, 7},
     {0, -.5, 0, .416666667, .5, .666666667, .833333333, 1.41666667, 1, 1}},
    {"relu6", 0, {0, 0, 0, 0, 0, .5, 1, 2.75, 3.5, 6}, {0, 0, 0, 0, 0, 1, 1, 1, 1, 0}},
    {"elu", 1,
     {-.99987659, -.950212932, -.77686984, -.221199217, 0, .5, 1, 2.75, 3.5, 7},
     {.000123409804, .0497870684, .22313016, .778800783, 1, 1, 1, 1, 1, 1}},
    {"times", -.75f,
     {6.75, 2.25, 1.125, .1875, 0, -.375, -.75, -2.0625, -2.625, -5.25},
     {-.75, -.75, -.75, -.75, -.75, -.75, -.75, -.75, -.75, -.75}},
    {"leaky_relu", .01f,
     {-.09, -.03, -.015, -.0025, 0, .5, 1, 2.75, 3.5, 7},
     {.01, .01, .01, .01, .01, 1, 1, 1, 1, 1}},
};

/* Within a few roundings of the larger of value and 1: what is subtracted is about 1. */
START_TEST(values_are_torchs)
{
    float y[POINTS], g[POINTS], ones[POINTS];
    const struct vec_unary *f = loops(torchs[_i].op);
    bool of_output = op_find(torchs[_i].op)->need_b & NEED_OUT;
    for (int i = 0; i < POINTS; i++) ones[i] = 1;
    f->forward(y, at, POINTS, torchs[_i].a);
    f->backward(g, of_output ? y : at, ones, POINTS, torchs[_i].a, false);
    for (int i = 0; i < POINTS; i++) {
        double most = fmax(1, fabs(torchs[_i].value[i]));
        sure(fabs(y[i] - torchs[_i].value[i]) <= 2.5e-7 * most, "%s(%g) is %.9g, not %.9g", torchs[_i].op,
             (double)at[i], (double)y[i], torchs[_i].value[i]);
        sure(fabs(g[i] - torchs[_i].slope[i]) <= 8e-7 * most, "%s'(%g) is %.9g, not %.9g", torchs[_i].op,
             (double)at[i], (double)g[i], torchs[_i].slope[i]);
    }
}
END_TEST

/* Every function has its row. */
START_TEST(all_are_compared)
{
    for (int i = 0; op_list[i]; i++) {
        bool found = op_list[i]->category != OP_UNARY;
        for (size_t k = 0; k < sizeof torchs / sizeof *torchs; k++) found |= !strcmp(torchs[k].op, op_list[i]->name);
        ck_assert_msg(found, "%s", op_list[i]->name);
    }
}
END_TEST

/* ---- precision ------------------------------------------------------------------------------- */

static double sigmoid_of(double x) { return 1 / (1 + exp(-x)); }
static double exp_of(double x) { return exp(x); }

/* Largest distance from double precision in units of the float's last place, over 200,000 points of a range. */
static double worst(float (*f)(float), double (*exact)(double), double from, double to)
{
    enum { STEPS = 200000 };
    double most = 0;
    for (int i = 0; i <= STEPS; i++) {
        float x = (float)(from + (to - from) * i / STEPS);
        double y = exact(x), unit = ldexp(1, ilogb(y == 0 ? 1 : y) - 23);
        most = fmax(most, fabs(f(x) - y) / unit);
    }
    return most;
}

START_TEST(precision)
{
    static const struct { const char *name; float (*f)(float); double (*exact)(double), from, to, most; } fs[] = {
        {"exp", unary_exp, exp_of, -80, 80, 2.5}, {"sigmoid", unary_sigmoid, sigmoid_of, -80, 80, 3},
        {"tanh", unary_tanh, tanh, -10, 10, 3}, {"erf", unary_erf, erf, -6, 6, 3},
        {"erf", unary_erf, erf, -1e-3, 1e-3, 2.5}, {"tanh", unary_tanh, tanh, -1e-3, 1e-3, 2.5}};
    for (size_t i = 0; i < sizeof fs / sizeof *fs; i++) {
        double most = worst(fs[i].f, fs[i].exact, fs[i].from, fs[i].to);
        sure(most <= fs[i].most, "%s from %g to %g: %.2f units in the last place", fs[i].name, fs[i].from, fs[i].to,
             most);
    }
    ck_assert(isnan(unary_exp(NAN)) && isnan(unary_tanh(NAN)) && isnan(unary_erf(NAN)));
    ck_assert(unary_sigmoid(INFINITY) == 1 && unary_sigmoid(-INFINITY) < 1e-37f && unary_tanh(-INFINITY) == -1);
    ck_assert(unary_erf(INFINITY) == 1 && unary_erf(-INFINITY) == -1);
}
END_TEST

/* ---- bits ------------------------------------------------------------------------------------ */

static void bits_compare(const struct vec_ops *v, int which, float a)
{
    enum { N = 1021 };
    static float x[N], y[N], g[N], one, slope;
    for (int i = 0; i < N; i++) x[i] = (float)(i - N / 2) * 0.037f;
    v->unary[which].forward(y, x, N, a);
    v->unary[which].backward(g, x, x, N, a, false);
    for (int i = 0; i < N; i++) {
        vec_plain.unary[which].forward(&one, &x[i], 1, a);
        vec_plain.unary[which].backward(&slope, &x[i], &x[i], 1, a, false);
        sure(!memcmp(&one, &y[i], sizeof one) && !memcmp(&slope, &g[i], sizeof slope),
             "function %d at %g, %d lanes: other bits than alone", which, (double)x[i], v->lanes);
    }
}

START_TEST(bits_do_not_depend_on_place)
{
    bool avx2 = __builtin_cpu_supports("avx2"), avx512 = avx2 && __builtin_cpu_supports("avx512vl") &&
                                                         __builtin_cpu_supports("avx512dq");
    for (int which = 0; which < N_UNARIES; which++)
        for (int a = 0; a < 2; a++) {
            bits_compare(&vec_plain, which, (float)a);
            if (avx2) bits_compare(&vec_avx2, which, (float)a);
            if (avx512) bits_compare(&vec_avx512, which, (float)a);
        }
}
END_TEST

int main(void)
{
    TCase *c = suite_case("unary", 60);
    tcase_add_loop_test(c, values_are_torchs, 0, (int)(sizeof torchs / sizeof *torchs));
    tcase_add_test(c, all_are_compared);
    tcase_add_test(c, precision);
    tcase_add_test(c, bits_do_not_depend_on_place);
    return suite_run("unary", CK_FORK, c);
}
