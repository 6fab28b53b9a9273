/* Chats: as transformers renders them (tests/lm/chats.expected); prompts that begin as records do; what ends answers;
 * marks in contents; wrong templates. */
#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "base/text.h"
#include "data/records.h"
#include "data_rig.h"
#include "sure.h"

static const char *lm_file(const char *name)
{
    static char path[4096];
    const char *top = getenv("srcdir");
    snprintf(path, sizeof path, "%s/tests/lm/%s", top ? top : ".", name);
    return path;
}

/* ---- chats ------------------------------------------------------------------------------------------------------- */

/* Adds a token of two spaces, as most tokenizers have. */
static void spaces_add(json_t *model, json_int_t id)
{
    json_t *merges = json_object_get(model, "merges");
    json_object_set_new(json_object_get(model, "vocab"), "\u0120\u0120", json_integer(id));
    json_array_insert_new(merges, 0, json_is_array(json_array_get(merges, 0)) ? json_pack("[ss]", "\u0120", "\u0120")
                                                                              : json_string("\u0120 \u0120"));
}

/* A kept tokenizer with more special tokens, which NORMALIZED has in normalised text only. */
enum { SPACES = 1, NORMALIZED = 2, MAY_BE_THERE = 4 };
static struct tokenizer *tokenizer_with(const char *name, const json_t *special, int what)
{
    char file[64];
    struct tokenizer *t;
    struct err e = {0};
    json_error_t why;
    snprintf(file, sizeof file, "tokenizers/%s.json", name);
    json_t *o = json_load_file(lm_file(file), 0, &why), *vocab = json_object_get(json_object_get(o, "model"), "vocab");
    ck_assert_msg(o != NULL, "%s", why.text);
    json_int_t next = (json_int_t)json_object_size(vocab);
    size_t i;
    json_t *added = json_object_get(o, "added_tokens"), *x;
    json_array_foreach(added, i, x) {
        const json_int_t id = json_integer_value(json_object_get(x, "id"));
        if (id >= next) next = id + 1;
    }
    if (what & SPACES) spaces_add(json_object_get(o, "model"), next++);
    json_array_foreach(special, i, x) {
        if (what & MAY_BE_THERE && json_object_get(vocab, json_string_value(x))) continue;
        json_array_append_new(added, json_pack("{s:I s:O s:b s:b s:b s:b s:b}", "id", next++, "content", x,
                                               "single_word", 0, "lstrip", 0, "rstrip", 0, "normalized",
                                               what & NORMALIZED, "special", 1));
    }
    ck_assert(!json_dump_file(o, "tokenizer.json", 0));
    json_decref(o);
    ck_assert_msg(!tokenizer_open("tokenizer.json", &t, &e), "%s", e.text);
    return t;
}

static struct chat *chat_of(const char *word, const char *rules)
{
    struct chat *c;
    struct err e = {0};
    if (rules) put("chat.rules", rules, strlen(rules));
    ck_assert_msg(!chat_open(rules ? "chat.rules" : word, &c, &e), "%s", e.text);
    return c;
}

static void same_numbers(const json_t *o, const char *key, const int32_t *v, int n, const char *line)
{
    const json_t *list = json_object_get(o, key);
    bool same = json_array_size(list) == (size_t)n;
    for (int i = 0; i < n && same; i++) same = json_integer_value(json_array_get(list, (size_t)i)) == v[i];
    struct text got = {0};
    for (int i = 0; i < n && !same; i++) text_add(&got, "%d, ", v[i]);
    ck_assert_msg(same, "other %s: %s in place of %.1500s", key, got.n ? got.s : "", line);
}

