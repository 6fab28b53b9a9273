/* Lists of augmentations: every entry against torchvision's pixels (tests/torch/augment.expected, made by
 * tests/torch/augment.py), the same bits from every format, floats that are moved, samples that are mixed, test
 * samples, and wrong lists. */
#include <limits.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "base/text.h"
#include "data/augment_int.h"
#include "data/mix.h"
#include "data/npy.h"
#include "data/picture.h"
#include "data_rig.h"

enum { H = 41, W = 53 };
static char kept[PATH_MAX], pictures[PATH_MAX];

/* Of whole numbers: flat parts, steep ones, and a grey one; as in tests/torch/augment.py. */
static uint8_t pattern(int y, int x, int k)
{
    int grey = x * 3, of[3] = {x * 5 + y * 3, x * x / 7 + 40 * (y / 5), x * y / 3 + 90};
    return (uint8_t)(y < H / 4 && x < W / 3 ? grey : of[k]);
}

static struct augment *list_open(const char *list, const struct augment_want *w, struct err *e)
{
    char data[1000];
    struct augment *a;
    snprintf(data, sizeof data, "source = idx augment = %s", list);
    struct conf *c = conf_make(data);
    int bad = augment_open(c, DS_TRAIN, w, &a, e);
    conf_free(c);
    ck_assert_int_eq(bad, e->code ? -1 : 0);
    return a;
}

static void kept_check(const char *line)
{
    static float x[3 * 100 * 100], level[3 * 256];
    char list[200], want[40], got[33];
    int visit, h, w, at;
    struct err e = {0};
    ck_assert_int_eq(sscanf(line, "%d %d %d %39s %n", &visit, &h, &w, want, &at), 4);
    snprintf(list, sizeof list, "{\"%s\"}", line + at);
    struct augment *a = list_open(list, &(struct augment_want){"f", 3, h, w, true, false}, &e);
    ck_assert_msg(a != NULL, "%s: %s", line, e.text);
    for (int i = 0; i < 3 * 256; i++) level[i] = (float)(i % 256);
    struct canvas c = {0};
    canvas_begin(&c, true, 1, H, W);
    for (int i = 0; i < H * W; i++)
        for (int k = 0; k < 3; k++) ((uint8_t *)c.at)[4 * i + k] = pattern(i / W, i % W, k);
    const struct ds_norm norm = {.channels = 3};
    const struct augment_values values = {&norm, level, 3, false};
    augment_values(a, (struct augment_key){0, (uint64_t)visit}, &values, &c, x);
    canvas_free(&c);
    augment_free(a);
    text_hash(x, (size_t)(3 * h * w) * sizeof *x, got);
    ck_assert_msg(!strcmp(got, want), "%s: %s", line, got);
}

START_TEST(as_torchvision)
{
    struct text t = {0};
    struct err e = {0};
    int n = 0;
    ck_assert_msg(!text_read_file(&t, kept, 1 << 20, &e), "%s", e.text);
    for (char *save, *line = strtok_r(t.s, "\n", &save); line; line = strtok_r(NULL, "\n", &save), n++)
        kept_check(line);
    ck_assert_int_ge(n, 100);
    text_free(&t);
}
END_TEST

/* ---- formats ----------------------------------------------------------------------------------------------------- */

enum { N = 5, SIDE = 12, IMAGE = 3 * SIDE * SIDE };

static uint8_t image_value(int i, int at) { return (uint8_t)(i * 37 + at * 11 + at * at / 5); }

static void npy_put(const char *path, enum npy_type t, struct shape s, const void *data)
{
    struct text file = {0};
    npy_add(&file, t, &s, data);
    put(path, file.s, file.n);
    text_free(&file);
}

static void png_put(const char *path, const uint8_t *rgb, int height, int width)
{
    struct text file = {0};
    struct err e = {0};
    ck_assert_msg(!picture_png_write(rgb, height, width, &file, &e), "%s", e.text);
    put(path, file.s, file.n);
    text_free(&file);
}

