/* Prints a configuration as text that reads back, as JSON, and the option table as a manual. */
#include <jansson.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include "conf/table.h"

static size_t section_length(const char *key) { return strcspn(key, "."); }

/* Row i begins a section. */
static bool section_begins(int i)
{
    size_t n = section_length(opt_table[i].key);
    return !i || section_length(opt_table[i - 1].key) != n || memcmp(opt_table[i - 1].key, opt_table[i].key, n);
}

static bool section_ends(int i) { return !opt_table[i + 1].key || section_begins(i + 1); }
static bool in_pipeline(int i) { return !strncmp(opt_table[i].key, "pipeline.", 9); }

static void sections_print(const struct conf *c, struct text *out)
{
    for (int i = 0; i < c->pipeline.n_stages; i++) {
        text_add(out, "    stage { first = ");
        opt_print_text(c->pipeline.stage[i].first, out);
        text_add(out, "  last = ");
        opt_print_text(c->pipeline.stage[i].last, out);
        text_add(out, " }\n");
    }
}

/* 600 for people, and not 6e+02. Checkpoints keep what opt_print writes, since a resumed run compares these texts. */
static void value_print(const struct conf *c, int i, struct text *out)
{
    const double x = opt_table[i].type == OPT_REAL ? *(const double *)((const char *)c + opt_table[i].offset) : 0;
    if (x >= 10 && x < 1e6 && x == floor(x)) text_add(out, "%.0f", x);
    else opt_print(c, i, out);
}

void conf_print(const struct conf *c, struct text *out)
{
    for (int i = 0; opt_table[i].key; i++) {
        const char *key = opt_table[i].key;
        size_t n = section_length(key);
        if (section_begins(i)) text_add(out, "%.*s {\n", (int)n, key);
        if (opt_is_set(c, i)) {
            text_add(out, "    %s = ", key + n + 1);
            value_print(c, i, out);
            text_add(out, "\n");
        }
        if (!section_ends(i)) continue;
        if (in_pipeline(i)) sections_print(c, out);
        text_add(out, "}\n");
    }
}

void conf_decides(const struct conf *c, void (*f)(void *ctx, const char *key, const char *value), void *ctx)
{
    for (int i = 0; opt_table[i].key; i++) {
        struct text t = {0};
        const char *of = opt_table[i].bits_of;
        if (!opt_table[i].bits && !of) continue;
        if (opt_is_set(c, i) && (!of || opt_of_holds(c, of, NULL, NULL))) opt_print(c, i, &t);
        f(ctx, opt_table[i].key, t.n ? t.s : NULL);
        text_free(&t);
    }
}

bool conf_is_live(const char *key)
{
    int i = opt_find(key, strlen(key));
    return i >= 0 && opt_table[i].live;
}

bool conf_follows(const char *key)
{
    int i = opt_find(key, strlen(key));
    return i >= 0 && (opt_table[i].live || opt_table[i].bits_of);
}

void conf_value(const struct conf *c, const char *key, struct text *out)
{
    int i = opt_find(key, strlen(key));
    if (i >= 0 && opt_is_set(c, i)) opt_print(c, i, out);
}

static bool same_text(const struct text *a, const struct text *b)
{
    return a->n == b->n && (!a->n || !memcmp(a->s, b->s, a->n));
}

void conf_compare(const struct conf *a, const struct conf *b, void (*f)(void *ctx, const char *key, bool live),
                  void *ctx)
{
    struct text x = {0}, y = {0};
    for (int i = 0; opt_table[i].key; i++) {
        x.n = y.n = 0;
        conf_value(a, opt_table[i].key, &x);
        conf_value(b, opt_table[i].key, &y);
        if (!same_text(&x, &y)) f(ctx, opt_table[i].key, opt_table[i].live);
    }
    x.n = y.n = 0;
    sections_print(a, &x);
    sections_print(b, &y);
    if (!same_text(&x, &y)) f(ctx, "pipeline.stage", false);
    text_free(&x);
    text_free(&y);
}

/* ---- JSON ------------------------------------------------------------------------------------------------------ */

static json_t *list_json(enum opt_type type, const void *at)
{
    const struct conf_ints *ints = at;
    const struct conf_reals *reals = at;
    json_t *a = json_array();
    const struct conf_texts *texts = at;
    bool whole = type == OPT_INTS || type == OPT_SIZES;
    int n = whole ? ints->n : type == OPT_TEXTS ? texts->n : reals->n;
    for (int i = 0; i < n; i++)
        json_array_append_new(a, whole               ? json_integer(ints->v[i])
                                 : type == OPT_TEXTS ? json_string(texts->v[i])
                                                     : json_real(reals->v[i]));
    return a;
}

static json_t *value_json(const struct conf *c, int i)
{
    const void *at = (const char *)c + opt_table[i].offset;
    const char *word;
    int n = 0;
    switch (opt_table[i].type) {
    case OPT_STRING: case OPT_FILE: case OPT_WORD: return json_string(*(const char *const *)at);
    case OPT_ENUM: word = opt_enum_word(&opt_table[i], *(const int *)at, &n); return json_stringn(word, (size_t)n);
    case OPT_INT: return json_integer(*(const int64_t *)at);
    case OPT_REAL: return json_real(*(const double *)at);
    case OPT_BOOL: return json_boolean(*(const bool *)at);
    case OPT_INTS: case OPT_REALS: case OPT_SIZES: case OPT_TEXTS: break;
    }
    return list_json(opt_table[i].type, at);
}

