/* Volumes of NIfTI files (nifti.h), made uniform (volume.h) and cached (volume_cache.h): channels and three axes, and
 * labels of the voxels.
 *
 * A training sample is a volume or, if volumes are larger than the network's input, a part drawn for each visit. A test
 * sample is a volume or one of the parts that cover it. Opening reads all headers, so before a run begins all files
 * exist, fit and share a grid with their labels. Everything is a function of files, configuration, sample and visit. A
 * rank that needs only images still reads labels if parts are drawn by their content. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include "base/file.h"
#include "data/random_variates.h"
#include "data/ds_int.h"
#include "data/volume_cache.h"
#include "data/volume_list.h"
#include "data/volumes.h"

/* Cached labels: the number of voxels of each, then the labels. */
struct volume_labels { uint64_t count[NIFTI_LABELS]; uint8_t at[]; };

struct nifti_set {
    struct ds ds;
    struct arena *mem;
    struct field target;                                 /* as the network takes it; name NULL: none */
    int64_t channels, patch[3];                          /* along x, y, z */
    int axis[3];                                         /* the sample's axes: 0 is x */
    struct volume_want want;
    enum intensity intensity;
    struct nifti_map map;
    struct ds_norm norm;
    bool train, flip[3], labelled;
    double foreground;
    uint64_t seed, n, count;                             /* n: number of volumes */
    struct volume *v;
    struct volume_list list;
    struct volume_cache *cache;                          /* two blocks per volume: channels and labels */
};

static void set_close(struct ds *ds)
{
    struct nifti_set *d = (struct nifti_set *)ds;
    volume_cache_free(d->cache);
    volume_list_free(&d->list);
    free(d->v);
    arena_free(d->mem);
}

/* ---- what the network takes -------------------------------------------------------------------------------------- */

/* Labels are integers in the voxels' shape, or vectors over classes; a single channel of floats is the label itself. */
static bool target_fits(const struct field *in, const struct field *t)
{
    const bool whole = t->type == U8 || t->type == I32 || t->type == I64;
    const int extra = t->shape.n - 3;
    if (extra < 0 || extra > 1 || (t->type != F32 && !whole) || (t->type == F32 && !extra)) return false;
    for (int i = 0; i < 3; i++) if (t->shape.d[extra + i] != in->shape.d[1 + i]) return false;
    return t->type == F32 || !extra || t->shape.d[0] == 1;
}

/* How many classes the target can distinguish. */
static int classes_of(const struct field *t)
{
    if (t->type == F32 && t->shape.d[0] > 1) return t->shape.d[0] < NIFTI_LABELS ? (int)t->shape.d[0] : NIFTI_LABELS;
    return t->range && t->range < NIFTI_LABELS ? (int)t->range : NIFTI_LABELS;
}

static int want_take(struct nifti_set *d, const struct conf *c, const struct ds_want *want, struct err *e)
{
    const struct field *in = NULL, *t = NULL;
    char has[96], wants[96];
    for (int i = 0; i < want->n; i++) *(want->field[i].role == ROLE_SAMPLE ? &in : &t) = &want->field[i];
    bool fits = in && want->n == 1 + (t != NULL) && in->type == F32 && in->shape.n == 4;
    if (!fits)
        return conf_error(c, "data.source", e, "the model takes %s: volumes have channels and three axes, and at most "
                          "one label a voxel", in ? shape_text(&in->shape, has) : "no sample");
    if (t && !target_fits(in, t))
        return conf_error(c, "data.source", e, "the model takes targets of %s %s: volumes of %s have a label a voxel "
                          "(U8, I32 or I64), or a vector over classes (F32, classes first)", dtype_name(t->type),
                          shape_text(&t->shape, wants), shape_text(&in->shape, has));
    const bool turned = c->data.axes == AXES_ZYX;
    d->channels = in->shape.d[0];
    for (int i = 0; i < 3; i++) {
        d->axis[i] = turned ? 2 - i : i;
        d->patch[d->axis[i]] = in->shape.d[1 + i];
    }
    d->ds.n_fields = want->n;
    d->ds.field[PAIR_INPUT] = (struct field){"input", ROLE_SAMPLE, F32, in->shape, 0};
    if (!t) return 0;
    d->target = *t;
    d->labelled = true;
    d->ds.field[PAIR_TARGET] = (struct field){"labels", ROLE_TARGET, t->type, t->shape, t->range};
    return 0;
}

