/* The configuration file: sections with braces, NAME = VALUE any number on a line, lists in braces, comments # // and C's. Hostile input gets one message
 * with its line; nothing is guessed. */
#include <ctype.h>
#include <stdio.h>
#include <string.h>
#include "conf/parse.h"

enum token { T_END, T_WORD, T_STRING, T_OPEN, T_CLOSE, T_EQUALS, T_COMMA, T_BAD };
struct parser {
    struct conf *c;
    const char *s, *end;
    int line, token_line;
    char word[1024];
    struct err *e;
};

static int fail(struct parser *p, int line, const char *fmt, const char *what)
{
    err_set(p->e, E_CONF, fmt, what);
    return err_where(p->e, "%s:%d", p->c->file, line);
}

static bool skip_block(struct parser *p)
{
    int start = p->line;
    for (p->s += 2; p->s + 1 < p->end; p->s++) {
        if (p->s[0] == '*' && p->s[1] == '/') { p->s += 2; return true; }
        p->line += *p->s == '\n';
    }
    fail(p, start, "a comment begins here and never ends%s", "");
    return false;
}

static bool skip_space(struct parser *p)
{
    while (p->s < p->end) {
        if (*p->s == '\n') { p->line++; p->s++; }
        else if (isspace((unsigned char)*p->s)) p->s++;
        else if (*p->s == '#' || (*p->s == '/' && p->s + 1 < p->end && p->s[1] == '/')) while (p->s < p->end && *p->s != '\n') p->s++;
        else if (*p->s == '/' && p->s + 1 < p->end && p->s[1] == '*') { if (!skip_block(p)) return false; }
        else break;
    }
    return true;
}

static enum token string_token(struct parser *p)
{
    size_t n = 0;
    for (p->s++; p->s < p->end && *p->s != '"'; p->s++) {
        char ch = *p->s;
        if (ch == '\n') break;
        if (ch == '\\') {
            if (++p->s == p->end) break;
            ch = *p->s == 'n' ? '\n' : *p->s == 't' ? '\t' : *p->s;
        }
        if (n + 1 == sizeof p->word) { fail(p, p->line, "a text is longer than 1023 bytes%s", ""); return T_BAD; }
        p->word[n++] = ch;
    }
    if (p->s == p->end || *p->s != '"') { fail(p, p->token_line, "a text begins here and does not end on its line%s", ""); return T_BAD; }
    p->s++;
    p->word[n] = 0;
    return T_STRING;
}

static enum token next(struct parser *p)
{
    if (!skip_space(p)) return T_BAD;
    p->token_line = p->line;
    if (p->s == p->end) return T_END;
    static const char marks[] = "{}=,";
    const char *m = strchr(marks, *p->s);
    if (*p->s && m) { p->s++; p->word[0] = *m; p->word[1] = 0; return (enum token)(T_OPEN + (m - marks)); }
    if (*p->s == '"') return string_token(p);
    size_t n = 0;
    while (p->s < p->end && (isalnum((unsigned char)*p->s) || strchr("_.+-/", *p->s)) && *p->s && n + 1 < sizeof p->word) p->word[n++] = *p->s++;
    p->word[n] = 0;
    if (n) return T_WORD;
    char what[16];
    unsigned char ch = (unsigned char)*p->s;
    if (isprint(ch)) { what[0] = (char)ch; what[1] = 0; }
    else { what[0] = '\\'; what[1] = 'x'; what[2] = "0123456789abcdef"[ch >> 4]; what[3] = "0123456789abcdef"[ch & 15]; what[4] = 0; }
    fail(p, p->line, "unexpected character '%s'", what);
    return T_BAD;
}

static int unexpected(struct parser *p, enum token t, const char *want)
{
    if (t == T_BAD) return -1;
    char text[200];
    snprintf(text, sizeof text, "%s, found %.60s%.60s%s", want, t == T_END ? "the end of the file" : "\"", t == T_END ? "" : p->word, t == T_END ? "" : "\"");
    return fail(p, p->token_line, "want %s", text);
}

/* ---- values --------------------------------------------------------------------------------------------------------------------- */

struct value { int n; bool list, quoted; char text[CONF_LIST][1024]; const char *at[CONF_LIST]; };

static int value_list(struct parser *p, struct value *v)
{
    enum token t = next(p);
    v->list = true;
    while (t != T_CLOSE) {
        if (t != T_WORD && t != T_STRING) return unexpected(p, t, "a value of the list");
        if (v->n == CONF_LIST) return fail(p, p->token_line, "a list of more than 16 values%s", "");
        memcpy(v->text[v->n], p->word, sizeof p->word);
        v->at[v->n] = v->text[v->n];
        v->n++;
        t = next(p);
        if (t == T_COMMA) t = next(p);
        else if (t != T_CLOSE) return unexpected(p, t, "',' or '}'");
    }
    return 0;
}

