/* Processing of volumes: orientation, resampling, cropping, values, the way back, and what is cached. Interpolation is
 * compared with sums over all voxels, in double. */
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include "base/mem.h"
#include "base/rng.h"
#include "data/volume.h"
#include "data/volume_cache.h"
#include "nifti_rig.h"

/* A file of the given affine, of which only the grid matters. */
static struct nifti file_of(const int64_t dim[3], const double affine[3][4])
{
    struct nifti f = {.path = "x.nii", .dim = {dim[0], dim[1], dim[2], 1}};
    memcpy(f.affine, affine, sizeof f.affine);
    return f;
}

static struct volume_grid grid_of(const struct nifti *f, struct volume_want w)
{
    struct err e = {0};
    struct volume_grid g;
    ck_assert_msg(!volume_grid_of(f, &w, &g, &e), "%s", e.text);
    return g;
}

static const int64_t sides[3] = {5, 4, 3};

/* Axis i of the file goes along axis order[i], backwards where its bit is set. */
static struct nifti turned(const int order[3], int back)
{
    double a[3][4] = {{0}};
    for (int i = 0; i < 3; i++) a[order[i]][i] = (back >> i & 1 ? -1 : 1) * (1.5 + i);
    return file_of(sides, a);
}

static const int orders[6][3] = {{0, 1, 2}, {0, 2, 1}, {1, 0, 2}, {1, 2, 0}, {2, 0, 1}, {2, 1, 0}};

/* All 48 orientations: each voxel lands where its coordinates say, and comes back. */
START_TEST(volume_turns_all_ways)
{
    for (int back = 0; back < 8; back++) {
        const int *order = orders[_i];
        const struct nifti f = turned(order, back);
        const struct volume_grid g = grid_of(&f, (struct volume_want){0});
        float in[60], out[60];
        uint8_t label[60], scaled[60], again[60];
        for (int i = 0; i < 60; i++) label[i] = (uint8_t)(in[i] = (float)i);
        volume_scale(&g, in, out);
        volume_scale_labels(&g, label, scaled);
        for (int64_t at = 0; at < 60; at++) {
            const int64_t from[3] = {at % 5, at / 5 % 4, at / 20};
            int64_t to[3], n[3];
            for (int i = 0; i < 3; i++) {
                n[order[i]] = sides[i];
                to[order[i]] = back >> i & 1 ? sides[i] - 1 - from[i] : from[i];
            }
            ck_assert(g.from[0] == n[0] && g.from[1] == n[1] && g.from[2] == n[2]);
            ck_assert(out[(to[0] * n[1] + to[1]) * n[2] + to[2]] == (float)at);
        }
        for (int i = 0; i < 60; i++) ck_assert(scaled[i] == (uint8_t)out[i]);
        volume_back(&g, scaled, again);
        ck_assert_mem_eq(again, label, sizeof again);
    }
}
END_TEST

/* A rotation by 40 degrees about z and a shear keep the nearest axes; by 50 degrees the next one is nearer. */
START_TEST(volume_takes_the_nearest_axes)
{
    for (int degrees = -180; degrees < 180; degrees += 10) {
        const double r = degrees * 3.14159265358979 / 180, c = cos(r), s = sin(r);
        const double a[3][4] = {{2 * c, -3 * s, 0.3, 0}, {2 * s, 3 * c, 0, 0}, {0, 0, 4, 0}};
        const struct nifti f = file_of(sides, a);
        const struct volume_grid g = grid_of(&f, (struct volume_want){0});
        const bool swapped = fabs(s) > fabs(c);
        ck_assert_int_eq(g.axis[0], swapped);
        ck_assert_int_eq(g.axis[2], 2);
        ck_assert_int_eq(g.flip[swapped ? 1 : 0], (swapped ? s : c) < 0);
    }
}
END_TEST

/* The same strongly oblique volume, whatever the order and the directions in which its file has the axes: by 45 degrees
 * about two axes, all of them are equally certain. */
