/* Records with labels (records.h), which are tokenised when the data set is opened and kept in memory, 8 bytes a token.
 * A record of n tokens fills n - 1 positions of a sample: its inputs are all but the last, its labels all but the
 * first. Without packing a sample is a record. With packing it is a row of several, in an order and with neighbours
 * that depend on seed and epoch. Positions of each record count from 0, so that attention does not leave it; so do
 * those behind the last, whose labels do not count. */
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "base/rng.h"
#include "base/text.h"
#include "data/ds_int.h"
#include "data/packing.h"
#include "data/records.h"
#include "data/validation.h"

/* A record: where its tokens begin among all; the labels that count; where it was read. */
struct jsonl_record { uint64_t at; uint32_t valid, line; uint32_t file; };
enum { EPOCHS_KEPT = 2, MOST_TOKENS = 1000000000 };

struct epoch_rows { uint64_t epoch, used; struct record_rows p; };   /* used: when; 0: never made */

struct jsonl {
    struct ds ds;
    struct arena *mem;
    const struct conf *c;                                /* while it is opened */
    uint64_t seed;
    struct record_form form;
    int n_files; const char **file;
    int64_t points;                                      /* T */
    VEC(int32_t) id, label;                              /* of all records */
    VEC(struct jsonl_record) of;
    uint32_t *length;                                    /* positions of each record */
    uint64_t limit, cut, skipped, unlabelled, astray, read; struct record now;
    bool packs, shuffles;
    struct text warning;
    pthread_mutex_t lock;                                /* of all below */
    struct epoch_rows rows[EPOCHS_KEPT]; uint64_t uses;
    VEC(uint64_t) before;                                /* rows of all epochs before each */
};

static void jsonl_close(struct ds *ds)
{
    struct jsonl *d = (struct jsonl *)ds;
    record_form_close(&d->form);
    vec_free(&d->id);
    vec_free(&d->label);
    vec_free(&d->of);
    record_free(&d->now);
    free(d->length);
    text_free(&d->warning);
    vec_free(&d->before);
    for (int i = 0; i < EPOCHS_KEPT; i++) rows_free(&d->rows[i].p);
    pthread_mutex_destroy(&d->lock);
    arena_free(d->mem);
}

/* ---- opening ----------------------------------------------------------------------------------------------------- */

static void record_add(struct jsonl *d, const struct document *line, uint32_t file)
{
    const struct record *r = &d->now;
    struct jsonl_record new = {(uint64_t)d->id.n, 0, (uint32_t)line->line, file};
    for (int i = 0; i < r->id.n; i++) {
        *vec_push(&d->id) = r->id.v[i];
        *vec_push(&d->label) = r->label.v[i];
        new.valid += i && r->label.v[i] != LABEL_IGNORED;
    }
    d->unlabelled += !new.valid;
    d->astray += r->astray;
    *vec_push(&d->of) = new;
}

struct line_taker { struct jsonl *d; uint32_t file; };

static int line_add(void *ctx, const struct document *line, struct err *e)
{
    const struct line_taker *t = ctx;
    struct jsonl *d = t->d;
    const int64_t most = d->points + 1;
    char why[160];
    if (d->id.n > MOST_TOKENS)
        return document_fail(line, "more than 1,000,000,000 tokens: use data.source = \"tokens\"", e);
    if (d->limit && (uint64_t)d->of.n == d->limit) return 0;
    if (record_parse(&d->form, line, &d->now, e)) return -1;
    d->read++;
    const bool fits = d->now.id.n <= most;
    if (fits || d->c->data.too_long == TOO_LONG_CUT) {
        if (!fits) d->now.id.n = d->now.label.n = (int)most;
        d->cut += !fits;
        record_add(d, line, t->file);
        return 0;
    }
    d->skipped++;
    if (d->c->data.too_long == TOO_LONG_SKIP) return 0;
    snprintf(why, sizeof why, "%d tokens, and a sample has %lld, model.input and one more; data.too_long may be cut or "
                              "skip", d->now.id.n, (long long)most);
    return document_fail(line, why, e);
}

