/* Pictures in folders or named by a list (image_list.h), decoded when they are read (picture.h), scaled and cropped to
 * the model's input (frame.h). A pixel becomes x / 255, then (x - mean) / std per channel, like torchvision's ToTensor
 * and Normalize; padding is pixels of 0.
 *
 * A sample is a function of files and the configuration alone. Where data.damaged is skip, the next sound picture of
 * its class, in the order of the list, stands in for a damaged one: so labels, which another rank may read, stay what
 * they are, and nobody has to look through all files first. */
#include <pthread.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include "base/file.h"
#include "data/ds_int.h"
#include "data/frame.h"
#include "data/image_list.h"
#include "data/picture.h"

enum { FILE_MOST = 1 << 28, ROOM_KEPT = 32 << 20 };

/* What one read needs, kept for the next one. */
struct room {
    struct room *next;
    uint8_t *file, *row;
    size_t file_bytes, row_bytes;
    struct resample r;
    struct text path;
};

struct images {
    struct ds ds;
    struct arena *mem;
    struct ds_pair want;
    struct image_list list;
    struct frame frame;
    struct ds_norm norm;
    int64_t channels, classes;
    uint64_t count;
    bool skip, upright;
    float *pixel;                                        /* for each channel, what values 0 to 255 become */
    /* where damaged pictures are skipped: the next of the same class, in a ring; whether it is known to be damaged */
    uint64_t *next;
    atomic_bool *damaged;
    pthread_mutex_t lock;                                /* of the rest */
    struct room *rooms;                                  /* that nobody uses */
    struct ds_damage damage;
};

static void room_free(struct room *r)
{
    free(r->file);
    free(r->row);
    resample_free(&r->r);
    text_free(&r->path);
    free(r);
}

static void images_close(struct ds *ds)
{
    struct images *d = (struct images *)ds;
    while (d->rooms) {
        struct room *r = d->rooms;
        d->rooms = r->next;
        room_free(r);
    }
    pthread_mutex_destroy(&d->lock);
    free(d->next);
    free(d->damaged);
    image_list_free(&d->list);
    arena_free(d->mem);
}

/* ---- opening ----------------------------------------------------------------------------------------------------- */

static const char *part_key(enum ds_part part)
{
    return part == DS_TRAIN ? "data.train_images" : "data.test_images";
}

static int channels_check(struct images *d, const struct conf *c, int64_t channels, struct err *e)
{
    d->channels = channels;
    if (channels != 1 && channels != 3)
        return conf_error(c, "data.source", e, "pictures have 1 channel or 3, the model takes %lld",
                          (long long)channels);
    if (c->data.channels && c->data.channels != channels)
        return conf_error(c, "data.channels", e, "the model takes %lld", (long long)channels);
    return 0;
}

/* Of a model that takes a row of numbers, the configuration alone can say what picture it is. */
static int row_sizes(struct images *d, const struct conf *c, struct err *e)
{
    const struct conf_ints *size = c->data.pad.n ? &c->data.pad : &c->data.resize;
    if (size->n < 2)
        return conf_error(c, "data.source", e, "the model takes rows of %lld numbers: data.resize = {height, width} "
                          "says of which size pictures are to be", (long long)d->want.input.d[0]);
    d->frame.height = (int)size->v[0];
    d->frame.width = (int)size->v[1];
    int64_t pixels = size->v[0] * size->v[1], n = d->want.input.d[0];
    if (n == pixels || n == 3 * pixels) return channels_check(d, c, n / pixels, e);
    return conf_error(c, c->data.pad.n ? "data.pad" : "data.resize", e, "the model takes rows of %lld numbers, "
                      "%lldx%lld pixels have %lld, or three times as many", (long long)n, (long long)size->v[0],
                      (long long)size->v[1], (long long)pixels);
}

static int sizes_find(struct images *d, const struct conf *c, struct err *e)
{
    char s[96];
    const struct shape *in = &d->want.input;
    struct frame *f = &d->frame;
    for (int i = 0; i < 2; i++) {
        f->resize[i] = i < c->data.resize.n ? c->data.resize.v[i] : 0;
        f->pad[i] = c->data.pad.n ? c->data.pad.v[i] : 0;
    }
    if (in->n == 1) return row_sizes(d, c, e);
    if (in->n != 3)
        return conf_error(c, "data.source", e, "the model takes %s: pictures have channels, height and width",
                          shape_text(in, s));
    f->height = (int)in->d[1];
    f->width = (int)in->d[2];
    if (channels_check(d, c, in->d[0], e)) return -1;
    int64_t size[2] = {f->resize[0], f->resize[1] ? f->resize[1] : f->resize[0]};
    for (int i = 0; i < 2; i++)
        if (f->resize[0] && (size[i] > f->pad[i] ? size[i] : f->pad[i]) < in->d[i + 1])
            return conf_error(c, "data.resize", e, "pictures would be smaller than what the model takes, %s: see "
                              "data.pad", shape_text(in, s));
    return 0;
}

