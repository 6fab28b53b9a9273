/* Loading, overriding, finishing and printing a configuration. */
#include <jansson.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "conf/parse.h"

enum { FILE_MAX = 1 << 20 };
#define BIG_RANGE 9e15                                    /* larger limits are not worth telling */

static struct conf *conf_new(const char *file)
{
    struct arena *mem = arena_new();
    struct conf *c = arena_alloc(mem, sizeof *c);
    c->mem = mem;
    c->file = arena_strdup(mem, file);
    c->line = arena_alloc(mem, (size_t)opt_count() * sizeof *c->line);
    for (int i = 0; opt_table[i].key; i++) {
        char def[64];
        const char *v = def;
        if (!opt_table[i].def) continue;
        snprintf(def, sizeof def, "%s", opt_table[i].def);
        bool quoted = def[0] == '"';
        if (quoted) { v = def + 1; def[strlen(def) - 1] = 0; }
        opt_set(c, i, 1, &v, quoted, false, NULL);
    }
    return c;
}

struct conf *conf_parse(const char *file, const char *s, size_t n, struct err *e)
{
    struct conf *c = conf_new(file);
    struct err own = {0};
    if (n > FILE_MAX) err_set(&own, E_CONF, "%s: larger than 1 MiB", file);
    else conf_parse_text(c, s, n, &own);
    if (!own.code) return c;
    err_set(e, own.code, "%s", own.text);
    conf_free(c);
    return NULL;
}

struct conf *conf_load(const char *file, struct err *e)
{
    struct text t = {0};
    struct conf *c = NULL;
    if (!text_read_file(&t, file, FILE_MAX, e)) c = conf_parse(file, t.s, t.n, e);
    else if (e && e->code == E_DATA) e->code = E_CONF;   /* a configuration that is too large, or a directory */
    text_free(&t);
    return c;
}

void conf_free(struct conf *c) { if (c) arena_free(c->mem); }

int conf_error(const struct conf *c, const char *key, struct err *e, const char *fmt, ...)
{
    char text[800];
    va_list ap;
    va_start(ap, fmt);
    vsnprintf(text, sizeof text, fmt, ap);
    va_end(ap);
    int i = opt_find(key, strlen(key));
    if (i >= 0 && c->line[i] > 0) return err_set(e, E_CONF, "%s:%d: %s: %s", c->file, c->line[i], key, text);
    return err_set(e, E_CONF, "%s: %s: %s", c->file, key, text);
}

/* Splits "{1, 2}" or "1,2" of an override into values. */
static int values_split(char *s, const char **v)
{
    int n = 0;
    size_t len = strlen(s);
    if (len >= 2 && s[0] == '{' && s[len - 1] == '}') { s[len - 1] = 0; s++; }
    for (char *save, *t = strtok_r(s, ", \t", &save); t && n <= CONF_LIST; t = strtok_r(NULL, ", \t", &save)) v[n++] = t;
    return n;
}

int conf_set(struct conf *c, const char *what, const char *assignment, struct err *e)
{
    const char *eq = strchr(assignment, '=');
    char value[2048];
    const char *v[CONF_LIST + 1];
    if (!eq || eq == assignment) return err_set(e, E_USAGE, "%s: want SECTION.KEY=VALUE", what);
    size_t n = (size_t)(eq - assignment);
    int i = opt_find(assignment, n);
    if (i < 0) {
        const char *near = opt_nearest(assignment, n);
        return err_set(e, E_USAGE, "%s: there is no option %.*s%s%s%s", what, (int)(n < 80 ? n : 80), assignment, near ? " (did you mean " : "", near ? near : "", near ? "?)" : "");
    }
    if (strlen(eq + 1) >= sizeof value) return err_set(e, E_CONF, "%s: the value is too long", what);
    strcpy(value, eq + 1);
    enum opt_type type = opt_table[i].type;
    bool list = type == OPT_INTS || type == OPT_REALS, text = type == OPT_STRING || type == OPT_WORD;
    size_t len = strlen(value);
    v[0] = value;
    if (text && len >= 2 && value[0] == '"' && value[len - 1] == '"') { value[len - 1] = 0; v[0] = value + 1; }
    struct err own = {0};
    if (opt_set(c, i, list ? values_split(value, v) : 1, v, text, false, &own)) return err_set(e, E_CONF, "%s: %s", what, own.text);
    c->line[i] = -1;
    return 0;
}

