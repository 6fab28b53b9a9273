/* Parses values of options with checks, and prints them. */
#include <assert.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include "conf/table.h"

static void *field(struct conf *c, int i) { return (char *)c + opt_table[i].offset; }
static const void *field_const(const struct conf *c, int i) { return (const char *)c + opt_table[i].offset; }

const char *opt_cite(const char *s, char buf[CITE])
{
    if (strlen(s) < CITE) return s;
    size_t n = CITE - 4;
    while (n > 0 && ((unsigned char)s[n] & 0xc0) == 0x80) n--;   /* never splits a character */
    snprintf(buf, CITE, "%.*s...", (int)n, s);
    return buf;
}

/* ---- checks ---------------------------------------------------------------------------------------------------- */

/* Length of the UTF-8 character at s, 0 if invalid (Unicode 15, table 3-7). */
static int utf8_length(const unsigned char *s)
{
    if (s[0] < 0x80) return 1;
    int n = s[0] >= 0xc2 && s[0] < 0xe0 ? 2 : (s[0] & 0xf0) == 0xe0 ? 3 : s[0] >= 0xf0 && s[0] < 0xf5 ? 4 : 0;
    for (int i = 1; i < n; i++) if ((s[i] & 0xc0) != 0x80) return 0;
    if ((s[0] == 0xe0 && s[1] < 0xa0) || (s[0] == 0xed && s[1] > 0x9f)) return 0;
    if ((s[0] == 0xf0 && s[1] < 0x90) || (s[0] == 0xf4 && s[1] > 0x8f)) return 0;
    return n;
}

int opt_text_check(const char *s, struct err *e)
{
    for (const unsigned char *p = (const unsigned char *)s; *p;) {
        int n = utf8_length(p);
        if (!n) return err_set(e, E_CONF, "the text is not UTF-8 (0x%02x)", *p);
        if ((*p < 0x20 && *p != '\n' && *p != '\t') || *p == 0x7f)
            return err_set(e, E_CONF, "the text has a control character (0x%02x)", *p);
        p += n;
    }
    return 0;
}

static bool word_among(const char *words, const char *word, int n)
{
    for (const char *w = words; *w; w += strcspn(w, " "), w += strspn(w, " "))
        if ((int)strcspn(w, " ") == n && !memcmp(w, word, (size_t)n)) return true;
    return false;
}

void opt_words(const struct opt *o, void (*f)(const char *word, int n, bool built, void *arg), void *arg)
{
    for (const char *w = o->words; *w; w += strspn(w, " ")) {
        bool built = *w != '!';
        int n = (int)strcspn(w, " ");
        if (built || !word_among(o->words, w + 1, n - 1)) f(w + !built, n - !built, built, arg);
        w += n;
    }
}

struct word_search { const char *wanted; bool found, built; };
struct word_list { int n; struct text text; struct suggest near; };

static void word_compare(const char *word, int n, bool built, void *arg)
{
    struct word_search *s = arg;
    if (strlen(s->wanted) != (size_t)n || memcmp(s->wanted, word, (size_t)n)) return;
    s->found = true;
    s->built = built;
}

static void word_report(const char *word, int n, bool built, void *arg)
{
    struct word_list *l = arg;
    if (!built) return;
    text_add(&l->text, "%s%.*s", l->n++ ? ", " : "", n, word);
    suggest_try(&l->near, word, (size_t)n, 0);
}

/* The error for a word that is unknown or not built. */
static int word_refuse(const struct opt *o, const struct word_search *s, struct err *e)
{
    struct word_list l = {.near = suggest_begin(s->wanted, strlen(s->wanted))};
    char cited[CITE], hint[SUGGEST_TEXT];
    opt_words(o, word_report, &l);
    if (!s->found)
        err_set(e, E_CONF, "\"%s\" is %s %s%s", opt_cite(s->wanted, cited), l.n == 1 ? "not" : "not one of", l.text.s,
                suggest_text(&l.near, "", hint));
    else if (o->why) err_set(e, E_CONF, "\"%s\" is not built: %s", s->wanted, o->why);
    else err_set(e, E_CONF, "\"%s\" is not built, only %s", s->wanted, l.text.s);
    text_free(&l.text);
    return -1;
}