/* ---- options ----------------------------------------------------------------------------------------------------- */

/* One number for all axes, or three. */
static int sizes_take(struct nifti_set *d, const struct conf *c, struct err *e)
{
    const struct conf_reals *spacing = &c->data.spacing;
    const struct conf_ints *size = &c->data.size;
    if (spacing->n && spacing->n != 1 && spacing->n != 3)
        return conf_error(c, "data.spacing", e, "expected one number, or three: along x, y and z");
    if (size->n && size->n != 1 && size->n != 3)
        return conf_error(c, "data.size", e, "expected one number, or three: along x, y and z");
    for (int i = 0; i < 3; i++) {
        d->want.spacing[i] = spacing->n ? spacing->v[spacing->n == 1 ? 0 : i] : 0;
        d->want.size[i] = size->n ? size->v[size->n == 1 ? 0 : i] : d->patch[i];
        d->want.least[i] = d->patch[i];
        if (d->want.size[i] && d->want.size[i] < d->patch[i])
            return conf_error(c, "data.size", e, "%lld voxels along %c, the model takes %lld",
                              (long long)d->want.size[i], 'x' + i, (long long)d->patch[i]);
    }
    return 0;
}

/* The first match counts. Without a list every label is its own class. */
static int map_take(struct nifti_set *d, const struct conf *c, int classes, struct err *e)
{
    const struct conf_texts *t = &c->data.label_map;
    struct nifti_map *m = &d->map;
    struct err own = {0};
    m->classes = classes;
    m->listed = t->n > 0;
    m->binary = t->n == 1 && !strcmp(t->v[0], "binary");
    if (m->binary && m->classes < 2)
        return conf_error(c, "data.label_map", e, "binary makes 2 classes, the model has 1");
    for (int i = 0; i < NIFTI_MAPPED; i++) m->to[i] = (int16_t)(t->n || i >= m->classes ? -1 : i);
    for (int i = 0; i < t->n && !m->binary; i++)
        if (nifti_map_add(m, t->v[i], &own)) return conf_error(c, "data.label_map", e, "%s", own.text);
    return 0;
}

static int options_take(struct nifti_set *d, const struct conf *c, struct err *e)
{
    d->intensity = c->data.intensity;
    for (int i = 0; i < c->data.flip.n; i++) {
        const char *s = c->data.flip.v[i];
        if (strlen(s) != 1 || *s < 'x' || *s > 'z')
            return conf_error(c, "data.flip", e, "\"%.40s\" is not one of x, y, z", s);
        d->flip[*s - 'x'] = d->train;
    }
    d->foreground = d->train && d->labelled ? c->data.foreground : 0;
    d->seed = (uint64_t)c->run.seed;
    const int classes = d->labelled ? classes_of(&d->target) : NIFTI_LABELS;
    return sizes_take(d, c, e) || map_take(d, c, classes, e) || ds_norm(c, d->channels, d->mem, &d->norm, e) ? -1 : 0;
}

/* ---- opening files ----------------------------------------------------------------------------------------------- */