static void pictures_make(void)
{
    uint8_t rgb[IMAGE];
    char name[20];
    for (int i = 0; i < N; i++) {
        for (int at = 0; at < IMAGE; at++) rgb[at] = image_value(i, at % 3 * SIDE * SIDE + at / 3);
        snprintf(name, sizeof name, "%d.png", i);
        png_put(name, rgb, SIDE, SIDE);
    }
    put_text("list", "0.png 0\n1.png 1\n2.png 2\n3.png 3\n4.png 4\n");
}

/* The same images as IDX, as NPY of bytes, and of floats, and as PNG; classes 0 to 4. */
static void files_make(void)
{
    static uint8_t idx[16 + 4 + N * IMAGE] = {0, 0, 8, 4, 0, 0, 0, N, 0, 0, 0, 3, 0, 0, 0, SIDE, 0, 0, 0, SIDE};
    static float x[N * IMAGE];
    uint8_t labels[8 + N] = {0, 0, 8, 1, 0, 0, 0, N};
    for (int i = 0; i < N * IMAGE; i++) idx[20 + i] = image_value(i / IMAGE, i % IMAGE);
    for (int i = 0; i < N; i++) labels[8 + i] = (uint8_t)i;
    put("x.idx", idx, sizeof idx);
    put("y.idx", labels, sizeof labels);
    npy_put("x.npy", NPY_U1, (struct shape){4, {N, 3, SIDE, SIDE}}, idx + 20);
    npy_put("y.npy", NPY_U1, (struct shape){1, {N}}, labels + 8);
    pictures_make();
    for (int i = 0; i < N * IMAGE; i++) x[i] = idx[20 + i] / 255.0f;
    npy_put("f.npy", NPY_F4, (struct shape){4, {N, 3, SIDE, SIDE}}, x);
}

#define IDX "source = idx train = x.idx train_labels = y.idx test = x.idx test_labels = y.idx "
#define NPY "source = npy train = x.npy train_labels = y.npy "
#define FLOATS "source = npy train = f.npy train_labels = y.npy "
#define PNGS "source = images train = list damaged = error upright = yes "
#define NORM "mean = {0.1, 0.2, 0.3} std = {0.5, 0.6, 0.7} "
static const struct ds_pair want = {.input = {3, {3, SIDE, SIDE}}, .target_type = I64, .classes = N};
static const struct ds_pair vector = {.input = {3, {3, SIDE, SIDE}}, .target_type = F32, .target = {1, {N}},
                                      .has_target = true};

static void read_at(struct ds *d, uint64_t sample, uint64_t visit, int field, void *x)
{
    struct err e = {0};
    ck_assert_msg(!ds_read(d, &(struct ds_at){sample, visit, field}, x, &e), "%s", e.text);
}

START_TEST(formats_agree)
{
    static const char *const lists[] = {"{\"random_crop padding=3\", \"horizontal_flip\", \"vertical_flip\"}",
                                        "{horizontal_flip, \"color_jitter brightness=0.5 hue=0.1\", trivial_augment}",
                                        "{random_resized_crop, rand_augment, \"random_erasing noise=1\"}"};
    static float x[IMAGE], y[IMAGE], z[IMAGE];
    char data[400];
    files_make();
    for (int l = 0; l < 3; l++) {
        int differ = 0;
        snprintf(data, sizeof data, IDX NORM "augment = %s", lists[l]);
        struct ds *a = open_good(data, want);
        snprintf(data, sizeof data, NPY NORM "augment = %s", lists[l]);
        struct ds *b = open_good(data, want);
        snprintf(data, sizeof data, PNGS NORM "augment = %s", lists[l]);
        struct ds *c = open_good(data, want);
        for (uint64_t i = 0; i < N; i++)
            for (uint64_t visit = 0; visit < 4; visit++) {
                read_at(a, i, visit, PAIR_INPUT, x);
                read_at(b, i, visit, PAIR_INPUT, y);
                ck_assert_mem_eq(x, y, sizeof x);
                read_at(c, i, visit, PAIR_INPUT, y);
                ck_assert_mem_eq(x, y, sizeof x);
                read_at(a, i, visit + 1, PAIR_INPUT, z);
                differ += memcmp(x, z, sizeof x) != 0;
            }
        ck_assert_int_ge(differ, 12);
        ds_close(a);
        ds_close(b);
        ds_close(c);
    }
}
END_TEST

