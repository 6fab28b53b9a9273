#include <dirent.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>
#include "base/file.h"
#include "base/out.h"
#include "cli/init.h"
#include "data/class_names.h"
#include "data/image_list.h"
#include "data/picture.h"

enum { LOOKED_AT = 100, FILE_MOST = 1 << 28 };
static const double SHARE = 0.1;                           /* data.validation, if there is no folder to test with */

struct found_folders {
    char *train, *test;                                    /* folders; test NULL: none */
    int beside; char *first_extra;                        /* entries next to them that are not used */
    char *name;                                            /* of the run and its file */
    struct image_list list;                                /* of train */
    /* pictures measured: shorter sides, longer sides; unread: failed */
    int n, small[LOOKED_AT], large[LOOKED_AT], unread;
    char *why_unread;                                      /* the error of the first unreadable one */
};

/* ---- looking ----------------------------------------------------------------------------------------------------- */

static char *inside(const char *dir, const char *name)
{
    struct text t = {0};
    text_add(&t, "%s%s%s", dir, dir[strlen(dir) - 1] == '/' ? "" : "/", name);
    return t.s;
}

static bool is_folder(const char *path)
{
    struct stat st;
    return !stat(path, &st) && S_ISDIR(st.st_mode);
}

static int by_name(const void *a, const void *b) { return strcmp(*(char *const *)a, *(char *const *)b); }

typedef VEC(char *) names;

static void name_table_free(names *n)
{
    for (int i = 0; i < n->n; i++) free(n->v[i]);
    vec_free(n);
}

/* Lists the entries of a folder, except hidden ones and those that operating systems leave. folders: only folders. */
static int folder_names(const char *dir, bool folders, names *out, struct err *e)
{
    DIR *d = opendir(dir);
    if (!d) return file_missing(dir, e);
    for (const struct dirent *x; (x = readdir(d)) != NULL;) {
        if (*x->d_name == '.' || leftover_system(x->d_name, strlen(x->d_name))) continue;
        char *path = inside(dir, x->d_name);
        if (!folders || is_folder(path)) *vec_push(out) = mem_strdup(x->d_name);
        free(path);
    }
    closedir(d);
    if (out->n) qsort(out->v, (size_t)out->n, sizeof *out->v, by_name);
    return 0;
}

static bool has_folders(const char *dir, const char *name)
{
    struct err none = {0};
    names in = {0};
    char *path = inside(dir, name);
    bool has = !folder_names(path, true, &in, &none) && in.n > 0;
    free(path);
    name_table_free(&in);
    return has;
}

static int two_splits(const char *dir, const char *a, const char *b, struct err *e)
{
    return err_set(e, E_DATA, "%s: holds %s and %s: rename one, or give --init a folder of classes", dir, a, b);
}

/* Finds the folder of a part in the list, or -1; *second: another one, or -1. */
static int split_find(const names *in, enum split want, int *second)
{
    int found = -1;
    *second = -1;
    for (int i = 0; i < in->n; i++) {
        if (split_of(in->v[i]) != want) continue;
        if (found >= 0) *second = i;
        else found = i;
    }
    return found;
}

/* Decides whether folders with such names are parts rather than classes. A training part contains folders, as a class
 * also may, or has another part next to it. Several names of one kind and none of another are classes, such as dev1 and
 * dev2. */
static int parts_find(const char *dir, const names *in, struct found_folders *f, struct err *e)
{
    int second[3], first[3];
    for (int i = 0; i < 3; i++) first[i] = split_find(in, (enum split)(SPLIT_TRAIN + i), &second[i]);
    const int train = first[0], validation = first[1], test = first[2], other = validation >= 0 ? validation : test;
    const bool any = train >= 0 ? other >= 0 || has_folders(dir, in->v[train]) : validation >= 0 && test >= 0;
    for (int i = 0; i < 3 && any; i++)
        if (second[i] >= 0) return two_splits(dir, in->v[first[i]], in->v[second[i]], e);
    if (!any) return 0;
    if (train < 0)
        return err_set(e, E_DATA, "%s: holds %s and %s, but no folder to train with: give --init a folder of classes",
                       dir, in->v[validation], in->v[test]);
    if (!has_folders(dir, in->v[train]))
        return err_set(e, E_DATA, "%s: %s and %s look like parts of a data set, but %s has no folders, which are the "
                       "classes; see mpstaged.conf(5) for lists of images", dir, in->v[train], in->v[other],
                       in->v[train]);
    f->train = inside(dir, in->v[train]);
    if (other >= 0) f->test = inside(dir, in->v[other]);
    names all = {0};
    if (folder_names(dir, false, &all, e)) return -1;
    for (int i = 0; i < all.n; i++) {
        const bool used = !strcmp(all.v[i], in->v[train]) || (other >= 0 && !strcmp(all.v[i], in->v[other]));
        if (!used && !f->beside++) f->first_extra = inside(dir, all.v[i]);
    }
    name_table_free(&all);
    return 0;
}

