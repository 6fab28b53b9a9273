/* safetensors: 8 bytes little-endian header length, JSON header, tensors. The reader believes nothing: every size is checked against the file's own. */
#include <errno.h>
#include <fcntl.h>
#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>
#include "ckpt/st.h"

enum { HEADER_MAX = 100000000 };

static int bad_file(struct err *e, const char *path, uint64_t offset, const char *what)
{
    return err_set(e, E_DATA, "%s: offset %llu: %s", path, (unsigned long long)offset, what);
}

/* ---- reading -------------------------------------------------------------------------------------------------------------------- */

static int read_at(int fd, const char *path, void *p, size_t n, uint64_t at, struct err *e)
{
    for (size_t done = 0; done < n;) {
        ssize_t k = pread(fd, (char *)p + done, n - done, (off_t)(at + done));
        if (k < 0 && errno == EINTR) continue;
        if (k < 0) return err_set(e, E_IO, "%s: %s", path, strerror(errno));
        if (k == 0) return bad_file(e, path, at + done, "the file ends here");
        done += (size_t)k;
    }
    return 0;
}

static size_t type_bytes(const char *t)
{
    static const struct { const char *name; size_t bytes; } all[] = {{"F64", 8}, {"F32", 4}, {"F16", 2}, {"BF16", 2}, {"I64", 8}, {"I32", 4},
                                                                    {"I16", 2}, {"I8", 1}, {"U8", 1}, {"BOOL", 1}};
    for (size_t i = 0; i < sizeof all / sizeof *all; i++) if (!strcmp(all[i].name, t)) return all[i].bytes;
    return 0;
}

static int tensor_fail(struct st *s, const char *name, const char *what, struct err *e)
{
    return err_set(e, E_DATA, "%s: offset 8: tensor \"%.200s\": %s", s->path, name, what);
}

static int tensor_parse(struct st *s, struct st_tensor *t, const char *name, json_t *v, uint64_t base, struct err *e)
{
    json_t *dtype = json_object_get(v, "dtype"), *shape = json_object_get(v, "shape"), *off = json_object_get(v, "data_offsets");
    if (!json_is_object(v) || json_object_size(v) != 3 || !json_is_string(dtype) || !json_is_array(shape) || !json_is_array(off) || json_array_size(off) != 2)
        return tensor_fail(s, name, "want dtype, shape and data_offsets", e);
    size_t bytes = type_bytes(json_string_value(dtype)), total = bytes;
    if (!bytes) return tensor_fail(s, name, "unsupported dtype", e);
    if (json_array_size(shape) > MAX_DIMS) return tensor_fail(s, name, "too many dimensions", e);
    snprintf(t->dtype, sizeof t->dtype, "%s", json_string_value(dtype));
    t->name = arena_strdup(s->mem, name);
    t->shape.n = (int)json_array_size(shape);
    for (int i = 0; i < t->shape.n; i++) {
        json_t *d = json_array_get(shape, (size_t)i);
        if (!json_is_integer(d) || json_integer_value(d) < 0) return tensor_fail(s, name, "a dimension is no whole number", e);
        t->shape.d[i] = json_integer_value(d);
        total = size_mul(total, (size_t)t->shape.d[i]);
    }
    json_t *a = json_array_get(off, 0), *b = json_array_get(off, 1);
    if (!json_is_integer(a) || !json_is_integer(b) || json_integer_value(a) < 0 || json_integer_value(b) < json_integer_value(a))
        return tensor_fail(s, name, "data_offsets are no range", e);
    t->begin = base + (uint64_t)json_integer_value(a);
    t->end = base + (uint64_t)json_integer_value(b);
    if (t->end > s->size || t->begin < base) return tensor_fail(s, name, "its data lies beyond the end of the file", e);
    return total == SIZE_MAX || t->end - t->begin != total ? tensor_fail(s, name, "shape and data_offsets disagree", e) : 0;
}

static int by_begin(const void *a, const void *b)
{
    const struct st_tensor *x = a, *y = b;
    return x->begin != y->begin ? (x->begin > y->begin) - (x->begin < y->begin) : (x->end > y->end) - (x->end < y->end);
}

