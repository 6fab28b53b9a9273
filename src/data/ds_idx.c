/* IDX images and labels, held in memory. Images are resized, padded with zeros and cropped. Then a pixel becomes x /
 * 255, then (x - mean) / std per channel. This is torchvision's Resize, Pad, CenterCrop, ToTensor and Normalize in that
 * order, so a padded pixel is (0 - mean) / std. A resized pixel is not rounded to an integer. */
#include <stdlib.h>
#include <string.h>
#include "data/augment.h"
#include "data/ds_int.h"
#include "data/idx.h"
#include "data/resample.h"

/* Resizing along one axis: the weights of result element i begin at w[i * most]. */
struct axis { int64_t most; struct taps *taps; float *w; };  /* w NULL: not resized */

struct idx {
    struct ds ds;
    struct arena *mem;
    struct ds_pair want;
    struct idx_file images, labels;
    uint64_t count;
    int64_t classes;
    int64_t channels, height, width;                     /* as stored */
    int64_t scaled_height, scaled_width;                 /* before padding */
    int64_t out_channels, out_height, out_width;
    int64_t top, left;                                /* position of the sample in the scaled image; below 0: padding */
    struct axis rows, columns;
    struct ds_norm norm;
    float *pixel;                                        /* per output channel, the values of pixels 0 to 255 */
    struct augment *augment;
    struct canvas_pool canvases;
};

static void idx_close(struct ds *ds)
{
    struct idx *d = (struct idx *)ds;
    free(d->images.data);
    free(d->labels.data);
    augment_free(d->augment);
    canvas_pool_end(&d->canvases);
    arena_free(d->mem);
}

/* ---- opening ----------------------------------------------------------------------------------------------------- */

static void axis_make(struct arena *mem, int64_t from, int64_t to, struct axis *a)
{
    if (from == to) return;
    a->most = taps_most(from, to);
    a->taps = arena_alloc(mem, (size_t)to * sizeof *a->taps);
    a->w = arena_alloc(mem, (size_t)(to * a->most) * sizeof *a->w);
    double *exact = mem_alloc((size_t)a->most * sizeof *exact);
    for (int64_t i = 0; i < to; i++) {
        a->taps[i] = taps_of(from, to, i, exact);
        for (int64_t k = 0; k < a->taps[i].n; k++) a->w[i * a->most + k] = (float)exact[k];
    }
    free(exact);
}

/* If the list takes whole images, only the list scales them to the model's size. */
static bool sizes_augmented(struct idx *d, const struct conf *c, enum ds_part part)
{
    const struct shape *in = &d->want.input;
    if (part != DS_TRAIN || in->n != 3 || !augment_begins_whole(c)) return false;
    d->scaled_height = d->height;
    d->scaled_width = d->width;
    d->out_height = in->d[1];
    d->out_width = in->d[2];
    return true;
}

/* If data.resize or data.pad makes images larger than the model's, they are cropped about the centre. */
static void crop(struct idx *d, const struct conf *c)
{
    const struct shape *in = &d->want.input;
    int64_t height = d->out_height, width = d->out_width;
    bool crops = in->n == 3 && (c->data.resize.n || c->data.pad.n);
    if (crops && in->d[1] < height) d->out_height = in->d[1];
    if (crops && in->d[2] < width) d->out_width = in->d[2];
    d->top = crop_centred(d->scaled_height, height, (int)d->out_height);
    d->left = crop_centred(d->scaled_width, width, (int)d->out_width);
}

static int idx_sizes(struct idx *d, const struct conf *c, enum ds_part part, const char *file, struct err *e)
{
    const struct idx_file *f = &d->images;
    int64_t repeat = c->data.channels;
    d->channels = f->rank == 4 ? (int64_t)f->dim[1] : 1;
    d->height = (int64_t)f->dim[f->rank - 2];
    d->width = (int64_t)f->dim[f->rank - 1];
    if (repeat > 0 && d->channels != 1 && d->channels != repeat)
        return conf_error(c, "data.channels", e, "%s has %lld channels: only a single one can be repeated", file,
                          (long long)d->channels);
    d->out_channels = repeat > 0 ? repeat : d->channels;
    if (sizes_augmented(d, c, part)) return 0;
    d->scaled_height = c->data.resize.n ? c->data.resize.v[0] : d->height;
    d->scaled_width = c->data.resize.n ? c->data.resize.v[c->data.resize.n - 1] : d->width;
    d->out_height = c->data.pad.n ? c->data.pad.v[0] : d->scaled_height;
    d->out_width = c->data.pad.n ? c->data.pad.v[c->data.pad.n - 1] : d->scaled_width;
    if (d->out_height < d->scaled_height || d->out_width < d->scaled_width)
        return conf_error(c, "data.pad", e, "%s has images of %lldx%lld%s, which are larger than %lldx%lld", file,
                          (long long)d->scaled_height, (long long)d->scaled_width,
                          c->data.resize.n ? " after data.resize" : "", (long long)d->out_height,
                          (long long)d->out_width);
    crop(d, c);
    axis_make(d->mem, d->height, d->scaled_height, &d->rows);
    axis_make(d->mem, d->width, d->scaled_width, &d->columns);
    return 0;
}

