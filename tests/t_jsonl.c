/* Records of JSON lines: every form and every kind of bad line; rows of several records, in which each record is once
 * an epoch; orders of epochs that differ in length. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "base/text.h"
#include "data/packing.h"
#include "data/records.h"
#include "data_rig.h"
#include "sure.h"

/* ---- forms ------------------------------------------------------------------------------------------------------- */

static int parsed(const struct record_form *f, const char *line, struct record *r, struct err *e)
{
    *e = (struct err){0};
    return record_parse(f, &(struct document){"a.jsonl", 7, line, strlen(line)}, r, e);
}

#define RECORD(line, ids, labels) \
    do { \
        static const int32_t id[] = ids, label[] = labels; \
        ck_assert_msg(!parsed(&form, line, &r, &e), "%s", e.text); \
        ck_assert_int_eq(r.id.n, sizeof id / sizeof *id); \
        ck_assert_mem_eq(r.id.v, id, sizeof id); \
        ck_assert_mem_eq(r.label.v, label, sizeof label); \
    } while (0)
#define L(...) {__VA_ARGS__}

START_TEST(forms)
{
    struct tokenizer *t;
    struct err e = {0};
    struct record r = {.id = {0}};
    ck_assert(!tokenizer_open("bytes", &t, &e));
    const struct record_form form = {t, NULL, 9, 256};
    RECORD("{\"input_ids\": [1, 2, 3]}", L(1, 2, 3), L(1, 2, 3));
    RECORD("{\"input_ids\": [1, 2, 3], \"labels\": [-100, 2, -100], \"attention_mask\": [1, 1, 1]}", L(1, 2, 3),
           L(-100, 2, -100));
    RECORD("{\"prompt\": \"ab\", \"completion\": \"c\"}", L('a', 'b', 'c', 9), L(-100, -100, 'c', 9));
    RECORD("{\"messages\": null, \"input_ids\": null, \"text\": \"ab\"}", L('a', 'b', 9), L('a', 'b', 9));
    RECORD("{\"text\": \"ab\", \"id\": 4}", L('a', 'b', 9), L('a', 'b', 9));
    record_free(&r);
    tokenizer_close(t);
}
END_TEST

static const struct { const char *line, *why; } wrong[] = {
    {"{", "a.jsonl:7: "},
    {"[", "each line must be one JSON object"},
    {"[1]", "each line must be one JSON object"},
    {"{\"conversations\": [{\"from\": \"human\"}]}", "conversations are not read; a chat is one list, {\"messages\""},
    {"{\"prompt\": [{\"role\": \"user\"}], \"completion\": \"a\"}", "prompt: expected a text; a chat is one list"},
    {"{\"a\": 1}", "expected input_ids, messages"},
    {"{\"input_ids\": 3}", "input_ids: expected a list"},
    {"{\"input_ids\": [1]}", "a record needs two tokens, and this one has 1"},
    {"{\"input_ids\": [1, 2.5]}", "input_ids: number 1 is no whole number"},
    {"{\"input_ids\": [1, 256]}", "token 256 at 1, and the vocabulary has 256"},
    {"{\"input_ids\": [1, -1]}", "token -1 at 1"},
    {"{\"input_ids\": [1, 99999999999]}", "token 99999999999 at 1"},
    {"{\"input_ids\": [1, 2], \"labels\": [1]}", "labels: expected as many numbers as input_ids has, 2"},
    {"{\"input_ids\": [1, 2], \"labels\": [1, 256]}", "labels: number 1 is no token below 256 and not -100"},
    {"{\"input_ids\": [1, 2], \"labels\": [1, -1]}", "labels: number 1 is no token"},
    {"{\"prompt\": \"a\"}", "expected input_ids"},
    {"{\"prompt\": 1, \"completion\": \"a\"}", "prompt: expected a text"},
    {"{\"prompt\": \"a\", \"completion\": []}", "completion: expected a text; a chat is one list"},
    {"{\"messages\": [{\"role\": \"user\\u0000x\", \"content\": \"a\"}]}", "number 0 has no role that is a word"},
    {"{\"text\": \"\"}", "a record needs two tokens"},
    {"{\"text\": \"a\", \"text\": \"b\"}", "duplicate"},
    {"{\"messages\": []}", "messages: expected a list of messages"},
    {"{\"messages\": [{\"role\": \"judge\", \"content\": \"a\"}]}", "the role judge has no rule in the template"},
    {"{\"messages\": [{\"content\": \"a\"}]}", "messages: number 0 has no role that is a word"},
    {"{\"messages\": [{\"role\": \"user\", \"content\": null}]}", "messages: number 0 has no content that is a text"},
    {"{\"messages\": [{\"role\": \"user\", \"content\": [{\"type\": \"image\"}]}]}", "part 0 of number 0 is no text"},
    {"{\"messages\": [{\"role\": \"assistant\", \"content\": \"\", \"tool_calls\": [1]}]}", "number 0 has tool_calls"},
};

