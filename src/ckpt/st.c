/* safetensors: 8 bytes little-endian header length, JSON header, tensors. The reader trusts nothing: every size is
 * checked against the file's. */
#include <jansson.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>
#include "base/file.h"
#include "base/file_kind.h"
#include "ckpt/checkpoint.h"
#include "ckpt/st.h"
#include "ckpt/st_other.h"
#include "model/onnx/onnx.h"

enum { HEADER_MAX = 100000000 };

static int bad_file(struct err *e, const char *path, uint64_t offset, const char *what)
{
    return err_set(e, E_DATA, "%s: offset %llu: %s", path, (unsigned long long)offset, what);
}

/* ---- reading ----------------------------------------------------------------------------------------------------- */

static size_t type_bytes(const char *t)
{
    static const struct {
        const char *name;
        size_t bytes;
    } all[] = {{"F64", 8}, {"F32", 4}, {"F16", 2}, {"BF16", 2}, {"I64", 8},
               {"I32", 4}, {"I16", 2}, {"I8", 1},  {"U8", 1},   {"BOOL", 1}};
    for (size_t i = 0; i < sizeof all / sizeof *all; i++) if (!strcmp(all[i].name, t)) return all[i].bytes;
    return 0;
}

/* Messages are one line, so names must be, too. */
static bool printable(const char *name)
{
    for (; *name; name++) if ((unsigned char)*name < ' ' || *name == 127) return false;
    return true;
}

static int tensor_fail(struct st *s, const char *name, const char *what, struct err *e)
{
    return err_set(e, E_DATA, "%s: offset 8: tensor \"%.200s\": %s", s->path, name, what);
}

static int shape_parse(struct st *s, struct st_tensor *t, json_t *shape, struct err *e)
{
    if (json_array_size(shape) > MAX_DIMS) return tensor_fail(s, t->name, "too many dimensions", e);
    t->shape.n = (int)json_array_size(shape);
    for (int i = 0; i < t->shape.n; i++) {
        json_t *d = json_array_get(shape, (size_t)i);
        if (!json_is_integer(d) || json_integer_value(d) < 0)
            return tensor_fail(s, t->name, "a dimension is not a whole number", e);
        t->shape.d[i] = json_integer_value(d);
    }
    return 0;
}

/* The range of bytes must lie in the file and have exactly the size of type and shape. */
static int range_parse(struct st *s, struct st_tensor *t, json_t *range, uint64_t base, struct err *e)
{
    json_t *a = json_array_get(range, 0), *b = json_array_get(range, 1);
    if (json_array_size(range) != 2 || !json_is_integer(a) || !json_is_integer(b) || json_integer_value(a) < 0 ||
        json_integer_value(b) < json_integer_value(a))
        return tensor_fail(s, t->name, "data_offsets are not a range", e);
    if ((uint64_t)json_integer_value(b) > s->size - base)
        return tensor_fail(s, t->name, "its data is beyond the end of the file", e);
    t->begin = base + (uint64_t)json_integer_value(a);
    t->end = base + (uint64_t)json_integer_value(b);
    size_t need = type_bytes(t->dtype);
    for (int i = 0; i < t->shape.n; i++) need = size_mul(need, (size_t)t->shape.d[i]);
    return need == t->end - t->begin ? 0 : tensor_fail(s, t->name, "shape and data_offsets disagree", e);
}

static int tensor_parse(struct st *s, struct st_tensor *t, const char *name, json_t *v, uint64_t base, struct err *e)
{
    json_t *dtype = json_object_get(v, "dtype"), *shape = json_object_get(v, "shape"),
           *range = json_object_get(v, "data_offsets");
    if (!printable(name)) return bad_file(e, s->path, 8, "a tensor's name has control characters");
    t->name = arena_strdup(s->mem, name);
    if (!json_is_object(v) || json_object_size(v) != 3 || !json_is_string(dtype) || !json_is_array(shape) ||
        !json_is_array(range))
        return tensor_fail(s, name, "expected dtype, shape and data_offsets, and nothing else", e);
    if (!type_bytes(json_string_value(dtype))) return tensor_fail(s, name, "unsupported dtype", e);
    snprintf(t->dtype, sizeof t->dtype, "%s", json_string_value(dtype));
    return shape_parse(s, t, shape, e) || range_parse(s, t, range, base, e) ? -1 : 0;
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
        if (s->t[i].begin != at)
            return bad_file(e, s->path, at,
                            s->t[i].begin > at ? "unused bytes between tensors" : "two tensors overlap");
    return at != s->size ? bad_file(e, s->path, at, "bytes after the last tensor") : 0;
}

