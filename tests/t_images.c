/* Folders and lists of pictures: order and classes as in torchvision's ImageFolder, lists, sizes, orientation, errors,
 * damaged files that are skipped. The pictures are in tests/images. */
#include <limits.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>
#include "data/image_list.h"
#include "data_rig.h"
#include "sure.h"

static char pictures[PATH_MAX];
static const struct ds_pair want = {.input = {3, {3, 29, 37}}, .target_type = I64, .classes = 3};
#define IMAGES "source = images damaged = error upright = yes train = "

/* The picture of that name in tests/images, under another one here. */
static void give(const char *name, const char *as)
{
    char path[PATH_MAX + 100];
    struct err e = {0};
    struct text t = {0};
    snprintf(path, sizeof path, "%s/%s", pictures, name);
    ck_assert_msg(!text_read_bytes(&t, path, 1 << 20, &e), "%s", e.text);
    put(as, t.s, t.n);
    text_free(&t);
}

static void folder(const char *path) { ck_assert(!mkdir(path, 0777)); }

/* "PATH CLASS" of each picture */
static char *listed(const struct image_list *l)
{
    struct text out = {0}, path = {0};
    text_add(&out, "%s", "");
    for (int i = 0; i < l->image.n; i++) {
        image_list_path(l, (uint64_t)i, &path);
        text_add(&out, "%s %d\n", path.s, (int)l->image.v[i].class);
    }
    text_free(&path);
    return out.s;
}

static void lists(const char *path, bool labels, const char *classes_of, const char *wanted)
{
    struct image_list l;
    struct err e = {0};
    int bad = image_list_read(path, labels, classes_of, &l, &e);
    char *mine = bad ? strdup(e.text) : listed(&l);
    ck_assert_msg(bad ? says(mine, wanted) && (e.code == E_DATA || e.code == E_NOINPUT) : !strcmp(mine, wanted),
                  "%s:\n%s\nwanted:\n%s", path, mine, wanted);
    free(mine);
    image_list_free(&l);
}

/* n of them. */
static void spread(const char *path, uint64_t n, const char *wanted)
{
    struct image_list l;
    struct err e = {0};
    ck_assert_msg(!image_list_read(path, true, NULL, &l, &e), "%s", e.text);
    image_list_spread(&l, n);
    char *mine = listed(&l);
    ck_assert_str_eq(mine, wanted);
    free(mine);
    image_list_free(&l);
}

/* What ImageFolder gives for this tree, but for the hidden files, which it takes or stumbles over. */
START_TEST(folders)
{
    static const char *const dirs[] = {"t", "t/b", "t/a", "t/B10", "t/a/in", "t/a/in-2", "t/a/in/deep", "t/.git", "u",
                                       "u/b", "v"};
    static const char *const files[] = {"t/b/2.jpg", "t/b/10.PNG", "t/a/z.jpeg", "t/a/in/1.jpg", "t/a/in-2/0.jpg",
                                        "t/a/in/deep/0.png", "t/a/thumbs.db", "t/a/._z.jpg", "t/B10/x.JPG",
                                        "t/.git/x.jpg", "t/loose.jpg", "t/a/jpg", "u/b/9.jpg"};
    for (size_t i = 0; i < sizeof dirs / sizeof *dirs; i++) folder(dirs[i]);
    for (size_t i = 0; i < sizeof files / sizeof *files; i++) put_text(files[i], "x");
    ck_assert(!symlink("../../u/b", "t/b/link"));
    ck_assert(!symlink("nowhere", "t/b/gone.d"));
    lists("t", true, NULL, "t/B10/x.JPG 0\nt/a/z.jpeg 1\nt/a/in/1.jpg 1\nt/a/in-2/0.jpg 1\nt/a/in/deep/0.png 1\n"
          "t/b/10.PNG 2\nt/b/2.jpg 2\nt/b/link/9.jpg 2\n");
    spread("t", 8, "t/B10/x.JPG 0\nt/a/z.jpeg 1\nt/a/in/1.jpg 1\nt/a/in-2/0.jpg 1\nt/a/in/deep/0.png 1\n"
           "t/b/10.PNG 2\nt/b/2.jpg 2\nt/b/link/9.jpg 2\n");
    spread("t", 4, "t/B10/x.JPG 0\nt/a/in/1.jpg 1\nt/a/in/deep/0.png 1\nt/b/2.jpg 2\n");
    spread("t", 3, "t/B10/x.JPG 0\nt/a/in/1.jpg 1\nt/b/10.PNG 2\n");
    lists("u/", true, "t", "u/b/9.jpg 2\n");
    lists("u", true, NULL, "u/b/9.jpg 0\n");
    lists("t/a", false, NULL, "t/a/z.jpeg -1\nt/a/in/1.jpg -1\nt/a/in-2/0.jpg -1\nt/a/in/deep/0.png -1\n");
    lists("t", true, "u", "t:|B10");
    lists("v", true, NULL, "v: has no folders, which are the classes");
    lists("v", false, NULL, "v:|(.jpg, .jpeg, .jpe, .jfif|.png)");
    lists("none", true, NULL, "none: No such file or directory");
    folder("v/empty");
    lists("v", true, NULL, "v/empty:|(.jpg, .jpeg, .jpe, .jfif|.png)");
    ck_assert(!symlink("..", "u/b/up"));
    struct image_list l;
    struct err e = {0};
    ck_assert_int_eq(image_list_read("u", true, NULL, &l, &e), -1);
    expect(&e, E_DATA, "up:|16");
    image_list_free(&l);
}
END_TEST