static int value_parse(struct parser *p, struct value *v)
{
    enum token t = next(p);
    v->n = 0;
    v->list = v->quoted = false;
    if (t == T_OPEN) return value_list(p, v);
    if (t != T_WORD && t != T_STRING) return unexpected(p, t, "a value");
    memcpy(v->text[0], p->word, sizeof p->word);
    v->at[0] = v->text[0];
    v->n = 1;
    v->quoted = t == T_STRING;
    return 0;
}

/* ---- sections ------------------------------------------------------------------------------------------------------------------- */

static int unknown_key(struct parser *p, int line, const char *key)
{
    char text[200];
    const char *near = opt_nearest(key, strlen(key));
    snprintf(text, sizeof text, "%.80s%s%s%s", key, near ? " (did you mean " : "", near ? near : "", near ? "?)" : "");
    return fail(p, line, "unknown key %s", text);
}

static int assignment(struct parser *p, const char *section, const char *name, int line)
{
    static _Thread_local struct value v;                 /* 17 KiB: too large for a small stack, and parsing is not reentrant */
    char key[128];
    snprintf(key, sizeof key, "%.40s.%.80s", section, name);
    int i = opt_find(key, strlen(key));
    if (i < 0) return unknown_key(p, line, key);
    if (value_parse(p, &v)) return -1;
    if (p->c->line[i] > 0) {
        char text[200];
        snprintf(text, sizeof text, "%s is already set in line %d", key, p->c->line[i]);
        return fail(p, line, "%s", text);
    }
    struct err e = {0};
    if (opt_set(p->c, i, v.n, v.at, v.quoted, v.list, &e)) {
        err_where(&e, "%s", key);
        return fail(p, line, "%s", e.text);
    }
    p->c->line[i] = (int16_t)(line < 32767 ? line : 32767);
    return 0;
}

static int stage_section(struct parser *p, int line)
{
    struct conf_stage st = {.line = line};
    static _Thread_local struct value v;
    for (;;) {
        enum token t = next(p);
        if (t == T_CLOSE) break;
        if (t != T_WORD) return t == T_END ? fail(p, line, "section stage begins here and never ends%s", "") : unexpected(p, t, "first or last");
        const char **to = !strcmp(p->word, "first") ? &st.first : !strcmp(p->word, "last") ? &st.last : NULL;
        int at = p->token_line;
        if (!to) { char key[128]; snprintf(key, sizeof key, "pipeline.stage.%.80s", p->word); return fail(p, at, "unknown key %s", key); }
        t = next(p);
        if (t != T_EQUALS) return unexpected(p, t, "'='");
        if (value_parse(p, &v)) return -1;
        if (v.list || !v.text[0][0]) return fail(p, at, "want the name of a layer%s", "");
        if (*to) return fail(p, at, "%s is set twice in this stage", to == &st.first ? "first" : "last");
        *to = arena_strdup(p->c->mem, v.text[0]);
    }
    if (!st.first || !st.last) return fail(p, line, "a stage needs first and last%s", "");
    struct conf_stage *all = arena_alloc(p->c->mem, (size_t)(p->c->pipeline.n_stages + 1) * sizeof *all);
    if (p->c->pipeline.n_stages) memcpy(all, p->c->pipeline.stage, (size_t)p->c->pipeline.n_stages * sizeof *all);
    all[p->c->pipeline.n_stages++] = st;
    p->c->pipeline.stage = all;
    return p->c->pipeline.n_stages > 4096 ? fail(p, line, "more than 4096 stages%s", "") : 0;
}

static int section_body(struct parser *p, const char *section, int line)
{
    for (;;) {
        char name[1024];
        enum token t = next(p);
        if (t == T_CLOSE) return 0;
        if (t == T_END) return fail(p, line, "section %s begins here and never ends", section);
        if (t != T_WORD) return unexpected(p, t, "a key or '}'");
        memcpy(name, p->word, sizeof name);
        int at = p->token_line;
        t = next(p);
        if (t == T_OPEN && !strcmp(section, "pipeline") && !strcmp(name, "stage")) {
            if (stage_section(p, at)) return -1;
            continue;
        }
        if (t == T_OPEN) return fail(p, at, "there is no section \"%.60s\" here", name);
        if (t != T_EQUALS) return unexpected(p, t, "'='");
        if (assignment(p, section, name, at)) return -1;
    }
}

int conf_parse_text(struct conf *c, const char *s, size_t n, struct err *e)
{
    struct parser p = {.c = c, .s = s, .end = s + n, .line = 1, .e = e};
    char section[1024];
    for (enum token t = next(&p); t != T_END; t = next(&p)) {
        if (t != T_WORD) return unexpected(&p, t, "a section such as \"run {\"");
        memcpy(section, p.word, sizeof section);
        int line = p.token_line;
        if (!opt_section(section, strlen(section))) return fail(&p, line, "there is no section \"%.60s\"", section);
        t = next(&p);
        if (t != T_OPEN) return unexpected(&p, t, "'{'");
        if (section_body(&p, section, line)) return -1;
    }
    return e && e->code ? -1 : 0;
}
