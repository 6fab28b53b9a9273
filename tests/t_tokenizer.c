/* Tokenizers: ids and texts equal those of Hugging Face's tokenizers, kept in tests/lm/tokenizers (made by
 * tests/torch/bpe.py; TOKENIZERS names another folder); long words take no quadratic time; what is not supported is
 * refused by name. */
#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "base/text.h"
#include "data/tokenizer.h"
#include "data_rig.h"
#include "sure.h"

static const char *folder(void)
{
    static char path[4096];
    const char *other = getenv("TOKENIZERS"), *top = getenv("srcdir");
    if (other) return other;
    snprintf(path, sizeof path, "%s/tests/lm/tokenizers", top ? top : ".");
    return path;
}

static struct tokenizer *opened(const char *name)
{
    struct tokenizer *t;
    struct text path = {0};
    struct err e = {0};
    text_add(&path, "%s/%s.json", folder(), name);
    ck_assert_msg(!tokenizer_open(path.s, &t, &e), "%s", e.text);
    text_free(&path);
    return t;
}

/* A line of `expected`. */
static void line_check(struct tokenizer *t, const json_t *line)
{
    const json_t *text = json_array_get(line, 1), *ids = json_array_get(line, 2), *back = json_array_get(line, 3);
    struct token_ids got = {0};
    struct text s = {0};
    struct err e = {0};
    char *shown = json_dumps(line, 0);
    ck_assert_msg(!tokenizer_encode(t, json_string_value(text), json_string_length(text), true, &got, &e), "%s",
                  e.text);
    bool same = (size_t)got.n == json_array_size(ids);
    for (int i = 0; i < got.n && same; i++) same = json_integer_value(json_array_get(ids, (size_t)i)) == got.v[i];
    ck_assert_msg(same, "other ids: %.2000s", shown);
    tokenizer_decode(t, got.v, (size_t)got.n, &s);
    same = s.n == json_string_length(back) && !memcmp(s.n ? s.s : "", json_string_value(back), s.n);
    ck_assert_msg(same, "another text, %s: %.2000s", s.s, shown);
    free(shown);
    vec_free(&got);
    text_free(&s);
}

START_TEST(as_hugging_face)
{
    struct text path = {0};
    char *line = NULL, now[64] = "";
    size_t room = 0;
    int n = 0;
    struct tokenizer *t = NULL;
    text_add(&path, "%s/all.expected", folder());
    FILE *f = fopen(path.s, "r");
    ck_assert_msg(f != NULL, "%s", path.s);
    for (; getline(&line, &room, f) > 0; n++) {
        json_t *o = json_loads(line, JSON_ALLOW_NUL, NULL);
        const char *name = json_string_value(json_array_get(o, 0));
        if (strcmp(name, now)) {
            tokenizer_close(t);
            t = opened(name);
            snprintf(now, sizeof now, "%s", name);
        }
        line_check(t, o);
        json_decref(o);
    }
    tokenizer_close(t);
    free(line);
    fclose(f);
    text_free(&path);
    ck_assert_int_ge(n, 150);
}
END_TEST

/* A million letters without a space are one word. */
START_TEST(long_words)
{
    enum { N = 1 << 20 };
    struct tokenizer *t = opened("llama2");
    struct token_ids ids = {0};
    struct err e = {0};
    char *s = mem_alloc(N);
    for (int i = 0; i < N; i++) s[i] = "abcthefoxover"[(unsigned)(i * 7 + i / 13) % 13];
    ck_assert_int_eq(tokenizer_encode(t, s, N, true, &ids, &e), 0);
    ck_assert_int_gt(ids.n, N / 8);
    free(s);
    vec_free(&ids);
    tokenizer_close(t);
}
END_TEST

