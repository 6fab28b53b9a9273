/* See records.h. */
#include <jansson.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "base/text.h"
#include "data/records.h"
#include "model/decoder.h"

int record_form_open(const struct conf *c, int64_t vocabulary, struct record_form *f, struct err *e)
{
    const char *of = c->model.folder ? c->model.folder : c->model.config;
    int64_t *end = NULL;
    int n = 0;
    *f = (struct record_form){.end = c->data.end_token, .vocabulary = vocabulary};
    if (!conf_given(c, "data.end_token") && of) {
        if (decoder_ends(of, &end, &n, e)) return -1;
        if (n) f->end = end[0];
        free(end);
    }
    if (tokenizer_known(c) && tokenizer_of(c, &f->tokenizer, e)) return -1;
    if (c->data.chat && chat_open(c->data.chat, &f->chat, e)) return -1;
    if (f->chat) chat_end_set(f->chat, f->tokenizer, f->end);
    return 0;
}

void record_form_close(struct record_form *f)
{
    tokenizer_close(f->tokenizer);
    chat_close(f->chat);
}

/* Where a record is read, and into what. */
struct record_reader { const struct record_form *f; const struct document *line; struct record *out; bool asks; };

static int record_fail(const struct record_reader *r, struct err *e, const char *format, ...)
    __attribute__((format(printf, 3, 4)));
static int record_fail(const struct record_reader *r, struct err *e, const char *format, ...)
{
    char why[240];
    va_list args;
    va_start(args, format);
    vsnprintf(why, sizeof why, format, args);
    va_end(args);
    return document_fail(r->line, why, e);
}

static int token_take(const struct record_reader *r, int64_t id, bool counts, struct err *e)
{
    if (id < 0 || id >= r->f->vocabulary)
        return record_fail(r, e, "token %lld at %d, and the vocabulary has %lld", (long long)id, r->out->id.n,
                           (long long)r->f->vocabulary);
    *vec_push(&r->out->id) = (int32_t)id;
    *vec_push(&r->out->label) = counts ? (int32_t)id : LABEL_IGNORED;
    return 0;
}

/* ---- forms ------------------------------------------------------------------------------------------------------- */

static int labels_take(const struct record_reader *r, const json_t *labels, struct err *e)
{
    const size_t n = json_array_size(labels);
    if (!json_is_array(labels) || n != (size_t)r->out->id.n)
        return record_fail(r, e, "labels: expected as many numbers as input_ids has, %d", r->out->id.n);
    for (size_t i = 0; i < n; i++) {
        const json_t *v = json_array_get(labels, i);
        const json_int_t x = json_is_integer(v) ? json_integer_value(v) : -1;
        if (x != LABEL_IGNORED && (x < 0 || x >= r->f->vocabulary))
            return record_fail(r, e, "labels: number %zu is no token below %lld and not -100", i,
                               (long long)r->f->vocabulary);
        r->out->label.v[i] = (int32_t)x;
    }
    return 0;
}

static int ids_read(const struct record_reader *r, const json_t *ids, const json_t *labels, struct err *e)
{
    if (!json_is_array(ids)) return record_fail(r, e, "input_ids: expected a list of numbers");
    for (size_t i = 0; i < json_array_size(ids); i++) {
        const json_t *v = json_array_get(ids, i);
        if (!json_is_integer(v)) return record_fail(r, e, "input_ids: number %zu is no whole number", i);
        if (token_take(r, json_integer_value(v), true, e)) return -1;
    }
    return labels ? labels_take(r, labels, e) : 0;
}

