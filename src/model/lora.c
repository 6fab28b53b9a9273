/* Settings of adapters: section lora, and adapter_config.json of peft. */
#include <jansson.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include "model/decoder.h"
#include "model/lora.h"
#include "model/op.h"

double lora_scale(const struct lora *l)
{
    return l->alpha / (l->rslora ? sqrt((double)l->rank) : (double)l->rank);
}

bool lora_leaves_model(const struct conf *c) { return conf_adapts(c) ? c->lora.merge : decoder_is(c); }

/* ---- reading ------------------------------------------------------------------------------------- */

bool lora_config_find(const struct conf *c, struct text *path)
{
    static const char *const at[] = {"%s/" ADAPTER_CONFIG, "%s/adapter/" ADAPTER_CONFIG};
    for (size_t i = 0; c->lora.init_from && i < sizeof at / sizeof *at; i++) {
        path->n = 0;
        text_add(path, at[i], c->lora.init_from);
        if (!access(path->s, F_OK)) return true;
    }
    return false;
}

/* Nothing, false, or empty. */
static bool json_says_nothing(const json_t *v)
{
    return !v || json_is_null(v) || json_is_false(v) || (json_is_object(v) && !json_object_size(v)) ||
           (json_is_array(v) && !json_array_size(v));
}

/* What is not in this list, and says something, may change what an adapter computes. Others are read below. */
static int peft_unknown(const char *file, json_t *o, struct err *e)
{
    static const char *const plain[] = {
        "peft_type", "peft_version", "task_type", "revision", "base_model_name_or_path", "auto_mapping",
        "inference_mode", "runtime_config", "r", "lora_alpha", "lora_dropout", "use_rslora", "target_modules", "bias",
        "fan_in_fan_out", "init_lora_weights", "eva_config", "loftq_config", "layers_pattern", "megatron_core",
        "qalora_group_size", "ensure_weight_tying"};
    const char *key;
    json_t *v;
    json_object_foreach(o, key, v) {
        bool known = json_says_nothing(v);
        for (size_t i = 0; i < sizeof plain / sizeof *plain && !known; i++) known = !strcmp(key, plain[i]);
        if (!known) return err_set(e, E_CONF, "%s: %.40s is not supported", file, key);
    }
    return 0;
}

static int peft_refuse(const char *file, json_t *o, struct err *e)
{
    static const char *const begins[] = {"gaussian", "eva", "orthogonal"};   /* others change base weights */
    const char *type = json_string_value(json_object_get(o, "peft_type")),
               *bias = json_string_value(json_object_get(o, "bias")),
               *first = json_string_value(json_object_get(o, "init_lora_weights"));
    bool known = !first;
    if (!type) return err_set(e, E_CONF, "%s: peft_type is missing: this is no adapter of peft", file);
    if (strcmp(type, "LORA")) return err_set(e, E_CONF, "%s: peft_type %.40s is not supported, only LORA", file, type);
    if (bias && strcmp(bias, "none")) return err_set(e, E_CONF, "%s: bias \"%.40s\" is not supported", file, bias);
    for (size_t i = 0; i < sizeof begins / sizeof *begins; i++) known |= first && !strcmp(first, begins[i]);
    if (!known) return err_set(e, E_CONF, "%s: init_lora_weights \"%.40s\" is not supported", file, first);
    return peft_unknown(file, o, e);
}

static int number_take(const char *file, const json_t *o, const char *key, double least, double *x, struct err *e)
{
    const json_t *v = json_object_get(o, key);
    if (!json_is_number(v) || !(json_number_value(v) >= least && json_number_value(v) <= 1e6))
        return err_set(e, E_CONF, "%s: %s is no number from %g", file, key, least);
    *x = json_number_value(v);
    return 0;
}

/* A list of names, or a word: all-linear. Other words are regular expressions. */
static int targets_take(const char *file, const json_t *v, struct arena *mem, struct lora *l, struct err *e)
{
    const size_t n = json_is_array(v) ? json_array_size(v) : 1;
    if (json_is_string(v) && strcmp(json_string_value(v), "all-linear"))
        return err_set(e, E_CONF, "%s: target_modules \"%.60s\" is a pattern; name the layers in lora.targets", file,
                       json_string_value(v));
    const char **name = arena_alloc(mem, (n + 1) * sizeof *name);
    for (size_t i = 0; i < n; i++) {
        const json_t *word = json_is_array(v) ? json_array_get(v, i) : v;
        if (!json_is_string(word)) return err_set(e, E_CONF, "%s: target_modules is no list of names", file);
        name[i] = arena_strdup(mem, json_string_value(word));
    }
    l->n_targets = (int)n;
    l->target = name;
    return n ? 0 : err_set(e, E_CONF, "%s: target_modules is empty", file);
}

static int setting_contradicts(const struct conf *c, const char *key, const char *file, const char *theirs, double is,
                               struct err *e)
{
    return conf_error(c, key, e, "%s has %s = %.10g", file, theirs, is);
}

