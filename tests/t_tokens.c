/* Files of tokens: raw numbers, llm.c's, Megatron's pair; windows, labels, positions of documents; every kind of bad
 * file; positions of sources that have none. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "data_rig.h"
#include "model/graph.h"
#include "sure.h"

enum { T = 4 };
static const char net[] = "graph n\ninput tokens 4 I64\nlabels labels 4 I64\n"
                          "a = embedding(tokens) count=300 features=2\n"
                          "l = token_loss(a, labels) classes=300\noutput a\nloss l\n",
                  placed[] = "graph n\ninput tokens 4 I64\ninput positions 4 I32\nlabels labels 4 I64\n"
                             "a = embedding(tokens) count=300 features=2\nb = embedding(positions) count=4 features=2\n"
                             "s = add(a, b)\nl = token_loss(s, labels) classes=300\noutput s\nloss l\n";

static struct graph *graph_of(const char *text)
{
    struct err e = {0};
    struct graph *g = graph_parse("net", text, strlen(text), &e);
    ck_assert_msg(g != NULL, "%s", e.text);
    return g;
}

/* NULL: e */
static struct ds *opened(const char *data, const struct graph *g, struct err *e)
{
    struct ds *d = NULL;
    struct conf *c = conf_make(data);
    int bad = ds_open(c, DS_TRAIN, g, &d, e);
    ck_assert_int_eq(bad != 0, d == NULL);
    conf_free(c);
    return d;
}

static struct ds *tokens(const char *data, const struct graph *g, struct err *e)
{
    struct ds *d = opened(data, g, e);
    ck_assert_msg(d != NULL, "%s", e->text);
    return d;
}

/* A field by its name: all values of a sample. */
static const int64_t *field(struct ds *d, uint64_t sample, const char *name)
{
    static int64_t x[T];
    int32_t narrow[T];
    struct err e = {0};
    int k = 0;
    while (strcmp(d->field[k].name, name)) k++;
    const struct ds_at at = {sample, 0, k};
    const bool wide = d->field[k].type == I64;
    ck_assert_msg(!ds_read(d, &at, wide ? (void *)x : narrow, &e), "%s", e.text);
    for (int i = 0; i < T && !wide; i++) x[i] = narrow[i];
    return x;
}
#define IS(d, sample, name, ...) ck_assert_mem_eq(field(d, sample, name), ((int64_t[]){__VA_ARGS__}), T * 8)

static void put_numbers(const char *path, const void *head, size_t n, int bytes, const int *x, int count)
{
    uint8_t all[4096];
    if (n) memcpy(all, head, n);
    for (int i = 0; i < count; i++)
        for (int k = 0; k < bytes; k++) all[n + (size_t)(i * bytes + k)] = (uint8_t)(x[i] >> 8 * k);
    put(path, all, n + (size_t)(count * bytes));
}

static const int ten[] = {10, 11, 12, 299, 14, 15, 16, 17, 18, 19};

/* Two windows of four in ten tokens: the second ends with token 8, and its last label is token 9. */
static void ten_check(struct ds *d)
{
    static const int64_t both[] = {0, 1};
    ck_assert_uint_eq(d->kind->count(d), 2);
    IS(d, 0, "tokens", 10, 11, 12, 299);
    IS(d, 0, "labels", 11, 12, 299, 14);
    IS(d, 1, "tokens", 14, 15, 16, 17);
    IS(d, 1, "labels", 15, 16, 17, 18);
    ck_assert(ds_weight(d, NULL, 0, both, 2) == 8);
    ds_close(d);
}