static int spans_encode(const struct record_reader *r, const char *text, const struct text_span *span, int n,
                        bool whole, struct err *e)
{
    struct token_ids ids = {0}, counts = {0};
    struct err own = {0};
    int bad = 0;
    if (whole) {
        bad = tokenizer_encode(r->f->tokenizer, "", 0, true, &ids, &own);     /* the token in front of a text */
        while (counts.n < ids.n) *vec_push(&counts) = 0;
    }
    if (!bad) bad = tokenizer_encode_parts(r->f->tokenizer, text, span, n, &ids, &counts, &own);
    if (bad) bad = record_fail(r, e, "%s", own.text);
    for (int i = 0; i < ids.n && !bad; i++) bad = token_take(r, ids.v[i], counts.v[i], e);
    vec_free(&ids);
    vec_free(&counts);
    return bad;
}

static const char chats_are[] = "; a chat is one list, {\"messages\": [{\"role\": \"..\", \"content\": \"..\"}, ..]}",
                  one_object[] = "each line must be one JSON object, {..}";

/* Whether a generation that is given the prompt would begin with other tokens. */
static bool prompt_strays(const struct record_reader *r, const json_t *prompt)
{
    struct token_ids ids = {0};
    struct err none = {0};
    bool strays = tokenizer_encode(r->f->tokenizer, json_string_value(prompt), json_string_length(prompt), true, &ids,
                                   &none);
    for (int i = 0; i < ids.n && !strays; i++) strays = i >= r->out->id.n || (int64_t)ids.v[i] != r->out->id.v[i];
    vec_free(&ids);
    return strays;
}

/* prompt: NULL: none. */
static int texts_read(const struct record_reader *r, const json_t *prompt, const json_t *text, const char *name,
                      struct err *e)
{
    struct text t = {0};
    if (prompt && !json_is_string(prompt))
        return record_fail(r, e, "prompt: expected a text%s", json_is_array(prompt) ? chats_are : "");
    if (!json_is_string(text))
        return record_fail(r, e, "%s: expected a text%s", name, json_is_array(text) ? chats_are : "");
    text_add_bytes(&t, json_string_value(prompt), json_string_length(prompt));
    text_add_bytes(&t, json_string_value(text), json_string_length(text));
    const struct text_span span[] = {{json_string_length(prompt), false, false},
                                     {json_string_length(text), false, true}};
    int bad = spans_encode(r, t.s ? t.s : "", span, 2, true, e);
    text_free(&t);
    if (!bad && prompt) r->out->astray = prompt_strays(r, prompt);
    return bad || r->f->end < 0 || r->asks ? bad : token_take(r, r->f->end, true, e);
}

/* A content is a text, or a list of parts {"type": "text", "text": ".."}. */
static int content_read(const struct record_reader *r, const json_t *content, size_t i, struct text *out,
                        struct err *e)
{
    if (json_is_string(content)) {
        text_add_bytes(out, json_string_value(content), json_string_length(content));
        return 0;
    }
    if (!json_is_array(content)) return record_fail(r, e, "messages: number %zu has no content that is a text", i);
    for (size_t k = 0; k < json_array_size(content); k++) {
        const json_t *part = json_array_get(content, k), *text = json_object_get(part, "text");
        if (!json_is_string(text))
            return record_fail(r, e, "messages: part %zu of number %zu is no text", k, i);
        text_add_bytes(out, json_string_value(text), json_string_length(text));
    }
    return 0;
}

static int message_read(const struct record_reader *r, const json_t *o, size_t i, struct chat_message *m,
                        struct text *content, struct err *e)
{
    const json_t *role = json_object_get(o, "role");
    if (!json_is_string(role) || strlen(json_string_value(role)) < json_string_length(role))
        return record_fail(r, e, "messages: number %zu has no role that is a word", i);
    if (json_array_size(json_object_get(o, "tool_calls")))
        return record_fail(r, e, "messages: number %zu has tool_calls, for which templates have no form", i);
    if (content_read(r, json_object_get(o, "content"), i, content, e)) return -1;
    *m = (struct chat_message){json_string_value(role), content->s ? content->s : "", content->n};
    return 0;
}

