/* Data sets of volumes: folders, lists and folds; parts, flips and labels; the same bits for any number of readers. */
#include <errno.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>
#include "data/volume_list.h"
#include "data/volumes.h"
#include "data_rig.h"
#include "nifti_rig.h"

static const double affine_1[3][4] = {{1, 0, 0, 0}, {0, 1, 0, 0}, {0, 0, 1, 0}};
#define FILES "source = nifti train = \"images\" train_labels = \"labels\" "
#define LISTS FILES "intensity = none "
#define NORMAL FILES "intensity = zscore "
#define FOLDER "source = nifti train = \"Task\" intensity = none "

/* Graph inputs: channels and three sides; labels of a type, over classes where they are floats. */
static struct ds_want want_of(int64_t channels, int64_t side, enum dtype label, int64_t classes)
{
    struct ds_want w = {.n = classes ? 2 : 1, .field = {{"x", ROLE_SAMPLE, F32, {4, {channels, side, side, side}}, 0},
                                                        {"y", ROLE_TARGET, label, {3, {side, side, side}}, classes}}};
    if (label == F32) w.field[1] = (struct field){"y", ROLE_TARGET, F32, {4, {classes, side, side, side}}, 0};
    return w;
}

static struct ds *open_volumes(const char *data, enum ds_part part, struct ds_want want, struct err *e)
{
    struct conf *c = conf_make(data);
    struct ds *d = (void *)1;
    extern const struct ds_kind ds_nifti;
    int bad = ds_nifti.open(c, part, &want, &d, e);
    ck_assert_int_eq(bad, e->code ? -1 : 0);
    ck_assert(!bad || !d);
    conf_free(c);
    return d;
}

static struct ds *good(const char *data, enum ds_part part, struct ds_want want)
{
    struct err e = {0};
    struct ds *d = open_volumes(data, part, want, &e);
    ck_assert_msg(!e.code, "%s", e.text);
    ck_assert_ptr_nonnull(d);
    return d;
}

static void refused(const char *data, struct ds_want want, int code, const char *part)
{
    struct err e = {0};
    ck_assert_ptr_null(open_volumes(data, DS_TRAIN, want, &e));
    expect(&e, code, part);
}

static void value(struct ds *d, uint64_t i, uint64_t visit, int field, void *out)
{
    struct err e = {0};
    ck_assert_msg(!d->kind->read(d, i, visit, field, out, &e), "%s", e.text);
}

/* Voxel (x, y, z) of volume i is 1000 i + 100 x + 10 y + z or, of sides above 10, the same with the side in place of
 * 10: no two are the same. Its label is 1 where x, y and z are above 2, 2 in one corner, otherwise 0. */
static void volume_put(const char *image, const char *label, int i, int64_t side)
{
    struct nifti_made m = {.version = 1, .type = 16, .n_dims = 3, .dim = {side, side, side}, .pixdim = {1, 1, 1, 1},
                           .affine = affine_1, .sform = 1};
    const size_t n = (size_t)(side * side * side);
    const int64_t by = side > 10 ? side : 10;
    double *v = mem_alloc(n * sizeof *v), *y = mem_alloc(n * sizeof *y);
    for (size_t k = 0; k < n; k++) {
        int64_t at[3] = {(int64_t)k % side, (int64_t)k / side % side, (int64_t)k / side / side};
        v[k] = (double)(((i * by + at[0]) * by + at[1]) * by + at[2]);
        y[k] = at[0] > 2 && at[1] > 2 && at[2] > 2;
    }
    y[0] = 2;
    nifti_put(image, &m, v);
    m.type = 2;
    if (label) nifti_put(label, &m, y);
    free(v);
    free(y);
}

static void lists_put(int n, int64_t side)
{
    struct text images = {0}, labels = {0};
    for (int i = 0; i < n; i++) {
        char image[32], label[32];
        snprintf(image, sizeof image, "i%d.nii.gz", i);
        snprintf(label, sizeof label, "l%d.nii", i);
        volume_put(image, label, i, side);
        text_add(&images, "%s \n\n", image);
        text_add(&labels, "%s\r\n", label);
    }
    put("images", images.s, images.n);
    put("labels", labels.s, labels.n);
    text_free(&images);
    text_free(&labels);
}

/* ---- folders and lists ------------------------------------------------------------------------------------------- */