static int pixels_make(struct images *d, const struct conf *c, struct err *e)
{
    if (ds_norm(c, d->channels, d->mem, &d->norm, e)) return -1;
    d->pixel = arena_alloc(d->mem, (size_t)d->channels * 256 * sizeof(float));
    ds_norm_levels(&d->norm, d->pixel);
    return 0;
}

/* The network's output has one place for each class. Numbers of a list may leave some out. */
static int classes_check(struct images *d, const struct conf *c, const char *key, struct err *e)
{
    int64_t has = d->list.n_classes;
    if (ds_classes(d->list.path, &d->want, &d->classes, e)) return -1;
    if (d->list.class_name ? has == d->classes : has <= d->classes) return 0;
    if (!d->list.class_name)
        return conf_error(c, key, e, "%s has labels up to %lld, the model %lld classes: model.classes", d->list.path,
                          (long long)has - 1, (long long)d->classes);
    return conf_error(c, key, e, "%s has %lld classes, the model %lld: model.classes", d->list.path, (long long)has,
                      (long long)d->classes);
}

static void rings_make(struct images *d)
{
    uint64_t n = (uint64_t)d->list.image.n, none = n;
    uint64_t *after = mem_alloc((size_t)(d->list.n_classes + 1) * sizeof *after);   /* of each class, and of none */
    d->next = mem_alloc(n * sizeof *d->next);
    d->damaged = mem_alloc(n * sizeof *d->damaged);
    for (int64_t k = 0; k <= d->list.n_classes; k++) after[k] = none;
    for (uint64_t turn = 0; turn < 2; turn++)              /* in the second one, the last know the first */
        for (uint64_t i = n; i-- > 0;) {
            int64_t k = d->list.image.v[i].class + 1;
            d->next[i] = after[k];
            after[k] = i;
        }
    free(after);
}

static int images_open(const struct conf *c, enum ds_part part, const struct ds_want *want, struct ds **out,
                       struct err *e)
{
    struct ds_pair pair;
    const char *path = part == DS_TRAIN ? c->data.train_images : c->data.test_images;
    int64_t limit = part == DS_TRAIN ? c->data.samples : c->data.test_samples;
    *out = NULL;
    if (ds_pair_of(c, want, false, &pair, e)) return -1;
    if (!path) return 0;
    struct arena *mem = arena_new();
    struct images *d = arena_alloc(mem, sizeof *d);
    *d = (struct images){.ds.kind = &ds_images, .mem = mem, .want = pair, .upright = c->data.upright,
                         .skip = !strcmp(c->data.damaged, "skip")};
    pthread_mutex_init(&d->lock, NULL);
    ds_pair_fields(&d->ds, &pair);
    struct ds_files f = {.images = path, .limit = limit > 0 ? (uint64_t)limit : 0};
    if (sizes_find(d, c, e) || pixels_make(d, c, e)) goto fail;
    if (image_list_read(path, pair.has_target, part == DS_TEST ? c->data.train_images : NULL, &d->list, e)) goto fail;
    if (pair.has_target && classes_check(d, c, part_key(part), e)) goto fail;
    if (ds_count(c, part, &f, (uint64_t)d->list.image.n, &d->count, e)) goto fail;
    d->ds.n_classes = d->list.n_classes;
    d->ds.class_name = d->list.class_name;
    if (d->skip) rings_make(d);
    *out = &d->ds;
    return 0;
fail:
    images_close(&d->ds);
    return -1;
}

/* ---- reading ----------------------------------------------------------------------------------------------------- */

static struct room *room_take(struct images *d)
{
    pthread_mutex_lock(&d->lock);
    struct room *r = d->rooms;
    if (r) d->rooms = r->next;
    pthread_mutex_unlock(&d->lock);
    return r ? r : mem_alloc(sizeof *r);
}

/* One that a large picture has blown up is not kept. */
static void room_give(struct images *d, struct room *r)
{
    if (r->file_bytes + r->row_bytes + r->r.bytes > ROOM_KEPT) {
        room_free(r);
        return;
    }
    pthread_mutex_lock(&d->lock);
    r->next = d->rooms;
    d->rooms = r;
    pthread_mutex_unlock(&d->lock);
}

static uint8_t *room_for(uint8_t **at, size_t *have, size_t want)
{
    if (want <= *have) return *at;
    free(*at);
    *at = mem_alloc(want);
    *have = want;
    return *at;
}

static int file_load(struct room *r, size_t *n, struct err *e)
{
    uint64_t size;
    int fd = file_open(r->path.s, &size, e);
    if (fd < 0) return -1;
    int bad = size > FILE_MOST ? err_set(e, E_DATA, "%s: a picture of more than %d bytes", r->path.s, FILE_MOST) : 0;
    *n = (size_t)size;
    if (!bad) bad = file_read_at(fd, r->path.s, 0, room_for(&r->file, &r->file_bytes, *n + 1), *n, e);
    close(fd);
    return bad;
}

