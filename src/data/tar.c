#include <stdbool.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include "base/file.h"
#include "base/mem.h"
#include "base/file_kind.h"
#include "base/text.h"
#include "data/tar.h"

/* POSIX.1-2017, pax, "ustar Interchange Format"; GNU tar's manual, "Basic Tar Format". */
enum { BLOCK = 512, NAME = 0, NAME_N = 100, SIZE = 124, SIZE_N = 12, SUM = 148, SUM_N = 8, TYPE = 156, MAGIC = 257,
       PREFIX = 345, PREFIX_N = 155 };
enum { PIECE = 4096, EXTRA_MOST = 1 << 20 };

struct tar {
    const char *path;
    int fd;
    uint64_t size, at;                                   /* of the file; of the next header */
    uint8_t piece[PIECE];                                /* part of the file, from piece_at on */
    uint64_t piece_at, piece_n;
    struct text name;                                    /* of the next member, if a record before it gives one */
    bool has_name, has_size;
    uint64_t size_given;
};

static int damaged(const struct tar *t, uint64_t at, const char *what, struct err *e)
{
    return err_set(e, E_DATA, "%s: offset %llu: %s", t->path, (unsigned long long)at, what);
}

/* A block of the file, read with the blocks after it, because small members are close together. NULL: e. */
static const uint8_t *block(struct tar *t, uint64_t at, struct err *e)
{
    if (at < t->piece_at || at + BLOCK > t->piece_at + t->piece_n) {
        t->piece_at = at;
        t->piece_n = t->size - at < PIECE ? t->size - at : PIECE;
        if (file_read_at(t->fd, t->path, at, t->piece, (size_t)t->piece_n, e)) {
            t->piece_n = 0;
            return NULL;
        }
    }
    return t->piece + (at - t->piece_at);
}

/* Octal digits among blanks and NULs, or, if the first bit is set, a number of base 256. */
static bool field_number(const uint8_t *s, int n, uint64_t *v)
{
    int i = 0;
    *v = 0;
    if (s[0] & 0x80) {
        for (i = 1; i < n; i++) {
            if (*v >> 55) return false;
            *v = *v << 8 | s[i];
        }
        return s[0] == 0x80;
    }
    while (i < n && s[i] == ' ') i++;
    for (; i < n && s[i] >= '0' && s[i] <= '7'; i++) *v = *v << 3 | (uint64_t)(s[i] - '0');
    while (i < n && (s[i] == ' ' || s[i] == 0)) i++;
    return i == n;
}

static bool sum_right(const uint8_t *h)
{
    uint64_t stated;
    unsigned sum = SUM_N * ' ';                          /* blanks replace the sum itself */
    for (int i = 0; i < BLOCK; i++) sum += h[i];
    for (int i = SUM; i < SUM + SUM_N; i++) sum -= h[i];
    return field_number(h + SUM, SUM_N, &stated) && stated == sum;
}

static bool empty(const uint8_t *h)
{
    return !h[0] && !memcmp(h, h + 1, BLOCK - 1);
}

static void field_add(struct text *t, const uint8_t *s, size_t n) { text_add_bytes(t, s, strnlen((const char *)s, n)); }

/* The name in the header itself. */
static void name_take(struct tar *t, const uint8_t *h)
{
    t->name.n = 0;
    text_add(&t->name, "%s", "");
    if (!memcmp(h + MAGIC, "ustar", 6) && h[PREFIX]) {    /* with the NUL: GNU's format has a blank there */
        field_add(&t->name, h + PREFIX, PREFIX_N);
        text_add(&t->name, "/");
    }
    field_add(&t->name, h + NAME, NAME_N);
}

/* ---- records before a member ------------------------------------------------------------------------------------- */

static void name_given(struct tar *t, const char *s, size_t n)
{
    t->name.n = 0;
    text_add(&t->name, "%s", "");
    text_add_bytes(&t->name, s, strnlen(s, n));
    t->has_name = true;
}

static int pax_record(struct tar *t, uint64_t at, const char *key, const char *value, size_t n, struct err *e)
{
    if (!strcmp(key, "path")) name_given(t, value, n);
    if (!strncmp(key, "GNU.sparse.", 11)) return damaged(t, at, "a sparse file cannot be read in place", e);
    if (strcmp(key, "size")) return 0;
    t->has_size = true;
    t->size_given = 0;
    for (size_t i = 0; i < n; i++) {
        if (value[i] < '0' || value[i] > '9' || t->size_given >> 59) return damaged(t, at, "an invalid size", e);
        t->size_given = 10 * t->size_given + (uint64_t)(value[i] - '0');
    }
    return 0;
}

/* Records "LENGTH KEY=VALUE\n"; LENGTH is that of the whole record. s ends with a NUL. */
static int pax_read(struct tar *t, uint64_t at, char *s, size_t n, struct err *e)
{
    for (size_t done = 0, length; done < n; done += length) {
        char *p = s + done, *end = p;
        length = 0;
        while (*end >= '0' && *end <= '9' && length <= n) length = 10 * length + (size_t)(*end++ - '0');
        char *key = end + 1, *value = NULL;
        if (end > p && *end == ' ' && length <= n - done && length > (size_t)(key - p) && p[length - 1] == '\n')
            value = memchr(key, '=', (size_t)(p + length - key));
        if (!value) return damaged(t, at, "an invalid pax header", e);
        *value++ = 0;
        if (pax_record(t, at, key, value, (size_t)(p + length - 1 - value), e)) return -1;
    }
    return 0;
}