static int word_check(const struct opt *o, const char *wanted, struct err *e)
{
    struct word_search s = {.wanted = wanted};
    opt_words(o, word_compare, &s);
    return s.built ? 0 : word_refuse(o, &s, e);
}

static int number(const struct opt *o, const char *v, double *out, struct err *e)
{
    bool whole = o->type == OPT_INT || o->type == OPT_INTS;
    char *end, cited[CITE];
    double x = strtod(v, &end);
    /* neither nan nor 0x10 */
    bool spelled = *v && !*end && !v[strspn(v, whole ? "+-0123456789" : "+-.0123456789eE")];
    if (!spelled || !isfinite(x))
        return err_set(e, E_CONF, "\"%s\" is not a %s number%s", opt_cite(v, cited), whole ? "whole" : "finite",
                       opt_is_list(o->type) && strpbrk(v, "x,;[(") ? "; a list is written as {1, 2}" : "");
    if (x >= o->lo && x <= o->hi) {
        *out = x + 0.0;                                   /* -0 is 0 */
        return 0;
    }
    if (o->lo == o->hi) return err_set(e, E_CONF, "%s is not built, only %.16g", opt_cite(v, cited), o->lo);
    return err_set(e, E_CONF, "%s is not in %.16g to %.16g", opt_cite(v, cited), o->lo, o->hi);
}

/* Hugging Face's spelling, in any case: GiB MiB KiB are powers of 1024, GB MB KB of 1000. In GB MB KB a final b means
 * bits. */
static int size_value(const struct opt *o, const char *v, int64_t *out, struct err *e)
{
    static const struct { const char *name; double factor; } unit[] = {
        {"GIB", 1 << 30}, {"MIB", 1 << 20}, {"KIB", 1 << 10}, {"GB", 1e9}, {"MB", 1e6}, {"KB", 1e3}, {"", 1}};
    size_t n = strlen(v), k = 0;
    char digits[64] = "", cited[CITE];
    double x;
    while (strlen(unit[k].name) > n || strcasecmp(v + n - strlen(unit[k].name), unit[k].name)) k++;
    n -= strlen(unit[k].name);
    if (n >= sizeof digits) return err_set(e, E_CONF, "\"%s\" is not a size", opt_cite(v, cited));
    memcpy(digits, v, n);
    char *end;
    x = strtod(digits, &end);
    if (!n || *end || digits[strspn(digits, "0123456789.")])
        return err_set(e, E_CONF, "\"%s\" is not a size such as 10GiB, 8GB, 512MB or a number of bytes",
                       opt_cite(v, cited));
    x *= unit[k].factor;
    if (k >= 3 && k < 6 && v[strlen(v) - 1] == 'b') x /= 8;
    if (!(x >= o->lo && x <= o->hi))
        return err_set(e, E_CONF, "%s is not in %.16g to %.16g bytes", opt_cite(v, cited), o->lo, o->hi);
    *out = (int64_t)x;
    return 0;
}

/* ---- setting --------------------------------------------------------------------------------------------------- */

/* If the words include yes and no, true and false mean the same. */
static const char *word_of(const struct opt *o, const char *v)
{
    v = opt_word_now(o->key, v);
    const char *same = !strcmp(v, "true") ? "yes" : !strcmp(v, "false") ? "no" : v;
    return word_among(o->words, same, (int)strlen(same)) ? same : v;
}

static int text_set(const struct opt *o, const char **to, const char *v, struct err *e)
{
    if (o->words) v = word_of(o, v);
    if (!*v) return err_set(e, E_CONF, "the text is empty");
    if (opt_text_check(v, e)) return -1;
    if (o->words && word_check(o, v, e)) return -1;
    *to = v;
    return 0;
}

const char *opt_enum_word(const struct opt *o, int value, int *n)
{
    const char *w = o->words;
    if (value == UNSET) return NULL;
    for (int i = 1; i < value; i++) w += strcspn(w, " ") + 1;
    w += *w == '!';
    *n = (int)strcspn(w, " ");
    return w;
}

static int enum_set(const struct opt *o, int *to, const char *v, struct err *e)
{
    const char *word, *w;
    int n;
    if (text_set(o, &word, v, e)) return -1;
    for (*to = 1; (w = opt_enum_word(o, *to, &n), (size_t)n != strlen(word) || memcmp(w, word, (size_t)n)); ++*to);
    return 0;
}