static const char dataset[] =
    "{\"name\": \"Hippocampus\", \"relase\": \"1.0\", \"numTraining\": 260,\n"
    "\"labels\": {\"0\": \"background\", \"1\": \"Anterior\", \"2\": \"Posterior\"}, \"modality\": {\"0\": \"MRI\"},\n"
    "\"training\": [{\"image\": \"./imagesTr/b.nii.gz\", \"label\": \"./labelsTr/b.nii.gz\"},\n"
    "{\"image\": \"./imagesTr/._a.nii.gz\", \"label\": \"./labelsTr/._a.nii.gz\"},\n"
    "{\"image\": \"imagesTr/a.nii.gz\", \"label\": \".//labelsTr/a.nii.gz\"}],\n"
    "\"test\": [\"./imagesTs/c.nii.gz\"]}\n";

static void folder_put(void)
{
    static const char *const folders[] = {"Task", "Task/imagesTr", "Task/labelsTr", "Task/imagesTs"};
    for (int i = 0; i < 4; i++) ck_assert(!mkdir(folders[i], 0700));
    volume_put("Task/imagesTr/a.nii.gz", "Task/labelsTr/a.nii.gz", 1, 4);
    volume_put("Task/imagesTr/b.nii.gz", "Task/labelsTr/b.nii.gz", 2, 4);
    volume_put("Task/imagesTs/c.nii.gz", NULL, 3, 4);
    PUT("Task/imagesTr/._a.nii.gz", "rubbish");
    PUT("Task/dataset.json", dataset);
}

START_TEST(volumes_reads_a_folder)
{
    float x[64];
    uint8_t y[64];
    folder_put();
    struct ds *d = good(FOLDER, DS_TRAIN, want_of(1, 4, U8, 3));
    ck_assert_uint_eq(d->kind->count(d), 2);
    ck_assert_int_eq(d->n_classes, 3);
    ck_assert_str_eq(d->class_name[2], "Posterior");
    value(d, 0, 0, PAIR_INPUT, x);
    value(d, 0, 0, PAIR_TARGET, y);
    for (int i = 0; i < 64; i++) {
        ck_assert(x[i] == (float)(2000 + 100 * (i / 16) + 10 * (i / 4 % 4) + i % 4));
        ck_assert_uint_eq(y[i], i == 0 ? 2 : i == 63);
    }
    value(d, 1, 0, PAIR_INPUT, x);
    ck_assert(x[63] == 1333);
    ds_close(d);
    d = good("source = nifti test = Task intensity = none", DS_TEST, want_of(1, 4, U8, 0));
    struct text name = {0};
    d->kind->name_of(d, 0, &name);
    ck_assert_str_eq(name.s, "Task/imagesTs/c.nii.gz");
    value(d, 0, 0, PAIR_INPUT, x);
    ck_assert(x[0] == 3000 && d->kind->count(d) == 1);
    text_free(&name);
    ds_close(d);
    d = good("source = nifti test = Task intensity = none", DS_TEST, want_of(1, 4, U8, 3));
    ck_assert_uint_eq(d->kind->count(d), 2);             /* those with labels */
    ds_close(d);
    refused(FOLDER, want_of(1, 4, U8, 2), E_CONF,
            "data.label_map: Task/dataset.json|3|2:");
    d = good(FOLDER "label_map = binary", DS_TRAIN, want_of(1, 4, U8, 2));
    ck_assert(!d->n_classes);
    ds_close(d);
    d = good(FOLDER, DS_TRAIN, want_of(1, 4, U8, 4));    /* a class more has no name, and no harm */
    ck_assert(!d->n_classes);
    ds_close(d);
    struct err e = {0};
    ck_assert_ptr_null(open_volumes(FOLDER "test = Task", DS_TEST, want_of(1, 4, U8, 3), &e));
    expect(&e, E_CONF, "data.test:|Task|data.folds");
}
END_TEST

