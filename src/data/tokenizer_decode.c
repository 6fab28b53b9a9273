/* Tokens to text, as the decoder of a tokenizer says. */
#include <stdio.h>
#include <string.h>
#include "data/tokenizer_int.h"

/* Parts of a text, one after the other in `t`. first: the part begins the whole text. */
struct text_part { size_t at, n; bool first; };
struct text_parts { struct text t; VEC(struct text_part) of; };

static void part_add(struct text_parts *p, const char *s, size_t n, bool first)
{
    if (!n) return;
    *vec_push(&p->of) = (struct text_part){p->t.n, n, first};
    text_add_bytes(&p->t, s, n);
}
static void parts_free(struct text_parts *p)
{
    text_free(&p->t);
    vec_free(&p->of);
}

void replace_all(struct text *out, const char *s, size_t n, struct text_chars from, struct text_chars to,
                        size_t most)
{
    for (size_t i = 0; i < n && out->n <= most;) {
        const bool here = from.n && begins(s + i, n - i, from);
        if (here) text_add_bytes(out, to.s, to.n);
        else text_add_bytes(out, s + i, 1);
        i += here ? from.n : 1;
    }
}

/* Appends bytes; what is no UTF-8 becomes U+FFFD. */
static void utf8_add(struct text *out, const char *s, size_t n)
{
    for (size_t i = 0; i < n;) {
        utf8proc_int32_t p;
        const utf8proc_ssize_t k = utf8proc_iterate((const utf8proc_uint8_t *)s + i, (utf8proc_ssize_t)(n - i), &p);
        if (k > 0) text_add_bytes(out, s + i, (size_t)k);
        else text_add_bytes(out, "\xef\xbf\xbd", 3);
        i += k > 0 ? (size_t)k : 1;
    }
}

static void letters_back(const struct tokenizer *t, const char *s, size_t n, struct text *out)
{
    struct text b = {0};
    for (size_t i = 0; i < n; i = forth(s, n, i)) {
        const utf8proc_int32_t p = point_at(s + i, n - i);
        const int byte = p < 512 ? t->byte_of[p] : -1;
        const char one = (char)byte;
        if (byte < 0) { text_free(&b); text_add_bytes(out, s, n); return; }
        text_add_bytes(&b, &one, 1);
    }
    text_add_bytes(out, b.s ? b.s : "", b.n);
    text_free(&b);
}

static int byte_of_name(const char *s, size_t n)
{
    unsigned byte;
    char name[8];
    if (n != 6 || memcmp(s, "<0x", 3) || s[5] != '>') return -1;
    memcpy(name, s, 6);
    name[6] = '\0';
    return sscanf(name + 3, "%2x", &byte) == 1 ? (int)byte : -1;
}

/* Runs of <0xNN> become a part; one that is no UTF-8 becomes a U+FFFD for each. */
static void fallback_step(const struct text_parts *in, struct text_parts *out)
{
    struct text run = {0};
    for (int i = 0; i <= in->of.n; i++) {
        const char *s = i < in->of.n ? in->t.s + in->of.v[i].at : "";
        const size_t n = i < in->of.n ? in->of.v[i].n : 0;
        const int byte = i < in->of.n ? byte_of_name(s, n) : -1;
        const char one = (char)byte;
        if (byte >= 0) { text_add_bytes(&run, &one, 1); continue; }
        struct text lossy = {0};
        utf8_add(&lossy, run.s ? run.s : "", run.n);
        const bool good = lossy.n == run.n && (!run.n || !memcmp(lossy.s, run.s, run.n));
        if (good) part_add(out, run.s, run.n, false);
        for (size_t k = 0; k < run.n && !good; k++) part_add(out, "\xef\xbf\xbd", 3, false);
        text_free(&lossy);
        run.n = 0;
        part_add(out, s, n, false);
    }
    text_free(&run);
}

static void strip_step(const struct token_step *s, const char *p, size_t n, struct text_parts *out)
{
    for (int i = 0; i < s->begin && n && begins(p, n, s->a); i++) p += s->a.n, n -= s->a.n;
    for (int i = 0; i < s->end && n >= s->a.n && begins(p + n - s->a.n, s->a.n, s->a); i++) n -= s->a.n;
    part_add(out, p, n, false);
}

