/* See tokenizer.h. A text is divided at added tokens, normalised, divided into words, and each word is encoded
 * (tokenizer_bpe.c). */
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <utf8proc.h>
#include "data/tokenizer_int.h"

enum { MATCH_LIMIT = 20000000 };

/* ---- division by an expression ------------------------------------------------------------------------- */

/* Where the parts of a text go: to a step of the pre-tokenizer, or to the model behind the last one. */
/* left: bytes that words may still have, of all words of a segment. */
struct part_sink { const struct tokenizer *t; int step; struct token_ids *ids; size_t *left; };
typedef int part_fn(const struct part_sink *to, const char *s, size_t n, bool first, struct err *e);
static part_fn part_encode, letters_encode;

struct text_range { size_t from, to; bool match; };
struct text_ranges { struct text_range *v; int n, cap; };
enum { RANGES_AT_ONCE = 4096 };

static void range_add(struct text_ranges *r, size_t from, size_t to, bool match)
{
    if (to > from) *vec_push(r) = (struct text_range){from, to, match};
}

/* A search for matches, which can stop and go on. from: behind the last match. */
struct match_search {
    const struct token_step *step; const char *text; size_t n, at, from;
    pcre2_match_data *data; pcre2_match_context *limits;
};

/* Adds ranges until there are `most`. 1: there may be more; 0: the text ends. */
static int matches_find(struct match_search *m, int most, struct text_ranges *out, struct err *e)
{
    const bool other = m->step->yes && m->step->type == STEP_SPLIT;
    int code = 1;
    while (m->at <= m->n) {
        if (out->n >= most) return 1;
        code = pcre2_match(m->step->regex, (PCRE2_SPTR)m->text, m->n, m->at, PCRE2_NO_UTF_CHECK, m->data, m->limits);
        if (code < 0) break;
        const PCRE2_SIZE *v = pcre2_get_ovector_pointer(m->data);
        range_add(out, m->from, v[0], other);
        range_add(out, v[0], v[1], !other);
        m->from = v[1];
        m->at = v[1] > v[0] ? v[1] : v[1] + 1;
        while (m->at < m->n && m->at > m->from && ((unsigned char)m->text[m->at] & 0xc0) == 0x80) m->at++;
    }
    range_add(out, m->from, m->n, other);
    if (code == PCRE2_ERROR_NOMATCH || code > 0) return 0;
    return err_set(e, E_DATA, "the tokenizer's expression took too many steps (PCRE2 error %d)", code);
}

/* Joins ranges as the behaviour says. */
static void ranges_join(struct text_ranges *r, enum split_how how)
{
    int n = 0;
    bool before = false;
    if (how == SPLIT_WITH_NEXT)
        for (int i = r->n - 1; i > 0; i--) {              /* a match goes to the part behind it, unless that is one */
            if (!r->v[i - 1].match || r->v[i].match) continue;
            r->v[i].from = r->v[i - 1].from;
            r->v[i - 1].to = r->v[i - 1].from;
        }
    for (int i = 0; i < r->n; i++) {
        const struct text_range x = r->v[i];
        const bool joins = (how == SPLIT_WITH_PREVIOUS && x.match && !before) ||
                           (how == SPLIT_CONTIGUOUS && x.match == before);
        before = x.match;
        if (x.to == x.from || (how == SPLIT_REMOVED && x.match)) continue;
        if (joins && n) r->v[n - 1].to = x.to;
        else r->v[n++] = x;
    }
    r->n = n;
}

/* Behaviours that join ranges need all of them. */
static int split(const struct token_step *s, enum split_how how, const char *text, size_t n, bool first, part_fn *to,
                 const struct part_sink *sink, struct err *e)
{
    const bool joins = how != SPLIT_ISOLATED && how != SPLIT_REMOVED;
    struct match_search m = {s, text, n, 0, 0, pcre2_match_data_create_from_pattern(s->regex, NULL),
                             pcre2_match_context_create(NULL)};
    struct text_ranges r = {0};
    int more, bad = 0;
    pcre2_set_match_limit(m.limits, MATCH_LIMIT);
    do {
        r.n = 0;
        more = matches_find(&m, joins ? INT_MAX : RANGES_AT_ONCE, &r, e);
        bad = more < 0;
        if (!bad) ranges_join(&r, how);
        for (int i = 0; i < r.n && !bad; i++)
            bad = to(sink, text + r.v[i].from, r.v[i].to - r.v[i].from, first && !r.v[i].from, e);
    } while (more > 0 && !bad);
    pcre2_match_context_free(m.limits);
    pcre2_match_data_free(m.data);
    vec_free(&r);
    return bad ? -1 : 0;
}