START_TEST(bad_lines)
{
    struct tokenizer *t;
    struct chat *c;
    struct err e = {0};
    struct record r = {.id = {0}};
    ck_assert(!tokenizer_open("bytes", &t, &e) && !chat_open("plain", &c, &e));
    const struct record_form form = {t, c, -1, 256}, bare = {NULL, NULL, -1, 256};
    ck_assert(parsed(&form, wrong[_i].line, &r, &e));
    ck_assert_int_eq(e.code, 65);
    ck_assert_msg(!strncmp(e.text, "a.jsonl:7: ", 11) && strstr(e.text, wrong[_i].why), "%s", e.text);
    ck_assert(parsed(&bare, "{\"text\": \"abc\"}", &r, &e) && strstr(e.text, "data.tokenizer"));
    record_free(&r);
    chat_close(c);
    tokenizer_close(t);
}
END_TEST

/* ---- packing ----------------------------------------------------------------------------------------------------- */

START_TEST(rows_of_records)
{
    enum { N = 5000, ROOM = 512 };
    static uint32_t length[N], order[N];
    static bool seen[N];
    uint64_t all = 0;
    struct record_rows p;
    srand(3);
    for (uint32_t i = 0; i < N; i++) {
        length[i] = 1 + (uint32_t)(rand() % (rand() % ROOM + 1));
        order[i] = (i * 7919u) % N;
        all += length[i];
    }
    rows_pack(length, order, N, ROOM, &p);
    for (uint64_t r = 0; r < p.rows; r++) {
        uint64_t used = 0;
        ck_assert(p.begin[r + 1] > p.begin[r]);
        for (uint64_t k = p.begin[r]; k < p.begin[r + 1]; k++) {
            used += length[p.record[k]];
            ck_assert(!seen[p.record[k]]);
            seen[p.record[k]] = true;
        }
        ck_assert(used <= ROOM);
    }
    ck_assert_uint_eq(p.begin[p.rows], N);
    ck_assert_msg((double)all / (double)(p.rows * ROOM) > 0.97, "%llu of %llu", (unsigned long long)all,
                  (unsigned long long)(p.rows * ROOM));
    rows_free(&p);
}
END_TEST

/* ---- the data set ------------------------------------------------------------------------------------------------ */

enum { T = 8 };
static const char placed[] = "graph n\ninput tokens 8 I64\ninput positions 8 I32\nlabels labels 8 I64\n"
                             "a = embedding(tokens) count=100 features=2\nb = embedding(positions) count=8 features=2\n"
                             "s = add(a, b)\nl = token_loss(s, labels) classes=100\noutput s\nloss l\n";

static struct ds *jsonl_part(enum ds_part part, const char *more, struct err *e)
{
    struct ds *d = NULL;
    char text[300];
    struct graph *g = graph_parse("net", placed, strlen(placed), e);
    ck_assert_msg(g != NULL, "%s", e->text);
    snprintf(text, sizeof text, "source = jsonl train_jsonl = {\"r.jsonl\"} %s", more);
    struct conf *c = conf_make(text);
    ds_open(c, part, g, &d, e);
    conf_free(c);
    graph_free(g);
    return d;
}
static struct ds *jsonl_opened(const char *more, struct err *e) { return jsonl_part(DS_TRAIN, more, e); }