START_TEST(as_transformers_renders)
{
    FILE *f = fopen(lm_file("chats.expected"), "r");
    char *line = NULL;
    size_t room = 0;
    int n = 0;
    ck_assert(f != NULL);
    for (ssize_t k; (k = getline(&line, &room, f)) > 0; n++) {
        json_t *o = json_loadb(line, (size_t)k, 0, NULL);
        struct tokenizer *t = tokenizer_with(json_string_value(json_object_get(o, "tokenizer")),
                                             json_object_get(o, "special"),
                                             json_is_true(json_object_get(o, "spaces")) ? SPACES : 0);
        struct chat *c = chat_of(json_string_value(json_object_get(o, "chat")),
                                 json_string_value(json_object_get(o, "rules")));
        const struct record_form form = {t, c, -1, 1 << 20};
        const struct document d = {"chats", n + 1, line, (size_t)k - 1};
        struct record r = {.id = {0}};
        struct err e = {0};
        json_t *only = json_pack("{s:O}", "messages", json_object_get(o, "messages"));
        char *text = json_dumps(only, 0);
        ck_assert_msg(!record_parse(&form, &(struct document){d.file, d.line, text, strlen(text)}, &r, &e), "%s",
                      e.text);
        same_numbers(o, "ids", r.id.v, r.id.n, line);
        same_numbers(o, "labels", r.label.v, r.label.n, line);
        record_free(&r);
        free(text);
        json_decref(only);
        json_decref(o);
        chat_close(c);
        tokenizer_close(t);
    }
    ck_assert_int_ge(n, 35);
    free(line);
    fclose(f);
}
END_TEST

static int parsed(const struct record_form *f, const char *line, struct record *r, struct err *e)
{
    *e = (struct err){0};
    return record_parse(f, &(struct document){"a.jsonl", 7, line, strlen(line)}, r, e);
}

static bool has(const struct record *r, int64_t id)
{
    for (int i = 0; i < r->id.n; i++) if (r->id.v[i] == id) return true;
    return false;
}

START_TEST(contents_are_letters)
{
    json_t *special = json_pack("[s s]", "<|im_start|>", "<|im_end|>");
    struct tokenizer *t = tokenizer_with("gpt2", special, 0);
    struct chat *c = chat_of("chatml", NULL);
    const struct record_form form = {t, c, -1, 1 << 20};
    struct record r = {.id = {0}};
    struct err e;
    struct text back = {0};
    int ends = 0;
    ck_assert(!parsed(&form, "{\"messages\": [{\"role\": \"user\", \"content\": \"say <|im_end|> <|end|>\"}, "
                             "{\"role\": \"assistant\", \"content\": \"<|im_start|>\"}]}", &r, &e));
    const int64_t end = r.id.v[r.id.n - 2];
    for (int i = 0; i < r.id.n; i++) ends += r.id.v[i] == end;
    ck_assert_int_eq(ends, 2);                           /* of the two messages */
    tokenizer_show(t, (uint32_t *)r.id.v, (size_t)r.id.n, &back);
    ck_assert_str_eq(back.s, "<|im_start|>user\nsay <|im_end|> <|end|><|im_end|>\n<|im_start|>assistant\n<|im_start|>"
                             "<|im_end|>\n");
    text_free(&back);
    record_free(&r);
    chat_close(c);
    tokenizer_close(t);
    json_decref(special);
}
END_TEST

/* Tokens for people: spaces behind special tokens, and borders that are never within a character. */
START_TEST(shown)
{
    struct tokenizer *t = tokenizer_with("metaspace", NULL, 0);
    const uint32_t id[] = {331, 400, 331, 399};          /* do, <sep>, do, tab */
    struct text all = {0};
    struct token_ids two = {0};
    struct err e = {0};
    tokenizer_show(t, id, 4, &all);
    ck_assert_str_eq(all.s, "do<sep> do tab");
    ck_assert_uint_eq(tokenizer_shown(t, id, 2, &all), 7);
    ck_assert_uint_eq(tokenizer_shown(t, id, 3, &all), 10);
    tokenizer_close(t);
    t = tokenizer_with("gpt2", NULL, 0);
    all.n = 0;
    ck_assert(!tokenizer_encode(t, "a\u0416b", 4, true, &two, &e) && two.n == 4);
    tokenizer_show(t, two.v, 4, &all);
    ck_assert_str_eq(all.s, "a\u0416b");
    ck_assert_uint_eq(tokenizer_shown(t, two.v, 2, &all), 1);
    ck_assert_uint_eq(tokenizer_shown(t, two.v, 3, &all), 3);
    vec_free(&two);
    text_free(&all);
    tokenizer_close(t);
}
END_TEST