static const struct { const char *json, *text; } bad_json[] = {
    {"", "dataset.json: line "}, {"[]", "dataset.json: no object"}, {"{}", "dataset.json: no list \"training\""},
    {"{\"training\": []}", "dataset.json:"}, {"{\"training\": {}}", "no list \"training\""},
    {"{\"training\": [1]}", "training 0: not the name of a file"},
    {"{\"training\": [{\"image\": \"a.nii\"}]}", "training 0: not the name of a file"},
    {"{\"training\": [{\"image\": \"a.nii\", \"label\": 7}]}", "training 0: not the name of a file"},
    {"{\"training\": [{\"image\": \"../a.nii\", \"label\": \"b\"}]}", "0: \"../a.nii\""},
    {"{\"training\": [{\"image\": \"b\", \"label\": \"x/..\"}]}", "0: \"x/..\""},
    {"{\"training\": [{\"image\": \"x/../../b\", \"label\": \"c\"}]}", "is not in this folder"},
    {"{\"training\": [{\"image\": \"/etc/passwd\", \"label\": \"c\"}]}", "\"/etc/passwd\""},
    {"{\"training\": [{\"image\": \"\", \"label\": \"c\"}]}", "not the name of a file"},
    {"{\"training\": [{\"image\": \"./\", \"label\": \"c\"}]}", "not the name of a file"},
    {"{\"training\": [{\"image\": \"a\\u0000b\", \"label\": \"c\"}]}", "dataset.json: line 1: "},
    {"{\"training\": [], \"training\": []}", "dataset.json: line 1: duplicate"},
    {"{\"training\": [{\"image\": \"._a\", \"label\": \"._b\"}]}", "dataset.json:"},
    {"{\"training\": [{\"image\": \"none.nii\", \"label\": \"b\"}]}", NULL},
};

START_TEST(volumes_refuses_bad_folders)
{
    ck_assert(!mkdir("Task", 0700) || errno == EEXIST);
    put_text("Task/dataset.json", bad_json[_i].json);
    if (bad_json[_i].text) refused(FOLDER, want_of(1, 4, U8, 3), E_DATA, bad_json[_i].text);
    else refused(FOLDER, want_of(1, 4, U8, 3), E_NOINPUT, "Task/none.nii: No such file");
    ck_assert(!unlink("Task/dataset.json"));
    refused(FOLDER, want_of(1, 4, U8, 3), E_NOINPUT, "Task/dataset.json: No such file");
}
END_TEST

START_TEST(volumes_reads_lists)
{
    float x[64];
    lists_put(3, 4);
    struct ds *d = good(LISTS, DS_TRAIN, want_of(1, 4, U8, 3));
    ck_assert_uint_eq(d->kind->count(d), 3);
    value(d, 2, 0, PAIR_INPUT, x);
    ck_assert(x[63] == 2333);
    ds_close(d);
    d = good(LISTS "samples = 2", DS_TRAIN, want_of(1, 4, U8, 3));
    ck_assert_uint_eq(d->kind->count(d), 2);
    ds_close(d);
    d = good("source = nifti train = \"i1.nii.gz\" train_labels = \"l1.nii\"", DS_TRAIN, want_of(1, 4, U8, 3));
    ck_assert_uint_eq(d->kind->count(d), 1);
    ds_close(d);
    refused(LISTS "samples = 4", want_of(1, 4, U8, 3), E_CONF, "4 samples, but images has 3");
    refused("source = nifti train = images", want_of(1, 4, U8, 3), E_CONF, "given without data.train_labels");
    refused("source = nifti train = imagez", want_of(1, 4, U8, 3), E_NOINPUT, "imagez: |images?");
    PUT("labels", "l0.nii\nl1.nii\n");
    refused(LISTS, want_of(1, 4, U8, 3), E_DATA, "labels:|2|3");
    PUT("images", "\n \n");
    refused(LISTS, want_of(1, 4, U8, 3), E_DATA, "images:");
    struct err e = {0};
    ck_assert_ptr_null(open_volumes(LISTS, DS_TEST, want_of(1, 4, U8, 3), &e));   /* there is none */
    ck_assert_int_eq(e.code, 0);
}
END_TEST

START_TEST(volumes_has_folds)
{
    bool seen[7] = {false};
    char data[200];
    lists_put(7, 4);
    for (int fold = 0; fold < 3; fold++)
        for (int part = DS_TRAIN; part <= DS_TEST; part++) {
            snprintf(data, sizeof data, LISTS "folds = 3 fold = %d", fold);
            struct ds *d = good(data, (enum ds_part)part, want_of(1, 4, U8, 3));
            uint64_t n = d->kind->count(d), tests = fold == 0 ? 3 : 2;
            ck_assert_uint_eq(n, part == DS_TEST ? tests : 7 - tests);
            for (uint64_t i = 0; i < n; i++) {
                float x[64];
                value(d, i, 0, PAIR_INPUT, x);
                int volume = (int)x[0] / 1000;
                ck_assert((volume % 3 == fold) == (part == DS_TEST));
                ck_assert(part == DS_TRAIN || !seen[volume]);
                seen[volume] |= part == DS_TEST;
            }
            ds_close(d);
        }
    for (int i = 0; i < 7; i++) ck_assert(seen[i]);
}
END_TEST

