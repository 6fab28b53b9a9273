/* A pair of NumPy files. Images: <f4, <f8 or |u1, samples first. Numbers are taken as stored, bytes as pixels: x / 255,
 * as IDX has them. data.mean and data.std apply only if set, and the first dimension of a sample is its channels.
 * Labels: <i8, <i4 or |u1 classes, or <f4 targets as the model's. Images and targets are read when they are needed;
 * classes are read and checked when the file is opened. */
#include <stdlib.h>
#include <string.h>
#include "data/ds_int.h"
#include "data/npy.h"

struct pair {
    struct ds ds;
    struct arena *mem;
    struct ds_pair want;
    struct npy images, labels;
    struct ds_norm norm;
    uint64_t count;
    int64_t classes, *label;                             /* label: NULL for targets */
};

static void pair_close(struct ds *ds)
{
    struct pair *d = (struct pair *)ds;
    npy_close(&d->images);
    npy_close(&d->labels);
    free(d->label);
    arena_free(d->mem);
}

/* ---- opening ----------------------------------------------------------------------------------------------------- */

static struct shape sample_shape(const struct npy *f)
{
    struct shape s = {.n = f->shape.n ? f->shape.n - 1 : 0};
    for (int i = 0; i < s.n; i++) s.d[i] = f->shape.d[i + 1];
    return s;
}

static int images_open(struct pair *d, const struct conf *c, const char *path, struct err *e)
{
    char have[96], want[96];
    if (npy_open(path, &d->images, e)) return -1;
    const struct npy *f = &d->images;
    struct shape s = sample_shape(f);
    if (!f->shape.n || !f->shape.d[0])
        return err_set(e, E_DATA, "%s: offset 10: shape %s: no samples", path, shape_text(&f->shape, have));
    if (f->type == NPY_I4 || f->type == NPY_I8)
        return err_set(e, E_DATA, "%s: offset 10: images of type %s, expected <f4, <f8 or |u1", path,
                       npy_type_name(f->type));
    if (!shape_equal(&s, &d->want.input))
        return err_set(e, E_DATA, "%s: offset 10: samples of %s, the model takes %s", path, shape_text(&s, have),
                       shape_text(&d->want.input, want));
    return ds_norm(c, s.n > 1 ? s.d[0] : 1, d->mem, &d->norm, e);
}

/* Classes arrive in the front of the array as they are stored; they are widened in place, from the last to the first.
 */
static void labels_widen(enum npy_type t, int64_t *label, uint64_t n)
{
    const char *stored = (const char *)label;
    for (uint64_t i = n; i-- > 0 && t != NPY_I8;) {
        int32_t v;
        if (t == NPY_I4) memcpy(&v, stored + i * sizeof v, sizeof v);
        else v = (uint8_t)stored[i];
        label[i] = v;
    }
}

static int classes_load(struct pair *d, struct err *e)
{
    const struct npy *f = &d->labels;
    uint64_t n = (uint64_t)f->shape.d[0];
    if (ds_classes(f->path, &d->want, &d->classes, e)) return -1;
    d->label = mem_alloc(size_mul(n, sizeof *d->label));
    if (npy_read(f, 0, n, d->label, e)) return -1;
    labels_widen(f->type, d->label, n);
    for (uint64_t i = 0; i < n; i++)
        if (d->label[i] < 0 || d->label[i] >= d->classes)
            return err_set(e, E_DATA, "%s: offset %llu: label %lld, but there are %lld classes", f->path,
                           (unsigned long long)(f->begin + i * npy_type_bytes(f->type)), (long long)d->label[i],
                           (long long)d->classes);
    return 0;
}