/* Settings that are given must be the adapter's: with others it would compute something else. */
static int peft_take(const struct conf *c, const char *file, json_t *o, struct arena *mem, struct lora *l,
                     struct err *e)
{
    double rank, alpha, dropout = 0;
    const bool rslora = json_is_true(json_object_get(o, "use_rslora"));
    if (peft_refuse(file, o, e) || number_take(file, o, "r", 1, &rank, e)) return -1;
    if (number_take(file, o, "lora_alpha", 1e-6, &alpha, e)) return -1;
    if (json_object_get(o, "lora_dropout") && number_take(file, o, "lora_dropout", 0, &dropout, e)) return -1;
    if (dropout >= 1) return err_set(e, E_CONF, "%s: lora_dropout %g is not below 1", file, dropout);
    if (!json_is_integer(json_object_get(o, "r"))) return err_set(e, E_CONF, "%s: r is no whole number", file);
    if (l->rank && (double)l->rank != rank) return setting_contradicts(c, "lora.rank", file, "r", rank, e);
    if (l->alpha > 0 && l->alpha != alpha) return setting_contradicts(c, "lora.alpha", file, "lora_alpha", alpha, e);
    if (conf_given(c, "lora.rslora") && l->rslora != rslora)
        return setting_contradicts(c, "lora.rslora", file, "use_rslora", rslora, e);
    l->alpha = alpha;
    l->rslora = rslora;
    l->rank = (int64_t)rank;
    if (!conf_given(c, "lora.dropout")) l->dropout = dropout;
    return l->n_targets ? 0 : targets_take(file, json_object_get(o, "target_modules"), mem, l, e);
}

static int init_from_take(const struct conf *c, struct arena *mem, struct lora *l, struct err *e)
{
    struct text file = {0}, network = {0};
    int bad = 0;
    text_add(&network, "%s/config.json", c->lora.init_from);
    if (lora_config_find(c, &file)) {
        json_t *o = decoder_object(file.s, e);
        bad = !o || peft_take(c, file.s, o, mem, l, e) ? -1 : 0;
        json_decref(o);
    } else if (conf_given(c, "lora.init_from") && !access(network.s, F_OK)) {
        bad = conf_error(c, "lora.init_from", e, "%s holds no adapter (no " ADAPTER_CONFIG "); a network's folder is "
                         "model.folder", c->lora.init_from);
    } else if ((!l->rank || !(l->alpha > 0)) && conf_given(c, "lora.init_from")) {
        const char *lacks = l->rank ? "lora.alpha" : "lora.rank";
        bad = access(c->lora.init_from, F_OK) ? err_set(e, E_NOINPUT, "%s: %m", c->lora.init_from)
              : conf_error(c, lacks, e, "missing, and %s has no " ADAPTER_CONFIG, c->lora.init_from);
    }
    text_free(&file);
    text_free(&network);
    return bad;
}

int lora_of(const struct conf *c, struct arena *mem, struct lora *l, struct err *e)
{
    static const char *const all[] = {"all-linear"};
    *l = (struct lora){c->lora.rank, c->lora.alpha, c->lora.dropout, c->lora.rslora, c->lora.targets.n,
                       c->lora.targets.v};
    if (c->lora.init_from && init_from_take(c, mem, l, e)) return -1;
    if (!(l->alpha > 0)) l->alpha = (double)l->rank;
    if (!l->n_targets) l->n_targets = 1, l->target = all;
    return 0;
}

/* ---- writing ------------------------------------------------------------------------------------- */

static bool adapted(const struct graph *g, int node)
{
    struct lora_pair p;
    return lora_beside(g, node, &p);
}

static const char *last_part(const char *name)
{
    const char *dot = strrchr(name, '.');
    return dot ? dot + 1 : name;
}

/* Does this last part of a name belong to adapted layers alone? */
static bool part_tells(const struct graph *g, const char *part)
{
    for (int i = 0; i < g->n_nodes; i++)
        if (!strcmp(last_part(g->node[i].name), part) && !adapted(g, i)) return false;
    return true;
}

static bool list_has(const json_t *list, const char *word)
{
    const json_t *v;
    size_t i;
    json_array_foreach(list, i, v) if (!strcmp(json_string_value(v), word)) return true;
    return false;
}

/* Last parts of the names of all layers that have adapters; whole names where others have the same. */
static json_t *modules(const struct graph *g)
{
    json_t *list = json_array();
    for (int i = 0; i < g->n_nodes; i++) {
        const char *part = last_part(g->node[i].name), *word = part_tells(g, part) ? part : g->node[i].name;
        if (adapted(g, i) && !list_has(list, word)) json_array_append_new(list, json_string(word));
    }
    return list;
}

/* transformers' Conv1D. */
static bool any_turned(const struct graph *g)
{
    for (int i = 0; i < g->n_nodes; i++) if (adapted(g, i) && g->param[g->node[i].param[0]].turned) return true;
    return false;
}

int lora_config(const struct conf *c, const struct graph *g, struct text *out, struct err *e)
{
    struct arena *mem = arena_new();
    struct lora l;
    const char *base = c->model.folder ? c->model.folder : c->run.init_from;
    int bad = lora_of(c, mem, &l, e);
    if (!bad) {
        const bool whole = l.alpha == floor(l.alpha);
        json_t *o = json_pack("{s:s, s:s?, s:s?, s:I, s:o, s:f, s:o, s:s, s:b, s:b, s:b}", "peft_type", "LORA",
                              "task_type", decoder_is(c) ? "CAUSAL_LM" : NULL, "base_model_name_or_path", base, "r",
                              (json_int_t)l.rank, "lora_alpha",
                              whole ? json_integer((json_int_t)l.alpha) : json_real(l.alpha), "lora_dropout", l.dropout,
                              "target_modules", modules(g), "bias", "none", "fan_in_fan_out", any_turned(g),
                              "use_rslora", l.rslora, "inference_mode", 1);
        char *s = json_dumps(o, JSON_INDENT(2) | JSON_SORT_KEYS | JSON_REAL_PRECISION(12));
        text_add(out, "%s\n", s);
        free(s);
        json_decref(o);
    }
    arena_free(mem);
    return bad;
}
