/* RUN/why.json. */
#include "config.h"
#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "base/clock.h"
#include "base/out.h"
#include "cluster/failure.h"

bool failure_may_pass(int code)
{
    static const int lasting[] = {E_USAGE, E_DATA, E_NOINPUT, E_CANTCREAT, E_PERM, E_CONF, E_NONFINITE, E_CORRUPT};
    for (size_t i = 0; i < sizeof lasting / sizeof *lasting; i++) if (code == lasting[i]) return false;
    return code != E_OK;
}

void failure_write(const struct failure *f, int dir, const char *shown)
{
    char now[32];
    struct err none = {0};
    struct text t = {0};
    struct out_place at = OUT_NOWHERE;
    json_t *o = json_pack("{s:i,s:s,s:b,s:s}", "status", f->e.code, "text", f->e.text, "restart",
                          failure_may_pass(f->e.code), "time", clock_rfc3339(now));
    if (!o) o = json_pack("{s:i,s:b}", "status", f->e.code, "restart", failure_may_pass(f->e.code));   /* not UTF-8 */
    if (f->rank >= 0) json_object_set_new(o, "rank", json_integer(f->rank));
    if (*f->host) json_object_set_new(o, "host", json_string(f->host));
    if (f->step) json_object_set_new(o, "step", json_integer((json_int_t)f->step));
    if (*f->action) json_object_set_new(o, "action", json_string(f->action));
    char *s = json_dumps(o, JSON_INDENT(1));
    text_add(&t, "%s\n", s ? s : "{}");
    if (!out_place_in(dir, shown, FAILURE_FILE, &at, &none)) out_file(&at, &t, false, &none);
    out_place_free(&at);
    text_free(&t);
    free(s);
    json_decref(o);
}

static void text_take(char *to, size_t n, const json_t *o, const char *key)
{
    const char *s = json_string_value(json_object_get(o, key));
    snprintf(to, n, "%s", s ? s : "");
}

int failure_read(const char *dir, struct failure *f, struct err *e)
{
    enum { MAX_FILE = 1 << 16 };
    json_error_t wrong;
    struct text path = {0}, t = {0};
    json_t *o = NULL;
    *f = (struct failure){.rank = FAILURE_NOBODY};
    text_add(&path, "%s/" FAILURE_FILE, dir);
    int bad = text_read_bytes(&t, path.s, MAX_FILE, e);
    if (!bad) {
        o = json_loadb(t.s, t.n, 0, &wrong);
        const json_t *rank = json_object_get(o, "rank");
        json_int_t status = json_integer_value(json_object_get(o, "status")), r = json_integer_value(rank);
        f->e.code = status > 0 && status < 256 ? (int)status : 0;
        if (rank && r >= 0 && r <= INT32_MAX) f->rank = (int32_t)r;
        f->step = (uint64_t)json_integer_value(json_object_get(o, "step"));
        text_take(f->host, sizeof f->host, o, "host");
        text_take(f->action, sizeof f->action, o, "action");
        text_take(f->e.text, sizeof f->e.text, o, "text");
        if (!f->e.code) bad = err_set(e, E_DATA, "%s: no status", path.s);
    }
    json_decref(o);
    text_free(&path);
    text_free(&t);
    return bad ? -1 : 0;
}
