/* Reads a tokenizer.json. What is not supported is refused by its name. */
#include <ctype.h>
#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <utf8proc.h>
#include <xxhash.h>
#include "data/tokenizer_int.h"

enum { MAX_PIECES = 1 << 24, MATCH_LIMIT = 10000000 };
struct token_parse { struct tokenizer *t; const char *file; struct err *e; };

static int parse_fail(const struct token_parse *p, const char *what, const char *value)
{
    return err_set(p->e, E_DATA, "%s: %s %.60s is not supported", p->file, what, value ? value : "");
}
static const char *word_of(const json_t *o, const char *key)
{
    const json_t *v = json_object_get(o, key);
    return json_is_string(v) ? json_string_value(v) : "";
}
static bool yes(const json_t *o, const char *key, bool otherwise)
{
    const json_t *v = json_object_get(o, key);
    return json_is_boolean(v) ? json_is_true(v) : otherwise;
}
static bool given(const json_t *o, const char *key)
{
    const json_t *v = json_object_get(o, key);
    return v && !json_is_null(v) && !(json_is_string(v) && !json_string_length(v));
}
static struct text_chars chars_of(struct tokenizer *t, const json_t *v)
{
    const size_t n = json_string_length(v);
    char *s = arena_alloc(t->mem, n + 1);
    if (n) memcpy(s, json_string_value(v), n);
    return (struct text_chars){s, n};
}

/* ---- steps --------------------------------------------------------------------------------------------- */

/* Hugging Face's library takes expressions of Oniguruma. There ^ and $ match at each line; \h is a hexadecimal digit,
 * \v one character, && intersects classes, and (?m) lets a point match ends of lines. Words, and so \b, have marks and
 * all connecting punctuation; classes such as [:alpha:] have other characters. */
static bool means_other(const char *s)
{
    for (; *s; s++) {
        if (*s == '\\' && s[1]) {
            if (strchr("hHwWbBvV", *++s)) return true;
        } else if (!strncmp(s, "&&", 2) || !strncmp(s, "(?m", 3) ||
                   (!strncmp(s, "[:", 2) && (s[2] == '^' || isalpha((unsigned char)s[2])))) return true;
    }
    return false;
}

static pcre2_code *regex_of(const struct token_parse *p, const char *s, size_t n)
{
    int code;
    PCRE2_SIZE at;
    const uint32_t how = PCRE2_UTF | PCRE2_UCP | PCRE2_NO_UTF_CHECK | PCRE2_MULTILINE;
    pcre2_code *r = means_other(s) ? NULL : pcre2_compile((PCRE2_SPTR)s, n, how, &code, &at, NULL);
    if (!r) { parse_fail(p, "the regular expression", s); return NULL; }
    pcre2_jit_compile(r, PCRE2_JIT_COMPLETE);             /* otherwise it is interpreted */
    return r;
}

/* {"String": ".."} or {"Regex": ".."}; a string becomes an expression that matches it alone. */
static pcre2_code *pattern_of(const struct token_parse *p, const json_t *o)
{
    const json_t *regex = json_object_get(o, "Regex"), *text = json_object_get(o, "String");
    struct text t = {0};
    if (json_is_string(regex)) return regex_of(p, json_string_value(regex), json_string_length(regex));
    if (!json_is_string(text) || strstr(json_string_value(text), "\\E")) return parse_fail(p, "a pattern", ""), NULL;
    text_add(&t, "\\Q%s\\E", json_string_value(text));
    pcre2_code *r = regex_of(p, t.s, t.n);
    text_free(&t);
    return r;
}

static int split_read(const struct token_parse *p, const json_t *o, struct token_step *s)
{
    static const char *const how[] = {
        [SPLIT_REMOVED] = "Removed", [SPLIT_ISOLATED] = "Isolated", [SPLIT_WITH_PREVIOUS] = "MergedWithPrevious",
        [SPLIT_WITH_NEXT] = "MergedWithNext", [SPLIT_CONTIGUOUS] = "Contiguous"};
    int k = 0;
    while (k < 5 && strcmp(how[k], word_of(o, "behavior"))) k++;
    if (k == 5) return parse_fail(p, "the behavior", word_of(o, "behavior"));
    s->type = STEP_SPLIT;
    s->how = (enum split_how)k;
    s->yes = yes(o, "invert", false);
    s->regex = pattern_of(p, json_object_get(o, "pattern"));
    return s->regex ? 0 : -1;
}

static int bytes_read(const struct token_parse *p, const json_t *o, struct token_step *s)
{
    static const char gpt2[] = "'s|'t|'re|'ve|'m|'ll|'d| ?\\p{L}+| ?\\p{N}+| ?[^\\s\\p{L}\\p{N}]+|\\s+(?!\\S)|\\s+";
    s->type = STEP_BYTES;
    s->yes = yes(o, "add_prefix_space", true);
    if (yes(o, "use_regex", true)) s->regex = regex_of(p, gpt2, sizeof gpt2 - 1);
    return yes(o, "use_regex", true) && !s->regex ? -1 : 0;
}