static int form_open(struct jsonl *d, int64_t vocabulary, struct err *e)
{
    char shown[80];
    if (record_form_open(d->c, vocabulary, &d->form, e)) return -1;
    const struct tokenizer *t = d->form.tokenizer;
    bool takes = false;
    const char *end = d->form.chat && t ? chat_ends_badly(d->form.chat, t, &takes) : NULL;
    if (end)
        text_add(&d->warning, "data.chat: an answer ends with \"%s\", which has no special token: for generation set "
                 "%sgenerate.stop\n", text_printable(end, shown, sizeof shown), takes ? "data.end_token, or " : "");
    if (d->form.end >= vocabulary)
        return conf_error(d->c, "data.end_token", e, "%lld, and the vocabulary has %lld", (long long)d->form.end,
                          (long long)vocabulary);
    if (!t || tokenizer_size(t) <= vocabulary) return 0;
    return conf_error(d->c, "data.tokenizer", e, "has %lld tokens, and the network's vocabulary has %lld",
                      (long long)tokenizer_size(t), (long long)vocabulary);
}

static void counts_warn(struct jsonl *d, const char *name)
{
    const unsigned long long n = d->read;
    if (d->cut) text_add(&d->warning, "%s: %llu of %llu records are cut to model.input\n", name,
                         (unsigned long long)d->cut, n);
    if (d->skipped) text_add(&d->warning, "%s: %llu of %llu records are longer than model.input and skipped\n", name,
                             (unsigned long long)d->skipped, n);
    if (d->unlabelled) text_add(&d->warning, "%s: %llu of %llu records have no label that counts\n", name,
                                (unsigned long long)d->unlabelled, n);
    if (d->astray)
        text_add(&d->warning, "%s: %llu of %llu records do not begin with the tokens of their prompt alone: let a "
                 "prompt end without a blank, and its completion begin with it\n", name, (unsigned long long)d->astray,
                 n);
    if (d->warning.n) d->ds.warning = d->warning.s;
}

/* Moves the tokens of a record that is kept to the end of those before it. */
static void record_keep(struct jsonl *d, int from)
{
    const size_t n = (size_t)d->length[from] + 1;
    struct jsonl_record *r = &d->of.v[d->of.n];
    *r = d->of.v[from];
    d->length[d->of.n++] = d->length[from];
    memmove(d->id.v + d->id.n, d->id.v + r->at, n * sizeof *d->id.v);
    memmove(d->label.v + d->id.n, d->label.v + r->at, n * sizeof *d->label.v);
    r->at = (uint64_t)d->id.n;
    d->id.n += (int)n;
}

/* With data.validation: keeps the records of one part, and memory for no more tokens. */
static int records_divide(struct jsonl *d, enum ds_part part, struct err *e)
{
    bool counts = false;
    const int all = d->of.n;
    int64_t *class = mem_alloc(size_mul((size_t)all, sizeof *class));
    bool *held = mem_alloc((size_t)all);
    validation_choose(class, (uint64_t)all, d->c->data.validation, d->seed, held);
    d->of.n = d->id.n = 0;
    for (int i = 0; i < all; i++) {
        if (held[i] != (part == DS_TEST)) continue;
        counts |= d->of.v[i].valid > 0;
        record_keep(d, i);
    }
    free(class);
    free(held);
    if (!d->of.n || d->of.n == all)
        return conf_error(d->c, "data.validation", e, "holds out none of %d records for tests: too small for so few",
                          all);
    d->label.n = d->id.n;
    d->id.v = mem_resize(d->id.v, (size_t)(d->id.cap = d->id.n) * sizeof *d->id.v);
    d->label.v = mem_resize(d->label.v, (size_t)(d->label.cap = d->label.n) * sizeof *d->label.v);
    if (counts) return 0;
    return conf_error(d->c, "data.validation", e, "no label counts in the %d of %d records that are %s", d->of.n, all,
                      part == DS_TEST ? "held out for tests; another run.seed holds out others" : "left for training");
}

static int records_open(struct jsonl *d, enum ds_part part, struct err *e)
{
    const bool divides = d->c->data.validation > 0;
    const char *name = part == DS_TRAIN ? "data.train_jsonl" : "data.test_jsonl";
    for (int i = 0; i < d->n_files; i++)
        if (document_lines_read(d->file[i], line_add, &(struct line_taker){d, (uint32_t)i}, e)) return -1;
    record_free(&d->now);
    d->now = (struct record){.id = {0}};
    if (!d->of.n) return err_set(e, E_DATA, "%s: has no record%s", d->file[0],
                                 d->skipped ? " that is short enough" : "");
    if (d->unlabelled == (uint64_t)d->of.n)
        return err_set(e, E_DATA, "%s: no record has a label that counts", d->file[0]);
    if (d->limit && d->limit > (uint64_t)d->of.n)
        return conf_error(d->c, part == DS_TRAIN ? "data.samples" : "data.test_samples", e,
                          "%llu samples, but there are %d", (unsigned long long)d->limit, d->of.n);
    d->length = mem_alloc(size_mul((size_t)d->of.n, sizeof *d->length));
    for (int i = 0; i < d->of.n; i++)
        d->length[i] = (uint32_t)((i + 1 < d->of.n ? d->of.v[i + 1].at : (uint64_t)d->id.n) - d->of.v[i].at - 1);
    if (!divides || part == DS_TRAIN) counts_warn(d, name);
    return divides ? records_divide(d, part, e) : 0;
}

