/* data.validation: which samples are held out; the two parts contain all samples and share none, from every format; and
 * neither replaces the other. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include "data/ds.h"
#include "data/picture.h"
#include "data/validation.h"
#include "data_rig.h"
#include "files.h"

static uint64_t kept_of(const int64_t *class, uint64_t n, double share, uint64_t seed, int64_t of, bool *kept)
{
    uint64_t count = 0;
    validation_choose(class, n, share, seed, kept);
    for (uint64_t i = 0; i < n; i++) count += kept[i] && class[i] == of;
    return count;
}

START_TEST(shares)
{
    enum { N = 1000 };
    int64_t class[N];
    bool kept[N], again[N], other[N];
    for (int i = 0; i < N; i++) class[i] = i % 10 == 0 ? 2 : i % 3 == 0;   /* 100 of class 2, 300 of 1, 600 of 0 */
    ck_assert_uint_eq(kept_of(class, N, 0.1, 1, 2, kept), 10);
    ck_assert_uint_eq(kept_of(class, N, 0.1, 1, 1, again), 30);
    ck_assert_uint_eq(kept_of(class, N, 0.1, 2, 0, other), 60);
    ck_assert(!memcmp(kept, again, sizeof kept));
    ck_assert(memcmp(kept, other, sizeof kept));
    /* of small classes each second one gives one, and none gives all */
    for (int i = 0; i < N; i++) class[i] = i / 5;
    uint64_t all = 0;
    validation_choose(class, N, 0.1, 1, kept);
    for (int i = 0; i < N; i++) all += kept[i];
    ck_assert_uint_eq(all, 100);
    for (int i = 0; i < N; i++) class[i] = i;
    validation_choose(class, N, 0.9, 1, kept);
    for (int i = 0; i < N; i++) ck_assert(!kept[i]);
    validation_choose(class, 0, 0.9, 1, kept);
    /* what many classes of one sample cannot give is not taken from one that can */
    for (int i = 0; i < N; i++) class[i] = i < 980 ? i : i < 990 ? 2000 : 3000;
    ck_assert_uint_eq(kept_of(class, N, 0.1, 1, 2000, kept), 1);
    ck_assert_uint_eq(kept_of(class, N, 0.15, 1, 3000, kept), 2);
}
END_TEST

/* Over many seeds each sample is kept as often as any other. */
START_TEST(chances)
{
    enum { N = 20, SEEDS = 4000 };
    int64_t class[N] = {0};
    int count[N] = {0};
    bool kept[N];
    for (uint64_t seed = 0; seed < SEEDS; seed++) {
        ck_assert_uint_eq(kept_of(class, N, 0.25, seed, 0, kept), 5);
        for (int i = 0; i < N; i++) count[i] += kept[i];
    }
    for (int i = 0; i < N; i++) ck_assert_msg(count[i] > 850 && count[i] < 1150, "%d: %d", i, count[i]);
}
END_TEST

/* ---- data sets --------------------------------------------------------------------------------------------------- */

enum { SAMPLES = 40 };
static const struct ds_want want = {2, {{"x", ROLE_SAMPLE, F32, {3, {1, 2, 2}}, 0}, {"y", ROLE_TARGET, I64, {0}, 2}},
                                    {0, 1}};

static struct ds *part_open(const char *data, enum ds_part part, const struct ds_want *w)
{
    struct conf *c = conf_make(data);
    struct err e = {0};
    struct ds *d = NULL;
    ck_assert_msg(!validation_open(ds_kind_of(c), c, part, w, &d, &e), "%s", e.text);
    conf_free(c);
    return d;
}

/* The number of a sample, which is its pixels, and that it is of that class. */
static int number_of(struct ds *d, uint64_t i)
{
    struct err e = {0};
    float x[4];
    int64_t y = -1;
    ck_assert_msg(!d->kind->read(d, i, 0, 0, x, &e) && !d->kind->read(d, i, 0, 1, &y, &e), "%s", e.text);
    const int number = (int)(x[0] * 255 + 0.5f);
    ck_assert_int_eq(y, number % 2);
    return number;
}