/* ---- rules between options ---------------------------------------------------------------------------------------------------------- */

static bool given(const struct conf *c, const char *key) { return c->line[opt_find(key, strlen(key))] != 0; }

static int model_rules(struct conf *c, struct err *e)
{
    if (c->model.network && c->model.graph) return conf_error(c, "model.graph", e, "model.network is set, too: one of the two");
    if (!c->model.network && !c->model.graph) return err_set(e, E_CONF, "%s: model.network (or model.graph) is missing", c->file);
    if (!c->data.source) return err_set(e, E_CONF, "%s: data.source is missing", c->file);
    if (c->data.pad.n && c->data.pad.n != 2) return conf_error(c, "data.pad", e, "want height and width");
    if ((c->data.mean.n != 0) != (c->data.std.n != 0)) return conf_error(c, c->data.mean.n ? "data.mean" : "data.std", e, "data.mean and data.std go together");
    bool files = strcmp(c->data.source, "synthetic") != 0;
    if (files && !c->data.train_images && !c->run.evaluate) return err_set(e, E_CONF, "%s: data.train_images is missing", c->file);
    if (files && c->data.train_images && !c->data.train_labels) return err_set(e, E_CONF, "%s: data.train_labels is missing", c->file);
    if (files && c->data.test_images && !c->data.test_labels) return err_set(e, E_CONF, "%s: data.test_labels is missing", c->file);
    if (!given(c, "data.shuffle")) c->data.shuffle = !strcmp(c->data.source, "idx");
    if (!files && !c->data.labels) c->data.labels = "class";
    return 0;
}

static int train_rules(struct conf *c, struct err *e)
{
    if (!c->train.split_size || (!given(c, "train.split_size") && c->train.split_size > c->train.batch_size)) c->train.split_size = c->train.batch_size;
    if (c->train.split_size > c->train.batch_size) return conf_error(c, "train.split_size", e, "%lld is larger than the batch of %lld", (long long)c->train.split_size, (long long)c->train.batch_size);
    if (!c->train.evaluate_batch_size) c->train.evaluate_batch_size = c->train.batch_size;
    if (!c->train.steps && !c->train.epochs && !c->run.evaluate) return err_set(e, E_CONF, "%s: train.steps or train.epochs is missing", c->file);
    if (c->train.nesterov && !(c->train.momentum > 0)) return conf_error(c, "train.nesterov", e, "needs train.momentum");
    if (!strcmp(c->train.schedule, "step") && !c->train.milestones.n) return conf_error(c, "train.schedule", e, "step needs train.milestones");
    for (int i = 1; i < c->train.milestones.n; i++)
        if (c->train.milestones.v[i] <= c->train.milestones.v[i - 1]) return conf_error(c, "train.milestones", e, "must ascend");
    return 0;
}

static int pipeline_rules(struct conf *c, struct err *e)
{
    if (!c->pipeline.partition) c->pipeline.partition = c->pipeline.n_stages ? "manual" : "uniform";
    bool manual = !strcmp(c->pipeline.partition, "manual");
    if (!manual) c->pipeline.n_stages = 0;               /* sections of another partition are moot */
    if (manual && !c->pipeline.n_stages) return conf_error(c, "pipeline.partition", e, "manual needs stage sections");
    if (manual && given(c, "pipeline.stages") && c->pipeline.stages != c->pipeline.n_stages)
        return conf_error(c, "pipeline.stages", e, "%lld, but there are %d stage sections", (long long)c->pipeline.stages, c->pipeline.n_stages);
    if (!strcmp(c->pipeline.schedule, "rows") && !c->pipeline.rows) return conf_error(c, "pipeline.schedule", e, "rows needs pipeline.rows");
    if (!c->run.directory) c->run.directory = arena_printf(c->mem, "runs/%s", c->run.name);
    if (strchr(c->run.name, '/')) return conf_error(c, "run.name", e, "must not contain a slash");
    return 0;
}

int conf_finish(struct conf *c, struct err *e) { return model_rules(c, e) || train_rules(c, e) || pipeline_rules(c, e) ? -1 : 0; }

/* ---- printing -------------------------------------------------------------------------------------------------------------------- */

