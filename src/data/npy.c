#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include "base/file.h"
#include "base/file_kind.h"
#include "data/npy.h"

#define HEADER_MAX (1u << 20)

static const struct { const char *name; size_t bytes; } types[] = {
    [NPY_F4] = {"<f4", 4}, [NPY_F8] = {"<f8", 8}, [NPY_I4] = {"<i4", 4}, [NPY_I8] = {"<i8", 8}, [NPY_U1] = {"|u1", 1},
};
enum { N_TYPES = sizeof types / sizeof *types };

size_t npy_type_bytes(enum npy_type t) { return types[t].bytes; }
const char *npy_type_name(enum npy_type t) { return types[t].name; }

/* ---- the header: a Python dictionary with exactly the keys descr, fortran_order and shape, in any order ---------- */

/* s[0..n) is at offset base of the file */
struct header { const char *path; const char *s; size_t n, at; uint64_t base; };

static int npy_fail(const struct header *h, const char *what, struct err *e)
{
    return err_set(e, E_DATA, "%s: offset %llu: %s", h->path, (unsigned long long)(h->base + h->at), what);
}

static bool npy_take(struct header *h, const char *word)
{
    size_t k = strlen(word);
    while (h->at < h->n && h->s[h->at] == ' ') h->at++;
    if (h->n - h->at < k || memcmp(h->s + h->at, word, k)) return false;
    h->at += k;
    return true;
}

static int string_parse(struct header *h, char *out, size_t max, struct err *e)
{
    char quote = npy_take(h, "'") ? '\'' : npy_take(h, "\"") ? '"' : 0;
    if (!quote) return npy_fail(h, "expected a string", e);
    size_t k = 0;
    while (h->at < h->n && h->s[h->at] != quote && h->s[h->at] >= ' ' && h->s[h->at] != '\\' && k + 1 < max)
        out[k++] = h->s[h->at++];
    out[k] = 0;
    return npy_take(h, quote == '"' ? "\"" : "'") ? 0 : npy_fail(h, "a string that is too long or does not end", e);
}

static int descr_parse(struct header *h, struct npy *f, struct err *e)
{
    char name[16];
    if (npy_take(h, "[")) return npy_fail(h, "structured types are not supported", e);
    if (string_parse(h, name, sizeof name, e)) return -1;
    for (int t = 0; t < N_TYPES; t++)
        if (!strcmp(types[t].name, name)) {
            f->type = (enum npy_type)t;
            return 0;
        }
    if (strchr(name, 'O')) return npy_fail(h, "object arrays are not supported: they hold programs, not numbers", e);
    char why[80];
    snprintf(why, sizeof why, "its type %s is not one of <f4 <f8 <i4 <i8 |u1 (float32, ... uint8)", name);
    return npy_fail(h, why, e);
}

static int order_parse(struct header *h, struct err *e)
{
    if (npy_take(h, "False")) return 0;
    return npy_fail(h,
                npy_take(h, "True") ? "Fortran order is not supported: save it in C order"
                                : "fortran_order is neither True nor False",
                e);
}

static int dim_parse(struct header *h, struct shape *s, struct err *e)
{
    int64_t d = 0;
    size_t from = h->at;
    while (h->at < h->n && h->s[h->at] >= '0' && h->s[h->at] <= '9') {
        if (h->at - from == 18) return npy_fail(h, "a dimension has more than 18 digits", e);
        d = d * 10 + (h->s[h->at++] - '0');
    }
    if (h->at == from) return npy_fail(h, "expected a dimension", e);
    if (h->at < h->n && h->s[h->at] == 'L') h->at++;      /* Python 2's long */
    if (s->n == MAX_DIMS) return npy_fail(h, "too many dimensions", e);
    s->d[s->n++] = d;
    return 0;
}

static int npy_shape(struct header *h, struct shape *s, struct err *e)
{
    if (!npy_take(h, "(")) return npy_fail(h, "expected the shape as a tuple", e);
    for (bool comma = true;; comma = npy_take(h, ",")) {
        if (npy_take(h, ")")) return s->n == 1 && !comma ? npy_fail(h, "the shape is not a tuple", e) : 0;
        if (!comma) return npy_fail(h, "expected a comma in the shape", e);
        if (dim_parse(h, s, e)) return -1;
    }
}

static int dict_parse(struct header *h, struct npy *f, struct err *e)
{
    static const char *const keys[3] = {"descr", "fortran_order", "shape"};
    char key[16];
    int seen = 0;
    if (!npy_take(h, "{")) return npy_fail(h, "the header is not a dictionary", e);
    for (bool comma = true; !npy_take(h, "}"); comma = npy_take(h, ",")) {
        int k = 0;
        if (!comma) return npy_fail(h, "expected a comma", e);
        if (string_parse(h, key, sizeof key, e)) return -1;
        while (k < 3 && strcmp(keys[k], key)) k++;
        if (k == 3 || (seen >> k & 1)) return npy_fail(h, k == 3 ? "an unknown key" : "a key appears twice", e);
        seen |= 1 << k;
        if (!npy_take(h, ":")) return npy_fail(h, "expected a colon", e);
        if (k == 0 ? descr_parse(h, f, e) : k == 1 ? order_parse(h, e) : npy_shape(h, &f->shape, e)) return -1;
    }
    if (seen != 7) return npy_fail(h, "descr, fortran_order or shape is missing", e);
    while (h->at < h->n && (h->s[h->at] == ' ' || h->s[h->at] == '\n')) h->at++;
    return h->at < h->n ? npy_fail(h, "more text after the dictionary", e) : 0;
}

