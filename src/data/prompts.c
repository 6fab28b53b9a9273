/* See prompts.h. */
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "base/text.h"
#include "data/ds_int.h"
#include "data/prompts.h"
#include "data/records.h"

/* ---- reading ------------------------------------------------------------------------------------------- */

struct prompt_reader { const struct conf *c; struct record_form form; struct record now; struct prompts *p; };

static void prompt_add(struct prompt_reader *r, long line)
{
    struct prompt *new = vec_push(&r->p->of);
    *new = (struct prompt){.line = (int)line};
    for (int i = 0; i < r->now.id.n; i++) *vec_push(&new->id) = r->now.id.v[i];
    if (new->id.n > r->p->longest) r->p->longest = new->id.n;
}

static int prompt_line(void *ctx, const struct document *line, struct err *e)
{
    struct prompt_reader *r = ctx;
    if (record_prompt(&r->form, line, &r->now, e)) return -1;
    prompt_add(r, line->line);
    return 0;
}

static int text_encode(struct prompt_reader *r, const char *text, struct err *e)
{
    struct token_ids ids = {0};
    struct err own = {0};
    if (!r->form.tokenizer && tokenizer_of(r->c, &r->form.tokenizer, e)) return -1;
    int bad = tokenizer_encode(r->form.tokenizer, text, strlen(text), true, &ids, &own);
    r->now.id.n = 0;
    for (int i = 0; i < ids.n && !bad; i++) *vec_push(&r->now.id) = (int32_t)ids.v[i];
    vec_free(&ids);
    if (bad) return conf_error(r->c, "generate.prompt", e, "%s", own.text);
    if (!r->now.id.n) return conf_error(r->c, "generate.prompt", e, "the prompt is empty");
    prompt_add(r, 0);
    return 0;
}

int prompts_read(const struct conf *c, struct prompts **out, struct err *e)
{
    struct prompt_reader r = {.c = c, .p = mem_alloc(sizeof *r.p)};
    int bad = record_form_open(c, INT32_MAX, &r.form, e);
    if (!bad && c->generate.prompts) bad = document_lines_read(c->generate.prompts, prompt_line, &r, e);
    for (int i = 0; i < c->generate.prompt.n && !bad; i++) bad = text_encode(&r, c->generate.prompt.v[i], e);
    if (r.form.tokenizer) r.p->tokens = tokenizer_size(r.form.tokenizer);
    if (!bad && !r.p->of.n && c->generate.prompts)
        bad = err_set(e, E_DATA, "%s: has no prompt", c->generate.prompts);
    if (!bad && !r.p->of.n)
        bad = conf_error(c, "generate.prompts", e, "there are no prompts: use it, or --prompt TEXT");
    record_form_close(&r.form);
    record_free(&r.now);
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

static int prompt_fail(const struct conf *c, const struct prompt *p, const char *why, struct err *e)
{
    if (!p->line) return conf_error(c, "generate.prompt", e, "%s", why);
    return err_set(e, E_DATA, "%s:%d: %s", c->generate.prompts, p->line, why);
}

int prompts_check(const struct prompts *p, const struct conf *c, const struct graph *g, struct err *e)
{
    const int64_t vocabulary = graph_input_range(g, g->input[0].tensor),
                  context = graph_input_range(g, g->input[1].tensor);
    char why[120];
    for (const struct prompt *x = p->of.v; x < p->of.v + p->of.n; x++) {
        for (int k = 0; k < x->id.n; k++) {
            if (x->id.v[k] < vocabulary) continue;
            if (p->tokens > vocabulary)
                return conf_error(c, "data.tokenizer", e, "has %lld tokens, and the network's vocabulary has %lld",
                                  (long long)p->tokens, (long long)vocabulary);
            snprintf(why, sizeof why, "token %lld at %d, and the vocabulary has %lld", (long long)x->id.v[k], k,
                     (long long)vocabulary);
            return prompt_fail(c, x, why, e);
        }
        if (x->id.n < context) continue;
        snprintf(why, sizeof why, "a prompt of %d tokens leaves no position of the context of %lld", x->id.n,
                 (long long)context);
        return prompt_fail(c, x, why, e);
    }
    return 0;
}

/* ---- samples ------------------------------------------------------------------------------------------- */

enum { PROMPT_TOKEN, PROMPT_POSITION, PROMPT_SLOT, PROMPT_FIELDS };

int64_t prompt_sample_id(struct prompt_sample s)
{
    return s.token << 38 | s.position << 14 | s.slot;
}

static uint64_t tokens_count(const struct ds *d) { return INT64_MAX; }

static int token_read(struct ds *d, uint64_t sample, uint64_t visit, int field, void *out, struct err *e)
{
    if (field == PROMPT_TOKEN) *(int64_t *)out = (int64_t)(sample >> 38);
    else *(int32_t *)out = (int32_t)(field == PROMPT_SLOT ? sample % PROMPT_SLOTS
                                                          : sample / PROMPT_SLOTS % PROMPT_POSITIONS);
    return 0;
}

static void tokens_close(struct ds *d) { free(d); }

static const struct ds_kind generated = {.name = "prompts", .text = "", .count = tokens_count, .read = token_read,
                                         .positions = true, .close = tokens_close};

int prompts_open(const struct graph *g, struct ds **out, struct err *e)
{
    static const struct { const char *name; enum dtype type; } field[PROMPT_FIELDS] = {
        [PROMPT_TOKEN] = {"tokens", I64}, [PROMPT_POSITION] = {"positions", I32}, [PROMPT_SLOT] = {"slots", I32}};
    struct ds *d = mem_alloc(sizeof *d);
    *d = (struct ds){.kind = &generated, .n_fields = PROMPT_FIELDS};
    for (int i = 0; i < PROMPT_FIELDS; i++) {
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
