/* The formats follow nifti1.h and nifti2.h of the NIfTI Data Format Working Group. */
#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "base/file.h"
#include "base/mem.h"
#include "data/nifti.h"
#include "data/gzip_file.h"

/* Offsets of fields. Version 2 has dimensions of 64 bits instead of 16, codes of 32 instead of 16, reals of 64 instead
 * of 32. */
struct layout { int bytes, first, dim, type, bitpix, pixdim, offset, slope, inter, qform, sform, quatern, qoffset, srow,
                    magic, cal; };
static const struct layout layouts[3] = {
    [1] = {348, 352, 40, 70, 72, 76, 108, 112, 116, 252, 254, 256, 268, 280, 344, 124},
    [2] = {540, 544, 16, 12, 14, 104, 168, 176, 184, 344, 348, 352, 376, 400, 4, 192},
};

static const struct { int code, bytes; const char *name; } types[] = {
    {2, 1, "uint8"}, {4, 2, "int16"}, {8, 4, "int32"}, {16, 4, "float32"}, {64, 8, "float64"}, {256, 1, "int8"},
    {512, 2, "uint16"}, {768, 4, "uint32"}, {1024, 8, "int64"}, {1280, 8, "uint64"},
};
enum { N_TYPES = sizeof types / sizeof *types };
static const struct { int code; const char *name; } other_types[] = {
    {1, "bits"}, {32, "complex64"}, {128, "RGB"}, {1536, "float128"}, {1792, "complex128"}, {2048, "complex256"},
    {2304, "RGBA"},
};

uint64_t nifti_voxels(const struct nifti *f) { return (uint64_t)f->dim[0] * (uint64_t)f->dim[1] * (uint64_t)f->dim[2]; }
const char *nifti_type_name(const struct nifti *f) { return types[f->type].name; }

double nifti_side(const struct nifti *f, int axis)
{
    const double *x = &f->affine[0][axis], *y = &f->affine[1][axis], *z = &f->affine[2][axis];
    return sqrt(*x * *x + *y * *y + *z * *z);
}

/* ---- numbers of a header ----------------------------------------------------------------------------------------- */

/* The bits at an offset, of 1, 2, 4 or 8 bytes. */
static uint64_t bits_at(const struct nifti *f, const unsigned char *p, int bytes)
{
    uint64_t v = 0;
    for (int i = 0; i < bytes; i++) v |= (uint64_t)p[f->swapped ? bytes - 1 - i : i] << 8 * i;
    return v;
}

static int64_t whole_at(const struct nifti *f, int at, int bytes)
{
    uint64_t v = bits_at(f, f->header + at, bytes);
    return bytes == 2 ? (int16_t)v : bytes == 4 ? (int32_t)v : (int64_t)v;
}

static double real_of(uint64_t bits, int bytes)
{
    uint32_t half = (uint32_t)bits;
    float single;
    double wide;
    memcpy(&single, &half, sizeof single);
    memcpy(&wide, &bits, sizeof wide);
    return bytes == 4 ? single : wide;
}

/* The i-th of the reals at an offset. */
static double real_at(const struct nifti *f, int at, int i)
{
    int bytes = f->version == 1 ? 4 : 8;
    return real_of(bits_at(f, f->header + at + i * bytes, bytes), bytes);
}

static int64_t dim_at(const struct nifti *f, int i)
{
    int bytes = f->version == 1 ? 2 : 8;
    return whole_at(f, layouts[f->version].dim + i * bytes, bytes);
}

static int code_at(const struct nifti *f, int at) { return (int)whole_at(f, at, f->version == 1 ? 2 : 4); }

static int field_fail(const struct nifti *f, int at, struct err *e, const char *fmt, ...)
    __attribute__((format(printf, 4, 5)));
static int field_fail(const struct nifti *f, int at, struct err *e, const char *fmt, ...)
{
    char what[200];
    va_list list;
    va_start(list, fmt);
    vsnprintf(what, sizeof what, fmt, list);
    va_end(list);
    return err_set(e, E_DATA, "%s: offset %d: %s", f->path, at, what);
}