/* What is scaled, padded and cropped is that of images; IDX scales in floats, so it only moves here. */
START_TEST(framed_formats_agree)
{
    static const struct { const char *data, *idx; int height, width; } made[] = {
        {"resize = {12, 12} pad = {18, 16} ", "pad = {18, 16} ", 18, 16},
        {"resize = {12, 12} pad = {14, 13} ", "pad = {14, 13} ", 9, 10},
        {"resize = {12, 12} ", "resize = {12, 12} ", 7, 12},
        {"resize = {12, 12} ", "resize = {12, 12} ", 9, 9},
        {"resize = {17, 9} pad = {17, 11} ", NULL, 16, 10},
        {"resize = 8 ", NULL, 8, 7},
    };
    static const char *const lists[] = {"", "augment = {\"random_crop padding=2\", horizontal_flip, trivial_augment}",
                                        "augment = {random_resized_crop, \"random_erasing noise=1\"}"};
    static float x[3 * 18 * 18], y[3 * 18 * 18];
    char data[400];
    files_make();
    for (size_t m = 0; m < 3 * sizeof made / sizeof *made; m++) {
        const char *list = lists[m % 3];
        struct ds_pair of = want;
        of.input = (struct shape){3, {3, made[m / 3].height, made[m / 3].width}};
        snprintf(data, sizeof data, PNGS NORM "%s %s", made[m / 3].data, list);
        struct ds *a = open_good(data, of), *c = NULL;
        snprintf(data, sizeof data, NPY NORM "%s %s", made[m / 3].data, list);
        struct ds *b = open_good(data, of);
        snprintf(data, sizeof data, IDX NORM "%s %s", made[m / 3].idx, list);
        if (made[m / 3].idx) c = open_good(data, of);
        for (uint64_t i = 0; i < N; i++) {
            read_at(a, i, 1, PAIR_INPUT, x);
            read_at(b, i, 1, PAIR_INPUT, y);
            size_t bytes = (size_t)shape_count(&of.input) * sizeof *x;
            ck_assert_msg(!memcmp(x, y, bytes), "npy, %s %s", made[m / 3].data, list);
            if (!c) continue;
            read_at(c, i, 1, PAIR_INPUT, y);
            ck_assert_msg(!memcmp(x, y, bytes), "idx, %s %s", made[m / 3].data, list);
        }
        ds_close(a);
        ds_close(b);
        if (c) ds_close(c);
    }
}
END_TEST

/* The list sees upright pictures: a stored one that lies on its side gives what its upright copy gives, but for the
 * order in which rows and columns are scaled. */