/* Tensors must tile the data: holes and overlaps hide a second file. */
static int tiling_check(struct st *s, uint64_t base, struct err *e)
{
    uint64_t at = base;
    qsort(s->t, (size_t)s->n, sizeof *s->t, by_begin);
    for (int i = 0; i < s->n; at = s->t[i++].end)
        if (s->t[i].begin != at) return bad_file(e, s->path, at, s->t[i].begin > at ? "a hole between tensors" : "two tensors overlap");
    return at != s->size ? bad_file(e, s->path, at, "bytes after the last tensor") : 0;
}

static int metadata_check(struct st *s, json_t *v, struct err *e)
{
    const char *k;
    json_t *x;
    if (!json_is_object(v)) return bad_file(e, s->path, 8, "__metadata__ is no object");
    json_object_foreach(v, k, x) if (!json_is_string(x)) return bad_file(e, s->path, 8, "__metadata__ holds something that is no text");
    return 0;
}

static int header_parse(struct st *s, const char *h, size_t n, struct err *e)
{
    json_error_t je;
    json_t *all, *v;
    const char *k;
    int bad = 0;
    if (n < 2 || h[0] != '{') return bad_file(e, s->path, 8, "the header does not begin with {");
    if (memchr(h, 0, n)) return bad_file(e, s->path, 8, "the header has a NUL byte");
    while (n && h[n - 1] == ' ') n--;
    if (h[n - 1] != '}') return bad_file(e, s->path, 8 + n, "only spaces may follow the header");
    all = json_loadb(h, n, JSON_REJECT_DUPLICATES, &je);
    if (!all) return bad_file(e, s->path, 8 + (uint64_t)(je.position > 0 ? je.position : 0), je.text);
    s->t = arena_alloc(s->mem, (json_object_size(all) + 1) * sizeof *s->t);
    json_object_foreach(all, k, v) {
        if (!strcmp(k, "__metadata__")) bad = metadata_check(s, v, e);
        else bad = tensor_parse(s, &s->t[s->n++], k, v, 8 + (uint64_t)strlen(h), e);
        if (bad) break;
    }
    json_decref(all);
    return bad;
}

static int file_parse(struct st *s, struct err *e)
{
    unsigned char b[8];
    uint64_t n = 0;
    if (s->size < 8) return bad_file(e, s->path, s->size, "the file is shorter than a header");
    if (read_at(s->fd, s->path, b, 8, 0, e)) return -1;
    for (int i = 7; i >= 0; i--) n = n << 8 | b[i];
    if (n > HEADER_MAX) return bad_file(e, s->path, 0, "the header claims to be longer than 100 MB");
    if (n > s->size - 8) return bad_file(e, s->path, 0, "the header claims to be longer than the file");
    char *h = mem_alloc(n + 1);
    int bad = read_at(s->fd, s->path, h, n, 8, e);
    if (!bad && strlen(h) != n) bad = bad_file(e, s->path, 8 + strlen(h), "the header has a NUL byte");
    bad = bad || header_parse(s, h, n, e) || tiling_check(s, 8 + n, e);
    free(h);
    return bad;
}

struct st *st_open(const char *path, struct err *e)
{
    struct stat info;
    struct arena *mem = arena_new();
    struct st *s = arena_alloc(mem, sizeof *s);
    *s = (struct st){.path = arena_strdup(mem, path), .mem = mem, .fd = open(path, O_RDONLY | O_CLOEXEC)};
    if (s->fd < 0) err_set(e, errno == ENOENT || errno == ENOTDIR ? E_NOINPUT : errno == EACCES ? E_PERM : E_IO, "%s: %s", path, strerror(errno));
    else if (fstat(s->fd, &info) || !S_ISREG(info.st_mode)) err_set(e, E_DATA, "%s: is no regular file", path);
    else {
        s->size = (uint64_t)info.st_size;
        if (!file_parse(s, e)) return s;
    }
    st_close(s);
    return NULL;
}

int st_find(const struct st *s, const char *name)
{
    for (int i = 0; i < s->n; i++) if (!strcmp(s->t[i].name, name)) return i;
    return -1;
}

int st_read(struct st *s, int i, void *out, struct err *e) { return read_at(s->fd, s->path, out, (size_t)(s->t[i].end - s->t[i].begin), s->t[i].begin, e); }

void st_close(struct st *s)
{
    if (!s) return;
    if (s->fd >= 0) close(s->fd);
    arena_free(s->mem);
}

