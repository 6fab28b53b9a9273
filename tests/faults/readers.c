/* What reads and writes files, one at a time, for nomem.so: readers KIND FILE. As the daemon: one line and 70 when
 * there is no memory; otherwise the error's line and its code. All that was taken is given back. */
#include <fcntl.h>
#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include "../devices.h"
#include "base/mem.h"
#include "ckpt/st.h"
#include "conf/conf.h"
#include "data/idx.h"
#include "data/image_list.h"
#include "data/npy.h"
#include "data/picture.h"
#include "data/volume_list.h"
#include "data/volumes.h"
#include "plan/cost.h"
#include "plan/plan.h"
#include "plan/sched.h"
#include "rig.h"

static const char network[] =
    "graph two\ninput input 4\nlabels labels class\na = linear(input) features=4 layer=Linear\n"
    "b = relu(a) layer=ReLU\nloss = mse(b, labels)\nloss loss\noutput b\n";

static void out_of_memory(size_t bytes)
{
    static const char line[] = "readers: out of memory\n";
    _exit(write(STDERR_FILENO, line, sizeof line - 1) > 0 ? E_INTERNAL : 1);
}

static int conf_read(const char *path, struct err *e)
{
    struct text t = {0}, out = {0};
    if (text_read_file(&t, path, 1 << 20, e)) return -1;
    struct conf *c = conf_parse(path, t.s, t.n, e);
    int bad = !c || conf_finish(c, e);
    if (!bad) {
        conf_print(c, &out);
        free(conf_json(c));
    }
    conf_free(c);
    text_free(&out);
    text_free(&t);
    return bad ? -1 : 0;
}

static int graph_read(const char *path, struct err *e)
{
    struct text t = {0}, out = {0};
    if (text_read_file(&t, path, 1 << 20, e)) return -1;
    struct graph *g = graph_parse(path, t.s, t.n, e);
    if (g) {
        graph_print(g, &out);
        graph_summary(g, NULL, 80, &out);
        free(graph_summary_json(g, NULL));
    }
    int bad = g ? 0 : -1;
    graph_free(g);
    text_free(&out);
    text_free(&t);
    return bad;
}

static int profile_read(const char *path, struct err *e)
{
    struct text t = {0};
    if (text_read_file(&t, path, 1 << 20, e)) return -1;
    struct graph *g = graph_parse("two.graph", network, strlen(network), e);
    struct selection *s = g ? select_make(g, &rig_plain, 8, e) : NULL;
    struct cost *k = s ? cost_parse(path, t.s, t.n, s, e) : NULL;
    int bad = k ? 0 : -1;
    cost_free(k);
    select_free(s);
    graph_free(g);
    text_free(&t);
    return bad;
}

static int rows_read(const char *path, struct err *e)
{
    struct text t = {0};
    struct sched s = {.n_ranks = 2, .row = mem_alloc(2 * sizeof *s.row)};
    int bad = text_read_file(&t, path, 1 << 20, e) || sched_parse(path, t.s, t.n, &s, e);
    sched_free(&s);
    text_free(&t);
    return bad ? -1 : 0;
}

static int idx_read(const char *path, struct err *e)
{
    struct idx_file f;
    if (idx_file_load(path, 1, IDX_RANK, &f, e)) return -1;
    free(f.data);
    return 0;
}

static int npy_file_read(const char *path, struct err *e)
{
    struct npy f;
    if (npy_open(path, &f, e)) return -1;
    uint64_t n = (uint64_t)shape_count(&f.shape);
    float *x = mem_alloc(n * sizeof *x);
    int bad = npy_read_float(&f, 0, n, x, e);
    free(x);
    npy_close(&f);
    return bad;
}

static int picture_read(const char *path, struct err *e)
{
    struct text t = {0};
    struct picture *p = NULL;
    if (text_read_file(&t, path, 1 << 20, e)) return -1;
    int bad = picture_open(path, (const uint8_t *)t.s, t.n, &p, e);
    uint8_t *row = p ? mem_alloc((size_t)picture_width(p) * PICTURE_BYTES) : NULL;
    for (int i = 0; p && !bad && i < picture_height(p); i++) bad = picture_row(p, row, e);
    free(row);
    picture_close(p);
    text_free(&t);
    return bad;
}

static int list_read(const char *path, struct err *e)
{
    struct image_list l;
    int bad = image_list_read(path, true, NULL, &l, e);
    image_list_free(&l);
    return bad;
}

/* A volume as a data set reads it: turned, resampled, cropped; and what is written of it. */
static int nifti_read(const char *path, struct err *e)
{
    const struct volume_want want = {.spacing = {2, 2, 2}, .size = {4, 4, 4}};
    struct nifti f;
    struct volume_grid g;
    struct text out = {0};
    if (nifti_open(path, &f, e) || volume_grid_of(&f, &want, &g, e)) return -1;
    const size_t n = (size_t)nifti_voxels(&f);
    float *x = mem_alloc(n * sizeof *x), *scaled = mem_alloc(volume_count(g.scaled) * sizeof *scaled);
    uint8_t *labels = mem_alloc(n);
    int bad = nifti_values(&f, x, e);
    if (!bad) {
        volume_scale(&g, x, scaled);
        volume_values(INTENSITY_PERCENTILE, scaled, volume_count(g.scaled));
        nifti_add(&out, &f, labels);
    }
    text_free(&out);
    free(labels);
    free(scaled);
    free(x);
    return bad;
}

static int dataset_read(const char *path, struct err *e)
{
    struct volume_list l;
    int bad = volume_list_read(path, NULL, VOLUMES_LABELLED, &l, e);
    if (!bad) volume_list_fold(&l, 2, 0, true);
    volume_list_free(&l);
    return bad;
}

static int weights_read(const char *path, struct err *e)
{
    struct st **all;
    int n, bad = st_open_all(path, &all, &n, e);
    for (int i = 0; i < n; i++) st_close(all[i]);
    free(all);
    return bad;
}

static int checkpoint_read(const char *path, struct err *e)
{
    uint64_t step;
    int dir = open(path, O_RDONLY | O_DIRECTORY | O_CLOEXEC), bad = rig_newest(dir, &step, e);
    close(dir);
    return bad;
}

static int checkpoint_write(const char *path, struct err *e)
{
    int dir = open(path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    /* that of the run before, which may have ended between commit and end */
    int bad = out_folder_remove(dir, "checkpoints", "step-00000007", e) || rig_save_alone(dir, 7, e);
    close(dir);
    return bad;
}

static const struct { const char *name; int (*read)(const char *path, struct err *e); } kind[] = {
    {"conf", conf_read}, {"graph", graph_read}, {"profile", profile_read}, {"rows", rows_read}, {"idx", idx_read},
    {"npy", npy_file_read}, {"picture", picture_read}, {"list", list_read}, {"nifti", nifti_read},
    {"dataset", dataset_read},
    {"weights", weights_read}, {"checkpoint", checkpoint_read}, {"save", checkpoint_write},
};

int main(int argc, char **argv)
{
    struct err e = {0};
    mem_oom_handler(out_of_memory);
    json_set_alloc_funcs(mem_alloc, free);
    for (size_t i = 0; argc == 3 && i < sizeof kind / sizeof *kind; i++) {
        if (strcmp(kind[i].name, argv[1])) continue;
        if (kind[i].read(argv[2], &e)) dprintf(STDERR_FILENO, "%s\n", e.text);
        return e.code;
    }
    return E_USAGE;
}