START_TEST(bytes)
{
    struct tokenizer *t;
    struct token_ids ids = {0};
    struct text s = {0};
    struct err e = {0};
    ck_assert_int_eq(tokenizer_open("bytes", &t, &e), 0);
    ck_assert_int_eq(tokenizer_size(t), 256);
    ck_assert_int_eq(tokenizer_encode(t, "a\xff", 2, true, &ids, &e), 0);
    ck_assert(ids.n == 2 && ids.v[0] == 'a' && ids.v[1] == 255);
    tokenizer_decode(t, ids.v, 2, &s);
    ck_assert_str_eq(s.s, "a\xef\xbf\xbd");
    text_free(&s);
    vec_free(&ids);
    tokenizer_close(t);
}
END_TEST

#define MODEL "\"model\":{\"type\":\"BPE\",\"vocab\":{\"a\":0,\"b\":1,\"ab\":2},\"merges\":[\"a b\"]}"
#define SPLIT ",\"pre_tokenizer\":{\"type\":\"Split\",\"pattern\":{\"Regex\":"
START_TEST(refused)
{
    static const struct { const char *json, *text; } no[] = {
        {"{", "tokenizer.json:1:"}, {"{}", "without model"}, {"[]", "without model"},
        {"{\"model\":{\"type\":\"Unigram\",\"vocab\":{},\"merges\":[]}}", "the model Unigram is not supported"},
        {"{\"model\":{\"type\":\"BPE\",\"vocab\":{\"a\":0},\"merges\":[\"a c\"]}}", "merge 0"},
        {"{\"model\":{\"type\":\"BPE\",\"vocab\":{\"a\":0},\"merges\":[\"a\"]}}", "merge 0 is no pair"},
        {"{\"model\":{\"type\":\"BPE\",\"vocab\":{\"a\":0,\"b\":0},\"merges\":[]}}", "two tokens have the id 0"},
        {"{\"model\":{\"type\":\"BPE\",\"vocab\":{\"a\":99999999},\"merges\":[]}}", "99999999"},
        {"{\"model\":{\"type\":\"BPE\",\"vocab\":{\"a\":0},\"merges\":[],\"dropout\":0.1}}", "dropout"},
        {"{" MODEL ",\"normalizer\":{\"type\":\"Lowercase\"}}", "the normalizer Lowercase is not supported"},
        {"{" MODEL ",\"pre_tokenizer\":{\"type\":\"Whitespace\"}}", "the pre_tokenizer Whitespace is not supported"},
        {"{" MODEL ",\"decoder\":{\"type\":\"WordPiece\"}}", "the decoder WordPiece is not supported"},
        {"{" MODEL ",\"post_processor\":{\"type\":\"BertProcessing\"}}", "BertProcessing is not supported"},
        {"{" MODEL ",\"pre_tokenizer\":{\"type\":\"Split\",\"pattern\":{\"Regex\":\"(\"},\"behavior\":\"Isolated\"}}",
         "the regular expression ("},
        {"{" MODEL SPLIT "\"\\\\h+\"},\"behavior\":\"Isolated\"}}",
         "the regular expression \\h+"},
        {"{" MODEL SPLIT "\"\\\\w+\"},\"behavior\":\"Isolated\"}}", "the regular expression \\w+"},
        {"{" MODEL SPLIT "\"a\\\\b\"},\"behavior\":\"Isolated\"}}", "the regular expression a\\b"},
        {"{" MODEL SPLIT "\"[[:alpha:]]\"},\"behavior\":\"Isolated\"}}", "the regular expression [[:alpha"},
        {"{" MODEL SPLIT "\"[a-z&&[b]]\"},\"behavior\":\"Isolated\"}}",
         "the regular expression [a-z&&"},
        {"{" MODEL ",\"pre_tokenizer\":{\"type\":\"Metaspace\",\"replacement\":\"ab\"}}",
         "a replacement of one character"},
        {"{" MODEL ",\"added_tokens\":[{\"id\":7,\"content\":\"ab\"}]}", "a token with two ids, ab"},
        {"{" MODEL ",\"post_processor\":{\"type\":\"TemplateProcessing\",\"single\":[{\"Sequence\":{\"id\":\"A\"}},"
         "{\"SpecialToken\":{\"id\":\"a\"}}]}}", "TemplateProcessing of other forms"}};
    char dir[] = "/tmp/tokenizer.XXXXXX", path[64];
    ck_assert_ptr_nonnull(mkdtemp(dir));
    snprintf(path, sizeof path, "%s/tokenizer.json", dir);
    for (size_t i = 0; i < sizeof no / sizeof *no; i++) {
        struct err e = {0};
        struct tokenizer *t;
        FILE *f = fopen(path, "w");
        fputs(no[i].json, f);
        fclose(f);
        ck_assert_int_eq(tokenizer_open(dir, &t, &e), -1);
        ck_assert_msg(e.code == 65 && strstr(e.text, no[i].text) && strstr(e.text, path), "%s: %d %s", no[i].json,
                      e.code, e.text);
    }
    remove(path);
    remove(dir);
    struct tokenizer *t = opened("gpt2");
    struct token_ids ids = {0};
    struct err e = {0};
    ck_assert_int_eq(tokenizer_encode(t, "ab\xff", 3, true, &ids, &e), -1);
    ck_assert_str_eq(e.text, "byte 2 is not UTF-8");
    vec_free(&ids);
    tokenizer_close(t);
}
END_TEST

