/* Manifests of checkpoints: an error is one line that begins with the file's name; an accepted manifest names each file
 * once and without a folder, and prints as a text that parses to the same text. */
#include <math.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include "base/text.h"
#include "ckpt/checkpoint.h"

static const char place[] = "run/checkpoints/step-00000007/manifest.json: ";
static const char other[] = "run/checkpoints/step-00000007: it was written by another version of mpstaged ";

static void must(bool right) { if (!right) abort(); }

static void error_check(const struct err *e)
{
    bool newer = e->code == E_CONF && !strncmp(e->text, other, sizeof other - 1);
    must(newer || (e->code == E_DATA && !strncmp(e->text, place, sizeof place - 1)));
    for (const char *s = e->text; *s; s++) must((unsigned char)*s >= 0x20);
}

static void files_check(const struct ckpt *c)
{
    must(c->n_files > 0);
    for (int i = 0; i < c->n_files; i++) {
        must(*c->file[i].name && !strchr(c->file[i].name, '/') && c->file[i].name[0] != '.');
        must(strlen(c->file[i].hash) == 32);
        for (int k = 0; k < i; k++) must(strcmp(c->file[k].name, c->file[i].name) != 0);
    }
}

static void round_trip(const struct ckpt *c)
{
    struct err e = {0};
    struct text first = {0}, second = {0};
    struct ckpt again;
    ckpt_print(c, &first);
    must(!ckpt_parse("run/checkpoints", 7, first.s, first.n, &again, &e));
    ckpt_print(&again, &second);
    must(first.n == second.n && !memcmp(first.s, second.s, second.n));
    ckpt_free(&again);
    text_free(&first);
    text_free(&second);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);
int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct err e = {0};
    struct ckpt c;
    if (ckpt_parse("run/checkpoints", 7, (const char *)data, size, &c, &e)) {
        error_check(&e);
        must(!c.file && !c.setting && !c.numerics);
        return 0;
    }
    must(c.step == 7 && c.numerics && c.config && isfinite(c.value) && isfinite(c.rate) && c.rate >= 0);
    files_check(&c);
    round_trip(&c);
    ckpt_free(&c);
    return 0;
}