/* The window, turned upright, and padding around it. */
static void window_write(const struct images *d, const struct resample *r, const struct frame_place *p, float *x)
{
    const struct frame *f = &d->frame;
    const struct picture_turn t = p->turn;
    const uint8_t *at = resample_window(r, 0);
    const float *pixel = d->pixel;
    ptrdiff_t down = resample_window(r, 1) - at, across = PICTURE_BYTES;
    if (t.flip_rows) { at += down * (p->window.n_rows - 1); down = -down; }
    if (t.flip_columns) { at += across * (p->window.n_columns - 1); across = -across; }
    if (t.swap) { ptrdiff_t other = down; down = across; across = other; }
    for (int64_t k = 0; k < d->channels; k++, at++, pixel += 256)
        for (int i = 0; i < f->height; i++, x += f->width) {
            bool inside = i >= p->top && i < p->top + p->rows;
            const uint8_t *from = inside ? at + (i - p->top) * down : at;
            int begin = inside ? p->left : f->width, end = inside ? p->left + p->columns : f->width;
            for (int j = 0; j < begin; j++) x[j] = pixel[0];
            for (int j = begin; j < end; j++, from += across) x[j] = pixel[*from];
            for (int j = end; j < f->width; j++) x[j] = pixel[0];
        }
}

static int picture_write(const struct images *d, struct room *r, struct picture *p, float *x, struct err *e)
{
    struct picture_turn none = {0}, turn = d->upright ? picture_turned(p) : none;
    int width = picture_width(p), height = picture_height(p);
    struct frame_place place = frame_place(&d->frame, width, height, turn);
    uint8_t *row = room_for(&r->row, &r->row_bytes, (size_t)width * PICTURE_BYTES);
    resample_begin(&r->r, &place.window);
    for (int i = 0; i < height; i++) {
        if (picture_row(p, row, e)) return -1;
        if (d->channels == 1) picture_grey(row, (size_t)width);
        resample_row(&r->r, row);
    }
    window_write(d, &r->r, &place, x);
    return 0;
}

static int image_read(struct images *d, uint64_t i, float *x, struct err *e)
{
    size_t n;
    struct picture *p = NULL;
    struct room *r = room_take(d);
    image_list_path(&d->list, i, &r->path);
    int bad = file_load(r, &n, e) || picture_open(r->path.s, r->file, n, &p, e) || picture_write(d, r, p, x, e);
    int warnings = p ? picture_warnings(p) : 0;
    picture_close(p);
    room_give(d, r);
    if (!bad && warnings) {
        pthread_mutex_lock(&d->lock);
        d->damage.warned++;
        pthread_mutex_unlock(&d->lock);
    }
    return bad ? -1 : 0;
}

static void damage_note(struct images *d, uint64_t i, const struct err *why)
{
    pthread_mutex_lock(&d->lock);
    if (!atomic_load(&d->damaged[i]) && !d->damage.skipped++) d->damage.first = *why;
    atomic_store(&d->damaged[i], true);
    pthread_mutex_unlock(&d->lock);
}

static int sound_read(struct images *d, uint64_t index, float *x, struct err *e)
{
    uint64_t i = index;
    do {
        struct err why = {0};
        if (!atomic_load(&d->damaged[i])) {
            if (!image_read(d, i, x, &why)) return 0;
            if (why.code != E_DATA) return err_set(e, why.code, "%s", why.text);
            damage_note(d, i, &why);
        }
        i = d->next[i];
    } while (i != index);
    struct text path = {0};
    image_list_path(&d->list, i, &path);
    err_set(e, E_DATA, "%s: damaged, as are all others of its class", path.s);
    text_free(&path);
    return -1;
}

static int images_read(struct ds *ds, uint64_t index, uint64_t visit, int field, void *out, struct err *e)
{
    struct images *d = (struct images *)ds;
    if (ds_index_check(ds, index, e)) return -1;
    if (field == PAIR_INPUT) return d->skip ? sound_read(d, index, out, e) : image_read(d, index, out, e);
    ds_class_write(&d->want, d->classes, d->list.image.v[index].class, out);
    return 0;
}

static uint64_t images_count(const struct ds *ds) { return ((const struct images *)ds)->count; }

static struct ds_damage images_damage(struct ds *ds)
{
    struct images *d = (struct images *)ds;
    pthread_mutex_lock(&d->lock);
    struct ds_damage found = d->damage;
    pthread_mutex_unlock(&d->lock);
    return found;
}

const struct ds_kind ds_images = {
    .name = "images",
    .text = "folders of JPEG or PNG files, one a class, or a list of files with labels; pixels are divided by 255",
    .open = images_open, .count = images_count, .read = images_read, .damage = images_damage, .close = images_close,
};
