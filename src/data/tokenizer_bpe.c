/* Byte-pair encoding of a word (Sennrich and others 2016): symbols are joined by the merge of the lowest rank, and of
 * equal ones the leftmost first, until no two neighbours have one. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <utf8proc.h>
#include <xxhash.h>
#include "data/tokenizer_int.h"

/* ---- tables -------------------------------------------------------------------------------------------- */

static void slot_take(struct id_table *t, struct id_entry n)
{
    size_t i = n.key & (t->size - 1);
    while (t->v[i].at) i = (i + 1) & (t->size - 1);
    t->v[i] = n;
}

void id_table_put(struct id_table *t, uint64_t key, uint32_t at)
{
    if (2 * (t->n + 1) > t->size) {
        struct id_table old = *t;
        t->size = old.size ? 2 * old.size : 1024;
        t->v = mem_alloc(t->size * sizeof *t->v);
        for (size_t i = 0; i < old.size; i++) if (old.v[i].at) slot_take(t, old.v[i]);
        free(old.v);
    }
    slot_take(t, (struct id_entry){key, at + 1});
    t->n++;
}

int64_t id_table_find(const struct id_table *t, uint64_t key, bool (*same)(const void *ctx, uint32_t at),
                      const void *ctx)
{
    for (size_t i = key & (t->size - 1); t->size && t->v[i].at; i = (i + 1) & (t->size - 1))
        if (t->v[i].key == key && same(ctx, t->v[i].at - 1)) return t->v[i].at - 1;
    return -1;
}

struct wanted_piece { const struct tokenizer *t; struct text_chars s; };
static bool piece_same(const void *ctx, uint32_t at)
{
    const struct wanted_piece *w = ctx;
    return w->t->piece[at].n == w->s.n && !memcmp(w->t->piece[at].s, w->s.s, w->s.n);
}
int64_t piece_find(const struct tokenizer *t, const char *s, size_t n)
{
    const struct wanted_piece w = {t, {s, n}};
    return id_table_find(&t->by_text, XXH3_64bits(s, n), piece_same, &w);
}

/* Mixes the bits of a pair; no two pairs have one key (the finaliser of splitmix64, Steele and others 2014). */
uint64_t pair_key(uint32_t a, uint32_t b)
{
    uint64_t x = (uint64_t)a << 32 | b;
    x = (x ^ x >> 30) * 0xbf58476d1ce4e5b9;
    x = (x ^ x >> 27) * 0x94d049bb133111eb;
    return x ^ x >> 31;
}
static bool any_same(const void *ctx, uint32_t at) { return true; }
const struct token_merge *merge_find(const struct tokenizer *t, uint32_t a, uint32_t b)
{
    const int64_t at = id_table_find(&t->by_pair, pair_key(a, b), any_same, NULL);
    return at < 0 ? NULL : &t->merge[at];
}

/* ---- a word -------------------------------------------------------------------------------------------- */

struct bpe_symbol { uint32_t id; int before, after; bool gone; };
/* A possible merge of symbol `at` and the next one, when their ids were these. */
struct bpe_candidate { uint32_t rank, id, left, right; int at; };
struct bpe_word { const struct tokenizer *t; VEC(struct bpe_symbol) of; VEC(struct bpe_candidate) heap; };

static bool sooner(const struct bpe_candidate *a, const struct bpe_candidate *b)
{
    return a->rank != b->rank ? a->rank < b->rank : a->at < b->at;
}
static void swap(struct bpe_candidate *a, struct bpe_candidate *b)
{
    const struct bpe_candidate c = *a;
    *a = *b;
    *b = c;
}

static void candidate_add(struct bpe_word *w, int at)
{
    struct bpe_symbol *s = w->of.v;
    if (at < 0 || s[at].after < 0) return;
    const struct token_merge *m = merge_find(w->t, s[at].id, s[s[at].after].id);
    if (!m) return;
    int i = w->heap.n;
    *vec_push(&w->heap) = (struct bpe_candidate){m->rank, m->id, s[at].id, s[s[at].after].id, at};
    for (; i && sooner(&w->heap.v[i], &w->heap.v[(i - 1) / 2]); i = (i - 1) / 2)
        swap(&w->heap.v[i], &w->heap.v[(i - 1) / 2]);
}

