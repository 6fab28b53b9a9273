/* Blocks of graph text: statements written once and used under several names, with inputs and parameters. */
#include <ctype.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "model/text_int.h"

enum { MAX_NAME = 255 };

/* ---- definitions ------------------------------------------------------------------------------------------------- */

#define LETTERS "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ_"

static bool is_word(const char *s) { return *s && !s[strspn(s, LETTERS "0123456789")]; }

/* Operators and blocks share a name space. No name begins with a digit, so expressions are unambiguous. */
static bool block_name_ok(struct parse *p, const char *name)
{
    if (!is_word(name) || isdigit((unsigned char)*name)) graph_fail(p->b, "\"%s\" is not a name of a block", name);
    else if (op_find(name)) graph_fail(p->b, "block %s: there is an operator of this name", name);
    else if (block_find(p, name) >= 0) graph_fail(p->b, "there is already a block \"%s\"", name);
    return !p->b->e.code;
}

static bool known(const struct graph_block *k, const char *word)
{
    for (int i = 0; i < k->n_in; i++) if (!strcmp(k->in[i], word)) return true;
    for (int i = 0; i < k->n_params; i++) if (!strcmp(k->param[i].name, word)) return true;
    return !strcmp(word, "i") || !strcmp(word, "layer");
}

static bool word_take(struct parse *p, const struct graph_block *k, const char *word)
{
    if (!is_word(word) || isdigit((unsigned char)*word))
        graph_fail(p->b, "block %s: \"%s\" is not a name of an input or a parameter", k->name, word);
    else if (known(k, word)) graph_fail(p->b, "block %s: \"%s\" is there already", k->name, word);
    return !p->b->e.code;
}

static void params_define(struct parse *p, struct graph_block *k, char *s)
{
    for (char *save, *w = strtok_r(s, " \t", &save); w; w = strtok_r(NULL, " \t", &save)) {
        char *eq = strchr(w, '=');
        if (eq) *eq++ = 0;
        if (!word_take(p, k, w)) return;
        if (eq && !*eq) { graph_fail(p->b, "block %s: %s= needs a value", k->name, w); return; }
        if (k->n_params == MAX_BLOCK_PARAMS) { graph_fail(p->b, "block %s has too many parameters", k->name); return; }
        k->param[k->n_params++] = (struct block_param){arena_strdup(p->b->mem, w),
                                                       eq ? arena_strdup(p->b->mem, eq) : NULL};
    }
}

void block_begin(struct parse *p, char *line)
{
    static const char want[] = "expected: block NAME(INPUT, ...) PARAMETER PARAMETER=VALUE ... {";
    char *name = line + strspn(line, " \t"), *open = strchr(name, '('), *close = open ? strchr(open, ')') : NULL,
         *end = close ? strrchr(close, '{') : NULL;
    if (!end || end[1 + strspn(end + 1, " \t\r")]) { graph_fail(p->b, "%s", want); return; }
    *open = *close = *end = 0;
    name[strcspn(name, " \t")] = 0;
    if (!block_name_ok(p, name)) return;
    struct graph_block k = {.name = arena_strdup(p->b->mem, name)};
    for (char *save, *w = strtok_r(open + 1, ", \t", &save); w; w = strtok_r(NULL, ", \t", &save)) {
        if (!word_take(p, &k, w)) return;
        if (k.n_in == MAX_IN) { graph_fail(p->b, "block %s has too many inputs", k.name); return; }
        k.in[k.n_in++] = arena_strdup(p->b->mem, w);
    }
    if (!k.n_in) { graph_fail(p->b, "block %s reads nothing", k.name); return; }
    params_define(p, &k, close + 1);
    if (p->b->e.code) return;
    *vec_push(&p->block) = k;
    p->defining = true;
}