/* ---- what does not fit ------------------------------------------------------------------------------------------- */

START_TEST(volumes_refuses_what_does_not_fit)
{
    struct ds_want odd = want_of(1, 4, U8, 3);
    lists_put(2, 4);
    refused(LISTS, want_of(2, 4, U8, 3), E_DATA, "i0.nii.gz: has 1 channel, the model takes 2");
    odd.field[1].shape.d[2] = 5;
    refused(LISTS, odd, E_CONF, "U8 4x4x5");
    odd.field[1] = (struct field){"y", ROLE_TARGET, I64, {0}, 3};
    refused(LISTS, odd, E_CONF, "1x4x4x4");
    odd = want_of(1, 4, U8, 3);
    odd.field[0].shape = (struct shape){3, {1, 4, 4}};
    refused(LISTS, odd, E_CONF, "volumes have channels and three axes");
    refused(LISTS "size = 3", want_of(1, 4, U8, 3), E_CONF, "data.size: 3 voxels along x, the model takes 4");
    refused(LISTS "size = {4, 4}", want_of(1, 4, U8, 3), E_CONF, "data.size: expected one number, or three");
    refused(LISTS "spacing = {1, 2}", want_of(1, 4, U8, 3), E_CONF, "data.spacing: expected one number, or three");
    refused(LISTS "flip = {w}", want_of(1, 4, U8, 3), E_CONF, "data.flip: \"w\" is not one of x, y, z");
    volume_put("i1.nii.gz", NULL, 1, 5);
    refused(LISTS, want_of(1, 4, U8, 3), E_DATA, "l1.nii: has 4x4x4 voxels, but i1.nii.gz has 5x5x5");
    struct nifti_made m = {.version = 1, .type = 2, .n_dims = 3, .dim = {4, 4, 4}, .pixdim = {1, 1, 1, 1}};
    m.affine = (double[3][4]){{-1, 0, 0, 3}, {0, 1, 0, 0}, {0, 0, 1, 0}};
    m.sform = 1;
    double none[64] = {0};
    volume_put("i1.nii.gz", NULL, 1, 4);
    nifti_put("l1.nii", &m, none);
    refused(LISTS, want_of(1, 4, U8, 3), E_DATA, "l1.nii:|3|i1.nii.gz");
    PUT("l1.nii", "rubbish");
    refused(LISTS, want_of(1, 4, U8, 3), E_DATA, "l1.nii: this is text, not a NIfTI file");
}
END_TEST

static const struct { const char *map, *error; uint8_t want[3]; } maps[] = {
    {"label_map = {\"1=2\", \"0=1\", \"2=0\"}", NULL, {1, 2, 0}}, {"label_map = {\"1-2=1\", \"*=0\"}", NULL, {0, 1, 1}},
    {"label_map = {\"2=0\", \"0-2=1\"}", NULL, {1, 1, 0}}, {"label_map = binary", NULL, {0, 1, 1}},
    {"label_map = {\"1=3\"}", "\"1=3\": there are 3 classes", {0}},
    {"label_map = {\"2-1=0\"}", "labels are 0 to 4095", {0}}, {"label_map = {\"9999=0\"}", "labels are 0 to 4095", {0}},
    {"label_map = {\"x\"}", "\"x\":|LABEL=CLASS, FIRST-LAST=CLASS|*=CLASS", {0}},
    {"label_map = {\"1=1x\"}", "LABEL=CLASS", {0}}, {"label_map = {\"binary\", \"1=1\"}", "LABEL=CLASS", {0}},
    {"label_map = {\"1=\"}", "LABEL=CLASS", {0}}, {"label_map = {\"1--2=0\"}", "LABEL=CLASS", {0}},
    {"label_map = {\" 1=1\"}", "LABEL=CLASS", {0}}, {"label_map = {\"*=-1\"}", "LABEL=CLASS", {0}},
};

