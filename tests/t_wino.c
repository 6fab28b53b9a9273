/* Convolutions on blocks of channels, by Winograd's algorithm and, of volumes, without overlap, against the operator's
 * reference loops: all passes, overwriting and adding, with odd sizes. Values are small integers, and the transforms
 * only add and halve: all sums are exact. Rounding of other values is checked in double precision. */
#include <math.h>
#include <string.h>
#include "backend/cpu/cpu_int.h"
#include "backend/cpu/cpu_patch.h"
#include "backend/cpu/cpu_wino_int.h"
#include "base/mem.h"
#include "model/ops/conv.h"
#include "sure.h"

extern const struct wino_ops wino_any;                   /* panel_any.c: blocks of 16 on any processor */
extern const struct patch_ops patch_any;

struct table { const char *name; int lanes; const struct wino_ops *wino; const struct patch_ops *patch; };
static const struct table tables[] = {{"avx2", 8, &wino_avx2, &patch_avx2},
                                      {"avx512", 16, &wino_avx512, &patch_avx512},
                                      {"any", 16, &wino_any, &patch_any}};

/* A table whose instructions the processor has not is left out: "any" has the same loops as avx512. */
static bool has(const struct table *t)
{
    return t->wino == &wino_avx2     ? __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma")
           : t->wino == &wino_avx512 ? __builtin_cpu_supports("avx512f")
                                     : true;
}

/* Blocks in and out, samples, and points: of the side that has fewer. d 0: a picture. */
struct size { int in, out, n, d, h, w; };

/* ---- one convolution --------------------------------------------------------------------------------------------- */

enum pass { OUT, IN, WEIGHTS, PASSES };
static const char *const pass_name[PASSES] = {"output", "input gradient", "weight gradient"};

/* All values plain; both: of x and g in blocks, bw of w. */
struct trial {
    const struct table *t;
    struct conv k;
    struct weight_form form;
    int64_t in_points, out_points;
    float *x, *g, *w, *bias, *bx, *bg, *bw, *turned, *work;
    struct wino_shape s;
    struct patch_shape p;
    bool patch;
};

static float *room(int64_t floats) { return aligned_alloc(64, size_align64((size_t)floats * sizeof(float))); }

static uint32_t noise;
static float whole(void) { return (float)(next_random(&noise) % 7) - 3; }
static float real(void) { return (float)(next_random(&noise) % 65536) / 32768 - 1; }

static float *filled(int64_t n, float (*next)(void))
{
    float *x = room(n);
    for (int64_t i = 0; i < n; i++) x[i] = next();
    return x;
}

/* By the larger of both directions, and of gradients. */
static int64_t work_floats(const struct wino_shape *s)
{
    struct wino_shape t = *s;
    t.in = s->out;
    t.out = s->in;
    size_t most = wino_work(&t) > wino_weights_work(s) ? wino_work(&t) : wino_weights_work(s);
    return (int64_t)(most / sizeof(float));
}

static void values_make(struct trial *a, float (*next)(void))
{
    const struct conv *k = &a->k;
    a->x = filled(k->n * k->c * a->in_points, next);
    a->g = filled(k->n * k->o * a->out_points, next);
    a->w = filled(k->c * k->o * a->form.points, next);
    a->bias = filled(k->c > k->o ? k->c : k->o, next);
    a->bx = room(k->n * k->c * a->in_points);
    a->bg = room(k->n * k->o * a->out_points);
    a->bw = room(k->c * k->o * a->form.points);
    to_blocked(a->bx, a->x, (struct blocks){(int)k->n, k->c, a->in_points, a->t->lanes}, false);
    to_blocked(a->bg, a->g, (struct blocks){(int)k->n, k->o, a->out_points, a->t->lanes}, false);
    weight_to_blocked(a->bw, a->w, &a->form, false);
}

static int threads = 1;                                  /* of the trials that are made from now on */

