/* Pictures in folders, archives or a list (image_list.h), decoded at each read (picture.h), scaled and cropped to the
 * model's input (crop_geometry.h). A pixel becomes x / 255, then (x - mean) / std per channel, like torchvision's
 * ToTensor and Normalize; padding is pixels of 0.
 *
 * A sample is a function of files and configuration alone. If data.damaged is skip, a damaged picture is replaced by
 * the next intact one of its class in list order. So labels, which another rank may read, stay the same, and no scan of
 * all files is needed first. Predictions are listed by file name, so there a damaged picture is always an error. */
#include <pthread.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include "base/file.h"
#include "data/augment.h"
#include "data/class_names.h"
#include "data/ds_int.h"
#include "data/crop_geometry.h"
#include "data/images_int.h"
#include "data/picture.h"

/* Only one thread at a time may use more than LARGE bytes of a kind for a read. */
enum { FILE_MOST = 1 << 28, LARGE = IMAGES_KEPT / 4 };

/* Buffers of one read, reused by the next one. large: the read holds the lock of large pictures. */
struct decode_buffer {
    struct decode_buffer *next;
    bool large;
    uint8_t *file, *row;
    size_t file_bytes, row_bytes;
    struct resample r;
    struct canvas canvas;
    struct image_bytes from;
};

struct images {
    struct ds ds;
    struct arena *mem;
    struct ds_pair want;
    struct image_list list;
    struct crop_frame frame;
    struct augment *augment;
    struct ds_norm norm;
    int64_t channels, classes;
    uint64_t count;
    bool skip, may_skip, upright, shrink;                /* may_skip: the other data.damaged would skip */
    float *pixel;                                        /* per channel, the values of pixels 0 to 255 */
    /* if damaged pictures are skipped: ring of the next picture of the same class; the reason, if known as damaged */
    uint64_t *next;
    _Atomic(char *) *damaged;
    pthread_mutex_t large;
    pthread_mutex_t lock;                                /* of the other fields */
    struct decode_buffer *rooms;                         /* unused buffers */
};

static void buffer_free(struct decode_buffer *r)
{
    free(r->file);
    free(r->row);
    resample_free(&r->r);
    canvas_free(&r->canvas);
    text_free(&r->from.path);
    free(r);
}

void images_close(struct ds *ds)
{
    struct images *d = (struct images *)ds;
    while (d->rooms) {
        struct decode_buffer *r = d->rooms;
        d->rooms = r->next;
        buffer_free(r);
    }
    pthread_mutex_destroy(&d->large);
    pthread_mutex_destroy(&d->lock);
    free(d->next);
    for (int i = 0; d->damaged && i < d->list.image.n; i++) free(atomic_load(&d->damaged[i]));
    free(d->damaged);
    augment_free(d->augment);
    image_list_free(&d->list);
    arena_free(d->mem);
}

/* ---- opening ----------------------------------------------------------------------------------------------------- */

static const char *part_key(enum ds_part part)
{
    return part == DS_TRAIN ? "data.train" : "data.test";
}

/* Heights and widths of pictures are larger than that. */
static bool last_is_channels(const struct shape *s) { return s->n == 3 && (s->d[2] == 1 || s->d[2] == 3); }

static int channels_check(struct images *d, const struct conf *c, int64_t channels, struct err *e)
{
    d->channels = channels;
    if (channels != 1 && channels != 3)
        return conf_error(c, "data.source", e, "pictures have 1 channel or 3, the model takes %lld%s",
                          (long long)channels, last_is_channels(&d->want.input) ? ": model.input has channels first"
                                                                                : "");
    if (c->data.channels && c->data.channels != channels)
        return conf_error(c, "data.channels", e, "the model takes %lld", (long long)channels);
    return 0;
}

