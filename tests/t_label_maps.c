/* Label maps of predictions: the threshold of class 1 of a single channel, scores, and folders that already exist. */
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>
#include "report/label_maps.h"
#include "data/volumes.h"
#include "model/zoo.h"
#include "nifti_rig.h"

enum { SIDE = 4, VOXELS = SIDE * SIDE * SIDE };
struct rig { struct conf *c; struct job j; struct label_maps *m; };

static int label_value = 1;

/* A volume of zeros; its labels are `label_value` up to x < ones, or there are none (-1). */
static void volume_put(const char *image, const char *label, int ones)
{
    static const double affine[3][4] = {{1, 0, 0, 0}, {0, 1, 0, 0}, {0, 0, 1, 0}};
    struct nifti_made m = {.version = 1, .type = 2, .n_dims = 3, .dim = {SIDE, SIDE, SIDE}, .pixdim = {1, 1, 1, 1},
                           .affine = affine, .sform = 1};
    double v[VOXELS] = {0};
    nifti_put(image, &m, v);
    for (int i = 0; i < VOXELS; i++) v[i] = i % SIDE < ones ? label_value : 0;
    if (ones >= 0) nifti_put(label, &m, v);
}

/* A prediction of a network with so many channels and that loss; more: of its configuration. What other tests left is
 * gone. */
static void rig_open(struct rig *r, int channels, const char *loss, const char *more)
{
    char text[500];
    struct err e = {0};
    ck_assert(!system("rm -rf maps maps.tmp"));
    snprintf(text, sizeof text, "input x 1x4x4x4\na = conv(x) channels=%d kernel=1\n", channels);
    put_text("g", text);
    snprintf(text, sizeof text, "run { predict = \"maps/\" init_from = w } model { graph = g } data { source = nifti "
             "intensity = none %s } train { steps = 1 loss = %s }", more, loss);
    *r = (struct rig){.c = conf_parse("t.conf", text, strlen(text), &e)};
    ck_assert_msg(r->c && !conf_finish(r->c, &e), "%s", e.text);
    struct graph *g = model_build(r->c, &e);
    ck_assert_msg(g != NULL, "%s", e.text);
    r->j = (struct job){.conf = r->c, .graph = g, .output = g->output};
    ck_assert_msg(!ds_open(r->c, DS_TEST, g, &r->j.data[DS_TEST], &e), "%s", e.text);
}

static int rig_begin(struct rig *r, struct err *e)
{
    struct out_place at = OUT_NOWHERE;
    int bad = (r->c->run.over_predictions ? out_place_over : out_place)("maps", &at, e) ||
              label_maps_open(&r->j, &at, NULL, &r->m, e);
    out_place_free(&at);
    return bad;
}

static void rig_close(struct rig *r)
{
    label_maps_free(r->m);
    ds_close(r->j.data[DS_TEST]);
    graph_free(r->j.graph);
    conf_free(r->c);
}

/* Predicts sample after sample, all of these outputs. */
static void predicted(struct rig *r, const float *output, uint64_t n)
{
    struct err e = {0};
    ck_assert_msg(!rig_begin(r, &e), "%s", e.text);
    for (uint64_t i = 0; i < n; i++) ck_assert_msg(!label_maps_add(r->m, output, i, &e), "%s", e.text);
    ck_assert_msg(!label_maps_commit(r->m, &e), "%s", e.text);
}

/* The labels in the file's order: x is the fastest. */
static void labels_get(const char *path, uint8_t y[VOXELS])
{
    struct nifti f;
    struct nifti_map map = {.classes = 256};
    struct err e = {0};
    for (int i = 0; i < 256; i++) map.to[i] = (int16_t)i;
    ck_assert_msg(!nifti_open(path, &f, &e) && !nifti_labels(&f, &map, y, &e), "%s", e.text);
}

static void file_is(const char *path, const char *want)
{
    struct text t = {0};
    struct err e = {0};
    ck_assert_msg(!text_read_bytes(&t, path, 1 << 16, &e), "%s", e.text);
    ck_assert_str_eq(t.s, want);
    text_free(&t);
}

/* A single channel: the loss decides what it is. */
START_TEST(one_channel_has_a_threshold)
{
    static const struct { const char *loss; float from, below; } cases[] = {
        {"mse", 0.5f, 0.4999999f}, {"dice", 0, -1e-30f}, {"dice_ce", -0.0f, -1e-30f}};
    struct rig r;
    float x[VOXELS];
    uint8_t y[VOXELS];
    volume_put("a.nii", NULL, -1);
    rig_open(&r, 1, cases[_i].loss, "test = \"a.nii\"");
    for (int i = 0; i < VOXELS; i++) x[i] = i % 3 ? cases[_i].below : cases[_i].from;
    predicted(&r, x, 1);
    labels_get("maps/a.nii.gz", y);
    for (int i = 0; i < VOXELS; i++) {                   /* [x][y][z] became z, y, x */
        const int at = i % SIDE * SIDE * SIDE + i / SIDE % SIDE * SIDE + i / SIDE / SIDE;
        ck_assert_uint_eq(y[i], at % 3 == 0);
    }
    rig_close(&r);
    ck_assert(access("maps/scores.csv", F_OK) && !access("maps/montage.png", F_OK));   /* no labels, no scores */
}
END_TEST