START_TEST(list_files)
{
    folder("l");
    put_text("l/numbers", "a.jpg 2\r\n\nsub dir/b c.png\t0\n/abs/x.jpg    1");
    lists("l/numbers", true, NULL, "l/a.jpg 2\nl/sub dir/b c.png 0\n/abs/x.jpg 1\n");
    spread("l/numbers", 2, "l/a.jpg 2\nl/sub dir/b c.png 0\n/abs/x.jpg 1\n");
    put_text("l/names", "a.jpg\tdog\nb.jpg\tcat\nc.jpg\t7 dogs\nd.jpg\tdog\n");
    lists("l/names", true, NULL, "l/a.jpg 2\nl/b.jpg 1\nl/c.jpg 0\nl/d.jpg 2\n");
    put_text("l/test", "x.jpg cat\n");
    lists("l/test", true, "l/names", "l/x.jpg 1\n");
    lists("l/test", true, "l/numbers", "l/test: there is no class cat in l/numbers");
    put_text("l/plain", "a b.jpg\nc.png\nd.jpg 3\n");
    lists("l/plain", false, NULL, "l/a b.jpg -1\nl/c.png -1\nl/d.jpg 3\n");
    lists("l/plain", true, NULL, "l/plain:1: no label after the path and a tab, blanks or a comma");
    put_text("l/comma", "a.jpg,dog\n");
    lists("l/comma", true, NULL, "l/a.jpg 0\n");
    put_text("l/mark", "\xef\xbb\xbf" "a.jpg 1\nb.jpg 0\n");
    lists("l/mark", true, NULL, "l/a.jpg 1\nl/b.jpg 0\n");
    put_text("l/bad", "a.jpg 1\n\tdog\n");
    lists("l/bad", true, NULL, "l/bad:2:");
    put_text("l/bad", "\n\n");
    lists("l/bad", true, NULL, "l/bad:");
    put("l/bad", "a\0b.jpg 1\n", 10);
    lists("l/bad", true, NULL, "l/bad:1:|NUL");
    put("l/bad", "\x1f\x8b\x08\0", 4);
    lists("l/bad", true, NULL, "l/bad:");
    give("rgb.jpg", "l/one.jpg");
    lists("l/one.jpg", false, NULL, "l/one.jpg:");
    give("rgb.png", "l/one.png");
    lists("l/one.png", true, NULL, "l/one.png:");
    ck_assert(!mkfifo("l/pipe", 0666));
    lists("l/pipe", true, NULL, "l/pipe:");
}
END_TEST