void block_take(struct parse *p, char *line)
{
    struct graph_block *k = &p->block.v[p->block.n - 1];
    char *s = line + strspn(line, " \t\r");
    size_t n = strlen(s);
    while (n && strchr(" \t\r", s[n - 1])) s[--n] = 0;
    if (!n) return;
    if (strcmp(s, "}")) {
        *vec_push(&k->body) = (struct block_line){arena_strdup(p->b->mem, s), p->b->line};
        return;
    }
    if (!k->body.n) graph_fail(p->b, "block %s is empty", k->name);
    p->defining = false;
}

void blocks_free(struct parse *p)
{
    for (int i = 0; i < p->block.n; i++) vec_free(&p->block.v[i].body);
    vec_free(&p->block);
    vec_free(&p->alias);
    name_table_free(&p->aliases);
}

/* ---- names ------------------------------------------------------------------------------------------------------- */

int block_find(const struct parse *p, const char *name)
{
    for (int i = p->scope ? p->scope->block - 1 : p->block.n - 1; i >= 0; i--)
        if (!strcmp(p->block.v[i].name, name)) return i;
    return -1;
}

const char *scope_name(struct parse *p, const char *name)
{
    const char *prefix = p->scope ? p->scope->prefix : "";
    if (p->scope && strlen(prefix) + strlen(name) > MAX_NAME) {
        graph_fail(p->b, "%s: the name is longer than %d characters", name, MAX_NAME);
        return NULL;
    }
    return arena_printf(p->b->mem, "%s%s", prefix, name);
}

int scope_tensor(const struct parse *p, const char *name)
{
    char full[MAX_NAME + 1];
    const struct graph_block *k = p->scope ? &p->block.v[p->scope->block] : NULL;
    for (int i = 0; k && i < k->n_in; i++) if (!strcmp(k->in[i], name)) return p->scope->in[i];
    if (!k) return name_table_find(&p->aliases, name);
    bool fits = snprintf(full, sizeof full, "%s%s", p->scope->prefix, name) < (int)sizeof full;
    return fits ? name_table_find(&p->aliases, full) : -1;
}

/* ---- expressions in braces --------------------------------------------------------------------------------------- */

/* Numbers, parameters, + - * / and parentheses. */
struct sum { struct parse *p; const char *s; int depth; bool bad; };

static const char *value_of(const struct parse *p, const char *name, size_t n)
{
    const struct graph_block *k = &p->block.v[p->scope->block];
    if (n == 1 && *name == 'i' && p->scope->index) return p->scope->index;
    for (int i = 0; i < k->n_params; i++)
        if (strlen(k->param[i].name) == n && !memcmp(k->param[i].name, name, n)) return p->scope->value[i];
    return NULL;
}

static size_t word_length(const char *s)
{
    return isalpha((unsigned char)*s) || *s == '_'
               ? strspn(s, LETTERS "0123456789")
               : 0;
}

static double number(struct sum *x, const char *s, size_t n)
{
    char buf[64], *end = buf;
    double v = 0;
    if (n < sizeof buf && (isdigit((unsigned char)*s) || *s == '.' || *s == '-')) {
        memcpy(buf, s, n);
        buf[n] = 0;
        v = strtod(buf, &end);
    }
    if (end == buf || *end) x->bad = true;
    return v;
}

static char next(struct sum *x) { x->s += strspn(x->s, " \t"); return *x->s; }

static double sum_of(struct sum *x);

static double factor_of(struct sum *x)
{
    double v = 0;
    size_t n;
    char c = next(x);
    if (++x->depth > 32) x->bad = true;
    if (x->bad) return 0;
    if (c == '-') {
        x->s++;
        v = -factor_of(x);
    } else if (c == '(') {
        x->s++;
        v = sum_of(x);
        if (next(x) == ')') x->s++;
        else x->bad = true;
    } else if ((n = word_length(x->s))) {
        const char *value = value_of(x->p, x->s, n);
        if (value) v = number(x, value, strlen(value));
        else x->bad = true;
        x->s += n;
    } else {
        n = strspn(x->s, "0123456789.");
        v = number(x, x->s, n);
        x->s += n;
    }
    x->depth--;
    return v;
}

