/* Loads and overrides a configuration; errors name where a setting was made. */
#include <assert.h>
#include <pthread.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include "conf/parse.h"

enum { FILE_MAX = 1 << 20 };

/* The table's defaults, read once: numbers, and the table's own texts. */
static struct conf defaults;

static void defaults_read(void)
{
    for (int i = 0; opt_table[i].key; i++)
        if (opt_table[i].def) opt_set(&defaults, i, &(struct opt_value){.n = 1, .text = {opt_table[i].def}}, NULL);
}

static struct conf *conf_new(const char *file)
{
    static pthread_once_t once = PTHREAD_ONCE_INIT;
    struct arena *mem = arena_new();
    struct conf *c = arena_alloc(mem, sizeof *c);
    pthread_once(&once, defaults_read);
    *c = defaults;
    c->mem = mem;
    c->file = arena_strdup(mem, file);
    c->line = arena_alloc(mem, (size_t)opt_count() * sizeof *c->line);
    c->what = arena_alloc(mem, (size_t)opt_count() * sizeof *c->what);
    return c;
}

void conf_free(struct conf *c) { if (c) arena_free(c->mem); }

bool conf_is_default(const char *key, const char *value)
{
    struct text t = {0};
    struct conf *c = conf_new("");
    conf_value(c, key, &t);
    bool is = t.n && !strcmp(t.s, value);
    text_free(&t);
    conf_free(c);
    return is;
}

struct conf *conf_copy(const struct conf *c)
{
    size_t n = (size_t)opt_count();
    struct conf *v = arena_alloc(c->mem, sizeof *v);
    *v = *c;
    v->line = memcpy(arena_alloc(c->mem, n * sizeof *v->line), c->line, n * sizeof *v->line);
    v->what = memcpy(arena_alloc(c->mem, n * sizeof *v->what), c->what, n * sizeof *v->what);
    v->pipeline.n_stages = 0;
    for (int i = 0; i < c->pipeline.n_stages; i++) conf_stage_add(v, c->pipeline.stage[i]);
    return v;
}

struct conf *conf_parse(const char *file, const char *s, size_t n, struct err *e)
{
    struct conf *c = conf_new(file);
    struct err own = {0};
    if (n > FILE_MAX) err_set(&own, E_CONF, "%s: larger than %d bytes", file, FILE_MAX);
    else parse_file(c, s, n, &own);
    if (!own.code) return c;
    err_set(e, own.code, "%s", own.text);
    conf_free(c);
    return NULL;
}

int conf_text_read(const char *file, struct text *t, struct err *e)
{
    struct err own = {0};
    if (!text_read_any(t, file, FILE_MAX, &own)) return 0;
    return err_set(e, own.code == E_DATA ? E_CONF : own.code, "%s", own.text);
}

struct conf *conf_load(const char *file, struct err *e)
{
    struct text t = {0};
    struct conf *c = conf_text_read(file, &t, e) ? NULL : conf_parse(file, t.s, t.n, e);
    text_free(&t);
    return c;
}

/* Where the option was set. Returns buf. */
enum { PLACE = 800 };
static const char *place(const struct conf *c, const char *key, char buf[PLACE])
{
    int i = opt_find(key, strlen(key));
    if (i >= 0 && c->line[i] == CONF_OVERRIDE) snprintf(buf, PLACE, "%s", c->what[i]);
    else if (i >= 0 && c->line[i] > 0) snprintf(buf, PLACE, "%s:%d: %s", c->file, (int)c->line[i], key);
    else snprintf(buf, PLACE, "%s: %s", c->file, key);
    return buf;
}

int conf_error(const struct conf *c, const char *key, struct err *e, const char *fmt, ...)
{
    char text[800], where[PLACE];
    va_list ap;
    va_start(ap, fmt);
    vsnprintf(text, sizeof text, fmt, ap);
    va_end(ap);
    return err_set(e, E_CONF, "%s: %s", place(c, key, where), text);
}

/* Seeks the option whose file the error begins with: the file, or a file in that folder. A derived one has no place. */
struct begins { const struct conf *c; const char *text, *key; size_t n; };

static void begins_check(void *ctx, const char *key, const char *file)
{
    struct begins *b = ctx;
    size_t n = strlen(file);
    const int i = opt_find(key, strlen(key));
    if (i < 0 || (b->c->line[i] <= 0 && b->c->line[i] != CONF_OVERRIDE) || n <= b->n) return;
    if (strncmp(b->text, file, n) || (b->text[n] != ':' && b->text[n] != '/')) return;
    b->key = key;
    b->n = n;
}

int conf_where(const struct conf *c, struct err *e)
{
    struct begins b = {.c = c, .text = e ? e->text : NULL};
    if (!e || (e->code != E_NOINPUT && e->code != E_PERM)) return -1;
    conf_inputs(c, begins_check, &b);
    char where[PLACE];
    return b.key ? err_where(e, "%s", place(c, b.key, where)) : -1;
}

