#include <stdbool.h>
#include <stdlib.h>
#include <unistd.h>
#include <zlib.h>
#include "base/file.h"
#include "base/mem.h"
#include "data/idx.h"

#define IDX_MAX (UINT64_C(16) << 30)                     /* the most that may be held in memory */
#define PIECE (UINT64_C(1) << 20)

/* zlib reads plain files, too; size: of the file on disk */
struct source { const char *path; gzFile gz; uint64_t at; bool packed; uint64_t size; };

static int idx_fail(const struct source *s, uint64_t at, const char *what, struct err *e)
{
    return err_set(e, E_DATA, "%s: offset %llu: %s", s->path, (unsigned long long)at, what);
}

/* Reads up to n bytes; fewer at the end of the file. */
static int64_t some_read(struct source *s, void *out, uint64_t n, struct err *e)
{
    int code;
    int got = gzread(s->gz, out, (unsigned)(n < PIECE ? n : PIECE));
    const char *what = gzerror(s->gz, &code);
    if (code == Z_MEM_ERROR) mem_got(NULL);
    if (code == Z_BUF_ERROR) return idx_fail(s, s->at, "the compressed file is truncated", e);
    if (got < 0) return code == Z_ERRNO ? err_set(e, E_IO, "%s: reading failed", s->path) : idx_fail(s, s->at, what, e);
    s->at += (uint64_t)got;
    return got;
}

static int exact_read(struct source *s, uint8_t *out, uint64_t n, struct err *e)
{
    while (n) {
        int64_t got = some_read(s, out, n, e);
        if (got < 0) return -1;
        if (!got) return idx_fail(s, s->at, "the file ends here, too early", e);
        out += got;
        n -= (uint64_t)got;
    }
    return 0;
}

uint64_t idx_offset(const struct idx_file *f) { return 4 + 4 * (uint64_t)f->rank; }

static int idx_header(struct source *s, int lo, int hi, struct idx_file *f, struct err *e)
{
    uint8_t h[4];
    if (exact_read(s, h, 4, e)) return -1;
    if (h[0] || h[1]) return idx_fail(s, 0, "not an IDX file: it does not begin with two zero bytes", e);
    if (h[2] != 8) return idx_fail(s, 2, "the elements are not unsigned bytes", e);
    if (h[3] < lo || h[3] > hi)
        return err_set(e, E_DATA, "%s: offset 3: has %d dimensions, expected %d", s->path, h[3], lo);
    f->rank = h[3];
    f->bytes = 1;
    for (int i = 0; i < f->rank; i++) {
        if (exact_read(s, h, 4, e)) return -1;
        f->dim[i] = (uint64_t)h[0] << 24 | (uint64_t)h[1] << 16 | (uint64_t)h[2] << 8 | h[3];
        if (!f->dim[i]) return idx_fail(s, s->at - 4, "a dimension is 0", e);
        f->bytes = size_mul(f->bytes, f->dim[i]);
    }
    return 0;
}

static int idx_size_check(const struct source *s, const struct idx_file *f, struct err *e)
{
    uint64_t need = size_add(f->bytes, idx_offset(f));
    if (!s->packed && need != s->size)
        return err_set(e, E_DATA, "%s: offset 4: the dimensions need a file of %llu bytes, this one has %llu", s->path,
                       (unsigned long long)need, (unsigned long long)s->size);
    if (need > IDX_MAX) return idx_fail(s, 4, "the dimensions need more than 16 GiB", e);
    return 0;
}

/* Memory grows with the data that arrive, so that the header of a small file cannot take a lot. */
static int data_read(struct source *s, struct idx_file *f, struct err *e)
{
    uint8_t more;
    uint64_t have = 0, room = s->packed && f->bytes > PIECE ? PIECE : f->bytes;
    for (;;) {
        f->data = mem_resize(f->data, room);
        if (exact_read(s, f->data + have, room - have, e)) return -1;
        have = room;
        if (have == f->bytes) break;
        room = f->bytes - have < have ? f->bytes : 2 * have;
    }
    int64_t got = some_read(s, &more, 1, e);             /* at the end zlib checks the checksum, too */
    if (got < 0) return -1;
    return got ? idx_fail(s, s->at - 1, "bytes after the last element", e) : 0;
}

int idx_file_load(const char *path, int lo, int hi, struct idx_file *f, struct err *e)
{
    uint8_t magic[2] = {0};
    struct source s = {.path = path};
    *f = (struct idx_file){0};
    int fd = file_open(path, &s.size, e);
    if (fd < 0) return -1;
    if (s.size < 4) {
        close(fd);
        return idx_fail(&s, s.size, "the file ends here, too early", e);
    }
    int bad = file_read_at(fd, path, 0, magic, 2, e);
    s.packed = magic[0] == 0x1f && magic[1] == 0x8b;
    s.gz = gzdopen(fd, "rb");
    if (!s.gz) {
        close(fd);
        return err_set(e, E_INTERNAL, "%s: zlib does not open it", path);
    }
    gzbuffer(s.gz, 1 << 17);
    bad = bad || idx_header(&s, lo, hi, f, e) || idx_size_check(&s, f, e) || data_read(&s, f, e);
    gzclose(s.gz);
    if (!bad) return 0;
    free(f->data);
    f->data = NULL;
    return -1;
}