/* Where a special token is found only in normalised text, marks work, and a content that has one is refused. */
START_TEST(normalized_marks)
{
    json_t *special = json_pack("[s s]", "<|im_start|>", "<|im_end|>");
    struct tokenizer *t = tokenizer_with("gpt2", special, NORMALIZED);
    struct chat *c = chat_of("chatml", NULL);
    const struct record_form form = {t, c, -1, 1 << 20};
    struct record r = {.id = {0}};
    struct err e;
    ck_assert_msg(!parsed(&form, "{\"messages\": [{\"role\": \"assistant\", \"content\": \"x\"}]}", &r, &e), "%s",
                  e.text);
    ck_assert(has(&r, 330) && has(&r, 331));
    ck_assert(parsed(&form, "{\"messages\": [{\"role\": \"assistant\", \"content\": \"<|im_end|>\"}]}", &r, &e));
    ck_assert_msg(strstr(e.text, "a.jsonl:7: a content has <|im_end|>"), "%s", e.text);
    record_free(&r);
    chat_close(c);
    tokenizer_close(t);
    json_decref(special);
}
END_TEST

/* ---- prompts ----------------------------------------------------------------------------------------------------- */

static const char *const marks_of[][4] = {
    {"chatml", "<|im_start|>", "<|im_end|>"},
    {"llama3", "<|begin_of_text|>", "<|start_header_id|>", "<|end_header_id|>"},
    {"llama2", "<s>", "</s>"},
    {"zephyr", "<|system|>", "<|user|>", "</s>"},
    {"plain"},
};

/* A prompt's tokens are those that the record begins with, and all tokens behind them count up to the end. */
static void prompt_begins(const struct record_form *f, const char *before, const char *answer)
{
    char whole[300], asked[300];
    struct record r = {.id = {0}}, p = {.id = {0}};
    struct err e = {0};
    snprintf(asked, sizeof asked, "{\"messages\": [%s{\"role\": \"user\", \"content\": \"Peru?\"}]}", before);
    snprintf(whole, sizeof whole, "{\"messages\": [%s{\"role\": \"user\", \"content\": \"Peru?\"}, "
             "{\"role\": \"assistant\", \"content\": \"%s\"}]}", before, answer);
    ck_assert_msg(!parsed(f, whole, &r, &e), "%s", e.text);
    ck_assert_msg(!record_prompt(f, &(struct document){"a.jsonl", 7, asked, strlen(asked)}, &p, &e), "%s", e.text);
    ck_assert_int_lt(p.id.n, r.id.n);
    for (int i = 0; i < p.id.n; i++) ck_assert_msg(r.id.v[i] == p.id.v[i], "%s, token %d of %d", answer, i, p.id.n);
    ck_assert_int_eq(r.label.v[p.id.n - 1], LABEL_IGNORED);
    ck_assert_int_eq(r.label.v[p.id.n], r.id.v[p.id.n]);
    record_free(&r);
    record_free(&p);
}

START_TEST(prompts_begin_records)
{
    static const char *const names[] = {"gpt2", "digits", "llama3", "llama2", "metaspace"}, *const answers[] = {
        "15 is", "Lima", "the fox", ""},
        first[] = "{\"role\": \"user\", \"content\": \"a b\"}, {\"role\": \"assistant\", \"content\": \"7 c\"}, ";
    json_t *special = json_array();
    for (int i = 1; i < 4 && marks_of[_i][i]; i++) json_array_append_new(special, json_string(marks_of[_i][i]));
    for (int k = 0; k < N_OF(names); k++) {
        struct tokenizer *t = tokenizer_with(names[k], special, k < 3 ? SPACES | MAY_BE_THERE : MAY_BE_THERE);
        struct chat *c = chat_of(marks_of[_i][0], NULL);
        const struct record_form form = {t, c, -1, 1 << 20};
        for (int ends = 0; ends < 2; ends++) {
            for (int i = 0; i < N_OF(answers); i++) {
                prompt_begins(&form, "", answers[i]);
                prompt_begins(&form, first, answers[i]);
            }
            chat_end_set(c, t, tokenizer_size(t) - 1);
        }
        chat_close(c);
        tokenizer_close(t);
    }
    json_decref(special);
}
END_TEST

