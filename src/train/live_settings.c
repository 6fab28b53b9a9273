#include <errno.h>
#include <fcntl.h>
#include <jansson.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>
#include "base/out.h"
#include "train/live_settings.h"

enum { MOST = 1 << 26 };                                  /* bytes of a file: a million changes */

void live_settings_add(struct live_settings *r, const struct rate_from *f)
{
    while (r->v.n && r->v.v[r->v.n - 1].step >= f->step) r->v.n--;
    *vec_push(&r->v) = *f;
}

struct rate_from live_settings_at(const struct live_settings *r, uint64_t step)
{
    int n = r ? r->v.n : 0;
    while (n && r->v.v[n - 1].step > step) n--;
    return n ? r->v.v[n - 1] : r ? r->first : (struct rate_from){0};
}

const struct conf *live_settings_conf(const struct live_settings *r, uint64_t step, const struct conf *now)
{
    int n = r ? r->w.n : 0;
    if (!n) return now;
    while (n && r->w.v[n - 1].step > step) n--;
    const struct conf *c = n ? r->w.v[n - 1].conf : r->before;
    return c ? c : now;
}

const json_t *live_settings_value(const struct live_settings *r, const char *key, uint64_t step)
{
    const json_t *found = NULL;
    for (int i = 0; i < r->w.n; i++) {
        const json_t *both = json_object_get(r->w.v[i].changed, key);
        bool holds = r->w.v[i].step <= step;
        if (both && (holds || !found)) found = json_array_get(both, holds ? 1 : 0);
        if (both && !holds) break;
    }
    return found;
}

void live_settings_keys(const struct live_settings *r, void (*f)(void *ctx, const char *key), void *ctx)
{
    json_t *all = json_object(), *both;
    const char *key;
    for (int i = 0; i < r->w.n; i++) json_object_update(all, r->w.v[i].changed);
    json_object_foreach(all, key, both) f(ctx, key);
    json_decref(all);
}

static void changes_drop(struct live_settings *r, uint64_t from)
{
    while (r->w.n && r->w.v[r->w.n - 1].step >= from) json_decref(r->w.v[--r->w.n].changed);
}

/* If a step has two changes, each key gets its value before the first one and after the last one. */
static void change_add(struct live_settings *r, const struct rate_change *c)
{
    const char *key;
    json_t *both, *earlier;
    changes_drop(r, c->step + 1);
    struct rate_change *last = r->w.n ? &r->w.v[r->w.n - 1] : NULL;
    if (!last || last->step != c->step) {
        *vec_push(&r->w) = *c;
        return;
    }
    json_object_foreach(c->changed, key, both) {
        if ((earlier = json_object_get(last->changed, key))) json_array_set(earlier, 1, json_array_get(both, 1));
        else json_object_set(last->changed, key, both);
    }
    json_decref(c->changed);
    last->conf = c->conf;
}

void live_settings_free(struct live_settings *r)
{
    changes_drop(r, 0);
    for (int i = 0; i < r->own.n; i++) conf_free(r->own.v[i]);
    vec_free(&r->own);
    vec_free(&r->w);
    vec_free(&r->v);
    *r = (struct live_settings){0};
}

/* ---- the file ---------------------------------------------------------------------------------------------------- */

static bool is_value(const json_t *v) { return json_is_string(v) || json_is_null(v); }

static bool changed_good(json_t *changed)
{
    const char *key;
    json_t *both;
    if (!json_is_object(changed)) return false;
    json_object_foreach(changed, key, both)
        if (!conf_follows(key) || json_array_size(both) != 2 || !is_value(json_array_get(both, 0)) ||
            !is_value(json_array_get(both, 1)))
            return false;
    return true;
}

/* Adds the changes of one line. */
static bool line_take(struct live_settings *r, const char *s, size_t n)
{
    json_t *o = json_loadb(s, n, JSON_REJECT_DUPLICATES, NULL), *step = json_object_get(o, "step");
    json_t *rate = json_object_get(o, "learning_rate"), *changed = json_object_get(o, "changed");
    struct rate_from f = {.any = json_is_number(rate), .rate = json_number_value(rate)};
    f.step = json_is_integer(step) ? (uint64_t)json_integer_value(step) : 0;
    bool good = json_is_integer(step) && json_integer_value(step) > 0 && (rate || changed) &&
                json_object_size(o) == 1u + (rate != NULL) + (changed != NULL) &&
                (!rate || json_is_null(rate) || (f.any && f.rate >= 0)) && (!changed || changed_good(changed));
    if (good && rate) live_settings_add(r, &f);
    if (good && changed) change_add(r, &(struct rate_change){.step = f.step, .changed = json_incref(changed)});
    json_decref(o);
    return good;
}