/* Steps that each lengthen a text, one after the other: an error instead of all memory. */
START_TEST(lengthening)
{
#define TWICE "{\"type\":\"Replace\",\"pattern\":{\"String\":\"a\"},\"content\":\"aa\"},"
#define TIMES_256 TWICE TWICE TWICE TWICE TWICE TWICE TWICE TWICE
#define LAST "{\"type\":\"ByteLevel\"}"
#define BYTES_5 LAST "," LAST "," LAST "," LAST "," LAST ","
#define NORMALIZER "\"normalizer\":{\"type\":\"Sequence\",\"normalizers\":[" TIMES_256 TIMES_256 "{\"type\":\"NFC\"}]}"
#define ADDED ",\"added_tokens\":[{\"id\":3,\"content\":\"aaa\",\"normalized\":true}],"
#define DECODER ",\"decoder\":{\"type\":\"Sequence\",\"decoders\":[" TIMES_256 TIMES_256 "{\"type\":\"Fuse\"}]}"
#define PRE ",\"pre_tokenizer\":{\"type\":\"Sequence\",\"pretokenizers\":[" BYTES_5 BYTES_5 BYTES_5 BYTES_5 LAST "]}"
    static const struct { const char *json; bool opens; const char *text; } grows[] = {
        {"{" MODEL "," NORMALIZER "}", true, "64 times as long"}, {"{" MODEL PRE "}", true, "64 times as long"},
        {"{" MODEL ADDED NORMALIZER "}", false, "tokenizer.json: the tokenizer's steps"},
        {"{" MODEL DECODER "}", false, "4096 times as long"}};
    char dir[] = "/tmp/tokenizer.XXXXXX", path[64];
    ck_assert_ptr_nonnull(mkdtemp(dir));
    snprintf(path, sizeof path, "%s/tokenizer.json", dir);
    for (size_t i = 0; i < sizeof grows / sizeof *grows; i++) {
        struct err e = {0};
        struct tokenizer *t = NULL;
        struct token_ids ids = {0};
        FILE *f = fopen(path, "w");
        fputs(grows[i].json, f);
        fclose(f);
        ck_assert_msg(!tokenizer_open(dir, &t, &e) == grows[i].opens, "%s", e.text);
        if (t) ck_assert_int_eq(tokenizer_encode(t, "aaa\xc3\xa9", 5, true, &ids, &e), -1);
        ck_assert_msg(e.code == 65 && strstr(e.text, grows[i].text), "%s", e.text);
        vec_free(&ids);
        if (t) tokenizer_close(t);
    }
    remove(path);
    remove(dir);
}
END_TEST

int main(void)
{
    TCase *t = suite_case("tokenizer", 60);
    tcase_add_test(t, lengthening);
    tcase_add_test(t, as_hugging_face);
    tcase_add_test(t, long_words);
    tcase_add_test(t, bytes);
    tcase_add_test(t, refused);
    return suite_run("tokenizer", CK_FORK, t);
}
