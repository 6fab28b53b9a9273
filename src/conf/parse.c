/* The configuration file: sections with braces, any number of NAME = VALUE on a line, lists in braces. An error in
 * hostile input is reported once, with its line; nothing is guessed. No function is recursive, so depth is harmless. */
#include <stdio.h>
#include <string.h>
#include "conf/parse.h"

enum { STAGES_MAX = 4096 };

static int unexpected(struct lex *l, enum token t, const char *want)
{
    if (t == T_BAD) return -1;
    if (t == T_END) return lex_fail(l, l->at, "expected %s, found the end", want);
    char cited[CITE];
    return lex_fail(l, l->at, "expected %s, found \"%s\"", want, opt_cite(l->word, cited));
}

/* ---- values ---------------------------------------------------------------------------------------------------- */

static int list_parse(struct lex *l, struct opt_value *v)
{
    v->list = true;
    enum token t = lex_next(l);
    while (t != T_CLOSE) {
        if (t != T_WORD && t != T_STRING) return unexpected(l, t, "a value of the list or '}'");
        if (v->n == CONF_LIST) return lex_fail(l, l->at, "a list has more than %d values", CONF_LIST);
        v->quoted |= t == T_STRING;
        v->text[v->n++] = l->word;
        t = lex_next(l);
        if (t == T_COMMA) t = lex_next(l);
        else if (t != T_CLOSE) return unexpected(l, t, "',' or '}'");
    }
    return 0;
}

int parse_value(struct lex *l, struct opt_value *v)
{
    *v = (struct opt_value){0};
    enum token t = lex_next(l);
    if (t == T_OPEN) return list_parse(l, v);
    if (t != T_WORD && t != T_STRING) return unexpected(l, t, "a value");
    v->n = 1;
    v->text[0] = l->word;
    v->quoted = t == T_STRING;
    return 0;
}

/* ---- settings -------------------------------------------------------------------------------------------------- */

/* "= VALUE" after what is no key. A former one is passed over where it changed nothing. */
static int unknown_key(struct lex *l, int line, const char *key)
{
    char cited[CITE], hint[OPT_HINT];
    const char *still = opt_removed(key, strlen(key));
    struct opt_value v;
    if (still && parse_value(l, &v)) return -1;
    if (still && !v.list && !strcmp(v.text[0], still)) return 0;
    return lex_fail(l, line, "unknown key %s%s", opt_cite(key, cited), opt_hint(key, strlen(key), hint));
}

/* Parses "= VALUE" after SECTION.NAME on this line. */
static int setting(struct conf *c, struct lex *l, const char *section, const char *name, int line)
{
    char key[2 * LEX_WORD_MAX + 2];
    snprintf(key, sizeof key, "%s.%s", section, name);
    int i = opt_find(key, strlen(key));
    if (i < 0) return unknown_key(l, line, key);
    if (c->line[i] > 0) return lex_fail(l, line, "%s is already set in line %d", key, (int)c->line[i]);
    struct opt_value v;
    if (parse_value(l, &v)) return -1;
    if (opt_set(c, i, &v, l->e)) {
        l->at = line;
        return err_where(l->e, "%s", key);
    }
    c->line[i] = line;
    return 0;
}

/* ---- sections -------------------------------------------------------------------------------------------------- */

/* Parses "= LAYER" after first or last. */
static int layer(struct lex *l, const char *name, const char **to)
{
    int line = l->at;
    enum token t = lex_next(l);
    if (t != T_EQUALS) return unexpected(l, t, "'='");
    if (*to) return lex_fail(l, line, "%s is set twice in this stage", name);
    struct opt_value v;
    if (parse_value(l, &v)) return -1;
    if (v.list || !v.text[0][0]) return lex_fail(l, line, "%s: expected the name of a layer", name);
    if (opt_text_check(v.text[0], l->e)) {
        l->at = line;
        return err_where(l->e, "%s", name);
    }
    *to = v.text[0];
    return 0;
}