static const struct ds_kind packed_jsonl;

static int jsonl_open(const struct conf *c, enum ds_part part, const struct ds_want *want, struct ds **out,
                      struct err *e)
{
    const bool train = part == DS_TRAIN, divides = c->data.validation > 0;
    const struct conf_texts *files = train || divides ? &c->data.train_jsonl : &c->data.test_jsonl;
    const struct field *t = ds_want_tokens(c, want, e);
    const int64_t limit = train || divides ? c->data.samples : c->data.test_samples;
    *out = NULL;
    if (!t) return -1;
    if (c->data.packing == PACKING_FIRST_FIT && !ds_want_positions(want))
        return conf_error(c, "data.packing", e, "the network has no input \"positions\" that keeps records apart");
    if (!files->n) return train ? conf_error(c, "data.train_jsonl", e, "missing") : 0;
    struct arena *mem = arena_new();
    struct jsonl *d = arena_alloc(mem, sizeof *d);
    *d = (struct jsonl){.ds.kind = c->data.packing == PACKING_FIRST_FIT ? &packed_jsonl : &ds_jsonl, .mem = mem, .c = c,
                        .n_files = files->n, .seed = (uint64_t)c->run.seed, .points = t->shape.d[0],
                        .limit = limit > 0 ? (uint64_t)limit : 0,
                        .packs = c->data.packing == PACKING_FIRST_FIT, .shuffles = train && c->data.shuffle};
    d->file = arena_alloc(mem, (size_t)files->n * sizeof *d->file);
    for (int i = 0; i < files->n; i++) d->file[i] = arena_strdup(mem, files->v[i]);
    pthread_mutex_init(&d->lock, NULL);
    ds_token_fields(&d->ds, t, LABEL_IGNORED);
    if (!form_open(d, t->range, e) && !records_open(d, part, e)) return *out = &d->ds, 0;
    jsonl_close(&d->ds);
    return -1;
}

/* ---- rows of an epoch -------------------------------------------------------------------------------------------- */

static void rows_make(const struct jsonl *d, uint64_t epoch, struct record_rows *out)
{
    const uint64_t n = (uint64_t)d->of.n;
    uint32_t *order = mem_alloc(size_mul(n, sizeof *order));
    for (uint64_t i = 0; i < n; i++)
        order[i] = (uint32_t)(d->shuffles ? rng_permute(d->seed, (uint32_t)epoch, i, n) : i);
    rows_pack(d->length, order, n, (uint32_t)d->points, out);
    free(order);
}

/* With the lock held. */
static const struct record_rows *epoch_rows_of(struct jsonl *d, uint64_t epoch)
{
    struct epoch_rows *oldest = &d->rows[0];
    for (struct epoch_rows *r = d->rows; r < d->rows + EPOCHS_KEPT; r++) {
        if (r->used && r->epoch == epoch) return r->used = ++d->uses, &r->p;
        if (r->used < oldest->used) oldest = r;
    }
    rows_free(&oldest->p);
    oldest->epoch = epoch;
    oldest->used = ++d->uses;
    rows_make(d, epoch, &oldest->p);
    return &oldest->p;
}

static uint64_t packed_before(const struct ds *ds, uint64_t epoch)
{
    struct jsonl *d = (struct jsonl *)ds;
    pthread_mutex_lock(&d->lock);
    for (int known = d->before.n; known <= (int)epoch; known++) {
        const uint64_t n = known ? d->before.v[known - 1] + epoch_rows_of(d, (uint64_t)known - 1)->rows : 0;
        *vec_push(&d->before) = n;
    }
    const uint64_t n = d->before.v[epoch];
    pthread_mutex_unlock(&d->lock);
    return n;
}
static uint64_t packed_count(const struct ds *ds) { return packed_before(ds, 1); }
static uint64_t jsonl_count(const struct ds *ds) { return (uint64_t)((const struct jsonl *)ds)->of.n; }