/* A volume without foreground has no Dice, nor have all together where none has any; what is predicted there counts. */
START_TEST(scores_of_no_foreground)
{
    static const struct { int ones[2]; const char *csv; } cases[] = {
        {{0, 0}, "a.nii,1,0,0,64,0,\nb.nii,1,0,0,64,0,\nall,1,0,0,128,0,\n"},
        {{1, 0}, "a.nii,1,16,16,48,0,0.4\nb.nii,1,0,0,64,0,\nall,1,16,16,112,0,0.222222222\n"}};
    struct rig r;
    float x[2 * VOXELS] = {0};
    char want[300];
    volume_put("a.nii", "la.nii", cases[_i].ones[0]);
    volume_put("b.nii", "lb.nii", cases[_i].ones[1]);
    put_text("images", "a.nii\nb.nii\n");
    put_text("labels", "la.nii\nlb.nii\n");
    for (int i = 0; i < VOXELS; i++) x[VOXELS + i] = 1;
    rig_open(&r, 2, "cross_entropy", "test = images test_labels = labels");
    predicted(&r, x, 2);
    rig_close(&r);
    snprintf(want, sizeof want, "volume,class,voxels,true_positive,false_positive,false_negative,dice\n%s",
             cases[_i].csv);
    file_is("maps/scores.csv", want);
}
END_TEST

static void refuses(struct rig *r, int code, const char *text)
{
    struct err e = {0};
    ck_assert(rig_begin(r, &e));
    expect(&e, code, text);
    label_maps_free(r->m);
    r->m = NULL;
}

/* Labels have the classes of the network, as in training. */
START_TEST(labels_are_classes)
{
    struct rig r;
    volume_put("a.nii", "la.nii", 1);
    put_text("images", "a.nii\n");
    put_text("labels", "la.nii\n");
    rig_open(&r, 2, "cross_entropy", "test = images test_labels = labels label_map = {\"0=0\", \"1=2\"}");
    refuses(&r, E_CONF, "\"1=2\": there are 2 classes");
    rig_close(&r);
}
END_TEST

/* A voxel that is none ends the prediction, and nothing of it stays. */
START_TEST(voxels_are_classes)
{
    struct rig r;
    struct err e = {0};
    float x[2 * VOXELS] = {0};
    label_value = 2;
    volume_put("a.nii", "la.nii", 1);
    label_value = 1;
    put_text("images", "a.nii\n");
    put_text("labels", "la.nii\n");
    rig_open(&r, 2, "cross_entropy", "test = images test_labels = labels");
    ck_assert_msg(!rig_begin(&r, &e), "%s", e.text);
    ck_assert_int_eq(label_maps_add(r.m, x, 0, &e), -1);
    expect(&e, E_DATA, "0x0x0|2|2");
    rig_close(&r);
    ck_assert(access("maps", F_OK) && access("maps.tmp", F_OK));
}
END_TEST

/* With run.overwrite an earlier prediction goes, but no folder with something else in it. */
START_TEST(an_earlier_prediction_goes)
{
    struct rig r;
    float x[VOXELS] = {0};
    uint8_t y[VOXELS];
    volume_put("a.nii", NULL, -1);
    rig_open(&r, 1, "mse", "test = \"a.nii\"");
    r.c->run.over_predictions = true;
    predicted(&r, x, 1);
    rig_close(&r);
    ck_assert(!link("maps/a.nii.gz", "maps/b.nii.gz"));   /* of a volume that is no longer there */
    ck_assert(!rename("maps", "earlier"));
    rig_open(&r, 1, "mse", "test = \"a.nii\"");
    r.c->run.over_predictions = true;
    ck_assert(!rename("earlier", "maps"));
    for (int i = 0; i < VOXELS; i++) x[i] = 1;
    predicted(&r, x, 1);
    labels_get("maps/a.nii.gz", y);
    for (int i = 0; i < VOXELS; i++) ck_assert_uint_eq(y[i], 1);
    ck_assert(access("maps/b.nii.gz", F_OK) && access("maps.old", F_OK) && access("maps.tmp", F_OK));
    rig_close(&r);
    put_text("maps/mine", "precious");
    ck_assert(!rename("maps", "earlier"));
    rig_open(&r, 1, "mse", "test = \"a.nii\"");
    r.c->run.over_predictions = true;
    ck_assert(!rename("earlier", "maps"));
    refuses(&r, E_CANTCREAT, "maps/mine: is not a file of a prediction");
    file_is("maps/mine", "precious");
    rig_close(&r);
}
END_TEST