/* ---- folders: model.safetensors, or an index that says which shard holds which tensor --------------------------------------------------- */

static int shard_name_check(const char *index, const char *name, struct err *e)
{
    if (!name || !*name || strchr(name, '/') || !strcmp(name, "..")) return err_set(e, E_DATA, "%s: offset 0: shard name \"%.100s\" is not a plain file name", index, name ? name : "");
    return 0;
}

static int shards_agree(const char *index, json_t *map, struct st **f, int n, struct err *e)
{
    const char *k;
    json_t *v;
    json_object_foreach(map, k, v) {
        bool found = false;
        for (int i = 0; i < n && !found; i++) found = st_find(f[i], k) >= 0 && !strcmp(strrchr(f[i]->path, '/') + 1, json_string_value(v));
        if (!found) return err_set(e, E_DATA, "%s: offset 0: tensor \"%.200s\" is not in %.100s", index, k, json_string_value(v));
    }
    for (int i = 0; i < n; i++)
        for (int t = 0; t < f[i]->n; t++)
            if (!json_object_get(map, f[i]->t[t].name)) return err_set(e, E_DATA, "%s: offset 8: tensor \"%.200s\" is not in the index", f[i]->path, f[i]->t[t].name);
    return 0;
}

static int index_open(const char *dir, const char *index, json_t *all, struct st ***out, int *n, struct err *e)
{
    json_t *map = json_object_get(all, "weight_map"), *v, *seen;
    const char *k;
    int bad = 0;
    if (!json_is_object(map)) return err_set(e, E_DATA, "%s: offset 0: there is no weight_map", index);
    seen = json_object();
    *out = mem_alloc((json_object_size(map) + 1) * sizeof **out);
    json_object_foreach(map, k, v) {
        char path[4096];
        if (shard_name_check(index, json_string_value(v), e)) { bad = -1; break; }
        if (json_object_get(seen, json_string_value(v))) continue;
        json_object_set_new(seen, json_string_value(v), json_true());
        snprintf(path, sizeof path, "%s/%s", dir, json_string_value(v));
        if (!((*out)[*n] = st_open(path, e))) { bad = -1; break; }
        ++*n;
    }
    json_decref(seen);
    return bad || shards_agree(index, map, *out, *n, e) ? -1 : 0;
}

static int folder_open(const char *dir, struct st ***out, int *n, struct err *e)
{
    char path[4096];
    struct text t = {0};
    json_error_t je;
    snprintf(path, sizeof path, "%s/model.safetensors", dir);
    if (!access(path, F_OK)) {
        *out = mem_alloc(sizeof **out);
        return ((*out)[0] = st_open(path, e)) ? (*n = 1, 0) : -1;
    }
    snprintf(path, sizeof path, "%s/model.safetensors.index.json", dir);
    if (text_read_file(&t, path, HEADER_MAX, e)) { text_free(&t); return -1; }
    json_t *all = json_loadb(t.s, t.n, JSON_REJECT_DUPLICATES, &je);
    int bad = all ? index_open(dir, path, all, out, n, e) : err_set(e, E_DATA, "%s:%d: %s", path, je.line, je.text);
    json_decref(all);
    text_free(&t);
    return bad;
}

int st_open_all(const char *path, struct st ***out, int *n, struct err *e)
{
    struct stat info;
    int bad;
    *out = NULL;
    *n = 0;
    if (!stat(path, &info) && S_ISDIR(info.st_mode)) bad = folder_open(path, out, n, e);
    else {
        *out = mem_alloc(sizeof **out);
        bad = ((*out)[0] = st_open(path, e)) ? (*n = 1, 0) : -1;
    }
    if (!bad) return 0;
    for (int i = 0; i < *n; i++) st_close((*out)[i]);
    free(*out);
    *out = NULL;
    *n = 0;
    return -1;
}

/* ---- writing -------------------------------------------------------------------------------------------------------------------- */

struct order { const struct st_entry *e; int i; };

/* The reference writer's order: widest type first, then name. Among types of one width its enumeration decides: F64 after I64, F32 after I32 in this list. */
static int type_rank(enum dtype t) { return t == F64 ? 0 : t == I64 ? 1 : t == F32 ? 2 : 3; }

static int by_type_and_name(const void *a, const void *b)
{
    const struct order *x = a, *y = b;
    int d = type_rank(x->e->type) - type_rank(y->e->type);
    return d ? d : strcmp(x->e->name, y->e->name);
}