START_TEST(volume_turns_one_way_whatever_the_order)
{
    static const double degrees[][2] = {{44, 44}, {50, 50}, {44, -48}, {45, 45}, {45, 0}, {47, 46}};
    const double x = degrees[_i][0] * 3.14159265358979 / 180, y = degrees[_i][1] * 3.14159265358979 / 180;
    const double r[3][3] = {{cos(y), sin(x) * sin(y), cos(x) * sin(y)}, {0, cos(x), -sin(x)},
                            {-sin(y), sin(x) * cos(y), cos(x) * cos(y)}};
    int axis[3] = {0}, back[3] = {0};
    for (int k = 0; k < 48; k++) {
        double a[3][4] = {{0}};
        for (int i = 0; i < 9; i++) a[i / 3][i % 3] = (k >> i % 3 & 1 ? -0.6 : 0.6) * r[i / 3][orders[k / 8][i % 3]];
        const struct nifti f = file_of(sides, a);
        const struct volume_grid g = grid_of(&f, (struct volume_want){0});
        for (int i = 0; i < 3; i++) {
            const int is = orders[k / 8][g.axis[i]], flips = g.flip[i] ^ (k >> g.axis[i] & 1);
            if (!k) { axis[i] = is; back[i] = flips; }
            ck_assert(axis[i] == is && back[i] == flips);
        }
    }
}
END_TEST

/* ---- resampling -------------------------------------------------------------------------------------------------- */

/* The weight of voxel k of n for element i of m: a tent about where its centre lies, which is kept within the first and
 * the last centre. */
static double tent(int64_t k, int64_t n, int64_t i, int64_t m)
{
    double at = ((double)i + 0.5) * (double)n / (double)m - 0.5;
    at = fmin(fmax(at, 0), (double)(n - 1));
    return fmax(0, 1 - fabs((double)k - at));
}

static double sum_of(const struct volume_grid *g, const float *in, int64_t x, int64_t y, int64_t z)
{
    double sum = 0;
    for (int64_t i = 0; i < g->from[0]; i++)
        for (int64_t j = 0; j < g->from[1]; j++)
            for (int64_t k = 0; k < g->from[2]; k++)
                sum += tent(i, g->from[0], x, g->scaled[0]) * tent(j, g->from[1], y, g->scaled[1]) *
                       tent(k, g->from[2], z, g->scaled[2]) * in[i + g->from[0] * (j + g->from[1] * k)];
    return sum;
}

/* Up and down by odd factors. Both sides are of values below 1 in magnitude, in double; ours is rounded to a float in
 * the end, which is 6e-8. */
START_TEST(volume_interpolates)
{
    static const double spacings[][3] = {{1, 1, 1}, {2, 3, 0.7}, {0.4, 0.9, 2.5}, {7, 1, 1}};
    const double a[3][4] = {{1.5, 0, 0, 0}, {0, 1, 0, 0}, {0, 0, 1.25, 0}};
    const int64_t dim[3] = {9, 7, 6};
    const struct nifti f = file_of(dim, a);
    struct volume_want w = {0};
    float in[9 * 7 * 6];
    rng_fill_uniform((struct rng_at){.seed = 3, .domain = RNG_TEST}, in, 9 * 7 * 6);
    memcpy(w.spacing, spacings[_i], sizeof w.spacing);
    const struct volume_grid g = grid_of(&f, w);
    for (int i = 0; i < 3; i++)
        ck_assert_int_eq(g.scaled[i], llrint((double)dim[i] * a[i][i] / w.spacing[i]));
    float *out = mem_alloc(volume_count(g.scaled) * sizeof *out), *at = out;
    volume_scale(&g, in, out);
    for (int64_t x = 0; x < g.scaled[0]; x++)
        for (int64_t y = 0; y < g.scaled[1]; y++)
            for (int64_t z = 0; z < g.scaled[2]; z++) {
                double want = sum_of(&g, in, x, y, z);
                ck_assert_msg(fabs(*at++ - want) < 1e-7, "%g, not %g", (double)at[-1], want);
            }
    free(out);
}
END_TEST

