#include <stdlib.h>
#include <unistd.h>
#include "base/file.h"
#include "base/mem.h"
#include "base/file_kind.h"
#include "data/gzip_file.h"

#define PIECE (UINT64_C(1) << 20)
enum { BUFFER_MOST = 1 << 17 };

static bool is_packed(const uint8_t magic[2]) { return magic[0] == 0x1f && magic[1] == 0x8b; }

int gzip_fail(const struct gzip_file *f, uint64_t at, const char *what, struct err *e)
{
    return err_set(e, E_DATA, "%s: offset %llu: %s", f->path, (unsigned long long)at, what);
}

static int unpacking_begin(struct gzip_file *f, struct err *e)
{
    enum { GZIP = 16 };                                  /* zlib's code for the gzip format */
    f->input = mem_alloc(f->size < BUFFER_MOST ? f->size : BUFFER_MOST);
    int code = inflateInit2(&f->z, MAX_WBITS + GZIP);
    if (code == Z_MEM_ERROR) mem_got(NULL);
    if (code != Z_OK) return err_set(e, E_INTERNAL, "%s: zlib does not start", f->path);
    f->open = true;
    return 0;
}

int gzip_open(const char *path, uint64_t least, const char *wanted, struct gzip_file *f, struct err *e)
{
    uint8_t magic[2] = {0};
    *f = (struct gzip_file){.path = path, .fd = -1};
    f->fd = file_open(path, &f->size, e);
    if (f->fd < 0) return -1;
    if (f->size < least) return gzip_fail(f, f->size, "the file ends here, too early", e);
    if (file_read_at(f->fd, path, 0, magic, 2, e)) return -1;
    f->packed = is_packed(magic);
    if (!f->packed && file_kind_file(f->fd, path, f->size, wanted, e)) return -1;
    return f->packed ? unpacking_begin(f, e) : 0;
}

uint64_t gzip_most(const struct gzip_file *f)
{
    enum { DEFLATE_MOST = 1032 };
    return f->packed ? size_mul(f->size, DEFLATE_MOST) : f->size;
}

/* Another packed part may follow; any other data are ignored, as by gzip. 1: one follows. */
static int part_next(struct gzip_file *f, struct err *e)
{
    const uint64_t here = f->read - f->z.avail_in;
    uint8_t magic[2];
    if (f->size - here < sizeof magic) return 0;
    if (file_read_at(f->fd, f->path, here, magic, sizeof magic, e)) return -1;
    if (!is_packed(magic)) return 0;
    inflateReset(&f->z);
    f->ended = false;
    return 1;
}

static int input_read(struct gzip_file *f, struct err *e)
{
    const uint64_t rest = f->size - f->read, n = rest < BUFFER_MOST ? rest : BUFFER_MOST;
    if (!n) return gzip_fail(f, f->at, "the compressed file is truncated", e);
    if (file_read_at(f->fd, f->path, f->read, f->input, n, e)) return -1;
    f->read += n;
    f->z.next_in = f->input;
    f->z.avail_in = (unsigned)n;
    return 0;
}

/* Up to n bytes; 0 only at the end. */
static int64_t some_unpack(struct gzip_file *f, void *out, uint64_t n, struct err *e)
{
    f->z.next_out = out;
    f->z.avail_out = (unsigned)(n < PIECE ? n : PIECE);
    for (const uint8_t *begin = out; f->z.next_out == begin;) {
        int more = f->ended ? part_next(f, e) : 1;
        if (more <= 0) return more;
        if (!f->z.avail_in && input_read(f, e)) return -1;
        int code = inflate(&f->z, Z_NO_FLUSH);
        if (code == Z_MEM_ERROR) mem_got(NULL);
        f->ended = code == Z_STREAM_END;
        if (code != Z_OK && code != Z_BUF_ERROR && !f->ended)
            return gzip_fail(f, f->at, f->z.msg ? f->z.msg : "the compressed file is damaged", e);
    }
    return f->z.next_out - (uint8_t *)out;
}

/* Reads up to n bytes; 0 at the end of the file. */
static int64_t some_read(struct gzip_file *f, void *out, uint64_t n, struct err *e)
{
    int64_t got;
    if (f->packed) got = some_unpack(f, out, n, e);
    else {
        const uint64_t rest = f->size - f->at;
        got = (int64_t)(n < rest ? n : rest);
        if (file_read_at(f->fd, f->path, f->at, out, (size_t)got, e)) return -1;
    }
    if (got > 0) f->at += (uint64_t)got;
    return got;
}

int gzip_read(struct gzip_file *f, void *out, uint64_t n, struct err *e)
{
    uint8_t *p = out;
    while (n) {
        int64_t got = some_read(f, p, n, e);
        if (got < 0) return -1;
        if (!got) return gzip_fail(f, f->at, "the file ends here, too early", e);
        p += got;
        n -= (uint64_t)got;
    }
    return 0;
}

int gzip_skip(struct gzip_file *f, uint64_t n, struct err *e)
{
    uint8_t piece[4096];
    for (uint64_t k; n; n -= k) {
        k = n < sizeof piece ? n : sizeof piece;
        if (gzip_read(f, piece, k, e)) return -1;
    }
    return 0;
}

int gzip_more(struct gzip_file *f, struct err *e)
{
    uint8_t one;
    return (int)some_read(f, &one, 1, e);
}

void gzip_close(struct gzip_file *f)
{
    if (f->open) inflateEnd(&f->z);
    if (f->path && f->fd >= 0) close(f->fd);
    free(f->input);
    *f = (struct gzip_file){0};
}
