/* A pair of NumPy files. Images: <f4, <f8 or |u1, samples first. Numbers are used as stored, bytes as pixels: x / 255,
 * as for IDX files. Pictures of bytes, of 1 or 3 channels, are scaled, padded and cropped like image files. data.mean
 * and data.std apply only if set; then the first dimension of a sample is its channels. A model with integer inputs
 * gets <i8, <i4 or |u1 as stored, checked at each read. Labels: <i8, <i4 or |u1 classes, or <f4 targets of the model's
 * shape. Images and targets are read on demand; opening reads and checks classes. */
#include <stdlib.h>
#include <string.h>
#include "data/augment.h"
#include "data/ds_int.h"
#include "data/npy.h"

struct npy_pair {
    struct ds ds;
    struct arena *mem;
    struct ds_pair want;
    struct npy images, labels;
    struct ds_norm norm;
    uint64_t count;
    int64_t classes, *label;                             /* label: NULL for targets */
    uint32_t *valid;                                     /* of each sample, the labels that count; NULL: all */
    struct augment *augment;
    float *pixel;                                        /* for pictures: per channel, the values of bytes */
    struct shape stored;                                 /* of a sample in the file */
    bool framed; struct crop_frame frame;                /* the model's pictures are crops of these; only bytes */
    struct canvas_pool canvases;
};

static void pair_close(struct ds *ds)
{
    struct npy_pair *d = (struct npy_pair *)ds;
    npy_close(&d->images);
    npy_close(&d->labels);
    free(d->label);
    free(d->valid);
    augment_free(d->augment);
    canvas_pool_end(&d->canvases);
    arena_free(d->mem);
}

/* ---- opening ----------------------------------------------------------------------------------------------------- */

static struct shape sample_shape(const struct npy *f)
{
    struct shape s = {.n = f->shape.n ? f->shape.n - 1 : 0};
    for (int i = 0; i < s.n; i++) s.d[i] = f->shape.d[i + 1];
    return s;
}

/* The largest value that an integer input may have. */
static int64_t integer_most(const struct ds_pair *want)
{
    return want->range ? want->range - 1 : want->input_type == U8 ? UINT8_MAX
         : want->input_type == I32 ? INT32_MAX : INT64_MAX;
}

/* Checks that the input can hold the file's type of numbers. */
static int images_type(const struct npy_pair *d, const struct conf *c, const char *path, struct err *e)
{
    bool whole = d->images.type == NPY_I4 || d->images.type == NPY_I8;
    const char *name = npy_type_name(d->images.type);
    if (d->want.input_type == F32)
        return whole ? err_set(e, E_DATA, "%s: offset 10: images of type %s, expected <f4, <f8 or |u1", path, name) : 0;
    if (!whole && d->images.type != NPY_U1)
        return err_set(e, E_DATA, "%s: offset 10: numbers of type %s, the model takes whole ones: <i8, <i4 or |u1",
                       path, name);
    const char *key = c->data.mean.n ? "data.mean" : c->data.std.n ? "data.std" : NULL;
    return key ? conf_error(c, key, e, "the model takes whole numbers, which stay as they are") : 0;
}

static bool is_picture(const struct npy_pair *d)
{
    const struct shape *s = &d->stored;
    return d->images.type == NPY_U1 && s->n == 3 && (s->d[0] == 1 || s->d[0] == 3) && s->d[1] <= PICTURE_SIDE &&
           s->d[2] <= PICTURE_SIDE;
}

/* Decides how pictures are made from the file's: by data.resize, data.pad, data.channels and a crop, or by a list that
 * begins with the whole picture. */
static int crop_make(struct npy_pair *d, const struct conf *c, enum ds_part part, struct err *e)
{
    char have[96];
    const struct shape *in = &d->want.input, *s = &d->stored;
    const char *key = c->data.resize.n ? "data.resize" : c->data.pad.n ? "data.pad"
                    : c->data.channels ? "data.channels" : NULL;
    if (key && (!is_picture(d) || in->n != 3 || d->want.input_type != F32))
        return conf_error(c, key, e, "is for pictures, and %s has %s samples of %s: expected |u1 of 1 or 3 channels",
                          d->images.path, npy_type_name(d->images.type), shape_text(s, have));
    if (!is_picture(d) || in->n != 3) return 0;
    bool whole = part == DS_TRAIN && augment_begins_whole(c);
    d->framed = key || (whole && (s->d[1] != in->d[1] || s->d[2] != in->d[2]));
    d->frame = (struct crop_frame){.height = (int)in->d[1], .width = (int)in->d[2], .resize = {s->d[1], s->d[2]}};
    for (int i = 0; i < 2 && c->data.pad.n == 2; i++) d->frame.pad[i] = c->data.pad.v[i];
    for (int i = 0; i < 2 && c->data.resize.n; i++) d->frame.resize[i] = i < c->data.resize.n ? c->data.resize.v[i] : 0;
    return 0;
}