static int bool_set(bool *to, const char *v, struct err *e)
{
    bool yes = !strcmp(v, "yes") || !strcmp(v, "true"), no = !strcmp(v, "no") || !strcmp(v, "false");
    char cited[CITE];
    if (!yes && !no) return err_set(e, E_CONF, "\"%s\" is not one of yes, no, true, false", opt_cite(v, cited));
    *to = yes;
    return 0;
}

static int sizes_set(const struct opt *o, struct conf_ints *to, const struct opt_value *v, struct err *e)
{
    for (int i = 0; i < v->n; i++) if (size_value(o, v->text[i], &to->v[i], e)) return -1;
    to->n = v->n;
    return 0;
}

static int texts_set(struct conf_texts *to, const struct opt_value *v, struct err *e)
{
    for (int i = 0; i < v->n; i++) {
        if (!*v->text[i]) return err_set(e, E_CONF, "the text is empty");
        if (opt_text_check(v->text[i], e)) return -1;
        to->v[i] = v->text[i];
    }
    to->n = v->n;
    return 0;
}

static int list_set(const struct opt *o, void *to, const struct opt_value *v, struct err *e)
{
    double x[CONF_LIST];
    if (o->type == OPT_SIZES) return sizes_set(o, to, v, e);
    if (o->type == OPT_TEXTS) return texts_set(to, v, e);
    for (int i = 0; i < v->n; i++) if (number(o, v->text[i], &x[i], e)) return -1;
    if (o->type == OPT_INTS) {
        struct conf_ints *l = to;
        l->n = v->n;
        for (int i = 0; i < v->n; i++) l->v[i] = (int64_t)x[i];
    } else {
        struct conf_reals *l = to;
        l->n = v->n;
        for (int i = 0; i < v->n; i++) l->v[i] = x[i];
    }
    return 0;
}

int opt_set(struct conf *c, int i, const struct opt_value *v, struct err *e)
{
    const struct opt *o = &opt_table[i];
    bool text = opt_is_text(o->type), list = opt_is_list(o->type);
    bool may_quote = text || o->type == OPT_TEXTS || o->type == OPT_SIZES;
    double x;
    if (v->quoted && !may_quote)
        return err_set(e, E_CONF, "expected %s without quotes", o->type == OPT_BOOL ? "yes or no" : "a number");
    if (list) return list_set(o, field(c, i), v, e);
    if (v->list) return err_set(e, E_CONF, "expected one value, not a list");
    if (o->type == OPT_ENUM) return enum_set(o, field(c, i), v->text[0], e);
    if (text) return text_set(o, field(c, i), v->text[0], e);
    if (o->type == OPT_BOOL) return bool_set(field(c, i), v->text[0], e);
    if (number(o, v->text[0], &x, e)) return -1;
    if (o->type == OPT_INT) *(int64_t *)field(c, i) = (int64_t)x;
    else *(double *)field(c, i) = x;
    return 0;
}

void opt_unset(struct conf *c, int i)
{
    static const size_t bytes[] = {
        [OPT_STRING] = sizeof(char *), [OPT_FILE] = sizeof(char *), [OPT_WORD] = sizeof(char *),
        [OPT_ENUM] = sizeof(int), [OPT_INT] = sizeof(int64_t),
        [OPT_REAL] = sizeof(double), [OPT_BOOL] = sizeof(bool), [OPT_INTS] = sizeof(struct conf_ints),
        [OPT_REALS] = sizeof(struct conf_reals), [OPT_SIZES] = sizeof(struct conf_ints),
        [OPT_TEXTS] = sizeof(struct conf_texts)};
    memset(field(c, i), 0, bytes[opt_table[i].type]);
    if (opt_table[i].def) opt_set(c, i, &(struct opt_value){.n = 1, .text = {opt_table[i].def}}, NULL);
    c->line[i] = CONF_DEFAULT;
}

/* ---- printing -------------------------------------------------------------------------------------------------- */

bool opt_is_set(const struct conf *c, int i)
{
    const void *at = field_const(c, i);
    switch (opt_table[i].type) {
    case OPT_STRING: case OPT_FILE: case OPT_WORD: return *(const char *const *)at != NULL;
    case OPT_ENUM: return *(const int *)at != UNSET;
    case OPT_INTS: case OPT_SIZES: return ((const struct conf_ints *)at)->n > 0;
    case OPT_TEXTS: return ((const struct conf_texts *)at)->n > 0;
    case OPT_REALS: return ((const struct conf_reals *)at)->n > 0;
    default: return opt_table[i].def || c->line[i] != CONF_DEFAULT;
    }
}