/* A field of a sample. */
static void values(struct ds *d, uint64_t sample, uint64_t visit, const char *name, int64_t out[T])
{
    int32_t narrow[T];
    struct err e = {0};
    int k = 0;
    while (strcmp(d->field[k].name, name)) k++;
    const bool wide = d->field[k].type == I64;
    ck_assert_msg(!ds_read(d, &(struct ds_at){sample, visit, k}, wide ? (void *)out : narrow, &e), "%s", e.text);
    for (int i = 0; i < T && !wide; i++) out[i] = narrow[i];
}
#define FIELD(sample, visit, name, ...) \
    do { \
        int64_t x[T]; \
        values(d, sample, visit, name, x); \
        ck_assert_mem_eq(x, ((int64_t[]){__VA_ARGS__}), sizeof x); \
    } while (0)

static const char three[] = "{\"input_ids\": [10, 11, 12, 13], \"labels\": [-100, -100, 12, 13]}\n\n"
                            "{\"input_ids\": [20, 21, 22]}\n"
                            "{\"input_ids\": [30, 31, 32, 33, 34, 35, 36, 37, 38]}\n";

START_TEST(a_record_a_sample)
{
    struct err e = {0};
    put("r.jsonl", three, strlen(three));
    struct ds *d = jsonl_opened("", &e);
    ck_assert_msg(d != NULL, "%s", e.text);
    ck_assert_uint_eq(d->kind->count(d), 3);
    FIELD(0, 0, "tokens", 10, 11, 12, 0, 0, 0, 0, 0);
    FIELD(0, 0, "labels", -100, 12, 13, -100, -100, -100, -100, -100);
    FIELD(2, 5, "labels", 31, 32, 33, 34, 35, 36, 37, 38);
    FIELD(0, 0, "positions", 0, 1, 2, 0, 1, 2, 3, 4);
    ck_assert(ds_weight(d, NULL, 0, (int64_t[]){0, 1, 2}, 3) == 2 + 2 + 8);
    struct text name = {0};
    d->kind->name_of(d, 1, &name);
    ck_assert_str_eq(name.s, "r.jsonl:3");
    text_free(&name);
    ds_close(d);
}
END_TEST

START_TEST(records_in_rows)
{
    struct err e = {0};
    put("r.jsonl", three, strlen(three));
    struct ds *d = jsonl_opened("packing = first_fit shuffle = no", &e);
    ck_assert_msg(d != NULL, "%s", e.text);
    ck_assert_uint_eq(d->kind->count(d), 2);
    FIELD(0, 0, "tokens", 10, 11, 12, 20, 21, 0, 0, 0);
    FIELD(0, 0, "labels", -100, 12, 13, 21, 22, -100, -100, -100);
    FIELD(0, 0, "positions", 0, 1, 2, 0, 1, 0, 1, 2);
    ck_assert(ds_weight(d, NULL, 0, (int64_t[]){0, 1}, 2) == 12);
    ds_close(d);
}
END_TEST

/* Each epoch has every record once, in other rows; a handle that jumps into an epoch reads the same. */
START_TEST(epochs_differ)
{
    enum { N = 60 };
    struct err e = {0};
    struct text t = {0};
    int64_t token[T], place[T], other[T];
    bool differs = false;
    for (int i = 0; i < N; i++) {
        text_add(&t, "{\"input_ids\": [%d", i + 1);
        for (int k = 0; k < i % 6 + 1; k++) text_add(&t, ", 99");
        text_add(&t, "]}\n");
    }
    put("r.jsonl", t.s, t.n);
    text_free(&t);
    struct ds *d = jsonl_opened("packing = first_fit shuffle = yes", &e),
              *fresh = jsonl_opened("packing = first_fit shuffle = yes", &e);
    for (uint64_t epoch = 0; epoch < 5; epoch++) {
        bool seen[N + 1] = {false};
        int n = 0;
        for (uint64_t row = 0; row < (ds_before(d, epoch + 1) - ds_before(d, epoch)); row++) {
            values(d, row, epoch, "tokens", token);
            values(d, row, epoch, "positions", place);
            for (int i = 0; i < T; i++) {
                if (place[i] || token[i] > N || !token[i]) continue;
                ck_assert(!seen[token[i]]);
                seen[token[i]] = true;
                n++;
            }
            if (row < ds_before(d, 1)) {
                values(d, row, 0, "tokens", other);
                differs |= memcmp(other, token, sizeof token) != 0;
            }
        }
        ck_assert_int_eq(n, N);
    }
    ck_assert(differs);
    values(fresh, 3, 4, "tokens", other);
    values(d, 3, 4, "tokens", token);
    ck_assert_mem_eq(other, token, sizeof token);
    ds_close(d);
    ds_close(fresh);
}
END_TEST