/* ---- steps --------------------------------------------------------------------------------------------- */

/* Bytes that a segment of n bytes between added tokens may have after all steps. Steps that each lengthen it, one after
 * the other, would make a few letters fill the memory. */
static size_t grown_most(size_t n) { return 64 * n + 4096; }
static int grown_check(size_t n, size_t most, struct err *e)
{
    return n <= most ? 0 : err_set(e, E_DATA, "the tokenizer's steps make a text more than 64 times as long");
}

static int letters_encode(const struct part_sink *to, const char *s, size_t n, bool first, struct err *e)
{
    struct text l = {0};
    for (size_t i = 0; i < n; i++) {
        const struct text_chars c = to->t->letter[(unsigned char)s[i]];
        text_add_bytes(&l, c.s, c.n);
    }
    int bad = part_encode(to, l.s, l.n, first, e);
    text_free(&l);
    return bad;
}

static int bytes_step(const struct token_step *s, const char *text, size_t n, bool first, const struct part_sink *to,
                      struct err *e)
{
    struct text x = {0};
    const bool spaced = s->yes && *text != ' ';
    if (spaced) {
        text_add(&x, " ");
        text_add_bytes(&x, text, n);
    }
    const char *from = spaced ? x.s : text;
    if (spaced) n = x.n;
    int bad = s->regex ? split(s, SPLIT_ISOLATED, from, n, first, letters_encode, to, e)
                       : letters_encode(to, from, n, first, e);
    text_free(&x);
    return bad;
}

/* Every space becomes the replacement; a word begins with it. */
static int metaspace_step(const struct token_step *s, const char *text, size_t n, bool first,
                          const struct part_sink *to, struct err *e)
{
    struct text x = {0};
    const bool wants = s->prepend == PREPEND_ALWAYS || (s->prepend == PREPEND_FIRST && first);
    if (wants && *text != ' ' && !begins(text, n, s->a)) text_add_bytes(&x, s->a.s, s->a.n);
    replace_all(&x, text, n, (struct text_chars){" ", 1}, s->a, SIZE_MAX);
    size_t from = 0;
    int bad = 0;
    for (size_t i = 1; i < x.n && s->yes && !bad; i++)
        if (begins(x.s + i, x.n - i, s->a)) {
            bad = part_encode(to, x.s + from, i - from, first && !from, e);
            from = i;
        }
    if (!bad && x.n > from) bad = part_encode(to, x.s + from, x.n - from, first && !from, e);
    text_free(&x);
    return bad;
}

/* 65 if the text becomes longer than `most`. */
static int normalize(const struct token_steps *all, struct text *t, size_t most, struct err *e)
{
    for (int i = 0; i < all->n; i++) {
        const struct token_step *s = &all->v[i];
        struct text x = {0};
        if (!t->n) return 0;
        if (s->type == STEP_NFC) {
            utf8proc_uint8_t *to = NULL;
            const utf8proc_ssize_t n = utf8proc_map((const utf8proc_uint8_t *)t->s, (utf8proc_ssize_t)t->n, &to,
                                                    UTF8PROC_STABLE | UTF8PROC_COMPOSE);
            if (n < 0) return free(to), err_set(e, E_DATA, "%s", utf8proc_errmsg(n));
            text_add_bytes(&x, (char *)to, (size_t)n);
            free(to);
        } else if (s->type == STEP_PREPEND) {
            text_add_bytes(&x, s->a.s, s->a.n);
            text_add_bytes(&x, t->s, t->n);
        } else replace_all(&x, t->s, t->n, s->a, s->b, most);
        text_free(t);
        *t = x;
        if (grown_check(t->n, most, e)) return -1;
    }
    return 0;
}

/* A part of a normalised text before step `step` of the pre-tokenizer. Each part goes through all steps before the next
 * one is divided, so the memory is that of a word. */
