/* Opening and closing tokenizers, and whose tokenizer a run has. */
#include <string.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>
#include <utf8proc.h>
#include "data/tokenizer_int.h"

enum { BYTES = 256, MAX_FILE = 1 << 28 };

/* ByteLevel's letters: printable bytes stand for themselves, the others are the letters from U+0100 on. */
static void letters_make(struct tokenizer *t)
{
    int next = 256;
    for (int i = 0; i < 512; i++) t->byte_of[i] = -1;
    for (int b = 0; b < 256; b++) {
        const bool itself = (b >= 33 && b <= 126) || (b >= 161 && b <= 172) || b >= 174;
        const int point = itself ? b : next++;
        char *s = arena_alloc(t->mem, 4);
        t->letter[b] = (struct text_chars){s, (size_t)utf8proc_encode_char(point, (utf8proc_uint8_t *)s)};
        t->byte_of[point] = (int16_t)b;
    }
}

/* Added tokens that are normalised are found in their normalised form; if that is empty, not at all. */
static int added_normalize(struct tokenizer *t, struct err *e)
{
    for (int i = 0; i < t->added.n; i++) {
        struct added_token *a = &t->added.v[i];
        struct text x = {0};
        if (!a->normalized || !t->normalizer.n) continue;
        text_add_bytes(&x, a->s.s, a->s.n);
        int bad = tokenizer_normalize(t, &x, e);
        if (!bad) a->s = (struct text_chars){arena_strndup(t->mem, x.s ? x.s : "", x.n), x.n};
        text_free(&x);
        if (bad) return -1;
    }
    return 0;
}

static struct tokenizer *tokenizer_new(bool bytes)
{
    struct tokenizer *t = mem_alloc(sizeof *t);
    *t = (struct tokenizer){.mem = arena_new(), .bytes = bytes, .size = bytes ? BYTES : 0, .unknown = -1, .first = -1};
    letters_make(t);
    return t;
}

int tokenizer_open(const char *path, struct tokenizer **out, struct err *e)
{
    struct text file = {0}, s = {0};
    struct stat st;
    struct tokenizer *t = *out = tokenizer_new(!strcmp(path, "bytes"));
    if (t->bytes) return 0;
    text_add(&file, !stat(path, &st) && S_ISDIR(st.st_mode) ? "%s/tokenizer.json" : "%s", path);
    int bad = text_read_file(&s, file.s, MAX_FILE, e) || tokenizer_parse(t, file.s, s.s ? s.s : "", s.n, e);
    if (!bad && added_normalize(t, e)) bad = err_where(e, "%s", file.s);
    text_free(&file);
    text_free(&s);
    if (!bad) return 0;
    tokenizer_close(t);
    *out = NULL;
    return -1;
}

int64_t tokenizer_size(const struct tokenizer *t) { return t->size; }

static bool has_file(const char *folder)
{
    struct text file = {0};
    text_add(&file, "%s/tokenizer.json", folder);
    const bool there = !access(file.s, F_OK);
    text_free(&file);
    return there;
}

/* Its path; NULL: there is none. */
static const char *path_of(const struct conf *c)
{
    if (c->data.tokenizer) return c->data.tokenizer;
    if (c->model.folder) return has_file(c->model.folder) ? c->model.folder : NULL;
    return !c->model.config && c->model.vocab_size == BYTES ? "bytes" : NULL;
}

bool tokenizer_known(const struct conf *c) { return path_of(c) != NULL; }
bool tokenizer_bytes(const struct conf *c) { return path_of(c) && !strcmp(path_of(c), "bytes"); }

int tokenizer_of(const struct conf *c, struct tokenizer **out, struct err *e)
{
    if (path_of(c)) return tokenizer_open(path_of(c), out, e);
    return conf_error(c, "data.tokenizer", e, "missing: a text needs a tokenizer.json, or \"bytes\"");
}

static void steps_free(struct token_steps *s)
{
    for (int i = 0; i < s->n; i++) pcre2_code_free(s->v[i].regex);
    vec_free(s);
}

void tokenizer_close(struct tokenizer *t)
{
    if (!t) return;
    steps_free(&t->normalizer);
    steps_free(&t->pre);
    steps_free(&t->decoder);
    vec_free(&t->added);
    free(t->by_text.v);
    free(t->by_pair.v);
    free(t->seams.v);
    free(t->merge);
    free(t->piece);
    arena_free(t->mem);
    free(t);
}
