/* See prompts.h. A line of generate.prompts is {"input_ids": [..]} or {"text": ".."}. */
#include <jansson.h>
#include <stdlib.h>
#include <string.h>
#include "base/text.h"
#include "data/ds_int.h"
#include "data/prompts.h"
#include "data/tokenizer.h"

/* ---- reading ------------------------------------------------------------------------------------------- */

enum { MAX_PROMPTS_FILE = 1 << 30 };

static struct prompt *prompt_add(struct prompts *p, int line)
{
    struct prompt *new = vec_push(&p->of);
    *new = (struct prompt){.line = line};
    return new;
}

struct prompt_reader {
    const struct conf *c; const char *file; int line; struct tokenizer *tokenizer; struct prompts *p;
};

static int prompt_fail(const struct prompt_reader *r, struct err *e, const char *why)
{
    if (!r->line) return conf_error(r->c, "generate.prompt", e, "%s", why);
    return err_set(e, E_DATA, "%s:%d: %s", r->file, r->line, why);
}

static int text_encode(struct prompt_reader *r, const char *text, size_t n, struct err *e)
{
    struct prompt *p = prompt_add(r->p, r->line);
    struct token_ids ids = {0};
    struct err own = {0};
    if (!r->tokenizer && tokenizer_of(r->c, &r->tokenizer, e)) return -1;
    int bad = tokenizer_encode(r->tokenizer, text, n, true, &ids, &own) ? prompt_fail(r, e, own.text) : 0;
    for (int i = 0; i < ids.n; i++) *vec_push(&p->id) = ids.v[i];
    vec_free(&ids);
    if (bad) return -1;
    return p->id.n ? 0 : prompt_fail(r, e, "the prompt is empty");
}

static int ids_take(struct prompt_reader *r, const json_t *ids, struct err *e)
{
    struct prompt *p = prompt_add(r->p, r->line);
    for (size_t i = 0; i < json_array_size(ids); i++) {
        const json_t *v = json_array_get(ids, i);
        if (!json_is_integer(v) || json_integer_value(v) < 0)
            return prompt_fail(r, e, "input_ids: expected whole numbers from 0 on");
        *vec_push(&p->id) = json_integer_value(v);
    }
    return p->id.n ? 0 : prompt_fail(r, e, "the prompt is empty");
}

static int line_read(struct prompt_reader *r, const char *s, size_t n, struct err *e)
{
    json_error_t why;
    json_t *o = json_loadb(s, n, JSON_REJECT_DUPLICATES | JSON_ALLOW_NUL, &why);
    if (!o) return prompt_fail(r, e, why.text);
    const json_t *ids = json_object_get(o, "input_ids"), *text = json_object_get(o, "text");
    int bad;
    if (json_is_array(ids) && !text) bad = ids_take(r, ids, e);
    else if (json_is_string(text) && !ids) bad = text_encode(r, json_string_value(text), json_string_length(text), e);
    else bad = prompt_fail(r, e, "expected {\"input_ids\": [..]} or {\"text\": \"..\"}");
    json_decref(o);
    return bad;
}

static int file_read(struct prompt_reader *r, struct err *e)
{
    struct text t = {0};
    int bad = text_read_file(&t, r->file, MAX_PROMPTS_FILE, e);
    for (const char *s = t.s, *end = s + t.n; !bad && s && s < end;) {
        const char *stop = memchr(s, '\n', (size_t)(end - s));
        if (!stop) stop = end;
        size_t n = (size_t)(stop - s);
        r->line++;
        while (n && s[n - 1] == '\r') n--;
        if (n) bad = line_read(r, s, n, e);
        s = stop + 1;
    }
    text_free(&t);
    r->line = 0;
    return bad;
}