static int chat_encode(const struct record_reader *r, const struct chat_text *chat, struct err *e)
{
    const char *s = chat->t.s ? chat->t.s : "";
    for (int i = 0, from = 0, to; i <= chat->end.n; i++, from = to) {
        to = i < chat->end.n ? chat->end.v[i] : chat->span.n;
        if (spans_encode(r, s, chat->span.v + from, to - from, false, e)) return -1;
        if (i < chat->end.n && token_take(r, r->f->end, true, e)) return -1;
        for (int k = from; k < to; k++) s += chat->span.v[k].n;
    }
    return 0;
}

static int messages_read(const struct record_reader *r, const json_t *list, struct err *e)
{
    const size_t n = json_array_size(list);
    struct chat_message *m = mem_alloc((n + 1) * sizeof *m);
    struct text *content = mem_alloc((n + 1) * sizeof *content);
    struct chat_text chat = {0};
    struct err own = {0};
    int bad = !json_is_array(list) || !n ? record_fail(r, e, "messages: expected a list of messages")
              : !r->f->chat ? record_fail(r, e, "messages need data.chat, the template of their network") : 0;
    for (size_t i = 0; i < n && !bad; i++) bad = message_read(r, json_array_get(list, i), i, &m[i], &content[i], e);
    if (!bad && chat_render(r->f->chat, r->f->tokenizer, m, (int)n, r->asks, &chat, &own))
        bad = record_fail(r, e, "%s", own.text);
    if (!bad) bad = chat_encode(r, &chat, e);
    for (size_t i = 0; i < n; i++) text_free(&content[i]);
    free(content);
    free(m);
    chat_text_free(&chat);
    return bad;
}

/* NULL: absent, or null. */
static const json_t *form_find(const json_t *o, const char *key)
{
    const json_t *v = json_object_get(o, key);
    return json_is_null(v) ? NULL : v;
}

static int object_read(const struct record_reader *r, const json_t *o, struct err *e)
{
    const json_t *ids = form_find(o, "input_ids"), *messages = form_find(o, "messages"),
                 *prompt = form_find(o, "prompt"), *completion = form_find(o, "completion"),
                 *text = form_find(o, "text");
    if (ids) return ids_read(r, ids, r->asks ? NULL : form_find(o, "labels"), e);
    if ((messages || completion || text) && !r->f->tokenizer)
        return record_fail(r, e, "a text needs data.tokenizer: a tokenizer.json, or \"bytes\"");
    if (messages) return messages_read(r, messages, e);
    if (prompt && completion && !r->asks) return texts_read(r, prompt, completion, "completion", e);
    if (text) return texts_read(r, NULL, text, "text", e);
    if (!json_is_object(o)) return record_fail(r, e, "%s", one_object);
    if (form_find(o, "conversations")) return record_fail(r, e, "conversations are not read%s", chats_are);
    return record_fail(r, e, r->asks ? "expected input_ids, messages or text"
                                     : "expected input_ids, messages, prompt and completion, or text");
}

static int line_parse(const struct record_reader *r, int least, struct err *e)
{
    json_error_t why;
    r->out->id.n = r->out->label.n = 0;
    r->out->astray = false;
    json_t *o = json_loadb(r->line->s, r->line->n, JSON_REJECT_DUPLICATES | JSON_ALLOW_NUL, &why);
    int bad = !o ? record_fail(r, e, "%s; %s", why.text, one_object) : object_read(r, o, e);
    json_decref(o);
    if (bad || r->out->id.n >= least) return bad;
    if (r->asks) return record_fail(r, e, "the prompt is empty");
    return record_fail(r, e, "a record needs two tokens, and this one has %d", r->out->id.n);
}

int record_parse(const struct record_form *f, const struct document *line, struct record *out, struct err *e)
{
    return line_parse(&(struct record_reader){f, line, out, false}, 2, e);
}

int record_prompt(const struct record_form *f, const struct document *line, struct record *out, struct err *e)
{
    return line_parse(&(struct record_reader){f, line, out, true}, 1, e);
}

void record_free(struct record *r)
{
    vec_free(&r->id);
    vec_free(&r->label);
}