static size_t entry_bytes(const struct st_entry *t) { return (size_t)shape_count(&t->shape) * dtype_bytes(t->type); }

static void header_make(const struct order *o, int n, struct text *h)
{
    uint64_t at = 0;
    text_add(h, "{");
    for (int i = 0; i < n; i++) {
        json_t *name = json_string(o[i].e->name);
        char *quoted = json_dumps(name, JSON_ENCODE_ANY);
        text_add(h, "%s%s:{\"dtype\":\"%s\",\"shape\":[", i ? "," : "", quoted, dtype_name(o[i].e->type));
        for (int k = 0; k < o[i].e->shape.n; k++) text_add(h, "%s%lld", k ? "," : "", (long long)o[i].e->shape.d[k]);
        text_add(h, "],\"data_offsets\":[%llu,%llu]}", (unsigned long long)at, (unsigned long long)(at + entry_bytes(o[i].e)));
        at += entry_bytes(o[i].e);
        free(quoted);
        json_decref(name);
    }
    text_add(h, "}");
    while (h->n % 8) text_add(h, " ");
}

static int write_all(int fd, const char *path, const void *p, size_t n, struct err *e)
{
    for (size_t done = 0; done < n;) {
        ssize_t k = write(fd, (const char *)p + done, n - done);
        if (k < 0 && errno == EINTR) continue;
        if (k <= 0) return err_set(e, E_IO, "%s: %s", path, strerror(errno));
        done += (size_t)k;
    }
    return 0;
}

static int body_write(int fd, const char *path, const struct order *o, int n, int (*data)(void *, int, void *, struct err *), void *ctx, struct err *e)
{
    struct text h = {0};
    unsigned char b[8];
    size_t largest = 1;
    header_make(o, n, &h);
    for (int i = 0; i < 8; i++) b[i] = (unsigned char)((uint64_t)h.n >> (8 * i));
    int bad = write_all(fd, path, b, 8, e) || write_all(fd, path, h.s, h.n, e);
    text_free(&h);
    for (int i = 0; i < n; i++) if (entry_bytes(o[i].e) > largest) largest = entry_bytes(o[i].e);
    void *buf = mem_alloc(largest);
    for (int i = 0; i < n && !bad; i++) bad = data(ctx, o[i].i, buf, e) || write_all(fd, path, buf, entry_bytes(o[i].e), e);
    free(buf);
    return bad;
}

/* After the rename the folder is synced too, so that the name survives a power cut. */
static int folder_sync(const char *path, struct err *e)
{
    char dir[4096];
    snprintf(dir, sizeof dir, "%s", path);
    char *slash = strrchr(dir, '/');
    if (slash) *slash = 0;
    int fd = open(slash ? (*dir ? dir : "/") : ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC), bad = fd < 0 || fsync(fd);
    if (fd >= 0) close(fd);
    return bad ? err_set(e, E_IO, "%s: %s", path, strerror(errno)) : 0;
}

int st_write(const char *path, int n, const struct st_entry *entry, int (*data)(void *ctx, int i, void *buf, struct err *e), void *ctx, struct err *e)
{
    char tmp[4096];
    snprintf(tmp, sizeof tmp, "%s.tmp", path);
    struct order *o = mem_alloc((size_t)(n + 1) * sizeof *o);
    for (int i = 0; i < n; i++) o[i] = (struct order){&entry[i], i};
    qsort(o, (size_t)n, sizeof *o, by_type_and_name);
    int fd = open(tmp, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0666), bad = 0;
    if (fd < 0) bad = err_set(e, E_CANTCREAT, "%s: %s", tmp, strerror(errno));
    else {
        bad = body_write(fd, tmp, o, n, data, ctx, e);
        if (!bad && fsync(fd)) bad = err_set(e, E_IO, "%s: %s", tmp, strerror(errno));
        if (close(fd) && !bad) bad = err_set(e, E_IO, "%s: %s", tmp, strerror(errno));
        if (!bad && rename(tmp, path)) bad = err_set(e, E_CANTCREAT, "%s: %s", path, strerror(errno));
        if (bad) unlink(tmp);
        else bad = folder_sync(path, e);
    }
    free(o);
    return bad ? -1 : 0;
}
