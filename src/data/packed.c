#include <unistd.h>
#include "base/file.h"
#include "base/mem.h"
#include "data/packed.h"

#define PIECE (UINT64_C(1) << 20)
enum { BUFFER_MOST = 1 << 17 };

int packed_fail(const struct packed *f, uint64_t at, const char *what, struct err *e)
{
    return err_set(e, E_DATA, "%s: offset %llu: %s", f->path, (unsigned long long)at, what);
}

int packed_open(const char *path, uint64_t least, struct packed *f, struct err *e)
{
    uint8_t magic[2] = {0};
    *f = (struct packed){.path = path};
    int fd = file_open(path, &f->size, e);
    if (fd < 0) return -1;
    if (f->size < least) {
        close(fd);
        return packed_fail(f, f->size, "the file ends here, too early", e);
    }
    int bad = file_read_at(fd, path, 0, magic, 2, e);
    f->packed = magic[0] == 0x1f && magic[1] == 0x8b;
    f->gz = gzdopen(fd, "rb");                           /* which reads plain files, too */
    if (!f->gz) {
        close(fd);
        return err_set(e, E_INTERNAL, "%s: zlib does not open it", path);
    }
    gzbuffer(f->gz, f->size < BUFFER_MOST ? (unsigned)f->size + 8 : BUFFER_MOST);
    return bad;
}

uint64_t packed_most(const struct packed *f)
{
    enum { DEFLATE_MOST = 1032 };
    return f->packed ? size_mul(f->size, DEFLATE_MOST) : f->size;
}

/* Reads up to n bytes; fewer at the end of the file. */
static int64_t some_read(struct packed *f, void *out, uint64_t n, struct err *e)
{
    int code;
    int got = gzread(f->gz, out, (unsigned)(n < PIECE ? n : PIECE));
    const char *what = gzerror(f->gz, &code);
    if (code == Z_MEM_ERROR) mem_got(NULL);
    if (code == Z_BUF_ERROR) return packed_fail(f, f->at, "the compressed file is truncated", e);
    if (got < 0)
        return code == Z_ERRNO ? err_set(e, E_IO, "%s: reading failed", f->path) : packed_fail(f, f->at, what, e);
    f->at += (uint64_t)got;
    return got;
}

int packed_read(struct packed *f, void *out, uint64_t n, struct err *e)
{
    uint8_t *p = out;
    while (n) {
        int64_t got = some_read(f, p, n, e);
        if (got < 0) return -1;
        if (!got) return packed_fail(f, f->at, "the file ends here, too early", e);
        p += got;
        n -= (uint64_t)got;
    }
    return 0;
}

int packed_skip(struct packed *f, uint64_t n, struct err *e)
{
    uint8_t piece[4096];
    for (uint64_t k; n; n -= k) {
        k = n < sizeof piece ? n : sizeof piece;
        if (packed_read(f, piece, k, e)) return -1;
    }
    return 0;
}

int packed_more(struct packed *f, struct err *e)
{
    uint8_t one;
    return (int)some_read(f, &one, 1, e);
}

void packed_close(struct packed *f)
{
    if (f->gz) gzclose(f->gz);
    f->gz = NULL;
}