static void trial_make(struct trial *a, const struct table *t, struct size z, bool patch, float (*next)(void))
{
    const int64_t size[3] = {z.d ? z.d : 1, z.h, z.w};
    const int deep = z.d ? 3 : 1;
    *a = (struct trial){.t = t, .patch = patch};
    a->k = (struct conv){.n = z.n, .c = z.in * t->lanes, .o = z.out * t->lanes, .groups = 1};
    a->in_points = a->out_points = 1;
    for (int i = 0; i < 3; i++) {
        struct window *w = &a->k.w;
        w->out[i] = size[i];
        w->in[i] = patch ? 2 * size[i] : size[i];
        w->k[i] = patch ? 2 : i ? 3 : deep;
        w->s[i] = patch ? 2 : 1;
        w->p[i] = !patch && w->k[i] > 1;
        w->d[i] = 1;
        a->in_points *= w->in[i];
        a->out_points *= size[i];
    }
    a->form = (struct weight_form){.out = a->k.o, .in = a->k.c, .points = patch ? 8 : 9 * deep, .lanes = t->lanes};
    a->s = (struct wino_shape){z.n, t->lanes, a->k.c, a->k.o, {size[0], z.h, z.w}, deep, threads};
    a->p = (struct patch_shape){z.n, t->lanes, z.in, z.out, {z.d, z.h, z.w}};
    noise = 1;
    values_make(a, next);
    a->turned = room(patch ? a->k.c * a->k.o * 8 : (int64_t)wino_weights(&a->s));
    a->work = filled(patch ? 1 : work_floats(&a->s), next);
    if (patch) weight_transpose(a->turned, a->bw, &a->form, false, 1);
}

static void trial_free(struct trial *a)
{
    float *const all[] = {a->x, a->g, a->w, a->bias, a->bx, a->bg, a->bw, a->turned, a->work};
    for (int i = 0; i < N_OF(all); i++) free(all[i]);
}

static int64_t result_floats(const struct trial *a, enum pass pass)
{
    return pass == OUT  ? a->k.n * a->k.o * a->out_points
           : pass == IN ? a->k.n * a->k.c * a->in_points
                        : a->k.c * a->k.o * a->form.points;
}

static void blocks_take(const struct trial *a, enum pass pass, float *to, const float *plain)
{
    struct blocks s = {(int)a->k.n, pass == OUT ? a->k.o : a->k.c, pass == OUT ? a->out_points : a->in_points,
                       a->t->lanes};
    if (pass == WEIGHTS) weight_to_blocked(to, plain, &a->form, false);
    else to_blocked(to, plain, s, false);
}

/* In blocks; bias: of the output, or of the input, which is a transposed one's output. */
static void wino_pass(const struct trial *a, enum pass pass, const float *bias, float *r, bool add)
{
    struct wino_shape turned = a->s;
    turned.in = a->s.out;
    turned.out = a->s.in;
    const struct wino w = wino_plan(&a->s), t = wino_plan(&turned);
    const struct wino_ops *ops = a->t->wino;
    if (pass == WEIGHTS) ops->weights(&w, a->bx, a->bg, r, NULL, add, a->work);
    else {
        ops->pack(&w, a->bw, pass == IN, a->turned);
        ops->run(pass == IN ? &t : &w, pass == IN ? a->bg : a->bx, a->turned, bias, r, add, a->work);
    }
}

static void blocks_pass(const struct trial *a, enum pass pass, const float *bias, float *r, bool add)
{
    const struct patch_ops *ops = a->t->patch;
    if (!a->patch) wino_pass(a, pass, bias, r, add);
    else if (pass == OUT) ops->coarse(&a->p, a->bx, a->bw, bias, r, add);
    else if (pass == IN) ops->fine(&a->p, a->bg, a->turned, bias, r, add);
    else ops->weights(&a->p, a->bx, a->bg, r, add);
}

static void plain_pass(const struct trial *a, enum pass pass, const float *bias, float *r)
{
    if (pass == OUT) conv_forward(&a->k, a->x, a->w, bias, r);
    else if (pass == IN) conv_data(&a->k, a->g, a->w, bias, r);
    else conv_weights(&a->k, a->x, a->g, r);
}

/* ---- tests ------------------------------------------------------------------------------------------------------- */

static void exact(const struct trial *a, enum pass pass, bool add)
{
    const int64_t n = result_floats(a, pass);
    const float *bias = pass == WEIGHTS || add ? NULL : a->bias;
    float *before = filled(n, whole), *want = room(n), *got = room(n), *blocks = room(n);
    plain_pass(a, pass, bias, want);
    for (int64_t i = 0; add && i < n; i++) want[i] += before[i];
    blocks_take(a, pass, blocks, want);
    blocks_take(a, pass, got, before);
    blocks_pass(a, pass, bias, got, add);
    for (int64_t i = 0; i < n; i++)
        sure(got[i] == blocks[i], "%s, %s, %s, %lld to %lld channels, %lldx%lldx%lld: value %lld is %g, not %g",
             a->t->name, pass_name[pass], add ? "added" : "written", (long long)a->k.c, (long long)a->k.o,
             (long long)a->k.w.out[0], (long long)a->k.w.out[1], (long long)a->k.w.out[2], (long long)i,
             (double)got[i], (double)blocks[i]);
    free(before);
    free(want);
    free(got);
    free(blocks);
}

