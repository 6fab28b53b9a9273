/* Configurations, and overrides (inputs that begin with "-o "): an error is one line with a place; an accepted text
 * prints as a text that parses to the same text. */
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include "conf/conf.h"
#include "depth.h"

static const char base[] = "model { network = \"toy\" }\ndata { source = \"synthetic\" }\ntrain { steps = 1 "
                           "}\npipeline { stage { first = \"a\" last = \"b\" } }\n";

static void must(bool right) { if (!right) abort(); }

static void error_check(const struct err *e, const char *place)
{
    must(e->code == E_CONF || (e->code == E_USAGE && *place == '-'));
    must(!strncmp(e->text, place, strlen(place)));
    for (const char *s = e->text; *s; s++) must((unsigned char)*s >= 0x20);
}

/* Variables of file names: each has a value that means something itself, but those whose name begins with U. */
static char *variable(const char *name)
{
    static char home[] = "/ho$me", value[] = "~/$HOME~";
    return *name == 'U' ? NULL : strcmp(name, "HOME") ? value : home;
}

static bool settle(struct conf *c, struct err *e) { return !conf_finish(c, e) && !conf_expand(c, variable, e); }

static void round_trip(const struct conf *c)
{
    struct err e = {0};
    struct text first = {0}, second = {0};
    conf_print(c, &first);
    struct conf *again = conf_parse("printed.conf", first.s, first.n, &e);
    must(again && settle(again, &e));
    conf_print(again, &second);
    must(first.n == second.n && !memcmp(first.s, second.s, second.n));
    char *json = conf_json(again);
    must(json != NULL);
    free(json);
    text_free(&first);
    text_free(&second);
    conf_free(again);
}

static struct conf *overridden(const char *assignment, struct err *e)
{
    struct conf *c = conf_parse("fuzz.conf", base, sizeof base - 1, e);
    must(c);
    if (!conf_set(c, "-o", assignment, e)) return c;
    conf_free(c);
    return NULL;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);
int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    bool is_override = size >= 3 && !memcmp(data, "-o ", 3);
    struct err e = {0};
    struct text assignment = {0};
    if (is_override) text_add_bytes(&assignment, data + 3, size - 3);
    struct conf *c = is_override ? overridden(assignment.s, &e) : conf_parse("fuzz.conf", (const char *)data, size, &e);
    if (!c || !settle(c, &e)) error_check(&e, !is_override || !strncmp(e.text, "fuzz", 4) ? "fuzz.conf:" : "-o: ");
    else if (goes_deep()) round_trip(c);
    conf_free(c);
    text_free(&assignment);
    return 0;
}