START_TEST(files_of_numbers)
{
    struct graph *g = graph_of(net);
    struct err e = {0};
    int32_t head[256] = {20240520, 1, 10};
    put_numbers("t.bin", NULL, 0, 2, ten, 10);
    ten_check(tokens("source = tokens train_tokens = {\"t.bin\"}", g, &e));
    put_numbers("t.u32", NULL, 0, 4, ten, 10);
    ten_check(tokens("source = tokens train_tokens = {\"t.u32\"} token_type = u32", g, &e));
    put_numbers("t.16", head, sizeof head, 2, ten, 10);
    ten_check(tokens("source = tokens train_tokens = {\"t.16\"}", g, &e));
    head[0] = 20240801;
    head[1] = 7;
    put_numbers("t.32", head, sizeof head, 4, ten, 10);
    ten_check(tokens("source = tokens train_tokens = {\"t.32\"}", g, &e));
    PUT("t.u8", "abcdefghi");
    struct ds *d = tokens("source = tokens train_tokens = {\"t.u8\", \"t.bin\"} token_type = u8", g, &e);
    ck_assert_uint_eq(d->kind->count(d), 6);             /* the second file's bytes: 19 / 4 */
    IS(d, 1, "labels", 'f', 'g', 'h', 'i');
    IS(d, 2, "tokens", 10, 0, 11, 0);                    /* no window lies over the border */
    ds_close(d);
    d = tokens("source = tokens train_tokens = {\"t.u8\"} token_type = u8 samples = 1", g, &e);
    ck_assert_uint_eq(d->kind->count(d), 1);
    ds_close(d);
    graph_free(g);
}
END_TEST

/* Four sequences of 3, 2, 4 and 1 tokens; documents begin with the first and the third. */
static void megatron(const char *name, int type, uint64_t sequences)
{
    static const uint32_t length[] = {3, 2, 4, 1};
    static const uint64_t document[] = {0, 2, 4};
    char path[40];
    uint8_t x[34 + 4 * 12 + 24] = "MMIDIDX\0", *at = x + 34;
    const int bytes = type == 8 ? 2 : 4;
    uint64_t one = 1, offset = 0, documents = 3;
    memcpy(x + 9, &one, 8);
    x[17] = (uint8_t)type;
    memcpy(x + 18, &sequences, 8);
    memcpy(x + 26, &documents, 8);
    memcpy(at, length, sizeof length);
    for (int i = 0; i < 4; offset += length[i++] * (uint64_t)bytes) memcpy(at + 16 + 8 * i, &offset, 8);
    memcpy(at + 48, document, sizeof document);
    snprintf(path, sizeof path, "%s.idx", name);
    put(path, x, sizeof x);
    snprintf(path, sizeof path, "%s.bin", name);
    put_numbers(path, NULL, 0, bytes, ten, 10);
}

START_TEST(files_of_megatron)
{
    struct graph *g = graph_of(net), *p = graph_of(placed);
    struct err e = {0};
    megatron("m", 8, 4);
    ten_check(tokens("source = tokens train_tokens = {\"m.bin\"}", g, &e));
    megatron("n", 4, 4);
    ten_check(tokens("source = tokens train_tokens = {\"n.idx\"}", g, &e));
    struct ds *d = tokens("source = tokens train_tokens = {\"m.bin\"} documents = apart", p, &e);
    IS(d, 0, "positions", 0, 1, 2, 3);
    IS(d, 1, "positions", 0, 0, 1, 2);                   /* the first document has five tokens */
    ds_close(d);
    graph_free(g), graph_free(p);
}
END_TEST

START_TEST(positions)
{
    struct graph *p = graph_of(placed);
    struct err e = {0};
    put_numbers("t.bin", NULL, 0, 2, ten, 10);
    struct ds *d = tokens("source = tokens train_tokens = {\"t.bin\"}", p, &e);
    IS(d, 1, "positions", 0, 1, 2, 3);
    ds_close(d);
    d = tokens("source = tokens train_tokens = {\"t.bin\"} documents = apart end_token = 11", p, &e);
    IS(d, 0, "positions", 0, 1, 0, 1);                   /* the end belongs to its document */
    ds_close(d);
    d = tokens("source = synthetic samples = 5", p, &e);   /* a source without positions */
    IS(d, 3, "positions", 0, 1, 2, 3);
    ck_assert(ds_weight(d, NULL, 0, (int64_t[]){1, 2, 3}, 3) == 12);
    for (int i = 0; i < T; i++) ck_assert(field(d, 3, "input")[i] >= 0 && field(d, 3, "input")[i] < 300);
    ds_close(d);
    graph_free(p);
}
END_TEST

