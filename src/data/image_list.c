#include <dirent.h>
#include <errno.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>
#include "base/file.h"
#include "data/class_names.h"
#include "data/image_list_int.h"
#include "data/picture.h"

enum { LIST_MOST = 1 << 30, PATH_MOST = 4095, DEEP_MOST = 16 };

static const char *name_at(const struct image_list *l, uint64_t at) { return l->names.s + at; }

void image_list_add(struct image_list *l, const char *name, size_t n, int64_t class)
{
    *vec_push(&l->image) = (struct image){l->names.n, class};
    text_add_bytes(&l->names, name, n);
    text_add_bytes(&l->names, "", 1);
}

void image_list_path(const struct image_list *l, uint64_t i, struct text *t)
{
    const char *name = name_at(l, l->image.v[i].name);
    t->n = 0;
    if (l->place.n) text_add(t, "%s: %s", l->shard.v[l->place.v[i].shard], name);
    else {
        if (*name != '/') text_add_bytes(t, l->root, strlen(l->root));
        text_add_bytes(t, name, strlen(name));
    }
}

int image_list_open(const struct image_list *l, uint64_t i, struct image_bytes *b, struct err *e)
{
    uint64_t size;
    image_list_path(l, i, &b->path);
    b->fd = file_open(l->place.n ? l->shard.v[l->place.v[i].shard] : b->path.s, &size, e);
    if (b->fd < 0) return -1;
    b->at = l->place.n ? l->place.v[i].at : 0;
    b->size = l->place.n ? l->place.v[i].size : size;
    return 0;
}

void image_list_free(struct image_list *l)
{
    text_free(&l->names);
    vec_free(&l->image);
    vec_free(&l->place);
    vec_free(&l->shard);
    leftover_free(&l->left);
    if (l->mem) arena_free(l->mem);
    *l = (struct image_list){0};
}

void image_list_spread(struct image_list *l, uint64_t n)
{
    const uint64_t all = (uint64_t)l->image.n;
    if (!l->folder || !n || n >= all) return;
    for (uint64_t i = 0; i < n; i++) l->image.v[i] = l->image.v[i * all / n];
    l->image.n = (int)n;
}

/* ---- classes ----------------------------------------------------------------------------------------------------- */

int image_list_order(const void *a, const void *b) { return strcmp(*(const char *const *)a, *(const char *const *)b); }

static int64_t class_find(const struct image_list *l, const char *name)
{
    const char **at = NULL;
    if (l->class_name) at = bsearch(&name, l->class_name, (size_t)l->n_classes, sizeof name, image_list_order);
    return at ? at - l->class_name : -1;
}

/* Sorts names and stores each once. */
static void classes_take(struct image_list *l, const char **name, int64_t n)
{
    if (n) qsort(name, (size_t)n, sizeof *name, image_list_order);
    l->class_name = arena_alloc(l->mem, (size_t)(n + 1) * sizeof *name);
    for (int64_t i = 0; i < n; i++)
        if (!i || strcmp(name[i - 1], name[i])) l->class_name[l->n_classes++] = arena_strdup(l->mem, name[i]);
}

static int class_unknown(const struct image_list *l, const char *what, const char *classes_of, struct err *e)
{
    for (int64_t i = 0; l->class_name && i < l->n_classes; i++)
        if (class_names_forms(l->class_name[i], what))
            return err_set(e, E_DATA, "%s: the name of class %.200s has another form of Unicode (NFC, NFD) than in %s: "
                           "rename one of them", l->path, what, classes_of);
    return err_set(e, E_DATA, "%s: there is no class %.200s in %s", l->path, what, classes_of);
}

/* ---- folders ----------------------------------------------------------------------------------------------------- */

struct entry { const char *name; bool folder; };
typedef VEC(struct entry) entries;

static int entry_order(const void *a, const void *b)
{
    return strcmp(((const struct entry *)a)->name, ((const struct entry *)b)->name);
}

/* Is it a folder, or a link to one? No for a name that has vanished and for a dangling link. */
static bool is_folder(DIR *dir, const struct dirent *d)
{
    struct stat st;
    if (d->d_type != DT_UNKNOWN && d->d_type != DT_LNK) return d->d_type == DT_DIR;
    return !fstatat(dirfd(dir), d->d_name, &st, 0) && S_ISDIR(st.st_mode);
}