static int metadata_take(struct st *s, json_t *v, struct err *e)
{
    const char *k;
    json_t *x;
    if (!json_is_object(v)) return bad_file(e, s->path, 8, "__metadata__ is not an object");
    json_object_foreach (v, k, x)
        if (!json_is_string(x)) return bad_file(e, s->path, 8, "__metadata__ has a value that is not text");
    const char *base = json_string_value(json_object_get(v, ST_BASE));
    if (base && strlen(base) == 32 && strspn(base, "0123456789abcdef") == 32) s->base = arena_strdup(s->mem, base);
    return 0;
}

static int json_fail(const char *path, uint64_t base, const json_error_t *je, struct err *e)
{
    char what[JSON_ERROR_TEXT_LENGTH];
    snprintf(what, sizeof what, "%s", je->text);
    for (char *c = what; *c; c++) if ((unsigned char)*c < ' ' || (unsigned char)*c > 126) *c = '?';
    return err_set(e, E_DATA, "%s: offset %llu: line %d column %d: %s", path,
                   (unsigned long long)base + (je->position > 0 ? (unsigned)je->position : 0), je->line, je->column,
                   what);
}

static int header_parse(struct st *s, const char *h, size_t n, struct err *e)
{
    json_error_t je;
    json_t *v;
    const char *k;
    uint64_t base = 8 + n;
    int bad = 0;
    if (!n || h[0] != '{') return bad_file(e, s->path, 8, "the header does not begin with {");
    while (h[n - 1] == ' ') n--;
    if (h[n - 1] != '}') return bad_file(e, s->path, 8 + n - 1, "the header ends with neither } nor spaces");
    json_t *all = json_loadb(h, n, JSON_REJECT_DUPLICATES, &je);
    if (!all) return json_fail(s->path, 8, &je, e);
    s->t = arena_alloc(s->mem, size_mul(json_object_size(all) + 1, sizeof *s->t));
    json_object_foreach(all, k, v) {
        if (!strcmp(k, "__metadata__")) bad = metadata_take(s, v, e);
        else bad = tensor_parse(s, &s->t[s->n++], k, v, base, e);
        if (bad) break;
    }
    json_decref(all);
    return bad;
}

static int file_parse(struct st *s, struct err *e)
{
    uint64_t n;
    if (!s->size) return err_set(e, E_DATA, "%s: the file is empty", s->path);
    if (st_other_refuse(s, e)) return -1;
    if (s->size < 8) return bad_file(e, s->path, s->size, "the file ends here, before the length of its header");
    if (file_read_at(s->fd, s->path, 0, &n, 8, e)) return -1;
    if (n > HEADER_MAX)
        return bad_file(e, s->path, 0, "not a safetensors file: the header claims to be longer than 100 MB");
    if (n > s->size - 8)
        return bad_file(e, s->path, 0,
                        "not a safetensors file, or a truncated one: the header claims to be longer than the file");
    char *h = mem_alloc(n);
    int bad = file_read_at(s->fd, s->path, 8, h, n, e) || header_parse(s, h, n, e) || tiling_check(s, 8 + n, e);
    free(h);
    return bad ? -1 : 0;
}

struct st *st_open(const char *path, struct err *e)
{
    struct arena *mem = arena_new();
    struct st *s = arena_alloc(mem, sizeof *s);
    *s = (struct st){.path = arena_strdup(mem, path), .mem = mem};
    s->fd = file_open(path, &s->size, e);
    if (s->fd >= 0 && !file_parse(s, e)) return s;
    st_close(s);
    return NULL;
}

int st_find(const struct st *s, const char *name)
{
    for (int i = 0; i < s->n; i++) if (!strcmp(s->t[i].name, name)) return i;
    return -1;
}

int st_read(struct st *s, int i, void *out, struct err *e)
{
    return st_read_part(s, &s->t[i], 0, out, (size_t)(s->t[i].end - s->t[i].begin), e);
}

int st_read_part(const struct st *s, const struct st_tensor *t, uint64_t at, void *out, size_t n, struct err *e)
{
    if (!t->values) return file_read_at(s->fd, s->path, t->begin + at, out, n, e);
    memcpy(out, t->values + at, n);
    return 0;
}