/* Checks that the model takes such images, or the same numbers as one row. */
static int shape_check(const struct idx *d, const struct conf *c, enum ds_part part, const char *file, struct err *e)
{
    char have[96], want[96];
    struct shape image = {3, {d->out_channels, d->out_height, d->out_width}};
    if (shape_equal(&image, &d->want.input)) return 0;
    if (d->want.input.n == 1 && d->want.input.d[0] == shape_count(&image)) return 0;
    return conf_error(
        c, part == DS_TRAIN ? "data.train" : "data.test", e,
        "%s gives samples of %s, the model takes %s (see data.resize, data.pad, data.channels and model.input)", file,
        shape_text(&image, have), shape_text(&d->want.input, want));
}

static int pixels_make(struct idx *d, const struct conf *c, struct err *e)
{
    if (ds_norm(c, d->out_channels, d->mem, &d->norm, e)) return -1;
    d->pixel = arena_alloc(d->mem, (size_t)d->out_channels * 256 * sizeof(float));
    ds_norm_levels(&d->norm, d->pixel);
    return 0;
}

/* Pixels remain 8-bit integers unless they were scaled. */
static int augment_make(struct idx *d, const struct conf *c, enum ds_part part, const char *file, struct err *e)
{
    bool pixels = (d->out_channels == 1 || d->out_channels == 3) && !d->rows.w && !d->columns.w;
    const struct augment_want w = {file, d->out_channels, d->out_height, d->out_width, pixels, false};
    d->ds.picture = (struct shape){3, {w.channels, w.height, w.width}};
    d->ds.unit = true;
    return augment_open(c, part, &w, &d->augment, e);
}

static int labels_load(struct idx *d, const char *file, const char *images, struct err *e)
{
    if (idx_file_load(file, 1, 1, &d->labels, e) || ds_classes(file, &d->want, &d->classes, e)) return -1;
    if (d->labels.dim[0] != d->images.dim[0])
        return err_set(e, E_DATA, "%s: offset 4: %llu labels for the %llu images of %s", file,
                       (unsigned long long)d->labels.dim[0], (unsigned long long)d->images.dim[0], images);
    for (uint64_t i = 0; i < d->labels.bytes; i++)
        if (d->labels.data[i] >= d->classes)
            return err_set(e, E_DATA, "%s: offset %llu: label %d, but there are %lld classes", file,
                           (unsigned long long)(idx_offset(&d->labels) + i), d->labels.data[i], (long long)d->classes);
    return 0;
}

static int idx_open(const struct conf *c, enum ds_part part, const struct ds_want *want, struct ds **out, struct err *e)
{
    struct ds_files f;
    struct ds_pair pair;
    *out = NULL;
    if (ds_pair_of(c, want, false, &pair, e) || ds_files(c, part, &pair, &f, e)) return -1;
    if (!f.images) return 0;
    struct arena *mem = arena_new();
    struct idx *d = arena_alloc(mem, sizeof *d);
    *d = (struct idx){.ds.kind = &ds_idx, .mem = mem, .want = pair};
    canvas_pool_begin(&d->canvases);
    ds_pair_fields(&d->ds, &pair);
    if (idx_file_load(f.images, 3, 4, &d->images, e) || idx_sizes(d, c, part, f.images, e) ||
        shape_check(d, c, part, f.images, e))
        goto fail;
    if (pixels_make(d, c, e) || augment_make(d, c, part, f.images, e)) goto fail;
    if (pair.has_target && labels_load(d, f.labels, f.images, e)) goto fail;
    if (!pair.has_target && f.labels && c->data.validation > 0 && idx_file_load(f.labels, 1, 1, &d->labels, e))
        goto fail;
    if (ds_count(c, part, &f, d->images.dim[0], &d->count, e)) goto fail;
    *out = &d->ds;
    return 0;
fail:
    idx_close(&d->ds);
    return -1;
}

/* ---- reading ----------------------------------------------------------------------------------------------------- */

