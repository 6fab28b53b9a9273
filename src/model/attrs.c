/* Attributes of operators in the graph text's syntax, read and printed. */
#include <assert.h>
#include <ctype.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "base/suggest.h"
#include "model/graph_int.h"

/* The number of a word in "one two three"; -1: none. */
static int word_index(const char *words, const char *word, size_t n)
{
    int at = 0;
    for (const char *w = words; w && *w; w += strcspn(w, " "), w += strspn(w, " "), at++)
        if (strcspn(w, " ") == n && !memcmp(w, word, n)) return at;
    return -1;
}

static int attr_index(const struct op_kind *k, const char *name, size_t n)
{
    for (int i = 0; k->attr && k->attr[i].name; i++)
        if (strlen(k->attr[i].name) == n && !memcmp(k->attr[i].name, name, n)) return i;
    return -1;
}

/* WORD=yes instead of NAME=WORD: the attribute that has the word; -1: none. `value` is then the word. */
static int attr_of_word(const struct op_kind *k, const char *word, size_t n, char value[64])
{
    for (int i = 0; k->attr && k->attr[i].name; i++) {
        if (k->attr[i].type != A_WORD || word_index(k->attr[i].words, word, n) < 0) continue;
        const bool no = !strcmp(value, "no") || !strcmp(value, "false"),
                   yes = !strcmp(value, "yes") || !strcmp(value, "true");
        if (!no && !yes) return -1;
        if (yes) snprintf(value, 64, "%.*s", (int)n, word);
        else snprintf(value, 64, "%.*s", (int)strcspn(k->attr[i].words, " "), k->attr[i].words);
        return i;
    }
    return -1;
}

int op_attr(const struct op_kind *k, const char *name)
{
    int i = attr_index(k, name, strlen(name));
    assert(i >= 0 && "an attribute that is not in the table of the operator");
    return i;
}

static void attrs_default(struct node *n)
{
    for (int i = 0; n->op->attr && n->op->attr[i].name; i++) {
        const struct attr_kind *k = &n->op->attr[i];
        n->attr[i] = (struct attr_value){.n = 1, .i = {(int64_t)k->def}, .r = k->def};
    }
}

static void attrs_follow(struct node *n, const bool *given)
{
    for (int i = 0; n->op->attr && n->op->attr[i].name; i++) {
        const char *like = n->op->attr[i].like;
        if (like && !given[i]) n->attr[i] = n->attr[op_attr(n->op, like)];
    }
}

static int attr_range(const struct attr_kind *k, double v, const char *text, struct err *e)
{
    if (v >= k->lo && v <= k->hi) return 0;
    return err_set(e, E_CONF, "%s=%s is not in %.10g to %.10g", k->name, text, k->lo, k->hi);
}

static int attr_word(const struct attr_kind *k, struct attr_value *v, const char *text, struct err *e)
{
    int at = word_index(k->words, text, strlen(text));
    if (at < 0) return err_set(e, E_CONF, "%s=%s: expected one of %s", k->name, text, k->words);
    *v = (struct attr_value){.n = 1, .i = {at}, .r = at};
    return 0;
}

/* Sets one value in the graph text's syntax: 3, 0.1, yes, 3x5x5, tanh. */
static int attr_set(const struct attr_kind *k, struct attr_value *v, const char *text, struct err *e)
{
    char *end;
    if (k->type == A_BOOL) {
        bool yes = !strcmp(text, "yes") || !strcmp(text, "true"), no = !strcmp(text, "no") || !strcmp(text, "false");
        if (!yes && !no) return err_set(e, E_CONF, "%s=%s: expected yes or no", k->name, text);
        *v = (struct attr_value){.n = 1, .i = {yes}, .r = yes};
        return 0;
    }
    if (k->type == A_REAL) {
        double r = strtod(text, &end);
        if (end == text || *end || !(r == r)) return err_set(e, E_CONF, "%s=%s: expected a number", k->name, text);
        if (attr_range(k, r, text, e)) return -1;
        *v = (struct attr_value){.n = 1, .i = {(int64_t)r}, .r = r};
        return 0;
    }
    if (k->type == A_WORD) return attr_word(k, v, text, e);
    const int most = k->type == A_LIST ? MAX_LIST : k->type == A_INTS ? MAX_SPACE : 1;
    v->n = 0;
    for (const char *s = text;; s = end + 1) {
        if (!isdigit((unsigned char)*s) || v->n == most || strlen(s) > 15) break;
        v->i[v->n] = strtoll(s, &end, 10);
        if (attr_range(k, (double)v->i[v->n], text, e)) return -1;
        v->n++;
        if (!*end) { v->r = (double)v->i[0]; return 0; }
        if (*end != 'x') break;
    }
    return err_set(e, E_CONF, "%s=%s: expected %s", k->name, text,
                   k->type == A_LIST   ? "up to 8 numbers, as in 16x16x32"
                   : k->type == A_INTS ? "a number, or one a dimension as in 3x5x5"
                                       : "a whole number");
}

static int attr_unknown(const struct op_kind *k, const char *s, size_t n, struct err *e)
{
    char hint[SUGGEST_TEXT];
    struct suggest near = suggest_begin(s, n);
    for (int i = 0; k->attr && k->attr[i].name; i++) suggest_try(&near, k->attr[i].name, strlen(k->attr[i].name), 0);
    return err_set(e, E_CONF, "%s has no attribute \"%.*s\"%s", k->name, (int)(n < 60 ? n : 60), s,
                   suggest_text(&near, "", hint));
}

int attrs_parse(struct node *n, const char *s, struct err *e)
{
    bool seen[MAX_ATTR] = {false};
    attrs_default(n);
    while (s && *s) {
        while (*s == ' ') s++;
        if (!*s) break;
        size_t word = strcspn(s, " "), name = strcspn(s, "= ");
        char value[64];
        if (name == word || word - name - 1 >= sizeof value)
            return err_set(e, E_CONF, "\"%.*s\" is not NAME=VALUE", (int)(word < 60 ? word : 60), s);
        snprintf(value, sizeof value, "%.*s", (int)(word - name - 1), s + name + 1);
        int i = attr_index(n->op, s, name);
        if (i < 0) i = attr_of_word(n->op, s, name, value);
        if (i < 0) return attr_unknown(n->op, s, name, e);
        if (seen[i]) return err_set(e, E_CONF, "%s is set twice", n->op->attr[i].name);
        seen[i] = true;
        if (attr_set(&n->op->attr[i], &n->attr[i], value, e)) return -1;
        s += word;
    }
    attrs_follow(n, seen);
    return 0;
}

static void word_print(const char *words, int n, struct text *out)
{
    for (; n > 0; n--) words += strcspn(words, " ") + 1;
    text_add(out, "%.*s", (int)strcspn(words, " "), words);
}

void attrs_print(const struct node *n, struct text *out)
{
    for (int i = 0; n->op->attr && n->op->attr[i].name; i++) {
        const struct attr_kind *k = &n->op->attr[i];
        const struct attr_value *v = &n->attr[i];
        if (v->n == 1 && v->r == k->def && !k->like) continue;   /* a value with .like is always printed */
        text_add(out, " %s=", k->name);
        if (k->type == A_BOOL) text_add(out, "%s", v->i[0] ? "yes" : "no");
        else if (k->type == A_REAL) text_add(out, "%.17g", v->r);
        else if (k->type == A_WORD) word_print(k->words, (int)v->i[0], out);
        else for (int d = 0; d < v->n; d++) text_add(out, "%s%lld", d ? "x" : "", (long long)v->i[d]);
    }
}