/* Checks that the frame fills the model's input, and that the channels are the file's or a single one's copies. */
static int crop_check(const struct npy_pair *d, const struct conf *c, bool whole, struct err *e)
{
    char want[96];
    const struct shape *in = &d->want.input;
    const struct crop_frame *f = &d->frame;
    if (in->d[0] != d->stored.d[0] && !(d->stored.d[0] == 1 && c->data.channels == in->d[0]))
        return conf_error(c, c->data.channels ? "data.channels" : "model.input", e, "%s has %lld channels, the model "
                          "takes %s: only a single one can be repeated, by data.channels", d->images.path,
                          (long long)d->stored.d[0], shape_text(in, want));
    for (int i = 0; i < 2 && !whole; i++) {
        int64_t size = f->resize[1] ? f->resize[i] : f->resize[0], side = size > f->pad[i] ? size : f->pad[i];
        if (side < in->d[i + 1] || (side > in->d[i + 1] && !c->data.resize.n && !c->data.pad.n))
            return conf_error(c, c->data.resize.n ? "data.resize" : c->data.pad.n ? "data.pad" : "data.channels", e,
                              "pictures would be %s than what the model takes, %s",
                              side < in->d[i + 1] ? "smaller" : "larger", shape_text(in, want));
    }
    return 0;
}

static bool channels_last(const struct shape *s, const struct shape *want)
{
    return s->n == 3 && want->n == 3 && s->d[2] == want->d[0] && s->d[0] == want->d[1] && s->d[1] == want->d[2];
}

static int images_open(struct npy_pair *d, const struct conf *c, enum ds_part part, const char *path, struct err *e)
{
    char have[96], want[96];
    if (npy_open(path, &d->images, e)) return -1;
    const struct npy *f = &d->images;
    struct shape s = d->stored = sample_shape(f);
    if (!f->shape.n || !f->shape.d[0])
        return err_set(e, E_DATA, "%s: offset 10: shape %s: no samples", path, shape_text(&f->shape, have));
    if (images_type(d, c, path, e)) return -1;
    if (crop_make(d, c, part, e)) return -1;
    if (d->framed && crop_check(d, c, part == DS_TRAIN && augment_begins_whole(c), e)) return -1;
    if (!d->framed && !shape_equal(&s, &d->want.input))
        return err_set(e, E_DATA, "%s: offset 10: samples of %s, the model takes %s%s", path, shape_text(&s, have),
                       shape_text(&d->want.input, want), channels_last(&s, &d->want.input)
                       ? ": channels come first: use x.transpose(0, 3, 1, 2)" : "");
    if (d->framed) s = d->want.input;
    return ds_norm(c, s.n > 1 ? s.d[0] : 1, d->mem, &d->norm, e);
}

/* Samples that are not channels x height x width are a row of numbers, for augmentations that need no picture. */
static struct augment_want picture_of(const struct npy_pair *d)
{
    const struct shape *s = &d->want.input;
    bool bytes = d->images.type == NPY_U1;
    int64_t channels = d->norm.channels;
    if (s->n != 3) return (struct augment_want){d->images.path, channels, 1, shape_count(s) / channels, false, true};
    return (struct augment_want){d->images.path, s->d[0], s->d[1], s->d[2], bytes && (s->d[0] == 1 || s->d[0] == 3),
                                 false};
}

static int augment_make(struct npy_pair *d, const struct conf *c, enum ds_part part, struct err *e)
{
    const struct augment_want w = picture_of(d);
    if (!w.row) d->ds.picture = d->want.input;
    d->ds.unit = d->images.type == NPY_U1;
    if (d->want.input_type != F32 && c->data.augment.n)
        return conf_error(c, "data.augment", e, "the model takes whole numbers, which stay as they are");
    if (augment_open(c, part, &w, &d->augment, e)) return -1;
    d->pixel = arena_alloc(d->mem, (size_t)d->norm.channels * 256 * sizeof *d->pixel);
    ds_norm_levels(&d->norm, d->pixel);
    return 0;
}