static int list_take(struct nifti_set *d, const struct conf *c, enum ds_part part, bool *none, struct err *e)
{
    const int64_t folds = c->data.folds;
    const bool train = part == DS_TRAIN || folds;        /* the options for training name them */
    const char *images = train ? c->data.train : c->data.test;
    const char *labels = train ? c->data.train_labels : c->data.test_labels;
    const char *key = train ? "data.train" : "data.test";
    const char *label_key = train ? "data.train_labels" : "data.test_labels";
    /* predictions can be compared with labels if there are any */
    const bool known = c->run.predict && part == DS_TEST && (labels || (folds && images && volume_list_folder(images)));
    const enum volume_part which = d->labelled || known ? VOLUMES_LABELLED : train ? VOLUMES_BARE : VOLUMES_TESTS;
    *none = !images;
    if (!images) return 0;
    if (labels && volume_list_folder(images))
        return conf_error(c, label_key, e, "%s names the labels itself, in its dataset.json", images);
    if (!labels && d->labelled && access(images, F_OK)) return file_missing(images, e);
    if (!labels && d->labelled && !volume_list_folder(images))
        return conf_error(c, key, e, "given without %s", label_key);
    if (part == DS_TEST && d->labelled && !folds && c->data.train && volume_list_folder(images) &&
        !strcmp(images, c->data.train))
        return conf_error(c, key, e, "all volumes of %s that have labels are training samples: set data.folds", images);
    if (volume_list_read(images, labels, which, &d->list, e)) return -1;
    if (folds) volume_list_fold(&d->list, folds, c->data.fold, part == DS_TEST);
    if (!d->list.file.n) return conf_error(c, "data.folds", e, "leaves no volume of %s", images);
    const int64_t limit = part == DS_TRAIN ? c->data.samples : c->data.test_samples;
    const struct ds_files f = {.images = images, .limit = limit > 0 ? (uint64_t)limit : 0};
    return ds_count(c, part, &f, (uint64_t)d->list.file.n, &d->n, e);
}

/* How many parts of the network's size are needed along an axis to cover a volume. */
static int64_t tiles_of(int64_t size, int64_t patch) { return (size + patch - 1) / patch; }

static int64_t tile_at(int64_t i, int64_t n, int64_t size, int64_t patch)
{
    return n > 1 ? i * (size - patch) / (n - 1) : (size - patch) / 2;
}

static int volume_open(const struct nifti_set *d, const struct volume_file *f, struct volume *v, struct err *e)
{
    if (nifti_open(f->image, &v->image, e) || volume_grid_of(&v->image, &d->want, &v->grid, e)) return -1;
    if (v->image.dim[3] != d->channels)
        return err_set(e, E_DATA, "%s: has %lld channel%s, the model takes %lld", f->image, (long long)v->image.dim[3],
                       v->image.dim[3] == 1 ? "" : "s", (long long)d->channels);
    if (f->label && (nifti_open(f->label, &v->label, e) || volume_same(&v->image, &v->label, e)))
        return -1;
    for (int i = 0; i < 3; i++) v->tiles[i] = tiles_of(v->grid.size[i], d->patch[i]);
    return 0;
}

/* Memory for reading a volume besides the cached result: the file's voxels, the resampled ones, a table of values.
 * image_bytes: of the cached channels. */
static size_t making_bytes(const struct nifti_set *d, const struct volume *v)
{
    size_t stored = nifti_voxels(&v->image) * (size_t)d->channels, scaled = volume_count(v->grid.scaled);
    return sizeof(float) * (stored + scaled) + (d->intensity == INTENSITY_PERCENTILE ? VOLUME_TABLE_BYTES : 0);
}

static size_t image_bytes(const struct nifti_set *d, const struct volume *v)
{
    return sizeof(float) * volume_count(v->grid.size) * (size_t)d->channels;
}

static size_t label_bytes(const struct volume *v) { return sizeof(struct volume_labels) + volume_count(v->grid.size); }

static void warning_make(struct nifti_set *d, uint64_t odd, const struct nifti *first)
{
    if (odd)
        d->ds.warning = arena_printf(d->mem, "%llu of %llu volumes have an invalid header, which was corrected; the "
                                             "first: %s: %s", (unsigned long long)odd, (unsigned long long)d->n,
                                     first->path, first->repaired);
}

/* Warns once that volumes will be prepared repeatedly, unless the user set data.cache. */
static void cache_report(struct nifti_set *d, size_t kept, size_t space)
{
    char all[32], some[32];
    d->ds.warning = arena_printf(d->mem, "%s%sprepared, %llu volumes take %s, and %s of that is kept: others are "
                                 "prepared again each time they are read (data.cache)",
                                 d->ds.warning ? d->ds.warning : "", d->ds.warning ? "; " : "",
                                 (unsigned long long)d->n, text_bytes(kept, all), text_bytes(space, some));
}