/* Labels: the voxel whose centre is nearest, of two the one behind, as torch's nearest-exact. */
START_TEST(volume_takes_the_nearest_label)
{
    static const struct { int64_t from, to; uint8_t want[8]; } cases[] = {
        {4, 2, {1, 3}}, {4, 8, {0, 0, 1, 1, 2, 2, 3, 3}}, {5, 3, {0, 2, 4}}, {3, 5, {0, 0, 1, 2, 2}},
        {6, 4, {0, 2, 3, 5}},
        {7, 1, {3}}};
    for (size_t k = 0; k < sizeof cases / sizeof *cases; k++) {
        struct volume_grid g = {.axis = {0, 1, 2}, .dim = {1, 1, cases[k].from}, .from = {1, 1, cases[k].from},
                                .scaled = {1, 1, cases[k].to}};
        uint8_t in[8] = {0, 1, 2, 3, 4, 5, 6, 7}, out[8];
        volume_scale_labels(&g, in, out);
        ck_assert_mem_eq(out, cases[k].want, (size_t)cases[k].to);
    }
}
END_TEST

/* A blob that is resampled to finer voxels and back is the same; what was cropped away comes back as 0. */
START_TEST(volume_comes_back)
{
    for (int back = 0; back < 8; back++) {
        const struct nifti f = turned(orders[_i], back);
        const struct volume_want fine = {.spacing = {0.5, 0.5, 0.5}}, cut = {.size = {2, 2, 2}},
                                 wide = {.spacing = {0.5, 0.5, 0.5}, .size = {40, 40, 40}};
        uint8_t in[60], again[60];
        for (int i = 0; i < 60; i++) in[i] = (uint8_t)(1 + i);
        for (int k = 0; k < 3; k++) {
            const struct volume_grid g = grid_of(&f, k == 0 ? fine : k == 1 ? wide : cut);
            uint8_t *scaled = mem_alloc(volume_count(g.scaled)), *fitted = mem_alloc(volume_count(g.size));
            int same = 0, none = 0;
            volume_scale_labels(&g, in, scaled);
            volume_fit_labels(&g, scaled, fitted);
            volume_back(&g, fitted, again);
            for (int i = 0; i < 60; i++) {
                same += again[i] == in[i];
                none += !again[i];
            }
            ck_assert_int_eq(same, k == 2 ? 8 : 60);
            ck_assert_int_eq(none, 60 - same);
            free(scaled);
            free(fitted);
        }
    }
}
END_TEST

START_TEST(volume_crops_and_pads)
{
    struct volume_grid g = {.scaled = {1, 2, 5}, .size = {1, 4, 2}, .start = {0, -1, 1}};
    const float in[10] = {1, 2, 3, 4, 5, 6, 7, 8, 9, 10}, want[8] = {0, 0, 2, 3, 7, 8, 0, 0};
    float out[8];
    const double a[3][4] = {{1, 0, 0, 0}, {0, 1, 0, 0}, {0, 0, 1, 0}};
    const struct nifti f = file_of((int64_t[]){1, 2, 5}, a);
    volume_fit(&g, in, out);
    ck_assert_mem_eq(out, want, sizeof out);
    const struct volume_grid made = grid_of(&f, (struct volume_want){.size = {1, 4, 2}});
    ck_assert_mem_eq(made.start, g.start, sizeof g.start);
    const struct volume_grid odd = grid_of(&f, (struct volume_want){.size = {4, 5, 2}, .least = {9, 9, 9}}),
                             own = grid_of(&f, (struct volume_want){.least = {1, 3, 3}});
    ck_assert(odd.start[0] == -1 && odd.start[1] == -1 && odd.start[2] == 1);   /* half of it, rounded towards 0 */
    ck_assert(own.size[0] == 1 && own.size[1] == 3 && own.size[2] == 5);
}
END_TEST

START_TEST(volume_refuses_what_becomes_too_large)
{
    const double a[3][4] = {{1e9, 0, 0, 0}, {0, 1, 0, 0}, {0, 0, 1, 0}};
    const struct nifti f = file_of(sides, a);
    struct volume_grid g;
    struct err e = {0}, more = {0};
    ck_assert(volume_grid_of(&f, &(struct volume_want){.spacing = {1, 1, 1}}, &g, &e));
    expect(&e, E_DATA, "x.nii:|1e+09x1x1|1073741824 (data.spacing, data.size)");
    ck_assert(volume_grid_of(&f, &(struct volume_want){.size = {2048, 2048, 2048}}, &g, &more));
    expect(&more, E_DATA, "would become more than");
    g = grid_of(&f, (struct volume_want){.spacing = {1e10, 100, 1}});
    ck_assert(g.scaled[0] == 1 && g.scaled[1] == 1 && g.scaled[2] == 3);   /* at least one */
}
END_TEST