static int part_encode(const struct part_sink *to, const char *s, size_t n, bool first, struct err *e)
{
    const struct tokenizer *t = to->t;
    if (grown_check(n, *to->left, e)) return -1;
    if (to->step == t->pre.n) {
        *to->left -= n;
        bpe_word(t, s, n, to->ids);
        return 0;
    }
    const struct token_step *step = &t->pre.v[to->step];
    const struct part_sink next = {t, to->step + 1, to->ids, to->left};
    if (step->type == STEP_BYTES) return bytes_step(step, s, n, first, &next, e);
    if (step->type == STEP_METASPACE) return metaspace_step(step, s, n, first, &next, e);
    return split(step, step->type == STEP_SPLIT ? step->how : step->yes ? SPLIT_ISOLATED : SPLIT_CONTIGUOUS, s, n,
                 first, part_encode, &next, e);
}

/* ---- added tokens -------------------------------------------------------------------------------------- */

static size_t back(const char *s, size_t at)             /* the beginning of the character before `at` */
{
    do at--; while (at && ((unsigned char)s[at] & 0xc0) == 0x80);
    return at;
}
static bool is_space(utf8proc_int32_t p)
{
    const utf8proc_category_t c = utf8proc_category(p);
    return (p >= 9 && p <= 13) || p == 0x85 || c == UTF8PROC_CATEGORY_ZS || c == UTF8PROC_CATEGORY_ZL ||
           c == UTF8PROC_CATEGORY_ZP;
}
static bool is_word(utf8proc_int32_t p)
{
    const utf8proc_category_t c = utf8proc_category(p);
    return (c >= UTF8PROC_CATEGORY_LU && c < UTF8PROC_CATEGORY_NO) || c == UTF8PROC_CATEGORY_PC || p == 0x200c ||
           p == 0x200d;
}

/* The longest added token of this kind at a place; NULL: none. */
static const struct added_token *added_at(const struct tokenizer *t, bool normalized, const char *s, size_t n)
{
    const struct added_token *best = NULL;
    for (int i = 0; i < t->added.n; i++) {
        const struct added_token *a = &t->added.v[i];
        if (a->normalized != normalized || !a->s.n || a->s.s[0] != s[0] || (best && a->s.n <= best->s.n)) continue;
        if (begins(s, n, a->s)) best = a;
    }
    return best;
}

/* The parts of a rendered text (tokenizer_encode_parts). counts: gets 1 for each token that is trained, otherwise 0. */
struct rendered { const char *text; const struct text_span *span; int n; struct token_ids *counts; };

/* left: of part_sink, once the text is normalised. parts: NULL: added tokens have their meaning everywhere. */
struct added_rest {
    const struct tokenizer *t; bool normalized; struct token_ids *ids; size_t *left; const struct rendered *parts;
};
/* A segment between added tokens, which lies in the whole text; its tokens begin at ids[from]. */
struct token_range { const char *s; int64_t from; bool first; };
static int segment_encode(const struct added_rest *r, const char *s, size_t n, bool first, struct err *e);

int tokenizer_normalize(const struct tokenizer *t, struct text *s, struct err *e)
{
    return normalize(&t->normalizer, s, grown_most(s->n), e);
}

/* Whether a character of a piece of the text is in a span that counts, or that is plain. */
static bool spans_within(const struct rendered *p, bool counts, const char *from, const char *to)
{
    const char *s = p->text;
    for (int i = 0; i < p->n && s < to; s += p->span[i++].n)
        if ((counts ? p->span[i].counts : p->span[i].plain) && s + p->span[i].n > from && p->span[i].n) return true;
    return false;
}