static int volumes_open(struct nifti_set *d, const struct conf *c, struct err *e)
{
    uint64_t odd = 0;
    const struct nifti *first = NULL;
    size_t kept = 0, most = 0, largest = 0, space = c->data.cache.n ? (size_t)c->data.cache.v[0] : (size_t)1 << 30;
    d->v = mem_alloc(size_mul(d->n, sizeof *d->v));
    for (uint64_t i = 0; i < d->n; i++) {
        struct volume *v = &d->v[i];
        if (volume_open(d, &d->list.file.v[i], v, e)) return -1;
        const bool bad = *v->image.repaired || *v->label.repaired;
        if (bad && !odd++) first = *v->image.repaired ? &v->image : &v->label;
        v->first = d->count;
        d->count += d->train ? 1 : (uint64_t)(v->tiles[0] * v->tiles[1] * v->tiles[2]);
        size_t own = image_bytes(d, v) + (v->label.path ? label_bytes(v) : 0), making = making_bytes(d, v);
        kept = size_add(kept, own);
        if (making + own > most) most = making + own;
        if (own > largest) largest = own;
    }
    warning_make(d, odd, first);
    d->ds.each = most;
    d->ds.shared = kept <= space ? kept : size_add(space, largest);
    d->cache = volume_cache_new(2 * d->n, space, kept <= space ? 0 : largest);
    if (kept > space && !c->data.cache.n) cache_report(d, kept, space);
    return 0;
}

/* The classes of dataset.json are the network's, unless a label map changes them. */
static int names_take(struct nifti_set *d, const struct conf *c, struct err *e)
{
    if (c->data.label_map.n) return 0;
    if (d->labelled && d->list.n_classes > d->map.classes)
        return conf_error(c, "data.label_map", e, "%s names %d classes, the model has %d: map each label to a class",
                          d->list.path, (int)d->list.n_classes, d->map.classes);
    if (d->labelled && d->list.n_classes != d->map.classes) return 0;
    d->ds.n_classes = d->list.n_classes;
    d->ds.class_name = d->list.class_name;
    return 0;
}

static int set_open(const struct conf *c, enum ds_part part, const struct ds_want *want, struct ds **out, struct err *e)
{
    bool none = false;
    struct arena *mem = arena_new();
    struct nifti_set *d = arena_alloc(mem, sizeof *d);
    *out = NULL;
    *d = (struct nifti_set){.ds.kind = &ds_nifti, .mem = mem, .train = part == DS_TRAIN};
    int bad = want_take(d, c, want, e) || list_take(d, c, part, &none, e);
    if (!bad && !none) bad = options_take(d, c, e) || names_take(d, c, e) || volumes_open(d, c, e);
    if (bad || none) {
        set_close(&d->ds);
        return bad ? -1 : 0;
    }
    *out = &d->ds;
    return 0;
}

/* ---- volumes in the cache ---------------------------------------------------------------------------------------- */

/* Blocks of the cache: two for each volume. */
static uint64_t image_block(uint64_t volume) { return 2 * volume; }
static uint64_t label_block(uint64_t volume) { return 2 * volume + 1; }

static int image_make(void *ctx, uint64_t block, void *out, struct err *e)
{
    const struct nifti_set *d = ctx;
    const struct volume *v = &d->v[block / 2];
    const uint64_t stored = nifti_voxels(&v->image), scaled = volume_count(v->grid.scaled),
                   n = volume_count(v->grid.size);
    float *raw = mem_alloc(stored * (uint64_t)d->channels * sizeof *raw), *x = out;
    if (nifti_values(&v->image, raw, e)) {
        free(raw);
        return -1;
    }
    float *between = mem_alloc(scaled * sizeof *between);
    for (int64_t k = 0; k < d->channels; k++, x += n) {
        volume_scale(&v->grid, raw + (uint64_t)k * stored, between);
        if (d->intensity != INTENSITY_MINMAX) volume_values(d->intensity, between, scaled);
        volume_fit(&v->grid, between, x);
        if (d->intensity == INTENSITY_MINMAX) volume_values(d->intensity, x, n);
        for (uint64_t i = 0; i < n && d->norm.set; i++) x[i] = (x[i] - d->norm.mean[k]) / d->norm.std[k];
    }
    free(between);
    free(raw);
    return 0;
}