/* Is an entry skipped? Counts its pictures. */
static bool passed_over(const char *path, const struct dirent *d, bool folder, struct leftover *left)
{
    const char *name = d->d_name, *slash = path[strlen(path) - 1] == '/' ? "" : "/";
    const size_t n = strlen(name);
    const bool hidden = *name == '.' || leftover_system(name, n);
    if (!hidden && !folder && !picture_name(name, n)) leftover_add(left, LEFT_OTHER, "%s%s%s", path, slash, name);
    else if (hidden && !folder && picture_name(name, n)) leftover_add(left, LEFT_SYSTEM, "%s%s%s", path, slash, name);
    else if (hidden && folder && left) {
        struct text in = {0};
        text_add(&in, "%s%s%s", path, slash, name);
        leftover_folder(left, in.s);
        text_free(&in);
    }
    return hidden || (!folder && !picture_name(name, n));
}

/* Folders and pictures in a folder, sorted; mem holds their names. left: counts other entries, or NULL. */
static int folder_read(struct arena *mem, const char *path, entries *out, struct leftover *left, struct err *e)
{
    DIR *dir = opendir(path);
    if (!dir) return file_missing(path, e);
    for (;;) {
        errno = 0;
        const struct dirent *d = readdir(dir);
        if (!d) break;
        if (!strcmp(d->d_name, ".") || !strcmp(d->d_name, "..")) continue;
        bool folder = is_folder(dir, d);
        if (passed_over(path, d, folder, left)) continue;
        *vec_push(out) = (struct entry){arena_strdup(mem, d->d_name), folder};
    }
    int bad = errno ? file_missing(path, e) : 0;
    closedir(dir);
    if (out->n) qsort(out->v, (size_t)out->n, sizeof *out->v, entry_order);
    return bad;
}

/* Names are relative to the root; folder "" is the root itself. */
static char *inside(struct arena *mem, const char *folder, const char *name)
{
    return arena_printf(mem, "%s%s%s", folder, *folder ? "/" : "", name);
}

/* Appends the names of pictures in a folder and all its subfolders. */
static int tree_read(struct image_list *l, struct arena *mem, const char *folder, int deep, entries *all, struct err *e)
{
    const char *path = arena_printf(mem, "%s%s", *folder ? l->root : l->path, folder);
    entries in = {0};
    int bad = deep > DEEP_MOST ? err_set(e, E_DATA, "%s: more than %d folders within folders", path, DEEP_MOST)
                               : folder_read(mem, path, &in, &l->left, e);
    for (int i = 0; i < in.n && !bad; i++) {
        const char *name = inside(mem, folder, in.v[i].name);
        if (in.v[i].folder) bad = tree_read(l, mem, name, deep + 1, all, e);
        else *vec_push(all) = (struct entry){name, false};
    }
    vec_free(&in);
    return bad;
}

/* First by their folder's path, in which "a-b" precedes "a/b", then by their own names. */
static int picture_order(const void *a, const void *b)
{
    const char *x = ((const struct entry *)a)->name, *y = ((const struct entry *)b)->name;
    const char *x_end = strrchr(x, '/'), *y_end = strrchr(y, '/');
    size_t n = x_end ? (size_t)(x_end - x) : 0, m = y_end ? (size_t)(y_end - y) : 0;
    int order = memcmp(x, y, n < m ? n : m);
    return order ? order : n != m ? (n > m) - (n < m) : strcmp(x + n, y + m);
}

/* The pictures of one class, or of a folder without classes. */
static int class_read(struct image_list *l, const char *folder, int64_t class, struct err *e)
{
    struct arena *mem = arena_new();
    entries all = {0};
    int bad = tree_read(l, mem, folder, 0, &all, e);
    if (all.n) qsort(all.v, (size_t)all.n, sizeof *all.v, picture_order);
    for (int i = 0; i < all.n && !bad; i++) image_list_add(l, all.v[i].name, strlen(all.v[i].name), class);
    vec_free(&all);
    arena_free(mem);
    return bad;
}

static void classes_of_folder(struct image_list *l, const entries *in)
{
    const char **name = mem_alloc((size_t)(in->n + 1) * sizeof *name);
    int64_t n = 0;
    for (int i = 0; i < in->n; i++)
        if (in->v[i].folder) name[n++] = in->v[i].name;
    classes_take(l, name, n);
    free(name);
}

/* folder: a class, or NULL: the whole data set */
static int no_picture(const struct image_list *l, const char *folder, struct err *e)
{
    const char *other = l->left.first[LEFT_OTHER];
    return err_set(e, E_DATA, "%s%s: has no picture (" PICTURE_NAMES ")%s%.1000s", folder ? l->root : l->path,
                   folder ? folder : "", other ? "; not read: " : "", other ? other : "");
}