/* Where the first row and the first column of the stored picture are seen: EXIF 2.3, 4.6.4 A, Orientation. */
static void seen_at(int turn, int y, int x, int *row, int *column)
{
    enum { H = 29, W = 37 };
    const int last_row = H - 1 - y, last_column = W - 1 - x;
    const int of[9][2] = {{0}, {y, x}, {y, last_column}, {last_row, last_column}, {last_row, x}, {x, y}, {x, last_row},
                          {last_column, last_row}, {last_column, y}};
    *row = of[turn][0];
    *column = of[turn][1];
}

START_TEST(pictures_stand_upright)
{
    static float plain[3 * 29 * 37], turned[3 * 29 * 37];
    char name[40], line[80];
    folder("p");
    for (int turn = 1; turn <= 8; turn++) {
        snprintf(name, sizeof name, "turned%d.jpg", turn);
        snprintf(line, sizeof line, "p/%s", name);
        give(name, line);
        snprintf(line, sizeof line, "%s 0\n", name);
        put_text("p/list", line);
        struct ds_pair w = want;
        if (turn >= 5) w.input = (struct shape){3, {3, 37, 29}};
        struct ds *d = open_good(turn >= 5 ? IMAGES "\"p/list\" resize = {37, 29}"
                                           : IMAGES "\"p/list\" resize = {29, 37}", w);
        get(d, 0, turn == 1 ? plain : turned, NULL);
        ds_close(d);
        for (int k = 0; turn > 1 && k < 3; k++)
            for (int y = 0; y < 29; y++)
                for (int x = 0; x < 37; x++) {
                    int row, column;
                    seen_at(turn, y, x, &row, &column);
                    ck_assert_msg(turned[(k * (turn >= 5 ? 37 : 29) + row) * (turn >= 5 ? 29 : 37) + column] ==
                                  plain[(k * 29 + y) * 37 + x], "%d: row %d column %d", turn, y, x);
                }
    }
    struct ds *d = open_good("source = images damaged = error upright = no train = \"p/list\"",
                             (struct ds_pair){.input = {3, {3, 29, 37}}, .target_type = I64, .classes = 3});
    get(d, 0, turned, NULL);
    ck_assert_mem_eq(turned, plain, sizeof plain);
    ds_close(d);
}
END_TEST

/* Padding, channels, normalisation, rows of numbers. */
START_TEST(values)
{
    static float x[3 * 33 * 40], y[3 * 33 * 40];
    int64_t label;
    give("rgb.png", "a.png");
    put_text("list", "a.png 2\n");
    struct ds *d = open_good(IMAGES "list", want);
    get(d, 0, x, &label);
    ck_assert_int_eq(label, 2);
    ds_close(d);
    struct ds_pair w = want;
    w.input = (struct shape){3, {3, 33, 40}};
    d = open_good(IMAGES "list resize = {29, 37} pad = {33, 40} mean = {0.5, 0, 0.25} std = {0.5, 1, 2}", w);
    get(d, 0, y, NULL);
    static const float mean[] = {0.5f, 0, 0.25f}, std[] = {0.5f, 1, 2};
    for (int k = 0; k < 3; k++)
        for (int r = 0; r < 33; r++)
            for (int c = 0; c < 40; c++) {
                bool inside = r >= 2 && r < 31 && c >= 1 && c < 38;
                float v = inside ? x[(k * 29 + r - 2) * 37 + c - 1] : 0;
                ck_assert(y[(k * 33 + r) * 40 + c] == (v - mean[k]) / std[k]);
            }
    ds_close(d);
    w.input = (struct shape){1, {29 * 37}};
    d = open_good(IMAGES "list resize = {29, 37}", w);
    get(d, 0, y, NULL);
    for (int i = 0; i < 29 * 37; i++) {
        long grey = 19595 * lrintf(255 * x[i]) + 38470 * lrintf(255 * x[i + 1073]) + 7471 * lrintf(255 * x[i + 2146]);
        ck_assert(y[i] == (float)((grey + 32768) >> 16) / 255);
    }
    ds_close(d);
}
END_TEST

