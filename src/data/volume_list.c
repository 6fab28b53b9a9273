#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include "base/text.h"
#include "data/volume_list.h"

enum { LIST_MOST = 1 << 28, PATH_MOST = 4095, CLASSES_MOST = 256 };
static const char json_name[] = "dataset.json";

bool volume_list_folder(const char *path)
{
    struct stat st;
    return !stat(path, &st) && S_ISDIR(st.st_mode);
}

void volume_list_free(struct volume_list *l)
{
    vec_free(&l->file);
    if (l->mem) arena_free(l->mem);
    *l = (struct volume_list){0};
}

/* A name of n bytes, relative to the folder of path. */
static const char *beside(struct arena *mem, const char *path, const char *name, size_t n)
{
    const char *slash = *name == '/' ? NULL : strrchr(path, '/');
    size_t folder = slash ? (size_t)(slash + 1 - path) : 0;
    char *s = arena_alloc(mem, folder + n + 1);
    memcpy(s, path, folder);
    memcpy(s + folder, name, n);
    return s;
}

/* ---- dataset.json ------------------------------------------------------------------------------------------------ */

/* Does a path leave its base folder? */
static bool leaves(const char *name)
{
    for (const char *s = name; *s; s += strspn(s, "/")) {
        size_t n = strcspn(s, "/");
        if (n == 2 && !memcmp(s, "..", 2)) return true;
        s += n;
    }
    return *name == '/';
}

/* *out: NULL for a file that is not a volume, such as extra files in archives made on a Macintosh. */
static int name_take(struct volume_list *l, const char *key, size_t i, const json_t *name, const char **out,
                     struct err *e)
{
    const char *s = json_string_value(name);
    if (!s || !*s || strlen(s) > PATH_MOST)
        return err_set(e, E_DATA, "%s: %s %zu: not the name of a file", l->path, key, i);
    if (leaves(s))
        return err_set(e, E_DATA, "%s: %s %zu: \"%.200s\" is not in this folder", l->path, key, i, s);
    const char *last = strrchr(s, '/');
    while (s[0] == '.' && s[1] == '/') s += 1 + strspn(s + 1, "/");
    if (!*s) return err_set(e, E_DATA, "%s: %s %zu: not the name of a file", l->path, key, i);
    *out = NULL;
    if (!strncmp(last ? last + 1 : s, "._", 2)) return 0;
    *out = beside(l->mem, l->path, s, strlen(s));
    return 0;
}

/* An entry is {"image": NAME, "label": NAME} or, without labels, NAME. */
static int entries_take(struct volume_list *l, const json_t *root, const char *key, bool labelled, struct err *e)
{
    const json_t *all = json_object_get(root, key);
    if (!json_is_array(all)) return err_set(e, E_DATA, "%s: no list \"%s\"", l->path, key);
    for (size_t i = 0; i < json_array_size(all); i++) {
        const json_t *entry = json_array_get(all, i), *image = json_object_get(entry, "image");
        struct volume_file f = {0};
        if (name_take(l, key, i, image ? image : entry, &f.image, e)) return -1;
        if (labelled && name_take(l, key, i, json_object_get(entry, "label"), &f.label, e)) return -1;
        if (f.image && (f.label || !labelled)) *vec_push(&l->file) = f;
    }
    return 0;
}

/* {"0": "background", "1": "Anterior" ...}; otherwise there are no names. */
static void classes_take(struct volume_list *l, const json_t *root)
{
    const json_t *all = json_object_get(root, "labels");
    size_t n = json_object_size(all);
    if (!n || n > CLASSES_MOST) return;
    const char **name = arena_alloc(l->mem, n * sizeof *name);
    for (size_t i = 0; i < n; i++) {
        char number[24];
        snprintf(number, sizeof number, "%zu", i);
        const char *s = json_string_value(json_object_get(all, number));
        if (!s) return;
        name[i] = arena_strdup(l->mem, s);
    }
    l->n_classes = (int64_t)n;
    l->class_name = name;
}

int volume_list_json(const char *path, const char *s, size_t n, enum volume_part part, struct volume_list *l,
                     struct err *e)
{
    json_error_t why;
    *l = (struct volume_list){.mem = arena_new()};
    l->path = arena_strdup(l->mem, path);
    json_t *root = json_loadb(s, n, JSON_REJECT_DUPLICATES, &why);
    if (!root && json_error_code(&why) == json_error_out_of_memory) mem_got(NULL);
    if (!root) return err_set(e, E_DATA, "%s: line %d: %s", path, why.line, why.text);
    const json_t *tests = json_object_get(root, "test");
    bool test = part == VOLUMES_TESTS && json_array_size(tests), labelled = part == VOLUMES_LABELLED;
    int bad = json_is_object(root) ? entries_take(l, root, test ? "test" : "training", labelled, e)
                                   : err_set(e, E_DATA, "%s: no object", path);
    if (!bad) classes_take(l, root);
    json_decref(root);
    if (!bad && !l->file.n) return err_set(e, E_DATA, "%s: names no volume", path);
    return bad;
}