static int folder_pictures(struct image_list *l, const entries *in, const char *classes_of, struct err *e)
{
    for (int i = 0; i < in->n; i++) {
        int before = l->image.n;
        int64_t class = in->v[i].folder ? class_find(l, in->v[i].name) : 0;
        if (!in->v[i].folder) {
            leftover_add(&l->left, LEFT_OUTSIDE, "%s%s", l->root, in->v[i].name);
            continue;
        }
        if (class < 0) return class_unknown(l, in->v[i].name, classes_of, e);
        if (class_read(l, in->v[i].name, class, e)) return -1;
        if (l->image.n == before && !classes_of) return no_picture(l, in->v[i].name, e);
    }
    return 0;
}

/* ---- lists ------------------------------------------------------------------------------------------------------- */

/* number: line number in the file, from 1 */
struct list_line { const char *s; size_t n; int number; };

static void blanks_drop(struct list_line *x)
{
    while (x->n && (x->s[x->n - 1] == ' ' || x->s[x->n - 1] == '\t')) x->n--;
    while (x->n && (*x->s == ' ' || *x->s == '\t')) x->s++, x->n--;
}

/* A comment begins with #, unless a picture's name begins with it. */
static bool comment(const struct list_line *x)
{
    size_t path = x->n;
    if (!x->n || *x->s != '#') return false;
    while (path && !picture_name(x->s, path)) path--;
    return !path || x->n == 1 || strchr(" \t#", x->s[1]);
}

/* The next remaining line that is neither empty nor a comment. Lines end with \n, \r\n or \r. */
static bool line_next(struct image_list *l, struct list_line *all, struct list_line *x)
{
    while (all->n) {
        const char *end = all->s + all->n, *stop = all->s;
        while (stop < end && *stop != '\n' && *stop != '\r') stop++;
        *x = (struct list_line){all->s, (size_t)(stop - all->s), ++all->number};
        if (stop < end) stop += 1 + (*stop == '\r' && stop + 1 < end && stop[1] == '\n');
        all->n = (size_t)(end - stop);
        all->s = stop;
        while (x->n && (x->s[x->n - 1] == ' ' || x->s[x->n - 1] == '\t')) x->n--;
        if (!comment(x) && x->n) return true;
        if (x->n) leftover_add(&l->left, LEFT_LINE, "line %d", x->number);
    }
    return false;
}

/* Removes a quoted word from the front, in which two quotes mean one; false: no end. */
static bool quoted_take(struct arena *mem, struct list_line *x, struct list_line *word)
{
    char *to = arena_alloc(mem, x->n);
    size_t n = 0, at = 1;
    for (; at < x->n; at++) {
        if (x->s[at] == '"' && (at + 1 == x->n || x->s[at + 1] != '"')) break;
        at += x->s[at] == '"';
        to[n++] = x->s[at];
    }
    if (at >= x->n) return false;
    *word = (struct list_line){to, n, x->number};
    *x = (struct list_line){x->s + at + 1, x->n - at - 1, x->number};
    return true;
}

/* Splits path and label at the first of these that exists: the last tab; the first comma or semicolon after a picture's
 * name; the last blank; the last comma or semicolon. *label is empty if the line has only a picture. */
static void columns_split(const struct list_line *x, struct list_line *path, struct list_line *label)
{
    const char *at = memrchr(x->s, '\t', x->n), *end = x->s + x->n, *last = NULL;
    *path = *x;
    *label = (struct list_line){end, 0, x->number};
    for (const char *s = x->s; !at && s < end; s++) {
        struct list_line before = {x->s, (size_t)(s - x->s), 0};
        if (*s != ',' && *s != ';') continue;
        last = s;
        blanks_drop(&before);
        if (picture_name(before.s, before.n)) at = s;
    }
    if (!at && picture_name(x->s, x->n)) return;
    if (!at) at = memrchr(x->s, ' ', x->n);
    if (!at) at = last;
    if (!at) return;
    *label = (struct list_line){at + 1, (size_t)(end - at - 1), x->number};
    path->n = (size_t)(at - x->s);
}

