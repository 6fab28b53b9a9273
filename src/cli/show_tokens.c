#include <stdlib.h>
#include <string.h>
#include "cli/show_tokens.h"
#include "data/ds.h"
#include "data/tokenizer.h"

/* A sample: the values of its fields at all points. */
struct shown_row { int64_t *token, *label; int32_t *position; };
struct shown_tokens {
    struct ds *d; struct tokenizer *t;
    int tokens, labels, positions;                       /* fields */
    int64_t points; struct shown_row row;
    uint64_t records, trained, all;                      /* of the batch */
};

static int fields_of(struct shown_tokens *b, const struct conf *c, struct err *e)
{
    b->tokens = b->labels = b->positions = -1;
    for (int i = 0; i < b->d->n_fields; i++) {
        const struct field *f = &b->d->field[i];
        if (f->type == I64 && !strcmp(f->name, "tokens")) b->tokens = i;
        else if (f->type == I64 && !strcmp(f->name, "labels")) b->labels = i;
        else if (f->type == I32 && !strcmp(f->name, "positions")) b->positions = i;
    }
    if (b->tokens < 0 || b->labels < 0 || b->positions < 0)
        return conf_error(c, "data.source", e, "--show-batch FILE.txt: samples are no tokens; use FILE.png");
    b->points = shape_count(&b->d->field[b->tokens].shape);
    return tokenizer_known(c) ? tokenizer_of(c, &b->t, e) : 0;
}

static int row_read(struct shown_tokens *b, int64_t sample, uint64_t epoch, struct err *e)
{
    const struct ds_at t = {(uint64_t)sample, epoch, b->tokens}, l = {(uint64_t)sample, epoch, b->labels},
                       p = {(uint64_t)sample, epoch, b->positions};
    return ds_read(b->d, &t, b->row.token, e) || ds_read(b->d, &l, b->row.label, e) ||
           ds_read(b->d, &p, b->row.position, e);
}

/* The record at points from..end - 1: its tokens, where they are trained as the labels say, in runs that are trained or
 * not. The last one is only a label. */
static void record_show(const struct shown_tokens *b, int64_t from, int64_t end, struct text *out)
{
    const int64_t *label = b->row.label, all = end - from + (label[end - 1] >= 0);
    uint32_t *id = mem_alloc((size_t)(all + 1) * sizeof *id);
    for (int64_t i = 0; i < all; i++)
        id[i] = (uint32_t)(i && label[from + i - 1] >= 0 ? label[from + i - 1] : b->row.token[from + i]);
    struct text words = {0};
    size_t shown = 0;
    if (b->t) tokenizer_show(b->t, id, (size_t)all, &words);
    for (int64_t at = 0, to; at < all; at = to) {
        const bool counts = at && label[from + at - 1] >= 0;
        for (to = at + 1; to < all && (label[from + to - 1] >= 0) == counts; to++) continue;
        const size_t until = b->t && to < all ? tokenizer_shown(b->t, id, (size_t)to, &words) : words.n;
        text_add(out, "%s", counts ? "[" : "");
        if (until > shown) text_add_bytes(out, words.s + shown, until - shown);
        if (until > shown) shown = until;
        for (int64_t i = at; i < to && !b->t; i++) text_add(out, "%s%u", i > at ? " " : "", id[i]);
        text_add(out, "%s", counts ? "]" : "");
    }
    text_add(out, "\n");
    text_free(&words);
    free(id);
}

/* The sample at a position of the run. */
static void row_show(struct shown_tokens *b, const struct feed_order *o, int64_t sample, int position,
                     struct text *out)
{
    struct text records = {0}, name = {0};
    uint64_t n = 0, trained = 0;
    int64_t end;
    if (b->d->kind->name_of) b->d->kind->name_of(b->d, (uint64_t)sample, &name);
    const int64_t filled = (int64_t)ds_filled(b->d, o, (uint64_t)position, &sample, 1),
                  points = filled ? filled : b->points;
    for (int64_t from = 0; from < points; from = end) {
        for (end = from + 1; end < points && b->row.position[end]; end++) continue;
        record_show(b, from, end, &records);
        n++;
    }
    for (int64_t i = 0; i < b->points; i++) trained += b->row.label[i] >= 0;
    text_add(out, "---- sample %d%s%s: %llu record%s, %llu of %lld positions trained\n%s", position + 1,
             name.n ? ", " : "", name.n ? name.s : "", (unsigned long long)n, n == 1 ? "" : "s",
             (unsigned long long)trained, (long long)b->points, records.s);
    b->records += n;
    b->trained += trained;
    b->all += (uint64_t)b->points;
    text_free(&records);
    text_free(&name);
}

static int rows_show(struct shown_tokens *b, const struct job *j, struct text *out, struct text *said, struct err *e)
{
    const struct feed_order order = job_order(j);
    int64_t *id = mem_alloc((size_t)j->conf->train.batch_size * sizeof *id);
    uint64_t epoch;
    const int n = feed_batch(&order, 0, (int)j->conf->train.batch_size, id, &epoch);
    const size_t points = (size_t)b->points;
    b->row = (struct shown_row){mem_alloc(points * sizeof(int64_t)), mem_alloc(points * sizeof(int64_t)),
                                mem_alloc(points * sizeof(int32_t))};
    int bad = 0;
    for (int i = 0; i < n && !bad; i++) {
        bad = row_read(b, id[i], feed_place(&order, (uint64_t)i).epoch, e);
        if (!bad) row_show(b, &order, id[i], i, out);
    }
    text_add(said, "%d samples with %llu records; %llu of %llu positions are trained\n", n,
             (unsigned long long)b->records, (unsigned long long)b->trained, (unsigned long long)b->all);
    free(id);
    free(b->row.token);
    free(b->row.label);
    free(b->row.position);
    return bad ? -1 : 0;
}

int show_tokens(struct job *j, struct text *out, struct text *said, struct err *e)
{
    struct shown_tokens b = {.t = NULL};
    if (ds_open(j->conf, DS_TRAIN, j->graph, &j->data[DS_TRAIN], e)) return -1;
    b.d = j->data[DS_TRAIN];
    if (!b.d) return conf_error(j->conf, "data.source", e, "--show-batch needs training samples");
    j->count[DS_TRAIN] = b.d->kind->count(b.d);
    int bad = fields_of(&b, j->conf, e) || rows_show(&b, j, out, said, e);
    tokenizer_close(b.t);
    return bad ? -1 : 0;
}
