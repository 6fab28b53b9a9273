/* Parses requests to the control socket. */
#include <math.h>
#include <stdio.h>
#include <string.h>
#include "base/text.h"
#include "service/ctl_request.h"

/* keys: what a request may have besides "command" and "id"; needs: the keys that it must have */
static const struct { const char *name, *keys, *needs; bool reads; } commands[] = {
    [CTL_STATUS] = {"status", "", "", true},
    [CTL_CHECKPOINT] = {"checkpoint", "wait", ""},
    [CTL_STOP] = {"stop", "wait checkpoint", ""},
    [CTL_PAUSE] = {"pause", "", ""},
    [CTL_RESUME] = {"resume", "", ""},
    [CTL_SET] = {"set", "key value", "key value"},
    [CTL_RELOAD] = {"reload", "", ""},
    [CTL_LOG_LEVEL] = {"log-level", "level", "level"},
};
enum { COMMANDS = sizeof commands / sizeof *commands, CITE_BYTES = 60 };

const char *ctl_command_name(enum ctl_command c) { return commands[c].name; }

static const char *cite(const char *s, char buf[CITE_BYTES]) { return text_printable(s, buf, CITE_BYTES); }

static bool listed(const char *list, const char *word)
{
    size_t n = strlen(word);
    for (const char *s = list; *s; s += strcspn(s, " "), s += strspn(s, " "))
        if (strcspn(s, " ") == n && !memcmp(s, word, n)) return true;
    return false;
}

/* Checks that every key belongs to the command, and that no required key is missing. */
static int keys_check(const struct ctl_request *r, struct err *e)
{
    const char *key, *name = commands[r->command].name, *needs = commands[r->command].needs;
    char said[CITE_BYTES];
    json_t *value;
    json_object_foreach(r->all, key, value)
        if (strcmp(key, "command") && strcmp(key, "id") && !listed(commands[r->command].keys, key))
            return err_set(e, E_USAGE, "%s: there is no key \"%s\"", name, cite(key, said));
    for (const char *s = needs; *s; s += strcspn(s, " "), s += strspn(s, " ")) {
        snprintf(said, sizeof said, "%.*s", (int)strcspn(s, " "), s);
        if (!json_object_get(r->all, said)) return err_set(e, E_USAGE, "%s: needs a \"%s\"", name, said);
    }
    return 0;
}

static int yes_no(const struct ctl_request *r, const char *key, bool *x, struct err *e)
{
    const json_t *v = json_object_get(r->all, key);
    *x = json_is_true(v);
    if (!v || json_is_boolean(v)) return 0;
    return err_set(e, E_USAGE, "%s: \"%s\" must be true or false", commands[r->command].name, key);
}

static int text_value(const struct ctl_request *r, const char *key, const char **x, struct err *e)
{
    const json_t *v = json_object_get(r->all, key);
    *x = json_string_value(v);
    if (!v || *x) return 0;
    return err_set(e, E_USAGE, "%s: \"%s\" is a text", commands[r->command].name, key);
}

/* A number becomes the shortest text that parses to the same double. */
static int value_take(struct ctl_request *r, struct err *e)
{
    const json_t *v = json_object_get(r->all, "value");
    if (!json_is_number(v)) return text_value(r, "value", &r->value, e);
    double x = json_number_value(v);
    for (int digits = 1; digits <= 17; digits++) {
        snprintf(r->number, sizeof r->number, "%.*g", digits, x);
        json_t *same = json_loads(r->number, JSON_DECODE_ANY, NULL);
        bool exact = same && json_number_value(same) == x;
        json_decref(same);
        if (exact) break;
    }
    r->value = r->number;
    return 0;
}

static int command_find(struct ctl_request *r, struct err *e)
{
    const char *name = json_string_value(json_object_get(r->all, "command"));
    char said[CITE_BYTES];
    if (!name) return err_set(e, E_USAGE, "a request needs a \"command\"");
    for (int i = 0; i < COMMANDS; i++)
        if (strcmp(commands[i].name, name) == 0) {
            r->command = (enum ctl_command)i;
            r->reads = commands[i].reads;
            return 0;
        }
    return err_set(e, E_USAGE, "unknown command \"%s\"", cite(name, said));
}

int ctl_request_parse(const char *s, size_t n, struct ctl_request *r, struct err *e)
{
    json_error_t where;
    *r = (struct ctl_request){.all = json_loadb(s, n, JSON_REJECT_DUPLICATES, &where)};
    if (!r->all) return err_set(e, E_USAGE, "a request is one JSON object a line: bad JSON at byte %d", where.position);
    if (!json_is_object(r->all)) return err_set(e, E_USAGE, "a request is one JSON object a line");
    r->id = json_object_get(r->all, "id");
    if (command_find(r, e) || keys_check(r, e)) return -1;
    if (yes_no(r, "wait", &r->wait, e) || yes_no(r, "checkpoint", &r->checkpoint, e)) return -1;
    return text_value(r, "key", &r->key, e) || value_take(r, e) || text_value(r, "level", &r->level, e) ? -1 : 0;
}

void ctl_request_free(struct ctl_request *r)
{
    json_decref(r->all);
    *r = (struct ctl_request){0};
}