/* A last line without an end was never confirmed, so it is ignored. */
static int lines_take(struct live_settings *r, const char *path, const char *s, size_t n, struct err *e)
{
    const char *end;
    for (int line = 1; (end = memchr(s, '\n', n)); line++) {
        if (!line_take(r, s, (size_t)(end - s)))
            return err_set(e, E_DATA, "%s:%d: has no step with a learning rate or changed settings", path, line);
        n -= (size_t)(end + 1 - s);
        s = end + 1;
    }
    return 0;
}

static int file_take(struct live_settings *r, const char *shown, int fd, struct err *e)
{
    struct text path = {0}, t = {0};
    struct stat st;
    text_add(&path, "%s/" LIVE_SETTINGS_FILE, shown);
    int bad = fstat(fd, &st) ? err_set(e, E_IO, "%s: %s", path.s, strerror(errno))
            : !S_ISREG(st.st_mode) ? err_set(e, E_DATA, "%s: is not a list of changed settings", path.s)
            : text_read_fd(&t, fd, path.s, MOST, e) || lines_take(r, path.s, t.s, t.n, e);
    text_free(&path);
    text_free(&t);
    return bad ? -1 : 0;
}

int live_settings_read(struct live_settings *r, int dir, const char *shown, uint64_t step,
                       const struct rate_from *first, struct err *e)
{
    struct live_settings all = {0};
    int fd = openat(dir, LIVE_SETTINGS_FILE, O_RDONLY | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC);
    *r = (struct live_settings){.first = *first};
    if (fd < 0 && errno == ENOENT) return 0;
    int bad = fd < 0 ? err_set(e, E_IO, "%s/" LIVE_SETTINGS_FILE ": %s", shown, strerror(errno))
                     : file_take(&all, shown, fd, e);
    if (fd >= 0) close(fd);
    for (int i = 0; i < all.v.n && !bad; i++) if (all.v.v[i].step > step) live_settings_add(r, &all.v.v[i]);
    for (int i = 0; i < all.w.n && !bad; i++) {
        struct rate_change c = all.w.v[i];
        json_incref(c.changed);
        if (c.step > step) change_add(r, &c);
        else json_decref(c.changed);
    }
    live_settings_free(&all);
    return bad;
}

/* Syncs the record, and the name of the file, which may be new. */
static int record_sync(int fd, int dir)
{
    int above = openat(dir, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    int bad = above < 0 || fdatasync(fd) || out_sync(above);
    if (above >= 0) close(above);
    return bad ? -1 : 0;
}

static void line_print(struct text *t, const struct rate_from *f, const struct rate_change *c)
{
    text_add(t, "{\"step\":%llu", (unsigned long long)(f ? f->step : c->step));
    if (f && f->any) text_add(t, ",\"learning_rate\":%.17g", f->rate);
    else if (f) text_add(t, ",\"learning_rate\":null");
    if (c) {
        char *changed = json_dumps(c->changed, JSON_COMPACT);
        text_add(t, ",\"changed\":%s", changed);
        free(changed);
    }
    text_add(t, "}\n");
}

int live_settings_note(struct live_settings *r, int dir, const char *shown, const struct rate_from *f,
                       const struct rate_change *c, struct err *e)
{
    struct out_records file = {.fd = -1};
    struct text t = {0};
    bool had;
    line_print(&t, f, c);
    int bad = out_records_append(&file, dir, shown, LIVE_SETTINGS_FILE, &had, e);
    off_t end = (off_t)file.size;
    if (!bad) bad = out_records_add(&file, t.s, t.n, false, e);
    if (!bad && record_sync(file.fd, dir)) {
        int why = errno;
        bool gone = !ftruncate(file.fd, end);
        bad = err_set(e, E_IO, "%s/" LIVE_SETTINGS_FILE ": %s%s", shown, strerror(why),
                      gone ? "" : "; it may still apply when the run is resumed");
    }
    out_records_close(&file);
    text_free(&t);
    if (!bad && f) live_settings_add(r, f);
    if (!bad && c) change_add(r, c);
    else if (c) json_decref(c->changed);
    return bad;
}