/* Adds the first tokens of all records, which are below 99, in an epoch. */
static int firsts(struct ds *d, uint64_t epoch, bool seen[100])
{
    const uint64_t rows = d->kind->before ? ds_before(d, epoch + 1) - ds_before(d, epoch) : d->kind->count(d);
    int64_t token[T];
    int n = 0;
    for (uint64_t row = 0; row < rows; row++) {
        values(d, row, epoch, "tokens", token);
        for (int i = 0; i < T; i++) {
            if (!token[i] || token[i] == 99) continue;
            ck_assert(!seen[token[i]]);
            seen[token[i]] = true;
            n++;
        }
    }
    return n;
}

/* data.validation: each record is of one part, in every epoch. */
START_TEST(held_out)
{
    static const char *const more[] = {"validation = 0.25", "validation = 0.25 packing = first_fit shuffle = yes"};
    enum { N = 40 };
    struct err e = {0};
    struct text t = {0};
    for (int i = 0; i < N; i++) text_add(&t, "{\"input_ids\": [%d, 99, 99]}\n", i + 1);
    put("r.jsonl", t.s, t.n);
    text_free(&t);
    struct ds *train = jsonl_part(DS_TRAIN, more[_i], &e), *test = jsonl_part(DS_TEST, more[_i], &e);
    ck_assert_msg(train && test, "%s", e.text);
    for (uint64_t epoch = 0; epoch < 3; epoch++) {
        bool seen[100] = {false};
        ck_assert_int_eq(firsts(train, epoch, seen), 30);
        ck_assert_int_eq(firsts(test, 0, seen), 10);
    }
    ds_close(train);
    ds_close(test);
    ck_assert(!jsonl_opened("validation = 0.001", &e));
    ck_assert_msg(e.code == 78 && strstr(e.text, "data.validation"), "%s", e.text);
    int without = 0;                                      /* a part without a label would have a loss of 0 */
    for (int i = 0; i < 2; i++, text_free(&t)) {          /* one record of two is held out, and one has a label */
        for (int k = 0; k < 2; k++) text_add(&t, "{\"input_ids\": [1, 2], \"labels\": [1, %d]}\n", k == i ? 2 : -100);
        put("r.jsonl", t.s, t.n);
        e = (struct err){0};
        if ((test = jsonl_part(DS_TEST, "validation = 0.5", &e))) ds_close(test);
        else without += e.code == 78 && strstr(e.text, "no label counts in the 1 of 2 records that are held out");
    }
    ck_assert_int_eq(without, 1);
}
END_TEST

START_TEST(long_records)
{
    static const struct { const char *more, *warning, *error; uint64_t count; } of[] = {
        {"too_long = error", NULL, "r.jsonl:2: 12 tokens, and a sample has 9", 0},
        {"too_long = cut", "data.train_jsonl: 1 of 3 records are cut", NULL, 3},
        {"too_long = skip", "data.train_jsonl: 1 of 3 records are longer", NULL, 2},
    };
    struct err e = {0};
    PUT("r.jsonl", "{\"input_ids\": [1, 2]}\n{\"input_ids\": [1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12]}\n"
                   "{\"input_ids\": [3, 4], \"labels\": [3, -100]}\n");
    struct ds *d = jsonl_opened(of[_i].more, &e);
    ck_assert_int_eq(d == NULL, of[_i].error != NULL);
    if (!d) { ck_assert_msg(e.code == 65 && strstr(e.text, of[_i].error), "%s", e.text); return; }
    ck_assert_uint_eq(d->kind->count(d), of[_i].count);
    ck_assert_msg(strstr(d->warning, of[_i].warning) && strstr(d->warning, "1 of 3 records have no label that counts"),
                  "%s", d->warning);
    ds_close(d);
}
END_TEST

