/* Token ids in files, or the tokens of texts. Sample i of a file is a window: inputs [iT, iT + T), labels one further.
 * A list of files is one after the other; no window lies over a border. All texts together are one file. With
 * documents apart, the positions of a window count from the last end of a document, and a position sees nothing of the
 * documents before its own. */
#include <stdlib.h>
#include <string.h>
#include "data/ds_int.h"
#include "data/token_file.h"

struct tokens {
    struct ds ds;
    struct arena *mem;
    int n_files; struct token_file *file;
    uint64_t *first, count;                              /* [n_files + 1] number of the first window of each */
    uint64_t points;                                     /* T */
    int64_t vocabulary, end;                             /* end: the token that ends a document; -1: none */
    bool apart;
    struct tokenizer *tokenizer;                         /* of texts */
};

static void tokens_close(struct ds *ds)
{
    struct tokens *d = (struct tokens *)ds;
    for (int i = 0; i < d->n_files; i++) token_file_close(&d->file[i]);
    tokenizer_close(d->tokenizer);
    arena_free(d->mem);
}

/* ---- opening ----------------------------------------------------------------------------------------- */

static const struct field *want_find(const struct ds_want *want, const char *name)
{
    for (int i = 0; i < want->n; i++) if (!strcmp(want->field[i].name, name)) return &want->field[i];
    return NULL;
}

const struct field *ds_want_tokens(const struct conf *c, const struct ds_want *want, struct err *e)
{
    const struct field *t = want_find(want, "tokens"), *l = want_find(want, "labels"),
                       *p = want_find(want, "positions");
    const bool fits = t && t->type == I64 && t->shape.n == 1 && t->range && (!l || (l->type == I64 && l->shape.n == 1));
    if (fits && want->n == 1 + (l != NULL) + (p != NULL)) return t;
    conf_error(c, "data.source", e, "tokens are for decoders, whose inputs are tokens, labels and positions");
    return NULL;
}

bool ds_want_positions(const struct ds_want *want) { return want_find(want, "positions") != NULL; }

void ds_token_fields(struct ds *d, const struct field *tokens, int64_t ignored)
{
    d->n_fields = TOKEN_FIELDS;
    d->field[FIELD_TOKENS] = (struct field){"tokens", ROLE_SAMPLE, I64, tokens->shape, tokens->range, 0};
    d->field[FIELD_LABELS] = (struct field){"labels", ROLE_TARGET, I64, tokens->shape, tokens->range, ignored};
    d->field[FIELD_POSITIONS] = (struct field){"positions", ROLE_SAMPLE, I32, tokens->shape, tokens->shape.d[0], 0};
}

static int one_take(struct tokens *d, const struct conf *c, struct err *e)
{
    struct token_file *f = &d->file[d->n_files++];
    if (f->n <= d->points)
        return err_set(e, E_DATA, "%s: %llu tokens, and a sample needs %llu: model.input and one more", f->path,
                       (unsigned long long)f->n, (unsigned long long)d->points + 1);
    if (d->apart && d->end < 0 && !f->end)
        return conf_error(c, "data.end_token", e, "missing: %s does not say where documents end", f->path);
    d->first[d->n_files] = d->first[d->n_files - 1] + (f->n - 1) / d->points;
    d->count = d->first[d->n_files];
    return 0;
}

/* If all files have bytes for tokens, and these are the bytes of texts, a token stands for one byte of text. */
static int tokens_open(struct tokens *d, const struct conf *c, const struct conf_texts *files, struct err *e)
{
    static const int bytes[] = {[TOKEN_AUTO] = 0, [TOKEN_U8] = 1, [TOKEN_U16] = 2, [TOKEN_U32] = 4};
    bool all = tokenizer_bytes(c);
    for (int i = 0; i < files->n; i++) {
        struct token_file *f = &d->file[i];
        if (token_file_open(arena_strdup(d->mem, files->v[i]), bytes[c->data.token_type], d->vocabulary, f, e))
            return -1;
        if (one_take(d, c, e) || token_file_probe(f, d->vocabulary, e)) return -1;
        all &= f->bytes == 1;
    }
    d->ds.label_bytes = all;
    return 0;
}