static int line_split(struct image_list *l, const struct list_line *x, struct list_line *path, struct list_line *label,
                      struct err *e)
{
    struct list_line rest = *x;
    bool sound = true;
    if (*x->s != '"') columns_split(x, path, label);
    else if ((sound = quoted_take(l->mem, &rest, path) && (!rest.n || strchr(",;\t ", *rest.s)))) {
        blanks_drop(&rest);
        const size_t mark = rest.n && strchr(",;", *rest.s) ? 1 : 0;
        *label = (struct list_line){rest.s + mark, rest.n - mark, x->number};
    }
    if (!sound) return err_set(e, E_DATA, "a quote without an end, or text after it");
    const bool table = label->s > x->s && strchr(",;", label->s[-1]);
    blanks_drop(path);
    blanks_drop(label);
    rest = *label;
    if (!label->n || *label->s != '"') {
        if (!table || (!memchr(label->s, ',', label->n) && !memchr(label->s, ';', label->n))) return 0;
        return err_set(e, E_DATA, "more than two columns: expected path and label");
    }
    if (quoted_take(l->mem, &rest, label) && !rest.n) return 0;
    return err_set(e, E_DATA, "a quote without an end, or text after it");
}

/* The whole number that a label is; -1: not one below 2^31. */
static int64_t number_of(const char *s)
{
    int64_t v = 0;
    for (const char *c = s; *c; c++) {
        if (*c < '0' || *c > '9' || v > INT32_MAX / 10) return -1;
        v = 10 * v + (*c - '0');
    }
    return *s && v <= INT32_MAX ? v : -1;
}

/* A whole number in any form, such as 1.0 or -1. */
static bool is_whole(const char *s)
{
    char *end;
    const double x = strtod(s, &end);
    return end > s && !*end && !s[strspn(s, "+-.0123456789eE")] && (fabs(x) > 1e15 || x == (double)(int64_t)x);
}

/* Refuses labels that are all whole numbers, but not all classes. As names they would be numbered in byte order, but
 * other readers take 1.0 for class 1, and -1 for none. */
static int numbers_check(const struct image_list *l, const char **label, struct err *e)
{
    int first = -1;
    for (int i = 0; i < l->image.n; i++) {
        if (!label[i]) continue;
        if (!is_whole(label[i])) return 0;
        if (first < 0 && number_of(label[i]) < 0) first = i;
    }
    if (first < 0) return 0;
    return err_set(e, E_DATA, "%s: label %.100s of %.1000s is a number, but not a class: write whole numbers from 0, "
                              "or names", l->path, label[first], name_at(l, l->image.v[first].name));
}

int image_list_number(struct image_list *l, const char **label, bool numbers, struct err *e)
{
    int64_t n = 0;
    if (numbers && numbers_check(l, label, e)) return -1;
    const char **name = mem_alloc(((size_t)l->image.n + 1) * sizeof *name);
    for (int i = 0; i < l->image.n; i++) {
        if (!label[i]) continue;
        numbers &= number_of(label[i]) >= 0;
        name[n++] = label[i];
    }
    if (!numbers) classes_take(l, name, n);
    for (int i = 0; i < l->image.n; i++) {
        struct image *m = &l->image.v[i];
        m->class = !label[i] ? -1 : numbers ? number_of(label[i]) : class_find(l, label[i]);
        if (numbers && m->class >= l->n_classes) l->n_classes = m->class + 1;
    }
    free(name);
    return 0;
}

int image_list_find(struct image_list *l, const char **label, const char *classes_of, struct err *e)
{
    for (int i = 0; i < l->image.n; i++) {
        if (!label[i]) continue;
        int64_t k = l->class_name ? class_find(l, label[i]) : number_of(label[i]);
        if (k < 0 || k >= l->n_classes) return class_unknown(l, label[i], classes_of, e);
        l->image.v[i].class = k;
    }
    return 0;
}

static int line_add(struct image_list *l, const struct list_line *x, bool labels, const char **label, struct err *e)
{
    struct list_line path, word;
    if (memchr(x->s, 0, x->n)) return err_set(e, E_DATA, "this is not text: it has a NUL byte");
    if (line_split(l, x, &path, &word, e)) return -1;
    if (!path.n) return err_set(e, E_DATA, "no path before the label");
    if (path.n > PATH_MOST) return err_set(e, E_DATA, "a path has more than %d bytes", PATH_MOST);
    if (!word.n && labels) return err_set(e, E_DATA, "no label after the path and a tab, blanks or a comma");
    if (picture_foreign(path.s, path.n)) leftover_add(&l->left, LEFT_FORMAT, "%.*s", (int)path.n, path.s);
    image_list_add(l, path.s, path.n, -1);
    *label = word.n ? arena_strndup(l->mem, word.s, word.n < PATH_MOST ? word.n : PATH_MOST) : NULL;
    return 0;
}

