/* Expands file names: $NAME, ${NAME} and a leading ~/. */
#include <ctype.h>
#include <stdint.h>
#include <string.h>
#include "conf/lex.h"
#include "conf/table.h"

static bool in_name(char c) { return c == '_' || isalnum((unsigned char)c); }

/* Appends the value of the variable whose name is the n bytes at s. */
static int variable_add(const char *s, size_t n, char *(*get)(const char *name), struct text *out, struct err *e)
{
    struct text name = {0};
    text_add(&name, "%.*s", (int)n, s);
    const char *value = get(name.s);
    if (value) text_add(out, "%s", value);
    else err_set(e, E_CONF, "the variable %.60s is not set", name.s);
    text_free(&name);
    return value ? 0 : -1;
}

/* Appends the expansion of the $ at *s, and moves *s past it. */
static int dollar(const char **s, char *(*get)(const char *name), struct text *out, struct err *e)
{
    const char *name = *s + 1 + ((*s)[1] == '{');
    size_t n = 0;
    if ((*s)[1] == '$') {
        text_add(out, "$");
        *s += 2;
        return 0;
    }
    while (in_name(name[n]) && !(n == 0 && isdigit((unsigned char)*name))) n++;
    bool braces = name - *s == 2;
    if (!n || (braces && name[n] != '}'))
        return err_set(e, E_CONF, "expected $NAME or ${NAME} after a $; write $$ for a $ itself");
    *s = name + n + braces;
    return variable_add(name, n, get, out, e);
}

static int variables(const char *s, char *(*get)(const char *name), struct text *out, struct err *e)
{
    text_add(out, "%s", "");
    while (*s) {
        size_t n = strcspn(s, "$");
        text_add_bytes(out, s, n);
        s += n;
        if (*s && dollar(&s, get, out, e)) return -1;
    }
    return 0;
}

/* The result does not begin with ~, so it can be printed and read again. */
static int home(struct text *t, char *(*get)(const char *name), struct err *e)
{
    if (!t->n || *t->s != '~') return 0;
    const char *dir = get("HOME");
    if (t->n > 1 && t->s[1] != '/')
        return err_set(e, E_CONF, "a name may begin with ~/, your home directory, but not with ~USER; write ./~ for a "
                                  "file of that name");
    if (!dir || *dir != '/')
        return err_set(e, E_CONF, "~ needs the variable HOME, which is %s", dir ? "not an absolute path" : "not set");
    struct text full = {0};
    text_add(&full, "%s%s", dir, t->s + 1);
    text_free(t);
    *t = full;
    return 0;
}

struct opt_files opt_files_of(struct conf *c, int i)
{
    void *at = (char *)c + opt_table[i].offset;
    if (opt_table[i].type == OPT_FILE) return (struct opt_files){1, at};
    struct conf_texts *list = at;
    if (opt_table[i].files) return (struct opt_files){list->n, list->v};
    return (struct opt_files){0, NULL};
}

static int name_expand(struct conf *c, int i, const char **value, char *(*get)(const char *name), struct err *e)
{
    struct text t = {0};
    struct err own = {0};
    if (!strpbrk(*value, "$~")) return 0;
    int bad = variables(*value, get, &t, &own) || home(&t, get, &own) || opt_text_check(t.s, &own);
    if (!bad && !t.n) bad = err_set(&own, E_CONF, "the name is empty");
    if (bad) conf_error(c, opt_table[i].key, e, "%s", own.text);
    else *value = arena_strdup(c->mem, t.s);
    text_free(&t);
    return bad ? -1 : 0;
}

/* A printed name has each $ doubled, and must then fit into one text of a file. This also applies to derived names. */
static int length_check(const struct conf *c, int i, const char *value, struct err *e)
{
    size_t n = 0;
    for (const char *s = value; s && *s; s++) n += 1 + (*s == '$');
    if (n <= LEX_STRING_MAX) return 0;
    return conf_error(c, opt_table[i].key, e, "the name has more than %d bytes (each $ in it counts twice)",
                      LEX_STRING_MAX);
}

int conf_expand(struct conf *c, char *(*get)(const char *name), struct err *e)
{
    for (int i = 0; opt_table[i].key; i++) {
        if (!opt_is_set(c, i)) continue;
        const struct opt_files f = opt_files_of(c, i);
        bool given = c->line[i] > 0 || c->line[i] == CONF_OVERRIDE;
        for (int k = 0; k < f.n; k++)
            if ((given && name_expand(c, i, &f.name[k], get, e)) || length_check(c, i, f.name[k], e)) return -1;
    }
    c->expanded = true;
    return 0;
}

void conf_inputs(const struct conf *c, void (*f)(void *ctx, const char *key, const char *file), void *ctx)
{
    f(ctx, "", c->file);
    for (int i = 0; opt_table[i].key; i++) {
        const struct opt_files files = opt_files_of((struct conf *)(uintptr_t)c, i);
        for (int k = 0; k < files.n && !opt_table[i].written; k++)
            if (files.name[k] && *files.name[k]) f(ctx, opt_table[i].key, files.name[k]);
    }
}

/* ---- from one process to others ---------------------------------------------------------------------------------- */

void conf_files_give(const struct conf *c, struct text *out)
{
    for (int i = 0; opt_table[i].key; i++) {
        const struct opt_files f = opt_files_of((struct conf *)(uintptr_t)c, i);
        for (int k = 0; k < f.n; k++)
            text_add_bytes(out, f.name[k] ? f.name[k] : "", f.name[k] ? strlen(f.name[k]) + 1 : 1);
    }
}

void conf_files_take(struct conf *c, const struct text *names)
{
    const char *s = names->s, *end = s + names->n;
    for (int i = 0; opt_table[i].key && s < end; i++) {
        const struct opt_files f = opt_files_of(c, i);
        for (int k = 0; k < f.n && s < end; k++, s += strlen(s) + 1)
            f.name[k] = *s ? arena_strdup(c->mem, s) : NULL;
    }
    c->expanded = true;
}