bool conf_differs(const struct conf *c, const char *key)
{
    int i = opt_find(key, strlen(key));
    const char *def = opt_table[i].def ? opt_table[i].def : "";
    size_t n = strlen(def), quote = opt_is_text(opt_table[i].type);
    struct text t = {0};
    opt_print(c, i, &t);
    bool same = t.n ? t.n == n + 2 * quote && memcmp(t.s + quote, def, n) == 0 : !n;
    text_free(&t);
    return !same;
}

bool conf_given(const struct conf *c, const char *key)
{
    const int32_t at = c->line[opt_find(key, strlen(key))];
    return at > 0 || at == CONF_OVERRIDE;
}

bool conf_saves(const struct conf *c)
{
    return c->checkpoint.every_steps || c->checkpoint.every_seconds > 0 || c->checkpoint.best;
}

bool conf_rolls_back(const struct conf *c)
{
    return c->train.nonfinite == NONFINITE_ROLLBACK;
}

void conf_derive(struct conf *c, const char *key, const char *value)
{
    int i = opt_find(key, strlen(key)), bad = opt_set(c, i, &(struct opt_value){.n = 1, .text = {value}}, NULL);
    assert(!bad);
    (void)bad;
    c->line[i] = CONF_DERIVED;
}

/* ---- overrides ------------------------------------------------------------------------------------------------- */

/* A list in file syntax; its braces may be missing. */
static int override_list(struct conf *c, const char *s, struct opt_value *v, struct err *e)
{
    char *braced = arena_printf(c->mem, s[strspn(s, " \t")] == '{' ? "%s" : "{%s}", s);
    struct lex l = {.mem = c->mem, .s = braced, .end = braced + strlen(braced), .line = 1, .e = e};
    if (parse_value(&l, v)) return -1;
    enum token t = lex_next(&l);
    if (t == T_END) return 0;
    return t == T_BAD ? -1 : err_set(e, E_CONF, "unexpected text after the list");
}

/* One value: the unchanged text, without quotes around it. */
static void override_single(struct conf *c, const char *s, bool text, struct opt_value *v)
{
    size_t n = strlen(s);
    bool quoted = text && n >= 2 && s[0] == '"' && s[n - 1] == '"';
    *v = (struct opt_value){.n = 1, .text = {arena_printf(c->mem, "%.*s", (int)(n - 2 * quoted), s + quoted)}};
}

static int override_set(struct conf *c, int i, const char *s, struct err *e)
{
    enum opt_type type = opt_table[i].type;
    struct opt_value v;
    if (strlen(s) > LEX_STRING_MAX) return err_set(e, E_CONF, "a text has more than %d bytes", LEX_STRING_MAX);
    if (!opt_is_list(type)) override_single(c, s, opt_is_text(type), &v);
    else if (override_list(c, s, &v, e)) return -1;
    return opt_set(c, i, &v, e);
}

int conf_set_texts(struct conf *c, const char *what, const char *key, const char *const *text, int n, struct err *e)
{
    const int i = opt_find(key, strlen(key));
    struct opt_value v = {.n = n};
    struct err own = {0};
    for (int k = 0; k < n; k++) v.text[k] = arena_strdup(c->mem, text[k]);
    if (opt_set(c, i, &v, &own)) return err_set(e, E_CONF, "%s: %s", what, own.text);
    c->line[i] = CONF_OVERRIDE;
    c->what[i] = what;
    return 0;
}

int conf_put(struct conf *c, const char *key, const char *value, struct err *e)
{
    int i = opt_find(key, strlen(key));
    if (i < 0) return err_set(e, E_CONF, "there is no option %s", key);
    if (value) return override_set(c, i, value, e);
    opt_unset(c, i);
    return 0;
}

/* key: n bytes, '=' and a value. A former one is passed over where it changed nothing. */
static int no_such_option(const char *what, const char *key, size_t n, struct err *e)
{
    char hint[OPT_HINT];
    const char *still = opt_removed(key, n);
    if (still && !strcmp(key + n + 1, still)) return 0;
    return err_set(e, E_USAGE, "%s: there is no option %.*s%s", what, n < CITE ? (int)n : CITE, key,
                   opt_hint(key, n, hint));
}

int conf_set(struct conf *c, const char *what, const char *assignment, struct err *e)
{
    const char *eq = strchr(assignment, '=');
    struct err own = {0};
    char cited[CITE];
    what = opt_cite(what, cited);
    if (!eq || eq == assignment) return err_set(e, E_USAGE, "%s: expected SECTION.KEY=VALUE", what);
    int i = opt_find(assignment, (size_t)(eq - assignment));
    if (i < 0) return no_such_option(what, assignment, (size_t)(eq - assignment), e);
    if (override_set(c, i, eq + 1, &own)) return err_set(e, E_CONF, "%s: %s", what, own.text);
    c->line[i] = CONF_OVERRIDE;
    c->what[i] = arena_strdup(c->mem, what);
    return 0;
}