/* If the model takes a row of numbers, only the configuration can give the picture's size. */
static int row_sizes(struct images *d, const struct conf *c, struct err *e)
{
    const struct conf_ints *size = c->data.pad.n ? &c->data.pad : &c->data.resize;
    if (size->n < 2)
        return conf_error(c, "data.source", e, "the model takes rows of %lld numbers: set data.resize = {height, "
                                               "width}", (long long)d->want.input.d[0]);
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
    struct crop_frame *f = &d->frame;
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

static int augment_make(struct images *d, const struct conf *c, enum ds_part part, const char *path, struct err *e)
{
    const struct augment_want w = {path, d->channels, d->frame.height, d->frame.width, true, false};
    d->ds.picture = (struct shape){3, {w.channels, w.height, w.width}};
    d->ds.unit = true;
    return augment_open(c, part, &w, &d->augment, e);
}

/* The network's output has one element per class. Numbers in a list may have gaps. */
static int classes_check(struct images *d, const struct conf *c, const char *key, struct err *e)
{
    int64_t has = d->list.n_classes;
    const char *where = c->model.graph ? ": change the last layer of model.graph" : ": change model.classes";
    if (ds_classes(d->list.path, &d->want, &d->classes, e)) return -1;
    if (d->list.class_name ? has == d->classes : has <= d->classes) return 0;
    if (!d->list.class_name)
        return conf_error(c, key, e, "%s has labels up to %lld, the model has %lld classes%s", d->list.path,
                          (long long)has - 1, (long long)d->classes, where);
    return conf_error(c, key, e, "%s has %lld classes, the model has %lld%s", d->list.path, (long long)has,
                      (long long)d->classes, where);
}

/* sample NULL: all n */
static void rings_make(struct images *d, const uint64_t *sample, uint64_t n)
{
    const uint64_t none = (uint64_t)d->list.image.n;
    uint64_t *after = mem_alloc((size_t)(d->list.n_classes + 1) * sizeof *after);   /* per class, and for no class */
    for (int64_t k = 0; k <= d->list.n_classes; k++) after[k] = none;
    for (uint64_t turn = 0; turn < 2; turn++)              /* the second turn links the last to the first */
        for (uint64_t j = n; j-- > 0;) {
            const uint64_t i = sample ? sample[j] : j;
            int64_t k = d->list.image.v[i].class + 1;
            d->next[i] = after[k];
            after[k] = i;
        }
    free(after);
}

/* Collects warnings about the files: unused ones, and suspicious class names. */
static void warning_make(struct images *d, bool names_classes)
{
    struct text t = {0};
    leftover_text(&d->list.left, d->list.path, &t);
    if (names_classes && d->list.class_name)
        class_names_doubt(d->list.class_name, d->list.n_classes, d->list.path, &t);
    if (t.n) d->ds.warning = arena_strdup(d->mem, t.s);
    text_free(&t);
}

int images_open(const struct ds_kind *kind, images_lister *lister, const struct conf *c, enum ds_part part,
                const struct ds_want *want, struct ds **out, struct err *e)
{
    struct ds_pair pair;
    const char *path = part == DS_TRAIN ? c->data.train : c->data.test;
    int64_t limit = part == DS_TRAIN ? c->data.samples : c->data.test_samples;
    *out = NULL;
    if (ds_pair_of(c, want, false, &pair, e)) return -1;
    if (!path) return 0;
    struct arena *mem = arena_new();
    struct images *d = arena_alloc(mem, sizeof *d);
    *d = (struct images){.ds.kind = kind, .mem = mem, .want = pair, .upright = c->data.upright,
                         .shrink = c->data.scaled_decoding,
                         .skip = c->data.damaged == DAMAGED_SKIP && !c->run.predict, .may_skip = !c->run.predict};
    pthread_mutex_init(&d->large, NULL);
    pthread_mutex_init(&d->lock, NULL);
    ds_pair_fields(&d->ds, &pair);
    struct ds_files f = {.images = path, .limit = limit > 0 ? (uint64_t)limit : 0};
    if (sizes_find(d, c, e) || pixels_make(d, c, e) || augment_make(d, c, part, path, e)) goto fail;
    if (lister(c, part, pair.has_target || c->data.validation > 0, &d->list, e)) goto fail;
    image_list_spread(&d->list, f.limit);
    if (pair.has_target && classes_check(d, c, part_key(part), e)) goto fail;
    if (ds_count(c, part, &f, (uint64_t)d->list.image.n, &d->count, e)) goto fail;
    d->ds.n_classes = d->list.n_classes;
    d->ds.class_name = d->list.class_name;
    warning_make(d, part == DS_TRAIN || c->run.evaluate);
    if (d->skip) {
        d->next = mem_alloc((size_t)d->list.image.n * sizeof *d->next);
        d->damaged = mem_alloc((size_t)d->list.image.n * sizeof *d->damaged);
        rings_make(d, NULL, (uint64_t)d->list.image.n);
    }
    *out = &d->ds;
    return 0;
fail:
    images_close(&d->ds);
    return -1;
}

int64_t images_class(const struct ds *ds, uint64_t sample)
{
    return ((const struct images *)ds)->list.image.v[sample].class;
}

void images_only(struct ds *ds, const uint64_t *sample, uint64_t n)
{
    struct images *d = (struct images *)ds;
    if (d->skip) rings_make(d, sample, n);
}

/* ---- reading ----------------------------------------------------------------------------------------------------- */

static struct decode_buffer *buffer_take(struct images *d)
{
    pthread_mutex_lock(&d->lock);
    struct decode_buffer *r = d->rooms;
    if (r) d->rooms = r->next;
    pthread_mutex_unlock(&d->lock);
    return r ? r : mem_alloc(sizeof *r);
}

static void large_take(struct images *d, struct decode_buffer *r, size_t bytes)
{
    if (r->large || bytes <= LARGE) return;
    pthread_mutex_lock(&d->large);
    r->large = true;
}

/* A buffer enlarged by a large picture is freed. */
static void buffer_give(struct images *d, struct decode_buffer *r)
{
    if (r->large) pthread_mutex_unlock(&d->large);
    r->large = false;
    if (r->file_bytes + r->row_bytes + r->r.bytes + canvas_bytes(&r->canvas) > IMAGES_KEPT) {
        buffer_free(r);
        return;
    }
    pthread_mutex_lock(&d->lock);
    r->next = d->rooms;
    d->rooms = r;
    pthread_mutex_unlock(&d->lock);
}

static uint8_t *buffer_for(uint8_t **at, size_t *have, size_t want)
{
    if (want <= *have) return *at;
    free(*at);
    *at = mem_alloc(want);
    *have = want;
    return *at;
}

static int file_load(struct images *d, uint64_t i, struct decode_buffer *r, struct err *e)
{
    struct image_bytes *b = &r->from;
    if (image_list_open(&d->list, i, b, e)) return -1;
    int bad = b->size > FILE_MOST ? err_set(e, E_DATA, "%s: a picture of more than %d bytes", b->path.s, FILE_MOST) : 0;
    if (!bad) {
        size_t n = (size_t)b->size;
        large_take(d, r, n);
        bad = file_read_at(b->fd, b->path.s, b->at, buffer_for(&r->file, &r->file_bytes, n + 1), n, e);
    }
    close(b->fd);
    return bad;
}

static struct crop_place place_of(const struct images *d, struct augment_key k, int width, int height,
                                  struct picture_turn turn)
{
    if (augment_whole(d->augment)) return augment_place(d->augment, k, width, height, turn);
    return crop_place(&d->frame, width, height, turn);
}

/* The size at which `part` of `all` pixels becomes `to`. */
static int64_t whole_side(int64_t to, int part, int all) { return (to * all + part - 1) / part; }

/* Decodes the picture smaller, but never so small that its visible part would be enlarged. If the list takes whole
 * pictures, computes the part again. */
static void place_shrink(const struct images *d, struct augment_key k, struct picture *p, struct crop_place *place)
{
    struct resample_want *w = &place->window;
    picture_shrink(p, whole_side(w->to_width, w->width, picture_width(p)),
                   whole_side(w->to_height, w->height, picture_height(p)));
    if (augment_whole(d->augment)) {
        *place = place_of(d, k, picture_width(p), picture_height(p), place->turn);
        return;
    }
    w->width = picture_width(p);
    w->height = picture_height(p);
    crop_order(place);
}

static int picture_write(const struct images *d, struct decode_buffer *r, struct picture *p, struct augment_key k,
                         float *x, struct err *e)
{
    struct picture_turn none = {0}, turn = d->upright ? picture_turned(p) : none;
    int width = picture_width(p), height = picture_height(p);
    struct crop_place place = place_of(d, k, width, height, turn);
    const struct augment_values values = {&d->norm, d->pixel, d->channels, true};
    if (d->shrink) place_shrink(d, k, p, &place);
    uint8_t *row = buffer_for(&r->row, &r->row_bytes, (size_t)picture_width(p) * PICTURE_BYTES + PICTURE_SHIFT) +
                   PICTURE_SHIFT;
    resample_begin(&r->r, &place.window);
    struct picture_part part = resample_part(&r->r);
    part.left += place.from_left;
    part.top += place.from_top;
    if (picture_begin(p, &part, e)) return -1;
    for (int i = 0; i < part.rows; i++) {
        if (picture_row(p, row, e)) return -1;
        if (d->channels == 1) picture_grey(row + part.left * PICTURE_BYTES, (size_t)part.columns);
        resample_row(&r->r, row + (size_t)place.from_left * PICTURE_BYTES);
    }
    crop_show(&place, &r->r, &r->canvas);
    augment_values(d->augment, k, &values, &r->canvas, x);
    return picture_finish(p, e);
}

static int bytes_open(const struct images *d, const struct decode_buffer *r, struct picture **p, struct err *e)
{
    const struct picture_bytes b = {r->file, (size_t)r->from.size, d->list.raw_width, d->list.raw_height};
    return b.width ? picture_open_raw(r->from.path.s, &b, p, e) : picture_open(r->from.path.s, b.at, b.n, p, e);
}

/* k: of the sample; picture i may replace the sample's own. */
static int image_read(struct images *d, uint64_t i, struct augment_key k, float *x, struct err *e)
{
    struct picture *p = NULL;
    struct decode_buffer *r = buffer_take(d);
    int bad = file_load(d, i, r, e) || bytes_open(d, r, &p, e);
    if (!bad) {
        large_take(d, r, picture_memory(p));
        bad = picture_write(d, r, p, k, x, e);
    }
    picture_close(p);
    buffer_give(d, r);
    return bad ? -1 : 0;
}

/* Several readers may find the same damage at once. */
static void damage_note(struct images *d, uint64_t i, const struct err *why)
{
    char *none = NULL, *text = mem_strdup(why->text);
    if (!atomic_compare_exchange_strong(&d->damaged[i], &none, text)) free(text);
}

/* Adds all pictures skipped between the sample and its replacement. */
void images_damage(const struct ds *ds, uint64_t index, int field, struct ds_damage *sum)
{
    const struct images *d = (const struct images *)ds;
    const char *why;
    if (field != PAIR_INPUT || !d->skip) return;
    for (uint64_t i = index; (why = atomic_load(&d->damaged[i])) != NULL; i = d->next[i]) {
        if (!sum->counted) sum->counted = mem_alloc((size_t)d->list.image.n / 8 + 1);
        if (!(sum->counted[i / 8] >> i % 8 & 1) && !sum->skipped++) err_set(&sum->first, E_DATA, "%s", why);
        sum->counted[i / 8] |= (uint8_t)(1 << i % 8);
    }
}

static int sound_read(struct images *d, struct augment_key k, float *x, struct err *e)
{
    const uint64_t index = k.sample;
    uint64_t i = index;
    do {
        struct err why = {0};
        if (!atomic_load(&d->damaged[i])) {
            if (!image_read(d, i, k, x, &why)) return 0;
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

/* A damaged picture ends the run; a prediction always reads like this. */
static int strict_read(struct images *d, struct augment_key k, float *x, struct err *e)
{
    struct err why = {0};
    if (!image_read(d, k.sample, k, x, &why)) return 0;
    const char *skip = why.code == E_DATA && d->may_skip ? "; data.damaged = \"skip\" skips it" : "";
    return err_set(e, why.code, "%s%s", why.text, skip);
}

int images_read(struct ds *ds, uint64_t index, uint64_t visit, int field, void *out, struct err *e)
{
    struct images *d = (struct images *)ds;
    if (ds_index_check(ds, index, e)) return -1;
    struct augment_key k = {index, visit};
    if (field == PAIR_INPUT) return d->skip ? sound_read(d, k, out, e) : strict_read(d, k, out, e);
    ds_class_write(&d->want, d->classes, d->list.image.v[index].class, out);
    return 0;
}

uint64_t images_count(const struct ds *ds) { return ((const struct images *)ds)->count; }

static int names_list(const struct conf *c, enum ds_part part, bool labels, struct image_list *l, struct err *e)
{
    const char *of = c->data.train, *path = part == DS_TRAIN ? of : c->data.test;
    if (image_list_read(path, labels, part == DS_TEST ? of : NULL, l, e)) return -1;
    if (!labels) image_list_classes(l, of ? of : path);
    return 0;
}

static int names_open(const struct conf *c, enum ds_part part, const struct ds_want *want, struct ds **out,
                      struct err *e)
{
    return images_open(&ds_images, names_list, c, part, want, out, e);
}

void images_name(const struct ds *ds, uint64_t sample, struct text *t)
{
    image_list_path(&((const struct images *)ds)->list, sample, t);
}

static void picture_report(const struct images *d, uint64_t i, const struct ds_sink *to)
{
    struct image_bytes b = {.fd = -1};
    struct err none = {0};
    if (!image_list_open(&d->list, i, &b, &none)) {
        ds_bytes_report(to, b.fd, b.path.s, b.at, b.size);
        close(b.fd);
    }
    text_free(&b.path);
}

/* Puts the classes of all pictures, and bytes of some. It omits names, because a folder, a list and archives give the
 * same samples different names. */
void images_report(const struct ds *ds, const struct ds_sink *to)
{
    const struct images *d = (const struct images *)ds;
    for (uint64_t i = 0; i < d->count; i++) to->put(to->ctx, &d->list.image.v[i].class, sizeof(int64_t));
    for (int i = 0; i < DS_TOLD; i++) picture_report(d, ds_message(d->count, i), to);
}

const struct ds_kind ds_images = {
    .name = "images",
    .text = "folders of JPEG or PNG files, one a class, a list of files with labels, or tar archives of files "
            "(WebDataset); pixels are divided by 255",
    .open = names_open, .count = images_count, .read = images_read, .name_of = images_name,
    .damage = images_damage, .tell = images_report,
    .class_of = images_class, .only = images_only, .close = images_close, .kept = IMAGES_KEPT,
};