static double product_of(struct sum *x)
{
    double v = factor_of(x);
    for (char c; !x->bad && ((c = next(x)) == '*' || c == '/');) {
        x->s++;
        double by = factor_of(x);
        v = c == '*' ? v * by : v / by;
    }
    return v;
}

static double sum_of(struct sum *x)
{
    double v = product_of(x);
    for (char c; !x->bad && ((c = next(x)) == '+' || c == '-');) {
        x->s++;
        double by = product_of(x);
        v = c == '+' ? v + by : v - by;
    }
    return v;
}

/* A single parameter is copied unchanged: it may be a word, or a list such as 3x5. */
static int braces_value(struct parse *p, const char *s, char *out, size_t space)
{
    struct sum x = {p, s, 0, false};
    const char *name = s + strspn(s, " \t");
    size_t n = word_length(name);
    const char *value = n && !name[n + strspn(name + n, " \t")] ? value_of(p, name, n) : NULL;
    if (value) return snprintf(out, space, "%s", value);
    double v = sum_of(&x);
    if (x.bad || next(&x) || !isfinite(v)) {
        graph_fail(p->b, "{%.60s}: expected numbers and parameters of block %s, with + - * / and parentheses", s,
                   p->block.v[p->scope->block].name);
        return -1;
    }
    return snprintf(out, space, v == floor(v) && fabs(v) < 1e15 ? "%.0f" : "%.17g", v);
}

/* Copies a statement of the use, with all braces replaced. */
static int braces_replace(struct parse *p, const char *s, char out[MAX_BLOCK_LINE])
{
    size_t n = 0;
    while (*s) {
        char inner[128];
        const char *close = *s == '{' ? strchr(s, '}') : NULL;
        if (*s != '{' && n + 1 < MAX_BLOCK_LINE) { out[n++] = *s++; continue; }
        if (*s == '{' && (!close || (size_t)(close - s) > sizeof inner))
            return graph_fail(p->b, "%s", close ? "too much text between { and }" : "{ without }");
        int added = -1;
        if (close) {
            memcpy(inner, s + 1, (size_t)(close - s - 1));
            inner[close - s - 1] = 0;
            if ((added = braces_value(p, inner, out + n, MAX_BLOCK_LINE - n)) < 0) return -1;
            s = close + 1;
        }
        if (added < 0 || (n += (size_t)added) >= MAX_BLOCK_LINE)
            return graph_fail(p->b, "the statement is longer than %d characters", MAX_BLOCK_LINE);
    }
    out[n] = 0;
    return 0;
}

/* ---- uses -------------------------------------------------------------------------------------------------------- */

static int args_take(struct parse *p, const struct block_use *u, struct scope *s)
{
    const struct graph_block *k = &p->block.v[u->block];
    char *args = arena_strdup(p->b->mem, u->args);
    for (int i = 0; i < k->n_params; i++) s->value[i] = NULL;
    for (char *save, *w = strtok_r(args, " \t", &save); w; w = strtok_r(NULL, " \t", &save)) {
        char *eq = strchr(w, '=');
        int i = 0;
        if (!eq || !eq[1]) return graph_fail(p->b, "%s: \"%s\" is not PARAMETER=VALUE", u->name, w);
        *eq = 0;
        while (i < k->n_params && strcmp(k->param[i].name, w)) i++;
        if (i == k->n_params) return graph_fail(p->b, "%s: block %s has no parameter \"%s\"", u->name, k->name, w);
        if (s->value[i]) return graph_fail(p->b, "%s: %s is set twice", u->name, w);
        s->value[i] = eq + 1;
    }
    for (int i = 0; i < k->n_params; i++) {
        if (!s->value[i]) s->value[i] = k->param[i].value;
        if (!s->value[i])
            return graph_fail(p->b, "%s: block %s needs %s=", u->name, k->name, k->param[i].name);
    }
    return 0;
}