START_TEST(turned_pictures)
{
    enum { LONG = 37, SHORT = 29, OUT = 3 * 10 * 14, LEVELS = 3 };
    static float x[3 * LONG * SHORT], y[OUT], z[OUT];
    static uint8_t rgb[3 * LONG * SHORT];
    char line[PATH_MAX + 20], data[200];
    static const char *const lists[] = {"{\"random_resized_crop scale=0.2,0.6\"}", "{\"resize size=20\", random_crop}"};
    const struct ds_pair small = {.input = {3, {3, 10, 14}}, .target_type = I64, .classes = 1};
    for (int turn = 1; turn <= 8; turn++) {
        struct ds_pair whole = small;
        const int h = turn < 5 ? SHORT : LONG, w = turn < 5 ? LONG : SHORT;
        whole.input = (struct shape){3, {3, h, w}};
        snprintf(line, sizeof line, "%s/turned%d.jpg 0\n", pictures, turn);
        put_text("turned", line);
        put_text("upright", "upright.png 0\n");
        struct ds *d = open_good("source = images train = turned damaged = error upright = yes", whole);
        read_at(d, 0, 0, PAIR_INPUT, x);
        ds_close(d);
        for (int i = 0; i < 3 * h * w; i++) rgb[i] = (uint8_t)lrintf(255 * x[i % 3 * h * w + i / 3]);
        png_put("upright.png", rgb, h, w);
        for (int l = 0; l < 2; l++) {
            snprintf(data, sizeof data, "source = images train = turned damaged = error upright = yes "
                     "augment = %s", lists[l]);
            struct ds *a = open_good(data, small);
            snprintf(data, sizeof data, "source = images train = upright damaged = error upright = yes "
                     "augment = %s", lists[l]);
            struct ds *b = open_good(data, small);
            for (uint64_t visit = 0; visit < 20; visit++) {
                read_at(a, 0, visit, PAIR_INPUT, y);
                read_at(b, 0, visit, PAIR_INPUT, z);
                for (int i = 0; i < OUT; i++)
                    ck_assert_msg(fabsf(y[i] - z[i]) * 255 < LEVELS, "turn %d, list %d: %g, %g", turn, l,
                                  (double)y[i] * 255, (double)z[i] * 255);
            }
            ds_close(a);
            ds_close(b);
        }
    }
}
END_TEST

/* Floats are moved as pixels are, and then normalised: (0 - mean) / std comes from outside. */
START_TEST(floats_move)
{
    static float x[IMAGE], y[IMAGE];
    char data[400];
    const char *list = "augment = {\"random_crop padding=3\", \"horizontal_flip\", random_erasing}";
    files_make();
    snprintf(data, sizeof data, NPY NORM "%s", list);
    struct ds *a = open_good(data, want);
    snprintf(data, sizeof data, FLOATS NORM "%s", list);
    struct ds *b = open_good(data, want);
    for (uint64_t visit = 0; visit < 20; visit++) {
        read_at(a, 3, visit, PAIR_INPUT, x);
        read_at(b, 3, visit, PAIR_INPUT, y);
        ck_assert_mem_eq(x, y, sizeof x);
    }
    ds_close(a);
    ds_close(b);
    b = open_good(FLOATS "augment = {\"center_crop size=12\", \"horizontal_flip p=1\"}", want);
    read_at(b, 2, 0, PAIR_INPUT, y);
    for (int i = 0; i < IMAGE; i++) {
        int mirror = i - i % SIDE + SIDE - 1 - i % SIDE;
        ck_assert(y[i] == image_value(2, mirror) / 255.0f);
    }
    ds_close(b);
}
END_TEST

/* The test part, rows for a fully connected network, padding and channels of IDX files before the list. */
START_TEST(what_the_list_is_given)
{
    static float x[3 * 20 * 20], y[3 * 20 * 20];
    struct err e = {0};
    files_make();
    struct ds *a = open_good(IDX, want), *b = open_part(IDX "augment = {\"horizontal_flip p=1\"}", DS_TEST, want, &e);
    read_at(a, 1, 0, PAIR_INPUT, x);
    read_at(b, 1, 0, PAIR_INPUT, y);
    ck_assert_mem_eq(x, y, IMAGE * sizeof *x);
    ds_close(b);
    struct ds_pair row = want;
    row.input = (struct shape){1, {IMAGE}};
    b = open_good(IDX "augment = {\"vertical_flip p=1\"}", row);
    read_at(b, 1, 0, PAIR_INPUT, y);
    for (int i = 0; i < IMAGE; i++) {
        int r = i / SIDE % SIDE;
        ck_assert(y[i] == x[i + (SIDE - 1 - 2 * r) * SIDE]);
    }
    ds_close(b);
    ds_close(a);
    struct ds_pair wide = want;
    wide.input = (struct shape){3, {3, 20, 16}};
    a = open_good(IDX NORM "pad = {20, 16}", wide);
    b = open_good(IDX NORM "pad = {20, 16} augment = {\"horizontal_flip p=0\"}", wide);
    read_at(a, 4, 0, PAIR_INPUT, x);
    read_at(b, 4, 0, PAIR_INPUT, y);
    ck_assert_mem_eq(x, y, sizeof x);
    ds_close(a);
    ds_close(b);
    a = open_good(IDX NORM "resize = {15, 14} pad = {20, 16}", wide);
    b = open_good(IDX NORM "resize = {15, 14} pad = {20, 16} augment = {\"horizontal_flip p=0\"}", wide);
    read_at(a, 4, 0, PAIR_INPUT, x);
    read_at(b, 4, 0, PAIR_INPUT, y);
    ck_assert_mem_eq(x, y, sizeof x);
    ds_close(b);
    b = open_good(IDX NORM "augment = {\"resize size=20,16\"}", wide);
    read_at(b, 4, 0, PAIR_INPUT, y);
    ds_close(a);
    ds_close(b);
}
END_TEST