/* Divides a text at added tokens; what is between them is normalised and divided at those that are, too. */
static int added_divide(const struct added_rest *r, const char *s, size_t n, bool first, struct err *e)
{
    bool starts[256] = {false};
    size_t from = 0;
    for (int i = 0; i < r->t->added.n; i++) starts[(unsigned char)r->t->added.v[i].s.s[0]] = true;
    for (size_t at = 0; at < n;) {
        const struct added_token *a = starts[(unsigned char)s[at]] ? added_at(r->t, r->normalized, s + at, n - at)
                                                                   : NULL;
        if (!a) { at++; continue; }
        size_t begin = at, end = at + a->s.n;
        if (a->special && r->parts && spans_within(r->parts, false, s + begin, s + end)) { at++; continue; }
        at = end;
        if (a->single_word && ((begin && is_word(point_at(s + back(s, begin), n))) ||
                               (end < n && is_word(point_at(s + end, n - end)))))
            continue;
        while (a->lstrip && begin > from && is_space(point_at(s + back(s, begin), n))) begin = back(s, begin);
        while (a->rstrip && end < n && is_space(point_at(s + end, n - end))) end = forth(s, n, end);
        if (begin > from && segment_encode(r, s + from, begin - from, first && !from, e)) return -1;
        *vec_push(r->ids) = a->id;
        if (r->parts) *vec_push(r->parts->counts) = spans_within(r->parts, true, s + begin, s + end);
        at = from = end;
    }
    return from < n ? segment_encode(r, s + from, n - from, first && !from, e) : 0;
}

/* Special tokens that are found only in normalised text cannot be told from a content that has their letters. */
static int content_check(const struct added_rest *r, const char *s, size_t n, struct err *e)
{
    for (int i = 0; i < r->t->added.n && r->parts; i++) {
        const struct added_token *a = &r->t->added.v[i];
        if (!a->special || !a->normalized || !a->raw.n) continue;
        for (const char *at = s; (at = memmem(at, (size_t)(s + n - at), a->raw.s, a->raw.n)) != NULL; at++)
            if (spans_within(r->parts, false, at, at + a->raw.n))
                return err_set(e, E_DATA, "a content has %.40s, which this tokenizer would take for its own", a->raw.s);
    }
    return 0;
}

static int plain_encode(const struct added_rest *r, const char *s, size_t n, bool first, struct err *e)
{
    size_t left = grown_most(n);
    struct text t = {0};
    text_add_bytes(&t, s, n);
    const struct added_rest then = {r->t, true, r->ids, &left, NULL};
    int bad = content_check(r, s, n, e) || normalize(&r->t->normalizer, &t, left, e) ||
              added_divide(&then, t.s, t.n, first, e);
    text_free(&t);
    return bad ? -1 : 0;
}

/* Bytes of the text that a token stands for: of ByteLevel as many as letters; byte fallback: one; otherwise its own, of
 * which Metaspace's replacement stands for a space. */
static size_t token_bytes(const struct tokenizer *t, uint32_t id)
{
    static const char space[] = "\xe2\x96\x81";
    const struct text_chars p = t->piece[id];
    size_t n = 0;
    bool letters = false;
    for (int i = 0; i < t->added.n; i++) if (t->added.v[i].id == id) return t->added.v[i].raw.n;
    for (int i = 0; i < t->pre.n; i++) letters |= t->pre.v[i].type == STEP_BYTES;
    if (t->byte_fallback && p.n == 6 && !memcmp(p.s, "<0x", 3)) return 1;
    for (size_t i = 0; i < p.n; i = forth(p.s, p.n, i), n++)
        if (!letters && (p.n - i < 3 || memcmp(p.s + i, space, 3))) n += forth(p.s, p.n, i) - i - 1;
    return n;
}

/* How many tokens of a segment, whose tokens are ids[from..], begin before its byte n. A token of the first n bytes
 * alone that the segment does not have lies over that border. over: count it, too. */
static int64_t tokens_before(const struct added_rest *r, struct token_range seg, size_t n, bool over, struct err *e)
{
    struct token_ids some = {0};
    const struct added_rest own = {r->t, false, &some, NULL, r->parts};
    int64_t k = 0;
    if (n && plain_encode(&own, seg.s, n, seg.first, e)) k = -1;
    while (k >= 0 && k < some.n && seg.from + k < r->ids->n && some.v[k] == r->ids->v[seg.from + k]) k++;
    if (k >= 0 && over && k < some.n && seg.from + k < r->ids->n) k++;
    vec_free(&some);
    return k;
}

/* Marks by encoding up to each border: for a normalizer that changes more than spaces. */
static int counts_search(const struct added_rest *r, struct token_range seg, size_t n, struct err *e)
{
    const struct rendered *p = r->parts;
    const char *at = p->text, *end = seg.s + n;
    for (int i = 0; i < p->n; at += p->span[i++].n) {
        const char *from = at > seg.s ? at : seg.s, *to = at + p->span[i].n < end ? at + p->span[i].n : end;
        if (!p->span[i].counts || from >= to) continue;
        const int64_t a = tokens_before(r, seg, (size_t)(from - seg.s), false, e),
                      b = to == end ? r->ids->n - seg.from : tokens_before(r, seg, (size_t)(to - seg.s), true, e);
        if (a < 0 || b < 0) return -1;
        for (int64_t k = a; k < b; k++) p->counts->v[seg.from + k] = 1;
    }
    return 0;
}