/* Drops a header: a first line whose path is a plain word, while all others name pictures. top: no comment precedes
 * it. */
static void header_drop(struct image_list *l, words *label, bool top)
{
    const char *first = l->image.n > 1 ? name_at(l, l->image.v[0].name) : "";
    if (!*first || strpbrk(first, "./")) return;
    for (int i = 1; i < l->image.n; i++) {
        const char *name = name_at(l, l->image.v[i].name);
        if (!picture_name(name, strlen(name))) return;
    }
    leftover_add(&l->left, LEFT_LINE, "%s", first);
    if (top && l->left.n[LEFT_LINE] > 1) {               /* later comments were counted before it */
        free(l->left.first[LEFT_LINE]);
        l->left.first[LEFT_LINE] = mem_strdup(first);
    }
    memmove(l->image.v, l->image.v + 1, (size_t)--l->image.n * sizeof *l->image.v);
    memmove(label->v, label->v + 1, (size_t)--label->n * sizeof *label->v);
}

static int lines_read(struct image_list *l, struct list_line all, bool labels, words *label, struct err *e)
{
    struct list_line x;
    bool top = false;
    while (line_next(l, &all, &x)) {
        if (!l->image.n) top = !l->left.n[LEFT_LINE];
        if (line_add(l, &x, labels, vec_push(label), e)) return err_where(e, "%s:%d", l->path, x.number);
    }
    header_drop(l, label, top);
    return l->image.n ? 0 : err_set(e, E_DATA, "%s: names no pictures", l->path);
}

void image_list_begin(struct image_list *l, const char *path, bool folder)
{
    const char *slash = strrchr(path, '/');
    size_t n = strlen(path), keep = folder ? n : slash ? (size_t)(slash - path) + 1 : 0;
    *l = (struct image_list){.mem = arena_new(), .folder = folder};
    l->path = arena_strdup(l->mem, path);
    l->root = arena_printf(l->mem, "%.*s%s", (int)keep, path, folder && n && path[n - 1] != '/' ? "/" : "");
}

int image_list_parse(const char *path, const char *s, size_t n, bool labels, struct image_list *l, struct err *e)
{
    words label = {0};
    image_list_begin(l, path, false);
    int bad = lines_read(l, (struct list_line){s, n, 0}, labels, &label, e);
    if (!bad) bad = image_list_number(l, label.v, true, e);
    vec_free(&label);
    return bad;
}

/* Does the first line name an archive? Then all must. */
static bool archives_listed(struct image_list *l, struct list_line all)
{
    struct list_line x;
    const bool listed = line_next(l, &all, &x) && image_shards_named(x.s, x.n);
    leftover_free(&l->left);                              /* the lines are read again */
    return listed;
}

static int archives_read(struct image_list *l, struct list_line all, words *shard, struct err *e)
{
    struct list_line x;
    while (line_next(l, &all, &x)) {
        if (!image_shards_named(x.s, x.n) || x.n > PATH_MOST || memchr(x.s, 0, x.n))
            return err_set(e, E_DATA, "%s:%d: not an archive, NAME.tar, unlike the first line", l->path, x.number);
        *vec_push(shard) = arena_printf(l->mem, "%s%.*s", *x.s == '/' ? "" : l->root, (int)x.n, x.s);
    }
    return 0;
}

static int list_file(struct image_list *l, bool labels, const char *classes_of, struct err *e)
{
    struct text t = {0};
    words label = {0}, shard = {0};
    int bad = text_read_file(&t, l->path, LIST_MOST, e);
    struct list_line all = {t.s, t.n, 0};
    if (!bad && archives_listed(l, all)) {
        bad = archives_read(l, all, &shard, e) || image_shards_read(l, &shard, labels, classes_of, e) ? -1 : 0;
    } else if (!bad) {
        bad = lines_read(l, all, labels, &label, e);
        if (!bad && classes_of) bad = image_list_find(l, label.v, classes_of, e);
        else if (!bad) bad = image_list_number(l, label.v, true, e);
    }
    vec_free(&label);
    vec_free(&shard);
    text_free(&t);
    return bad;
}

/* ---- both -------------------------------------------------------------------------------------------------------- */

enum what { FOLDER, LIST, ARCHIVES };