static int label_make(void *ctx, uint64_t block, void *out, struct err *e)
{
    const struct nifti_set *d = ctx;
    const struct volume *v = &d->v[block / 2];
    struct volume_labels *l = out;
    uint8_t *raw = mem_alloc(nifti_voxels(&v->label));
    if (nifti_labels(&v->label, &d->map, raw, e)) {
        free(raw);
        return -1;
    }
    uint8_t *between = mem_alloc(volume_count(v->grid.scaled));
    volume_scale_labels(&v->grid, raw, between);
    volume_fit_labels(&v->grid, between, l->at);
    for (uint64_t i = 0, n = volume_count(v->grid.size); i < n; i++) l->count[l->at[i]]++;
    free(between);
    free(raw);
    return 0;
}

static const float *image_take(struct nifti_set *d, uint64_t volume, struct err *e)
{
    const struct volume_maker m = {image_make, d, image_bytes(d, &d->v[volume])};
    return volume_cache_take(d->cache, image_block(volume), &m, e);
}

static const struct volume_labels *labels_take(struct nifti_set *d, uint64_t volume, struct err *e)
{
    const struct volume_maker m = {label_make, d, label_bytes(&d->v[volume])};
    return volume_cache_take(d->cache, label_block(volume), &m, e);
}

/* ---- samples ----------------------------------------------------------------------------------------------------- */

/* Where a sample begins in its volume, and which axes are flipped. */
struct cut { int64_t corner[3]; bool flip[3]; };

static uint64_t volume_of(const struct nifti_set *d, uint64_t sample)
{
    uint64_t lo = 0, hi = d->n;
    while (hi - lo > 1) {
        uint64_t half = lo + (hi - lo) / 2;
        if (d->v[half].first <= sample) lo = half;
        else hi = half;
    }
    return lo;
}

static void tile_find(const struct nifti_set *d, const struct volume *v, uint64_t sample, int64_t corner[3])
{
    int64_t i = (int64_t)(sample - v->first);
    for (int k = 2; k >= 0; k--) {
        corner[k] = tile_at(i % v->tiles[k], v->tiles[k], v->grid.size[k], d->patch[k]);
        i /= v->tiles[k];
    }
}

/* The position of the k-th voxel of a class. */
static void voxel_find(const struct volume *v, const struct volume_labels *l, int class, uint64_t k, int64_t at[3])
{
    int64_t i = 0;
    while (l->at[i] != class || k--) i++;
    at[2] = i % v->grid.size[2];
    at[1] = i / v->grid.size[2] % v->grid.size[1];
    at[0] = i / v->grid.size[2] / v->grid.size[1];
}

/* Draws a part around a voxel of one of the classes present, except the background; each class is equally likely.
 * false: no such voxel. */
static bool foreground_draw(const struct nifti_set *d, const struct volume *v, const struct volume_labels *l,
                            struct draws *r, int64_t corner[3])
{
    int there = 0, class = 0;
    int64_t at[3];
    for (int k = 1; k < NIFTI_LABELS; k++) there += l->count[k] > 0;
    if (!there) return false;
    for (int64_t left = (int64_t)variate_below(r, (uint64_t)there); left >= 0;) left -= l->count[++class] > 0;
    voxel_find(v, l, class, variate_below(r, l->count[class]), at);
    for (int k = 0; k < 3; k++) {
        int64_t last = v->grid.size[k] - d->patch[k];
        corner[k] = at[k] - d->patch[k] / 2;
        corner[k] = corner[k] < 0 ? 0 : corner[k] > last ? last : corner[k];
    }
    return true;
}