START_TEST(volume_compares_grids)
{
    double a[3][4] = {{1, 0, 0, 0}, {0, 1, 0, 0}, {0, 0, 1, 0}};
    const struct nifti x = file_of((int64_t[]){100, 10, 10}, a), small = file_of((int64_t[]){100, 10, 9}, a);
    struct err e = {0}, far = {0};
    a[2][3] = 0.09;                                      /* a thousandth for each of 100 is 0.1 */
    struct nifti y = file_of((int64_t[]){100, 10, 10}, a);
    y.path = "y.nii";
    ck_assert(!volume_same(&x, &y, &e));
    y.affine[1][0] = 0.001;
    ck_assert(volume_same(&x, &y, &far));
    expect(&far, E_DATA, "y.nii:|0.1338|x.nii:");
    ck_assert(volume_same(&small, &y, &e));
    expect(&e, E_DATA, "y.nii: has 100x10x10 voxels, but x.nii has 100x10x9");
}
END_TEST

/* ---- values: numbers of numpy, to a float's last places ---------------------------------------------------------- */

static void becomes(enum intensity how, const float *want)
{
    float x[6] = {0, 2, 4, 0, -1, 7};
    volume_values(how, x, 6);
    for (int i = 0; i < 6; i++) ck_assert_msg(fabsf(x[i] - want[i]) < 1e-6f, "%d: %d: %.9g", how, i, (double)x[i]);
}

START_TEST(volume_changes_values)
{
    becomes(INTENSITY_NONE, (float[]){0, 2, 4, 0, -1, 7});
    becomes(INTENSITY_MINMAX, (float[]){0.125f, 0.375f, 0.625f, 0.125f, 0, 1});
    becomes(INTENSITY_ZSCORE, (float[]){-0.72231512f, 0, 0.72231512f, -0.72231512f, -1.08347268f, 1.8057878f});
    becomes(INTENSITY_NONZERO, (float[]){0, -0.34299717f, 0.34299717f, 0, -1.37198868f, 1.37198868f});
    becomes(INTENSITY_PERCENTILE, (float[]){-0.72640015f, 0.00303933f, 0.73247881f, -0.72640015f, -1.0820019f,
                                          1.79928405f});
    for (enum intensity how = INTENSITY_MINMAX; how <= INTENSITY_PERCENTILE; how++) {
        float flat[3] = {5, 5, 5}, none[2] = {0, 0};
        volume_values(how, flat, 3);
        volume_values(how, none, 2);
        ck_assert(flat[0] == 0 && flat[2] == 0 && none[0] == 0 && none[1] == 0);
    }
}
END_TEST

static int order(const void *a, const void *b)
{
    const float x = *(const float *)a, y = *(const float *)b;
    return (x > y) - (x < y);
}

/* numpy's percentiles are where they are after sorting, also among equal values and below 0. n has them between two
 * values or at one. */
START_TEST(volume_finds_percentiles)
{
    static const int sizes[] = {1, 2, 199, 201, 2000, 4001};
    static float x[4001], sorted[4001], want[4001];
    const int n = sizes[_i % 6], equal = _i / 6;
    rng_fill_normal((struct rng_at){.seed = 4, .domain = RNG_TEST}, x, (size_t)n);
    for (int i = 0; i < n; i++) x[i] = equal ? rintf(x[i]) : 100 * x[i] * x[i] * x[i];
    memcpy(sorted, x, sizeof sorted);
    qsort(sorted, (size_t)n, sizeof *sorted, order);
    float ends[2];
    for (int k = 0; k < 2; k++) {
        const double at = (k ? 0.995 : 0.005) * (n - 1), part = at - floor(at);
        const double a = sorted[(int)at], b = sorted[(int)at + (part > 0)];
        ends[k] = (float)(a + (b - a) * part);
    }
    for (int i = 0; i < n; i++) want[i] = fminf(fmaxf(x[i], ends[0]), ends[1]);
    volume_values(INTENSITY_ZSCORE, want, (uint64_t)n);
    volume_values(INTENSITY_PERCENTILE, x, (uint64_t)n);
    for (int i = 0; i < n; i++) ck_assert_msg(x[i] == want[i], "%d: %.9g, not %.9g", i, (double)x[i], (double)want[i]);
}
END_TEST

