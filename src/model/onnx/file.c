#include <fcntl.h>
#include <stdlib.h>
#include <unistd.h>
#include "base/file.h"
#include "base/half.h"
#include "model/onnx/file.h"

enum { DATA_EXTERNAL = 1, MODEL_MOST = INT32_MAX };     /* protobuf's own limit */

bool onnx_is(const char *path) { return text_ends(path, ".onnx"); }

static int file_fail(const struct onnx_file *f, const char *name, const char *what, struct err *e)
{
    char shown[120];
    return err_set(e, E_DATA, "%s: tensor %s: %s", f->path, text_printable(name ? name : "", shown, sizeof shown),
                   what);
}

const char *onnx_name(const struct onnx_file *f, const char *name)
{
    char *out = arena_strdup(f->mem, name && *name ? name : "unnamed");
    for (char *c = out; *c; c++)
        if (!strchr("abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_.-", *c)) *c = '_';
    return out;
}

static size_t element(int type)
{
    switch (type) {
    case ONNX_F64: case ONNX_I64: return 8;
    case ONNX_F32: case ONNX_I32: return 4;
    case ONNX_F16: case ONNX_BF16: return 2;
    case ONNX_U8: case ONNX_I8: case ONNX_BOOL: return 1;
    default: return 0;
    }
}

static const char *float_name(int type)
{
    return type == ONNX_F32 ? "F32" : type == ONNX_F64 ? "F64" : type == ONNX_F16 ? "F16"
                                                                : type == ONNX_BF16 ? "BF16" : NULL;
}

bool onnx_floats(const Onnx__Tensor *t) { return float_name(t->data_type) != NULL; }

int64_t onnx_count(const Onnx__Tensor *t)
{
    int64_t n = 1;
    for (size_t i = 0; i < t->n_dims; i++) n *= t->dims[i];
    return n;
}

static int dims_check(const struct onnx_file *f, const Onnx__Tensor *t, struct err *e)
{
    int64_t n = 1;
    if (t->n_dims > MAX_DIMS) return file_fail(f, t->name, "more than 6 dimensions", e);
    for (size_t i = 0; i < t->n_dims; i++)
        if (t->dims[i] < 0 || __builtin_mul_overflow(n, t->dims[i], &n) || n > ELEMENTS_MOST)
            return file_fail(f, t->name, "dimensions that no tensor has", e);
    return 0;
}

static int read_whole(struct onnx_file *f, struct err *e)
{
    uint64_t size;
    const int fd = file_open(f->path, &size, e);
    if (fd < 0) return -1;
    int bad = size <= MODEL_MOST ? 0 : err_set(e, E_DATA, "%s: larger than 2 GiB, which no ONNX file can be", f->path);
    uint8_t *bytes = bad ? NULL : mem_alloc(size + 1);
    if (!bad) bad = file_read_at(fd, f->path, 0, bytes, size, e);
    if (!bad && !(f->model = onnx__model__unpack(NULL, size, bytes)))
        bad = err_set(e, E_DATA, "%s: this is no ONNX file, or a damaged one", f->path);
    free(bytes);
    close(fd);
    return bad ? -1 : 0;
}

struct onnx_file *onnx_file_open(const char *path, struct err *e)
{
    struct arena *mem = arena_new();
    struct onnx_file *f = arena_alloc(mem, sizeof *f);
    *f = (struct onnx_file){.path = arena_strdup(mem, path), .mem = mem};
    int bad = read_whole(f, e);
    if (!bad && (!f->model->graph || !f->model->graph->n_node))
        bad = err_set(e, E_DATA, "%s: this is no ONNX file, or one without a graph", path);
    for (size_t i = 0; !bad && i < f->model->graph->n_initializer; i++)
        bad = dims_check(f, f->model->graph->initializer[i], e);
    if (!bad) return f;
    onnx_file_close(f);
    return NULL;
}

void onnx_file_close(struct onnx_file *f)
{
    if (!f) return;
    if (f->model) onnx__model__free_unpacked(f->model, NULL);
    arena_free(f->mem);
}

/* ---- values ------------------------------------------------------------------------------------------------------ */

/* The file of external data lies in the folder of the ONNX file or below it. */
static int external(const struct onnx_file *f, const Onnx__Tensor *t, struct onnx_weight *w, struct err *e)
{
    const char *name = NULL, *slash = strrchr(f->path, '/');
    for (size_t i = 0; i < t->n_external_data; i++) {
        const Onnx__Entry *x = t->external_data[i];
        char *end = NULL;
        if (!x->key || !x->value) continue;
        if (!strcmp(x->key, "location")) name = x->value;
        const bool offset = !strcmp(x->key, "offset");
        if (!offset && strcmp(x->key, "length")) continue;
        const unsigned long long n = strtoull(x->value, &end, 10);
        if (!*x->value || *end) return file_fail(f, t->name, "its place in the file of external data is no number", e);
        if (offset) w->at = n;
        else if (n != w->bytes) return file_fail(f, t->name, "external data of another size", e);
    }
    if (!name || !*name || *name == '/' || strstr(name, ".."))
        return file_fail(f, t->name, "external data in no file, or in one elsewhere", e);
    w->in = slash ? arena_printf(f->mem, "%.*s/%s", (int)(slash - f->path), f->path, name) : name;
    return 0;
}