/* Marks the tokens of a segment that have characters of parts that count. The tokens' bytes are the segment's, or one
 * more for a space that the tokenizer puts in front. */
static int counts_mark(const struct added_rest *r, struct token_range seg, size_t n, struct err *e)
{
    const struct rendered *p = r->parts;
    size_t all = 0;
    for (int64_t k = seg.from; k < r->ids->n; k++) all += token_bytes(r->t, r->ids->v[k]);
    if (all != n && all != n + 1) return counts_search(r, seg, n, e);
    const char *at = p->text, *from = seg.s;
    int i = 0;
    for (int64_t k = seg.from; k < r->ids->n; k++) {
        const char *to = from + token_bytes(r->t, r->ids->v[k]) - (k == seg.from && all > n);
        while (i < p->n && at + p->span[i].n <= from) at += p->span[i++].n;
        const char *next = at;
        for (int m = i; m < p->n && next < to; next += p->span[m++].n)
            if (p->span[m].counts && p->span[m].n) p->counts->v[k] = 1;
        from = to;
    }
    return 0;
}

static int segment_encode(const struct added_rest *r, const char *s, size_t n, bool first, struct err *e)
{
    const struct part_sink all = {r->t, 0, r->ids, r->left};
    const struct token_range seg = {s, r->ids->n, first};
    if (r->normalized) return part_encode(&all, s, n, first, e);
    if (plain_encode(r, s, n, first, e)) return -1;
    while (r->parts && r->parts->counts->n < r->ids->n) *vec_push(r->parts->counts) = 0;
    return r->parts ? counts_mark(r, seg, n, e) : 0;
}

static int utf8_check(const char *text, size_t n, struct err *e)
{
    for (size_t i = 0; i < n;) {
        utf8proc_int32_t p;
        const utf8proc_ssize_t k = utf8proc_iterate((const utf8proc_uint8_t *)text + i, (utf8proc_ssize_t)(n - i), &p);
        if (k <= 0) return err_set(e, E_DATA, "byte %zu is not UTF-8", i);
        i += (size_t)k;
    }
    return 0;
}

int tokenizer_encode_parts(const struct tokenizer *t, const char *text, const struct text_span *span, int n_spans,
                           struct token_ids *ids, struct token_ids *counts, struct err *e)
{
    const struct rendered parts = {text, span, n_spans, counts};
    const struct added_rest all = {t, false, ids, NULL, &parts};
    size_t n = 0;
    for (int i = 0; i < n_spans; n += span[i++].n)
        for (size_t k = 0; k < span[i].n && t->bytes; k++) {
            *vec_push(ids) = (unsigned char)text[n + k];
            *vec_push(counts) = span[i].counts;
        }
    if (t->bytes) return 0;
    return utf8_check(text, n, e) ? -1 : n ? added_divide(&all, text, n, true, e) : 0;
}

size_t tokenizer_added_end(const struct tokenizer *t, const char *s, size_t n, uint32_t *id)
{
    for (size_t at = 0; at < n; at++)
        for (int i = 0; i < t->added.n; i++) {
            const struct added_token *a = &t->added.v[i];
            if (!a->raw.n || !begins(s + at, n - at, a->raw)) continue;
            if (id) *id = a->id;
            return at + a->raw.n;
        }
    return 0;
}

int tokenizer_encode(const struct tokenizer *t, const char *text, size_t n, bool whole, struct token_ids *ids,
                     struct err *e)
{
    if (t->bytes) {
        for (size_t i = 0; i < n; i++) *vec_push(ids) = (unsigned char)text[i];
        return 0;
    }
    if (utf8_check(text, n, e)) return -1;
    if (whole && t->first >= 0) *vec_push(ids) = (uint32_t)t->first;
    const struct added_rest all = {t, false, ids, NULL, NULL};
    return n ? added_divide(&all, text, n, true, e) : 0;
}