static void stages_print(const struct conf *c, struct text *out)
{
    for (int i = 0; i < c->pipeline.n_stages; i++) text_add(out, "    stage { first = \"%s\"  last = \"%s\" }\n", c->pipeline.stage[i].first, c->pipeline.stage[i].last);
}

void conf_print(const struct conf *c, struct text *out)
{
    const char *section = "";
    size_t n = 0;
    for (int i = 0; opt_table[i].key; i++) {
        const struct opt *o = &opt_table[i];
        size_t dot = strcspn(o->key, ".");
        if (dot != n || memcmp(section, o->key, n)) {
            if (n == 8 && !memcmp(section, "pipeline", 8)) stages_print(c, out);
            text_add(out, "%s%.*s {\n", n ? "}\n" : "", (int)dot, o->key);
            section = o->key;
            n = dot;
        }
        if (!opt_is_set(c, i)) continue;
        text_add(out, "    %s = ", o->key + dot + 1);
        opt_print(c, i, out);
        text_add(out, "\n");
    }
    text_add(out, "}\n");
}

static json_t *value_json(const struct conf *c, int i)
{
    const struct opt *o = &opt_table[i];
    const char *at = (const char *)c + o->offset;
    json_t *a;
    switch (o->type) {
    case OPT_STRING: case OPT_WORD: return json_string(*(const char *const *)at);
    case OPT_INT: return json_integer(*(const int64_t *)at);
    case OPT_REAL: return json_real(*(const double *)at);
    case OPT_BOOL: return json_boolean(*(const bool *)at);
    case OPT_INTS:
        a = json_array();
        for (int k = 0; k < ((const struct conf_ints *)at)->n; k++) json_array_append_new(a, json_integer(((const struct conf_ints *)at)->v[k]));
        return a;
    case OPT_REALS:
        a = json_array();
        for (int k = 0; k < ((const struct conf_reals *)at)->n; k++) json_array_append_new(a, json_real(((const struct conf_reals *)at)->v[k]));
        return a;
    }
    return json_null();
}

char *conf_json(const struct conf *c)
{
    json_t *all = json_object(), *stages = json_array();
    for (int i = 0; opt_table[i].key; i++) {
        char name[64];
        size_t dot = strcspn(opt_table[i].key, ".");
        snprintf(name, sizeof name, "%.*s", (int)dot, opt_table[i].key);
        if (!json_object_get(all, name)) json_object_set_new(all, name, json_object());
        if (opt_is_set(c, i)) json_object_set_new(json_object_get(all, name), opt_table[i].key + dot + 1, value_json(c, i));
    }
    for (int i = 0; i < c->pipeline.n_stages; i++)
        json_array_append_new(stages, json_pack("{s:s,s:s}", "first", c->pipeline.stage[i].first, "last", c->pipeline.stage[i].last));
    json_object_set_new(json_object_get(all, "pipeline"), "stage", stages);
    char *s = json_dumps(all, JSON_INDENT(2));
    json_decref(all);
    return s;
}

void conf_manual(struct text *out)
{
    static const char *const kind[] = {"text", "word", "whole number", "number", "yes or no", "list of whole numbers", "list of numbers"};
    for (int i = 0; opt_table[i].key; i++) {
        const struct opt *o = &opt_table[i];
        text_add(out, ".It Ic %s\n%c%s.\n", o->key, o->text[0] >= 'a' && o->text[0] <= 'z' ? o->text[0] - 32 : o->text[0], o->text + 1);
        if (o->type == OPT_WORD) {
            text_add(out, "One of");
            for (const char *w = o->words; *w; w += strcspn(w, " "), w += strspn(w, " ")) if (*w != '!') text_add(out, "\n.Cm %.*s", (int)strcspn(w, " "), w);
            text_add(out, " .\n");
        } else if (o->type == OPT_INT && o->hi < BIG_RANGE) text_add(out, "A %s from %.15g to %.15g.\n", kind[o->type], o->lo, o->hi);
        else text_add(out, "A %s.\n", kind[o->type]);
        if (o->def) {
            char def[64];
            snprintf(def, sizeof def, "%s", o->def[0] == '"' ? o->def + 1 : o->def);
            if (o->def[0] == '"') def[strlen(def) - 1] = 0;
            text_add(out, "The default is\n.Cm %s .\n", def);
        }
    }
}