START_TEST(volumes_maps_labels)
{
    char data[300];
    uint8_t y[64];
    lists_put(1, 4);
    snprintf(data, sizeof data, LISTS "%s", maps[_i].map);
    if (maps[_i].error) {
        refused(data, want_of(1, 4, U8, 3), E_CONF, maps[_i].error);
        return;
    }
    struct ds *d = good(data, DS_TRAIN, want_of(1, 4, U8, 3));
    value(d, 0, 0, PAIR_TARGET, y);
    ck_assert(y[1] == maps[_i].want[0] && y[63] == maps[_i].want[1] && y[0] == maps[_i].want[2]);
    ds_close(d);
}
END_TEST

START_TEST(volumes_refuses_labels_without_a_class)
{
    uint8_t y[64];
    struct err e = {0}, more = {0};
    lists_put(1, 4);
    struct ds *d = good(LISTS, DS_TRAIN, want_of(1, 4, U8, 2));
    ck_assert(d->kind->read(d, 0, 0, PAIR_TARGET, y, &e));
    expect(&e, E_DATA, "l0.nii: offset 352:|0x0x0|2|2");
    ds_close(d);
    d = good(LISTS "label_map = \"0-1=0\"", DS_TRAIN, want_of(1, 4, U8, 2));
    ck_assert(d->kind->read(d, 0, 0, PAIR_TARGET, y, &more));
    expect(&more, E_DATA, "voxel 0x0x0 is 2, which is in no entry of data.label_map");
    ds_close(d);
}
END_TEST

/* ---- samples ----------------------------------------------------------------------------------------------------- */

START_TEST(volumes_gives_labels_of_every_type)
{
    uint8_t y[64];
    int32_t y4[64];
    int64_t y8[64];
    float one[64], hot[3 * 64];
    lists_put(1, 4);
    const struct ds_want want[] = {want_of(1, 4, U8, 3), want_of(1, 4, I32, 3), want_of(1, 4, I64, 3),
                                   want_of(1, 4, F32, 1), want_of(1, 4, F32, 3)};
    void *const to[] = {y, y4, y8, one, hot};
    for (int k = 0; k < 5; k++) {
        struct ds *d = good(LISTS, DS_TRAIN, want[k]);
        value(d, 0, 0, PAIR_TARGET, to[k]);
        ds_close(d);
    }
    for (int i = 0; i < 64; i++) {
        ck_assert(y4[i] == y[i] && y8[i] == y[i] && one[i] == y[i]);
        for (int k = 0; k < 3; k++) ck_assert(hot[k * 64 + i] == (y[i] == k));
    }
}
END_TEST

START_TEST(volumes_turns_axes)
{
    float x[64], z[64];
    lists_put(1, 4);
    struct ds *d = good(LISTS, DS_TRAIN, want_of(1, 4, U8, 3)), *t = good(LISTS "axes = zyx", DS_TRAIN,
                                                                          want_of(1, 4, U8, 3));
    value(d, 0, 0, PAIR_INPUT, x);
    value(t, 0, 0, PAIR_INPUT, z);
    for (int i = 0; i < 64; i++) ck_assert(z[i] == x[i % 4 * 16 + i / 4 % 4 * 4 + i / 16]);
    ds_close(d);
    ds_close(t);
}
END_TEST

/* Parts lie within the volume, image and labels agree, and about as many as asked for are about a labelled voxel: of
 * 400 draws the share lies within 0.1 (four deviations) of what 0.5 and chance make of it. */
START_TEST(volumes_draws_parts)
{
    enum { DRAWS = 400, SIDE = 40 };
    float x[64];
    uint8_t y[64];
    int corner = 0, far = 0;
    lists_put(1, 40);
    struct ds *d = good(LISTS "size = 40 foreground = 0.5", DS_TRAIN, want_of(1, 4, U8, 3));
    for (uint64_t visit = 0; visit < DRAWS; visit++) {
        value(d, 0, visit, PAIR_INPUT, x);
        value(d, 0, visit, PAIR_TARGET, y);
        corner += x[0] == 0;
        far += x[0] >= 15 * SIDE * SIDE;
        for (int i = 0; i < 64; i++) {
            const int v = (int)x[0] + (i / 16 * SIDE + i / 4 % 4) * SIDE + i % 4;
            ck_assert(x[i] == (float)v);
            ck_assert_uint_eq(y[i], v == 0 ? 2 : v / SIDE / SIDE > 2 && v / SIDE % SIDE > 2 && v % SIDE > 2);
        }
    }
    /* a half about a class, a half of these about the one voxel of class 2, in the corner */
    ck_assert_msg(corner > DRAWS * 0.15 && corner < DRAWS * 0.35, "%d", corner);
    ck_assert(far > DRAWS / 4);
    ds_close(d);
}
END_TEST