/* plain ends answers with the end token, which is a special token, a byte, or a number beside the bytes. */
START_TEST(plain_ends)
{
    static const struct { const char *tokenizer; int64_t id; const char *shown; } of[] = {
        {"gpt2", 256, "<|end|>"}, {"bytes", 0, NULL}, {"bytes", 256, ""}, {"bytes", -1, "\n"}};
    struct tokenizer *t;
    struct err e = {0};
    struct record r = {.id = {0}};
    bool ends;
    if (_i) ck_assert(!tokenizer_open("bytes", &t, &e));
    else t = tokenizer_with(of[_i].tokenizer, NULL, 0);
    uint32_t id = (uint32_t)of[_i].id;
    if (!_i) ck_assert(tokenizer_added_end(t, of[_i].shown, strlen(of[_i].shown), &id) > 0);
    struct chat *c = chat_of("plain", NULL);
    const struct record_form form = {t, c, _i ? of[_i].id : id, 1 << 20};
    chat_end_set(c, t, form.end);
    ck_assert_msg(!parsed(&form, "{\"messages\": [{\"role\": \"user\", \"content\": \"a\"}, "
                                 "{\"role\": \"assistant\", \"content\": \"b\"}, "
                                 "{\"role\": \"user\", \"content\": \"c\"}]}", &r, &e), "%s", e.text);
    int at = 0, counted = 0;
    for (int i = 0; i < r.id.n; i++) {
        counted += r.label.v[i] != LABEL_IGNORED;
        if (r.label.v[i] != LABEL_IGNORED) at = i;
    }
    ck_assert_int_eq(r.id.v[at], form.end < 0 ? '\n' : form.end);
    if (_i) ck_assert_int_eq(counted, 3);                /* " b" and the end */
    ck_assert_int_eq(chat_ends_badly(c, t, &ends) != NULL, form.end < 0);
    ck_assert(ends);
    record_free(&r);
    chat_close(c);
    tokenizer_close(t);
}
END_TEST

/* A border within a token: a generation would be given other tokens. */
START_TEST(prompts_that_stray)
{
    struct tokenizer *t = tokenizer_with("gpt2", NULL, 0);
    const struct record_form form = {t, NULL, -1, 1 << 20};
    struct record r = {.id = {0}};
    struct err e;
    ck_assert(!parsed(&form, "{\"prompt\": \"say \", \"completion\": \"the\"}", &r, &e) && r.astray);
    ck_assert(!parsed(&form, "{\"prompt\": \"say\", \"completion\": \" the\"}", &r, &e) && !r.astray);
    ck_assert(!parsed(&form, "{\"text\": \"say the\"}", &r, &e) && !r.astray);
    record_free(&r);
    tokenizer_close(t);
}
END_TEST

/* ---- templates --------------------------------------------------------------------------------------------------- */

static const struct { const char *rules, *why; } wrong_rules[] = {
    {"user \"a\" \"b\"\n", "c.rules: has no rule for assistant"},
    {"assistant \"a\"\n", "c.rules:1: expected a text in quotation marks"},
    {"# x\nassistant \"a\" \"b\" c\n", "c.rules:2: this is too much: c"},
    {"assistant maybe \"a\" \"b\"\n", "expected first, last or after ROLE, not maybe"},
    {"assistant after \"a\" \"b\"\n", "expected a role"},
    {"assistant \"a\" \"b\\q\"\n", "c.rules:1: "},
    {"default judge \"a\"\nassistant \"a\" \"b\"\n", "has no rule for judge"},
    {" \n{%- for m in messages %}\n", "c.rules: is a Jinja template, no file of rules"},
    {"\"a\"\n", "expected a role, start, generate, default, trim or ends"},
};

START_TEST(bad_templates)
{
    struct chat *c;
    struct err e = {0};
    put("c.rules", wrong_rules[_i].rules, strlen(wrong_rules[_i].rules));
    ck_assert(chat_open("c.rules", &c, &e) && !c);
    ck_assert_msg(e.code == 65 && strstr(e.text, wrong_rules[_i].why), "%s", e.text);
    e = (struct err){0};
    ck_assert(chat_open("none.rules", &c, &e));
    ck_assert_int_eq(e.code, 66);
}
END_TEST

static void add(TCase *c)
{
    tcase_add_test(c, as_transformers_renders);
    tcase_add_test(c, contents_are_letters);
    tcase_add_test(c, normalized_marks);
    tcase_add_test(c, shown);
    tcase_add_loop_test(c, prompts_begin_records, 0, N_OF(marks_of));
    tcase_add_loop_test(c, plain_ends, 0, 4);
    tcase_add_test(c, prompts_that_stray);
    tcase_add_loop_test(c, bad_templates, 0, N_OF(wrong_rules));
}

int main(void) { return scratch_suite("chat", add); }
