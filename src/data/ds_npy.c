/* npy: a pair of NumPy files. Images are float32 (or float64, uint8), N first, as stored; mean and std only if set. Targets are int64 (or int32, uint8) classes, or
 * float32 vectors. C order only; object arrays (pickle) are refused. Read by pread, so a file that shrinks while in use is an error and no signal. */
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>
#include "data/image.h"
#include "data/ds_int.h"

struct npy { const char *path; int fd; char type; int width; struct shape shape; uint64_t data, size; };  /* type: f i u; width in bytes */
struct npy_pair { struct ds base; struct npy x, y; uint64_t count; int64_t x_n, y_n; struct shape target; enum dtype target_type; double mean[CONF_LIST], std[CONF_LIST]; int norm;
                  int64_t plane, classes; void *buf; };

static int fail(struct err *e, const struct npy *f, uint64_t at, const char *what) { return err_set(e, E_DATA, "%s: offset %llu: %s", f->path, (unsigned long long)at, what); }

static int get(const struct npy *f, void *p, size_t n, uint64_t at, struct err *e)
{
    for (size_t done = 0; done < n;) {
        ssize_t k = pread(f->fd, (char *)p + done, n - done, (off_t)(at + done));
        if (k < 0 && errno == EINTR) continue;
        if (k < 0) return err_set(e, E_IO, "%s: %s", f->path, strerror(errno));
        if (k == 0) return fail(e, f, at + done, "the file ends here");
        done += (size_t)k;
    }
    return 0;
}

/* ---- header: a Python dictionary with descr, fortran_order, shape in any order -------------------------------------------------------------- */

static const char *after_key(const char *h, const char *key)
{
    const char *at = strstr(h, key);
    if (!at) return NULL;
    at += strlen(key);
    at += strspn(at, " ");
    if (*at != ':') return NULL;
    at++;
    return at + strspn(at, " ");
}

static int descr_parse(struct npy *f, const char *at, struct err *e)
{
    if (!at || *at != '\'') return fail(e, f, 10, "the header has no descr");
    char order = at[1], type = order ? at[2] : 0, width = type ? at[3] : 0;
    if (strchr(at + 1, '\'') != at + 4) return fail(e, f, 10, "only plain numbers are supported, no object or structured arrays");
    if ((order != '<' && order != '|') || !strchr("fiu", type) || !strchr("148", width) || (type == 'f' && width == '1') || (order == '|' && width != '1'))
        return fail(e, f, 10, "only little-endian float32, float64, int32, int64 and uint8 are supported");
    f->type = type;
    f->width = width - '0';
    return 0;
}

static int shape_parse(struct npy *f, const char *at, struct err *e)
{
    if (!at || *at++ != '(') return fail(e, f, 10, "the header has no shape");
    for (;;) {
        at += strspn(at, " ,");
        if (*at == ')') return 0;
        char *end;
        errno = 0;
        long long d = *at >= '0' && *at <= '9' ? strtoll(at, &end, 10) : -1;
        if (d < 0 || errno || d > INT64_C(1) << 48) return fail(e, f, 10, "a dimension is no sensible number");
        if (f->shape.n == MAX_DIMS) return fail(e, f, 10, "too many dimensions");
        f->shape.d[f->shape.n++] = d;
        at = end;
    }
}