static void refused(const char *data, int code, const char *words)
{
    struct graph *g = graph_of(net);
    struct err e = {0};
    struct ds *d = opened(data, g, &e);
    ck_assert_msg(d == NULL, "%s is taken", data);
    expect(&e, code, words);
    graph_free(g);
}
#define REFUSED(settings, code, words) refused("source = tokens train_tokens = {\"t.bin\"} " settings, code, words)

START_TEST(bad_files)
{
    int32_t head[256] = {20240520, 2, 10};
    refused("source = tokens train_tokens = {\"nowhere.bin\"}", 66, "nowhere.bin");
    PUT("t.bin", "abcdefghi");
    REFUSED("", 65, "t.bin: 9 bytes|token_type");
    PUT("t.bin", "abcdefgh");
    REFUSED("", 65, "t.bin: 4 tokens|5");
    REFUSED("token_type = u8 samples = 2", 78, "2 samples|1");
    put_numbers("t.bin", head, sizeof head, 2, ten, 10);
    REFUSED("", 65, "t.bin: offset 4: version 2|1");
    head[1] = 1;
    put_numbers("t.bin", head, sizeof head, 2, ten, 9);
    REFUSED("", 65, "t.bin: offset 8: 10 tokens|1044|1042");
    put_numbers("t.bin", NULL, 0, 2, ten, 10);
    REFUSED("documents = apart", 78, "end_token|t.bin");
    REFUSED("documents = apart end_token = 300", 78, "end_token|300");
    REFUSED("documents = apart end_token = 11", 78, "data.documents|positions");
    megatron("m", 8, 5);
    refused("source = tokens train_tokens = {\"m.bin\"}", 65, "m.idx: offset 18: 5 sequences");
    megatron("m", 7, 4);
    refused("source = tokens train_tokens = {\"m.bin\"}", 65, "m.idx: offset 17|7");
    megatron("m", 4, 4);
    put_numbers("m.bin", NULL, 0, 2, ten, 10);
    refused("source = tokens train_tokens = {\"m.bin\"}", 65, "m.idx: 10 tokens|m.bin|20");
    PUT("m.idx", "MMIDIDX");
    refused("source = tokens train_tokens = {\"m.bin\"}", 65, "m.idx: too short");
}
END_TEST

/* Found before the run begins, in a large file only if a piece has it that is tried; otherwise when it is read. */
START_TEST(bad_tokens)
{
    enum { LARGE = 3 << 20, MISSED = (1 << 14) + 1 };
    static const int bad[] = {1, 2, 3, 300, 5, 6};
    struct graph *g = graph_of(net);
    struct err e = {0};
    int64_t x[T];
    put_numbers("t.bin", NULL, 0, 2, bad, 6);
    REFUSED("", 65, "t.bin: token 300 at 3|300");
    uint16_t *large = calloc(LARGE, sizeof *large);
    large[MISSED] = 300;
    put("t.bin", large, LARGE * sizeof *large);
    struct ds *d = tokens("source = tokens train_tokens = {\"t.bin\"}", g, &e);
    ck_assert_int_eq(ds_read(d, &(struct ds_at){MISSED / T, 0, 0}, x, &e), -1);
    expect(&e, 65, "t.bin: token 300 at 16385|300");
    ds_close(d);
    large[LARGE / 2] = 301;
    put("t.bin", large, LARGE * sizeof *large);
    REFUSED("", 65, "t.bin: token 301 at 1572864|300");
    free(large);
    graph_free(g);
}
END_TEST

static void add(TCase *t)
{
    tcase_add_test(t, files_of_numbers);
    tcase_add_test(t, files_of_megatron);
    tcase_add_test(t, positions);
    tcase_add_test(t, bad_files);
    tcase_add_test(t, bad_tokens);
}

int main(void) { return scratch_suite("tokens", add); }
