/* CIFAR's binary files: their kinds, labels, names of classes, pixels, sizes that do not fit. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>
#include "data_rig.h"

enum { PIXELS = 3072 };
static const struct ds_pair want = {.input = {3, {3, 32, 32}}, .target_type = I64, .classes = 10};
static struct ds_pair fine(void)
{
    struct ds_pair w = want;
    w.classes = 100;
    return w;
}

/* Pixel i of record k is (i + k * seed) modulo 251; its label k modulo 10, before it a coarse one. */
static void records(const char *path, int n, int labels, int seed)
{
    struct text t = {0};
    for (int k = 0; k < n; k++) {
        uint8_t r[2 + PIXELS] = {9};
        r[labels - 1] = (uint8_t)(k % 10);
        for (int i = 0; i < PIXELS; i++) r[labels + i] = (uint8_t)((i + k * seed) % 251);
        text_add_bytes(&t, r, (size_t)labels + PIXELS);
    }
    put(path, t.s, t.n);
    text_free(&t);
}

static void pixels_check(struct ds *d, uint64_t sample, int k, int seed)
{
    static float x[PIXELS];
    int64_t label;
    get(d, sample, x, &label);
    ck_assert_int_eq(label, k % 10);
    for (int i = 0; i < PIXELS; i++) ck_assert(x[i] == (float)((i + k * seed) % 251) / 255);
}

static void ten(void)
{
    char name[40];
    mkdir("ten", 0777);                                  /* another test may have made it */
    for (int i = 1; i <= 5; i++) {
        snprintf(name, sizeof name, "ten/data_batch_%d.bin", i);
        records(name, 3, 1, i);
    }
    records("ten/test_batch.bin", 4, 1, 9);
    put_text("ten/batches.meta.txt", "airplane\nautomobile\nbird\ncat\ndeer\ndog\nfrog\nhorse\nship\ntruck\n\n");
}

START_TEST(folders)
{
    struct err e = {0};
    ten();
    struct ds *d = open_good("source = cifar train = ten", want);
    ck_assert_uint_eq(d->kind->count(d), 15);
    ck_assert_str_eq(d->class_name[9], "truck");
    for (int i = 0; i < 15; i++) pixels_check(d, (uint64_t)i, i % 3, 1 + i / 3);
    ds_close(d);
    d = open_part("source = cifar train = ten test = ten", DS_TEST, want, &e);
    ck_assert_msg(d != NULL, "%s", e.text);
    ck_assert_uint_eq(d->kind->count(d), 4);
    pixels_check(d, 3, 3, 9);
    ds_close(d);
    put_text("ten/batches.meta.txt", "airplane\n");       /* names that do not fit are none */
    d = open_good("source = cifar train = \"ten/\" samples = 7", want);
    ck_assert_ptr_null(d->class_name);
    ck_assert_int_eq(d->n_classes, 10);
    ck_assert_uint_eq(d->kind->count(d), 7);
    ds_close(d);
    ck_assert(!mkdir("hundred", 0777));
    records("hundred/train.bin", 5, 2, 3);
    d = open_good("source = cifar train = hundred", fine());
    ck_assert_int_eq(d->n_classes, 100);
    pixels_check(d, 4, 4, 3);
    ds_close(d);
}
END_TEST

START_TEST(files)
{
    records("a.bin", 3, 1, 1);
    records("b.bin", 3, 2, 1);
    struct ds *d = open_good("source = cifar train = a.bin", want);
    pixels_check(d, 2, 2, 1);
    ds_close(d);
    d = open_good("source = cifar train = b.bin", fine());
    pixels_check(d, 2, 2, 1);
    ds_close(d);
    records("train.bin", 3073, 2, 1);                      /* both fit: the name decides */
    d = open_good("source = cifar train = train.bin", fine());
    ck_assert_uint_eq(d->kind->count(d), 3073);
    ds_close(d);
    ck_assert(!rename("train.bin", "c.bin"));
    open_bad("source = cifar train = c.bin", want, 65, "c.bin: offset 3073: label ");
}
END_TEST

/* The options that pictures have. */
START_TEST(frames)
{
    static float x[3 * 40 * 40], y[16 * 16];
    struct ds_pair w = want;
    records("a.bin", 1, 1, 1);
    w.input = (struct shape){3, {3, 40, 40}};
    struct ds *d = open_good("source = cifar train = a.bin resize = 32 pad = {40, 40} mean = 0.5 std = 0.25", w);
    get(d, 0, x, NULL);
    ck_assert(x[0] == -2 && x[4 * 40 + 4] == -2 && x[4 * 40 + 5] == (1.0f / 255 - 0.5f) / 0.25f);
    ds_close(d);
    w.input = (struct shape){3, {1, 16, 16}};
    d = open_good("source = cifar train = a.bin", w);
    get(d, 0, y, NULL);
    for (int i = 0; i < 256; i++) ck_assert(y[i] * 255 == (float)(int)(y[i] * 255 + 0.5f));
    ds_close(d);
}
END_TEST

START_TEST(what_does_not_fit)
{
    ck_assert(!mkdir("none", 0777));
    open_bad("source = cifar train = none", want, 66,
             "none: has neither data_batch_1.bin (CIFAR-10) nor train.bin (CIFAR-100)");
    open_bad("source = cifar train = gone", want, 66, "gone: No such file");
    ten();
    unlink("ten/data_batch_3.bin");
    open_bad("source = cifar train = ten", want, 66, "ten/data_batch_3.bin: No such file");
    put_text("ten/data_batch_3.bin", "x");
    open_bad("source = cifar train = ten", want, 65,
             "ten/data_batch_3.bin: 1 byte|3073");
    put_text("x.bin", "");
    open_bad("source = cifar train = x.bin", want, 65,
             "x.bin: 0 bytes|3073|3074");
    records("a.bin", 2, 1, 1);
    open_bad("source = cifar train = a.bin samples = 3", want, 78, "3 samples, but a.bin has 2");
    struct ds_pair w = want;
    w.classes = 9;
    open_bad("source = cifar train = a.bin", w, 78, "a.bin has labels up to 9, the model has 9 classes");
}
END_TEST

/* A file that changes while it is read. */
START_TEST(files_that_shrink)
{
    static float x[PIXELS];
    struct err e = {0};
    records("a.bin", 2, 1, 1);
    struct ds *d = open_good("source = cifar train = a.bin", want);
    ck_assert(!truncate("a.bin", 4000));
    ck_assert_int_eq(d->kind->read(d, 1, 0, PAIR_INPUT, x, &e), -1);
    expect(&e, 65, "a.bin:|1: offset 4000:");
    ds_close(d);
}
END_TEST

static void all(TCase *t)
{
    tcase_add_test(t, folders);
    tcase_add_test(t, files);
    tcase_add_test(t, frames);
    tcase_add_test(t, what_does_not_fit);
    tcase_add_test(t, files_that_shrink);
}

int main(void) { return scratch_suite("cifar", all); }