/* VOLUMES: not a place in a list of augmentations. */
static int cut_draw(struct nifti_set *d, uint64_t sample, uint64_t visit, struct cut *cut, struct err *e)
{
    enum { VOLUMES = 254 };
    const struct volume *v = &d->v[sample];
    struct draws r = {.at = {d->seed, RNG_AUGMENT, VOLUMES | (uint32_t)(sample >> 32) << 8, (uint32_t)visit,
                             (uint32_t)sample}};
    bool whole = true, found = false;
    for (int i = 0; i < 3; i++) {
        cut->flip[i] = variate_uniform(&r) < 0.5 && d->flip[i];
        whole &= v->grid.size[i] == d->patch[i];
    }
    if (whole) return 0;
    if (variate_uniform(&r) < d->foreground) {
        const struct volume_labels *l = labels_take(d, sample, e);
        if (!l) return -1;
        found = foreground_draw(d, v, l, &r, cut->corner);
        volume_cache_give(d->cache, label_block(sample));
    }
    for (int i = 0; i < 3 && !found; i++)
        cut->corner[i] = (int64_t)variate_below(&r, (uint64_t)(v->grid.size[i] - d->patch[i] + 1));
    return 0;
}

/* Strides through a volume that give the sample's voxels in the sample's order. */
struct steps { int64_t first, step[3], n[3]; };

static struct steps steps_of(const struct nifti_set *d, const struct volume *v, const struct cut *cut)
{
    const int64_t by[3] = {v->grid.size[1] * v->grid.size[2], v->grid.size[2], 1};
    struct steps s = {0};
    for (int i = 0; i < 3; i++) {
        int a = d->axis[i];
        s.n[i] = d->patch[a];
        s.step[i] = cut->flip[a] ? -by[a] : by[a];
        s.first += (cut->corner[a] + (cut->flip[a] ? d->patch[a] - 1 : 0)) * by[a];
    }
    return s;
}

#define STEPS(s, at) \
    for (int64_t i_ = 0; i_ < (s)->n[0]; i_++) for (int64_t j_ = 0; j_ < (s)->n[1]; j_++) \
        for (int64_t k_ = 0, at = (s)->first + i_ * (s)->step[0] + j_ * (s)->step[1]; k_ < (s)->n[2]; \
             k_++, at += (s)->step[2])

static int image_read(struct nifti_set *d, uint64_t volume, const struct steps *s, float *x, struct err *e)
{
    const uint64_t n = volume_count(d->v[volume].grid.size);
    const float *from = image_take(d, volume, e);
    if (!from) return -1;
    for (int64_t k = 0; k < d->channels; k++) {
        const float *channel = from + (uint64_t)k * n;
        STEPS(s, at) *x++ = channel[at];
    }
    volume_cache_give(d->cache, image_block(volume));
    return 0;
}

static int label_read(struct nifti_set *d, uint64_t volume, const struct steps *s, void *y, struct err *e)
{
    const struct field *t = &d->target;
    const struct volume_labels *from = labels_take(d, volume, e);
    float *x = y;
    int64_t to = 0;
    if (!from) return -1;
    if (t->type != F32) STEPS(s, at) ds_integer_write(t->type, y, to++, from->at[at]);
    else
        for (int64_t k = 0, classes = t->shape.d[0]; k < classes; k++)
            STEPS(s, at) *x++ = (float)(classes == 1 ? from->at[at] : from->at[at] == k);
    volume_cache_give(d->cache, label_block(volume));
    return 0;
}

static int set_read(struct ds *ds, uint64_t sample, uint64_t visit, int field, void *out, struct err *e)
{
    struct nifti_set *d = (struct nifti_set *)ds;
    struct cut cut = {0};
    if (ds_index_check(ds, sample, e)) return -1;
    uint64_t volume = d->train ? sample : volume_of(d, sample);
    if (!d->train) tile_find(d, &d->v[volume], sample, cut.corner);
    else if (cut_draw(d, sample, visit, &cut, e)) return -1;
    struct steps s = steps_of(d, &d->v[volume], &cut);
    return field == PAIR_INPUT ? image_read(d, volume, &s, out, e) : label_read(d, volume, &s, out, e);
}

