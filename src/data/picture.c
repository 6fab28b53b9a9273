#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include "base/mem.h"
#include "base/file_kind.h"
#include "data/picture_int.h"

static const struct picture_kind *const kinds[] = {&picture_jpeg, &picture_png};
enum { KINDS = sizeof kinds / sizeof *kinds };

int picture_damaged(const struct picture *p, const char *why, struct err *e)
{
    return err_set(e, E_DATA, "%s: damaged %s: %s", p->path, p->kind->name, why);
}

static int size_check(const struct picture *p, struct err *e)
{
    if (p->width > 0 && p->height > 0 && p->width <= PICTURE_SIDE && p->height <= PICTURE_SIDE &&
        (int64_t)p->width * p->height <= PICTURE_PIXELS) return 0;
    return err_set(e, E_DATA, "%s: the %s says that it has %dx%d pixels; up to %d a side and %d in all are read",
                   p->path, p->kind->name, p->width, p->height, PICTURE_SIDE, PICTURE_PIXELS);
}

/* KINDS: unknown. */
static int kind_of(const uint8_t *bytes, size_t n)
{
    int k = 0;
    while (k < KINDS && (n < kinds[k]->magic_n || memcmp(bytes, kinds[k]->magic, kinds[k]->magic_n))) k++;
    return k;
}

int picture_open(const char *path, const uint8_t *bytes, size_t n, struct picture **out, struct err *e)
{
    int k = kind_of(bytes, n);
    *out = NULL;
    if (k == KINDS && file_kind_refuse(path, bytes, n, "JPEG or PNG", e)) return -1;
    if (k == KINDS) return err_set(e, E_DATA, "%s: %s", path, n ? "neither JPEG nor PNG" : "the file is empty");
    struct picture *p = mem_alloc(kinds[k]->bytes);
    *p = (struct picture){.kind = kinds[k], .path = path, .bytes = bytes, .n = n, .orientation = 1};
    *out = p;
    if (!kinds[k]->open(p, e) && !size_check(p, e)) return 0;
    picture_close(p);
    *out = NULL;
    return -1;
}

int picture_open_raw(const char *path, const struct picture_bytes *b, struct picture **out, struct err *e)
{
    size_t plane = size_mul((size_t)b->width, (size_t)b->height);
    *out = NULL;
    if (b->n != plane && b->n != size_mul(plane, 3))
        return err_set(e, E_DATA, "%s: %zu bytes are not %dx%d pixels", path, b->n, b->width, b->height);
    struct picture *p = mem_alloc(picture_raw.bytes);
    *p = (struct picture){.kind = &picture_raw, .path = path, .bytes = b->at, .n = b->n, .orientation = 1,
                          .width = b->width, .height = b->height};
    *out = p;
    return 0;
}

int picture_width(const struct picture *p) { return p->width; }
int picture_height(const struct picture *p) { return p->height; }

size_t picture_memory(const struct picture *p) { return p->kind->memory(p); }

void picture_shrink(struct picture *p, int64_t width, int64_t height)
{
    int by = 8;
    while (by > 1 && (p->width / by < width || p->height / by < height)) by /= 2;
    if (by > 1 && p->kind->shrink) p->kind->shrink(p, by);
}

static int rows_pass(struct picture *p, int n, struct err *e)
{
    if (!n) return 0;
    p->rows += n;
    return p->kind->skip(p, n, e);
}

int picture_begin(struct picture *p, const struct picture_part *part, struct err *e)
{
    p->part = *part;
    return p->kind->begin(p, e) || rows_pass(p, part->top, e) ? -1 : 0;
}

int picture_row(struct picture *p, uint8_t *out, struct err *e)
{
    if (p->rows == p->part.top + p->part.rows)
        return err_set(e, E_INTERNAL, "%s: row %d of %d", p->path, p->rows, p->height);
    p->rows++;
    return p->kind->row(p, out, e);
}

int picture_finish(struct picture *p, struct err *e) { return rows_pass(p, p->height - p->rows, e); }

void picture_close(struct picture *p)
{
    if (!p) return;
    p->kind->close(p);
    free(p);
}

/* JEITA CP-3451, Orientation: 2 mirrored, 3 upside down, 4 both, 5 to 8 the same, turned by a quarter. */
struct picture_turn picture_turned(const struct picture *p)
{
    static const struct picture_turn of[9] = {
        [2] = {.flip_columns = true}, [3] = {.flip_rows = true, .flip_columns = true}, [4] = {.flip_rows = true},
        [5] = {.swap = true}, [6] = {.swap = true, .flip_rows = true},
        [7] = {.swap = true, .flip_rows = true, .flip_columns = true}, [8] = {.swap = true, .flip_columns = true}};
    return of[p->orientation];
}

/* end: endings of names, up to a NULL */
static bool ends_with_one(const char *name, size_t n, const char *const *end)
{
    for (; *end; end++) {
        size_t m = strlen(*end);
        if (n > m && !strncasecmp(name + n - m, *end, m)) return true;
    }
    return false;
}

bool picture_name(const char *name, size_t n)
{
    static const char *const end[] = {".jpg", ".jpeg", ".jpe", ".jfif", ".png", NULL};
    return ends_with_one(name, n, end);
}

bool picture_foreign(const char *name, size_t n)
{
    static const char *const end[] = {".bmp", ".dib", ".gif", ".tif", ".tiff", ".webp", ".ppm", ".pgm", ".pbm", ".pnm",
                                      ".jp2", ".j2k", ".jxl", ".heic", ".heif", ".avif", ".tga", ".ico", ".dcm", ".dng",
                                      ".exr", ".hdr", ".psd", ".svg", ".npy", ".npz", NULL};
    return ends_with_one(name, n, end);
}

void picture_grey(uint8_t *row, size_t n)
{
    for (size_t i = 0; i < n; i++) {
        uint8_t *p = row + i * PICTURE_BYTES;
        uint8_t grey = (uint8_t)((19595 * p[0] + 38470 * p[1] + 7471 * p[2] + 0x8000) >> 16);
        memset(p, grey, PICTURE_BYTES);
    }
}