static int labels_open(struct pair *d, const char *path, struct err *e)
{
    char have[96], want[96];
    if (npy_open(path, &d->labels, e)) return -1;
    const struct npy *f = &d->labels;
    struct shape s = sample_shape(f);
    if (!f->shape.n || f->shape.d[0] != d->images.shape.d[0])
        return err_set(e, E_DATA, "%s: offset 10: %lld labels for the %lld images of %s", path,
                       f->shape.n ? (long long)f->shape.d[0] : 0, (long long)d->images.shape.d[0], d->images.path);
    if (f->type != NPY_F4 && f->type != NPY_F8 && f->shape.n == 1) return classes_load(d, e);
    if (f->type == NPY_F4 && d->want.target_type == F32 && shape_equal(&s, &d->want.target)) return 0;
    bool vector = d->want.target_type == F32;
    return err_set(e, E_DATA, "%s: offset 10: %s labels of shape %s, the model takes %s%s", path,
                   npy_type_name(f->type), shape_text(&s, have),
                   vector ? "<f4 targets of shape " : "a class (<i8) a sample",
                   vector ? shape_text(&d->want.target, want) : "");
}

static int pair_open(const struct conf *c, enum ds_part part, const struct ds_want *want, struct ds **out,
                     struct err *e)
{
    struct ds_files f;
    struct ds_pair pair;
    *out = NULL;
    if (ds_pair_of(c, want, &pair, e) || ds_files(c, part, &pair, &f, e)) return -1;
    if (!f.images) return 0;
    struct arena *mem = arena_new();
    struct pair *d = arena_alloc(mem, sizeof *d);
    *d = (struct pair){.ds.kind = &ds_npy, .mem = mem, .want = pair, .images.fd = -1, .labels.fd = -1};
    ds_pair_fields(&d->ds, &pair);
    if (images_open(d, c, arena_strdup(mem, f.images), e) ||
        (pair.has_target && labels_open(d, arena_strdup(mem, f.labels), e))) {
        pair_close(&d->ds);
        return -1;
    }
    if (ds_count(c, part, &f, (uint64_t)d->images.shape.d[0], &d->count, e)) {
        pair_close(&d->ds);
        return -1;
    }
    *out = &d->ds;
    return 0;
}

/* ---- reading ----------------------------------------------------------------------------------------------------- */

static uint64_t pair_count(const struct ds *ds) { return ((const struct pair *)ds)->count; }

static void normalise(const struct ds_norm *norm, float *x, int64_t n)
{
    int64_t plane = n / norm->channels;
    for (int64_t k = 0; k < norm->channels; k++)
        for (int64_t i = k * plane; i < (k + 1) * plane; i++) x[i] = (x[i] - norm->mean[k]) / norm->std[k];
}

/* The division that pixels of IDX files get, so that the same image has the same bits in both formats. */
static int sample_read(const struct pair *d, uint64_t index, float *x, struct err *e)
{
    int64_t n = shape_count(&d->want.input);
    if (npy_read_float(&d->images, index * (uint64_t)n, (uint64_t)n, x, e)) return -1;
    for (int64_t i = 0; i < n && d->images.type == NPY_U1; i++) x[i] /= 255.0f;
    if (d->norm.set) normalise(&d->norm, x, n);
    return 0;
}

static int pair_read(struct ds *ds, uint64_t index, uint64_t visit, int field, void *out, struct err *e)
{
    const struct pair *d = (const struct pair *)ds;
    uint64_t m = (uint64_t)shape_count(&d->want.target);
    if (ds_index_check(ds, index, e)) return -1;
    if (field == PAIR_INPUT) return sample_read(d, index, out, e);
    if (!d->label) return npy_read_float(&d->labels, index * m, m, out, e);
    ds_class_write(&d->want, d->classes, d->label[index], out);
    return 0;
}

const struct ds_kind ds_npy = {
    .name = "npy",
    .text = "a pair of NumPy files, samples first, little-endian: images as float32, float64 or, divided by 255, "
            "uint8; labels as int64, int32 or uint8 classes, or float32 targets",
    .open = pair_open, .count = pair_count, .read = pair_read, .close = pair_close,
};
