/* Writing safetensors, with the bytes of the reference writer. */
#include <errno.h>
#include <fcntl.h>
#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include "ckpt/st.h"

struct turn { const struct st_entry *e; int i; };

/* The reference writer's order: its types from last to first (U64, I64, F64, F32, ..., U8, BOOL), then names by bytes.
 */
static int type_rank(enum dtype t) { return t == I64 ? 0 : t == F64 ? 1 : t == F32 ? 2 : 3; }

static int by_type_and_name(const void *a, const void *b)
{
    const struct turn *x = a, *y = b;
    int d = type_rank(x->e->type) - type_rank(y->e->type);
    return d ? d : strcmp(x->e->name, y->e->name);
}

static size_t entry_bytes(const struct st_entry *t) { return (size_t)shape_count(&t->shape) * dtype_bytes(t->type); }

static void header_make(const struct turn *o, int n, struct text *h)
{
    uint64_t at = 0;
    text_add(h, "{");
    for (int i = 0; i < n; i++) {
        json_t *name = json_string(o[i].e->name);
        char *quoted = json_dumps(name, JSON_ENCODE_ANY);
        text_add(h, "%s%s:{\"dtype\":\"%s\",\"shape\":[", i ? "," : "", quoted, dtype_name(o[i].e->type));
        for (int k = 0; k < o[i].e->shape.n; k++) text_add(h, "%s%lld", k ? "," : "", (long long)o[i].e->shape.d[k]);
        text_add(h, "],\"data_offsets\":[%llu,%llu]}", (unsigned long long)at,
                 (unsigned long long)(at + entry_bytes(o[i].e)));
        at += entry_bytes(o[i].e);
        free(quoted);
        json_decref(name);
    }
    text_add(h, "}");
    while (h->n % 8) text_add(h, " ");
}

static int write_all(int fd, const char *path, const void *p, size_t n, struct err *e)
{
    for (size_t done = 0; done < n;) {
        ssize_t k = write(fd, (const char *)p + done, n - done);
        if (k < 0 && errno == EINTR) continue;
        if (k <= 0) return err_set(e, E_IO, "%s: %s", path, strerror(errno));
        done += (size_t)k;
    }
    return 0;
}


static int body_write(int fd, const char *path, const struct turn *o, int n,
                      int (*data)(void *, int, void *, struct err *), void *ctx, struct err *e)
{
    struct text h = {0};
    size_t largest = 0;
    header_make(o, n, &h);
    uint64_t length = h.n;
    int bad = write_all(fd, path, &length, 8, e) || write_all(fd, path, h.s, h.n, e);
    text_free(&h);
    for (int i = 0; i < n; i++) if (entry_bytes(o[i].e) > largest) largest = entry_bytes(o[i].e);
    void *buf = mem_alloc(largest);
    for (int i = 0; i < n && !bad; i++)
        bad = data(ctx, o[i].i, buf, e) || write_all(fd, path, buf, entry_bytes(o[i].e), e);
    free(buf);
    return bad;
}

/* After the rename the folder is synced too, so that the name survives a power cut. */
static int folder_sync(const char *path, struct err *e)
{
    char *dir = mem_strdup(path), *slash = strrchr(dir, '/');
    if (slash) slash[slash == dir] = 0;
    int fd = open(slash ? dir : ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC), bad = fd < 0 || fsync(fd);
    if (bad) err_set(e, E_IO, "%s: its folder: %s", path, strerror(errno));
    if (fd >= 0) close(fd);
    free(dir);
    return bad ? -1 : 0;
}

static int file_write(const char *tmp, const char *path, const struct turn *o, int n,
                      int (*data)(void *, int, void *, struct err *), void *ctx, struct err *e)
{
    int fd = open(tmp, O_WRONLY | O_CREAT | O_TRUNC | O_NOFOLLOW | O_CLOEXEC, 0666);
    if (fd < 0) return err_set(e, E_CANTCREAT, "%s: %s", tmp, strerror(errno));
    int bad = body_write(fd, tmp, o, n, data, ctx, e);
    if (!bad && fsync(fd)) bad = err_set(e, E_IO, "%s: %s", tmp, strerror(errno));
    if (close(fd) && !bad) bad = err_set(e, E_IO, "%s: %s", tmp, strerror(errno));
    if (!bad && rename(tmp, path)) bad = err_set(e, E_CANTCREAT, "%s: %s", path, strerror(errno));
    if (bad) unlink(tmp);
    return bad ? -1 : folder_sync(path, e);
}

int st_write(const char *path, int n, const struct st_entry *entry, int (*data)(void *, int, void *, struct err *),
             void *ctx, struct err *e)
{
    struct text tmp = {0};
    struct turn *o = mem_alloc((size_t)n * sizeof *o);
    for (int i = 0; i < n; i++) o[i] = (struct turn){&entry[i], i};
    qsort(o, (size_t)n, sizeof *o, by_type_and_name);
    text_add(&tmp, "%s.tmp", path);
    int bad = file_write(tmp.s, path, o, n, data, ctx, e);
    text_free(&tmp);
    free(o);
    return bad;
}