void st_close(struct st *s)
{
    if (!s) return;
    if (s->fd >= 0) close(s->fd);
    if (s->onnx) onnx_weights_close(s->onnx);
    free(s->onnx);
    arena_free(s->mem);
}

/* ---- folders: model.safetensors, an index of shards and their tensors, or a run's weights
 * ------------------------- */

static int shard_name_check(const char *index, const char *name, struct err *e)
{
    if (!name) return bad_file(e, index, 0, "weight_map: a shard's name is not text");
    if (*name && strlen(name) <= NAME_MAX && !strchr(name, '/') && strcmp(name, "..") && strcmp(name, ".") &&
        printable(name)) return 0;
    return err_set(e, E_DATA, "%s: offset 0: shard name \"%.100s\" is not a plain file name", index,
                   printable(name) ? name : "?");
}

static const char *base_name(const char *path) { return strrchr(path, '/') + 1; }

/* The map must give every tensor of every shard that shard. Names are unique in both, so equal numbers mean that the
 * map has no others. */
static int shards_agree(const char *index, json_t *map, struct st **f, int n, struct err *e)
{
    const char *k;
    json_t *v;
    size_t found = 0;
    for (int i = 0; i < n; i++)
        for (int t = 0; t < f[i]->n; t++, found++) {
            const char *in = json_string_value(json_object_get(map, f[i]->t[t].name));
            if (in && !strcmp(in, base_name(f[i]->path))) continue;
            return err_set(e, E_DATA, "%s: offset 8: tensor \"%.200s\" is in this shard, but not in the index",
                           f[i]->path, f[i]->t[t].name);
        }
    if (found == json_object_size(map)) return 0;
    json_object_foreach(map, k, v) {
        bool has = false;
        for (int i = 0; i < n && !has; i++)
            has = !strcmp(base_name(f[i]->path), json_string_value(v)) && st_find(f[i], k) >= 0;
        if (!has)
            return err_set(e, E_DATA, "%s: offset 0: tensor \"%.200s\" is not in %.100s", index, printable(k) ? k : "?",
                           json_string_value(v));
    }
    return 0;
}

/* Opens each shard of the map once. *out has space for all. */
static int shards_open(const char *dir, const char *index, json_t *map, struct st **out, int *n, struct err *e)
{
    const char *k;
    json_t *v, *seen = json_object();
    int bad = 0;
    json_object_foreach(map, k, v) {
        const char *name = json_string_value(v);
        if ((bad = shard_name_check(index, name, e))) break;
        if (json_object_get(seen, name)) continue;
        json_object_set_new(seen, name, json_true());
        struct text path = {0};
        text_add(&path, "%s/%s", dir, name);
        out[*n] = st_open(path.s, e);
        text_free(&path);
        if (!out[*n]) { bad = -1; break; }
        ++*n;
    }
    json_decref(seen);
    return bad;
}

static int index_open(const char *dir, const char *index, struct st ***out, int *n, struct err *e)
{
    struct text t = {0};
    json_error_t je;
    if (text_read_file(&t, index, HEADER_MAX, e)) {
        text_free(&t);
        return -1;
    }
    json_t *all = json_loadb(t.s, t.n, JSON_REJECT_DUPLICATES, &je), *map = json_object_get(all, "weight_map");
    int bad = 0;
    if (!all) bad = json_fail(index, 0, &je, e);
    else if (!json_is_object(map) || !json_object_size(map))
        bad = bad_file(e, index, 0, "this is JSON text, but not an index of weights: there is no weight_map");
    if (!bad) {
        *out = mem_alloc(json_object_size(map) * sizeof **out);
        bad = shards_open(dir, index, map, *out, n, e) || shards_agree(index, map, *out, *n, e);
    }
    json_decref(all);
    text_free(&t);
    return bad ? -1 : 0;
}

/* A JSON file is an index, whatever its name. */
static bool is_index(const char *path)
{
    char head[64];
    uint64_t size;
    const struct file_kind *is = NULL;
    int fd = file_open(path, &size, NULL);
    if (fd < 0) return false;
    const size_t n = size < sizeof head ? size : sizeof head;
    if (!file_read_at(fd, path, 0, head, n, NULL)) is = file_kind(head, n);
    close(fd);
    return is && is->kind == FILE_KIND_JSON;
}