static void repaired(struct nifti *f, const char *fmt, ...) __attribute__((format(printf, 2, 3)));
static void repaired(struct nifti *f, const char *fmt, ...)
{
    size_t at = strlen(f->repaired);
    if (at) at += (size_t)snprintf(f->repaired + at, sizeof f->repaired - at, ", ");
    if (at >= sizeof f->repaired) return;
    va_list list;
    va_start(list, fmt);
    vsnprintf(f->repaired + at, sizeof f->repaired - at, fmt, list);
    va_end(list);
}

/* ---- the header -------------------------------------------------------------------------------------------------- */

/* Finds version and byte order by the first four bytes. */
static int version_find(struct nifti *f, struct err *e)
{
    for (int i = 0; i < 4; i++) {
        f->version = 1 + i / 2;
        f->swapped = i % 2;
        if (whole_at(f, 0, 4) == layouts[f->version].bytes) return 0;
    }
    return field_fail(f, 0, e, "not a NIfTI file: its header has neither 348 nor 540 bytes");
}

static int magic_check(struct nifti *f, struct err *e)
{
    static const char end[] = {'\r', '\n', '\032', '\n'}, none[4];
    const int at = layouts[f->version].magic;
    const char *m = (const char *)f->header + at, digit = (char)('0' + f->version);
    if (m[0] == 'n' && m[1] == 'i' && m[2] == digit && !m[3])
        return field_fail(f, at, e, "a header whose voxels are in another file (.hdr and .img) is not read");
    if (m[0] != 'n' || m[1] != '+' || m[2] != digit || m[3])
        return field_fail(f, at, e, "not a NIfTI file: no \"n+%c\" here", digit);
    if (f->version == 1 || !memcmp(m + 4, end, 4)) return 0;
    if (memcmp(m + 4, none, 4)) return field_fail(f, at + 4, e, "something has changed the file's ends of lines");
    repaired(f, "ends of lines 0");
    return 0;
}

static int type_find(struct nifti *f, struct err *e)
{
    const struct layout *l = &layouts[f->version];
    int code = (int)whole_at(f, l->type, 2), bits = (int)whole_at(f, l->bitpix, 2);
    for (f->type = 0; f->type < N_TYPES && types[f->type].code != code; f->type++) {}
    for (size_t i = 0; i < sizeof other_types / sizeof *other_types; i++)
        if (other_types[i].code == code)
            return field_fail(f, l->type, e, "voxels of type %s are not read", other_types[i].name);
    if (f->type == N_TYPES) return field_fail(f, l->type, e, "voxels of an unknown type, %d", code);
    if (bits != 8 * types[f->type].bytes) repaired(f, "bitpix %d of %s", bits, types[f->type].name);
    return 0;
}

/* Trailing dimensions of 1 are ignored; missing ones are 1. */
static int dims_find(struct nifti *f, struct err *e)
{
    const int at = layouts[f->version].dim, bytes = f->version == 1 ? 2 : 8;
    int64_t n = dim_at(f, 0);
    if (n < 1 || n > 7) return field_fail(f, at, e, "%lld dimensions, expected 1 to 7", (long long)n);
    for (int i = 0; i < NIFTI_DIMS; i++) f->dim[i] = 1;
    for (int i = 1; i <= n; i++) {
        int64_t d = dim_at(f, i);
        if (d < 1) return field_fail(f, at + i * bytes, e, "dimension %d is %lld", i, (long long)d);
        if (i > NIFTI_DIMS && d > 1)
            return field_fail(f, at + i * bytes, e, "dimension %d is %lld: only x, y, z and channels are read", i,
                              (long long)d);
        if (d > NIFTI_SIDE) return field_fail(f, at + i * bytes, e, "dimension %d is %lld, more than %d", i,
                                              (long long)d, NIFTI_SIDE);
        if (i <= NIFTI_DIMS) f->dim[i - 1] = d;
    }
    return 0;
}

