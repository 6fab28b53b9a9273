#include <errno.h>
#include <fcntl.h>
#include <jansson.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>
#include "base/out.h"
#include "daemon/run/rates.h"

enum { MOST = 1 << 26 };                                  /* bytes of a file: what a million sets take */

void rates_add(struct rates *r, const struct rate_from *f)
{
    while (r->v.n && r->v.v[r->v.n - 1].step >= f->step) r->v.n--;
    *vec_push(&r->v) = *f;
}

struct rate_from rates_at(const struct rates *r, uint64_t step)
{
    int n = r ? r->v.n : 0;
    while (n && r->v.v[n - 1].step > step) n--;
    return n ? r->v.v[n - 1] : r ? r->first : (struct rate_from){0};
}

void rates_free(struct rates *r)
{
    vec_free(&r->v);
    *r = (struct rates){0};
}

/* ---- the file ---------------------------------------------------------------------------------------------------- */

static bool line_parse(const char *s, size_t n, struct rate_from *f)
{
    json_t *o = json_loadb(s, n, JSON_REJECT_DUPLICATES, NULL), *step = json_object_get(o, "step");
    const json_t *rate = json_object_get(o, "learning_rate");
    *f = (struct rate_from){.any = json_is_number(rate), .rate = json_number_value(rate)};
    f->step = json_is_integer(step) ? (uint64_t)json_integer_value(step) : 0;
    bool good = json_is_integer(step) && json_integer_value(step) > 0 && json_object_size(o) == 2 &&
                (json_is_null(rate) || (f->any && f->rate >= 0));
    json_decref(o);
    return good;
}

/* A last line without an end was never said to be set. */
static int lines_take(struct rates *r, const char *shown, const char *s, size_t n, struct err *e)
{
    const char *end;
    for (int line = 1; (end = memchr(s, '\n', n)); line++) {
        struct rate_from f;
        if (!line_parse(s, (size_t)(end - s), &f))
            return err_set(e, E_DATA, "%s/" RATES_FILE ":%d: says no step and learning rate", shown, line);
        rates_add(r, &f);
        n -= (size_t)(end + 1 - s);
        s = end + 1;
    }
    return 0;
}

static int bytes_read(int fd, char *s, size_t n)
{
    for (size_t done = 0; done < n;) {
        ssize_t k = pread(fd, s + done, n - done, (off_t)done);
        if (k < 0 && errno == EINTR) continue;
        if (k == 0) errno = EIO;
        if (k <= 0) return -1;
        done += (size_t)k;
    }
    return 0;
}

static int file_take(struct rates *r, const char *shown, int fd, struct err *e)
{
    struct stat st;
    if (fstat(fd, &st)) return err_set(e, E_IO, "%s/" RATES_FILE ": %s", shown, strerror(errno));
    if (!S_ISREG(st.st_mode) || st.st_size > MOST)
        return err_set(e, E_DATA, "%s/" RATES_FILE ": is no list of learning rates", shown);
    char *s = mem_alloc((size_t)st.st_size + 1);
    int bad = bytes_read(fd, s, (size_t)st.st_size);
    if (bad) err_set(e, E_IO, "%s/" RATES_FILE ": %s", shown, strerror(errno));
    else bad = lines_take(r, shown, s, (size_t)st.st_size, e);
    free(s);
    return bad;
}

int rates_read(struct rates *r, int dir, const char *shown, uint64_t step, const struct rate_from *first,
               struct err *e)
{
    struct rates all = {0};
    int fd = openat(dir, RATES_FILE, O_RDONLY | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC);
    *r = (struct rates){.first = *first};
    if (fd < 0 && errno == ENOENT) return 0;
    int bad = fd < 0 ? err_set(e, E_IO, "%s/" RATES_FILE ": %s", shown, strerror(errno))
                     : file_take(&all, shown, fd, e);
    if (fd >= 0) close(fd);
    for (int i = 0; i < all.v.n && !bad; i++) if (all.v.v[i].step > step) rates_add(r, &all.v.v[i]);
    rates_free(&all);
    return bad;
}

/* The record, and the name of the file, which may be new. */
static int record_sync(int fd, int dir)
{
    int above = openat(dir, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    int bad = above < 0 || fdatasync(fd) || (fsync(above) && errno != EINVAL);
    if (above >= 0) close(above);
    return bad ? -1 : 0;
}

int rates_note(struct rates *r, int dir, const char *shown, const struct rate_from *f, struct err *e)
{
    struct out_records file = {.fd = -1};
    struct text t = {0};
    bool had;
    text_add(&t, "{\"step\":%llu,\"learning_rate\":", (unsigned long long)f->step);
    if (f->any) text_add(&t, "%.17g}\n", f->rate);
    else text_add(&t, "null}\n");
    int bad = out_records_append(&file, dir, shown, RATES_FILE, &had, e);
    off_t end = (off_t)file.size;
    if (!bad) bad = out_records_add(&file, t.s, t.n, false, e);
    if (!bad && record_sync(file.fd, dir)) {
        int why = errno;
        bool gone = !ftruncate(file.fd, end);
        bad = err_set(e, E_IO, "%s/" RATES_FILE ": %s%s", shown, strerror(why),
                      gone ? "" : "; it may count all the same when the run is resumed");
    }
    out_records_close(&file);
    text_free(&t);
    if (!bad) rates_add(r, f);
    return bad;
}