/* The shards are in the index file's folder. */
static int index_file_open(const char *index, struct st ***out, int *n, struct err *e)
{
    const char *slash = strrchr(index, '/');
    struct text dir = {0};
    text_add(&dir, "%.*s", slash ? (int)(slash - index) : 1, slash ? index : ".");
    int bad = index_open(dir.s, index, out, n, e);
    text_free(&dir);
    return bad;
}

static int one_open(const char *path, struct st ***out, int *n, struct err *e)
{
    if (is_index(path)) return index_file_open(path, out, n, e);
    if (onnx_is(path)) return st_onnx_open(path, out, n, e);
    *out = mem_alloc(sizeof **out);
    **out = st_open(path, e);
    *n = **out != NULL;
    return *n ? 0 : -1;
}

/* The newest checkpoint of a run directory. False: none. */
static bool checkpoint_newest(const char *run, struct text *folder)
{
    struct text shown = {0};
    struct err none = {0};
    char name[CKPT_NAME];
    uint64_t *step = NULL;
    int n = 0, dir = ckpt_folder_open(-1, run, &shown);
    if (dir >= 0 && ckpt_list(dir, shown.s, &step, &n, &none)) n = 0;
    if (n) text_add(folder, "%s/%s", shown.s, ckpt_name(step[0], name));
    if (dir >= 0) close(dir);
    free(step);
    text_free(&shown);
    return n > 0;
}

static int newest_open(const char *folder, struct st ***out, int *n, struct err *e)
{
    struct text index = {0};
    text_add(&index, "%s/model.safetensors.index.json", folder);
    int bad = index_open(folder, index.s, out, n, e);
    text_free(&index);
    return bad;
}

static int folder_open(const char *dir, struct st ***out, int *n, struct err *e)
{
    struct text one = {0}, index = {0}, run = {0}, old = {0}, newest = {0}, pickle = {0};
    int bad;
    text_add(&one, "%s/model.safetensors", dir);
    text_add(&index, "%s/model.safetensors.index.json", dir);
    text_add(&run, "%s/weights.safetensors", dir);
    text_add(&old, "%s.old", run.s);
    text_add(&pickle, "%s/pytorch_model.bin", dir);
    if (!access(one.s, F_OK)) bad = one_open(one.s, out, n, e);
    else if (!access(index.s, F_OK)) bad = index_open(dir, index.s, out, n, e);
    else if (!access(run.s, F_OK)) bad = one_open(run.s, out, n, e);
    else if (checkpoint_newest(dir, &newest)) bad = newest_open(newest.s, out, n, e);
    else if (!lstat(one.s, &(struct stat){0})) bad = file_missing(one.s, e);        /* a link to nothing */
    else bad = err_set(e, E_NOINPUT, "%s: holds none of model.safetensors, model.safetensors.index.json and "
                       "weights.safetensors%s%s", dir,
                       access(old.s, F_OK) ? "" : "; weights.safetensors.old is what an earlier run left",
                       access(pickle.s, F_OK) ? "" : "; save it anew with transformers instead of pytorch_model.bin");
    text_free(&pickle);
    text_free(&one);
    text_free(&index);
    text_free(&run);
    text_free(&old);
    text_free(&newest);
    return bad;
}

static void all_close(struct st ***file, int *n)
{
    while (*n) st_close((*file)[--*n]);
    free(*file);
    *file = NULL;
}

int ckpt_tensors_open(const char *folder, const struct ckpt *c, struct st ***out, int *n, struct err *e)
{
    struct err why = {0};
    *out = mem_alloc((size_t)c->n_files * sizeof **out + 1);
    *n = 0;
    for (int i = 0; i < c->n_files && !why.code; i++) {
        struct text path = {0};
        if (!text_ends(c->file[i].name, ".safetensors")) continue;
        text_add(&path, "%s/%s", folder, c->file[i].name);
        (*out)[*n] = st_open(path.s, &why);
        *n += (*out)[*n] != NULL;
        text_free(&path);
    }
    if (!why.code) return 0;
    all_close(out, n);
    return err_set(e, why.code == E_NOINPUT ? E_DATA : why.code, "%s", why.text);   /* its manifest names it */
}

int st_open_all(const char *path, struct st ***out, int *n, struct err *e)
{
    struct stat info;
    *out = NULL;
    *n = 0;
    bool folder = !stat(path, &info) && S_ISDIR(info.st_mode);
    if (!(folder ? folder_open(path, out, n, e) : one_open(path, out, n, e))) return 0;
    all_close(out, n);
    return -1;
}