/* Finds where the voxels begin, and checks that the file can hold them. */
static int place_find(struct nifti *f, const struct gzip_file *from, struct err *e)
{
    const struct layout *l = &layouts[f->version];
    double at = f->version == 1 ? real_at(f, l->offset, 0) : (double)whole_at(f, l->offset, 8);
    if (!(at >= l->first && at <= 0x1p62) || at != floor(at))
        return field_fail(f, l->offset, e, "voxels begin at byte %g, expected a whole number from %d", at, l->first);
    f->begin = f->version == 1 ? (uint64_t)at : (uint64_t)whole_at(f, l->offset, 8);
    if (f->begin % 16) repaired(f, "offset %llu is not a multiple of 16", (unsigned long long)f->begin);
    uint64_t n = (uint64_t)types[f->type].bytes, most = gzip_most(from);
    for (int i = 0; i < NIFTI_DIMS; i++) n = size_mul(n, (size_t)f->dim[i]);
    uint64_t need = size_add(n, f->begin);
    if (need > most)
        return field_fail(f, l->dim, e, "%lldx%lldx%lldx%lld voxels of %s need a file of %llu bytes, this one has "
                          "%s%llu", (long long)f->dim[0], (long long)f->dim[1], (long long)f->dim[2],
                          (long long)f->dim[3], types[f->type].name, (unsigned long long)need,
                          from->packed ? "at most " : "", (unsigned long long)most);
    n /= (uint64_t)types[f->type].bytes;
    if (n > NIFTI_VOXELS)
        return field_fail(f, l->dim, e, "%llu voxels, more than %d", (unsigned long long)n, NIFTI_VOXELS);
    return 0;
}

static int scale_find(struct nifti *f, struct err *e)
{
    const struct layout *l = &layouts[f->version];
    f->slope = real_at(f, l->slope, 0);
    f->inter = real_at(f, l->inter, 0);
    if (f->slope == 0 || !isfinite(f->slope)) f->slope = f->inter = 0;
    else if (!isfinite(f->inter))
        return field_fail(f, l->inter, e, "values are scaled by %g, but what is added, %g, is not a number", f->slope,
                          f->inter);
    return 0;
}

/* ---- the affine, as nibabel decides ------------------------------------------------------------------------------ */

static void srow_take(struct nifti *f)
{
    for (int i = 0; i < 12; i++) f->affine[i / 4][i % 4] = real_at(f, layouts[f->version].srow, i);
}

/* Rotation by the quaternion, whose first part follows from the others, then voxel sizes; the last has the sign of
 * qfac. A remainder within the rounding of the others counts as 0, a half turn, as in nibabel from 5.1 on; its square
 * root would be 600 times that rounding. */
static int qform_take(struct nifti *f, const double side[3], double qfac, struct err *e)
{
    const struct layout *l = &layouts[f->version];
    const double x = real_at(f, l->quatern, 0), y = real_at(f, l->quatern, 1), z = real_at(f, l->quatern, 2);
    const double rest = 1 - (x * x + y * y + z * z), slack = 3 * (f->version == 1 ? 0x1p-23 : 0x1p-52);
    if (!(rest > -slack)) return field_fail(f, l->quatern, e, "not a rotation: (%g, %g, %g) is longer than 1", x, y, z);
    const double w = rest < slack ? 0 : sqrt(rest), s = 2 / (w * w + x * x + y * y + z * z);
    const double r[3][3] = {{1 - s * (y * y + z * z), s * (x * y - w * z), s * (x * z + w * y)},
                            {s * (x * y + w * z), 1 - s * (x * x + z * z), s * (y * z - w * x)},
                            {s * (x * z - w * y), s * (y * z + w * x), 1 - s * (x * x + y * y)}};
    for (int i = 0; i < 3; i++) {
        for (int k = 0; k < 3; k++) f->affine[i][k] = r[i][k] * side[k] * (k == 2 ? qfac : 1);
        f->affine[i][3] = real_at(f, l->qoffset, i);
    }
    return 0;
}

/* Origin at the centre; x is assumed to go left. */
static void sides_take(struct nifti *f, const double side[3])
{
    for (int i = 0; i < 3; i++) {
        for (int k = 0; k < 3; k++) f->affine[i][k] = 0;
        f->affine[i][i] = i ? side[i] : -side[i];
        f->affine[i][3] = -f->affine[i][i] * (double)(f->dim[i] - 1) / 2;
    }
}

static double determinant(const double a[3][4])
{
    return a[0][0] * (a[1][1] * a[2][2] - a[1][2] * a[2][1]) - a[0][1] * (a[1][0] * a[2][2] - a[1][2] * a[2][0]) +
           a[0][2] * (a[1][0] * a[2][1] - a[1][1] * a[2][0]);
}

