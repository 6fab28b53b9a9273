/* CIFAR-10 and CIFAR-100 in binary form (https://www.cs.toronto.edu/~kriz/cifar.html). A record is one label, or a
 * coarse and a fine one, and 3 x 32 x 32 bytes, planes of red, green and blue. Records are read in place, with all
 * options of pictures (ds_images.c). CIFAR-100 uses the fine labels. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>
#include "base/file.h"
#include "base/file_kind.h"
#include "data/image_list_int.h"
#include "data/images_int.h"

enum { SIDE = 32, PIXELS = 3 * SIDE * SIDE };

/* labels: bytes before the pixels; the last one is used */
struct cifar_form {
    int labels, classes, n_train;
    const char *name, *train[5], *test, *names;
};
static const struct cifar_form forms[] = {
    {1, 10, 5, "CIFAR-10", {"data_batch_1.bin", "data_batch_2.bin", "data_batch_3.bin", "data_batch_4.bin",
                            "data_batch_5.bin"}, "test_batch.bin", "batches.meta.txt"},
    {2, 100, 1, "CIFAR-100", {"train.bin"}, "test.bin", "fine_label_names.txt"},
};
enum { FORMS = sizeof forms / sizeof *forms };

static uint64_t record_of(const struct cifar_form *f) { return (uint64_t)f->labels + PIXELS; }

static bool is_there(const char *path)
{
    struct stat st;
    return !stat(path, &st);
}

/* Recognises the form by the files in a folder. */
static const struct cifar_form *folder_form(const struct image_list *l, struct err *e)
{
    for (int i = 0; i < FORMS; i++)
        if (is_there(arena_printf(l->mem, "%s%s", l->root, forms[i].train[0])) ||
            is_there(arena_printf(l->mem, "%s%s", l->root, forms[i].test))) return &forms[i];
    err_set(e, E_NOINPUT, "%s: has neither %s (CIFAR-10) nor %s (CIFAR-100)", l->path, forms[0].train[0],
            forms[1].train[0]);
    return NULL;
}

/* Recognises the form by the size of a file, and if both fit, by its name. */
static const struct cifar_form *file_form(const char *path, uint64_t size, struct err *e)
{
    const struct cifar_form *found = NULL;
    const char *slash = strrchr(path, '/'), *name = slash ? slash + 1 : path;
    for (int i = 0; i < FORMS && size; i++) {
        bool named = !strcmp(name, forms[i].test) || !strcmp(name, forms[i].train[0]);
        if (size % record_of(&forms[i]) == 0 && (!found || named)) found = &forms[i];
    }
    if (found) return found;
    err_set(e, E_DATA, "%s: %llu byte%s not records of %llu (CIFAR-10) or %llu (CIFAR-100)", path,
            (unsigned long long)size, size == 1 ? " is" : "s are", (unsigned long long)record_of(&forms[0]),
            (unsigned long long)record_of(&forms[1]));
    return NULL;
}

/* Adds a file's records to the list as pictures. */
static int records_add(struct image_list *l, int fd, uint64_t n, const struct cifar_form *f, struct err *e)
{
    const char *path = l->shard.v[l->shard.n - 1];
    char name[40];
    for (uint64_t i = 0; i < n; i++) {
        uint8_t label[2];
        uint64_t at = i * record_of(f);
        if (file_read_at(fd, path, at, label, (size_t)f->labels, e)) return -1;
        int64_t class = label[f->labels - 1];
        if (class >= f->classes)
            return err_set(e, E_DATA, "%s: offset %llu: label %lld, but %s has %d classes", path,
                           (unsigned long long)(at + (uint64_t)f->labels - 1), (long long)class, f->name, f->classes);
        image_list_add(l, name, (size_t)snprintf(name, sizeof name, "image %llu", (unsigned long long)i), class);
        *vec_push(&l->place) = (struct image_place){l->shard.n - 1, at + (uint64_t)f->labels, PIXELS};
    }
    return 0;
}

/* f NULL: recognize the form by the file. *used: the form. */
static int file_add(struct image_list *l, const char *path, const struct cifar_form *f, const struct cifar_form **used,
                    struct err *e)
{
    uint64_t size;
    int fd = file_open(path, &size, e), bad = 0;
    if (fd < 0) return -1;
    if (size % record_of(&forms[0]) && size % record_of(&forms[1]))
        bad = file_kind_file(fd, path, size, "records of CIFAR", e);
    *used = f ? f : bad ? NULL : file_form(path, size, e);
    if (!*used) bad = -1;
    else if (!bad && (!size || size % record_of(*used)))
        bad = err_set(e, E_DATA, "%s: %llu byte%s not records of %llu (%s)", path, (unsigned long long)size,
                      size == 1 ? " is" : "s are", (unsigned long long)record_of(*used), (*used)->name);
    *vec_push(&l->shard) = path;
    if (!bad) bad = records_add(l, fd, size / record_of(*used), *used, e);
    close(fd);
    return bad;
}

/* Reads one name per line. Classes get names only if their number matches. */
static void name_table_read(struct image_list *l, const struct cifar_form *f)
{
    struct text t = {0};
    int64_t n = 0;
    const char **name = arena_alloc(l->mem, (size_t)f->classes * sizeof *name);
    if (!text_read_file(&t, arena_printf(l->mem, "%s%s", l->root, f->names), 1 << 16, NULL) && t.n)
        for (char *save, *line = strtok_r(t.s, "\r\n", &save); line; line = strtok_r(NULL, "\r\n", &save), n++)
            if (n < f->classes) name[n] = arena_strdup(l->mem, line);
    if (n == f->classes) l->class_name = name;
    text_free(&t);
}

static int folder_add(struct image_list *l, enum ds_part part, struct err *e)
{
    const struct cifar_form *f = folder_form(l, e), *used;
    if (!f) return -1;
    for (int i = 0; i < (part == DS_TRAIN ? f->n_train : 1); i++) {
        const char *name = part == DS_TRAIN ? f->train[i] : f->test;
        if (file_add(l, arena_printf(l->mem, "%s%s", l->root, name), f, &used, e)) return -1;
    }
    name_table_read(l, f);
    l->n_classes = f->classes;
    return 0;
}

static int cifar_list(const struct conf *c, enum ds_part part, bool labels, struct image_list *l, struct err *e)
{
    const char *path = part == DS_TRAIN ? c->data.train : c->data.test;
    const struct cifar_form *used = NULL;
    struct stat st;
    bool folder = !stat(path, &st) && S_ISDIR(st.st_mode);
    (void)labels;
    image_list_begin(l, path, folder);
    l->raw_width = l->raw_height = SIDE;
    if (folder) return folder_add(l, part, e);
    if (file_add(l, arena_strdup(l->mem, path), NULL, &used, e)) return -1;
    l->n_classes = used->classes;
    return 0;
}

static int cifar_open(const struct conf *c, enum ds_part part, const struct ds_want *want, struct ds **out,
                      struct err *e)
{
    return images_open(&ds_cifar, cifar_list, c, part, want, out, e);
}

const struct ds_kind ds_cifar = {
    .name = "cifar",
    .text = "CIFAR-10 or CIFAR-100 in binary form: the folder with its files, of which training and test images are "
            "found by name, or one file; pixels are divided by 255",
    .open = cifar_open, .count = images_count, .read = images_read, .name_of = images_name,
    .damage = images_damage, .tell = images_report,
    .class_of = images_class, .only = images_only, .close = images_close, .kept = IMAGES_KEPT,
};
