/* Pictures in tar archives in WebDataset's layout. Members with the same path up to the first dot of their name, the
 * key, form a sample: a picture, KEY.jpg or another picture name, and a label, KEY.cls. They are adjacent. A label
 * elsewhere in the archive belongs to the only picture of its key. Without any labels, folders are labels, as in
 * ImageFolder: the first folder towards the picture from the innermost folder that contains all pictures. */
#include <glob.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include "base/file.h"
#include "data/image_list_int.h"
#include "data/picture.h"
#include "data/tar.h"

enum { SHARDS_MOST = 100000, LABEL_MOST = 64 };

bool image_shards_named(const char *path, size_t n) { return n > 4 && !memcmp(path + n - 4, ".tar", 4); }

/* ---- names of archives ------------------------------------------------------------------------------------------- */

struct shards { struct arena *mem; words name; const char *of; };

static int many(const struct shards *s, struct err *e)
{
    return err_set(e, E_DATA, "%s: names more than %d archives", s->of, SHARDS_MOST);
}

static int shard_add(struct shards *s, const char *name, struct err *e)
{
    if (s->name.n == SHARDS_MOST) return many(s, e);
    *vec_push(&s->name) = arena_strdup(s->mem, name);
    return 0;
}

/* Adds a name without braces, or the matches of *, ? and []. */
static int glob_add(struct shards *s, const char *name, struct err *e)
{
    glob_t g = {0};
    int bad = 0;
    if (!strpbrk(name, "*?[")) return shard_add(s, name, e);
    int code = glob(name, GLOB_NOSORT | GLOB_ERR, NULL, &g);
    if (code == GLOB_NOMATCH) bad = err_set(e, E_NOINPUT, "%s: there is no such archive", name);
    else if (code) bad = err_set(e, E_IO, "%s: the folder cannot be read", name);
    int from = s->name.n;
    for (size_t i = 0; i < g.gl_pathc && !bad; i++) bad = shard_add(s, g.gl_pathv[i], e);
    if (s->name.n > from) qsort(s->name.v + from, (size_t)(s->name.n - from), sizeof *s->name.v, image_list_order);
    globfree(&g);
    return bad;
}

static int braces_add(struct shards *s, const char *name, struct err *e);

static int between_add(struct shards *s, const char *before, int n, const char *middle, const char *behind,
                       struct err *e)
{
    return braces_add(s, arena_printf(s->mem, "%.*s%s%s", n, before, middle, behind), e);
}

/* {000..127}: numbers as wide as the first, descending if the second is less. */
static int range_add(struct shards *s, const char *name, int open, const char *close, struct err *e)
{
    unsigned long a, b;
    int width = 0, all = 0;
    char digits[24];
    if (sscanf(name + open + 1, "%lu%n..%lu%n", &a, &width, &b, &all) != 2 || name + open + 1 + all != close ||
        width > 18 || all > 40 || strspn(name + open + 1, "0123456789.") != (size_t)all)
        return err_set(e, E_DATA, "%s: braces hold words, {a,b}, or numbers, {000..127}", s->of);
    if ((a < b ? b - a : a - b) >= SHARDS_MOST) return many(s, e);
    for (unsigned long i = a;; i += a < b ? 1 : -1UL) {
        snprintf(digits, sizeof digits, "%0*lu", width, i);
        if (between_add(s, name, open, digits, close + 1, e)) return -1;
        if (i == b) return 0;
    }
}

static int braces_add(struct shards *s, const char *name, struct err *e)
{
    const char *open = strchr(name, '{'), *close = open ? strchr(open, '}') : NULL, *nested;
    if (!open) return glob_add(s, name, e);
    nested = strchr(open + 1, '{');
    if (!close || (nested && nested < close)) return err_set(e, E_DATA, "%s: a brace is not closed", s->of);
    int at = (int)(open - name);
    if (!memchr(open, ',', (size_t)(close - open))) return range_add(s, name, at, close, e);
    for (const char *word = open + 1, *end; word <= close; word = end + 1) {
        end = word + strcspn(word, ",}");
        if (between_add(s, name, at, arena_printf(s->mem, "%.*s", (int)(end - word), word), close + 1, e)) return -1;
    }
    return 0;
}

/* ---- their contents ---------------------------------------------------------------------------------------------- */

struct apart { const char *key, *class, *member; bool used; };

struct reading {
    struct image_list *l;
    struct arena *mem;                                   /* holds labels */
    const char *path;                                    /* of the current archive */
    int shard;
    bool labels;
    words label;                                         /* per picture; NULL: none */
    int n_labelled;
    int first;                                           /* first picture of the archive */
    VEC(struct apart) apart;                             /* labels of the archive that are not adjacent to a picture */
    /* the current sample: its key, whether it has a picture, its label and the label's member */
    struct text key;
    bool begun, picture;
    const char *class, *class_member;
};

/* Length of the path up to the first dot of the name; the rest is the type. */
static size_t key_of(const char *name)
{
    const char *slash = strrchr(name, '/'), *base = slash ? slash + 1 : name;
    return (size_t)(base - name) + strcspn(base, ".");
}