static int header_parse(struct npy *f, struct err *e)
{
    unsigned char b[12];
    char h[65536];
    if (get(f, b, 10, 0, e)) return -1;
    if (memcmp(b, "\x93NUMPY", 6)) return fail(e, f, 0, "this is no .npy file");
    if (b[6] < 1 || b[6] > 3) return fail(e, f, 6, "unknown version of the format");
    size_t n = b[8] | (size_t)b[9] << 8, start = 10;
    if (b[6] > 1) {
        if (get(f, b + 10, 2, 10, e)) return -1;
        n |= (size_t)b[10] << 16 | (size_t)b[11] << 24;
        start = 12;
    }
    if (n >= sizeof h) return fail(e, f, 8, "the header claims to be longer than 64 KiB");
    if (get(f, h, n, start, e)) return -1;
    h[n] = 0;
    if (strlen(h) != n || h[0] != '{') return fail(e, f, start, "the header is no dictionary");
    const char *order = after_key(h, "'fortran_order'");
    if (!order || (strncmp(order, "False", 5) && strncmp(order, "True", 4))) return fail(e, f, start, "the header has no fortran_order");
    if (order[0] == 'T') return fail(e, f, start, "Fortran order is not supported");
    if (descr_parse(f, after_key(h, "'descr'"), e) || shape_parse(f, after_key(h, "'shape'"), e)) return -1;
    f->data = start + n;
    size_t bytes = (size_t)f->width;
    for (int i = 0; i < f->shape.n; i++) bytes = size_mul(bytes, (size_t)f->shape.d[i]);
    if (bytes == SIZE_MAX || bytes != f->size - f->data) return fail(e, f, f->data, "shape and file size disagree");
    return 0;
}

static int npy_open_file(struct npy *f, const char *path, struct err *e)
{
    struct stat info;
    f->path = path;
    f->fd = open(path, O_RDONLY | O_CLOEXEC);
    if (f->fd < 0) return err_set(e, errno == ENOENT || errno == ENOTDIR ? E_NOINPUT : errno == EACCES ? E_PERM : E_IO, "%s: %s", path, strerror(errno));
    if (fstat(f->fd, &info) || !S_ISREG(info.st_mode)) return err_set(e, E_DATA, "%s: is no regular file", path);
    f->size = (uint64_t)info.st_size;
    if (header_parse(f, e)) return -1;
    return f->shape.n < 1 || !f->shape.d[0] ? fail(e, f, 10, "there are no samples") : 0;
}

/* ---- the pair ------------------------------------------------------------------------------------------------------------------------------- */

static int shapes_check(const struct conf *c, struct npy_pair *d, const struct shape *input, struct err *e)
{
    struct shape x = {d->x.shape.n - 1, {0}}, y = {d->y.shape.n - 1, {0}};
    char a[96], b[96];
    memcpy(x.d, d->x.shape.d + 1, sizeof x.d - sizeof *x.d);
    memcpy(y.d, d->y.shape.d + 1, sizeof y.d - sizeof *y.d);
    if (!shape_equal(&x, input)) return err_set(e, E_DATA, "%s: offset 10: samples of %s, the network wants %s", d->x.path, shape_text(&x, a), shape_text(input, b));
    bool classes = y.n == 0 && d->y.type != 'f', vectors = shape_equal(&y, &d->target) && d->y.type == 'f' && d->target_type == F32;
    if (!classes && !vectors) return err_set(e, E_DATA, "%s: offset 10: targets of %s (type %c%d), the network wants classes%s%s", d->y.path, shape_text(&y, a), d->y.type, d->y.width,
                                             d->target_type == F32 ? " or float vectors of " : "", d->target_type == F32 ? shape_text(&d->target, b) : "");
    if (d->x.shape.d[0] != d->y.shape.d[0])
        return err_set(e, E_DATA, "%s: offset 10: %lld targets for the %lld samples of %s", d->y.path, (long long)d->y.shape.d[0], (long long)d->x.shape.d[0], d->x.path);
    return 0;
}

static int norm_make(const struct conf *c, struct npy_pair *d, const struct shape *input, struct err *e)
{
    int64_t channels = input->n ? input->d[0] : 1;
    d->norm = c->data.mean.n;
    d->plane = d->x_n / channels;
    if (d->norm > 1 && d->norm != channels) return conf_error(c, "data.mean", e, "%d values for %lld channels", d->norm, (long long)channels);
    if (d->norm && c->data.std.n != d->norm && c->data.std.n != 1) return conf_error(c, "data.std", e, "%d values, but %d means", c->data.std.n, d->norm);
    for (int i = 0; i < d->norm; i++) { d->mean[i] = c->data.mean.v[i]; d->std[i] = c->data.std.v[c->data.std.n == 1 ? 0 : i]; }
    return 0;
}

static void npy_close(struct ds *base)
{
    struct npy_pair *d = (struct npy_pair *)base;
    if (d->x.fd >= 0) close(d->x.fd);
    if (d->y.fd >= 0) close(d->y.fd);
    free(d->buf);
    free(d);
}