/* ---- mixing ------------------------------------------------------------------------------------------------------ */

static struct ds *mixed(const char *list)
{
    char data[400];
    struct err e = {0};
    snprintf(data, sizeof data, IDX "augment = %s", list);
    struct ds *d = open_good(data, vector);
    struct conf *c = conf_make(data);
    ck_assert_msg(!mix_open(c, DS_TRAIN, d, &d->mix, &e), "%s", e.text);
    conf_free(c);
    return d;
}

/* Labels tell who was mixed, and how much of each; mean of what a sample kept. */
static double labels_judge(struct ds *d, int visits, int *alone)
{
    double sum = 0;
    *alone = 0;
    for (int v = 0; v < visits; v++) {
        float t[N];
        double all = 0;
        int others = 0;
        read_at(d, 2, (uint64_t)v, PAIR_TARGET, t);
        for (int i = 0; i < N; i++) {
            ck_assert(t[i] >= 0 && t[i] <= 1);
            all += t[i];
            others += i != 2 && t[i] > 0;
        }
        ck_assert(fabs(all - 1) < 1e-6 && others <= 1);
        *alone += !others;
        sum += t[2];
    }
    return sum / visits;
}

START_TEST(mixup)
{
    static float x[IMAGE];
    float t[N];
    int alone, n = 0;
    files_make();
    struct ds *d = mixed("{\"horizontal_flip p=1\", \"mixup alpha=0.4\"}");
    double mean = labels_judge(d, 2000, &alone);
    ck_assert_msg(fabs(mean - (0.2 + 0.8 * 0.5)) < 0.03, "%g", mean);   /* in one of five cases it is itself */
    ck_assert_int_lt(abs(alone - 400), 80);
    for (uint64_t visit = 0; visit < 50; visit++) {
        read_at(d, 2, visit, PAIR_INPUT, x);
        read_at(d, 2, visit, PAIR_TARGET, t);
        for (int i = 0; i < IMAGE; i++) {
            int at = i - i % SIDE + SIDE - 1 - i % SIDE;
            double want_x = 0;
            for (int k = 0; k < N; k++) want_x += (double)t[k] * image_value(k, at) / 255;
            ck_assert_msg(fabs(x[i] - want_x) < 1e-6, "%g, wanted %g", x[i], want_x);
        }
        n += t[2] < 1;
    }
    ck_assert_int_gt(n, 20);
    ds_close(d);
}
END_TEST