static int folders_find(const char *dir, struct found_folders *f, struct err *e)
{
    names in = {0};
    int bad = folder_names(dir, true, &in, e) || parts_find(dir, &in, f, e);
    name_table_free(&in);
    if (!f->train) f->train = mem_strdup(dir);
    return bad ? -1 : 0;
}

/* The folder's name, with other characters than a run and a file may have replaced. */
char *init_name(const char *path, const char *end, const char *otherwise)
{
    char *real = realpath(path, NULL), *slash = real ? strrchr(real, '/') : NULL;
    char *name = mem_strdup(slash && slash[1] ? slash + 1 : otherwise);
    if (text_ends(name, end)) name[strlen(name) - strlen(end)] = '\0';
    for (char *c = name; *c; c++)
        if (!strchr("abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_-", *c)) *c = '_';
    free(real);
    return name;
}

static void picture_measure(struct found_folders *f, const char *path)
{
    struct err none = {0};
    struct picture *p = NULL;
    uint64_t size = 0;
    uint8_t *bytes = NULL;
    int fd = file_open(path, &size, &none);
    bool there = fd >= 0 && size && size <= FILE_MOST;
    if (there) bytes = mem_alloc((size_t)size);
    if (there && !file_read_at(fd, path, 0, bytes, (size_t)size, &none) &&
        !picture_open(path, bytes, (size_t)size, &p, &none)) {
        int w = picture_width(p), h = picture_height(p);
        f->small[f->n] = w < h ? w : h;
        f->large[f->n++] = w < h ? h : w;
    } else if (!f->unread++) {
        struct text why = {0};
        text_add(&why, "%s", none.code ? none.text : path);
        if (!none.code) text_add(&why, ": %s", size ? "is too large" : "the file is empty");
        f->why_unread = why.s;
    }
    picture_close(p);
    free(bytes);
    if (fd >= 0) close(fd);
}

static int ascending(const void *a, const void *b) { return *(const int *)a - *(const int *)b; }

/* Measures some pictures from all parts of the list. */
static int pictures_check(struct found_folders *f, struct err *e)
{
    struct text path = {0};
    int all = f->list.image.n, n = all < LOOKED_AT ? all : LOOKED_AT;
    for (int i = 0; i < n; i++) {
        image_list_path(&f->list, (uint64_t)((int64_t)i * all / n), &path);
        picture_measure(f, path.s);
    }
    text_free(&path);
    if (!f->n) return err_set(e, E_DATA, "%s: none of the %d pictures that were looked at can be read", f->train, n);
    qsort(f->small, (size_t)f->n, sizeof *f->small, ascending);
    qsort(f->large, (size_t)f->n, sizeof *f->large, ascending);
    return 0;
}

/* ---- writing ----------------------------------------------------------------------------------------------------- */

/* Adds a file name in the syntax of a configuration: relative names stay relative, special characters are escaped. */
void init_path_add(struct text *t, const char *s)
{
    text_add(t, "\"%s", *s == '~' ? "./" : "");
    for (; *s; s++) text_add(t, *s == '"' || *s == '\\' ? "\\%c" : *s == '$' ? "$%c" : "%c", *s);
    text_add(t, "\"");
}

/* The input size for pictures with this shorter side. */
static int input_of(int small) { return small <= 40 ? 32 : small <= 80 ? 64 : small <= 160 ? 128 : 224; }

static int power_below(int most, int n)
{
    while (most > n && most > 1) most /= 2;
    return most;
}

/* Chooses the samples of a batch and of a micro-batch so that neither ends with a single sample: batch norm over single
 * points could not use it. */
static void sizes_find(int n, int *batch, int *split)
{
    *batch = power_below(64, n);
    while (*batch > 2 && n % *batch == 1) --*batch;
    *split = *batch >= 8 ? *batch / 4 : *batch;
    while (*split < *batch && (*batch % *split == 1 || n % *batch % *split == 1)) ++*split;
}

static void classes_add(const struct image_list *l, struct text *t)
{
    enum { SHOWN = 8 };
    text_add(t, "%lld classes:", (long long)l->n_classes);
    for (int64_t i = 0; i < l->n_classes && i < SHOWN; i++) {
        char name[40];
        text_add(t, "%s %s", i ? "," : "", text_printable(l->class_name[i], name, sizeof name));
    }
    text_add(t, "%s", l->n_classes > SHOWN ? " ..." : "");
}