START_TEST(what_does_not_fit)
{
    struct ds_pair w = want;
    folder("f");
    folder("f/a");
    folder("f/b");
    give("rgb.jpg", "f/a/1.jpg");
    give("rgb.png", "f/b/1.png");
    open_bad(IMAGES "f", want, 78, "t.conf:3: data.train:|2|3|model.classes");
    put_text("list", "f/a/1.jpg 3\n");
    open_bad(IMAGES "list", want, 78, "data.train: list has labels up to 3, the model has 3 classes");
    w.classes = 4;
    open_bad(IMAGES "list samples = 2", w, 78, "t.conf:3: data.samples: 2 samples, but list has 1");
    w.input = (struct shape){3, {4, 8, 8}};
    open_bad(IMAGES "f", w, 78, "1|3|4");
    w.input = (struct shape){3, {8, 8, 3}};
    open_bad(IMAGES "f", w, 78, "8: model.input");
    w.input = (struct shape){2, {8, 8}};
    open_bad(IMAGES "f", w, 78, "8x8:");
    open_bad(IMAGES "f channels = 1", want, 78, "t.conf:3: data.channels:|3");
    open_bad(IMAGES "f resize = {28, 37}", want, 78,
             "data.resize:");
    open_bad(IMAGES "f mean = {1, 2} std = 1", want, 78, "t.conf:3: data.mean: 2 values for 3 channels");
    w.input = (struct shape){1, {100}};
    open_bad(IMAGES "f", w, 78, "100|data.resize = {height, width}");
    open_bad(IMAGES "f resize = {9, 9}", w, 78, "data.resize:|100|9x9|81");
}
END_TEST

/* The next sound picture of the class stands in, and labels stay. */
START_TEST(damaged_pictures)
{
    static float x[5][3 * 29 * 37], sound[3 * 29 * 37];
    int64_t label;
    struct err e = {0};
    give("rgb.jpg", "a.jpg");
    give("grey.jpg", "b.jpg");
    put_text("no1.jpg", "x");
    put_text("no2.jpg", "");
    put_text("list", "a.jpg 0\nno1.jpg 1\nb.jpg 0\nno2.jpg 0\nb.jpg 1\n");
    struct ds *d = open_good(IMAGES "list", want);
    ck_assert_int_eq(d->kind->read(d, 3, 0, PAIR_INPUT, x[0], &e), -1);
    expect(&e, E_DATA, "no2.jpg:");
    ds_close(d);
    d = open_good("source = images damaged = skip upright = yes train = list", want);
    for (uint64_t i = 0; i < 5; i++) {
        get(d, i, x[i], &label);
        ck_assert_int_eq(label, i % 4 == 1 || i == 4 ? 1 : 0);
    }
    ck_assert_mem_eq(x[3], x[0], sizeof *x);
    ck_assert_mem_eq(x[1], x[4], sizeof *x);
    ck_assert_mem_eq(x[2], x[4], sizeof *x);
    ck_assert_mem_ne(x[2], x[0], sizeof *x);
    get(d, 3, sound, NULL);
    struct ds_damage found = {0};
    for (int i = 0; i < 3; i++) d->kind->damage(d, i == 1 ? 3 : 1, PAIR_INPUT, &found);
    ck_assert_uint_eq(found.skipped, 2);
    expect(&found.first, E_DATA, "no1.jpg: neither JPEG nor PNG");
    d->kind->damage(d, 0, PAIR_INPUT, &found);
    d->kind->damage(d, 3, PAIR_TARGET, &found);
    ck_assert_uint_eq(found.skipped, 2);
    free(found.counted);
    unlink("b.jpg");
    e = (struct err){0};
    ck_assert_int_eq(d->kind->read(d, 1, 0, PAIR_INPUT, sound, &e), -1);   /* one that is gone is no damage */
    expect(&e, E_NOINPUT, "b.jpg: No such file");
    put_text("b.jpg", "x");
    e = (struct err){0};
    ck_assert_int_eq(d->kind->read(d, 1, 0, PAIR_INPUT, sound, &e), -1);
    expect(&e, E_DATA, "no1.jpg:");
    ds_close(d);
}
END_TEST