static void group_end(struct reading *r)
{
    if (r->picture && r->class) {
        r->label.v[r->label.n - 1] = r->class;
        r->n_labelled++;
    } else if (r->class)
        *vec_push(&r->apart) = (struct apart){arena_strndup(r->mem, r->key.s, r->key.n), r->class, r->class_member,
                                              false};
    r->begun = r->picture = false;
    r->class = NULL;
}

static void group_begin(struct reading *r, const char *name, size_t n)
{
    if (r->begun && r->key.n == n && !memcmp(r->key.s, name, n)) return;
    group_end(r);
    r->key.n = 0;
    text_add_bytes(&r->key, name, n);
    r->begun = true;
}

static int class_read(struct reading *r, const struct tar_member *m, struct err *e)
{
    char s[LABEL_MOST + 1] = "";
    if (r->class) return err_set(e, E_DATA, "%s: %s: a second label of that name", r->path, m->name);
    if (m->size > LABEL_MOST) return err_set(e, E_DATA, "%s: %s: a label has more than %d bytes", r->path, m->name,
                                             LABEL_MOST);
    if (file_read_at(m->fd, r->path, m->at, s, (size_t)m->size, e)) return -1;
    char *begin = s + (strncmp(s, "\xef\xbb\xbf", 3) ? 0 : 3), *end = s + strlen(s);
    begin += strspn(begin, " \t\r\n");
    while (end > begin && strchr(" \t\r\n", end[-1])) end--;
    if (end == begin || strlen(s) != m->size) return err_set(e, E_DATA, "%s: %s: no label", r->path, m->name);
    r->class = arena_strndup(r->mem, begin, (size_t)(end - begin));
    r->class_member = arena_strdup(r->mem, m->name);
    return 0;
}

static int picture_take(struct reading *r, const struct tar_member *m, struct err *e)
{
    if (r->picture) return err_set(e, E_DATA, "%s: %s: a second picture of that name", r->path, m->name);
    r->picture = true;
    image_list_add(r->l, m->name, strlen(m->name), -1);
    *vec_push(&r->l->place) = (struct image_place){r->shard, m->at, m->size};
    *vec_push(&r->label) = NULL;
    return 0;
}

/* Is it, or is it in, a file of an operating system or a hidden one? */
static bool passed_over(const char *name)
{
    for (const char *s = name; *s;) {
        const size_t n = strcspn(s, "/");
        const bool way = n <= 2 && !strncmp(s, "..", n);  /* this folder, the parent folder */
        if (leftover_system(s, n) || (*s == '.' && !way)) return true;
        s += n + (s[n] == '/');
    }
    return false;
}

static int member_take(void *ctx, const struct tar_member *m, struct err *e)
{
    struct reading *r = ctx;
    size_t n = key_of(m->name);
    const char *holds = m->name + n;
    const bool class = !strcasecmp(holds, ".cls");
    const bool named = picture_name(m->name, strlen(m->name)), picture = named && !strchr(holds + 1, '.');
    if (passed_over(m->name)) {
        if (named) leftover_add(&r->l->left, LEFT_SYSTEM, "%s: %s", r->path, m->name);
        return 0;
    }
    if (*holds) group_begin(r, m->name, n);
    if (m->link && (picture || (class && r->labels)))
        return err_set(e, E_DATA, "%s: %s: is a link; tar's --dereference --hard-dereference puts the file itself "
                       "there", r->path, m->name);
    if (picture) return picture_take(r, m, e);
    if (class) return r->labels ? class_read(r, m, e) : 0;
    leftover_add(&r->l->left, named ? LEFT_DOTS : LEFT_OTHER, "%s: %s", r->path, m->name);
    return 0;
}

static const char *name_of(const struct image_list *l, int i) { return l->names.s + l->image.v[i].name; }

static int apart_order(const void *a, const void *b)
{
    return strcmp(((const struct apart *)a)->key, ((const struct apart *)b)->key);
}

static int ambiguous(const struct reading *r, const char *name, const struct apart *a, struct err *e)
{
    return err_set(e, E_DATA, "%s: %s: is it the label of %s, or of another one of that name? Put each label after "
                              "its image", r->path, a->member, name);
}

/* Pairs labels elsewhere in the archive with their pictures. */
static int apart_pair(struct reading *r, struct err *e)
{
    const int n = r->apart.n;
    struct apart *a = r->apart.v, want = {0};
    if (n) qsort(a, (size_t)n, sizeof *a, apart_order);
    for (int i = 1; i < n; i++)
        if (!strcmp(a[i - 1].key, a[i].key))
            return err_set(e, E_DATA, "%s: %s: a second label of that name", r->path, a[i].member);
    for (int i = r->first; i < r->l->image.n && n; i++) {
        const char *name = name_of(r->l, i);
        want.key = arena_strndup(r->mem, name, key_of(name));
        struct apart *found = bsearch(&want, a, (size_t)n, sizeof *a, apart_order);
        if (!found) continue;
        if (found->used || r->label.v[i]) return ambiguous(r, name, found, e);
        found->used = true;
        leftover_add(&r->l->left, LEFT_APART, "%s: %s", r->path, found->member);
        r->label.v[i] = found->class;
        r->n_labelled++;
    }
    for (int i = 0; i < n; i++)
        if (!a[i].used) leftover_add(&r->l->left, LEFT_LABEL, "%s: %s", r->path, a[i].member);
    r->apart.n = 0;
    r->first = r->l->image.n;
    return 0;
}