/* ---- files ------------------------------------------------------------------------------------------------------- */

static int npy_size_check(const struct npy *f, uint64_t size, struct err *e)
{
    char s[96];
    uint64_t need = types[f->type].bytes;
    for (int i = 0; i < f->shape.n; i++) need = size_mul(need, (size_t)f->shape.d[i]);
    if (need == size - f->begin) return 0;
    return err_set(e, E_DATA, "%s: offset %llu: shape %s of type %s does not fit the %llu byte%s here", f->path,
                   (unsigned long long)f->begin, shape_text(&f->shape, s), types[f->type].name,
                   (unsigned long long)(size - f->begin), size - f->begin == 1 ? "" : "s");
}

static int npy_header(struct npy *f, uint64_t size, struct err *e)
{
    unsigned char b[12] = {0};
    struct header h = {.path = f->path};
    if (file_read_at(f->fd, f->path, 0, b, 10, e)) return -1;
    if (memcmp(b, "\x93NUMPY", 6) && file_kind_file(f->fd, f->path, size, "a NumPy array (.npy)", e)) return -1;
    if (memcmp(b, "\x93NUMPY", 6)) return npy_fail(&h, "not an .npy file", e);
    h.base = 6;
    if (b[6] < 1 || b[6] > 3 || b[7]) return npy_fail(&h, "an unknown version of the format", e);
    if (b[6] > 1 && file_read_at(f->fd, f->path, 10, b + 10, 2, e)) return -1;
    h.base = b[6] > 1 ? 12 : 10;
    h.n = b[8] | (size_t)b[9] << 8 | (size_t)b[10] << 16 | (size_t)b[11] << 24;
    if (h.n > size - h.base) return npy_fail(&h, "the header is longer than the file", e);
    if (h.n > HEADER_MAX) return npy_fail(&h, "the header is longer than 1 MiB", e);
    char *s = mem_alloc(h.n);
    h.s = s;
    f->begin = h.base + h.n;
    int bad = file_read_at(f->fd, f->path, h.base, s, h.n, e) || dict_parse(&h, f, e) || npy_size_check(f, size, e);
    free(s);
    return bad ? -1 : 0;
}

int npy_open(const char *path, struct npy *f, struct err *e)
{
    uint64_t size;
    *f = (struct npy){.path = path};
    f->fd = file_open(path, &size, e);
    if (f->fd < 0) return -1;
    if (!npy_header(f, size, e)) return 0;
    npy_close(f);
    return -1;
}

void npy_close(struct npy *f)
{
    if (f->fd >= 0) close(f->fd);
    f->fd = -1;
}

int npy_read(const struct npy *f, uint64_t first, uint64_t n, void *out, struct err *e)
{
    size_t one = types[f->type].bytes;
    return file_read_at(f->fd, f->path, f->begin + first * one, out, n * one, e);
}

static void floats_from(enum npy_type t, const void *p, size_t n, float *out)
{
    for (size_t i = 0; i < n; i++)
        switch (t) {
        case NPY_F4: out[i] = ((const float *)p)[i]; break;
        case NPY_F8: out[i] = (float)((const double *)p)[i]; break;
        case NPY_I4: out[i] = (float)((const int32_t *)p)[i]; break;
        case NPY_I8: out[i] = (float)((const int64_t *)p)[i]; break;
        case NPY_U1: out[i] = ((const uint8_t *)p)[i]; break;
        }
}

int npy_read_float(const struct npy *f, uint64_t first, uint64_t n, float *out, struct err *e)
{
    enum { PIECE = 1024 };
    int64_t piece[PIECE];
    if (f->type == NPY_F4) return npy_read(f, first, n, out, e);
    for (uint64_t i = 0; i < n; i += PIECE) {
        uint64_t k = n - i < PIECE ? n - i : PIECE;
        if (npy_read(f, first + i, k, piece, e)) return -1;
        floats_from(f->type, piece, (size_t)k, out + i);
    }
    return 0;
}

/* One element of a type other than <i8. */
static int64_t integer_at(enum npy_type t, const void *p, uint64_t i)
{
    int32_t v;
    if (t == NPY_U1) return ((const uint8_t *)p)[i];
    memcpy(&v, (const char *)p + i * sizeof v, sizeof v);
    return v;
}

/* Reads the stored elements into the front of the array and widens them in place, from last to first. */
int npy_read_integers(const struct npy *f, uint64_t first, uint64_t n, int64_t *out, struct err *e)
{
    if (npy_read(f, first, n, out, e)) return -1;
    for (uint64_t i = n; i-- > 0 && f->type != NPY_I8;) out[i] = integer_at(f->type, out, i);
    return 0;
}

void npy_add(struct text *out, enum npy_type t, const struct shape *s, const void *data)
{
    size_t at = out->n;
    text_add_bytes(out, "\x93NUMPY\1\0\0\0", 10);
    text_add(out, "{'descr': '%s', 'fortran_order': False, 'shape': (", types[t].name);
    for (int i = 0; i < s->n; i++) text_add(out, "%s%lld", i ? ", " : "", (long long)s->d[i]);
    text_add(out, "%s), }", s->n == 1 ? "," : "");
    while ((out->n - at + 1) % 64) text_add(out, " ");
    text_add(out, "\n");
    out->s[at + 8] = (char)((out->n - at - 10) & 255);
    out->s[at + 9] = (char)((out->n - at - 10) >> 8);
    text_add_bytes(out, data, (size_t)shape_count(s) * types[t].bytes);
}