static void decoder_step(const struct tokenizer *t, const struct token_step *s, const struct text_parts *in,
                         struct text_parts *out)
{
    struct text x = {0};
    if (s->type == STEP_BYTE_FALLBACK) { fallback_step(in, out); return; }
    for (int i = 0; i < in->of.n; i++) {
        const char *p = in->t.s + in->of.v[i].at;
        const size_t n = in->of.v[i].n;
        const bool joins = s->type == STEP_BYTES || s->type == STEP_FUSE;
        if (s->type == STEP_BYTES) letters_back(t, p, n, &x);
        else if (s->type == STEP_FUSE) text_add_bytes(&x, p, n);
        else if (s->type == STEP_STRIP) strip_step(s, p, n, out);
        else if (s->type == STEP_METASPACE)
            replace_all(&x, p, n, s->a, (struct text_chars){" ", i || s->prepend == PREPEND_NEVER},
                        SIZE_MAX);
        else replace_all(&x, p, n, s->a, s->b, SIZE_MAX);
        if (joins || s->type == STEP_STRIP) continue;
        part_add(out, x.s, x.n, false);
        x.n = 0;
    }
    part_add(out, x.s ? x.s : "", x.n, false);
    text_free(&x);
}

static bool is_special(const struct tokenizer *t, uint32_t id)
{
    for (int i = 0; i < t->added.n; i++) if (t->added.v[i].id == id) return t->added.v[i].special;
    return false;
}

/* Where what the first tokens decode to ends in the text of all: before a character of which they have a part. */
static size_t same_until(const struct text *start, const struct text *all)
{
    size_t n = 0;
    while (n < start->n && n < all->n && start->s[n] == all->s[n]) n++;
    while (n && n < all->n && ((unsigned char)all->s[n] & 0xc0) == 0x80) n--;
    return n;
}

void tokenizer_show(const struct tokenizer *t, const uint32_t *id, size_t n, struct text *out)
{
    struct text all = {0}, start = {0};
    size_t shown = 0;
    tokenizer_decode(t, id, n, &all);
    for (size_t i = 0; i < n && !t->bytes; i++) {
        if (!is_special(t, id[i])) continue;
        start.n = 0;
        tokenizer_decode(t, id, i, &start);
        const size_t until = same_until(&start, &all);
        if (until > shown) text_add_bytes(out, all.s + shown, until - shown);
        if (until > shown) shown = until;
        if (id[i] < t->size) text_add_bytes(out, t->piece[id[i]].s, t->piece[id[i]].n);
    }
    if (all.n > shown) text_add_bytes(out, all.s + shown, all.n - shown);
    text_free(&all);
    text_free(&start);
}

size_t tokenizer_shown(const struct tokenizer *t, const uint32_t *id, size_t i, const struct text *all)
{
    struct text start = {0};
    tokenizer_show(t, id, i, &start);
    const size_t n = same_until(&start, all);
    text_free(&start);
    return n;
}

void tokenizer_decode(const struct tokenizer *t, const uint32_t *id, size_t n, struct text *out)
{
    struct text_parts now = {.t = {0}};
    for (size_t i = 0; i < n; i++) {
        const char byte = (char)id[i];
        if (id[i] >= t->size) continue;
        if (t->bytes) { part_add(&now, &byte, 1, false); continue; }
        if ( !t->piece[id[i]].s || is_special(t, id[i])) continue;
        if (!t->decodes && now.of.n) part_add(&now, " ", 1, false);
        part_add(&now, t->piece[id[i]].s, t->piece[id[i]].n, false);
    }
    for (int i = 0; i < t->decoder.n; i++) {
        struct text_parts next = {.t = {0}};
        decoder_step(t, &t->decoder.v[i], &now, &next);
        parts_free(&now);
        now = next;
    }
    utf8_add(out, now.t.s ? now.t.s : "", now.t.n);
    parts_free(&now);
}