static int texts_open(struct tokens *d, const struct conf *c, const struct conf_texts *files, struct err *e)
{
    uint64_t bytes = 0;
    if (tokenizer_of(c, &d->tokenizer, e)) return -1;
    const struct tokenizer *t = d->tokenizer;
    int bad = tokenizer_size(t) > d->vocabulary
                  ? conf_error(c, "data.tokenizer", e, "has %lld tokens, and the network's vocabulary has %lld",
                               (long long)tokenizer_size(t), (long long)d->vocabulary)
                  : token_file_text(files, t, d->end, d->file, &bytes, e);
    if (bad || one_take(d, c, e)) return -1;
    d->file->path = arena_strdup(d->mem, d->file->path);
    d->ds.label_bytes = (double)bytes / (double)d->file->n;
    return 0;
}

static int files_open(struct tokens *d, const struct conf *c, const struct conf_texts *files, struct err *e)
{
    d->file = arena_alloc(d->mem, (size_t)files->n * sizeof *d->file);
    d->first = arena_alloc(d->mem, (size_t)(files->n + 1) * sizeof *d->first);
    return (d->ds.kind == &ds_text ? texts_open : tokens_open)(d, c, files, e);
}

static int count_limit(struct tokens *d, const struct conf *c, enum ds_part part, struct err *e)
{
    const bool train = part == DS_TRAIN;
    const int64_t limit = train ? c->data.samples : c->data.test_samples;
    if (limit > 0 && (uint64_t)limit > d->count)
        return conf_error(c, train ? "data.samples" : "data.test_samples", e, "%lld samples, but there are %llu",
                          (long long)limit, (unsigned long long)d->count);
    if (limit > 0) d->count = (uint64_t)limit;
    if (limit > 0 && !train) ds_label_bytes(&d->ds, &d->ds, NULL, d->count);
    return 0;
}

static int any_open(const struct conf *c, enum ds_part part, const struct ds_want *want, struct ds **out,
                    struct err *e)
{
    const bool text = c->data.source == SOURCE_text;
    const struct conf_texts *files = part == DS_TRAIN ? text ? &c->data.train_text : &c->data.train_tokens
                                                      : text ? &c->data.test_text : &c->data.test_tokens;
    *out = NULL;
    const struct field *t = ds_want_tokens(c, want, e);
    if (!t) return -1;
    if (!files->n) return part == DS_TEST ? 0 : conf_error(c, text ? "data.train_text" : "data.train_tokens", e,
                                                                   "missing");
    struct arena *mem = arena_new();
    struct tokens *d = arena_alloc(mem, sizeof *d);
    *d = (struct tokens){.ds.kind = text ? &ds_text : &ds_tokens, .mem = mem, .points = (uint64_t)t->shape.d[0],
                         .vocabulary = t->range, .apart = c->data.documents == DOCUMENTS_APART,
                         .end = c->data.end_token};
    ds_token_fields(&d->ds, t, 0);
    int bad = d->end >= d->vocabulary ? conf_error(c, "data.end_token", e, "%lld, and the vocabulary has %lld",
                                                   (long long)d->end, (long long)d->vocabulary)
                                      : files_open(d, c, files, e) || count_limit(d, c, part, e);
    if (!bad && d->apart && !ds_want_positions(want))
        bad = conf_error(c, "data.documents", e, "the network has no input \"positions\" that keeps documents apart");
    if (bad) tokens_close(&d->ds);
    else *out = &d->ds;
    return bad ? -1 : 0;
}