/* The records of a sample; *n: how many. The caller frees them. */
static uint32_t *records_of(const struct ds *ds, uint64_t sample, uint64_t epoch, uint64_t *n)
{
    struct jsonl *d = (struct jsonl *)ds;
    uint32_t *record;
    pthread_mutex_lock(&d->lock);
    const struct record_rows *p = d->packs ? epoch_rows_of(d, epoch) : NULL;
    const uint64_t from = p ? p->begin[sample] : sample;
    *n = p ? p->begin[sample + 1] - from : 1;
    record = mem_alloc(size_mul(*n, sizeof *record));
    for (uint64_t i = 0; i < *n; i++) record[i] = p ? p->record[from + i] : (uint32_t)sample;
    pthread_mutex_unlock(&d->lock);
    return record;
}

static double records_sum(const struct ds *ds, uint64_t sample, uint64_t visit, bool labels)
{
    const struct jsonl *d = (const struct jsonl *)ds;
    uint64_t n, sum = 0;
    uint32_t *record = records_of(ds, sample, visit, &n);
    for (uint64_t i = 0; i < n; i++) sum += labels ? d->of.v[record[i]].valid : d->length[record[i]];
    free(record);
    return (double)sum;
}
static double jsonl_weight(const struct ds *ds, uint64_t sample, uint64_t visit)
{
    return records_sum(ds, sample, visit, true);
}
static double jsonl_filled(const struct ds *ds, uint64_t sample, uint64_t visit)
{
    return records_sum(ds, sample, visit, false);
}

/* ---- reading ----------------------------------------------------------------------------------------------------- */

/* The field at n positions of a record; of none: padding. */
static void positions_write(const struct jsonl *d, const struct jsonl_record *r, int field, int64_t n, void *out)
{
    for (int64_t i = 0; i < n; i++) {
        if (field == FIELD_POSITIONS) ((int32_t *)out)[i] = (int32_t)i;
        else if (field == FIELD_LABELS) ((int64_t *)out)[i] = r ? d->label.v[r->at + (uint64_t)i + 1] : LABEL_IGNORED;
        else ((int64_t *)out)[i] = r ? d->id.v[r->at + (uint64_t)i] : 0;
    }
}

static int jsonl_read(struct ds *ds, uint64_t sample, uint64_t visit, int field, void *out, struct err *e)
{
    const struct jsonl *d = (const struct jsonl *)ds;
    const size_t each = field == FIELD_POSITIONS ? sizeof(int32_t) : sizeof(int64_t);
    const uint64_t there = d->packs ? packed_before(ds, visit + 1) - packed_before(ds, visit) : jsonl_count(ds);
    uint64_t n;
    int64_t at = 0;
    if (sample >= there)
        return err_set(e, E_INTERNAL, "sample %llu of %llu", (unsigned long long)sample, (unsigned long long)there);
    uint32_t *record = records_of(ds, sample, visit, &n);
    for (uint64_t i = 0; i < n; at += d->length[record[i++]])
        positions_write(d, &d->of.v[record[i]], field, d->length[record[i]], (char *)out + (size_t)at * each);
    positions_write(d, NULL, field, d->points - at, (char *)out + (size_t)at * each);
    free(record);
    return 0;
}

static void jsonl_name(const struct ds *ds, uint64_t sample, struct text *t)
{
    const struct jsonl *d = (const struct jsonl *)ds;
    const struct jsonl_record *r = &d->of.v[sample];
    text_add(t, "%s:%u", d->file[r->file], r->line);
}

static void jsonl_tell(const struct ds *ds, const struct ds_sink *to)
{
    const struct jsonl *d = (const struct jsonl *)ds;
    to->put(to->ctx, d->length, (size_t)d->of.n * sizeof *d->length);
    to->put(to->ctx, d->id.v, (size_t)d->id.n * sizeof *d->id.v);
    to->put(to->ctx, d->label.v, (size_t)d->label.n * sizeof *d->label.v);
}

#define JSONL_KIND \
    .name = "jsonl", \
    .text = "a JSON object in each line: tokens, a text, a prompt and its completion, or the messages of a chat", \
    .open = jsonl_open, .read = jsonl_read, .weight = jsonl_weight, .filled = jsonl_filled, .tell = jsonl_tell, \
    .positions = true, .divides = true, .close = jsonl_close
const struct ds_kind ds_jsonl = {JSONL_KIND, .count = jsonl_count, .name_of = jsonl_name};
static const struct ds_kind packed_jsonl = {JSONL_KIND, .count = packed_count, .before = packed_before};