START_TEST(volumes_flips)
{
    float x[64], first[64];
    int seen = 0;
    lists_put(1, 4);
    struct ds *d = good(LISTS "flip = {x, z}", DS_TRAIN, want_of(1, 4, U8, 3));
    struct ds *plain = good(LISTS, DS_TRAIN, want_of(1, 4, U8, 3));
    value(plain, 0, 0, PAIR_INPUT, first);
    for (uint64_t visit = 0; visit < 64; visit++) {
        uint8_t y[64];
        value(d, 0, visit, PAIR_INPUT, x);
        value(d, 0, visit, PAIR_TARGET, y);
        int fx = x[0] >= 300, fz = (int)x[0] % 10 == 3;
        seen |= 1 << (2 * fx + fz);
        for (int i = 0; i < 64; i++) {
            int from = i ^ (fx ? 3 << 4 : 0) ^ (fz ? 3 : 0);
            ck_assert(x[i] == first[from] && y[i] == (from == 0 ? 2 : from == 63));
        }
    }
    ck_assert_int_eq(seen, 15);
    ds_close(d);
    ds_close(plain);
}
END_TEST

/* Every voxel of a volume is in a part. */
START_TEST(volumes_covers_tests)
{
    lists_put(2, 10);
    struct ds *d = good("source = nifti test = images test_labels = labels intensity = none size = 0", DS_TEST,
                        want_of(1, 4, U8, 3));
    ck_assert_uint_eq(d->kind->count(d), 2 * 27);
    ck_assert_uint_eq(volumes_count(d), 2);
    for (int volume = 0; volume < 2; volume++) {
        bool seen[1000] = {false};
        for (uint64_t i = 0; i < 27; i++) {
            float x[64];
            int64_t at[3];
            value(d, 27 * (uint64_t)volume + i, 0, PAIR_INPUT, x);
            ck_assert_ptr_eq(volumes_find(d, 27 * (uint64_t)volume + i, at), volumes_at(d, (uint64_t)volume));
            ck_assert(x[0] == (float)(1000 * volume + 100 * at[0] + 10 * at[1] + at[2]));
            for (int k = 0; k < 64; k++) seen[(int)x[k] - 1000 * volume] = true;
        }
        for (int i = 0; i < 1000; i++) ck_assert(seen[i]);
    }
    struct text t = {0};
    d->kind->name_of(d, 27 + 26, &t);
    ck_assert_str_eq(t.s, "i1.nii.gz from 6,6,6");
    text_free(&t);
    ds_close(d);
}
END_TEST

/* ---- the same bits ----------------------------------------------------------------------------------------------- */

enum { SAMPLES = 5, VISITS = 6, SIDE = 12, VALUES = 6 * 6 * 6 };
struct reader { struct ds *d; int from; float (*x)[VALUES]; uint8_t (*y)[VALUES]; };

/* All samples of all visits, begun elsewhere by each thread. */
static void *reads(void *arg)
{
    const struct reader *r = arg;
    for (int i = 0; i < SAMPLES * VISITS; i++) {
        int k = (i + r->from) % (SAMPLES * VISITS);
        struct err e = {0};
        if (r->d->kind->read(r->d, (uint64_t)(k % SAMPLES), (uint64_t)(k / SAMPLES), PAIR_INPUT, r->x[k], &e) ||
            r->d->kind->read(r->d, (uint64_t)(k % SAMPLES), (uint64_t)(k / SAMPLES), PAIR_TARGET, r->y[k], &e))
            abort();
    }
    return NULL;
}