static struct bpe_candidate candidate_take(struct bpe_word *w)
{
    struct bpe_candidate *h = w->heap.v, first = h[0];
    h[0] = h[--w->heap.n];
    for (int i = 0, k; (k = 2 * i + 1) < w->heap.n; i = k) {
        if (k + 1 < w->heap.n && sooner(&h[k + 1], &h[k])) k++;
        if (!sooner(&h[k], &h[i])) break;
        swap(&h[k], &h[i]);
    }
    return first;
}

static void symbol_add(struct bpe_word *w, uint32_t id)
{
    const int n = w->of.n;
    *vec_push(&w->of) = (struct bpe_symbol){id, n - 1, -1, false};
    if (n) w->of.v[n - 1].after = n;
}

/* A character without a piece becomes its bytes, or the unknown token, or nothing. */
static void unknown_add(struct bpe_word *w, const char *s, size_t n, bool *last)
{
    const struct tokenizer *t = w->t;
    bool all = t->byte_fallback;
    for (size_t i = 0; i < n && all; i++) all = t->byte_id[(unsigned char)s[i]] >= 0;
    if (all) {
        for (size_t i = 0; i < n; i++) symbol_add(w, (uint32_t)t->byte_id[(unsigned char)s[i]]);
        *last = false;
        return;
    }
    if (t->unknown < 0) return;
    if (!t->fuse_unk || !*last) symbol_add(w, (uint32_t)t->unknown);
    *last = true;
}

/* A character: its code point and bytes. */
static utf8proc_int32_t char_next(const char *s, size_t n, size_t *size)
{
    utf8proc_int32_t point;
    const utf8proc_ssize_t k = utf8proc_iterate((const utf8proc_uint8_t *)s, (utf8proc_ssize_t)n, &point);
    *size = k > 0 ? (size_t)k : 1;
    return k > 0 ? point : -1;
}

void seam_add(struct tokenizer *t, const char *left, size_t left_n, const char *right, size_t right_n)
{
    size_t at = left_n - 1, k;
    while (at && ((unsigned char)left[at] & 0xc0) == 0x80) at--;
    const uint64_t key = pair_key((uint32_t)char_next(left + at, left_n - at, &k),
                                  (uint32_t)char_next(right, right_n, &k));
    if (id_table_find(&t->seams, key, any_same, NULL) < 0) id_table_put(&t->seams, key, 0);
}

static bool is_seam(const struct tokenizer *t, utf8proc_int32_t a, utf8proc_int32_t b)
{
    return id_table_find(&t->seams, pair_key((uint32_t)a, (uint32_t)b), any_same, NULL) >= 0;
}

/* Joins the symbols and appends what is left of them. */
static void symbols_join(struct bpe_word *w, struct token_ids *ids)
{
    for (int i = 0; i < w->of.n; i++) candidate_add(w, i);
    while (w->heap.n) {
        const struct bpe_candidate c = candidate_take(w);
        struct bpe_symbol *a = &w->of.v[c.at];
        if (a->gone || a->id != c.left || a->after < 0 || w->of.v[a->after].id != c.right) continue;
        struct bpe_symbol *b = &w->of.v[a->after];
        b->gone = true;
        a->id = c.id;
        a->after = b->after;
        if (a->after >= 0) w->of.v[a->after].before = c.at;
        candidate_add(w, a->before);
        candidate_add(w, c.at);
    }
    for (int i = 0; i < w->of.n; i++) if (!w->of.v[i].gone) *vec_push(ids) = w->of.v[i].id;
    w->of.n = 0;
}

/* A tokenizer without a pre-tokenizer has the whole text as one word. So a word is divided between two characters that
 * no merge joins: the tokens are the same, and the memory is that of a part. */
void bpe_word(const struct tokenizer *t, const char *s, size_t n, struct token_ids *ids)
{
    struct bpe_word w = {.t = t};
    const int64_t whole = t->ignore_merges ? piece_find(t, s, n) : -1;
    utf8proc_int32_t last = -1;                           /* -1: not known */
    bool unknown = false;
    if (whole >= 0) { *vec_push(ids) = (uint32_t)whole; return; }
    for (size_t i = 0, k; i < n; i += k) {
        const utf8proc_int32_t c = char_next(s + i, n - i, &k);
        const int64_t id = piece_find(t, s + i, k);
        if (id >= 0 && c >= 0 && last >= 0 && !is_seam(t, last, c)) symbols_join(&w, ids);
        if (id < 0) unknown_add(&w, s + i, k, &unknown);
        else symbol_add(&w, (uint32_t)id), unknown = false;
        last = id < 0 ? -1 : c;
    }
    symbols_join(&w, ids);
    vec_free(&w.of);
    vec_free(&w.heap);
}