static uint64_t hash_of(struct ds *d)
{
    char hash[33];
    return strtoull(ds_digest(d, hash), NULL, 16) ^ strtoull(hash + 16, NULL, 16);
}

/* Both parts are all samples, each once, and the smaller one has 4 of each class. Without labels it is the same. */
static void parts_check(const char *data)
{
    struct ds *train = part_open(data, DS_TRAIN, &want), *test = part_open(data, DS_TEST, &want);
    struct ds_want plain = want;
    plain.n = 1;
    struct ds *bare = part_open(data, DS_TEST, &plain);
    int seen[SAMPLES] = {0}, of[2] = {0};
    ck_assert_uint_eq(train->kind->count(train), SAMPLES - 8);
    ck_assert_uint_eq(test->kind->count(test), 8);
    ck_assert_uint_eq(bare->kind->count(bare), 8);
    for (uint64_t i = 0; i < SAMPLES - 8; i++) seen[number_of(train, i)]++;
    for (uint64_t i = 0; i < 8; i++) {
        struct err e = {0};
        float x[4];
        const int k = number_of(test, i);
        seen[k]++;
        of[k % 2]++;
        ck_assert(!bare->kind->read(bare, i, 0, 0, x, &e) && (int)(x[0] * 255 + 0.5f) == k);
    }
    for (int i = 0; i < SAMPLES; i++) ck_assert_int_eq(seen[i], 1);
    ck_assert(of[0] == 4 && of[1] == 4);
    ck_assert(hash_of(train) != hash_of(test));
    struct err e = {0};
    ck_assert(train->kind->read(train, SAMPLES - 8, 0, 0, seen, &e) == -1);
    ds_close(train);
    ds_close(test);
    ds_close(bare);
}

START_TEST(idx)
{
    uint8_t images[16 + SAMPLES * 4] = {0, 0, 8, 3, 0, 0, 0, SAMPLES, 0, 0, 0, 2, 0, 0, 0, 2};
    uint8_t labels[8 + SAMPLES] = {0, 0, 8, 1, 0, 0, 0, SAMPLES};
    for (int i = 0; i < SAMPLES; i++) {
        memset(images + 16 + 4 * i, i, 4);
        labels[8 + i] = (uint8_t)(i % 2);
    }
    put("x", images, sizeof images);
    put("y", labels, sizeof labels);
    parts_check("source = idx train = x train_labels = y validation = 0.2");
}
END_TEST

static void npy_put(const char *path, const char *shape, const uint8_t *v, size_t n)
{
    struct text t = {0};
    text_add_bytes(&t, "\x93NUMPY\1\0\x76\0", 10);
    text_add(&t, "%-117s\n", shape);
    text_add_bytes(&t, v, n);
    put(path, t.s, t.n);
    text_free(&t);
}

START_TEST(npy)
{
    uint8_t images[SAMPLES * 4], labels[SAMPLES];
    for (int i = 0; i < SAMPLES; i++) {
        memset(images + 4 * i, i, 4);
        labels[i] = (uint8_t)(i % 2);
    }
    npy_put("x", "{'descr': '|u1', 'fortran_order': False, 'shape': (40, 1, 2, 2), }", images, sizeof images);
    npy_put("y", "{'descr': '|u1', 'fortran_order': False, 'shape': (40,), }", labels, sizeof labels);
    parts_check("source = npy train = x train_labels = y validation = 0.2");
}
END_TEST

static void flat_put(int i)
{
    char path[40];
    uint8_t rgb[12];
    struct text t = {0};
    struct err e = {0};
    memset(rgb, i, sizeof rgb);
    ck_assert(!picture_png_write(rgb, 2, 2, &t, &e));
    snprintf(path, sizeof path, "im/%d/%02d.png", i % 2, i);
    put(path, t.s, t.n);
    text_free(&t);
}

