#include <stdbool.h>
#include <stdlib.h>
#include "base/mem.h"
#include "data/idx.h"
#include "data/gzip_file.h"

#define IDX_MAX (UINT64_C(16) << 30)                     /* limit of memory per file */
#define PIECE (UINT64_C(1) << 20)

uint64_t idx_offset(const struct idx_file *f) { return 4 + 4 * (uint64_t)f->rank; }

static int idx_header(struct gzip_file *s, int lo, int hi, struct idx_file *f, struct err *e)
{
    uint8_t h[4];
    if (gzip_read(s, h, 4, e)) return -1;
    if (h[0] || h[1]) return gzip_fail(s, 0, "not an IDX file: it does not begin with two zero bytes", e);
    if (h[2] != 8) return gzip_fail(s, 2, "the elements are not unsigned bytes", e);
    if (h[3] < lo || h[3] > hi)
        return err_set(e, E_DATA, "%s: offset 3: has %d dimensions, expected %d", s->path, h[3], lo);
    f->rank = h[3];
    f->bytes = 1;
    for (int i = 0; i < f->rank; i++) {
        if (gzip_read(s, h, 4, e)) return -1;
        f->dim[i] = (uint64_t)h[0] << 24 | (uint64_t)h[1] << 16 | (uint64_t)h[2] << 8 | h[3];
        if (!f->dim[i]) return gzip_fail(s, s->at - 4, "a dimension is 0", e);
        f->bytes = size_mul(f->bytes, f->dim[i]);
    }
    return 0;
}

static int idx_size_check(const struct gzip_file *s, const struct idx_file *f, struct err *e)
{
    uint64_t need = size_add(f->bytes, idx_offset(f));
    if (!s->packed && need != s->size)
        return err_set(e, E_DATA, "%s: offset 4: the dimensions need a file of %llu bytes, this one has %llu", s->path,
                       (unsigned long long)need, (unsigned long long)s->size);
    if (need > IDX_MAX) return gzip_fail(s, 4, "the dimensions need more than 16 GiB", e);
    return 0;
}

/* Memory grows with the data read, so that the header of a small file cannot allocate much. */
static int data_read(struct gzip_file *s, struct idx_file *f, struct err *e)
{
    uint64_t have = 0, space = s->packed && f->bytes > PIECE ? PIECE : f->bytes;
    for (;;) {
        f->data = mem_resize(f->data, space);
        if (gzip_read(s, f->data + have, space - have, e)) return -1;
        have = space;
        if (have == f->bytes) break;
        space = f->bytes - have < have ? f->bytes : 2 * have;
    }
    int got = gzip_more(s, e);                           /* also checks the checksum at the end */
    if (got < 0) return -1;
    return got ? gzip_fail(s, s->at - 1, "bytes after the last element", e) : 0;
}

int idx_file_load(const char *path, int lo, int hi, struct idx_file *f, struct err *e)
{
    struct gzip_file s = {0};
    *f = (struct idx_file){0};
    int bad = gzip_open(path, 4, "an IDX file", &s, e) || idx_header(&s, lo, hi, f, e) || idx_size_check(&s, f, e) ||
              data_read(&s, f, e);
    gzip_close(&s);
    if (!bad) return 0;
    free(f->data);
    f->data = NULL;
    return -1;
}