static int classes_load(struct npy_pair *d, struct err *e)
{
    const struct npy *f = &d->labels;
    uint64_t n = (uint64_t)f->shape.d[0];
    if (ds_classes(f->path, &d->want, &d->classes, e)) return -1;
    d->label = mem_alloc(size_mul(n, sizeof *d->label));
    if (npy_read_integers(f, 0, n, d->label, e)) return -1;
    for (uint64_t i = 0; i < n; i++)
        if (d->label[i] < 0 || d->label[i] >= d->classes)
            return err_set(e, E_DATA, "%s: offset %llu: label %lld, but there are %lld classes, counted from 0",
                           f->path, (unsigned long long)(f->begin + i * npy_type_bytes(f->type)),
                           (long long)d->label[i], (long long)d->classes);
    return 0;
}

/* Loads classes that the model does not take, as in a prediction, but by which data.validation divides. */
static int strata_load(struct npy_pair *d, const char *path, struct err *e)
{
    if (npy_open(path, &d->labels, e)) return -1;
    const struct npy *f = &d->labels;
    const uint64_t n = f->shape.n == 1 ? (uint64_t)f->shape.d[0] : 0;
    if (n != (uint64_t)d->images.shape.d[0] || f->type == NPY_F4 || f->type == NPY_F8) return 0;
    d->label = mem_alloc(size_mul(n, sizeof *d->label));
    return npy_read_integers(f, 0, n, d->label, e);
}

/* How to make classes from other labels. */
static const char *class_hint(bool whole, const struct shape *s, int64_t classes)
{
    if (s->n && shape_count(s) == classes && classes > 1) return ": y.argmax(1) converts these";
    if (whole && shape_count(s) == 1) return ": y.reshape(-1) converts these";
    return !whole && !s->n ? ": y.astype('int64') converts these" : "";
}

static int valid_count(struct npy_pair *d, struct err *e)
{
    const struct npy *f = &d->labels;
    const uint64_t n = (uint64_t)f->shape.d[0], m = (uint64_t)shape_count(&d->want.target);
    int64_t *piece = mem_alloc(size_mul(m, sizeof *piece));
    int bad = 0;
    d->valid = mem_alloc(size_mul(n + 1, sizeof *d->valid));
    for (uint64_t i = 0; i < n && !bad; i++) {
        bad = npy_read_integers(f, i * m, m, piece, e);
        for (uint64_t k = 0; k < m && !bad; k++) d->valid[i] += piece[k] != d->want.ignored;
    }
    free(piece);
    return bad;
}

static int labels_open(struct npy_pair *d, const char *path, struct err *e)
{
    char have[96], want[96];
    if (npy_open(path, &d->labels, e)) return -1;
    const struct npy *f = &d->labels;
    struct shape s = sample_shape(f);
    if (!f->shape.n || f->shape.d[0] != d->images.shape.d[0])
        return err_set(e, E_DATA, "%s: offset 10: %lld labels for the %lld images of %s", path,
                       f->shape.n ? (long long)f->shape.d[0] : 0, (long long)d->images.shape.d[0], d->images.path);
    bool map = ds_pair_has_map(&d->want), whole = f->type != NPY_F4 && f->type != NPY_F8;
    if (map && whole && shape_equal(&s, &d->want.target)) return d->want.ignored ? valid_count(d, e) : 0;
    if (map)
        return err_set(e, E_DATA, "%s: offset 10: %s labels of shape %s, the model takes whole numbers of shape %s",
                       path, npy_type_name(f->type), shape_text(&s, have), shape_text(&d->want.target, want));
    if (whole && f->shape.n == 1) return classes_load(d, e);
    if (f->type == NPY_F4 && d->want.target_type == F32 && shape_equal(&s, &d->want.target)) return 0;
    bool vector = d->want.target_type == F32;
    return err_set(e, E_DATA, "%s: offset 10: %s labels of shape %s, the model takes %s%s", path,
                   npy_type_name(f->type), shape_text(&s, have),
                   vector ? "<f4 targets of shape " : "a class (<i8) a sample",
                   vector ? shape_text(&d->want.target, want) : class_hint(whole, &s, d->want.classes));
}