/* Checks for three different directions, whatever the step sizes. */
static int affine_check(const struct nifti *f, int at, struct err *e)
{
    double size = nifti_side(f, 0) * nifti_side(f, 1) * nifti_side(f, 2);
    bool good = size > 0 && isfinite(size) && fabs(determinant(f->affine)) >= 1e-4 * size;
    for (int i = 0; i < 12; i++) good &= isfinite(f->affine[i / 4][i % 4]) && fabs(f->affine[i / 4][i % 4]) < 1e12;
    return good ? 0 : field_fail(f, at, e, "the volume's axes are not three directions");
}

static int form_code(struct nifti *f, int at, const char *name)
{
    int code = code_at(f, at);
    if (code >= 0 && code <= 5) return code;
    repaired(f, "%s code %d", name, code);
    return 0;
}

static int affine_find(struct nifti *f, struct err *e)
{
    const struct layout *l = &layouts[f->version];
    double side[3], qfac = real_at(f, l->pixdim, 0);
    for (int i = 0; i < 3; i++) {
        double was = side[i] = real_at(f, l->pixdim, i + 1);
        if (!(was <= 0)) continue;
        side[i] = was == 0 ? 1 : -was;
        repaired(f, "voxel size %g", was);
    }
    if (qfac != 1 && qfac != -1) {
        repaired(f, "qfac %g", qfac);
        qfac = 1;
    }
    int qform = form_code(f, l->qform, "qform"), sform = form_code(f, l->sform, "sform");
    if (sform) srow_take(f);
    else if (qform && qform_take(f, side, qfac, e)) return -1;
    if (!sform && !qform) {
        sides_take(f, side);
        repaired(f, "no affine");
    }
    return affine_check(f, sform ? l->srow : qform ? l->quatern : l->pixdim, e);
}

/* Stops after the header. */
static int header_read(struct nifti *f, struct gzip_file *from, struct err *e)
{
    const int least = layouts[1].bytes;
    if (gzip_open(f->path, 1, "a NIfTI file", from, e) ||
        gzip_read(from, f->header, (uint64_t)least, e)) return -1;
    if (version_find(f, e)) return -1;
    const int more = layouts[f->version].bytes - least;
    if (more && gzip_read(from, f->header + least, (uint64_t)more, e)) return -1;
    return magic_check(f, e) || type_find(f, e) || dims_find(f, e) || place_find(f, from, e) || scale_find(f, e) ||
           affine_find(f, e) ? -1 : 0;
}

int nifti_open(const char *path, struct nifti *f, struct err *e)
{
    struct gzip_file from = {0};
    *f = (struct nifti){.path = path};
    int bad = header_read(f, &from, e);
    gzip_close(&from);
    return bad;
}

/* ---- voxels ------------------------------------------------------------------------------------------------------ */

enum { PIECE = 2048 };
/* Receives n voxels, from number `first` on. */
typedef int voxels_take(const struct nifti *f, void *ctx, uint64_t first, const double *v, int n, struct err *e);

static double value_of(const struct nifti *f, const unsigned char *p)
{
    const int bytes = types[f->type].bytes;
    const uint64_t v = bits_at(f, p, bytes);
    switch (types[f->type].code) {
    case 4: return (int16_t)v;
    case 8: return (int32_t)v;
    case 16: case 64: return real_of(v, bytes);
    case 256: return (int8_t)v;
    case 1024: return (double)(int64_t)v;
    default: return (double)v;
    }
}

static int voxels_fail(const struct nifti *f, uint64_t voxel, double v, const char *what, struct err *e)
{
    return err_set(e, E_DATA, "%s: offset %llu: voxel %lldx%lldx%lld is %.10g, %s", f->path,
                   (unsigned long long)(f->begin + voxel * (uint64_t)types[f->type].bytes),
                   (long long)(voxel % (uint64_t)f->dim[0]), (long long)(voxel / (uint64_t)f->dim[0] %
                   (uint64_t)f->dim[1]), (long long)(voxel / (uint64_t)(f->dim[0] * f->dim[1]) % (uint64_t)f->dim[2]),
                   v, what);
}