static int folder_read(const char *folder, enum volume_part part, struct volume_list *l, struct err *e)
{
    struct text t = {0}, path = {0};
    size_t n = strlen(folder);
    text_add(&path, "%s%s%s", folder, n && folder[n - 1] == '/' ? "" : "/", json_name);
    int bad = text_read_file(&t, path.s, LIST_MOST, e) ||
              volume_list_json(path.s, t.n ? t.s : "", t.n, part, l, e);
    text_free(&t);
    text_free(&path);
    return bad ? -1 : 0;
}

/* ---- lists ------------------------------------------------------------------------------------------------------- */

typedef VEC(const char *) names;

static int line_take(struct arena *mem, const char *path, const char *s, size_t n, int line, names *out, struct err *e)
{
    while (n && strchr(" \t\r", s[n - 1])) n--;
    if (!n) return 0;
    if (n > PATH_MOST || memchr(s, 0, n))
        return err_set(e, E_DATA, "%s: line %d: not the name of a file", path, line);
    *vec_push(out) = beside(mem, path, s, n);
    return 0;
}

static int name_table_read(struct arena *mem, const char *path, names *out, struct err *e)
{
    struct text t = {0};
    if (text_ends(path, ".nii") || text_ends(path, ".nii.gz")) {
        *vec_push(out) = arena_strdup(mem, path);
        return 0;
    }
    if (text_read_file(&t, path, LIST_MOST, e)) return -1;
    int bad = 0, line = 1;
    for (const char *s = t.s, *end = t.s + t.n; t.n && s < end && !bad; line++) {
        const char *stop = memchr(s, '\n', (size_t)(end - s));
        if (!stop) stop = end;
        bad = line_take(mem, path, s, (size_t)(stop - s), line, out, e);
        s = stop + 1;
    }
    text_free(&t);
    if (!bad && !out->n) return err_set(e, E_DATA, "%s: names no volume", path);
    return bad;
}

static int lists_read(const char *images, const char *labels, struct volume_list *l, struct err *e)
{
    names image = {0}, label = {0};
    *l = (struct volume_list){.mem = arena_new()};
    l->path = arena_strdup(l->mem, images);
    int bad = name_table_read(l->mem, images, &image, e) || (labels && name_table_read(l->mem, labels, &label, e));
    if (!bad && labels && image.n != label.n)
        bad = err_set(e, E_DATA, "%s: names %d volumes of labels for the %d of %s", labels, label.n, image.n, images);
    for (int i = 0; i < image.n && !bad; i++)
        *vec_push(&l->file) = (struct volume_file){image.v[i], labels ? label.v[i] : NULL};
    vec_free(&image);
    vec_free(&label);
    return bad ? -1 : 0;
}

int volume_list_read(const char *images, const char *labels, enum volume_part part, struct volume_list *l,
                     struct err *e)
{
    *l = (struct volume_list){0};
    if (volume_list_folder(images)) return folder_read(images, part, l, e);
    return lists_read(images, part == VOLUMES_LABELLED ? labels : NULL, l, e);
}

/* ---- folds ------------------------------------------------------------------------------------------------------- */

struct list_place { const char *name; int at; };

static int order(const void *a, const void *b)
{
    const struct list_place *x = a, *y = b;
    int by_name = strcmp(x->name, y->name);
    return by_name ? by_name : (x->at > y->at) - (x->at < y->at);
}

void volume_list_fold(struct volume_list *l, int64_t folds, int64_t fold, bool inside)
{
    const int n = l->file.n;
    struct list_place *p = mem_alloc((size_t)n * sizeof *p);
    bool *stays = mem_alloc((size_t)n * sizeof *stays);
    for (int i = 0; i < n; i++) p[i] = (struct list_place){l->file.v[i].image, i};
    qsort(p, (size_t)n, sizeof *p, order);
    for (int k = 0; k < n; k++) stays[p[k].at] = (k % folds == fold) == inside;
    l->file.n = 0;
    for (int i = 0; i < n; i++)
        if (stays[i]) l->file.v[l->file.n++] = l->file.v[i];
    free(p);
    free(stays);
}