START_TEST(cutmix)
{
    static float x[IMAGE];
    float t[N];
    int alone;
    files_make();
    struct ds *d = mixed("{cutmix}");
    double mean = labels_judge(d, 2000, &alone);
    ck_assert_msg(mean > 0.55 && mean < 0.8, "%g", mean);     /* rectangles are cut off at the border */
    for (uint64_t visit = 0; visit < 100; visit++) {
        int own = 0, other = -1;
        read_at(d, 2, visit, PAIR_INPUT, x);
        read_at(d, 2, visit, PAIR_TARGET, t);
        for (int k = 0; k < N; k++) if (k != 2 && t[k] > 0) other = k;
        for (int i = 0; i < SIDE * SIDE; i++) {
            bool mine = x[i] == image_value(2, i) / 255.0f;
            own += mine;
            ck_assert(mine || (other >= 0 && x[i] == image_value(other, i) / 255.0f));
        }
        ck_assert_msg(own >= (int)lrint(t[2] * SIDE * SIDE), "%d pixels, label %g", own, t[2]);
    }
    ds_close(d);
}
END_TEST

/* Of several entries one mixes a sample; what adds up to less than 1 leaves samples alone. */
START_TEST(chances)
{
    int alone;
    files_make();
    struct ds *d = mixed("{\"mixup p=0.1\", \"cutmix p=0.3\"}");
    labels_judge(d, 2000, &alone);
    ck_assert_msg(alone > 1250 && alone < 1550, "%d", alone);    /* 0.6 + 0.4 / 5, and some rectangles are empty */
    ds_close(d);
    d = mixed("{mixup, cutmix}");
    labels_judge(d, 2000, &alone);
    ck_assert_msg(alone > 350 && alone < 700, "%d", alone);
    ds_close(d);
}
END_TEST

START_TEST(beta)
{
    static const double alpha[] = {0.1, 0.5, 1, 4};
    for (size_t k = 0; k < sizeof alpha / sizeof *alpha; k++) {
        double sum = 0, squares = 0, n = 20000;
        for (int i = 0; i < n; i++) {
            struct draws r = {.at = {3, RNG_TEST, 0, (uint32_t)i, 0}};
            double v = variate_beta(&r, alpha[k]);
            ck_assert(v >= 0 && v <= 1);
            sum += v;
            squares += (v - 0.5) * (v - 0.5);
        }
        double variance = 1 / (4 * (2 * alpha[k] + 1));
        ck_assert_msg(fabs(sum / n - 0.5) < 4 * sqrt(variance / n), "%g: mean %g", alpha[k], sum / n);
        ck_assert_msg(fabs(squares / n / variance - 1) < 0.05, "%g: variance %g", alpha[k], squares / n);
    }
}
END_TEST

/* ---- lists that are wrong ---------------------------------------------------------------------------------------- */

static const struct { const char *list, *text; } wrong[] = {
    {"{\"flip\"}", "\"flip\"|random_resized_crop|random_erasing"},
    {"{\"horizontalflip\"}", "(did you mean horizontal_flip?)"},
    {"{\" \"}", "\"\""},
    {"{\"horizontal_flip q=1\"}", "horizontal_flip:|\"q\""},
    {"{\"trivial_augment 3\"}", "trivial_augment:|\"3\":"},
    {"{\"horizontal_flip p\"}", "horizontal_flip: p:|p=VALUE"},
    {"{\"horizontal_flip p=\"}", "horizontal_flip: p: \"\" is not a number"},
    {"{\"horizontal_flip p=0x1\"}", "p: \"0x1\" is not a number"},
    {"{\"horizontal_flip p=nan\"}", "p: \"nan\" is not a number"},
    {"{\"horizontal_flip p=1e999\"}", "p: \"1e999\" is not a number"},
    {"{\"horizontal_flip p=1.5\"}", "p: 1.5|0|1"},
    {"{\"horizontal_flip p=0.5,1\"}", "p: more than 1 number"},
    {"{\"horizontal_flip p=1 p=1\"}", "p is given twice"},
    {"{\"random_crop padding=2.5\"}", "padding: \"2.5\" is not a whole number"},
    {"{\"random_resized_crop scale=0.5\"}", "scale:|2"},
    {"{\"random_resized_crop scale=0.5,0.1\"}", "scale: 0.5 is above 0.1"},
    {"{\"random_resized_crop ratio=0,1\"}", "ratio: 0|0.001|1000"},
    {"{\"random_resized_crop scale=0.5,\"}", "scale: \"\" is not a number"},
    {"{\"color_jitter hue=-0.1\"}", "color_jitter: hue: -0.1 is below 0"},
    {"{\"color_jitter hue=0.6\"}", "hue: 0.6|-0.5|0.5"},
    {"{\"random_crop size=13\"}", "random_crop: 13x13|12x12"},
    {"{\"random_crop size=10\"}", "10x10|12x12"},
    {"{\"center_crop size=65500\", center_crop}", "center_crop leaves pictures of 65500x65500; up to 134217728 pixels"},
    {"{\"resize size=16\"}", "random_crop|center_crop"},
    {"{\"resize size=16\", horizontal_flip}", "random_crop|center_crop"},
    {"{horizontal_flip, \"resize\"}", "resize takes whole pictures: put it first"},
    {"{resize, random_resized_crop}", "random_resized_crop takes whole pictures: put it first"},
    {"{random_erasing, horizontal_flip}", "horizontal_flip changes pictures: put it before random_erasing"},
    {"{mixup, random_erasing}", "random_erasing changes what was normalised: put it before mixup"},
};