static void alias_add(struct parse *p, const char *name, int tensor)
{
    if (builder_tensor(p->b, name) >= 0 || name_table_find(&p->aliases, name) >= 0) {
        graph_fail(p->b, "there is already a tensor \"%s\"", name);
        return;
    }
    *vec_push(&p->alias) = (struct alias){name, tensor};
    name_table_add(&p->aliases, name, tensor);
}

/* Adds the statements of one use under this name, with inputs in[]. Returns its output tensor, -1 on error. */
static int expand_one(struct parse *p, const struct block_use *u, const char *name, const char *index, const int *in)
{
    struct scope *outer = p->scope, s = {.block = u->block, .depth = outer ? outer->depth + 1 : 1, .in = in,
                                         .index = index, .first = p->b->tensor.n, .output = -1};
    int line = p->b->line;
    const char *full = scope_name(p, name);
    if (!full || args_take(p, u, &s)) return -1;
    if (s.depth > MAX_BLOCK_DEPTH) return graph_fail(p->b, "%s: more than %d blocks within each other", full,
                                                     MAX_BLOCK_DEPTH);
    s.prefix = arena_printf(p->b->mem, "%s.", full);
    p->scope = &s;
    for (int i = 0; i < p->block.v[u->block].body.n && !p->b->e.code; i++) {
        const struct block_line *l = &p->block.v[u->block].body.v[i];
        char text[MAX_BLOCK_LINE];
        p->b->line = l->line;
        if (++p->statements > MAX_BLOCK_STATEMENTS)
            graph_fail(p->b, "%s: the uses of blocks come to more than %d statements", full, MAX_BLOCK_STATEMENTS);
        else if (!braces_replace(p, l->text, text)) statement_parse(p, text);
    }
    p->scope = outer;
    if (p->b->e.code) return -1;
    p->b->line = line;
    int out = s.output >= 0 ? s.output : p->b->tensor.n - 1;
    if (out < s.first) return graph_fail(p->b, "%s: block %s has no operator of its own that is its output", full,
                                         p->block.v[u->block].name);
    alias_add(p, full, out);
    if (u->layer) graph_container(p->b, full, u->layer, out);
    return p->b->e.code ? -1 : out;
}

/* "layer1.0..3": from and to, and the offset of the first number. */
static bool range_of(const char *name, size_t *stem, int *from, int *to)
{
    const char *dots = NULL;
    for (const char *at = strstr(name, ".."); at; at = strstr(at + 1, "..")) dots = at;
    if (!dots || !dots[2] || dots[2 + strspn(dots + 2, "0123456789")] || strlen(dots + 2) > 6) return false;
    const char *first = dots;
    while (first > name && isdigit((unsigned char)first[-1])) first--;
    if (first == dots || dots - first > 6) return false;
    *stem = (size_t)(first - name);
    *from = atoi(first);
    *to = atoi(dots + 2);
    return true;
}

void block_expand(struct parse *p, const struct block_use *u)
{
    size_t stem;
    int from, to, in[MAX_IN];
    const struct graph_block *k = &p->block.v[u->block];
    if (u->n_in != k->n_in) { graph_fail(p->b, "%s: wrong number of inputs for block %s", u->name, k->name); return; }
    memcpy(in, u->in, sizeof in);
    if (!range_of(u->name, &stem, &from, &to)) { expand_one(p, u, u->name, NULL, in); return; }
    if (to < from) { graph_fail(p->b, "%s: the range is empty", u->name); return; }
    for (int i = from; i <= to && !p->b->e.code; i++) {  /* each reads the previous one */
        const char *index = arena_printf(p->b->mem, "%d", i);
        in[0] = expand_one(p, u, arena_printf(p->b->mem, "%.*s%d", (int)stem, u->name, i), index, in);
    }
}