/* Photographs tolerate any crop and a mirror image. Small pictures may be digits, for example, so it is unknown what
 * they tolerate. */
static void augment_add(int input, struct text *t)
{
    if (input >= 128)
        text_add(t, "    # random augmentation in training; --show-batch FILE.png draws it\n"
                    "    augment = {\"random_resized_crop\", \"horizontal_flip\"}\n");
    else
        text_add(t, "    # for pictures that may be shifted, mirrored; --show-batch FILE.png draws it\n"
                    "    # augment = {\"random_crop padding=%d\", \"horizontal_flip\"}\n", input / 8);
}

/* Adds what was found, as comments of at most 80 columns. */
static void found_add(const struct found_folders *f, struct text *t)
{
    struct text said = {0}, folded = {0};
    text_add(&said, "Made by mpstaged --init. %d pictures of ", f->list.image.n);
    classes_add(&f->list, &said);
    text_add(&said, "\nOf %d that were looked at, shorter sides have %d to %d pixels, %d in the middle, longer ones at "
             "most %d", f->n, f->small[0], f->small[f->n - 1], f->small[f->n / 2], f->large[f->n - 1]);
    if (f->unread) text_add(&said, "; %d could not be read", f->unread);
    text_add(&said, ".\n");
    text_fold(said.s, 78, 0, &folded);
    for (const char *line = folded.s; *line;) {
        const int n = (int)strcspn(line, "\n");
        text_add(t, "# %.*s\n", n, line);
        line += n + (line[n] != 0);
    }
    text_free(&said);
    text_free(&folded);
}

/* Whether there are test samples: a test folder, or enough pictures per class to hold some out. */
static bool tested(const struct found_folders *f)
{
    return f->test || SHARE * f->list.image.n >= (double)f->list.n_classes;
}

static void conf_add(const struct found_folders *f, struct text *t)
{
    const int kept = f->test || !tested(f) ? 0 : (int)(SHARE * f->list.image.n + 0.5);
    int n = f->list.image.n - kept, input = input_of(f->small[f->n / 2]);
    int batch, split;
    sizes_find(n, &batch, &split);
    found_add(f, t);
    text_add(t, "#   mpstaged -c FILE --check-config            checks everything\n"
                "#   mpirun -np 2 mpstaged -c FILE              trains in two processes\n"
                "#   mpirun -np 2 mpstaged -c FILE --predict predictions.csv\n"
                "# mpstaged.conf(5) has all settings.\n");
    text_add(t, "run { name = \"%s\" }\n", f->name);
    text_add(t, "model {\n    # also resnet34, resnet50 ...; a network of your own: graph = FILE\n"
                "    network = \"resnet18\"  classes = %lld  input = {3, %d, %d}\n%s}\n", (long long)f->list.n_classes,
             input, input, input > 32 ? "" : "    # for small pictures: the first layers keep the size\n"
                                             "    small_stem = yes\n");
    text_add(t, "data {\n    source = \"images\"\n    train = ");
    init_path_add(t, f->train);
    if (f->test) text_add(t, "\n    test = "), init_path_add(t, f->test);
    else text_add(t, "\n"
                     "    # test = FOLDER: test pictures of the same classes; without them\n"
                     "    # this share of train is held out for tests\n"
                     "    %svalidation = %g",
                  tested(f) ? "" : "# ", SHARE);
    text_add(t, "\n    # scales the shorter side to this, then crops the centre\n    resize = %d\n",
             input >= 128 ? input * 8 / 7 : input);
    text_add(t, "    # mean and deviation of ImageNet, as torchvision's weights need\n"
                "    mean = {0.485, 0.456, 0.406}  std = {0.229, 0.224, 0.225}\n"
                "    # \"skip\" replaces pictures that cannot be decoded\n"
                "    damaged = \"error\"\n");
    augment_add(input, t);
    text_add(t, "}\n");
    text_add(t, "train {\n    # A batch goes through the stages in micro-batches of split_size samples.\n");
    if (batch >= 8 && split != batch / 4)
        text_add(t, "    # %d would leave a micro-batch of one sample, which batch norm cannot use.\n", batch / 4);
    text_add(t, "    batch_size = %d  split_size = %d  epochs = 20\n", batch, split);
    text_add(t, "    optimizer = \"sgd\"  momentum = 0.9  weight_decay = 0.0005\n    learning_rate = %g\n",
             0.1 * batch / 256);
    text_add(t, "    schedule = \"cosine\"  warmup_epochs = 2\n");
    if (tested(f)) text_add(t, "    # after each epoch: scores and the confusion matrix\n"
                               "    evaluate_epochs = 1  confusion = yes\n");
    text_add(t, "}\n"
                "# One stage per process, partitioned so that all take the same time.\n"
                "pipeline { schedule = \"1f1b\"  partition = \"auto\"  stages = 2 }\n");
    if (tested(f)) text_add(t, "checkpoint { best = \"accuracy\" }\n");
    else text_add(t, "checkpoint { every_seconds = 600 }\n");
    text_add(t, "# To fine-tune weights of other classes, see conf/finetune.conf.\n");
}