static int metaspace_read(const struct token_parse *p, const json_t *o, struct token_step *s)
{
    const char *when = word_of(o, "prepend_scheme");
    s->type = STEP_METASPACE;
    s->a = chars_of(p->t, json_object_get(o, "replacement"));
    s->yes = yes(o, "split", true);
    s->prepend = !strcmp(when, "never") ? PREPEND_NEVER : !strcmp(when, "first") ? PREPEND_FIRST : PREPEND_ALWAYS;
    if (!*when && !yes(o, "add_prefix_space", true)) s->prepend = PREPEND_NEVER;
    utf8proc_int32_t one;
    const bool single = s->a.n && utf8proc_iterate((const utf8proc_uint8_t *)s->a.s, (utf8proc_ssize_t)s->a.n, &one) ==
                                      (utf8proc_ssize_t)s->a.n;
    return single ? 0 : parse_fail(p, "Metaspace", "without a replacement of one character");
}

static int replace_read(const struct token_parse *p, const json_t *o, struct token_step *s)
{
    const json_t *from = json_object_get(json_object_get(o, "pattern"), "String"), *to = json_object_get(o, "content");
    if (!json_is_string(from) || !json_string_length(from) || !json_is_string(to))
        return parse_fail(p, "Replace", "of a regular expression");
    *s = (struct token_step){.type = STEP_REPLACE, .a = chars_of(p->t, from), .b = chars_of(p->t, to)};
    return 0;
}

static int strip_read(const struct token_parse *p, const json_t *o, struct token_step *s)
{
    *s = (struct token_step){.type = STEP_STRIP, .a = chars_of(p->t, json_object_get(o, "content")),
                       .begin = (int)json_integer_value(json_object_get(o, "start")),
                       .end = (int)json_integer_value(json_object_get(o, "stop"))};
    return s->a.n ? 0 : parse_fail(p, "Strip", "without content");
}

enum { NORMALIZER = 1, PRE = 2, DECODER = 4 };
static int step_read(const struct token_parse *p, const json_t *o, int where, struct token_step *s)
{
    const char *type = word_of(o, "type");
    *s = (struct token_step){.a = {NULL}};
    if (where == NORMALIZER && !strcmp(type, "NFC")) return s->type = STEP_NFC, 0;
    if (where == NORMALIZER && !strcmp(type, "Prepend")) {
        s->type = STEP_PREPEND;
        s->a = chars_of(p->t, json_object_get(o, "prepend"));
        return 0;
    }
    if (where != PRE && !strcmp(type, "Replace")) return replace_read(p, o, s);
    if (where == PRE && !strcmp(type, "Split")) return split_read(p, o, s);
    if (where == PRE && !strcmp(type, "Digits")) {
        s->type = STEP_DIGITS;
        s->yes = yes(o, "individual_digits", false);
        s->regex = regex_of(p, "\\p{N}", 5);
        return s->regex ? 0 : -1;
    }
    if (where == DECODER && !strcmp(type, "ByteLevel")) return s->type = STEP_BYTES, 0;
    if (where == PRE && !strcmp(type, "ByteLevel")) return bytes_read(p, o, s);
    if (where != NORMALIZER && !strcmp(type, "Metaspace")) return metaspace_read(p, o, s);
    if (where == DECODER && !strcmp(type, "ByteFallback")) return s->type = STEP_BYTE_FALLBACK, 0;
    if (where == DECODER && !strcmp(type, "Fuse")) return s->type = STEP_FUSE, 0;
    if (where == DECODER && !strcmp(type, "Strip")) return strip_read(p, o, s);
    const char *what = where == NORMALIZER ? "the normalizer" : where == PRE ? "the pre_tokenizer" : "the decoder";
    return parse_fail(p, what, type);
}

static int steps_read(const struct token_parse *p, const json_t *o, int where, struct token_steps *out)
{
    static const char *const list[] = {[NORMALIZER] = "normalizers", [PRE] = "pretokenizers", [DECODER] = "decoders"};
    if (!o || json_is_null(o)) return 0;
    const json_t *all = json_object_get(o, list[where]);
    if (strcmp(word_of(o, "type"), "Sequence")) return step_read(p, o, where, vec_push(out));
    for (size_t i = 0; i < json_array_size(all); i++)
        if (step_read(p, json_array_get(all, i), where, vec_push(out))) return -1;
    return 0;
}