/* ---- the cache --------------------------------------------------------------------------------------------------- */

static int made_badly(void *ctx, uint64_t number, void *out, struct err *e)
{
    *(char *)out = (char)number;
    return ++*(int *)ctx == 1 ? err_set(e, E_DATA, "no") : 0;
}

START_TEST(volume_cache_keeps_what_finds_room)
{
    struct err e = {0};
    int calls = 0;
    struct volume_cache *c = volume_cache_new(3, 150, 0);
    const struct volume_maker m = {made_badly, &calls, 100};
    ck_assert(!volume_cache_take(c, 0, &m, &e) && e.code == E_DATA && volume_cache_bytes(c) == 0);
    for (uint64_t i = 0; i < 6; i++) {                   /* the first one stays, the others are made again */
        const char *at = volume_cache_take(c, i % 3, &m, NULL);
        ck_assert(at && *at == (char)(i % 3));
        ck_assert_ptr_eq(volume_cache_take(c, i % 3, &m, NULL), at);
        ck_assert_uint_eq(volume_cache_bytes(c), i % 3 ? 200 : 100);
        volume_cache_give(c, i % 3);
        volume_cache_give(c, i % 3);
        ck_assert_uint_eq(volume_cache_bytes(c), 100);
    }
    ck_assert_int_eq(calls, 1 + 5);
    volume_cache_free(c);
}
END_TEST

/* What finds no room is made once for neighbouring uses, also when two blocks take turns; a third one takes the place
 * of the oldest. */
START_TEST(volume_cache_lets_rest)
{
    static const struct { uint64_t number; int calls; size_t bytes; } uses[] = {
        {0, 1, 100}, {1, 2, 200}, {1, 2, 200}, {2, 3, 300}, {1, 3, 300}, {2, 3, 300}, {3, 4, 300}, {2, 4, 300},
        {1, 5, 300}, {0, 5, 300}};
    int calls = 1;
    struct volume_cache *c = volume_cache_new(4, 150, 250);
    const struct volume_maker m = {made_badly, &calls, 100};
    for (size_t i = 0; i < sizeof uses / sizeof *uses; i++) {
        const char *at = volume_cache_take(c, uses[i].number, &m, NULL);
        ck_assert(at && *at == (char)uses[i].number);
        volume_cache_give(c, uses[i].number);
        ck_assert_int_eq(calls, 1 + uses[i].calls);
        ck_assert_uint_eq(volume_cache_bytes(c), uses[i].bytes);
    }
    volume_cache_free(c);
    c = volume_cache_new(3, 0, 150);                     /* room for one alone */
    for (uint64_t i = 0; i < 6; i++) {
        ck_assert(volume_cache_take(c, i / 2, &m, NULL));
        volume_cache_give(c, i / 2);
        ck_assert_uint_eq(volume_cache_bytes(c), 100);
    }
    ck_assert_int_eq(calls, 1 + 5 + 3);
    volume_cache_free(c);
}
END_TEST

static void all(TCase *t)
{
    tcase_add_loop_test(t, volume_turns_all_ways, 0, 6);
    tcase_add_test(t, volume_takes_the_nearest_axes);
    tcase_add_loop_test(t, volume_turns_one_way_whatever_the_order, 0, 6);
    tcase_add_loop_test(t, volume_interpolates, 0, 4);
    tcase_add_test(t, volume_takes_the_nearest_label);
    tcase_add_loop_test(t, volume_comes_back, 0, 6);
    tcase_add_test(t, volume_crops_and_pads);
    tcase_add_test(t, volume_refuses_what_becomes_too_large);
    tcase_add_test(t, volume_compares_grids);
    tcase_add_test(t, volume_changes_values);
    tcase_add_loop_test(t, volume_finds_percentiles, 0, 12);
    tcase_add_test(t, volume_cache_keeps_what_finds_room);
    tcase_add_test(t, volume_cache_lets_rest);
}

int main(void) { return scratch_suite("volume", all); }