void conf_stage_add(struct conf *c, struct conf_stage st)
{
    int n = c->pipeline.n_stages;
    if ((n & (n - 1)) == 0) {                            /* grow to the next power of two */
        struct conf_stage *more = arena_alloc(c->mem, (n ? 2 * (size_t)n : 1) * sizeof *more);
        if (n) memcpy(more, c->pipeline.stage, (size_t)n * sizeof *more);
        c->pipeline.stage = more;
    }
    st.first = arena_printf(c->mem, "%s", st.first);
    st.last = arena_printf(c->mem, "%s", st.last);
    c->pipeline.stage[c->pipeline.n_stages++] = st;
}

static int stage_section(struct conf *c, struct lex *l)
{
    struct conf_stage st = {.line = l->at};
    for (enum token t; (t = lex_next(l)) != T_CLOSE;) {
        if (t == T_END) return lex_fail(l, st.line, "section stage begins here and never ends");
        if (t != T_WORD) return unexpected(l, t, "first, last or '}'");
        char cited[CITE];
        bool first = !strcmp(l->word, "first");
        if (!first && strcmp(l->word, "last"))
            return lex_fail(l, l->at, "unknown key %s: a stage has first and last", opt_cite(l->word, cited));
        if (layer(l, l->word, first ? &st.first : &st.last)) return -1;
    }
    if (!st.first || !st.last) return lex_fail(l, st.line, "a stage needs first and last");
    if (c->pipeline.n_stages == STAGES_MAX) return lex_fail(l, st.line, "more than %d stages", STAGES_MAX);
    conf_stage_add(c, st);
    return 0;
}

/* Parses NAME = VALUE or, in pipeline, stage { ... }; l->word is the name. */
static int entry(struct conf *c, struct lex *l, const char *section)
{
    const char *name = l->word;
    char cited[CITE];
    int line = l->at;
    enum token t = lex_next(l);
    if (t == T_EQUALS) return setting(c, l, section, name, line);
    if (t != T_OPEN) return unexpected(l, t, "'='");
    l->at = line;
    if (!strcmp(section, "pipeline") && !strcmp(name, "stage")) return stage_section(c, l);
    return lex_fail(l, line, "there is no section \"%s\" in section %s%s", opt_cite(name, cited), section,
                    opt_section(name) ? " (is a } missing before it?)" : "");
}

static int section_body(struct conf *c, struct lex *l, const char *section, int line)
{
    for (enum token t; (t = lex_next(l)) != T_CLOSE;) {
        if (t == T_END) return lex_fail(l, line, "section %s begins here and never ends", section);
        if (t == T_COMMA) return lex_fail(l, l->at, "unexpected character ',': " LEX_SEPARATE);
        if (t != T_WORD) return unexpected(l, t, "a key or '}'");
        if (entry(c, l, section)) return -1;
    }
    return 0;
}

static int unknown_section(struct lex *l, const char *section)
{
    char cited[CITE], hint[SUGGEST_TEXT];
    struct suggest near = suggest_begin(section, strlen(section));
    opt_sections_try(&near);
    return lex_fail(l, l->at, "there is no section \"%s\", only " OPT_SECTIONS "%s", opt_cite(section, cited),
                    suggest_text(&near, "", hint));
}

static int section_parse(struct conf *c, struct lex *l, enum token t)
{
    if (t != T_WORD) return unexpected(l, t, "the name of a section");
    const char *section = l->word;
    int line = l->at;
    if (!opt_section(section)) return unknown_section(l, section);
    t = lex_next(l);
    if (t != T_OPEN) return unexpected(l, t, "'{'");
    return section_body(c, l, section, line);
}

int parse_file(struct conf *c, const char *s, size_t n, struct err *e)
{
    struct lex l = {.mem = c->mem, .s = s, .end = s + n, .line = 1, .e = e};
    for (enum token t; (t = lex_next(&l)) != T_END;)
        if (section_parse(c, &l, t)) return err_where(e, "%s:%d", c->file, l.at);
    return 0;
}