/* What is told of damage after each micro-batch, and the samples, whoever has read them. */
START_TEST(readers_agree)
{
    enum { N = 40, SPLIT = 4, SAMPLE = 3 * 29 * 37 };
    static float first[N][SAMPLE];
    static uint64_t skipped[N];
    static const int readers[] = {0, 1, 3, 8};
    struct text list = {0};
    struct err e = {0};
    give("rgb.jpg", "a.jpg");
    give("ink.jpg", "b.jpg");
    for (int i = 0; i < N; i++) {
        char name[40];
        snprintf(name, sizeof name, "bad%d.jpg", i);
        if (i % 3 == 1) put_text(name, "x");
        text_add(&list, "%s %d\n", i % 3 == 1 ? name : i % 3 ? "a.jpg" : "b.jpg", i % 2);
    }
    put_text("list", list.s);
    text_free(&list);
    for (int k = 0; k < 4; k++) {
        struct ds *d = open_good("source = images damaged = skip upright = yes train = list", want);
        struct feed *f;
        struct feed_want w = {.ds = d, .n_fields = 1, .field = {PAIR_INPUT}, .max_samples = SPLIT, .depth = 3,
                              .readers = readers[k]};
        ck_assert(!feed_open(&w, &f, &e));
        for (int at = 0, asked = 0; at < N; at += SPLIT) {
            void *const *v;
            for (; asked < N && asked < at + 3 * SPLIT; asked += SPLIT) {
                int64_t id[SPLIT];
                for (int i = 0; i < SPLIT; i++) id[i] = (asked + i) * 7 % N;
                ck_assert(!feed_request(f, SPLIT, id, (uint64_t)asked, &e));
            }
            ck_assert_msg(!feed_take(f, NULL, &v, &e), "%s", e.text);
            if (!k) memcpy(first[at], v[0], sizeof *first * SPLIT);
            ck_assert_mem_eq(first[at], v[0], sizeof *first * SPLIT);
            if (!k) skipped[at] = feed_damage(f)->skipped;
            ck_assert_uint_eq(feed_damage(f)->skipped, skipped[at]);
            feed_give(f);
        }
        ck_assert_uint_eq(feed_damage(f)->skipped, N / 3);
        expect(&feed_damage(f)->first, E_DATA, "bad7.jpg: neither JPEG nor PNG");
        feed_close(f);
        ds_close(d);
    }
}
END_TEST

/* ---- 200 damaged files ------------------------------------------------------------------------------------------- */

static uint32_t chance(uint32_t n)
{
    static uint32_t state = 11;
    state = state * 1664525 + 1013904223;
    return (state >> 8) % n;
}

/* The place of a marker of a JPEG's frame, or of a PNG's header, whose sizes follow; 0: there is none. */
static size_t sizes_at(const struct text *t)
{
    if (!memcmp(t->s, "\x89PNG", 4)) return 16;
    for (size_t i = 2; i + 9 < t->n; i++)
        if (!memcmp(t->s + i, "\xff\xc0", 2) || !memcmp(t->s + i, "\xff\xc2", 2)) return i + 5;
    return 0;
}

/* Cut off, bits changed, sizes that lie (huge, none, a little more), a part of another file, all of it noise. */
static void spoil(struct text *t, int how)
{
    size_t at = sizes_at(t), n = t->s[0] == (char)0x89 ? 8 : 4;
    switch (how) {
    case 0: t->n = chance((uint32_t)t->n); return;
    case 1: for (int i = 0; i < 8; i++) t->s[chance((uint32_t)t->n)] ^= (char)(1 << chance(8)); return;
    case 2: memset(t->s + at, 0x7f, n); return;
    case 3: memset(t->s + at, 0, n); return;
    case 4: t->s[at + n / 2 - 1]++; return;
    case 5: memcpy(t->s + t->n / 2, t->s, t->n / 4); return;
    case 6: for (size_t i = 8; i < t->n; i++) t->s[i] = (char)chance(256); return;
    default: t->s[8 + chance((uint32_t)t->n - 8)] ^= (char)0xff;
    }
}