/* Length up to and including the last slash. */
static size_t folder_bytes(const char *path)
{
    const char *slash = strrchr(path, '/');
    return slash ? (size_t)(slash + 1 - path) : 0;
}

/* Like a tree of folders: length of the innermost folder that contains all pictures. */
static size_t root_of(const struct image_list *l)
{
    const char *first = name_of(l, 0);
    size_t root = folder_bytes(first);
    for (int i = 1; i < l->image.n; i++) {
        const char *path = name_of(l, i);
        size_t same = 0;
        while (same < root && path[same] == first[same]) same++;
        while (same && first[same - 1] != '/') same--;
        root = same;
    }
    return root;
}

/* Are there folders below the root? If not, the root is the only class. */
static bool nested(const struct image_list *l, size_t root)
{
    for (int i = 0; i < l->image.n; i++) if (strchr(name_of(l, i) + root, '/')) return true;
    return false;
}

/* The first folder below the root; NULL: none. */
static const char *folder_of(const struct reading *r, int i, size_t root, bool is_nested)
{
    const char *path = name_of(r->l, i), *begin = path + root, *end = strchr(begin, '/');
    if (!end && !is_nested && root) {
        end = path + root - 1;
        for (begin = end; begin > path && begin[-1] != '/'; begin--) continue;
    }
    return end && end > begin ? arena_strndup(r->mem, begin, (size_t)(end - begin)) : NULL;
}

/* Checks for labels, or else folders, of all pictures. */
static int labels_complete(struct reading *r, struct err *e)
{
    const size_t root = root_of(r->l);
    const bool is_nested = nested(r->l, root);
    if (!r->n_labelled && r->l->left.n[LEFT_LABEL])
        return err_set(e, E_DATA, "%s: no image of that name in its archive, and no other image has a label, NAME.cls",
                       r->l->left.first[LEFT_LABEL]);
    for (int i = 0; i < r->label.n; i++) {
        const char *shard = r->l->shard.v[r->l->place.v[i].shard];
        if (r->label.v[i]) continue;
        if (r->n_labelled)
            return err_set(e, E_DATA, "%s: %s: has no label NAME.cls, but others have", shard, name_of(r->l, i));
        r->label.v[i] = folder_of(r, i, root, is_nested);
        if (!r->label.v[i])
            return err_set(e, E_DATA, "%s: %s: has neither a label NAME.cls nor a folder%s", shard,
                           name_of(r->l, i), root ? " of its class below that of all" : "");
    }
    return 0;
}

static int shards_empty(const struct image_list *l, struct err *e)
{
    const char *const *first = (const char *const *)l->left.first;
    const char *other = first[first[LEFT_DOTS] ? LEFT_DOTS : first[LEFT_SYSTEM] ? LEFT_SYSTEM : LEFT_OTHER];
    return err_set(e, E_DATA, "%s: has no picture (" PICTURE_NAMES ")%s%.1000s", l->path, other ? "; not read: " : "",
                   other ? other : "");
}

int image_shards_read(struct image_list *l, const words *shard, bool labels, const char *classes_of, struct err *e)
{
    struct reading r = {.l = l, .mem = arena_new(), .labels = labels};
    int bad = 0;
    for (int i = 0; i < shard->n && !bad; i++) {
        r.path = *vec_push(&l->shard) = arena_strdup(l->mem, shard->v[i]);
        r.shard = i;
        bad = tar_read(r.path, member_take, &r, e);
        group_end(&r);
        if (!bad) bad = apart_pair(&r, e);
    }
    if (!bad && !l->image.n) bad = shards_empty(l, e);
    if (!bad && labels) bad = labels_complete(&r, e);
    if (!bad && labels && classes_of) bad = image_list_find(l, r.label.v, classes_of, e);
    else if (!bad && labels) bad = image_list_number(l, r.label.v, r.n_labelled > 0, e);
    vec_free(&r.label);
    vec_free(&r.apart);
    text_free(&r.key);
    arena_free(r.mem);
    return bad ? -1 : 0;
}

int image_shards_pattern(struct image_list *l, bool labels, const char *classes_of, struct err *e)
{
    struct shards s = {.mem = arena_new(), .of = l->path};
    int bad = braces_add(&s, l->path, e) || image_shards_read(l, &s.name, labels, classes_of, e);
    vec_free(&s.name);
    arena_free(s.mem);
    return bad ? -1 : 0;
}
