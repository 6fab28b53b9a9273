/* Words, quoted texts, marks, comments. Any byte may occur. */
#include <ctype.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include "conf/lex.h"

int lex_fail(struct lex *l, int line, const char *fmt, ...)
{
    char text[800];
    va_list ap;
    va_start(ap, fmt);
    vsnprintf(text, sizeof text, fmt, ap);
    va_end(ap);
    l->at = line;
    return err_set(l->e, E_CONF, "%s", text);
}

static enum token bad(struct lex *l, int line, const char *text) { lex_fail(l, line, "%s", text); return T_BAD; }

static enum token bad_byte(struct lex *l, const char *text)
{
    unsigned char byte = (unsigned char)*l->s;
    if (byte > 0x20 && byte < 0x7f) lex_fail(l, l->line, "%s '%c'", text, byte);
    else lex_fail(l, l->line, "%s '\\x%02x'", text, byte);
    return T_BAD;
}

/* Errors for habits from JSON, YAML or Python. */
static enum token bad_mark(struct lex *l)
{
    static const char mark[] = "[(:';";
    static const char *const want[] = {"write a list in braces, such as {3, 224, 224}",
        "write a list in braces, such as {3, 224, 224}", "write a setting as name = value",
        "write text in double quotes", LEX_SEPARATE};
    const char *m = *l->s ? strchr(mark, *l->s) : NULL;
    if (!m) return bad_byte(l, "unexpected character");
    lex_fail(l, l->line, "unexpected character '%c': %s", *m, want[m - mark]);
    return T_BAD;
}

static bool ahead(const struct lex *l, const char *s)
{
    size_t n = strlen(s);
    return (size_t)(l->end - l->s) >= n && !memcmp(l->s, s, n);
}

static bool block_skip(struct lex *l)
{
    int begin = l->line;
    for (l->s += 2; l->s < l->end; l->s++) {
        if (ahead(l, "*/")) { l->s += 2; return true; }
        l->line += *l->s == '\n';
    }
    bad(l, begin, "a comment begins here and never ends");
    return false;
}

/* Bytes up to the end of the line, which is \n, \r\n or, in old files, \r. */
static size_t line_rest(const struct lex *l)
{
    size_t n = 0;
    while (l->s + n < l->end && l->s[n] != '\n' && l->s[n] != '\r') n++;
    return n;
}

/* Space and comments. False: an error is set. */
static bool space_skip(struct lex *l)
{
    while (l->s < l->end) {
        if (*l->s == '#' || ahead(l, "//")) l->s += line_rest(l);
        else if (ahead(l, "/*")) { if (!block_skip(l)) return false; }
        else if (*l->s == '\n' || *l->s == ' ' || *l->s == '\t' || *l->s == '\r') {
            l->line += *l->s == '\n' || (*l->s == '\r' && !ahead(l, "\r\n"));
            l->s++;
        }
        else break;
    }
    return true;
}

/* The byte for an escape; 0 if there is no such escape. */
static char escape(char c) { return c == 'n' ? '\n' : c == 't' ? '\t' : c == '"' || c == '\\' ? c : 0; }

static enum token string_next(struct lex *l)
{
    char text[LEX_STRING_MAX + 1];
    size_t n = 0;
    for (l->s++; l->s < l->end && *l->s != '"' && *l->s != '\n'; l->s++) {
        char c = *l->s;
        if (c == '\\' && l->s + 1 < l->end && l->s[1] != '\n') {
            l->s++;
            if (!(c = escape(*l->s))) return bad_byte(l, "in a text, \\ must not be followed by");
        } else if ((unsigned char)c < 0x20 && c != '\t') return bad_byte(l, "a text must not contain");
        if (n == LEX_STRING_MAX) return bad(l, l->line, "a text has more than 4095 bytes");
        text[n++] = c;
    }
    if (l->s == l->end || *l->s != '"') return bad(l, l->at, "a text begins here and does not end on its line");
    l->s++;
    text[n] = 0;
    l->word = arena_strdup(l->mem, text);
    return T_STRING;
}

static bool in_word(char c)
{
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || (c && strchr("_.+-/~$", c));
}

/* Length of "${NAME}" here, 0 if there is none. */
static size_t variable_length(const struct lex *l)
{
    if (!ahead(l, "${")) return 0;
    const char *s = l->s + 2;
    while (s < l->end && (*s == '_' || isalnum((unsigned char)*s))) s++;
    return s < l->end && *s == '}' ? (size_t)(s + 1 - l->s) : 0;
}

static enum token word_next(struct lex *l)
{
    const char *begin = l->s;
    while (l->s < l->end && in_word(*l->s) && !ahead(l, "//") && !ahead(l, "/*"))
        l->s += variable_length(l) ? variable_length(l) : 1;
    size_t n = (size_t)(l->s - begin);
    if (!n) return bad_mark(l);
    if (n > LEX_WORD_MAX) return bad(l, l->at, "a word has more than 255 bytes");
    char *word = arena_alloc(l->mem, n + 1);
    memcpy(word, begin, n);
    l->word = word;
    return T_WORD;
}

enum token lex_next(struct lex *l)
{
    static const char marks[] = "{}=,";                  /* in the order of T_OPEN and so on */
    static const char *const name[] = {"{", "}", "=", ","};
    if (!space_skip(l)) return T_BAD;
    l->at = l->line;
    l->word = "";
    if (l->s == l->end) return T_END;
    const char *mark = memchr(marks, *l->s, sizeof marks - 1);
    if (mark) {
        l->s++;
        l->word = name[mark - marks];
        return (enum token)(T_OPEN + (mark - marks));
    }
    return *l->s == '"' ? string_next(l) : word_next(l);
}