static int damaged_make(struct text *list)
{
    static const char *const name[] = {"rgb.jpg", "grey.jpg", "ink.jpg", "progressive.jpg", "whole.jpg", "turned6.jpg",
                                       "rgb.png", "deep.png", "palette.png", "interlaced.png", "alpha.png", "bits.png"};
    enum { NAMES = sizeof name / sizeof *name, ALL = 200 };
    for (int i = 0; i < ALL; i++) {
        char path[PATH_MAX + 100], as[40];
        struct err e = {0};
        struct text t = {0};
        snprintf(path, sizeof path, "%s/%s", pictures, name[i % NAMES]);
        ck_assert_msg(!text_read_bytes(&t, path, 1 << 20, &e), "%s", e.text);
        spoil(&t, i / NAMES % 8);
        snprintf(as, sizeof as, "spoilt%d", i);
        put(as, t.s, t.n);
        text_add(list, "%s %d\n", as, i % 3);
        text_free(&t);
    }
    return ALL;
}

/* Each is refused with its name, or read; where they are skipped, those that are refused alone are, once each. */
START_TEST(many_damaged_pictures)
{
    static float x[3 * 29 * 37];
    struct text list = {0};
    struct err e = {0};
    int n = damaged_make(&list), refused = 0;
    give("rgb.png", "sound.png");
    for (int k = 0; k < 3; k++) text_add(&list, "sound.png %d\n", k);
    put_text("list", list.s);
    text_free(&list);
    struct ds *d = open_good(IMAGES "list", want);
    for (int i = 0; i < n; i++) {
        char name[40];
        struct err why = {0};
        snprintf(name, sizeof name, "spoilt%d: ", i);
        if (!d->kind->read(d, (uint64_t)i, 0, PAIR_INPUT, x, &why)) continue;
        ck_assert_msg(why.code == E_DATA && !strncmp(why.text, name, strlen(name)), "%d %s", why.code, why.text);
        refused++;
    }
    ds_close(d);
    ck_assert(refused > n / 2 && refused < n);
    d = open_good("source = images damaged = skip upright = yes train = list", want);
    struct feed *f;
    struct feed_want w = {.ds = d, .n_fields = 1, .field = {PAIR_INPUT}, .max_samples = 1, .depth = 8, .readers = 3};
    ck_assert(!feed_open(&w, &f, &e));
    for (int i = 0, asked = 0; i < n; i++) {
        void *const *v;
        for (; asked < n && asked < i + 8; asked++)
            ck_assert(!feed_request(f, 1, (int64_t[]){asked}, (uint64_t)asked, &e));
        ck_assert_msg(!feed_take(f, NULL, &v, &e), "%s", e.text);
        feed_give(f);
    }
    ck_assert_uint_eq(feed_damage(f)->skipped, (uint64_t)refused);
    feed_close(f);
    ds_close(d);
}
END_TEST

static void all(TCase *t)
{
    tcase_add_test(t, folders);
    tcase_add_test(t, list_files);
    tcase_add_test(t, pictures_stand_upright);
    tcase_add_test(t, values);
    tcase_add_test(t, what_does_not_fit);
    tcase_add_test(t, damaged_pictures);
    tcase_add_test(t, readers_agree);
    tcase_add_test(t, many_damaged_pictures);
}

int main(void)
{
    char path[PATH_MAX];
    const char *srcdir = getenv("srcdir");
    snprintf(path, sizeof path, "%s/tests/images", srcdir ? srcdir : ".");
    if (!realpath(path, pictures)) return 1;
    return scratch_suite("images", all);
}