/* Archives need not exist under that name: it may be a pattern. */
static int what_is(const char *path, enum what *what, struct err *e)
{
    struct stat st;
    *what = ARCHIVES;
    if (image_shards_named(path, strlen(path))) return 0;
    if (stat(path, &st)) return file_missing(path, e);
    *what = S_ISDIR(st.st_mode) ? FOLDER : LIST;
    if (S_ISREG(st.st_mode) && picture_name(path, strlen(path)))
        return err_set(e, E_DATA, "%s: is one picture: name the folder that holds it, or a list of pictures", path);
    return S_ISDIR(st.st_mode) || S_ISREG(st.st_mode)
         ? 0 : err_set(e, E_DATA, "%s: neither a folder nor a list file", path);
}

/* Reads the classes of another folder, list or set of archives, without its pictures. */
static int classes_read(struct image_list *l, const char *of, struct err *e)
{
    struct image_list other;
    enum what what;
    entries in = {0};
    if (what_is(of, &what, e)) return -1;
    image_list_begin(&other, of, what == FOLDER);
    int bad = what == FOLDER ? folder_read(other.mem, of, &in, NULL, e)
            : what == LIST ? list_file(&other, true, NULL, e) : image_shards_pattern(&other, true, NULL, e);
    if (!bad && what == FOLDER) classes_of_folder(&other, &in);
    if (!bad && other.class_name) {
        l->class_name = arena_alloc(l->mem, (size_t)(other.n_classes + 1) * sizeof *l->class_name);
        for (int64_t i = 0; i < other.n_classes; i++) l->class_name[i] = arena_strdup(l->mem, other.class_name[i]);
    }
    l->n_classes = other.n_classes;
    vec_free(&in);
    image_list_free(&other);
    return bad ? -1 : 0;
}

void image_list_classes(struct image_list *l, const char *classes_of)
{
    struct err none = {0};
    int64_t n = l->n_classes;
    if (classes_read(l, classes_of, &none) || !l->class_name) l->n_classes = n;
}

static int folder_list(struct image_list *l, bool labels, const char *classes_of, struct err *e)
{
    struct arena *mem = arena_new();
    entries in = {0};
    bool folders = false;
    int bad = labels ? folder_read(mem, l->path, &in, &l->left, e) : class_read(l, "", -1, e);
    for (int i = 0; i < in.n; i++) folders |= in.v[i].folder;
    if (!bad && labels && !folders) bad = err_set(e, E_DATA, "%s: has no folders, which are the classes", l->path);
    if (!bad && labels && !classes_of) classes_of_folder(l, &in);
    if (!bad && labels) bad = folder_pictures(l, &in, classes_of, e);
    vec_free(&in);
    arena_free(mem);
    if (bad || l->image.n) return bad;
    return no_picture(l, NULL, e);
}

int image_list_read(const char *path, bool labels, const char *classes_of, struct image_list *l, struct err *e)
{
    enum what what;
    *l = (struct image_list){0};
    if (what_is(path, &what, e)) return -1;
    image_list_begin(l, path, what == FOLDER);
    if (labels && classes_of && classes_read(l, classes_of, e)) return -1;
    if (!labels) classes_of = NULL;
    if (what == ARCHIVES) return image_shards_pattern(l, labels, classes_of, e);
    return what == FOLDER ? folder_list(l, labels, classes_of, e) : list_file(l, labels, classes_of, e);
}

int image_list_check(const struct image_list *l, bool skips, struct err *e)
{
    struct text path = {0}, gone = {0}, empty = {0};
    int n_gone = 0, n_empty = 0;
    for (int i = 0; i < l->image.n && !l->shard.n && !l->raw_width; i++) {
        struct stat st;
        image_list_path(l, (uint64_t)i, &path);
        bool there = !stat(path.s, &st);
        if (!there && !n_gone++) text_add(&gone, "%s", path.s);
        if (there && !st.st_size && !n_empty++) text_add(&empty, "%s", path.s);
    }
    int bad = 0;
    if (n_gone) bad = err_set(e, E_NOINPUT, "%s: names %d file%s that %s not there; the first: %s", l->path, n_gone,
                              n_gone == 1 ? "" : "s", n_gone == 1 ? "is" : "are", gone.s);
    else if (n_empty && !skips)
        bad = err_set(e, E_DATA, "%s: %d picture%s empty; data.damaged = \"skip\" skips such; the first: %s",
                      l->path, n_empty, n_empty == 1 ? " is" : "s are", empty.s);
    text_free(&path);
    text_free(&gone);
    text_free(&empty);
    return bad;
}