static uint64_t set_count(const struct ds *ds) { return ((const struct nifti_set *)ds)->count; }

static size_t set_held(const struct ds *ds) { return volume_cache_bytes(((const struct nifti_set *)ds)->cache); }

/* If a volume has several samples, adds the sample's corner. */
static void set_name(const struct ds *ds, uint64_t sample, struct text *t)
{
    const struct nifti_set *d = (const struct nifti_set *)ds;
    const struct volume *v = &d->v[d->train ? sample : volume_of(d, sample)];
    int64_t at[3];
    text_add(t, "%s", v->image.path);
    if (d->train || v->tiles[0] * v->tiles[1] * v->tiles[2] == 1) return;
    tile_find(d, v, sample, at);
    text_add(t, " from %lld,%lld,%lld", (long long)at[0], (long long)at[1], (long long)at[2]);
}

static void file_report(const char *path, const struct ds_sink *to)
{
    struct err none = {0};
    uint64_t size;
    int fd = path ? file_open(path, &size, &none) : -1;
    if (fd < 0) return;
    ds_bytes_report(to, fd, path, 0, size);
    close(fd);
}

/* Puts the first bytes and the sizes of some volumes' files. */
static void set_report(const struct ds *ds, const struct ds_sink *to)
{
    const struct nifti_set *d = (const struct nifti_set *)ds;
    to->put(to->ctx, &d->n, sizeof d->n);
    for (int i = 0; i < DS_TOLD && d->n; i++) {
        const struct volume *v = &d->v[ds_message(d->n, i)];
        file_report(v->image.path, to);
        file_report(v->label.path, to);
    }
}

const struct ds_kind ds_nifti = {
    .name = "nifti",
    .text = "volumes in NIfTI files, and labels of their voxels: a folder of the Medical Segmentation Decathlon, or "
            "lists of files",
    .open = set_open, .count = set_count, .read = set_read, .name_of = set_name, .held = set_held,
    .tell = set_report, .close = set_close,
};

/* ---- for predictions --------------------------------------------------------------------------------------------- */

static const struct nifti_set *set_of(const struct ds *d)
{
    return d && d->kind == &ds_nifti ? (const struct nifti_set *)d : NULL;
}

uint64_t volumes_count(const struct ds *ds) { return set_of(ds) ? set_of(ds)->n : 0; }
const struct volume *volumes_at(const struct ds *ds, uint64_t i) { return &set_of(ds)->v[i]; }
int volumes_axis(const struct ds *ds, int i) { return set_of(ds)->axis[i]; }

const struct volume *volumes_find(const struct ds *ds, uint64_t sample, int64_t corner[3])
{
    const struct nifti_set *d = set_of(ds);
    if (!d) return NULL;
    const struct volume *v = &d->v[volume_of(d, sample)];
    tile_find(d, v, sample, corner);
    return v;
}

int volumes_classes(struct ds *ds, const struct conf *c, int classes, struct err *e)
{
    return map_take((struct nifti_set *)ds, c, classes, e);
}

int volumes_stored_labels(const struct ds *ds, uint64_t i, uint8_t *out, struct err *e)
{
    return nifti_labels(&set_of(ds)->v[i].label, &set_of(ds)->map, out, e);
}

const uint8_t *volumes_labels_take(struct ds *d, uint64_t i, struct err *e)
{
    const struct volume_labels *l = labels_take((struct nifti_set *)d, i, e);
    return l ? l->at : NULL;
}

const float *volumes_values_take(struct ds *d, uint64_t i, struct err *e)
{
    return image_take((struct nifti_set *)d, i, e);
}

void volumes_labels_give(struct ds *d, uint64_t i)
{
    volume_cache_give(((struct nifti_set *)d)->cache, label_block(i));
}

void volumes_values_give(struct ds *d, uint64_t i)
{
    volume_cache_give(((struct nifti_set *)d)->cache, image_block(i));
}