void opt_print_text(const char *s, struct text *out)
{
    text_add(out, "\"");
    for (; *s; s++) {
        if (*s == '"' || *s == '\\') text_add(out, "\\%c", *s);
        else if (*s == '\n') text_add(out, "\\n");
        else if (*s == '\t') text_add(out, "\\t");
        else text_add_bytes(out, s, 1);
    }
    text_add(out, "\"");
}

/* The shortest text that reads back as an equal number. */
static void real_print(double x, struct text *out)
{
    char s[40];
    for (int digits = 1; digits <= 17; digits++) {
        snprintf(s, sizeof s, "%.*g", digits, x);
        if (strtod(s, NULL) == x) break;
    }
    text_add(out, "%s", s);
}

/* Doubles each $ of an expanded name, because it no longer begins a variable. */
static void file_print(const char *s, bool expanded, struct text *out)
{
    struct text t = {0};
    for (; *s; s++) text_add(&t, expanded && *s == '$' ? "$%c" : "%c", *s);
    opt_print_text(t.n ? t.s : "", out);
    text_free(&t);
}

static void list_print(const struct opt *o, const void *at, bool expanded, struct text *out)
{
    const struct conf_ints *ints = at;
    const struct conf_reals *reals = at;
    const struct conf_texts *texts = at;
    bool whole = o->type == OPT_INTS || o->type == OPT_SIZES;
    int n = whole ? ints->n : o->type == OPT_TEXTS ? texts->n : reals->n;
    for (int i = 0; i < n; i++) {
        text_add(out, "%s", i ? ", " : "{");
        if (o->files) file_print(texts->v[i], expanded, out);
        else if (o->type == OPT_TEXTS) opt_print_text(texts->v[i], out);
        else if (whole) text_add(out, "%lld", (long long)ints->v[i]);
        else real_print(reals->v[i], out);
    }
    text_add(out, "}");
}

static void enum_print(const struct opt *o, int value, struct text *out)
{
    int n = 0;
    const char *word = opt_enum_word(o, value, &n);
    text_add(out, "\"%.*s\"", n, word);
}

double conf_number(const struct conf *c, const char *key)
{
    int i = opt_find(key, strlen(key));
    assert(i >= 0 && (opt_table[i].type == OPT_REAL || opt_table[i].type == OPT_INT || opt_table[i].type == OPT_BOOL));
    const void *at = field_const(c, i);
    if (opt_table[i].type == OPT_INT) return (double)*(const int64_t *)at;
    return opt_table[i].type == OPT_BOOL ? *(const bool *)at : *(const double *)at;
}

const char *conf_word(const struct conf *c, const char *key)
{
    int i = opt_find(key, strlen(key)), n = 0;
    assert(i >= 0 && opt_table[i].type == OPT_ENUM);
    const char *word = opt_enum_word(&opt_table[i], *(const int *)field_const(c, i), &n);
    return word ? arena_strndup(c->mem, word, (size_t)n) : NULL;
}

bool conf_by_rows(const struct conf *c) { return !strcmp(c->pipeline.schedule, "rows"); }

void opt_print(const struct conf *c, int i, struct text *out)
{
    const void *at = field_const(c, i);
    if (!opt_is_set(c, i)) return;
    switch (opt_table[i].type) {
    case OPT_STRING: case OPT_WORD: opt_print_text(*(const char *const *)at, out); break;
    case OPT_ENUM: enum_print(&opt_table[i], *(const int *)at, out); break;
    case OPT_FILE: file_print(*(const char *const *)at, c->expanded, out); break;
    case OPT_INT: text_add(out, "%lld", (long long)*(const int64_t *)at); break;
    case OPT_REAL: real_print(*(const double *)at, out); break;
    case OPT_BOOL: text_add(out, "%s", *(const bool *)at ? "yes" : "no"); break;
    case OPT_INTS: case OPT_REALS: case OPT_SIZES: case OPT_TEXTS:
        list_print(&opt_table[i], at, c->expanded, out);
        break;
    }
}