START_TEST(volumes_are_the_same_for_all)
{
    enum { THREADS = 4 };
    static const char *const caches[] = {"1GiB", "0", "20KiB"};
    static float x[THREADS + 1][SAMPLES * VISITS][VALUES];
    static uint8_t y[THREADS + 1][SAMPLES * VISITS][VALUES];
    lists_put(SAMPLES, SIDE);
    for (int k = 0; k < 3; k++) {
        char data[300];
        snprintf(data, sizeof data, NORMAL "size = 0 spacing = 0.9 flip = {x, y, z} cache = \"%s\"", caches[k]);
        struct ds *d = good(data, DS_TRAIN, want_of(1, 6, U8, 3)), *alone = good(data, DS_TRAIN, want_of(1, 6, U8, 3));
        pthread_t thread[THREADS];
        struct reader r[THREADS], one = {alone, 0, x[THREADS], y[THREADS]};
        for (int i = 0; i < THREADS; i++) {
            r[i] = (struct reader){d, 7 * i, x[i], y[i]};
            ck_assert(!pthread_create(&thread[i], NULL, reads, &r[i]));
        }
        for (int i = 0; i < THREADS; i++) pthread_join(thread[i], NULL);
        if (!k) reads(&one);
        for (int i = 0; i < THREADS; i++) {
            ck_assert_mem_eq(x[i], x[THREADS], sizeof x[i]);
            ck_assert_mem_eq(y[i], y[THREADS], sizeof y[i]);
        }
        const size_t one_more = (13 * 13 * 13) * 5 + NIFTI_LABELS * 8;   /* an image and its labels */
        ck_assert(d->kind->held(d) <= d->shared && d->kind->held(d) > 0);
        ck_assert_uint_eq(d->shared, (k == 0 ? SAMPLES : 1) * one_more + (k == 2 ? 20 << 10 : 0));
        ck_assert_ptr_null(d->warning);
        ds_close(d);
        ds_close(alone);
    }
    ck_assert(memcmp(x[0][0], x[0][SAMPLES], sizeof x[0][0]) != 0);   /* another visit, another part */
}
END_TEST

/* ---- what is kept ------------------------------------------------------------------------------------------------ */

/* The second part of a volume does not need its file. */
START_TEST(volumes_prepares_once_for_neighbours)
{
    float x[64];
    struct err e = {0};
    lists_put(2, 10);
    struct ds *d = good("source = nifti test = images intensity = none size = 0 cache = 0", DS_TEST,
                        want_of(1, 4, U8, 0));
    value(d, 0, 0, PAIR_INPUT, x);
    ck_assert(!unlink("i0.nii.gz"));
    value(d, 26, 0, PAIR_INPUT, x);
    ck_assert(x[63] == 999);
    value(d, 27, 0, PAIR_INPUT, x);                      /* the other one takes its place */
    value(d, 53, 0, PAIR_INPUT, x);
    ck_assert(d->kind->read(d, 0, 0, PAIR_INPUT, x, &e));
    expect(&e, E_NOINPUT, "i0.nii.gz");
    ds_close(d);
}
END_TEST

/* Who has not said how much may be kept hears that it is too little. */
START_TEST(volumes_tells_what_finds_no_room)
{
    lists_put(3, 4);
    struct ds *d = good(LISTS "size = 512", DS_TRAIN, want_of(1, 4, U8, 3));
    ck_assert_ptr_nonnull(d->warning);
    ck_assert_str_eq(d->warning, "prepared, 3 volumes take 1.88 GiB, and 1.00 GiB of that is kept: others are prepared "
                     "again each time they are read (data.cache)");
    ck_assert_uint_eq(d->shared, ((size_t)1 << 30) + 5 * ((size_t)1 << 27) + NIFTI_LABELS * 8);
    ds_close(d);
    d = good(LISTS "size = 512 cache = \"1GiB\"", DS_TRAIN, want_of(1, 4, U8, 3));
    ck_assert_ptr_null(d->warning);
    ds_close(d);
}
END_TEST

static void all(TCase *t)
{
    tcase_add_test(t, volumes_reads_a_folder);
    tcase_add_loop_test(t, volumes_refuses_bad_folders, 0, (int)(sizeof bad_json / sizeof *bad_json));
    tcase_add_test(t, volumes_reads_lists);
    tcase_add_test(t, volumes_has_folds);
    tcase_add_test(t, volumes_refuses_what_does_not_fit);
    tcase_add_loop_test(t, volumes_maps_labels, 0, (int)(sizeof maps / sizeof *maps));
    tcase_add_test(t, volumes_refuses_labels_without_a_class);
    tcase_add_test(t, volumes_gives_labels_of_every_type);
    tcase_add_test(t, volumes_turns_axes);
    tcase_add_test(t, volumes_draws_parts);
    tcase_add_test(t, volumes_flips);
    tcase_add_test(t, volumes_covers_tests);
    tcase_add_test(t, volumes_are_the_same_for_all);
    tcase_add_test(t, volumes_prepares_once_for_neighbours);
    tcase_add_test(t, volumes_tells_what_finds_no_room);
}

int main(void) { return scratch_suite("volumes", all); }
