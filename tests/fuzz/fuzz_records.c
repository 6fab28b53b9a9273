/* A line of JSON as a record and as a prompt: a record that is taken has two tokens and as many labels, all below the
 * vocabulary. The template's marks are the special tokens of a small tokenizer. */
#include "refusal.h"
#include "base/mem.h"
#include "data/records.h"

enum { VOCABULARY = 264 };
static struct tokenizer *bytes;
static struct chat *template;

/* 65, and one line that names the place. */
static void refused(const struct err *e)
{
    must(e->code == E_DATA && !strncmp(e->text, "r.jsonl:3: ", 11));
    for (const char *s = e->text; *s; s++) must((unsigned char)*s >= 0x20);
}

static void setup(void)
{
    struct err e = {0};
    if (bytes) return;
    must(!tokenizer_open("bytes", &bytes, &e));
    must(!chat_open("chatml", &template, &e));
}

static void check(const struct record *r, int least)
{
    must(r->id.n >= least && r->id.n == r->label.n);
    for (int i = 0; i < r->id.n; i++) {
        must(r->id.v[i] >= 0 && r->id.v[i] < VOCABULARY);
        must(r->label.v[i] == LABEL_IGNORED || (r->label.v[i] >= 0 && r->label.v[i] < VOCABULARY));
    }
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    setup();
    const struct document line = {"r.jsonl", 3, (const char *)data, size};
    const struct record_form form = {bytes, template, 256, VOCABULARY}, bare = {NULL, NULL, -1, VOCABULARY};
    struct record r = {.id = {0}};
    struct err e = {0};
    if (record_parse(&form, &line, &r, &e)) refused(&e);
    else check(&r, 2);
    e = (struct err){0};
    if (record_prompt(&form, &line, &r, &e)) refused(&e);
    else check(&r, 1);
    e = (struct err){0};
    if (record_parse(&bare, &line, &r, &e)) refused(&e);
    else check(&r, 2);
    record_free(&r);
    return 0;
}