/* Gradients of biases: by the side whose bias it is. */
static void bias_exact(const struct trial *a, bool add)
{
    float *got = filled(a->k.o, whole), *want = room(a->k.o), *grad = room(result_floats(a, WEIGHTS));
    conv_bias(a->k.n, a->k.o, a->out_points, a->g, want);
    for (int64_t i = 0; add && i < a->k.o; i++) want[i] += got[i];
    if (a->patch) a->t->patch->sums((int)a->k.n, a->p.out_blocks, a->out_points, a->bg, got, add);
    else {
        const struct wino w = wino_plan(&a->s);
        a->t->wino->weights(&w, a->bx, a->bg, grad, got, add, a->work);
    }
    for (int64_t i = 0; i < a->k.o; i++)
        sure(got[i] == want[i], "%s: bias gradient %lld is %g, not %g", a->t->name, (long long)i, (double)got[i],
             (double)want[i]);
    free(got);
    free(want);
    free(grad);
}

static void all_exact(struct size z, bool patch)
{
    for (int t = 0; t < N_OF(tables); t++) {
        struct trial a;
        if (!has(&tables[t])) continue;
        trial_make(&a, &tables[t], z, patch, whole);
        for (int i = 0; i < 2 * PASSES; i++) exact(&a, (enum pass)(i / 2), i % 2);
        for (int add = 0; add < 2; add++) bias_exact(&a, add);
        trial_free(&a);
    }
}

/* Odd blocks, planes that end within a tile, single planes, more planes and rows of tiles than are taken at a time, and
 * as many channels as there may be. */
static const struct size winos[] = {{1, 1, 1, 3, 5, 7},  {2, 3, 3, 4, 4, 4}, {3, 2, 2, 1, 2, 9},
                                    {1, 2, 2, 2, 33, 40}, {2, 1, 2, 70, 4, 4}, {8, 7, 1, 4, 4, 5},
                                    {1, 1, 5, 2, 3, 2},  {1, 1, 1, 2, 2, 131}, {1, 2, 3, 0, 5, 7},
                                    {1, 1, 1, 0, 17, 40}, {1, 3, 35, 0, 4, 4},  {2, 2, 2, 0, 2, 300}};
START_TEST(wino_exact)
{
    for (threads = 1; threads <= (winos[_i].d ? 1 : 3); threads += 2) all_exact(winos[_i], false);
}
END_TEST

static const struct size patches[] = {{1, 1, 1, 1, 1, 1}, {2, 3, 3, 2, 3, 5}, {3, 2, 2, 3, 1, 2},
                                      {1, 2, 2, 9, 9, 13}, {5, 4, 1, 2, 2, 2}};
START_TEST(patch_exact) { all_exact(patches[_i], true); }
END_TEST

static double distance(const struct trial *a, enum pass pass)
{
    const int64_t n = result_floats(a, pass);
    float *want = room(n), *got = room(n), *blocks = room(n);
    double off = 0, all = 0;
    plain_pass(a, pass, NULL, want);
    blocks_take(a, pass, blocks, want);
    blocks_pass(a, pass, NULL, got, false);
    for (int64_t i = 0; i < n; i++) {
        off += ((double)got[i] - blocks[i]) * ((double)got[i] - blocks[i]);
        all += (double)blocks[i] * blocks[i];
    }
    free(want);
    free(got);
    free(blocks);
    return sqrt(off / all);
}

/* The reference adds up in double. 5.9e-7 was seen of outputs, sums of 3456 products where channels are most, and
 * 9.9e-7 of weight gradients, sums of 4096; in float such sums are that far off by any algorithm. */