static int pieces_read(const struct nifti *f, struct gzip_file *from, voxels_take *take, void *ctx, struct err *e)
{
    unsigned char raw[PIECE * 8];
    double v[PIECE];
    const int bytes = types[f->type].bytes;
    const uint64_t all = nifti_voxels(f) * (uint64_t)f->dim[3];
    if (gzip_skip(from, f->begin - from->at, e)) return -1;
    for (uint64_t first = 0; first < all; first += PIECE) {
        int n = all - first < PIECE ? (int)(all - first) : PIECE;
        struct err own = {0};
        if (gzip_read(from, raw, (uint64_t)(n * bytes), &own)) {
            if (own.code != E_DATA) return err_set(e, own.code, "%s", own.text);
            return err_set(e, own.code, "%s (its voxels end at %llu)", own.text,
                           (unsigned long long)(f->begin + all * (uint64_t)bytes));
        }
        for (int i = 0; i < n; i++) v[i] = value_of(f, raw + i * bytes);
        for (int i = 0; i < n && f->slope != 0; i++) v[i] = f->slope * v[i] + f->inter;
        if (take(f, ctx, first, v, n, e)) return -1;
    }
    return gzip_more(from, e) < 0 ? -1 : 0;
}

/* Reads the header again, because the file may have been replaced. */
static int voxels_read(const struct nifti *f, voxels_take *take, void *ctx, struct err *e)
{
    struct nifti now = {.path = f->path};
    struct gzip_file from = {0};
    int bad = header_read(&now, &from, e);
    if (!bad && memcmp(now.header, f->header, sizeof now.header))
        bad = err_set(e, E_DATA, "%s: offset 0: the header is no longer the one that was read at the start", f->path);
    if (!bad) bad = pieces_read(f, &from, take, ctx, e);
    gzip_close(&from);
    return bad;
}

static int values_take(const struct nifti *f, void *ctx, uint64_t first, const double *v, int n, struct err *e)
{
    float *out = (float *)ctx + first;
    for (int i = 0; i < n; i++) {
        out[i] = (float)v[i];
        if (!isfinite(out[i])) return voxels_fail(f, first + (uint64_t)i, v[i], "which is not finite", e);
    }
    return 0;
}

int nifti_values(const struct nifti *f, float *values, struct err *e)
{
    return voxels_read(f, values_take, values, e);
}

/* Takes up to four digits, and moves *s past them. */
static bool number_take(const char **s, int64_t *out)
{
    size_t n = strspn(*s, "0123456789");
    if (n < 1 || n > 4) return false;
    for (*out = 0; n--; ++*s) *out = *out * 10 + (**s - '0');
    return true;
}

int nifti_map_add(struct nifti_map *m, const char *s, struct err *e)
{
    const char *at = s;
    int64_t first = 0, last = NIFTI_MAPPED - 1, to;
    bool good = *at == '*' ? *++at == '=' : number_take(&at, &first);
    if (good && *s != '*') last = first;
    if (good && *at == '-') good = number_take((++at, &at), &last);
    if (!good || *at++ != '=' || !number_take(&at, &to) || *at)
        return err_set(e, E_CONF, "\"%.40s\": expected LABEL=CLASS, FIRST-LAST=CLASS or *=CLASS, or binary alone", s);
    if (first > last || last >= NIFTI_MAPPED)
        return err_set(e, E_CONF, "\"%.40s\": labels are 0 to %d", s, NIFTI_MAPPED - 1);
    if (to >= m->classes) return err_set(e, E_CONF, "\"%.40s\": there are %d classes", s, m->classes);
    for (int64_t i = first; i <= last; i++)
        if (m->to[i] < 0) m->to[i] = (int16_t)to;
    return 0;
}

struct labelling { const struct nifti_map *map; uint8_t *out; };

static int label_fail(const struct nifti *f, const struct nifti_map *m, uint64_t voxel, double v, bool whole,
                      struct err *e)
{
    char what[64];
    if (!whole) snprintf(what, sizeof what, "which is not a label");
    else if (m->listed) snprintf(what, sizeof what, "which is in no entry of data.label_map");
    else snprintf(what, sizeof what, "but there are %d classes", m->classes);
    return voxels_fail(f, voxel, v, what, e);
}

static int labels_take(const struct nifti *f, void *ctx, uint64_t first, const double *v, int n, struct err *e)
{
    const struct labelling *l = ctx;
    const struct nifti_map *m = l->map;
    uint8_t *out = l->out + first;
    for (int i = 0; i < n; i++) {
        if (m->binary && !isnan(v[i])) {
            out[i] = v[i] > 0;
            continue;
        }
        bool whole = v[i] >= 0 && v[i] < NIFTI_MAPPED && v[i] == floor(v[i]);
        int to = whole ? m->to[(int)v[i]] : -1;
        if (to < 0) return label_fail(f, m, first + (uint64_t)i, v[i], whole, e);
        out[i] = (uint8_t)to;
    }
    return 0;
}

