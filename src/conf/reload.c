#include <fcntl.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>
#include "base/out.h"
#include "conf/reload.h"

enum { FILE_MAX = 1 << 20 };

struct conf *reload_make(const struct opts *o, const char *text, size_t n, struct err *e)
{
    struct conf *c = conf_parse(o->config, n ? text : "", n, e);
    if (!c || (!opts_apply(o, c, e) && !conf_expand(c, getenv, e))) return c;
    conf_free(c);
    return NULL;
}

struct changes { const struct conf *now; json_t *changed; struct text fixed; };

static void change_note(void *ctx, const char *key, bool live)
{
    struct changes *c = ctx;
    struct text value = {0};
    if (!live) {
        text_add(&c->fixed, "%s%s", c->fixed.n ? ", " : "", key);
        return;
    }
    conf_value(c->now, key, &value);
    json_object_set_new(c->changed, key, json_string(value.n ? value.s : ""));
    text_free(&value);
}

/* At the start the configuration may come from a pipe. During a run it may not: the scheduler must not block. */
static int file_read(struct text *t, const char *path, struct err *e)
{
    struct stat st;
    int fd = open(path, O_RDONLY | O_NONBLOCK | O_CLOEXEC);
    if (fd < 0) return text_read_file(t, path, FILE_MAX, e);   /* which sets the error */
    bool file = !fstat(fd, &st) && S_ISREG(st.st_mode);
    int bad = file ? text_read_fd(t, fd, path, FILE_MAX, e)
                   : err_set(e, E_CONF, "%s: is %s, not a regular file", path, out_kind(st.st_mode));
    close(fd);
    return bad;
}

struct conf *reload_read(const struct opts *o, const struct conf *was, json_t *changed, struct err *e)
{
    struct text file = {0};
    if (file_read(&file, o->config, e)) return NULL;
    struct conf *now = reload_make(o, file.s, file.n, e);
    text_free(&file);
    if (!now) return NULL;
    struct changes c = {now, changed, {0}};
    conf_compare(was, now, change_note, &c);
    bool refused = c.fixed.n > 0;
    if (refused)
        err_set(e, E_CONF, "%s: settings that cannot change during a run: %s; nothing was changed",
                o->config, c.fixed.s);
    text_free(&c.fixed);
    if (!refused) return now;
    conf_free(now);
    return NULL;
}