START_TEST(rounding_is_small)
{
    static const double most[PASSES] = {[OUT] = 1e-6, [IN] = 1e-6, [WEIGHTS] = 2e-6};
    for (int t = 0; t < N_OF(tables); t++) {
        const struct table *of = &tables[t];
        const int few = 16 / of->lanes, many = 128 / of->lanes;
        const struct size z[] = {{few, few, 2, 8, 16, 16}, {many, many, 1, 4, 4, 4}, {many, few, 2, 0, 8, 8}};
        for (int i = 0; has(of) && i < N_OF(z); i++) {
            struct trial a;
            trial_make(&a, of, z[i], false, real);
            for (int p = 0; p < PASSES; p++) {
                double d = distance(&a, (enum pass)p);
                sure(d > 0 && d < most[p], "%s: %s is %g from double precision", of->name, pass_name[p], d);
            }
            trial_free(&a);
        }
    }
}
END_TEST

/* A sample's output has the same bits in any micro-batch. */
START_TEST(samples_are_alone)
{
    for (int t = 0; t < N_OF(tables); t++) {
        struct trial all, one;
        if (!has(&tables[t])) continue;
        trial_make(&all, &tables[t], (struct size){2, 3, 3, 3, 6, 5}, false, real);
        trial_make(&one, &tables[t], (struct size){2, 3, 1, 3, 6, 5}, false, real);
        memcpy(one.bw, all.bw, (size_t)result_floats(&all, WEIGHTS) * sizeof(float));
        const int64_t outs = result_floats(&one, OUT), ins = result_floats(&one, IN);
        float *whole_batch = room(3 * outs), *single = room(outs);
        wino_pass(&all, OUT, all.bias, whole_batch, false);
        for (int n = 0; n < 3; n++) {
            memcpy(one.bx, all.bx + n * ins, (size_t)ins * sizeof(float));
            wino_pass(&one, OUT, all.bias, single, false);
            ck_assert(!memcmp(single, whole_batch + n * outs, (size_t)outs * sizeof(float)));
        }
        free(whole_batch);
        free(single);
        trial_free(&all);
        trial_free(&one);
    }
}
END_TEST

START_TEST(what_is_taken)
{
    static const struct { struct wino_shape s; bool taken, weights; } shapes[] = {
        {{1, 8, 16, 16, {32, 32, 32}, 3, 1}, true, true},   {{1, 16, 16, 128, {8, 8, 8}, 3, 1}, true, true},
        {{1, 8, 128, 128, {4, 4, 4}, 3, 1}, true, false},   {{1, 8, 12, 16, {32, 32, 32}, 3, 1}, false, true},
        {{1, 16, 16, 24, {32, 32, 32}, 3, 1}, false, true}, {{1, 8, 136, 16, {8, 8, 8}, 3, 1}, false, true},
        {{1, 8, 16, 16, {32, 1, 32}, 3, 1}, false, true},   {{1, 8, 16, 16, {2, 2, 2}, 3, 1}, false, false},
        {{1, 1, 16, 16, {32, 32, 32}, 3, 1}, false, true},  {{20, 16, 512, 512, {1, 4, 4}, 1, 1}, true, false},
        {{1, 16, 512, 512, {1, 4, 4}, 1, 1}, false, false}, {{20, 8, 256, 256, {1, 8, 8}, 1, 1}, true, true},
        {{4, 8, 256, 256, {1, 8, 8}, 1, 1}, true, false},   {{20, 16, 528, 512, {1, 8, 8}, 1, 1}, false, true},
        {{20, 16, 64, 64, {1, 2, 2}, 1, 1}, false, false}};
    for (int i = 0; i < N_OF(shapes); i++) {
        sure(wino_takes(&shapes[i].s) == shapes[i].taken, "shape %d", i);
        sure(wino_weights_wanted(&shapes[i].s) == shapes[i].weights, "weights of shape %d", i);
    }
    ck_assert(wino_share(&shapes[0].s) == 4.0 / 9);
}
END_TEST

int main(void)
{
    TCase *c = suite_case("wino", 300);
    suite_loop(c, wino_exact, N_OF(winos), cases_of(i_ % 4 == 0, 1, 1) && SANITIZED_EVERY(4));
    suite_loop(c, patch_exact, N_OF(patches), cases_of(i_ % 4 == 0, 1, 1) && SANITIZED_EVERY(4));
    tcase_add_test(c, rounding_is_small);
    tcase_add_test(c, samples_are_alone);
    tcase_add_test(c, what_is_taken);
    return suite_run("wino", CK_FORK, c);
}