int prompts_read(const struct conf *c, struct prompts **out, struct err *e)
{
    struct prompt_reader r = {.c = c, .file = c->generate.prompts, .p = mem_alloc(sizeof *r.p)};
    int bad = r.file ? file_read(&r, e) : 0;
    for (int i = 0; i < c->generate.prompt.n && !bad; i++)
        bad = text_encode(&r, c->generate.prompt.v[i], strlen(c->generate.prompt.v[i]), e);
    if (!bad && !r.p->of.n)
        bad = conf_error(c, "generate.prompts", e, "there are no prompts: use it, or --prompt TEXT");
    for (int i = 0; i < r.p->of.n; i++) if (r.p->of.v[i].id.n > r.p->longest) r.p->longest = r.p->of.v[i].id.n;
    tokenizer_close(r.tokenizer);
    *out = r.p;
    if (!bad) return 0;
    prompts_free(r.p);
    *out = NULL;
    return -1;
}

void prompts_free(struct prompts *p)
{
    for (int i = 0; p && i < p->of.n; i++) vec_free(&p->of.v[i].id);
    if (p) vec_free(&p->of);
    free(p);
}

int prompts_check(const struct prompts *p, const struct conf *c, const struct graph *g, struct err *e)
{
    const int64_t vocabulary = graph_input_range(g, g->input[0].tensor),
                  context = graph_input_range(g, g->input[1].tensor);
    for (int i = 0; i < p->of.n; i++) {
        const struct prompt_reader r = {.c = c, .file = c->generate.prompts, .line = p->of.v[i].line};
        char why[120];
        for (int k = 0; k < p->of.v[i].id.n; k++) {
            if (p->of.v[i].id.v[k] < vocabulary) continue;
            snprintf(why, sizeof why, "token %lld at %d, and the vocabulary has %lld", (long long)p->of.v[i].id.v[k], k,
                     (long long)vocabulary);
            return prompt_fail(&r, e, why);
        }
        if (p->of.v[i].id.n < context) continue;
        snprintf(why, sizeof why, "a prompt of %d tokens leaves no position of the context of %lld", p->of.v[i].id.n,
                 (long long)context);
        return prompt_fail(&r, e, why);
    }
    return 0;
}

/* ---- samples ------------------------------------------------------------------------------------------- */

enum { FIELD_TOKENS, FIELD_POSITIONS, FIELD_SLOTS, FIELDS };

int64_t prompt_sample_id(struct prompt_sample s)
{
    return s.token << 38 | s.position << 14 | s.slot;
}

static uint64_t tokens_count(const struct ds *d) { return INT64_MAX; }

static int token_read(struct ds *d, uint64_t sample, uint64_t visit, int field, void *out, struct err *e)
{
    if (field == FIELD_TOKENS) *(int64_t *)out = (int64_t)(sample >> 38);
    else *(int32_t *)out = (int32_t)(field == FIELD_SLOTS ? sample % PROMPT_SLOTS
                                                          : sample / PROMPT_SLOTS % PROMPT_POSITIONS);
    return 0;
}

static void tokens_close(struct ds *d) { free(d); }

static const struct ds_kind generated = {.name = "prompts", .text = "", .count = tokens_count, .read = token_read,
                                         .positions = true, .close = tokens_close};

int prompts_open(const struct graph *g, struct ds **out, struct err *e)
{
    static const struct { const char *name; enum dtype type; } field[FIELDS] = {
        [FIELD_TOKENS] = {"tokens", I64}, [FIELD_POSITIONS] = {"positions", I32}, [FIELD_SLOTS] = {"slots", I32}};
    struct ds *d = mem_alloc(sizeof *d);
    *d = (struct ds){.kind = &generated, .n_fields = FIELDS};
    for (int i = 0; i < FIELDS; i++) {
        d->field[i] = (struct field){field[i].name, ROLE_SAMPLE, field[i].type, {1, {1}}, 0, 0};
        for (int k = 0; k < g->n_inputs; k++)             /* prompts_check compares tokens and positions */
            if (!strcmp(g->tensor[g->input[k].tensor].name, field[i].name))
                d->field[i].range = graph_input_range(g, g->input[k].tensor);
    }
    *out = d;
    if (!ds_match(d, g, e)) return 0;
    tokens_close(d);
    *out = NULL;
    return -1;
}