/* Pixel (row, col) of the resized plane, 0 to 255. */
static float scaled(const struct idx *d, const uint8_t *plane, int64_t row, int64_t col)
{
    const struct axis *r = &d->rows, *c = &d->columns;
    const struct taps down = r->w ? r->taps[row] : (struct taps){row, 1};
    const struct taps across = c->w ? c->taps[col] : (struct taps){col, 1};
    float sum = 0;
    for (int64_t i = 0; i < down.n; i++) {
        float line = 0;
        for (int64_t j = 0; j < across.n; j++)
            line += (c->w ? c->w[col * c->most + j] : 1) * (float)plane[(down.first + i) * d->width + across.first + j];
        sum += (r->w ? r->w[row * r->most + i] : 1) * line;
    }
    return sum;
}

static const uint8_t *plane_of(const struct idx *d, const uint8_t *image, int64_t k)
{
    return image + (d->channels == 1 ? 0 : k * d->height * d->width);
}

static void image_write(const struct idx *d, const uint8_t *image, float *x)
{
    bool scale = d->rows.w || d->columns.w;
    for (int64_t k = 0; k < d->out_channels; k++) {
        const uint8_t *plane = plane_of(d, image, k);
        const float *pixel = d->pixel + k * 256;
        for (int64_t i = d->top; i < d->top + d->out_height; i++)
            for (int64_t j = d->left; j < d->left + d->out_width; j++) {
                bool inside = i >= 0 && i < d->scaled_height && j >= 0 && j < d->scaled_width;
                if (!inside) *x++ = pixel[0];
                else *x++ = scale ? ds_norm_level(&d->norm, k, scaled(d, plane, i, j)) : pixel[plane[i * d->width + j]];
            }
    }
}

/* The stored image as pixels, or scaled to floats by this format's data.resize. */
static void image_show(const struct idx *d, const uint8_t *image, bool pixels, struct canvas *c)
{
    int64_t rows = pixels ? d->height : d->scaled_height, columns = pixels ? d->width : d->scaled_width;
    canvas_begin(c, pixels, pixels ? 1 : (int)d->out_channels, (int)rows, (int)columns);
    uint8_t *p = (uint8_t *)c->at;
    float *x = (float *)c->at;
    for (int64_t k = 0; k < (pixels ? 3 : d->out_channels); k++) {
        const uint8_t *plane = plane_of(d, image, d->out_channels == 1 ? 0 : k);
        for (int64_t i = 0; i < rows * columns; i++) {
            if (pixels) p[i * PICTURE_BYTES + k] = plane[i];
            else x[k * rows * columns + i] = scaled(d, plane, i / columns, i % columns) / 255.0f;
        }
    }
}

static void image_augment(struct idx *d, const uint8_t *image, struct augment_key k, float *x)
{
    const struct augment_values values = {&d->norm, d->pixel, d->out_channels, false};
    struct canvas *c = canvas_take(&d->canvases);
    image_show(d, image, augment_pixels(d->augment), c);
    if (!augment_whole(d->augment))
        canvas_crop(c, (int)d->top, (int)d->left, (int)d->out_height, (int)d->out_width);
    augment_values(d->augment, k, &values, c, x);
    canvas_give(&d->canvases, c);
}

static int64_t idx_class(const struct ds *ds, uint64_t sample)
{
    const struct idx *d = (const struct idx *)ds;
    return sample < d->labels.bytes ? d->labels.data[sample] : -1;
}

static uint64_t idx_count(const struct ds *ds) { return ((const struct idx *)ds)->count; }

static int idx_read(struct ds *ds, uint64_t index, uint64_t visit, int field, void *out, struct err *e)
{
    struct idx *d = (struct idx *)ds;
    if (ds_index_check(ds, index, e)) return -1;
    const uint8_t *image = d->images.data + index * (uint64_t)(d->channels * d->height * d->width);
    if (field == PAIR_INPUT && d->augment) image_augment(d, image, (struct augment_key){index, visit}, out);
    else if (field == PAIR_INPUT) image_write(d, image, out);
    else ds_class_write(&d->want, d->classes, d->labels.data[index], out);
    return 0;
}

/* Puts all data, since they are in memory. */
static void idx_report(const struct ds *ds, const struct ds_sink *to)
{
    const struct idx *d = (const struct idx *)ds;
    to->put(to->ctx, d->images.data, (uint64_t)(d->channels * d->height * d->width) * d->count);
    if (d->labels.data) to->put(to->ctx, d->labels.data, d->count);
}

const struct ds_kind ds_idx = {
    .name = "idx",
    .text = "IDX files (MNIST, Fashion-MNIST), plain or gzip; pixels are divided by 255, so that they lie in 0 to 1",
    .open = idx_open, .count = idx_count, .read = idx_read, .tell = idx_report, .class_of = idx_class,
    .close = idx_close,
};