static int npy_open(const struct conf *c, enum ds_part part, const struct ds_want *want, struct ds **out, struct err *e)
{
    const struct shape *input = &want->input;
    const char *x = part == DS_TRAIN ? c->data.train_images : c->data.test_images, *y = part == DS_TRAIN ? c->data.train_labels : c->data.test_labels;
    if (!x) return 0;
    struct npy_pair *d = mem_alloc(sizeof *d);
    *d = (struct npy_pair){.base = {&ds_npy}, .x = {.fd = -1}, .y = {.fd = -1}, .x_n = shape_count(input), .y_n = shape_count(&want->target), .target = want->target, .target_type = want->target_type};
    d->classes = target_classes(c, &want->target, want->target_type);
    if (npy_open_file(&d->x, x, e) || npy_open_file(&d->y, y, e) || shapes_check(c, d, input, e) || norm_make(c, d, input, e)) { npy_close(&d->base); return -1; }
    int64_t limit = part == DS_TRAIN ? c->data.samples : c->data.test_samples;
    d->count = (uint64_t)(limit && limit < d->x.shape.d[0] ? limit : d->x.shape.d[0]);
    d->buf = mem_alloc((size_t)(d->x_n > d->y_n ? d->x_n : d->y_n) * 8 + 8);
    *out = &d->base;
    return 0;
}

static uint64_t npy_count(const struct ds *d) { return ((const struct npy_pair *)d)->count; }

static double number_at(const struct npy *f, const void *p, int64_t i)
{
    if (f->type == 'f') return f->width == 4 ? ((const float *)p)[i] : ((const double *)p)[i];
    if (f->width == 8) return f->type == 'i' ? (double)((const int64_t *)p)[i] : (double)((const uint64_t *)p)[i];
    if (f->width == 4) return f->type == 'i' ? (double)((const int32_t *)p)[i] : (double)((const uint32_t *)p)[i];
    return f->type == 'i' ? ((const int8_t *)p)[i] : ((const uint8_t *)p)[i];
}

static int target_read(struct npy_pair *d, uint64_t i, void *y, struct err *e)
{
    bool vector = d->y.shape.n > 1;
    uint64_t n = vector ? (uint64_t)d->y_n : 1, at = d->y.data + i * n * (uint64_t)d->y.width;
    if (get(&d->y, d->buf, (size_t)n * (size_t)d->y.width, at, e)) return -1;
    if (vector) {
        for (uint64_t k = 0; k < n; k++) ((float *)y)[k] = (float)number_at(&d->y, d->buf, (int64_t)k);
        return 0;
    }
    double cls = number_at(&d->y, d->buf, 0);
    if (cls < 0 || cls >= (double)d->classes) return fail(e, &d->y, at, "a class is out of range");
    target_write((int64_t)cls, &d->target, d->target_type, y);
    return 0;
}

static int npy_read(struct ds *base, uint64_t i, float *x, void *y, struct err *e)
{
    struct npy_pair *d = (struct npy_pair *)base;
    if (i >= d->count) return err_set(e, E_INTERNAL, "sample %llu of %llu", (unsigned long long)i, (unsigned long long)d->count);
    if (y && target_read(d, i, y, e)) return -1;
    if (!x) return 0;
    size_t bytes = (size_t)d->x_n * (size_t)d->x.width;
    bool plain = d->x.type == 'f' && d->x.width == 4;
    if (get(&d->x, plain ? (void *)x : d->buf, bytes, d->x.data + i * bytes, e)) return -1;
    for (int64_t k = 0; k < d->x_n && (!plain || d->norm); k++) {
        double v = plain ? x[k] : number_at(&d->x, d->buf, k);
        int64_t ch = d->norm > 1 ? k / d->plane : 0;
        x[k] = (float)(d->norm ? (v - d->mean[ch]) / d->std[ch] : v);
    }
    return 0;
}

const struct ds_kind ds_npy = {"npy", "a pair of NumPy files", npy_open, npy_count, npy_read, npy_close};