static int pair_open(const struct conf *c, enum ds_part part, const struct ds_want *want, struct ds **out,
                     struct err *e)
{
    struct ds_files f;
    struct ds_pair pair;
    *out = NULL;
    if (ds_pair_of(c, want, true, &pair, e) || ds_files(c, part, &pair, &f, e)) return -1;
    if (!f.images) return 0;
    struct arena *mem = arena_new();
    struct npy_pair *d = arena_alloc(mem, sizeof *d);
    *d = (struct npy_pair){.ds.kind = &ds_npy, .mem = mem, .want = pair, .images.fd = -1, .labels.fd = -1};
    canvas_pool_begin(&d->canvases);
    ds_pair_fields(&d->ds, &pair);
    if (images_open(d, c, part, arena_strdup(mem, f.images), e) || augment_make(d, c, part, e) ||
        (pair.has_target && labels_open(d, arena_strdup(mem, f.labels), e)) ||
        (!pair.has_target && f.labels && c->data.validation > 0 && strata_load(d, arena_strdup(mem, f.labels), e))) {
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

static int64_t pair_class(const struct ds *ds, uint64_t sample)
{
    const struct npy_pair *d = (const struct npy_pair *)ds;
    return d->label ? d->label[sample] : -1;
}

static double pair_weight(const struct ds *ds, uint64_t sample, uint64_t visit)
{
    const struct npy_pair *d = (const struct npy_pair *)ds;
    return d->valid ? d->valid[sample] : 1;
}

static uint64_t pair_count(const struct ds *ds) { return ((const struct npy_pair *)ds)->count; }

static void normalise(const struct ds_norm *norm, float *x, int64_t n)
{
    int64_t plane = n / norm->channels;
    for (int64_t k = 0; k < norm->channels; k++)
        for (int64_t i = k * plane; i < (k + 1) * plane; i++) x[i] = (x[i] - norm->mean[k]) / norm->std[k];
}

/* Pixels are divided like those of IDX files, so that an image has the same bits in both formats. */
static int sample_read(const struct npy_pair *d, uint64_t index, float *x, struct err *e)
{
    int64_t n = shape_count(&d->want.input);
    if (npy_read_float(&d->images, index * (uint64_t)n, (uint64_t)n, x, e)) return -1;
    for (int64_t i = 0; i < n && d->images.type == NPY_U1; i++) x[i] /= 255.0f;
    if (d->norm.set) normalise(&d->norm, x, n);
    return 0;
}

static void bytes_show(const uint8_t *b, const struct shape *s, struct canvas *c)
{
    size_t plane = (size_t)(s->d[1] * s->d[2]);
    canvas_begin(c, true, 1, (int)s->d[1], (int)s->d[2]);
    uint8_t *p = (uint8_t *)c->at;
    for (size_t k = 0; k < 3; k++)
        for (size_t i = 0; i < plane; i++) p[i * PICTURE_BYTES + k] = b[i + (s->d[0] == 1 ? 0 : k * plane)];
}

static int picture_show(const struct npy_pair *d, uint64_t index, struct canvas *c, struct err *e)
{
    const uint64_t n = (uint64_t)shape_count(&d->stored);
    uint8_t *bytes = mem_alloc((size_t)n);
    int bad = npy_read(&d->images, index * n, n, bytes, e);
    if (!bad) bytes_show(bytes, &d->stored, c);
    free(bytes);
    if (bad || !d->framed || augment_whole(d->augment)) return bad;
    struct crop_place place = crop_place(&d->frame, c->width, c->height, (struct picture_turn){0});
    crop_scale(&place, c);
    return 0;
}

/* x also serves as the buffer for reading. */
static int values_show(const struct npy_pair *d, uint64_t index, float *x, struct canvas *c, struct err *e)
{
    const struct augment_want w = picture_of(d);
    const uint64_t n = (uint64_t)shape_count(&d->want.input);
    if (npy_read_float(&d->images, index * n, n, x, e)) return -1;
    canvas_begin(c, false, (int)w.channels, (int)w.height, (int)w.width);
    float *v = (float *)c->at;
    for (size_t i = 0; i < n; i++) v[i] = d->images.type == NPY_U1 ? x[i] / 255.0f : x[i];
    return 0;
}

/* Makes a sample that is framed or augmented. */
static int sample_make(struct npy_pair *d, struct augment_key k, float *x, struct err *e)
{
    const struct augment_want w = picture_of(d);
    const struct augment_values values = {&d->norm, d->pixel, w.channels, false};
    struct canvas *c = canvas_take(&d->canvases);
    int bad = w.pixels ? picture_show(d, k.sample, c, e) : values_show(d, k.sample, x, c, e);
    if (!bad) augment_values(d->augment, k, &values, c, x);
    canvas_give(&d->canvases, c);
    return bad;
}

/* Integers of a sample; the model takes 0 to `most`. */
struct integers { const struct npy *file; int64_t n, most; enum dtype type; int64_t ignored; };
static int integers_read(struct integers in, uint64_t index, void *x, struct err *e)
{
    enum { PIECE = 1024 };
    int64_t piece[PIECE], n = in.n, most = in.most;
    uint64_t first = index * (uint64_t)n;
    for (int64_t i = 0; i < n; i++) {
        int64_t k = i % PIECE, more = n - i < PIECE ? n - i : PIECE;
        if (!k && npy_read_integers(in.file, first + (uint64_t)i, (uint64_t)more, piece, e)) return -1;
        if ((piece[k] < 0 || piece[k] > most) && (!in.ignored || piece[k] != in.ignored))
            return err_set(e, E_DATA, "%s: offset %llu: %lld, the model takes 0 to %lld", in.file->path,
                           (unsigned long long)(in.file->begin + (first + (uint64_t)i) *
                                                npy_type_bytes(in.file->type)), (long long)piece[k], (long long)most);
        ds_integer_write(in.type, x, i, piece[k]);
    }
    return 0;
}

static int pair_read(struct ds *ds, uint64_t index, uint64_t visit, int field, void *out, struct err *e)
{
    struct npy_pair *d = (struct npy_pair *)ds;
    uint64_t m = (uint64_t)shape_count(&d->want.target);
    if (ds_index_check(ds, index, e)) return -1;
    if (field == PAIR_INPUT && (d->augment || d->framed))
        return sample_make(d, (struct augment_key){index, visit}, out, e);
    if (field == PAIR_INPUT)
        return d->want.input_type == F32 ? sample_read(d, index, out, e)
                                         : integers_read((struct integers){&d->images, shape_count(&d->want.input),
                                                                           integer_most(&d->want), d->want.input_type},
                                                         index, out, e);
    if (ds_pair_has_map(&d->want))
        return integers_read((struct integers){&d->labels, (int64_t)m, d->want.classes - 1, d->want.target_type,
                                               d->want.ignored},
                             index, out, e);
    if (!d->label) return npy_read_float(&d->labels, index * m, m, out, e);
    ds_class_write(&d->want, d->classes, d->label[index], out);
    return 0;
}

/* Puts elements of some samples. */
static void elements_report(const struct npy_pair *d, const struct npy *f, const struct ds_sink *to)
{
    struct shape s = sample_shape(f);
    uint64_t n = (uint64_t)shape_count(&s), some = DS_TOLD_BYTES / npy_type_bytes(f->type);
    char *x = mem_alloc(DS_TOLD_BYTES);
    for (int i = 0; i < DS_TOLD; i++) {
        struct err none = {0};
        uint64_t k = n < some ? n : some;
        if (!npy_read(f, ds_message(d->count, i) * n, k, x, &none)) to->put(to->ctx, x, k * npy_type_bytes(f->type));
    }
    free(x);
}

static void pair_report(const struct ds *ds, const struct ds_sink *to)
{
    const struct npy_pair *d = (const struct npy_pair *)ds;
    elements_report(d, &d->images, to);
    if (d->label) to->put(to->ctx, d->label, d->count * sizeof *d->label);
    else if (d->labels.fd >= 0) elements_report(d, &d->labels, to);
}

const struct ds_kind ds_npy = {
    .name = "npy",
    .text = "a pair of NumPy files, samples first, little-endian: images as float32, float64 or, divided by 255, "
            "uint8; for an integer input numbers as int64, int32 or uint8 instead; labels as "
            "int64, int32 or uint8 classes, one a sample or one a point, or float32 targets",
    .open = pair_open, .count = pair_count, .read = pair_read, .weight = pair_weight, .tell = pair_report,
    .class_of = pair_class, .close = pair_close,
};
