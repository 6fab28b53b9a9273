/* idx: the MNIST family's files, plain or gzip. Big-endian header 0 0 TYPE NDIM and one u32 a dimension; unsigned bytes only. Both files are held in memory. */
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <zlib.h>
#include "data/image.h"
#include "data/ds_int.h"

struct idx_file { int ndim; uint64_t dim[4]; uint8_t *data; size_t bytes; };
struct idx { struct ds base; struct idx_file image, label; struct image_form form; uint64_t count; struct shape target; enum dtype type; };

static int file_fail(struct err *e, const char *path, uint64_t at, const char *what) { return err_set(e, E_DATA, "%s: offset %llu: %s", path, (unsigned long long)at, what); }

/* Reads n bytes; a short file is an error at the offset where it ends. */
static int get(gzFile f, const char *path, void *p, size_t n, uint64_t *at, struct err *e)
{
    for (size_t done = 0; done < n;) {
        size_t piece = n - done < 1 << 30 ? n - done : 1 << 30;
        int k = gzread(f, (char *)p + done, (unsigned)piece), code;
        if (k < 0) return file_fail(e, path, *at, gzerror(f, &code));
        if (k == 0) return file_fail(e, path, *at, "the file ends here");
        done += (size_t)k;
        *at += (uint64_t)k;
    }
    return 0;
}

/* The data is read in pieces that grow with what is really there, so a header that lies about sizes costs no memory. */
static int data_read(gzFile f, const char *path, struct idx_file *x, size_t bytes, uint64_t *at, struct err *e)
{
    size_t have = 0, room = bytes < 1 << 20 ? bytes : 1 << 20;
    while (have < bytes) {
        x->data = mem_resize(x->data, room);
        if (get(f, path, x->data + have, room - have, at, e)) return -1;
        have = room;
        room = bytes - have < have ? bytes : 2 * have;
    }
    x->bytes = bytes;
    uint8_t more;
    return gzread(f, &more, 1) > 0 ? file_fail(e, path, *at, "bytes after the last element") : 0;
}

static int idx_parse(gzFile f, const char *path, int ndim, struct idx_file *x, struct err *e)
{
    uint8_t h[4];
    uint64_t at = 0;
    size_t bytes = 1;
    if (get(f, path, h, 4, &at, e)) return -1;
    if (h[0] || h[1]) return file_fail(e, path, 0, "this is no IDX file: it does not begin with two zero bytes");
    if (h[2] != 8) return file_fail(e, path, 2, "only unsigned bytes are supported");
    if (h[3] != ndim && !(ndim == 3 && h[3] == 4)) return file_fail(e, path, 3, ndim == 1 ? "labels must have one dimension" : "images must have three dimensions (or four, with channels)");
    x->ndim = h[3];
    for (int i = 0; i < x->ndim; i++) {
        if (get(f, path, h, 4, &at, e)) return -1;
        x->dim[i] = (uint64_t)h[0] << 24 | (uint64_t)h[1] << 16 | (uint64_t)h[2] << 8 | h[3];
        if (!x->dim[i]) return file_fail(e, path, at - 4, "a dimension is zero");
        bytes = size_mul(bytes, (size_t)x->dim[i]);
    }
    if (bytes > (size_t)1 << 40) return file_fail(e, path, 4, "the dimensions promise more than 1 TiB");
    return data_read(f, path, x, bytes, &at, e);
}

static int idx_load(const char *path, int ndim, struct idx_file *x, struct err *e)
{
    errno = 0;
    gzFile f = gzopen(path, "rb");
    if (!f) return err_set(e, errno == ENOENT || errno == ENOTDIR ? E_NOINPUT : errno == EACCES ? E_PERM : E_IO, "%s: %s", path, errno ? strerror(errno) : "cannot be opened");
    gzbuffer(f, 1 << 17);
    int bad = idx_parse(f, path, ndim, x, e);
    gzclose(f);
    return bad;
}

static int labels_check(const struct idx *d, const char *path, int64_t classes, struct err *e)
{
    for (uint64_t i = 0; i < d->label.dim[0]; i++)
        if (d->label.data[i] >= classes) return err_set(e, E_DATA, "%s: offset %llu: label %d, but there are only %lld classes", path, (unsigned long long)(8 + i), d->label.data[i], (long long)classes);
    return 0;
}

static int idx_setup(const struct conf *c, enum ds_part part, const char *images, const char *labels, struct idx *d, const struct shape *input, struct err *e)
{
    if (idx_load(images, 3, &d->image, e) || idx_load(labels, 1, &d->label, e)) return -1;
    if (d->image.dim[0] != d->label.dim[0])
        return err_set(e, E_DATA, "%s: offset 4: %llu labels for the %llu images of %s", labels, (unsigned long long)d->label.dim[0], (unsigned long long)d->image.dim[0], images);
    int with = d->image.ndim == 4;
    if (image_form_make(c, images, with ? (int64_t)d->image.dim[1] : 1, (int64_t)d->image.dim[1 + with], (int64_t)d->image.dim[2 + with], input, &d->form, e)) return -1;
    int64_t limit = part == DS_TRAIN ? c->data.samples : c->data.test_samples;
    d->count = limit && (uint64_t)limit < d->image.dim[0] ? (uint64_t)limit : d->image.dim[0];
    return labels_check(d, labels, target_classes(c, &d->target, d->type), e);
}

static void idx_close(struct ds *base)
{
    struct idx *d = (struct idx *)base;
    free(d->image.data);
    free(d->label.data);
    free(d);
}

static int idx_open(const struct conf *c, enum ds_part part, const struct ds_want *want, struct ds **out, struct err *e)
{
    const struct shape *input = &want->input;
    const char *images = part == DS_TRAIN ? c->data.train_images : c->data.test_images, *labels = part == DS_TRAIN ? c->data.train_labels : c->data.test_labels;
    if (!images) return 0;
    struct idx *d = mem_alloc(sizeof *d);
    *d = (struct idx){.base = {&ds_idx}, .target = want->target, .type = want->target_type};
    if (idx_setup(c, part, images, labels, d, input, e)) { idx_close(&d->base); return -1; }
    *out = &d->base;
    return 0;
}

static uint64_t idx_count(const struct ds *d) { return ((const struct idx *)d)->count; }

static int idx_read(struct ds *base, uint64_t i, float *x, void *y, struct err *e)
{
    struct idx *d = (struct idx *)base;
    size_t one = d->image.bytes / (size_t)d->image.dim[0];
    if (i >= d->count) return err_set(e, E_INTERNAL, "sample %llu of %llu", (unsigned long long)i, (unsigned long long)d->count);
    if (x) image_convert(&d->form, d->image.data + i * one, x);
    if (y) target_write(d->label.data[i], &d->target, d->type, y);
    return 0;
}

const struct ds_kind ds_idx = {"idx", "IDX files (MNIST, Fashion-MNIST), plain or gzip", idx_open, idx_count, idx_read, idx_close};