START_TEST(wrong_lists)
{
    char data[400];
    files_make();
    for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++) {
        snprintf(data, sizeof data, IDX "\naugment = %s", wrong[i].list);
        open_bad(data, want, 78, wrong[i].text);
        open_bad(data, want, 78, "t.conf:4: data.augment: ");
    }
    open_bad(FLOATS "augment = {color_jitter}", want, 78,
             "data.augment: color_jitter takes pictures of 8 bits with 1 or 3 channels, and f.npy has others");
    open_bad(IDX "resize = {11, 11} pad = {12, 12} augment = {trivial_augment}", want, 78,
             "data.augment: trivial_augment takes pictures of 8 bits with 1 or 3 channels, and x.idx has others");
    struct err e = {0};
    ck_assert_ptr_null(list_open("{horizontal_flip}", &(struct augment_want){"w.npy", 1, 1, 7, false, true}, &e));
    expect(&e, 78, "horizontal_flip is for pictures: channels, height and width, and w.npy has none");
}
END_TEST

START_TEST(labels_that_cannot_be_mixed)
{
    struct err e = {0};
    struct mix *m;
    files_make();
    struct ds_pair classes = want;
    classes.has_target = true;
    struct ds *d = open_good(IDX "augment = {mixup}", classes);
    struct conf *c = conf_make(IDX "augment = {mixup}");
    ck_assert_int_eq(mix_open(c, DS_TRAIN, d, &m, &e), -1);
    expect(&e, 78, "data.augment:|data.labels =");
    e = (struct err){0};
    ck_assert_int_eq(mix_open(c, DS_TEST, d, &m, &e), 0);
    ck_assert_ptr_null(m);
    conf_free(c);
    ds_close(d);
}
END_TEST

static void all(TCase *t)
{
    tcase_add_test(t, as_torchvision);
    tcase_add_test(t, formats_agree);
    tcase_add_test(t, framed_formats_agree);
    tcase_add_test(t, turned_pictures);
    tcase_add_test(t, floats_move);
    tcase_add_test(t, what_the_list_is_given);
    tcase_add_test(t, mixup);
    tcase_add_test(t, cutmix);
    tcase_add_test(t, chances);
    tcase_add_test(t, beta);
    tcase_add_test(t, wrong_lists);
    tcase_add_test(t, labels_that_cannot_be_mixed);
}

int main(void)
{
    char path[PATH_MAX];
    const char *srcdir = getenv("srcdir");
    snprintf(path, sizeof path, "%s/tests/torch/augment.expected", srcdir ? srcdir : ".");
    if (!realpath(path, kept)) return 1;
    snprintf(path, sizeof path, "%s/tests/images", srcdir ? srcdir : ".");
    if (!realpath(path, pictures)) return 1;
    return scratch_suite("augment", all);
}