/* Of the text that they give back, behind the token before them: by itself, a first one may lose its space. */
static double text_label_bytes(const struct ds *ds, uint64_t sample)
{
    const struct tokens *d = (const struct tokens *)ds;
    const uint64_t n = d->points + 1;
    int64_t *id = mem_alloc(n * sizeof *id);
    uint32_t *number = mem_alloc(n * sizeof *number);
    struct text all = {0}, before = {0};
    struct err e = {0};
    const bool read = !token_file_read(d->file, sample * d->points, n, d->vocabulary, id, &e);
    for (uint64_t i = 0; read && i < n; i++) number[i] = (uint32_t)id[i];
    if (read) tokenizer_decode(d->tokenizer, number, n, &all);
    if (read) tokenizer_decode(d->tokenizer, number, 1, &before);
    const double bytes = ((double)all.n - (double)before.n) / (double)d->points;
    text_free(&all);
    text_free(&before);
    free(id);
    free(number);
    return bytes;
}

/* ---- reading ----------------------------------------------------------------------------------------- */

static uint64_t tokens_count(const struct ds *ds) { return ((const struct tokens *)ds)->count; }

static int file_of(const struct tokens *d, uint64_t sample)
{
    int i = 0;
    while (sample >= d->first[i + 1]) i++;
    return i;
}

/* Does a document end with the token at `at` of the file? */
static bool ends_at(const struct tokens *d, const struct token_file *f, int64_t id, uint64_t at)
{
    uint64_t low = 0, high = f->n_ends;
    if (d->end >= 0 && id == d->end) return true;
    while (low < high) {
        const uint64_t mid = (low + high) / 2;
        if (f->end[mid] < at + 1) low = mid + 1;
        else high = mid;
    }
    return low < f->n_ends && f->end[low] == at + 1;
}

static int positions_read(const struct tokens *d, const struct token_file *f, uint64_t first, int32_t *out,
                          struct err *e)
{
    int64_t *id = mem_alloc(d->points * sizeof *id);
    int bad = d->apart ? token_file_read(f, first, d->points, d->vocabulary, id, e) : 0;
    int32_t p = 0;
    for (uint64_t i = 0; i < d->points && !bad; i++, p++) {
        out[i] = p;
        if (d->apart && ends_at(d, f, id[i], first + i)) p = -1;
    }
    free(id);
    return bad;
}

static int tokens_read(struct ds *ds, uint64_t sample, uint64_t visit, int field, void *out, struct err *e)
{
    const struct tokens *d = (const struct tokens *)ds;
    if (ds_index_check(ds, sample, e)) return -1;
    const int i = file_of(d, sample);
    const uint64_t first = (sample - d->first[i]) * d->points;
    if (field == FIELD_POSITIONS) return positions_read(d, &d->file[i], first, out, e);
    return token_file_read(&d->file[i], first + (field == FIELD_LABELS), d->points, d->vocabulary, out, e);
}

static void tokens_name(const struct ds *ds, uint64_t sample, struct text *t)
{
    const struct tokens *d = (const struct tokens *)ds;
    const int i = file_of(d, sample);
    text_add(t, "%s: tokens from %llu", d->file[i].path,
             (unsigned long long)((sample - d->first[i]) * d->points));
}

static void tokens_tell(const struct ds *ds, const struct ds_sink *to)
{
    const struct tokens *d = (const struct tokens *)ds;
    for (int i = 0; i < d->n_files; i++)
        ds_bytes_report(to, d->file[i].fd, d->file[i].path, d->file[i].begin,
                        d->file[i].n * (uint64_t)d->file[i].bytes);
}

#define TOKENS_KIND \
    .open = any_open, .count = tokens_count, .read = tokens_read, .name_of = tokens_name, .tell = tokens_tell, \
    .positions = true, .close = tokens_close
const struct ds_kind ds_tokens = {
    .name = "tokens",
    .text = "token ids in files: numbers of 1, 2 or 4 bytes as nanoGPT writes them, llm.c's files, or Megatron's .bin "
            "beside .idx; a sample is model.input of them, and its labels are the next ones",
    TOKENS_KIND};
const struct ds_kind ds_text = {
    .name = "text", .text = "texts, as the tokens that data.tokenizer makes of them when a run begins", TOKENS_KIND,
    .label_bytes = text_label_bytes};