/* In place of a damaged picture stands one of the same part. */
START_TEST(pictures)
{
    mkdir("im", 0777);
    mkdir("im/0", 0777);
    mkdir("im/1", 0777);
    for (int i = 0; i < SAMPLES; i++) flat_put(i);
    parts_check("source = images train = im validation = 0.2");
    static const char data[] = "source = images train = im validation = 0.2 damaged = skip";
    for (int part = DS_TRAIN; part <= DS_TEST; part++) {
        struct ds *d = part_open(data, (enum ds_part)part, &want);
        const uint64_t n = d->kind->count(d);
        bool own[SAMPLES] = {false};
        char path[40];
        for (uint64_t i = 0; i < n; i++) own[number_of(d, i)] = true;
        ds_close(d);
        for (int k = 0, left[2] = {2, 2}; k < SAMPLES; k++) {   /* all but two of each class */
            snprintf(path, sizeof path, "im/%d/%02d.png", k % 2, k);
            if (own[k] && --left[k % 2] < 0) put_text(path, "damaged");
        }
        d = part_open(data, (enum ds_part)part, &want);
        for (uint64_t i = 0; i < n; i++) ck_assert(own[number_of(d, i)]);
        ds_close(d);
        for (int k = 0; k < SAMPLES; k++) flat_put(k);
    }
}
END_TEST

/* Records of CIFAR have another size, and a part is of a file or of all of a folder's. */
static void cifar_check(const char *data)
{
    static const struct ds_want pixels = {
        2, {{"x", ROLE_SAMPLE, F32, {3, {3, 32, 32}}, 0}, {"y", ROLE_TARGET, I64, {0}, 10}}, {0, 1}};
    static float x[3 * 32 * 32];
    struct err e = {0};
    int seen[50] = {0}, of[10] = {0};
    struct ds *d[2] = {part_open(data, DS_TRAIN, &pixels), part_open(data, DS_TEST, &pixels)};
    ck_assert_uint_eq(d[0]->kind->count(d[0]), 40);
    ck_assert_uint_eq(d[1]->kind->count(d[1]), 10);
    for (int k = 0; k < 2; k++) {
        for (uint64_t i = 0; i < d[k]->kind->count(d[k]); i++) {
            int64_t y = -1;
            ck_assert(!d[k]->kind->read(d[k], i, 0, 0, x, &e) && !d[k]->kind->read(d[k], i, 0, 1, &y, &e));
            const int number = (int)(x[0] * 255 + 0.5f);
            ck_assert_int_eq(y, number % 10);
            seen[number]++;
            of[y] += k;
        }
        ds_close(d[k]);
    }
    for (int i = 0; i < 50; i++) ck_assert_int_eq(seen[i], 1);
    for (int i = 0; i < 10; i++) ck_assert_int_eq(of[i], 1);
}

START_TEST(cifar)
{
    enum { RECORD = 1 + 3072 };
    static uint8_t all[50 * RECORD];
    char name[40];
    for (int i = 0; i < 50; i++) {
        memset(all + i * RECORD, i, RECORD);
        all[i * RECORD] = (uint8_t)(i % 10);
    }
    put("c.bin", all, sizeof all);
    cifar_check("source = cifar train = \"c.bin\" validation = 0.2");
    mkdir("c", 0777);
    for (int i = 0; i < 5; i++) {
        snprintf(name, sizeof name, "c/data_batch_%d.bin", i + 1);
        put(name, all + i * 10 * RECORD, 10 * RECORD);
    }
    cifar_check("source = cifar train = c validation = 0.2");
}
END_TEST

static void all(TCase *t)
{
    tcase_add_test(t, idx);
    tcase_add_test(t, npy);
    tcase_add_test(t, pictures);
    tcase_add_test(t, cifar);
    tcase_add_test(t, shares);
    tcase_add_test(t, chances);
}

int main(void) { return scratch_suite("validation", all); }