/* A file that is put into the folder while the maps are made stays, and so do the maps. */
START_TEST(a_late_file_stays)
{
    struct rig r;
    struct err e = {0};
    float x[VOXELS] = {0};
    volume_put("a.nii", NULL, -1);
    rig_open(&r, 1, "mse", "test = \"a.nii\"");
    predicted(&r, x, 1);
    rig_close(&r);
    ck_assert(!rename("maps", "earlier"));
    rig_open(&r, 1, "mse", "test = \"a.nii\"");
    r.c->run.over_predictions = true;
    ck_assert(!rename("earlier", "maps"));
    ck_assert(!rig_begin(&r, &e) && !label_maps_add(r.m, x, 0, &e));
    put_text("maps/mine", "precious");
    ck_assert(label_maps_commit(r.m, &e));
    expect(&e, E_CANTCREAT, "./maps.tmp: ./maps/mine:");
    file_is("maps/mine", "precious");
    ck_assert(!access("maps.tmp/a.nii.gz", F_OK));
    rig_close(&r);
}
END_TEST

/* Images and labels have the same names as maps, and tables that of scores: none of them goes. */
START_TEST(folders_of_volumes_stay)
{
    static const struct { const char *file, *text, *says; } cases[] = {
        {"maps/a.nii.gz", "precious", "maps/a.nii.gz: is not a file of a prediction"},
        {"maps/a.nii.gz", "\x1f\x8b\b\0\0\0\0\0\0\3precious", "maps/a.nii.gz: is not a file of a prediction"},
        {"maps/scores.csv", "precious", "maps: is not the map of a prediction"}};
    struct rig r;
    volume_put("a.nii", NULL, -1);
    rig_open(&r, 1, "mse", "test = \"a.nii\"");
    r.c->run.over_predictions = true;
    ck_assert(!mkdir("maps", 0700));
    put(cases[_i].file, cases[_i].text, cases[_i].text[0] == 'p' ? 8 : 18);
    refuses(&r, E_CANTCREAT, cases[_i].says);
    ck_assert(!access(cases[_i].file, F_OK));
    ck_assert(!unlink(cases[_i].file) && !mkdir("maps/c.nii.gz", 0700));
    refuses(&r, E_CANTCREAT, "maps/c.nii.gz: is not a file of a prediction");
    rig_close(&r);
}
END_TEST

/* What has the folder's name, or its name until it is whole, stays; and so does what is in it. */
START_TEST(folders_in_the_way_stay)
{
    struct rig r;
    struct err e = {0};
    volume_put("a.nii", NULL, -1);
    rig_open(&r, 1, "mse", "test = \"a.nii\"");
    ck_assert(!mkdir("maps.tmp", 0700));
    put_text("maps.tmp/mine", "precious");
    refuses(&r, E_CANTCREAT, "maps.tmp:");
    file_is("maps.tmp/mine", "precious");
    ck_assert(!rename("maps.tmp", "maps"));
    refuses(&r, E_CANTCREAT, "maps: is a directory");
    file_is("maps/mine", "precious");
    ck_assert(!unlink("maps/mine") && !rmdir("maps"));
    put_text("maps", "precious");
    refuses(&r, E_CANTCREAT, "maps:");
    file_is("maps", "precious");
    ck_assert(!unlink("maps") && !rig_begin(&r, &e));
    rig_close(&r);
    ck_assert(access("maps", F_OK) && access("maps.tmp", F_OK));   /* without its volume nothing is left */
}
END_TEST

START_TEST(equal_names_are_refused)
{
    struct rig r;
    ck_assert(!mkdir("b", 0700));
    volume_put("a.nii", NULL, -1);
    volume_put("b/a.nii", NULL, -1);
    put_text("images", "a.nii\nb/a.nii\n");
    rig_open(&r, 1, "mse", "test = images");
    refuses(&r, E_CANTCREAT, "maps: two volumes would be a.nii.gz");
    rig_close(&r);
}
END_TEST

static void all(TCase *t)
{
    tcase_add_test(t, labels_are_classes);
    tcase_add_test(t, voxels_are_classes);
    tcase_add_loop_test(t, one_channel_has_a_threshold, 0, 3);
    tcase_add_loop_test(t, scores_of_no_foreground, 0, 2);
    tcase_add_test(t, an_earlier_prediction_goes);
    tcase_add_test(t, a_late_file_stays);
    tcase_add_loop_test(t, folders_of_volumes_stay, 0, 3);
    tcase_add_test(t, folders_in_the_way_stay);
    tcase_add_test(t, equal_names_are_refused);
}

int main(void) { return scratch_suite("label_maps", all); }