/* Reads a name too long for a header, or pax's records. */
static int extra_read(struct tar *t, uint8_t type, uint64_t at, uint64_t size, struct err *e)
{
    if (size > EXTRA_MOST) return damaged(t, at, "more than 1 MiB about one member", e);
    char *s = mem_alloc(size + 1);
    int bad = file_read_at(t->fd, t->path, at, s, size, e);
    if (!bad && type == 'L') name_given(t, s, size);
    else if (!bad && type == 'x') bad = pax_read(t, at, s, size, e);
    free(s);
    return bad;
}

/* ---- members ----------------------------------------------------------------------------------------------------- */

enum tar_kind { K_FILE, K_LINK, K_EXTRA, K_OTHER, K_APART };

static enum tar_kind kind_of(uint8_t type)
{
    if (type == '0' || type == 0 || type == '7') return K_FILE;
    if (type == '1' || type == '2') return K_LINK;
    if (type == 'L' || type == 'x') return K_EXTRA;
    return type == 'S' || type == 'M' ? K_APART : K_OTHER;
}

/* Bytes after the header at t->at. extra: not a member, so t->size_given does not apply. */
static int size_find(const struct tar *t, const uint8_t *h, bool extra, uint64_t *size, struct err *e)
{
    uint64_t space = t->size - t->at - BLOCK;
    if (!field_number(h + SIZE, SIZE_N, size)) return damaged(t, t->at + SIZE, "an invalid size", e);
    if (t->has_size && !extra) *size = t->size_given;
    if (h[TYPE] >= '1' && h[TYPE] <= '6') *size = 0; /* links, devices, folders have no data, whatever the field says */
    if (*size <= space) return 0;
    return err_set(e, E_DATA, "%s: offset %llu: a member of %llu byte%s, but the file ends after %llu", t->path,
                   (unsigned long long)t->at, (unsigned long long)*size, *size == 1 ? "" : "s",
                   (unsigned long long)space);
}

static int next(struct tar *t, const uint8_t *h, int (*member)(void *, const struct tar_member *, struct err *),
                void *ctx, struct err *e)
{
    const uint8_t type = h[TYPE];
    uint64_t at = t->at + BLOCK, size;
    if (!sum_right(h) && !t->at && file_kind_file(t->fd, t->path, t->size, "a tar archive", e)) return -1;
    if (!sum_right(h)) return damaged(t, t->at, "not a header of a tar archive: its checksum is wrong", e);
    enum tar_kind kind = kind_of(type);
    bool extra = kind == K_EXTRA || type == 'g';
    if (size_find(t, h, extra, &size, e)) return -1;
    if (kind == K_APART) return damaged(t, t->at, "a member that is sparse or continues elsewhere", e);
    if (kind == K_EXTRA && extra_read(t, type, at, size, e)) return -1;
    if (kind == K_FILE || kind == K_LINK) {
        if (!t->has_name) name_take(t, h);
        const char *name = t->name.s;
        while (!strncmp(name, "./", 2)) name += 2;
        size_t n = strlen(name);
        bool file = n && name[n - 1] != '/';              /* before POSIX, folders were files with such names */
        if (file && member(ctx, &(struct tar_member){name, at, size, t->fd, kind == K_LINK}, e)) return -1;
    }
    if (!extra) t->has_name = t->has_size = false;
    uint64_t blocks = size / BLOCK + (size % BLOCK != 0);
    t->at = blocks * BLOCK > t->size - at ? t->size : at + blocks * BLOCK;
    return 0;
}

/* Zeros may follow the end. Another archive there, appended with cat, is an error, because some readers would read
 * it. */
static int end_check(struct tar *t, struct err *e)
{
    enum { LOOKED_AT = 1 << 20 };
    const uint64_t end = t->at;
    for (uint64_t at = end; at + BLOCK <= t->size && at - end < LOOKED_AT; at += BLOCK) {
        const uint8_t *h = block(t, at, e);
        if (!h) return -1;
        if (empty(h)) continue;
        return sum_right(h) ? damaged(t, at, "another archive begins after the end of the first; tar --concatenate "
                                             "joins them", e) : 0;
    }
    return 0;
}

int tar_read(const char *path, int (*member)(void *ctx, const struct tar_member *m, struct err *e), void *ctx,
             struct err *e)
{
    struct tar t = {.path = path};
    int bad = 0;
    t.fd = file_open(path, &t.size, e);
    if (t.fd < 0) return -1;
    if (!t.size) bad = err_set(e, E_DATA, "%s: the file is empty", path);
    while (!bad && t.at < t.size) {
        const uint8_t *h = NULL;
        if (t.size < BLOCK && file_kind_file(t.fd, path, t.size, "a tar archive", e)) bad = -1;
        else if (t.size - t.at < BLOCK) bad = damaged(&t, t.at, "the file ends here, within a header", e);
        else if (!(h = block(&t, t.at, e))) bad = -1;
        else if (empty(h)) {
            bad = end_check(&t, e);
            break;
        } else bad = next(&t, h, member, ctx, e);
    }
    text_free(&t.name);
    close(t.fd);
    return bad ? -1 : 0;
}