/* Replacements, one after the other, could lengthen a token without limit. */
static int decoder_check(const struct token_parse *p)
{
    enum { MOST = 4096 };
    double times = 1;
    for (int i = 0; i < p->t->decoder.n; i++) {
        const struct token_step *s = &p->t->decoder.v[i];
        if (s->type == STEP_REPLACE && s->a.n && s->b.n > s->a.n) times *= (double)s->b.n / (double)s->a.n;
    }
    if (times <= MOST) return 0;
    return parse_fail(p, "the decoder", "with steps that make a token more than 4096 times as long");
}

/* ---- pieces and merges --------------------------------------------------------------------------------- */

/* model: words are made of it; an added token is only found as a whole. */
static int piece_set(const struct token_parse *p, struct text_chars s, json_int_t id, bool model)
{
    struct tokenizer *t = p->t;
    if (id < 0 || id >= MAX_PIECES) return err_set(p->e, E_DATA, "%s: token %.60s has the id %lld", p->file, s.s,
                                                   (long long)id);
    if (id >= t->size) {
        uint32_t room = t->size ? t->size : 1024;
        while (room <= id) room *= 2;
        struct text_chars *more = mem_alloc(room * sizeof *more);
        if (t->size) memcpy(more, t->piece, t->size * sizeof *more);
        free(t->piece);
        t->piece = more;
        t->size = room;
    }
    if (t->piece[id].s) {
        if (t->piece[id].n == s.n && !memcmp(t->piece[id].s, s.s, s.n)) return 0;
        return err_set(p->e, E_DATA, "%s: two tokens have the id %lld", p->file, (long long)id);
    }
    t->piece[id] = s;
    if (model) id_table_put(&t->by_text, XXH3_64bits(s.s, s.n), (uint32_t)id);
    return 0;
}

static int vocabulary_read(const struct token_parse *p, json_t *vocab)
{
    const char *key;
    json_t *v;
    if (!json_is_object(vocab) || !json_object_size(vocab)) return parse_fail(p, "the model", "without vocab");
    json_object_foreach(vocab, key, v) {
        char *s = arena_strdup(p->t->mem, key);
        if (!json_is_integer(v)) return parse_fail(p, "the id of", key);
        if (piece_set(p, (struct text_chars){s, strlen(s)}, json_integer_value(v), true)) return -1;
    }
    return 0;
}

/* "a b", or ["a", "b"]: both parts and their joint must be tokens. */
static int merge_read(const struct token_parse *p, const json_t *m, uint32_t rank)
{
    struct text_chars a = {NULL}, b = {NULL};
    const struct tokenizer *t = p->t;
    if (json_is_string(m)) {
        const char *s = json_string_value(m), *space = strchr(s, ' ');
        const size_t n = json_string_length(m);
        if (space) a = (struct text_chars){s, (size_t)(space - s)}, b = (struct text_chars){space + 1, n - a.n - 1};
    } else if (json_array_size(m) == 2) {
        const json_t *x = json_array_get(m, 0), *y = json_array_get(m, 1);
        a = (struct text_chars){json_string_value(x), json_string_length(x)};
        b = (struct text_chars){json_string_value(y), json_string_length(y)};
    }
    if (!a.s || !b.s) return err_set(p->e, E_DATA, "%s: merge %u is no pair", p->file, rank);
    char *joint = mem_alloc(a.n + b.n + 1);
    memcpy(joint, a.s, a.n);
    memcpy(joint + a.n, b.s, b.n);
    const int64_t left = piece_find(t, a.s, a.n), right = piece_find(t, b.s, b.n),
                  both = piece_find(t, joint, a.n + b.n);
    free(joint);
    if (left < 0 || right < 0 || both < 0)
        return err_set(p->e, E_DATA, "%s: merge %u has a part that is no token: %.60s", p->file, rank, a.s);
    p->t->merge[rank] = (struct token_merge){rank, (uint32_t)both};
    if (a.n && b.n) seam_add(p->t, a.s, a.n, b.s, b.n);
    if (!merge_find(t, (uint32_t)left, (uint32_t)right))
        id_table_put(&p->t->by_pair, pair_key((uint32_t)left, (uint32_t)right), rank);
    return 0;
}