int nifti_labels(const struct nifti *f, const struct nifti_map *map, uint8_t *labels, struct err *e)
{
    struct labelling l = {map, labels};
    if (f->dim[3] != 1)
        return field_fail(f, layouts[f->version].dim, e, "labels of %lld channels, expected 1", (long long)f->dim[3]);
    return voxels_read(f, labels_take, &l, e);
}

/* ---- writing ----------------------------------------------------------------------------------------------------- */

static void bits_put(const struct nifti *f, unsigned char *p, int bytes, uint64_t v)
{
    for (int i = 0; i < bytes; i++) p[f->swapped ? bytes - 1 - i : i] = (unsigned char)(v >> 8 * i);
}

/* The header of f for voxels of uint8, with the same placement. */
static void header_make(const struct nifti *f, unsigned char *h)
{
    const struct layout *l = &layouts[f->version];
    const int dim = f->version == 1 ? 2 : 8, real = f->version == 1 ? 4 : 8;
    const float first = (float)l->first, one = 1;
    uint32_t first_bits, one_bits;
    memcpy(&first_bits, &first, sizeof first_bits);
    memcpy(&one_bits, &one, sizeof one_bits);
    memcpy(h, f->header, (size_t)l->bytes);
    bits_put(f, h + l->dim, dim, 3);
    for (int i = 1; i <= 7; i++) bits_put(f, h + l->dim + i * dim, dim, i <= 3 ? (uint64_t)f->dim[i - 1] : 1);
    bits_put(f, h + l->type, 2, 2);
    bits_put(f, h + l->bitpix, 2, 8);
    bits_put(f, h + l->offset, real, f->version == 1 ? first_bits : (uint64_t)l->first);
    bits_put(f, h + l->slope, real, f->version == 1 ? one_bits : UINT64_C(0x3ff0000000000000));
    memset(h + l->inter, 0, (size_t)real);
    memset(h + l->cal, 0, (size_t)(2 * real));           /* the values to display as white and black */
}

static void deflate_add(z_stream *z, const void *p, size_t n, int flush, struct text *out)
{
    enum { BUFFER = 1 << 16, MOST = 1 << 30 };
    unsigned char *buffer = mem_alloc(BUFFER);
    const unsigned char *at = p;
    do {
        z->next_in = (unsigned char *)(uintptr_t)at;
        z->avail_in = (unsigned)(n < MOST ? n : MOST);
        at += z->avail_in;
        n -= z->avail_in;
        do {
            z->next_out = buffer;
            z->avail_out = BUFFER;
            deflate(z, n ? Z_NO_FLUSH : flush);
            text_add_bytes(out, buffer, BUFFER - z->avail_out);
        } while (!z->avail_out);
    } while (n);
    free(buffer);
}

static char mark[] = "label map of mpstaged";           /* the comment of the gzip file */

void nifti_add(struct text *out, const struct nifti *f, const uint8_t *labels)
{
    enum { GZIP = 15 + 16, MEMORY = 8, UNIX = 3 };
    z_stream z = {0};
    gz_header about = {.os = UNIX, .comment = (Bytef *)mark};
    unsigned char head[NIFTI_HEADER + 4] = {0};          /* four bytes of 0: no extensions */
    header_make(f, head);
    int bad = deflateInit2(&z, Z_DEFAULT_COMPRESSION, Z_DEFLATED, GZIP, MEMORY, Z_DEFAULT_STRATEGY);
    if (bad) mem_got(NULL);                              /* its only reason to fail */
    deflateSetHeader(&z, &about);
    deflate_add(&z, head, (size_t)layouts[f->version].first, Z_NO_FLUSH, out);
    deflate_add(&z, labels, nifti_voxels(f), Z_FINISH, out);
    deflateEnd(&z);
}

bool nifti_is_added(int fd, const char *path)
{
    enum { FLAGS = 3, COMMENT = 1 << 4, HEAD = 10 };
    unsigned char b[HEAD + sizeof mark] = {0};
    return !file_read_at(fd, path, 0, b, sizeof b, NULL) && b[0] == 0x1f && b[1] == 0x8b && b[FLAGS] == COMMENT &&
           !memcmp(b + HEAD, mark, sizeof mark);
}