static json_t *stages_json(const struct conf *c)
{
    json_t *a = json_array();
    for (int i = 0; i < c->pipeline.n_stages; i++) {
        const struct conf_stage *st = &c->pipeline.stage[i];
        json_array_append_new(a, json_pack("{s:s,s:s}", "first", st->first, "last", st->last));
    }
    return a;
}

/* Former names stay: metrics.jsonl has this object, and other programs read it. */
static void option_json(const struct conf *c, int i, json_t *section)
{
    const char *names[] = {opt_table[i].key, opt_former(i)};
    for (int k = 0; k < 2 && names[k]; k++)
        json_object_set_new(section, names[k] + section_length(names[k]) + 1, value_json(c, i));
}

char *conf_json(const struct conf *c)
{
    json_t *all = json_object(), *section = NULL;
    for (int i = 0; opt_table[i].key; i++) {
        const char *key = opt_table[i].key;
        if (section_begins(i)) section = json_object();
        if (opt_is_set(c, i)) option_json(c, i, section);
        if (!section_ends(i)) continue;
        if (in_pipeline(i)) json_object_set_new(section, "stage", stages_json(c));
        char *name = mem_strdup(key);
        name[section_length(key)] = 0;
        json_object_set_new(all, name, section);
        free(name);
    }
    char *s = json_dumps(all, JSON_INDENT(2));
    json_decref(all);
    return s;
}

/* ---- manual ---------------------------------------------------------------------------------------------------- */

struct printed_words { struct text built, missing; };

static void word_collect(const char *word, int n, bool built, void *arg)
{
    struct printed_words *w = arg;
    struct text *t = built ? &w->built : &w->missing;
    text_add(t, "%s%.*s", t->n ? " , " : "", n, word);
}

static void word_list(const char *word, int n, bool built, void *arg)
{
    struct text *out = arg;
    if (built) text_add(out, "%s%.*s", out->n ? ", " : "", n, word);
}

static void word_add(const char *word, int n, bool built, void *arg)
{
    struct text *out = arg;
    if (built) text_add(out, "%s%.*s", out->n ? " " : "", n, word);
}

const char *conf_key(int i) { return opt_table[i].key; }

void conf_words(const char *key, bool *file, struct text *out)
{
    const struct opt *o = &opt_table[opt_find(key, strlen(key))];
    *file = o->type == OPT_FILE;
    if (o->words) opt_words(o, word_add, out);
    if (o->type == OPT_BOOL) text_add(out, "yes no");
}

/* Only the manual shows the text after "; ". */
void conf_help(const char *key, struct text *out)
{
    const struct opt *o = &opt_table[opt_find(key, strlen(key))];
    const char *more = strstr(o->text, "; ");
    struct text words = {0};
    if (o->words) opt_words(o, word_list, &words);
    text_add(out, "%.*s", more ? (int)(more - o->text) : -1, o->text);
    if (words.n) text_add(out, " (%s)", words.s);
    text_free(&words);
}

static void words_manual(const struct opt *o, struct text *out)
{
    struct printed_words w = {0};
    opt_words(o, word_collect, &w);
    text_add(out, "One of\n.Cm %s .\n", w.built.s);
    if (w.missing.n) text_add(out, "Known, but not in this version:\n.Cm %s .\n", w.missing.s);
    text_free(&w.built);
    text_free(&w.missing);
}

static void range_manual(const struct opt *o, struct text *out)
{
    static const char *const kind[] = {
        [OPT_STRING] = "text",
        [OPT_FILE] = "file name",
        [OPT_INT] = "whole number",
        [OPT_REAL] = "number",
        [OPT_INTS] = "list of whole numbers",
        [OPT_REALS] = "list of numbers",
        [OPT_SIZES] = "list of sizes such as 10GiB, 8GB or 512MB (GiB, MiB, KiB, GB, MB, KB, or plain bytes)",
        [OPT_TEXTS] = "list of texts"};
    double untold = 1e15;                                /* larger limits are not printed */
    if (o->words) words_manual(o, out);
    else if (o->type == OPT_BOOL) text_add(out, "Yes or no.\n");
    else if (o->type == OPT_INT && o->hi > untold && o->lo > 0)
        text_add(out, "A %s from %.16g on.\n", kind[o->type], o->lo);
    else if (o->type == OPT_STRING || o->type == OPT_FILE || o->type == OPT_TEXTS || o->hi > untold)
        text_add(out, "A %s.\n", kind[o->type]);
    else text_add(out, "A %s from %.16g to %.16g.\n", kind[o->type], o->lo, o->hi);
}

void conf_manual(struct text *out)
{
    for (const struct opt *o = opt_table; o->key; o++) {
        char first = o->text[0] >= 'a' && o->text[0] <= 'z' ? (char)(o->text[0] - 'a' + 'A') : o->text[0];
        text_add(out, ".It Ic %s\n%c%s.\n", o->key, first, o->text + 1);
        range_manual(o, out);
        if (o->def) text_add(out, "The default is\n.Cm %s .\n", o->def);
        if (o->live) text_add(out, "A run takes a new value by\n.Ql mpstagectl reload .\n");
    }
}