static int model_read(const struct token_parse *p, const json_t *m)
{
    static const char *const no[] = {"dropout", "continuing_subword_prefix", "end_of_word_suffix"};
    struct tokenizer *t = p->t;
    const json_t *merges = json_object_get(m, "merges");
    const char *type = word_of(m, "type");
    if (*type && strcmp(type, "BPE")) return parse_fail(p, "the model", type);
    if (!json_is_array(merges)) return parse_fail(p, "the model", "without merges");
    for (size_t i = 0; i < sizeof no / sizeof *no; i++) if (given(m, no[i])) return parse_fail(p, "the model's", no[i]);
    if (vocabulary_read(p, json_object_get(m, "vocab"))) return -1;
    t->byte_fallback = yes(m, "byte_fallback", false);
    t->ignore_merges = yes(m, "ignore_merges", false);
    t->fuse_unk = yes(m, "fuse_unk", false);
    if (given(m, "unk_token")) t->unknown = piece_find(t, word_of(m, "unk_token"), strlen(word_of(m, "unk_token")));
    if (given(m, "unk_token") && t->unknown < 0) return parse_fail(p, "the unk_token", word_of(m, "unk_token"));
    t->merge = mem_alloc((json_array_size(merges) + 1) * sizeof *t->merge);
    for (size_t i = 0; i < json_array_size(merges); i++)
        if (merge_read(p, json_array_get(merges, i), (uint32_t)i)) return -1;
    for (int i = 0; i < 256; i++) {
        char name[8];
        snprintf(name, sizeof name, "<0x%02X>", i);
        t->byte_id[i] = piece_find(t, name, 6);
    }
    return 0;
}

static int added_read(const struct token_parse *p, const json_t *list)
{
    for (size_t i = 0; i < json_array_size(list); i++) {
        const json_t *o = json_array_get(list, i), *id = json_object_get(o, "id"), *s = json_object_get(o, "content");
        if (!json_is_integer(id) || !json_is_string(s))
            return parse_fail(p, "an added token", "without id and content");
        const struct text_chars text = chars_of(p->t, s);
        const struct added_token a = {text, text, (uint32_t)json_integer_value(id), yes(o, "special", false),
                                      yes(o, "normalized", true), yes(o, "lstrip", false), yes(o, "rstrip", false),
                                      yes(o, "single_word", false)};
        const int64_t known = piece_find(p->t, a.s.s, a.s.n);
        if (known >= 0 && known != json_integer_value(id))
            return parse_fail(p, "a token with two ids,", json_string_value(s));
        if (piece_set(p, a.s, json_integer_value(id), false)) return -1;
        if (a.s.n) *vec_push(&p->t->added) = a;
    }
    return 0;
}

/* Only whether a token stands in front of a text. Other tokens around it are not supported. */
static int first_read(const struct token_parse *p, const json_t *o)
{
    const char *type = word_of(o, "type");
    if (!strcmp(type, "Sequence")) {
        const json_t *all = json_object_get(o, "processors");
        for (size_t i = 0; i < json_array_size(all); i++) if (first_read(p, json_array_get(all, i))) return -1;
        return 0;
    }
    if (!*type || !strcmp(type, "ByteLevel")) return 0;
    if (strcmp(type, "TemplateProcessing")) return parse_fail(p, "the post_processor", type);
    const json_t *single = json_object_get(o, "single"),
                 *one = json_object_get(json_array_get(single, 0), "SpecialToken");
    if (json_array_size(single) != 1 + (one != NULL) ||
        !json_object_get(json_array_get(single, one != NULL), "Sequence"))
        return parse_fail(p, "the post_processor", "TemplateProcessing of other forms than \"token? text\"");
    const char *name = word_of(one, "id");
    if (!one) return 0;
    const json_t *ids = json_object_get(json_object_get(json_object_get(o, "special_tokens"), name), "ids");
    if (json_array_size(ids) != 1) return parse_fail(p, "a special token of", name);
    p->t->first = json_integer_value(json_array_get(ids, 0));
    const bool known = p->t->first >= 0 && p->t->first < p->t->size && p->t->piece[p->t->first].s;
    return known ? 0 : parse_fail(p, "the id of", name);
}

int tokenizer_parse(struct tokenizer *t, const char *file, const char *s, size_t n, struct err *e)
{
    const struct token_parse p = {t, file, e};
    json_error_t why;
    json_t *o = json_loadb(s, n, JSON_ALLOW_NUL, &why);
    int bad = o ? 0 : err_set(e, E_DATA, "%s:%d: %s", file, why.line, why.text);
    if (o && !json_is_object(json_object_get(o, "model"))) bad = parse_fail(&p, "a tokenizer", "without model");
    bad = bad || model_read(&p, json_object_get(o, "model")) || added_read(&p, json_object_get(o, "added_tokens")) ||
          steps_read(&p, json_object_get(o, "normalizer"), NORMALIZER, &t->normalizer) ||
          steps_read(&p, json_object_get(o, "pre_tokenizer"), PRE, &t->pre) ||
          steps_read(&p, json_object_get(o, "decoder"), DECODER, &t->decoder) || decoder_check(&p) ||
          first_read(&p, json_object_get(o, "post_processor"));
    if (!bad) t->decodes = given(o, "decoder");
    json_decref(o);
    while (!bad && t->size && !t->piece[t->size - 1].s) t->size--;
    return bad ? -1 : 0;
}