int onnx_place(const struct onnx_file *f, const Onnx__Tensor *t, struct onnx_weight *w, struct err *e)
{
    if (dims_check(f, t, e)) return -1;
    const int64_t n = onnx_count(t);
    if (!element(t->data_type)) return file_fail(f, t->name, "elements of a type that is not read", e);
    *w = (struct onnx_weight){.name = onnx_name(f, t->name), .type = float_name(t->data_type),
                              .shape = {.n = (int)t->n_dims}, .bytes = (uint64_t)n * element(t->data_type)};
    for (size_t i = 0; i < t->n_dims; i++) w->shape.d[i] = t->dims[i];
    if (t->data_location == DATA_EXTERNAL) return external(f, t, w, e);
    size_t bytes = t->raw_data.len;
    w->values = t->raw_data.data;
    if (!t->has_raw_data && t->data_type == ONNX_F32) w->values = t->float_data, bytes = 4 * t->n_float_data;
    if (!t->has_raw_data && t->data_type == ONNX_F64) w->values = t->double_data, bytes = 8 * t->n_double_data;
    if (!t->has_raw_data && t->data_type == ONNX_I64) w->values = t->int64_data, bytes = 8 * t->n_int64_data;
    if (!t->has_raw_data && t->data_type == ONNX_I32) w->values = t->int32_data, bytes = 4 * t->n_int32_data;
    if (!t->has_raw_data && element(t->data_type) && element(t->data_type) < 4) {   /* one number for each */
        bytes = t->n_int32_data * element(t->data_type);
        char *narrow = arena_alloc(f->mem, bytes + 1);
        for (size_t i = 0; i < t->n_int32_data; i++)
            memcpy(narrow + i * element(t->data_type), &t->int32_data[i], element(t->data_type));
        w->values = narrow;
    }
    if (bytes != w->bytes) return file_fail(f, t->name, "other values than its dimensions ask for", e);
    if (!w->values) w->values = "";                      /* of no elements */
    return 0;
}

static double element_value(int type, const char *at)
{
    union { float f; double d; int32_t i; int64_t l; uint16_t h; uint8_t u; int8_t s; } x;
    memcpy(&x, at, element(type));
    switch (type) {
    case ONNX_F32: return (double)x.f;
    case ONNX_F64: return x.d;
    case ONNX_I32: return x.i;
    case ONNX_I64: return (double)x.l;
    case ONNX_F16: return (double)f16_widen(x.h);
    case ONNX_BF16: return (double)bf16_widen(x.h);
    case ONNX_I8: return x.s;
    default: return x.u;
    }
}

/* A tensor's bytes. *read: memory to free, of a file beside it. NULL: the error is set. */
static const char *bytes_of(const struct onnx_file *f, const Onnx__Tensor *t, struct onnx_weight *w, char **read,
                            struct err *e)
{
    uint64_t size;
    *read = NULL;
    if (onnx_place(f, t, w, e)) return NULL;
    if (!w->in) return w->values;
    const int fd = file_open(w->in, &size, e);
    if (fd < 0) return NULL;
    *read = mem_alloc(w->bytes + 1);
    const int bad = file_read_at(fd, w->in, w->at, *read, w->bytes, e);
    close(fd);
    if (!bad) return *read;
    free(*read);
    *read = NULL;
    return NULL;
}

int onnx_values(const struct onnx_file *f, const Onnx__Tensor *t, double *out, struct err *e)
{
    struct onnx_weight w;
    char *read;
    const char *bytes = bytes_of(f, t, &w, &read, e);
    if (!bytes) return -1;
    for (int64_t i = 0, n = onnx_count(t); i < n; i++)
        out[i] = element_value(t->data_type, bytes + (size_t)i * element(t->data_type));
    free(read);
    return 0;
}

bool onnx_is_plain(const struct onnx_file *f, const Onnx__Tensor *t)
{
    struct onnx_weight w;
    struct err none = {0};
    char *read;
    int64_t longest = 1;
    for (size_t i = 0; i < t->n_dims; i++) if (t->dims[i] > longest) longest = t->dims[i];
    if (!t->n_dims || longest != onnx_count(t) || !onnx_floats(t)) return false;
    const char *bytes = bytes_of(f, t, &w, &read, &none);
    if (!bytes) return false;
    const size_t each = element(t->data_type);
    const double first = element_value(t->data_type, bytes);
    const bool plain = longest > 1 ? !memcmp(bytes, bytes + each, w.bytes - each) : first == 0 || first == 1;
    free(read);
    return plain;
}

/* ---- all weights ------------------------------------------------------------------------------------------------- */

int onnx_weights_open(const char *path, struct onnx_weights *w, struct err *e)
{
    *w = (struct onnx_weights){.file = onnx_file_open(path, e)};
    if (!w->file) return -1;
    const Onnx__Graph *g = w->file->model->graph;
    w->of = arena_alloc(w->file->mem, (g->n_initializer + g->n_node) * sizeof *w->of + 1);
    for (size_t i = 0; i < g->n_initializer; i++) {
        const Onnx__Tensor *t = g->initializer[i];
        if (!onnx_floats(t) || !t->n_dims) continue;
        if (onnx_place(w->file, t, &w->of[w->n++], e)) goto bad;
    }
    for (size_t i = 0; i < g->n_node; i++) {             /* and of nodes Constant, under the names of their values */
        const Onnx__Node *x = g->node[i];
        const bool is = x->op_type && !strcmp(x->op_type, "Constant") && x->n_attribute;
        const Onnx__Attribute *a = is ? x->attribute[0] : NULL;
        if (!a || !a->t || !a->name || strcmp(a->name, "value") || !x->n_output || !onnx_floats(a->t) ||
            !a->t->n_dims) continue;
        if (onnx_place(w->file, a->t, &w->of[w->n], e)) goto bad;
        w->of[w->n++].name = onnx_name(w->file, x->output[0]);
    }
    return 0;
bad:
    onnx_weights_close(w);
    return -1;
}

void onnx_weights_close(struct onnx_weights *w)
{
    onnx_file_close(w->file);
    *w = (struct onnx_weights){0};
}