/* The first volume in the folder, or in the folders in it; NULL: none. */
static char *volume_find(const char *dir, bool folders)
{
    names in = {0};
    char *found = NULL;
    folder_names(dir, false, &in, NULL);
    for (int i = 0; i < in.n && !found; i++) {
        const size_t n = strlen(in.v[i]);
        const bool is = (n > 4 && !strcmp(in.v[i] + n - 4, ".nii")) || (n > 7 && !strcmp(in.v[i] + n - 7, ".nii.gz"));
        char *path = inside(dir, in.v[i]);
        if (is) found = path;
        else {
            if (folders && is_folder(path)) found = volume_find(path, false);
            free(path);
        }
    }
    name_table_free(&in);
    return found;
}

/* A folder without pictures may hold volumes. */
static int list_find(const char *dir, struct found_folders *f, struct err *e)
{
    struct err own = {0};
    if (!image_list_read(f->train, true, NULL, &f->list, &own)) return 0;
    char *volume = volume_find(dir, true);
    if (volume) err_set(e, E_DATA, "%s: is a volume, and --init is for pictures; see docs/guide/volumes.md", volume);
    free(volume);
    return err_set(e, own.code, "%s", own.text);
}

static int found_check(const char *dir, struct found_folders *f, struct err *e)
{
    struct stat st;
    if (stat(dir, &st)) return file_missing(dir, e);
    if (!S_ISDIR(st.st_mode)) return err_set(e, E_DATA, "%s: is not a folder", dir);
    if (folders_find(dir, f, e)) return -1;
    f->name = init_name(dir, "", "images");
    if (list_find(dir, f, e)) return -1;
    if (f->list.n_classes < 2)
        return err_set(e, E_DATA, "%s: has one class; expected a folder for each class", f->train);
    return pictures_check(f, e);
}

/* Adds warnings about unused entries and other oddities of the folder, one line each. */
static void found_say(const struct found_folders *f, const char *dir, struct text *out)
{
    struct text t = {0};
    char shown[600];
    if (f->beside)
        text_add(&t, "%s: %d name%s not used; the first: %s", dir, f->beside, f->beside == 1 ? " is" : "s are",
                 text_printable(f->first_extra, shown, sizeof shown));
    leftover_text(&f->list.left, f->train, &t);
    class_names_doubt(f->list.class_name, f->list.n_classes, f->train, &t);
    if (f->unread)
        text_add(&t, "%s%s: %d of %d pictures that were looked at cannot be read; data.damaged = \"skip\" skips "
                 "such; the first: %s", t.n ? "\n" : "", f->train, f->unread, f->n + f->unread, f->why_unread);
    if (f->test) {
        struct image_list test;
        struct err why = {0};
        if (image_list_read(f->test, true, f->train, &test, &why))
            text_add(&t, "%s%s", t.n ? "\n" : "", why.text);
        else leftover_text(&test.left, f->test, &t);
        image_list_free(&test);
    }
    for (char *save, *line = t.n ? strtok_r(t.s, "\n", &save) : NULL; line; line = strtok_r(NULL, "\n", &save))
        text_add(out, "warning: %s\n", line);
    text_free(&t);
}

int init_file(const char *file, const struct text *conf, struct err *e)
{
    if (access(file, F_OK)) return out_file_named(file, conf, true, e);
    return err_set(e, E_CANTCREAT, "%s: File exists; --write-config FILE takes another name", file);
}

int init_write(const char *dir, const char *file, struct text *out, struct err *e)
{
    struct found_folders f = {0};
    struct text conf = {0}, own = {0};
    int bad = found_check(dir, &f, e);
    if (!bad) {
        text_add(&own, "%s.conf", f.name);
        if (!file) file = own.s;
        conf_add(&f, &conf);
        bad = init_file(file, &conf, e);
    }
    if (!bad) {
        found_say(&f, dir, out);
        const char *tests = f.test ? "" : tested(&f) ? ", a tenth to test with" : ", and none to test with";
        text_add(out, "%s: %d pictures of %lld classes%s; next: mpstaged -c %s --check-config\n", file, f.list.image.n,
                 (long long)f.list.n_classes, tests, file);
    }
    image_list_free(&f.list);
    free(f.train);
    free(f.test);
    free(f.name);
    free(f.first_extra);
    free(f.why_unread);
    text_free(&conf);
    text_free(&own);
    return bad ? -1 : 0;
}