START_TEST(nothing_to_train)
{
    static const struct { const char *file, *error; } of[] = {
        {"{\"input_ids\": [3, 4], \"labels\": [3, -100]}\n", "r.jsonl: no record has a label that counts"},
        {"\n\n", "r.jsonl: has no record"},
        {"{\"input_ids\": [3, 100]}\n", "r.jsonl:1: token 100 at 1, and the vocabulary has 100"}};
    struct err e = {0};
    put("r.jsonl", of[_i].file, strlen(of[_i].file));
    ck_assert(!jsonl_opened("", &e));
    ck_assert_msg(e.code == 65 && strstr(e.text, of[_i].error), "%s", e.text);
}
END_TEST

/* ---- orders whose epochs differ ---------------------------------------------------------------------------------- */

static uint64_t some_before(const struct ds *d, uint64_t epoch)
{
    return epoch / 3 * 18 + (epoch % 3 > 0 ? 5 : 0) + (epoch % 3 > 1 ? 6 : 0);
}
static uint64_t first_samples(const struct ds *d) { return 5; }

START_TEST(orders_of_other_lengths)
{
    static const struct ds_kind kind = {.name = "some", .count = first_samples, .before = some_before};
    const struct ds d = {.kind = &kind};
    const struct feed_order o = {.seed = 2, .count = 5, .shuffle = true, .end = FEED_FILL, .of = &d};
    uint64_t epoch, at = 0;
    int64_t id[9];
    int seen[7] = {0};
    for (uint64_t step = 0; step < 9; step++, at += 4) {    /* 36 samples: two turns of 5, 6 and 7 */
        ck_assert_int_eq(feed_batch(&o, at, 4, id, &epoch), 4);
        for (int i = 0; i < 4; i++) seen[id[i]]++;
        ck_assert_uint_eq(feed_next(&o, at + 4, 4), at + 4);
    }
    for (int i = 0; i < 7; i++) ck_assert_int_eq(seen[i], i < 5 ? 6 : i == 5 ? 4 : 2);
    ck_assert_int_eq(feed_batch(&o, 3, 9, id, &epoch), 9);   /* more than an epoch has */
    ck_assert_uint_eq(feed_place(&o, 17).epoch, 2);
    ck_assert_uint_eq(feed_place(&o, 18).epoch, 3);
    ck_assert_uint_eq(feed_place(&o, 18).within, 0);
    ck_assert_uint_eq(feed_place(&o, 1800010).epoch, 300001);
    ck_assert_uint_eq(feed_batches(&o, 4, 6), 9);
    ck_assert_uint_eq(feed_batches(&o, 4, 1), 2);
    ck_assert_uint_eq(feed_epochs(&o, 4, 9), 6);
    ck_assert_uint_eq(feed_epochs(&o, 4, 10), 7);
}
END_TEST

static void add(TCase *c)
{
    tcase_add_test(c, forms);
    tcase_add_loop_test(c, bad_lines, 0, sizeof wrong / sizeof *wrong);
    tcase_add_test(c, rows_of_records);
    tcase_add_test(c, a_record_a_sample);
    tcase_add_test(c, records_in_rows);
    tcase_add_test(c, epochs_differ);
    tcase_add_loop_test(c, held_out, 0, 2);
    tcase_add_loop_test(c, long_records, 0, 3);
    tcase_add_loop_test(c, nothing_to_train, 0, 3);
    tcase_add_test(c, orders_of_other_lengths);
}

int main(void) { return scratch_suite("jsonl", add); }
